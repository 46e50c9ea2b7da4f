"""What a replay of blocks may say of a fault, besides what two arrays tell: one table.

Two readings (see `causes.replay`): the blocks given are right, and a change that gives the
candidate's output reproduces the fault; or they are the candidate's own, and a change that gives
the reference's output undoes it. What the candidate alone lost, such as a bias, is reproduced and
never undone; what it has more, such as a factor, is undone and never reproduced.
"""

from collections.abc import Mapping

from checks.gates.corpus.fault import Fault

RIGHT, OWN = READINGS = ("right", "own")
Told = Mapping[str, Mapping[str, str]]  # model, name of a fault, name of the cause

_BIAS, _WEIGHT, _LEFT, _INPUT = "missing bias", "missing weight", "left out", "input left out"
_PERMUTED, _OFF, _MASK = "permuted weight", "positions off by one", "wrong mask"
_LAYER = "another layer's weights"

BOTH: Told = {
    "toy_transformer": {
        "kernel backwards": _PERMUTED,
        "channels of the kernel in halves exchanged": _PERMUTED,
        "epsilon 1e-3 for 1e-5": "eps",
        "epsilon 1e-6 for 1e-5": "eps",
        "epsilon 2e-5 for 1e-5": "eps",
        "norm weight plus one": "weight off by one",
        "output weight transposed": "transposed weight",
        "pairs for halves": "rope pairing",
        "base 500000": "rope base",
        "positions from one": _OFF,
        "keys one position late": _OFF,
        "step one position late": _OFF,
        "step one position early": _OFF,
        "no causal mask": _MASK,
        "one future key seen": _MASK,
        "first row fully masked": _MASK,
        "weights of two blocks exchanged": _LAYER,
    },
    "ctc_head": {
        "mean added": "negated weight",
        "bias of the batch norm twice": "scaled weight",
    },
    "rnnt_joint": {
        "gates in another order": "gate order",
        "softmax over words of the piece": "wrong axis",
        "output one word late": "shifted input",
        "biases of the cell counted twice": "scaled weight",
        "bias of the head twice": "scaled weight",
    },
    "audio_tokens": {
        "layer norm for RMS norm": "norm",
        "silu in the adapter": "activation",
        "pairs for halves": "rope pairing",
    },
    "silero_vad": {
        "sines before cosines": _PERMUTED,
        "gates in the order of ONNX": "gate order",
        "gates in another order": "gate order",
        "tanh for the sigmoid": "activation",
        "state dumped before the step": "operand order",
        "bias of the first convolution twice": "scaled weight",
    },
    "qwen3": {
        "epsilon 1e-3 for 1e-6": "eps",
        "layer norm for RMS norm": "norm",
        "norm weights plus one": "weight off by one",
        "gate and up exchanged": "swapped weights",
        "pairs for halves": "rope pairing",
        "base 10000 for a million": "rope base",
        "no causal mask": _MASK,
        "weights of two layers exchanged": _LAYER,
        "value heads in another order": _PERMUTED,
    },
    "whisper": {
        "epsilon 1e-3 for 1e-5": "eps",
        "epsilon 1e-6 for 1e-5": "eps",
        "output weight transposed": "transposed weight",
        "no causal mask": _MASK,
        "kernel backwards": _PERMUTED,
        "weights of two layers exchanged": _LAYER,
    },
}

REPRODUCED: Told = {
    "toy_transformer": {
        "bfloat16 operands": "narrow products",
        "softmax with a one below": "factor per slice",
        "scores not scaled": _LEFT,
        "no residual connection": _INPUT,
        "branch left out": _INPUT,
        "not turned": _LEFT,
        "step at position zero": _LEFT,  # a turn by nothing is none
        "past is zero": _INPUT,
        "last norm skipped": _LEFT,
        "no bias of values": _BIAS,
        "no bias of queries": _BIAS,
        "no bias of the output": _BIAS,
        "no bias of the mlp": _BIAS,
        "no bias inside the mlp": _BIAS,
        "no bias of the convolution": _BIAS,
        "no bias of the norm": _BIAS,
        "no bias of the last norm": _BIAS,
        "no bias of the head": _BIAS,
        "no bias of the decoder's norm": _BIAS,
    },
    "ctc_head": {
        "batch norm without its mean": _BIAS,  # it is subtracted, and has one axis
        "batch norm without its weight": _WEIGHT,
        "no bias of the head": _BIAS,
        "no weight of the norm": _WEIGHT,
    },
    "rnnt_joint": {
        "no activation": _LEFT,
        "encoder's part left out": _INPUT,
        "log-softmax left out": _LEFT,
        "no bias of the joint": _BIAS,
        "no bias of the head": _BIAS,
    },
    "audio_tokens": {"no bias of the adapter": _BIAS},
    "silero_vad": {
        "rectifier left out of the head": _LEFT,
        "one bias of the cell left out": _BIAS,
    },
    "qwen3": {
        "scores not scaled": _LEFT,
        "queries and keys not normalised": _LEFT,
        "keys not normalised": _LEFT,
        "first norm left out": _LEFT,
        "no residual connection": _INPUT,
        "not turned": _LEFT,
        "keys' norm without its weight": _WEIGHT,
    },
    "whisper": {
        "queries not scaled": _LEFT,
        "stream left out": _INPUT,
        "no bias of the convolution": _BIAS,
        "no bias of the second convolution": _BIAS,
        "no bias of queries": _BIAS,
        "no bias of values": _BIAS,
        "no bias inside the feed-forward layer": _BIAS,
        "no bias of the last norm": _BIAS,
    },
}

UNDONE: Told = {
    "toy_transformer": {
        "epsilon outside the root": "eps",
        "RMS norm with the bias kept": "norm",
        "branches halved": _LEFT,
        "branches twice": _LEFT,
        "stream twice": _LEFT,
        "past is zero": _LEFT,  # the product with zero
        "first two of the past are zero": _LEFT,
        "gelu without its half": _LEFT,
        "log of a softmax that underflows": _LEFT,
        "softmax with a one below": _LEFT,
        "blocks joined without their maxima": _LEFT,  # each half less its own
    },
    "audio_tokens": {"audio sees what follows": _MASK},
    "ctc_head": {"silu by 1.702": _LEFT, "temperature": _LEFT},
    "rnnt_joint": {
        "encoder's part left out": _LEFT,
        "a word suppressed": _LEFT,
        "last frame masked to NaN": _LEFT,
    },
    "silero_vad": {"power for magnitude": _LEFT, "logarithm of the magnitude": _LEFT},
    "qwen3": {
        "branches halved": _LEFT,
        "rectifier for silu": _LEFT,
        "bias where there is none": _LEFT,
    },
    "whisper": {"RMS norm with the bias kept": "norm", "logits doubled": _LEFT},
}


# Where the gate that diverges first is made of an informational tensor, which holds the fault: what
# makes the gate is right.
INHERITS: Mapping[str, tuple[str, ...]] = {
    "toy_transformer": (
        "sigmoid for softmax",
        "softmax with a one below",
        "no causal mask",
        "one future key seen",
        "mask turned",
        "only four keys seen",
        "first row fully masked",
        "a padded row fully masked",
        "blocks joined without their maxima",
        "last block of keys left out",
    ),
    "audio_tokens": ("audio sees what follows",),
}


def told_by(fault: Fault, reading: str) -> tuple[str, ...]:
    """Return the names of causes that a replay may give of a fault in one reading."""
    tables = (BOTH, REPRODUCED if reading == RIGHT else UNDONE)
    found = (t.get(fault.model, {}).get(fault.name) for t in tables)
    return tuple(name for name in found if name is not None)
