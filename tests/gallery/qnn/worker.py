"""Loads an oddity in the process that carries cases out: this one, or a child."""

from __future__ import annotations

import importlib
from typing import ClassVar

import msgspec

from pytest_qnn.isolation.executor import Executor
from pytest_qnn.qnn.runner.sources import MemorySpec
from pytest_qnn.qnn.runner.worker import MemoryWorker
from pytest_qnn.qnn.target import CODEC, MemoryTarget
from tests.gallery.qnn.oddity import ODDITIES

_MODULES = (
    "backends",
    "binaries",
    "buffers",
    "calls",
    "codes",
    "executes",
    "external",
    "handles",
    "memory",
    "tables",
    "texts",
)
_OURS = "reference:"


class OddSpec(MemorySpec, frozen=True):
    """An oddity by its name, behind the prefix of what is no library."""

    maker: ClassVar[str] = "tests.gallery.qnn.worker"


def load() -> None:
    """Have every oddity in Python entered."""
    for name in _MODULES:
        importlib.import_module(f"tests.gallery.qnn.{name}")


def make(content: bytes) -> MemoryWorker:
    """A worker whose backend is the oddity that an `OddSpec` names."""
    load()
    spec = msgspec.json.decode(content, type=OddSpec)
    worker = MemoryWorker(MemorySpec("reference", spec.rpcmem, spec.refused))
    _, made = ODDITIES[spec.backend.removeprefix(_OURS)]
    source = worker._source
    source._make_backend = made
    source._system = made.system
    return worker


def opened(name: str, timeout: float) -> MemoryTarget:
    """An oddity as a target in this process; cases that end or measure theirs have children."""
    spec = OddSpec(f"{_OURS}{name}", "emulated")
    return MemoryTarget(spec, (), Executor(spec, CODEC, "off", timeout, guards=True))
