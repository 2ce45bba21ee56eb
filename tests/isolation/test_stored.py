"""Answers that are kept are the same when they are read, and none is taken for another one's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from pytest_qnn.core.target import Death, TargetLost
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.stored.answering import LogMismatch, Stored
from pytest_qnn.isolation.stored.foretold import NotForetold, restored, shortened
from pytest_qnn.isolation.stored.log import BadLog, Log, packed, unpacked
from pytest_qnn.isolation.stored.record import Recorder
from pytest_qnn.isolation.worker import Unusable
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, Fill, MemoryCase, Read
from pytest_qnn.qnn.target import CODEC
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen
from pytest_qnn.tflite.checks.ordered_sums import SUMS, summed
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.numerics.kernels import run_graph

CASES = tuple(
    MemoryCase((ContextCreate("c0"), Alloc("b0", 4096), Fill("b0", byte), Read("b0"))) for byte in (1, 2, 3)
)


def trace(byte: int) -> MemoryTrace:
    return MemoryTrace(steps=(*(StepSeen() for _ in range(3)), StepSeen(data=(bytes([byte]) * 4096,))))


class Answers:
    """An executor that answers from a list; an exception is raised."""

    isolated = True
    loss_is_told = False
    mode = "fork"
    namespaces = "own"

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def run(self, _case: Any, *, guarded: bool = False) -> Any:
        assert not guarded
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_all(self, cases: Any) -> Any:
        return ((self.run(case), not number) for number, case in enumerate(cases))


def recorded(*answers: Any) -> Log:
    """What was kept of the cases in order."""
    log = Log("REG-01", 1)
    recorder: Any = Recorder(Answers(*answers), CODEC, log)  # type: ignore[arg-type]
    for case, answer in zip(CASES, answers, strict=False):
        if isinstance(answer, Exception):
            with pytest.raises(type(answer)):
                recorder.run(case)
        else:
            assert recorder.run(case) == answer
    return unpacked(packed(log))


def test_answers_come_back_in_order() -> None:
    answers = (trace(1), Death("signal", "SIGSEGV", 2), trace(3))
    stored = Stored(CODEC, recorded(*answers))
    assert tuple(stored.run(case) for case in CASES) == answers
    stored.check_end()


@pytest.mark.parametrize("error", [TargetLost("gone"), RunnerFailure("it failed"), Unusable("no file")])
def test_what_was_raised_is_raised_again(error: Exception) -> None:
    stored = Stored(CODEC, recorded(error))
    with pytest.raises(type(error), match=str(error)):
        stored.run(CASES[0])


def test_cases_in_one_process_know_which_was_first() -> None:
    log = Log("REG-01", 1)
    recorder: Any = Recorder(Answers(trace(1), trace(2)), CODEC, log)  # type: ignore[arg-type]
    seen = list(recorder.run_all(CASES[:2]))
    assert list(Stored(CODEC, log).run_all(CASES[:2])) == seen == [(trace(1), True), (trace(2), False)]


def test_another_case_one_more_and_one_fewer_are_told() -> None:
    log = recorded(trace(1), trace(2))
    with pytest.raises(LogMismatch, match="REG-01: answer 1 of 2 is that of another case"):
        Stored(CODEC, log).run(CASES[1])
    with pytest.raises(LogMismatch, match="answer 1 of 2 is that of another case"):
        Stored(CODEC, log).run_fresh(CASES[0])
    stored = Stored(CODEC, log)
    stored.run(CASES[0])
    with pytest.raises(LogMismatch, match="of 2 answers, 1 are superfluous"):
        stored.check_end()
    stored.run(CASES[1])
    with pytest.raises(LogMismatch, match="the answers end after 2"):
        stored.run(CASES[2])


def test_what_follows_from_the_case_takes_no_space() -> None:
    log = recorded(trace(1), trace(2), trace(3))
    assert [answer.kind for answer in log.answers] == ["short"] * 3
    assert max(len(answer.body) for answer in log.answers) < 150


@pytest.mark.parametrize("seed", range(30))
def test_any_contents_come_back(seed: int) -> None:
    chance = random.Random(seed)
    known = [chance.randbytes(chance.choice((64, 100, 1000))) for _ in range(chance.randrange(4))]
    contents = [_content(chance, known) for _ in range(chance.randrange(1, 6))]
    answer = msgspec.msgpack.encode({"a": [1, contents[0], {"b": contents[1:]}], "c": b"short", "d": None})
    short = shortened(answer, lambda _: known)
    assert (short is None) == all(len(each) < 64 for each in contents)
    if short is not None:
        assert restored(short, lambda _: known) == answer


def _content(chance: random.Random, known: list[bytes]) -> bytes:
    made: list[Callable[[], bytes]] = [
        lambda: chance.randbytes(chance.choice((3, 64, 500))),
        lambda: bytes(chance.choice((64, 5000))),
    ]
    if known:
        made += [
            lambda: chance.choice(known),
            lambda: bytes(100) + chance.choice(known) + bytes(7),
            lambda: bytes([chance.choice(known)[0] ^ 1]) + chance.choice(known)[1:],
        ]
    return chance.choice(made)()


def test_other_contents_than_were_foretold_are_told() -> None:
    answer = msgspec.msgpack.encode([bytes(range(200))])
    short = shortened(answer, lambda _: [bytes(range(200))])
    assert short is not None
    for known in ([], [bytes(200)], [bytes(range(1, 201))]):
        with pytest.raises(NotForetold):
            restored(short, lambda _, known=known: known)


@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_what_is_no_log_is_refused(cut: int) -> None:
    content = packed(recorded(trace(1)))
    with pytest.raises(BadLog):
        unpacked(content[:cut])
    with pytest.raises(BadLog):
        unpacked(content + b"more")


def test_sums_in_one_order_are_those_of_the_kernels() -> None:
    rng = np.random.default_rng(0)

    def constant(array: Any) -> Tensor:
        return Tensor(array.shape, str(array.dtype), data=array.tobytes())

    image, weights = (1, 5, 6, 3), rng.standard_normal((4, 2, 3, 3), np.float32)
    flat, units = (7, 9), rng.standard_normal((4, 9), np.float32)
    bias = rng.standard_normal(4, np.float32)
    graphs = {
        "CONV_2D": Graph(
            (Tensor(image), constant(weights), constant(bias), Tensor((1, 5, 6, 4))),
            (Node("CONV_2D", (0, 1, 2), (3,), activation="RELU", same_padding=True),),
            (0,),
            (3,),
        ),
        "FULLY_CONNECTED": Graph(
            (Tensor(flat), constant(units), constant(bias), Tensor((7, 4))),
            (Node("FULLY_CONNECTED", (0, 1, 2), (3,), activation="RELU6"),),
            (0,),
            (3,),
        ),
        "MEAN": Graph(
            (Tensor(image), constant(np.array([1, -1], np.int32)), Tensor((1, 6))),
            (Node("MEAN", (0, 1), (2,)),),
            (0,),
            (2,),
        ),
    }
    assert set(graphs) == SUMS
    for graph in graphs.values():
        given = rng.standard_normal(graph.tensors[0].shape, np.float32)
        values = run_graph(graph, [given])
        node = graph.nodes[0]
        found = summed(node, graph.tensors, [values[index] for index in node.inputs])
        assert found is not None
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, values[node.outputs[0]], rtol=1e-5, atol=1e-5)
