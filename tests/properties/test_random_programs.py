"""Every road of random programs: both modes, differences, vmap, interpreters, source, text.

Each property is a plain function of a program, so that `test_finds_bugs.py` can hold it against
broken rules.
"""

from typing import Any

import numpy as np
from hypothesis import example, given, note
from hypothesis import strategies as st

import autodiff as ad
from autodiff import rounding
from autodiff.interpret import evaluate_native, interpret_flat
from autodiff.interpret import run as run_program
from autodiff.isolated import run_rendered
from autodiff.parse import parse
from autodiff.program import Literal, Program
from autodiff.simplify import simplify
from autodiff.text import to_text
from checks.differences import directional
from tests.properties.programs import RandomProgram, Step, programs

Array = np.ndarray[Any, Any]


def random_like(arrays: Any, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=np.shape(a))) for a in arrays]


def pair(us: Any, vs: Any) -> float:
    return float(sum(np.sum(u * v) for u, v in zip(us, vs, strict=True)))


def size_of(*values: Any) -> float:
    """What an error is measured in: the largest magnitude, at least 1."""
    return max([1.0, *(float(np.max(np.abs(v), initial=0.0)) for v in values)])


def assert_close(got: Any, expected: Any, tolerance: float) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * size_of(expected))


def whole(p: RandomProgram) -> tuple[Program, list[Array]]:
    """One program of values, tangents and cotangents, and its flat arguments."""
    dots, cts = random_like(p.args, 1), random_like(p.flat(*p.args), 2)
    n = len(p.args)

    def everything(*flat: Any) -> list[Any]:
        args, t, ct = flat[:n], flat[n : 2 * n], flat[2 * n :]
        _, out_dots = ad.jvp(p.flat, args, t)
        values, pullback = ad.vjp(p.flat, *args)
        return [*values, *out_dots, *pullback(list(ct))]

    args = [*p.args, *dots, *cts]
    return ad.trace(everything, *args), args


# --- derivatives -------------------------------------------------------------------------------


def check_dot(p: RandomProgram) -> None:
    """<u, J v> = <J^T u, v>."""
    v = random_like(p.args, 1)
    values, dots = ad.jvp(p.flat, tuple(p.args), tuple(v))
    u = random_like(values, 2)
    gradients = ad.vjp(p.flat, *p.args)[1](u)
    left, right = pair(u, dots), pair(gradients, v)
    assert np.isfinite(left)
    terms = size_of(*(a * b for a, b in zip([*u, *gradients], [*dots, *v], strict=True)))
    assert abs(left - right) <= 1e-10 * terms


def check_differences(p: RandomProgram) -> None:
    """Reverse mode against differences along one direction."""
    v = random_like(p.args, 3)
    found = directional(p.flat, p.args, v)
    u = random_like([d.value for d in found], 4)
    gradients = ad.vjp(p.flat, *p.args)[1](u)
    expected = pair(u, [d.value for d in found])
    estimate = sum(float(np.sum(np.abs(a) * d.estimate)) for a, d in zip(u, found, strict=True))
    terms = size_of(*(a * d.value for a, d in zip(u, found, strict=True)))
    assert abs(pair(gradients, v) - expected) <= 1e-7 * terms + 20.0 * estimate


# --- vmap --------------------------------------------------------------------------------------


def check_vmap(p: RandomProgram, axes: list[int | None], out_axis: int) -> None:
    """vmap of value and gradient against a loop over rows."""
    size = 3
    rows = [_rows(a, size, axis) for a, axis in zip(p.args, axes, strict=True)]
    weights = random_like(p.flat(*p.args), 5)

    def gradients(*args: Any) -> Any:
        values, pullback = ad.vjp(p.flat, *args)
        return [*values, *pullback(weights)]

    stacked = [
        r[0] if axis is None else np.stack(r, axis) for r, axis in zip(rows, axes, strict=True)
    ]
    batched = ad.vmap(gradients, tuple(axes), out_axis)(*stacked)
    one_by_one = [gradients(*(r[b] for r in rows)) for b in range(size)]
    for i, got in enumerate(batched):
        assert_close(got, np.stack([row[i] for row in one_by_one], out_axis), 1e-10)


def _rows(a: Array, size: int, axis: int | None) -> list[Array]:
    """Rows of a batch: small changes of the argument, the same one where it is shared."""
    return [a if axis is None else a * (1.0 + 0.01 * b) for b in range(size)]


# --- roads -------------------------------------------------------------------------------------


def check_text(p: RandomProgram) -> None:
    """The text form of a program with its derivatives reads back."""
    program, args = whole(p)
    again = parse(to_text(program))
    assert again == program
    for got, want in zip(interpret_flat(again, *args), interpret_flat(program, *args), strict=True):
        np.testing.assert_array_equal(got, want)


def check_simplify(p: RandomProgram) -> None:
    """Simplification changes no value, and nothing is left to do after it."""
    program, args = whole(p)
    smaller = simplify(program)
    assert len(smaller.equations) <= len(program.equations)
    assert len(simplify(smaller).equations) == len(smaller.equations)
    for got, want in zip(
        interpret_flat(smaller, *args), interpret_flat(program, *args), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def check_compile(p: RandomProgram) -> None:
    """The fast executor against the interpreter; a second call leaves the first result alone."""
    program, args = whole(p)
    expected = interpret_flat(program, *args)
    compiled = ad.compile(lambda *flat: run_program(program, flat))
    first = compiled(*args)
    kept = [np.array(v) for v in first]
    compiled(*(a * 0.99 for a in args))
    for got, before, want in zip(first, kept, expected, strict=True):
        np.testing.assert_array_equal(got, before)
        assert_close(got, want, 1e-12)


def check_render(p: RandomProgram) -> None:
    """The printed source computes what the interpreter computes, bit for bit."""
    program, args = whole(p)
    source = ad.render(program)
    note(source)
    for got, want in zip(run_rendered(source, *args), interpret_flat(program, *args), strict=True):
        np.testing.assert_array_equal(got, want)


def check_rounding(p: RandomProgram) -> None:
    """The float32 interpreter rounds each primitive once, and stays near float64."""
    inner, args = whole(p)
    program = ad.inline(inner)
    args = [np.asarray(a.astype(np.float32), np.float64) for a in args]
    narrow = interpret_flat(program, *args, precision="float32")
    if not any(eq.op.control for eq in program.equations):
        for got, want in zip(narrow, _rounded_once(program, args), strict=True):
            np.testing.assert_array_equal(got, want)
    n = len(p.flat(*p.args))
    for got, want in zip(narrow[:n], interpret_flat(program, *args)[:n], strict=True):
        assert got.dtype == np.float32 or got.dtype.kind in "biu"
        assert_close(got, want, 1e-3)


def _rounded_once(program: Program, args: list[Array]) -> list[Array]:
    """Each equation in float64 on float32 operands, its results rounded: the definition."""

    def narrow(x: Any) -> Any:
        x = np.asarray(x)
        return np.asarray(rounding.round_to(x, np.dtype("float32"))) if x.dtype.kind == "f" else x

    env: dict[Any, Any] = dict(zip(program.inputs, map(narrow, args), strict=True))
    for eq in program.equations:
        operands = [narrow(a.value) if isinstance(a, Literal) else env[a] for a in eq.inputs]
        result = evaluate_native(eq.op, operands, dict(eq.params))
        results = result if eq.op.multiple else (result,)
        env.update(zip(eq.outputs, map(narrow, results), strict=True))
    return [narrow(a.value) if isinstance(a, Literal) else env[a] for a in program.outputs]


# --- the tests ---------------------------------------------------------------------------------

ANY, SMOOTH = programs(), programs(smooth=True, max_steps=4)


def written(shape: tuple[int, ...], *texts: str) -> RandomProgram:
    """A program of one input, each step's text given; the last two steps are the results."""
    steps = tuple(Step(f"v{i}", text) for i, text in enumerate(texts))
    return RandomProgram((shape,), 0, steps, tuple(s.name for s in steps[-2:]))


# found by these properties, kept as examples
VIEW_AMONG_RESULTS = written((2,), "np.sin(x0)", "np.flip(v0, 0)", "np.tan(np.cos(x0))")
NAN_NOT_CHOSEN = written((3,), "np.where(x0 > 0.1, np.sqrt(x0) * x0 ** 1.5, x0)", "np.sin(v0)")


def run(check: Any, p: RandomProgram, *rest: Any) -> None:
    """A property of a program, which is printed where the property fails."""
    note(p.listing())
    with np.errstate(all="ignore"):
        check(p, *rest)


@given(ANY)
@example(NAN_NOT_CHOSEN)
def test_forward_and_reverse_agree(p: RandomProgram) -> None:
    run(check_dot, p)


@given(SMOOTH)
def test_reverse_agrees_with_differences(p: RandomProgram) -> None:
    run(check_differences, p)


@given(ANY, st.data())
def test_vmap_is_a_loop(p: RandomProgram, data: st.DataObject) -> None:
    axes = [data.draw(st.sampled_from([0, -1, None]), "in_axes") for _ in p.args]
    if all(a is None for a in axes):
        axes[0] = 0
    run(check_vmap, p, axes, data.draw(st.sampled_from([0, -1]), "out_axes"))


@given(ANY)
def test_the_text_form_reads_back(p: RandomProgram) -> None:
    run(check_text, p)


@given(ANY)
def test_simplify_preserves_values(p: RandomProgram) -> None:
    run(check_simplify, p)


@given(SMOOTH)
def test_the_float32_interpreter_rounds_once(p: RandomProgram) -> None:
    run(check_rounding, p)


@given(ANY)
@example(VIEW_AMONG_RESULTS)
def test_the_executor_agrees_with_the_interpreter(p: RandomProgram) -> None:
    run(check_compile, p)


@given(ANY)
def test_rendered_source_agrees_with_the_interpreter(p: RandomProgram) -> None:
    run(check_render, p)
