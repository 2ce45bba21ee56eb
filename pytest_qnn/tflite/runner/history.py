"""Carry out a `History`: what is done in the process before a case.

All of it must succeed, but for the calls that are made to fail. What did not is a text in the trace; a
process that dies of it has died in the case.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final

from pytest_qnn.core.time_limit import TimeLimit
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fault
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.reduce import is_plain
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.observe.profiler import SET_PROFILER, Profiler
from pytest_qnn.tflite.runner.delegates import DelegateFactory, DelegateUnusable, LiveDelegate, is_steerable
from pytest_qnn.tflite.runner.interpreter import attempt
from pytest_qnn.tflite.runtime.runtime import Runtime

Claim = tuple[int, ...] | None

PLAIN: Final = Graph(
    tensors=(Tensor((2, 3)),) * 3,
    nodes=(Node("ABS", (0,), (1,)), Node("ADD", (1, 0), (2,))),
    inputs=(0,),
    outputs=(2,),
)
"""In the place of a large graph, or of one with subgraphs or with shapes that depend on data."""
_SEED = 0xB1F0
_FAULTS: Final[tuple[Fault, ...]] = ("kernel-invoke", "prepare", "kernel-prepare", "init")
_MOST_ELEMENTS = 1 << 14
"""Of all tensors of a graph that is used again and again."""
_SECONDS = 0.5
"""Seconds of processor time, after which nothing is begun any more: a delegate may take long to be made."""
_REPEATING = 0.1
"""The same, for repetitions of the case."""


def is_used_again(graph: Graph) -> bool:
    """Whether the history of a case of this graph is about it, and not about `PLAIN`."""
    return is_plain(graph) and sum(prod(tensor.shape) for tensor in graph.tensors) <= _MOST_ELEMENTS


class Past:
    """What a history has made and is still there.

    Args:
        history: what to do; None: nothing.
        graph: of the case.
        claim: of the case's first application of the target.
        chain: the target.
        runtime: where interpreters come from.
    """

    def __init__(
        self,
        history: History | None,
        graph: Graph,
        claim: Claim,
        chain: Sequence[DelegateFactory],
        runtime: Runtime,
    ) -> None:
        self.error = ""
        """What failed first that must not."""
        self._history = history or History()
        again = is_used_again(graph)
        self._graph = graph if again else PLAIN
        self._claim = claim if again else None
        self._chain = chain
        self._runtime = runtime
        self._kept: list[_Used] = []
        self._turns = 0
        self._profilers: list[Profiler] = []
        """They must outlive their interpreters."""
        if history is not None:
            self._live()

    def repeat(self, once: Callable[[], object]) -> None:
        """Carry the case out as often as the history says; ``once`` does so and leaves nothing behind."""
        limit = TimeLimit(_REPEATING)
        for number in range(self._history.repeated):
            if number and limit.is_over:
                break
            self._do(once)

    def _live(self) -> None:
        history = self._history
        limit = TimeLimit(_SECONDS)
        parts: tuple[tuple[int, Callable[[int], object]], ...] = (
            (history.made, self._make),
            (history.failed, self._fail),
            (history.used, lambda _: self._use().close()),
            (history.kept, lambda _: self._kept.append(self._use())),
        )
        for count, action in parts:
            for number in range(count):
                if number and limit.is_over:
                    break
                self._do(functools.partial(action, number))

    def _do(self, action: Callable[[], object]) -> None:
        try:
            action()
        except DelegateUnusable as error:
            self.error = self.error or str(error)

    def _make(self, _: int) -> None:
        for factory in self._chain:
            factory.make(Application(claim=self._claim)).close()

    @functools.cached_property
    def _model(self) -> bytes:
        return emit(self._graph)

    def _open(self, fault: Fault = "") -> _Used:
        return _Used(self._graph, self._runtime.interpreter(self._model), self._chain, self._claim, fault)

    def _use(self) -> _Used:
        used = self._open()
        self.profile(used.native)
        self.error = self.error or used.start()
        for number in range(self._history.invokes):
            if self._history.resized and number == self._history.invokes - 1:
                self.error = self.error or used.resize_and_back()
            self.error = self.error or used.invoke(number)
        return used

    def profile(self, native: Any) -> None:
        """Attach a profiler to an interpreter, if the history says so and the runtime can."""
        if self._history.profiled and self._runtime.has_symbol(SET_PROFILER):
            profiler = Profiler()
            profiler.profile(self._runtime.symbol(SET_PROFILER), native._native_handle())
            self._profilers.append(profiler)

    def _fail(self, number: int) -> None:
        """Calls that fail.

        An invoke before the delegate is applied, and one between a resize and the next allocate; values of
        another shape than the input's; an input that there is not; and where the target can be told so, a
        callback of the delegate's.
        """
        steerable = all(is_steerable(factory.name) for factory in self._chain)
        used = self._open(_FAULTS[number % len(_FAULTS)] if steerable else "")
        used.invoke_too_early()
        message = used.start() or used.fail()
        if steerable:
            attempt(lambda: used.invoke(0))
        else:
            self.error = self.error or message or used.invoke(0)
        used.close()

    def turn(self) -> None:
        """The case is about to invoke: one of the interpreters that are kept is invoked."""
        if self._kept:
            self._turns += 1
            used = self._kept[self._turns % len(self._kept)]
            self.error = self.error or used.invoke(self._turns)

    def end(self) -> None:
        """Destroy what is still there: at the end, or before a library is closed, whose code it needs."""
        for used in reversed(self._kept):
            used.close()
        self._kept.clear()


@contextlib.contextmanager
def lived(past: Past) -> Iterator[Past]:
    """The past, whose objects are destroyed at the end."""
    try:
        yield past
    finally:
        past.end()


class _Used:
    """An interpreter and its delegates, outside the case."""

    def __init__(
        self, graph: Graph, native: Any, chain: Sequence[DelegateFactory], claim: Claim, fault: Fault
    ) -> None:
        self.native = native
        self._graph = graph
        self._delegates: list[LiveDelegate] = []
        try:
            for factory in chain:
                self._delegates.append(factory.make(Application(claim=claim, fault=fault)))
        except DelegateUnusable:
            self.close()
            raise

    def start(self) -> str:
        """Apply and allocate; what failed."""
        message = self._apply()
        if message:
            return f"ModifyGraphWithDelegate: {message}"
        message = attempt(self.native.allocate_tensors)
        return message and f"allocate_tensors: {message}"

    def _apply(self) -> str:
        # In a function of its own: allocate_tensors refuses while anybody refers to the wrapped interpreter.
        modify = self.native._interpreter.ModifyGraphWithDelegate
        messages = (attempt(functools.partial(modify, delegate.address)) for delegate in self._delegates)
        return next(filter(None, messages), "")

    def invoke(self, number: int) -> str:
        """Set the inputs, and invoke; what failed."""
        case = DelegateCase(self._graph, data_seed=_SEED + number)
        try:
            for tensor, values in zip(self._graph.inputs, inputs_of(case), strict=True):
                self.native.set_tensor(tensor, values)
        except ValueError:
            return ""  # the delegate took the whole graph, which then has no memory (RT-07)
        message = attempt(self.native.invoke)
        return message and f"invoke {number}: {message}"

    def resize_and_back(self) -> str:
        """Resize the first input, give it its shape again, and allocate; what failed."""
        self._resize()
        self._resize(more=0)
        message = attempt(self.native.allocate_tensors)
        return message and f"allocate_tensors after a resize and back: {message}"

    def _resize(self, more: int = 1) -> None:
        """Give the first input the shape of the graph, with a longer first dimension."""
        for tensor in self._graph.inputs[:1]:
            first, *others = self._graph.tensors[tensor].shape
            self.native.resize_tensor_input(tensor, (first + more, *others))

    def invoke_too_early(self) -> None:
        """An invoke that the runtime refuses: tensors are not allocated, or not any more."""
        attempt(self.native.invoke)

    def fail(self) -> str:
        """Calls of a client's that are refused, and what must not fail behind them."""
        for tensor in self._graph.inputs[:1]:
            attempt(functools.partial(self.native.resize_tensor_input, len(self._graph.tensors) + 99, (1,)))
            values = inputs_of(DelegateCase(self._graph))[0]
            attempt(functools.partial(self.native.set_tensor, tensor, values[None]))
        self._resize()
        self.invoke_too_early()
        return self.resize_and_back()

    def close(self) -> None:
        """Destroy the interpreter, then the delegates."""
        self.native = None
        for delegate in reversed(self._delegates):
            delegate.close()
        self._delegates.clear()
