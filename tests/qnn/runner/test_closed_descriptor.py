"""A closed descriptor stays closed while the call lasts that is given it. A target may close others."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_qnn.qnn.cases.case import (
    Alloc,
    ContextCreate,
    Descriptor,
    FdKind,
    Free,
    MemoryCase,
    Read,
    Register,
)
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Identity
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.registrations import _odd_fd
from pytest_qnn.qnn.runner.run import run_memory_case


def test_no_descriptor_that_is_opened_meanwhile_gets_its_number() -> None:
    with _odd_fd("closed", 64) as number:
        opened = [os.dup(0) for _ in range(8)]
        try:
            assert number not in opened
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)
        finally:
            for each in opened:
                os.close(each)


class Closing(ReferenceBackend):
    """Each descriptor that it is given is closed, whatever becomes of the registration."""

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        self.given = fd
        return super().examine_fd(fd)

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        try:
            super().mem_register(context, descriptors, count, handles)
        finally:
            os.close(self.given)


@pytest.mark.parametrize("fd", ["buffer", "dup", "pipe", "socket", "directory"])
@pytest.mark.parametrize("own", [False, True])
def test_a_target_that_closes_what_it_is_given_ends_no_run(fd: FdKind, *, own: bool) -> None:
    made = (ContextCreate("c"), Alloc("b", 64, own=own))
    register = Register("c", (Descriptor("b", (64,), fd=fd),), ("h",))
    case = MemoryCase((*made, register, Read("b", "fd"), Free("b")))
    backend = Closing()
    try:
        trace = run_memory_case(case, QnnEntry(backend.get_providers, backend), EmulatedRpcmem())
    finally:
        backend.close()
    *_, read, freed = trace.steps
    assert bool(read.skipped) == (fd == "buffer")
    assert not freed.skipped
