"""Reports on a terminal of few columns: words are kept whole, names are complete."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from checks.gates.blocks.block import Block
from checks.gates.blocks.isolation import isolate
from checks.gates.comparison.record import Result
from checks.gates.comparison.several import compare_all
from checks.gates.reports import blocks, terminal
from checks.gates.reports.rows import line, say
from tests.checks.gates.sides import TIGHT, judged, normal, write_limits, write_side

NAMES = ["enc.block.0.attn.out", "enc.block.1.feed_forward.norm", "dec.logits_raw", "dec.probs"]
WIDTHS = (60, 80, 120)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    r: dict[str, Any] = {n: normal(16, 24, seed=s) for s, n in enumerate(NAMES)}
    r["dec.probs"] = r["dec.probs"], {"role": "informational"}
    c = dict(r, **{NAMES[1]: 2 * r[NAMES[1]], "dec.logits_raw": r["dec.logits_raw"][:, ::-1]})
    del c["dec.probs"]
    return judged(tmp_path_factory.mktemp("w"), r, c | {"dec.more": np.ones(3, np.float32)})


def printed(width: int, report: Any, *, tty: bool = True) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=tty, color_system=None, highlight=False)
    terminal.show_rows(report, console)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_and_no_name_is_cut(result: Result, width: int) -> None:
    lines = printed(width, result)
    paste = [x for x in lines if x.startswith("next: ")]
    assert max(len(x.rstrip()) for x in lines if x not in paste) <= width
    words = " ".join(" ".join(lines).split())
    for row in result.rows:
        assert any(x.split()[:2] == [row.status, row.name] for x in lines), row.name
    for answer in result.answers:
        assert " ".join(answer.text.split()) in words
    assert terminal.verdict(result) in words


def test_there_is_room_or_there_are_shares(result: Result) -> None:
    row = next(r for r in result.rows if r.name == NAMES[1])
    full, short = line(row, 29).plain, line(row, 29, 80).plain
    assert line(row, 29, 140).plain == full and " > 1e-05" in full and "gate" in full
    assert "x mean " in short and "> " not in short and short.endswith(" scale")
    assert len(short) <= 80 < len(full)
    probs = next(r for r in result.rows if r.name == "dec.probs")
    assert "info" in line(probs, 29, 60).plain  # not the role that most have


def test_elsewhere_a_tensor_has_one_line(result: Result) -> None:
    lines = printed(60, result, tty=False)
    rows = [x for x in lines if NAMES[1] in x and x.startswith("FAIL  ")]
    assert len(rows) == 1 and "mean " in rows[0] and rows[0].endswith("scale")
    assert terminal.verdict(result) in lines


def test_what_follows_is_further_in() -> None:
    out = io.StringIO()
    console = Console(file=out, width=20, force_terminal=True, color_system=None)
    text = line_of("one two three four five six seven")
    say(console, text, indent=2, hang=4)
    assert out.getvalue().splitlines() == ["  one two three four", "      five six seven"]


def line_of(words: str) -> Any:
    from rich.text import Text

    return Text(words)


def test_several_candidates_keep_names(tmp_path: Path) -> None:
    r = {n: normal(16, 24, seed=s) for s, n in enumerate(NAMES[:3])}
    write_side(tmp_path / "reference", r)
    write_side(tmp_path / "cpu", r)
    write_side(tmp_path / "gpu", {k: 2 * v for k, v in r.items()})
    limits = write_limits(tmp_path / "t.json", dict.fromkeys(r, TIGHT))
    sides = [tmp_path / "cpu", tmp_path / "gpu"]
    lines = printed(60, compare_all(tmp_path / "reference", sides, limits))
    assert max(len(x.rstrip()) for x in lines if not x.startswith("next: ")) <= 60
    table = lines[next(n for n, x in enumerate(lines) if x.startswith("tensor")) :]
    assert all(any(x.startswith(n) for x in table) for n in NAMES[:3])


def test_an_isolation_too(tmp_path: Path) -> None:
    x = normal(16, 24)
    write_side(tmp_path / "reference", {"enc.in": x, NAMES[1]: np.tanh(x)})
    wrong = [Block(NAMES[1], ("enc.in",), lambda v: 1 + np.tanh(v))]
    found = isolate(tmp_path / "reference", wrong)
    out = io.StringIO()
    console = Console(file=out, width=60, force_terminal=True, color_system=None)
    say(console, blocks.line(found.rows[0]), hang=blocks.HANG)
    blocks.show(found, console)
    lines = out.getvalue().splitlines()
    assert max(len(x.rstrip()) for x in lines) <= 60
    assert lines[0].split()[:2] == ["own", NAMES[1]]
