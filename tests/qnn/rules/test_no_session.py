"""A backend that opens no session: who says so, and that nothing is skipped that could be judged."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.search import Search
from pytest_qnn.core.verdict import Outcome, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.rules import catalogue

RULES = {rule.id: rule for rule in catalogue().values() if rule.subject == "memory"}
PROFILE = PROFILES["quick"]


@pytest.fixture(scope="module")
def refusing() -> Iterator[MemoryTarget]:
    """A backend whose backendCreate answers 4004, in children."""
    target = open_memory_target("mutant:backend-refused", "emulated", "fork", 10.0)
    yield target
    target.close()


@pytest.fixture(scope="module")
def in_process() -> Iterator[MemoryTarget]:
    """The same in this process, where each case tries to open a session."""
    target = open_memory_target("mutant:backend-refused", "emulated", "off", 10.0)
    yield target
    target.close()


def test_one_rule_is_red_and_names_the_call(refusing: MemoryTarget) -> None:
    verdicts = [judge(rule, refusing, PROFILE, 1) for rule in RULES.values()]
    red = {
        verdict.rule: verdict
        for verdict in verdicts
        if verdict.outcome not in (Outcome.PASS, Outcome.UNSUPPORTED)
    }
    assert list(red) == ["IF-12"]
    finding = red["IF-12"].finding
    assert finding is not None
    assert "backendCreate answers 4004" in finding.seen
    judged = {verdict.rule for verdict in verdicts if verdict.outcome is Outcome.PASS}
    assert {"IF-01", "IF-02", "IF-07", "IF-11", "CAP-01", "RPC-02", "DRG-03"} <= judged
    not_tried = [verdict for verdict in verdicts if not verdict.examples]
    assert len(not_tried) > len(verdicts) / 2


def test_what_is_not_tried_would_be_unsupported_all_the_same(
    refusing: MemoryTarget, in_process: MemoryTarget
) -> None:
    """Rule by rule: of the case that is carried out after all, in a session that is tried."""
    foreseen = 0
    for rule in RULES.values():
        try:
            cases = itertools.islice(Search(rule.cases(refusing.facts), 3, 7), 3)
        except NothingToJudge:
            continue
        for case in cases:
            expected = unsupported(rule, case, refusing.foreseen(case))
            if expected:
                foreseen += 1
                trace = msgspec.structs.replace(in_process.run(case), facts=refusing.facts)
                assert unsupported(rule, case, trace), rule.id
    assert foreseen > 300


def unsupported(rule: Any, case: Any, trace: MemoryTrace | None) -> str:
    with contextlib.suppress(Violation):
        try:
            rule.check(case, trace)
        except Unsupported as found:
            return found.reason
    return ""


def test_no_case_tries_again(refusing: MemoryTarget, in_process: MemoryTarget) -> None:
    """The codes are those of the attempts while the target was learned of."""
    assert refusing.foreseen(None) == MemoryTrace(session=refusing.facts.session, facts=refusing.facts)  # type: ignore[arg-type] # every case opens alike
    assert refusing.facts.session[-1] == ("backendCreate", Error.BACKEND_ERROR_INVALID_ARGUMENT)
    assert in_process.foreseen(None) is None  # type: ignore[arg-type]


def test_a_session_that_opens_is_not_foreseen() -> None:
    target = open_memory_target("reference", "emulated", "fork", 10.0)
    assert target.foreseen(None) is None  # type: ignore[arg-type]
    target.close()


@pytest.mark.parametrize(
    ("rule_id", "call", "code"),
    [
        ("IF-12", "backendCreate", Error.BACKEND_ERROR_UNSUPPORTED_PLATFORM),
        ("IF-12", "backendCreate", Error.BACKEND_ERROR_CANNOT_INITIALIZE),
        ("IF-13", "deviceCreate", Error.DEVICE_ERROR_HARDWARE_UNAVAILABLE),
    ],
)
def test_the_wrong_machine_is_no_violation(rule_id: str, call: str, code: Error) -> None:
    """The sentence names the call and the code, and what to do."""
    facts = MemoryFacts(session=(("getProviders", 0), (call, int(code))))
    with pytest.raises(
        NothingToJudge, match=f"{call} answers {int(code)} .* where it has the hardware"
    ) as found:
        RULES[rule_id].cases(facts)
    assert not found.value.unsupported


def test_a_backend_that_takes_no_operator_is_inconclusive() -> None:
    facts = MemoryFacts(session=(("backendCreate", 0),), capabilities={107: 0})
    with pytest.raises(NothingToJudge, match="accepts none of the suite's operators"):
        RULES["PRE-11"].cases(facts)
