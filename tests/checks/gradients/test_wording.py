"""The text of a report: its lines, their alignment, its limit of 25 lines."""

import dataclasses
import io
import math
import re
import shlex

import numpy as np
import pytest

from checks.gradients.check import check_gradients
from checks.gradients.report import Cause, Check, GradientReport, Worst
from checks.gradients.wording import LINES, WIDTH, aligned, rich_text, rows, show, text

CHECKS = (
    Check("reverse", "WRONG", 0.436, 1e-9, 1e-9, "derivative 2, difference 1"),
    Check("forward", "PASS", 1e-13, 1e-9, 1e-9),
    Check("second: reverse over reverse", "PASS", 1e-13, 1e-9, 1e-9),
    Check("second: dot", "PASS", 1e-13, 1e-9, 1e-9),
    Check("vmap", "NOT_DEFINED", detail="no batching rule"),
)
WRONG = GradientReport(
    name="loss",
    framework="numpy",
    verdict="WRONG",
    ok=False,
    checks=CHECKS,
    worst=Worst("params['w']", (2, 1), -0.7921485955, 0.7921485954, 3e-11, "result[4]"),
    cause=Cause("sign", "the gradient of w has the wrong sign", "at model.py:12 in f: `y = g(x)`"),
    pattern="all 12 entries of w",
    evaluations=30,
    derivative_calls=2,
    seconds=0.0312,
    reproduce="checks.check_gradients(loss, x, seed=3)",
    diagnosis_calls=48,
)


def test_every_line_of_a_failure() -> None:
    assert text(WRONG).splitlines() == [
        "WRONG loss[reverse] (numpy)",
        "entry       params['w'][2, 1]   d result[4] / d params['w'][2, 1]",
        "derivative  -0.7921485955",
        "difference   0.7921485954 +- 3.0e-11",
        "ratio       -1",
        "wrong       all 12 entries of w",
        "cause       the gradient of w has the wrong sign",
        "at          model.py:12 in f",
        "                y = g(x)",
        "checks      reverse  WRONG  relative error 0.436, allowed 1.0e-09",
        "passed      forward, second (2)",
        "not defined vmap (no batching rule)",
        "would pass  tolerance=0.53, relative to the largest entry",
        "again       checks.check_gradients(loss, x, seed=3)",
        "calls       30 calls of the function, 48 more to find the cause, 2 of its derivatives, "
        "31 ms",
    ]


def test_a_report_of_many_checks_and_notes_keeps_its_limit() -> None:
    many = tuple(dataclasses.replace(CHECKS[0], name=f"reverse {i}") for i in range(60))
    long = "a very long sentence " * 40
    report = dataclasses.replace(
        WRONG,
        checks=many,
        notes=(long,) * 20,
        pattern=long,
        cause=Cause("factor", long, long),
        reproduce=long,
    )
    lines = text(report).splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH
    assert lines[-1].startswith("calls") and any("more:" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_every_line_fits_the_terminal_and_nothing_is_lost(width: int) -> None:
    long = "a sentence of the cause that does not fit a narrow terminal and must be broken " * 2
    kink = dataclasses.replace(WRONG.worst, left=0.0, right=1.0)  # type: ignore[type-var]
    for report in (
        dataclasses.replace(WRONG, cause=Cause("factor", long, WRONG.cause.where)),  # type: ignore[union-attr]
        dataclasses.replace(WRONG, verdict="KINK", worst=kink, cause=None),
        dataclasses.replace(WRONG, verdict="PASS", ok=True, detectable=1e-9, notes=(long,)),
    ):
        shown = text(report, width)
        assert max(map(len, shown.splitlines())) <= width
        wide = set(re.findall(r"[^\s]+", text(report))) - {"..."}
        assert not {w for w in wide if len(w) < width - 12} - set(re.findall(r"[^\s]+", shown))
        assert rich_text(report, width).plain.splitlines()[0].startswith(report.verdict)


@pytest.mark.parametrize("width", [60, 100])
def test_a_command_to_repeat_can_be_pasted_into_a_shell(width: int) -> None:
    command = "gradsweep check model.py::loss --args 'normal(3, 4)' " + "w=weights.npz:w " * 6
    lines = text(dataclasses.replace(WRONG, reproduce=command.strip()), width).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("again"))
    own = [line[12:] for line in lines[first:-1] if line.startswith(("again", " "))]
    own = [line for line in own if not line.startswith("more")]
    assert all(line.endswith(" \\") for line in own[:-1]) and not own[-1].endswith("\\")
    assert shlex.split("\n".join(own).replace("\\\n", "")) == shlex.split(command)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "most"), [(60, 60), (80, 80), (200, 120)])
def test_a_report_is_as_wide_as_its_terminal_and_a_pipe_as_ever(
    monkeypatch: pytest.MonkeyPatch, columns: int, most: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    long = dataclasses.replace(WRONG, pattern="many words of a pattern " * 12)
    shown, piped = Terminal(), io.StringIO()
    show(long, shown)
    show(long, piped)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()
    assert most - 12 < max(map(len, lines)) <= most
    assert piped.getvalue().splitlines() == text(long).splitlines()


def test_what_is_not_defined_is_said_once_and_in_few_words() -> None:
    said = "NotImplementedError: You must implement the jvp function for custom autograd.Function"
    checks = (
        CHECKS[0],
        Check("forward", "NOT_DEFINED", detail=said),
        Check("second: forward over reverse", "NOT_DEFINED", detail=said),
        Check("vmap", "NOT_DEFINED", detail="RuntimeError: it looks at a value " + "again " * 30),
    )
    lines = text(dataclasses.replace(WRONG, checks=checks)).splitlines()
    (line,) = [n for n, line in enumerate(lines) if line.startswith("not defined")]
    shown = " ".join(" ".join(lines[line : line + 2]).split())
    assert "forward, second (the autograd.Function has no jvp); vmap (it looks at a value" in shown
    assert "Error" not in shown


def test_a_combination_of_results_says_so() -> None:
    assert WRONG.worst is not None
    worst = dataclasses.replace(WRONG.worst, output="a random combination of 5,000 results")
    line = text(dataclasses.replace(WRONG, worst=worst)).splitlines()[1]
    assert line.endswith("d (a random combination of 5,000 results) / d params['w'][2, 1]")


def test_a_scalar_function_is_its_own_result() -> None:
    worst = Worst("x", (), 2.0, 1.0, 1e-12)
    line = text(dataclasses.replace(WRONG, worst=worst)).splitlines()[1]
    assert line == "entry       x   d loss / d x"


def test_the_way_out_of_what_does_not_trace_is_whole() -> None:
    def stacked(x: np.ndarray) -> np.ndarray:
        return np.sum(
            np.array([x[0] * x[1], x[2] * x[0] + x[1] * x[2] - np.sin(x[0]) * np.cos(x[1])])
        )

    shown = " ".join(text(check_gradients(stacked, np.array([0.3, 0.4, 0.5]))).split())
    assert (
        "NOT_DEFINED" in shown
        and "`like=` for constants, autodiff.ops.index_update for writes" in shown
    )


def test_no_cause_is_said() -> None:
    shown = text(dataclasses.replace(WRONG, cause=None))
    assert "cause       none of the known ones: each was undone, and none fits" in shown


@pytest.mark.parametrize(
    ("values", "error", "shown"),
    [
        ([1.0, 2.0], 1e-4, ["1.0000", "2.0000"]),
        ([0.0, 0.123456789], 1e-5, ["0", "0.12346"]),
        ([-1.5, 10.25], 1e-3, ["-1.500", "10.250"]),
        ([1e9, 2e9], 1.0, ["1.000000000e+09", "2.000000000e+09"]),
        ([1e-7, -2e-7], 1e-15, ["1.00000000e-07", "-2.00000000e-07"]),
        ([0.5, math.nan], 1e-3, ["0.500", "nan"]),
        ([123456.0, 1.0], 0.0, ["123456.0000", "1.0000"]),
        ([-1e-17, 1.0], 1e-9, ["0.000000000", "1.000000000"]),
    ],
)
def test_digits_end_where_the_error_begins(
    values: list[float], error: float, shown: list[str]
) -> None:
    found = aligned(values, error)
    assert [s.strip() for s in found] == shown
    points = {s.index(".") for s in found if "." in s}
    assert len(points) <= 1


def test_complex_numbers() -> None:
    assert aligned([1 - 2j, 3 + 0.5j], 1e-9) == ["1 - 2i", "3 + 0.5i"]


def test_pass_is_short() -> None:
    report = check_gradients(np.exp, np.array([0.3, 1.2]), order=2)
    lines = text(report).splitlines()
    assert 2 <= len(lines) <= 5
    assert lines[0] == "PASS exp (numpy)"
    assert lines[1].startswith("checks      reverse, forward, dot")
    assert re.match(r"catches     an error of \S+ of the largest entry", lines[2])
    assert re.match(r"calls       \d+ calls of the function, \d+ of its derivatives, ", lines[-1])


def test_kink_prints_both_slopes_and_the_convention() -> None:
    report = check_gradients(lambda x: np.maximum(x, 0.0), np.array([1.0, 0.0]), name="relu")
    shown = text(report)
    assert report.verdict == "KINK"
    assert "entry       x[1]   d result[1] / d x[1]" in shown
    assert re.search(r"left slope +0\n", shown) and re.search(r"right slope +1\.0+\n", shown)
    assert "convention  the mean of both slopes was taken" in shown
    assert "allow=('kinks',)" in shown


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("INCONCLUSIVE", "run the function in float64"),
        ("VACUOUS", "whose gradient is not zero"),
        ("DOMAIN", "inside the domain"),
        ("NONDETERMINISTIC", "fix the random numbers"),
    ],
)
def test_advice(verdict: str, words: str) -> None:
    check = Check("reverse", verdict, detail="the numbers")
    report = GradientReport("f", "jax", verdict, False, (check,))
    lines = text(report).splitlines()
    assert lines[0] == f"{verdict} f[reverse] (jax)" and lines[1] == "found       the numbers"
    assert any(line.startswith("advice") and words in line for line in lines)
    allowed = text(dataclasses.replace(report, ok=True))
    assert allowed.startswith(f"{verdict} f[reverse] (jax), allowed")


def test_inconclusive_says_how_noisy() -> None:
    check = Check("reverse", "INCONCLUSIVE", 0.01, 0.234, 0.234, "derivative 1, difference 2")
    shown = text(GradientReport("f", "numpy", "INCONCLUSIVE", False, (check,)))
    assert "noise       an error of 0.24 of the largest entry would pass unseen" in shown


def test_colour_says_the_same() -> None:
    assert rich_text(WRONG).plain == text(WRONG)
    styles = {style for _, _, style in rows(WRONG)}
    assert "bold red" in styles
    stream = io.StringIO()
    show(WRONG, stream)
    assert stream.getvalue().rstrip("\n") == text(WRONG)


def test_a_report_is_an_error_and_json() -> None:
    with pytest.raises(AssertionError, match="wrong sign"):
        WRONG.raise_if_failed()
    assert '"diagnosis_calls": 48' in WRONG.to_json()
