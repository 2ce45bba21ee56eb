"""Reference delegates that handle state or memory wrongly."""

from __future__ import annotations

import ctypes
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.abi import peek, tflite, view
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate

_ARENA = 2
"""kTfLiteArenaRw."""


@faulty_delegate("appends-steps", "Appends its operators again at every prepare.", "LIFE-02")
class _AppendsSteps(ReferenceDelegate):
    """The copy of a step works on the step's own result."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        first = not hasattr(kernel, "own")
        if first:
            kernel.own = kernel.steps  # type: ignore[attr-defined] # the mutant's own memory
        else:
            again = (
                msgspec.structs.replace(step, inputs=(step.outputs[0], *step.inputs[1:]))
                for step in kernel.own  # type: ignore[attr-defined] # as above
            )
            kernel.steps += tuple(again)
        return super().kernel_prepare(context, kernel)


@faulty_delegate("swaps-operands", "Leaves the operands of SUB swapped in the graph.", "ERR-03", "LIFE-10")
class _SwapsOperands(ReferenceDelegate):
    """Rewrites the graph in Prepare and never puts it back."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        found = (ctypes.c_void_p * 2)()
        at = ctypes.addressof(found)
        call = tflite.GetNodeAndRegistration(tflite.Context.from_address(context).GetNodeAndRegistration)
        for index, node in self.plan.nodes.items():
            if node.op == "SUB" and call(context, index, at, at + 8) == tflite.OK:
                inputs = peek.pointer(peek.pointer(at)) + ctypes.sizeof(ctypes.c_int)
                peek.array(inputs, np.int32, (2,))[:] = node.inputs[::-1]
        return status


@faulty_delegate("writes-elsewhere", "Writes a tensor of other nodes.", "MEM-01")
class _WritesElsewhere(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        tensors = view.tensors(context)
        own = [(tensors[index].data, tensors[index].data + tensors[index].bytes) for index in kernel.outputs]
        for index, tensor in enumerate(tensors):
            foreign = index not in kernel.inputs and index not in kernel.outputs
            apart = all(tensor.data + tensor.bytes <= begin or end <= tensor.data for begin, end in own)
            if foreign and apart and tensor.data and tensor.allocation_type == _ARENA:
                peek.array(tensor.data, np.uint8, (1,))[0] ^= 0xFF
                break
        return status


@faulty_delegate("writes-input", "Rectifies its inputs in place.", "MEM-02")
class _WritesInput(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        for index in kernel.inputs:
            values = self.read_input(context, index)
            if values is not None and view.tensor(context, index).allocation_type == _ARENA:
                np.maximum(values, 0, out=values)
        return status


@faulty_delegate("keeps-scratch", "Reads scratch memory that the last invoke left.", "DET-01")
class _KeepsScratch(ReferenceDelegate):
    """Adds to an output what the last invoke left in its scratch memory."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._scratch: dict[int, npt.NDArray[Any]] = {}

    def write_output(self, context: int, index: int, value: npt.NDArray[Any]) -> None:
        stale = self._scratch.get(index)
        self._scratch[index] = value
        super().write_output(context, index, value if stale is None else value + stale)


@faulty_delegate("skips-tail", "Leaves out elements beyond a multiple of four.", "DET-04")
class _SkipsTail(ReferenceDelegate):
    """Works on whole vectors of four elements."""

    def write_output(self, context: int, index: int, value: npt.NDArray[Any]) -> None:
        tensor = view.tensor(context, index)
        whole = value.size - value.size % 4
        peek.array(tensor.data, value.dtype, (value.size,))[:whole] = value.ravel()[:whole]
