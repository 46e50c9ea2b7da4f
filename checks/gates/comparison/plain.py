"""Figures as strict JSON can hold them."""

import math
from dataclasses import asdict
from typing import Any

from checks.gates.comparison.detail import Detail
from checks.gates.comparison.measure import SHARES, Measured

FIGURES = (
    *("count", "differing", "max_abs", "mean_abs", "rms", "p99_abs"),
    *("disagreements", "eta", "eta_noise", "finite", "nonfinite", "sums", "crc"),
)


def measured_record(m: Measured) -> dict[str, Any]:
    """Return the figures of a pair for JSON."""
    record: dict[str, Any] = {n: getattr(m, n) for n in FIGURES}
    return record | {
        "worst_index": m.worst,
        "relative_rms": m.relative_rms,
        "cosine": m.cosine,
    }


def detail_record(d: Detail) -> dict[str, Any]:
    """Return what a failing tensor shows for JSON."""
    shares = [f"p{100 * s:g}" for s in SHARES]
    return {
        "quantiles": dict(zip(shares, d.quantiles, strict=False)),
        "quantiles_within": d.within,
        "worst": [asdict(e) for e in d.worst],
        "histogram": {"equal": d.equal, "power": d.power, "counts": d.counts},
        "strips": d.strips,
    }


def plain(value: Any) -> Any:
    """Return a value as strict JSON can hold it: NaN and infinities as text, tuples as lists."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
