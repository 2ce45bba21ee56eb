"""``snippet.py`` of a finding: a test that fails on the faulty library, and passes without the fault."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from pytest_qnn.case_file import with_case
from pytest_qnn.core import engine
from pytest_qnn.core.case_file import CaseFile
from pytest_qnn.core.engine import judge
from pytest_qnn.core.verdict import Examined, Unsupported
from pytest_qnn.effort import profile
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.session import reproducers
from pytest_qnn.tflite.target import open_delegate_target

FINDINGS = {
    "memory": ("reg-same-handle", "REG-02"),
    "delegate": ("claims-twice", "PART-01"),
    "delegate-script": ("counts-once", "RSZ-01"),
    "delegate-plugin": ("plugin-refuses-silently", "ABI-04"),
    "delegate-domain": ("wrong-for-scalars", "DOM-01"),
}
"""By the kind of its case: a mutant, and the rule that finds it."""


@pytest.mark.parametrize(("kind", "mutant", "rule"), [(kind, *found) for kind, found in FINDINGS.items()])
def test_it_fails_where_the_finding_was_made_and_passes_on_the_reference(
    kind: str, mutant: str, rule: str
) -> None:
    half = table()[mutant].subject
    place = PLACES[half][0]
    with closing(opened(table()[mutant], place)) as target:
        text = snippet(target, rule, kind)
        with pytest.raises(AssertionError, match="expected "):
            run(text, target)
    faultless = (
        open_memory_target("reference", "emulated", "auto", 10.0)
        if half == "memory"
        else open_delegate_target([("reference", {})], place, "auto", 10.0)
    )
    with closing(faultless) as target:
        run(text, target)


def test_it_passes_only_where_the_rule_has_looked_at_something(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, rule = FINDINGS["memory"]
    with closing(opened(table()[mutant], PLACES["memory"][0])) as target:
        text = snippet(target, rule, "memory")
    found: Any = Unsupported("there is no such call")
    monkeypatch.setattr(engine, "judge_case", lambda *_: found)
    with pytest.raises(pytest.skip.Exception, match="there is no such call"):
        run(text, None)
    found = Examined(0, "calls")
    with pytest.raises(AssertionError):
        run(text, None)
    found = Examined(1, "calls")
    run(text, None)


def snippet(target: Any, rule: str, kind: str) -> str:
    verdict = judge(catalogue()[rule], target, profile("default"), seed=1)
    assert verdict.finding is not None, verdict
    common = {"schema": 2, "rule": rule, "target": "elsewhere.so", "options": (), "seed": 1}
    said = {name: getattr(verdict.finding, name) for name in ("expected", "seen", "where")}
    content: CaseFile = with_case(target.subject, verdict.finding.case, common | said)
    assert content.__struct_config__.tag == kind
    text = reproducers.files(target, verdict, content)[reproducers.SNIPPET].decode()
    assert "elsewhere" not in text
    return text


def run(text: str, target: Any) -> None:
    names: dict[str, Any] = {}
    exec(compile(text, "snippet.py", "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test(target)
