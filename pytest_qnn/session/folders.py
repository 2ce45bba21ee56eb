"""Which findings' folders are named by runs that are still going, so that no other run replaces them."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from pytest_qnn import case_file
from pytest_qnn.report import files

_LOCK = ".lock"
_REPLACE = fcntl.LOCK_EX | fcntl.LOCK_NB
_NAME = fcntl.LOCK_SH | fcntl.LOCK_NB


def choices(name: str) -> Iterator[str]:
    """Names for a finding's folder, in order of preference: ``REG-02``, ``REG-02-2``, ``REG-02-3`` and so on.

    Numbers, so that there are never more folders than there were runs at the same time.
    """
    yield name
    yield from (f"{name}-{number}" for number in count(2))


class Folders:
    """The findings' folders that this process has written or has named.

    For each it holds a lock on one byte of a file that all runs of a project share. A run that finds the lock
    taken keeps its own finding elsewhere; a later run finds it free, and replaces the folder. Locks and not
    files with process ids: the system gives them up with the process, however that ends. A system without
    locks (some network file systems) is as if each run were alone: a folder is whole, and the last one's.

    Folders are named by their paths below ``home``, as text.

    Args:
        home: the folder that they are in. It has to be there.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._held: set[str] = set()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._fd: int | None = os.open(home / _LOCK, flags, 0o666)
        except OSError:
            self._fd = None

    def put(self, name: str, contents: Mapping[str, bytes]) -> bool:
        """Write the folder and hold it; False: another run names it, and its case is not this one.

        Args:
            name: of the folder. Whatever it holds is replaced, unless another run names it.
            contents: bytes of each file by its name, the case file among them.

        Raises:
            OSError: it cannot be written.
        """
        if self._lock(name, _REPLACE):
            files.replace_folder(self._home / name, contents)
            return self.hold(name)
        case = contents[case_file.NAME]
        is_ours = name in self._held
        if self._case(name) != case or not self.hold(name):
            return False
        # It may have been replaced before it was held.
        if self._case(name) == case:
            return True
        if not is_ours:
            self._held.remove(name)
            self._lock(name, fcntl.LOCK_UN)
        return False

    def hold(self, name: str) -> bool:
        """Let no other run replace the folder as long as this process lives; False: one is replacing it."""
        if not self._lock(name, _NAME):
            return False
        self._held.add(name)
        return True

    def close(self) -> None:
        """Hold none any more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _lock(self, name: str, kind: int) -> bool:
        """Change this process' lock on the folder; False: another process has one that excludes it."""
        if self._fd is None:
            return True
        # Two folders that have the same byte are taken for one: the second gets a number.
        byte = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
        try:
            fcntl.lockf(self._fd, kind, 1, byte)
        except BlockingIOError:
            return False
        except OSError:
            return True  # there are no locks here
        return True

    def _case(self, name: str) -> bytes:
        try:
            return case_file.raw(self._home / name)
        except OSError:
            return b""
