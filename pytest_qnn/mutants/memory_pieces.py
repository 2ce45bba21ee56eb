"""Reference backends with one fault each in contexts whose binary comes piece by piece (EXT-32)."""

from __future__ import annotations

import ctypes

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_objects import QnnError
from pytest_qnn.reference.backend_pieces import Piece, Provider
from pytest_qnn.reference.mapping import at
from pytest_qnn.reference.personalities import PERSONALITIES


class _Provided(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["provided-pieces"])


@faulty_backend("pieces-never-released", "Gives no piece back.", "EXT-32")
class _NeverReleases(_Provided):
    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        provider.release = lambda *_: 0
        super().let_go(provider, pieces)


@faulty_backend("pieces-kept-after-failure", "A call that fails gives no piece back.", "EXT-32")
class _KeepsAfterFailure(_Provided):
    """A call that fails forgets what it was given."""

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        try:
            return super().fetch_piece(provider, offset, size, buffer, pieces)
        except QnnError:
            pieces.clear()
            raise


@faulty_backend("pieces-released-twice", "Gives a piece back twice.", "EXT-32")
class _ReleasesTwice(_Provided):
    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        super().let_go(provider, pieces)
        super().let_go(provider, pieces[:1])


@faulty_backend("pieces-beyond-the-end", "Asks for bytes that the binary does not have.", "EXT-32")
class _BeyondTheEnd(_Provided):
    def ranges(self, size: int) -> list[tuple[int, int]]:
        *others, (offset, length) = super().ranges(size)
        return [*others, (offset, length + 1)]


@faulty_backend("pieces-of-no-byte", "Asks for a piece of no byte.", "EXT-32")
class _AsksForNothing(_Provided):
    def ranges(self, size: int) -> list[tuple[int, int]]:
        return [*super().ranges(size), (size, 0)]

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        if size:
            return super().fetch_piece(provider, offset, size, buffer, pieces)
        provider.ask(offset, size, mapped=False)
        return b""


@faulty_backend("pieces-stay-mapped", "Memory that was given back stays mapped.", "EXT-32")
class _KeepsMapping(_Provided):
    def unmap_piece(self, piece: Piece) -> None:
        """Stays mapped until the process ends."""


@faulty_backend("pieces-error-ignored", "Does without a piece that the client has an error for.", "EXT-32")
class _IgnoresErrors(_Provided):
    """What the client does not provide is read from the binary itself."""

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        try:
            return super().fetch_piece(provider, offset, size, buffer, pieces)
        except QnnError:
            return ctypes.string_at(buffer + offset, size)


@faulty_backend("pieces-own-parameter", "Gives pieces back with NULL for a parameter.", "EXT-32")
class _OwnParameter(_Provided):
    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        provider.parameter = None
        super().let_go(provider, pieces)


@faulty_backend("pieces-own-size", "Gives back other sizes than it was given.", "EXT-32")
class _OwnSize(_Provided):
    """Gives back as many bytes as it has asked for, whatever it was given."""

    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        for piece in pieces:
            piece.aligned = piece.size
        super().let_go(provider, pieces)


@faulty_backend("pieces-written", "Writes to pieces.", "EXT-32")
class _Writes(_Provided):
    """Marks a piece as read, in its first byte."""

    def keep_pieces(self, context: int, provider: Provider, pieces: list[Piece]) -> None:
        for piece in pieces:
            at(piece.address + piece.start, 1)[:] ^= 0xFF
        super().keep_pieces(context, provider, pieces)


@faulty_backend("pieces-say-only", "Answers 1000, and property 220 says supported.", "EXT-32")
class _SaysOnly(_Provided):
    def context_create_from_binary_with_callback(self, *arguments: object) -> None:
        del arguments
        raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
