"""The models that faults are injected into, and how they run with and without faults."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import autodiff as ad
from autodiff import ops, taps
from checks.gates.blocks.block import Block
from checks.gates.corpus.fault import Function, Named, Run, home, patched

FLOAT32, BFLOAT16 = "float32", "bfloat16"
POLICIES = (FLOAT32, BFLOAT16)


@dataclass(frozen=True)
class Model:
    """A model of the corpus.

    Arguments:
        name: of its module in `checks.ports`.
        products: the functions (x, w) -> x w^T whose order of summation may change.
        sizes: configurations by name; "tiny" is the one that is studied unless another is asked.
        weights, inputs: of a configuration and a number drawn from.
        roles: role by pattern of tensor names.
        policies: the dtype policies that it knows.
        blocks: its parts, of weights and a configuration; see `causes.replay`.
    """

    name: str
    products: tuple[str, ...]
    sizes: Mapping[str, Any]
    weights: Callable[[Any, int], Mapping[str, Any]]
    inputs: Callable[[Any, int], tuple[Any, ...]]
    forward: Callable[..., Any]
    roles: Mapping[str, str] = field(default_factory=dict)
    policies: tuple[str, ...] = POLICIES
    blocks: Callable[[Any, Any], Sequence[Block]] = lambda weights, config: ()

    def run(self, number: int, inputs: int, policy: str = FLOAT32, size: str = "tiny") -> Run:
        """A run before any change: weights drawn from `number`, inputs from both numbers."""
        config = self.sizes[size]
        dtype = np.dtype(np.float32 if policy == FLOAT32 else ml_dtypes.bfloat16)
        weights = {k: v.astype(dtype) for k, v in self.weights(config, number).items()}
        return Run(weights, config, self.inputs(config, 1000 * number + inputs))

    def shown(self, run: Run) -> list[Named]:
        """Run it: every tensor shown, in order."""
        with patched_in(run), taps.collect() as seen, np.errstate(all="ignore"):
            self.forward(run.weights, run.config, *run.inputs)
        found = list(seen)
        for edit in run.edits:
            found = edit(found)
        return found


@contextlib.contextmanager
def patched_in(run: Run) -> Iterator[None]:
    """Have the functions of a run in place of the ports' own."""
    with contextlib.ExitStack() as stack:
        for where, make in run.patches:
            module, name = home(where)
            made = make(getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, made))
        yield


def reordered(model: Model, run: Run, number: int, coarse: bool = False) -> Run:
    """The same run with the terms of every product summed in another order; `coarse`: with sums of
    17 bits, as some matrix units keep.
    """
    for where in model.products:
        run = patched(where, lambda before: _reordered(before, number, coarse))(run)
    return run


@functools.lru_cache(maxsize=4096)
def _order(number: int, width: int) -> Any:
    return np.random.default_rng((number, width)).permutation(width)


def _reordered(product: Function, number: int, coarse: bool) -> Function:
    def other(x: Any, w: Any, *bias: Any) -> Any:
        order = _order(number, w.shape[-1])
        y = product(x[..., order], w[..., order], *bias)
        return _of_17_bits(y) if coarse else y

    return other


def _of_17_bits(y: Any) -> Any:
    bits = y.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << 6)) & np.uint32(0xFFFFFF80)).view(np.float32)


def widened(run: Run) -> Run:
    """The same run in float64, shown in float32: every result rounded once."""
    weights = {k: v.astype(np.float64) for k, v in run.weights.items()}
    inputs = tuple(x.astype(np.float64) if x.dtype.kind == "f" else x for x in run.inputs)
    return replace(run, weights=weights, inputs=inputs, edits=(*run.edits, _narrowed))


def _narrowed(seen: list[Named]) -> list[Named]:
    return [(n, x.astype(np.float32) if x.dtype == np.float64 else x) for n, x in seen]


def drifted(model: Model, run: Run, policy: str, number: int) -> Run:
    """A clean candidate: sums in another order; in every third float32 run wider arithmetic, in
    every other bfloat16 run shorter sums, which fall on other sides of the roundings.
    """
    if not model.products or (policy == FLOAT32 and number % 3 == 0):
        return widened(run)
    return reordered(model, run, number, policy == BFLOAT16 and number % 2 == 1)


def _port(name: str, products: tuple[str, ...], **sizes: Any) -> Model:
    module = importlib.import_module(f"checks.ports.{name}")
    sizes = {"tiny": module.TINY} | {k: make(module.TINY) for k, make in sizes.items()}
    return Model(
        name,
        products,
        sizes,
        module.random_weights,
        module.random_inputs,
        module.forward,
        module.ROLES,
        blocks=module.blocks,
    )


def models() -> dict[str, Model]:
    """Return every model of the corpus by name."""
    toy = _port(
        "toy_transformer",
        ("toy_transformer.product",),
        other=lambda c: replace(c, width=48, heads=6, kv_heads=3, hidden=80, vocab=60, mels=20),
    )
    ctc = _port(
        "ctc_head",
        ("ctc_head.product",),
        other=lambda c: replace(c, channels=10, width=40, vocab=30),
    )
    rnnt = _port(
        "rnnt_joint",
        ("rnnt_joint.product",),
        other=lambda c: replace(c, width=32, joint=40, vocab=22),
    )
    audio = _port(
        "audio_tokens",
        ("toy_transformer.product",),
        other=lambda c: replace(c, decoder=replace(c.decoder, width=48, heads=6), audio=10),
    )
    return {m.name: m for m in (toy, ctc, rnnt, audio, _silero(), _qwen(), _whisper(), _front())}


def _silero() -> Model:
    from checks.ports import silero_vad as port

    def inputs(config: Any, number: int) -> tuple[Any, ...]:
        rng = np.random.default_rng((number, 1))
        return (rng.normal(size=(2, 3 * config.chunk)).astype(np.float32),)

    sizes = {"tiny": port.TINY, "other": replace(port.TINY, channels=(10, 8, 8, 12), hidden=9)}
    roles = {"dec.prob": "informational"}
    given = (sizes, port.random_weights, inputs, port.forward, roles, (FLOAT32,), port.blocks)
    return Model("silero_vad", (), *given)


def _qwen() -> Model:
    from checks.ports import qwen3 as port

    def inputs(config: Any, number: int) -> tuple[Any, ...]:
        return (np.random.default_rng((number, 1)).integers(0, 90, (2, 12)),)

    def forward(weights: Any, config: Any, tokens: Any) -> None:
        logits = port.forward(weights, config, tokens)
        if next(iter(weights.values())).dtype != ml_dtypes.bfloat16:  # which turns near ties
            ad.tap("dec.best.tokens", np.argmax(logits, axis=-1))
        _, cache = port.step(weights, config, tokens[:, :6])
        for at in (6, 7):
            _, cache = port.step(weights, config, tokens[:, at : at + 1], cache)

    small = replace(port.TINY, layers=2)
    sizes = {"tiny": small, "other": replace(small, width=40, heads=6, groups=3, head_width=8)}
    roles = {"*.logits": "informational", "*.attn_probs": "informational"}
    given = (sizes, port.random_weights, inputs, forward, roles, POLICIES, port.blocks)
    return Model("qwen3", ("qwen3.linear",), *given)


def _whisper() -> Model:
    from checks.ports import whisper as port

    def inputs(config: Any, number: int) -> tuple[Any, ...]:
        rng = np.random.default_rng((number, 1))
        wave = 0.1 * rng.normal(size=(2, config.samples)) * np.linspace(0.5, 1, config.samples)
        return wave.astype(np.float32), rng.integers(2, config.words, (2, 8))

    def forward(weights: Any, config: Any, waveform: Any, tokens: Any) -> None:
        window = port.window(config, waveform.dtype)
        spectra = ops.stft(port.padded(waveform, config), window, config.hop)
        ad.tap("enc.power", port.power(spectra))
        audio = port.heard(weights, config, waveform)
        port.decode(weights, config, audio, tokens)
        _, past = port.decode(weights, config, audio, tokens[:, :6], None, "dec.gen")
        port.decode(weights, config, audio, tokens[:, 6:7], past, "dec.gen")

    small = replace(port.TINY, encoder_layers=1, decoder_layers=2, positions=14)
    sizes = {"tiny": small, "other": replace(small, width=40, heads=5, hidden=56, mels=20)}
    roles = {"*.logits": "informational"}
    given = (sizes, port.random_weights, inputs, forward, roles, POLICIES, port.blocks)
    return Model("whisper", ("whisper.linear",), *given)


def _front() -> Model:
    """Whisper's front end alone, with the waveform dumped and no spectrum: what differs inside is
    told by replaying it.
    """
    from checks.ports import whisper as port

    def inputs(config: Any, number: int) -> tuple[Any, ...]:
        rng = np.random.default_rng((number, 1))
        loudness = np.linspace(0.05, 0.1, config.samples)
        return ((loudness * rng.normal(size=(2, config.samples))).astype(np.float32),)

    def forward(weights: Any, config: Any, waveform: Any) -> None:
        port.log_mel(ad.tap("enc.wave", waveform), config)

    small = replace(port.TINY, positions=20, mels=40, n_fft=400, hop=160)
    sizes = {"tiny": small, "other": replace(small, mels=32, n_fft=512, hop=128)}
    return Model("whisper_front", (), sizes, lambda *_: {}, inputs, forward, policies=(FLOAT32,))
