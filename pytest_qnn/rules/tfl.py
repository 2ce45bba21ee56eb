"""TFL: custom memory of a QNN delegate, and tensors in it (seed 000)."""

from __future__ import annotations

from pytest_qnn.cases import custom_strategies as cases
from pytest_qnn.cases.script import Measure, Repeat, ScriptCase
from pytest_qnn.cases.script_custom import InspectCustom
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.rules import custom_support as custom
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.trace import ScriptTrace

_SEED = "seeds/000 (Running Inference Using Shared Memory)"
_HEADER = "QnnTFLiteDelegate.h"
_ALLOC = f"{_HEADER}, TfLiteQnnDelegateAllocCustomMem"
_FREE = f"{_HEADER}, TfLiteQnnDelegateFreeCustomMem"
_GROWTH = 4
"""Descriptors or mappings that may be more after some rounds: nothing is held for each of them."""
_TENSORS = "tensors of partitions in custom memory"


@rule(
    "TFL-01",
    Level.MUST,
    "TfLiteQnnDelegateAllocCustomMem gives shared memory of the wanted size that can be used, or NULL.",
    source=f"{_ALLOC}; {_SEED}, step 1",
    subject="delegate",
    cases=cases.memories,
    gate=("custom memory",),
    weight=0.5,
)
def gives_shared_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the mappings of the process, and at the contents of each buffer when all are there.

    Of no bytes at all any pointer may be given.
    """
    got = [one for one in custom.allocations(case, trace) if one[1].bytes]
    for number, step, seen in got:
        wanted, where = f"{step.bytes} bytes of shared memory, or NULL", f"step {number}"
        if not seen.numbers["usable"]:
            raise Violation(wanted, "memory of which not every byte can be read and written", where)
        if not seen.numbers["shared"]:
            raise Violation(wanted, "memory in a mapping that is private to the process", where)
        if seen.numbers["overlaps"]:
            raise Violation(wanted, "bytes that belong to another allocation", where)
    sizes = {step.buffer: step.bytes for _, step, _ in got}
    for number, later, seen in scripts.numbered(case, trace):
        if isinstance(later, InspectCustom) and sizes.get(later.buffer) and not seen.numbers.get("kept", 1):
            raise Violation("memory that keeps what is written to it", "other bytes", f"step {number}")
    return Examined(len(got), "allocations")


@rule(
    "TFL-02",
    Level.MUST,
    "The pointer that TfLiteQnnDelegateAllocCustomMem gives is a multiple of the wanted alignment.",
    source=f"{_ALLOC}; {_SEED}, step 1 (kDefaultTensorAlignment)",
    subject="delegate",
    cases=cases.alignments,
    gate=("custom memory",),
    weight=0.5,
)
def honours_the_alignment(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at pointers for alignments from 1 to 4096; one that cannot be had may be answered with NULL."""
    got = custom.allocations(case, trace)
    for number, step, seen in got:
        offset = seen.numbers["offset"]
        if offset:
            raise Violation(f"a multiple of {step.alignment}", f"{offset} bytes behind one", f"step {number}")
    return Examined(len(got), "allocations")


@rule(
    "TFL-03",
    Level.MUST,
    "Memory stays until TfLiteQnnDelegateFreeCustomMem, which releases it and ignores any other pointer.",
    source=f"{_FREE}; {_SEED}, step 4 and the running example (the user's to free)",
    subject="delegate",
    cases=cases.released,
    gate=("custom memory",),
    weight=0.5,
)
def releases_what_is_its_own(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at descriptors and mappings over sixteen rounds, and at memory that outlives a delegate."""
    got = custom.allocations(case, trace)
    sizes = {step.buffer: step.bytes for _, step, _ in got}
    steps = scripts.numbered(case, trace)
    for number, step, seen in steps:
        kept = isinstance(step, InspectCustom) and step.buffer in sizes and not seen.skipped
        if kept and not (seen.numbers["usable"] and seen.numbers["kept"]):
            raise Violation("the client's memory as it was before", "it is gone or changed", f"step {number}")
    measured = [seen.numbers for _, step, seen in steps if isinstance(step, Measure)]
    rounds = sum(step.times for _, step, _ in steps if isinstance(step, Repeat))
    if len(measured) == 2 and rounds:
        for what in ("fds", "mappings"):
            more = measured[1][what] - measured[0][what]
            if more > _GROWTH:
                raise Violation(f"no {what} held of freed memory", f"{more} more after {rounds} rounds")
    return Examined(len(got), "allocations")


@rule(
    "TFL-04",
    Level.MUST,
    "On a backend that registers no shared memory there is none, or it works unregistered and unreported.",
    source=f"{_SEED} (this feature is only able to use with HTP backend)",
    subject="delegate",
    cases=cases.unregistered,
    gate=("custom memory", "no registration"),
)
def does_without_registering(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results and at the log."""
    count = custom.judged(case, trace)
    if not count:
        return Examined(0, _TENSORS)
    custom.works(case, trace, "right results from and in the client's memory, registered or not")
    said, _ = custom.registered(case, trace)
    if said:
        raise Violation("nothing said of registered tensors", f"tensors {sorted(said)} are said to be")
    return Examined(count, _TENSORS)


@rule(
    "TFL-06",
    Level.MUST,
    "Memory may be requested, assigned and freed in every order that the workflow allows.",
    source=f"{_SEED}, workflow and running example",
    subject="delegate",
    cases=cases.ordered,
    gate=("custom memory",),
)
def works_in_every_order(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results.

    Memory comes before or after the delegate and the interpreter, is assigned before or after the graph is
    modified, and freed before or after the interpreter ends.
    """
    count = custom.judged(case, trace)
    if not count:
        return Examined(0, _TENSORS)
    custom.works(case, trace, "right results, whatever the order of the steps")
    return Examined(count, _TENSORS)


@rule(
    "TFL-09",
    Level.SHOULD,
    "Each tensor of a partition in custom memory, and no other, is reported as registered.",
    source=f"{_SEED}, the output",
    subject="delegate",
    cases=cases.logged,
    gate=("custom memory", "registration"),
)
def reports_what_it_registers(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks for "Tensor <index> is successfully registered to shared memory." in what the delegate says."""
    if trace.facts and trace.facts.registers is False:
        raise Unsupported("the delegate's QNN backend registers no shared memory")
    count = custom.judged(case, trace)
    said, expected = custom.registered(case, trace)
    if not count or not custom.invoked(case, trace):
        return Examined(0, _TENSORS)
    if trace.facts and trace.facts.registers is None and not said:
        raise Unsupported("the delegate reports no tensor at all: its backend may register none")
    if said != expected:
        raise Violation(
            f"tensors {sorted(expected)} reported as registered", f"tensors {sorted(said)} are reported"
        )
    return Examined(count, _TENSORS)


@rule(
    "TFL-10",
    Level.MUST,
    "Results are those of a run without custom memory, and the client's pointer leads to them.",
    source=f"{_SEED}, steps 2 and 3",
    subject="delegate",
    cases=cases.twice,
    gate=("custom memory",),
)
def gives_the_same_results(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at two invokes with other inputs, bit for bit if the delegate repeats itself without it too."""
    count = custom.judged(case, trace)
    if not count:
        return Examined(0, _TENSORS)
    expected = "the results of a run without custom memory"
    custom.works(case, trace, expected)
    plain = custom.results(case, trace, "i1")
    for inputs, outputs in custom.results(case, trace, "i0"):
        same = [others for given, others in plain if given == inputs]
        if len(same) > 1 and same.count(same[0]) == len(same) and outputs != same[0]:
            raise Violation(expected, "results that differ in bits")
    return Examined(count, _TENSORS)


@rule(
    "TFL-11",
    Level.MUST,
    "The memory of a tensor may be larger than the tensor.",
    source=f"{_SEED}, step 1 (exact or enough bytes)",
    subject="delegate",
    cases=cases.larger,
    gate=("custom memory",),
)
def takes_larger_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results with 0 to 4096 bytes more."""
    count = custom.judged(case, trace)
    if not count:
        return Examined(0, _TENSORS)
    custom.works(case, trace, "right results in memory of the tensor's size or more")
    return Examined(count, _TENSORS)


@rule(
    "TFL-12",
    Level.SHOULD,
    "A tensor that is assigned other memory, and allocated again, is used there.",
    source=f"{_SEED}, running example (assigns or reassigns)",
    subject="delegate",
    cases=cases.reassigned,
    gate=("custom memory",),
)
def follows_other_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results before and after; the new memory may have the old one's address or descriptor."""
    count = custom.judged(case, trace)
    if not count:
        return Examined(0, _TENSORS)
    custom.works(case, trace, "right results from and in the memory assigned last")
    return Examined(count, _TENSORS)


@rule(
    "TFL-13",
    Level.MUST,
    "Tensors without custom memory keep working beside others, under partial delegation too.",
    source=f"{_SEED} (specified tensors, usually graph inputs and outputs)",
    subject="delegate",
    cases=cases.mixed,
    gate=("custom memory",),
)
def takes_some_tensors_only(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results where only some tensors are in custom memory, or only some nodes are claimed."""
    count = custom.judged(case, trace)
    if not count:
        return Examined(0, _TENSORS)
    custom.works(case, trace, "right results, in custom memory and beside it")
    return Examined(count, _TENSORS)
