"""A loaded QNN backend: a library stays loaded, the reference is made afresh for every case."""

from __future__ import annotations

import contextlib

import msgspec

from pytest_qnn.isolation.worker import ASKED, Depth, OnStep
from pytest_qnn.qnn.cases.case import (
    Alloc,
    Binding,
    ContextCreate,
    Descriptor,
    Execute,
    MemoryCase,
    Observe,
    Prepare,
    Register,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.runner.learn import learn
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.qnn.runner.spec import MemorySpec
from pytest_qnn.qnn.trace import MemoryTrace

_CASE = msgspec.msgpack.Decoder(MemoryCase)
_LEFT: list[contextlib.ExitStack] = []
"""What a case that ends its process leaves open."""
_WARMING = MemoryCase(
    steps=(
        ContextCreate("c"),
        Alloc("b", 8),
        Register("c", (Descriptor("b", (8,)),), ("h",)),
        Prepare("g", "c", shape=(8,)),
        Execute("g", (Binding("handle", "h"), Binding(), Binding())),
        Observe(1 << 16),
    )
)


class MemoryWorker:
    """Carries out memory cases.

    Raises:
        Unusable: the backend or the rpcmem cannot be used.

    """

    def __init__(self, spec: MemorySpec) -> None:
        self._source = MemorySource(spec.backend, spec.rpcmem)

    def facts(self, depth: Depth = "all") -> MemoryFacts:
        """Learn what the backend is; with ``all`` this initialises it."""
        with self._source.open() as (entry, rpcmem):
            return learn(entry, rpcmem, depth)

    def warm(self) -> None:
        """Run our own code once, on the reference, so that a fork finds every cache filled."""
        self.rehearse()

    def rehearse(self) -> None:
        """Carry out a case on the reference."""
        MemoryWorker(MemorySpec("reference", "emulated")).run(_WARMING)

    def run(self, case: MemoryCase, on_step: OnStep | None = None) -> MemoryTrace:
        """Carry out one case."""
        with contextlib.ExitStack() as ending:
            entry, rpcmem = ending.enter_context(self._source.open())
            trace = run_memory_case(case, entry, rpcmem, on_step)
            if case.ends:
                _LEFT.append(ending.pop_all())
        return trace

    def handle(self, request: bytes, on_step: OnStep) -> bytes:
        """Facts or trace as MessagePack."""
        if request in ASKED:
            return msgspec.msgpack.encode(self.facts(ASKED[request]))
        return msgspec.msgpack.encode(self.run(_CASE.decode(request), on_step))


def make(content: bytes) -> MemoryWorker:
    """From a `MemorySpec` as JSON. Raises Unusable."""
    return MemoryWorker(msgspec.json.decode(content, type=MemorySpec))
