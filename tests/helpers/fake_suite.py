"""A catalogue of made-up rules and targets that behave to order, for the tests of plugin and report.

``install`` puts them in place of the real ones. For runs in a process of their own, name this module with
``-p fake_suite``: as a plugin it installs itself.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from reducing import Reducing

import pytest_qnn
from pytest_qnn import rules
from pytest_qnn.core.evidence import Call, Evidence, Frame
from pytest_qnn.core.rule import Rule, Subject
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.options import Options
from pytest_qnn.qnn.cases import case as memory
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.trace import DelegateTrace

CASE = MemoryCase((memory.ContextCreate("c0"), memory.Alloc("b0", 4096)))
CRASH = MemoryCase((memory.ContextCreate("c0"), memory.ContextFree("crash")))
LEFT = Evidence(
    during="QnnMem_register",
    fault="SEGV_MAPERR at 0x8, near NULL",
    frames=(Frame("/nowhere/libfoo.so", 0x1234), Frame("", 0x7F0000000000)),
    calls=(Call("QnnContext_create", 0, 0, "0 QNN_SUCCESS"), Call("QnnMem_register", None, 1)),
    stderr="loaded\nfoo.c:12: register: Assertion `handle <&>' failed.",
)
"""Of the case `CRASH`, where the environment has FAKE_EVIDENCE."""
HANG = MemoryCase((memory.ContextCreate("c0"), memory.ContextFree("hang")))
EXIT = MemoryCase((memory.ContextFree("exit"),))
GRAPH = Graph((Tensor((1, 2)), Tensor((1, 2))), (Node("ABS", (0,), (1,)),), (0,), (1,))


class TargetUnusable(Exception):  # noqa: N818 - the name is the real module's
    pass


class FakeTarget(Reducing):
    isolated = False
    facts = None

    def __init__(self, subject: Subject, spec: str, options: tuple[str, ...]) -> None:
        self.subject = subject
        self.spec = spec
        self.options = options

    def run(self, case: Any) -> Any:
        if self.subject == "delegate":
            return DelegateTrace()
        if case == EXIT:
            os._exit(3)
        death = {
            CRASH: Death(
                "signal", "SIGSEGV", step=1, evidence=LEFT if os.environ.get("FAKE_EVIDENCE") else Evidence()
            ),
            HANG: Death("hang", "no answer within 10 s", step=1),
        }.get(case)
        return MemoryTrace(death=death)

    def provenance(self) -> dict[str, str]:
        if self.subject == "delegate":
            return {"runtime": "fake_runtime", "runtime_version": "1.2"}
        return {"library": self.spec, "library_sha256": "0" * 64}

    def close(self) -> None:
        if log := os.environ.get("FAKE_LOG"):
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"closed {self.subject}\n")


def passes(case: Any, trace: Any) -> Examined:
    return Examined(1, "calls")


def fails(case: Any, trace: Any) -> Examined:
    if case not in (CASE, DelegateCase(GRAPH)):  # smaller ones are innocent
        return Examined(0, "")
    raise Violation("0 (success)", "code 1000 <&>", "step 1", "t0 -> [ABS]\n      -> t1")


def disagrees(case: Any, trace: Any) -> Examined:
    raise Contradiction("the key's answer to hold", "supported, then 1000")


def unsupported(case: Any, trace: Any) -> Examined:
    raise Unsupported("the key answers 1000")


def looks_at_nothing(case: Any, trace: Any) -> Examined:
    return Examined(0, "calls")


def stumbles(case: Any, trace: Any) -> Examined:
    raise ZeroDivisionError("a mistake of ours")


def _rule(
    rule_id: str, check: Callable[..., Examined], case: Any = CASE, level: Level = Level.MUST, **more: Any
) -> Rule[Any, Any, Any]:
    return Rule(
        id=rule_id,
        level=level,
        sentence=f"Sentence of {rule_id}.",
        source="seed 000, section 0",
        subject=more.pop("subject", "memory"),
        cases=lambda _facts: st.just(case),
        check=check,
        **more,
    )


CATALOGUE = {
    rule.id: rule
    for rule in (
        _rule("REG-01", passes),
        _rule("REG-02", fails),
        _rule("REG-03", passes, CRASH),
        _rule("REG-04", passes, HANG),
        _rule("REG-05", disagrees),
        _rule("REG-06", unsupported),
        _rule("REG-07", looks_at_nothing),
        _rule("REG-08", fails, level=Level.SHOULD),
        _rule("REG-09", passes, CRASH, level=Level.SHOULD),
        _rule("REG-10", fails, level=Level.MAY),
        _rule("REG-11", stumbles),
        _rule("REG-12", passes, EXIT),
        _rule("PART-01", passes, DelegateCase(GRAPH), subject="delegate"),
        _rule("PART-02", fails, DelegateCase(GRAPH), subject="delegate", self_check=True),
    )
}


HOSTILE_TEXT = "a\x1b[2J\x07\x9b31m\r\u202eb\u2066\udc80\ud800\x00<&>"
"""What would do something to a terminal, a page or a file."""
HOSTILE_LEFT = msgspec.structs.replace(
    LEFT,
    during=HOSTILE_TEXT,
    fault=HOSTILE_TEXT,
    frames=(Frame(f"/nowhere/{HOSTILE_TEXT[:5]}", 1), *LEFT.frames),
    calls=(Call(HOSTILE_TEXT, 0, 0, HOSTILE_TEXT), Call(HOSTILE_TEXT, None, 1)),
    stderr=f"{HOSTILE_TEXT}\nAssertion {HOSTILE_TEXT}",
)


def fails_with_hostile_text(case: Any, trace: Any) -> Examined:
    if case != CASE:
        return Examined(0, "")
    raise Violation(HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, f"{HOSTILE_TEXT}\n  {HOSTILE_TEXT}")


def unsupported_with_hostile_text(case: Any, trace: Any) -> Examined:
    raise Unsupported(HOSTILE_TEXT)


def stumbles_with_hostile_text(case: Any, trace: Any) -> Examined:
    raise RuntimeError(f"{HOSTILE_TEXT}\n{HOSTILE_TEXT}")


HOSTILE = {
    rule.id: rule
    for rule in (
        _rule("REG-13", fails_with_hostile_text),
        _rule("REG-14", unsupported_with_hostile_text),
        _rule("REG-15", fails_with_hostile_text, level=Level.SHOULD),
        _rule("REG-16", stumbles_with_hostile_text),
    )
}
"""In runs of a process of their own, where the environment has FAKE_HOSTILE."""


def open_target(subject: Subject, options: Options) -> FakeTarget:
    if subject == "delegate":
        spec = " + ".join(name for name, _ in options.delegates)
        words = (f"--tflite-runtime={options.runtime}", f"--tflite-delegate={spec}")
        return FakeTarget("delegate", spec, words)
    if options.backend == "mutant:unusable":
        raise TargetUnusable(f"--qnn-backend {options.backend}: it is no library.")
    words = (f"--qnn-backend={options.backend}", f"--qnn-rpcmem={options.rpcmem}")
    return FakeTarget("memory", options.backend, words)


def fake_targets() -> types.ModuleType:
    module = types.ModuleType("pytest_qnn.targets")
    for name in ("TargetUnusable", "open_target"):
        setattr(module, name, globals()[name])
    return module


def of_area(area: str) -> dict[str, Rule[Any, Any, Any]]:
    return {rule_id: rule for rule_id, rule in CATALOGUE.items() if rule.area == area}


def install(patch: pytest.MonkeyPatch) -> None:
    module = fake_targets()
    patch.setattr(rules, "catalogue", lambda: CATALOGUE)
    patch.setattr(rules, "listed", lambda: CATALOGUE)
    patch.setattr(rules, "of_area", of_area)
    patch.setitem(sys.modules, "pytest_qnn.targets", module)
    patch.setattr(pytest_qnn, "targets", module, raising=False)


def suite(*rule_ids: str) -> str:
    """Source of a test module that judges these rules as the conformance suite does."""
    tests = [
        f'def test_{rule_id.lower().replace("-", "_")}(judge: Judge) -> None:\n    judge("{rule_id}")\n'
        for rule_id in rule_ids
    ]
    return "\n".join(["from pytest_qnn.plugin import Judge\n", *tests])


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    install(patch)
    if os.environ.get("FAKE_HOSTILE"):
        patch.setattr(sys.modules[__name__], "LEFT", HOSTILE_LEFT)
        CATALOGUE.update(HOSTILE)
