"""The companion of the reference backend: what a client asks about a context binary before it loads it."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

from msgspec import UnsetType

from pytest_qnn.qnn.abi import layouts, system
from pytest_qnn.qnn.abi.codes import EncodingDefinition, Error, QuantizationEncoding, TensorType
from pytest_qnn.qnn.reference.binaries import Binary, StoredGraph, decode
from pytest_qnn.qnn.reference.objects import QnnError, Tensor
from pytest_qnn.qnn.reference.operators.values import STORED, kind_of
from pytest_qnn.qnn.reference.serialisation import SerialisationTargets
from pytest_qnn.qnn.reference.table import HTP_BACKEND_ID

_INVALID = Error.SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT


class Info:
    """A QnnSystemContext_BinaryInfo_t with everything that it points to."""

    def __init__(self, binary: Binary, size: int) -> None:
        self._kept: list[Any] = []
        graphs = (system.GraphInfo * len(binary.graphs))(*map(self._graph, binary.graphs))
        self._kept.append(graphs)
        self.info = system.BinaryInfo(version=system.NEWEST_INFO)
        content = self.info.contextBinaryInfoV3
        content.backendId = HTP_BACKEND_ID
        content.buildId = binary.build
        content.coreApiVersion = layouts.Version(*binary.core_version)
        content.backendApiVersion = layouts.Version(*binary.backend_version)
        content.contextBlobSize = size
        content.numGraphs, content.graphs = len(graphs), graphs

    def _graph(self, graph: StoredGraph) -> system.GraphInfo:
        inputs = self._tensors([each for each in graph.tensors if each.type == TensorType.APP_WRITE])
        outputs = self._tensors([each for each in graph.tensors if each.type == TensorType.APP_READ])
        content = system.GraphInfoV3(
            graphName=graph.name.encode(),
            numGraphInputs=len(inputs),
            graphInputs=ctypes.cast(inputs, layouts.TensorP),
            numGraphOutputs=len(outputs),
            graphOutputs=ctypes.cast(outputs, layouts.TensorP),
        )
        return system.GraphInfo(version=system.NEWEST_INFO, graphInfoV3=content)

    def _tensors(self, tensors: list[Tensor]) -> Any:
        made = (layouts.Tensor * len(tensors))()
        for struct, tensor in zip(made, tensors, strict=True):
            dimensions = (ctypes.c_uint32 * len(tensor.shape))(*tensor.shape)
            self._kept += [dimensions, tensor]
            struct.version = 1
            _describe(struct.v1, tensor, dimensions)
            self._kept += encode(struct.v1.quantizeParams, tensor)
        self._kept.append(made)
        return made


def _describe(v1: Any, tensor: Tensor, dimensions: Any) -> None:
    """Fill a Qnn_TensorV1_t; its data is what the binary has for it: NULL for an IO tensor."""
    v1.clientBuf.data = ctypes.cast(ctypes.c_char_p(tensor.data), ctypes.c_void_p).value
    v1.id, v1.name, v1.type = tensor.id, tensor.name.encode(), tensor.type
    v1.dataType, v1.memType = tensor.data_type, tensor.mem_type
    v1.rank, v1.dimensions = len(dimensions), ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_uint32))


def encode(parameters: Any, tensor: Tensor) -> list[Any]:
    """Fill a Qnn_QuantizeParams_t; arrays that it points to, which must live as long."""
    if tensor.data_type not in STORED or kind_of(tensor.data_type) != "fixed":
        parameters.encodingDefinition = EncodingDefinition.UNDEFINED
        parameters.quantizationEncoding = QuantizationEncoding.UNDEFINED
        return []
    parameters.encodingDefinition = EncodingDefinition.DEFINED
    encoding = tensor.encoding
    if isinstance(encoding, UnsetType):
        parameters.quantizationEncoding = QuantizationEncoding.SCALE_OFFSET
        parameters.scaleOffsetEncoding = layouts.ScaleOffset(tensor.scale, tensor.offset)
        return []
    if encoding.axis < 0:
        parameters.quantizationEncoding = QuantizationEncoding.BW_SCALE_OFFSET
        parameters.bwScaleOffsetEncoding = layouts.BwScaleOffset(encoding.bits, tensor.scale, tensor.offset)
        return []
    count = len(encoding.scales)
    if encoding.bits:
        scales, offsets = (
            (ctypes.c_float * count)(*encoding.scales),
            (ctypes.c_int32 * count)(*encoding.offsets),
        )
        parameters.quantizationEncoding = QuantizationEncoding.BW_AXIS_SCALE_OFFSET
        parameters.bwAxisScaleOffsetEncoding = layouts.BwAxisScaleOffset(
            encoding.bits, encoding.axis, count, scales, offsets
        )
        return [scales, offsets]
    both = zip(encoding.scales, encoding.offsets, strict=True)
    pairs = (layouts.ScaleOffset * count)(*(layouts.ScaleOffset(*each) for each in both))
    parameters.quantizationEncoding = QuantizationEncoding.AXIS_SCALE_OFFSET
    parameters.axisScaleOffsetEncoding = layouts.AxisScaleOffset(encoding.axis, count, pairs)
    return [pairs]


class ReferenceSystem:
    """A QnnSystemInterface table. Keep it alive for as long as any pointer of it may be used.

    ``get_providers`` is called like the exported QnnSystemInterface_getProviders.
    """

    def __init__(self) -> None:
        self.escaped: list[tuple[str, BaseException]] = []
        self._handles: dict[int, list[Info]] = {}
        self._serial = itertools.count(1)
        self._padded = system.PaddedSystemInterface()
        self._interface = self._padded.interface
        self._interface.providerName = b"PYTEST_QNN_SYSTEM"
        self._interface.systemApiVersion = layouts.Version(*system.SYSTEM_VERSION)
        self._list = (system.SystemInterfaceP * 1)(ctypes.pointer(self._interface))
        methods: dict[str, Callable[..., None]] = {
            "systemContextCreate": self.create,
            "systemContextGetBinaryInfo": self.get_binary_info,
            "systemContextGetMetaData": self.get_metadata,
            "systemContextFree": self.free,
            **SerialisationTargets().methods(),
        }
        self._thunks: list[Any] = []
        for name, prototype in system.SYSTEM_PROTOTYPES.items():
            entry = self._guard(name, prototype, methods.get(name, _not_supported))
            setattr(self._interface.implementation, name, entry)
        self.get_providers: Any = self._guard("getProviders", system.GetSystemProviders, self.providers)

    def providers(self, providers: Any, count: Any) -> None:
        """QnnSystemInterface_getProviders; 1004 for NULL."""
        if not providers or not count:
            raise QnnError(Error.INTERFACE_ERROR_INVALID_PARAMETER)
        providers[0], count[0] = self._list, 1

    def create(self, out: Any) -> None:
        """QnnSystemContext_create."""
        if not out:
            raise QnnError(_INVALID)
        out[0] = handle = next(self._serial)
        self._handles[handle] = []

    def get_binary_info(
        self, handle: int | None, buffer: int | None, size: int, out: Any, length: Any
    ) -> None:
        """QnnSystemContext_getBinaryInfo: what it points to lives as long as the handle."""
        if not length:
            raise QnnError(_INVALID)
        self.get_metadata(handle, buffer, size, out)
        length[0] = ctypes.sizeof(system.BinaryInfo)

    def get_metadata(self, handle: int | None, buffer: int | None, size: int, out: Any) -> None:
        """QnnSystemContext_getMetaData: as `get_binary_info`; 30010 for no binary of the reference."""
        if handle not in self._handles:
            raise QnnError(Error.SYSTEM_CONTEXT_ERROR_INVALID_HANDLE)
        if not buffer or not size or not out:
            raise QnnError(_INVALID)
        try:
            binary = decode(ctypes.string_at(buffer, size))
        except ValueError:
            raise QnnError(Error.SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY) from None
        info = Info(binary, size)
        self._handles[handle].append(info)
        out[0] = ctypes.pointer(info.info)

    def free(self, handle: int | None) -> None:
        """QnnSystemContext_free."""
        if handle not in self._handles:
            raise QnnError(Error.SYSTEM_CONTEXT_ERROR_INVALID_HANDLE)
        del self._handles[handle]

    def _guard(self, name: str, prototype: Any, method: Callable[..., None]) -> Any:
        def call(*arguments: Any) -> int:
            try:
                method(*arguments)
            except QnnError as error:
                return error.code
            except BaseException as error:
                self.escaped.append((name, error))
                return int(Error.COMMON_ERROR_GENERAL)
            return 0

        thunk = prototype(call)
        self._thunks.append(thunk)
        return thunk


def _not_supported(*_arguments: Any) -> None:
    raise QnnError(Error.COMMON_ERROR_NOT_SUPPORTED)
