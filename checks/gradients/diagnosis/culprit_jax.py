"""The first custom rule, or primitive, of a JAX function whose own derivative is wrong."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from checks.gradients.diagnosis.culprit import Culprit, described, failed_checks, titled
from checks.gradients.target import Target

CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin")
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
        for eqn, values in walk(closed.jaxpr, closed.consts, natives, 0):
            if (eqn.primitive.name in CUSTOM) != custom:
                continue
            seen += 1
            if spent() or (not custom and seen > PRIMITIVES):
                return None
            found = _checked(eqn, values, target, modes)
            if found is not None:
                return found
    return None


def walk(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], depth: int
) -> Iterator[tuple[Any, list[Any]]]:
    """Equations in order with the values they read, those of inner jaxprs included."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        values = [env[a] if not hasattr(a, "val") else a.val for a in eqn.invars]
        inner = inner_of(eqn, values) if depth < DEPTH else None
        if inner is not None:
            yield from walk(*inner, depth + 1)
        else:
            yield eqn, values
        outs = evaluate(eqn, values)
        env.update(zip(eqn.outvars, outs, strict=True))


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
    eqn: Any, values: Sequence[Any], target: Target, modes: Sequence[str]
) -> Culprit | None:
    """One equation held against differences of itself."""
    numpy = target.framework.numpy
    moving = [i for i, v in enumerate(values) if np.asarray(numpy(v)).dtype.kind in "fcV"]
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
    found = failed_checks(name, target.framework, apply, args, target, modes)
    return None if found is None else Culprit(titled(name, source_line(eqn)), found)


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
    import jax

    home = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    traceback = eqn.source_info.traceback
    for frame in () if traceback is None else traceback.frames:
        path = os.path.abspath(frame.file_name)
        if not path.startswith((home, ours)) and not frame.file_name.startswith("<frozen"):
            return described(path, frame.line_num, frame.function_name.split(".")[-1])
    return None
