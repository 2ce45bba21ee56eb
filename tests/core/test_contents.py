"""The pieces of a buffer's contents in one piece of memory."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_qnn.core.contents import PIECE, hashed, hashed_pieces, joined


@pytest.mark.parametrize(
    "nbytes", [1, 3, 4, 5, PIECE, 4 * PIECE - 1, 4 * PIECE, 4 * PIECE + 1, 10 * PIECE + 7]
)
def test_pieces_are_joined_as_the_words_themselves(nbytes: int) -> None:
    count = (nbytes + 3) // 4
    assert joined(hashed_pieces(count, 5), nbytes) == hashed(count, 5).tobytes()[:nbytes]


def test_pieces_of_any_type_are_joined() -> None:
    pieces = [np.arange(7 * PIECE, dtype=np.float32), np.ones(3, np.float32)]
    assert joined(iter(pieces), 28 * PIECE + 12) == b"".join(piece.tobytes() for piece in pieces)
