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
    "deviceCreate",
    "deviceGetInfo",
    "deviceGetPlatformInfo",
    "deviceFreePlatformInfo",
    "deviceGetInfrastructure",
    "contextCreate",
    "contextGetBinarySize",
    "contextGetBinary",
    "contextValidateBinary",
    "contextCreateFromBinary",
    "contextGetProperty",
    "contextGetBinarySectionSize",
    "contextGetBinarySection",
    "contextApplyBinarySection",
    "graphCreate",
    "graphRetrieve",
    "graphAddNode",
    "graphExecute",
    "tensorCreateGraphTensor",
    "profileCreate",
    "profileGetEvents",
    "signalCreate",
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
    "graphName",
    "graphHandle",
    "inputs",
    "outputs",
    "profile",
    "profileEventIds",
    "numEvents",
    "signal",
    "tensor",
    "tensor.name",
    "tensor.dimensions",
    "opConfig.version",
    "opConfig.name",
    "opConfig.packageName",
    "opConfig.typeName",
    "opConfig.inputTensors",
    "opConfig.outputTensors",
    "config.customConfig",
    "properties.customProperty",
]
"""As the headers call parameters and fields."""
NO_VERSION: Final = 9
"""What ``opConfig.version`` and ``binaryBuffer.version`` are; every other argument is NULL."""

_NODE: Final[tuple[Argument, ...]] = (
    "opConfig.version",
    "opConfig.packageName",
    "opConfig.typeName",
    "opConfig.inputTensors",
    "opConfig.outputTensors",
)
ARGUMENTS: Final[dict[PointedCall, tuple[Argument, ...]]] = {
    "logCreate": ("logger",),
    "errorGetMessage": ("errorMessage",),
    "backendCreate": ("backend",),
    "backendRegisterOpPackage": ("packagePath", "interfaceProvider"),
    "backendGetSupportedOperations": ("numOperations", "operations"),
    "backendValidateOpConfig": _NODE,
    "deviceCreate": ("device",),
    "deviceGetInfo": ("platformInfo",),
    "deviceGetPlatformInfo": ("platformInfo",),
    "deviceFreePlatformInfo": ("platformInfo",),
    "deviceGetInfrastructure": ("deviceInfra",),
    "contextCreate": ("context", "config.customConfig"),
    "contextGetBinarySize": ("binaryBufferSize",),
    "contextGetBinary": ("binaryBuffer", "writtenBufferSize"),
    "contextValidateBinary": ("binaryBuffer",),
    "contextCreateFromBinary": ("binaryBuffer", "context", "config.customConfig"),
    "contextGetProperty": ("properties.customProperty",),
    "contextGetBinarySectionSize": ("binaryBufferSize",),
    "contextGetBinarySection": (
        "binaryBuffer",
        "binaryBuffer.version",
        "binaryBuffer.data",
        "writtenBufferSize",
    ),
    "contextApplyBinarySection": ("binaryBuffer", "binaryBuffer.version", "binaryBuffer.data"),
    "graphCreate": ("graphName", "graphHandle"),
    "graphRetrieve": ("graphName", "graphHandle"),
    "graphAddNode": ("opConfig.name", *_NODE),
    "graphExecute": ("inputs", "outputs"),
    "tensorCreateGraphTensor": ("tensor", "tensor.name", "tensor.dimensions"),
    "profileCreate": ("profile",),
    "profileGetEvents": ("profileEventIds", "numEvents"),
    "signalCreate": ("signal",),
}
"""By call: the arguments without which it cannot do what it is for, or that lead to a struct of the client's.

Left out is what other steps give: the lists and handles of QnnMem (`Register`, `Deregister`), providers, the
version and the build id, and the list of contextGetProperty. Where NULL is in order (configurations,
devices, profiles, signals, shapeConfig) ordinary calls have it.
"""
OF_SECTIONS: Final[frozenset[PointedCall]] = frozenset(
    {"contextGetBinarySectionSize", "contextGetBinarySection", "contextApplyBinarySection"}
)
"""Calls on the section of a graph with updatable weights."""
WITHOUT_SESSION: Final[frozenset[PointedCall]] = frozenset(
    {
        "logCreate",
        "errorGetMessage",
        "backendCreate",
        "deviceCreate",
        "deviceGetPlatformInfo",
        "deviceFreePlatformInfo",
        "deviceGetInfrastructure",
    }
)
"""Calls that take no backend, nor what is made with one."""
