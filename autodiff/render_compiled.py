"""The plan of a compiled function as a module that runs by itself."""

from autodiff.codegen import Source
from autodiff.kernel_source import definitions
from autodiff.kernels import memory, strong
from autodiff.program import Program
from autodiff.render import assemble, outer_function

GUARD = '''class GuardError(RuntimeError):
    """A Python branch decides otherwise than when it was traced."""'''
TAP = '''def tap(value, *, name):
    """The identity; inside the engine the value is shown to open sinks."""
    return np.array(value)'''


def module_text(program: Program, source: Source) -> str:
    """Docstring, imports, constants, kernels, workspace and functions."""
    found = {**definitions(memory)[0], **definitions(strong)[0]}
    texts = {n: d.text for n, d in found.items()}
    renewal = "\n\n\n".join(texts[n] for n in ("references", "ALONE", "renew"))
    helpers = (
        ("own(", texts["own"]),
        ("renew(", renewal),
        ("zeros_win(", texts["zeros_win"]),
        ("zeros_win_matmul(", texts["zeros_win_matmul"]),
        ("GuardError(", GUARD),
        ("tap(", TAP),
    )
    if "renew(" in source.body:
        source.scope.library.imports.add("import sys")
    name = source.name.removesuffix("_flat")
    doc = (
        f'"""{name}: the plan that autodiff.compile runs, on arrays of these shapes and dtypes."""'
    )
    outer = outer_function(program, name, source.name, "workspace()")
    parts = [text for mark, text in helpers if mark in source.body]
    return assemble(doc, source.scope, program, [*parts, *source.kernels(), source.body, outer])
