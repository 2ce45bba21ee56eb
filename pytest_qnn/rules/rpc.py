"""RPC: the rpcmem provider, libcdsprpc or its emulation."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.cases.data import contents
from pytest_qnn.cases.memory import Alloc, AnyStep, Free, MemoryCase, Observe, Read, ToFd, Write
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.rules.memory_support import bytes_read
from pytest_qnn.rules.rule import rule
from pytest_qnn.trace import MemoryTrace, StepSeen
from pytest_qnn.verdict import Examined, Level, Violation

PAGE = 4096
_CYCLES = 8
_SIZES = (1, PAGE, PAGE + 1, 3 * PAGE, 64, 1 << 20)
_NO_SIZES = (0, -1, -(1 << 31), -PAGE)


def _steps(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[int, AnyStep, StepSeen]]:
    """Steps that were carried out, and reads that could not be."""
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not seen.skipped or isinstance(step, Read):
            yield index, step, seen


def _pointer(seen: StepSeen) -> int:
    """The address that an Alloc gave; 0 is NULL."""
    return seen.values[0] if seen.values else 0


def _fd(seen: StepSeen) -> int:
    """The descriptor that a ToFd gave."""
    return seen.values[0] if seen.values else -1


def _size(tape: Tape) -> int:
    return tape.pick(_SIZES) + tape.below(2) * tape.below(5000)


def _ends(scene: Scene, tape: Tape) -> None:
    """Write both ends of a buffer, in either order, and read all of it."""
    size = _size(tape)
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
    for index, step, seen in _steps(case, trace):
        if isinstance(step, Alloc) and _pointer(seen) and step.size > 0:
            for end in ("first", "last"):
                if not seen.counts.get(f"{end}_writable", 0):
                    what = f"the {end} byte cannot be written"
                    raise Violation(f"{step.size} writable bytes", what, f"step {index}, alloc")
            count += 1
    for index, buffer, data, expected in _written(case, trace, "client"):
        if data != expected:
            raise Violation(
                "every byte as written", _first_difference(expected, data), _read_at(index, buffer)
            )
        count += 1
    return Examined(count, "allocations written to their ends")


def _written(case: MemoryCase, trace: MemoryTrace, via: str) -> Iterator[tuple[int, str, bytes, bytes]]:
    """(index, buffer, bytes read, bytes expected) where a read follows writes; unwritten bytes agree."""
    images: dict[str, dict[int, int]] = {}
    sizes: dict[str, int] = {}
    for index, step, seen in _steps(case, trace):
        if isinstance(step, Alloc) and _pointer(seen):
            images[step.buffer], sizes[step.buffer] = {}, step.size
        elif isinstance(step, Write) and step.buffer in images:
            written = contents(step.dtype, step.seed, step.size)
            images[step.buffer].update(enumerate(written, step.offset))
        elif isinstance(step, Read) and step.via == via and step.buffer in images:
            data = bytes_read(seen)
            if data is None:
                raise Violation("readable memory", seen.skipped, _read_at(index, step.buffer))
            expected = bytearray(data[: sizes[step.buffer]].ljust(sizes[step.buffer], b"\0"))
            for at, byte in images[step.buffer].items():
                expected[at] = byte
            yield index, step.buffer, data[: sizes[step.buffer]], bytes(expected)


def _read_at(index: int, buffer: str) -> str:
    return f"step {index}, read of {buffer}"


def _first_difference(expected: bytes, seen: bytes) -> str:
    if len(expected) != len(seen):
        return f"{len(seen)} bytes of {len(expected)}"
    at = next(at for at, (a, b) in enumerate(zip(expected, seen, strict=True)) if a != b)
    return f"0x{seen[at]:02x} for 0x{expected[at]:02x} at byte {at} of {len(expected)}"


def _no_size(scene: Scene, tape: Tape) -> None:
    scene.add(Alloc(scene.name("b"), tape.pick(_NO_SIZES)))


@rule(
    "RPC-04",
    Level.MUST,
    "rpcmem_alloc of a size of 0 or below gives NULL.",
    source="fastrpc rpcmem_alloc; seed 002, NULL on failure",
    subject="memory",
    cases=embedded(_no_size, around=Scene.around_memory),
    weight=0.3,
)
def rpc_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """NULL for 0, -1, -4096 and the smallest int."""
    count = 0
    for index, step, seen in _steps(case, trace):
        if isinstance(step, Alloc) and step.size <= 0:
            if _pointer(seen):
                raise Violation(f"NULL for size {step.size}", f"0x{_pointer(seen):x}", f"step {index}, alloc")
            count += 1
    return Examined(count, "sizes of 0 or below")


def _ask_fd(scene: Scene, tape: Tape) -> None:
    buffers = [scene.alloc(_size(tape)) for _ in range(1 + tape.below(3))]
    scene.add(Observe())
    for _ in range(2 + tape.below(4)):
        scene.add(ToFd(tape.pick(buffers)))
    scene.add(Observe())


@rule(
    "RPC-06",
    Level.MUST,
    "rpcmem_to_fd of a live allocation is a descriptor, always the same, and opens no new one.",
    source="seed 002, rpcmem_to_fd",
    subject="memory",
    cases=embedded(_ask_fd, around=Scene.around_memory),
)
def rpc_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """At least 0, equal on every call, and the number of open descriptors stays."""
    known: dict[str, int] = {}
    count = 0
    for index, step, seen in _steps(case, trace):
        if not isinstance(step, ToFd) or step.pointer != "base":
            continue
        first = known.setdefault(step.buffer, _fd(seen))
        if first < 0 or first != _fd(seen):
            expected = f"descriptor {first} again" if first >= 0 else "a descriptor of 0 or above"
            raise Violation(expected, str(_fd(seen)), f"step {index}, to-fd of {step.buffer}")
        count += 1
    demand_steady(case, trace, "rpcmem_to_fd", ("fds",))
    return Examined(count, "descriptors asked for")


def demand_steady(case: MemoryCase, trace: MemoryTrace, doing: str, kinds: tuple[str, ...]) -> None:
    """Raise Violation when a count of the last Observe differs from the first one's."""
    looks = [(index, seen.counts) for index, step, seen in _steps(case, trace) if isinstance(step, Observe)]
    if len(looks) < 2:
        return
    before, (index, after) = looks[0][1], looks[-1]
    for kind in kinds:
        if before.get(kind) != after.get(kind):
            raise Violation(f"{before.get(kind)} {kind}", f"{after.get(kind)} after {doing}", f"step {index}")


def _no_fd(scene: Scene, tape: Tape) -> None:
    buffer = scene.alloc(_size(tape))
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
    "rpcmem_to_fd of a pointer that is NULL, unknown, freed or inside an allocation is -1.",
    source="seed 002, the check for -1; fastrpc matches the exact pointer",
    subject="memory",
    cases=embedded(_no_fd, around=Scene.around_memory, after=0),
)
def rpc_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """-1. A freed pointer is judged only while no later allocation may have its address."""
    freed: set[str] = set()
    count = 0
    for index, step, seen in _steps(case, trace):
        if isinstance(step, Free) and step.pointer == "base":
            freed.add(step.buffer)
        elif isinstance(step, Alloc):
            freed.clear()
        elif isinstance(step, ToFd) and (step.pointer != "base" or step.buffer in freed):
            if _fd(seen) != -1:
                which = "freed" if step.pointer == "base" else step.pointer
                raise Violation(f"-1 for the {which} pointer", str(_fd(seen)), f"step {index}, to-fd")
            count += 1
    return Examined(count, "pointers without a descriptor")


def _free_wrongly(scene: Scene, tape: Tape) -> None:
    """Frees that must have no effect, between two looks at what lives."""
    kept = [scene.alloc(_size(tape)) for _ in range(1 + tape.below(2))]
    gone = scene.alloc(_size(tape))
    scene.free(gone)
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
    """Descriptors and mappings stay as they were, and live allocations keep their fd."""
    demand_steady(case, trace, "frees of what is no allocation", ("fds", "memfds"))
    looked = False
    known: dict[str, int] = {}
    count = 0
    for index, step, seen in _steps(case, trace):
        looked = looked or isinstance(step, Observe)
        if isinstance(step, ToFd) and step.pointer == "base":
            first = known.setdefault(step.buffer, _fd(seen))
            if first != _fd(seen):
                where = f"step {index}, to-fd of {step.buffer}"
                raise Violation(f"descriptor {first} still", str(_fd(seen)), where)
        count += looked and isinstance(step, Free)
    return Examined(count, "frees that must be ignored")


def _many(scene: Scene, tape: Tape) -> None:
    """Several live allocations, each with its own contents, read when all are written."""
    buffers = {}
    for number in range(2 + tape.below(4)):
        size = _size(tape) % (8 * PAGE) + 1
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
    for index, step, seen in _steps(case, trace):
        if isinstance(step, Alloc) and _pointer(seen):
            start, end = _pointer(seen), _pointer(seen) + step.size
            for other, (low, high) in live.items():
                if start < high and low < end:
                    raise Violation(f"memory apart from {other}'s", f"0x{start:x}", f"step {index}, alloc")
            live[step.buffer] = (start, end)
            count += 1
        elif isinstance(step, Free) and step.pointer == "base":
            live.pop(step.buffer, None)
            fds = {fd: buffer for fd, buffer in fds.items() if buffer != step.buffer}
        elif isinstance(step, ToFd) and step.pointer == "base" and _fd(seen) >= 0:
            owner = fds.setdefault(_fd(seen), step.buffer)
            if owner != step.buffer:
                raise Violation(f"a descriptor other than {owner}'s", str(_fd(seen)), f"step {index}, to-fd")
    for index, buffer, data, expected in _written(case, trace, "client"):
        if data != expected:
            raise Violation("its own contents", _first_difference(expected, data), _read_at(index, buffer))
    return Examined(count, "allocations")


def _through_fd(scene: Scene, tape: Tape) -> None:
    size = _size(tape) % (8 * PAGE) + 1
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
    for index, buffer, data, expected in _written(case, trace, "fd"):
        if data != expected:
            raise Violation("the bytes written", _first_difference(expected, data), _read_at(index, buffer))
        count += 1
    return Examined(count, "buffers read through their descriptor")


def _cycles(scene: Scene, tape: Tape) -> None:
    """A round to warm up, and eight rounds of alloc and free between two looks."""
    sizes = [_size(tape) for _ in range(1 + tape.below(3))]
    for number in range(1 + _CYCLES):
        if number == 1:
            scene.add(Observe())
        for buffer in [scene.alloc(size) for size in sizes]:
            scene.add(ToFd(buffer))
            scene.free(buffer)
    scene.add(Observe())


@rule(
    "RPC-11",
    Level.MUST,
    "rpcmem_free unmaps and closes: descriptors and mappings return to where they were.",
    source="seed 002, rpcmem_free; ONNX Runtime issue 23892",
    subject="memory",
    cases=embedded(_cycles, around=Scene.around_memory, before=1, after=0),
)
def rpc_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No more descriptors or shared mappings after eight rounds than before."""
    demand_steady(case, trace, f"{_CYCLES} rounds of alloc and free", ("fds", "memfds"))
    looks = [seen.counts for _, step, seen in _steps(case, trace) if isinstance(step, Observe)]
    if len(looks) < 2:
        return Examined(0, "rounds of alloc and free")
    grown = looks[-1].get("mappings", 0) - looks[0].get("mappings", 0)
    if grown >= _CYCLES:
        raise Violation("mappings that return", f"{grown} more after {_CYCLES} rounds of alloc and free")
    return Examined(_CYCLES, "rounds of alloc and free")
