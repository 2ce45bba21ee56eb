"""EXT-36: external memory in contexts that another call than contextCreateFromBinary has made."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.cases.case import ContextFromBinary, ContextWithCallback, MemoryCase
from pytest_qnn.qnn.cases.memory import SPILL, WEIGHTS
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.rules.binaries import require_external
from pytest_qnn.qnn.rules.ext.deferred import has_external, went_through
from pytest_qnn.qnn.rules.judging import place
from pytest_qnn.qnn.strategies.binaries import asked, deferred, external, given
from pytest_qnn.qnn.strategies.external import ended, weighted
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_CALLS = {
    "list": "contextCreateFromBinaryListAsync",
    "list-config": "contextCreateFromBinaryListAsync",
    "signal": "contextCreateFromBinaryWithSignal",
    "callback": "contextCreateFromBinaryWithCallback",
}
_SOME = ((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL))
Creation = ContextFromBinary | ContextWithCallback


def _made(context: str, binary: str, way: str, *, defer: bool | None) -> Creation:
    if way == "callback":
        return ContextWithCallback(context, binary, defer=defer)
    return ContextFromBinary(context, binary, defer, by=way)  # type: ignore[arg-type] # a key of _CALLS


def _elsewhere(scene: Scene, tape: Tape) -> None:
    """Each of the calls without the option, as a sign that there is the call; then with it, all the way."""
    made = weighted(scene, tape)
    if made is None:
        return
    deferred(scene, made.binary)
    first = tape.below(len(_CALLS))
    for way in (*tuple(_CALLS)[first:], *tuple(_CALLS)[:first]):
        scene.add(_made(scene.name("c"), made.binary, way, defer=None))
        context = scene.name("c")
        scene.add(_made(context, made.binary, way, defer=True))
        asked(scene, context)
        for role in tape.pick(_SOME):
            given(scene, context, role, external(scene, context, role))
        ended(scene, made, context, tape.below(16))


def _creations(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, Creation, str]]:
    """Creations by other calls, and the call."""
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, ContextWithCallback):
            yield walked, step, _CALLS["callback"]
        elif isinstance(step, ContextFromBinary) and step.by:
            yield walked, step, _CALLS[step.by]


@rule(
    "EXT-36",
    Level.SHOULD,
    "External weights or spill-fill memory of a context that another call than QnnContext_createFromBinary "
    "has made (WithSignal, ListAsync, WithCallback) is refused before any graph executes.",
    source="seed 002, external weights and spill-fill buffers, limitations (createFromBinary only)",
    subject="memory",
    cases=embedded(_elsewhere, before=0, after=0),
    gate=("202", "217", "1101", "1103"),
    weight=0.5,
)
def ext_36(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal of any step with any code: of creation with DEFER_GRAPH_INIT, or of what comes after it.

    Only of calls that the target has: one that makes a context without the option. Options of a list are
    given with the context or with the list.
    """
    require_external(case, trace, finalized=False)
    offered: set[str] = set()
    answers: list[str] = []
    count = 0
    for walked, step, call in _creations(case, trace):
        if step.defer is None:
            if walked.code == 0:
                offered.add(call)
            else:
                answer = "is NULL" if walked.code is None else f"answers {named(walked.code)}"
                answers.append(f"{call} {answer}")
            continue
        if call not in offered:
            continue
        taken = walked.code == 0 and has_external(case, trace, step.context)
        if taken and went_through(case, trace, step.context):
            wanted = f"a refusal of external memory in a context of {call}"
            raise Violation(wanted, "none, up to the execute", place(walked))
        count += 1
    if answers and not offered:
        raise Unsupported(answers[0], final=False)
    return Examined(count, "contexts of other calls with deferred initialisation")
