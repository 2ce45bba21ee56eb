"""Carry out a PluginCase, and write down what was seen."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.printable import heard
from pytest_qnn.core.time_limit import TimeLimit
from pytest_qnn.isolation.libc import few_descriptors
from pytest_qnn.isolation.observe.own_allocator import OwnAllocator
from pytest_qnn.isolation.observe.process import malloc_in_use, small_blocks_in_reserve, snapshot, threads
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.plugin import (
    AnyPluginStep,
    Apply,
    Copy,
    Create,
    Cycle,
    Destroy,
    Options,
    OverwriteArguments,
    PluginCase,
)
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.observe.guard_pages import Guarded
from pytest_qnn.tflite.observe.plugin_struct import read_struct
from pytest_qnn.tflite.observe.prepare import Operators
from pytest_qnn.tflite.runner.delegates import DelegateFactory, LibraryFactory
from pytest_qnn.tflite.runner.plugin.library import NoCopy, NoInterface, Plugin, open_plugin
from pytest_qnn.tflite.runtime.runtime import RAISED, Runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.trace import Access, ArgumentTouch, PluginSeen, PluginTrace, TouchReason

OnStep = Callable[[int], None]

_SPOILT = b"#spoilt#"
_POINTER = 8
_PAST = "past"
"""Name of a delegate of a history."""
_UNKNOWN = (b"pytest_qnn_unknown_option", b"1")
_PAST_SECONDS = 0.5
"""After so long nothing of a history is begun any more."""
Steps = tuple[AnyPluginStep, ...]
_TO_END = 1.0
"""Seconds that threads have to end, after the delegates of a Cycle."""
_PAUSE = 0.002
_CYCLE_SECONDS = 2.0
"""What the delegates of one Cycle may take together, as far as their number can be chosen."""


def run_plugin_case(
    case: PluginCase,
    chain: Sequence[DelegateFactory],
    runtime: Runtime,
    on_step: OnStep | None = None,
    given: Options = (),
) -> PluginTrace:
    """Carry out the steps in order; a step whose delegate does not exist is skipped.

    ``given``: the options of the specification, with which delegates of the case's history are made.

    Raises:
        ValueError: the runtime refuses the model.
    """
    factory = chain[min(case.delegate, len(chain) - 1)]
    try:
        plugin = open_plugin(factory, runtime)
    except NoInterface as reason:
        return PluginTrace(missing=str(reason))
    run = _Run(case, plugin, runtime, is_library=isinstance(factory, LibraryFactory))
    past = run.live(case.history, given) if case.history is not None else ""
    seen = []
    for number, step in enumerate(case.steps):
        if on_step is not None:
            on_step(number)
        seen.append(run.step(step))
    run.end()
    return PluginTrace(library=plugin.seen, steps=tuple(seen), cpu=run.cpu, past=past)


class _Arguments:
    """Keys, values and report_error of one create, as C reads them.

    Args:
        options: the options.
        late: where texts are put that are reported once create has returned.
        touched: where accesses behind the arrays and texts are put; None: nobody looks for any.
    """

    def __init__(self, options: Options, late: list[str], touched: list[ArgumentTouch] | None = None) -> None:
        self.reports: list[str] = []
        """Texts that were reported before."""
        self.returned = False
        self._late = late
        self._spoilt = _buffer(_SPOILT)
        self.count = len(options)
        parts = [part for pair in options for part in pair]
        self._fences: list[Guarded] = []
        if touched is None:
            self.strings = list(map(_buffer, parts))
            self.keys, self.values = (_array(self.strings[at::2]) for at in (0, 1))
        else:
            named = zip(parts, map(_name_of_text, range(len(parts))), strict=True)
            self.strings = [self._fenced_text(part, name, touched) for part, name in named]
            self.keys, self.values = (
                self._fenced_array(self.strings[at::2], name, touched)
                for at, name in enumerate(("keys", "values"))
            )
        self.before = self._contents()
        self._callback = layouts.PluginReport(self._hear)
        self.report = ctypes.cast(self._callback, ctypes.c_void_p).value

    def _hear(self, text: bytes | None) -> None:
        (self._late if self.returned else self.reports).append(heard(text or b""))

    def _fenced_text(self, text: bytes, name: str, touched: list[ArgumentTouch]) -> Any:
        place = self._fence(len(text) + 1, name, touched)
        found = (ctypes.c_char * (len(text) + 1)).from_address(place)
        found.raw = text + b"\0"
        return found

    def _fenced_array(self, strings: list[Any], name: str, touched: list[ArgumentTouch]) -> Any:
        place = self._fence(_POINTER * len(strings), name, touched)
        # Who takes one entry too many for a text lives to be told so.
        self._fences[-1].put_behind(ctypes.addressof(self._spoilt).to_bytes(_POINTER, "little"))
        found = (ctypes.c_void_p * len(strings)).from_address(place)
        found[:] = list(map(ctypes.addressof, strings))
        return found

    def _fence(self, size: int, name: str, touched: list[ArgumentTouch]) -> int:
        """The address of so many bytes in front of a page that nobody may touch."""

        def note(_: TouchReason, access: Access, offset: int) -> None:
            if all(one.what != name for one in touched):
                touched.append(ArgumentTouch(name, access, offset - size))

        fence = Guarded(size, "flush", tail=0)
        fence.on_touch = note
        fence.arm()
        self._fences.append(fence)
        return fence.address

    def close(self) -> None:
        """Unmap what is guarded: nobody has it any more."""
        for fence in self._fences:
            fence.close()
        self._fences.clear()

    def _contents(self) -> list[tuple[str, bytes]]:
        named = [("keys", bytes(self.keys)), ("values", bytes(self.values))]
        return named + [(_name_of_text(at), part.raw) for at, part in enumerate(self.strings)]

    def modified(self) -> tuple[str, ...]:
        """What is not as it was made."""
        pairs = zip(self.before, self._contents(), strict=True)
        return tuple(name for (name, old), (_, new) in pairs if old != new)

    def spoil(self) -> None:
        """Overwrite every text, and let every pointer show a wrong one."""
        for part in self.strings:
            part.raw = b"#" * (len(part) - 1) + b"\0"
        for array in (self.keys, self.values):
            for at in range(self.count):
                array[at] = ctypes.addressof(self._spoilt)


def _name_of_text(at: int) -> str:
    return f"{('key', 'value')[at % 2]} {at // 2}"


def _buffer(text: bytes) -> Any:
    return ctypes.create_string_buffer(text, max(len(text) + 1, len(_SPOILT) + 1))


def _array(strings: list[Any]) -> Any:
    # One element more than there are: an empty array would have no address of its own.
    return (ctypes.c_void_p * (len(strings) + 1))(*map(ctypes.addressof, strings))


class _Live:
    """A delegate that a create returned."""

    def __init__(self, address: int, plugin: Plugin, arguments: _Arguments) -> None:
        self.address = address
        self.plugin = plugin
        self.arguments = arguments


class _Run:
    """One case on its way."""

    def __init__(self, case: PluginCase, plugin: Plugin, runtime: Runtime, *, is_library: bool) -> None:
        self.case = case
        self.plugin = plugin
        cycles = any(isinstance(step, Cycle) for step in case.steps)
        self._reserve = small_blocks_in_reserve() if cycles else None
        # What is written in Python lives in Python's memory: there is nothing to look for.
        self._before = snapshot().lines if cycles and is_library else ()
        """/proc/self/maps where a library's memory may be measured."""
        self.cpu: tuple[Array, ...] = ()
        self._runtime = runtime
        self._graph_case = DelegateCase(case.graph, data_seed=case.data_seed)
        self._model = emit(case.graph)
        self._live: dict[str, _Live] = {}
        self._kept: list[_Arguments] = []
        """Plugins may call a report_error later, or read their options: they must find them."""
        self._late: list[str] = []
        self._touched: list[ArgumentTouch] = []
        if any(isinstance(step, Apply) for step in case.steps):
            self.cpu = self._outputs(self._interpreter())

    def live(self, history: History, given: Options) -> str:
        """Carry out the history by the plugin's own functions; what went wrong.

        A delegate with an option that nobody knows need not be made. That a plugin makes none at all the case
        itself shows. Profilers, further invokes and resizes are of no concern to these functions.
        """
        limit = TimeLimit(_PAST_SECONDS)
        refused: Steps = (Create(_PAST, (*given, _UNKNOWN)), Destroy(_PAST))
        used: Steps = (Create(_PAST, given), Apply(_PAST), Destroy(_PAST))
        error, has_made = "", False
        arguments = _Arguments(given, self._late)
        self._kept.append(arguments)
        places = ctypes.addressof(arguments.keys), ctypes.addressof(arguments.values), arguments.count
        for _ in range(history.made):
            if not limit.is_over and self.plugin.create and self.plugin.destroy:
                self._make_and_destroy(*places, arguments.report)
        for steps in (refused,) * history.failed + (used,) * history.used:
            for step in steps if not limit.is_over else ():
                seen = self.step(step)
                failed = seen.made is False and steps is not refused and has_made
                has_made = has_made or seen.made is True
                error = error or seen.error or ("create returned NULL" if failed else "")
        for number in range(history.repeated):
            if not limit.is_over:
                self._repeat(f"{_PAST}{number}")
        for number in range(history.kept):
            name = f"{_PAST}{number}"
            for step in (Create(name, given), Apply(name)):
                error = error or self.step(step).error
        return error

    def _repeat(self, name: str) -> None:
        """The case's steps with delegates of their own, which are all destroyed in the end.

        Delegates are made and used in order as in the case; cycles and copies of the library are left out.
        """
        before = set(self._live)
        for step in self.case.steps:
            if isinstance(step, Cycle | Copy):
                continue
            self.step(msgspec.structs.replace(step, name=f"{name}-{step.name}") if step.name else step)
        for left in [own for own in self._live if own not in before]:
            self.step(Destroy(left))

    def step(self, step: AnyPluginStep) -> PluginSeen:
        """Carry out one step."""
        self._late.clear()
        self._touched.clear()
        if self.plugin.create is None or self.plugin.destroy is None:
            return PluginSeen(skipped="the library has no such function")
        match step:
            case Create():
                seen = self._create(step, self.plugin)
            case Copy():
                seen = self._copy(step)
            case Cycle():
                seen = self._cycle(step)
            case Destroy(name=""):
                self.plugin.destroy(None)
                seen = PluginSeen()
            case _:
                live = self._live.get(step.name)
                seen = self._with(step, live) if live else PluginSeen(skipped=f"there is no {step.name}")
        return _with_late(seen, tuple(self._late), tuple(self._touched))

    def end(self) -> None:
        """Destroy what is left."""
        for live in reversed(self._live.values()):
            live.plugin.destroy(live.address)
        for arguments in self._kept:
            arguments.close()

    def _with(self, step: OverwriteArguments | Apply | Destroy, live: _Live) -> PluginSeen:
        if isinstance(step, Apply):
            return self._apply(live.address)
        if isinstance(step, OverwriteArguments):
            live.arguments.spoil()
        else:
            del self._live[step.name]
            live.plugin.destroy(live.address)
        return PluginSeen()

    def _create(self, step: Create | Copy, plugin: Plugin) -> PluginSeen:
        guarded = isinstance(step, Create) and step.guarded
        arguments = _Arguments(step.options, self._late, self._touched if guarded else None)
        self._kept.append(arguments)
        nothing = isinstance(step, Create) and step.null_arrays and not step.options
        silent = isinstance(step, Create) and step.report == "null"
        few = step.descriptors if isinstance(step, Create) else None
        with contextlib.nullcontext() if few is None else few_descriptors(few):
            address = plugin.create(
                None if nothing else ctypes.addressof(arguments.keys),
                None if nothing else ctypes.addressof(arguments.values),
                arguments.count,
                None if silent else arguments.report,
            )
        arguments.returned = True
        if address:
            self._live[step.name] = _Live(address, plugin, arguments)
        return PluginSeen(
            made=bool(address),
            reports=tuple(arguments.reports),
            modified=arguments.modified(),
            struct=read_struct(address) if address else None,
        )

    def _copy(self, step: Copy) -> PluginSeen:
        try:
            other = self.plugin.again()
        except NoCopy as error:
            return PluginSeen(skipped=f"the library cannot be copied: {error}")
        except OSError as error:
            return PluginSeen(made=False, error=str(error))
        if other.create is None or other.destroy is None:
            return PluginSeen(made=False, error="the copy has no such function")
        return self._create(step, other)

    def _cycle(self, step: Cycle) -> PluginSeen:
        """In use is nothing where the C library does not count it."""
        arguments = _Arguments(step.options, self._late)
        self._kept.append(arguments)
        given = ctypes.addressof(arguments.keys), ctypes.addressof(arguments.values), arguments.count
        started, working = time.perf_counter(), threads()
        self._make_and_destroy(*given, arguments.report)
        one = time.perf_counter() - started
        times = max(1, min(step.times, int(_CYCLE_SECONDS / 4 / one)))
        own = self._own_allocator(*given, arguments.report)
        found = []
        until = time.perf_counter() + _CYCLE_SECONDS + _TO_END
        for _ in range(4):
            for _ in range(times):
                self._make_and_destroy(*given, arguments.report)
            while threads() > working and time.perf_counter() < until:
                time.sleep(_PAUSE)  # what a thread gives back a little later is given back
            found.append(_held(own))
        in_use, mapped, arena = zip(*found, strict=True)
        return PluginSeen(
            times=times,
            in_use=tuple(size for size in in_use if size is not None),
            mapped=mapped,
            arena=tuple(size for size in arena if size is not None),
            full=own is not None and own.full,
        )

    def _own_allocator(self, keys: int, values: int, count: int, report: int | None) -> OwnAllocator | None:
        """In whose memory the library's delegates are, if it is not malloc's: what comes later counts."""
        if not self._before:
            return None
        address = self.plugin.create(keys, values, count, report)
        if not address:
            return None
        lines = snapshot().lines
        own = OwnAllocator.of(address, lines, self._before)
        if own is not None:
            own.resident(lines)
        self.plugin.destroy(address)
        return own

    def _make_and_destroy(self, keys: int, values: int, count: int, report: int | None) -> None:
        address = self.plugin.create(keys, values, count, report)
        if address:
            self.plugin.destroy(address)

    def _interpreter(self) -> Any:
        return self._runtime.interpreter(self._model)

    def _apply(self, address: int) -> PluginSeen:
        interpreter = self._interpreter()
        claimed: tuple[int, ...] = ()
        outputs: tuple[Array, ...] = ()
        error = ""
        with Operators(address) as operators:
            try:
                interpreter._interpreter.ModifyGraphWithDelegate(address)
                claimed = self._claimed(interpreter)
                outputs = self._outputs(interpreter)
            except RAISED as failure:
                error = str(failure) or type(failure).__name__
            del interpreter  # before its delegate can go
        return PluginSeen(error=error, claimed=claimed, outputs=outputs, operators=tuple(operators.seen))

    def _claimed(self, interpreter: Any) -> tuple[int, ...]:
        if not self._runtime.observed:
            return ()
        left = {node.index for node in private_plan(context_of(interpreter), {})}
        return tuple(index for index in range(len(self.case.graph.nodes)) if index not in left)

    def _outputs(self, interpreter: Any) -> tuple[Array, ...]:
        interpreter.allocate_tensors()
        for index, value in zip(self.case.graph.inputs, inputs_of(self._graph_case), strict=True):
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        return tuple(Array.of(interpreter.get_tensor(index)) for index in self.case.graph.outputs)


def _held(own: OwnAllocator | None) -> tuple[int | None, int, int | None]:
    """Bytes in use by malloc, of address space, and resident ones of the library's own allocator."""
    looked = snapshot()
    resident = None if own is None else own.resident(looked.lines)
    return malloc_in_use(), looked.virtual, resident


def _with_late(seen: PluginSeen, late: tuple[str, ...], touched: tuple[ArgumentTouch, ...]) -> PluginSeen:
    return msgspec.structs.replace(seen, late=late, touched=touched) if late or touched else seen
