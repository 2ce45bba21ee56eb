"""The folder that a case runs in: empty before it, gone after it, whatever the case did to it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS."""
_UNCHANGEABLE = 0x10 | 0x20
"""FS_IMMUTABLE_FL and FS_APPEND_FL."""


class WorkingDirectory:
    """A folder below ``root`` that is made when a case needs it and emptied when a case left something."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = root / "case"

    def prepare(self) -> Path:
        """The folder, empty; made again where a case removed it or put something else in its place."""
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(self.path.lstat().st_mode) and not os.listdir(self.path):
                return self.path
        remove(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def close(self) -> None:
        """Remove the folder and its root."""
        remove(self._root)


def remove(path: Path) -> None:
    """Remove a file, a link (not what it leads to) or a folder, also one without permissions.

    A folder may be deeper than paths or Python's stack reach, and hold what nobody may change (immutable).
    """
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
    except OSError:
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        with contextlib.suppress(OSError):
            _remove_flat(path)


def _remove_flat(path: Path) -> None:
    """Move all that is in folders of the folder up into it, until there is nothing to move, and remove it.

    Raises:
        OSError: it, or something in it, cannot be removed.
    """
    path.chmod(stat.S_IRWXU)
    names = itertools.count()
    top = os.open(path, _FOLDER)
    try:
        while sum(_is_less(top, name, names) for name in os.listdir(top)):
            pass
    finally:
        os.close(top)
    path.rmdir()


def _is_less(top: int, name: str, names: Iterator[int]) -> bool:
    """Remove what has the name in the folder ``top``, or move its contents there; whether either was done."""
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
            return _is_removed(os.unlink, name, top)
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
    except OSError:
        return False
    return _is_removed(os.rmdir, name, top) or _is_emptied(top, name, names)


def _is_removed(remove: Callable[..., None], name: str, top: int) -> bool:
    for _ in range(2):
        with contextlib.suppress(OSError):
            remove(name, dir_fd=top)
            return True
        _make_mutable(name, top)
    return False


def _is_emptied(top: int, name: str, names: Iterator[int]) -> bool:
    """Whether anything in the folder was moved to ``top``."""
    moved = 0
    with contextlib.suppress(OSError):
        folder = os.open(name, _FOLDER, dir_fd=top)
        try:
            for inner in os.listdir(folder):
                with contextlib.suppress(OSError):
                    _make_movable(inner, folder)
                    os.rename(inner, f"pytest-qnn {next(names)}", src_dir_fd=folder, dst_dir_fd=top)
                    moved += 1
        finally:
            os.close(folder)
    return moved > 0


def _make_movable(name: str, folder: int) -> None:
    """A folder is moved by whoever may write to it: its entry ``..`` changes."""
    if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)
    _make_mutable(name, folder)


def _make_mutable(name: str, folder: int) -> None:
    """Take the attributes away that let nobody change a file (chattr(1)), where this process may."""
    with contextlib.suppress(OSError):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            (flags,) = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))
            if flags & _UNCHANGEABLE:
                fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags & ~_UNCHANGEABLE))
        finally:
            os.close(fd)
