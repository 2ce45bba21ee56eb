"""Controls of contents: right on the reference; a fault is first seen in the one that it is of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing

import pytest

from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AllocNeeded,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    GetBinary,
    Lived,
    MemoryCase,
    Prepare,
    Register,
    Retrieve,
    Write,
)
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue

_SHAPE = (1, 2, 2, 2)
_HANDLES = tuple(Binding("handle", f"h{place}") for place in range(3))
_SHARED = tuple(Descriptor("b0", _SHAPE, mem_type=2, offset=64 * place) for place in range(3))
HANDLES = MemoryCase(
    (
        ContextCreate("c0"),
        Lived("turns", "c0", 2),
        Lived("refused", "c0", 2),
        Prepare("g0", "c0", shape=_SHAPE, mem_types=(1, 0, 1)),
        Alloc("b0", 4096),
        Fill("b0"),
        Write("b0", 8),
        Register("c0", _SHARED, ("h0", "h1", "h2")),
        Execute("g0", _HANDLES),
        Execute("g0", (Binding(), Binding(seed=1), Binding())),
        Execute("g0", (_HANDLES[0], Binding(seed=1), Binding())),
        Alloc("b1", 4096),
        Register("c0", (Descriptor("b1", _SHAPE),), ("h3",)),
        Register("c0", (Descriptor("b1", _SHAPE),), ("h4",)),
        Deregister(("h3",)),
        Free("b1"),
    )
)
"""Both types of memory, in one call and in several, hinted, raw between; repeated, refused, deregistered."""
DEFERRED = MemoryCase(
    (
        ContextCreate("c0"),
        Prepare("g0", "c0", shape=(1, 16, 24, 16), weights=3, relay=True),
        GetBinary("c0", "f0"),
        ContextFromBinary("c1", "f0", defer=True),
        ContextProperty("c1", (1, 2, 3)),
        AllocNeeded("b0", "c1", 3),
        Register("c1", (Descriptor("b0", (), mem_type=2, htp_type=2),), ("h0",)),
        ContextFinalize("c1"),
        Retrieve("g1", "c1", "g0"),
        Execute("g1", (Binding(seed=1), Binding())),
    )
)
"""A deferred context with external memory, and a graph of weights and a NATIVE tensor."""


def wrong_in(target: MemoryTarget, case: MemoryCase) -> Iterator[str]:
    """Owners of what is wrong in the controls of the case, in their order."""
    for control in target.controls(case, died=False):
        trace = target.run(control.case)
        for owner in control.owners:
            with contextlib.suppress(Unsupported):
                try:
                    catalogue()[owner].check(control.case, trace)
                except Violation:
                    yield owner


@pytest.mark.parametrize("case", [HANDLES, DEFERRED], ids=["handles", "deferred"])
@pytest.mark.parametrize("backend", ["reference", "reference:no-custom", "reference:no-ion"])
def test_a_conforming_backend_is_right_in_all_of_them(case: MemoryCase, backend: str) -> None:
    with closing(open_memory_target(backend, "emulated", "off", 5.0)) as target:
        assert list(wrong_in(target, case)) == []


@pytest.mark.parametrize(
    ("name", "case", "owner"),
    [
        ("handle-output-off", HANDLES, "EXE-01"),
        ("ion-one-mapping", HANDLES, "ION-03"),
        ("shared-padded-output", HANDLES, "EXE-10"),
        ("input-snapshot", HANDLES, "EXE-19"),
        ("output-late", HANDLES, "EXE-19"),
        ("reg-reversed", HANDLES, "REG-02"),
        ("shared-one-handle", HANDLES, "SHB-07"),
        ("shared-offset-ignored", HANDLES, "SHB-08"),
        ("shared-ascending", HANDLES, "SHB-09"),
        ("shared-unmapped-first", HANDLES, "SHB-13"),
        ("execute-all-or-none", HANDLES, "EXE-02"),
        ("first-mode-only", HANDLES, "QMG-07"),
        ("hinted-rounds-down", HANDLES, "QMG-05"),
        ("drg-unmaps-others", HANDLES, "DRG-11"),
        ("shb-failure-ends-group", HANDLES, "SHB-15"),
        ("reg-ends-first", HANDLES, "REG-21"),
        ("reg-keeps-first", HANDLES, "REG-08"),
        ("reg-by-number", HANDLES, "REG-26"),
        ("raw-copied-once", HANDLES, "QMG-01"),
        ("external-both", DEFERRED, "EXT-12"),
        ("spill-state", DEFERRED, "EXT-26"),
        ("weights-of-first", DEFERRED, "EXT-06"),
    ],
)
def test_a_fault_is_first_seen_in_the_control_that_it_is_of(name: str, case: MemoryCase, owner: str) -> None:
    with closing(open_memory_target(f"mutant:{name}", "emulated", "off", 5.0)) as target:
        assert next(wrong_in(target, case), None) == owner
