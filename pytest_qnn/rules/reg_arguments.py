"""REG: QnnMem_register with wrong arguments, and what a refused batch must leave behind."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.memory import BOGUS, NULL, Descriptor, MemoryCase, Register
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import SENTINEL, named
from pytest_qnn.rules.memory_support import (
    demand_code,
    judge_argument,
    judge_valid,
    own_steps,
    place,
    require_memory,
    require_memory_calls,
)
from pytest_qnn.trace import MemoryTrace

_NOWHERE = (NULL, BOGUS)


def _wrong_array(scene: Scene, tape: Tape, flag: str) -> None:
    """The wrong call on a live context and, for targets that open none, on no context."""
    descriptor = scene.descriptor(tape)
    wrong = Register(scene.any_context(tape), (descriptor,), (scene.name("h"),))
    wrong = msgspec.structs.replace(wrong, **{flag: True})
    scene.add(wrong)
    if tape.below(2):
        nowhere = tape.pick(_NOWHERE)
        scene.add(msgspec.structs.replace(wrong, context=nowhere, handles=(scene.name("h"),)))
    if tape.below(2):
        scene.register(wrong.context, descriptor)


@rule(
    "REG-03",
    Level.MUST,
    "A NULL descriptor array is refused.",
    source="H:QnnMem_register",
    subject="memory",
    cases=embedded(lambda scene, tape: _wrong_array(scene, tape, "null_descriptors")),
    gate=("1101",),
)
def reg_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000; with a context that is none, 8001 is as right."""
    require_memory_calls(case, trace)
    return judge_argument(case, trace, "null-descriptors", "NULL descriptor arrays")


@rule(
    "REG-04",
    Level.MUST,
    "A NULL handle array is refused, and nothing stays registered.",
    source="H:QnnMem_register",
    subject="memory",
    cases=embedded(lambda scene, tape: _wrong_array(scene, tape, "null_handles")),
    gate=("1101",),
)
def reg_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 (8001 with a context that is none); then the same memory registers cleanly."""
    require_memory_calls(case, trace)
    leaked = judge_valid(
        case,
        trace,
        lambda w: "after:failed:null-handles" in w.allowed.notes,
        "",
        "the refused call with a NULL handle array must not have registered this memory",
    )
    refused = judge_argument(case, trace, "null-handles", "NULL handle arrays")
    return Examined(refused.count + leaked.count, refused.what)


def _none(scene: Scene, tape: Tape) -> None:
    descriptor = scene.descriptor(tape)
    context = scene.any_context(tape)
    scene.add(Register(context, (descriptor,), (scene.name("h"),), count=0))
    if tape.below(2):
        scene.register(context, descriptor)


@rule(
    "REG-05",
    Level.MAY,
    "A count of 0 succeeds without effect or is refused; no memory is touched.",
    source="QnnMem.h: QnnMem_register is silent; libQnnGpu answers 8000",
    subject="memory",
    cases=embedded(_none),
    gate=("1101",),
)
def reg_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 or 8000, and the handle array as it was."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only("count-zero")):
        if not isinstance(walked.step, Register):
            continue
        demand_code(walked, walked.allowed.codes)
        touched = [hex(value) for value in walked.seen.values if value != SENTINEL]
        if touched:
            raise Violation("an untouched handle array", f"{touched} written", place(walked))
        count += 1
    return Examined(count, "registrations of nothing")


def _wrong_context(scene: Scene, tape: Tape) -> None:
    descriptor = scene.descriptor(tape)
    freed = scene.context()
    kind = tape.below(3)
    if kind == 2:
        if tape.below(2):
            scene.register(freed, scene.descriptor(tape))
        scene.free_context(freed)
    wrong = (NULL, BOGUS, freed)[kind]
    scene.add(Register(wrong, (descriptor,), (scene.name("h"),)))


@rule(
    "REG-06",
    Level.MUST,
    "A context that is NULL, unknown or freed is refused.",
    source="H:QnnMem_register; seed 002, the context comes first",
    subject="memory",
    cases=embedded(_wrong_context),
    gate=("1101",),
)
def reg_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001. A freed context whose handle value was given out again is not judged."""
    require_memory_calls(case, trace)
    return judge_argument(case, trace, "bad-context", "registrations without a context")


def _failures(scene: Scene, tape: Tape) -> None:
    """A batch that cannot succeed, for one of several reasons."""
    batch = [scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(4))]
    reason = tape.below(6)
    context = tape.pick(_NOWHERE) if reason in (0, 5) else scene.any_context(tape)
    at = tape.below(len(batch))
    if reason == 1:
        batch[at] = msgspec.structs.replace(batch[at], fd="minus-one")
    elif reason == 2:
        scene.register(context, batch[at])
    elif reason == 3:
        batch[at] = msgspec.structs.replace(batch[at], shape=(1 << 20,))
    names = tuple(scene.name("h") for _ in batch)
    scene.add(Register(context, tuple(batch), names, null_descriptors=reason in (4, 5)))


@rule(
    "REG-07",
    Level.MUST,
    "After any failure every handle of the array is NULL.",
    source="H:QnnMem_register, note on failure",
    subject="memory",
    cases=embedded(_failures),
    gate=("1101",),
)
def reg_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """All entries up to the count, whatever the reason of the failure."""
    require_memory_calls(case, trace)
    count = 0
    for walked in own_steps(case, trace, _failed_registration):
        assert isinstance(walked.step, Register)
        kept = [hex(value) for value in walked.seen.values[: len(walked.step.handles)] if value]
        if kept:
            seen = f"{kept} after the call answered {named(walked.seen.code or 0)}"
            raise Violation("every handle NULL after a failure", seen, place(walked))
        count += 1
    return Examined(count, "failed registrations")


def _failed_registration(walked: Walked) -> bool:
    step = walked.step
    return isinstance(step, Register) and walked.code != 0 and not step.null_handles and step.count is None


def _one_bad(scene: Scene, tape: Tape) -> None:
    """Good descriptors with one bad one among them; then the good ones alone, one by one."""
    context = scene.any_context(tape)
    good = [scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(3))]
    bad = _bad(scene, tape, context)
    at = tape.below(len(good) + 1)
    # The zero choice is the telling one: the bad descriptor last.
    batch = [*good, bad] if at == 0 else [*good[: at - 1], bad, *good[at - 1 :]]
    scene.add(Register(context, tuple(batch), tuple(scene.name("h") for _ in batch)))
    for descriptor in good:
        scene.register(context, descriptor)


def _bad(scene: Scene, tape: Tape, context: str) -> Descriptor:
    right = scene.descriptor(tape)
    kind = tape.below(4)
    if kind == 1:
        return msgspec.structs.replace(right, fd="pipe")
    if kind == 2:
        return msgspec.structs.replace(right, shape=(1 << 20,))
    if kind == 3:
        scene.register(context, right)
        return right
    return msgspec.structs.replace(right, fd="minus-one")


@rule(
    "REG-08",
    Level.MUST,
    "A batch is registered as a whole or not at all: one bad descriptor registers none.",
    source="H:QnnMem_register, note on failure",
    subject="memory",
    cases=embedded(_one_bad),
    gate=("1101",),
)
def reg_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The bad one's code; then every good one registers alone, so none was kept."""
    require_memory(case, trace)
    refused = 0
    for walked in own_steps(case, trace, _faulty_batch):
        demand_code(walked, walked.allowed.codes, "one descriptor of the batch is bad")
        refused += 1
    after = judge_valid(
        case,
        trace,
        _after_failure,
        "",
        "this memory was in a batch that was refused, so it must not be registered",
    )
    return Examined(refused + after.count, "refused batches and their good descriptors")


def _faulty_batch(walked: Walked) -> bool:
    step = walked.step
    batch = isinstance(step, Register) and len(step.descriptors) > 1
    return batch and walked.allowed.settled and bool(walked.allowed.faults)


def _after_failure(walked: Walked) -> bool:
    return isinstance(walked.step, Register) and any(
        note.startswith("after:failed:") for note in walked.allowed.notes
    )
