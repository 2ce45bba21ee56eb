"""Tensors and operators as a client describes them, copied out of its structures."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import (
    ITEM_SIZE,
    DataType,
    EncodingDefinition,
    Error,
    QuantizationEncoding,
    TensorMemType,
    TensorType,
)
from pytest_qnn.qnn.reference.objects import MAX_RANK, Encoding, Parameters, QnnError, Tensor, bytes_of
from pytest_qnn.qnn.reference.operators import table
from pytest_qnn.qnn.reference.operators.suite import PACKAGE
from pytest_qnn.qnn.reference.operators.values import STORED, kind_of

_WITH_DATA = frozenset({int(TensorType.STATIC), int(TensorType.UPDATEABLE_STATIC)})
_TYPES = _WITH_DATA | {int(TensorType.APP_WRITE), int(TensorType.APP_READ), int(TensorType.NATIVE)}
_BAD_TENSOR = Error.TENSOR_ERROR_INVALID_TENSOR_PARAM
_SCALAR, _TENSOR = 0, 1
"""Qnn_ParamType_t."""


def find_operator(config: Any) -> str | None:
    """The operator that a Qnn_OpConfig_t names, or None if there is none of this name."""
    if config.version != 1 or not config.v1.typeName or config.v1.packageName != PACKAGE.encode():
        return None
    name: str = config.v1.typeName.decode(errors="replace")
    return name if name in table.NAMES else None


def read_parameters(node: Any, tensors: Mapping[int, Tensor]) -> Parameters:
    """The parameters of a Qnn_OpConfigV1_t; tensors among them may be of the graph, by id, in ``tensors``.

    Raises:
        QnnError: 7004, a tensor that this backend cannot hold, or one without data.
        ValueError: no array, or a parameter without a name or a value, or of a kind that there is not.
    """
    if node.numOfParams and not node.params:
        raise ValueError("there are parameters, and no array of them")
    made: Parameters = {}
    for given in node.params[: node.numOfParams] if node.numOfParams else ():
        if not given.name or given.paramType not in (_SCALAR, _TENSOR):
            raise ValueError("a parameter has a name, and a scalar or a tensor")
        name = given.name.decode(errors="replace")
        if given.paramType == _SCALAR:
            made[name] = _read_scalar(given.scalarParam)
        else:
            own = tensors.get(given.tensorParam.v1.id)
            made[name] = (
                own if own is not None and own.data is not None else read_tensor(given.tensorParam.v1)
            )
    return made


def _read_scalar(given: Any) -> bool | int | float:
    """The value of a Qnn_Scalar_t. Raises ValueError for a text, and for a type that there is not."""
    dtype = STORED.get(given.dataType)
    if dtype is None:
        raise ValueError("not a number")
    place = type(given).value.offset
    value = np.frombuffer(bytes(given)[place : place + dtype.itemsize], dtype)[0]
    if kind_of(given.dataType) == "boolean":
        return bool(value)
    return float(value) if kind_of(given.dataType) == "float" else int(value)


def read_tensor(given: Any) -> Tensor:
    """Copy a Qnn_TensorV1_t out of client memory; the id is kept as given.

    Raises:
        QnnError: 7004, the struct does not describe a tensor that this backend can hold.
    """
    known = given.type in _TYPES and given.dataType in ITEM_SIZE
    if not known or given.name is None or given.rank > MAX_RANK or (given.rank and not given.dimensions):
        raise QnnError(_BAD_TENSOR)
    shape = tuple(given.dimensions[i] for i in range(given.rank))
    if 0 in shape:
        raise QnnError(_BAD_TENSOR)
    scale, offset, encoding = _read_encoding(given, shape)
    tensor = Tensor(
        id=given.id,
        name=given.name.decode(errors="replace"),
        type=given.type,
        data_type=given.dataType,
        shape=shape,
        scale=scale,
        offset=offset,
        mem_type=given.memType,
        size=bytes_of(shape, given.dataType),
        encoding=encoding,
    )
    if given.type in _WITH_DATA:
        tensor.data = _read_static(given, tensor.size)
    return tensor


_Read = tuple[float, int, Encoding | UnsetType]
"""Scale, offset, and what else there is to an encoding."""
_FIXED_POINT = frozenset(int(each) for each in DataType if each in STORED and kind_of(each) == "fixed")


def _read_encoding(given: Any, shape: tuple[int, ...]) -> _Read:
    """How a tensor of fixed point stores numbers; UFIXED_POINT_8 must say it."""
    if given.dataType not in _FIXED_POINT:
        return 1.0, 0, UNSET
    params: layouts.QuantizeParams = given.quantizeParams
    if params.encodingDefinition != EncodingDefinition.DEFINED:
        if given.dataType == DataType.UFIXED_POINT_8:
            raise QnnError(_BAD_TENSOR)
        return 1.0, 0, UNSET
    reader = _READERS.get(params.quantizationEncoding)
    if reader is None:
        raise QnnError(_BAD_TENSOR)
    scale, offset, encoding = reader(params)
    if given.dataType == DataType.SFIXED_POINT_32 and scale == 0:
        return 0.0, 0, UNSET  # a bias in the scale of the sums: `values.of_sums`
    scales = (scale,) if isinstance(encoding, UnsetType) or encoding.axis < 0 else encoding.scales
    if not all(math.isfinite(each) and each > 0 for each in scales):
        raise QnnError(_BAD_TENSOR)
    axis = -1 if isinstance(encoding, UnsetType) else encoding.axis
    if axis >= 0 and (axis >= len(shape) or len(scales) != shape[axis]):
        raise QnnError(_BAD_TENSOR)
    return scale, offset, encoding


def _read_plain(params: layouts.QuantizeParams) -> _Read:
    found = params.scaleOffsetEncoding
    return found.scale, found.offset, UNSET


def _read_axis(params: layouts.QuantizeParams) -> _Read:
    found = params.axisScaleOffsetEncoding
    if not found.scaleOffset or found.axis < 0:
        raise QnnError(_BAD_TENSOR)
    pairs = found.scaleOffset[: found.numScaleOffsets]
    scales, offsets = tuple(each.scale for each in pairs), tuple(each.offset for each in pairs)
    return 1.0, 0, Encoding(found.axis, scales, offsets)


def _read_narrow(params: layouts.QuantizeParams) -> _Read:
    found = params.bwScaleOffsetEncoding
    return found.scale, found.offset, Encoding(bits=found.bitwidth)


def _read_narrow_axis(params: layouts.QuantizeParams) -> _Read:
    found = params.bwAxisScaleOffsetEncoding
    if not found.scales or found.axis < 0:
        raise QnnError(_BAD_TENSOR)
    scales = tuple(found.scales[: found.numElements])
    offsets = tuple(found.offsets[: found.numElements]) if found.offsets else (0,) * len(scales)
    return 1.0, 0, Encoding(found.axis, scales, offsets, found.bitwidth)


_READERS: dict[int, Callable[[layouts.QuantizeParams], _Read]] = {
    QuantizationEncoding.SCALE_OFFSET: _read_plain,
    QuantizationEncoding.AXIS_SCALE_OFFSET: _read_axis,
    QuantizationEncoding.BW_SCALE_OFFSET: _read_narrow,
    QuantizationEncoding.BW_AXIS_SCALE_OFFSET: _read_narrow_axis,
}


def _read_static(given: Any, size: int) -> bytes:
    buffer: layouts.ClientBuffer = given.clientBuf
    if given.memType != TensorMemType.RAW or not buffer.data or buffer.dataSize < size:
        raise QnnError(_BAD_TENSOR)
    return ctypes.string_at(buffer.data, size)
