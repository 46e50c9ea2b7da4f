"""Whisper in plain NumPy against transformers' model: forward, backward, decode, two policies."""

import contextvars
import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import autodiff as ad
from checks import check_gradients, gates
from checks.gates.comparison.record import Result
from checks.gates.formats.readers import open_side
from checks.gates.limits.contract import read_contract
from checks.ports import whisper
from checks.ports.policy import BF16_POLICY, rounded
from checks.ports.whisper import SEED, TINY, example, random_weights
from checks.ports.whisper_config import AUDIO, TEXT
from tests.golden.whisper import capture
from tests.ports.whisper_faults import FAULTS, Fault, padding_learns, projected, straight

GOLDEN = Path(__file__).parent.parent / "golden" / "whisper"
LIMITS, BF16_LIMITS = GOLDEN / "whisper.json", GOLDEN / "whisper.bf16.json"
WEIGHTS, GIVEN = random_weights(TINY, SEED), example(TINY, SEED)
NARROW = rounded(WEIGHTS)


def dumped(
    folder: Path, weights: Any = WEIGHTS, backward: bool = True, decode: bool = True, **facts: Any
) -> Path:
    """A run of the port as a dump; without `backward`, forward (and decode) alone."""
    with gates.Dump(folder, side="candidate", family="whisper", command="port", **facts) as d:
        if backward:
            whisper.run(d, weights, TINY, GIVEN)
        else:
            GIVEN.noted(d)
            d.put("enc.wave", GIVEN.waveform)
            d.put("dec.tokens", GIVEN.tokens)
            whisper.loss(weights, TINY, GIVEN.waveform, GIVEN.tokens, GIVEN.labels)
            if decode:
                untapped = contextvars.Context()
                audio = untapped.run(whisper.heard, weights, TINY, GIVEN.waveform)
                whisper.continued(weights, TINY, audio, GIVEN.prompt, GIVEN.steps)
    return folder


@pytest.fixture(scope="module")
def port(tmp_path_factory: Any) -> Path:
    """A run of the port at float32."""
    return dumped(tmp_path_factory.mktemp("whisper") / "float32", dtype_policy="float32")


@pytest.fixture(scope="module")
def narrow_port(tmp_path_factory: Any) -> Path:
    """A run of the port with bfloat16 weights."""
    folder = tmp_path_factory.mktemp("whisper") / "bf16"
    return dumped(folder, NARROW, dtype_policy=BF16_POLICY)


# --- the port passes -----------------------------------------------------------------------


@pytest.mark.parametrize("only", ["enc.*", "dec.[!g]*", "dec.gen.*", "grad.*"])
def test_float32_forward_decode_and_backward_pass(port: Path, only: str) -> None:
    result = gates.compare(GOLDEN / "float32", port, LIMITS, only=only)
    assert result.ok, str(result.to_record()["answers"])
    assert result.inputs == "equal"
    assert all(row.status == "ok" for row in result.rows if row.contract)
    assert not result.suspects


def test_the_contract_names_every_part() -> None:
    """Every tensor of the reference is in the file: nothing that it dumps goes unchecked."""
    for folder, limits in (("float32", LIMITS), ("bf16", BF16_LIMITS)):
        names = {s.tensor.name for s in open_side(GOLDEN / folder).tensors.values()}
        assert names == set(read_contract(limits).limits)
    assert len([n for n in names if n.startswith("grad.")]) > 20


def test_there_are_steps_with_a_past() -> None:
    side = open_side(GOLDEN / "float32")
    assert len(side.calls("dec.gen.logits_raw")) == GIVEN.steps == 9
    lengths = [side.tensors[k].tensor.shape[2] for k in side.calls("dec.gen.block.0.cache.k")]
    assert lengths == list(range(3, 12))


def test_decoded_tokens_differ_by_utterance_and_step() -> None:
    tokens = open_side(GOLDEN / "float32").tensors["dec.gen.tokens"].load()
    assert len(set(tokens[0])) > 2 or len(set(tokens[1])) > 2
    assert not np.array_equal(tokens[0], tokens[1])


def test_compiled_gives_the_same(port: Path) -> None:
    compiled = ad.compile(lambda w: whisper.forward(w, TINY, GIVEN.waveform, GIVEN.tokens))
    logits = open_side(port).tensors["dec.logits_raw"].load()
    np.testing.assert_allclose(compiled(WEIGHTS), logits, rtol=0, atol=1e-4)


def test_a_pass_without_a_cache_gives_the_decoded_tokens() -> None:
    """What is decoded one at a time is what one pass over all of it would choose."""
    found = whisper.generate(WEIGHTS, TINY, GIVEN.waveform, GIVEN.prompt, 4)
    whole = np.concatenate([GIVEN.prompt, found], axis=1)
    logits = whisper.forward(WEIGHTS, TINY, GIVEN.waveform, whole[:, :-1])
    np.testing.assert_array_equal(logits.argmax(axis=-1)[:, 2:], found)


# --- bfloat16 weights ----------------------------------------------------------------------


def test_bf16_passes_by_its_own_file(narrow_port: Path) -> None:
    result = gates.compare(GOLDEN / "bf16", narrow_port, BF16_LIMITS)
    assert result.ok, str(result.to_record()["answers"])


def test_limits_of_float32_weights_fail_for_bf16_weights(narrow_port: Path) -> None:
    """A file made for float32 weights does not hold with bfloat16 ones: hundreds of times over."""
    result = gates.compare(GOLDEN / "float32", narrow_port, LIMITS, only="[ed]*", detailed=1)
    assert result.exit_code == 1 and result.inputs == "equal"
    assert result.first is not None and result.first.name == "enc.conv.0.out"
    over = [
        row.measured.mean_abs / row.limit.mean_abs
        for row in result.rows
        if row.failed and row.measured is not None and row.limit and row.limit.mean_abs
    ]
    assert np.median(over) > 100


def test_bf16_limits_tell_float32_weights_from_bf16_ones(port: Path) -> None:
    result = gates.compare(GOLDEN / "bf16", port, BF16_LIMITS, only="[ed]*", detailed=1)
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "enc.conv.0.out"


def test_unrounded_inputs_of_products_fail_with_bf16_weights(tmp_path: Path) -> None:
    """Weights rounded, and what goes into products not: another policy."""
    wide = {k: w.astype(np.float32) for k, w in NARROW.items()}
    folder = dumped(tmp_path / "c", wide, backward=False, decode=False)
    result = gates.compare(GOLDEN / "bf16", folder, BF16_LIMITS, only="enc.*", detailed=1)
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "enc.conv.0.out"


def test_the_reference_in_float64_lies_between(port: Path, tmp_path: Path) -> None:
    """Both float32 sides are off from float64 by rounding alone."""
    wide = {k: w.astype(np.float64) for k, w in WEIGHTS.items()}
    given = dataclasses.replace(GIVEN, waveform=GIVEN.waveform.astype(np.float64))
    with mock.patch(f"{__name__}.GIVEN", given):
        exact = open_side(dumped(tmp_path / "exact", wide, backward=False, dtype_policy="float64"))
    sides = [open_side(s) for s in (GOLDEN / "float32", port)]
    for name in ("enc.final", "dec.out_before_head", "dec.logits_raw"):
        z = exact.tensors[name].load()
        off = [np.sqrt(np.mean((s.tensors[name].load() - z) ** 2)) for s in sides]
        assert max(off) < 4 * min(off), name


# --- injected faults -----------------------------------------------------------------------


def gated(tmp_path: Path, fault: Fault) -> Result:
    """The port with a fault, through the gate."""
    with mock.patch.object(whisper, fault.part, fault.by):
        decode = fault.only == "dec.gen.*"
        folder = dumped(tmp_path / "candidate", backward=False, decode=decode)
    return gates.compare(GOLDEN / "float32", folder, LIMITS, only=fault.only, detailed=1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    result = gated(tmp_path, fault)
    # one byte-equal tensor under two names may also be a buffer reused: no valid comparison
    assert result.exit_code in ((1, 2) if "another tensor" in fault.causes else (1,))
    assert result.first is not None and result.first.name == fault.first
    assert result.cause is None or result.cause.name in fault.causes, result.cause
    assert result.cause is not None or not (fault.causes and fault.printed)


def test_the_fault_table_reaches_what_it_replaces() -> None:
    """Every part is called through the module, so that a replacement counts."""
    for fault in FAULTS.values():
        assert getattr(whisper, fault.part) is not fault.by


@pytest.mark.parametrize(
    ("part", "by", "first"),
    [
        (  # a derivative alone: the forward values are right
            "activation",
            straight,
            "grad.param.model.decoder.layers.2.fc1.bias",
        ),
        ("embedded", padding_learns, "grad.param.model.decoder.embed_tokens.weight"),
    ],
)
def test_a_fault_of_the_derivative_alone_is_found(
    tmp_path: Path, part: str, by: Any, first: str
) -> None:
    with mock.patch.object(whisper, part, by):
        folder = dumped(tmp_path / "candidate")
    result = gates.compare(GOLDEN / "float32", folder, LIMITS, detailed=1)
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == first
    assert all(row.name.startswith("grad.") for row in result.rows if row.failed)


# --- each block by itself ------------------------------------------------------------------


@pytest.mark.parametrize("part", ["enc.", "dec."])
def test_every_block_is_right_by_itself(part: str) -> None:
    """Forward, and backward from the reference's cotangents."""
    blocks = [b for b in whisper.blocks(WEIGHTS, TINY) if b.output.startswith(part)]
    found = gates.isolate(GOLDEN / "float32", blocks, LIMITS, causes=False, backward=True)
    assert found.exit_code == 0, str([r.output for r in found.every if r.verdict != "ok"])
    assert len(found.rows) >= len(blocks) > 25


def test_isolation_names_the_one_block_that_is_wrong(tmp_path: Path) -> None:
    """In a comparison all that follows is off; on the reference's inputs one block alone is."""

    def halved(x: Any, weights: Any, path: str) -> Any:
        y = projected(x, weights, path)
        return y / 2 if path == f"{AUDIO}.layers.1.self_attn.v_proj" else y

    blocks = [b for b in whisper.blocks(WEIGHTS, TINY) if b.output.startswith("enc.block")]
    with mock.patch.object(whisper, "projected", halved):
        folder = dumped(tmp_path / "candidate", backward=False)
        found = gates.isolate(GOLDEN / "float32", blocks, LIMITS, candidate=folder)
    assert [r.output for r in found.rows if r.verdict == "own"] == ["enc.block.1.attn.v"]
    inherited = [r.output for r in found.rows if r.verdict in ("inherited", "amplifies")]
    assert inherited[0] == "enc.block.1.attn.out" and inherited[-1] == "enc.block.2.out"
    assert found.first is not None and found.first.cause is not None
    assert found.first.cause.name == "left out" and "in halved" in found.first.cause.text


def test_isolation_tells_a_transposed_weight() -> None:
    name = f"{TEXT}.layers.2.encoder_attn.q_proj.weight"
    wrong = {**WEIGHTS, name: WEIGHTS[name].T.copy()}
    blocks = [b for b in whisper.blocks(wrong, TINY) if b.output.startswith("dec.block.2.cross")]
    found = gates.isolate(GOLDEN / "float32", blocks, LIMITS)
    assert found.first is not None and found.first.output == "dec.block.2.cross.q"
    assert found.first.cause is not None and "transpose" in found.first.cause.name


# --- small parts ---------------------------------------------------------------------------


def test_the_front_end_is_differentiable() -> None:
    """Against differences, from the samples to the features."""
    small = dataclasses.replace(TINY, positions=3, n_fft=32, hop=16, mels=4)
    wave = np.random.default_rng(5).normal(size=(1, small.samples))
    report = check_gradients(lambda x: whisper.log_mel(x, small), wave)
    assert report.ok, str(report)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="width 30 is odd, or no multiple of 4 heads"):
        dataclasses.replace(TINY, width=30)


def test_weights_are_drawn_by_seed_and_named_as_the_checkpoint() -> None:
    again, other = random_weights(TINY, SEED), random_weights(TINY, SEED + 1)
    assert all(np.array_equal(again[k], w) for k, w in WEIGHTS.items())
    assert not any(np.array_equal(other[k], w) for k, w in WEIGHTS.items())
    assert f"{AUDIO}.layers.0.self_attn.k_proj.bias" not in WEIGHTS
    assert WEIGHTS[f"{TEXT}.layers.2.fc1.weight"].shape == (TINY.hidden, TINY.width)


# --- where torch and transformers are installed --------------------------------------------


def test_a_capture_without_transformers_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(gates.GateError, match="needs the package torch") as caught:
        capture.needed()
    assert "pip install" in caught.value.fix


def test_a_new_capture_is_the_golden_one(tmp_path: Path, port: Path) -> None:
    """transformers' model as installed, against the golden dump and against the port."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    capture.capture(tmp_path / "live", "float32")
    for reference, candidate in (
        (GOLDEN / "float32", tmp_path / "live"),
        (tmp_path / "live", port),
    ):
        result = gates.compare(reference, candidate, LIMITS)
        assert result.ok, str(result.to_record()["answers"])
