"""The pytest fixture `gate`: dump a candidate in a test, compare it with a stored reference.

    def test_port(gate):
        with gate.dump("candidate") as d:
            d.put("enc.out", port(x))
        gate.check("golden/reference", d.folder, "tolerances/model.json")

Imports nothing heavy at load: every pytest run of anyone who has gradsweep installed pays for it.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump
    from checks.gates.comparison.policy import Policy
    from checks.gates.comparison.record import Result
    from checks.gates.comparison.several import Comparison

# What a report of the call phase is called where nothing is known of the candidate.
WORDS = {2: "INVALID", 3: "UNUSABLE"}
_LONGEST = 120


class Gate:
    """What the fixture `gate` gives.

    Arguments:
        request: of the test.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._node, self._config = request.node, request.config
        self._request = request
        self._checks = 0
        self._folders: dict[str, int] = {}

    @property
    def folder(self) -> Path:
        """The test's temporary folder (`tmp_path`)."""
        found: Path = self._request.getfixturevalue("tmp_path")
        return found

    def dump(self, side: str = "candidate", **options: Any) -> "Dump":
        """Return a `gates.Dump` in a new folder of the test; its `folder` says which.

        Arguments: the side, which names the folder; the options of `gates.Dump`.
        """
        from checks.gates.capture.dump import Dump

        number = self._folders.get(side, 0)
        self._folders[side] = number + 1
        name = f"{side}-{number}" if number else side
        options.setdefault("command", f"pytest {self._node.nodeid}")
        return Dump(self.folder / name, side=side, **options)

    def check(
        self,
        reference: str | Path,
        candidate: str | Path | Sequence[str | Path],
        tolerances: str | Path,
        *,
        names: str | Path | None = None,
        only: str | None = None,
        reference64: str | Path | None = None,
        policy: "Policy | None" = None,
    ) -> "Result | Comparison":
        """Assert that a candidate is within the tolerances of the reference: see `gates.check`.

        Relative paths start at pytest's root folder. The verdict stands in the test's properties
        (JUnit), and in files under --gate-report.
        """
        __tracebackhide__ = True
        from checks.gates.assertion import asserted, judged
        from checks.gates.errors import GateError

        theirs: Path | list[Path]
        if isinstance(candidate, str | Path):
            theirs = self._path(candidate)
        else:
            theirs = [self._path(c) for c in candidate]
        ours, limits = self._path(reference), self._path(tolerances)
        rules, wide = [None if p is None else self._path(p) for p in (names, reference64)]
        try:
            result = judged(ours, theirs, limits, rules, only, wide, policy)
        except GateError as error:
            raise error.with_traceback(None) from None  # the test's line alone
        self._node.user_properties += properties(result)
        self._report(result)
        return asserted(result)

    def _path(self, path: str | Path) -> Path:
        return Path(self._config.rootpath, path)

    def _report(self, result: "Result | Comparison") -> None:
        """Write the comparison as JSON and as a page, named after the test."""
        folder = self._config.getoption("--gate-report")
        number, self._checks = self._checks, self._checks + 1
        if not folder:
            return
        from checks.gates.reports.page import page
        from checks.gates.reports.terminal import to_json, write

        name = file_name(self._node.nodeid) + (f"-{number}" if number else "")
        for suffix, text in ((".json", to_json(result)), (".html", page(result))):
            write(self._path(folder) / (name + suffix), text, "--gate-report")


def file_name(nodeid: str) -> str:
    """Return a test's id as the name of a file; a long one with a digest."""
    name = re.sub(r"[^\w.=-]+", "-", nodeid).strip("-")
    if len(name) <= _LONGEST:
        return name
    import hashlib

    return name[:_LONGEST] + "-" + hashlib.sha256(nodeid.encode()).hexdigest()[:8]


def properties(result: "Result | Comparison") -> list[tuple[str, str]]:
    """Return the verdict as properties of a test: first, cause, exit_code, figures."""
    first = result.first
    several: Any = getattr(result, "results", (result,))
    rows = [row for one in several for row in one.rows]
    figures: dict[str, Any] = {
        "contract": sum(r.contract for r in rows),
        "failed": sum(r.failed for r in rows),
    }
    cause = ""
    if first is not None:
        record = first.to_record()
        kept = ("status", "max_abs", "mean_abs", "relative_rms", "limit")
        figures |= {k: record[k] for k in kept if k in record}
        cause = first.cause.name if first.cause else "unclassified"
    return [
        ("first", first.name if first else ""),
        ("cause", cause),
        ("exit_code", str(result.exit_code)),
        ("figures", json.dumps(figures)),
    ]


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Gate:
    """The tensor gate: `gate.dump(side)` opens a dump, `gate.check(...)` compares two."""
    return Gate(request)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the gate."""
    parser.getgroup("gradsweep").addoption(
        "--gate-report", metavar="DIR", help="write each comparison there, as JSON and as a page"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Mark the report of a test in which no valid comparison was possible, or no file usable."""
    code = None
    if call.excinfo is not None and call.when == "call":
        code = _code(call.excinfo.value, "gate" in getattr(item, "fixturenames", ()))
        if code in WORDS and "exit_code" not in dict(item.user_properties):
            item.user_properties.append(("exit_code", str(code)))
    report = yield
    if code in WORDS:
        report.gate_exit_code = code
    return report


def _code(error: BaseException, uses_gate: bool) -> int | None:
    """The exit code of `GateInvalid`; in a test that uses the gate, of a `GateError` too."""
    kind = type(error)
    if kind.__module__.startswith("checks.gates.") and (
        uses_gate or kind.__name__ == "GateInvalid"
    ):
        code: int | None = getattr(error, "code", None)
        return code
    return None


def pytest_report_teststatus(report: Any) -> Any:
    """An error, and no failure: nothing is known of the candidate."""
    word = WORDS.get(getattr(report, "gate_exit_code", None) or 0)
    return ("error", "E", word) if word and report.failed else None


def pytest_configure(config: pytest.Config) -> None:
    """Have the JUnit file tell errors from failures as the terminal does."""
    path = getattr(config.option, "xmlpath", None)
    if path and not hasattr(config, "workerinput"):
        file = Path(os.path.expandvars(path)).expanduser().absolute()
        config.pluginmanager.register(_JUnit(file), "gradsweep-gate-junit")


class _JUnit:
    """pytest writes a failure for whatever a test raises; what proves nothing becomes an error."""

    def __init__(self, file: Path) -> None:
        self._file, self._marked = file, False

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note whether there is anything to change."""
        self._marked |= getattr(report, "gate_exit_code", None) in WORDS

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Change the file, which was just written."""
        if not (self._marked and self._file.exists()):
            return
        from xml.etree import ElementTree

        tree = ElementTree.parse(self._file)
        for suite in tree.iter("testsuite"):
            changed = [f for c in suite.iter("testcase") for f in c.iter("failure") if _ours(c, f)]
            for failure in changed:
                failure.tag = "error"
            for name, by in (("failures", -len(changed)), ("errors", len(changed))):
                suite.set(name, str(int(suite.get(name, "0")) + by))
        tree.write(self._file, encoding="utf-8", xml_declaration=True)


def _ours(case: Any, failure: Any) -> bool:
    codes = [p.get("value") for p in case.iter("property") if p.get("name") == "exit_code"]
    raised = str(failure.get("message", "")).startswith("checks.gates.")
    return raised and codes[-1:] in ([str(code)] for code in WORDS)
