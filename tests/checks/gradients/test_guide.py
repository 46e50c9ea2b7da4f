"""The guide: every example of docs/gradient-checks.md is run, and its printed failure is real."""

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path

import pytest

from checks.domains import DOMAINS
from checks.gradients.report import PRECEDENCE
from checks.properties.vmapped import SURFACES

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "gradient-checks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", GUIDE, re.DOTALL)


RIGHT = [source for source, printed in BLOCKS if not printed]
WRONG = [(source, printed) for source, printed in BLOCKS if printed]


@pytest.fixture
def run(pytester, monkeypatch):
    """One run for all examples: JAX and PyTorch are loaded once, in a process of their own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    installed = importlib.metadata.entry_points(group="pytest11")
    plugin = () if any(e.name == "gradsweep" for e in installed) else ("-p", "checks.plugin")

    def run(*sources):
        pytester.makepyfile(**{f"test_{name(source)}": source for source in sources})
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-v")

    return run


def name(source):
    """The function an example ends with."""
    return re.findall(r"^def (\w+)\(", source, re.MULTILINE)[-1]


@pytest.mark.slow
def test_the_examples_pass(run):
    for package in ("jax", "torch"):
        # never imported here: pytester forgets what a test imports, and JAX aborts at a second time
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    result = run(*RIGHT)
    outcomes = result.parseoutcomes()
    assert not set(outcomes) - {"passed", "skipped"}, outcomes
    passed = set(re.findall(r"::(\w+)\[\S+ PASSED", result.stdout.str()))
    assert passed == {name(source) for source in RIGHT}


@pytest.mark.slow
def test_the_printed_failure_is_what_is_printed(run):
    ((source, printed),) = WRONG
    found = run(source).stdout.str()
    for line in printed.replace("test_model.py", f"test_{name(source)}.py").splitlines():
        if not line.startswith("calls"):  # holds the time
            assert line in found.splitlines(), found


def test_there_are_examples_of_all_frameworks_and_one_failure():
    text = "\n".join(RIGHT)
    for package in ("import numpy", "import jax", "import torch", "from hypothesis", "from scipy"):
        assert package in text
    assert len(WRONG) == 1


def test_verdicts_domains_and_surfaces_are_all_named():
    missing = [
        v for v in (*PRECEDENCE, *DOMAINS, *SURFACES) if v not in GUIDE and f"[{v}" not in GUIDE
    ]
    assert missing == []
