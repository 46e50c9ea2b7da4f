"""Capture the golden data of Silero VAD: `python -m tests.golden.silero_vad.capture [FOLDER]`.

With `--runs`, three runs of the reference instead, for `gradsweep gate calibrate`: as it is, with
two threads, and with the runtime's graph optimisations.

The reference is the ONNX file of the PyPI package silero-vad, run by onnxruntime. It holds one
model for each sampling rate, in the branches of an If, whose inner tensors no session can return:
the 16 kHz branch is made a graph of its own, and the tensors to gate its outputs. That graph must
give the same probabilities as the file itself, bit for bit.
"""

import argparse
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from checks import gates
from checks.ports.silero_vad import Config, weights_from_onnx
from tests.golden.packed import packed

HERE = Path(__file__).parent
NEEDS = ("onnx", "onnxruntime", "silero_vad", "safetensors")
VERSION = "6.2.3"
INSTALL = f"pip install onnx onnxruntime safetensors && pip install --no-deps silero-vad=={VERSION}"
RATE = 16_000
ROLES = {"dec.prob": "informational"}

# inner tensors of the 16 kHz branch by the name they have in the dump
PREFIX = "If_0_then_branch__Inline_0__"
TENSORS = {
    "enc.pad.out": "/stft/padding/Pad_output_0",
    "enc.stft.out": "/stft/Conv_output_0",
    "enc.mag.out": "/stft/Sqrt_output_0",
    **{f"enc.block.{k}.out": f"/encoder/{k}/activation/Relu_output_0" for k in range(4)},
    "dec.lstm.h": "/decoder/If_1_output_0",
    "dec.lstm.c": "/decoder/If_1_output_1",
    "dec.logits_raw": "/decoder/decoder/2/Conv_output_0",
}


def package_file(name: str) -> Path:
    """A data file of the installed package, which is not imported: that would need torch."""
    missing = [n for n in NEEDS if importlib.util.find_spec(n) is None]
    if missing:
        raise gates.GateError(f"needs the package {missing[0]}", "silero_vad/capture.py", INSTALL)
    found = importlib.util.find_spec("silero_vad")
    assert found is not None and found.submodule_search_locations is not None
    return Path(next(iter(found.submodule_search_locations))) / "data" / name


# --- the signal ----------------------------------------------------------------------------


def vowel(samples: int, pitch: tuple[float, float], formants: Any, rng: Any) -> Any:
    """Glottal pulses and some breath through two-pole resonances (frequency, bandwidth, gain)."""
    from scipy.signal import lfilter

    phase = np.cumsum(np.linspace(*pitch, samples)) / RATE
    source = np.diff(np.floor(phase), prepend=0) + 0.02 * rng.normal(size=samples)
    y = np.zeros(samples)
    for frequency, bandwidth, gain in formants:
        r = np.exp(-np.pi * bandwidth / RATE)
        denominator = [1, -2 * r * np.cos(2 * np.pi * frequency / RATE), r * r]
        y += gain * lfilter([1 - r], denominator, source)
    fade = np.minimum(1, np.minimum(np.arange(samples), np.arange(samples)[::-1]) / 200)
    return 0.5 * fade * y / np.abs(y).max()


def signal(config: Config) -> Any:
    """Silence, two vowels, a burst of noise, silence, a chirp: (1, 8 chunks) of float32."""
    rng = np.random.default_rng(7)
    a = ((700, 80, 1.0), (1220, 90, 0.6), (2600, 120, 0.3))
    i = ((280, 60, 1.0), (2250, 100, 0.4), (2900, 120, 0.3))
    parts = [
        np.zeros(300),
        vowel(1100, (130, 150), a, rng),
        vowel(700, (150, 120), i, rng),
        0.1 * rng.normal(size=500),
        np.zeros(700),
        0.3 * np.sin(2 * np.pi * np.cumsum(np.linspace(200, 3000, 796)) / RATE),
    ]
    audio = np.concatenate(parts).astype(np.float32)
    assert audio.size == 8 * config.chunk
    return audio[None]


# --- the reference -------------------------------------------------------------------------


def session(model: Any, threads: int = 1, level: str = "ORT_DISABLE_ALL") -> Any:
    """An onnxruntime session of a path or of a model's bytes."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def branch(path: Path) -> bytes:
    """The 16 kHz branch as a model of its own, whose outputs are probability, state, TENSORS."""
    onnx = importlib.import_module("onnx")
    model = onnx.load(str(path))
    (node,) = [n for n in model.graph.node if n.op_type == "If"]
    (inner,) = [a.g for a in node.attribute if a.name == "then_branch"]
    names = [o.name for o in inner.output] + [PREFIX + n for n in TENSORS.values()]
    floats = onnx.TensorProto.FLOAT
    outputs = [onnx.helper.make_tensor_value_info(n, floats, None) for n in names]
    inputs = [i for i in model.graph.input if i.name != "sr"]
    graph = onnx.helper.make_graph(list(inner.node), "vad_16k", inputs, outputs)
    alone = onnx.helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version
    )
    return bytes(alone.SerializeToString())


def reference(path: Path, audio: Any, folder: Path, config: Config, **how: Any) -> Any:
    """Dump the reference's run into a folder; return the probabilities (1, chunks)."""
    inner, whole = session(branch(path), **how), session(str(path))
    context = np.zeros((1, config.context), np.float32)
    state = np.zeros((2, 1, config.hidden), np.float32)
    found = []
    with gates.Dump(
        folder,
        side="reference",
        family="silero_vad",
        command="python -m tests.golden.silero_vad.capture",
        dtype_policy="float32",
        threads=how.get("threads", 1),
        roles=ROLES,
    ) as d:
        d.input("audio", audio)
        for start in range(0, audio.shape[1], config.chunk):
            x = np.concatenate([context, audio[:, start : start + config.chunk]], axis=1)
            context, old = x[:, -config.context :], state
            probability, state, *rest = inner.run(None, {"input": x, "state": old})
            put(d, x, old, probability, dict(zip(TENSORS, rest, strict=True)))
            found.append(probability)
            if not how:
                feed = {"input": x, "state": old, "sr": np.array(RATE)}
                for ours, theirs in zip((probability, state), whole.run(None, feed), strict=True):
                    np.testing.assert_array_equal(ours, theirs)
    return np.concatenate(found, axis=1)


def put(d: Any, x: Any, old: Any, probability: Any, tensors: Mapping[str, Any]) -> None:
    """Dump one step, in the order of execution."""
    d.put("audio.window", x, dims="batch sample")
    for name, value in tensors.items():
        if name == "dec.lstm.h":
            d.put("dec.lstm.h_in", old[0], dims="batch hidden")
            d.put("dec.lstm.c_in", old[1], dims="batch hidden")
        d.put(name, value)
    d.put("dec.prob", probability, dims="batch chunk")


def part_of_the_safetensors_file() -> dict[str, Any]:
    """Biases and last layer of the package's own safetensors file, which holds other weights."""
    load = importlib.import_module("safetensors.numpy").load_file
    found = load(package_file("silero_vad_16k.safetensors"))
    return {n: v for n, v in found.items() if "bias" in n or n.startswith("final_conv")}


def golden(folder: Path, path: Path, config: Config) -> None:
    """Write weights, audio, the reference's dump and the part of the other weights."""
    save = importlib.import_module("safetensors.numpy").save_file
    folder.mkdir(parents=True, exist_ok=True)
    audio = signal(config)
    np.save(folder / "audio.npy", audio)
    save(weights_from_onnx(path), folder / "weights.safetensors")
    save(part_of_the_safetensors_file(), folder / "other_weights.safetensors")
    with tempfile.TemporaryDirectory() as made:
        found = reference(path, audio, Path(made) / "dump", config)
        version = {"silero-vad": metadata.version("silero-vad")}
        packed(Path(made) / "dump", folder / "reference", **version)
    print(f"{folder}: probabilities {[f'{p:.3f}' for p in found[0]]}")


def main(arguments: list[str] | None = None) -> int:
    """Write the golden data, or runs to calibrate by."""
    parser = argparse.ArgumentParser(description="capture the golden data of Silero VAD")
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    parser.add_argument("--runs", action="store_true", help="three runs to calibrate by")
    given = parser.parse_args(arguments)
    config, path = Config(), package_file("silero_vad.onnx")
    if not given.runs:
        golden(given.folder, path, config)
        return 0
    runs: dict[str, dict[str, Any]] = {
        "plain": {},
        "threads": {"threads": 2},
        "optimised": {"level": "ORT_ENABLE_ALL"},
    }
    for name, how in runs.items():
        reference(path, signal(config), given.folder / name, config, **how)
    return 0


if __name__ == "__main__":
    sys.exit(main())
