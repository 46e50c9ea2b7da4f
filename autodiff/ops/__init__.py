"""A public function for every op, usable on arrays and traced values alike."""

from autodiff.ops.control import *
from autodiff.ops.elementwise import *
from autodiff.ops.indexing import *
from autodiff.ops.reduction import *
from autodiff.ops.shape import *
from autodiff.ops.custom import *
from autodiff.ops.loops import *
