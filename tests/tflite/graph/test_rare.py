"""Nodes outside the grid, and constants in another's place: valid graphs, which both runtimes compute."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from pytest_qnn.core.drawing import decoder_of, strings
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.valid import check_delegate, check_graph
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.combinations import combination_of
from pytest_qnn.tflite.graph.constants import with_other_constants
from pytest_qnn.tflite.graph.graph import Graph, Node
from pytest_qnn.tflite.graph.rare import with_grouped
from pytest_qnn.tflite.strategies import delegates

STEERABLE = DelegateFacts(steerable=True)
SEARCH = 24
EIGHT = 8


def searched(seed: int) -> list[DelegateCase]:
    known = decoder_of(delegates.with_rare(STEERABLE))
    assert known is not None
    found = strings(known.size, seed)
    return [known.decode(next(found)) for _ in range(SEARCH)]


def place(graph: Graph) -> int | None:
    """Number of the first node that the grid does not hold."""
    kinds = [combination_of(graph, node) for node in graph.nodes]
    return kinds.index(None) if None in kinds else None


@pytest.mark.parametrize("seed", range(3))
def test_every_search_has_a_rare_node_behind_eight_others(seed: int) -> None:
    cases = searched(seed)
    for case in cases:
        check_delegate(case)
    places = [at for case in cases if (at := place(case.graph)) is not None]
    assert any(at >= EIGHT for at in places)
    assert len(places) < SEARCH // 2


def test_a_claim_names_the_same_nodes_and_the_rare_one() -> None:
    for case in searched(1):
        at = place(case.graph)
        for one in case.applications:
            if at is not None and one.claim is not None:
                assert at in one.claim
                assert max(one.claim) < len(case.graph.nodes)


@pytest.mark.parametrize("choice", range(3))
def test_a_rare_node_has_groups_and_is_valid_anywhere(choice: int) -> None:
    (graph,) = {case.graph for case in searched(2)[:1]}
    for at in range(len(graph.nodes) + 1):
        grown = with_grouped(graph, at, choice)
        check_graph(grown)
        assert place(grown) == at
        assert [node for node in grown.nodes if node in graph.nodes] == list(graph.nodes)


def test_other_constants_are_other_operands_of_the_same_magnitudes() -> None:
    changed = 0
    for case in searched(3):
        other = with_other_constants(case.graph)
        check_graph(other)
        assert replace(other, tensors=case.graph.tensors) == case.graph
        for mine, theirs in zip(case.graph.tensors, other.tensors, strict=True):
            assert replace(theirs, data=mine.data) == mine
            if mine.dtype == "int32" or mine.data is None:
                assert theirs == mine
            else:
                one, two = (np.frombuffer(each.data or b"", mine.dtype) for each in (mine, theirs))
                assert sorted(np.abs(one.astype(float))) == sorted(np.abs(two.astype(float)))
                changed += one.tobytes() != two.tobytes()
    assert changed


def test_a_graph_without_constants_stays() -> None:
    graph = Graph(searched(0)[0].graph.tensors[:1] * 2, (Node("ABS", (0,), (1,)),), (0,), (1,))
    assert with_other_constants(graph) == graph
