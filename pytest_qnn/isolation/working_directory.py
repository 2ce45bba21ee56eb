"""The folder that a case runs in: empty before it, gone after it, whatever the case did to it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""For a folder that need not be read."""
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS."""
_UNCHANGEABLE = 0x10 | 0x20
"""FS_IMMUTABLE_FL and FS_APPEND_FL."""


def _unasked() -> bool:
    """Nobody says that it is enough."""
    return False


class WorkingDirectory:
    """A folder below ``root`` that is made when a case needs it and emptied when a case left something."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = root / "case"
        self._numbers = itertools.count()

    def prepare(self) -> Path:
        """The folder, empty; made again where a case removed it or put something else in its place."""
        self.emptied(_unasked)
        return self.path

    def emptied(self, enough: Callable[[], bool]) -> bool:
        """Prepare the folder; whether it was never enough.

        Args:
            enough: asked for each file and folder in it; true: the rest is moved aside, for `close`.
        """
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(self.path.lstat().st_mode) and not os.listdir(self.path):
                return True
        in_time = remove(self.path, enough)
        if not in_time:
            with contextlib.suppress(OSError):
                self.path.rename(self._root / f"left-{next(self._numbers)}")
        self.path.mkdir(parents=True, exist_ok=True)
        return in_time

    def close(self) -> None:
        """Remove the folder and its root."""
        remove(self._root)


def remove(path: Path, enough: Callable[[], bool] = _unasked) -> bool:
    """Remove a file, a link (not what it leads to) or a folder, also one without permissions.

    A folder may be deeper than paths or Python's stack reach, and hold what nobody may change (immutable).

    Args:
        path: what is removed, as far as it can be; it may be missing.
        enough: asked for each file and folder in it; true: the rest is left.

    Returns whether it was never enough.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return True
    with contextlib.suppress(OSError):
        top = os.open(path.parent, _PASSED)
        try:
            return _remove_folder(top, path.name, enough)
        finally:
            os.close(top)
    return True


class _Level(NamedTuple):
    """A folder above the one that is emptied."""

    entered: str
    """The name of the folder in it that leads there."""
    left: list[str]
    """The names of its other folders, which come after that."""
    identity: tuple[int, int]
    """Device and inode, by which it is known again."""


def _remove_folder(top: int, name: str, enough: Callable[[], bool]) -> bool:
    """Remove the folder of that name in ``top``; as `remove`.

    With two descriptors at most, and each folder is entered and left once: what somebody has nested in a
    second takes seconds, and not as many times longer as it is deep.

    Raises:
        OSError: what is in it is moved elsewhere meanwhile.
    """
    here = os.dup(top)
    above: list[_Level] = []
    left = [name]
    try:
        while left or above:
            if enough():
                return False
            if left:
                inner = _entered(left[-1], here)
                if inner is None:
                    _is_removed(os.rmdir, left.pop(), here)
                    continue
                above.append(_Level(left.pop(), left, _identity(here)))
                os.close(here)
                here = inner
                left = _without_files(here, enough)
            else:
                level = above.pop()
                outer = os.open("..", _PASSED, dir_fd=here)
                os.close(here)
                here = outer
                if _identity(here) != level.identity:
                    raise OSError(f"{level.entered!r} was moved")
                _is_removed(os.rmdir, level.entered, here)
                left = level.left
    finally:
        os.close(here)
    return True


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _entered(name: str, folder: int) -> int | None:
    """A descriptor of the folder of that name, in which anything may be done then.

    None: that may not be, or it is of another file system, which somebody has mounted.
    """
    try:
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:
            os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            inner = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return None
    status = os.fstat(inner)
    if status.st_dev != os.fstat(folder).st_dev:
        os.close(inner)
        return None
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(OSError):
            os.fchmod(inner, stat.S_IRWXU)
    return inner


def _without_files(folder: int, enough: Callable[[], bool]) -> list[str]:
    """The names of the folders in a folder, of which all else was removed, as far as it can be."""
    folders: list[str] = []
    files: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    for name in files:
        if enough():
            break
        _is_removed(os.unlink, name, folder)
    return folders


def _is_removed(remove: Callable[..., None], name: str, folder: int) -> bool:
    for _ in range(2):
        with contextlib.suppress(OSError):
            remove(name, dir_fd=folder)
            return True
        _make_mutable(name, folder)
        _make_mutable(".", folder)
    return False


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
