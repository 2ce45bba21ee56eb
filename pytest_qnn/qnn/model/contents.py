"""What outputs and buffers must hold: the bytes side of the memory model.

`compare(case, trace)` follows every write, fill and successful execute of a case, and at each place where
the trace shows bytes (the output of an execute, a client's read) says whether they are the right ones.
Buffers count from their first Fill, since nobody says what fresh memory holds, and to their registration for
weights or spill-fill, since nobody says what a backend puts there.

An output is right if it is what the suite's own arithmetic gives (UFIXED_POINT_8 to the byte, FLOAT_32
within `pytest_qnn.qnn.model.operators.FLOAT_BOUND`), or what the target itself gave in its own plain run of
the same graph with the same inputs (`pytest_qnn.qnn.trace.PlainRun`): rules about memory judge memory, and
not how a backend rounds. EXE-21 judges the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from pytest_qnn.qnn.cases.case import (
    OVER_INPUT,
    OVER_OUTPUT,
    AllocNeeded,
    AnyStep,
    Binding,
    Execute,
    Fill,
    MemoryCase,
    NewProcess,
    Prepare,
    QnnDType,
    Read,
    Register,
    Write,
    queued_seed,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes, weights_shape
from pytest_qnn.qnn.model.expected import UNUSUAL, Walked, role_of, walk
from pytest_qnn.qnn.model.operators import FLOAT_BOUND, expected, operands
from pytest_qnn.qnn.trace import MemoryTrace, PlainRun, StepSeen

_SHOWN = 8


class Compared(msgspec.Struct, frozen=True):
    """Bytes that were seen, against what they had to be."""

    walked: Walked
    """The step that showed them: an execute, or a client's read."""
    where: Literal["output", "buffer"]
    """``output``: the output of an execute, as the client saw it at once; ``buffer``: a whole buffer."""
    data: bytes
    """What was seen."""
    difference: str = ""
    """Empty: it is right. Otherwise the first wrong place in words."""
    made: Prepare | None = None
    """Of an output: the graph's preparation, its execute, and the bytes of its inputs."""
    execute: Execute | None = None
    inputs: tuple[bytes, ...] = ()
    """Weights included."""


class _Follower:
    """The state behind `compare`: what is alive, and the bytes in its buffers."""

    def __init__(self, plain: Iterable[PlainRun] = (), *, foretells: bool = False) -> None:
        self.foretells = foretells
        """Nothing that was read is looked at: what should have been read is taken for it."""
        self.alive = Alive()
        self.buffers: dict[str, bytearray] = {}
        self.values: dict[str, int] = {}
        """Of handles, as they were given out."""
        self.plain = {_key(run, run.inputs): run.output for run in plain if run.output}
        self.written: dict[tuple[str, int], bytes] = {}
        """Of buffers without a Fill: what was written last, by its offset, and nothing else lies over it."""

    def follow(self, walked: Walked) -> Iterator[Compared]:
        step, seen = walked.step, walked.seen
        if isinstance(step, Fill):
            self._fill(step)
        elif isinstance(step, Write):
            if step.buffer in self.buffers:
                end = step.offset + step.size
                self.buffers[step.buffer][step.offset : end] = contents(step.dtype, step.seed, step.size)
            elif not seen.skipped:
                self._write(step.buffer, step.offset, contents(step.dtype, step.seed, step.size))
        elif isinstance(step, Execute):
            made = self.alive.prepared.get(step.graph)
            if seen.code == 0 and made is not None:
                yield from self._execute(walked, step, made)
                if step.asynchronous and seen.data:
                    self._write_over(step, made)
            if ("contextFree", 0) in seen.calls:
                self.alive.follow(step)
        elif isinstance(step, Read):
            if step.buffer in self.buffers and seen.data:
                held = bytes(self.buffers[step.buffer])
                data = held if self.foretells else seen.data[0]
                yield Compared(walked, "buffer", data, differs(held, data, "UFIXED_POINT_8"))
                self.buffers[step.buffer] = bytearray(data)
        elif not seen.code:
            self._objects(step, seen)

    def _objects(self, step: AnyStep, seen: StepSeen) -> None:
        """What a step made or ended that succeeded."""
        if isinstance(step, AllocNeeded):
            self.alive.alloc(step.buffer, seen.values[-1])
            return
        self.alive.follow(step)
        if isinstance(step, Register):
            self.values.update(zip(step.handles, seen.values, strict=False))
            for descriptor in filter(role_of, step.descriptors):
                self.buffers.pop(descriptor.buffer, None)
                self._forget(descriptor.buffer)
        elif isinstance(step, NewProcess):
            self.buffers.clear()
            self.written.clear()

    def _fill(self, step: Fill) -> None:
        size = self.alive.size_of(step.buffer)
        if size is not None:
            self.buffers[step.buffer] = bytearray([step.byte]) * size

    def _forget(self, buffer: str) -> None:
        for each in [each for each in self.written if each[0] == buffer]:
            del self.written[each]

    def _write(self, buffer: str, offset: int, data: bytes) -> None:
        """Written into a buffer whose other bytes are unknown."""
        end = offset + len(data)
        for of, start in list(self.written):
            if of == buffer and start < end and offset < start + len(self.written[of, start]):
                del self.written[of, start]
        self.written[buffer, offset] = data

    def _spot(self, handle: str) -> tuple[str, int]:
        """Buffer and offset of the memory behind a handle, live or not; "" and 0 for none."""
        known = self.alive.registered.get(handle)
        return (known.descriptor.buffer, known.descriptor.offset) if known else ("", 0)

    def _given_out_again(self, handle: str) -> str:
        """The live handle that has the value of this one, which has ended; "" for none."""
        if handle in self.alive.handles or handle not in self.values:
            return ""
        value = self.values[handle]
        return next((each for each in self.alive.handles if self.values.get(each) == value), "")

    def _execute(self, walked: Walked, step: Execute, made: Prepare) -> Iterator[Compared]:
        size = nbytes(made.shape, made.dtype)
        count = io_inputs(made)
        if not walked.allowed.faults.isdisjoint(UNUSUAL):
            return
        if any(others := [self._given_out_again(each.handle) for each in step.bindings]):
            # The client looks at the memory of the handles that it named, and not at that of the others.
            for buffer, _ in map(self._spot, filter(None, others[count:])):
                self.buffers.pop(buffer, None)
                self._forget(buffer)
            return
        given = [self._input(each, made.dtype, size) for each in step.bindings[:count]]
        inputs = tuple(data for data in given if data is not None)
        if len(inputs) < count or len(step.bindings) <= count or not walked.seen.data:
            return
        data = walked.seen.data[0]
        compared = self._compared(walked, made, inputs, data, step)
        data = compared.data
        yield compared
        for call, other in enumerate(walked.seen.data[1:]):
            seeds = [queued_seed(call, position) for position in range(count)]
            queued = tuple(contents(made.dtype, seed, size) for seed in seeds)
            yield self._compared(walked, made, queued, other)
        # What was seen is where the story goes on: one wrong byte is not reported again by a read.
        buffer, offset = self._spot(step.bindings[count].handle)
        if buffer in self.buffers:
            self.buffers[buffer][offset : offset + len(data)] = data
        elif buffer:
            self._write(buffer, offset, data)

    def _compared(
        self,
        walked: Walked,
        made: Prepare,
        given: tuple[bytes, ...],
        data: bytes,
        step: Execute | None = None,
    ) -> Compared:
        """An output for these inputs; of a call that was in the queue before an asynchronous one, no step."""
        inputs = given
        if made.weights is not None:
            size = nbytes(weights_shape(made), made.dtype)
            inputs = (*given, contents(made.dtype, made.weights, size))
        wanted = _wanted(made, operands(made, inputs), data)
        if self.foretells:
            return Compared(walked, "output", wanted, "", made, step, inputs)
        difference = differs(wanted, data, made.dtype)
        if difference:
            own = self.plain.get(_key(made, given))
            difference = difference if own is None else differs(own, data, made.dtype)
        return Compared(walked, "output", data, difference, made, step, inputs)

    def _write_over(self, step: Execute, made: Prepare) -> None:
        """What the client does once it was notified (`pytest_qnn.qnn.cases.case`)."""
        size = nbytes(made.shape, made.dtype)
        for position, binding in enumerate(step.bindings):
            buffer, offset = self._spot(binding.handle)
            if buffer in self.buffers:
                byte = OVER_INPUT if position < len(step.bindings) - 1 else OVER_OUTPUT
                self.buffers[buffer][offset : offset + size] = bytes([byte]) * size

    def _input(self, binding: Binding, dtype: QnnDType, size: int) -> bytes | None:
        if binding.kind == "raw":
            return contents(dtype, binding.seed, size)
        buffer, offset = self._spot(binding.handle)
        if buffer not in self.buffers:
            found = self.written.get((buffer, offset), b"")
            return found[:size] if len(found) >= size else None
        return bytes(self.buffers[buffer][offset : offset + size])


def _key(of: PlainRun | Prepare, inputs: tuple[bytes, ...]) -> tuple[object, ...]:
    return of.op, of.dtype, of.shape, of.relay, of.weights, of.narrow, of.terms, inputs


def _wanted(made: Prepare, inputs: tuple[bytes, ...], data: bytes) -> bytes:
    """The right output for the last operator's inputs; with weights that of two, element by element.

    Of two right ones it is the one that was seen.

    Backends may fold weights into the rounding, and no document says where ties go then: libQnnHtp rounds
    them down where the weights are one element, and up everywhere else.
    """
    up = expected(made.op, made.dtype, *inputs)
    if made.weights is None or made.dtype != "UFIXED_POINT_8" or len(data) != len(up) or data == up:
        return up
    down = expected(made.op, made.dtype, *inputs, ties_up=False)
    low, high, seen = (np.frombuffer(each, np.uint8) for each in (down, up, data))
    return np.where(seen == low, low, high).tobytes()


class _Last(NamedTuple):
    """The steps that were compared last: a rule's helpers compare the same ones several times."""

    walked: tuple[Walked, ...] | None = None
    compared: tuple[Compared, ...] = ()


_last = _Last()


def compare(case: MemoryCase, trace: MemoryTrace) -> tuple[Compared, ...]:
    """Every comparison that the trace allows, in the order of the steps."""
    global _last  # noqa: PLW0603 - as in `walk`
    walked, last = walk(case, trace), _last
    if last.walked is not walked:
        follower = _Follower(trace.plain)
        _last = last = _Last(walked, tuple(found for each in walked for found in follower.follow(each)))
    return last.compared


def foretold(case: MemoryCase, trace: MemoryTrace) -> list[bytes]:
    """Weights, then what `compare` would compare with, in the order of the steps; the same on every machine.

    Args:
        case: that was carried out.
        trace: of it; of its contents only the lengths are looked at.
    """
    follower = _Follower(foretells=True)
    found = [
        contents(step.dtype, step.weights, nbytes(weights_shape(step), step.dtype))
        for step in case.steps
        if isinstance(step, Prepare) and step.weights is not None
    ]
    return found + [compared.data for each in walk(case, trace) for compared in follower.follow(each)]


def differs(wanted: bytes, seen: bytes, dtype: QnnDType) -> str:
    """The first place where ``seen`` is not ``wanted``, in words; empty if there is none."""
    if wanted == seen:
        return ""
    if len(wanted) != len(seen):
        return f"{len(seen)} bytes instead of {len(wanted)}"
    if dtype == "FLOAT_32":
        return _differs_float(wanted, seen)
    at = next(i for i, (want, see) in enumerate(zip(wanted, seen, strict=True)) if want != see)
    return f"at byte {at}: {seen[at : at + _SHOWN].hex(' ')} instead of {wanted[at : at + _SHOWN].hex(' ')}"


def _differs_float(wanted: bytes, seen: bytes) -> str:
    want, see = (np.frombuffer(data, np.float32).astype(np.float64) for data in (wanted, seen))
    # Not "error > bound": a NaN is never within the bound.
    wrong = np.flatnonzero(~(np.abs(see - want) <= FLOAT_BOUND * np.abs(want)))
    if not wrong.size:
        return ""
    at = int(wrong[0])
    return f"at element {at}: {see[at]:g} instead of {want[at]:g} (bound {FLOAT_BOUND * abs(want[at]):g})"
