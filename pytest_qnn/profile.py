"""How much is tried: Hypothesis examples per rule, and the budgets of shrinking."""

from __future__ import annotations

import dataclasses
from typing import Any

from pytest_qnn.rules.rule import Rule


@dataclasses.dataclass(frozen=True)
class Profile:
    """One of ``--qnn-profile``'s values.

    A case in a child of a foreign library costs some 100 ms against 1 ms in process, so the two kinds
    have their own numbers of examples; both are in the report.
    """

    name: str
    in_process: int
    in_children: int
    hang_budget: int = 3
    """Cases that may hang before shrinking stops: each costs a whole ``--qnn-timeout``."""

    def examples(self, rule: Rule[Any, Any, Any], *, isolated: bool) -> int:
        """Examples to draw for a rule, at least one."""
        return max(1, round((self.in_children if isolated else self.in_process) * rule.weight))

    def shrink_budget(self, *, isolated: bool) -> int:
        """Cases that may be run after the first failure."""
        return 150 if isolated else 2000


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", in_process=20, in_children=5),
        Profile("default", in_process=100, in_children=20),
        Profile("thorough", in_process=1000, in_children=200),
    )
}
