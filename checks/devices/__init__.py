"""How a program is run on each device profile, and on the StableHLO reference interpreter."""

from checks.devices.batch import DeviceError, run_batch, why_unavailable
from checks.devices.environment import cache_folder, doctor, doctor_lines, prepare_environment
from checks.devices.interpreted import Emitted
from checks.devices.joined import run_joined
from checks.devices.modules import Lowered, run_modules

__all__ = [
    "DeviceError",
    "Emitted",
    "Lowered",
    "cache_folder",
    "doctor",
    "doctor_lines",
    "prepare_environment",
    "run_batch",
    "run_joined",
    "run_modules",
    "why_unavailable",
]
