"""The gallery's delegates as targets, by name and runtime: those in Python here, those in C in children."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pytest_qnn.isolation.executor import Executor
from pytest_qnn.tflite.runner.spec import CODEC
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from tests.gallery.tflite import plugins, worker
from tests.gallery.tflite.odd import MET, ODDITIES

FIRST, SECOND = "tflite_runtime", "ai_edge_litert"
RUNTIMES: Final = (FIRST, SECOND)
_TIMEOUT: Final = 60.0
"""Seconds: others use the machine as well."""


def targets() -> Mapping[str, Callable[[], DelegateTarget]]:
    """Each oddity on the first runtime, then on the second one; its name has the runtime behind a comma."""
    return {
        f"{name}, {runtime}": functools.partial(opened, name, runtime)
        for runtime in RUNTIMES
        for name in (*ODDITIES, *plugins.PLUGINS)
    }


def opened(name: str, runtime: str, sandbox: str = "") -> DelegateTarget:
    """One of them; those in Python are judged as the reference is, those in C as a vendor's library."""
    if name in plugins.PLUGINS:
        return open_delegate_target([(str(plugins.library(name)), {})], runtime, sandbox or "fork", _TIMEOUT)
    spec = worker.OddSpec(((f"{worker.PREFIX}{name}", {}),), runtime)
    executor = Executor(spec, CODEC, "off", _TIMEOUT, guards=sandbox != "off")
    return DelegateTarget(f"{worker.PREFIX}{name}", (f"--tflite-runtime={runtime}",), executor)


def met(name: str) -> int:
    """How often the oddity did what is odd about it: in this process; a library: in children as well."""
    plain = name.partition(",")[0]
    return plugins.met(plain) if plain in plugins.PLUGINS else MET[plain]


FREEDOMS: Final[Mapping[str, tuple[str, str, str]]] = {
    f"{one.name}, {runtime}": (one.freedom, one.source, one.seen)
    for runtime in RUNTIMES
    for one in (*ODDITIES.values(), *plugins.PLUGINS.values())
}
"""By target: what it does, what leaves it that freedom, and what a client sees."""
MEANT: Final[Mapping[str, Collection[str]]] = {
    f"{one.name}, {runtime}": one.meant
    for runtime in RUNTIMES
    for one in (*ODDITIES.values(), *plugins.PLUGINS.values())
}
"""By target: SHOULD rules that find what the oddity means."""
