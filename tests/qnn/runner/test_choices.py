from __future__ import annotations

import ctypes
import importlib.util
import json
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from fast_run import later
from reports import judged_by_id

from pytest_qnn.core.target import Death
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, Descriptor, MemoryCase, Register
from pytest_qnn.qnn.facts import Choice, MemoryFacts
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.choices import choices
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.worker import learn
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.report.choices import summary

SUITE = """
from pytest_qnn.plugin import Judge

def test_drg_01(judge: Judge) -> None:
    judge("DRG-01")
"""


WITHOUT_MEMORY = {
    "register",
    "fresh-memory",
    "device-freed-first",
    "backend-freed-first",
    "hinted-raw",
    "native-handle",
    "environment",
    "flipped-bit",
}
"""What a target without QnnMem is asked about."""


def chosen(spec: str) -> dict[str, Choice]:
    with closing(open_memory_target(spec, "emulated", "off", 10.0)) as target:
        return {choice.point: choice for choice in target.choices()}


def test_every_question_is_put_to_the_reference_once() -> None:
    with closing(open_memory_target("reference", "emulated", "off", 10.0)) as target:
        found = target.choices()
    assert len({choice.point for choice in found}) == len(found) >= 25
    assert [choice.point for choice in found if choice.code is None] == ["fresh-memory"]


def test_the_references_choices_are_told() -> None:
    found = chosen("reference")
    assert (found["count-zero-register"].code, found["context-or-array"].code) == (8000, 8000)
    assert found["other-number"].answer == "8002 QNN_MEM_ERROR_ALREADY_REGISTERED"
    assert found["shared-overlap"].answer == "success, a handle of its own"
    assert found["deregister-after-context"].code == 8001
    assert found["weights-late"].code == 1005


def test_a_mutant_that_gives_a_handle_out_again_is_told_apart() -> None:
    assert chosen("mutant:reg-same-again")["other-shape"].answer == "success, the same handle"


def test_where_nothing_can_be_registered_only_graphs_are_asked_about() -> None:
    found = chosen("reference:no-memory")
    assert set(found) == WITHOUT_MEMORY
    assert found["register"].answer == "1000 QNN_COMMON_ERROR_NOT_SUPPORTED"


class Recycled(EmulatedRpcmem):
    """Gives memory as it was left by whoever had it before."""

    def _map(self, fd: int, size: int) -> int:
        pointer = super()._map(fd, size)
        ctypes.memset(pointer, 0xA5, size)
        return pointer


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(EmulatedRpcmem, "reads as zeros"), (Recycled, "holds other bytes than zeros")],
    ids=["zeroed", "recycled"],
)
def test_what_new_memory_holds_is_told(kind: type[EmulatedRpcmem], answer: str) -> None:
    with closing(ReferenceBackend()) as backend, closing(kind()) as rpcmem:
        entry = QnnEntry(backend.get_providers, backend)
        found = choices(learn(entry, rpcmem, "all"), lambda case: run_memory_case(case, entry, rpcmem))
    assert {choice.point: choice.answer for choice in found}["fresh-memory"] == answer


def test_a_question_whose_beginning_fails_is_not_asked() -> None:
    found = chosen("reference:no-binaries")
    assert "weights-late" not in found
    assert chosen("mutant:drg-live-fails")["deregister-after-free"].code == 8001
    refused = chosen("mutant:cap-key-without-call")
    assert set(refused) == WITHOUT_MEMORY | {"finalised-again"}


def test_a_crash_is_an_answer_and_a_hang_is_the_last_question() -> None:
    asked: list[MemoryCase] = []

    def run(case: MemoryCase) -> MemoryTrace:
        asked.append(case)
        kind, detail = ("signal", "SIGSEGV") if len(asked) < 3 else ("hang", "no answer within 1 s")
        return MemoryTrace(death=Death(kind, detail))  # type: ignore[arg-type]  # both are kinds

    facts = MemoryFacts(operators=(("Relu", "FLOAT_32"),))
    found = choices(facts, run)
    assert [choice.answer for choice in found] == ["SIGSEGV", "SIGSEGV", "no answer within 1 s"]
    assert len(asked) == 3
    assert choices(MemoryFacts(deaths=("all: SIGSEGV",)), run) == ()


def test_choices_are_told_on_the_terminal_by_their_answers() -> None:
    asked = (Choice("p", "What then", "success", 0), Choice("q", "And then", "success", 0))
    found = {"choices": [msgspec.to_builtins(choice) for choice in asked]}
    assert summary(found)[1:] == ["  success: p, q"]
    assert summary({}) == []


@pytest.mark.parametrize("workers", [pytest.param((), id="one-process"), later(("-n", "1"), name="xdist")])
def test_the_report_has_them_and_no_verdict_comes_of_them(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_suite=SUITE)
    options = ("--qnn-backend=reference", "--qnn-report=r.json", "--qnn-report=r.html", "--qnn-profile=quick")
    result = pytester.runpytest_subprocess(*options, *workers)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["documents are silent, the target chose:", "  success*: *deregister-after-free*"]
    )
    document = json.loads((pytester.path / "r.json").read_text())
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.validate(document, schema)
    assert len(document["targets"][-1]["choices"]) >= 25
    assert list(judged_by_id(document)) == ["DRG-01"]
    page = (pytester.path / "r.html").read_text()
    question = "A tensor that overlaps a registered one"
    assert f'<th scope="row">{question}</th><td>success, a handle of its own</td>' in page


@pytest.mark.parametrize(
    ("personality", "point", "usual", "other"),
    [
        ("empty-calls", "count-zero-register", 8000, 0),
        ("empty-calls", "count-zero-deregister", 8000, 0),
        ("context-first", "context-or-array", 8000, 8001),
        ("identity-by-number", "other-number", 8002, 0),
        ("device-takes-contexts", "device-freed-first", 14003, 0),
        ("no-overlap", "shared-overlap", 0, 8002),
        ("other-codes", "small-buffer", 8000, 8004),
        ("other-codes", "type-or-fd", 8005, 8000),
        ("other-codes", "short-handle", 6004, 6000),
    ],
)
def test_a_personality_chooses_otherwise(personality: str, point: str, usual: int, other: int) -> None:
    assert chosen("reference")[point].code == usual
    assert chosen(f"reference:{personality}")[point].code == other


@pytest.mark.parametrize(
    ("wrong", "usual", "other"),
    [
        ({"htp_type": 9, "mem_type": 2}, 8005, 8000),
        ({"fd": "minus-one"}, 8003, 8000),
        ({"shape": (2, 0)}, 8004, 8000),
        ({"size": 1 << 20, "mem_type": 2}, 8000, 8003),
    ],
    ids=["htp-type", "fd-minus-one", "bad-shape", "size-too-large"],
)
def test_other_codes_are_given_where_several_are_allowed(
    wrong: dict[str, Any], usual: int, other: int
) -> None:
    descriptor = msgspec.structs.replace(Descriptor("b", (8,)), **wrong)
    steps = (ContextCreate("c"), Alloc("b", 4096), Register("c", (descriptor,), ("h",)))
    seen = []
    for spec in ("reference", "reference:other-codes"):
        with closing(open_memory_target(spec, "emulated", "off", 10.0)) as target:
            seen.append(target.run(MemoryCase(steps)).steps[-1].code)
    assert seen == [usual, other]


def test_what_qualcomms_libraries_choose_is_learned_in_children() -> None:
    wheel = importlib.util.find_spec("onnxruntime_qnn")
    if wheel is None or not wheel.submodule_search_locations:
        pytest.skip("there is no wheel of onnxruntime-qnn for this platform")
    folder = Path(wheel.submodule_search_locations[0])
    found = {}
    for name in ("libQnnHtp.so", "libQnnGpu.so", "libQnnSaver.so"):
        with closing(open_memory_target(str(folder / name), "emulated", "auto", 10.0)) as target:
            found[name] = {choice.point: choice.code for choice in target.choices()}
    htp = found["libQnnHtp.so"]
    assert set(htp) == WITHOUT_MEMORY
    assert (htp["register"], htp["hinted-raw"], htp["native-handle"]) == (1000, 0, 0)
    assert (htp["device-freed-first"], htp["backend-freed-first"]) == (0, 0)
    # It checks its arguments before it has a session: pointers first, and then the context.
    gpu = {"fresh-memory": None, "context-or-array": 8000, "context-or-descriptor": 8001}
    assert found["libQnnGpu.so"] == gpu
    saver = found["libQnnSaver.so"]
    assert (saver["register"], saver["hinted-raw"], saver["native-handle"]) == (1000, None, 6004)
