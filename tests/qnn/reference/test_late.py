"""Each late fault can be triggered: one sequence of calls per mutant, whose last observation differs."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from qnn_mini import F32, MEMHANDLE, SENTINEL, array, ion, operation, raw, shared, tensor

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import MemType, TensorType
from pytest_qnn.qnn.abi.table import InterfaceP, LogCallback
from pytest_qnn.qnn.mutants import BACKEND, LATE, RPCMEM, late, table
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.target import open_memory_target
from tests.qnn.reference.late_world import World, bound, external, io_buffers, mapped, static

MIB, KIB64, PAGE, GIB4 = 1 << 20, 1 << 16, 4096, 1 << 32
BOGUS = 0xB0605
ALIGNMENT, SPILL_SIZE, WEIGHTS_SIZE = 1, 2, 3
WEIGHTS, SPILL = 2, 3
VERBOSE, DEBUG = 4, 5
WRITE, READ, NATIVE = TensorType.APP_WRITE, TensorType.APP_READ, TensorType.NATIVE
A, B, Z = b"\1" * 8, b"\2" * 8, bytes(8)
SEQUENCES: dict[str, tuple[Callable[[World], None], Any, Any]] = {}
"""By mutant: the calls, the last observation of the reference, and that of the mutant."""


def shows(name: str, right: Any, wrong: Any) -> Any:
    def take(calls: Callable[[World], None]) -> Callable[[World], None]:
        SEQUENCES[name] = calls, right, wrong
        return calls

    return take


def seen(calls: Callable[[World], None], backend: Any, rpcmem: Any) -> list[Any]:
    world = World(backend, rpcmem)
    try:
        calls(world)
        return world.seen
    finally:
        world.close()
        backend.close()
        rpcmem.close()


@pytest.mark.parametrize("name", sorted(late()))
def test_the_last_observation_alone_differs_from_the_reference(name: str) -> None:
    mutant = late()[name]
    calls, right, wrong = SEQUENCES[name]
    faulty = (mutant.of(BACKEND) or ReferenceBackend)()
    reference = ReferenceBackend(faulty.personality)
    expected = seen(calls, reference, EmulatedRpcmem())
    assert reference.escaped == []
    found = seen(calls, faulty, (mutant.of(RPCMEM) or EmulatedRpcmem)())
    assert found[:-1] == expected[:-1]
    assert (expected[-1], found[-1]) == (right, wrong)


def test_every_late_mutant_has_a_sequence_and_a_source() -> None:
    assert SEQUENCES.keys() == late().keys()
    assert [
        name for name, each in late().items() if not (each.made.__doc__ or "").startswith("Source: ")
    ] == []
    assert {each.kills for each in late().values()} == {()}


def test_the_table_does_not_hold_them_and_the_command_line_opens_them() -> None:
    assert not any(name.startswith(LATE) for name in table())
    with closing(open_memory_target("mutant:late-rank-5", "emulated", "auto", 10.0)) as target:
        assert target.facts.provider == "PYTEST_QNN_REFERENCE"


# Contexts, devices and backends


@shows("late-context-slot-lost", 0, 1002)
def _(w: World) -> None:
    buffer = w.buffer()
    for _ in range(32):
        context = w.context()
        w.register(context, ion(buffer.fd))
        w.free(context)
    w.call("contextCreate", w.client.backend, w.client.device, None, ctypes.byref(ctypes.c_void_p()))


@shows("late-context-free-eight", 8001, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    handles = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(9)))
    w.free(context)
    w.deregister(handles[8])


@shows("late-context-free-siblings", 0, 8001)
def _(w: World) -> None:
    contexts, buffer = [w.context() for _ in range(3)], w.buffer()
    handles = [w.register(each, ion(buffer.fd))[0] for each in contexts]
    w.free(contexts[0])
    w.deregister(handles[1])


@shows("late-context-slot-used-again", 8001, 0)
def _(w: World) -> None:
    first = w.context()
    w.free(first)
    w.free(w.context())
    w.context()
    w.register(first, ion(w.buffer().fd))


@shows("late-context-double-free", 5002, 0)
def _(w: World) -> None:
    first, *_ = [w.context() for _ in range(4)]
    w.free(first)
    w.free(first)


@shows("late-device-flag", 14003, 0)
def _(w: World) -> None:
    first, _ = w.context(), w.context()
    w.call("deviceFree", w.client.device)
    w.free(first)
    w.call("deviceFree", w.client.device)


@shows("late-second-backend-takes-all", 0, 6001)
def _(w: World) -> None:
    second = w.client.new("backendCreate", None, None)
    graph = w.copier(w.context())
    w.call("backendFree", second)
    w.run(graph, raw(A), raw(Z))


@shows("late-register-after-second-graph", 0, 1005)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    w.copier(context, "one")
    w.deregister(*w.register(context, ion(buffer.fd)))
    w.copier(context, "two")
    w.register(context, ion(buffer.fd))


@shows("late-capability-lost", 0, 1000)
def _(w: World) -> None:
    for _ in range(4):
        w.call("propertyHasCapability", 1103)
        w.context()
    w.call("propertyHasCapability", 1103)


@shows("late-null-context", 8001, 0)
def _(w: World) -> None:
    context = w.context()
    w.register(None, ion(w.buffer().fd))
    w.register(context, *(ion(w.buffer().fd) for _ in range(3)))
    w.register(None, ion(w.buffer().fd))


# memRegister


@shows("late-batch-position-7", b"\7" * 8, b"\6" * 8)
def _(w: World) -> None:
    context, buffer, output = w.context(), w.buffer(), raw(Z)
    for i in range(8):
        buffer.map[8 * i : 8 * i + 8] = bytes([i]) * 8
    handles = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(8)))
    w.run(w.copier(context), handles[7], output)
    w.note(output.raw)


@shows("late-batch-first-32", True, False)
def _(w: World) -> None:
    buffer = w.buffer()
    handles = w.register(w.context(), *(shared(buffer.fd, PAGE, 8 * i) for i in range(33)))
    w.note(handles[31] is not None)
    w.note(handles[32] is not None)


@shows("late-batch-clears-four", [None] * 5, [None] * 4 + [SENTINEL])
def _(w: World) -> None:
    buffer = w.buffer()
    offsets = (0, 8, 16, 24, PAGE)
    w.note(w.register(w.context(), *(shared(buffer.fd, PAGE, each) for each in offsets)))


@shows("late-roll-back-third", 0, 8002)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    for _ in range(3):
        w.register(context, ion(buffer.fd), ion(-1))
    w.register(context, ion(buffer.fd))


@shows("late-batch-repetition-apart", 8002, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in (0, 1, 2, 3, 0)))
    w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in (0, 1, 2, 3, 4, 0)))


@shows("late-repetition-third", 0, 8001)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    (handle,) = w.register(context, ion(buffer.fd))
    for _ in range(3):
        w.register(context, ion(buffer.fd))
    w.deregister(handle)


@shows("late-repetition-keeps-mapping", 0, 1)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    (handle,) = w.register(context, ion(buffer.fd))
    w.register(context, ion(buffer.fd))
    w.deregister(handle)
    w.note(mapped(buffer))


@shows("late-repetition-forgotten", 8002, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    w.register(context, ion(buffer.fd))
    w.register(context, *(ion(w.buffer().fd) for _ in range(4)))
    w.register(context, ion(buffer.fd))


@shows("late-fourth-context", 0, 8002)
def _(w: World) -> None:
    buffer = w.buffer()
    for _ in range(4):
        w.register(w.context(), ion(buffer.fd))


@shows("late-tombstone-17", 0, 8002)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    for _ in range(16):
        w.deregister(*w.register(context, ion(buffer.fd)))
    w.register(context, ion(buffer.fd))


@shows("late-number-third-file", 0, 8000)
def _(w: World) -> None:
    context = w.context()
    numbers = set()
    for size in (PAGE, 64, 128):
        buffer = w.buffer(size)
        numbers.add(buffer.fd)
        handles = w.register(context, ion(buffer.fd))
        if size != 128:
            w.deregister(*handles)
            buffer.close()
    assert len(numbers) == 1


@shows("late-slot-leaks-refused", 0, 1002)
def _(w: World) -> None:
    context = w.context()
    for _ in range(40):
        w.register(context, ion(-1))
    w.register(context, ion(w.buffer().fd))


@shows("late-slot-leaks-257", 0, 1002)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    for _ in range(256):
        w.deregister(*w.register(context, ion(buffer.fd)))
    w.register(context, ion(buffer.fd))


@shows("late-live-65", 0, 8001)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    handles = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(64)))
    w.register(context, shared(buffer.fd, PAGE, 8 * 64))
    w.deregister(handles[0])


def copied(w: World, buffer: Any, offset: int, handle: int | None, graph: Any) -> None:
    """Executes with a registered input that is B, in a buffer that is A elsewhere; notes the output."""
    output = raw(Z)
    buffer.map[offset : offset + 8] = B
    w.run(graph, handle, output)
    w.note(output.raw)


@shows("late-slot-offset", B, A)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    graph = w.copier(context)
    buffer.map[:] = b"\1" * PAGE
    first, _ = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(2)))
    w.deregister(first)
    (handle,) = w.register(context, shared(buffer.fd, PAGE, 16))
    copied(w, buffer, 16, handle, graph)


@shows("late-offset-ascending", 0, 8000)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    for offset in (8, 0, 40, 32, 24):
        w.register(context, shared(buffer.fd, PAGE, offset))


@shows("late-size-after-first-gone", 8000, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    first, _ = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(2)))
    w.register(context, shared(buffer.fd, 2048, 16))
    w.deregister(first)
    w.register(context, shared(buffer.fd, 2048, 16))


def other_type(buffer: Any) -> Any:
    made = shared(buffer.fd, PAGE, 8)
    made.keep.type = 7
    return made


@shows("late-htp-type-remembered", 8005, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    w.register(context, other_type(buffer))
    w.register(context, shared(buffer.fd, PAGE, 0))
    w.register(context, other_type(buffer))


@shows("late-keeps-custom-info", B, A)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    buffer.map[:] = b"\1" * PAGE
    descriptors = [shared(buffer.fd, PAGE, 8 * i) for i in range(3)]
    handles = w.register(context, *descriptors)
    for each in descriptors:
        each.keep.sharedBufferConfig.offset = 64
    copied(w, buffer, 16, handles[2], w.copier(context))


@shows("late-rounds-size", MIB + 1, MIB + PAGE)
def _(w: World) -> None:
    buffer = w.buffer(2 * MIB)
    descriptor = shared(buffer.fd, MIB + 1, 0)
    w.register(w.context(), descriptor)
    w.note(descriptor.keep.size)


@shows("late-zeroes-last-page", 7, 0)
def _(w: World) -> None:
    buffer = w.buffer(16 * MIB)
    buffer.map[-1] = 7
    w.register(w.context(), ion(buffer.fd))
    w.note(buffer.map[-1])


@shows("late-dma-without-data", 8000, 0)
def _(w: World) -> None:
    context = w.context()
    for data in (True, False, True, False):
        buffer = w.buffer()
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer.map))
        descriptor = ion(-1)
        descriptor.memType, descriptor.dmaBufInfo.fd = MemType.DMA_BUF, buffer.fd
        descriptor.dmaBufInfo.data = address if data else None
        w.register(context, descriptor)


@shows("late-second-use-of-ion", 8002, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    (handle,) = w.register(context, ion(buffer.fd))
    w.register(context, shared(buffer.fd, PAGE, 64))
    w.deregister(handle)
    w.register(context, ion(buffer.fd))
    w.register(context, shared(buffer.fd, PAGE, 64))


@shows("late-same-offset-after-first", 8002, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(2)))
    w.register(context, shared(buffer.fd, PAGE, 0))
    w.register(context, shared(buffer.fd, PAGE, 8))


# What memRegister computes


@shows("late-rank-5", 8000, 0)
def _(w: World) -> None:
    w.register(w.context(), ion(w.buffer(16).fd, (2, 2, 2, 6)))
    w.register(w.context(), ion(w.buffer(16).fd, (2, 2, 2, 2, 3)))


@shows("late-rank-2-exact", 0, 8000)
def _(w: World) -> None:
    w.register(w.context(), ion(w.buffer(64).fd, (8,)), ion(w.buffer(64).fd, (1, 2, 4)))
    w.register(w.context(), ion(w.buffer(64).fd, (2, 4)))


@shows("late-rank-1-float", 8000, 0)
def _(w: World) -> None:
    w.register(w.context(), ion(w.buffer(16).fd, (1, 8), F32))
    w.register(w.context(), ion(w.buffer(16).fd, (8,), F32))


@shows("late-zero-last-dimension", 8004, 0)
def _(w: World) -> None:
    w.register(w.context(), ion(w.buffer(64).fd, (2, 2, 0, 2)))
    w.register(w.context(), ion(w.buffer(64).fd, (2, 2, 2, 0)))


@shows("late-fit-off-by-one", 8000, 0)
def _(w: World) -> None:
    buffer = w.buffer(2 * KIB64)
    w.register(w.context(), shared(buffer.fd, PAGE + 7, PAGE))
    w.register(w.context(), shared(buffer.fd, KIB64 + 7, KIB64))


@shows("late-offset-rounded", B, A[:3] + B[:5])
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer(3 * PAGE)
    graph = w.copier(context)
    buffer.map[:] = b"\1" * (3 * PAGE)
    for offset in (PAGE - 5, 2 * PAGE + 3):
        (handle,) = w.register(context, shared(buffer.fd, 3 * PAGE, offset))
        copied(w, buffer, offset, handle, graph)


@shows("late-offset-from-2g", 0, 8000)
def _(w: World) -> None:
    buffer = w.buffer(GIB4 + PAGE)
    w.register(w.context(), *(shared(buffer.fd, GIB4 + PAGE, offset) for offset in (0, GIB4 // 2 - 8, GIB4)))
    w.register(w.context(), shared(buffer.fd, GIB4 + PAGE, GIB4 // 2))


@shows("late-offset-32-bits", B, A)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer(GIB4 + PAGE)
    buffer.map[:64] = A * 8
    (handle,) = w.register(context, shared(buffer.fd, GIB4 + PAGE, GIB4 + 8))
    copied(w, buffer, GIB4 + 8, handle, w.copier(context))


@shows("late-across-4g", B, B[:4] + A[:4])
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer(GIB4 + PAGE)
    buffer.map[:8] = A
    (handle,) = w.register(context, shared(buffer.fd, GIB4 + PAGE, GIB4 - 4))
    copied(w, buffer, GIB4 - 4, handle, w.copier(context))


@shows("late-size-32-bits", 0, 8000)
def _(w: World) -> None:
    buffer = w.buffer(GIB4 + PAGE)
    w.register(w.context(), shared(buffer.fd, GIB4 + PAGE, 0))
    w.register(w.context(), shared(buffer.fd, GIB4 + PAGE, PAGE))


@shows("late-length-above-64k", 8000, 0)
def _(w: World) -> None:
    w.register(w.context(), ion(w.buffer().fd, (1, KIB64)))
    w.register(w.context(), ion(w.buffer().fd, (1, KIB64 + 1)))


# memDeRegister


@shows("late-deregister-first-16", 8001, 0)
def _(w: World) -> None:
    buffer = w.buffer()
    handles = w.register(w.context(), *(shared(buffer.fd, PAGE, 8 * i) for i in range(17)))
    w.deregister(*handles)
    w.deregister(handles[16])


@shows("late-deregister-third-invalid", 8001, 0)
def _(w: World) -> None:
    first, second = w.register(w.context(), ion(w.buffer().fd), ion(w.buffer().fd))
    w.deregister(BOGUS, BOGUS, first)
    w.deregister(first)
    w.deregister(BOGUS, BOGUS, BOGUS, second)
    w.deregister(second)


@shows("late-deregister-third-context", 0, 8001)
def _(w: World) -> None:
    handles = [w.register(w.context(), ion(w.buffer().fd))[0] for _ in range(5)]
    w.deregister(*handles[:2])
    w.deregister(*handles[2:])


@shows("late-deregister-twice-apart", 8001, 0)
def _(w: World) -> None:
    context = w.context()
    near = w.register(context, *(ion(w.buffer().fd) for _ in range(4)))
    w.deregister(*near[:3], near[0])
    far = w.register(context, *(ion(w.buffer().fd) for _ in range(4)))
    w.deregister(*far, far[0])


@shows("late-deregister-users-mod-4", 0, 1100)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    graph = w.copier(context)
    handles = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(5)))
    w.run(graph, handles[4], raw(Z))
    w.deregister(handles[0])
    w.run(graph, handles[4], raw(Z))


@shows("late-deregister-clears", 9, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    handles = w.register(context, *(shared(buffer.fd, PAGE, 8 * i) for i in range(8)))
    buffer.map[0] = 9
    w.deregister(*handles)
    w.note(buffer.map[0])


@shows("late-stale-third-life", 6004, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    graph = w.copier(context)
    (first,) = w.register(context, ion(buffer.fd))
    w.deregister(first)
    (second,) = w.register(context, ion(buffer.fd))
    w.run(graph, first, raw(Z))
    w.deregister(second)
    w.register(context, ion(buffer.fd))
    w.run(graph, first, raw(Z))


@shows("late-deregister-other-size", 0, 8001)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    wide = shared(buffer.fd, PAGE, 0, (16,))
    handles = w.register(context, wide, shared(buffer.fd, PAGE, 16), shared(buffer.fd, PAGE, 24))
    w.deregister(handles[0])
    w.deregister(handles[1])


@shows("late-deregister-129", 0, 1 << 32)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    for _ in range(129):
        w.deregister(*w.register(context, ion(buffer.fd)))


# graphExecute


@shows("late-output-mebibyte", A, Z)
def _(w: World) -> None:
    context, shape = w.context(), (1, MIB + 8)
    buffer = w.buffer(MIB + 8)
    (handle,) = w.register(context, ion(buffer.fd, shape))
    w.run(w.copier(context, shape=shape), raw(b"\1" * (MIB + 8)), handle)
    w.note(buffer.map[MIB - 8 : MIB])
    w.note(buffer.map[MIB:])


@shows("late-copies-mebibyte", 0, 1)
def _(w: World) -> None:
    context, shape = w.context(), (1, MIB)
    handles = w.register(context, *(ion(w.buffer(MIB).fd, shape) for _ in range(2)))
    graph = w.copier(context, shape=shape, mem_type=MEMHANDLE)
    w.note(io_buffers())
    w.run(graph, *handles)
    w.note(io_buffers())


@shows("late-input-third-execute", b"\3" * 8, b"\2" * 8)
def _(w: World) -> None:
    context, buffer, output = w.context(), w.buffer(), raw(Z)
    (handle,) = w.register(context, ion(buffer.fd))
    graph = w.copier(context)
    for value in (1, 2, 3):
        buffer.map[:8] = bytes([value]) * 8
        w.run(graph, handle, output)
        w.note(output.raw)


def turns(w: World, graphs: list[Any], memory: list[tuple[Any, int | None]]) -> None:
    """Two contexts take turns three times; the bytes of each output are noted."""
    for value in range(1, 7):
        i = value % 2
        buffer, handle = memory[i]
        w.run(graphs[i], raw(bytes([value]) * 8), handle)
        w.note(buffer.map[:8])


@shows("late-third-turn", b"\6" * 8, b"\4" * 8)
def _(w: World) -> None:
    contexts, buffers = [w.context(), w.context()], [w.buffer(), w.buffer()]
    handles = [
        w.register(context, ion(buffer.fd))[0] for context, buffer in zip(contexts, buffers, strict=True)
    ]
    turns(w, [w.copier(each) for each in contexts], list(zip(buffers, handles, strict=True)))


@shows("late-raw-after-handles", b"\3" * 8, Z)
def _(w: World) -> None:
    context, buffer, output = w.context(), w.buffer(), raw(Z)
    source, sink = w.register(context, ion(buffer.fd), ion(w.buffer().fd))
    graph = w.copier(context)
    for value in (1, 2, 3):
        w.run(graph, source, sink)
        w.run(graph, raw(bytes([value]) * 8), output)
        w.note(output.raw)


@shows("late-mixed-first-page", A, Z)
def _(w: World) -> None:
    context, shape = w.context(), (1, PAGE + 8)
    (handle,) = w.register(context, ion(w.buffer(2 * PAGE).fd, shape))
    tensors = [tensor("a", WRITE, shape), tensor("b", WRITE, shape), tensor("o", READ, shape)]
    graph = w.client.graph(context, tensors=tensors)
    ones, output = raw(b"\1" * (PAGE + 8)), raw(bytes(PAGE + 8))
    w.run(graph, raw(bytes(PAGE + 8)), ones, output)
    w.note(output.raw[-8:])
    w.run(graph, handle, ones, output)
    w.note(output.raw[:8])
    w.note(output.raw[-8:])


@shows("late-after-refusal", A, Z)
def _(w: World) -> None:
    graph, output = w.copier(w.context()), raw(Z)
    w.run(graph, BOGUS, output)
    w.run(graph, raw(A), output)
    w.note(output.raw)


@shows("late-duplicate-input-fourth", 6004, 0)
def _(w: World) -> None:
    graph, tensors = w.client.graph(w.context())
    a, _, o = tensors
    for _ in range(2):
        w.run((graph, tensors), raw(A), raw(A), raw(Z))
    w.run((graph, [a, a, o]), raw(A), raw(A), raw(Z))
    w.run((graph, tensors), raw(A), raw(A), raw(Z))
    w.run((graph, [a, a, o]), raw(A), raw(A), raw(Z))


@shows("late-short-by-less-than-a-page", 6004, 0)
def _(w: World) -> None:
    memory, output = raw(bytes(2 * PAGE)), raw(bytes(2 * PAGE))
    graph = w.copier(w.context(), shape=(1, 2 * PAGE))
    w.run(graph, (ctypes.c_char * PAGE).from_buffer(memory), output)
    w.run(graph, (ctypes.c_char * (2 * PAGE - 1)).from_buffer(memory), output)


@shows("late-short-handle-64k", 6004, 0)
def _(w: World) -> None:
    context = w.context()
    small, large = w.register(
        context, ion(w.buffer(KIB64).fd, (1, KIB64)), ion(w.buffer(2 * KIB64).fd, (1, KIB64))
    )
    graph = w.copier(context, shape=(1, KIB64 + 8))
    w.run(graph, small, raw(bytes(KIB64 + 8)))
    w.run(graph, large, raw(bytes(KIB64 + 8)))


@shows("late-foreign-handle", 6004, 0)
def _(w: World) -> None:
    mine, other, buffer = w.context(), w.context(), w.buffer()
    graph = w.copier(mine)
    (foreign,) = w.register(other, ion(buffer.fd))
    w.run(graph, foreign, raw(Z))
    w.register(mine, ion(buffer.fd))
    w.run(graph, foreign, raw(Z))


@shows("late-stale-in-used-graph", 6004, 0)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    graph = w.copier(context)
    for times in (2, 3):
        (handle,) = w.register(context, ion(buffer.fd))
        for _ in range(times):
            w.run(graph, handle, raw(Z))
        w.deregister(handle)
        w.run(graph, handle, raw(Z))


@shows("late-positional-from-five", A, B)
def _(w: World) -> None:
    inputs = [tensor(f"i{i}", WRITE) for i in range(5)]
    outputs = [tensor(f"o{i}", READ) for i in range(5)]
    nodes = [("Relu", [a], o) for a, o in zip(inputs, outputs, strict=True)]
    graph, _ = w.compose(w.context(), "g", nodes)
    memory = [raw(A), *(raw(B) for _ in range(4))]
    results = [raw(Z) for _ in outputs]
    given = list(zip(inputs, memory, strict=True))
    w.execute(graph, given[::-1], list(zip(outputs, results, strict=True)))
    w.note(results[0].raw)


@shows("late-pads-output", b"\xee" * 8, Z)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer(2 * PAGE)
    buffer.map[:] = b"\xee" * (2 * PAGE)
    near, far = w.register(context, *(shared(buffer.fd, 2 * PAGE, offset) for offset in (0, PAGE)))
    graph = w.copier(context)
    for handle, offset in ((near, 0), (far, PAGE)):
        w.run(graph, raw(A), handle)
        w.note(buffer.map[offset : offset + 8])
        w.note(buffer.map[offset + 8 : offset + 16])


@shows("late-chain-64k", b"\2" * 8, b"\1" * 8)
def _(w: World) -> None:
    context, shape = w.context(), (1, KIB64)
    buffers = [w.buffer(KIB64) for _ in range(3)]
    handles = w.register(context, *(ion(each.fd, shape) for each in buffers))
    graphs = [w.copier(context, name, shape) for name in ("one", "two")]
    for value in (1, 2):
        buffers[0].map[:] = bytes([value]) * KIB64
        for i, graph in enumerate(graphs):
            w.run(graph, *handles[i : i + 2])
        w.note(buffers[2].map[:8])


@shows("late-versions-mixed", 0, 6004)
def _(w: World) -> None:
    context = w.context()
    memory = [raw(A), raw(A), raw(Z)]
    for versions in ((1, 1), (2, 2), (1, 2)):
        pair = [tensor(name, WRITE, version=version) for name, version in zip("ab", versions, strict=True)]
        w.run(w.client.graph(context, tensors=[*pair, tensor("o", READ)], name=f"g{versions}"), *memory)


@shows("late-allocates-from-eighth", 2, 4)
def _(w: World) -> None:
    graph = w.copier(w.context(), mem_type=MEMHANDLE)
    for _ in range(8):
        w.run(graph, raw(A), raw(Z))
        w.note(io_buffers())


@shows("late-execute-129", B, A)
def _(w: World) -> None:
    graph, output = w.copier(w.context()), raw(Z)
    for _ in range(128):
        w.run(graph, raw(A), output)
    w.note(output.raw)
    w.run(graph, raw(B), output)
    w.note(output.raw)


@shows("late-third-graph-handle", 0, 6004)
def _(w: World) -> None:
    context = w.context()
    (handle,) = w.register(context, ion(w.buffer().fd))
    for name in ("one", "two", "three"):
        w.run(w.copier(context, name), handle, raw(Z))


@shows("late-native-ring", A, B)
def _(w: World) -> None:
    a, b, o = tensor("a", WRITE), tensor("b", WRITE), tensor("o", READ)
    for count in (8, 9):
        between = [tensor(f"n{i}", NATIVE) for i in range(count)]
        nodes: list[Any] = [("Relu", [b if i else a], each) for i, each in enumerate(between)]
        nodes.append(("Relu", between[:1], o))
        graph, _ = w.compose(w.context(), "g", nodes)
        output = raw(Z)
        w.execute(graph, [(a, raw(A)), (b, raw(B))], [(o, output)])
        w.note(output.raw)


@shows("late-rank-5-broadcast", b"\3" * 8, b"\3\1\1\1" * 2)
def _(w: World) -> None:
    for rank in (4, 5):
        wide, narrow = (*(1,) * (rank - 2), 2, 4), (*(1,) * (rank - 2), 2, 1)
        tensors = [tensor("a", WRITE, wide), tensor("b", WRITE, narrow), tensor("o", READ, wide)]
        output = raw(Z)
        w.run(w.client.graph(w.context(), tensors=tensors), raw(A), raw(b"\2\2"), output)
        w.note(output.raw)


# Graphs


@shows("late-version-2-preset", 7004, 0)
def _(w: World) -> None:
    graph = w.client.new("graphCreate", w.context(), b"g", None)
    for version in (1, 2):
        made = tensor("a", WRITE, mem_type=MEMHANDLE, version=version)
        made.v1.memHandle = 4096
        w.call("tensorCreateGraphTensor", graph, ctypes.byref(made))


@shows("late-version-2-hint", 0, 1)
def _(w: World) -> None:
    w.copier(w.context(), mem_type=MEMHANDLE)
    w.note(io_buffers())
    w.copier(w.context(), mem_type=MEMHANDLE, version=2)
    w.note(io_buffers())


@shows("late-second-graph-allocates", 0, 2)
def _(w: World) -> None:
    context = w.context()
    for name in ("one", "two"):
        w.copier(context, name, mem_type=MEMHANDLE)
        w.note(io_buffers())


@shows("late-ids-third-graph", 6, 4)
def _(w: World) -> None:
    context = w.context()
    ids: set[int] = set()
    for name in ("one", "two", "three"):
        ids |= {each.v1.id for each in w.copier(context, name)[1]}
        w.note(len(ids))


@shows("late-name-third-context", 0, 6003)
def _(w: World) -> None:
    for _ in range(3):
        w.call("graphCreate", w.context(), b"g", None, ctypes.byref(ctypes.c_void_p()))


@shows("late-retrieve-third-context", True, False)
def _(w: World) -> None:
    for _ in range(3):
        context = w.context()
        graph, _ = w.copier(context)
        w.note(w.retrieve(context, "g") == graph)


@shows("late-stale-graph-name", 6001, 0)
def _(w: World) -> None:
    context = w.context()
    graph = w.copier(context)
    w.free(context)
    w.run(graph, raw(A), raw(Z))
    w.copier(w.context())
    w.run(graph, raw(A), raw(Z))


@shows("late-static-64k", b"\1" * 8, b"\2" * 8)
def _(w: World) -> None:
    shape = (1, KIB64)
    graph = w.client.new("graphCreate", w.context(), b"g", None)
    weights = static("s", b"\1" * KIB64)
    tensors = [tensor("a", WRITE, shape), weights, tensor("o", READ, shape)]
    for each in tensors:
        w.call("tensorCreateGraphTensor", graph, ctypes.byref(each))
    weights.memory.raw = b"\2" * KIB64
    w.call("graphAddNode", graph, operation("ElementWiseAdd", tensors[:2], tensors[2:]))
    w.call("graphFinalize", graph, None, None)
    output = raw(bytes(KIB64))
    w.execute(graph, [(tensors[0], raw(bytes(KIB64)))], [(tensors[2], output)])
    w.note(output.raw[:8])


@shows("late-io-buffers-kept", 0, 2)
def _(w: World) -> None:
    context = w.context()
    for name in ("one", "two", "three"):
        w.copier(context, name)
    w.note(io_buffers())
    w.free(context)
    w.note(io_buffers())


# Binaries


def weighted(
    w: World, context: int, name: str, data: bytes, kind: int = TensorType.STATIC
) -> tuple[int, list[Any]]:
    """A graph that adds weights called s to its input."""
    shape = (1, len(data))
    a, s, o = tensor("a", WRITE, shape), static("s", data, kind), tensor("o", READ, shape)
    graph, _ = w.compose(context, name, [("ElementWiseAdd", [a, s], o)])
    return graph, [a, o]


def added(w: World, graph: tuple[int | None, list[Any]]) -> bytes:
    """The output of a graph of `weighted` for zeros."""
    size = graph[1][0].v1.dimensions[1]
    output = raw(bytes(size))
    w.run((graph[0] or 0, graph[1]), raw(bytes(size)), output)
    return bytes(output.raw)


@shows("late-binary-memory-type", 0, 2)
def _(w: World) -> None:
    context = w.context()
    for name in ("one", "two", "three"):
        w.copier(context, name, mem_type=MEMHANDLE)
    w.load(w.binary(context))
    w.note(io_buffers())


@shows("late-binary-weights-64k", A, Z)
def _(w: World) -> None:
    context = w.context()
    _, tensors = weighted(w, context, "g", b"\1" * (KIB64 + 8))
    found = added(w, (w.retrieve(w.load(w.binary(context)), "g"), tensors))
    w.note(found[:8])
    w.note(found[-8:])


@shows("late-weights-by-name", B, A)
def _(w: World) -> None:
    context = w.context()
    graphs = {name: weighted(w, context, name, data) for name, data in (("one", A), ("two", B))}
    loaded = w.load(w.binary(context))
    for name, (_, tensors) in graphs.items():
        w.note(added(w, (w.retrieve(loaded, name), tensors)))


@shows("late-binary-third-load", A, Z)
def _(w: World) -> None:
    context = w.context()
    _, tensors = weighted(w, context, "g", A)
    binary = w.binary(context)
    for _ in range(3):
        w.note(added(w, (w.retrieve(w.load(binary), "g"), tensors)))


@shows("late-binary-size-cached", True, False)
def _(w: World) -> None:
    context, size = w.context(), ctypes.c_uint64()
    w.copier(context, "one")
    w.call("contextGetBinarySize", context, ctypes.byref(size))
    before = w.note(size.value)
    w.copier(context, "two")
    w.call("contextGetBinarySize", context, ctypes.byref(size))
    w.note(size.value > before)


@shows("late-binary-short-memory", 5007, 0)
def _(w: World) -> None:
    context, written = w.context(), ctypes.c_uint64()
    weighted(w, context, "g", b"\1" * (2 * KIB64))
    binary = w.binary(context)
    for short in (2 * PAGE, 8):
        place = (ctypes.addressof(binary), len(binary) - short)
        w.call("contextGetBinary", context, *place, ctypes.byref(written))


@shows("late-binary-third-unfinalised", 5003, 0)
def _(w: World) -> None:
    context, size = w.context(), ctypes.c_uint64()
    for name in ("one", "two"):
        w.copier(context, name)
    w.client.new("graphCreate", context, b"three", None)
    w.call("contextGetBinarySize", context, ctypes.byref(size))


@shows("late-graph-in-second-loaded", 1005, 0)
def _(w: World) -> None:
    context = w.context()
    w.copier(context)
    binary = w.binary(context)
    for _ in range(2):
        w.call("graphCreate", w.load(binary), b"new", None, ctypes.byref(ctypes.c_void_p()))


@shows("late-binary-read-later", 0, 1100)
def _(w: World) -> None:
    context = w.context()
    _, tensors = weighted(w, context, "g", b"\1" * KIB64)
    binary = w.binary(context)
    loaded = w.retrieve(w.load(binary), "g")
    added(w, (loaded, tensors))
    ctypes.memset(binary, 0xEE, len(binary))
    added(w, (loaded, tensors))


@shows("late-deferred-remembered", 0, 6023)
def _(w: World) -> None:
    context = w.context()
    w.copier(context)
    binary = w.binary(context)
    w.retrieve(w.load(binary, deferred=0), "g")
    w.load(binary, deferred=1)
    w.retrieve(w.load(binary, deferred=0), "g")


@shows("late-pieces-third-context", 0, 1)
def _(w: World) -> None:
    context = w.context()
    w.copier(context)
    binary = w.binary(context)
    place, out_of_client = ctypes.addressof(binary), [0]

    def provide(request: Any, response: Any, _parameter: Any) -> int:
        out_of_client[0] += 1
        response[0].memPtr, response[0].dataStartOffset = place + request.offset, 0
        response[0].alignedSize = request.size
        return 0

    def release(_memory: Any, _parameter: Any) -> int:
        out_of_client[0] -= 1
        return 0

    callback = layouts.ContextBinaryCallback(type=1)
    callback.rawBufferCallback.version = 1
    callback.rawBufferCallback.v1.dataProvide = layouts.ProvideRaw(provide)
    callback.rawBufferCallback.v1.dataRelease = layouts.ReleaseRaw(release)
    for _ in range(3):
        out = ctypes.c_void_p()
        arguments = (ctypes.addressof(callback), place, len(binary), ctypes.addressof(out), None, None)
        w.call("contextCreateFromBinaryWithCallback", w.client.backend, w.client.device, None, *arguments)
        w.note(out_of_client[0])


def section(w: World, context: int) -> Any:
    """The section of all graphs of a context, in memory of the client."""
    size, written = ctypes.c_uint64(), ctypes.c_uint64()
    w.call("contextGetBinarySectionSize", context, None, 1, ctypes.byref(size))
    memory = ctypes.create_string_buffer(max(1, size.value))
    w.call(
        "contextGetBinarySection", context, None, 1, section_buffer(memory), ctypes.byref(written), None, None
    )
    return memory


def section_buffer(memory: Any) -> Any:
    made = layouts.ContextBuffer(version=1)
    made.v1.memType = 0
    made.v1.binaryBuf.data, made.v1.binaryBuf.dataSize = ctypes.addressof(memory), len(memory)
    made.memory_of_client = memory
    return ctypes.byref(made)


def update(w: World, graph: int, tensor_id: int, data: bytes) -> None:
    """New data for the updatable weights of a graph."""
    given = static("s", data, TensorType.UPDATEABLE_STATIC)
    given.v1.id = tensor_id
    listed = (ctypes.c_void_p * 1)(ctypes.addressof(given))
    w.call("tensorUpdateGraphTensors", graph, listed, 1)
    w.call("graphFinalize", graph, None, None)


@shows("late-section-third-graph", A, B)
def _(w: World) -> None:
    context = w.context()
    names = ("one", "two", "three")
    graphs = [weighted(w, context, each, A, TensorType.UPDATEABLE_STATIC) for each in names]
    memory = section(w, context)
    for graph, tensors in graphs:
        update(w, graph, tensors[0].v1.id + 1, B)
    w.call("contextApplyBinarySection", context, None, 1, section_buffer(memory), None, None)
    for graph in graphs:
        w.note(added(w, graph))


@shows("late-section-after-refusal", A, B)
def _(w: World) -> None:
    context = w.context()
    graph, tensors = weighted(w, context, "g", A, TensorType.UPDATEABLE_STATIC)
    memory = section(w, context)
    for garbage in (False, True):
        if garbage:
            w.call("contextApplyBinarySection", context, None, 1, section_buffer(raw(bytes(64))), None, None)
        update(w, graph, tensors[0].v1.id + 1, B)
        w.call("contextApplyBinarySection", context, None, 1, section_buffer(memory), None, None)
        w.note(added(w, (graph, tensors)))


# External memory


def spilling(w: World, context: int, name: str, size: int = 8) -> tuple[int, list[Any]]:
    """A graph with a tensor between its input and its output."""
    shape = (1, size)
    a, n, o = tensor("a", WRITE, shape), tensor("n", NATIVE, shape), tensor("o", READ, shape)
    graph, _ = w.compose(context, name, [("Relu", [a], n), ("Relu", [n], o)])
    return graph, [a, o]


@shows("late-spill-first-two", [2 * PAGE], [PAGE])
def _(w: World) -> None:
    context = w.context()
    for name, size in (("one", 8), ("two", 8), ("three", 2 * PAGE)):
        spilling(w, context, name, size)
    w.note(w.properties(w.load(w.binary(context), 1), SPILL_SIZE))


@shows("late-weights-from-third", [3 * PAGE], [2 * PAGE])
def _(w: World) -> None:
    context = w.context()
    for name in ("one", "two", "three"):
        weighted(w, context, name, bytes(PAGE))
    w.note(w.properties(w.load(w.binary(context), 1), WEIGHTS_SIZE))


@shows("late-property-third", [PAGE] * 3, [PAGE, PAGE, 77])
def _(w: World) -> None:
    deferred = w.load(of_both(w), 1)
    w.note(w.properties(deferred, ALIGNMENT, WEIGHTS_SIZE, start=77))
    w.note(w.properties(deferred, ALIGNMENT, SPILL_SIZE, WEIGHTS_SIZE, start=77))


def of_both(w: World) -> Any:
    """A binary whose context needs a page of weights and a page of spill-fill memory."""
    context = w.context()
    weighted(w, context, "weighted", A)
    spilling(w, context, "spilling")
    return w.binary(context)


@shows("late-property-after-giving", [PAGE], [0])
def _(w: World) -> None:
    deferred = w.load(of_both(w), 1)
    w.note(w.properties(deferred, WEIGHTS_SIZE))
    w.register(deferred, external(w.buffer().fd, PAGE, SPILL))
    w.note(w.properties(deferred, WEIGHTS_SIZE))
    w.register(deferred, external(w.buffer().fd, PAGE, WEIGHTS))
    w.note(w.properties(deferred, WEIGHTS_SIZE))


@shows("late-weights-third-context", 8002, 0)
def _(w: World) -> None:
    binary, buffer = of_both(w), w.buffer()
    first, second = w.load(binary, 1), w.load(binary, 1)
    w.register(first, external(buffer.fd, PAGE, WEIGHTS))
    w.register(second, external(buffer.fd, PAGE, WEIGHTS))
    w.register(w.load(binary, 1), external(buffer.fd, PAGE, WEIGHTS))


@shows("late-spill-fourth-context", 0, 8002)
def _(w: World) -> None:
    binary, buffer = of_both(w), w.buffer()
    for _ in range(4):
        w.register(w.load(binary, 1), external(buffer.fd, PAGE, SPILL))


@shows("late-fixed-once", 8001, 0)
def _(w: World) -> None:
    deferred = w.load(of_both(w), 1)
    (handle,) = w.register(deferred, external(w.buffer().fd, PAGE, WEIGHTS))
    w.call("contextFinalize", deferred, None)
    w.deregister(handle)
    w.deregister(handle)


@shows("late-external-offset-64k", 8000, 0)
def _(w: World) -> None:
    deferred, size = w.load(of_both(w), 1), 2 * KIB64
    buffer = w.buffer(size)
    w.register(deferred, external(buffer.fd, size, WEIGHTS, PAGE + 8))
    w.register(deferred, external(buffer.fd, size, WEIGHTS, KIB64 + 8))


@shows("late-external-given-again", 0, 8002)
def _(w: World) -> None:
    deferred, buffer = w.load(of_both(w), 1), w.buffer()
    w.deregister(*w.register(deferred, external(buffer.fd, PAGE, WEIGHTS)))
    w.register(deferred, external(buffer.fd, PAGE, WEIGHTS))


@shows("late-weights-stuck-third", 0, 8002)
def _(w: World) -> None:
    binary, buffer = of_both(w), w.buffer()
    for _ in range(3):
        deferred = w.load(binary, 1)
        w.register(deferred, external(buffer.fd, PAGE, WEIGHTS))
        w.call("contextFinalize", deferred, None)
        w.free(deferred)
    w.register(w.load(binary, 1), external(buffer.fd, PAGE, WEIGHTS))


@shows("late-spill-third-turn", b"\6" * 8, b"\5" * 8)
def _(w: World) -> None:
    context = w.context()
    _, tensors = spilling(w, context, "g")
    binary, spill = w.binary(context), w.buffer()
    graphs, memory = [], []
    for _ in range(2):
        deferred, buffer = w.load(binary, 1), w.buffer()
        w.register(deferred, external(spill.fd, PAGE, SPILL))
        w.call("contextFinalize", deferred, None)
        graphs.append((w.retrieve(deferred, "g"), tensors))
        memory.append((buffer, w.register(deferred, ion(buffer.fd))[0]))
    turns(w, graphs, memory)


@shows("late-spill-fd-as-io", 8002, 0)
def _(w: World) -> None:
    deferred, other, buffer = w.load(of_both(w), 1), w.context(), w.buffer()
    w.register(deferred, external(buffer.fd, PAGE, SPILL))
    w.register(other, ion(buffer.fd))
    w.call("contextFinalize", deferred, None)
    w.register(other, ion(buffer.fd))


@shows("late-weights-mebibyte", b"\2" * 8, Z)
def _(w: World) -> None:
    context = w.context()
    weighted(w, context, "one", b"\1" * PAGE)
    weighted(w, context, "two", b"\2" * MIB)
    deferred, buffer = w.load(w.binary(context), 1), w.buffer(2 * MIB)
    w.register(deferred, external(buffer.fd, 2 * MIB, WEIGHTS))
    w.call("contextFinalize", deferred, None)
    w.note(buffer.map[:8])
    w.note(buffer.map[PAGE : PAGE + 8])


@shows("late-deferred-fifth-graph", 0, 6002)
def _(w: World) -> None:
    context = w.context()
    for i in range(5):
        w.copier(context, f"g{i}")
    deferred = w.load(w.binary(context), 1)
    w.call("contextFinalize", deferred, None)
    for i in range(5):
        w.retrieve(deferred, f"g{i}")


# rpcmem


def alloc(w: World, size: int = PAGE) -> int:
    pointer = w.rpc.alloc(25, 1, size)
    w.note(pointer != 0)
    return int(pointer)


@shows("late-rpc-fd-17", 17, 16)
def _(w: World) -> None:
    pointers = [alloc(w) for _ in range(16)]
    w.note(len({w.rpc.to_fd(each) for each in pointers}))
    pointers.append(alloc(w))
    w.note(len({w.rpc.to_fd(each) for each in pointers}))


@shows("late-rpc-last-page", KIB64 + 8, KIB64)
def _(w: World) -> None:
    for size in (PAGE + 8, KIB64 + 8):
        w.note(os.fstat(w.rpc.to_fd(alloc(w, size))).st_size)


@shows("late-rpc-freed-fd", True, False)
def _(w: World) -> None:
    freed = alloc(w, MIB)
    w.rpc.free(freed)
    w.note(w.rpc.to_fd(freed) == -1)
    others = [alloc(w) for _ in range(4)]
    assert freed not in others
    w.note(w.rpc.to_fd(freed) == -1)


@shows("late-rpc-leak-ninth", 0, 1)
def _(w: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(9):
        w.rpc.free(alloc(w, KIB64))
        w.note(len(os.listdir("/proc/self/fd")) - before)


@shows("late-rpc-interior-free", True, False)
def _(w: World) -> None:
    for size in (MIB - PAGE, MIB):
        pointer = alloc(w, size)
        w.rpc.free(pointer + PAGE)
        w.note(w.rpc.to_fd(pointer) >= 0)


@shows("late-rpc-size-4g", GIB4 + PAGE, PAGE)
def _(w: World) -> None:
    for size in (GIB4 - PAGE, GIB4 + PAGE):
        w.note(os.fstat(w.rpc.to_fd(w.rpc.alloc2(25, 1, size))).st_size)


@shows("late-rpc-same-memory-again", False, True)
def _(w: World) -> None:
    first = alloc(w)
    for _ in range(3):
        other = alloc(w)
        w.note(os.path.sameopenfile(w.rpc.to_fd(first), w.rpc.to_fd(other)))
        w.rpc.free(other)
    w.note(os.path.sameopenfile(w.rpc.to_fd(first), w.rpc.to_fd(alloc(w))))


# What is attached


def logged(w: World, level: int) -> tuple[int, list[int]]:
    """A log, and the levels of the messages that it was given."""
    levels: list[int] = []
    callback = LogCallback(lambda _text, given, _time, _arguments: levels.append(given))
    w.kept.append(callback)
    return w.client.new("logCreate", callback, level), levels


def backend_with(w: World, log: int) -> int:
    return w.client.new("backendCreate", log, None)


def context_of(w: World, backend: int) -> int:
    return w.client.new("contextCreate", backend, None, None)


@shows("late-log-deregister", 0, 8001)
def _(w: World) -> None:
    for level in (VERBOSE - 1, VERBOSE):
        context = context_of(w, backend_with(w, logged(w, level)[0]))
        w.deregister(*w.register(context, ion(w.buffer().fd)))


@shows("late-log-batch", 3, 2)
def _(w: World) -> None:
    for context in (w.context(), context_of(w, backend_with(w, logged(w, 1)[0]))):
        w.note(len(set(w.register(context, *(ion(w.buffer().fd) for _ in range(3))))))


@shows("late-log-second-backend", 0, 1)
def _(w: World) -> None:
    log, levels = logged(w, DEBUG)
    backends = [backend_with(w, log) for _ in range(2)]
    w.call("logFree", log)
    for backend in backends:
        context_of(w, backend)
        w.note(len(levels))


@shows("late-log-level-third", 1, 2)
def _(w: World) -> None:
    log, levels = logged(w, DEBUG)
    backend = backend_with(w, log)
    for level in (1, DEBUG, 1):
        w.call("logSetLogLevel", log, level)
        context_of(w, backend)
        w.note(len(levels))


@shows("late-profile-handle-output", B, A)
def _(w: World) -> None:
    context, buffer = w.context(), w.buffer()
    graph = w.copier(context)
    (handle,) = w.register(context, ion(buffer.fd))
    profile = w.client.new("profileCreate", w.client.backend, 1)
    for value in (A, B):
        w.run(graph, raw(value), handle, profile=profile)
        w.note(buffer.map[:8])


@shows("late-signal-freed", 6000, 0)
def _(w: World) -> None:
    graph = w.copier(w.context())
    freed = w.client.new("signalCreate", w.client.backend, None)
    w.call("signalFree", freed)
    w.run(graph, raw(A), raw(Z), signal=freed)
    w.client.new("signalCreate", w.client.backend, None)
    w.run(graph, raw(A), raw(Z), signal=freed)


@shows("late-error-text-stale", True, False)
def _(w: World) -> None:
    text = ctypes.c_char_p()
    for code in (8000, 8001, 4999, 8002, 4999):
        w.call("errorGetMessage", code, ctypes.byref(text))
        w.note(text.value is None)


@shows("late-error-text-high", 0, 10001)
def _(w: World) -> None:
    text = ctypes.c_char_p()
    w.call("errorGetMessage", 8003, ctypes.byref(text))
    w.register(w.context(), ion(-1))
    w.call("errorGetMessage", 8003, ctypes.byref(text))


@shows("late-providers-ninth", 1, 2)
def _(w: World) -> None:
    arrays = set()
    for _ in range(8):
        listed, count = ctypes.POINTER(InterfaceP)(), ctypes.c_uint32()
        w.note(w.get_providers(ctypes.byref(listed), ctypes.byref(count)))
        arrays.add(ctypes.cast(listed, ctypes.c_void_p).value)
    w.note(len(arrays))


@shows("late-backend-log", 4011, 0)
def _(w: World) -> None:
    log, _ = logged(w, DEBUG)
    w.call("logFree", log)
    for _ in range(2):
        w.call("backendCreate", log, None, ctypes.byref(ctypes.c_void_p()))
        w.client.new("backendCreate", None, None)


class Queue:
    """Executions of one graph; each notification puts its number into ``order``, number 1 when it may."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.order: list[int] = []
        self.changed, self.begun, self.go = threading.Condition(), threading.Event(), threading.Event()
        self.notify = layouts.NotifyFn(self._notified)
        graph, (a, o) = w.copier(w.context())
        self.memory = raw(A), raw(Z)
        self.given = graph, array([bound(a, self.memory[0])]), array([bound(o, self.memory[1])])

    def _notified(self, number: int, _status: Any) -> None:
        if number == 1:
            self.begun.set()
            self.go.wait(5)
        with self.changed:
            self.order.append(number)
            self.changed.notify_all()

    def put(self, *numbers: int) -> None:
        graph, inputs, outputs = self.given
        for number in numbers:
            arguments = (graph, inputs, 1, outputs, 1, None, None, self.notify, number)
            self.w.call("graphExecuteAsync", *arguments)

    def wait_for(self, *numbers: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: {*numbers} <= {*self.order}, 5)


@shows("late-async-order", [1, 2, 3, 4, 5], [1, 5, 2, 3, 4])
def _(w: World) -> None:
    queue = Queue(w)
    queue.put(1)
    queue.begun.wait(5)
    queue.put(2, 3, 4, 5)
    queue.go.set()
    queue.wait_for(1, 2, 3, 4, 5)
    w.note(queue.order)


@shows("late-async-notify-17", True, False)
def _(w: World) -> None:
    queue = Queue(w)
    queue.go.set()
    for number in range(1, 19):
        queue.put(number)
        if number != 17:
            queue.wait_for(number)
    w.note(17 in queue.order)
