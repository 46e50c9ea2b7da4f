"""Decorated functions as pytest items: names, markers, fixtures, parameters, Hypothesis, JUnit."""

import importlib.metadata
import importlib.util
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import hypothesis.extra.numpy
import pytest

# pytester forgets what a run inside this process imports, and JAX aborts at a second import.
import checks.gradients.check
import checks.gradients.frameworks.numpy
import checks.gradients.wording
import checks.plugin_items
import checks.properties.decorators
import checks.properties.mapping
import checks.runner
from checks.surfaces.base import load

if importlib.util.find_spec("jax") is not None:
    importlib.import_module("jax")

pytest_plugins = ["pytester"]
del checks, hypothesis  # loaded is all they need to be
ROOT = Path(__file__).parents[3]

HEAD = """
import numpy as np
import pytest
import autodiff as ad
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from checks import between, gradient_check, integers, normal, positive, spd, vmap_check

floats = st.floats(-2, 2, width=32)
arrays = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=4), elements=floats)


@ad.custom_vjp
def doubled(x):
    return np.sin(x)


doubled.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (2.0 * ct * np.cos(x),))
"""


@pytest.fixture
def run(pytester):
    load()
    installed = importlib.metadata.entry_points(group="pytest11")
    plugin = () if any(e.name == "gradsweep" for e in installed) else ("-p", "checks.plugin")

    def run(body, *options, subprocess=False):
        pytester.makepyfile(test_own=HEAD + body)
        runner = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
        return runner(*plugin, "-p", "no:cacheprovider", *options)

    return run


LOSS = """
@gradient_check(args=(normal(3, 4), positive(4)), order=3, surfaces=%s)
def my_loss(x, w):
    return np.sum(np.tanh(x @ np.log(w)) ** 2)
"""
PARTS = '("reverse", "forward", "second", "third", "vmap", "f32")'


def ids(result):
    return re.findall(r"::(\S+) PASSED", result.stdout.str())


def test_one_item_a_surface(run):
    result = run(LOSS % PARTS, "-v")
    result.assert_outcomes(passed=6)
    expected = ["reverse", "forward", "second", "third", "vmap", "f32"]
    assert ids(result) == [f"my_loss[{name}]" for name in expected]


def test_all_surfaces_are_collected_by_default(run):
    result = run(LOSS % "None", "--collect-only", "-q")
    found = re.findall(r"my_loss\[(\w+)\]", result.stdout.str())
    swept = [s for s in load() if s not in ("reverse", "forward", "second", "vmap", "special")]
    assert set(found) == {"reverse", "forward", "second", "third", "vmap", *swept}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("-k", "reverse"), 1),
        (("-k", "my_loss and not vmap"), 5),
        (("-m", "gradcheck and reverse"), 1),
        (("-m", "gradcheck"), 6),
        (("-m", "f32 or second"), 2),
        (("-m", "vmapcheck"), 0),
        (("--strict-markers", "-k", "forward"), 1),
    ],
    ids=["k", "k not", "m and", "m all", "m or", "m other", "strict"],
)
def test_selection(run, options, count):
    result = run(LOSS % PARTS, *options)
    outcomes = result.parseoutcomes()
    assert outcomes.get("passed", 0) == count
    assert outcomes.get("deselected", 0) == 6 - count


WRONG = """
@gradient_check(args=(normal(2, 3),), surfaces=("reverse", "f32"))
def wrong(x):
    return doubled(x)
"""


def test_a_failure_is_its_report_without_a_traceback(run):
    result = run(WRONG, "-k", "reverse")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    result.stdout.re_match_lines_random(
        [r"WRONG wrong", r'again +pytest "test_own.py::wrong\[reverse\]"']
    )
    assert "Traceback" not in text and "/checks/" not in text
    assert "FAILED test_own.py::wrong[reverse]" in text


def test_junit_has_the_numbers(run, pytester):
    run(LOSS % '("reverse", "f32")' + WRONG, "--junit-xml=out.xml")
    cases = ElementTree.parse(pytester.path / "out.xml").iter("testcase")
    found = {c.get("name"): c for c in cases}
    assert set(found) == {"my_loss[reverse]", "my_loss[f32]", "wrong[reverse]", "wrong[f32]"}
    numbers = {p.get("name"): p.get("value") for p in found["my_loss[reverse]"].iter("property")}
    assert numbers["gradsweep_verdict"] == "PASS"
    assert int(numbers["gradsweep_evaluations"]) > 2
    assert 0 < float(numbers["gradsweep_allowed"]) < 1e-6
    assert {"gradsweep_error", "gradsweep_seed", "gradsweep_detectable"} <= set(numbers)
    failure = found["wrong[reverse]"].find("failure")
    assert failure is not None and "WRONG" in str(failure.text)


def test_parameters_are_keyword_arguments_or_replace_args(run):
    body = """
@pytest.mark.parametrize("x", [normal(2), normal(2, 3)], ids=["flat", "deep"])
@pytest.mark.parametrize("n", [2.0, 3.0])
@gradient_check(args=(normal(9), positive(2, 1)), surfaces=("reverse", "f32"))
def powers(x, w, n):
    assert x.size in (2, 6) and type(n) is float  # a setting, not an argument under check
    return x ** n * w[0]
"""
    result = run(body, "-v")
    result.assert_outcomes(passed=8)
    assert "powers[reverse-3.0-deep]" in ids(result)


def test_other_arguments_are_fixtures(run):
    body = """
@pytest.fixture
def table(request):
    return np.arange(1.0, 4.0)

@gradient_check(args=(normal(3),), surfaces=("reverse", "forward"))
def weighted(x, table, scale=2.0):
    return np.sum(x * table) * scale

@gradient_check(surfaces="reverse")
def bare(table):
    return np.sin(table)

@gradient_check
def by_default(x=np.ones(3), *, request):
    assert request.node.name
    return np.sin(x)
"""
    result = run(body, "-k", "weighted or bare or reverse")
    result.assert_outcomes(passed=4, deselected=result.parseoutcomes()["deselected"])


def test_an_argument_that_nothing_gives_is_named(run):
    body = """
@gradient_check(args=(normal(3),), surfaces="reverse")
def lacking(x, weights):
    return x * weights
"""
    result = run(body)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "lacking is checked without a value for its argument weights",
            "test_own.py:*: no fixture or parameter has that name",
            "give one: @gradient_check(args=(normal(3, 4), ...)) or args={'weights': ...}",
        ]
    )


def test_methods_and_static_methods(run):
    body = """
class TestModel:
    def setup_method(self):
        self.scale = 2.0

    @gradient_check(args=(normal(3),), surfaces=("reverse", "forward"))
    def loss(self, x):
        return np.sin(x) * self.scale

    @staticmethod
    @gradient_check(args=(normal(3),), surfaces="reverse")
    def free(x):
        return np.sin(x)
"""
    run(body).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    "decorators",
    [
        '@gradient_check(args=(arrays,), surfaces="reverse")',
        '@gradient_check(surfaces="reverse")\n@given(arrays)',
        '@given(x=arrays)\n@gradient_check(surfaces="reverse")',
        '@gradient_check(surfaces="reverse")\n@settings(max_examples=30)\n@given(arrays)',
    ],
    ids=["args", "above given", "below given", "settings"],
)
def test_failures_are_shrunk_to_the_smallest_shape(run, decorators):
    result = run(f"\n{decorators}\ndef drawn(x):\n    return doubled(x)\n")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines_random(
        [
            r"WRONG drawn",
            r"example +the smallest failing one of \d+ drawn by Hypothesis:",
            r" +x = np\.array\(\[0\.\], dtype='float64'\), shape \(1,\)",
            r'again +pytest "test_own.py::drawn\[reverse\]"',
        ]
    )
    assert "Traceback" not in result.stdout.str()


def test_right_functions_of_drawn_arguments_pass(run):
    body = """
@gradient_check(args=(arrays,))
def right(x):
    return np.sum(np.sin(x) * x)

@gradient_check(surfaces="reverse")
@given(x=arrays, k=st.integers(1, 3))
def with_settings(x, k):
    assert isinstance(k, int)
    return np.cos(x) * k

@pytest.mark.parametrize("n", [1, 2])
@gradient_check(surfaces="reverse")
@settings(max_examples=5)
@given(x=arrays)
def with_parameters(x, n):
    return np.cos(x) * n
"""
    result = run(body, "-v")
    result.assert_outcomes(passed=6)
    names = [i for i in ids(result) if i.startswith("right")]
    assert names == ["right[reverse]", "right[forward]", "right[vmap]"]


def test_drawn_arguments_meet_methods_fixtures_parameters_and_examples(run):
    body = """
class TestModel:
    scale = 2.0

    @gradient_check(surfaces="reverse")
    @settings(max_examples=3)
    @given(x=arrays)
    def loss(self, x):
        return np.sin(x) * self.scale

@pytest.fixture
def table():
    return np.ones(1)

@gradient_check(surfaces="reverse")
@settings(max_examples=3)
@given(arrays)
def positional(table, x):
    return np.sin(x) * table

@pytest.mark.parametrize("x", [arrays, normal(3)], ids=["drawn", "fixed"])
@gradient_check(surfaces="reverse", examples=3)
def either(x):
    return np.sin(x)

@pytest.mark.parametrize("k", [1, 2])
class TestClass:
    @gradient_check(args=(normal(2),), surfaces="reverse")
    def loss(self, x, k):
        return x ** k

@vmap_check(args=(arrays,), examples=3, surfaces="vmap_loop")
def mapped(x):
    return np.sum(x)
"""
    run(body).assert_outcomes(passed=7)


def test_a_property_whose_examples_are_all_zero_is_vacuous(run):
    body = """
@gradient_check(args=(arrays,), surfaces="reverse")
def constant(x):
    return np.sum(x * 0.0)
"""
    result = run(body)
    result.assert_outcomes(failed=1)
    assert "VACUOUS" in result.stdout.str()


def test_draws_do_not_depend_on_the_surface_or_the_run(run, pytester):
    body = """
import pathlib

@gradient_check(args=(normal(2),), surfaces=("reverse", "f32"))
def seen(x):
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        with pathlib.Path("seen.txt").open("a") as out:
            print(x.tolist(), file=out)
    return np.sin(x)
"""
    run(body, "-k", "f32")
    run(body, "-k", "reverse")
    lines = (pytester.path / "seen.txt").read_text().splitlines()
    # the first call of each run is at the point itself
    assert len(set(lines)) > 1
    first = lines[0]
    assert lines.count(first) >= 2


def test_a_missing_package_is_a_skip_that_says_so(run, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    gone = lambda name, package=None: None if name == "jax" else real(name, package)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", gone)
    result = run(LOSS % '("emit_f32", "reverse")', "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    assert "pip install gradsweep[jax]" in result.stdout.str()


def test_a_mode_that_does_not_exist_is_skipped_not_failed(run):
    body = """
@ad.custom_vjp
def only_reverse(x):
    return np.sin(x)

only_reverse.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (ct * np.cos(x),))

@gradient_check(args=(normal(99),), surfaces=("reverse", "forward"))
def one_mode(x):
    return only_reverse(x)

@gradient_check(args=(normal(3),), surfaces=("reverse", "forward"))
def none(x):
    return np.array([float(v) for v in x])
"""
    result = run(body, "-rs")
    result.assert_outcomes(passed=1, skipped=1, failed=2)
    assert "forward is not defined for one_mode" in result.stdout.str()


VMAP = """
@vmap_check(args=(normal(3), normal(3)))
def inner(x, y):
    return x @ y

@gradient_check(args=(normal(3),), surfaces="reverse")
@vmap_check(args=(normal(3),), surfaces=("vmap_loop", "vmap_nested"))
def both(x):
    return np.sin(x)
"""


def test_vmap_items(run):
    result = run(VMAP, "-v")
    result.assert_outcomes(passed=8)
    kinds = ["loop", "sizes", "out_axes", "gradients", "nested"]
    assert [i for i in ids(result) if i.startswith("inner")] == [f"inner[vmap_{k}]" for k in kinds]
    assert {i for i in ids(result) if i.startswith("both")} == {
        "both[reverse]",
        "both[vmap_loop]",
        "both[vmap_nested]",
    }
    run(VMAP, "-m", "vmapcheck and vmap_loop").assert_outcomes(passed=2, deselected=6)


def test_wrong_options_are_collection_errors(run):
    result = run('@gradient_check(args=(normal(3),), surfaces="revers")\ndef f(x):\n    return x\n')
    result.assert_outcomes(errors=1)
    text = result.stdout.str()
    assert "there is no surface 'revers'; did you mean 'reverse'" in text
    assert "decorators.py" not in text  # the user's line alone, not the way to the mistake


def test_a_method_that_numpy_lacks_names_the_framework_option(run):
    body = '@gradient_check(args=(normal(3),), surfaces="reverse")\ndef f(x):\n    return %s\n'
    result = run(body % "x.clone().sum()")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*one with .clone is of another framework*framework='torch'*"])
    result = run(body % "x.sum().item().real.clone()")  # a float's: of no framework
    assert "another framework" not in result.stdout.str()


def test_modules_without_decorators_are_left_alone(run):
    body = """
from unittest import mock

anything = mock.Mock()

def test_plain():
    assert True
"""
    run(body).assert_outcomes(passed=1)


@pytest.mark.slow
def test_two_workers(run, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    result = run(LOSS % PARTS + WRONG, "-n", "2", "-v", subprocess=True)
    result.assert_outcomes(passed=7, failed=1)
    text = result.stdout.str()
    assert "gw0" in text and "gw1" in text
    assert 'pytest "test_own.py::wrong[reverse]"' in text
