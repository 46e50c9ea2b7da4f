import json
import math
from xml.etree import ElementTree as ET

import pytest

from checks.report import Meta, files, html, read_meta, rebuild, write_all
from checks.results import ResultsError, Row, read_rows, write_rows

ROWS = [
    Row("EXP", "a", "f32", "float32", "pass", error=1e-6, tolerance=2e-5),
    Row("ADD", "a", "f32", "float32", "fail", error=math.nan, tolerance=2e-5, message="m"),
]


def without_jinja2(*_):
    raise html.MissingPackageError("jinja2", "report")


def test_all_files_are_written(tmp_path):
    pytest.importorskip("jinja2")
    paths = write_all(iter(ROWS), tmp_path / "new", Meta(seed=3, versions={"numpy": "2"}))
    assert [row.op for row in read_rows(paths.results)] == ["ADD", "EXP"]
    assert ET.parse(paths.junit).getroot().get("failures") == "1"
    assert paths.page.read_text().startswith("<!doctype html>")
    assert json.loads(paths.meta.read_text())["seed"] == 3
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "index.html",
        "junit.xml",
        "meta.json",
        "results.jsonl",
    ]


def test_a_report_is_rebuilt_the_same(tmp_path):
    pytest.importorskip("jinja2")
    meta = Meta(title="mine", seed=3, versions={"numpy": "2"}, wall=1.5)
    paths = write_all(ROWS, tmp_path, meta)
    before = {p.name: p.read_text() for p in tmp_path.iterdir()}
    paths.page.unlink()
    paths.junit.unlink()
    assert rebuild(tmp_path) == paths
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == before
    assert read_meta(tmp_path) == meta


def test_the_lines_of_workers_are_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "page", lambda rows, meta: "page")
    write_rows(tmp_path / "results-gw0.jsonl", ROWS[:1])
    write_rows(tmp_path / "results-gw1.jsonl", ROWS[1:])
    paths = rebuild(tmp_path)
    assert [row.op for row in read_rows(paths.results)] == ["ADD", "EXP"]


def test_without_jinja2_the_other_files_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(files.html, "page", without_jinja2)
    with pytest.raises(html.MissingPackageError, match="gradsweep report FOLDER"):
        write_all(ROWS, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["junit.xml", "meta.json", "results.jsonl"]


def test_an_empty_folder_has_no_report(tmp_path):
    with pytest.raises(ResultsError, match=r"no results: .*\n  at .*results\.jsonl"):
        rebuild(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", '{"wall": -1}', '{"versions": {"numpy": 2}}'])
def test_corrupt_meta_data_is_named(tmp_path, text):
    write_rows(tmp_path / "results.jsonl", ROWS)
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(ResultsError, match=r"not a run's meta data: .*") as caught:
        rebuild(tmp_path)
    assert "meta.json" in caught.value.where


def test_meta_checks_itself():
    with pytest.raises(ResultsError, match="wall is no time"):
        Meta(wall=math.nan)
    with pytest.raises(ResultsError, match="versions are not text"):
        Meta(versions={"numpy": 2})
