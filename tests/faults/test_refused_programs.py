"""Findings of OOM as C programs, which refuse requests themselves: they show each fault of `refused.py`."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from pytest_qnn import effort
from pytest_qnn.case_file import SCHEMA, with_case
from pytest_qnn.core import engine
from pytest_qnn.core.verdict import Verdict
from pytest_qnn.native import __file__ as native_file
from pytest_qnn.qnn import reproduce
from pytest_qnn.qnn.cases.case import FailedAllocation, MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.session import reproducers
from tests.faults import faults
from tests.faults.refused import REFUSED, built

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)")
_FEW = ("context-throws",)
"""A death, and an output; growth stands apart."""
_SEEDS = (1, 2, 3)


def found_in(target: MemoryTarget, rule: str) -> tuple[Verdict, str]:
    """The finding, and its C file."""
    profile = dataclasses.replace(effort.profile("default"), shrink_seconds=0.5, repeats=1)
    verdicts = (engine.judge(catalogue()[rule], target, profile, seed) for seed in _SEEDS)
    verdict = next(each for each in verdicts if each.finding is not None and each.finding.case)
    assert verdict.finding is not None
    common = {"schema": SCHEMA, "rule": rule, "verdict": verdict.outcome.value, "target": "", "options": ()}
    said = {name: getattr(verdict.finding, name) for name in ("expected", "seen", "where")}
    content = with_case("memory", verdict.finding.case, common | said | {"seed": verdict.seed})
    return verdict, reproducers.files(target, verdict, content)[reproducers.PROGRAM].decode()


def compiled(folder: Path, text: str) -> Path:
    (folder / "reproduce.c").write_text(text)
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-o", "reproduce", "reproduce.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return folder / "reproduce"


def rpcmem(folder: Path) -> Path:
    library = folder / "libcdsprpc.so"
    source = Path(native_file).with_name("cdsprpc.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return library


def ended(program: Path, library: Path, memory: Path) -> tuple[int, str]:
    """Its exit status, and what it says."""
    command = [str(program), str(library), str(memory)]
    done = subprocess.run(
        command, cwd=program.parent, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def requests_of(text: str) -> set[tuple[str, str, str]]:
    """The requests that a finding, or a program, says were refused: which one, of how many, of which call."""
    pattern = r"request (\d+) of (\d+)(?: and each behind it)? of (?:Qnn\w+_)?(\w+)"
    return {(nth, asked, call.lower()[-6:]) for nth, asked, call in re.findall(pattern, text)}


@pytest.mark.parametrize(
    "name", [name if name in _FEW else pytest.param(name, marks=pytest.mark.full) for name in REFUSED]
)
def test_a_program_ends_with_1_on_the_fault_and_with_0_on_a_conforming_library(
    tmp_path: Path, name: str
) -> None:
    library = built(name, tmp_path)
    with closing(open_memory_target(str(library), "emulated", "fork", 2.0)) as target:
        verdict, text = found_in(target, REFUSED[name].owner)
    program, memory = compiled(tmp_path, text), rpcmem(tmp_path)
    status, told = ended(program, library, memory)
    assert status == 1, told
    assert verdict.finding is not None
    assert requests_of(verdict.finding.where) <= requests_of(told)
    status, told = ended(program, built("conforming", tmp_path), memory)
    assert status == 0, told
    assert requests_of(told)


def lacking(folder: Path, *functions: str) -> Path:
    """A library without these functions, whose graphs are unusable once an execute found no memory."""
    fault = REFUSED["graph-is-unfinished"]
    source = faults.conforming("memory").replace(fault.piece, fault.by)
    begins = re.compile(rf"^static Error (?:{'|'.join(functions)})\([^{{]*\{{\n", re.MULTILINE)
    source, count = begins.subn(lambda found: f"{found[0]}  return 1000;\n", source)
    assert count == len(functions)
    return faults.build(folder, "memory", "-".join(functions), source)


def of_step(target_library: Path, rule: str, step: FailedAllocation) -> str:
    """The program of a case with this step."""
    with closing(open_memory_target(str(target_library), "emulated", "fork", 2.0)) as target:
        trace = target.run(MemoryCase((step,)))
    said = reproduce.Finding(rule, "Sentence.", "source", "a target", "this", "that", "step 0")
    return reproduce.program(MemoryCase((step,)), trace, said)


def test_calls_that_a_library_has_not_are_left_out(tmp_path: Path) -> None:
    library = lacking(tmp_path, "device_create", "mem_register")
    text = of_step(library, "OOM-05", FailedAllocation(("memRegister", "graphExecute"), mem_type=1))
    program, memory = compiled(tmp_path, text), rpcmem(tmp_path)
    status, told = ended(program, library, memory)
    assert status == 1, told
    assert "QnnDevice_create -> 1000" in told
    assert told.count("QnnMem_register -> 1000") == 1
    assert ended(program, faults.build(tmp_path, "memory", "example"), memory)[0] == 0
    # Where a call fails that all others need, nothing can be said.
    assert ended(program, lacking(tmp_path, "graph_finalize"), memory)[0] == 2


def test_growth_is_counted_around_refusals_and_around_none(tmp_path: Path) -> None:
    step = FailedAllocation(("memRegister",), "memory", nth=2, rounds=20, use="none", mem_type=1)
    text = of_step(built("stays-mapped", tmp_path), "OOM-06", step)
    program, memory = compiled(tmp_path, text), rpcmem(tmp_path)
    status, told = ended(program, tmp_path / "libstays-mapped.so", memory)
    assert (status, "grows mappings is 1: yes" in told) == (1, True), told
    # It leaves the same mapped where nothing is refused.
    source = faults.conforming("memory")
    piece = "  if (ended->kind == kMemory) munmap(((Memory*)ended)->data, ((Memory*)ended)->length);\n"
    assert source.count(piece) == 1
    always = faults.build(tmp_path, "memory", "always", source.replace(piece, ""))
    assert ended(program, always, memory)[0] == 0
