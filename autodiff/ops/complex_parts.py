"""Complex numbers: their parts, conjugate, construction and argument.

Transposes pair without conjugation, Re sum(u v): the cotangent of z for y = Re z is ct + 0i, for
y = Im z it is -i ct.
"""

from typing import Any

import numpy as np

from autodiff.errors import ShapeError
from autodiff.families import batch_broadcasting, broadcast_shapes, fit, promote, unary, unbroadcast
from autodiff.kernels import elementwise as kernels
from autodiff.op import Op, define
from autodiff.ops.elementwise import where
from autodiff.program import Spec
from autodiff.reverse import Undefined
from autodiff.trace import bind

__all__ = ["angle", "complex", "conj", "imag", "real"]


def _real_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    return (bind("CAST", ct, dtype=inputs[0].dtype),)


def _imag_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    del inputs
    return (bind("COMPLEX", np.zeros((), ct.dtype), -ct),)


_real = unary(
    "REAL",
    np.real,
    tangent=lambda t, x, y: bind("REAL", t),
    transpose=_real_transpose,
    kinds="c",
    out="real",
    template="{0}.real",
)
_imag = unary(
    "IMAG",
    np.imag,
    tangent=lambda t, x, y: bind("IMAG", t),
    transpose=_imag_transpose,
    kinds="c",
    out="real",
    template="{0}.imag",
)
_conj = unary(
    "CONJ",
    np.conjugate,
    tangent=lambda t, x, y: bind("CONJ", t),
    transpose=lambda ct, inputs: (bind("CONJ", ct),),
    kinds="c",
    jax="jnp.conjugate",
)


def real(z: Any) -> Any:
    """Real part; a real z is returned as it is."""
    (z,) = promote(z)
    return _real(z) if z.dtype.kind == "c" else z


def imag(z: Any) -> Any:
    """Imaginary part, zeros for a real z."""
    (z,) = promote(z)
    return _imag(z) if z.dtype.kind == "c" else np.zeros(np.shape(z), z.dtype)


def conj(z: Any) -> Any:
    """Complex conjugate; a real z is returned as it is."""
    (z,) = promote(z)
    return _conj(z) if z.dtype.kind == "c" else z


# --- COMPLEX ---------------------------------------------------------------------------------


def _complex_spec(x: Spec, y: Spec) -> Spec:
    shape = broadcast_shapes("COMPLEX", x, y)
    if x.dtype != y.dtype or x.dtype not in (np.float32, np.float64):
        raise ShapeError(
            f"COMPLEX is not defined for {x.dtype.name} and {y.dtype.name}",
            f"in op COMPLEX, operands {x} and {y}",
            "convert both parts to float32 or float64 with astype",
        )
    return Spec(shape, np.dtype(np.complex64 if x.dtype == np.float32 else np.complex128))


def _complex_jvp(primals: Any, tangents: Any, z: Any) -> Any:
    zero = np.zeros((), primals[0].dtype)
    parts = (zero if t is None else t for t in tangents)
    return fit(bind("COMPLEX", *parts), np.shape(z))


def _complex_transpose(ct: Any, inputs: Any) -> tuple[Any, ...]:
    x, y = inputs
    left = unbroadcast(bind("REAL", ct), x.shape) if isinstance(x, Undefined) else None
    right = unbroadcast(-bind("IMAG", ct), y.shape) if isinstance(y, Undefined) else None
    return left, right


define(
    Op(
        "COMPLEX",
        _complex_spec,
        impl=kernels.make_complex,
        jvp=_complex_jvp,
        transpose=_complex_transpose,
        batch=batch_broadcasting("COMPLEX"),
        elementwise=True,
        jax="rules:make_complex",
        doc="x + iy.",
    )
)


def complex(x: Any, y: Any) -> Any:
    """x + iy of two real arrays, which broadcast; infinite parts do not mix."""
    return bind("COMPLEX", *promote(x, y, inexact=True))


# --- argument --------------------------------------------------------------------------------

_angle = unary(
    "ANGLE",
    body=lambda z: bind("ATAN2", bind("IMAG", z), bind("REAL", z)),
    kinds="c",
    out="real",
    doc="The argument of a complex number.",
)


def angle(z: Any) -> Any:
    """The argument of z in (-pi, pi], radians; a real z gives 0 or pi.

    The derivative at z = 0 is taken as 0.
    """
    (z,) = promote(z, inexact=True)
    if z.dtype.kind == "c":
        return _angle(z)
    return where(z != z, z, where(z < 0, np.asarray(np.pi, z.dtype), np.zeros((), z.dtype)))
