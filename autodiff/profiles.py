"""Device profiles: what a device does to float32 values, as numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autodiff.precision import check_dot_mode
from autodiff.rounding import PrecisionError


@dataclass(frozen=True)
class DeviceProfile:
    """How a device differs from one correct rounding per operation.

    Attributes:
        name: `framework-device`, or `emulated:device` for the interpreter in that device's stead.
        dot: dot mode of a float32 matrix product without a precision attribute.
        folds_converts: whether a float32 -> narrow -> float32 pair is dropped by default.
        flushes_subnormals: whether subnormal numbers become 0.
        max_ulp: largest error in ulp of float32 functions, by op kind; an emulated device has that
            of the device it stands for. An op without a figure is in no table known.

    Raises:
        PrecisionError: unknown dot mode, or a figure that no rounding reaches.
    """

    name: str
    dot: str
    folds_converts: bool
    flushes_subnormals: bool
    max_ulp: Mapping[str, float] = field(hash=False)

    def __post_init__(self) -> None:
        check_dot_mode(self.dot)
        for kind, ulp in self.max_ulp.items():
            fix = f"fix max_ulp of profile {self.name!r}"
            if kind != kind.upper():
                raise PrecisionError("op kind", kind, (kind.upper(),), fix)
            if not 0.5 <= ulp < math.inf:
                raise PrecisionError(f"max ulp of {kind}", ulp, ("0.5 or more, finite",), fix)
        object.__setattr__(self, "max_ulp", MappingProxyType(dict(self.max_ulp)))


_KINDS = (
    *("EXP", "EXPM1", "LOG", "LOG1P", "TANH", "SIGMOID", "ERF", "ERFINV", "ERFC", "SINH", "EXP2"),
    *("SQRT", "RSQRT", "RECIPROCAL"),
)


def _figures(*ulp: float) -> dict[str, float]:
    return dict(zip(_KINDS, ulp, strict=True))


# jax-ml/jax, docs/accuracy.md (2026-09): float32, all inputs. That page is newer than jax 0.10.2,
# where EXP on a CPU is off by 5.4; 6 is the budget of XLA's tests (codegen/intrinsic/accuracy).
_XLA_CPU = _figures(6, 6.5, 1.5, 3, 5, 2.5, 7, 65, 66, 25, 68.5, 0.5, 2, 0.5)
_XLA_GPU = _figures(2, 1.5, 1, 1, 5.5, 4, 6.5, 65, 66.5, 3, 69, 1, 2, 1)
_TPU_V5E = _figures(116, 1772, 4030, 4034, 1365, 243, 7.5, 427, 145, 1794, 141.5, 3, 2.5, 198)
# The worst of the generations v2 to 7x.
_TPU = _TPU_V5E | {"ERF": 8.5, "ERFC": 157}
# torch 2.13 on x86-64, every 509th float32 and every second one where errors are largest, rounded
# up; SINH below 88.7, where its exp overflows too early.
_TORCH_CPU = _figures(1, 1.5, 1, 1.5, 1, 2.5, 1.5, 1, 1, 1, 1, 1, 1.5, 0.5)

PROFILES = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            DeviceProfile("jax-cpu", "ieee", False, True, _XLA_CPU),
            DeviceProfile("jax-gpu", "tf32", True, False, _XLA_GPU),
            DeviceProfile("jax-tpu", "bf16x1", True, True, _TPU),
            DeviceProfile("torch-cpu", "ieee", False, False, _TORCH_CPU),
            DeviceProfile("emulated:gb10", "tf32", True, False, _XLA_GPU),
            DeviceProfile("emulated:h200", "tf32", True, False, _XLA_GPU),
            DeviceProfile("emulated:tpu-v5e", "bf16x1", True, True, _TPU_V5E),
        )
    }
)


def profile(name: str) -> DeviceProfile:
    """The profile of a device.

    Args:
        name: a key of `PROFILES`.

    Raises:
        PrecisionError: no such profile; the error names the nearest.
    """
    if name not in PROFILES:
        raise PrecisionError("device profile", name, tuple(PROFILES))
    return PROFILES[name]
