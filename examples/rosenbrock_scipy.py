"""SciPy's own Rosenbrock function, unchanged, minimised with exact derivatives.

SciPy hands a traced value to the value's own array namespace only where SCIPY_ARRAY_API=1 was set
before SciPy was first imported: `SCIPY_ARRAY_API=1 python examples/rosenbrock_scipy.py`.
"""

from typing import Any

import numpy as np
from scipy.optimize import rosen, rosen_der, rosen_hess

import autodiff as ad

Array = np.ndarray[Any, Any]
START = np.full(5, 1.2)


def newton(x: Array, steps: int = 9) -> list[Array]:
    """Iterates of Newton's method x - H(x)^-1 g(x) from x (n,)."""
    path = [x]
    for _ in range(steps):
        x = x - np.linalg.solve(ad.hessian(rosen)(x), ad.grad(rosen)(x))
        path.append(x)
    return path


if __name__ == "__main__":
    print("gradient off by", np.max(np.abs(ad.grad(rosen)(START) - rosen_der(START))))
    print("Hessian off by ", np.max(np.abs(ad.hessian(rosen)(START) - rosen_hess(START))))
    for i, point in enumerate(newton(START)):
        print(f"step {i}: f = {rosen(point):.3e}")
