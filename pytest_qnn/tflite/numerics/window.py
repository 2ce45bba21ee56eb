"""The geometry of CONV_2D: which input elements each output element reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Node

Array = npt.NDArray[Any]


def taps(node: Node, image: Array, weights: Array) -> Iterator[tuple[Array, Array]]:
    """Per kernel position: the elements it meets [batch, rows, columns, channels] and its weights.

    Args:
        node: a CONV_2D.
        image: [batch, height, width, channels], any dtype; padding adds zeros, so a quantised image must
            have its zero point subtracted.
        weights: [units, rows, columns, channels].

    The weights of one position are [units, channels]. SAME pads as TensorFlow does: the odd element goes
    to the bottom and the right (tensorflow/lite/kernels/padding.h).
    """
    rows, top, height = _extent(node, 0, image.shape[1], weights.shape[1])
    columns, left, width = _extent(node, 1, image.shape[2], weights.shape[2])
    if (height, width) != image.shape[1:3] or top or left:
        padded = np.zeros((image.shape[0], height, width, image.shape[3]), image.dtype)
        padded[:, top : top + image.shape[1], left : left + image.shape[2]] = image
        image = padded
    (down, right), (dilate_down, dilate_right) = node.stride, node.dilation
    for i in range(weights.shape[1]):
        for j in range(weights.shape[2]):
            y, x = i * dilate_down, j * dilate_right
            met = image[:, y : y + (rows - 1) * down + 1 : down, x : x + (columns - 1) * right + 1 : right]
            yield met, weights[:, i, j]


def _extent(node: Node, axis: int, size: int, kernel: int) -> tuple[int, int, int]:
    """Along one axis: the output's length, the padding in front, the length after padding."""
    stride = node.stride[axis]
    reach = (kernel - 1) * node.dilation[axis] + 1
    if not node.same_padding:
        return (size - reach) // stride + 1, 0, size
    length = -(-size // stride)
    padding = max((length - 1) * stride + reach - size, 0)
    return length, padding // 2, size + padding
