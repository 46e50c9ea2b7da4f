"""Blocks whose inputs were not dumped, joined with the blocks that make these.

A reference of first, middle and last blocks holds the ends of a span alone: the blocks of a span
are then checked as one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checks.gates.blocks.block import Block
from checks.gates.formats.readers import Side


@dataclass(frozen=True, slots=True)
class Span:
    """One block, or several joined.

    Arguments:
        block: what is run.
        parts: outputs of the blocks in it that were not dumped, in the order they are run.
    """

    block: Block
    parts: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Which tensors it passes through."""
        return f"through {', '.join(self.parts)} (not dumped)" if self.parts else ""


def spans(blocks: Sequence[Block], left: Side) -> list[Span]:
    """Return blocks with what they need and the reference lacks joined to them.

    A block whose output the reference lacks stands inside of others' spans alone; one that no
    other needs stays as it is. Inputs that no block makes stay too.
    """
    makers = {b.output: b for b in blocks}
    found = []
    inside: set[str] = set()
    for block in blocks:
        if left.calls(block.output.partition("#")[0]):
            parts = _missing(block, makers, left, ())
            inside |= {p.output for p in parts}
            found.append(Span(_joined(block, parts), tuple(p.output for p in parts)))
        else:
            found.append(Span(block))
    return [s for s in found if s.block.output not in inside]


def _missing(
    block: Block, makers: Mapping[str, Block], left: Side, path: tuple[str, ...]
) -> list[Block]:
    """The blocks of inputs that were not dumped, each after those it needs."""
    found: list[Block] = []
    for name in block.inputs:
        maker = makers.get(name)
        if left.calls(name.partition("#")[0]) or maker is None or name in path:
            continue
        for part in (*_missing(maker, makers, left, (*path, name)), maker):
            if part not in found:
                found.append(part)
    return found


def _joined(block: Block, parts: Sequence[Block]) -> Block:
    if not parts:
        return block
    every = (*parts, block)
    made = {p.output for p in parts}
    leaves = tuple(dict.fromkeys(n for p in every for n in p.inputs if n not in made))
    owners = _owners(every)
    held = {name: (p.weights or {})[key] for name, (p, key) in owners.items()}
    names = {(id(p), key): name for name, (p, key) in owners.items()}

    def call(weights: Mapping[str, Any], *inputs: Any) -> Any:
        values = dict(zip(leaves, inputs, strict=True))
        for part in every:
            own = {k: weights[names[id(part), k]] for k in part.weights or {}}
            given = [values[n] for n in part.inputs]
            values[part.output] = part.run(*given, weights=own)
        return values[block.output]

    return replace(block, inputs=leaves, call=call, weights=held, vjp=None)


def _owners(parts: Sequence[Block]) -> dict[str, tuple[Block, str]]:
    """Each weight of a span by a name of its own: as in its block, where that is unique."""
    every = [(p, k) for p in parts for k in p.weights or {}]
    keys = [k for _, k in every]
    return {k if keys.count(k) == 1 else f"{p.output}: {k}": (p, k) for p, k in every}
