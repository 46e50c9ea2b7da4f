"""Backward bugs that were reported in public, each as a small function: the verdict, and a cause
that is right or none at all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, expit, softmax

from checks.gradients.check import check_gradients
from checks.gradients.report import GradientReport

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)
X, SQUARE, ROW = rng.normal(size=(5, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
Y = rng.normal(size=(5, 4))
SPD = SQUARE @ SQUARE.T + 4 * np.eye(4)


pytestmark = pytest.mark.usefixtures("unhurried")


BUGS: dict[str, tuple[Callable[[], GradientReport], str, str]] = {}


def bug(issue: str, name: str, said: str) -> Any:
    """Register a bug: the issue it was reported in, the cause's name and words ("" for none)."""

    def keep(run: Callable[[], GradientReport]) -> Callable[[], GradientReport]:
        assert issue not in BUGS
        BUGS[issue] = (run, name, said)
        return run

    return keep


def report(f: Any, *args: Any, vjp: Any = None, **options: Any) -> GradientReport:
    return check_gradients(f, *args, vjp=vjp, vmap=False, modes=("reverse",), **options)


# --- the cotangent -------------------------------------------------------------------------


@bug("k2-fsa/k2#341", "cotangent", "the gradient of scores does not depend on the cotangent")
def total_scores() -> GradientReport:
    """The total score of a lattice: its backward returns the occupancies alone."""

    def total(scores: Array) -> Array:
        return np.log(np.sum(np.exp(scores), axis=1))

    return report(total, X, vjp=lambda scores, ct: (softmax(scores, axis=1),))


@bug("chainer/chainer#1175", "cotangent", "the gradient of x does not depend on the cotangent")
def huber() -> GradientReport:
    def loss(x: Array, y: Array) -> Array:
        d = np.abs(x - y)
        return np.sum(np.where(d < 1, d * d / 2, d - 0.5), axis=1)

    def vjp(x: Array, y: Array, ct: Array) -> Any:
        return np.clip(x - y, -1, 1), None

    return report(loss, X, Y, vjp=vjp, argnums=0)


@bug("ashawkey/stable-dreamfusion#158", "cotangent", "does not depend on the cotangent")
def specified_gradient() -> GradientReport:
    """A given gradient that a scaler's factor does not reach."""
    return report(lambda x: np.sum(x * Y), X, vjp=lambda x, ct: (Y.copy(),), name="sds")


@bug("huggingface/transformers#23774", "cotangent", "lacks what comes from result 1")
def state_ignored() -> GradientReport:
    """A recurrence that returns its state too, whose gradient the backward leaves out."""

    def wkv(k: Array) -> Any:
        return np.sin(k), np.exp(k)

    return report(wkv, X, vjp=lambda k, ct: (ct[0] * np.cos(k),))


# --- signs, factors, zeros -----------------------------------------------------------------


@bug("jax-ml/jax#3213", "sign", "the gradient of y has the wrong sign; x is right")
def documented_example() -> GradientReport:
    def vjp(x: Array, y: Array, ct: Array) -> Any:
        return np.cos(x) * y * ct, -np.sin(x) * ct

    return report(lambda x, y: np.sin(x) * y, X, Y, vjp=vjp)


@bug("HIPS/autograd#401", "sign", "the gradient of cov has the wrong sign; mean is right")
def normal_density() -> GradientReport:
    x = ROW + 0.5

    def logpdf(mean: Array, cov: Array) -> Any:
        d = x - mean
        return -(np.linalg.slogdet(cov)[1] + d @ np.linalg.solve(cov, d)) / 2

    def vjp(mean: Array, cov: Array, ct: Array) -> Any:
        inverse = np.linalg.inv(cov)
        s = inverse @ (x - mean)
        return ct * s, ct * (inverse - np.outer(s, s)) / 2

    return report(logpdf, ROW, SPD, vjp=vjp)


@bug("davisking/dlib#2518", "factor", "the gradient of z is 1/2 of the true one off the diagonal")
def barlow_twins() -> GradientReport:
    def loss(c: Array) -> Any:
        eye = np.eye(4)
        return np.sum(((1 - c) * eye) ** 2) + 0.1 * np.sum((c * (1 - eye)) ** 2)

    def vjp(z: Array, ct: Array) -> Any:
        eye = np.eye(4)
        return (ct * (-2 * (1 - z) * eye + 0.1 * z * (1 - eye)),)

    return report(lambda z: loss(z), SQUARE, vjp=vjp, name="barlow")


@bug("kvfrans/notes#5", "factor", "the gradient of b is 1/5 of the true one (5 is the length")
def bias_by_the_mean() -> GradientReport:
    def vjp(x: Array, w: Array, b: Array, ct: Array) -> Any:
        return ct @ w.T, x.T @ ct, ct.mean(0)

    return report(lambda x, w, b: x @ w + b, X, SQUARE, ROW, vjp=vjp)


@bug("mlpack/mlpack#3679", "missing sum", "is that of index 0 of axis 0 of the result alone")
def bias_of_one_row() -> GradientReport:
    return report(lambda x, b: x + b, X, ROW, vjp=lambda x, b, ct: (ct, ct[0]))


@bug("rasbt/stat453-deep-learning-ss21#5", "summed", "the gradient of b is summed")
def bias_of_one_number() -> GradientReport:
    return report(lambda x, b: x + b, X, ROW, vjp=lambda x, b, ct: (ct, np.full(4, ct.sum())))


@bug("deeplearning4j/deeplearning4j#364", "wrong axis", "is summed over axis 1 where it should be")
def bias_over_the_wrong_axis() -> GradientReport:
    def vjp(x: Array, b: Array, ct: Array) -> Any:
        return ct, ct.sum(1)

    return report(lambda x, b: x + b, SQUARE, ROW, vjp=vjp)


@bug("unslothai/unsloth#4533", "zero", "the gradient of w is zero: detached")
def rms_norm_without_its_weight() -> GradientReport:
    return report(rms_norm, X, ROW, vjp=lambda x, w, ct: (rms_dx(x, w, ct), None))


def rms_norm(x: Array, w: Array) -> Any:
    return x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6) * w


def rms_dx(x: Array, w: Array, ct: Array) -> Array:
    r = 1 / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6)
    inner = np.mean(ct * w * x, axis=1, keepdims=True)
    return np.asarray(r * ct * w - x * r**3 * inner)


@bug("fetchai/ledger#1580", "factor", "is 1/5 of the true one (5 is the length of axis 0 of p)")
def cross_entropy_over_the_batch() -> GradientReport:
    p, one_hot = softmax(X, axis=1), np.eye(4)[[0, 1, 2, 3, 0]]

    def vjp(p: Array, ct: Array) -> Any:
        return (-ct * one_hot / p / len(p),)

    return report(lambda p: -np.sum(one_hot * np.log(p)), p, vjp=vjp, name="entropy")


# --- the Jacobian --------------------------------------------------------------------------


@bug("wkcn/mobula#3", "diagonal", "uses the diagonal of the Jacobian alone")
def softmax_by_its_diagonal() -> GradientReport:
    def vjp(x: Array, ct: Array) -> Any:
        y = softmax(x, axis=1)
        return (ct * y * (1 - y),)

    def own(x: Array) -> Any:
        e = np.exp(x)
        return e / np.sum(e, axis=1, keepdims=True)

    return report(own, X, vjp=vjp, name="softmax")


def turned(x: Array) -> Array:
    return np.concatenate([-x[:, 2:], x[:, :2]], axis=1)


ANGLES = np.tile(rng.uniform(0.2, 1.3, size=(5, 2)), (1, 2))


@bug("huggingface/candle#3612 (negated)", "transposed", "of a rotation: the sign of its sin terms")
def rope() -> GradientReport:
    cos, sin = np.cos(ANGLES), np.sin(ANGLES)
    return report(
        lambda x: x * cos + turned(x) * sin,
        X,
        vjp=lambda x, ct: (ct * cos + turned(ct) * sin,),
        name="rope",
    )


@bug("a rope under a loss", "sign", "is that of the function at -sin: the sign of the terms in sin")
def rope_under_a_loss() -> GradientReport:
    def attend(x: Array, cos: Array, sin: Array) -> Any:
        return np.sum((x * cos + turned(x) * sin) * Y)

    def vjp(x: Array, cos: Array, sin: Array, ct: Array) -> Any:
        return ct * (Y * cos + turned(Y) * sin), None, None

    return report(attend, X, np.cos(ANGLES), np.sin(ANGLES), vjp=vjp, argnums=0)


@bug("sebgao/cTensor#5", "accumulation", "accumulated twice")
def two_paths() -> GradientReport:
    """A node with two followers, whose gradient runs on once for each of them."""

    def f(x: Array) -> Any:
        y = np.sin(x)
        return np.sum(y * x) + np.sum(x**2)

    def vjp(x: Array, ct: Array) -> Any:
        return (ct * (np.sin(x) + x * np.cos(x) + 2 * x + x * np.cos(x)),)

    return report(f, X, vjp=vjp)


@bug("jax-ml/jax#979", "conjugated", "conjugate")
def modulus() -> GradientReport:
    z = X[:, :2] + 1j * X[:, 2:]
    return report(np.abs, z, vjp=lambda z, ct: (ct * z / np.abs(z),), name="abs")


# --- a factor of the derivative left out ----------------------------------------------------


@bug("NVlabs/tiny-cuda-nn#130", "point", "is taken at the result where it should be at x")
def softplus() -> GradientReport:
    """The derivative of the input, given the output."""

    def vjp(x: Array, ct: Array) -> Any:
        y = np.log1p(np.exp(x))
        return (ct * np.exp(y) / (1 + np.exp(y)),)

    return report(lambda x: np.log1p(np.exp(x)), X, vjp=vjp, name="softplus")


@bug("a tanh without its derivative", "factor", "lacks a factor of 1 - y**2, y being the result")
def straight_through() -> GradientReport:
    return report(lambda x: np.tanh(x), X, vjp=lambda x, ct: (ct.copy(),), name="tanh")


@bug(
    "a derivative of the output, given the input",
    "factor",
    "has x for y in y (1 - y), y being the result",
)
def logistic() -> GradientReport:
    """A derivative meant for the output, given the input."""

    def vjp(x: Array, ct: Array) -> Any:
        return (ct * x * (1 - x),)

    return report(lambda x: 1 / (1 + np.exp(-x)), X, vjp=vjp, name="logistic")


@bug("a power not lowered", "factor", "is x times the true one, entry by entry")
def power() -> GradientReport:
    return report(lambda x: x**3, np.abs(X), vjp=lambda x, ct: (3 * x**3 * ct,), name="cube")


# --- wrong, and of no cause that is known ---------------------------------------------------


@bug("milesial/Pytorch-UNet#35", "", "")
def dice() -> GradientReport:
    target = (Y > 0).astype(float)

    def loss(x: Array) -> Any:
        return (2 * np.sum(x * target) + 1e-4) / (np.sum(x) + np.sum(target) + 1e-4)

    def vjp(x: Array, ct: Array) -> Any:
        inter, union = np.sum(x * target), np.sum(x) + np.sum(target) + 1e-4
        return (ct * 2 * (target * union + inter) / union * union,)

    return report(loss, expit(X), vjp=vjp, name="dice")


@bug("BobMcDear/attorch#17", "", "")
def rms_norm_with_its_rows_as_columns() -> GradientReport:
    def vjp(x: Array, w: Array, ct: Array) -> Any:
        r = 1 / np.sqrt(np.mean(x**2, axis=1) + 1e-6)
        inner = np.mean(ct * w * x, axis=1)
        dx = r[:, None] * ct * w - x * (r**3 * inner)  # not [:, None]
        return dx, np.sum(ct * x * r[:, None], axis=0)

    return report(rms_norm, SQUARE, ROW, vjp=vjp)


@bug("BVLC/caffe#5105", "", "")
def local_response() -> GradientReport:
    """Local response normalisation, a power of the scale left out of the second term."""

    def scale(x: Array) -> Array:
        padded = np.pad(x**2, ((0, 0), (1, 1)))
        return 1 + 0.5 * (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:])

    def vjp(x: Array, ct: Array) -> Any:
        s = scale(x)
        y = x * s**-0.75
        part = np.pad(ct * y / s, ((0, 0), (1, 1)))
        near = part[:, :-2] + part[:, 1:-1] + part[:, 2:]
        return (ct * s**-0.75 - 0.75 * x * near * s**-0.75,)

    return report(lambda x: x * scale(x) ** -0.75, X, vjp=vjp, name="lrn")


@bug("a gelu of the other approximation", "", "")
def gelu() -> GradientReport:
    """The derivative of the other approximation."""

    def vjp(x: Array, ct: Array) -> Any:
        s = expit(1.702 * x)
        return (ct * (s + 1.702 * x * s * (1 - s)),)

    return report(lambda x: x * (1 + erf(x / 2**0.5)) / 2, X, vjp=vjp, name="gelu")


@pytest.mark.parametrize("issue", BUGS)
def test_reported_bugs(issue: str) -> None:
    run, name, said = BUGS[issue]
    found = run()
    assert found.verdict == "WRONG", found
    cause = found.cause
    assert (cause.name if cause else "") == name, found
    assert said in (cause.text if cause else ""), found
