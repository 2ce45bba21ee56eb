"""Graphs of many inputs, and of weights that are broadcast: met by every search, and computed right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from stratified import decoders, stratified

from pytest_qnn.qnn.cases.case import (
    Binding,
    ContextCreate,
    Execute,
    MemoryCase,
    Misuse,
    Prepare,
    QnnOp,
    Retrieve,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.reduce_scale import smaller_scale
from pytest_qnn.qnn.cases.sizes import weights_shape
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.operators import operands
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.rules import catalogue

EXAMPLES = 17
SHAPE = (2, 3, 2, 2, 3)


@pytest.fixture(name="target", scope="module")
def opened() -> Iterator[MemoryTarget]:
    target = open_memory_target("reference", "emulated", "off", 5.0)
    yield target
    target.close()


def cases(rule_id: str, target: MemoryTarget, patch: pytest.MonkeyPatch) -> list[MemoryCase]:
    ((size, decode),) = decoders(catalogue()[rule_id], target.facts, patch)
    return [decode(data) for data in stratified(size, EXAMPLES, seed=5)]


def prepared(found: list[MemoryCase]) -> list[Prepare]:
    return [step for case in found for step in case.steps if isinstance(step, Prepare)]


def ran(
    target: MemoryTarget, made: Prepare, inputs: int, order: tuple[int, ...] | None = None
) -> MemoryTrace:
    bindings = (*(Binding(seed=seed) for seed in range(1, 1 + inputs)), Binding())
    case = MemoryCase((ContextCreate("c0"), made, Execute(made.graph, bindings, order)))
    trace = target.run(case)
    assert [seen.code for seen in trace.steps] == [0, 0, 0]
    assert [seen.difference for seen in compare(case, trace)] == [""]
    return trace


def floats(seed: int, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    data = contents("FLOAT_32", seed, 4 * int(np.prod(shape)))
    return np.frombuffer(data, np.float32).reshape(shape)


@pytest.mark.parametrize("op", ["ElementWiseAdd", "ElementWiseSubtract"])
@pytest.mark.parametrize("terms", [2, 5, 16])
def test_a_graph_of_many_inputs_gives_their_sum(target: MemoryTarget, op: QnnOp, terms: int) -> None:
    trace = ran(target, Prepare("g0", "c0", op, "FLOAT_32", (2, 3), terms=terms), terms)
    sign = 1.0 if op == "ElementWiseAdd" else -1.0
    wanted = sum(sign**at * floats(1 + at, (2, 3)) for at in range(terms))
    assert trace.steps[2].data[0] == np.asarray(wanted, np.float32).tobytes()
    assert [call for call, _ in trace.steps[1].calls].count("graphAddNode") == 2 * terms - 1


def test_inputs_of_a_graph_of_many_are_told_by_their_ids(target: MemoryTarget) -> None:
    made = Prepare("g0", "c0", "ElementWiseSubtract", "FLOAT_32", (4,), terms=6)
    data = [ran(target, made, 6, order).steps[2].data for order in (None, (3, 1, 5, 0, 4, 2))]
    assert data[0] == data[1]


@pytest.mark.parametrize("narrow", range(1, 6))
def test_narrow_weights_are_broadcast(target: MemoryTarget, narrow: int) -> None:
    made = Prepare("g0", "c0", "ElementWiseSubtract", "FLOAT_32", SHAPE, weights=9, narrow=narrow)
    weights = floats(9, tuple(1 if 5 - at == narrow else length for at, length in enumerate(SHAPE)))
    assert weights.shape == weights_shape(made)
    wanted = floats(1, SHAPE) - weights
    assert ran(target, made, 1).steps[2].data[0] == wanted.tobytes()


def test_weights_of_a_dimension_that_there_is_not_are_as_wide_as_the_others() -> None:
    made = Prepare("g0", "c0", shape=(2, 3), weights=1, narrow=3)
    assert weights_shape(made) == (2, 3)
    assert operands(made, (b"abcdef", b"ABCDEF")) == (b"abcdef", b"ABCDEF")


@pytest.mark.parametrize(
    "made",
    [
        Prepare("g0", "c0", "ElementWiseAdd", "UFIXED_POINT_8", terms=5),
        Prepare("g0", "c0", "ElementWiseMultiply", "FLOAT_32", terms=5),
        Prepare("g0", "c0", "ElementWiseAdd", "FLOAT_32", terms=1),
        Prepare("g0", "c0", "ElementWiseAdd", "FLOAT_32", terms=5, relay=True),
    ],
)
def test_what_is_no_sum_is_not_prepared(target: MemoryTarget, made: Prepare) -> None:
    case = MemoryCase((ContextCreate("c0"), made))
    assert "is no sum" in target.run(case).steps[1].skipped


def test_every_search_meets_every_rank_broadcast_along_every_dimension(
    target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = prepared(cases("EXE-21", target, monkeypatch))
    met = {(len(made.shape), made.narrow) for made in graphs if made.narrow}
    assert met == {(rank, narrow) for rank in range(1, 6) for narrow in range(1, rank + 1)}


@pytest.mark.parametrize("rule_id", ["EXE-15", "EXE-21"])
def test_every_search_meets_graphs_of_many_inputs(
    rule_id: str, target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = {made.terms for made in prepared(cases(rule_id, target, monkeypatch))}
    assert terms == {0, 5, 7, 9, 16}


def test_every_search_permutes_inputs_that_are_memory_handles(
    target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [step for case in cases("EXE-15", target, monkeypatch) for step in case.steps]
    permuted = [step for step in steps if isinstance(step, Execute) and step.inputs is not None]
    assert {each.kind for step in permuted for each in step.bindings} == {"raw", "handle"}


def test_every_search_asks_for_the_binary_of_a_graph_that_is_composed_only(
    target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {(made.finalise, any(made.preset)) for made in prepared(cases("OFF-07", target, monkeypatch))}
    assert kinds == {(True, False), (True, True), (False, False)}


def test_every_search_asks_of_a_graph_that_a_newer_one_of_its_name_has_followed(
    target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in cases("IF-10", target, monkeypatch)[1:]:
        retrieved = {step.graph for step in case.steps if isinstance(step, Retrieve)}
        if retrieved & {step.handle for step in case.steps if isinstance(step, Misuse)}:
            return
    pytest.fail("no case names a graph by the handle of an older one")


def test_narrow_weights_are_taken_away_again() -> None:
    made = Prepare("g0", "c0", weights=1, narrow=2)
    assert any(steps[0] == Prepare("g0", "c0", weights=1) for steps in smaller_scale((made,)))
