"""A user's own context binaries: what is in them, and their graphs, retrieved and executed."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.abi.codes import (
    QuantizationEncoding,
    TensorMemType,
    TensorType,
)
from pytest_qnn.qnn.abi.layouts import Tensor
from pytest_qnn.qnn.live.errors import QnnError
from pytest_qnn.qnn.runner.binaries import SystemUnusable, of_binary
from pytest_qnn.qnn.runner.client import array_of, quantise
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.state import State

Array = npt.NDArray[Any]
_KINDS: Final = {0x0: "i", 0x1: "u", 0x2: "f", 0x3: "i", 0x4: "u", 0x5: "?"}
"""High byte of a Qnn_DataType_t -> numpy's kind; fixed-point numbers are the integers that carry them."""
_NEWEST: Final = 3


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """An input or an output of a graph in a binary."""

    name: str
    id: int
    shape: tuple[int, ...]
    data_type: int
    """Qnn_DataType_t."""
    mem_type: int
    """Qnn_TensorMemType_t given at preparation: 0 RAW, 1 MEMHANDLE."""
    encoding: tuple[float, int] | None = None
    """(scale, offset) of a fixed-point tensor: real = (stored + offset) * scale. None: it has another."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of arrays that hold it.

        Raises:
            ValueError: numpy has none (strings, elements of less than a byte).
        """
        kind = _KINDS.get(self.data_type >> 8)
        bits = int(f"{self.data_type & 0xFF:x}")
        if kind is None or bits % 8:
            raise ValueError(
                f"tensor {self.name}: numpy has no type for Qnn_DataType_t {self.data_type:#06x}"
            )
        return np.dtype(kind if kind == "?" else f"{kind}{bits // 8}")

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class GraphInfo:
    """A graph in a binary."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclasses.dataclass(frozen=True)
class BinaryInfo:
    """What QnnSystemContext_getBinaryInfo says of a context binary."""

    backend_id: int
    build_id: str
    core_version: tuple[int, int, int]
    graphs: tuple[GraphInfo, ...]

    def graph(self, name: str = "") -> GraphInfo:
        """The graph of this name; without a name, the only one.

        Raises:
            ValueError: there is none, or not exactly one.
        """
        __tracebackhide__ = True
        found = [graph for graph in self.graphs if name in ("", graph.name)]
        if len(found) != 1:
            names = ", ".join(graph.name for graph in self.graphs) or "none"
            wanted = f"graph {name!r}" if name else "single graph"
            raise ValueError(f"the binary has no {wanted}; its graphs: {names}")
        return found[0]


def bytes_of(binary: bytes | str | PathLike[str]) -> bytes:
    """The binary, or the contents of its file."""
    return binary if isinstance(binary, bytes) else Path(binary).read_bytes()


def binary_info(entry: QnnEntry, binary: bytes) -> BinaryInfo:
    """Ask the System interface beside the backend (libQnnSystem.so).

    Raises:
        QnnError: there is none, it refuses the binary, or describes it in a version other than 3.
    """
    __tracebackhide__ = True
    call = "systemContextGetBinaryInfo"
    try:
        code, found = of_binary(entry, binary, _read)
    except SystemUnusable as error:
        raise QnnError(call, None, str(error)) from None
    if code:
        raise QnnError(call, code)
    if not isinstance(found, BinaryInfo):
        raise QnnError(call, 0, f"version {found} of Qnn's binary info, where {_NEWEST} can be read")
    return found


def _read(info: Any) -> BinaryInfo | int:
    if info.version != _NEWEST:
        return int(info.version)
    content = info.contextBinaryInfoV3
    version = content.coreApiVersion
    return BinaryInfo(
        backend_id=content.backendId,
        build_id=(content.buildId or b"").decode(errors="replace"),
        core_version=(version.major, version.minor, version.patch),
        graphs=tuple(_graph(content.graphs[at].graphInfoV3) for at in range(content.numGraphs)),
    )


def _graph(graph: Any) -> GraphInfo:
    # The first members of a graph's info are the same in each of its versions.
    return GraphInfo(
        (graph.graphName or b"").decode(errors="replace"),
        tuple(_tensor(graph.graphInputs[at].v1) for at in range(graph.numGraphInputs)),
        tuple(_tensor(graph.graphOutputs[at].v1) for at in range(graph.numGraphOutputs)),
    )


def _tensor(v1: Any) -> TensorInfo:
    parameters, encoding = v1.quantizeParams, None
    if parameters.quantizationEncoding == QuantizationEncoding.SCALE_OFFSET:
        encoding = (parameters.scaleOffsetEncoding.scale, parameters.scaleOffsetEncoding.offset)
    return TensorInfo(
        name=(v1.name or b"").decode(errors="replace"),
        id=v1.id,
        shape=tuple(v1.dimensions[at] for at in range(v1.rank)),
        data_type=v1.dataType,
        mem_type=v1.memType,
        encoding=encoding,
    )


class Opened(Protocol):
    """A session: `pytest_qnn.qnn.live.QnnSession`."""

    @property
    def state(self) -> State:
        """Of its case. Raises ValueError when the session is closed."""


class LoadedGraph:
    """A graph of a binary, retrieved in a context."""

    def __init__(self, session: Opened, handle: int, info: GraphInfo) -> None:
        self.info = info
        self._session = session
        self._handle = handle

    def execute(self, *inputs: npt.ArrayLike | str, outputs: Sequence[str | None] = ()) -> tuple[Array, ...]:
        """QnnGraph_execute: the outputs, in the order of `GraphInfo`, as arrays of their shapes and dtypes.

        Args:
            inputs: one for each input: an array, which is passed as raw memory, or the name of a memory
                handle from `QnnSession.register`. Of a fixed-point tensor, the stored integers.
            outputs: for each output the name of a memory handle, or None for raw memory; missing ones are
                None. An output behind a handle is read from the client's buffer.

        Raises:
            ValueError: the numbers of inputs or outputs, a shape or a dtype are not those of the graph, or
                there is no such handle, or the session is closed.
            QnnError: the call failed.
        """
        __tracebackhide__ = True
        info, state = self.info, self._session.state
        if len(inputs) != len(info.inputs):
            raise ValueError(f"graph {info.name} has {len(info.inputs)} inputs, and {len(inputs)} are given")
        if len(outputs) > len(info.outputs):
            raise ValueError(f"graph {info.name} has {len(info.outputs)} outputs, not {len(outputs)}")
        wanted = [*outputs, *[None] * (len(info.outputs) - len(outputs))]
        given = [
            one if isinstance(one, str) else _fitting(tensor, one)
            for tensor, one in zip(info.inputs, inputs, strict=True)
        ]
        taken = [
            one if isinstance(one, str) else np.empty(tensor.shape, tensor.dtype)
            for tensor, one in zip(info.outputs, wanted, strict=True)
        ]
        read = self._bound(info.inputs, given, TensorType.APP_WRITE)
        written = self._bound(info.outputs, taken, TensorType.APP_READ)
        call = (read[0], len(given), written[0], len(taken), state.session.profile, None)
        code = state.client.call("graphExecute", self._handle, *call)
        if code:
            raise QnnError("graphExecute", code)
        return tuple(
            self._read(one, tensor) if isinstance(one, str) else one
            for one, tensor in zip(taken, info.outputs, strict=True)
        )

    def _bound(
        self, infos: Sequence[TensorInfo], memory: Sequence[Array | str], kind: int
    ) -> tuple[Any, Any]:
        """The array of Qnn_Tensor_t of one side, and what it points to."""
        __tracebackhide__ = True
        tensors, kept, state = array_of(Tensor, len(infos))(), [], self._session.state
        for tensor, info, one in zip(tensors, infos, memory, strict=True):
            tensor.version = 1
            v1, name = tensor.v1, info.name.encode()
            dimensions = (ctypes.c_uint32 * len(info.shape))(*info.shape)
            v1.id, v1.name, v1.type, v1.dataType = info.id, name, kind, info.data_type
            v1.rank, v1.dimensions = (
                len(info.shape),
                ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_uint32)),
            )
            quantise(v1.quantizeParams, info.encoding)
            if isinstance(one, str):
                if one not in state.handles:
                    raise ValueError(f"there is no memory handle {one}")
                v1.memType, v1.memHandle = TensorMemType.MEMHANDLE, state.handle_value(one)
            else:
                v1.memType = TensorMemType.RAW
                v1.clientBuf.data, v1.clientBuf.dataSize = one.ctypes.data, one.nbytes
            kept += [name, dimensions]
        return tensors, kept

    def _read(self, handle: str, info: TensorInfo) -> Array:
        """What the client has behind a handle."""
        known = self._session.state.handles[handle]
        if known.buffer is None or not known.buffer.live:
            raise ValueError(f"the buffer behind the memory handle {handle} is freed")
        data = ctypes.string_at(known.buffer.pointer + known.offset, info.nbytes)
        return np.frombuffer(data, info.dtype).reshape(info.shape)


def _fitting(tensor: TensorInfo, value: npt.ArrayLike) -> Array:
    __tracebackhide__ = True
    array = np.ascontiguousarray(value)
    if array.shape != tensor.shape or array.dtype != tensor.dtype:
        raise ValueError(
            f"input {tensor.name} is {tensor.dtype} of shape {tensor.shape}, "
            f"not {array.dtype} of shape {array.shape}"
        )
    return array


class LoadedContext:
    """A context that was created from a binary of the user's. It is freed at the end of the session.

    Attributes:
        name: what `QnnSession.register` and steps call it.
        info: what is in the binary.
    """

    def __init__(self, session: Opened, name: str, info: BinaryInfo) -> None:
        self.name = name
        self.info = info
        self._session = session

    def graph(self, name: str = "") -> LoadedGraph:
        """QnnGraph_retrieve; without a name, the only graph.

        Raises:
            ValueError: the binary has no such graph, or not exactly one, or the session is closed.
            QnnError: the call failed.
        """
        __tracebackhide__ = True
        info, state = self.info.graph(name), self._session.state
        context = state.context_value(self.name)
        code, handle = state.client.create("graphRetrieve", context, info.name.encode())
        if code:
            raise QnnError("graphRetrieve", code)
        return LoadedGraph(self._session, handle, info)
