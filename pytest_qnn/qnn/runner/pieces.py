"""Steps on contexts whose binary comes piece by piece: the client's two functions, and its account of them.

C callbacks of the module serve every context of the process, and tell them apart by the parameter that comes
back: whenever a target calls one, it is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import mmap
from typing import Any, Final

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.libc import protect
from pytest_qnn.isolation.observe.process import file_of, mappings_of
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import (
    VERSION_1,
    CallbackType,
    ContextBinaryCallback,
    ContextBinaryDmaCallback,
    DataRequest,
    DmaDataMem,
    ProvideDma,
    ProvideRaw,
    RawDataMem,
    ReleaseDma,
    ReleaseRaw,
)
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM
from pytest_qnn.qnn.cases.case import ContextWithCallback, Pieces
from pytest_qnn.qnn.runner.binaries import configuration
from pytest_qnn.qnn.runner.client import UNTOUCHED
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.state import Context, NeverMade, Skip, State
from pytest_qnn.qnn.trace import PieceCounts, StepSeen

_CALL = "contextCreateFromBinaryWithCallback"
_REFUSED, _NO_MEMORY = int(Error.CONTEXT_ERROR_INVALID_ARGUMENT), int(Error.CONTEXT_ERROR_MEM_ALLOC)
_BESIDE = 0xA5
"""What is in a piece's memory before and behind the piece."""
_NO_ACCESS = 0
_MOST = 1 << 28
"""Bytes of all pieces of a context: a target that asks for more is refused."""
_FIRST = 0x0B1E_0000_0000
"""Parameters are numbers from here on: they lead nowhere."""

_numbers: Final = itertools.count(_FIRST)
_accounts: Final[dict[int, Account]] = {}
"""Those of contexts under way, by parameter."""


@dataclasses.dataclass(slots=True)
class Piece:
    """Memory with a piece of a binary in it, as the client gave it."""

    address: int
    fd: int
    length: int
    """Bytes of the memory, whole pages."""
    size: int
    """What the client said of it (alignedSize)."""
    contents: bytes
    file: tuple[int, int] | None
    """(device, inode) behind its descriptor."""
    releases: int = 0
    changed: int = 0
    """Bytes that were not the client's any more when it was given back."""

    def differing(self) -> int:
        """Bytes that are not what the client put there."""
        held = ctypes.string_at(self.address, self.length)
        if held == self.contents:
            return 0
        return sum(one != other for one, other in zip(held, self.contents, strict=True))

    def open_to(self, access: int) -> None:
        """Change what may be done with the memory, unless the target has unmapped it."""
        with contextlib.suppress(OSError):
            protect(self.address, self.length, access)


class Account:
    """What a target asks a client for, and gives back, for one context."""

    def __init__(self, state: State, step: ContextWithCallback, binary: bytes) -> None:
        self.state, self.step, self.binary = state, step, binary
        self.parameter = next(_numbers)
        self.requests: list[tuple[int, int]] = []
        self.pieces: list[Piece] = []
        self.calls: list[tuple[str, int]] = []
        self.wrongly = 0
        self.other_parameter = 0

    def provide(self, offset: int, size: int, *, mapped: bool) -> Piece | int:
        """The client's answer to a request: memory, or an error."""
        self.requests.append((offset, size))
        within = 0 < size <= len(self.binary) and offset <= len(self.binary) - size
        total = sum(piece.length for piece in self.pieces) + size
        found: Piece | int = _REFUSED
        if len(self.requests) == self.step.fails:
            found = _NO_MEMORY
        elif within and total < _MOST:
            found = self._piece(self.binary[offset : offset + size], mapped=mapped)
        self.calls.append(("dataProvide", found if isinstance(found, int) else 0))
        return found

    def _piece(self, data: bytes, *, mapped: bool) -> Piece | int:
        length = -(-(self.step.start + len(data)) // mmap.PAGESIZE) * mmap.PAGESIZE
        address = self.state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, length)
        if not address:
            return _NO_MEMORY
        contents = (bytes([_BESIDE]) * self.step.start + data).ljust(length, bytes([_BESIDE]))
        ctypes.memmove(address, contents, length)
        fd = self.state.rpcmem.to_fd(address)
        shown = fd if mapped and self.step.memory == "dma" else -1
        piece = Piece(address, shown, length, length - self.step.start, contents, file_of(fd))
        self.pieces.append(piece)
        return piece

    def release(self, address: int, fd: int, size: int) -> int:
        """The client's answer where memory is given back: from now on it cannot be touched."""
        found = next((each for each in self.pieces if each.address == address), None)
        code = _REFUSED
        if found is not None:
            code = 0
            # With bytes before the piece, "the size of the buffer" may be with them or without.
            self.wrongly += fd != found.fd or size not in (found.size, found.length)
            found.releases += 1
            if found.releases == 1:
                found.changed = found.differing()
                found.open_to(_NO_ACCESS)
        else:
            self.wrongly += 1
        self.calls.append(("dataRelease", code))
        return code

    def asked(self) -> tuple[int, ...]:
        """Offset and size of each request."""
        return tuple(itertools.chain.from_iterable(self.requests))

    def counts(self) -> PieceCounts:
        """The account as it stands now."""
        back = [piece for piece in self.pieces if piece.releases]
        return PieceCounts(
            binary=len(self.binary),
            given=len(self.pieces),
            released=len(back),
            released_again=sum(piece.releases - 1 for piece in back),
            released_wrongly=self.wrongly,
            other_parameter=self.other_parameter,
            changed=sum(each.changed if each.releases else each.differing() for each in self.pieces),
            # One mapping is the client's own.
            mapped=sum(mappings_of(piece.file) - 1 for piece in back if piece.file is not None),
        )

    def close(self) -> None:
        """Give the memory of all pieces back."""
        for piece in self.pieces:
            piece.open_to(libc.PROT_READ | libc.PROT_WRITE)
            self.state.rpcmem.free(piece.address)
        self.pieces.clear()
        _accounts.pop(self.parameter, None)


@handles(ContextWithCallback)
def create(state: State, step: ContextWithCallback) -> StepSeen:
    """QnnContext_createFromBinaryWithCallback.

    ``values``: the handle, then offset and size of each request, in order; ``calls``: each call of the
    client's functions with its answer, then the call itself.
    """
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    if step.binary not in state.binaries:
        raise NeverMade(f"binary {step.binary} was never made")
    data = state.binaries[step.binary]
    account = Account(state, step, data)
    held = ctypes.create_string_buffer(data, max(1, len(data)))
    callback = _callback(step, account.parameter)
    # What is given may be used until the context is freed; here, to the end of the case.
    config, kept = configuration(step.defer)
    state.held.append((held, callback, kept))
    state.held.append(account)
    _accounts[account.parameter] = account
    out = ctypes.c_void_p(UNTOUCHED)
    place = (ctypes.addressof(callback), ctypes.addressof(held), len(data), ctypes.addressof(out))
    code = state.client.call(_CALL, state.session.backend, state.session.device, config, *place, None, None)
    calls = (*account.calls, (_CALL, code))
    if code == 0:
        graphs = state.written.get(step.binary, {})
        made = Context(out.value or 0, held=held, held_size=len(data), graphs=graphs)
        state.take_context(step.context, made)
    return StepSeen(
        code=code, calls=calls, values=(out.value or 0, *account.asked()), counts=PieceCounts(len(data))
    )


@handles(Pieces)
def pieces(state: State, step: Pieces) -> StepSeen:
    """Nothing is called; ``values``: offset and size of each request so far."""
    mine = [each for each in _all(state) if each.step.context == step.context]
    if not mine:
        raise Skip(f"context {step.context} was not created with a callback")
    return StepSeen(values=mine[-1].asked(), counts=mine[-1].counts())


def release(state: State) -> None:
    """Give back the memory of a case's pieces, once its contexts are freed."""
    for each in _all(state):
        each.close()


def _all(state: State) -> list[Account]:
    return [each for each in state.held if isinstance(each, Account)]


def _callback(step: ContextWithCallback, parameter: int) -> Any:
    made: Any
    if step.memory == "dma":
        made = ContextBinaryDmaCallback(type=CallbackType.DMA_BUFFER)
        body, functions = made.dmaBufferCallback, (_PROVIDE_DMA, _RELEASE_DMA)
    else:
        made = ContextBinaryCallback(type=CallbackType.RAW_BUFFER)
        body, functions = made.rawBufferCallback, (_PROVIDE_RAW, _RELEASE_RAW)
    body.version = VERSION_1
    body.v1.dataProvide, body.v1.dataRelease = functions
    body.v1.notifyParam = parameter
    return made


def _account(parameter: int | None) -> Account | None:
    """The account that a call is about; a parameter that none has is entered in every account."""
    found = _accounts.get(parameter or 0)
    if found is None:
        for each in list(_accounts.values()):
            each.other_parameter += 1
    return found


def _provide(request: DataRequest, parameter: int | None) -> tuple[Account, Piece] | int:
    account = _account(parameter)
    if account is None:
        return _REFUSED
    mapped = bool(request.isBackendMappingNeeded)
    found = account.provide(int(request.offset), int(request.size), mapped=mapped)
    return found if isinstance(found, int) else (account, found)


def _provide_dma(request: DataRequest, response: Any, parameter: int | None) -> int:
    found = _provide(request, parameter)
    if isinstance(found, int):
        return found
    account, piece = found
    response[0].dmaBuffer.fd, response[0].dmaBuffer.data = piece.fd, piece.address
    response[0].dataStartOffset, response[0].alignedSize = account.step.start, piece.size
    return 0


def _provide_raw(request: DataRequest, response: Any, parameter: int | None) -> int:
    found = _provide(request, parameter)
    if isinstance(found, int):
        return found
    account, piece = found
    response[0].memPtr = piece.address
    response[0].dataStartOffset, response[0].alignedSize = account.step.start, piece.size
    return 0


def _release_dma(memory: DmaDataMem, parameter: int | None) -> int:
    account = _account(parameter)
    if account is None:
        return _REFUSED
    return account.release(memory.dmaBuffer.data or 0, memory.dmaBuffer.fd, memory.memSize)


def _release_raw(memory: RawDataMem, parameter: int | None) -> int:
    account = _account(parameter)
    return _REFUSED if account is None else account.release(memory.memPtr or 0, -1, memory.memSize)


_PROVIDE_DMA: Final = ProvideDma(_provide_dma)
_RELEASE_DMA: Final = ReleaseDma(_release_dma)
_PROVIDE_RAW: Final = ProvideRaw(_provide_raw)
_RELEASE_RAW: Final = ReleaseRaw(_release_raw)
