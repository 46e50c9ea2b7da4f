"""`gradsweep doctor`: what stands in its table."""

import importlib.metadata
import os
import re
import subprocess
import sys

import pytest

from checks import doctor

WITHOUT = (
    "not registered, decorated functions are not collected: "
    "pytest -p checks.plugin, or install gradsweep"
)
DECORATED = """
from checks import gradient_check, normal

@gradient_check(args=(normal(3),))
def own(x):
    return (x * x).sum()
"""


def test_what_is_absent_is_optional_and_has_a_line_to_paste():
    (text,) = doctor._state("no_such_module", "torch")
    assert text.plain == 'absent (optional): pip install "gradsweep[torch]"'


def test_what_is_there_has_its_version(capsys):
    assert doctor.report() == 0
    out = capsys.readouterr().out
    assert "and capture by attach" in out and "imports: ok" in out
    assert "missing" not in out


@pytest.mark.parametrize(("registered", "text"), [(True, "registered"), (False, WITHOUT)])
def test_whether_pytest_finds_the_plugin(registered, text, monkeypatch, capsys):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ("one",) * registered)
    assert doctor.report() == 0
    assert f"\npytest plugin: {text}\n" in capsys.readouterr().out


def test_decorated_functions_are_collected_by_the_line_it_gives(tmp_path):
    """In an environment without the entry point, as `doctor` words it."""
    (tmp_path / "test_own.py").write_text(DECORATED)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    line = re.search(r"pytest (-p \S+),", WITHOUT)
    assert line is not None
    for options, items in (([], "no tests"), (line[1].split(), "own[reverse]")):
        done = subprocess.run(
            [*command, *options], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert items in done.stdout, done.stdout + done.stderr
