"""DMA: memory of type QNN_MEM_TYPE_DMA_BUF."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.qnn.abi.codes import Error, MemType, Property
from pytest_qnn.qnn.cases.case import Deregister, Descriptor, Execute, MemoryCase, Register
from pytest_qnn.qnn.cases.sizes import PAGE, nbytes
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.graphs import judge_contents, require_type
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    facts_of,
    judge_faults,
    judge_valid,
    own_steps,
    require_memory,
)
from pytest_qnn.qnn.strategies.graphs import Memory, execute, load, output_of, read
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_GATE = ("1101", "1104")
_DMA = int(MemType.DMA_BUF)


def _require(case: MemoryCase, trace: MemoryTrace) -> None:
    require_memory(case, trace)
    require_type(trace, MemType.DMA_BUF)


def _dma(scene: Scene, tape: Tape, pointer: Literal["own", "null", "foreign"] = "own") -> Descriptor:
    shape, dtype = scene.tensor(tape)
    buffer = scene.alloc(nbytes(shape, dtype) + tape.pick((0, 1, PAGE)))
    return Descriptor(buffer, shape, dtype, _DMA, pointer=pointer)


def _incomplete(scene: Scene, tape: Tape) -> None:
    """A descriptor without the pointer or without the fd; then a whole one."""
    right = _dma(scene, tape)
    context = scene.any_context(tape)
    lacks_fd = tape.below(2) == 1
    wrong = msgspec.structs.replace(right, **({"fd": "minus-one"} if lacks_fd else {"pointer": "null"}))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))
    scene.register(context, right)


@rule(
    "DMA-01",
    Level.MUST,
    "A DMA_BUF descriptor has a file descriptor and the client's pointer; QnnMem_register refuses one that "
    "lacks either: QNN_MEM_ERROR_INVALID_ARGUMENT (8000) or QNN_MEM_ERROR_MAPPING (8003).",
    source="QnnMem.h: Qnn_MemDmaBufInfo_t; LiteRT gives both",
    subject="memory",
    cases=embedded(_incomplete),
    gate=_GATE,
)
def dma_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 or 8003; with both it is registered."""
    _require(case, trace)
    judge_valid(case, trace, lambda w: isinstance(w.step, Register), "", "fd and pointer are given")
    return judge_faults(
        case, trace, (Fault.NULL_DATA, Fault.FD_MINUS_ONE), "descriptors without fd or pointer"
    )


def _foreign(scene: Scene, tape: Tape) -> None:
    """The output's descriptor has a pointer to other memory than its fd's."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    if not graph:
        scene.add(Register(context, (_dma(scene, tape, "foreign"),), (scene.name("h"),)))
        return
    at = len(scene.steps)
    handles = scene.tensor_memory(graph, _DMA)
    last = max(i for i, step in enumerate(scene.steps) if i >= at and isinstance(step, Register))
    step = scene.steps[last]
    assert isinstance(step, Register)
    wrong = msgspec.structs.replace(step.descriptors[0], pointer="foreign")
    scene.steps[last] = msgspec.structs.replace(step, descriptors=(wrong,))
    buffers = tuple(scene.handles[handle].descriptor.buffer for handle in handles)
    memory = Memory(handles, buffers, (0,) * len(handles))
    load(scene, graph, memory, tape.below(16))
    execute(scene, graph, memory)
    read(scene, [output_of(scene, graph, memory)])


@rule(
    "DMA-02",
    Level.SHOULD,
    "QnnMem_register of a DMA_BUF descriptor whose pointer is no mapping of its file descriptor is refused, "
    "or does no harm.",
    source="QnnMem.h: Qnn_MemDmaBufInfo_t.data",
    subject="memory",
    cases=embedded(_foreign),
    gate=_GATE,
)
def dma_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8003 or 8000; or success, and then results are in the memory of the fd."""
    _require(case, trace)
    codes = {0, int(Error.MEM_ERROR_MAPPING), int(Error.MEM_ERROR_INVALID_ARGUMENT)}
    count = 0
    for walked in own_steps(
        case, trace, lambda w: isinstance(w.step, Register) and Fault.DUPLICATE not in w.allowed.faults
    ):
        assert isinstance(walked.step, Register)
        if any(each.pointer == "foreign" for each in walked.step.descriptors):
            demand_code(walked, codes, "the pointer leads to other memory than the fd")
            count += 1
    judge_contents(case, trace, because="the fd says which memory it is")
    return Examined(count, "pointers that are no mapping of their fd")


def _both_types(scene: Scene, tape: Tape) -> None:
    right = _dma(scene, tape)
    ion = msgspec.structs.replace(_dma(scene, tape), mem_type=int(MemType.ION))
    for descriptor in (right, ion) if tape.below(2) else (ion, right):
        scene.add(Register(scene.any_context(tape), (descriptor,), (scene.name("h"),)))


@rule(
    "DMA-03",
    Level.MUST,
    "A backend that supports DMA_BUF memory and not ION registers DMA_BUF memory and refuses ION memory: "
    "QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE (8005).",
    source="LiteRT's GPU path; QnnMem.h: QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE",
    subject="memory",
    cases=embedded(_both_types),
    gate=("1101", "1104", "no 1102"),
)
def dma_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 for DMA_BUF, 8005 for ION."""
    _require(case, trace)
    facts = facts_of(trace)
    if not facts.capabilities or facts.supports(Property.MEMORY_SUPPORT_MEM_TYPE_ION):
        raise Unsupported("only a target without ION memory can show it: this one has ION beside DMA_BUF")
    judge_valid(case, trace, lambda w: isinstance(w.step, Register), "", "DMA_BUF memory is supported")
    return judge_faults(case, trace, (Fault.TYPE_UNSUPPORTED,), "registrations of ION memory")


def _life(scene: Scene, tape: Tape) -> None:
    """Registered, repeated, executed, deregistered, deregistered again, registered once more."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    handles = scene.tensor_memory(graph, _DMA) if graph else scene.register(context, _dma(scene, tape))
    chosen = handles[tape.below(len(handles))]
    descriptor = scene.handles[chosen].descriptor
    scene.add(Register(context, (descriptor,), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(chosen)
    scene.add(Deregister((chosen,)))
    again = scene.register(context, descriptor)
    if graph:
        renewed = [again[0] if handle == chosen else handle for handle in handles]
        scene.execute_handles(graph, renewed)
    scene.deregister(*again)


@rule(
    "DMA-04",
    Level.MUST,
    "DMA_BUF memory is registered, executed with and deregistered by the same rules as memory of any other "
    "type.",
    source="QnnMem.h: QnnMem_register, QnnMem_deRegister",
    subject="memory",
    cases=embedded(_life),
    gate=_GATE,
)
def dma_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The codes of REG-01, REG-21, REG-24, DRG-01, DRG-04 and EXE-01, for every step of that life."""
    _require(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.specified and bool(w.allowed.codes)):
        if isinstance(walked.step, Register | Deregister | Execute):
            demand_code(walked, walked.allowed.codes, "the memory type changes no rule")
            count += 1
    judge_contents(case, trace, because="the memory type changes no rule")
    return Examined(count, "steps of the lives of registrations")
