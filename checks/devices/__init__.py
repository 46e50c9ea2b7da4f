"""How a program is run on each device profile, and on the StableHLO reference interpreter."""

from checks.devices.batch import DeviceError, run_batch, why_unavailable
from checks.devices.environment import cache_folder, doctor, prepare_environment

__all__ = [
    "DeviceError",
    "cache_folder",
    "doctor",
    "prepare_environment",
    "run_batch",
    "why_unavailable",
]
