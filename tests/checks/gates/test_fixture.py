"""The pytest fixture `gate`, as a user's tests run it, and `gates.check` without pytest."""

import importlib.metadata
import json
import os
import unittest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from checks import gates
from checks.cli import main
from checks.gates.fixture import file_name
from tests.checks.gates.sides import TIGHT, normal, write_limits, write_side

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[3]
X = normal(6, 8)
TESTS = """
import numpy as np
import pytest

X = np.arange(48, dtype=np.float32).reshape(6, 8)


def put(d, factor=1.0):
    d.put("enc.in", X)
    d.put("enc.out", factor * (X + 1))


def test_right(gate):
    with gate.dump() as d:
        put(d)
    assert d.folder == gate.folder / "candidate"
    assert gate.check("golden", d.folder, "limits.json").ok


def test_wrong(gate):
    with gate.dump("candidate", seed=3) as d:
        put(d, 2.0)
    gate.check("golden", d.folder, "limits.json")


def test_invalid(gate):
    with gate.dump() as d:
        d.input("x", np.array([2]))
        put(d)
    gate.check("golden", d.folder, "limits.json")


def test_unusable(gate):
    gate.check("golden", "nowhere", "limits.json")


@pytest.mark.parametrize("call", [0, 1])
def test_twice(gate, call):
    for factor in (1.0, 1.0 + call):
        with gate.dump() as d:
            put(d, factor)
        gate.check("golden", d.folder, "limits.json", only="*" if call else "enc.in")


def test_without_the_gate(request):
    request.node.user_properties.append(("exit_code", "2"))
    raise AssertionError("plain")


def test_check_alone():
    from checks import gates

    gates.check("golden", "other", "limits.json")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's project: a stored reference, a tolerance file, tests in a folder of their own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    installed = importlib.metadata.entry_points(group="pytest11")
    plugin = () if any(e.name == "gradsweep" for e in installed) else ("-p", "checks.plugin")
    values = np.arange(48, dtype=np.float32).reshape(6, 8)
    write_side(pytester.path / "golden", {"enc.in": values, "enc.out": values + 1},
               input_hashes={"x": "sha256:0"})  # fmt: skip
    write_side(pytester.path / "other", {"enc.in": values}, input_hashes={"x": "sha256:1"})
    write_limits(pytester.path / "limits.json", dict.fromkeys(["enc.in", "enc.out"], TIGHT))
    pytester.makefile(".ini", pytest="[pytest]\nfilterwarnings = error\n")
    folder = pytester.mkdir("tests")
    (folder / "test_port.py").write_text(TESTS)

    def run(*options: str) -> pytest.RunResult:
        command = [*plugin, "-p", "no:cacheprovider", "--basetemp", "tmp", *options]
        return pytester.runpytest_subprocess(*command)

    return run


def test_what_a_user_sees(run: Any, pytester: pytest.Pytester) -> None:
    result = run("-v", "--gate-report", "build/gate", "--junit-xml", "junit.xml", "tests")
    outcomes = result.parseoutcomes()
    assert outcomes == {"passed": 2, "failed": 3, "errors": 3}
    out = result.stdout.str()
    text = [line.removeprefix("E   ").strip() for line in out.splitlines()]
    assert any(
        line.endswith("GateFailure: FAIL: 1 of 2 contract tensors pass; inputs unknown; first "
                      "enc.out: scaled: candidate = 2 x reference (2^1)")
        for line in text
    )  # fmt: skip
    assert "1 Which tensor diverged first?" in text and "6 Is it backend-specific?" in text
    assert any(line.startswith("FAIL ") and " enc.out " in line for line in text)
    assert not any(line.startswith("ok ") for line in text)  # rows that failed alone
    assert "::test_invalid INVALID" in out and "::test_unusable UNUSABLE" in out
    assert "ERROR at call of test_invalid" in out and "ERROR at call of test_unusable" in out
    assert any(line.endswith("GateInvalid: INVALID: the inputs differ: 'x'") for line in text)
    assert "INVALID  the inputs differ: 'x'" in text
    assert "no such folder or file" in out and "open_side" not in out  # the test's line alone
    assert "::test_without_the_gate FAILED" in out and "::test_check_alone INVALID" in out
    _properties(pytester.path / "junit.xml")
    _reports(pytester.path / "build" / "gate")


def _properties(file: Path) -> None:
    found = {
        case.get("name"): [(p.get("name"), p.get("value")) for p in case.iter("property")]
        for case in ElementTree.parse(file).iter("testcase")
    }
    wrong = dict(found["test_wrong"])
    assert (wrong["first"], wrong["cause"], wrong["exit_code"]) == ("enc.out", "scale", "1")
    figures = json.loads(wrong["figures"] or "")
    assert (figures["contract"], figures["failed"], figures["max_abs"]) == (2, 1, 48.0)
    assert figures["limit"] == TIGHT
    right = dict(found["test_right"])
    assert (right["first"], right["cause"], right["exit_code"]) == ("", "", "0")
    assert dict(found["test_invalid"])["exit_code"] == "2"
    assert dict(found["test_unusable"]) == {"exit_code": "3"}
    assert [v for n, v in found["test_twice[1]"] if n == "exit_code"] == ["0", "1"]
    assert found["test_without_the_gate"] == [("exit_code", "2")]  # the user's own
    assert found["test_check_alone"] == [("exit_code", "2")]
    (suite,) = ElementTree.parse(file).iter("testsuite")
    assert (suite.get("failures"), suite.get("errors"), suite.get("tests")) == ("3", "3", "8")
    errors = {c.get("name") for c in suite.iter("testcase") if c.find("error") is not None}
    assert errors == {"test_invalid", "test_unusable", "test_check_alone"}
    failures = {c.get("name") for c in suite.iter("testcase") if c.find("failure") is not None}
    assert failures == {"test_wrong", "test_twice[1]", "test_without_the_gate"}


def _reports(folder: Path) -> None:
    names = ["right", "wrong", "invalid", "twice-0", "twice-0-1", "twice-1", "twice-1-1"]
    files = {f"tests-test_port.py-test_{n}{s}" for n in names for s in (".json", ".html")}
    assert {p.name for p in folder.iterdir()} == files
    record = json.loads((folder / "tests-test_port.py-test_wrong.json").read_text())
    assert (record["first"], record["exit_code"]) == ("enc.out", 1)
    assert "<html" in (folder / "tests-test_port.py-test_wrong.html").read_text()


def test_dumps_say_which_test_made_them(run: Any, pytester: pytest.Pytester) -> None:
    assert run("-q", "tests", "-k", "wrong or twice").parseoutcomes()["failed"] == 2
    (info,) = pytester.path.glob("tmp/test_wrong0/candidate/run.json")
    record = json.loads(info.read_text())
    assert record["command"] == "pytest tests/test_port.py::test_wrong" and record["seed"] == 3
    assert len(list(pytester.path.glob("tmp/test_twice_1_0/candidate*"))) == 2


@pytest.mark.slow
def test_workers_give_the_same(run: Any, pytester: pytest.Pytester) -> None:
    result = run("-n", "2", "--gate-report", "reports", "--junit-xml", "junit.xml", "tests")
    assert result.parseoutcomes() == {"passed": 2, "failed": 3, "errors": 3}
    assert "ERROR at call of test_invalid" in result.stdout.str()
    _properties(pytester.path / "junit.xml")
    _reports(pytester.path / "reports")


def test_the_help_names_fixture_and_option(run: Any) -> None:
    out = run("--fixtures", "tests").stdout.str()
    assert "gate -- " in out and "`gate.dump(side)` opens a dump" in out
    assert "--gate-report=DIR" in run("--help").stdout.str()


def test_long_ids_become_file_names() -> None:
    assert file_name("tests/test_a.py::T::test_b[x/y-1.5]") == "tests-test_a.py-T-test_b-x-y-1.5"
    names = {file_name("t.py::test[" + 300 * "x" + end + "]") for end in "ab"}
    assert len(names) == 2 and all(len(n) < 140 and n.startswith("t.py-test-xxx") for n in names)


# --- without pytest --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_side(tmp_path / "reference", {"a": X, "b": X + 1})
    write_side(tmp_path / "candidate", {"a": X, "b": 2 * (X + 1)})
    write_limits(tmp_path / "limits.json", dict.fromkeys("ab", TIGHT))
    return tmp_path


def paths(folder: Path, candidate: str = "candidate") -> tuple[Path, Path, Path]:
    return folder / "reference", folder / candidate, folder / "limits.json"


def test_check_asserts_what_the_command_prints(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError) as caught:
        gates.check(*paths(folder))
    assert isinstance(caught.value, gates.GateFailure)
    assert caught.value.result.first.name == "b"
    command = ["gate", "compare", *map(str, paths(folder)[:2]), "--quiet"]
    assert main([*command, "--tolerances", str(folder / "limits.json")]) == 1
    printed = capsys.readouterr().out.splitlines()
    first, where, *rest = str(caught.value).splitlines()
    assert first in printed and first.startswith("FAIL: 1 of 2 contract tensors pass")
    assert rest == [line for line in printed if line != first] and len(rest) >= 13
    assert where == "  at {} and {}, limits {}".format(*paths(folder))
    assert gates.check(*paths(folder, "reference")).ok
    assert gates.check(*paths(folder), only="a").ok


def test_several_candidates(folder: Path) -> None:
    reference, wrong, limits = paths(folder)
    with pytest.raises(gates.GateFailure) as caught:
        gates.check(reference, [reference, wrong], limits)
    first, where, *rest = str(caught.value).splitlines()
    assert first.startswith("FAIL: ") and where.count(str(wrong)) == 1
    assert any(line.startswith("6 Is it backend-specific") for line in rest)
    assert gates.check(reference, [reference], limits).ok


def test_an_invalid_comparison_is_no_assertion(folder: Path) -> None:
    for side in ("reference", "candidate"):
        (folder / side / "run.json").write_text(json.dumps({"input_hashes": {"x": side}}))
    with pytest.raises(gates.GateInvalid, match=r"^INVALID: .*\n.*\n(.*\n)*INVALID  the inputs"):
        gates.check(*paths(folder))
    assert not issubclass(gates.GateInvalid, AssertionError)


def test_unittest_tells_failures_from_errors(folder: Path) -> None:
    class Port(unittest.TestCase):
        def test_wrong(self) -> None:
            gates.check(*paths(folder))

        def test_unusable(self) -> None:
            gates.check(*paths(folder, "nowhere"))

    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Port).run(found)
    assert [(len(found.failures), len(found.errors))] == [(1, 1)]
