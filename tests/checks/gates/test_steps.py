"""What a comparison says beyond its figures: what to do next, other dtypes, other inputs."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.blocks.block import Block
from checks.gates.comparison.record import Result
from checks.gates.comparison.rejudging import rejudge
from checks.gates.comparison.steps import NEXT
from checks.gates.reports.blocks import to_json as blocks_to_json
from checks.gates.reports.junit import junit
from checks.gates.reports.terminal import to_json, verdict
from tests.checks.gates.sides import TIGHT, judged, normal, write_limits, write_side

X, Y = normal(24, 64), normal(24, 64, seed=1)
Captured = pytest.CaptureFixture[str]


def steps(result: Result) -> list[str]:
    return [n for n in result.notes if n.startswith(NEXT)]


def many(word: str, count: int) -> dict[str, Any]:
    return {f"{word}.{n}": normal(4, 5, seed=n) for n in range(count)}


# --- names ---


def test_names_that_differ_lead_to_suggestions(tmp_path: Path) -> None:
    ours = many("enc", 5)
    result = judged(tmp_path, ours, {"enc.0": ours["enc.0"], **many("layers", 3)})
    sides = f"{tmp_path / 'reference'} {tmp_path / 'candidate'}"
    text = "4 contract tensors are missing on the candidate, 3 others are there"
    assert steps(result) == [f"next: gradsweep gate names {sides} --suggest ({text})"]


def test_names_that_differ_on_the_reference(tmp_path: Path) -> None:
    limits = dict.fromkeys(many("layers", 3), TIGHT)
    result = judged(tmp_path, many("enc", 1), many("layers", 3), limits)
    assert result.exit_code == 2
    (text,) = steps(result)
    assert text.endswith("(3 contract tensors are missing on the reference, 1 other is there)")


def test_a_few_missing_tensors_are_no_other_names(tmp_path: Path) -> None:
    ours = many("enc", 5)
    theirs = {k: v for k, v in ours.items() if k != "enc.4"}
    assert steps(judged(tmp_path / "a", ours, theirs | many("new", 3))) == []
    assert steps(judged(tmp_path / "b", ours, {"enc.0": ours["enc.0"]})) == []  # no others


# --- isolate ---


def test_what_is_unclassified_leads_to_isolate(tmp_path: Path, capsys: Captured) -> None:
    r = write_side(tmp_path / "r s", {"a": X, "b": Y})
    c = write_side(tmp_path / "c", {"a": X, "b": normal(24, 64, seed=9)})
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT, "b": TIGHT})
    assert main(["gate", "compare", str(r), str(c), "--tolerances", str(limits)]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, s in enumerate(lines) if s.startswith("FAIL: "))
    command = f"next: gradsweep gate isolate '{r}' {c} --blocks MODULE:NAME"
    assert lines[at + 1] == f"{command} (give each Block its weights)"
    blocks = [Block("b", ("a",), lambda x: x)]
    assert steps(gates.compare(r, c, limits, blocks=blocks)) == []


def test_a_cause_is_enough_and_a_place_is_not(tmp_path: Path) -> None:
    assert steps(judged(tmp_path / "a", {"a": X}, {"a": 2 * X})) == []
    later = X.copy()
    later[1:] = normal(23, 64, seed=9)
    result = judged(tmp_path / "b", {"a": X}, {"a": later})
    assert result.cause is not None and result.cause.name == "after the first"
    assert len(steps(result)) == 1
    assert steps(judged(tmp_path / "c", {"a": X, "b": Y}, {"a": X})) == []  # missing


def test_derivatives_are_isolated_backward(tmp_path: Path) -> None:
    (text,) = steps(judged(tmp_path, {"grad.a": X}, {"grad.a": Y}))
    assert " --blocks MODULE:NAME --backward (" in text


def test_steps_are_found_anew_by_rejudging(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X, "b": Y}, {"a": X, "b": normal(24, 64, seed=9)})
    (tmp_path / "r.json").write_text(to_json(result))
    wide = write_limits(tmp_path / "wide.json", {"a": TIGHT, "b": {"max_abs": 9, "mean_abs": 9}})
    assert len(steps(result)) == 1
    again = rejudge(tmp_path / "r.json", wide)
    assert isinstance(again, Result) and again.ok and steps(again) == []
    same = rejudge(tmp_path / "r.json", tmp_path / "limits.json")
    assert isinstance(same, Result) and steps(same) == steps(result)


def test_blocks_that_were_run_are_not_offered_again_by_rejudging(tmp_path: Path) -> None:
    wrong = {"a": X, "b": normal(24, 64, seed=9)}
    result = judged(tmp_path, {"a": X, "b": Y}, wrong, blocks=[Block("b", ("a",), lambda x: x)])
    assert result.cause is None and result.replayed and steps(result) == []
    (tmp_path / "r.json").write_text(to_json(result))
    same = rejudge(tmp_path / "r.json", tmp_path / "limits.json")
    assert isinstance(same, Result) and same.exit_code == 1 and steps(same) == []
    # A tensor that fails by other limits alone was never looked at: that offer is no repetition.
    near = {"a": (X + 1e-7 * Y).astype(np.float32), "b": wrong["b"]}
    blocks = [Block("b", ("a",), lambda x: x)]
    result = judged(tmp_path / "n", {"a": X, "b": Y}, near, blocks=blocks)
    (tmp_path / "n.json").write_text(to_json(result))
    tight = write_limits(tmp_path / "tight.json", {"a": {"max_abs": 0.0, "mean_abs": 0.0}})
    again = rejudge(tmp_path / "n.json", tight)
    assert isinstance(again, Result) and again.first is not None and again.first.name == "a"
    assert len(steps(again)) == 1 and "isolate" in steps(again)[0]


def isolated(tmp_path: Path, call: Any, file: str = "i.json", candidate: Any = None) -> Path:
    """What an isolation of one block, "b" of "a", writes."""
    blocks = [Block("b", ("a",), call, {"w": normal(64, 64, seed=2)})]
    given = candidate or tmp_path / "candidate"
    found = gates.isolate(tmp_path / "reference", blocks, tmp_path / "limits.json", candidate=given)
    (tmp_path / file).write_text(blocks_to_json(found))
    return tmp_path / file


def test_an_isolation_that_was_run_is_taken_over_by_rejudging(
    tmp_path: Path, capsys: Captured
) -> None:
    def turned(w: Any, x: Any) -> Any:
        return x @ w["w"].T

    w = normal(64, 64, seed=2)
    ours = {"a": X, "b": X @ w}
    result = judged(tmp_path, ours, {"a": X, "b": X @ w.T})
    report, limits = tmp_path / "r.json", tmp_path / "limits.json"
    report.write_text(to_json(result))
    assert result.cause is None and "isolate" in steps(result)[0]
    found = isolated(tmp_path, turned)
    again = rejudge(report, limits, found)
    assert isinstance(again, Result) and again.exit_code == 1 and steps(again) == []
    assert again.cause is not None and again.cause.name == "transposed weight"
    assert "w transposed" in again.answers[2].text
    note = f"blocks isolated by {found}: the block of b is wrong by itself"
    assert note in again.notes
    report.write_text(to_json(again))  # and it stays so
    kept = rejudge(report, limits)
    assert isinstance(kept, Result) and steps(kept) == [] and kept.cause == again.cause
    command = ["gate", "rejudge", str(report), "--tolerances", str(limits)]
    assert main([*command, "--isolated", str(found)]) == 1
    assert "next: " not in capsys.readouterr().out


def test_an_isolation_that_says_little_or_is_of_other_dumps(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X, "b": Y}, {"a": X, "b": normal(24, 64, seed=9)})
    report, limits = tmp_path / "r.json", tmp_path / "limits.json"
    report.write_text(to_json(result))

    def fails(w: Any, x: Any) -> Any:
        raise ValueError("no")

    stopped = rejudge(report, limits, isolated(tmp_path, fails))
    assert isinstance(stopped, Result) and len(steps(stopped)) == 1  # it was not checked
    right = rejudge(report, limits, isolated(tmp_path, lambda w, x: Y))
    assert isinstance(right, Result) and right.cause is None and steps(right) == []
    assert right.notes[-1].endswith("the block of b is right on the reference's inputs")
    other = write_side(tmp_path / "other", {"a": X, "b": Y})
    foreign = isolated(tmp_path, lambda w, x: Y, candidate=other)
    with pytest.raises(gates.GateError, match="the isolation is of other dumps") as error:
        rejudge(report, limits, foreign)
    assert len(str(error.value).splitlines()) == 3
    with pytest.raises(gates.GateError, match="no report of an isolation"):
        rejudge(report, limits, report)


def test_chosen_names_hide_no_hint(tmp_path: Path) -> None:
    """`--only "enc.*"`: the candidate's tensors are there under other names."""
    result = judged(tmp_path, many("enc", 5), many("layers", 5), only="enc.*")
    assert [r.name.partition(".")[0] for r in result.rows] == ["enc"] * 5
    (text,) = steps(result)
    assert text.endswith(
        "--suggest (5 contract tensors are missing on the candidate, 5 others are there)"
    )
    (tmp_path / "r.json").write_text(to_json(result))
    again = rejudge(tmp_path / "r.json", tmp_path / "limits.json")
    assert isinstance(again, Result) and steps(again) == steps(result)
    one = judged(tmp_path / "one", many("enc", 5), many("enc", 4), only="enc.4")
    assert steps(one) == []  # the others that are there are in the contract


# --- tensors of one side alone ---


def test_many_tensors_of_one_side_are_one_line(tmp_path: Path, capsys: Captured) -> None:
    r = write_side(tmp_path / "r", {"a": X, "b": Y})
    c = write_side(tmp_path / "c", {"a": X, **many("tap", 12), "b": Y})
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT, "b": TIGHT})
    files = [tmp_path / "r.json", tmp_path / "r.html"]
    options = ["--json", str(files[0]), "--html", str(files[1])]
    assert main(["gate", "compare", str(r), str(c), "--tolerances", str(limits), *options]) == 0
    out = capsys.readouterr().out
    assert [s.split()[:2] for s in out.splitlines()[:3]] == [
        *(["ok", "a"], ["ok", "b"], ["MISSING-reference", "12"])
    ]
    told = "12 debug tensors: tap.0, tap.1, tap.2, ... (all of them in --json and --html)"
    assert out.splitlines()[2] == f"MISSING-reference {told}"
    assert out.count("MISSING") == 1
    for file in files:
        assert all(f"tap.{n}" in file.read_text() for n in range(12))
    assert main(["gate", "report", str(files[0])]) == 0
    assert capsys.readouterr().out.split() == out.split()


def test_few_tensors_of_one_side_have_a_line_each(tmp_path: Path, capsys: Captured) -> None:
    sides = {"r": {"a": X, "only.r": Y}, "c": {"a": X, **many("tap", 3)}, "d": {**many("tap", 4)}}
    paths = [str(write_side(tmp_path / n, t)) for n, t in sides.items()]
    limits = str(write_limits(tmp_path / "limits.json", {"a": TIGHT}))
    assert main(["gate", "compare", *paths, "--tolerances", limits]) == 1
    lines = [s.split()[:2] for s in capsys.readouterr().out.splitlines()]
    assert lines[:6] == [
        *(["candidate", "c"], ["ok", "a"], ["MISSING-candidate", "only.r"]),
        *(["MISSING-reference", f"tap.{n}"] for n in range(3)),
    ]
    assert lines[6:10] == [
        *(["candidate", "d"], ["MISSING-candidate", "a"], ["MISSING-candidate", "only.r"]),
        ["MISSING-reference", "4"],
    ]
    assert main(["gate", "compare", *paths[:2], "--tolerances", limits, "--quiet"]) == 0
    assert "MISSING" not in capsys.readouterr().out


# --- dtypes ---


def test_other_dtypes_are_noted(tmp_path: Path) -> None:
    wide = {"a": X.astype(np.float64), "b": Y.astype(np.float64), "c": X}
    result = judged(tmp_path, {"a": X, "b": Y, "c": X}, wide)
    assert result.ok
    assert result.notes == ("2 tensors are float64 on the candidate, float32 on the reference",)


# --- the ladder ---


def test_an_error_above_the_ladder_is_called_neither_noise_nor_systematic(tmp_path: Path) -> None:
    for n, wrong in enumerate((normal(24, 64, seed=9), 3 * X + Y)):
        text = judged(tmp_path / str(n), {"a": X}, {"a": wrong}).answers[3].text
        assert text.endswith(": above what any precision of one product explains")
    near = (X + 1e-3 * Y).astype(np.float32)
    assert "; noise-like (eta " in judged(tmp_path / "n", {"a": X}, {"a": near}).answers[3].text


# --- inputs that differ ---


def other_inputs(tmp_path: Path) -> tuple[Path, Path, Path]:
    r = write_side(tmp_path / "r", {"a": X, "b": Y}, input_hashes={"tokens": "1"})
    c = write_side(tmp_path / "c", {"a": 2 * X, "b": Y}, input_hashes={"tokens": "2"})
    return r, c, write_limits(tmp_path / "limits.json", {"a": TIGHT, "b": TIGHT})


def test_other_inputs_tell_nothing_of_the_candidate(tmp_path: Path) -> None:
    result = gates.compare(*other_inputs(tmp_path))
    assert (result.exit_code, result.first, result.cause, result.answers) == (2, None, None, ())
    assert [r.cause for r in result.rows] == [None, None] and result.notes == ()
    assert verdict(result) == "INVALID: the inputs differ: 'tokens'"
    (problem,) = result.problems
    assert "r/run.json, hash 1, and " in problem.where and problem.where.endswith("json, hash 2")
    assert result.to_record()["cause"] is None


def test_other_inputs_are_told_before_the_rows(tmp_path: Path, capsys: Captured) -> None:
    r, c, limits = map(str, other_inputs(tmp_path))
    file = tmp_path / "r.json"
    assert main(["gate", "compare", r, c, "--tolerances", limits, "--json", str(file)]) == 2
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "INVALID  the inputs differ: 'tokens'"
    assert [s.split()[:2] for s in lines[3:5]] == [["FAIL", "a"], ["ok", "b"]]
    assert lines[5:] == ["INVALID: the inputs differ: 'tokens'"]
    assert main(["gate", "report", str(file)]) == 2
    assert capsys.readouterr().out == out
    with pytest.raises(gates.GateInvalid) as error:
        gates.check(r, c, limits)
    lines = str(error.value).splitlines()
    assert lines[0] == "INVALID: the inputs differ: 'tokens'"
    assert lines[2].startswith("INVALID  the inputs") and lines[5].startswith("FAIL ")


def test_other_inputs_in_junit(tmp_path: Path) -> None:
    (suite,) = ET.fromstring(junit(gates.compare(*other_inputs(tmp_path))))
    counts = {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "3", "failures": "0", "errors": "1", "skipped": "1"}
    assert suite.find("testcase/error").get("message") == "the inputs differ: 'tokens'"  # type: ignore[union-attr]


def test_other_problems_are_told_in_the_headline(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X, "b": Y}, {"a": X, "b": X})
    start = "INVALID: 'a' and 'b' hold the same bytes on one side and differ on the other; 1 of 2 "
    assert verdict(result).startswith(start)


# --- one value under two names ---


def stream(residual: bool) -> dict[str, Any]:
    """A block's branch and output, and what follows."""
    branch = np.tanh(X)
    out = X + branch if residual else branch
    return {"in": X, "branch": branch, "out": out, "next": np.sin(out), "last": np.cos(3 * out)}


def test_a_residual_that_is_left_out_is_no_reused_buffer(tmp_path: Path) -> None:
    """What follows is off too: the candidate went on with it."""
    result = judged(tmp_path, stream(True), stream(False))
    assert (result.exit_code, result.problems) == (1, ())
    assert result.first is not None and result.first.name == "out"
    note = "branch and out hold the same bytes, and what follows is off too: the candidate has one "
    assert sum(n.startswith(note) for n in result.notes) == 1
    (tmp_path / "r.json").write_text(to_json(result))
    again = rejudge(tmp_path / "r.json", tmp_path / "limits.json")
    assert isinstance(again, Result) and again.exit_code == 1
    assert sum(n.startswith(note) for n in again.notes) == 1


def test_a_dump_of_the_wrong_tensor_changes_nothing_behind_it(tmp_path: Path) -> None:
    right = stream(True)
    wrong = {**right, "out": right["branch"]}
    result = judged(tmp_path, right, wrong)
    assert result.exit_code == 2
    (problem,) = result.problems
    assert problem.what == (
        "'branch' and 'out' hold the same bytes on one side and differ on the other; "
        "what follows is right"
    )
    assert problem.fix == "a buffer was reused: mark both for the dump (Dump.put, ad.tap)"


@pytest.mark.parametrize("case", ["nothing behind", "off later", "the reference"])
def test_what_tells_neither_leaves_both_readings(tmp_path: Path, case: str) -> None:
    right, wrong = stream(True), stream(False)
    if case == "nothing behind":
        right, wrong = ({k: s[k] for k in ("in", "branch", "out")} for s in (right, wrong))
    elif case == "off later":
        wrong = {**right, "out": right["branch"], "last": wrong["last"]}
    else:
        right, wrong = wrong, right
    result = judged(tmp_path, right, wrong)
    assert result.exit_code == 2
    assert result.problems[0].fix.endswith("; or one value stands for both")
