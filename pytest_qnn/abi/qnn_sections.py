"""C layouts of binary sections: QnnContext.h, QnnContext_Buffer_t. No behaviour."""

from __future__ import annotations

from ctypes import Structure, Union, c_uint32, c_uint64, c_void_p
from enum import IntEnum


class SectionType(IntEnum):
    """QnnContext_SectionType_t."""

    UPDATABLE = 1
    UPDATABLE_WEIGHTS = 2
    UPDATABLE_QUANT_PARAMS = 3


class ContextMemType(IntEnum):
    """QnnContext_MemType_t."""

    RAW = 0
    MEMHANDLE = 1


class BinaryBuffer(Structure):
    """Qnn_BinaryBuffer_t, 16 bytes; ``dataSize`` in bytes."""

    _fields_ = (("data", c_void_p), ("dataSize", c_uint64))


class _ContextMemory(Union):
    _fields_ = (("binaryBuf", BinaryBuffer), ("memHandle", c_void_p))


class ContextBufferV1(Structure):
    """QnnContext_BufferV1_t, 24 bytes. ``memType`` says which member of the union counts."""

    _anonymous_ = ("memory",)
    _fields_ = (("memType", c_uint32), ("memory", _ContextMemory))


class _ContextBufferVersions(Union):
    _fields_ = (("v1", ContextBufferV1),)


class ContextBuffer(Structure):
    """QnnContext_Buffer_t, 32 bytes; ``version`` is 1."""

    _anonymous_ = ("versions",)
    _fields_ = (("version", c_uint32), ("versions", _ContextBufferVersions))
