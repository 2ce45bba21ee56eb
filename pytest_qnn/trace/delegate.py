"""What is seen of a `pytest_qnn.cases.delegate.DelegateCase`."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.arrays import Array
from pytest_qnn.core.target import Death
from pytest_qnn.facts import DelegateFacts
from pytest_qnn.trace.seen import Event, Kernel, PlanNode, Replace, Write
from pytest_qnn.trace.spied import Spied


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

    def claims(self) -> tuple[tuple[int, ...], ...]:
        """What each Replace claimed of the main graph; calls with no node are left out: they do nothing."""
        return tuple(one.nodes for one in self.replaces if one.nodes and not one.subgraph)


class Twin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the target did on the other interpreter of a case with `DelegateCase.twin`."""

    claim: tuple[int, ...]
    """Nodes of the graph, ascending."""
    kernels: tuple[tuple[int, ...], ...]
    """Per kernel, in the order of init: its nodes."""


class DelegateTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `DelegateCase`."""

    plan_before: tuple[PlanNode, ...] = ()
    applied: tuple[Applied, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    events: tuple[Event, ...] = ()
    plan: tuple[PlanNode, ...] = ()
    """The plan at the time of invoke."""
    allocate_error: str = ""
    hollow: str = ""
    """Why the inputs could not be set: LiteRT 2.3 gives a graph no memory at all that one delegate takes as a
    whole with kTfLiteDelegateFlagsHintFullyDelegatedToSingleDelegate (RT-07). Nothing is invoked then."""
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
    twin: Twin | None = None
    """None: not asked for, or an application failed there."""
    again: tuple[tuple[Array, ...], ...] = ()
    """Outputs of the second time, as ``outputs`` (`DelegateCase.again`)."""
    spied: Spied = Spied()
    observed: bool = True
    """False: the canary did not hold, so plans and kernels could not be read."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""
