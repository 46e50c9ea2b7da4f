"""Capture the golden data of Qwen3: `python -m tests.golden.qwen3.capture [FOLDER]`.

The reference is `transformers.Qwen3ForCausalLM` with eager attention on one thread, given the
weights that `checks.ports.qwen3.random_weights` makes of a seed. With bfloat16 weights every
nn.Linear rounds its input to bfloat16 and sums in float32, and the rest is float32: the policy of
`checks.ports.policy`, which PyTorch itself has not (its bfloat16 modules round every result).
"""

import argparse
import contextlib
import importlib
import itertools
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from checks import gates
from checks.ports.policy import BF16_POLICY
from checks.ports.qwen3_config import (
    ROLES,
    SEED,
    TINY,
    Config,
    Example,
    Weights,
    example,
    flat,
    random_weights,
)
from tests.golden.needed import torch_for
from tests.golden.packed import packed

HERE = Path(__file__).parent
POLICIES = {"float32": "float32", "bf16": BF16_POLICY}
LAYER = "model.layers.{N}"
POINTS = {
    "dec.token_emb": "model.embed_tokens",
    "dec.block.{N}.norm": f"{LAYER}.input_layernorm",
    "dec.block.{N}.q_norm": f"{LAYER}.self_attn.q_norm",
    "dec.block.{N}.k_norm": f"{LAYER}.self_attn.k_norm",
    "dec.block.{N}.v": f"{LAYER}.self_attn.v_proj",
    "dec.block.{N}.attn_probs": f"{LAYER}.self_attn:1",
    "dec.block.{N}.attn": f"{LAYER}.self_attn:0",
    "dec.block.{N}.attn_norm": f"{LAYER}.post_attention_layernorm",
    "dec.block.{N}.mlp": f"{LAYER}.mlp",
    "dec.block.{N}.out": LAYER,
    "dec.out_before_head": "model.norm",
    "dec.logits_raw": "lm_head",
}
STEPS = {"dec.gen.block.{N}.out": LAYER, "dec.gen.logits_raw": "lm_head"}


def needed() -> Any:
    """PyTorch, where it and transformers are installed."""
    return torch_for("qwen3/capture.py")


def reference(weights: Weights, config: Config, policy: str, order: int | None = None) -> Any:
    """The model of transformers with these weights.

    Arguments: weights in float32; sizes; "float32", or "bf16" to round the weights and the inputs
    of products; a seed of another order of the products' sums.
    """
    torch = needed()
    from transformers import Qwen3Config, Qwen3ForCausalLM

    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.groups,
            head_dim=config.head_width,
            intermediate_size=config.inner,
            rms_norm_eps=config.eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.theta},
            tie_word_embeddings=config.tied,
            max_position_embeddings=64,
            attn_implementation="eager",
        )
    ).eval()
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(weights), set(parameters) ^ set(weights)
    dtype = torch.bfloat16 if policy == "bf16" else torch.float32
    for name, parameter in parameters.items():
        parameter.data = torch.from_numpy(np.asarray(weights[name])).to(dtype)
    _wrap(torch, model, dtype, order)
    return model


def _wrap(torch: Any, model: Any, dtype: Any, order: int | None) -> None:
    """Give products the policy of their weights: inputs of that dtype, float32 sums."""
    functional = torch.nn.functional

    def linear(module: Any) -> Any:
        count = module.in_features
        rng = None if order is None else np.random.default_rng([order, count])
        kept = torch.arange(count) if rng is None else torch.from_numpy(rng.permutation(count))

        def forward(x: Any) -> Any:
            x, weight = x.to(dtype).float(), module.weight.float()
            if order is not None:
                x, weight = x[..., kept], weight[:, kept]
            return functional.linear(x, weight)

        return forward

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.forward = linear(module)
        elif isinstance(module, torch.nn.Embedding):
            module.forward = lambda ids, m=module: functional.embedding(ids, m.weight.float())


def capture(folder: Path, policy: str, order: int | None = None, seed: int = SEED) -> None:
    """Dump one run of the reference: forward, backward of the loss, and decode with a cache.

    Arguments: where; "float32" or "bf16"; a seed of another order of the products' sums; the seed
    of weights and tokens.
    """
    torch = needed()
    weights, given = random_weights(TINY, seed), example(TINY, seed)
    models = [reference(weights, TINY, policy, order) for _ in range(2)]
    with gates.Dump(
        folder,
        side="reference",
        family="qwen3",
        seed=seed,
        command="python -m tests.golden.qwen3.capture",
        dtype_policy=POLICIES[policy],
        threads=1,
        roles=ROLES,
    ) as d:
        given.noted(d)
        d.input("weights", flat(weights))
        d.put("dec.tokens", given.tokens)
        d.attach(models[0], POINTS, pick="all")
        d.grads()
        with _inside(torch, d):
            logits = models[0](torch.from_numpy(given.tokens)).logits
        rows = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.from_numpy(given.labels).flatten(), reduction="none"
        )
        d.put("dec.logits", logits.log_softmax(-1))
        loss = (rows * torch.from_numpy(given.shares).flatten()).sum()
        d.put("dec.loss", loss)
        loss.backward()
        d.attach(models[1], STEPS, pick="all")
        d.put("dec.gen.tokens", _decoded(torch, models[1], given))


@contextlib.contextmanager
def _inside(torch: Any, d: gates.Dump) -> Iterator[None]:
    """Put what no module returns: queries and keys at their positions, scores before the softmax.

    Scores of keys that are not seen become 0: the mask adds the least float32 to them.
    """
    module = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    functional, layers = torch.nn.functional, itertools.count()
    turn, softmax = module.apply_rotary_pos_emb, functional.softmax
    at = ""

    def put(name: str, x: Any, values: Any) -> None:
        key = f"{at}.{name}"

        def hook(gradient: Any) -> None:
            d.put(f"grad.{key}", gradient)

        d.put(key, values)
        x.register_hook(hook)

    def turned(*args: Any, **options: Any) -> Any:
        nonlocal at
        at = f"dec.block.{next(layers)}"
        q, k = turn(*args, **options)
        put("q", q, q)
        put("k", k, k)
        return q, k

    def weighed(x: Any, *args: Any, **options: Any) -> Any:
        put("scores", x, x.masked_fill(x < torch.finfo(x.dtype).min / 2, 0.0))
        return softmax(x, *args, **options)

    with (
        mock.patch.object(module, "apply_rotary_pos_emb", turned),
        mock.patch.object(functional, "softmax", weighed),
    ):
        yield


def _decoded(torch: Any, model: Any, given: Example) -> Any:
    """The likeliest tokens after the prompt, one step at a time."""
    tokens, cache, found = torch.from_numpy(given.prompt), None, []
    with torch.no_grad():
        for _ in range(given.steps):
            result = model(tokens, use_cache=True, cache=cache, logits_to_keep=1)
            tokens, cache = result.logits.argmax(-1), result.cache
            found.append(tokens)
    return torch.cat(found, dim=1)


def main(arguments: list[str] | None = None) -> int:
    """Write the dump of each policy."""
    parser = argparse.ArgumentParser(description="capture the golden data of Qwen3")
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    folder = parser.parse_args(arguments).folder
    needed()
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as made:
            capture(Path(made) / "dump", policy)
            versions = {n: metadata.version(n) for n in ("torch", "transformers")}
            place = packed(Path(made) / "dump", folder / policy, **versions)
        print(f"{place}: {sum(f.stat().st_size for f in place.iterdir()):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
