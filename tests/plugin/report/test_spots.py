"""Deaths at one instruction of the target's library are one line of a finding, each with its own case."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytest_qnn.core.evidence import Evidence, Frame
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.verdict import Finding, Further, Level, Outcome, Verdict
from pytest_qnn.report import failure, spots

ABORT = (Frame("/lib/libpthread.so.0", 9), Frame("/usr/lib/libc.so.6", 1), Frame("/usr/lib/libc-2.31.so", 2))

SAME = "crash at the same place of the library as the finding"
SUB = "crash: the process died of SIGABRT (in invoke of SUB) (with SUB), case in case-2.json"


def died(
    operators: str, offset: int, *, signal: str = "SIGABRT", file: str = "/home/me/libmine.so"
) -> Finding:
    frames = (*ABORT, Frame(file, offset), Frame("/home/me/libmine.so", 7))
    return Finding(
        expected="a return",
        seen=f"the process died of {signal}",
        where=f"in invoke of {operators}",
        evidence=Evidence(frames=frames),
        fingerprint=Fingerprint(operators=(operators,), signal=signal),
    )


def verdict(*findings: Finding, target: str = "/home/me/libmine.so") -> Verdict:
    further = tuple(Further(Outcome.CRASH, each) for each in findings[1:])
    return Verdict(
        rule="RUN-01", area="RUN", level=Level.MUST, sentence="", source="", subject="delegate",
        self_check=False, target=target, outcome=Outcome.CRASH, examples=1, examined=0, what="", seconds=0.0,
        seed=1, finding=findings[0], further=further,
    )  # fmt: skip


def test_what_dies_where_the_finding_does_is_one_line_with_all_operators_and_cases() -> None:
    found = verdict(*(died(op, 64) for op in ("ADD float32", "SUB float32", "MUL int8")))
    assert failure.further(found) == [
        f"{SAME}, of 3 sets of operators in all: SUB float32 (case-2.json); MUL int8 (case-3.json)"
    ]


def test_what_dies_elsewhere_has_a_line_and_those_that_die_there_too_stand_on_it() -> None:
    found = verdict(died("ADD", 64), died("SUB", 80), died("MUL", 64), died("ABS", 80), died("NEG", 96))
    assert failure.further(found) == [
        f"{SUB}; at the same place of the library also ABS (case-4.json)",
        f"{SAME}, of 2 sets of operators in all: MUL (case-3.json)",
        "crash: the process died of SIGABRT (in invoke of NEG) (with NEG), case in case-5.json",
    ]


def test_a_call_without_operators_is_told_by_its_name() -> None:
    one, other = (
        replace(died("", 64), fingerprint=Fingerprint(call=f"QnnGraph_create {argument}", signal="SIGABRT"))
        for argument in ("graphName", "graphHandle")
    )
    (line,) = failure.further(verdict(one, other))
    assert line.endswith("in all: QnnGraph_create graphHandle (case-2.json)")


def test_another_signal_there_is_another_finding() -> None:
    found = verdict(died("ADD", 64), died("SUB", 64, signal="SIGSEGV"))
    assert len(failure.further(found)) == 1
    assert "SIGSEGV" in failure.further(found)[0]


def test_a_flaky_one_says_so_and_one_of_another_block_names_its_file() -> None:
    found = verdict(died("ADD", 64))
    further = Further(Outcome.CRASH, died("SUB", 64), flaky="failed 1 of 3 runs", file="f/case.json")
    (line,) = failure.further(replace(found, further=(further,)))
    assert line.endswith("SUB (.pytest-qnn/f/case.json, flaky: the case failed 1 of 3 runs)")


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("mutant:aborts-at-rank-3", "/usr/lib/libffi.so.8"),  # whatever is written in Python aborts there
        ("/home/me/libmine.so", "/usr/lib/python3/_pywrap_tensorflow_interpreter_wrapper.so"),
        ("/home/me/libmine.so", ""),
    ],
)
def test_code_of_others_tells_nothing(target: str, file: str) -> None:
    found = verdict(died("ADD", 64, file=file), died("SUB", 64, file=file), target=target)
    assert len(failure.further(found)) == 1
    assert failure.further(found)[0].startswith("crash: the process died of SIGABRT (in invoke of SUB)")


@pytest.mark.parametrize("target", ["xnnpack + /a/libmine.so", "libmine.so", "/a/libmine.so,option:1"])
def test_a_library_is_the_targets_by_its_name_in_the_specification(target: str) -> None:
    assert spots.of(target, Outcome.CRASH, died("ADD", 64)) == (
        Outcome.CRASH,
        "SIGABRT",
        "/home/me/libmine.so",
        64,
    )
