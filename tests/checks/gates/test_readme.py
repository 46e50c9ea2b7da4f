"""The README's section on ports: its code and its commands run as they stand there."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.cli import main

README = (Path(__file__).parents[3] / "README.md").read_text()
SECTION = re.split(r"^## ", README, flags=re.MULTILINE)
Captured = pytest.CaptureFixture[str]
WIDTH, LAYERS, WORDS = 16, 3, 11


def section(title: str) -> str:
    (found,) = [s for s in SECTION if s.startswith(f"{title}\n")]
    return found


PORT = section("For a port")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PORT, re.MULTILINE | re.DOTALL)


def code(word: str) -> str:
    (found,) = [text for language, text in BLOCKS if language == "python" and word in text]
    return found


def commands() -> list[list[str]]:
    texts = [text for language, text in BLOCKS if not language]
    return [shlex.split(line) for text in texts for line in text.splitlines() if line]


def sides(torch: Any, fault: float = 0.0) -> dict[str, Any]:
    """The names that the code asks for: a model in PyTorch, and its port in NumPy."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(WORDS, WIDTH)
    layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layers = table, layers

        def forward(self, tokens: Any) -> Any:
            h = self.table(torch.as_tensor(tokens))
            for layer in self.layers:
                h = layer(h)
            return h

    def block(layer: Any) -> Any:
        w, b = (p.detach().numpy() for p in (layer.weight, layer.bias))
        return lambda x: x @ w.T + (1 - fault) * b

    def embedded(tokens: Any) -> Any:
        return table.weight.detach().numpy()[np.asarray(tokens)]

    tokens = np.arange(8) % WORDS
    return {
        **{"model": Model(), "tokens": tokens, "embedded": embedded},
        "blocks": [block(layer) for layer in layers],
    }


def run(folder: Path, fault: float) -> list[int]:
    """The code, then the commands; their exit codes."""
    torch = pytest.importorskip("torch")
    exec(compile(code("gates.Dump"), "README.md", "exec"), sides(torch, fault))
    codes = []
    for words in commands():
        assert words[0] == "gradsweep"
        codes.append(main(words[1:]))
    assert (folder / "tests/tolerances/model.json").exists()
    return codes


@pytest.mark.parametrize(("fault", "codes"), [(0.0, [0, 0]), (1.0, [0, 1])])
def test_the_block_of_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, fault: float, codes: Any
) -> None:
    """A right port passes; one without its biases fails at the first block, with the cause."""
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, fault) == codes
    out = capsys.readouterr().out
    names = re.findall(r"(?:ok|FAIL) +(enc\.block\.\d\.out)", out)
    assert names == [f"enc.block.{n}.out" for n in range(LAYERS)]
    assert "inputs equal" in out
    if fault:
        assert "; first enc.block.0.out: " in out and "offset per slice" in out


def test_the_block_of_one_array() -> None:
    names = {"candidate": np.array([1, 2], np.float32), "reference": np.array([1, 2], np.float32)}
    exec(compile(code("assert_close"), "README.md", "exec"), dict(names))
    names["candidate"] = np.array([1, 2.1], np.float32)
    with pytest.raises(AssertionError) as caught:
        exec(compile(code("assert_close"), "README.md", "exec"), names)
    for word in ("actual[1]", "got", "expected", "ulp", "atol", "rtol"):
        assert word in str(caught.value)


def test_every_command_that_is_named_exists(capsys: Captured) -> None:
    named = set(re.findall(r"`gate (\w+)`", PORT)) | {words[2] for words in commands()}
    assert named >= {"init", "compare", "isolate", "bisect", "calibrate", "power"}
    for name in sorted(named):
        with pytest.raises(SystemExit) as done:
            main(["gate", name, "--help"])
        assert done.value.code == 0 and name in capsys.readouterr().out
