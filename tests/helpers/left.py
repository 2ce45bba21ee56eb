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
    """Open descriptors, that of the listing itself among them."""
    return sorted(set(os.listdir("/proc/self/fd")) - set(map(str, fork_servers().values())))
