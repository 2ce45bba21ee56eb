"""What this process has besides its fork servers, which it keeps: processes and descriptors."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pytest_qnn.isolation.start.supervisors import fork_servers


def children() -> list[int]:
    """Child processes, dead ones that nobody has waited for included."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            found.update(map(int, path.read_text().split()))
    return sorted(found - set(fork_servers()))


def descriptors() -> list[str]:
    """Open descriptors, but for the connections of fork servers, which may be made anew at any time.

    Nor that of the listing: it is closed by now, and has another number where one below it was closed.
    """
    own = set(map(str, fork_servers().values()))
    return sorted(each for each in os.listdir("/proc/self/fd") if each not in own and _is_open(each))


def _is_open(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")
