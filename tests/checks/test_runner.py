"""The sweep's runner: items, exclusions, user functions, differences."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from autodiff.errors import OpError
from catalogue.entry import Exclusion
from checks import runner
from checks.differences import directional, one_sided
from checks.judge import CheckError, Judge
from checks.results import EXCLUDED, FAIL, PASS, STALE
from checks.runner import Item, check_function, items, run_item
from checks.subject import from_function
from checks.surfaces.base import surface


def test_items_are_grouped_and_sharded():
    every = items()
    assert len({i.id for i in every}) == len(every)
    parts = [items(shard=(k, 3)) for k in (1, 2, 3)]
    assert sorted(i.id for p in parts for i in p) == sorted(i.id for i in every)
    assert {i.surface for i in items(ops=["exp"], surfaces=["f32"])} == {"f32"}
    with pytest.raises(OpError, match="shard 4/3 does not exist"):
        items(shard=(4, 3))


def test_a_right_op_passes_and_its_rows_carry_numbers():
    rows = run_item(Item("EXP", "reverse"))
    assert {r.status for r in rows} == {PASS}
    assert all(r.seed is not None and r.evaluations > 0 and r.tolerance for r in rows)
    assert all("gradsweep sweep --op EXP --surface reverse" in r.repro for r in rows)


def test_an_unknown_sample_suggests_the_nearest():
    with pytest.raises(OpError, match="(?s)no sample 'shape_scala'.*shape_scalar"):
        run_item(Item("EXP", "reverse"), sample="shape_scala")


def test_only_the_ops_asked_for_are_prepared(monkeypatch):
    prepared = []
    spied = dataclasses.replace(
        surface("render"),
        prepare=lambda group, dtype: prepared.append({s.name for s in group}),
        check=lambda subject, dtype, judge: None,
    )
    monkeypatch.setattr(runner, "surface", lambda name: spied)
    run_item(Item("EXP", "render"), sample="shape_5")
    runner.run_chunk("render", ["EXP"])
    runner.run_chunk("render", ["EXP", "LOG"])
    assert prepared == [{"EXP"}, {"EXP"}, {"EXP", "LOG"}]


def exclude(monkeypatch, **fields):
    base = Exclusion("EXP", "reverse", "wrong", "for the sake of this test", error="gradient")
    monkeypatch.setattr(runner, "EXCLUSIONS", (dataclasses.replace(base, **fields),))


def test_an_exclusion_that_passes_is_stale(monkeypatch):
    exclude(monkeypatch, samples=("shape_5",))
    rows = run_item(Item("EXP", "reverse"))
    assert [r.sample for r in rows if r.status == STALE] == ["shape_5"]


def test_an_exclusion_that_matches_nothing_is_stale(monkeypatch):
    exclude(monkeypatch, samples=("no_such",))
    stale = [r for r in run_item(Item("EXP", "reverse")) if r.status == STALE]
    assert len(stale) == 1 and "matches no check" in stale[0].reason


@pytest.fixture
def broken(monkeypatch):
    """reverse fails for every sample, with a message of its own."""
    found = surface("reverse")

    def check(subject, dtype, judge):
        raise CheckError(f"gradient of {subject.sample} is off")

    from checks.surfaces.base import SURFACES

    monkeypatch.setitem(SURFACES, "reverse", dataclasses.replace(found, check=check))


def test_an_excluded_failure_holds_and_never_hides_another(monkeypatch, broken):
    exclude(monkeypatch, samples=("shape_5",))
    rows = run_item(Item("EXP", "reverse"))
    assert [r.sample for r in rows if r.status == EXCLUDED] == ["shape_5"]
    assert sum(r.status == FAIL for r in rows) == len(rows) - 1


def test_an_exclusion_that_fails_for_another_reason_fails(monkeypatch, broken):
    exclude(monkeypatch, error="overflow")
    rows = run_item(Item("EXP", "reverse"))
    assert {r.status for r in rows} == {FAIL}
    assert all("excluded for another reason" in r.message for r in rows)


def test_a_user_function_passes_on_host_surfaces():
    def loss(params, x):
        return np.sum(np.tanh(x @ params["w"] + params["b"]) ** 2)

    rng = np.random.default_rng(3)
    args = ({"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}, rng.normal(size=(4, 3)))
    names = ("shapes", "f32", "exact", "reverse", "forward", "second", "vmap", "execute")
    rows = check_function(loss, *args, surfaces=names)
    assert {r.surface for r in rows} == set(names)
    assert all(r.status == PASS for r in rows), [r.message for r in rows if r.status != PASS]


def test_a_wrong_custom_gradient_is_caught():
    @ad.custom_vjp
    def f(x):
        return np.sin(x)

    f.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (2.0 * ct * np.cos(x),))
    rows = check_function(f, np.linspace(0.2, 1.0, 5), name="f", surfaces=("reverse",))
    assert [r.status for r in rows] == [FAIL]
    assert "gradient along a random direction" in rows[0].message


def test_differences_of_a_single_wrong_entry():
    x = np.linspace(0.3, 1.2, 1000)

    @ad.custom_vjp
    def f(x):
        return np.sin(x)

    def bwd(x, ct):
        g = ct * np.cos(x)
        return (np.where(np.arange(1000) == 617, 1.001 * g, g),)

    f.defvjp(lambda x: (np.sin(x), x), bwd)
    assert [r.status for r in check_function(f, x, name="f", surfaces=("reverse",))] == [FAIL]


@pytest.mark.parametrize(
    ("f", "x", "slope"),
    [
        (lambda x: x**2, 1e9, 2e9),
        (np.log, 1e-7, 1e7),
        (np.sqrt, 1e-6, 500.0),
        (lambda x: 1e8 + np.sin(x), 1.0, np.cos(1.0)),
        (np.log, 1e-3, 1e3),
        (lambda x: 1 / x, 1e-3, -1e6),
        (lambda x: np.sin(1e4 * x), 0.3, 1e4 * np.cos(3e3)),
        (np.exp, 20.0, np.exp(20.0)),
        (lambda x: x**3, 1e-8, 3e-16),
        (lambda x: 1e-6 * np.sin(x), 1.0, 1e-6 * np.cos(1.0)),
    ],
    ids=["square", "log7", "sqrt", "offset", "log3", "reciprocal", "fast", "exp", "cube", "small"],
)
def test_differences_at_every_scale(f, x, slope):
    point = np.array([x])
    (found,) = directional(lambda p: [f(p)], [point], [point])
    error = abs(found.value[0] / x - slope)
    assert error <= 20 * found.estimate[0] / abs(x) + 1e-9 * abs(slope)
    assert found.estimate[0] / abs(x) <= 1e-3 * abs(slope) + 1e-8


def test_one_sided_slopes_of_a_kink_and_of_a_jump():
    zero = np.zeros(1)
    left, right, jumps = one_sided(lambda p: [np.abs(p)], [zero], [np.ones(1)])
    assert (left[0][0], right[0][0], jumps) == (-1.0, 1.0, False)
    assert one_sided(lambda p: [np.sign(p)], [zero], [np.ones(1)])[2]


def test_nan_never_agrees_with_nan_in_a_derivative():
    judge = Judge("reverse", "float64", None, "s")
    judge.number("slope", np.nan)
    assert judge.worst is not None and not judge.worst.ok
    judge = Judge("reverse", "float64", None, "s")
    judge.compare("gradient", np.array([np.nan]), np.array([np.nan]))
    assert judge.worst is not None and not judge.worst.ok


def test_subject_of_a_function_is_deterministic():
    subject = from_function(lambda x: x * 2.0, (np.ones(3),), "double")
    again = from_function(lambda x: x * 2.0, (np.ones(3),), "double")
    np.testing.assert_array_equal(subject.tangents()[0], again.tangents()[0])
    assert not np.array_equal(subject.tangents("a")[0], subject.tangents("b")[0])
    assert not np.all(subject.cotangents()[0] == 1.0)


def test_a_check_that_compared_nothing_has_not_passed(monkeypatch):
    from checks.results import SKIPPED
    from checks.surfaces.base import SURFACES

    idle = dataclasses.replace(surface("reverse"), check=lambda subject, dtype, judge: None)
    monkeypatch.setitem(SURFACES, "reverse", idle)
    rows = run_item(Item("EXP", "reverse"))
    assert {r.status for r in rows} == {SKIPPED}
    assert all("nothing was compared" in r.reason for r in rows)


def test_the_worst_comparison_is_kept_with_its_entry():
    judge = Judge("second", "float64", None, "s")
    judge.compare("first", np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    judge.compare("worst", np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 9.0]))
    judge.compare("equal", np.ones(2), np.ones(2))
    worst = judge.worst
    assert worst is not None and worst.comparison is not None
    assert (worst.label, worst.comparison.index, worst.comparison.expected) == ("worst", (2,), 9.0)
    assert worst.error == worst.comparison.error(worst.tolerance.unit)
    assert judge.evaluations == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_narrow_arguments_of_a_function_are_judged_at_double_precision(dtype):
    x = np.array([0.3, -0.7, 1.1]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    rows = check_function(
        lambda d, n: np.sum(np.exp(d["x"])) * n,
        {"x": x},
        2,
        surfaces=["reverse", "forward", "second", "vmap", "shapes", "f32", "render", "execute"],
    )
    assert {row.status for row in rows} == {"pass"}, [r.message for r in rows if r.message]


def test_one_program_of_values_tangents_and_cotangents():
    def f(x, n, y):
        return np.sin(x) * y[n], n + 1

    subject = from_function(f, (np.array(0.7), np.array(1), np.array([2.0, 3.0])))
    program, args = subject.derivative
    value, count, dot, x_bar, y_bar = ad.interpret(program, *args)
    x, n, y, (dx, dy), (ct,) = *subject.leaves, subject.tangents(), subject.cotangents()
    assert count == 2
    np.testing.assert_allclose(value, np.sin(x) * y[n], rtol=1e-15)
    np.testing.assert_allclose(dot, np.cos(x) * y[n] * dx + np.sin(x) * dy[n], rtol=1e-13)
    np.testing.assert_allclose(x_bar, ct * np.cos(x) * y[n], rtol=1e-13)
    np.testing.assert_allclose(y_bar, [0.0, ct * np.sin(x)], rtol=1e-13)


def test_one_program_of_everything_where_results_are_arguments():
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    subject = from_function(lambda a, b: (b, a * 2.0), (x, y))
    program, args = subject.derivative
    found = ad.interpret(program, *args)
    (dx, dy), (u, v) = subject.tangents(), subject.cotangents()
    for got, want in zip(found, (y, 2 * x, dy, 2 * dx, 2 * v, u), strict=True):
        np.testing.assert_array_equal(got, want)


def test_vmap_calls_the_function_once_for_equal_rows():
    from checks.surfaces.batching import _loop

    calls = []

    def f(x, y):
        if isinstance(x, np.ndarray):
            calls.append((x.copy(), y.copy()))
        return x * y

    subject = from_function(f, (np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    both, left = _loop(subject, (True, True)), _loop(subject, (True, False))
    assert len(calls) == 5  # the first rows are the arguments themselves
    np.testing.assert_array_equal(both[0][0], [3.0, 8.0])
    np.testing.assert_array_equal(left[0][0], [3.0, 8.0])
    assert not np.array_equal(both[0][1], left[0][1])


def test_differences_take_a_known_value_at_the_centre():
    points, direction = [np.array([0.3, 2.0])], [np.array([0.1, -1.0])]
    seen = []

    def f(p):
        seen.append(p.copy())
        return [np.sin(p)]

    (with_centre,) = directional(f, points, direction, f(*points))
    count = len(seen) - 1
    (without,) = directional(f, points, direction)
    assert len(seen) - 1 - count == count + 1
    np.testing.assert_array_equal(with_centre.value, without.value)
    np.testing.assert_array_equal(with_centre.estimate, without.estimate)
