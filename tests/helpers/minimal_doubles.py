"""Rules and targets for the tests of searching: whatever a target does wrong, it does on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.strategies import SearchStrategy
from reducing import Reducing

from pytest_qnn.core.rule import Rule, Subject
from pytest_qnn.core.verdict import Examined, Finding, Level, Verdict, Violation
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.tflite.trace import DelegateTrace


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
    cases: SearchStrategy[Any], subject: Subject, check: Callable[[Any, Any], Examined] = survives
) -> Rule[Any, Any, Any]:
    return Rule(
        id="REG-99",
        level=Level.MUST,
        sentence="The target does as it should.",
        source="the tests",
        subject=subject,
        cases=lambda _facts: cases,
        check=check,
    )


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
