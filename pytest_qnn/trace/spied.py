"""What is looked at while the callbacks of delegates run."""

from __future__ import annotations

from typing import Literal

import msgspec

During = Literal["Prepare", "init", "prepare", "invoke"]


class Call(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback called a function of the context that it was refused, or must not call."""

    application: int
    kernel: int
    """-1: Prepare, or an init."""
    during: During
    function: str
    """Member of TfLiteContext."""


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback changed what it must not."""

    application: int
    kernel: int
    during: During
    what: str
    """``inputs``, ``outputs`` (of a node), ``dims``, ``type``, ``data`` (of a tensor)."""
    index: int
    """The node's or tensor's."""
    before: str
    after: str


class Name(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """custom_name of a registration that was passed to Replace."""

    application: int
    text: str
    """At that call; empty: NULL or no text."""
    later: str
    """After the last invoke."""


class Report(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A text given to TfLiteContext.ReportError while a callback was at work (its format, not filled in)."""

    application: int
    kernel: int
    during: During
    text: str


class Asked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A delegate's own call of PreviewDelegatePartitioning."""

    application: int
    nodes: tuple[int, ...]
    made: int
    """Kernels that its Prepare had made by then."""


class Preview(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What PreviewDelegatePartitioning says right before a Replace with the same nodes."""

    application: int
    status: int
    partitions: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]
    """(nodes, inputs, outputs) of each."""
    kernels: int
    """Kernels that there were before the Replace."""


class Added(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A kernel's prepare or invoke was over, and the graph had so many tensors more than before it."""

    kernel: int
    during: During
    count: int


class Spied(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What was seen because the case asked for it (`DelegateCase.look`, `Application.refused`)."""

    refused: tuple[Call, ...] = ()
    """Calls that were answered with an error because the case says so."""
    forbidden: tuple[Call, ...] = ()
    """``forbidden``: calls, in a kernel's prepare or invoke, of functions for a delegate's Prepare only."""
    changes: tuple[Change, ...] = ()
    """``graph``: what Prepare changed; ``data``: data that a kernel's prepare changed."""
    looked_at: int = 0
    """``graph``, ``data``: nodes and tensors compared."""
    names: tuple[Name, ...] = ()
    names_again: tuple[str, ...] = ()
    """The texts of a second time (`DelegateCase.again`: ``interpreter``)."""
    reports: tuple[Report, ...] = ()
    stale: tuple[Call, ...] = ()
    """``lent``: calls with an index from an execution plan that a later GetExecutionPlan had made invalid."""
    plans: int = 0
    """``lent``: execution plans that the target asked for."""
    plans_taken_back: int = 0
    """``lent``: of them, those that a later GetExecutionPlan made invalid before the last invoke."""
    nodes_taken_back: int = 0
    """``lent``: TfLiteNodes that the target asked for, which became invalid at the end of Prepare."""
    previews_taken_back: int = 0
    """``lent``: partitions that the target previewed, which became invalid at the end of Prepare."""
    previews: tuple[Preview, ...] = ()
    asked: tuple[Asked, ...] = ()
    """``previews``, ``lent``: in order."""
    added: tuple[Added, ...] = ()
    """``tensors``: of each prepare and invoke of the target's kernels."""
    order: tuple[tuple[int, ...], ...] = ()
    """``order``: applications of the delegates in force, in the runtime's order: after the last application,
    after allocate, and after each redo."""
