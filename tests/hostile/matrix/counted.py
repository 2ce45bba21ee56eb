"""Plugin of pytest for a row: the descriptors that pytest has at its end only, and its memory.

``-p counted``, with ``COUNTED`` naming the file to write; it counts at the end of the interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
from pathlib import Path


def descriptors() -> list[str]:
    """What each descriptor of this process leads to, in order."""
    numbers = os.listdir("/proc/self/fd")
    # That of the list itself is gone by now.
    return sorted(
        f"{number} {os.readlink(path)}"
        for number in numbers
        if os.path.islink(path := f"/proc/self/fd/{number}")
    )


def _write(before: list[str], path: str) -> None:
    new = [each for each in descriptors() if each not in before]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Path(path).write_text(json.dumps({"descriptors": new, "peak": peak * 1024}))


atexit.register(_write, descriptors(), os.environ["COUNTED"])
