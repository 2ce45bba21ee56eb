"""Each smallest violation breaks its rule on its mutant, and no rule of its area on a conforming target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from fast_run import turn

from pytest_qnn.core import engine
from pytest_qnn.core.target import Target
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.mutants import REFERENCE, opened, table
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.report.explain import stored
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target

MEASURED = ("LEAK-", "QLEAK-", "THR-", "QTHR-", "RSZ-05", "OWN-02", "OWN-03", "LIFE-05", "SSR-01")
"""Rules whose cases take seconds, and of which threads make some a matter of chance."""
TRIES = 20
OF_ANOTHER_KIND = {
    ("ABI-04", "ABI-03"): "a key that nobody knows is given",
    ("ABI-15", "ABI-04"): "every key is known, and a library is missing",
    ("ABI-06", "ABI-03"): "a key that nobody knows is given, without a function that could say so",
    ("BUF-04", "BUF-05"): "the handle that is copied from is of a tensor",
    ("BUF-05", "BUF-02"): "the handle that is copied from is of no tensor",
    ("BUF-05", "BUF-04"): "the handle that is copied from is of no tensor",
    ("BUF-06", "BUF-05"): "the handle that is copied from is of a tensor",
    ("BUF-10", "BUF-05"): "the handle that is copied from is of a tensor",
    ("DET-02", "DET-01"): "the inputs change from invoke to invoke",
    ("DYN-03", "DYN-01"): "the delegate allows dynamic tensors",
    ("EXT-29", "EXT-31"): "the backend has no deferred initialisation",
    ("EXT-29", "EXT-32"): "the backend takes no pieces",
    ("NOM-06", "NOM-04"): "requests are refused in each of its rounds, also those of other interpreters",
    ("OFF-12", "OFF-08"): "the backend makes no contexts of lists",
    ("PART-12", "PART-17"): "an option limits what is claimed",
    ("PART-14", "PART-17"): "an option limits what is claimed",
    ("PRE-01", "PRE-04"): "the graph is composed with a mistake",
    ("PRE-01", "PRE-11"): "the graph is composed with a mistake",
    ("PRE-02", "PRE-11"): "the graph is composed with a mistake",
    ("PRE-06", "PRE-11"): "the graph is composed with a mistake",
    ("QTHR-05", "QTHR-01"): "the context is freed while it executes: calls may fail from then on",
    ("QTHR-05", "QTHR-03"): "the context is freed while it executes: calls may fail from then on",
    ("QTHR-05", "QTHR-04"): "the context is freed while it executes: calls may fail from then on",
    ("TFL-09", "TFL-04"): "the backend is the HTP's",
    ("TFL-15", "TFL-04"): "the backend is the HTP's",
    ("TFL-20", "TFL-08"): "the options are to be refused",
    ("TFL-21", "TFL-08"): "the options are to be refused",
    ("XNN-04", "XNN-03"): "XNNPACK is applied to what the delegate left",
}
"""(Rule of a case, another rule of its area) to why that one's check does not apply to it."""

EXAMPLES = stored.examples()


def parameters() -> Iterator[Any]:
    """Every example; a fortieth of those that are cheap in the fast run."""
    for rule_id in EXAMPLES:
        is_fast = turn(rule_id) % 40 == 0 and not rule_id.startswith(MEASURED)
        yield pytest.param(rule_id, marks=[] if is_fast else [pytest.mark.full])


def conforming(example: stored.Example) -> Target[Any, Any]:
    """The target on which the rule holds, opened."""
    sandbox = "fork" if table()[example.mutant].deadly else "auto"
    if example.file.subject == "memory":
        return open_memory_target(example.passes_on, "emulated", sandbox, 10.0)
    return open_delegate_target([(example.passes_on, example.options)], example.runtime, sandbox, 10.0)


@pytest.mark.parametrize("rule_id", list(parameters()))
def test_the_case_breaks_its_rule_on_the_mutant_and_none_on_the_conforming_target(rule_id: str) -> None:
    example = EXAMPLES[rule_id]
    rule, case = catalogue()[rule_id], example.file.case
    mutant = table()[example.mutant]
    assert rule_id in mutant.kills
    with closing(opened(mutant, example.runtime or REFERENCE)) as target:
        # A second time: what the first execute of a process maps can hide an IO buffer (QMG-13).
        tries = TRIES if rule_id.startswith(MEASURED) else 2
        judged = (engine.judge_case(rule, target, case) for _ in range(tries))
        found = next((one for one in judged if isinstance(one, Violation)), None)
    assert found is not None
    assert found.outcome.value == example.file.verdict
    with closing(conforming(example)) as target:
        held = engine.judge_case(rule, target, case)
        assert isinstance(held, Unsupported if example.unsupported else Examined), held
        trace = target.run(case)
    assert accusations(example, trace) == []


def accusations(example: stored.Example, trace: Any) -> list[str]:
    """Other rules of the area that the case breaks; a check that is for other kinds of case says nothing."""
    area = example.rule.partition("-")[0]
    found = []
    for rule in catalogue().values():
        if rule.area != area or rule.id == example.rule or (example.rule, rule.id) in OF_ANOTHER_KIND:
            continue
        try:
            rule.check(example.file.case, trace)
        except Violation as violation:
            found.append(f"{rule.id}: {violation}")
        except Exception:  # unsupported, or not made for this kind of case
            continue
    return found


def test_the_exceptions_are_of_rules_and_of_cases_that_there_are() -> None:
    assert all(one in EXAMPLES and other in catalogue() for one, other in OF_ANOTHER_KIND)
