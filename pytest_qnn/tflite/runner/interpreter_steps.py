"""Steps of a script that make, use and destroy interpreters."""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any, Final

import msgspec
import numpy as np

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.script import (
    IMPOSSIBLE,
    Allocate,
    Apply,
    Cancel,
    Close,
    CopyFrom,
    CopyTo,
    HandleOutput,
    Invoke,
    Open,
    Poison,
    Profile,
    Read,
    RemoveAll,
    Resize,
    SetInputs,
)
from pytest_qnn.tflite.observe import handles
from pytest_qnn.tflite.observe.handles import tensor_of
from pytest_qnn.tflite.observe.profiler import SET_CANCELLATION, SET_PROFILER, Profiler
from pytest_qnn.tflite.runner import tensor_memory
from pytest_qnn.tflite.runner.baseline import outputs_on_cpu
from pytest_qnn.tflite.runner.buffer_copies import copy_to
from pytest_qnn.tflite.runner.interpreter import LiveInterpreter, attempt
from pytest_qnn.tflite.runner.world import Handlers, Skip, World, result
from pytest_qnn.tflite.runtime.state import subgraph_of
from pytest_qnn.tflite.runtime.tensors import value_of
from pytest_qnn.tflite.trace import Applied, CopyCounts, OutputCounts, RemoveCounts, ScriptSeen

_REMOVE_ALL = "_ZN6tflite8Subgraph18RemoveAllDelegatesEv"
_UNKNOWN: Final = 0x7FFF_FFF1
"""A number that no delegate gives to a handle."""
_FILLS: Final = (0x5A, 0xA5)
_MOST_SET: Final = 1 << 26
"""Elements of an input that is filled although its model is hostile."""
_COPY_FROM: Final = layouts.Delegate.CopyFromBufferHandle.offset


def _open(world: World, step: Open) -> ScriptSeen:
    if step.interpreter in world.interpreters:
        raise Skip(f"there is an interpreter {step.interpreter} already")
    if not 0 <= step.graph < len(world.models):
        raise Skip(f"there is no graph {step.graph}")
    model = bytes(bytearray(world.models[step.graph]))  # a copy: a write to it changes no other interpreter
    made: list[Any] = []

    def make() -> None:
        native = world.runtime.interpreter(
            model,
            default_delegates=step.resolver == "default",
            reference_kernels=step.resolver == "reference",
            threads=step.threads,
            own=True,
            preserve=step.preserve,
        )
        made.append(native)

    if step.graph or not world.case.edits:
        make()
    elif message := attempt(make):
        return result(message)
    where = world.where
    live = LiveInterpreter(
        step.interpreter,
        made.pop(),
        model,
        (world.graphs[step.graph], step.graph),
        (where.number, where.round),
        observed=world.runtime.observed,
        stray_writes=world.case.watch,
    )
    live.opened_between = where.middle
    live.session.around = functools.partial(tensor_memory.around, world, live)
    if world.case.buffers and live.context:
        live.handles = handles.Handles(live.context, live.session, where)
        live.session.around = live.handles.around(live.session.around)
    world.interpreters[step.interpreter] = live
    return ScriptSeen()


def _apply(world: World, step: Apply) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    with world.lock:
        made = world.delegate(step.delegate)
        made.users.append(live)
    number = len(live.applied)
    session = live.session
    if step.spied:
        session.hook(made.live.address, number)
    else:
        session.owners[made.live.address] = number
    if live.handles:
        live.handles.hook(made.live.address)
    tensor_memory.arm(live)
    modify = live.native._interpreter.ModifyGraphWithDelegate
    message = attempt(functools.partial(modify, made.live.address))
    live.forget_inputs()
    live.delegates.append(made.name)
    live.applied.append(
        Applied(
            name=made.specification,
            is_target=made.is_target,
            step=world.where.number,
            ok=not message,
            message=message,
            plan_seen=session.plans.get(number, ()),
            prepared=number in session.plans,
            prepare_status=session.statuses.get(number, 0),
            replaces=tuple(session.replaces.get(number, ())),
            plan_after=live.plan(),
        )
    )
    tensor_memory.inspect(world, live)
    world.attribute_events(live)
    return result(message)


def _resize(world: World, step: Resize) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    if not 0 <= step.input < len(live.graph.inputs):
        raise Skip(f"the graph has no input {step.input}")
    if prod(step.shape) >= IMPOSSIBLE and world.runtime.name == "tflite_runtime":
        raise Skip("this runtime throws where it cannot allocate (docs/reference/runtimes.md)")
    tensor = live.graph.inputs[step.input]
    resize = functools.partial(live.native.resize_tensor_input, tensor, step.shape, strict=step.strict)
    message = attempt(resize)
    if not message and live.shapes[step.input] != step.shape:
        live.shapes[step.input] = step.shape
        live.ready = False
        live.invoked = None
        live.inputs = [None] * len(live.inputs)
    world.attribute_events(live)
    return result(message)


def _allocate(world: World, step: Allocate) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    tensor_memory.arm(live)
    message = attempt(live.native.allocate_tensors)
    live.ready = not message
    live.forget_inputs()
    tensor_memory.inspect(world, live)
    world.attribute_events(live)
    return result(message)


def _set_inputs(world: World, step: SetInputs) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    most = _MOST_SET if world.case.edits else IMPOSSIBLE
    if any(prod(shape) >= most or min(shape, default=0) < 0 for shape in live.shapes):
        raise Skip("an input has more elements than there can be")
    values = inputs_of(DelegateCase(live.shaped(), data_seed=step.seed, fill=step.fill))
    messages = []
    for position, (tensor, value) in enumerate(zip(live.graph.inputs, values, strict=True)):
        if tensor in live.placed:
            message = tensor_memory.write(live, tensor, value.tobytes())
        else:
            message = attempt(functools.partial(live.native.set_tensor, tensor, value))
        messages.append(message)
        live.inputs[position] = None if message else Array.of(value)
    if live.invoked and not set(live.graph.inputs).isdisjoint(live.graph.outputs):
        live.invoked = live.invoked[0], (None,) * len(live.inputs)  # an output that is an input has changed
    known = tuple(value for value in live.inputs if value is not None)
    return ScriptSeen(ok=not any(messages), message=" ".join(filter(None, messages)), outputs=known)


def _poison(world: World, step: Poison) -> ScriptSeen:
    """A graph input or a constant that is an output too keeps its value."""
    live = world.interpreter(step.interpreter)
    produced = {index for node in live.graph.nodes for index in node.outputs}

    def fill(tensor: int) -> None:
        live.native.tensor(tensor)().reshape(-1).view("uint8").fill(step.byte)

    tensor_memory.open_all(live)
    if live.invoked:  # what the outputs hold is no result any more
        live.invoked = live.invoked[0], (None,) * len(live.inputs)
    messages = [
        attempt(functools.partial(fill, tensor)) for tensor in live.graph.outputs if tensor in produced
    ]
    return result(" ".join(filter(None, messages)))


def _invoke(world: World, step: Invoke) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    if not live.ready:
        raise Skip("the last allocate_tensors failed, or there was none")
    if live.graph.subgraphs and None in live.inputs:
        raise Skip("inputs are not set, and a loop could go round as often as any number says")
    small = tensor_memory.too_small(world, live)
    if small:
        raise Skip(f"tensor {small[0]} is in a buffer too small for it, which the client must not invoke")
    tensor_memory.arm(live)
    if live.profiler:
        live.profiler.begin()
    message = attempt(live.native.invoke)
    live.invoked = None if message else (live.resized(), tuple(live.inputs))
    tensor_memory.inspect(world, live)
    world.attribute_events(live)
    seen = result(message)
    return msgspec.structs.replace(seen, counts=live.profiler.counts()) if live.profiler else seen


def _read(world: World, step: Read) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    tensors = step.tensors or live.graph.outputs
    if live.invoked is None and not (live.ready and live.known and live.known.issuperset(tensors)):
        raise Skip("there is no successful invoke whose results could be read")
    if not all(0 <= tensor < len(live.graph.tensors) for tensor in tensors):
        raise Skip("there is no such tensor")
    read: list[Array] = []

    def get() -> None:
        read.extend(Array.of(value_of(live.native, tensor)) for tensor in tensors)

    message = attempt(get)
    return ScriptSeen(
        ok=not message, message=message, outputs=tuple(read), cpu=expected(world, live, tensors)
    )


def expected(world: World, live: LiveInterpreter, tensors: tuple[int, ...]) -> tuple[Array, ...]:
    """What the tensors should read, as far as the client knows what it has put in."""
    if live.invoked is None:
        return ()
    shapes, inputs = live.invoked
    known = [
        (tensor, value) for tensor, value in zip(live.graph.inputs, inputs, strict=True) if value is not None
    ]
    if len(known) < len(inputs):
        return ()
    model = world.models[live.graph_number]
    return outputs_on_cpu(world.runtime, model, shapes, tuple(known), tensors)


def _remove_all(world: World, step: RemoveAll) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    subgraph = subgraph_of(world.context(live))
    # A private member function: `this` is its first argument in the C++ ABI of Linux.
    remove: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(world.symbol(_REMOVE_ALL))
    status = remove(subgraph)
    live.forget_inputs()
    world.attribute_events(live)
    return ScriptSeen(ok=status == layouts.OK, counts=RemoveCounts(status))


def _handle_output(world: World, step: HandleOutput) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    world.context(live)
    member = live.native._native_handle() + layouts.INTERPRETER_HANDLE_OUTPUT
    before = ctypes.c_bool.from_address(member)
    counts = OutputCounts(before.value)
    before.value = step.allow
    return ScriptSeen(counts=counts)


def _copy_from(world: World, step: CopyFrom) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    world.context(live)
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
    return ScriptSeen(ok=status == layouts.OK, counts=CopyCounts(handle, status, left, other))


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
    live.profiler = live.profiler or Profiler()
    live.profiler.profile(world.symbol(SET_PROFILER), live.native._native_handle())
    return ScriptSeen()


def _cancel(world: World, step: Cancel) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    live.profiler = live.profiler or Profiler()
    live.profiler.cancel(world.symbol(SET_CANCELLATION), live.native._native_handle(), step.at)
    return ScriptSeen()


def _close(world: World, step: Close) -> ScriptSeen:
    world.interpreter(step.interpreter)
    with world.lock:
        world.close(step.interpreter)
    return ScriptSeen()


HANDLERS: Final[Handlers] = {
    Open: _open,
    Apply: _apply,
    Resize: _resize,
    Allocate: _allocate,
    SetInputs: _set_inputs,
    Poison: _poison,
    Invoke: _invoke,
    Read: _read,
    RemoveAll: _remove_all,
    HandleOutput: _handle_output,
    CopyFrom: _copy_from,
    CopyTo: copy_to,
    Profile: _profile,
    Cancel: _cancel,
    Close: _close,
}
