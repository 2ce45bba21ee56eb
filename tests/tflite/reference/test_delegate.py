from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tflite as schema
from delegate_doubles import Factory
from hypothesis import HealthCheck, given, settings

from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fault
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.graph.strategies import graphs_with_claims
from pytest_qnn.tflite.reference import delegate as trampolines
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate, Values
from pytest_qnn.tflite.reference.operators import supports
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import Runtime, RuntimeMissing, load_runtime

PAIR = Graph(
    tensors=(Tensor((4,)), Tensor((4,)), Tensor((4,))),
    nodes=(Node("ADD", (0, 0), (1,)), Node("RELU", (1,), (2,))),
    inputs=(0,),
    outputs=(2,),
)


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    try:
        return load_runtime(request.param)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))


def claimed(runtime: Runtime, model: bytes, **options: Any) -> tuple[int, ...]:
    """What a reference delegate chooses of a model."""
    seen: list[tuple[int, ...]] = []

    class Recorder(ReferenceDelegate):
        def replace(self, context: int, nodes: tuple[int, ...]) -> int:
            seen.append(nodes)
            return super().replace(context, nodes)

    interpreter = runtime.interpreter(model)
    delegate = Recorder(**options)
    try:
        interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    finally:
        del interpreter
        delegate.close()
    assert not delegate.errors
    return seen[0]


def patched(model: bytes, position: int, size: int, value: int) -> bytes:
    return model[:position] + value.to_bytes(size, "little") + model[position + size :]


def field(table: Any, slot: int) -> int:
    """The place of a field in a flatbuffer table; the field must be there."""
    offset: int = table._tab.Offset(slot)
    assert offset
    return int(table._tab.Pos) + offset


def test_it_claims_all_that_it_supports(runtime: Runtime) -> None:
    assert claimed(runtime, emit(PAIR)) == (0, 1)


def test_it_claims_no_more_than_it_is_told(runtime: Runtime) -> None:
    assert claimed(runtime, emit(PAIR), claim=(1, 5)) == (1,)


def test_it_leaves_an_operator_that_it_does_not_know(runtime: Runtime) -> None:
    model = emit(PAIR)
    code = schema.Model.GetRootAs(model).OperatorCodes(1)
    for slot, size in ((4, 1), (10, 4)):  # deprecated_builtin_code, builtin_code
        if code._tab.Offset(slot):
            model = patched(model, field(code, slot), size, schema.BuiltinOperator.LOGISTIC)
    assert claimed(runtime, model, claim=(0, 1)) == (0,)


def test_it_leaves_a_fused_activation_that_it_does_not_know(runtime: Runtime) -> None:
    graph = Graph(PAIR.tensors, (Node("ADD", (0, 0), (1,), "RELU6"), PAIR.nodes[1]), (0,), (2,))
    model = emit(graph)
    table = schema.Model.GetRootAs(model).Subgraphs(0).Operators(0).BuiltinOptions()
    options = schema.AddOptions()
    options.Init(table.Bytes, table.Pos)
    model = patched(model, field(options, 4), 1, schema.ActivationFunctionType.RELU_N1_TO_1)
    assert claimed(runtime, model) == (1,)


@pytest.mark.parametrize(
    ("node", "tensors", "constants", "expected"),
    [
        (Node("ADD", (0, 1), (2,)), {0: "float32", 1: "float32", 2: "float32"}, (), True),
        (Node("ADD", (0, 1), (2,)), {0: "float32", 1: "int8", 2: "float32"}, (), False),
        (Node("ADD", (0, 1), (2,)), {0: "int32", 1: "int32", 2: "int32"}, (), False),
        (Node("RESHAPE", (0, 1), (2,)), {0: "float32", 1: "int32", 2: "float32"}, (1,), True),
        (Node("RESHAPE", (0, 1), (2,)), {0: "float32", 1: "int32", 2: "float32"}, (), False),
        (Node("MEAN", (0, 1), (2,)), {0: "float32", 1: "int32", 2: "float32"}, (), False),
        (Node("FULLY_CONNECTED", (0, 1, -1), (2,)), {0: "float32", 1: "float32", 2: "float32"}, (1,), True),
        (Node("FULLY_CONNECTED", (0, 1, -1), (2,)), {0: "float32", 1: "int8", 2: "float32"}, (1,), False),
    ],
)
def test_support_depends_on_types_and_constants(
    node: Node, tensors: dict[int, Any], constants: tuple[int, ...], expected: bool
) -> None:
    table = {index: Tensor((4, 4), dtype) for index, dtype in tensors.items()}
    assert supports(node, table, constants) is expected


def test_int8_without_quantisation_is_left_alone() -> None:
    bare = {index: Tensor((4,), "int8") for index in range(3)}
    quantised = {index: Tensor((4,), "int8", (0.5,), (0,)) for index in range(3)}
    node = Node("ADD", (0, 1), (2,))
    assert not supports(node, bare, ())
    assert supports(node, quantised, ())


@pytest.mark.parametrize("name", ["tflite_runtime", "ai_edge_litert"])
def test_any_claims_of_any_graph_give_the_results_of_one_undivided_claim(name: str) -> None:
    try:
        runtime = load_runtime(name)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))
    factory = Factory("reference", ReferenceDelegate)

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(graphs_with_claims(2, max_nodes=12))
    def check(drawn: tuple[Graph, tuple[tuple[int, ...], ...]]) -> None:
        graph, claims = drawn
        everything = tuple(range(len(graph.nodes)))
        first, second = claims
        rest = tuple(sorted(set(everything) - set(first) - set(second)))
        split = tuple(Application(claim=claim) for claim in (first, second, rest))
        cut = run_delegate_case(DelegateCase(graph, split), [factory], runtime)
        whole = run_delegate_case(DelegateCase(graph, (Application(claim=everything),)), [factory], runtime)
        assert not cut.allocate_error
        assert all(node.owner >= 0 for node in cut.plan)
        assert cut.outputs == whole.outputs
        assert not any(delegate.errors for delegate in factory.made)
        factory.made.clear()

    check()


def test_an_exception_in_a_kernel_is_an_error_for_c_and_kept(runtime: Runtime) -> None:
    class Broken(ReferenceDelegate):
        def compute_node(self, *_: object) -> Values:
            raise ZeroDivisionError

    factory = Factory("broken", Broken)
    trace = run_delegate_case(DelegateCase(PAIR), [factory], runtime)
    assert "failed to invoke" in trace.invoke_errors[0]
    assert isinstance(factory.made[0].errors[0], ZeroDivisionError)


def test_an_exception_in_prepare_is_an_error_for_c_and_kept(runtime: Runtime) -> None:
    class Broken(ReferenceDelegate):
        def prepare(self, *_: object) -> int:
            raise ZeroDivisionError

    factory = Factory("broken", Broken)
    (applied,) = run_delegate_case(DelegateCase(PAIR), [factory], runtime).applied
    assert not applied.ok
    assert applied.prepare_status == 1
    assert isinstance(factory.made[0].errors[0], ZeroDivisionError)


@pytest.mark.parametrize(
    ("fault", "failed"),
    [("prepare", "Prepare"), ("init", "init"), ("kernel-prepare", "prepare"), ("kernel-invoke", "invoke")],
)
def test_a_fault_makes_its_callback_report_failure(runtime: Runtime, fault: Fault, failed: str) -> None:
    case = DelegateCase(PAIR, (Application("probe", fault=fault),))
    events = run_delegate_case(case, [], runtime).events
    assert failed in {event.kind for event in events if event.status}


def test_flags_reach_the_runtime(runtime: Runtime) -> None:
    case = DelegateCase(PAIR, (Application("probe", flags=1),))
    trace = run_delegate_case(case, [], runtime)
    kinds = [event.kind for event in trace.events]
    assert trace.outputs == (trace.cpu,)
    assert kinds == ["Prepare", "init", "prepare", "invoke", "free"]


def test_a_closed_delegate_leaves_nothing_behind(runtime: Runtime) -> None:
    before = len(trampolines._delegates), len(trampolines._kernels)
    faults: tuple[Fault, ...] = ("", "init", "prepare")
    for fault in faults:
        run_delegate_case(DelegateCase(PAIR, (Application("probe", fault=fault),)), [], runtime)
    assert (len(trampolines._delegates), len(trampolines._kernels)) == before


def test_closing_twice_is_harmless() -> None:
    delegate = ReferenceDelegate()
    delegate.close()
    delegate.close()
    assert delegate.address not in trampolines._delegates


def test_element_wise_float_results_are_the_cpus_bit_for_bit(runtime: Runtime) -> None:
    source = random.Random(0)
    factory = Factory("reference", ReferenceDelegate)
    ops: tuple[Op, ...] = ("ADD", "SUB", "MUL", "MAXIMUM", "NEG", "ABS", "RELU")
    for op in ops:
        operands = (0, 1) if op in ("ADD", "SUB", "MUL", "MAXIMUM") else (0,)
        node = Node(op, operands, (2,))
        graph = Graph(tuple(Tensor((3, 5)) for _ in range(3)), (node,), (0, 1)[: len(operands)], (2,))
        trace = run_delegate_case(DelegateCase(graph, data_seed=source.randrange(99)), [factory], runtime)
        assert trace.outputs == (trace.cpu,)
        assert np.isfinite(trace.cpu[0].numpy()).all()
