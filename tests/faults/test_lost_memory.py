"""Each fault of `lost_memory.py` is its owner's finding, and no other rule fails that meets it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fast_run import later

from benchmarks import blame
from pytest_qnn.rules import named
from tests.faults.lost_memory import LOST, built

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
_OF_ADDRESSES = ("CTRL-01", "CTRL-02", "CTRL-03", "PART-18", "PREC-08")
_OF_THE_END = ("ERR-04", "MEM-03", "MEM-05", "MEM-07", "RUN-01")
_OF_BLOCKS = ("ERR-04", "MEM-03", "CTRL-01", "PART-18", "RUN-01")

_OF_NUMBERS = ("NUM-02", "NUM-10", "PART-03", "PART-11", "DET-01", "ERR-04", "RSZ-01", "LIFE-02", "CTRL-01")


@pytest.mark.parametrize(
    ("name", "rules", "seed"),
    [
        ("clears-at-its-end", ("ERR-04", "MEM-14"), 1),
        later("uses-freed-work", ("MEM-03", "RUN-01"), 1),
        later("reads-freed-units", ("NUM-10", "PART-11"), 1),
        *(
            later(name, rules, seed)
            for seed in (1, 2, 3, 4, 5)
            for name, rules in (
                ("keeps-addresses", (*_OF_ADDRESSES, "MEM-05")),
                ("clears-at-its-end", (*_OF_THE_END, "MEM-14")),
                ("requests-elements", (*_OF_BLOCKS, "MEM-15")),
                ("uses-freed-work", (*_OF_BLOCKS, "MEM-15")),
                ("reads-freed-units", (*_OF_NUMBERS, "MEM-15")),
            )
        ),
    ],
)
def test_only_its_owner_fails(tmp_path: Path, name: str, rules: tuple[str, ...], seed: int) -> None:
    target = blame.open_library(built(name, tmp_path), "delegate", 10.0)
    found = blame.judged_by([named(each) for each in rules], target, seed)
    assert set(found.seen) == {LOST[name].owner}
    assert found.unjudged == []
