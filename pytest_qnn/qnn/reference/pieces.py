"""Contexts out of binaries whose pieces a client provides: QnnContext_createFromBinaryWithCallback.

The header is read from the binary itself; what lies behind it is asked for in two pieces. One personality
keeps them until contextFree, DMA buffers mapped by their descriptors; another gives them back once it has
read all.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import (
    VERSION_1,
    CallbackType,
    ContextBinaryCallback,
    ContextBinaryDmaCallback,
    DataRequest,
    DmaDataMem,
    DmaDataResponse,
    MemDmaBufInfo,
    RawDataMem,
    RawDataResponse,
)
from pytest_qnn.qnn.reference.binaries import HEADER_SIZE
from pytest_qnn.qnn.reference.mapping import Mapping, at
from pytest_qnn.qnn.reference.objects import Context, QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.reference.signals import Signals

_INVALID = Error.CONTEXT_ERROR_INVALID_ARGUMENT
_FAILED = Error.CONTEXT_ERROR_CREATE_FROM_BINARY
_OUT = ctypes.POINTER(ctypes.c_void_p)


@dataclasses.dataclass(eq=False)
class Piece:
    """Memory of the client's with a piece of a binary in it."""

    fd: int
    """-1: raw memory."""
    address: int
    start: int
    size: int
    aligned: int
    mapping: Mapping | None = None

    def read(self) -> bytes:
        """The piece, by the backend's own mapping where there is one."""
        if self.mapping is not None:
            return self.mapping.view(self.start, self.size).tobytes()
        return at(self.address + self.start, self.size).tobytes()


class Provider:
    """The two functions of a Qnn_ContextBinaryCallback_t.

    Raises:
        QnnError: 5000, it is of no type or version that there is, or a function is NULL.
    """

    def __init__(self, callback: int) -> None:
        self.dma = ctypes.c_uint32.from_address(callback).value == CallbackType.DMA_BUFFER
        given: Any = ContextBinaryCallback.from_address(callback)
        body = given.rawBufferCallback
        if self.dma:
            body = ContextBinaryDmaCallback.from_address(callback).dmaBufferCallback
        if given.type not in list(CallbackType) or body.version != VERSION_1:
            raise QnnError(_INVALID)
        if not body.v1.dataProvide or not body.v1.dataRelease:
            raise QnnError(_INVALID)
        self.provide: Any = body.v1.dataProvide
        self.release: Any = body.v1.dataRelease
        self.parameter: int | None = body.v1.notifyParam

    def ask(self, offset: int, size: int, *, mapped: bool) -> Piece | None:
        """The piece, or None where the client has an error instead."""
        response: Any = DmaDataResponse() if self.dma else RawDataResponse()
        request = DataRequest(offset, size, int(mapped))
        if self.provide(request, ctypes.byref(response), self.parameter):
            return None
        fd, address = -1, response.dmaBuffer.data if self.dma else response.memPtr
        if self.dma:
            fd = response.dmaBuffer.fd
        return Piece(fd, address or 0, response.dataStartOffset, size, response.alignedSize)

    def give_back(self, piece: Piece) -> None:
        """Tell the client that a piece may go."""
        if self.dma:
            self.release(DmaDataMem(MemDmaBufInfo(piece.fd, piece.address), piece.aligned), self.parameter)
        else:
            self.release(RawDataMem(piece.address, piece.aligned), self.parameter)


class ProvidedPieces(Signals):
    """QnnContext_createFromBinaryWithCallback, where the personality has it."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.pieces: dict[int, tuple[Provider, list[Piece]]] = {}
        """By context: the pieces of its client, which are given back when the context goes."""

    def context_create_from_binary_with_callback(
        self,
        backend: int | None,
        device: int | None,
        config: int | None,
        callback: int | None,
        buffer: int | None,
        size: int | None,
        out: int | None,
        *others: int | None,
    ) -> None:
        """As contextCreateFromBinaryWithSignal; 5005 where the client fails to provide a piece."""
        if not self.personality.pieces:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if not callback or not buffer or not size or not out:
            raise QnnError(_INVALID)
        provider = Provider(callback)
        pieces: list[Piece] = []
        made = ctypes.cast(out, _OUT)
        try:
            data = ctypes.string_at(buffer, min(size, HEADER_SIZE))
            for offset, length in self.ranges(size):
                data += self.fetch_piece(provider, offset, length, buffer, pieces)
            held = ctypes.create_string_buffer(data, len(data))
            place = (ctypes.addressof(held), len(data), made)
            self.context_create_from_binary_with_signal(backend, device, config, *place, *others)
        except BaseException:
            self.let_go(provider, pieces)
            raise
        self.keep_pieces(made[0] or 0, provider, pieces)

    def ranges(self, size: int) -> list[tuple[int, int]]:
        """Hook: (offset, bytes) of the pieces of a binary of ``size`` bytes that the client is asked for."""
        middle = HEADER_SIZE + (size - HEADER_SIZE) // 2
        spans = ((HEADER_SIZE, middle), (middle, size))
        return [(begin, end - begin) for begin, end in spans if begin < end]

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        """Hook: the bytes of a piece, which is in ``pieces`` from now on. The binary itself is not read."""
        del buffer
        mapped = self.personality.pieces == "kept" and provider.dma
        piece = provider.ask(offset, size, mapped=mapped)
        if piece is None:
            raise QnnError(_FAILED)
        pieces.append(piece)
        if mapped:
            try:
                piece.mapping = Mapping(piece.fd, piece.start + piece.aligned, self.mappings)
            except OSError:
                raise QnnError(_FAILED) from None
        return piece.read()

    def keep_pieces(self, context: int, provider: Provider, pieces: list[Piece]) -> None:
        """Hook: the context is made; what becomes of the pieces."""
        if self.personality.pieces == "kept":
            self.pieces[context] = provider, pieces
        else:
            self.let_go(provider, pieces)

    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        """Hook: tell the client of each piece, that is no longer mapped then."""
        for piece in pieces:
            self.unmap_piece(piece)
            provider.give_back(piece)

    def unmap_piece(self, piece: Piece) -> None:
        """Hook: drop the backend's own mapping."""
        if piece.mapping is not None:
            piece.mapping.release()

    def free_context(self, context: Context) -> None:
        """Hook: the pieces go with the context."""
        super().free_context(context)
        kept = self.pieces.pop(context.handle, None)
        if kept is not None:
            self.let_go(*kept)
