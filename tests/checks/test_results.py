import math

import pytest

from checks.results import (
    ResultsError,
    Row,
    exit_code,
    merge,
    read_rows,
    severity,
    summary,
    surface_order,
    write_rows,
)


def row(op="EXP", sample="a", surface="f32", status="pass", **more):
    needed = {
        "fail": {"message": "wrong"},
        "excluded": {"reason": "known"},
        "stale": {"reason": "known"},
        "skipped": {"reason": "not run"},
    }.get(status, {})
    return Row(op, sample, surface, "float32", status, **{**needed, **more})


def test_a_file_survives(tmp_path):
    rows = [row(sample=f"s{i}", error=i * 1e-7, tolerance=1.0) for i in range(5)]
    file = write_rows(tmp_path / "new" / "results.jsonl", rows)
    assert read_rows(file) == rows
    assert [p.name for p in file.parent.iterdir()] == ["results.jsonl"]
    write_rows(file, [])
    assert read_rows(file) == []


def test_line_separators_in_names_do_not_split_lines(tmp_path):
    rows = [row(sample="a\u2028b\x85c")]
    assert read_rows(write_rows(tmp_path / "r.jsonl", rows)) == rows


def test_a_corrupt_line_is_named_with_file_and_number(tmp_path):
    file = write_rows(tmp_path / "r.jsonl", [row(), row(sample="b")])
    file.write_text(file.read_text() + '\n{"op": "EXP", "sam')
    with pytest.raises(
        ResultsError, match=r"not JSON: .*\n  at .*r\.jsonl:4: .*\n  delete the line"
    ):
        read_rows(file)
    file.write_text('{"op":"EXP","sample":"a","surface":"f32","dtype":"float32","status":"fail"}')
    with pytest.raises(
        ResultsError, match=r"a failure without a message\n  at .*r\.jsonl:1: row EXP"
    ):
        read_rows(file)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"no results: .*No such file.*\n.*\n  gradsweep sweep"):
        read_rows(tmp_path / "absent.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultsError, match=r"no results: .*utf-8"):
        read_rows(tmp_path / "binary")


def test_merge_keeps_one_row_an_item_and_the_worse_one():
    first = [row(), row("ADD", status="fail"), row("SIN", status="skipped")]
    second = [row("ADD"), row("SIN"), row("COS", status="excluded"), row("COS", status="stale")]
    merged = merge(first, second)
    assert [(r.op, r.status) for r in merged] == [
        ("ADD", "fail"),
        ("COS", "stale"),
        ("EXP", "pass"),
        ("SIN", "pass"),
    ]
    assert merge(second, first) == merged
    assert merge() == []


def test_of_two_alike_the_later_stays():
    assert merge([row(seconds=1.0)], [row(seconds=2.0)])[0].seconds == 2.0


def test_surfaces_have_an_order():
    names = ["torch", "device_f32@b", "f32", "device_f32", "f32", "shapes", "device_f32@a"]
    assert surface_order(names) == [
        "shapes",
        "f32",
        "device_f32",
        "device_f32@a",
        "device_f32@b",
        "torch",
    ]


def test_severity_puts_nan_last():
    shares = [math.nan, 0.5, None, math.inf, 0.0]
    assert [severity(s) for s in shares] == [math.inf, 0.5, -1.0, math.inf, 0.0]


def test_the_summary_counts():
    rows = [
        row(error=1e-6, tolerance=2e-5, seconds=1.0),
        row(sample="b", error=1e-5, tolerance=2e-5, seconds=0.5),
        row("ADD", status="fail", error=math.nan, tolerance=2e-5),
        row("ADD", surface="torch", status="skipped", missing="torch"),
        row("SIN", surface="torch", status="skipped"),
        row("SIN", status="excluded", error=5.0, tolerance=1.0),
        row("SIN", surface="vmap", status="stale", error=0.0, tolerance=0.0),
    ]
    found = summary(rows)
    assert (found.ops, found.samples, found.checks) == (3, 4, 5)
    assert (found.passed, found.failures, found.excluded) == (2, 1, 1)
    assert (found.stale, found.skipped, found.seconds) == (1, 2, 1.5)
    assert dict(found.missing) == {"torch": 1}
    assert list(found.surfaces) == ["f32", "vmap", "torch"]
    assert math.isnan(found.headroom) and found.worst.op == "ADD"
    f32, vmap, torch = found.surfaces.values()
    assert (f32.checks, f32.failures, f32.excluded) == (4, 1, 1)
    assert (vmap.headroom, torch.headroom, torch.checks) == (0.0, None, 0)


def test_a_known_failure_is_not_the_worst():
    found = summary([row(status="excluded", error=5.0, tolerance=1.0), row("SIN")])
    assert found.worst is None
    found = summary([row(error=1.0, tolerance=4.0), row("ADD", error=1.0, tolerance=8.0)])
    assert found.headroom == 0.25


def test_nothing_is_summed_up():
    found = summary([])
    assert (found.ops, found.checks, found.seconds, found.worst) == (0, 0, 0, None)
    assert dict(found.surfaces) == {}


MISSING = dict(status="skipped", missing="jax")


@pytest.mark.parametrize(
    "rows, allowed, code",
    [
        ([row()], (), 0),
        ([row(), row("ADD", status="fail")], (), 1),
        ([row(), row("ADD", status="stale")], (), 1),
        ([row(), row("ADD", status="excluded")], (), 0),
        ([row(), row("ADD", status="skipped")], (), 0),
        ([row(), row("ADD", **MISSING)], (), 3),
        ([row(), row("ADD", **MISSING)], ("jax",), 0),
        ([row(), row("ADD", **MISSING)], ("torch",), 3),
        ([row(status="fail"), row("ADD", **MISSING)], (), 1),
        # A selection that checks nothing must not look like success.
        ([], (), 1),
        ([row(**MISSING)], ("jax",), 1),
    ],
)
def test_exit_codes(rows, allowed, code):
    assert exit_code(summary(rows), allowed) == code
