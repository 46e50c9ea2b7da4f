"""Every known failure, in one table; each still runs and must fail as stated."""

from catalogue.entry import Exclusion

EXCLUSIONS: tuple[Exclusion, ...] = ()
