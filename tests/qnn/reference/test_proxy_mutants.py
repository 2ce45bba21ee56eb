from __future__ import annotations

import importlib.util
from contextlib import closing
from pathlib import Path

import pytest
from fast_run import part
from over_the_reference import OverTheReference

from pytest_qnn.core import forms
from pytest_qnn.core.engine import first_failure, judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.mutants import table
from pytest_qnn.qnn.proxies import OWN, proxy_table
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue

PAIRS = [(mutant, rule) for mutant in proxy_table().values() for rule in mutant.kills]
IO_BUFFERS = "SHB-13"
"""It counts mappings, and the reference makes IO buffers where a proxy has made a handle raw memory."""
OVER_A_REAL_LIBRARY = {
    "reg-reversed": "REG-02",
    "reg-keeps-first": "REG-08",
    "reg-never-too-small": "REG-15",
    "reg-tombstones": "REG-24",
    "drg-stops-at-bad": "DRG-05",
    "reg-ends-first": "REG-21",
    "ctx-leaks": "CTX-01",
    "shared-offset-32": "SHB-06",
    "shared-one-handle": "SHB-07",
    "bound-offset-ignored": "SHB-08",
    "bound-any-context": "CTX-05",
    "bound-stale": "EXE-04",
}


def test_at_least_ten_faults_can_stand_in_front_of_a_library() -> None:
    assert len(proxy_table()) >= 10
    assert set(proxy_table()) - set(table()) == {mutant.name for mutant in OWN}


@pytest.mark.parametrize("rule", part(sorted({rule for _, rule in PAIRS} - {IO_BUFFERS}), 0, 6))
def test_the_same_rule_is_quiet_without_the_fault(rule: str) -> None:
    verdict = judge(catalogue()[rule], OverTheReference(None), PROFILES["quick"], seed=3)
    expected = Outcome.UNSUPPORTED if rule in ("CAP-02", "ION-06") else Outcome.PASS
    assert verdict.outcome == expected, verdict


@pytest.mark.parametrize("name", part(OVER_A_REAL_LIBRARY, 0, 3))  # all are found in front of the reference
def test_a_fault_in_front_of_libqnnhtp_is_found(name: str) -> None:
    wheel = importlib.util.find_spec("onnxruntime_qnn")
    if wheel is None or not wheel.submodule_search_locations:
        pytest.skip("there is no wheel of onnxruntime-qnn for this platform")
    library = Path(wheel.submodule_search_locations[0], "libQnnHtp.so")
    rule = OVER_A_REAL_LIBRARY[name]
    assert rule in proxy_table()[name].kills
    target = open_memory_target(f"proxy-mutant:{name}:{library}", "emulated", "auto", 10.0)
    with closing(target):
        assert target.isolated
        assert first_failure(catalogue()[rule], target, PROFILES["default"], 3) is not None
        assert target.provenance()["library"] == str(library)


def test_a_fault_that_there_is_not_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetUnusable, match="there is no memory mutant of this name"):
        open_memory_target(f"proxy-mutant:none:{tmp_path}", "emulated", "auto", 10.0)


def test_the_library_behind_a_faulty_proxy_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "lib.so").touch()
    good = f"proxy-mutant:reg-reversed:{tmp_path / 'lib.so'}"
    assert forms.library("--qnn-backend", good, ("reference",)) == good
    assert forms.unwrapped(good) == ("proxy-mutant:reg-reversed:", str(tmp_path / "lib.so"))
    for bad in ("proxy-mutant:reg-reversed:gone.so", "proxy-mutant:reg-reversed"):
        with pytest.raises(forms.BadOption):
            forms.library("--qnn-backend", bad, ("reference",))
