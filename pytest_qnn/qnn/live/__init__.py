"""A live QNN session for authors' own tests: the steps of a MemoryCase, one at a time."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    Deregister,
    Descriptor,
    Execute,
    Free,
    MemoryCase,
    Prepare,
    QnnDType,
    QnnOp,
    Register,
)
from pytest_qnn.qnn.runner.client import QnnClient
from pytest_qnn.qnn.runner.run import carry_out, release
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import StepSeen


class QnnError(Exception):
    """A call that had to succeed did not; ``code`` is its Qnn_ErrorHandle_t."""

    def __init__(self, call: str, code: int | None, why: str = "") -> None:
        super().__init__(f"{call} gave {code}" if not why else f"{call}: {why}")
        self.code = code


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
        return self._session.state.rpcmem.to_fd(self.pointer)

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

    def buffer(self, size: int) -> SharedBuffer:
        """rpcmem_alloc of ``size`` bytes."""
        name = self._name("b")
        (pointer,) = self.do(Alloc(name, size)).values
        if not pointer:
            raise QnnError("rpcmem_alloc", None, f"no memory of {size} bytes")
        return SharedBuffer(self, name, pointer, size)

    def context(self) -> str:
        """QnnContext_create: the new context's name."""
        name = self._name("c")
        self._succeed("contextCreate", self.do(ContextCreate(name)))
        return name

    def register(
        self,
        context: str,
        buffer: SharedBuffer,
        shape: tuple[int, ...],
        dtype: QnnDType = "UFIXED_POINT_8",
        offset: int | None = None,
    ) -> str:
        """QnnMem_register as ION, or with an offset as a part of a shared buffer: the new handle's name."""
        name = self._name("h")
        mem_type, at = (1, 0) if offset is None else (2, offset)
        descriptor = Descriptor(buffer.name, shape, dtype, mem_type, offset=at)
        self._succeed("memRegister", self.do(Register(context, (descriptor,), (name,))))
        return name

    def deregister(self, *handles: str) -> None:
        """QnnMem_deRegister."""
        self._succeed("memDeRegister", self.do(Deregister(handles)))

    def graph(
        self,
        context: str,
        shape: tuple[int, ...],
        op: QnnOp = "ElementWiseAdd",
        dtype: QnnDType = "UFIXED_POINT_8",
        mem_types: tuple[int, ...] = (),
    ) -> str:
        """Compose and finalise a graph of one operator: its name."""
        name = self._name("g")
        self._succeed("prepare", self.do(Prepare(name, context, op, dtype, shape, mem_types)))
        return name

    def execute(self, graph: str, *bindings: Binding) -> bytes:
        """QnnGraph_execute: the output's bytes. Bindings: inputs first; see `Binding`."""
        seen = self.do(Execute(graph, bindings))
        self._succeed("graphExecute", seen)
        return seen.data[0]

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def _succeed(self, call: str, seen: StepSeen) -> None:
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
        try:
            if not state.session.open():
                raise QnnError("opening the session", None, state.session.failure)
            yield QnnSession(state)
        finally:
            release(state)
