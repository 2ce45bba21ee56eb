"""IF: discovery of the interface, and the shape of its table."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.abi.qnn_codes import Error, Property, low
from pytest_qnn.cases.memory import Capability, ContextCreate, MemoryCase, Providers
from pytest_qnn.cases.memory_strategies import Tape
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.facts import MemoryFacts
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_support import facts_of
from pytest_qnn.trace import MemoryTrace

_BYTES = 8
_FUNCTIONS: dict[int, tuple[str, ...]] = {
    Property.GROUP_MEMORY: ("memRegister", "memDeRegister"),
    Property.CONTEXT_SUPPORT_CACHING: (
        "contextGetBinarySize",
        "contextGetBinary",
        "contextCreateFromBinary",
    ),
    Property.BACKEND_SUPPORT_COMPOSITION: (
        "graphCreate",
        "tensorCreateGraphTensor",
        "graphAddNode",
        "graphFinalize",
    ),
    Property.GROUP_DEVICE: ("deviceCreate", "deviceFree"),
}
"""Functions of the table that a property key is about."""


def _first_thing(_: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """GetProviders before anything else, and again between other calls."""

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        steps: list[Providers | ContextCreate | Capability] = [Providers()]
        for number in range(_BYTES):
            act = tape.below(4)
            if act == 1:
                steps.append(Providers())
            elif act == 2:
                steps.append(ContextCreate(f"c{number}"))
            elif act == 3:
                steps.append(Capability(int(Property.GROUP_MEMORY)))
        return MemoryCase(tuple(steps))

    return decoded(_BYTES, decode)


def _plain_calls(case: MemoryCase, trace: MemoryTrace) -> list[tuple[int, int, tuple[int, ...]]]:
    """(index, code, values) of each getProviders call without a NULL argument."""
    return [
        (index, seen.code, seen.values)
        for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False))
        if isinstance(step, Providers) and not (step.null_list or step.null_count) and seen.code is not None
    ]


@rule(
    "IF-01",
    Level.MUST,
    "QnnInterface_getProviders succeeds as the first call of all and yields a provider that is not NULL.",
    source="seed 002, initialisation; H:QnnInterface_getProviders",
    subject="memory",
    cases=_first_thing,
    weight=0.5,
)
def if_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success and a non-NULL provider, first of all and later on."""
    calls = _plain_calls(case, trace)
    for index, code, values in calls:
        where = f"step {index}, providers"
        if low(code):
            raise Violation(named(0), named(code), where)
        if not any(values):
            seen = f"{len(values)} providers" + (", all of them NULL" if values else "")
            raise Violation("at least one provider that is not NULL", seen, where)
    return Examined(len(calls), "getProviders calls")


def _null_arguments(_: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """The three ways of NULL arguments, in any order, among valid calls."""

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        steps = [Providers(n in (1, 3), n in (2, 3)) for n in (tape.below(5) for _ in range(_BYTES)) if n]
        return MemoryCase((Providers(null_list=True), *steps) if not tape.below(2) else tuple(steps))

    return decoded(_BYTES + 1, decode)


@rule(
    "IF-02",
    Level.MUST,
    "A NULL provider list or a NULL count is refused.",
    source="H:QnnInterface_getProviders",
    subject="memory",
    cases=_null_arguments,
    weight=0.5,
)
def if_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1004 for each of the three combinations."""
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Providers) or not (step.null_list or step.null_count) or seen.code is None:
            continue
        if low(seen.code) != Error.INTERFACE_ERROR_INVALID_PARAMETER:
            expected = named(Error.INTERFACE_ERROR_INVALID_PARAMETER)
            raise Violation(expected, named(seen.code), f"step {index}, providers")
        count += 1
    return Examined(count, "calls with a NULL argument")


@rule(
    "IF-05",
    Level.MUST,
    "A function pointer is NULL only where its feature is not supported.",
    source="H:QnnInterface, QnnProperty",
    subject="memory",
    cases=_first_thing,
    weight=0.05,
)
def if_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The pointers behind each property key that is supported."""
    del case
    facts = facts_of(trace)
    count = 0
    for key, functions in _FUNCTIONS.items():
        if not facts.supports(key):
            continue
        for function in functions:
            if function in facts.null_functions:
                raise Violation(f"{function} in the table: key {key} is supported", f"{function} is NULL")
            count += 1
    if not count:
        raise Unsupported("no property key says that a feature with functions of its own is supported")
    return Examined(count, "function pointers")
