"""Reference delegates with one fault each, for the rules of DET."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import peek, view
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.rules.num.mutants import Operands, Values


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


class _Remembers(ReferenceDelegate):
    """Knows how often each kernel was invoked, and what its outputs were first."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first: dict[tuple[int, ...], dict[int, Values]] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        for index in outputs:
            self.first.pop((index,), None)
        return super().init(context, nodes, inputs, outputs)

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


@faulty_delegate("packs-weights-once", "Keeps the weights that a layer has at its first invoke.", "DET-02")
class _PacksWeightsOnce(ReferenceDelegate):
    """Weights that are constants need not be packed again; here these are not where a client gives them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._packed: dict[int, Values] = {}
        """By tensor."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        weights = operands[1] if node.op == "FULLY_CONNECTED" else None
        if weights is None:
            return super().compute_node(kernel, node, operands)
        packed = self._packed.setdefault(node.inputs[1], np.array(weights))
        return super().compute_node(kernel, node, [operands[0], packed, *operands[2:]])


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


_PID_BITS = 28
"""More than process ids have."""


def _with_low_byte(result: Values, salt: int) -> Values:
    """Seven bits of the salt in the low byte of each element, the next seven in the next one's.

    With the same seven in all of them, one process in 128 would compute as another one does.
    """
    changed = np.ascontiguousarray(result).copy()
    low_bytes = changed.reshape(-1).view(np.uint8)[:: changed.itemsize]
    low_bytes[:] = [salt >> shift % _PID_BITS & 0x7F for shift in range(0, 7 * low_bytes.size, 7)]
    return changed
