"""Each further fault in the example backend is found by its owner, and nobody else is accused of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fast_run import later

from benchmarks import blame
from pytest_qnn.rules import catalogue
from tests.faults import faults
from tests.faults.further import FURTHER

needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

MEETING = {
    "qnn-keeps-its-lock": ("EXE-03", "EXE-11", "QMG-11", "QLEAK-07"),
    "qnn-keeps-its-lock-in-register": ("REG-13", "REG-08", "REG-14"),
    "qnn-keeps-its-lock-in-deregister": ("DRG-03", "DRG-06"),
    "qnn-dies-with-several-handles": ("DRG-01", "DRG-05", "DRG-11", "REG-01", "REG-02", "REG-24", "CTX-01"),
    "qnn-keeps-its-recursive-lock": ("QTHR-06", "DRG-14", "EXE-03"),
    "qnn-dies-with-handles": ("EXE-01", "EXE-02", "EXE-19", "ION-04", "QMG-02", "DRG-11", "REG-21", "REG-23"),
    "qnn-takes-short-names": ("PRE-10", "PRE-11"),
    "qnn-cuts-names": ("PRE-10", "PRE-11"),
    "qnn-keeps-what-stands-before-a-middle": ("REG-08", "REG-22"),
    "qnn-keeps-registrations-of-contexts": ("CTX-01", "REG-01", "QLEAK-02"),
    "qnn-keeps-descriptors": ("DRG-10", "QLEAK-01", "QLEAK-02"),
    "qnn-closes-descriptors": ("DRG-09", "QTHR-03", "QTHR-06", "OOM-05"),
}
"""Rules whose cases meet a fault: its owner, and those that were accused of it before."""
SLOW = {
    "qnn-keeps-its-lock-in-register",
    "qnn-keeps-its-lock-in-deregister",
    "qnn-keeps-its-recursive-lock",
    "qnn-keeps-registrations-of-contexts",
    "qnn-keeps-descriptors",
    "qnn-dies-with-several-handles",
    "qnn-keeps-what-stands-before-a-middle",
}
"""Faults whose cases wait for seconds, for a hang or for what is given back late, or are many."""
OTHERWISE = {"qnn-keeps-registrations-of-contexts": "CTX-10"}
"""The owner instead, if malloc gives each context the place of the one before: what that one has kept makes
registrations of one buffer be refused, so that only buffers of their own show what is kept."""
RARE = {
    "qnn-keeps-registrations-of-contexts",
    "qnn-keeps-its-recursive-lock",
    "qnn-keeps-what-stands-before-a-middle",
    "qnn-takes-short-names",
    "qnn-cuts-names",
}
"""Faults that few cases meet: these are judged with as many as a run has."""


@needs_a_compiler
@pytest.mark.parametrize("name", [later(name) if name in SLOW else name for name in FURTHER])
def test_a_fault_is_the_finding_of_its_owner_alone(name: str, tmp_path: Path) -> None:
    fault = FURTHER[name]
    library = faults.build(tmp_path, fault.subject, name, faults.replaced(name, fault))
    target = blame.open_library(library, fault.subject, fault.timeout)
    rules = [catalogue()[rule_id] for rule_id in MEETING[name]]
    found = blame.judged_by(rules, target, 1, whole=name in RARE)
    assert set(found.seen) in ({fault.owner}, {OTHERWISE.get(name, fault.owner)})
    assert not found.unjudged
