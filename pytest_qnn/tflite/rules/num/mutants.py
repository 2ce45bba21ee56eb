"""Reference delegates with one fault each, for the rules of NUM."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Activation, Node, Tensor
from pytest_qnn.tflite.graph.operators import SUMS
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.numerics.kernels import run_node
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.fused import FusedDelegate
from pytest_qnn.tflite.reference.half import HalfDelegate

Values = npt.NDArray[Any]
Operands = list[Values | None]


@faulty_delegate("approximates", "Rounds float32 results to 12 bits.", "NUM-02", "NUM-10")
class _Approximates(ReferenceDelegate):
    """As reciprocal and other approximations without a refining step give."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        if result.dtype != np.float32:
            return result
        return (np.ascontiguousarray(result).view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32)


@faulty_delegate("adds-up-in-half", "Adds up in float16.", "NUM-08")
class _AddsUpInHalf(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.op not in SUMS or operands[0] is None or operands[0].dtype != np.float32:
            return super().compute_node(kernel, node, operands)
        halved = [_half(operand) for operand in operands]
        result = _half(super().compute_node(kernel, node, halved))
        return result if result is not None else np.empty(0, np.float32)


def _half(values: Values | None) -> Values | None:
    if values is None or values.dtype != np.float32:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


@faulty_delegate("truncates", "Keeps six bits of an int8 result.", "NUM-03")
class _Truncates(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        return result & np.int8(-4) if result.dtype == np.int8 else result


@faulty_delegate("wraps-around", "Lets int8 results wrap around.", "NUM-04")
class _WrapsAround(ReferenceDelegate):
    """Computes in float32 and keeps the low eight bits of the rounded result."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        output = kernel.tensors[node.outputs[0]]
        if output.dtype != "int8":
            return super().compute_node(kernel, node, operands)
        tensors = {i: _as_float(kernel.tensors[i]) for i in (*node.inputs, *node.outputs) if i >= 0}
        reals = [
            None if values is None else _real(values, kernel.tensors[index])
            for index, values in zip(node.inputs, operands, strict=True)
        ]
        result = run_node(node, tensors, reals) / output.scales[0] + output.zero_points[0]
        wrapped: Values = np.floor(result + 0.5).astype(np.int64).astype(np.int8)
        return wrapped


def _as_float(tensor: Tensor) -> Tensor:
    return Tensor(tensor.shape) if tensor.scales else tensor


def _real(values: Values, tensor: Tensor) -> Values:
    """The real numbers that quantised values stand for."""
    if not tensor.scales:
        return values
    along = [1] * values.ndim
    if len(tensor.scales) > 1:
        along[tensor.axis] = -1
    scale, zero = (np.array(parts).reshape(along) for parts in (tensor.scales, tensor.zero_points))
    return np.asarray((values.astype(np.int64) - zero) * scale, np.float32)


@faulty_delegate("ignores-activation", "Leaves fused activations out.", "NUM-06")
class _IgnoresActivation(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        return super().compute_node(kernel, msgspec.structs.replace(node, activation="NONE"), operands)


@faulty_delegate("halves-long-sums", "Computes in half precision from 1024 terms on.", "NUM-08")
class _HalvesLongSums(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        first = operands[0]
        long = first is not None and first.dtype == np.float32 and first.shape[-1:] >= (1024,)
        return super().compute_node(kernel, node, [_halved(one) for one in operands] if long else operands)


def _halved(values: Values | None) -> Values | None:
    if values is None or values.dtype != np.float32:
        return values
    return values.astype(np.float16).astype(np.float32)


@faulty_delegate(
    "forgets-odd-tail",
    "Repeats the last element but one where the number of elements is odd.",
    "NUM-03",
    "NUM-10",
)
class _ForgetsOddTail(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands).copy()
        flat = result.reshape(-1)
        if flat.size % 2 and flat.size > 1:
            flat[-1] = flat[-2]
        return result


@faulty_delegate(
    "halves-large-partitions",
    "Keeps results in half precision in partitions of four nodes and more.",
    "NUM-09",
)
class _HalvesLargePartitions(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        if len(kernel.steps) < 4 or result.dtype != np.float32:
            return result
        with np.errstate(over="ignore"):
            return result.astype(np.float16).astype(np.float32)


@faulty_delegate(
    "forgets-ranges", "Clamps int8 results only where they leave the partition.", "NUM-03", "NUM-09"
)
class _ForgetsRanges(FusedDelegate):
    def clamped(self, tensor: Tensor, activation: Activation, real: Values) -> Values:
        del tensor, activation
        return real


@faulty_delegate(
    "rounds-wrongly-at-the-edge",
    "Rounds what leaves an int8 partition of two nodes and more down by more than a unit.",
    "NUM-03",
    "NUM-09",
)
class _FloorsAtTheEdge(FusedDelegate):
    def rounded(self, kernel: Kernel, tensor: Tensor, activation: Activation, real: Values) -> Values:
        if len(kernel.steps) > 1:
            real = real - 1.5 * tensor.scales[0]
        return super().rounded(kernel, tensor, activation, real)


@faulty_delegate("rounds-down", "Rounds int8 results down.", "NUM-03")
class _RoundsDown(FusedDelegate):
    """A shift in place of a division: what needs no rounding stays as it is."""

    def rounded(self, kernel: Kernel, tensor: Tensor, activation: Activation, real: Values) -> Values:
        return super().rounded(kernel, tensor, activation, real - 0.499 * tensor.scales[0])


@faulty_delegate(
    "broadcasts-one-operand",
    "Of two float32 operands that are both broadcast, reads the second with the strides of the first.",
    "NUM-10",
)
class _BroadcastsOneOperand(ReferenceDelegate):
    """One set of strides is right where one of the two has the shape of the result."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = kernel.tensors[node.outputs[0]]
        if node.op in ("ADD", "SUB", "MUL", "MAXIMUM") and result.dtype == "float32":
            first, second = operands
            assert first is not None  # none of these has an operand that may be absent
            assert second is not None
            if result.shape not in (first.shape, second.shape):
                places = np.broadcast_to(np.arange(first.size).reshape(first.shape), result.shape)
                operands = [first, second.ravel()[places % second.size]]
        return super().compute_node(kernel, node, operands)


@faulty_delegate("broadcasts-by-repeating", "Repeats a smaller first operand as a whole.", "NUM-03", "NUM-10")
class _BroadcastsByRepeating(ReferenceDelegate):
    """Element i is read modulo the operand's elements: right for a scalar, and along the first dimensions."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        shape = kernel.tensors[node.outputs[0]].shape
        first, *others = operands
        if node.op in ("ADD", "SUB", "MUL") and first is not None and first.size < prod(shape):
            first = np.resize(first.ravel(), shape)
        return super().compute_node(kernel, node, [first, *others])


_LEAST = np.finfo(np.float32).tiny


class _OtherTensors(ReferenceDelegate):
    """Computes as if each tensor were described as `described` says."""

    def described(self, tensor: Tensor) -> Tensor:
        return tensor

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        named = (*node.inputs, *node.outputs)
        tensors: Mapping[int, Tensor] = {
            index: self.described(kernel.tensors[index]) for index in named if index >= 0
        }
        return run_node(node, _Table(tensors), operands)


class _Table:
    def __init__(self, tensors: Mapping[int, Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, index: int, /) -> Tensor:
        return self._tensors[index]


@faulty_delegate("uses-first-scale", "Takes the first channel's scale for all of them.", "NUM-05")
class _UsesFirstScale(_OtherTensors):
    def described(self, tensor: Tensor) -> Tensor:
        count = len(tensor.scales)
        return msgspec.structs.replace(tensor, scales=tensor.scales[:1] * count) if count > 1 else tensor


@faulty_delegate("ignores-zero-points", "Takes every zero point for 0.", "NUM-05")
class _IgnoresZeroPoints(_OtherTensors):
    def described(self, tensor: Tensor) -> Tensor:
        zeros = (0,) * len(tensor.zero_points)
        return msgspec.structs.replace(tensor, zero_points=zeros) if any(tensor.zero_points) else tensor


class _OtherActivations(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        return super().compute_node(kernel, self.changed(kernel, node), operands)

    def changed(self, kernel: Kernel, node: Node) -> Node:  # noqa: ARG002 - for overriding steps
        return node


@faulty_delegate("takes-relu6-for-relu", "Does not stop at 6.", "NUM-06")
class _TakesSixForRelu(_OtherActivations):
    def changed(self, kernel: Kernel, node: Node) -> Node:
        del kernel
        return msgspec.structs.replace(node, activation="RELU") if node.activation == "RELU6" else node


@faulty_delegate(
    "activates-at-the-edge", "Applies fused activations only to what leaves the partition.", "NUM-06"
)
class _ActivatesAtTheEdge(_OtherActivations):
    def changed(self, kernel: Kernel, node: Node) -> Node:
        inside = not set(node.outputs).intersection(kernel.outputs)
        return msgspec.structs.replace(node, activation="NONE") if inside else node


class _FloatResults(ReferenceDelegate):
    """Changes float32 results by `changed`."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        return self.changed(result, node) if result.dtype == np.float32 else result

    def changed(self, result: Values, node: Node) -> Values:
        del node
        return result


@faulty_delegate("rounds-up", "Gives the next larger number for a float32 result that is not 0.", "NUM-01")
class _RoundsUp(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        exact = node.op in ("RESHAPE", "CONCATENATION", "MAXIMUM", "RELU", "ABS", "NEG", *SUMS)
        return result if exact else np.where(result > 0, np.nextafter(result, np.float32(np.inf)), result)


class _BeforeActivation(ReferenceDelegate):
    """Changes float32 results by `changed`, before their fused activation is applied."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if kernel.tensors[node.outputs[0]].dtype != "float32":
            return super().compute_node(kernel, node, operands)
        bare = super().compute_node(kernel, msgspec.structs.replace(node, activation="NONE"), operands)
        least = -np.inf if node.activation == "NONE" else 0
        most = 6 if node.activation == "RELU6" else np.inf
        return np.clip(self.changed(bare, node), np.float32(least), np.float32(most))

    def changed(self, result: Values, node: Node) -> Values:
        del node
        return result


@faulty_delegate("adds-a-thousandth", "Makes sums of ADD larger by a thousandth.", "NUM-10")
class _AddsAThousandth(_BeforeActivation):
    def changed(self, result: Values, node: Node) -> Values:
        return result * np.float32(1.001) if node.op == "ADD" else result


@faulty_delegate(
    "eight-units-off", "One element of each product is off by 8 units in the last place.", "NUM-10"
)
class _EightUnitsOff(_BeforeActivation):
    def changed(self, result: Values, node: Node) -> Values:
        if node.op != "MUL" or not result.size:
            return result
        flat = result.copy().reshape(-1)
        flat[-1] += 8 * np.spacing(flat[-1])
        return flat.reshape(result.shape)


@faulty_delegate("computes-in-half", "Computes float32 in float16, and nobody declares it.", "NUM-08")
class _ComputesInHalf(HalfDelegate):
    """What is right for a delegate that is declared so."""


@faulty_delegate("declares-half-uses-bfloat", "Computes float32 in bfloat16, declared as float16.", "NUM-10")
class _DeclaresHalf(HalfDelegate):
    PRECISION: Final = "float16"

    def rounded(self, values: Values) -> Values:
        bits = np.ascontiguousarray(values).view(np.uint32)
        nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        finite = np.where(np.isfinite(values), nearest, bits)
        return (finite & np.uint32(0xFFFF0000)).view(np.float32)


@faulty_delegate("loses-nan", "Gives 0 for NaN.", "NUM-07")
class _LosesNan(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        del node
        return np.where(np.isnan(result), np.float32(0), result)


@faulty_delegate("bounds-infinity", "Clamps results to the range of float16 beside infinities.", "NUM-07")
class _BoundsInfinity(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        del node
        return np.clip(result, np.float32(-65504), np.float32(65504)) if np.isinf(result).any() else result


@faulty_delegate("flushes-copies", "Copies denormal numbers as 0.", "NUM-07")
class _FlushesCopies(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        copied = node.op in ("RESHAPE", "CONCATENATION")
        return np.where(np.abs(result) < _LEAST, np.float32(0), result) if copied else result


@faulty_delegate("drops-zero-signs", "Copies -0 as 0.", "NUM-07")
class _DropsZeroSigns(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        copied = node.op in ("RESHAPE", "CONCATENATION")
        return np.where(result == 0, np.float32(0), result) if copied else result


class _OfMany(ReferenceDelegate):
    """Computes element-wise results right, and takes or leaves some elements where there are many."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        if result.size <= _COUNTED:
            return result
        return self.spoiled(result.ravel()).reshape(result.shape)

    @abc.abstractmethod
    def spoiled(self, elements: Values) -> Values:
        """The elements as they come out."""


_COUNTED: Final = 1 << 22


@faulty_delegate(
    "counts-in-float32", "Counts elements in float32, which misses odd ones from 2**24 on.", "NUM-11"
)
class _CountsInFloat(_OfMany):
    def spoiled(self, elements: Values) -> Values:
        exact = 1 << 24
        index = np.arange(min(exact, elements.size), elements.size)
        rounded = np.minimum(index.astype(np.float32).astype(np.int64), elements.size - 1)
        return np.concatenate([elements[:exact], elements[rounded]])


@faulty_delegate("counts-in-22-bits", "Counts elements in 22 bits, and begins again behind those.", "NUM-11")
class _CountsInFewBits(_OfMany):
    def spoiled(self, elements: Values) -> Values:
        return np.resize(elements[:_COUNTED], elements.shape)


@faulty_delegate(
    "leaves-last-block", "Leaves out what is behind the last whole block of 64 Ki elements.", "NUM-11"
)
class _LeavesLastBlock(_OfMany):
    def spoiled(self, elements: Values) -> Values:
        found = elements.copy()
        found[elements.size & ~0xFFFF :] = 0
        return found
