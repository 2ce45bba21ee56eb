"""The conformance suite against targets of which only one thing is wrong: nothing but that is lost."""

from __future__ import annotations

import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fast_run import expression, later
from hostile import DEATHS, SURVIVED, THROWN, Deed, flood, noted, nth_call, third_process
from hostile_suite import Judged, check_nothing_is_lost, check_the_rest_is_judged, suite
from hostile_targets import hostile_backend, hostile_delegate

from pytest_qnn import native
from pytest_qnn.qnn.cases.case import FREED
from pytest_qnn.qnn.cases.misuses import TAKES
from pytest_qnn.rules import listed

HIT = {"memory": "EXE-21", "delegate": "PART-11"}
"""A rule of each half whose cases come to the deed."""
OWNERS = {"memory": "EXE-21", "delegate": "RUN-01"}
"""The rules that own the death of a process in an ordinary call: the second is not selected."""
OTHERS = {"double-free": {"delegate": "MEM-15"}}
"""Who owns what is wrong with a heap: a delegate frees nothing twice."""
NARROW = "exe_21 or rpc_04 or part_11 or num_02"
"""These, and one of each half whose cases do not."""
MANY = "exe_02 or exe_05 or reg_04 or det or part_15 or num_02"
FEW = "exe_02 or exe_05 or part_15 or num_02"
ENDS = ("QLEAK-04", "LIFE-14")
"""Rules about the end of a process."""
AT_THE_END = f"{NARROW} or qleak_04 or life_14"

DEADLY = (
    *(later(name) for name in ("segv", "exit-0", "deaf-loop", "close-descriptors")),
    *(later(name) for name in ("abort", "bus", "fpe", "stack-overflow", "exit-3", "exit-in-destructor")),
    *(later(name) for name in ("allocate", "loop-with-the-gil", "trap", "nameless-signal", "stop")),
    *(later(name) for name in ("exit-in-thread", "allocate-in-c++", "double-free")),
)
"""In the fast run all are met without the suite (test_memory.py, test_delegates.py), and one crash with it
(plugin/test_blame.py)."""
FLOOD = flood(16)
"""Fills each pipe; a gigabyte is written by single cases, in test_memory.py or test_delegates.py."""
HARMLESS = (
    "flood",
    "grandchild",
    "sleeping-threads",
    "signals",
    "remove-folder",
    "float-environment",
    "corruption-seen-at-exit-only",
)
ALSO_HARMLESS = (
    *(
        "unused-destructor",
        "grandchild-of-grandchild",
        "busy-threads",
        "litter",
        "catch-faults",
    ),
    "gigabyte-of-stdout",
)
REPLAYED = ("segv", "close-descriptors", "deaf-loop")
THREADED = ("THR", "QTHR", "DRG-14")
"""Rules whose cases have threads: which call is the eighth differs from run to run."""
CALLS = 8
"""So many calls that most rules' cases do not come to the last of them."""
PARTS = 8
FEW_CALLS = 3
"""So many that some of the rules of MANY come to the last of them, and others do not."""
LIMITS = {"deaf-loop": 0.5, "loop-with-the-gil": 0.5, "stop": 0.5}
"""Seconds for a case, where many of them are spent; else far more than any case takes."""


def together(*names: str) -> Deed:
    """All these deeds, one after the other."""
    deeds = [FLOOD if name == "flood" else SURVIVED[name] for name in names]
    blocks = " ".join(f"{{ {deed.body} }}" for deed in deeds)
    return Deed(blocks, before="\n".join(deed.before for deed in deeds))


class Bench(NamedTuple):
    """Where hostile libraries are built and judged."""

    folder: Path
    reference: Path

    def judge(self, name: str, deed: Deed, only: str = NARROW) -> Judged:
        folder = self.folder / name
        folder.mkdir()
        libraries = self.folder / "libraries"  # reports name their paths, which are to be equal
        libraries.mkdir(exist_ok=True)
        backend = hostile_backend(libraries, self.reference, deed)
        options = (f"--qnn-backend={backend}", f"--tflite-delegate={hostile_delegate(libraries, deed)}")
        limit = f"--qnn-timeout={LIMITS.get(name, 10)}"
        return suite(folder, *options, limit, "--junitxml=out.xml", "--qnn-report=out.html", only=only)

    def calm(self, name: str, only: str) -> Judged:
        """The same on a target that only notes when it would do the deed."""
        judged = self.judge(name, noted(self.folder / name / "note"), only)
        assert {rule["verdict"] for rule in judged.rules.values()} <= {"pass", "unsupported"}
        return judged


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("hostile")
    return Bench(folder, native.build(folder / "reference").backend)


@pytest.fixture(scope="module")
def calm_all(bench: Bench) -> Judged:
    """One run for all comparisons: a rule's verdict does not depend on which others are judged."""
    judged = bench.calm("calm", only=f"{AT_THE_END} or {MANY}")
    check_nothing_is_lost(judged, judged)
    return judged


@pytest.fixture(scope="module")
def calm(calm_all: Judged) -> Judged:
    judged = calm_all.of(NARROW)
    assert judged.came == set(HIT.values())
    return judged


@pytest.fixture(scope="module")
def calm_many(calm_all: Judged) -> Judged:
    return calm_all.of(MANY)


def dies_of(rule: dict[str, Any], deed: Deed) -> None:
    assert rule["verdict"] == ("hang" if deed.kind == "hang" else "crash")
    assert deed.detail in rule["violation"]["seen"]
    assert rule["flaky"] == ""


@pytest.mark.parametrize("name", DEADLY)
def test_a_deadly_deed_costs_the_rules_that_it_hits_and_no_other(
    bench: Bench, calm: Judged, name: str
) -> None:
    deed = DEATHS[name]
    if deed.kind == "hang" and name != "stop":
        deed = deed._replace(detail="no answer: still computing after")
    elif deed.kind == "hang":
        deed = deed._replace(detail="no answer: used no processor time")
    judged = bench.judge(name, deed)
    check_nothing_is_lost(judged, calm)
    check_the_rest_is_judged(judged, calm, calm.came)
    for rule_id in (OWNERS | OTHERS.get(name, {})).values():
        dies_of(judged.rules[rule_id], deed)
    if name in REPLAYED:
        again = replays(judged)
        assert set(again.values()) == {"STILL FAILS"}
        assert {name.partition("-by-")[0] for name in again} == set(OWNERS.values())


@pytest.mark.full  # for the suite it is a death by a signal as any other
def test_an_exception_through_the_c_interface_costs_no_other_rule(bench: Bench, calm: Judged) -> None:
    deed = THROWN["throw-an-exception"]
    judged = bench.judge("throw", deed)
    check_nothing_is_lost(judged, calm)
    check_the_rest_is_judged(judged, calm, calm.came)
    dies_of(judged.rules[OWNERS["memory"]], deed._replace(detail="SIGABRT"))
    # The runtime's Python wrapper catches it, past frames of the interpreter, which dies of that.
    dies_of(judged.rules[OWNERS["delegate"]], deed._replace(detail="SIGSEGV"))


@pytest.mark.parametrize(
    "names", [later(HARMLESS), *(later((name,)) for name in (*HARMLESS, *ALSO_HARMLESS))], ids="+".join
)
def test_deeds_that_change_their_process_only_cost_nothing(
    bench: Bench, calm: Judged, names: tuple[str, ...]
) -> None:
    judged = bench.judge("+".join(names), together(*names))
    check_nothing_is_lost(judged, calm)
    check_the_rest_is_judged(judged, calm, set())


@pytest.mark.full
def test_what_shows_when_a_process_ends_only_is_found_by_the_rules_about_its_end(
    bench: Bench, calm_all: Judged
) -> None:
    calm = calm_all.of(AT_THE_END)
    assert calm.came >= set(ENDS)
    judged = bench.judge("corruption-at-the-end", SURVIVED["corruption-seen-at-exit-only"], AT_THE_END)
    check_nothing_is_lost(judged, calm)
    check_the_rest_is_judged(judged, calm, set(ENDS))
    for rule_id in ENDS:
        dies_of(judged.rules[rule_id], Deed("", "signal", "SIGABRT as it ended, after the case"))
    assert replays(judged) == dict.fromkeys(ENDS, "STILL FAILS")


@pytest.mark.full
def test_garbage_in_every_descriptor_reaches_shared_memory_and_nothing_else(
    bench: Bench, calm_all: Judged
) -> None:
    only = "exe_02 or rpc_04 or num_02"
    calm = calm_all.of(only)
    judged = bench.judge("garbage", SURVIVED["garbage-everywhere"], only)
    check_nothing_is_lost(judged, calm)
    check_the_rest_is_judged(judged, calm, {"EXE-02"})
    rule = judged.rules["EXE-02"]
    # The plainest execute with handles has the same garbage. What is computed after it came is right: a case
    # in which only the output has a handle is judged, if one is drawn.
    assert rule["blocked_by"] == ["EXE-01"]
    assert rule["verdict"] == ("pass" if rule["examined"] else "inconclusive")
    assert judged.rules["EXE-01"]["verdict"] == "fail"


@pytest.mark.full
def test_of_many_rules_those_that_come_to_a_later_call_die_of_it(bench: Bench, calm_many: Judged) -> None:
    judged = bench.judge("later-call", nth_call(FEW_CALLS), only=MANY)
    check_a_later_call(judged, calm_many, FEW_CALLS, least=4)


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_the_whole_suite_on_a_target_that_dies_of_a_later_call(bench: Bench, part: int) -> None:
    """In parts: each rule that dies is made small, which for all of them takes a quarter of an hour."""
    only = expression(list(listed())[part::PARTS])
    calm = bench.calm(f"calm-whole-{part}", only=only)
    judged = bench.judge(f"later-call-whole-{part}", nth_call(CALLS), only=only)
    check_a_later_call(judged, calm, CALLS, least=0)


def check_a_later_call(judged: Judged, calm: Judged, calls: int, least: int) -> None:
    """More than ``least`` rules are given minimal cases with as many calls, and the others are judged."""
    check_nothing_is_lost(judged, calm)
    died = {
        name for name, rule in judged.rules.items() if rule["verdict"] == "crash" and not rule["found_by"]
    }
    assert died <= calm.came
    around = {name for name, rule in judged.rules.items() if rule["blocked_by"]}
    assert around <= calm.came
    # A graph of many nodes comes to the call in a plain run: then the finding is that of its owner.
    owners = {name for name, rule in judged.rules.items() if rule["found_by"]}
    assert {judged.rules[name]["verdict"] for name in owners} <= {"crash"}
    check_the_rest_is_judged(judged, calm, died | around | owners)
    steady = {name for name in died if not name.startswith(THREADED)}
    assert len(steady) > least
    for name in steady:
        dies_of(judged.rules[name], Deed("", "signal", "SIGABRT"))
        assert_minimal(judged.rules[name]["case"], calls)


def executes(step: dict[str, Any]) -> bool:
    """An event of a freed profile comes of an execute with it (`qnn.runner.misuses.handles`)."""
    of_freed = step.get("handle") == FREED and TAKES.get(step.get("call", "")) == "event"
    return step["do"] == "execute" or step.get("call") == "graphExecute" or of_freed


def assert_minimal(case: dict[str, Any], calls: int) -> None:
    """Of cases of calls or nodes; what a script or a plugin's case needs besides is its rule's."""
    if "graphs" in case or ("graph" in case and "steps" in case):
        return
    if "steps" in case:
        kinds = [step["do"] for step in case["steps"]]
        # Both execute, too: behind `executes`, as often as it says, no other execute is needed.
        wanted = 0 if "executes" in kinds else calls
        assert sum(map(executes, case["steps"])) == wanted or "lived" in kinds
        return
    if "history" in case:  # whose interpreters are invoked too
        return
    nodes = [node["op"] for node in case["graph"]["nodes"]].count("MUL")
    times = case.get("invokes", 1) * (2 if case.get("again") else 1)
    assert (nodes - 1) * times < calls <= nodes * times


def replays(judged: Judged) -> dict[str, str]:
    """By rule, what replaying each finding of the run gives, started in another folder."""
    elsewhere = judged.folder / "elsewhere"
    elsewhere.mkdir()
    found = {}
    for path in sorted(judged.folder.glob(".pytest-qnn/*/*/command.txt")):
        program, *arguments = shlex.split(path.read_text())
        assert Path(program).name == "pytest"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        ended = subprocess.run(
            command, cwd=elsewhere, capture_output=True, text=True, timeout=60, check=False
        )
        rule = path.parent.name.partition("-by-")[0]
        lines = [line for line in ended.stdout.splitlines() if line.startswith(f"{rule} on ")]
        found[path.parent.name] = lines[0].split(": ")[1] if lines else ended.stdout + ended.stderr
    assert list(elsewhere.iterdir()) == []
    return found


@pytest.mark.full
def test_a_target_that_dies_one_time_in_three_is_flaky_everywhere(bench: Bench, calm_many: Judged) -> None:
    calm = calm_many.of(FEW)
    judged = bench.judge("one-in-three", third_process(bench.folder / "one-in-three" / "note"), only=FEW)
    check_nothing_is_lost(judged, calm)
    check_the_rest_is_judged(judged, calm, calm.came)
    often = {name for name, times in calm.deeds.items() if times >= 3}
    assert often
    # A death by chance is the rule's own where no control dies as well, and else its owner's.
    crashed = {name for name in often if judged.rules[name]["verdict"] == "crash"}
    owners = {owner for name in often for owner in judged.rules[name]["blocked_by"]}
    assert crashed | {name for name in often if judged.rules[name]["blocked_by"]} == often
    assert {judged.rules[name]["verdict"] for name in crashed | owners} == {"crash"}
    flaky = {name: rule["flaky"] for name, rule in judged.rules.items() if rule["flaky"]}
    page = (judged.folder / "out.html").read_text()
    properties = junit(judged.folder / "out.xml")
    assert flaky
    for name, rate in flaky.items():
        rule = judged.rules[name]
        assert rule["verdict"] == "crash"
        found_by = f" (found by {rule['found_by']})" if rule["found_by"] else ""
        assert f"{name} {rule['level']} crash{found_by} (flaky: {rate}): " in judged.output
        assert f"the minimal case {rate}" in page.partition(f'id="{name}"')[2].partition("</article>")[0]
        assert rule["found_by"] or properties[name]["flaky"] == rate


def junit(path: Path) -> dict[str, dict[str, str]]:
    """The properties of each rule's test."""
    found = {}
    for case in ET.parse(path).iter("testcase"):
        pairs = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        found[pairs["rule"]] = pairs
    return found
