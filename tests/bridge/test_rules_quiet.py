from __future__ import annotations

import functools
import importlib.util
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from fast_run import first
from kept import keep

from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.verdict import Examined, Outcome
from pytest_qnn.mutants import table
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.mutants import QNN
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

pytestmark = pytest.mark.usefixtures("lessons")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
RULES = sorted(rule.id for rule in catalogue().values() if rule.area == "TFL")
MUTANTS = [mutant for mutant in table().values() if mutant.part == QNN]
FEW = Profile("few", in_process_examples=5, isolated_examples=5)


@functools.cache
def _target(backend: str, runtime: str) -> DelegateTarget:
    return keep(open_delegate_target([("qnn-reference", {"backend": backend})], runtime, "auto", 60.0))


def _htp() -> str:
    found = importlib.util.find_spec("onnxruntime_qnn")
    if found is None or not found.submodule_search_locations:
        pytest.skip("there is no wheel of onnxruntime-qnn for this platform")
    return str(Path(found.submodule_search_locations[0], "libQnnHtp.so"))


def _expected(rule_id: str, *, registers: bool) -> Outcome:
    """TFL-04 is about backends that register nothing, TFL-09 and TFL-15 are about the others."""
    about_others = ("TFL-04",) if registers else ("TFL-09", "TFL-15")
    return Outcome.UNSUPPORTED if rule_id in about_others else Outcome.PASS


@pytest.mark.full  # 20 s each
@pytest.mark.parametrize("prefix", ["proxy:", ""])
def test_no_rule_accuses_the_reference_on_the_htp_simulator(prefix: str) -> None:
    target = _target(prefix + _htp(), RUNTIMES[0])
    # libQnnHtp on a host has no QnnMem; the proxy adds it.
    assert target.facts.registers is bool(prefix)
    verdicts = {rule_id: judge(catalogue()[rule_id], target, FEW, seed=1) for rule_id in RULES}
    expected = {rule_id: _expected(rule_id, registers=bool(prefix)) for rule_id in RULES}
    assert {rule_id: verdict.outcome for rule_id, verdict in verdicts.items()} == expected


@pytest.mark.parametrize("mutant", first(MUTANTS, 4), ids=lambda mutant: mutant.name)
def test_the_minimal_case_of_a_mutant_passes_on_the_reference(mutant: Mutant) -> None:
    rule = catalogue()[mutant.kills[0]]
    with closing(open_delegate_target([(f"mutant:{mutant.name}", {})], RUNTIMES[0], "off", 10.0)) as target:
        verdict = judge(rule, target, PROFILES["default"], seed=1)
    assert verdict.finding is not None
    case = msgspec.json.decode(verdict.finding.case, type=ScriptCase)
    found = judge_case(rule, _target(mutant.made.backend or "reference", RUNTIMES[0]), case)
    assert isinstance(found, Examined), verdict.finding


@pytest.mark.parametrize("rule_id", first(["CTRL-01", "CTRL-02"]))
def test_partitions_without_results_are_left_to_the_cpu(rule_id: str) -> None:
    verdict = judge(catalogue()[rule_id], _target("reference", RUNTIMES[1]), PROFILES["quick"], seed=1)
    assert verdict.outcome is Outcome.PASS, verdict
