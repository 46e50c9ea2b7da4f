"""Silero VAD against onnxruntime's run of the published file, chunk by chunk."""

import dataclasses
import importlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks import check_gradients, gates
from checks.gates.comparison.record import Result
from checks.gates.formats.readers import open_side
from checks.ports import silero_vad as sv
from checks.ports.policy import rounded

GOLDEN = Path(__file__).parents[1] / "golden" / "silero_vad"
TOLERANCES = GOLDEN / "silero_vad.json"
CONFIG = sv.Config()
ROLES = {"dec.prob": "informational"}

Weights = dict[str, Any]
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def weights() -> Weights:
    return loaded(GOLDEN / "weights.safetensors")


@pytest.fixture(scope="module")
def audio() -> Any:
    return np.load(GOLDEN / "audio.npy")


def loaded(path: Path) -> Weights:
    return {k: s.load() for k, s in open_side(path).tensors.items()}


def dumped(folder: Path, weights: Weights, audio: Any, config: sv.Config = CONFIG) -> Path:
    """The port's run, in a dump."""
    with gates.Dump(folder, side="candidate", family="silero_vad", roles=ROLES) as d:
        d.input("audio", audio)
        sv.forward(weights, config, audio)
    return folder


def judged(candidate: Path, reference: Path = GOLDEN / "reference") -> Result:
    return gates.compare(reference, candidate, TOLERANCES)


@pytest.fixture(scope="module")
def two_chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference's first two chunks."""
    folder = tmp_path_factory.mktemp("reference")
    lines = (GOLDEN / "reference" / "manifest.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line).get("call", 0) < 2]
    (folder / "manifest.jsonl").write_text("".join(kept))
    shutil.copy(GOLDEN / "reference" / "tensors.safetensors", folder)
    return folder


# --- the port ------------------------------------------------------------------------------


def test_the_port_passes_in_every_chunk(tmp_path: Path, weights: Weights, audio: Any) -> None:
    result = judged(dumped(tmp_path / "candidate", weights, audio))
    assert result.exit_code == 0, result.first
    assert result.inputs == "equal"
    assert len(result.rows) == 8 * 14
    assert all(r.contract and r.dtypes == ("float32", "float32") for r in result.rows)
    assert not any(r.name.startswith("enc.") and r.systematic for r in result.rows)
    assert not result.suspects


def test_the_signal_is_speech_and_silence(weights: Weights, audio: Any) -> None:
    found, _ = sv.forward(weights, CONFIG, audio)
    assert found.shape == (1, 8)
    assert found.min() < 0.1 and found.max() > 0.9


def test_the_state_goes_on_where_it_left_off(weights: Weights, audio: Any) -> None:
    whole, end = sv.forward(weights, CONFIG, audio)
    first, state = sv.forward(weights, CONFIG, audio[:, : 3 * 512])
    rest, other = sv.forward(weights, CONFIG, audio[:, 3 * 512 :], state)
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=1), whole)
    for a, b in zip(end, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_batch_is_its_rows(weights: Weights, audio: Any) -> None:
    both = np.concatenate([audio[:, :1024], audio[:, 1024:2048]])
    found, _ = sv.forward(weights, CONFIG, both)
    for row, x in zip(found, both, strict=True):
        alone, _ = sv.forward(weights, CONFIG, x[None])
        np.testing.assert_allclose(row, alone[0], rtol=1e-5)


def test_it_compiles(weights: Weights, audio: Any) -> None:
    def run(x: Any) -> Any:
        return sv.forward(weights, CONFIG, x)[0]

    found = ad.compile(run)(audio)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, run(audio), rtol=1e-5)


def test_weights_in_bfloat16_need_limits_of_their_own(
    tmp_path: Path, weights: Weights, audio: Any, two_chunks: Path
) -> None:
    result = judged(dumped(tmp_path / "bf16", rounded(weights), audio[:, :1024]), two_chunks)
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "enc.stft.out"
    assert all(r.dtypes == ("float32", "float32") for r in result.rows)
    assert [r.name for r in result.rows if not r.failed and r.name.startswith("dec.")] == [
        "dec.lstm.h_in",
        "dec.lstm.c_in",
    ]


def test_the_basis_is_a_fourier_basis_under_a_hann_window(weights: Weights) -> None:
    basis = weights["stft.forward_basis_buffer"]
    np.testing.assert_allclose(basis, sv.fourier_basis(CONFIG), atol=1e-7)


# --- backward ------------------------------------------------------------------------------


def test_the_gradient_of_the_probability_by_the_audio(weights: Weights, audio: Any) -> None:
    wide = {k: v.astype(np.float64) for k, v in weights.items()}
    x = audio[:, 512:1536].astype(np.float64)

    def last(x: Any) -> Any:
        return sv.forward(wide, CONFIG, x)[0][0, -1]

    _, pullback = ad.vjp(last, x)
    (x_bar,) = pullback(1.0)
    assert np.count_nonzero(x_bar[:, :512])  # through the state and the context
    report = check_gradients(last, x, vjp=lambda x, ct: (ad.vjp(last, x)[1](ct)[0],))
    assert report.verdict == "PASS", report


def test_gradients_by_audio_and_weights_of_a_tiny_model() -> None:
    weights = sv.random_weights(sv.TINY, 0, np.float64)
    x = np.random.default_rng(1).normal(size=(2, 64))
    names = list(weights)

    def run(x: Any, *leaves: Any) -> Any:
        return sv.forward(dict(zip(names, leaves, strict=True)), sv.TINY, x)[0]

    report = check_gradients(run, x, *weights.values())
    assert report.verdict == "PASS", report


def test_the_gradient_in_digital_silence_is_finite() -> None:
    weights = sv.random_weights(sv.TINY, 0, np.float64)
    _, pullback = ad.vjp(lambda x: sv.forward(weights, sv.TINY, x)[0], np.zeros((1, 64)))
    assert np.isfinite(pullback(np.array([[0.3, -0.7]]))[0]).all()


# --- faults --------------------------------------------------------------------------------


def without(field: str) -> Callable[[Patch], None]:
    """A step that takes zeros for part of the state."""

    def inject(patch: Patch) -> None:
        right = sv.step

        def step(weights: Any, config: sv.Config, chunk: Any, state: sv.State) -> Any:
            zero = np.zeros_like(getattr(state, field))
            return right(weights, config, chunk, state._replace(**{field: zero}))

        patch.setattr(sv, "step", step)

    return inject


def gates_in_order(order: str) -> Callable[[Patch], None]:
    """An LSTM that takes the rows of its weights for those of other gates."""

    def inject(patch: Patch) -> None:
        right = sv.lstm

        def lstm(weights: Any, x: Any, h: Any, c: Any) -> Any:
            def moved(w: Any) -> Any:
                parts = dict(zip("ifgo", np.split(w, 4), strict=True))
                return np.concatenate([parts[g] for g in order])

            named = {k: moved(v) for k, v in weights.items() if k.startswith("decoder.rnn.")}
            return right({**weights, **named}, x, h, c)

        patch.setattr(sv, "lstm", lstm)

    return inject


def padding(mode: str, front: int = 0) -> Callable[[Patch], None]:
    def padded(config: sv.Config, x: Any) -> Any:
        return np.pad(x, ((0, 0), (front, config.pad)), mode=mode)  # type: ignore[call-overload]

    return lambda patch: patch.setattr(sv, "padded", padded)


def power(patch: Patch) -> None:
    def magnitude(config: sv.Config, x: Any) -> Any:
        f = config.frequencies
        return x[:, :f] ** 2 + x[:, f:] ** 2

    patch.setattr(sv, "magnitude", magnitude)


def weights_changed(change: Callable[[Weights], Weights]) -> Callable[[Patch], None]:
    def inject(patch: Patch) -> None:
        right = sv.step
        patch.setattr(sv, "step", lambda w, *rest: right({**w, **change(w)}, *rest))

    return inject


def zeroed(name: str) -> Callable[[Patch], None]:
    return weights_changed(lambda w: {name: np.zeros_like(w[name])})


def head_without_rectifier(patch: Patch) -> None:
    def head(weights: Any, h: Any) -> Any:
        y = ad.ops.conv1d(h[:, :, None], weights["decoder.decoder.2.weight"])
        return y + weights["decoder.decoder.2.bias"]

    patch.setattr(sv, "head", head)


def configured(**sizes: Any) -> Callable[[Patch], None]:
    def inject(patch: Patch) -> None:
        right, wrong = sv.step, dataclasses.replace(CONFIG, **sizes)
        patch.setattr(sv, "step", lambda w, config, *rest: right(w, wrong, *rest))

    return inject


def symmetric_window(w: Weights) -> Weights:
    n = np.arange(256)
    basis = w["stft.forward_basis_buffer"]
    periodic, other = (0.5 - 0.5 * np.cos(2 * np.pi * n / m) for m in (256, 255))
    ratio = np.divide(other, periodic, out=np.zeros(256), where=periodic > 0)
    return {"stft.forward_basis_buffer": (basis * ratio).astype(np.float32)}


FAULTS: dict[str, tuple[Callable[[Patch], None], str, str]] = {
    "h is not carried": (without("h"), "dec.lstm.h_in#1", "FAIL"),
    "c is not carried": (without("c"), "dec.lstm.c_in#1", "FAIL"),
    "the context is not carried": (without("context"), "audio.window#1", "FAIL"),
    "gates in ONNX's order": (gates_in_order("iofg"), "dec.lstm.h", "FAIL"),
    "gates i and o exchanged": (gates_in_order("ofgi"), "dec.lstm.h", "FAIL"),
    "zeros for the reflected end": (padding("constant"), "enc.pad.out", "FAIL"),
    "the edge reflected too": (padding("symmetric"), "enc.pad.out", "FAIL"),
    "padded at both ends": (padding("reflect", front=64), "enc.pad.out", "SHAPE"),
    "a symmetric window": (weights_changed(symmetric_window), "enc.stft.out", "FAIL"),
    "a hop short by one": (configured(hop=127), "enc.stft.out", "FAIL"),
    "a power for a magnitude": (power, "enc.mag.out", "FAIL"),
    "a stride at the wrong place": (configured(strides=(1, 2, 1, 2)), "enc.block.2.out", "SHAPE"),
    "no bias in block 2": (zeroed("encoder.2.reparam_conv.bias"), "enc.block.2.out", "FAIL"),
    "one bias of two": (zeroed("decoder.rnn.bias_hh"), "dec.lstm.h", "FAIL"),
    "no rectifier before the head": (head_without_rectifier, "dec.logits_raw", "FAIL"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_where_it_is(
    fault: str,
    tmp_path: Path,
    weights: Weights,
    audio: Any,
    two_chunks: Path,
    monkeypatch: Patch,
) -> None:
    inject, first, status = FAULTS[fault]
    inject(monkeypatch)
    result = judged(dumped(tmp_path / "candidate", weights, audio[:, :1024]), two_chunks)
    assert len(result.rows) == 2 * 14
    assert result.exit_code == 1
    assert result.first is not None
    assert (result.first.name, result.first.status) == (first, status)


# --- block by block ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["iofg", "ofgi"])
def test_a_replay_names_the_order_of_gates(
    tmp_path: Path, weights: Weights, audio: Any, monkeypatch: Patch, order: str
) -> None:
    """Two arrays cannot tell it; the right block, run with its gates in that order, does."""
    with monkeypatch.context() as patch:
        gates_in_order(order)(patch)
        wrong = dumped(tmp_path / "wrong", weights, audio)
    blocks = sv.blocks(weights, CONFIG)
    result = gates.compare(GOLDEN / "reference", wrong, TOLERANCES, blocks=blocks)
    assert result.first is not None and result.first.name == "dec.lstm.h"
    assert result.cause is not None and result.cause.name == "gate order"
    places = tuple("ifgo".index(g) for g in order)
    assert f"decoder.rnn.weight_ih in the order {places}" in result.cause.text
    assert ("i, o, f, c (ONNX)" in result.cause.text) == (order == "iofg")


def own_errors(weights: Weights) -> list[str]:
    found = gates.isolate(
        GOLDEN / "reference", sv.blocks(weights, CONFIG), TOLERANCES, causes=False
    )
    assert len(found.rows) == 8 * 11
    return [r.output for r in found.rows if r.verdict == "own"]


def test_every_block_is_right_on_the_references_inputs(weights: Weights) -> None:
    assert own_errors(weights) == []


def test_a_wrong_block_is_wrong_alone(weights: Weights, monkeypatch: Patch) -> None:
    gates_in_order("iofg")(monkeypatch)
    assert {n.partition("#")[0] for n in own_errors(weights)} == {"dec.lstm.h", "dec.lstm.c"}


def test_a_bias_left_out_is_its_blocks_own_error(weights: Weights) -> None:
    name = "encoder.2.reparam_conv.bias"
    found = own_errors({**weights, name: np.zeros_like(weights[name])})
    assert {n.partition("#")[0] for n in found} == {"enc.block.2.out"}


# --- other weights -------------------------------------------------------------------------


def part_of_the_other_weights(weights: Weights) -> Weights:
    """Biases and last layer of the package's safetensors file, whose STFT basis is the same."""
    found = loaded(GOLDEN / "other_weights.safetensors")
    return found | {"stft_conv.weight": weights["stft.forward_basis_buffer"]}


def test_the_safetensors_file_holds_other_weights(tmp_path: Path, weights: Weights) -> None:
    np.savez(tmp_path / "other.npz", **part_of_the_other_weights(weights))
    ours, limits = GOLDEN / "weights.safetensors", GOLDEN / "weights.json"
    result = gates.compare(ours, tmp_path / "other.npz", limits, only="*bias*")
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "encoder.0.reparam_conv.bias"
    assert [r.name for r in result.rows if not r.failed] == []
    last = gates.compare(ours, tmp_path / "other.npz", limits, only="decoder.decoder.*")
    assert last.first is not None and last.first.name == "decoder.decoder.2.weight"
    same = gates.compare(ours, tmp_path / "other.npz", limits, only="stft.*")
    assert same.exit_code == 0


def test_a_run_with_the_other_weights_fails_at_the_first_layer(
    tmp_path: Path, weights: Weights, audio: Any, two_chunks: Path
) -> None:
    other = dict(weights)
    for name, w in part_of_the_other_weights(weights).items():
        layer, _, rest = name.partition(".")
        if layer.startswith("conv"):
            other[f"encoder.{int(layer[-1]) - 1}.reparam_conv.{rest}"] = w
        elif layer == "lstm_cell":
            other[f"decoder.rnn.{rest}"] = w
    result = judged(dumped(tmp_path / "candidate", other, audio[:, :1024]), two_chunks)
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "enc.block.0.out"
    assert result.last_good is not None and result.last_good.name == "enc.mag.out"


# --- refusals ------------------------------------------------------------------------------


def test_audio_of_no_whole_chunks() -> None:
    weights = sv.random_weights(sv.TINY, 0)
    text = r"(?s)40 samples are no whole number of chunks of 32.*np.pad\(.*\(0, 24\)"
    with pytest.raises(ValueError, match=text):
        sv.forward(weights, sv.TINY, np.zeros((1, 40), np.float32))


def test_a_config_whose_frames_do_not_meet_the_lstm() -> None:
    with pytest.raises(ValueError, match="2 frames reach the LSTM"):
        dataclasses.replace(CONFIG, strides=(1, 2, 1, 1))
    with pytest.raises(ValueError, match="4 channels and 3 strides"):
        dataclasses.replace(CONFIG, strides=(1, 2, 2))


def test_onnx_is_named_where_it_is_missing(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sv, "available", lambda name: False)
    with pytest.raises(gates.GateError, match="(?s)the package onnx.*pip install onnx"):
        sv.weights_from_onnx("silero_vad.onnx")


def test_a_file_that_is_no_onnx_model(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    (tmp_path / "a.onnx").write_bytes(b"no model")
    for name in ("a.onnx", "absent.onnx"):
        with pytest.raises(gates.GateError, match=f"(?s)no ONNX model.*{name}"):
            sv.weights_from_onnx(tmp_path / name)


def test_weights_nested_in_branches_are_found(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    weights = sv.random_weights(sv.TINY, 3)
    other = {k: v[..., :1] for k, v in weights.items()}
    graphs = {}
    for branch, table in (("then_branch", weights), ("else_branch", other)):
        nodes = [
            onnx.helper.make_node(
                "Constant", [], [f"{branch}.{k}"], value=onnx.numpy_helper.from_array(v)
            )
            for k, v in table.items()
        ]
        graphs[branch] = onnx.helper.make_graph(nodes, branch, [], [])
    node = onnx.helper.make_node("If", ["rate"], ["y"], **graphs)
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [])), tmp_path / "m")
    found = sv.weights_from_onnx(tmp_path / "m", sv.TINY)
    assert list(found) == list(sv.shapes(sv.TINY))
    for name, w in found.items():
        np.testing.assert_array_equal(w, weights[name])
    with pytest.raises(gates.GateError, match="0 of 2 groups of weights"):
        sv.weights_from_onnx(tmp_path / "m")


def test_the_capture_names_what_it_needs(monkeypatch: Patch) -> None:
    found = importlib.import_module("tests.golden.silero_vad.capture")
    monkeypatch.setattr(found, "NEEDS", ("no_such_package",))
    text = r"(?s)needs the package no_such_package.*pip install onnx.*silero-vad=="
    with pytest.raises(gates.GateError, match=text):
        found.main([])


# --- the package itself, where it is installed ---------------------------------------------


@pytest.fixture(scope="module")
def capture() -> Any:
    """The capturing script, where all it needs is installed."""
    found = importlib.import_module("tests.golden.silero_vad.capture")
    for package in found.NEEDS:
        if not importlib.util.find_spec(package):
            pytest.skip(f"{package} is not installed")
    if (version := metadata.version("silero-vad")) != found.VERSION:
        pytest.skip(f"silero-vad {version}: the golden data are of {found.VERSION}")
    return found


def test_a_new_capture_agrees_with_the_golden_one(capture: Any, tmp_path: Path) -> None:
    assert capture.main([str(tmp_path / "new")]) == 0
    result = gates.compare(GOLDEN / "reference", tmp_path / "new" / "reference", TOLERANCES)
    assert result.exit_code == 0 and result.inputs == "equal"
    for name in ("weights", "other_weights"):
        new, old = (loaded(p / f"{name}.safetensors") for p in (tmp_path / "new", GOLDEN))
        assert list(new) == list(old)
        assert all(np.array_equal(new[k], old[k]) for k in old)


FILES = {
    "silero_vad_16k_op15.onnx": True,
    "silero_vad_op18_ifless.onnx": True,
    "silero_vad_openvino_16k.onnx": True,
    "silero_vad_half.onnx": False,  # those of version 5
}


@pytest.mark.parametrize("file", FILES)
def test_which_files_of_the_package_hold_the_same_weights(
    file: str, capture: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "found.npz", **sv.weights_from_onnx(capture.package_file(file)))
    limits = tmp_path / "weights.json"  # away from the names of the safetensors file
    limits.write_bytes((GOLDEN / "weights.json").read_bytes())
    result = gates.compare(GOLDEN / "weights.safetensors", tmp_path / "found.npz", limits)
    assert result.ok == FILES[file]
    if not result.ok:
        assert result.first is not None
        assert result.first.name == "encoder.0.reparam_conv.weight"


def test_the_packages_safetensors_file_fails_as_a_whole(capture: Any) -> None:
    path = capture.package_file("silero_vad_16k.safetensors")
    result = gates.compare(GOLDEN / "weights.safetensors", path, GOLDEN / "weights.json")
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "encoder.0.reparam_conv.weight"
    assert [r.name for r in result.rows if not r.failed] == ["stft.forward_basis_buffer"]
    near = [r.measured.cosine for r in result.rows if r.measured is not None]
    assert min(near) > 0.85  # another state of the same training
