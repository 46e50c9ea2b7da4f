"""`gradsweep doctor`: what is installed, what is missing, what stands in the way."""

import importlib.metadata
import importlib.util
import os

from rich.table import Table
from rich.text import Text

from checks.report.terminal import BAD, GOOD, NEAR, QUIET, console

OPTIONAL = (
    ("jax", "jax", "the emit and device surfaces"),
    ("flint", "exact", "exact arithmetic by Arb (mpmath serves without it, slower)"),
    ("jinja2", "report", "the HTML page"),
    ("torch", "torch", "gradient checks of PyTorch functions, and capture by attach"),
    ("safetensors", "dumps", "tensor dumps in safetensors files"),
)
DISTRIBUTIONS = {"flint": "python-flint"}
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "XLA_FLAGS", "SCIPY_ARRAY_API")
# Shown where they are set; ARCHITECTURE.md says what they do.
OWN = ("GRADSWEEP_CACHE", "GRADSWEEP_FRESH", "GRADSWEEP_XLA", "GRADSWEEP_STRICT_TOLERANCES")


def report() -> int:
    """Print the state of the installation; 1 where something is in the way, else 0."""
    out = console()
    table = Table(box=None, pad_edge=False, header_style=QUIET)
    for title in ("part", "state", "what it is for"):
        table.add_column(title)
    for module, extra, use in OPTIONAL:
        table.add_row(module, *_state(module, extra), use)
    out.print(table)
    out.print(plugin())
    problem = clashes()
    for name in (*VARIABLES, *(n for n in OWN if n in os.environ)):
        out.print(Text(f"{name}={os.environ.get(name, '(not set)')}"))
    if importlib.util.find_spec("jax") is not None:
        from checks.devices import doctor_lines

        for line in doctor_lines():
            out.print(Text(line))
    for line in problem:
        out.print(Text(line, style=BAD))
    out.print(Text("imports: ok", style=GOOD) if not problem else Text("imports: in the way"))
    return 1 if problem else 0


def _state(module: str, extra: str) -> tuple[Text]:
    if importlib.util.find_spec(module) is None:
        return (Text(f'absent (optional): pip install "gradsweep[{extra}]"', style=QUIET),)
    version = importlib.metadata.version(DISTRIBUTIONS.get(module, module))
    return (Text(version, style=GOOD),)


def plugin() -> Text:
    """Whether pytest finds the plugin by itself: without it decorated functions are no tests."""
    if importlib.metadata.entry_points(group="pytest11", name="gradsweep"):
        return Text("pytest plugin: registered")
    return Text(
        "pytest plugin: not registered, decorated functions are not collected: "
        "pytest -p checks.plugin, or install gradsweep",
        style=NEAR,
    )


def clashes() -> list[str]:
    """Messages about packages of the same import names installed elsewhere."""
    from autodiff._guard import PackageClash, check_imports

    try:
        check_imports()
    except PackageClash as error:
        return str(error).splitlines()
    return []
