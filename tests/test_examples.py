"""The examples: each through every surface as a user's own function, and against other roads."""

import json
import os
import runpy
import subprocess
import sys
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import scipy.spatial.transform
import scipy.stats

import autodiff as ad
from autodiff import tree
from checks.runner import check_function

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def load(name):
    """The example as a module; what it prints as a script is not run."""
    return types.SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name))


gmm, bundle, lstm, transformer, mixed = map(
    load,
    (
        "adbench_gmm",
        "adbench_bundle_adjustment",
        "adbench_lstm",
        "transformer_block",
        "mixed_bf16_training",
    ),
)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def batch(count=3):
    """Float64 parameters and a few images for the loss of the training loop."""
    params = {k: v.astype(np.float64) for k, v in mixed.initial(width=4).items()}
    images, labels = mixed.digits(count)
    return params, images.astype(np.float64), labels


# --- surfaces ----------------------------------------------------------------------------------

FUNCTIONS = {
    "gmm": (gmm.gmm_objective, gmm.arguments(k=2, d=2, n=3)),
    "bundle adjustment": (bundle.bundle_adjustment, bundle.arguments(n=2, m=2, p=3)),
    "lstm": (lstm.lstm_objective, lstm.arguments(layers=1, b=2, n=3)),
    "transformer": (transformer.transformer_block, transformer.arguments(t=3, d=4, heads=2)),
    "perceptron": (mixed.loss, batch()),
}


def wrong(rows):
    """What did not pass; a surface skipped for a missing package did not."""
    bad = [r for r in rows if r.status != "pass"]
    return [f"{r.surface} {r.dtype}: {r.status} {r.message or r.reason}" for r in bad]


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_surface(name):
    function, args = FUNCTIONS[name]
    rows = check_function(function, *args)
    assert wrong(rows) == []
    assert {"reverse", "forward", "vmap", "f32"} <= {r.surface for r in rows}


# Values rounded to bfloat16 are steps, which differences and exact arithmetic do not see, and on
# which two roads that differ by one float32 rounding can differ by one of bfloat16.
SAME_ROUNDINGS = ("shapes", "f32", "render", "execute", "device_self")


def test_the_bfloat16_loss_where_roundings_are_the_same():
    function = lambda p, x, y: mixed.loss(p, x, y, BFLOAT16)  # noqa: E731
    rows = check_function(function, *batch(), surfaces=SAME_ROUNDINGS, name="loss")
    assert wrong(rows) == []


# --- SciPy's own function ----------------------------------------------------------------------

ROSEN = """
import json
import numpy as np
import autodiff as ad
from checks.runner import check_function
from scipy.optimize import rosen, rosen_der, rosen_hess
x = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
np.testing.assert_allclose(ad.grad(rosen)(x), rosen_der(x), rtol=1e-12)
np.testing.assert_allclose(ad.hessian(rosen)(x), rosen_hess(x), rtol=1e-12)
rows = check_function(rosen, x)
print(json.dumps([(r.surface, r.status, r.message or r.reason) for r in rows]))
"""


def run(*command, **variables):
    env = {k: v for k, v in os.environ.items() if k != "SCIPY_ARRAY_API"} | variables
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=ROOT, env=env, text=True, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


def test_rosen_of_scipy_unchanged_on_every_surface():
    done = run("-c", ROSEN, SCIPY_ARRAY_API="1")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert [r for r in rows if r[1] != "pass"] == []
    assert {"reverse", "vmap", "f32"} <= {r[0] for r in rows}


def test_rosen_without_the_array_api_names_the_variable():
    done = run("-c", ROSEN)
    assert done.returncode != 0
    assert "SCIPY_ARRAY_API" in done.stderr


def test_newton_on_rosen_converges():
    done = run(str(EXAMPLES / "rosenbrock_scipy.py"), SCIPY_ARRAY_API="1")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 1e-20


# --- other roads to the same numbers -----------------------------------------------------------


def with_jax(name):
    """The example's module with jax.numpy for NumPy, jax.scipy for SciPy, lax.scan for scan."""
    import jax

    text = (EXAMPLES / f"{name}.py").read_text()
    text = text.replace("import numpy as np", "import jax.numpy as np")
    text = text.replace("from scipy.special", "from jax.scipy.special")
    text = text.replace("import autodiff as ad\n", "").replace("np.ndarray[Any, Any]", "Any")
    space = {"__name__": name, "ad": types.SimpleNamespace(scan=jax.lax.scan)}
    exec(compile(text, f"<{name} with jax>", "exec"), space)
    return space


@pytest.mark.parametrize(
    ("name", "function", "args", "count"),
    [
        ("adbench_gmm", "gmm_objective", gmm.arguments(), 4),
        ("adbench_bundle_adjustment", "bundle_adjustment", bundle.arguments(), 3),
        ("adbench_lstm", "lstm_objective", lstm.arguments(), 3),
        ("transformer_block", "transformer_block", transformer.arguments(), 2),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_gradients_agree_with_jax(name, function, args, count):
    """Cotangents of the first `count` arguments."""
    jax = pytest.importorskip("jax")
    ours, theirs = getattr(load(name), function), with_jax(name)[function]
    values, pullback = ad.vjp(ours, *args)
    rng = np.random.default_rng(7)
    cts = tree.map_leaves(lambda v: np.asarray(rng.normal(size=v.shape)), values)
    gradients = pullback(cts)

    @jax.jit
    def both(floats, ct):
        jax_values, jax_pullback = jax.vjp(lambda *v: theirs(*v, *args[count:]), *floats)
        return jax_values, jax_pullback(ct)

    with jax.enable_x64(True):
        expected_values, expected = both(args[:count], cts)
        compare(values, tree.map_leaves(np.asarray, expected_values))
        compare(list(gradients[:count]), tree.map_leaves(np.asarray, list(expected)))


def compare(got, expected):
    for a, b in zip(tree.flatten(got)[0], tree.flatten(expected)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_gmm_is_the_log_likelihood_of_a_mixture():
    alphas, means, icf, x = gmm.arguments(k=3, d=3, n=6)
    weights = np.exp(alphas) / np.sum(np.exp(alphas))
    q = np.exp(icf[:, :3])[:, :, None] * np.eye(3) + gmm.lower_triangles(icf[:, 3:], 3)
    density = sum(
        w * scipy.stats.multivariate_normal(m, np.linalg.inv(f.T @ f)).pdf(x)
        for w, m, f in zip(weights, means, q, strict=True)
    )
    prior = gmm.log_wishart_prior(icf[:, :3], icf[:, 3:], 1.0, 0)
    expected = np.sum(np.log(density)) + prior
    np.testing.assert_allclose(gmm.gmm_objective(alphas, means, icf, x), expected, rtol=1e-12)


def test_the_lower_triangle_is_filled_column_by_column():
    expected = [[0, 0, 0, 0], [1, 0, 0, 0], [2, 4, 0, 0], [3, 5, 6, 0]]
    got = gmm.lower_triangles(np.arange(1.0, 7.0)[None], 4)
    np.testing.assert_array_equal(got[0], expected)


def test_rotations_are_those_of_scipy():
    rng = np.random.default_rng(3)
    r, x = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    expected = scipy.spatial.transform.Rotation.from_rotvec(r).apply(x)
    np.testing.assert_allclose(bundle.rotate(r, x), expected, rtol=1e-13, atol=1e-14)


def test_the_gradient_at_the_zero_rotation_is_that_of_its_limit():
    x = np.array([[0.3, -1.2, 0.7]])
    with np.errstate(invalid="ignore"):  # 0 / 0 in the branch that is not chosen
        jacobian = ad.jacrev(lambda r: bundle.rotate(r, x))(np.zeros((1, 3)))
        forward = ad.jacfwd(lambda r: bundle.rotate(r, x))(np.zeros((1, 3)))
    cross = np.stack([np.cross(e, x[0]) for e in np.eye(3)], axis=1)
    np.testing.assert_array_equal(jacobian[0, :, 0], cross)
    np.testing.assert_array_equal(forward[0, :, 0], cross)


def test_attention_is_causal_and_unmasked_it_is_not():
    params, x = transformer.arguments()
    jacobian = ad.jacrev(lambda r: np.sum(transformer.transformer_block(params, r), 1))(x)
    depends = np.any(jacobian != 0, axis=2)
    np.testing.assert_array_equal(depends, np.tri(len(x), dtype=bool))


# --- mixed precision ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curves():
    wide, _ = mixed.train()
    narrow, params = mixed.train(BFLOAT16)
    return np.array(wide), np.array(narrow), params


# |bf16 - float32| over the float32 loss: 0.3% in the first 20 steps, 4.1% in all 80 as measured.
EARLY_BAND, BAND = 0.01, 0.1


def test_the_bfloat16_curve_stays_near_that_of_float32(curves):
    wide, narrow, params = curves
    off = np.abs(narrow - wide) / wide
    assert np.max(off[:20]) < EARLY_BAND
    assert np.max(off) < BAND
    assert 0 < off[0] < 1e-3  # bfloat16 was used, on the same weights
    assert {v.dtype for v in params.values()} == {np.dtype(np.float32)}


def test_training_learns(curves):
    wide, narrow, params = curves
    assert np.mean(wide[-5:]) < wide[0] / 4
    assert np.mean(narrow[-5:]) < narrow[0] / 4
    assert mixed.accuracy(params, *mixed.digits(500, seed=1)) > 0.75


def test_products_are_computed_in_bfloat16():
    program = ad.trace(lambda *a: mixed.loss(*a, BFLOAT16), *batch())
    products = [eq for eq in program.equations if eq.op.kind == "MATMUL"]
    assert len(products) == 2
    assert {v.spec.dtype for eq in products for v in eq.outputs} == {BFLOAT16}


# --- what a reader runs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("adbench_gmm", "log-likelihood"),
        ("adbench_bundle_adjustment", "reprojection errors"),
        ("adbench_lstm", "gradient with respect to extra"),
        ("transformer_block", "a row depends on later rows: False"),
    ],
)
def test_the_script_prints_its_result(name, line, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert line in capsys.readouterr().out
