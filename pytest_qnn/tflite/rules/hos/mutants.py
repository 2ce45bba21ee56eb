"""Reference delegates with one fault each, for the rules of HOS.

Most allow dynamic tensors, so that they see a graph before the runtime's kernels have looked at it.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.reference.reading import read_tensor

Values = npt.NDArray[Any]
Operands = list[Values | None]
Shape = tuple[int, ...]


class _WritesAll(DynamicDelegate):
    """It copies its results to where their tensors' data begins, however long they are."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        tensor = view.tensor(context, index)
        if value.nbytes > tensor.bytes:
            ctypes.memmove(tensor.data, value.tobytes(), value.nbytes)
        else:
            super().write_output(context, index, value)


@faulty_delegate(
    "rows-of-each-operand",
    "Takes the shape of a CONCATENATION from its first operand, and the length of rows from each operand.",
    "HOS-01",
)
class _RowsOfEachOperand(_WritesAll):
    """As https://github.com/google/XNNPACK/pull/10373 has it."""

    def shape_of(self, node: Node, operands: list[Tensor]) -> Shape:
        shapes = [operand.shape for operand in operands]
        if node.op != "CONCATENATION" or len({len(shape) for shape in shapes}) > 1:
            return super().shape_of(node, operands)
        axis = node.axis % len(shapes[0])
        length = sum(shape[axis] for shape in shapes)
        return (*shapes[0][:axis], length, *shapes[0][axis + 1 :])

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        present = [operand for operand in operands if operand is not None]
        scales = {kernel.tensors[index].scales for index in (*node.inputs, *node.outputs) if index >= 0}
        shape = kernel.tensors[node.outputs[0]].shape
        if node.op != "CONCATENATION" or len(scales) > 1 or not all(shape):
            return super().compute_node(kernel, node, operands)
        rows = math.prod(shape[: node.axis % len(shape)])
        joined: Values = np.concatenate([operand.reshape(rows, -1) for operand in present], axis=1)
        return joined.reshape(shape) if joined.size == math.prod(shape) else joined.ravel()


@faulty_delegate(
    "keeps-stated-shapes", "Leaves a result the shape that the model states, and writes all of it.", "HOS-01"
)
class _KeepsStatedShapes(_WritesAll):
    """Once an input is resized it gives results their shapes as the reference does."""

    def init(
        self, context: int, nodes: Shape, inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._stated = {index: _shape(context, index) for index in (*inputs, *outputs)}
        return kernel

    def resize(self, context: int, index: int, shape: Shape) -> None:
        # Of a kernel that is prepared, inputs are those tensors that are not resized.
        if self._as_stated or _shape(context, index) != self._stated.get(index):
            super().resize(context, index, shape)

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        self._as_stated = any(_shape(context, index) != self._stated.get(index) for index in kernel.inputs)
        return super().kernel_prepare(context, kernel)


def _shape(context: int, index: int) -> Shape:
    return peek.integers(view.tensor(context, index).dims)


@faulty_delegate("bias-for-each-unit", "Reads as many elements of a bias as there are units.", "HOS-01")
class _BiasForEachUnit(DynamicDelegate):
    """A bias that is too short goes on behind its data."""

    def shape_of(self, node: Node, operands: list[Tensor]) -> Shape:
        if node.op in ("FULLY_CONNECTED", "CONV_2D") and len(operands) > 2:
            operands = [*operands[:2], _long(operands[2], operands[1].shape[:1])]
        return super().shape_of(node, operands)

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_prepare(context, kernel)
        weighted = (node for node in kernel.steps if node.op in ("FULLY_CONNECTED", "CONV_2D"))
        units = {
            node.inputs[2]: kernel.tensors[node.inputs[1]].shape[:1]
            for node in weighted
            if len(node.inputs) > 2 and node.inputs[2] >= 0
        }
        self._units = {**getattr(self, "_units", {}), id(kernel): units}
        return status

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._running = self._units.get(id(kernel), {})
        return super().kernel_invoke(context, kernel)

    def read_input(self, context: int, index: int) -> Values | None:
        if index not in self._running:
            return super().read_input(context, index)
        tensor = view.tensor(context, index)
        dtype = np.float32 if tensor.type == 1 else np.int32
        return peek.array(tensor.data, dtype, self._running[index])


def _long(bias: Tensor, shape: Shape) -> Tensor:
    return Tensor(shape, bias.dtype, bias.scales, bias.zero_points)


@faulty_delegate(
    "aborts-on-mismatch", "Ends the process where the operands of a node do not match.", "HOS-01", deadly=True
)
class _AbortsOnMismatch(DynamicDelegate):
    def shape_of(self, node: Node, operands: list[Tensor]) -> Shape:
        try:
            return super().shape_of(node, operands)
        except ValueError:
            os.abort()


_MOST_RANK: Final = 8


def _needed(node: Node) -> tuple[int, ...]:
    """The bias of FULLY_CONNECTED may be absent."""
    return node.inputs[:2] if node.op == "FULLY_CONNECTED" else node.inputs


@faulty_delegate(
    "absent-is-a-tensor",
    "Reads the shape of each operand that a node needs, of an absent one at NULL.",
    "HOS-02",
    deadly=True,
)
class _AbsentIsATensor(DynamicDelegate):
    """As who does not look at what GetOptionalInputTensor gives."""

    def prepare(self, context: int) -> int:
        self._context = context
        return super().prepare(context)

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        first = peek.pointer(self._context + layouts.Context.tensors.offset)
        size = ctypes.sizeof(layouts.Tensor)
        places = (first + index * size if index >= 0 else 0 for index in _needed(node))
        ranks = [peek.integer(peek.pointer(place + layouts.Tensor.dims.offset)) for place in places]
        return max(ranks, default=0) < _MOST_RANK and super().supports(node, tensors, constants)


_MET: list[Node] = []
"""Nodes without an operand that they need, in this process."""


@faulty_delegate(
    "fails-ever-after",
    "Once a node has lacked an operand, Prepare of each delegate of this kind fails.",
    "HOS-02",
)
class _FailsEverAfter(DynamicDelegate):
    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        _MET.extend([node] if -1 in _needed(node) else [])
        return super().supports(node, tensors, constants)

    def prepare(self, context: int) -> int:
        return layouts.ERROR if _MET else super().prepare(context)


_CUSTOM: Final = 32
"""BuiltinOperator_CUSTOM."""


def _custom_nodes(context: int, plan: PlanView) -> dict[int, Node]:
    """Custom operators of the plan, as if they were ABS."""
    found = (ctypes.c_void_p * 2)()
    at = ctypes.addressof(found)
    call = layouts.GetNodeAndRegistration(layouts.Context.from_address(context).GetNodeAndRegistration)
    custom = {}
    for index in plan.plan:
        code = layouts.Registration.builtin_code.offset
        if call(context, index, at, at + 8) == layouts.OK and peek.integer((found[1] or 0) + code) == _CUSTOM:
            node = found[0] or 0
            inputs, outputs = (peek.integers(peek.pointer(node + place)) for place in (0, 8))
            custom[index] = Node("ABS", inputs[:1], outputs)
    return custom


@faulty_delegate(
    "aborts-on-custom", "Ends the process where a node is a custom operator.", "HOS-03", deadly=True
)
class _AbortsOnCustom(DynamicDelegate):
    def prepare(self, context: int) -> int:
        if _custom_nodes(context, self.read(context)):
            os.abort()
        return super().prepare(context)


@faulty_delegate("custom-is-abs", "Takes a custom operator for ABS, and claims it.", "HOS-03")
class _CustomIsAbs(DynamicDelegate):
    def read(self, context: int) -> PlanView:
        plan = super().read(context)
        tensors = peek.pointer(context + layouts.Context.tensors.offset)
        for index, node in _custom_nodes(context, plan).items():
            plan.nodes[index] = node
            for tensor in (*node.inputs, *node.outputs):
                plan.tensors.setdefault(tensor, read_tensor(tensors, tensor)[0])
        return plan


_TABLE: Final = 1024


@faulty_delegate(
    "table-of-1024-nodes", "Keeps 1,024 nodes of a kernel; results of others are zero.", "HOS-04"
)
class _TableOf1024Nodes(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if len(kernel.steps) <= _TABLE:
            return super().kernel_invoke(context, kernel)
        for index in kernel.outputs:
            tensor = view.tensor(context, index)
            ctypes.memset(tensor.data, 0, tensor.bytes)
        return layouts.OK


@faulty_delegate(
    "stack-for-each-node",
    "Follows results to what they come from by calls of a function in itself, which 2,048 exhaust.",
    "HOS-04",
    deadly=True,
)
class _StackForEachNode(ReferenceDelegate):
    """Python has no such stack: the process ends where it would."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        depth: dict[int, int] = {}
        for node in kernel.steps if kernel else ():
            deepest = max((depth.get(index, 0) for index in node.inputs), default=0)
            depth.update(dict.fromkeys(node.outputs, deepest + 1))
        if max(depth.values(), default=0) > _STACK:
            os.abort()
        return kernel


_STACK: Final = 2048


_BITS: Final = 32


def _stated(context: int, indices: Shape) -> int:
    """The most elements that the model states of a tensor."""
    return max(math.prod(_shape(context, index)) for index in indices)


@faulty_delegate(
    "counts-in-32-bits", "Counts the elements that the model states of a result in 32 bits.", "HOS-05"
)
class _CountsIn32Bits(DynamicDelegate):
    """It writes no more of results than that, where it is less than there are."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        results = tuple(tensor for node in nodes for tensor in self.plan.nodes[node].outputs)
        stated = _stated(context, results)
        self._wraps = {**getattr(self, "_wraps", {}), outputs: stated >> _BITS and stated % (1 << _BITS)}
        self._wrapped = stated >> (_BITS - 1) > 0
        return super().init(context, nodes, inputs, outputs)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._least = self._wraps.get(kernel.outputs, 0) if self._wrapped else None
        return super().kernel_invoke(context, kernel)

    def write_output(self, context: int, index: int, value: Values) -> None:
        if self._least is not None:
            left = np.zeros(value.size, value.dtype)
            left[: self._least] = value.ravel()[: self._least]
            value = left.reshape(value.shape)
        super().write_output(context, index, value)


@faulty_delegate(
    "scratch-of-stated-size",
    "Takes as much memory for each kernel as its tensors are stated to need, and bears no lack of it.",
    "HOS-05",
    deadly=True,
)
class _ScratchOfStatedSize(DynamicDelegate):
    """As an exception of C++ ends the process that nobody catches."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        results = tuple(tensor for node in nodes for tensor in self.plan.nodes[node].outputs)
        if _stated(context, (*inputs, *results)) >> _ADDRESSES:
            os.abort()
        return super().init(context, nodes, inputs, outputs)


_ADDRESSES: Final = 48


@faulty_delegate(
    "first-node-of-none", "Looks at the first node of the plan, and there is none.", "HOS-06", deadly=True
)
class _FirstNodeOfNone(ReferenceDelegate):
    """What lies behind an empty array is no index of a node."""

    def prepare(self, context: int) -> int:
        if not self.read(context).plan:
            os.abort()
        return super().prepare(context)


_METADATA: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p
)
"""TfLiteContext.GetModelMetadata: (context, name, place of a pointer, place of a size) -> status."""


def _control_edges(context: int) -> list[tuple[int, int]]:
    """Of the first subgraph, as the model's metadata has them."""
    found, size = ctypes.c_void_p(), ctypes.c_size_t()
    get = _METADATA(layouts.Context.from_address(context).GetModelMetadata)
    name = b"model_control_dependencies"
    if get(context, name, ctypes.addressof(found), ctypes.addressof(size)) or not found.value:
        return []
    numbers, shift, value = [], 0, 0
    for byte in ctypes.string_at(found.value, size.value):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            shift = value = 0
    count = numbers[2]
    pairs = [number >> 1 for number in numbers[3 : 3 + 2 * count]]
    return list(zip(pairs[::2], pairs[1::2], strict=True))


@faulty_delegate(
    "edges-lead-forwards", "Takes a node that is to run behind a later one for one that has run.", "HOS-06"
)
class _EdgesLeadForwards(ReferenceDelegate):
    """Its results are zeros."""

    def prepare(self, context: int) -> int:
        self._waiting = {then for first, then in _control_edges(context) if first > then}
        return super().prepare(context)

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        values = super().compute_node(kernel, node, operands)
        late = any(self.plan.nodes.get(index) == node for index in self._waiting)
        return values * values.dtype.type(0) if late else values
