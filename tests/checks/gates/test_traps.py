"""Sixteen ways in which a gate passes what it should refuse; each one fails here."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.cli import main
from checks.gates.errors import GateError
from tests.checks.gates.sides import TIGHT, judged, normal, pair, write_limits, write_side

X = normal(6, 8)


def test_01_a_gate_tensor_absent_from_the_candidate(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X, "b": X + 1}, {"a": X})
    assert result.exit_code == 1
    assert [r.status for r in result.rows] == ["ok", "MISSING-candidate"]
    assert result.first is not None and result.first.name == "b"


def test_02_names_never_match_by_luck_or_place(tmp_path: Path) -> None:
    result = judged(tmp_path, {"block.1": X}, {"block.10": X})
    assert result.exit_code == 1
    assert {r.name: r.status for r in result.rows} == {
        "block.1": "MISSING-candidate",
        "block.10": "MISSING-reference",
    }


def test_03_fewer_calls_on_one_side(tmp_path: Path) -> None:
    calls = {"step": X, "step#1": X + 1, "step#2": X + 2}
    fewer = {k: v for k, v in calls.items() if k != "step#2"}
    result = judged(tmp_path / "a", calls, fewer)
    assert result.exit_code == 1
    assert result.rows[2].status == "MISSING-candidate"
    assert judged(tmp_path / "b", fewer, calls).exit_code == 2


@pytest.mark.parametrize("limits", [{}, {"_comment": ["nothing"]}])
def test_04_nothing_compared_at_all(tmp_path: Path, limits: Any) -> None:
    result = judged(tmp_path, {"a": X}, {"a": X}, limits)
    assert result.exit_code == 2
    assert "no contract tensors: nothing was compared" in result.problems[0].what


def test_04_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X}, {"a": X}, only="b.*")
    assert result.exit_code == 2
    assert "no contract tensors that match 'b.*'" in result.problems[0].what


def test_04_a_contract_tensor_without_values(tmp_path: Path) -> None:
    assert pair(tmp_path, X[:0], X[:0]).exit_code == 2


@pytest.mark.parametrize("limit", [TIGHT, {"max_abs": "inf", "mean_abs": "inf"}])
def test_05_a_candidate_of_nan(tmp_path: Path, limit: Any) -> None:
    result = pair(tmp_path, X, np.full_like(X, np.nan), limit)
    assert result.exit_code == 1
    assert result.rows[0].status == "NONFINITE"
    assert result.rows[0].measured is not None
    assert math.isnan(result.rows[0].measured.max_abs)


def test_05_one_nan_in_the_last_block(tmp_path: Path) -> None:
    x = normal(400_000)
    y = x.copy()
    y[-3] = np.nan
    result = pair(tmp_path, x, y, {"max_abs": 1e9, "mean_abs": 1e9})
    assert result.exit_code == 1
    assert result.rows[0].measured is not None
    assert result.rows[0].measured.worst == (399_997,)


def informational(x: Any) -> Any:
    return x, {"role": "informational"}


def test_06_infinities_of_either_sign(tmp_path: Path) -> None:
    up, down = X.copy(), X.copy()
    up[2, 3], down[2, 3] = np.inf, -np.inf
    wide = {"t": {"max_abs": "inf", "mean_abs": "inf"}}
    result = judged(tmp_path / "a", {"t": informational(up)}, {"t": informational(down)}, wide)
    assert result.exit_code == 1
    assert result.rows[0].measured is not None and result.rows[0].measured.worst == (2, 3)
    same = judged(tmp_path / "b", {"t": informational(up)}, {"t": informational(up)}, wide)
    assert same.exit_code == 0


def test_07_a_transposed_candidate(tmp_path: Path) -> None:
    result = pair(tmp_path, X, X.T)
    assert result.exit_code == 1
    assert result.cause is not None and "axes are permuted by (1, 0)" in result.cause.text


def test_07_a_square_transposed_candidate(tmp_path: Path) -> None:
    x = normal(7, 7)
    result = pair(tmp_path, x, np.ascontiguousarray(x.T))
    assert result.exit_code == 1
    assert result.cause is not None and result.cause.name == "transposed"


@pytest.mark.parametrize("candidate", [X[None], X[:1], X[:, :1], X.reshape(8, 6), X.ravel()])
def test_07_shapes_that_broadcast_or_reshape(tmp_path: Path, candidate: Any) -> None:
    result = pair(tmp_path, X, candidate, {"max_abs": 1e9, "mean_abs": 1e9})
    assert (result.exit_code, result.rows[0].status) == (1, "SHAPE")


@pytest.mark.parametrize(
    "candidate",
    [X[::-1], X[:, ::-1], np.random.default_rng(1).permutation(X.ravel()).reshape(X.shape)],
    ids=["mirrored", "mirrored columns", "shuffled"],
)
def test_08_equal_means_are_no_equal_tensors(tmp_path: Path, candidate: Any) -> None:
    assert pair(tmp_path, X, candidate).exit_code == 1


def test_08_a_harmless_scale_passes(tmp_path: Path) -> None:
    assert pair(tmp_path, X, X * np.float32(1 + 1e-6)).exit_code == 0


@pytest.mark.parametrize(
    ("candidate", "cause"), [(2 * X, "scale"), (X + 1, "offset"), (0 * X + 3, "constant")]
)
def test_09_what_correlation_cannot_see(tmp_path: Path, candidate: Any, cause: str) -> None:
    result = pair(tmp_path, X, candidate)
    assert result.exit_code == 1
    assert result.cause is not None and result.cause.name == cause


def test_10_limits_do_not_grow_with_the_data(tmp_path: Path) -> None:
    large = 1e6 * normal(16, 16)
    assert pair(tmp_path, large, large * np.float32(1.00003)).exit_code == 1


def test_11_a_failure_is_the_exit_code(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"t": x}) for n, x in (("r", X), ("c", X + 1))]
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    command = ["gate", "compare", *map(str, sides), "--tolerances", str(limits)]
    assert main(command) == 1
    assert main([*command[:3], command[2], *command[4:]]) == 0


def test_12_both_limits_hold(tmp_path: Path) -> None:
    spike = X.copy()
    spike[0, 0] += 1
    assert pair(tmp_path / "a", X, spike, {"max_abs": 1e-3, "mean_abs": 1.0}).exit_code == 1
    assert pair(tmp_path / "b", X, X + 0.01, {"max_abs": 1.0, "mean_abs": 1e-3}).exit_code == 1
    tiny = np.full((4,), 1e-9, np.float32)
    small = {"max_abs": 1e-10, "mean_abs": 1e-10}
    assert pair(tmp_path / "c", tiny, 100 * tiny, small).exit_code == 1


def test_13_a_broken_reference(tmp_path: Path) -> None:
    broken = X.copy()
    broken[1, 1] = np.nan
    for n, candidate in enumerate((broken, X)):
        result = pair(tmp_path / str(n), broken, candidate)
        assert result.exit_code == 2
        assert "the gate's reference 't' has 1 non-finite" in result.problems[0].what


def test_14_every_tensor_every_call_every_entry(tmp_path: Path) -> None:
    names = {f"t{n}": normal(4, seed=n) for n in range(500)}
    wrong = dict(names, t387=names["t387"] + np.float32(1))
    result = judged(tmp_path / "a", names, wrong)
    assert [r.name for r in result.rows if r.failed] == ["t387"]
    x = normal(300_001)
    last = x.copy()
    last[-1] += 1
    result = pair(tmp_path / "b", x, last, {"max_abs": 0.1, "mean_abs": 0.1})
    assert result.exit_code == 1
    assert result.rows[0].measured is not None and result.rows[0].measured.worst == (300_000,)


def test_15_an_input_of_ones_is_told_apart_from_a_good_one(tmp_path: Path) -> None:
    ones, other = {"inputs.x": "ones"}, {"inputs.x": "normal"}
    sides = [
        write_side(tmp_path / n, {"t": X}, input_hashes=h)
        for n, h in (("r", ones), ("c", other), ("same", ones))
    ]
    limits = str(write_limits(tmp_path / "limits.json", {"t": TIGHT}))
    command = ["gate", "compare", str(sides[0])]
    assert main([*command, str(sides[1]), "--tolerances", limits]) == 2
    assert main([*command, str(sides[2]), "--tolerances", limits]) == 0


def test_16_a_dump_with_the_bytes_of_another_tensor(tmp_path: Path) -> None:
    y = normal(6, 8, seed=5)
    result = judged(tmp_path / "a", {"a": X, "b": y}, {"a": y, "b": y})
    assert result.exit_code == 2
    assert "'a' and 'b' hold the same bytes" in result.problems[0].what
    zero = np.zeros_like(X)
    assert judged(tmp_path / "b", {"a": X, "b": y}, {"a": zero, "b": zero}).exit_code == 1
    assert judged(tmp_path / "c", {"a": y, "b": y}, {"a": y, "b": y}).exit_code == 0


def test_a_wrong_crc_is_named(tmp_path: Path) -> None:
    write_side(tmp_path / "r", {"t": X})
    write_side(tmp_path / "c", {"t": (X, {"crc32": 1})})
    from checks.gates.comparison.verdict import compare

    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    with pytest.raises(GateError, match="crc32 .*, not 00000001"):
        compare(tmp_path / "r", tmp_path / "c", limits)


def _nan_like(x: Any) -> Any:
    """NaN of both signs: their bytes are not constant."""
    return np.where(x > 0, np.float32(np.nan), -np.float32(np.nan)).astype(np.float32)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.full_like(x, np.nan),
        _nan_like,
        lambda x: np.full_like(x, -np.inf),
        lambda x: np.where(x == x, np.nan, x).astype(np.complex64),
        lambda x: np.where(np.arange(8) < 3, np.nan, 0).astype(np.float32) + 0 * x,
    ],
    ids=["nan", "signed", "inf", "complex", "columns"],
)
def test_what_a_nan_makes_alike_is_no_reused_buffer(tmp_path: Path, make: Any) -> None:
    bad = make(X)
    result = judged(tmp_path, {"a": X, "b": X + 1}, {"a": bad, "b": bad})
    assert (result.exit_code, result.problems) == (1, ())
    assert result.first is not None and result.first.name == "a"


def test_a_reused_buffer_with_a_nan_in_it_is_one(tmp_path: Path) -> None:
    bad = X.copy()
    bad[2, 3] = np.nan
    result = judged(tmp_path, {"a": X, "b": X + 1}, {"a": bad, "b": bad})
    assert [p.kind for p in result.problems] == ["reused"]
