"""BUF: results that a delegate keeps in buffers of its device."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import changed, decoded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    CopyFrom,
    CopyTo,
    HandleOutput,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
    Wrong,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import decode_graph, joined, size_of
from pytest_qnn.tflite.graph.scales import scale_of
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import mixed_kinds, need_claims
from pytest_qnn.tflite.trace import (
    BufferCall,
    BufferFunctions,
    CopyCounts,
    CopyToCounts,
    DelegateTrace,
    Handled,
    InterpreterSeen,
    ScriptSeen,
    ScriptTrace,
)
from pytest_qnn.tflite.trace import ScriptSeen as Seen


def opened(trace: ScriptTrace, name: str = "i0") -> InterpreterSeen:
    """The interpreter, which the target was applied to.

    Raises:
        Unsupported: there is nothing to be seen of it.
    """
    scripts.need_trace(trace)
    found = scripts.interpreter(trace, name)
    if found is None or not any(one.is_target and one.ok for one in found.applied):
        raise Unsupported("the delegate was not applied", final=False)
    return found


def boundary(found: InterpreterSeen, *, inputs: bool = False) -> list[Handled]:
    """Outputs of the target's kernels right after each invoke; or stale inputs right before."""
    return [
        one
        for one in found.handled
        if one.is_input is inputs and found.applied[found.kernels[one.kernel].application].is_target
    ]


def stale_outputs(found: InterpreterSeen) -> list[Handled]:
    """Outputs that the target's kernels have left stale: their results are in buffers.

    Raises:
        Unsupported: there are none.
    """
    stale = [one for one in boundary(found) if one.stale]
    if not stale:
        has = any(functions.copy_from for functions in target_functions(found))
        reason = "keeps no results in buffers: no kernel has set data_is_stale"
        text = f"the delegate {reason}" + ("" if has else ", and CopyFromBufferHandle is NULL")
        raise Unsupported(text, final=not has)
    return stale


def target_functions(found: InterpreterSeen) -> list[BufferFunctions]:
    """The functions for buffer handles of each delegate of the target."""
    return [one for one, applied in zip(found.functions, found.applied, strict=False) if applied.is_target]


def calls(found: InterpreterSeen, kind: str) -> list[BufferCall]:
    """Calls of one of the target's functions for buffer handles."""
    return [
        call
        for call in found.buffer_calls
        if call.kind == kind and call.application >= 0 and found.applied[call.application].is_target
    ]


def where(found: InterpreterSeen, one: Handled) -> str:
    """Which tensor and kernel it is about."""
    return f"t{one.tensor}, kernel {one.kernel} of nodes {list(found.kernels[one.kernel].nodes)}"


def seen_as_case(
    case: ScriptCase, trace: ScriptTrace, name: str = "i0", upto: int | None = None
) -> tuple[DelegateCase, DelegateTrace]:
    """One interpreter as a delegate case.

    Raises:
        Unsupported: it was not opened.
    """
    seen = scripts.view(case, trace, name, upto)
    if seen is None:
        raise Unsupported("the interpreter was not opened", final=False)
    return seen


def reads_right(case: ScriptCase, trace: ScriptTrace, expected: str, name: str = "i0") -> int:
    """Judge every Read of the interpreter; how many there were.

    Raises:
        Violation: an output is gravely wrong.
    """
    judged = 0
    for number, step, seen in scripts.numbered(case, trace):
        if type(step).__name__ == "Read" and named(step, "interpreter") == name and seen.ok and seen.cpu:
            outputs_are_right(*seen_as_case(case, trace, name, number + 1), expected)
            judged += 1
    return judged


def need_success(case: ScriptCase, trace: ScriptTrace, expected: str, name: str = "i0") -> None:
    """Raises Violation where an allocate or invoke of the interpreter failed, or a kernel of the target."""
    view = seen_as_case(case, trace, name)
    failed = judging.blame(view[1]) or judging.failure(view[1])
    if failed:
        raise FailedCall(expected, failed, f"interpreter {name}", judging.draw(*view))


def copies(case: ScriptCase, trace: ScriptTrace) -> list[tuple[int, CopyFrom, Seen]]:
    """The CopyFrom steps that were carried out."""
    return [
        (number, step, seen)
        for number, step, seen in scripts.numbered(case, trace)
        if isinstance(step, CopyFrom) and not seen.skipped
    ]


_TENSOR = "tflite/core/c/common.h, TfLiteTensor.buffer_handle and data_is_stale"
_DELEGATE = "tflite/core/c/common.h, TfLiteDelegate"
_COPIED = "every run of a delegate that keeps results in buffers of its own copies them when they are read"
_READABLE = "tflite/core/subgraph.cc, EnsureTensorDataIsReadable"

Strategy = SearchStrategy[ScriptCase]


def _plain(case: DelegateCase) -> DelegateCase:
    """Without fused activations: whether they are applied is another rule's question."""
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in case.graph.nodes)
    return msgspec.structs.replace(case, graph=msgspec.structs.replace(case.graph, nodes=nodes))


def _cases(facts: DelegateFacts, *, scaled: bool = True) -> SearchStrategy[DelegateCase]:
    need_claims(facts)
    return changed(delegates.behind_a_probe(facts, scaled=scaled), _plain)


Steps = tuple[AnyScriptStep, ...]
_NOT_NEW = 192
"""Of the seed's lower byte, which is spread evenly: from here on the delegate was at work before."""


def _script(case: DelegateCase, steps: Steps) -> ScriptCase:
    return ScriptCase((case.graph,), steps, buffers=True)


def _probe_claim(case: DelegateCase) -> tuple[int, ...]:
    return next(one.claim or () for one in case.applications if one.who == "probe")


def _opening(case: DelegateCase) -> Steps:
    """The target on the interpreter ``i0``, alone or (two of three) behind the probe; allocated."""
    claims = [one.claim for one in case.applications if one.who == "target"]
    target = MakeDelegate("d0", claim=claims[0])
    if not case.data_seed % 3:
        return (target, Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    probe = MakeDelegate("p0", "probe", claim=_probe_claim(case))
    return (target, probe, Open("i0"), Apply("i0", "p0"), Apply("i0", "d0"), Allocate("i0"))


POISON = (0x80, 0x7F)
"""Fills of outputs before the first and the second invoke; as int8 they are as far apart as can be."""


def _use(case: DelegateCase, time: int = 0) -> Steps:
    return (SetInputs("i0", case.data_seed + time), Poison("i0", POISON[time]), Invoke("i0"), Read("i0"))


def _another(case: DelegateCase, name: str, *, ends: bool) -> Steps:
    """Another interpreter of the same delegate, used once; a delegate may refuse it."""
    seed = case.data_seed + 2
    use = (Open(name), Apply(name, "d0"), Allocate(name), SetInputs(name, seed), Invoke(name), Read(name))
    return (*use, Close(name)) if ends else use


def kept(facts: DelegateFacts) -> Strategy:
    """Two invokes with inputs of their own; the outputs are read after each.

    In every fourth case the delegate was at work before, on interpreters that are gone.
    """

    def make(case: DelegateCase) -> ScriptCase:
        target, *rest = _opening(case)
        before = _another(case, "i9", ends=True) if case.data_seed & 255 >= _NOT_NEW else ()
        return _script(case, (target, *before, *rest, *_use(case), *_use(case, 1)))

    return changed(_cases(facts), make)


@rule(
    "BUF-01",
    Level.MUST,
    "A tensor that a kernel leaves stale (data_is_stale) has a buffer handle of 0 or more, and the kernel's "
    "delegate.",
    source=f"{_TENSOR}; {_READABLE}",
    subject="delegate",
    cases=kept,
    gate=("buffers",),
)
def stale_tensors_have_handles(case: ScriptCase, trace: ScriptTrace) -> Examined:  # noqa: ARG001 - as all checks
    """Looks at the outputs of kernels right after each invoke, before the runtime looks at them."""
    found = opened(trace)
    stale = stale_outputs(found)
    for one in stale:
        if one.handle < 0:
            raise Violation("a handle of 0 or more in a stale tensor", str(one.handle), where(found, one))
        if not one.owned:
            raise Violation("the delegate in a stale tensor", "none, or another one", where(found, one))
    return Examined(len(stale), "stale tensors")


@rule(
    "BUF-02",
    Level.MUST,
    "A delegate whose kernels leave tensors stale (data_is_stale) has a CopyFromBufferHandle, which fills "
    "all of the tensor's data.",
    source=f"{_DELEGATE}.CopyFromBufferHandle; {_READABLE}; seed 003 (this cannot be null)",
    subject="delegate",
    cases=kept,
    gate=("buffers",),
)
def stale_data_is_copied(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs, filled beforehand: the runtime drops what a copy of an output answers (RT-04)."""
    found = opened(trace)
    stale_outputs(found)
    if not all(one.copy_from for one in target_functions(found)):
        raise Violation("a function CopyFromBufferHandle, as tensors are left stale", "NULL")
    done = calls(found, "from")
    for call in done:
        if call.status and call.handle >= 0:
            raise Violation(
                "CopyFromBufferHandle to succeed",
                f"status {call.status}",
                f"handle {call.handle} of t{call.tensor}, step {call.step}",
            )
    if not done or judging.blame(seen_as_case(case, trace)[1]):
        return Examined(0, "copies from buffers")
    _demand_filled(case, trace, "all of the tensor's data, copied from its buffer")
    return Examined(len(done), "copies from buffers")


def _demand_filled(case: ScriptCase, trace: ScriptTrace, expected: str) -> None:
    """Raise Violation where elements that were read are as the outputs were filled before the invoke.

    Other wrong values are other rules' matter: they may have been wrong in the buffer.
    """
    fill = 0
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Poison) and step.interpreter == "i0":
            fill = step.byte
        elif isinstance(step, Read) and step.interpreter == "i0" and seen.ok and seen.cpu:
            for position, (read, right) in enumerate(zip(seen.outputs, seen.cpu, strict=True)):
                left = (_bytes_of(read) == fill).all(axis=1) & (_bytes_of(right) != fill).any(axis=1)
                if left.any():
                    raise WrongOutput(
                        expected,
                        f"{left.sum()} of {len(left)} elements as they were before the invoke",
                        f"output {position}, step {number}",
                    )


def _bytes_of(array: Array) -> npt.NDArray[np.uint8]:
    """The bytes of each element, shape [elements, bytes of one]."""
    values = np.ascontiguousarray(array.numpy())
    return values.reshape(-1, 1).view(np.uint8)


@rule(
    "BUF-03",
    Level.MUST,
    "A kernel that writes a tensor's data leaves data_is_stale false; a kernel that does not write it sets "
    "data_is_stale.",
    source=f"{_TENSOR}; {_READABLE}",
    subject="delegate",
    cases=kept,
    uncontrolled=_COPIED,
)
def fresh_data_is_not_stale(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs of kernels, and at what the client reads.

    A device may share its memory with the CPU, so that data changes as the buffer does: a tensor that is
    written and stale too is all right where a copy from its buffer leaves it right.
    """
    found = opened(trace)
    outputs = boundary(found)
    if not outputs or judging.blame(seen_as_case(case, trace)[1]):
        return Examined(0, "outputs of kernels")
    both = [one for one in outputs if one.stale and one.written]
    for one in both:
        if one.handle < 0 or not found.functions[found.kernels[one.kernel].application].copy_from:
            raise Violation(
                "data_is_stale false after the kernel has written the data",
                "true, with no buffer to be copied from",
                where(found, one),
            )
    # Of a delegate that cannot copy from a buffer, a wrong value is no value that it kept: it is wrong.
    copying = any(found.functions[found.kernels[one.kernel].application].copy_from for one in outputs)
    if both or (copying and not all(one.stale for one in outputs)):
        which = f"t{both[0].tensor}, stale and written" if both else "tensors that are not stale"
        expected = f"the CPU's values in {which}"
        _demand_filled(case, trace, expected)
        if _is_right_once(case, trace):
            reads_right(case, trace, expected)
    return Examined(len(outputs), "outputs of kernels")


def _is_right_once(case: ScriptCase, trace: ScriptTrace) -> bool:
    """Some Read is right: else numbers are wrong whatever becomes of them, which is for others to judge."""
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Read) and step.interpreter == "i0" and seen.ok and seen.cpu:
            with contextlib.suppress(WrongOutput):
                outputs_are_right(*seen_as_case(case, trace, upto=number + 1), "")
                return True
    return False


def _between(graph: Graph) -> list[int]:
    """Nodes that, taken out, part two others of which one reads what the other has written.

    Behind such a node, which waits for it, is one that reads the result of a node which does not. What the
    taken node reads itself does not count: the runtime brings that from its buffer before.
    """
    found = []
    for taken, between in enumerate(graph.nodes):
        late, early = set(between.outputs), set[int]()
        for index, node in enumerate(graph.nodes):
            if index == taken:
                continue
            if late.isdisjoint(node.inputs):
                early.update(node.outputs)
                continue
            late.update(node.outputs)
            if not early.isdisjoint(set(node.inputs) - set(between.inputs)):
                found.append(taken)
                break
    return found


def connected(facts: DelegateFacts) -> Strategy:
    """A probe takes a node such that one kernel of the target reads what another one of its kernels wrote."""

    def make(case: DelegateCase) -> ScriptCase:
        between = _between(case.graph)
        claim = (between[case.data_seed % len(between)] if between else 0,)
        opening: Steps = (
            MakeDelegate("p0", "probe", claim=claim),
            *(MakeDelegate("d0"), Open("i0"), Apply("i0", "p0"), Apply("i0", "d0"), Allocate("i0")),
        )
        return _script(case, (*opening, *_use(case), *_use(case, 1)))

    need_claims(facts)
    kinds = mixed_kinds(facts)

    def decode(data: bytes) -> ScriptCase:
        scale = scale_of(data[0], _MOST)
        least = 2 if scale.most else _FEWEST  # of large tensors there are few
        graph, _ = decode_graph(joined(data[3:], 0), kinds, 0, least, _MOST, scale)
        return make(_plain(DelegateCase(graph, data_seed=int.from_bytes(data[1:3], "big"))))

    return decoded(3 + size_of(_MOST, 0), decode)


_FEWEST, _MOST = 8, 20
"""Nodes of a graph in which kernels are parted."""


@rule(
    "BUF-07",
    Level.MUST,
    "A kernel reads a stale input that belongs to its own delegate from the delegate's buffer: the runtime "
    "does not copy it.",
    source="tflite/core/subgraph.cc, Subgraph::InvokeImpl (tensor->delegate != node.delegate)",
    subject="delegate",
    cases=connected,
    gate=("buffers",),
)
def own_buffers_are_read(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at outputs where one kernel of the delegate feeds another; a probe's node lies between them."""
    found = opened(trace)
    stale_outputs(found)
    fed = [one for one in boundary(found, inputs=True) if one.owned]
    if not fed:
        return Examined(0, "stale inputs of the delegate's own")
    seen = seen_as_case(case, trace)
    failed = judging.blame(seen[1])
    if failed:
        raise FailedCall(
            "a kernel to read a stale input of its own delegate's",
            failed,
            where(found, fed[0]),
            judging.draw(*seen),
        )
    reads_right(case, trace, f"the CPU's values, by way of t{fed[0].tensor} in a buffer")
    return Examined(len(fed), "stale inputs of the delegate's own")


@rule(
    "BUF-08",
    Level.MUST,
    "A delegate works although CopyToBufferHandle is never called: no runtime calls it.",
    source=f"{_DELEGATE}.CopyToBufferHandle (no call site in tflite/core); docs/reference/runtimes.md",
    subject="delegate",
    cases=kept,
    gate=("buffers",),
    uncontrolled=_COPIED,
)
def nothing_is_uploaded(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs of delegates that have the function."""
    found = opened(trace)
    if not any(one.copy_to for one in target_functions(found)):
        raise Unsupported("CopyToBufferHandle is NULL: the delegate cannot rely on it")
    kernels = len(boundary(found))
    if not kernels:
        return Examined(0, "outputs of kernels")
    need_success(case, trace, "kernels that work though nobody calls CopyToBufferHandle")
    reads_right(case, trace, "the CPU's values, though nobody calls CopyToBufferHandle")
    return Examined(kernels, "outputs of kernels")


def resized(facts: DelegateFacts) -> Strategy:
    """An input is resized to another shape and back between two invokes: delegates are undone and redone."""

    def make(case: DelegateCase) -> ScriptCase:
        shape = case.graph.tensors[case.graph.inputs[0]].shape
        away = (Resize("i0", 0, (shape[0] + 1, *shape[1:])), Resize("i0", 0, shape)) if shape else ()
        steps = (*_opening(case), *_use(case), *away, Allocate("i0"), *_use(case, 1), Close("i0"))
        return _script(case, steps)

    return changed(_cases(facts, scaled=False), make)


@rule(
    "BUF-09",
    Level.SHOULD,
    "After delegates are undone and applied again, as by a resize, results are right whatever buffer handles "
    "the tensors keep.",
    source="tflite/core/subgraph.cc, UndoAllDelegates (leaves buffer_handle as it is), Subgraph::~Subgraph",
    subject="delegate",
    cases=resized,
    gate=("buffers",),
)
def handles_survive_a_redo(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the invoke after it, and at the interpreter's end, where the runtime frees all handles."""
    found = opened(trace)
    stale = stale_outputs(found)
    if sum(event.kind == "Prepare" for event in found.events) < 2 * len(found.applied):
        return Examined(0, "stale tensors before and after a redo")
    later = max(number for number, step in enumerate(case.steps) if type(step).__name__ == "Resize")
    before = seen_as_case(case, trace, upto=later)
    if not before[1].outputs:
        return Examined(0, "stale tensors before and after a redo")
    need_success(case, trace, "allocate_tensors and invoke to succeed after a resize")
    outputs_are_right(*seen_as_case(case, trace), "the CPU's values after a resize there and back")
    return Examined(len(stale), "stale tensors before and after a redo")


_COPY = f"{_DELEGATE}.CopyFromBufferHandle"


def _outputs(case: DelegateCase) -> range:
    return range(len(case.graph.outputs))


def copied(facts: DelegateFacts) -> Strategy:
    """CopyFromBufferHandle is called again, by the client, after the runtime has copied the outputs."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyFrom("i0", output) for output in _outputs(case))
        others = SetInputs("i0", case.data_seed + 1)
        return _script(case, (*_opening(case), *_use(case), others, *copies, Read("i0")))

    return changed(_cases(facts), make)


@rule(
    "BUF-04",
    Level.MUST,
    "CopyFromBufferHandle copies: it can be called again, fills the whole tensor, and changes no other "
    "tensor.",
    source=_COPY,
    subject="delegate",
    cases=copied,
    gate=("buffers",),
)
def copying_is_repeatable(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at two copies over different fills after the runtime's own, and at the border of the graph."""
    found = opened(trace)
    stale_outputs(found)
    done = copies(case, trace)
    for number, step, seen in done:
        _copied(seen, f"output {step.output}, step {number}")
    if done:
        graph = case.graphs[0]
        reads = [
            [
                one
                for tensor, one in zip(graph.outputs, seen.outputs, strict=False)
                if tensor not in graph.inputs
            ]
            for _, step, seen in scripts.numbered(case, trace)
            if isinstance(step, Read) and seen.ok
        ]
        if len(reads) > 1 and reads[0] != reads[-1]:
            raise Violation(
                "the same bytes from a second copy", "others", f"{len(done)} outputs copied again"
            )
    return Examined(len(done), "outputs copied again")


def _copied(seen: ScriptSeen, at: str) -> None:
    """Raises Violation unless a CopyFrom step went well."""
    counts = seen.counted(CopyCounts)
    at = f"handle {counts.handle}, {at}"
    if counts.status:
        raise FailedCall("CopyFromBufferHandle to succeed", f"status {counts.status}", at)
    if counts.untouched:
        raise WrongOutput("all bytes of the tensor written", f"{counts.untouched} not written", at)
    if counts.other >= 0:
        raise WrongOutput("no other tensor changed", f"t{counts.other} changed", at)


def mistaken(facts: DelegateFacts) -> Strategy:
    """CopyFromBufferHandle is called with what is no handle; in every fourth case after some were freed."""

    def make(case: DelegateCase) -> ScriptCase:
        freed = _another(case, "i9", ends=True) if case.data_seed & 255 >= _NOT_NEW else ()
        wrong: Wrong = "none" if case.data_seed & 2 else "unknown"
        copies = tuple(CopyFrom("i0", output, wrong) for output in _outputs(case))
        return _script(case, (*_opening(case), *_use(case), *freed, *copies))

    return changed(_cases(facts), make)


@rule(
    "BUF-05",
    Level.SHOULD,
    "CopyFromBufferHandle returns an error for a handle that is not the delegate's.",
    source=f"{_COPY} (returns TfLiteStatus); docs/reference/runtimes.md RT-04",
    subject="delegate",
    cases=mistaken,
    gate=("buffers",),
)
def bad_handles_are_refused(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Passes kTfLiteNullBufferHandle, or a number that was never given out.

    The runtime itself passes what kernels have put into tensors, or clients through SetBufferHandle.
    """
    found = opened(trace)
    stale_outputs(found)
    done = copies(case, trace)
    for number, step, seen in done:
        counts = seen.counted(CopyCounts)
        if not counts.status:
            wrote = "" if counts.untouched else ", and data was written"
            handle = -1 if step.wrong == "none" else counts.handle
            raise Violation(
                f"an error for the handle {handle}", f"success{wrote}", f"output {step.output}, step {number}"
            )
        wrong = judging.wrong_status(counts.status, trace.facts)
        if wrong:
            raise Violation("the status of an error", wrong, f"output {step.output}, step {number}")
    return Examined(len(done), "copies from no handle")


def freed(facts: DelegateFacts) -> Strategy:
    """One delegate on two interpreters; the first one ends, and the second one's outputs are copied then."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyFrom("i1", output) for output in _outputs(case))
        second = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1"), Invoke("i1"), Read("i1"))
        steps = (*_opening(case), *_use(case), *second, Close("i0"), *copies, Read("i1"), Close("i1"))
        return _script(case, steps)

    return changed(_cases(facts), make)


@rule(
    "BUF-06",
    Level.MUST,
    "FreeBufferHandle frees only its handle, and once, also when the interpreter ends; it leaves the "
    "handle's value unchanged or sets it to -1.",
    source=f"{_DELEGATE}.FreeBufferHandle; tflite/core/subgraph.cc, Subgraph::~Subgraph",
    subject="delegate",
    cases=freed,
    gate=("buffers",),
)
def freeing_is_exact(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Two interpreters of one delegate: when the first has ended, the second one's buffers are still there.

    That the end of an interpreter ends the process is a crash.
    """
    found = opened(trace)
    stale_outputs(found)
    freed = calls(found, "free")
    for call in freed:
        if call.status not in (-1, call.handle):
            raise Violation(f"the handle {call.handle} or -1 after it was freed", str(call.status))
    second = scripts.interpreter(trace, "i1")
    if second is None or not all(one.ok for one in second.applied):
        return Examined(len(freed), "handles freed")
    for number, step, seen in copies(case, trace):
        _copied(seen, f"output {step.output} of i1 after the end of i0, step {number}")
    return Examined(len(freed), "handles freed")


def left_to_the_client(facts: DelegateFacts) -> Strategy:
    """allow_buffer_handle_output is set; the client copies the outputs after the second invoke."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyFrom("i0", output) for output in _outputs(case))
        first = (SetInputs("i0", case.data_seed), Invoke("i0"), SetInputs("i0", case.data_seed + 1))
        opening = (*_opening(case), HandleOutput("i0"))
        return _script(case, (*opening, *first, Invoke("i0"), *copies, Read("i0")))

    return changed(_cases(facts), make)


@rule(
    "BUF-10",
    Level.SHOULD,
    "Where the client allows buffer handles as outputs, outputs stay stale, and the client can copy them at "
    "any time.",
    source="tflite/core/interpreter.h, SetAllowBufferHandleOutput",
    subject="delegate",
    cases=left_to_the_client,
    gate=("buffers",),
)
def outputs_stay_in_buffers(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at copies that the client makes after the second invoke.

    The runtime makes none after the last node; it still copies what a node of the CPU reads.
    """
    found = opened(trace)
    stale = stale_outputs(found)
    allowed = any(
        isinstance(step, HandleOutput) and seen.ok for _, step, seen in scripts.numbered(case, trace)
    )
    done = copies(case, trace)
    if not allowed or not done or judging.blame(seen_as_case(case, trace)[1]):
        return Examined(0, "outputs left in buffers")
    for number, step, seen in done:
        _copied(seen, f"output {step.output}, step {number}")
    copied = {case.graphs[0].outputs[step.output] for _, step, _ in done}
    if copied.issuperset(one.tensor for one in stale if one.tensor in case.graphs[0].outputs):
        reads_right(case, trace, "the CPU's values, copied by the client after the second invoke")
    return Examined(len(done), "outputs left in buffers")


@rule(
    "BUF-11",
    Level.SHOULD,
    "A delegate whose kernels leave tensors stale (data_is_stale) has a FreeBufferHandle, by which an "
    "interpreter that ends gives their handles back.",
    source=f"{_DELEGATE}.FreeBufferHandle (NULL if the delegate uses no buffers of its own)",
    subject="delegate",
    cases=kept,
    gate=("buffers",),
    weight=0.2,
)
def handles_can_be_freed(case: ScriptCase, trace: ScriptTrace) -> Examined:  # noqa: ARG001 - as all checks
    """SHOULD, since every runtime tolerates NULL: the buffers then stay until the delegate is destroyed."""
    found = opened(trace)
    stale = stale_outputs(found)
    if not all(one.free for one in target_functions(found)):
        raise Violation("a function FreeBufferHandle, as tensors are left stale", "NULL")
    return Examined(len(stale), "stale tensors")


def uploaded(facts: DelegateFacts) -> Strategy:
    """The client copies to the buffers of the outputs, and back, after one invoke."""

    def make(case: DelegateCase) -> ScriptCase:
        copies = tuple(CopyTo("i0", output) for output in _outputs(case))
        return _script(case, (*_opening(case), *_use(case), *copies))

    return changed(_cases(facts), make)


@rule(
    "BUF-12",
    Level.SHOULD,
    "CopyToBufferHandle copies a tensor's data to the delegate's buffer: what CopyFromBufferHandle gives "
    "afterwards is the same.",
    source=f"seed 003 (CopyToBufferHandle); {_DELEGATE}.CopyToBufferHandle",
    subject="delegate",
    cases=uploaded,
    gate=("buffers",),
    weight=0.5,
)
def uploads_arrive(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """SHOULD: seed 003 has it copy "if needed", and a delegate may know that its results never need it.

    No runtime calls it. An error is its answer where it cannot; nothing is looked at then, nor where the
    buffer is the tensor's own memory.
    """
    found = opened(trace)
    stale_outputs(found)
    if not any(one.copy_to for one in target_functions(found)):
        raise Unsupported("CopyToBufferHandle is NULL")
    count = 0
    for number, step, seen in scripts.numbered(case, trace):
        if not isinstance(step, CopyTo) or seen.skipped:
            continue
        counts = seen.counted(CopyToCounts)
        if counts.status or not counts.elements or counts.shared:
            continue
        if counts.lost:
            wanted = f"the {counts.elements} elements that CopyToBufferHandle, which succeeded, was given"
            at = f"handle {counts.handle}, output {step.output}, step {number}"
            raise Violation(wanted, f"{counts.lost} others from CopyFromBufferHandle", at)
        count += 1
    return Examined(count, "tensors copied to buffers")
