from __future__ import annotations

import functools

import pytest

from pytest_qnn.engine import judge
from pytest_qnn.profile import PROFILES
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import DelegateTarget, open_delegate_target
from pytest_qnn.verdict import Outcome

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
CHAINS = (("reference",), ("xnnpack",), ("reference", "xnnpack"), ("xnnpack", "reference"))
RULES = sorted(rule.id for rule in catalogue().values() if rule.subject == "delegate")

UNSUPPORTED = {
    # The XNNPACK of tflite-runtime 2.14 claims no int8 node by default.
    ("xnnpack", "tflite_runtime"): {"NUM-03", "NUM-04"},
}


@functools.cache
def _target(chain: tuple[str, ...], runtime: str) -> DelegateTarget:
    return open_delegate_target([(name, {}) for name in chain], runtime, "off", 10.0)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("chain", CHAINS, ids="+".join)
@pytest.mark.parametrize("rule_id", RULES)
def test_no_rule_accuses_a_conforming_delegate(rule_id: str, chain: tuple[str, ...], runtime: str) -> None:
    verdict = judge(catalogue()[rule_id], _target(chain, runtime), PROFILES["quick"], seed=1)
    silent = rule_id in UNSUPPORTED.get(("+".join(chain), runtime), ())
    assert verdict.outcome is (Outcome.UNSUPPORTED if silent else Outcome.PASS), verdict
    assert (verdict.examined > 0) is not silent
