"""The function table of the QNN interface, API 2.32: 71 typed pointers in the order of the header."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from pytest_qnn.qnn.abi.layouts import (
    SPARE_POINTERS,
    ApiVersion,
    ContextBuffer,
    ErrorHandle,
    MemDescriptor,
    OpConfig,
    ProfileEventData,
    TensorP,
)

_P = c_void_p
_OUT_HANDLE, _OUT_POINTER, _OUT_TEXT = POINTER(c_void_p), POINTER(c_void_p), POINTER(c_char_p)
_OUT_U32, _OUT_U64 = POINTER(c_uint32), POINTER(c_uint64)
_EVENTS = POINTER(POINTER(c_uint64))
_EXECUTE = (_P, TensorP, c_uint32, TensorP, c_uint32, _P, _P)
_FROM_BINARY = (_P, _P, _P, _P, c_uint64, _OUT_HANDLE, _P)

LogCallback = ctypes.CFUNCTYPE(None, c_char_p, c_uint32, c_uint64, c_void_p)
"""QnnLog_Callback_t: format, level, timestamp, va_list (a pointer on x86-64 and AArch64 Linux)."""

FUNCTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("propertyHasCapability", (c_uint32,)),
    ("backendCreate", (_P, _P, _OUT_HANDLE)),
    ("backendSetConfig", (_P, _P)),
    ("backendGetApiVersion", (POINTER(ApiVersion),)),
    ("backendGetBuildId", (_OUT_TEXT,)),
    ("backendRegisterOpPackage", (_P, c_char_p, c_char_p, c_char_p)),
    ("backendGetSupportedOperations", (_P, _OUT_U32, _OUT_POINTER)),
    ("backendValidateOpConfig", (_P, OpConfig)),
    ("backendFree", (_P,)),
    ("contextCreate", (_P, _P, _P, _OUT_HANDLE)),
    ("contextSetConfig", (_P, _P)),
    ("contextGetBinarySize", (_P, _OUT_U64)),
    ("contextGetBinary", (_P, _P, c_uint64, _OUT_U64)),
    ("contextCreateFromBinary", _FROM_BINARY),
    ("contextFree", (_P, _P)),
    ("graphCreate", (_P, c_char_p, _P, _OUT_HANDLE)),
    ("graphCreateSubgraph", (_P, c_char_p, _OUT_HANDLE)),
    ("graphSetConfig", (_P, _P)),
    ("graphAddNode", (_P, OpConfig)),
    ("graphFinalize", (_P, _P, _P)),
    ("graphRetrieve", (_P, c_char_p, _OUT_HANDLE)),
    ("graphExecute", _EXECUTE),
    ("graphExecuteAsync", (*_EXECUTE, _P, _P)),
    ("tensorCreateContextTensor", (_P, TensorP)),
    ("tensorCreateGraphTensor", (_P, TensorP)),
    ("logCreate", (_P, c_uint32, _OUT_HANDLE)),
    ("logSetLogLevel", (_P, c_uint32)),
    ("logFree", (_P,)),
    ("profileCreate", (_P, c_uint32, _OUT_HANDLE)),
    ("profileSetConfig", (_P, _P)),
    ("profileGetEvents", (_P, _EVENTS, _OUT_U32)),
    ("profileGetSubEvents", (c_uint64, _EVENTS, _OUT_U32)),
    ("profileGetEventData", (c_uint64, POINTER(ProfileEventData))),
    ("profileGetExtendedEventData", (c_uint64, _P)),
    ("profileFree", (_P,)),
    ("memRegister", (_P, POINTER(MemDescriptor), c_uint32, _OUT_HANDLE)),
    ("memDeRegister", (_OUT_HANDLE, c_uint32)),
    ("deviceGetPlatformInfo", (_P, _OUT_POINTER)),
    ("deviceFreePlatformInfo", (_P, _P)),
    ("deviceGetInfrastructure", (_OUT_POINTER,)),
    ("deviceCreate", (_P, _P, _OUT_HANDLE)),
    ("deviceSetConfig", (_P, _P)),
    ("deviceGetInfo", (_P, _OUT_POINTER)),
    ("deviceFree", (_P,)),
    ("signalCreate", (_P, _P, _OUT_HANDLE)),
    ("signalSetConfig", (_P, _P)),
    ("signalTrigger", (_P,)),
    ("signalFree", (_P,)),
    ("errorGetMessage", (c_uint64, _OUT_TEXT)),
    ("errorGetVerboseMessage", (c_uint64, _OUT_TEXT)),
    ("errorFreeVerboseMessage", (_P,)),
    ("graphPrepareExecutionEnvironment", (_P, _P, c_uint32)),
    ("graphReleaseExecutionEnvironment", (_P, _P, c_uint32)),
    ("graphGetProperty", (_P, _P)),
    ("contextValidateBinary", (_P, _P, _P, _P, c_uint64)),
    ("contextCreateFromBinaryWithSignal", (*_FROM_BINARY, _P)),
    ("contextCreateFromBinaryListAsync", (_P, _P, _P, _P, _P)),
    ("tensorUpdateGraphTensors", (_P, _P, c_uint64)),
    ("tensorUpdateContextTensors", (_P, _P, c_uint64)),
    ("contextGetBinarySectionSize", (_P, _P, c_uint32, _OUT_U64)),
    ("contextGetBinarySection", (_P, _P, c_uint32, _P, _OUT_U64, _P, _P)),
    ("contextApplyBinarySection", (_P, _P, c_uint32, _P, _P, _P)),
    ("backendGetProperty", (_P, _P)),
    ("contextGetProperty", (_P, _P)),
    ("contextGetIncrementalBinary", (_P, _OUT_POINTER, _OUT_U64, _OUT_U64)),
    ("contextReleaseIncrementalBinary", (_P, _P, c_uint64)),
    ("contextFinalize", (_P, _P)),
    ("globalConfigSet", (_P,)),
    ("contextCreateFromBinaryWithCallback", (_P,) * 9),
    ("contextGetBinarySectionUpdate", (_P, _P, _P, c_uint64, c_uint8, _P, _P, _P, _P)),
    ("contextFreeBinarySectionUpdate", (ContextBuffer, _P)),
)
"""Name and argument types of every entry. Each returns a Qnn_ErrorHandle_t."""

PROTOTYPES: dict[str, Any] = {name: ctypes.CFUNCTYPE(ErrorHandle, *types) for name, types in FUNCTIONS}
"""The ctypes function type of every entry, by name."""


OLDEST = 56
"""Entries of the shortest table of this order that is public: it ends with contextCreateFromBinaryWithSignal.
Tables grow at the end only, and which minor version brought which entry is not."""


class Implementation(Structure):
    """QnnInterface_ImplementationV2_32_t, 568 bytes: an entry that is NULL is falsy in Python."""

    _fields_ = tuple(PROTOTYPES.items())


class Interface(Structure):
    """QnnInterface_t, 608 bytes."""

    _fields_ = (
        ("backendId", c_uint32),
        ("providerName", c_char_p),
        ("apiVersion", ApiVersion),
        ("implementation", Implementation),
    )


class PaddedInterface(Structure):
    """An interface with spare NULL pointers behind its table, as a provider should allocate it."""

    _fields_ = (("interface", Interface), ("spare", c_void_p * SPARE_POINTERS))


InterfaceP = POINTER(Interface)
GetProviders: Any = ctypes.CFUNCTYPE(ErrorHandle, POINTER(POINTER(InterfaceP)), POINTER(c_uint32))
"""Type of the exported QnnInterface_getProviders(const QnnInterface_t*** list, uint32_t* count)."""
