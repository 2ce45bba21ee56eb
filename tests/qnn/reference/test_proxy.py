from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing

import pytest

from pytest_qnn.qnn.abi.codes import Error, Property
from pytest_qnn.qnn.cases.case import (
    Alloc,
    Binding,
    Capability,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.proxy import Proxy
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry, providers
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.trace import MemoryTrace

TENSOR = Descriptor("b", (1, 2, 2, 2))
PREPARED = (ContextCreate("c"), Alloc("b", 8), Register("c", (TENSOR,), ("h",)), Prepare("g", "c"))


@pytest.fixture
def library() -> Iterator[ReferenceBackend]:
    backend = ReferenceBackend(PERSONALITIES["no-memory"])
    yield backend
    assert backend.escaped == []
    assert backend.contexts == {}
    backend.close()


def _run(library: ReferenceBackend, *steps: object) -> MemoryTrace:
    _, found = providers(QnnEntry(library.get_providers))
    proxy = Proxy(found[0].contents)
    rpcmem = EmulatedRpcmem()
    try:
        case = MemoryCase(steps)  # type: ignore[arg-type]  # the steps of each test are of the right types
        trace = run_memory_case(case, QnnEntry(proxy.get_providers, proxy), rpcmem)
    finally:
        proxy.close()
        rpcmem.close()
    assert proxy.escaped == []
    return trace


def test_a_handle_is_computed_by_a_library_without_memory(library: ReferenceBackend) -> None:
    execute = Execute("g", (Binding("handle", "h"), Binding(seed=1), Binding()))
    trace = _run(library, *PREPARED, execute)
    assert [step.code for step in trace.steps if step.code is not None] == [0, 0, 0, 0]
    assert trace.steps[-1].data
    assert library.registrations == {}


def test_the_same_bytes_come_from_a_handle_and_from_raw_memory(library: ReferenceBackend) -> None:
    by_handle = Execute("g", (Binding(seed=3), Binding(seed=4), Binding("handle", "h")))
    raw = Execute("g", (Binding(seed=3), Binding(seed=4), Binding()))
    trace = _run(library, *PREPARED, by_handle, raw)
    assert [step.code for step in trace.steps[-2:]] == [0, 0]
    assert trace.steps[-2].data == trace.steps[-1].data


@pytest.mark.parametrize("handle", ["NULL", "BOGUS", "h"])
def test_a_handle_that_is_none_never_reaches_the_library(library: ReferenceBackend, handle: str) -> None:
    execute = Execute("g", (Binding("handle", handle), Binding(), Binding()))
    trace = _run(library, *PREPARED, Deregister(("h",)), execute)
    assert trace.steps[-1].code == Error.GRAPH_ERROR_INVALID_TENSOR


def test_a_handle_of_another_context_is_refused(library: ReferenceBackend) -> None:
    execute = Execute("g", (Binding("handle", "other"), Binding(), Binding()))
    register = (ContextCreate("d"), Register("d", (TENSOR,), ("other",)))
    trace = _run(library, *PREPARED, *register, execute)
    assert trace.steps[-1].code == Error.GRAPH_ERROR_INVALID_TENSOR


def test_registrations_end_with_their_context(library: ReferenceBackend) -> None:
    trace = _run(library, *PREPARED, ContextFree("c"), Deregister(("h",)))
    assert [step.code for step in trace.steps[-2:]] == [0, Error.MEM_ERROR_INVALID_HANDLE]


def test_only_the_keys_of_memory_are_ours(library: ReferenceBackend) -> None:
    memory, deferred = Property.GROUP_MEMORY, Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT
    trace = _run(library, Capability(int(memory)), Capability(int(deferred)))
    assert [step.code for step in trace.steps] == [0, Error.PROPERTY_NOT_SUPPORTED]


def test_calls_that_would_see_the_proxys_handles_are_not_offered() -> None:
    execute = Execute("g", (Binding("handle", "h"), Binding(), Binding()), asynchronous=1)
    asked = Capability(int(Property.GRAPH_SUPPORT_ASYNC_EXECUTION))
    with closing(ReferenceBackend(PERSONALITIES["asynchronous"])) as library:
        trace = _run(library, *PREPARED, asked, execute)
    unsupported = Error.GRAPH_ERROR_UNSUPPORTED_FEATURE
    assert [step.code for step in trace.steps[-2:]] == [Error.PROPERTY_NOT_SUPPORTED, unsupported]
    assert trace.steps[-1].counts.notified == 0


def test_entries_without_memory_are_the_librarys_own(library: ReferenceBackend) -> None:
    _, found = providers(QnnEntry(library.get_providers))
    _, shown = providers(QnnEntry(Proxy(found[0].contents).get_providers))

    def address(pointer: object) -> int | None:
        return ctypes.cast(pointer, ctypes.c_void_p).value  # type: ignore[arg-type]  # a function pointer

    behind, front = found[0].contents.implementation, shown[0].contents.implementation
    assert address(front.graphFinalize) == address(behind.graphFinalize)
    assert address(front.graphExecute) != address(behind.graphExecute)
