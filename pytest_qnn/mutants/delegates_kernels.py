"""Reference delegates whose kernels keep, add or share too much, or whose callbacks change the graph."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pytest_qnn.abi import peek, tflite, view
from pytest_qnn.isolation import libc
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate, Values

_ARENA = (2, 3)
"""kTfLiteArenaRw, kTfLiteArenaRwPersistent."""
_LEAK = 1000


@faulty_delegate("leaks-at-prepare", "Never frees what prepare acquires.", "LIFE-05")
class _LeaksAtPrepare(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        libc.malloc(_LEAK)
        return super().kernel_prepare(context, kernel)


@faulty_delegate(
    "leaks-at-invoke", "A kernel of several nodes never frees what its second invoke acquires.", "LIFE-05"
)
class _LeaksAtInvoke(ReferenceDelegate):
    """Only kernels of more than one node, and at their second invoke."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        if len(kernel.nodes) > 1 and kernel.invokes == 2:
            libc.malloc(_LEAK)
        return status


@faulty_delegate("leaks-at-init", "Never frees what init acquires.", "LIFE-05")
class _LeaksAtInit(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        libc.malloc(_LEAK)
        return super().init(context, nodes, inputs, outputs)


@faulty_delegate("folds-data", "Takes data at the time of prepare for constant.", "LIFE-09")
class _FoldsData(ReferenceDelegate):
    """Takes an operand that has data at the time of prepare for a constant."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        folded: dict[int, Values] = {}
        for index in kernel.inputs[:1]:
            if view.tensor(context, index).data:
                values = self.read_input(context, index)
                folded[index] = np.array(values)
        kernel.folded = folded  # type: ignore[attr-defined] # the mutant's own memory
        self._folded = folded
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._folded = getattr(kernel, "folded", {})
        return super().kernel_invoke(context, kernel)

    def read_input(self, context: int, index: int) -> Values | None:
        folded: dict[int, Values] = getattr(self, "_folded", {})
        return folded[index] if index in folded else super().read_input(context, index)


@faulty_delegate("clears-outputs", "Clears its outputs in prepare.", "LIFE-09")
class _ClearsOutputs(ReferenceDelegate):
    """Clears its outputs in prepare, if they have memory."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        for index in kernel.outputs:
            tensor = view.tensor(context, index)
            if tensor.data and tensor.allocation_type in _ARENA:
                ctypes.memset(tensor.data, 0, tensor.bytes)
        return super().kernel_prepare(context, kernel)


@faulty_delegate("packs-weights", "Rearranges constants in place in Prepare.", "LIFE-10")
class _PacksWeights(ReferenceDelegate):
    """Rearranges constants where they are."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        for index in sorted(self.plan.constants):
            tensor = view.tensor(context, index)
            if tensor.data and tensor.bytes:
                peek.array(tensor.data, np.uint8, (tensor.bytes,))[0] ^= 0x01
        return status


@faulty_delegate("flattens-results", "Changes dimensions in Prepare.", "LIFE-10")
class _FlattensResults(ReferenceDelegate):
    """Turns the dimensions of a result round."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        for node in self.plan.nodes.values():
            dims = view.tensor(context, node.outputs[0]).dims
            shape = peek.integers(dims)
            if shape[::-1] != shape:
                peek.array(dims + ctypes.sizeof(ctypes.c_int), np.int32, (len(shape),))[:] = shape[::-1]
                break
        return status


@faulty_delegate("adds-tensors", "Adds a tensor at each prepare.", "LIFE-11")
class _AddsTensors(ReferenceDelegate):
    """Adds a tensor of its own at each prepare."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        first = ctypes.c_int()
        add = tflite.AddTensors(tflite.Context.from_address(context).AddTensors)
        add(context, 1, ctypes.addressof(first))
        return super().kernel_prepare(context, kernel)


@faulty_delegate("initialises-once", "Stays initialised when it is undone.", "PREC-07")
class _InitialisesOnce(ReferenceDelegate):
    """Claims nothing once it was initialised, even when that was undone."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._initialised = False

    def prepare(self, context: int) -> int:
        if self._initialised:
            return tflite.OK
        self._initialised = True
        return super().prepare(context)


@faulty_delegate("has-one-kernel", "Runs the kernel made last.", "PREC-08")
class _HasOneKernel(ReferenceDelegate):
    """Runs the steps of the kernel made last, whichever is invoked."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._last = kernel
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:  # noqa: ARG002 - that is the fault
        return super().kernel_invoke(context, self._last) if self._last else tflite.ERROR
