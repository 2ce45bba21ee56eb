"""EXT: deferred initialisation of contexts, its calls and properties."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, HtpContextConfigOption, HtpContextOption, Property
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    Execute,
    GetBinary,
    MemoryCase,
    Prepare,
    Register,
    Retrieve,
)
from pytest_qnn.qnn.cases.memory import ALIGNMENT, NEEDED, WEIGHTS
from pytest_qnn.qnn.model.codes import SENTINEL, named
from pytest_qnn.qnn.model.expected import NO_OPTION, Walked, walk
from pytest_qnn.qnn.model.notes import Fault, Note
from pytest_qnn.qnn.rules.binaries import (
    demand_equal,
    demand_refused,
    judge_flow,
    require_binaries,
    require_deferred,
    require_finalize,
    require_properties,
)
from pytest_qnn.qnn.rules.graphs import require_execution
from pytest_qnn.qnn.rules.judging import demand_code, facts_of, own_steps, place, require_session
from pytest_qnn.qnn.strategies.binaries import (
    asked,
    deferred,
    external,
    finalised,
    freed,
    given,
    loaded,
    saved,
    written,
)
from pytest_qnn.qnn.strategies.external import (
    LARGE,
    OPTIONS,
    any_roles,
    begun,
    deferred_flow,
    ended,
    executed,
    weighted,
)
from pytest_qnn.qnn.strategies.graphs import execute
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


flow = embedded(deferred_flow)


@rule(
    "EXT-01",
    Level.MUST,
    "QnnContext_createFromBinary with deferred initialisation makes a context whose graphs cannot be "
    "retrieved before QnnContext_finalize.",
    source=f"{_FLOW}, step 1",
    subject="memory",
    cases=flow,
    gate=("202", "217"),
)
def ext_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Creation answers 0; graphRetrieve before contextFinalize fails, with whatever code."""
    require_deferred(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.specified):
        if walked.allowed.valid and Note.DEFERRED in walked.allowed.notes:
            demand_code(walked, {0}, "initialisation is deferred")
        elif walked.allowed.only(Fault.PENDING):
            demand_refused(walked, "the context is not finalised")
            count += 1
    return Examined(count, "graphs retrieved too early")


def _asked(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, ContextProperty]]:
    """The questions for properties whose answers are specified."""
    for walked in own_steps(case, trace, lambda w: w.allowed.specified):
        if isinstance(walked.step, ContextProperty):
            yield walked, walked.step


def _properties(scene: Scene, tape: Tape) -> None:
    """EXT-03, EXT-05: the three properties one by one and together, between the steps of the flow."""
    made = weighted(scene, tape, 1 + tape.below(2))
    if made is None:
        return
    context = loaded(scene, made.binary, defer=True)
    for option in tape.pick((OPTIONS, OPTIONS[::-1], OPTIONS[:1], OPTIONS[1:])):
        scene.add(ContextProperty(context, (option,)))
    asked(scene, context)
    for role in any_roles(tape):
        given(scene, context, role, external(scene, context, role))
        scene.add(ContextProperty(context, (tape.pick(OPTIONS),)))
    if tape.chance(2):
        finalised(scene, context)
        asked(scene, context)


properties = embedded(_properties, before=1)


@rule(
    "EXT-03",
    Level.MUST,
    "QnnContext_getProperty of a deferred context gives the start alignment and the sizes of its weights and "
    "spill-fill memory.",
    source=f"{_FLOW}, step 2; QnnHtpContext.h: QnnHtpContext_GetPropertyOption_t",
    subject="memory",
    cases=properties,
    gate=("202", "215", "217"),
)
def ext_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 for each property alone and for all together, each written; the alignment is a power of two."""
    require_properties(case, trace)
    count = 0
    for walked, step in _asked(case, trace):
        if not walked.allowed.valid:
            continue
        demand_code(walked, {0}, "the context is a deferred one")
        for option, value in zip(step.options, walked.seen.values, strict=False):
            if value == SENTINEL:
                raise Violation("a value for every property", f"none for property {option}", place(walked))
            if option == ALIGNMENT and (value == 0 or value & (value - 1)):
                raise Violation("an alignment that is a power of two", f"{value}", place(walked))
        count += 1
    return Examined(count, "questions for properties")


def _asked_wrongly(scene: Scene, tape: Tape) -> None:
    """EXT-04: a NULL list, a context that is none or is gone, an option that there is not; then rightly."""
    found = begun(scene, tape)
    if found is None:
        return
    _, context = found
    kind = tape.below(4)
    if kind == 0:
        scene.add(ContextProperty(context, OPTIONS[: 1 + tape.below(3)], null_list=True))
    elif kind == 1:
        scene.add(ContextProperty(tape.pick((NULL, BOGUS)), (tape.pick(OPTIONS),)))
    elif kind == 2:
        unknown = tape.pick((99, 250, 0, 1 << 20))  # far from those that a newer version may have
        scene.add(
            ContextProperty(context, tape.pick(((unknown,), (ALIGNMENT, unknown), (unknown, ALIGNMENT))))
        )
    else:
        freed(scene, context)
        scene.add(ContextProperty(context, (tape.pick(OPTIONS),)))
        return
    asked(scene, context)


asked_wrongly = embedded(_asked_wrongly, before=1)


_WRONG = {
    Fault.NULL_LIST: "the list of properties is NULL",
    Fault.BAD_CONTEXT: "there is no such context",
    Fault.UNKNOWN_OPTION: "there is no such option",
}


@rule(
    "EXT-04",
    Level.MUST,
    "QnnContext_getProperty refuses a NULL list, an invalid context or an unknown option, and then writes no "
    "value.",
    source="QnnContext.h: QnnContext_getProperty",
    subject="memory",
    cases=asked_wrongly,
    gate=("202", "215", "217"),
)
def ext_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5000 for a NULL list, 5002 for no context, 5000 or 1000 for an option that there is not."""
    require_properties(case, trace)
    count = 0
    for walked, _ in _asked(case, trace):
        if not walked.allowed.faults:
            continue
        because = ", ".join(sorted(_WRONG.get(fault, fault.value) for fault in walked.allowed.faults))
        demand_code(walked, walked.allowed.codes, because)
        written = [value for value in walked.seen.values if value != SENTINEL]
        if written:
            raise Violation("untouched values", f"{written} written", place(walked))
        count += 1
    return Examined(count, "wrong questions for properties")


@rule(
    "EXT-05",
    Level.MUST,
    "The properties of a context do not change until it is freed.",
    source=f"{_FLOW}, step 2",
    subject="memory",
    cases=properties,
    gate=("202", "215", "217"),
)
def ext_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The same answers alone, together, after registering and after finalising."""
    require_properties(case, trace)
    said: dict[tuple[str, int], int] = {}
    count = 0
    for walked, step in _asked(case, trace):
        if walked.code != 0:
            continue
        for option, value in zip(step.options, walked.seen.values, strict=False):
            if value == SENTINEL:
                continue  # it was not told: EXT-03's
            asked = (step.context, option)
            count += asked in said
            if said.setdefault(asked, value) != value:
                wanted = f"{said[asked]} again for property {option}"
                raise Violation(wanted, f"{value}", place(walked))
    return Examined(count, "answers repeated")


def _needs(case: MemoryCase, trace: MemoryTrace, option: int) -> dict[frozenset[str], int]:
    """What deferred contexts say they need, by their graphs (each as it was prepared, names left out)."""
    binaries: dict[str, frozenset[str]] = {}
    graphs: dict[str, set[str]] = {}
    contexts: dict[str, frozenset[str]] = {}
    found: dict[frozenset[str], int] = {}
    for walked in walk(case, trace):
        step = walked.step
        if walked.code not in (None, 0):
            continue
        if isinstance(step, Prepare):
            kind = f"{step.op} {step.dtype} {step.shape} {step.weights} {step.relay}"
            graphs.setdefault(step.context, set()).add(kind)
        elif isinstance(step, ContextFromBinary):
            contexts[step.context] = binaries.get(step.binary, frozenset())
        elif isinstance(step, ContextProperty):
            said = dict(zip(step.options, walked.seen.values, strict=False))
            if option in said:
                found[contexts[step.context]] = said[option]
        elif isinstance(step, GetBinary):
            binaries[step.binary] = frozenset(graphs.get(step.context, set()))
    return found


def _again(scene: Scene, tape: Tape) -> None:
    """EXT-25: contextFinalize twice, of an ordinary context, and of one that is none."""
    made = weighted(scene, tape)
    if made is None:
        return
    kind = tape.below(5)
    if kind == 0:
        scene.add(ContextFinalize(made.context))
        execute(scene, made.graphs[0], None)
    elif kind == 1:
        context = loaded(scene, made.binary)
        scene.add(ContextFinalize(context))
        executed(scene, made, context, tape.below(16))
    elif kind == 2:
        context = deferred(scene, made.binary)
        names = ended(scene, made, context, tape.below(16))
        scene.add(ContextFinalize(context))
        execute(scene, names[0], None, seed=3)
    else:
        scene.add(ContextFinalize((NULL, BOGUS)[kind - 3]))


again = embedded(_again, before=1)


def _requirements(scene: Scene, tape: Tape) -> None:
    """EXT-06: two or three graphs, each in a binary of its own, and all in one."""
    whole = scene.context()
    sources: list[str] = []
    for _ in range(2 + tape.below(2)):
        one = saved(scene, tape.cut(8), weights=True, relay=True, shape=tape.pick(LARGE))
        if one is None:
            return
        deferred(scene, one.binary)
        sources += one.graphs
    for source in sources:
        scene.follow(msgspec.structs.replace(scene.graphs[source], graph=scene.name("g"), context=whole))
    deferred(scene, written(scene, whole))


requirements = embedded(_requirements, before=0, after=0)


@rule(
    "EXT-06",
    Level.MUST,
    "The spill-fill size of a context is the largest that one of its graphs needs; its weights size covers "
    "all of its graphs.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=requirements,
    gate=("202", "215", "217"),
)
def ext_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Graphs in binaries of their own, against all in one.

    Spill-fill: the largest of their sizes. Weights: no less than any of theirs (graphs may share weights).
    """
    require_properties(case, trace)
    count = 0
    spill = _needs(case, trace, HtpContextOption.MAX_SPILLFILL_BUFFER_SIZE)
    weights = _needs(case, trace, HtpContextOption.WEIGHTS_BUFFER_SIZE)
    for graphs, seen in spill.items():
        alone = [spill[frozenset({each})] for each in graphs if frozenset({each}) in spill]
        if len(graphs) < 2 or len(alone) < len(graphs):
            continue
        if seen != max(alone):
            raise Violation(f"spill-fill of {max(alone)} bytes, the largest of {alone}", f"{seen}")
        least = max(weights[frozenset({each})] for each in graphs)
        if weights[graphs] < least:
            raise Violation(f"weights of {least} bytes or more, as one graph has", f"{weights[graphs]}")
        count += 1
    return Examined(count, "contexts of several graphs")


@rule(
    "EXT-20",
    Level.MUST,
    "QnnContext_finalize makes the graphs of a deferred context available; they compute the same results as "
    "composed graphs.",
    source=f"{_FLOW}, step 5; QnnContext.h: QnnContext_finalize",
    subject="memory",
    cases=flow,
    gate=("202", "217"),
)
def ext_20(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Finalising, retrieving and executing answer 0; outputs are right and equal to the composed graphs'."""
    require_finalize(case, trace)
    judge_flow(case, trace, "the context was finalised")
    composed = {step.graph for step in case.steps if isinstance(step, Prepare)}
    require_execution(trace)
    return Examined(demand_equal(case, trace, composed), "outputs compared with those of the composed graph")


@rule(
    "EXT-25",
    Level.MUST,
    "QnnContext_finalize a second time, or of a context that is not deferred, is refused with "
    "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE (1000) or QNN_CONTEXT_ERROR_INVALID_ARGUMENT (5000) and does no "
    "harm; of no context, with QNN_CONTEXT_ERROR_INVALID_HANDLE (5002), for NULL also 5000.",
    source="QnnContext.h: QnnContext_finalize",
    subject="memory",
    cases=again,
    gate=("202",),
)
def ext_25(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1000 or 5000; 5002 for a context that is none, and for NULL 5000 too; the graphs go on.

    A call that is not supported need not look at its context.
    """
    require_finalize(case, trace)
    offered = facts_of(trace).supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT)
    count = 0
    for walked in own_steps(
        case, trace, lambda w: isinstance(w.step, ContextFinalize) and w.allowed.specified
    ):
        if walked.code == _UNSUPPORTED and not offered and walked.allowed.only(Fault.BAD_CONTEXT):
            raise Unsupported("contextFinalize answers 1000, not supported, and key 217 is not supported")
        if walked.allowed.faults:
            demand_code(walked, walked.allowed.codes, walked.allowed.wrong)
            count += 1
    judge_flow(case, trace, "contextFinalize was refused")
    return Examined(count, "contexts finalised wrongly")


UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


def _require_option(walked: Walked, trace: MemoryTrace, codes: Collection[int]) -> None:
    """Raise Unsupported where the option is refused otherwise, and key 217 does not say that there is one."""
    offered = facts_of(trace).supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT)
    if not offered and walked.code and walked.code not in codes:
        answer = named(walked.code)
        raise Unsupported(f"the option DEFER_GRAPH_INIT answers {answer}, and key 217 is not supported")


def _created(scene: Scene, tape: Tape) -> None:
    """EXT-02: QnnContext_create with deferred initialisation, beside the flow that there is."""
    found = begun(scene, tape) if tape.chance(2) else None
    scene.add(ContextCreate(scene.name("c"), defer=True))
    if found is not None:
        ended(scene, *found, 0)


created = embedded(_created, before=1)


@rule(
    "EXT-02",
    Level.MUST,
    "Only contexts from binaries can be deferred: QnnContext_create answers DEFER_GRAPH_INIT with "
    "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE (1000), QNN_CONTEXT_ERROR_INVALID_ARGUMENT (5000) or "
    "QNN_CONTEXT_ERROR_INVALID_CONFIG (5010).",
    source=f"{_FLOW}, limitations; QnnContext.h: QnnContext_create",
    subject="memory",
    cases=created,
)
def ext_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """QnnContext_create with DEFER_GRAPH_INIT answers 1000, 5000 or 5010."""
    require_session(trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.DEFER_CREATE)):
        _require_option(walked, trace, walked.allowed.codes)
        demand_code(walked, walked.allowed.codes, "nothing comes out of a binary here")
        count += 1
    return Examined(count, "composed contexts with deferred initialisation")


_UDMA = int(HtpContextConfigOption.USE_EXTENDED_UDMA)
EXCLUDED = (2, 12, _UDMA)
"""QnnHtpContext_ConfigOption_t: contexts in a group, concurrent sharing of resources, extended udma."""


_PREPARED = 0
"""In the place of an option of `EXCLUDED`: the binary was prepared with extended udma."""


def _excluded(scene: Scene, tape: Tape) -> None:
    """EXT-28: an option that excludes deferred initialisation, and the whole way all the same."""
    made = weighted(scene, tape)
    if made is None:
        return
    ended(scene, made, deferred(scene, made.binary), 0)
    option = tape.pick((*EXCLUDED, None, _PREPARED))
    if option == _PREPARED:
        _prepared_far(scene, made.graphs[0])
        return
    context = scene.name("c")
    beside = () if option is None else (option,)
    scene.add(ContextFromBinary(context, made.binary, True, beside, switching=option is None))
    scene.add(ContextFinalize(context))
    scene.add(Retrieve("late", context, made.graphs[0]))
    scene.add(Execute("late", (Binding(seed=1), Binding())))


def _prepared_far(scene: Scene, like: str) -> None:
    """A graph prepared twice as ever and once with extended udma; the last binary with weights memory."""
    made = msgspec.structs.replace(scene.graphs[like], graph=scene.name("g"))
    binary = ""
    for beside in ((), (), (_UDMA,)):
        context, binary = scene.name("c"), scene.name("f")
        scene.add(ContextCreate(context, beside=beside))
        # One name in all binaries: only what it is prepared with may make them differ.
        scene.add(msgspec.structs.replace(made, context=context))
        scene.add(GetBinary(context, binary, keep=True))
    last = deferred(scene, binary)
    given(scene, last, WEIGHTS, external(scene, last, WEIGHTS))
    scene.add(ContextFinalize(last))
    scene.add(Retrieve("late", last, made.graph))
    scene.add(Execute("late", (Binding(seed=1), Binding())))


excluded = embedded(_excluded, before=0, after=0)


@rule(
    "EXT-28",
    Level.SHOULD,
    "Deferred initialisation together with an option that excludes it, or external memory with a binary that "
    "was prepared with extended udma (udma64), is refused before any graph executes.",
    source=f"{_FLOW}, limitations",
    subject="memory",
    cases=excluded,
    gate=("202", "217"),
)
def ext_28(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5010 or 1000 at creation, or any refusal of contextFinalize, graphRetrieve or graphExecute.

    Custom options 2, 12 and 11 (udma64), and the two options that ask for graph switching. Secure-PD is a
    protection of models by the device's system, and no option of the interface. Whether custom option 11 of
    QnnContext_create has an effect shows in the binary: it is another one, where a second one without the
    option is the same.
    """
    require_finalize(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: Fault.INCOMPATIBLE in w.allowed.faults):
        assert isinstance(walked.step, ContextFromBinary)
        if walked.code != 0:
            demand_code(walked, walked.allowed.codes, "the options exclude each other")
        elif went_through(case, trace, walked.step.context):
            beside = walked.step.beside
            other = f"custom option {beside[0]}" if beside else "graph switching"
            raise Violation(f"a refusal of {other} beside DEFER_GRAPH_INIT", "none", place(walked))
        count += 1
    for walked, step in _out_of_udma(case, trace):
        taken = walked.code == 0 and has_external(case, trace, step.context)
        if taken and went_through(case, trace, step.context):
            wanted = "a refusal of external memory with a binary prepared with extended udma"
            raise Violation(wanted, "none, up to the execute", place(walked))
        count += 1
    return Examined(count, "contexts with options that exclude each other")


def _out_of_udma(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, ContextFromBinary]]:
    """Deferred contexts of binaries that extended udma has made others than equal ones without it."""
    udma: dict[str, bool] = {}
    binaries: dict[str, bytes] = {}
    plain: list[bytes] = []
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, ContextCreate) and walked.code == 0:
            udma[step.context] = _UDMA in step.beside
        elif isinstance(step, GetBinary) and walked.seen.data:
            if udma.get(step.context):
                binaries[step.binary] = walked.seen.data[0]
            else:
                plain.append(walked.seen.data[0])
        elif isinstance(step, ContextFromBinary) and _is_another(binaries.get(step.binary), plain):
            yield walked, step


def _is_another(binary: bytes | None, plain: list[bytes]) -> bool:
    """It differs from two that are equal: what makes it differ is the option."""
    return binary is not None and len(plain) > 1 and len(set(plain)) == 1 and binary != plain[0]


def has_external(case: MemoryCase, trace: MemoryTrace, context: str) -> bool:
    """Weights or spill-fill memory was registered with the context."""
    return any(
        isinstance(walked.step, Register)
        and walked.step.context == context
        and walked.code == 0
        and any(each.htp_type in NEEDED for each in walked.step.descriptors)
        for walked in walk(case, trace)
    )


def went_through(case: MemoryCase, trace: MemoryTrace, context: str) -> bool:
    """The context was finalised, and a graph of it executed."""
    graphs = {step.graph for step in case.steps if isinstance(step, Retrieve) and step.context == context}
    return any(
        isinstance(walked.step, Execute) and walked.step.graph in graphs and walked.code == 0
        for walked in walk(case, trace)
    )


@rule(
    "EXT-29",
    Level.MUST,
    "A target without external buffers refuses deferred initialisation when the context is created, and not "
    "only in QnnContext_finalize.",
    source=f"{_FLOW}, limitations (supported on some platforms only)",
    subject="memory",
    cases=flow,
    gate=("202", "no 217"),
)
def ext_29(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Where contextFinalize of a deferred context answers 1000, createFromBinary has to do so already."""
    require_binaries(case, trace)
    if facts_of(trace).supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT):
        raise Unsupported(
            "only a target without deferred initialisation can show it: key 217 says yes (CAP-06)"
        )
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        notes = walked.allowed.notes
        if Note.DEFERRED in notes and walked.code != 0:
            demand_code(walked, {UNSUPPORTED}, "deferred initialisation is not supported")
            count += 1
        elif Note.FINALISES in notes and walked.code == UNSUPPORTED:
            wanted = "createFromBinary with DEFER_GRAPH_INIT refused, or contextFinalize supported"
            raise Violation(
                wanted, f"creation succeeds, and finalising gives {named(walked.code)}", place(walked)
            )
        elif Note.FINALISES in notes and walked.code == 0:
            raise Unsupported("only a target without deferred initialisation can show it")
    return Examined(count, "refusals of deferred initialisation")


_CACHING = 202
"""QNN_PROPERTY_CONTEXT_SUPPORT_CACHING."""


def _not_deferred(scene: Scene, tape: Tape) -> None:
    """EXT-31: the option given as no, at creation and, where there are binaries, from one."""
    if tape.below(2) or not scene.facts.supports(_CACHING):
        scene.add(ContextCreate(scene.name("c"), defer=False))
        return
    made = weighted(scene, tape)
    if made is not None:
        if scene.facts.supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT) and tape.chance(2):
            deferred(scene, made.binary)
        context = loaded(scene, made.binary, defer=False)
        executed(scene, made, context, tape.below(16))


not_deferred = embedded(_not_deferred, before=0, after=0)


@rule(
    "EXT-31",
    Level.MUST,
    "DEFER_GRAPH_INIT set to no has the same effect as the absence of this option.",
    source="QnnContext.h: QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT",
    subject="memory",
    cases=not_deferred,
    weight=0.5,
)
def ext_31(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Creation answers 0, and graphs of a binary are there at once.

    QnnContext_create may have no such option, whatever its value: EXT-02.
    """
    require_session(trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: Note.NOT_DEFERRED in w.allowed.notes and w.allowed.valid):
        if isinstance(walked.step, ContextCreate) and walked.code in NO_OPTION:
            raise Unsupported(
                f"QnnContext_create answers DEFER_GRAPH_INIT with {named(walked.code)}", final=False
            )
        _require_option(walked, trace, {0})
        demand_code(walked, {0}, "isGraphInitDeferred is 0")
        count += 1
    judge_flow(case, trace, "isGraphInitDeferred was 0")
    return Examined(count, "contexts with the option given as no")
