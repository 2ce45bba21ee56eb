"""Reading a file of unknown kind: only a regular one, never without end, never waiting for somebody else."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_WITHOUT_WAITING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""How a file of unknown kind is opened: a FIFO may have no writer, and a regular file in /proc no end."""
_PIECE = 1 << 20
"""Bytes that are asked for at once: memory for as many is taken each time."""


@contextlib.contextmanager
def opened(path: Path, in_folder: str = "") -> Iterator[int]:
    """A descriptor of a regular file, to read from.

    What is looked at is what was opened, since a path may be another file's a moment later. A link is
    followed: it is as good as what it leads to.

    Args:
        path: of the file, or of the folder that it is in.
        in_folder: the file's name where ``path`` is a folder; empty: a folder is refused.

    Raises:
        OSError: it cannot be read, or not without waiting, or is not a regular file.
        ValueError: the path has a null byte.
    """
    fd = os.open(path, _WITHOUT_WAITING)
    try:
        if in_folder and stat.S_ISDIR(os.fstat(fd).st_mode):
            folder, fd = fd, os.open(in_folder, _WITHOUT_WAITING, dir_fd=fd)
            os.close(folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a regular file")
        yield fd
    finally:
        os.close(fd)


def read(path: Path, largest: int, in_folder: str = "") -> bytes:
    """The bytes of a regular file; of one with more than ``largest`` bytes, one byte more than that.

    Args:
        path: as for `opened`, which raises.
        largest: bytes.
        in_folder: as for `opened`.
    """
    with opened(path, in_folder) as fd:
        pieces: list[bytes] = []
        left = largest + 1
        while left and (piece := os.read(fd, min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
