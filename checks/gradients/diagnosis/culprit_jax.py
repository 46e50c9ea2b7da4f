"""The first custom rule, or primitive, of a JAX function whose own derivative is wrong."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit import Culprit, described, failed_checks, ruled
from checks.gradients.target import Target

CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin")
LOOPS = ("cond", "scan", "while")
FLOAT = "fcV"
PRIMITIVES = 64
DEPTH = 8


def in_jaxpr(target: Target, modes: Sequence[str], spent: Callable[[], bool]) -> Culprit | None:
    """Walk a function's jaxpr with its actual values: custom rules first, primitives after."""
    import jax

    natives = target.native(target.points)
    try:
        closed = jax.make_jaxpr(lambda *arrays: target.flat(arrays))(*natives)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # Python looks at its values
        return None
    for custom in (True, False):
        seen = 0
        live = [True] * len(natives)
        for eqn, values, moved in walk(closed.jaxpr, closed.consts, natives, live):
            if (eqn.primitive.name in CUSTOM) != custom:
                continue
            seen += 1
            if spent() or (not custom and seen > PRIMITIVES):
                return None
            found = _checked(eqn, values, moved, target, modes)
            if found is not None:
                return found
    return None


def walk(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], live: Sequence[bool], depth: int = 0
) -> Iterator[tuple[Any, list[Any], list[bool]]]:
    """Equations in order with the values they read, those of inner jaxprs included; and which of
    these depend on the `live` arguments.
    """
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    moving = set(itertools.compress(jaxpr.invars, live))
    for eqn in jaxpr.eqns:
        values = [env[a] if not hasattr(a, "val") else a.val for a in eqn.invars]
        moved = [not hasattr(a, "val") and a in moving for a in eqn.invars]
        inner = inner_of(eqn, values) if depth < DEPTH else None
        if inner is not None:
            yield from walk(*inner, _inner_live(eqn, moved, len(inner[2])), depth + 1)
        else:
            yield eqn, values, moved
        outs = evaluate(eqn, values)
        env.update(zip(eqn.outvars, outs, strict=True))
        moving.update(eqn.outvars if any(moved) else ())


def _inner_live(eqn: Any, moved: list[bool], count: int) -> list[bool]:
    """Which arguments of an inner jaxpr may move: all of a loop's, whose carry depends on them."""
    if eqn.primitive.name in LOOPS:
        return [any(moved)] * count
    return moved[len(moved) - count :]


def evaluate(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """One equation at values, traced or concrete."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    subfuns, params = bound if isinstance(bound, tuple) else ((), bound)  # a pair before 0.10
    result = eqn.primitive.bind(*subfuns, *values, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


Inner = tuple[Any, Sequence[Any], list[Any]]


def inner_of(eqn: Any, values: Sequence[Any], customs: bool = False) -> Inner | None:
    """The jaxpr that an equation runs once on its own arguments; the first step of a loop. That of
    a custom rule only where `customs` is set.
    """
    name, params = eqn.primitive.name, eqn.params
    if name in CUSTOM and not customs:
        return None
    if name == "cond":
        branch = params["branches"][int(values[0])]
        return branch.jaxpr, branch.consts, list(values[1:])
    if name == "scan":
        body = params["jaxpr"]
        held = params["num_consts"] + params["num_carry"]
        if params["length"] < 1:
            return None
        first = params["length"] - 1 if params["reverse"] else 0
        return body.jaxpr, body.consts, [*values[:held], *(v[first] for v in values[held:])]
    if name == "while":
        skip, held = params["cond_nconsts"], params["body_nconsts"]
        body = params["body_jaxpr"]
        return (
            body.jaxpr,
            body.consts,
            list(values[skip : skip + held]) + list(values[skip + held :]),
        )
    inner = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
    if inner is None:
        return None
    if hasattr(inner, "consts"):
        return inner.jaxpr, inner.consts, list(values)
    return inner, (), list(values)


def _checked(
    eqn: Any,
    values: Sequence[Any],
    moved: Sequence[bool],
    target: Target,
    modes: Sequence[str],
) -> Culprit | None:
    """One equation held against differences of itself: only what was `moved` moves, of a constant
    a rule may give no derivative.
    """
    numpy = target.framework.numpy
    kinds = [np.asarray(numpy(v)).dtype.kind for v in values]
    moving = [
        i for i, (kind, m) in enumerate(zip(kinds, moved, strict=True)) if m and kind in FLOAT
    ]
    if not moving:
        return None

    def apply(*given: Any) -> list[Any]:
        full = list(values)
        for i, x in zip(moving, given, strict=True):
            full[i] = x
        return evaluate(eqn, full)

    name = _name(eqn)
    # constants may be NumPy's own: only the framework's arrays are differentiated
    like = target.originals[target.positions[0]]
    args = [target.framework.native(np.asarray(numpy(values[i])), like) for i in moving]
    found = failed_checks(
        name, target.framework, apply, args, target, modes, _operands(eqn, moving)
    )
    if found is None:
        return None
    return Culprit(ruled(name, _rule(eqn), source_line(eqn)), found)


def _operands(eqn: Any, moving: Sequence[int]) -> tuple[str, ...]:
    """What a custom rule's function calls the arguments that move, where JAX has kept it."""
    inner = eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr"))
    info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    names = getattr(info, "arg_names", None) if eqn.primitive.name in CUSTOM else None
    if not names or len(names) != len(eqn.invars) or not all(names):
        return ()
    return tuple(names[i] for i in moving)


def _rule(eqn: Any) -> str | None:
    """Where the hand-written rule of a custom equation is defined, in the user's own files."""
    rule = eqn.params.get("bwd", eqn.params.get("jvp_jaxpr_fun"))
    info = getattr(rule, "debug_info", None)
    path, line = getattr(info, "func_filename", None), getattr(info, "func_lineno", None)
    if not path or not line or _is_hidden(path):
        return None
    return described(path, line, str(getattr(info, "func_name", "")).split(".")[-1])


def _name(eqn: Any) -> str:
    """`custom_vjp of f` for a custom rule, else the primitive's name."""
    name = str(eqn.primitive.name)
    if name not in CUSTOM:
        return name
    kind = "custom_jvp" if "jvp" in name else "custom_vjp"
    inner = eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr"))
    info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    of = str(getattr(info, "func_name", "") or eqn.params.get("name", ""))
    return f"{kind} of {of}" if of else kind


def source_line(eqn: Any) -> str | None:
    """`file:line in function` of the user's line that an equation was recorded at."""
    traceback = eqn.source_info.traceback
    for frame in () if traceback is None else traceback.frames:
        if not _is_hidden(frame.file_name):
            path, function = os.path.abspath(frame.file_name), frame.function_name
            return described(path, frame.line_num, function.split(".")[-1])
    return None


def _is_hidden(path: str) -> bool:
    """Whether a file is JAX's, ours, or no file."""
    import jax

    home = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    return os.path.abspath(path).startswith((home, ours)) or path.startswith("<frozen")
