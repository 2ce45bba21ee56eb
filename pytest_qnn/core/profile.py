"""How much is tried: Hypothesis examples per rule, and the budgets of shrinking."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from pytest_qnn.core.rule import Rule

_RULE_SECONDS = 5.0
"""For the cases of one rule, on a target whose plain case takes long: some fifteen minutes for all rules."""
_FEWEST = 3
"""Examples of a rule there."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """One of ``--qnn-profile``'s values: flat numbers, and a plan with numbers for single rules.

    A rule that the plan names gets that number, wherever its cases run. Every other one (all of them, where
    there is no plan) gets a flat number times its `Rule.weight`, in which memory cases in children are apart:
    one costs up to 200 ms there (a foreign QNN backend is initialised in each), a delegate case 10 ms, and
    any case in this process 1 or 2 ms. How many were run is in the report.
    """

    name: str
    in_process_examples: int
    """Flat number of examples of every other case: of a delegate, or of a QNN backend in this process."""
    isolated_examples: int
    """Flat number of examples of memory cases in children."""
    shrink_seconds: float = 10.0
    """Seconds after the first failure in which a smaller case is looked for. A case may take a second
    (threads, real libraries, measurements): a budget of cases alone made one finding of a leak cost 68 s."""
    hang_budget: int = 5
    """Cases that may hang for one rule, its repeat included: each costs a whole ``--qnn-timeout``."""
    whole_lists: bool = False
    """Of a rule that lists its cases all are run, whatever the number of examples."""
    whole_domain: bool = False
    """All cases are run of a rule that asks for it (`Rule.listed_whole`), also without ``whole_lists``."""
    repeats: int = 5
    """Further runs of a minimal case, to tell a failure from a flake; one that hangs is repeated once."""
    plan: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Examples by rule: what was measured for it."""
    most_examples: int = 0
    """Of any rule; 0: no more than the numbers above say."""

    def without_hang_shrinking(self) -> Profile:
        """The same for a target in which several rules have hung: a hang is repeated once and not shrunk."""
        return dataclasses.replace(self, hang_budget=2)

    def for_cases_of(self, seconds: float) -> Profile:
        """The same for a target whose plain case takes so long; 0: not long.

        Each rule gets as many examples as fit into `_RULE_SECONDS`, at least `_FEWEST`, and no whole lists
        but those of `Rule.listed_whole`. ``thorough`` stays what it is: who asks for it has the time.
        """
        if not seconds or self.name == "thorough":
            return self
        return dataclasses.replace(self, most_examples=max(_FEWEST, int(_RULE_SECONDS / seconds)))

    def whole(self, rule: Rule[Any, Any, Any]) -> bool:
        """Whether all cases are run of a rule that lists them."""
        return (
            self.looks_at_whole_domain if rule.listed_whole else self.whole_lists and not self.most_examples
        )

    @property
    def looks_at_whole_domain(self) -> bool:
        """Whether all cases are run of a rule that asks for it."""
        return self.whole_lists or self.whole_domain

    def without_seconds(self) -> Profile:
        """The same with budgets in cases only: what is found then depends on nothing but the answers."""
        return dataclasses.replace(self, shrink_seconds=math.inf)

    def examples(self, rule: Rule[Any, Any, Any], *, isolated: bool) -> int:
        """Examples to draw for a rule, at least one."""
        planned = self.plan.get(rule.id)
        if planned is None:
            in_children = isolated and rule.subject == "memory"
            examples = self.isolated_examples if in_children else self.in_process_examples
            planned = max(1, round(examples * rule.weight))
        return min(planned, self.most_examples or planned)

    def shrink_budget(self, *, isolated: bool) -> int:
        """Cases that may be run after the first failure: a third by Hypothesis, the rest by reduction."""
        return 180 if isolated else 2000


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", in_process_examples=20, isolated_examples=5, shrink_seconds=5.0, whole_domain=True),
        Profile("default", in_process_examples=100, isolated_examples=100, whole_lists=True),
        Profile(
            "thorough", in_process_examples=1000, isolated_examples=200, shrink_seconds=60.0, whole_lists=True
        ),
    )
}
"""The flat numbers; `pytest_qnn.effort.profile` adds the plan."""
