"""Write the tolerance files: `python -m tests.golden.qwen3.tolerances [FOLDER]`, after a capture.

Provisional limits (`gradsweep gate init`), exact ones for what is looked up, and 4 x the noise of
the reference: the largest difference that another order of the products' sums makes, over several
models and inputs. One input would not do: with bfloat16 weights the noise is that of roundings that
flip, which are few in one run.
"""

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from checks.gates.formats.readers import open_side
from checks.gates.limits.contract import Contract, Limit, read_contract, rounded_up, write_contract
from checks.gates.overview import first_contract
from checks.tolerances import constant
from tests.golden.qwen3.capture import HERE, capture, needed

MODELS, ORDERS = range(100, 124), range(3)
FILES = {"float32": "qwen3.json", "bf16": "qwen3.bf16.json"}
REFERENCE = "Reference: transformers 5.24.0 on torch 2.13.0, one thread, eager attention."
WHY = {
    "float32": (
        f"float32 weights. {REFERENCE}",
        "Wider than provisional only where a comment says so: float32 sums in another order.",
    ),
    "bf16": (
        f"bfloat16 weights: products round their float32 input to bfloat16 and sum in float32. The "
        f"reference does the same. {REFERENCE}",
        "Wider than provisional where a rounding may flip: float32 sums in another order take an "
        "activation near a rounding boundary to the next bfloat16, 2^-8 of it, as the input of the "
        "next product. Backward crosses the same roundings, and gradients of bfloat16 weights are "
        "bfloat16 themselves.",
    ),
}
EXACT = {
    "dec.tokens": "Integers.",
    "dec.gen.tokens": "Integers: another token is another behaviour.",
    "dec.token_emb": "A look-up is exact: else a wrong token, or a dtype that was not meant.",
}
# The decode computes what the run without a cache does: where it was lucky, its limits are those.
SAME = {f"dec.gen.{n}": f"dec.{n}" for n in ("logits_raw", *(f"block.{k}.out" for k in range(3)))}


def noise(policy: str, models: Iterable[int] = MODELS) -> dict[str, Limit]:
    """The largest differences of each tensor between runs that sum in different orders."""
    worst: dict[str, Limit] = {}
    for seed in models:
        with tempfile.TemporaryDirectory() as made:
            runs = [Path(made) / str(n) for n in range(1 + len(ORDERS))]
            for run, order in zip(runs, (None, *ORDERS), strict=True):
                capture(run, policy, order, seed)
            first, *others = [open_side(run) for run in runs]
            for key, stored in first.tensors.items():
                base = stored.load().astype(np.float64)
                for other in others:
                    apart = np.abs(other.tensors[key].load().astype(np.float64) - base)
                    name = stored.tensor.name
                    old = worst.get(name, Limit(0.0, 0.0))
                    largest, mean = float(apart.max()), float(apart.mean())
                    worst[name] = Limit(max(old.max_abs, largest), max(old.mean_abs, mean))
    return worst


def widened(old: Limit, found: Limit) -> Limit:
    """The limit, where need be wide enough for 4 x the noise, with a comment that says so."""
    times = constant("gate_calibrate_noise")
    new = Limit(
        max(old.max_abs, rounded_up(times * found.max_abs)),
        max(old.mean_abs, rounded_up(times * found.mean_abs)),
    )
    factor = max(new.max_abs / old.max_abs, new.mean_abs / old.mean_abs)
    return new if factor == 1 else replace(new, comment=(f"Widened {factor:.3g} x by noise.",))


def wider(a: Limit, b: Limit) -> Limit:
    """The wider limits of two."""
    return replace(a, max_abs=max(a.max_abs, b.max_abs), mean_abs=max(a.mean_abs, b.mean_abs))


def contract(folder: Path, policy: str) -> Contract:
    """The tolerance file of one policy."""
    file = folder / FILES[policy]
    first_contract([folder / policy], file, force=True)
    first, apart = read_contract(file), noise(policy)
    limits = {n: widened(limit, apart[n]) for n, limit in first.limits.items()}
    for name, other in SAME.items():
        limits[name] = wider(limits[name], limits[other])
    limits |= {name: Limit(0.0, 0.0, (why,)) for name, why in EXACT.items()}
    inputs = [line for line in first.comment if line.startswith("Input ")]
    runs = f"{len(MODELS)} models and inputs, {1 + len(ORDERS)} runs each"
    how = f"max(provisional, 4 x the largest difference between runs of the reference): {runs}."
    return Contract(file, limits, (*WHY[policy], how, *inputs))


def main(arguments: list[str] | None = None) -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description="write the tolerance files of Qwen3")
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    folder = parser.parse_args(arguments).folder
    needed()
    for policy in FILES:
        made = contract(folder, policy)
        print(f"{write_contract(made.path, made)}: {len(made.limits)} tensors")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
