"""Wrong rules that no surface can tell from right ones, each with the reason."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Explained:
    """A survivor: op, rule, mutation, the places it stands for (none: all), and why it survives."""

    op: str
    rule: str
    mutation: str
    reason: str
    places: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.reason.split()) < 4:
            raise ValueError(f"{self.op} {self.rule}, {self.mutation}: give a reason in a sentence")

    def covers(self, op: str, rule: str, mutation: str, place: str) -> bool:
        """Whether this is about that mutant."""
        named = (op, rule, mutation) == (self.op, self.rule, self.mutation)
        return named and (not self.places or place in self.places)


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "SOFTMAX",
        "vjp",
        "missing sum",
        "the sum only picks the entry of the cotangent that the others are centred at; any centre "
        "gives the same derivative, short of a few digits where one class holds nearly all",
        places=("site 0",),
    ),
)


def explanation(op: str, rule: str, mutation: str, place: str) -> str:
    """Why this mutant survives, or the empty string."""
    return next((e.reason for e in EXPLAINED if e.covers(op, rule, mutation, place)), "")
