"""What a script's interpreter should read: the same model on a fresh interpreter without any delegate."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.runtime.tensors import value_of

Shapes = tuple[tuple[int, tuple[int, ...]], ...]
"""(tensor, shape) of each input that was resized."""


@functools.lru_cache(maxsize=64)
def outputs_on_cpu(
    runtime: Runtime,
    model: bytes,
    shapes: Shapes,
    inputs: tuple[tuple[int, Array], ...],
    tensors: tuple[int, ...],
) -> tuple[Array, ...]:
    """The tensors after one invoke on the runtime's own kernels; empty where the runtime refuses."""
    try:
        interpreter = _allocated(runtime, model, shapes)
        for tensor, value in inputs:
            interpreter.set_tensor(tensor, value.numpy())
        interpreter.invoke()
        return tuple(Array.of(value_of(interpreter, tensor)) for tensor in tensors)
    except (RuntimeError, ValueError):
        return ()


@functools.lru_cache(maxsize=64)
def tensor_sizes(runtime: Runtime, model: bytes, shapes: Shapes) -> tuple[int, ...]:
    """Bytes of each tensor of the main graph; empty where the runtime refuses the shapes."""
    try:
        interpreter = _allocated(runtime, model, shapes)._interpreter
    except (RuntimeError, ValueError):
        return ()
    return tuple(_size(interpreter, tensor) for tensor in range(interpreter.NumTensors(0)))


def _allocated(runtime: Runtime, model: bytes, shapes: Shapes) -> Any:
    interpreter = runtime.interpreter(model)
    for tensor, shape in shapes:
        interpreter.resize_tensor_input(tensor, shape)
    interpreter.allocate_tensors()
    return interpreter


def _size(interpreter: Any, tensor: int) -> int:
    """Bytes of a tensor; -1 for a type without a fixed size, and for a kernel's unused temporary."""
    try:
        item = np.dtype(interpreter.TensorType(tensor, 0)).itemsize
        return item * math.prod(map(int, interpreter.TensorSize(tensor, 0)))
    except (TypeError, ValueError):
        return -1
