"""Steps of a script that copy from buffers, profile, cancel, lend a delegate or unload its library."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Final

import numpy as np

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.script import Cancel, CopyFrom, Lend, Profile, Unload
from pytest_qnn.tflite.observe.handles import tensor_of
from pytest_qnn.tflite.observe.profiler import Gauge
from pytest_qnn.tflite.runner.delegates import PluginFactory
from pytest_qnn.tflite.runner.interpreter import LiveInterpreter
from pytest_qnn.tflite.runner.world import Handlers, Skip, World
from pytest_qnn.tflite.trace import ScriptSeen

_UNKNOWN: Final = 0x7FFF_FFF1
"""A number that no delegate gives to a handle."""
_FILLS: Final = (0x5A, 0xA5)
_COPY_FROM: Final = layouts.Delegate.CopyFromBufferHandle.offset


def _copy_from(world: World, step: CopyFrom) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    if not live.context:
        raise Skip("tensors cannot be found on this runtime")
    if not 0 <= step.output < len(live.graph.outputs):
        raise Skip(f"the graph has no output {step.output}")
    tensor = tensor_of(live.context, live.graph.outputs[step.output])
    copy = peek.pointer(tensor.delegate + _COPY_FROM) if tensor.delegate else 0
    if not copy or tensor.buffer_handle == layouts.NO_BUFFER_HANDLE or not tensor.data:
        raise Skip(f"output {step.output} has no buffer handle that could be copied from")
    handle = {"": tensor.buffer_handle, "none": layouts.NO_BUFFER_HANDLE, "unknown": _UNKNOWN}[step.wrong]
    call = layouts.CopyBufferHandle(copy)
    data = peek.array(tensor.data, np.uint8, (tensor.bytes,))
    before = _border(live, tensor.data)
    untouched = np.ones(tensor.bytes, bool)
    status = layouts.OK
    for fill in _FILLS[: 1 if step.wrong else 2]:
        data[:] = fill
        status = status or call(live.context, tensor.delegate, handle, ctypes.addressof(tensor))
        untouched &= data == fill
    after = _border(live, tensor.data)
    other = next((index for index, contents in before.items() if after.get(index) != contents), -1)
    left = int(untouched.all() if step.wrong else untouched.sum())
    if not step.wrong and not status:
        tensor.data_is_stale = False  # as the runtime has it after a copy
    numbers = {"handle": handle, "status": status, "untouched": left, "other": other}
    return ScriptSeen(ok=status == layouts.OK, numbers=numbers)


def _border(live: LiveInterpreter, but: int) -> dict[int, bytes]:
    """Contents of the graph's inputs and outputs, except those at the address ``but``."""
    found = {}
    for index in (*live.graph.inputs, *live.graph.outputs):
        tensor = tensor_of(live.context, index)
        if tensor.data and tensor.data != but:
            found[index] = ctypes.string_at(tensor.data, tensor.bytes)
    return found


def _profile(world: World, step: Profile) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    live.gauge = live.gauge or Gauge()
    try:
        live.gauge.profile(world.runtime, live.native._native_handle())
    except LookupError as error:
        raise Skip(str(error)) from None
    return ScriptSeen()


def _cancel(world: World, step: Cancel) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    live.gauge = live.gauge or Gauge()
    try:
        live.gauge.cancel(world.runtime, live.native._native_handle(), step.at)
    except LookupError as error:
        raise Skip(str(error)) from None
    return ScriptSeen()


class _Lent:
    """What Python's Interpreter takes for a delegate."""

    def __init__(self, address: int) -> None:
        self._address = address

    def _get_native_delegate_pointer(self) -> int:
        return self._address


def _lend(world: World, step: Lend) -> ScriptSeen:
    if not 0 <= step.graph < len(world.models):
        raise Skip(f"there is no graph {step.graph}")
    lent = _Lent(world.delegate(step.delegate).live.address)
    watched = weakref.ref(lent)
    try:
        native = world.runtime.interpreter(world.models[step.graph], delegates=(lent,))
    except (RuntimeError, ValueError) as error:
        return ScriptSeen(ok=False, message=str(error) or type(error).__name__)
    del lent
    gc.collect()
    kept = watched() is not None
    native.allocate_tensors()
    del native
    gc.collect()
    return ScriptSeen(numbers={"kept": int(kept), "released": int(watched() is None)})


def _unload(world: World, step: Unload) -> ScriptSeen:
    factory = world.chain[min(step.position, len(world.chain) - 1)]
    if not isinstance(factory, PluginFactory):
        raise Skip(f"the delegate {factory.name} is no library")
    if any(made.specification == factory.name for made in world.delegates.values()):
        raise Skip(f"there is a delegate of {factory.name}")
    gc.collect()
    return ScriptSeen(numbers={"unloaded": int(factory.unload())})


HANDLERS: Final[Handlers] = {
    CopyFrom: _copy_from,
    Profile: _profile,
    Cancel: _cancel,
    Lend: _lend,
    Unload: _unload,
}
