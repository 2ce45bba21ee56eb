"""What is seen of delegates and their kernels, whatever kind of case they are in."""

from __future__ import annotations

from typing import Literal

import msgspec


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
    tail: tuple[tuple[str, int, str], ...] = ()
    """(member, value, what it shows: ``code``, ``memory`` or ``nothing``) of the registration's last three
    members (registration_external, async_kernel, inplace_operator), where not zero."""
    subgraph: int = 0
    """On which one, as in `Kernel.subgraph`."""


class Kernel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A partition as its kernel's init received it (TfLiteDelegateParams)."""

    application: int
    kernel: int
    """Number of the kernel in this trace, from 0, in the order of init."""
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraph: int = 0
    """Where it is: 0 is the main graph; others count in the order in which they were first prepared, which is
    that of the model."""


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback, in order."""

    kind: Literal["Prepare", "init", "prepare", "invoke", "free"]
    application: int
    kernel: int
    """-1 for Prepare, and for a free of user data that no init returned."""
    status: int = 0
    subgraph: int = 0
    """Prepare: which one was prepared, as in `Kernel.subgraph`."""


class Borrow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call of AcquireSubgraphContext or ReleaseSubgraphContext by a delegate's Prepare."""

    application: int
    subgraph: int
    """The one that was prepared, as in `Kernel.subgraph`."""
    index: int
    """The one that was asked for."""
    acquire: bool
    status: int


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A kernel changed memory that is not its output."""

    application: int
    kernel: int
    tensor: int
    offset: int
    """First changed byte."""
    is_input: bool
