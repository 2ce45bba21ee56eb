"""Steps of a script that put tensors into the client's own memory, and what becomes of that memory."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

import numpy as np

from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.cases.script import FreeBuffer, Place, Unallocate
from pytest_qnn.tflite.observe.guard_pages import Guarded
from pytest_qnn.tflite.observe.handles import tensor_of
from pytest_qnn.tflite.runner.baseline import tensor_sizes
from pytest_qnn.tflite.runner.custom_buffers import CustomBuffer
from pytest_qnn.tflite.runner.interpreter import LiveInterpreter
from pytest_qnn.tflite.runner.world import Handlers, Skip, World
from pytest_qnn.tflite.trace import Access, PlaceCounts, ScriptSeen, Touch, TouchReason

SET: Final = "_ZN6tflite4impl11Interpreter28SetCustomAllocationForTensorEiRK22TfLiteCustomAllocationl"
"""Name of the function in a runtime's library."""
_SKIP_ALIGN_CHECK = 1
_SetCustomAllocation = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
)


def _place(world: World, step: Place) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    if not 0 <= step.tensor < len(live.graph.tensors):
        raise Skip(f"there is no tensor {step.tensor}")
    sizes = _sizes(world, live)
    size = sizes[step.tensor] if sizes else -1
    if size < 0:
        raise Skip(f"the size of tensor {step.tensor} is not known")
    constant = live.graph.tensors[step.tensor].data
    if constant is not None and live.applied:
        raise Skip("a constant is placed before any delegate is applied")
    buffer = _buffer(world, live, step, max(0, size + step.extra))
    buffer.on_touch = functools.partial(_on_touch, world, live, step.tensor, size)
    status = (
        _redirect(world, live, step.tensor, buffer, constant)
        if constant is not None
        else _assign(world, live, step, buffer)
    )
    if status == layouts.OK:
        buffer.use(max(size, *(sizes[t] for t, other in live.placed.items() if other is buffer), 0))
        buffer.readonly = step.readonly or constant is not None
        live.placed[step.tensor] = buffer
        live.invoked = None  # results of the last invoke may be where the tensor was
        if step.tensor in live.graph.inputs:
            live.inputs[live.graph.inputs.index(step.tensor)] = None
    return ScriptSeen(ok=status == layouts.OK, counts=PlaceCounts(status, size, buffer.size))


def _sizes(world: World, live: LiveInterpreter) -> tuple[int, ...]:
    """Bytes of each tensor of the main graph; empty: not known.

    Of a hostile model as the runtime has them at present: alone it may refuse the model.
    """
    if live.graph_number or not world.case.edits:
        return tensor_sizes(world.runtime, world.models[live.graph_number], live.resized())
    if not live.context:
        return ()
    return tuple(int(view.tensor(live.context, index).bytes) for index in range(len(live.graph.tensors)))


def _buffer(world: World, live: LiveInterpreter, step: Place, size: int) -> Guarded:
    """The step's buffer, made if there is none; one without a name lives as long as the interpreter."""
    if not step.buffer:
        live.own.append(_guarded(step, size))
        return live.own[-1]
    if step.buffer not in world.buffers:
        world.buffers[step.buffer] = _guarded(step, size)
    if world.buffers[step.buffer].given_back:
        raise Skip(f"the buffer {step.buffer} was given back")
    return world.buffers[step.buffer]


def _guarded(step: Place, size: int) -> Guarded:
    return Guarded(size, step.guard, step.misalign, step.seed, tail=step.tail)


def _assign(world: World, live: LiveInterpreter, step: Place, buffer: Guarded) -> int:
    """The status of SetCustomAllocationForTensor."""
    flags = _SKIP_ALIGN_CHECK if step.skip_alignment_check else 0
    return assign(world, live, step.tensor, (buffer.address, buffer.size), flags)


def assign(world: World, live: LiveInterpreter, tensor: int, memory: tuple[int, int], flags: int) -> int:
    """Call SetCustomAllocationForTensor with (address, bytes); its status.

    Raises:
        Skip: the runtime does not export it.
    """
    return set_custom_allocation(world.symbol(SET), live.native, tensor, memory, flags)


def set_custom_allocation(
    function: int, native: Any, tensor: int, memory: tuple[int, int], flags: int = 0
) -> int:
    """Call SetCustomAllocationForTensor of a runtime's Interpreter; its TfLiteStatus.

    Args:
        function: address of the symbol `SET` in the interpreter's runtime.
        native: the Interpreter.
        tensor: its index in the main subgraph.
        memory: (address, bytes).
        flags: TfLiteCustomAllocationFlags.
    """
    allocation = (ctypes.c_uint64 * 2)(*memory)
    status: int = _SetCustomAllocation(function)(
        native._native_handle(), tensor, ctypes.addressof(allocation), flags
    )
    return status


def _redirect(world: World, live: LiveInterpreter, tensor: int, buffer: Guarded, contents: bytes) -> int:
    """Let a constant's data point to a copy: the runtime neither frees nor moves the data of constants."""
    world.context(live)
    if view.tensor(live.context, tensor).allocation_type != layouts.ALLOCATION_MMAP_RO:
        raise Skip(f"tensor {tensor} is no constant of the model")
    buffer.data()[: len(contents)] = np.frombuffer(contents, np.uint8)[: buffer.size]
    tensor_of(live.context, tensor).data = buffer.address
    return layouts.OK


def _free(world: World, step: FreeBuffer) -> ScriptSeen:
    if step.buffer not in world.buffers:
        raise Skip(f"there is no buffer {step.buffer}")
    buffer = world.buffers[step.buffer]
    if any(buffer is other for live in world.interpreters.values() for other in live.placed.values()):
        raise Skip(f"an open interpreter has a tensor in the buffer {step.buffer}")
    buffer.give_back()
    return ScriptSeen()


def _unallocate(world: World, step: Unallocate) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    world.context(live)
    for node in live.graph.nodes:
        for tensor in node.outputs:
            if tensor not in live.unallocated:
                buffer = Guarded(1, "before")
                buffer.on_touch = functools.partial(_on_touch, world, live, tensor, 0)
                buffer.give_back()
                live.unallocated[tensor] = buffer
    return ScriptSeen()


def around(world: World, live: LiveInterpreter, kernel: int, begins: bool) -> None:
    """Before and after a kernel's invoke: unallocated tensors, and bytes beside placed ones."""
    if live.unallocated:
        _point(live, kernel, begins=begins)
    if not begins:
        _inspect(world, live, live.session.kernels[kernel].application, kernel)


def _point(live: LiveInterpreter, kernel: int, *, begins: bool) -> None:
    """Give the tensors inside the kernel's partition an address, or take it back."""
    seen = live.session.kernels[kernel]
    nodes = live.graph.nodes
    inside = {t for n in seen.nodes if n < len(nodes) for t in nodes[n].outputs if t not in seen.outputs}
    for tensor in inside:
        struct = tensor_of(live.context, tensor)
        address = live.unallocated[tensor].address
        if (struct.data or 0) == (0 if begins else address):
            struct.data = address if begins else None


def arm(live: LiveInterpreter) -> None:
    """Close what must not be touched, before the runtime or a delegate is called."""
    _need_placed(live)
    for buffer in (*live.placed.values(), *live.unallocated.values()):
        buffer.arm()


def _need_placed(live: LiveInterpreter) -> None:
    if any(isinstance(buffer, CustomBuffer) and buffer.given_back for buffer in live.placed.values()):
        raise Skip("a tensor is in custom memory that was given back, which the client must not use")


def open_all(live: LiveInterpreter) -> None:
    """Let the client write."""
    _need_placed(live)
    for buffer in live.placed.values():
        buffer.open()


def write(live: LiveInterpreter, tensor: int, contents: bytes) -> str:
    """What the client writes to a tensor that it has placed; the text of the reason if it does not fit."""
    buffer = live.placed[tensor]
    if len(contents) > buffer.size:
        return f"{len(contents)} bytes do not fit into a buffer of {buffer.size}"
    buffer.open()
    buffer.data()[: len(contents)] = np.frombuffer(contents, np.uint8)
    return ""


def too_small(world: World, live: LiveInterpreter) -> list[int]:
    """Placed tensors whose buffer is smaller than they are."""
    if not live.placed:
        return []
    sizes = _sizes(world, live)
    return [t for t, buffer in live.placed.items() if not sizes or buffer.size < sizes[t]]


def inspect(world: World, live: LiveInterpreter) -> None:
    """Look whether anything beside placed tensors, or a constant of the model, has changed."""
    _inspect(world, live, -1, -1)


def _inspect(world: World, live: LiveInterpreter, application: int, kernel: int) -> None:
    for tensor, buffer in live.placed.items():
        offset = buffer.changed()
        if offset is not None:
            _record(world, live, "outside", "write", (tensor, offset, buffer.used), (application, kernel))
    # The runtime maps constants to the model's own bytes: a write to one changes them.
    if live.model != world.models[live.graph_number] and not live.model_changed:
        live.model_changed = True
        pristine = np.frombuffer(world.models[live.graph_number], np.uint8)
        changed = int(np.flatnonzero(np.frombuffer(live.model, np.uint8) != pristine)[0])
        _record(world, live, "constant", "write", _constant_at(live, changed), (application, kernel))


def _constant_at(live: LiveInterpreter, offset: int) -> tuple[int, int, int]:
    """(tensor, offset in it, its size) of a byte of the model; tensor -1: of none."""
    if live.context:
        address = np.frombuffer(live.model, np.uint8).ctypes.data + offset
        for index, tensor in enumerate(live.graph.tensors):
            data = view.tensor(live.context, index).data
            if tensor.data is not None and data <= address < data + len(tensor.data):
                return index, address - data, len(tensor.data)
    return -1, offset, len(live.model)


def _on_touch(
    world: World, live: LiveInterpreter, tensor: int, size: int, why: TouchReason, access: Access, offset: int
) -> None:
    application, kernel = live.session.running or (-1, -1)
    reason = "unallocated" if tensor in live.unallocated and not size else why
    _record(world, live, reason, access, (tensor, offset, size), (application, kernel))


def _record(
    world: World,
    live: LiveInterpreter,
    why: TouchReason,
    access: Access,
    at: tuple[int, int, int],
    running: tuple[int, int],
) -> None:
    tensor, offset, size = at
    application, kernel = running
    world.touch(
        Touch(
            why=why,
            access=access,
            interpreter=live.name,
            tensor=tensor,
            offset=offset,
            size=size,
            step=world.where.number,
            application=application,
            kernel=kernel,
        )
    )


HANDLERS: Final[Handlers] = {Place: _place, FreeBuffer: _free, Unallocate: _unallocate}
