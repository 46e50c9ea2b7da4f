"""The pytest plugin: the op sweep as test items, one per (op, surface); decorated functions.

Imports nothing heavy at load; every pytest run of anyone who has gradsweep installed pays for it.
Options: --sweep, --sweep-op, --sweep-surface, --sweep-shard i/n, --sweep-report DIR.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from checks.results import Row
    from checks.runner import Item

ROWS = "gradsweep_rows"
MARKERS = {
    "gradcheck": "a surface of a function under @gradient_check",
    "vmapcheck": "a surface of a function under @vmap_check",
} | dict.fromkeys(
    """reverse forward second third vmap shapes f32 exact render execute emit_f32 emit_f64
    device_f32 device_f64 device_self jit compile vmap_loop vmap_sizes vmap_out_axes vmap_gradients
    vmap_nested""".split(),
    "items of this surface (gradsweep)",
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options of the sweep, and the tensor gate's fixture."""
    from checks.gates import fixture

    pluginmanager.register(fixture, "gradsweep-gate")
    group = parser.getgroup("gradsweep", "op sweep (gradsweep)")
    group.addoption("--sweep", action="store_true", help="run the op sweep as test items")
    group.addoption("--sweep-op", action="append", metavar="KIND", help="only this op")
    group.addoption("--sweep-surface", action="append", metavar="NAME", help="only this surface")
    group.addoption("--sweep-shard", metavar="I/N", help="the ops of one part of N")
    group.addoption(
        "--sweep-report", metavar="DIR", help="where the report goes (default build/op-sweep)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register markers; check the options of a sweep; prepare its collection."""
    config.addinivalue_line("markers", "sweep(op, surface): one item of the op sweep")
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    if not _wanted(config):
        return
    if config.getoption("--sweep-shard"):
        _shard(config.getoption("--sweep-shard"))
    if not hasattr(config, "workerinput"):  # a mistake ends the run before workers start
        _selected(config)
    from autodiff._guard import check_imports

    check_imports()
    from autodiff.errors import AutodiffError
    from checks.pool import prepare_worker

    try:
        prepare_worker()
    except AutodiffError as error:
        raise pytest.UsageError(str(error)) from None
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(config), "gradsweep-controller")


def _wanted(config: pytest.Config) -> bool:
    names = ("--sweep", "--sweep-op", "--sweep-surface", "--sweep-shard")
    return any(config.getoption(n) for n in names)


def _shard(text: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d+/\d+", text):
        raise pytest.UsageError(f"--sweep-shard {text!r} is not I/N, such as 1/4")
    part, count = map(int, text.split("/"))
    return part, count


def _selected(config: pytest.Config) -> list[Item]:
    """The items that the options select. Raises UsageError where names are unknown."""
    from autodiff._guard import check_imports

    check_imports()
    from autodiff.errors import AutodiffError
    from checks.runner import check_names
    from checks.runner import items as sweep_items

    shard = config.getoption("--sweep-shard")
    try:
        check_names()
        return sweep_items(
            config.getoption("--sweep-op"),
            config.getoption("--sweep-surface"),
            _shard(shard) if shard else None,
        )
    except AutodiffError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Test files are not read where a sweep takes their place."""
    if not _wanted(config) or not collection_path.is_file():
        return None
    named = {Path(str(a).split("::")[0]).resolve() for a in config.args}
    return None if collection_path.resolve() in named else True


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """The sweep's items in place of the tests, in one order for every xdist worker."""
    if not _wanted(config):
        return
    found = _selected(config)
    collector = SweepCollector.from_parent(session, name="sweep", path=Path("sweep"))
    items[:] = [SweepItem.from_parent(collector, name=f"[{i.id}]", item=i) for i in found]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> Any:
    """One item a surface for each decorated function, whatever its name."""
    if "checks.properties.decorators" not in sys.modules:
        return None
    from checks.plugin_items import items_of

    return items_of(collector, name, obj)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Word the failure of a decorated function that lacks an argument."""
    report = yield
    if call.excinfo is not None and "checks.plugin_items" in sys.modules:
        from checks.plugin_items import missing_fixture

        missing_fixture(item, report, call)
    return report


class SweepCollector(pytest.Collector):
    """The parent of the sweep's items."""

    def __init__(self, path: Path, **kwargs: Any) -> None:
        super().__init__(nodeid="sweep", **{k: v for k, v in kwargs.items() if k != "nodeid"})
        del path

    def collect(self) -> Iterator[pytest.Item]:
        """Nothing by itself: items are added after collection."""
        return iter(())


class SweepFailure(Exception):
    """Samples of one item failed; every one is listed."""


class SweepItem(pytest.Item):
    """One op on one surface; its samples are looped inside and every failure is listed."""

    def __init__(self, item: Item, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.item = item
        self.add_marker(pytest.mark.sweep(op=item.op, surface=item.surface))

    def runtest(self) -> None:
        """Run the checks; numbers travel in user_properties."""
        from checks.results import FAIL, SKIPPED, STALE
        from checks.runner import run_item

        rows = run_item(self.item)
        self.user_properties.append((ROWS, json.dumps([r.to_json() for r in rows])))
        bad = [r for r in rows if r.status in (FAIL, STALE)]
        if bad:
            raise SweepFailure("\n\n".join(_text(r) for r in bad))
        if rows and all(r.status == SKIPPED for r in rows):
            pytest.skip(rows[0].reason)
        if not rows:
            pytest.skip("the surface says nothing about this op")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The failures' own words instead of a traceback."""
        if isinstance(excinfo.value, SweepFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """How pytest names the item."""
        return "sweep", None, f"sweep[{self.item.id}]"


def _text(row: Row) -> str:
    head = f"{row.op} {row.sample} {row.surface} {row.dtype}: {row.status}"
    return "\n".join(part for part in (head, row.message or row.reason, row.repro) if part)


class Controller:
    """Merges the rows of all workers and writes the report; lives in the controller alone."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.rows: list[Row] = []
        self.start = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the rows of a finished item."""
        if report.when != "call":
            return
        from checks.results import Row as RowType

        for name, value in report.user_properties:
            if name == ROWS:
                self.rows += [RowType.from_json(line) for line in json.loads(str(value))]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the report and print its table."""
        if not self.rows:
            return
        import io

        from checks.cli import REPORT, machine, versions
        from checks.report import Meta, write_all
        from checks.report.terminal import print_report

        wall = time.perf_counter() - self.start
        workers = getattr(self.config.option, "numprocesses", None) or 1
        folder = Path(self.config.getoption("--sweep-report") or REPORT)
        meta = Meta(
            title="gradsweep op sweep",
            wall=wall,
            workers=workers if isinstance(workers, int) else 1,
            command="pytest --sweep",
            versions=versions(),
            machine=machine(),
        )
        paths = write_all(self.rows, folder, meta)
        text = io.StringIO()
        print_report(self.rows, wall=wall, path=paths.page, stream=text)
        terminalreporter.write_line("")
        terminalreporter.write(text.getvalue())
