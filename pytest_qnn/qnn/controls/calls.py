"""Controls: ordinary calls of the kinds that a case makes, to tell what is wrong in them from a rule's own.

Of a process that ended or hangs, few: who owns that depends on the call it was in. Of all else, calls that
must succeed and outputs that must be right, what they leave behind, and what the target declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.target import Control, Resource
from pytest_qnn.core.verdict import (
    FailedCall,
    FalseDeclaration,
    Measured,
    Retained,
    Violation,
    WrongOutput,
    WrongRefusal,
    WrongSuccess,
)
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    ApplySection,
    Capability,
    Churn,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    FailedAllocation,
    GetBinary,
    GetSection,
    Lived,
    MemoryCase,
    MendedMistake,
    Miscompose,
    Parallel,
    Prepare,
    QnnDType,
    QnnOp,
    Register,
    ThreadCall,
)
from pytest_qnn.qnn.cases.memory import CUSTOM
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES, PAGE
from pytest_qnn.qnn.controls.binaries import executed, right_binaries
from pytest_qnn.qnn.controls.executes import has_refused_execute, refused_executes
from pytest_qnn.qnn.controls.handles import (
    ODD_OFFSETS,
    Owned,
    dead_handles,
    is_at_odd_offset,
    right_handles,
    uses_handles,
)
from pytest_qnn.qnn.controls.left import churned, counted, kept_by_contexts
from pytest_qnn.qnn.controls.registrations import (
    ENDED,
    LEFT_ALONE,
    PLAIN,
    UNSUPPORTED,
    at_offset,
    kept,
    plain_descriptors,
    refused_calls,
    registration,
    right_memory,
    right_structs,
    with_handles,
)
from pytest_qnn.qnn.facts import MemoryFacts

_CONTEXT = (ContextCreate("c0"),)
_BEHIND = ("EXE-10",)
_SPOILING = (_BEHIND, ("REG-02",), ENDED, LEFT_ALONE, UNSUPPORTED)
"""Owners of bytes written where nobody gave memory, of handles that mean another memory than that of their
descriptors, or none, of descriptors that are closed, and of calls without a memory API."""
_SESSION = (
    ("QnnInterface_getProviders", "IF-01"),
    ("QnnLog_create", "IF-11"),
    ("QnnBackend_create", "IF-12"),
    ("QnnDevice_create", "IF-13"),
    ("QnnDevice_free", "CTX-08"),
    ("QnnBackend_free", "CTX-08"),
    ("QnnLog_free", "CTX-08"),
)
"""Calls that open and close a session, and the rules that each of them succeeds."""
_CALLS = (
    *_SESSION,
    ("QnnContext_create", "CTX-09"),
    ("QnnContext_free", "CTX-01"),
    ("QnnGraph_create", "PRE-10"),
    ("QnnTensor_createGraphTensor", "PRE-11"),
    ("QnnBackend_validateOpConfig", "PRE-11"),
    ("QnnGraph_addNode", "PRE-11"),
    ("QnnGraph_finalize", "PRE-11"),
    ("QnnGraph_execute", "EXE-21"),
    ("QnnMem_register", "REG-01"),
    ("QnnMem_deRegister", "DRG-01"),
)
"""The same of all ordinary calls."""
_BESIDE_EXECUTES = tuple(each for each in _CALLS if each[0] != "QnnGraph_execute")
"""The same of those in which a death says nothing of the memory that a graph is executed with."""


def controls(case: Any, types: Sequence[int], *, died: bool) -> Iterator[Control]:
    """See `pytest_qnn.core.target.Target.controls`: contexts, then graphs, then registrations.

    ``types``: Qnn_MemType_t of the memory that the target takes.
    """
    if not died:
        yield from _at_offsets(case)
        for steps, owners in _right(case, types):
            # Memory is what every registration is of; and a handle that means another memory, like any call
            # on it, may go wrong in any way.
            of_memory = not any(isinstance(step, ContextCreate) for step in steps)
            made = MemoryCase(tuple(map(kept, steps)))
            shown = FailedCall if owners == ODD_OFFSETS else Violation
            yield Control(made, owners, spoils=of_memory or owners in _SPOILING, shown=shown)
        yield from _left(case, types)
        for key in _declared(case):
            yield Control(MemoryCase((Capability(key),) * 2), ("CAP-01",), explains=(FalseDeclaration,))
        return
    if any(isinstance(step, Execute | Lived | Parallel) for step in case.steps):
        for prepare in _graphs(case):
            yield Control(MemoryCase((*_CONTEXT, prepare, executed(prepare))), _BEHIND, spoils=True)
    if any(isinstance(step, ContextCreate) for step in case.steps):
        for steps, owner in _ordinary(case):
            yield Control(MemoryCase(steps), (owner,), _CALLS)
    # Before all that a session is only opened for: other steps open one too.
    yield Control(MemoryCase(_CONTEXT), (), _SESSION)
    for steps, owners in _behind_handles(case, types):
        yield Control(MemoryCase(tuple(map(kept, steps))), owners[:1], _BESIDE_EXECUTES)
    refused = (*_mistaken(case), *refused_calls(case), *refused_executes(case, types))
    for steps, owner in refused:
        yield Control(MemoryCase(steps), (owner,))
    yield from _alone(case)
    yield from _refused_beside(case)
    # Some steps make calls in a row (`Lived`, `Churn`, ...): these are in an ordinary session too.
    operators: dict[tuple[QnnOp, QnnDType], tuple[str, ...]] = {
        (step.op, step.dtype): ()
        for step in case.steps
        if isinstance(step, Lived | Prepare | FailedAllocation | Parallel)
    }
    # Where threads hang several calls are in progress: the one that is known need not be the one that does.
    operators |= {
        (op, step.dtype): ("EXE-21",)
        for step in case.steps
        if isinstance(step, Parallel)
        for op in step.ops or (step.op,)
    }
    for (op, dtype), owners in (operators or {("ElementWiseAdd", "UFIXED_POINT_8"): ()}).items():
        yield Control(MemoryCase(_session(Prepare("g0", "c0", op, dtype))), owners, _CALLS)
    yield from _refused(case, types)


def _at_offsets(case: MemoryCase) -> Iterator[Control]:
    """A tensor at an offset of its shared buffer that is aligned for its elements only, and one at a page.

    Each says something only where the plainer one is taken, so that it is the offset that is refused.
    """
    if any(map(_has_offset, case.steps)):
        plain = Control(MemoryCase(at_offset(0)), ("SHB-07",), shown=FailedCall)
        at_page = Control(MemoryCase(at_offset(PAGE)), ("SHB-07",), shown=FailedCall, presumes=plain)
        odd = MemoryCase(at_offset(ELEMENT_BYTES[PLAIN.dtype]))
        yield Control(odd, ODD_OFFSETS, shown=FailedCall, presumes=at_page)
        yield at_page


def _has_offset(step: AnyStep) -> bool:
    if isinstance(step, Churn):
        return step.mem_type == CUSTOM and step.tensors > 1
    return isinstance(step, Register) and any(
        each.mem_type == CUSTOM and each.offset for each in step.descriptors
    )


def _left(case: MemoryCase, types: Sequence[int]) -> Iterator[Control]:
    """What calls leave behind, by what shows it: a later call, a look at the process, its growth."""
    if uses_handles(case):
        graphs = list(dict.fromkeys((*_graphs(case), *_lived(case))))
        for steps, owners in dead_handles(case, graphs, types):
            made = MemoryCase(tuple(map(kept, steps)))
            yield Control(made, owners, explains=(Retained, WrongOutput), shown=WrongSuccess)
    for steps, owner in kept_by_contexts(case):
        yield Control(MemoryCase(steps), (owner,), spoils=True, explains=(WrongOutput, WrongRefusal))
    for steps, owner in counted(case):
        yield Control(MemoryCase(steps), (owner,), explains=(Retained,))
    for steps, owner in churned(case):
        yield Control(MemoryCase(steps), (owner,), explains=(Measured,))


def _behind_handles(case: MemoryCase, types: Sequence[int]) -> Iterator[Owned]:
    """Executes with registered memory: of a graph that is the same for all cases, so that a hang is met once.

    Then of each operator of the case, in the same shape, and last of its own graphs.
    """
    if not uses_handles(case):
        return
    plain = Prepare("g0", "c0")
    own = list(dict.fromkeys((*_graphs(case), *_lived(case))))
    alike = [msgspec.structs.replace(plain, op=each.op, dtype=each.dtype) for each in own if not each.terms]
    yield from right_handles(case, list(dict.fromkeys((plain, *alike))), types)
    for made in own:
        yield with_handles(made), ("EXE-01",)
        yield from right_structs(case, (made,))


def _alone(case: MemoryCase) -> Iterator[Control]:
    """What each thread calls, without other threads; before that each call, the same for all cases."""
    for step in case.steps:
        if not (isinstance(step, Parallel) and step.what == "histories"):
            continue
        alone = msgspec.structs.replace(step, threads=1, rounds=1, ops=(), shared=False)
        plain = Parallel("histories", threads=1, mem_type=step.mem_type, own=step.own)
        pieces = [msgspec.structs.replace(plain, calls=(calls,)) for calls in _pieces(step)]
        for number, calls in enumerate(step.calls):
            op = step.ops[number] if step.ops else step.op
            pieces.append(msgspec.structs.replace(alone, calls=(calls,), op=op))
        for one in dict.fromkeys(pieces):
            yield Control(MemoryCase((one,)), ("CTX-09",), _CALLS)


def _refused_beside(case: MemoryCase) -> Iterator[Control]:
    """Where a handle ends in one thread, executes of another are refused: refused executes of two threads."""
    calls: tuple[ThreadCall, ...] = ("graphExecute", "refused")
    for step in case.steps:
        if isinstance(step, Parallel) and step.what == "deregister":
            beside = Parallel("histories", mem_type=step.mem_type, calls=(calls, calls))
            yield Control(MemoryCase((beside,)), ("QTHR-06",))


_BEFORE: dict[ThreadCall, tuple[ThreadCall, ...]] = {
    "memDeRegister": ("memRegister",),
    "backendFree": ("backendCreate",),
    "contextFree": ("contextCreate",),
    "kept": ("contextCreate",),
}
"""What each call needs."""


def _pieces(step: Parallel) -> Iterator[tuple[ThreadCall, ...]]:
    """Each call of the threads but executes, with what it needs: whatever the operator is."""
    found = sorted({call for calls in step.calls for call in calls} - {"graphExecute", "graphCreate"})
    return ((*_BEFORE.get(call, ()), call) for call in found)


def _refused(case: MemoryCase, types: Sequence[int]) -> Iterator[Control]:
    """The calls of which requests are refused as they are; each alone, with all refused, with its refusal."""
    for step in case.steps:
        if isinstance(step, FailedAllocation):
            alone = msgspec.structs.replace(step, rounds=0)
            yield Control(MemoryCase((msgspec.structs.replace(alone, nth=0),)), (), _CALLS)
            owners = ("OOM-02" if step.what == "new" else "OOM-01",)
            # The same for many steps: a hang costs much, and each control is run once.
            kind = types[0] if step.mem_type else 0
            wanted: tuple[Resource, ...] = ("mapping", "memory") if step.what == "any" else (step.what,)
            for call in step.calls:
                for what in wanted:
                    everything = FailedAllocation((call,), what, lasting=True, mem_type=kind)
                    yield Control(MemoryCase((everything,)), owners, hung="OOM-01")
                one = msgspec.structs.replace(alone, calls=(call,))
                yield Control(MemoryCase((one,)), owners, hung="OOM-01")
    # Which call dies may depend on what was done before, and on what another call was refused.
    refusals = [step for step in case.steps if isinstance(step, FailedAllocation)]
    if refusals:
        owner = "OOM-02" if any(step.what == "new" for step in refusals) else "OOM-01"
        once = {step: msgspec.structs.replace(step, rounds=0) for step in refusals}
        steps = tuple(once[step] if isinstance(step, FailedAllocation) else step for step in case.steps)
        yield Control(MemoryCase(steps), (owner,), hung="OOM-01")


def _right(case: MemoryCase, types: Sequence[int]) -> Iterator[Owned]:
    """Ordinary calls that must succeed and give right outputs, from the plainest on; each adds one thing."""
    yield _CONTEXT, ("IF-06", "CTX-09", "IF-09")
    if sum(isinstance(step, ContextCreate | ContextFromBinary) for step in case.steps) > 1:
        yield (*_CONTEXT, ContextCreate("c1")), ("CTX-09",)
    if any(isinstance(step, ContextFree) for step in case.steps):
        yield (*_CONTEXT, ContextFree("c0")), ("CTX-01", "CTX-08")
    for prepare in _graphs(case):
        yield (*_CONTEXT, prepare), ("PRE-10", "PRE-11", "IF-09")
        # Behind an output there is any memory: what is written to it may show anywhere.
        yield (*_CONTEXT, prepare, executed(prepare)), _BEHIND
        yield (*_CONTEXT, prepare, executed(prepare)), ("EXE-21",)
        if sum(isinstance(step, Prepare | Miscompose) for step in case.steps) > 1:
            yield (*_CONTEXT, prepare, msgspec.structs.replace(prepare, graph="g1")), ("PRE-10",)
        if sum(isinstance(step, ContextCreate | ContextFromBinary) for step in case.steps) > 1:
            # A case that is repeated has the same names again, in contexts of its own.
            other = msgspec.structs.replace(prepare, context="c1")
            yield (*_CONTEXT, prepare, ContextCreate("c1"), other), ("PRE-10",)
    for prepare in _hinted(case):
        plain = _without_hint(prepare)
        both = (plain, executed(plain, "g1"), prepare, executed(prepare))
        yield (*_CONTEXT, *both), ("PRE-04", "QMG-05", "QMG-03", "QMG-08")
    if sum(isinstance(step, Execute) for step in case.steps) > 1:
        for prepare in _hinted(case):
            twice = (*_executed_twice(prepare), *_executed_twice(_without_hint(prepare)))
            yield (*_CONTEXT, *twice), ("QMG-01", "QMG-03", "EXE-21")
        for prepare in dict.fromkeys((*_graphs(case), *_graphs(case, with_weights=True))):
            yield (*_CONTEXT, *_executed_twice(prepare)), ("QMG-01", "EXE-21")
    yield from right_memory(case)
    yield from right_binaries(case, list(_graphs(case, with_weights=True)), list(_hinted(case)))
    if uses_handles(case):
        yield from right_handles(case, list(dict.fromkeys((*_graphs(case), *_lived(case)))), types)
        for prepare in _hinted(case):
            yield with_handles(prepare), ("QMG-04",)
    yield from right_structs(case, _graphs(case))


_OF_MISTAKES: dict[MendedMistake, tuple[tuple[AnyStep, str], ...]] = {
    "name": ((Miscompose("c0", "name"), "PRE-12"),),
    "data": (
        (Prepare("g0", "c0", preset=(True,)), "PRE-02"),
        (Prepare("g0", "c0", weights=1, weights_as="null"), "PRE-03"),
    ),
    "handle": ((Prepare("g0", "c0", mem_types=(1,), preset=(True,)), "PRE-01"),),
    "zero-dimension": ((Miscompose("c0", "zero-dimension"), "PRE-14"),),
    "input": ((Miscompose("c0", "tensor"), "PRE-12"),),
    "late": ((Miscompose("c0", "late"), "PRE-12"),),
}
"""Each mistake by itself, and whose it is; of others no other rule is."""


def _mistaken(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """The mistakes that are made beside right calls."""
    made = dict.fromkeys(each for step in case.steps if isinstance(step, Prepare) for each in step.mistakes)
    for mistake in made:
        for step, owner in _OF_MISTAKES.get(mistake, ()):
            yield (*_CONTEXT, step), owner


def _executed_twice(prepare: Prepare) -> tuple[AnyStep, ...]:
    """A graph that is executed again with other inputs."""
    return prepare, *(executed(prepare, prepare.graph, seed) for seed in (0, 9))


def _session(prepare: Prepare) -> tuple[AnyStep, ...]:
    """A graph that is executed with raw memory; memory registered, deregistered, and left to contextFree.

    One by one, and two in one call.
    """
    buffers = tuple(Alloc(f"b{place}", 4096) for place in range(4))
    registered = tuple(
        Register(
            "c0",
            tuple(Descriptor(f"b{place}", (1, 2, 2, 2)) for place in places),
            tuple(f"h{place}" for place in places),
        )
        for places in ((0,), (1, 2), (3,))
    )
    end = (Deregister(("h0",)), Deregister(("h1", "h2")), ContextFree("c0"))
    return (*_CONTEXT, prepare, executed(prepare), *buffers, *registered, *end)


def _ordinary(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Steps, and who owns a death of which no call is known."""
    yield _CONTEXT, "CTX-09"
    if any(isinstance(step, ContextFree) for step in case.steps):
        yield (*_CONTEXT, ContextFree("c0")), "CTX-01"
    executes = any(isinstance(step, Execute) for step in case.steps)
    for prepare in _graphs(case):
        yield (*_CONTEXT, prepare), "PRE-11"
        if executes:
            yield (*_CONTEXT, prepare, executed(prepare)), "EXE-21"
    if sum(isinstance(step, Execute) for step in case.steps) > 1:
        for prepare in _graphs(case, with_weights=True):
            yield (*_CONTEXT, *_executed_twice(prepare)), "EXE-21"
    if any(isinstance(step, GetSection | ApplySection) for step in case.steps):
        yield from _sections(case)
    deregistered = any(isinstance(step, Deregister) for step in case.steps)
    for one in dict.fromkeys(plain_descriptors(case)):
        registered = registration(one)
        yield registered, "REG-01"
        if deregistered:
            yield (*registered, Deregister(("h0",))), "DRG-01"
    if deregistered:
        both = (Descriptor(f"b{place}", (1, 2, 2, 2)) for place in range(2))
        made = (*_CONTEXT, Alloc("b0", 4096), Alloc("b1", 4096), Register("c0", tuple(both), ("h0", "h1")))
        yield (*made, Deregister(("h0", "h1"))), "DRG-01"


def _sections(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """The section of each graph that has one, in raw memory, and in memory behind a handle."""
    of_handles = dict.fromkeys(
        step.mem_type
        for step in case.steps
        if isinstance(step, GetSection | ApplySection) and step.memory != "raw"
    )
    updatable = (step for step in case.steps if isinstance(step, Prepare) and step.weights_as == "updatable")
    for prepare in dict.fromkeys(
        msgspec.structs.replace(step, graph="g0", context="c0", mem_types=()) for step in updatable
    ):
        taken = (*_CONTEXT, prepare, GetBinary("c0", "f0"), GetSection("c0", "g0", "s0"))
        yield taken, "MSC-02"
        for kind in of_handles:
            yield (*taken, GetSection("c0", "g0", "s1", "handle", kind)), "MSC-01"


def around(facts: MemoryFacts, case: Any) -> MemoryFacts:
    """The facts without the operator of the control's graph, if others are left, or with its fatal call."""
    fatal_calls = [call for step in case.steps if isinstance(step, FailedAllocation) for call in step.calls]
    if len(fatal_calls) == 1:
        return msgspec.structs.replace(facts, fatal_calls=tuple(sorted({*facts.fatal_calls, *fatal_calls})))
    used = {(step.op, step.dtype) for step in case.steps if isinstance(step, Prepare)}
    threads = [step for step in case.steps if isinstance(step, Parallel)]
    used |= {(op, step.dtype) for step in threads for op in step.ops or (step.op,)}
    if is_at_odd_offset(case):
        return msgspec.structs.replace(facts, only_aligned=True)
    if has_refused_execute(case):
        return facts  # what is refused is wrong, whatever the operator is
    if any(isinstance(step, Register) for step in case.steps):
        return facts  # memory is wrong, and not the operator, which was right with raw memory before
    left = tuple(pair for pair in facts.operators if pair not in used)
    if not left or left == facts.operators:
        return facts
    return msgspec.structs.replace(facts, operators=left)


def _graphs(case: MemoryCase, *, with_weights: bool = False) -> Iterator[Prepare]:
    """The graphs with raw tensors and nothing else that is special, each kind once."""
    plain = (
        Prepare(
            "g0",
            "c0",
            step.op,
            step.dtype,
            step.shape,
            terms=step.terms,
            weights=step.weights if with_weights else None,
            relay=step.relay and with_weights,
        )
        for step in case.steps
        if isinstance(step, Prepare) and step.finalise
    )
    yield from dict.fromkeys(plain)


def _lived(case: MemoryCase) -> Iterator[Prepare]:
    """The graphs of ordinary life, and of threads."""
    whats = {"turns", "contexts"}
    lives = (step for step in case.steps if isinstance(step, Lived | Parallel) and step.what in whats)
    return (Prepare("g0", "c0", step.op, step.dtype) for step in lives)


def _hinted(case: MemoryCase) -> Iterator[Prepare]:
    """The graphs with memory types other than RAW, with their weights, each kind once."""
    hinted = (
        Prepare(
            *("g0", "c0", step.op, step.dtype, step.shape, step.mem_types),
            weights=step.weights,
            relay=step.relay,
            terms=step.terms,
        )
        for step in case.steps
        if isinstance(step, Prepare) and step.finalise and any(step.mem_types)
    )
    yield from dict.fromkeys(hinted)


def _without_hint(prepare: Prepare) -> Prepare:
    """The same graph beside it, with raw tensors."""
    return msgspec.structs.replace(prepare, graph="g1", mem_types=())


_MEMORY_KEYS = (1101, 1102, 1103, 1104)
"""Property keys of the memory API and of its types."""
_DEFERRED_KEYS = (215, 217)
"""Those of deferred initialisation and its properties."""


def _declared(case: MemoryCase) -> tuple[int, ...]:
    """The property keys of what the case makes use of."""
    registers = any(isinstance(step, Register) for step in case.steps)
    loads = any(isinstance(step, ContextFromBinary) for step in case.steps)
    return (*_MEMORY_KEYS * registers, *_DEFERRED_KEYS * loads)
