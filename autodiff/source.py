"""Where an equation comes from: the user's line that recorded it, and the role of its results."""

import contextlib
import contextvars
import functools
import linecache
import os
import sys
from types import TracebackType

import numpy as np
import optree
import scipy

_source: contextvars.ContextVar[str | None] = contextvars.ContextVar("source", default=None)
_role: contextvars.ContextVar[str | None] = contextvars.ContextVar("role", default=None)
_HIDDEN = (
    *(
        os.path.dirname(os.path.abspath(str(m))) + os.sep
        for m in (__file__, np.__file__, optree.__file__)
    ),
    # where SciPy's functions are dispatched; its solvers and objectives are code like a user's
    *(os.path.join(os.path.dirname(str(scipy.__file__)), part, "") for part in ("special", "_lib")),
    *(str(m.__file__) for m in (functools, contextlib)),
)
_hidden_files: dict[str, bool] = {}


class sourced:
    """Give equations recorded inside this source line (passes keep the primal equation's), and
    their results the role "dot" or "bar" where they make tangents or cotangents.
    """

    __slots__ = ("_line", "_line_token", "_role", "_role_token")

    def __init__(self, line: str | None, role: str | None = None) -> None:
        self._line, self._role = line, role

    def __enter__(self) -> None:
        # a role or line that is not given stays what it is
        self._line_token = None if not self._line else _source.set(self._line)
        self._role_token = None if not self._role else _role.set(self._role)

    def __exit__(self, *error: object) -> None:
        if self._role_token is not None:
            _role.reset(self._role_token)
        if self._line_token is not None:
            _source.reset(self._line_token)


class unsourced:
    """Give equations recorded inside no source line: a body traced once serves many callers."""

    __slots__ = ("_line_token", "_role_token")

    def __enter__(self) -> None:
        self._line_token, self._role_token = _source.set(""), _role.set(None)

    def __exit__(self, *error: object) -> None:
        _role.reset(self._role_token)
        _source.reset(self._line_token)


def current_role() -> str | None:
    """The role of results recorded now."""
    return _role.get()


def equation_line() -> str | None:
    """The line that an equation recorded now comes from; None where there is none to name."""
    known = _source.get()
    return (_user_frame_line() if known is None else known) or None


def user_line() -> str | None:
    """`file:line in function` of the innermost frame outside the engine and NumPy, or, inside a
    pass, the line of the equation it is working on.
    """
    known = _source.get()
    return _user_frame_line() if known is None else known


def traceback_line(trace: TracebackType | None) -> str | None:
    """`file:line in function` of a traceback's innermost frame outside the engine and NumPy."""
    line = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_hidden(code.co_filename):
            line = _described(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return line


def _is_hidden(name: str) -> bool:
    hidden = _hidden_files.get(name)
    if hidden is None:
        hidden = _hidden_files[name] = name.startswith((*_HIDDEN, "<frozen"))
    return hidden


def _user_frame_line() -> str | None:
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not _is_hidden(code.co_filename):
            return _described(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


_paths: dict[str, str] = {}  # short names as shown, and where the file is


@functools.lru_cache(maxsize=1 << 14)
def _described(path: str, line: int, function: str) -> str:
    short = _short(path)
    _paths[short] = path
    return f"{short}:{line} in {function}"


def _short(path: str) -> str:
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else os.sep.join(path.split(os.sep)[-2:])


def quoted(line: str | None) -> str:
    """A source line with the text of the line itself, for error messages."""
    if line is None:
        return "at an unknown line"
    path, _, rest = line.partition(":")
    number = rest.split(" ")[0]
    text = (
        linecache.getline(_paths.get(path, path), int(number)).strip() if number.isdigit() else ""
    )
    return f"at {line}" + (f": `{text}`" if text else "")
