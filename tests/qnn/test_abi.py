"""The layouts against the numbers that a C compiler gives for the public headers of API 2.32."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from pytest_qnn.qnn.abi import layouts, system, table
from pytest_qnn.qnn.abi.codes import ITEM_SIZE, DataType, Error, Property

SIZES: dict[Any, int] = {
    layouts.Version: 12,
    layouts.ApiVersion: 24,
    table.Interface: 608,
    table.Implementation: 568,
    layouts.ClientBuffer: 16,
    layouts.QuantizeParams: 40,
    layouts.ScaleOffset: 8,
    layouts.BwScaleOffset: 12,
    layouts.AxisScaleOffset: 16,
    layouts.BwAxisScaleOffset: 32,
    layouts.SparseParams: 12,
    layouts.TensorV1: 112,
    layouts.TensorV2: 136,
    layouts.Tensor: 144,
    layouts.TensorSetV1: 32,
    layouts.TensorSet: 40,
    layouts.Scalar: 16,
    layouts.Param: 160,
    layouts.OpConfigV1: 72,
    layouts.OpConfig: 80,
    layouts.MemShape: 24,
    layouts.MemIonInfo: 4,
    layouts.MemDmaBufInfo: 16,
    layouts.MemDescriptor: 48,
    layouts.HtpSharedBufferConfig: 16,
    layouts.HtpMemDescriptor: 32,
    layouts.AsyncExecutionQueueDepth: 8,
    layouts.ContextConfig: 16,
    layouts.ContextProperty: 16,
    layouts.HtpContextProperty: 16,
    layouts.HtpGroupRegistration: 16,
    layouts.ProfileEventData: 24,
    layouts.OperationName: 24,
    layouts.SignalConfig: 16,
    layouts.ContextParamsV1: 48,
    layouts.ContextParams: 56,
    layouts.DataRequest: 24,
    layouts.RawDataResponse: 24,
    layouts.RawDataMem: 16,
    layouts.RawBufferCallback: 32,
    layouts.ContextBinaryCallback: 40,
    system.SystemInterface: 160,
    system.BinaryInfo: 144,
    system.GraphInfo: 88,
    system.ExtendedEventData: 56,
    system.ProfileEvent: 80,
    system.ProfileData: 72,
    system.SerializationTarget: 24,
    system.SerializationConfig: 32,
}
OFFSETS: dict[Any, dict[str, int]] = {
    table.Interface: {"backendId": 0, "providerName": 8, "apiVersion": 16, "implementation": 40},
    layouts.ClientBuffer: {"data": 0, "dataSize": 8},
    layouts.QuantizeParams: {
        "encodingDefinition": 0,
        "quantizationEncoding": 4,
        "scaleOffsetEncoding": 8,
        "axisScaleOffsetEncoding": 8,
        "bwAxisScaleOffsetEncoding": 8,
    },
    layouts.TensorV1: {
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
    layouts.TensorV2: {
        "memType": 88,
        "clientBuf": 96,
        "memHandle": 96,
        "retrieveRaw": 96,
        "isDynamicDimensions": 112,
        "sparseParams": 120,
        "isProduced": 132,
    },
    layouts.Tensor: {"version": 0, "v1": 8, "v2": 8},
    layouts.TensorSetV1: {"numInputs": 0, "inputs": 8, "numOutputs": 16, "outputs": 24},
    layouts.TensorSet: {"v1": 8},
    layouts.Scalar: {"dataType": 0, "floatValue": 8},
    layouts.Param: {"paramType": 0, "name": 8, "scalarParam": 16, "tensorParam": 16},
    layouts.OpConfigV1: {
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
    layouts.OpConfig: {"version": 0, "v1": 8},
    layouts.MemShape: {"numDim": 0, "dimSize": 8, "shapeConfig": 16},
    layouts.MemDmaBufInfo: {"fd": 0, "data": 8},
    layouts.MemDescriptor: {
        "memShape": 0,
        "dataType": 24,
        "memType": 28,
        "ionInfo": 32,
        "customInfo": 32,
        "dmaBufInfo": 32,
    },
    layouts.HtpSharedBufferConfig: {"fd": 0, "offset": 8},
    layouts.HtpMemDescriptor: {"type": 0, "size": 8, "qurtAddress": 16, "sharedBufferConfig": 16},
    layouts.ContextConfig: {"option": 0, "customConfig": 8, "isGraphInitDeferred": 8, "memoryLimitHint": 8},
    layouts.ContextProperty: {"option": 0, "customProperty": 8},
    layouts.HtpContextProperty: {"option": 0, "value": 8},
    layouts.HtpGroupRegistration: {"firstGroupHandle": 0, "maxSpillFillBuffer": 8},
    layouts.ProfileEventData: {"type": 0, "unit": 4, "value": 8, "identifier": 16},
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
    assert len(table.FUNCTIONS) == 71
    assert {name: getattr(table.Implementation, name).offset for name in TABLE} == TABLE


def test_a_table_is_followed_by_64_spare_pointers() -> None:
    assert ctypes.sizeof(table.PaddedInterface) == 608 + 64 * 8


def test_an_operator_config_with_unions_survives_a_call_by_value() -> None:
    seen = []

    def entry(handle: int, config: Any) -> int:
        seen.append((handle, config.version, config.v1.typeName, config.v1.numOfOutputs))
        return 6005 << 32 | 1

    call = table.PROTOTYPES["graphAddNode"](entry)
    config = layouts.OpConfig(version=1)
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
