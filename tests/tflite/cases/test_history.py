from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, ClassVar

import msgspec
import pytest
from delegate_doubles import Factory
from reducing import smaller

from pytest_qnn.core.drawing import Decoder, decoder_of, strings
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.cases.valid import check_delegate
from pytest_qnn.tflite.facts import LIMITS, DelegateFacts
from pytest_qnn.tflite.graph import scales
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import OPS, decode_graph
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
        own_interface=0,
        registers=True,
    ),
    DelegateFacts(delegates=("library.so",), custom_memory=0, registers=False),
)
RULES = [rule for rule in catalogue().values() if rule.subject == "delegate"]
LISTED = ("DOM-01", "HOS-04", "HOS-05", "HOS-06", "LEAK-05", "NUM-11")
DRAWN = [rule for rule in RULES if rule.id not in LISTED]
"""The others list their cases."""
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


@pytest.mark.parametrize("rule_id", [rule.id for rule in DRAWN if not has_history(rule)])
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


@pytest.mark.parametrize("rule_id", [rule.id for rule in DRAWN if rule.id not in NOT_LARGE])
def test_a_rule_meets_every_class_of_sizes(rule_id: str) -> None:
    graphs = [graph for seed in (1, 2) for _, case in examples(rule_id, seed) for graph in graphs_of(case)]
    missed = {scale.name for scale in scales.CLASSES if not any(is_of(scale, graph) for graph in graphs)}
    allowed = {"many nodes", "many partitions", "one operand twice"} if rule_id in FEW else set()
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
        (History(repeated=3), 4, 4),
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


def test_a_script_is_repeated_with_objects_of_its_own_unless_it_repeats_or_measures() -> None:
    class Fresh(Counting):
        pass

    use = (Open("i0"), Apply("i0", "d0"), Allocate("i0"), SetInputs("i0"), Invoke("i0"))
    factory = Factory("reference", Fresh)

    def carry_out(*steps: Any) -> Any:
        case = ScriptCase((GRAPH,), steps, history=History(repeated=3))
        return run_script_case(case, [factory], load_runtime(), lambda *_: factory)

    trace = carry_out(MakeDelegate("d0"), *use, Read("i0"))
    assert (Fresh.made, Fresh.invokes, Fresh.alive, Fresh.most_alive) == (4, 4, 0, 1)
    assert trace == msgspec.structs.replace(trace, past="")
    Fresh.made = 0
    carry_out(MakeDelegate("d0"), *use, Measure())
    assert Fresh.made == 1


class Remembering(ReferenceDelegate):
    """Keeps what it is given."""

    seen: ClassVar[list[tuple[float, ...]]] = []

    def read_input(self, context: int, index: int) -> Any:
        value = super().read_input(context, index)
        assert value is not None
        self.seen.append(tuple(value.ravel()))
        return value


@pytest.mark.parametrize(("elements", "alike"), [(1, 0), (6, 3), (40, 8)])
def test_the_last_inputs_before_a_case_begin_as_its_own(elements: int, alike: int) -> None:
    Remembering.seen.clear()
    tensor = Tensor((elements,))
    graph = Graph((tensor, tensor), (Node("ABS", (0,), (1,)),), (0,), (1,))
    case = DelegateCase(graph, data_seed=5, history=History(warm=3))
    run_delegate_case(case, [Factory("reference", Remembering)], load_runtime())
    *_, last, own = Remembering.seen
    assert last[:alike] == own[:alike]
    assert sorted(last) == sorted(own)
    assert (last == own) == (elements == 1)


def kernels_of(graph: Graph, claim: tuple[int, ...]) -> int:
    """Runs of claimed nodes, of a chain."""
    return sum(node in claim and node - 1 not in claim for node in range(len(graph.nodes)))


def test_claims_take_turns_in_a_graph_of_many_partitions() -> None:
    scale = next(scale for scale in scales.CLASSES if scale.parted)
    for seed in range(20):
        data = bytes(random.Random(seed).randbytes(400))
        graph, claims = decode_graph(data, (("float32", OPS["float32"]),), 2, 1, 12, scale)
        assert len(graph.nodes) == scales.MOST_PARTED
        assert sorted((*claims[0], *claims[1])) == list(range(len(graph.nodes)))
        assert all(kernels_of(graph, claim) >= 9 for claim in claims)


def test_wide_layers_are_of_more_units_than_blocks_have() -> None:
    scale = next(scale for scale in scales.CLASSES if scale.units)
    found = set()
    for seed in range(40):
        data = bytes(random.Random(seed).randbytes(100))
        graph, _ = decode_graph(data, (("int8", OPS["int8"]),), 0, 1, 3, scale)
        found |= {(node.op, graph.tensors[node.outputs[0]].shape[-1]) for node in graph.nodes}
    assert found == {("FULLY_CONNECTED", scale.units), ("CONV_2D", scale.units)}


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


def test_behind_a_failure_before_the_case_a_rule_still_judges_the_case() -> None:
    case = DelegateCase(GRAPH, history=History(used=4))
    right = msgspec.structs.replace(carried_out(None)[0], past="allocate_tensors: no")
    with pytest.raises(Unsupported, match=REPORTS):
        catalogue()["PART-10"].check(case, right)
    numbers = right.cpu[0].numpy() + 100
    wrong = msgspec.structs.replace(right, outputs=((Array.of(numbers),),))
    with pytest.raises(Violation):
        catalogue()["PART-10"].check(case, wrong)


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


@pytest.mark.parametrize(
    "history", ['{"made":257}', '{"used":-1}', '{"kept":5}', '{"warm":129}', '{"repeated":49}']
)
def test_a_history_out_of_bounds_is_refused(history: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(history, type=History)


def test_case_files_without_a_history_read_as_before() -> None:
    text = msgspec.json.encode(DelegateCase(GRAPH))
    assert b"history" not in text
    assert msgspec.json.decode(text, type=DelegateCase).history is None
