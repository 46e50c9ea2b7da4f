"""Outputs and gradients of PyTorch modules into a dump, by hooks that only read."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autodiff.errors import nearest
from autodiff.optional import require
from checks.gates.errors import GateError
from checks.gates.formats.manifest import check_words

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump

torch = require("torch", "torch", "the capture of a PyTorch module")

_PLACEHOLDER = re.compile(r"\{(\w+)\}|\*")
_ENDS = ("first", "mid", "last")


class Hooks:
    """Forward hooks on modules, and tensor hooks for gradients, of one dump."""

    def __init__(self, dump: "Dump") -> None:
        self._dump = dump
        self._handles: list[Any] = []
        self._models: list[Any] = []
        self._paths: dict[str, str] = {}  # module path by tensor name
        self._calls: dict[str, int] = {}
        self._grads = False
        self._waiting, self._arrived = 0, 0

    def attach(self, model: Any, points: Mapping[str, str], pick: str) -> None:
        """See `Dump.attach`; on an error nothing is hooked."""
        check_points(model, points, "attach")
        modules = dict(model.named_modules())
        found: list[tuple[str, str, str]] = []
        for name, pattern in points.items():
            path, _, inner = pattern.partition(":")
            chosen = picked(matched(name, path, list(modules)), pick)
            found += [(n, p, inner) for n, p in chosen]
        for n, p, _ in found:
            if n in self._paths or [m for m, _, _ in found].count(n) > 1:
                others = [self._paths[n]] if n in self._paths else []
                others += [q for m, q, _ in found if m == n and q != p]
                what = f"two modules are named {n!r}: {p!r} and {others[0] if others else p!r}"
                fix = 'say which is which with a placeholder: {"enc.{N}.out": "layers.*"}'
                raise GateError(what, "attach(points=...)", fix)
        for n, p, inner in found:
            self._paths[n] = p
            self._handles.append(modules[p].register_forward_hook(self._hook(n, p, inner)))
        self._models.append(model)
        if self._grads:
            self._hook_parameters(model)

    def grads(self) -> None:
        """See `Dump.grads`."""
        if not self._models:
            fix = 'd.attach(model, {"enc.block.{N}.out": "layers.*"}) first'
            raise GateError("no module is attached", "grads()", fix)
        if not self._grads:
            self._grads = True
            for model in self._models:
                self._hook_parameters(model)

    def remove(self) -> None:
        """Take every hook off again."""
        while self._handles:
            self._handles.pop().remove()

    def check(self) -> None:
        """Raise where an attached module was never called, or no gradient came."""
        idle = [n for n in self._paths if n not in self._calls]
        if idle:
            what = f"the module {self._paths[idle[0]]!r} ({idle[0]}) was attached but never called"
            fix = "run it inside the dump; was it compiled before? torch.compiler.reset() first"
            raise GateError(what, str(self._dump.folder), fix)
        if self._grads and not self._arrived:
            what = f"grads() was asked for, but none came: {self._waiting} outputs require one"
            fix = "call loss.backward() inside the dump, outside of torch.no_grad()"
            raise GateError(what, str(self._dump.folder), fix)

    def _hook(self, name: str, path: str, inner: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            del args
            tensor = reach(output, inner, f"output of {path!r} ({type(module).__name__})")
            source = f"{type(module).__name__} {path}".strip()
            call = self._calls.get(name, 0)
            self._dump.put(name, tensor, source=source, call=call)
            self._calls[name] = call + 1
            if self._grads and tensor.requires_grad:
                self._waiting += 1
                handle = tensor.register_hook(self._gradient(f"grad.{name}", source, call))
                self._handles.append(handle)

        return torch.compiler.disable(hook)  # a compiled model calls it as it is, and goes on

    def _hook_parameters(self, model: Any) -> None:
        for path, parameter in model.named_parameters():
            if parameter.requires_grad:
                source = f"{type(model).__name__} {path}"
                hook = self._gradient(f"grad.param.{path}", source, None)
                self._handles.append(parameter.register_hook(hook))

    def _gradient(self, name: str, source: str, call: int | None) -> Any:
        """A hook that dumps a gradient as the call that made its tensor: backward meets the calls
        of a module last to first.
        """

        def hook(gradient: Any) -> None:
            again = call is not None and self._dump.has(f"{name}#{call}" if call else name)
            self._dump.put(name, gradient, source=source, call=None if again else call)
            self._arrived += 1

        return hook


def check_points(model: Any, points: object, where: str) -> None:
    """Refuse what is no module, and points that are no patterns by name.

    Raises:
        GateError: they are something else.
    """
    if not isinstance(model, torch.nn.Module):
        what = f"{type(model).__name__} is no torch.nn.Module"
        raise GateError(what, f"{where}(model, ...)", 'd.put("name", array) takes any array')
    fix = '{"enc.block.{N}.out": "layers.*"}: a pattern of module paths by name'
    if not isinstance(points, Mapping):
        what = f"points are a {type(points).__name__}, no dict: {points!r:.60}"
        raise GateError(what, f"{where}(model, points)", fix)
    for name, pattern in points.items():
        for text in (name, pattern):
            if not isinstance(text, str):
                what = f"a point holds a {type(text).__name__}, no text: {text!r:.60}"
                raise GateError(what, f"{where}(model, points): {name!r:.60}", fix)
        check_words(_PLACEHOLDER.sub("0", name))


def matched(name: str, pattern: str, paths: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (name, path, index) of the modules that a pattern matches, in their order.

    `*` and `{N}` stand for one part of a path (between dots); `index` is what the first stands for.
    `{N}` of the name is what `{N}` of the pattern stands for, else the next `*`.

    Raises:
        GateError: no module matches; the name has a placeholder that the pattern has not.
    """
    if "**" in pattern:
        what = f"the pattern {pattern!r} holds '**'"
        raise GateError(what, f"attach: {name!r}", "* is one part of a path: layers.*.mlp")
    wild = [m.group(1) or "" for m in _PLACEHOLDER.finditer(pattern)]
    free = [p for p in _placeholders(name) if p not in wild]
    stars = iter(free)
    bound = [w or next(stars, "") for w in wild]
    missing = [p for p in free if p not in bound]
    if missing:
        what = f"nothing in the pattern {pattern!r} says what {{{missing[0]}}} is"
        raise GateError(what, f"attach: {name!r}", "write * in the pattern: layers.*")
    plain = [re.escape(p) for p in _PLACEHOLDER.split(pattern)[::2]]
    expression = re.compile("([^.]+)".join(plain))
    found = []
    for path in paths:
        match = expression.fullmatch(path)
        pairs = set(zip(bound, match.groups(), strict=True)) if match else set()
        values = dict(pairs)
        if match and all(values[k] == v for k, v in pairs if k):  # {N} twice is one number
            found.append((_filled(name, values), path, match.group(1) if wild else ""))
    if not found:
        what = f"the pattern {pattern!r} matches no module"
        raise GateError(what, f"attach: {name!r}", _near(pattern, paths))
    return found


def _filled(name: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda m: values[m.group(1) or ""], name)


def _placeholders(name: str) -> list[str]:
    return list(dict.fromkeys(m.group(1) or "" for m in _PLACEHOLDER.finditer(name)))


def _near(pattern: str, paths: Sequence[str]) -> str:
    """Module paths near a pattern, with numbers as `*`."""
    starred = {".".join("*" if p.isdigit() else p for p in path.split(".")) for path in paths}
    plain = _PLACEHOLDER.sub("*", pattern)
    known = sorted(({*starred, *paths} if "*" not in pattern else starred) - {""})
    return nearest(plain, known) or "the modules are " + ", ".join(known[:8])


def picked(found: Sequence[tuple[str, str, str]], pick: str) -> list[tuple[str, str]]:
    """Return (name, path) of the matches that `pick` names: by the value of the first wildcard.

    Raises:
        GateError: a word is none of all, first, mid, last; no match is at a position.
    """
    indices = list(dict.fromkeys(index for _, _, index in found))
    if pick == "all" or len(indices) == 1:
        return [(n, p) for n, p, _ in found]
    kept = set()
    for word in pick.split(","):
        places = dict(zip(_ENDS, (0, len(indices) // 2, len(indices) - 1), strict=True))
        text = word.strip()
        place = places.get(text, int(text) if text.isdigit() else -1)
        if not 0 <= place < len(indices):
            what = f"pick={pick!r}: {text!r} picks none of {len(indices)} modules"
            raise GateError(what, f"attach: {found[0][0]!r}", 'pick="first,mid,last" or "all"')
        kept.add(indices[place])
    return [(n, p) for n, p, index in found if index in kept]


def reach(output: Any, inner: str, where: str) -> Any:
    """Return the tensor at a place such as "0.hidden" of tuples, dicts and attributes.

    Raises:
        GateError: there is no such place, or no tensor at it.
    """
    value = output
    for part in inner.split(".") if inner else ():
        parts = _parts(value)
        if part not in parts:
            what = f"it has no part {part!r}, but {', '.join(parts) or 'none'}"
            raise GateError(what, where, nearest(part, parts) or "correct the place after ':'")
        value = parts[part]
    if not isinstance(value, torch.Tensor):
        parts = _parts(value)
        what = f"it is no tensor but a {type(value).__name__}"
        prefix = f"{inner}." if inner else ""
        fix = f'name a part: "pattern:{prefix}{next(iter(parts), "0")}"'
        raise GateError(what, where, fix)
    return value


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    if isinstance(value, tuple | list):
        named = dict(zip(getattr(value, "_fields", ()), value, strict=False))
        return named | {str(i): v for i, v in enumerate(value)}
    return dict(vars(value)) if hasattr(value, "__dict__") else {}
