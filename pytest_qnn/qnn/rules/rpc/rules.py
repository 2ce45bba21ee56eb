"""RPC: rpcmem_alloc, rpcmem_to_fd and rpcmem_free."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Retained, Unsupported, Violation, WrongOutput
from pytest_qnn.qnn.cases.case import Alloc, Free, MemoryCase, Observe, Parallel, Read, ToFd, Write
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.judging import demand_steady, steps_of
from pytest_qnn.qnn.rules.rpc.buffers import (
    fd_of,
    first_difference,
    pointer_of,
    read_at,
    some_size,
    written,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import AllocCounts, MemoryTrace, ProcessCounts

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
    "rpcmem_alloc gives writable memory of at least the requested size, or NULL.",
    source="seed 002, rpcmem",
    subject="memory",
    cases=embedded(_ends, around=Scene.around_memory),
)
def rpc_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The first and the last byte can be written and keep what is written to them."""
    count = 0
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and pointer_of(seen) and step.size > 0:
            counts = seen.counted(AllocCounts)
            for end, writable in (("first", counts.first_writable), ("last", counts.last_writable)):
                if not writable:
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
    "rpcmem_alloc with a size of 0 or below gives NULL.",
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
    "Live allocations are disjoint and have distinct file descriptors.",
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
    "The file descriptor of an allocation refers to its memory: another mapping of it shows what the client "
    "wrote.",
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


_CYCLES = 8


def _ask_fd(scene: Scene, tape: Tape) -> None:
    buffers = [scene.alloc(some_size(tape)) for _ in range(1 + tape.below(3))]
    scene.add(Observe())
    for _ in range(2 + tape.below(4)):
        scene.add(ToFd(tape.pick(buffers)))
    scene.add(Observe())


@rule(
    "RPC-06",
    Level.MUST,
    "rpcmem_to_fd of a live allocation gives a file descriptor, always the same, and opens no new one.",
    source="seed 002, rpcmem_to_fd",
    subject="memory",
    cases=embedded(_ask_fd, around=Scene.around_memory),
)
def rpc_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """At least 0, equal on every call, and no more descriptors are open than before."""
    known: dict[str, int] = {}
    count = 0
    for index, step, seen in steps_of(case, trace):
        if not isinstance(step, ToFd) or step.pointer != "base":
            continue
        first = known.setdefault(step.buffer, fd_of(seen))
        if first < 0 or first != fd_of(seen):
            expected = f"descriptor {first} again" if first >= 0 else "a descriptor of 0 or above"
            raise Violation(expected, str(fd_of(seen)), f"step {index}, to-fd of {step.buffer}")
        count += 1
    demand_steady(case, trace, "rpcmem_to_fd", ("open descriptors",), falling=True)
    return Examined(count, "descriptors asked for")


def _no_fd(scene: Scene, tape: Tape) -> None:
    buffer = scene.alloc(some_size(tape))
    kind = tape.below(4)
    if kind == 3:
        scene.free(buffer)
        scene.add(ToFd(buffer))
    elif kind == 2:
        scene.add(ToFd(buffer, "interior"))
    else:
        scene.add(ToFd("", "unknown" if kind else "null"))


@rule(
    "RPC-07",
    Level.MUST,
    "rpcmem_to_fd of a pointer that is NULL, unknown, freed or inside an allocation gives -1.",
    source="seed 002, the check for -1; fastrpc matches the exact pointer",
    subject="memory",
    cases=embedded(_no_fd, around=Scene.around_memory, after=0),
)
def rpc_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """-1. A freed pointer is judged only while no later allocation may have its address."""
    freed: set[str] = set()
    count = 0
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Free) and step.pointer == "base":
            freed.add(step.buffer)
        elif isinstance(step, Alloc):
            freed.clear()
        elif isinstance(step, ToFd) and (step.pointer != "base" or step.buffer in freed):
            if fd_of(seen) != -1:
                which = "freed" if step.pointer == "base" else step.pointer
                raise Violation(f"-1 for the {which} pointer", str(fd_of(seen)), f"step {index}, to-fd")
            count += 1
    return Examined(count, "pointers without a descriptor")


def _free_wrongly(scene: Scene, tape: Tape) -> None:
    """Frees that must have no effect, between two looks at what lives."""
    kept = [scene.alloc(some_size(tape)) for _ in range(1 + tape.below(2))]
    size = some_size(tape)
    gone = scene.alloc(size)
    scene.add(ToFd(gone))
    scene.free(gone)
    if tape.chance(2):
        # It gets the descriptor number of the freed one and, being larger, another address.
        kept.append(scene.alloc(size + PAGE))
    for buffer in kept:
        scene.add(ToFd(buffer))
    scene.add(Observe())
    for _ in range(1 + tape.below(3)):
        kind = tape.below(4)
        if kind == 3:
            scene.add(Free(kept[0], "interior"))
        elif kind == 2:
            scene.add(Free(gone))
        else:
            scene.add(Free("", "unknown" if kind else "null"))
    scene.add(Observe())
    for buffer in kept:
        scene.add(ToFd(buffer))


@rule(
    "RPC-08",
    Level.MUST,
    "rpcmem_free ignores a pointer that is NULL, unknown, freed already or inside an allocation.",
    source="seed 002, rpcmem_free; fastrpc",
    subject="memory",
    cases=embedded(_free_wrongly, around=Scene.around_memory, before=1, after=0),
)
def rpc_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors and mappings stay as they were, and live allocations keep their fd.

    The second free of a pointer that an allocation was given again is in order, and is not judged.
    """
    if _freed_again(case, trace):
        return Examined(0, "frees that must be ignored")
    demand_steady(case, trace, "frees of what is no allocation")
    looked = False
    known: dict[str, int] = {}
    count = 0
    for index, step, seen in steps_of(case, trace):
        looked = looked or isinstance(step, Observe)
        if isinstance(step, ToFd) and step.pointer == "base":
            first = known.setdefault(step.buffer, fd_of(seen))
            if first != fd_of(seen):
                where = f"step {index}, to-fd of {step.buffer}"
                raise WrongOutput(f"descriptor {first} still", str(fd_of(seen)), where)
        count += looked and isinstance(step, Free)
    return Examined(count, "frees that must be ignored")


def _freed_again(case: MemoryCase, trace: MemoryTrace) -> bool:
    """A pointer was freed twice that belongs to a live allocation by then."""
    live: dict[str, int] = {}
    for _, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and pointer_of(seen):
            live[step.buffer] = pointer_of(seen)
        elif isinstance(step, Free) and step.pointer == "base":
            first = live.pop(step.buffer, 0) > 0
            if not first and pointer_of(seen) in live.values():
                return True
    return False


_NOT_TO_BE_HAD = 1 << 62
"""Bytes that no address space has."""


def _cycles(scene: Scene, tape: Tape) -> None:
    """A round to warm up, and eight rounds between two looks: alloc and free, and an alloc that must fail."""
    sizes = [some_size(tape) for _ in range(1 + tape.below(3))]
    for number in range(1 + _CYCLES):
        if number == 1:
            scene.add(Observe())
        for buffer in [scene.alloc(size) for size in sizes]:
            scene.add(ToFd(buffer))
            scene.free(buffer)
        scene.add(Alloc(scene.name("b"), _NOT_TO_BE_HAD, wide=True))
    scene.add(Observe())


@rule(
    "RPC-11",
    Level.MUST,
    "rpcmem_free unmaps the memory and closes its file descriptor: their numbers are as before the "
    "allocation. An allocation that fails leaves neither.",
    source="seed 002, rpcmem_free; ONNX Runtime issue 23892",
    subject="memory",
    cases=embedded(_cycles, around=Scene.around_memory, before=1, after=0),
)
def rpc_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No more descriptors or shared mappings after eight rounds than before."""
    demand_steady(case, trace, f"{_CYCLES} rounds of alloc and free", falling=True)
    looks = [
        seen.counted(ProcessCounts).mappings
        for _, step, seen in steps_of(case, trace)
        if isinstance(step, Observe)
    ]
    freed = sum(isinstance(step, Free) and pointer_of(seen) > 0 for _, step, seen in steps_of(case, trace))
    if len(looks) < 2 or freed < _CYCLES:
        return Examined(0, "rounds of alloc and free")
    grown = looks[-1] - looks[0]
    if grown >= _CYCLES:
        raise Retained("mappings that return", f"{grown} more after {_CYCLES} rounds of alloc and free")
    return Examined(_CYCLES, "rounds of alloc and free")


_WIDE = (1 << 31, (1 << 32) + PAGE, PAGE, (1 << 32) + 1, _NOT_TO_BE_HAD)


def _some(scene: Scene, tape: Tape) -> None:
    for _ in range(1 + tape.below(4)):
        scene.alloc(some_size(tape))


@rule(
    "RPC-03",
    Level.SHOULD,
    "rpcmem_alloc gives a pointer to the start of a page.",
    source="fastrpc rpcmem_alloc maps whole pages; external buffers need 4096, TensorFlow Lite needs 64",
    subject="memory",
    cases=embedded(_some, around=Scene.around_memory),
)
def rpc_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A multiple of 4096, for every allocation."""
    count = 0
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and not step.own and pointer_of(seen):
            if pointer_of(seen) % PAGE:
                where = f"step {index}, alloc"
                raise Violation(f"a multiple of {PAGE}", f"0x{pointer_of(seen):x}", where)
            count += 1
    return Examined(count, "pointers")


def _wide(scene: Scene, tape: Tape) -> None:
    buffer = scene.name("b")
    scene.add(Alloc(buffer, tape.pick(_WIDE), wide=True))
    scene.add(ToFd(buffer))


@rule(
    "RPC-05",
    Level.MUST,
    "rpcmem_alloc2 takes sizes larger than an int, and truncates none of them.",
    source="fastrpc: rpcmem_alloc2 has a size_t where rpcmem_alloc has an int",
    subject="memory",
    cases=embedded(_wide, around=Scene.around_memory, before=1, after=0),
    weight=0.5,
)
def rpc_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """NULL, or the last byte can be written, for sizes up to 4 GiB and a page, and one that cannot be had."""
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Alloc) or not step.wide:
            continue
        if seen.skipped:
            raise Unsupported(seen.skipped)
        if pointer_of(seen) and not seen.counted(AllocCounts).last_writable:
            where = f"step {index}, alloc"
            raise Violation(f"{step.size} writable bytes", "the last one cannot be written", where)
        count += 1
    return Examined(count, "allocations by rpcmem_alloc2")


def _threads(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    del facts
    return st.tuples(st.integers(2, 4), st.integers(4, 12)).map(
        lambda numbers: MemoryCase((Parallel("rpcmem", threads=numbers[0], rounds=numbers[1]),))
    )


@rule(
    "RPC-13",
    Level.SHOULD,
    "rpcmem_alloc, rpcmem_to_fd and rpcmem_free may be called from several threads.",
    source="fastrpc guards its list of allocations by a mutex",
    subject="memory",
    cases=_threads,
    weight=0.2,
)
def rpc_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each thread finds its own bytes behind its own descriptor."""
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Parallel) and not seen.skipped:
            for what, turn in seen.calls:
                where = f"step {index}, {step.threads} threads, round {turn}"
                raise Violation("memory of its own for each thread", what, where)
            count += step.threads * step.rounds
    return Examined(count, "allocations on threads")


_HEAPS = (25, 0, 22, 26, 27, 28, -1, 1 << 30, -(1 << 31))
"""RPCMEM_HEAP_ID_SYSTEM first; those of other ION heaps, and ids that are none."""
_FLAGS = (1, 0, 2, 1 << 26, 0xFFFFFFFF)
"""RPCMEM_DEFAULT_FLAGS first."""


def _of_a_heap(scene: Scene, tape: Tape) -> None:
    """Memory of any heap and flags, written at both ends, and read through a mapping of its descriptor."""
    size = some_size(tape)
    buffer = scene.name("b")
    scene.add(Alloc(buffer, size, heap=tape.pick(_HEAPS), flags=tape.pick(_FLAGS)))
    scene.add(ToFd(buffer))
    scene.add(Write(buffer, 1, 0, 1 + tape.below(9)))
    scene.add(Write(buffer, 1, size - 1, 11 + tape.below(9)))
    scene.add(Read(buffer, via="fd" if tape.below(2) else "client"))
    scene.add(Free(buffer))


@rule(
    "RPC-14",
    Level.MUST,
    "rpcmem_alloc with any heap id and any flags gives writable memory of the requested size with a file "
    "descriptor, or NULL.",
    source="seed 002, rpcmem (heapid, flags; NULL on failure)",
    subject="memory",
    cases=embedded(_of_a_heap, around=Scene.around_memory),
)
def rpc_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """As RPC-02, and a descriptor of 0 or more, with heap ids other than 25 and flags other than 1."""
    of_heaps: set[str] = set()
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and (step.heap, step.flags) != (25, 1) and pointer_of(seen):
            counts = seen.counted(AllocCounts)
            if not (counts.first_writable and counts.last_writable):
                what = "its first or its last byte cannot be written"
                raise Violation(f"{step.size} writable bytes, or NULL", what, f"step {index}, {_heap(step)}")
            of_heaps.add(step.buffer)
        elif (
            isinstance(step, ToFd) and step.buffer in of_heaps and step.pointer == "base" and fd_of(seen) < 0
        ):
            raise Violation("a file descriptor of 0 or more", str(fd_of(seen)), f"step {index}, to_fd")
        elif isinstance(step, Free) and step.pointer == "base":
            of_heaps.discard(step.buffer)
    read = 0
    for via in ("client", "fd"):
        for index, buffer, data, expected in written(case, trace, via):
            if data != expected:
                raise WrongOutput(
                    "the bytes written", first_difference(expected, data), read_at(index, buffer)
                )
            read += 1
    return Examined(read, "buffers written and read")


def _heap(step: Alloc) -> str:
    return f"rpcmem_alloc({step.heap}, {step.flags:#x}, {step.size})"
