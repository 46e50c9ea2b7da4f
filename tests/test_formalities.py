"""Runs first: ops and entries match, records are complete, imports go one way, sizes hold."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autodiff as ad
import catalogue
from autodiff.errors import OpError
from autodiff.op import OPS, Op
from autodiff.op import define as define_op
from autodiff.op import get as registered
from autodiff.program import Spec
from catalogue import ENTRIES, EXCLUSIONS
from catalogue.domain import Domain
from catalogue.entry import Entry, Exclusion, Sample, Special, define
from catalogue.errors import CatalogueError
from checks.power.mutations import mutation
from checks.runner import Item, check_names, items, run_item, subjects
from checks.surfaces.base import load

ROOT = Path(__file__).parents[1]
PACKAGES = ("autodiff", "catalogue", "checks")
ALLOWED = {
    "autodiff": {"autodiff"},
    "catalogue": {"autodiff", "catalogue"},
    "checks": set(PACKAGES),
}
SOURCES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))


def test_every_op_has_an_entry_and_every_entry_an_op() -> None:
    assert set(OPS) == set(ENTRIES)


def test_at_least_120_ops() -> None:
    assert len(OPS) >= 120


NAMED = """
NEG ABS EXP LOG SQRT RSQRT TANH SIGMOID RELU GELU SILU STEP SIN COS TAN ATAN SIGN NOT EXPM1 LOG1P
ADD SUB MUL DIV POW LAND WHERE COMPARE CAST LGAMMA DIGAMMA TRIGAMMA POLYGAMMA
SUM MEAN MAX MIN ARGMAX SOFTMAX LOGSUMEXP LOG_SOFTMAX CROSS_ENTROPY SOFT_CROSS_ENTROPY MATMUL DOT
RESHAPE TRANSPOSE BROADCAST CONCAT SLICE PAD REVERSE SUM_TO BROADCAST_LIKE PAD_TO SLICE_AT
SLICE_LIKE PAD_LIKE ZEROS_LIKE CHECK_SHAPE_LIKE CHOLESKY TRIANGULAR_SOLVE TRIANGLE SOLVE DET QR EIGH
LAYERNORM RMSNORM BATCHNORM IF WHILE CONV2D CONV_TRANSPOSE2D MAXPOOL2D AVGPOOL2D
GATHER SCATTER SCATTER_ADD EMBEDDING DYNAMIC_SLICE DYNAMIC_UPDATE_SLICE SORT TOP_K
SCALED_DOT_PRODUCT_ATTENTION EINSUM DOT_GENERAL PROD CUMSUM CUMPROD VAR STD NORM MAXIMUM MINIMUM
HYPOT LOGADDEXP XLOGY ERF ERFC ERFINV IGAMMA BETAINC SVD INV SLOGDET EXPM INDEX INDEX_UPDATE
TAKE_ALONG_AXIS CONV1D ROPE SWIGLU LSTM_CELL RNG_UNIFORM RNG_NORMAL FFT RFFT STACK ROLL
KL_DIVERGENCE SQUARE RECIPROCAL LOG_SIGMOID SOFTPLUS SINC EXPREL
SCAN CUSTOM_JVP CUSTOM_VJP STOP_GRADIENT CHECKPOINT TAP GUARD
""".split()


@pytest.mark.parametrize("kind", NAMED)
def test_the_named_kinds_exist(kind: str) -> None:
    assert kind in OPS


@pytest.mark.parametrize("kind", sorted(ENTRIES))
def test_samples_are_drawn_alike_each_time(kind: str) -> None:
    first, second = ENTRIES[kind].all_samples(), ENTRIES[kind].all_samples()
    assert [s.name for s in first] == [s.name for s in second]
    for a, b in zip(first, second, strict=True):
        for x, y in zip(ad.tree.flatten(a.args)[0], ad.tree.flatten(b.args)[0], strict=True):
            np.testing.assert_array_equal(x, y)


def test_sample_and_special_names_do_not_clash() -> None:
    for kind in ENTRIES:
        names = [s.sample for s in subjects(kind)]
        assert len(set(names)) == len(names), kind


def _documented(kind: str) -> bool:
    function = ENTRIES[kind].function
    names = {n.replace("_", ""): n for n in dir(ad.ops)}
    public = getattr(ad.ops, names.get(kind.lower().replace("_", ""), ""), None)
    return any(bool(getattr(x, "__doc__", "")) for x in (function, public)) or bool(OPS[kind].doc)


@pytest.mark.parametrize("kind", sorted(OPS))
def test_an_op_has_a_function_with_a_docstring(kind: str) -> None:
    assert callable(ENTRIES[kind].function)
    assert _documented(kind)


def test_differentiable_ops_have_rules() -> None:
    for op in OPS.values():
        if op.derivative == "rule":
            assert op.jvp or op.body or op.vjp, op.kind
        if op.vjp and not op.control:
            assert op.batch, f"{op.kind}: a composite with its own vjp needs a batching rule"


def test_exclusions_and_overrides_name_what_exists() -> None:
    check_names()
    for known in EXCLUSIONS:
        re.compile(known.error)


def test_an_op_without_an_entry_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Op("LONELY", lambda x: x, impl=np.negative, batch=lambda *a: a, jax="jnp.negative")
    monkeypatch.setitem(OPS, "LONELY", lone)
    with pytest.raises(AssertionError):
        test_every_op_has_an_entry_and_every_entry_an_op()


def test_an_entry_without_samples_fails() -> None:
    empty = Entry("EMPTY", np.exp, lambda rng: ())
    with pytest.raises(ValueError, match="entry EMPTY has no samples"):
        empty.all_samples()


def test_a_duplicate_entry_is_an_error() -> None:
    with pytest.raises(ValueError, match="catalogue entry EXP is defined twice") as caught:
        define(ENTRIES["EXP"])
    _, where, fix = str(caught.value).splitlines()
    assert re.fullmatch(
        r"at tests/test_formalities\.py:\d+, and before it at catalogue/transcendental\.py:\d+",
        where,
    )
    assert fix.startswith("remove one of them")
    with pytest.raises(OpError, match="op EXP is defined twice") as caught_op:
        define_op(OPS["EXP"])
    assert len(str(caught_op.value).splitlines()) == 3


def test_an_unknown_op_suggests_the_nearest() -> None:
    with pytest.raises(OpError, match="(?s)unknown op 'LOGSOFTMAX'.*'LOG_SOFTMAX'"):
        catalogue.entry("LOGSOFTMAX")
    with pytest.raises(OpError, match="(?s)unknown surface 'revers'.*'reverse'"):
        items(surfaces=["revers"])


@pytest.mark.parametrize("name", ["EXPP", "zzzzzz"])
def test_an_unknown_name_gets_three_lines(name: str) -> None:
    """What, where and a way out, also where nothing known is near."""
    calls: list[Callable[[], object]] = [
        lambda: catalogue.entry(name),
        lambda: registered(name),
        lambda: items(surfaces=[name]),
        lambda: run_item(Item("EXP", "f32"), sample=name),
        lambda: mutation(name),
    ]
    for call in calls:
        with pytest.raises(OpError) as caught:
            call()
        what, where, fix = str(caught.value).splitlines()
        assert repr(name) in what and where.startswith("in ") and fix


def test_a_filter_that_selects_nothing_is_an_error() -> None:
    with pytest.raises(OpError, match="the selection holds no check"):
        items(ops=["EXP"], shard=(_other_shard("EXP"), 97))


def _other_shard(kind: str) -> int:
    import zlib

    return (zlib.crc32(kind.encode()) + 1) % 97 + 1


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: Sample("a b", ()), "empty or holds blanks"),
        (lambda: Sample("a", (), tags=frozenset({"odd"})), "unknown tags"),
        (lambda: Special("a", ()), "states nothing"),
        (lambda: Special("a", (), 1.0, gradients=(1.0,)), "come together"),
        (lambda: Exclusion("EXP", "f32", "maybe", "a b c", "x"), "exclusion kind 'maybe'"),
        (lambda: Exclusion("EXP", "f32", "wrong", "because", "x"), "needs a reason"),
        (lambda: Domain("reel"), "domain kind 'reel'"),
        (lambda: Domain(low=1.0, high=0.0), "not in order"),
        (lambda: Op("lower", lambda x: x, impl=np.exp), "not an upper-case name"),
        (lambda: Op("BOTH", lambda x: x, impl=np.exp, body=np.exp), "needs either impl"),
        (lambda: Op("NEITHER", lambda x: x), "either impl"),
        (lambda: Op("NO_BATCH", lambda x: x, impl=np.exp, jax="jnp.exp"), "no batching rule"),
        (lambda: Op("ODD", lambda x, *, axis: x, body=lambda x, *, dim: x), "parameters of body"),
    ],
)
def test_records_check_themselves(build: object, text: str) -> None:
    with pytest.raises((ValueError, OpError), match=text) as caught:
        build()  # type: ignore[operator]
    if isinstance(caught.value, CatalogueError):
        _, where, fix = str(caught.value).splitlines()
        assert "tests/test_formalities.py:" in where and fix


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert _imports(path) & set(PACKAGES) <= ALLOWED[package]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450


def test_no_tolerance_outside_the_table() -> None:
    """No float literal below 1e-3 stands in checks/ outside the table of tolerances (colours of
    the report, and the models that are ported, apart)."""
    found = []
    for path in (ROOT / "checks").rglob("*.py"):
        if {"ports", "faults"} & set(path.parts):  # the epsilons of norms
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Constant) and isinstance(value, float):
                if 1e-290 < abs(value) < 1e-3 and "report" not in path.parts:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {value}")
    assert not found, found


def test_surfaces_are_all_there() -> None:
    assert set(load()) >= {
        "shapes",
        "f32",
        "exact",
        "reverse",
        "forward",
        "second",
        "vmap",
        "render",
        "execute",
        "emit_f32",
        "emit_f64",
        "device_f32",
        "device_f64",
        "device_self",
        "special",
    }


def test_specs_are_values() -> None:
    assert Spec((2, 3), np.dtype("float32")) == Spec([2, 3], "f4")  # type: ignore[arg-type]
