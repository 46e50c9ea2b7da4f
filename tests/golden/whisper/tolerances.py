"""Write the tolerance files: `python -m tests.golden.whisper.tolerances [FOLDER]`, after a capture.

Provisional limits (`gradsweep gate init`), exact ones for what is looked up, and 1.5 x the worst
difference of the port from the reference over many runs: at float32 in other orders of the
products' sums, with bfloat16 weights under a little noise in what goes into products, which turns
roundings that lie near a tie. One run would not do: such roundings are few in each.
"""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from autodiff import ops, taps
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.statistics import statistics
from checks.gates.limits.contract import Contract, Limit, rounded_up, write_contract
from checks.gates.overview import first_contract
from checks.ports import policy, whisper
from checks.tolerances import constant
from tests.golden.whisper.capture import HERE

FILES = {"float32": "whisper.json", "bf16": "whisper.bf16.json"}
RUNS = {"float32": 12, "bf16": 60}
NOISE = 8  # units in the last place of float32, of what goes into products with bfloat16 weights
EXACT = (
    *("enc.wave", "dec.tokens", "dec.token_emb", "dec.pos_emb", "dec.embed.out"),
    *("dec.gen.tokens", "dec.gen.token_emb", "dec.gen.pos_emb"),
)
UNTOUCHED = ("enc.mel.in", "enc.pos_emb")  # by any product with a weight
ROUNDING = 2.0**-8  # of bfloat16: the least limit, of p99, after a product with bfloat16 weights
ROUNDING_MEAN = 1e-4  # ... of rms: one rounding among many values
WHY = {
    "float32": (
        "Whisper, random weights: transformers 5.24.0 on torch 2.13.0, one thread, eager attention;"
        " float32.",
        f"Limits: provisional, or 1.5 x the drift of the port over {RUNS['float32']} orders of"
        " summation, where that is wider.",
    ),
    "bf16": (
        "Whisper, random weights: transformers 5.24.0 on torch 2.13.0, one thread, eager attention;"
        " bf16 weights, f32 input rounded to bf16 in products, f32 accumulation, on both sides.",
        "Both agree like float32 until an input of a product lies so near a tie that it is rounded"
        " the other way; from there on they differ as bf16 does, and more with depth.",
        f"Limits: 1.5 x the drift of the port over {RUNS['bf16']} runs with {NOISE} ulp of noise in"
        " what goes into products, and one such rounding at least: max_abs 2^-8 p99, mean_abs 1e-4"
        " rms. What no product has touched has provisional limits.",
    ),
}
LOOKED_UP = "Copies, look-ups and tokens are exact, and so is the sum of two look-ups."


def contract(folder: Path, name: str) -> Contract:
    """The tolerance file of one policy, written and returned."""
    side, output = open_side(folder / name), folder / FILES[name]
    first = first_contract([folder / name], output, force=True)
    worst = _drift(side, name)
    limits = {}
    for tensor, limit in first.limits.items():
        most, mean = (constant("gate_calibrate_drift") * v for v in worst.get(tensor, (0.0, 0.0)))
        if name == "bf16" and tensor not in UNTOUCHED:
            figures = [statistics(side.tensors[k].chunks()) for k in side.calls(tensor)]
            most = max(most, ROUNDING * max(s.p99_abs or 0.0 for s in figures))
            mean = max(mean, ROUNDING_MEAN * max(s.rms or 0.0 for s in figures))
        wide = Limit(rounded_up(max(limit.max_abs, most)), rounded_up(max(limit.mean_abs, mean)))
        limits[tensor] = Limit(0.0, 0.0) if tensor in EXACT else wide
    found = Contract(output, limits, (*WHY[name], LOOKED_UP))
    write_contract(output, found)
    return found


def _drift(side: Side, name: str) -> dict[str, tuple[float, float]]:
    """By name, the worst max_abs and mean_abs over the runs and the calls of a name."""
    reference = {k: s.load().astype(np.float64) for k, s in side.tensors.items()}
    weights = whisper.random_weights(whisper.TINY, whisper.SEED)
    weights = policy.rounded(weights) if name == "bf16" else weights
    found: dict[str, tuple[float, float]] = {}
    for run in range(RUNS[name]):
        with _disturbed(name, np.random.default_rng(run)) if run else contextlib.nullcontext():
            kept = _Kept()
            given = whisper.example(whisper.TINY, whisper.SEED)
            with _tapped(kept):
                whisper.run(kept, weights, whisper.TINY, given)  # type: ignore[arg-type]
        for key, value in kept.tensors.items():
            if key in reference:
                d = np.abs(np.asarray(value, np.float64) - reference[key])
                before = found.get(key.partition("#")[0], (0.0, 0.0))
                now = (max(before[0], float(d.max())), max(before[1], float(d.mean())))
                found[key.partition("#")[0]] = now
    return found


class _Kept:
    """As an open dump, in memory."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}

    def put(self, name: str, array: Any, call: int | None = None) -> Any:
        while call is None or (key := f"{name}#{call}" if call else name) in self.tensors:
            call = 0 if call is None else call + 1
        self.tensors[key] = array
        return array

    def input(self, name: str, array: Any) -> Any:
        del name
        return array


@contextlib.contextmanager
def _tapped(kept: _Kept) -> Iterator[None]:
    """Put what is tapped into `kept`."""

    def sink(name: str, value: Any) -> None:
        kept.put(name, value)

    with taps.collect(sink):
        yield


@contextlib.contextmanager
def _disturbed(name: str, rng: Any) -> Iterator[None]:
    """The port with sums in another order (float32), or noise in what goes into products."""
    linear, conv1d, operand = policy.linear, ops.conv1d, policy.operand
    orders: dict[int, Any] = {}

    def order(n: int) -> Any:
        return orders.setdefault(n, rng.permutation(n))

    def other_linear(x: Any, weight: Any, bias: Any = None) -> Any:
        at = order(weight.shape[1])
        return linear(x[..., at], weight[:, at], bias)

    def other_conv(x: Any, kernel: Any, **how: Any) -> Any:
        at = order(kernel.shape[1])
        return conv1d(x[:, at], kernel[:, at], **how)

    def noisy(x: Any, weight: Any) -> Any:
        ulps = rng.integers(-NOISE, NOISE + 1, x.shape) * np.finfo(np.float32).eps
        return operand(x * (1 + ulps).astype(np.float32), weight)

    with contextlib.ExitStack() as stack:
        if name == "float32":
            stack.enter_context(mock.patch.object(whisper, "linear", other_linear))
            stack.enter_context(mock.patch.object(ops, "conv1d", other_conv))
        else:
            stack.enter_context(mock.patch.object(whisper, "operand", noisy))
            stack.enter_context(mock.patch.object(policy, "operand", noisy))
        yield


def main(arguments: list[str] | None = None) -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description="write the tolerance files of Whisper")
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    folder = parser.parse_args(arguments).folder
    for name in FILES:
        print(f"{FILES[name]}: limits of {len(contract(folder, name).limits)} tensors")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
