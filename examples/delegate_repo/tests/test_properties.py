from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnn import (
    DelegateCase,
    Graph,
    Node,
    Tensor,
    assert_partitioning,
    execution_plan,
    expected_outputs,
    graphs,
    graphs_with_claims,
    inputs_of,
    invoke,
    mismatch,
)

Make = Callable[..., Any]


@settings(deadline=None)
@given(graph=graphs(ops=["ADD", "SUB", "MUL", "FULLY_CONNECTED", "RELU"]), seed=st.integers(0, 2**16))
def test_results_are_those_of_the_operators(
    make_interpreter: Make, delegate_chain: Make, graph: Graph, seed: int
) -> None:
    inputs = inputs_of(DelegateCase(graph, data_seed=seed))
    outputs = invoke(make_interpreter(graph, *delegate_chain()), inputs)
    wrong = map(mismatch, expected_outputs(graph, inputs), outputs)
    assert not any(wrong)


@settings(deadline=None)
@given(drawn=graphs_with_claims(1, ops=["ADD", "SUB", "MUL"]))
def test_what_another_delegate_claimed_stays_with_it(
    make_interpreter: Make,
    delegate_chain: Make,
    reference_delegate: Make,
    drawn: tuple[Graph, tuple[tuple[int, ...], ...]],
) -> None:
    graph, (claim,) = drawn
    first = reference_delegate(claim)
    before = execution_plan(make_interpreter(graph, first), first)
    first = reference_delegate(claim)
    after = execution_plan(make_interpreter(graph, first, *delegate_chain()), first)
    assert {node for node in after if node.owner == 0} == {node for node in before if node.owner == 0}


def test_a_chain_is_shared_with_an_earlier_delegate(
    make_interpreter: Make, delegate: Any, reference_delegate: Make
) -> None:
    """t0 -> ADD -> ABS -> MUL -> SUB: another delegate takes the ABS, this one the rest."""
    ops = ("ADD", "ABS", "MUL", "SUB")
    graph = Graph(
        tensors=tuple(Tensor((2, 3)) for _ in range(len(ops) + 1)),
        nodes=tuple(
            Node(op, (place,) if op == "ABS" else (place, place), (place + 1,))
            for place, op in enumerate(ops)
        ),
        inputs=(0,),
        outputs=(len(ops),),
    )
    other = reference_delegate([1])
    assert_partitioning(
        make_interpreter(graph, other, delegate), ["ArithmeticDelegate", other, "ArithmeticDelegate"]
    )
