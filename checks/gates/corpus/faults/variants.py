"""More faults in every model, written when the causes stood; none was adjusted to them."""

from typing import Any

import numpy as np

from autodiff import ops
from checks.gates.corpus.fault import (
    after,
    both,
    faults_of,
    given,
    instead,
    none,
    patched,
    stored,
    weight,
)

T, FRONT, C, R, A = "toy_transformer", "mel_front_end", "ctc_head", "rnnt_joint", "audio_tokens"
S, Q, W = "silero_vad", "qwen3", "whisper"
_t, _c, _r, _a = (faults_of(m) for m in (T, C, R, A))
_s, _q, _w = (faults_of(m) for m in (S, Q, W))
B0, D0, E0 = "enc.block.0", "dec.block.0", "model.encoder.layers.0"
MASKED = ("non-finite on the candidate mask", "non-finite on the candidate")


def _keys_late(before: Any) -> Any:
    """Keys, of which there are fewer heads, one position later than queries."""

    def rotary(x: Any, at: Any, config: Any) -> Any:
        return before(x, at + 1 if x.shape[0] == config.kv_heads else at, config)

    return rotary


def _last_norm_skipped(before: Any) -> Any:
    def norm(x: Any, weights: Any, name: str, config: Any) -> Any:
        return x if name == "enc.final" else before(x, weights, name, config)

    return norm


def _over_time(x: Any, weights: Any, name: str, config: Any) -> Any:
    centred = x - x.mean(0)
    root = np.sqrt((centred**2).mean(0) + x.dtype.type(config.eps))
    return centred / root * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _one_nan(x: Any, table: Any) -> Any:
    made = x.copy()
    made[3, 4] = np.nan
    return made


def _rolled_rows(*names: str) -> Any:
    return both(*(weight(n, lambda w: np.roll(w, 1, axis=0)) for n in names))


TOY = (
    _t("scores over the root of the width", 6,
       instead(f"{T}.scaling", lambda c: c.width**-0.5), f"{B0}.scores", "scale"),
    _t("gelu without its half", 6, after(f"{T}.activation", lambda x: 2 * x), f"{B0}.act", "scale"),
    _t("logarithm of one more", 6, instead(f"{FRONT}.log", np.log1p), "fe.mel"),
    _t("mel cut below", 6, after(f"{FRONT}.log_mel", lambda x: np.maximum(x, x.dtype.type(
        np.median(x)))), "fe.mel", "clipped"),
    _t("norm over time", 10, instead(f"{T}.norm", _over_time), f"{B0}.norm"),
    _t("bands upside down", 8, weight("fe.filters", lambda f: f[::-1]), "fe.mel", "reversed"),
    _t("signal backwards", 8, after(f"{FRONT}.log_mel", lambda x: x[::-1]), "fe.mel", "reversed"),
    _t("columns of the table rolled", 8, weight("dec.embedding", lambda w: np.roll(w, 1, 1)),
       "dec.token_emb", "shifted"),
    _t("result dumped in hundredths", 8, stored("enc.final", lambda x, t: 100 * x), "enc.final",
       "scale"),
    _t("last frame not dumped", 8, stored("enc.final", lambda x, t: x[:-1]), "enc.final", "length"),
    _t("batch axis dumped", 8, stored("enc.final", lambda x, t: x[None]), "enc.final",
       "wrong shape"),
    _t("stream dumped with the other sign", 8, stored(f"{B0}.mid", lambda x, t: -x), f"{B0}.mid",
       "sign"),
    _t("magnitudes dumped", 8, stored(f"{B0}.mid", lambda x, t: abs(x)), f"{B0}.mid", "signs"),
    _t("never written", 7, stored(f"{B0}.mid", lambda x, t: 0 * x), f"{B0}.mid", "constant"),
    _t("columns of the output weight by another order of heads", 12,
       weight("enc.block.0.self.o.weight", lambda w: np.roll(w, 8, 1)), f"{B0}.attn"),
    _t("keys one position late", 13, patched(f"{T}.rotary", _keys_late), f"{B0}.k", "rotary"),
    _t("last norm skipped", 10, patched(f"{T}.norm", _last_norm_skipped), "enc.final",
       "another tensor"),
    _t("no bias of the decoder's norm", 26, weight("dec.block.0.norm.bias", none), f"{D0}.norm",
       "offset per slice"),
    _t("one NaN", 28, stored(f"{B0}.mid", _one_nan), f"{B0}.mid", *MASKED),
    _t("table backwards", 16, weight("dec.embedding", lambda w: w[::-1]), "dec.token_emb"),
)  # fmt: skip

SMALL = (
    _c("features standardised", 2, given(0, lambda x: (x - x.mean(0)) / x.std(0)), "ctc.conv"),
    _c("mean added", 23, weight("bn.mean", lambda m: -m), "ctc.bn", "offset per slice"),
    _c("bias of the batch norm twice", 23, weight("bn.bias", lambda b: 2 * b), "ctc.bn",
       "offset per slice"),
    _c("no weight of the norm", 6, weight("norm.weight", lambda w: 0 * w + 1), "ctc.norm",
       "affine per slice"),
    _c("silu by 1.702", 6, instead(f"{C}.activation", lambda x: x * ops.sigmoid(
        x.dtype.type(1.702) * x)), "ctc.act", "activation"),
    _c("temperature", 6, after(f"{C}.head", lambda x: x * x.dtype.type(0.7)), "ctc.logits_raw",
       "scale"),
    _c("words one up", 16, _rolled_rows("head.weight", "head.bias"), "ctc.logits_raw", "shifted"),
    _r("bias of the head twice", 26, weight("joint.head.bias", lambda b: 2 * b),
       "joint.logits_raw", "offset per slice"),
    _r("hard tanh", 6, instead(f"{R}.activation", lambda x: np.clip(x, -1, 1)), "joint.hidden"),
    _r("frames one late", 1, given(0, lambda x: np.roll(x, 1, 0)), "joint.enc", "shifted"),
    _r("projection twice, bias once", 23, weight("joint.pred.weight", lambda w: 2 * w),
       "joint.pred", "affine per slice"),
    _a("audio halved", 17, patched(f"{A}.fused", lambda f: lambda w, a, at: f(
        w, a * a.dtype.type(0.5), at)), "dec.fused", "partial", "factor per slice"),
    _a("audio with its columns backwards", 17, patched(f"{A}.fused", lambda f: lambda w, a, at: f(
        w, a[:, ::-1], at)), "dec.fused", "partial", "same values elsewhere"),
    _a("mean of the audio everywhere", 17, patched(f"{A}.fused", lambda f: lambda w, a, at: f(
        w, 0 * a + a.mean(0), at)), "dec.fused", "partial"),
)  # fmt: skip

PORTS = (
    _q("words scaled", 6, after(f"{Q}.embed", lambda x: x * x.dtype.type(x.shape[-1]**0.5)),
       "dec.token_emb", "scale"),
    _q("value heads in another order", 12, weight("model.layers.0.self_attn.v_proj.weight",
       lambda w: np.roll(w, w.shape[0] // 2, 0)), f"{D0}.v", "slices permuted", "interleaved",
       "shifted"),
    _q("rectifier for silu", 6, patched(f"{Q}.mlp", lambda f: lambda w, x: ops.relu(f(w, x))),
       f"{D0}.mlp", "clipped"),
    _q("one item shifted", 16, given(0, lambda t: np.stack([t[0], np.roll(t[1], 1)])),
       "dec.token_emb", "partial", "same values elsewhere"),
    _q("bias where there is none", 26, after(f"{Q}.attended", lambda x: x + x.dtype.type(0.1)),
       f"{D0}.attn", "offset"),
    _q("keys' norm without its weight", 6, weight("model.layers.0.self_attn.k_norm.weight",
       lambda w: 0 * w + 1), f"{D0}.k_norm", "factor per slice"),
    _w("bands upside down", 8, after(f"{W}.filters", lambda f: f[::-1]), "enc.mel.in", "reversed"),
    _w("no bias of the second convolution", 26, weight("model.encoder.conv2.bias", none),
       "enc.conv.1.out", "offset per slice"),
    _w("no positions of the encoder", 14, after(f"{W}.encoder_positions", none), "enc.pos_emb",
       "constant"),
    _w("positions of words from two", 14, patched(f"{W}.decoder_positions", lambda f: lambda w, s,
       n: f(w, s + 2, n)), "dec.pos_emb", "shifted"),
    _w("audio backwards", 8, patched(f"{W}.cross", lambda f: lambda h, audio, *a: f(
        h, audio[:, ::-1], *a)), f"{D0}.cross.k", "reversed"),
    _w("no bias inside the feed-forward layer", 26, weight(f"{E0}.fc1.bias", none),
       "enc.block.0.act", "offset per slice"),
    _w("logits doubled", 6, after(f"{W}.head", lambda x: 2 * x), "dec.logits_raw", "scale"),
    _w("no bias of values", 26, weight(f"{E0}.self_attn.v_proj.bias", none), "enc.block.0.attn.v",
       "offset per slice"),
    _s("gain of a half", 25, given(0, lambda x: x * np.float32(0.5)), "audio.window", "scale"),
    _s("bias of the first convolution twice", 26, weight("encoder.0.reparam_conv.bias",
       lambda b: 2 * b), "enc.block.0.out"),
    _s("tanh for the sigmoid", 10, instead(f"{S}.probability", lambda y: np.mean(np.tanh(y), 2)),
       "dec.prob"),
    _s("basis over the window's sum", 2, weight("stft.forward_basis_buffer",
       lambda w: w / (w.shape[2] / 2)), "enc.stft.out", "scale"),
    _s("frames last for first", 8, stored("enc.mag.out", lambda x, t: x.swapaxes(1, 2)),
       "enc.mag.out", "wrong shape"),
)  # fmt: skip

FAULTS = (*TOY, *SMALL, *PORTS)
