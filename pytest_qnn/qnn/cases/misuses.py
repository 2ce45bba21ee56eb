"""The calls that take a handle: of what kind it is, and which of them may be given NULL."""

from __future__ import annotations

from typing import Any, Literal, get_args

Handled = Literal[
    "backend",
    "context",
    "graph",
    "memory",
    "device",
    "log",
    "profile",
    "event",
    "signal",
    "error",
    "text",
]
"""What a handle stands for: an ``event`` of a profile, an ``error``, or the ``text`` of one."""
_OfBackend = Literal[
    "backendValidateOpConfig",
    "backendFree",
    "contextCreate",
    "contextCreateFromBinary",
    "backendSetConfig",
    "backendRegisterOpPackage",
    "backendGetSupportedOperations",
    "backendGetProperty",
    "contextValidateBinary",
    "contextCreateFromBinaryWithSignal",
    "contextCreateFromBinaryListAsync",
    "contextCreateFromBinaryWithCallback",
    "profileCreate",
    "signalCreate",
]
_OfContext = Literal[
    "contextFree",
    "contextGetBinarySize",
    "contextGetBinary",
    "contextFinalize",
    "contextGetProperty",
    "graphCreate",
    "graphRetrieve",
    "contextSetConfig",
    "contextGetBinarySectionSize",
    "contextGetBinarySection",
    "contextApplyBinarySection",
    "contextGetIncrementalBinary",
    "contextReleaseIncrementalBinary",
    "tensorCreateContextTensor",
    "tensorUpdateContextTensors",
    "memRegister",
]
_OfGraph = Literal[
    "graphAddNode",
    "graphFinalize",
    "graphExecute",
    "tensorCreateGraphTensor",
    "graphCreateSubgraph",
    "graphSetConfig",
    "graphGetProperty",
    "graphExecuteAsync",
    "graphPrepareExecutionEnvironment",
    "graphReleaseExecutionEnvironment",
    "tensorUpdateGraphTensors",
]
_OfMemory = Literal["memDeRegister"]
_OfDevice = Literal["deviceFree", "deviceSetConfig", "deviceGetInfo"]
_OfLog = Literal[
    "logSetLogLevel",
    "logFree",
    "backendCreate",
    "deviceCreate",
    "deviceGetPlatformInfo",
    "deviceFreePlatformInfo",
]
_OfProfile = Literal["profileFree", "profileSetConfig", "profileGetEvents"]
_OfEvent = Literal["profileGetSubEvents", "profileGetEventData", "profileGetExtendedEventData"]
_OfSignal = Literal["signalSetConfig", "signalTrigger", "signalFree"]
_OfError = Literal["errorGetVerboseMessage"]
_OfText = Literal["errorFreeVerboseMessage"]
Misused = Literal[
    _OfBackend,
    _OfContext,
    _OfGraph,
    _OfMemory,
    _OfDevice,
    _OfLog,
    _OfProfile,
    _OfEvent,
    _OfSignal,
    _OfError,
    _OfText,
]
"""Calls whose first argument is a handle (memDeRegister: an array of one), by the kind of handle.

Of the whole table these are all but errorGetMessage, which IF-08 asks, and contextGetBinarySectionUpdate and
contextFreeBinarySectionUpdate, whose first arguments are buffers.
"""
_BY_KIND: dict[Handled, Any] = {
    "backend": _OfBackend,
    "context": _OfContext,
    "graph": _OfGraph,
    "memory": _OfMemory,
    "device": _OfDevice,
    "log": _OfLog,
    "profile": _OfProfile,
    "event": _OfEvent,
    "signal": _OfSignal,
    "error": _OfError,
    "text": _OfText,
}
TAKES: dict[Misused, Handled] = {call: kind for kind, calls in _BY_KIND.items() for call in get_args(calls)}
"""The kind of each call's handle."""
NULL_IS_GOOD: frozenset[Misused] = frozenset(
    {
        # It then tells of the built-in package alone: QnnBackend.h.
        "backendGetSupportedOperations",
        # No log means no logging: QnnBackend.h, QnnDevice.h.
        "backendCreate",
        "deviceCreate",
        "deviceGetPlatformInfo",
        "deviceFreePlatformInfo",
        # An error handle of 0 is QNN_SUCCESS.
        "errorGetVerboseMessage",
    }
)
"""Calls that take NULL for their handle: with it they are no misuse."""
