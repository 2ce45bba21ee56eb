"""EXT: contexts whose initialisation is deferred, from their creation to contextFinalize."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.abi.qnn_codes import Error, HtpContextOption
from pytest_qnn.cases import memory_deferred_strategies as strategies
from pytest_qnn.cases.memory import (
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    GetBinary,
    MemoryCase,
    Prepare,
)
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked, walk
from pytest_qnn.oracle.memory_codes import SENTINEL
from pytest_qnn.rules.binary_support import (
    demand_equal,
    demand_refused,
    judge_flow,
    require_deferred,
    require_finalize,
)
from pytest_qnn.rules.memory_support import demand_code, own_steps, place
from pytest_qnn.trace import MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
_ALIGNMENT = int(HtpContextOption.BUFFER_START_ALIGNMENT)


@rule(
    "EXT-01",
    Level.MUST,
    "createFromBinary with deferred initialisation gives a context whose graphs cannot be retrieved yet.",
    source=f"{_FLOW}, step 1",
    subject="memory",
    cases=strategies.flow,
    gate=("202", "217"),
)
def ext_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Creation answers 0; graphRetrieve before contextFinalize fails, with whatever code."""
    require_deferred(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.settled):
        if walked.allowed.valid and "deferred" in walked.allowed.notes:
            demand_code(walked, {0}, "initialisation is deferred")
        elif walked.allowed.only("pending"):
            demand_refused(walked, "the context is not finalised")
            count += 1
    return Examined(count, "graphs retrieved too early")


def _asked(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, ContextProperty]]:
    """The questions for properties whose answers are settled."""
    for walked in own_steps(case, trace, lambda w: w.allowed.settled):
        if isinstance(walked.step, ContextProperty):
            yield walked, walked.step


@rule(
    "EXT-03",
    Level.MUST,
    "A deferred context says its start alignment and the sizes of its weights and spill-fill memory.",
    source=f"{_FLOW}, step 2; H:QnnHtpContext_GetPropertyOption_t",
    subject="memory",
    cases=strategies.properties,
    gate=("202", "215", "217"),
)
def ext_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 for each property alone and for all together, each written; the alignment is a power of two."""
    require_deferred(case, trace)
    count = 0
    for walked, step in _asked(case, trace):
        if not walked.allowed.valid:
            continue
        demand_code(walked, {0}, "the context is a deferred one")
        for option, value in zip(step.options, walked.seen.values, strict=False):
            if value == SENTINEL:
                raise Violation("a value for every property", f"none for property {option}", place(walked))
            if option == _ALIGNMENT and (value == 0 or value & (value - 1)):
                raise Violation("an alignment that is a power of two", f"{value}", place(walked))
        count += 1
    return Examined(count, "questions for properties")


@rule(
    "EXT-04",
    Level.MUST,
    "A wrong question for properties is refused, and no value is written.",
    source="H:QnnContext_getProperty",
    subject="memory",
    cases=strategies.asked_wrongly,
    gate=("202", "215", "217"),
)
def ext_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5000 for a NULL list, 5002 for no context, 5000 or 1000 for an option that there is not."""
    require_deferred(case, trace)
    count = 0
    for walked, _ in _asked(case, trace):
        if not walked.allowed.faults:
            continue
        demand_code(walked, walked.allowed.codes, ", ".join(sorted(walked.allowed.faults)))
        written = [value for value in walked.seen.values if value != SENTINEL]
        if written:
            raise Violation("untouched values", f"{written} written", place(walked))
        count += 1
    return Examined(count, "wrong questions for properties")


@rule(
    "EXT-05",
    Level.MUST,
    "A context's properties stay what they are until it is freed.",
    source=f"{_FLOW}, step 2",
    subject="memory",
    cases=strategies.properties,
    gate=("202", "215", "217"),
)
def ext_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The same answers alone, together, after registering and after finalising."""
    require_deferred(case, trace)
    said: dict[tuple[str, int], int] = {}
    count = 0
    for walked, step in _asked(case, trace):
        if walked.code != 0:
            continue
        for option, value in zip(step.options, walked.seen.values, strict=False):
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


@rule(
    "EXT-06",
    Level.MUST,
    "A context needs as much spill-fill memory as the neediest of its graphs, and weights for all of them.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=strategies.requirements,
    gate=("202", "215", "217"),
)
def ext_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Graphs in binaries of their own, against all in one.

    Spill-fill: the largest of their sizes. Weights: no less than any of theirs (graphs may share weights).
    """
    require_deferred(case, trace)
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
    "contextFinalize makes the graphs of a deferred context: they compute what they do on the ordinary way.",
    source=f"{_FLOW}, step 5; H:QnnContext_finalize",
    subject="memory",
    cases=strategies.flow,
    gate=("202", "217"),
)
def ext_20(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Finalising, retrieving and executing answer 0; outputs are right and equal to the composed graphs'."""
    require_finalize(case, trace)
    judge_flow(case, trace, "the context was finalised")
    composed = {step.graph for step in case.steps if isinstance(step, Prepare)}
    return Examined(demand_equal(case, trace, composed), "outputs compared with those of the composed graph")


@rule(
    "EXT-25",
    Level.MUST,
    "contextFinalize a second time, or of a context that was not deferred, is refused and does no harm.",
    source="H:QnnContext_finalize",
    subject="memory",
    cases=strategies.again,
    gate=("202",),
)
def ext_25(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1000 or 5000 (5002 for a context that is none); the graphs go on."""
    require_finalize(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, ContextFinalize) and w.allowed.settled):
        if walked.allowed.faults:
            demand_code(walked, walked.allowed.codes, ", ".join(sorted(walked.allowed.faults)))
            count += 1
    judge_flow(case, trace, "contextFinalize was refused")
    return Examined(count, "contexts finalised wrongly")
