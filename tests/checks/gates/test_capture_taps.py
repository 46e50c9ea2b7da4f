"""Taps into dumps: our programs, eager, interpreted and compiled, and functions under JAX."""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autodiff as ad
from autodiff import ops, taps
from checks import gates
from checks.gates.capture import taps as capture_taps
from checks.gates.errors import GateError
from checks.gates.formats.readers import Side, open_side

RNG = np.random.default_rng(5)
X, W = RNG.normal(size=(48, 48)), RNG.normal(size=(48, 48)) / 7


def layers(x: Any, w: Any, tap: Callable[[str, Any], Any] = ad.tap) -> Any:
    """Four layers whose values the executor keeps in two places in turn."""
    for i in range(4):
        x = tap(f"enc.block.{i}.out", ops.tanh(x @ w))
    return tap("logits", x @ w)


def untapped(name: str, x: Any) -> Any:
    del name
    return x


def values(folder: Path) -> dict[str, np.ndarray]:
    return {key: stored.load() for key, stored in open_side(folder).tensors.items()}


def same(a: Any, b: Any) -> bool:
    return bool(np.asarray(a).tobytes() == np.asarray(b).tobytes())


def roads() -> dict[str, Callable[..., Any]]:
    program = ad.trace(layers, X, W)
    return {
        "eager": layers,
        "interpreted": lambda x, w: ad.interpret(program, x, w),
        "compiled": ad.compile(layers),
        "jax": ad.lower_jax(program),
    }


# --- our programs --------------------------------------------------------------------------


@pytest.mark.parametrize("road", ["eager", "interpreted", "compiled", "jax"])
def test_dumping_changes_no_bit_and_has_every_value(tmp_path: Path, road: str) -> None:
    f = roads()[road]
    before = f(X, W)
    with gates.Dump(tmp_path / "d", side="candidate") as d:
        during = f(X, W)
        assert not d._errors
    assert same(before, during) and same(before, f(X, W))
    found = values(tmp_path / "d")
    assert list(found) == [*(f"enc.block.{i}.out" for i in range(4)), "logits"]
    x = X
    for i in range(4):
        x = np.tanh(x @ W)
        np.testing.assert_allclose(found[f"enc.block.{i}.out"], x, rtol=1e-10, atol=1e-12)
    assert same(found["logits"], before)


def test_a_dump_without_the_mark_would_hold_other_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = ad.compile(layers)
    compiled(X, W)
    with gates.Dump(tmp_path / "d", side="candidate"):
        compiled(X, W)
    good = values(tmp_path / "d")
    kept: dict[str, Any] = {}
    monkeypatch.setattr(taps, "emit", kept.__setitem__)  # looks at the buffers after the run
    compiled(X, W)
    wrong = [name for name in good if not same(good[name], kept[name])]
    assert wrong[:3] == [f"enc.block.{i}.out" for i in range(3)]
    shared = [a for a in kept for b in kept if a != b and np.shares_memory(kept[a], kept[b])]
    assert shared


def test_a_tapped_value_is_shared_with_no_later_one(tmp_path: Path) -> None:
    """Writing into what a tap returned to the program must not reach what was dumped, or the
    argument."""
    given: dict[str, np.ndarray] = {}

    def f(x: Any) -> Any:
        return ad.tap("x", x) * 2.0

    with taps.collect(given.__setitem__), gates.Dump(tmp_path / "d", side="candidate"):
        ad.compile(f)(X)
    assert not np.shares_memory(given["x"], X)
    assert same(values(tmp_path / "d")["x"], X)


def test_a_tap_keeps_a_value_that_nothing_else_uses(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        ad.tap("unused", ops.exp(x))
        return x + 1.0

    with gates.Dump(tmp_path / "d", side="candidate"):
        ad.compile(f)(X)
    assert same(values(tmp_path / "d")["unused"], np.exp(X))


@pytest.mark.parametrize("run", [lambda f: f, ad.compile], ids=["eager", "compiled"])
def test_calls_in_scans_conditionals_and_batches(tmp_path: Path, run: Any) -> None:
    rows = RNG.normal(size=(3, 4))

    def step(carry: Any, row: Any) -> Any:
        carry = ad.tap("carry", carry + row)
        return carry, carry

    def looped(xs: Any) -> Any:
        return ad.scan(step, np.zeros(4), xs)[0]

    def either(x: Any) -> Any:
        up, down = (lambda x: ad.tap("up", x * 2.0)), (lambda x: ad.tap("down", -x))
        return ad.cond(ops.sum(x) > 0, up, down, x)

    def folded(name: str, f: Any, *args: Any) -> dict[str, np.ndarray]:
        with gates.Dump(tmp_path / name, side="candidate"):
            run(f)(*args)
        return values(tmp_path / name)

    found = folded("scan", looped, rows)
    assert list(found) == ["carry", "carry#1", "carry#2"]
    for i, value in enumerate(found.values()):
        np.testing.assert_allclose(value, rows[: i + 1].sum(0), rtol=1e-12, atol=1e-14)
    batch = RNG.normal(size=(2, 3, 4))
    found = folded("vmap scan", ad.vmap(looped), batch)
    assert [v.shape for v in found.values()] == [(2, 4)] * 3
    np.testing.assert_allclose(found["carry#2"], batch.sum(1), rtol=1e-12, atol=1e-14)
    assert list(folded("cond", either, np.ones(2))) == ["up"]
    assert list(folded("cond else", either, -np.ones(2))) == ["down"]
    assert set(folded("vmap cond", ad.vmap(either), rows)) == {"up", "down"}
    found = folded("vmap", ad.vmap(lambda x: ad.tap("x", x), in_axes=1), rows)
    assert same(found["x"], rows.T.copy())


def test_a_backward_pass_that_recomputes_taps_again(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return ops.sum(ops.sin(ad.tap("x", x * 2.0)))

    with gates.Dump(tmp_path / "d", side="candidate"):
        ad.grad(f)(X)
    assert list(values(tmp_path / "d")) == ["x"]
    with gates.Dump(tmp_path / "e", side="candidate"):
        ad.grad(ad.checkpoint(f))(X)
    assert list(values(tmp_path / "e")) == ["x", "x#1"]


def test_with_no_dump_open_nothing_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ad.compile(layers)
    compiled(X, W)
    calls: list[Any] = []
    monkeypatch.setattr(taps.np, "array", lambda *a: calls.append(a))  # the copy for a sink
    monkeypatch.setattr(gates.Dump, "put", lambda *a, **k: calls.append(a))
    for i in range(3):
        taps.emit(f"x{i}", X)
    assert calls == [] and not taps.is_open()


def test_the_list_of_tapped_values_stays_short(tmp_path: Path) -> None:
    """Memory is bounded: what went to disk is not kept."""
    import gc
    import weakref

    alive: list[weakref.ref[Any]] = []
    with gates.Dump(tmp_path / "d", side="candidate") as d:
        whole = d.put

        def watched(name: str, value: Any, **facts: Any) -> Any:
            alive.append(weakref.ref(value))
            return whole(name, value, **facts)

        d.put = watched  # type: ignore[method-assign]
        for _ in range(5):
            ad.tap("x", X)
        gc.collect()
        assert sum(r() is not None for r in alive) <= 1
    assert len(alive) == 5


def test_an_error_in_a_tap_reaches_the_caller(tmp_path: Path) -> None:
    compiled = ad.compile(lambda x: ad.tap("a/b", x))
    compiled(X)
    with (
        gates.Dump(tmp_path / "d", side="candidate"),
        pytest.raises(GateError, match="'a/b' holds '/'"),
    ):
        compiled(X)
    assert not taps.is_open()


def test_two_dumps_open_at_once_both_get_the_value(tmp_path: Path) -> None:
    with (
        gates.Dump(tmp_path / "a", side="candidate"),
        gates.Dump(tmp_path / "b", side="candidate") as d,
    ):
        ad.tap("x", X)
        jax.jit(lambda x: gates.jax_tap("y", x))(1.5)
        d.put("z", X)
    assert list(values(tmp_path / "a")) == ["x", "y"]
    assert list(values(tmp_path / "b")) == ["x", "y", "z"]


# --- JAX -----------------------------------------------------------------------------------


def fused(x: Any, y: Any, tap: Callable[[str, Any], Any] = gates.jax_tap) -> Any:
    """What XLA fuses into multiply-adds where no value leaves in between."""
    h = tap("h", x * y)
    return h + x, tap("g", h * h) - y


PAIR = [jnp.asarray(RNG.normal(size=1000).astype(np.float32)) for _ in range(2)]


def test_a_compiled_function_is_traced_anew(tmp_path: Path) -> None:
    compiled = jax.jit(fused)
    before = compiled(*PAIR)
    with gates.Dump(tmp_path / "d", side="candidate"):
        during = compiled(*PAIR)
    found = values(tmp_path / "d")
    assert list(found) == ["h", "g"]
    np.testing.assert_allclose(found["h"], PAIR[0] * PAIR[1], rtol=1e-6)
    for a, b, c in zip(before, during, compiled(*PAIR), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert same(a, c)
    source = open_side(tmp_path / "d").tensors["g"].tensor.source
    assert "test_capture_taps.py:" in source and source.endswith("in fused")


@pytest.mark.parametrize("order", [0, 1])
def test_the_result_of_jax_jit_stays_bit_equal(tmp_path: Path, order: int) -> None:
    def f(x: Any, y: Any, tap: Any = gates.jax_tap) -> Any:
        return sum(jnp.sum(r**2) for r in fused(x, y, tap)) if order else fused(x, y, tap)

    compiled = gates.jax_jit(jax.grad(f) if order else f)
    before = compiled(*PAIR)
    with gates.Dump(tmp_path / "d", side="candidate"):
        during = compiled(*PAIR)
    untouched = jax.jit(functools.partial(jax.grad(f) if order else f, tap=untapped))(*PAIR)
    results = zip(*map(jax.tree.leaves, (before, during, compiled(*PAIR), untouched)), strict=True)
    for a, b, c, d in results:
        assert same(a, b) and same(a, c) and same(a, d)
    assert list(values(tmp_path / "d")) == ["h", "g"]


def test_jax_jit_compiles_once_without_and_once_with_taps(tmp_path: Path) -> None:
    traced: list[bool] = []

    def f(x: Any) -> Any:
        traced.append(True)
        return gates.jax_tap("x", x)

    compiled = gates.jax_jit(f)
    compiled(1.0)
    for name in ("a", "b"):
        with gates.Dump(tmp_path / name, side="candidate"):
            compiled(1.0)
        compiled(1.0)
    assert len(traced) == 2


def test_closing_waits_for_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_then: list[int] = []
    monkeypatch.setattr(jax, "effects_barrier", lambda: open_then.append(len(capture_taps._open)))
    with gates.Dump(tmp_path / "d", side="candidate"):
        pass
    assert open_then == [1]


def test_lowered_programs_stay_bit_equal(tmp_path: Path) -> None:
    x, y = map(np.asarray, PAIR)
    lowered = ad.lower_jax(ad.trace(functools.partial(fused, tap=ad.tap), x, y))
    before = lowered(x, y)
    with gates.Dump(tmp_path / "d", side="candidate"):
        during = lowered(x, y)
    assert all(same(a, b) for a, b in zip(before, during, strict=True))
    assert list(values(tmp_path / "d")) == ["h", "g"]


def test_jax_jit_takes_the_options_of_jit(tmp_path: Path) -> None:
    @functools.partial(gates.jax_jit, static_argnames="times", donate_argnums=0)
    def f(x: Any, times: int) -> Any:
        return gates.jax_tap("x", x) * times

    assert f.__name__ == "f"
    with gates.Dump(tmp_path / "d", side="candidate"):
        assert f(jnp.ones(3), times=2).sum() == 6.0
        jax.jit(lambda x: f(x, times=3))(jnp.zeros(3))  # inside another function
    assert [float(v.sum()) for v in values(tmp_path / "d").values()] == [3.0, 0.0]


def test_with_no_dump_open_there_is_no_callback() -> None:
    x, y = PAIR
    with_taps, without = (
        jax.make_jaxpr(functools.partial(fused, tap=t)) for t in (gates.jax_tap, untapped)
    )
    assert str(with_taps(x, y)) == str(without(x, y))


def test_a_function_traced_in_a_dump_taps_nothing_after_it(tmp_path: Path) -> None:
    compiled = jax.jit(lambda x: gates.jax_tap("x", x) + 1.0)
    for name in ("a", "b"):
        with gates.Dump(tmp_path / name, side="candidate"):
            compiled(1.0)
        compiled(2.0)
        assert list(values(tmp_path / name)) == ["x"]
        assert values(tmp_path / name)["x"] == 1.0


def test_jax_transforms_and_control_flow(tmp_path: Path) -> None:
    x = jnp.arange(6.0).reshape(2, 3)

    def f(x: Any) -> Any:
        return jnp.sin(gates.jax_tap("x", x * 2.0)).sum()

    def looped(x: Any) -> Any:
        return jax.lax.scan(lambda c, v: (c + f(v), None), 0.0, x)[0]

    def either(x: Any) -> Any:
        return jax.lax.cond(x.sum() > 4.0, f, lambda x: f(-x), x)

    def shapes(name: str, g: Any) -> list[tuple[int, ...]]:
        with gates.Dump(tmp_path / name, side="candidate"):
            jax.jit(g)(x)
        found = values(tmp_path / name)
        assert list(found) == ["x", *(f"x#{i}" for i in range(1, len(found)))]
        return [v.shape for v in found.values()]

    assert shapes("vmap", jax.vmap(f)) == [(2, 3)]
    assert shapes("vmap vmap", jax.vmap(jax.vmap(f))) == [(2, 3)]
    assert shapes("grad", jax.grad(f)) == [(2, 3)]
    assert shapes("grad of vmap", jax.grad(lambda x: jax.vmap(f)(x).sum())) == [(2, 3)]
    assert shapes("scan", looped) == [(3,), (3,)]
    assert shapes("grad of scan", jax.grad(looped)) == [(3,), (3,)]
    assert shapes("vmap of scan", jax.vmap(lambda r: looped(r[:, None]))) == [(2, 1)] * 3
    assert shapes("cond", either) == [(2, 3)]
    assert shapes("vmap of cond", jax.vmap(either)) == [(2, 3)] * 2
    assert shapes("checkpoint", jax.grad(jax.checkpoint(f)))[0] == (2, 3)
    assert shapes("eager", jax.disable_jit()(f)) == [(2, 3)]


def test_values_arrive_in_the_order_of_the_program(tmp_path: Path) -> None:
    @jax.jit
    def f(x: Any) -> Any:
        total = 0.0
        for i in range(8):
            y = x
            for _ in range(8 - i):  # XLA may well run the shortest first
                y = jnp.sin(y) @ jnp.ones((8, 8))
            total = total + gates.jax_tap(f"t{i}", y)
        return jax.lax.fori_loop(0, 20, lambda i, x: gates.jax_tap("x", x + 1.0), 0.0), total

    with gates.Dump(tmp_path / "d", side="candidate"):
        f(jnp.ones((8, 8)))
    found = values(tmp_path / "d")
    assert list(found)[:8] == [f"t{i}" for i in range(8)]
    assert [float(v) for v in list(found.values())[8:]] == list(range(1, 21))


def test_dtypes_under_jit(tmp_path: Path) -> None:
    @jax.jit
    def f(x: Any) -> Any:
        gates.jax_tap("brain", x.astype(jnp.bfloat16))
        gates.jax_tap("mask", x > 0)
        return gates.jax_tap("ids", x.astype(jnp.int32))

    with gates.Dump(tmp_path / "d", side="candidate"):
        f(PAIR[0])
    side: Side = open_side(tmp_path / "d")
    assert {k: s.tensor.dtype for k, s in side.tensors.items()} == {
        "brain": "bfloat16",
        "mask": "bool",
        "ids": "int32",
    }


def test_a_failure_in_a_callback_is_raised_when_the_dump_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    from checks.gates.capture import dump

    monkeypatch.setattr(dump, "append", full)
    with (
        pytest.raises(GateError, match="No space left"),
        gates.Dump(tmp_path / "d", side="candidate"),
    ):
        jax.jit(lambda x: gates.jax_tap("x", x))(1.0)
    assert capture_taps._open == [] and not taps.is_open()


def test_taps_of_jax_arrive_from_other_threads(tmp_path: Path) -> None:
    with gates.Dump(tmp_path / "d", side="candidate"):
        thread = threading.Thread(target=jax.jit(lambda x: gates.jax_tap("x", x)), args=(1.0,))
        thread.start()
        thread.join()
    assert list(values(tmp_path / "d")) == ["x"]


def test_the_name_is_checked_when_traced() -> None:
    with pytest.raises(GateError, match="'' is no tensor name"):
        gates.jax_tap("", PAIR[0])
