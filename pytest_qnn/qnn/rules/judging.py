"""What the QNN rules share: gates, picking the steps that are a rule's own, and judging codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal

import msgspec

from pytest_qnn.core.verdict import (
    Examined,
    FailedCall,
    FalseDeclaration,
    Retained,
    Unsupported,
    Violation,
    WrongOutput,
    WrongRefusal,
    WrongSuccess,
)
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    ContextCreate,
    ContextFree,
    Deregister,
    Execute,
    Lived,
    MemoryCase,
    Observe,
    QnnDType,
    Read,
    Register,
)
from pytest_qnn.qnn.facts import MemoryFacts, memory_types, refused_call
from pytest_qnn.qnn.model.codes import TYPE_KEYS, named, one_of
from pytest_qnn.qnn.model.contents import compare, differs
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.model.notes import Fault, Relation
from pytest_qnn.qnn.trace import LivedCounts, MemoryTrace, ProcessCounts, StepSeen


def facts_of(trace: MemoryTrace) -> MemoryFacts:
    """The facts that the target attached (none: a target of which nothing is known)."""
    return trace.facts or MemoryFacts()


def require_session(trace: MemoryTrace) -> None:
    """Raise Unsupported when the session could not be opened, with the call and its code."""
    refused = refused_call(trace.session)
    if refused is not None:
        raise Unsupported(f"{refused[0]} answers {named(refused[1])}")


def require_memory_calls(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported when every memory call of the case was answered with "not supported".

    A target that answers so to some arguments only is judged on those answers.
    """
    answers = {
        low(seen.code)
        for step, seen in zip(case.steps, trace.steps, strict=False)
        if isinstance(step, Register | Deregister) and seen.code is not None
    }
    if answers == {int(Error.MEM_ERROR_NOT_SUPPORTED)}:
        call = "memRegister" if any(isinstance(step, Register) for step in case.steps) else "memDeRegister"
        raise Unsupported(f"{call} answers 1000, not supported")


def require_memory(case: MemoryCase, trace: MemoryTrace) -> None:
    """Both gates of a rule whose steps need a context and the memory API."""
    require_session(trace)
    require_memory_calls(case, trace)
    require_memory_type(facts_of(trace))


def require_memory_type(facts: MemoryFacts) -> None:
    """Raise Unsupported when the suite cannot register memory of any type that the target declares."""
    if not facts.capabilities or any(facts.supports(TYPE_KEYS[kind]) for kind in memory_types(facts)):
        return
    if facts.supports(Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM):
        raise Unsupported(f"CUSTOM memory of backend id {facts.backend_id} is not the HTP's shared buffer")
    raise Unsupported("no memory type is supported: property keys 1102, 1103 and 1104 say so")


def require_composition(trace: MemoryTrace) -> None:
    """Raise Unsupported where no session opens, or the target does not say that it composes graphs."""
    require_session(trace)
    key = Property.BACKEND_SUPPORT_COMPOSITION
    if not facts_of(trace).supports(key):
        raise Unsupported(f"property key {int(key)} ({key.name}) is not supported")


def require_contexts(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported when a context of the case was refused, with the code."""
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, ContextCreate) and seen.code:
            raise Unsupported(f"contextCreate answers {named(seen.code)}")


def require_operator(trace: MemoryTrace) -> None:
    """Raise Unsupported when the target takes no operator that the suite's graphs use."""
    require_session(trace)
    if not facts_of(trace).operators:
        raise Unsupported("no operator of the suite composes, validates and finalises on this target")


_MOST_SHOWN = 4
"""Descriptors or bindings of a step that a message shows; the minimal case has all."""


def call_name(step: AnyStep) -> str:
    """The step as it is called in a case's JSON."""
    return str(step.__struct_config__.tag)


def place(walked: Walked) -> str:
    """Where a violation happened: the step with its values, and the sizes of the buffers in it."""
    values = described(msgspec.to_builtins(walked.step))
    sizes = (
        f"{name} has {size} bytes" for name, size in walked.sizes.items() if re.search(rf"\b{name}\b", values)
    )
    return "; ".join([f"step {walked.index}, {call_name(walked.step)} {values}".rstrip(), *sizes])


def described(value: Any) -> str:
    """The values of a step in a few words: ``context c, descriptors (buffer b0, shape [8], offset 64)``."""
    if isinstance(value, dict):
        parts = ((name.replace("_", "-"), part) for name, part in value.items() if name != "do")
        return ", ".join(f"{name} {described(part)}" for name, part in parts)
    if isinstance(value, (list, tuple)) and any(isinstance(part, dict) for part in value):
        shown = [f"({described(part)})" for part in value[:_MOST_SHOWN]]
        return " ".join(shown) + (f" and {len(value) - len(shown)} more" if len(value) > len(shown) else "")
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(map(str, value))}]"
    return str(value)


def demand_code(walked: Walked, codes: Collection[int], because: str = "") -> None:
    """Raise Violation unless the step was answered with one of ``codes`` (low 16 bits, 0 is success).

    Raises:
        FailedCall: a call that is in order failed. Any case that makes such a call may see that.
        WrongRefusal: a call that is not in order was refused with another code.
        FalseDeclaration: memory of a type was taken whose property key says not supported.
        Unsupported: more memory was to be mapped than a processor with addresses of 32 bits has.
        WrongSuccess: a call succeeded that must be refused.
    """
    if walked.code is None or walked.code in codes:
        return
    # Whatever else is wrong with the call: no document says what is looked at first.
    if walked.code in _CANNOT_MAP and _may_not_fit(walked):
        raise Unsupported("memory of 2 GiB and more cannot be mapped", final=False)
    demanded = one_of(codes) + (f": {because}" if because else "")
    seen, where, call = named(walked.seen.code or 0), place(walked), call_name(walked.step)
    if walked.allowed.valid and set(codes) == {0}:
        raise FailedCall(demanded, seen, where, call=call)
    if walked.code:
        raise WrongRefusal(demanded, seen, where, call=call)
    if walked.allowed.only(Fault.TYPE_UNSUPPORTED):
        raise FalseDeclaration(demanded, seen, where)
    raise WrongSuccess(demanded, seen, where)


_CANNOT_MAP = (int(Error.MEM_ERROR_MAPPING), int(Error.COMMON_ERROR_MEM_ALLOC))
_TWO_GIB = 1 << 31
"""A protection domain has 2 to 4 GiB of addresses (shared/facts/qnn-memory.md, on rpcmem_alloc2)."""


def _may_not_fit(walked: Walked) -> bool:
    """The step registers so large a buffer, and no earlier step shows that there is room for it.

    There is room for a buffer that the target has mapped before, and for any after one of 4 GiB, which no
    processor with addresses of 32 bits maps.
    """
    step = walked.step
    if not isinstance(step, Register):
        return False
    if any(walked.sizes.get(buffer, 0) >= 2 * _TWO_GIB for buffer in walked.mapped):
        return False
    new = {each.buffer for each in step.descriptors} - walked.mapped
    return any(walked.sizes.get(buffer, 0) >= _TWO_GIB for buffer in new)


def bytes_read(seen: StepSeen) -> bytes | None:
    """What a Read gave; None when the memory could not be read."""
    return seen.data[0] if seen.data and not seen.skipped else None


def own_steps(case: MemoryCase, trace: MemoryTrace, own: Callable[[Walked], bool]) -> Iterator[Walked]:
    """The steps with an answer for which ``own`` holds."""
    return (walked for walked in walk(case, trace) if walked.seen.code is not None and own(walked))


def judge_faults(
    case: MemoryCase,
    trace: MemoryTrace,
    faults: Collection[Fault],
    what: str,
    because: str = "",
    own: Callable[[Walked], bool] = lambda _: True,
) -> Examined:
    """Steps that are wrong in exactly one way, one of ``faults``, must be refused with its codes."""
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(*faults) and own(w)):
        demand_code(walked, walked.allowed.codes, because)
        count += 1
    return Examined(count, what)


def judge_valid(
    case: MemoryCase,
    trace: MemoryTrace,
    own: Callable[[Walked], bool],
    what: str,
    because: str = "",
) -> Examined:
    """Steps that are in order, and for which ``own`` holds, must succeed."""
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and own(w)):
        demand_code(walked, {0}, because)
        count += 1
    demand_outputs(case, trace, own, because)
    return Examined(count, what)


def demand_outputs(
    case: MemoryCase, trace: MemoryTrace, own: Callable[[Walked], bool], because: str = ""
) -> None:
    """Raise Violation unless every execute for which ``own`` holds wrote the right output."""
    if not any(isinstance(step, Execute) for step in case.steps):
        return
    for compared in compare(case, trace):
        if compared.difference and compared.where == "output" and own(compared.walked):
            demanded = "the right output" + (f": {because}" if because else "")
            raise WrongOutput(demanded, compared.difference, place(compared.walked))


WRONG_OUTPUT = "wrong output"
"""In place of a call, in `Lived` and `Parallel`: every call succeeded."""


def demand_life(case: MemoryCase, trace: MemoryTrace, *calls: str) -> None:
    """Raise Violation where one of these calls was the first that went wrong in ordinary life (`Lived`)."""
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Lived) and seen.calls and seen.calls[0][0] in calls:
            call, code = seen.calls[0]
            number = seen.counted(LivedCounts).rounds + 1
            where = f"step {index}, {call_name(step)} {described(msgspec.to_builtins(step))}"
            if (wrong := wrong_output(seen, step.dtype, "context")) is not None:
                raise FailedCall(f"round {number}: {AS_RAW}", wrong, where)
            what = call if call == WRONG_OUTPUT else f"{call} answers {named(code)}"
            raise FailedCall(f"round {number} to go as the others", what, where)


AS_RAW = "the output that graphExecute with raw memory gives"


def wrong_output(seen: StepSeen, dtype: QnnDType, of: str) -> str | None:
    """The first wrong output of many executes, in words; None: there was none.

    ``of``: what has executed, a context or a thread.
    """
    wrong = seen.wrong
    if wrong is None:
        return None
    turn = "" if wrong.turn is None else f" in round {wrong.turn + 1}"
    difference = differs(wrong.wanted, wrong.seen, dtype)
    return f"graphExecute of {of} {wrong.client + 1}{turn} gave, {difference}"


_PRECEDENCE = frozenset(
    {
        Fault.NULL_DESCRIPTORS,
        Fault.NULL_HANDLES,
        Fault.BAD_CONTEXT,
        Fault.BAD_HANDLE,
        Fault.TYPE_UNSUPPORTED,
    }
)
"""Faults that may come together in one call.

No document says which is looked at first; libQnnGpu checks pointers and count before the context.
"""


def judge_argument(case: MemoryCase, trace: MemoryTrace, fault: Fault, what: str) -> Examined:
    """Register and Deregister calls with the wrong argument ``fault`` are refused.

    Another wrong argument in the same call (a context that is none, for targets which open none) allows
    its codes too.
    """
    count = 0
    for walked in own_steps(case, trace, lambda w: fault in w.allowed.faults):
        mine = isinstance(walked.step, Register | Deregister)
        if mine and walked.allowed.specified and walked.allowed.faults <= _PRECEDENCE:
            demand_code(walked, walked.allowed.codes)
            count += 1
    return Examined(count, what)


def judge_relation(
    case: MemoryCase, trace: MemoryTrace, relation: Relation, codes: Collection[int], what: str
) -> Examined:
    """Registrations with the note ``relation`` answer one of ``codes``; what was registered works on."""
    # Whether a dup names the same memory is what no document says, so 8002 is no demand here.
    expected = {Fault.DUPLICATE} if relation is Relation.DUPLICATE_FD else set[Fault]()
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register | Deregister | Execute)):
        if isinstance(walked.step, Register) and walked.allowed.faults <= expected:
            if {note for note in walked.allowed.notes if isinstance(note, Relation)} == {relation}:
                demand_code(walked, codes, f"its memory is registered already ({relation.value})")
                count += 1
        elif count and walked.allowed.valid and not isinstance(walked.step, Register):
            demand_code(walked, {0}, "the registration that was there is still good")
    if count:
        demand_outputs(
            case, trace, lambda w: w.allowed.valid, "the registration that was there is still good"
        )
    return Examined(count, what)


LET_GO = 10
"""Buffers of which one at least must not be mapped any more: a bounded pool of eight is no leak."""


def judge_let_go(case: MemoryCase, trace: MemoryTrace) -> int:
    """Of `LET_GO` buffers whose contexts were freed not every one is still mapped by the target.

    Looks at the mappings of the client's own buffers, by their descriptors, before they were registered and
    up to a second after the last contextFree; a target may keep some, in a bounded pool. Gives the buffers.
    """
    looks = [w for w in walk(case, trace) if isinstance(w.step, Observe) and w.step.buffers]
    owners: dict[str, str] = {}
    gone: set[str] = set()
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Register) and walked.code == 0:
            owners |= {each.buffer: step.context for each in step.descriptors}
        elif isinstance(step, ContextFree) and walked.code == 0:
            gone |= {buffer for buffer, context in owners.items() if context == step.context}
    if len(looks) < 2:
        return 0
    before, after = (_mappings(walked) for walked in (looks[0], looks[-1]))
    ended = sorted(name for name in gone if min(before.get(name, -1), after.get(name, -1)) >= 0)
    left = [name for name in ended if after[name] > before[name]]
    if len(ended) >= LET_GO and len(left) == len(ended):
        wanted = "mappings of the client's buffers that go with the context, of all but a bounded number"
        seen = f"all {len(left)} buffers are still mapped a second after their contexts were freed"
        raise Retained(wanted, seen, place(looks[-1]))
    return len(ended)


def _mappings(walked: Walked) -> dict[str, int]:
    """By buffer, how often it was mapped at a look."""
    assert isinstance(walked.step, Observe)
    return dict(zip(walked.step.buffers, walked.seen.counted(ProcessCounts).mapped, strict=False))


def steps_of(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[int, AnyStep, StepSeen]]:
    """Steps that were carried out, and reads that could not be."""
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not seen.skipped or isinstance(step, Read):
            yield index, step, seen


Resource = Literal["open descriptors", "mappings of shared memory"]
_OF_BUFFERS: tuple[Resource, ...] = ("open descriptors", "mappings of shared memory")


def demand_steady(
    case: MemoryCase,
    trace: MemoryTrace,
    doing: str,
    kinds: tuple[Resource, ...] = _OF_BUFFERS,
    *,
    falling: bool = False,
) -> None:
    """Raise Violation when a count of the last Observe differs from the first one's: Retained if it is more.

    ``falling``: it may be below, since a thread of the backend may have given back what was there before the
    first look.
    """
    looks = [
        (index, seen.counted(ProcessCounts))
        for index, step, seen in steps_of(case, trace)
        if isinstance(step, Observe)
    ]
    if len(looks) < 2:
        return
    before, (index, after) = looks[0][1], looks[-1]
    both: dict[Resource, tuple[int, int]] = {
        "open descriptors": (before.fds, after.fds),
        "mappings of shared memory": (before.memfds, after.memfds),
    }
    for kind in kinds:
        was, now = both[kind]
        if now > was or (now < was and not falling):
            kind_of = Retained if now > was else Violation
            raise kind_of(f"{kind}: {was}, as at the first look", f"{now} after {doing}", f"step {index}")
