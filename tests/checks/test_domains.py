"""Domains of arguments: what is drawn, strategies of the same, mistakes."""

import numpy as np
import pytest
from hypothesis import given, settings

from checks import domains
from checks.domains import DOMAINS, DomainError

rng = lambda seed=0: np.random.default_rng(seed)  # noqa: E731

CASES = {
    "normal": (domains.normal(3, 4), lambda x: True),
    "positive": (domains.positive(50), lambda x: np.all((x >= 0.1) & (x <= 4.0))),
    "nonzero": (domains.nonzero(50), lambda x: np.all(np.abs(x) >= 0.29)),
    "unit": (domains.unit(50), lambda x: np.all((x > 0.0) & (x < 1.0))),
    "between": (domains.between(-1, 2.5, 50), lambda x: np.all((x >= -1) & (x <= 2.5))),
    "integers": (domains.integers(2, 5, 50), lambda x: set(x.tolist()) <= {2, 3, 4}),
    "distinct": (domains.distinct(9), lambda x: np.min(np.diff(np.sort(x))) > 0.1),
    "bools": (domains.bools(50), lambda x: x.any() and not x.all()),
    "complexes": (domains.complexes(5), lambda x: np.iscomplexobj(x)),
    "probabilities": (
        domains.probabilities(3, 4),
        lambda x: np.allclose(x.sum(-1), 1) and x.min() > 0,
    ),
    "spd": (domains.spd(2, 4, 4), lambda x: np.all(np.linalg.eigvalsh(x) > 0)),
    "symmetric": (domains.symmetric(4), lambda x: np.array_equal(x, x.T)),
    "orthogonal": (domains.orthogonal(4), lambda x: np.allclose(x @ x.T, np.eye(4))),
}


def test_every_domain_is_tested():
    assert set(CASES) == set(DOMAINS)


@pytest.mark.parametrize("name", CASES)
def test_draws_lie_in_the_domain(name):
    domain, holds = CASES[name]
    drawn = domain.draw(rng())
    assert drawn.shape == domain.shape
    assert holds(drawn)
    np.testing.assert_array_equal(drawn, domain.draw(rng()))
    assert not np.array_equal(drawn, domain.draw(rng(1)))


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("bools", "distinct")])
def test_strategies_lie_in_the_domain(name):
    domain, holds = CASES[name]

    @settings(max_examples=10)
    @given(domain.strategy())
    def check(x):
        assert isinstance(x, np.ndarray) and x.shape == domain.shape
        assert holds(x)

    check()


def test_shapes_dtypes_and_text():
    assert domains.normal().draw(rng()).shape == ()
    assert domains.normal(0, 3).draw(rng()).shape == (0, 3)
    assert domains.spd(3).shape == (3, 3) and repr(domains.spd(3)) == "spd(3)"
    assert repr(domains.between(-1, 2.5, 3)) == "between(-1, 2.5, 3)"
    assert domains.normal(2, dtype="float32").draw(rng()).dtype == np.float32
    assert domains.normal(2, dtype="bfloat16").draw(rng()).dtype.name == "bfloat16"
    assert domains.spd(3).symmetric and not domains.normal(3, 3).symmetric


MISTAKES = [
    (lambda: domains.normal(-1), "-1 is not the length of an axis"),
    (lambda: domains.normal(2.5), "2.5 is not the length of an axis"),
    (lambda: domains.normal((3, 4)), r"\(3, 4\) is not the length of an axis"),
    (lambda: domains.between(2, 1, 3), "2 and 1 are not two bounds in order"),
    (lambda: domains.between("a", 1, 3), "'a' and 1 are not two bounds in order"),
    (lambda: domains.spd(3, 4), r"spd\(3, 4\) is no square matrix"),
    (lambda: domains.spd(), r"spd\(\) is no square matrix"),
    (lambda: domains.normal(3, dtype="float63"), "there is no dtype 'float63'"),
    (lambda: domains.probabilities(), r"probabilities\(\) has no axis"),
]


@pytest.mark.parametrize(("make", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_worded(make, text):
    with pytest.raises(DomainError, match=text):
        make()
