"""What several workers of a run want, and one of them makes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder of this run of pytest, which the first process that wants it has filled. Nobody changes it.

    Args:
        factory: that of the run.
        name: of the folder, another one for each ``make``.
        make: fills a folder, whose name is another one meanwhile. If it raises, the next process tries again.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose own folder lies in that of the run
        root = root.parent
    folder, begun = root / name, root / f"{name}.begun"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir()
            make(begun)
            begun.rename(folder)
    return folder
