import builtins
import json
import math
import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("jinja2")

from dataclasses import asdict

from checks.report import html
from checks.report.files import Meta
from checks.report.html import MissingPackageError, cell, compact, level, matrix
from checks.results import Row

EVIL = "<script>alert(1)</script>"
META = asdict(Meta(title="a sweep", seed=17, versions={"numpy": "2.4.6"}, wall=3.0))


def row(op="EXP", sample="a", surface="f32", status="pass", **more):
    needed = {"fail": {"message": "m"}, "pass": {}}.get(status, {"reason": "r"})
    return Row(op, sample, surface, "float32", status, **{**needed, **more})


class Page(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.text, self._inside = [], [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside is None:
            self.text += data


def data(page):
    return json.loads(page.scripts[0])


def test_the_page_is_one_file_that_loads_nothing():
    text = html.page([row(error=1e-6, tolerance=2e-5)], META)
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        if tag == "link":
            assert attributes["href"] == "data:,"
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|innerHTML|import\(", text)
    assert "default-src 'none'" in text
    assert len(page.scripts) == 2


def test_every_text_of_the_users_is_escaped():
    rows = [
        row(EVIL, EVIL, status="fail", message=EVIL, repro=EVIL, reason=EVIL, link=EVIL, got=EVIL),
        row(EVIL, "b", status="excluded", reason=EVIL, link=f"javascript:{EVIL}"),
        row(EVIL, "c", status="stale", reason=EVIL, link="https://example.org/?a=1&b='\""),
        row(EVIL, "d", status="skipped", reason=EVIL, missing=EVIL),
        row("</script>", "]]>", error=1e-6, tolerance=1.0, repro="<!--<script>", seconds=1.0),
    ]
    meta = {**META, "title": EVIL, "command": EVIL, "machine": EVIL, "versions": {EVIL: EVIL}}
    text = html.page(rows, meta)
    page = Page(text)
    assert len(page.scripts) == 2
    assert "alert(1)" not in page.scripts[1]
    assert EVIL not in text
    assert "<!--" not in text
    assert data(page)["op"] == [EVIL, "</script>"]
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    assert not any(link.startswith("javascript:") for link in links)
    assert "https://example.org/?a=1&b='\"" in links


def test_the_matrix_shows_each_cell():
    rows = [
        row(error=1e-6, tolerance=2e-5),
        row(sample="b", error=1e-5, tolerance=2e-5),
        row(surface="vmap", error=0.0, tolerance=0.0, unit="exact"),
        row("ADD", surface="vmap", status="fail", error=3.0, tolerance=0.25),
    ]
    found = dict(matrix(rows, ["f32", "vmap"]))
    assert found["EXP"][0].text == "50%" and found["EXP"][0].style == "l5"
    assert found["EXP"][1].text == "="
    assert found["ADD"][0] is None
    assert found["ADD"][1].text == "\u2715 12x" and found["ADD"][1].style == "f"
    page = Page(html.page(rows, META))
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    assert "#ADD/vmap" in links and "#EXP/f32" in links


@pytest.mark.parametrize(
    "statuses, style, text, marked",
    [
        (["pass"], "l0", "ok", False),
        (["pass", "skipped"], "l0", "ok", False),
        (["pass", "excluded"], "l0", "ok", True),
        (["excluded", "excluded"], "e", "\u25c7 2", False),
        (["excluded", "stale", "pass"], "s", "! stale", False),
        (["stale", "fail", "pass"], "f", "\u2715", False),
        (["skipped"], "k", "\u2013", False),
    ],
)
def test_a_cell_shows_what_asks_for_attention(statuses, style, text, marked):
    found = cell([row(sample=str(i), status=status) for i, status in enumerate(statuses)])
    assert (found.style, found.text, found.marked) == (style, text, marked)


def test_a_failure_is_never_painted_as_a_pass():
    assert cell([row(status="fail", error=0.0, tolerance=1.0)]).style == "f"
    assert cell([row(status="fail", error=math.nan, tolerance=1.0)]).text == "\u2715 NaN"


@pytest.mark.parametrize(
    "share, expected",
    [
        (None, 0),
        (0.0, 0),
        (1e-9, 1),
        (1e-4, 1),
        (1.1e-4, 2),
        (0.05, 4),
        (0.5, 5),
        (0.51, 6),
        (1.0, 6),
    ],
)
def test_levels_are_logarithmic(share, expected):
    assert level(share) == expected


def test_the_embedded_rows_say_everything():
    rows = [
        row(
            error=1.23456e-6,
            tolerance=2e-5,
            ulp=math.inf,
            seconds=0.0125,
            evaluations=3,
            repro="gradsweep sweep --op EXP --sample a --surface f32",
        ),
        row("ADD", "b", error=None, repro="gradsweep sweep --op ADD --sample b --surface f32"),
        row(status="fail", sample="c", error=math.nan, worst_index=(1, 2), got=1 + 2j, seed=4),
    ]
    found = compact(rows)
    json.dumps(found, allow_nan=False)
    first, second, third = found["rows"]
    assert first[:9] == [0, 0, 0, 0, 0, 1.23e-6, 2e-5, 0, 0]
    assert first[9:13] == ["inf", None, 0.0125, 3]
    assert second[5] is None
    # The two lines differ in the rows' own names alone, so they are one text.
    assert first[13] == second[13]
    assert third[5] == "NaN"
    assert third[14] == {"message": "m", "worst_index": "[1, 2]", "got": "(1+2j)", "seed": "4"}


@pytest.mark.parametrize(
    "names", [("A", "AA", "f32"), ("f32", "float32", "f32"), ("e", "ee", "f32")]
)
def test_a_repro_line_is_restored(names):
    line = f"gradsweep sweep --op {names[0]} --sample {names[1]} --surface {names[2]} # float32 ee"
    found = compact([row(*names, repro=line)])
    text = found["repro"][0]
    restored = re.sub("[\1-\4]", lambda m: [*names, "float32"][ord(m[0]) - 1], text)
    assert restored == line


def test_sections():
    rows = [
        row(error=1e-6, tolerance=2e-5, seconds=2.5),
        row(sample="b", status="excluded", reason="flushes", link="https://example.org/1"),
        row(sample="c", status="excluded", reason="flushes", link="https://example.org/1"),
        row("ADD", status="stale", reason="was NaN"),
        row("SIN", status="fail", message="three\nlines\nhere", repro="run me"),
    ]
    text = Page(html.page(rows, META)).text
    for expected in (
        "failed",
        "1 exclusion no longer holds",
        "flushes",
        "b, c",
        "was NaN",
        "2.50 s",
    ):
        assert expected in text
    assert "three\nlines\nhere" in text and "run me" in text
    assert "2.4.6" in text and "17" in text


def test_no_rows_make_a_page():
    page = Page(html.page([], META))
    assert "nothing checked" in page.text and "No results." in page.text
    assert data(page)["rows"] == []


def test_all_passed():
    text = Page(html.page([row(error=0.0, tolerance=0.0)], META)).text
    assert "passed" in text and "Failures" not in text


def test_without_jinja2_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name.partition(".")[0] == "jinja2":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingPackageError, match=r"pip install 'gradsweep\[report\]'") as caught:
        html.page([], META)
    assert caught.value.package == "jinja2"


def test_a_large_sweep_stays_small():
    rows = [
        row(f"OP_{i}", f"s{k}", surface, error=1e-6 * k, tolerance=2e-5, repro=f"g OP_{i} s{k}")
        for i in range(50)
        for surface in ("f32", "reverse", "vmap", "torch")
        for k in range(10)
    ]
    assert len(html.page(rows, META)) < 100 * len(rows) + 60_000
