"""Each mutant is found by each rule that its table names, everywhere it can be judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest
from fast_pairs import runtimes
from fast_run import first, later, turn
from over_the_reference import OverTheReference

from pytest_qnn.core.engine import first_failure, judge
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.qnn.cases.case import BOGUS, Binding, ContextCreate, Execute, MemoryCase, Prepare
from pytest_qnn.qnn.proxies import proxy_table
from pytest_qnn.rules import catalogue

PROXY = "proxy"
"""In front of a library that has no QnnMem of its own."""
CRASHES = {Outcome.CRASH, Outcome.FAIL}
"""Of a delegate that may end the process: some of them are found before they do."""
CONTRADICTIONS = {
    *("CAP-03", "CAP-06", "async-says-only", "pieces-say-only", "sections-say-only"),
    *("cap-handles-denied", "cap-messages-denied"),
    *("cap-dma-buf-as-ion", "dma-takes-ion", "ion-undeclared"),
}
"""Rules about what a target declares, and mutants that declare what they do not do."""
HANGS = {
    "async-forgets-freed",
    "async-never-notifies",
    "async-one-parameter",
    "list-forgets-last",
    "nom-waits",
    "oom-waits",
    "waits-at-a-mean",
    "waits-for-python",
}


MEASURED = ("LEAK-01", "LEAK-02", "LEAK-03", "OWN-02", "THR-05", "RSZ-05")
"""Rules that take seconds to find a mutant: of those that find the same one, the fast run has the first."""


def everywhere() -> Iterator[Any]:
    """Each mutant in each place; delegates in the fast run on one runtime.

    All controls of a case that breaks its rule are run, a hundred or two: in the fast run for one mutant in
    twelve.
    """
    for mutant in table().values():
        for place in PLACES[mutant.subject]:
            later = mutant.subject == "delegate" and place != runtimes(mutant.name)[0]
            measured = [rule for rule in mutant.kills if rule in MEASURED][1:]
            rules = [rule for rule in mutant.kills if rule not in measured]
            bare = turn(mutant.name) % 12 != 0
            if bare and not later:
                yield in_one_place(mutant, place, rules, controls=False)
            yield in_one_place(mutant, place, rules, *[pytest.mark.full] * (later or bare))
            if measured:
                yield in_one_place(mutant, place, measured, pytest.mark.full)
    for mutant in proxy_table().values():
        yield in_one_place(mutant, PROXY, mutant.kills)


def in_one_place(
    mutant: Mutant, place: str, rules: Sequence[str], *marks: pytest.MarkDecorator, controls: bool = True
) -> Any:
    """Some of the rules that the mutant names, which are in the test's id."""
    name = f"{mutant.name}-{'+'.join(rules)}-{place}{'' if controls else '-bare'}"
    return pytest.param(mutant, place, rules, controls, id=name, marks=marks)


def target_of(mutant: Mutant, place: str) -> Any:
    return OverTheReference(mutant) if place == PROXY else opened(mutant, place)


def expected(mutant: Mutant, rule_id: str) -> set[Outcome]:
    """How the rule may find the mutant."""
    if CONTRADICTIONS & {mutant.name, rule_id}:
        return {Outcome.CONTRADICTION}
    if mutant.name in HANGS:
        return {Outcome.HANG}
    if mutant.deadly:
        return {Outcome.CRASH} if mutant.subject == "memory" else CRASHES
    return {Outcome.FAIL}


@pytest.mark.parametrize(("mutant", "place", "names", "controls"), list(everywhere()))
def test_a_mutant_is_found_by_each_of_its_rules(
    mutant: Mutant, place: str, names: Sequence[str], *, controls: bool
) -> None:
    rules = catalogue()
    with closing(target_of(mutant, place)) as target:
        for rule_id in names:
            named = rules.__getitem__ if controls else None
            found = first_failure(rules[rule_id], target, profile("default"), 1, named)
            assert found is not None, rule_id
            assert found.violation.outcome in expected(mutant, rule_id), rule_id
            assert found.violation.expected, rule_id
            assert found.violation.seen, rule_id


@pytest.mark.parametrize(
    ("name", "rule_id", "outcome"),
    [
        ("reg-same-handle", "REG-02", Outcome.FAIL),
        ("cap-key-without-call", "CAP-03", Outcome.CONTRADICTION),
        later("half-deferred", "CAP-06", Outcome.CONTRADICTION),
        ("reg-maps-read-only", "REG-14", Outcome.CRASH),
        later("section-always-raw", "MSC-01", Outcome.CRASH),
        ("async-never-notifies", "EXE-18", Outcome.HANG),
        ("claims-twice", "PART-01", Outcome.FAIL),
        later("loads-aligned", "MEM-06", Outcome.CRASH),
        later("waits-for-python", "THR-06", Outcome.HANG),
    ],
)
def test_the_whole_judgement_ends_as_its_first_failure_does(
    name: str, rule_id: str, outcome: Outcome
) -> None:
    mutant = table()[name]
    with closing(opened(mutant, PLACES[mutant.subject][0])) as target:
        verdict = judge(catalogue()[rule_id], target, profile("default"), seed=3)
    assert verdict.outcome is outcome, verdict
    assert verdict.finding is not None
    assert verdict.finding.expected
    assert verdict.finding.seen
    assert not verdict.flaky


def test_an_unknown_handle_shrinks_to_context_prepare_execute() -> None:
    with closing(opened(table()["unknown-handle-zeros"], "reference")) as target:
        verdict = judge(catalogue()["EXE-05"], target, profile("default"), seed=3)
    assert verdict.finding is not None
    case = msgspec.json.decode(verdict.finding.case, type=MemoryCase)
    execute = Execute("g0", (Binding("handle", BOGUS), Binding(), Binding()))
    assert case.steps == (ContextCreate("c0"), Prepare("g0", "c0"), execute)


@pytest.mark.parametrize(
    "rule_id", first([f"PART-{number:02}" for number in (5, 1, 2, 4, 10, 11, 15, 16)], 3)
)
@pytest.mark.parametrize("name", ["approximates", "truncates"])
def test_wrong_numbers_do_not_break_a_rule_about_partitions(name: str, rule_id: str) -> None:
    with closing(opened(table()[name], PLACES["delegate"][0])) as target:
        verdict = judge(catalogue()[rule_id], target, profile("default"), seed=1)
    assert verdict.outcome is Outcome.PASS, verdict.finding
