"""IF: what a backend says of itself, and what its codes and handles are."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.abi.qnn_codes import ERROR_MASK, Error, low
from pytest_qnn.cases import memory_probe_strategies as strategies
from pytest_qnn.cases.memory import AnyStep, ContextCreate, MemoryCase, Prepare, Register
from pytest_qnn.cases.memory_probes import Interface, Message, Misuse, Version
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory_codes import SENTINEL, named, one_of
from pytest_qnn.rules.iface_codes import PARENTS, component
from pytest_qnn.rules.memory_support import call_name, require_session
from pytest_qnn.trace import MemoryTrace, StepSeen

_UNSUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_COMMON = 1
"""Thousands of a code that any component may give."""


def pairs(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, AnyStep, StepSeen]]:
    """(place, step, what was seen) of each step that was carried out."""
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not seen.skipped:
            yield f"step {index}, {call_name(step)}", step, seen


def demand(seen: StepSeen, codes: frozenset[int], where: str, because: str) -> None:
    """Raise Violation unless the code seen, if any, is one of ``codes`` (low 16 bits)."""
    if seen.code is not None and low(seen.code) not in codes:
        raise Violation(f"{one_of(codes)}: {because}", named(seen.code), where)


@rule(
    "IF-03",
    Level.MUST,
    "The interface that is listed stays where it is and as it is, for the life of the library.",
    source="QnnInterface.h: QnnInterface_getProviders",
    subject="memory",
    cases=strategies.interfaces,
    weight=0.5,
)
def if_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The same address and the same bytes at every look."""
    first: StepSeen | None = None
    count = 0
    for where, step, seen in pairs(case, trace):
        if not isinstance(step, Interface) or not seen.data:
            continue
        first = first or seen
        if seen.values != first.values:
            raise Violation("the interface at the address given before", "another address", where)
        for before, now, of in zip(first.data, seen.data, ("struct", "provider name"), strict=True):
            if before != now:
                at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), 0)
                raise Violation(f"a {of} that stays as it is", f"byte {at} differs", where)
        count += 1
    return Examined(count, "looks at the interface")


_CORE = ("core_major", "core_minor", "core_patch")
_MAJOR = 2


@rule(
    "IF-04",
    Level.MUST,
    "The interface has the version of the backend, and its table the functions in the header's order.",
    source="QnnCommon.h: Qnn_ApiVersion_t; QnnInterface.h: QnnInterface_t",
    subject="memory",
    cases=strategies.table,
    weight=0.5,
)
def if_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The version from both sources; and that calls on NULL are answered by the component they belong to.

    A function in another's place answers with the codes of its own component.
    """
    said: tuple[int, ...] | None = None
    count = 0
    for where, step, seen in pairs(case, trace):
        if isinstance(step, Version | Interface) and seen.counts:
            version = tuple(seen.counts.get(part, 0) for part in _CORE)
            if version[0] != _MAJOR:
                raise Unsupported(f"the interface is of API {version[0]}, this suite's is of API {_MAJOR}")
            said = said or version
            if version != said:
                raise Violation(f"core API {_dotted(said)}, as said before", _dotted(version), where)
            count += 1
        elif isinstance(step, Misuse) and seen.code:
            own = component(step.call) | PARENTS.get(step.call, frozenset())
            _demand_component(step.call, own, seen.code, where)
            count += 1
        elif isinstance(step, Message) and step.null and seen.code:
            own = frozenset({int(Error.ERROR_INVALID_ARGUMENT)})
            _demand_component("errorGetMessage", own, seen.code, where)
            count += 1
    return Examined(count, "versions, and functions called")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _demand_component(call: str, own: frozenset[int], code: int, where: str) -> None:
    components = {each // 1000 for each in own} | {_COMMON}
    if low(code) // 1000 not in components:
        wanted = " or ".join(f"{each}xxx" for each in sorted(components))
        raise Violation(f"a code of the component of {call}: {wanted}", named(code), where)


@rule(
    "IF-06",
    Level.MUST,
    "Success is exactly 0; of any other answer the low 16 bits are an error code.",
    source="QnnCommon.h: Qnn_ErrorHandle_t, QNN_GET_ERROR_CODE, QNN_SUCCESS",
    subject="memory",
    cases=strategies.anything,
)
def if_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No answer of any call has low bits of 0 and others set."""
    count = 0
    answers = [("session", call, code) for call, code in trace.session]
    answers += [("end of the case", call, code) for call, code in trace.closing]
    for where, step, seen in pairs(case, trace):
        answers += [(where, call, code) for call, code in seen.calls]
        if seen.code is not None:
            answers.append((where, call_name(step), seen.code))
    for where, call, code in answers:
        if low(code) > ERROR_MASK:
            raise Violation("0, or an error code in the low 16 bits", f"{call} answers 0x{code:x}", where)
        count += 1
    return Examined(count, "answers")


@rule(
    "IF-07",
    Level.MUST,
    "The API version and the build id are told before any backend is created; NULL is refused.",
    source="QnnBackend.h: QnnBackend_getApiVersion, QnnBackend_getBuildId",
    subject="memory",
    cases=strategies.versions,
    weight=0.5,
)
def if_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success and something told; 4004 for a NULL out pointer."""
    count = 0
    for where, step, seen in pairs(case, trace):
        if not isinstance(step, Version):
            continue
        if seen.code is not None and low(seen.code) == _UNSUPPORTED:
            raise Unsupported(f"{_TOLD[step.call]} answers 1000")
        if step.null:
            codes = frozenset({int(Error.BACKEND_ERROR_INVALID_ARGUMENT)})
            demand(seen, codes, where, "the out pointer is NULL")
        else:
            demand(seen, frozenset({0}), where, "no backend is needed")
            if step.call == "build" and not seen.data:
                raise Violation("a build id", "NULL or an empty text", where)
        count += 1
    return Examined(count, "questions for the version or the build id")


_TOLD = {"api": "backendGetApiVersion", "build": "backendGetBuildId"}


@rule(
    "IF-08",
    Level.SHOULD,
    "QnnError_getMessage knows the codes of QnnMem; for an unknown code it fails and gives NULL.",
    source="QnnError.h: QnnError_getMessage",
    subject="memory",
    cases=strategies.messages,
    gate=("1001",),
    weight=0.5,
)
def if_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A text for 8000 to 8005; 10001 and NULL for codes that are none; 10000 for a NULL out pointer."""
    count = 0
    for where, step, seen in pairs(case, trace):
        if not isinstance(step, Message):
            continue
        if seen.code is not None and low(seen.code) == _UNSUPPORTED:
            raise Unsupported("errorGetMessage answers 1000")
        if step.null:
            demand(seen, frozenset({int(Error.ERROR_INVALID_ARGUMENT)}), where, "the out pointer is NULL")
        elif step.error in strategies.CODES:
            demand(seen, frozenset({0}), where, f"{step.error} is a code of QnnMem")
            if not seen.data:
                raise Violation(f"a text for {step.error}", "none", where)
        elif step.error in strategies.UNKNOWN_CODES:
            unknown = frozenset({int(Error.ERROR_INVALID_ERROR_HANDLE)})
            demand(seen, unknown, where, f"{step.error} is no error code")
            if seen.values != (0,):
                raise Violation("a pointer that is NULL afterwards", "it is not", where)
        count += 1
    return Examined(count, "questions for a message")


@rule(
    "IF-09",
    Level.MUST,
    "A handle that comes with success is not 0.",
    source="QnnCommon.h: opaque handles; QnnContext_create, QnnGraph_create, QnnMem_register",
    subject="memory",
    cases=strategies.anything,
)
def if_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Contexts, graphs and memory handles; equal values of different kinds are in order."""
    count = 0
    for where, step, seen in pairs(case, trace):
        if isinstance(step, ContextCreate | Prepare):
            made = seen.values[:1] if seen.code == 0 else ()
        elif isinstance(step, Register) and not (step.null_handles or step.null_descriptors):
            made = seen.values[: len(step.descriptors)] if seen.code == 0 else ()
        else:
            continue
        for value in made:
            if value in (0, SENTINEL):
                raise Violation("a handle that is not 0", "0" if not value else "none was written", where)
            count += 1
    if not count:
        require_session(trace)
    return Examined(count, "handles")
