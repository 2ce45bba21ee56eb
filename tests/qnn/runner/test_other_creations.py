"""Contexts by other calls than QnnContext_createFromBinary, and binaries prepared with extended udma."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pytest_qnn.qnn.cases.case import (
    AllocNeeded,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    ContextWithCallback,
    Descriptor,
    Execute,
    GetBinary,
    MemoryCase,
    Prepare,
    Register,
    Retrieve,
)
from pytest_qnn.qnn.reference import lists
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Context
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner import asynchronous
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.trace import ListCounts, StepSeen

WAYS = ("signal", "list", "list-config")
SAVED = (ContextCreate("c"), Prepare("g", "c", weights=3), GetBinary("c", "b", keep=True))
RUN = (Retrieve("h", "d", "g"), Execute("h", (Binding(seed=1), Binding())))
GIVEN = (
    ContextProperty("d", (1, 2, 3)),
    AllocNeeded("w", "d", 3),
    Register("d", (Descriptor("w", (), mem_type=2, htp_type=2),), ("k",)),
    ContextFinalize("d"),
)


def run(personality: str, *steps: AnyStep, backend: ReferenceBackend | None = None) -> list[StepSeen]:
    served = backend or ReferenceBackend(PERSONALITIES[personality])
    trace = run_memory_case(MemoryCase(steps), QnnEntry(served.get_providers, served), EmulatedRpcmem())
    served.close()
    assert served.escaped == []
    return list(trace.steps)


@pytest.mark.parametrize("way", WAYS)
def test_a_context_of_another_call_computes(way: Any) -> None:
    made = (ContextFromBinary("d", "b", by=way), *RUN, ContextFree("d"))
    assert [seen.code for seen in run("lists-of-binaries", *SAVED, *made)] == [0] * 7


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("personality", "refused"), [("lists-of-binaries", 0), ("late-limits", 4)])
def test_no_such_context_has_external_memory(way: Any, personality: str, refused: int) -> None:
    """At creation, or by contextFinalize: 1000 either way."""
    steps = (*SAVED, ContextFromBinary("d", "b", True, by=way), *GIVEN)
    codes = [seen.code for seen in run(personality, *steps)[len(SAVED) :]]
    assert codes[refused] == 1000
    assert codes[:refused] == [0, 0, None, 0][:refused]


def test_nor_has_one_whose_binary_comes_in_pieces() -> None:
    made = run("provided-pieces", *SAVED, ContextWithCallback("d", "b", defer=True))[-1]
    assert made.code == 1000


def test_without_lists_the_call_answers_1000() -> None:
    assert run("default", *SAVED, ContextFromBinary("d", "b", by="list"))[-1].code == 1000


class _Silent(ReferenceBackend):
    """Makes the contexts of a list, and tells nobody."""

    def context_create_from_binary_list_async(self, *arguments: Any) -> None:
        del arguments


def test_a_context_of_which_no_notification_comes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "_patience", 0.05)
    *_, made, retrieved = run("", *SAVED, ContextFromBinary("d", "b", by="list"), RUN[0], backend=_Silent())
    assert "no notification" in made.skipped
    assert retrieved.skipped
    assert made.counts == ListCounts(accepted=True, silent=1)


def test_the_notification_comes_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    usual: Callable[..., None] = lists.notify

    def notify(made: Any) -> None:
        seen.append(threading.current_thread() is threading.main_thread())
        usual(made)

    monkeypatch.setattr(lists, "notify", notify)
    assert run("lists-of-binaries", *SAVED, ContextFromBinary("d", "b", by="list"))[-1].code == 0
    assert seen == [False]


def test_each_context_of_a_list_is_notified_of_once_and_those_ahead_are_freed() -> None:
    freed: list[Context] = []

    class Freeing(ReferenceBackend):
        def free_context(self, context: Context) -> None:
            freed.append(context)
            super().free_context(context)

    backend = Freeing(PERSONALITIES["lists-of-binaries"])
    made = ContextFromBinary("d", "b", by="list", ahead=2)
    seen, *rest = run("", *SAVED, made, *RUN, ContextFree("d"), backend=backend)[len(SAVED) :]
    assert (seen.code, seen.counts) == (0, ListCounts(accepted=True, notified=3))
    assert [each.code for each in rest] == [0, 0, 0]
    assert len({each.handle for each in freed}) == len(freed) == 4  # with the first, at the end of the case


def test_of_a_list_that_is_refused_nobody_is_notified() -> None:
    made = ContextFromBinary("d", "b", by="list", ahead=2, damage="garbage")
    seen = run("lists-of-binaries", *SAVED, made)[-1]
    assert seen.code
    assert seen.counts == ListCounts()


@pytest.mark.parametrize(("personality", "another"), [("default", False), ("late-limits", True)])
def test_extended_udma_shows_in_the_binary(personality: str, *, another: bool) -> None:
    far = (ContextCreate("d", beside=(11,)), Prepare("g", "d", weights=3), GetBinary("d", "f", keep=True))
    again = (ContextCreate("e"), Prepare("g", "e", weights=3), GetBinary("e", "h", keep=True))
    seen = run(personality, *SAVED, *far, *again)
    plain, udma, same = (step.data[0] for step in seen if step.data)
    assert plain == same
    assert (udma != plain) is another
