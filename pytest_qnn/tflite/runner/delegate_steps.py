"""Steps of a script that make and destroy delegates, ask them, unload them, or have requests refused."""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable, Mapping
from typing import Final

from pytest_qnn.core.printable import heard
from pytest_qnn.isolation.host.refusals import Lacking, Refusing
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    PassToConstructor,
    ReadLog,
    Refuse,
    Unload,
)
from pytest_qnn.tflite.runner.custom_buffers import CustomBuffer
from pytest_qnn.tflite.runner.delegates import PROBE, DelegateFactory, DelegateUnusable, LibraryFactory
from pytest_qnn.tflite.runner.interpreter import THROWN
from pytest_qnn.tflite.runner.world import BackendCalls, Handlers, Made, Pending, Skip, World, result
from pytest_qnn.tflite.runtime.runtime import RAISED
from pytest_qnn.tflite.trace import LentCounts, LogCounts, RefusedCounts, ScriptSeen, UnloadCounts

_CALLS: Final = "pytest_qnn.tflite.qnn_delegate.calls"
_ByOwn = Callable[[Mapping[str, str]], DelegateFactory]
_BACKEND: Final = "library_path"
"""The option of Qualcomm's delegate (TfLiteQnnDelegateOptions) that names its backend's library."""


def _make(world: World, step: MakeDelegate) -> ScriptSeen:
    if step.delegate in world.delegates:
        raise Skip(f"there is a delegate {step.delegate} already")
    application = Application(step.who, step.claim, step.fault, step.flags)
    position = min(step.position, len(world.chain) - 1)
    try:
        factory = PROBE if step.who == "probe" else _of_target(world, step, position)
        calls = backend_calls(factory) if world.stderr is not None else None
        made = world.delegates[step.delegate] = Made(step.delegate, factory, application)
        if world.stderr is not None and calls is None:
            watch: Callable[[], BackendCalls] | None = getattr(made.live, "watch", None)
            calls = watch() if watch is not None else None
        if calls is not None:
            world.calls[step.delegate] = calls
        if isinstance(factory, LibraryFactory):  # what is written in Python lives in Python's memory
            world.look_where_it_lives(made.live.address)
    except DelegateUnusable as error:
        return result(heard(error))
    return ScriptSeen()


def _of_target(world: World, step: MakeDelegate, position: int) -> DelegateFactory:
    """The factory of the delegate at this position, with the step's options.

    Raises:
        DelegateUnusable: an option is wrong.
        Skip: the delegate is no library, or has no interface of its own.
    """
    factory = world.chain[position]
    own = step.interface == "own"
    if not (own or step.without):
        return world.remake(position, dict(step.options)) if step.options else factory
    options: dict[str, str] = getattr(factory, "options", {})
    options = {key: value for key, value in options.items() if key not in step.without} | dict(step.options)
    if own:
        # A library's factory has it, and that of the QNN delegate's reference.
        by_own: _ByOwn | None = getattr(factory, "by_own_interface", None)
        if by_own is None or not getattr(factory, "has_own_interface", False):
            raise Skip(f"the delegate {factory.name} has no interface of its own")
        return by_own(options)
    if not isinstance(factory, LibraryFactory):
        raise Skip(f"the delegate {factory.name} is no library")
    return type(factory)(factory.name, options)


def _destroy(world: World, step: DestroyDelegate) -> ScriptSeen:
    with world.lock:
        if world.delegate(step.delegate).users:
            raise Skip(f"an open interpreter uses the delegate {step.delegate}")
        world.destroy(step.delegate)
    return ScriptSeen()


class _Pointer:
    """What Python's Interpreter takes for a delegate."""

    def __init__(self, address: int) -> None:
        self._address = address

    def _get_native_delegate_pointer(self) -> int:
        return self._address


def _pass_to_constructor(world: World, step: PassToConstructor) -> ScriptSeen:
    if not 0 <= step.graph < len(world.models):
        raise Skip(f"there is no graph {step.graph}")
    given = _Pointer(world.delegate(step.delegate).live.address)
    reference = weakref.ref(given)
    try:
        native = world.runtime.interpreter(world.models[step.graph], delegates=(given,))
    except RAISED as error:
        return ScriptSeen(ok=False, message=heard(error) or type(error).__name__)
    del given
    gc.collect()
    kept = reference() is not None
    native.allocate_tensors()
    del native
    gc.collect()
    return ScriptSeen(counts=LentCounts(kept, reference() is None))


def _unload(world: World, step: Unload) -> ScriptSeen:
    factory = world.chain[min(step.position, len(world.chain) - 1)]
    if not isinstance(factory, LibraryFactory):
        raise Skip(f"the delegate {factory.name} is no library")
    if any(made.specification == factory.name for made in world.delegates.values()):
        raise Skip(f"there is a delegate of {factory.name}")
    world.before_unload()
    gc.collect()
    return ScriptSeen(counts=UnloadCounts(factory.unload()))


def _log(world: World, step: ReadLog) -> ScriptSeen:
    log: list[str] | None = getattr(world.delegate(step.delegate).live, "log", None)
    if log is None:
        if world.stderr is None:
            raise Skip("nobody can hear what the delegate says")
        return ScriptSeen(lines=world.stderr.lines(), counts=_executed(world, step.delegate))
    lines = tuple(log)
    log.clear()
    return ScriptSeen(lines=lines, counts=_executed(world, step.delegate))


def _executed(world: World, delegate: str) -> LogCounts | None:
    calls = world.calls.get(delegate)
    if calls is None:
        return None
    placed = [(at, buffer) for live in world.interpreters.values() for at, buffer in live.placed.items()]
    own = {at for at, buffer in placed if isinstance(buffer, CustomBuffer) and calls.used(buffer.address)}
    return LogCounts(tuple(sorted(own)))


def backend_calls(factory: DelegateFactory) -> BackendCalls | None:
    """The calls of the QNN library that a delegate library is told to use; None where it is told of none.

    They are seen from the next delegate on.
    """
    path = factory.options.get(_BACKEND) if isinstance(factory, LibraryFactory) else None
    if not path:
        return None
    # Nobody but the user of a QNN delegate needs a QNN client.
    found: BackendCalls | None = importlib.import_module(_CALLS).of_library(path)
    return found


def _refuse(world: World, step: Refuse) -> ScriptSeen:
    if world.where.alone is not None:
        raise Skip("what other threads ask for would be refused too")
    if len(world.chain) != 1:
        raise Skip("which of several delegates asks for something cannot be told")
    world.pending = Pending(world.where.number, step, _who(world.chain[0]))
    return ScriptSeen(counts=RefusedCounts())


def _who(factory: DelegateFactory) -> Refusing:
    """Who refuses what this target asks for. Raises Skip where nobody can."""
    try:
        # Libraries and the reference have it.
        found: Refusing | None = getattr(factory, "refusing", None)
    except (Lacking, DelegateUnusable) as error:
        raise Skip(str(error)) from None
    if found is None:
        raise Skip(f"what {factory.name} asks the system for cannot be refused: it is no library of its own")
    return found


def refusing(world: World, step: AnyScriptStep, perform: Callable[[], ScriptSeen]) -> ScriptSeen:
    """Carry out a step, with what the `Refuse` before it says, if there is one."""
    pending = world.pending
    if pending is None or isinstance(step, Refuse):
        return perform()
    world.pending = None
    is_probe = isinstance(step, MakeDelegate) and step.who == "probe"
    if is_probe or not isinstance(step, _REFUSABLE):
        return perform()
    wanted, who = pending.step, pending.who
    key = type(step), wanted.what
    known = world.asked.get(key, 0)
    nth = 1 + (wanted.nth - 1) % known if wanted.nth and known else wanted.nth
    with who.during(wanted.what, nth, lasting=wanted.lasting and nth > 0):
        seen = perform()
    if not nth:
        world.asked[key] = who.asked
    world.thrown = thrown = who.refused > 0 and seen.message.startswith(THROWN)
    world.record(pending.number, ScriptSeen(counts=RefusedCounts(who.asked, who.refused, nth, thrown)))
    return seen


_REFUSABLE: Final = (MakeDelegate, Apply, Allocate, Invoke, DestroyDelegate)


HANDLERS: Final[Handlers] = {
    MakeDelegate: _make,
    DestroyDelegate: _destroy,
    PassToConstructor: _pass_to_constructor,
    Unload: _unload,
    ReadLog: _log,
    Refuse: _refuse,
}
