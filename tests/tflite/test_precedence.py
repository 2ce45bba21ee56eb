"""Seed 004: which of several delegates gets a node, and which tensors keep memory of the CPU's."""

from __future__ import annotations

import itertools

import pytest

from pytest_qnn.core.contents import hashed
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.checks import judging as support
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import Kind, decode_graph, size_of
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
CLAIMS = {"a": (1, 2), "b": (2, 3, 5), "c": (4, 5, 6, 7), "d": (0, 2, 6)}
CHAIN = Graph(
    tensors=tuple(Tensor((2,)) for _ in range(9)),
    nodes=tuple(Node("ABS", (index,), (index + 1,)) for index in range(8)),
    inputs=(0,),
    outputs=(8,),
)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_first_come_first_served_in_every_order(count: int, runtime: str) -> None:
    loaded = load_runtime(runtime)
    chain = [delegate_factory("reference", {}, loaded)]
    for order in itertools.permutations(CLAIMS, count):
        # One of them stands for the target, so that each position of it is met as well.
        claims = [Application("target" if name == "a" else "probe", CLAIMS[name]) for name in order]
        trace = run_delegate_case(DelegateCase(CHAIN, tuple(claims)), chain, loaded)
        nodes = support.kernel_nodes(trace)
        owner = {
            node: kernel.application
            for kernel in support.live_kernels(trace).values()
            for node in support.originals(kernel, nodes)
        }
        expected = {
            node: next(place for place, name in enumerate(order) if node in CLAIMS[name])
            for node in range(8)
            if any(node in CLAIMS[name] for name in order)
        }
        assert owner == expected, order
        assert trace.outputs[0] == trace.cpu


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("seed", range(20))
def test_only_tensors_at_the_boundary_of_a_partition_keep_memory_of_the_cpus(seed: int, runtime: str) -> None:
    data = hashed(size_of(12, 1) // 4 + 1, seed + 1).tobytes()
    kinds = (Kind("float32", ("ABS", "NEG", "ADD", "MAXIMUM", "MUL")),)
    graph, claims = decode_graph(data, kinds, 1, 4, 12)
    interpreter = load_runtime(runtime).interpreter(emit(graph))
    delegate = ReferenceDelegate(claim=claims[0])
    interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    interpreter.allocate_tensors()
    plan = private_plan(context_of(interpreter), {delegate.address: 0})
    visible = {tensor for node in plan for tensor in (*node.inputs, *node.outputs)}.union(
        graph.inputs, graph.outputs
    )
    made = {tensor for node in graph.nodes for tensor in node.outputs}
    for tensor in sorted(made - visible):
        with pytest.raises(ValueError, match="null"):
            interpreter.get_tensor(tensor)
    for tensor in sorted(made & visible):
        assert interpreter.get_tensor(tensor).shape == graph.tensors[tensor].shape
    del interpreter
    delegate.close()
