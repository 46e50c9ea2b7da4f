"""jaxlib's MLIR bindings, which promise no stability, behind a few functions.

`CALLS` lists every name used of them; `missing_calls` says which an installed jaxlib lacks.
"""

import dataclasses
import functools
import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from autodiff.errors import AutodiffError, ShapeError
from autodiff.optional import require

Array = np.ndarray[Any, Any]
_IR = "jaxlib.mlir.ir"
_HLO = "jaxlib.mlir.dialects.stablehlo"
CALLS = (
    *(f"{_IR}.{n}" for n in ("Context", "DialectRegistry", "Location.unknown", "MLIRError")),
    *(f"{_IR}.{n}" for n in ("Module.parse", "InsertionPoint", "DenseElementsAttr.get")),
    *(f"{_IR}.{n}" for n in ("RankedTensorType", "ComplexType.get", "IntegerType.get_unsigned")),
    *(f"{_IR}.{n}" for n in ("BF16Type.get", "F32Type.get", "F64Type.get", "TypeAttr.get")),
    *(f"{_IR}.{n}" for n in ("FunctionType.get", "Float8E4M3FNType.get", "Float8E5M2Type.get")),
    f"{_IR}.WalkResult.ADVANCE",
    *(f"{_HLO}.{n}" for n in ("register_dialect", "register_stablehlo_passes", "eval_module")),
    *(f"{_HLO}.{n}" for n in ("real", "imag", "convert", "transpose")),
    "jaxlib.mlir.dialects.chlo.register_dialect",
    "jaxlib.mlir.dialects.sdy.register_dialect",
    "jaxlib.mlir.dialects.func.ReturnOp",
    "jaxlib.mlir.passmanager.PassManager.parse",
    "jaxlib.mlir._mlir_libs._jax_mlir_ext.register_dialects",
)


class MissingCallError(AutodiffError, ImportError):
    """The installed jaxlib lacks a call this package needs; carries `calls`."""

    def __init__(self, calls: Sequence[str]) -> None:
        self.calls = tuple(calls)
        import jaxlib

        super().__init__(
            f"jaxlib {jaxlib.__version__} has no {', '.join(calls)}",
            "in the StableHLO functions of autodiff.lower",
            "pip install 'jax==0.10.2' (the last version tried)",
            calls=self.calls,
        )


class StableHLOError(AutodiffError, ValueError):
    """A StableHLO text does not parse or verify; the message holds `line:column`."""


class UnsupportedError(AutodiffError):
    """The reference interpreter cannot run a module; carries the `ops` it stopped at."""


def _found(name: str) -> Any:
    """The object of a dotted name, or None."""
    path, start = name.split("."), 1
    value: Any = importlib.import_module(path[0])
    for part in path[start:]:
        if not hasattr(value, part):
            try:
                importlib.import_module(f"{value.__name__}.{part}")
            except (ImportError, AttributeError):
                return None
        value = getattr(value, part, None)
    return value


def missing_calls() -> tuple[str, ...]:
    """The names of `CALLS` that the installed jaxlib lacks."""
    require("jaxlib", "jax", "StableHLO text")
    return tuple(name for name in CALLS if _found(name) is None)


@functools.cache
def _api() -> tuple[Any, Any, Any]:
    """The modules `ir` and `stablehlo`, and a context that knows every dialect JAX emits."""
    missing = missing_calls()
    if missing:
        raise MissingCallError(missing)
    ir, stablehlo = _found(_IR), _found(_HLO)
    registry = ir.DialectRegistry()
    _found("jaxlib.mlir._mlir_libs._jax_mlir_ext.register_dialects")(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    for dialect in ("chlo", "sdy"):
        _found(f"jaxlib.mlir.dialects.{dialect}.register_dialect")(context)
    stablehlo.register_stablehlo_passes()
    return ir, stablehlo, context


def parse(text: str) -> Any:
    """A verified module; StableHLOError carries the parser's own diagnostics."""
    ir, _, context = _api()
    with context, ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise _invalid(text, str(error)) from None
    return verify(module)


def verify(module: Any) -> Any:
    """The module; StableHLOError carries the diagnostics of one that is not valid."""
    ir, _, _ = _api()
    with module.context, ir.Location.unknown():
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            raise _invalid(str(module), str(error)) from None
    return module


_DIAGNOSTIC = re.compile(r'(error|note): (?:"-":(\d+):(\d+): )?(.*)')


def _invalid(text: str, message: str) -> StableHLOError:
    """The error for MLIR diagnostics: the first one with its place and the line of text there."""
    found = [m.groups() for m in map(_DIAGNOSTIC.search, message.splitlines()) if m]
    kind, row, column, what = found[0] if found else ("error", None, None, message.strip())
    del kind
    line = text.splitlines()[int(row) - 1].strip()[:120] if row else ""
    notes = [f"{said} at {r}:{c}" for k, r, c, said in found[1:] if k == "note"]
    return StableHLOError(
        f"the StableHLO text is not valid: {what}",
        f"at {row}:{column}: `{line}`" if row else "in the module",
        "; ".join(notes) or "correct that line, or write the module with autodiff.lower_stablehlo",
        line=int(row) if row else None,
        column=int(column) if column else None,
        diagnostics=message,
    )


def op_names(module: Any) -> frozenset[str]:
    """Names of all operations in a module, `stablehlo.add` and the like."""
    ir, _, _ = _api()
    names: set[str] = set()

    def visit(op: Any) -> Any:
        names.add(op.name)
        return ir.WalkResult.ADVANCE

    getattr(module, "operation", module).walk(visit)
    return frozenset(names)


@dataclasses.dataclass(frozen=True)
class Function:
    """One function of a module, its chlo operations rewritten.

    Attributes:
        source: its text.
        called: the names of the functions it reaches, its own included.
        ops: names of the operations of all of these.
        types: floating element types of their tensors.
    """

    source: str
    called: tuple[str, ...]
    ops: frozenset[str]
    types: frozenset[str]


def functions(module: Any) -> dict[str, Function]:
    """The functions of a module by name; the module is verified, and its chlo operations are
    rewritten in place.

    Raises:
        StableHLOError: the module is not valid.
    """
    verify(module)
    legalize(module)
    # the module is printed once: printing its functions one by one takes ten times as long
    sources = ["  func.func " + s for s in _FUNCTION.split(str(module))[1:]]
    sources[-1:] = [s[: s.rindex("\n}")] + "\n" for s in sources[-1:]]
    own: dict[str, tuple[str, set[str], set[str], set[str]]] = {}
    for source in sources:
        called = {a or b for a, b in _CALLED.findall(source)}
        ops, types = set(_OP.findall(source)), set(element_types(source))
        own[_NAME.findall(source)[0]] = (source, ops, types, called)
    result = {}
    for name in own:
        reached, todo = {name}, [name]
        while todo:
            new = own[todo.pop()][3] & own.keys() - reached
            reached |= new
            todo += new
        result[name] = Function(
            own[name][0],
            tuple(sorted(reached)),
            frozenset(op for r in reached for op in own[r][1]),
            frozenset(kind for r in reached for kind in own[r][2]),
        )
    return result


def calling(found: Mapping[str, Function], names: Sequence[str]) -> str:
    """A module whose `@main` calls functions of another in turn, each on arguments of its own."""
    lines, taken, given, results, kinds = [], 0, [], [], []
    for number, name in enumerate(names):
        takes, gives = _signature(found[name].source)
        inputs = [f"%arg{taken + i}" for i in range(len(takes))]
        taken += len(takes)
        given += [f"{i}: {kind}" for i, kind in zip(inputs, takes, strict=True)]
        form = f"({', '.join(inputs)}) : ({', '.join(takes)}) -> ({', '.join(gives)})"
        target = f"%r{number}:{len(gives)} = " if gives else ""
        lines.append(f"    {target}func.call @{name}{form}")
        results += [f"%r{number}#{i}" for i in range(len(gives))]
        kinds += gives
    returned = f"    return {', '.join(results)} : {', '.join(kinds)}" if results else "    return"
    head = f"  func.func public @main({', '.join(given)}) -> ({', '.join(kinds)}) {{"
    needed = sorted({c for name in names for c in found[name].called})
    sources = "".join(found[n].source for n in needed)
    return "\n".join(["module @m {", head, *lines, returned, "  }", sources + "}"])


def result_count(function: Function) -> int:
    """How many results a function has."""
    return len(_signature(function.source)[1])


def _signature(source: str) -> tuple[list[str], list[str]]:
    """Types of a function's arguments and results, from the first line of its text."""
    line = source.partition("\n")[0].rpartition(" {")[0]
    takes, _, gives = line.partition(" -> ")
    return _TYPE.findall(takes), _TYPE.findall(gives)


_TYPE = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>")
_FUNCTION = re.compile(r"^  func\.func ", re.MULTILINE)
_NAME = re.compile(r"@([\w.$-]+)")
_OP = re.compile(r'(?:= |applies |^\s+)"?((?:stablehlo|chlo|mhlo)\.[a-z]\w*)', re.MULTILINE)
_CALLED = re.compile(r"\bcall @([\w.$-]+)|\bdecomposition = @([\w.$-]+)")
_TENSOR = re.compile(r"tensor<(?:[\d?]+x)*(?:complex<)?(\w+)")
_FLOAT = re.compile(r"(?:b?f|tf)\d+\w*")


def element_types(text: str) -> frozenset[str]:
    """The floating element types of a text's tensors: "f64", "f32", "f16", "bf16", "f8E4M3FN".

    Complex tensors count with the type of their parts.
    """
    return frozenset(name for name in _TENSOR.findall(text) if _FLOAT.fullmatch(name))


def legalize(module: Any) -> None:
    """Rewrite chlo operations (erf, lgamma, top_k, ...) in StableHLO ones, in place."""
    ir, _, _ = _api()
    manager = _found("jaxlib.mlir.passmanager.PassManager")
    with module.context, ir.Location.unknown():
        pipeline = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
        manager.parse(pipeline).run(module.operation)


def _main(module: Any) -> Any:
    for op in module.body.operations:
        if "sym_name" in op.attributes and str(op.attributes["sym_name"]) == '"main"':
            return op
    raise StableHLOError("the module has no function @main", "", "name the entry function main")


def split_results(module: Any) -> list[str]:
    """Append conversions of results that cannot be read back, in place.

    bfloat16 and 8-bit results become float32, complex ones their real and imaginary parts.
    Returns the element type of each result before.
    """
    ir, stablehlo, context = _api()
    main = _main(module)
    ending = list(main.entry_block.operations)[-1]
    kinds = [str(v.type.element_type) for v in ending.operands]
    with context, ir.Location.unknown(), ir.InsertionPoint(ending):
        values: list[Any] = []
        for value, kind in zip(ending.operands, kinds, strict=True):
            if kind.startswith("complex"):
                values += [stablehlo.real(value), stablehlo.imag(value)]
            elif kind == "bf16" or kind.startswith("f8"):
                wide = ir.RankedTensorType.get(value.type.shape, ir.F32Type.get())
                values.append(stablehlo.convert(wide, value))
            else:
                values.append(value)
        _found("jaxlib.mlir.dialects.func.ReturnOp")(values)
        ending.operation.erase()
        types = ir.FunctionType.get(main.type.inputs, [v.type for v in values])
        main.attributes["function_type"] = ir.TypeAttr.get(types)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
    return kinds


def _attribute(array: Array) -> Any:
    """An array as a dense attribute; call inside the context."""
    ir, _, _ = _api()
    array, name = np.ascontiguousarray(array).reshape(array.shape), array.dtype.name
    get, shape = ir.DenseElementsAttr.get, list(array.shape)
    if name in ("complex64", "complex128"):
        part = ir.F32Type if name == "complex64" else ir.F64Type
        return get(array, type=ir.ComplexType.get(part.get()), shape=shape)
    if array.dtype.kind == "u":
        return get(array, type=ir.IntegerType.get_unsigned(8 * array.itemsize), shape=shape)
    narrow = {"bfloat16": "BF16Type", "float8_e4m3fn": "Float8E4M3FNType"}
    narrow["float8_e5m2"] = "Float8E5M2Type"
    if name in narrow:
        bits = array.view(f"u{array.itemsize}")
        return get(bits, type=getattr(ir, narrow[name]).get(), shape=shape)
    return get(array)


def copy_scatter_operands(module: Any) -> None:
    """Give every scatter copies of its operands, in place.

    The reference interpreter of jaxlib 0.10 writes into them, and later readers of the same value
    would see the result instead. An identity transpose makes a copy there.
    """
    ir, stablehlo, context = _api()
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.scatter":
            found.append(op)
        return ir.WalkResult.ADVANCE

    getattr(module, "operation", module).walk(visit)
    for op in found:
        with context, ir.Location.unknown(), ir.InsertionPoint(op):
            for i in range(len(op.results)):
                value = op.operands[i]
                rank = len(value.type.shape)
                op.operands[i] = stablehlo.transpose(value, list(range(rank)))


def check_arguments(module: Any, args: Sequence[Array]) -> None:
    """Raise ShapeError where arrays do not have the types of `@main`'s arguments."""
    ir, _, context = _api()
    with context, ir.Location.unknown():
        found = [str(_attribute(a).type) for a in args]
    wanted = [str(t) for t in _main(module).type.inputs]
    if wanted != found:
        raise ShapeError(
            f"@main takes ({', '.join(wanted)})",
            f"got ({', '.join(found)})",
            "pass arrays of these shapes and dtypes, in this order",
        )


_READ = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}


def run_interpreter(text: str, args: Sequence[Array]) -> list[Array]:
    """Results of @main by the reference interpreter. An unsupported op aborts the process."""
    ir, stablehlo, context = _api()
    module = parse(text)
    legalize(module)
    copy_scatter_operands(module)
    kinds = split_results(module)
    with context, ir.Location.unknown():
        raw = stablehlo.eval_module(module, [_attribute(np.asarray(a)) for a in args])
        parts = iter([np.array(r) for r in raw])
    results = []
    for kind in kinds:
        value = next(parts)
        if kind.startswith("complex"):
            value = np.asarray(value + 1j * next(parts), np.result_type(value, np.complex64))
        elif kind in _READ:
            value = value.astype(np.dtype(getattr(ml_dtypes, _READ[kind])))
        results.append(value)
    return results
