"""Resize, ResizeBilinear and ResizeNearestNeighbor of (batch, spatial..., channels).

Source of names, parameters and modes: QnnOpDef.h. Formulas: those of ONNX's Resize for the same modes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values

_HALF_PIXEL, _PYTORCH_HALF_PIXEL, _ALIGN_CORNERS, _ASYMMETRIC = range(4)
_NEAREST, _LINEAR, _CUBIC = range(3)
_NEAREST_MODES: tuple[Callable[[Values], Values], ...] = (
    lambda at: np.ceil(at - 0.5),
    lambda at: np.floor(at + 0.5),
    np.floor,
    np.ceil,
)
"""By nearest_mode: halves down, halves up, down, up."""


def _sources(count: int, wanted: int, mode: int) -> Values:
    """Where the elements of the output lie in the input, along one axis."""
    at = np.arange(wanted, dtype=np.float64)
    if mode == _ALIGN_CORNERS:
        return at * ((count - 1) / (wanted - 1)) if wanted > 1 else at * 0
    if mode == _ASYMMETRIC:
        return at * (count / wanted)
    if mode == _PYTORCH_HALF_PIXEL and wanted == 1:
        return at * 0
    if mode in (_HALF_PIXEL, _PYTORCH_HALF_PIXEL):
        return (at + 0.5) * (count / wanted) - 0.5
    raise ValueError(f"there is no transformation_mode {mode}")


def _cubic(distance: Values, coefficient: float) -> Values:
    """The weight of a neighbour in cubic interpolation."""
    d = np.abs(distance)
    near = ((coefficient + 2) * d - (coefficient + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * coefficient - 4 * coefficient
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _weights(call: Call, count: int, wanted: int, modes: tuple[int, int, int]) -> Values:
    """What each input element (columns) gives to each output element (rows), along one axis."""
    transformation, interpolation, nearest = modes
    at = _sources(count, wanted, transformation)
    result = np.zeros((wanted, count))
    rows = np.arange(wanted)
    if interpolation == _NEAREST:
        # Sums of fractions are off by parts of 2**-52, so that a half would fall on either side.
        at = np.round(at, 9)
        result[rows, np.clip(_NEAREST_MODES[nearest](at), 0, count - 1).astype(int)] = 1
        return result
    if interpolation == _LINEAR:
        at = np.clip(at, 0, count - 1)
    below = np.floor(at).astype(int)
    for step in (0, 1) if interpolation == _LINEAR else (-1, 0, 1, 2):
        place = below + step
        part = (
            1 - np.abs(at - place)
            if interpolation == _LINEAR
            else _cubic(at - place, call.number("cubic_coeff", -0.75))
        )
        outside = (place < 0) | (place >= count)
        if call.number("exclude_outside", usual=False):
            part = np.where(outside, 0, part)
        np.add.at(result, (rows, np.clip(place, 0, count - 1)), part)
    if interpolation > _CUBIC:
        raise ValueError(f"there is no interpolation_mode {interpolation}")
    normalised: Values = result / result.sum(1, keepdims=True)
    return normalised


def _resized(call: Call, modes: tuple[int, int, int]) -> Values:
    result = call.inputs[0].astype(np.float64)
    shape = call.outputs[0].shape
    if len(shape) != result.ndim or (shape[0], shape[-1]) != (result.shape[0], result.shape[-1]):
        raise ValueError("batch and channels stay as they are")
    for axis in range(1, result.ndim - 1):
        weights = _weights(call, result.shape[axis], shape[axis], modes)
        result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result


def _resize(call: Call) -> Values:
    names = ("transformation_mode", "interpolation_mode", "nearest_mode")
    transformation, interpolation, nearest = (int(call.number(name, 0)) for name in names)
    return _resized(call, (transformation, interpolation, nearest))


def _flags(call: Call) -> int:
    """The transformation that two flags choose."""
    if call.number("align_corners", usual=False):
        return _ALIGN_CORNERS
    return _HALF_PIXEL if call.number("half_pixel_centers", usual=False) else _ASYMMETRIC


def _bilinear(call: Call) -> Values:
    if call.number("antialias", usual=False):
        raise ValueError("elements between the neighbours are not looked at")
    return _resized(call, (_flags(call), _LINEAR, 0))


def _nearest_neighbour(call: Call) -> Values:
    """The element that a position lies in; with aligned corners the one that is next to it."""
    transformation = _flags(call)
    return _resized(call, (transformation, _NEAREST, 2 if transformation == _ASYMMETRIC else 1))


_FLAGS = ("align_corners", "half_pixel_centers")
DEFINITIONS: dict[str, Definition] = {
    "Resize": operator(
        "T>T",
        _resize,
        "exclude_outside",
        "transformation_mode",
        "interpolation_mode",
        "nearest_mode",
        "cubic_coeff",
    ),
    "ResizeBilinear": operator("T>T", _bilinear, *_FLAGS, "antialias"),
    "ResizeNearestNeighbor": operator("T>T", _nearest_neighbour, *_FLAGS),
}
