"""The fast executor beside hand-written NumPy, HIPS autograd, jax.jit and torch, on one thread."""

from collections.abc import Callable
from typing import Any

import numpy as np

import autodiff as ad
from benchmarks.timing import best_times, table

Array = np.ndarray[Any, Any]
Params = dict[str, Array]
SIZES = ((32, 64, 64, 10), (256, 784, 256, 10))
CHAIN = 4_000_000


# --- a network with one hidden layer -------------------------------------------------------


def network(batch: int, inputs: int, hidden: int, classes: int) -> tuple[Params, Array, Array]:
    """Parameters, a batch and its labels."""
    rng = np.random.default_rng(0)
    params = {
        "w1": rng.normal(size=(inputs, hidden)) / np.sqrt(inputs),
        "b1": np.zeros(hidden),
        "w2": rng.normal(size=(hidden, classes)) / np.sqrt(hidden),
        "b2": np.zeros(classes),
    }
    return params, rng.normal(size=(batch, inputs)), rng.integers(0, classes, batch)


def loss(activation: Callable[[Any], Any]) -> Callable[..., Any]:
    """Mean cross entropy of the network, in the engine's ops."""

    def mean_loss(params: Any, x: Any, labels: Any) -> Any:
        h = activation(x @ params["w1"] + params["b1"])
        logits = h @ params["w2"] + params["b2"]
        return np.mean(ad.ops.cross_entropy(logits, labels))

    return mean_loss


def hand_written(batch: int, inputs: int, hidden: int, classes: int, name: str) -> Any:
    """Value and gradient as one writes them by hand: buffers made once, every call with `out=`."""
    z, h, h_bar, slope = (np.empty((batch, hidden)) for _ in range(4))
    y, e, y_bar = (np.empty((batch, classes)) for _ in range(3))
    top, total, positive = np.empty((batch, 1)), np.empty((batch, 1)), np.empty(z.shape, bool)
    grads = {
        "w1": np.empty((inputs, hidden)),
        "b1": np.empty(hidden),
        "w2": np.empty((hidden, classes)),
        "b2": np.empty(classes),
    }
    rows = np.arange(batch)

    def run(params: Params, x: Array, labels: Array) -> tuple[Any, Params]:
        np.dot(x, params["w1"], out=z)
        np.add(z, params["b1"], out=z)
        if name == "tanh":
            np.tanh(z, out=h)
        else:
            np.maximum(z, 0.0, out=h)
        np.dot(h, params["w2"], out=y)
        np.add(y, params["b2"], out=y)
        np.max(y, axis=1, keepdims=True, out=top)
        np.subtract(y, top, out=y)
        np.exp(y, out=e)
        np.sum(e, axis=1, keepdims=True, out=total)
        value = np.mean(np.log(total[:, 0]) - y[rows, labels])
        np.divide(e, total, out=y_bar)
        y_bar[rows, labels] -= 1.0
        np.divide(y_bar, batch, out=y_bar)
        np.dot(h.T, y_bar, out=grads["w2"])
        np.sum(y_bar, axis=0, out=grads["b2"])
        np.dot(y_bar, params["w2"].T, out=h_bar)
        if name == "tanh":
            np.multiply(h, h, out=slope)
            np.subtract(1.0, slope, out=slope)
            np.multiply(h_bar, slope, out=h_bar)
        else:
            np.greater(z, 0.0, out=positive)
            np.multiply(h_bar, positive, out=h_bar)
        np.dot(x.T, h_bar, out=grads["w1"])
        np.sum(h_bar, axis=0, out=grads["b1"])
        return value, grads

    return run


def jax_network(args: Any, name: str) -> Callable[[], Any] | None:
    """The same in JAX."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)

    def mean_loss(params: Any, x: Any, labels: Any) -> Any:
        z = x @ params["w1"] + params["b1"]
        h = jnp.tanh(z) if name == "tanh" else jax.nn.relu(z)
        rows = jax.nn.log_softmax(h @ params["w2"] + params["b2"])
        return -jnp.mean(rows[jnp.arange(labels.shape[0]), labels])

    step = jax.jit(jax.value_and_grad(mean_loss))
    given = jax.tree_util.tree_map(jnp.asarray, args)
    return lambda: jax.block_until_ready(step(*given))


def torch_network(args: Any, name: str) -> Callable[[], Any] | None:
    """The same in PyTorch, eagerly."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    params = {k: torch.tensor(v, requires_grad=True) for k, v in args[0].items()}
    x, labels = torch.tensor(args[1]), torch.tensor(args[2])
    activation = torch.tanh if name == "tanh" else torch.relu

    def run() -> Any:
        h = activation(x @ params["w1"] + params["b1"])
        value = torch.nn.functional.cross_entropy(h @ params["w2"] + params["b2"], labels)
        return value, torch.autograd.grad(value, list(params.values()))

    return run


def hips_network(args: Any, name: str) -> Callable[[], Any] | None:
    """The same in HIPS autograd."""
    try:
        import autograd
        import autograd.numpy as anp
    except ImportError:
        return None

    def mean_loss(params: Any, x: Any, labels: Any) -> Any:
        z = anp.dot(x, params["w1"]) + params["b1"]
        h = anp.tanh(z) if name == "tanh" else anp.maximum(z, 0.0)
        y = anp.dot(h, params["w2"]) + params["b2"]
        top = anp.max(y, axis=1, keepdims=True)
        rows = y - top - anp.log(anp.sum(anp.exp(y - top), axis=1, keepdims=True))
        return -anp.mean(rows[anp.arange(len(labels)), labels])

    step = autograd.value_and_grad(mean_loss)
    return lambda: step(*args)


def bench_network(sizes: tuple[int, int, int, int], name: str) -> str:
    """One table: `value_and_grad` of the network's loss."""
    args = network(*sizes)
    ours = ad.compile(ad.value_and_grad(loss(np.tanh if name == "tanh" else ad.ops.relu)))
    by_hand = hand_written(*sizes, name)
    value, gradient = ours(*args)
    expected, reference = by_hand(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for key, g in gradient.items():
        np.testing.assert_allclose(g, reference[key], rtol=0, atol=1e-12)
    candidates = {"compile": lambda: ours(*args), "NumPy by hand": lambda: by_hand(*args)}
    for peer, make in (
        ("jax.jit", jax_network),
        ("torch", torch_network),
        ("autograd", hips_network),
    ):
        run = make(args, name)
        if run is not None:
            candidates[peer] = run
    title = f"value_and_grad, batch {sizes[0]}, {'-'.join(map(str, sizes[1:]))} {name}, float64"
    return table(title, best_times(candidates, 4.0), "NumPy by hand")


# --- a long elementwise chain --------------------------------------------------------------


def chain(module: Any) -> Callable[[Any], Any]:
    """A scalar function of an array in some twenty elementwise ops."""

    def f(x: Any) -> Any:
        y = module.exp(-x * x) * 2.0 + x
        z = module.tanh(y) * y - 0.5 * x
        return module.sum(z * z / (1.0 + y * y))

    return f


def bench_chain() -> str:
    """One table: the gradient of the chain on four million elements."""
    x = np.random.default_rng(1).normal(size=CHAIN)
    ours, eager = ad.compile(ad.grad(chain(np))), ad.grad(chain(np))
    np.testing.assert_array_equal(ours(x), eager(x))
    forward = chain(np)
    candidates: dict[str, Callable[[], Any]] = {
        "compile": lambda: ours(x),
        "plain NumPy, value": lambda: forward(x),
        "uncompiled gradient": lambda: eager(x),
    }
    try:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        step, given = jax.jit(jax.grad(chain(jnp))), jnp.asarray(x)
        candidates["jax.jit"] = lambda: jax.block_until_ready(step(given))
    except ImportError:
        pass
    try:
        import torch

        torch.set_num_threads(1)
        leaf = torch.tensor(x, requires_grad=True)
        candidates["torch"] = lambda: torch.autograd.grad(chain(torch)(leaf), leaf)
    except ImportError:
        pass
    try:
        import autograd
        import autograd.numpy as anp

        gradient = autograd.grad(chain(anp))
        candidates["autograd"] = lambda: gradient(x)
    except ImportError:
        pass
    title = f"gradient of an elementwise chain, {CHAIN} elements, float64"
    return table(title, best_times(candidates, 8.0), "plain NumPy, value")


# --- what a call costs ---------------------------------------------------------------------


def bench_call() -> str:
    """One table: a call with next to nothing to compute."""
    ours, x, out = ad.compile(lambda v: v * 2.0), np.ones(4), np.empty(4)
    two = np.array(2.0)
    candidates = {
        "compile": lambda: ours(x),
        "np.multiply": lambda: np.multiply(x, two, out=out),
    }
    return table("x * 2 on 4 elements", best_times(candidates, 1.0), "np.multiply")


def main() -> None:
    print("one thread; shortest time of a call, candidates in turns")
    print(bench_call())
    for sizes in SIZES:
        for name in ("tanh", "relu"):
            print(bench_network(sizes, name))
    print(bench_chain())


if __name__ == "__main__":
    main()
