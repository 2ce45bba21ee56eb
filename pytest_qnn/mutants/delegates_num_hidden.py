"""Reference delegates whose numbers go wrong only where the shape of the case shows it.

Long sums, odd element counts, partitions of more than some nodes, the second invoke, the second delegate
of a process, another process.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.cases.graph import Activation, Node, Tensor
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.delegate_fused import FusedDelegate

Values = npt.NDArray[Any]
Operands = list[Values | None]


@faulty_delegate("halves-long-sums", "Computes in half precision from 1024 terms on.", "NUM-08")
class _HalvesLongSums(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        first = operands[0]
        long = first is not None and first.dtype == np.float32 and first.shape[-1] >= 1024
        return super().compute_node(kernel, node, [_halved(one) for one in operands] if long else operands)


def _halved(values: Values | None) -> Values | None:
    if values is None or values.dtype != np.float32:
        return values
    return values.astype(np.float16).astype(np.float32)


@faulty_delegate(
    "forgets-odd-tail",
    "Repeats the last element but one where the number of elements is odd.",
    "NUM-01",
    "NUM-03",
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


class _Remembers(ReferenceDelegate):
    """Knows how often each kernel was invoked, and what its outputs were first."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first: dict[tuple[int, ...], dict[int, Values]] = {}

    def write_output(self, context: int, index: int, value: Values) -> None:
        first = self.first.setdefault((index,), {})
        if first:
            value = self.later(first[0], value)
        else:
            first[0] = np.array(value)
        super().write_output(context, index, value)

    def later(self, first: Values, value: Values) -> Values:
        del first
        return value


@faulty_delegate("keeps-first-results", "Gives the first invoke's results for ever.", "DET-02")
class _KeepsFirstResults(_Remembers):
    def later(self, first: Values, value: Values) -> Values:
        del value
        return first


@faulty_delegate("adds-to-outputs", "Adds to the first invoke's results later on.", "DET-01", "DET-02")
class _AddsToOutputs(_Remembers):
    def later(self, first: Values, value: Values) -> Values:
        return (first + value).astype(value.dtype)


@faulty_delegate("tunes", "Computes in another way with every second delegate.", "DET-03")
class _Tunes(ReferenceDelegate):
    """Every delegate of the process after the first one takes another way to compute."""

    made = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        type(self).made += 1
        self._way = type(self).made % 2

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        return _with_low_byte(super().compute_node(kernel, node, operands), self._way)


@faulty_delegate("depends-on-the-process", "Computes in another way in each process.", "DET-03")
class _DependsOnTheProcess(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        return _with_low_byte(super().compute_node(kernel, node, operands), os.getpid())


def _with_low_byte(result: Values, salt: int) -> Values:
    changed = np.ascontiguousarray(result).copy()
    changed.reshape(-1).view(np.uint8)[:: changed.itemsize] = salt & 0x7F
    return changed
