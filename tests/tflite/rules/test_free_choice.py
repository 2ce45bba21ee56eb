"""Delegates that choose by what documents leave to them: no rule is left open for want of cases."""

from __future__ import annotations

import itertools
from contextlib import closing
from math import prod

import numpy as np
import pytest
from fast_run import later, turn

from pytest_qnn.core.drawing import decoder_of, strings
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.file import check_case
from pytest_qnn.tflite.cases.valid import check_delegate
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.floors import FLOORS, LONGER, USUAL, Floor, raised
from pytest_qnn.tflite.graph.kinds import OPS, Kind, decode_graph, size_of
from pytest_qnn.tflite.graph.scales import CLASSES, MOST_OF_MANY
from pytest_qnn.tflite.strategies.shapes import MakeGraph
from pytest_qnn.tflite.target import open_delegate_target

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
FEW = Profile("few", 12, 12)
RULES = (
    *("DET-01", "DET-04", "LIFE-02", "LIFE-04", "MEM-02", "MEM-03", "MEM-04", "MEM-11", "NUM-01", "NUM-02"),
    *(
        "NUM-03",
        "NUM-06",
        "NUM-08",
        "NUM-10",
        "PART-03",
        "PART-10",
        "PART-11",
        "PART-15",
        "PART-17",
        "PART-18",
    ),
    *("PREC-03", "PREC-04", "PREC-08", "RSZ-01", "RSZ-03", "CTRL-02", "MEM-09", "XNN-01"),
)
SELDOM = {
    "large-tensors": {"MEM-09"},
    "main-only": {"CTRL-02", "XNN-01"},
    "long-partitions": {"XNN-01"},
    "largest-partition": {"XNN-01"},
    "float-only": {"NUM-03", "XNN-01"},
}
"""What a delegate of this kind leaves to the CPU."""


def facts_of(name: str) -> DelegateFacts:
    with closing(open_delegate_target([(f"reference:{name}", {})], RUNTIMES[0], "off", 10.0)) as target:
        facts: DelegateFacts = target.facts
        return facts


@pytest.mark.parametrize(
    ("name", "elements", "nodes"),
    [("large-tensors", 1031, 1), ("long-partitions", 0, LONGER), ("rank-4", 0, 1), ("main-only", 0, 1)],
)
def test_what_is_claimed_is_learned_with_the_smallest_graphs_of_which_something_is(
    name: str, elements: int, nodes: int
) -> None:
    facts = facts_of(name)
    assert (facts.floor.elements, facts.floor.nodes) == (elements, nodes)
    assert sum(claim.outcome == "claimed" for claim in facts.claims) > 30


def test_of_a_delegate_that_claims_nothing_all_sizes_are_asked_for() -> None:
    facts = facts_of("nothing")
    assert {claim.outcome for claim in facts.claims} == {"refused"}
    assert facts.floor == USUAL


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    "floor", FLOORS[1:], ids=lambda floor: f"{floor.elements}-{floor.nodes}{'-chain' * floor.chain}"
)
def test_no_graph_is_smaller_than_the_floor(floor: Floor, dtype: str) -> None:
    random = np.random.default_rng(1)
    kinds = [
        Kind("int8", OPS["int8"], floor=floor)
        if dtype == "int8"
        else Kind("float32", OPS["float32"], floor=floor)
    ]
    for most in (1, 3, 9):
        for scale in (*CLASSES[:3], CLASSES[-1]) if floor.elements < 2000 else CLASSES[:1]:
            graph, _ = decode_graph(random.bytes(size_of(most, 1)), kinds, 1, 1, most, scale)
            check_delegate(DelegateCase(graph))
            assert floor.nodes <= len(graph.nodes) <= max(floor.nodes, MOST_OF_MANY)
            assert prod(graph.tensors[graph.inputs[0]].shape) >= floor.elements


def test_a_class_that_is_large_enough_keeps_its_shapes() -> None:
    (large,) = (scale for scale in CLASSES if scale.name == "64 KiB")
    assert raised(large, FLOORS[3]) == large
    assert raised(CLASSES[0], FLOORS[3]).floats == FLOORS[3].shapes
    assert raised(CLASSES[0], USUAL) == CLASSES[0]


@pytest.mark.parametrize("make", [control.elastic, control.looping, control.branching, control.dynamic])
def test_graphs_with_shapes_and_ways_of_their_own_are_no_smaller_than_the_floor(
    make: MakeGraph,
) -> None:
    random = np.random.default_rng(2)
    for floor in (FLOORS[1], FLOORS[3]):
        for _ in range(5):
            graph = make(
                control.Bytes.of(random.bytes(control.size_of(12))),
                [control.Sized("float32", OPS["float32"], floor)],
            )
            floats = [
                graph.tensors[index] for index in graph.inputs if graph.tensors[index].dtype == "float32"
            ]
            assert all(prod(tensor.shape[1:]) >= floor.elements for tensor in floats)
            bodies = [part for part in graph.subgraphs if any(node.op != "LESS" for node in part.nodes)]
            assert all(len(part.nodes) >= floor.nodes for part in (graph, *bodies))


@pytest.mark.parametrize("rule_id", ["RSZ-01", "RSZ-03", "RSZ-04", "DYN-02", "BUF-01", "PART-04", "MEM-04"])
@pytest.mark.parametrize("floor", FLOORS[3:5], ids=lambda floor: f"{floor.elements}-{floor.nodes}")
def test_what_is_found_with_graphs_of_a_thousand_elements_can_be_replayed(floor: Floor, rule_id: str) -> None:
    known = decoder_of(catalogue()[rule_id].cases(DelegateFacts(floor=floor)))
    assert known is not None
    for data in itertools.islice(strings(known.size, 1), 34):
        check_case(known.decode(data))


@pytest.mark.parametrize(
    ("name", "runtime", "third"),
    [
        (name, runtime, third)
        if (number + place) % 2 == 0 and third == (number + 1) % 3 and number % 3 == 0
        else later(name, runtime, third)
        for number, name in enumerate(
            ["large-tensors", "long-partitions", "rank-4", "float-only", "largest-partition", "main-only"]
        )
        for place, runtime in enumerate(RUNTIMES)
        for third in range(3)
    ],
)
def test_no_rule_is_left_open_or_accuses_a_delegate_that_chooses_freely(
    name: str, runtime: str, third: int
) -> None:
    rules = [rule_id for rule_id in RULES if turn(rule_id) % 3 == third]
    with closing(open_delegate_target([(f"reference:{name}", {})], runtime, "off", 20.0)) as target:
        found = {rule_id: judge(catalogue()[rule_id], target, FEW, seed=3) for rule_id in rules}
    allowed = SELDOM.get(name, set())
    open_or_red = {
        rule_id: verdict
        for rule_id, verdict in found.items()
        if verdict.outcome is not (Outcome.UNSUPPORTED if rule_id in allowed else Outcome.PASS)
    }
    assert open_or_red == {}
