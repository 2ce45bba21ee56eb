"""Controls: ordinary calls of the kinds that a case makes, to tell a crash in them from the rule's own.

Only of a process that ended or hangs: a rule about QNN judges the calls that are its own, and outputs against
the target's own plain run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    Lived,
    MemoryCase,
    Prepare,
    Read,
    Register,
    ToFd,
    Write,
)
from pytest_qnn.qnn.cases.memory import CUSTOM, ION
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes, pages
from pytest_qnn.qnn.controls.binaries import executed, right_binaries
from pytest_qnn.qnn.controls.handles import Owned, right_handles, uses_handles
from pytest_qnn.qnn.facts import MemoryFacts

_CONTEXT = (ContextCreate("c0"),)
_REGISTERED = ("REG-01", "REG-16", "REG-17", "REG-27", "IF-09")
"""Owners of a registration that fails: those after the first are about what each one shows."""
_ENDED = ("REG-21",)
_HANDLES = (("REG-02",), _ENDED)
"""Owners of handles that mean another memory than that of their descriptors, or none."""
_MOST_READ = 1 << 22
"""Bytes of a buffer that is read: a trace has them."""
_PLAIN = Descriptor("b0", (1, 2, 2, 2))
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


def controls(case: Any, types: Sequence[int], *, died: bool) -> Iterator[Control]:
    """See `pytest_qnn.core.target.Target.controls`: contexts, then graphs, then registrations.

    ``types``: Qnn_MemType_t of the memory that the target takes.
    """
    if not died:
        for steps, owners in _right(case, types):
            # Memory is what every registration is of; and a handle that means another memory, like any call
            # on it, may go wrong in any way.
            of_memory = not any(isinstance(step, ContextCreate) for step in steps)
            yield Control(MemoryCase(steps), owners, spoils=of_memory or owners in _HANDLES)
        return
    if any(isinstance(step, ContextCreate) for step in case.steps):
        for steps, owner in _ordinary(case):
            yield Control(MemoryCase(steps), (owner,), _CALLS)
    # Other steps open a session too, and some make calls in a row (`Lived`, `Churn`, ...): what is ordinary
    # in them is in an ordinary session.
    yield Control(MemoryCase(_CONTEXT), (), _SESSION)
    operators = {(step.op, step.dtype): None for step in case.steps if isinstance(step, Lived | Prepare)}
    for op, dtype in operators or {("ElementWiseAdd", "UFIXED_POINT_8"): None}:
        yield Control(MemoryCase(_session(Prepare("g0", "c0", op, dtype))), (), _CALLS)


def _right(case: MemoryCase, types: Sequence[int]) -> Iterator[Owned]:
    """Ordinary calls that must succeed and give right outputs, from the plainest on; each adds one thing."""
    yield _CONTEXT, ("CTX-09", "IF-09")
    if sum(isinstance(step, ContextCreate | ContextFromBinary) for step in case.steps) > 1:
        yield (*_CONTEXT, ContextCreate("c1")), ("CTX-09",)
    if any(isinstance(step, ContextFree) for step in case.steps):
        yield (*_CONTEXT, ContextFree("c0")), ("CTX-01", "CTX-08")
    for prepare in _graphs(case):
        yield (*_CONTEXT, prepare), ("PRE-10", "PRE-11", "IF-09")
        yield (*_CONTEXT, prepare, executed(prepare)), ("EXE-21",)
    for prepare in _hinted(case):
        plain = msgspec.structs.replace(prepare, graph="g1", mem_types=())
        both = (plain, executed(plain, "g1"), prepare, executed(prepare))
        yield (*_CONTEXT, *both), ("QMG-05", "PRE-11", "QMG-03", "QMG-08")
    if sum(isinstance(step, Execute) for step in case.steps) > 1:
        for prepare in _hinted(case):
            plain = msgspec.structs.replace(prepare, graph="g1", mem_types=())
            twice = (*_executed_twice(prepare), *_executed_twice(plain))
            yield (*_CONTEXT, *twice), ("QMG-01", "QMG-03", "EXE-21")
        for prepare in _graphs(case):
            yield (*_CONTEXT, *_executed_twice(prepare)), ("QMG-01", "EXE-21")
    yield from _right_memory(case)
    yield from right_binaries(case, list(_graphs(case, with_weights=True)), list(_hinted(case)))
    if uses_handles(case):
        yield from right_handles(case, list(dict.fromkeys((*_graphs(case), *_lived(case)))), types)
        for prepare in _hinted(case):
            yield _with_handles(prepare), ("QMG-04",)


def _executed_twice(prepare: Prepare) -> tuple[AnyStep, ...]:
    """A graph that is executed again with other inputs."""
    return prepare, *(executed(prepare, prepare.graph, seed) for seed in (0, 9))


def _right_memory(case: MemoryCase) -> Iterator[Owned]:
    """Memory by itself, registrations, and what they leave alone."""
    registers = any(isinstance(step, Register | Lived) for step in case.steps)
    if registers or any(isinstance(step, Alloc) for step in case.steps):
        shared = (Alloc("b0", 4096), Write("b0", 4096), Read("b0"), Read("b0", "fd"))
        yield shared, ("RPC-02", "RPC-10")
        two = (Alloc("b0", 4096), Alloc("b1", 4096), ToFd("b0"), ToFd("b1"))
        yield two, ("RPC-09",)
    lived = any(isinstance(step, Lived) for step in case.steps)
    batches = [step.descriptors for step in case.steps if isinstance(step, Register)]
    descriptors = [each for batch in batches for each in batch]
    places = [(each.buffer, each.offset) for each in descriptors]
    for one in dict.fromkeys(_plain_descriptors(case)) or dict.fromkeys((_PLAIN,) if registers else ()):
        yield from _right_registration(one)
        if any(each.mem_type == CUSTOM for each in descriptors):
            yield _to_the_end(one), ("SHB-04",)
        if lived or any(len(batch) > 1 for batch in batches):
            yield from _right_batch(one)
        if lived or len(places) > len(set(places)):
            again = Register("c0", (one,), ("h1",))
            yield (*_registered(one), again, Deregister(("h0",))), _ENDED
        if lived or any(isinstance(step, Free) for step in case.steps):
            yield _numbered_again(one), ("REG-26",)


def _right_registration(one: Descriptor) -> Iterator[Owned]:
    """A registration by itself: that it succeeds, what it leaves alone, and that it ends."""
    size, registered = _size(one), _registered(one)
    second = (Alloc("b1", size), Register("c0", (msgspec.structs.replace(one, buffer="b1"),), ("h1",)))
    yield registered, _REGISTERED
    yield (*registered, Deregister(("h0",))), ("DRG-01",)
    yield (*registered, *second, Deregister(("h0",)), Deregister(("h1",))), ("DRG-11",)
    if size <= _MOST_READ:
        kept = (Alloc("b0", size), Fill("b0"), Read("b0"), Register("c0", (one,), ("h0",)), Read("b0"))
        yield (*_CONTEXT, *kept), ("REG-20",)
        yield (*registered, Fill("b0"), Deregister(("h0",)), Read("b0")), ("DRG-09",)
    yield (*registered, Deregister(("h0",)), Register("c0", (one,), ("h1",))), ("REG-24",)


def _to_the_end(one: Descriptor) -> tuple[AnyStep, ...]:
    """A tensor that ends with its shared buffer, and one that begins there."""
    exact = nbytes(one.shape, one.dtype)
    within = msgspec.structs.replace(one, mem_type=CUSTOM)
    behind = msgspec.structs.replace(within, buffer="b1", offset=exact)
    both = (Register("c0", (within,), ("h0",)), Register("c0", (behind,), ("h1",)))
    return (*_CONTEXT, Alloc("b0", exact), Alloc("b1", exact), *both)


def _right_batch(one: Descriptor) -> Iterator[Owned]:
    """Two registrations in one call; and in one of which the second is bad, so that the first is none."""
    other = msgspec.structs.replace(one, buffer="b1")
    bad = msgspec.structs.replace(other, fd="minus-one")
    begin = (*_CONTEXT, Alloc("b0", _size(one)), Alloc("b1", _size(one)))
    again = (Deregister(("h0",)), Register("c0", (one,), ("h2",)))
    yield (*begin, Register("c0", (one, other), ("h0", "h1")), *again), ("REG-02",)
    yield (*begin, Register("c0", (one, bad), ("h0", "h1")), Register("c0", (one,), ("h2",))), ("REG-08",)


def _numbered_again(one: Descriptor) -> tuple[AnyStep, ...]:
    """A larger buffer is registered with the descriptor number of one that is gone."""
    size = _size(one)
    begun = (*_CONTEXT, Alloc("b0", size), ToFd("b0"), Register("c0", (one,), ("h0",)))
    larger = (Alloc("b1", 2 * size), ToFd("b1"))
    again = Register("c0", (msgspec.structs.replace(one, buffer="b1"),), ("h1",))
    return (*begun, Deregister(("h0",)), Free("b0"), *larger, again)


def _with_handles(prepare: Prepare) -> tuple[AnyStep, ...]:
    """A graph executed with memory registered for each of its tensors, to which nobody has written."""
    places = range(io_inputs(prepare) + 1)
    size = pages(nbytes(prepare.shape, prepare.dtype))
    buffers = (Alloc(f"b{place}", size) for place in places)
    registered = (
        Register("c0", (Descriptor(f"b{place}", prepare.shape, prepare.dtype),), (f"h{place}",))
        for place in places
    )
    execute = Execute("g0", tuple(Binding("handle", f"h{place}") for place in places))
    return (*_CONTEXT, prepare, *buffers, *registered, execute)


def _session(prepare: Prepare) -> tuple[AnyStep, ...]:
    """A graph that is executed with raw memory; memory registered, deregistered, and left to contextFree."""
    buffers = (Alloc("b0", 4096), Alloc("b1", 4096))
    registered = tuple(
        Register("c0", (Descriptor(f"b{place}", (1, 2, 2, 2)),), (f"h{place}",)) for place in range(2)
    )
    end = (Deregister(("h0",)), ContextFree("c0"))
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
    deregistered = any(isinstance(step, Deregister) for step in case.steps)
    for one in dict.fromkeys(_plain_descriptors(case)):
        registered = _registered(one)
        yield registered, "REG-01"
        if deregistered:
            yield (*registered, Deregister(("h0",))), "DRG-01"


def around(facts: MemoryFacts, case: Any) -> MemoryFacts:
    """The facts without the operator of the control's graph, if others are left."""
    used = {(step.op, step.dtype) for step in case.steps if isinstance(step, Prepare)}
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
    """The graphs of ordinary life."""
    lives = (step for step in case.steps if isinstance(step, Lived) and step.what == "turns")
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


def _registered(one: Descriptor) -> tuple[AnyStep, ...]:
    """A buffer that fits, registered by itself."""
    return (*_CONTEXT, Alloc("b0", _size(one)), Register("c0", (one,), ("h0",)))


def _size(one: Descriptor) -> int:
    return pages(nbytes(one.shape, one.dtype))


def _plain_descriptors(case: MemoryCase) -> Iterator[Descriptor]:
    """Of the case's ION descriptors type and shape, in a buffer of their own."""
    return (
        Descriptor("b0", each.shape, each.dtype)
        for step in case.steps
        if isinstance(step, Register)
        for each in step.descriptors
        if each.mem_type == ION and all(each.shape)
    )
