from __future__ import annotations

import re

import msgspec
import pytest

from pytest_qnn import memory_steps, script_steps
from pytest_qnn.qnn import live as live_memory
from pytest_qnn.qnn import target as qnn_target
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.runner.client import Session
from pytest_qnn.tflite import live, target
from pytest_qnn.tflite.cases import script

SHARED = (live, live_memory, target, qnn_target)
"""Loaded before any test, so that the pytest runs in this process share these modules and their classes."""


RUNTIMES = ("tflite_runtime", "ai_edge_litert")
FIXTURES = (
    "tflite_runtime",
    "make_interpreter",
    "delegate",
    "delegate_chain",
    "reference_delegate",
    "custom_memory",
    "guarded_memory",
    "delegate_target",
    "run_delegate",
    "open_qnn_backend",
    "open_reference_backend",
    "reference_backend",
    "qnn_backend",
    "qnn_context",
    "qnn_graph",
    "rpcmem",
    "shared_buffer",
    "memory_target",
    "run_memory",
)

CHAIN = """
import numpy as np
import pytest
from pytest_qnn import Graph, Node, Tensor, assert_partitioning, emit, execution_plan, invoke

GRAPH = Graph(
    tensors=tuple(Tensor((2,)) for _ in range(5)),
    nodes=tuple(Node(op, (i,), (i + 1,)) for i, op in enumerate(("ABS", "NEG", "ABS", "NEG"))),
    inputs=(0,),
    outputs=(4,),
)
"""


def _passes(pytester: pytest.Pytester, source: str, *options: str, passed: int = 1) -> None:
    pytester.makepyfile(source)
    result = pytester.runpytest("-p", "no:cacheprovider", "-W", "error", *options)
    result.assert_outcomes(passed=passed)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_chosen_runtime_is_given(pytester: pytest.Pytester, runtime: str) -> None:
    source = f"def test(tflite_runtime): assert tflite_runtime.name == {runtime!r}"
    _passes(pytester, source, f"--tflite-runtime={runtime}")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_interpreter_runs_a_graph_its_bytes_and_its_file(pytester: pytest.Pytester, runtime: str) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, tmp_path):
    path = tmp_path / "chain.tflite"
    path.write_bytes(emit(GRAPH))
    for model in (GRAPH, emit(GRAPH), path, str(path)):
        (seen,) = invoke(make_interpreter(model), [np.array([3, -4], np.float32)])
        assert seen.tolist() == [-3, -4]
"""
    )
    _passes(pytester, source, f"--tflite-runtime={runtime}")


def test_an_interpreter_can_be_left_unallocated(pytester: pytest.Pytester) -> None:
    source = CHAIN + (
        """
def test(make_interpreter):
    interpreter = make_interpreter(GRAPH, allocate=False)
    with pytest.raises(ValueError, match="allocate"):
        interpreter.get_tensor(4)
"""
    )
    _passes(pytester, source)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_delegate_under_test_takes_part(pytester: pytest.Pytester, runtime: str) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, delegate):
    assert_partitioning(make_interpreter(GRAPH, delegate), [delegate])
"""
    )
    _passes(pytester, source, f"--tflite-runtime={runtime}")


def test_the_chain_keeps_its_order(pytester: pytest.Pytester) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, delegate_chain):
    first, second = delegate_chain()
    assert (first.name, second.name) == ("xnnpack", "reference")
    assert_partitioning(make_interpreter(GRAPH, first, second), [first])
"""
    )
    _passes(pytester, source, "--tflite-delegate=xnnpack", "--tflite-delegate=reference")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_reference_delegate_claims_what_it_is_told(pytester: pytest.Pytester, runtime: str) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, reference_delegate):
    first, second = reference_delegate([1]), reference_delegate([2, 3])
    interpreter = make_interpreter(GRAPH, first, second)
    assert_partitioning(interpreter, [0, first, second])
    assert_partitioning(interpreter, [0, "probe", "probe"])
    assert [node.owner for node in execution_plan(interpreter, first, second)] == [-1, 0, 1]
    (seen,) = invoke(interpreter, [np.array([3, -4], np.float32)])
    assert seen.tolist() == [-3, -4]
"""
    )
    _passes(pytester, source, f"--tflite-runtime={runtime}")


def test_a_reference_delegate_fails_as_told(pytester: pytest.Pytester) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, reference_delegate):
    with pytest.raises(RuntimeError):
        make_interpreter(GRAPH, reference_delegate(fault="prepare"))
"""
    )
    _passes(pytester, source)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_wrong_partitioning_is_drawn_with_both_plans(pytester: pytest.Pytester, runtime: str) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, reference_delegate):
    assert_partitioning(make_interpreter(GRAPH, reference_delegate([1, 2])), [0, 1, "probe", 3])
"""
    )
    pytester.makepyfile(source)
    result = pytester.runpytest("-p", "no:cacheprovider", f"--tflite-runtime={runtime}")
    result.stdout.fnmatch_lines(
        [
            "E *the execution plan is not the expected one",
            "E *expected *seen *reads *writes",
            "E *node 0 ABS *node 0 ABS *t0 *t1",
            "E *> *node 1 NEG *kernel probe *t1 *t3",
            "E *> *kernel probe *node 3 NEG *t3 *t4",
            "E *> *node 3 NEG *-",
            "E *expected: 1 partitions, 2 switches; seen: 1 partitions, 2 switches",
        ]
    )
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("plan", ["[0, 1, 2]", "[0, 1, 2, 3, 3]", "['reference']", "[0, 1, 3, 2]"])
def test_a_plan_of_another_length_or_order_is_refused(pytester: pytest.Pytester, plan: str) -> None:
    source = CHAIN + (
        f"""
def test(make_interpreter):
    with pytest.raises(AssertionError, match="not the expected one"):
        assert_partitioning(make_interpreter(GRAPH), {plan})
"""
    )
    _passes(pytester, source)


def test_a_kernel_of_another_delegate_of_the_same_name_is_refused(pytester: pytest.Pytester) -> None:
    source = CHAIN + (
        """
def test(make_interpreter, reference_delegate):
    first, second = reference_delegate([0]), reference_delegate([3])
    interpreter = make_interpreter(GRAPH, first, second)
    assert_partitioning(interpreter, [first, 1, 2, second])
    with pytest.raises(AssertionError):
        assert_partitioning(interpreter, [second, 1, 2, first])
"""
    )
    _passes(pytester, source)


def test_delegate_factories_can_be_used_with_given(pytester: pytest.Pytester) -> None:
    source = CHAIN + (
        """
from hypothesis import given, settings, strategies as st

@settings(max_examples=5)
@given(claim=st.sets(st.integers(0, 3)))
def test(make_interpreter, delegate_chain, reference_delegate, run_delegate, claim):
    first = reference_delegate(claim)
    owners = {node.owner for node in execution_plan(make_interpreter(GRAPH, first, *delegate_chain()), first)}
    assert (0 in owners) == bool(claim)
"""
    )
    _passes(pytester, source)


def test_a_delegate_case_is_carried_out(pytester: pytest.Pytester) -> None:
    source = CHAIN + (
        """
from pytest_qnn import Application, DelegateCase

def test(run_delegate, delegate_target):
    trace = run_delegate(DelegateCase(GRAPH, (Application(claim=(1, 2)),)))
    assert trace.death is None
    assert [node.index for node in trace.plan] == [0, 4, 3]
    assert trace.facts == delegate_target.facts
"""
    )
    _passes(pytester, source)


def test_a_closed_delegate_has_no_address(pytester: pytest.Pytester) -> None:
    source = """
import pytest

def test(delegate):
    assert delegate.address
    delegate.close()
    delegate.close()
    with pytest.raises(ValueError, match="destroyed"):
        delegate.address
"""
    _passes(pytester, source)


@pytest.mark.parametrize("made", ["make_interpreter(GRAPH, used)", "by_the_runtime(tflite_runtime, used)"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_interpreter_in_a_cycle_of_references_ends_before_what_it_uses(
    pytester: pytest.Pytester, runtime: str, made: str
) -> None:
    source = f"""
import ctypes
import gc
import weakref

from pytest_qnn import place_tensor
from pytest_qnn.tflite.live import Delegate
from pytest_qnn.tflite.live.placing import CustomTensorMemory

ENDED = []


class Native:
    def __init__(self, used):
        self.used, self.address = used, used.address

    def close(self):
        ENDED.append(("delegate", WRAPPER() is None))


class Memory:
    blocks = ctypes.create_string_buffer(256)

    def alloc(self, size, alignment):
        return -(-ctypes.addressof(self.blocks) // 64) * 64

    def free(self, pointer):
        ENDED.append(("memory", WRAPPER() is None))


def by_the_runtime(runtime, used):
    made = runtime.module.Interpreter(model_content=emit(GRAPH), experimental_delegates=[used])
    made.allocate_tensors()
    return made


def test(make_interpreter, reference_delegate, tflite_runtime):
    global WRAPPER
    kept = reference_delegate()
    memory = CustomTensorMemory(Memory(), 64)
    used = Delegate(Native(kept), "probe")
    interpreter = {made}
    del used
    place_tensor(interpreter, 0, memory)
    WRAPPER = weakref.ref(interpreter._interpreter)
    cycle = [interpreter, memory]
    cycle.append(cycle)
    del interpreter, memory, cycle
    gc.collect()
    assert sorted(ENDED) == [("delegate", True), ("memory", True)]
"""
    _passes(pytester, CHAIN + source, f"--tflite-runtime={runtime}")


@pytest.mark.parametrize("kind", ["raw", "handle"])
def test_a_graph_adds_in_raw_and_in_shared_memory(pytester: pytest.Pytester, kind: str) -> None:
    source = f"""
from pytest_qnn import Binding
from pytest_qnn.qnn.model.operators import expected

def test(qnn_backend, qnn_context, qnn_graph, shared_buffer):
    buffers = [shared_buffer(8) for _ in range(3)]
    for buffer, value in zip(buffers, (140, 3, 0xEE)):
        buffer.array[:] = value
    handles = [qnn_backend.register(qnn_context, buffer, (1, 2, 2, 2)) for buffer in buffers]
    last = Binding("handle", handles[2]) if {kind!r} == "handle" else Binding()
    seen = qnn_backend.execute(qnn_graph, Binding("handle", handles[0]), Binding("handle", handles[1]), last)
    wanted = expected("ElementWiseAdd", "UFIXED_POINT_8", bytes([140] * 8), bytes([3] * 8))
    assert seen == wanted
    assert buffers[2].array.tobytes() == (wanted if {kind!r} == "handle" else bytes([0xEE] * 8))
    qnn_backend.deregister(*handles)
"""
    _passes(pytester, source)


def test_a_shared_buffer_has_the_size_and_descriptor_of_its_memory(pytester: pytest.Pytester) -> None:
    source = """
import os

def test(shared_buffer, rpcmem):
    buffer = shared_buffer(5000)
    assert buffer.array.shape == (5000,)
    buffer.array[4999] = 7
    assert rpcmem.to_fd(buffer.pointer) == buffer.fd >= 0
    assert os.pread(buffer.fd, 1, 4999) == b"\\x07"
    buffer.free()
    assert buffer.fd == -1
"""
    _passes(pytester, source)


def test_a_wrong_free_is_warned_of_at_its_line_and_frees_nothing(pytester: pytest.Pytester) -> None:
    source = """
import pytest
from pytest_qnn import WrongFree

def test(rpcmem, shared_buffer):
    first, second = rpcmem.alloc(25, 1, 8192), rpcmem.alloc(25, 1, 4096)
    inside = f"rpcmem_free({first + 4096:#x}) frees nothing: it is byte 4096 of an allocation of 8192 bytes "
    with pytest.warns(WrongFree, match=f"emulated rpcmem: .*{first:#x}") as warned:
        rpcmem.free(first + 4096)
    assert inside.replace("emulated rpcmem: ", "") in str(warned[0].message)
    assert warned[0].filename == __file__
    assert rpcmem.to_fd(first) >= 0
    rpcmem.free(first)
    rpcmem.free(0)
    with pytest.warns(WrongFree, match="no live allocation has this address"):
        rpcmem.free(first)
    rpcmem.free(second)
    rpcmem.free(shared_buffer(100).pointer)  # the session, which frees it again, is not at fault
"""
    _passes(pytester, source)


def test_a_wrong_free_fails_a_test_on_demand_and_ends_up_in_the_warnings_else(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test(rpcmem): rpcmem.free(4096)")
    shown = pytester.runpytest("-p", "no:cacheprovider", "-W", "default::pytest_qnn.WrongFree")
    shown.assert_outcomes(passed=1, warnings=1)
    shown.stdout.fnmatch_lines(["*WrongFree: emulated rpcmem: rpcmem_free(0x1000) frees nothing: no live *"])
    failed = pytester.runpytest("-p", "no:cacheprovider", "-W", "error::pytest_qnn.WrongFree")
    failed.assert_outcomes(failed=1)


def test_a_refused_call_raises_with_its_code(pytester: pytest.Pytester) -> None:
    source = """
import pytest
from pytest_qnn.qnn.live import QnnError

def test(qnn_backend, qnn_context, shared_buffer):
    buffer = shared_buffer(8)
    handle = qnn_backend.register(qnn_context, buffer, (8,))
    qnn_backend.deregister(handle)
    with pytest.raises(QnnError, match="memDeRegister") as refused:
        qnn_backend.deregister(handle)
    assert refused.value.code
"""
    _passes(pytester, source)


def test_a_session_records_its_steps_as_a_case(pytester: pytest.Pytester) -> None:
    source = """
def test(qnn_backend, qnn_context, shared_buffer, run_memory):
    qnn_backend.register(qnn_context, shared_buffer(8), (8,))
    trace = run_memory(qnn_backend.case)
    assert [step.code for step in trace.steps] == [0, None, 0]
"""
    _passes(pytester, source)


def test_what_a_test_leaves_is_released(pytester: pytest.Pytester) -> None:
    source = """
import os

def count():
    return len(os.listdir("/proc/self/fd"))

def test_sessions(open_qnn_backend):
    with open_qnn_backend():
        pass
    before = count()
    for _ in range(3):
        with open_qnn_backend() as backend:
            context = backend.context()
            backend.register(context, backend.buffer(8), (8,))
            backend.graph(context, (8,))
            assert count() > before
    assert count() == before
"""
    _passes(pytester, source)


def test_sessions_can_be_opened_under_given(pytester: pytest.Pytester) -> None:
    source = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=5)
@given(size=st.integers(1, 10000))
def test(open_qnn_backend, run_memory, size):
    with open_qnn_backend() as backend:
        assert backend.buffer(size).array.size == size
"""
    _passes(pytester, source)


def test_no_session_skips_the_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "open", lambda _: False)
    pytester.makepyfile("def test(qnn_backend): assert False")
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("fixture", "option"),
    [
        ("delegate", "--tflite-delegate"),
        ("delegate_target", "--tflite-delegate"),
        ("qnn_backend", "--qnn-backend"),
        ("memory_target", "--qnn-backend"),
    ],
)
def test_a_file_that_is_no_library_is_told_in_one_sentence(
    pytester: pytest.Pytester, fixture: str, option: str
) -> None:
    path = pytester.makefile(".so", notalibrary="text")
    pytester.makepyfile(f"def test({fixture}): pass")
    result = pytester.runpytest("-p", "no:cacheprovider", f"{option}={path}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"{option}*{path} cannot be loaded*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_tensor_between_two_nodes_is_placed_and_placed_again(
    pytester: pytest.Pytester, runtime: str
) -> None:
    source = CHAIN + (
        """
import gc, weakref
from pytest_qnn import place_tensor

def test(make_interpreter, reference_delegate, guarded_memory):
    interpreter = make_interpreter(GRAPH, reference_delegate([1]))
    first, second = guarded_memory(8), guarded_memory(8, "before")
    for memory in (first, second):
        place_tensor(interpreter, 2, memory)
        (seen,) = invoke(interpreter, [np.array([3, -4], np.float32)])
        assert seen.tolist() == [-3, -4]
        assert memory.array.view(np.float32).tolist() == [-3, -4]
        assert memory.touches() == ()
    kept = weakref.ref(second)
    del memory, second
    assert kept() is not None
    del interpreter
    gc.collect()
    assert kept() is None
"""
    )
    _passes(pytester, source, f"--tflite-runtime={runtime}")


def test_a_tensor_that_cannot_be_placed_is_told_in_one_sentence(pytester: pytest.Pytester) -> None:
    source = """
import numpy as np
import pytest
from pytest_qnn import Graph, Node, Tensor, place_tensor

ONE = Tensor((2,), data=np.ones(2, np.float32).tobytes())
GRAPH = Graph((Tensor((2,)), ONE, Tensor((2,))), (Node("ADD", (0, 1), (2,)),), inputs=(0,), outputs=(2,))

def refused(interpreter, tensor, memory, offset=0):
    with pytest.raises(ValueError) as error:
        place_tensor(interpreter, tensor, memory, offset=offset)
    return str(error.value)

def test(make_interpreter, shared_buffer):
    interpreter, buffer = make_interpreter(GRAPH), shared_buffer(100)
    assert refused(interpreter, 3, buffer) == "there is no tensor 3: the model has 0 to 2"
    assert "tensor 1 is a constant" in refused(interpreter, 1, buffer)
    assert "8 bytes, which are not within 7 bytes" in refused(interpreter, 0, shared_buffer(7))
    assert "from offset 96" in refused(interpreter, 0, buffer, 96)
    assert "not a multiple of 64" in refused(interpreter, 0, buffer, 4)
    buffer.free()
    assert refused(interpreter, 0, buffer) == "the memory was freed already"
"""
    _passes(pytester, source)


def test_an_access_beside_guarded_memory_is_recorded(pytester: pytest.Pytester) -> None:
    source = """
import ctypes

def test(guarded_memory):
    behind, before = guarded_memory(64), guarded_memory(64, "before")
    ctypes.string_at(behind.pointer + 64, 16)
    assert behind.touches() == ()
    page = -(-(behind.pointer + 64) // 4096) * 4096
    for _ in range(2):
        ctypes.c_uint8.from_address(page).value
        ctypes.c_uint8.from_address(before.pointer - 1).value = 1
        assert behind.touches() == (("read", page - behind.pointer),)
        assert before.touches() == (("write", -1),)
    ctypes.c_uint8.from_address(before.pointer + 65).value = 1
    assert before.touches() == (("write", 65),)
"""
    _passes(pytester, source)


def test_custom_memory_is_aligned_and_given_back_once(pytester: pytest.Pytester) -> None:
    source = """
import pytest

def test(custom_memory):
    memory = custom_memory(100, 4096)
    assert memory.pointer % 4096 == 0
    memory.array[99] = 7
    memory.free()
    memory.free()
    with pytest.raises(ValueError, match="freed already"):
        memory.array
    with pytest.raises(MemoryError, match="no custom memory of 0 bytes"):
        custom_memory(0)
"""
    _passes(pytester, source, "--tflite-delegate=qnn-reference")
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(skipped=1)


def test_the_parameters_of_a_registration_are_in_its_descriptor(pytester: pytest.Pytester) -> None:
    source = """
import pytest
from pytest_qnn import QnnError, packed

def test(qnn_backend, qnn_context):
    assert qnn_backend.memory_types() == ("ion", "custom", "dma-buf")
    layout = packed([5, 8, 8], 64)
    assert layout == ((0, 64, 128), 136)
    buffer = qnn_backend.buffer(200, heap=22, flags=0)
    last = {"offset": layout.offsets[2], "memory": "custom"}
    with pytest.raises(QnnError, match="memRegister"):
        qnn_backend.register(qnn_context, buffer, (8,), **last, size=135)
    qnn_backend.register(qnn_context, buffer, (8,), **last, size=136)
    own = qnn_backend.buffer(8, own=True)
    assert own.fd >= 0
    qnn_backend.register(qnn_context, own, (8,), memory="dma-buf")
    descriptors = [step.descriptors[0] for step in qnn_backend.case.steps if hasattr(step, "descriptors")]
    assert [(one.mem_type, one.offset, one.size) for one in descriptors] == [
        (2, 128, 135), (2, 128, 136), (3, 0, None)
    ]
    with pytest.raises(ValueError, match="neither offset nor size"):
        qnn_backend.register(qnn_context, own, (8,), offset=8, memory="ion")
    with pytest.raises(ValueError, match="one of ion, custom, dma-buf"):
        qnn_backend.register(qnn_context, own, (8,), memory="rpcmem")
    with pytest.raises(ValueError, match="an alignment is 1 byte or more"):
        packed([1], 0)
"""
    _passes(pytester, source, "--qnn-backend=reference:dma-buf")


def test_a_context_binary_is_refused_in_one_sentence(pytester: pytest.Pytester) -> None:
    source = """
import numpy as np
import pytest
from pytest_qnn import QnnError

def test(qnn_backend, qnn_context, qnn_graph):
    binary = qnn_backend.save(qnn_context)
    with pytest.raises(QnnError, match="systemContextGetBinaryInfo gave"):
        qnn_backend.load(binary[:20])
    context = qnn_backend.load(binary)
    with pytest.raises(ValueError, match=f"no graph 'other'; its graphs: {qnn_graph}"):
        context.graph("other")
    graph, one = context.graph(), np.zeros((1, 2, 2, 2), np.uint8)
    with pytest.raises(ValueError, match="has 2 inputs, and 1 are given"):
        graph.execute(one)
    with pytest.raises(ValueError, match="input input1 is uint8 of shape .*, not float32 of shape"):
        graph.execute(one, one.astype(np.float32))
    with pytest.raises(ValueError, match="no memory handle h9"):
        graph.execute(one, "h9")
    buffer = qnn_backend.buffer(8)
    handle = qnn_backend.register(context, buffer, (1, 2, 2, 2))
    qnn_backend.deregister(handle)
    with pytest.raises(QnnError, match="graphExecute gave"):
        graph.execute(one, handle)

def test_deferred(qnn_backend, qnn_context, qnn_graph):
    from pytest_qnn.memory_steps import ContextFinalize

    context = qnn_backend.load(qnn_backend.save(qnn_context), defer=True)
    with pytest.raises(QnnError, match="graphRetrieve gave"):
        context.graph()
    assert qnn_backend.do(ContextFinalize(context.name)).code == 0
    assert context.graph().info.name == qnn_graph
"""
    _passes(pytester, source, passed=2)


def test_the_reference_is_opened_beside_the_chosen_backend(pytester: pytest.Pytester) -> None:
    source = """
from pytest_qnn.memory_steps import Capability

def test(qnn_backend, reference_backend):
    codes = [backend.do(Capability(1104)).code for backend in (qnn_backend, reference_backend)]
    assert codes[0] == 0 != codes[1]
"""
    _passes(pytester, source, "--qnn-backend=reference:dma-buf")


def test_allocation_sequences_are_of_the_sizes_that_are_asked_for(pytester: pytest.Pytester) -> None:
    source = """
import pytest
from hypothesis import given, settings
from pytest_qnn import allocation_sequences, custom_allocation_sequences
from pytest_qnn.memory_steps import Alloc, Free, ToFd
from pytest_qnn.script_steps import AllocCustom

seen = set()

@settings(max_examples=50, deadline=None)
@given(case=allocation_sequences(9, 640, alignment=64), other=custom_allocation_sequences(9, 100))
def test_sizes(case, other):
    assert len(case.steps) == len(other.steps) == 9
    for step in case.steps:
        seen.add(type(step))
        assert not isinstance(step, Alloc) or step.size % 64 == 0 < step.size <= 640
    for step in other.steps:
        assert not isinstance(step, AllocCustom) or 1 <= step.bytes <= 100

def test_bounds():
    assert {Alloc, Free, ToFd} <= seen
    for wrong in (dict(max_steps=0), dict(max_size=8, alignment=64)):
        with pytest.raises(ValueError):
            allocation_sequences(**wrong)
    with pytest.raises(ValueError, match="max_size is 1 to"):
        custom_allocation_sequences(max_size=0)
"""
    _passes(pytester, source, passed=2)


def test_every_step_is_exported() -> None:
    for module, steps, union in (
        (case, memory_steps, case.AnyStep),
        (script, script_steps, script.AnyScriptStep),
    ):
        names = {one.cls.__name__ for one in msgspec.inspect.type_info(union).types}
        assert names <= set(steps.__all__)
        assert all(getattr(steps, name) is getattr(module, name) for name in steps.__all__)


MISTAKES = {
    "place_tensor(interpreter, 7, buffer)": "ValueError: there is no tensor 7: the model has 0 to 4",
    "place_tensor(interpreter, 0, interpreter)": "TypeError: memory is from shared_buffer, *",
    "guarded_memory(8, 'behind')": "ValueError: guard is after or before, not 'behind'",
    "make_interpreter(GRAPH, delegate_chain())": "TypeError: a delegate is one argument, as of "
    "*delegate_chain(), and not (<delegate reference at 0x*",
    "make_interpreter(GRAPH, 'xnnpack')": "TypeError: a delegate is one argument, *, and not 'xnnpack'",
    "reference_delegate(fault='invoke')": "ValueError: fault is *kernel-invoke* or empty, not 'invoke'",
    "guarded_memory(0)": "ValueError: guarded memory has 1 byte or more, not 0",
    "qnn_backend.buffer(-1)": "*QnnError: rpcmem_alloc: no memory of -1 bytes",
    "qnn_backend.register('c9', buffer, (8,))": "*QnnError: memRegister: context c9 was never made",
    "qnn_backend.load(b'').graph()": "*QnnError: systemContextGetBinaryInfo gave *",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_argument_is_told_at_the_users_own_line(pytester: pytest.Pytester, mistake: str) -> None:
    pytester.makepyfile(
        CHAIN
        + f"""
from pytest_qnn import place_tensor

def test(make_interpreter, delegate_chain, reference_delegate, shared_buffer, qnn_backend, guarded_memory):
    interpreter, buffer = make_interpreter(GRAPH), shared_buffer(64)
    {mistake}
"""
    )
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f">*{mistake.split('(', maxsplit=1)[0]}(*", f"E *{MISTAKES[mistake]}"])
    result.stdout.no_fnmatch_line("*live/*.py:*")
    result.stdout.no_fnmatch_line("*fixtures/*.py:*")


def test_fixtures_are_listed_with_their_docstrings(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest("--fixtures", "-p", "no:cacheprovider").stdout.str()
    for name in FIXTURES:
        entry = re.search(rf"^{name}(?: \[session scope\])? -- .*\n    (.+)$", listed, re.MULTILINE)
        assert entry, name
        assert "no docstring" not in entry[1]
        assert len(entry[1]) < 110


def test_a_fixture_of_the_users_own_wins(pytester: pytest.Pytester) -> None:
    source = """
import pytest

@pytest.fixture
def delegate():
    return "mine"

def test(delegate):
    assert delegate == "mine"
"""
    _passes(pytester, source)


def test_the_guides_examples_run_as_written(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    guide = (pytestconfig.rootpath / "docs" / "how-to" / "fixtures.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    # Blocks about custom memory need a delegate that has it.
    needs = [block for block in blocks if "custom_memory" in block]
    assert needs
    # What Hypothesis measures is the machine, which has other work. A few examples show that a block works.
    pytester.makeconftest(
        "from hypothesis import settings\n"
        "settings.register_profile('documents', settings(), deadline=None, max_examples=10)\n"
        "settings.load_profile('documents')\n"
    )
    for chosen, option in ((needs, "--tflite-delegate=qnn-reference"), (set(blocks) - set(needs), "-q")):
        pytester.makepyfile(**{f"test_block_{blocks.index(block)}": block for block in chosen})
        result = pytester.runpytest("-p", "no:cacheprovider", "-W", "error", option)
        result.assert_outcomes(passed=sum(block.count("\ndef test_") for block in chosen))
        for path in pytester.path.glob("test_block_*.py"):
            path.unlink()
