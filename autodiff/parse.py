"""Programs read back from their text form (`autodiff.text`)."""

import ast
import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import ml_dtypes  # noqa: F401 - makes NumPy know the names of the narrow dtypes
import numpy as np

from autodiff.errors import AutodiffError, OpError
from autodiff.op import get
from autodiff.program import Atom, Equation, Literal, Program, Spec, Var, verify
from autodiff.subprogram import LIVE_RULES

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)
      | (?P<newline>\n)
      | (?P<comment>\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>-?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?:inf|nan)\b))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<mark>\.\.\.|[(){}\[\]:,=])
      | (?P<opaque><[^>\n]*>)
      | (?P<other>.)""",
    re.VERBOSE,
)
_END = "the end of the text"


class TextError(AutodiffError, ValueError):
    """A program text cannot be read; carries `line` (from 1) and the `token` found there."""

    def __init__(self, what: str, line: int, token: str) -> None:
        self.line, self.token = line, token
        super().__init__(
            what,
            f"line {line}, at {token[:60]!r}" if token else f"line {line}, at {_END}",
            "write programs with autodiff.text.to_text, or mend that line",
            line=line,
            token=token,
        )


class Token(NamedTuple):
    """A piece of text, its kind and its line."""

    kind: str
    text: str
    line: int


def parse(text: str) -> Program:
    """The program that `to_text` wrote; verified, source lines included.

    Containers (in_tree, out_tree) are not part of the text: the program takes and returns flat
    arrays. Raises TextError naming the line and the token, ProgramError where the text is well
    formed but an output's spec is not what its op gives.
    """
    reader = _Reader(text)
    reader.skip_lines()
    program = reader.program()
    reader.skip_lines()
    if reader.kind != "end":
        reader.fail("text goes on after the program")
    return verify(program)


def tokens(text: str) -> list[Token]:
    """The tokens of a text, whitespace dropped, closed by one of kind `end`."""
    found: list[Token] = []
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind != "space":
            found.append(Token(kind, match.group(), line))
        line += kind == "newline"
    return [*found, Token("end", "", line)]


class _Reader:
    """Recursive descent over the tokens; line ends matter only between equations."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0

    # --- tokens ---

    @property
    def kind(self) -> str:
        return self.tokens[self.at].kind

    @property
    def text(self) -> str:
        return self.tokens[self.at].text

    @property
    def following(self) -> str:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)].text

    def fail(self, what: str) -> NoReturn:
        token = self.tokens[self.at]
        raise TextError(what, token.line, token.text)

    def take(self) -> str:
        text = self.text
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.text == text and self.kind in ("mark", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}")

    def name(self, what: str) -> str:
        if self.kind != "name":
            self.fail(f"expected {what}")
        return self.take()

    def skip_lines(self) -> None:
        while self.kind in ("newline", "comment"):
            self.at += 1

    def series(self, closing: str, item: Callable[[], Any]) -> list[Any]:
        """Comma-separated items up to the closing mark; lines may break anywhere between."""
        found: list[Any] = []
        self.skip_lines()
        while not self.accept(closing):
            found.append(item())
            self.skip_lines()
            if not self.accept(",") and self.text != closing:
                self.fail(f"expected ',' or {closing!r}")
            self.skip_lines()
        return found

    # --- programs ---

    def program(self) -> Program:
        self.expect("program")
        name = ast.literal_eval(self.take()) if self.kind == "string" else self.name("a name")
        scope: dict[str, Var] = {}
        self.expect("(")
        inputs = self.series(")", lambda: self.variable(scope))
        captures: list[Var] = []
        if self.accept("captures"):
            self.expect("(")
            captures = self.series(")", lambda: self.variable(scope))
        self.expect("{")
        equations: list[Equation] = []
        self.skip_lines()
        while not self.accept("return"):
            equations.append(self.equation(scope))
            self.skip_lines()
        outputs: list[Atom] = []
        if self.kind != "newline":
            outputs = self.operands(scope)
        self.skip_lines()
        self.expect("}")
        return Program(tuple(inputs), tuple(captures), tuple(equations), tuple(outputs), name=name)

    def variable(self, scope: dict[str, Var]) -> Var:
        if self.text in scope:
            self.fail(f"'{self.text}' is defined twice")
        name = self.name("a variable")
        self.expect(":")
        scope[name] = Var(self.spec())
        return scope[name]

    def equation(self, scope: dict[str, Var]) -> Equation:
        outputs: list[Var] = []
        defined: dict[str, Var] = {}
        if self.following == ":":
            while not self.accept("="):
                if self.text in scope:
                    self.fail(f"'{self.text}' is defined twice")
                outputs.append(self.variable(defined))
                if not self.accept(",") and self.text != "=":
                    self.fail("expected ',' or '='")
        start = self.at
        try:
            op = get(self.name("an op kind"))
        except OpError as error:
            self.at = start
            self.fail(", ".join(t for t in (error.what, error.fix) if t))
        ends = ("newline", "comment", "end")
        plain = self.kind in ends or self.text == "{"
        inputs = [] if plain else self.operands(scope)
        params: dict[str, Any] = {}
        if self.accept("{"):
            params = dict(self.series("}", self.entry))
        source = self.take()[1:].strip() if self.kind == "comment" else None
        if self.kind not in ends:
            self.fail("expected the end of the line")
        scope.update(defined)
        return Equation(op, tuple(inputs), params, tuple(outputs), source)

    def operands(self, scope: dict[str, Var]) -> list[Atom]:
        found = [self.atom(scope)]
        while self.accept(","):
            found.append(self.atom(scope))
        return found

    def atom(self, scope: dict[str, Var]) -> Atom:
        if self.kind == "name" and self.following in ("[", "("):
            return Literal(self.array())
        if self.text not in scope:
            self.fail("expected a variable defined above, or a constant")
        return scope[self.take()]

    # --- specs, constants and params ---

    def rule(self) -> Any:
        label = ast.literal_eval(self.text) if self.kind == "string" else None
        if not isinstance(label, str) or label not in LIVE_RULES:
            self.fail("a custom derivative's rule lives only in the process that made it")
        self.at += 1
        return LIVE_RULES[label]

    def dtype(self) -> np.dtype[Any]:
        try:
            found = np.dtype(self.text)
        except TypeError:
            self.fail("expected a dtype")
        if found.name != self.text or found.kind not in "biufcV":
            self.fail("expected a dtype")
        self.at += 1
        return found

    def spec(self) -> Spec:
        dtype = self.dtype()
        self.expect("[")
        return Spec(tuple(self.series("]", self.size)), dtype)

    def size(self) -> int:
        if not self.text.isdigit():
            self.fail("expected an extent")
        return int(self.take())

    def array(self) -> np.ndarray[Any, Any]:
        start = self.at
        if self.following == "[":
            spec = self.spec()
        else:
            spec = Spec((), self.dtype())
        self.expect("(")
        fill = self.accept("fill")
        if self.kind == "string":
            value = self.encoded(Spec((), spec.dtype) if fill else spec)
            self.expect(")")
        else:
            value = _numbers(self.series(")", self.param), spec.dtype)
        value.flags.writeable = False
        if value.size != (1 if fill else spec.size):
            self.at = start
            self.fail(f"expected {1 if fill else spec.size} elements, found {value.size}")
        return np.broadcast_to(value.reshape(()), spec.shape) if fill else value.reshape(spec.shape)

    def encoded(self, spec: Spec) -> np.ndarray[Any, Any]:
        try:
            data = base64.b64decode(ast.literal_eval(self.text), validate=True)
            order = spec.dtype if spec.dtype.isbuiltin == 2 else spec.dtype.newbyteorder("<")
            flat = np.frombuffer(data, order)
        except (ValueError, binascii.Error):
            self.fail(f"expected the base64 bytes of {spec.size} {spec.dtype.name} elements")
        self.at += 1
        return flat.astype(spec.dtype)

    def entry(self) -> tuple[str, Any]:
        name = self.name("a parameter name")
        self.expect("=")
        return name, self.param()

    def param(self) -> Any:
        if self.kind == "number":
            text = self.take()
            return int(text) if text.lstrip("-").isdigit() else float(text)
        if self.kind == "string":
            return ast.literal_eval(self.take())
        if self.accept("..."):
            return ...
        if self.accept("("):
            return tuple(self.series(")", self.param))
        if self.text in _WORDS and self.kind == "name":
            return _WORDS[self.take()]
        return self.rare_param()

    def rare_param(self) -> Any:
        if self.text == "program":
            return self.program()
        if self.accept("spec"):
            return self.spec()
        if self.accept("rule"):
            return self.rule()
        for word, build in (("slice", slice), ("complex", complex)):
            if self.accept(word):
                self.expect("(")
                return build(*self.series(")", self.param))
        if self.kind == "opaque":
            self.fail("this parameter has no text form")
        if self.kind != "name":
            self.fail("expected a parameter")
        return self.array() if self.following in ("[", "(") else self.dtype()


_WORDS = {"None": None, "True": True, "False": False}


def _numbers(values: list[Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    out = np.empty(len(values), dtype)
    for i, v in enumerate(values):
        out[i] = v if dtype.kind != "V" else dtype.type(v)
    return out
