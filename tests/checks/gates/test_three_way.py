"""Reference in float32, reference in float64, candidate: whose rounding is the gap?"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.gates.comparison.apart import ThreeWay
from checks.gates.comparison.record import Result
from checks.gates.comparison.verdict import compare
from tests.checks.gates.sides import normal, write_limits, write_side

EXACT = normal(30, 40).astype(np.float64) * 3
WIDE = {"max_abs": 1.0, "mean_abs": 1.0}
NONE = {"max_abs": 0.0, "mean_abs": 0.0}


def noisy(scale: float, seed: int) -> Any:
    noise = np.random.default_rng(seed).normal(size=EXACT.shape)
    return (EXACT * (1 + scale * noise)).astype(np.float32)


def split(
    tmp_path: Path,
    reference: Any,
    candidate: Any,
    exact: Any = EXACT,
    limit: Any = WIDE,
    **run: Any,
) -> Result:
    sides = [
        write_side(tmp_path / name, values if isinstance(values, dict) else {"t": values}, **run)
        for name, values in (("r", reference), ("c", candidate), ("r64", exact))
    ]
    names = reference if isinstance(reference, dict) else {"t": 0}
    limits = write_limits(tmp_path / "limits.json", dict.fromkeys(names, limit))
    return compare(sides[0], sides[1], limits, reference64=sides[2])


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))


def test_the_three_distances(tmp_path: Path) -> None:
    r, c = noisy(1e-6, 1), noisy(2e-6, 2)
    row = split(tmp_path, r, c).rows[0]
    found = row.three_way
    assert found is not None
    np.testing.assert_allclose(found.own, rms(r - EXACT))
    np.testing.assert_allclose(found.candidate, rms(c - EXACT))
    np.testing.assert_allclose(found.gap, rms(c.astype(float) - r))
    np.testing.assert_allclose(found.ratio, rms(c - EXACT) / rms(r - EXACT))
    assert found.rounding
    assert row.to_record()["three_way"]["ratio"] == found.ratio


@pytest.mark.parametrize(
    ("distances", "text"),
    [
        ((1.0, 3.1, 3.0), "more than rounding explains"),
        ((1.0, 1.0, 1.4), "rounding: both are about equally far from reference64"),
        ((1.0, 2.9, 3.0), "rounding: both are about equally far from reference64"),
        ((1.0, 1.02, 0.2), "the gap to reference64 is the reference's own rounding, which both"),
        ((1.0, 0.2, 1.0), "the candidate is nearer to reference64"),
        ((0.0, 1e-9, 1e-9), "more than rounding explains"),
        ((0.0, 0.0, 0.0), "all three are equal"),
    ],
)
def test_what_the_distances_say(distances: tuple[float, float, float], text: str) -> None:
    assert text in ThreeWay(*distances).text


def test_a_fault_is_more_than_rounding(tmp_path: Path) -> None:
    result = split(tmp_path, noisy(1e-7, 1), noisy(1e-5, 2), limit=NONE)
    four, six = result.answers[3].text, result.answers[5].text
    assert "B / A = " in four and "more than rounding explains" in four
    assert six.startswith("one candidate was given; the candidate: from reference64 (rms)")


def test_the_references_own_rounding_is_told(tmp_path: Path) -> None:
    r = noisy(1e-3, 1)  # as one in bfloat16 would be
    c = (r * (1 + 1e-5 * normal(30, 40, seed=5))).astype(np.float32)
    result = split(tmp_path / "shared", r, c, limit=NONE)
    assert "the gap to reference64 is the reference's own rounding" in result.answers[3].text
    result = split(tmp_path / "better", r, noisy(1e-6, 2), limit=NONE)
    assert "the candidate is nearer to reference64" in result.answers[5].text
    assert result.answers[5].text.startswith("one candidate was given; rounding: ")


def test_it_changes_no_verdict(tmp_path: Path) -> None:
    assert split(tmp_path / "a", noisy(1e-7, 1), noisy(1e-3, 2)).exit_code == 0
    assert split(tmp_path / "b", noisy(1e-3, 1), noisy(1e-6, 2), limit=NONE).exit_code == 1


@pytest.mark.parametrize(
    ("exact", "words"),
    [
        (EXACT[:-1], "no three-way split: reference64 has shape [29, 40], not [30, 40]"),
        (EXACT.astype(np.float32), "no three-way split: reference64 is float32, not float64"),
        ({"u": EXACT}, "no three-way split: reference64 has no such tensor"),
        (np.full_like(EXACT, np.nan), "1,200 entries are not finite on one of three sides"),
    ],
    ids=["shape", "dtype", "missing", "nan"],
)
def test_what_does_not_fit_is_named(tmp_path: Path, exact: Any, words: str) -> None:
    result = split(tmp_path / "one", noisy(1e-7, 1), noisy(1e-7, 2), exact)
    assert words in result.rows[0].note
    assert result.exit_code == 2
    assert "reference64 fits no contract tensor: 't': no three-way" in str(result.problems[0])

    both = dict(exact if isinstance(exact, dict) else {"t": exact}, good=EXACT)
    sides = [{"t": noisy(1e-7, s), "good": noisy(1e-7, s)} for s in (1, 2)]
    result = split(tmp_path / "two", sides[0], sides[1], both)
    assert result.exit_code == 0
    assert any(words in note and note.startswith("t: ") for note in result.notes)
    assert result.rows[1].three_way is not None


def test_integers_need_none(tmp_path: Path) -> None:
    ids = np.arange(5)
    result = split(tmp_path, {"ids": ids, "t": noisy(1e-7, 1)}, {"ids": ids, "t": noisy(1e-7, 2)})
    assert (result.rows[0].note, result.rows[0].three_way) == ("", None)
    assert result.exit_code == 0


def test_another_input_is_noted(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"t": noisy(1e-7, s)}) for s, n in enumerate("rc")]
    wide = write_side(tmp_path / "w", {"t": EXACT}, input_hashes={"x": "1"})
    for side in sides:
        (side / "run.json").write_text('{"input_hashes": {"x": "2"}}')
    limits = write_limits(tmp_path / "limits.json", {"t": WIDE})
    result = compare(sides[0], sides[1], limits, reference64=wide)
    assert "reference64 was given another input, or the same in another dtype" in result.notes
    assert result.exit_code == 0


def test_complex_references_are_split(tmp_path: Path) -> None:
    exact = EXACT + 1j * EXACT[::-1]
    r, c = exact.astype(np.complex64), (exact * (1 + 1e-6)).astype(np.complex64)
    found = split(tmp_path, r, c, exact).rows[0].three_way
    assert found is not None and found.own > 0 and found.ratio > 3
