"""Contents of QNN buffers: functions of a seed, the same on every machine."""

from __future__ import annotations

import numpy as np

from pytest_qnn.core.contents import hashed_pieces, joined, ramp

_ALL_BYTES = bytes(range(256))


def contents(dtype: str, seed: int, nbytes: int) -> bytes:
    """``nbytes`` bytes for a QNN buffer.

    ``UFIXED_POINT_8``: any bytes (seed 0: 0, 1, 2, ...). ``FLOAT_32``: multiples of 1/8 in [-16, 16), so
    that sums and products of two are exact; a length that is no multiple of four cuts the last one short.

    Raises:
        ValueError: any other dtype.
    """
    if dtype == "UFIXED_POINT_8":
        if seed == 0:
            return (_ALL_BYTES * (nbytes // 256 + 1))[:nbytes]
        return joined(hashed_pieces((nbytes + 3) // 4, seed), nbytes)
    if dtype != "FLOAT_32":
        raise ValueError(f"no contents for dtype {dtype!r}")
    count = (nbytes + 3) // 4
    if seed == 0:
        return ramp(count, 0).tobytes()[:nbytes]
    pieces = hashed_pieces(count, seed)
    eighths = ((words.view(np.int32) >> 24).astype(np.float32) / np.float32(8) for words in pieces)
    return joined(eighths, nbytes)
