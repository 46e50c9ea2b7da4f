"""Outputs and gradients of PyTorch modules: what is hooked, what is dumped, what is refused."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import autodiff as ad
from checks import gates
from checks.gates.comparison.record import Result
from checks.gates.errors import GateError
from checks.gates.formats.manifest import Statistics
from checks.gates.formats.readers import open_side
from checks.gates.limits.contract import Contract, provisional, write_contract

pytest.importorskip("torch", reason="PyTorch is not installed")
import torch
from torch import nn

from checks.gates.capture.torch_modules import matched, picked, reach

HEADS, WIDTH, BLOCKS, WORDS = 2, 8, 5, 11


class Attention(nn.Module):
    """Causal attention that returns its result and its probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -torch.inf)
        probs = scores.softmax(-1)
        return self.out((probs @ v).transpose(1, 2).reshape(n, t, WIDTH)), {"probs": probs}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm(x))[0]
        y = self.mlp(x)
        y += x  # in place: a hook must have taken the values of y before
        return y


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture
def model() -> Toy:
    torch.manual_seed(1)
    return Toy()


TOKENS = torch.tensor([[1, 5, 2, 9], [3, 3, 0, 10]])
POINTS = {"enc.embed": "embed", "enc.block.{N}.out": "layers.*", "dec.logits_raw": "head"}


def refused(action: Any, *texts: str) -> None:
    with pytest.raises(GateError) as caught:
        action()
    assert len(str(caught.value).split("\n")) == 3
    for text in texts:
        assert text in str(caught.value)


def hooks_of(model: nn.Module) -> int:
    modules = sum(len(m._forward_hooks) for m in model.modules())
    return modules + sum(len(p._backward_hooks or ()) for p in model.parameters())


# --- what is dumped ------------------------------------------------------------------------


def test_outputs_in_the_order_of_execution(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, POINTS)
        logits = model(TOKENS)
    side = open_side(tmp_path / "d")
    blocks = [f"enc.block.{i}.out" for i in (0, 2, 4)]
    assert list(side.tensors) == ["enc.embed", *blocks, "dec.logits_raw"]
    assert np.array_equal(side.tensors["dec.logits_raw"].load(), logits.detach().numpy())
    assert side.tensors["enc.block.2.out"].tensor.source == "Block layers.2"


def test_all_blocks_and_positions(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"b.{N}": "layers.*"}, pick="all")
        d.attach(model, {"mlp.{L}.{K}": "layers.*.mlp.*"}, pick="1, last")
        model(TOKENS)
    names = set(open_side(tmp_path / "d").tensors)
    assert names == {f"b.{i}" for i in range(5)} | {
        f"mlp.{i}.{k}" for i in (1, 4) for k in range(3)
    }


def test_parts_of_outputs(tmp_path: Path, model: Toy) -> None:
    points = {"attn.{N}.out": "layers.{N}.attn:0", "attn.{N}.probs": "layers.{N}.attn:1.probs"}
    with gates.Dump(tmp_path / "d", side="reference", roles={"*.probs": "informational"}) as d:
        d.attach(model, points, pick="last")
        model(TOKENS)
    side = open_side(tmp_path / "d")
    probs = side.tensors["attn.4.probs"]
    np.testing.assert_allclose(probs.load().sum(-1), np.ones((2, HEADS, 4)), rtol=1e-6)
    assert probs.tensor.role == "informational"
    assert side.tensors["attn.4.out"].tensor.role == "gate"


@pytest.mark.parametrize("grads", [False, True])
def test_the_result_is_the_same_bit_for_bit(tmp_path: Path, model: Toy, grads: bool) -> None:
    def run() -> list[np.ndarray]:
        model.zero_grad()
        logits = model(TOKENS)
        (logits * torch.linspace(-1, 1, WORDS)).sum().backward()
        return [logits.detach().numpy(), *(p.grad.numpy() for p in model.parameters())]

    before = [a.copy() for a in run()]
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, POINTS, pick="all")
        if grads:
            d.grads()
        during = [a.copy() for a in run()]
    for a, b, c in zip(before, during, run(), strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_a_module_called_again_is_the_next_call(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d, torch.no_grad():
        d.attach(model, {"logits": "head"})
        results = [model(TOKENS[:, : n + 1]) for n in range(3)]
    side = open_side(tmp_path / "d")
    assert side.calls("logits") == ["logits", "logits#1", "logits#2"]
    for key, result in zip(side.calls("logits"), results, strict=True):
        assert np.array_equal(side.tensors[key].load(), result.numpy())


def test_values_changed_in_place_later_are_dumped_as_they_were(tmp_path: Path, model: Toy) -> None:
    caught: dict[str, torch.Tensor] = {}
    mlp = model.layers[0].mlp
    mlp.register_forward_hook(lambda m, i, o: caught.update(o=o, copy=o.detach().clone()))
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"mlp": "layers.0.mlp"})
        model(TOKENS)
    assert np.array_equal(open_side(tmp_path / "d").tensors["mlp"].load(), caught["copy"].numpy())
    assert not torch.equal(caught["o"], caught["copy"])


def test_bfloat16(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "d", side="reference", dtype_policy="bf16") as d:
        d.attach(model.to(torch.bfloat16), {"logits": "head"})
        logits = model(TOKENS)
    stored = open_side(tmp_path / "d").tensors["logits"]
    assert stored.tensor.dtype == "bfloat16"
    assert np.array_equal(stored.load().astype(np.float32), logits.detach().float().numpy())


def test_a_compiled_model_runs_its_hooks(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    compiled = torch.compile(model, backend="eager")

    def run(name: str) -> torch.Tensor:
        with gates.Dump(tmp_path / name, side="reference") as d, torch.no_grad():
            d.attach(model, {"y.{N}": "*"}, pick="all")
            return compiled(x)

    y = run("a")
    side = open_side(tmp_path / "a")
    assert list(side.tensors) == ["y.0", "y.1"]
    assert np.array_equal(side.tensors["y.1"].load(), y.numpy())
    torch.compiler.reset()
    with torch.no_grad():
        compiled(x)  # without hooks: those that come later are skipped
    refused(lambda: run("b"), "'0' (y.0) was attached but never called", "torch.compiler.reset()")
    torch.compiler.reset()
    assert torch.equal(run("c"), y)


# --- gradients -----------------------------------------------------------------------------


def test_gradients_of_outputs_and_parameters(tmp_path: Path, model: Toy) -> None:
    model.embed.weight.requires_grad_(False)
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"block.{N}": "layers.*", "logits": "head"}, pick="all")
        d.grads()
        logits = model(TOKENS)
        weights = torch.randn(logits.shape)
        (logits * weights).sum().backward()
    side = open_side(tmp_path / "d")
    assert np.array_equal(side.tensors["grad.logits"].load(), weights.numpy())
    keys = list(side.tensors)
    assert keys.index("grad.block.4") < keys.index("grad.block.0")
    assert "grad.param.embed.weight" not in keys
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found = side.tensors[f"grad.param.{name}"].load()
            assert np.array_equal(found, parameter.grad.numpy()), name


def test_gradients_are_numbered_as_the_calls_they_belong_to(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    first, second = torch.randn(2, 3), torch.randn(2, 3)
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"y": ""})
        d.grads()
        x = torch.randn(2, 3)
        a = model(x)
        b = model(a.detach())
        ((a * first).sum() + (b * second).sum()).backward()
    side = open_side(tmp_path / "d")
    assert np.array_equal(side.tensors["grad.y"].load(), first.numpy())
    assert np.array_equal(side.tensors["grad.y#1"].load(), second.numpy())


def test_a_second_backward_through_one_graph_is_kept_too(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"y": ""})
        d.grads()
        y = model(x)
        y.sum().backward(retain_graph=True)
        (2.0 * y).sum().backward()
    side = open_side(tmp_path / "d")
    assert np.array_equal(side.tensors["grad.y#1"].load(), np.full((2, 3), 2.0))


# --- hooks go away -------------------------------------------------------------------------


def test_hooks_are_removed_also_after_an_exception(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "a", side="reference") as d:
        d.attach(model, POINTS)
        d.grads()
        assert hooks_of(model) > 5
        model(TOKENS).sum().backward()
    assert hooks_of(model) == 0
    with pytest.raises(ZeroDivisionError), gates.Dump(tmp_path / "b", side="reference") as d:
        d.attach(model, POINTS)
        d.grads()
        _ = 1 // 0
    assert hooks_of(model) == 0
    with pytest.raises(IndexError), gates.Dump(tmp_path / "c", side="reference") as d:
        d.attach(model, POINTS)
        model(TOKENS + WORDS)
    assert hooks_of(model) == 0


def test_a_gradient_that_comes_after_closing_is_not_dumped(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        d.attach(model, {"logits": "head"})
        d.grads()
        model(TOKENS).sum().backward()
        late = model(TOKENS)
    late.sum().backward()
    assert open_side(tmp_path / "d").calls("grad.logits") == ["grad.logits"]


# --- refusals ------------------------------------------------------------------------------


def test_patterns_that_match_nothing_or_say_too_little(tmp_path: Path, model: Toy) -> None:
    with gates.Dump(tmp_path / "d", side="reference") as d:
        attach = d.attach
        wrong = {"enc.block.{N}.out": "layer.*"}
        refused(lambda: attach(model, wrong), "'layer.*' matches no module", "'layers.*'")
        refused(lambda: attach(model, {"x": "heads"}), "did you mean 'head'?")
        refused(lambda: attach(model, {"x": "zzz"}), "the modules are ")
        refused(lambda: attach(model, {"x.{N}": "head"}), "says what {N} is")
        refused(lambda: attach(model, {"x": "layers.*"}), "two modules are named 'x'", "{N}")
        refused(lambda: attach(model, {"x.{N}": "layers.**"}), "'**'", "one part of a path")
        refused(lambda: attach(model, {"x.{N}": "layers.*"}, pick="center"), "'center' picks none")
        refused(lambda: attach(model, {"x.{N}": "layers.*"}, pick="5"), "'5' picks none of 5")
        refused(lambda: attach(torch.sin, {"x": ""}), "is no torch.nn.Module", "d.put")
        refused(d.grads, "no module is attached", "d.attach")
        assert hooks_of(model) == 0
        d.attach(model, {"x": "head"})
        refused(lambda: attach(model, {"x": "embed"}), "two modules are named 'x'")
        model(TOKENS)


def test_a_module_that_never_runs_is_an_error(tmp_path: Path, model: Toy) -> None:
    def run() -> None:
        with gates.Dump(tmp_path / "d", side="reference") as d:
            d.attach(model, {"logits": "head"})

    refused(run, "'head' (logits) was attached but never called", "run it inside the dump")
    assert hooks_of(model) == 0


def test_gradients_that_never_come_are_an_error(tmp_path: Path, model: Toy) -> None:
    def run() -> None:
        with gates.Dump(tmp_path / "d", side="reference") as d, torch.no_grad():
            d.attach(model, {"logits": "head"})
            d.grads()
            model(TOKENS)

    refused(run, "none came: 0 outputs require one", "loss.backward()")


def test_outputs_that_are_no_tensors_name_their_parts(tmp_path: Path, model: Toy) -> None:
    def run(pattern: str) -> None:
        with gates.Dump(tmp_path / pattern.replace(":", "_"), side="reference") as d:
            d.attach(model, {"x": pattern})
            model(TOKENS)

    refused(lambda: run("layers.0.attn"), "no tensor but a tuple", "Attention", '"pattern:0"')
    refused(lambda: run("layers.0.attn:1"), "no tensor but a dict", '"pattern:1.probs"')
    refused(lambda: run("layers.0.attn:1.prob"), "no part 'prob', but probs", "'probs'")
    refused(lambda: run("layers.0.attn:2"), "no part '2', but 0, 1")
    assert hooks_of(model) == 0


# --- patterns ------------------------------------------------------------------------------


def test_matching_is_of_whole_parts() -> None:
    paths = ["", "layers", "layers.1", "layers.10", "layers.1.mlp", "xlayers.1"]
    assert matched("b.{N}", "layers.*", paths) == [
        ("b.1", "layers.1", "1"),
        ("b.10", "layers.10", "10"),
    ]
    assert matched("x", "layers.1", paths) == [("x", "layers.1", "")]
    assert matched("root", "", paths) == [("root", "", "")]
    twice = ["a.1.b.1", "a.1.b.2"]
    assert matched("x.{N}", "a.{N}.b.{N}", twice) == [("x.1", "a.1.b.1", "1")]
    assert matched("x.{B}.{A}", "a.{A}.b.{B}", twice)[1][0] == "x.2.1"


@pytest.mark.parametrize(
    ("count", "kept"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 2, 3]), (9, [0, 4, 8])]
)
def test_first_mid_last(count: int, kept: list[int]) -> None:
    found = [(f"b.{i}", f"layers.{i}", str(i)) for i in range(count)]
    assert picked(found, "first,mid,last") == [(f"b.{i}", f"layers.{i}") for i in kept]


def test_reach_named_tuples_and_objects() -> None:
    class Pair(NamedTuple):
        a: Any
        b: Any

    class Result:
        def __init__(self, x: torch.Tensor) -> None:
            self.hidden = [x]

    x = torch.ones(1)
    assert reach(Pair(x, None), "a", "") is x
    assert reach({"r": Result(x)}, "r.hidden.0", "") is x


# --- end to end ----------------------------------------------------------------------------


def ported(w: dict[str, np.ndarray], tokens: np.ndarray, eps: float = 1e-5) -> Any:
    """The same model in plain NumPy, with taps."""
    x = ad.tap("enc.embed", w["embed.weight"][tokens])
    n, t, _ = x.shape
    for i in range(BLOCKS):
        p = f"layers.{i}."
        centred = x - x.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
        normed = ad.tap(f"enc.block.{i}.norm", normed * w[p + "norm.weight"] + w[p + "norm.bias"])
        qkv = normed @ w[p + "attn.qkv.weight"].T + w[p + "attn.qkv.bias"]
        qkv = qkv.reshape(n, t, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
        scores = qkv[0] @ qkv[1].transpose(0, 1, 3, 2) / np.sqrt(np.float32(WIDTH // HEADS))
        scores = np.where(np.triu(np.ones((t, t), bool), 1), np.float32(-np.inf), scores)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        probs = ad.tap(f"enc.block.{i}.probs", e / e.sum(-1, keepdims=True))
        mixed = (probs @ qkv[2]).transpose(0, 2, 1, 3).reshape(n, t, WIDTH)
        x = x + mixed @ w[p + "attn.out.weight"].T + w[p + "attn.out.bias"]
        hidden = np.tanh(x @ w[p + "mlp.0.weight"].T + w[p + "mlp.0.bias"])
        x = ad.tap(f"enc.block.{i}.out", x + hidden @ w[p + "mlp.2.weight"].T + w[p + "mlp.2.bias"])
    return ad.tap("dec.logits_raw", x @ w["head.weight"].T + w["head.bias"])


def compared(tmp_path: Path, model: Toy, eps: float = 1e-5) -> Result:
    """The model against its port, with provisional tolerances from the reference's statistics."""
    points = POINTS | {
        "enc.block.{N}.norm": "layers.*.norm",
        "enc.block.{N}.probs": "layers.*.attn:1.probs",
    }
    roles = {"*.probs": "informational"}
    reference, candidate = tmp_path / "reference", tmp_path / "candidate"
    with gates.Dump(reference, side="reference", family="toy", roles=roles) as d:
        d.attach(model, points, pick="all")
        model(d.input("tokens", TOKENS))
    weights = {n: p.detach().numpy() for n, p in model.named_parameters()}
    with gates.Dump(candidate, side="candidate", family="toy", roles=roles) as d:
        ported(weights, d.input("tokens", TOKENS.numpy().astype(np.int32)), eps)
    file = tmp_path / "toy.json"
    limits = {
        key: provisional([stored.tensor.statistics or Statistics()])
        for key, stored in open_side(reference).tensors.items()
    }
    write_contract(file, Contract(file, limits))
    return gates.compare(reference, candidate, file)


def test_a_model_and_its_port(tmp_path: Path, model: Toy) -> None:
    result = compared(tmp_path, model)
    assert result.exit_code == 0 and result.inputs == "equal"
    assert len(result.rows) == 3 * BLOCKS + 2
    assert [r.name for r in result.rows][:2] == ["enc.embed", "enc.block.0.norm"]
    assert result.rows[0].measured is not None and result.rows[0].measured.max_abs == 0.0


def test_a_wrong_port_differs_first_where_it_is_wrong(tmp_path: Path, model: Toy) -> None:
    result = compared(tmp_path, model, eps=1e-3)
    assert result.exit_code == 1 and result.inputs == "equal"
    assert result.first is not None and result.first.name == "enc.block.0.norm"
