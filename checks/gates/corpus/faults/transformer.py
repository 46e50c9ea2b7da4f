"""Faults inside the blocks of the toy transformer: precision, formulas, branches, dumps."""

from typing import Any

import ml_dtypes
import numpy as np

from autodiff import ops
from checks.gates.corpus.fault import (
    Named,
    after,
    configured,
    dumped,
    exchanged,
    faults_of,
    held_in,
    instead,
    none,
    patched,
    stored,
    weight,
)

T = "toy_transformer"
FRONT = "mel_front_end"
B0, D0 = "enc.block.0", "dec.block.0"
NORM = (f"{B0}.norm",)
_f = faults_of(T)


# --- 4, 5: precision ---


def _half_sums(before: Any) -> Any:
    """Partial sums of eight terms held in bfloat16."""

    def product(x: Any, w: Any, *bias: Any) -> Any:
        total = np.zeros((*x.shape[:-1], w.shape[0]), np.float32)
        for n in range(0, w.shape[1], 8):
            total = total + before(x[..., n : n + 8], w[:, n : n + 8])
            total = total.astype(ml_dtypes.bfloat16).astype(np.float32)
        return total

    return product


def _cut(x: Any) -> Any:
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


PRECISION = (
    _f("mel stored in bfloat16", 4, after(f"{FRONT}.log_mel", held_in(ml_dtypes.bfloat16)),
       "fe.mel", "rounded to bfloat16"),
    _f("norms in float16", 4, after(f"{T}.norm", held_in(np.float16)), NORM, "rounded to float16"),
    _f("heads cut to tf32", 4, after(f"{T}.merge_heads", _cut), f"{B0}.heads",
       "truncated to tf32"),
    _f("table in float16", 4, weight("dec.embedding", held_in(np.float16)), "dec.token_emb",
       "rounded to float16", "scaled and rounded to float16"),
    _f("table in bfloat16", 4, weight("dec.embedding", held_in(ml_dtypes.bfloat16)),
       "dec.token_emb", "rounded to bfloat16", "scaled and rounded to bfloat16"),
    _f("bfloat16 operands", 4,
       patched(f"{T}.product", lambda before: lambda x, w: before(
           held_in(ml_dtypes.bfloat16)(x), held_in(ml_dtypes.bfloat16)(w))),
       (f"{B0}.v",), structural=False),
    _f("bfloat16 partial sums", 5, patched(f"{T}.product", _half_sums), f"{B0}.v",
       structural=False),
    _f("float16 partial sums", 5,
       patched(f"{T}.product", lambda before: lambda x, w: held_in(np.float16)(
           before(x[..., ::2], w[:, ::2])) + held_in(np.float16)(before(x[..., 1::2], w[:, 1::2]))),
       f"{B0}.v", structural=False),
)  # fmt: skip


# --- 6, 10: formulas and ops ---


def _rms_for_layer(x: Any, weights: Any, name: str, config: Any) -> Any:
    weight_, bias = (weights[f"{name}.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    return ops.rms_norm(x, weight_, eps=config.eps) + bias


def _unbiased(x: Any, weights: Any, name: str, config: Any) -> Any:
    weight_, bias = (weights[f"{name}.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).sum(-1, keepdims=True) / (x.shape[-1] - 1)
    return centred / np.sqrt(variance + x.dtype.type(config.eps)) * weight_ + bias


def _eps_outside(x: Any, weights: Any, name: str, config: Any) -> Any:
    weight_, bias = (weights[f"{name}.{n}"].astype(x.dtype) for n in ("weight", "bias"))
    centred = x - x.mean(-1, keepdims=True)
    root = np.sqrt((centred**2).mean(-1, keepdims=True)) + x.dtype.type(1e-3)
    return centred / root * weight_ + bias


def _softmax_off_by_one(x: Any) -> Any:
    top = x.max(-1, keepdims=True)
    e = np.exp(x - top)
    return e / (e.sum(-1, keepdims=True) + np.exp(-top))


FORMULAS = (
    _f("epsilon 1e-3 for 1e-5", 6, configured(eps=1e-3), NORM, "normalisation"),
    _f("epsilon 1e-6 for 1e-5", 6, configured(eps=1e-6), NORM, "normalisation", structural=False),
    _f("epsilon 2e-5 for 1e-5", 6, configured(eps=2e-5), NORM, "normalisation", structural=False),
    _f("epsilon outside the root", 6, instead(f"{T}.norm", _eps_outside), NORM, "normalisation"),
    _f("RMS norm for layer norm", 6, configured(norm="rms"), NORM, "normalisation"),
    _f("RMS norm with the bias kept", 6, instead(f"{T}.norm", _rms_for_layer), NORM,
       "normalisation"),
    _f("unbiased variance", 6, instead(f"{T}.norm", _unbiased), NORM,
       "normalisation", "affine per slice"),
    _f("norm weight plus one", 6, weight("enc.block.0.norm.weight", lambda w: w + 1), NORM,
       "affine per slice"),
    _f("gelu tanh in front", 6,
       instead(f"{FRONT}.activation", lambda x: ops.gelu(x, approximate="tanh")), "fe.conv",
       "activation"),
    _f("gelu tanh in the mlp", 6,
       instead(f"{T}.activation", lambda x: ops.gelu(x, approximate="tanh")), f"{B0}.act",
       "activation"),
    _f("gelu by a sigmoid", 6,
       instead(f"{T}.activation", lambda x: x * ops.sigmoid(x.dtype.type(1.702) * x)), f"{B0}.act",
       "activation"),
    _f("silu for gelu", 6, instead(f"{T}.activation", ops.silu), f"{B0}.act", "activation"),
    _f("relu for gelu", 6, instead(f"{T}.activation", ops.relu), f"{B0}.act", "activation"),
    _f("no scale of words", 6, configured(scale=1.0), "dec.token_emb", "scale"),
    _f("words times width", 6, configured(scale=32.0), "dec.token_emb", "scale"),
    _f("scores not scaled", 6, instead(f"{T}.scaling", lambda config: 1.0), f"{B0}.scores",
       "scale"),
    _f("scores over head", 6, instead(f"{T}.scaling", lambda config: 1.0 / config.head),
       f"{B0}.scores", "scale"),
    _f("tanh for gelu", 10, instead(f"{T}.activation", np.tanh), f"{B0}.act", "activation"),
    _f("sigmoid for softmax", 10, instead(f"{T}.softmax", ops.sigmoid), f"{B0}.heads"),
    _f("softmax with a one below", 10, instead(f"{T}.softmax", _softmax_off_by_one), f"{B0}.heads"),
    _f("maximum for the sum of branches", 10,
       instead(f"{T}.added", lambda x, y, config: np.maximum(x, y)), f"{B0}.mid"),
    _f("product for the sum of branches", 10,
       instead(f"{T}.added", lambda x, y, config: x * y), f"{B0}.mid"),
)  # fmt: skip


# --- 7, 27: what is dumped ---


def _reused(seen: list[Named]) -> list[Named]:
    table = dict(seen)
    return [(n, table[f"{B0}.mid"] if n == f"{B0}.attn" else x) for n, x in seen]


def _overwritten(x: Any, table: dict[str, Any]) -> Any:
    made = x.copy()
    made[: x.shape[0] // 2] = table["enc.block.1.out"][: x.shape[0] // 2]
    return made


def _exchanged(a: str, b: str) -> Any:
    def edit(seen: list[Named]) -> list[Named]:
        table = dict(seen)
        other = {a: b, b: a}
        return [(n, table[other.get(n, n)]) for n, x in seen]

    return dumped(edit)


DUMPS = (
    _f("buffer of the attention reused", 7, dumped(_reused), f"{B0}.attn",
       "another tensor", "residual"),
    _f("norm holds the block's result", 7,
       stored(f"{B0}.norm", lambda x, t: t[f"{B0}.out"]), NORM, "another tensor"),
    _f("half a buffer overwritten", 7, stored(f"{B0}.mid", _overwritten), f"{B0}.mid", "partial",
       "another tensor"),
    _f("dumps of two blocks exchanged", 27, _exchanged("enc.block.0.out", "enc.block.1.out"),
       f"{B0}.out", "another tensor"),
    _f("steps dumped in another order", 27,
       _exchanged("dec.gen1.logits_raw", "dec.gen2.logits_raw"), "dec.gen1.logits_raw",
       "another tensor"),
    _f("step dumped one late", 27,
       stored("dec.gen1.logits_raw", lambda x, t: t["dec.gen2.logits_raw"]), "dec.gen1.logits_raw",
       "another tensor"),
    _f("weights of two blocks exchanged", 27, exchanged("enc.block.0.", "enc.block.1."), NORM,
       "affine per slice"),
    _f("norm holds the attention", 8,
       stored(f"{D0}.norm", lambda x, t: t[f"{D0}.attn"]), f"{D0}.norm",
       "another tensor"),
    _f("norm dumped transposed", 8, stored(f"{B0}.norm", lambda x, t: x.T), NORM, "wrong shape"),
    _f("norm dumped in columns", 8,
       stored(f"{B0}.norm", lambda x, t: x.T.reshape(x.shape)), NORM, "reinterpreted"),
)  # fmt: skip


# --- 11, 26: branches and biases ---


def _bias(name: str) -> Any:
    return weight(f"{name}.bias", none)


BRANCHES = (
    _f("no residual connection", 11, instead(f"{T}.added", lambda x, y, config: y), f"{B0}.mid",
       "residual", "another tensor"),
    _f("branches halved", 11, configured(residual=0.5), f"{B0}.mid", "residual"),
    _f("branches twice", 11, configured(residual=2.0), f"{B0}.mid", "residual"),
    _f("stream twice", 11, instead(f"{T}.added", lambda x, y, config: x + x + y), f"{B0}.mid",
       "residual"),
    _f("branch subtracted", 11, instead(f"{T}.added", lambda x, y, config: x - y), f"{B0}.mid",
       "residual"),
    _f("branch left out", 11, instead(f"{T}.added", lambda x, y, config: x), f"{B0}.mid",
       "residual", "another tensor"),
    _f("no bias of values", 26, _bias("enc.block.0.self.v"), f"{B0}.v", "offset per slice"),
    _f("no bias of queries", 26, _bias("enc.block.0.self.q"), f"{B0}.q", "offset per slice"),
    _f("no bias of the output", 26, _bias("enc.block.0.self.o"), f"{B0}.attn", "offset per slice"),
    _f("no bias of the mlp", 26, _bias("enc.block.0.down"), f"{B0}.out", "offset per slice"),
    _f("no bias inside the mlp", 26, _bias("enc.block.0.up"), f"{B0}.act", "offset per slice"),
    _f("no bias of the convolution", 26, _bias("fe.conv"), "fe.conv", "offset per slice"),
    _f("no bias of the norm", 26, _bias("enc.block.0.norm"), NORM, "offset per slice"),
    _f("no bias of the last norm", 26, _bias("enc.final"), "enc.final", "offset per slice"),
    _f("no bias of the head", 26, _bias("dec.head"), "dec.logits_raw", "offset per slice"),
)  # fmt: skip


FAULTS = (*PRECISION, *FORMULAS, *DUMPS, *BRANCHES)
