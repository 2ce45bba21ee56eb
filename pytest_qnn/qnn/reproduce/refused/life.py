"""The step `FailedAllocation` as C: its calls are written once, and a loop makes them in several lives.

Which lives there are, and what they are for, stands in requests.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.reproduce.observed import GROWING, Where
from pytest_qnn.qnn.reproduce.recorder import Recorder
from pytest_qnn.qnn.reproduce.text import NotWritten
from pytest_qnn.qnn.runner.buffers import give_back
from pytest_qnn.qnn.runner.client import array_of
from pytest_qnn.qnn.runner.run import carry_out
from pytest_qnn.qnn.runner.series.failed_allocations import _OPENING, _life, _opened
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import GrowthCounts, RefusalCounts, StepSeen

Behind = Callable[[Recorder, Any, State, StepSeen], None]


class _Given(NamedTuple):
    """An object that the life gives back at its end."""

    condition: str
    """That it is there."""
    give_back: Callable[[], object]


def refused(recorder: Recorder, step: case.FailedAllocation, state: State, behind: Behind) -> StepSeen:
    """One life is carried out with nothing refused, and its statements stand in a loop.

    Args:
        recorder: writes the calls.
        step: whose calls they are.
        state: of the case.
        behind: writes what stands behind the calls of a step.

    Returns:
        What a conforming library shows, or that this reference does not carry the life out.
    """
    if not state.session.open():
        raise NotWritten("there is no session")
    if len(set(step.calls)) < len(step.calls):
        raise NotWritten("a call is named twice, of which requests are refused the first time only")
    life = _Life(recorder, step, state, behind)
    try:
        whole = life.write()
    finally:
        recorder.refusals.end()
        recorder.step, recorder.state = step, state
    if not whole:
        return StepSeen(skipped="this reference does not carry out a call that the step needs")
    if not step.nth:
        return StepSeen()
    for what in GROWING:
        recorder.fact(f"grows:{what}", f'grows_by_refusals("{what}")')
    return StepSeen(counts=GrowthCounts(rounds=step.rounds) if step.rounds else RefusalCounts())


class _Life:
    """The calls of one life, from beginning to end."""

    def __init__(self, recorder: Recorder, step: case.FailedAllocation, state: State, behind: Behind) -> None:
        self._recorder, self._step, self._behind = recorder, step, behind
        self._own = State(state.client, state.rpcmem)
        self._own.session, self._own.recorded = state.session, True
        self._handles: list[_Given] = []
        self._contexts: list[_Given] = []
        self._buffers: list[_Given] = []
        self._outputs = 0
        self._guard = ""
        self._last = ("", 0)
        """The last condition, and how many statements there were behind those that stand under it."""

    def write(self) -> bool:
        """Write the loop; False: the reference has not made all calls."""
        recorder, step = self._recorder, self._step
        names = recorder.names.free("calls")
        listed = ", ".join(f'"{function_name(name)}"' for name in step.calls)
        recorder.globals.append(f"static const char* const {names}[] = {{{listed}}};")
        settings = f"{step.nth}, {int(step.lasting)}, {step.rounds}, {names}, {len(step.calls)}"
        recorder.line(f'begin_lives("{step.what}", {settings});')
        lines = recorder.lines()
        begin = len(lines)
        recorder.refusals.begin(step.calls)
        whole = self._calls()
        made = lines[begin:]
        del lines[begin:]
        self._close()
        closing = lines[begin:]
        lines[begin:] = [
            "while (next_life()) {",
            "  do {",
            *(f"    {line}" for line in made),
            "    life.complete = 1;",
            "  } while (0);",
            "  end_life();",
            *(f"  {line}" for line in closing),
            "}",
        ]
        return whole

    # The calls

    def _calls(self) -> bool:
        for call in self._step.calls:
            if call in _OPENING:
                alone = msgspec.structs.replace(self._step, calls=(call,))
                end = self._guarded(self._bit(call))
                failed = _opened(self._own.client, alone)  # type: ignore[arg-type]
                end()
                if failed:
                    return False
        return all(self._carried_out(each) for each in _life(self._step))

    def _bit(self, call: str) -> str:
        return f"has(0x{1 << self._step.calls.index(call):x}u)" if len(self._step.calls) > 1 else ""

    def _guarded(self, condition: str) -> Callable[[], None]:
        """Statements up to the call of what is returned stand under a condition."""
        lines = self._recorder.lines()
        begin = len(lines)

        def end() -> None:
            own = [f"  {line}" for line in lines[begin:]]
            if not condition or not own:
                return
            # As the statements before, if those stand under the same condition.
            if self._last == (condition, begin):
                lines[begin - 1 :] = [*own, "}"]
            else:
                lines[begin:] = [f"if ({condition}) {{", *own, "}"]
            self._last = (condition, len(lines))

        self._guard = condition
        return end

    def _needed_for(self, each: case.AnyStep) -> str:
        """The condition of a step that only one of the calls needs: if that is left out, so is the step."""
        calls = self._step.calls
        for call in calls if len(calls) > 1 else ():
            others = tuple(other for other in calls if other != call)
            if each not in _life(msgspec.structs.replace(self._step, calls=others)):
                return self._bit(call)
        return ""

    def _carried_out(self, each: case.AnyStep) -> bool:
        recorder, own = self._recorder, self._own
        recorder.step, recorder.state = each, own
        end = self._guarded(self._needed_for(each))
        calls = len(recorder.calls)
        seen = carry_out(own, each)
        if seen.skipped or seen.code:
            return False
        self._behind(recorder, each, own, seen)
        if isinstance(each, case.Execute):
            self._compare()
        end()
        self._remember(each, calls)
        return True

    def _compare(self) -> None:
        """Statements that compare the output of the execute with that of the first life."""
        recorder = self._recorder
        pointer, _, size = recorder.facts[Where(recorder.index, "data:0")].partition("\0")
        recorder.line(f"output_is({self._outputs}, {pointer}, {size});")
        self._outputs += 1

    # What is given back

    def _remember(self, each: case.AnyStep, calls: int) -> None:
        """What the step has made; ``calls``: the number of its first call."""
        own, made = self._own, self._if(f"reached({len(self._recorder.calls) - 1})")
        if isinstance(each, case.ContextCreate | case.ContextFromBinary):
            name = each.context
            self._contexts.append(_Given(made, lambda: own.free_context(name)))
        elif isinstance(each, case.Alloc):
            buffer = own.buffers[each.buffer]
            self._buffers.append(_Given(self._if(f"reached({calls - 1})"), lambda: give_back(own, buffer)))
        elif isinstance(each, case.Register):
            self._handles = [_Given(made, self._deregistered(name)) for name in each.handles]
        elif isinstance(each, case.Deregister):
            self._handles = [
                given._replace(condition=f"{given.condition} && !reached({calls - 1})")
                for given in self._handles
            ]

    def _if(self, condition: str) -> str:
        return f"{self._guard} && {condition}" if self._guard else condition

    def _deregistered(self, name: str) -> Callable[[], object]:
        client, value = self._own.client, self._own.handles[name].value
        return lambda: client.call("memDeRegister", array_of(ctypes.c_void_p, 1)(value), 1)

    def _close(self) -> None:
        """As the case's client does it: handles, contexts, then memory, each as far as it is there."""
        recorder = self._recorder
        recorder.refusals.close()
        self._last = ("", 0)
        for given in (*self._handles, *self._contexts, *self._buffers):
            end = self._guarded(given.condition)
            given.give_back()
            end()
        for name in self._memory():
            recorder.line(f"free({name});")
            recorder.line(f"{name} = NULL;")

    def _memory(self) -> Iterator[str]:
        """Variables of what the program has allocated itself: binaries, and copies that were given."""
        recorder = self._recorder
        for each in _life(self._step):
            if isinstance(each, case.GetBinary) and each.binary in recorder.binaries:
                yield recorder.binaries[each.binary][0]
            if isinstance(each, case.ContextFromBinary) and each.context in recorder.given:
                yield recorder.given[each.context][0]
