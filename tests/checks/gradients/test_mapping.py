"""vmap against loops: every mapping of axes, sizes, gradients, nesting; wrong batching is found."""

import json

import numpy as np
import pytest

from checks import check_vmap, integers, normal, vmap_check
from checks.properties.arguments import PropertyError
from checks.properties.mapping import VmapError
from checks.properties.vmapped import SURFACES

X, W = np.arange(6.0).reshape(2, 3) / 5 + 0.1, np.array([0.5, -1.0, 2.0])


def names(report):
    return [c.name for c in report.checks]


def test_all_combinations_sizes_axes_gradients_and_nesting():
    report = check_vmap(lambda x, w: (np.tanh(x @ w), np.argmax(w)), X, W)
    assert report.ok and report.verdict == "PASS", str(report)
    loops = [n for n in names(report) if n.startswith("in_axes")]
    assert len(loops) == 8  # 3 x 3 less the one that maps nothing
    assert "in_axes (None, -1)" in loops
    assert [n[:10] for n in names(report) if n.startswith("batch")] == [
        "batch of 0",
        "batch of 1",
        "batch of 3",
    ]
    assert [n[:11] for n in names(report) if n.startswith("out")] == ["out_axes 0,", "out_axes -1"]
    assert {"vmap of gradient", "gradient of vmap", "nested, the same arguments"} <= set(
        names(report)
    )
    assert json.loads(report.to_json())["ok"] is True
    assert report.raise_if_failed() is report


def test_many_arguments_are_mapped_together_alone_and_spared():
    report = check_vmap(lambda *a: sum(a), *[W + i for i in range(5)], surfaces=("vmap_loop",))
    assert report.ok
    assert "in_axes (0, 0, 0, 0, 0)" in names(report)
    assert "in_axes (None, None, -1, None, None)" in names(report)
    assert "in_axes (0, 0, None, 0, 0)" in names(report)
    assert len(report.checks) == 22


def test_integers_bools_containers_and_numbers():
    def f(p, i, flag):
        return np.where(flag, p["w"][i], 0.0), i + 1

    report = check_vmap(f, {"w": W}, np.array([2, 0]), np.array([True, False]))
    assert report.ok, str(report)


def test_given_axes_alone():
    report = check_vmap(lambda x, w: x @ w, X, W, in_axes=(1, None))
    assert {n for n in names(report) if "in_axes" in n and "batch" not in n} >= {
        "in_axes (1, None)"
    }
    assert all("(0, 0)" not in n for n in names(report)) and report.ok


def torch_rule(wrong):
    import torch

    class Sine(torch.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x):
            return torch.sin(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ct * torch.cos(x)

        @staticmethod
        def vmap(info, in_dims, x):
            return wrong(torch, x), in_dims[0]

    return Sine.apply


def test_a_rule_that_is_wrong_past_the_first_row_is_found():
    torch = pytest.importorskip("torch")
    stale = torch_rule(lambda t, x: t.sin(x[:1].expand_as(x)))
    x = torch.tensor([0.3, 0.7], dtype=torch.float64)
    report = check_vmap(stale, x, in_axes=0, surfaces=("vmap_loop",))
    assert report.verdict == "WRONG"
    assert "row 2, result 0" in str(report)
    assert "wrong rows: 1, 2" in str(report)
    with pytest.raises(VmapError, match="WRONG .*, 1 of 1 mapping"):
        report.raise_if_failed()


def test_a_rule_of_the_wrong_shape_or_that_raises_is_found():
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.3, 0.7], dtype=torch.float64)

    def fails(t, x):
        raise RuntimeError("no batches, please")

    report = check_vmap(torch_rule(fails), x, in_axes=0, surfaces=("vmap_loop",))
    assert report.verdict == "RAISES" and "no batches, please" in str(report)
    report = check_vmap(torch_rule(lambda t, x: x[:, :1]), x, in_axes=0, surfaces=("vmap_loop",))
    assert report.verdict == "WRONG_SHAPE" and "a loop gives (3, 2)" in str(report)


def test_a_gradient_that_a_batch_loses_is_found():
    torch = pytest.importorskip("torch")
    detached = torch_rule(lambda t, x: t.sin(x.detach()))
    x = torch.tensor([0.3, 0.7], dtype=torch.float64)
    assert check_vmap(detached, x, surfaces=("vmap_loop",)).ok
    report = check_vmap(lambda x: detached(x) * x, x, surfaces=("vmap_gradients",))
    assert report.verdict == "WRONG" and "mapping     gradient of vmap" in str(report)


def test_jax_and_torch_functions():
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    report = check_vmap(lambda x, w: jax.numpy.tanh(x @ w), X, W, framework="jax")
    assert report.ok and report.framework == "jax" and len(report.checks) == 17
    args = [torch.tensor(a) for a in (X, W)]
    report = check_vmap(lambda x, w: torch.tanh(x @ w), *args)
    assert report.ok and report.framework == "torch"


def test_narrow_dtypes_are_judged_by_their_rounding():
    report = check_vmap(lambda x, w: np.tanh(x @ w), X.astype(np.float32), W.astype(np.float32))
    assert report.ok, str(report)


def test_a_function_that_cannot_be_traced_is_not_defined():
    report = check_vmap(lambda x: np.array([float(v) for v in x]), W)
    assert report.verdict == "NOT_DEFINED" and not report.ok
    text = str(report)
    assert text.count("float()") == 1 and text.count("the same") > 1
    assert "test_mapping.py:" in text and "keep it an array" in text  # where, and the way out


def test_a_branch_that_batches_cannot_take_is_not_defined():
    report = check_vmap(lambda x: x if np.sum(x) > 0 else -x, W, surfaces=("vmap_loop",))
    assert report.verdict == "NOT_DEFINED"


def test_the_decorator_gives_the_same_report():
    @vmap_check(args=(normal(4, 3), integers(0, 4, 2)), out_axes=-1, batch_sizes=(2,))
    def take(x, i):
        return x[i]

    report = take.check()
    assert report.ok, str(report)
    assert any(n.startswith("batch of 2") for n in names(report))
    assert not any(n.startswith("batch of 0") for n in names(report))
    assert take.gradsweep[0].kinds() == SURFACES


def test_without_gradients():
    report = check_vmap(lambda i: i + 1, np.array([1, 2]))
    assert report.ok and not any("gradient" in n for n in names(report))


MISTAKES = [
    ({"in_axes": (0,)}, "does not fit .*, which has 2 array arguments"),
    ({"in_axes": (None, None)}, "does not fit"),
    ({"in_axes": (0, 2)}, "axis 2 of in_axes=.* does not exist"),
    ({"in_axes": (0.5, 0)}, "does not fit"),
]


@pytest.mark.parametrize(("options", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_worded(options, text):
    with pytest.raises(PropertyError, match=text):
        check_vmap(lambda x, w: x @ w, X, W, **options)
    with pytest.raises(PropertyError, match="has no array to map"):
        check_vmap(lambda: 1.0)
