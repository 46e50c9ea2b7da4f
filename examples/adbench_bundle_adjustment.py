"""ADBench's bundle adjustment: reprojection residuals of a pinhole camera, in plain NumPy.

A camera is 11 numbers: rotation vector r (3), centre c (3), focal length f, principal point (2) and
radial distortion k1, k2. A point X is seen at

    u = f (1 + k1 s + k2 s^2) p + principal point,   s = |p|^2,   p = Y_xy / Y_z,   Y = R(r) (X - c)

and the residuals of an observation are w (u - feature) and 1 - w^2.

Reference: F. Srajer, Z. Kukelova, A. Fitzgibbon, "A benchmark of selected algorithmic
differentiation tools on some problems in computer vision and machine learning", 2018, section 4.2.
"""

from typing import Any

import numpy as np

import autodiff as ad

Array = np.ndarray[Any, Any]


def rotate(r: Any, x: Any) -> Any:
    """Rodrigues' formula: rows of x (p, 3) turned by the rotation vectors r (p, 3).

    At r = 0 it is x + r x x, whose first derivative is right; the branch with 0 / 0 is not chosen
    there, and adds nothing to the derivative.
    """
    square = np.sum(r * r, axis=-1, keepdims=True)
    angle = np.sqrt(square)
    axis = r / angle
    along = np.sum(axis * x, axis=-1, keepdims=True)
    turned = (
        x * np.cos(angle)
        + np.cross(axis, x) * np.sin(angle)
        + axis * (along * (1.0 - np.cos(angle)))
    )
    return np.where(square > 0.0, turned, x + np.cross(r, x))


def project(cameras: Any, points: Any) -> Any:
    """Image coordinates (p, 2) of points (p, 3), each seen by its own camera (p, 11)."""
    r, centre, focal, principal, k1, k2 = (
        cameras[:, span] for span in np.split(np.arange(11), [3, 6, 7, 9, 10])
    )
    seen = rotate(r, points - centre)
    plane = seen[:, :2] / seen[:, 2:]
    s = np.sum(plane * plane, axis=-1, keepdims=True)
    return focal * (1.0 + k1 * s + k2 * s * s) * plane + principal


def bundle_adjustment(
    cameras: Any, points: Any, weights: Any, features: Any, camera_of: Any, point_of: Any
) -> tuple[Any, Any]:
    """The residuals: reprojection errors (p, 2) and weight errors (p,).

    Arguments: cameras (n, 11), points (m, 3); for each of p observations its weight (p,), its
    feature (p, 2) and the indices of its camera and its point, integers (p,).
    """
    image = project(cameras[camera_of], points[point_of])
    return weights[:, None] * (image - features), 1.0 - weights**2


def arguments(
    n: int = 2, m: int = 3, p: int = 4
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """A random problem of n cameras, m points in front of them and p observations."""
    rng = np.random.default_rng(0)
    cameras = np.concatenate(
        [
            rng.normal(size=(n, 3)) * 0.3,
            rng.normal(size=(n, 3)) - [0.0, 0.0, 6.0],
            rng.uniform(1.0, 2.0, (n, 1)),
            rng.normal(size=(n, 4)) * 0.1,
        ],
        axis=1,
    )
    points = rng.normal(size=(m, 3))
    camera_of, point_of = np.arange(p) % n, np.arange(p) % m
    image = project(cameras[camera_of], points[point_of])
    features = image + 0.1 * rng.normal(size=(p, 2))
    return cameras, points, rng.uniform(0.5, 1.0, p), features, camera_of, point_of


if __name__ == "__main__":
    problem = arguments(n=4, m=20, p=60)
    errors, weight_errors = bundle_adjustment(*problem)
    print(f"reprojection errors {errors.shape}, rms {np.sqrt(np.mean(errors**2)):.6f}")
    jacobian = ad.jacfwd(lambda c: bundle_adjustment(c, *problem[1:])[0])(problem[0])
    filled = np.count_nonzero(jacobian) / jacobian.size
    print(f"Jacobian with respect to the cameras {jacobian.shape}, {filled:.0%} of it filled")
