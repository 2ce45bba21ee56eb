"""Trace: what was seen, as immutable data. It crosses processes as MessagePack."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_qnn.cases.arrays import Array
from pytest_qnn.facts import DelegateFacts, MemoryFacts


class Death(msgspec.Struct, frozen=True, gc=False):
    """How the process of a sandboxed case ended when it did not hand over its trace."""

    kind: Literal["signal", "exit", "hang", "garbage"]
    detail: str
    """``SIGSEGV``, ``exit status 3``, ``no answer within 10 s``, ..."""
    step: int = -1
    """The step (memory) or phase (delegate) that had begun; -1: none."""


class PlanNode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node of an execution plan as read from the runtime."""

    index: int
    op: int
    """TfLiteBuiltinOperator; 51 is a delegate's kernel."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    owner: int
    """Position in `DelegateTrace.applied` of the delegate that owns the node; -1: the CPU."""
    name: str = ""
    """custom_name of a kernel's registration."""


class Replace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A ReplaceNodeSubsetsWithDelegateKernels call by a delegate's Prepare."""

    nodes: tuple[int, ...]
    """As passed: order and duplicates kept."""
    status: int


class Kernel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A partition as its kernel's init received it (TfLiteDelegateParams)."""

    application: int
    kernel: int
    """Number of the kernel in this trace, from 0, in the order of init."""
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback, in order."""

    kind: Literal["Prepare", "init", "prepare", "invoke", "free"]
    application: int
    kernel: int
    """-1 for Prepare, and for a free of user data that no init returned."""
    status: int = 0


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A kernel changed memory that is not its output."""

    application: int
    kernel: int
    tensor: int
    offset: int
    """First changed byte."""
    is_input: bool


class Applied(msgspec.Struct, frozen=True, gc=False):
    """One delegate's application."""

    name: str
    is_target: bool
    step: int
    """Position in `DelegateCase.applications`."""
    ok: bool
    """ModifyGraphWithDelegate succeeded."""
    message: str
    plan_seen: tuple[PlanNode, ...]
    """The plan as the delegate's Prepare could read it; empty when Prepare was not called."""
    prepared: bool
    """Prepare was called."""
    prepare_status: int
    replaces: tuple[Replace, ...]
    plan_after: tuple[PlanNode, ...]


class DelegateTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `DelegateCase`."""

    plan_before: tuple[PlanNode, ...] = ()
    applied: tuple[Applied, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    events: tuple[Event, ...] = ()
    plan: tuple[PlanNode, ...] = ()
    """The plan at the time of invoke."""
    allocate_error: str = ""
    invoke_errors: tuple[str, ...] = ()
    """Per invoke: the exception's text, empty for success."""
    inputs: tuple[Array, ...] = ()
    outputs: tuple[tuple[Array, ...], ...] = ()
    """Per invoke, in the order of `Graph.outputs`."""
    inputs_after: tuple[Array, ...] = ()
    """Graph inputs as they read after the last invoke."""
    cpu: tuple[Array, ...] = ()
    """The outputs of the same graph on the runtime's own kernels, no delegate."""
    writes: tuple[Write, ...] = ()
    observed: bool = True
    """False: the canary did not hold, so plans and kernels could not be read."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""


class StepSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one step of a `MemoryCase` gave."""

    code: int | None = None
    """The Qnn_ErrorHandle_t as returned, all 64 bits; None: no QNN call was made."""
    calls: tuple[tuple[str, int], ...] = ()
    """Prepare: each call with its code, in order (the last one is the failed one, if any)."""
    values: tuple[int, ...] = ()
    """Handle values, pointers, descriptors: for each kind of step see the table in `pytest_qnn.run.memory`.

    0x5555555555555555: the call did not write this handle.
    """
    data: tuple[bytes, ...] = ()
    """Bytes read: outputs of an execute, or of a Read."""
    counts: dict[str, int] = {}
    """Observe: fds, mappings, memfds, memfd:NAME, regions, vm, rss. Execute: inputs_changed, output_overrun.

    Alloc: first_writable, last_writable. Register: descriptors_changed. Providers: count, listed. One that is
    absent is nought.
    """
    regions: tuple[tuple[int, int], ...] = ()
    """Observe: (address, resident bytes) of each mapping of the wanted size."""
    skipped: str = ""
    """Why the step was not carried out (an object it needs was never made)."""


class MemoryTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `MemoryCase`."""

    session: tuple[tuple[str, int], ...] = ()
    """Codes of opening the session, in order, up to the first failure."""
    steps: tuple[StepSeen, ...] = ()
    closing: tuple[tuple[str, int], ...] = ()
    """Codes of closing it."""
    death: Death | None = None
    facts: MemoryFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""
