"""One interpreter of a script: its state as the client knows it, and what was seen of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pytest_qnn.core.printable import heard
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.observe.guard_pages import Guarded
from pytest_qnn.tflite.observe.handles import CallbackTally, Handles
from pytest_qnn.tflite.observe.profiler import Profiler
from pytest_qnn.tflite.observe.spy import Session
from pytest_qnn.tflite.runner.baseline import Shapes
from pytest_qnn.tflite.runner.custom_buffers import CustomBuffer
from pytest_qnn.tflite.runtime.runtime import RAISED
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.trace import Applied, InterpreterSeen, PlanNode

Action = Callable[[], object]
THROWN = MemoryError.__name__
"""How the message begins of a call that std::bad_alloc has left."""


def attempt(action: Action) -> str:
    """The text of the error that a call to the runtime ends in; empty for success."""
    log = call_log.active()
    function: Any = getattr(action, "func", action)  # that of a functools.partial
    number = log.begin(f"Interpreter.{function.__name__}".encode()) if log else 0
    status = 0
    try:
        action()
    except RAISED as error:
        status = 1
        name, said = type(error).__name__, heard(error)
        return (said or name) if isinstance(error, RuntimeError | ValueError) else f"{name}: {said}"
    finally:
        if log:
            log.end(number, status)
    return ""


class LiveInterpreter:
    """An interpreter. It holds the only reference to the runtime's object.

    Args:
        name: as the script calls it.
        native: the runtime's Interpreter.
        model: the bytes that it was made from, used by nothing else.
        graph: its graph, and the number of it in the case.
        at: number and round of the Open step.
        observed: private state may be read.
        stray_writes: look for writes outside a kernel's outputs.
    """

    def __init__(
        self,
        name: str,
        native: Any,
        model: bytes,
        graph: tuple[Graph, int],
        at: tuple[int, int],
        *,
        observed: bool,
        stray_writes: bool,
    ) -> None:
        self.name = name
        self.native = native
        self.model = model
        self.graph, self.graph_number = graph
        self.opened, self.round = at
        self.opened_between = False
        """Opened in a round of a Repeat of which nothing is kept."""
        self.session = Session(observed=observed, stray_writes=stray_writes)
        if self.graph.subgraphs:
            self.session.subgraph_calls = []
        self.context = context_of(native) if observed else 0
        if self.context:
            self.session.adopt(self.context)
        self.applied: list[Applied] = []
        self.delegates: list[str] = []
        self.shapes = [self.graph.tensors[tensor].shape for tensor in self.graph.inputs]
        self.inputs: list[Array | None] = [None] * len(self.graph.inputs)
        """What the client knows to be in each input."""
        self.ready = False
        """The last allocate_tensors succeeded, and no input was resized since."""
        self.invoked: tuple[Shapes, tuple[Array | None, ...]] | None = None
        """Shapes and inputs of the last invoke, if it succeeded."""
        self.placed: dict[int, Guarded | CustomBuffer] = {}
        """By tensor: the custom allocation in force."""
        self.own: list[Guarded] = []
        """Buffers that no other interpreter can be given."""
        self.model_changed = False
        """That the model's bytes have changed is recorded already."""
        self.handles: Handles | None = None
        """What is seen of buffer handles; None: nobody asked."""
        self.profiler: Profiler | None = None
        """What counts events and questions of the runtime's; None: nobody asked."""
        self.unallocated: dict[int, Guarded] = {}
        """By tensor inside a partition: where its data points to during an invoke."""
        self.plan_before = self.plan()
        self._plan = self.plan_before
        self._plans: list[tuple[int, tuple[PlanNode, ...]]] = []
        self._kernel_steps: list[int] = []
        self._kept_kernels = 0
        self._event_steps: list[int] = []
        self._event_rounds: list[int] = []

    def plan(self) -> tuple[PlanNode, ...]:
        """The execution plan as it is now."""
        return private_plan(self.context, self.session.owners) if self.context else ()

    @property
    def known(self) -> frozenset[int]:
        """Inputs whose contents the client has set."""
        pairs = zip(self.graph.inputs, self.inputs, strict=True)
        return frozenset(tensor for tensor, value in pairs if value is not None)

    def resized(self) -> Shapes:
        """The inputs whose shape is not the model's."""
        pairs = zip(self.graph.inputs, self.shapes, strict=True)
        return tuple((tensor, shape) for tensor, shape in pairs if self.graph.tensors[tensor].shape != shape)

    def shaped(self) -> Graph:
        """The graph with its inputs as they are shaped now."""
        tensors = list(self.graph.tensors)
        for tensor, shape in self.resized():
            tensors[tensor] = msgspec.structs.replace(tensors[tensor], shape=shape)
        return msgspec.structs.replace(self.graph, tensors=tuple(tensors))

    def forget_inputs(self) -> None:
        """The runtime may have moved its tensors: only inputs in the client's own memory are as they were.

        What outputs hold then is no result of an earlier invoke either.
        """
        self.invoked = None
        for position, tensor in enumerate(self.graph.inputs):
            if tensor not in self.placed:
                self.inputs[position] = None

    def destroy(self) -> None:
        """Destroy the runtime's object."""
        self.native = None
        self.profiler = None
        self.session.around = None
        if self.handles:
            self.handles.forget()
        self.context = 0
        self.session.forget()
        for buffer in (*self.unallocated.values(), *self.own):
            buffer.close()
        self.unallocated.clear()
        self.own.clear()

    def attribute_events(self, step: int, round_: int, counts: CallbackTally | None, *, keep: bool) -> None:
        """Put the callbacks and the plan down to a step."""
        session = self.session
        known = len(self._event_steps)
        if counts is not None:
            counts.add(session.events[known:])
        if not keep:
            # Memory that is counted would find what is kept here instead.
            del session.events[known:]
            session.drop_kernels(self._kept_kernels)
            del self._kernel_steps[len(session.kernels) :]
            for claims in session.replaces.values():
                claims.clear()
        new = len(session.events) - known
        self._event_steps += [step] * new
        self._event_rounds += [round_] * new
        self._kernel_steps += [step] * (len(session.kernels) - len(self._kernel_steps))
        self._kept_kernels = len(session.kernels) if keep else self._kept_kernels
        if self.context and keep and (plan := self.plan()) != self._plan:
            self._plan = plan
            self._plans.append((step, plan))

    def seen(self) -> InterpreterSeen:
        """What was seen of it."""
        session = self.session
        return InterpreterSeen(
            name=self.name,
            graph=self.graph_number,
            opened=self.opened,
            round=self.round,
            plan_before=self.plan_before,
            applied=tuple(self.applied),
            delegates=tuple(self.delegates),
            kernels=tuple(session.kernels),
            kernel_steps=tuple(self._kernel_steps),
            events=tuple(session.events),
            event_steps=tuple(self._event_steps),
            event_rounds=tuple(self._event_rounds),
            plans=tuple(self._plans),
            writes=tuple(session.writes),
            flags=tuple(tuple(session.flags.get(number, ())) for number in range(len(self.applied))),
            subgraph_calls=tuple(session.subgraph_calls or ()),
            handled=tuple(self.handles.handled) if self.handles else (),
            buffer_calls=tuple(self.handles.calls) if self.handles else (),
            functions=tuple(self.handles.functions) if self.handles else (),
        )
