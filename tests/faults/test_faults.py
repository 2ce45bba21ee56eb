"""Each fault in C is its owner's finding, and that of no MUST rule that it keeps (docs/measured/blame.md)."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_run import later

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # The benchmarks are not installed; the path is taken back below.

from benchmarks import blame  # noqa: E402
from pytest_qnn.core.verdict import Level  # noqa: E402
from pytest_qnn.rules import listed  # noqa: E402
from tests.faults import faults  # noqa: E402

sys.path.remove(str(ROOT))

needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")


def test_there_are_15_of_each_half_and_a_must_rule_owns_each() -> None:
    assert (len(faults.DELEGATES), len(faults.BACKENDS)) == (15, 15)
    for name, fault in faults.FAULTS.items():
        owner = listed()[fault.owner]
        assert (owner.subject, owner.level) == (fault.subject, Level.MUST), name


@pytest.mark.parametrize("name", faults.FAULTS)
def test_what_a_fault_replaces_stands_in_the_source_once(name: str) -> None:
    assert faults.faulty(name).count(faults.FAULTS[name].by) >= 1


FEW = {
    "qnn-dies-in-backend-create": ("IF-12", "CAP-01", "CTX-09", "REG-01"),
    "qnn-dies-in-context-free": ("CTX-01", "CTX-06", "CTX-09"),
    "delegate-number-at-rank": ("PART-03", "NUM-06", "NUM-10", "BUF-03"),
    "delegate-leaves-the-last": ("DET-04", "DET-03", "NUM-02", "PART-10"),
    "delegate-writes-one-more": ("MEM-03", "MEM-05", "MEM-13"),
    "delegate-broadcasts-flat": ("NUM-10", "NUM-07", "NUM-09", "PART-03"),
    "qnn-writes-one-more": ("EXE-10", "EXE-04", "EXE-21", "PRE-05"),
    "qnn-asks-no-descriptor": ("REG-14", "REG-08"),
    "qnn-maps-a-copy": ("EXE-01", "QTHR-03"),
}
"""Rules that judge a fault: its owner, and those that were accused of it before."""
SOON = (
    "qnn-dies-in-context-free",
    "delegate-writes-one-more",
    "qnn-writes-one-more",
)
"""In the fast run: a death, memory beside a delegate's tensors and beside a backend's."""


@needs_a_compiler
def test_a_rule_about_what_a_library_says_that_it_has_not_is_blocked_by_nothing() -> None:
    """Every case of it dies as all others do; but a property key says that it is not offered."""
    found = blame.row("qnn-dies-in-deregister", 1, ("DRG-01", "DMA-01", "SHB-07", "REG-24"))
    assert (found.owners, found.accused) == (["DRG-01"], [])
    assert found.blocked == ["REG-24"]


@needs_a_compiler
@pytest.mark.parametrize("name", [name if name in SOON else later(name) for name in FEW])
def test_an_owner_fails_and_who_meets_its_fault_does_not(name: str) -> None:
    found = blame.row(name, 1, FEW[name])
    assert (found.owners, found.accused, found.advised) == ([faults.FAULTS[name].owner], [], [])


@needs_a_compiler
def test_operators_of_which_no_graph_can_be_made_are_those_that_are_validated(tmp_path: Path) -> None:
    """Composing one kills: were the others not taken for granted, no rule would meet the fault."""
    fault = faults.FAULTS["qnn-dies-in-finalize"]
    library = faults.built("qnn-dies-in-finalize", tmp_path)
    with contextlib.closing(blame.open_library(library, fault.subject, 10.0)) as target:
        assert len(target.facts.deaths) == 1
        assert len(target.facts.operators) == 10
        assert target.facts.operators == target.facts.validated


_PARTS_OF_A_HANG = 16
"""Each rule that meets a hang waits for it: all of them in one test would keep one worker for ten minutes."""


def rows() -> Iterator[Any]:
    """Each fault with a part of the rules: all of them at once, unless it hangs."""
    for name, fault in faults.FAULTS.items():
        parts = _PARTS_OF_A_HANG if fault.timeout < faults.TIMEOUT else 1
        for part in range(parts):
            yield pytest.param(name, part, parts, id=name if parts == 1 else f"{name}-{part}")


@needs_a_compiler
@pytest.mark.full
@pytest.mark.parametrize(("name", "part", "parts"), list(rows()))
def test_nobody_else_fails_among_all_rules(name: str, part: int, parts: int) -> None:
    fault = faults.FAULTS[name]
    judging = [rule.id for rule in blame.rules_of(fault.subject)][part::parts]
    found = blame.row(name, 1, judging)
    # Rules that meet the fault hand it to its owner, which then has a finding in another part as well.
    expected = [fault.owner] if fault.owner in judging else found.owners[:1]
    assert (found.owners, blame.unexplained(found)) == (expected, [])
    assert set(found.owners) <= {fault.owner}


@needs_a_compiler
@pytest.mark.full
@pytest.mark.parametrize("subject", ["delegate", "memory"])
def test_the_libraries_without_a_fault_conform(tmp_path: Path, subject: str) -> None:
    fault = next(each for each in faults.FAULTS.values() if each.subject == subject)
    library = faults.build(tmp_path, fault.subject, "conforming")
    target = blame.open_library(library, fault.subject, 10.0)
    assert blame.judged_by(blame.rules_of(fault.subject), target, 1) == blame.Failures()


def test_rows_that_are_known_are_not_judged_again_and_the_matrix_says_who_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(blame, "RESULTS", tmp_path / "rows.jsonl")
    assert blame.known() == {}
    mutant = next(name for name in blame.in_turn(1) if blame.faults()[name].is_mutant)
    row = blame.Row(mutant, ["X-01"], [], ["Y-02"], [], ["Z-03"], 60.0, 1, {"Y-02": "a crash"})
    text = blame.document({mutant: row}, {})
    assert f"| `{mutant}` | X-01 | - | Y-02 | - | Z-03 |" in text
    assert "## Mutants: 1 judged, 1 with an accusation that is not explained, 0 whose owner needed" in text
    late = blame.Row(mutant, [], ["X-01"], [], [], [], 60.0, 1, later=["X-01"])
    found = blame.document({mutant: late}, {})
    assert "1 whose owner needed the cases of `default`, 0 whose owner saw nothing" in found
    assert f"| `{mutant}` | - | X-01 * | - | - | - |" in found
    monkeypatch.setitem(blame.EXPLAINED, mutant, ("Y-02 Y-03", "it breaks both"))
    explained = blame.document({mutant: row}, {})
    assert "1 judged, 0 with an accusation" in explained
    assert f"* `{mutant}` (Y-02): it breaks both" in explained


def test_the_order_is_that_of_the_seed_and_begins_with_the_faults_in_c() -> None:
    order = blame.in_turn(1)
    assert order[: len(faults.FAULTS)] == list(faults.FAULTS)
    assert order == blame.in_turn(1)
    assert sorted(order) == sorted(blame.in_turn(2))
    assert order != blame.in_turn(2)
