"""ION: memory of type QNN_MEM_TYPE_ION."""

from __future__ import annotations

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.qnn.abi.codes import Error, MemType, Property
from pytest_qnn.qnn.cases.case import Descriptor, Fill, MemoryCase, Register
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.notes import Fault, Relation
from pytest_qnn.qnn.rules.graphs import judge_run, require_executed_memory, require_type
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    facts_of,
    judge_relation,
    judge_valid,
    own_steps,
    require_memory,
    require_session,
)
from pytest_qnn.qnn.strategies.graphs import Cases, execute, graph, load, output_of, own_buffers, read, rounds
from pytest_qnn.qnn.strategies.scene import SHAPES, Scene, Tape, scenes
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_GATE = ("1101", "1102")
_REFUSED = {int(Error.MEM_ERROR_UNSUPPORTED_MEMTYPE), int(Error.MEM_ERROR_NOT_SUPPORTED)}


def _ion(scene: Scene, tape: Tape) -> Descriptor:
    """An ION descriptor over a buffer of exactly the tensor's size."""
    shape, dtype = scene.tensor(tape)
    return Descriptor(scene.alloc(nbytes(shape, dtype)), shape, dtype, MemType.ION)


def _junk(scene: Scene, tape: Tape) -> None:
    for _ in range(1 + tape.below(2)):
        scene.register(scene.any_context(tape), msgspec.structs.replace(_ion(scene, tape), junk=True))


@rule(
    "ION-01",
    Level.MUST,
    "Of an ION descriptor only the file descriptor identifies the memory; the other bytes of the union are "
    "ignored.",
    source="seed 002, Using QNN_MEM_TYPE_ION; QnnMem.h: Qnn_MemIonInfo_t",
    subject="memory",
    cases=embedded(_junk),
    gate=_GATE,
)
def ion_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success with 0xA5 behind the fd, for a buffer of exactly the product of dimensions and element size."""
    require_memory(case, trace)
    require_type(trace, MemType.ION)
    return judge_valid(
        case,
        trace,
        lambda w: isinstance(w.step, Register) and any(each.junk for each in w.step.descriptors),
        "descriptors with other bytes behind the fd",
        "ionInfo.fd alone identifies the memory",
    )


def _other_tensor(scene: Scene, tape: Tape) -> None:
    """A registered ION buffer comes again with another shape."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape, shape=SHAPES[0])
    made = scene.tensor_memory(graph, MemType.ION) if graph else ()
    handles = made or scene.register(context, _ion(scene, tape))
    first = scene.handles[handles[tape.below(len(handles))]].descriptor
    rank = len(first.shape)
    shape = tape.pick(((1,), (1, *first.shape)[: rank + 1 if rank < len(SHAPES[0]) else rank], (2,)))
    if shape == first.shape or nbytes(shape, first.dtype) > nbytes(first.shape, first.dtype):
        shape = (1, 1)
    scene.add(Register(context, (msgspec.structs.replace(first, shape=shape),), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "ION-02",
    Level.SHOULD,
    "One file descriptor of ION memory has one handle in a context: registering it again, with another shape "
    "too, is refused: QNN_MEM_ERROR_ALREADY_REGISTERED (8002).",
    source="seed 002: a unique file descriptor and a unique handle for each tensor",
    subject="memory",
    cases=embedded(_other_tensor),
    gate=_GATE,
)
def ion_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; the first handle executes and is deregistered with success."""
    require_memory(case, trace)
    require_type(trace, MemType.ION)
    codes = {int(Error.MEM_ERROR_ALREADY_REGISTERED)}
    return judge_relation(case, trace, Relation.SAME_FD, codes, "second registrations of an fd")


def _on_any(scene: Scene, tape: Tape) -> None:
    for _ in range(1 + tape.below(2)):
        scene.add(Register(scene.any_context(tape), (_ion(scene, tape),), (scene.name("h"),)))


@rule(
    "ION-06",
    Level.MUST,
    "Where ION memory is not supported, QnnMem_register refuses it: QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE (8005) "
    "or QNN_MEM_ERROR_NOT_SUPPORTED (1000).",
    source="QnnMem.h: QNN_MEM_TYPE_ION; QnnProperty.h: QNN_PROPERTY_MEMORY_SUPPORT_MEM_TYPE_ION",
    subject="memory",
    cases=embedded(_on_any),
    gate=("no 1102",),
)
def ion_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8005, or 1000 without any memory API."""
    require_session(trace)
    facts = facts_of(trace)
    if not facts.capabilities or facts.supports(Property.MEMORY_SUPPORT_MEM_TYPE_ION):
        raise Unsupported("only a target without ION memory can show it")
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.TYPE_UNSUPPORTED)):
        if isinstance(walked.step, Register) and walked.step.descriptors[0].mem_type == MemType.ION:
            demand_code(walked, _REFUSED, "property key 1102 says that there is no ION memory")
            count += 1
    return Examined(count, "registrations of ION memory")


def _judge(case: MemoryCase, trace: MemoryTrace, because: str) -> Examined:
    require_executed_memory(case, trace)
    require_type(trace, MemType.ION)
    return judge_run(case, trace, "outputs and buffers", because)


# ION


def ion_tensors(facts: MemoryFacts) -> Cases:
    """ION-03: every IO tensor in an ION buffer of its own."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            rounds(scene, tape, name, own_buffers(scene, tape, name), 1)

    return scenes(facts, core)


@rule(
    "ION-03",
    Level.MUST,
    "Each tensor uses an ION buffer, pointer, file descriptor and handle of its own; all inputs and outputs "
    "of a graph may be ION memory.",
    source="seed 002, Using QNN_MEM_TYPE_ION",
    subject="memory",
    cases=ion_tensors,
    gate=_GATE,
)
def ion_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """All registers and executes answer 0, and each tensor is found in its own buffer."""
    return _judge(case, trace, "each tensor has an ION buffer of its own")


def ion_rewritten(facts: MemoryFacts) -> Cases:
    """ION-04: the inputs change between executes."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            rounds(scene, tape, name, own_buffers(scene, tape, name), 2 + tape.below(3))

    return scenes(facts, core)


@rule(
    "ION-04",
    Level.MUST,
    "QnnGraph_execute reads the bytes of an input from its ION buffer at the time of the call.",
    source="seed 002, Using QNN_MEM_TYPE_ION, load the input, then execute",
    subject="memory",
    cases=ion_rewritten,
    gate=_GATE,
)
def ion_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The output follows what the client wrote last before each execute."""
    return _judge(case, trace, "inputs are read at execute")


def ion_read_at_once(facts: MemoryFacts) -> Cases:
    """ION-05: nothing happens between the execute and the client's look at the output."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = own_buffers(scene, tape, name)
        for turn in range(1 + tape.below(3)):
            load(scene, name, memory, 16 * turn + tape.below(16))
            execute(scene, name, memory)
            read(scene, [output_of(scene, name, memory)])
            scene.add(Fill(output_of(scene, name, memory)))

    return scenes(facts, core)


@rule(
    "ION-05",
    Level.MUST,
    "The bytes of an output can be read through the client's pointer when QnnGraph_execute returns.",
    source="seed 002, Using QNN_MEM_TYPE_ION, execute, then get the output",
    subject="memory",
    cases=ion_read_at_once,
    gate=_GATE,
)
def ion_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The client's first look after the execute finds the output."""
    return _judge(case, trace, "the output is there when execute returns")
