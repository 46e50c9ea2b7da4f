"""Values inside programs, by name, into every open dump: `ad.tap`, and `jax_tap` for JAX.

    @gates.jax_jit
    def block(x):
        h = gates.jax_tap("enc.block.0.norm", norm(x))
        ...

    with gates.Dump("dump/candidate", side="candidate") as d:
        block(x)

Calls are numbered as values arrive: a tap in a scan is a call per step; under vmap it is one call
with the mapped axis first; under vmap both branches of a cond run, so both tap. A backward pass
that recomputes (of a scan, or a checkpoint) taps again.
"""

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from autodiff import taps
from autodiff.optional import require
from checks.gates.capture.run import caller
from checks.gates.formats.manifest import check_words

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump

_open: list["Dump"] = []  # of the whole process: JAX calls back on threads of its own
_muted: contextvars.ContextVar[bool] = contextvars.ContextVar("muted", default=False)


@contextlib.contextmanager
def listening(opened: "Dump") -> Iterator[None]:
    """Put what is tapped inside into a dump.

    `ad.tap` reaches it from this thread (context), `jax_tap` from any.
    """
    seen: list[tuple[str, Any]] = []

    def sink(name: str, value: np.ndarray[Any, Any]) -> None:
        seen.clear()  # the value goes to disk: memory stays bounded
        opened.put(name, value)

    with contextlib.ExitStack() as stack:
        seen = stack.enter_context(taps.collect(sink))
        stack.enter_context(_traced_anew())
        _open.append(opened)
        try:
            yield
        finally:
            jax = sys.modules.get("jax")
            try:
                if jax is not None:
                    jax.effects_barrier()  # callbacks of computations still running
            finally:
                _open.remove(opened)


def _traced_anew() -> Any:
    """Keep JAX from reusing functions that were compiled outside, without their taps.

    Metadata entries are part of the keys of JAX's caches.
    """
    if "jax" not in sys.modules:
        return contextlib.nullcontext()
    from jax.experimental.xla_metadata import set_xla_metadata

    return set_xla_metadata(gradsweep_dump="open")


def _traced_as_outside() -> Any:
    from jax.experimental.xla_metadata import set_xla_metadata

    return set_xla_metadata(gradsweep_dump=None)


def jax_tap(name: str, x: Any) -> Any:
    """The identity on a JAX array, which shows its value to every open dump.

    It may stand under jit, vmap, grad, jvp, scan, while_loop, cond and checkpoint. With no dump
    open it leaves nothing in a compiled function; a function that `jax.jit` compiled before is
    traced anew inside a dump. One compiled ahead of time (`.lower(...).compile()`) is not.

    XLA fuses otherwise around a value that leaves the device, which may change the last bits of
    what is computed from it (an optimization barrier does not help: it is gone before XLA fuses on
    CPUs). Where the result must be the same bit for bit, compile with `jax_jit`.

    Arguments: dotted name of the tensor; the array. Returns the array.

    Raises:
        GateError: the name is no name.
        MissingPackageError: JAX is not installed.
    """
    require("jax", "jax", "gates.jax_tap")
    check_words(name)
    if not _open or _muted.get():
        return x
    return _identity(name, caller())(x)


def jax_jit(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` for a function with `jax_tap`s, whose result a dump cannot change by a bit.

    While a dump is open the function runs twice: once with its taps, for the dump, and once as it
    is compiled outside of dumps, for the result. Inside another traced function it is `jax.jit`.

    Arguments: the function; the options of `jax.jit`. Returns the compiled function.
    Raises MissingPackageError where JAX is not installed.
    """
    jax = require("jax", "jax", "gates.jax_jit")

    @functools.wraps(f)
    def without(*args: Any, **kwargs: Any) -> Any:
        token = _muted.set(True)
        try:
            return f(*args, **kwargs)
        finally:
            _muted.reset(token)

    kept = {k: v for k, v in options.items() if not k.startswith("donate_")}  # used once more
    tapped, plain = jax.jit(f, **kept), jax.jit(without, **options)

    @functools.wraps(f)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return tapped(*args, **kwargs)
        if _open:
            tapped(*args, **kwargs)
        with _traced_as_outside():
            return plain(*args, **kwargs)

    return compiled


@functools.lru_cache(maxsize=4096)
def _identity(name: str, source: str) -> Callable[[Any], Any]:
    """The tap: its vmap shows the whole batch, its derivative is that of the identity."""
    import jax

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def shown(x: Any) -> Any:
        # in the order of the program: without it XLA may call back in any
        jax.debug.callback(functools.partial(_emit, name, source), x, ordered=True)
        return x

    @shown.def_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def _(size: int, batched: Any, x: Any) -> Any:
        del size, batched
        return shown(x), True

    @jax.custom_jvp  # type: ignore[untyped-decorator, unused-ignore]
    def tap(x: Any) -> Any:
        return shown(x)

    @tap.defjvp  # type: ignore[untyped-decorator, unused-ignore]
    def _(primals: Any, tangents: Any) -> Any:
        return tap(primals[0]), tangents[0]

    return tap  # type: ignore[no-any-return, unused-ignore]


def _emit(name: str, source: str, value: Any) -> None:
    for opened in tuple(_open):
        try:
            opened.put(name, np.asarray(value), source=source)
        except Exception as error:  # JAX would only log it: it is raised when the dump closes
            opened.keep_error(error)
