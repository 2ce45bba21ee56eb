"""What was seen of a step in terms that hold in any process: codes, and how values relate to each other.

Handles and descriptors are other numbers in each process: of one it is said whether it was written, is NULL
or is another object's, too. Descriptors and mappings of a process are counted from the case's first look on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.abi.table import FUNCTIONS, PROTOTYPES, Implementation, Interface
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.model.growth import FIRST_KEPT, MALLOC, RESIDENT, beyond
from pytest_qnn.qnn.reproduce import copies
from pytest_qnn.qnn.runner.client import UNTOUCHED
from pytest_qnn.qnn.trace import (
    AsyncCounts,
    ExecuteCounts,
    FirstCounts,
    GrowthCounts,
    ListCounts,
    LogCounts,
    MemoryTrace,
    PieceCounts,
    ProcessCounts,
    RefusalCounts,
    StepSeen,
)

Seen = int | tuple[str, ...] | bytes
"""A number; a relation: ``("untouched",)``, ``("null",)``, ``("same", LABEL)``, ``("own",)``; or memory."""

UNTOUCHED_SEEN: tuple[str, ...] = ("untouched",)
NULL_SEEN: tuple[str, ...] = ("null",)
OWN_SEEN: tuple[str, ...] = ("own",)

_HANDLES = (
    case.ContextCreate,
    case.ContextFromBinary,
    case.ContextWithCallback,
    case.Register,
    case.Retrieve,
    case.Providers,
    case.Interface,
)
"""Steps whose values are handles, or addresses of the target's."""
_COUNTS = frozenset(
    {
        *("inputs_changed", "output_overrun", "tensors_changed", "changed", "tensor_bytes_changed"),
        *("overrun", "touched", "notified", "silent", "late_writes", "strange_notifications", "count"),
        *("listed", "core", "backend", "first_writable", "last_writable", "released", "given"),
        *("released_again", "released_wrongly", "other_parameter", "mapped", "rounds", "queued_amiss"),
        *("version", "graphs", "inputs", "outputs", "data"),
    }
)
"""Numbers of steps that are the same in each process."""
_PAGE = 4096
FREED_ENDS = frozenset({0, int(Error.GRAPH_ERROR_INVALID_HANDLE), int(Error.GRAPH_ERROR_INVALID_CONTEXT)})
"""What an execution may be notified of whose context is freed behind it (EXE-18)."""
GROWING = {
    "fds": "open descriptors",
    "mappings": "mappings",
    "heap": MALLOC,
    "resident": RESIDENT,
}
"""What grows with the same calls again and again, by what a program calls it."""


class Where(NamedTuple):
    """A thing that was seen: at a step, -1 for the session and the number of steps for the closing."""

    step: int
    label: str


def observations(steps: tuple[case.AnyStep, ...], trace: MemoryTrace) -> dict[Where, Seen]:
    """Everything in the trace that another process can show."""
    found: dict[Where, Seen] = {}
    for name, code in trace.session:
        found[Where(-1, f"session:{name}")] = code
    relations = _Relations()
    for index, (step, seen) in enumerate(zip(steps, trace.steps, strict=False)):
        if isinstance(step, case.NewProcess):
            relations = _Relations()  # what was another process's is no number here
        for label, value in _of_step(index, step, seen, relations):
            found[Where(index, label)] = value
    found |= {Where(index, label): value for index, label, value in copies.seen(steps, trace)}
    for position, (_, code) in enumerate(trace.closing):
        found[Where(len(steps), f"call:{position}")] = code
    return found


class _Relations:
    """What values were seen before, and the first look at the process."""

    def __init__(self) -> None:
        self._first: dict[int, str] = {}
        self._ids: dict[tuple[str, int], str] = {}
        self.look: ProcessCounts | None = None
        self.mapped: dict[str, int] = {}
        self.regions: dict[int, dict[int, bool]] = {}

    def of_id(self, label: str, context: str, number: int) -> tuple[str, ...]:
        """What the id of a tensor is to those before it in the context; 0 is that of no tensor."""
        first = self._ids.setdefault((context, number), label) if number else label
        return OWN_SEEN if first == label else ("same", first)

    def of(self, label: str, value: int) -> tuple[str, ...]:
        """What a handle is to those before it."""
        if value == UNTOUCHED:
            return UNTOUCHED_SEEN
        if value == 0:
            return NULL_SEEN
        first = self._first.setdefault(value, label)
        return OWN_SEEN if first == label else ("same", first)


def _of_step(
    index: int, step: case.AnyStep, seen: StepSeen, relations: _Relations
) -> Iterator[tuple[str, Seen]]:
    if isinstance(seen.counts, ListCounts):  # also of a step that is skipped since it was notified amiss
        yield from _listed(seen.counts)
    if seen.skipped:
        return
    if isinstance(step, case.Parallel):
        yield from _threads(seen)
        return
    if isinstance(step, case.FailedAllocation):
        yield from _refused(seen)
        return
    if isinstance(step, case.Execute) and step.freed:
        yield from _freed(step, seen)
        return
    if seen.calls and not isinstance(step, case.Churn | case.Executes | case.ContextWithCallback):
        for position, (_, code) in enumerate(seen.calls):
            yield f"call:{position}", code
    elif seen.code is not None:
        yield "call:main", seen.code
    yield from _values(index, step, seen, relations)
    if not isinstance(step, case.Interface | case.GetBinary):  # a binary's format is the target's own
        for position, data in enumerate(seen.data):
            yield f"data:{position}", data
    yield from _counts(step, seen, relations)


def _listed(counts: ListCounts) -> Iterator[tuple[str, Seen]]:
    """Whether the client of a list was notified as it must not be: how often depends on when it looks."""
    yield "notified:strangely", int(counts.strange > 0)
    yield "notified:refused", int(not counts.accepted and counts.notified > 0)
    yield "notified:twice", int(counts.twice > 0)
    yield "notified:never", int(counts.silent > 0)


def _threads(seen: StepSeen) -> Iterator[tuple[str, Seen]]:
    """Whether the log was told what it must not be; the calls that failed are no more than `failures`."""
    if isinstance(seen.counts, LogCounts):
        for name in ("late", "null_formats", "strange", "loud"):
            yield f"heard:{name}", int(getattr(seen.counts, name) > 0)


def failures(seen: StepSeen) -> set[str]:
    """The calls that failed in threads, as labels: "failed:CALL:CODE"."""
    return {f"failed:{call}:{code if call in PROTOTYPES else 0}" for call, code in seen.calls}


def _values(
    index: int, step: case.AnyStep, seen: StepSeen, relations: _Relations
) -> Iterator[tuple[str, Seen]]:
    if isinstance(step, case.Interface):
        yield from _interface(seen)
    if isinstance(step, case.Pieces | case.ContextWithCallback):
        yield from _requests(step, seen)
    for position, value in enumerate(seen.values):
        label = f"value:{position}"
        whole = f"{index}:{label}"
        if isinstance(step, _HANDLES) and not (isinstance(step, case.ContextWithCallback) and position):
            yield label, relations.of(whole, value)
        elif isinstance(step, case.Alloc | case.AllocNeeded) and position == 0:
            yield label, NULL_SEEN if not value else ("aligned" if value % _PAGE == 0 else "unaligned",)
        elif isinstance(step, case.Prepare):
            yield label, _made(whole, position, seen.values, relations, step.context)
        elif isinstance(step, case.ToFd):
            yield label, ("none",) if value < 0 else relations.of(f"{index}:fd", value + (1 << 70))
        elif isinstance(step, case.GetBinary | case.GetSection):
            yield label, _size(position, seen.values)
        elif isinstance(step, case.ContextProperty | case.Version | case.Message | case.Inspect):
            yield label, value


def _requests(step: case.AnyStep, seen: StepSeen) -> Iterator[tuple[str, Seen]]:
    """How many requests lie beyond the binary, and how many are of no byte."""
    if isinstance(seen.counts, PieceCounts):
        asked = seen.values[1:] if isinstance(step, case.ContextWithCallback) else seen.values
        pairs = list(zip(asked[::2], asked[1::2], strict=False))
        yield "beyond", sum(size > 0 and offset + size > seen.counts.binary for offset, size in pairs)
        yield "empty", sum(size == 0 for _, size in pairs)


def _made(
    label: str, position: int, values: tuple[int, ...], relations: _Relations, context: str
) -> tuple[str, ...]:
    """The graph's handle, or the id of a tensor: whether an earlier tensor of the context has it."""
    if position == 0:
        return relations.of(label, values[0])
    first = values.index(values[position], 1)
    if first != position:
        return ("same", f"{label.partition(':')[0]}:value:{first}")
    return relations.of_id(label, context, values[position])


def _size(position: int, values: tuple[int, ...]) -> tuple[str, ...]:
    """The size that was told, and the bytes written, as far as they do not depend on the format."""
    value = values[position]
    if value == UNTOUCHED:
        return UNTOUCHED_SEEN
    if position and values[0] != UNTOUCHED:
        return ("size",) if value == values[0] else ("less",) if value < values[0] else ("more",)
    return NULL_SEEN if value == 0 else OWN_SEEN


def _interface(seen: StepSeen) -> Iterator[tuple[str, Seen]]:
    """Of each entry of the table whether it is NULL; the backend's id, and whether it has a name."""
    if not seen.data:
        return
    body = seen.data[0]
    begin = Interface.implementation.offset
    for name, _ in FUNCTIONS:
        at = begin + getattr(Implementation, name).offset
        yield f"entry:{name}", NULL_SEEN if not any(body[at : at + 8]) else OWN_SEEN
    yield "id", int.from_bytes(body[:4], "little")
    at = Interface.providerName.offset
    yield "name", NULL_SEEN if not any(body[at : at + ctypes.sizeof(ctypes.c_void_p)]) else seen.data[1]


def _counts(step: case.AnyStep, seen: StepSeen, relations: _Relations) -> Iterator[tuple[str, Seen]]:
    if isinstance(seen.counts, ProcessCounts) and isinstance(step, case.Observe):
        yield from _process(step, seen, relations)
        return
    if isinstance(seen.counts, GrowthCounts) and isinstance(step, case.WholeSession):
        half = nbytes(step.shape, step.dtype) // 2
        yield "left:heap", int(seen.counts.heap > half)
        yield "left:resident", int(seen.counts.rss > half)
        return
    if isinstance(seen.counts, FirstCounts):
        yield "left:written", int(seen.counts.left > FIRST_KEPT)
        return
    if isinstance(seen.counts, GrowthCounts):
        yield from _growing(seen.counts)
        return
    if seen.counts is None or isinstance(seen.counts, ListCounts):
        return
    if isinstance(seen.counts, ExecuteCounts):  # of a measured execute
        for name, used in seen.counts.buffers:
            yield f"used:{name}", int(used > 0)
    for name in seen.counts.__struct_fields__:
        if name not in _COUNTS:
            continue
        value = getattr(seen.counts, name)
        parts = value if isinstance(value, tuple) else (value,)
        for position, part in enumerate(parts):
            yield f"count:{name}" + (f":{position}" if len(parts) > 1 else ""), int(part)


def _freed(step: case.Execute, seen: StepSeen) -> Iterator[tuple[str, Seen]]:
    """Of executions whose context is freed behind them what does not depend on how far the target has come.

    In one run of it each was carried out before, in the next none: what they were notified of and what is in
    their outputs is told of that one run.
    """
    for position, (_, code) in enumerate(seen.calls[: step.asynchronous]):
        yield f"call:{position}", code
    if isinstance(seen.counts, AsyncCounts):
        counts = seen.counts
        yield "freed:silent", int(counts.silent > 0)
        yield "freed:twice", int(counts.notified > 1)
        yield "freed:lost", int(counts.queued_amiss > 0)
        ended = {low(code) for name, code in seen.calls if name == "notify"}
        yield "freed:otherwise", int(not ended <= FREED_ENDS)
        for name in ("inputs_changed", "output_overrun", "late_writes", "strange_notifications"):
            yield f"count:{name}", int(getattr(counts, name))


def _growing(counts: GrowthCounts) -> Iterator[tuple[str, Seen]]:
    grown = beyond(counts)
    for name, what in GROWING.items():
        yield f"grows:{name}", int(grown is not None and grown.what == what)


def _refused(seen: StepSeen) -> Iterator[tuple[str, Seen]]:
    """Behind which calls something is amiss of which a request was refused, and what; else the growth.

    What such a call answers is its own choice, and an output that was not computed may be any.
    """
    if isinstance(seen.counts, GrowthCounts):
        yield from _growing(seen.counts)
    if isinstance(seen.counts, RefusalCounts):
        amiss = seen.counts
        yield "refused:calls", (*amiss.calls, str(amiss.code)) if amiss.calls else ()
        yield "refused:failed", (amiss.failed, str(amiss.failed_code)) if amiss.failed_code else ()
        yield "refused:output", ("differs",) if seen.data and not amiss.failed else ()


def _are_begun(size: int, seen: StepSeen) -> dict[int, bool]:
    """Of each mapping of the size, by address, whether a quarter of its pages is there."""
    return {address: 4 * resident >= size for address, resident in seen.regions}


def _process(step: case.Observe, seen: StepSeen, relations: _Relations) -> Iterator[tuple[str, Seen]]:
    counts = seen.counted(ProcessCounts)
    first = relations.look = relations.look or counts
    if step.region:
        found = _are_begun(step.region, seen)
        before = relations.regions.get(step.region, found)
        relations.regions[step.region] = found
        yield "regions:filled", int(any(found.get(at) and not begun for at, begun in before.items()))
    yield "grown:fds", counts.fds - first.fds
    yield "grown:memfds", counts.memfds - first.memfds
    for name, now in zip(step.buffers, counts.mapped, strict=False):
        yield f"mapped:{name}", now - relations.mapped.setdefault(name, now)
