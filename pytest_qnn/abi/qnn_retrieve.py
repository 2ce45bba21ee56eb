"""C layouts of data fetched by a callback: QnnTypes.h, Qnn_TensorRetrieveRaw_t. No behaviour."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_uint64, c_void_p
from typing import Any

from pytest_qnn.abi.qnn import ClientBuffer, ErrorHandle

GetTensorRawDataFn: Any = ctypes.CFUNCTYPE(ErrorHandle, c_void_p, c_void_p, c_uint64, POINTER(ClientBuffer))
"""Qnn_GetTensorRawDataFn_t: context, graph, id of the tensor, and where its buffer is to be told."""
FreeTensorRawDataFn: Any = ctypes.CFUNCTYPE(ErrorHandle, c_void_p, c_void_p, c_uint64)
"""Qnn_FreeTensorRawDataFn_t: context, graph, id of the tensor."""


class TensorRetrieveRaw(ctypes.Structure):
    """Qnn_TensorRetrieveRaw_t, 16 bytes."""

    _fields_ = (("getTensorData", GetTensorRawDataFn), ("freeTensorData", FreeTensorRawDataFn))
