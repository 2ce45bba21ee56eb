"""Contents of graph inputs and constants: functions of a seed, the same on every machine."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.core.contents import hashed, ramp
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.graph.constants import EXTREME

_MOST = np.finfo(np.float32).max
_DENORMAL = (1e-45, -1e-45, 1.1754942e-38, -3e-39)
SPECIAL = np.array(
    (np.nan, np.nan, np.inf, np.inf, -np.inf, -np.inf, 0, -0.0, -0.0, 2.0**-126, _MOST, -_MOST, *_DENORMAL),
    np.float32,
)
"""float32 [16]: values that IEEE 754 treats apart, and the ends of the range of denormal numbers."""
_MOST_KEPT = 1 << 12
"""Elements of an array that is kept for later cases."""
_MIXED_SCALE = np.float32(2.0**-12)
_EXTREME_SCALE = np.float32(EXTREME / 2**15)


def inputs_of(case: DelegateCase) -> list[npt.NDArray[Any]]:
    """The contents of the graph's inputs in order: read-only arrays of their shapes and dtypes.

    ``ramp`` counts up with alternating signs; ``mixed`` spreads over [-8, 8) in steps of 2**-12 (float32)
    or all of int8, and is the ramp for seed 0; ``extreme`` is -128 and 127 (int8), or magnitudes up to
    `EXTREME` (float32); ``special`` is as ``extreme`` for int8, and for float32 every second element is
    NaN, an infinity, a zero of either sign, a denormal number or the largest one, the others ``mixed``.
    """
    tensors = case.graph.tensors
    return [
        _contents(tensors[index].shape, tensors[index].dtype, case.data_seed, case.fill, position)
        for position, index in enumerate(case.graph.inputs)
    ]


def _contents(shape: tuple[int, ...], dtype: str, seed: int, fill: Fill, position: int) -> npt.NDArray[Any]:
    made = _contents_of if prod(shape) <= _MOST_KEPT else _contents_of.__wrapped__
    return made(shape, dtype, seed, fill, position)


@lru_cache(4096)
def _contents_of(
    shape: tuple[int, ...], dtype: str, seed: int, fill: Fill, position: int
) -> npt.NDArray[Any]:
    count = prod(shape)
    if dtype == "int32":
        return _few(shape, seed, position)
    if fill == "ramp" or (fill == "mixed" and seed == 0):
        values = ramp(count, seed + position)
        array = values if dtype == "float32" else (values * 8).astype(dtype)
    else:
        words = hashed(count, seed * 64 + position).view(np.int32)
        array = _FILLS[fill](words, dtype)
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _few(shape: tuple[int, ...], seed: int, position: int) -> npt.NDArray[np.int32]:
    """Numbers 1 to 4: how often to go round, which way to take, how to cut a shape; seed 0: 1, 2, ..."""
    numbers = hashed(prod(shape), seed * 64 + position) if seed else np.arange(prod(shape), dtype=np.uint32)
    array = (numbers % np.uint32(4) + np.uint32(1)).astype(np.int32).reshape(shape)
    array.flags.writeable = False
    return array


def _mixed(words: npt.NDArray[np.int32], dtype: str) -> npt.NDArray[Any]:
    if dtype == "float32":
        return (words >> 16).astype(np.float32) * _MIXED_SCALE
    return (words >> 24).astype(dtype)


def _extreme(words: npt.NDArray[np.int32], dtype: str) -> npt.NDArray[Any]:
    if dtype == "float32":
        # One element in eight is small, so that large and small meet in one operator.
        values = (words >> 16).astype(np.float32) * _EXTREME_SCALE
        return np.where(words & 7, values, values * np.float32(2.0**-20))
    return np.where(words < 0, -128, 127).astype(dtype)


def _special(words: npt.NDArray[np.int32], dtype: str) -> npt.NDArray[Any]:
    if dtype != "float32":
        return _extreme(words, dtype)
    return np.where(words & 1, SPECIAL[words >> 8 & 15], _mixed(words, dtype))


_FILLS = {"mixed": _mixed, "extreme": _extreme, "special": _special}
