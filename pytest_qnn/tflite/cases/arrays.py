"""Arrays as plain data, and deterministic contents for tensors and buffers."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # computed anew by numpy at each access


class Array(msgspec.Struct, frozen=True, gc=False):
    """A dense little-endian array as data. ``data`` holds ``prod(shape) * itemsize`` bytes, C order."""

    dtype: str
    """A numpy dtype name: float32, int8, uint8, int32, ..."""
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Array:
        """Copy a numpy array."""
        return cls(_name_of(array.dtype), tuple(map(int, array.shape)), array.tobytes())

    def numpy(self) -> npt.NDArray[Any]:
        """A read-only numpy view. Raises ValueError when data and shape disagree."""
        return np.frombuffer(self.data, np.dtype(self.dtype)).reshape(self.shape)
