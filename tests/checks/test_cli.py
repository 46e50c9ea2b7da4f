"""The command line itself: its exit codes, unknown words, its version."""

import importlib.metadata
from pathlib import Path

import pytest

from checks import cli


def test_the_commands_are_those_of_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    lines = capsys.readouterr().out.partition("COMMAND\n")[2].splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    assert caught.value.code == 0 and tuple(listed) == cli.COMMANDS


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("swep", "did you mean 'sweep'?"),
        ("gates", "did you mean 'gate'?"),
        ("qqq", "use one of sweep, report, check, power, gate, doctor"),
    ],
)
def test_an_unknown_command(word: str, fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word, "--op", "SIN"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"gradsweep: there is no command {word!r}\n  {fix}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "--op", "SINN"),
        ("sweep", "--surface", "revers"),
        ("sweep", "--op", "SIN", "--sample", "none"),
        ("power", "--op", "SINN"),
        ("check", "no_such_file.py::f"),
        ("report", "no_such_folder"),
        (),
    ],
)
def test_wrong_use_exits_with_2(words: tuple[str, ...]) -> None:
    assert cli.main(words) == 2


@pytest.mark.parametrize("words", [("--verson",), ("sweep", "--opp", "SIN"), ("sweep", "more")])
def test_what_is_no_option_exits_with_2(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2


def test_a_gate_keeps_2_for_an_invalid_comparison() -> None:
    assert cli.main(["gate", "report", "no_such_report.json"]) == 3


def test_an_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_doctor", interrupted)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "gradsweep: stopped\n"


@pytest.mark.parametrize("version", ["1.2.3", None])
def test_the_version(
    version: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"gradsweep {version or cli.NOT_INSTALLED}\n"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--workers", "-1", "'-1' is not a number of processes, such as 2"),
        ("--shard", "1/0", "'1/0' is not I/N with I from 1 to N, such as 1/4"),
        ("--shard", "3/2", "'3/2' is not I/N with I from 1 to N, such as 1/4"),
    ],
)
def test_an_option_out_of_range(
    option: str, value: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["sweep", f"{option}={value}"])
    assert caught.value.code == 2 and why in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checks.pool.run", lambda *_: pytest.fail("it ran"))
    taken = tmp_path / "file"
    taken.write_text("mine")
    assert cli.main(["sweep", "--op", "SIN", "--report", str(taken)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gradsweep: the report cannot be written: File exists"
    assert lines[-1].strip() == "name a folder that can be written with --report DIR"
    assert taken.read_text() == "mine"
