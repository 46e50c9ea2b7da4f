"""What `make lint` installs, and where: nothing into an environment that was named."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
echo "$@" >> {log}
case "$2" in {missing}) exit 1;; esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(HOME / name, tmp_path)
    return tmp_path


def made(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}  # no variables of a make
    return subprocess.run(
        ["make", *words], cwd=folder, env=own, capture_output=True, text=True, check=False
    )


def python(folder: Path, missing: str) -> Path:
    """An environment whose Python notes its arguments and has no module that `missing` matches."""
    tool = folder / "elsewhere/bin/python"
    tool.parent.mkdir(parents=True)
    tool.write_text(PYTHON.format(log=folder / "log", missing=missing))
    tool.chmod(0o755)
    return folder / "elsewhere"


def test_lint_uses_a_named_environment_as_it_is(folder: Path) -> None:
    done = made(folder, "lint", f"VENV={python(folder, 'none')}")
    calls = (folder / "log").read_text().splitlines()
    assert done.returncode == 0, done.stderr
    assert calls[-3:] == ["-m ruff check .", "-m ruff format --check .", "-m mypy"]
    assert not any("pip" in call for call in calls)
    assert os.listdir(folder / "elsewhere") == ["bin"]


@pytest.mark.parametrize(
    ("missing", "named"), [("ruff", " ruff"), ("mypy", " mypy"), ("ruff|mypy", " ruff mypy")]
)
def test_lint_says_what_a_named_environment_lacks(folder: Path, missing: str, named: str) -> None:
    venv = python(folder, missing)
    done = made(folder, "lint", f"VENV={venv}")
    assert done.returncode and "pip" not in (folder / "log").read_text()
    assert done.stderr.splitlines()[0] == (
        f"lint: {venv} lacks{named}; nothing was installed into it: "
        f"make install VENV={venv} EXTRAS=dev"
    )


def test_lint_sets_its_own_environment_up(folder: Path) -> None:
    done = made(folder, "--dry-run", "lint")
    assert ".venv/bin/python -m pip install -c constraints.txt -e '.[dev]'" in done.stdout
    assert done.stdout.rstrip().endswith(".venv/bin/python -m mypy")
