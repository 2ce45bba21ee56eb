"""Delegate cases in which more is looked at: parts that several areas use."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import changed
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import need_claims

CaseStrategy = SearchStrategy[DelegateCase]
Change = Callable[[Application, int], Application]
"""(application of the target, seed) -> what it becomes."""


def claimed(facts: DelegateFacts) -> CaseStrategy:
    """A probe takes some nodes, then the target is applied; what it asks to preview is looked at."""
    need_claims(facts)
    return changed(delegates.behind_a_probe(facts), lambda case: replace(case, look=("previews",)))


def lent_nodes(facts: DelegateFacts) -> CaseStrategy:
    """Nodes become invalid after Prepare. Every second case applies the delegate again, after a resize."""
    return changed(
        delegates.routing(facts),
        lambda case: replace(case, look=("lifetimes",), redo=case.data_seed & 1),
    )


def with_target(case: DelegateCase, change: Change) -> DelegateCase:
    """The case with another application of the target."""
    applications = tuple(
        change(application, case.data_seed) if application.who == "target" else application
        for application in case.applications
    )
    return replace(case, applications=applications)
