from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis.strategies import SearchStrategy
from kept import keep

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.facts import Claim, DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, Combination, combination_of
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.rules.det.rules import poisoned
from pytest_qnn.tflite.rules.num.rules import elementwise
from pytest_qnn.tflite.rules.part.rules import single_nodes
from pytest_qnn.tflite.strategies import delegates as cases
from pytest_qnn.tflite.strategies.claimed import and_larger, claimed_kinds, mixed_kinds, taken
from pytest_qnn.tflite.target import open_delegate_target

pytestmark = pytest.mark.usefixtures("lessons")

SOME = settings(max_examples=60, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


def facts(claims: Callable[[Combination], bool]) -> DelegateFacts:
    """Of a plugin that claims these kinds of node."""
    return DelegateFacts(
        claims=tuple(Claim(kind, "claimed" if claims(kind) else "refused") for kind in GRID), steerable=False
    )


ADDS = facts(lambda kind: kind.op == "ADD" and kind.dtype == "float32" and kind.activation == "NONE")
INT8 = facts(lambda kind: kind.dtype == "int8")
SYMMETRIC = facts(lambda kind: kind.dtype == "int8" and not kind.zero_points)
NO_DILATION = facts(lambda kind: kind.form != "dilation")
NOTHING = facts(lambda _: False)


def graphs(strategy: SearchStrategy[DelegateCase]) -> list[Graph]:
    found: list[Graph] = []

    @SOME
    @given(strategy)
    def draw(case: DelegateCase) -> None:
        found.append(case.graph)

    draw()
    return found


def kinds(strategy: SearchStrategy[DelegateCase]) -> list[Combination | None]:
    return [combination_of(graph, node) for graph in graphs(strategy) for node in graph.nodes]


@pytest.mark.parametrize(
    "known", [ADDS, INT8, SYMMETRIC, NO_DILATION], ids=["adds", "int8", "symmetric", "no dilation"]
)
def test_at_least_half_of_the_nodes_are_claimed_and_some_are_refused(known: DelegateFacts) -> None:
    drawn = kinds(cases.anything(known))
    share = sum(kind in taken(known) for kind in drawn) / len(drawn)
    assert share >= 0.5
    assert set(drawn) - taken(known)


def learned(drawn: Iterable[Combination | None]) -> set[Combination | None]:
    """Without nodes of five dimensions: no target is asked whether it claims them."""
    return {kind for kind in drawn if kind is None or kind.rank <= 4}


def test_rules_about_numbers_are_asked_about_claimed_nodes_only() -> None:
    assert learned(kinds(elementwise(ADDS))) <= taken(ADDS)
    assert {kind.zero_points for kind in kinds(cases.quantised(SYMMETRIC)) if kind} == {False}


def test_an_int8_delegate_gets_int8_graphs_for_the_most_part() -> None:
    drawn = [kind for kind in kinds(cases.routing(INT8)) if kind]
    assert sum(kind.dtype == "int8" for kind in drawn) > 0.6 * len(drawn)


def test_one_parameter_at_a_time_reaches_every_claimed_parameter() -> None:
    drawn = {kind for kind in kinds(single_nodes(NO_DILATION)) if kind}
    assert {kind.form for kind in drawn} >= {"", "constant", "broadcast", "keep", "plane", "valid", "stride"}
    assert {kind.activation for kind in drawn} == {"NONE", "RELU", "RELU6"}
    assert {kind.quantisation for kind in drawn} == {"", "tensor", "channel"}
    assert learned(drawn) <= taken(NO_DILATION)


@pytest.mark.parametrize("factory", [cases.routing, poisoned, single_nodes, elementwise])
def test_a_target_that_claims_nothing_gives_rules_about_its_work_no_case(
    factory: Callable[[DelegateFacts], object],
) -> None:
    with pytest.raises(NothingToJudge, match="claimed none of the") as nothing:
        factory(NOTHING)
    assert nothing.value.unsupported is (factory.__name__ != "single_nodes")  # which says so


def test_a_target_without_a_type_does_not_support_the_rules_about_it() -> None:
    with pytest.raises(NothingToJudge, match="no float32") as nothing:
        elementwise(INT8)
    assert nothing.value.unsupported


def test_graphs_of_a_target_that_claims_all_or_is_unknown_are_drawn_from_all() -> None:
    everything = facts(lambda _: True)
    assert mixed_kinds(everything) == mixed_kinds(DelegateFacts()) == mixed_kinds(NOTHING)
    assert claimed_kinds(everything) == claimed_kinds(DelegateFacts())


def test_what_was_not_learned_counts_as_claimed() -> None:
    for outcome in ("died", "unknown", "failed"):
        unknown = DelegateFacts(claims=msgspec.convert([(kind, outcome) for kind in GRID], tuple[Claim, ...]))
        assert taken(unknown) == set(GRID)


def test_larger_graphs_come_on_top_and_the_simplest_stay_first() -> None:
    few = claimed_kinds(ADDS)
    more = and_larger(few)
    assert more[: len(few)] == few
    assert all(kind.large for kind in more[len(few) :])


@pytest.mark.parametrize("known", [ADDS, INT8], ids=["adds", "int8"])
def test_cases_shrink_to_one_claimed_node(known: DelegateFacts) -> None:
    quick = settings(max_examples=500, database=None, derandomize=True)
    case = find(cases.anything(known), lambda _: True, settings=quick)
    assert [combination_of(case.graph, node) in taken(known) for node in case.graph.nodes] == [True]


def test_a_rule_without_cases_is_inconclusive_at_once_with_the_reason() -> None:
    target = keep(open_delegate_target([("reference:nothing", {})], "auto", "off", 10.0))
    verdict = judge(catalogue()["PART-03"], target, PROFILES["quick"], seed=1)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.examples == 0
    assert "claimed none of the 371 kinds" in verdict.reason
