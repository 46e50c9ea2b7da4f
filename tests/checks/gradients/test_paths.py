"""Backwards of PyTorch that are right on the ordinary path alone."""

from typing import Any

import pytest

from checks.gradients.check import check_gradients
from checks.gradients.report import GradientReport

torch = pytest.importorskip("torch")
QUICK: dict[str, Any] = {"vmap": False, "explain": False}


def normal(*shape: int, seed: int = 0) -> Any:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=made)


def verdict(report: GradientReport, name: str) -> str:
    return {c.name: c.verdict for c in report.checks}.get(name, "")


class Product(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """x * w, the gradients returned in the order of those wanted."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, ct):
        x, w = ctx.saved_tensors
        return ct * w, ct * x


class ByNeed(Product):
    @staticmethod
    def backward(ctx, ct):
        x, w = ctx.saved_tensors
        if all(ctx.needs_input_grad):
            return ct * w, ct * x
        return ct * x, ct * w  # the wrong way round


class Two(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, a, b):
        (x,) = ctx.saved_tensors
        return a * x.cos() - b * x.sin()  # either may be None


class TwoSafe(Two):
    @staticmethod
    def backward(ctx, a, b):
        (x,) = ctx.saved_tensors
        total = torch.zeros_like(x)
        if a is not None:
            total = total + a * x.cos()
        return total if b is None else total - b * x.sin()


class TwoWrong(Two):
    @staticmethod
    def backward(ctx, a, b):
        (x,) = ctx.saved_tensors
        if a is None or b is None:
            return torch.zeros_like(x)
        return a * x.cos() - b * x.sin()


def flat(x):
    """The storage as it lies, whatever the strides are."""
    plain = torch.empty(x.shape).stride()
    return torch.as_strided(x, x.shape, plain, x.storage_offset())


class StridedInput(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * ct * flat(x)


class StridedCotangent(StridedInput):
    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * flat(ct) * x


class Expanded(StridedInput):
    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * x * ct * (1 if ct.stride()[-1] else 3)


class Contiguous(StridedInput):
    """Refuses other layouts: no fault of the derivative."""

    @staticmethod
    def forward(ctx, x):
        assert x.is_contiguous()
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * x * ct


WRONG: dict[str, Any] = {
    "needs": (ByNeed, 2, "partial inputs", "where only x needs one"),
    "undefined": (Two, 1, "single results", "raises TypeError"),
    "one result": (TwoWrong, 1, "single results", "summed over results used alone"),
    "strided input": (StridedInput, 1, "strides", "for strided arguments"),
    "strided cotangent": (StridedCotangent, 1, "strides", "for a strided cotangent"),
    "expanded cotangent": (Expanded, 1, "strides", "for an expanded cotangent"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_backward_wrong_on_another_path_is_wrong_and_the_path_is_named(name):
    function, count, check, text = WRONG[name]
    args = [normal(3, 4, seed=k) for k in range(count)]
    report = check_gradients(function.apply, *args, **QUICK)
    assert report.verdict == "WRONG", str(report)
    assert verdict(report, "reverse") == "PASS"
    assert [c.name for c in report.checks if c.verdict == "WRONG"] == [check]
    found = next(c for c in report.checks if c.verdict == "WRONG")
    assert text in found.detail


@pytest.mark.parametrize("function", [Product, TwoSafe, Contiguous])
def test_a_right_backward_passes_on_every_path(function):
    args = [normal(3, 4, seed=k) for k in range(2 if function is Product else 1)]
    report = check_gradients(function.apply, *args, **QUICK)
    assert report.verdict == "PASS", str(report)
    names = {c.name for c in report.checks}
    expected = {Product: "partial inputs", TwoSafe: "single results"}.get(function, "reverse")
    assert expected in names
    assert "strides" in names


def test_a_right_backward_passes_in_half_precision_and_for_scalars():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        args = [normal(3, 4, seed=k).to(dtype) for k in range(2)]
        assert check_gradients(Product.apply, *args, **QUICK).verdict == "PASS"
    assert check_gradients(Product.apply, normal(), normal(seed=1), **QUICK).verdict == "PASS"


def test_functions_of_the_library_alone_are_left_alone():
    report = check_gradients(lambda x: x.sin() @ x.T, normal(3, 4), **QUICK)
    assert not {"strides", "partial inputs", "single results"} & {c.name for c in report.checks}


def test_a_backward_that_fails_has_a_verdict_with_its_line():
    class Fails(StridedInput):
        @staticmethod
        def backward(ctx, ct):
            raise KeyError("scale")

    report = check_gradients(lambda x: Fails.apply(x).sum(), normal(3), **QUICK)
    assert report.verdict == "WRONG"
    found = next(c for c in report.checks if c.verdict == "WRONG").detail
    assert "the backward raises KeyError: 'scale' at test_paths.py:" in found


def test_second_order_that_does_not_exist_is_said_in_the_first_line():
    class Once(StridedInput):
        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return 2 * x * ct

    report = check_gradients(Once.apply, normal(3), order=2, **QUICK)
    assert str(report).splitlines()[0].endswith("first order only"), str(report)
