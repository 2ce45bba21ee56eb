from __future__ import annotations

import random

import pytest

from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.partition.oracle import (
    Operator,
    Subset,
    Unschedulable,
    delegate,
    operators,
    operators_of_plan,
    partition,
)
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import Runtime, RuntimeMissing, load_runtime
from pytest_qnn.tflite.trace import DelegateTrace

# A chain 0 -> 1 -> 2 -> 3 over tensors t0 .. t4.
CHAIN = {index: Operator((index,), (index + 1,)) for index in range(4)}


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    try:
        return load_runtime(request.param)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))


def test_neighbours_that_are_claimed_make_one_subset() -> None:
    assert partition(CHAIN, range(4), [4], [1, 2]) == (
        Subset(False, (0,), (0,), (1,)),
        Subset(True, (1, 2), (1,), (3,)),
        Subset(False, (3,), (3,), (4,)),
    )


def test_a_tensor_inside_a_subset_is_its_output_if_it_is_a_graph_output() -> None:
    assert partition(CHAIN, range(4), [1, 4], [0, 1])[0].outputs == (1, 2)


def test_constants_are_inputs_and_absent_operands_are_not() -> None:
    nodes = {0: Operator((0, 9, -1), (1,))}
    assert partition(nodes, [0], [1], [0])[0].inputs == (0, 9)


def test_independent_claimed_nodes_are_fused_across_unclaimed_ones() -> None:
    nodes = {0: Operator((0,), (1,)), 1: Operator((0,), (2,)), 2: Operator((0,), (3,))}
    found = partition(nodes, range(3), [1, 2, 3], [0, 2])
    assert [subset.nodes for subset in found] == [(0, 2), (1,)]


def test_without_greed_only_neighbours_are_fused() -> None:
    nodes = {0: Operator((0,), (1,)), 1: Operator((0,), (2,)), 2: Operator((0,), (3,))}
    found = partition(nodes, range(3), [1, 2, 3], [0, 2], greedy=False)
    assert [subset.nodes for subset in found] == [(0,), (1,), (2,)]


def test_without_fusion_each_node_is_a_subset() -> None:
    assert [subset.nodes for subset in partition(CHAIN, range(4), [4], [1, 2], fuse=False)] == [
        (0,),
        (1,),
        (2,),
        (3,),
    ]


def test_a_plan_out_of_order_is_scanned_again() -> None:
    found = partition(CHAIN, [3, 2, 1, 0], [4], [0, 1, 2, 3])
    assert [subset.nodes for subset in found] == [(0, 1, 2, 3)]


def test_a_node_that_becomes_ready_behind_the_scan_joins_after_those_before_it() -> None:
    nodes = {0: Operator((0,), (1,)), 1: Operator((1,), (2,)), 2: Operator((0,), (3,))}
    (found,) = partition(nodes, [1, 0, 2], [2, 3], [0, 1, 2])
    assert found.nodes == (0, 2, 1)


def test_stateful_nodes_keep_their_order() -> None:
    nodes = {
        0: Operator((0,), (1,), stateful=True),
        1: Operator((0,), (2,), stateful=True),
        2: Operator((0,), (3,), stateful=True),
    }
    found = partition(nodes, range(3), [1, 2, 3], [0, 2])
    assert [subset.nodes for subset in found] == [(0,), (1,), (2,)]


def test_control_edges_replace_the_order_of_stateful_nodes() -> None:
    nodes = {index: Operator((0,), (index + 1,)) for index in range(3)}
    assert [subset.nodes for subset in partition(nodes, range(3), [1, 2, 3], [0, 2], edges=[(1, 2)])] == [
        (0,),
        (1,),
        (2,),
    ]


@pytest.mark.parametrize("greedy", [True, False])
def test_nodes_that_wait_for_each_other_are_reported(greedy: bool) -> None:
    nodes = {0: Operator((1,), (0,)), 1: Operator((0,), (1,))}
    with pytest.raises(Unschedulable, match="2 nodes wait for each other"):
        partition(nodes, [0, 1], [1], [0], greedy=greedy)


def test_an_empty_claim_changes_nothing() -> None:
    assert delegate(CHAIN, range(4), [4], []).plan == (0, 1, 2, 3)


def test_kernels_get_the_next_free_indices_and_stand_in_for_their_nodes() -> None:
    after = delegate(CHAIN, range(4), [4], [0, 2])
    assert after.plan == (4, 1, 5, 3)
    assert after.nodes[5] == Operator((2,), (3,))


def test_a_second_delegate_fuses_around_the_first_ones_kernel() -> None:
    first = delegate(CHAIN, range(4), [4], [1])
    second = delegate(first.nodes, first.plan, [4], [0, 2, 3])
    assert second.plan == (5, 4, 6)
    assert [kernel.nodes for kernel in second.kernels] == [(0,), (2, 3)]


def test_a_long_chain_is_cut_at_each_node_that_is_claimed_or_not_in_turn() -> None:
    length = 2000  # the cost grows with its square, as in the runtimes
    nodes = {index: Operator((index,), (index + 1,)) for index in range(length)}
    found = partition(nodes, range(length), [length], range(0, length, 2))
    assert [subset.nodes for subset in found] == [(index,) for index in range(length)]
    assert [subset.claimed for subset in found] == [True, False] * (length // 2)


def random_graph(source: random.Random) -> Graph:
    """ADD, NEG and CONCATENATION over random earlier tensors, some with a constant operand."""
    tensors = [Tensor((2,)), Tensor((2,)), Tensor((2,), data=bytes(8))]
    nodes = []
    for _ in range(source.randint(1, 14)):
        pairs = [index for index, tensor in enumerate(tensors) if tensor.shape == (2,)]
        kind = source.choice(["ADD", "ADD", "NEG", "CONCATENATION"])
        if kind == "CONCATENATION":
            operands = tuple(source.choice(range(len(tensors))) for _ in range(source.randint(1, 3)))
            shape: tuple[int, ...] = (sum(tensors[index].shape[0] for index in operands),)
            node = Node("CONCATENATION", operands, (len(tensors),))
        else:
            operands = tuple(source.choice(pairs) for _ in range(2 if kind == "ADD" else 1))
            shape = (2,)
            node = Node("ADD" if kind == "ADD" else "NEG", operands, (len(tensors),))
        nodes.append(node)
        tensors.append(Tensor(shape))
    made = [node.outputs[0] for node in nodes]
    extra = source.sample(made, source.randint(0, min(2, len(made))))
    return Graph(tuple(tensors), tuple(nodes), (0, 1), tuple(dict.fromkeys([made[-1], *extra])))


def random_case(source: random.Random) -> DelegateCase:
    """One to three delegates with random claims, duplicates and disorder included."""
    graph = random_graph(source)
    count = len(graph.nodes)
    applications = tuple(
        Application("probe", tuple(source.choices(range(count), k=source.randint(0, count))))
        for _ in range(source.randint(1, 3))
    )
    return DelegateCase(graph, applications)


def assert_oracle_agrees(case: DelegateCase, trace: DelegateTrace) -> None:
    """Membership, order, boundaries, node indices and plans, delegate by delegate."""
    nodes, plan = operators(case.graph), tuple(range(len(case.graph.nodes)))
    kernels: list[Subset] = []
    assert len(trace.applied) == len(case.applications)
    for applied in trace.applied:
        assert applied.ok, applied.message
        assert tuple(node.index for node in applied.plan_seen) == plan
        (call,) = applied.replaces
        after = delegate(nodes, plan, case.graph.outputs, call.nodes)
        nodes, plan = dict(after.nodes), after.plan
        kernels += after.kernels
        assert tuple(node.index for node in applied.plan_after) == plan
        assert operators_of_plan(applied.plan_after) == {index: nodes[index] for index in plan}
    assert [kernel[2:] for kernel in map(_fields, trace.kernels)] == [
        (kernel.nodes, kernel.inputs, kernel.outputs) for kernel in kernels
    ]


def _fields(kernel: object) -> tuple[object, ...]:
    return tuple(getattr(kernel, name) for name in ("application", "kernel", "nodes", "inputs", "outputs"))


def test_the_oracle_agrees_with_the_runtime_on_random_graphs(runtime: Runtime) -> None:
    source = random.Random(4)
    chain = [delegate_factory("reference", {}, runtime)]
    for _ in range(300):
        case = random_case(source)
        assert_oracle_agrees(case, run_delegate_case(case, chain, runtime))


def convolutions_and_prelus() -> Graph:
    """Seed 004's picture: two branches that meet in a concatenation, 12 nodes.

    MAXIMUM, then twice side by side CONV_2D, PRELU, CONV_2D, then CONCATENATION, then CONV_2D, PRELU,
    CONV_2D, PRELU.
    """
    tensors = [Tensor((1, 2, 2, 1)), Tensor((1, 1, 1, 1), data=b"\0\0\x80?"), Tensor((1,), data=bytes(4))]
    wide = [Tensor((2, 1, 1, 2), data=b"\0\0\x80?" * 4), Tensor((2,), data=bytes(8))]
    slope = [Tensor((1, 1, 1), data=b"\0\0\0?"), Tensor((1, 1, 2), data=b"\0\0\0?" * 2)]
    tensors += [*wide, *slope]
    nodes: list[Node] = []

    def add(op: str, *operands: int, channels: int = 1) -> int:
        tensors.append(Tensor((1, 2, 2, channels)))
        result = len(tensors) - 1
        if op == "CONCATENATION":
            nodes.append(Node("CONCATENATION", operands, (result,), axis=3))
        elif op == "CONV_2D":
            weights = (1, 2) if channels == 1 else (3, 4)
            nodes.append(Node("CONV_2D", (*operands, *weights), (result,)))
        elif op == "PRELU":
            nodes.append(Node("PRELU", (*operands, 5 if channels == 1 else 6), (result,)))
        else:
            nodes.append(Node("MAXIMUM", operands, (result,)))
        return result

    top = add("MAXIMUM", 0, 0)
    left = add("CONV_2D", add("PRELU", add("CONV_2D", top)))
    right = add("CONV_2D", add("PRELU", add("CONV_2D", top)))
    end = add("CONCATENATION", left, right, channels=2)
    for op in ("CONV_2D", "PRELU", "CONV_2D", "PRELU"):
        end = add(op, end, channels=2)
    return Graph(tuple(tensors), tuple(nodes), (0,), (end,))


def test_twelve_nodes_with_convolutions_and_prelu_supported_become_four(runtime: Runtime) -> None:
    graph = convolutions_and_prelus()
    claim = tuple(index for index, node in enumerate(graph.nodes) if node.op in ("CONV_2D", "PRELU"))
    case = DelegateCase(graph, (Application(claim=claim),))
    trace = run_delegate_case(case, [delegate_factory("reference", {}, runtime)], runtime)
    assert len(graph.nodes) == len(trace.plan_before) == 12
    assert [(node.op, node.owner) for node in trace.plan] == [(55, -1), (51, 0), (2, -1), (51, 0)]
    assert [kernel.nodes for kernel in trace.kernels] == [(1, 2, 3, 4, 5, 6), (8, 9, 10, 11)]
    assert_oracle_agrees(case, trace)
