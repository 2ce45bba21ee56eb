"""A conforming reference delegate that keeps its kernels while shapes change.

With kTfLiteDelegateFlagsAllowDynamicTensors the runtime does not undo the delegation when an input is
resized: it prepares the kernels again, and these give their outputs the new shapes. Where a shape depends on
data, the output is marked dynamic in prepare and resized in invoke. Source: common.h, TfLiteDelegateFlags.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import msgspec
import numpy as np

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.graph.valid import result_shape
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.operators import supports

Shape = tuple[int, ...]

_RESIZE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""(context, TfLiteTensor*, TfLiteIntArray* that it takes over) -> status."""
_SIZE: Final = ctypes.sizeof(layouts.Tensor)


class DynamicDelegate(ReferenceDelegate):
    """As the reference, with dynamic tensors allowed; it computes RESHAPE by any shape.

    Args:
        flags: TfLiteDelegateFlags.
        options: those of the reference.
    """

    def __init__(self, *, flags: int = layouts.FLAG_ALLOW_DYNAMIC_TENSORS, **options: Any) -> None:
        super().__init__(flags=flags, **options)

    def supports(self, node: Node, tensors: Any, constants: set[int]) -> bool:
        """As the reference, and RESHAPE by a shape that is no constant.

        Of FULLY_CONNECTED that keeps dimensions, and RESHAPE of nothing, it does not work out the shape.
        """
        if node.op == "FULLY_CONNECTED" and len(tensors[node.outputs[0]].shape) != 2:
            return False
        if node.op == "RESHAPE" and 0 in tensors[node.inputs[0]].shape:
            return False
        if node.op == "RESHAPE" and len(node.inputs) == 2 and tensors[node.inputs[1]].dtype == "int32":
            return supports(node, tensors, {*constants, node.inputs[1]})
        return super().supports(node, tensors, constants)

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        """Work out the shapes anew and pass them on."""
        unknown = self.propagate(context, kernel)
        for index in kernel.outputs:
            if index in unknown:
                self.make_dynamic(context, index)
            else:
                self.resize(context, index, kernel.tensors[index].shape)
        return super().kernel_prepare(context, kernel)

    def propagate(self, context: int, kernel: Kernel) -> set[int]:
        """Give the kernel's tensors the shapes that follow from its inputs; the results of unknown shape."""
        named = {index for node in kernel.steps for index in (*node.inputs, *node.outputs) if index >= 0}
        tensors = {index: kernel.tensors[index] for index in named}
        for index in kernel.inputs:
            tensors[index] = self.current(context, index, kernel.tensors[index])
        unknown: set[int] = set()
        for node in kernel.steps:
            operands = [tensors[index] for index in node.inputs if index >= 0]
            output = node.outputs[0]
            if not unknown.isdisjoint(node.inputs) or (node.op == "RESHAPE" and operands[1].data is None):
                unknown.add(output)
                continue
            shape = self.shape_of(node, operands)
            tensors[output] = msgspec.structs.replace(tensors[output], shape=shape)
        kernel.tensors = tensors
        return unknown

    def shape_of(self, node: Node, operands: list[Tensor]) -> Shape:
        """The shape of a node's result.

        Raises:
            ValueError: the operands do not match.
        """
        return result_shape(node, operands)

    def current(self, context: int, index: int, known: Tensor) -> Tensor:
        """A tensor of the runtime with its shape as it is now; an int32 constant with its contents."""
        seen = view.tensor(context, index)
        shape = peek.integers(seen.dims)
        constant = seen.allocation_type == layouts.ALLOCATION_MMAP_RO and known.dtype == "int32"
        data = ctypes.string_at(seen.data, seen.bytes) if constant else None
        return msgspec.structs.replace(known, shape=shape, data=data)

    def make_dynamic(self, context: int, index: int) -> None:
        """As SetTensorToDynamic of kernel_util.h does."""
        tensor = layouts.Tensor.from_address(address_of(context, index))
        if tensor.allocation_type != layouts.ALLOCATION_DYNAMIC:
            tensor.allocation_type = layouts.ALLOCATION_DYNAMIC
            tensor.data = None

    def resize(self, context: int, index: int, shape: Shape) -> None:
        """Give an output a shape, unless it has it.

        Raises:
            RuntimeError: ResizeTensor answers with an error.
        """
        seen = view.tensor(context, index)
        if peek.integers(seen.dims) == shape and (seen.data or not is_dynamic(seen)):
            return
        resize = _RESIZE(layouts.Context.from_address(context).ResizeTensor)
        if resize(context, address_of(context, index), owned_int_array(shape)):
            raise RuntimeError(f"ResizeTensor failed for tensor {index}")

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        """As the reference, with the shape that follows from the operands as they are."""
        output = node.outputs[0]
        pairs = zip(node.inputs, operands, strict=True)
        shape = self.shape_of(
            node, [self._as_is(kernel, i, value) for i, value in pairs if value is not None]
        )
        if kernel.tensors[output].shape != shape:
            changed = msgspec.structs.replace(kernel.tensors[output], shape=shape)
            kernel.tensors = {**kernel.tensors, output: changed}
        return super().compute_node(kernel, node, operands)

    def _as_is(self, kernel: Kernel, index: int, value: Values) -> Tensor:
        data = value.astype("<i4").tobytes() if value.dtype == np.int32 else None
        return msgspec.structs.replace(kernel.tensors[index], shape=value.shape, data=data)

    def write_output(self, context: int, index: int, value: Values) -> None:
        """As the reference; a dynamic tensor is given its shape first."""
        if is_dynamic(view.tensor(context, index)):
            self.resize(context, index, value.shape)
        super().write_output(context, index, value)


class DynamicOutputs(DynamicDelegate):
    """All its outputs are dynamic."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        """The shapes are found out at each invoke."""
        status = super().kernel_prepare(context, kernel)
        for index in kernel.outputs:
            self.make_dynamic(context, index)
        return status


class PropagatedDelegate(DynamicDelegate):
    """As `DynamicDelegate`; the runtime gives outputs their shapes before it prepares the kernels."""

    def __init__(self, **options: Any) -> None:
        flags = layouts.FLAG_ALLOW_DYNAMIC_TENSORS | layouts.FLAG_REQUIRE_PROPAGATED_SHAPES
        super().__init__(flags=flags, **options)


def is_dynamic(tensor: view.TensorView) -> bool:
    """The tensor's memory is its own, and may change during invoke."""
    return tensor.allocation_type == layouts.ALLOCATION_DYNAMIC


def address_of(context: int, index: int) -> int:
    """The address of a TfLiteTensor."""
    return peek.pointer(context + layouts.Context.tensors.offset) + index * _SIZE


def owned_int_array(values: Shape) -> int:
    """A TfLiteIntArray that the runtime will free."""
    contents = peek.int_array(values)
    size = ctypes.sizeof(contents)
    address: int = libc.malloc(size)
    ctypes.memmove(address, contents, size)
    return address
