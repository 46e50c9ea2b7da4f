"""NumPy's shape, product and indexing functions give on traced values what they give on arrays."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import tree
from autodiff.errors import ShapeError, TracerError

RNG = np.random.default_rng(7)


def real(*shape):
    return RNG.normal(size=shape)


def compare(f, *args, exact=True):
    """Value, spec, forward and reverse derivative of `f` under a trace against NumPy's own."""
    expected, treedef = tree.flatten(f(*args))
    program = ad.trace(f, *args)
    got = tree.flatten(ad.interpret(program, *args))[0]
    assert tree.flatten(ad.interpret(program, *args))[1] == treedef
    for g, e in zip(got, expected, strict=True):
        e = np.asarray(e)
        assert (g.shape, g.dtype) == (e.shape, e.dtype)
        np.testing.assert_allclose(g, e, rtol=0 if exact else 1e-13, atol=0 if exact else 1e-13)
    places = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    floats = [i for i, e in enumerate(expected) if np.asarray(e).dtype.kind == "f"]
    if not places or not floats:
        return
    dots = [RNG.normal(size=args[i].shape) for i in places]

    def at(h):
        full = list(args)
        for i, d in zip(places, dots, strict=True):
            full[i] = args[i] + h * d
        return full

    def outputs(*wanted):
        full = list(args)
        for i, w in zip(places, wanted, strict=True):
            full[i] = w
        leaves = tree.flatten(f(*full))[0]
        return [leaves[i] for i in floats]

    primals = tuple(args[i] for i in places)
    _, out_dots = ad.jvp(outputs, primals, tuple(dots))
    _, pullback = ad.vjp(outputs, *primals)
    cts = [RNG.normal(size=np.shape(d)) for d in out_dots]
    bars = pullback(cts)
    left = sum(np.sum(c * d) for c, d in zip(cts, out_dots, strict=True))
    right = sum(np.sum(b * d) for b, d in zip(bars, dots, strict=True))
    scale = sum(np.sum(np.abs(c * d)) for c, d in zip(cts, out_dots, strict=True))
    assert abs(left - right) <= 1e-12 * max(scale, 1e-300)
    h = 1e-5
    plus, minus = (tree.flatten(f(*at(s)))[0] for s in (h, -h))
    for i, d in zip(floats, out_dots, strict=True):
        np.testing.assert_allclose(d, (plus[i] - minus[i]) / (2 * h), rtol=1e-6, atol=1e-6)


X, Y, V = real(3, 4), real(3, 4), real(5)
CUBE = real(2, 3, 4)
MASK = np.array([True, False, True])

SHAPING = {
    "reshape": lambda x: np.reshape(x, (2, -1)),
    "reshape_columns": lambda x: np.reshape(x, (4, 3), order="F"),
    "ravel": lambda x: np.ravel(x),
    "ravel_columns": lambda x: x.ravel(order="F"),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: np.transpose(x),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "matrix_transpose": lambda x: np.matrix_transpose(x),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x[None], (0, 2), (-1, 0)),
    "rollaxis": lambda x: np.rollaxis(x[None], 2, 0),
    "rollaxis_later": lambda x: np.rollaxis(x[None], 0, 3),
    "expand_dims": lambda x: np.expand_dims(x, (0, -1)),
    "squeeze": lambda x: np.squeeze(x[:, None, :1]),
    "squeeze_axis": lambda x: np.squeeze(x[:, None], 1),
    "atleast_1d": lambda x: np.atleast_1d(x[0, 0]),
    "atleast_2d": lambda x: np.atleast_2d(x[0]),
    "atleast_3d": lambda x: np.atleast_3d(x[0], x, x[0, 0]),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x[:, :1], x[:1]),
    "concatenate": lambda x: np.concatenate([x, 2 * x, X], axis=1),
    "concatenate_flat": lambda x: np.concatenate([x, x[0]], axis=None),
    "concat": lambda x: np.concat([x, np.ones((3, 1))], axis=-1),
    "stack": lambda x: np.stack([x, Y], axis=-1),
    "unstack": lambda x: np.unstack(x, axis=1),
    "vstack": lambda x: np.vstack([x, x[0]]),
    "hstack": lambda x: np.hstack([x, x]),
    "hstack_1d": lambda x: np.hstack([x[0], x[1, 0], 2.0]),
    "dstack": lambda x: np.dstack([x, x]),
    "column_stack": lambda x: np.column_stack([x[:, 0], x]),
    "block": lambda x: np.block([[x, np.zeros((3, 2))], [np.ones((1, 4)), x[:1, :2]]]),
    "append": lambda x: np.append(x, x[:1], axis=0),
    "split": lambda x: np.split(x, 2, axis=1),
    "split_at": lambda x: np.split(x, [1, 3], axis=1),
    "split_unsorted": lambda x: np.split(x, [3, 1], axis=1),
    "array_split": lambda x: np.array_split(x, 3, axis=1),
    "hsplit": lambda x: np.hsplit(x, 2),
    "vsplit": lambda x: np.vsplit(x, 3),
    "dsplit": lambda x: np.dsplit(x[None], 2),
    "flip": lambda x: np.flip(x),
    "fliplr": lambda x: np.fliplr(x),
    "flipud": lambda x: np.flipud(x),
    "roll": lambda x: np.roll(x, 2),
    "roll_axes": lambda x: np.roll(x, (1, -5), (0, 1)),
    "roll_repeated_axis": lambda x: np.roll(x, (1, 2), (1, 1)),
    "roll_broadcast": lambda x: np.roll(x, 1, (0, 1)),
    "rot90": lambda x: [np.rot90(x, k) for k in range(-1, 4)],
    "tile": lambda x: np.tile(x, 2),
    "tile_more_axes": lambda x: np.tile(x, (2, 1, 3)),
    "repeat": lambda x: np.repeat(x, 2),
    "repeat_counts": lambda x: np.repeat(x, [1, 0, 2], axis=0),
    "repeat_axis": lambda x: x.repeat(3, axis=-1),
    "resize": lambda x: np.resize(x, (5, 4)),
    "copy": lambda x: np.copy(x) + x.copy(),
    "pad": lambda x: np.pad(x, 1),
    "pad_values": lambda x: np.pad(x, ((1, 0), (2, 3)), constant_values=((1.0, 2.0), (3.0, 4.0))),
    "pad_traced_value": lambda x: np.pad(x, (1, 2), constant_values=x[0, 0]),
    "pad_edge": lambda x: np.pad(x, ((1, 0), (2, 3)), mode="edge"),
    "pad_reflect": lambda x: np.pad(x, ((2, 5), (0, 7)), mode="reflect"),
    "pad_symmetric": lambda x: np.pad(x, 4, mode="symmetric"),
    "pad_wrap": lambda x: np.pad(x, ((0, 4), (5, 0)), mode="wrap"),
    "delete": lambda x: np.delete(x, [0, 2], axis=1),
    "delete_slice": lambda x: np.delete(x, slice(1, None, 2)),
    "insert": lambda x: np.insert(x, 1, x[0], axis=0),
    "insert_many": lambda x: np.insert(x[0], [0, 2, 2], x[1, :3]),
    "insert_columns": lambda x: np.insert(x, [1], x[:, :2], axis=1),
    "diag": lambda x: np.diag(x[0], 1),
    "diag_below": lambda x: np.diag(x[0], -2),
    "diag_of_matrix": lambda x: np.diag(x, -1),
    "diagflat": lambda x: np.diagflat(x[:2]),
    "diagonal": lambda x: np.diagonal(np.stack([x, x]), 1, 1, 2),
    "diagonal_outside": lambda x: np.diagonal(x, 7),
    "trace": lambda x: np.trace(x),
    "linalg_diagonal": lambda x: np.linalg.diagonal(np.stack([x, x])),
    "linalg_trace": lambda x: np.linalg.trace(np.stack([x, x]), offset=1),
    "meshgrid": lambda x: np.meshgrid(x[0], x[:, 0], x[1, :2]),
    "meshgrid_ij": lambda x: np.meshgrid(x[0], x[:, 0], indexing="ij", sparse=True),
    "array_like": lambda x: np.array([[x[0, 0], 1.0], [x[1, 1], x[2, 2]]], like=x),
    "asarray_like": lambda x: np.asarray(x, like=x) + np.asarray([1.0, 2, 3, 4], like=x),
    "creation_like": lambda x: (
        x * np.ones((3, 4), like=x)
        + np.eye(3, 4, like=x)
        + np.zeros(4, like=x)
        + np.arange(4, like=x)
        + np.full((3, 4), 2.0, like=x)
    ),
    "full_of_traced": lambda x: np.full((2, 4), x[0], like=x),
}


@pytest.mark.parametrize("name", SHAPING)
def test_shaping_functions_equal_numpy(name):
    compare(SHAPING[name], X)


PRODUCTS = {
    "matmul": (lambda a, b: a @ b, CUBE, real(4, 2)),
    "matmul_stacked": (np.matmul, real(2, 1, 3, 4), real(5, 4, 2)),
    "matmul_vector_left": (np.matmul, real(4), real(2, 4, 3)),
    "matmul_vector_right": (np.matmul, CUBE, real(4)),
    "matmul_vectors": (np.matmul, real(4), real(4)),
    "array_at_traced": (lambda b: X @ b, real(4, 2)),
    "dot": (np.dot, CUBE, real(2, 4, 3)),
    "dot_scalar": (np.dot, real(), real(3)),
    "dot_vectors": (np.dot, real(4), real(4)),
    "dot_method": (lambda a, b: a.dot(b), real(3, 4), real(4)),
    "vdot": (np.vdot, real(2, 3), real(6)),
    "vecdot": (np.vecdot, real(2, 3), real(3)),
    "inner": (np.inner, CUBE, real(5, 4)),
    "outer": (np.outer, real(2, 2), real(3)),
    "ufunc_outer": (np.multiply.outer, real(2, 2), real(3)),
    "tensordot": (np.tensordot, CUBE, real(3, 4, 2)),
    "tensordot_axes": (lambda a, b: np.tensordot(a, b, ([0, -1], [2, 1])), CUBE, real(3, 4, 2)),
    "tensordot_zero": (lambda a, b: np.tensordot(a, b, 0), real(2), real(3)),
    "kron": (np.kron, real(2, 3), real(3)),
    "kron_matrices": (np.kron, real(2, 3), real(1, 2)),
    "cross": (np.cross, real(4, 3), real(3)),
    "cross_axes": (lambda a, b: np.cross(a, b, axisa=0, axisc=0), real(3, 4), real(4, 3)),
    "convolve": (np.convolve, real(6), real(3)),
    "convolve_same": (lambda a, v: np.convolve(a, v, "same"), real(4), real(7)),
    "convolve_same_even": (lambda a, v: np.convolve(a, v, "same"), real(7), real(4)),
    "convolve_valid": (lambda a, v: np.convolve(a, v, "valid"), real(6), real(3)),
    "correlate": (np.correlate, real(6), real(3)),
    "correlate_full": (lambda a, v: np.correlate(a, v, "full"), real(3), real(6)),
    "correlate_same": (lambda a, v: np.correlate(a, v, "same"), real(3), real(6)),
    "correlate_same_even": (lambda a, v: np.correlate(a, v, "same"), real(6), real(4)),
    "correlate_same_even_short": (lambda a, v: np.correlate(a, v, "same"), real(4), real(7)),
    "einsum_trace": (lambda a: np.einsum("ii", a), real(3, 3)),
    "einsum_diagonal": (lambda a: np.einsum("ii->i", a), real(3, 3)),
    "einsum_triple_diagonal": (lambda a: np.einsum("iji->ij", a), real(2, 3, 2)),
    "einsum_hyperdiagonal": (lambda a: np.einsum("iii->i", a), real(3, 3, 3)),
    "einsum_implicit": (lambda a, b: np.einsum("ba,cb", a, b), real(2, 3), real(4, 2)),
    "einsum_ellipsis": (
        lambda a, b: np.einsum("...ij,...jk->...ik", a, b),
        real(2, 1, 3, 4),
        real(5, 4, 2),
    ),
    "einsum_ellipsis_sum": (lambda a: np.einsum("i...->...", a), CUBE),
    "einsum_ellipsis_implicit": (lambda a, b: np.einsum("...i,i", a, b), CUBE, real(4)),
    "einsum_three": (
        lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c),
        real(2, 3),
        real(3, 4),
        real(4, 2),
    ),
    "einsum_shared_by_three": (
        lambda a, b, c: np.einsum("bi,bi,b->b", a, b, c),
        real(2, 3),
        real(2, 3),
        real(2),
    ),
    "einsum_broadcast_one": (lambda a, b: np.einsum("ij,ij->ij", a, b), real(1, 3), real(2, 3)),
    "einsum_lists": (lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), real(2, 3), real(3, 4)),
    "einsum_lists_implicit": (lambda a, b: np.einsum(a, [1, 0], b, [0, 2]), real(2, 3), real(3, 4)),
    "einsum_outer": (lambda a, b: np.einsum("i,j->ji", a, b), real(2), real(3)),
    "einsum_scalars": (lambda a, b: np.einsum(",->", a, b), real(), real()),
    "einsum_sum_alone": (lambda a, b: np.einsum("ij,k->i", a, b), real(2, 3), real(4)),
    "einsum_transpose": (lambda a: np.einsum("ba", a), real(2, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_equal_numpy(name):
    f, *args = PRODUCTS[name]
    compare(f, *args, exact=False)


KEYS = np.array([2, 0, -1])
INDEXING = {
    "take": lambda x: np.take(x, KEYS, axis=1),
    "take_flat": lambda x: x.take([[0, 11], [5, 5]]),
    "take_clip": lambda x: np.take(x, [-9, 1, 9], axis=0, mode="clip"),
    "take_wrap": lambda x: np.take(x, [-9, 1, 9], axis=0, mode="wrap"),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(x, axis=0), axis=0),
    "take_along_axis_broadcast": lambda x: np.take_along_axis(x, np.array([[1, 1, -2]]), axis=1),
    "take_along_flat": lambda x: np.take_along_axis(x, np.array([3, 3]), axis=None),
    "sort": lambda x: [np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None), x.sum()],
    "argsort": lambda x: [np.argsort(x), np.argsort(x, axis=0), x.argsort(axis=None)],
    "searchsorted": lambda x: np.searchsorted(np.sort(x[0]), x, side="right"),
    "searchsorted_sorter": lambda x: np.searchsorted(x[0], x[1], sorter=np.argsort(x[0])),
    "digitize": lambda x: np.digitize(x, np.array([-1.0, 0.0, 1.0])),
    "digitize_down": lambda x: np.digitize(x, np.array([1.0, 0.0, -1.0]), right=True),
    "lexsort": lambda x: np.lexsort((x[0], np.round(x[1]))),
    "choose": lambda x: np.choose([0, 1, 0, 1], [x[0], x[1]]),
    "select": lambda x: np.select([x > 1, x > 0], [x * x, 2 * x], 7.0),
    "piecewise": lambda x: np.piecewise(x, [x < 0, x > 1], [np.exp, lambda t: t**2, 3.0]),
    "compress": lambda x: np.compress([True, False, True], x, axis=0),
    "compress_method": lambda x: x.compress([True, False, True], axis=0),
    "flatten_columns": lambda x: x.flatten(order="F"),
    "extract": lambda x: np.extract(x > 0, x),
    "nonzero": lambda x: np.nonzero(x > 0),
    "where_one": lambda x: x[np.where(x > 0)],
    "argwhere": lambda x: np.argwhere(x > 0),
    "flatnonzero": lambda x: np.flatnonzero(x > 0),
    "unique": lambda x: np.unique(np.concatenate([x[0], x[0], x[1]])),
    "unique_all": lambda x: np.unique(
        np.round(x), return_index=True, return_inverse=True, return_counts=True
    ),
    "isin": lambda x: np.isin(np.round(x), [0.0, 1.0]),
    "ix_": lambda x: x[np.ix_([2, 0], [1, 1, 3])],
    "ix_mask": lambda x: x[np.ix_(MASK, [0, 1])],
    "mask": lambda x: x[x > 0],
    "mask_rows": lambda x: x[MASK],
    "iteration": lambda x: [row * i for i, row in enumerate(x)],
    "unpacking": lambda x: (lambda a, b, c: a * b + c)(*x),
    "trim_zeros": lambda x: np.trim_zeros(np.concatenate([np.zeros(2), x[0], np.zeros(1)])),
    "augmented": lambda x: _augmented(x),
    "union": lambda x: np.union1d(x[0], np.concatenate([x[0, :2], x[1, :2]])),
    "setdiff": lambda x: np.setdiff1d(x[0], x[0, :2]),
    "setxor": lambda x: np.setxor1d(x[0], np.concatenate([x[0, :2], x[1, :2]])),
    "intersect": lambda x: np.intersect1d(x[0], x[0, ::-2], return_indices=True),
    "unique_parts": lambda x: [
        tuple(np.unique_all(np.round(x))),
        np.unique_values(x),
        tuple(np.unique_counts(x)),
        tuple(np.unique_inverse(x)),
    ],
    "bincount": lambda x: np.bincount([0, 2, 2, 5], weights=x[0], minlength=8),
    "histogram": lambda x: np.histogram(
        [0.0, 1.5, 1.5, 9.0], bins=[0.0, 1.0, 2.0, 3.0], weights=x[0]
    ),
    "histogram_density": lambda x: np.histogram(x, bins=3, density=True),
    "unravel": lambda x: np.unravel_index(np.argsort(x[0]), (2, 2)),
    "ravel_multi": lambda x: np.ravel_multi_index((np.argsort(x[0]), [0, 1, 0, 1]), (4, 2)),
    "tril_indices": lambda x: x[np.tril_indices_from(x, 1)],
    "apply_along_axis": lambda x: np.apply_along_axis(lambda r: np.outer(r, r), 0, x),
    "diff": lambda x: [np.diff(x), np.diff(x, 2, axis=0), np.diff(x, prepend=0.0, append=x[:, :1])],
    "diff_bool": lambda x: np.diff(x > 0),
    "ediff1d": lambda x: np.ediff1d(x, to_begin=[1.0], to_end=x[0]),
    "linspace": lambda x: np.linspace(x[0], x[1], 5),
    "linspace_open": lambda x: np.linspace(0.0, x[1], 4, endpoint=False, retstep=True, axis=-1),
}


def _augmented(x):
    y = x + 0.0
    y += 1.0
    y *= x
    y @= np.eye(4)
    return y - x


# NumPy computes these in another order
ROUNDED = ("augmented", "histogram", "histogram_density", "linspace", "linspace_open")


@pytest.mark.parametrize("name", INDEXING)
def test_indexing_functions_equal_numpy(name):
    compare(INDEXING[name], X, exact=name not in ROUNDED)


CALCULUS = {
    "trapezoid": lambda x: np.trapezoid(x, axis=0),
    "trapezoid_points": lambda x: np.trapezoid(x, np.array([0.0, 1.0, 3.0, 4.5])),
    "trapezoid_traced_points": lambda x: np.trapezoid(x**2, np.cumsum(np.exp(x), axis=1)),
    "gradient": lambda x: np.gradient(x),
    "gradient_spacing": lambda x: np.gradient(x, 0.5, [0.0, 1.0, 3.0, 4.0]),
    "gradient_order_2": lambda x: np.gradient(x, [0.0, 1.0, 3.0, 4.0], axis=1, edge_order=2),
    "interp": lambda x: np.interp(x, [-1.0, 0.2, 1.0], [0.0, 1.0, 3.0]),
    "interp_ends": lambda x: np.interp(x, [-1.0, 0.2], [0.0, 1.0], left=-5.0, right=9.0),
    "interp_traced": lambda x: np.interp(x, np.sort(x[0]), x[1]),
    "interp_period": lambda x: np.interp(x, [0.1, 3.0, 2.0], [1.0, 5.0, 2.0], period=3.5),
    "unwrap": lambda x: np.unwrap(4 * x),
    "polyval": lambda x: np.polyval([1.0, -2.0, 0.5], x) + np.polyval(x[0], x[1]),
    "logspace": lambda x: np.logspace(x[0] / 9, 1.0, 4),
    "geomspace": lambda x: np.geomspace(np.exp(x[0]), 2.0, 4, axis=-1),
    "polyadd": lambda x: np.polyadd(x[0], x[1, :2]) - np.polysub(x[0], [1.0]),
    "polymul": lambda x: np.polymul(x[0], x[1, :2]),
    "polyder": lambda x: np.polyder(x[0], 2),
    "polyint": lambda x: np.polyint(x[0], 2, [3.0, 4.0]),
    "vander": lambda x: [np.vander(x[0]), np.vander(x[0], 2, increasing=True)],
}


@pytest.mark.parametrize("name", CALCULUS)
def test_calculus_functions_equal_numpy(name):
    compare(CALCULUS[name], X, exact=False)


def test_shape_metadata_are_plain_values():
    def f(x):
        assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1), len(x)) == ((3, 4), 2, 12, 4, 3)
        assert np.result_type(x, np.float32) == np.float64
        assert np.allclose(x, x) is True and np.array_equal(x, x + 1) is False
        assert np.array_equiv(x[:1], x[0]) is True and not np.shares_memory(x, x)
        return x.sum()

    ad.grad(f)(X)


def test_plain_bools_are_guarded():
    program = ad.trace(lambda x: x * 2 if np.allclose(x, 1.0) else x * 3, np.ones(2))
    assert np.array_equal(ad.interpret(program, np.ones(2)), [2, 2])
    with pytest.raises(ad.errors.GuardError):
        ad.interpret(program, np.zeros(2))


@pytest.mark.parametrize("name", ["copyto", "place", "put", "putmask", "put_along_axis"])
def test_writing_functions_name_the_functional_update(name):
    args = (X,) if name == "copyto" else ([[0]], 1.0, 0)[: 3 if "axis" in name else 2]
    with pytest.raises(TracerError, match=rf"np\.{name} is not supported.*[\s\S]*index_update"):
        ad.trace(lambda x: getattr(np, name)(x, *args), X)


@pytest.mark.parametrize("name", ["sort", "partition", "put", "resize", "fill"])
def test_methods_that_change_an_array_are_refused(name):
    with pytest.raises(TracerError, match=rf"method {name}\(\) would change[\s\S]*x = "):
        ad.trace(lambda x: getattr(x, name)(1), X)


def test_value_dependent_shape_without_a_value_names_the_fix():
    with pytest.raises(TracerError, match=r"np\.nonzero of a traced value[\s\S]*np\.where\(mask"):
        ad.vmap(lambda x: np.nonzero(x)[0])(X)


def test_pad_mode_error_lists_the_modes():
    with pytest.raises(ShapeError, match=r"mode='ramp'[\s\S]*'edge', 'reflect'[\s\S]*'mean'"):
        ad.trace(lambda x: np.pad(x, 1, mode="ramp"), X)
