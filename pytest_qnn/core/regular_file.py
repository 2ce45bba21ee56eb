"""Reading a file of unknown kind: only a regular one, never without end, never waiting for somebody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_WITHOUT_WAITING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""How a file of unknown kind is opened: a FIFO may have no writer, and a regular file in /proc no end."""
_PIECE = 1 << 20
"""Bytes that are asked for at once: memory for as many is taken each time."""


def read(path: Path, largest: int, in_folder: str = "") -> bytes:
    """The bytes of a regular file; of one with more than ``largest`` bytes, one byte more than that.

    What is looked at is what was opened, since a path may be another file's a moment later. A link is
    followed: it is as good as what it leads to.

    Args:
        path: of the file, or of the folder that it is in.
        largest: bytes.
        in_folder: the file's name where ``path`` is a folder; empty: a folder is refused.

    Raises:
        OSError: it cannot be read, or not without waiting, or is not a regular file.
        ValueError: the path has a null byte.
    """
    opened = os.open(path, _WITHOUT_WAITING)
    try:
        if in_folder and stat.S_ISDIR(os.fstat(opened).st_mode):
            folder, opened = opened, os.open(in_folder, _WITHOUT_WAITING, dir_fd=opened)
            os.close(folder)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError("it is not a regular file")
        pieces: list[bytes] = []
        left = largest + 1
        while left and (piece := os.read(opened, min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(opened)
