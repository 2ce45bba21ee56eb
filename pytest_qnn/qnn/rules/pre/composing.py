"""PRE: what a client must be able to compose (docs/explanation/decisions/qnn/no-session.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.cases.case import MemoryCase, Miscompose, Mistake, Prepare
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    facts_of,
    own_steps,
    place,
    require_composition,
    require_contexts,
)
from pytest_qnn.qnn.strategies.history import without
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_COMPOSITION = 107
_SHAPE = (1, 2, 2, 2)
"""That of the tensors with which QnnBackend_validateOpConfig was asked."""

Cases = st.SearchStrategy[MemoryCase]


def _graphs(scene: Scene, tape: Tape) -> None:
    """One to four graphs of validated operators in one or two contexts."""
    scene.operators = scene.facts.validated  # type: ignore[assignment] # data of the same words
    contexts = [scene.context() for _ in range(1 + tape.below(2))]
    for _ in range(1 + tape.below(4)):
        context = tape.pick(contexts)
        if not scene.prepare(context, tape, shape=_SHAPE):
            scene.add(Prepare(scene.name("g"), context))


_LONG = "of_a_long_name_" * 5
"""Before a graph's own name: a hundred characters with the prefix of the suite; models have such names."""


def _named(scene: Scene, tape: Tape) -> None:
    """The same; in every second case two more, with long names that differ at their end.

    In every third case another context has a graph of the same name, too.
    """
    _graphs(scene, tape)
    made = next(step for step in reversed(scene.steps) if isinstance(step, Prepare))
    for _ in range(2 * tape.below(2)):
        scene.follow(msgspec.structs.replace(made, graph=_LONG + scene.name("g")))
    if tape.chance(3):
        scene.follow(msgspec.structs.replace(made, context=scene.context()))


def _created(facts: MemoryFacts) -> Cases:
    """PRE-10: graphs of the simplest operator where none is validated: graphCreate asks for none."""
    return scenes(facts, _named, before=1, without=without("PRE-11"))


def _composed(facts: MemoryFacts) -> Cases:
    """Graphs, of the simplest operator where none is validated: graphCreate asks for none."""
    return scenes(facts, _graphs, before=1, without=without("PRE-11"))


def _validated(facts: MemoryFacts) -> Cases:
    if facts.supports(_COMPOSITION) and ("backendCreate", 0) in facts.session and not facts.validated:
        raise NothingToJudge(
            "property key 107 says that graphs can be composed, and QnnBackend_validateOpConfig accepts none "
            "of the suite's operators: no rule about graphs can be judged"
        )
    return _composed(facts)


def _prepared(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, Prepare, str, int]]:
    """(where, step, last call made, its code) of each graph that was composed in a context."""
    require_composition(trace)
    require_contexts(case, trace)
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Prepare) and seen.calls:
            yield f"step {index}, prepare", step, *seen.calls[-1]


@rule(
    "PRE-10",
    Level.MUST,
    "QnnGraph_create with a name that is new in its context succeeds on a backend that supports composition.",
    source="QnnGraph.h: QnnGraph_create; QnnProperty.h: QNN_PROPERTY_BACKEND_SUPPORT_COMPOSITION",
    subject="memory",
    cases=_created,
    weight=0.2,
)
def pre_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Several graphs in a context, and in several contexts."""
    count = 0
    for where, _, call, code in _prepared(case, trace):
        if call == "graphCreate" and code:
            raise FailedCall(named(0), f"graphCreate answers {named(code)}", where, call="prepare")
        count += 1
    return Examined(count, "graphs created")


@rule(
    "PRE-11",
    Level.MUST,
    "Where QnnBackend_validateOpConfig accepts an operator, a graph of it is composed and finalised: "
    "QnnTensor_createGraphTensor, QnnGraph_addNode and QnnGraph_finalize succeed.",
    source="QnnBackend.h: QnnBackend_validateOpConfig; "
    "QnnProperty.h: QNN_PROPERTY_BACKEND_SUPPORT_COMPOSITION",
    subject="memory",
    cases=_validated,
)
def pre_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Raw tensors of the shape that was validated, in every data type that was."""
    count = 0
    for where, step, call, code in _prepared(case, trace):
        validated = (step.op, step.dtype) in facts_of(trace).validated and step.shape == _SHAPE
        if not validated or step.version != 1:  # PRE-08 is about the other version
            continue
        if call == "graphCreate":
            raise Unsupported(f"graphCreate answers {named(code)}")
        if code:
            raise FailedCall(
                named(0), f"{call} of {step.op} {step.dtype} answers {named(code)}", where, call="prepare"
            )
        count += 1
    return Examined(count, "graphs of validated operators")


_MISTAKES: dict[Mistake, str] = {
    "name": "the context has a graph of this name",
    "tensor": "the graph has no tensor of this id",
    "late": "the graph is finalised",
}


def _mistaken(facts: MemoryFacts) -> Cases:
    """Graphs with all the mistakes, in any order, in one or two contexts."""

    def core(scene: Scene, tape: Tape) -> None:
        contexts = [scene.context() for _ in range(1 + tape.chance(4))]
        first = tape.below(len(_MISTAKES))
        for mistake in (*tuple(_MISTAKES)[first:], *tuple(_MISTAKES)[:first]):
            operator = tape.pick(scene.operators) if scene.operators else ()
            scene.add(Miscompose(tape.pick(contexts), mistake, *operator))

    return scenes(facts, core, before=1)


def count_refused(case: MemoryCase, trace: MemoryTrace, mistakes: Mapping[Mistake, str]) -> int:
    """How many of these mistakes were answered with any error, as all have to be.

    Args:
        case: whose steps make them.
        trace: of the case.
        mistakes: each with what is wrong in it.
    """
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Miscompose)):
        assert isinstance(walked.step, Miscompose)
        if walked.step.mistake not in mistakes:
            continue
        if walked.code == 0:
            call, _ = walked.seen.calls[-1]
            wanted = f"an error: {mistakes[walked.step.mistake]}"
            raise Violation(wanted, f"{call} answers {named(0)}", place(walked))
        count += 1
    return count


@rule(
    "PRE-12",
    Level.MUST,
    "A mistake in composing a graph is refused: a name that its context has, a node of a tensor that the "
    "graph has not, a node after QnnGraph_finalize.",
    source="QnnGraph.h: QnnGraph_create (QNN_GRAPH_ERROR_INVALID_NAME) and QnnGraph_addNode "
    "(QNN_GRAPH_ERROR_INVALID_OP_CONFIG, QNN_GRAPH_ERROR_GRAPH_FINALIZED)",
    subject="memory",
    cases=_mistaken,
)
def pre_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Any error will do; only where the calls before it succeed."""
    require_composition(trace)
    require_contexts(case, trace)
    return Examined(count_refused(case, trace, _MISTAKES), "mistakes in composing")


_NUMBERS: dict[Mistake, str] = {
    "few-inputs": "an input of the operator is missing",
    "many-inputs": "the operator has no such input",
}


def _misnumbered(facts: MemoryFacts) -> Cases:
    """One to three validated operators, each with an input too few or too many, or both."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.context()
        for _ in range(1 + tape.below(3)):
            operator = tape.pick(facts.validated) if facts.validated else ()
            mistakes = tuple(_NUMBERS)[:: 1 if tape.below(2) else -1]
            for mistake in mistakes[: 1 + tape.below(2)]:
                # QNN's Reshape may have a second input, with the shape.
                if not (mistake == "many-inputs" and "Reshape" in operator):
                    scene.add(Miscompose(context, mistake, *operator))

    return scenes(facts, core, before=1)


@rule(
    "PRE-13",
    Level.MUST,
    "QnnBackend_validateOpConfig of an operator that it accepts answers "
    "QNN_OP_PACKAGE_ERROR_VALIDATION_FAILURE (3110) where the same has an input too few or too many.",
    source="QnnBackend.h: QnnBackend_validateOpConfig",
    subject="memory",
    cases=_misnumbered,
    weight=0.5,
)
def pre_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """QnnGraph_addNode need not see that: QnnGraph.h leaves it to this call."""
    require_composition(trace)
    count = 0
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Miscompose) and step.mistake in _NUMBERS and seen.code is None and seen.calls:
            call, code = seen.calls[-1]
            raise Unsupported(f"{call} of {step.op} {step.dtype} answers {named(code)}", final=False)
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Miscompose)):
        assert isinstance(walked.step, Miscompose)
        if walked.step.mistake in _NUMBERS:
            demand_code(
                walked, {int(Error.OP_PACKAGE_ERROR_VALIDATION_FAILURE)}, _NUMBERS[walked.step.mistake]
            )
            count += 1
    return Examined(count, "operators with a wrong number of inputs")
