"""What both runs said and chose: tokens, transcripts, the argmax of logits, and how sure it was."""

import difflib
import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from checks.gates.causes.case import load
from checks.gates.comparison.record import Change, TensorRow
from checks.gates.formats.manifest import dtype_of
from checks.gates.formats.readers import Side
from checks.gates.formats.stored import Array, Stored
from checks.gates.formats.transcript import TRANSCRIPT, Transcript, read_transcript
from checks.report.wording import plural, printable

TOKENS = ("tokens", "token_ids", "ids")  # the last word of a name
_LOGITS = ("logits", "logits_raw", "head", "lm_head")
_COUNTED = re.compile(r"(?:gen|step|token)_?(\d+)")  # a part of a name that counts the steps
_AROUND, _MOST_ALIGNED, _MOST_TOKENS = 3, 1 << 12, 1 << 20
_TOP, _LEAST_CLASSES = 5, 3


def changes(
    left: Side, right: Side, patterns: Sequence[str] = (), only: str | None = None
) -> tuple[Change, ...]:
    """Compare the tokens and the transcripts of both sides.

    Arguments:
        left, right: the reference and the candidate.
        patterns: of names of tensors that hold tokens, besides those that end in a word
            of `TOKENS`.
        only: a pattern of names of tensors that are looked at.

    Returns:
        One for each tensor of tokens, for the transcript's tokens and for its text, where both
        sides have it.

    Raises:
        GateError: a transcript.json or a tensor's file cannot be used.
    """
    made: list[Change] = []
    for key in left.tensors:
        name = key.partition("#")[0]
        wanted = name.rpartition(".")[2] in TOKENS
        wanted |= any(fnmatch.fnmatchcase(name, p) for p in patterns)
        chosen = only is None or fnmatch.fnmatchcase(name, only)
        if wanted and chosen and key in right.tensors:
            made += _of_tensor(key, left, right)
    return (*made, *_of_transcripts(left, right))


def _of_tensor(key: str, left: Side, right: Side) -> Iterator[Change]:
    """The diff of the row of tokens that differs first; the last axis is that of the steps."""
    r, c = (_as_tokens(side.tensors[key]) for side in (left, right))
    if r is None or c is None or r.shape[0] != c.shape[0]:
        return
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(r, c, strict=True)]
    apart = [(_first(a, b), n) for n, (a, b) in enumerate(pairs) if a != b]
    batch = min(apart)[1] if apart else 0
    edits = sum(_edits(a, b) for a, b in pairs)
    others = f"{len(apart)} of {len(pairs)} sequences differ" if len(pairs) > 1 and apart else ""
    yield _tokens(key, *pairs[batch], left, right, batch=batch, edits=edits, note=others)


def _as_tokens(stored: Stored) -> Array | None:
    """Rows of integers, kept as any numbers; None where they are none."""
    if not 0 < stored.tensor.size <= _MOST_TOKENS:
        return None
    values = stored.load()
    with np.errstate(all="ignore"):
        whole = values.astype(np.float64) if values.dtype.kind not in "biuc" else values
    if whole.dtype.kind == "c" or (
        whole.dtype.kind == "f" and not np.all(np.isfinite(whole) & (whole == np.rint(whole)))
    ):
        return None
    whole = whole.astype(np.int64)
    return whole.reshape(-1, whole.shape[-1] if whole.ndim else 1)


def _of_transcripts(left: Side, right: Side) -> Iterator[Change]:
    said = [read_transcript(s.path) if s.path.is_dir() else None for s in (left, right)]
    ours, theirs = (t or Transcript() for t in said)
    if ours.tokens is not None and theirs.tokens is not None:
        yield _tokens(TRANSCRIPT, ours.tokens, theirs.tokens, left, right)
    if ours.text is not None and theirs.text is not None:
        r, c = ours.text.split(), theirs.text.split()
        edits = _edits(r, c) or int(ours.text != theirs.text)
        first = _first(r, c) if edits else None
        yield Change(TRANSCRIPT, "text", (len(r), len(c)), edits, first, _said(r, c, first))


def _tokens(
    source: str,
    r: Sequence[Any],
    c: Sequence[Any],
    left: Side,
    right: Side,
    *,
    batch: int = 0,
    edits: int | None = None,
    note: str = "",
) -> Change:
    edits = _edits(r, c) if edits is None else edits
    first = _first(r, c) if edits else None
    found: tuple[str, float | None, float | None] = ("", None, None)
    if first is not None and first < len(r) and isinstance(r[first], int):
        found = _at_step(left, right, first, batch, len(r), r[first])
    sizes = len(r), len(c)
    return Change(source, "tokens", sizes, edits, first, _said(r, c, first), note, *found)


def _first(r: Sequence[Any], c: Sequence[Any]) -> int:
    """The first place where two sequences differ; the length of the shorter where that is all."""
    both = zip(r, c, strict=False)
    apart = (n for n, (a, b) in enumerate(both) if a != b)
    return next(apart, min(len(r), len(c)))


def _edits(r: Sequence[Any], c: Sequence[Any]) -> int:
    """How many are replaced, left out or put in; of long sequences, how many places differ."""
    if list(r) == list(c):
        return 0
    if max(len(r), len(c)) > _MOST_ALIGNED:
        apart = sum(1 for a, b in zip(r, c, strict=False) if a != b)
        return apart + abs(len(r) - len(c))
    match = difflib.SequenceMatcher(None, list(r), list(c), autojunk=False)
    blocks = [op for op in match.get_opcodes() if op[0] != "equal"]
    return sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in blocks)


def _said(r: Sequence[Any], c: Sequence[Any], first: int | None) -> tuple[str, str]:
    """Both sequences around the first difference, which stands in brackets."""
    if first is None:
        return "", ""
    start = max(0, first - _AROUND)
    texts = []
    for s in (r, c):
        words = [_word(v) for v in s[start : first + _AROUND + 1]]
        here = f"[{_word(s[first])}]" if first < len(s) else "[]"
        words[first - start : first - start + 1] = [here]
        before, after = start > 0, len(s) > first + _AROUND + 1
        texts.append(" ".join(["..."] * before + words + ["..."] * after))
    return texts[0], texts[1]


def _word(token: Any) -> str:
    return printable(str(token)).replace("\n", "\\n")


# --- the logits of one step ---


def _at_step(
    left: Side, right: Side, step: int, batch: int, steps: int, token: int
) -> tuple[str, float | None, float | None]:
    """The logits whose largest is the reference's token of that step: name, margin and error.

    Their row is that of the step, of the call or name that counts the step, or, after a prompt,
    counted from the end; it is taken only where the reference's argmax is the token.
    """
    for key, r in left.tensors.items():
        c = right.tensors.get(key)
        if c is None or c.tensor.shape != r.tensor.shape or not _is_logits(r.tensor.name):
            continue
        for row in _rows(r, step, batch, steps):
            x, y = (_values(s, row) for s in (r, c))
            if x is not None and y is not None and int(np.argmax(x)) == token:
                return key, *_margin(x, y)
    return "", None, None


def _is_logits(name: str) -> bool:
    return any(word in _LOGITS for word in name.split("."))


def _rows(stored: Stored, step: int, batch: int, steps: int) -> Iterator[int]:
    """Flat rows of logits that may be those of a step."""
    shape, t = stored.tensor.shape, stored.tensor
    if len(shape) < 1 or shape[-1] < _LEAST_CLASSES:
        return
    length = shape[-2] if len(shape) > 1 else 1
    counted = (_COUNTED.fullmatch(word) for word in t.name.split("."))
    numbered = [int(m[1]) for m in counted if m]
    if (t.call == step and (t.call or length == 1)) or step in numbered:
        yield batch * length + length - 1
    if length >= steps:
        for at in dict.fromkeys((step, length - steps + step, length - steps + step - 1)):
            if 0 <= at < length:
                yield batch * length + at


def _values(stored: Stored, row: int) -> Any:
    """One row over the last axis, in float64; None where it is not there, or not finite."""
    size = stored.tensor.shape[-1]
    start, found, place = row * size, np.empty(0), 0
    for chunk in stored.chunks():
        kept = chunk[max(0, start - place) : max(0, start + size - place)]
        if kept.dtype.kind == "c":
            return None
        found = np.concatenate([found, kept.astype(np.float64)])
        place += chunk.size
    return found if found.size == size and not np.isnan(found).any() else None


def _margin(r: Any, c: Any) -> tuple[float, float]:
    """The reference's distance between its two largest, and the largest finite error."""
    best = np.sort(r)[-2:]
    with np.errstate(invalid="ignore"):
        e = np.nan_to_num(c - r, nan=0.0, posinf=0.0, neginf=0.0)
    return float(best[1] - best[0]), float(np.max(np.abs(e)))


# --- the argmax of logits ---


def choices(rows: Sequence[TensorRow], left: Side, right: Side) -> Iterator[Change]:
    """Yield argmax and top-k over the last axis, of the last failing tensor that looks like
    logits; where none does, of the first that fails. Integers are chosen, and choose nothing.
    """
    row = _chosen(rows)
    if row is None or row.limit is None or any(str(d).startswith("complex") for d in row.dtypes):
        return
    case = load(left.tensors[row.name], right.tensors[row.name], row.limit)
    if case.r.ndim < 1 or case.r.shape[-1] < _LEAST_CLASSES:
        return
    r, c = (v.reshape(-1, v.shape[-1]) for v in (case.r, case.c))
    good = np.isfinite(r).any(axis=1) & ~np.isnan(r).any(axis=1)
    places = np.flatnonzero(good)
    if not places.size:
        return
    r, c = r[good], c[good]
    lost = np.asarray(np.isnan(c).any(axis=1))  # a row with NaN chooses nothing
    k = min(_TOP, r.shape[1] - 1)
    tops = [np.sort(np.argpartition(-v, k - 1, axis=1)[:, :k], axis=1) for v in (r, c)]
    other = int((np.any(tops[0] != tops[1], axis=1) | lost).sum())
    note = f"{other:,} another top {k}"
    if lost.any():
        note += f", {plural(int(lost.sum()), 'row')} with NaN among them"
    picks = r.argmax(axis=1), np.where(lost, -1, c.argmax(axis=1))
    off = np.flatnonzero(picks[0] != picks[1])
    change = Change(row.name, "argmax", (len(r), len(c)), note=note)
    if not off.size:
        yield change
        return
    at = int(off[0])
    said = str(picks[0][at]), "NaN" if lost[at] else str(picks[1][at])
    found = (row.name, None, None) if lost[at] else (row.name, *_margin(r[at], c[at]))
    sizes = change.sizes
    yield Change(
        row.name, "argmax", sizes, int(off.size), int(places[at]), said, change.note, *found
    )


def _chosen(rows: Sequence[TensorRow]) -> TensorRow | None:
    failed = [r for r in rows if r.failed and r.measured and not _of_integers(r)]
    for word in ("logits", "head", "probs", "out"):
        named = [r for r in failed if word in r.name]
        if named:
            return named[-1]
    return failed[0] if failed else None


def _of_integers(row: TensorRow) -> bool:
    return any(d is not None and dtype_of(d).kind in "biu" for d in row.dtypes)
