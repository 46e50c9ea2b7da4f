"""Products: how they are batched and transposed, dot modes, einsum, and public bug reports."""

import numpy as np
import pytest

import autodiff as ad
from autodiff import ops
from autodiff.errors import ShapeError
from autodiff.lower.jax import lower_jax

RNG = np.random.default_rng(5)


def real(*shape):
    return RNG.normal(size=shape)


def shapes_of(program, *kinds):
    """Output shapes of the equations of the given kinds."""
    return [eq.outputs[0].spec.shape for eq in program.equations if eq.op.kind in kinds]


def batched_program(f, in_axes, *args):
    return ad.trace(lambda *a: ad.vmap(f, in_axes)(*a), *args)


# --- batching ---------------------------------------------------------------------------------


def test_a_shared_matrix_stays_one_matrix():
    program = batched_program(np.matmul, (0, None), real(5, 2, 3), real(3, 4))
    assert [eq.op.kind for eq in program.equations] == ["MATMUL"]
    assert program.equations[0].inputs[1].spec.shape == (3, 4)


def test_one_matrix_times_many_vectors_is_one_product():
    w, v = real(4, 3), real(5, 3)
    program = batched_program(lambda w, v: w @ v, (None, 0), w, v)
    assert shapes_of(program, "MATMUL") == [(5, 4)] and not shapes_of(program, "BROADCAST")
    np.testing.assert_allclose(ad.interpret(program, w, v), v @ w.T, rtol=1e-14)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
def test_no_operand_of_a_mapped_product_is_repeated(in_axes):
    full = (real(5, 2, 3, 4), real(5, 2, 4, 3))
    args = [a if axis == 0 else a[0] for a, axis in zip(full, in_axes, strict=True)]
    for f in (np.matmul, lambda x, y: np.einsum("bij,bjk->bik", x, y)):
        program = batched_program(f, in_axes, *args)
        assert not shapes_of(program, "BROADCAST")
        rows = [
            f(*(a[b] if axis == 0 else a for a, axis in zip(args, in_axes, strict=True)))
            for b in range(5)
        ]
        np.testing.assert_allclose(ad.interpret(program, *args), rows, rtol=1e-13, atol=1e-14)


def test_gradient_of_a_shared_matrix_is_one_product():
    x, w = real(5, 6, 3), real(3, 4)
    cases = (
        (lambda w, x: (x @ w).sum(), (w, x)),
        (lambda w, x: (w @ x).sum(), (real(4, 6), x)),
    )
    for f, args in cases:
        program = ad.trace(ad.grad(f), *args)
        products = shapes_of(program, "MATMUL", "DOT_GENERAL")
        assert sorted(products[-1]) == sorted(args[0].shape)
        assert not shapes_of(program, "SUM_TO")
        assert all(len(s) == 2 or s[0] == 5 for s in products[:-1])
    np.testing.assert_allclose(
        ad.grad(lambda w: ((x @ w) ** 2).sum())(w),
        2 * np.einsum("bij,bik->jk", x, x @ w),
        rtol=1e-13,
    )


def test_leading_axes_are_folded_into_one_blas_call(monkeypatch):
    from autodiff.kernels import matmul as kernels

    seen = []
    plain = np.matmul

    def spy(x, y):
        seen.append((x.shape, y.shape))
        return plain(x, y)

    monkeypatch.setattr(kernels.np, "matmul", spy)
    x, w = real(2, 5, 3), real(3, 4)
    out = kernels.matmul(x, w)
    assert seen == [((10, 3), (3, 4))] and out.shape == (2, 5, 4)


@pytest.mark.parametrize("flags", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize(
    "numbers",
    [
        (((1,), (0,)), ((), ())),
        (((2,), (1,)), ((0,), (2,))),
        (((0, 1), (2, 0)), ((), ())),
        (((1,), (0,)), ((0, 2), (2, 1))),
    ],
)
def test_dot_general_under_every_mapping(flags, numbers):
    (x_sum, y_sum), (x_batch, y_batch) = numbers
    x_shape, y_shape = [2, 3, 4], [5, 6, 7]
    for a, b in zip((*x_sum, *x_batch), (*y_sum, *y_batch), strict=True):
        y_shape[b] = x_shape[a]
    x, y = real(2, *x_shape), real(2, *y_shape)
    x, y = (v if f == 0 else v[0] for v, f in zip((x, y), flags, strict=True))

    def f(x, y):
        return ops.dot_general(x, y, numbers)

    rows = [f(x[b] if flags[0] == 0 else x, y[b] if flags[1] == 0 else y) for b in range(2)]
    np.testing.assert_allclose(ad.vmap(f, flags)(x, y), rows, rtol=1e-13, atol=1e-14)
    ct = RNG.normal(size=np.shape(rows))
    _, pullback = ad.vjp(ad.vmap(f, flags), x, y)
    dots = real(*x.shape), real(*y.shape)
    _, out = ad.jvp(ad.vmap(f, flags), (x, y), dots)
    left = np.sum(ct * out)
    right = sum(np.sum(b * d) for b, d in zip(pullback(ct), dots, strict=True))
    assert abs(left - right) < 1e-12 * np.sum(np.abs(ct * out))


def test_dot_general_equals_jax():
    lax = pytest.importorskip("jax.lax")
    numbers = (((3, 1), (0, 3)), ((0, 2), (2, 1)))
    x, y = real(2, 3, 4, 5).astype(np.float32), real(5, 4, 2, 3).astype(np.float32)
    expected = lax.dot_general(x, y, numbers)
    np.testing.assert_allclose(ops.dot_general(x, y, numbers), expected, rtol=2e-5, atol=2e-5)


# --- dot modes ----------------------------------------------------------------------------------


def test_one_times_one_product_under_tf32():
    # pytorch/pytorch#53635: 1024.5 has 11 mantissa bits; a TF32 input keeps 10, ties away from zero
    a, b = np.float32([[1024.5]]), np.float32([[1.0]])
    program = ad.trace(np.matmul, a, b)
    run = {
        mode: ad.interpret(program, a, b, precision="float32", dot=mode)
        for mode in ("ieee", "tf32", "tf32_rz")
    }
    assert [run[m].item() for m in run] == [1024.5, 1025.0, 1024.0]


def test_product_of_bfloat16_inputs():
    # jax-ml/jax#9973: the product of a TPU, to the last digit, is that of bfloat16 inputs
    x = np.array([[0.3744, 0.1656], [0.4707, 0.1663]])
    y = np.array([[0.3946, 0.1186], [0.1569, 0.3145]])
    reported = [[0.17405128, 0.09669876], [0.21180916, 0.10805416]]
    for f in (np.matmul, np.dot, lambda x, y: np.einsum("ij,jk", x, y)):
        program = ad.trace(f, x, y)
        out = ad.interpret(program, x, y, precision="float32", dot="bf16x1")
        np.testing.assert_allclose(out, reported, rtol=1e-7)
        np.testing.assert_allclose(ad.interpret(program, x, y), x @ y, rtol=1e-14)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y, a: ops.matmul(x, y, algorithm=a),
        lambda x, y, a: ops.dot(x, y, algorithm=a),
        lambda x, y, a: ops.einsum("ij,jk->ki", x, y, algorithm=a),
        lambda x, y, a: ops.dot_general(x, y, (((1,), (0,)), ((), ())), algorithm=a),
    ],
    ids=["matmul", "dot", "einsum", "dot_general"],
)
def test_the_f32_algorithm_is_kept_by_derivatives_and_batches(f):
    x, y = real(3, 4).astype(np.float32), real(4, 2).astype(np.float32)

    def loss(x, y):
        return (f(x, y, "f32") ** 2).sum()

    for transformed, args in (
        (loss, (x, y)),
        (ad.grad(loss, (0, 1)), (x, y)),
        (lambda x, y: ad.jvp(loss, (x, y), (x, y))[1], (x, y)),
        (ad.vmap(loss, (0, None)), (np.stack([x, x]), y)),
        (ad.vmap(ad.grad(loss), (0, None)), (np.stack([x, x]), y)),
        (lambda x, y: ad.hvp(lambda x: loss(x, y), (x,), (x,)), (x, y)),
    ):
        program = ad.program.inline(ad.trace(transformed, *args))
        algorithms = {eq.params["algorithm"] for eq in program.equations if eq.op.product}
        assert algorithms == {"f32"}
    program = ad.trace(lambda x, y: f(x, y, "f32"), x, y)
    exact = ad.interpret(program, x, y, precision="float32")
    assert np.array_equal(ad.interpret(program, x, y, precision="float32", dot="bf16x1"), exact)


def test_the_f32_algorithm_reaches_the_compiled_module():
    jax = pytest.importorskip("jax")
    x = real(3, 3).astype(np.float32)
    for algorithm, portable, wanted in (
        ("default", False, None),
        ("f32", False, "algorithm = <lhs_precision_type = f32"),
        ("f32", True, "precision = [HIGHEST, HIGHEST]"),
    ):
        program = ad.trace(lambda x, a=algorithm: ops.matmul(x, x, algorithm=a), x)
        text = jax.jit(lower_jax(program, portable=portable)).lower(x).as_text()
        assert ("algorithm =" in text or "HIGHEST" in text) == (wanted is not None)
        assert wanted is None or wanted in text


def test_unknown_algorithm_is_named():
    with pytest.raises(ShapeError, match=r"MATMUL has no algorithm 'tf32'[\s\S]*'default'.*'f32'"):
        ops.matmul(real(2, 2), real(2, 2), algorithm="tf32")


# --- einsum -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("abcd->bd", [(3, 2, 3, 2)]),  # HIPS/autograd#242
        ("ii->", [(2, 2)]),  # HIPS/autograd#115
        ("nd,nn->d", [(4, 2), (4, 4)]),  # HIPS/autograd#510
        ("i,i", [(2,), (1,)]),  # HIPS/autograd#376
        ("i,j->ij", [(3,), (4,)]),  # ml-explore/mlx#2376
        ("iij->ij", [(2, 2, 3)]),  # tinygrad/tinygrad#18229
        ("iij,j->ij", [(2, 2, 3), (3,)]),
        ("ijji,kji,jj->kj", [(2, 3, 3, 2), (4, 3, 2), (3, 3)]),
        ("bnij,bnjc->bnic", [(1, 1, 5, 3), (1, 1, 3, 2)]),  # apache/mxnet#18102
        ("...a,...ab->...b", [(2, 3, 4), (3, 4, 2)]),
        ("ij,jk,kl,lm->im", [(2, 3), (3, 2), (2, 4), (4, 2)]),
    ],
)
def test_einsum_gradients_of_public_reports(subscripts, shapes):
    args = [real(*s) for s in shapes]
    ct = real(*np.shape(np.einsum(subscripts, *args)))

    def loss(*args):
        return np.sum(np.einsum(subscripts, *args) * ct)

    value, bars = ad.value_and_grad(loss, tuple(range(len(args))))(*args)
    np.testing.assert_allclose(value, np.sum(np.einsum(subscripts, *args) * ct), rtol=1e-12)
    for i, bar in enumerate(bars):
        assert bar.shape == shapes[i]
        slope = np.zeros(shapes[i])
        for place in np.ndindex(*shapes[i]):
            # einsum is linear in each operand: a unit step gives the derivative
            step = [a.copy() for a in args]
            step[i][place] += 1.0
            slope[place] = loss(*step) - value
        np.testing.assert_allclose(bar, slope, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk", [(2, 3)], "names 2 operands, 1 are given"),
        ("ijk", [(2, 3)], "does not fit operands of shapes"),
        ("i", [(2, 3)], "does not fit operands of shapes"),
        ("ij->ii", [(2, 3)], "repeats or invents a label"),
        ("ij->k", [(2, 3)], "repeats or invents a label"),
        ("i1->i", [(2, 3)], "repeats or invents a label"),
        ("ij,jk", [(2, 3), (4, 5)], "label 'j' has extents 3 and 4"),
        ("ii", [(1, 3)], "diagonal of unequal extents 1 and 3"),
    ],
)
def test_einsum_errors(subscripts, shapes, message):
    with pytest.raises(ShapeError, match=message) as error:
        ops.einsum(subscripts, *(real(*s) for s in shapes))
    assert len(str(error.value).splitlines()) == 3


def test_einsum_order_follows_the_extents():
    # (1000 x 2)(2 x 1000)(1000 x 1) needs 4e3 products from the right, 3e6 from the left
    args = [np.ones((1000, 2)), np.ones((2, 1000)), np.ones((1000, 1))]
    program = ad.program.inline(ad.trace(lambda *a: np.einsum("ij,jk,kl->il", *a), *args))
    assert sorted(shapes_of(program, "DOT_GENERAL"), key=sum)[0] == (2, 1)


# --- shapes that do not fit ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "shapes", "message"),
    [
        (ops.matmul, [(2, 3), (4, 2)], r"cannot multiply float64\[2,3\] and float64\[4,2\]"),
        (ops.matmul, [(2, 2, 3), (3, 3, 2)], "cannot multiply"),
        (ops.matmul, [(), (3,)], "a 0-d operand is multiplied"),
        (ops.dot, [(2, 3), (2,)], "cannot take the dot product"),
        (ops.cross, [(2,), (3,)], "cross products are of vectors of 3"),
        (
            lambda x, y: ops.dot_general(x, y, (((0,), (0,)), ((), ()))),
            [(2,), (3,)],
            "cannot contract",
        ),
        (
            lambda x, y: ops.dot_general(x, y, (((0, 0), (0, 1)), ((), ()))),
            [(2,), (2, 2)],
            "out of range",
        ),
        (lambda x, y: np.tensordot(x, y, ([0], [0, 1])), [(2,), (2, 2)], "are not pairs"),
    ],
)
def test_shape_errors_have_three_lines(f, shapes, message):
    with pytest.raises(ShapeError, match=message) as error:
        ad.trace(f, *(real(*s) for s in shapes))
    assert len(str(error.value).splitlines()) == 3


def test_products_of_narrow_floats_keep_their_type():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, y = real(3, 4).astype(dtype), real(4, 2).astype(dtype)
        out = ops.matmul(x, y)
        assert out.dtype == dtype
        exact = x.astype(np.float64) @ y.astype(np.float64)
        np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2**-7, atol=2**-7)
