from __future__ import annotations

import ctypes
import functools
import mmap
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from kept import keep

from pytest_qnn.tflite.abi import peek
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    FreeBuffer,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    Read,
    ScriptCase,
    SetInputs,
    Unallocate,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.observe.guard_pages import ALIGNMENT, PAGE, TAIL, Guarded
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import ScriptTrace

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((3, 5))
CONSTANT = Tensor((3, 5), data=np.arange(15, dtype=np.float32).tobytes())
GRAPH = Graph((T, CONSTANT, T, T), (Node("ADD", (0, 1), (2,)), Node("MUL", (2, 0), (3,))), (0,), (3,))
START = (MakeDelegate("d0"), Open("i0"))
USE = (Apply("i0", "d0"), Allocate("i0"), SetInputs("i0"), Invoke("i0"), Read("i0"))


class Buffer:
    """A guarded buffer and what was seen of it."""

    def __init__(self, made: Guarded) -> None:
        self.made = made
        self.seen: list[tuple[str, str, int]] = []
        made.on_touch = lambda why, access, offset: self.seen.append((why, access, offset))


@pytest.fixture
def buffer() -> Iterator[Buffer]:
    made = Guarded(60, "flush")
    made.arm()
    yield Buffer(made)
    made.close()


@functools.cache
def _target(spec: str, runtime: str, sandbox: str = "off") -> DelegateTarget:
    return keep(open_delegate_target([(spec, {})], runtime, sandbox, 10.0))


def _run(spec: str, runtime: str, *steps: AnyScriptStep, sandbox: str = "off") -> ScriptTrace:
    trace: ScriptTrace = _target(spec, runtime, sandbox).run(ScriptCase((GRAPH,), steps))
    return trace


def test_a_read_beyond_the_page_is_recorded_and_goes_on(buffer: Buffer) -> None:
    assert len(ctypes.string_at(buffer.made.address, 60 + TAIL + 4)) == 80
    assert buffer.seen == [("outside", "read", 60 + TAIL)]


def test_a_write_before_the_pages_is_recorded(buffer: Buffer) -> None:
    ctypes.memset(buffer.made.begin, 0, 1)
    assert buffer.seen == [("outside", "write", buffer.made.begin - buffer.made.address)]


def test_a_write_of_numpy_is_recorded(buffer: Buffer) -> None:
    peek.array(buffer.made.address, np.float32, (20,))[...] = 1.0
    assert [(why, access) for why, access, _ in buffer.seen] == [("outside", "write")]


def test_an_access_of_another_thread_is_recorded(buffer: Buffer) -> None:
    end = buffer.made.end - PAGE
    thread = threading.Thread(target=ctypes.memset, args=(end, 0, 1))
    thread.start()
    thread.join()
    assert buffer.seen == [("outside", "write", 60 + TAIL)]


def test_a_page_is_closed_again_when_it_is_armed(buffer: Buffer) -> None:
    for _ in range(2):
        buffer.made.arm()
        ctypes.memset(buffer.made.end - PAGE, 0, 1)
    assert len(buffer.seen) == 2


def test_a_byte_beside_the_data_is_noticed_once(buffer: Buffer) -> None:
    ctypes.memset(buffer.made.address + 60, 0, 1)
    assert buffer.made.changed() == 60
    assert buffer.made.changed() is None
    ctypes.memset(buffer.made.address - 3, 0, 1)
    assert buffer.made.changed() == -3
    assert not buffer.seen


def test_bytes_of_a_buffer_that_the_tensor_does_not_use_are_beside_it(buffer: Buffer) -> None:
    buffer.made.use(20)
    ctypes.memset(buffer.made.address + 20, 0, 1)
    assert buffer.made.changed() == 20


def test_a_buffer_that_was_given_back_may_not_be_read(buffer: Buffer) -> None:
    buffer.made.give_back()
    ctypes.string_at(buffer.made.address, 1)
    assert buffer.seen == [("given-back", "read", 0)]


def test_a_read_only_buffer_may_not_be_written(buffer: Buffer) -> None:
    buffer.made.readonly = True
    buffer.made.arm()
    assert ctypes.string_at(buffer.made.address, 60)
    ctypes.memset(buffer.made.address + 8, 0, 1)
    assert buffer.seen == [("constant", "write", 8)]


@pytest.mark.parametrize("size", [0, 1, 60, 64, 4096, 5000])
@pytest.mark.parametrize("misalign", [0, 4, 63])
def test_data_lies_where_it_is_wanted(size: int, misalign: int) -> None:
    for guard in ("after", "before", "none", "flush"):
        made = Guarded(size, guard, misalign)
        assert made.begin + PAGE <= made.address <= made.address + size <= made.end - PAGE
        room = made.end - PAGE - made.address - size
        if guard == "flush":
            assert room == TAIL
        else:
            assert made.address % ALIGNMENT == misalign
        assert guard != "after" or TAIL <= room < TAIL + ALIGNMENT
        made.close()


def test_a_crash_elsewhere_is_still_a_crash() -> None:
    code = (
        "import ctypes; from pytest_qnn.tflite.observe.guard_pages import Guarded; "
        "made = Guarded(8); made.arm(); print('armed', flush=True); ctypes.string_at(8)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "armed\n"
    assert done.returncode == -11


def test_the_signal_is_given_back_with_the_last_buffer() -> None:
    code = (
        "import faulthandler, ctypes; faulthandler.enable();"
        " from pytest_qnn.tflite.observe.guard_pages import Guarded;"
        " made = Guarded(8); made.close(); ctypes.string_at(8)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Fatal Python error: Segmentation fault" in done.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("spec", ["reference", "xnnpack"])
def test_a_conforming_delegate_touches_nothing(spec: str, runtime: str) -> None:
    places = tuple(Place("i0", t, guard="flush", skip_alignment_check=True) for t in (0, 1, 3))
    trace = _run(spec, runtime, *START, *places, Unallocate("i0"), *USE)
    assert all(seen.ok for seen in trace.steps)
    assert trace.touches == ()
    assert trace.steps[-1].outputs == trace.steps[-1].cpu


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_touch_names_tensor_offset_and_kernel(runtime: str) -> None:
    trace = _run("mutant:writes-tail", runtime, *START, Place("i0", 3), *USE)
    (touch,) = trace.touches
    assert (touch.why, touch.access, touch.tensor, touch.offset, touch.size) == (
        "outside",
        "write",
        3,
        60,
        60,
    )
    assert (touch.application, touch.kernel, touch.step) == (0, 0, 6)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("tail", "offsets"), [(16, []), (0, [60])])
def test_a_read_of_one_element_more_is_seen_where_no_byte_is_to_spare(
    tail: int, offsets: list[int], runtime: str
) -> None:
    place = Place("i0", 0, guard="flush", skip_alignment_check=True, tail=tail)
    trace = _run("mutant:reads-one-behind", runtime, *START, place, *USE)
    assert [touch.offset for touch in trace.touches] == offsets
    assert {touch.access for touch in trace.touches} <= {"read"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_changed_constant_is_found_without_being_placed(runtime: str) -> None:
    trace = _run("mutant:rounds-constants", runtime, *START, *USE)
    (touch,) = trace.touches
    assert (touch.why, touch.tensor) == ("constant", 1)
    assert touch.offset in range(56, 60)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_buffer_in_use_is_not_given_back(runtime: str) -> None:
    trace = _run(
        "reference", runtime, *START, Place("i0", 0, "b"), FreeBuffer("b"), Close("i0"), FreeBuffer("b")
    )
    assert "has a tensor in the buffer" in trace.steps[3].skipped
    assert trace.steps[5].ok


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_process_that_dies_of_alignment_alone_is_told_apart(runtime: str) -> None:
    place = Place("i0", 0, guard="flush", skip_alignment_check=True)
    trace = _run("mutant:loads-aligned", runtime, *START, place, *USE, sandbox="fork")
    assert trace.misaligned
    assert trace.death is None


def test_an_in_process_target_runs_guarded_cases_in_a_child_unless_told_not_to() -> None:
    case = ScriptCase((GRAPH,), (*START, Place("i0", 0, misalign=4, skip_alignment_check=True), *USE))
    target = open_delegate_target([("mutant:loads-aligned", {})], RUNTIMES[0], "auto", 10.0)
    try:
        assert not target.isolated
        trace = target.run(case)
    finally:
        target.close()
    assert trace.misaligned or trace.death is not None


def test_pages_are_those_of_the_system() -> None:
    assert PAGE == mmap.PAGESIZE
