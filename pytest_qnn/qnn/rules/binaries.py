"""What the rules about context binaries and deferred initialisation share: gates and judgements."""

from __future__ import annotations

from collections.abc import Callable

from pytest_qnn.core.verdict import Unsupported, Violation, WrongSuccess
from pytest_qnn.qnn.abi.codes import Error, HtpContextOption, Property, low
from pytest_qnn.qnn.cases.case import (
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    Execute,
    GetBinary,
    Inspect,
    MemoryCase,
    Register,
    ReleaseBinary,
    Retrieve,
)
from pytest_qnn.qnn.cases.memory import NEEDED, WEIGHTS
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.facts import HTP_BACKEND_ID
from pytest_qnn.qnn.model.codes import SENTINEL, named
from pytest_qnn.qnn.model.contents import Compared, compare, differs
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.model.notes import Note
from pytest_qnn.qnn.rules.graphs import judge_contents, require_prepared
from pytest_qnn.qnn.rules.judging import demand_code, facts_of, own_steps, place, require_memory_calls
from pytest_qnn.qnn.trace import MemoryTrace

_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


def answers(case: MemoryCase, trace: MemoryTrace, own: Callable[[object], bool]) -> set[int]:
    """Low 16 bits of what the steps for which ``own`` holds were answered with."""
    return {
        low(seen.code)
        for step, seen in zip(case.steps, trace.steps, strict=False)
        if seen.code is not None and own(step)
    }


def require_binaries(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported where graphs cannot be prepared, or there are no context binaries.

    A target whose key 202 says that there are is judged on what it answers; without the key, the first
    refusal of a call that is in order settles it.
    """
    require_prepared(case, trace)
    if facts_of(trace).supports(Property.CONTEXT_SUPPORT_CACHING):
        return
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, GetBinary | ContextFromBinary) and seen.absent:
            raise Unsupported(f"{seen.absent} is NULL in the interface table, and key 202 is not supported")
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and w.code != 0):
        if isinstance(walked.step, GetBinary):
            call = walked.seen.calls[-1][0]
            raise Unsupported(f"{call} answers {named(walked.code or 0)}, and key 202 is not supported")
        if isinstance(walked.step, ContextFromBinary) and walked.step.defer is None:
            answer = named(walked.code or 0)
            raise Unsupported(f"contextCreateFromBinary answers {answer}, and key 202 is not supported")


def demand_sizes(walked: Walked) -> None:
    """The bytes needed and the bytes written, of a binary or of a section, are told and are possible."""
    size, told = walked.seen.values
    if walked.code == 0 and not (0 < told <= size < SENTINEL):
        seen = ", ".join(
            f"{what} {'not told' if value == SENTINEL else value}"
            for what, value in (("bytes needed", size), ("bytes written", told))
        )
        raise Violation("the bytes needed, and of them those written", seen, place(walked))


def require_deferred(case: MemoryCase, trace: MemoryTrace) -> None:
    """`require_binaries`, and Unsupported where initialisation cannot be deferred."""
    require_binaries(case, trace)
    if facts_of(trace).supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT):
        return
    if answers(case, trace, lambda s: isinstance(s, ContextFromBinary) and bool(s.defer)) == {_UNSUPPORTED}:
        raise Unsupported("contextCreateFromBinary with DEFER_GRAPH_INIT answers 1000, not supported")


def require_properties(case: MemoryCase, trace: MemoryTrace) -> None:
    """`require_deferred`, and Unsupported where the backend is not the HTP, whose properties they are."""
    require_deferred(case, trace)
    backend = facts_of(trace).backend_id
    if backend not in (0, HTP_BACKEND_ID):
        raise Unsupported(f"the properties are the HTP's (id {HTP_BACKEND_ID}); this one has id {backend}")


def require_finalize(case: MemoryCase, trace: MemoryTrace) -> None:
    """`require_deferred`, and Unsupported where contextFinalize does not exist.

    That a target begins what it cannot finish is the business of EXT-29, and that key 217 says that it can,
    of CAP-06.
    """
    require_deferred(case, trace)
    asked = {w.code for w in walk(case, trace) if isinstance(w.step, ContextFinalize) and w.allowed.valid}
    if asked == {_UNSUPPORTED}:
        says = facts_of(trace).supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT)
        key = "key 217 says that it is supported (CAP-06)" if says else "key 217 is not supported"
        raise Unsupported(f"contextFinalize of a deferred context answers 1000, and {key}")


def require_external(case: MemoryCase, trace: MemoryTrace, *, finalized: bool = True) -> None:
    """`require_deferred`, and Unsupported where memory of the HTP's types cannot be registered.

    Args:
        case: what was done.
        trace: what was seen of it.
        finalized: also where contextFinalize does not exist; not of a rule which wants a refusal of it.
    """
    require_deferred(case, trace)
    require_memory_calls(case, trace)
    facts = facts_of(trace)
    if facts.capabilities and not facts.supports(Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM):
        raise Unsupported("CUSTOM memory is not supported: property key 1103 says so")
    if facts.capabilities and not facts.supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT):
        raise Unsupported("deferred initialisation is not supported to its end: property key 217 says so")
    if facts.backend_id not in (0, HTP_BACKEND_ID):
        raise Unsupported(f"weights and spill-fill memory are the HTP's (id 6), not of id {facts.backend_id}")
    if finalized:
        require_finalize(case, trace)
    if all(said and not any(said) for said in (_needed(case, trace, role) for role in NEEDED)):
        raise Unsupported("no context of the case needs external memory: properties 2 and 3 say 0")


def require_page_alignment(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported where external memory must be aligned to more than what rpcmem promises.

    Of any memory that the case has, it is not known whether its target may refuse it.
    """
    found = property_said(case, trace, HtpContextOption.BUFFER_START_ALIGNMENT)
    if found and min(found) > PAGE:
        raise Unsupported(f"memory aligned to {min(found)} bytes is more than rpcmem promises: a page")


def require_needed(case: MemoryCase, trace: MemoryTrace, role: int) -> None:
    """Raise Unsupported where a target needs no memory of this type for any graph of the case.

    Only what its contexts say of themselves counts (properties 2 and 3).
    """
    said = _needed(case, trace, role)
    if said and not any(said):
        name = "weights" if role == WEIGHTS else "spill-fill"
        raise Unsupported(f"no context of the case needs {name} memory: its property says 0")


def _needed(case: MemoryCase, trace: MemoryTrace, role: int) -> list[int]:
    """Bytes of this type of memory that the contexts of the case say they need."""
    return property_said(case, trace, NEEDED[role])


def property_said(case: MemoryCase, trace: MemoryTrace, option: int) -> list[int]:
    """What the contexts of the case say of a property."""
    return [
        value
        for w in walk(case, trace)
        if w.code == 0 and isinstance(w.step, ContextProperty)
        for asked, value in zip(w.step.options, w.seen.values, strict=False)
        if asked == option
    ]


def inspected(case: MemoryCase, trace: MemoryTrace) -> list[Walked]:
    """The successful looks into binaries.

    Raises:
        Unsupported: there is no System interface to look with.
    """
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Inspect) and seen.skipped and not seen.lacking:
            raise Unsupported(seen.skipped)
    return list(own_steps(case, trace, lambda w: isinstance(w.step, Inspect)))


def demand_refused(walked: Walked, because: str) -> None:
    """Raise WrongSuccess if the step succeeded. No document says with which code it must fail."""
    if walked.code == 0:
        raise WrongSuccess(f"a refusal, with any code: {because}", named(0), place(walked))


def judge_flow(case: MemoryCase, trace: MemoryTrace, because: str) -> int:
    """Steps of a binary's way that are in order must succeed, and outputs be right; gives the executes.

    Loading, finalising, retrieving and executing are such steps, and registering external memory; that of IO
    tensors is other rules' business.
    """
    kinds = ContextFromBinary | ContextFinalize | Retrieve | Register | Execute
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, kinds) and w.allowed.valid):
        if not isinstance(walked.step, Register) or walked.allowed.notes & {Note.WEIGHTS, Note.SPILL}:
            demand_code(walked, {0}, because)
        count += isinstance(walked.step, Execute)
    judge_contents(case, trace, lambda seen: seen.where == "output", because)
    return count


def executed_after_release(case: MemoryCase, trace: MemoryTrace) -> int:
    """How many executes succeeded in contexts whose binary the client had overwritten by then."""
    released: set[str] = set()
    owners: dict[str, str] = {}
    count = 0
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, ReleaseBinary):
            released.add(step.context)
        elif isinstance(step, Retrieve):
            owners[step.graph] = step.context
        elif isinstance(step, Execute) and walked.code == 0:
            count += owners.get(step.graph) in released
    return count


def _key(seen: Compared) -> tuple[object, ...]:
    """What makes two outputs comparable: operator, type, shape and inputs."""
    assert seen.made is not None
    return seen.made.op, seen.made.dtype, seen.made.shape, *seen.inputs


def demand_equal(case: MemoryCase, trace: MemoryTrace, reference: set[str]) -> int:
    """Outputs for equal inputs are equal; gives how many were compared with one of these graphs."""
    first: dict[tuple[object, ...], Compared] = {}
    count = 0
    for seen in compare(case, trace):
        if seen.made is None or not isinstance(seen.walked.step, Execute):
            continue
        own = seen.walked.step.graph
        if own in reference:
            first.setdefault(_key(seen), seen)
            continue
        other = first.get(_key(seen))
        if other is None:
            continue
        if other.data != seen.data:
            assert other.execute is not None
            difference = differs(other.data, seen.data, "UFIXED_POINT_8")
            raise Violation(f"the output of graph {other.execute.graph}", difference, place(seen.walked))
        count += 1
    return count
