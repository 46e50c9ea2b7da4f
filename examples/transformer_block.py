"""A transformer block with causal attention, in plain NumPy.

    h = x + W_o attention(norm(x)),   y = h + W_2 gelu(W_1 norm(h))

with pre-normalisation (layer norm), several heads and a causal mask (A. Vaswani et al., "Attention
is all you need", 2017; R. Xiong et al., "On layer normalization in the transformer architecture",
2020).
"""

import math
from typing import Any

import numpy as np
from scipy.special import erf

import autodiff as ad

Array = np.ndarray[Any, Any]
Params = dict[str, Array]


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    """Rows of x with mean 0 and variance 1, scaled and shifted."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * scale + shift


def softmax(x: Any) -> Any:
    """exp(x) / sum(exp(x)) along the last axis; 0 where x is -inf."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def gelu(x: Any) -> Any:
    """X Phi(x), Phi the normal distribution function."""
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def causal_attention(x: Any, w_qkv: Any, w_out: Any) -> Any:
    """Multi-head attention of x (t, d) in which a row sees itself and the rows before it.

    Arguments: w_qkv (3, heads, d, d / heads), w_out (heads, d / heads, d).
    """
    q, k, v = np.einsum("td,chde->chte", x, w_qkv)
    scores = np.einsum("hqe,hke->hqk", q, k) / math.sqrt(q.shape[-1])
    visible = np.tri(x.shape[0], dtype=bool)
    weights = softmax(np.where(visible, scores, -np.inf))
    return np.einsum("hqk,hke,hed->qd", weights, v, w_out)


def transformer_block(params: Any, x: Any) -> Any:
    """One block applied to x (t, d)."""
    x = x + causal_attention(
        layer_norm(x, params["scale_1"], params["shift_1"]), params["w_qkv"], params["w_out"]
    )
    hidden = gelu(layer_norm(x, params["scale_2"], params["shift_2"]) @ params["w_1"])
    return x + hidden @ params["w_2"]


def arguments(t: int = 4, d: int = 4, heads: int = 2) -> tuple[Params, Array]:
    """Random parameters of a block of width d, and an input of t rows."""
    rng = np.random.default_rng(0)
    shapes = {
        "w_qkv": (3, heads, d, d // heads),
        "w_out": (heads, d // heads, d),
        "w_1": (d, 2 * d),
        "w_2": (2 * d, d),
    }
    params = {k: rng.normal(size=s) / math.sqrt(d) for k, s in shapes.items()}
    for i in (1, 2):
        params[f"scale_{i}"] = rng.uniform(0.5, 1.5, d)
        params[f"shift_{i}"] = rng.normal(size=d) * 0.1
    return params, rng.normal(size=(t, d))


if __name__ == "__main__":
    weights, rows = arguments(t=16, d=32, heads=4)
    print(f"block output {transformer_block(weights, rows).shape}")
    gradient = ad.grad(lambda p, r: np.sum(transformer_block(p, r) ** 2))(weights, rows)
    for key, value in gradient.items():
        print(f"gradient with respect to {key} {value.shape}: norm {np.linalg.norm(value):.6f}")
    jacobian = ad.jacrev(lambda r: np.sum(transformer_block(weights, r), axis=1))(rows)
    future = np.triu(np.sum(np.abs(jacobian), axis=2), 1)
    print("a row depends on later rows:", bool(np.any(future)))
