"""Reports: rows as they are made, limits that would have passed, saved and judged again, JUnit."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.comparison.questions import suggested, would_have_passed
from checks.gates.comparison.record import Result
from checks.gates.comparison.rejudging import rejudge
from checks.gates.comparison.several import Comparison, compare_all
from checks.gates.comparison.verdict import compare
from checks.gates.errors import GateError
from checks.gates.reports.junit import junit
from checks.gates.reports.page import page
from checks.gates.reports.saved import read_report
from checks.gates.reports.terminal import to_json
from tests.checks.gates.sides import TIGHT, judged, normal, pair, write_limits, write_side
from tests.checks.gates.test_command import Tags

X = normal(24, 64)
Captured = pytest.CaptureFixture[str]


def noisy(scale: float, x: Any = X) -> Any:
    return (x + scale * normal(24, 64, seed=1)).astype(np.float32)


def other(n: int) -> Any:
    """Another tensor: equal ones look like one buffer."""
    return normal(24, 64, seed=20 + n)


# --- rows as they are made ---


def test_a_row_is_printed_before_the_next_tensor_is_read(tmp_path: Path, capsys: Captured) -> None:
    good = {"a": X, "b": 2 * X, "c": X}
    sides = [write_side(tmp_path / "r", good), write_side(tmp_path / "c", dict(good, b=X))]
    (sides[1] / "c.bin").write_bytes(X.tobytes()[:-4])
    manifest = (sides[1] / "manifest.jsonl").read_text()
    raw = write_side(tmp_path / "late", good)
    (raw / "manifest.jsonl").write_text(manifest.replace('"crc32":', '"crc32":1'))
    (raw / "b.bin").write_bytes(X.tobytes())
    lines = (raw / "manifest.jsonl").read_text().splitlines(keepends=True)
    lines[:2] = manifest.splitlines(keepends=True)[:2]  # only the last tensor's crc32 is wrong
    (raw / "manifest.jsonl").write_text("".join(lines))
    limits = str(write_limits(tmp_path / "limits.json", dict.fromkeys(good, TIGHT)))
    assert main(["gate", "compare", str(sides[0]), str(raw), "--tolerances", limits]) == 3
    out, err = capsys.readouterr()
    assert [s.split()[:2] for s in out.splitlines()] == [["ok", "a"], ["FAIL", "b"]]
    assert out.splitlines()[1].endswith("  scale")  # its cause is there at once
    assert "'c' have crc32" in err


# --- limits that would have passed ---


def test_a_noisy_failure_ends_with_limits_to_paste(tmp_path: Path, capsys: Captured) -> None:
    sides = [write_side(tmp_path / n, {"t": v}) for n, v in (("r", X), ("c", noisy(1e-3)))]
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    command = ["gate", "compare", *map(str, sides), "--tolerances"]
    assert main([*command, str(limits)]) == 1
    *_, title, line = capsys.readouterr().out.splitlines()
    assert title == "would have passed (the figures x 1.2):"
    pasted = json.loads("{" + line.strip().removesuffix(",") + "}")
    e = np.abs(noisy(1e-3).astype(float) - X)
    for key, figure in (("max_abs", e.max()), ("mean_abs", e.mean())):
        assert 1.2 * figure <= pasted["t"][key] < 1.35 * figure
    assert main([*command, str(write_limits(tmp_path / "new.json", pasted))]) == 0


def test_limits_of_several_calls_are_one_line(tmp_path: Path) -> None:
    r = {"t": X, "t#1": other(1), "u": other(2)}
    c = {"t": noisy(1e-3), "t#1": noisy(3e-3, other(1)), "u": noisy(1e-3, other(2))}
    result = judged(tmp_path, r, c)
    lines = would_have_passed(result)
    assert [s.split(":")[0] for s in lines[1:]] == ['  "t"', '  "u"']
    most = suggested(result.rows[1])
    assert f'"max_abs": {most.max_abs:g}, "mean_abs": {most.mean_abs:g}' in lines[1]


def test_a_limit_that_holds_is_kept(tmp_path: Path) -> None:
    result = pair(tmp_path, X, noisy(1e-3), {"max_abs": 1.0, "mean_abs": 1e-6})
    assert suggested(result.rows[0]).max_abs == 1.0


SYSTEMATIC = X + np.float32(1e-3) * np.tanh(X) + noisy(2e-4) - X


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (2 * X, "for t: its cause is known (scale)"),
        (SYSTEMATIC, "for t: its error looks systematic (eta "),
        (noisy(0.5), "for t: its magnitude is off (relative rms 0."),
        (X[:, :9], "for t: no limits make up for SHAPE"),
        (np.full_like(X, np.nan), "for t: no limits make up for NONFINITE"),
    ],
    ids=["cause", "systematic", "magnitude", "shape", "nan"],
)
def test_no_limits_are_suggested_for_a_fault(tmp_path: Path, candidate: Any, words: str) -> None:
    (line,) = would_have_passed(pair(tmp_path, X, candidate))
    assert line.startswith(f"no limits are suggested {words}")


def test_what_is_no_rounding_is_not_suggested(tmp_path: Path) -> None:
    exact = X.astype(float) * (1 + 1e-8)
    sides = [
        write_side(tmp_path / n, {"t": v})
        for n, v in (("r", X), ("c", noisy(1e-3)), ("r64", exact))
    ]
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    result = compare(sides[0], sides[1], limits, reference64=sides[2])
    assert would_have_passed(result)[0].startswith(
        "no limits are suggested for t: it is more than rounding (B / A = "
    )


def test_nor_for_what_comes_after_a_fault(tmp_path: Path) -> None:
    r = {n: other(s) for s, n in enumerate("abcd")}
    result = judged(tmp_path, r, {n: noisy(1e-3, v) if n != "b" else 2 * v for n, v in r.items()})
    lines = would_have_passed(result)
    assert lines[1].startswith('  "a": {') and len(lines) == 3
    assert lines[2] == (
        "no limits are suggested for b: its cause is known (scale); nor for the 2 tensors that "
        "fail after it"
    )


def test_nor_for_a_name_of_which_a_later_call_is_a_fault(tmp_path: Path) -> None:
    r = {"a": other(1), "t": X, "t#1": other(2)}
    c = {"a": noisy(1e-3, other(1)), "t": noisy(1e-3), "t#1": 2 * other(2)}
    lines = would_have_passed(judged(tmp_path, r, c))
    assert [s.split(":")[0] for s in lines[1:]] == ['  "a"', "no limits are suggested for t#1"]


def test_an_invalid_comparison_suggests_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X}, {"a": noisy(1e-3)}, {"a": TIGHT, "gone": TIGHT})
    assert (result.exit_code, would_have_passed(result)) == (2, [])


# --- the first question ---


def test_the_first_question_names_what_passes_and_looks_systematic(tmp_path: Path) -> None:
    wide = {"max_abs": 1.0, "mean_abs": 1.0}
    names = ("good", "quiet", "quiet2", "bad")
    r = {n: other(s) for s, n in enumerate(names)}
    c = {n: v * np.float32(1.001) for n, v in r.items()}
    c |= {"good": noisy(1e-7, r["good"]), "bad": noisy(1e-2, r["bad"])}
    limits = dict.fromkeys(names, wide) | {"bad": TIGHT}
    result = judged(tmp_path, r, c, limits)
    text = result.answers[0].text
    assert text.startswith("bad (gate, FAIL): max_abs ")
    assert "; last good: quiet2; quiet passes but looks systematic (eta " in text
    assert "), before it: scaled: candidate = 1.001 x reference; 1 of 4 contract " in text
    assert result.to_record()["first_systematic"] == "quiet"


def test_what_fails_is_not_said_to_pass(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X}, {"a": SYSTEMATIC})
    assert result.rows[0].systematic
    assert result.quiet is None
    assert "looks systematic" not in result.answers[0].text


# --- saved reports ---


def rich_result(tmp_path: Path) -> Result:
    """One of everything: causes, details, splits, changes, missing tensors, notes."""
    r: dict[str, Any] = {
        "in": X,
        "half": X.astype(ml_dtypes.bfloat16),
        "scaled": (other(1), {"role": "informational"}),
        "shape": other(2),
        "nan": other(3),
        "dec.logits": normal(24, 10),
        "dec.tokens": np.arange(4),
        "only": other(4),
    }
    bad = other(3)
    bad[3, 4] = np.nan
    c = {
        "in": noisy(1e-7),
        "half": X.astype(ml_dtypes.bfloat16),
        "scaled": (2 * other(1), {"role": "informational"}),
        "shape": other(2).T,
        "nan": bad,
        "dec.logits": normal(24, 10, seed=5),
        "dec.tokens": np.arange(4)[::-1],
        "new": X,
    }
    sides = [write_side(tmp_path / n, v) for n, v in (("r", r), ("c", c))]
    exact = {"in": X.astype(float) * (1 + 1e-9), "scaled": other(1).astype(float)}
    wide = write_side(tmp_path / "r64", exact)
    names = [n for n in r if n != "half"]
    table: dict[str, Any] = dict.fromkeys(names, TIGHT)
    table["in"] = {"max_abs": "inf", "mean_abs": 1.0, "_comment": ["a lookup"]}
    limits = write_limits(tmp_path / "limits.json", table)
    return compare(sides[0], sides[1], limits, reference64=wide)


def strict(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def test_a_result_comes_back_from_json(tmp_path: Path) -> None:
    result = rich_result(tmp_path)
    assert {r.status for r in result.rows} >= {"ok", "FAIL", "SHAPE", "NONFINITE"}
    text = to_json(result)
    back = Result.from_record(strict(text))
    assert to_json(back) == text
    for a, b in zip(result.rows, back.rows, strict=True):
        if a.status != "NONFINITE":  # NaN is unequal to itself
            assert a == b
    assert (back.answers, back.problems, back.changes) == (
        result.answers,
        result.problems,
        result.changes,
    )
    assert (back.exit_code, back.first and back.first.name) == (1, "shape")


def test_an_equal_result(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X, "b": X}, {"a": noisy(1e-7), "b": 2 * X})
    assert Result.from_record(strict(to_json(result))) == result


def test_a_comparison_comes_back_from_json(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"t": v}) for n, v in (("r", X), ("a", X), ("b", 2 * X))]
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    found = compare_all(sides[0], sides[1:], limits)
    assert Comparison.from_record(strict(to_json(found))) == found


def run(*options: Any) -> int:
    return main(["gate", *map(str, options)])


def saved(tmp_path: Path, result: Result | Comparison) -> Path:
    file = tmp_path / "report.json"
    file.write_text(to_json(result))
    return file


def test_report_renders_a_saved_report(tmp_path: Path, capsys: Captured) -> None:
    result = rich_result(tmp_path)
    file, html, xml = saved(tmp_path, result), tmp_path / "r.html", tmp_path / "r.xml"
    limits = ["--tolerances", tmp_path / "limits.json", "--reference64", tmp_path / "r64"]
    assert run("compare", tmp_path / "r", tmp_path / "c", *limits) == 1
    printed = capsys.readouterr().out
    for side in ("r", "c", "r64"):
        (tmp_path / side).rename(tmp_path / f"{side}-gone")  # nothing but the report is read
    assert run("report", file, "--html", html, "--junit", xml) == 1
    assert capsys.readouterr().out == printed
    assert html.read_text() == page(result)
    assert xml.read_text() == junit(result)
    assert run("report", file, "--quiet") == 1
    assert not any(s.startswith("ok") for s in capsys.readouterr().out.splitlines())


def broken(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split("/")
    place: Any = record
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", "other 3", "its schema is 'other 3', not 'gradsweep gate 1'"),
        ("schema", None, "its schema is None"),
        ("rows", None, "rows is absent"),
        ("rows", 3, "rows is no list: 3"),
        ("rows/0", "x", None),
        ("rows/1/status", "fine", "status is none of ok, FAIL, SHAPE, .*: 'fine'"),
        ("rows/1/max_abs", "big", "max_abs is no number: 'big'"),
        ("rows/1/crc", [1], r"crc is no list of 2 counts: \[1\]"),
        ("rows/1/sums", [1.0], "sums is no list of 6 numbers"),
        ("rows/1/count", -3, "count is no count: -3"),
        ("rows/1/detail/strips", [["a"]], "strips is no table of numbers"),
        ("rows/1/detail/quantiles/p90", None, "p90 is absent"),
        ("rows/1/cause/name", 1, "name is no text: 1"),
        ("rows/1/shape_reference", "6", "shape_reference is no list"),
        ("answers/0/text", None, "text is absent"),
        ("inputs", "perhaps", "inputs is none of equal, unknown, different: 'perhaps'"),
        ("problems", [1], r"problems\[0\] is no table: 1"),
        ("notes", [1], "notes is no list of texts"),
    ],
)
def test_a_report_that_is_none(tmp_path: Path, path: str, value: Any, words: str | None) -> None:
    result = judged(tmp_path, {"a": X, "b": X}, {"a": noisy(1e-7), "b": 2 * X})
    record = json.loads(to_json(result))
    if words is None:
        record["rows"][0], words = value, r"rows\[0\] is no table: 'x'"
    else:
        broken(record, path, value)
    file = tmp_path / "report.json"
    file.write_text(json.dumps(record))
    with pytest.raises(GateError, match=words) as caught:
        read_report(file)
    assert caught.value.code == 3
    assert str(file) in caught.value.where
    assert str(caught.value).splitlines()[2].strip().startswith("write the report anew")


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not JSON"), ("[]", "not a JSON object"), ('{"rows": []}', "no report of the gate")],
)
@pytest.mark.parametrize("command", ["report", "rejudge"])
def test_foreign_files_exit_with_3(
    tmp_path: Path, capsys: Captured, text: str, words: str, command: str
) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    options = ["--tolerances", limits] if command == "rejudge" else []
    assert run(command, file, *options) == 3
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 3
    assert run(command, tmp_path / "none.json", *options) == 3
    assert "cannot be read" in capsys.readouterr().err


def test_a_comparison_with_a_wrong_matrix(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"t": v}) for n, v in (("r", X), ("a", X), ("b", 2 * X))]
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    record = json.loads(to_json(compare_all(sides[0], sides[1:], limits)))
    record["between"]["t"]["rms"][0] = [0.0]
    with pytest.raises(GateError, match="rms is no matrix of 3 x 3"):
        Comparison.from_record(record)
    record["labels"] = ["a"]
    with pytest.raises(GateError, match="1 labels of 2 results"):
        Comparison.from_record(record)


# --- judged by other tolerances ---


def test_rejudge_says_what_compare_says(tmp_path: Path) -> None:
    result = rich_result(tmp_path)
    file = saved(tmp_path, result)
    wide = {"max_abs": 1e3, "mean_abs": 1e3}
    tables: dict[str, Any] = {
        "same": json.loads((tmp_path / "limits.json").read_text()),
        "wide": dict.fromkeys(["in", "scaled", "dec.logits", "dec.tokens"], wide),
        "fails": {"in": {"max_abs": 0.0, "mean_abs": 0.0}, "dec.logits": wide},
        "more": {"in": wide, "half": TIGHT, "absent": TIGHT},
        "nothing": {},
        "nan": {"nan": wide},
    }
    for name, table in tables.items():
        limits = write_limits(tmp_path / f"{name}.json", table)
        again = rejudge(file, limits)
        fresh = compare(tmp_path / "r", tmp_path / "c", limits, reference64=tmp_path / "r64")
        assert isinstance(again, Result)
        assert again.exit_code == fresh.exit_code, name
        told = [(r.name, r.status, r.role, r.limit) for r in again.rows]
        assert sorted(told, key=str) == sorted(
            [(r.name, r.status, r.role, r.limit) for r in fresh.rows], key=str
        ), name
        assert (again.first and again.first.name) == (fresh.first and fresh.first.name), name
        assert len(again.answers) == len(fresh.answers), name


def test_rejudge_of_a_reused_buffer(tmp_path: Path) -> None:
    y = normal(24, 64, seed=5)
    wide = {"max_abs": 1e3, "mean_abs": 1e3}
    for n, (b, code) in enumerate(((X, 2), (np.zeros_like(X), 1))):
        folder = tmp_path / str(n)
        r, c = {"a": X, "b": y}, {"a": X if code == 2 else b, "b": b}
        passing = judged(folder, r, c, dict.fromkeys(r, wide))
        assert passing.exit_code == 0
        found = rejudge(
            saved(folder, passing), write_limits(folder / "t.json", dict.fromkeys(r, TIGHT))
        )
        assert found.exit_code == code


def test_reports_are_public() -> None:
    assert (gates.rejudge, gates.read_report) == (rejudge, read_report)


def test_rejudge_of_other_inputs_stays_invalid(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"t": X}, input_hashes={"x": n}) for n in "rc"]
    limits = write_limits(tmp_path / "limits.json", {"t": TIGHT})
    file = saved(tmp_path, compare(sides[0], sides[1], limits))
    assert rejudge(file, limits).exit_code == 2


def test_rejudge_keeps_to_the_names_that_were_chosen(tmp_path: Path) -> None:
    file = saved(tmp_path, judged(tmp_path, {"a": X, "b": X}, {"a": X, "b": 2 * X}, only="a"))
    assert rejudge(file, tmp_path / "limits.json").exit_code == 0


def test_rejudge_of_several(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"t": v}) for n, v in (("r", X), ("a", X), ("b", 2 * X))]
    wide = write_limits(tmp_path / "wide.json", {"t": {"max_abs": 1e3, "mean_abs": 1e3}})
    tight = write_limits(tmp_path / "tight.json", {"t": TIGHT})
    file = saved(tmp_path, compare_all(sides[0], sides[1:], wide))
    found = rejudge(file, tight)
    assert isinstance(found, Comparison) and found.exit_code == 1
    assert found.results[1].answers[5].text.startswith("yes: at t only b is off")
    assert rejudge(saved(tmp_path, found), wide).exit_code == 0


def test_the_rejudge_command(tmp_path: Path, capsys: Captured) -> None:
    file = saved(tmp_path, judged(tmp_path, {"t": X}, {"t": noisy(1e-3)}))
    wide = write_limits(tmp_path / "wide.json", {"t": {"max_abs": 1.0, "mean_abs": 1.0}})
    new = tmp_path / "new.json"
    assert run("rejudge", file, "--tolerances", wide, "--json", new) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("PASS: 1 of 1 contract tensor pass")
    assert f"first judged by {tmp_path / 'limits.json'}" in lines[-2]
    assert read_report(new).exit_code == 0
    assert run("rejudge", new, "--tolerances", tmp_path / "limits.json") == 1
    assert "1 Which tensor diverged first?" in capsys.readouterr().out


# --- JUnit ---


def test_junit_has_a_case_for_each_contract_tensor(tmp_path: Path) -> None:
    result = rich_result(tmp_path)
    root = ET.fromstring(junit(result))
    contract = [r for r in result.rows if r.contract]
    cases = [c for c in root.iter("testcase") if not c.get("name", "").startswith("valid")]
    assert [c.get("name") for c in cases] == [r.name for r in contract]
    assert [c.find("failure") is not None for c in cases] == [r.failed for r in contract]
    (case,) = [c for c in cases if c.get("name") == "scaled"]
    failure = case.find("failure")
    assert failure is not None and failure.get("type") == "FAIL"
    assert failure.get("message", "").startswith("FAIL: scaled: candidate = 2 x reference")
    assert "max_abs " in str(failure.text) and " > 1e-05" in str(failure.text)
    assert root.get("failures") == str(sum(r.failed for r in contract))


def test_junit_of_no_valid_comparison(tmp_path: Path) -> None:
    result = judged(tmp_path, {"a": X}, {"a": X}, {"a": TIGHT, "gone": TIGHT})
    root = ET.fromstring(junit(result))
    (error,) = root.iter("error")
    assert error.get("message") == "the contract tensor 'gone' is missing on the reference"
    assert root.get("errors") == "1"


def test_junit_of_several_and_of_odd_names(tmp_path: Path) -> None:
    sides = [write_side(tmp_path / n, {"a<&>": v}) for n, v in (("r", X), ("a", X), ("b", 2 * X))]
    limits = write_limits(tmp_path / "limits.json", {"a<&>": TIGHT})
    root = ET.fromstring(junit(compare_all(sides[0], sides[1:], limits)))
    assert [s.get("name") for s in root] == ["gate a", "gate b"]
    assert [c.get("classname") for c in root.iter("testcase")] == ["gate.limits.a", "gate.limits.b"]
    assert {c.get("name") for c in root.iter("testcase")} == {"a<&>"}


# --- the page ---


def test_the_page_shows_everything_and_needs_nothing(tmp_path: Path) -> None:
    result = rich_result(tmp_path)
    text = page(result)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "url(" not in text and "http" not in text
    assert "prefers-color-scheme:dark" in text
    for words in (
        "Distance from the float64 reference",
        "p99.9",
        "the worst entries",
        "axis 1 (64)",
    ):
        assert words in text
    failing = [r for r in result.rows if r.detail is not None]
    assert text.count('<details class="card"') == len(failing) == 4
    assert text.count('<details class="card" open>') == 1  # that of the first alone
    opened = text.split('<details class="card" open>')[1]
    assert opened.startswith(f"<summary><b>{failing[0].name}</b>")
    worst = failing[0].detail
    assert worst is not None and f"{worst.worst[0].reference:.9g}" in text
    used = [r for r in result.rows if r.used is not None]
    assert text.count(" of its limit</title>") == len(used)


def test_names_on_the_axis_are_short() -> None:
    from checks.gates.reports.charts import shortened

    assert shortened(["m.enc.0.out", "m.enc.12.out", "m.final.out"]) == ["enc.0", "enc.12", "final"]
    assert shortened(["a.b", "a.b.c"]) == ["b", "b.c"]
    assert shortened(["only.one"]) == ["only.one"]
    assert shortened([]) == []
    (long, _) = shortened(["x" * 20 + "y" * 20, "z"])
    assert long == "x" * 12 + "…" + "y" * 12


def test_the_first_failing_tensor_is_always_named() -> None:
    from checks.gates.reports.charts import Point, depth

    names = [f"a.{n}.b" for n in range(100)]
    points = [Point(n, 1.0, "t", "bad" if n >= 41 else "") for n in range(100)]
    plain = depth([("", points)], names, 1.0)
    assert ">42</text>" in plain and ">41</text>" not in plain
    text = depth([("", points)], names, 1.0, always={41})
    assert text.count(">41</text>") == 1 and ">42</text>" not in text
    assert ">0</text>" in text and ">48</text>" in text


def test_a_failing_dot_shows_whose_it_is() -> None:
    from checks.gates.reports.charts import Point, depth

    points = [Point(0, 0.1, "t", "near"), Point(1, 10.0, "t", "bad")]
    alone = depth([("", points)], ["a", "b"], 1.0)
    assert 'class="near"' in alone and 'class="bad"' in alone
    text = depth([("x", points), ("y", points)], ["a", "b"], 1.0)
    for n in (0, 1):
        assert f'class="d{n} ring of-near"' in text and f'class="d{n} ring of-bad"' in text
    places = {c.split('"')[1] for c in text.split("<circle")[1:]}
    assert len(places) == 4  # none hides another


def test_an_invalid_page_has_a_colour_of_its_own(tmp_path: Path) -> None:
    limits = write_limits(tmp_path / "t.json", {"a": TIGHT})
    r, c = (write_side(tmp_path / s, {"a": X}, input_hashes={"x": s}) for s in ("r", "c"))
    text = page(compare(r, c, limits))
    assert '<p class="badge void">INVALID</p>' in text and '<p class="problem">' in text
    assert ".badge.void{color:var(--void)}" in text


def test_the_error_stands_on_a_log_axis(tmp_path: Path) -> None:
    from checks.gates.reports.charts import Point, depth

    text = depth([("", [Point(n, 10.0**-n, "t") for n in range(3)])], ["a", "b", "c"], 1.0)
    circles = [line.split('cy="')[1].split('"')[0] for line in text.split("<circle")[1:]]
    first, second, third = map(float, circles)
    assert math.isclose(second - first, third - second, abs_tol=0.2) and second > first
    for value in (0.0, math.inf):
        assert "nan" not in depth([("", [Point(0, value, "t")])], ["a"], 1.0)
    assert "No contract tensor was compared" in depth([("", [])], [], 1.0)
