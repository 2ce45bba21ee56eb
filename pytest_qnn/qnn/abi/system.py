"""C layouts of the QNN System interface, API 1.x, for 64-bit Linux: what a client reads of a binary.

No behaviour. Names are those of the public headers without ``QnnSystem`` prefixes and the ``_t`` suffix.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, Union, c_char_p, c_uint32, c_uint64, c_void_p
from typing import Any

from pytest_qnn.qnn.abi.layouts import (
    SPARE_POINTERS,
    ErrorHandle,
    ProfileEventData,
    Scalar,
    TensorP,
    Version,
)

SYSTEM_VERSION = (1, 15, 0)
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


class _OpaqueObject(Structure):
    _fields_ = (("data", c_void_p), ("length", c_uint64), ("fileName", c_char_p))


class _ExtendedValue(Union):
    _fields_ = (("value", Scalar), ("backendOpaqueObject", _OpaqueObject))


class _ExtendedEventDataV1(Structure):
    _anonymous_ = ("data",)
    _fields_ = (
        ("type", c_uint32),
        ("unit", c_uint32),
        ("data", _ExtendedValue),
        ("timestamp", c_uint64),
        ("identifier", c_char_p),
    )


class ExtendedEventData(Structure):
    """QnnProfile_ExtendedEventData_t, 56 bytes, version 1; ``timestamp`` in microseconds."""

    _anonymous_ = ("v1",)
    _fields_ = (("version", c_uint32), ("v1", _ExtendedEventDataV1))


class _EventData(Union):
    _fields_ = (("eventData", ProfileEventData), ("extendedEventData", ExtendedEventData))


class ProfileEvent(Structure):
    """QnnSystemProfile_ProfileEventV1_t, 80 bytes; ``type`` 0 or 1 says which member of the union counts."""

    _anonymous_ = ("data",)


ProfileEvent._fields_ = (
    ("type", c_uint32),
    ("data", _EventData),
    ("profileSubEventData", POINTER(ProfileEvent)),
    ("numSubEvents", c_uint32),
)


class ProfileHeader(Structure):
    """QnnSystemProfile_HeaderV1_t, 48 bytes."""

    _fields_ = (
        ("startTime", c_uint64),
        ("stopTime", c_uint64),
        ("startMem", c_uint64),
        ("stopMem", c_uint64),
        ("methodType", c_uint32),
        ("visibility", c_uint32),
        ("graphName", c_char_p),
    )


class ProfileData(Structure):
    """QnnSystemProfile_ProfileData_t, 72 bytes; ``version`` is 1."""

    _fields_ = (
        ("version", c_uint32),
        ("header", ProfileHeader),
        ("profilingEvents", POINTER(ProfileEvent)),
        ("numProfilingEvents", c_uint32),
    )


class SerializationTarget(Structure):
    """QnnSystemProfile_SerializationTarget_t, 24 bytes; ``type`` 1 is a file. Passed by value."""

    _fields_ = (("type", c_uint32), ("fileName", c_char_p), ("fileDirectory", c_char_p))


class SerializationHeader(Structure):
    """QnnSystemProfile_SerializationFileHeader_t, 24 bytes."""

    _fields_ = (("appName", c_char_p), ("appVersion", c_char_p), ("backendVersion", c_char_p))


class _TargetOption(Union):
    _fields_ = (("maxNumMessages", c_uint32), ("serializationHeader", SerializationHeader))


class SerializationConfig(Structure):
    """QnnSystemProfile_SerializationTargetConfig_t, 32 bytes."""

    _anonymous_ = ("option",)
    _fields_ = (("type", c_uint32), ("option", _TargetOption))


_OUT_HANDLE = POINTER(c_void_p)
SYSTEM_FUNCTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("systemContextCreate", (_OUT_HANDLE,)),
    ("systemContextGetBinaryInfo", (c_void_p, c_void_p, c_uint64, POINTER(BinaryInfoP), POINTER(c_uint64))),
    ("systemContextGetMetaData", (c_void_p, c_void_p, c_uint64, POINTER(BinaryInfoP))),
    ("systemContextFree", (c_void_p,)),
    *((f"reserved{position}", (c_void_p,)) for position in range(9)),
    (
        "systemProfileCreateSerializationTarget",
        (SerializationTarget, POINTER(SerializationConfig), c_uint32, _OUT_HANDLE),
    ),
    ("systemProfileSerializeEventData", (c_void_p, POINTER(POINTER(ProfileData)), c_uint32)),
    ("systemProfileFreeSerializationTarget", (c_void_p,)),
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


class PaddedSystemInterface(Structure):
    """An interface with spare NULL pointers behind its table: newer ones have more functions."""

    _fields_ = (("interface", SystemInterface), ("spare", c_void_p * (2 * SPARE_POINTERS)))


SystemInterfaceP = POINTER(SystemInterface)
GetSystemProviders: Any = ctypes.CFUNCTYPE(ErrorHandle, POINTER(POINTER(SystemInterfaceP)), POINTER(c_uint32))
"""Type of the exported QnnSystemInterface_getProviders."""
