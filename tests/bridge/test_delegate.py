from __future__ import annotations

import ctypes
import functools
import gc
import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_run import later, part
from kept import keep

from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.mutants import table
from pytest_qnn.qnn.abi.table import PROTOTYPES
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.runner.library import chosen, providers
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.mutants import QNN
from pytest_qnn.tflite.qnn_delegate.delegate import QnnDelegate
from pytest_qnn.tflite.qnn_delegate.shared_memory import SharedMemory
from pytest_qnn.tflite.runner.delegates import DelegateUnusable, delegate_factory
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import Runtime, load_runtime
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

SHAPE = (1, 2, 3, 4)
CONSTANT = np.arange(24, dtype="<f4")
GRAPH = Graph(
    tensors=(*(Tensor(SHAPE),) * 4, Tensor(SHAPE, data=CONSTANT.tobytes()), *(Tensor(SHAPE),) * 2),
    nodes=(
        Node("ADD", (0, 1), (2,)),
        Node("RELU", (2,), (3,)),
        Node("MUL", (3, 4), (5,)),
        Node("ABS", (5,), (6,)),
    ),
    inputs=(0, 1),
    outputs=(6, 5),
)


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return load_runtime(request.param)


def htp() -> str:
    found = importlib.util.find_spec("onnxruntime_qnn")
    if found is None or not found.submodule_search_locations:
        pytest.skip("there is no wheel of onnxruntime-qnn for this platform")
    return str(Path(found.submodule_search_locations[0], "libQnnHtp.so"))


class Made:
    """A factory of one delegate that can be looked at."""

    name = "qnn-reference"

    def __init__(self, backend: str = "reference", memory: SharedMemory | None = None) -> None:
        self.delegate = QnnDelegate(MemorySource(backend, "emulated"), memory or SharedMemory())

    def make(self, _application: Application) -> QnnDelegate:
        return self.delegate


def test_a_model_runs_through_qnn_as_on_the_cpu(runtime: Runtime) -> None:
    made = Made()
    trace = run_delegate_case(DelegateCase(GRAPH, invokes=2), [made], runtime)
    assert trace.invoke_errors == ("", "")
    assert trace.outputs == (trace.cpu, trace.cpu)
    assert [kernel.nodes for kernel in trace.kernels] == [(0, 1, 2)]
    assert made.delegate.log == [
        "TfLiteQnnDelegate delegate: 3 nodes delegated out of 4 nodes with 1 partitions."
    ]
    assert made.delegate.errors == []


CONSTANTS = {
    "operands": ((Node("ADD", (0, 1), (2,)), Node("RELU", (2,), (3,)), Node("ABS", (4,), (5,))), ()),
    "beside": ((Node("MUL", (0, 0), (2,)), Node("ABS", (2,), (3,)), Node("SUB", (4, 1), (5,))), (0, 2)),
    "between": ((Node("RELU", (0,), (2,)), Node("ADD", (2, 4), (3,)), Node("RELU", (3,), (5,))), (0, 1, 2)),
}
"""What becomes of nodes whose operands are constants: the graph's nodes, and those that are claimed."""


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_partition_of_constants_alone_is_left_to_the_cpu(name: str, runtime: Runtime) -> None:
    """QnnGraph_execute wants at least one input."""
    nodes, claimed = CONSTANTS[name]
    constant = Tensor(SHAPE, data=CONSTANT.tobytes())
    tensors = (constant, constant, *(Tensor(SHAPE),) * 4)
    made = Made()
    trace = run_delegate_case(DelegateCase(Graph(tensors, nodes, (4,), (3, 5))), [made], runtime)
    assert trace.invoke_errors == ("",)
    assert trace.outputs == (trace.cpu,)
    assert tuple(itertools.chain.from_iterable(kernel.nodes for kernel in trace.kernels)) == claimed
    assert made.delegate.errors == []


@functools.cache
def on_htp(runtime: str) -> DelegateTarget:
    """It takes seconds to open."""
    return keep(open_delegate_target([("qnn-reference", {"backend": htp()})], runtime, "auto", 60.0))


ONE_RUNTIME = pytest.mark.parametrize("name", ["ai_edge_litert", later("tflite_runtime")])
"""In the fast run, test_rules_quiet.py has the other one on the simulator."""


@ONE_RUNTIME
def test_a_model_runs_on_the_htp_simulator_as_on_the_cpu(name: str) -> None:
    target = on_htp(name)
    trace = target.run(DelegateCase(GRAPH, invokes=2))
    assert target.isolated
    assert trace.death is None
    assert trace.outputs == (trace.cpu, trace.cpu)
    assert [kernel.nodes for kernel in trace.kernels] == [(0, 1, 2)]


@ONE_RUNTIME
def test_what_the_backend_cannot_finalise_is_left_to_the_cpu(name: str) -> None:
    nodes = (Node("SUB", (0, 0), (1,)), Node("MUL", (1, 1), (2,)))
    graph = Graph((Tensor(SHAPE),) * 3, nodes, inputs=(0,), outputs=(2,))
    trace = on_htp(name).run(DelegateCase(graph))
    assert trace.applied[0].ok
    assert [kernel.nodes for kernel in trace.kernels] == [(0,)]
    assert trace.outputs == (trace.cpu,)


_SYMBOL = "_ZN6tflite4impl11Interpreter28SetCustomAllocationForTensorEiRK22TfLiteCustomAllocationl"
_PLACE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)


class Session:
    """An interpreter whose inputs and output lie in custom memory."""

    def __init__(self, runtime: Runtime, memory: SharedMemory, delegate: QnnDelegate) -> None:
        nodes = (Node("ADD", (0, 1), (2,)),)
        model = emit(Graph((Tensor(SHAPE),) * 3, nodes, inputs=(0, 1), outputs=(2,)))
        self.interpreter = runtime.interpreter(model)
        self.pointers = [memory.alloc(96, 64) for _ in range(3)]
        self.place: Any = _PLACE(runtime.symbol(_SYMBOL))
        self.delegate = delegate
        for index, pointer in enumerate(self.pointers):
            self.assign(index, pointer)

    def assign(self, index: int, pointer: int) -> None:
        handle = self.interpreter._native_handle()
        allocation = (ctypes.c_uint64 * 2)(pointer, 96)
        assert self.place(handle, index, ctypes.addressof(allocation), 0) == 0

    def values(self, index: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.ctypeslib.as_array((ctypes.c_float * 24).from_address(self.pointers[index]))

    def run(self) -> None:
        self.interpreter.allocate_tensors()
        self.interpreter._interpreter.ModifyGraphWithDelegate(self.delegate.address)
        self.interpreter.allocate_tensors()
        self.values(0)[:] = np.arange(24)
        self.values(1)[:] = 0.5
        self.interpreter.invoke()


@pytest.fixture
def placed(runtime: Runtime) -> Iterator[tuple[Session, QnnDelegate, SharedMemory]]:
    memory = SharedMemory()
    delegate = QnnDelegate(MemorySource("reference", "emulated"), memory)
    session = Session(runtime, memory, delegate)
    yield session, delegate, memory
    session.interpreter = None
    delegate.close()
    for pointer in session.pointers:
        memory.free(pointer)


def test_tensors_in_custom_memory_are_registered_once(
    placed: tuple[Session, QnnDelegate, SharedMemory],
) -> None:
    session, delegate, _ = placed
    session.run()
    session.interpreter.invoke()
    assert session.values(2).tolist() == (np.arange(24) + 0.5).tolist()
    registered = [line for line in delegate.log if line.startswith("Tensor")]
    assert registered == [
        f"Tensor {index} is successfully registered to shared memory." for index in (0, 1, 2)
    ]


def test_a_second_invoke_fails_where_a_case_says_so(runtime: Runtime) -> None:
    mutant = next(mutant.name for mutant in table().values() if mutant.part == QNN)
    factory = delegate_factory(f"mutant:{mutant}", {}, runtime)
    failing = Application(claim=(0, 1, 2), fault="second-invoke")
    trace = run_delegate_case(DelegateCase(GRAPH, applications=(failing,), invokes=3), [factory], runtime)
    assert [bool(error) for error in trace.invoke_errors] == [False, True, False]


def test_a_failed_execute_is_told_with_its_code(placed: tuple[Session, QnnDelegate, SharedMemory]) -> None:
    session, delegate, _ = placed
    session.run()
    graph, delegate._kernels[0].graph = delegate._kernels[0].graph, 0
    with pytest.raises(RuntimeError, match="invoke of a kernel failed: graphExecute gave 6001"):
        session.interpreter.invoke()
    delegate._kernels[0].graph = graph
    session.interpreter.invoke()
    assert session.values(2).tolist() == (np.arange(24) + 0.5).tolist()


def test_freed_custom_memory_is_deregistered_first(
    placed: tuple[Session, QnnDelegate, SharedMemory],
) -> None:
    session, delegate, memory = placed
    session.run()
    assert len(delegate._kernels[0].handles) == 3
    memory.free(session.pointers[2])
    assert len(delegate._kernels[0].handles) == 2
    backend = delegate.client.entry.owner
    assert isinstance(backend, ReferenceBackend)
    assert len(backend.registrations) == 2


@pytest.mark.parametrize("missing", ["memDeRegister", "contextFree", "contextCreate"])
def test_what_a_table_lacks_keeps_nothing_else_from_being_freed(missing: str, runtime: Runtime) -> None:
    memory = SharedMemory()
    delegate = QnnDelegate(MemorySource("reference", "emulated"), memory)
    backend = delegate.client.entry.owner
    assert isinstance(backend, ReferenceBackend)
    functions = chosen(providers(delegate.client.entry)[1]).implementation
    setattr(functions, missing, PROTOTYPES[missing]())
    assert delegate.registers() is (missing != "contextCreate")
    session = Session(runtime, memory, delegate)
    session.run()
    for pointer in session.pointers:
        memory.free(pointer)
    assert memory.rpcmem._blocks == {}
    session.interpreter = None
    gc.collect()
    assert len(backend.contexts) == (2 if missing == "contextFree" else 0)
    delegate.close()
    assert delegate.errors == []
    assert (backend.backends, backend.devices) == ({}, {})


def test_no_context_is_left_where_no_memory_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    delegate = Made().delegate
    monkeypatch.setattr(SharedMemory, "alloc", lambda *_: 0)
    assert not delegate.registers()
    backend = delegate.client.entry.owner
    assert isinstance(backend, ReferenceBackend)
    assert backend.contexts == {}
    delegate.close()


def test_custom_memory_is_aligned_shared_and_given_back() -> None:
    memory = SharedMemory()
    before = len(list(Path("/proc/self/fd").iterdir()))
    pointers = [memory.alloc(100, 1 << power) for power in range(16)]
    assert all(pointers)
    assert all(pointer % (1 << power) == 0 for power, pointer in enumerate(pointers))
    for pointer in pointers:
        ctypes.memset(pointer, 7, 100)
        assert memory.find(pointer + 50, 50) is not None
        assert memory.find(pointer + 50, 51) is None
        memory.free(pointer)
        memory.free(pointer)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [memory.alloc(size, alignment) for size, alignment in ((0, 64), (-1, 64), (8, 0), (8, 3))] == [
        0
    ] * 4


def test_a_backend_without_sessions_is_one_sentence() -> None:
    gpu = htp().replace("libQnnHtp.so", "libQnnGpu.so")
    with pytest.raises(TargetUnusable, match="qnn-reference has no backend: backendCreate gave 4000"):
        open_delegate_target([("qnn-reference", {"backend": gpu})], "auto", "auto", 30.0)


def test_another_option_is_refused() -> None:
    with pytest.raises(DelegateUnusable, match="has the option backend only, not speed"):
        delegate_factory("qnn-reference", {"speed": "9"}, load_runtime())


@pytest.mark.parametrize("personality", part(sorted(PERSONALITIES), 0))
def test_it_computes_on_every_personality_that_takes_floats(personality: str) -> None:
    made = Made(f"reference:{personality}")
    trace = run_delegate_case(DelegateCase(GRAPH), [made], load_runtime())
    assert trace.outputs == (trace.cpu,)
    claimed = list(itertools.chain.from_iterable(kernel.nodes for kernel in trace.kernels))
    assert claimed == ([] if personality == "quantised-only" else [0, 1, 2])
