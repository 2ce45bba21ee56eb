"""Where figures were measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
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
