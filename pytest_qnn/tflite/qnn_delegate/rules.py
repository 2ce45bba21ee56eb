"""TFL: custom memory of a QNN delegate, and tensors in it (seed 000)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AllocCustom,
    AnyScriptStep,
    Apply,
    AssignCustom,
    Close,
    DestroyDelegate,
    FreeCustom,
    InspectCustom,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    PlainStep,
    Poison,
    Read,
    ReadCustom,
    ReadLog,
    Repeat,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import Claims, decode_graph, size_of
from pytest_qnn.tflite.graph.scales import scale_of
from pytest_qnn.tflite.strategies.claimed import mixed_kinds, need_claims
from pytest_qnn.tflite.trace import (
    AllocCounts,
    InspectCounts,
    LogCounts,
    MeasureCounts,
    ReadCounts,
    ScriptSeen,
    ScriptTrace,
)

_DELEGATED = re.compile(r"(\d+) nodes delegated out of (\d+) nodes with (\d+) partitions")
_REGISTERED = re.compile(r"Tensor (\d+) is successfully registered to shared memory\.")


def allocations(case: ScriptCase, trace: ScriptTrace) -> list[tuple[int, AllocCustom, ScriptSeen]]:
    """Requests that gave memory, with the number of each step.

    Raises:
        Unsupported: the delegate offers none, or gave none although it was asked for sizes that fit anywhere.
    """
    asked = [
        (number, step, seen)
        for number, step, seen in scripts.numbered(case, trace)
        if isinstance(step, AllocCustom)
    ]
    refused = next((seen.skipped for _, _, seen in asked if "offers no custom memory" in seen.skipped), "")
    if refused:
        raise Unsupported(refused)
    got = [one for one in asked if one[2].ok]
    if not got and any(0 < step.bytes <= 1 << 20 and not seen.skipped for _, step, seen in asked):
        raise Unsupported("the delegate gives no custom memory here: every request was answered with NULL")
    return got


def assigned(case: ScriptCase, trace: ScriptTrace, name: str = "i0") -> list[int]:
    """Tensors of the interpreter that were placed in custom memory."""
    allocations(case, trace)
    found = {
        step.tensor
        for _, step, seen in scripts.numbered(case, trace)
        if isinstance(step, AssignCustom) and step.interpreter == name and seen.ok
    }
    return sorted(found)


def judged(case: ScriptCase, trace: ScriptTrace) -> int:
    """How many tensors in custom memory are of partitions that the target makes without it, too.

    Nought where the interpreter ``i1``, which has no custom memory, fails or is wrong: what is wrong in
    ``i0`` has another cause then, and other rules find it.

    Raises:
        Unsupported: nothing can be seen.
    """
    scripts.need_trace(trace)
    inside = assigned(case, trace)
    seen, plain = scripts.view(case, trace), scripts.view(case, trace, "i1")
    if seen is None or plain is None or not any(one.is_target for one in seen[1].applied):
        return 0
    if judging.failure(plain[1]):
        return 0
    try:
        outputs_are_right(*plain, "")
    except Violation:
        return 0
    return len(set(inside) & _border(case, trace, "i1"))


def _border(case: ScriptCase, trace: ScriptTrace, name: str = "i0") -> set[int]:
    """Inputs and outputs of the target's kernels in the plan of an interpreter."""
    seen = scripts.view(case, trace, name)
    kernels = judging.live_target_kernels(seen[1]) if seen else ()
    return {tensor for kernel in kernels for tensor in (*kernel.inputs, *kernel.outputs)}


def works(case: ScriptCase, trace: ScriptTrace, expected: str) -> None:
    """Every call on ``i0`` succeeds, every result is right, and the client's pointer leads to it.

    Raises:
        Violation: something failed or is wrong.
    """
    view = scripts.view(case, trace)
    failed = judging.failure(view[1]) if view else ""
    if view and failed:
        raise FailedCall(expected, failed, "interpreter i0", judging.draw(*view))
    latest: dict[int, ScriptSeen] = {}
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Invoke | Poison | SetInputs):
            latest.clear()
        elif isinstance(step, Read) and step.interpreter == "i0" and seen.ok and seen.cpu:
            until = scripts.view(case, trace, upto=number + 1)
            if until is not None:
                outputs_are_right(*until, expected)
                latest = {
                    tensor: ScriptSeen(outputs=(value,))
                    for tensor, value in zip(until[0].graph.outputs, seen.outputs, strict=True)
                }
        elif isinstance(step, ReadCustom) and not seen.skipped:
            _through_the_pointer(step, seen, latest.get(step.tensor), expected, number)


def _through_the_pointer(
    step: ReadCustom, seen: ScriptSeen, read: ScriptSeen | None, expected: str, number: int
) -> None:
    where = f"tensor t{step.tensor}, step {number}"
    if not seen.counted(ReadCounts).same:
        raise Violation(expected, "the runtime has the tensor elsewhere", where)
    if read is not None and read.outputs != seen.outputs:
        raise Violation(expected, "the client's pointer leads to other values than the runtime's", where)


Result = tuple[tuple[Array, ...], tuple[Array, ...]]
"""Inputs, and what was read of the graph's outputs."""


def results(case: ScriptCase, trace: ScriptTrace, name: str) -> list[Result]:
    """Each Read of an interpreter whose inputs are known, with those of its invoke."""
    found: list[Result] = []
    given: tuple[Array, ...] = ()
    used = given
    for _, step, seen in scripts.numbered(case, trace):
        if named(step, "interpreter") != name or not seen.ok:
            continue
        if isinstance(step, SetInputs):
            given = seen.outputs
        elif isinstance(step, Invoke):
            used = given
        elif isinstance(step, Read) and seen.cpu and not step.tensors:
            found.append((used, seen.outputs))
    return found


def heard(case: ScriptCase, trace: ScriptTrace) -> list[ScriptSeen]:
    """Each time that what the delegate says was read.

    Raises:
        Unsupported: it cannot be seen.
    """
    found = [seen for _, step, seen in scripts.numbered(case, trace) if isinstance(step, ReadLog)]
    skipped = next((seen.skipped for seen in found if seen.skipped), "")
    if skipped:
        raise Unsupported(f"{skipped} at the level INFO")
    return found


def registered(case: ScriptCase, trace: ScriptTrace) -> tuple[set[int], set[int]]:
    """Tensors that the delegate says it registered, and those of its partitions in custom memory.

    Raises:
        Unsupported: what it says cannot be seen.
    """
    logged = heard(case, trace)
    lines = [line for seen in logged for line in seen.lines]
    said = {int(found[1]) for line in lines if (found := _REGISTERED.search(line))}
    return said, set(assigned(case, trace)) & _border(case, trace) if logged else set()


def invoked(case: ScriptCase, trace: ScriptTrace) -> bool:
    """An invoke of ``i0`` succeeded in which the target had work."""
    done = any(isinstance(s, Invoke) and seen.ok for _, s, seen in scripts.numbered(case, trace))
    return done and scripts.target_invokes(trace) > 0


_SEED = "seed 000"
_HEADER = "QnnTFLiteDelegate.h"
_ALLOC = f"{_HEADER}, TfLiteQnnDelegateAllocCustomMem"
_FREE = f"{_HEADER}, TfLiteQnnDelegateFreeCustomMem"
_GROWTH = 4
"""Descriptors or mappings that may be more after some rounds: nothing is held for each of them."""
_COUNTED = "lines about delegated nodes"
TENSORS = "tensors of partitions in custom memory"
Cases = SearchStrategy[ScriptCase]
_SIZES = (4, 1, 64, 4096, 4095, 4097, 65536, 1 << 20)
_HUGE = ((1 << 46), (1 << 32) + 4096, (1 << 31), 0)
"""More than there is or than a C int holds, and nothing at all: NULL, or memory of so many bytes."""


def _offered(facts: DelegateFacts) -> int:
    """Position of the delegate that offers custom memory.

    Raises:
        NothingToJudge: there is none.
    """
    if facts.custom_memory < 0:
        raise NothingToJudge(
            "the delegate offers no custom memory: it is no library that exports "
            "TfLiteQnnDelegateAllocCustomMem and TfLiteQnnDelegateFreeCustomMem",
            unsupported=True,
        )
    return facts.custom_memory


_RELU = Graph((Tensor((1,)), Tensor((1,))), (Node("RELU", (0,), (1,)),), (0,), (1,))


def alone(steps: Sequence[AnyScriptStep]) -> ScriptCase:
    """Steps that need no interpreter; a case has a graph all the same."""
    return ScriptCase((_RELU,), tuple(steps))


def memories(facts: DelegateFacts) -> Cases:
    """Up to eight buffers, some of sizes that cannot be had, looked at again when all are there."""
    position = _offered(facts)

    def decode(data: bytes) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for at, byte in enumerate(data[1 : 2 + data[0] % 8]):
            size = _HUGE[byte % 4] if byte >= 224 else _SIZES[byte % 8]
            steps.append(AllocCustom(f"c{at}", size, position=position, seed=at + 1))
        steps += [InspectCustom(step.buffer) for step in steps if isinstance(step, AllocCustom)]
        return alone(steps)

    return decoded(9, decode)


@rule(
    "TFL-01",
    Level.MUST,
    "TfLiteQnnDelegateAllocCustomMem gives usable shared memory of the requested size, or NULL.",
    source=f"{_ALLOC}; {_SEED}, step 1",
    subject="delegate",
    cases=memories,
    gate=("custom memory",),
    weight=0.5,
)
def gives_shared_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the mappings of the process, and at the contents of each buffer when all are there.

    Of no bytes at all any pointer may be given.
    """
    got = [one for one in allocations(case, trace) if one[1].bytes]
    for number, step, seen in got:
        wanted, where = f"{step.bytes} bytes of shared memory, or NULL", f"step {number}"
        looked = seen.counted(AllocCounts)
        if not looked.usable:
            raise Violation(wanted, "memory of which not every byte can be read and written", where)
        if not looked.shared:
            raise Violation(wanted, "memory in a mapping that is private to the process", where)
        if looked.overlaps:
            raise Violation(wanted, "bytes that belong to another allocation", where)
    sizes = {step.buffer: step.bytes for _, step, _ in got}
    for number, later, seen in scripts.numbered(case, trace):
        inspected = isinstance(later, InspectCustom) and sizes.get(later.buffer) and not seen.skipped
        if inspected and not seen.counted(InspectCounts).kept:
            raise Violation("memory that keeps what is written to it", "other bytes", f"step {number}")
    return Examined(len(got), "allocations")


_ALIGNMENTS = (64, 1, 2, 4, 8, 16, 32, 128, 256, 512, 1024, 2048, 4096)


def alignments(facts: DelegateFacts) -> Cases:
    """Up to six buffers of any alignment from 1 to 4096."""
    position = _offered(facts)

    def decode(data: bytes) -> ScriptCase:
        return alone(
            [
                AllocCustom(f"c{at}", _SIZES[byte >> 5], _ALIGNMENTS[byte % len(_ALIGNMENTS)], position)
                for at, byte in enumerate(data[1 : 2 + data[0] % 6])
            ]
        )

    return decoded(7, decode)


@rule(
    "TFL-02",
    Level.MUST,
    "TfLiteQnnDelegateAllocCustomMem gives a pointer that is a multiple of the requested alignment.",
    source=f"{_ALLOC}; {_SEED}, step 1 (kDefaultTensorAlignment)",
    subject="delegate",
    cases=alignments,
    gate=("custom memory",),
    weight=0.5,
)
def honours_the_alignment(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at pointers for alignments from 1 to 4096; one that cannot be had may be answered with NULL."""
    got = allocations(case, trace)
    for number, step, seen in got:
        offset = seen.counted(AllocCounts).offset
        if offset:
            raise Violation(f"a multiple of {step.alignment}", f"{offset} bytes behind one", f"step {number}")
    return Examined(len(got), "allocations")


Steps = tuple[AnyScriptStep, ...]
_ROUNDS = 16


def released(facts: DelegateFacts) -> Cases:
    """Buffers come and go; others stay while delegates go and pointers are freed that are none."""
    position = _offered(facts)

    def decode(data: bytes) -> ScriptCase:
        size, alignment = _SIZES[3:][data[0] % 5], _ALIGNMENTS[data[1] % len(_ALIGNMENTS)]
        once: tuple[PlainStep, ...] = (AllocCustom("c1", size, alignment, position), FreeCustom("c1"))
        odd: Steps = (FreeCustom(what="null", position=position),) if data[2] & 1 else ()
        odd += (FreeCustom(what="unknown", position=position),) if data[2] & 2 else ()
        kept = (AllocCustom("c0", _SIZES[data[3] % 8], 64, position), MakeDelegate("d0", position=position))
        cycles: Steps = (*once, Measure(), Repeat(_ROUNDS, once), Measure()) if data[2] & 4 else once
        return alone([*kept, *cycles, *odd, DestroyDelegate("d0"), InspectCustom("c0")])

    return decoded(4, decode)


@rule(
    "TFL-03",
    Level.MUST,
    "Custom memory exists until TfLiteQnnDelegateFreeCustomMem, which releases it and ignores any other "
    "pointer.",
    source=f"{_FREE}; {_SEED}, step 4 and the running example (the user's to free)",
    subject="delegate",
    cases=released,
    gate=("custom memory",),
    weight=0.5,
)
def releases_what_is_its_own(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at descriptors and mappings over sixteen rounds, and at memory that outlives a delegate."""
    got = allocations(case, trace)
    sizes = {step.buffer: step.bytes for _, step, _ in got}
    steps = scripts.numbered(case, trace)
    for number, step, seen in steps:
        if not isinstance(step, InspectCustom) or step.buffer not in sizes or seen.skipped:
            continue
        looked = seen.counted(InspectCounts)
        if not (looked.usable and looked.kept):
            raise Violation("the client's memory as it was before", "it is gone or changed", f"step {number}")
    measured = [seen.counted(MeasureCounts) for _, step, seen in steps if isinstance(step, Measure)]
    rounds = sum(step.times for _, step, _ in steps if isinstance(step, Repeat))
    if len(measured) == 2 and rounds:
        before, after = measured
        for what, more in (("fds", after.fds - before.fds), ("mappings", after.mappings - before.mappings)):
            if more > _GROWTH:
                raise Violation(f"no {what} held of freed memory", f"{more} more after {rounds} rounds")
    return Examined(len(got), "allocations")


_EXTRA = (0, 1, 4, 60, 64, 4096)
_CHOICE = 4
_NODES = 5


def scenes(
    facts: DelegateFacts,
    make: Callable[[Scene], Steps],
    *,
    some: bool = False,
    plain: Sequence[int] = (0,),
) -> Cases:
    """``plain``: seeds of the inputs without custom memory."""
    _offered(facts)
    need_claims(facts)
    kinds = mixed_kinds(facts)

    def decode(data: bytes) -> ScriptCase:
        scale = scale_of(data[0], _NODES)
        graph, claims = decode_graph(data[1 + _CHOICE :], kinds, 1, 1, _NODES, scale)
        scene = Scene(facts, graph, claims, data[1 : 1 + _CHOICE], some=some)
        return ScriptCase((graph,), (*make(scene), *scene.plain(plain)))

    size = 1 + _CHOICE + size_of(_NODES, 1)
    return decoded(size, decode)


def larger(facts: DelegateFacts) -> Cases:
    """Buffers of the tensors' sizes and larger."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(larger=True), *scene.use())

    return scenes(facts, make)


class Scene:
    """One graph, one delegate ``d0``, one interpreter ``i0``, and a buffer for each of some tensors."""

    def __init__(
        self, facts: DelegateFacts, graph: Graph, claims: Claims, data: bytes, *, some: bool
    ) -> None:
        self.graph = graph
        self.choice = data
        self.position = facts.custom_memory
        self._claim = claims[0] if facts.steerable and (some or data[3] & 128) else None
        border = sorted({*graph.inputs, *graph.outputs})
        border = [tensor for tensor in border if graph.tensors[tensor].data is None]
        picked = [tensor for at, tensor in enumerate(border) if data[3] >> at % 7 & 1]
        self.tensors = picked or (border[:1] if some else border)

    def opening(self) -> tuple[MakeDelegate, Open]:
        """The delegate and the interpreter."""
        return MakeDelegate("d0", position=self.position, claim=self._claim), Open("i0")

    def alloc(self, kind: str = "c", *, larger: bool = False) -> Steps:
        """A buffer for each of the tensors; ``larger``: than the tensor."""
        return tuple(
            AllocCustom(
                f"{kind}{tensor}",
                self._size(tensor) + (_EXTRA[(self.choice[0] + at) % len(_EXTRA)] if larger else 0),
                position=self.position,
                seed=tensor,
            )
            for at, tensor in enumerate(self.tensors)
        )

    def assign(self, kind: str = "c") -> Steps:
        """Each tensor to its buffer."""
        return tuple(AssignCustom("i0", tensor, f"{kind}{tensor}") for tensor in self.tensors)

    def free(self) -> Steps:
        """Give the buffers back."""
        return tuple(FreeCustom(f"c{tensor}") for tensor in self.tensors)

    def placed(self, *, larger: bool = False) -> Steps:
        """All of the tutorial up to the invoke."""
        ready = (Allocate("i0"), Apply("i0", "d0"), Allocate("i0"))
        return (*self.opening(), *self.alloc(larger=larger), *self.assign(), *ready)

    def plain(self, seeds: Sequence[int]) -> Steps:
        """The same graph on another interpreter, ``i1``, without custom memory, invoked with each seed."""
        delegate = MakeDelegate("d1", position=self.position, claim=self._claim)
        steps: list[AnyScriptStep] = [delegate, Open("i1"), Apply("i1", "d1"), Allocate("i1")]
        for seed in seeds:
            steps += [SetInputs("i1", seed), Invoke("i1"), Read("i1")]
        return tuple(steps)

    def use(self, seed: int = 0) -> Steps:
        """Invoke, and read through the interpreter and through the client's own pointers."""
        own = tuple(ReadCustom("i0", tensor) for tensor in self.tensors if tensor in self.graph.outputs)
        return (SetInputs("i0", seed), Poison("i0"), Invoke("i0"), Read("i0"), *own)

    def _size(self, tensor: int) -> int:
        described = self.graph.tensors[tensor]
        return prod(described.shape) * np.dtype(described.dtype).itemsize


def logged(facts: DelegateFacts) -> Cases:
    """Some tensors in custom memory, and what the delegate says of them."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(), *scene.use(), ReadLog("d0"))

    return scenes(facts, make)


def unregistered(facts: DelegateFacts) -> Cases:
    """The same, where the delegate's QNN backend registers no shared memory."""
    _offered(facts)
    if facts.registers is not False:
        why = "registers shared memory" if facts.registers else "may register memory: it cannot be asked"
        raise NothingToJudge(f"the delegate's QNN backend {why}", unsupported=True)
    return logged(facts)


@rule(
    "TFL-04",
    Level.MUST,
    "On a backend that cannot register shared memory there is no custom memory, or it works, and is neither "
    "registered nor reported as registered.",
    source=f"{_SEED} (this feature is only able to use with HTP backend)",
    subject="delegate",
    cases=unregistered,
    gate=("custom memory", "no registration"),
)
def does_without_registering(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results and at the log."""
    count = judged(case, trace)
    if not count:
        return Examined(0, TENSORS)
    works(case, trace, "right results from and in the client's memory, registered or not")
    said, _ = registered(case, trace)
    if said:
        raise Violation("nothing said of registered tensors", f"tensors {sorted(said)} are said to be")
    return Examined(count, TENSORS)


def ordered(facts: DelegateFacts) -> Cases:
    """The steps of the tutorial in any order that it allows."""

    def make(scene: Scene) -> Steps:
        alloc, assign = scene.alloc(), scene.assign()
        first, last = scene.opening()
        opening: Steps = ((*alloc, last, first), (first, *alloc, last), (first, last, *alloc))[
            scene.choice[0] % 3
        ]
        apply = Apply("i0", "d0")
        orders: tuple[Steps, ...] = (
            (*assign, Allocate("i0"), apply, Allocate("i0")),
            (*assign, Allocate("i0"), apply),
            (*assign, apply, Allocate("i0")),
            (apply, *assign, Allocate("i0")),
            (apply, Allocate("i0"), *assign, Allocate("i0")),
            (Allocate("i0"), *assign, Allocate("i0"), apply, Allocate("i0")),
        )
        free, close = scene.free(), Close("i0")
        ending: Steps = (*free, close) if scene.choice[1] & 1 else (close, *free)
        return (
            *opening,
            *orders[scene.choice[2] % len(orders)],
            *scene.use(),
            *ending,
            DestroyDelegate("d0"),
        )

    return scenes(facts, make)


@rule(
    "TFL-06",
    Level.MUST,
    "Custom memory may be requested, assigned and freed in every order that the documented workflow allows.",
    source=f"{_SEED}, workflow and running example",
    subject="delegate",
    cases=ordered,
    gate=("custom memory",),
)
def works_in_every_order(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results.

    Memory comes before or after the delegate and the interpreter, is assigned before or after the graph is
    modified, and freed before or after the interpreter ends.
    """
    count = judged(case, trace)
    if not count:
        return Examined(0, TENSORS)
    works(case, trace, "right results, whatever the order of the steps")
    return Examined(count, TENSORS)


@rule(
    "TFL-09",
    Level.SHOULD,
    "Each tensor of a partition in custom memory, and no other, is reported as registered.",
    source=f"{_SEED}, the output",
    subject="delegate",
    cases=logged,
    gate=("custom memory", "registration"),
)
def reports_what_it_registers(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks for "Tensor <index> is successfully registered to shared memory." in what the delegate says.

    Whether that is true is TFL-15's matter.
    """
    if trace.facts and trace.facts.registers is False:
        raise Unsupported("the delegate's QNN backend registers no shared memory")
    count = judged(case, trace)
    said, expected = registered(case, trace)
    if not count or not invoked(case, trace):
        return Examined(0, TENSORS)
    if trace.facts and trace.facts.registers is None and not said:
        raise Unsupported("the delegate reports no tensor at all: its backend may register none")
    if said != expected:
        raise Violation(
            f"tensors {sorted(expected)} reported as registered", f"tensors {sorted(said)} are reported"
        )
    return Examined(count, TENSORS)


def twice(facts: DelegateFacts) -> Cases:
    """Two invokes in custom memory, and the same two times each without any."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(), *scene.use(), *scene.use(1))

    return scenes(facts, make, plain=(0, 1, 0, 1))


@rule(
    "TFL-10",
    Level.MUST,
    "Results are those of a run without custom memory, and can be read through the client's pointer.",
    source=f"{_SEED}, steps 2 and 3",
    subject="delegate",
    cases=twice,
    gate=("custom memory",),
)
def gives_the_same_results(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at two invokes with other inputs, bit for bit if the delegate repeats itself without it too."""
    count = judged(case, trace)
    if not count:
        return Examined(0, TENSORS)
    expected = "the results of a run without custom memory"
    works(case, trace, expected)
    plain = results(case, trace, "i1")
    for inputs, outputs in results(case, trace, "i0"):
        same = [others for given, others in plain if given == inputs]
        if len(same) > 1 and same.count(same[0]) == len(same) and outputs != same[0]:
            raise Violation(expected, "results that differ in bits")
    return Examined(count, TENSORS)


@rule(
    "TFL-11",
    Level.MUST,
    "The custom memory of a tensor may be larger than the tensor.",
    source=f"{_SEED}, step 1 (exact or enough bytes)",
    subject="delegate",
    cases=larger,
    gate=("custom memory",),
)
def takes_larger_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results with 0 to 4096 bytes more."""
    count = judged(case, trace)
    if not count:
        return Examined(0, TENSORS)
    works(case, trace, "right results in memory of the tensor's size or more")
    return Examined(count, TENSORS)


def reassigned(facts: DelegateFacts) -> Cases:
    """Between two invokes tensors get other buffers: new ones, those of one another, or none other.

    The old ones are given back before the new ones are requested, or after it, or not at all. In the end
    tensors may get their first buffers again.
    """

    def make(scene: Scene) -> Steps:
        how = scene.choice[0] % 4
        alloc, assign = scene.alloc("n"), scene.assign("n")
        again: Steps = ((*scene.free(), *alloc), (*alloc, *assign, *scene.free()), alloc, alloc)[how]
        back: Steps = (*scene.assign(), Allocate("i0"), *scene.use(2)) if how == 3 else ()
        return (*scene.placed(), *scene.use(), *again, *assign, Allocate("i0"), *scene.use(1), *back)

    return scenes(facts, make)


@rule(
    "TFL-12",
    Level.SHOULD,
    "After a tensor was assigned other custom memory and allocated again, the new memory is used.",
    source=f"{_SEED}, running example (assigns or reassigns)",
    subject="delegate",
    cases=reassigned,
    gate=("custom memory",),
)
def follows_other_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results before and after; the new memory may have the old one's address or descriptor."""
    count = judged(case, trace)
    if not count:
        return Examined(0, TENSORS)
    works(case, trace, "right results from and in the memory assigned last")
    return Examined(count, TENSORS)


def mixed(facts: DelegateFacts) -> Cases:
    """Some of the tensors in custom memory, of a delegate that is to take part of the nodes."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(), *scene.use(), *scene.use(1))

    return scenes(facts, make, some=True)


@rule(
    "TFL-13",
    Level.MUST,
    "Tensors without custom memory keep working beside tensors with it, also when the graph is delegated in "
    "part.",
    source=f"{_SEED} (specified tensors, usually graph inputs and outputs)",
    subject="delegate",
    cases=mixed,
    gate=("custom memory",),
)
def takes_some_tensors_only(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results where only some tensors are in custom memory, or only some nodes are claimed."""
    count = judged(case, trace)
    if not count:
        return Examined(0, TENSORS)
    works(case, trace, "right results, in custom memory and beside it")
    return Examined(count, TENSORS)


def counted(facts: DelegateFacts) -> Cases:
    """A delegate that is to take all or some of the nodes, and what it says of them."""

    def make(scene: Scene) -> Steps:
        placed = scene.placed() if scene.choice[0] & 1 else (*scene.opening(), Apply("i0", "d0"))
        return (*placed, ReadLog("d0"))

    return scenes(facts, make, some=True)


@rule(
    "TFL-14",
    Level.SHOULD,
    'Where the delegate says "N nodes delegated out of M nodes with P partitions", its kernels stand for N '
    "nodes, the plan had M, and there are P kernels.",
    source=f"{_SEED}, the output",
    subject="delegate",
    cases=counted,
    gate=("custom memory",),
)
def counts_what_it_takes(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares each such line with the plan that the runtime had before, and with the kernels in it now.

    A library that says it once in a process (as TFLITE_LOG_PROD_ONCE does) is judged on that time.
    """
    scripts.need_trace(trace)
    assigned(case, trace)
    said = [line for seen in heard(case, trace) for line in seen.lines if _DELEGATED.search(line)]
    if not said:
        raise Unsupported("the delegate does not say how many nodes it takes", final=False)
    seen = scripts.view(case, trace)
    if seen is None or judging.failure(seen[1]) or not any(one.is_target for one in seen[1].applied):
        return Examined(0, _COUNTED)
    if any(event.subgraph for event in seen[1].events if event.kind == "Prepare"):
        return Examined(0, _COUNTED)  # each subgraph that is prepared has a line of its own
    kernels = judging.live_target_kernels(seen[1])
    nodes, total = sum(len(kernel.nodes) for kernel in kernels), len(seen[1].plan_before)
    for line in said:
        found = _DELEGATED.search(line)
        if found and tuple(map(int, found.groups())) != (nodes, total, len(kernels)):
            wanted = f"{nodes} nodes delegated out of {total} nodes with {len(kernels)} partitions"
            raise Violation(wanted, f"{line!r}", "interpreter i0", judging.draw(*seen))
    return Examined(len(said), _COUNTED)


@rule(
    "TFL-15",
    Level.SHOULD,
    "What is reported as registered is registered with the QNN backend, and executes use its memory handle.",
    source=f"{_SEED}, the output, and its purpose (reduce huge tensor copying time)",
    subject="delegate",
    cases=logged,
    gate=("custom memory", "registration"),
)
def registers_what_it_reports(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Holds the lines against the delegate's calls of memRegister, memDeRegister and graphExecute.

    The calls are seen where the suite gives the delegate its backend (qnn-reference), and where a delegate's
    library is told its backend's with the option library_path.
    """
    logged = heard(case, trace)
    if not judged(case, trace) or not invoked(case, trace):
        return Examined(0, TENSORS)
    said, _ = registered(case, trace)
    if not all(isinstance(seen.counts, LogCounts) for seen in logged):
        raise Unsupported("the delegate's calls of its QNN backend cannot be seen")
    if not said:
        raise Unsupported("the delegate reports no tensor as registered", final=False)
    executed = {tensor for seen in logged for tensor in seen.counted(LogCounts).executed}
    if said - executed:
        raise Violation(
            f"tensors {sorted(said)}, which are reported as registered, executed by their handles",
            f"tensors {sorted(said - executed)} are not",
        )
    return Examined(len(said), "tensors reported as registered")
