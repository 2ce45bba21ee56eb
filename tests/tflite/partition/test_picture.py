from __future__ import annotations

from collections.abc import Sequence

import pytest
from kept import keep
from msgspec.structs import replace

from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.checks import judging as support
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.partition import picture
from pytest_qnn.tflite.partition.oracle import operators
from pytest_qnn.tflite.partition.picture import WIDTH, Entry, counts, draw, expected_landing
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.trace import Applied, PlanNode
from pytest_qnn.tflite.trace import Replace as Claim

RUNTIMES = ("tflite_runtime", "ai_edge_litert")


def chain(length: int) -> Graph:
    nodes = tuple(Node("RELU", (index,), (index + 1,)) for index in range(length))
    return Graph((Tensor((2,)),) * (length + 1), nodes, (0,), (length,))


def plan_of(graph: Graph) -> tuple[PlanNode, ...]:
    return tuple(PlanNode(i, 19, one.inputs, one.outputs, -1) for i, one in operators(graph).items())


def applied(*claims: Sequence[int], name: str = "mine", ok: bool = True) -> Applied:
    replaces = tuple(Claim(tuple(claim), 0) for claim in claims)
    return Applied(name, True, 0, ok, "", (), True, int(not ok), replaces, ())


def on_cpu(*nodes: int) -> tuple[Entry, ...]:
    return tuple(Entry(node, -1, (node,)) for node in nodes)


def expected(graph: Graph, *applications: Applied, joined: bool = False) -> picture.Landing:
    landing = expected_landing(plan_of(graph), applications, graph.outputs, joined=joined)
    assert landing is not None
    return landing


def test_each_claim_is_expected_where_the_runtimes_partition_it() -> None:
    landing = expected(chain(4), applied((0, 1), name="first"), applied((3,), name="second"))
    assert landing == (Entry(4, 0, (0, 1)), *on_cpu(2), Entry(5, 1, (3,)))


def test_a_swallowed_kernel_is_opened_up() -> None:
    landing = expected(chain(3), applied((0, 1)), applied((3, 2)))
    assert landing == (Entry(4, 1, (0, 1, 2)),)


def test_a_failed_application_leaves_everything_to_the_cpu() -> None:
    assert expected(chain(2), applied((0,)), applied((1,), ok=False)) == on_cpu(0, 1)


def test_claims_of_one_delegate_can_be_joined() -> None:
    assert expected(chain(2), applied((0,), (1,)), joined=True) == (Entry(2, 0, (0, 1)),)


def test_a_claim_that_names_no_node_leaves_the_expectation_open() -> None:
    graph = chain(2)
    landing = expected_landing(plan_of(graph), (applied((7,)),), graph.outputs)
    assert landing is None or landing == on_cpu(0, 1)


def test_partitions_switches_and_nodes_on_the_cpu_are_counted() -> None:
    landing = (*on_cpu(0), Entry(9, 0, (1, 2)), Entry(10, 1, (3,)), *on_cpu(4, 5))
    assert counts(landing) == (2, 2, 3)


def test_the_picture_shows_expected_beside_seen_and_points_at_what_differs() -> None:
    graph = chain(3)
    seen = (Entry(3, 0, (0,)), *on_cpu(1), Entry(4, 1, (2,)))
    text = draw(graph, (applied((0, 1, 2)),), seen, expected(graph, applied((0, 1, 2))))
    assert text.splitlines() == [
        "node  operator  reads  writes  claimed by  expected  seen",
        "0     RELU      t0     t1      mine        kernel 0  kernel 0",
        "1     RELU      t1     t2      mine        kernel 0  CPU       <--",
        "2     RELU      t2     t3      mine        kernel 0  kernel 1  <--",
        "graph inputs t0, outputs t3",
        "plan: 3=kernel0 1 4=kernel1",
        "2 partitions, 2 switches between CPU and delegates, 1 node on the CPU",
        "expected plan: 3=kernel0",
        "expected: 1 partition, 0 switches between CPU and delegates, 0 nodes on the CPU",
        "left to the CPU: 1",
    ]


def test_a_node_that_nobody_carries_out_is_shown() -> None:
    lines = draw(chain(2), (), on_cpu(0), on_cpu(0, 1)).splitlines()
    assert lines[2].split() == ["1", "RELU", "t1", "t2", "-", "CPU", "nowhere", "<--"]


def test_a_node_carried_out_twice_is_shown() -> None:
    twice = (Entry(1, 0, (0,)), Entry(2, 1, (0,)))
    assert "kernel 0, kernel 1" in draw(chain(1), (), twice, None)


def test_a_node_can_be_pointed_at() -> None:
    lines = draw(chain(2), (), on_cpu(0, 1), on_cpu(0, 1), mark=1).splitlines()
    assert [line.endswith("<-- wrong") for line in lines[1:3]] == [False, True]


def test_nodes_stand_in_the_order_of_execution() -> None:
    graph = Graph((Tensor((2,)),) * 3, (Node("RELU", (0,), (1,)), Node("ABS", (0,), (2,))), (0,), (1, 2))
    lines = draw(graph, (), on_cpu(1, 0), None).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["1", "0"]


@pytest.mark.parametrize("length", [25, 60, 400])
def test_a_long_graph_is_elided_to_a_screen_and_keeps_what_differs(length: int) -> None:
    graph = chain(length)
    claim = tuple(range(2, length - 2))
    wanted = expected(graph, applied(claim))
    wrong = length // 2
    seen = (
        *on_cpu(0, 1),
        Entry(length, 0, tuple(node for node in claim if node != wrong)),
        *on_cpu(wrong, length - 2, length - 1),
    )
    lines = draw(graph, (applied(claim),), seen, wanted).splitlines()
    assert len(lines) < 50
    assert any(line.split()[0] == str(wrong) and line.endswith("<--") for line in lines)
    left_out = sum(int(line.split()[1]) for line in lines if line.startswith("... "))
    nodes = sum(line[0].isdigit() and "RELU" in line for line in lines)
    assert left_out + nodes == length


def test_many_small_partitions_are_elided_around_the_first_that_differs() -> None:
    graph = chain(200)
    claim = tuple(range(0, 200, 2))
    wanted = expected(graph, applied(claim))
    seen = tuple(Entry(entry.node, -1, entry.nodes) if entry.nodes == (150,) else entry for entry in wanted)
    lines = draw(graph, (applied(claim),), seen, wanted).splitlines()
    assert len(lines) < 55
    assert any(line.startswith("150 ") and line.endswith("<--") for line in lines)


def test_long_names_and_many_operands_stay_within_the_width() -> None:
    tensors = (Tensor((1,)),) * 16 + (Tensor((16,)),)
    graph = Graph(tensors, (Node("CONCATENATION", tuple(range(16)), (16,)),), tuple(range(16)), (16,))
    names = [f"/opt/vendor/lib/{'very' * 20}_long_{number}.so" for number in range(3)]
    lines = draw(graph, [applied((0,), name=name) for name in names], on_cpu(0), None, mark=0).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].endswith("<-- wrong")
    assert "/opt" not in lines[1]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_expected_and_seen_agree_for_delegates_that_take_turns(runtime: str) -> None:
    target = keep(open_delegate_target([("reference", {})], runtime, "off", 10.0))
    graph = chain(8)
    applications = (Application("probe", (1, 2)), Application(claim=(4, 5, 7)), Application("probe", (0,)))
    trace = target.run(DelegateCase(graph, applications))
    landing = support.landing(trace)
    assert landing == expected_landing(trace.plan_before, trace.applied, graph.outputs)
    assert counts(landing) == (4, 4, 2)
    assert "<--" not in support.draw(DelegateCase(graph, applications), trace)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_undone_graph_is_drawn_on_the_cpu(runtime: str) -> None:
    target = keep(open_delegate_target([("reference", {})], runtime, "off", 10.0))
    case = DelegateCase(chain(2), (Application(), Application("probe", (0,), "prepare")))
    text = support.draw(case, target.run(case))
    assert "<--" not in text
    assert "0 partitions, 0 switches between CPU and delegates, 2 nodes on the CPU" in text


def test_without_a_plan_the_picture_says_so() -> None:
    target = keep(open_delegate_target([("reference", {})], RUNTIMES[0], "off", 10.0))
    case = DelegateCase(chain(1))
    trace = replace(target.run(case), plan=(), plan_before=())
    assert support.draw(case, trace).splitlines()[1].split()[-2:] == ["?", "?"]
