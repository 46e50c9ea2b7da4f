"""`gradsweep gate`: exit codes, lines, JSON, mistakes; nothing half-written."""

import argparse
import importlib
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.command import COMMANDS
from tests.checks.gates.sides import TIGHT, normal, write_limits, write_side

X = normal(6, 8)
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    good = {"enc.in": X, "enc.out": X + 2, "dec.logits": normal(6, 8, seed=3)}
    write_side(tmp_path / "reference", good)
    write_side(tmp_path / "candidate", dict(good, **{"enc.out": 2 * (X + 2)}))
    write_limits(tmp_path / "limits.json", dict.fromkeys(good, TIGHT))
    return tmp_path


def run(folder: Path, *options: Any, candidate: str = "candidate") -> int:
    sides = [str(folder / "reference"), str(folder / candidate)]
    limits = ["--tolerances", str(folder / "limits.json")]
    return main(["gate", "compare", *sides, *limits, *map(str, options)])


def test_a_failure_prints_rows_and_six_answers(folder: Path, capsys: Captured) -> None:
    assert run(folder) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["ok", "enc.in"],
        ["FAIL", "enc.out"],
        ["ok", "dec.logits"],
    ]
    assert [line[0] for line in lines[3:15:2]] == list("123456")
    assert lines[-2].startswith("FAIL: 2 of 3 contract tensors pass; inputs unknown; first enc.out")
    assert lines[-2].endswith("scaled: candidate = 2 x reference (2^1)")
    assert lines[-1] == "no limits are suggested for enc.out: its cause is known (scale)"


@pytest.mark.parametrize(
    ("word", "fix"),
    [("compar", "did you mean 'compare'?"), ("xyz", "use one of inspect, names, init, compare,")],
)
def test_an_unknown_command_has_a_hint(capsys: Captured, word: str, fix: str) -> None:
    with pytest.raises(SystemExit) as done:
        main(["gate", word, "a", "b"])
    said = capsys.readouterr()
    assert (done.value.code, said.out) == (3, "")
    assert said.err.startswith(f"gradsweep gate: there is no command {word!r}\n  {fix}")


def test_a_pass(folder: Path, capsys: Captured) -> None:
    assert run(folder, candidate="reference") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS: 3 of 3 contract tensors")


def test_json(folder: Path) -> None:
    file = folder / "reports" / "gate.json"
    assert run(folder, "--json", file) == 1
    record = json.loads(file.read_text())
    assert (record["first"], record["cause"], record["exit_code"]) == ("enc.out", "scale", 1)
    assert record["last_good"] == "enc.in"
    assert len(record["answers"]) == 6
    assert [r["name"] for r in record["rows"]] == ["enc.in", "enc.out", "dec.logits"]
    row = record["rows"][1]
    assert (row["status"], row["systematic"]) == ("FAIL", False)  # of 48 entries no eta is taken
    assert row["max_abs"] == pytest.approx(np.abs(X + 2).max())
    assert row["limit"] == TIGHT


class Tags(HTMLParser):
    """Which tags are open; every one must be closed by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1] != tag:
            raise AssertionError(f"</{tag}> closes <{self.open[-1]}>")
        self.open.pop()


def test_html_is_one_page_that_needs_nothing_else(folder: Path) -> None:
    file = folder / "gate.html"
    (folder / "limits.names.toml").write_text(
        "[[candidate]]\nmatch = 'enc\\.in'\nname = 'a<b>'\n\n"
        "[[reference]]\nmatch = 'enc\\.in'\nname = 'a<b>'\n"
    )
    write_limits(folder / "limits.json", dict.fromkeys(["a<b>", "enc.out", "none"], TIGHT))
    assert run(folder, "--html", file) == 2
    text = file.read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.seen.count("circle") == 3
    assert text.count("<li><b>") == 6
    assert "axis 1" in text and "candidate = 2 x reference" in text
    assert "a&lt;b&gt;" in text and "a<b>" not in text
    assert "the contract tensor &#x27;none&#x27; is missing on the reference" in text


def test_html_of_a_pass_and_of_infinities(folder: Path) -> None:
    file = folder / "gate.html"
    assert run(folder, "--html", file, candidate="reference") == 0
    assert "PASS" in file.read_text()
    bad = X.copy()
    bad[0, 0] = np.inf
    write_side(folder / "inf", {"enc.in": bad})
    assert run(folder, "--html", file, candidate="inf") == 1
    assert "NONFINITE" in file.read_text()


def test_json_of_nan_is_strict(folder: Path) -> None:
    bad = X.copy()
    bad[0, 0] = np.nan
    write_side(folder / "nan", {"enc.in": bad})
    file = folder / "gate.json"
    assert run(folder, "--json", file, "--only", "enc.in", candidate="nan") == 1

    def refuse(word: str) -> Any:
        raise AssertionError(word)

    record = json.loads(file.read_text(), parse_constant=refuse)
    assert record["rows"][0]["max_abs"] == "nan"


def test_only_and_quiet(folder: Path, capsys: Captured) -> None:
    assert run(folder, "--only", "dec.*") == 0
    assert "enc.out" not in capsys.readouterr().out
    assert run(folder, "--quiet") == 1
    assert not any(s.startswith("ok") for s in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "candidate" / "enc.in.bin").unlink(), "'enc.in' cannot be read"),
        (lambda f: (f / "candidate" / "enc.in.bin").write_bytes(b"1"), "the file has 1"),
        (lambda f: (f / "limits.json").write_text("{"), "not JSON"),
        (lambda f: (f / "limits.json").unlink(), "cannot be read"),
        (lambda f: (f / "candidate" / "run.json").write_text("{'a'}"), "not JSON"),
        (lambda f: (f / "candidate" / "manifest.jsonl").write_bytes(b"\xff\n"), "not UTF-8"),
    ],
    ids=["no data", "short data", "bad limits", "no limits", "bad run", "bad manifest"],
)
def test_mistakes_are_three_lines(folder: Path, capsys: Captured, change: Any, words: str) -> None:
    change(folder)
    assert run(folder, "--json", folder / "gate.json") == 3
    text = capsys.readouterr().err
    assert words in text
    assert len(text.splitlines()) == 3
    assert not (folder / "gate.json").exists()


def test_a_report_that_cannot_be_written(folder: Path, capsys: Captured) -> None:
    assert run(folder, "--json", folder / "limits.json" / "gate.json") == 3
    assert "cannot be written" in capsys.readouterr().err


def test_rows_of_seed_folders_come_in_the_files_order(folder: Path, capsys: Captured) -> None:
    for side in ("r", "c"):
        (folder / side).mkdir()
        for name in ("b.12", "b.2", "a"):
            X.tofile(folder / side / f"{name}.f32")
            sidecar = {"shape": [6, 8], "dtype": "f32", "layout": "row-major"}
            (folder / side / f"{name}.json").write_text(json.dumps(sidecar))
    write_limits(folder / "limits.json", dict.fromkeys(["b.2", "b.12"], TIGHT))
    (folder / "names.toml").write_text('[roles]\n"b.12" = "informational"\n')
    limits = ["--tolerances", str(folder / "limits.json")]
    assert main(["gate", "compare", str(folder / "r"), str(folder / "c"), *limits]) == 0
    out = capsys.readouterr().out
    assert [s.split()[1:3] for s in out.splitlines()[:3]] == [
        ["b.2", "gate"],
        ["b.12", "info"],
        ["a", "debug"],
    ]
    assert "inputs unknown" in out


def test_init_then_compare(folder: Path, capsys: Captured) -> None:
    file = folder / "new" / "limits.json"
    command = ["gate", "init", str(folder / "reference"), "--output", str(file)]
    assert main(command) == 0
    record = json.loads(file.read_text())
    assert list(record) == ["_comment", "enc.in", "enc.out", "dec.logits"]
    p99 = float(np.quantile(np.abs(X), 0.99))
    assert p99 * 1e-4 * 0.97 <= record["enc.in"]["max_abs"] <= p99 * 1e-4 * 1.15
    assert main(command) == 3
    assert "the tolerance file exists" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    sides = [str(folder / n) for n in ("reference", "reference")]
    assert main(["gate", "compare", *sides, "--tolerances", str(file)]) == 0


def test_init_refuses_a_gate_that_is_not_finite(tmp_path: Path, capsys: Captured) -> None:
    write_side(tmp_path / "r", {"t": np.array([1.0, np.inf])})
    assert main(["gate", "init", str(tmp_path / "r"), "--output", str(tmp_path / "f.json")]) == 2
    assert "the gate 't' has 1 non-finite entries" in capsys.readouterr().err
    assert not (tmp_path / "f.json").exists()


def test_inspect(folder: Path, capsys: Captured) -> None:
    assert main(["gate", "inspect", str(folder / "reference"), "--only", "enc.*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "manifest, 2 tensors, in execution order" in lines[0]
    assert lines[1].split()[:5] == ["enc.in", "gate", "float32", "[6,", "8]"]
    assert len(lines) == 3


def test_dumps_of_the_recorder_are_compared(tmp_path: Path, capsys: Captured) -> None:
    for side, factor in (("reference", 1.0), ("candidate", -1.0)):
        with gates.Dump(tmp_path / side, side=side, family="toy") as dump:
            dump.put("enc.in", X)
            for call in (1.0, factor):
                dump.put("enc.out", (call * X).astype(ml_dtypes.bfloat16))
    write_limits(tmp_path / "limits.json", dict.fromkeys(["enc.in", "enc.out"], TIGHT))
    assert run(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [s.split()[:2] for s in lines[:3]] == [
        ["ok", "enc.in"],
        ["ok", "enc.out"],
        ["FAIL", "enc.out#1"],
    ]
    assert lines[-2].endswith("the sign is turned: candidate = -reference")
    result = gates.compare(*(tmp_path / n for n in ("reference", "candidate", "limits.json")))
    assert result.first is not None and result.first.dtypes == ("bfloat16", "bfloat16")


def test_an_unfinished_run_and_other_policies_are_noted(folder: Path, capsys: Captured) -> None:
    for side, policy, finished in (("reference", "float32", "now"), ("candidate", "bf16", "")):
        record = {"versions": {"x": "1"}, "dtype_policy": policy, "finished": finished}
        record["input_hashes"] = {"audio": "00ff"}
        (folder / side / "run.json").write_text(json.dumps(record))
    run(folder)
    out = capsys.readouterr().out
    assert f"the run that wrote {folder / 'candidate'} did not finish" in out
    assert f"the run that wrote {folder / 'reference'} did not finish" not in out
    assert "dtype policies differ: float32 and bf16" in out
    assert "inputs equal" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_says_what_it_is(name: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"checks.gates.commands.{name}").arguments(parser)
    assert [a.dest for a in parser._actions if not a.help] == []


def test_usage_errors_exit_with_3(folder: Path, capsys: Captured) -> None:
    assert main(["gate"]) == 3
    for command in (["gate", "compare", "a"], ["gate", "inspect", str(folder), "--onyl", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(command)
        assert caught.value.code == 3
    assert "unrecognized arguments: --onyl x" in capsys.readouterr().err


def test_the_process_exits_so_too(folder: Path) -> None:
    sides = [str(folder / n) for n in ("reference", "candidate")]
    command = ["gate", "compare", *sides, "--tolerances", str(folder / "limits.json")]
    done = subprocess.run(
        [sys.executable, "-m", "checks", *command], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1


# --- faults of the gate's own -------------------------------------------------------------------


def test_a_crash_does_not_blame_the_candidate(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 says that the candidate is wrong: a crash says nothing of it."""

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("no such \x1b row")

    monkeypatch.setattr("checks.gates.comparison.verdict.compare", broken)
    monkeypatch.setattr("checks.gates.comparison.several.compare_all", broken)
    assert run(folder) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback") and any("in broken" in line for line in lines)
    assert lines[-3].startswith("gradsweep gate: internal error: KeyError: ")
    assert lines[-2].startswith(f"  at {__file__}:")
    fix = "  nothing is said of the candidate; please report this, with the traceback above"
    assert lines[-1] == fix and "\x1b" not in lines[-3]


def test_a_crash_while_options_are_read(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("options")

    monkeypatch.setattr("checks.gates.commands.compare.arguments", broken)
    with pytest.raises(SystemExit) as caught:
        run(folder)
    assert caught.value.code == 3
    assert "internal error: RuntimeError: options" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("checks.gates.command.Parser.parse_known_args", broken)
    with pytest.raises(SystemExit) as caught:
        run(folder)
    assert caught.value.code == 3


def test_other_mistakes_are_no_internal_errors(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autodiff.errors import AutodiffError

    def broken(*_: Any, **__: Any) -> None:
        raise AutodiffError("a package is missing", "  at x", "  install it")

    monkeypatch.setattr("checks.gates.comparison.verdict.compare", broken)
    monkeypatch.setattr("checks.gates.comparison.several.compare_all", broken)
    assert run(folder) == 3
    assert capsys.readouterr().err.startswith("gradsweep: a package is missing\n  at x")


def test_a_module_that_exits_does_not_blame_the_candidate(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "leaving_port.py").write_text("import sys\n\nsys.exit(1)\n")
    monkeypatch.syspath_prepend(str(folder))
    reference = str(folder / "reference")
    assert main(["gate", "isolate", reference, "--blocks", "leaving_port:blocks"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gradsweep gate: a module that was loaded ended the process with 1"
    assert lines[1].endswith("leaving_port.py:3") and "__main__" in lines[2]
