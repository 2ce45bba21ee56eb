"""What exists while a ScriptCase is carried out: interpreters, delegates, buffers, and what was seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from pytest_qnn.isolation.host.refusals import Refusing
from pytest_qnn.isolation.observe.own_allocator import OwnAllocator
from pytest_qnn.isolation.observe.process import snapshot
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.cases.models import graphs_of, models_of
from pytest_qnn.tflite.cases.script import AnyScriptStep, Kept, Measure, Refuse, ScriptCase, flat
from pytest_qnn.tflite.observe import handles, spy
from pytest_qnn.tflite.observe.guard_pages import Guarded
from pytest_qnn.tflite.observe.handles import Where
from pytest_qnn.tflite.observe.stderr import StderrCapture
from pytest_qnn.tflite.runner.custom_buffers import CustomBuffer
from pytest_qnn.tflite.runner.delegates import DelegateFactory, LiveDelegate
from pytest_qnn.tflite.runner.interpreter import LiveInterpreter
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.trace import (
    NOT_REACHED,
    InterpreterSeen,
    MeasureCounts,
    ScriptSeen,
    ScriptTrace,
    Touch,
)

MOST_TOUCHES = 100
OnStep = Callable[[int], None]
Chain = Sequence[DelegateFactory]
_OF_A_PAIR = 3
"""Measures around a short and a long repetition."""
_COUNTED = tuple(name for name in Kept.__struct_fields__ if name != "pair")


class Skip(Exception):  # noqa: N818 - a step that is not carried out is no error
    """The step cannot be carried out; the text says why."""


class BackendCalls(Protocol):
    """The calls that a delegate makes of its QNN backend, as far as they concern shared memory."""

    def used(self, address: int) -> bool:
        """The memory there is registered, and an execute has used its handle."""


class Made:
    """A delegate of the script."""

    def __init__(self, name: str, factory: DelegateFactory, application: Application) -> None:
        self.name = name
        self.specification = factory.name
        self.is_target = application.who == "target"
        self.live: LiveDelegate = factory.make(application)
        self.users: list[LiveInterpreter] = []
        """Open interpreters that it was applied to, or that it was tried to apply it to."""


def _grown(before: MeasureCounts, after: MeasureCounts) -> dict[str, int]:
    """By how much each number is larger; one that cannot be had is 0."""
    return {name: (getattr(after, name) or 0) - (getattr(before, name) or 0) for name in _COUNTED}


class Pending(NamedTuple):
    """A `Refuse` step that waits for the step behind it."""

    number: int
    step: Refuse
    who: Refusing


class World:
    """Everything that one script has made so far.

    Args:
        case: the script.
        chain: the target: its delegates in order of precedence.
        runtime: where the interpreters come from.
        remake: (position in the chain, further options) -> a factory.
        on_step: called with the number of each step that begins.
    """

    before_invoke: Callable[[], object]
    """Called before each Invoke of the main thread."""
    before_unload: Callable[[], object]
    """Called before a library is closed: destroys the delegates that the case does not know."""

    def __init__(
        self,
        case: ScriptCase,
        chain: Chain,
        runtime: Runtime,
        remake: Callable[[int, Mapping[str, str]], DelegateFactory],
        on_step: OnStep | None,
    ) -> None:
        self.case = case
        self.chain = chain
        self.runtime = runtime
        self.remake = remake
        self.graphs = graphs_of(case)
        """As the files have them."""
        self.models = models_of(case)
        self.count = len(flat(case.steps))
        self.where = Where()
        self.lock = threading.RLock()
        """Held while objects are made, joined to one another or destroyed: branches may do so at a time."""
        self.interpreters: dict[str, LiveInterpreter] = {}
        self.delegates: dict[str, Made] = {}
        self.buffers: dict[str, Guarded] = {}
        self.custom: dict[str, CustomBuffer] = {}
        self.touches: list[Touch] = []
        self.errors: list[BaseException] = []
        """What went wrong in the spy itself."""
        self.reserve: object = None
        """Room for Python's own objects, where the process is measured (`small_blocks_in_reserve`)."""
        self.threads: list[int] = []
        """How many each Measure found."""
        self.measures = any(isinstance(step, Measure) for step in flat(case.steps))
        self._before = snapshot().lines if self.measures else ()
        """/proc/self/maps before the script's first delegate."""
        self.allocator: OwnAllocator | None = None
        """Where the script measures: that of the target's first delegate, if it does not use malloc."""
        self.measured: list[MeasureCounts] = []
        """What each Measure found."""
        self.longest = 0
        """Turns of the longest Repeat so far."""
        self.shortest = 0
        """Turns of the shortest."""
        self._kept: dict[Kept, bool] = {}
        self.vain = 0
        """How often a Measure has waited for something to be given back, and nothing was."""
        self.stderr: StderrCapture | None = None
        """What native delegates say; None: nobody asked, or nobody can hear it."""
        self.calls: dict[str, BackendCalls] = {}
        """Of delegates whose log is read, by name: their calls of a QNN backend, where these can be seen."""
        self.pending: Pending | None = None
        """The step before, if that was a Refuse."""
        self.thrown = False
        """An exception has passed the runtime, of which nothing more can be expected: not even its end."""
        self.asked: dict[tuple[type[AnyScriptStep], str], int] = {}
        """Requests that steps of a kind made for a resource, where they were counted."""
        self.before_invoke = self.before_unload = lambda: None
        self._on_step = on_step
        self._seen: list[ScriptSeen] = [ScriptSeen(ok=False, skipped=NOT_REACHED)] * self.count
        self._ended: list[LiveInterpreter] = []

    def look_where_it_lives(self, address: int) -> None:
        """Remember in whose memory a delegate of the target's is: malloc's, or an allocator of its own."""
        if self.measures and self.allocator is None:
            self.allocator = OwnAllocator.of(address, snapshot().lines, self._before)

    def keeps(self, least: Kept) -> bool:
        """Whether the process has kept this; asked once, before what depends on it begins."""
        if least not in self._kept:
            enough = self._of_a_pair if least.pair else self._so_far
            self._kept[least] = all(self._kept.values()) and enough(least)
        return self._kept[least]

    def _so_far(self, least: Kept) -> bool:
        """Whether some number has grown by so much for each turn."""
        if not self.measured:
            return False
        return self._reached(least, _grown(self.measured[0], self.measured[-1]), max(1, self.longest))

    def _of_a_pair(self, least: Kept) -> bool:
        """Whether the long one of the first two repetitions has left so much more; yes if nobody can say."""
        if len(self.measured) < _OF_A_PAIR or self.measured[0].arena is not None:
            return True
        first, second, third = self.measured[:_OF_A_PAIR]
        few, many = _grown(first, second), _grown(second, third)
        more = {name: many[name] - few[name] for name in many}
        return self._reached(least, more, self.longest - self.shortest)

    @staticmethod
    def _reached(least: Kept, grown: Mapping[str, int], turns: int) -> bool:
        asked = ((getattr(least, name), grown[name]) for name in grown)
        return any(each and more >= each * turns for each, more in asked)

    def begin(self, number: int) -> None:
        """A step begins."""
        self.where.number = number
        if self._on_step is not None:
            self._on_step(number)

    def record(self, number: int, seen: ScriptSeen) -> None:
        """What a step gave; of a step repeated, the first time's stays beside the latest."""
        if self.where.round:
            before = self._seen[number]
            seen = msgspec.structs.replace(seen, first=before.first or before)
        self._seen[number] = seen

    def interpreter(self, name: str) -> LiveInterpreter:
        """The open interpreter of this name.

        Raises:
            Skip: there is none, or another branch uses it.
        """
        live = self.interpreters.get(name)
        if live is None:
            raise Skip(f"there is no open interpreter {name}")
        if self.where.alone and name in self.where.alone:
            raise Skip(f"another branch uses the interpreter {name}")
        return live

    def context(self, live: LiveInterpreter) -> int:
        """The TfLiteContext of an interpreter; Skip: private state cannot be found on this runtime."""
        if not live.context:
            raise Skip("tensors and subgraphs cannot be found on this runtime")
        return live.context

    def symbol(self, name: str) -> int:
        """The address of a function of the runtime; Skip: it is not exported."""
        try:
            return self.runtime.symbol(name)
        except LookupError as error:
            raise Skip(str(error)) from None

    def delegate(self, name: str) -> Made:
        """The delegate of this name.

        Raises:
            Skip: there is none.
        """
        made = self.delegates.get(name)
        if made is None:
            raise Skip(f"there is no delegate {name}")
        return made

    def attribute_events(self, live: LiveInterpreter) -> None:
        """Put the callbacks since the last time down to the running step."""
        where = self.where
        live.attribute_events(where.number, where.round, where.counts, keep=not where.middle)

    def touch(self, touch: Touch) -> None:
        """Record what was touched."""
        if len(self.touches) < MOST_TOUCHES:
            self.touches.append(touch)

    def close(self, name: str) -> None:
        """Destroy an interpreter."""
        live = self.interpreters.pop(name)
        live.destroy()
        self.attribute_events(live)
        for made in self.delegates.values():
            made.users = [user for user in made.users if user is not live]
        self.errors += live.session.errors
        if not live.opened_between:
            self._ended.append(live)

    def destroy(self, name: str) -> None:
        """Destroy a delegate."""
        made = self.delegates.pop(name)
        # Delegates without state may be one struct, which is observed as long as one of them is there.
        if all(other.live.address != made.live.address for other in self.delegates.values()):
            spy.release(made.live.address)
            handles.release(made.live.address)
        made.live.close()

    def end(self) -> None:
        """Destroy what is left: interpreters, custom memory, delegates, buffers, in this order."""
        self.begin(self.count)
        for name in reversed(list(self.interpreters)):
            self.close(name)
        for custom in self.custom.values():
            custom.give_back()
        self.custom.clear()
        for name in reversed(list(self.delegates)):
            self.destroy(name)
        for buffer in self.buffers.values():
            buffer.close()
        self.buffers.clear()

    def trace(self) -> ScriptTrace:
        """What was seen, complete only after `end`."""
        seen: list[InterpreterSeen] = [live.seen() for live in self._ended]
        return ScriptTrace(
            steps=tuple(self._seen),
            interpreters=tuple(sorted(seen, key=lambda one: (one.opened, one.round))),
            touches=tuple(self.touches),
            observed=self.runtime.observed,
        )


Handler = Callable[[World, Any], ScriptSeen]
Handlers = Mapping[type[AnyScriptStep], Handler]


def result(message: str) -> ScriptSeen:
    """A step that ended in the error of this text, or in none."""
    return ScriptSeen(ok=not message, message=message)
