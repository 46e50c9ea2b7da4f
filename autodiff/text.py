"""The text form of programs."""
from typing import Any
import numpy as np
from autodiff.program import Literal, Program

def to_text(program: Program) -> str:
    """Flat program as text."""
    names: dict[Any, str] = {}
    def name(a: Any) -> str:
        if isinstance(a, Literal):
            return f"{a.spec}({a.value.tobytes().hex()})"
        return names.setdefault(a, f"v{len(names)}")
    lines = [f"program({', '.join(f'{name(v)}: {v.spec}' for v in program.inputs)}) captures({', '.join(f'{name(v)}: {v.spec}' for v in program.captures)})"]
    for e in program.equations:
        lines.append(f"  {', '.join(f'{name(v)}: {v.spec}' for v in e.outputs)} = {e.op.kind} {' '.join(name(a) for a in e.inputs)} {sorted((k, str(v)) for k, v in e.params.items())}")
    lines.append(f"  return {', '.join(name(a) for a in program.outputs)}")
    return "\n".join(lines)
