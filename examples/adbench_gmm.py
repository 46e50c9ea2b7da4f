"""ADBench's Gaussian mixture: log-likelihood with a Wishart prior, in plain NumPy.

Each component has the inverse covariance factor Q = diag(exp(q)) + L, L strictly lower triangular:

    sum_i logsumexp_k(alpha_k + sum(q_k) - |Q_k (x_i - mu_k)|^2 / 2) - n logsumexp(alpha)
    - n d log(2 pi) / 2 + log W(Q; gamma, m)

Reference: F. Srajer, Z. Kukelova, A. Fitzgibbon, "A benchmark of selected algorithmic
differentiation tools on some problems in computer vision and machine learning", 2018, section 4.1.
"""

import math
from typing import Any

import numpy as np

import autodiff as ad

Array = np.ndarray[Any, Any]
LOG_PI = math.log(math.pi)


def logsumexp(x: Any, axis: int = -1) -> Any:
    """log(sum(exp(x))) along an axis, shifted by the maximum so that nothing overflows."""
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis))


def lower_triangles(entries: Any, d: int) -> Any:
    """Strictly lower triangular matrices (k, d, d) from their entries column by column."""
    row, column = np.arange(d)[:, None], np.arange(d)
    count = column * d - column * (column + 1) // 2 + row - column
    place = np.where(row > column, count, 0)  # 0 is the zero put before the entries
    return np.pad(entries, ((0, 0), (1, 0)))[:, place]


def log_wishart_prior(q: Any, entries: Any, gamma: float, m: int) -> Any:
    """Sum over components of gamma^2 |Q|_F^2 / 2 - m log det Q, less the normalising constants."""
    k, d = q.shape
    n = d + m + 1
    log_gamma = sum(math.lgamma(0.5 * (n - j)) for j in range(d)) + d * (d - 1) / 4 * LOG_PI
    constant = n * d * math.log(gamma / math.sqrt(2.0)) - log_gamma
    frobenius = np.sum(np.exp(q) ** 2) + np.sum(entries**2)
    return 0.5 * gamma**2 * frobenius - m * np.sum(q) - k * constant


def gmm_objective(alphas: Any, means: Any, icf: Any, x: Any, gamma: float = 1.0, m: int = 0) -> Any:
    """The log-likelihood, a scalar.

    Arguments: unnormalised log weights alphas (k,), means (k, d), inverse covariance factors icf
    (k, d + d (d - 1) / 2) with q first and L after it, data x (n, d), and the prior's gamma and m.
    """
    n, d = x.shape
    q, entries = icf[:, :d], icf[:, d:]
    centred = x[:, None, :] - means
    scaled = np.einsum("kij,nkj->nki", lower_triangles(entries, d), centred)
    distance = np.sum((np.exp(q) * centred + scaled) ** 2, axis=-1)
    terms = logsumexp(alphas + np.sum(q, axis=1) - 0.5 * distance)
    likelihood = np.sum(terms) - n * logsumexp(alphas) - 0.5 * n * d * (LOG_PI + math.log(2.0))
    return likelihood + log_wishart_prior(q, entries, gamma, m)


def arguments(k: int = 3, d: int = 2, n: int = 5) -> tuple[Array, Array, Array, Array]:
    """Random alphas, means, icf and x of k components in d dimensions, n points."""
    rng = np.random.default_rng(0)
    shapes = ((k,), (k, d), (k, d + d * (d - 1) // 2), (n, d))
    alphas, means, icf, x = (rng.normal(size=s) for s in shapes)
    return alphas, means, icf, x


if __name__ == "__main__":
    values = arguments(k=5, d=4, n=1000)
    value, gradients = ad.value_and_grad(gmm_objective, (0, 1, 2))(*values)
    print(f"log-likelihood {value:.6f}")
    for name, g in zip(("alphas", "means", "icf"), gradients, strict=True):
        print(f"gradient with respect to {name} {g.shape}: norm {np.linalg.norm(g):.6f}")
