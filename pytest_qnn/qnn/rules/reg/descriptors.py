"""REG: malformed descriptors, and what becomes of the structs that a client passes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.qnn.cases.case import Deregister, Descriptor, Execute, MemoryCase, Register
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    demand_outputs,
    judge_faults,
    judge_valid,
    own_steps,
    place,
    require_memory,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import ArrayCounts, MemoryTrace

Spoil = Callable[[Descriptor, Tape], Descriptor]

_UNKNOWN_TYPES = (0x7FFFFFFF, 9, 4, 0)
_UNKNOWN_DATA_TYPES = (0x7FFFFFFF, 0, 0x0BAD)
_NO_TENSORS: tuple[tuple[int, ...], ...] = ((), (0,), (2, 0, 3), (1, 1, 1, 0))


def _spoilt(spoil: Spoil) -> Callable[[Scene, Tape], None]:
    """A descriptor that ``spoil`` has made wrong, alone or behind a good one; then as it was."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        right = scene.descriptor(tape)
        wrong = spoil(right, tape)
        before = [scene.descriptor(tape)] if tape.chance(2) else []
        names = tuple(scene.name("h") for _ in (*before, wrong))
        scene.add(Register(context, (*before, wrong), names))
        if tape.chance(2):
            scene.register(context, right)

    return core


def _mem_type(right: Descriptor, tape: Tape) -> Descriptor:
    return msgspec.structs.replace(right, mem_type=tape.pick(_UNKNOWN_TYPES), offset=0)


@rule(
    "REG-09",
    Level.MUST,
    "QnnMem_register refuses a memory type that is UNDEFINED or not in Qnn_MemType_t: "
    "QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE (8005) or QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="QnnMem.h: Qnn_MemType_t, QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE",
    subject="memory",
    cases=embedded(_spoilt(_mem_type)),
    gate=("1101",),
)
def reg_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8005 or 8000 for 0, 4, 9 and 0x7fffffff."""
    require_memory(case, trace)
    return judge_faults(case, trace, (Fault.TYPE_UNKNOWN,), "descriptors of no memory type")


def _no_dimensions(right: Descriptor, tape: Tape) -> Descriptor:
    del tape
    return msgspec.structs.replace(right, null="dimensions")


@rule(
    "REG-10",
    Level.MUST,
    "QnnMem_register refuses a shape with dimensions whose dimSize is NULL: QNN_MEM_ERROR_INVALID_ARGUMENT "
    "(8000) or QNN_MEM_ERROR_INVALID_SHAPE (8004).",
    source="QnnMem.h: Qnn_MemShape_t, QNN_MEM_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=embedded(_spoilt(_no_dimensions)),
    gate=("1101",),
)
def reg_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 or 8004."""
    require_memory(case, trace)
    return judge_faults(case, trace, (Fault.NULL_DIMENSIONS,), "shapes without dimensions")


def _no_elements(right: Descriptor, tape: Tape) -> Descriptor:
    return msgspec.structs.replace(right, shape=tape.pick(_NO_TENSORS))


def _scalar_too(scene: Scene, tape: Tape) -> None:
    """A shape without an element; then a scalar as clients register it: one dimension of 1."""
    _spoilt(_no_elements)(scene, tape)
    scalar = msgspec.structs.replace(scene.descriptor(tape), shape=(1,))
    scene.register(scene.any_context(tape), scalar)


@rule(
    "REG-11",
    Level.SHOULD,
    "QnnMem_register refuses a shape of rank 0 or with a dimension of 0 with QNN_MEM_ERROR_INVALID_SHAPE "
    "(8004) or QNN_MEM_ERROR_INVALID_ARGUMENT (8000); it accepts a scalar as one dimension of 1.",
    source="QnnMem.h: QNN_MEM_ERROR_INVALID_SHAPE; LiteRT registers scalars so",
    subject="memory",
    cases=embedded(_scalar_too),
    gate=("1101",),
)
def reg_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8004 or 8000; success for the shape [1]."""
    require_memory(case, trace)
    judge_valid(
        case,
        trace,
        lambda w: isinstance(w.step, Register) and [each.shape for each in w.step.descriptors] == [(1,)],
        "",
        "a scalar has one dimension of 1",
    )
    return judge_faults(case, trace, (Fault.BAD_SHAPE,), "shapes without an element")


def _data_type(right: Descriptor, tape: Tape) -> Descriptor:
    return msgspec.structs.replace(right, data_type=tape.pick(_UNKNOWN_DATA_TYPES))


@rule(
    "REG-12",
    Level.SHOULD,
    "QnnMem_register refuses memory of a tensor whose data type is UNDEFINED or unknown: "
    "QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="QnnMem.h: Qnn_MemDescriptor_t.dataType, QNN_MEM_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=embedded(_spoilt(_data_type)),
    gate=("1101",),
)
def reg_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 for 0x7fffffff, 0 and 0x0bad."""
    require_memory(case, trace)
    return judge_faults(case, trace, (Fault.DATA_TYPE,), "descriptors of no data type")


def _configured(right: Descriptor, tape: Tape) -> Descriptor:
    return msgspec.structs.replace(right, shape_config=tape.pick(("unknown", "NHWC", "other")))


@rule(
    "REG-27",
    Level.SHOULD,
    "QnnMem_register accepts a shapeConfig of NULL and refuses an unknown one: QNN_MEM_ERROR_INVALID_SHAPE "
    "(8004) or QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="QnnMem.h: Qnn_MemShape_t.shapeConfig",
    subject="memory",
    cases=embedded(_spoilt(_configured)),
    gate=("1101",),
)
def reg_27(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8004 or 8000 for an unknown text; success where it is NULL and all else is in order."""
    require_memory(case, trace)
    found = judge_faults(case, trace, (Fault.SHAPE_CONFIG,), "shapes with an unknown configuration")
    judge_valid(case, trace, lambda w: isinstance(w.step, Register), "", "shapeConfig is NULL")
    return found


def _scribbled(scene: Scene, tape: Tape) -> None:
    """Registrations whose structs the client overwrites at once; then they are used."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    at = len(scene.steps)
    kind = tape.pick(scene.types)
    handles = scene.tensor_memory(graph, kind) if graph else scene.register(context, scene.descriptor(tape))
    for index in range(at, len(scene.steps)):
        step = scene.steps[index]
        if isinstance(step, Register):
            scene.steps[index] = msgspec.structs.replace(step, scribble=True)
    if graph:
        for _ in range(1 + tape.below(2)):
            scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "REG-18",
    Level.MUST,
    "Descriptors, dimensions and custom structs need to exist during QnnMem_register only.",
    source="seed 002: its descriptors are variables on the stack; ONNX Runtime's are too",
    subject="memory",
    cases=embedded(_scribbled),
    gate=("1101",),
)
def reg_18(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """After the structs are overwritten, executes are right and deregistration succeeds."""
    require_memory(case, trace)
    because = "the client owns its structs again when the call returns"
    scribbled: set[str] = set()
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        step = walked.step
        if isinstance(step, Register) and step.scribble and walked.code == 0:
            scribbled.update(step.handles)
        elif isinstance(step, Deregister | Execute) and scribbled.intersection(_handles(step)):
            demand_code(walked, {0}, because)
            count += 1

    def own(walked: Walked) -> bool:
        uses = isinstance(walked.step, Execute) and not scribbled.isdisjoint(_handles(walked.step))
        return uses and walked.allowed.specified

    demand_outputs(case, trace, own, because)
    return Examined(count, "uses of registrations whose structs are gone")


def _handles(step: Deregister | Execute) -> tuple[str, ...]:
    if isinstance(step, Deregister):
        return step.handles
    return tuple(binding.handle for binding in step.bindings)


def _any_batch(scene: Scene, tape: Tape) -> None:
    """Good descriptors, and now and then a bad one among them."""
    batch = [scene.descriptor(tape) for _ in range(1 + tape.below(3))]
    if tape.chance(3):
        batch[-1] = msgspec.structs.replace(batch[-1], fd="minus-one")
    scene.add(Register(scene.any_context(tape), tuple(batch), tuple(scene.name("h") for _ in batch)))


@rule(
    "REG-19",
    Level.MUST,
    "QnnMem_register does not modify the descriptors, nor what they point to.",
    source="QnnMem.h: QnnMem_register, const Qnn_MemDescriptor_t*",
    subject="memory",
    cases=embedded(_any_batch),
    gate=("1101",),
)
def reg_19(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every byte of descriptors, dimensions and custom structs, whatever the answer."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register)):
        if walked.seen.counted(ArrayCounts).changed:
            raise Violation("descriptors as they were", "a byte of them changed", place(walked))
        count += 1
    return Examined(count, "registrations")
