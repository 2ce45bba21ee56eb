"""The value of a tensor of an interpreter, as it is when it has no elements, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def value_of(interpreter: Any, tensor: int) -> npt.NDArray[Any]:
    """A copy of a tensor.

    ``get_tensor`` of both runtimes refuses one without elements ("Invalid tensor size."): it has no memory.

    Args:
        interpreter: the runtime's Interpreter.
        tensor: index in the main subgraph.

    Raises:
        ValueError: ``get_tensor`` refuses a tensor that has elements.
    """
    try:
        value: npt.NDArray[Any] = interpreter.get_tensor(tensor)
    except ValueError:
        wrapped = interpreter._interpreter
        shape = tuple(map(int, wrapped.TensorSize(tensor, 0)))
        if 0 not in shape:
            raise
        return np.empty(shape, wrapped.TensorType(tensor, 0))
    return value
