"""What an author does wrong with a fixture is told in one sentence, and ends no process."""

from __future__ import annotations

import pytest

from pytest_qnn.qnn import live as live_memory
from pytest_qnn.qnn import target as qnn_target
from pytest_qnn.tflite import live, target
from pytest_qnn.tflite.runner.delegates import NoDelegate

SHARED = (live, live_memory, target, qnn_target)
"""Loaded before any test, so that the pytest runs in this process share these modules and their classes."""

HEAD = """
import threading

import numpy as np
import pytest
from pytest_qnn import Binding, DelegateCase, Graph, MemoryCase, Node, Tensor, invoke, place_tensor
from pytest_qnn.memory_steps import Alloc

T = Tensor((2,))
GRAPH = Graph((T, T), (Node("RELU", (0,), (1,)),), (0,), (1,))
SHAPE = (1, 2, 2, 2)
INPUT = np.zeros(SHAPE, np.uint8)
"""

OVER = "ValueError: the session is closed: qnn_backend is for one test, one of open_qnn_backend for its block"
AFTERWARDS = {
    "backend.context()": OVER,
    "backend.buffer(8)": OVER,
    "backend.register(context, buffer, SHAPE)": OVER,
    "backend.deregister(handle)": OVER,
    "backend.graph(context, SHAPE)": OVER,
    "backend.execute(graph, Binding('handle', handle))": OVER,
    "backend.save(context)": OVER,
    "backend.load(binary)": OVER,
    "backend.binary_info(binary)": OVER,
    "backend.memory_types()": OVER,
    "backend.do(Alloc('b', 8))": OVER,
    "backend.state": OVER,
    "loaded.graph()": OVER,
    "retrieved.execute(INPUT, INPUT)": OVER,
    "buffer.array": "ValueError: buffer b* was freed already",
    "place_tensor(interpreter, 0, buffer)": "ValueError: the memory was freed already",
    "invoke(interpreter, [np.zeros(2, np.float32)])": (
        "ValueError: tensor 1 was placed in memory that is freed"
    ),
}
SESSION = """
@pytest.fixture
def of_before(open_qnn_backend, make_interpreter):
    with open_qnn_backend() as backend:
        context = backend.context()
        graph, buffer = backend.graph(context, SHAPE), backend.buffer(64)
        handle = backend.register(context, buffer, SHAPE)
        binary = backend.save(context)
        loaded = backend.load(binary)
        retrieved = loaded.graph()
        interpreter = make_interpreter(GRAPH)
        place_tensor(interpreter, 1, buffer)
        return backend, context, graph, buffer, handle, binary, loaded, retrieved, interpreter
"""
TAKEN = "backend, context, graph, buffer, handle, binary, loaded, retrieved, interpreter = of_before"


def _told(pytester: pytest.Pytester, head: str, tests: dict[str, str], fixtures: str, first: str) -> None:
    """Each of these lines, in a test of its own, fails with its error, and no frame but its own is shown."""
    bodies = [f"def test_{at}({fixtures}):\n    {first}\n    {line}\n" for at, line in enumerate(tests)]
    pytester.makepyfile(HEAD + head + "\n\n".join(bodies))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:faulthandler", "-rN")
    result.assert_outcomes(failed=len(tests))
    parts = result.stdout.str().split("\n____")[1:]
    for part, (line, error) in zip(parts, tests.items(), strict=True):
        matcher = pytest.LineMatcher(part.splitlines())
        matcher.fnmatch_lines([f"> *{line.replace('[', '[[]')}", f"E  *{error}", "test_*.py:*"])
        frames = [shown for shown in part.splitlines() if ".py:" in shown and not shown.startswith("E ")]
        assert len(frames) == 1, part


def test_what_a_closed_session_gave_reaches_no_backend(pytester: pytest.Pytester) -> None:
    _told(pytester, SESSION, AFTERWARDS, "of_before", TAKEN)


def test_what_a_closed_session_gave_can_be_looked_at_and_freed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + SESSION
        + f"""
def test(of_before, rpcmem, monkeypatch):
    {TAKEN}
    freed = []
    monkeypatch.setattr(type(rpcmem), "free", lambda self, pointer: freed.append(pointer))
    assert buffer.freed
    assert buffer.fd == -1
    buffer.free()
    assert not freed
    assert backend.closed
    assert len(backend.case.steps) > 4
"""
    )
    pytester.runpytest("-p", "no:cacheprovider", "-W", "error").assert_outcomes(passed=1)


def test_a_buffer_is_freed_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import pytest

def test(qnn_backend, shared_buffer):
    buffer = shared_buffer(8)
    buffer.array[:] = 7
    assert buffer.array.tolist() == [7] * 8
    buffer.free()
    steps = len(qnn_backend.case.steps)
    buffer.free()
    assert len(qnn_backend.case.steps) == steps
    with pytest.raises(ValueError, match="buffer b0 was freed already"):
        buffer.array
"""
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=1)


ARGUMENTS = {
    "qnn_backend.buffer('8')": "TypeError: a size is a whole number of bytes, not '8'",
    "qnn_backend.buffer(8.5)": "TypeError: a size is a whole number of bytes, not 8.5",
    "guarded_memory(8.0)": "TypeError: a size is a whole number of bytes, not 8.0",
    "qnn_backend.register(qnn_context, 'b0', (8,))": (
        "TypeError: a buffer is from shared_buffer or buffer(), and not 'b0'"
    ),
    "qnn_backend.register(qnn_context, buffer, 8)": "TypeError: a shape is a tuple of whole numbers, not 8",
    "qnn_backend.register(qnn_context, buffer, (8,), 'uint8')": (
        "ValueError: dtype is one of UFIXED_POINT_8, FLOAT_32, not 'uint8'"
    ),
    "qnn_backend.register(qnn_context, buffer, (8,), memory='heap')": (
        "ValueError: memory is one of ion, custom, dma-buf, not 'heap'"
    ),
    "qnn_backend.graph(qnn_context, (8,), 'Add')": "ValueError: op is one of ElementWiseAdd, *, not 'Add'",
    "qnn_backend.graph(qnn_context, (1, -8))": "ValueError: a dimension is 0 to 4294967295, *(1, -8)",
    "qnn_backend.execute(qnn_graph, 'h0')": (
        "TypeError: the memory of a tensor is a Binding(seed=...) or Binding('handle', NAME), not 'h0'"
    ),
    "qnn_backend.deregister([])": "TypeError: a memory handle is a name from register(), and not [[][]]",
    "qnn_backend.do(Alloc)": "TypeError: a step is an object of a class of pytest_qnn.memory_steps, not *",
    "qnn_backend.deregister('NULL')": "QnnError: memDeRegister gave 8001 QNN_MEM_ERROR_INVALID_HANDLE",
    "run_memory(DelegateCase(GRAPH))": "TypeError: run_memory takes a MemoryCase, not DelegateCase(*",
    "run_delegate(GRAPH)": "TypeError: run_delegate takes a DelegateCase or a ScriptCase, not Graph(*",
    "run_memory(MemoryCase((Alloc('b', 'x'),)))": (
        "ValueError: run_memory cannot carry out this MemoryCase: *got `str` - at `$.steps[[]0].size`"
    ),
    "run_memory(MemoryCase(('x',)))": "ValueError: *this MemoryCase: Expected `object`, got `str` - at *",
    "run_memory(MemoryCase((Alloc('b', np.int64(8)),)))": (
        "ValueError: run_memory cannot carry out this MemoryCase: *type *int64* is unsupported"
    ),
    "run_delegate(DelegateCase(GRAPH, invokes=17))": (
        "ValueError: run_delegate cannot carry out this DelegateCase: Expected `int` <= 16 - at `$.invokes`"
    ),
    "place_tensor(None, 0, buffer)": (
        "RuntimeMissing: an interpreter is one of tflite_runtime or ai_edge_litert, and not None"
    ),
}


def test_a_wrong_argument_is_told_before_any_call(pytester: pytest.Pytester) -> None:
    fixtures = "qnn_backend, qnn_context, qnn_graph, shared_buffer, guarded_memory, run_memory, run_delegate"
    _told(pytester, "", ARGUMENTS, fixtures, "buffer = shared_buffer(8)")


DEAD = """
from pytest_qnn.memory_steps import ContextCreate, Deregister, Descriptor, Execute, Prepare, Register

REGISTERED = ContextCreate("c"), Alloc("b", 8), Register("c", (Descriptor("b", SHAPE),), ("h",))
STALE = Binding("handle", "h")
STEPS = *REGISTERED, Prepare("g", "c"), Deregister(("h",)), Execute("g", (STALE, STALE, STALE))

def test(run_memory):
    trace = run_memory(MemoryCase(STEPS))
    assert trace.death is None
"""


def test_an_author_is_told_how_and_where_a_process_died(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + DEAD)
    backend = "--qnn-backend=mutant:drg-crashes-on-stale"
    result = pytester.runpytest("-p", "no:cacheprovider", "-vv", "--qnn-sandbox=fork", backend)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "> *assert trace.death is None",
            "E  *the process died of * (in QnnGraph_execute, step 5 (Execute *))",
            "E  *calls, by step",
            "E  *5: QnnGraph_execute did not return",
        ]
    )


def test_what_else_is_none_or_not_is_compared_as_pytest_does(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_a():\n    assert 1 is None\n\ndef test_b():\n    assert [1] == [2]\n")
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        ["E  *assert 1 is None", "E  *assert [[]1] == [[]2]", "E  *At index 0 diff: 1 != 2"]
    )


def test_a_plugin_that_makes_no_delegate_is_told_in_one_sentence(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_made(_: object) -> None:
        raise NoDelegate("tflite_plugin_create_delegate of libmine.so returned NULL: it has no options")

    monkeypatch.setattr(live.DelegateChain, "__call__", none_made)
    pytester.makepyfile("def test(delegate):\n    pass\n")
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["--tflite-delegate: * of libmine.so returned NULL: it has no options"])
    result.stdout.no_fnmatch_line("*.py:[0-9]*")


def test_an_interpreter_of_a_derived_class_is_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEAD
        + """
from pytest_qnn import emit, execution_plan

def test(tflite_runtime, make_interpreter):
    class Mine(type(make_interpreter(GRAPH))):
        pass

    mine = Mine(model_content=emit(GRAPH))
    mine.allocate_tensors()
    assert len(execution_plan(mine)) == 1
"""
    )
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_threads_share_a_session(pytester: pytest.Pytester) -> None:
    """The Qnn_Tensor_t of a graph are the client's: one thread would bind what another one has in a call."""
    pytester.makepyfile(
        HEAD
        + """
def test(qnn_backend, qnn_graph, monkeypatch):
    client = qnn_backend.state.client
    outputs, at_once, call = {}, [], client.call
    within = threading.Semaphore(1)
    both = threading.Barrier(2)

    def slow(name, *arguments):
        alone = within.acquire(timeout=0.2)
        at_once.append(not alone)
        try:
            return call(name, *arguments)
        finally:
            threading.Event().wait(0.5)
            if alone:
                within.release()

    def work(seed):
        both.wait()
        outputs[seed] = qnn_backend.execute(qnn_graph, Binding(seed=seed), Binding(seed=seed))

    wanted = {seed: qnn_backend.execute(qnn_graph, Binding(seed=seed), Binding(seed=seed)) for seed in (1, 2)}
    monkeypatch.setattr(client, "call", slow)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert at_once == [False, False]
    assert outputs == wanted
"""
    )
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1)
