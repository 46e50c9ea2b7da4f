"""A training loop in mixed precision: bfloat16 compute, float32 master weights, no loss scaling.

Images of seven-segment digits are made on the spot; a two-layer perceptron learns them with Adam.
bfloat16 has float32's exponents, so gradients do not underflow and need no scaling (D. Kalamkar et
al., "A study of bfloat16 for deep learning training", 2019).
"""

from typing import Any

import ml_dtypes
import numpy as np

import autodiff as ad

Array = np.ndarray[Any, Any]
Params = dict[str, Array]

# Segments lit by each digit: top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = ("1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010",
            "1111111", "1111011")  # fmt: skip
PLACES: tuple[tuple[Any, Any], ...] = (
    (0, slice(0, 4)),
    (slice(0, 4), 0),
    (slice(0, 4), 3),
    (3, slice(0, 4)),
    (slice(3, 7), 0),
    (slice(3, 7), 3),
    (6, slice(0, 4)),
)


def digits(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Images (count, 81), float32, of randomly placed, noisy digits, and their labels (count,)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = 0.2 * rng.normal(size=(count, 9, 9))
    for image, label in zip(images, labels, strict=True):
        row, column = rng.integers(0, 3, 2)
        for lit, place in zip(SEGMENTS[label], PLACES, strict=True):
            if lit == "1":
                image[row:, column:][place] += 1.0
    return images.reshape(count, -1).astype(np.float32), labels


def initial(width: int = 32, pixels: int = 81) -> Params:
    """Float32 parameters of the perceptron."""
    rng = np.random.default_rng(1)
    shapes = {"w1": (pixels, width), "w2": (width, 10)}
    params = {k: rng.normal(size=s) * np.sqrt(2.0 / s[0]) for k, s in shapes.items()}
    params |= {"b1": np.zeros(width), "b2": np.zeros(10)}
    return {k: v.astype(np.float32) for k, v in params.items()}


def loss(params: Any, images: Any, labels: Any, compute: Any = None) -> Any:
    """Mean cross entropy, a scalar in the parameters' dtype.

    Weights and activations are converted to `compute` (None: left as they are); the logits come
    back to the parameters' dtype before the loss.
    """
    wide = params["w1"].dtype
    cast = {k: v.astype(compute or wide) for k, v in params.items()}
    hidden = np.maximum(images.astype(compute or wide) @ cast["w1"] + cast["b1"], 0)
    logits = (hidden @ cast["w2"] + cast["b2"]).astype(wide)
    shifted = logits - np.max(logits, axis=1, keepdims=True)
    log_p = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    return -np.mean(log_p[np.arange(labels.shape[0]), labels])


def train(compute: Any = None, steps: int = 80, batch: int = 64) -> tuple[list[float], Params]:
    """Loss of each step (on that step's batch, before the update), and the trained parameters."""
    images, labels = digits(1024)
    params, losses = initial(), []
    slope = {k: np.zeros_like(v) for k, v in params.items()}
    square = {k: np.zeros_like(v) for k, v in params.items()}
    step_of = ad.compile(ad.value_and_grad(lambda p, x, y: loss(p, x, y, compute)))
    rng = np.random.default_rng(2)
    for step in range(1, steps + 1):
        rows = rng.integers(0, len(labels), batch)
        value, g = step_of(params, images[rows], labels[rows])
        losses.append(float(value))
        for k in params:  # Adam, in float32
            slope[k] = 0.9 * slope[k] + 0.1 * g[k]
            square[k] = 0.999 * square[k] + 0.001 * g[k] ** 2
            size = np.sqrt(square[k] / (1.0 - 0.999**step)) + 1e-8
            params[k] = params[k] - 0.01 * slope[k] / (1.0 - 0.9**step) / size
    return losses, params


def accuracy(params: Params, images: Array, labels: Array) -> float:
    """The share of images whose largest logit is that of their label."""
    hidden = np.maximum(images @ params["w1"] + params["b1"], 0)
    return float(np.mean(np.argmax(hidden @ params["w2"] + params["b2"], axis=1) == labels))


if __name__ == "__main__":
    held_out = digits(1000, seed=1)
    for name, dtype in (("float32", None), ("bfloat16", np.dtype(ml_dtypes.bfloat16))):
        curve, trained = train(dtype)
        marks = ", ".join(f"{curve[i]:.4f}" for i in (0, 9, 19, 39, 79))
        print(f"{name:9}: loss {marks}; held-out accuracy {accuracy(trained, *held_out):.1%}")
