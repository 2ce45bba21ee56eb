"""Tensors of a TfLiteContext, and what a kernel's init is given, as plain values."""

from __future__ import annotations

import ctypes
import struct
from typing import Final, NamedTuple

from pytest_qnn.tflite.abi import layouts, peek

_TENSORS: Final = layouts.Context.tensors.offset
_TENSOR_SIZE: Final = ctypes.sizeof(layouts.Tensor)
_TENSOR: Final = struct.Struct("=i4xQQ8xi4xQ")
"""TfLiteTensor: type, data, dims, allocation_type, bytes."""


_PARAMS: Final = struct.Struct("=QQQQ")


class ParamsView(NamedTuple):
    """A TfLiteDelegateParams: the delegate's address, and numbers of nodes and tensors."""

    delegate: int
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def params(address: int) -> ParamsView:
    """The TfLiteDelegateParams at ``address``."""
    delegate, *arrays = _PARAMS.unpack_from(peek.MEMORY, address)
    nodes, inputs, outputs = peek.all_integers(arrays)
    return ParamsView(delegate, nodes, inputs, outputs)


class TensorView(NamedTuple):
    """The fields of a TfLiteTensor that an invoke needs; addresses are 0 for NULL."""

    type: int
    data: int
    dims: int
    allocation_type: int
    bytes: int


def tensor(context: int, index: int) -> TensorView:
    """Tensor ``index`` of the TfLiteContext at ``context``, as it is now."""
    base = peek.pointer(context + _TENSORS)
    return TensorView._make(_TENSOR.unpack_from(peek.MEMORY, base + index * _TENSOR_SIZE))


def tensors(context: int) -> list[TensorView]:
    """All tensors of the TfLiteContext at ``context``, as they are now."""
    base = peek.pointer(context + _TENSORS)
    end = base + peek.pointer(context) * _TENSOR_SIZE
    unpack = _TENSOR.unpack_from
    return [TensorView._make(unpack(peek.MEMORY, at)) for at in range(base, end, _TENSOR_SIZE)]
