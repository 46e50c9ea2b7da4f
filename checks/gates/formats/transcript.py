"""transcript.json: what a run said, beside its tensors."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checks.gates.errors import GateError
from checks.gates.formats.manifest import parsed
from checks.gates.formats.readers import text_of
from checks.results import replace_text

TRANSCRIPT = "transcript.json"
_FIX = '{"text": "...", "tokens": [1, 2, 3]}'


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a run said.

    Arguments:
        text: None where it stands nowhere.
        tokens: numbers or pieces of text; None where they stand nowhere.
    """

    text: str | None = None
    tokens: tuple[int | str, ...] | None = None


def read_transcript(folder: Path) -> Transcript | None:
    """Read transcript.json of a dump's folder; None where there is none.

    Keys beside `text` and `tokens`, such as `source`, are its writer's own.

    Raises:
        GateError: not JSON, neither text nor tokens, or no text and no list of tokens.
    """
    file = folder / TRANSCRIPT
    if not file.is_file():
        return None
    record = parsed(text_of(file), str(file))
    text, tokens = record.get("text"), record.get("tokens")
    if text is None and tokens is None:
        raise GateError("neither text nor tokens", str(file), f"write {_FIX}")
    if text is not None and not isinstance(text, str):
        raise GateError(f"text is no text: {text!r:.40}", str(file), f"write {_FIX}")
    good = isinstance(tokens, list) and all(type(t) in (int, str) for t in tokens)
    if tokens is not None and not good:
        raise GateError(f"tokens are no list of tokens: {tokens!r:.40}", str(file), f"write {_FIX}")
    return Transcript(text, None if tokens is None else tuple(tokens))


def write_transcript(folder: Path, text: str | None, tokens: Iterable[Any] | None) -> Path:
    """Write transcript.json; whole, or not at all.

    Arguments:
        folder: of the dump.
        text: what was said.
        tokens: integers (an array of one axis, too), or pieces of text.

    Raises:
        GateError: there is neither; a token is neither an integer nor a text.
        OSError: it cannot be written.
    """
    record: dict[str, Any] = {} if text is None else {"text": text}
    if tokens is not None:
        plain = np.asarray(tokens).tolist() if hasattr(tokens, "__array__") else list(tokens)
        kinds = plain if isinstance(plain, list) else [plain]
        record["tokens"] = [t if isinstance(t, str) else _integer(t) for t in kinds]
    if not record or not isinstance(record.get("text", ""), str):
        what = "a transcript has neither text nor tokens" if not record else "text is no text"
        raise GateError(what, str(folder / TRANSCRIPT), "d.transcript(text=..., tokens=[...])")
    line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return replace_text(folder / TRANSCRIPT, line + "\n")


def _integer(token: Any) -> int:
    try:
        return int(token.__index__())
    except (AttributeError, TypeError):
        what = f"a token is neither an integer nor a text: {token!r:.40}"
        raise GateError(what, TRANSCRIPT, "tokens=[1, 2, 3], of one axis") from None
