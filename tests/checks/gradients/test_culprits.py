"""Where the rule at fault stands: the bwd, the backward or the jvp itself, not what calls it."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autodiff as ad
from checks.gradients.check import check_gradients
from checks.gradients.diagnosis import uses
from checks.gradients.report import GradientReport
from checks.gradients.wording import text

Array = np.ndarray[Any, Any]
X = np.random.default_rng(21).normal(size=(3, 4))


def line_of(function: Callable[..., Any], words: str = "") -> int:
    """The line of a function's definition, or of words in it."""
    lines, start = inspect.getsourcelines(function)
    return start + next(n for n, line in enumerate(lines) if words in line)


def report(f: Any, *args: Any, **options: Any) -> GradientReport:
    found = check_gradients(f, *args, vmap=False, full=False, **options)
    assert found.verdict == "WRONG" and found.cause is not None, found
    return found


# --- JAX -----------------------------------------------------------------------------------


def test_the_bwd_rule_of_jax_and_its_call() -> None:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_vjp
    def gate(x: Any, c: Any) -> Any:
        return jnp.sin(x) * c

    def gate_fwd(x: Any, c: Any) -> Any:
        return gate(x, c), (x, c)

    def gate_bwd(residuals: Any, ct: Any) -> Any:
        x, c = residuals
        return -ct * jnp.cos(x) * c, None

    gate.defvjp(gate_fwd, gate_bwd)

    def net(x: Any) -> Any:
        return jnp.sum(gate(jnp.tanh(x), jnp.ones(4)) ** 2)  # here

    cause = report(net, X, framework="jax").cause
    assert cause is not None and cause.name == "sign" and "zero" not in cause.text
    assert f"test_culprits.py:{line_of(gate_bwd)} in gate_bwd" in cause.where
    assert f":{line_of(net, '# here')} in net" in cause.where


def test_the_jvp_rule_of_jax() -> None:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_jvp
    def soft(x: Any) -> Any:
        return jnp.logaddexp(x, 0.0)

    @soft.defjvp
    def soft_jvp(primals: Any, tangents: Any) -> Any:
        return soft(*primals), tangents[0] * jnp.tanh(primals[0])

    cause = report(soft, jnp.asarray(X)).cause
    assert cause is not None and f":{line_of(soft_jvp)} in soft_jvp" in cause.where


def test_a_clipped_cotangent() -> None:
    jax: Any = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_vjp
    def clip(x: Any) -> Any:
        return x + 0.0

    clip.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -0.1, 0.1),))
    cause = report(clip, jnp.asarray(X)).cause
    assert cause is not None and cause.name == "cotangent"
    assert "is not linear in the cotangent: the backward clips it" in cause.text


# --- PyTorch -------------------------------------------------------------------------------


def functions() -> dict[str, Any]:
    torch: Any = pytest.importorskip("torch")

    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    class Rope(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, cos: Any, sin: Any) -> Any:
            ctx.save_for_backward(cos, sin)
            return x * cos + turned(x) * sin

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            cos, sin = ctx.saved_tensors
            return ct * cos + turned(ct) * sin, None, None

    class Cube(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * ct

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return 2 * ctx.saved_tensors[0] ** 2 * t

    class Entropy(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.logsumexp(x, -1).sum()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return torch.softmax(ctx.saved_tensors[0], -1)

    class Once(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.kept = x.cos()
            return x.sin()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ctx.kept.mul_(ct)

    return {"Rope": Rope, "Cube": Cube, "Entropy": Entropy, "Once": Once}


def test_a_rope_of_torch_turned_the_wrong_way() -> None:
    torch: Any = pytest.importorskip("torch")
    rope = functions()["Rope"]
    angles = torch.linspace(0.3, 1.1, 2, dtype=torch.float64).repeat(2)

    def attend(h: Any) -> Any:
        return rope.apply(h, angles.cos(), angles.sin()).sin().sum()

    cause = report(attend, torch.tensor(X)).cause
    assert cause is not None and cause.name == "transposed"
    assert "the rule of Rope: the gradient of x is made with the transposed Jacobian" in cause.text
    assert "the sign of its sin terms" in cause.text
    assert "zero" not in cause.text and "cos" not in cause.text


def test_a_wrong_jvp_stands_at_the_jvp() -> None:
    torch: Any = pytest.importorskip("torch")
    cube = functions()["Cube"]
    cause = report(lambda x: cube.apply(x), torch.tensor(X)).cause
    assert cause is not None and cause.where.startswith("Cube.jvp, at ")
    assert f":{line_of(cube.jvp, 'def jvp')} in jvp: `def jvp(" in cause.where
    assert "backward" not in cause.where


@pytest.mark.parametrize("seed", range(3))
def test_a_backward_that_ignores_its_cotangent_has_no_factor(seed: int) -> None:
    torch: Any = pytest.importorskip("torch")
    entropy = functions()["Entropy"]
    cause = report(lambda x: entropy.apply(x), torch.tensor(X), seed=seed).cause
    assert cause is not None and cause.name == "cotangent" and "Entropy.backward" in cause.where
    assert "times" not in cause.text and "does not multiply by it" in cause.text
    inner = report(lambda x: entropy.apply(x.tanh()) * 2, torch.tensor(X), seed=seed).cause
    assert inner is not None and inner.name == "cotangent"


def test_a_backward_that_writes_into_what_it_saved() -> None:
    torch: Any = pytest.importorskip("torch")
    once = functions()["Once"]
    found = check_gradients(lambda x: once.apply(x), torch.tensor(X), vmap=False)
    assert found.verdict == "NONDETERMINISTIC"
    assert "it is not re-entrant (it writes into what it saved)" in " ".join(text(found).split())
    assert "fix the random numbers" not in text(found) and "clone" in text(found)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "lacks what comes through one use of x"),
        (-1.0, "has what comes through one use of x"),
        (4.0, "has 4 times what comes through one use of x"),
    ],
)
def test_a_term_of_a_norm_in_torch(share: float, said: str) -> None:
    """The root of the squares taken for a constant, its sign lost, a sum for a mean."""
    torch: Any = pytest.importorskip("torch")

    class Norm(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)  # squared
            ctx.save_for_backward(x, w, r)
            return x * r * w

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            x, w, r = ctx.saved_tensors
            term = x * r**3 * (ct * w * x).mean(-1, keepdim=True)
            return r * ct * w - share * term, (ct * x * r).sum(0)

    cause = report(lambda x, w: Norm.apply(x, w), torch.tensor(X), torch.tensor(X[0])).cause
    assert cause is not None and cause.name == "accumulation" and said in cause.text
    assert f"test_culprits.py:{line_of(Norm.forward, '# squared')} in forward" in cause.text
    assert cause.text.endswith("w is right") and "Norm.backward" in cause.where
    assert ("with the wrong sign" in cause.text) == (share < 0)


def test_a_function_of_torch_that_writes_in_place_is_not_followed() -> None:
    torch: Any = pytest.importorskip("torch")

    class Squared(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            y = x.clone()
            y *= x
            y += torch.sin(x)
            return y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * (x + x.cos())

    found = report(lambda x: Squared.apply(x), torch.tensor(X))
    assert found.cause is not None and found.cause.name != "accumulation"
    assert not any("stopped" in note for note in found.notes)


def test_a_value_of_many_uses_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a lost use takes one pullback and two pushes, however many uses there are."""
    taken: list[str] = []
    for name in ("vjp", "jvp"):
        own = getattr(ad, name)

        def counted(*args: Any, own: Any = own, name: str = name) -> Any:
            taken.append(name)
            return own(*args)

        monkeypatch.setattr(uses.ad, name, counted)

    def recurrence(x: Any) -> Any:
        y = x
        for _ in range(12):
            y = np.sin(y * x) + y / (1 + y * y)
        return y

    noise = np.random.default_rng(1).normal(size=X.shape)

    def vjp(x: Array, ct: Array) -> tuple[Array]:
        return (ct * noise,)

    check_gradients(recurrence, X, vjp=vjp, vmap=False, full=False)
    assert sorted(taken) == ["jvp", "jvp", "vjp"]


# --- ours ----------------------------------------------------------------------------------


def test_the_bwd_rule_of_ours_and_constants_without_a_gradient() -> None:
    @ad.custom_vjp
    def gate(x: Any, c: Any) -> Any:
        return ad.ops.sin(x) * c

    def bwd(residuals: Any, ct: Any) -> Any:
        x, c = residuals
        return 2 * ct * ad.ops.cos(x) * c, None  # the rule

    gate.defvjp(lambda x, c: (ad.ops.sin(x) * c, (x, c)), bwd)

    def net(x: Any) -> Any:
        return np.sum(gate(np.tanh(x), np.ones(4)) ** 2)  # here

    cause = report(net, X).cause
    assert cause is not None and cause.name == "factor" and "zero" not in cause.text
    assert f"test_culprits.py:{line_of(bwd, '# the rule')} in bwd" in cause.where
    assert f":{line_of(net, '# here')} in net" in cause.where
