"""A live QNN session for authors' own tests: the steps of a MemoryCase, one at a time."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Final, Literal, NamedTuple, get_args

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
from pytest_qnn.qnn.live import arguments
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
    """A live rpcmem allocation, until it is freed or its session is closed."""

    def __init__(self, session: QnnSession, name: str, pointer: int, size: int) -> None:
        self.name = name
        self.pointer = pointer
        self.size = size
        self._session = session

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The client's view of it: ``size`` elements of uint8, no copy.

        Raises:
            ValueError: it was given back.
        """
        __tracebackhide__ = True
        if self.freed:
            raise ValueError(f"buffer {self.name} was freed already")
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.pointer))

    @property
    def fd(self) -> int:
        """What rpcmem_to_fd gives for the buffer: -1 once it is freed."""
        if self.freed:
            return -1
        state = self._session.state
        known = state.buffers[self.name]
        return known.fd if known.own else state.rpcmem.to_fd(self.pointer)

    @property
    def freed(self) -> bool:
        """It was given back: by `free`, by a step, or with its session."""
        return self._session.closed or not self._session.state.buffers[self.name].live

    def free(self) -> None:
        """rpcmem_free, once. Arrays of it must not be touched afterwards."""
        if not self.freed:
            self._session.do(Free(self.name))


class QnnSession:
    """One open session with a QNN backend, in this process.

    `do` carries out any step of `pytest_qnn.qnn.cases.case` and returns what was seen; the other methods are
    the usual steps with new names and raise `QnnError` where they do not succeed. `case` is everything
    done so far as a MemoryCase.

    When the test or the block that has the session ends, what was made is released. From then on all but
    `case` and `closed` raise ValueError: the backend is never given a handle that was freed so.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._steps: list[AnyStep] = []
        self._numbers = itertools.count()
        self._one_at_a_time = threading.Lock()
        self.closed = False
        """All that was made is released."""

    @property
    def state(self) -> State:
        """What the runner remembers.

        Raises:
            ValueError: the session is closed.
        """
        __tracebackhide__ = True
        if self.closed:
            raise ValueError(
                "the session is closed: qnn_backend is for one test, one of open_qnn_backend for its block"
            )
        return self._state

    def do(self, step: AnyStep) -> StepSeen:
        """Carry out one step. Steps of several threads are carried out one after the other.

        Executes of one graph use the same Qnn_Tensor_t structures, the client's. Calls of several threads at
        once are a step of their own, `pytest_qnn.memory_steps.Parallel`.

        Raises:
            TypeError: it is none.
            ValueError: the session is closed.
        """
        __tracebackhide__ = True
        arguments.step(step)
        with self._one_at_a_time:
            state = self.state
            self._steps.append(step)
            return carry_out(state, step)

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
            TypeError: the size is no whole number.
            QnnError: there is no such memory.
        """
        __tracebackhide__ = True
        arguments.size(size)
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
            TypeError: the buffer is none, or the shape is no tuple of numbers.
            ValueError: there is no such type of memory or of data, or an offset or a size is given for memory
                that has none.
            QnnError: the backend refuses.
        """
        __tracebackhide__ = True
        kind: MemoryType = memory or ("ion" if offset is None else "custom")
        arguments.one_of("memory", kind, tuple(_TYPES))
        arguments.one_of("dtype", dtype, get_args(QnnDType))
        shape = arguments.shape(shape)
        if not isinstance(buffer, SharedBuffer):
            raise TypeError(f"a buffer is from shared_buffer or buffer(), and not {buffer!r:.80}")
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
            TypeError: a handle is no name.
            QnnError: the call failed.
        """
        __tracebackhide__ = True
        arguments.handles(handles)
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
            TypeError: the shape is no tuple of numbers.
            ValueError: there is no such operator or type.
            QnnError: a call failed.
        """
        __tracebackhide__ = True
        arguments.one_of("op", op, get_args(QnnOp))
        arguments.one_of("dtype", dtype, get_args(QnnDType))
        shape = arguments.shape(shape)
        name = self._name("g")
        self._succeed("prepare", self.do(Prepare(name, context, op, dtype, shape, mem_types)))
        return name

    def execute(self, graph: str, *bindings: Binding) -> bytes:
        """QnnGraph_execute: the output's bytes, of the graph's shape and dtype.

        ``bindings``: one for each tensor, inputs first; see `Binding`.

        Raises:
            TypeError: a binding is none.
            QnnError: the call failed, or a graph or a handle was never made.
        """
        __tracebackhide__ = True
        arguments.bindings(bindings)
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
        return LoadedContext(self, name, info)

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
            session = QnnSession(state)
            try:
                yield session
            finally:
                session.closed = True
        finally:
            release(state)
