"""Faults of the toy transformer in places and positions: layout, masks, cache, words."""

from dataclasses import replace
from typing import Any

import numpy as np

from autodiff import ops
from checks.gates.corpus.fault import (
    Run,
    after,
    configured,
    faults_of,
    given,
    instead,
    patched,
    weight,
)

T = "toy_transformer"
FRONT = "mel_front_end"
B0, D0 = "enc.block.0", "dec.block.0"
STEP = ("dec.gen1.block.0.out",)
CACHE = ("dec.gen1.block.0.k_cache",)
_f = faults_of(T)


# --- 8, 9, 12, 13: layout ---


def _split_unturned(x: Any, heads: int) -> Any:
    return x.reshape(heads, x.shape[0], -1)


def _merge_unturned(x: Any) -> Any:
    return x.reshape(x.shape[1], -1)


def _interleaved_heads(x: Any, heads: int) -> Any:
    return x.reshape(x.shape[0], -1, heads).transpose(2, 0, 1)


def _tiled(x: Any, config: Any) -> Any:
    return np.tile(x, (config.heads // config.kv_heads, 1, 1))


def _head_rows(w: Any, heads: int, order: Any) -> Any:
    return w.reshape(heads, -1, *w.shape[1:])[order].reshape(w.shape)


def _pairs(w: Any) -> Any:
    """Rows of every head of eight from pairs (2 i, 2 i + 1) to halves."""
    shape = w.shape
    return w.reshape(-1, 4, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def _half_turned(before: Any) -> Any:
    def rotary(x: Any, at: Any, config: Any) -> Any:
        n = x.shape[-1] // 2
        return np.concatenate([before(x[..., :n], at, config), x[..., n:]], -1)

    return rotary


def _moved(by: int) -> Any:
    return lambda before: lambda x, at, config: before(x, at + by, config)


def _backwards(before: Any) -> Any:
    return lambda x, at, config: before(x, -at, config)


def _first_head(run: Run) -> Run:
    """Values of the first head for all (keys too, which are turned later)."""

    def make(before: Any) -> Any:
        def split(x: Any, heads: int) -> Any:
            found = before(x, heads)
            return found if heads == run.config.heads else np.repeat(found[:1], heads, 0)

        return split

    return patched(f"{T}.split_heads", make)(run)


def _heads_turned(run: Run) -> Run:
    """Heads of queries in another order, biases with them."""
    names = [f"{B0}.self.q.{n}" for n in ("weight", "bias")]
    count = run.config.heads
    order = np.r_[2, 0, 3:count, 1]
    made = {n: _head_rows(run.weights[n], count, order) for n in names}
    return replace(run, weights={**run.weights, **made})


def _rows_turned(run: Run) -> Run:
    name, count = f"{B0}.self.q.weight", run.config.heads
    made = {name: _head_rows(run.weights[name], count, np.r_[1:count, 0])}
    return replace(run, weights={**run.weights, **made})


ROTARY = (f"{B0}.q",)
LAYOUT = (
    _f("heads split without a turn", 8, instead(f"{T}.split_heads", _split_unturned), f"{B0}.v",
       "reinterpreted", "interleaved"),
    _f("heads merged without a turn", 8, instead(f"{T}.merge_heads", _merge_unturned),
       f"{B0}.heads", "reinterpreted", "interleaved", "same values elsewhere"),
    _f("output weight transposed", 8, weight("enc.block.0.self.o.weight", lambda w: w.T),
       f"{B0}.attn"),
    _f("mlp weight laid out in columns", 8,
       weight("enc.block.0.up.weight", lambda w: w.T.reshape(w.shape)), f"{B0}.act"),
    _f("values of one head for all", 9, _first_head, f"{B0}.v",
       "broadcast", "partial"),
    _f("first position for all", 9,
       patched(f"{FRONT}.sinusoids", lambda before: lambda n, w: np.repeat(before(1, w), n, 0)),
       "enc.embed", "after the first"),
    _f("first bias for all", 9, weight("enc.block.0.self.v.bias", lambda b: 0 * b + b[0]),
       f"{B0}.v", "offset per slice"),
    _f("bias of every second channel twice", 9,
       weight("enc.block.0.self.v.bias", lambda b: np.repeat(b[::2], 2)), f"{B0}.v",
       "offset per slice", "partial"),
    _f("rows of query heads in another order", 12, _rows_turned, ROTARY),
    _f("query heads in another order", 12, _heads_turned, ROTARY, "slices permuted"),
    _f("value heads and dimensions exchanged", 12,
       instead(f"{T}.split_heads", _interleaved_heads), f"{B0}.v",
       "same values elsewhere", "slices permuted", "interleaved", "reinterpreted"),
    _f("key heads tiled for repeated", 12, instead(f"{T}.grouped", _tiled), f"{B0}.scores",
       "partial"),
    _f("pairs for halves", 13, configured(interleaved=True), ROTARY, "rotary"),
    _f("weights for pairs", 13,
       lambda run: replace(run, weights={
           **run.weights,
           **{f"{B0}.self.{p}.{n}": _pairs(run.weights[f"{B0}.self.{p}.{n}"])
              for p in "qk" for n in ("weight", "bias")}}), ROTARY, "rotary"),
    _f("base 500000", 13, configured(base=500000.0), ROTARY, "rotary"),
    _f("half of each head turned", 13, patched(f"{T}.rotary", _half_turned), ROTARY, "rotary"),
    _f("positions from one", 13, patched(f"{T}.rotary", _moved(1)), ROTARY, "rotary"),
    _f("turned backwards", 13, patched(f"{T}.rotary", _backwards), ROTARY, "rotary"),
    _f("not turned", 13, instead(f"{T}.rotary", lambda x, at, config: x), ROTARY, "rotary"),
)  # fmt: skip


# --- 14, 15, 24, 28: masks and the cache ---


def _no_mask(queries: int, keys: int, start: int) -> Any:
    return np.broadcast_to(np.arange(keys) < start + queries, (queries, keys))


def _mask(by: int) -> Any:
    def causal(queries: int, keys: int, start: int) -> Any:
        return np.arange(keys)[None] <= (start + by + np.arange(queries))[:, None]

    return causal


def _turned_mask(queries: int, keys: int, start: int) -> Any:
    return np.arange(keys)[None] >= (start + np.arange(queries))[:, None]


def _window(queries: int, keys: int, start: int) -> Any:
    """Only the last four keys are seen."""
    apart = (start + np.arange(queries))[:, None] - np.arange(keys)[None]
    return (apart >= 0) & (apart < 4)


def _short_memory(before: Any) -> Any:
    return lambda x, memory, *a: before(x, memory[:-2], *a)


def _in_step(change: Any) -> Any:
    """A change of the cache's writing that starts with the first single step."""

    def make(before: Any) -> Any:
        def written(cache: Any, new: Any, start: int) -> Any:
            return change(before, cache, new, start) if start else before(cache, new, start)

        return written

    return patched(f"{T}.written", make)


def _second_not_written(cache: Any, new: Any, start: int) -> Any:
    """The prompt of eight words and one word are written, no more."""
    whole = np.concatenate([cache[:, :start], new, cache[:, start + new.shape[1] :]], axis=1)
    return cache if start > 8 else whole


def _step_positions(by: int) -> Any:
    return patched(
        f"{T}.positions_from",
        lambda before: lambda start, count: before(start + by if start else start, count),
    )


MASKS = (
    _f("no causal mask", 14, instead(f"{T}.causal", _no_mask), f"{D0}.heads",
       "before the last"),
    _f("one future key seen", 14, instead(f"{T}.causal", _mask(1)), f"{D0}.heads"),
    _f("mask turned", 14, instead(f"{T}.causal", _turned_mask), f"{D0}.heads"),
    _f("only four keys seen", 14, instead(f"{T}.causal", _window), f"{D0}.heads", "partial"),
    _f("last frames of the encoder not seen", 14, patched(f"{T}.cross_attention", _short_memory),
       f"{D0}.cross"),
    _f("positions of the encoder from one", 14,
       patched(f"{FRONT}.sinusoids", lambda before: lambda n, w: before(n + 1, w)[1:]),
       "enc.embed"),
    _f("step written one late", 15, _in_step(lambda f, c, new, at: f(c, new, at + 1)), CACHE,
       "slices permuted"),
    _f("step written over the last one", 15, _in_step(lambda f, c, new, at: f(c, new, at - 1)),
       CACHE, "cache place"),
    _f("step written two early", 15, _in_step(lambda f, c, new, at: f(c, new, at - 2)), CACHE,
       "cache place", "partial"),
    _f("step not written", 15, _in_step(lambda f, c, new, at: c), CACHE, "partial"),
    _f("second step not written", 15, instead(f"{T}.written", _second_not_written),
       "dec.gen2.block.0.k_cache", "stale"),
    _f("step at position zero", 15,
       patched(f"{T}.positions_from", lambda f: lambda start, count: f(
           0 if start else start, count)), CACHE, "cache position"),
    _f("step one position late", 15, _step_positions(1), CACHE, "cache position"),
    _f("step one position early", 15, _step_positions(-1), CACHE, "cache position"),
    _f("step sees one key less", 15,
       patched(f"{T}.causal", lambda f: lambda q, k, s: f(q, k, s - 1 if s else s)), STEP),
    _f("past is zero", 24, _in_step(lambda f, c, new, at: f(0 * c, new, at)), CACHE, "partial",
       "past is zero"),
    _f("first two of the past are zero", 24,
       _in_step(lambda f, c, new, at: np.concatenate([0 * c[:, :2], f(c, new, at)[:, 2:]], 1)),
       CACHE, "partial"),
    _f("past of one head is zero", 24,
       _in_step(lambda f, c, new, at: np.concatenate([f(c, new, at)[:1], 0 * c[1:]], 0)),
       CACHE, "partial"),
    _f("first row fully masked", 28, instead(f"{T}.causal", _mask(-1)), f"{D0}.heads",
       "non-finite on the candidate", "non-finite on the candidate mask"),
    _f("a padded row fully masked", 28,
       patched(f"{T}.causal", lambda f: lambda q, k, s: f(q, k, s) & (
           np.arange(q) < (q if s else q - 1))[:, None]), f"{D0}.heads",
       "non-finite on the candidate", "non-finite on the candidate mask"),
)  # fmt: skip


# --- 16, 18, 19, 20, 21: words, infinities, meaning, blockwise attention ---


def _one_word(tokens: Any) -> Any:
    made = tokens.copy()
    made[3] = (made[3] + 7) % 48
    return made


def _two_exchanged(tokens: Any) -> Any:
    made = tokens.copy()
    made[[2, 3]] = made[[3, 2]]
    return made


def _late_start(tokens: Any) -> Any:
    """A start token before the prompt, whose last word is lost."""
    made = tokens.copy()
    made[1:8] = tokens[:7]
    made[0] = (tokens[0] + 1) % 48
    return made


def _suppressed(x: Any) -> Any:
    made = x.copy()
    made[:, 5] = -np.inf
    return made


def _underflow(logits: Any) -> Any:
    return np.log(ops.softmax(logits * logits.dtype.type(60)))


def _tie(w: Any) -> Any:
    made = w.copy()
    made[1] = made[0]
    return made


def _blockwise(before: Any) -> Any:
    """Two blocks of keys joined without the factor of their maxima."""

    def softmax(x: Any) -> Any:
        half = x.shape[-1] // 2
        parts = [np.exp(p - np.maximum(p.max(-1, keepdims=True), -1e30)) for p in
                 (x[..., :half], x[..., half:])]  # fmt: skip
        e = np.concatenate(parts, -1)
        return e / e.sum(-1, keepdims=True)

    return softmax


def _last_block_lost(before: Any) -> Any:
    """Keys that do not fill a block of four are left out."""

    def softmax(x: Any) -> Any:
        made = x.copy()
        made[..., x.shape[-1] // 4 * 4 :] = -np.inf
        return before(made)

    return softmax


def _other_revision(run: Any) -> Any:
    rng = np.random.default_rng(5)
    made = {
        k: (w * (1 + 0.02 * rng.normal(size=w.shape))).astype(w.dtype)
        for k, w in run.weights.items()
    }
    return replace(run, weights={**made, "fe.filters": run.weights["fe.filters"]})


WORDS = (
    _f("one word another", 16, given(1, _one_word), "dec.token_emb", "partial"),
    _f("two words exchanged", 16, given(1, _two_exchanged), "dec.token_emb", "slices permuted"),
    _f("a start token too many", 16, given(1, _late_start), "dec.token_emb", "shifted"),
    _f("ids one up", 16, given(1, lambda t: (t + 1) % 48), "dec.token_emb"),
    _f("another word at a step", 16, given(1, lambda t: np.where(np.arange(t.size) == t.size - 1,
       (t + 5) % 48, t)), "dec.gen2.token_emb"),
    _f("a word suppressed", 18, after(f"{T}.log_probabilities", _suppressed), "dec.logprobs",
       "non-finite on the candidate mask", "non-finite on the candidate"),
    _f("log of a softmax that underflows", 18, instead(f"{T}.log_probabilities", _underflow),
       "dec.logprobs", "non-finite on the candidate"),
    _f("two words almost tied", 19, weight("dec.head.bias", lambda b: b * (1 + 2.0**-23)),
       "dec.logits_raw", structural=False),
    _f("the best word decided by rounding", 19, weight(
        "dec.head.weight", lambda w: w * (1 + 2.0**-24)), "dec.logits_raw", structural=False),
    _f("dither", 20, patched(f"{FRONT}.front_end", lambda f: lambda s, w, c: f(
       s + np.float32(0.01) * np.random.default_rng(3).normal(size=s.shape).astype(s.dtype), w, c)),
       "fe.mel"),
    _f("another revision of the weights", 20, _other_revision, "fe.conv"),
    _f("dropout left on", 20, patched(f"{T}.mlp", lambda f: lambda x, *a: f(x, *a) * (
       np.random.default_rng(2).uniform(size=x.shape) > 0.1).astype(x.dtype) / np.float32(0.9)),
       f"{B0}.out"),
    _f("blocks joined without their maxima", 21, patched(f"{T}.softmax", _blockwise),
       f"{B0}.heads"),
    _f("last block of keys left out", 21, patched(f"{T}.softmax", _last_block_lost),
       f"{B0}.heads"),
)  # fmt: skip

FAULTS = (*LAYOUT, *MASKS, *WORDS)
