"""Limits of bfloat16 and float16: no less than what a rounding on the other side does."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks.cli import main
from checks.gates.corpus.bench import CALIBRATE, INIT, bench
from checks.gates.corpus.models import BFLOAT16, models
from checks.gates.formats.manifest import Statistics
from checks.gates.formats.readers import open_side
from checks.gates.formats.statistics import statistics
from checks.gates.limits.calibration import calibrate
from checks.gates.limits.contract import Limit, read_contract, rounded_up
from checks.gates.limits.floors import floor, formats, roundoff
from checks.gates.limits.origins import origin, without_origin
from checks.gates.overview import first_contract
from checks.tolerances import constant
from tests.checks.gates.sides import normal, write_limits, write_side

Captured = pytest.CaptureFixture[str]
BF16, F16 = ml_dtypes.bfloat16, np.float16
X = normal(40, 50)
U = 2.0**-8


def init(folder: Path, *options: str) -> int:
    return main(["gate", "init", str(folder / "r"), "--output", str(folder / "t.json"), *options])


def of_bfloat16(array: Any) -> Limit:
    s = statistics([array])
    assert s.p99_abs and s.rms
    most, mean = constant("gate_floor_max"), constant("gate_floor_mean")
    return Limit(rounded_up(most * U * s.p99_abs), rounded_up(mean * U * s.rms))


def limits_of(limit: Limit) -> tuple[float, float]:
    return limit.max_abs, limit.mean_abs


def test_the_unit_roundoff() -> None:
    assert (roundoff("bfloat16"), roundoff("float16")) == (2.0**-8, 2.0**-11)
    assert float(BF16(1 + U)) == 1.0 and float(BF16(1 + 1.01 * U)) == 1 + 2 * U


@pytest.mark.parametrize(
    ("stored", "policy", "dtype", "narrow"),
    [
        ([np.float32, BF16, np.float32], "", None, ["", "bfloat16", "bfloat16"]),
        ([np.float32, F16, BF16, F16], "", None, ["", "float16", "bfloat16", "bfloat16"]),
        ([np.float32, np.float32], "bf16 weights, f32 accumulation", None, ["bfloat16"] * 2),
        ([np.float32, BF16], "fp16 weights", None, ["float16", "bfloat16"]),
        ([np.float32, np.float64], "float32", None, ["", ""]),
        ([np.float32, np.complex64], "", "half", ["float16", "float16"]),
        ([np.float32, BF16, np.float32], "bfloat16", "float32", ["", "bfloat16", ""]),
        ([np.int64, BF16, np.bool_, np.int8], "", None, ["", "bfloat16", "", ""]),
    ],
)
def test_what_was_computed_in(
    tmp_path: Path, stored: Any, policy: str, dtype: Any, narrow: Any
) -> None:
    tensors = {f"t{n}": np.ones(4, kind) for n, kind in enumerate(stored)}
    side = open_side(write_side(tmp_path / "r", tensors, dtype_policy=policy))
    found = formats(side, dtype)
    assert [found.get(k, "") for k in tensors] == narrow


def test_where_no_order_is_known_all_are_alike(tmp_path: Path) -> None:
    for name, kind in (("a", np.float32), ("b", F16)):
        np.save(tmp_path / f"{name}.npy", np.ones(4, kind))
    assert formats(open_side(tmp_path)) == {"a": "float16", "b": "float16"}


def test_a_narrow_debug_tensor_says_nothing_of_those_behind(tmp_path: Path) -> None:
    tensors = {"a": (np.ones(3, BF16), {"role": "debug"}), "b": np.ones(3, np.float32)}
    assert formats(open_side(write_side(tmp_path / "r", tensors))) == {"a": "bfloat16"}


def test_the_floor_by_hand() -> None:
    s = Statistics(rms=2.0, p99_abs=3.0, absmax=100.0)
    most, mean = constant("gate_floor_max") * 3.0, constant("gate_floor_mean") * 2.0
    for dtype, u in (("bfloat16", U), ("float16", 2.0**-11)):
        found = floor([(s, "float32", dtype)])
        assert found is not None
        assert limits_of(found) == (rounded_up(most * u), rounded_up(mean * u))
    stored = floor([(s, "bfloat16", "bfloat16")])
    assert stored is not None and stored.max_abs == rounded_up(2 * U * 100.0)  # one ulp of 100
    assert floor([(s, "float32", "")]) is None
    both = floor([(s, "float32", "float16"), (s, "float32", "bfloat16")])
    assert both is not None and both.max_abs == rounded_up(most * U)


def test_init_writes_the_floor_and_says_so(tmp_path: Path, capsys: Captured) -> None:
    write_side(tmp_path / "r", {"mel": X, "h": X.astype(BF16), "out": 3 * X})
    assert init(tmp_path) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("t.json: provisional limits of 3 tensors")
    assert printed[1].startswith("Floor of bfloat16: max_abs >= 4 u p99, 2 u absmax where ")
    contract = read_contract(tmp_path / "t.json")
    assert contract.comment[-1] == printed[1]
    assert contract.limits["mel"].comment == () and contract.limits["mel"].max_abs < 1e-3
    assert contract.limits["out"].comment == ("From: floor.",)
    assert limits_of(contract.limits["out"]) == limits_of(of_bfloat16(3 * X))


def test_init_takes_the_dtype_that_it_is_told(tmp_path: Path, capsys: Captured) -> None:
    write_side(tmp_path / "r", {"mel": X})
    assert init(tmp_path) == 0
    assert "Floor" not in (tmp_path / "t.json").read_text()
    assert init(tmp_path, "--dtype", "bf16", "--force") == 0
    assert limits_of(read_contract(tmp_path / "t.json").limits["mel"]) == limits_of(of_bfloat16(X))
    assert init(tmp_path, "--dtype", "bf15", "--force") == 3
    assert "unknown dtype 'bf15'" in capsys.readouterr().err


# --- calibrate -------------------------------------------------------------------------------


def runs(folder: Path, **changes: Any) -> tuple[list[Path], list[Path]]:
    """Three reference runs and a candidate in bfloat16, which differ by float32 rounding alone."""
    made = []
    for n, name in enumerate(("r0", "r1", "r2", "c0")):
        noise = np.random.default_rng(n).uniform(-1e-7, 1e-7, X.shape)
        tensors = {"table": X, "h": (X + noise).astype(np.float32)} | changes
        made.append(write_side(folder / name, tensors, dtype_policy="bfloat16"))
    return made[:3], made[3:]


def test_calibrate_widens_to_the_floor(tmp_path: Path) -> None:
    references, candidates = runs(tmp_path)
    tight = {"max_abs": 1e-5, "mean_abs": 1e-5}
    write_limits(tmp_path / "t.json", {"table": tight, "h": tight})
    found = calibrate(tmp_path / "t.json", references, candidates, because="bfloat16")
    table, h = found.proposals
    assert h.decided == ("floor", "floor") and limits_of(h.new) == limits_of(of_bfloat16(X))
    comment = found.contract.limits["h"].comment
    assert comment[-1] == "From: floor; 3 reference and 1 candidate run."
    assert "by floor" in comment[0] and comment[0].endswith(": bfloat16")
    assert any(c.startswith("Calibrated: Floor of bfloat16: ") for c in found.contract.comment)
    # A table's rows are the same to the bit in every run, though not all tensors are.
    assert table.decided == ("kept", "kept")
    again = calibrate(tmp_path / "t.json", references, candidates)
    assert "more than 2 x wider" in again.problems[-1].what


def test_a_limit_with_a_floor_is_kept_and_tightened_no_further(tmp_path: Path) -> None:
    references, candidates = runs(tmp_path)
    first_contract(references[:1], tmp_path / "t.json")
    kept = calibrate(tmp_path / "t.json", references, candidates)
    assert [p.decided[0] for p in kept.proposals] == ["kept", "kept"] and not kept.problems
    said = "From: floor (kept); 3 reference and 1 candidate run."
    assert kept.contract.limits["h"].comment == (said,)
    low = calibrate(tmp_path / "t.json", references, candidates, tighten=True)
    table, h = low.proposals
    assert limits_of(h.new) == limits_of(of_bfloat16(X))
    assert table.decided == ("provisional", "provisional") and table.new.max_abs < 1e-3


def test_runs_that_repeat_to_the_bit_show_no_exact_tensor(tmp_path: Path) -> None:
    references, candidates = runs(tmp_path, h=X)
    first_contract(references[:1], tmp_path / "t.json")
    found = calibrate(tmp_path / "t.json", references, candidates, tighten=True)
    assert {p.decided[0] for p in found.proposals} == {"kept"}


def test_origins() -> None:
    assert origin(("noise", "drift"), "4 runs") == "From: max_abs noise, mean_abs drift; 4 runs."
    before = ("Ours.", "From: max_abs noise, mean_abs floor; 4 runs.")
    assert origin(("kept", "drift"), "5 runs", before) == (
        "From: max_abs noise (kept), mean_abs drift; 5 runs."
    )
    twice = ("From: max_abs noise (kept), mean_abs kept; 5 runs.",)
    assert origin(("kept", "kept"), "", twice) == "From: max_abs noise (kept), mean_abs kept."
    assert without_origin(before) == ("Ours.",)


@pytest.mark.parametrize("source", [INIT, CALIBRATE])
def test_clean_bfloat16_runs_pass(tmp_path: Path, source: str) -> None:
    """Late tensors of two blocks, where few runs do not show the largest flip."""
    made = bench(models()["audio_tokens"], 50, tmp_path / "b", BFLOAT16, "tiny", source)
    text = json.loads(made.tolerances.read_text())
    assert "From: floor" in str(text["dec.logits_raw"]["_comment"])
    for number in range(4):
        result = made.clean(12 + number, 1000 + number)
        assert result.ok, result.first
