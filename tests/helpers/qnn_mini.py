"""A small ctypes client for tests: it knows nothing of the backend but its getProviders."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

from pytest_qnn.qnn.abi import layouts, table
from pytest_qnn.qnn.abi.codes import DataType, EncodingDefinition, MemType, TensorMemType, TensorType

U8, F32 = DataType.UFIXED_POINT_8, DataType.FLOAT_32
RAW, MEMHANDLE = TensorMemType.RAW, TensorMemType.MEMHANDLE
SENTINEL = 0x5555555555555555


def provider(get_providers: Any) -> Any:
    listed = ctypes.POINTER(table.InterfaceP)()
    count = ctypes.c_uint32()
    assert get_providers(ctypes.byref(listed), ctypes.byref(count)) == 0
    assert count.value == 1
    return listed[0].contents


def dims(shape: tuple[int, ...]) -> Any:
    return (ctypes.c_uint32 * len(shape))(*shape)


def tensor(
    name: str,
    kind: int,
    shape: tuple[int, ...] = (1, 2, 2, 2),
    dtype: int = U8,
    scale: float = 0.1,
    offset: int = 0,
    mem_type: int = RAW,
    version: int = 1,
) -> Any:
    made = layouts.Tensor(version=version)
    inner = made.v1
    inner.name, inner.type, inner.dataType, inner.memType = name.encode(), kind, dtype, mem_type
    inner.quantizeParams.encodingDefinition = EncodingDefinition.UNDEFINED
    inner.quantizeParams.quantizationEncoding = EncodingDefinition.UNDEFINED
    if dtype == U8:
        inner.quantizeParams.encodingDefinition = EncodingDefinition.DEFINED
        inner.quantizeParams.quantizationEncoding = 0
        inner.quantizeParams.scaleOffsetEncoding.scale = scale
        inner.quantizeParams.scaleOffsetEncoding.offset = offset
    inner.rank = len(shape)
    inner.dimensions = dims(shape)
    return made


def array(tensors: list[Any]) -> Any:
    return (layouts.Tensor * len(tensors))(*tensors)


def operation(name: str, inputs: list[Any], outputs: list[Any], package: bytes = b"qti.aisw") -> Any:
    config = layouts.OpConfig(version=1)
    config.v1.name, config.v1.packageName, config.v1.typeName = b"node", package, name.encode()
    config.v1.numOfInputs, config.v1.inputTensors = len(inputs), array(inputs)
    config.v1.numOfOutputs, config.v1.outputTensors = len(outputs), array(outputs)
    return config


class Buffer:
    """Shared memory on a memfd, as an emulated rpcmem gives it."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("rpcmem")
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        self.size = size

    def close(self) -> None:
        self.map.close()
        os.close(self.fd)


def ion(fd: int, shape: tuple[int, ...] = (1, 2, 2, 2), dtype: int = U8) -> Any:
    made = layouts.MemDescriptor(dataType=dtype, memType=MemType.ION)
    made.memShape.numDim, made.memShape.dimSize = len(shape), dims(shape)
    made.ionInfo.fd = fd
    return made


def shared(fd: int, size: int, offset: int, shape: tuple[int, ...] = (1, 2, 2, 2), dtype: int = U8) -> Any:
    made = ion(-1, shape, dtype)
    made.memType = MemType.CUSTOM
    custom = layouts.HtpMemDescriptor(type=1, size=size)
    custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset = fd, offset
    made.customInfo = ctypes.addressof(custom)
    made.keep = custom
    return made


class Client:
    """A session over one provider. Methods return codes; made handles are kept as plain integers."""

    def __init__(self, get_providers: Any) -> None:
        self.interface = provider(get_providers)
        self.api = self.interface.implementation
        self.backend = self.new("backendCreate", None, None)
        self.device = self.new("deviceCreate", None, None)

    def new(self, name: str, *arguments: Any) -> int:
        out = ctypes.c_void_p()
        code = getattr(self.api, name)(*arguments, ctypes.byref(out))
        assert code == 0, (name, code)
        assert out.value
        return out.value

    def context(self) -> int:
        return self.new("contextCreate", self.backend, self.device, None)

    def register(self, context: int | None, descriptors: list[Any]) -> tuple[int, list[int | None]]:
        count = len(descriptors)
        handles = (ctypes.c_void_p * count)(*[SENTINEL] * count)
        given = (layouts.MemDescriptor * count)(*descriptors)
        return self.api.memRegister(context, given, count, handles), list(handles)

    def deregister(self, *handles: int | None) -> int:
        return int(self.api.memDeRegister((ctypes.c_void_p * len(handles))(*handles), len(handles)))

    def graph(
        self,
        context: int,
        operator: str = "ElementWiseAdd",
        tensors: list[Any] | None = None,
        name: str = "g",
        mem_type: int = RAW,
    ) -> tuple[int, list[Any]]:
        """One node, finalised: APP_WRITE tensors are its inputs, the APP_READ tensor its output."""
        handle = self.new("graphCreate", context, name.encode(), None)
        if tensors is None:
            tensors = [tensor(each, TensorType.APP_WRITE, mem_type=mem_type) for each in "ab"]
            tensors.append(tensor("o", TensorType.APP_READ, mem_type=mem_type))
        for each in tensors:
            assert self.api.tensorCreateGraphTensor(handle, ctypes.byref(each)) == 0
        assert self.api.graphAddNode(handle, operation(operator, tensors[:-1], tensors[-1:])) == 0
        assert self.api.graphFinalize(handle, None, None) == 0
        return handle, tensors

    def execute(self, graph: int, tensors: list[Any], memory: list[Any]) -> int:
        """Memory per tensor: a ctypes buffer (raw) or a handle value (memhandle)."""
        given = []
        for each, memo in zip(tensors, memory, strict=True):
            copy = layouts.Tensor.from_buffer_copy(each)
            if memo is None or isinstance(memo, int):
                copy.v1.memType, copy.v1.memHandle = MEMHANDLE, memo
            else:
                copy.v1.memType, copy.v1.clientBuf.data = RAW, ctypes.addressof(memo)
                copy.v1.clientBuf.dataSize = ctypes.sizeof(memo)
            given.append(copy)
        inputs, outputs = array(given[:-1]), array(given[-1:])
        return int(self.api.graphExecute(graph, inputs, len(given) - 1, outputs, 1, None, None))


def raw(data: bytes) -> Any:
    return (ctypes.c_char * len(data)).from_buffer_copy(data)
