"""MEM: the memory that a kernel may touch, the client's own included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    FreeBuffer,
    Guard,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    Poison,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
    Unallocate,
    flat,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.kinds import OPS, Claims, Kind, decode_graph, size_of
from pytest_qnn.tflite.graph.scales import scale_of
from pytest_qnn.tflite.strategies.claimed import claimed_kinds, mixed_kinds, need_claims, taken
from pytest_qnn.tflite.strategies.delegates import delegate_cases, target_application
from pytest_qnn.tflite.trace import DelegateTrace, Kernel, PlaceCounts, ScriptTrace


def recording_writes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph and claim; writes of kernels outside their outputs are looked for."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (target_application(facts, claims[0], choice),), watch=True)

    return delegate_cases(mixed_kinds(facts), make, 1, max_nodes=10)


@rule(
    "MEM-01",
    Level.MUST,
    "invoke writes only to its kernel's output tensors and to the delegate's own memory.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke",
    subject="delegate",
    cases=recording_writes,
)
def writes_outputs_only(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every tensor that is neither input nor output of the kernel, around each invoke of it."""
    return _untouched(case, trace, inputs=False)


@rule(
    "MEM-02",
    Level.MUST,
    "invoke does not modify its kernel's inputs.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke and inplace_operator",
    subject="delegate",
    cases=recording_writes,
)
def leaves_inputs_alone(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every input tensor of the kernel, constants included, around each invoke of it."""
    return _untouched(case, trace, inputs=True)


def _untouched(case: DelegateCase, trace: DelegateTrace, *, inputs: bool) -> Examined:
    judging.need_work(trace)
    what = "an input" if inputs else "not an output"
    for write in trace.writes:
        if write.is_input == inputs and trace.applied[write.application].is_target:
            kernel = next((k for k in trace.kernels if k.kernel == write.kernel), None)
            outputs = f", whose outputs are {list(kernel.outputs)}" if kernel else ""
            raise WrongOutput(
                "no byte changed but those of the kernel's outputs",
                f"byte {write.offset} of t{write.tensor}, {what} of the kernel, changed by invoke",
                f"kernel {write.kernel}{outputs}",
                judging.draw(case, trace),
            )
    if not case.watch:
        return Examined(0, "invokes watched")
    kernels = {k.kernel for k in judging.target_kernels(trace) if k.inputs or not inputs}
    return Examined(sum(e.kind == "invoke" and e.kernel in kernels for e in trace.events), "invokes watched")


_SEED = "seed 000"
_HEADER = "tflite/core/interpreter.h, SetCustomAllocationForTensor"
_GUARDS: tuple[Guard, ...] = ("after", "flush", "before", "flush")


def _script(graph: Graph, steps: Sequence[AnyScriptStep]) -> ScriptCase:
    return ScriptCase((graph,), tuple(steps))


Steps = tuple[AnyScriptStep, ...]


def _run(choice: bytes) -> Steps:
    """Apply the delegate, allocate (or the other way round), use the interpreter ``i0`` once."""
    apply: Steps = (Apply("i0", "d0"), Allocate("i0"))
    if choice[3] & 128:
        apply = (Allocate("i0"), *apply)
    return (*apply, SetInputs("i0"), Poison("i0"), Invoke("i0"), Read("i0"))


def _run_of(name: str, choice: bytes) -> Steps:
    """The same of another interpreter."""
    return tuple(msgspec.structs.replace(step, interpreter=name) for step in _run(choice))


def _target(facts: DelegateFacts, claim: tuple[int, ...], choice: int) -> MakeDelegate:
    """One delegate of the target. It takes what it supports or, if steerable, every second time the claim."""
    position = (choice >> 1) % max(1, len(facts.delegates))
    return MakeDelegate("d0", claim=claim if facts.steerable and choice & 1 else None, position=position)


def _border(graph: Graph) -> list[int]:
    return sorted({*graph.inputs, *graph.outputs})


def _constants(graph: Graph) -> list[int]:
    read = {tensor for node in graph.nodes for tensor in node.inputs if tensor >= 0}
    return [tensor for tensor in sorted(read) if graph.tensors[tensor].data is not None]


Make = Callable[[Graph, Claims, bytes], ScriptCase]
"""(graph, claims, four bytes of choice) -> case."""

_EXTRA = 7
"""Bytes before the graph's: class of size, four of choice, two of seed."""


def _scripts(
    kinds: Sequence[Kind], make: Make, *, min_nodes: int = 1, max_nodes: int
) -> SearchStrategy[ScriptCase]:
    """Cases decoded from one draw of bytes; every SetInputs gets a seed of its own."""
    size = _EXTRA + size_of(max_nodes, 1)

    def decode(data: bytes) -> ScriptCase:
        seed, scale = int.from_bytes(data[5:7], "big"), scale_of(data[0], max_nodes)
        graph, claims = decode_graph(data[_EXTRA:], kinds, 1, min_nodes, max_nodes, scale)
        case = make(graph, claims, data[1:5])
        steps = (
            msgspec.structs.replace(step, seed=seed + step.seed) if isinstance(step, SetInputs) else step
            for step in case.steps
        )
        return msgspec.structs.replace(case, steps=tuple(steps))

    return decoded(size, decode)


def guarded(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Inputs, outputs and constants, or else all tensors, against pages that must not be touched."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        guard = _GUARDS[choice[0] % len(_GUARDS)]
        inner = range(len(graph.tensors)) if choice[0] & 64 else _border(graph)
        chosen = sorted({*inner, *_constants(graph)})
        places = tuple(
            Place("i0", tensor, guard=guard, skip_alignment_check=guard == "flush", seed=tensor)
            for tensor in chosen
        )
        return _script(graph, (_target(facts, claims[0], choice[1]), Open("i0"), *places, *_run(choice)))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=6)


@rule(
    "MEM-03",
    Level.MUST,
    "A kernel writes no byte outside its tensors' data, and reads none before the data or beyond the 16 "
    "bytes behind it.",
    source="tflite/core/c/common.h, TfLiteTensor.data and bytes; xnnpack.h, XNN_EXTRA_BYTES",
    subject="delegate",
    cases=guarded,
    weight=0.7,
)
def stays_inside(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the pages and bytes beside placed tensors, constants included, around each invoke.

    Vector kernels, XNNPACK's among them, read up to 16 bytes behind the data and forget them. With data that
    ends there, whatever its alignment, a read of one byte more is noticed; a target that dies of the
    alignment alone is not judged by such cases.
    """
    scripts.need_work(case, trace)
    for touch, kernel in scripts.by_target(trace, "outside"):
        scripts.accuse(case, trace, touch, kernel, "no byte touched but those of the tensors' data")
    return Examined(scripts.target_invokes(trace) if _placed(case, trace) else 0, "guarded invokes")


def ending_at_a_page(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Each graph twice: tensors that end 16 bytes before a page that must not be touched, then right there.

    They are inputs, outputs and constants, or else all.
    """

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        inner = range(len(graph.tensors)) if choice[0] & 64 else _border(graph)
        chosen = sorted({*inner, *_constants(graph)})
        steps: Steps = (_target(facts, claims[0], choice[1]),)
        for name, tail in (("i0", 16), ("i1", 0)):
            places = (
                Place(name, tensor, guard="flush", skip_alignment_check=True, seed=tensor, tail=tail)
                for tensor in chosen
            )
            steps = (*steps, Open(name), *places, *_run_of(name, choice))
        return _script(graph, steps)

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=6)


@rule(
    "MEM-17",
    Level.SHOULD,
    "A kernel reads nothing behind the data of its tensors.",
    source=f"tflite/core/c/common.h, TfLiteTensor.data and bytes; {_HEADER}: a buffer has the tensor's bytes",
    subject="delegate",
    cases=ending_at_a_page,
    weight=0.5,
)
def reads_nothing_behind(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at reads right behind placed tensors; what reads or writes elsewhere beside them is MEM-03's.

    A read of more than 16 bytes behind the data is MEM-03's too: who makes one in the first interpreter is
    not judged in the second.
    """
    scripts.need_work(case, trace)
    if any(touch.interpreter == "i0" for touch, _ in scripts.by_target(trace, "outside")):
        return Examined(0, "guarded invokes")
    spared = _placed_tensors(case, trace, "i0") if scripts.target_invokes(trace) else set()
    for touch, kernel in scripts.by_target(trace, "outside"):
        if touch.access != "write" and touch.offset >= touch.size and touch.tensor in spared:
            scripts.accuse(case, trace, touch, kernel, "no byte read behind the tensors' data")
    tight = _placed_tensors(case, trace, "i1") & spared
    return Examined(scripts.target_invokes(trace, "i1") if tight else 0, "guarded invokes")


def _placed_tensors(case: ScriptCase, trace: ScriptTrace, name: str) -> set[int]:
    """Those of one interpreter in memory of the client's."""
    steps = scripts.numbered(case, trace)
    return {s.tensor for _, s, seen in steps if isinstance(s, Place) and s.interpreter == name and seen.ok}


def placed(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Some tensors in the client's memory, assigned at any time that the runtime allows.

    Every second case first assigns a misaligned buffer, which is refused, or, once the delegate is applied,
    allocates with one that is too small, which fails; a good one then takes its place. Where a delegate is
    applied after such a failure the planner of 2.3 gives an output of the graph's to a later kernel.
    """

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        everything = [t for t, tensor in enumerate(graph.tensors) if tensor.data is None]
        chosen = [t for at, t in enumerate(everything) if choice[2] >> at % 8 & 1] or everything
        places: Steps = tuple(
            Place("i0", tensor, extra=(0, 64, 0, 4096)[choice[3] & 3], guard="none") for tensor in chosen
        )
        wrong: Steps = ()
        if choice[0] & 16:
            wrong = (Place("i0", chosen[0], misalign=4, guard="none"),)
        elif choice[0] & 32 and choice[0] & 2 and chosen[0] in _border(graph):
            wrong = (Place("i0", chosen[0], extra=-1, guard="none"), Allocate("i0"))
        opening: Steps = (_target(facts, claims[0], choice[1]), Open("i0"))
        using = (SetInputs("i0"), Poison("i0"), Invoke("i0"), Read("i0"))
        orders: tuple[Steps, ...] = (
            (*wrong, *places, Allocate("i0"), Apply("i0", "d0"), Allocate("i0")),
            (*wrong, *places, Apply("i0", "d0"), Allocate("i0")),
            (Apply("i0", "d0"), *wrong, *places, Allocate("i0")),
            (Apply("i0", "d0"), Allocate("i0"), *wrong, *places, Allocate("i0")),
        )
        alone = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1"), Invoke("i1"))
        return _script(graph, (*opening, *orders[choice[0] % 4], *using, *alone))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=8)


@rule(
    "MEM-04",
    Level.MUST,
    "Results are right with tensors in custom allocations, of the exact size or larger, assigned at any "
    "time.",
    source=f"{_HEADER}; {_SEED}, steps 1 to 3",
    subject="delegate",
    cases=placed,
    weight=0.4,
)
def works_in_foreign_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs; a buffer that is refused, or is too small, and then replaced does no harm.

    What fails on an interpreter with memory of the runtime's own too is not judged here.
    """
    scripts.need_trace(trace)
    alone = scripts.view(case, trace, "i1")
    if alone is None or judging.blame(alone[1]) or not _placed(case, trace):
        scripts.need_work(case, trace)
        return Examined(0, "placed tensors")
    return Examined(_right_numbers(case, trace) * _placed(case, trace), "placed tensors")


_MORE_INVOKES = (0, 0, 1, 4)


def replaced(*, allocate: bool) -> Callable[[DelegateFacts], SearchStrategy[ScriptCase]]:
    """Inputs and outputs get other buffers between two invokes, with or without allocate_tensors after it.

    In every second case there are some invokes more before it.
    """

    def cases(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
        def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
            first = tuple(Place("i0", tensor, guard="none", seed=1) for tensor in _border(graph))
            others = tuple(
                Place("i0", tensor, guard="none", seed=2)
                for at, tensor in enumerate(_border(graph))
                if choice[2] >> at % 8 & 1 or choice[2] == 0
            )
            again: Steps = (Allocate("i0"),) if allocate else ()
            second: Steps = (SetInputs("i0", 1), Poison("i0", 0x99), Invoke("i0"), Read("i0"))
            opening: Steps = (_target(facts, claims[0], choice[1]), Open("i0"), *first)
            more: Steps = (SetInputs("i0", 2), Invoke("i0")) * _MORE_INVOKES[choice[3] >> 5 & 3]
            return _script(graph, (*opening, *_run(choice), *more, *others, *again, *second))

        need_claims(facts)
        return _scripts(mixed_kinds(facts), make, max_nodes=6)

    return cases


@rule(
    "MEM-05",
    Level.MUST,
    "After a tensor was assigned another buffer and allocate_tensors was called, the delegate uses the new "
    "buffer.",
    source=f"{_HEADER} (assigns or reassigns); {_SEED}, running example",
    subject="delegate",
    cases=replaced(allocate=True),
    weight=0.4,
)
def follows_the_pointer(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs of the second invoke, which has other inputs in other buffers."""
    return _after_replacement(case, trace)


_MISALIGNED = (4, 16, 32, 8, 60, 48)


def misaligned(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Inputs and outputs in buffers that are not aligned as the runtime would have them."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        misalign = _MISALIGNED[choice[0] % len(_MISALIGNED)]
        places = tuple(
            Place("i0", tensor, guard="none", misalign=misalign, skip_alignment_check=True)
            for tensor in _border(graph)
        )
        return _script(graph, (_target(facts, claims[0], choice[1]), Open("i0"), *places, *_run(choice)))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=4)


@rule(
    "MEM-06",
    Level.SHOULD,
    "With kTfLiteCustomAllocationFlagsSkipAlignCheck and misaligned buffers, results are right or there is "
    "an error.",
    source="tflite/core/c/common.h, kTfLiteCustomAllocationFlagsSkipAlignCheck; "
    "docs/how-to/custom-allocations.md",
    subject="delegate",
    cases=misaligned,
    weight=0.4,
)
def bears_misalignment(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs; that the process ends is a crash."""
    if trace.misaligned:
        raise Violation("right results, or an error", "the process died of the buffers' alignment")
    scripts.need_trace(trace)
    seen = scripts.view(case, trace)
    if seen is None or judging.blame(seen[1]) or not scripts.target_invokes(trace):
        return Examined(0, "invokes with misaligned buffers")
    return Examined(_right_numbers(case, trace), "invokes with misaligned buffers")


@rule(
    "MEM-13",
    Level.SHOULD,
    "A tensor may be assigned another buffer between invokes, and the buffer is used even without "
    "allocate_tensors.",
    source="tflite/interpreter_test.cc, CustomInputAlloc_AllocateTensorsBefore; "
    "docs/how-to/custom-allocations.md",
    subject="delegate",
    cases=replaced(allocate=False),
    weight=0.4,
)
def follows_the_pointer_at_once(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """As MEM-05. Both runtimes' own kernels and XNNPACK do so."""
    return _after_replacement(case, trace)


def outlived(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The interpreter ends, the memory of its tensors is freed, and the delegate goes on."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        border = _border(graph)
        places = tuple(Place("i0", tensor, f"b{tensor}", guard="none") for tensor in border)
        frees = tuple(FreeBuffer(f"b{tensor}") for tensor in border)
        opening: Steps = (_target(facts, claims[0], choice[1]), Open("i0"), *places)
        another = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1", 1))
        use = (Invoke("i1"), Read("i1"), Close("i1"))
        rest: Steps = (*another, *use) if choice[0] & 1 else ()
        return _script(graph, (*opening, *_run(choice), Close("i0"), *frees, *rest))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=4)


@rule(
    "MEM-14",
    Level.MUST,
    "Memory of an interpreter's tensors may be freed once the interpreter is gone: the delegate, still "
    "alive, does not access it.",
    source=f"{_HEADER} (outlives the interpreter); {_SEED}, step 4 and the order of deletion",
    subject="delegate",
    cases=outlived,
    weight=0.4,
)
def lets_memory_go(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at memory given back, while the delegate works for another interpreter and is destroyed."""
    scripts.need_work(case, trace)
    for touch in trace.touches:
        if touch.why == "given-back":
            scripts.accuse(case, trace, touch, None, "no byte touched of memory that was given back")
    freed = sum(seen.ok for _, step, seen in scripts.numbered(case, trace) if isinstance(step, FreeBuffer))
    return Examined(freed if scripts.target_invokes(trace) else 0, "buffers given back")


def _placed(case: ScriptCase, trace: ScriptTrace) -> int:
    return sum(seen.ok for _, step, seen in scripts.numbered(case, trace) if isinstance(step, Place))


def _after_replacement(case: ScriptCase, trace: ScriptTrace) -> Examined:
    scripts.need_trace(trace)
    last = max((n for n, step, _ in scripts.numbered(case, trace) if isinstance(step, Place)), default=0)
    if not any(isinstance(step, Read) for step in flat(case.steps)[:last]) or not _placed(case, trace):
        return Examined(0, "buffers replaced")
    before = scripts.view(case, trace, upto=last)
    if before is None or not before[1].outputs or not scripts.target_invokes(trace):
        scripts.need_work(case, trace)
        return Examined(0, "buffers replaced")
    return Examined(_right_numbers(case, trace), "buffers replaced")


def _right_numbers(case: ScriptCase, trace: ScriptTrace, name: str = "i0", upto: int | None = None) -> int:
    """1, if an interpreter's last results, before step ``upto``, could be judged and are right.

    Raises:
        Violation: they are not, or something failed that must not.
    """
    seen = scripts.view(case, trace, name, upto)
    if seen is None or not scripts.target_invokes(trace, name):
        return 0
    blamed = judging.blame(seen[1])
    if blamed:
        raise Violation("every call to succeed", blamed, picture=judging.draw(*seen))
    outputs_are_right(*seen, "the CPU's values, from and in the client's memory")
    return len(seen[1].outputs)


_COMMON = "tflite/core/c/common.h"
_IN_PLACE = "inplace_operator"
_FIRST_SHARED = 4
"""kTfLiteInplaceOpInput0Shared."""


@rule(
    "MEM-07",
    Level.MUST,
    "Constant tensors are never written, and the bytes of the model are the same after use.",
    source=f"{_COMMON}, kTfLiteMmapRo",
    subject="delegate",
    cases=guarded,
    weight=0.4,
)
def leaves_constants_alone(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at constants in read-only pages, and at the whole model, during every callback of the target."""
    scripts.need_work(case, trace)
    for touch, kernel in scripts.by_target(trace, "constant"):
        scripts.accuse(case, trace, touch, kernel, "no byte of a constant written")
    seen = scripts.view(case, trace)
    reads = (
        [kernel for kernel in judging.target_kernels(seen[1]) if _read_constants(case, kernel)]
        if seen
        else []
    )
    if not reads:
        raise Unsupported("no kernel of the delegate reads a constant", final=False)
    return Examined(len(reads) if scripts.target_invokes(trace) else 0, "kernels that read constants")


def _read_constants(case: ScriptCase, kernel: Kernel) -> list[int]:
    tensors = case.graphs[0].tensors
    return [t for t in kernel.inputs if 0 <= t < len(tensors) and tensors[t].data is not None]


_BIASED: tuple[Op, ...] = ("FULLY_CONNECTED",)


def without_bias(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """FULLY_CONNECTED without its optional bias; in every second case each behind the same node with it."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        bare = _without_bias(graph)
        claim: tuple[int, ...] = claims[0]
        if choice[1] & 64:
            bare = _both(graph, bare)
            claim = tuple(sorted((*(2 * node for node in claim), *(2 * node + 1 for node in claim))))
        return _script(bare, (_target(facts, claim, choice[1]), Open("i0"), *_run(choice)))

    return _scripts(claimed_kinds(facts, ops=_BIASED), make, max_nodes=2)


def _without_bias(graph: Graph) -> Graph:
    nodes = tuple(
        msgspec.structs.replace(node, inputs=(*node.inputs[:2], -1)) if node.op == "FULLY_CONNECTED" else node
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def _both(biased: Graph, bare: Graph) -> Graph:
    """The nodes of ``bare``, and before each that of ``biased``, whose result is an output of the graph."""
    first = len(bare.tensors)
    added = range(first, first + len(biased.nodes))
    before = (
        msgspec.structs.replace(node, outputs=(output,))
        for node, output in zip(biased.nodes, added, strict=True)
    )
    results = tuple(biased.tensors[node.outputs[0]] for node in biased.nodes)
    nodes = tuple(node for both in zip(before, bare.nodes, strict=True) for node in both)
    return Graph((*bare.tensors, *results), nodes, bare.inputs, (*bare.outputs, *added))


@rule(
    "MEM-08",
    Level.MUST,
    "A kernel does not look up an optional input that is absent (index -1).",
    source=f"{_COMMON}, kTfLiteOptionalTensor",
    subject="delegate",
    cases=without_bias,
    gate=("optional inputs",),
    weight=0.5,
)
def knows_absent_operands(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at FULLY_CONNECTED without bias in kernels of the target."""
    scripts.need_trace(trace)
    seen = scripts.view(case, trace)
    if seen is None or not scripts.target_invokes(trace):
        scripts.need_work(case, trace)
        return Examined(0, "absent operands")
    nodes = {node for kernel in judging.live_target_kernels(seen[1]) for node in kernel.nodes}
    absent = sum(
        -1 in case.graphs[0].nodes[node].inputs for node in nodes if node < len(case.graphs[0].nodes)
    )
    if not absent:
        raise Unsupported("the delegate leaves nodes without their optional input to the CPU", final=False)
    outputs_are_right(*seen, "the CPU's values, which come of no bias")
    return Examined(absent, "absent operands")


_UNARY: tuple[Op, ...] = ("RELU", "ABS", "NEG")
_BINARY: tuple[Op, ...] = ("ADD", "MUL", "SUB", "MAXIMUM")


_SHAPES: dict[int, tuple[int, ...]] = {2: (2, 3), 1: (4,), 3: (1, 2, 3), 4: (1, 2, 1, 3)}
"""By rank."""


def _chain(ops: Sequence[Op], shape: tuple[int, ...]) -> Graph:
    tensors = (Tensor(shape),) * (len(ops) + 1)
    nodes = tuple(Node(op, (at, at) if op in _BINARY else (at,), (at + 1,)) for at, op in enumerate(ops))
    return Graph(tensors, nodes, (0,), (len(ops),))


def empty(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A chain of element-wise operators whose input is resized to none, and back again.

    It is resized before or after the delegate is applied. In every second case it was at work before, with
    elements. First another delegate, in an interpreter of its own, has one element less where this one has
    none: what that does wrong has nothing to do with tensors without elements.
    """
    known = {kind for kind in taken(facts) if kind.dtype == "float32" and kind.op in (*_UNARY, *_BINARY)}
    ops = {kind.op for kind in known}
    shapes = [shape for rank, shape in _SHAPES.items() if any(kind.rank == rank for kind in known)]
    chosen = [op for op in (*_UNARY, *_BINARY) if op in ops]
    need_claims(facts)
    if not chosen:
        raise NothingToJudge("the delegate claims no float32 element-wise operator", unsupported=True)

    def decode(data: bytes) -> ScriptCase:
        shape = shapes[data[0] % len(shapes)]
        nodes = data[2 : 3 + data[1] % 4] * facts.floor.nodes
        graph = _chain([chosen[byte % len(chosen)] for byte in nodes], shape)
        target = _target(facts, (), data[0] & 62)
        several = [at for at, count in enumerate(shape) if count > 1]
        at = several[-1 if data[0] & 64 else 0]
        lives: dict[str, Steps] = {}
        for name, count in (("1", shape[at] - 1), ("0", 0)):
            between = (*shape[:at], count, *shape[at + 1 :])
            made = msgspec.structs.replace(target, delegate=f"d{name}")
            lives[name] = (made, Open(f"i{name}"), *_there_and_back(name, graph, between, data))
        return _script(graph, (*lives["1"], Close("i1"), DestroyDelegate("d1"), *lives["0"]))

    return decoded(6, decode)


def _there_and_back(number: str, graph: Graph, between: tuple[int, ...], data: bytes) -> Steps:
    """Inferences with the input of another shape, and then of its own."""
    name = f"i{number}"
    apply, resize = Apply(name, f"d{number}"), Resize(name, 0, between)
    places: Steps = tuple(Place(name, tensor) for tensor in _border(graph))
    filled: Steps = (Allocate(name), SetInputs(name))
    used: Steps = (Invoke(name), Read(name))
    order: Steps = (apply, resize) if data[0] & 128 else (resize, apply)
    if data[1] & 64:
        order = (apply, *filled, Invoke(name), resize)
    back = Resize(name, 0, graph.tensors[0].shape)
    return (*order, *places, *filled, *used, back, *places, *filled, Poison(name), *used)


@rule(
    "MEM-09",
    Level.SHOULD,
    "Tensors without elements, whose data may be NULL, give results without elements, or an error; resized "
    "back, the same interpreter gives right results.",
    source=f"{_COMMON}, TfLiteTensor.bytes; docs/how-to/custom-allocations.md",
    subject="delegate",
    cases=empty,
    gate=("float32", "empty tensors"),
    weight=0.5,
)
def bears_empty_tensors(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the shape of the outputs; XNNPACK on tflite-runtime 2.14 fails cleanly, which is accepted.

    What follows such an error is not looked at, nor any output where the interpreter that always has elements
    gives a wrong one.
    """
    scripts.need_trace(trace)
    is_right = _is_right_with_elements(case, trace)
    for _, step, seen in scripts.numbered(case, trace):
        without = all(0 in array.shape for array in seen.cpu)
        is_read = isinstance(step, Read) and seen.ok and bool(seen.cpu)
        if is_right and is_read and without and seen.outputs != seen.cpu:
            shapes = [output.shape for output in seen.outputs]
            raise Violation(f"outputs of shape {[array.shape for array in seen.cpu]}", f"shapes {shapes}")
    for touch, kernel in scripts.by_target(trace, "outside"):
        scripts.accuse(case, trace, touch, kernel, "nothing written to a tensor without elements")
    found = scripts.interpreter(trace)
    made = sum(found.applied[kernel.application].is_target for kernel in found.kernels) if found else 0
    if not made:
        raise Unsupported("the delegate leaves nodes of tensors without elements to the CPU", final=False)
    if is_right and _is_back(case, trace):
        _right_numbers(case, trace)
    return Examined(made, "kernels with empty tensors")


def _is_right_with_elements(case: ScriptCase, trace: ScriptTrace) -> bool:
    """Whether all went well in ``i1``, there and back."""
    reads = [
        number
        for number, step, seen in scripts.numbered(case, trace)
        if isinstance(step, Read) and step.interpreter == "i1" and seen.ok
    ]
    try:
        right = sum(_right_numbers(case, trace, "i1", number + 1) > 0 for number in reads)
    except Violation:
        return False
    return right == 2  # there and back


def _is_back(case: ScriptCase, trace: ScriptTrace) -> bool:
    """Whether every call with tensors without elements succeeded, and elements came after them."""
    steps = [each for each in scripts.numbered(case, trace) if named(each[1], "interpreter") == "i0"]
    resizes = [at for at, (_, step, _) in enumerate(steps) if isinstance(step, Resize)]
    if len(resizes) < 2:  # there and back
        return False
    return all(seen.ok for _, _, seen in steps[: resizes[-1]])


def unallocated(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Tensors inside partitions point to pages that must not be touched."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        opening = (_target(facts, claims[0], choice[1]), Open("i0"), Unallocate("i0"))
        return _script(graph, (*opening, *_run(choice)))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, min_nodes=2, max_nodes=6)


@rule(
    "MEM-10",
    Level.MUST,
    "Tensors inside a partition have no memory: a kernel does not touch what their data points to.",
    source="tflite/arena_planner.cc (plans the tensors of the execution plan only); "
    "docs/reference/runtimes.md",
    subject="delegate",
    cases=unallocated,
    weight=0.4,
)
def knows_unallocated_tensors(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at kernels of several nodes, with pages that must not be touched behind the tensors inside them.

    That a tensor inside a partition still has an address is nothing strange: where a delegate is applied
    after allocate_tensors, some keep that of an arena which has been freed.
    """
    scripts.need_work(case, trace)
    for touch, kernel in scripts.by_target(trace, "unallocated"):
        scripts.accuse(case, trace, touch, kernel, "no data of a tensor inside the partition touched")
    found = scripts.interpreter(trace)
    kernels = [k for k in found.kernels if found.applied[k.application].is_target] if found else []
    if kernels and all(len(kernel.nodes) == 1 for kernel in kernels):
        raise Unsupported("every kernel of the delegate has one node", final=False)
    return Examined(sum(len(kernel.nodes) > 1 for kernel in kernels), "kernels")


def shared(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Each graph twice: as it is, and with an input and an output of one size in one buffer."""

    def make(graph: Graph, _: Claims, choice: bytes) -> ScriptCase:
        first = graph.inputs[0]
        like = graph.tensors[first]
        fitting = [t for t in graph.outputs if t != first and graph.tensors[t].shape == like.shape]
        places: Steps = ()
        if fitting:
            output = fitting[choice[2] % len(fitting)]
            places = tuple(Place("i1", tensor, "b0", guard="none") for tensor in (first, output))
        use = (SetInputs("i1"), Invoke("i1"), Read("i1"))
        alone = (_target(facts, (), choice[1] & ~1), Open("i0"), *_run(choice))
        return _script(graph, (*alone, Open("i1"), *places, Apply("i1", "d0"), Allocate("i1"), *use))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=4)


@rule(
    "MEM-11",
    Level.MUST,
    "A kernel that declares that its first input and output may share memory gives right results when they "
    "do.",
    source=f"{_COMMON}, TfLiteInPlaceOp",
    subject="delegate",
    cases=shared,
)
def declares_sharing_truly(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the registrations; where one declares it, also at results with both in one buffer."""
    scripts.need_trace(trace)
    found, sharing = scripts.view(case, trace), scripts.view(case, trace, "i1")
    if found is None or sharing is None:
        return Examined(0, "registrations")
    judging.need_work(found[1])
    declared = [r for a in found[1].applied if a.is_target for r in a.replaces]
    tensors = [
        step.tensor
        for _, step, seen in scripts.numbered(case, trace)
        if isinstance(step, Place) and step.interpreter == "i1" and seen.ok
    ]
    shared = any(_FIRST_SHARED & value for r in declared for name, value, _ in r.tail if name == _IN_PLACE)
    kernels = judging.live_target_kernels(sharing[1])
    if (
        shared
        and len(tensors) == 2
        and tensors[0] not in case.graphs[0].outputs  # its value is asked for, too
        and len(sharing[1].plan) == 1
        and any(_shares(k, tensors) for k in kernels)
    ):
        judging.need_work(sharing[1])
        outputs_are_right(*sharing, f"the CPU's values, with t{tensors[0]} and t{tensors[1]} in one buffer")
    return Examined(len(declared), "registrations")


def _shares(kernel: Kernel, tensors: list[int]) -> bool:
    return kernel.inputs[:1] == (tensors[0],) and kernel.outputs == (tensors[1],)


def too_small(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """An input or output in a buffer that is too small, on the CPU or behind a static probe."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        border = _border(graph)
        tensor = border[choice[2] % len(border)]
        place = Place("i0", tensor, extra=-1 - choice[3] % 4, guard="after")
        probe: Steps = (MakeDelegate("d0", "probe", claim=claims[0]),)
        apply: Steps = (Apply("i0", "d0"),) if choice[0] & 1 else ()
        return _script(graph, (*probe, Open("i0"), *apply, place, Allocate("i0")))

    return _scripts((Kind("float32", ("ADD", "RELU", "MUL", "MAXIMUM")),), make, max_nodes=4)


@rule(
    "MEM-12",
    Level.MUST,
    "A buffer that is too small is reported by allocate_tensors, before any kernel writes to it.",
    source="tflite/core/interpreter.h, SetCustomAllocationForTensor; docs/reference/runtimes.md RT-03",
    subject="delegate",
    cases=too_small,
    self_check=True,
    weight=0.5,
)
def reports_small_buffers(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at allocate_tensors on the CPU and behind static delegates.

    Behind a delegate that allows dynamic tensors the runtimes do not check outputs of partitions (RT-03);
    what comes of that is no delegate's fault, and not tried.
    """
    scripts.need_trace(trace)
    looked_at = 0
    small = -1
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Place) and seen.ok:
            placed = seen.counted(PlaceCounts)
            small = step.tensor if placed.bytes < placed.size else small
        elif isinstance(step, Allocate) and small >= 0:
            looked_at += 1
            if "too small" not in seen.message:
                raise Violation(
                    f"allocate_tensors to refuse the buffer of t{small}", seen.message or "success"
                )
    for touch in trace.touches:
        if touch.why == "outside":
            scripts.accuse(case, trace, touch, None, "nothing written before the buffer is refused")
    return Examined(looked_at, "buffers that are too small")


_RESHAPING: tuple[Op, ...] = ("RESHAPE", "ADD", "MUL", "RESHAPE", "SUB", "NEG")
_PLANNED = (Kind("float32", OPS["float32"]), Kind("int8", OPS["int8"]), Kind("float32", _RESHAPING))


def planned(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A graph without delegates by two interpreters, of which one keeps the memory of each tensor apart.

    In every second case a RESHAPE's result that is read is no output, as in a model that nobody has changed.
    """

    def make(graph: Graph, _: Claims, choice: bytes) -> ScriptCase:
        graph = _without_reshaped(graph) if choice[0] & 1 else graph
        steps: Steps = (Open("plain"), Open("preserving", preserve=True))
        for name in ("plain", "preserving"):
            steps = (*steps, Allocate(name), SetInputs(name), Invoke(name), Read(name))
        return _script(graph, steps)

    return _scripts(_PLANNED, make, min_nodes=2, max_nodes=12)


def _without_reshaped(graph: Graph) -> Graph:
    """The graph without results of RESHAPE among its outputs that other nodes read."""
    read = {tensor for node in graph.nodes for tensor in node.inputs}
    inner = {node.outputs[0] for node in graph.nodes if node.op == "RESHAPE"} & read
    return msgspec.structs.replace(graph, outputs=tuple(out for out in graph.outputs if out not in inner))


@rule(
    "MEM-16",
    Level.MUST,
    "The runtime gives no tensor memory that is still read: without delegates the outputs are, byte by byte, "
    "those of an interpreter that preserves all tensors.",
    source="tflite/arena_planner.cc, ArenaPlanner::PlanAllocations; tflite/core/interpreter_options.h, "
    "InterpreterOptions::SetPreserveAllTensors",
    subject="delegate",
    cases=planned,
    self_check=True,
    weight=0.5,
)
def gives_no_live_memory_away(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares the outputs of the two interpreters.

    Both runtimes are known to give memory away that a RESHAPE shares (RT-13): where the graph has one whose
    operand is read elsewhere too, a difference is put down to that.
    """
    scripts.need_trace(trace)
    reads = [seen for _, step, seen in scripts.numbered(case, trace) if isinstance(step, Read)]
    failed = next((seen.message for seen in trace.steps if not seen.ok and not seen.skipped), "")
    if len(reads) != _BOTH or any(not seen.ok for seen in reads):
        raise Unsupported(f"the graph is not carried out: {failed or 'a step is missing'}", final=False)
    if not _are_run_alike(case):
        return Examined(0, "outputs with and without preserve_all_tensors")
    graph = case.graphs[0]
    for index, plain, preserved in zip(graph.outputs, reads[0].outputs, reads[1].outputs, strict=True):
        if plain == preserved:
            continue
        if _shares_what_is_read(graph):
            raise Unsupported(
                f"a RESHAPE shares memory that is read elsewhere (RT-13): t{index}", final=False
            )
        differ = sum(one != other for one, other in zip(plain.data, preserved.data, strict=False))
        raise Violation(
            f"the bytes of t{index} that it has with experimental_preserve_all_tensors",
            f"{differ} of {len(preserved.data)} bytes are others",
            "an interpreter without delegates",
        )
    return Examined(len(graph.outputs), "outputs with and without preserve_all_tensors")


_BOTH = 2
_RUN = (Allocate, SetInputs, Invoke, Read)


def _are_run_alike(case: ScriptCase) -> bool:
    """Each interpreter computes from the same inputs; a reduced case may leave them as the memory is."""
    by_name: dict[str, list[AnyScriptStep]] = {}
    for step in case.steps:
        if not isinstance(step, Open):
            by_name.setdefault(named(step, "interpreter"), []).append(step)
    runs = [tuple(map(type, steps)) for steps in by_name.values()]
    inputs = {(step.seed, step.fill) for step in case.steps if isinstance(step, SetInputs)}
    return runs == [_RUN] * _BOTH and len(inputs) == 1


def _shares_what_is_read(graph: Graph) -> bool:
    """A RESHAPE whose result is no output has an operand that is one, or that another node reads too."""
    readers = [tensor for node in graph.nodes for tensor in node.inputs]
    return any(
        (readers.count(node.inputs[0]) > 1 or node.inputs[0] in graph.outputs)
        and node.outputs[0] not in graph.outputs
        for node in graph.nodes
        if node.op == "RESHAPE"
    )
