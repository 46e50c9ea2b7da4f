"""Damaged files, hostile names, numbers at the edges: a named refusal, or a true figure."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from checks import gates
from checks.cli import main
from checks.gates.comparison.questions import would_have_passed
from checks.gates.comparison.several import compare_all
from checks.gates.comparison.verdict import compare
from checks.gates.errors import GateError
from checks.gates.formats.manifest import Tensor, dtype_name
from checks.gates.formats.readers import open_side
from checks.gates.formats.stored import npy_file
from checks.gates.limits.contract import read_contract, rounded_up
from checks.gates.reports.page import page
from checks.gates.reports.saved import read_report
from checks.gates.reports.terminal import show, to_json, write
from tests.checks.gates.sides import TIGHT, judged, normal, pair, write_limits, write_side

X = normal(6, 8)
LINE = {"name": "a", "dtype": "float32", "shape": [6, 8], "file": "a.bin"}


def gate(*given: Any) -> int:
    return main(["gate", *map(str, given)])


# --- tolerance files and other JSON ---


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + "[" * 100_000,
        '{"a": {"max_abs": 1' + "0" * 5000 + ', "mean_abs": 1}}',
        '{"a": {"max_abs": 1' + "0" * 400 + ', "mean_abs": 1}}',
        '{"a": {"max_abs": 1e999, "mean_abs": 1}}',
        '{"a": {"max_abs": Infinity, "mean_abs": 1}}',
    ],
    ids=["brackets", "5000 digits", "400 digits", "1e999", "Infinity"],
)
def test_a_tolerance_file_beyond_what_json_or_float64_holds(tmp_path: Path, text: str) -> None:
    (tmp_path / "limits.json").write_text(text)
    with pytest.raises(GateError) as caught:
        read_contract(tmp_path / "limits.json")
    assert caught.value.code == 3
    assert "limits.json" in str(caught.value)


def test_a_tolerance_file_of_a_windows_editor(tmp_path: Path) -> None:
    text = '{\r\n"a": {"max_abs": 0.5,\r\n"mean_abs": "inf"}}\r\n'
    (tmp_path / "limits.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_contract(tmp_path / "limits.json").limits["a"].max_abs == 0.5


# --- manifests ---


@pytest.mark.parametrize(
    "change",
    [{"file": "a\0b"}, {"file": "a\x1b[2J"}, {"shape": [1] * 65}, {"dtype": "(2,"}]
    + [{"dtype": text} for text in ("a5", "M8[zz]", "f4,f4", "S9999999999999999")],
    ids=str,
)
def test_a_manifest_that_nothing_can_open(change: dict[str, Any]) -> None:
    with pytest.raises(GateError):
        Tensor.from_line(json.dumps(LINE | change))


@pytest.mark.parametrize("text", ["<f4", "float", "intc", "?", "torch.bfloat16", "U8", "|b1"])
def test_dtypes_that_are_known_under_other_names(text: str) -> None:
    assert dtype_name(text)


@pytest.mark.parametrize("name", ["a.npy", "a.safetensors", "a.bin"])
def test_a_folder_in_a_files_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "side" / name).mkdir(parents=True)
    line = json.dumps(LINE | {"file": name}) + "\n"
    (tmp_path / "side" / "manifest.jsonl").write_text(line)
    with pytest.raises(GateError, match="cannot be read"):
        open_side(tmp_path / "side")


def test_a_path_that_no_disk_takes() -> None:
    for path in ("x" * 5000, "a\0b", ""):
        with pytest.raises(GateError) as caught:
            open_side(path or "no/such/place")
        assert caught.value.code == 3


# --- .npy, .npz and .safetensors ---


@pytest.mark.parametrize(
    "header",
    [
        "(" * 20_000,
        "-" * 60_000 + "1",
        "{'descr': None, 'fortran_order': False, 'shape': (6, 8)}",
        "{'descr': '<f4', 'fortran_order': 'no', 'shape': (6, 8)}",
        "{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (6, 4)}",
    ],
    ids=["brackets", "signs", "no dtype", "order", "sub-array"],
)
def test_an_npy_header_that_says_nothing(tmp_path: Path, header: str) -> None:
    raw = header.encode()
    file = tmp_path / "a.npy"
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + X.tobytes())
    with pytest.raises(GateError):
        npy_file(file, name="a")


def _flipped(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    file.write_bytes(bytes(raw))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_archive_is_named(tmp_path: Path, save: Callable[..., None]) -> None:
    big = normal(300, 300)
    for name in ("reference", "candidate"):
        save(tmp_path / f"{name}.npz", a=big)
    _flipped(tmp_path / "candidate.npz")
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT})
    sides = tmp_path / "reference.npz", tmp_path / "candidate.npz"
    assert gate("compare", *sides, "--tolerances", limits) == 3
    assert gate("inspect", sides[1]) == 3


def test_a_member_with_bytes_left_over(tmp_path: Path) -> None:
    values = io.BytesIO()
    np.save(values, X)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", values.getvalue() + b"more")
    with pytest.raises(GateError, match="needs 320 bytes, not 324"):
        open_side(tmp_path / "a.npz")


def _safetensors(file: Path, header: Any, data: bytes) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return file


ENTRY: dict[str, Any] = {"dtype": "F32", "shape": [6, 8], "data_offsets": [0, 192]}
_E = json.dumps(ENTRY).encode()


@pytest.mark.parametrize(
    "header",
    [
        {"a": ENTRY | {"data_offsets": ["0", "192"]}},
        {"a": ENTRY | {"data_offsets": [0.0, 192.0]}},
        {"a": ENTRY | {"data_offsets": [-192, 0]}},
        {"a": ENTRY | {"data_offsets": [192, 0]}},
        {"a": ENTRY | {"shape": 48}},
        {"a": ENTRY | {"dtype": ["F32"]}},
        {"a": ENTRY, "b": ENTRY},
        {"a": ENTRY | {"shape": [6, 7], "data_offsets": [0, 168]}},
        {"a": ENTRY | {"shape": [6, 7], "data_offsets": [24, 192]}},
        b'{"a": ' + _E + b', "a": ' + _E + b"}",
        b"[" * 100_000,
        b"\xff\xfe",
        None,
    ],
    ids=[
        *("text", "float", "negative", "turned", "shape", "dtype", "overlap", "left over", "gap"),
        *("twice", "brackets", "no utf-8", "null"),
    ],
)
def test_a_safetensors_header_that_contradicts_itself(tmp_path: Path, header: Any) -> None:
    file = _safetensors(tmp_path / "a.safetensors", header, X.tobytes())
    with pytest.raises(GateError) as caught:
        open_side(file)
    assert str(file) in str(caught.value)


# --- names.toml ---


@pytest.mark.parametrize(
    "text",
    ["roles = 5", "reference = 5", "[reference]\nmatch = 'a'\nname = 'b'"]
    + [
        f"[[reference]]\nmatch = 'a'\n{rest}"
        for rest in (
            *("name = 5", "name = []", "name = [5, 6]\nsplit = 0", "name = 'c'\ntranspose = 5"),
            *("name = 'c'\ntranspose = 'ab'", "name = 'c'\nslice = 5", "name = 'c'\ncast = 5"),
            *("name = ['c', 'd']\nsplit = 'x'", "name = ['c', 'd']\nsplit = true"),
        )
    ],
)
def test_rules_of_the_wrong_kind(tmp_path: Path, text: str) -> None:
    (tmp_path / "names.toml").write_text(text)
    with pytest.raises(GateError) as caught:
        judged(tmp_path, {"a": X}, {"a": X})
    assert "names.toml" in str(caught.value)


# --- numbers at the edges ---


@pytest.mark.parametrize(("off", "limit", "code"), [(100, 50, 1), (100, 100, 0), (1, 0.5, 1)])
@pytest.mark.parametrize("start", [2**60, -(2**60), 2**63 - 500])
def test_integers_beyond_2_53_differ_by_what_they_differ(
    tmp_path: Path, off: int, limit: float, code: int, start: int
) -> None:
    x = np.arange(start, start + 40, dtype=np.int64)
    result = pair(tmp_path, x, x + off, {"max_abs": limit, "mean_abs": limit})
    assert result.exit_code == code
    m = result.rows[0].measured
    assert m is not None
    assert (m.max_abs, m.mean_abs, m.rms, m.differing) == (off, off, off, 40)
    if code:
        assert result.rows[0].detail is not None
        assert result.rows[0].detail.quantiles[0] == off


@pytest.mark.parametrize(
    ("x", "y", "most"),
    [
        (np.array([2**64 - 1, 5], np.uint64), np.array([2**64 - 2, 5], np.uint64), 1.0),
        (np.array([2**63, 5], np.uint64), np.array([2**63 - 1, 5], np.int64), 1.0),
        (np.array([0, 5], np.uint64), np.array([2**64 - 1, 5], np.uint64), 2.0**64),
        (np.array([-(2**63), 5]), np.array([2**63 - 1, 5]), 2.0**64),
        (np.array([2**53 + 1, 5]), np.array([2.0**53, 5]), 1.0),
    ],
)
def test_integers_of_any_sign(tmp_path: Path, x: Any, y: Any, most: float) -> None:
    result = pair(tmp_path, x, y, {"max_abs": 0.5, "mean_abs": 0.25})
    assert result.exit_code == 1
    assert result.rows[0].measured is not None
    assert result.rows[0].measured.max_abs == most


def test_a_mean_whose_sum_overflows(tmp_path: Path) -> None:
    x = np.full(300_000, 1e307)
    result = pair(tmp_path, x, x + 5e306, {"max_abs": 1e307, "mean_abs": 1e307})
    assert result.exit_code == 0
    assert result.rows[0].measured is not None
    assert result.rows[0].measured.mean_abs == pytest.approx(5e306)


@pytest.mark.parametrize("size", [1e-200, 5e-324])
def test_errors_whose_squares_vanish_are_on_no_rung(tmp_path: Path, size: float) -> None:
    x = np.arange(1.0, 41.0) * size
    limit = {"max_abs": 0.0, "mean_abs": 0.0}
    result = pair(tmp_path, x, x + np.sin(np.arange(40)).round() * size, limit)
    assert result.exit_code == 1
    assert "unknown, the squares are beyond float64" in result.answers[2].text
    assert "on no rung" in result.answers[3].text
    assert would_have_passed(result)[0].startswith("no limits are suggested for t")


@pytest.mark.parametrize("wide", [0, 1])
def test_a_side_that_lost_its_imaginary_parts(tmp_path: Path, wide: int) -> None:
    sides = [normal(4, 5), normal(4, 5) + 1j * normal(4, 5, seed=1)]
    result = pair(tmp_path, sides[wide], sides[1 - wide])
    assert result.exit_code == 1
    assert result.rows[0].measured is not None
    assert result.rows[0].measured.max_abs == pytest.approx(np.abs(normal(4, 5, seed=1)).max())


def test_rounding_up_at_both_ends() -> None:
    values = [5e-324, 1e-320, 2.5e-308, 1e-5, 1.0000001e-5, 0.999, 99.1, 1.79e308]
    for value in values:
        assert value * (1 - 1e-12) <= rounded_up(value) <= max(1.11 * value, 1e-323)
    assert rounded_up(1e-5) == 1e-5
    assert rounded_up(1.0000001e-5) == 1.1e-5


def test_limits_to_paste_are_json(tmp_path: Path) -> None:
    noise = np.random.default_rng(5).normal(size=(50, 60)).astype(np.float32)
    x = normal(50, 60)
    limit = {"max_abs": "inf", "mean_abs": 1e-6}
    lines = would_have_passed(pair(tmp_path, x, x + noise * np.float32(1e-3), limit))
    pasted = json.loads("{" + lines[1].strip().rstrip(",") + "}")
    write_limits(tmp_path / "new.json", pasted)
    assert gate(
        "compare", tmp_path / "reference", tmp_path / "candidate", "--tolerances",
        tmp_path / "new.json",
    ) == 0  # fmt: skip


def test_a_row_of_nan_is_another_choice(tmp_path: Path) -> None:
    x = normal(6, 8)
    y = x.copy()
    y[2, 3] = np.nan
    text = judged(tmp_path, {"dec.logits": x}, {"dec.logits": y}).answers[4].text
    assert text.startswith("yes: dec.logits: 1 of 6 rows have another argmax")
    assert f"row 2: {int(np.argmax(x[2]))} on the reference, NaN here" in text


# --- texts that a terminal obeys, paths that no encoding holds ---


def test_nothing_of_a_dump_commands_the_terminal(tmp_path: Path) -> None:
    x = normal(4, 5)
    reference = write_side(tmp_path / "r", {"a": x}, dtype_policy="\x1b[31mred")
    candidate = write_side(tmp_path / "c", {"a": x + 1}, dtype_policy="[bold]b[/nothing]")
    (reference / "transcript.json").write_text(json.dumps({"tokens": ["a", "\n", "\x1b[2J"]}))
    (candidate / "transcript.json").write_text(json.dumps({"text": "q", "tokens": ["a", "\ud800"]}))
    limit = TIGHT | {"_comment": "\ud800"}
    result = compare(reference, candidate, write_limits(tmp_path / "limits.json", {"a": limit}))
    out = io.StringIO()
    show(result, Console(file=out, width=80))
    assert "\x1b" not in out.getvalue()
    assert r"a [\n] \x1b[2J on the reference, a [\ud800] here" in out.getvalue()
    assert "[bold]b[/nothing]" in out.getvalue()
    write(tmp_path / "gate.json", to_json(result), "--json")
    assert to_json(read_report(tmp_path / "gate.json")) == to_json(result)
    write(tmp_path / "gate.html", page(result), "--html")


@pytest.mark.parametrize("name", [b"\xff\xfe", b"[/red]", b"<script>"])
def test_candidates_of_any_folder(tmp_path: Path, name: bytes) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    reference = write_side(tmp_path / "r", {"a": X})
    write_side(folder, {"a": X + 1})
    write_side(tmp_path / "c", {"a": X})
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT})
    out = io.StringIO()
    report = compare_all(reference, [folder, tmp_path / "c"], limits)
    show(report, Console(file=out, width=80, force_terminal=True))
    assert out.getvalue().encode()
    files = [tmp_path / f"gate.{kind}" for kind in ("json", "html", "xml")]
    given = ["--json", files[0], "--html", files[1], "--junit", files[2]]
    assert gate("compare", reference, folder, tmp_path / "c", "--tolerances", limits, *given) == 1
    assert "<script>" not in files[1].read_text(encoding="utf-8")
    assert to_json(read_report(files[0])) == to_json(report)


# --- the command ---


@pytest.mark.parametrize("given", [["nope"], ["--nope"], ["compare", "a"], ["inspect", "a", "b"]])
def test_every_usage_error_exits_with_3(given: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        gate(*given)
    assert caught.value.code == 3


def test_one_report_that_cannot_be_written_leaves_the_others(tmp_path: Path) -> None:
    reference = write_side(tmp_path / "r", {"a": X})
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT})
    files = ["--json", tmp_path, "--html", tmp_path / "r", "--junit", tmp_path / "gate.xml"]
    assert gate("compare", reference, reference, "--tolerances", limits, *files) == 3
    assert (tmp_path / "gate.xml").exists()
    text = limits.read_text()
    assert gate("compare", reference, reference, "--tolerances", limits, "--json", limits) == 3
    assert limits.read_text() == text


def test_a_reader_that_leaves_changes_neither_code_nor_report(tmp_path: Path) -> None:
    tensors = {f"t{n}": X + n for n in range(60)}
    reference = write_side(tmp_path / "r", tensors)
    candidate = write_side(tmp_path / "c", tensors)
    limits = write_limits(tmp_path / "limits.json", dict.fromkeys(tensors, TIGHT))
    code = "import sys; from checks.cli import main; sys.exit(main(sys.argv[1:]))"
    given = ["gate", "compare", reference, candidate, "--tolerances", limits]
    words = [*map(str, given), "--json", str(tmp_path / "gate.json")]
    run = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
    assert run.stdout is not None
    run.stdout.close()
    assert run.wait() == 0
    assert json.loads((tmp_path / "gate.json").read_text())["exit_code"] == 0


def test_a_dump_against_itself_says_so(tmp_path: Path) -> None:
    reference = write_side(tmp_path / "r", {"a": X})
    (tmp_path / "link").symlink_to(reference)
    limits = write_limits(tmp_path / "limits.json", {"a": TIGHT})
    assert "are one dump" in compare(reference, tmp_path / "link", limits).notes[0]


def test_files_are_named_as_every_disk_takes_them(tmp_path: Path) -> None:
    names = ["CON", "nul.x", "a?b", 'a"b', "a<b", "é", "e\u0301", "A", "a"]
    with gates.Dump(tmp_path / "d", side="reference") as d:
        for n, name in enumerate(names):
            d.put(name, X + n)
    files = [p.name for p in (tmp_path / "d").glob("*.npy")]
    assert len({f.casefold() for f in files}) == len(names)
    assert not any(c in f for f in files for c in '<>"|?*')
    side = open_side(tmp_path / "d")
    for n, name in enumerate(names):
        assert np.array_equal(side.tensors[name].load(), X + np.float32(n))
