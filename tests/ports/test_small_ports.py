"""The small models of the fault corpus: right by themselves, on every road."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy.special import logsumexp

import autodiff as ad
from checks.ports import audio_tokens, ctc_head, rnnt_joint, toy_transformer

PORTS = {m.__name__.rpartition(".")[2]: m for m in (
    toy_transformer, ctc_head, rnnt_joint, audio_tokens)}  # fmt: skip


def setting(name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    port = PORTS[name]
    return port, port.random_weights(port.TINY, 0), port.random_inputs(port.TINY, 1)


@pytest.mark.parametrize("name", PORTS)
def test_every_road_gives_one_result(name: str) -> None:
    port, weights, (x, words) = setting(name)

    def forward(x: Any) -> Any:
        return port.forward(weights, port.TINY, x, words)

    eager = np.asarray(forward(x))
    size = np.abs(eager).max()
    assert eager.dtype == np.float32
    assert np.abs(ad.compile(forward)(x) - eager).max() <= 1e-5 * size
    double = {k: w.astype(np.float64) for k, w in weights.items()}
    wide = np.asarray(port.forward(double, port.TINY, x.astype(np.float64), words))
    assert wide.dtype == np.float64
    assert np.abs(wide - eager).max() <= 1e-5 * size
    narrow = {k: w.astype(ml_dtypes.bfloat16) for k, w in weights.items()}
    rounded = np.asarray(port.forward(narrow, port.TINY, x, words))
    assert rounded.dtype == np.float32
    assert 1e-4 * size < np.abs(rounded - eager).max() < 0.1 * size


@pytest.mark.parametrize("name", PORTS)
def test_the_gradient_is_that_of_a_difference(name: str) -> None:
    port, weights, (x, words) = setting(name)
    double = {k: w.astype(np.float64) for k, w in weights.items()}
    rng = np.random.default_rng(2)
    x = x.astype(np.float64)
    value, pullback = ad.vjp(lambda x: port.forward(double, port.TINY, x, words), x)
    u, v = rng.normal(size=np.shape(value)), rng.normal(size=x.shape)
    (gradient,) = pullback(u)
    step = 1e-6
    ends = [np.asarray(port.forward(double, port.TINY, x + s * v, words)) for s in (step, -step)]
    slope = np.sum(u * (ends[0] - ends[1])) / (2 * step)
    assert np.sum(gradient * v) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("name", PORTS)
def test_blocks_give_the_dumped_tensors(name: str) -> None:
    port, weights, inputs = setting(name)
    with ad.taps.collect() as seen:
        port.forward(weights, port.TINY, *inputs)
    table = dict(reversed(seen))
    calls: dict[str, int] = {}
    for name, x in seen:
        calls[name] = calls.get(name, -1) + 1
        table[f"{name}#{calls[name]}"] = x
    made = port.blocks(weights, port.TINY)
    assert made
    for block in made:
        found = block.run(*(table[n] for n in block.inputs))
        assert np.array_equal(found, table[block.output]), block.output


def test_the_ctc_loss_is_the_sum_over_all_paths() -> None:
    config = ctc_head.Config(vocab=3, blank=0)
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(5, 3))
    logprobs = logits - logsumexp(logits, axis=1, keepdims=True)
    for labels in ([1, 2], [1, 1], [2]):
        paths = [
            sum(logprobs[t, w] for t, w in enumerate(path))
            for path in itertools.product(range(3), repeat=5)
            if list(ctc_head.collapsed(np.array(path), 0)) == labels
        ]
        ends = np.asarray(ctc_head.lattice(logprobs, np.array(labels), config))[-1]
        assert np.logaddexp(ends[-1], ends[-2]) == pytest.approx(logsumexp(paths), rel=1e-12)


def test_the_cache_changes_nothing() -> None:
    """Words read at once, and one by one behind a prompt, have the same logits."""
    port, weights, (x, words) = setting("toy_transformer")
    stepped = np.asarray(port.forward(weights, port.TINY, x, words))
    config = toy_transformer.Config(steps=0)
    whole = np.asarray(port.forward(weights, config, x, words))
    assert stepped.shape == whole.shape
    assert np.abs(stepped - whole).max() <= 1e-5 * np.abs(whole).max()


def test_the_transducer_carries_its_state() -> None:
    """Two pieces give what one gives."""
    port, weights, (_, words) = setting("rnnt_joint")
    zeros = np.zeros(port.TINY.width, np.float32)
    whole, end = port.predicted(words, (zeros, zeros), weights)
    first, state = port.predicted(words[:5], (zeros, zeros), weights)
    second, last = port.predicted(words[5:], state, weights)
    assert np.array_equal(np.concatenate([first, second]), whole)
    assert all(np.array_equal(a, b) for a, b in zip(end, last, strict=True))


def test_audio_stands_where_placeholders_stood() -> None:
    port, weights, (x, words) = setting("audio_tokens")
    with ad.taps.collect() as seen:
        port.forward(weights, port.TINY, x, words)
    table = dict(seen)
    at = words == port.TINY.placeholder
    assert np.array_equal(table["dec.fused"][at], table["audio.embed"])
    assert np.array_equal(table["dec.fused"][~at], table["dec.token_emb"][~at])


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="no such toy transformer"):
        toy_transformer.Config(heads=3, kv_heads=2)
    with pytest.raises(ValueError, match="blank 24 is no word of 24"):
        ctc_head.Config(blank=24)
