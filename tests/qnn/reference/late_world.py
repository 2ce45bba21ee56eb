"""A client of a backend that keeps what it sees, call by call: what late faults are shown with."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from qnn_mini import MEMHANDLE, RAW, Buffer, Client, array, operation, tensor

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import MemType, TensorMemType, TensorType

DEFER = 9
SHAPE = (1, 2, 2, 2)


class World:
    """A backend, an rpcmem and their client. Each call's code and each noted value is in ``seen``."""

    def __init__(self, backend: Any, rpcmem: Any) -> None:
        self.client = Client(backend.get_providers)
        self.get_providers = backend.get_providers
        self.api = self.client.api
        self.rpc = rpcmem
        self.seen: list[Any] = []
        self.made: list[Buffer] = []
        self.kept: list[Any] = []

    def close(self) -> None:
        for buffer in self.made:
            if not buffer.map.closed:
                buffer.close()

    def note(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    def call(self, entry: str, *arguments: Any) -> int:
        return self.note(getattr(self.api, entry)(*arguments))

    def buffer(self, size: int = 4096) -> Buffer:
        self.made.append(Buffer(size))
        return self.made[-1]

    def context(self) -> int:
        return self.client.context()

    def free(self, context: int) -> int:
        return self.call("contextFree", context, None)

    def register(self, context: int | None, *descriptors: Any) -> list[int | None]:
        code, handles = self.client.register(context, list(descriptors))
        self.note(code)
        return handles

    def deregister(self, *handles: int | None) -> int:
        return self.note(self.client.deregister(*handles))

    def compose(
        self, context: int, name: str, nodes: list[tuple[str, list[Any], Any]]
    ) -> tuple[int, list[Any]]:
        """A finalised graph of (operator, inputs, output); its tensors in the order of the nodes."""
        handle = self.client.new("graphCreate", context, name.encode(), None)
        tensors: list[Any] = []
        for _, inputs, output in nodes:
            tensors += [each for each in (*inputs, output) if not any(each is other for other in tensors)]
        for each in tensors:
            assert self.api.tensorCreateGraphTensor(handle, ctypes.byref(each)) == 0
        for operator, inputs, output in nodes:
            assert self.api.graphAddNode(handle, operation(operator, inputs, [output])) == 0
        assert self.api.graphFinalize(handle, None, None) == 0
        return handle, tensors

    def copier(
        self,
        context: int,
        name: str = "g",
        shape: tuple[int, ...] = SHAPE,
        mem_type: int = RAW,
        version: int = 1,
    ) -> tuple[int, list[Any]]:
        """A graph whose output has the bytes of its input."""
        source = tensor("a", TensorType.APP_WRITE, shape, mem_type=mem_type, version=version)
        sink = tensor("o", TensorType.APP_READ, shape, mem_type=mem_type, version=version)
        return self.compose(context, name, [("Relu", [source], sink)])

    def run(self, graph: tuple[int, list[Any]], *memory: Any, profile: Any = None, signal: Any = None) -> int:
        """Execute with memory for each tensor of the graph, the last one its output."""
        handle, tensors = graph
        io = list(zip(tensors, memory, strict=True))
        return self.execute(handle, io[:-1], io[-1:], profile, signal)

    def execute(
        self, graph: int, inputs: list[Any], outputs: list[Any], profile: Any = None, signal: Any = None
    ) -> int:
        """Execute with (tensor, memory): an int or None is a handle, anything else a raw buffer."""
        given = [array([bound(*each) for each in side]) for side in (inputs, outputs)]
        counted = (given[0], len(inputs), given[1], len(outputs))
        return self.call("graphExecute", graph, *counted, profile, signal)

    def binary(self, context: int) -> Any:
        """The context's binary in memory of the client."""
        size, written = ctypes.c_uint64(), ctypes.c_uint64()
        assert self.api.contextGetBinarySize(context, ctypes.byref(size)) == 0
        memory = ctypes.create_string_buffer(size.value)
        place = ctypes.addressof(memory)
        assert self.api.contextGetBinary(context, place, size.value, ctypes.byref(written)) == 0
        return memory

    def load(self, binary: Any, deferred: int | None = None) -> int:
        """A context out of a binary."""
        config = None
        if deferred is not None:
            entry = layouts.ContextConfig(option=DEFER)
            entry.isGraphInitDeferred = deferred
            config = (ctypes.POINTER(layouts.ContextConfig) * 2)(ctypes.pointer(entry))
        out = ctypes.c_void_p()
        place = (ctypes.addressof(binary), len(binary))
        backend, device = self.client.backend, self.client.device
        self.call("contextCreateFromBinary", backend, device, config, *place, ctypes.byref(out), None)
        return out.value or 0

    def retrieve(self, context: int, name: str) -> int | None:
        out = ctypes.c_void_p()
        self.call("graphRetrieve", context, name.encode(), ctypes.byref(out))
        return out.value

    def properties(self, context: int, *options: int, start: int = 0) -> list[int]:
        """The values after one contextGetProperty for all options."""
        customs = [layouts.HtpContextProperty(option=option, value=start) for option in options]
        entries = [
            layouts.ContextProperty(option=0, customProperty=ctypes.addressof(each)) for each in customs
        ]
        listed = (ctypes.c_void_p * (len(entries) + 1))(*map(ctypes.addressof, entries), None)
        self.call("contextGetProperty", context, ctypes.addressof(listed))
        return [each.value for each in customs]


def bound(one: Any, memory: Any) -> Any:
    """A copy of a tensor with its memory."""
    copy = layouts.Tensor.from_buffer_copy(one)
    if memory is None or isinstance(memory, int):
        copy.v1.memType, copy.v1.memHandle = MEMHANDLE, memory
    else:
        copy.v1.memType, copy.v1.clientBuf.data = TensorMemType.RAW, ctypes.addressof(memory)
        copy.v1.clientBuf.dataSize = ctypes.sizeof(memory)
    return copy


def static(name: str, data: bytes, kind: int = TensorType.STATIC) -> Any:
    """A tensor (1, n) with data; the memory is its attribute ``memory``."""
    made = tensor(name, kind, (1, len(data)))
    made.memory = (ctypes.c_char * len(data)).from_buffer_copy(data)
    made.v1.clientBuf.data, made.v1.clientBuf.dataSize = ctypes.addressof(made.memory), len(data)
    return made


def external(fd: int, size: int, role: int, offset: int = 0) -> Any:
    """A descriptor of weights (2) or spill-fill (3) memory."""
    custom = layouts.HtpMemDescriptor(type=role, size=size)
    custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset = fd, offset
    made = layouts.MemDescriptor(memType=MemType.CUSTOM, customInfo=ctypes.addressof(custom))
    made.keep = custom
    return made


def mapped(buffer: Buffer) -> int:
    """Mappings of the buffer's file in this process, the client's own excluded."""
    inode = str(os.fstat(buffer.fd).st_ino)
    with open("/proc/self/maps") as maps:
        return sum(line.split()[4] == inode and "rpcmem" in line for line in maps) - 1


def io_buffers() -> int:
    """Internal IO buffers in this process."""
    with open("/proc/self/maps") as maps:
        return sum("memfd:qnn-io:" in line for line in maps)
