"""Controls of a death behind an execute that is to be refused: such an execute, and then a plain one.

A backend may keep a lock where it refuses, or free what it still needs. Whatever call comes next meets that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytest_qnn.qnn.cases.case import (
    NULL,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    Deregister,
    Descriptor,
    Execute,
    MemoryCase,
    Parallel,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes, pages
from pytest_qnn.qnn.controls.binaries import executed

_CONTEXT = ContextCreate("c0")
_PLAINEST = Prepare("g0", "c0")
"""Alike for all cases, so that it hangs once: each hang costs much, and a rule has few for its controls."""
_RAW = 0
"""Qnn_TensorMemType_t of raw memory."""
_NO_HANDLE = Binding("handle", NULL)


def refused_executes(case: MemoryCase, types: Sequence[int]) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Steps, and who owns a death of them; none where every execute of the case is in order.

    The first is the same whatever is wrong with the case's execute: what a backend does wherever it refuses
    is one rule's. The others are those mistakes that rules make which do not own them.

    Args:
        case: that died.
        types: Qnn_MemType_t of the memory that the target takes.
    """
    alive = Alive()
    graphs: list[Prepare] = []
    mistakes: dict[str, None] = {}
    for step in case.steps:
        made = alive.prepared.get(step.graph) if isinstance(step, Execute) else None
        if isinstance(step, Execute) and made is not None and not step.asynchronous:
            wrong = list(_mistakes(step, made, alive))
            mistakes |= dict.fromkeys(wrong)
            if wrong:
                graphs += (_PLAINEST, msgspec.structs.replace(_PLAINEST, op=made.op, dtype=made.dtype))
        if isinstance(step, Parallel) and any({"refused", "graphExecute"} <= {*each} for each in step.calls):
            graphs.append(_PLAINEST)
        alive.follow(step)
    for prepare in dict.fromkeys(graphs):
        yield _behind(prepare, _with(prepare, 0, _NO_HANDLE)), "EXE-03"
        if "output" in mistakes:
            yield _behind(prepare, _with(prepare, -1, _NO_HANDLE)), "EXE-03"
        if "arrays" in mistakes:
            inputs = tuple(range(io_inputs(prepare)))
            yield _behind(prepare, msgspec.structs.replace(executed(prepare), inputs=(*inputs, 0))), "EXE-16"
            yield _behind(prepare, msgspec.structs.replace(executed(prepare), inputs=inputs[:-1])), "EXE-16"
        if "dead" in mistakes and types:
            yield _behind_dead(prepare, types[0]), "EXE-04"


def has_refused_execute(case: MemoryCase) -> bool:
    """Whether it has an execute that is to be refused."""
    return next(refused_executes(case, ()), None) is not None


def _mistakes(step: Execute, made: Prepare, alive: Alive) -> Iterator[str]:
    """What is wrong with an execute, as far as it may be what its control has; "": any other thing."""
    count = io_inputs(made)
    inputs = range(count) if step.inputs is None else step.inputs
    outputs = (count,) if step.outputs is None else step.outputs
    if sorted(inputs) != list(range(count)) or list(outputs) != [count] or len(step.bindings) != count + 1:
        yield "arrays"
    if step.graph not in alive.graphs or not made.finalise:
        yield ""
    size = nbytes(made.shape, made.dtype)
    for position, binding in enumerate(step.bindings):
        if binding.of not in ("", step.graph):
            yield "arrays"
        if binding.kind == "raw":
            is_wrong = binding.short > 0 or binding.mem_type not in (None, _RAW)
        elif binding.handle == NULL and position == count:
            yield "output"
            continue
        elif binding.handle in alive.dead:
            yield "dead"
            continue
        else:
            known = alive.handles.get(binding.handle)
            is_wrong = (
                known is None
                or known.context != made.context
                or nbytes(known.descriptor.shape, known.descriptor.dtype) < size
            )
        if is_wrong:
            yield ""


def _with(prepare: Prepare, position: int, binding: Binding) -> Execute:
    """An execute with raw memory but for one tensor, an input or (-1) the output."""
    plain = executed(prepare)
    bindings = list(plain.bindings)
    bindings[position] = binding
    return msgspec.structs.replace(plain, bindings=tuple(bindings))


def _behind(prepare: Prepare, refused: Execute) -> tuple[AnyStep, ...]:
    """A plain execute behind one that is refused."""
    return _CONTEXT, prepare, refused, executed(prepare)


def _behind_dead(prepare: Prepare, mem_type: int) -> tuple[AnyStep, ...]:
    """A plain execute behind one with a handle that was deregistered."""
    described = Descriptor("b0", prepare.shape, prepare.dtype, mem_type)
    memory = Alloc("b0", pages(nbytes(prepare.shape, prepare.dtype)))
    ended = (memory, Register("c0", (described,), ("h0",)), Deregister(("h0",)))
    refused = _with(prepare, 0, Binding("handle", "h0"))
    return _CONTEXT, prepare, *ended, refused, executed(prepare)
