"""The step `CopyTo`: CopyToBufferHandle of a delegate, between two copies back."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.script import CopyTo
from pytest_qnn.tflite.observe.handles import tensor_of
from pytest_qnn.tflite.runner.world import Skip, World
from pytest_qnn.tflite.trace import CopyToCounts, ScriptSeen

_FROM: Final = layouts.Delegate.CopyFromBufferHandle.offset
_TO: Final = layouts.Delegate.CopyToBufferHandle.offset
_DTYPES: Final = {layouts.TYPE_FLOAT32: "float32", layouts.TYPE_INT32: "int32", layouts.TYPE_INT8: "int8"}
"""Those of the suite's graphs in which small numbers can be stored."""
_SENT: Final = (1, 2)
"""Small numbers, which every type and every float of a device has exactly; one of them is new to a tensor."""
_LATER: Final = (3, 4)


def copy_to(world: World, step: CopyTo) -> ScriptSeen:
    """See `CopyTo`."""
    live = world.interpreter(step.interpreter)
    world.context(live)
    if not 0 <= step.output < len(live.graph.outputs):
        raise Skip(f"the graph has no output {step.output}")
    tensor = tensor_of(live.context, live.graph.outputs[step.output])
    back, to = (peek.pointer(tensor.delegate + at) if tensor.delegate else 0 for at in (_FROM, _TO))
    if not (back and to and tensor.data) or tensor.buffer_handle == layouts.NO_BUFFER_HANDLE:
        raise Skip(f"output {step.output} has no buffer handle that could be copied to and from")
    if tensor.type not in _DTYPES:
        raise Skip(f"output {step.output} has type {tensor.type}, of which nothing is copied")
    dtype = np.dtype(_DTYPES[tensor.type])
    values = peek.array(tensor.data, dtype, (tensor.bytes // dtype.itemsize,))
    arguments = (live.context, tensor.delegate, tensor.buffer_handle, ctypes.addressof(tensor))
    if layouts.CopyBufferHandle(back)(*arguments):
        raise Skip(f"output {step.output} cannot be copied from its buffer")
    before = values.copy()
    values[:] = sent = _other_than(before, _SENT)
    status = layouts.CopyBufferHandle(to)(*arguments)
    values[:] = later = _other_than(before, _LATER)
    if layouts.CopyBufferHandle(back)(*arguments):
        raise Skip(f"output {step.output} cannot be copied from its buffer any more")
    tensor.data_is_stale = False  # as the runtime has it after a copy
    counts = CopyToCounts(
        handle=tensor.buffer_handle,
        status=status,
        elements=values.size,
        lost=int((values != sent).sum()),
        shared=bool((values == later).all()),
    )
    return ScriptSeen(ok=status == layouts.OK, counts=counts)


def _other_than(values: npt.NDArray[Any], two: tuple[int, int]) -> npt.NDArray[Any]:
    """Of the two numbers, in each element the first one that is not there."""
    first, second = two
    return np.where(values == first, second, first).astype(values.dtype)
