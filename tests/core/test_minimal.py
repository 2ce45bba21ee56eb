"""Targets that fail only where several things come together: the finding has nothing besides them."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import native
import pytest
from delegate_doubles import Factory
from fast_run import first
from hypothesis import strategies as st
from minimal_doubles import FakeTarget, finding, made_up, refusing
from reducing import smaller

from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Target
from pytest_qnn.core.verdict import Outcome, Verdict, Violation
from pytest_qnn.qnn.abi import table
from pytest_qnn.qnn.cases.case import Deregister, Descriptor, MemoryCase, Observe, Register
from pytest_qnn.qnn.cases.lives import made_by, used_by
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Op
from pytest_qnn.tflite.graph.strategies import graphs
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.trace import DelegateTrace

SEEDS = (1, 2, 3)
CUSTOM = 2
WIDE = Profile("wide", in_process_examples=300, isolated_examples=100)
"""A conjunction is rare: it takes some examples to be found at all."""


def violation_of(rule: Rule[Any, Any, Any], target: Target[Any, Any], case: Any) -> type[Violation] | None:
    found = judge_case(rule, target, case)
    return type(found) if isinstance(found, Violation) else None


def assert_nothing_can_go(rule: Rule[Any, Any, Any], target: Target[Any, Any], case: Any) -> None:
    """No candidate fails in the way the case does; for memory also none without any one of its steps."""
    kind = violation_of(rule, target, case)
    assert kind is not None
    candidates = list(smaller(case, deadly=kind.outcome is Outcome.CRASH))
    if isinstance(case, MemoryCase):
        steps = case.steps
        candidates += [MemoryCase((*steps[:at], *steps[at + 1 :])) for at in range(len(steps))]
    assert candidates
    for candidate in candidates:
        assert violation_of(rule, target, candidate) is not kind, candidate


# Memory: the third registration, with an odd offset, after a deregistration


def busy(scene: Scene, tape: Tape) -> None:
    """Registrations at any offset and deregistrations, as they come."""
    scene.context()
    for _ in range(2 + tape.below(8)):
        act = tape.below(4)
        if act == 3 and scene.handles:
            scene.deregister(tape.pick(list(scene.handles)))
        else:
            buffer = scene.alloc(4096)
            offset = tape.below(64)
            scene.register(scene.any_context(tape), Descriptor(buffer, (1,), mem_type=CUSTOM, offset=offset))


REGISTRATIONS = scenes(MemoryFacts(), busy, core_bytes=40)


def breaks_registration(case: MemoryCase) -> bool:
    """The conjunction, as the library below has it; steps without their objects are skipped."""
    made: set[str] = set()
    registered = 0
    deregistered = False
    for step in case.steps:
        if not made.issuperset(used_by(step)):
            continue
        made.update(made_by(step))
        deregistered = deregistered or isinstance(step, Deregister)
        if isinstance(step, Register):
            registered += 1
            odd = step.descriptors[0].mem_type == CUSTOM and step.descriptors[0].offset % 2
            if deregistered and odd and registered == 3:
                return True
    return False


BREAKS = r"""
static int registered, deregistered;
static Error mem_register(void* context, const char* described, uint32_t count, uintptr_t* out) {
  uint32_t type;
  const char* custom;
  uint64_t offset = 0;
  memcpy(&type, described + 28, 4);
  memcpy(&custom, described + 32, sizeof custom);
  if (type == 2) memcpy(&offset, custom + 24, 8);
  ++registered;
  WRONG
  for (uint32_t i = 0; i < count; ++i) out[i] = ++next_handle;
  return 0;
}
static Error mem_deregister(void* handles, uint32_t count) { ++deregistered; return 0; }
static struct Interface interface ="""


def breaking_library(folder: Path, wrong: str) -> Path:
    names = [name for name, _ in table.FUNCTIONS]
    entries = "".join(
        f"  interface.table[{names.index(name)}] = (void*){function};\n"
        for name, function in (("memRegister", "mem_register"), ("memDeRegister", "mem_deregister"))
    )
    source = native.QNN_SOURCE.replace("static struct Interface interface =", BREAKS.replace("WRONG", wrong))
    source = source.replace("  *list = providers;\n", f"{entries}  *list = providers;\n")
    return native.build(folder, source, BEHAVIOUR="", ON_LOAD="", ON_BACKEND="", PROVIDERS="1")


def assert_it_is_the_conjunction(case: MemoryCase) -> None:
    kinds = Counter(type(step).__name__ for step in case.steps)
    # A repetition registers the same buffer several times.
    assert kinds.pop("Alloc") in (1, 2, 3)
    assert kinds == {"ContextCreate": 1, "Register": 3, "Deregister": 1}
    assert isinstance(case.steps[-1], Register)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failure_at_the_third_registration_is_found_bare(seed: int) -> None:
    rule = made_up(REGISTRATIONS, "memory", refusing(breaks_registration))
    target = FakeTarget("memory")
    verdict = judge(rule, target, WIDE, seed)
    case = msgspec.json.decode(finding(verdict).case, type=MemoryCase)
    assert_it_is_the_conjunction(case)
    assert_nothing_can_go(rule, target, case)


def test_a_library_that_dies_at_the_third_registration_is_given_the_bare_case(tmp_path: Path) -> None:
    library = breaking_library(tmp_path, "if (registered == 3 && deregistered && offset % 2) raise(SIGSEGV);")
    target = open_memory_target(str(library), "emulated", "fork", 5.0)
    try:
        rule = made_up(REGISTRATIONS, "memory")
        verdict = judge(rule, target, WIDE, 1)
        assert (verdict.outcome, verdict.flaky) == (Outcome.CRASH, "")
        assert "SIGSEGV" in finding(verdict).seen
        case = msgspec.json.decode(finding(verdict).case, type=MemoryCase)
        assert_it_is_the_conjunction(case)
        assert_nothing_can_go(rule, target, case)
    finally:
        target.close()


@pytest.mark.full
def test_a_library_that_hangs_at_an_odd_offset_is_given_the_bare_case_in_few_hangs(tmp_path: Path) -> None:
    library = breaking_library(tmp_path, "if (offset % 2) for (;;);")
    target = open_memory_target(str(library), "emulated", "fork", 0.4)
    try:
        started = time.monotonic()
        verdict = judge(made_up(REGISTRATIONS, "memory"), target, WIDE, 1)
        # One that computes gets up to five times the time of a case.
        assert time.monotonic() - started < WIDE.hang_budget * 5 * 0.4 + 5.0
        assert (verdict.outcome, verdict.flaky) == (Outcome.HANG, "")
        case = msgspec.json.decode(finding(verdict).case, type=MemoryCase)
        assert [type(step).__name__ for step in case.steps] == ["ContextCreate", "Alloc", "Register"]
    finally:
        target.close()


def test_what_a_rule_counts_is_reduced_too() -> None:
    def leaks(case: MemoryCase) -> bool:
        return breaks_registration(case) and sum(isinstance(step, Observe) for step in case.steps) == 2

    def watched(case: MemoryCase) -> MemoryCase:
        return MemoryCase((Observe(), *case.steps, Observe()))

    rule = made_up(REGISTRATIONS.map(watched), "memory", refusing(leaks))
    verdict = judge(rule, FakeTarget("memory"), WIDE, 1)
    case = msgspec.json.decode(finding(verdict).case, type=MemoryCase)
    assert_it_is_the_conjunction(MemoryCase(case.steps[1:-1]))


# Delegates: a partition of more than seven nodes with a CONCATENATION

PLAIN: tuple[Op, ...] = ("ADD", "SUB", "MUL", "CONCATENATION")


class _Overwhelmed(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        operators = [self.plan.nodes[index].op for index in nodes]
        if len(nodes) > 7 and "CONCATENATION" in operators:
            return None
        return super().init(context, nodes, inputs, outputs)


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def overwhelmed(request: pytest.FixtureRequest) -> FakeTarget:
    runtime = load_runtime(request.param)
    facts = DelegateFacts(runtime=runtime.name, delegates=("mutant",), steerable=True)

    def run(case: DelegateCase) -> DelegateTrace:
        trace = run_delegate_case(case, [Factory("mutant", _Overwhelmed)], runtime)
        return msgspec.structs.replace(trace, facts=facts)

    target = FakeTarget("delegate", run)
    vars(target)["facts"] = facts
    return target


def assert_eight_nodes_and_one_concatenation(verdict: Verdict) -> DelegateCase:
    case = msgspec.json.decode(finding(verdict).case, type=DelegateCase)
    operators = Counter(node.op for node in case.graph.nodes)
    assert operators.total() == 8
    assert operators["CONCATENATION"] == 1
    assert case.invokes == 1
    return case


@pytest.mark.parametrize("seed", first(SEEDS))
@pytest.mark.parametrize("rule_id", ["PART-04", "PREC-03"])
def test_a_delegate_that_fails_on_a_large_partition_is_given_eight_nodes(
    overwhelmed: FakeTarget, rule_id: str, seed: int
) -> None:
    rule = catalogue()[rule_id]
    verdict = judge(rule, overwhelmed, WIDE, seed)
    assert (verdict.outcome, verdict.flaky) == (Outcome.FAIL, "")
    case = assert_eight_nodes_and_one_concatenation(verdict)
    assert_nothing_can_go(rule, overwhelmed, case)


DIES = r"""
  bool joins = false;
  for (int i = 0; i < size; ++i) {
    Node* node;
    Registration* registration;
    context->get_node_and_registration(context, params->nodes_to_replace->data[i], &node, &registration);
    joins = joins || registration->builtin_code == 2;
  }
  if (size > 7 && joins) raise(SIGSEGV);
  Kernel* kernel = calloc("""

CHANGES = {
    "#include <stdlib.h>": "#include <signal.h>\n#include <stdlib.h>",
    "  const int op = registration->builtin_code;\n": "  const int op = registration->builtin_code;\n"
    "  if (op == 2) return true;\n",
    "  Kernel* kernel = calloc(": DIES,
    "    const Step* step = &kernel->steps[i];\n": "    const Step* step = &kernel->steps[i];\n"
    "    if (step->op == 2) continue;\n",
}
"""The example's delegate takes CONCATENATION (2) too, does nothing for it, and dies of it in company."""


def dying_delegate(example: Path, folder: Path) -> Path:
    source = shutil.copytree(example / "src", folder / "src")
    text = (source / "arithmetic_delegate.c").read_text()
    for right, wrong in CHANGES.items():
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    return native.build(source, text, "libdying.so")


def test_a_plugin_that_dies_of_a_large_partition_is_given_eight_nodes(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    library = dying_delegate(pytestconfig.rootpath / "examples" / "delegate_repo", tmp_path)
    target = open_delegate_target([(str(library), {})], "auto", "fork", 5.0)
    try:
        cases = graphs(max_nodes=16, ops=PLAIN, dtypes=("float32",)).map(DelegateCase)
        rule = made_up(cases, "delegate")
        verdict = judge(rule, target, WIDE, 1)
        assert (verdict.outcome, verdict.flaky) == (Outcome.CRASH, "")
        assert "SIGSEGV" in finding(verdict).seen
        case = assert_eight_nodes_and_one_concatenation(verdict)
        assert_nothing_can_go(rule, target, case)
    finally:
        target.close()


def test_the_same_seed_gives_the_same_minimal_case() -> None:
    rule = made_up(REGISTRATIONS, "memory", refusing(breaks_registration))
    first, second = (finding(judge(rule, FakeTarget("memory"), WIDE, 4)) for _ in range(2))
    assert first == second


def test_reduction_needs_no_hypothesis() -> None:
    # What Hypothesis has not shrunk at all: seven contexts' worth of strangers around the conjunction.
    strangers = st.just(MemoryCase(tuple(itertools.chain(*[_stranger(number) for number in range(7)]))))
    rule = made_up(strangers, "memory", refusing(breaks_registration))
    target = FakeTarget("memory")
    case = msgspec.json.decode(finding(judge(rule, target, WIDE, 1)).case, type=MemoryCase)
    assert len(case.steps) <= 9  # the second stranger's registration stands on a context of its own
    assert_nothing_can_go(rule, target, case)


def _stranger(number: int) -> tuple[Any, ...]:
    scene = Scene(MemoryFacts())
    scene.context()
    for offset in (1, 2):
        buffer = scene.alloc(64)
        (handle,) = scene.register("c0", Descriptor(buffer, (1,), mem_type=CUSTOM, offset=offset))
        scene.deregister(handle)
    text = msgspec.json.encode(scene.case()).decode()
    for kind, digit in itertools.product("cbh", "01"):
        text = text.replace(f'"{kind}{digit}"', f'"{kind}{number}-{digit}"')
    return msgspec.json.decode(text, type=MemoryCase).steps
