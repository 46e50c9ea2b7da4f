"""Device profiles: their tables, their self-checks, and the look-up by name."""

import dataclasses

import pytest

from autodiff.precision import DOT_MODES
from autodiff.profiles import PROFILES, DeviceProfile, profile
from autodiff.rounding import PrecisionError

KINDS = {
    *("EXP", "EXPM1", "LOG", "LOG1P", "TANH", "SIGMOID", "ERF", "ERFINV", "ERFC", "SINH", "EXP2"),
    *("SQRT", "RSQRT", "RECIPROCAL"),
}


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_complete(name: str) -> None:
    found = profile(name)
    assert found.name == name and found.dot in DOT_MODES
    assert set(found.max_ulp) == KINDS
    # No device is better than the rounding of its result.
    assert all(0.5 <= ulp < 5000 for ulp in found.max_ulp.values())


def test_the_profiles_of_the_design() -> None:
    dots = {name: p.dot for name, p in PROFILES.items()}
    assert dots == {
        "jax-cpu": "ieee",
        "jax-gpu": "tf32",
        "jax-tpu": "bf16x1",
        "torch-cpu": "ieee",
        "emulated:gb10": "tf32",
        "emulated:h200": "tf32",
        "emulated:tpu-v5e": "bf16x1",
    }
    folds = {name for name, p in PROFILES.items() if p.folds_converts}
    assert folds == {"jax-gpu", "jax-tpu", "emulated:gb10", "emulated:h200", "emulated:tpu-v5e"}
    flushes = {name for name, p in PROFILES.items() if p.flushes_subnormals}
    assert flushes == {"jax-cpu", "jax-tpu", "emulated:tpu-v5e"}


@pytest.mark.parametrize(
    ("name", "kind", "ulp"),
    [
        ("jax-cpu", "EXPM1", 6.5),
        ("jax-cpu", "SQRT", 0.5),
        ("jax-gpu", "LOG1P", 1),
        ("jax-gpu", "ERFC", 66.5),
        ("emulated:tpu-v5e", "LOG", 4030),
        ("emulated:tpu-v5e", "RECIPROCAL", 198),
        ("jax-tpu", "ERFC", 157),
    ],
)
def test_figures(name: str, kind: str, ulp: float) -> None:
    assert profile(name).max_ulp[kind] == ulp


def test_the_generic_tpu_is_no_better_than_any_generation() -> None:
    generic, v5e = profile("jax-tpu"), profile("emulated:tpu-v5e")
    assert all(generic.max_ulp[kind] >= v5e.max_ulp[kind] for kind in KINDS)


def test_a_profile_is_frozen() -> None:
    found = profile("jax-cpu")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.dot = "tf32"  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.max_ulp["EXP"] = 1  # type: ignore[index]
    figures = {"EXP": 1.0}
    own = dataclasses.replace(found, name="mine", max_ulp=figures)
    figures["EXP"] = 9.0
    assert own.max_ulp["EXP"] == 1.0
    assert len({found, own, found}) == 2


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(PrecisionError) as caught:
        profile("emulated:h100")
    assert caught.value.nearest == "emulated:h200"
    assert str(caught.value).splitlines() == [
        "unknown device profile: 'emulated:h100'",
        f"allowed: {', '.join(PROFILES)}",
        "did you mean 'emulated:h200'?",
    ]


@pytest.mark.parametrize(
    ("dot", "figures", "message"),
    [
        ("tf23", {}, "unknown dot mode: 'tf23'"),
        ("tf32", {"exp": 1.0}, "unknown op kind: 'exp'\nallowed: EXP\nfix max_ulp of profile 'x'"),
        ("tf32", {"EXP": 0.4}, "unknown max ulp of EXP: 0.4\nallowed: 0.5 or more"),
        ("tf32", {"EXP": float("inf")}, "unknown max ulp of EXP: inf"),
        ("tf32", {"EXP": float("nan")}, "unknown max ulp of EXP: nan"),
    ],
)
def test_a_profile_checks_itself(dot: str, figures: dict[str, float], message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        DeviceProfile("x", dot, False, False, figures)
