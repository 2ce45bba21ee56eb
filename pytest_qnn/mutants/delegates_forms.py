"""Reference delegates that claim nodes by operator and type, and compute some shapes of them only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.cases.graph import Node
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate

Values = npt.NDArray[Any]
_BINARY = ("ADD", "SUB", "MUL", "MAXIMUM")


@faulty_delegate("knows-two-dimensions", "Claims any rank, and goes over two dimensions.", "PART-03")
class _KnowsTwoDimensions(ReferenceDelegate):
    """Goes over the first two dimensions of a result, and leaves the others at their first index."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if value.ndim <= 2:
            return value
        known = value.reshape(*value.shape[:2], -1).copy()
        known[..., 1:] = 0
        return known.reshape(value.shape)


@faulty_delegate("knows-no-broadcast", "Claims operands of two shapes, and broadcasts none.", "PART-03")
class _KnowsNoBroadcast(ReferenceDelegate):
    """Reads the operands element by element, and zeros where one has come to its end."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        if node.op in _BINARY:
            shape = kernel.tensors[node.outputs[0]].shape
            operands = [None if one is None else _lengthened(one, shape) for one in operands]
        return super().compute_node(kernel, node, operands)


def _lengthened(value: Values, shape: tuple[int, ...]) -> Values:
    flat = np.zeros(int(np.prod(shape)), value.dtype)
    flat[: value.size] = value.ravel()
    return flat.reshape(shape)


@faulty_delegate("works-in-pairs", "Leaves out the last element of rows of odd length.", "PART-03")
class _WorksInPairs(ReferenceDelegate):
    """Computes two elements at a time, and not the last one of a row of odd length."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if value.ndim and value.shape[-1] % 2:
            value = value.copy()
            value[..., -1] = 0
        return value
