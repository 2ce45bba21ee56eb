"""The layouts against the numbers that a C compiler gives for the public headers of API 2.32."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from pytest_qnn.abi import qnn, qnn_load, qnn_system, qnn_table
from pytest_qnn.abi.qnn_codes import ITEM_SIZE, DataType, Error, Property

SIZES: dict[Any, int] = {
    qnn.Version: 12,
    qnn.ApiVersion: 24,
    qnn_table.Interface: 608,
    qnn_table.Implementation: 568,
    qnn.ClientBuffer: 16,
    qnn.QuantizeParams: 40,
    qnn.ScaleOffset: 8,
    qnn.BwScaleOffset: 12,
    qnn.AxisScaleOffset: 16,
    qnn.BwAxisScaleOffset: 32,
    qnn.SparseParams: 12,
    qnn.TensorV1: 112,
    qnn.TensorV2: 136,
    qnn.Tensor: 144,
    qnn.TensorSetV1: 32,
    qnn.TensorSet: 40,
    qnn.Scalar: 16,
    qnn.Param: 160,
    qnn.OpConfigV1: 72,
    qnn.OpConfig: 80,
    qnn.MemShape: 24,
    qnn.MemIonInfo: 4,
    qnn.MemDmaBufInfo: 16,
    qnn.MemDescriptor: 48,
    qnn.HtpSharedBufferConfig: 16,
    qnn.HtpMemDescriptor: 32,
    qnn.AsyncExecutionQueueDepth: 8,
    qnn.ContextConfig: 16,
    qnn.ContextProperty: 16,
    qnn.HtpContextProperty: 16,
    qnn.HtpGroupRegistration: 16,
    qnn.ProfileEventData: 24,
    qnn.OperationName: 24,
    qnn.SignalConfig: 16,
    qnn_load.ContextParamsV1: 48,
    qnn_load.ContextParams: 56,
    qnn_load.DataRequest: 24,
    qnn_load.RawDataResponse: 24,
    qnn_load.RawDataMem: 16,
    qnn_load.RawBufferCallback: 32,
    qnn_load.ContextBinaryCallback: 40,
    qnn_system.SystemInterface: 160,
    qnn_system.BinaryInfo: 144,
    qnn_system.GraphInfo: 88,
}
OFFSETS: dict[Any, dict[str, int]] = {
    qnn_table.Interface: {"backendId": 0, "providerName": 8, "apiVersion": 16, "implementation": 40},
    qnn.ClientBuffer: {"data": 0, "dataSize": 8},
    qnn.QuantizeParams: {
        "encodingDefinition": 0,
        "quantizationEncoding": 4,
        "scaleOffsetEncoding": 8,
        "axisScaleOffsetEncoding": 8,
        "bwAxisScaleOffsetEncoding": 8,
    },
    qnn.TensorV1: {
        "id": 0,
        "name": 8,
        "type": 16,
        "dataFormat": 20,
        "dataType": 24,
        "quantizeParams": 32,
        "rank": 72,
        "dimensions": 80,
        "memType": 88,
        "clientBuf": 96,
        "memHandle": 96,
    },
    qnn.TensorV2: {
        "memType": 88,
        "clientBuf": 96,
        "memHandle": 96,
        "retrieveRaw": 96,
        "isDynamicDimensions": 112,
        "sparseParams": 120,
        "isProduced": 132,
    },
    qnn.Tensor: {"version": 0, "v1": 8, "v2": 8},
    qnn.TensorSetV1: {"numInputs": 0, "inputs": 8, "numOutputs": 16, "outputs": 24},
    qnn.TensorSet: {"v1": 8},
    qnn.Scalar: {"dataType": 0, "floatValue": 8},
    qnn.Param: {"paramType": 0, "name": 8, "scalarParam": 16, "tensorParam": 16},
    qnn.OpConfigV1: {
        "name": 0,
        "packageName": 8,
        "typeName": 16,
        "numOfParams": 24,
        "params": 32,
        "numOfInputs": 40,
        "inputTensors": 48,
        "numOfOutputs": 56,
        "outputTensors": 64,
    },
    qnn.OpConfig: {"version": 0, "v1": 8},
    qnn.MemShape: {"numDim": 0, "dimSize": 8, "shapeConfig": 16},
    qnn.MemDmaBufInfo: {"fd": 0, "data": 8},
    qnn.MemDescriptor: {
        "memShape": 0,
        "dataType": 24,
        "memType": 28,
        "ionInfo": 32,
        "customInfo": 32,
        "dmaBufInfo": 32,
    },
    qnn.HtpSharedBufferConfig: {"fd": 0, "offset": 8},
    qnn.HtpMemDescriptor: {"type": 0, "size": 8, "qurtAddress": 16, "sharedBufferConfig": 16},
    qnn.ContextConfig: {"option": 0, "customConfig": 8, "isGraphInitDeferred": 8, "memoryLimitHint": 8},
    qnn.ContextProperty: {"option": 0, "customProperty": 8},
    qnn.HtpContextProperty: {"option": 0, "value": 8},
    qnn.HtpGroupRegistration: {"firstGroupHandle": 0, "maxSpillFillBuffer": 8},
    qnn.ProfileEventData: {"type": 0, "unit": 4, "value": 8, "identifier": 16},
}
TABLE = {
    "propertyHasCapability": 0,
    "backendCreate": 8,
    "backendValidateOpConfig": 56,
    "backendFree": 64,
    "contextCreate": 72,
    "contextFree": 112,
    "graphCreate": 120,
    "graphAddNode": 144,
    "graphFinalize": 152,
    "graphRetrieve": 160,
    "graphExecute": 168,
    "tensorCreateGraphTensor": 192,
    "logCreate": 200,
    "memRegister": 280,
    "memDeRegister": 288,
    "deviceCreate": 320,
    "deviceFree": 344,
    "errorGetMessage": 384,
    "contextFinalize": 528,
    "contextFreeBinarySectionUpdate": 560,
}


@pytest.mark.parametrize(("layout", "size"), SIZES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_structure_has_the_size_of_the_header(layout: Any, size: int) -> None:
    assert ctypes.sizeof(layout) == size


@pytest.mark.parametrize("layout", OFFSETS, ids=lambda layout: layout.__name__)
def test_members_are_where_the_header_puts_them(layout: Any) -> None:
    expected = OFFSETS[layout]
    assert {name: getattr(layout, name).offset for name in expected} == expected


def test_the_table_has_71_entries_in_the_order_of_the_header() -> None:
    assert len(qnn_table.FUNCTIONS) == 71
    assert {name: getattr(qnn_table.Implementation, name).offset for name in TABLE} == TABLE


def test_a_table_is_followed_by_64_spare_pointers() -> None:
    assert ctypes.sizeof(qnn_table.PaddedInterface) == 608 + 64 * 8


def test_an_operator_config_with_unions_survives_a_call_by_value() -> None:
    seen = []

    def entry(handle: int, config: Any) -> int:
        seen.append((handle, config.version, config.v1.typeName, config.v1.numOfOutputs))
        return 6005 << 32 | 1

    call = qnn_table.PROTOTYPES["graphAddNode"](entry)
    config = qnn.OpConfig(version=1)
    config.v1.typeName, config.v1.numOfOutputs = b"Relu", 3
    assert call(7, config) == 6005 << 32 | 1
    assert seen == [(7, 1, b"Relu", 3)]


def test_element_sizes_follow_the_width_in_the_type_code() -> None:
    assert ITEM_SIZE[DataType.UFIXED_POINT_8] == 1
    assert ITEM_SIZE[DataType.UFIXED_POINT_16] == 2
    assert ITEM_SIZE[DataType.FLOAT_32] == 4
    assert ITEM_SIZE[DataType.INT_64] == 8
    assert DataType.STRING not in ITEM_SIZE


def test_memory_codes_and_keys_have_the_values_of_the_header() -> None:
    assert [Error[f"MEM_ERROR_{name}"].value for name in ("INVALID_ARGUMENT", "INVALID_HANDLE")] == [
        8000,
        8001,
    ]
    assert Error(8002) is Error.MEM_ERROR_ALREADY_REGISTERED
    assert Error(1000) is Error.MEM_ERROR_NOT_SUPPORTED
    keys = (Property.GROUP_MEMORY, Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF)
    assert keys == (1101, 1104)
    assert Property.TENSOR_SUPPORT_MEMHANDLE_TYPE == 502
