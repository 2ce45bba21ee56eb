"""Controls of delegate cases: plain, of all that a case uses, each once, and owned by rules that exist."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings

from pytest_qnn.core.engine import MOST_CONTROLS
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.target import Control, Death
from pytest_qnn.rules import catalogue, listed
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.plugin import Apply, Create, PluginCase
from pytest_qnn.tflite.cases.script import AllocCustom, AssignCustom, Invoke, Open, ScriptCase
from pytest_qnn.tflite.controls import around, controls
from pytest_qnn.tflite.facts import Claim, DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, Combination
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import graph_of

SHAPE = (1, 2, 3)
CHAIN = Graph(
    tensors=tuple(Tensor(SHAPE) for _ in range(4)),
    nodes=(Node("SUB", (0, 1), (2,), activation="RELU"), Node("NEG", (2,), (3,))),
    inputs=(0, 1),
    outputs=(3,),
)
SUB = Combination("SUB", "float32", 3, "RELU")


def of_plain_memory(case: Any) -> list[Control]:
    """The controls of a wrong output but those about buffers and custom memory, which come first."""
    found = list(controls(case, died=False))
    first = [control for control in found if isinstance(control.case, ScriptCase)]
    assert found[: len(first)] == first
    return found[len(first) :]


def test_results_in_buffers_and_in_custom_memory_are_looked_at_first() -> None:
    def owners(case: Any) -> list[str]:
        found = controls(case, died=False)
        return list(dict.fromkeys(each.owners[0] for each in found if isinstance(each.case, ScriptCase)))

    assert owners(DelegateCase(CHAIN)) == ["BUF-01", "BUF-02"]
    custom = ScriptCase((CHAIN,), (AllocCustom("c0", 24, position=1), Open("i0")))
    assert owners(custom) == ["BUF-01", "BUF-02", "TFL-10", "TFL-18"]
    (whole,) = (each.case for each in controls(custom, died=False) if each.owners == ("TFL-18",))
    assert {step.position for step in whole.steps if isinstance(step, AllocCustom)} == {1}
    assert {step.tensor for step in whole.steps if isinstance(step, AssignCustom)} == {
        *CHAIN.inputs,
        *CHAIN.outputs,
    }


def test_an_output_s_controls_add_one_thing_at_a_time() -> None:
    case = DelegateCase(
        CHAIN,
        (Application("probe", (0,)), Application(claim=(1,))),
        invokes=3,
        data_seed=7,
        history=History(used=2),
    )
    found = of_plain_memory(case)
    seen = [
        (
            "+".join(f"{node.op} {node.activation}" for node in graph.nodes),
            len(graph.tensors[0].shape),
            next(owner for owner in control.owners if owner != "PART-04"),
        )
        for control in found
        for graph in (control.case.graph,)
    ]
    assert seen == [
        ("SUB NONE", 2, "NUM-10"),
        ("NEG NONE", 2, "NUM-10"),
        ("SUB RELU+NEG NONE", 3, "DET-01"),
        ("SUB RELU", 3, "DET-04"),
        ("NEG NONE", 3, "DET-04"),
        ("SUB NONE", 3, "PART-03"),
        ("NEG NONE", 3, "PART-03"),
        ("SUB NONE", 3, "NUM-10"),
        ("SUB RELU", 3, "NUM-06"),
        ("NEG NONE", 3, "NUM-10"),
        # With the inputs of later invokes too, and with memory that was filled before.
        *[("SUB NONE", 3, "NUM-10")] * 2,
        *[("SUB RELU", 3, "NUM-06")] * 2,
        *[("NEG NONE", 3, "NUM-10")] * 2,
        *[("SUB RELU+NEG NONE", 3, "PART-11")] * 4,
        *[("SUB RELU+NEG NONE", 3, "DET-02")] * 2,
        ("SUB RELU+NEG NONE", 3, "LIFE-02"),
        ("SUB RELU+NEG NONE", 3, "DET-02"),  # behind the same history
    ]
    *plain, lived = (each.case for each in found)
    assert {(one.applications, one.invokes, one.data_seed, one.history) for one in plain} == {
        ((Application(),), *each, None) for each in ((1, 7), (2, 7), (3, 7), (1, 1), (1, 2))
    }
    assert (lived.invokes, lived.history) == (3, History(used=2))


def test_operands_of_a_plainest_operator_are_told_apart() -> None:
    first = of_plain_memory(DelegateCase(CHAIN))[0].case.graph
    assert first.nodes[0].inputs == (0, 2)
    assert first.inputs == (0, 2)


def test_a_kind_of_rank_5_has_no_plainest_form() -> None:
    tensors = (Tensor((1, 1, 1, 1, 2)),) * 3
    graph = Graph(tensors, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    assert {len(control.case.graph.tensors[0].shape) for control in of_plain_memory(DelegateCase(graph))} == {
        5
    }


def test_a_death_has_no_control_at_another_rank() -> None:
    *found, _ = [control.case.graph for control in controls(DelegateCase(CHAIN), died=True)]
    assert [len(graph.nodes) for graph in found] == [1, 1, 1, 1, 2]
    assert {len(graph.tensors[0].shape) for graph in found} == {3}


def test_who_owns_a_death_depends_on_the_call_and_on_the_size() -> None:
    (small, *_, whole, _) = controls(DelegateCase(CHAIN), died=True)
    assert whole.owners == small.owners == ("RUN-01",)
    for during, owner in (
        ("tflite_plugin_create_delegate", "ABI-02"),
        ("FreeBufferHandle", "BUF-06"),
        ("invoke of kernel 0, node 0 (SUB)", "RUN-01"),
        ("Prepare of delegate 0", "RUN-01"),
    ):
        assert small.owners_of(Death("signal", "SIGABRT", evidence=Evidence(during))) == (owner,)
    large = Graph((Tensor((2, 4096)),) * 3, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    owners = [control.owners for control in controls(DelegateCase(large), died=True)]
    assert owners == [("RUN-01",), ("ERR-04",), ()]


@pytest.mark.parametrize("graph", [CHAIN, msgspec.structs.replace(CHAIN, nodes=(Node("NEG", (-1,), (1,)),))])
def test_any_delegate_s_life_explains_a_death_in_its_first_and_last_call_only(graph: Graph) -> None:
    *_, plain = controls(DelegateCase(graph), died=True)
    for during, owners in (
        ("tflite_plugin_create_delegate", ("ABI-02",)),
        ("tflite_plugin_destroy_delegate", ("RUN-01",)),
        ("invoke of kernel 0, node 0 (ADD)", ()),
        ("Prepare of delegate 0", ()),
    ):
        assert plain.owners_of(Death("signal", "SIGABRT", evidence=Evidence(during))) == owners


@pytest.mark.parametrize(
    "case",
    [
        ScriptCase((CHAIN, CHAIN), (Open("i0"), Invoke("i0"))),
        PluginCase(CHAIN, (Create(), Apply())),
        DelegateCase(CHAIN),
    ],
)
def test_cases_of_every_kind_have_the_same_controls(case: object) -> None:
    assert list(controls(case, died=False)) == list(controls(DelegateCase(CHAIN), died=False))


def test_nodes_of_subgraphs_count_and_what_depends_on_data_does_not() -> None:
    whole = Graph(
        tensors=(Tensor((1,), "bool"), Tensor(SHAPE), Tensor(SHAPE), Tensor(SHAPE)),
        nodes=(Node("IF", (0, 1, 2), (3,), subgraphs=(1, 1)),),
        inputs=(0, 1, 2),
        outputs=(3,),
        subgraphs=(Graph((Tensor(SHAPE),) * 3, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,)),),
    )
    *found, _ = [control.case.graph.nodes for control in controls(DelegateCase(whole), died=True)]
    assert [[node.op for node in nodes] for nodes in found] == [["ADD"], ["ADD"]]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_absent_bias_is_one_of_zeros_in_controls(dtype: DType) -> None:
    quantised: dict[str, Any] = {"dtype": dtype} | (
        {"scales": (0.5,), "zero_points": (0,)} if dtype == "int8" else {}
    )
    tensors = (
        Tensor((1, 2), **quantised),
        Tensor((2, 2), data=bytes(16), **quantised),
        Tensor((1, 2), **quantised),
    )
    graph = Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, -1), (2,)),), (0,), (2,))
    found = [each.case.graph for each in of_plain_memory(DelegateCase(graph))]
    bias = (
        Tensor((2,), data=bytes(8))
        if dtype == "float32"
        else Tensor((2,), "int32", (0.25,), (0,), data=bytes(8))
    )
    assert (
        msgspec.structs.replace(
            graph, tensors=(*tensors, bias), nodes=(Node("FULLY_CONNECTED", (0, 1, 3), (2,)),)
        )
        in found
    )
    assert all(-1 not in node.inputs for each in found for node in each.nodes)


def test_every_owner_is_a_delegate_rule() -> None:
    graphs = [graph_of(kind) for kind in GRID]
    owners = {
        owner
        for graph in graphs
        for died in (True, False)
        for control in controls(DelegateCase(graph), died=died)
        for owner in control.owners
    }
    assert {listed()[owner].subject for owner in owners} == {"delegate"}
    assert owners >= {"NUM-02", "NUM-03", "NUM-05", "NUM-06", "NUM-10", "PART-03", "RUN-01"}


@pytest.mark.parametrize("rule_id", ["RUN-01", "PREC-08", "ERR-08"])
def test_a_large_graph_is_run_whole_as_well(rule_id: str) -> None:
    """That is its last control but for a few. Cut off, it left an abort to whatever rule met it first."""

    @seed(1)
    @settings(max_examples=30, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(catalogue()[rule_id].cases(DelegateFacts()))
    def check(case: Any) -> None:
        numbers.extend(sum(1 for _ in controls(case, died=died)) for died in (True, False))

    numbers: list[int] = []
    check()
    assert 60 < max(numbers) <= MOST_CONTROLS


def left(facts: DelegateFacts) -> set[Combination]:
    return {claim.kind for claim in facts.claims if claim.outcome == "claimed"}


def test_around_leaves_out_one_rank_and_then_the_operator() -> None:
    control = DelegateCase(graph_of(SUB))
    first = around(DelegateFacts(), control)
    assert set(GRID) - left(first) == {
        kind for kind in GRID if (kind.op, kind.dtype, kind.rank) == ("SUB", "float32", 3)
    }
    second = around(first, DelegateCase(graph_of(Combination("SUB", "float32", 2))))
    assert set(GRID) - left(second) == {kind for kind in GRID if (kind.op, kind.dtype) == ("SUB", "float32")}
    assert around(second, control) is second


def test_around_keeps_what_was_refused_and_what_it_cannot_tell_apart() -> None:
    claims = tuple(Claim(kind, "refused" if kind.op == "ADD" else "claimed") for kind in GRID)
    facts = DelegateFacts(claims=claims)
    assert {kind.op for kind in set(GRID) - left(around(facts, DelegateCase(graph_of(SUB))))} == {
        "ADD",
        "SUB",
    }
    assert around(facts, DelegateCase(CHAIN)) is facts
