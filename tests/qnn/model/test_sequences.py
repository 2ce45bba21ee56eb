from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest
from fast_run import later, part
from hypothesis import HealthCheck, given, seed, settings

from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Outcome, Violation
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    Free,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.sizes import io_inputs
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named, one_of
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.strategies.sequences import memory_sequences
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue

LONG = 200
QUICK = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
EXAMPLES = pytest.mark.parametrize("examples", [5, later(25)])
CUSTOM = 2
SHAPE = (1, 2, 2, 2)
TENSOR_BYTES = 8


@pytest.fixture(scope="module", params=sorted(PERSONALITIES))
def personality(request: pytest.FixtureRequest) -> Iterator[MemoryTarget]:
    with closing(open_memory_target(f"reference:{request.param}", "emulated", "off", 10.0)) as target:
        yield target


def disagreements(target: MemoryTarget, case: MemoryCase) -> list[str]:
    """Answers of the target that its own model does not allow."""
    trace = target.run(case)
    assert len(trace.steps) == len(case.steps)
    without = not target.facts.supports(1101)
    found = []
    for walked in walk(case, trace):
        demanded = walked.allowed.specified and walked.allowed.codes and walked.code is not None
        refused = without and isinstance(walked.step, Register | Deregister) and walked.code == 1000
        if demanded and not refused and walked.code not in walked.allowed.codes:
            found.append(
                f"step {walked.index}, {walked.step}: {named(walked.code or 0)}, "
                f"allowed {one_of(walked.allowed.codes)} for {walked.allowed.wrong}"
            )
    return found


@EXAMPLES
@pytest.mark.parametrize("personality", part(sorted(PERSONALITIES), 0), indirect=True)
def test_the_model_and_every_personality_agree_on_long_sequences(
    personality: MemoryTarget, examples: int
) -> None:
    lengths: list[int] = []

    @settings(QUICK, max_examples=examples)
    @seed(5)
    @given(case=memory_sequences(personality.facts, LONG))
    def agree(case: MemoryCase) -> None:
        lengths.append(len(case.steps))
        assert disagreements(personality, case) == []

    agree()
    assert max(lengths) > LONG // 2


def rough(scene: Scene, tape: Tape) -> None:
    """A client that does things in any order: up to 200 steps over few contexts, buffers and offsets."""
    scene.context()
    for _ in range(LONG):
        act = tape.below(len(ACTS) + 1)
        if act and len(scene.steps) < LONG - 2:
            ACTS[act - 1](scene, tape.cut(4))


def _create(scene: Scene, tape: Tape) -> None:
    if len(scene.contexts) < 3:
        scene.context()
    else:
        scene.free_context(tape.pick(scene.contexts))


def _allocate(scene: Scene, tape: Tape) -> None:
    scene.alloc(4096 * (1 + tape.below(2)))


def _free(scene: Scene, tape: Tape) -> None:
    if scene.buffers:
        scene.free(tape.pick(list(scene.buffers)))


def _register(scene: Scene, tape: Tape) -> None:
    if not scene.buffers:
        scene.alloc(4096)
    buffer, kind = tape.pick(list(scene.buffers)), tape.pick(scene.types)
    offset = 4 * tape.below(6) if kind == CUSTOM else 0
    scene.register(scene.any_context(tape), Descriptor(buffer, SHAPE, mem_type=kind, offset=offset))


def _deregister(scene: Scene, tape: Tape) -> None:
    names = [*scene.handles, *scene.dead]
    if names:
        name = tape.pick(names)
        scene.add(Deregister((name,)))
        if name in scene.handles:
            scene.dead[name] = scene.handles.pop(name)


def _execute(scene: Scene, tape: Tape) -> None:
    graph = tape.pick(list(scene.graphs)) if scene.graphs else scene.prepare(scene.any_context(tape), tape)
    if graph and (names := [*scene.handles, *scene.dead]):
        last = Binding("handle", tape.pick(names))
        inputs = io_inputs(scene.graphs[graph])
        scene.add(Execute(graph, (*(Binding(seed=position) for position in range(inputs)), last)))


ACTS = (_register, _register, _deregister, _execute, _create, _free, _allocate, _register)


@EXAMPLES
@pytest.mark.parametrize("personality", part(sorted(PERSONALITIES), 1), indirect=True)
def test_the_model_and_every_personality_agree_on_clients_that_keep_no_order(
    personality: MemoryTarget, examples: int
) -> None:
    kinds: Counter[str] = Counter()

    @settings(QUICK, max_examples=examples)
    @seed(6)
    @given(case=scenes(personality.facts, rough, core_bytes=5 * LONG, before=0, after=0))
    def agree(case: MemoryCase) -> None:
        kinds.update(type(step).__name__ for step in case.steps)
        assert disagreements(personality, case) == []

    agree()
    assert min(kinds[name] for name in ("Register", "Deregister", "Free", "ContextFree")) > 20


def test_a_sequence_of_200_steps_runs_and_is_judged_in_little_time() -> None:
    steps: list[AnyStep] = [ContextCreate("c"), Alloc("b", 4096)]
    for number in range(LONG // 2 - 1):
        name = f"h{number}"
        steps += [Register("c", (Descriptor("b", SHAPE),), (name,)), Deregister((name,))]
    case = MemoryCase(tuple(steps))
    with closing(open_memory_target("reference", "emulated", "off", 10.0)) as target:
        target.run(case)
        started = time.process_time()
        assert disagreements(target, case) == []
        assert time.process_time() - started < 0.5
    assert len(case.steps) == LONG


# Whatever is destroyed first


def _descriptors(facts: MemoryFacts) -> tuple[Descriptor, Descriptor]:
    """Two tensors: in one buffer where the target has shared buffers, else in two."""
    if facts.supports(1103):
        one, two = (Descriptor("b", SHAPE, mem_type=CUSTOM, offset=at) for at in (0, TENSOR_BYTES))
        return one, two
    return Descriptor("b", SHAPE), Descriptor("b2", SHAPE)


@pytest.mark.parametrize("step", [11, later(1)])
def test_any_order_of_destruction_is_survived_and_told_right(personality: MemoryTarget, step: int) -> None:
    one, two = _descriptors(personality.facts)
    scene = Scene(personality.facts)
    op, dtype = scene.operators[0]
    prepared = [Prepare(name, name, op, dtype, SHAPE) for name in "cd"]
    made: tuple[AnyStep, ...] = (
        *(ContextCreate("c"), ContextCreate("d"), Alloc("b", 4096), Alloc("b2", 4096)),
        Register("c", (one, two), ("h0", "h1")),
        Register("d", (one,), ("h2",)),
        *prepared,
    )
    ends: tuple[AnyStep, ...] = (
        Deregister(("h0",)),
        Deregister(("h1", "h2")),
        ContextFree("c"),
        ContextFree("d"),
        Free("b"),
    )
    raw = (Binding(), Binding(), Binding())
    for order in itertools.islice(itertools.permutations(ends), 0, None, step):
        used = (Execute("c", raw), Execute("d", raw), Register("d", (two,), ("h3",)))
        assert disagreements(personality, MemoryCase((*made, *order, *used))) == [], order


def test_a_number_given_out_again_is_a_new_buffer_on_every_personality(personality: MemoryTarget) -> None:
    steps: list[AnyStep] = [ContextCreate("c")]
    (kind,) = {descriptor.mem_type for descriptor in _descriptors(personality.facts)}
    for number in range(LONG // 5):
        name = f"b{number}"
        size = 4096 * (1 + number % 3)
        whole = Descriptor(name, (size,), mem_type=kind)
        steps += [Alloc(name, size), Register("c", (whole,), ("h",)), Deregister(("h",)), Free(name)]
    assert disagreements(personality, MemoryCase(tuple(steps))) == []


# What is left of a long sequence


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [later("reg-tombstones", "REG-24"), ("drg-clears-context", "DRG-11"), ("ctx-frees-siblings", "CTX-03")],
)
def test_no_step_of_a_shrunk_sequence_can_go(mutant: str, rule: str) -> None:
    with closing(open_memory_target(f"mutant:{mutant}", "emulated", "off", 10.0)) as target:
        verdict = judge(catalogue()[rule], target, PROFILES["default"], seed=1)
        assert verdict.outcome is Outcome.FAIL
        assert verdict.finding is not None
        case = msgspec.json.decode(verdict.finding.case, type=MemoryCase)
        steps = case.steps
        assert 2 <= len(steps) <= 10
        for at in range(len(steps)):
            less = MemoryCase((*steps[:at], *steps[at + 1 :]))
            assert not isinstance(judge_case(catalogue()[rule], target, less), Violation), steps[at]
