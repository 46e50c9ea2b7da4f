"""The text form: exact, complete, equal for equal programs, and refused with line and token."""

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import autodiff as ad
from autodiff import op as registry
from autodiff.errors import ProgramError
from autodiff.op import Op
from autodiff.parse import TextError, parse
from autodiff.program import Equation, Literal, Program, Spec, Var
from autodiff.text import key, literal_text, to_text


def constant_program(value):
    return Program((), (), (), (Literal(value),))


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def round_trip(program):
    again = parse(to_text(program))
    assert again == program
    assert hash(again) == hash(program)
    assert to_text(again) == to_text(program)
    return again


PAYLOAD = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)


CONSTANTS = [
    np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 0.1, 1 / 3]),
    np.float64(-0.0),
    np.array([0.1, 1e-45, 3.4028235e38, 16777217], np.float32),
    np.array([0.1, 6e-8, 65504, -0.0], np.float16),
    np.array([0.1, 1e-40, 3e38, np.nan, -0.0], ml_dtypes.bfloat16),
    np.array([complex(0.0, -0.0), complex(np.nan, np.inf), 1 / 3 + 0.1j]),
    np.array([1 / 3 - 2j], np.complex64),
    np.array([0, 2**64 - 1], np.uint64),
    np.array([-128, 127], np.int8),
    np.array([True, False]),
    np.zeros((0, 3)),
    np.zeros((2, 0), np.int32),
    np.arange(60.0).reshape(3, 4, 5)[::-1, :, ::2],
    np.arange(40, dtype=">f8"),
    PAYLOAD,
    PAYLOAD[0],
    np.broadcast_to(np.float32(-0.0), (1000, 1000)),
    np.full((5, 5), PAYLOAD[1]),
]


@pytest.mark.parametrize(
    "value", CONSTANTS, ids=[f"{i}_{v.dtype}" for i, v in enumerate(CONSTANTS)]
)
def test_constants_are_exact(value):
    again = round_trip(constant_program(value)).outputs[0].value
    assert same_bits(again, np.asarray(value, np.asarray(value).dtype.newbyteorder("=")))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["f8", "f4", "f2", "c16", "i8", "u1", "?"]).flatmap(
        lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=3, max_side=5))
    )
)
def test_any_constant_is_exact(value):
    assert same_bits(round_trip(constant_program(value)).outputs[0].value, value)


def test_numbers_take_their_shortest_form():
    assert literal_text(np.array(0.1, np.float32)) == "float32(0.1)"
    assert literal_text(np.array([1.5, -0.0])) == "float64[2](1.5, -0.0)"
    assert literal_text(np.ones((40, 40), np.int64)) == "int64[40,40](fill 1)"
    assert len(literal_text(np.random.default_rng(0).normal(size=1000))) < 11000


def test_repeated_elements_read_back_without_memory():
    (again,) = parse(to_text(constant_program(np.broadcast_to(2.5, (1000, 1000))))).outputs
    assert isinstance(again, Literal)
    assert again.value.strides == (0, 0)


def loss(params, x):
    h = np.exp(x * params["w"]) + 1.0
    return np.sum(np.log(h), axis=1)


def looped(x):
    total, ys = ad.scan(lambda c, a: (c * a + 1.0, c), x[0] * 1.0, x)
    y = ad.cond(total > 0, lambda v: np.exp(v), lambda v: v * 2.0, ys)
    return ad.while_loop(lambda c: np.sum(c) < 10.0, lambda c: c + 1.0, y)


def traced():
    rng = np.random.default_rng(3)
    params, x = {"w": rng.normal(size=4)}, rng.normal(size=(3, 4))
    yield ad.trace(loss, params, x)
    yield ad.trace(ad.grad(lambda p, v: np.sum(loss(p, v) ** 2)), params, x)
    yield ad.trace(ad.vmap(loss, in_axes=(None, 0)), params, rng.normal(size=(5, 3, 4)))
    yield ad.trace(looped, x[0])
    yield ad.trace(lambda v: ad.jvp(looped, (v,), (v,)), x[0])
    yield ad.trace(lambda v: v.astype(np.float32).astype(ml_dtypes.bfloat16), x)


@pytest.mark.parametrize("which", range(6))
def test_programs_read_back(which):
    program = list(traced())[which]
    again = round_trip(program)
    assert [eq.source for eq in again.equations] == [eq.source for eq in program.equations]
    assert again.in_specs == program.in_specs
    assert again.out_specs == program.out_specs


def test_nested_programs_are_indented():
    lines = to_text(ad.trace(looped, np.ones(3))).splitlines()
    (start,) = [i for i, line in enumerate(lines) if "branches=" in line]
    assert lines[start].startswith("    branches=(program ")
    assert lines[start + 1].startswith("      t0: float64[3]")
    # every body closes where it was opened
    assert all(
        len(line) - len(line.lstrip()) == 4 for line in lines if line.strip() == "}, program"
    )


def test_text_is_one_readable_line_an_equation():
    program = ad.trace(loss, {"w": np.ones(4)}, np.ones((3, 4)))
    lines = to_text(program).splitlines()
    assert lines[0] == "program loss(x0: float64[4], x1: float64[3,4]) {"
    assert lines[1].startswith("  t0: float64[3,4] = MUL x1, x0  # ")
    assert re.search(r"# \S*test_text\.py:\d+ in loss$", lines[1])
    assert lines[-2:] == ["  return t4", "}"]
    assert lines[-3].startswith("  t4: float64[3] = SUM t3 {axis=(1,), keepdims=False}")


def test_captures_are_kept():
    x, c = Var(Spec((2,), np.dtype(float))), Var(Spec((), np.dtype(float)))
    y = Var(Spec((2,), np.dtype(float)))
    program = Program((x,), (c,), (Equation(registry.get("ADD"), (x, c), {}, (y,)),), (y, c))
    again = round_trip(program)
    assert len(again.captures) == 1
    assert again.outputs[1] is again.captures[0]


def test_every_kind_of_parameter_reads_back(monkeypatch):
    op = Op(
        "KEEP",
        lambda x, **params: x,
        impl=lambda x, **params: x,
        batch=lambda *a, **p: None,
        jax="jnp.array",
    )
    monkeypatch.setitem(registry.OPS, "KEEP", op)
    inner = ad.trace(loss, {"w": np.ones(4)}, np.ones((3, 4)))
    params = {
        "integer": -3,
        "big": 2**70,
        "number": -0.0,
        "tiny": 5e-324,
        "not_a_number": float("nan"),
        "infinite": -float("inf"),
        "imaginary": complex(-0.0, 2.5),
        "text": 'it\'s "quoted"\n# {(,',
        "none": None,
        "flags": (True, False),
        "nested": ((1, (2.5,)), (), ("a",)),
        "dtype": np.dtype(np.float32),
        "narrow": np.dtype(ml_dtypes.bfloat16),
        "part": slice(None, -1, 2),
        "rest": ...,
        "spec": Spec((2, 3), np.dtype(np.int32)),
        "program": inner,
        "programs": (inner, inner),
        "array": np.float32(0.5),
    }
    x, y = Var(Spec((), np.dtype(float))), Var(Spec((), np.dtype(float)))
    program = Program((x,), (), (Equation(op, (x,), params, (y,), "f.py:1 in f"),), (y,))
    again = dict(parse(to_text(program)).equations[0].params)
    assert parse(to_text(program)) == program
    for name in params.keys() - {"not_a_number"}:
        assert again[name] == params[name], name
    assert np.isnan(again["not_a_number"])
    assert np.signbit(again["number"])
    assert np.signbit(again["imaginary"].real)


def test_rules_of_custom_derivatives_are_found_again():
    @ad.custom_jvp
    def square(x):
        return x * x

    @square.defjvp
    def rule(primals, tangents):
        return square(primals[0]), 3.0 * tangents[0]

    program = ad.trace(square, np.ones(2))
    assert parse(to_text(program)) == program
    gone = re.sub(r"rule '[^']*'", "rule 'another process'", to_text(program))
    with pytest.raises(TextError, match="lives only in the process") as caught:
        parse(gone)
    assert caught.value.token == "'another process'"


def test_equality_ignores_source_lines_and_variables():
    first = ad.trace(lambda x: np.exp(x) * 2.0, np.ones(3))
    second = ad.trace(lambda y: np.exp(y) * 2.0, np.ones(3))
    assert first.equations[0].source != second.equations[0].source
    assert first == second
    assert hash(first) == hash(second)
    assert first != ad.trace(lambda x: np.exp(x) * 2.5, np.ones(3))
    assert first != "program"


def test_keys_hold_digests_of_large_constants():
    values = np.random.default_rng(0).normal(size=5000)
    program, changed = constant_program(values), values.copy()
    changed[4321] = np.nextafter(changed[4321], 9)
    assert len(key(program)) < 200
    assert program != constant_program(changed)
    assert program == constant_program(values)


TEXT = """program f(x0: float64[3]) {
  t0: float64[3] = EXP x0  # a.py:1 in f
  t1: float64[] = SUM t0 {axis=(0,), keepdims=False}
  return t1
}"""


@pytest.mark.parametrize(
    ("old", "new", "line", "token", "what"),
    [
        ("EXP", "EXPP", 2, "EXPP", r"unknown op 'EXPP', did you mean"),
        ("SUM t0", "SUM t9", 3, "t9", "expected a variable defined above"),
        ("float64[3]", "float65[3]", 1, "float65", "expected a dtype"),
        ("keepdims=False", "keepdims=", 3, "}", "expected a parameter"),
        ("axis=(0,), ", "axis=(0, ", 3, "keepdims", "expected a dtype"),
        ("x0: float64[3]", "x0: float64[-3]", 1, "-3", "expected an extent"),
        ("EXP x0", "EXP x0 x0", 2, "x0", "expected the end of the line"),
        ("  return t1\n}", "  return t1", 4, "", "expected '}'"),
        ("t1: float64[] =", "t0: float64[] =", 3, "t0", "defined twice"),
        ("EXP x0", "EXP float64[2](1.0)", 2, "float64", "expected 2 elements, found 1"),
        ("EXP x0", 'EXP float64[2]("abc")', 2, '"abc"', "expected the base64 bytes"),
        ("return t1", "return <lambda>", 4, "<lambda>", "expected a variable"),
        ("}", "} 7", 5, "7", "text goes on"),
    ],
)
def test_errors_name_the_line_and_the_token(old, new, line, token, what):
    bad = (
        TEXT[::-1].replace(old[::-1], new[::-1], 1)[::-1]
        if old == "}"
        else TEXT.replace(old, new, 1)
    )
    with pytest.raises(TextError, match=what) as caught:
        parse(bad)
    assert (caught.value.line, caught.value.token) == (line, token)
    assert str(caught.value).splitlines()[1].startswith(f"line {line}, at ")
    assert len(str(caught.value).splitlines()) == 3


def test_a_wrong_spec_is_an_error_of_the_program():
    with pytest.raises(ProgramError, match="the spec rule gives"):
        parse(TEXT.replace("t0: float64[3]", "t0: float64[4]"))


def test_comments_and_blank_lines_between_equations_are_skipped():
    spaced = TEXT.replace("\n  t1", "\n\n  # a remark\n  t1")
    assert parse(spaced) == parse(TEXT)
