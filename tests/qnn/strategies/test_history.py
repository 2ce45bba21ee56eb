"""Every rule meets every class of history and of scale in twenty examples, but for what a table says."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import msgspec
import pytest
from fast_run import later, turn
from stratified import Decode, decoders, stratified

from pytest_qnn.core.drawing import cases_of
from pytest_qnn.core.rule import Rule
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Descriptor,
    Fill,
    Lived,
    Logged,
    MemoryCase,
    Observe,
    Prepare,
    Read,
    Register,
)
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.cases.valid import check_memory
from pytest_qnn.qnn.facts import memory_types
from pytest_qnn.qnn.strategies.company import mixed
from pytest_qnn.qnn.strategies.history import (
    ALL,
    FAR,
    FEW,
    HEAD_BYTES,
    ONCE,
    PLAIN,
    WITHOUT,
    Head,
    head_of,
)
from pytest_qnn.qnn.strategies.scene import Scene
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue

EXAMPLES = 20
MIB, GIB = 1 << 20, 1 << 30
RULES = [rule for rule in catalogue().values() if rule.subject == "memory"]
FRAMED = [rule for rule in RULES if WITHOUT.get(rule.id, (frozenset(), ""))[0] != ALL]
UNMET: dict[str, set[str]] = {
    "DRG-09": {"far"},  # the whole buffer is read
    "REG-20": {"far"},
    "REG-09": {"far"},  # the offset goes with the type that is wrong
    "REG-11": {"rank", "16 MiB"},  # the shape is what is wrong
    "SHB-12": {"1 MiB", "rank"},  # its own shapes overlap
    "SHB-13": {"batch", "large batch"},  # see `WITHOUT`
}
"""What the steps of a rule cannot have, although its cases take shapes or descriptors from the scene."""
_METHODS = ("tensor", "prepare", "register", "descriptor")
LIVES = {"refused", "registrations", "contexts", "turns", "log"}


def half(number: int) -> list[Any]:
    """In the fast run each rule meets one of two tests, which a checksum chooses."""
    return [rule if turn(rule.id) % 2 == number else later(rule) for rule in FRAMED]


@functools.cache
def facts() -> Any:
    return open_memory_target("reference", "emulated", "off", 5.0).facts


def decoder(rule: Rule[Any, Any, Any], patch: pytest.MonkeyPatch) -> tuple[int, Decode]:
    """The rule's only one; of rules that list their cases, each with one of its own, the first."""
    first, *others = decoders(rule, facts(), patch)
    assert not others or cases_of(rule.cases(facts())) is not None
    return first


def lives(case: MemoryCase) -> set[str]:
    """The kinds of history in a case."""
    found = {step.what for step in case.steps if isinstance(step, Lived)}
    return found | ({"log"} if any(isinstance(step, Logged) for step in case.steps) else set[str]())


def scales(case: MemoryCase) -> set[str]:
    """What is large in a case."""
    registers = [step for step in case.steps if isinstance(step, Register)]
    tensors = [each for step in registers for each in step.descriptors]
    graphs = [step for step in case.steps if isinstance(step, Prepare)]
    sizes = [nbytes(each.shape, each.dtype) for each in (*tensors, *graphs)]
    holds = {
        "batch": any(2 <= len(step.descriptors) <= 8 for step in registers),
        "large batch": any(len(step.descriptors) > 8 for step in registers),
        "4 KiB": any(size > 4096 for size in sizes),
        "1 MiB": any(size > MIB for size in sizes),
        "16 MiB": any(nbytes(each.shape, each.dtype) > 16 * MIB for each in tensors),
        "rank": any(len(each.shape) > 4 for each in (*tensors, *graphs)),
        "offset": any(MIB <= each.offset < 2 * MIB for each in tensors),
        "far": any(GIB <= each.offset < 8 * GIB for each in tensors),
        "version": any(step.version >= 2 for step in graphs),
    }
    return {name for name, held in holds.items() if held}


def test_the_table_names_exactly_the_rules_whose_cases_have_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    headless = {rule.id for rule in RULES if not decoders(rule, facts(), monkeypatch)}
    everything = {rule_id for rule_id, (kinds, _) in WITHOUT.items() if kinds == ALL}
    assert headless <= everything
    for rule in (rule for rule in RULES if rule.id in everything - headless):
        size, decode = decoder(rule, monkeypatch)
        for case in (decode(data) for data in stratified(size, EXAMPLES, seed=3)):
            assert lives(case) <= {"log"}
            assert scales(case) <= {"batch"}  # as any case that registers may have
    assert all(kinds and reason for kinds, reason in WITHOUT.values())
    assert {rule.id for rule in RULES} >= WITHOUT.keys()


@pytest.mark.parametrize("rule", half(0), ids=lambda rule: rule.id)
def test_every_rule_meets_every_kind_of_history(
    rule: Rule[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size, decode = decoder(rule, monkeypatch)
    cases = [decode(data) for data in stratified(size, EXAMPLES, seed=3)]
    met = set[str]().union(*map(lives, cases))
    assert met == {"buffers"} if rule.area == "RPC" else met >= LIVES
    assert sum(not lives(case) for case in cases) >= EXAMPLES // 2
    assert not lives(cases[0])


@pytest.mark.parametrize("rule", half(1), ids=lambda rule: rule.id)
def test_every_rule_meets_every_class_that_its_steps_can_have(
    rule: Rule[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule whose every case takes a shape, a batch or an offset from the scene, has it on every scale.

    In twice as many examples: a sixteenth of a byte is met once in sixteen, and that example may be one whose
    other bytes leave no room for it (a batch of the rule's own, a shape that is wrong on purpose).
    """
    size, decode = decoder(rule, monkeypatch)
    data = stratified(size, 2 * EXAMPLES, seed=4)
    asked = Counter[str]()
    for name in _METHODS:
        _count(monkeypatch, name, asked)
    own = [_asked(decode, bytes(HEAD_BYTES) + each[HEAD_BYTES:], asked) for each in data]
    always = {name for name in _METHODS if all(name in each for each in own)}
    met = set[str]().union(*(scales(decode(each)) for each in data))
    wanted = {"1 MiB", "rank"} if always & {"tensor", "descriptor"} else set[str]()
    wanted |= {"16 MiB", "offset", "far"} if "descriptor" in always else set[str]()
    wanted |= {"large batch", "batch"} if always >= {"register", "descriptor"} else set[str]()
    wanted |= {"version"} if "prepare" in always else set[str]()
    assert met >= wanted - UNMET.get(rule.id, set()), always


def _count(patch: pytest.MonkeyPatch, name: str, asked: Counter[str]) -> None:
    whole = getattr(Scene, name)

    def counted(scene: Scene, *arguments: Any, **named: Any) -> Any:
        asked[name] += 1
        return whole(scene, *arguments, **named)

    patch.setattr(Scene, name, counted)


def _asked(decode: Decode, data: bytes, asked: Counter[str]) -> set[str]:
    asked.clear()
    decode(data)
    return set(asked)


@pytest.mark.parametrize("rule", FRAMED, ids=lambda rule: rule.id)
def test_cases_are_valid_and_touch_no_sparse_memory(
    rule: Rule[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size, decode = decoder(rule, monkeypatch)
    for data in stratified(size, EXAMPLES, seed=5):
        case = decode(data)
        check_memory(case)
        far = {step.buffer for step in case.steps if isinstance(step, Alloc) and step.size > FAR}
        assert not [step for step in case.steps if isinstance(step, Fill | Read) and step.buffer in far]


def test_a_third_of_the_cases_is_plain() -> None:
    heads = [head_of(data) for seed in range(100) for data in stratified(HEAD_BYTES, 33, seed)[1:]]
    plain = sum(not head.past and not any(head.scale._replace(position=0, ones_last=False)) for head in heads)
    assert 0.28 < plain / len(heads) < 0.5
    assert 0.45 < sum(head.again == ONCE for head in heads) / len(heads) < 0.55


def test_each_repetition_is_met_in_twenty_examples() -> None:
    for seed in range(20):
        met = {head_of(data).again for data in stratified(HEAD_BYTES, EXAMPLES, seed)}
        few = {again for again in met if 0 < again.times <= FEW}
        assert len(few) == 7
        assert any(again.times > FEW for again in met)


def test_zero_bytes_are_plain() -> None:
    assert head_of(bytes(HEAD_BYTES)) == Head()


@pytest.mark.parametrize("kind", sorted(ALL))
def test_a_kind_that_a_rule_does_without_is_not_there(kind: Any) -> None:
    large = bytes([0xFF] * HEAD_BYTES)
    left, all_of_it = head_of(large, frozenset({kind})), head_of(large)
    assert left != all_of_it
    changed = {
        field for field in left.scale._fields if getattr(left.scale, field) != getattr(all_of_it.scale, field)
    }
    assert changed == ({kind} if kind not in ("history", "again") else set())


def test_the_rules_own_descriptors_stand_at_any_place_of_a_batch() -> None:
    scene = Scene(facts())
    own = [scene.alloc(64) for _ in range(2)]
    scene.scale = PLAIN._replace(batch=8, position=4)
    names = scene.register(scene.context(), *(Descriptor(buffer, (64,)) for buffer in own))
    step = scene.steps[-1]
    assert isinstance(step, Register)
    assert [each.buffer for each in step.descriptors[4:6]] == own
    assert (len(step.descriptors), step.handles[4:6]) == (8, names)


def test_in_a_large_batch_others_stand_between_the_rules_own_descriptors() -> None:
    assert mixed("ab", "......", 3) == tuple("...ab...")
    assert mixed("ab", ".......", 3) == tuple("a.......b")
    assert mixed("abc", "......", 3) == tuple("a......bc")
    assert mixed("a", "........", 3) == tuple("........a")
    assert mixed("a", "........", 4) == tuple("....a....")


def test_rounds_that_are_measured_are_as_the_one_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a backend makes once for a type of memory, it has made before the first look."""
    rule = catalogue()["DRG-10"]
    known = open_memory_target("reference:dma-buf", "emulated", "off", 5.0).facts
    ((size, decode),) = decoders(rule, known, monkeypatch)
    met = set[int]()
    for case in (decode(data) for data in stratified(size, EXAMPLES, seed=3)):
        first = next(index for index, step in enumerate(case.steps) if isinstance(step, Observe))
        before, after = _tensors(case.steps[:first]), _tensors(case.steps[first:])
        assert after <= before
        met |= {each.mem_type for each in after}
    assert met == set(memory_types(known))


def _tensors(steps: tuple[AnyStep, ...]) -> set[Descriptor]:
    """What is registered, in whichever buffer."""
    registers = [step for step in steps if isinstance(step, Register)]
    return {msgspec.structs.replace(each, buffer="") for step in registers for each in step.descriptors}
