"""Controls of executes with registered memory, from the plainest on: each adds one thing to those before.

What a buffer holds wrongly in one of them is owned by the rule about what that one adds, and no rule whose
cases have more than that is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Lived,
    MemoryCase,
    Parallel,
    Prepare,
    Read,
    Register,
    Write,
)
from pytest_qnn.qnn.cases.memory import CUSTOM, DMA_BUF, ION
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES, io_inputs, nbytes, pages

Owned = tuple[tuple[AnyStep, ...], tuple[str, ...]]

MOST_READ = 1 << 22
"""Bytes of a buffer that is read: a trace has them."""
_OF_TYPE = {ION: ("ION-03",), CUSTOM: ("SHB-08",), DMA_BUF: ("DMA-04",)}
"""Owners of what goes wrong with memory of one type only."""


ODD_OFFSETS = ("SHB-10",)
"""Owner of refusals of offsets that are aligned for their elements only. Where one is taken, what is in
memory is judged as at any other offset."""

_ALIGNED = 64
"""Bytes: what tensors of a shared buffer lie apart, where nothing else is said."""
_MAKES_CONTEXTS = ContextCreate | ContextFromBinary | Lived


class Shown(NamedTuple):
    """What a case has that its controls have one after the other."""

    types: tuple[int, ...]
    """Qnn_MemType_t of its registrations; of one that has none, the plainest."""
    batch: bool
    """Several descriptors in one call."""
    offset: bool
    """Several tensors in one shared buffer."""
    others: bool
    """More than one context."""
    mixed: bool
    """Raw memory and handles in one execute."""
    raw: bool
    """An execute with raw memory only, beside those with handles."""
    ends: bool
    """A registration ends before the case does."""
    fails: bool
    """A registration that is not in order."""


def shown(case: MemoryCase, plainest: int) -> Shown:
    """See `Shown`. Of ordinary life (`Lived`) all is taken that it may do."""
    registers = [step for step in case.steps if isinstance(step, Register)]
    lived = [step for step in case.steps if isinstance(step, Lived)]
    descriptors = [each for step in registers for each in step.descriptors]
    kinds = [{binding.kind for binding in step.bindings} for step in case.steps if isinstance(step, Execute)]
    types = [each.mem_type for each in descriptors] + [step.mem_type for step in lived]
    return Shown(
        types=tuple(kind for kind in dict.fromkeys(types) if kind in _OF_TYPE) or (plainest,),
        batch=bool(lived) or any(len(step.descriptors) > 1 for step in registers),
        offset=any(each.mem_type == CUSTOM and each.offset for each in descriptors),
        others=sum(isinstance(step, _MAKES_CONTEXTS) for step in case.steps) > 1,
        mixed=any(len(each) > 1 for each in kinds),
        raw={"raw"} in kinds,
        ends=bool(lived)
        or any(isinstance(step, Deregister) for step in case.steps)
        or any(isinstance(step, Parallel) and step.mem_type for step in case.steps),
        fails=any(each.what == "refused" for each in lived) or any(map(is_odd, descriptors)),
    )


def is_odd(one: Descriptor) -> bool:
    """Whether it has anything but a buffer of a kind that targets take."""
    return one.fd != "buffer" or one.size is not None or bool(one.null) or one.mem_type not in _OF_TYPE


def is_at_odd_offset(case: MemoryCase) -> bool:
    """Whether a tensor is at an offset that is aligned for its elements only."""
    descriptors = (each for step in case.steps if isinstance(step, Register) for each in step.descriptors)
    return any(each.mem_type == CUSTOM and each.offset % _ALIGNED for each in descriptors)


def uses_handles(case: MemoryCase) -> bool:
    """Whether a graph is executed with registered memory."""
    bindings = (binding for step in case.steps if isinstance(step, Execute) for binding in step.bindings)
    lives = (step for step in case.steps if isinstance(step, Lived | Parallel))
    return any(binding.kind == "handle" for binding in bindings) or any(
        step.what in ("turns", "contexts", "deregister", "histories") and step.mem_type for step in lives
    )


def right_handles(case: MemoryCase, graphs: Sequence[Prepare], types: Sequence[int]) -> Iterator[Owned]:
    """Each graph with handles: contents that are right whatever the case adds to them.

    Args:
        case: in which an output was wrong, or a call failed.
        graphs: each plain, of the name ``g0`` in the context ``c0``.
        types: Qnn_MemType_t of the memory that the target takes.

    """
    # Memory of one type may be wrong by itself: what is wrong with another one, too, is of all handles.
    plainest = CUSTOM if CUSTOM in types else types[0]
    has = shown(case, plainest)
    for made in graphs:
        if nbytes(made.shape, made.dtype) > MOST_READ:
            continue
        yield _Run(made, plainest).steps(), ("EXE-01",)
        for kind in has.types:
            yield from _of_type(_Run(made, kind), kind == plainest, has)
        if has.offset:
            yield from _in_one_buffer(_Run(made, CUSTOM, layout="up"), has)
        for kind in has.types:
            yield from _of_use(_Run(made, kind), has)
        if has.offset and has.ends:
            run = _Run(made, CUSTOM, layout="up")
            ended = (Register("c0", (run.behind,), ("hs",)), Deregister(("hs",)))
            yield run._replace(before=ended).steps(), ("SHB-13",)


def _of_type(run: _Run, is_plainest: bool, has: Shown) -> Iterator[Owned]:
    """Buffers of their own, of one type of memory."""
    ion = run.kind == ION
    if not is_plainest:
        yield run.steps(), _OF_TYPE[run.kind]
    # No rule about inputs or outputs owns bytes that are no tensor's.
    yield run._replace(looks=True).steps(), ("EXE-10", *(("SHB-08",) if run.kind == CUSTOM else ()))
    yield run._replace(late=True).steps(), ("EXE-19", *(("ION-04",) if ion else ()))
    yield run._replace(seeds=(1, 1)).steps(), ("EXE-19", *(("ION-05",) if ion else ()))
    yield run._replace(seeds=(1, 9)).steps(), ("EXE-19", *(("ION-04",) if ion else ()))
    if has.batch:
        yield run._replace(batch=True).steps(), ("REG-02",)
        if has.others:
            yield (ContextCreate("c1"), *run._replace(batch=True).steps()), ("REG-02",)


def _in_one_buffer(run: _Run, has: Shown) -> Iterator[Owned]:
    """Shared memory with all tensors in one buffer, one behind the other."""
    yield run._replace(seeds=()).steps(), ("SHB-07",)
    yield run.steps(), ("SHB-08",)
    yield run._replace(layout="far").steps(), ("SHB-08",)
    down = run._replace(layout="down")
    yield down.steps(), ("SHB-09",)
    if has.batch:
        yield run._replace(batch=True).steps(), ("SHB-09",)
        yield down._replace(batch=True).steps(), ("SHB-09",)
    odd = run._replace(layout="odd").steps()
    yield odd, ODD_OFFSETS
    yield odd, ("SHB-08",)


def _of_use(run: _Run, has: Shown) -> Iterator[Owned]:
    """What a client does with handles that are right by themselves."""
    raw = (Execute("g0", (*(Binding(seed=1) for _ in run.places[:-1]), Binding())),)
    if has.mixed:
        yield run._replace(bindings="raw first").steps(), ("EXE-02",)
        yield run._replace(bindings="raw last").steps(), ("EXE-02",)
    if has.raw:
        yield run._replace(before=raw).steps(), ("QMG-07", "QMG-05")
        yield run._replace(seeds=(1, 1), before=raw).steps(), ("QMG-07", "QMG-05")
    spare, other = Alloc("bs", pages(1)), Descriptor("bs", (1, 2, 2, 2), mem_type=run.kind)
    if has.ends:
        ended = (spare, Register("c0", (other,), ("hs",)), Deregister(("hs",)))
        yield run._replace(before=ended).steps(), ("DRG-11",)
    if has.fails:
        same = Register("c0", (run.descriptor(0),), ("hs",))
        yield run._replace(before=(same,)).steps(), ("REG-21",)
        bad = Register("c0", (msgspec.structs.replace(other, fd="minus-one"),), ("hs",))
        yield run._replace(before=(spare, bad)).steps(), ("SHB-15",)


def dead_handles(case: MemoryCase, graphs: Sequence[Prepare], types: Sequence[int]) -> Iterator[Owned]:
    """Each graph once more with handles of which one has ended, where those of the case end.

    A backend for which it is live still has its memory, and may take it for that of the next handle.
    """
    plainest = CUSTOM if CUSTOM in types else types[0]
    if not shown(case, plainest).ends:
        return
    for made in graphs:
        if nbytes(made.shape, made.dtype) <= MOST_READ:
            whole = _Run(made, plainest).steps()
            yield (*whole, Deregister(("h0",)), whole[-1]), ("EXE-04",)


class _Run(NamedTuple):
    """A graph that is executed with memory registered for its tensors."""

    made: Prepare
    kind: int
    """Qnn_MemType_t."""
    layout: str = "own"
    """A buffer for each tensor, or one for all: ``up`` or ``down`` as the tensors come, at multiples of
    64 bytes; ``odd``: as ``up``, each one element further; ``far``: as ``up``, each in pages of its own."""
    batch: bool = False
    """One call registers all of them."""
    late: bool = False
    """Inputs are written after they were registered, and not before."""
    seeds: tuple[int, ...] = (1,)
    """Of each execute, of the contents of its inputs."""
    looks: bool = False
    """Every buffer is read at the end."""
    before: tuple[AnyStep, ...] = ()
    """Steps before each execute."""
    bindings: str = "handles"
    """Or one tensor has raw memory: ``raw first``, ``raw last``."""

    @property
    def places(self) -> range:
        """Of the tensors: the inputs, then the output."""
        return range(io_inputs(self.made) + 1)

    def descriptor(self, place: int) -> Descriptor:
        """Of the tensor's memory."""
        made, size = self.made, self._bytes
        if self.layout == "own":
            return Descriptor(f"b{place}", made.shape, made.dtype, self.kind)
        at = self.places[-1] - place if self.layout == "down" else place
        lead = ELEMENT_BYTES[made.dtype] if self.layout == "odd" else 0
        return Descriptor("b0", made.shape, made.dtype, self.kind, offset=at * size + lead)

    @property
    def behind(self) -> Descriptor:
        """Of memory behind all tensors in one buffer."""
        return Descriptor("b0", (1, 2, 2, 2), mem_type=self.kind, offset=len(self.places) * self._bytes)

    @property
    def _bytes(self) -> int:
        """Of each tensor, and to the next one in its buffer."""
        exact = nbytes(self.made.shape, self.made.dtype)
        if self.layout == "far":
            return pages(exact)
        return exact if self.layout == "own" else -(-exact // _ALIGNED) * _ALIGNED

    def steps(self) -> tuple[AnyStep, ...]:
        """All of it, in a context of its own."""
        spots = [self.descriptor(place) for place in self.places]
        buffers = dict.fromkeys(each.buffer for each in spots)
        size = pages(self._bytes + 64) if self.layout == "own" else self._bytes * len(spots) + 64
        begin: list[AnyStep] = [ContextCreate("c0"), self.made]
        for name in buffers:
            begin += (Alloc(name, size), Fill(name))
        written = tuple(self._written(spots, self.seeds[:1]))
        early, late = ((), written) if self.late else (written, ())
        return (*begin, *early, *self._registered(spots), *late, *self._executed(spots))

    def _registered(self, spots: Sequence[Descriptor]) -> Iterator[Register]:
        handles = [f"h{place}" for place in self.places]
        if self.batch:
            yield Register("c0", tuple(spots), tuple(handles))
            return
        for one, handle in zip(spots, handles, strict=True):
            yield Register("c0", (one,), (handle,))

    def _written(self, spots: Sequence[Descriptor], seeds: Sequence[int]) -> Iterator[Write]:
        size = nbytes(self.made.shape, self.made.dtype)
        for seed in seeds:
            for place, one in enumerate(spots[:-1]):
                yield Write(one.buffer, size, one.offset, seed + place, self.made.dtype)

    def _executed(self, spots: Sequence[Descriptor]) -> Iterator[AnyStep]:
        bound = [Binding("handle", f"h{place}") for place in self.places]
        if self.bindings != "handles":
            bound[0 if self.bindings == "raw first" else -1] = Binding()
        execute = Execute("g0", tuple(bound))
        for turn, seed in enumerate(self.seeds):
            if turn:
                # An output that is not written again must show.
                size = nbytes(self.made.shape, self.made.dtype)
                yield Write(spots[-1].buffer, size, spots[-1].offset, 77, self.made.dtype)
                yield from self._written(spots, (seed,))
            yield from self.before
            yield execute
        if self.looks:
            yield from (Read(one.buffer) for one in spots)
