"""Qwen3 against `transformers`: forward, backward, decode; float32 and bfloat16 weights; faults."""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import autodiff as ad
from checks import check_gradients, cli, gates
from checks.gates.capture.arrays import digest
from checks.gates.comparison.record import Result
from checks.gates.formats.readers import open_side
from checks.ports import qwen3
from checks.ports.policy import BF16_POLICY, linear, rounded
from checks.ports.qwen3_config import EMBED, HEAD, ROLES, SEED, TINY, Config, example, flat

GOLDEN = Path(__file__).parents[1] / "golden" / "qwen3"
FLOAT32, BF16 = GOLDEN / "qwen3.json", GOLDEN / "qwen3.bf16.json"
WEIGHTS = qwen3.random_weights(TINY, SEED)
EXAMPLE = example(TINY, SEED)

Weights = Mapping[str, Any]


def dumped(folder: Path, weights: Weights = WEIGHTS, policy: str = "float32") -> Path:
    """The port's whole run, in a dump."""
    options = {"side": "candidate", "family": "qwen3", "dtype_policy": policy}
    with gates.Dump(folder, roles=ROLES, **options) as d:  # type: ignore[arg-type]
        qwen3.run(d, weights, TINY, EXAMPLE)
    return folder


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped(tmp_path_factory.mktemp("float32") / "d")


@pytest.fixture(scope="module")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped(tmp_path_factory.mktemp("bf16") / "d", rounded(WEIGHTS), BF16_POLICY)


def rows(result: Result, start: str) -> list[Any]:
    return [r for r in result.rows if r.contract and r.name.startswith(start)]


# --- float32 -------------------------------------------------------------------------------


def test_forward_backward_and_decode_pass(port: Path) -> None:
    result = gates.compare(GOLDEN / "float32", port, FLOAT32)
    assert result.exit_code == 0, result.first
    assert result.inputs == "equal"
    assert len(rows(result, "dec.block")) == 3 * 12
    assert len(rows(result, "grad.param.")) == len(WEIGHTS)
    assert len(rows(result, "grad.dec.")) == 2 + 3 * 12 + 1
    steps = [r.name for r in rows(result, "dec.gen.logits_raw")]
    assert steps == ["dec.gen.logits_raw", *(f"dec.gen.logits_raw#{n}" for n in range(1, 9))]
    assert not any(r.systematic for r in result.rows if r.name.startswith("dec.block"))
    assert not result.suspects


def test_the_command_passes(port: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(GOLDEN / "float32"), str(port), "--tolerances", str(FLOAT32)]
    assert cli.main(["gate", "compare", *given]) == 0
    assert "PASS" in capsys.readouterr().out


def test_weights_and_tokens_are_those_of_the_golden_data() -> None:
    for policy in ("float32", "bf16"):
        run = open_side(GOLDEN / policy).run
        assert run is not None
        assert run.input_hashes["weights"] == digest(flat(WEIGHTS))
        assert run.input_hashes["tokens"] == digest(EXAMPLE.tokens)


def test_the_compiled_port_passes(tmp_path: Path) -> None:
    compiled = ad.compile(lambda w: qwen3.forward(w, TINY, EXAMPLE.tokens))
    with gates.Dump(tmp_path / "d", side="candidate") as d:
        d.put("dec.tokens", EXAMPLE.tokens)
        compiled(dict(WEIGHTS))
    result = gates.compare(GOLDEN / "float32", tmp_path / "d", FLOAT32, only="dec.[!gl]*")
    assert result.exit_code == 0, result.first
    assert len(rows(result, "dec.block")) == 3 * 12


def test_each_block_by_itself_is_right_forward_and_backward(port: Path) -> None:
    blocks = qwen3.blocks(WEIGHTS, TINY)
    found = gates.isolate(GOLDEN / "float32", blocks, FLOAT32, candidate=port, backward=True)
    assert found.ok, [r for r in found.every if r.verdict != "ok"][:3]
    assert [r.output for r in found.rows[:2]] == ["dec.token_emb", "dec.block.0.norm"]
    assert max(r.own_error or 0.0 for r in found.every) < 1e-6
    grads = {r.output for r in found.backward}
    assert {"grad.dec.block.0.out", "grad.param.model.layers.1.mlp.up_proj.weight"} <= grads


def test_the_port_is_no_further_from_float64_than_the_reference(port: Path, tmp_path: Path) -> None:
    wide = {name: w.astype(np.float64) for name, w in WEIGHTS.items()}
    wide64 = dumped(tmp_path / "d", wide, "float64")
    result = gates.compare(GOLDEN / "float32", port, FLOAT32, only="dec.[!g]*", reference64=wide64)
    assert result.exit_code == 0, result.first
    split = [r.three_way for r in result.rows if r.contract and r.measured and r.measured.max_abs]
    assert len(split) > 30
    assert all(0 < s.candidate < 3 * s.own < 1e-5 for s in split)


# --- bfloat16 weights ----------------------------------------------------------------------


def test_bf16_weights_pass_their_own_file(bf16: Path) -> None:
    result = gates.compare(GOLDEN / "bf16", bf16, BF16)
    assert result.exit_code == 0, result.first
    assert result.inputs == "equal"
    dtypes = {r.dtypes for r in rows(result, "grad.param.")}
    assert dtypes == {("bfloat16", "bfloat16")}


def test_the_float32_file_fails_for_bf16_weights(bf16: Path) -> None:
    """The seed of the tolerances: limits made for float32 are hundreds of times too tight, and the
    report says why: the weights were rounded, the error is noise of a bfloat16 product's size."""
    result = gates.compare(GOLDEN / "float32", bf16, FLOAT32, only="dec.*")
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "dec.token_emb"
    assert result.cause is not None and result.cause.name == "rounded to bfloat16"
    close = result.answers[3].text
    assert "as bfloat16 (about 0.003 for one product)" in close and "noise-like" in close
    assert any("dtype policies differ" in n for n in result.notes)
    outs = [r for r in result.rows if r.name.endswith(".out") and "#" not in r.name]
    assert len(outs) == 6 and all(r.status == "FAIL" and not r.systematic for r in outs)
    assert all(1e-3 < r.measured.relative_rms < 3e-2 for r in outs)
    over = [r.measured.mean_abs / r.limit.mean_abs for r in outs]
    assert min(over) > 100


def test_float32_weights_fail_the_bf16_file(port: Path) -> None:
    result = gates.compare(GOLDEN / "bf16", port, BF16, only="dec.*")
    assert result.exit_code == 1
    assert result.first is not None and result.first.name == "dec.token_emb"


def test_each_bf16_block_by_itself_is_right(bf16: Path) -> None:
    blocks = qwen3.blocks(rounded(WEIGHTS), TINY)
    found = gates.isolate(GOLDEN / "bf16", blocks, BF16, candidate=bf16)
    assert found.ok, found.first
    assert max(r.own_error or 0.0 for r in found.rows) < 1e-4


def test_bf16_weights_in_float32_blocks_are_off_in_each(bf16: Path) -> None:
    """On the float32 reference's inputs every block with a product is off by itself, at one
    product's rounding; those without one only hand on."""
    blocks = qwen3.blocks(rounded(WEIGHTS), TINY)
    found = gates.isolate(GOLDEN / "float32", blocks, FLOAT32, candidate=bf16, causes=False)
    verdicts = {r.output: r.verdict for r in found.rows}
    assert all(verdicts[f"dec.block.{n}.mlp"] == "own" for n in range(3))
    assert all(verdicts[f"dec.block.{n}.scores"] == "inherited" for n in range(3))


# --- the port by itself --------------------------------------------------------------------


def test_steps_with_a_cache_give_what_one_pass_gives() -> None:
    wide = {name: w.astype(np.float64) for name, w in WEIGHTS.items()}
    whole = qwen3.forward(wide, TINY, EXAMPLE.tokens)
    logits, cache = qwen3.step(wide, TINY, EXAMPLE.tokens[:, :5])
    for n in range(5, 12):
        np.testing.assert_allclose(logits[:, 0], whole[:, n - 1], rtol=0, atol=1e-12)
        logits, cache = qwen3.step(wide, TINY, EXAMPLE.tokens[:, n : n + 1], cache)
    np.testing.assert_allclose(logits[:, 0], whole[:, -1], rtol=0, atol=1e-12)
    assert cache[0][0].shape == (2, TINY.groups, 12, TINY.head_width)


def test_a_head_of_its_own() -> None:
    untied = replace(TINY, tied=False)
    weights = qwen3.random_weights(untied, SEED)
    assert set(weights) - set(WEIGHTS) == {HEAD}
    assert all(np.array_equal(weights[name], w) for name, w in WEIGHTS.items())
    same = {**weights, HEAD: weights[EMBED]}
    logits = qwen3.forward(WEIGHTS, TINY, EXAMPLE.tokens)
    np.testing.assert_array_equal(qwen3.forward(same, untied, EXAMPLE.tokens), logits)
    assert np.abs(qwen3.forward(weights, untied, EXAMPLE.tokens) - logits).max() > 1
    assert qwen3.blocks(weights, untied)[-2].weights == {HEAD: weights[HEAD]}


def test_the_gradient_is_that_of_differences() -> None:
    wide = {name: w.astype(np.float64) for name, w in WEIGHTS.items()}
    names = [f"model.layers.1.self_attn.{n}_norm.weight" for n in ("q", "k")]

    def loss(q: Any, k: Any) -> Any:
        given = wide | dict(zip(names, (q, k), strict=True))
        return qwen3.loss(given, TINY, EXAMPLE.tokens, EXAMPLE.labels, EXAMPLE.shares)

    report = check_gradients(loss, *(wide[n] for n in names))
    assert report.verdict == "PASS", report


@pytest.mark.parametrize(
    ("change", "text"), [({"layers": 0}, "layers is not positive"), ({"groups": 4}, "groups 4")]
)
def test_sizes_that_cannot_be(change: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        replace(TINY, **change)


# --- faults --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A wrong port: what is wrong, what diverges first, which cause is printed (None: any or
    none), and the code."""

    first: str
    cause: str | None = None
    patch: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    config: Config = TINY
    weights: Callable[[Weights], Weights] = dict
    code: int = 1


def without_norm(which: str) -> Callable[..., Any]:
    real = qwen3.normed_heads

    def normed_heads(weights: Weights, config: Config, name: str, x: Any) -> Any:
        if name != which:
            return real(weights, config, name, x)
        y = linear(x, weights[f"self_attn.{name}_proj.weight"])
        return y.reshape(*y.shape[:2], -1, config.head_width)

    return normed_heads


def exchanged(weights: Weights) -> Weights:
    """Gate and up projections exchanged."""
    names = {"gate_proj": "up_proj", "up_proj": "gate_proj"}
    return {
        ".".join(names.get(part, part) for part in name.split(".")): w
        for name, w in weights.items()
    }


TURNED = qwen3.turned
FAULTS = {
    "rope pairs": Fault(
        "dec.block.0.q",
        "rotary",
        {"rope": lambda x, at, base: ad.ops.rope(x, at, base=base, interleaved=True)},
    ),
    "rope base": Fault(
        "dec.block.0.q", "rotary", {"rope": lambda x, at, base: ad.ops.rope(x, at, base=1e4)}
    ),
    "rope left out": Fault("dec.block.0.q", "rotary", {"rope": lambda x, at, base: x}),
    "q norm left out": Fault(
        "dec.block.0.q_norm", "normalisation", {"normed_heads": without_norm("q")}
    ),
    "k norm left out": Fault(
        "dec.block.0.k_norm", "normalisation", {"normed_heads": without_norm("k")}
    ),
    "heads tiled": Fault(
        "dec.block.0.scores",
        None,
        {"repeat_heads": lambda x, times: np.concatenate([x] * times, axis=1)},
    ),
    "eps": Fault("dec.block.0.norm", "normalisation", config=replace(TINY, eps=1e-5)),
    "scale left out": Fault("dec.block.0.scores", "scale", {"scale": lambda config: 1.0}),
    "mask left out": Fault(
        "dec.block.0.scores", "mask", {"seen": lambda n, m: np.ones((n, m), bool)}
    ),
    "residual left out": Fault("dec.block.0.attn_norm", None, {"residual": lambda x, y: y}, code=2),
    "gate and up exchanged": Fault("dec.block.0.mlp", weights=exchanged),
    "tied head reshaped": Fault(
        "dec.logits_raw",
        None,
        {"head": lambda w, c, x: np.matmul(x, w[EMBED].reshape(c.width, c.vocabulary))},
    ),
    "cache: position late": Fault(
        "dec.gen.block.0.out#1",
        None,
        {"turned": lambda c, x, start: TURNED(c, x, start - 1 if start else 0)},
    ),
    "cache: oldest dropped": Fault(
        "dec.gen.block.0.out#1",
        None,
        {"extended": lambda past, new: np.concatenate([past, new], axis=2)[:, :, 1:]},
    ),
}


@contextlib.contextmanager
def patched(fault: Fault) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, function in fault.patch.items():
            stack.enter_context(mock.patch.object(qwen3, name, function))
        yield


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(name: str, tmp_path: Path) -> None:
    fault, cached = FAULTS[name], name.startswith("cache")
    weights = fault.weights(WEIGHTS)
    with patched(fault):
        with gates.Dump(tmp_path / "d", side="candidate", dtype_policy="float32") as d:
            EXAMPLE.noted(d)
            d.put("dec.tokens", EXAMPLE.tokens)
            if cached:
                qwen3.generate(weights, fault.config, EXAMPLE.prompt, EXAMPLE.steps)
            else:
                qwen3.loss(weights, fault.config, EXAMPLE.tokens, EXAMPLE.labels, EXAMPLE.shares)
        only = "dec.gen.*" if cached else "dec.[!g]*"
        result = gates.compare(GOLDEN / "float32", tmp_path / "d", FLOAT32, only=only)
        blocks = qwen3.blocks(weights, fault.config)
        found = gates.isolate(GOLDEN / "float32", blocks, FLOAT32, causes=False)
    assert result.exit_code == fault.code
    assert result.first is not None and result.first.name == fault.first
    cause = result.cause.name if result.cause else None
    assert fault.cause in (None, cause), result.cause
    first = None if found.first is None else found.first.output
    assert first == (None if cached else fault.first)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rope pairs", "the candidate turns pairs (2 i, 2 i + 1) with base 1e+06"),
        ("rope base", "with base 1e+04"),
        ("scale left out", "candidate = 4 x reference"),
        ("eps", "the epsilon of a normalisation"),
    ],
)
def test_the_printed_cause_is_right(name: str, text: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    with patched(fault), gates.Dump(tmp_path / "d", side="candidate") as d:
        d.put("dec.tokens", EXAMPLE.tokens)
        qwen3.forward(WEIGHTS, fault.config, EXAMPLE.tokens)
    result = gates.compare(GOLDEN / "float32", tmp_path / "d", FLOAT32, only="dec.block.0.*")
    assert result.cause is not None and text in result.cause.text


def test_isolation_names_the_exchanged_weights() -> None:
    blocks = qwen3.blocks(exchanged(WEIGHTS), TINY)
    found = gates.isolate(GOLDEN / "float32", blocks[:12], FLOAT32)
    assert found.first is not None and found.first.output == "dec.block.0.mlp"
    assert found.first.cause is not None
    assert "up_proj.weight" in found.first.cause.text
    assert "gate_proj.weight exchanged" in found.first.cause.text


def test_a_gradient_that_is_lost_is_found_though_the_forward_pass_is_right(tmp_path: Path) -> None:
    def mlp(weights: Weights, x: Any) -> Any:
        gate, up, down = (weights[f"mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        gated = ad.ops.silu(ad.stop_gradient(linear(x, gate)))
        return linear(gated * linear(x, up), down)

    with mock.patch.object(qwen3, "mlp", mlp):
        result = gates.compare(GOLDEN / "float32", dumped(tmp_path / "d"), FLOAT32)
    assert result.exit_code == 1
    assert result.first is not None
    assert result.first.name == "grad.param.model.layers.2.mlp.gate_proj.weight"
    assert not any(r.failed for r in rows(result, "dec."))


# --- the capture ---------------------------------------------------------------------------


def test_capturing_without_transformers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.golden.qwen3.capture import needed

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(gates.GateError) as caught:
        needed()
    assert len(str(caught.value).split("\n")) == 3
    assert "needs the package torch" in str(caught.value)
    assert "pip install" in str(caught.value) and "transformers>=5.24" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "bf16"])
def test_a_fresh_capture_is_the_golden_one(policy: str, tmp_path: Path, port: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5.24")
    from tests.golden.qwen3.capture import capture

    limits = {"float32": FLOAT32, "bf16": BF16}[policy]
    capture(tmp_path / "d", policy)
    result = gates.compare(GOLDEN / policy, tmp_path / "d", limits)
    assert result.exit_code == 0, result.first
    if policy == "float32":
        assert gates.compare(tmp_path / "d", port, limits).exit_code == 0
