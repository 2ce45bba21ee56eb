"""A delegate that computes float32 graphs in float16: right if that is declared, else NUM-08's finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.numerics.precision import to_half
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate

Values = npt.NDArray[Any]


class HalfDelegate(ReferenceDelegate):
    """Rounds the operands and the result of every float32 node to float16; sums are added up in float32."""

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        """The reference's result for rounded operands, rounded."""
        return self._of(
            super().compute_node(kernel, node, [None if one is None else self._of(one) for one in operands])
        )

    def _of(self, values: Values) -> Values:
        return self.rounded(values) if values.dtype == np.float32 else values

    def rounded(self, values: Values) -> Values:
        """The nearest numbers of the smaller type, as float32."""
        return to_half(values)
