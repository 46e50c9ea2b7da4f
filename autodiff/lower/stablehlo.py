"""StableHLO text: written by JAX from a program, verified, interpreted, and compiled."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autodiff.lower import mlir
from autodiff.lower.child import CHILD, ChildError
from autodiff.lower.jax import flat_function, input_dtypes, needs_x64
from autodiff.lower.mlir import StableHLOError, UnsupportedError, element_types
from autodiff.optional import require
from autodiff.program import Program

__all__ = [
    "INTERPRETED",
    "StableHLOError",
    "UnsupportedError",
    "compile_stablehlo",
    "element_types",
    "eval_stablehlo",
    "lower_stablehlo",
    "verify_stablehlo",
]

Array = np.ndarray[Any, Any]

# What the reference interpreter runs (openxla/stablehlo, reference/Ops.cpp). Any other op aborts
# the process (openxla/stablehlo issue 2654), and so do some with complex operands.
INTERPRETED = frozenset(
    "stablehlo." + name
    for name in (
        "abs add and atan2 bitcast_convert broadcast_in_dim case cbrt ceil clamp compare complex "
        "composite concatenate constant convert convolution cosine count_leading_zeros divide "
        "dot_general dynamic_broadcast_in_dim dynamic_gather dynamic_iota dynamic_pad "
        "dynamic_reshape dynamic_slice dynamic_update_slice exponential exponential_minus_one fft "
        "floor gather get_dimension_size get_tuple_element if imag iota is_finite log "
        "log_plus_one logistic map maximum minimum multiply negate not optimization_barrier or "
        "pad popcnt power real reduce reduce_precision reduce_window remainder reshape return "
        "reverse round_nearest_afz round_nearest_even rsqrt scatter select select_and_scatter "
        "shift_left shift_right_arithmetic shift_right_logical sign sine slice sort sqrt subtract "
        "tan tanh transpose triangular_solve tuple while xor"
    ).split()
) | {"builtin.module", "func.func", "func.return", "func.call"}


def lower_stablehlo(
    program: Program, *, precision: str | None = None, portable: bool = False
) -> str:
    """The StableHLO module of a program, as JAX lowers it for the CPU.

    `@main` takes the program's flat inputs, unused ones too, and returns its flat outputs. GUARD
    equations are left out: a text cannot raise.

    Args:
        program: a program without captures.
        precision, portable: as `autodiff.lower_jax`.

    Returns:
        The module's text. Constants are exact.

    Raises:
        MissingPackageError: JAX is not installed.
        LoweringError: the program has captures, or an op has no lowering.
    """
    jax = require("jax", "jax", "autodiff.lower_stablehlo")
    flat = flat_function(program, portable=portable, precision=precision)

    def main(*arrays: Any) -> tuple[Any, ...]:
        return flat(*arrays)[0]

    main.__name__ = main.__qualname__ = flat.__name__
    wide = needs_x64(program, precision) or jax.config.jax_enable_x64
    dtypes = input_dtypes(program, precision)
    with jax.enable_x64(wide):
        structs = [
            jax.ShapeDtypeStruct(s.shape, d) for s, d in zip(program.in_specs, dtypes, strict=True)
        ]
        lowered = jax.jit(main, keep_unused=True).trace(*structs).lower(lowering_platforms=("cpu",))
        return str(lowered.as_text())


def verify_stablehlo(text: str) -> None:
    """Parse and verify a StableHLO module.

    Raises:
        MissingPackageError: jaxlib is not installed.
        StableHLOError: the text is not valid; the message says where, as `line:column`.
    """
    mlir.parse(text)


def eval_stablehlo(
    text: str, args: Sequence[Any], *, isolated: bool | None = None, timeout: float = 120.0
) -> list[Array]:
    """Run a module's `@main` by jaxlib's reference interpreter, which compiles nothing.

    It keeps subnormal numbers and computes each op on its own: an independent judge. Operations
    of the chlo dialect are rewritten in StableHLO first. bfloat16, 8-bit and complex results,
    which the bindings cannot read, are converted inside the module and put together again.

    Args:
        text: the module.
        args: arrays of the shapes and dtypes of `@main`'s arguments.
        isolated: run in a child process, which an unsupported op or type ends; by default where
            the module holds an op outside `INTERPRETED`, or a complex or 8-bit type.
        timeout: seconds allowed in the child process.

    Returns:
        One array per result.

    Raises:
        StableHLOError: the text is not valid.
        ShapeError: the arguments do not fit.
        UnsupportedError: the interpreter lacks an op or a type; carries `ops` and `reason`.
    """
    module = mlir.parse(text)
    mlir.legalize(module)
    mlir.check_arguments(module, arrays := [np.asarray(a) for a in args])
    unknown = tuple(sorted(mlir.op_names(module) - INTERPRETED))
    if isolated is None:
        isolated = bool(unknown) or "complex<" in text or "xf8" in text or "tensor<f8" in text
    if doomed := _doomed(unknown, text):
        raise _unsupported(unknown or ("stablehlo.fft",), doomed)
    if not isolated:
        return mlir.run_interpreter(text, arrays)
    try:
        return CHILD.run(text, arrays, timeout)
    except ChildError as error:
        raise _unsupported(unknown, str(error)) from None


def _doomed(unknown: Sequence[str], text: str) -> str | None:
    """Why a child process is not even tried, for what is known to end it."""
    if "stablehlo.custom_call" in unknown:
        targets = sorted(set(re.findall(r"custom_call @(\w+)", text)))
        return f"it calls {', '.join(targets)}, which is a library's code"
    if "stablehlo.fft" in text and "complex<f32>" in text:
        return "its Fourier transform takes float64 alone"
    return None


def _unsupported(ops: tuple[str, ...], reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"the StableHLO reference interpreter does not run {', '.join(ops) or 'this module'}",
        reason,
        "compile_stablehlo(text) runs it on the CPU client",
        ops=ops,
        reason=reason,
    )


def compile_stablehlo(
    text: str, strict_precision: bool = False, options: dict[str, str] | None = None
) -> Callable[..., tuple[Array, ...]]:
    """Compile a module on JAX's default device.

    Args:
        text: the module.
        strict_precision: forbid results more precise than the types say
            (`xla_allow_excess_precision=false`), which keeps f32 -> bf16 -> f32 conversions.
        options: further XLA options, by name.

    Returns:
        A function of arrays, one per argument of `@main`, which returns NumPy arrays.

    Raises:
        StableHLOError: the text is not valid.
    """
    jax = require("jax", "jax", "compile_stablehlo")
    from jax.extend import backend

    verify_stablehlo(text)
    overrides = dict(options or {})
    if strict_precision:
        overrides["xla_allow_excess_precision"] = "False"
    client = backend.get_backend()
    compile_options = backend.get_compile_options(1, 1, env_options_overrides=overrides)
    executable = client.compile_and_load(text, jax.devices()[:1], compile_options)

    def run(*args: Any) -> tuple[Array, ...]:
        with jax.enable_x64(True):
            given = [jax.device_put(np.asarray(a)) for a in args]
            results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
            return tuple(np.asarray(r[0]) for r in results)

    return run
