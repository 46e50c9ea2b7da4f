import io
import math
import re

import pytest

from checks.report.terminal import bar_cells, print_report, progress
from checks.results import Row


class Terminal(io.StringIO):
    def isatty(self):
        return True


def row(op="EXP", sample="a", surface="f32", status="pass", **more):
    needed = {
        "fail": {"message": "m1\nm2\nm3"},
        "stale": {"reason": "r"},
        "skipped": {"reason": "r"},
    }
    return Row(op, sample, surface, "float32", status, **{**needed.get(status, {}), **more})


def printed(rows, stream=None, **options):
    stream = io.StringIO() if stream is None else stream
    print_report(rows, stream=stream, **options)
    return stream.getvalue()


def test_plain_text_has_no_escapes_and_the_path_last():
    rows = [row(error=1e-5, tolerance=2e-5, seconds=1.25), row("ADD", "b", "vmap", error=0.0)]
    lines = printed(rows, wall=3.0, path="build/op-sweep/index.html").splitlines()
    text = "\n".join(lines)
    assert "\x1b" not in text and text.isascii()
    assert lines[0].split() == [
        "surface",
        "checks",
        "passed",
        "failed",
        "of",
        "tolerance",
        "worst",
        "time",
    ]
    assert lines[1].split() == ["f32", "1", "1", "-", "50%", "EXP", "a", "1.25", "s"]
    assert lines[2].split() == ["vmap", "1", "1", "-", "=", "0.00", "s"]
    assert lines[3].split() == ["all", "2", "2", "-", "1.25", "s"]
    assert lines[-2] == (
        "PASSED: 2 ops, 2 samples, 2 checks in 3.00 s: 0 failures, 0 exclusions held, 0 stale,"
        " 0 skipped"
    )
    assert lines[-1] == "report: build/op-sweep/index.html"


def test_failures_are_listed_worst_first_and_cut():
    rows = [
        row("ADD", status="fail", error=1.0, tolerance=0.5),
        row("SIN", status="fail", error=math.nan, tolerance=0.5),
        row("COS", status="fail", error=9.0, tolerance=0.5),
        row("TAN", status="stale", error=0.0, tolerance=0.5),
    ]
    text = printed(rows, limit=2)
    assert text.index("FAIL  SIN") < text.index("FAIL  COS")
    assert "FAIL  ADD" not in text
    assert "and 2 more\n" in text
    assert "  m1\n  m2\n  m3\n" in text
    assert "FAILED: " in text and "3 failures" in text and "1 stale" in text
    assert "more" not in printed(rows, limit=4)


def test_samples_that_fail_with_the_same_words_are_one_failure():
    rows = [row(sample=s, status="fail") for s in "abc"]
    rows += [row(sample="d", status="fail", message="m4"), row("SIN", "e", status="fail")]
    text = printed(rows)
    assert text.count("m1\n") == 2  # EXP and SIN are different ops
    assert "FAIL  EXP  f32  a" in text and "FAIL  EXP  f32  d" in text
    assert "  the same at 2 more samples: b, c\n" in text
    assert "and 1 more\n" in printed(rows, limit=2)  # what is left out, not what was merged


def test_long_lines_and_markup_are_left_alone():
    message = "[bold]not markup[/bold] " + "x" * 300
    assert message in printed([row(status="fail", message=message)])
    assert "[red]" in printed([row(op="[red]", error=1e-5, tolerance=1.0)], Terminal())


def test_missing_packages_and_notes_are_named():
    rows = [row(), row("ADD", surface="torch", status="skipped", missing="torch")]
    text = printed(rows, notes=["an override is not needed"])
    assert "not run for want of torch: 1 check\n" in text
    assert "note: an override is not needed\n" in text


def test_nothing_checked_does_not_look_like_success():
    assert printed([]).startswith("NOTHING CHECKED: 0 ops, 0 samples, 0 checks")
    assert "NOTHING CHECKED" in printed([row(status="skipped")])


@pytest.mark.parametrize("width", [60, 70, 80])
def test_no_name_is_cut_on_a_narrow_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    names = {"LOG_SOFTMAX_GRAD": "vmap", "SQRT": "device_self"}
    rows = [row(op, "shape_5", s, error=0.1, tolerance=1.0) for op, s in names.items()]
    rows += [row(sample=s, status=s, reason="r") for s in ("excluded", "skipped")]
    text = plain(printed(rows, Terminal(), notes=["a word and more words, " * 9 + "and no end"]))
    assert all(op in text for op in names) and text.count("shape_5") == 2
    assert "\u2026" not in text and max(map(len, text.splitlines())) <= width
    assert "1 exclusion held" in " ".join(text.split())  # whose column made room


def test_failures_are_red_where_there_are_16_colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLORTERM", raising=False)
    text = printed([row(status="fail", error=3.0, tolerance=1.0)], Terminal())
    assert "\x1b[1;31mFAIL  EXP" in text and "\x1b[1;31m 1 failure" in text


def test_no_color_leaves_no_colour(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed([row(status="fail", error=3.0, tolerance=1.0), row()], Terminal())
    codes = set(re.findall(r"\x1b\[([0-9;]*)m", text))
    assert codes <= {"0", "1"}  # bold is no colour


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_table_fits_the_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        row(f"A_LONG_NAME_OF_AN_OP_{i}", "a sample", s, error=0.5, tolerance=1.0, seconds=100.0)
        for i in range(40)
        for s in ("device_f32", "device_self", "torch")
    ]
    text = printed(rows, Terminal())
    table = plain(text).split("\n\n")[0].splitlines()
    assert max(map(len, table)) <= width
    assert "device_f32" in table[1]  # a name too long for its column goes on below
    assert all("min" in line for line in table[1:] if not line.startswith(" "))


def test_a_terminal_gets_colours_and_bars(monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = printed([row(error=0.5, tolerance=1.0)], Terminal())
    assert "\x1b[" in text and "\u2588" * 7 in text


@pytest.mark.parametrize(
    "share, cells",
    [(None, 0), (0.0, 0), (1e-30, 1), (1e-4, 1), (1e-2, 4), (0.999, 7), (1.0, 8), (math.nan, 8)],
)
def test_bars(share, cells):
    assert bar_cells(share) == cells


def test_progress_without_a_terminal_is_a_line_a_tenth():
    stream = io.StringIO()
    with progress(25, stream) as advance:
        for i in range(25):
            advance([row(status="fail")] if i == 3 else [row()])
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "sweep: 3/25 (12%), no failures"
    assert lines[-1] == "sweep: 25/25 (100%), 1 failure"
    assert "\x1b" not in stream.getvalue()


def test_progress_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with progress(2, stream, label="check") as advance:
        advance([row("[red]", status="fail")])
        advance()
    assert "2/2" in stream.getvalue() and "1 failure" in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_of_nothing(stream):
    with progress(0, stream()):
        pass
