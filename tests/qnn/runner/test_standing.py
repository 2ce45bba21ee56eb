"""A session stays open beside the later cases of a process, where opening one is most of what they cost."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from fast_run import later

from pytest_qnn.core.engine import judge
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    Capability,
    CheckHeap,
    ContextCreate,
    FreeParent,
    Lived,
    Logged,
    MemoryCase,
    Prepare,
    Providers,
)
from pytest_qnn.qnn.cases.plain import PLAIN
from pytest_qnn.qnn.runner.sources import MemorySource, MemorySpec
from pytest_qnn.qnn.runner.standing import is_worth, may_stand_beside, price
from pytest_qnn.qnn.runner.worker import MemoryWorker
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from tests.faults import faults
from tests.faults.judged import blamed, failing

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
_TABLES = """
#include <time.h>
/* For the first graph of its only session the library makes tables, and ends them with the session. */
static int table;
__attribute__((visibility("default"))) unsigned built, backends;
static void make_table(void) {
  struct timespec begin, now;
  if (table) return;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000000000LL + now.tv_nsec - begin.tv_nsec < 40000000);
  table = 1;
  ++built;
}
"""
_COMPUTED = "  if (!code) compute(owner, data);\n"
_WRONG = """\
  for (uint32_t i = 0; !code && i < owner->tensors_size; ++i) {
    if (WHEN && owner->tensors[i].type == kAppRead) *(unsigned char*)data[i] ^= 3;
  }
"""


def built(folder: Path, wrong_when: str = "", source: str = "") -> Path:
    """The example backend, whose sessions are expensive; its numbers are wrong where the condition holds."""
    source = source or faults.conforming("memory")
    for piece, by in (
        ("static Error backend_create(", f"{_TABLES}static Error backend_create("),
        ("kBackend, NULL);\n", "kBackend, NULL);\n  backends += made != NULL;\n"),
        (
            "  if (!found) return 4011;\n  end(found);\n",
            "  if (!found) return 4011;\n  end(found);\n  table = table && --backends;\n",
        ),
        (
            "  if (owner->finalised || profile || signal) return 1000;\n",
            "  make_table();\n  if (owner->finalised || profile || signal) return 1000;\n",
        ),
        (_COMPUTED, _COMPUTED + (_WRONG.replace("WHEN", wrong_when) if wrong_when else "")),
    ):
        assert source.count(piece) == 1, piece
        source = source.replace(piece, by)
    return faults.build(folder, "memory", "tables", source)


@contextmanager
def opened(library: Path) -> Iterator[MemoryTarget]:
    with closing(open_memory_target(str(library), "emulated", "fork", 10.0)) as target:
        yield target


def test_it_stays_open_where_that_is_worth_it_and_the_report_says_so(tmp_path: Path) -> None:
    with opened(built(tmp_path)) as target:
        assert target.provenance()["sessions"] == "one stays open beside the later cases of a process"
    (tmp_path / "quick").mkdir()
    quick = faults.build(tmp_path / "quick", "memory", "quick", faults.conforming("memory"))
    with opened(quick) as target:
        assert "sessions" not in target.provenance()


def test_a_case_beside_it_makes_no_tables(tmp_path: Path) -> None:
    path = str(built(tmp_path))
    library = ctypes.CDLL(path)

    def count(name: str) -> int:
        return ctypes.c_uint.in_dll(library, name).value

    worker = MemoryWorker(MemorySpec(path, "emulated", stands=True))
    worker.run(PLAIN)
    worker.run(PLAIN)
    assert (count("built"), count("backends")) == (2, 0)
    worker.accompany(msgspec.msgpack.encode(PLAIN))
    made = count("built")
    for _ in range(3):
        worker.accompany(msgspec.msgpack.encode(PLAIN))
        worker.run(PLAIN)
    assert (count("built"), count("backends")) == (made, 1)
    # A case about logs has no session beside it, and the next one has another one.
    worker.accompany(msgspec.msgpack.encode(MemoryCase((Logged(),))))
    assert count("backends") == 0
    worker.accompany(msgspec.msgpack.encode(PLAIN))
    assert count("backends") == 1
    alone = MemoryWorker(MemorySpec(path, "emulated"))
    alone.accompany(msgspec.msgpack.encode(PLAIN))
    assert count("backends") == 1


def test_the_price_is_that_of_a_session_alone_and_of_one_beside_another(tmp_path: Path) -> None:
    with MemorySource(str(built(tmp_path)), "emulated").open() as (entry, rpcmem):
        alone, beside = price(entry, rpcmem)
    assert alone >= 0.04
    assert beside < alone
    with MemorySource("reference", "emulated").open() as (entry, rpcmem):
        alone, beside = price(entry, rpcmem)
    assert not is_worth(alone, beside)


@pytest.mark.parametrize(
    ("alone", "beside", "worth"),
    [(0.05, 0.004, True), (0.05, 0.025, True), (0.05, 0.026, False), (0.009, 0.001, False)],
)
def test_what_it_must_save(alone: float, beside: float, worth: bool) -> None:
    assert is_worth(alone, beside) is worth


@pytest.mark.parametrize(
    ("step", "fits"),
    [
        *((Prepare("g", "c"), True), (Lived("contexts", "c"), True)),
        *((Logged(), False), (Capability(502, early=True), False), (Providers(), False)),
        *((FreeParent("backend"), False), (CheckHeap(), False)),
    ],
)
def test_what_is_about_sessions_has_none_beside_it(step: AnyStep, fits: bool) -> None:
    assert may_stand_beside(MemoryCase((ContextCreate("c"), step))) is fits


@pytest.mark.parametrize(
    "rule_id", ["EXE-21", "CTX-10", "OFF-01", *map(later, ("PRE-02", "QMG-01", "EXT-30", "IF-16"))]
)
def test_conforming_libraries_pass_and_bear_company(rule_id: str, tmp_path: Path) -> None:
    with opened(built(tmp_path)) as target:
        verdict = judge(catalogue()[rule_id], target, profile("default"), 1)
    assert verdict.outcome in (Outcome.PASS, Outcome.UNSUPPORTED), verdict
    assert verdict.only_in_company == 0


def test_what_goes_wrong_in_the_only_session_of_a_process_is_found(tmp_path: Path) -> None:
    with opened(built(tmp_path, "backends == 1")) as target:
        verdict = judge(catalogue()["EXE-21"], target, profile("default"), 1)
    assert verdict.outcome is Outcome.FAIL


def test_what_goes_wrong_only_beside_another_session_is_no_finding_of_a_case_alone(tmp_path: Path) -> None:
    with opened(built(tmp_path, "backends > 1")) as target:
        verdict = judge(catalogue()["EXE-21"], target, profile("default"), 1)
    assert (verdict.outcome, verdict.only_in_company > 0) == (Outcome.PASS, True)


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_a_process_has_one_at_most(mode: str, tmp_path: Path) -> None:
    library = built(tmp_path, "backends > 2")
    with closing(open_memory_target(str(library), "emulated", mode, 10.0)) as target:
        answers = list(target.run_all([PLAIN] * 4))
    assert [first for _, first in answers] == [True, False, False, False]
    assert len({trace.steps[-2].data for trace, _ in answers}) == 1


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in faults.BACKENDS if name != "qnn-dies-in-backend-create"])
def test_faults_are_found_beside_it(name: str, tmp_path: Path) -> None:
    fault = faults.BACKENDS[name]
    library = built(tmp_path, source=faults.faulty(name))
    target = open_memory_target(str(library), "emulated", "fork", fault.timeout)
    assert failing(blamed(target, (fault.owner,))) == {fault.owner}
