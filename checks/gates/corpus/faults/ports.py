"""Faults of the ports of published models: silero-vad, Qwen3, Whisper."""

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
from checks.ports import whisper

# --- silero-vad ---

S = "silero_vad"
_s = faults_of(S)
BASIS = "stft.forward_basis_buffer"


def _one_late(x: Any) -> Any:
    return np.concatenate([0 * x[:, :1], x[:, :-1]], axis=1)


def _unwindowed(w: Any) -> Any:
    at, count = np.arange(w.shape[2]), w.shape[0] // 2
    angle = 2 * np.pi * np.outer(np.arange(count), at) / w.shape[2]
    return np.concatenate([np.cos(angle), -np.sin(angle)])[:, None]


def _halves(w: Any) -> Any:
    return np.roll(w, w.shape[0] // 2, axis=0)


def _sines_turned(w: Any) -> Any:
    half = w.shape[0] // 2
    return np.concatenate([w[:half], -w[half:]])


def _zero_end(config: Any, x: Any) -> Any:
    return np.pad(x, ((0, 0), (0, config.pad)))


def _front_pad(config: Any, x: Any) -> Any:
    return np.pad(x, ((0, 0), (config.pad, 0)), mode="reflect")


def _gates(w: Any, order: Any = (0, 1, 3, 2)) -> Any:
    parts = np.split(w, 4)
    return np.concatenate([parts[n] for n in order])


def _no_state(which: str) -> Any:
    def make(before: Any) -> Any:
        def step(weights: Any, config: Any, chunk: Any, state: Any) -> Any:
            y, after_ = before(weights, config, chunk, state)
            return y, after_._replace(**{which: 0 * getattr(after_, which)})

        return step

    return patched(f"{S}.step", make)


def _state_exchanged(before: Any) -> Any:
    def step(weights: Any, config: Any, chunk: Any, state: Any) -> Any:
        y, found = before(weights, config, chunk, state)
        return y, found._replace(h=found.c, c=found.h)

    return step


def _state_of_first_chunk(before: Any) -> Any:
    def step(weights: Any, config: Any, chunk: Any, state: Any) -> Any:
        y, found = before(weights, config, chunk, state)
        return y, found._replace(h=state.h, c=state.c) if np.any(state.h) else found

    return step


SILERO = (
    _s("one sample late", 1, given(0, _one_late), "audio.window", "shifted"),
    _s("no window", 2, weight(BASIS, _unwindowed), "enc.stft.out"),
    _s("end padded with zeros", 3, instead(f"{S}.padded", _zero_end), "enc.pad.out", "partial"),
    _s("padded in front", 3, instead(f"{S}.padded", _front_pad), "enc.pad.out", "shifted"),
    _s("magnitudes in bfloat16", 4, after(f"{S}.magnitude", held_in(ml_dtypes.bfloat16)),
       "enc.mag.out", "rounded to bfloat16"),
    _s("power for magnitude", 6, after(f"{S}.magnitude", lambda x: x * x), "enc.mag.out"),
    _s("logarithm of the magnitude", 6, after(f"{S}.magnitude", np.log1p), "enc.mag.out"),
    _s("sines before cosines", 8, weight(BASIS, _halves), "enc.stft.out", "slices permuted",
       "shifted"),
    _s("gates in the order of ONNX", 8, lambda run: replace(run, weights={
        k: _gates(w, (0, 3, 1, 2)) if ".rnn." in k else w for k, w in run.weights.items()}),
       "dec.lstm.h"),
    _s("gates in another order", 8, lambda run: replace(run, weights={
        k: _gates(w) if ".rnn." in k else w for k, w in run.weights.items()}), "dec.lstm.h"),
    _s("rectifier left out of the head", 10, patched(f"{S}.head", lambda f: lambda w, h: f(
        w, h) - f(w, -h) + w["decoder.decoder.2.bias"].reshape(-1, 1).astype(h.dtype)),
       "dec.logits_raw"),
    _s("sines with the other sign", 6, weight(BASIS, _sines_turned), "enc.stft.out", "signs",
       "partial", "factor per slice"),
    _s("hidden state not carried", 15, _no_state("h"), "dec.lstm.h_in#1", "constant"),
    _s("cell not carried", 15, _no_state("c"), "dec.lstm.c_in#1", "constant"),
    _s("hidden and cell exchanged", 15, patched(f"{S}.step", _state_exchanged), "dec.lstm.h_in#1",
       "another tensor"),
    _s("state of the first chunk kept", 15, patched(f"{S}.step", _state_of_first_chunk),
       "dec.lstm.h_in#2", "stale"),
    _s("context not carried", 24, _no_state("context"), "audio.window#1", "partial"),
    _s("another model's weights", 20, lambda run: replace(run, weights={
        k: w if k == BASIS else np.roll(w, 1, -1) * w.dtype.type(1.1)
        for k, w in run.weights.items()}), "enc.block.0.out"),
    _s("kernels backwards", 22, lambda run: replace(run, weights={
        k: w[..., ::-1] if "conv" in k else w for k, w in run.weights.items()}), "enc.block.0.out"),
    _s("samples of 16 bits", 25, given(0, lambda x: 32768 * x), "audio.window", "scale"),
    _s("one bias of the cell left out", 26, weight("decoder.rnn.bias_hh", none), "dec.lstm.h"),
    _s("state dumped before the step", 27, stored("dec.lstm.c", lambda x, t: t["dec.lstm.h"]),
       "dec.lstm.c", "another tensor"),
)  # fmt: skip


# --- Qwen3 ---

Q = "qwen3"
_q = faults_of(Q)
D0 = "dec.block.0"
L0 = "model.layers.0"


def _layer_norm(x: Any, w: Any, eps: float) -> Any:
    return ops.layer_norm(x, w.astype(x.dtype), eps=eps)


def _pairs(x: Any, at: Any, theta: float) -> Any:
    return ops.rope(x, at, base=theta, interleaved=True)


def _no_norm(weights: Any, config: Any, name: str, x: Any) -> Any:
    y = x @ weights[f"self_attn.{name}_proj.weight"].T.astype(x.dtype)
    return y.reshape(*y.shape[:2], -1, config.head_width)


def _keys_alone(before: Any) -> Any:
    def normed(weights: Any, config: Any, name: str, x: Any) -> Any:
        return (_no_norm if name == "k" else before)(weights, config, name, x)

    return normed


def _first_left_out(before: Any) -> Any:
    """No norm in front of attention, whose inputs have three axes and the stream's width."""
    return lambda x, w, eps: before(x, w, eps) if x.ndim == 4 else x


def _all_seen(queries: int, keys: int) -> Any:
    return np.ones((queries, keys), bool)


def _later(change: Any) -> Any:
    """A change of `turned` where a past stands before."""
    return patched(f"{Q}.turned", lambda f: lambda c, x, start: f(c, x, change(start)))


def _word(tokens: Any) -> Any:
    made = tokens.copy()
    made[:, 3] = (made[:, 3] + 7) % 50
    return made


def _start_token(tokens: Any) -> Any:
    return np.concatenate([(tokens[:, :1] + 1) % 50, tokens[:, :-1]], axis=1)


def _unturned_heads(config: Any, x: Any) -> Any:
    return x.reshape(x.shape[0], -1, x.shape[1], config.head_width)


QWEN = (
    _q("norms in bfloat16", 4, after(f"{Q}.rms_norm", held_in(ml_dtypes.bfloat16)), f"{D0}.norm",
       "rounded to bfloat16"),
    _q("epsilon 1e-3 for 1e-6", 6, configured(eps=1e-3), f"{D0}.norm", "normalisation",
       "factor per slice"),
    _q("layer norm for RMS norm", 6, instead(f"{Q}.rms_norm", _layer_norm), f"{D0}.norm",
       "normalisation"),
    _q("norm weights plus one", 6, lambda run: replace(run, weights={
        k: w + w.dtype.type(1) if "layernorm" in k else w for k, w in run.weights.items()}),
       f"{D0}.norm", "factor per slice"),
    _q("scores not scaled", 6, instead(f"{Q}.scale", lambda config: 1.0), f"{D0}.scores", "scale"),
    _q("gate and up exchanged", 8, exchanged(f"{L0}.mlp.gate_proj", f"{L0}.mlp.up_proj"),
       f"{D0}.mlp"),
    _q("norms of queries and keys exchanged", 8,
       exchanged(f"{L0}.self_attn.q_norm", f"{L0}.self_attn.k_norm"), f"{D0}.q_norm",
       "factor per slice"),
    _q("queries and keys not normalised", 10, instead(f"{Q}.normed_heads", _no_norm),
       f"{D0}.q_norm", "normalisation"),
    _q("keys not normalised", 10, patched(f"{Q}.normed_heads", _keys_alone), f"{D0}.k_norm",
       "normalisation"),
    _q("first norm left out", 10, patched(f"{Q}.rms_norm", _first_left_out), f"{D0}.norm",
       "normalisation", "another tensor"),
    _q("no residual connection", 11, instead(f"{Q}.residual", lambda x, y: y),
       f"{D0}.attn_norm"),
    _q("branches halved", 11, instead(f"{Q}.residual", lambda x, y: x + y * x.dtype.type(0.5)),
       f"{D0}.attn_norm"),
    _q("key heads tiled", 12, instead(f"{Q}.repeat_heads", lambda x, n: np.concatenate([x] * n, 1)),
       f"{D0}.scores", "partial"),
    _q("value heads not turned", 12, instead(f"{Q}.heads_first", _unturned_heads), f"{D0}.attn"),
    _q("pairs for halves", 13, instead(f"{Q}.rope", _pairs), f"{D0}.q", "rotary"),
    _q("base 10000 for a million", 13, configured(theta=1e4), f"{D0}.q", "rotary"),
    _q("not turned", 13, instead(f"{Q}.rope", lambda x, at, theta: x), f"{D0}.q", "rotary"),
    _q("no causal mask", 14, instead(f"{Q}.seen", _all_seen), f"{D0}.scores", "mask"),
    _q("step at position zero", 15, _later(lambda start: 0), "dec.gen.block.0.out#1"),
    _q("step one position late", 15, _later(lambda start: start + 1 if start else 0),
       "dec.gen.block.0.out#1"),
    _q("one word another", 16, given(0, _word), "dec.token_emb", "partial"),
    _q("a start token too many", 16, given(0, _start_token), "dec.token_emb", "shifted"),
    _q("logits in 8 bits", 19, after(f"{Q}.head", held_in(ml_dtypes.float8_e4m3fn)),
       ("dec.logits_raw",), explained=True),
    _q("the second word for the best", 19, stored("dec.best.tokens", lambda x, t: np.argsort(
        t["dec.logits_raw"], -1)[..., -2]), "dec.best.tokens", explained=False),
    _q("the word of the place before", 19, stored("dec.best.tokens", lambda x, t: np.roll(x, 1, 1)),
       "dec.best.tokens", "shifted", explained=False),
    _q("past is zero", 24, instead(f"{Q}.extended", lambda past, new: np.concatenate(
        [0 * past, new], 2)), "dec.gen.block.0.out#1"),
    _q("blocks dumped one late", 27, stored(f"{D0}.out", lambda x, t: t["dec.block.1.out"]),
       f"{D0}.out", "another tensor"),
    _q("weights of two layers exchanged", 27, exchanged("model.layers.0.", "model.layers.1."),
       f"{D0}.norm", "factor per slice"),
)  # fmt: skip


# --- Whisper ---

W = "whisper"
_w = faults_of(W)
E0 = "enc.block.0"
A0 = "model.encoder.layers.0"


def _late(before: Any) -> Any:
    def padded(x: Any, config: Any) -> Any:
        whole = before(x, config)
        return np.concatenate([np.zeros_like(whole[:, : config.hop]), whole[:, : -config.hop]], 1)

    return padded


def _bank(low: float = 0.0, scale: str = "slaney") -> Any:
    def filters(config: Any) -> Any:
        high = min(8000.0, config.rate / 2)
        points, rate = config.n_fft, config.rate
        return ops.mel_weights(config.mels, points, rate, low, high, scale=scale, area=True)

    return filters


def _eps(x: Any, weights: Any, path: str) -> Any:
    scale, shift = (weights[f"{path}.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    return ops.layer_norm(x, scale, shift, eps=1e-3)


def _smaller_eps(x: Any, weights: Any, path: str) -> Any:
    scale, shift = (weights[f"{path}.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    return ops.layer_norm(x, scale, shift, eps=1e-6)


def _rms(x: Any, weights: Any, path: str) -> Any:
    scale, shift = (weights[f"{path}.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    return ops.rms_norm(x, scale, eps=whisper.EPS) + shift


def _interleaved(before: Any) -> Any:
    def sinusoids(length: int, width: int) -> Any:
        return before(length, width).reshape(length, 2, -1).swapaxes(1, 2).reshape(length, width)

    return sinusoids


def _unturned_split(x: Any, config: Any) -> Any:
    return x.reshape(x.shape[0], config.heads, x.shape[1], -1)


def _top_left(queries: int, keys: int) -> Any:
    return np.tri(queries, keys, 0, dtype=np.bool_)


WHISPER = (
    _w("one hop late", 1, patched(f"{W}.padded", _late), "enc.power", "shifted"),
    _w("HTK mel scale for Slaney's", 2, instead(f"{W}.filters", _bank(scale="htk")), "enc.mel.in",
       "mel filters"),
    _w("filters from 20 Hz", 2, instead(f"{W}.filters", _bank(low=20.0)), "enc.mel.in",
       "mel filters"),
    _w("filters not of one area", 2, after(f"{W}.filters", lambda f: f / f.max(
        1, keepdims=True)), "enc.mel.in", "offset per slice"),
    _w("zeros for reflection", 3, instead(f"{W}.padded", lambda x, c: np.pad(
        x, ((0, 0), (c.n_fft // 2,) * 2))), "enc.power", "partial"),
    _w("mel in bfloat16", 4, after(f"{W}.log_mel", held_in(ml_dtypes.bfloat16)), "enc.conv.0.out"),
    _w("natural logarithm", 6, instead(f"{W}.logarithm", np.log), "enc.mel.in", "affine",
       "logarithm"),
    _w("logarithm to base 2", 6, instead(f"{W}.logarithm", np.log2), "enc.mel.in", "affine",
       "logarithm"),
    _w("epsilon 1e-3 for 1e-5", 6, instead(f"{W}.norm", _eps), f"{E0}.norm1", "normalisation",
       "affine per slice"),
    _w("epsilon 1e-6 for 1e-5", 6, instead(f"{W}.norm", _smaller_eps), f"{E0}.norm1",
       "normalisation", "affine per slice", "factor per slice", structural=False),
    _w("RMS norm with the bias kept", 6, instead(f"{W}.norm", _rms), f"{E0}.norm1",
       "normalisation"),
    _w("gelu tanh", 6, instead(f"{W}.activation", lambda x: ops.gelu(x, approximate="tanh")),
       "enc.conv.0.act", "activation"),
    _w("queries not scaled", 6, instead(f"{W}.scaled", lambda q, config: q), f"{E0}.attn.out"),
    _w("positions in pairs", 8, patched(f"{W}.sinusoids", _interleaved), "enc.pos_emb",
       "interleaved"),
    _w("output weight transposed", 8, weight(f"{A0}.self_attn.out_proj.weight", lambda w: w.T),
       f"{E0}.attn.out"),
    _w("tanh for gelu", 10, instead(f"{W}.activation", np.tanh), "enc.conv.0.act", "activation"),
    _w("stream left out", 11, instead(f"{W}.stream", lambda x, *a: a[-1]), f"{E0}.norm2"),
    _w("heads not turned", 12, instead(f"{W}.split", _unturned_split),
       (f"{E0}.attn.out",)),
    _w("no causal mask", 14, instead(f"{W}.visible", _all_seen), "dec.block.0.attn.out",
       "before the last"),
    _w("positions of words from one", 14, patched(f"{W}.decoder_positions", lambda f: lambda w, s,
       n: f(w, s + 1, n)), "dec.pos_emb", "shifted"),
    _w("step in front of the past", 15, instead(f"{W}.grown", lambda past, new: np.concatenate(
        [new, past], 2)), "dec.gen.block.0.cache.k#1", "shifted", "slices permuted"),
    _w("step not written", 15, instead(f"{W}.grown", lambda past, new: past),
       "dec.gen.block.0.cache.k#1", "stale"),
    _w("step written over the last word", 15, instead(f"{W}.grown", lambda past, new:
       np.concatenate([past[:, :, :-1], new, 0 * new], 2)), "dec.gen.block.0.cache.k#1",
       "cache place"),
    _w("another word", 16, given(1, _word), "dec.token_emb", "partial"),
    _w("a start token too many", 16, given(1, _start_token), "dec.token_emb", "shifted"),
    _w("mask from the top left", 21, instead(f"{W}.visible", _top_left),
       "dec.gen.block.0.attn.out#1"),
    _w("kernel backwards", 22, weight("model.encoder.conv1.weight", lambda w: w[..., ::-1]),
       "enc.conv.0.out"),
    _w("past is zero", 24, instead(f"{W}.grown", lambda past, new: np.concatenate(
        [0 * past, new], 2)), "dec.gen.block.0.cache.k#1", "partial"),
    _w("first of the past is zero", 24, instead(f"{W}.grown", lambda past, new: np.concatenate(
        [0 * past[:, :, :1], past[:, :, 1:], new], 2)), "dec.gen.block.0.cache.k#1", "partial"),
    _w("no bias of the convolution", 26, weight("model.encoder.conv1.bias", none),
       "enc.conv.0.out", "offset per slice"),
    _w("no bias of queries", 26, weight(f"{A0}.self_attn.q_proj.bias", none), f"{E0}.attn.q",
       "offset per slice"),
    _w("no bias of the last norm", 26, weight("model.decoder.layer_norm.bias", none),
       "dec.out_before_head", "offset per slice"),
    _w("weights of two layers exchanged", 27, exchanged(
        "model.decoder.layers.0.", "model.decoder.layers.1."), "dec.block.0.norm1",
       "affine per slice"),
)  # fmt: skip

FAULTS = (*SILERO, *QWEN, *WHISPER)
