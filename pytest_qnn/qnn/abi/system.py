"""C layouts of the QNN System interface, API 1.x, for 64-bit Linux: what a client reads of a binary.

No behaviour. Names are those of the public headers without ``QnnSystem`` prefixes and the ``_t`` suffix.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, Union, c_char_p, c_uint32, c_uint64, c_void_p
from typing import Any

from pytest_qnn.qnn.abi.layouts import ErrorHandle, TensorP, Version

SYSTEM_VERSION = (1, 2, 0)
NEWEST_INFO = 3
"""QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3, and the graph info of the same number."""


class GraphInfoV3(Structure):
    """QnnSystemContext_GraphInfoV3_t, 80 bytes."""

    _fields_ = (
        ("graphName", c_char_p),
        ("numGraphInputs", c_uint32),
        ("graphInputs", TensorP),
        ("numGraphOutputs", c_uint32),
        ("graphOutputs", TensorP),
        ("numUpdateableTensors", c_uint32),
        ("updateableTensors", TensorP),
        ("graphBlobInfoSize", c_uint32),
        ("graphBlobInfo", c_void_p),
        ("startOpIndex", c_uint32),
        ("endOpIndex", c_uint32),
    )


class GraphInfo(Structure):
    """QnnSystemContext_GraphInfo_t, 88 bytes."""

    _fields_ = (("version", c_uint32), ("graphInfoV3", GraphInfoV3))


class BinaryInfoV3(Structure):
    """QnnSystemContext_BinaryInfoV3_t."""

    _fields_ = (
        ("backendId", c_uint32),
        ("buildId", c_char_p),
        ("coreApiVersion", Version),
        ("backendApiVersion", Version),
        ("socVersion", c_char_p),
        ("contextBlobVersion", Version),
        ("contextBlobSize", c_uint64),
        ("numContextTensors", c_uint32),
        ("contextTensors", TensorP),
        ("numGraphs", c_uint32),
        ("graphs", POINTER(GraphInfo)),
        ("platformInfo", c_void_p),
        ("contextMetadataSize", c_uint32),
        ("contextMetadata", c_void_p),
        ("socModel", c_uint32),
    )


class _Versions(Union):
    _fields_ = (("contextBinaryInfoV3", BinaryInfoV3), ("size", c_uint64 * 17))


class BinaryInfo(Structure):
    """QnnSystemContext_BinaryInfo_t, 144 bytes."""

    _anonymous_ = ("versions",)
    _fields_ = (("version", c_uint32), ("versions", _Versions))


BinaryInfoP = POINTER(BinaryInfo)
_OUT_HANDLE = POINTER(c_void_p)
SYSTEM_FUNCTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("systemContextCreate", (_OUT_HANDLE,)),
    ("systemContextGetBinaryInfo", (c_void_p, c_void_p, c_uint64, POINTER(BinaryInfoP), POINTER(c_uint64))),
    ("systemContextGetMetaData", (c_void_p, c_void_p, c_uint64, POINTER(BinaryInfoP))),
    ("systemContextFree", (c_void_p,)),
    *((f"reserved{position}", (c_void_p,)) for position in range(12)),
)
"""Name and argument types of the sixteen entries. Each returns a Qnn_ErrorHandle_t."""
SYSTEM_PROTOTYPES: dict[str, Any] = {
    name: ctypes.CFUNCTYPE(ErrorHandle, *types) for name, types in SYSTEM_FUNCTIONS
}


class SystemImplementation(Structure):
    """The table: an entry that is NULL is falsy in Python."""

    _fields_ = tuple(SYSTEM_PROTOTYPES.items())


class SystemInterface(Structure):
    """QnnSystemInterface_t, 160 bytes."""

    _fields_ = (
        ("backendId", c_uint32),
        ("providerName", c_char_p),
        ("systemApiVersion", Version),
        ("implementation", SystemImplementation),
    )


SystemInterfaceP = POINTER(SystemInterface)
GetSystemProviders: Any = ctypes.CFUNCTYPE(ErrorHandle, POINTER(POINTER(SystemInterfaceP)), POINTER(c_uint32))
"""Type of the exported QnnSystemInterface_getProviders."""
