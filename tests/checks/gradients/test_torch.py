"""Gradient checks of PyTorch functions, modules and `autograd.Function`s."""

import importlib.util
import warnings

import numpy as np
import pytest

from autodiff import optional
from autodiff.optional import MissingPackageError
from checks.gradients.check import check_gradients
from checks.gradients.framework import FrameworkError, detect, framework
from checks.gradients.surfaces import framework_checks
from checks.gradients.target import Target, TargetError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DOUBLE = torch.float64
QUICK = {"vmap": False, "full": False}


def normal(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def scalar(value):
    return torch.tensor(value, dtype=DOUBLE)


def verdicts(report):
    return {c.name: c.verdict for c in report.checks}


# --- what must be judged right -------------------------------------------------------------

RIGHT = {
    "square at 1e9": (lambda x: x**2, 1e9),
    "log at 1e-7": (torch.log, 1e-7),
    "sqrt at 1e-6": (torch.sqrt, 1e-6),
    "1e8 + sin": (lambda x: 1e8 + torch.sin(x), 1.0),
    "log at 1e-3": (torch.log, 1e-3),
    "1/x at 1e-3": (lambda x: 1 / x, 1e-3),
    "sin(1e4 x)": (lambda x: torch.sin(1e4 * x), 0.3),
    "exp at 20": (torch.exp, 20.0),
    "cube at 1e-8": (lambda x: x**3, 1e-8),
    "relu at 5e-7": (torch.relu, 5e-7),
}

NAMED = {
    "relu at 0": (torch.relu, 0.0, "KINK"),
    "abs at 0": (torch.abs, 0.0, "KINK"),
    "clamp at its limit": (lambda x: x.clamp(-1, 1), 1.0, "KINK"),
    "floor at 4": (torch.floor, 4.0, "KINK"),
    "asin at 1.5": (torch.asin, 1.5, "DOMAIN"),
    "acos above 1": (torch.acos, 1.0 + 1e-9, "DOMAIN"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_functions_at_unusual_scales_pass(case):
    function, at = RIGHT[case]
    report = check_gradients(function, scalar(at), name=case, **QUICK)
    assert report.verdict == "PASS", str(report)
    assert {"reverse", "forward", "dot"} <= set(verdicts(report))


@pytest.mark.parametrize("case", NAMED)
def test_kinks_and_domains_are_named(case):
    function, at, verdict = NAMED[case]
    report = check_gradients(function, scalar(at), name=case, **QUICK)
    assert (report.verdict, report.ok) == (verdict, False), str(report)


def test_a_kink_may_be_allowed():
    assert check_gradients(torch.relu, scalar(0.0), allow=("kinks",), **QUICK).ok


def test_dropout_is_nondeterministic_and_the_global_generator_stays_as_found():
    before = torch.random.get_rng_state()
    report = check_gradients(lambda x: torch.nn.functional.dropout(x, 0.5), normal(20))
    assert report.verdict == "NONDETERMINISTIC"
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_function_that_writes_into_its_input_is_named_and_the_users_tensor_is_whole():
    x = normal(3)
    before = x.clone()
    report = check_gradients(lambda x: x.mul_(2).sin(), x)
    assert report.verdict == "MUTATES_INPUT"
    assert "writes into x" in report.checks[0].detail
    assert torch.equal(x, before)


def test_the_sum_of_a_softmax_is_vacuous():
    report = check_gradients(lambda x: torch.softmax(x, 0).sum(), normal(4))
    assert (report.verdict, report.ok) == ("VACUOUS", False)


# --- autograd.Function ---------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """1e-6 sin, its gradient doubled."""

    @staticmethod
    def forward(ctx, angle):
        ctx.save_for_backward(angle)
        return 1e-6 * angle.sin()

    @staticmethod
    def backward(ctx, ct):
        (angle,) = ctx.saved_tensors
        return 2e-6 * ct * angle.cos()


def sine(change=lambda g: g, tangent=None):
    """A sine whose gradient is changed; with `tangent`, forward mode and vmap exist too."""

    class Sine(torch.autograd.Function):
        generate_vmap_rule = tangent is not None

        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return change(ct * x.cos())

    if tangent is not None:

        def jvp(ctx, dot):
            (x,) = ctx.saved_tensors
            return tangent(dot * x.cos())

        Sine.jvp = staticmethod(jvp)
    return Sine.apply


def test_the_doubled_gradient_of_a_small_function_is_wrong_where_gradcheck_passes_it():
    x = scalar(1.0)
    report = check_gradients(Doubled.apply, x)
    assert report.verdict == "WRONG"
    assert report.name == "Doubled"
    assert report.worst.argument == "angle"
    assert report.worst.ratio == pytest.approx(2.0, rel=1e-6)
    assert verdicts(report)["forward"] == "NOT_DEFINED"
    assert torch.autograd.gradcheck(Doubled.apply, x.clone().requires_grad_())


@pytest.mark.parametrize("factor", [-1.0, 0.0, 2.0, 1.001])
def test_one_wrong_entry_in_ten_thousand_is_named(factor):
    place = torch.ones(10_000, dtype=DOUBLE)
    place[7777] = factor
    report = check_gradients(sine(lambda g: g * place), normal(10_000), name="entry", **QUICK)
    assert report.verdict == "WRONG"
    assert (report.worst.argument, report.worst.index) == ("x", (7777,))
    assert report.evaluations <= 40


def test_a_right_function_with_all_its_rules_passes_every_mode():
    report = check_gradients(sine(tangent=lambda t: t), normal(5))
    assert report.ok, str(report)
    found = verdicts(report)
    assert found["forward"] == found["dot"] == found["vmap"] == found["vmap of grad"] == "PASS"
    # Forward over forward is left out: torch.func.jvp of torch.func.jvp takes what the jvp of a
    # Function saved as constant (PyTorch 2.13), so that it would be reported as WRONG, and is.
    report = check_gradients(sine(tangent=lambda t: t), normal(5), order=2, modes=("reverse",))
    assert report.ok, str(report)
    second = {n: v for n, v in verdicts(report).items() if n.startswith("second")}
    assert second and set(second.values()) == {"PASS"}


def test_a_wrong_forward_rule_is_wrong_in_forward_mode_alone():
    report = check_gradients(sine(tangent=lambda t: 1.001 * t), normal(5), **QUICK)
    found = verdicts(report)
    assert (found["reverse"], found["forward"], report.verdict) == ("PASS", "WRONG", "WRONG")


def test_modes_without_a_rule_are_not_defined_and_do_not_fail():
    report = check_gradients(sine(), normal(5))
    found = verdicts(report)
    assert report.ok and report.verdict == "PASS"
    assert found["forward"] == found["vmap"] == "NOT_DEFINED"
    detail = next(c.detail for c in report.checks if c.name == "vmap")
    assert "generate_vmap_rule" in detail


def test_an_operator_without_forward_mode_is_not_defined_there():
    index, offsets = torch.tensor([1, 2, 0]), torch.tensor([0, 2])

    def function(weight):
        return torch.nn.functional.embedding_bag(index, weight, offsets)

    found = verdicts(check_gradients(function, normal(4, 2), **QUICK))
    assert (found["forward"], found["reverse"]) == ("NOT_DEFINED", "PASS")


FAULTS = {
    "shape": (lambda g: g[:2], "WRONG_SHAPE"),
    "count": (lambda g: (g, g), "WRONG_SHAPE"),
    "random": (lambda g: g * (1 + 0.1 * torch.rand(())), "NONDETERMINISTIC"),
    "none": (lambda g: None, "WRONG"),
    "nan": (lambda g: g * torch.nan, "WRONG"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_backward_have_names(fault):
    change, verdict = FAULTS[fault]
    assert check_gradients(sine(change), normal(5), name=fault, **QUICK).verdict == verdict


def test_a_backward_that_writes_into_its_cotangent_is_named():
    class Writes(Doubled):
        @staticmethod
        def backward(ctx, ct):
            (angle,) = ctx.saved_tensors
            return ct.mul_(1e-6 * angle.cos())

    report = check_gradients(Writes.apply, normal(3), **QUICK)
    assert report.verdict == "MUTATES_INPUT"
    assert "cotangent" in report.checks[0].detail


# --- None, detached, constant --------------------------------------------------------------


def test_a_detached_function_is_not_differentiable():
    report = check_gradients(lambda x: x.detach().sin(), normal(3), **QUICK)
    assert report.verdict == "NOT_DIFFERENTIABLE"
    assert "grad_fn" in report.checks[0].detail


def test_an_unused_argument_and_a_constant_result_have_gradient_zero():
    report = check_gradients(lambda x, unused: (x.sin(), torch.ones(2)), normal(3), normal(2))
    assert report.verdict == "PASS", str(report)


def test_a_detached_result_beside_a_good_one_is_wrong():
    report = check_gradients(lambda x: (x.sin(), x.detach().cos()), normal(3), **QUICK)
    assert report.verdict == "WRONG"


# --- containers, kinds and layouts ---------------------------------------------------------


def test_containers_are_named_by_their_paths():
    def function(params, scale):
        return {"y": params["w"] @ params["b"][0] * scale, "total": (params["w"].sum(),)}

    params = {"w": normal(2, 3), "b": [normal(3, seed=1)]}
    assert check_gradients(function, params, 2, order=2).verdict == "PASS"

    def wrong(params, scale):
        kept = {"w": params["w"], "b": [sine(lambda g: 3 * g)(params["b"][0])]}
        return function(kept, scale)["y"]

    report = check_gradients(wrong, params, 2, **QUICK)
    assert report.verdict == "WRONG"
    assert report.worst.argument == "params['b'][0]"


def test_integers_and_bools_are_held_fixed():
    def function(x, index, mask):
        assert index.dtype == torch.int64 and mask.dtype == torch.bool
        return torch.where(mask, x[index], 0.0)

    index, mask = torch.tensor([0, 2, 2]), torch.tensor([True, False, True])
    assert check_gradients(function, normal(4), index, mask).verdict == "PASS"
    with pytest.raises(TargetError, match="no argument to differentiate"):
        check_gradients(lambda i: i + 1, index)


def test_0d_and_empty():
    assert check_gradients(torch.sin, scalar(0.5)).verdict == "PASS"
    both = check_gradients(
        lambda e, x: e.sum() + x.sin(), torch.zeros(0, 3, dtype=DOUBLE), normal(2)
    )
    assert both.verdict == "PASS", str(both)
    assert check_gradients(torch.sin, torch.zeros(0, 3, dtype=DOUBLE)).verdict == "VACUOUS"


LAYOUTS = {
    "transposed": (lambda: normal(3, 4).t(), (1, 4)),
    "every second": (lambda: normal(8)[::2], (2,)),
    "channels last": (
        lambda: normal(2, 3, 2, 2).contiguous(memory_format=torch.channels_last),
        (12, 1, 6, 3),
    ),
    "expanded": (lambda: normal(1, 3).expand(4, 3), (3, 1)),
    "unfolded": (lambda: normal(6).unfold(0, 3, 1), (3, 1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_kept_where_no_entries_overlap(layout):
    make, strides = LAYOUTS[layout]
    seen = []

    def function(x):
        seen.append(tuple(x.stride()))
        return x.sin().cumsum(0)

    report = check_gradients(function, make(), name=layout, **QUICK)
    assert report.verdict == "PASS", str(report)
    assert set(seen[:3]) == {strides}


def test_complex_arguments_and_results():
    z = torch.complex(normal(3), normal(3, seed=1))
    right = [
        lambda z: z * z.conj() + z**2,
        lambda z: z.real**2 + torch.sin(z.imag),
        lambda z: torch.fft.fft(z).abs(),
    ]
    for k, function in enumerate(right):
        report = check_gradients(function, z, name=f"complex {k}")
        assert report.verdict == "PASS", str(report)
    assert check_gradients(lambda x: torch.fft.fft(x) * torch.exp(1j * x), normal(4)).ok


def test_a_backward_without_the_conjugate_is_wrong():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, ct):
            (z,) = ctx.saved_tensors
            return ct * 2 * z  # PyTorch wants ct * conj(2 z)

    z = torch.complex(normal(3), normal(3, seed=1))
    assert check_gradients(Square.apply, z, **QUICK).verdict == "WRONG"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrow_dtypes_pass_and_a_tripled_gradient_is_wrong(dtype):
    x = (1 + normal(6).abs()).to(dtype)
    seen = []

    def function(x):
        seen.append(x.dtype)
        return torch.log(x) * x

    report = check_gradients(function, x, **QUICK)
    # 64 roundings of bfloat16 are an eighth: more than a check may leave open
    expected = {"PASS", "INCONCLUSIVE"} if dtype == torch.bfloat16 else {"PASS"}
    assert report.verdict in expected, str(report)
    assert seen[0] == dtype
    wrong = check_gradients(sine(lambda g: 3 * g), scalar(0.5).to(dtype), **QUICK)
    assert wrong.verdict == "WRONG", str(wrong)


@pytest.mark.parametrize(
    "name", ["float64", "float32", "float16", "bfloat16", "complex64", "int32"]
)
def test_arrays_go_to_numpy_and_back_bit_for_bit(name):
    torches = framework("torch")
    original = (100 * normal(3, 4)).to(getattr(torch, name)).t()
    there = torches.numpy(original)
    assert there.dtype.name == name
    back = torches.native(there, original)
    assert back.dtype == original.dtype and back.stride() == original.stride()
    assert torch.equal(back, original)
    back.zero_()
    assert torch.count_nonzero(original) and np.count_nonzero(there)  # memory of its own


# --- modules -------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """Two linear layers; the gradient of the second one's bias may be scaled."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
        )
        self.double()

    def forward(self, x):
        hidden = self.layers[1](self.layers[0](x))
        last = self.layers[2]
        bias = Scaled.apply(last.bias, self.factor)
        return hidden @ last.weight.t() + bias

    def loss(self, x, target):
        return ((self(x) - target) ** 2).mean()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, ct):
        return ctx.factor * ct, None


@pytest.fixture(autouse=True)
def _generator():
    with torch.random.fork_rng(devices=[]):
        yield


def test_a_module_is_a_function_of_its_parameters_too():
    assert check_gradients(Net(), normal(5, 3), **QUICK).verdict == "PASS"
    report = check_gradients(Net(1.5), normal(5, 3), **QUICK)
    assert (report.name, report.verdict) == ("Net", "WRONG")
    assert report.worst.argument == "layers.2.bias"


def test_bound_methods_of_a_module_have_its_parameters():
    net = Net(1.5)
    report = check_gradients(net.loss, normal(5, 3), normal(5, 2, seed=1), **QUICK)
    assert (report.name, report.verdict) == ("Net.loss", "WRONG")
    assert report.worst.argument == "layers.2.bias"
    assert all(p.grad is None for p in net.parameters())


def test_argnums_count_the_modules_own_arguments_first():
    assert check_gradients(Net(1.5), normal(5, 3), argnums=0, **QUICK).verdict == "PASS"


def test_frozen_parameters_are_left_out():
    net = Net(1.5)
    net.layers[2].bias.requires_grad_(False)
    assert check_gradients(net, normal(5, 3), **QUICK).verdict == "PASS"


def test_buffers_in_training_mode_are_noted_and_left_as_they_are():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).double()
    before = {n: b.clone() for n, b in module.named_buffers()}
    report = check_gradients(module, normal(6, 3), full=False)
    assert report.verdict == "PASS", str(report)
    assert any("running_mean" in n or "num_batches_tracked" in n for n in report.notes)
    assert verdicts(report)["vmap"] == "NOT_DEFINED"
    assert all(torch.equal(b, before[n]) for n, b in module.named_buffers())
    assert check_gradients(module.eval(), normal(6, 3), full=False).notes == ()


def test_dropout_in_training_mode_is_nondeterministic():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5)).double()
    assert check_gradients(module, normal(6, 3)).verdict == "NONDETERMINISTIC"


def test_an_embedding_has_integer_arguments_and_sparse_gradients():
    module = torch.nn.Embedding(5, 2, sparse=True).double()
    report = check_gradients(module, torch.tensor([1, 2, 2]), **QUICK)
    assert report.verdict == "PASS", str(report)


# --- orders --------------------------------------------------------------------------------


def test_second_and_third_order_in_every_composition():
    report = check_gradients(lambda x: (x.sin() * x).cumsum(0), normal(3), order=3, vmap=False)
    assert report.verdict == "PASS", str(report)
    second = {n for n in verdicts(report) if n.startswith("second")}
    assert any("forward over forward" in n for n in verdicts(report)), second
    assert "NOT_DEFINED" not in verdicts(report).values()


def test_a_wrong_second_derivative_is_wrong():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ct * 3 * x * x.detach()  # right at first order, half of the second

    assert check_gradients(Cube.apply, normal(3), vmap=False).verdict == "PASS"
    assert check_gradients(Cube.apply, normal(3), order=2, vmap=False).verdict == "WRONG"


def test_a_once_differentiable_function_has_no_second_order():
    class Once(Doubled):
        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, ct):
            (angle,) = ctx.saved_tensors
            return 1e-6 * ct * angle.cos()

    report = check_gradients(Once.apply, normal(3), order=2, vmap=False)
    second = [c for c in report.checks if c.name.startswith("second")]
    assert second and {c.verdict for c in second} == {"NOT_DEFINED"}
    assert report.ok


# --- surroundings --------------------------------------------------------------------------


def test_gradients_are_recorded_inside_no_grad_and_leaves_stay_clean():
    x = normal(3).requires_grad_()
    with torch.no_grad():
        report = check_gradients(lambda x: x.sin(), x)
        assert not torch.is_grad_enabled()
    assert report.verdict == "PASS" and x.grad is None


def test_a_function_that_differentiates_inside_itself():
    def force(x):
        x = x.detach().requires_grad_() if not x.requires_grad else x
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    report = check_gradients(force, normal(3), modes=("reverse",), full=False)
    assert report.verdict == "PASS", str(report)
    assert verdicts(report)["vmap"] == "NOT_DEFINED"


def test_numpy_arrays_where_the_framework_is_named():
    assert check_gradients(lambda x: torch.sin(x), np.ones(3), framework="pytorch").ok


def test_arrays_of_two_frameworks_are_refused():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(FrameworkError) as error:
        check_gradients(torch.add, torch.ones(2), jax.numpy.ones(2))
    assert str(error.value).splitlines() == [
        "the arguments hold arrays of JAX and of PyTorch",
        "in the arguments of 'add'",
        "convert them to one framework, or name it: framework='jax'",
    ]
    assert detect(torch.sin, (np.ones(2), torch.ones(2))).name == "torch"


def test_a_missing_torch_names_the_extra(monkeypatch):
    spec = importlib.util.find_spec("checks.gradients.frameworks.torch_module")
    monkeypatch.setattr(optional, "available", lambda package: package != "torch")
    with pytest.raises(MissingPackageError, match=r"pip install gradsweep\[torch\]"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# --- surfaces ------------------------------------------------------------------------------


def surfaces(function, *args, backend="eager"):
    torches = framework("torch")
    function, args = torches.prepare(function, args)
    checks = framework_checks(Target("surface", torches, function, tuple(args)), backend)
    return {c.name: c for c in checks}


def test_compiled_and_float32_agree_with_eager_float64():
    found = surfaces(lambda x: torch.tanh(x) @ x.t(), normal(3, 4))
    assert {n: c.verdict for n, c in found.items()} == {"compile": "PASS", "f32": "PASS"}
    assert 0 < found["f32"].error < found["f32"].allowed
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).double()
    assert surfaces(module, normal(5, 4))["f32"].verdict == "PASS"


def test_a_gradient_that_is_off_in_float32_only():
    change = sine(lambda g: g if g.dtype == DOUBLE else 0.99 * g)
    check = surfaces(change, normal(5))["f32"]
    assert check.verdict == "WRONG"
    assert check.worst.argument == "x" and check.worst.ratio == pytest.approx(0.99, rel=1e-5)


def test_a_function_that_differs_when_compiled_is_wrong():
    def function(x):
        return x.sin() * (2.0 if torch.compiler.is_compiling() else 1.0)

    assert surfaces(function, normal(5))["compile"].verdict == "WRONG"


def test_a_backend_that_does_not_exist_is_not_defined_with_the_reason():
    check = surfaces(torch.sin, normal(3), backend="nowhere")["compile"]
    assert check.verdict == "NOT_DEFINED" and "nowhere" in check.detail


def test_a_matrix_of_another_dtype_inside_is_not_defined_in_float32():
    held = normal(4, 2)
    check = surfaces(lambda x: x @ held, normal(3, 4))["f32"]
    assert check.verdict == "NOT_DEFINED" and "dtype" in check.detail


def test_no_warning_of_torch_itself_reaches_the_user():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_gradients(lambda z: z * z.conj(), torch.complex(normal(3), normal(3, seed=1)))
    assert not seen


def test_numpy_arrays_in_a_function_of_torch():
    report = check_gradients(lambda x: torch.sin(x).sum(), normal(4).numpy(), vmap=False)
    assert (report.verdict, report.framework) == ("PASS", "torch"), str(report)


def test_a_sort_of_many_with_two_that_nearly_tie():
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(20), dtype=DOUBLE)
    report = check_gradients(lambda x: x.sort(-1).values * torch.arange(50.0), x, **QUICK)
    assert report.verdict == "PASS", str(report)
