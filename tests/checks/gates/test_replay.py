"""Causes by replay: each undone where the block is wrong, reproduced where the candidate is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autodiff as ad
from checks.cli import main
from checks.gates.blocks.block import Block
from checks.gates.blocks.context import opened
from checks.gates.blocks.isolation import isolate
from checks.gates.causes.replay import replayed
from checks.gates.comparison.record import Cause
from checks.gates.comparison.verdict import compare
from tests.checks.gates import stack
from tests.checks.gates.sides import normal, write_limits, write_side

W = stack.weights()
Changes = dict[str, Any]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stack.dump(tmp_path_factory.mktemp("replay") / "reference", W)


def mlp(approximate: str = "none", activation: Any = None, bias: bool = True) -> Any:
    def call(w: Any, x: Any) -> Any:
        h = x @ w["up"] + w["bias"] if bias else x @ w["up"]
        return x + (activation or (lambda h: ad.ops.gelu(h, approximate)))(h) @ w["down"]

    return call


def attention(
    eps: float = 1e-6,
    base: float = 10000.0,
    interleaved: bool = False,
    later: int = 0,
    norm: Any = None,
    scale: Any = 2.0,
    masked: Callable[[Any], Any] = lambda m: m,
    residual: bool = True,
) -> Any:
    """`stack.attention` with something else in it."""

    def call(w: Any, x: Any, positions: Any, mask: Any) -> Any:
        h = (norm or ad.ops.rms_norm)(x, w["norm"], eps=eps)
        q, k, v = (
            (h @ w[name]).reshape(*x.shape[:2], stack.HEADS, -1).swapaxes(1, 2) for name in "qkv"
        )
        q = ad.ops.rope(q, positions, base, interleaved)
        k = ad.ops.rope(k, positions + later, base, interleaved)
        scores = q @ k.swapaxes(-1, -2)
        scores = scores / scale if scale else scores
        scores = np.where(masked(mask), scores, np.float32(-1e9))
        mixed = (ad.ops.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(x.shape) @ w["o"]
        return x + mixed if residual else mixed

    return call


def heads_turned(w: Any) -> Any:
    """Columns of each head as pairs, for halves."""
    return w.reshape(-1, stack.HEADS, 2, 2).swapaxes(2, 3).reshape(w.shape)


def layer_norm(x: Any, weight: Any, eps: float) -> Any:
    return ad.ops.layer_norm(x, weight, eps=eps)


def in_bytes(w: Any) -> Any:
    scale = np.abs(w).max(axis=1, keepdims=True) / 127
    return (np.rint(w / scale) * scale).astype(np.float32)


# fault, weights, changes, the tensor, the cause undone (None where it cannot be), reproduced
FAULTS: list[tuple[str, stack.Weights, Changes, str, str | None, str]] = [
    ("transposed", {**W, "1.q": W["1.q"].T.copy()}, {}, "1.attn",
     "transposed weight", "transposed weight"),
    ("exchanged", {**W, "1.q": W["1.k"], "1.k": W["1.q"]}, {}, "1.attn",
     "swapped weights", "swapped weights"),
    ("another layer", {**W, "1.up": W["2.up"], "1.bias": W["2.bias"], "1.down": W["2.down"]},
     {}, "1.mlp", None, "another layer's weights"),
    ("permuted", {**W, "1.v": heads_turned(W["1.v"])}, {}, "1.attn",
     "permuted weight", "permuted weight"),
    ("zero bias", {**W, "1.bias": 0 * W["1.bias"]}, {}, "1.mlp", None, "missing bias"),
    ("norm less one", {**W, "1.norm": W["1.norm"] - 1}, {}, "1.attn",
     "weight off by one", "weight off by one"),
    ("negated", {**W, "1.o": -W["1.o"]}, {}, "1.attn", "negated weight", "negated weight"),
    ("bytes", {**W, "1.down": in_bytes(W["1.down"])}, {}, "1.mlp", None, "rounded weights"),
    ("tanh", W, {"1.mlp": mlp("tanh")}, "1.mlp", "activation", "activation"),
    ("silu", W, {"1.mlp": mlp(activation=ad.ops.silu)}, "1.mlp", "activation", "activation"),
    ("no bias", W, {"1.mlp": mlp(bias=False)}, "1.mlp", None, "missing bias"),
    ("no activation", W, {"1.mlp": mlp(activation=lambda h: h)}, "1.mlp", None, "left out"),
    ("eps", W, {"1.attn": attention(eps=1e-3)}, "1.attn", "eps", "eps"),
    ("norm", W, {"1.attn": attention(norm=layer_norm)}, "1.attn", "norm", "norm"),
    ("rope pairing", W, {"1.attn": attention(interleaved=True)}, "1.attn",
     "rope pairing", "rope pairing"),
    ("rope base", W, {"1.attn": attention(base=1e6)}, "1.attn", "rope base", "rope base"),
    ("rope offset", W, {"1.attn": attention(later=1)}, "1.attn",
     "positions off by one", "positions off by one"),
    ("no mask", W, {"1.attn": attention(masked=np.ones_like)}, "1.attn",
     "wrong mask", "wrong mask"),
    ("mask turned", W, {"1.attn": attention(masked=np.transpose)}, "1.attn",
     "wrong mask", "wrong mask"),
    ("mask shifted", W, {"1.attn": attention(masked=lambda m: np.tril(np.ones((6, 6), bool), 1))},
     "1.attn", "wrong mask", "wrong mask"),
    ("no scale", W, {"1.attn": attention(scale=None)}, "1.attn", None, "left out"),
    ("no residual", W, {"1.attn": attention(residual=False)}, "1.attn", None, "left out"),
]  # fmt: skip
NAMES = [f[0] for f in FAULTS]


@pytest.fixture(scope="module")
def tight(reference: Path) -> Path:
    """Limits near float32's own noise, so that an eps is over them."""
    names = stack.all_names()
    limits = {n: {"max_abs": 2e-5, "mean_abs": 2e-6} for n in names}
    return write_limits(reference.parent / "tight.json", limits)


@pytest.mark.parametrize(("_", "w", "changes", "name", "undone", "reproduced"), FAULTS, ids=NAMES)
def test_a_fault_is_undone(
    reference: Path,
    tight: Path,
    _: str,
    w: Any,
    changes: Changes,
    name: str,
    undone: str | None,
    reproduced: str,
) -> None:
    """The candidate's own blocks: a change that makes the wrong one right."""
    blocks = stack.blocks(w, changes)
    found = isolate(reference, blocks, tight)
    assert [r.output for r in found.rows if r.verdict == "own"] == [name]
    assert found.first is not None and found.first.own is not None
    cause = replayed(found.first.own, opened(reference).left, blocks)
    assert (cause.name if cause else None) == undone
    if cause is not None:
        assert found.first.cause == cause
        assert cause.text.endswith("the block gives the reference's output")
        assert cause.left < 0.05


@pytest.mark.parametrize(("_", "w", "changes", "name", "undone", "reproduced"), FAULTS, ids=NAMES)
def test_a_fault_is_reproduced(
    reference: Path,
    tight: Path,
    tmp_path: Path,
    _: str,
    w: Any,
    changes: Changes,
    name: str,
    undone: str | None,
    reproduced: str,
) -> None:
    """The reference's blocks, and the candidate's dump alone."""
    stack.dump(tmp_path / "candidate", w, changes, side="candidate")
    cause = why(reference, tmp_path / "candidate", name, stack.blocks(W), tight)
    assert cause is not None and cause.name == reproduced, cause
    assert cause.left < 0.05
    after = {"1.attn": "1.mlp", "1.mlp": "2.attn"}[name]
    inherited = why(reference, tmp_path / "candidate", after, stack.blocks(W), tight)
    assert inherited is not None and inherited.name == "inherited"


def why(
    reference: Path, candidate: Path, name: str, blocks: Any, tolerances: Any = None
) -> Cause | None:
    context = opened(reference, candidate, tolerances)
    row = context.total(name)
    assert row is not None and row.status != "ok"
    return replayed(row, context.left, blocks, context.right)


def test_what_cannot_be_told_is_a_mismatch_in_this_block(reference: Path, tmp_path: Path) -> None:
    changes = {"1.mlp": mlp(activation=lambda h: np.sin(h) + h**2)}
    stack.dump(tmp_path / "candidate", W, changes, side="candidate")
    cause = why(reference, tmp_path / "candidate", "1.mlp", stack.blocks(W))
    assert cause is not None and cause.name == "op mismatch" and cause.left < 1e-3
    (row,) = [r for r in isolate(reference, stack.blocks(W, changes)).rows if r.verdict == "own"]
    assert row.cause is None  # nothing undoes it


def test_two_faults_at_once_are_told_as_none(reference: Path) -> None:
    w = {**W, "1.q": W["1.q"].T.copy(), "1.o": -W["1.o"]}
    (row,) = [r for r in isolate(reference, stack.blocks(w)).rows if r.verdict == "own"]
    assert row.output == "1.attn" and row.cause is None


def test_products_in_tf32_are_reproduced(reference: Path, tmp_path: Path) -> None:
    """Operands rounded to 11 bits, as tensor cores do: another order of sums is left."""

    def narrow(x: Any) -> Any:
        scaled = np.asarray(x, np.float32).view(np.uint32) + np.uint32(1 << 12)
        return (scaled & np.uint32(0xFFFFE000)).view(np.float32)

    def on_tensor_cores(w: Any, x: Any) -> Any:
        h = narrow(x) @ narrow(w["up"]) + w["bias"]
        return x + narrow(ad.ops.gelu(h)) @ narrow(w["down"])

    stack.dump(tmp_path / "candidate", W, {"1.mlp": on_tensor_cores}, side="candidate")
    cause = why(reference, tmp_path / "candidate", "1.mlp", stack.blocks(W))
    assert cause is not None and (cause.name, cause.left < 0.01) == ("narrow products", True)
    assert "products in tf32" in cause.text


def test_bfloat16_weights_are_reproduced(reference: Path, tmp_path: Path) -> None:
    w = {k: v.astype(ml_dtypes.bfloat16).astype(np.float32) for k, v in W.items()}
    stack.dump(tmp_path / "candidate", w, side="candidate")
    for name in ("embed", "0.attn", "0.mlp"):
        cause = why(reference, tmp_path / "candidate", name, stack.blocks(W))
        assert cause is not None and cause.name == "rounded weights"
        assert "all weights rounded to bfloat16" in cause.text


def test_a_reference_in_bfloat16_is_told_too(tmp_path: Path) -> None:
    """The candidate's weights are wider than the reference's."""
    w = {k: v.astype(ml_dtypes.bfloat16).astype(np.float32) for k, v in W.items()}
    stack.dump(tmp_path / "reference", w)
    found = isolate(tmp_path / "reference", stack.blocks(W))
    assert {r.verdict for r in found.rows} == {"own"}
    assert {r.cause.name for r in found.rows if r.cause} == {"rounded weights"}
    assert len([r for r in found.rows if r.cause]) == len(found.rows)


# --- small blocks: inputs, scalars, other tensors ---------------------------------------------


def small(
    tmp_path: Path, call: Any, faulty: Any, weights: Any = None, **inputs: Any
) -> tuple[Cause | None, Cause | None]:
    """The causes of `faulty` for `call`: undone, and reproduced."""
    run = (lambda f: f(weights, *inputs.values())) if weights else lambda f: f(*inputs.values())
    write_side(tmp_path / "r", {**inputs, "y": np.asarray(run(call))})
    write_side(tmp_path / "c", {**inputs, "y": np.asarray(run(faulty))})
    block = Block("y", tuple(inputs), faulty, weights)
    (row,) = isolate(tmp_path / "r", [block]).rows
    assert row.verdict == "own"
    good = Block("y", tuple(inputs), call, weights)
    return row.cause, why(tmp_path / "r", tmp_path / "c", "y", [good])


def names_of(found: tuple[Cause | None, Cause | None]) -> tuple[str | None, str | None]:
    undone, reproduced = found
    return undone.name if undone else None, reproduced.name if reproduced else None


def test_a_position_off_by_one(tmp_path: Path) -> None:
    table, at = normal(9, 4), np.arange(5)
    found = small(
        tmp_path,
        lambda x, at: x + table[at],
        lambda x, at: x + table[at + 1],
        x=normal(5, 4),
        at=at,
    )
    assert names_of(found) == ("positions off by one", "positions off by one")
    assert found[1] is not None and found[1].text.endswith("with at +1")


def test_a_cache_off_by_one(tmp_path: Path) -> None:
    """A decode step that reads its keys one place late, and one that reads none of them."""
    q, k = normal(1, 4), normal(6, 4, seed=1)

    def late(q: Any, k: Any) -> Any:
        return q @ np.concatenate([np.zeros((1, 4), np.float32), k[:-1]]).T

    found = small(tmp_path, lambda q, k: q @ k.T, late, q=q, k=k)
    assert found[1] is not None and found[1].name == "shifted input"
    assert found[1].text.endswith("k shifted by +1 along axis 0, zeros behind")


def test_an_input_left_out(tmp_path: Path) -> None:
    inputs = {"x": normal(5, 4), "skip": normal(5, 4, seed=1)}
    found = small(tmp_path, lambda x, s: np.tanh(x) + s, lambda x, s: np.tanh(x), **inputs)
    assert found[1] is not None and found[1].name == "input left out"
    assert found[1].text.endswith("skip all zero")


def test_inputs_exchanged(tmp_path: Path) -> None:
    inputs = {"gate": normal(5, 4), "up": normal(5, 4, seed=1)}
    found = small(
        tmp_path, lambda g, u: ad.ops.silu(g) * u, lambda g, u: ad.ops.silu(u) * g, **inputs
    )
    assert names_of(found) == ("swapped inputs", "swapped inputs")


def test_another_tensor_of_the_dump(tmp_path: Path) -> None:
    """The block read the values before the norm."""
    x = normal(5, 4)
    h = x / np.sqrt((x**2).mean(-1, keepdims=True))
    w = normal(4, 4, seed=1)
    write_side(tmp_path / "r", {"x": x, "h": h, "y": h @ w})
    write_side(tmp_path / "c", {"x": x, "h": h, "y": x @ w})
    cause = why(tmp_path / "r", tmp_path / "c", "y", [Block("y", ("h",), lambda h: h @ w)])
    assert cause is not None and cause.name == "wrong input"
    assert cause.text.endswith("with x instead of h")


def test_numbers_among_the_weights(tmp_path: Path) -> None:
    """Where our engine cannot look into the block, an eps and an offset are found as weights."""

    def norm(w: Any, x: Any) -> Any:
        plain = np.asarray(x, np.float64)  # no traced value comes through here
        return plain / np.sqrt((plain**2).mean(-1, keepdims=True) + w["eps"])

    x = normal(5, 4) / 100
    write_side(tmp_path / "r", {"x": x, "y": norm({"eps": 1e-5}, x)})
    (row,) = isolate(tmp_path / "r", [Block("y", ("x",), norm, {"eps": 1e-6})]).rows
    assert row.cause is not None and row.cause.name == "eps"
    assert "eps = 1e-05 instead of 1e-06" in row.cause.text

    def rolled(w: Any, x: Any) -> Any:
        return np.roll(np.asarray(x), w["past"], 0)

    write_side(tmp_path / "s", {"x": x, "y": np.roll(x, 3, 0)})
    (row,) = isolate(tmp_path / "s", [Block("y", ("x",), rolled, {"past": 2})]).rows
    assert row.cause is not None and row.cause.name == "off by one"


def test_a_torch_block_with_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x, w = normal(5, 4), normal(4, 4, seed=1)
    write_side(tmp_path / "r", {"x": x, "y": x @ w})
    block = Block("y", ("x",), lambda w, x: torch.matmul(x, w["w"]), {"w": torch.tensor(w.T)})
    (row,) = isolate(tmp_path / "r", [block]).rows
    assert row.cause is not None and row.cause.name == "transposed weight"


@pytest.mark.parametrize(
    ("call", "faulty", "name"),
    [
        (lambda x: np.var(x, -1), lambda x: np.var(x, -1, ddof=1), "biased variance"),
        (lambda x: np.mean(x, -1), lambda x: np.sum(x, -1), "reduction"),
        (lambda x: ad.ops.softmax(x, -1), lambda x: ad.ops.softmax(x, 0), "wrong axis"),
        (lambda x: x[:2] - x[2:], lambda x: x[2:] - x[:2], "operand order"),
        (lambda x: np.concatenate([x[:2], 2 * x[2:]]), lambda x: np.concatenate([2 * x[2:], x[:2]]),
         "operand order"),
    ],
    ids=["variance", "reduction", "axis", "difference", "parts"],
)  # fmt: skip
def test_one_equation(tmp_path: Path, call: Any, faulty: Any, name: str) -> None:
    found = small(tmp_path, call, faulty, x=normal(4, 4))
    assert names_of(found) == (name, name)


def masked(x: Any, mask: Any) -> Any:
    return np.where(mask, x, np.float32(-np.inf))


def test_infinities_must_stand_in_the_same_places(tmp_path: Path) -> None:
    """A mask turned is told although infinities are compared; not where one is elsewhere."""
    n = 1100
    x, mask = normal(n, n), np.tril(np.ones((n, n), bool))
    other = mask.copy()
    other[7, 900] = True
    blocks = [Block("y", ("x", "mask"), lambda x, mask: masked(np.asarray(x), np.asarray(mask).T))]
    names = []
    for k, said in enumerate((mask, other)):
        write_side(tmp_path / f"{k}", {"x": x, "mask": mask, "y": masked(x, said)})
        (row,) = isolate(tmp_path / f"{k}", blocks, causes=False).rows
        assert row.own is not None and row.own.status == "NONFINITE"
        found = replayed(row.own, opened(tmp_path / f"{k}").left, blocks)
        names.append(found.name if found else None)
    assert names == ["wrong mask", None]


def test_of_several_eps_the_nearest_is_named(tmp_path: Path) -> None:
    """1e-6 and 0 both undo 1e-3 as far as a tolerance sees."""
    w = np.ones(64, np.float32)
    found = small(
        tmp_path,
        lambda x: ad.ops.rms_norm(x, w, eps=1e-6),
        lambda x: ad.ops.rms_norm(x, w, eps=1e-3),
        x=normal(32, 64),
    )
    undone, reproduced = found
    assert undone is not None and "eps = 1e-06 instead of 0.001" in undone.text
    assert reproduced is not None and "eps = 0.001 instead of 1e-06" in reproduced.text


def test_no_block_no_cause(reference: Path, tmp_path: Path) -> None:
    stack.dump(tmp_path / "candidate", with_other_q(), side="candidate")
    blocks = [b for b in stack.blocks(W) if b.output != "1.attn"]
    assert why(reference, tmp_path / "candidate", "1.attn", blocks) is None
    raising = [Block("1.attn", ("0.mlp",), lambda x: x[:, 0, 99])]
    assert why(reference, tmp_path / "candidate", "1.attn", raising) is None


def with_other_q() -> stack.Weights:
    return {**W, "1.q": W["1.q"].T.copy()}


@pytest.mark.parametrize("own", [True, False], ids=["its own blocks", "right ones"])
def test_compare_runs_blocks_again(reference: Path, tight: Path, tmp_path: Path, own: bool) -> None:
    w = {**W, "1.q": W["1.q"].T.copy()}
    candidate = stack.dump(tmp_path / "candidate", w)
    plain = compare(reference, candidate, tight)
    assert plain.first is not None and plain.first.name == "1.attn"
    assert plain.cause is None or plain.cause.name != "transposed weight"
    found = compare(reference, candidate, tight, blocks=stack.blocks(w if own else W))
    assert found.cause is not None and found.cause.name == "transposed weight"


def test_the_command_takes_blocks(
    reference: Path, tight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate = stack.dump(tmp_path / "candidate", {**W, "1.q": W["1.q"].T.copy()})
    command = ["gate", "compare", str(reference), str(candidate), "--tolerances", str(tight)]
    where = f"{__package__ or 'tests.checks.gates'}.stack:right"
    assert main([*command, "--blocks", where]) == 1
    assert "transposed weight" in capsys.readouterr().out
    assert main([*command, "--blocks", "tests.checks.gates.stack:nothing"]) == 3
    assert "tests.checks.gates.stack has no 'nothing'" in capsys.readouterr().err
