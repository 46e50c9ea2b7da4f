"""The sizes, random weights and inputs of the Qwen3 port."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from checks.gates.capture.dump import Dump

Weights = Mapping[str, Any]
ROLES = {"*attn_probs": "informational", "dec.logits": "informational"}  # of a dump
EMBED, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model.

    Arguments:
        vocabulary: how many tokens there are.
        width: of the residual stream.
        layers: how many blocks.
        heads, groups: of queries, and of keys and values; groups divide heads.
        head_width: of one head, even; heads x head_width need not be the width.
        inner: the width of the gated unit.
        eps: added to the mean square under the root.
        theta: the base of the rotary angles.
        tied: the head's weight is the embedding's.

    Raises:
        ValueError: a size is not positive, head_width is odd, groups do not divide heads.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    head_width: int
    inner: int
    eps: float = 1e-6
    theta: float = 1e6
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "groups", "head_width", "inner"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is not positive: {getattr(self, name)}")
        if self.head_width % 2 or self.heads % self.groups:
            what = f"head_width {self.head_width}, heads {self.heads}, groups {self.groups}"
            raise ValueError(f"{what}: write an even head_width, and groups that divide the heads")


TINY = Config(
    vocabulary=97, width=32, layers=3, heads=6, groups=2, head_width=16, inner=48, tied=True
)
SEED = 18  # of the weights and tokens that the golden data are of


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by name; matrices are (out, in)."""
    c = config
    found: dict[str, tuple[int, ...]] = {EMBED: (c.vocabulary, c.width)}
    for n in range(c.layers):
        at = f"model.layers.{n}"
        for name, rows in (("q", c.heads), ("k", c.groups), ("v", c.groups)):
            found[f"{at}.self_attn.{name}_proj.weight"] = (rows * c.head_width, c.width)
        found[f"{at}.self_attn.o_proj.weight"] = (c.width, c.heads * c.head_width)
        found[f"{at}.self_attn.q_norm.weight"] = (c.head_width,)
        found[f"{at}.self_attn.k_norm.weight"] = (c.head_width,)
        found[f"{at}.mlp.gate_proj.weight"] = (c.inner, c.width)
        found[f"{at}.mlp.up_proj.weight"] = (c.inner, c.width)
        found[f"{at}.mlp.down_proj.weight"] = (c.width, c.inner)
        found[f"{at}.input_layernorm.weight"] = (c.width,)
        found[f"{at}.post_attention_layernorm.weight"] = (c.width,)
    found[NORM] = (c.width,)
    return found if c.tied else found | {HEAD: (c.vocabulary, c.width)}


def flat(weights: Weights) -> np.ndarray[Any, Any]:
    """Return all weights in one array, for a hash."""
    return np.concatenate([np.asarray(w).ravel() for w in weights.values()])


def random_weights(config: Config, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return float32 weights: the same on every machine.

    Every eighth token's embedding is small, so that the epsilon of a normalisation counts there.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes(config).items():
        drawn = rng.standard_normal(shape)
        if name == EMBED:
            drawn *= 0.03
            drawn[5::8] *= 0.1
        elif len(shape) == 2:
            drawn /= np.sqrt(shape[1])
        else:
            drawn = 1.0 + 0.25 * drawn
        found[name] = drawn.astype(np.float32)
    return found


@dataclass(frozen=True, slots=True)
class Example:
    """What a run is given.

    Arguments:
        tokens, labels: integers (batch, time); the labels are the next tokens.
        shares: what each label's loss is multiplied by, (batch, time).
        prompt: integers (batch, time), of the decode.
        steps: how many tokens are decoded.
    """

    tokens: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    shares: np.ndarray[Any, Any]
    prompt: np.ndarray[Any, Any]
    steps: int

    def noted(self, dump: "Dump") -> None:
        """Note the hashes of what is given in a dump, for another machine's to be held against."""
        for name in ("tokens", "labels", "shares", "prompt"):
            dump.input(name, getattr(self, name))


def example(config: Config, seed: int, batch: int = 2, time: int = 12) -> Example:
    """Return random tokens: of all twelve, the loss; of the first five, nine steps of decode."""
    rng = np.random.default_rng([seed, 1])
    tokens = rng.integers(0, config.vocabulary, (batch, time))
    shares = rng.uniform(0.5, 1.5, (batch, time))
    return Example(
        tokens=tokens,
        labels=np.concatenate([tokens[:, 1:], tokens[:, :1]], axis=1),
        shares=shares.astype(np.float32),
        prompt=tokens[:, :5],
        steps=9,
    )
