"""Faults of the CTC head, the RNN transducer and the injected-token stage."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from autodiff import ops
from checks.gates.corpus.fault import (
    after,
    configured,
    exchanged,
    faults_of,
    given,
    held_in,
    instead,
    none,
    patched,
    stored,
    weight,
)

NONFINITE = ("non-finite on the candidate mask", "non-finite on the candidate")


# --- CTC ---

C = "ctc_head"
_c = faults_of(C)


def _no_root(x: Any, weights: Any, config: Any) -> Any:
    mean, var, scale, bias = (
        weights[f"bn.{n}"].astype(x.dtype) for n in ("mean", "var", "weight", "bias")
    )
    return (x - mean) / (var + x.dtype.type(config.eps)) * scale + bias


def _batch_statistics(x: Any, weights: Any, config: Any) -> Any:
    scale, bias = (weights[f"bn.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    root = np.sqrt(x.var(0) + x.dtype.type(config.eps))
    return (x - x.mean(0)) / root * scale + bias


def _softmax_only(logits: Any) -> Any:
    return np.asarray(ops.softmax(logits))


def _over_frames(logits: Any) -> Any:
    return ops.log_softmax(logits, axis=0)


def _finite_never(alpha: Any) -> Any:
    return np.where(np.isinf(alpha), alpha.dtype.type(-1e30), alpha)


def _no_skips(states: Any, blank: int) -> Any:
    del blank
    return np.zeros(states.shape[0], bool)


def _all_skips(states: Any, blank: int) -> Any:
    del blank
    return np.arange(states.shape[0]) >= 2


CTC = (
    _c("features one frame late", 1, given(0, lambda x: np.roll(x, 1, 0)), "ctc.conv", "shifted"),
    _c("last frames of padding not zero", 3, given(0, lambda x: np.concatenate(
        [x[:-2], x[-3:-2], x[-3:-2]])), "ctc.conv", "partial"),
    _c("activations in bfloat16", 4, after(f"{C}.activation", held_in(ml_dtypes.bfloat16)),
       "ctc.act", "rounded to bfloat16"),
    _c("logits in float16", 4, after(f"{C}.head", held_in(np.float16)), "ctc.logits_raw",
       "rounded to float16"),
    _c("gelu for silu", 6, instead(f"{C}.activation", ops.gelu), "ctc.act", "activation"),
    _c("relu for silu", 6, instead(f"{C}.activation", ops.relu), "ctc.act", "activation"),
    _c("epsilon 1e-2", 6, configured(eps=1e-2), "ctc.bn", "affine per slice", "factor per slice"),
    _c("log base 10", 6, patched(f"{C}.log_probabilities", lambda f: lambda x: f(x) / np.log(
        x.dtype.type(10))), "ctc.loss"),
    _c("logits transposed", 8, stored("ctc.logits_raw", lambda x, t: x.T), "ctc.logits_raw",
       "wrong shape"),
    _c("head weight in columns", 8, weight("head.weight", lambda w: w.T.reshape(w.shape)),
       "ctc.logits_raw"),
    _c("statistics of the batch", 10, instead(f"{C}.batch_norm", _batch_statistics), "ctc.bn",
       "affine per slice"),
    _c("softmax over frames", 10, instead(f"{C}.log_probabilities", _over_frames),
       ("ctc.loss",)),
    _c("channels in another order", 12, weight("head.weight", lambda w: w[np.r_[1:w.shape[0], 0]]),
       "ctc.logits_raw"),
    _c("blank last for first", 16, lambda run: replace(run, config=replace(
        run.config, blank=run.config.vocab - 1)), "ctc.loss"),
    _c("minus 1e30 for infinity", 18, after(f"{C}.lattice", _finite_never), "ctc.lattice",
       "non-finite on the reference mask", "non-finite on the reference"),
    _c("softmax without the logarithm", 18, instead(f"{C}.log_probabilities", _softmax_only),
       "ctc.loss"),
    _c("log of a softmax that underflows", 18, instead(f"{C}.log_probabilities",
       lambda x: np.log(ops.softmax(x * x.dtype.type(40)))), ("ctc.loss",),
       *NONFINITE),
    _c("two labels may never skip", 20, instead(f"{C}.skips", _no_skips), "ctc.loss"),
    _c("equal labels may skip", 20, instead(f"{C}.skips", _all_skips), "ctc.loss"),
    _c("kernel backwards", 22, weight("conv.weight", lambda w: w[:, :, ::-1]), "ctc.conv"),
    _c("batch norm without its root", 23, instead(f"{C}.batch_norm", _no_root), "ctc.bn",
       "affine per slice"),
    _c("batch norm left out", 23, instead(f"{C}.batch_norm", lambda x, w, c: x), "ctc.bn",
       "affine per slice", "another tensor"),
    _c("batch norm without its mean", 23, weight("bn.mean", none), "ctc.bn", "offset per slice"),
    _c("batch norm without its weight", 23, weight("bn.weight", lambda w: 0 * w + 1), "ctc.bn",
       "affine per slice"),
    _c("batch norm folded twice", 23, patched(f"{C}.batch_norm", lambda f: lambda x, w, c: f(
        f(x, w, c), w, c)), "ctc.bn", "affine per slice"),
    _c("no bias of the convolution", 26, weight("conv.bias", none), "ctc.conv",
       "offset per slice"),
    _c("no bias of the head", 26, weight("head.bias", none), "ctc.logits_raw",
       "offset per slice"),
    _c("biases of two words exchanged", 26, weight("head.bias", lambda b: b[np.r_[0, 2, 1, 3:b.size
       ]]), "ctc.logits_raw", "offset per slice", "partial"),
)  # fmt: skip


# --- the transducer ---

R = "rnnt_joint"
_r = faults_of(R)


def _gates(order: Any) -> Any:
    return lambda w: w.reshape(4, -1, *w.shape[1:])[order].reshape(w.shape)


def _in_gates(order: Any) -> Any:
    names = ("pred.w_ih", "pred.w_hh", "pred.bias")
    return lambda run: replace(
        run, weights={**run.weights, **{n: _gates(order)(run.weights[n]) for n in names}}
    )


def _one_frame(enc: Any, pred: Any) -> Any:
    return (enc[:1] + 0 * enc)[:, None] + pred[None]


def _word_state(before: Any) -> Any:
    """Every word starts from the state of the piece's beginning."""

    def predicted(words: Any, state: Any, weights: Any) -> Any:
        rows, last = [], state
        for n in range(words.shape[0]):
            out, last = before(words[n : n + 1], state, weights)
            rows.append(out)
        return np.concatenate(rows), last

    return predicted


FIRST, CARRIED = "pred.out", "pred.out#1"
RNNT = (
    _r("states in bfloat16", 4, after(f"{R}.step", lambda s: (
        held_in(ml_dtypes.bfloat16)(s[0]), s[1])), FIRST),
    _r("hidden units in float16", 4, after(f"{R}.activation", held_in(np.float16)), "joint.hidden",
       "rounded to float16"),
    _r("relu for tanh", 6, instead(f"{R}.activation", ops.relu), "joint.hidden", "activation"),
    _r("no activation", 10, instead(f"{R}.activation", lambda x: x), "joint.hidden", "activation"),
    _r("product for the sum", 10, instead(f"{R}.joined", lambda a, b: a[:, None] * b[None]),
       "joint.hidden"),
    _r("gates in another order", 8, _in_gates([0, 1, 3, 2]), FIRST),
    _r("recurrent weight transposed", 8, weight("pred.w_hh", lambda w: np.concatenate(
        [part.T for part in np.split(w, 4)])), FIRST, "after the first"),
    _r("joint with words first", 8, stored("joint.hidden", lambda x, t: x.swapaxes(0, 1)),
       ("joint.hidden",), "wrong shape"),
    _r("first frame for all", 9, instead(f"{R}.joined", _one_frame), "joint.hidden", "broadcast"),
    _r("encoder's part left out", 11, instead(f"{R}.joined", lambda a, b: 0 * a[:, None] + b[None]),
       "joint.hidden", "broadcast"),
    _r("state not carried over", 15, instead(f"{R}.carried", lambda s: (0 * s[0], 0 * s[1])),
       "pred.h", "constant"),
    _r("cell not carried over", 15, instead(f"{R}.carried", lambda s: (s[0], 0 * s[1])), "pred.c",
       "constant"),
    _r("hidden and cell exchanged", 15, instead(f"{R}.carried", lambda s: (s[1], s[0])), "pred.h",
       "another tensor"),
    _r("cell taken for hidden", 15, instead(f"{R}.carried", lambda s: (s[1], s[1])), "pred.h",
       "another tensor"),
    _r("state of the last piece lost", 24, patched(f"{R}.predicted", lambda f: lambda w, s, x: f(
        w, (0 * s[0], 0 * s[1]), x)), CARRIED),
    _r("state lost at every word", 24, patched(f"{R}.predicted", _word_state),
       ("pred.embed", FIRST), "length"),
    _r("a start token too many", 16, given(1, lambda w: np.concatenate([[3], w[:-1]])),
       "pred.embed", "shifted"),
    _r("one word another", 16, given(1, lambda w: np.where(np.arange(w.size) == 2, w % 17 + 1, w)),
       "pred.embed", "partial"),
    _r("log-softmax left out", 18, instead(f"{R}.log_probabilities", lambda x: x),
       "joint.logprobs", "offset per slice"),
    _r("softmax over words of the piece", 10, instead(f"{R}.log_probabilities",
       lambda x: ops.log_softmax(x, axis=1)), "joint.logprobs"),
    _r("a word suppressed", 18, after(f"{R}.log_probabilities", lambda x: np.where(
        np.arange(x.shape[-1]) == 4, x.dtype.type(-np.inf), x)), "joint.logprobs", *NONFINITE),
    _r("last frame masked to NaN", 28, after(f"{R}.joined", lambda x: np.concatenate(
        [x[:-1], x[-1:] * x.dtype.type(np.nan)])), "joint.hidden", *NONFINITE),
    _r("output one word late", 27, after(f"{R}.predicted", lambda s: (
        np.concatenate([0 * s[0][:1], s[0][:-1]]), s[1])), "joint.pred", "shifted"),
    _r("no bias of the joint", 26, weight("joint.pred.bias", none), "joint.pred",
       "offset per slice"),
    _r("no bias of the encoder", 26, weight("joint.enc.bias", none), "joint.enc",
       "offset per slice"),
    _r("no bias of the head", 26, weight("joint.head.bias", none), "joint.logits_raw",
       "offset per slice"),
    _r("biases of the cell counted twice", 26, weight("pred.bias", lambda b: 2 * b), FIRST),
    _r("projections exchanged", 8, exchanged("joint.pred.bias", "joint.enc.bias"), "joint.enc",
       "offset per slice"),
)  # fmt: skip


# --- audio placed into a decoder's input ---

A = "audio_tokens"
T = "toy_transformer"
_a = faults_of(A)


def _added_in(words: Any, audio: Any, at: Any) -> Any:
    made = np.array(words)
    made[at] += audio
    return made


def _at(change: Any) -> Any:
    return patched(f"{A}.fused", lambda f: lambda words, audio, at: f(words, audio, change(at)))


def _of(change: Any) -> Any:
    return patched(f"{A}.fused", lambda f: lambda words, audio, at: f(words, change(audio), at))


def _rms(x: Any, weights: Any, config: Any) -> Any:
    weight_, bias = (weights[f"audio.norm.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    return ops.rms_norm(x, weight_, eps=config.decoder.eps) + bias


def _layer(x: Any, weights: Any, name: str, config: Any) -> Any:
    return ops.layer_norm(x, weights[f"{name}.weight"].astype(x.dtype), eps=config.eps)


FUSED = "dec.fused"
AUDIO = (
    _a("span one late", 17, _at(lambda at: at + 1), FUSED, "partial"),
    _a("span one early", 17, _at(lambda at: at - 1), FUSED, "partial"),
    _a("audio first of all", 17, _at(lambda at: np.arange(at.size)), FUSED, "partial"),
    _a("audio added to placeholders", 17, instead(f"{A}.fused", _added_in), FUSED, "partial"),
    _a("placeholders left", 17, instead(f"{A}.fused", lambda w, a, at: w), FUSED, "partial",
       "another tensor"),
    _a("audio backwards", 17, _of(lambda x: x[::-1]), FUSED, "partial", "slices permuted"),
    _a("first audio token everywhere", 17, _of(lambda x: 0 * x + x[:1]), FUSED, "partial"),
    _a("audio one token late", 17, _of(lambda x: np.concatenate([0 * x[:1], x[:-1]])), FUSED,
       "partial"),
    _a("last audio token lost", 17, patched(f"{A}.places", lambda f: lambda t, c: f(t, c)[:-1]),
       FUSED, "partial"),
    _a("audio scaled like words", 17, _of(lambda x: x * np.sqrt(x.dtype.type(x.shape[1]))), FUSED,
       "partial", "factor per slice"),
    _a("words scaled too", 6, lambda run: replace(run, config=replace(
        run.config, decoder=replace(run.config.decoder, scale=None))), "dec.token_emb", "scale"),
    _a("frames stacked by channel", 8, instead(f"{A}.stacked", lambda x, c: x.reshape(
        -1, c.stacked, x.shape[1]).swapaxes(1, 2).reshape(x.shape[0] // c.stacked, -1)),
       "audio.norm"),
    _a("frames of halves stacked", 8, instead(f"{A}.stacked", lambda x, c: np.concatenate(
        np.split(x, c.stacked), 1)), "audio.norm"),
    _a("RMS norm of the audio", 6, instead(f"{A}.audio_norm", _rms), "audio.norm"),
    _a("layer norm for RMS norm", 6, instead(f"{T}.norm", _layer), "dec.block.0.norm",
       "normalisation"),
    _a("epsilon 1e-5 for 1e-6", 6, lambda run: replace(run, config=replace(
        run.config, decoder=replace(run.config.decoder, eps=1e-5))), "audio.norm",
       structural=False),
    _a("epsilon 1e-3 for 1e-6", 6, lambda run: replace(run, config=replace(
        run.config, decoder=replace(run.config.decoder, eps=1e-3))), "audio.norm"),
    _a("silu in the adapter", 6, instead(f"{T}.activation", ops.silu), "audio.embed"),
    _a("audio in bfloat16", 4, after(f"{A}.adapted", held_in(ml_dtypes.bfloat16)), "audio.embed",
       "rounded to bfloat16"),
    _a("audio held in float16", 4, after(f"{A}.adapted", held_in(np.float16)), "audio.embed",
       "rounded to float16"),
    _a("no bias of the adapter", 26, weight("audio.down.bias", none), "audio.embed",
       "offset per slice"),
    _a("no bias of the audio norm", 26, weight("audio.norm.bias", none), "audio.norm",
       "offset per slice"),
    _a("pairs for halves", 13, lambda run: replace(run, config=replace(
        run.config, decoder=replace(run.config.decoder, interleaved=True))), "dec.block.0.q",
       "rotary"),
    _a("positions start behind the audio", 14, patched(f"{T}.rotary", lambda f: lambda x, at, c: f(
        x, np.maximum(at - 5, 0), c)), "dec.block.0.q", "after the first"),
    _a("audio sees what follows", 14, patched(f"{T}.causal", lambda f: lambda q, k, s: f(q, k, s) |
        ((np.arange(q)[:, None] < 9) & (np.arange(k)[None] < 9))), "dec.block.0.heads", "partial"),
    _a("template with one more word", 16, given(1, lambda t: np.concatenate([[1], t[:-1]])),
       "dec.token_emb", "shifted"),
    _a("key heads tiled", 12, instead(f"{T}.grouped", lambda x, c: np.tile(
        x, (c.heads // c.kv_heads, 1, 1))), "dec.block.0.scores", "partial"),
)  # fmt: skip

FAULTS = (*CTC, *RNNT, *AUDIO)
