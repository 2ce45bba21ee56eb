"""The runner of memory cases: a `MemoryCase` in, a `MemoryTrace` out.

What a step leaves in its `StepSeen`, beside ``code`` (None where no QNN call was made):

=================  ======================================================================================
step               meaning
=================  ======================================================================================
`Providers`        ``values``: addresses of the listed interfaces (0 for a NULL one) where the call
                   succeeded with a list; ``counts["count"]``: the count after the call, 0x55555555 if
                   untouched; ``counts["listed"]``: 1 if the list pointer is not NULL afterwards
`Capability`       code only
`ContextCreate`    ``values``: (handle,)
`ContextFree`      code only
`GetBinary`        ``calls``, ``code`` as for `Prepare`; ``values``: (size that was answered, bytes written),
                   0x5555555555555555 where untouched; ``counts``: ``overrun``, bytes written behind the
                   buffer; ``touched``, bytes written to it by a call that failed; ``data``: the binary, if
                   the step says ``keep``
`ContextFrom-      ``values``: (handle,)
Binary`
`ReleaseBinary`    nothing
`ContextFinalize`  code only
`ContextProperty`  ``values``: each property after the call, 0x5555555555555555 where untouched
`Retrieve`         ``values``: (graph handle,)
`Inspect`          see `pytest_qnn.qnn.runner.system.describe`; ``code`` is that of the System interface
`Carry`            nothing
`NewProcess`       nothing (see `pytest_qnn.qnn.runner.processes`)
`AllocNeeded`      as `Alloc`, and ``values``: (pointer, size)
`Alloc`            ``values``: (pointer,), 0 for NULL; ``counts``: ``first_writable``, ``last_writable``, 1 if
                   that byte can be written (both are 0 afterwards); absent for NULL
`Free`             ``values``: (pointer passed,)
`ToFd`             ``values``: (fd,)
`Write`, `Fill`    nothing
`FreeParent`       code only
`Read`             ``data``: (the buffer's bytes,)
`Register`         ``values``: the handle array after the call; ``counts["descriptors_changed"]``: 1 if a
                   descriptor was written to
`Deregister`       ``values``: the handle array after the call; ``counts["handles_changed"]``: 1 if it was
                   written to
`Prepare`          ``calls``: each call with its code; ``code``: that of the last one; ``values``: (graph
                   handle, id of each tensor, inputs first); ``counts["tensor_bytes_changed"]``: bytes
                   that creations wrote to watched structs beside the id
`Execute`          ``data``: (the output's bytes,), read after the call whatever its code: from the raw
                   buffer (0xEE before the call), or through the client's pointer at the descriptor's
                   offset; b"" where the client has no such memory (NULL, BOGUS, a freed buffer);
                   ``counts["inputs_changed"]``: inputs whose bytes differ afterwards;
                   ``counts["output_overrun"]``: bytes written behind a raw output;
                   ``counts["tensors_changed"]``: watched arrays of structs that differ afterwards
asynchronous       ``calls``: the calls, then each notification with its status; ``code``: that of the last
`Execute`          call, or where that is 0 its first status; ``data``, ``inputs_changed`` and
                   ``output_overrun`` as above, but at the first notification (without one there is no
                   data), and the outputs of the calls before behind it; ``counts``: ``notified``, how often
                   for the last call; ``silent``, calls of which none came in time; ``queued_amiss``, calls
                   before the last that failed or were not notified of success once;
                   ``strange_notifications``, with a parameter never given; ``late_writes``, bytes that are
                   not what the client wrote after a notification
`Observe`          ``counts``: ``fds``, ``mappings``, ``memfds`` (mappings of memfds), ``memfd:NAME`` each,
                   ``vm`` and ``rss`` in bytes; with a region also ``regions``, and ``regions``: (address,
                   resident bytes) of each. Mappings of the client's own memory are not among the regions
`Interface`        ``values``: (address,); ``data``: (the bytes of QnnInterface_t, the provider's name);
                   ``counts``: ``core_major``, ``core_minor``, ``core_patch``, and ``backend_`` the same
`Version`          ``api``: ``counts`` as for `Interface`; ``build``: as for `Message`
`Message`          ``values``: (1,) where the pointer leads to a text, which is in ``data``, (0,) for NULL
`Misuse`           code only
`Environment`      code only
`Restart`          nothing
`Churn`            ``calls``: the first call with another code than it had to give, which is ``code``
                   (else 0, or that of the last refusal); ``counts``: ``rounds`` that were carried out, and
                   the growth of ``fds``, ``mappings``, ``vm``, ``rss`` and ``heap`` (bytes that malloc
                   has given out; absent without glibc)
sections           see `pytest_qnn.qnn.runner.sections`
pieces             see `pytest_qnn.qnn.runner.pieces`
`Parallel`         ``calls``: the call that failed in each thread ("wrong output": none did), its code;
                   of a race: the execute that ended it; of ``logs``: see `pytest_qnn.qnn.runner.logs`
=================  ======================================================================================

A handle or a pointer that a call did not write reads 0x5555555555555555 (`qnn_client.UNTOUCHED`).
A count that is absent is nought. Names: a name stands for the last object made under it, also after its
end (a stale value is passed on); ``NULL`` and ``BOGUS`` are always passed on; a step that needs an object
that was never made, or memory that the client may no longer touch, is skipped and says why. A step with
NULL or BOGUS in place of its context, graph or handles is carried out even where no session can be opened.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from pytest_qnn.isolation.observe import keep_large_blocks_visible
from pytest_qnn.qnn.cases.case import AnyStep, Execute, MemoryCase, Observe, Parallel
from pytest_qnn.qnn.runner import (
    asynchronous,
    binaries,
    buffers,
    graphs,
    logs,
    misuses,
    pieces,
    probes,
    registrations,
    sections,
    threads,
)
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient, array_of
from pytest_qnn.qnn.runner.handlers import HANDLERS, handles
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.rpcmem import Rpcmem
from pytest_qnn.qnn.runner.state import Buffer, Context, MemHandle, NeverMade, Skip, State
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

MODULES: Final[tuple[ModuleType, ...]] = (
    *(asynchronous, binaries, buffers, graphs, logs, misuses),
    *(pieces, probes, registrations, sections, threads),
)
"""The modules whose handlers are entered by their import."""


def run_memory_case(
    case: MemoryCase,
    entry: QnnEntry,
    rpcmem: Rpcmem,
    on_step: Callable[[int], None] | None = None,
) -> MemoryTrace:
    """Carry out a case in this process. Whatever the target does that can be survived is in the trace.

    ``on_step(i)`` is called before step ``i``. Everything the case made is given back at the end, unless the
    case ends the process: whoever carries such a case out ends the process next.
    """
    if any(isinstance(step, Observe) and step.region for step in case.steps):
        keep_large_blocks_visible()
    state = State(QnnClient(entry), rpcmem)
    seen: list[StepSeen] = []
    try:
        for index, step in enumerate(case.steps):
            if on_step is not None:
                on_step(index)
            seen.append(carry_out(state, step))
    finally:
        closing = _leave(state) if case.ends else release(state)
    return MemoryTrace(session=tuple(state.session.codes), steps=tuple(seen), closing=tuple(closing))


def carry_out(state: State, step: AnyStep) -> StepSeen:
    """Carry out one step of a case under way."""
    try:
        return HANDLERS[type(step)](state, step)
    except (Skip, NullFunction) as reason:
        return StepSeen(skipped=str(reason), lacking=isinstance(reason, NeverMade))


@handles(Parallel)
def _parallel(state: State, step: Parallel) -> StepSeen:
    return logs.logs(state, step) if step.what == "logs" else threads.parallel(state, step)


@handles(Execute)
def _execute(state: State, step: Execute) -> StepSeen:
    return asynchronous.execute(state, step) if step.asynchronous else graphs.execute(state, step)


_LEFT: list[State] = []
"""What cases that end their process leave alive."""


def _leave(state: State) -> list[tuple[str, int]]:
    _LEFT.append(state)
    return []


def release(state: State) -> list[tuple[str, int]]:
    """End a case: deregister, free contexts, close the session, free buffers, as real clients do.

    Returns each call with its code, in order.
    """
    codes: list[tuple[str, int]] = []

    def call(name: str, *arguments: Any) -> None:
        with contextlib.suppress(NullFunction):
            codes.append((name, state.client.call(name, *arguments)))

    left = [*state.retired, *state.handles.values(), *state.contexts.values(), *state.buffers.values()]
    for handle in left:
        if isinstance(handle, MemHandle) and handle.live:
            call("memDeRegister", array_of(ctypes.c_void_p, 1)(handle.value), 1)
    for context in left:
        if isinstance(context, Context) and context.live:
            call("contextFree", context.value, None)
    codes += state.session.close()
    asynchronous.release(state)
    pieces.release(state)
    for buffer in left:
        if isinstance(buffer, Buffer) and buffer.live:
            buffers.give_back(state, buffer)
    return codes
