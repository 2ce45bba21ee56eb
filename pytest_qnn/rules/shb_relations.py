"""SHB: tensors of one buffer that meet: at one offset, overlapping, or of two memory types."""

from __future__ import annotations

import msgspec

from pytest_qnn.abi.qnn_codes import Error, MemType
from pytest_qnn.cases.memory import Descriptor, MemoryCase, Register
from pytest_qnn.cases.memory_graph_scene import CUSTOM, ION
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded, nbytes
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules.memory_graph_support import require_type
from pytest_qnn.rules.memory_relation_support import judge_relation
from pytest_qnn.rules.memory_support import own_steps, place, require_memory
from pytest_qnn.trace import MemoryTrace

_TWICE = int(Error.MEM_ERROR_ALREADY_REGISTERED)
_SHAPE = (1, 4, 4, 2)


def _first(scene: Scene, tape: Tape, kind: int) -> tuple[str, str, tuple[str, ...]]:
    """A context, a graph of it ("" without operators), and registered memory of each of its tensors."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape, shape=_SHAPE)
    if graph:
        return context, graph, scene.tensor_memory(graph, kind)
    dtype = scene.tensor(tape)[1]
    descriptor = Descriptor(scene.alloc(nbytes(_SHAPE, dtype)), _SHAPE, dtype, kind)
    return context, graph, scene.register(context, descriptor)


def _second(scene: Scene, tape: Tape, kind: int, change: dict[str, object]) -> None:
    """Memory of a tensor comes again, changed; then the first handles are used."""
    context, graph, handles = _first(scene, tape, kind)
    chosen = scene.handles[handles[tape.below(len(handles))]].descriptor
    other = msgspec.structs.replace(chosen, **change)
    scene.add(Register(context, (other,), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


def _same_offset(scene: Scene, tape: Tape) -> None:
    _second(scene, tape, CUSTOM, {"shape": tape.pick(((1,), (4, 4), (32,), (1, 4, 2)))})


@rule(
    "SHB-11",
    Level.SHOULD,
    "The same fd and the same offset are registered already, whatever the shape.",
    source="QnnHtpMem.h: a different offset for each tensor; inference",
    subject="memory",
    cases=embedded(_same_offset),
    gate=("1101", "1103"),
)
def shb_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; the first handle executes and is deregistered with success."""
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    return judge_relation(case, trace, "same-offset", {_TWICE}, "second registrations at an offset")


def _overlapping(scene: Scene, tape: Tape) -> None:
    """A tensor that begins inside a registered one, offered twice; deregistered if it was taken."""
    context = scene.any_context(tape)
    shape, dtype = (4, 4), scene.tensor(tape)[1]
    grain = 4 if dtype == "FLOAT_32" else 1
    size = nbytes(shape, dtype)
    shift = grain * (1 + tape.below(15))
    first = Descriptor(scene.alloc(2 * size), shape, dtype, CUSTOM)
    over = msgspec.structs.replace(first, offset=shift)
    (kept,) = scene.register(context, first)
    for _ in range(2):
        scene.deregister(*scene.register(context, over))
    scene.deregister(kept)


@rule(
    "SHB-12",
    Level.MAY,
    "Overlapping ranges in one buffer are accepted or refused, always alike, and others stay as they are.",
    source="QnnHtpMem.h does not say whether ranges may overlap",
    subject="memory",
    cases=embedded(_overlapping),
    gate=("1101", "1103"),
)
def shb_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0, 8000 or 8002, each time the same; the first handle stays valid. The choice is in the report."""
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    codes = {0, _TWICE, int(Error.MEM_ERROR_INVALID_ARGUMENT)}
    found = judge_relation(case, trace, "overlap", codes, "overlapping registrations")
    answers: dict[tuple[Descriptor, ...], int | None] = {}
    for walked in own_steps(case, trace, lambda w: "relation:overlap" in w.allowed.notes):
        assert isinstance(walked.step, Register)
        first = answers.setdefault(walked.step.descriptors, walked.code)
        if first != walked.code:
            raise Violation(f"{first} as before for the same range", str(walked.code), place(walked))
    return found


def _two_types(scene: Scene, tape: Tape) -> None:
    kind = tape.pick((ION, CUSTOM))
    _second(scene, tape, kind, {"mem_type": CUSTOM if kind == ION else ION})


@rule(
    "SHB-14",
    Level.SHOULD,
    "Memory registered as ION is refused as a shared buffer in the same context, and the other way round.",
    source="seed 002, table of memory types: one handle for an fd of ION memory",
    subject="memory",
    cases=embedded(_two_types),
    gate=("1101", "1102", "1103"),
)
def shb_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; the first handle executes and is deregistered with success."""
    require_memory(case, trace)
    require_type(trace, MemType.ION)
    require_type(trace, MemType.CUSTOM)
    return judge_relation(case, trace, "two-types", {_TWICE}, "registrations as another type")
