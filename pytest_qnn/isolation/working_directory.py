"""The folder that a case runs in: empty before it, gone after it, whatever the case did to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path


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
    """Remove a file, a link (not what it leads to) or a folder, also one without permissions."""
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
    except OSError:
        return
    try:
        shutil.rmtree(path)
    except OSError:
        _make_writable(path)
        shutil.rmtree(path, ignore_errors=True)


def _make_writable(path: Path) -> None:
    """Give the owner every right to a folder and to those in it; links are not followed."""
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IRWXU)
        for parent, names, _ in os.walk(path):
            for inner in (Path(parent, name) for name in names):
                if not inner.is_symlink():  # to be walked next
                    inner.chmod(stat.S_IRWXU)
