"""Capture the golden data of Whisper: `python -m tests.golden.whisper.capture [FOLDER]`.

The reference is `transformers.WhisperForConditionalGeneration` with eager attention on one thread,
given the weights that `checks.ports.whisper.random_weights` makes of a seed, and features by the
NumPy path of `transformers.WhisperFeatureExtractor`. With bfloat16 weights every product with one
rounds its input to bfloat16 and sums in float32, and the rest is float32: the policy of
`checks.ports.policy`, which PyTorch itself has not (its bfloat16 modules round every result).
"""

import argparse
import inspect
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from checks import gates
from checks.gates.formats.manifest import MANIFEST, Tensor
from checks.ports.policy import BF16, BF16_POLICY, rounded, wide
from checks.ports.whisper import SEED, TINY, example, random_weights
from checks.ports.whisper_config import AUDIO, TEXT, Config, Example, Weights
from tests.golden.needed import torch_for
from tests.golden.packed import packed

HERE = Path(__file__).parent
POLICIES = {"float32": "float32", "bf16": BF16_POLICY}
ROLES = {"*.logits": "informational"}


def _attention(name: str, path: str) -> dict[str, str]:
    parts = {f"{name}.{letter}": f"{path}.{letter}_proj" for letter in "qkv"}
    return parts | {f"{name}.out": f"{path}:0"}


def _layer(name: str, path: str, norms: tuple[str, ...]) -> dict[str, str]:
    found = {f"{name}.norm{n}": f"{path}.{norm}" for n, norm in enumerate(norms, 1)}
    found |= _attention(f"{name}.attn", f"{path}.self_attn")
    return found | {f"{name}.act": f"{path}.activation_fn", f"{name}.out": path}


_BLOCK, _LAYER = "dec.block.{N}", TEXT + ".layers.{N}"
POINTS = {
    "enc.conv.0.out": f"{AUDIO}.conv1",
    "enc.conv.1.out": f"{AUDIO}.conv2",
    "enc.pos_emb": f"{AUDIO}.embed_positions",
    **_layer("enc.block.{N}", AUDIO + ".layers.{N}", ("self_attn_layer_norm", "final_layer_norm")),
    "enc.final": f"{AUDIO}.layer_norm",
    "dec.token_emb": f"{TEXT}.embed_tokens",
    "dec.pos_emb": f"{TEXT}.embed_positions",
    **_layer(
        _BLOCK, _LAYER, ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    ),
    **_attention(f"{_BLOCK}.cross", f"{_LAYER}.encoder_attn"),
    "dec.out_before_head": f"{TEXT}.layer_norm",
    "dec.logits_raw": "proj_out",
}
# The result of none, but what goes into a module.
ENTERING = {
    "enc.conv.0.act": f"{AUDIO}.conv2",
    "enc.embed.out": f"{AUDIO}.layers.0",
    "dec.embed.out": f"{TEXT}.layers.0",
}
STEPS = {
    "dec.gen.token_emb": f"{TEXT}.embed_tokens",
    "dec.gen.pos_emb": f"{TEXT}.embed_positions",
    "dec.gen.block.{N}.attn.out": f"{_LAYER}.self_attn:0",
    "dec.gen.block.{N}.cross.out": f"{_LAYER}.encoder_attn:0",
    "dec.gen.block.{N}.out": _LAYER,
    "dec.gen.logits_raw": "proj_out",
}


def needed() -> Any:
    """PyTorch, where it and transformers are installed."""
    return torch_for("whisper/capture.py")


def reference(weights: Weights, config: Config) -> Any:
    """The model of transformers with these weights; positions of the encoder are its own.

    Where they are bfloat16, what goes into a product with them is rounded to it too.
    """
    torch = needed()
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    c = config
    facts: dict[str, Any] = {
        "vocab_size": c.words,
        "num_mel_bins": c.mels,
        "d_model": c.width,
        "max_source_positions": c.positions,
        "max_target_positions": c.length,
        "pad_token_id": c.pad,
        "bos_token_id": c.pad,
        "eos_token_id": c.pad,
        "decoder_start_token_id": c.start,
        "dropout": 0.0,
        "attn_implementation": "eager",
    }
    for side, layers in (("encoder", c.encoder_layers), ("decoder", c.decoder_layers)):
        facts |= {f"{side}_layers": layers, f"{side}_attention_heads": c.heads}
        facts[f"{side}_ffn_dim"] = c.hidden
    model = WhisperForConditionalGeneration(WhisperConfig(**facts)).eval()
    given = {name: torch.from_numpy(wide(w)) for name, w in weights.items()}
    missing, unknown = model.load_state_dict(given, strict=False)
    own = {f"{AUDIO}.embed_positions.weight", "proj_out.weight"}
    assert not unknown and set(missing) == own, (missing, unknown)
    if any(w.dtype == BF16 for w in weights.values()):
        positions = model.get_parameter(f"{AUDIO}.embed_positions.weight")
        positions.data = positions.data.to(torch.bfloat16).float()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear | torch.nn.Conv1d):
                module.register_forward_pre_hook(_rounded)
    return model


def _rounded(module: Any, args: Any) -> Any:
    del module
    return (args[0].bfloat16().float(), *args[1:])


def features(waveform: Any, config: Config) -> Any:
    """Features by the extractor's NumPy path (its other one is PyTorch's)."""
    from transformers import WhisperFeatureExtractor

    c = config
    extractor = WhisperFeatureExtractor(
        feature_size=c.mels, sampling_rate=c.rate, hop_length=c.hop, n_fft=c.n_fft
    )
    return extractor._np_extract_fbank_features(waveform, "cpu")


def capture(
    folder: Path, policy: str, weights: Weights | None = None, given: Example | None = None
) -> None:
    """Dump one run of the reference: forward, backward of the loss, and decode with a cache."""
    torch = needed()
    weights = random_weights(TINY, SEED) if weights is None else weights
    weights = rounded(weights) if policy == "bf16" else weights
    given = example(TINY, SEED) if given is None else given
    models = [reference(weights, TINY) for _ in range(2)]
    with gates.Dump(
        folder,
        side="reference",
        family="whisper",
        seed=SEED,
        command="python -m tests.golden.whisper.capture",
        dtype_policy=POLICIES[policy],
        threads=1,
        roles=ROLES,
    ) as d:
        given.noted(d)
        d.put("enc.wave", given.waveform)
        d.put("dec.tokens", given.tokens)
        mel = torch.from_numpy(features(given.waveform, TINY)).requires_grad_()
        d.put("enc.mel.in", mel)
        mel.register_hook(lambda g: d.put("grad.enc.mel.in", g))
        for name, path in ENTERING.items():
            module = models[0].get_submodule(path)
            module.register_forward_pre_hook(_entering(d, name), prepend=True)
        d.attach(models[0], _narrow(POINTS, policy), pick="first,mid,last")
        d.grads()
        audio = _forward(torch, d, models[0], mel, given)
        for n in (0, TINY.decoder_layers - 1):
            layer = models[1].get_submodule(f"{TEXT}.layers.{n}.self_attn")
            layer.register_forward_hook(_cache(d, n), with_kwargs=True)
        d.attach(models[1], STEPS, pick="first,mid,last")
        d.put("dec.gen.tokens", _decoded(torch, models[1], audio, given))


def _narrow(points: Mapping[str, str], policy: str) -> dict[str, str]:
    """All points, or those that a file of small size holds for a second policy."""
    inner = () if policy == "float32" else (".q", ".k", ".v", ".act")
    return {name: path for name, path in points.items() if not name.endswith(inner or "\0")}


def _forward(torch: Any, d: gates.Dump, model: Any, mel: Any, given: Example) -> Any:
    """Teacher-forced, then backward; returns the encoded audio."""
    result = model(
        mel,
        decoder_input_ids=torch.from_numpy(given.tokens),
        labels=torch.from_numpy(given.labels),
        use_cache=False,
    )
    d.put("dec.logits", result.logits.log_softmax(-1))
    d.put("dec.loss", result.loss)
    result.loss.backward()
    return result.encoder_last_hidden_state.detach()


def _decoded(torch: Any, model: Any, audio: Any, given: Example) -> Any:
    """The likeliest tokens after the prompt, one step at a time."""
    from transformers import DynamicCache, EncoderDecoderCache, WhisperModel

    known = inspect.signature(WhisperModel.forward).parameters
    word = "cache" if "cache" in known else "past_key_values"  # before transformers 5.24
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    tokens, found = torch.from_numpy(given.prompt.copy()), []
    with torch.no_grad():
        for _ in range(given.steps):
            result = model(
                encoder_outputs=(audio,), decoder_input_ids=tokens, use_cache=True, **{word: cache}
            )
            tokens = result.logits[:, -1:].argmax(-1)
            found.append(tokens)
    return torch.cat(found, dim=1)


def _entering(d: gates.Dump, name: str) -> Any:
    """A hook that dumps what goes into a module, and its gradient."""

    def hook(module: Any, args: Any) -> None:
        del module
        d.put(name, args[0])
        args[0].register_hook(lambda g: d.put(f"grad.{name}", g))

    return hook


def _cache(d: gates.Dump, n: int) -> Any:
    """A hook that dumps the keys of all tokens so far."""

    def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        del module, args, output
        (cache,) = (v for v in kwargs.values() if hasattr(v, "self_attention_cache"))
        d.put(f"dec.gen.block.{n}.cache.k", cache.self_attention_cache.layers[n].keys)

    return hook


def _thinned(dump: Path) -> None:
    """Of the gradients keep those of what is added to the residual streams, and of their ends."""
    ends = (".out", "enc.final", "dec.out_before_head", "dec.logits_raw")
    lines = (dump / MANIFEST).read_text(encoding="utf-8").splitlines(keepends=True)
    names = [Tensor.from_line(line).name for line in lines]
    kept = [
        line
        for line, name in zip(lines, names, strict=True)
        if not name.startswith("grad.") or ("param" not in name and name.endswith(ends))
    ]
    (dump / MANIFEST).write_text("".join(kept), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write the dump of each policy."""
    parser = argparse.ArgumentParser(description="capture the golden data of Whisper")
    parser.add_argument("folder", type=Path, nargs="?", default=HERE)
    folder = parser.parse_args(arguments).folder
    needed()
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as made:
            capture(Path(made) / "dump", policy)
            if policy == "bf16":
                _thinned(Path(made) / "dump")
            versions = {n: metadata.version(n) for n in ("torch", "transformers")}
            place = packed(Path(made) / "dump", folder / policy, **versions)
        print(f"{place}: {sum(f.stat().st_size for f in place.iterdir()):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
