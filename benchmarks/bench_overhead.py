"""What the engine itself costs per equation: tracing, transforms, text, printing, compiling."""

from collections.abc import Callable
from typing import Any

import numpy as np

import autodiff as ad
from autodiff.batch import batch_eval
from autodiff.execute import Executable
from autodiff.forward import jvp_eval
from autodiff.parse import parse
from autodiff.reverse import vjp_eval
from autodiff.text import to_text
from benchmarks.timing import best_times

STEPS = 50


def elementwise(x: Any) -> Any:
    """Three equations a step, all elementwise."""
    for _ in range(STEPS):
        x = np.tanh(x) * 0.5 + x
    return x


def mixed(x: Any) -> Any:
    """Products, reductions, broadcasts and shapes."""
    for _ in range(STEPS // 5):
        h = x @ x.T + np.sum(x, axis=0)
        x = np.where(h > 0, h, 0.1 * h) / (1.0 + np.max(np.abs(h)))
    return x


def traced(f: Callable[..., Any], x: Any) -> Any:
    """The program of a function that is itself applied to traced values."""
    return ad.trace(f, x)


def report(name: str, f: Callable[[Any], Any], x: np.ndarray[Any, Any]) -> list[str]:
    """Microseconds per equation of the traced function, for each thing done with it."""
    program = ad.trace(f, x)
    count = len(program.equations)
    text = to_text(program)
    captured: tuple[Any, ...] = ()

    def forward(v: Any) -> Any:
        return jvp_eval(program, (v,), (v,), captured)[1]

    def backward(v: Any) -> Any:
        outs, pullback = vjp_eval(program, (v,), captured)
        return pullback(outs)[0]

    def batched(v: Any) -> Any:
        return batch_eval(program, len(x), (v,), (True,), captured)[0]

    stack = np.stack([x] * len(x))
    candidates = {
        "call NumPy": lambda: f(x),
        "trace": lambda: ad.trace(f, x),
        "jvp, traced": lambda: traced(forward, x),
        "vjp, traced": lambda: traced(backward, x),
        "vmap, traced": lambda: traced(batched, stack),
        "to_text": lambda: to_text(program),
        "parse": lambda: parse(text),
        "render": lambda: ad.render(program),
        "compile": lambda: Executable(program),
    }
    times = best_times(candidates, 4.0, 0.0)
    lines = [f"{name}: {count} equations"]
    return lines + [f"  {k:14} {t / count * 1e6:8.2f} us an equation" for k, t in times.items()]


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 4))
    for name, f in (("elementwise", elementwise), ("mixed", mixed)):
        print("\n".join(report(name, f, x)))


if __name__ == "__main__":
    main()
