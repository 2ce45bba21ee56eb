"""Constants of generated graphs: weights, biases, slopes, axes and shapes.

Everything is cached: a generated graph repeats the same few, and the structures are immutable.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod

import msgspec
import numpy as np

from pytest_qnn.core.contents import hashed, ramp
from pytest_qnn.tflite.graph.graph import Graph, Tensor

Params = tuple[float, int]
"""Scale (a float32 value) and zero point of an int8 activation."""


def single(value: float) -> float:
    """``value`` rounded to float32, which is what a model file can hold."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


PARAMS: tuple[Params, ...] = tuple(
    (single(scale), zero)
    for scale, zero in ((0.0625, 0), (0.05, -3), (0.11, 17), (0.031, -128), (0.073, 100), (0.0213, 5))
)
SHIFTED: tuple[Params, ...] = tuple(params for params in PARAMS if params[1])
"""Those with a zero point that is not 0."""
SYMMETRIC: tuple[Params, ...] = tuple((scale, 0) for scale, _ in PARAMS)
_WEIGHT_SCALES = tuple(single(scale) for scale in (0.0078125, 0.013, 0.0041, 0.0102, 0.0059))


@lru_cache(8192)
def activation(shape: tuple[int, ...], params: Params | None) -> Tensor:
    """A tensor without contents: int8 with ``params``, or float32."""
    if params is None:
        return Tensor(shape)
    return Tensor(shape, "int8", (params[0],), (params[1],))


@lru_cache(1024)
def integers(values: tuple[int, ...]) -> Tensor:
    """An int32 vector: axes of MEAN, shape of RESHAPE."""
    return Tensor((len(values),), "int32", data=struct.pack(f"<{len(values)}i", *values))


@lru_cache(4096)
def constant(shape: tuple[int, ...], params: Params | None, seed: int) -> Tensor:
    """An operand: float32 values of magnitude at most 1, or any int8 values."""
    if params is None:
        return Tensor(shape, data=_fractions(prod(shape), seed, 1).tobytes())
    return Tensor(shape, "int8", (params[0],), (params[1],), data=_bytes(prod(shape), seed).tobytes())


@lru_cache(4096)
def slopes(shape: tuple[int, ...], quantised: bool, seed: int) -> Tensor:
    """The alpha of PRELU: magnitudes at most 1."""
    return constant(shape, (_WEIGHT_SCALES[0], 0) if quantised else None, seed)


@lru_cache(4096)
def float_weights(shape: tuple[int, ...], seed: int, divisor: int) -> tuple[Tensor, Tensor]:
    """Weights [units, ...] and biases [units], magnitudes at most 1 / divisor and 1."""
    weights = Tensor(shape, data=_fractions(prod(shape), seed, divisor).tobytes())
    return weights, Tensor(shape[:1], data=_fractions(shape[0], seed and seed + 1000, 1).tobytes())


@lru_cache(4096)
def int8_weights(
    shape: tuple[int, ...], seed: int, input_scale: float, per_channel: bool
) -> tuple[Tensor, Tensor]:
    """Symmetric int8 weights [units, ...] and int32 biases [units] of scale input * weight.

    The constraints are those of the TensorFlow Lite 8-bit quantisation specification: zero points 0,
    weights in [-127, 127], bias scale the product of the others.
    """
    units = shape[0]
    count = units if per_channel else 1
    scales = tuple(_WEIGHT_SCALES[(seed + unit) % len(_WEIGHT_SCALES)] for unit in range(count))
    zeros = (0,) * count
    values = np.maximum(_bytes(prod(shape), seed), -127)
    weights = Tensor(shape, "int8", scales, zeros, data=values.tobytes())
    bias_scales = tuple(single(input_scale * scale) for scale in scales)
    biases = (hashed(units, seed + 1000).view(np.int32) >> 21) if seed else np.zeros(units, np.int32)
    return weights, Tensor((units,), "int32", bias_scales, zeros, data=biases.astype(np.int32).tobytes())


def _fractions(count: int, seed: int, divisor: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """float32 [count] with magnitudes at most 1 / divisor; seed 0 steps through eighths."""
    values = (hashed(count, seed).view(np.int32) >> 15) / np.float64(2**16) if seed else ramp(count, 0) / 8
    return (values / divisor).astype(np.float32)


def _bytes(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """int8 [count]; seed 0 steps through multiples of 16."""
    values = hashed(count, seed).view(np.int32) >> 24 if seed else ramp(count, 0) * 12
    return values.astype(np.int8)


def with_other_constants(graph: Graph) -> Graph:
    """The graph with other contents in its operands, as long and of no greater magnitudes.

    float32 constants are negated; of int8 ones the elements stand in the opposite order. int32 ones are axes,
    shapes and biases, which stay.
    """
    return msgspec.structs.replace(graph, tensors=tuple(map(_otherwise, graph.tensors)))


def _otherwise(tensor: Tensor) -> Tensor:
    if tensor.data is None or tensor.dtype not in ("float32", "int8"):
        return tensor
    if tensor.dtype == "int8":
        return msgspec.structs.replace(tensor, data=tensor.data[::-1])
    return msgspec.structs.replace(tensor, data=(-np.frombuffer(tensor.data, np.float32)).tobytes())


EXTREME = 1024.0
"""Largest magnitude of a float32 input. Generated graphs stay finite for inputs up to it."""
