"""Mixed numbers as a function of a seed, the same on every machine."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

PIECE = 1 << 14
"""Words that are mixed together: their memory stays in the cache, and comes from the heap. A mebibyte in one
piece takes twice as long, half of it in page faults."""
_RAMP = np.array([1, -2, 3, -4, 5, -6, 7, -8], np.float32)


def hashed(count: int, seed: int) -> npt.NDArray[np.uint32]:
    """``count`` well mixed 32-bit words; different seeds give unrelated words."""
    words = np.arange(count, dtype=np.uint32)
    for begin in range(0, count, PIECE):
        _mix(words[begin : begin + PIECE], seed)
    return words


def hashed_pieces(count: int, seed: int) -> Iterator[npt.NDArray[np.uint32]]:
    """The words of `hashed`, some at a time; each piece is the caller's."""
    for begin in range(0, count, PIECE):
        words = np.arange(begin, min(begin + PIECE, count), dtype=np.uint32)
        _mix(words, seed)
        yield words


def joined(pieces: Iterable[npt.NDArray[Any]], nbytes: int) -> bytes:
    """The bytes of the pieces, one behind the other, which are ``nbytes`` or more; what is more is cut off.

    In the memory of the result, which is touched once. ``b"".join`` has all of the pieces beside it: of a
    mebibyte, most time goes to the page faults of that.
    """
    if nbytes <= PIECE:
        return b"".join(piece.tobytes() for piece in pieces)[:nbytes]
    whole = io.BytesIO()
    whole.seek(nbytes - 1)
    whole.write(b"\0")  # all of the memory at once; `getvalue` hands it out as it is
    whole.seek(0)
    for piece in pieces:
        whole.write(piece.data.cast("B")[: nbytes - whole.tell()])
    return whole.getvalue()


def _mix(words: npt.NDArray[np.uint32], seed: int) -> None:
    """Mix the words, in place."""
    words += np.uint32(seed * 0x9E3779B1 & 0xFFFFFFFF)
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EBCA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2AE35)
    words ^= words >> np.uint32(16)


def ramp(count: int, start: int) -> npt.NDArray[np.float32]:
    """float32 [count]: 1, -2, 3, ..., -8, 1, ... begun at position ``2 * start``."""
    # Not np.resize, which joins as many arrays as there are repetitions: 3.4 ms for a mebibyte, this 0.02 ms.
    return np.tile(np.roll(_RAMP, -2 * start), -(-count // _RAMP.size))[:count]
