"""What capturing from the models of transformers needs."""

import importlib.util
from typing import Any

from checks import gates


def torch_for(script: str) -> Any:
    """Return PyTorch, made deterministic, where it and transformers are installed.

    Raises:
        GateError: one is missing; names the package, the script and the way out.
    """
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            fix = "pip install 'gradsweep[torch]' 'transformers>=5.24'"
            raise gates.GateError(f"needs the package {name}", script, fix)
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return torch
