"""What int8 tensors stand for: real = scale * (q - zero_point).

Source: the TensorFlow Lite 8-bit quantisation specification
(tensorflow.org/lite/performance/quantization_spec).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Activation, Tensor

Array = npt.NDArray[Any]


def real_values(tensor: Tensor, integers: Array) -> Array:
    """The numbers that ``integers`` stand for, float64, per tensor or per slice of its axis."""
    if len(tensor.scales) == 1:
        return np.multiply(integers - np.float64(tensor.zero_points[0]), tensor.scales[0])
    along = [1] * len(tensor.shape)
    along[tensor.axis] = -1
    zeros = np.array(tensor.zero_points, np.float64).reshape(along)
    return np.multiply(integers - zeros, np.array(tensor.scales).reshape(along))


def limits(tensor: Tensor, activation: Activation) -> tuple[int, int]:
    """Least and greatest integer of an int8 result: the dtype's range within the fused activation's."""
    if activation == "NONE":
        return -128, 127
    zero = tensor.zero_points[0]
    six = zero + int(6 / tensor.scales[0] + 0.5)
    return max(-128, zero), min(127, six) if activation == "RELU6" else 127


def nearest(tensor: Tensor, real: Array, activation: Activation = "NONE") -> Array:
    """The whole numbers (float64) that stand for ``real``: ties away from zero, saturating."""
    units = np.asarray(real / tensor.scales[0])
    least, greatest = limits(tensor, activation)
    # In place: a new array of some hundred KiB costs more, in page faults, than what is computed in it.
    whole = np.copysign(0.5, units, out=np.empty_like(units))
    whole += units
    np.trunc(whole, out=whole)
    whole += tensor.zero_points[0]
    np.maximum(whole, least, out=whole)
    return np.minimum(whole, greatest, out=whole)
