"""The shapes of results, which graphs are checked with and some delegates work out, are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.graph.valid import result_shape

Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("first", "second"), [((2, 3), (3,)), ((0, 3), (1, 3)), ((1,), (0,)), ((0, 2, 3), (1, 1, 3)), ((), (0,))]
)
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "MAXIMUM"])
def test_two_operands_are_broadcast_as_numpy_does_it(op: str, first: Shape, second: Shape) -> None:
    node = Node(op, (0, 1), (2,))  # type: ignore[arg-type]
    assert result_shape(node, (Tensor(first), Tensor(second))) == np.broadcast_shapes(first, second)


def test_slopes_of_a_tensor_without_elements_are_broadcast_to_it() -> None:
    node = Node("PRELU", (0, 1), (2,))
    assert result_shape(node, (Tensor((0, 2, 3)), Tensor((1, 3)))) == (0, 2, 3)
