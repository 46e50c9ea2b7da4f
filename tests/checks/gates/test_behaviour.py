"""Tokens and transcripts: what changed, where first, and whether the logits' error explains it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks import gates
from checks.gates.comparison.behaviour import changes
from checks.gates.comparison.questions import change_text
from checks.gates.comparison.record import Change, Result
from checks.gates.comparison.verdict import compare
from checks.gates.errors import GateError
from checks.gates.formats.readers import Side, open_side
from checks.gates.formats.transcript import Transcript, read_transcript
from tests.checks.gates.sides import TIGHT, judged, normal, write_side

WIDE = {"max_abs": "inf", "mean_abs": 1.0}
STEPS, CLASSES = 12, 20
LOGITS = 3 * normal(STEPS, CLASSES)
BEST = LOGITS.argmax(axis=1)


def near_tie(step: int, lift: float) -> tuple[Any, Any, float]:
    """Logits whose second choice at one step is lifted past the first: both, and the margin."""
    order = np.argsort(LOGITS[step])
    margin = float(LOGITS[step, order[-1]] - LOGITS[step, order[-2]])
    other = LOGITS.copy()
    other[step, order[-2]] += np.float32(margin + lift)
    return LOGITS, other, margin


def sides(
    tmp_path: Path, reference: dict[str, Any], candidate: dict[str, Any]
) -> tuple[Side, Side]:
    return (
        open_side(write_side(tmp_path / "reference", reference)),
        open_side(write_side(tmp_path / "candidate", candidate)),
    )


def changed(tmp_path: Path, r: dict[str, Any], c: dict[str, Any], *patterns: str) -> list[Change]:
    return list(changes(*sides(tmp_path, r, c), patterns))


def test_the_first_differing_step_and_its_margin(tmp_path: Path) -> None:
    r, c, margin = near_tie(7, lift=0.01)
    dumps = [{"dec.logits_raw": v, "dec.tokens": v.argmax(axis=1)} for v in (r, c)]
    (change,) = changed(tmp_path, dumps[0], dumps[1])
    assert (change.kind, change.edits, change.first, change.sizes) == ("tokens", 1, 7, (12, 12))
    assert change.logits == "dec.logits_raw"
    assert change.margin == pytest.approx(margin, abs=1e-6)
    assert change.error == pytest.approx(margin + 0.01, abs=1e-5)
    assert change.explained
    around = [str(v) for v in BEST[4:11]]
    around[3] = f"[{around[3]}]"
    assert change.said[0] == f"... {' '.join(around)} ..."


def test_a_change_that_the_error_does_not_explain(tmp_path: Path) -> None:
    other = BEST.copy()
    other[3] = (other[3] + 1) % CLASSES
    dumps = [{"dec.logits": LOGITS, "dec.tokens": v} for v in (BEST, other)]
    (change,) = changed(tmp_path, dumps[0], dumps[1])
    assert (change.first, change.error, change.explained) == (3, 0.0, False)


@pytest.mark.parametrize("place", ["calls", "named", "prompt", "shifted", "batch"])
def test_where_the_logits_of_a_step_stand(tmp_path: Path, place: str) -> None:
    r, c, margin = near_tie(7, lift=0.01)
    dumps = []
    for v in (r, c):
        tokens = v.argmax(axis=1)
        prompt = normal(5, CLASSES, seed=9)
        dump: dict[str, Any] = {"dec.tokens": tokens}
        if place == "calls":
            dump |= {f"logits#{n}" if n else "logits": v[n : n + 1] for n in range(STEPS)}
        elif place == "named":
            dump["dec.logits_raw.gen7"] = v[7:8]
        elif place == "prompt":
            dump["logits"] = np.concatenate([prompt, v])
        elif place == "shifted":  # logits at t choose the token at t + 1
            dump["logits"] = np.concatenate([prompt, v, prompt[:1]])
        else:
            first = normal(STEPS, CLASSES, seed=11)
            dump["logits"] = np.stack([first, v])
            dump["dec.tokens"] = np.stack([first.argmax(axis=1), tokens])
        dumps.append(dump)
    change = changed(tmp_path, dumps[0], dumps[1])[0]
    assert change.first == 7
    assert change.margin == pytest.approx(margin, abs=1e-6)
    assert change.error == pytest.approx(margin + 0.01, abs=1e-5)
    if place == "batch":
        assert change.note == "1 of 2 sequences differ"


def test_logits_of_another_step_are_not_taken(tmp_path: Path) -> None:
    other = BEST.copy()
    other[3] = (other[3] + 1) % CLASSES
    dumps = [{"dec.logits": -LOGITS, "dec.tokens": v} for v in (BEST, other)]
    (change,) = changed(tmp_path, dumps[0], dumps[1])
    assert (change.logits, change.margin, change.explained) == ("", None, None)


def test_lengths_and_insertions(tmp_path: Path) -> None:
    r = np.arange(10)
    for n, (c, edits, first) in enumerate(
        [(r[:7], 3, 7), (np.insert(r, 4, 99), 1, 4), (np.append(r, 5), 1, 10), (r, 0, None)]
    ):
        (change,) = changed(tmp_path / str(n), {"tokens": r}, {"tokens": c})
        assert (change.edits, change.first, change.changed) == (edits, first, bool(edits))


@pytest.mark.parametrize(
    ("name", "patterns", "values", "count"),
    [
        ("dec.tokens", (), np.arange(4), 1),
        ("dec.token_ids", (), np.arange(4, dtype=np.float32), 1),  # the seed's format has no other
        ("dec.ids", (), np.arange(4) + 0.5, 0),
        ("dec.num_tokens", (), np.arange(4), 0),
        ("dec.out", (), np.arange(4), 0),
        ("dec.out", ("dec.o*",), np.arange(4), 1),
        ("dec.tokens", (), np.zeros(0, np.int64), 0),
    ],
)
def test_which_tensors_hold_tokens(
    tmp_path: Path, name: str, patterns: tuple[str, ...], values: Any, count: int
) -> None:
    assert len(changed(tmp_path, {name: values}, {name: values}, *patterns)) == count


# --- transcripts ---


def spoken(tmp_path: Path, r: Any, c: Any, limit: Any = TIGHT, other: Any = LOGITS) -> Result:
    for name, record, values in (("reference", r, LOGITS), ("candidate", c, other)):
        write_side(tmp_path / name, {"dec.logits": values})
        if record is not None:
            text = record if isinstance(record, str) else json.dumps(record)
            (tmp_path / name / "transcript.json").write_text(text)
    (tmp_path / "limits.json").write_text(json.dumps({"dec.logits": limit}))
    return compare(*(tmp_path / n for n in ("reference", "candidate", "limits.json")))


def test_a_text_that_changed(tmp_path: Path) -> None:
    r = {"text": "the quick brown fox jumps", "source": {"kind": "cpp"}}
    c = {"text": "the quick brown ox jumps high"}
    result = spoken(tmp_path, r, c)
    (change,) = result.changes
    assert (change.edits, change.first, change.sizes) == (2, 3, (5, 6))
    assert change.said == ("the quick brown [fox] jumps", "the quick brown [ox] jumps high")
    assert result.exit_code == 0  # the tolerance file is the contract; the change is told
    from checks.gates.reports.terminal import verdict

    assert "transcript.json: 2 words of 5 and 6 differ, first at word 3: " in verdict(result)


def test_blanks_alone(tmp_path: Path) -> None:
    (change,) = spoken(tmp_path, {"text": "a b"}, {"text": "a  b"}).changes
    assert (change.edits, change.first) == (1, 2)


def test_the_fifth_answer(tmp_path: Path) -> None:
    r, c, _ = near_tie(7, lift=0.01)
    said = [{"text": "a b", "tokens": v.argmax(axis=1).tolist()} for v in (r, c)]
    text = spoken(tmp_path / "a", said[0], said[1], other=c).answers[4].text
    assert text.startswith("yes: transcript.json: 1 token of 12 differs, first at step 7: ")
    explained = (
        ": the margin is smaller than the error, which explains the change; dec.logits: 1 of"
    )
    assert "; top-2 margin of dec.logits " in text and explained in text
    text = spoken(tmp_path / "b", said[0], said[0], other=LOGITS + 1).answers[4].text
    assert text.startswith(
        "no: transcript.json: 12 tokens, all equal; transcript.json: the text of 2 words is equal; "
    )
    text = judged(tmp_path / "c", {"t": normal(4)[:2]}, {"t": normal(4)[:2] + 1}).answers[4].text
    assert text == "unknown: no tokens, no transcript.json, no tensor with classes on its last axis"


def test_no_logits_of_the_step(tmp_path: Path) -> None:
    said = [{"tokens": ["▁he", "llo"]}, {"tokens": ["▁he", "lp"]}]
    text = spoken(tmp_path, said[0], said[1], other=LOGITS + 1).answers[4].text
    assert "first at step 1: ▁he [llo] on the reference, ▁he [lp] here" in text
    assert "no logits of that step tell how close the choice was" in text


def test_of_one_side_alone_nothing_is_told(tmp_path: Path) -> None:
    assert spoken(tmp_path, {"text": "a"}, None).changes == ()


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ({"txt": "a"}, "neither text nor tokens"),
        ({"text": 3}, "text is no text: 3"),
        ({"tokens": "a b"}, "tokens are no list of tokens: 'a b'"),
        ({"tokens": [1.5]}, r"tokens are no list of tokens: \[1.5\]"),
    ],
)
def test_a_transcript_that_is_none(tmp_path: Path, record: Any, words: str) -> None:
    with pytest.raises(GateError, match=words) as caught:
        spoken(tmp_path, record, {"text": "a"})
    assert caught.value.code == 3
    assert len(str(caught.value).splitlines()) == 3
    assert "transcript.json" in caught.value.where


def test_folders_of_the_seeds_format(tmp_path: Path) -> None:
    for name, word in (("r", "one"), ("c", "two")):
        folder = tmp_path / name
        folder.mkdir()
        LOGITS.tofile(folder / "dec.logits.f32")
        sidecar = {"shape": [STEPS, CLASSES], "dtype": "f32", "layout": "row-major"}
        (folder / "dec.logits.json").write_text(json.dumps(sidecar))
        (folder / "transcript.json").write_text(json.dumps({"text": word, "tokens": [1]}))
    (tmp_path / "limits.json").write_text(json.dumps({"dec.logits": TIGHT}))
    result = compare(tmp_path / "r", tmp_path / "c", tmp_path / "limits.json")
    assert [(c.kind, c.changed) for c in result.changes] == [("tokens", False), ("text", True)]


# --- writing ---


def test_a_dump_writes_its_transcript(tmp_path: Path) -> None:
    with gates.Dump(tmp_path / "d", side="candidate") as d:
        d.put("t", LOGITS)
        d.transcript("hé", np.array([3, 4]))
    assert read_transcript(tmp_path / "d") == Transcript("hé", (3, 4))
    with gates.Dump(tmp_path / "d", side="candidate", overwrite=True) as d:
        d.put("t", LOGITS)
    assert read_transcript(tmp_path / "d") is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "^a transcript has neither text nor tokens\n.*\n  d.transcript"),
        ({"text": 3}, "^text is no text\n"),
        ({"tokens": [1.5]}, "^a token is neither an integer nor a text: 1.5\n"),
        ({"tokens": [[1, 2]]}, "^a token is neither an integer nor a text: "),
    ],
)
def test_a_transcript_that_cannot_be_written(tmp_path: Path, given: Any, words: str) -> None:
    with gates.Dump(tmp_path / "d", side="candidate") as d:
        d.put("t", LOGITS)
        with pytest.raises(GateError, match=words):
            d.transcript(**given)
    assert not (tmp_path / "d" / "transcript.json").exists()
    with pytest.raises(GateError, match="the dump is not open"):
        d.transcript("late")


def test_how_the_margin_is_told() -> None:
    def told(margin: float, error: float) -> str:
        said = ("1", "2")
        change = Change("t", "argmax", (1, 1), 1, 0, said, "0 another", "t", margin, error)
        return change_text(change).rpartition(": ")[2]

    assert told(0.016, 0.179) == "the margin is smaller than the error, which explains the change"
    assert told(1.5, 1) == "the margin is at most twice the error, which explains the change"
    other = "the margin is more than twice the error, which does not explain the change"
    assert told(2.5, 1) == other


def test_tokens_are_chosen_and_choose_nothing(tmp_path: Path) -> None:
    """Logits are right, the second word is taken: no argmax over the tokens is spoken of."""
    logits = normal(2, 6, 9)
    best = np.argsort(logits, axis=-1)
    exact = {"max_abs": 0.0, "mean_abs": 0.0}
    limits = {"dec.logits": TIGHT, "dec.best.tokens": exact}
    sides = [{"dec.logits": logits, "dec.best.tokens": best[..., -n]} for n in (1, 2)]
    result = judged(tmp_path, *sides, limits)
    assert [(c.kind, c.explained) for c in result.changes] == [("tokens", False)]
    assert "which does not explain the change" in result.answers[4].text
    assert "argmax" not in result.answers[4].text
