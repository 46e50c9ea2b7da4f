"""Several candidates: one backend, the port, or each in its own way."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from checks import gates
from checks.cli import main
from checks.gates.comparison.several import Comparison, compare_all, labels_of
from checks.gates.errors import GateError
from checks.gates.reports.terminal import show, verdict_of_all
from tests.checks.gates.sides import TIGHT, normal, write_limits, write_side

X, Y = normal(24, 64), normal(24, 64, seed=1)
GOOD = {"enc.out": X, "dec.out": Y}
Captured = pytest.CaptureFixture[str]


def noise(scale: float, seed: int) -> Any:
    return (scale * normal(24, 64, seed=seed)).astype(np.float32)


def together(
    tmp_path: Path, candidates: Mapping[str, Mapping[str, Any]], **options: Any
) -> Comparison:
    reference = write_side(tmp_path / "reference", GOOD)
    sides = [write_side(tmp_path / name, tensors) for name, tensors in candidates.items()]
    limits = write_limits(tmp_path / "limits.json", dict.fromkeys(GOOD, TIGHT))
    return compare_all(reference, sides, limits, **options)


def test_only_one_is_off(tmp_path: Path) -> None:
    found = together(tmp_path, {"cpu": GOOD, "gpu": dict(GOOD, **{"enc.out": X + noise(1e-2, 3)})})
    assert (found.exit_code, found.ok) == (1, False)
    assert [r.exit_code for r in found.results] == [0, 1]
    text = found.results[1].answers[5].text
    assert text.startswith("yes: at enc.out only gpu is off, cpu is not: a fault of that backend")
    assert "gpu is 0.00" in text and "cpu 0, they are 0.00" in text
    assert found.results[0].answers == ()


def test_all_are_off_alike(tmp_path: Path) -> None:
    e = noise(1e-2, 3)
    sides = {"cpu": {"enc.out": X + e, "dec.out": Y}, "gpu": {"enc.out": X + e + noise(1e-4, 4)}}
    sides["gpu"]["dec.out"] = Y
    found = together(tmp_path, sides)
    text = "no: all are off alike at enc.out, their errors correlate "
    text += "(cosine at least 0.9999): the port"
    assert found.backend.startswith(text)
    assert all(r.answers[5].text == found.backend for r in found.results)


def test_each_is_off_in_its_own_way(tmp_path: Path) -> None:
    sides = {n: dict(GOOD, **{"enc.out": X + noise(1e-2, s)}) for s, n in enumerate("abc", 3)}
    found = together(tmp_path, sides)
    assert found.backend.startswith(
        "each is off in its own way at enc.out, their errors do not correlate (a and b "
    )
    assert "b and c " in found.backend


def test_each_is_off_at_another_tensor(tmp_path: Path) -> None:
    sides = {"a": dict(GOOD, **{"enc.out": 2 * X}), "b": dict(GOOD, **{"dec.out": 2 * Y})}
    found = together(tmp_path, sides)
    assert found.backend.startswith(
        "partly: at enc.out only a is off, b is not; later b at dec.out"
    )
    assert found.first is not None and found.first.name == "enc.out"


def test_two_of_three(tmp_path: Path) -> None:
    bad = dict(GOOD, **{"enc.out": 2 * X})
    found = together(tmp_path, {"a": bad, "b": GOOD, "c": bad})
    assert found.backend.startswith("yes: at enc.out only a and c are off, b is not: a fault of th")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"dec.out": Y}, "no: all are off alike at enc.out (MISSING-candidate): the port"),
        ({"enc.out": X.T, "dec.out": Y}, "no: all are off alike at enc.out (SHAPE): the port"),
    ],
    ids=["missing", "shape"],
)
def test_what_cannot_be_correlated(tmp_path: Path, bad: Any, words: str) -> None:
    assert together(tmp_path, {"a": bad, "b": bad}).backend == words
    other = {"enc.out": X[:3], "dec.out": Y}
    text = together(tmp_path / "other", {"a": bad, "b": other}).backend
    assert text == "each is off in its own way at enc.out: see the rows of each"


def test_all_pass(tmp_path: Path) -> None:
    found = together(tmp_path, {"a": GOOD, "b": dict(GOOD, **{"enc.out": X + noise(1e-7, 2)})})
    assert (found.exit_code, found.ok, found.backend, found.first) == (0, True, "", None)
    assert list(found.between) == ["enc.out"]  # the other is equal everywhere


def test_candidates_are_measured_against_each_other(tmp_path: Path) -> None:
    a, b = X + noise(1e-3, 2), X + noise(2e-3, 3)
    found = together(tmp_path, {n: dict(GOOD, **{"enc.out": v}) for n, v in (("a", a), ("b", b))})
    between = found.between["enc.out"]
    assert between.max_abs[1][2] == float(np.abs(a.astype(float) - b).max())
    assert between.max_abs[0][1] == found.results[0].rows[0].measured.max_abs  # type: ignore[union-attr]


def test_a_proven_fault_outweighs_an_invalid_comparison(tmp_path: Path) -> None:
    reference = write_side(tmp_path / "r", GOOD, input_hashes={"x": "1"})
    bad = write_side(tmp_path / "bad", dict(GOOD, **{"enc.out": 2 * X}))
    other = write_side(tmp_path / "other", GOOD, input_hashes={"x": "2"})
    good = write_side(tmp_path / "good", GOOD)
    limits = write_limits(tmp_path / "limits.json", dict.fromkeys(GOOD, TIGHT))
    assert compare_all(reference, [bad, other], limits).exit_code == 1
    assert compare_all(reference, [good, other], limits).exit_code == 2
    assert compare_all(reference, [good], limits).exit_code == 0
    text = compare_all(reference, [bad, other], limits).backend
    assert text.endswith("no valid comparison: other")


def test_the_split_of_each_is_told(tmp_path: Path) -> None:
    exact = {n: v.astype(float) * (1 + 1e-8) for n, v in GOOD.items()}
    wide = write_side(tmp_path / "r64", exact)
    sides = {"cpu": dict(GOOD), "gpu": dict(GOOD, **{"enc.out": X + noise(1e-2, 3)})}
    text = together(tmp_path, sides, reference64=wide).backend
    assert "reference64 (B / A): cpu 1 (" in text
    assert "gpu " in text and "(more than rounding explains)" in text


def test_rows_come_with_their_candidate(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    together(
        tmp_path, {"a": GOOD, "b": GOOD}, step=lambda label, row: seen.append((label, row.name))
    )
    assert seen == [(n, k) for n in "ab" for k in GOOD]


def test_one_candidate_is_answered_as_alone(tmp_path: Path) -> None:
    found = together(tmp_path, {"a": dict(GOOD, **{"enc.out": 2 * X})})
    assert found.results[0].answers[5].text.startswith("one candidate was given")


def test_a_candidate_given_twice_or_none(tmp_path: Path) -> None:
    side = write_side(tmp_path / "a", GOOD)
    limits = write_limits(tmp_path / "limits.json", dict.fromkeys(GOOD, TIGHT))
    with pytest.raises(GateError, match="^a candidate is given twice\n  at .*\n  name each dump"):
        compare_all(side, [side, tmp_path / "x" / ".." / "a"], limits)
    with pytest.raises(GateError, match="^no candidate is given\n"):
        gates.compare_all(side, [], limits)


def test_labels_tell_folders_apart() -> None:
    def labels(*paths: str) -> tuple[str, ...]:
        return labels_of([Path(p) for p in paths])

    assert labels("/x/cpu", "/x/gpu") == ("cpu", "gpu")
    assert labels("/x/cpu/out", "/x/gpu/out") == ("cpu/out", "gpu/out")


def command(tmp_path: Path, *options: Any) -> int:
    together(tmp_path, {"cpu": GOOD, "gpu": dict(GOOD, **{"enc.out": 2 * X})})
    sides = [str(tmp_path / n) for n in ("reference", "cpu", "gpu")]
    limits = ["--tolerances", str(tmp_path / "limits.json")]
    return main(["gate", "compare", *sides, *limits, *map(str, options)])


def test_the_command_prints_a_table(tmp_path: Path, capsys: Captured) -> None:
    assert command(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [s for s in lines if s.startswith("candidate ")] == [
        "candidate cpu",
        "candidate gpu",
        "candidate 'cpu': PASS: 2 of 2 contract tensors pass; inputs unknown",
        "candidate gpu",
    ]
    at = next(n for n, s in enumerate(lines) if s.startswith("tensor"))
    assert lines[at - 1].startswith("what each candidate uses of its limit (= equal, 100% just")
    assert lines[at].split() == ["tensor", "cpu", "gpu", "cpu", "-", "gpu"]
    name, cpu, gpu, apart = lines[at + 1].split()
    assert (name, cpu) == ("enc.out", "=") and gpu.endswith("x") and float(apart) > 3
    assert lines.count("6 Is it backend-specific?") == 1
    assert lines[at + 3] == "6 Is it backend-specific?"
    assert lines[at + 4].startswith("  yes: at enc.out only gpu is off")
    assert lines[-1] == "FAIL: 1 of 2 candidates pass; gpu FAIL at enc.out"


def test_the_command_writes_all_of_it(tmp_path: Path, capsys: Captured) -> None:
    file, page = tmp_path / "r.json", tmp_path / "r.html"
    assert command(tmp_path, "--json", file, "--html", page, "--quiet") == 1
    lines = capsys.readouterr().out.splitlines()
    assert not any(s.startswith("ok ") for s in lines)
    heads = [n for n, s in enumerate(lines) if s.startswith("candidate ")]
    assert lines[heads[0]] == "candidate gpu" and lines[heads[0] + 1].startswith("FAIL ")
    assert lines[heads[1]].startswith("candidate 'cpu': PASS: ") and len(heads) == 3
    assert main(["gate", "report", str(file), "--quiet"]) == 1
    assert capsys.readouterr().out.splitlines() == lines
    record = json.loads(file.read_text())
    assert (record["exit_code"], record["first"], record["labels"]) == (
        1,
        "enc.out",
        ["cpu", "gpu"],
    )
    assert record["cause"] == "scale"
    assert [r["exit_code"] for r in record["results"]] == [0, 1]
    assert record["between"]["enc.out"]["rms"][0][1] == 0
    text = page.read_text()
    assert "Candidates side by side" in text and "cpu - gpu" in text


def test_a_table_too_wide_leaves_out_the_distances(tmp_path: Path) -> None:
    x = normal(6, 8)
    reference = write_side(tmp_path / "reference", {"enc.out": x})
    paths = [write_side(tmp_path / f"gpu{n}", {"enc.out": x + n + 1}) for n in range(4)]
    limits = write_limits(tmp_path / "limits.json", {"enc.out": TIGHT})
    report = compare_all(reference, paths, limits)
    for width, there in ((200, True), (70, False)):
        out = io.StringIO()
        show(report, Console(file=out, width=width))
        head = next(t for t in out.getvalue().splitlines() if t.startswith("tensor"))
        assert ("gpu0 - gpu1" in head) == there
        assert "gpu3" in head and "…" not in out.getvalue()


def test_a_candidate_of_other_inputs_is_not_judged(tmp_path: Path) -> None:
    def run(bad: tuple[str, ...]) -> Comparison:
        folder = tmp_path / "-".join(bad)
        reference = write_side(folder / "reference", GOOD, input_hashes={"x": "1"})
        off = dict(GOOD, **{"enc.out": 2 * X})
        paths = [
            write_side(folder / n, off, input_hashes={"x": "2" if n in bad else "1"})
            for n in ("cpu", "gpu", "tpu")
        ]
        return compare_all(reference, paths, write_limits(folder / "l.json", {"enc.out": TIGHT}))

    one, two = run(("cpu",)), run(("cpu", "tpu"))
    assert [r.first is None for r in one.results] == [True, False, False]
    assert one.results[0].answers == () and one.exit_code == 1
    text = "no: all are off alike at enc.out, their errors correlate (cosine at least 1): the port"
    assert one.backend.startswith(text) and one.backend.endswith("no valid comparison: cpu")
    text = "gpu alone could be judged, and is off at enc.out; no valid comparison: cpu, tpu"
    assert two.backend == text
    last = verdict_of_all(one)
    assert last.startswith("FAIL: 0 of 3 candidates pass; cpu INVALID: the inputs differ: 'x'; gpu")
