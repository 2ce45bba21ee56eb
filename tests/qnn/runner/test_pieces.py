from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from case_mutations import refusal
from msgspec.structs import replace

from pytest_qnn import native
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Contradiction, Outcome, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import (
    ContextBinaryCallback,
    ContextBinaryDmaCallback,
    DataRequest,
    DmaDataMem,
    DmaDataResponse,
    RawDataResponse,
)
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    ContextWithCallback,
    Execute,
    GetBinary,
    MemoryCase,
    Pieces,
    Prepare,
    Retrieve,
)
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import PERSONALITIES, Personality
from pytest_qnn.qnn.reference.pieces import Piece, Provider
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.rules.ext.pieces import ext_32
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, PieceCounts, StepSeen
from pytest_qnn.rules import catalogue

RULE = catalogue()["EXT-32"]
KEPT, READ = PERSONALITIES["provided-pieces"], PERSONALITIES["pieces-given-back"]
FACTS = MemoryFacts(
    capabilities=dict.fromkeys((202, 220), 0), operators=(("ElementWiseAdd", "UFIXED_POINT_8"),)
)
SAVED: tuple[AnyStep, ...] = (ContextCreate("c"), Prepare("g", "c", weights=1), GetBinary("c", "f"))
USED: tuple[AnyStep, ...] = (Retrieve("r", "d", "g"), Execute("r", (Binding(seed=1), Binding())))
ENDED: tuple[AnyStep, ...] = (ContextFree("d"), Pieces("d"))
PLAIN: tuple[AnyStep, ...] = (*SAVED, ContextWithCallback("d", "f"), Pieces("d"), *USED, *ENDED)
CREATED, LIVING, GONE = len(SAVED), len(SAVED) + 1, -1


def carry_out(
    *steps: AnyStep, personality: Personality = KEPT, backend: ReferenceBackend | None = None
) -> tuple[MemoryCase, MemoryTrace]:
    case, rpcmem = MemoryCase(steps), EmulatedRpcmem()
    backend = backend or ReferenceBackend(personality)
    try:
        trace = run_memory_case(case, QnnEntry(backend.get_providers, backend), rpcmem)
        assert backend.escaped == []
        return case, MemoryTrace(session=trace.session, steps=trace.steps, facts=FACTS)
    finally:
        backend.close()


def with_answer(at: int, seen: StepSeen, *steps: AnyStep) -> tuple[MemoryCase, MemoryTrace]:
    """The trace of the steps, with another answer to one of them."""
    case, trace = carry_out(*steps)
    changed = [*trace.steps]
    changed[at] = seen
    return case, MemoryTrace(session=trace.session, steps=tuple(changed), facts=FACTS)


def account(**counts: int) -> StepSeen:
    return StepSeen(values=(20, 10), counts=replace(PieceCounts(100, 1, 1), **counts))


@contextmanager
def opened(spec: str, sandbox: Literal["auto", "off"] = "off") -> Iterator[MemoryTarget]:
    target = open_memory_target(spec, "emulated", sandbox, 10.0)
    try:
        yield target
    finally:
        target.close()


def test_the_structs_have_the_sizes_of_the_header() -> None:
    sizes = [ctypes.sizeof(each) for each in (DataRequest, DmaDataResponse, RawDataResponse, DmaDataMem)]
    assert sizes == [24, 32, 24, 24]
    assert ctypes.sizeof(ContextBinaryDmaCallback) == ctypes.sizeof(ContextBinaryCallback) == 40
    assert ContextBinaryDmaCallback.dmaBufferCallback.offset == 8


@pytest.mark.parametrize("personality", [KEPT, READ], ids=lambda each: each.name)
@pytest.mark.parametrize("memory", ["dma", "raw"])
def test_a_context_out_of_pieces_computes_what_is_right(memory: str, personality: Personality) -> None:
    kind = "raw" if memory == "raw" else "dma"
    created = ContextWithCallback("d", "f", kind, start=4096)
    case, trace = carry_out(*SAVED, created, *USED, *ENDED, personality=personality)
    assert [seen.difference for seen in compare(case, trace)] == [""]
    assert trace.steps[CREATED].code == 0
    counts = trace.steps[GONE].counted(PieceCounts)
    assert counts == replace(PieceCounts(given=2, released=2), binary=counts.binary)


def test_pieces_are_kept_until_the_context_is_freed_or_given_back_once_read() -> None:
    for personality, back in ((KEPT, 0), (READ, 2)):
        _, trace = carry_out(*PLAIN, personality=personality)
        assert trace.steps[LIVING].counted(PieceCounts).released == back
        calls = ["dataProvide"] * 2 + ["dataRelease"] * back + ["contextCreateFromBinaryWithCallback"]
        assert [call for call, _ in trace.steps[CREATED].calls] == calls


@pytest.mark.parametrize("fails", [1, 2])
def test_without_a_piece_there_is_no_context_and_the_others_are_given_back(fails: int) -> None:
    steps = (*SAVED, ContextWithCallback("d", "f", fails=fails), Pieces("d"), *USED)
    case, trace = carry_out(*steps)
    created, counts = trace.steps[CREATED], trace.steps[LIVING].counted(PieceCounts)
    assert created.code == Error.CONTEXT_ERROR_CREATE_FROM_BINARY
    assert ("dataProvide", Error.CONTEXT_ERROR_MEM_ALLOC) in created.calls
    assert counts.given == counts.released == fails - 1
    assert "never made" in trace.steps[LIVING + 1].skipped
    assert ext_32(case, trace).count == fails - 1


class Scribbler(ReferenceBackend):
    """Writes to a piece behind its end, and by its own mapping at its start."""

    def keep_pieces(self, context: int, provider: Provider, pieces: list[Piece]) -> None:
        ctypes.memset(pieces[0].address + pieces[0].aligned - 1, 0, 1)
        assert pieces[1].mapping is not None
        pieces[1].mapping.view(0, 2)[:] ^= 1
        super().keep_pieces(context, provider, pieces)


def test_bytes_written_to_pieces_are_counted_before_and_after_they_are_given_back() -> None:
    _, trace = carry_out(*PLAIN, backend=Scribbler(KEPT))
    assert [trace.steps[at].counted(PieceCounts).changed for at in (LIVING, GONE)] == [3, 3]


def test_requests_of_two_contexts_are_told_apart() -> None:
    both = (ContextWithCallback("d", "f"), ContextWithCallback("e", "f", fails=2), Pieces("d"), Pieces("e"))
    _, trace = carry_out(*SAVED, *both)
    assert [seen.counted(PieceCounts).given for seen in trace.steps[-2:]] == [2, 1]
    assert trace.steps[-2].values == trace.steps[-1].values == trace.steps[CREATED].values[1:]


class Counting(EmulatedRpcmem):
    freed = 0

    def free(self, pointer: int) -> None:
        self.freed += 1
        super().free(pointer)


def test_a_case_gives_all_memory_back_that_its_target_kept() -> None:
    backend, rpcmem = ReferenceBackend(KEPT), Counting()
    trace = run_memory_case(MemoryCase(PLAIN[:-2]), QnnEntry(backend.get_providers, backend), rpcmem)
    backend.close()
    assert trace.steps[LIVING].counted(PieceCounts).released == 0
    assert rpcmem.freed == 2


def test_the_reference_refuses_callbacks_that_are_none() -> None:
    for callback in (ContextBinaryDmaCallback(type=3), ContextBinaryDmaCallback(type=2)):
        callback.dmaBufferCallback.version = 1
        with pytest.raises(QnnError, match=str(int(Error.CONTEXT_ERROR_INVALID_ARGUMENT))):
            Provider(ctypes.addressof(callback))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"released": 0}, "given back when there is no context"),
        ({"released_again": 1}, "given back once"),
        ({"released_wrongly": 1}, "as it was given"),
        ({"other_parameter": 1}, "own parameter"),
        ({"changed": 1}, "nobody writes to"),
        ({"mapped": 1}, "no mapping"),
        ({"binary": 29}, "within the binary's 29"),
    ],
)
def test_each_thing_amiss_in_an_account_is_a_violation(counts: dict[str, int], message: str) -> None:
    assert ext_32(*with_answer(GONE, account(), *PLAIN)).count == 3
    with pytest.raises(Violation, match=message):
        ext_32(*with_answer(GONE, account(**counts), *PLAIN))


def test_pieces_may_be_kept_while_the_context_lives() -> None:
    assert ext_32(*with_answer(LIVING, account(released=0), *PLAIN)).count == 3


def test_a_context_in_spite_of_an_error_is_a_violation() -> None:
    created = StepSeen(code=0, values=(5,), calls=(("dataProvide", errno.ENOMEM),), counts=PieceCounts(100))
    with pytest.raises(Violation, match="a refusal, with any code"):
        ext_32(*with_answer(CREATED, created, *PLAIN))


def test_a_refusal_of_dma_buffers_is_a_violation_and_of_raw_memory_is_not() -> None:
    refused = StepSeen(code=5000, values=(5,), counts=PieceCounts(100))
    with pytest.raises(Violation, match="provided every piece"):
        ext_32(*with_answer(CREATED, refused, *PLAIN[:LIVING]))
    raw = (*SAVED, ContextWithCallback("d", "f", "raw"))
    assert ext_32(*with_answer(CREATED, refused, *raw)).count == 0


def test_the_answer_1000_is_unsupported_or_where_the_key_says_otherwise_a_contradiction() -> None:
    case, trace = with_answer(CREATED, StepSeen(code=1000, counts=PieceCounts(100)), *PLAIN[:LIVING])
    with pytest.raises(Contradiction, match="220 says supported"):
        ext_32(case, trace)
    silent = MemoryFacts(capabilities={202: 0, 220: 1000}, operators=FACTS.operators)
    with pytest.raises(Unsupported, match="220 is not supported"):
        ext_32(case, MemoryTrace(session=trace.session, steps=trace.steps, facts=silent))


def test_a_smaller_case_has_no_step_on_a_context_that_it_does_not_make() -> None:
    left = [each.steps for each in smaller_memory(MemoryCase(PLAIN))]
    assert PLAIN[:CREATED] in left
    assert all(Pieces("d") not in steps or ContextWithCallback("d", "f") in steps for steps in left)


@pytest.mark.parametrize("fields", [{"fails": -1}, {"start": 1 << 40}])
def test_numbers_that_make_no_sense_are_refused(fields: dict[str, int]) -> None:
    assert refusal(MemoryCase((*SAVED, ContextWithCallback("d", "f", **fields))))


@pytest.mark.parametrize("personality", ["provided-pieces", "pieces-given-back"])
def test_the_reference_as_a_library_passes_in_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, personality: str
) -> None:
    monkeypatch.setenv("PYTEST_QNN_PERSONALITY", personality)
    with opened(str(native.build(tmp_path).backend), "auto") as target:
        verdict = judge(RULE, target, PROFILES["quick"], seed=1)
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.examined > 0
