from __future__ import annotations

import re

import pytest

from pytest_qnn.qnn import live as live_memory
from pytest_qnn.qnn import target as qnn_target
from pytest_qnn.qnn.runner.client import Session
from pytest_qnn.tflite import live, target

SHARED = (live, live_memory, target, qnn_target)
"""Loaded before any test, so that the pytest runs in this process share these modules and their classes."""


RUNTIMES = ("tflite_runtime", "ai_edge_litert")
FIXTURES = (
    "tflite_runtime",
    "make_interpreter",
    "delegate",
    "delegate_chain",
    "reference_delegate",
    "delegate_target",
    "run_delegate",
    "open_qnn_backend",
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
    guide = (pytestconfig.rootpath / "docs" / "fixtures.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(blocks)})
    result = pytester.runpytest("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=len(blocks))
