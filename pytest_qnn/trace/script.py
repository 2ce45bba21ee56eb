"""What is seen of a `pytest_qnn.cases.script.ScriptCase`."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_qnn.cases.arrays import Array
from pytest_qnn.core.target import Death
from pytest_qnn.facts import DelegateFacts
from pytest_qnn.trace.delegate import Applied
from pytest_qnn.trace.seen import Borrow, Event, Kernel, PlanNode, Write


class ScriptSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one step of a `ScriptCase` gave; of a repeated step, the last time."""

    ok: bool = True
    message: str = ""
    """The text of the error, where the step ended in one."""
    outputs: tuple[Array, ...] = ()
    """Read: what was read. SetInputs: what was set."""
    cpu: tuple[Array, ...] = ()
    """Read: the same tensors on a fresh interpreter of the runtime's own kernels, without any delegate, with
    the shapes and inputs of the last invoke. Empty where inputs were never set, or the runtime refuses."""
    numbers: dict[str, int] = {}
    """Measure, Place, HandleOutput and more: see each step. Repeat and Parallel: callbacks by kind."""
    skipped: str = ""
    """Why the step was not carried out (an object it needs does not exist)."""
    lines: tuple[str, ...] = ()
    """ReadLog: what the delegate said."""
    first: ScriptSeen | None = None
    """Of a step repeated more than once: what the first time gave."""


class Handled(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A tensor at a kernel's boundary, right before an invoke (an input) or right after it (an output)."""

    kernel: int
    tensor: int
    is_input: bool
    handle: int
    """TfLiteTensor.buffer_handle; -1: none."""
    stale: bool
    """TfLiteTensor.data_is_stale."""
    owned: bool
    """TfLiteTensor.delegate is the delegate of the kernel."""
    written: bool = False
    """An output: the invoke has changed its data."""


class BufferCall(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call of one of a delegate's functions for buffer handles, by the runtime or by a step."""

    kind: Literal["from", "to", "free"]
    """CopyFromBufferHandle, CopyToBufferHandle, FreeBufferHandle."""
    application: int
    handle: int
    tensor: int
    """-1: none (free), or none of the main graph's."""
    status: int
    """free: the handle as it is afterwards."""
    step: int


class BufferFunctions(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which of the functions for buffer handles a delegate's struct has."""

    copy_from: bool
    copy_to: bool
    free: bool


class InterpreterSeen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One interpreter of a `ScriptCase`, from its Open to its end.

    Of interpreters that a Repeat opens, those of the first and last time are kept; of other interpreters'
    events in a Repeat, those of the first and last time.
    """

    name: str
    graph: int
    opened: int
    """Number of the Open step."""
    round: int = 0
    """Which time of a Repeat."""
    plan_before: tuple[PlanNode, ...] = ()
    applied: tuple[Applied, ...] = ()
    """`Applied.step` is the number of the Apply step; `Applied.name` the delegate's specification."""
    delegates: tuple[str, ...] = ()
    """By application: the name that the script gave to the delegate."""
    kernels: tuple[Kernel, ...] = ()
    kernel_steps: tuple[int, ...] = ()
    """By kernel: number of the step during which it was made."""
    events: tuple[Event, ...] = ()
    event_steps: tuple[int, ...] = ()
    """By event: number of the step during which it happened; the number of steps: while all was closed."""
    event_rounds: tuple[int, ...] = ()
    """By event: which time of a Repeat."""
    plans: tuple[tuple[int, tuple[PlanNode, ...]], ...] = ()
    """(number of a step, the plan after it) for each step after which the plan had changed."""
    writes: tuple[Write, ...] = ()
    flags: tuple[tuple[int, ...], ...] = ()
    """By application: TfLiteDelegate.flags before and after each of its Prepare, repetitions left out."""
    borrowed: tuple[Borrow, ...] = ()
    """Only of graphs that have subgraphs."""
    handled: tuple[Handled, ...] = ()
    """In order; only with `ScriptCase.buffers`, as the next two."""
    buffer_calls: tuple[BufferCall, ...] = ()
    functions: tuple[BufferFunctions, ...] = ()
    """By application."""


class Touch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Memory was touched that must not be."""

    why: Literal["outside", "constant", "given-back", "hollow"]
    """``outside``: beside the data of a placed tensor; ``constant``: the contents of a constant, or of a
    buffer placed as read-only; ``given-back``: a buffer that was given back; ``hollow``: the data of a
    tensor inside a partition, which has no memory."""
    access: Literal["read", "write", "access"]
    """``access``: one of the two."""
    interpreter: str
    tensor: int
    """-1: bytes of the model that belong to no tensor."""
    offset: int
    """First byte concerned, from the start of the tensor's data (or of the model)."""
    size: int
    """Bytes of the tensor's data."""
    step: int
    """Number of the step during which it was noticed."""
    application: int = -1
    """Whose callback was at work, as in `InterpreterSeen.applied`; -1: nobody's."""
    kernel: int = -1
    """The kernel whose prepare or invoke it was."""


class ScriptTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `ScriptCase`."""

    steps: tuple[ScriptSeen, ...] = ()
    """By number of the step (`pytest_qnn.cases.script.flat`)."""
    interpreters: tuple[InterpreterSeen, ...] = ()
    """In the order of opening."""
    touches: tuple[Touch, ...] = ()
    """At most a hundred."""
    order_lost: bool = False
    """The process died of the runtime's own defect RT-05 (docs/runtimes.md): nothing else was seen."""
    misaligned: bool = False
    """The process died, and without guard pages it does too: the buffers' alignment is the cause. Nothing
    else is in the trace then."""
    observed: bool = True
    """False: the canary did not hold, so plans and kernels could not be read."""
    ended: bool = False
    """The process ended in good order after the last step, as the case asked for."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""
