"""C layouts of pieces of a context binary that a client provides in DMA buffers: QnnContext.h, API 2.32.

Those of raw memory, and the request, are in `pytest_qnn.abi.qnn_load`. No behaviour.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import Any

from pytest_qnn.abi.qnn import ErrorHandle, MemDmaBufInfo
from pytest_qnn.abi.qnn_load import DataRequest

VERSION_1 = 1
"""Qnn_ContextBinaryDmaBufferCallbackVersion_t and Qnn_ContextBinaryRawBufferCallbackVersion_t."""


class CallbackType(IntEnum):
    """Qnn_ContextBinaryCallbackType_t."""

    RAW_BUFFER = 1
    DMA_BUFFER = 2


class DmaDataResponse(Structure):
    """Qnn_ContextBinaryDmaDataResponse_t, 32 bytes."""

    _fields_ = (("dmaBuffer", MemDmaBufInfo), ("dataStartOffset", c_uint64), ("alignedSize", c_uint64))


class DmaDataMem(Structure):
    """Qnn_ContextBinaryDmaDataMem_t, 24 bytes."""

    _fields_ = (("dmaBuffer", MemDmaBufInfo), ("memSize", c_uint64))


ProvideDma: Any = ctypes.CFUNCTYPE(ErrorHandle, DataRequest, POINTER(DmaDataResponse), c_void_p)
"""Qnn_ContextBinaryDmaDataProviderFn_t."""
ReleaseDma: Any = ctypes.CFUNCTYPE(ErrorHandle, DmaDataMem, c_void_p)
"""Qnn_ContextBinaryDmaDataReleaseFn_t."""


class DmaBufferCallbackV1(Structure):
    """Qnn_ContextBinaryDmaBufferCallbackV1_t, 24 bytes."""

    _fields_ = (("dataProvide", ProvideDma), ("dataRelease", ReleaseDma), ("notifyParam", c_void_p))


class DmaBufferCallback(Structure):
    """Qnn_ContextBinaryDmaBufferCallback_t, 32 bytes; ``version`` is 1."""

    _fields_ = (("version", c_uint32), ("v1", DmaBufferCallbackV1))


class ContextBinaryDmaCallback(Structure):
    """Qnn_ContextBinaryCallback_t of type DMA_BUFFER, 40 bytes."""

    _fields_ = (("type", c_uint32), ("dmaBufferCallback", DmaBufferCallback))
