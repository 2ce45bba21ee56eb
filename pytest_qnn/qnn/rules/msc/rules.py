"""MSC: sections of context binaries, in memory behind a handle."""

from __future__ import annotations

from typing import Literal

from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import (
    ApplySection,
    Descriptor,
    GetSection,
    MemoryCase,
    Prepare,
    SectionMemory,
    UpdateWeights,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.contents import differs
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.binaries import demand_sizes
from pytest_qnn.qnn.rules.graphs import judge_contents, require_prepared
from pytest_qnn.qnn.rules.judging import call_name, demand_code, facts_of, own_steps, place
from pytest_qnn.qnn.strategies.binaries import composed, loaded, retrieved, updatable, written
from pytest_qnn.qnn.strategies.graphs import execute
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace, WrittenCounts

_KEY = Property.CONTEXT_SUPPORT_BINARY_UPDATES
_UPDATABLE_KEY = Property.TENSOR_SUPPORT_UPDATEABLE_STATIC_TENSORS
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


def _answer(walked: Walked) -> str:
    call = walked.seen.calls[-1][0] if walked.seen.calls else "the call"
    return f"{call} answers {named(walked.code or 0)}"


def _require_sections(
    case: MemoryCase, trace: MemoryTrace, found: list[Walked], *, promised: bool = True
) -> None:
    """Raise Unsupported where sections cannot be had in raw memory, or in no memory handle at all.

    Where the property key says that they can, raw memory has to do; only handles are left to the target.
    ``promised``: a broken promise is the rule's own; else it is MSC-01's.
    """
    declared = facts_of(trace).supports(_KEY)
    said = f"property key {int(_KEY)} is {'' if declared else 'not '}supported"
    if declared and promised:
        _demand_declared(case, trace, found)
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Prepare) and step.weights_as == "updatable" and seen.code:
            raise Unsupported(f"{seen.calls[-1][0]} of updatable weights answers {named(seen.code)}; {said}")
    require_prepared(case, trace)
    for walked in found:
        if walked.allowed.valid and walked.code and not _with_handle(walked):
            raise Unsupported(f"{_answer(walked)}; {said}")
        if walked.seen.calls[0] == ("contextGetBinarySectionSize", walked.seen.code) and walked.code:
            raise Unsupported(f"{_answer(walked)}; {said}")
    through = [walked for walked in found if _with_handle(walked)]
    if through and {walked.code for walked in through} == {_UNSUPPORTED}:
        raise Unsupported(f"with a memory handle {_answer(through[0])}; {said}")


def _demand_declared(case: MemoryCase, trace: MemoryTrace, found: list[Walked]) -> None:
    """What property key 213 promises: tensors that can be updated, and their sections in raw memory."""
    said = f"success: property key {int(_KEY)} is supported"
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        updatable = isinstance(step, Prepare) and step.weights_as == "updatable"
        if updatable and seen.code is not None and low(seen.code) == _UNSUPPORTED:
            answer = f"{seen.calls[-1][0]} of updatable weights answers {named(seen.code)}"
            raise Contradiction(said, answer, f"step {index}, {call_name(step)}")
    if any(isinstance(walked.step, UpdateWeights) and walked.code for walked in found):
        return  # Key 213 says nothing of how weights are updated, nor what a refused update leaves behind.
    for walked in (each for each in found if isinstance(each.step, GetSection | ApplySection)):
        first = walked.seen.calls[:1]
        sized = first == (("contextGetBinarySectionSize", walked.seen.code),)
        if not (walked.allowed.valid and walked.code) or (_with_handle(walked) and not sized):
            continue
        kind = Contradiction if walked.code == _UNSUPPORTED else Violation
        raise kind(said, _answer(walked), place(walked))


def _with_handle(walked: Walked) -> bool:
    return isinstance(walked.step, GetSection | ApplySection) and walked.step.memory != "raw"


def _demand_equal(found: list[Walked]) -> None:
    """A section is the same in any memory, as long as the weights are."""
    first: dict[str, bytes] = {}
    for walked in found:
        step = walked.step
        if isinstance(step, UpdateWeights):
            first.pop(step.graph, None)
        elif isinstance(step, GetSection) and walked.code == 0 and walked.seen.data:
            (data,) = walked.seen.data
            before = first.setdefault(step.graph, data)
            if before != data:
                difference = differs(before, data, "UFIXED_POINT_8")
                raise Violation("the bytes of the same section before", difference, place(walked))


def _judge(walked: Walked) -> None:
    """One section taken or applied: its code, and what must not be written."""
    if walked.allowed.only(Fault.UNREGISTERED):
        demand_code(walked, walked.allowed.codes, "the memory handle is not registered")
    elif walked.allowed.only(Fault.SHORT) and walked.code == 0:
        raise Violation(
            "a refusal, with any code: the registered memory is too small", named(0), place(walked)
        )
    elif walked.allowed.valid:
        demand_code(walked, {0}, "the memory is registered, and large enough")
    if isinstance(walked.step, GetSection) and (overrun := walked.seen.counted(WrittenCounts).overrun):
        seen = f"{overrun} bytes"
        raise Violation("nothing written but to the registered memory", seen, place(walked))


Cases = st.SearchStrategy[MemoryCase]
_MEMORY = 1101
"""QNN_PROPERTY_GROUP_MEMORY."""
_MUCH = 4096
"""Bytes of memory that is registered and has nothing to do with sections."""
_NONE: tuple[SectionMemory, ...] = ("unknown", "null")
_WITH: tuple[SectionMemory, ...] = ("handle", "unknown", "null", "dead", "short", "handle")
"""The choices where no memory can be registered, and where it can."""


def _memory(scene: Scene, tape: Tape) -> SectionMemory:
    return tape.pick(_WITH if scene.facts.supports(_MEMORY) else _NONE)


def _taken(scene: Scene, tape: Tape, context: str, graph: str) -> str:
    """The section in raw memory, then in memory of other kinds; gives the name of the first."""
    first = scene.name("s")
    scene.add(GetSection(context, graph, first))
    for _ in range(1 + tape.below(2)):
        step = GetSection(context, graph, scene.name("s"), _memory(scene, tape), tape.pick(scene.types))
        scene.add(step)
    return first


def sections(facts: MemoryFacts) -> Cases:
    """A graph with updatable weights is written, and updated; its section is applied to what was written."""
    handles = facts.supports(_MEMORY)

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.context()
        name = updatable(scene, tape.cut(4), context)
        if not name:
            return
        before = written(scene, context)
        seed = tape.below(16)
        scene.add(UpdateWeights(name, 300 + tape.below(8)))
        execute(scene, name, None, seed=seed)
        other = loaded(scene, before)
        if handles and tape.chance(2):
            scene.register(context, Descriptor(scene.alloc(_MUCH), (_MUCH,), mem_type=scene.types[0]))
        taken = _taken(scene, tape.cut(6), context, name)
        again = retrieved(scene, other, name)
        for _ in range(1 + tape.below(2)):
            part = tape.cut(4)
            if part.chance(3):
                execute(scene, again, None, seed=seed)
            scene.add(ApplySection(other, again, taken, _memory(scene, part), part.pick(scene.types)))
            execute(scene, again, None, seed=seed)

    return scenes(facts, core, core_bytes=40, before=2, after=0)


@rule(
    "MSC-01",
    Level.MAY,
    "A section of a context binary may be in memory behind a memory handle; a handle that is not registered "
    "is refused.",
    source="QnnContext.h: QnnContext_Buffer_t, QNN_CONTEXTMEMTYPE_MEMHANDLE; QnnContext_getBinarySection",
    subject="memory",
    cases=sections,
    gate=("213",),
    weight=0.5,
)
def msc_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5000 or 1000 for a handle that is none; through one that is, the bytes of raw memory, and no more.

    What is applied through a handle shows in the next execute; what is refused does not.
    """
    kinds = UpdateWeights | GetSection | ApplySection
    found = list(own_steps(case, trace, lambda walked: isinstance(walked.step, kinds)))
    _require_sections(case, trace, found)
    for walked in found:
        _judge(walked)
    _demand_equal(found)
    judge_contents(case, trace, lambda seen: seen.where == "output", "its weights are those applied last")
    return Examined(sum(map(_with_handle, found)), "sections taken or applied with memory handles")


@rule(
    "MSC-02",
    Level.MUST,
    "QnnContext_getBinarySectionSize gives the bytes that a section needs, and QnnContext_getBinarySection "
    "those that it has written, which are no more.",
    source="QnnContext.h: QnnContext_getBinarySectionSize, QnnContext_getBinarySection",
    subject="memory",
    cases=sections,
    gate=("213",),
    weight=0.5,
)
def msc_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """As OFF-11 of whole binaries, in raw memory and behind handles."""
    found = list(own_steps(case, trace, lambda walked: isinstance(walked.step, GetSection)))
    _require_sections(case, trace, found, promised=False)
    taken = [walked for walked in found if walked.allowed.valid and walked.code == 0]
    for walked in taken:
        demand_sizes(walked)
    return Examined(len(taken), "sections taken")


def _updated(scene: Scene, tape: Tape) -> None:
    """MSC-03: one or two graphs, executed with their weights and with one or two others."""
    context = scene.context()
    for _ in range(1 + tape.below(2)):
        name = updatable(scene, tape.cut(4), context)
        if not name:
            return
        seed = tape.below(16)
        if tape.below(2):
            execute(scene, name, None, seed=seed)
        for _ in range(1 + tape.below(2)):
            scene.add(UpdateWeights(name, 300 + tape.below(8)))
            execute(scene, name, None, seed=seed)


@rule(
    "MSC-03",
    Level.MUST,
    "Where property key 506 (updatable static tensors) is supported, QnnTensor_updateGraphTensors of such a "
    "tensor and QnnGraph_finalize succeed, and the graph computes with the new data.",
    source="QnnProperty.h: QNN_PROPERTY_TENSOR_SUPPORT_UPDATEABLE_STATIC_TENSORS; "
    "QnnTensor.h: QnnTensor_updateGraphTensors",
    subject="memory",
    cases=embedded(_updated),
    gate=("506",),
    weight=0.5,
)
def msc_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Of graphs that were finalised with updatable weights; whether an operator takes such is its own."""
    if not facts_of(trace).supports(_UPDATABLE_KEY):
        raise Unsupported(f"property key {int(_UPDATABLE_KEY)} (updatable static tensors) is not supported")
    said = f"success: property key {int(_UPDATABLE_KEY)} is supported"
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        updatable = isinstance(step, Prepare) and step.weights_as == "updatable"
        if updatable and seen.code is not None and low(seen.code) == _UNSUPPORTED:
            raise Contradiction(said, named(seen.code), f"step {index}, {call_name(step)}")
    require_prepared(case, trace)
    found = [
        w for w in own_steps(case, trace, lambda w: w.allowed.valid) if isinstance(w.step, UpdateWeights)
    ]
    for walked in found:
        if walked.code:
            raise Violation(said, _answer(walked), place(walked))
    judge_contents(case, trace, lambda seen: seen.where == "output", "its weights are those given last")
    return Examined(len(found), "updates of weights")


_FIRST_WEIGHTS = 300
"""Seed of the first contents that weights are updated to."""
_Kind = Literal["foreign", "unfinished", "constant"]
_MISTAKES: tuple[_Kind, ...] = ("foreign", "unfinished", "constant")


def _mistaken(scene: Scene, tape: Tape) -> None:
    """MSC-04: a graph whose section can be had and whose weights can be updated, and one to three mistakes.

    An update before the graph was ever finalised is none: QnnTensor.h says that updates take effect with
    graphFinalize, and nothing of what came before.
    """
    context = scene.context()
    own = updatable(scene, tape.cut(4), context)
    if not own:
        return
    scene.add(UpdateWeights(own, _FIRST_WEIGHTS + tape.below(8)))
    scene.add(GetSection(context, own, scene.name("s")))
    first = tape.below(len(_MISTAKES))
    for kind in (*_MISTAKES[first:], *_MISTAKES[:first])[: 1 + tape.below(len(_MISTAKES))]:
        _mistake(scene, tape.cut(4), kind, (context, own))


def _mistake(scene: Scene, tape: Tape, kind: _Kind, own: tuple[str, str]) -> None:
    """Contexts of their own for what would make other calls in them wrong too."""
    elsewhere = scene.context()
    if kind == "foreign":
        other = updatable(scene, tape, elsewhere)
        scene.add(GetSection(own[0], other, scene.name("s")))
        scene.add(GetSection(own[0], other, scene.name("s"), size_of=own[1]))
    elif kind == "unfinished":
        begun = updatable(scene, tape, elsewhere, finalise=False)
        scene.add(GetSection(elsewhere, begun, scene.name("s")))
    else:
        constant = composed(scene, tape, elsewhere, weights=True, hints=())
        scene.add(UpdateWeights(constant, _FIRST_WEIGHTS))


_BECAUSE: dict[Fault, str] = {
    Fault.FOREIGN_GRAPH: "the graph is one of another context",
    Fault.UNFINISHED: "the graph is not finalised",
    Fault.NOT_UPDATABLE: "the tensor is STATIC, not UPDATEABLE_STATIC",
}


@rule(
    "MSC-04",
    Level.MUST,
    "A section of another context's graph is refused, by QnnContext_getBinarySection with 5000, a section "
    "of a graph that is not finalised with 5003, an update of a tensor that is not updatable with 7004, 7005 "
    "or 7007.",
    source="QnnContext.h: QnnContext_getBinarySectionSize, QnnContext_getBinarySection; "
    "QnnTensor.h: QnnTensor_updateGraphTensors",
    subject="memory",
    cases=embedded(_mistaken),
    gate=("213", "506"),
    weight=0.5,
)
def msc_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Where the same call is in order it succeeds; NULL in these calls is IF-14's."""
    kinds = UpdateWeights | GetSection
    found = list(own_steps(case, trace, lambda walked: isinstance(walked.step, kinds)))
    _require_sections(case, trace, [each for each in found if each.allowed.valid], promised=False)
    count = 0
    for walked in found:
        fault = next((each for each in _BECAUSE if walked.allowed.only(each)), None)
        if fault is None:
            continue
        sized = walked.seen.calls[-1][0] == "contextGetBinarySectionSize"
        if fault is Fault.FOREIGN_GRAPH and sized:
            # QnnContext.h lists no code of this call for a graph that is none of the context's.
            if walked.code == 0:
                raise Violation(f"an error: {_BECAUSE[fault]}", _answer(walked), place(walked))
        else:
            demand_code(walked, walked.allowed.codes, _BECAUSE[fault])
        count += 1
    return Examined(count, "mistakes with sections and updates")
