"""The arguments of QNN calls that lead somewhere: what a `BadArgument` step may get wrong."""

from __future__ import annotations

from typing import Final, Literal

PointedCall = Literal[
    "logCreate",
    "errorGetMessage",
    "backendCreate",
    "backendRegisterOpPackage",
    "backendGetSupportedOperations",
    "backendValidateOpConfig",
    "backendGetProperty",
    "backendSetConfig",
    "deviceCreate",
    "deviceGetInfo",
    "deviceGetPlatformInfo",
    "deviceFreePlatformInfo",
    "deviceGetInfrastructure",
    "deviceSetConfig",
    "contextCreate",
    "contextGetBinarySize",
    "contextGetBinary",
    "contextValidateBinary",
    "contextCreateFromBinary",
    "contextCreateFromBinaryWithSignal",
    "contextCreateFromBinaryListAsync",
    "contextCreateFromBinaryWithCallback",
    "contextGetIncrementalBinary",
    "contextSetConfig",
    "contextGetProperty",
    "contextGetBinarySectionSize",
    "contextGetBinarySection",
    "contextApplyBinarySection",
    "graphCreate",
    "graphCreateSubgraph",
    "graphSetConfig",
    "graphGetProperty",
    "graphRetrieve",
    "graphAddNode",
    "graphExecute",
    "graphExecuteAsync",
    "graphPrepareExecutionEnvironment",
    "graphReleaseExecutionEnvironment",
    "tensorCreateGraphTensor",
    "tensorCreateContextTensor",
    "tensorUpdateGraphTensors",
    "tensorUpdateContextTensors",
    "profileCreate",
    "profileGetEvents",
    "profileGetSubEvents",
    "profileGetEventData",
    "profileGetExtendedEventData",
    "signalCreate",
    "errorGetVerboseMessage",
    "globalConfigSet",
]
Argument = Literal[
    "logger",
    "errorMessage",
    "backend",
    "packagePath",
    "interfaceProvider",
    "numOperations",
    "operations",
    "device",
    "platformInfo",
    "deviceInfra",
    "context",
    "binaryBuffer",
    "binaryBuffer.version",
    "binaryBuffer.data",
    "binaryBufferSize",
    "writtenBufferSize",
    "startOffset",
    "contextParams",
    "contextParams[0]",
    "contextParams.version",
    "contextParams.binaryBuffer",
    "contextParams.notifyFunc",
    "callback",
    "callback.type",
    "callback.version",
    "callback.dataProvide",
    "callback.dataRelease",
    "graphName",
    "graphHandle",
    "subgraphHandle",
    "inputs",
    "outputs",
    "envs",
    "envs[0]",
    "envs.option",
    "envs.tensorSet.version",
    "envs.tensorSet.inputs",
    "envs.tensorSet.outputs",
    "profile",
    "profileEventIds",
    "numEvents",
    "subEventIds",
    "numSubEvents",
    "eventData",
    "signal",
    "tensor",
    "tensor[0]",
    "tensor.version",
    "tensor.name",
    "tensor.type",
    "tensor.dataType",
    "tensor.dimensions",
    "tensor.axisScaleOffset",
    "opConfig.version",
    "opConfig.name",
    "opConfig.packageName",
    "opConfig.typeName",
    "opConfig.params",
    "opConfig.inputTensors",
    "opConfig.outputTensors",
    "config",
    "config.customConfig",
    "properties",
    "properties.customProperty",
]
"""As the headers call parameters and fields; ``[0]`` is the first pointer of an array of pointers, and
``tensor.axisScaleOffset`` the array of scales in the quantisation of a tensor by axis."""
NO_VERSION: Final = 9
"""What a ``version`` is."""
NO_VALUE: Final = 0x7FFF_FFFE
"""What an enumeration is: no header lists it, and it is not the one that makes enumerations 32 bits wide."""
OF_ENUMERATIONS: Final[frozenset[Argument]] = frozenset(
    {"tensor.type", "tensor.dataType", "envs.option", "callback.type"}
)
"""These are `NO_VALUE`; versions are `NO_VERSION`, and every other argument is NULL."""

_NODE: Final[tuple[Argument, ...]] = (
    "opConfig.version",
    "opConfig.packageName",
    "opConfig.typeName",
    "opConfig.inputTensors",
    "opConfig.outputTensors",
    "opConfig.params",
)
_TENSOR: Final[tuple[Argument, ...]] = (
    "tensor",
    "tensor.name",
    "tensor.dimensions",
    "tensor.version",
    "tensor.type",
    "tensor.dataType",
    "tensor.axisScaleOffset",
)
_TENSORS: Final[tuple[Argument, ...]] = ("tensor", "tensor[0]", "tensor.version")
ARGUMENTS: Final[dict[PointedCall, tuple[Argument, ...]]] = {
    "logCreate": ("logger",),
    "errorGetMessage": ("errorMessage",),
    "errorGetVerboseMessage": ("errorMessage",),
    "globalConfigSet": ("config",),
    "backendCreate": ("backend", "config.customConfig"),
    "backendSetConfig": ("config",),
    "backendGetProperty": ("properties", "properties.customProperty"),
    "backendRegisterOpPackage": ("packagePath", "interfaceProvider"),
    "backendGetSupportedOperations": ("numOperations", "operations"),
    "backendValidateOpConfig": _NODE,
    "deviceCreate": ("device", "config.customConfig"),
    "deviceSetConfig": ("config",),
    "deviceGetInfo": ("platformInfo",),
    "deviceGetPlatformInfo": ("platformInfo",),
    "deviceFreePlatformInfo": ("platformInfo",),
    "deviceGetInfrastructure": ("deviceInfra",),
    "contextCreate": ("context", "config.customConfig"),
    "contextSetConfig": ("config",),
    "contextGetBinarySize": ("binaryBufferSize",),
    "contextGetBinary": ("binaryBuffer", "writtenBufferSize"),
    "contextValidateBinary": ("binaryBuffer",),
    "contextCreateFromBinary": ("binaryBuffer", "context", "config.customConfig"),
    "contextCreateFromBinaryWithSignal": ("binaryBuffer", "context", "config.customConfig"),
    "contextCreateFromBinaryListAsync": (
        "contextParams",
        "contextParams[0]",
        "contextParams.version",
        "contextParams.binaryBuffer",
        "contextParams.notifyFunc",
    ),
    "contextCreateFromBinaryWithCallback": (
        "callback",
        "callback.type",
        "callback.version",
        "callback.dataProvide",
        "callback.dataRelease",
        "binaryBuffer",
        "context",
    ),
    "contextGetIncrementalBinary": ("binaryBuffer", "startOffset", "writtenBufferSize"),
    "contextGetProperty": ("properties.customProperty",),
    "contextGetBinarySectionSize": ("binaryBufferSize",),
    "contextGetBinarySection": (
        "binaryBuffer",
        "binaryBuffer.version",
        "binaryBuffer.data",
        "writtenBufferSize",
    ),
    "contextApplyBinarySection": ("binaryBuffer", "binaryBuffer.version", "binaryBuffer.data"),
    "graphCreate": ("graphName", "graphHandle", "config.customConfig"),
    "graphCreateSubgraph": ("graphName", "subgraphHandle"),
    "graphSetConfig": ("config",),
    "graphGetProperty": ("properties", "properties.customProperty"),
    "graphRetrieve": ("graphName", "graphHandle"),
    "graphAddNode": ("opConfig.name", *_NODE),
    "graphExecute": ("inputs", "outputs"),
    "graphExecuteAsync": ("inputs", "outputs"),
    "graphPrepareExecutionEnvironment": (
        "envs",
        "envs[0]",
        "envs.option",
        "envs.tensorSet.version",
        "envs.tensorSet.inputs",
        "envs.tensorSet.outputs",
    ),
    "graphReleaseExecutionEnvironment": ("envs", "envs[0]"),
    "tensorCreateGraphTensor": _TENSOR,
    "tensorCreateContextTensor": _TENSOR,
    "tensorUpdateGraphTensors": _TENSORS,
    "tensorUpdateContextTensors": _TENSORS,
    "profileCreate": ("profile",),
    "profileGetEvents": ("profileEventIds", "numEvents"),
    "profileGetSubEvents": ("subEventIds", "numSubEvents"),
    "profileGetEventData": ("eventData",),
    "profileGetExtendedEventData": ("eventData",),
    "signalCreate": ("signal",),
}
"""By call: the arguments without which it cannot do what it is for, or that lead to a struct of the client's.

Left out is what other steps give: the lists and handles of QnnMem (`Register`, `Deregister`), providers, the
version and the build id, and the list of contextGetProperty. Where NULL is in order (devices, profiles,
signals, shapeConfig, configurations of what is made) ordinary calls have it; ``config`` is NULL in order, in
calls that no ordinary step makes.
"""
OF_SECTIONS: Final[frozenset[PointedCall]] = frozenset(
    {"contextGetBinarySectionSize", "contextGetBinarySection", "contextApplyBinarySection"}
)
"""Calls on the section of a graph with updatable weights."""
COMPOSING: Final[frozenset[PointedCall]] = frozenset(
    {"graphAddNode", "tensorCreateGraphTensor", "tensorCreateContextTensor", "backendValidateOpConfig"}
)
"""Calls with an operator's tensors."""
ON_GRAPHS: Final[frozenset[PointedCall]] = frozenset(
    {
        "graphRetrieve",
        "graphGetProperty",
        "graphExecute",
        "graphExecuteAsync",
        "graphPrepareExecutionEnvironment",
        "graphReleaseExecutionEnvironment",
        "tensorUpdateGraphTensors",
    }
)
"""Calls on a graph that is finalised; `tensorUpdateGraphTensors` best on one with updatable weights."""
IN_CONTEXTS: Final[frozenset[PointedCall]] = frozenset(
    {
        "graphCreate",
        "graphCreateSubgraph",
        "graphSetConfig",
        "tensorUpdateContextTensors",
        "contextCreate",
        "contextSetConfig",
        "contextGetBinarySize",
        "contextGetBinary",
        "contextValidateBinary",
        "contextCreateFromBinary",
        "contextCreateFromBinaryWithSignal",
        "contextCreateFromBinaryListAsync",
        "contextCreateFromBinaryWithCallback",
        "contextGetIncrementalBinary",
        "contextGetProperty",
    }
)
"""Calls that take a context, make one, or compose a graph in one."""
WITHOUT_SESSION: Final[frozenset[PointedCall]] = frozenset(
    {
        "logCreate",
        "errorGetMessage",
        "errorGetVerboseMessage",
        "globalConfigSet",
        "backendCreate",
        "deviceCreate",
        "deviceGetPlatformInfo",
        "deviceFreePlatformInfo",
        "deviceGetInfrastructure",
    }
)
"""Calls that take no backend, nor what is made with one."""
