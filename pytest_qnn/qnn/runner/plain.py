"""A target's own plain runs of graphs: raw memory, in a session and a context of their own.

What memory must hold is what this target computes, and not what another one would: how halves are rounded,
and how precisely a product is formed, no document about memory says. So where an output differs from the
suite's own arithmetic, and only there, the same graph is executed once more with the same inputs and without
any memory handle, and rules about memory compare with that. A rule of its own (EXE-21) judges the arithmetic.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence

import msgspec

from pytest_qnn.isolation.observe.control_words import Watch
from pytest_qnn.qnn.cases.case import AllocNeeded, Execute, MemoryCase, Prepare
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES, weights_shape
from pytest_qnn.qnn.model.operators import expected, operands
from pytest_qnn.qnn.runner.buffers import data_of
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient
from pytest_qnn.qnn.runner.graphs import bind_raw, compose, operator_of, vary
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.rpcmem import Rpcmem
from pytest_qnn.qnn.runner.state import Executed, State
from pytest_qnn.qnn.trace import PlainRun, StepSeen

_REMEMBERED = 4096


def wanted(
    case: MemoryCase, seen: Sequence[StepSeen], differing: Sequence[Sequence[Executed]]
) -> tuple[PlainRun, ...]:
    """The executes whose output is not that of the suite's own arithmetic, each once, not yet carried out.

    Args:
        case: the case that was carried out.
        seen: what its steps gave.
        differing: by step, the executes that differ; their graphs may have got other weights since.
    """
    if not any(differing):
        return ()
    alive = Alive()
    found: dict[PlainRun, None] = {}
    for step, was, own in zip(case.steps, seen, differing, strict=True):
        made = alive.prepared.get(step.graph) if isinstance(step, Execute) else None
        if made is not None:
            of_now = (each._replace(made=made) for each in own)
            found |= {_described(each): None for each in of_now if differs(each)}
        if not (was.code or was.skipped or isinstance(step, AllocNeeded)):
            alive.follow(step)
    return tuple(found)


def differs(executed: Executed) -> bool:
    """The output is not that of the suite's own arithmetic, bit by bit."""
    made = executed.made
    size = math.prod(made.shape) * ELEMENT_BYTES[made.dtype]
    narrow = math.prod(weights_shape(made)) * ELEMENT_BYTES[made.dtype]
    weights = () if made.weights is None else (data_of(made.dtype, made.weights, narrow),)
    if any(len(data) != size for data in (*executed.inputs, executed.output)):
        return False
    return expected(made.op, made.dtype, *operands(made, (*executed.inputs, *weights))) != executed.output


def _described(executed: Executed) -> PlainRun:
    made = executed.made
    return PlainRun(
        op=made.op,
        dtype=made.dtype,
        shape=made.shape,
        relay=made.relay,
        weights=made.weights,
        updatable=made.weights_as == "updatable",
        narrow=made.narrow,
        terms=made.terms,
        inputs=executed.inputs,
    )


class PlainRuns:
    """Carries plain runs out, and remembers what they gave: a target computes the same from the same."""

    def __init__(self) -> None:
        self._known: dict[PlainRun, bytes] = {}

    def missing(self, runs: Iterable[PlainRun]) -> bool:
        """Some of them were not carried out yet."""
        return any(run not in self._known for run in runs)

    def carry_out(self, runs: Iterable[PlainRun], entry: QnnEntry, rpcmem: Rpcmem) -> None:
        """Carry out those that were not."""
        state = State(QnnClient(entry, Watch()), rpcmem)
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        try:
            opened = state.session.open()
            for run in runs:
                if run not in self._known:
                    self._known[run] = carry_out(state, run) if opened else b""
        finally:
            state.session.close()

    def results(self, runs: Iterable[PlainRun]) -> tuple[PlainRun, ...]:
        """The runs with their outputs."""
        return tuple(msgspec.structs.replace(run, output=self._known.get(run, b"")) for run in runs)


def carry_out(state: State, run: PlainRun) -> bytes:
    """Execute the run's graph in a context of its own: the output, empty where a call fails."""
    client, session = state.client, state.session
    step = Prepare(
        "plain",
        "",
        run.op,  # type: ignore[arg-type]  # what a Prepare of the case has
        run.dtype,  # type: ignore[arg-type]
        run.shape,
        weights=run.weights,
        weights_as="updatable" if run.updatable else "kept",
        relay=run.relay,
        narrow=run.narrow,
        terms=run.terms,
    )
    try:
        code, context = client.create("contextCreate", session.backend, session.device, None)
        if code:
            return b""
        try:
            operator = operator_of(step)
            vary(operator, step)
            graph, calls, _ = compose(state, context, step, operator)
            if calls[-1][1]:
                return b""
            *sources, output = rooms = bind_raw(operator, len(run.inputs[0]))
            for room, data in zip(sources, run.inputs, strict=True):
                ctypes.memmove(room, data, len(data))
            given = (operator.inputs, operator.io_inputs, operator.outputs, 1)
            failed = client.call("graphExecute", graph, *given, None, None)
            del rooms
            return b"" if failed else bytes(output)
        finally:
            client.call("contextFree", context, None)
    except NullFunction:
        return b""
