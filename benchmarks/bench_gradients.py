"""Gradient checks beside torch's: time of a check, calls to name one wrong entry among many."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.optional import available
from benchmarks.timing import best_times, table
from checks import check_gradients

Array = np.ndarray[Any, Any]
FAULTS = {"sign": -1.0, "zero": 0.0, "double": 2.0, "0.1 %": 1.001}
SIZES = (1_000, 10_000, 100_000)
TRIES = 100
FLOORS = 20.0  # an error this many times the smallest detectable one must be caught


def network() -> tuple[Callable[..., Any], tuple[Array, ...], Array]:
    """A tanh network 64-80-56-8 (10,192 parameters with its biases), batch 32, scalar loss."""
    rng = np.random.default_rng(0)
    sizes = (64, 80, 56, 8)
    weights = [rng.normal(size=s) / s[0] ** 0.5 for s in itertools.pairwise(sizes)]
    biases = [rng.normal(size=n) * 0.1 for n in sizes[1:]]
    inputs = rng.normal(size=(32, 64))

    def loss(a: Any, b: Any, c: Any, p: Any, q: Any, r: Any) -> Any:
        y = np.tanh(np.tanh(inputs @ a + p) @ b + q) @ c + r
        return np.sum(y * y) / 32

    return loss, (*weights, *biases), inputs


def torch_network(args: tuple[Array, ...], inputs: Array) -> tuple[Any, tuple[Any, ...]]:
    """The same network in torch."""
    import torch

    x = torch.from_numpy(inputs)

    def loss(a: Any, b: Any, c: Any, p: Any, q: Any, r: Any) -> Any:
        y = torch.tanh(torch.tanh(x @ a + p) @ b + q) @ c + r
        return (y * y).sum() / 32

    return loss, tuple(torch.from_numpy(a).requires_grad_() for a in args)


def speed() -> None:
    """Checks of the network: ours on NumPy and on torch, torch.autograd.gradcheck beside them."""
    loss, args, inputs = network()
    candidates: dict[str, Callable[[], Any]] = {
        "numpy, reverse": lambda: check_gradients(loss, *args, modes=("reverse",), vmap=False),
        "numpy, both modes": lambda: check_gradients(loss, *args, vmap=False),
        "numpy, order 2": lambda: check_gradients(loss, *args, order=2, vmap=False),
    }
    if not available("torch"):
        print("torch is not installed: ours alone")
        print(table("network of 10,192 parameters", best_times(candidates), "numpy, reverse"))
        return
    import torch

    theirs, tensors = torch_network(args, inputs)
    fast = torch.autograd.gradcheck
    candidates |= {
        "torch gradcheck fast": lambda: fast(theirs, tensors, fast_mode=True),
        "ours on torch, reverse": lambda: check_gradients(
            theirs, *tensors, modes=("reverse",), vmap=False
        ),
        "ours on torch, both": lambda: check_gradients(theirs, *tensors, vmap=False),
    }
    times = best_times(candidates, 6.0, 0.0)
    print(table("network of 10,192 parameters", times, "torch gradcheck fast"))
    whole = {
        "ours, full Jacobian": lambda: check_gradients(loss, *args, full=True, vmap=False),
        "torch gradcheck slow": lambda: fast(theirs, tensors),
    }
    print(table("full Jacobian", best_times(whole, 1.0, 0.0), "torch gradcheck slow"))


Case = tuple[str, Callable[..., Any], tuple[Array, ...]]


def cases(size: int) -> Iterator[Case]:
    """Five functions of about `size` inputs."""
    rng = np.random.default_rng(1)
    side = int(size**0.5)
    left, image = rng.normal(size=(8, side)), rng.normal(size=(1, 4, 12, 12))
    wide = int((size / 2.2) ** 0.5)
    shapes = ((wide, wide), (wide, wide), (wide, max(wide // 5, 1)))
    weights = tuple(rng.normal(size=s) / s[0] ** 0.5 for s in shapes)
    inputs = rng.normal(size=(4, wide))

    def softmax(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    yield "elementwise", np.sin, (rng.normal(size=size),)
    yield "matmul", lambda w: left @ w, (rng.normal(size=(side, size // side)),)
    yield "softmax", softmax, (rng.normal(size=(size // 100, 100)),)
    yield (
        "convolution",
        lambda w: ad.ops.conv2d(image, w),
        (rng.normal(size=(size // 36, 4, 3, 3)),),
    )
    yield "mlp", lambda a, b, c: np.tanh(np.tanh(inputs @ a) @ b) @ c, weights


def naming() -> None:
    """One wrong entry (sign, zero, double, 0.1 % off): caught, named, and in how many calls."""
    print(f"one wrong entry, {TRIES} tries each: caught, named, calls of f (most)")
    for size in SIZES:
        for name, function, args in cases(size):
            start = time.perf_counter()
            caught, named, most = _tries(function, args)
            seconds = time.perf_counter() - start
            count = sum(a.size for a in args)
            print(f"  {name:12} {count:7} {caught:4} {named:4} {most:4} calls {seconds:6.1f} s")


def _tries(function: Callable[..., Any], args: tuple[Array, ...]) -> tuple[int, int, int]:
    rng = np.random.default_rng(2)
    caught = named = most = done = seed = 0
    while done < TRIES:
        seed += 1
        factor = list(FAULTS.values())[seed % len(FAULTS)]
        point = int(rng.choice(len(args), p=[a.size / sum(b.size for b in args) for a in args]))
        number = int(rng.integers(args[point].size))
        share: list[float] = []
        vjp = _faulty(function, (point, number, factor), share)
        report = check_gradients(function, *args, vjp=vjp, modes=("reverse",), seed=seed)
        if share[0] < FLOORS * report.checks[0].allowed:
            continue  # too small an error to be asked for
        done += 1
        caught += report.verdict == "WRONG"
        index = np.unravel_index(number, args[point].shape)
        named += report.worst is not None and report.worst.index == index
        most = max(most, report.evaluations)
    return caught, named, most


def _faulty(function: Callable[..., Any], fault: tuple[int, int, float], share: list[float]) -> Any:
    """A vjp with one wrong entry; its error, of the largest entry's term, goes into `share`."""
    point, number, factor = fault

    def vjp(*primals: Any) -> tuple[Array, ...]:
        *xs, ct = primals
        gradients = [np.array(g) for g in ad.vjp(function, *xs)[1](ct)]
        largest = max(float(np.max(np.abs(g * x))) for g, x in zip(gradients, xs, strict=True))
        term = gradients[point].flat[number] * xs[point].flat[number]
        share.append(abs(term * (factor - 1)) / largest)
        gradients[point].flat[number] *= factor
        return tuple(gradients)

    return vjp


def main() -> None:
    speed()
    naming()


if __name__ == "__main__":
    main()
