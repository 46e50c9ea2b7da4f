"""What can be compared: arrays of numbers of any framework, and trees of them."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt
import optree

Array = npt.NDArray[np.generic]
BOOL, INTEGER, FLOATING, COMPLEX = KINDS = ("bool", "integer", "floating", "complex")
_LETTERS = {"b": BOOL, "i": INTEGER, "u": INTEGER, "f": FLOATING, "c": COMPLEX}
_WEAK = {bool: BOOL, int: INTEGER, float: FLOATING, complex: COMPLEX}


class MismatchError(AssertionError):
    """Two things cannot be compared entry by entry: their structure, shape or kind differs.

    Arguments:
        what: what differs, naming both sides.
        path: the place in the tree, such as `actual['w'][0]`.
        fix: what to do.
        actual: the form of the result.
        expected: the form that was expected.
    """

    def __init__(self, what: str, path: str, fix: str, actual: str, expected: str) -> None:
        super().__init__(f"{what}\n  at {path}\n  {fix}")
        self.path, self.actual, self.expected = path, actual, expected


@functools.cache
def kind(dtype: np.dtype[np.generic]) -> str | None:
    """Return "bool", "integer", "floating" or "complex"; None for no number or a long double."""
    if dtype.kind in _LETTERS:
        return _LETTERS[dtype.kind] if dtype.char not in "gG" else None
    for kind_name, info in ((FLOATING, ml_dtypes.finfo), (INTEGER, ml_dtypes.iinfo)):
        try:
            info(dtype)
        except (ValueError, TypeError):
            continue
        return kind_name
    return None


def as_array(value: object, path: str, like: np.dtype[np.generic] | None = None) -> Array:
    """Return `value` as a NumPy array of numbers.

    Arguments:
        value: an array of any framework, or a scalar.
        path: its name, for the message.
        like: the dtype that a Python scalar of the same or a lower kind takes.

    Raises:
        TypeError: there are no numbers in `value`, or long doubles.
    """
    weak = _WEAK.get(type(value))
    if weak is not None and like is not None:
        strong = kind(like)
        if strong is not None and KINDS.index(weak) <= KINDS.index(strong):
            with contextlib.suppress(OverflowError), np.errstate(over="ignore"):
                return np.asarray(value, like)  # an int out of range keeps a dtype of its own
    array = _from_framework(value)
    if kind(array.dtype) is None:
        raise TypeError(
            f"{path} has no numbers that can be compared: {type(value).__name__} of {array.dtype}\n"
            f"  at {path} = {value!r:.60}\n"
            "  pass arrays or scalars of bool, integers, floats up to 64 bits, or complex"
        )
    return array


def _from_framework(value: object) -> Array:
    """Return a NumPy array; a PyTorch tensor is detached, and bfloat16 read bit by bit."""
    if type(value).__module__.partition(".")[0] != "torch":
        return np.asarray(value)
    import torch  # the value comes from it, so it is there

    tensor = torch.as_tensor(value).detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())


def check_forms(got: Array, want: Array, path: str) -> None:
    """Raise MismatchError unless shapes and kinds of number agree; widths may differ."""
    same_kind = kind(got.dtype) == kind(want.dtype)
    if got.shape == want.shape and same_kind:
        return
    forms = f"{got.dtype}{list(got.shape)}", f"{want.dtype}{list(want.shape)}"
    if got.shape != want.shape:
        what = f"actual has shape {got.shape} and expected has shape {want.shape}"
        fix = "nothing is broadcast here: np.broadcast_to(expected, actual.shape) if that is meant"
    else:
        what = f"actual is {got.dtype} and expected is {want.dtype}: different kinds of number"
        fix = f"convert one of them if that is meant: expected.astype({got.dtype.name!r})"
    raise MismatchError(what, path, fix, *forms)


def narrower(first: np.dtype[np.generic], second: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype of fewer digits, `first` where both have as many."""
    return second if _digits(second) < _digits(first) else first


@functools.cache
def _digits(dtype: np.dtype[np.generic]) -> int:
    """Return the bits of the significand of a float, the bits of anything else."""
    if kind(dtype) in (FLOATING, COMPLEX):
        return int(ml_dtypes.finfo(dtype).nmant)  # type: ignore[no-untyped-call]
    return dtype.itemsize * 8


def pairs(
    actual: object, expected: object, path: str = "actual"
) -> Iterator[tuple[str, object, object]]:
    """Yield (path, actual leaf, expected leaf) of two trees of one structure.

    Tuples, named tuples, lists, dicts, dataclasses, None and whatever is registered with optree are
    nodes; all else is a leaf.

    Raises:
        MismatchError: the structures differ; the first place where they do is named.
    """
    nodes = _is_node(actual), _is_node(expected)
    if nodes == (False, False):
        yield path, actual, expected
        return
    sides = _describe(actual), _describe(expected)
    differ = MismatchError(
        f"actual is {sides[0]} and expected is {sides[1]}",
        path,
        "give both the same structure; np.asarray(expected) makes an array of nested lists",
        *sides,
    )
    if nodes != (True, True) or type(actual) is not type(expected):
        raise differ
    first, second = _children(actual), _children(expected)
    if list(first) != list(second):
        raise differ
    for step, child in first.items():
        yield from pairs(child, second[step], path + step)


def _is_node(value: object) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return False
    plain = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return plain or value is None or not optree.tree_is_leaf(value)  # type: ignore[arg-type]


def _children(node: object) -> dict[str, object]:
    """Return the children of a tree node by the text of the step to each."""
    if node is None:
        return {}
    if dataclasses.is_dataclass(node) and optree.tree_is_leaf(node):  # type: ignore[arg-type]
        return {f".{f.name}": getattr(node, f.name) for f in dataclasses.fields(node)}
    children, _, entries, _ = optree.tree_flatten_one_level(node)  # type: ignore[arg-type]
    if optree.is_namedtuple(node):
        names = optree.namedtuple_fields(node)  # type: ignore[arg-type]
        return {f".{name}": child for name, child in zip(names, children, strict=True)}
    return {f"[{entry!r}]": child for entry, child in zip(entries, children, strict=True)}


def _describe(value: object) -> str:
    """Return the form of a node or leaf in a few words."""
    if value is None:
        return "None"
    name = type(value).__name__
    if not _is_node(value):
        shape = getattr(value, "shape", None)
        return f"one {name}" if shape is None else f"one {name} of shape {tuple(shape)}"
    steps = list(_children(value))
    if isinstance(value, tuple | list):
        return f"a {name} of {len(steps)}"
    return f"a {name} with {', '.join(steps) or 'nothing'}"
