"""Rules and targets for the tests of searching: whatever a target does wrong, it does on purpose."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from hypothesis.strategies import SearchStrategy
from reducing import Reducing

from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.known_failures import Expectations, KnownFailure
from pytest_qnn.core.rule import Rule, Subject
from pytest_qnn.core.verdict import Examined, Finding, Level, Outcome, Verdict, Violation
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.tflite.trace import DelegateTrace

Check = Callable[[Any, Any], Examined]


class FakeTarget(Reducing):
    """Runs nothing; ``run`` maps a case to a trace."""

    spec = "fake"
    isolated = False
    facts = None
    options = ()

    def __init__(self, subject: Subject, run: Callable[[Any], Any] | None = None) -> None:
        self.subject = subject
        self.cases: list[Any] = []
        self._run = run

    def run(self, case: Any) -> Any:
        self.cases.append(case)
        if self._run:
            return self._run(case)
        return MemoryTrace() if self.subject == "memory" else DelegateTrace()

    def provenance(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        pass


def survives(_case: Any, _trace: Any) -> Examined:
    """A check that only a death can break."""
    return Examined(1, "cases")


def made_up(
    cases: SearchStrategy[Any] | Callable[[Any], SearchStrategy[Any]],
    subject: Subject = "memory",
    check: Check = survives,
    rule_id: str = "REG-99",
    **more: Any,
) -> Rule[Any, Any, Any]:
    """A MUST with these cases, which may depend on the facts; ``more``: further fields of the rule."""
    return Rule(
        id=rule_id,
        level=Level.MUST,
        sentence="The target does as it should.",
        source="the tests",
        subject=subject,
        cases=(lambda _facts: cases) if isinstance(cases, SearchStrategy) else cases,
        check=check,
        **more,
    )


def case_of(size: int) -> MemoryCase:
    """A context and an allocation of this size, by which cases are told apart."""
    return MemoryCase((ContextCreate("c0"), Alloc("b0", size)))


def size_of(case: MemoryCase) -> int:
    """That of the allocation; 0 where a reduction has removed it."""
    return next((step.size for step in case.steps if isinstance(step, Alloc)), 0)


def known(rule_id: str = "REG-99", outcome: Outcome = Outcome.FAIL, **fingerprint: Any) -> Expectations:
    """One failure of a rule that is expected."""
    entry = KnownFailure(
        number=1,
        rule=rule_id,
        verdict=outcome,
        fingerprint=Fingerprint(**fingerprint),
        library={},
        reason="it is",
        issue="#1",
        owner="us",
        expires=datetime.date(2099, 1, 1),
    )
    return Expectations((entry,))


def refusing(wrong: Callable[[Any], bool]) -> Callable[[Any, Any], Examined]:
    """A check that is broken by the cases that are ``wrong``."""

    def check(case: Any, _trace: Any) -> Examined:
        if wrong(case):
            raise Violation("no such case", "one")
        return Examined(1, "cases")

    return check


def finding(verdict: Verdict) -> Finding:
    assert verdict.finding is not None, verdict
    return verdict.finding
