"""RPC: rpcmem_to_fd and rpcmem_free."""

from __future__ import annotations

from pytest_qnn.cases.memory import Alloc, Free, MemoryCase, Observe, ToFd
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules.rpc_support import PAGE, demand_steady, fd_of, pointer_of, some_size, steps_of
from pytest_qnn.trace import MemoryTrace

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
    "rpcmem_to_fd of a live allocation is a descriptor, always the same, and opens no new one.",
    source="seed 002, rpcmem_to_fd",
    subject="memory",
    cases=embedded(_ask_fd, around=Scene.around_memory),
)
def rpc_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """At least 0, equal on every call, and the number of open descriptors stays."""
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
    demand_steady(case, trace, "rpcmem_to_fd", ("fds",))
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
    "rpcmem_to_fd of a pointer that is NULL, unknown, freed or inside an allocation is -1.",
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
    demand_steady(case, trace, "frees of what is no allocation", ("fds", "memfds"))
    looked = False
    known: dict[str, int] = {}
    count = 0
    for index, step, seen in steps_of(case, trace):
        looked = looked or isinstance(step, Observe)
        if isinstance(step, ToFd) and step.pointer == "base":
            first = known.setdefault(step.buffer, fd_of(seen))
            if first != fd_of(seen):
                where = f"step {index}, to-fd of {step.buffer}"
                raise Violation(f"descriptor {first} still", str(fd_of(seen)), where)
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


def _cycles(scene: Scene, tape: Tape) -> None:
    """A round to warm up, and eight rounds of alloc and free between two looks."""
    sizes = [some_size(tape) for _ in range(1 + tape.below(3))]
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
    looks = [seen.counts for _, step, seen in steps_of(case, trace) if isinstance(step, Observe)]
    freed = sum(isinstance(step, Free) and pointer_of(seen) > 0 for _, step, seen in steps_of(case, trace))
    if len(looks) < 2 or freed < _CYCLES:
        return Examined(0, "rounds of alloc and free")
    grown = looks[-1].get("mappings", 0) - looks[0].get("mappings", 0)
    if grown >= _CYCLES:
        raise Violation("mappings that return", f"{grown} more after {_CYCLES} rounds of alloc and free")
    return Examined(_CYCLES, "rounds of alloc and free")
