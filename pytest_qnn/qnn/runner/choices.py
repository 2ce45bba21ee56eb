"""Where the QNN documents are silent: each point as a case whose last step answers a question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pytest_qnn.qnn.abi.codes import HtpContextOption, HtpMemType, MemType, Property, low
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    Alloc,
    AllocNeeded,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Deregister,
    Descriptor,
    Environment,
    Execute,
    FdKind,
    Fill,
    Free,
    FreeParent,
    GetBinary,
    MemoryCase,
    Prepare,
    Read,
    Register,
)
from pytest_qnn.qnn.cases.sizes import PAGE, arity, nbytes
from pytest_qnn.qnn.facts import Choice, MemoryFacts, memory_types
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.strategies.scene import SHAPES
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen


class Point(NamedTuple):
    """A question that the code of the last step answers; every step before it is in order."""

    name: str
    question: str
    steps: tuple[AnyStep, ...]


_UNKNOWN_TYPE = 99
_START = (ContextCreate("c"), Alloc("b", PAGE))
_ION = Descriptor("b", (8,))
_ONE = Register("c", (_ION,), ("h",))
_ROOM = 16 * PAGE


def _typed(steps: tuple[AnyStep, ...], kind: int) -> tuple[AnyStep, ...]:
    """The steps with ION memory replaced by another type."""
    if kind == MemType.ION:
        return steps
    return tuple(_with_type(step, kind) for step in steps)


def _with_type(step: AnyStep, kind: int) -> AnyStep:
    if not isinstance(step, Register):
        return step
    wanted = tuple(
        Descriptor(each.buffer, each.shape, each.dtype, kind, each.fd)
        if each.mem_type == MemType.ION
        else each
        for each in step.descriptors
    )
    return Register(step.context, wanted, step.handles, step.null_descriptors, step.null_handles, step.count)


def ordinary(kind: int) -> Point:
    """A registration that is in order, which the other points with registrations depend on."""
    return Point("register", "An ordinary buffer is registered", _typed((*_START, _ONE), kind))


def points(facts: MemoryFacts, kind: int) -> Iterator[Point]:
    """Every point that a target with these facts can be asked about, with memory of this type."""
    types = memory_types(facts)
    yield _fresh()
    for point in (*_arguments(), *_identities(), *_lifetimes()):
        yield point._replace(steps=_typed(point.steps, kind))
    if MemType.CUSTOM in types:
        yield from _shared(MemType.ION in types)
    if facts.operators:
        for point in _graphs(facts):
            yield point._replace(steps=_typed(point.steps, kind))
        if facts.supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT) and MemType.CUSTOM in types:
            yield from _external(facts)


def _arguments() -> Iterator[Point]:
    """How much is looked at, and in which order."""
    yield Point(
        "count-zero-register",
        "memRegister of no descriptors",
        (*_START, Register("c", (_ION,), ("h",), count=0)),
    )
    yield Point(
        "count-zero-deregister", "memDeRegister of no handles", (*_START, _ONE, Deregister(("h",), count=0))
    )
    yield Point(
        "context-or-array",
        "An unknown context and a NULL descriptor array: which is reported",
        (_START[1], Register(BOGUS, (_ION,), ("h",), null_descriptors=True)),
    )
    strange = Descriptor("b", (8,), mem_type=_UNKNOWN_TYPE)
    yield Point(
        "context-or-descriptor",
        "An unknown context and an unknown memory type: which is reported",
        (_START[1], Register(BOGUS, (strange,), ("h",))),
    )
    yield Point(
        "type-or-fd",
        "An unknown memory type and file descriptor -1: which is reported",
        (*_START, Register("c", (Descriptor("b", (8,), mem_type=_UNKNOWN_TYPE, fd="minus-one"),), ("h",))),
    )
    small = Register("c", (Descriptor("b", (PAGE + 1,)),), ("h",))
    yield Point("small-buffer", "A buffer smaller than its tensor", (*_START, small))
    read_only = Register("c", (Descriptor("b", (8,), fd="readonly"),), ("h",))
    yield Point("read-only-fd", "A descriptor that is open for reading only", (*_START, read_only))


def _fresh() -> Point:
    """Catalogue, RPC-12: what rpcmem gives where something was before."""
    used = (Alloc("a", _ROOM), Fill("a"), Free("a"), Alloc("b", _ROOM), Read("b"))
    return Point("fresh-memory", "New memory, after memory of that size was filled and freed", used)


def _identities() -> Iterator[Point]:
    """What is registered already."""
    again = Register("c", (Descriptor("b", (2, 3)),), ("again",))
    yield Point(
        "other-shape",
        "Registered memory again in the same context, with another shape",
        (*_START, _ONE, again),
    )
    other = Register("c", (Descriptor("b", (8,), "FLOAT_32"),), ("again",))
    yield Point("other-data-type", "Registered memory again, with another data type", (*_START, _ONE, other))
    duplicate = Register("c", (Descriptor("b", (8,), fd="dup"),), ("again",))
    yield Point(
        "other-number",
        "Registered memory again, by a duplicate of its descriptor",
        (*_START, _ONE, duplicate),
    )


def _lifetimes() -> Iterator[Point]:
    """Clients that give things back in another order."""
    gone = (*_START, _ONE, ContextFree("c"), Deregister(("h",)))
    yield Point("deregister-after-context", "Deregistering a handle whose context was freed", gone)
    freed = (*_START, _ONE, Free("b"), Deregister(("h",)))
    yield Point("deregister-after-free", "Deregistering a handle whose buffer was freed", freed)
    reused = (*_START, _ONE, Free("b"), Alloc("b1", PAGE), Register("c", (Descriptor("b1", (8,)),), ("h1",)))
    yield Point(
        "number-used-again", "A new buffer under the descriptor number of a freed, registered one", reused
    )
    device, backend = (_START[0], FreeParent("device")), (_START[0], FreeParent("backend"))
    yield Point("device-freed-first", "Freeing the device under a context", device)
    yield Point("backend-freed-first", "Freeing the backend under a context", backend)


def _shared(ion: bool) -> Iterator[Point]:
    """Several tensors in one buffer (QNN_HTP_MEM_SHARED_BUFFER)."""

    def shared(shape: tuple[int, ...], offset: int = 0) -> Descriptor:
        return Descriptor("b", shape, mem_type=MemType.CUSTOM, offset=offset)

    one = (*_START, Register("c", (shared((8,)),), ("h",)))
    past = Register("c", (shared((8,), PAGE - 7),), ("h",))
    yield Point("past-end", "A tensor that ends behind its shared buffer", (*_START, past))
    same = Register("c", (shared((2, 3)),), ("again",))
    yield Point("shared-other-shape", "The same offset again, with another shape", (*one, same))
    overlap = Register("c", (shared((8,), 4),), ("again",))
    yield Point("shared-overlap", "A tensor that overlaps a registered one", (*one, overlap))
    odd = Register("c", (shared((8,), 3),), ("h",))
    yield Point("shared-odd-offset", "An offset of 3", (*_START, odd))
    if ion:
        both = Register("c", (shared((8,), 64),), ("again",))
        yield Point(
            "two-memory-types", "A buffer registered as ION, then as shared buffer", (*_START, _ONE, both)
        )


def _graphs(facts: MemoryFacts) -> Iterator[Point]:
    """What handles and hints are good for at preparation and execution."""
    op, dtype = facts.operators[0]
    made = Prepare("g", "c", op, dtype, SHAPES[0])  # type: ignore[arg-type]  # data of the same words
    inputs = arity(made.op)
    raw = (Binding(),) * (inputs + 1)
    by_handle = (*raw[:-1], Binding("handle", "h"))

    def handle(shape: tuple[int, ...]) -> tuple[AnyStep, ...]:
        return (*_START, made, Register("c", (Descriptor("b", shape, made.dtype),), ("h",)))

    yield Point(
        "short-handle",
        "Executing with a handle smaller than the tensor",
        (*handle((4,)), Execute("g", by_handle)),
    )
    yield Point(
        "long-handle",
        "Executing with a handle of another, larger shape",
        (*handle((16,)), Execute("g", by_handle)),
    )
    size = nbytes(made.shape, made.dtype)
    typed = Descriptor("b", (size,), "UFIXED_POINT_8")
    if made.dtype == "UFIXED_POINT_8":
        typed = Descriptor("b", (size // 4,), "FLOAT_32")
    yield Point(
        "other-typed-handle",
        "Executing with a handle of another data type, of as many bytes",
        (*_START, made, Register("c", (typed,), ("h",)), Execute("g", by_handle)),
    )
    both = (Binding("handle", "h"), *raw[1:-1], Binding("handle", "h"))
    yield Point(
        "in-place", "Executing with one handle as input and output", (*handle(SHAPES[0]), Execute("g", both))
    )
    freed = (*handle(SHAPES[0]), Free("b"), Execute("g", by_handle))
    yield Point("execute-after-free", "Executing with a handle whose buffer was freed", freed)
    hinted = Prepare("g", "c", made.op, made.dtype, SHAPES[0], (1,) * (inputs + 1))
    yield Point(
        "hinted-raw",
        "Executing a graph raw that was prepared for handles",
        (ContextCreate("c"), hinted, Execute("g", raw)),
    )
    native = Prepare("g", "c", made.op, made.dtype, SHAPES[0], relay=True, relay_mem_type=1)
    yield Point(
        "native-handle", "Preparing a NATIVE tensor of memory type MEMHANDLE", (ContextCreate("c"), native)
    )
    bound = (ContextCreate("c"), made, Environment("g"))
    yield Point("environment", "An execution environment that binds memory handles", bound)
    if facts.supports(Property.CONTEXT_SUPPORT_CACHING):
        flipped = ContextFromBinary("d", "s", damage="flipped")
        yield Point(
            "flipped-bit",
            "A context from a binary with one bit flipped",
            (ContextCreate("c"), made, GetBinary("c", "s"), flipped),
        )


def _external(facts: MemoryFacts) -> Iterator[Point]:
    """Weights of a deferred context in the client's memory."""
    pairs = [(op, dtype) for op, dtype in facts.operators if op not in ("Relu", "Reshape")]
    if not pairs:
        return
    op, dtype = pairs[0]
    weighty = Prepare("g", "c", op, dtype, SHAPES[0], weights=1)  # type: ignore[arg-type]  # as above
    option = int(HtpContextOption.WEIGHTS_BUFFER_SIZE)
    begun: tuple[AnyStep, ...] = (
        ContextCreate("c"), weighty, GetBinary("c", "s"),
        ContextFromBinary("d", "s", defer=True), ContextProperty("d", (option,)),
    )  # fmt: skip

    def given(name: str, *, less: int = 0, offset: int = 0, fd: FdKind = "buffer") -> tuple[AnyStep, ...]:
        kind = int(HtpMemType.WEIGHTS_BUFFER)
        wanted = Descriptor(name, (1,), mem_type=MemType.CUSTOM, fd=fd, htp_type=kind, offset=offset)
        return (AllocNeeded(name, "d", option, extra=PAGE - less), Register("d", (wanted,), (f"h{name}",)))

    whole = given("w")
    done = ContextFinalize("d")
    yield Point("weights-again", "A second weights buffer for one context", (*begun, *whole, *given("v")))
    yield Point(
        "weights-too-small",
        "A weights buffer smaller than the property says",
        (*begun, *given("w", less=PAGE + 1)),
    )
    yield Point(
        "weights-size-at-offset",
        "A weights buffer at an offset, with the size of the whole buffer (refused: it counts from there)",
        (*begun, *given("w", offset=PAGE)),
    )
    yield Point("weights-unaligned", "A weights buffer at an offset of 1", (*begun, *given("w", offset=1)))
    yield Point(
        "weights-of-pipe", "The descriptor of a pipe as weights buffer", (*begun, *given("w", fd="pipe"))
    )
    yield Point("weights-late", "A weights buffer after contextFinalize", (*begun, done, *whole))
    fixed = (*begun, *whole, done, Deregister(("hw",)))
    yield Point("weights-deregistered", "Deregistering the weights buffer after contextFinalize", fixed)
    yield Point("finalised-again", "contextFinalize a second time", (*begun, done, done))


def choices(facts: MemoryFacts, run: Callable[[MemoryCase], MemoryTrace]) -> tuple[Choice, ...]:
    """Put every question to the target, each as a case of its own; none after one that it hangs in.

    Without a session only what needs no context is asked about; where an ordinary buffer cannot be
    registered, nothing that needs a registration.
    """
    if facts.deaths:
        return ()
    kind = memory_types(facts)[0]
    asked = tuple(points(facts, kind))
    found: list[Choice] = []
    if facts.session_failure:
        asked = _without(ContextCreate, asked)
    else:
        first = ordinary(kind)
        registered = _choice(first, run(MemoryCase(first.steps)))
        if registered.code != 0:
            found.append(registered)
            asked = _without(Register, asked)
    for point in asked:
        trace = run(MemoryCase(point.steps))
        found.append(_choice(point, trace))
        if trace.death is not None and trace.death.kind == "hang":
            break
    return tuple(found)


def _without(kind: type[AnyStep], points: tuple[Point, ...]) -> tuple[Point, ...]:
    return tuple(point for point in points if not any(isinstance(step, kind) for step in point.steps))


def _choice(point: Point, trace: MemoryTrace) -> Choice:
    if trace.death is not None:
        return Choice(point.name, point.question, trace.death.text)
    *before, last = trace.steps
    for step, seen in zip(point.steps, before, strict=False):
        if seen.skipped or seen.code:
            call = step.__struct_config__.tag
            return Choice(point.name, point.question, f"not asked: {call}: {seen.skipped or _said(seen)}")
    if isinstance(point.steps[-1], Read) and last.data:
        return Choice(point.name, point.question, _contents(last.data[0]))
    if last.skipped or last.code is None:
        return Choice(point.name, point.question, f"not asked: {last.skipped or 'no call'}")
    answer = _said(last)
    if isinstance(point.steps[-1], Register) and last.code == 0:
        given = {
            value for step, seen in _registered(point, trace) for value in seen.values[: len(step.handles)]
        }
        answer += ", the same handle" if given.intersection(last.values[:1]) else ", a handle of its own"
    return Choice(point.name, point.question, answer, low(last.code))


def _registered(point: Point, trace: MemoryTrace) -> Iterator[tuple[Register, StepSeen]]:
    """The registrations before the last step, with what they gave."""
    for step, seen in zip(point.steps[:-1], trace.steps, strict=False):
        if isinstance(step, Register):
            yield step, seen


def _contents(data: bytes) -> str:
    """What the client found in memory; the runner itself clears the first and the last byte."""
    return "holds other bytes than zeros" if data.strip(b"\0") else "reads as zeros"


def _said(seen: StepSeen) -> str:
    return "success" if seen.code == 0 else named(seen.code or 0)
