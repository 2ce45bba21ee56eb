"""Controls of memory and of registrations, by themselves and beside others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytest_qnn.qnn.cases.case import (
    INT_MAX,
    NULL,
    Alloc,
    AnyStep,
    Binding,
    Churn,
    ContextCreate,
    Deregister,
    Descriptor,
    Execute,
    FailedAllocation,
    Fill,
    Free,
    Lived,
    MemoryCase,
    Parallel,
    Prepare,
    Read,
    Register,
    ToFd,
    Write,
)
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.cases.memory import CUSTOM, ION
from pytest_qnn.qnn.cases.sizes import PAGE, io_inputs, nbytes, pages
from pytest_qnn.qnn.controls.handles import MOST_READ, Owned, is_odd

_CONTEXT = (ContextCreate("c0"),)
_REGISTERED = ("REG-01", "REG-17", "REG-27", "IF-09", "CAP-03")
"""Owners of a registration that fails: those after the first are about what each one shows."""
_SEVERAL_PAGES = 3 * 4096 + 37
ENDED = ("REG-21",)
LEFT_ALONE = ("DRG-09",)
"""The owner of what the end of a registration does to the client's memory and descriptor."""
UNSUPPORTED = ("CAP-02",)
"""The owner of every memory call where key 1101 says that there is none."""
PLAIN = Descriptor("b0", (1, 2, 2, 2))
WRONG = Descriptor("b1", (1, 2, 2, 2), fd="minus-one")


def right_memory(case: MemoryCase) -> Iterator[Owned]:
    """Memory by itself, registrations, and what they leave alone."""
    if any(isinstance(step, Register | Deregister) for step in case.steps):
        yield (*registration(PLAIN), Deregister((NULL,))), UNSUPPORTED
    if _registers(case) or any(isinstance(step, Alloc) for step in case.steps):
        shared = (Alloc("b0", 4096), Write("b0", 4096), Read("b0"), Read("b0", "fd"))
        yield shared, ("RPC-02", "RPC-10")
        yield (Alloc("b0", _SEVERAL_PAGES), Write("b0", _SEVERAL_PAGES), Read("b0")), ("RPC-02",)
        two = (Alloc("b0", 4096), Alloc("b1", 4096), ToFd("b0"), ToFd("b1"))
        yield two, ("RPC-09",)
        yield (Alloc("b0", 4096), ToFd("b0"), ToFd("b0")), ("RPC-06",)
    lived = any(isinstance(step, Lived) for step in case.steps)
    batches = [step.descriptors for step in case.steps if isinstance(step, Register)]
    descriptors = [each for batch in batches for each in batch]
    places = [(each.buffer, each.offset) for each in descriptors]
    most = max((len(step.handles) for step in case.steps if isinstance(step, Deregister)), default=0)
    for one in _registrable(case):
        yield from _right_registration(one)
        if _has_shared(case):
            yield from _right_registration(msgspec.structs.replace(one, mem_type=CUSTOM))
            yield _to_the_end(one), ("SHB-04",)
        if lived or any(len(batch) > 1 for batch in batches):
            yield from _right_batch(one)
        if lived or len(places) > len(set(places)):
            again = Register("c0", (one,), ("h1",))
            yield (*registration(one), again, Deregister(("h0",))), ENDED
        if lived or any(isinstance(step, Free) for step in case.steps):
            yield _numbered_again(one), ("REG-26",)
        if most > 1:
            yield _all_again(one, most), ("REG-24",)


def _right_registration(one: Descriptor) -> Iterator[Owned]:
    """A registration by itself: that it succeeds, what it leaves alone, and that it ends."""
    size, registered = _size(one), registration(one)
    second = (Alloc("b1", size), Register("c0", (msgspec.structs.replace(one, buffer="b1"),), ("h1",)))
    # A tensor that ends with its shared buffer is SHB-04's.
    exact = size if one.mem_type == CUSTOM else nbytes(one.shape, one.dtype)
    yield (*_CONTEXT, Alloc("b0", exact), Register("c0", (one,), ("h0",))), _REGISTERED
    yield registered, ("REG-16",)
    yield (*registered, Deregister(("h0",))), ("DRG-01",)
    yield (*registered, *second, Deregister(("h0",)), Deregister(("h1",))), ("DRG-11",)
    if size <= MOST_READ:
        kept = (Alloc("b0", size), Fill("b0"), Read("b0"), Register("c0", (one,), ("h0",)), Read("b0"))
        yield (*_CONTEXT, *kept), ("REG-20",)
        left = (Fill("b0"), Deregister(("h0",)), Read("b0", "fd"), Read("b0"))
        yield (*registered, *left), LEFT_ALONE
    yield (*registered, Deregister(("h0",)), Register("c0", (one,), ("h1",))), ("REG-24",)


def _to_the_end(one: Descriptor) -> tuple[AnyStep, ...]:
    """A tensor that ends with its shared buffer, and one that begins there."""
    exact = nbytes(one.shape, one.dtype)
    within = msgspec.structs.replace(one, mem_type=CUSTOM)
    behind = msgspec.structs.replace(within, buffer="b1", offset=exact)
    both = (Register("c0", (within,), ("h0",)), Register("c0", (behind,), ("h1",)))
    return (*_CONTEXT, Alloc("b0", exact), Alloc("b1", exact), *both)


def _right_batch(one: Descriptor) -> Iterator[Owned]:
    """Registrations in one call; and in one of which one is bad, last, first or between, so that none is."""
    other = msgspec.structs.replace(one, buffer="b1")
    bad = msgspec.structs.replace(other, fd="minus-one")
    begin = (*_CONTEXT, Alloc("b0", _size(one)), Alloc("b1", _size(one)))
    again = (Deregister(("h0",)), Register("c0", (one,), ("h2",)))
    yield (*begin, Register("c0", (one, other), ("h0", "h1")), *again), ("REG-02",)
    yield (*begin, Register("c0", (bad,), ("h1",))), ("REG-13",)
    yield (*begin, Register("c0", (one, bad), ("h0", "h1")), Register("c0", (one,), ("h2",))), ("REG-08",)
    yield (*begin, Register("c0", (bad, one), ("h1", "h0")), Register("c0", (one,), ("h2",))), ("REG-08",)
    third = msgspec.structs.replace(one, buffer="b2")
    between = (Alloc("b2", _size(one)), Register("c0", (one, bad, third), ("h0", "h1", "h3")))
    for each in (one, third):
        yield (*begin, *between, Register("c0", (each,), ("h2",))), ("REG-08",)


def refused_calls(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Where a case has memory calls that are to be refused: such a call, and one in order behind it."""
    alive, registers, ends = Alive(), False, False
    for step in case.steps:
        registers |= isinstance(step, Register) and _is_refused(step, alive)
        ends |= isinstance(step, Deregister) and _is_wrong(step, alive)
        if isinstance(step, Lived | Churn) and step.what == "refused":
            registers = True
            ends |= isinstance(step, Lived)
        if isinstance(step, Parallel) and step.mem_type:
            registers |= any("refused" in calls for calls in step.calls)
        alive.follow(step)
    begin = (*_CONTEXT, Alloc("b0", _size(PLAIN)))
    good = Register("c0", (PLAIN,), ("h0",))
    if registers:
        refused = Register("c0", (WRONG,), ("h1",))
        yield (*begin, Alloc("b1", _size(PLAIN)), refused, good, Deregister(("h0",))), "REG-13"
    if ends:
        yield (*begin, good, Deregister((NULL,)), Deregister(("h0",))), "DRG-03"


def _is_refused(step: Register, alive: Alive) -> bool:
    """Whether a registration is to be refused, as far as that can be told from what lives."""
    is_wrong = step.context not in alive.contexts or step.null_descriptors or step.null_handles
    taken = {
        (known.descriptor.buffer, known.descriptor.offset)
        for known in alive.handles.values()
        if known.context == step.context
    }
    spots = [(each.buffer, each.offset) for each in step.descriptors]
    return (
        is_wrong
        or step.count is not None
        or not taken.isdisjoint(spots)
        or len(spots) > len(set(spots))
        or any(not _fits(each, alive) for each in step.descriptors)
    )


def _fits(one: Descriptor, alive: Alive) -> bool:
    size = alive.size_of(one.buffer)
    is_plain = not (is_odd(one) or one.shape_config or one.data_type is not None) and 0 not in one.shape
    return is_plain and size is not None and 0 <= one.offset <= size - nbytes(one.shape, one.dtype)


def _is_wrong(step: Deregister, alive: Alive) -> bool:
    """Whether a handle that is to end is none, or ends twice."""
    given = step.handles
    is_odd_call = step.null_handles or step.count is not None or len(given) > len(set(given))
    return is_odd_call or any(handle not in alive.handles for handle in given)


def _numbered_again(one: Descriptor) -> tuple[AnyStep, ...]:
    """A larger buffer is registered with the descriptor number of one that is gone."""
    size = _size(one)
    begun = (*_CONTEXT, Alloc("b0", size), ToFd("b0"), Register("c0", (one,), ("h0",)))
    larger = (Alloc("b1", 2 * size), ToFd("b1"))
    again = Register("c0", (msgspec.structs.replace(one, buffer="b1"),), ("h1",))
    return (*begun, Deregister(("h0",)), Free("b0"), *larger, again)


def _all_again(one: Descriptor, count: int) -> tuple[AnyStep, ...]:
    """So many registrations, by themselves, that end in one call, and all of them again."""
    size, numbers = _size(one), range(count)
    buffers = (Alloc(f"b{number}", size) for number in numbers)
    registers = [
        Register("c0", (msgspec.structs.replace(one, buffer=f"b{number}"),), (f"h{number}",))
        for number in numbers
    ]
    ended = Deregister(tuple(f"h{number}" for number in numbers))
    again = (msgspec.structs.replace(each, handles=(f"h{count + at}",)) for at, each in enumerate(registers))
    return (*_CONTEXT, *buffers, *registers, ended, *again)


def kept(step: AnyStep) -> AnyStep:
    """The step; the structs of a registration stay, unless it is about their end (REG-18)."""
    if isinstance(step, Register) and not step.scribble:
        return msgspec.structs.replace(step, keep=True)
    return step


def _scribbled(steps: tuple[AnyStep, ...]) -> tuple[AnyStep, ...]:
    """The steps, with the structs of each registration overwritten after it."""
    return tuple(
        msgspec.structs.replace(step, scribble=True) if isinstance(step, Register) else step for step in steps
    )


def right_structs(case: MemoryCase, graphs: Iterable[Prepare]) -> Iterator[Owned]:
    """What went right with structs that stay, once more with structs that are gone.

    ``graphs``: of the case, plain, of the name ``g0`` in the context ``c0``.
    """
    for one in _registrable(case):
        kinds = (one, msgspec.structs.replace(one, mem_type=CUSTOM)) if _has_shared(case) else (one,)
        for each in kinds:
            yield _scribbled((*registration(each), Deregister(("h0",)))), ("REG-18",)
    if any(isinstance(step, Execute) for step in case.steps) and _registers(case):
        for prepare in graphs:
            yield _scribbled(with_handles(prepare)), ("REG-18",)


def with_handles(prepare: Prepare) -> tuple[AnyStep, ...]:
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


def registration(one: Descriptor) -> tuple[AnyStep, ...]:
    """A buffer that fits, registered by itself."""
    return (*_CONTEXT, Alloc("b0", _size(one)), Register("c0", (one,), ("h0",)))


def at_offset(offset: int) -> tuple[AnyStep, ...]:
    """A tensor that begins there in a shared buffer, which ends a page behind that."""
    one = msgspec.structs.replace(PLAIN, mem_type=CUSTOM, offset=offset)
    return (*_CONTEXT, Alloc("b0", offset + PAGE), Register("c0", (one,), ("h0",)))


def _registers(case: MemoryCase) -> bool:
    """Whether anything registers memory: threads and calls that are refused their requests do, too."""
    return any(
        isinstance(step, Register | Lived)
        or (isinstance(step, Churn) and step.what != "unread")
        or (isinstance(step, Parallel | FailedAllocation) and step.mem_type != 0)
        for step in case.steps
    )


def _registrable(case: MemoryCase) -> list[Descriptor]:
    """What is registered by itself: as ION memory of the case, or the plainest where it has none such."""
    return list(dict.fromkeys(plain_descriptors(case))) or [PLAIN] * _registers(case)


def _has_shared(case: MemoryCase) -> bool:
    """Memory is registered as a shared buffer of the HTP."""
    registered = (each for step in case.steps if isinstance(step, Register) for each in step.descriptors)
    churned = (step for step in case.steps if isinstance(step, Churn))
    return any(each.mem_type == CUSTOM for each in registered) or any(
        step.mem_type == CUSTOM or step.tensors > 1 for step in churned
    )


def _size(one: Descriptor) -> int:
    return pages(nbytes(one.shape, one.dtype))


def plain_descriptors(case: MemoryCase) -> Iterator[Descriptor]:
    """Of the case's ION descriptors type and shape, in a buffer of their own that rpcmem can make."""
    return (
        Descriptor("b0", each.shape, each.dtype)
        for step in case.steps
        if isinstance(step, Register)
        for each in step.descriptors
        if each.mem_type == ION and 0 < nbytes(each.shape, each.dtype) <= INT_MAX
    )
