"""Findings as C files: built without a warning they show the fault, and accuse no conforming library."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fast_run import first

from benchmarks import reproducers, served
from benchmarks.reproducers.document import GOOD, Shown, document, newest
from pytest_qnn import rules
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Examined, Finding, Outcome, Violation
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.native import NativeReference
from pytest_qnn.qnn import reproduce
from pytest_qnn.qnn.cases.case import (
    NULL,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    Execute,
    Executes,
    Free,
    GetBinary,
    MemoryCase,
    NewProcess,
    Prepare,
    Restart,
    ToFd,
)
from pytest_qnn.qnn.reproduce import copies
from pytest_qnn.qnn.reproduce.observed import Where, observations
from pytest_qnn.qnn.reproduce.text import Names, comment, literal
from pytest_qnn.qnn.runner.client import UNTOUCHED
from pytest_qnn.qnn.trace import AsyncCounts, ExecuteCounts, MemoryTrace, StepSeen
from pytest_qnn.report.explain.stored import example_of
from pytest_qnn.session import reproducers as session_reproducers

NEEDS_CXX = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)")
SAID = reproduce.Finding("REG-02", "Sentence.", "source", "a target", "this", "that", "step 0")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> NativeReference:
    return served.build(tmp_path_factory.mktemp("served"))


def program_of(rule: str) -> tuple[str, str]:
    """The mutant of a stored finding, and its C file."""
    example = example_of(rule, "memory")
    assert example is not None
    file: Any = example.file
    with closing(opened(table()[example.mutant], PLACES["memory"][0])) as target:
        trace = target.run(file.case)
    said = SAID._replace(rule=rule, expected=file.expected, seen=file.seen, where=file.where)
    return example.mutant, reproduce.program(file.case, trace, said)


def built(folder: Path, text: str) -> Path:
    (folder / "reproduce.c").write_text(text)
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-o", "reproduce", "reproduce.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "reproduce"


def run(program: Path, libraries: NativeReference, mutant: str) -> tuple[int, str]:
    """Its exit status, and what it says; run where a case would be, as `benchmarks.reproducers` does."""
    folder = program.parent / f"pytest-qnn-{mutant}" / "case"
    folder.mkdir(parents=True)
    done = subprocess.run(
        [program, libraries.backend, libraries.rpcmem],
        cwd=folder,
        env=served.environment(libraries, mutant),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("EXE-05", "QnnGraph_execute -> 0"),
        ("EXE-01", "of them wrong"),
        pytest.param("REG-28", "grown", marks=pytest.mark.full),
        ("QLEAK-04", "died of signal 11"),
        ("QTHR-01", "a thread ends as backendFree"),
        pytest.param("QLEAK-02", "grows heap is 1: yes", marks=pytest.mark.full),
        pytest.param("OFF-06", "QnnSystemContext_getBinaryInfo -> 0", marks=pytest.mark.full),
        pytest.param("OFF-12", "notified refused is 1: yes", marks=pytest.mark.full),
        pytest.param("QLEAK-05", "left heap is 1: yes", marks=pytest.mark.full),
        pytest.param("QLEAK-06", "left written is 1: yes", marks=pytest.mark.full),
        pytest.param("QMG-12", "copies new is 1: yes", marks=pytest.mark.full),
        pytest.param("EXT-33", "used b0 is 0: yes", marks=pytest.mark.full),
        pytest.param("SSR-02", "step 2: QnnContext_create -> 1002", marks=pytest.mark.full),
        pytest.param(
            "OOM-05", "gives 6003 behind it, with nothing refused: yes", marks=(NEEDS_CXX, pytest.mark.full)
        ),
    ],
    ids=[
        *("code", "contents", "left", "death", "threads", "growth", "system"),
        *("lists", "sessions", "first", "copies", "pages", "killed", "refused"),
    ],
)
def test_a_program_ends_with_1_on_the_mutant_and_with_0_on_the_reference(
    tmp_path: Path, libraries: NativeReference, rule: str, says: str
) -> None:
    mutant, text = program_of(rule)
    demand_shown(tmp_path, libraries, mutant, text, says)


def test_a_program_of_two_processes_ends_with_1_on_the_mutant_and_with_0_on_the_reference(
    tmp_path: Path, libraries: NativeReference
) -> None:
    mutant = "binary-of-process"
    steps = (GetBinary("c0", "f0"), NewProcess(), ContextFromBinary("c1", "f0"))
    case = MemoryCase((ContextCreate("c0"), Prepare("g0", "c0"), *steps))
    with closing(opened(table()[mutant], PLACES["memory"][0])) as target:
        trace = target.run(case)
    with pytest.raises(Violation) as found:
        rules.catalogue()["OFF-03"].check(case, trace)
    told = {"expected": found.value.expected, "seen": found.value.seen, "where": found.value.where}
    text = reproduce.program(case, trace, SAID._replace(rule="OFF-03", **told))
    demand_shown(tmp_path, libraries, mutant, text, "step 4: QnnLog_create -> 0")


def demand_shown(tmp_path: Path, libraries: NativeReference, mutant: str, text: str, says: str) -> None:
    """The program shows the fault on the mutant, and does not accuse the reference."""
    program = built(tmp_path, text)
    status, said = run(program, libraries, mutant)
    assert (status, says in said) == (1, True), said
    assert "\nexpected:  " in said
    status, said = run(program, libraries, "")
    assert status == 0, said
    # What the program was written for, and not what is seen on this library.
    assert "\nseen then: " in said
    assert "\nseen: " not in said


def refused_many_times(mutant: str) -> str:
    """The program of 300 executes with a NULL output, as they went on the mutant."""
    bindings = (Binding(seed=3), Binding(seed=4), Binding("handle", NULL))
    case = MemoryCase((ContextCreate("c0"), Prepare("g0", "c0"), Executes("g0", bindings, 300, refused=True)))
    with closing(opened(table()[mutant], PLACES["memory"][0])) as target:
        trace = target.run(case)
    return reproduce.program(case, trace, SAID._replace(rule="QLEAK-07", where="step 2, 300 rounds"))


def test_of_refused_executes_the_memory_is_filled_once_and_the_call_is_repeated() -> None:
    text = refused_many_times("leak-execute-descriptors")
    body = text[text.index("static void step_2") :]
    before, _, turns = body.partition("for (int turn = 0; turn < 320;")
    assert ("fill_bytes(input0, 8, 3u);" in before, "fill_bytes(input1, 8, 4u);" in before) == (True, True)
    loop = turns[: turns.index("is_quiet = 0;")]
    assert loop.count("qnn->graphExecute(") == 1
    assert "fill_bytes" not in loop


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutant", "grows"), [("leak-execute-descriptors", "fds"), ("leak-refused-executes", "heap")]
)
def test_refused_executes_are_shown_by_a_program(
    tmp_path: Path, libraries: NativeReference, mutant: str, grows: str
) -> None:
    program = built(tmp_path, refused_many_times(mutant))
    status, said = run(program, libraries, mutant)
    assert (status, f"grows {grows} is 1: yes" in said) == (1, True), said
    status, said = run(program, libraries, "")
    assert status == 0, said


def test_what_no_program_shows_is_refused_with_the_reason() -> None:
    case = MemoryCase((ContextCreate("c0"), Restart()))
    with pytest.raises(reproduce.NotWritten, match="restart"):
        reproduce.program(case, MemoryTrace(), SAID)
    case = MemoryCase((Alloc("b0", 8), Free("b0")))
    with pytest.raises(reproduce.NotWritten, match="gives the same"):
        reproduce.program(case, MemoryTrace(), SAID)


def measured(*executes: tuple[str, str, int, int]) -> tuple[tuple[AnyStep, ...], MemoryTrace]:
    """Executes of graphs, each with its graph, its kind, and bytes of new and of used pages."""
    large, small = (1, 2, 256, 512), (1, 2, 2, 2)
    steps: list[AnyStep] = [Prepare("large", "c0", shape=large), Prepare("small", "c0", shape=small)]
    seen = [StepSeen(code=0), StepSeen(code=0)]
    for graph, kind, new, used in executes:
        binding = Binding("handle", "h0") if kind == "handle" else Binding()
        steps.append(Execute(graph, (binding,), measured=True))
        seen.append(StepSeen(code=0, counts=ExecuteCounts(new=new, used=used)))
    return tuple(steps), MemoryTrace(steps=tuple(seen))


SMALL = (("small", "raw", 0, 4096), ("small", "handle", 0, 4096))
RAW = (("large", "raw", 1 << 20, 1 << 20), ("large", "raw", 0, 1 << 20))


@pytest.mark.parametrize(
    ("new", "used", "labels"),
    [
        (0, 1 << 20, {"copies:new": 0, "copies:used": 0}),
        ((1 << 17) + 1, 1 << 20, {"copies:new": 1}),
        (0, (1 << 20) + 3 * (1 << 16), {"copies:new": 0, "copies:used": 0}),
        (0, (1 << 20) + 3 * (1 << 16) + 1, {"copies:new": 0, "copies:used": 1}),
    ],
    ids=["none", "new", "little", "used"],
)
def test_an_execute_with_handles_copies_where_it_takes_half_a_tensor_or_uses_three_quarters(
    new: int, used: int, labels: dict[str, int]
) -> None:
    handles = ("large", "handle", new, used)
    steps, trace = measured(*SMALL, *RAW, handles, handles)
    found = {(index, label): value for index, label, value in copies.seen(steps, trace)}
    assert found == {(index, label): value for index in (6, 7) for label, value in labels.items()}
    written = {(index, label) for index, label, _ in copies.expressions(steps, trace, str, str)}
    assert set(found) <= written


def test_what_a_target_says_stays_in_its_comment_and_its_string(tmp_path: Path) -> None:
    evil = 'a */ int x; /* "; system(\\"x\\"); ??/\n#error no\\'
    said = reproduce.Finding(evil, evil, evil, evil, evil, evil, evil)
    case = MemoryCase((Alloc('b0"; */ #error\n', 8),))
    text = reproduce.program(case, MemoryTrace(death=Death("signal", "SIGSEGV", 0)), said)
    built(tmp_path, text)


TAKEN = ("linux", "unix", "div", "signal", "log2", "j0", "y1", "i386", "stdin", "errno", "main", "set")


@pytest.mark.parametrize("name", first(TAKEN, 4))
def test_a_name_that_c_has_for_something_else_is_written_otherwise(tmp_path: Path, name: str) -> None:
    steps = (Alloc(name, 4096), ToFd(name), ContextCreate(f"{name}_t"), ContextFree(f"{name}_t"), Free(name))
    context = (ContextCreate(name), GetBinary(name, f"{name}_b"), ContextFree(name))
    for case in (MemoryCase(steps), MemoryCase(context)):
        text = reproduce.program(
            case, MemoryTrace(death=Death("signal", "SIGSEGV", len(case.steps) - 1)), SAID
        )
        built(tmp_path, text)


@pytest.mark.parametrize("name", ["c0", "of_a_long_name", "size", "written_2", "a.id"])
def test_what_was_not_written_is_told_of_an_object_of_any_name(tmp_path: Path, name: str) -> None:
    """A name with "_long" in it was taken for that of a number."""
    trace = MemoryTrace(steps=(StepSeen(code=0, values=(UNTOUCHED,)),))
    text = reproduce.program(MemoryCase((ContextCreate(name),)), trace, SAID)
    assert "what the call gives was not written" in text
    built(tmp_path, text)


@pytest.mark.parametrize("text", ["*/", "/* ", "\\", "a\nb", "??/", "???/", "?????/", "\x1b[31m", "é"])
def test_a_comment_is_one_line_that_nothing_ends(text: str) -> None:
    made = comment(f"before {text} behind")
    assert made.isprintable()
    assert made.isascii()
    assert not any(part in made for part in ("*/", "/*", "\\", "??"))


def test_names_are_identifiers_and_given_once() -> None:
    names = Names(("taken",))
    assert [names.free(each) for each in ("taken", "int", "0", 'a"b', 'a"b', "")] == [
        *("taken_2", "int_", "n_0", "a_b", "a_b_2", "n_"),
    ]
    assert literal(b'"\\?\n') == '"\\042\\134\\077\\012"'


RESULTS = reproducers.read(Path(reproducers.__file__).with_name("results.jsonl"))
DOCUMENT = Path(__file__).parents[2] / "docs" / "measured" / "reproducers.md"


RIGHT = 438
"""Programs that were right when all were measured last: 98.0 % of 447. 95 % are wanted (issue 16). Of the
others five need a restart of the subsystem, which no call makes."""


def test_no_fewer_programs_were_measured_as_right_than_before_and_none_accuses_a_reference() -> None:
    known = newest(RESULTS)
    listed = [known.get((mutant.name, rule)) for mutant, rule in reproducers.pairs("memory", "0/1", ())]
    measured = [each for each in listed if each is not None]
    assert len(measured) >= 0.95 * len(listed)
    assert sum(each.result == GOOD for each in measured) >= RIGHT
    assert [each for each in known.values() if accuses(each)] == []


def test_the_document_holds_the_results() -> None:
    halves = {half: list(reproducers.pairs(half, "0/1", ())) for half in ("memory", "delegate")}
    assert DOCUMENT.read_text() == document(RESULTS, halves), (
        "run python -m benchmarks.reproducers --results benchmarks/reproducers/results.jsonl "
        "--document docs/measured/reproducers.md"
    )


def accuses(each: Shown) -> bool:
    """The program ends with 1 on a reference."""
    return each.result.endswith("/1") or "accuses" in each.result


@pytest.mark.full
@pytest.mark.parametrize(
    ("mutant", "rule"),
    [("wrong-for-scalars", "DOM-01"), ("keeps-old-shapes", "DYN-02"), ("frees-twice", "BUF-06")],
    ids=["element", "shape", "death"],
)
def test_a_script_ends_with_1_on_the_mutant_and_with_0_on_the_reference(mutant: str, rule: str) -> None:
    (found,) = reproducers.measured([(table()[mutant], rule)])
    assert found.result == GOOD


@pytest.mark.full
@pytest.mark.parametrize("half", ["memory", "delegate"])
@pytest.mark.parametrize("part", range(16))
def test_no_program_accuses_the_reference_and_what_was_right_is_right(half: str, part: int) -> None:
    found = list(reproducers.measured(list(reproducers.pairs(half, f"{part}/16", ()))))
    known = newest(RESULTS)
    assert [each for each in found if accuses(each)] == []
    right = [each for each in found if known.get((each.mutant, each.rule), each).result == GOOD]
    worse = [each for each in right if each.result != GOOD]
    # One finding of a race may not be met again.
    assert len(worse) <= 1, worse
    assert right


def freed(silent: int, *statuses: int) -> dict[Where, Any]:
    """What programs see of an execution in whose queue others wait, and whose context is freed behind it."""
    step = Execute("g", (Binding(), Binding()), asynchronous=3, freed=True)
    calls = (
        *(("graphExecuteAsync", 0) for _ in range(3)),
        *(("notify", status) for status in statuses),
        ("contextFree", 0),
    )
    data = tuple(bytes([status & 0xFF]) * 4 for status in statuses)
    counts = AsyncCounts(notified=int(not silent), silent=silent)
    seen = StepSeen(code=statuses[-1] if statuses else 0, calls=calls, data=data, counts=counts)
    return observations((step,), MemoryTrace(steps=(seen,)))


def test_how_far_a_target_came_before_the_context_was_freed_is_no_finding() -> None:
    """A program of EXE-18 looked at the outputs of one run of a race, and accused a conforming library."""
    assert freed(0, 0, 0, 0) == freed(0, 0, 6039, 6039) == freed(0, 6001, 6001, 6001)
    others = {place.label: found for place, found in freed(0, 0, 1100, 6039).items()}
    assert others["freed:otherwise"] == 1
    silent = {place.label: found for place, found in freed(2, 0).items()}
    assert (silent["freed:silent"], silent["freed:otherwise"]) == (1, 0)
    assert not any(label.startswith("data:") for label in silent)


class _Chance:
    """A target that breaks every rule in one run of so many, counted from the first."""

    subject, spec, options, facts = "memory", "chance", (), None

    def __init__(self, every: int) -> None:
        self.every, self.runs = every, 0

    def run(self, case: MemoryCase) -> MemoryTrace:
        del case
        self.runs += 1
        return MemoryTrace(closing=(("contextFree", int(self.runs % self.every == 0)),))


@pytest.mark.parametrize(("every", "runs"), [(1, 1), (3, 3), (100, 8)])
def test_a_program_is_written_from_a_run_that_shows_the_finding(
    monkeypatch: pytest.MonkeyPatch, every: int, runs: int
) -> None:
    def check(case: MemoryCase, trace: MemoryTrace) -> Examined:
        del case
        if trace.closing[0][1]:
            raise Violation("0", "1")
        return Examined(1, "calls")

    rule: Any = SimpleNamespace(check=check)
    monkeypatch.setattr(rules, "named", lambda _: rule)
    monkeypatch.setattr(reproduce, "program", lambda _case, trace, _said: str(trace.closing))
    target: Any = _Chance(every)
    said: Any = SAID
    verdict: Any = SimpleNamespace(
        **said._asdict(), outcome=Outcome.FAIL, finding=Finding(expected="0", seen="1")
    )
    content: Any = SimpleNamespace(subject="memory", case=MemoryCase((Alloc("b0", 1),)))
    monkeypatch.setattr(session_reproducers, "_snippet", lambda *_: "")
    made = session_reproducers.files(target, verdict, content)
    assert target.runs == runs
    if every > runs:
        assert b"did not show in 8 further runs" in made[session_reproducers.WHY_NOT]
    else:
        assert made == {session_reproducers.PROGRAM: b"(('contextFree', 1),)"}
