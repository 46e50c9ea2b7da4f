"""The Fourier transform extension: NumPy's functions, which dispatch on traced values."""

from typing import Any

import numpy as np

_NAMES = (
    "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift"
).split()


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(np.fft, name)
    raise AttributeError(f"module 'autodiff.namespace.fft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
