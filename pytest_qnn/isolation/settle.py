"""Make a process cheap to fork: a fork copies, and its end gives back, one entry per page of memory."""

from __future__ import annotations

import gc

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe import private_mappings, resident_bytes

_HUGE = 2 << 20
"""Bytes of a huge page (x86-64, arm64 with pages of 4 KiB)."""


def settle() -> None:
    """Collect garbage for the last time, and gather small pages into huge ones.

    Kernels before Linux 6.1 refuse the second, which costs time and nothing else.
    """
    gc.collect()
    gc.freeze()
    for begin, size in private_mappings(anonymous=True):
        for address in range(-(-begin // _HUGE) * _HUGE, begin + size - _HUGE + 1, _HUGE):
            # Not a library's large table that hardly anybody uses: all of it would become resident.
            if resident_bytes(address, _HUGE) >= _HUGE // 2:
                libc.madvise(address, _HUGE, libc.MADV_COLLAPSE)
