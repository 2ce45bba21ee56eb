"""EXT, CAP-06: the limits of deferred initialisation: other calls, other options, targets without it."""

from __future__ import annotations

from collections.abc import Collection

from pytest_qnn.abi.qnn_codes import Error, Property
from pytest_qnn.cases import memory_deferred_strategies as strategies
from pytest_qnn.cases.memory import ContextFromBinary, ContextProperty, Execute, MemoryCase, Retrieve
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import Walked, walk
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.binary_support import judge_flow, require_binaries, require_finalize
from pytest_qnn.rules.memory_support import demand_code, facts_of, own_steps, place, require_session
from pytest_qnn.trace import MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


@rule(
    "CAP-06",
    Level.MUST,
    "Deferred initialisation and its properties are there, to the end, where keys 217 and 215 say so only.",
    source="H:QnnProperty; seed 002, external weights and spill-fill buffers",
    subject="memory",
    cases=strategies.flow,
    gate=("202",),
)
def cap_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """With 217, creation, contextFinalize and graphRetrieve succeed; without, creation answers 1000.

    With 215, a deferred context has the properties; without, they answer 1000. Else it is a contradiction.
    """
    require_binaries(case, trace)
    if not facts_of(trace).capabilities:
        raise Unsupported("the target's property keys are not known")
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        key = _key_of(walked)
        if key is not None:
            _demand_as_said(walked, key, offered=facts_of(trace).supports(key))
            count += 1
    return Examined(count, "steps of the deferred way")


def _key_of(walked: Walked) -> Property | None:
    """The property key that says whether the step can be done."""
    notes = walked.allowed.notes
    if isinstance(walked.step, ContextProperty):
        return Property.CONTEXT_SUPPORT_CUSTOM_PROPERTY
    if "deferred" in notes or "finalises" in notes:
        return Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT
    return None


def _demand_as_said(walked: Walked, key: Property, *, offered: bool) -> None:
    """Success where the key is supported, 1000 where it is not."""
    wanted = 0 if offered else _UNSUPPORTED
    said = f"property key {int(key)} says {'' if offered else 'not '}supported"
    if walked.code in (0, _UNSUPPORTED) and walked.code != wanted:
        raise Contradiction(f"{named(wanted)}: {said}", named(walked.code or 0), place(walked))
    demand_code(walked, {wanted}, said)


def _require_option(walked: Walked, trace: MemoryTrace, codes: Collection[int]) -> None:
    """Raise Unsupported where the option is refused otherwise, and key 217 does not say that there is one."""
    offered = facts_of(trace).supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT)
    if not offered and walked.code and walked.code not in codes:
        answer = named(walked.code)
        raise Unsupported(f"the option DEFER_GRAPH_INIT answers {answer}, and key 217 is not supported")


@rule(
    "EXT-02",
    Level.MUST,
    "Initialisation can be deferred for contexts from binaries only.",
    source=f"{_FLOW}, limitations",
    subject="memory",
    cases=strategies.created,
)
def ext_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """QnnContext_create with DEFER_GRAPH_INIT answers 1000 or 5010."""
    require_session(trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only("defer-create")):
        _require_option(walked, trace, walked.allowed.codes)
        demand_code(walked, walked.allowed.codes, "nothing comes out of a binary here")
        count += 1
    return Examined(count, "composed contexts with deferred initialisation")


@rule(
    "EXT-28",
    Level.SHOULD,
    "Deferred initialisation beside an option that excludes it is refused before anything executes.",
    source=f"{_FLOW}, limitations",
    subject="memory",
    cases=strategies.excluded,
    gate=("202", "217"),
)
def ext_28(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5010 or 1000 at creation, or any refusal of contextFinalize, graphRetrieve or graphExecute.

    Custom options 2, 12 and 11 (udma64), and the two options that ask for graph switching. Secure-PD is a
    protection of models by the device's system, and no option of the interface.
    """
    require_finalize(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: "incompatible" in w.allowed.faults):
        assert isinstance(walked.step, ContextFromBinary)
        if walked.code != 0:
            demand_code(walked, walked.allowed.codes, "the options exclude each other")
        elif _went_through(case, trace, walked.step.context):
            beside = walked.step.beside
            other = f"custom option {beside[0]}" if beside else "graph switching"
            raise Violation(f"a refusal of {other} beside DEFER_GRAPH_INIT", "none", place(walked))
        count += 1
    return Examined(count, "contexts with options that exclude each other")


def _went_through(case: MemoryCase, trace: MemoryTrace, context: str) -> bool:
    """The context was finalised, and a graph of it executed."""
    graphs = {step.graph for step in case.steps if isinstance(step, Retrieve) and step.context == context}
    return any(
        isinstance(walked.step, Execute) and walked.step.graph in graphs and walked.code == 0
        for walked in walk(case, trace)
    )


@rule(
    "EXT-29",
    Level.MUST,
    "A target without external buffers refuses deferred initialisation, instead of beginning it.",
    source=f"{_FLOW}, limitations (supported on some platforms only)",
    subject="memory",
    cases=strategies.flow,
    gate=("202", "no 217"),
)
def ext_29(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Where contextFinalize of a deferred context answers 1000, createFromBinary has to do so already."""
    require_binaries(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        notes = walked.allowed.notes
        if "deferred" in notes and walked.code != 0:
            demand_code(walked, {_UNSUPPORTED}, "deferred initialisation is not supported")
            count += 1
        elif "finalises" in notes and walked.code == _UNSUPPORTED:
            wanted = "createFromBinary with DEFER_GRAPH_INIT refused, or contextFinalize supported"
            raise Violation(
                wanted, f"creation succeeds, and finalising gives {named(walked.code)}", place(walked)
            )
        elif "finalises" in notes and walked.code == 0:
            raise Unsupported("deferred initialisation is supported")
    return Examined(count, "refusals of deferred initialisation")


@rule(
    "EXT-31",
    Level.MUST,
    "DEFER_GRAPH_INIT given as no is the same as not given.",
    source="H:QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT",
    subject="memory",
    cases=strategies.not_deferred,
    weight=0.5,
)
def ext_31(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Creation answers 0, and graphs of a binary are there at once."""
    require_session(trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: "not-deferred" in w.allowed.notes and w.allowed.valid):
        _require_option(walked, trace, {0})
        demand_code(walked, {0}, "isGraphInitDeferred is 0")
        count += 1
    judge_flow(case, trace, "isGraphInitDeferred was 0")
    return Examined(count, "contexts with the option given as no")
