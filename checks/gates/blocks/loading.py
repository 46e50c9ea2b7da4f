"""Blocks named on the command line: module:function."""

import importlib
import os
import sys
from typing import Any

from autodiff.errors import nearest
from checks.gates.blocks.block import Block
from checks.gates.blocks.border import raised
from checks.gates.blocks.isolation import checked
from checks.gates.errors import GateError


def blocks_of(text: str) -> tuple[Block, ...]:
    """Return the blocks of "module:name": a function without arguments, or a sequence of blocks.

    Modules are found from the current folder too.

    Raises:
        GateError: there is no such module or name, it raises, or gives no blocks.
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        fix = "--blocks my_port:blocks"
        raise GateError(f"{text!r} names no function of a module", "--blocks", fix)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        home = importlib.import_module(module)
    except Exception as error:
        what = f"{module!r} cannot be imported: {raised(error)}"
        raise GateError(what, "--blocks", "run from the folder that holds it") from error
    if not hasattr(home, name):
        fix = nearest(name, vars(home)) or f"define {name}() in it"
        raise GateError(f"{module} has no {name!r}", "--blocks", fix)
    return _found(getattr(home, name), text)


def _found(value: Any, text: str) -> tuple[Block, ...]:
    if callable(value):
        try:
            value = value()
        except Exception as error:
            what = f"{text} raised {raised(error)}"
            raise GateError(what, "--blocks", "give it no arguments") from error
    if not isinstance(value, tuple | list):
        what = f"{text} gives a {type(value).__name__}, no blocks"
        raise GateError(what, "--blocks", "return a tuple of gates.Block")
    return checked(value)
