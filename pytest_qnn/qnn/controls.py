"""Controls: ordinary calls of the kinds that a case makes, to tell a crash in them from the rule's own.

Only of a process that ended or hangs: a rule about QNN judges the calls that are its own, and outputs against
the target's own plain run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.core.verdict import FalseDeclaration, Retained
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    ApplySection,
    Binding,
    Capability,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    GetBinary,
    GetSection,
    Lived,
    MemoryCase,
    Observe,
    Prepare,
    Read,
    Register,
    Retrieve,
    ToFd,
    Write,
)
from pytest_qnn.qnn.cases.memory import CUSTOM, ION
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes, pages
from pytest_qnn.qnn.facts import MemoryFacts

_CONTEXT = (ContextCreate("c0"),)
_REGISTERED = ("REG-01", "REG-16", "REG-17", "REG-27", "IF-09", "CAP-03")
"""Owners of a registration that fails: those after the first are about what each one shows."""
_MOST_READ = 1 << 22
"""Bytes of a buffer that is read: a trace has them."""
_PLAIN = Descriptor("b0", (1, 2, 2, 2))
_WRONG = Descriptor("b1", (1, 2, 2, 2), fd="minus-one")
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


def controls(case: Any, *, died: bool) -> Iterator[Control]:
    """See `pytest_qnn.core.target.Target.controls`: contexts, then graphs, then registrations."""
    if not died:
        for steps, owners in _right(case):
            # Memory is what every registration is of.
            spoils = not any(isinstance(s, ContextCreate) for s in steps)
            yield Control(MemoryCase(tuple(map(_kept, steps))), owners, spoils=spoils)
        for steps, owner in _counted(case):
            yield Control(MemoryCase(steps), (owner,), explains=(Retained,))
        for key in _declared(case):
            yield Control(MemoryCase((Capability(key),) * 2), ("CAP-01",), explains=(FalseDeclaration,))
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


Owned = tuple[tuple[AnyStep, ...], tuple[str, ...]]


def _right(case: MemoryCase) -> Iterator[Owned]:
    """Ordinary calls that must succeed and give right outputs, from the plainest on; each adds one thing."""
    yield _CONTEXT, ("IF-06", "CTX-09", "IF-09")
    if sum(isinstance(step, ContextCreate | ContextFromBinary) for step in case.steps) > 1:
        yield (*_CONTEXT, ContextCreate("c1")), ("CTX-09",)
    if any(isinstance(step, ContextFree) for step in case.steps):
        yield (*_CONTEXT, ContextFree("c0")), ("CTX-01", "CTX-08")
    for prepare in _graphs(case):
        yield (*_CONTEXT, prepare), ("PRE-10", "PRE-11", "IF-09")
        yield (*_CONTEXT, prepare, _executed(prepare)), ("EXE-21",)
    for prepare in _hinted(case):
        yield (*_CONTEXT, prepare, _executed(prepare)), ("PRE-11", "QMG-03", "QMG-08")
    yield from _right_memory(case)
    yield from _right_binaries(case)
    bindings = (binding for step in case.steps if isinstance(step, Execute) for binding in step.bindings)
    if any(binding.kind == "handle" for binding in bindings):
        for prepare in _graphs(case):
            yield _with_handles(prepare), ("EXE-01",)
        for prepare in _hinted(case):
            yield _with_handles(prepare), ("QMG-04",)
    yield from _right_structs(case)
    yield from _right_after_refusals(case)


def _right_memory(case: MemoryCase) -> Iterator[Owned]:
    """Memory by itself, registrations, and what they leave alone."""
    registers = any(isinstance(step, Register | Lived) for step in case.steps)
    if registers or any(isinstance(step, Alloc) for step in case.steps):
        shared = (Alloc("b0", 4096), Write("b0", 4096), Read("b0"), Read("b0", "fd"))
        yield shared, ("RPC-02", "RPC-10")
        two = (Alloc("b0", 4096), Alloc("b1", 4096), ToFd("b0"), ToFd("b1"))
        yield two, ("RPC-09",)
        yield (Alloc("b0", 4096), ToFd("b0"), ToFd("b0")), ("RPC-06",)
    several = any(
        isinstance(step, Lived) or (isinstance(step, Register) and len(step.descriptors) > 1)
        for step in case.steps
    )
    has_shared = _has_shared(case)
    plain = dict.fromkeys(_plain_descriptors(case)) or dict.fromkeys((_PLAIN,) if registers else ())
    for one in plain:
        size, other = _size(one), msgspec.structs.replace(one, buffer="b1")
        registered = _registered(one)
        second = (Alloc("b1", size), Register("c0", (other,), ("h1",)))
        yield registered, _REGISTERED
        if has_shared:
            exact = nbytes(one.shape, one.dtype)
            within = msgspec.structs.replace(one, mem_type=CUSTOM)
            behind = msgspec.structs.replace(within, buffer="b1", offset=exact)
            both = (Register("c0", (within,), ("h0",)), Register("c0", (behind,), ("h1",)))
            yield (*_CONTEXT, Alloc("b0", exact), Alloc("b1", exact), *both), ("SHB-04",)
        yield (*registered, Deregister(("h0",))), ("DRG-01",)
        yield (*registered, *second, Deregister(("h0",)), Deregister(("h1",))), ("DRG-11",)
        if size <= _MOST_READ:
            kept = (Alloc("b0", size), Fill("b0"), Read("b0"), Register("c0", (one,), ("h0",)), Read("b0"))
            yield (*_CONTEXT, *kept), ("REG-20",)
            yield (*registered, Fill("b0"), Deregister(("h0",)), Read("b0")), ("DRG-09",)
        yield (*registered, Deregister(("h0",)), Register("c0", (one,), ("h1",))), ("REG-24",)
        if several:
            batch = Register("c0", (one, other), ("h0", "h1"))
            yield (*_CONTEXT, Alloc("b0", size), Alloc("b1", size), batch), ("REG-02",)


def _right_binaries(case: MemoryCase) -> Iterator[Owned]:
    """Graphs out of a binary, in contexts that are and are not deferred; memory registered with them."""
    loads = [step for step in case.steps if isinstance(step, ContextFromBinary)]
    if not loads:
        return
    registers = any(isinstance(step, Register) and step.context != "c0" for step in case.steps)
    for prepare in _graphs(case, with_weights=True):
        if prepare.weights is not None:
            yield (*_CONTEXT, prepare, _executed(prepare)), ("EXE-21",)
        saved = (*_CONTEXT, prepare, GetBinary("c0", "f0"))
        executed = (Retrieve("g1", "c1", "g0"), _executed(prepare, "g1"))
        yield (*saved, ContextFromBinary("c1", "f0"), *executed), ("OFF-03",)
        if registers:
            one = Descriptor("b0", prepare.shape, prepare.dtype)
            memory = (Alloc("b0", _size(one)), Register("c1", (one,), ("h0",)))
            yield (*saved, ContextFromBinary("c1", "f0"), *memory), ("REG-17",)
        if any(step.defer for step in loads):
            deferred = (*saved, ContextFromBinary("c1", "f0", defer=True))
            yield (*deferred, Retrieve("g1", "c1", "g0")), ("EXT-01",)
            yield from _right_properties(case, deferred)
            yield (*deferred, ContextFinalize("c1")), ("CAP-06",)
            yield (*deferred, ContextFinalize("c1"), *executed), ("EXT-20",)


def _right_after_refusals(case: MemoryCase) -> Iterator[Owned]:
    """Memory that was in a call that was refused for another descriptor, registered by itself."""
    if any(isinstance(step, Register) and len(step.descriptors) > 1 for step in case.steps):
        batch = Register("c0", (_PLAIN, _WRONG), ("h0", "h1"))
        buffers = (Alloc("b0", 4096), Alloc("b1", 4096))
        yield (*_CONTEXT, *buffers, batch, Register("c0", (_PLAIN,), ("h2",))), ("REG-08",)


def _right_properties(case: MemoryCase, deferred: tuple[AnyStep, ...]) -> Iterator[Owned]:
    """What the case asks of its contexts, each property by itself; ``deferred``: makes a deferred context."""
    asked = (option for step in case.steps if isinstance(step, ContextProperty) for option in step.options)
    for option in dict.fromkeys(asked):
        yield (*deferred, ContextProperty("c1", (option,))), ("EXT-03",)


def _kept(step: AnyStep) -> AnyStep:
    """The step; the structs of a registration stay, unless it is about their end (REG-18)."""
    if isinstance(step, Register) and not step.scribble:
        return msgspec.structs.replace(step, keep=True)
    return step


def _scribbled(steps: tuple[AnyStep, ...]) -> tuple[AnyStep, ...]:
    """The steps, with the structs of each registration overwritten after it."""
    return tuple(
        msgspec.structs.replace(step, scribble=True) if isinstance(step, Register) else step for step in steps
    )


def _right_structs(case: MemoryCase) -> Iterator[Owned]:
    """What went right with structs that stay, once more with structs that are gone."""
    registers = any(isinstance(step, Register | Lived) for step in case.steps)
    for one in dict.fromkeys(_plain_descriptors(case)) or dict.fromkeys((_PLAIN,) if registers else ()):
        kinds = (one, msgspec.structs.replace(one, mem_type=CUSTOM)) if _has_shared(case) else (one,)
        for each in kinds:
            yield _scribbled((*_registered(each), Deregister(("h0",)))), ("REG-18",)
    if any(isinstance(step, Execute) for step in case.steps) and registers:
        for prepare in _graphs(case):
            yield _scribbled(_with_handles(prepare)), ("REG-18",)


def _with_handles(prepare: Prepare) -> tuple[AnyStep, ...]:
    """A graph executed with memory registered for each of its tensors.

    Nobody has written to it: whose fault wrong contents are is not told from one execute (EXE-01, ION-03,
    ION-05, SHB-08), that the call fails is.
    """
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
    return (*_CONTEXT, prepare, _executed(prepare), *buffers, *registered, *end)


def _executed(prepare: Prepare, graph: str = "g0") -> Execute:
    """The graph executed with raw memory; ``graph``: its name."""
    return Execute(graph, (Binding(),) * (io_inputs(prepare) + 1))


def _ordinary(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Steps, and who owns a death of which no call is known."""
    yield _CONTEXT, "CTX-09"
    if any(isinstance(step, ContextFree) for step in case.steps):
        yield (*_CONTEXT, ContextFree("c0")), "CTX-01"
    executed = any(isinstance(step, Execute) for step in case.steps)
    for prepare in _graphs(case):
        yield (*_CONTEXT, prepare), "PRE-11"
        if executed:
            yield (*_CONTEXT, prepare, _executed(prepare)), "EXE-21"
    if any(isinstance(step, GetSection | ApplySection) for step in case.steps):
        yield from _sections(case)
    deregistered = any(isinstance(step, Deregister) for step in case.steps)
    for one in dict.fromkeys(_plain_descriptors(case)):
        registered = _registered(one)
        yield registered, "REG-01"
        if deregistered:
            yield (*registered, Deregister(("h0",))), "DRG-01"


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
    """The facts without the operator of the control's graph, if others are left."""
    used = {(step.op, step.dtype) for step in case.steps if isinstance(step, Prepare)}
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
        )
        for step in case.steps
        if isinstance(step, Prepare) and step.finalise
    )
    yield from dict.fromkeys(plain)


def _hinted(case: MemoryCase) -> Iterator[Prepare]:
    """The graphs with memory types other than RAW, and nothing else that is special, each kind once."""
    hinted = (
        Prepare("g0", "c0", step.op, step.dtype, step.shape, step.mem_types, terms=step.terms)
        for step in case.steps
        if isinstance(step, Prepare) and step.finalise and any(step.mem_types)
    )
    yield from dict.fromkeys(hinted)


def _registered(one: Descriptor) -> tuple[AnyStep, ...]:
    """A buffer that fits, registered by itself."""
    return (*_CONTEXT, Alloc("b0", _size(one)), Register("c0", (one,), ("h0",)))


_MEMORY_KEYS = (1101, 1102, 1103, 1104)
"""Property keys of the memory API and of its types."""
_DEFERRED_KEYS = (215, 217)
"""Those of deferred initialisation and its properties."""


def _declared(case: MemoryCase) -> tuple[int, ...]:
    """The property keys of what the case makes use of."""
    registers = any(isinstance(step, Register) for step in case.steps)
    loads = any(isinstance(step, ContextFromBinary) for step in case.steps)
    return (*_MEMORY_KEYS * registers, *_DEFERRED_KEYS * loads)


_NUMBERS = range(9)
"""Of rounds: the first one warms the target up, and the owners' checks want eight."""
_BUFFERS = tuple(f"b{number}" for number in range(10))
"""As many as the check of CTX-10 wants."""


def _counted(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Rounds of ordinary calls that leave nothing behind, with their owners; each adds one thing."""
    if not any(isinstance(step, Observe) for step in case.steps):
        return
    yield _between_looks((Alloc(f"b{n}", 4096), Free(f"b{n}")) for n in _NUMBERS), "RPC-11"
    yield (Alloc("b0", 4096), *_between_looks((ToFd("b0"),) for _ in _NUMBERS)), "RPC-06"
    yield _between_looks((Alloc(f"b{n}", 4096), ToFd(f"b{n}"), Free(f"b{n}")) for n in _NUMBERS), "RPC-11"
    if not any(isinstance(step, Register | Lived) for step in case.steps):
        return
    yield (*_CONTEXT, *_between_looks(map(_given_back, _NUMBERS))), "DRG-10"
    batch = Register("c0", (_PLAIN, _WRONG), ("h0", "h1"))
    buffers = (Alloc("b0", 4096), Alloc("b1", 4096))
    yield (*_CONTEXT, *buffers, *_between_looks((batch,) for _ in _NUMBERS)), "REG-28"
    again = Register("c0", (_PLAIN,), ("h1",))
    yield (*_registered(_PLAIN), *_between_looks((again,) for _ in _NUMBERS)), "REG-28"
    yield (Alloc("b0", 4096), *_between_looks(_left(n, "b0") for n in _NUMBERS)), "CTX-01"
    several = (step for number, buffer in enumerate(_BUFFERS) for step in _left(number, buffer))
    look = Observe(buffers=_BUFFERS)
    last = Observe(buffers=_BUFFERS, patient=True)
    yield (*(Alloc(buffer, 4096) for buffer in _BUFFERS), look, *several, last), "CTX-10"


def _between_looks(rounds: Iterable[tuple[AnyStep, ...]]) -> tuple[AnyStep, ...]:
    """The first round, then the others between two looks."""
    first, *others = rounds
    return (*first, Observe(), *(step for each in others for step in each), Observe(patient=True))


def _given_back(number: int) -> tuple[AnyStep, ...]:
    """Memory that is registered, deregistered and freed."""
    buffer, handle = f"b{number}", f"h{number}"
    one = msgspec.structs.replace(_PLAIN, buffer=buffer)
    return (Alloc(buffer, 4096), Register("c0", (one,), (handle,)), Deregister((handle,)), Free(buffer))


def _left(number: int, buffer: str) -> tuple[AnyStep, ...]:
    """A context that is freed over its registration of the buffer."""
    context, one = f"c{number}", msgspec.structs.replace(_PLAIN, buffer=buffer)
    return (ContextCreate(context), Register(context, (one,), (f"h{number}",)), ContextFree(context))


def _has_shared(case: MemoryCase) -> bool:
    """Memory is registered as a shared buffer of the HTP."""
    registered = (step for step in case.steps if isinstance(step, Register))
    return any(each.mem_type == CUSTOM for step in registered for each in step.descriptors)


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
