"""Where figures were measured, and how fast it was: ``python -m benchmarks.machine``.

``python -m benchmarks.machine --parts`` prints of how many parts of the full tests one fits into the 15
minutes of ``.ci/run`` here.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

_PACKAGES = (
    "pytest-qnn",
    "pytest",
    "hypothesis",
    "msgspec",
    "numpy",
    "tflite-runtime",
    "ai-edge-litert",
)
_ADDITIONS = 5_000_000
_PARTS = ((0.105, 10), (0.135, 20))
"""Up to so many seconds of the yardstick, one of so many parts. The 15 minutes were set for machines of 0.10
s; that a tenth fits there is estimated, from a run with a twentieth at 0.12 s (docs/how-to/testing.md)."""
_LEAST_PARTS = 30
"""On all slower machines."""


def facts() -> dict[str, str]:
    """Date, processor, load, and the versions of what is measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "niceness": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "yardstick": f"{yardstick():.2f} s of processor time for {_ADDITIONS:,} additions",
        "packages": ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name))),
    }


def _version(package: str) -> str:
    """Empty: it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def yardstick() -> float:
    """Seconds of processor time for a loop that is the same everywhere, the least of three.

    A virtual machine of the same kind took 1.0 to 2.2 times the time of another day.
    """
    return min(_added() for _ in range(3))


def _added() -> float:
    begun = time.process_time()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    return time.process_time() - begun


def parts(seconds: float) -> int:
    """Into how many parts the full tests are divided for ``.ci/run``; ``seconds``: of the yardstick."""
    return next((parts for most, parts in _PARTS if seconds <= most), _LEAST_PARTS)


def main() -> None:
    """Print the facts, or into how many parts the full tests are divided here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine")
    parser.add_argument("--parts", action="store_true", help="of how many parts .ci/run runs one")
    if parser.parse_args().parts:
        print(parts(yardstick()))
    else:
        print("\n".join(f"{name}: {value}" for name, value in facts().items()))


if __name__ == "__main__":
    main()
