"""`gates.isolate`: own and total error, amplification, backward, what cannot be checked."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks import gates
from checks.cli import main
from checks.gates.blocks.block import Block
from checks.gates.blocks.isolated import OTHER_CODE, BlockRow, Isolation, amplification
from checks.gates.blocks.isolation import isolate
from checks.gates.errors import GateError
from tests.checks.gates import stack
from tests.checks.gates.sides import normal, write_limits, write_side

Captured = pytest.CaptureFixture[str]
W = stack.weights()


def quick_gelu(w: Any, x: Any) -> Any:
    """The sigmoid approximation: off by a few thousandths."""
    h = x @ w["up"] + w["bias"]
    return x + h * ad.ops.sigmoid(1.702 * h) @ w["down"]


def rows_of(found: Isolation) -> dict[str, BlockRow]:
    return {r.output: r for r in found.every}


def verdicts(found: Isolation) -> dict[str, str]:
    return {r.output: r.verdict for r in found.every}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference with cotangents, and a candidate whose second mlp has another activation."""
    folder = tmp_path_factory.mktemp("stack")
    stack.dump(folder / "reference", W, grads=True)
    stack.dump(folder / "good", W, grads=True, side="candidate")
    changes = {"1.mlp": quick_gelu}
    stack.dump(folder / "candidate", W, changes, grads=True, side="candidate")
    return folder


def test_the_block_at_fault_is_own_and_those_after_it_inherit(dumps: Path) -> None:
    blocks = stack.blocks(W, {"1.mlp": quick_gelu})
    found = isolate(dumps / "reference", blocks, candidate=dumps / "candidate")
    assert [r.output for r in found.rows] == stack.all_names()
    assert [r.verdict for r in found.rows] == ["ok"] * 4 + ["own"] + ["inherited"] * 5
    assert found.exit_code == 1
    assert found.first is not None and found.first.output == "1.mlp"
    row = found.first
    assert row.own_error == row.total_error  # its inputs are exact
    assert row.before == 0 and row.amplification is None
    after = rows_of(found)["2.attn"]
    assert after.own_error is not None and after.own_error < 1e-6
    assert after.before == row.total_error
    assert after.total_error is not None and row.total_error is not None
    assert after.amplification == pytest.approx(after.total_error / row.total_error, rel=1e-6)


def test_a_good_candidate_passes_forward_and_backward(dumps: Path) -> None:
    reference, good = dumps / "reference", dumps / "good"
    found = isolate(reference, stack.blocks(W), candidate=good, backward=True)
    assert set(verdicts(found).values()) == {"ok"}
    assert found.exit_code == 0 and found.ok and found.first is None
    backward = [r.output for r in found.backward]
    assert backward[:3] == ["grad.3.mlp", "grad.param.final", "grad.param.head"]
    assert backward[-2:] == ["grad.embed", "grad.param.embed"]


def test_without_a_candidate_there_is_no_total(dumps: Path) -> None:
    found = isolate(dumps / "reference", stack.blocks(W, {"1.mlp": quick_gelu}), causes=False)
    assert [r.output for r in found.rows if r.verdict == "own"] == ["1.mlp"]
    assert verdicts(found)["2.attn"] == "ok"
    assert all(r.total is None and r.amplification is None for r in found.rows)


def test_backward_a_wrong_derivative_of_a_right_value(dumps: Path) -> None:
    def stopped(w: Any, x: Any) -> Any:
        h = ad.ops.gelu(x @ w["up"] + w["bias"])
        return x + (0.5 * h + ad.stop_gradient(0.5 * h)) @ w["down"]

    found = isolate(dumps / "reference", stack.blocks(W, {"2.mlp": stopped}), backward=True)
    assert {r.verdict for r in found.rows} == {"ok"}
    wrong = [r for r in found.backward if r.verdict == "own"]
    assert [r.output for r in wrong] == ["grad.2.attn"]
    assert wrong[0].blocks == ("2.mlp",)
    assert wrong[0].inputs == ("grad.2.mlp", "2.attn")
    assert found.exit_code == 1


def test_backward_adds_up_the_blocks_that_use_a_tensor(tmp_path: Path) -> None:
    """y = 2 x, z = x^2 and their cotangents a, b: that of x is 2 a + 2 x b."""
    x, a, b = normal(5), normal(5, seed=1), normal(5, seed=2)
    tensors = {"h": x, "y": 2 * x, "z": x * x}
    tensors |= {"grad.y": a, "grad.z": b, "grad.h": 2 * a + 2 * x * b}
    write_side(tmp_path / "r", tensors)
    blocks = (Block("y", ("h",), lambda h: 2 * h), Block("z", ("h",), lambda h: h * h))
    found = isolate(tmp_path / "r", blocks, backward=True)
    assert verdicts(found)["grad.h"] == "ok"
    row = rows_of(found)["grad.h"]
    assert set(row.blocks) == {"y", "z"} and row.note == "summed over 2 blocks"
    one = isolate(tmp_path / "r", blocks[:1], backward=True)
    assert verdicts(one)["grad.h"] == "own"  # half of it is missing


def test_backward_takes_an_explicit_vjp(tmp_path: Path) -> None:
    x, a = normal(5), normal(5, seed=1)
    write_side(tmp_path / "r", {"h": x, "y": np.sin(x), "grad.y": a, "grad.h": a * np.cos(x)})

    def block(vjp: Callable[..., Any]) -> Block:
        return Block("y", ("h",), np.sin, vjp=vjp)

    def right(x: Any, ct: Any) -> tuple[Any]:
        return (ct * np.cos(x),)

    good = isolate(tmp_path / "r", [block(right)], backward=True)
    assert verdicts(good) == {"y": "ok", "grad.h": "ok"}
    turned = isolate(tmp_path / "r", [block(lambda x, ct: (-right(x, ct)[0],))], backward=True)
    assert verdicts(turned)["grad.h"] == "own"
    cause = rows_of(turned)["grad.h"].cause
    assert cause is not None and cause.name == "sign"
    two = isolate(tmp_path / "r", [block(lambda x, ct: (ct, ct))], backward=True)
    assert rows_of(two)["grad.h"].note == "vjp returned 2 cotangents for 1 inputs"
    none = isolate(tmp_path / "r", [block(lambda x, ct: (None,))], backward=True)
    assert verdicts(none)["grad.h"] == "own"  # None is zero


def test_an_explicit_vjp_of_several_inputs(tmp_path: Path) -> None:
    x, n, w, a = normal(5), np.arange(5), normal(5, seed=2), normal(5, seed=1)
    tensors = {"n": n, "x": x, "w": w, "y": x * w + n, "grad.y": a}
    write_side(tmp_path / "r", {**tensors, "grad.x": a * w, "grad.w": a * x})

    def vjp(n: Any, x: Any, w: Any, ct: Any) -> tuple[Any, ...]:
        return None, ct * w, ct * x

    block = Block("y", ("n", "x", "w"), lambda n, x, w: x * w + n, vjp=vjp)
    found = isolate(tmp_path / "r", [block], backward=True)
    assert verdicts(found) == {"y": "ok", "grad.x": "ok", "grad.w": "ok"}


def test_backward_names_what_cannot_be_checked(tmp_path: Path) -> None:
    x, a = normal(5), normal(5, seed=1)
    write_side(tmp_path / "r", {"h": x, "y": 2 * x, "z": 4 * x, "grad.h": 8 * a, "grad.z": a})
    blocks = (Block("y", ("h",), lambda h: 2 * h), Block("z", ("y",), lambda y: 2 * y))
    found = isolate(tmp_path / "r", blocks, backward=True)
    assert rows_of(found)["grad.h"].note.startswith("the reference has no 'grad.y'")
    assert rows_of(found)["grad.y"].note.startswith("the reference has no 'grad.y'")
    assert found.exit_code == 2
    last = isolate(tmp_path / "r", blocks[1:], backward=True)
    assert not last.backward
    assert last.notes == ["no input of z has a cotangent: its block's derivative is unchecked"]
    z = x.astype(np.complex64)
    write_side(tmp_path / "c", {"y": z, "z": 2 * z, "grad.y": 2 * z, "grad.z": z})
    opaque = [Block("y", ("x",), lambda x: np.asarray(x, np.float32) * 2)]
    write_side(tmp_path / "o", {"x": x, "y": 2 * x, "grad.x": 2 * a, "grad.y": a})
    (row,) = isolate(tmp_path / "o", opaque, backward=True).backward
    assert row.note.startswith("its derivative raised TracerError: ")
    (row,) = isolate(tmp_path / "c", blocks[1:], backward=True).backward
    assert row.note.startswith("complex: frameworks differ in which conjugate")


def test_backward_notes_what_no_cotangent_came_to(tmp_path: Path) -> None:
    """The loss was taken of `y`; `z` was only shown, and so was `k`, made of `h` as well."""
    x, a = normal(5), normal(5, seed=1)
    tensors = {"h": x, "y": 2 * x, "z": 4 * x, "k": 3 * x}
    write_side(tmp_path / "r", {**tensors, "grad.h": 2 * a, "grad.y": a})
    blocks = (
        Block("y", ("h",), lambda h: 2 * h),
        Block("z", ("y",), lambda y: 2 * y),
        Block("k", ("h",), lambda h: 3 * h),
    )
    found = isolate(tmp_path / "r", blocks, backward=True)
    assert verdicts(found) == {"y": "ok", "z": "ok", "k": "ok", "grad.h": "ok"}
    text = "no cotangent came to {}: the derivative of its block is unchecked"
    assert found.notes == [text.format("k"), text.format("z")]
    assert found.exit_code == 0


def test_backward_needs_cotangents(tmp_path: Path) -> None:
    write_side(tmp_path / "r", {"h": normal(3), "y": normal(3)})
    with pytest.raises(
        GateError, match="holds no cotangents: nothing is called grad.NAME"
    ) as error:
        isolate(tmp_path / "r", [Block("y", ("h",), abs)], backward=True)
    assert error.value.code == 2


# --- the amplification ----------------------------------------------------------------------


@pytest.mark.parametrize("power", [1, 3])
def test_amplification_of_a_power(tmp_path: Path, power: int) -> None:
    """The condition number of x^n is n: a relative error of 1e-5 leaves it n times larger, whatever
    error the block adds by itself.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, 200_000)
    scaled = x * (1 + 1e-5)
    noise = 2e-5 * x**power * rng.choice([-1.0, 1.0], x.shape)
    write_side(tmp_path / "r", {"h": x, "y": x**power})
    write_side(tmp_path / "c", {"h": scaled, "y": scaled**power + noise})
    block = Block("y", ("h",), lambda h: h**power + noise)
    (row,) = isolate(tmp_path / "r", [block], candidate=tmp_path / "c", causes=False).rows
    assert row.own_error == pytest.approx(2e-5, rel=1e-9)
    assert row.before == pytest.approx(1e-5, rel=1e-9)
    assert row.total_error == pytest.approx(np.hypot(power * 1e-5, 2e-5), rel=1e-2)
    assert row.amplification == pytest.approx(power, rel=1e-2)


def test_a_block_that_amplifies(tmp_path: Path) -> None:
    """A difference of near values: relative errors of its input leave it a hundred times larger."""
    h = np.stack([np.full(8, 100.0), np.full(8, 99.0) + normal(8, seed=3) / 100])
    off = h * np.array([[1 + 1e-4], [1.0]])
    block = Block("y", ("h",), lambda h: h[0] - h[1])
    write_side(tmp_path / "r", {"h": h, "y": h[0] - h[1]})
    write_side(tmp_path / "c", {"h": off, "y": off[0] - off[1]})
    (row,) = isolate(tmp_path / "r", [block], candidate=tmp_path / "c").rows
    assert row.verdict == "amplifies"
    assert row.amplification is not None and 100 < row.amplification < 200
    assert isolate(tmp_path / "r", [block], candidate=tmp_path / "c").exit_code == 0


def test_errors_of_several_inputs_are_added_in_squares(tmp_path: Path) -> None:
    x, y = normal(50), normal(50, seed=1)
    write_side(tmp_path / "r", {"x": x, "y": y, "z": x + y})
    write_side(tmp_path / "c", {"x": 1.03 * x, "y": 1.04 * y, "z": 1.03 * x + 1.04 * y})
    block = Block("z", ("x", "y"), np.add)
    (row,) = isolate(tmp_path / "r", [block], candidate=tmp_path / "c").rows
    assert row.before == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize(
    "known", [(None, 0.1, 0.1), (0.1, None, 0.1), (0.1, 0.1, None), (0.2, 0.1, 0.0), (0.1, 0.2, 1)]
)
def test_amplification_is_unknown(known: tuple[Any, Any, Any]) -> None:
    assert amplification(*known) is None


def test_amplification_is_not_finite() -> None:
    assert amplification(float("inf"), 0.0, 1.0) is None
    assert amplification(0.5, 0.3, 0.1) == pytest.approx(4)


# --- limits, calls, frameworks ----------------------------------------------------------------


def test_the_tolerance_file_decides(dumps: Path, tmp_path: Path) -> None:
    blocks = stack.blocks(W, {"1.mlp": quick_gelu})
    wide = write_limits(tmp_path / "wide.json", {"1.mlp": {"max_abs": 1, "mean_abs": 1}})
    found = isolate(dumps / "reference", blocks, wide)
    assert found.exit_code == 0
    row = rows_of(found)["1.mlp"].own
    assert row is not None and row.limit is not None and row.limit.max_abs == 1
    assert found.tolerances == str(wide)


def test_each_call_of_a_name_has_its_own_inputs(tmp_path: Path) -> None:
    """A weight-like input dumped once serves all calls; the candidate is wrong in the second."""
    steps = [normal(4, seed=n) for n in range(3)]
    table = normal(4, seed=9)
    tensors = {"table": table}
    for n, x in enumerate(steps):
        end = f"#{n}" if n else ""
        tensors |= {f"x{end}": x, f"y{end}": x * table}
    write_side(tmp_path / "r", tensors)

    def call(x: Any, table: Any) -> Any:
        return x * table * (2 if np.array_equal(x, steps[1]) else 1)

    found = isolate(tmp_path / "r", [Block("y", ("x", "table"), call)])
    assert verdicts(found) == {"y": "ok", "y#1": "own", "y#2": "ok"}
    assert rows_of(found)["y#2"].inputs == ("x#2", "table")
    one = isolate(tmp_path / "r", [Block("y#1", ("x#1", "table"), call)])
    assert verdicts(one) == {"y#1": "own"}
    earlier = isolate(tmp_path / "r", [Block("y#1", ("x#0", "table"), call)])
    assert rows_of(earlier)["y#1"].inputs == ("x", "table")


def test_a_call_without_its_input_is_named(tmp_path: Path) -> None:
    x = normal(4)
    write_side(tmp_path / "r", {"x": x, "x#2": x, "y": x, "y#1": x})
    found = isolate(tmp_path / "r", [Block("y", ("x",), np.copy)])
    assert verdicts(found) == {"y": "ok", "y#1": "unchecked"}
    assert rows_of(found)["y#1"].note == "the reference has 2 calls of 'x', and none 1"


def test_bfloat16_inputs_stay_what_they_are(tmp_path: Path) -> None:
    import ml_dtypes

    x = normal(4, 6).astype(ml_dtypes.bfloat16)
    seen = []

    def call(x: Any) -> Any:
        seen.append(x.dtype)
        return x

    write_side(tmp_path / "r", {"x": x, "y": x})
    assert isolate(tmp_path / "r", [Block("y", ("x",), call)]).exit_code == 0
    assert seen == [x.dtype]


def test_a_block_cannot_change_the_inputs_of_another(tmp_path: Path) -> None:
    x = normal(4)
    write_side(tmp_path / "r", {"x": x, "y": x + 1, "z": 2 * x})

    def adding(x: Any) -> Any:
        x += 1
        return x

    blocks = (Block("y", ("x",), adding), Block("z", ("x",), lambda x: 2 * x))
    assert isolate(tmp_path / "r", blocks).exit_code == 0


def test_a_jax_block(dumps: Path) -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def mlp(x: Any, w: Any = None) -> Any:
        h = jax.nn.gelu(x @ w["up"] + w["bias"], approximate=False)
        return x + h @ w["down"]

    inner = {k: jnp.asarray(v) for k, v in stack.layer(W, 2).items()}
    for call in (functools.partial(mlp, w=inner), jax.jit(functools.partial(mlp, w=inner))):
        block = Block("2.mlp", ("2.attn",), call)
        found = isolate(dumps / "reference", [block], backward=True)
        assert verdicts(found) == {"2.mlp": "ok", "grad.2.attn": "ok"}
        assert found.rows[0].own_error  # another library: last bits differ


def test_a_torch_block_and_a_torch_reference(tmp_path: Path) -> None:
    """The reference captured by `attach`, forward and backward; blocks of both frameworks."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()) for _ in range(3)]
    model = torch.nn.Sequential(*layers)
    x = torch.randn(4, 6)
    with gates.Dump(tmp_path / "r", side="reference", command="") as d:
        d.attach(model, {"layer.{N}.out": "*"}, pick="all")
        d.grads()
        d.put("x", d.input("x", x))
        (model(x) * torch.randn(4, 6)).sum().backward()

    def numpy(n: int, scale: float = 1.0) -> Block:
        w, b = (p.detach().numpy() for p in layers[n][0].parameters())
        before = f"layer.{n - 1}.out" if n else "x"
        return Block(f"layer.{n}.out", (before,), lambda h: np.tanh(h @ w.T * scale + b))

    def module(n: int, layer: Any) -> Block:
        return Block(f"layer.{n}.out", (f"layer.{n - 1}.out" if n else "x",), layer)

    def named(h: Any) -> Any:
        return torch.tanh(layers[1][0](h))

    for blocks in (
        [numpy(n) for n in range(3)],
        [module(n, layer) for n, layer in enumerate(layers)],
        [module(1, named), module(2, layers[2].forward), module(0, functools.partial(layers[0]))],
    ):
        found = isolate(tmp_path / "r", blocks, backward=True)
        assert set(verdicts(found).values()) == {"ok"}, verdicts(found)
        assert {"grad.layer.0.out", "grad.layer.1.out"} <= set(verdicts(found))
    off = isolate(tmp_path / "r", [numpy(0), numpy(1, 1.01), numpy(2)], backward=True)
    assert [r.output for r in off.every if r.verdict == "own"] == [
        "layer.1.out",
        "grad.layer.0.out",
    ]


def test_the_framework_may_be_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    hidden = {"f": torch.tanh}
    x = normal(4)
    write_side(tmp_path / "r", {"x": x, "y": np.tanh(x)})
    block = Block("y", ("x",), lambda x: hidden["f"](x))
    unknown = isolate(tmp_path / "r", [block])
    assert "TypeError" in unknown.rows[0].note and unknown.exit_code == 2
    assert isolate(tmp_path / "r", [block], framework="torch").exit_code == 0


def test_blocks_between_dumped_tensors_are_one(tmp_path: Path) -> None:
    """A reference of first, middle and last blocks: spans, forward and backward, and the cause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATE_DUMP_ONLY", "tokens,positions,mask,*embed,*1.mlp,*3.mlp,*logits")
        stack.dump(tmp_path / "r", W, grads=True)
    good = isolate(tmp_path / "r", stack.blocks(W), backward=True)
    assert [r.output for r in good.rows] == ["embed", "1.mlp", "3.mlp", "logits"]
    assert good.rows[1].inputs == ("embed", "positions", "mask")
    assert good.rows[1].note == "through 0.attn, 0.mlp, 1.attn (not dumped)"
    assert {"grad.embed", "grad.1.mlp", "grad.3.mlp"} <= set(verdicts(good))
    assert set(verdicts(good).values()) == {"ok"}
    w = {**W, "2.k": W["2.k"].T.copy()}
    off = isolate(tmp_path / "r", stack.blocks(w), backward=True)
    assert [r.output for r in off.every if r.verdict == "own"] == ["3.mlp", "grad.1.mlp"]
    assert off.first is not None and off.first.cause is not None
    assert off.first.cause.text.startswith("with 2.attn: k transposed the block gives the ref")


def test_a_part_that_nothing_needs_is_named(tmp_path: Path) -> None:
    x = normal(3)
    write_side(tmp_path / "r", {"x": x, "y": 4 * x})
    blocks = (
        Block("h", ("x",), lambda x: 2 * x),
        Block("y", ("h",), lambda h: 2 * h),
        Block("z", ("h",), lambda h: 3 * h),
    )
    found = isolate(tmp_path / "r", blocks)
    assert verdicts(found) == {"y": "ok", "z": "unchecked"}
    ring = (Block("h", ("k",), np.copy), Block("k", ("h",), np.copy), Block("y", ("h",), np.copy))
    assert verdicts(isolate(tmp_path / "r", ring)) == {"y": "unchecked"}


# --- what is wrong with a block ---------------------------------------------------------------


def raising(x: Any) -> Any:
    raise ZeroDivisionError("no such head")


@pytest.mark.parametrize(
    ("block", "verdict", "note"),
    [
        (Block("y", ("gone",), abs), "unchecked", "the reference has no 'gone'"),
        (Block("other", ("x",), abs), "unchecked", "the reference has no 'other'"),
        (Block("y", ("x",), raising), "unchecked", "raised ZeroDivisionError: no such head (test_"),
        (Block("y", ("x",), lambda x: x[:2]), "own", "shape [30, 40], the block gives [2, 40]"),
        (Block("y", ("x",), lambda x: (x, x)), "unchecked", "the block returned a tuple of 2, no"),
        (Block("y", ("x",), lambda x: "text"), "unchecked", "an array of dtype <U4 holds no num"),
        (Block("y", ("x",), lambda x: x / 0), "own", "1,200 entries differ in finiteness"),
        (Block("y", ("x",), lambda x: x * np.float32(1.00001)), "ok", "systematic"),
    ],
)
def test_each_trouble_is_named(tmp_path: Path, block: Block, verdict: str, note: str) -> None:
    x = np.abs(normal(30, 40)) + 1
    write_side(tmp_path / "r", {"x": x, "y": x})
    found = isolate(tmp_path / "r", [block, Block("x#0", ("y",), np.copy)])
    assert (found.rows[0].verdict, found.rows[1].verdict) == (verdict, "ok")
    assert found.rows[0].note.startswith(note), found.rows[0].note
    assert found.exit_code == {"own": 1, "unchecked": 2, "ok": 0}[verdict]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Block("a/b", ("x",), abs), "the tensor name 'a/b' holds '/'"),
        (lambda: Block("y#x", ("x",), abs), "'y#x' names no call of a tensor"),
        (lambda: Block("y", ["x"], abs), r"inputs are no tuple: \['x'\]"),  # type: ignore[arg-type]
        (lambda: Block("y", ("y",), abs), "'y' is both an input and the output"),
        (lambda: Block("y", ("x",), 3), "call cannot be called: 3"),  # type: ignore[arg-type]
        (lambda: Block("y", ("x",), abs, vjp=3), "vjp cannot be called"),  # type: ignore[arg-type]
        (
            lambda: Block("y", ("x",), abs, weights=[1]),  # type: ignore[arg-type]
            r"weights are no table of arrays by name: \[1\]",
        ),
    ],
)
def test_a_block_checks_itself(make: Callable[[], Block], text: str) -> None:
    with pytest.raises(GateError, match=text):
        make()


def test_blocks_are_checked(tmp_path: Path) -> None:
    write_side(tmp_path / "r", {"x": normal(3)})
    twice = [Block("x", (), abs), Block("x", (), abs)]
    cases: list[tuple[Any, str]] = [([], "no blocks"), ([3], "3 is no Block"), (twice, "two bloc")]
    for blocks, text in cases:
        with pytest.raises(GateError, match=text):
            isolate(tmp_path / "r", blocks)


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    x = {"x": normal(3)}
    write_side(tmp_path / "r", x, input_hashes={"tokens": "a"})
    write_side(tmp_path / "c", x, input_hashes={"tokens": "b"})
    with pytest.raises(GateError, match="the inputs differ: 'tokens'") as error:
        isolate(tmp_path / "r", [Block("x", (), abs)], candidate=tmp_path / "c")
    assert error.value.code == 2


def test_blocks_that_did_not_make_the_dump(dumps: Path) -> None:
    blocks = stack.blocks(W, {"1.mlp": quick_gelu})
    found = isolate(dumps / "reference", blocks, candidate=dumps / "good", causes=False)
    assert {r.output: r.note for r in found.rows if r.note} == {"1.mlp": OTHER_CODE}
    made = isolate(dumps / "reference", blocks, candidate=dumps / "candidate", causes=False)
    assert not any(r.note for r in made.rows)


def test_a_right_output_of_wrong_inputs_says_nothing_of_the_code(tmp_path: Path) -> None:
    x, y = normal(6, 8), normal(6, 8, seed=1)
    write_side(tmp_path / "r", {"x": x, "y": y})
    write_side(tmp_path / "c", {"x": x + 1, "y": y})
    block = Block("y", ("x",), lambda v: v)
    (row,) = isolate(tmp_path / "r", [block], candidate=tmp_path / "c", causes=False).rows
    assert (row.verdict, row.note) == ("own", "")


def test_why_there_is_no_total_is_said_once(tmp_path: Path) -> None:
    x, y, z = normal(6, 8), normal(6, 8, seed=1), normal(6, 8, seed=2)
    write_side(tmp_path / "r", {"x": x, "y": y, "z": z})
    write_side(tmp_path / "c", {"x": x})
    blocks = [Block("y", ("x",), lambda _: y), Block("z", ("y",), lambda _: z)]
    found = isolate(tmp_path / "r", blocks, candidate=tmp_path / "c")
    assert found.notes == [f"no total: {tmp_path / 'c'} has no y and 1 more"]
    assert isolate(tmp_path / "r", blocks).notes == []


# --- the command ------------------------------------------------------------------------------


def good() -> Any:
    return stack.blocks(W)


def wrong() -> Any:
    return stack.blocks(W, {"1.mlp": quick_gelu})


def broken() -> Any:
    raise RuntimeError("no weights")


NOTHING = 3
HERE = "tests.checks.gates.test_isolate"


def command(dumps: Path, *options: Any) -> int:
    return main(["gate", "isolate", str(dumps / "reference"), *map(str, options)])


def test_the_command(dumps: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "isolation.json"
    candidate = dumps / "candidate"
    code = command(dumps, candidate, "--blocks", f"{HERE}:wrong", "--json", file)
    assert code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == "verdict block own total inputs times relative rms".split()
    assert [line.split()[:2] for line in lines[4:8]] == [
        ["ok", "1.attn"],
        ["own", "1.mlp"],
        ["inherited", "2.attn"],
        ["inherited", "2.mlp"],
    ]
    ends = {m.end() for line in lines[1:11] if (m := re.match(r"\S+ +\S+ +\S+", line))}
    assert len(ends) == 1  # the figures of a column end in one place
    assert lines[-1].startswith(
        "FAIL: 4 of 10 rows fine, 1 wrong by itself, 5 inherited; first 1.m"
    )
    record = json.loads(file.read_text())
    assert (record["first"], record["own"], record["exit_code"]) == ("1.mlp", ["1.mlp"], 1)
    assert record["rows"][5]["amplification"] > 0
    assert record["rows"][4]["own"]["max_abs"] > record["rows"][4]["own"]["limit"]["max_abs"]


def test_causes_may_be_left_out(dumps: Path, capsys: Captured) -> None:
    assert command(dumps, "--blocks", f"{HERE}:wrong", "--no-causes") == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("first 1.mlp: unclassified")


def test_the_command_backward(dumps: Path, capsys: Captured) -> None:
    assert command(dumps, "--blocks", f"{HERE}:good", "--backward") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "PASS: 22 of 22 rows fine"
    assert command(dumps, "--blocks", f"{HERE}:wrong", "--backward") == 1
    (line,) = [
        x for x in capsys.readouterr().out.splitlines() if x.startswith("own        grad.1.attn")
    ]
    assert line.split()[-2:] == ["of", "1.mlp"]


def test_a_weight_that_is_held_inside(tmp_path: Path, capsys: Captured) -> None:
    """A transposed constant has a name; where nothing has, the weights are asked for."""
    x, w, v = (normal(6, 6, seed=s) for s in (1, 2, 3))
    write_side(tmp_path / "r", {"x": x, "y": x @ w.T, "z": np.tanh(x @ v)})
    blocks = [
        Block("y", ("x",), lambda x: x @ w),
        Block("z", ("x",), lambda x: np.cos(x @ v)),
    ]
    found = isolate(tmp_path / "r", blocks)
    cause = found.rows[0].cause
    assert cause is not None and cause.name == "transposed weight"
    assert "operand 1, a constant of 6 x 6, transposed in MATMUL" in cause.text
    assert found.rows[1].cause is None
    (note,) = found.notes
    assert note.startswith("z: no weights were given; with Block(..., weights={name: array}) and ")
    given = Block("z", ("x",), lambda w, x: np.cos(x @ w["v"]), {"v": v})
    assert not isolate(tmp_path / "r", [blocks[0], given]).notes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "nothing to run"),
        (["--blocks", "nowhere"], "'nowhere' names no function of a module"),
        (["--blocks", "no_such_module:f"], "'no_such_module' cannot be imported: ModuleNotFound"),
        (["--blocks", f"{HERE}:goood"], "has no 'goood'"),
        (["--blocks", f"{HERE}:broken"], "raised RuntimeError: no weights (test_isolate.py:"),
        (["--blocks", f"{HERE}:NOTHING"], "gives a int, no blocks"),
        (["--prepare", "a", "--from", "b"], "--prepare and --from exclude one another"),
        (["--inject", "a", "--blocks", f"{HERE}:good"], "--inject has no command to run"),
        (["--command", "true", "--backward"], "an injection has no backward pass"),
    ],
)
def test_mistakes_are_named(dumps: Path, options: list[str], text: str, capsys: Captured) -> None:
    assert command(dumps, *options) == 3
    assert text in capsys.readouterr().err
