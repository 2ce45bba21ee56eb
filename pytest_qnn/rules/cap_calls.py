"""CAP: what keys say of hints and execution environments, and that answers do not change."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, Property, TensorMemType, low
from pytest_qnn.cases import memory_probe_strategies as strategies
from pytest_qnn.cases.memory import Capability, Execute, MemoryCase, Prepare
from pytest_qnn.cases.memory_probes import Environment
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import walk
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_graph_support import CREATE_TENSOR, judge_contents, kinds, require_prepared
from pytest_qnn.rules.memory_support import demand_code, facts_of, place, require_operator
from pytest_qnn.trace import MemoryTrace

_NOT_SUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)


@rule(
    "CAP-05",
    Level.SHOULD,
    "Property 502 tells whether MEMHANDLE tensors execute; a graph with the hint runs raw in any case.",
    source="QnnProperty.h: QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE; seed 001, row 3",
    subject="memory",
    cases=strategies.hinted_raw,
)
def cap_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Prepared with the hint, a graph executes raw; 1000 to handles where 502 says yes is a contradiction.

    A target without property 502 may refuse the hint when the tensor is created.
    """
    require_operator(trace)
    declared = facts_of(trace).supports(Property.TENSOR_SUPPORT_MEMHANDLE_TYPE)
    count = 0
    for walked in walk(case, trace):
        step, code = walked.step, walked.code
        if not walked.allowed.valid:
            continue
        if isinstance(step, Prepare) and TensorMemType.MEMHANDLE in step.mem_types and code:
            call = walked.seen.calls[-1][0]
            if call == CREATE_TENSOR and not declared:
                raise Unsupported(f"{call} of a MEMHANDLE tensor answers {named(code)}")
            seen = f"{call} answers {named(code)}"
            raise Violation("a graph with the hint is prepared", seen, place(walked))
        if not isinstance(step, Execute):
            continue
        if kinds(step) == {"raw"}:
            if code == _NOT_SUPPORTED:
                raise Unsupported("graphExecute answers 1000, not supported")
            demand_code(walked, {0}, "the hint does not keep a graph from running raw")
        elif declared and code == _NOT_SUPPORTED:
            raise Contradiction("success: property key 502 says supported", named(code), place(walked))
        count += 1
    judge_contents(case, trace, lambda seen: seen.where == "output")
    return Examined(count, "executes of graphs, most with the hint")


_KEYS = {
    0: Property.GRAPH_SUPPORT_ENV_OPTION_BIND_MEM_HANDLES,
    1: Property.GRAPH_SUPPORT_ENV_OPTION_POPULATE_CLIENT_BUFS,
}


@rule(
    "CAP-07",
    Level.MAY,
    "Execution environments that bind handles or give buffers are refused without their property keys.",
    source="QnnGraph.h: QnnGraph_prepareExecutionEnvironment; property keys 317 and 318",
    subject="memory",
    cases=strategies.environments,
    gate=("absent environment",),
    weight=0.5,
)
def cap_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1000 where the key is not supported. Where it is, nothing here says more."""
    require_prepared(case, trace)
    count = 0
    supported = ""
    for walked in walk(case, trace):
        if not isinstance(walked.step, Environment) or walked.seen.code is None:
            continue
        key = _KEYS[walked.step.option]
        if facts_of(trace).supports(key):
            supported = f"property key {int(key)} says supported, and this suite does not bind environments"
            continue
        if low(walked.seen.code) != _NOT_SUPPORTED:
            wanted = f"{named(_NOT_SUPPORTED)}: property key {int(key)} says so"
            raise Violation(wanted, named(walked.seen.code), place(walked))
        count += 1
    if supported and not count:
        raise Unsupported(supported)
    return Examined(count, "environments without their property key")


@rule(
    "CAP-08",
    Level.SHOULD,
    "The answer to a property key is the same throughout the life of the process.",
    source="QnnProperty.h: QnnProperty_hasCapability (a property of the backend)",
    subject="memory",
    cases=strategies.repeated_keys,
)
def cap_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Equal answers early and late, before, between and after contexts and registrations."""
    first: dict[int, int] = {}
    count = 0
    for walked in walk(case, trace):
        if not isinstance(walked.step, Capability) or walked.code is None:
            continue
        key = walked.step.key
        if first.setdefault(key, walked.code) != walked.code:
            wanted = f"{named(first[key])}, as key {key} was answered before"
            raise Violation(wanted, named(walked.code), place(walked))
        count += 1
    return Examined(count, "answers to property keys")
