"""C layouts of what creates a context from a binary piece by piece or later: QnnContext.h, API 2.32.

Members and names as in `pytest_qnn.abi.qnn`.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from pytest_qnn.abi.qnn import ErrorHandle

Notify: Any = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_char_p, c_uint32, c_void_p, ErrorHandle)
"""QnnContext_createFromBinaryNotifyFn_t: context, graph, its name, what is ready, parameter, status."""


class ContextParamsV1(Structure):
    """QnnContext_ParamsV1_t, 48 bytes."""

    _fields_ = (
        ("config", c_void_p),
        ("binaryBuffer", c_void_p),
        ("binaryBufferSize", c_uint64),
        ("profile", c_void_p),
        ("notifyFunc", Notify),
        ("notifyParam", c_void_p),
    )


class ContextParams(Structure):
    """QnnContext_Params_t, 56 bytes; ``version`` is 1."""

    _fields_ = (("version", c_uint32), ("v1", ContextParamsV1))


class DataRequest(Structure):
    """Qnn_ContextBinaryDataRequest_t, 24 bytes; offset and size in bytes of the binary."""

    _fields_ = (("offset", c_uint64), ("size", c_uint64), ("isBackendMappingNeeded", c_uint8))


class RawDataResponse(Structure):
    """Qnn_ContextBinaryRawDataResponse_t, 24 bytes."""

    _fields_ = (("memPtr", c_void_p), ("dataStartOffset", c_uint64), ("alignedSize", c_uint64))


class RawDataMem(Structure):
    """Qnn_ContextBinaryRawDataMem_t, 16 bytes."""

    _fields_ = (("memPtr", c_void_p), ("memSize", c_uint64))


ProvideRaw: Any = ctypes.CFUNCTYPE(ErrorHandle, DataRequest, POINTER(RawDataResponse), c_void_p)
"""Qnn_ContextBinaryRawDataProviderFn_t."""
ReleaseRaw: Any = ctypes.CFUNCTYPE(ErrorHandle, RawDataMem, c_void_p)
"""Qnn_ContextBinaryRawDataReleaseFn_t."""


class RawBufferCallbackV1(Structure):
    """Qnn_ContextBinaryRawBufferCallbackV1_t, 24 bytes."""

    _fields_ = (("dataProvide", ProvideRaw), ("dataRelease", ReleaseRaw), ("notifyParam", c_void_p))


class RawBufferCallback(Structure):
    """Qnn_ContextBinaryRawBufferCallback_t, 32 bytes; ``version`` is 1."""

    _fields_ = (("version", c_uint32), ("v1", RawBufferCallbackV1))


class ContextBinaryCallback(Structure):
    """Qnn_ContextBinaryCallback_t, 40 bytes; ``type`` 1: pieces come as raw memory."""

    _fields_ = (("type", c_uint32), ("rawBufferCallback", RawBufferCallback))
