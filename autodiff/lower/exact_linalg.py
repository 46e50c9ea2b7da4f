"""Exact rules of linear algebra: elimination on `Number`s, and Arb's enclosures of eigenvalues.

Where two rows or signs must be chosen, the choice is that of NumPy (LAPACK).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.lower.exact_arrays import Array, Call, each, rule
from autodiff.lower.number import Number


class NoRule(Exception):
    """A rule exists, but not for these values (repeated eigenvalues, rank deficiency)."""


def stacked(function: Callable[..., Any], *arrays: Array, trailing: int = 2) -> Any:
    """Apply a function of matrices over leading axes; tuples of results give tuples."""
    lead = np.broadcast_shapes(*(a.shape[: a.ndim - trailing] for a in arrays))
    full = [np.broadcast_to(a, (*lead, *a.shape[a.ndim - trailing :])) for a in arrays]
    results = [function(*(a[i] for a in full)) for i in np.ndindex(*lead)]
    return _map(lambda *r: _stack(r, lead), results)


def _map(join: Callable[..., Array], results: list[Any]) -> Any:
    if isinstance(results[0], tuple):
        return tuple(join(*column) for column in zip(*results, strict=True))
    return join(*results)


def _stack(results: tuple[Any, ...], lead: tuple[int, ...]) -> Array:
    arrays = [np.asarray(r) for r in results]
    out = np.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    for i, a in enumerate(arrays):
        out[i] = a if a.ndim else a[()]
    return out.reshape((*lead, *arrays[0].shape))


def _size(x: Any) -> Any:
    """Magnitude of the midpoint, to choose a pivot by; the result does not depend on it."""
    z = abs(x) if isinstance(x, Number) else x
    return (z.midpoint() or 0) if isinstance(z, Number) else abs(z)


def eliminate(a: Array, b: Array) -> tuple[Array, Any]:
    """Solution of a x = b for square a, and det(a), by elimination with row exchanges."""
    a, b = np.array(a, object), np.array(b, object)
    n, det = a.shape[0], 1
    for k in range(n):
        p = k + max(range(n - k), key=lambda i: _size(a[k + i, k]))
        if p != k:
            a[[k, p]], b[[k, p]], det = a[[p, k]], b[[p, k]], -det
        det = det * a[k, k]
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            a[i, k:] = a[i, k:] - factor * a[k, k:]
            b[i] = b[i] - factor * b[k]
    for k in reversed(range(n)):
        known = sum((a[k, j] * b[j] for j in range(k + 1, n)), np.zeros_like(b[k]))
        b[k] = (b[k] - known) / a[k, k]
    return b, det


def determinant(a: Array) -> Any:
    """Determinant by Laplace expansion without division: right where the matrix is singular."""
    n = a.shape[0]
    minors: dict[tuple[int, ...], Any] = {(): 1}
    for k in range(n):
        nxt: dict[tuple[int, ...], Any] = {}
        for columns, minor in minors.items():
            for j in (j for j in range(n) if j not in columns):
                term = a[k, j] * minor if k else a[k, j]
                if sum([c > j for c in columns]) % 2:
                    term = -term
                key = tuple(sorted((*columns, j)))
                nxt[key] = nxt[key] + term if key in nxt else term
        minors = nxt
    return minors[tuple(range(n))]


@rule("DET")
def _det(call: Call, a: Array) -> Any:
    return stacked(lambda m: np.asarray(call.number.of(determinant(m)), object), a)


@rule("SLOGDET")
def _slogdet(call: Call, a: Array) -> Any:
    def one(m: Array) -> tuple[Array, Array]:
        d = call.number.of(determinant(m))
        sign = d / abs(d) if d.is_complex else call.number.of(d.compare(d.real_of(0)))
        return np.asarray(sign, object), np.asarray(abs(d).log(), object)  # type: ignore[attr-defined]

    return stacked(one, a)


@rule("SOLVE")
def _solve(call: Call, a: Array, b: Array) -> Any:
    del call
    return stacked(lambda m, v: eliminate(m, v)[0], a, b)


@rule("INV")
def _inv(call: Call, a: Array) -> Any:
    return _solve(call, a, np.broadcast_to(np.eye(a.shape[-1], dtype=int).astype(object), a.shape))


@rule("TRIANGULAR_SOLVE")
def _triangular_solve(
    call: Call, a: Array, b: Array, *, lower: bool, trans: bool, unit: bool
) -> Any:
    n = a.shape[-1]
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        t = np.where(np.eye(n, dtype=bool), 1, t)
    return _solve(call, np.swapaxes(t, -1, -2) if trans else t, b)


@rule("CHOLESKY")
def _cholesky(call: Call, a: Array) -> Any:
    def one(m: Array) -> Array:
        out = np.full(m.shape, call.number.of(0), object)
        for j in range(m.shape[0]):
            row = out[j, :j]
            pivot = m[j, j] - sum((x * x.conjugate() for x in row), call.number.of(0))
            root = out[j, j] = call.number.of(pivot).call("sqrt")
            for i in range(j + 1, m.shape[0]):
                known = sum(
                    (x * y.conjugate() for x, y in zip(out[i, :j], row, strict=True)),
                    call.number.of(0),
                )
                out[i, j] = (m[i, j] - known) / root
        return out

    return stacked(one, a)


@rule("LU")
def _lu(call: Call, a: Array) -> Any:
    def one(m: Array) -> tuple[Array, Array, Array]:
        u = np.array(m, object)
        rows, columns = u.shape
        rank, order = min(rows, columns), np.arange(rows)
        lower = np.full((rows, rows), call.number.of(0), object)
        for k in range(rank):
            p = k
            for i in range(k + 1, rows):
                if abs(u[i, k]) > abs(u[p, k]):
                    p = i
            for array in (u, lower, order):
                array[[k, p]] = array[[p, k]]
            for i in range(k + 1, rows):
                lower[i, k] = u[i, k] if u[k, k] == 0 else u[i, k] / u[k, k]
                u[i, k:] = u[i, k:] - lower[i, k] * u[k, k:]
                u[i, k] = call.number.of(0)
        for k in range(rows):
            lower[k, k] = call.number.of(1)
        return order, lower[:, :rank], u[:rank]

    return stacked(one, a)


@rule("QR")
def _qr(call: Call, a: Array, *, canonical: bool) -> Any:
    """Householder's reflections with LAPACK's signs: r_kk = -sign(x_k) |x|."""

    def one(m: Array) -> tuple[Array, Array]:
        r = np.array(each(call.number.of, m), object)
        rows, columns = r.shape
        q = each(call.number.of, np.eye(rows, dtype=int).astype(object))
        for k in range(min(rows - 1, columns)):
            x = r[k:, k].copy()
            norm = sum((v * v for v in x[1:]), x[0] * x[0]).call("sqrt")
            if all(v == 0 for v in x[1:]):
                continue  # LAPACK leaves a column that needs no reflection as it is
            x[0] = x[0] - norm if x[0] < 0 else x[0] + norm
            x = x / sum((v * v for v in x[1:]), x[0] * x[0]).call("sqrt")
            r[k:] = r[k:] - 2 * np.multiply.outer(x, x @ r[k:])
            r[k + 1 :, k] = call.number.of(0)
            q[:, k:] = q[:, k:] - 2 * np.multiply.outer(q[:, k:] @ x, x)
        rank = min(rows, columns)
        q, r = q[:, :rank], r[:rank]
        if canonical:
            for k in range(rank):
                if r[k, k] < 0:
                    q[:, k], r[k] = -q[:, k], -r[k]
        return q, r

    return stacked(one, a)


# --- eigenvalues ---------------------------------------------------------------------------


def _symmetric(call: Call, m: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and unit eigenvectors of the symmetric matrix of a lower triangle."""
    n = m.shape[0]
    pairs = call.number.eigenpairs(np.where(np.tri(n, dtype=bool), m, m.T))
    w, v = np.empty(n, object), np.empty((n, n), object)
    for j, (value, vector) in enumerate(pairs):
        norm = sum((x * x for x in vector[1:]), vector[0] * vector[0]).call("sqrt")
        w[j], v[:, j] = value, [x / norm for x in vector]
    return w, v


def _oriented(v: Array) -> Array:
    """-1 or 1 per column: the sign of its first entry within 2^-10 of the largest magnitude."""
    signs = np.empty(v.shape[1], object)
    for j in range(v.shape[1]):
        sizes = [abs(x) for x in v[:, j]]
        largest = max(sizes, key=_size)
        tie = largest * (1 - 2.0**-10)
        first = next(i for i, s in enumerate(sizes) if s is largest or s >= tie)
        signs[j] = -1 if v[first, j] < 0 else 1
    return signs


@rule("EIGH")
def _eigh(call: Call, a: Array, *, canonical: bool) -> Any:
    def one(m: Array) -> tuple[Array, Array]:
        w, v = _symmetric(call, m)
        return w, v * _oriented(v) if canonical else v * call.gauge.signs(len(w))

    return stacked(one, a)


@rule("SVD")
def _svd(call: Call, a: Array, *, canonical: bool) -> Any:
    def one(m: Array) -> tuple[Array, Array, Array]:
        wide = m.shape[0] < m.shape[1]
        tall = m.T if wide else m
        w, v = _symmetric(call, tall.T @ tall)
        w, v = w[::-1], v[:, ::-1]
        s = each(lambda x: x.call("sqrt"), w)
        if any(x.compare(x.real_of(0)) <= 0 for x in w):
            raise NoRule("singular vectors of a matrix without full rank")
        u = (tall @ v) / s
        u, vh = (v, u.T) if wide else (u, v.T)
        sign = _oriented(u) if canonical else call.gauge.signs(len(s))
        return u * sign, s, vh * sign[:, None]

    return stacked(one, a)


# --- functions of matrices -----------------------------------------------------------------


@rule("COFACTOR", "COFACTOR_TANGENT")
def _cofactor(call: Call, a: Array, *directions: Array) -> Any:
    """Signed minors, multilinear in the rows: each direction takes the place of another row."""
    del call

    def one(m: Array, *ts: Array) -> Array:
        out: Any = np.zeros(m.shape, object)
        for rows in itertools.permutations(range(m.shape[0]), len(ts)):
            mixed = m.copy()
            for row, t in zip(rows, ts, strict=True):
                mixed[row] = t[row]
            others = [i for i in range(m.shape[0]) if i not in rows]
            out[others] = out[others] + _minors(mixed, determinant, others)
        return np.asarray(out, object)

    return stacked(one, a, *directions)


def _minors(m: Array, det: Callable[[Array], Any], rows: Sequence[int]) -> Array:
    """The signed minors of some rows."""
    n = m.shape[0]
    without = [[k for k in range(n) if k != i] for i in range(n)]
    out = np.empty((len(rows), n), object)
    for place, i in enumerate(rows):
        rest = m[without[i]]
        for j in range(n):
            minor = det(rest[:, without[j]])
            out[place, j] = -minor if (i + j) % 2 else minor
    return out


@rule("EXPM")
def _expm(call: Call, a: Array) -> Any:
    def one(m: Array) -> Array:
        out = np.empty(m.shape, object)
        for i, row in enumerate(call.number.matrix_exponential(m)):
            out[i] = row
        return out

    return stacked(one, a)


@rule("EXPM_FRECHET")
def _expm_frechet(call: Call, a: Array, t: Array) -> Any:
    n = a.shape[-1]
    top = np.concatenate([a, t], axis=-1)
    bottom = np.concatenate([np.full(a.shape, call.number.of(0), object), a], axis=-1)
    return _expm(call, np.concatenate([top, bottom], axis=-2))[..., :n, n:]


@rule("PINV")
def _pinv(call: Call, a: Array, *, rtol: float) -> Any:
    """(a^H a)^-1 a^H, or its mirror image, for full rank."""
    del rtol

    def one(m: Array) -> Array:
        wide = m.shape[0] < m.shape[1]
        tall = each(lambda x: x.conjugate(), m.T) if wide else m
        adjoint = each(lambda x: call.number.of(x).conjugate(), tall.T)
        gram = adjoint @ tall
        if gram.size and _size(determinant(gram)) == 0:
            raise NoRule("the pseudo-inverse of a matrix without full rank")
        result = eliminate(gram, adjoint)[0]
        return each(lambda x: x.conjugate(), result.T) if wide else result

    return stacked(one, a)
