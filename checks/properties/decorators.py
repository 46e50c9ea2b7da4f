"""`@gradient_check` and `@vmap_check`: a function's derivatives and its batches as test items."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, overload

from checks.properties.arguments import PropertyError, label, where_is
from checks.properties.record import GradientProperty

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]
Arguments = Sequence[Any] | Mapping[str, Any]


@overload
def gradient_check(function: F, /) -> F: ...


@overload
def gradient_check(
    function: None = None,
    /,
    *,
    args: Arguments = (),
    order: int = 1,
    modes: str | Sequence[str] = ("reverse", "forward"),
    surfaces: str | Sequence[str] | None = None,
    framework: str | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    jac: Callable[..., Any] | None = None,
    argnums: int | str | Sequence[int | str] | None = None,
    symmetric: int | str | Sequence[int | str] = (),
    tolerance: float | None = None,
    allow: str | Collection[str] = (),
    full: bool | None = None,
    seed: int | None = None,
    examples: int | None = None,
) -> Callable[[F], F]: ...


def gradient_check(
    function: Any = None,
    /,
    *,
    args: Arguments = (),
    order: int = 1,
    modes: str | Sequence[str] = ("reverse", "forward"),
    surfaces: str | Sequence[str] | None = None,
    framework: str | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    jac: Callable[..., Any] | None = None,
    argnums: int | str | Sequence[int | str] | None = None,
    symmetric: int | str | Sequence[int | str] = (),
    tolerance: float | None = None,
    allow: str | Collection[str] = (),
    full: bool | None = None,
    seed: int | None = None,
    examples: int | None = None,
) -> Any:
    """Check a function's derivatives: one pytest item a surface, `my_loss[reverse]`, ....

    The function stays callable as it was, and gains `check()`, which returns a GradientReport.

    Args:
        function: only in the bare form `@gradient_check`, whose arguments are fixtures, parameters,
            defaults or drawn by `@given`.
        args: arguments by position (a tuple) or by name (a dict): arrays in any containers, domains
            such as `normal(3, 4)` (drawn from the test's name), or Hypothesis strategies.
        order: 1, 2 or 3: `second` and `third` become items.
        modes: "reverse", "forward" or both.
        surfaces: only these; by default `reverse`, `forward`, those of `order`, `vmap`, and for
            NumPy functions the surfaces of the sweep (`f32`, `execute`, `device_f32`, ...).
        framework: "numpy", "jax" or "torch"; found from the arguments or the function's code.
        vjp, jvp, gradient, jac: hand-written derivatives, as `check_gradients` takes them.
        argnums, symmetric: arguments by place or name: to differentiate; symmetric matrices.
        tolerance, allow, full, seed: as `check_gradients` takes them.
        examples: how many examples Hypothesis draws for strategies in `args`.

    Returns:
        The function.

    Raises:
        PropertyError: options that contradict themselves or the function.
    """
    if function is not None and not callable(function):
        raise PropertyError(
            f"gradient_check takes its arguments by name, not {function!r:.60}",
            "in @gradient_check(...)",
            "write @gradient_check(args=(normal(3, 4),))",
        )
    hand = {"vjp": vjp, "jvp": jvp, "gradient": gradient, "jac": jac}

    def decorate(target: F) -> F:
        __tracebackhide__ = True
        return _attach(
            target,
            lambda: GradientProperty(
                function=target,
                args=_arguments(target, args, "gradient_check"),
                order=order,
                modes=_words(modes, "modes", target, "reverse"),
                surfaces=None
                if surfaces is None
                else _words(surfaces, "surfaces", target, "reverse"),
                framework=framework,
                derivatives={k: v for k, v in hand.items() if v is not None},
                argnums=None if argnums is None else _places(argnums),
                symmetric=_places(symmetric),
                tolerance=tolerance,
                allow=_words(allow, "allow", target, "kinks"),
                full=full,
                seed=seed,
                examples=examples,
            ),
        )

    return decorate if function is None else decorate(function)


def vmap_check(
    function: Any = None,
    /,
    *,
    args: Arguments = (),
    in_axes: Any = None,
    out_axes: int | Sequence[int] = (0, -1),
    batch_sizes: Sequence[int] = (0, 1, 3),
    gradients: bool | None = None,
    surfaces: str | Sequence[str] | None = None,
    framework: str | None = None,
    seed: int | None = None,
    examples: int | None = None,
) -> Any:
    """Hold vmap of a function against a loop over distinct rows: `my_loss[vmap_loop]`, ....

    The function stays callable as it was, and gains `check()`, which returns a VmapReport.

    Args:
        function: only in the bare form `@vmap_check`.
        args: of one example, as `gradient_check` takes them; rows are made of it.
        in_axes: one axis (or None) for each array argument; every combination of None, 0 and -1
            by default.
        out_axes: the axes at which results are batched.
        batch_sizes: of the batches.
        gradients: also vmap of the gradient and the gradient of vmap; by default where an
            argument has one.
        surfaces: some of "vmap_loop", "vmap_sizes", "vmap_out_axes", "vmap_gradients",
            "vmap_nested".
        framework, seed, examples: as in `gradient_check`.

    Raises:
        PropertyError: options that contradict themselves or the function.
    """
    from checks.properties.vmapped import VmapProperty

    if function is not None and not callable(function):
        raise PropertyError(
            f"vmap_check takes its arguments by name, not {function!r:.60}",
            "in @vmap_check(...)",
            "write @vmap_check(args=(normal(3, 4),))",
        )

    def decorate(target: F) -> F:
        __tracebackhide__ = True
        return _attach(
            target,
            lambda: VmapProperty(
                function=target,
                args=_arguments(target, args, "vmap_check"),
                in_axes=in_axes,
                out_axes=(out_axes,) if isinstance(out_axes, int) else tuple(out_axes),
                batch_sizes=tuple(batch_sizes),
                gradients=gradients,
                surfaces=None
                if surfaces is None
                else _words(surfaces, "surfaces", target, "vmap_loop"),
                framework=framework,
                seed=seed,
                examples=examples,
            ),
        )

    return decorate if function is None else decorate(function)


def _words(words: str | Collection[str], option: str, function: Any, word: str) -> tuple[str, ...]:
    if isinstance(words, str):
        return (words,)
    if isinstance(words, Collection):
        return tuple(words)
    raise PropertyError(
        f"{option}={words!r:.60} of {label(function)} is neither a word nor several",
        where_is(function),
        f"write {option}=({word!r},), or leave it out",
    )


def _places(places: int | str | Sequence[int | str]) -> tuple[int | str, ...]:
    return (places,) if isinstance(places, int | str) else tuple(places)


def _arguments(function: Any, args: Any, decorator: str) -> Arguments:
    from checks.properties.arguments import by_name

    if not callable(function):
        raise PropertyError(
            f"{decorator} stands on a function, not {function!r:.60}",
            f"in @{decorator}(...)",
            "put it directly above a def",
        )
    if isinstance(args, str | bytes) or not isinstance(args, Mapping | tuple | list):
        raise PropertyError(
            f"{decorator} of {label(function)}: args={args!r:.60} is no tuple or dict",
            where_is(function),
            "write args=(normal(3, 4),), with the comma",
        )
    by_name(function, args)  # refuses names and counts the function does not take
    return args


def _attach(function: F, make: Callable[[], Any]) -> F:
    """Add a property to a function; where it takes no attributes, to a wrapper of it.

    A mistake is shown at the decorator: the frames from there to its discovery tell nothing.
    """
    __tracebackhide__ = True
    try:
        prop = make()
    except PropertyError as error:
        raise error.with_traceback(None) from None
    properties = (*getattr(function, "gradsweep", ()), prop)
    target: Any = function
    try:
        target.gradsweep = properties
    except AttributeError:
        target = _wrapper(function)
        target.gradsweep = properties
    target.check = functools.partial(_check, target)
    return target  # type: ignore[no-any-return]


def _wrapper(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _check(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Check outside of pytest: the report of each property, bare where there is one.

    `args` and `kwargs` stand over those of the decorator.
    """
    from checks.properties.arguments import by_name
    from checks.properties.run import whole

    settings = {**by_name(function, args), **kwargs}
    reports = []
    for prop in function.gradsweep:
        own = prop.given(settings)
        reports.append(whole(own, function, name=label(function), settings={}))
    return reports[0] if len(reports) == 1 else tuple(reports)
