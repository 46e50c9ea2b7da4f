"""How a program is run on each device profile, and on the StableHLO reference interpreter."""

from checks.devices.batch import DeviceError, run_batch, why_unavailable
from checks.devices.environment import cache_folder, doctor, doctor_lines, prepare_environment
from checks.devices.texts import Emitted, run_texts

__all__ = [
    "DeviceError",
    "Emitted",
    "cache_folder",
    "doctor",
    "doctor_lines",
    "prepare_environment",
    "run_batch",
    "run_texts",
    "why_unavailable",
]
