"""Long lowering rules as functions of the module, traced and lowered once for calls on equal types.

A program and its derivatives call a special function several times, and a module holds many
programs: written out at each call, its hundreds of operations would be most of the module.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from autodiff.lower.options import portable

LONG = frozenset(
    "bessel_iv bessel_ive bessel_jv beta_density betainc betainc_ab gamma_density igamma igamma_a "
    "igammac polygamma trigamma zeta zeta_s expm expm_frechet minors minors_along norm_scale "
    "rng_bits".split()
)


def shared(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule under `jax.jit` where it is one of `LONG`, else the rule itself."""
    own = getattr(rule, "__module__", "").startswith("autodiff.lower.rules_")
    return _function(rule, portable()) if own and rule.__name__ in LONG else rule


@functools.lru_cache(maxsize=256)
def _function(rule: Callable[..., Any], portably: bool) -> Callable[..., Any]:
    """One function for each way to lower products: JAX's cache of traces does not know them."""
    import jax

    del portably

    @functools.wraps(rule)
    def function(*args: Any, **params: Any) -> Any:
        return rule(*args, **params)

    found = inspect.signature(rule).parameters.values()
    keywords = [p.name for p in found if p.kind is p.KEYWORD_ONLY]
    jitted: Callable[..., Any] = jax.jit(function, static_argnames=keywords)
    return jitted
