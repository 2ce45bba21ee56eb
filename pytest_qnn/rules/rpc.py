"""RPC: what rpcmem_alloc gives."""

from __future__ import annotations

from pytest_qnn.cases.memory import Alloc, Free, MemoryCase, Read, ToFd, Write
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules.rpc_support import (
    PAGE,
    fd_of,
    first_difference,
    pointer_of,
    read_at,
    some_size,
    steps_of,
    written,
)
from pytest_qnn.trace import MemoryTrace

_NO_SIZES = (0, -1, -(1 << 31), -PAGE)


def _ends(scene: Scene, tape: Tape) -> None:
    """Write both ends of a buffer, in either order, and read all of it."""
    size = some_size(tape)
    buffer = scene.alloc(size)
    first, last = Write(buffer, 1, 0, 1 + tape.below(9)), Write(buffer, 1, size - 1, 11 + tape.below(9))
    for step in (first, last) if tape.below(2) else (last, first):
        scene.add(step)
    scene.add(Read(buffer))
    if tape.below(4) == 3:
        scene.add(Alloc(scene.name("b"), 0x7FFFFFFF))


@rule(
    "RPC-02",
    Level.MUST,
    "rpcmem_alloc gives writable memory of at least the size asked for, or NULL.",
    source="seed 002, rpcmem",
    subject="memory",
    cases=embedded(_ends, around=Scene.around_memory),
)
def rpc_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The first and the last byte can be written and keep what is written to them."""
    count = 0
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and pointer_of(seen) and step.size > 0:
            for end in ("first", "last"):
                if not seen.counts.get(f"{end}_writable", 0):
                    what = f"the {end} byte cannot be written"
                    raise Violation(f"{step.size} writable bytes", what, f"step {index}, alloc")
            count += 1
    for index, buffer, data, expected in written(case, trace, "client"):
        if data != expected:
            wrong = first_difference(expected, data)
            raise Violation("every byte as written", wrong, read_at(index, buffer))
        count += 1
    return Examined(count, "allocations written to their ends")


def _no_size(scene: Scene, tape: Tape) -> None:
    scene.add(Alloc(scene.name("b"), tape.pick(_NO_SIZES)))


@rule(
    "RPC-04",
    Level.MUST,
    "rpcmem_alloc of a size of 0 or below gives NULL.",
    source="fastrpc rpcmem_alloc; seed 002, NULL on failure",
    subject="memory",
    cases=embedded(_no_size, around=Scene.around_memory),
    weight=0.5,
)
def rpc_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """NULL for 0, -1, -4096 and the smallest int."""
    count = 0
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and step.size <= 0:
            if pointer_of(seen):
                raise Violation(
                    f"NULL for size {step.size}", f"0x{pointer_of(seen):x}", f"step {index}, alloc"
                )
            count += 1
    return Examined(count, "sizes of 0 or below")


def _many(scene: Scene, tape: Tape) -> None:
    """Several live allocations, each with its own contents, read when all are written."""
    buffers = {}
    for number in range(2 + tape.below(4)):
        size = some_size(tape) % (8 * PAGE) + 1
        buffers[scene.alloc(size)] = (size, number)
    for buffer, (size, number) in buffers.items():
        scene.add(ToFd(buffer))
        scene.add(Write(buffer, size, seed=1 + number))
    for buffer in buffers:
        scene.add(Read(buffer))


@rule(
    "RPC-09",
    Level.MUST,
    "Live allocations are disjoint and have distinct descriptors.",
    source="seed 002, a unique file descriptor per buffer",
    subject="memory",
    cases=embedded(_many, around=Scene.around_memory),
)
def rpc_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Address ranges, descriptors and contents of allocations that live at the same time."""
    live: dict[str, tuple[int, int]] = {}
    fds: dict[int, str] = {}
    count = 0
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and pointer_of(seen):
            start, end = pointer_of(seen), pointer_of(seen) + step.size
            for other, (low, high) in live.items():
                if start < high and low < end:
                    raise Violation(f"memory apart from {other}'s", f"0x{start:x}", f"step {index}, alloc")
            live[step.buffer] = (start, end)
            count += 1
        elif isinstance(step, Free) and step.pointer == "base":
            live.pop(step.buffer, None)
            fds = {fd: buffer for fd, buffer in fds.items() if buffer != step.buffer}
        elif isinstance(step, ToFd) and step.pointer == "base" and fd_of(seen) >= 0:
            owner = fds.setdefault(fd_of(seen), step.buffer)
            if owner != step.buffer:
                raise Violation(
                    f"a descriptor other than {owner}'s", str(fd_of(seen)), f"step {index}, to-fd"
                )
    for index, buffer, data, expected in written(case, trace, "client"):
        if data != expected:
            raise Violation("its own contents", first_difference(expected, data), read_at(index, buffer))
    return Examined(count, "allocations")


def _through_fd(scene: Scene, tape: Tape) -> None:
    size = some_size(tape) % (8 * PAGE) + 1
    buffer = scene.alloc(size)
    for _ in range(1 + tape.below(2)):
        scene.add(Write(buffer, size, seed=1 + tape.below(200)))
        scene.add(Read(buffer, "fd"))


@rule(
    "RPC-10",
    Level.MUST,
    "The descriptor refers to the same memory: another mapping of it sees what the client wrote.",
    source="seed 002, bound by memFd",
    subject="memory",
    cases=embedded(_through_fd, around=Scene.around_memory),
)
def rpc_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every byte, after each write."""
    count = 0
    for index, buffer, data, expected in written(case, trace, "fd"):
        if data != expected:
            raise Violation("the bytes written", first_difference(expected, data), read_at(index, buffer))
        count += 1
    return Examined(count, "buffers read through their descriptor")
