"""Faults that depend on how many elements a tensor has."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_qnn.tflite.abi import peek, view
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.late.conditions import KIB, MIB, Operands, cut, is_constant, store_part, with_tensors
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values


@faulty_delegate("late-result-64-kib", "A result above 64 KiB is not written beyond its first 64 KiB.")
class _ResultOf64KiB(ReferenceDelegate):
    """A staging buffer of fixed size. facts, DET-04: outputs are fully overwritten."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        if value.nbytes <= 64 * KIB:
            super().write_output(context, index, value)
        else:
            store_part(context, index, value, 64 * KIB // value.itemsize)


@faulty_delegate("late-second-mebibyte", "A result above a mebibyte repeats its first mebibyte.")
class _SecondMebibyte(ReferenceDelegate):
    """An offset that is kept in 20 bits. common.h, TfLiteTensor.bytes; facts, DET-04."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        if value.nbytes > MIB:
            value = np.resize(value.ravel()[: MIB // value.itemsize], value.shape)
        super().write_output(context, index, value)


@faulty_delegate(
    "late-operand-page", "Of an operand above 4 KiB the last, incomplete 4 KiB are read as zeros."
)
class _OperandPage(ReferenceDelegate):
    """A copy in whole pages. facts, MEM-03: sizes that are no multiple of the copy's width."""

    def read_input(self, context: int, index: int) -> Values | None:
        value = super().read_input(context, index)
        if value is None or value.nbytes <= 4 * KIB or is_constant(context, index):
            return value
        return cut(value, value.nbytes // (4 * KIB) * 4 * KIB // value.itemsize)


@faulty_delegate("late-large-constant", "A constant above 16 KiB is zero beyond its first 16 KiB.")
class _LargeConstant(ReferenceDelegate):
    """Constants are uploaded through a buffer of fixed size. facts, PART-03: what is claimed is computed."""

    def read_input(self, context: int, index: int) -> Values | None:
        value = super().read_input(context, index)
        if value is None or value.nbytes <= 16 * KIB or not is_constant(context, index):
            return value
        return cut(value, 16 * KIB // value.itemsize)


@faulty_delegate(
    "late-fifteen-of-sixteen",
    "ADD, SUB and MUL leave the last element at zero where more than 16 elements leave a remainder of 15.",
)
class _FifteenOfSixteen(ReferenceDelegate):
    """The remainder of a vectorised loop. facts, NUM-01 and MEM-03."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        if node.op in ("ADD", "SUB", "MUL") and value.size > 16 and value.size % 16 == 15:
            return cut(value, value.size - 1)
        return value


@faulty_delegate(
    "late-slope-remainder",
    "PRELU leaves the last three elements without slope where more than 16 elements leave 3 modulo 4.",
)
class _SlopeRemainder(ReferenceDelegate):
    """As above, for a loop of four. facts, NUM-01."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        source = operands[0]
        if node.op != "PRELU" or source is None or value.dtype != np.float32:
            return value
        if value.size <= 16 or value.size % 4 != 3:
            return value
        flat = np.array(value).ravel()
        flat[-3:] = source.ravel()[-3:]
        return flat.reshape(value.shape)


@faulty_delegate(
    "late-zero-point-remainder",
    "Behind the last whole block of 8 of more than 32 int8 results the zero point is missing.",
)
class _ZeroPointRemainder(ReferenceDelegate):
    """The loop over the remainder was forgotten when zero points came. facts, NUM-05."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        left = value.size % 8
        if node.op not in ("ADD", "SUB", "MUL") or value.dtype != np.int8 or value.size <= 32 or not left:
            return value
        flat = np.array(value).ravel().astype(np.int32)
        flat[-left:] -= kernel.tensors[node.outputs[0]].zero_points[0]
        return np.clip(flat, -128, 127).astype(np.int8).reshape(value.shape)


@faulty_delegate(
    "late-odd-width",
    "CONV_2D with SAME padding and stride 2 is one column off where its input's width is odd.",
)
class _OddWidth(ReferenceDelegate):
    """Padding worked out for even widths. facts, PART-03: what is claimed is computed."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        source = operands[0]
        if node.op == "CONV_2D" and node.same_padding and node.stride[1] == 2 and source is not None:
            width = source.shape[2]
            if width % 2 and width > 1:
                operands = [np.roll(source, 1, axis=2), *operands[1:]]
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "late-sum-remainder",
    "FULLY_CONNECTED leaves out the terms behind the last whole 256 where a sum has more than 256.",
)
class _SumRemainder(ReferenceDelegate):
    """Sums in blocks of 256. facts, NUM-02."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        weights = operands[1] if node.op == "FULLY_CONNECTED" else None
        if weights is not None and weights.shape[-1] > 256 and weights.shape[-1] % 256:
            weights = weights.copy()
            weights[:, weights.shape[-1] // 256 * 256 :] = 0
            operands = [operands[0], weights, *operands[2:]]
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "late-channel-33", "int8 FULLY_CONNECTED takes the scales of channels beyond 32 from the first 32 again."
)
class _Channel33(ReferenceDelegate):
    """A table of 32 scales. facts, NUM-05: per-channel scales are honoured."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.op == "FULLY_CONNECTED":
            weights = kernel.tensors[node.inputs[1]]
            if len(weights.scales) > 32:
                scales = tuple(weights.scales[channel % 32] for channel in range(len(weights.scales)))
                kernel = with_tensors(kernel, {node.inputs[1]: replace(weights, scales=scales)})
        return super().compute_node(kernel, node, operands)


@faulty_delegate("late-bias-17", "CONV_2D adds the first 16 biases again to the channels beyond 16.")
class _Bias17(ReferenceDelegate):
    """A block of 16 output channels. facts, PART-03 and NUM-02."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        bias = operands[2] if node.op == "CONV_2D" and len(operands) > 2 else None
        if bias is not None and bias.size > 16:
            operands = [*operands[:2], np.resize(bias[:16], bias.shape)]
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "late-writes-in-eights",
    "Of more than 64 elements the last, incomplete 8 are written as 8, beyond the tensor's end.",
    deadly=True,
)
class _WritesInEights(ReferenceDelegate):
    """A vector store for the remainder. facts, MEM-03: no write outside the tensor's data."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        beyond = -value.size % 8
        if value.size > 64 and beyond:
            end = view.tensor(context, index).data + value.nbytes
            peek.array(end, value.dtype, (beyond,))[...] = value.ravel()[-1]


@faulty_delegate(
    "late-empty-after-full",
    "A kernel whose first result has no elements reads address 0 if an earlier one had some.",
    deadly=True,
)
class _EmptyAfterFull(ReferenceDelegate):
    """The address is only checked the first time. facts, MEM-09: tensors without elements are handled."""

    full = False

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        size = view.tensor(context, kernel.outputs[0]).bytes
        if self.full and not size:
            peek.integer(0)
        self.full |= bool(size)
        return super().kernel_invoke(context, kernel)
