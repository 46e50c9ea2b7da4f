import math
from xml.etree import ElementTree as ET

from checks.report import junit
from checks.results import Row


def row(op="EXP", sample="a", surface="f32", status="pass", **more):
    return Row(op, sample, surface, "float32", status, **more)


ROWS = [
    row(error=1e-6, tolerance=2e-5, ulp=3.0, componentwise=1e-5, seconds=0.5, evaluations=4),
    row(sample="b", error=1e-5, tolerance=2e-5, evaluations=6, seconds=0.25),
    row(surface="vmap", status="fail", message="bad\n  at b", repro="again", error=math.nan),
    row(surface="vmap", sample="b", error=0.0),
    row("ADD", surface="vmap", status="stale", reason="fixed upstream"),
    row("ADD", status="excluded", reason="flushes", error=1.0, tolerance=0.5),
    row("SIN", status="skipped", reason="needs jax", missing="jax"),
    row("SIN", sample="b", status="excluded", reason="wrong there", error=1.0, tolerance=0.5),
    row("COS", status="excluded", reason="wrong there", error=1.0, tolerance=0.5),
    row("COS", sample="b", error=0.0),
]


def case(root, op, surface):
    (found,) = root.findall(f".//testcase[@name='{op}'][@classname='gradsweep.{surface}']")
    return found


def properties(element):
    return {p.get("name"): p.get("value") for p in element.find("properties")}


def test_a_case_for_each_op_and_surface():
    root = ET.fromstring(junit.text(ROWS, "sweep"))
    assert (root.tag, root.get("name")) == ("testsuites", "sweep")
    assert [root.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["6", "2", "0", "2"]
    assert [(s.get("name"), s.get("tests")) for s in root] == [("f32", "4"), ("vmap", "2")]
    assert root.get("time") == "0.750"


def test_numbers_are_properties_of_the_worst_row():
    found = properties(case(ET.fromstring(junit.text(ROWS)), "EXP", "f32"))
    assert found == {
        "samples": "2",
        "checks": "2",
        "excluded": "0",
        "evaluations": "10",
        "dtype": "float32",
        "unit": "relative",
        "worst_sample": "b",
        "error": "1e-05",
        "tolerance": "2e-05",
        "headroom": "0.5",
    }


def test_failures_carry_every_message():
    root = ET.fromstring(junit.text(ROWS))
    failure = case(root, "EXP", "vmap").find("failure")
    assert (failure.get("type"), failure.get("message")) == ("fail", "1 sample of 2: bad")
    assert failure.text == "[a float32] fail\nbad\n  at b\nagain"
    stale = case(root, "ADD", "vmap").find("failure")
    assert "the exclusion no longer holds (fixed upstream)" in stale.text


def test_exclusions_and_skips_are_skipped_unless_something_passed():
    root = ET.fromstring(junit.text(ROWS))
    assert case(root, "ADD", "f32").find("skipped").get("message") == "known failure: flushes"
    assert case(root, "SIN", "f32").find("skipped").get("message") == "known failure: wrong there"
    assert case(root, "COS", "f32").find("skipped") is None
    assert properties(case(root, "COS", "f32"))["excluded"] == "1"


def test_whatever_a_name_holds_is_valid_xml():
    bad = 'a<b>&"\x00\x1b[31m\ud800\uffff]]>'
    root = ET.fromstring(
        junit.text([row(bad, bad, status="fail", message=bad, reason=bad, repro=bad)], bad)
    )
    (found,) = root.findall(".//testcase")
    assert found.get("name").startswith('a<b>&"\ufffd\ufffd[31m')


def test_no_rows_are_an_empty_document():
    root = ET.fromstring(junit.text([]))
    assert (root.get("tests"), len(root)) == ("0", 0)
