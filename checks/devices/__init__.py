"""How a program is run on each device profile, and on the StableHLO reference interpreter."""

from checks.devices.batch import DeviceError, run_batch, why_unavailable
from checks.devices.environment import cache_folder, doctor, doctor_lines, prepare_environment
from checks.devices.interpreted import Emitted
from checks.devices.modules import Lowered, run_modules, run_twice

__all__ = [
    "DeviceError",
    "Emitted",
    "Lowered",
    "cache_folder",
    "doctor",
    "doctor_lines",
    "prepare_environment",
    "run_batch",
    "run_modules",
    "run_twice",
    "why_unavailable",
]
