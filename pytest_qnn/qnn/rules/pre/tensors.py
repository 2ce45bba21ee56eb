"""PRE: tensors that QnnTypes.h rules out."""

from __future__ import annotations

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.qnn.cases.case import Execute, MemoryCase, Miscompose, Mistake, Prepare
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.graphs import judge_contents
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    facts_of,
    own_steps,
    require_composition,
    require_contexts,
)
from pytest_qnn.qnn.rules.pre.composing import count_refused
from pytest_qnn.qnn.strategies.graphs import Cases, execute
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_OF_SHAPE: dict[Mistake, str] = {
    "zero-dimension": "a dimension is 0, in a struct of version 2",
}
_OF_SCALE: dict[Mistake, str] = {
    "scale-zero": "the scale is 0",
    "scale-negative": "the scale is negative",
    "scale-nan": "the scale is not a number",
}
_RULED_OUT = _OF_SHAPE | _OF_SCALE
_SCALAR: Mistake = "rank-zero"
"""Dimensions beside rank 0, of which any answer is in order."""
_QUANTISED = "UFIXED_POINT_8"
_SHAPE = (1, 2, 2, 2)
"""That of the tensors with which QnnBackend_validateOpConfig was asked."""


def _ruled_out(facts: MemoryFacts) -> Cases:
    """All that a tensor may have wrong, in any order, in one or two contexts; then an ordinary graph in each.

    Only a tensor of fixed point has a scale.
    """

    def core(scene: Scene, tape: Tape) -> None:
        contexts = [scene.context() for _ in range(1 + tape.chance(4))]
        operators = scene.operators or ((),)
        quantised = [operator for operator in operators if not operator or operator[1] == _QUANTISED]
        mistakes: list[Mistake] = [*_OF_SHAPE, *(_OF_SCALE if quantised else ()), _SCALAR]
        first = tape.below(len(mistakes))
        for mistake in (*mistakes[first:], *mistakes[:first]):
            operator = tape.pick(quantised if mistake in _OF_SCALE else operators)
            scene.add(Miscompose(tape.pick(contexts), mistake, *operator))
        for context in contexts:
            name = scene.prepare(context, tape, shape=_SHAPE)
            if name and facts.executes:
                execute(scene, name, None, seed=tape.below(16))

    return scenes(facts, core, before=1)


@rule(
    "PRE-14",
    Level.SHOULD,
    "QnnTensor_createGraphTensor refuses a tensor that QnnTypes.h rules out: a dimension of 0 in version 2, "
    "a scale that is not positive; the context goes on.",
    source="QnnTypes.h: Qnn_TensorV2_t, dimensions; Qnn_ScaleOffset_t, scale; QnnTensor.h: "
    "QnnTensor_createGraphTensor, QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM",
    subject="memory",
    cases=_ruled_out,
)
def pre_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Any error will do, where a tensor of the same graph without the mistake is created.

    Left open are a dimension of 0 in version 1, of which the header does not say that there is none, and a
    scale that is infinite. So are dimensions beside rank 0: the header forbids the client to pass them, and a
    backend that does not look at them has a scalar like any other. Of such a tensor only this is asked: the
    call returns, and the context goes on.
    """
    require_composition(trace)
    require_contexts(case, trace)
    count = count_refused(case, trace, _RULED_OUT)
    _demand_usable(case, trace)
    return Examined(count, "tensors that QnnTypes.h rules out")


def _demand_usable(case: MemoryCase, trace: MemoryTrace) -> None:
    """Graphs behind the last refused tensor are composed, and give the right outputs."""
    last = max((at for at, step in enumerate(case.steps) if isinstance(step, Miscompose)), default=-1)
    because = "tensors of another graph were refused before"
    validated = facts_of(trace).validated
    mine: set[str] = set()
    for walked in own_steps(case, trace, lambda w: w.index > last and w.allowed.valid):
        step = walked.step
        if isinstance(step, Prepare) and (step.op, step.dtype) in validated and step.shape == _SHAPE:
            demand_code(walked, {0}, because)
            mine.add(step.graph)
        elif isinstance(step, Execute) and step.graph in mine:
            demand_code(walked, {0}, because)
    judge_contents(
        case,
        trace,
        lambda seen: seen.where == "output" and seen.walked.index > last and seen.made is not None,
        because,
    )
