"""ABI: what a plugin library says of its symbols, and the structures that it makes."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies, plugin_strategies
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.plugin import CREATE, DESTROY, Apply, Copy, Create, PluginCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.rules import abi_support as support
from pytest_qnn.rules.delegate_support import need_observation
from pytest_qnn.trace import DelegateTrace, PluginTrace, StructSeen

_COMMON = "tflite/core/c/common.h"
_KNOWN_FLAGS = 0b1111
"""TfLiteDelegateFlags: dynamic tensors, propagated shapes, profiling per operator, all claimed."""
_KNOWN_INPLACE = 0b1111
"""TfLiteInPlaceOp: data unmodified, and one bit for each of the first three operands."""


@rule(
    "ABI-01",
    Level.MUST,
    f"The library exports {CREATE} and {DESTROY} under these names.",
    source=f'{support.HEADER}, extern "C" and TFL_EXTERNAL_DELEGATE_EXPORT',
    subject="delegate",
    cases=plugin_strategies.alone,
    gate=("plugin interface",),
    weight=0.3,
)
def exports_its_functions(case: PluginCase, trace: PluginTrace) -> Examined:  # noqa: ARG001 - the form of a check
    """Looks at the dynamic symbols of the library's file."""
    support.need_interface(trace)
    for name in (CREATE, DESTROY):
        if name not in trace.library.exports:
            alike = [export for export in trace.library.exports if name in export]
            raise Violation(
                f"the dynamic symbol {name}",
                f"{alike[0]}, a name that C++ made" if alike else "no such symbol",
            )
    return Examined(2, "symbols")


@rule(
    "ABI-09",
    Level.MUST,
    "What create returns is a TfLiteDelegate of 56 bytes: with a Prepare or a valid opaque builder, unused "
    "callbacks NULL, and known flags only.",
    source=f"{_COMMON}, TfLiteDelegate",
    subject="delegate",
    cases=plugin_strategies.created,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def returns_a_delegate(case: PluginCase, trace: PluginTrace) -> Examined:
    """Reads the struct's members; a function is NULL or the address of code."""
    support.need_functions(trace)
    looked_at = 0
    for position, step, seen in support.steps(case, trace, Create):
        if seen.struct is not None:
            _valid(seen.struct, support.at(position, step))
            looked_at += 1
    return Examined(looked_at, "delegates")


def _valid(struct: StructSeen, where: str) -> None:
    if struct.builder == "unreadable":
        raise Violation("56 bytes that can be read", "memory that is not mapped", where)
    for name, kind in struct.functions.items():
        if kind == "no code":
            raise Violation(f"{name} to be NULL or a function", "a pointer that shows no code", where)
    if struct.builder == "invalid":
        raise Violation(
            "opaque_delegate_builder (bytes 48 to 55) to be NULL or valid",
            "a pointer that shows no TfLiteOpaqueDelegateBuilder; headers of 2022 and before end at byte 48",
            where,
        )
    if struct.functions["Prepare"] == "null" and struct.builder == "null":
        raise Violation("a Prepare, or an opaque builder", "neither", where)
    unknown = (struct.flags | struct.builder_flags) & ~_KNOWN_FLAGS
    if unknown:
        raise Violation(f"no flags but {_KNOWN_FLAGS:#x}", f"{unknown & (1 << 64) - 1:#x}", where)


@rule(
    "ABI-10",
    Level.MUST,
    "A delegate uses its own callbacks or its opaque builder, and does not mix them: Prepare wins over a "
    "builder.",
    source="tflite/core/c/common_internal.cc, TfLiteDelegateHasValidOpaqueDelegateBuilder",
    subject="delegate",
    cases=plugin_strategies.created,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def does_not_mix(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at the members of what create returned."""
    support.need_functions(trace)
    looked_at = 0
    for position, step, seen in support.steps(case, trace, Create):
        if seen.struct is None or seen.struct.builder in ("invalid", "unreadable"):
            continue
        looked_at += 1
        own = [name for name, kind in seen.struct.functions.items() if kind != "null"]
        if seen.struct.builder == "valid" and own:
            raise Violation(
                "no callback beside an opaque builder",
                f"{', '.join(own)} beside it",
                support.at(position, step),
            )
    return Examined(looked_at, "delegates")


@rule(
    "ABI-11",
    Level.MUST,
    "An opaque delegate passes Replace a registration with registration_external.",
    source="tflite/core/subgraph.cc, Subgraph::ReplaceNodeSubsetsWithDelegateKernels (opaque)",
    subject="delegate",
    cases=plugin_strategies.applied,
    gate=("plugin interface", "opaque"),
    weight=0.3,
)
@support.pictured
def registers_operators(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at each registration that an opaque Prepare passes."""
    support.need_functions(trace)
    structs = [seen.struct for _, _, seen in support.steps(case, trace, Create) if seen.struct is not None]
    if structs and all(struct.builder != "valid" for struct in structs):
        raise Unsupported("the delegate is not opaque: it has no opaque_delegate_builder")
    looked_at = 0
    for position, step, seen in support.steps(case, trace, Apply):
        if not all(seen.operators):
            raise Violation(
                "a registration_external in the registration",
                "NULL: the runtime refuses it, or calls functions of another kind",
                support.at(position, step),
            )
        looked_at += len(seen.operators)
    return Examined(looked_at, "registrations")


@rule(
    "ABI-12",
    Level.MUST,
    "The library can be loaded with every symbol bound: what its own dependencies do not export, it does not "
    "need. No symbol of a runtime can be bound to, since Python loads the runtimes with RTLD_LOCAL.",
    source="dlopen(3), RTLD_NOW and RTLD_LOCAL, as Python loads libraries",
    subject="delegate",
    cases=plugin_strategies.alone,
    gate=("plugin interface",),
    weight=0.3,
)
def binds_its_symbols(case: PluginCase, trace: PluginTrace) -> Examined:  # noqa: ARG001 - the form of a check
    """Looks at what the loader said, and at the library's undefined symbols."""
    support.need_interface(trace)
    if trace.library.load_error:
        needed = ", ".join(trace.library.undefined[:8])
        raise Violation(
            "a library that loads with every symbol bound",
            trace.library.load_error + (f"; of TensorFlow Lite it needs {needed}" if needed else ""),
        )
    return Examined(1, "libraries")


@rule(
    "ABI-13",
    Level.MUST,
    "The registration that a delegate passes by value is filled in to its 88th byte: what it does not use is "
    "zero.",
    source=f"{_COMMON}, TfLiteRegistration: registration_external, async_kernel, inplace_operator",
    subject="delegate",
    cases=delegate_strategies.anything,
    weight=0.5,
)
def fills_its_registration(case: DelegateCase, trace: DelegateTrace) -> Examined:  # noqa: ARG001 - as above
    """Looks at the members that old headers do not have: a delegate built with those passes garbage there."""
    need_observation(trace)
    looked_at = 0
    for position, applied in enumerate(trace.applied):
        for replace in applied.replaces if applied.is_target else ():
            for member, value, shows in replace.tail:
                if not _is_used(member, value, shows):
                    raise Violation(
                        f"{member} to be zero, or valid",
                        f"{value:#x}",
                        f"registration passed by application {position} ({applied.name})",
                    )
            looked_at += 1
    return Examined(looked_at, "registrations")


def _is_used(member: str, value: int, shows: str) -> bool:
    """A member that is not zero is one that the delegate means."""
    if member == "inplace_operator":
        return not value & ~_KNOWN_INPLACE
    return shows == ("code" if member == "async_kernel" else "memory")


@rule(
    "ABI-14",
    Level.SHOULD,
    "Several plugins work in one process, each with its own TensorFlow Lite: a library exports no function "
    "of TensorFlow Lite's, and a second copy of it works beside the first.",
    source="dlopen(3): an exported symbol may be bound in place of another library's own",
    subject="delegate",
    cases=plugin_strategies.copied,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def stays_apart(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at the library's exports, and at delegates of two copies of it."""
    support.need_functions(trace)
    foreign = [name for name in trace.library.exports if CREATE not in name and DESTROY not in name]
    if foreign:
        raise Violation("no exported symbol of TensorFlow Lite", f"{len(foreign)} of them, as {foreign[0]}")
    worked: set[str] = set()
    copies = list(support.steps(case, trace, Copy))
    for position, copy, seen in copies:
        if not seen.made:
            raise Violation("a delegate of the copy", seen.error or "NULL", support.at(position, copy))
    for _, step, seen in support.steps(case, trace, Apply):
        if worked:
            support.works(case, trace, seen, f"({step.name}) beside a copy of its library")
        if not seen.error:
            worked.add(step.name)
    return Examined(len(copies), "copies of the library")
