"""RPC: alignment, sizes beyond an int, threads; and memory that is not from rpcmem (SHB-16)."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.abi.qnn_codes import MemType
from pytest_qnn.cases.memory import Alloc, Descriptor, Execute, Fill, MemoryCase, Register, ToFd, Write
from pytest_qnn.cases.memory_graph_scene import CUSTOM
from pytest_qnn.cases.memory_probes import Parallel
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded, nbytes
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.facts import MemoryFacts
from pytest_qnn.rules.memory_graph_support import judge_contents, require_type
from pytest_qnn.rules.memory_support import demand_code, own_steps, require_memory
from pytest_qnn.rules.rpc_support import PAGE, pointer_of, some_size, steps_of
from pytest_qnn.trace import MemoryTrace

_WIDE = (1 << 31, (1 << 32) + PAGE, PAGE, (1 << 32) + 1)


def _some(scene: Scene, tape: Tape) -> None:
    for _ in range(1 + tape.below(4)):
        scene.alloc(some_size(tape))


@rule(
    "RPC-03",
    Level.SHOULD,
    "The pointer that rpcmem_alloc gives is at the start of a page.",
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
    "rpcmem_alloc2 takes sizes that no int holds, and cuts none of them short.",
    source="fastrpc: rpcmem_alloc2 has a size_t where rpcmem_alloc has an int",
    subject="memory",
    cases=embedded(_wide, around=Scene.around_memory, before=1, after=0),
    weight=0.5,
)
def rpc_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """NULL, or the last byte can be written, for sizes up to 4 GiB and a page."""
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Alloc) or not step.wide:
            continue
        if seen.skipped:
            raise Unsupported(seen.skipped)
        if pointer_of(seen) and not seen.counts.get("last_writable"):
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


def _own_memory(scene: Scene, tape: Tape) -> None:
    """A graph executes in shared buffers that the client made without rpcmem."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    made = scene.graphs.get(graph)
    shape, dtype = (made.shape, made.dtype) if made else scene.tensor(tape)
    count = (2 if made.op in ("Relu", "Reshape") else 3) if made else 1
    handles: list[str] = []
    for position in range(count):
        buffer = scene.name("b")
        size = nbytes(shape, dtype)
        scene.add(Alloc(buffer, size, own=True))
        scene.add(Fill(buffer))
        if position < count - 1:
            scene.add(Write(buffer, size, seed=position + tape.below(16), dtype=dtype))
        handles += scene.register(context, Descriptor(buffer, shape, dtype, CUSTOM))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "SHB-16",
    Level.MUST,
    "Memory of the right kind works whoever allocated it, rpcmem or the client itself.",
    source="seed 002, custom allocator; clients use DMA heaps of their own",
    subject="memory",
    cases=embedded(_own_memory),
    gate=("1101", "1103"),
)
def shb_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success, and right outputs, in memory from the DMA heap (on hosts: a memfd)."""
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    own = {step.buffer for step in case.steps if isinstance(step, Alloc) and step.own}
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        step = walked.step
        if isinstance(step, Register) and any(each.buffer in own for each in step.descriptors):
            demand_code(walked, {0}, "memory of the client's own is memory of the right kind")
            count += 1
        elif count and isinstance(step, Execute):
            demand_code(walked, {0}, "its memory was registered")
    judge_contents(case, trace)
    return Examined(count, "registrations of memory that is not rpcmem's")
