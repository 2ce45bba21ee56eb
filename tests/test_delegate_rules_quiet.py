from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from kept import keep

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
    ("xnnpack", "tflite_runtime"): {"NUM-03", "NUM-04", "NUM-05"},
}


@functools.cache
def _target(chain: tuple[str, ...], runtime: str) -> DelegateTarget:
    return keep(open_delegate_target([(name, {}) for name in chain], runtime, "off", 10.0))


def _lacking(chain: tuple[str, ...], runtime: str) -> Iterator[str]:
    """Ids of rules, or of areas with their hyphen, that find nothing to look at."""
    yield from UNSUPPORTED.get(("+".join(chain), runtime), ())
    yield "PART-20"  # none of them previews its partitions
    yield from ("PART-12", "PART-13", "PART-14")  # none of them has options that limit partitions
    yield "LIFE-14"  # they are judged in this process, which does not end
    yield from ("ABI-11", "TFL-")  # none is opaque, or offers custom memory
    yield from (f"BUF-{number:02}" for number in range(1, 11) if number != 3)  # results stay in no buffers
    if not (chain[0] == "xnnpack" and runtime == "ai_edge_litert"):
        yield from ("DYN-02", "DYN-03")  # the first delegate allows no dynamic tensors
    if chain == ("xnnpack",):  # it has no plugin interface
        yield from (f"ABI-{number:02}" for number in range(1, 15) if number != 13)
    if chain[0] == "xnnpack":
        yield "CTRL-03"  # it never looks into another subgraph
    if "xnnpack" in chain:
        yield "XNN-01"  # it leaves the runtime's own XNNPACK nothing


def _expected(rule_id: str, chain: tuple[str, ...], runtime: str) -> Outcome:
    """A pass, except where there is nothing to look at."""
    lacking = rule_id.startswith(tuple(_lacking(chain, runtime)))
    return Outcome.UNSUPPORTED if lacking else Outcome.PASS


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("chain", CHAINS, ids="+".join)
@pytest.mark.parametrize("rule_id", RULES)
def test_no_rule_accuses_a_conforming_delegate(rule_id: str, chain: tuple[str, ...], runtime: str) -> None:
    verdict = judge(catalogue()[rule_id], _target(chain, runtime), PROFILES["quick"], seed=1)
    expected = _expected(rule_id, chain, runtime)
    assert verdict.outcome is expected, verdict
    assert (verdict.examined > 0) is (expected is Outcome.PASS)
