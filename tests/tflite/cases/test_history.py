from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import msgspec
import pytest
from delegate_doubles import Factory
from reducing import smaller

from pytest_qnn.core.drawing import Decoder, decoder_of, strings
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.cases.valid import check_delegate
from pytest_qnn.tflite.facts import LIMITS, DelegateFacts
from pytest_qnn.tflite.graph import scales
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runner.script import run_script_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.strategies.history import BYTES, CLASSES, history_of
from pytest_qnn.tflite.strategies.with_history import NOT_LARGE, OPTED_OUT, REPORTS, has_history
from pytest_qnn.tflite.trace import DelegateTrace

EXAMPLES = 20
FACTS = (
    DelegateFacts(
        delegates=("reference",),
        steerable=True,
        limits=dict.fromkeys(LIMITS, ""),
        custom_memory=0,
        registers=True,
    ),
    DelegateFacts(delegates=("library.so",), custom_memory=0, registers=False),
)
RULES = [rule for rule in catalogue().values() if rule.subject == "delegate"]
GRAPH = Graph(
    (Tensor((2, 3)),) * 3, (Node("ABS", (0,), (1,)), Node("ADD", (1, 0), (2,))), inputs=(0,), outputs=(2,)
)


def decoder(rule_id: str, facts: DelegateFacts) -> Decoder | None:
    try:
        cases = catalogue()[rule_id].cases(facts)
    except NothingToJudge:
        return None
    found = decoder_of(cases)
    assert found is not None, "not decoded from one string"
    return found


def examples(rule_id: str, seed: int) -> Iterator[tuple[bytes, Any]]:
    """The first cases of a search, for the first of some targets that has any."""
    found = next(filter(None, (decoder(rule_id, facts) for facts in FACTS)))
    for data in itertools.islice(strings(found.size, seed), EXAMPLES):
        yield data, found.decode(data)


@pytest.mark.parametrize("rule_id", [rule.id for rule in RULES if has_history(rule)])
def test_a_rule_meets_every_class_of_histories(rule_id: str) -> None:
    found = list(examples(rule_id, seed=1))
    assert found[0][1].history is None, "the simplest case comes first"
    histories = [case.history for _, case in found]
    assert histories == [history_of(data[:BYTES]) for data, _ in found]
    for make in CLASSES.values():
        of_class = [make(byte) for byte in range(256)]
        assert any(history in of_class for history in histories)
    assert histories.count(None) >= EXAMPLES // 2


@pytest.mark.parametrize("rule_id", [rule.id for rule in RULES if not has_history(rule)])
def test_a_rule_that_opted_out_meets_none(rule_id: str) -> None:
    assert not any(case.history for _, case in examples(rule_id, seed=1))


def test_opt_outs_name_rules() -> None:
    assert {*OPTED_OUT, *NOT_LARGE} <= {rule.id for rule in RULES}


def graphs_of(case: Any) -> tuple[Graph, ...]:
    return case.graphs if isinstance(case, ScriptCase) else (case.graph,)


def is_of(scale: scales.Scale, graph: Graph) -> bool:
    """Whether a graph can be told to be of the class."""
    shapes = {*scale.floats, *scale.bytes}
    if shapes:
        return any(graph.tensors[tensor].shape in shapes for tensor in graph.inputs)
    if scale.many:
        return len(graph.nodes) >= scales.FEW_NODES * scales.MANY_TIMES
    return any(len(node.inputs) > 1 and node.inputs[0] == node.inputs[1] for node in graph.nodes)


FEW = {"MEM-08", "NUM-01", "NUM-10", "NUM-02", "NUM-03", "NUM-04", "NUM-05", "NUM-06", "NUM-07", "PART-03"}
"""Rules about few nodes, some of operators without a second operand that may be the first."""


@pytest.mark.parametrize("rule_id", [rule.id for rule in RULES if rule.id not in NOT_LARGE])
def test_a_rule_meets_every_class_of_sizes(rule_id: str) -> None:
    graphs = [graph for seed in (1, 2) for _, case in examples(rule_id, seed) for graph in graphs_of(case)]
    missed = {scale.name for scale in scales.CLASSES if not any(is_of(scale, graph) for graph in graphs)}
    allowed = {"many nodes", "one operand twice"} if rule_id in FEW else set()
    assert missed <= allowed


@pytest.mark.parametrize("rule_id", sorted(NOT_LARGE))
def test_a_rule_that_is_not_about_sizes_has_small_tensors_only(rule_id: str) -> None:
    cases = (case for _, case in examples(rule_id, seed=1))
    shapes = {tensor.shape for case in cases for graph in graphs_of(case) for tensor in graph.tensors}
    assert max(map(prod, shapes)) < 1 << 17


class Counting(ReferenceDelegate):
    made = 0
    alive = 0
    most_alive = 0
    invokes = 0
    least = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        type(self).made += 1
        type(self).alive += 1
        type(self).most_alive = max(self.alive, self.most_alive)

    def close(self) -> None:
        super().close()
        type(self).alive -= 1

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        type(self).invokes += 1
        return super().kernel_invoke(context, kernel)


def carried_out(history: History | None, invokes: int = 1) -> tuple[DelegateTrace, type[Counting]]:
    class Fresh(Counting):
        pass

    case = DelegateCase(GRAPH, invokes=invokes, history=history)
    trace = run_delegate_case(case, [Factory("reference", Fresh)], load_runtime())
    return trace, Fresh


@pytest.mark.parametrize(
    ("history", "made", "invokes"),
    [
        (None, 1, 1),
        (History(made=200), 201, 1),
        (History(used=3, invokes=2), 4, 7),
        (History(used=1, invokes=2, resized=True, profiled=True), 2, 3),
        (History(kept=2), 3, 4),
        (History(warm=5), 1, 6),
        (History(failed=2), 3, 3),
    ],
)
def test_a_history_is_carried_out_and_leaves_the_case_as_it_is(
    history: History | None, made: int, invokes: int
) -> None:
    trace, seen = carried_out(history)
    assert (seen.made, seen.invokes, seen.alive) == (made, invokes, 0)
    plain, _ = carried_out(None)
    assert trace == plain


def test_interpreters_that_are_kept_are_invoked_by_turns_with_the_case() -> None:
    _, seen = carried_out(History(kept=2), invokes=3)
    assert seen.most_alive == 3
    assert seen.invokes == 2 + 3 + 3


def test_a_script_has_a_history_too() -> None:
    class Fresh(Counting):
        pass

    steps = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Allocate("i0"), SetInputs("i0"), Invoke("i0"))
    case = ScriptCase((GRAPH,), (*steps, Read("i0")), history=History(used=2, kept=1))
    trace = run_script_case(
        case, [Factory("reference", Fresh)], load_runtime(), lambda *_: Factory("reference", Fresh)
    )
    assert not trace.past
    assert (Fresh.made, Fresh.invokes, Fresh.alive) == (4, 5, 0)


class Tired(Counting):
    """The third interpreter's invoke fails."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        return 1 if self.made >= 3 else super().kernel_invoke(context, kernel)


def test_a_failure_before_the_case_is_one_rules_finding_and_no_others() -> None:
    Tired.made = 0
    case = DelegateCase(GRAPH, history=History(used=4))
    trace = run_delegate_case(case, [Factory("reference", Tired)], load_runtime())
    assert "invoke 0" in trace.past
    with pytest.raises(Violation, match="before the case"):
        catalogue()[REPORTS].check(case, trace)
    with pytest.raises(Unsupported, match=REPORTS):
        catalogue()["PART-01"].check(case, trace)


def reduced(case: Any, fails: Callable[[Any], bool]) -> tuple[Any, int]:
    """What is left when nothing can be taken away, and how many cases were tried for it."""
    tried = 0
    again = True
    while again:
        again = False
        for candidate in smaller(case):
            tried += 1
            if fails(candidate):
                case, again = candidate, True
                break
    return case, tried


BUSY = History(made=200, failed=4, used=9, invokes=7, resized=True, profiled=True, kept=3, warm=9)


def test_a_history_that_is_not_needed_goes_at_once() -> None:
    case, tried = reduced(DelegateCase(GRAPH, history=BUSY), lambda case: len(case.graph.nodes) > 1)
    assert case.history is None
    assert tried <= 60


@pytest.mark.parametrize(
    ("needed", "left"),
    [
        (lambda history: history.used >= 3, History(used=3)),
        (lambda history: history.made >= 100, History(made=100)),
        (lambda history: history.kept and history.failed, History(failed=1, kept=1)),
    ],
)
def test_of_a_history_only_what_is_needed_is_left(needed: Callable[[History], bool], left: History) -> None:
    def fails(case: DelegateCase) -> bool:
        return bool(case.history and needed(case.history))

    case, tried = reduced(DelegateCase(GRAPH, history=BUSY), fails)
    assert case.history == left
    assert tried <= 200


def test_a_large_tensor_becomes_as_small_as_the_fault_allows() -> None:
    tensor = Tensor((131, 127))
    graph = Graph((tensor,) * 2, (Node("ABS", (0,), (1,)),), (0,), (1,))

    def fails(case: DelegateCase) -> bool:
        check_delegate(case)
        shape = case.graph.tensors[0].shape
        return shape[0] * shape[-1] * 4 > 4096

    case, tried = reduced(DelegateCase(graph), fails)
    assert len(case.graph.tensors[0].shape) <= 2
    assert case.graph.tensors[0].shape[0] * case.graph.tensors[0].shape[-1] < 1200
    assert tried <= 60


@pytest.mark.parametrize("history", ['{"made":257}', '{"used":-1}', '{"kept":5}', '{"warm":33}'])
def test_a_history_out_of_bounds_is_refused(history: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(history, type=History)


def test_case_files_without_a_history_read_as_before() -> None:
    text = msgspec.json.encode(DelegateCase(GRAPH))
    assert b"history" not in text
    assert msgspec.json.decode(text, type=DelegateCase).history is None
