"""Functions that jump at the point itself, staircases, and batches of what cancels."""

import numpy as np
import pytest

from checks import check_gradients
from checks.gradients.abrupt import agrees_nearby, jumping
from checks.gradients.evidence import Evidence
from checks.gradients.framework import framework
from checks.gradients.target import Target

RNG = np.random.default_rng(3)
X = RNG.normal(size=5)
LABELS = np.array([1.0, -1.0, 1.0, -1.0, 1.0])


def hinge(x, y):  # reads its labels by equality, as PyTorch's hinge_embedding_loss does
    return np.where(y == 1, x * y, np.maximum(0.0, 8.5 - x))


def right(x, y, ct):
    return ct * np.where(y == 1, y, -1.0), ct * np.where(y == 1, x, 0.0)


def test_a_jump_at_the_point_itself_is_a_kink_of_that_argument():
    report = check_gradients(hinge, X, LABELS, vjp=right)
    assert report.verdict == "KINK"
    assert "jumps at the very value of y" in str(report)
    assert report.evaluations < 400


def test_beside_such_a_jump_a_wrong_derivative_is_wrong():
    def wrong(x, y, ct):
        gx, gy = right(x, y, ct)
        return 1.01 * gx, gy

    report = check_gradients(hinge, X, LABELS, vjp=wrong)
    assert report.verdict == "WRONG"
    assert report.worst.argument == "x"


def test_the_other_arguments_pass_by_themselves():
    assert check_gradients(hinge, X, LABELS, vjp=right, argnums=0).verdict == "PASS"


def rounded(x):
    return np.sum(np.round(x, 3) * np.arange(1.0, 6.0))


def test_a_staircase_is_not_decided_by_the_slope_of_its_stairs():
    report = check_gradients(rounded, X, gradient=np.zeros_like)
    assert report.verdict == "INCONCLUSIVE"
    assert "staircase" in str(report)


def test_one_stair_times_a_smooth_function():
    def f(x):
        return np.round(x, 3) * x

    def jac(x):
        return np.diag(np.round(x, 3))

    assert check_gradients(f, X, jac=jac).verdict in ("PASS", "INCONCLUSIVE")
    assert check_gradients(f, X, jac=lambda x: 1.1 * jac(x)).verdict == "WRONG"


def test_a_gradient_left_out_of_a_smooth_function_is_still_wrong():
    report = check_gradients(lambda x: np.sum(np.sin(x)), X, gradient=np.zeros_like)
    assert report.verdict == "WRONG"


def test_tensors_without_memory_and_without_a_dtype_in_numpy():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.from_numpy(RNG.normal(size=(1, 1)))
    assert check_gradients(torch.linalg.slogdet, x).verdict == "PASS"
    assert check_gradients(torch.sgn, torch.from_numpy(X)).verdict == "VACUOUS"


def test_vmap_of_a_gradient_that_cancels_to_almost_nothing():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function = torch.nn.functional.layer_norm
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, w, b = (torch.from_numpy(rng.normal(size=s)) for s in ((1, 2), 2, 2))
        assert check_gradients(lambda x, w, b: function(x, (2,), w, b), x, w, b).verdict == "PASS"


def test_a_batch_that_differs_by_more_than_rounding_is_wrong():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Off(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos()

        @staticmethod
        def vmap(info, dims, x):
            return x.sin() * (1 + 1e-11), dims[0]

    report = check_gradients(Off.apply, torch.from_numpy(X))
    assert report.verdict == "WRONG"
    assert [c.name for c in report.checks if c.verdict == "WRONG"] == ["vmap"]


def test_float32_near_the_end_of_a_domain_is_judged_at_float64():
    x = np.array([0.1, 0.5, 0.9999999, 0.3], np.float32)
    report = check_gradients(lambda x: np.sum(np.arcsin(x)), x)
    assert report.verdict == "PASS"


def test_the_entry_at_the_domains_end_is_named():
    x = np.array([0.5, 1.0, 0.25, 0.3])
    report = check_gradients(lambda x: np.sum(np.arcsin(x)), x)
    assert report.verdict == "DOMAIN"
    assert report.worst.index == (1,)


def guarded(x):
    if np.any(x > 1):
        raise ValueError("x must be at most 1")
    return np.sum(np.sqrt(1 - x) + x**2)


def slope(x):
    return 2 * x - 0.5 / np.sqrt(1 - x)


@pytest.mark.parametrize("near", [0.5, 0.9, 0.999999])
def test_a_function_that_raises_outside_its_domain_is_judged_inside(near):
    x = np.array([near, 0.3])
    assert check_gradients(guarded, x, gradient=slope).verdict == "PASS"
    assert check_gradients(guarded, x, gradient=lambda x: 1.1 * slope(x)).verdict == "WRONG"


def test_at_the_end_of_such_a_domain_the_report_says_what_was_raised():
    report = check_gradients(guarded, np.array([1.0, 0.3]), gradient=slope)
    assert report.verdict == "DOMAIN"
    assert any("at some steps it raises ValueError" in note for note in report.notes)
    assert "outside it raises ValueError: x must be at most 1" in " ".join(str(report).split())


def test_what_is_raised_at_the_point_itself_is_raised():
    with pytest.raises(ValueError, match="at most 1"):
        check_gradients(guarded, np.array([1.5, 0.3]), gradient=slope)


@pytest.mark.parametrize("how", ["raises", "nan"])
def test_a_second_call_at_the_point_that_fails_is_nondeterministic(how):
    calls = []

    def tired(x):
        calls.append(1)
        if len(calls) == 2 and how == "raises":
            raise ValueError("no more")
        return x**2 * (np.nan if len(calls) == 2 else 1.0)

    report = check_gradients(tired, X, gradient=None, vjp=lambda x, ct: (2 * x * ct,))
    assert report.verdict == "NONDETERMINISTIC"
    assert ("raised ValueError: no more" in " ".join(str(report).split())) == (how == "raises")


def test_what_only_float32_reaches_names_the_entry_at_the_domains_end():
    def only(x):
        if x.dtype != np.float32:
            raise TypeError("float32 alone")
        return np.sum(np.arcsin(x))

    report = check_gradients(only, np.array([0.1, 0.5, 0.99998, 0.3, 0.2], np.float32))
    assert report.verdict == "DOMAIN"
    assert report.worst.index == (2,)


def test_slopes_that_grow_at_a_root_are_no_jump_at_the_point():
    def f(x, y):
        return x * np.sqrt(np.abs(y))

    report = check_gradients(
        f, np.ones(5), np.zeros(5), vjp=lambda x, y, ct: (0 * ct + 0.1, 0 * ct)
    )
    assert report.verdict == "WRONG"
    assert "jumps at" not in str(report)


@pytest.mark.parametrize("seed", [1, 5])
def test_entries_of_a_staircase_are_not_decided_by_its_stairs(seed):
    x = np.random.default_rng(seed).normal(size=20)
    report = check_gradients(
        lambda x: np.round(x, 3) * x, x, vjp=lambda x, ct: (ct * np.round(x, 3),), seed=seed
    )
    assert report.verdict == "INCONCLUSIVE"
    assert [c.name for c in report.checks if c.verdict == "INCONCLUSIVE"] == ["jacobian"]


def evidence_of(f, *args, gradient):
    target = Target("f", framework("numpy"), f, args)
    cotangents = [np.random.default_rng(5).normal(size=y.shape) for y in target.centre]
    return Evidence(target, cotangents, gradient)


@pytest.mark.parametrize(
    ("f", "found"),
    [
        (hinge, [1]),
        (lambda x, y: x * np.sqrt(np.abs(y - LABELS)), []),  # falls with the root of the step
        (lambda x, y: x * np.abs(y - LABELS), []),  # with the step
        (lambda x, y: np.sin(x * y), []),  # with its square
        (lambda x, y: np.where(x == X, 1.0, 0.0) * np.where(y == 1, 1.0, 2.0), [0, 1]),
    ],
)
def test_which_arguments_a_function_jumps_along(f, found):
    evidence = evidence_of(f, X, LABELS, gradient=[np.zeros(5), np.zeros(5)])
    direction = [np.random.default_rng(6).normal(size=5) for _ in range(2)]
    assert jumping(evidence, direction) == found


def stairs(x):
    return np.round(x, 3) * x


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.02, False), (1.5, False)])
def test_the_finest_steps_agree_with_the_slope_of_one_stair_alone(factor, agrees):
    x = np.random.default_rng(1).normal(size=20)
    evidence = evidence_of(stairs, x, gradient=[np.zeros(20)])
    evidence.gradient = [factor * evidence.cotangents[0] * np.round(x, 3)]
    probes = [evidence.confirmed(*evidence.careful([e * x]))[0] for e in np.eye(20)]
    off = [p for p in probes if not p.agrees]
    assert off
    assert [agrees_nearby(evidence, p) for p in off] == [agrees] * len(off)


def test_what_float16_inside_hides_is_no_staircase():
    weights = np.random.default_rng(7).normal(size=50)

    def f(x):
        return np.sum(weights * (x.astype(np.float16) ** 2).astype(np.float64))

    x = np.random.default_rng(8).normal(size=50)
    evidence = evidence_of(f, x, gradient=[np.zeros(50)])
    probe, _ = evidence.confirmed(*evidence.careful([np.random.default_rng(6).normal(size=50)]))
    assert not probe.agrees
    assert not agrees_nearby(evidence, probe)
