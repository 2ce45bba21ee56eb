"""Steps of a script that put tensors into custom memory of a QNN delegate."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.script import (
    AllocCustom,
    AssignCustom,
    FreeCustom,
    InspectCustom,
    ReadCustom,
)
from pytest_qnn.tflite.runner.baseline import tensor_sizes
from pytest_qnn.tflite.runner.custom_buffers import CustomBuffer, CustomMemory, custom_memory
from pytest_qnn.tflite.runner.interpreter_steps import expected
from pytest_qnn.tflite.runner.tensor_memory import assign
from pytest_qnn.tflite.runner.world import Handlers, Skip, World
from pytest_qnn.tflite.trace import AllocCounts, PlaceCounts, ReadCounts, ScriptSeen


def _memory(world: World, position: int) -> CustomMemory:
    factory = world.chain[min(position, len(world.chain) - 1)]
    found = custom_memory(factory)
    if found is None:
        raise Skip(f"the delegate {factory.name} offers no custom memory")
    return found


def _buffer(world: World, name: str) -> CustomBuffer:
    buffer = world.custom.get(name)
    if buffer is None:
        raise Skip(f"there is no custom memory {name}")
    return buffer


def _alloc(world: World, step: AllocCustom) -> ScriptSeen:
    if step.buffer in world.custom:
        raise Skip(f"there is custom memory {step.buffer} already")
    memory = _memory(world, step.position)
    pointer = memory.alloc(step.bytes, step.alignment)
    if not pointer:
        return ScriptSeen(ok=False, message="NULL", counts=AllocCounts())
    made = CustomBuffer(memory, pointer, step.bytes, step.seed)
    overlaps = any(made.overlaps(other) for other in world.custom.values())
    world.custom[step.buffer] = made
    looked = made.look()
    offset, usable = pointer % step.alignment, looked.usable and looked.kept
    return ScriptSeen(counts=AllocCounts(pointer, offset, usable, looked.shared, overlaps))


def _inspect(world: World, step: InspectCustom) -> ScriptSeen:
    return ScriptSeen(counts=_buffer(world, step.buffer).look())


def _free(world: World, step: FreeCustom) -> ScriptSeen:
    if step.what != "buffer":
        own = ctypes.create_string_buffer(64)
        _memory(world, step.position).free(ctypes.addressof(own) if step.what == "unknown" else 0)
        return ScriptSeen()
    buffer = _buffer(world, step.buffer)
    for live in world.interpreters.values():
        if any(buffer is other for other in live.placed.values()):
            live.invoked, live.ready = None, False
    buffer.give_back()
    del world.custom[step.buffer]
    return ScriptSeen()


def _assign(world: World, step: AssignCustom) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    buffer = _buffer(world, step.buffer)
    if not buffer.usable:
        raise Skip(f"the custom memory {step.buffer} is not usable")
    tensors = live.graph.tensors
    if not 0 <= step.tensor < len(tensors) or tensors[step.tensor].data is not None:
        raise Skip(f"there is no tensor {step.tensor}, or it is a constant")
    sizes = tensor_sizes(world.runtime, world.models[live.graph_number], live.resized())
    if not sizes or sizes[step.tensor] < 0:
        raise Skip(f"the size of tensor {step.tensor} is not known")
    status = assign(world, live, step.tensor, (buffer.address, buffer.size), 0)
    if status == layouts.OK:
        live.placed[step.tensor] = buffer
        live.ready = False  # the seed: call AllocateTensors after it
        live.invoked = None  # results of the last invoke may be where the tensor was
        if step.tensor in live.graph.inputs:
            live.inputs[live.graph.inputs.index(step.tensor)] = None
    counts = PlaceCounts(status, sizes[step.tensor], buffer.size)
    return ScriptSeen(ok=status == layouts.OK, counts=counts)


def _read(world: World, step: ReadCustom) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    buffer = live.placed.get(step.tensor)
    if live.invoked is None or not isinstance(buffer, CustomBuffer):
        raise Skip(f"there is no successful invoke, or tensor {step.tensor} is in no custom memory")
    like: Any = live.native.get_tensor(step.tensor)
    value = np.frombuffer(ctypes.string_at(buffer.address, like.nbytes), like.dtype).reshape(like.shape)
    same = not live.context or view.tensor(live.context, step.tensor).data == buffer.address
    cpu = expected(world, live, (step.tensor,))
    return ScriptSeen(outputs=(Array.of(value),), cpu=cpu, counts=ReadCounts(same))


HANDLERS: Final[Handlers] = {
    AllocCustom: _alloc,
    InspectCustom: _inspect,
    FreeCustom: _free,
    AssignCustom: _assign,
    ReadCustom: _read,
}
