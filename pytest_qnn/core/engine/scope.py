"""What one search for a rule's violation is about: not what is expected, was found, or is another rule's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_qnn.core.engine.attribution import Cause, call_of, traits
from pytest_qnn.core.engine.checking import noting_errors
from pytest_qnn.core.fingerprint import Fingerprint, Traits, fits
from pytest_qnn.core.known_failures import KnownFailure
from pytest_qnn.core.target import Target
from pytest_qnn.core.verdict import WORST_FIRST, Crashed, Hung, Outcome, Violation


class Place(NamedTuple):
    """Where a finding of a rule was made, and what it was: what is worse there is not the same."""

    fingerprint: Fingerprint
    outcome: Outcome

    def covers(self, violation: Violation, seen: Traits) -> bool:
        """Whether a violation is in this place, and no worse than the finding."""
        worst = WORST_FIRST.index
        no_worse = worst(violation.outcome.value) >= worst(self.outcome.value)
        return no_worse and fits(self.fingerprint, seen)


class Scope:
    """The facts for which cases are drawn, and which violations in them are passed over.

    Args:
        target: under judgement.
        accepted: failures of the rule that are expected.
        passed_over: where findings of the rule were made before.

    """

    def __init__(
        self,
        target: Target[Any, Any],
        accepted: Sequence[KnownFailure] = (),
        passed_over: Sequence[Place] = (),
    ) -> None:
        self.target = target
        self.accepted = accepted
        self.passed_over = passed_over
        self.met: dict[int, KnownFailure] = {}
        """The expected failures that were found, by their number."""
        self.errors: list[Exception] = []
        """Of the suite itself, where it looked for facts to leave out: the first one."""
        self.facts = target.facts
        """What cases are drawn for: of what was learned, what no known cause lies in."""

    def leave_out(self, cause: Cause) -> None:
        """Draw no further case that meets the cause, where the facts can say so."""
        with noting_errors(self.errors):
            self.facts = self.target.around(self.facts, cause.case, call_of(cause.violation))

    def behind(self, fingerprint: Fingerprint, outcome: Outcome) -> Scope:
        """The same for the search behind a finding at this place; what is met counts for both."""
        other = Scope(self.target, self.accepted, (*self.passed_over, Place(fingerprint, outcome)))
        other.met, other.facts, other.errors = self.met, self.facts, self.errors
        return other

    def is_known(self, case: Any, violation: Violation) -> bool:
        """Whether the failure is expected, or where a finding was made before.

        The search then goes on around it, without its kind of node.
        """
        place = self.place(case, violation)
        if place is not None:
            self._go_around(case, violation, place.fingerprint.operators)
            return True
        if not self.accepted:
            return False
        seen = traits(case, violation)
        for one in self.accepted:
            if one.verdict is violation.outcome and fits(one.fingerprint, seen):
                self.met[one.number] = one
                self._go_around(case, violation, one.fingerprint.operators)
                return True
        return False

    def place(self, case: Any, violation: Violation) -> Place | None:
        """The place of an earlier finding that the violation is in; None: it is in none."""
        return self.place_of(violation, traits(case, violation)) if self.passed_over else None

    def place_of(self, violation: Violation, seen: Traits) -> Place | None:
        """The same by what is known of the case."""
        return next((place for place in self.passed_over if place.covers(violation, seen)), None)

    def _go_around(self, case: Any, violation: Violation, operators: tuple[str, ...]) -> None:
        """Draw no further case with these operators, where the facts can say so."""
        wanted = Fingerprint(operators=operators)
        died = isinstance(violation, Crashed | Hung)
        with noting_errors(self.errors):
            for control in self.target.controls(case, died=died) if operators else ():
                if fits(wanted, traits(control.case, violation)):
                    facts, self.facts = self.facts, self.target.around(self.facts, control.case)
                    if self.facts is not facts:
                        return
