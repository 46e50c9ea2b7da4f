"""A public function for every op, usable on arrays and traced values alike."""

from typing import NoReturn

from autodiff.errors import UnknownNameError, nearest
from autodiff.ops.activation import *
from autodiff.ops.arrange import *
from autodiff.ops.attention import *
from autodiff.ops.bessel import *
from autodiff.ops.complex_parts import *
from autodiff.ops.conditional import *
from autodiff.ops.contraction import *
from autodiff.ops.control import *
from autodiff.ops.convolution import *
from autodiff.ops.cumulative import *
from autodiff.ops.custom_jvp import *
from autodiff.ops.custom_vjp import *
from autodiff.ops.decompositions import *
from autodiff.ops.determinant import *
from autodiff.ops.diagonals import *
from autodiff.ops.divergence import *
from autodiff.ops.dynamic import *
from autodiff.ops.elementwise import *
from autodiff.ops.extents import *
from autodiff.ops.extrema import *
from autodiff.ops.gather import *
from autodiff.ops.incomplete import *
from autodiff.ops.indexing import *
from autodiff.ops.layout import *
from autodiff.ops.linalg import *
from autodiff.ops.logic import *
from autodiff.ops.lookup import *
from autodiff.ops.loss import *
from autodiff.ops.matmul import *
from autodiff.ops.matrix_functions import *
from autodiff.ops.normalization import *
from autodiff.ops.pooling import *
from autodiff.ops.powers import *
from autodiff.ops.random import *
from autodiff.ops.recurrent import *
from autodiff.ops.reduction import *
from autodiff.ops.resize import *
from autodiff.ops.scan import *
from autodiff.ops.serving import *
from autodiff.ops.shape import *
from autodiff.ops.signal import *
from autodiff.ops.softmax import *
from autodiff.ops.sorting import *
from autodiff.ops.special import *
from autodiff.ops.spectra import *
from autodiff.ops.statistics import *
from autodiff.ops.strong import *
from autodiff.ops.transcendental import *
from autodiff.ops.transposed_convolution import *
from autodiff.ops.trigonometry import *
from autodiff.ops.while_loop import *


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise UnknownNameError(
        f"autodiff.ops has no function {name!r}",
        "in autodiff.ops",
        nearest(name, globals()) or "dir(autodiff.ops) lists all",
    )
