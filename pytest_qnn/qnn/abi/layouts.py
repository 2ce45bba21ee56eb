"""C layouts of the Qualcomm QNN interface, API 2.32, for 64-bit Linux (LP64). No behaviour."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    Union,
    c_char_p,
    c_float,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any

SPARE_POINTERS = 64
"""NULL pointers to keep behind a table: a client compiled for a newer minor copies its own, larger one."""

ErrorHandle = c_uint64
"""Qnn_ErrorHandle_t: the code is in the low 16 bits, success is exactly 0."""

_Int32P, _Uint32P = POINTER(c_int32), POINTER(c_uint32)
_TextP, _FloatP, _Uint8P = POINTER(c_char_p), POINTER(c_float), POINTER(c_uint8)


class Version(Structure):
    """Qnn_Version_t, 12 bytes."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("patch", c_uint32))


class ApiVersion(Structure):
    """Qnn_ApiVersion_t, 24 bytes."""

    _fields_ = (("coreApiVersion", Version), ("backendApiVersion", Version))


class ScaleOffset(Structure):
    """Qnn_ScaleOffset_t, 8 bytes: real = (stored + offset) * scale."""

    _fields_ = (("scale", c_float), ("offset", c_int32))


class AxisScaleOffset(Structure):
    """Qnn_AxisScaleOffset_t, 16 bytes."""

    _fields_ = (("axis", c_int32), ("numScaleOffsets", c_uint32), ("scaleOffset", POINTER(ScaleOffset)))


class BwScaleOffset(Structure):
    """Qnn_BwScaleOffset_t, 12 bytes."""

    _fields_ = (("bitwidth", c_uint32), ("scale", c_float), ("offset", c_int32))


class BwAxisScaleOffset(Structure):
    """Qnn_BwAxisScaleOffset_t, 32 bytes."""

    _fields_ = (
        ("bitwidth", c_uint32),
        ("axis", c_int32),
        ("numElements", c_uint32),
        ("scales", _FloatP),
        ("offsets", _Int32P),
    )


class _Quantization(Union):
    _fields_ = (
        ("scaleOffsetEncoding", ScaleOffset),
        ("axisScaleOffsetEncoding", AxisScaleOffset),
        ("bwScaleOffsetEncoding", BwScaleOffset),
        ("bwAxisScaleOffsetEncoding", BwAxisScaleOffset),
    )


class QuantizeParams(Structure):
    """Qnn_QuantizeParams_t, 40 bytes."""

    _anonymous_ = ("encoding",)
    _fields_ = (
        ("encodingDefinition", c_uint32),
        ("quantizationEncoding", c_uint32),
        ("encoding", _Quantization),
    )


class ClientBuffer(Structure):
    """Qnn_ClientBuffer_t, 16 bytes; ``dataSize`` in bytes."""

    _fields_ = (("data", c_void_p), ("dataSize", c_uint32))


class _TensorMemory(Union):
    _fields_ = (("clientBuf", ClientBuffer), ("memHandle", c_void_p), ("retrieveRaw", c_void_p))


_TENSOR_V1 = (
    ("id", c_uint32),
    ("name", c_char_p),
    ("type", c_uint32),
    ("dataFormat", c_uint32),
    ("dataType", c_uint32),
    ("quantizeParams", QuantizeParams),
    ("rank", c_uint32),
    ("dimensions", _Uint32P),
    ("memType", c_uint32),
    ("memory", _TensorMemory),
)


class TensorV1(Structure):
    """Qnn_TensorV1_t, 112 bytes. ``memType`` says which member of the union counts."""

    _anonymous_ = ("memory",)
    _fields_ = _TENSOR_V1


class SparseParams(Structure):
    """Qnn_SparseParams_t, 12 bytes."""

    _fields_ = (("type", c_uint32), ("numSpecifiedElements", c_uint32), ("numSparseDimensions", c_uint32))


class TensorV2(Structure):
    """Qnn_TensorV2_t, 136 bytes: version 1 up to the union, then the new members."""

    _anonymous_ = ("memory",)
    _fields_ = (
        *_TENSOR_V1,
        ("isDynamicDimensions", _Uint8P),
        ("sparseParams", SparseParams),
        ("isProduced", c_uint8),
    )


class _TensorVersions(Union):
    _fields_ = (("v1", TensorV1), ("v2", TensorV2))


class Tensor(Structure):
    """Qnn_Tensor_t, 144 bytes; ``version`` 1 or 2 selects ``v1`` or ``v2``."""

    _anonymous_ = ("versions",)
    _fields_ = (("version", c_uint32), ("versions", _TensorVersions))


TensorP = POINTER(Tensor)


class _ScalarValue(Union):
    _fields_ = (
        ("floatValue", c_float),
        ("doubleValue", ctypes.c_double),
        ("uint64Value", c_uint64),
        ("int64Value", ctypes.c_int64),
        ("uint32Value", c_uint32),
        ("int32Value", c_int32),
        ("bool8Value", c_uint8),
        ("stringValue", c_char_p),
    )


class Scalar(Structure):
    """Qnn_Scalar_t, 16 bytes."""

    _anonymous_ = ("value",)
    _fields_ = (("dataType", c_uint32), ("value", _ScalarValue))


class _ParamValue(Union):
    _fields_ = (("scalarParam", Scalar), ("tensorParam", Tensor))


class Param(Structure):
    """Qnn_Param_t, 160 bytes."""

    _anonymous_ = ("value",)
    _fields_ = (("paramType", c_uint32), ("name", c_char_p), ("value", _ParamValue))


class OpConfigV1(Structure):
    """Qnn_OpConfigV1_t, 72 bytes."""

    _fields_ = (
        ("name", c_char_p),
        ("packageName", c_char_p),
        ("typeName", c_char_p),
        ("numOfParams", c_uint32),
        ("params", POINTER(Param)),
        ("numOfInputs", c_uint32),
        ("inputTensors", TensorP),
        ("numOfOutputs", c_uint32),
        ("outputTensors", TensorP),
    )


class _OpConfigVersions(Union):
    _fields_ = (("v1", OpConfigV1),)


class OpConfig(Structure):
    """Qnn_OpConfig_t, 80 bytes, passed by value; ``version`` is 1."""

    _anonymous_ = ("versions",)
    _fields_ = (("version", c_uint32), ("versions", _OpConfigVersions))


class MemShape(Structure):
    """Qnn_MemShape_t, 24 bytes."""

    _fields_ = (("numDim", c_uint32), ("dimSize", _Uint32P), ("shapeConfig", c_char_p))


class MemIonInfo(Structure):
    """Qnn_MemIonInfo_t, 4 bytes."""

    _fields_ = (("fd", c_int32),)


class MemDmaBufInfo(Structure):
    """Qnn_MemDmaBufInfo_t, 16 bytes."""

    _fields_ = (("fd", c_int32), ("data", c_void_p))


class _MemInfo(Union):
    _fields_ = (("ionInfo", MemIonInfo), ("customInfo", c_void_p), ("dmaBufInfo", MemDmaBufInfo))


class MemDescriptor(Structure):
    """Qnn_MemDescriptor_t, 48 bytes."""

    _anonymous_ = ("info",)
    _fields_ = (("memShape", MemShape), ("dataType", c_uint32), ("memType", c_uint32), ("info", _MemInfo))


class HtpSharedBufferConfig(Structure):
    """QnnHtpMem_SharedBufferConfig_t, 16 bytes."""

    _fields_ = (("fd", c_int32), ("offset", c_uint64))


class _HtpMemConfig(Union):
    _fields_ = (
        ("qurtAddress", c_uint32),
        ("sharedBufferConfig", HtpSharedBufferConfig),
        ("weightsBufferConfig", HtpSharedBufferConfig),
        ("sharedSpillfillBufferConfig", HtpSharedBufferConfig),
    )


class HtpMemDescriptor(Structure):
    """QnnMemHtp_Descriptor_t, 32 bytes; ``size`` is the whole buffer, in bytes."""

    _anonymous_ = ("config",)
    _fields_ = (("type", c_uint32), ("size", c_uint64), ("config", _HtpMemConfig))


class AsyncExecutionQueueDepth(Structure):
    """QnnContext_AsyncExecutionQueueDepth_t, 8 bytes."""

    _fields_ = (("type", c_uint32), ("depth", c_uint32))


class ErrorConfig(Structure):
    """Qnn_ErrorConfig_t, 8 bytes."""

    _fields_ = (("reportingLevel", c_uint32), ("storageLimit", c_uint32))


class _ContextConfigValue(Union):
    _fields_ = (
        ("customConfig", c_void_p),
        ("priority", c_uint32),
        ("errorConfig", ErrorConfig),
        ("asyncExeQueueDepth", AsyncExecutionQueueDepth),
        ("enableGraphs", _TextP),
        ("memoryLimitHint", c_uint64),
        ("isPersistentBinary", c_uint8),
        ("binaryCompatibilityType", c_uint32),
        ("isGraphInitDeferred", c_uint8),
        ("graphRetentionOrder", c_void_p),
    )


class ContextConfig(Structure):
    """QnnContext_Config_t, 16 bytes; passed as a NULL-terminated array of pointers."""

    _anonymous_ = ("value",)
    _fields_ = (("option", c_uint32), ("value", _ContextConfigValue))


class ContextProperty(Structure):
    """QnnContext_Property_t, 16 bytes; passed as a NULL-terminated array of pointers."""

    _fields_ = (("option", c_uint32), ("customProperty", c_void_p))


class HtpContextProperty(Structure):
    """QnnHtpContext_CustomProperty_t, 16 bytes; the value is in bytes."""

    _fields_ = (("option", c_uint32), ("value", c_uint64))


class HtpGroupRegistration(Structure):
    """QnnHtpContext_GroupRegistration_t, 16 bytes."""

    _fields_ = (("firstGroupHandle", c_void_p), ("maxSpillFillBuffer", c_uint64))


class TensorSetV1(Structure):
    """Qnn_TensorSetV1_t, 32 bytes."""

    _fields_ = (
        ("numInputs", c_uint32),
        ("inputs", TensorP),
        ("numOutputs", c_uint32),
        ("outputs", TensorP),
    )


class _TensorSetVersions(Union):
    _fields_ = (("v1", TensorSetV1),)


class TensorSet(Structure):
    """Qnn_TensorSet_t, 40 bytes."""

    _anonymous_ = ("versions",)
    _fields_ = (("version", c_uint32), ("versions", _TensorSetVersions))


class ExecuteEnvironment(Structure):
    """QnnGraph_ExecuteEnvironment_t, 48 bytes."""

    _fields_ = (("option", c_uint32), ("tensorSet", TensorSet))


class ProfileEventData(Structure):
    """QnnProfile_EventData_t, 24 bytes."""

    _fields_ = (("type", c_uint32), ("unit", c_uint32), ("value", c_uint64), ("identifier", c_char_p))


class OperationName(Structure):
    """QnnBackend_OperationName_t, 24 bytes."""

    _fields_ = (("packageName", c_char_p), ("name", c_char_p), ("target", c_char_p))


class _SignalConfigValue(Union):
    _fields_ = (("customConfig", c_void_p), ("timeoutDurationUs", c_uint64))


class SignalConfig(Structure):
    """QnnSignal_Config_t, 16 bytes; passed as a NULL-terminated array of pointers."""

    _anonymous_ = ("value",)
    _fields_ = (("option", c_uint32), ("value", _SignalConfigValue))


class NotifyStatus(ctypes.Structure):
    """Qnn_NotifyStatus_t, 8 bytes, passed by value."""

    _fields_ = (("error", ErrorHandle),)


NotifyFn: Any = ctypes.CFUNCTYPE(None, c_void_p, NotifyStatus)
"""Qnn_NotifyFn_t: the client's parameter, and how the execution ended."""


class EnvironmentOption(IntEnum):
    """QnnGraph_ExecuteEnvironmentOption_t."""

    BIND_MEM_HANDLES = 0
    POPULATE_CLIENT_BUFS = 1


Notify: Any = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_char_p, c_uint32, c_void_p, ErrorHandle)
"""QnnContext_createFromBinaryNotifyFn_t: context, graph, its name, what is ready, parameter, status."""


class ContextNotifyType(IntEnum):
    """QnnContext_createFromBinaryAsyncNotifyType_t: what is ready."""

    GRAPH_INIT = 0
    CONTEXT_INIT = 1


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


GetTensorRawDataFn: Any = ctypes.CFUNCTYPE(ErrorHandle, c_void_p, c_void_p, c_uint64, POINTER(ClientBuffer))
"""Qnn_GetTensorRawDataFn_t: context, graph, id of the tensor, and where its buffer is to be told."""
FreeTensorRawDataFn: Any = ctypes.CFUNCTYPE(ErrorHandle, c_void_p, c_void_p, c_uint64)
"""Qnn_FreeTensorRawDataFn_t: context, graph, id of the tensor."""


class TensorRetrieveRaw(ctypes.Structure):
    """Qnn_TensorRetrieveRaw_t, 16 bytes."""

    _fields_ = (("getTensorData", GetTensorRawDataFn), ("freeTensorData", FreeTensorRawDataFn))


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
