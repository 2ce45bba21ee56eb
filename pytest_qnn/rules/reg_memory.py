"""REG: which memory is meant (another descriptor of it, a number used again), and what failures leave."""

from __future__ import annotations

import msgspec

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases.memory import Descriptor, Free, MemoryCase, Observe, Register, ToFd
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded, nbytes
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.rules.memory_relation_support import judge_relation
from pytest_qnn.rules.memory_support import demand_code, own_steps, require_memory
from pytest_qnn.rules.rpc_support import demand_steady
from pytest_qnn.trace import MemoryTrace

_FAILURES = 8


def _through_dup(scene: Scene, tape: Tape) -> None:
    """Memory that is registered comes again through a dup of its fd; the first handle is used on."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    handles = scene.tensor_memory(graph) if graph else scene.register(context, scene.descriptor(tape))
    chosen = scene.handles[handles[tape.below(len(handles))]].descriptor
    again = msgspec.structs.replace(chosen, fd="dup")
    scene.add(Register(context, (again,), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "REG-25",
    Level.MAY,
    "A dup of an fd is recognised as the same memory, or it is not; the first handle stays as it is.",
    source="QnnMem.h: QNN_MEM_ERROR_ALREADY_REGISTERED does not say what tells memory apart",
    subject="memory",
    cases=embedded(_through_dup),
    gate=("1101",),
)
def reg_25(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 or 8002; the first handle executes and is deregistered. The choice is in the report."""
    require_memory(case, trace)
    codes = {0, int(Error.MEM_ERROR_ALREADY_REGISTERED)}
    return judge_relation(case, trace, "duplicate-fd", codes, "registrations through a dup")


def _number_again(scene: Scene, tape: Tape) -> None:
    """A buffer is registered, deregistered and freed; the next one, of another size, gets its number."""
    context = scene.any_context(tape)
    for _ in range(2 + tape.below(3)):
        shape, dtype = scene.tensor(tape)
        spare = tape.pick((0, 4096, 1, 3 * 4096 + 5))
        buffer = scene.alloc(nbytes(shape, dtype) + spare)
        scene.add(ToFd(buffer))
        handles = scene.register(context, Descriptor(buffer, shape, dtype, tape.pick(scene.types)))
        scene.deregister(*handles)
        scene.free(buffer)


@rule(
    "REG-26",
    Level.MUST,
    "After deregistering and freeing, a new buffer with the same fd number registers, whatever its size.",
    source="QnnMem.h: QnnMem_deRegister; devices answer otherwise when a registration is left behind",
    subject="memory",
    cases=embedded(_number_again),
    gate=("1101",),
)
def reg_26(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success; only buffers count that were given the number of a freed one."""
    require_memory(case, trace)
    numbers: dict[str, int] = {}
    gone: set[int] = set()
    count = 0
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, ToFd) and seen.values and step.pointer == "base":
            numbers[step.buffer] = seen.values[0]
    for index, step in enumerate(case.steps):
        if isinstance(step, Free):
            gone.add(numbers.get(step.buffer, -1))
        if not isinstance(step, Register):
            continue
        again = {numbers.get(each.buffer, -1) for each in step.descriptors} & gone - {-1}
        for walked in own_steps(case, trace, lambda w: w.allowed.valid) if again else ():
            if walked.index == index:
                demand_code(walked, {0}, f"descriptor number {min(again)} belongs to another buffer now")
                count += 1
    return Examined(count, "buffers with a number used before")


def _failing(scene: Scene, tape: Tape) -> None:
    """One failing call to warm up, then eight between two looks."""
    context = scene.any_context(tape)
    reason = tape.below(4)
    batch = [scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(2))]
    bad = scene.descriptor(tape)
    if reason == 1:
        bad = msgspec.structs.replace(bad, fd="pipe")
    elif reason == 2:
        bad = msgspec.structs.replace(bad, shape=(1 << 20,))
    elif reason == 3:
        scene.register(context, bad)
    else:
        bad = msgspec.structs.replace(bad, fd="minus-one")
    for number in range(1 + _FAILURES):
        if number == 1:
            scene.add(Observe())
        names = tuple(scene.name("h") for _ in (*batch, bad))
        scene.add(Register(context, (*batch, bad), names))
    scene.add(Observe())


@rule(
    "REG-28",
    Level.MUST,
    "A registration that fails leaves no descriptor and no mapping behind.",
    source="QnnMem.h: QnnMem_register, note on failure",
    subject="memory",
    cases=embedded(_failing, after=0),
    gate=("1101",),
)
def reg_28(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Counts of descriptors and of shared mappings are the same before and after eight failures."""
    require_memory(case, trace)
    failed = [w for w in own_steps(case, trace, lambda w: isinstance(w.step, Register)) if w.code]
    if len(failed) < _FAILURES:
        return Examined(0, "failed registrations")
    demand_steady(case, trace, f"{_FAILURES} failed registrations", ("fds", "memfds"))
    return Examined(len(failed), "failed registrations")
