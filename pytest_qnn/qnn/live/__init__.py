"""A live QNN session for authors' own tests: the steps of a MemoryCase, one at a time."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.abi.codes import MemType, Property
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    Capability,
    Carry,
    ContextCreate,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    Free,
    GetBinary,
    MemoryCase,
    Prepare,
    QnnDType,
    QnnOp,
    Register,
)
from pytest_qnn.qnn.live.binaries import BinaryInfo, LoadedContext, binary_info, bytes_of
from pytest_qnn.qnn.live.errors import QnnError
from pytest_qnn.qnn.runner.client import QnnClient
from pytest_qnn.qnn.runner.release import release
from pytest_qnn.qnn.runner.run import carry_out
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import StepSeen

__all__ = [
    "Layout",
    "MemoryType",
    "QnnError",
    "QnnSession",
    "SharedBuffer",
    "packed",
    "qnn_session",
]

MemoryType = Literal["ion", "custom", "dma-buf"]
"""Qnn_MemType_t: ION and DMA_BUF memory of one tensor, CUSTOM as the HTP's shared buffer of several."""
_TYPES: Final[dict[MemoryType, MemType]] = {
    "ion": MemType.ION,
    "custom": MemType.CUSTOM,
    "dma-buf": MemType.DMA_BUF,
}
_KEYS: Final[dict[MemoryType, Property]] = {
    "ion": Property.MEMORY_SUPPORT_MEM_TYPE_ION,
    "custom": Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM,
    "dma-buf": Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF,
}


class Layout(NamedTuple):
    """Several tensors in one buffer."""

    offsets: tuple[int, ...]
    """Bytes from the start of the buffer to each tensor."""
    size: int
    """Bytes of the buffer."""


def packed(sizes: Iterable[int], alignment: int = 1) -> Layout:
    """Tensors of these sizes (bytes), one behind the other, each at a multiple of ``alignment`` bytes.

    Raises:
        ValueError: the alignment is below 1.
    """
    if alignment < 1:
        raise ValueError(f"an alignment is 1 byte or more, not {alignment}")
    offsets, end = [], 0
    for size in sizes:
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + size
    return Layout(tuple(offsets), end)


class SharedBuffer:
    """A live rpcmem allocation.

    ``array`` is the client's view of it: ``size`` elements of uint8, no copy.
    """

    def __init__(self, session: QnnSession, name: str, pointer: int, size: int) -> None:
        self.name = name
        self.pointer = pointer
        self.size = size
        memory = (ctypes.c_uint8 * size).from_address(pointer)
        self.array: npt.NDArray[np.uint8] = np.ctypeslib.as_array(memory)
        self._session = session

    @property
    def fd(self) -> int:
        """What rpcmem_to_fd gives for the buffer: -1 once it is freed."""
        known = self._session.state.buffers[self.name]
        if known.own:
            return known.fd if known.live else -1
        return self._session.state.rpcmem.to_fd(self.pointer)

    @property
    def freed(self) -> bool:
        """It was given back."""
        return not self._session.state.buffers[self.name].live

    def free(self) -> None:
        """rpcmem_free. The array must not be touched afterwards."""
        self._session.do(Free(self.name))


class QnnSession:
    """One open session with a QNN backend, in this process.

    `do` carries out any step of `pytest_qnn.qnn.cases.case` and returns what was seen; the other methods are
    the usual steps with new names and raise `QnnError` where they do not succeed. `case` is everything
    done so far as a MemoryCase.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._steps: list[AnyStep] = []
        self._numbers = itertools.count()

    def do(self, step: AnyStep) -> StepSeen:
        """Carry out one step."""
        self._steps.append(step)
        return carry_out(self.state, step)

    @property
    def case(self) -> MemoryCase:
        """The steps so far; buffers' contents written through arrays are not among them."""
        return MemoryCase(tuple(self._steps))

    def buffer(self, size: int, *, heap: int = 25, flags: int = 1, own: bool = False) -> SharedBuffer:
        """rpcmem_alloc of ``size`` bytes.

        Args:
            size: bytes.
            heap: its heap id; the default is RPCMEM_HEAP_ID_SYSTEM.
            flags: the default is RPCMEM_DEFAULT_FLAGS.
            own: not from rpcmem, but the client's own: of the system's DMA heap where there is one, else of a
                memfd.

        Raises:
            QnnError: there is no such memory.
        """
        __tracebackhide__ = True
        name = self._name("b")
        (pointer,) = self.do(Alloc(name, size, own=own, heap=heap, flags=flags)).values
        if not pointer:
            raise QnnError("rpcmem_alloc", None, f"no memory of {size} bytes")
        return SharedBuffer(self, name, pointer, size)

    def memory_types(self) -> tuple[MemoryType, ...]:
        """The types of memory that the backend registers, as its property keys 1101 to 1104 say.

        A backend may say more than it does: libQnnHtp on a host names ION and CUSTOM, and registers nothing.
        """
        if self.do(Capability(Property.GROUP_MEMORY)).code != 0:
            return ()
        return tuple(kind for kind, key in _KEYS.items() if self.do(Capability(key)).code == 0)

    def context(self) -> str:
        """QnnContext_create: the new context's name.

        Raises:
            QnnError: the call failed.
        """
        __tracebackhide__ = True
        name = self._name("c")
        self._succeed("contextCreate", self.do(ContextCreate(name)))
        return name

    def register(
        self,
        context: str | LoadedContext,
        buffer: SharedBuffer,
        shape: tuple[int, ...],
        dtype: QnnDType = "UFIXED_POINT_8",
        offset: int | None = None,
        *,
        memory: MemoryType | None = None,
        size: int | None = None,
        data_type: int | None = None,
    ) -> str:
        """QnnMem_register of one tensor: the new handle's name.

        Args:
            context: its name, or what `load` gave.
            buffer: where the tensor is.
            shape: of the tensor.
            dtype: of the tensor.
            offset: bytes from the start of the buffer to the tensor; of CUSTOM memory only.
            memory: how it is registered. Without: as ION, or with an offset as CUSTOM.
            size: of CUSTOM memory, the size that the descriptor says in bytes; the buffer's own without.
            data_type: Qnn_DataType_t where ``dtype`` has no name for it (`TensorInfo.data_type`).

        Raises:
            ValueError: an offset or a size is given for memory that has none.
            QnnError: the backend refuses.
        """
        __tracebackhide__ = True
        kind: MemoryType = memory or ("ion" if offset is None else "custom")
        if kind not in _TYPES:
            raise ValueError(f"memory is one of {', '.join(_TYPES)}, not {kind!r}")
        if kind != "custom" and (offset or size is not None):
            raise ValueError(f"the descriptor of {kind} memory has neither offset nor size; custom has both")
        name, owner = self._name("h"), context if isinstance(context, str) else context.name
        descriptor = Descriptor(
            buffer.name, shape, dtype, _TYPES[kind], size=size, offset=offset or 0, data_type=data_type
        )
        self._succeed("memRegister", self.do(Register(owner, (descriptor,), (name,))))
        return name

    def deregister(self, *handles: str) -> None:
        """QnnMem_deRegister of handles, by their names, in one call.

        Raises:
            QnnError: the call failed.
        """
        __tracebackhide__ = True
        self._succeed("memDeRegister", self.do(Deregister(handles)))

    def graph(
        self,
        context: str,
        shape: tuple[int, ...],
        op: QnnOp = "ElementWiseAdd",
        dtype: QnnDType = "UFIXED_POINT_8",
        mem_types: tuple[int, ...] = (),
    ) -> str:
        """Compose and finalise a graph of one operator: its name.

        Args:
            context: in which.
            shape: of each input, and of the output (Reshape: the output is flat).
            op: the operator.
            dtype: of every tensor.
            mem_types: Qnn_TensorMemType_t given at preparation, inputs first: 0 RAW, 1 MEMHANDLE; those that
                are missing are RAW.

        Raises:
            QnnError: a call failed.
        """
        __tracebackhide__ = True
        name = self._name("g")
        self._succeed("prepare", self.do(Prepare(name, context, op, dtype, shape, mem_types)))
        return name

    def execute(self, graph: str, *bindings: Binding) -> bytes:
        """QnnGraph_execute: the output's bytes, of the graph's shape and dtype.

        ``bindings``: one for each tensor, inputs first; see `Binding`.

        Raises:
            QnnError: the call failed, or a graph or a handle was never made.
        """
        __tracebackhide__ = True
        seen = self.do(Execute(graph, bindings))
        self._succeed("graphExecute", seen)
        return seen.data[0]

    def save(self, context: str) -> bytes:
        """QnnContext_getBinary: the binary of a context whose graphs are all finalised.

        Raises:
            QnnError: a call failed.
        """
        __tracebackhide__ = True
        seen = self.do(GetBinary(context, self._name("y"), keep=True))
        self._succeed("contextGetBinary", seen)
        return seen.data[0]

    def binary_info(self, binary: bytes | str | PathLike[str]) -> BinaryInfo:
        """What is in a context binary (its bytes, or the path of its file), as libQnnSystem.so says.

        Raises:
            OSError: the file cannot be read.
            QnnError: there is no System interface beside the backend, or it refuses the binary.
        """
        __tracebackhide__ = True
        return binary_info(self.state.client.entry, bytes_of(binary))

    def load(self, binary: bytes | str | PathLike[str], *, defer: bool = False) -> LoadedContext:
        """QnnContext_createFromBinary of a context binary: its bytes, or the path of its file.

        With ``defer`` graphs can be retrieved after a `ContextFinalize`. Executes of its graphs are no steps
        of `case`.

        Raises:
            OSError: the file cannot be read.
            QnnError: a call failed, or there is no System interface beside the backend.
        """
        __tracebackhide__ = True
        data = bytes_of(binary)
        info = binary_info(self.state.client.entry, data)
        name, carried = self._name("c"), self._name("y")
        self.do(Carry(carried, data, ()))
        seen = self.do(ContextFromBinary(name, carried, defer=True if defer else None))
        self._succeed("contextCreateFromBinary", seen)
        return LoadedContext(self.state, name, info)

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def _succeed(self, call: str, seen: StepSeen) -> None:
        __tracebackhide__ = True
        if seen.skipped or seen.code != 0:
            raise QnnError(call, seen.code, seen.skipped)


@contextlib.contextmanager
def qnn_session(backend: str = "reference", rpcmem: str = "emulated") -> Iterator[QnnSession]:
    """Open a session; everything that was made is released at the end, in the order of real clients.

    Raises:
        Unusable: the backend or rpcmem cannot be used.
        QnnError: the session does not open.
    """
    with MemorySource(backend, rpcmem).open() as (entry, memory):
        state = State(QnnClient(entry), memory)
        state.graph_prefix = ""  # a graph has the name that its user gives it
        try:
            if not state.session.open():
                raise QnnError("opening the session", None, state.session.failure)
            yield QnnSession(state)
        finally:
            release(state)
