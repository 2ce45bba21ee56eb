"""DOM-01: what it finds, and what it says; native delegates in children."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_qnn import commands
from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Crashed, Examined, Outcome, Unsupported, Violation
from pytest_qnn.mutants import RUNTIMES, table
from pytest_qnn.report import domain
from pytest_qnn.rules import named
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.file import check_case, with_case
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.coverage import rows, state_of
from pytest_qnn.tflite.domain.table import cells_of, made
from pytest_qnn.tflite.runner import domain as runner
from pytest_qnn.tflite.runner.spec import CODEC
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import CellSeen, DomainTrace

ADD = Cell("ADD", "float32", 2)
FEW = Profile("few", in_process_examples=2, isolated_examples=2, repeats=1)
MUTANTS = [mutant.name for mutant in table().values() if "DOM-01" in mutant.kills]


@pytest.fixture(scope="module")
def rule() -> Any:
    return named("DOM-01")


@contextlib.contextmanager
def opened(delegate: str, runtime: str, sandbox: str = "off") -> Iterator[DelegateTarget]:
    with contextlib.closing(open_delegate_target([(delegate, {})], runtime, sandbox, 10.0)) as target:
        yield target


def of_ranks(op: str, *ranks: int) -> DomainCase:
    return DomainCase(tuple(Cell(op, "float32", rank) for rank in ranks))


RANKS_7_AND_8 = ("CONCATENATION", "MEAN", "FULLY_CONNECTED")


def test_xnnpack_of_litert_claims_ranks_7_and_8_and_fails(rule: Any) -> None:
    with opened("xnnpack", "ai_edge_litert", "fork") as target:
        for op in RANKS_7_AND_8:
            found = judge_case(rule, target, of_ranks(op, 6, 7, 8))
            assert isinstance(found, Violation)
            assert found.where == f"{op} float32 rank 7"
            assert "failed to prepare" in found.seen
            assert "rank 7, rank 8" in found.seen
            assert isinstance(judge_case(rule, target, of_ranks(op, 6)), Examined)


def test_xnnpack_of_tflite_runtime_leaves_a_model_of_rank_7_that_works(rule: Any) -> None:
    with opened("xnnpack", "tflite_runtime", "fork") as target:
        for op in RANKS_7_AND_8:
            assert isinstance(judge_case(rule, target, of_ranks(op, 4, 7, 8)), Examined | Unsupported)


def test_a_death_is_its_cells_and_the_others_are_carried_out(rule: Any) -> None:
    case = DomainCase((Cell("ADD", "float32", 6), Cell("ADD", "float32", 7), Cell("ADD", "float32", 8)))
    with opened("mutant:aborts-at-rank-7", RUNTIMES[0], "fork") as target:
        trace = target.run(case)
        assert [seen.outcome for seen in trace.cells] == ["computed", "died", "computed"]
        assert [number for number, _ in trace.deaths] == [1]
        found = judge_case(rule, target, case)
    assert isinstance(found, Crashed)
    assert found.where == "ADD float32 rank 7"
    assert "SIGABRT" in found.seen


SHOWN_BY = {
    "claims-int16": Cell("ADD", "int16", 2),
    "fails-at-rank-8": Cell("ADD", "float32", 8),
    "fails-without-elements": Cell("ADD", "float32", 1, "zero"),
    "first-constant-is-zero": Cell("ADD", "float32", 2, form="constant first"),
    "wrong-for-scalars": Cell("ADD", "float32", 0),
}
"""Of each mutant that runs in this process a cell that shows its fault."""


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_mutant_is_wrong_in_its_cell_and_right_in_another(rule: Any, name: str) -> None:
    with opened(f"mutant:{name}", RUNTIMES[1]) as target:
        found = judge_case(rule, target, DomainCase((ADD, SHOWN_BY[name])))
        assert isinstance(found, Violation)
        assert found.where == str(SHOWN_BY[name])
        assert isinstance(judge_case(rule, target, DomainCase((ADD,))), Examined)


@pytest.mark.parametrize(
    "name",
    [name if name == "fails-at-rank-8" else pytest.param(name, marks=pytest.mark.full) for name in MUTANTS],
)
def test_a_finding_is_judged_again_from_its_file(rule: Any, name: str) -> None:
    """The case file says nothing but cells, and gives the same again."""
    sandbox = "fork" if table()[name].deadly else "off"
    all_operators = Profile("one", in_process_examples=1, isolated_examples=1, repeats=1, whole_lists=True)
    with opened(f"mutant:{name}", RUNTIMES[1], sandbox) as target:
        verdict = judge(rule, target, all_operators, 1)
        assert verdict.outcome in (Outcome.FAIL, Outcome.CRASH)
        assert verdict.finding is not None
        common = {"schema": 2, "rule": "DOM-01", "target": "t", "options": (), "seed": 1}
        content = with_case(verdict.finding.case, {**common, "expected": "", "seen": ""})
        check_case(content.case)
        again = judge_case(rule, target, content.case)
    assert isinstance(again, Violation)
    assert again.where == verdict.finding.where


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_reference_gives_what_is_expected(rule: Any, runtime: str) -> None:
    with opened("reference", runtime) as target:
        verdict = judge(rule, target, FEW, 1)
        assert verdict.outcome is Outcome.PASS
        assert verdict.examined > 90
        found = rows({cell: seen for cell, seen in target._cells.known.items() if cell.op == "ADD"})
    row = next(row for row in found if row.dtype == "float32")
    assert row.ranks == "ccccccccc"
    assert "ADD" in "".join(domain.table(found))
    assert "input domain: 1 operator," in domain.sums(found)


@pytest.mark.full
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_reference_is_right_in_the_whole_domain(rule: Any, runtime: str) -> None:
    whole = Profile("whole", in_process_examples=1, isolated_examples=1, whole_lists=True)
    with opened("reference", runtime) as target:
        assert judge(rule, target, whole, 1).outcome is Outcome.PASS
        found = target.covered(whole=True)
    letters = {letter for row in found for letter in (*row.ranks, *row.special.values())}
    assert letters <= set("clnr-u")


def test_a_result_without_a_second_witness_is_not_judged() -> None:
    (result,) = made(ADD).node.results
    wrong = Array.of(result.values.astype("float32") + 1)
    right = Array.of(result.values.astype("float32"))
    assert state_of(ADD, CellSeen("computed", outputs=(right,)))[0] == "covered"
    assert state_of(ADD, CellSeen("computed", outputs=(wrong,), cpu=(right,)))[0] == "wrong"
    assert state_of(ADD, CellSeen("computed", outputs=(wrong,), cpu=(wrong,)))[0] == "unjudged"
    assert state_of(ADD, CellSeen("computed", "no kernel", (wrong,)))[0] == "unjudged"


def test_what_is_computed_in_float16_has_its_bounds() -> None:
    (result,) = made(ADD).node.results
    rounded = Array.of((result.values * (1 + 2.0**-12)).astype("float32"))
    seen = CellSeen("computed", outputs=(rounded,), cpu=(Array.of(result.values.astype("float32")),))
    assert state_of(ADD, seen)[0] == "wrong"
    assert state_of(ADD, seen, in_half=True)[0] == "covered"


def test_a_delegate_that_claims_nothing_is_not_judged(rule: Any) -> None:
    left = DomainTrace(cells=(CellSeen("left"),))
    with pytest.raises(Unsupported, match="claims no node"):
        rule.check(DomainCase((ADD,)), left)


def test_a_death_without_a_signal_is_told_as_a_hang(rule: Any) -> None:
    death = Death("hang", "no answer within 10 s")
    trace = DomainTrace(cells=(CellSeen("died", death.detail),), deaths=((0, death),))
    with pytest.raises(Violation) as found:
        rule.check(DomainCase((ADD,)), trace)
    assert found.value.outcome is Outcome.HANG


def test_a_cell_that_the_domain_has_not_is_refused() -> None:
    for cell in (Cell("ADD", "float32", 3, form="no such form"), Cell("NO_SUCH", "float32", 1)):
        with pytest.raises(BadCase, match="the domain has no cell"):
            check_case(DomainCase((cell,)))
    check_case(DomainCase(cells_of("CONV_2D")[:9]))


def test_a_case_goes_to_a_child_and_comes_back() -> None:
    case = DomainCase(cells_of("MEAN"))
    assert CODEC.case_of(CODEC.request_of(case)) == case
    assert msgspec.json.decode(msgspec.json.encode(case), type=DomainCase) == case


def test_the_command_prints_the_table_of_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    coverage = [
        {"op": "ADD", "dtype": "int8", "ranks": "clr", "special": {"odd": "w"}, "reasons": {"r: x": 1}}
    ]
    rules = [{"id": "DOM-01", "coverage": coverage}]
    report.write_text(msgspec.json.encode({"targets": [{"spec": "d", "rules": rules}]}).decode())
    assert commands.main(["domain", str(report)]) == 0
    told = capsys.readouterr().out
    assert "ADD" in told
    assert "clr" in told
    assert "odd w" in told
    assert commands.main(["domain", str(report), "--operator", "SUB"]) == 2
    assert commands.main(["domain", str(report.parent / "none.json")]) == 2


def test_the_command_refuses_what_is_no_report_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    row = {"op": "ADD", "dtype": "int8", "ranks": "c", "special": {}, "reasons": {}}
    document = {"targets": [{"spec": "d", "rules": [{"coverage": [row]}]}]}
    report.write_bytes(msgspec.json.encode(document))
    assert commands.main(["domain", str(report)]) == 0
    assert "\ninput domain: 1 operator, 1 cell: 1 covered\n" in capsys.readouterr().out
    assert commands.main(["domain", str(report), "--operator", "SUB"]) == 2
    assert capsys.readouterr().err == f"domain: {str(report)!r} says nothing of an operator 'SUB'\n"
    deep = tmp_path / "deep.json"
    deep.write_text('{"more": ' + "[" * 100_000 + "]" * 100_000 + ', "targets": []}')
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, says in ((deep, "is no report"), (pipe, "it is not a regular file")):
        assert commands.main(["domain", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line


def test_an_allocation_that_a_delegate_could_not_make_is_its_failure(
    rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime's binding makes a MemoryError of std::bad_alloc."""

    def no_memory(*_: Any) -> Any:
        raise MemoryError("std::bad_alloc")

    case = of_ranks("NEG", 2)
    with opened("reference", RUNTIMES[0]) as target:
        assert isinstance(judge_case(rule, target, case), Examined)
        monkeypatch.setattr(runner, "_claimed", no_memory)
        found = judge_case(rule, target, case)
    assert isinstance(found, Violation)
    assert "std::bad_alloc" in found.seen
