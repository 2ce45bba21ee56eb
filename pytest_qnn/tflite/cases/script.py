"""ScriptCase: a sequence of steps on named interpreters and delegates, as immutable data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pytest_qnn.core.target import Resource
from pytest_qnn.tflite.cases.delegate import Byte, Fault, Fill, Flags, Seed
from pytest_qnn.tflite.cases.edits import AnyEdit, StatedEdges, may_end
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.graph.graph import MOST_NODES, Graph

MOST_GRAPHS = 8
MOST_PERFORMED = 20_000
"""Steps carried out, repeats counted."""
MOST_EXTRA = 1 << 20
# Of what there may not be: a step that names a thing that does not exist is skipped.
GraphIndex = Annotated[int, Meta(ge=0, le=MOST_GRAPHS)]
TensorIndex = Annotated[int, Meta(ge=0, le=1 << 16)]
NodeIndex = Annotated[int, Meta(ge=0, le=MOST_NODES)]
Position = Annotated[int, Meta(ge=0, le=100)]


class ScriptStep(msgspec.Struct, frozen=True, gc=False, tag_field="do", omit_defaults=True):
    """One step. The tag ``do`` names it in JSON."""


class AllocCustom(ScriptStep, tag="alloc-custom", frozen=True, gc=False, omit_defaults=True):
    """TfLiteQnnDelegateAllocCustomMem; what it gives is filled, as far as it can be written to.

    ``ok``: the pointer is not NULL. Numbers: ``pointer``, ``offset`` (of the pointer from a multiple of the
    alignment), ``usable`` (1: every byte is mapped, to be read and written, and keeps what is written),
    ``shared`` (1: every byte lies in a mapping that other processes and devices can share), ``overlaps``
    (1: a byte belongs to another buffer).
    """

    buffer: str
    bytes: int
    alignment: Annotated[int, Meta(ge=1, le=1 << 20)] = 64
    """The default is kDefaultTensorAlignment."""
    position: Position = 0
    """Whose function: as for `pytest_qnn.tflite.cases.script.MakeDelegate`."""
    seed: Seed = 0
    """Contents: `pytest_qnn.core.contents.hashed` bytes of this seed."""


class InspectCustom(ScriptStep, tag="inspect-custom", frozen=True, gc=False, omit_defaults=True):
    """Look at a buffer again.

    Numbers: ``usable`` (mapped), ``shared``, ``kept`` (1: its contents are those that it was filled with).
    """

    buffer: str


class FreeCustom(ScriptStep, tag="free-custom", frozen=True, gc=False, omit_defaults=True):
    """TfLiteQnnDelegateFreeCustomMem.

    An interpreter that has a tensor in the buffer can do no more than be closed, or be assigned another.
    """

    buffer: str = ""
    what: Literal["buffer", "null", "unknown"] = "buffer"
    """``null``: pass NULL; ``unknown``: pass an address that the function has never given."""
    position: Position = 0
    """Of ``null`` and ``unknown``: whose function."""


class AssignCustom(ScriptStep, tag="assign-custom", frozen=True, gc=False, omit_defaults=True):
    """SetCustomAllocationForTensor with a buffer of `AllocCustom`.

    Numbers: ``status`` of the call, ``size`` of the tensor, ``bytes`` of the buffer.
    """

    interpreter: str
    tensor: TensorIndex
    buffer: str


class ReadCustom(ScriptStep, tag="read-custom", frozen=True, gc=False, omit_defaults=True):
    """Read a tensor that lies in custom memory through the client's own pointer.

    Skipped unless the last invoke succeeded. Outputs: the tensor's value there; what the CPU has is in
    ``cpu``, as for `pytest_qnn.tflite.cases.script.Read`. Numbers: ``same`` (1: the runtime has the tensor
    there).
    """

    interpreter: str
    tensor: TensorIndex


class ReadLog(ScriptStep, tag="read-log", frozen=True, gc=False, omit_defaults=True):
    """What the delegate has said at the level INFO since the last time, as ``lines``.

    Where its calls of a QNN backend can be seen, also which tensors in custom memory it has executed by their
    handles.

    Skipped where nobody can hear it.
    """

    delegate: str


CustomStep = AllocCustom | InspectCustom | FreeCustom | AssignCustom | ReadCustom | ReadLog

Resolver = Literal["bare", "default", "reference"]
"""``bare``: the runtime's kernels without XNNPACK; ``default``: with XNNPACK, applied lazily at the first
allocate; ``reference``: the runtime's reference kernels."""
IMPOSSIBLE = 1 << 48
"""Elements of a resized input: no process has so many addresses. A Resize to so many is skipped on a runtime
that throws where it cannot allocate, and SetInputs after it on any."""
Guard = Literal["after", "before", "flush", "none"]
Wrong = Literal["", "none", "unknown"]


class MakeDelegate(ScriptStep, tag="make-delegate", frozen=True, gc=False, omit_defaults=True):
    """Make a delegate, not yet applied to anything."""

    delegate: str
    who: Literal["target", "probe"] = "target"
    position: Position = 0
    """Target: which delegate of its chain; beyond the chain's end: the last one."""
    claim: Annotated[tuple[NodeIndex, ...], Meta(max_length=MOST_NODES)] | None = None
    """As in `pytest_qnn.tflite.cases.delegate.Application`."""
    fault: Fault = ""
    """Probe only: the callback that reports failure."""
    flags: Flags = 0
    """Probe only: TfLiteDelegateFlags."""
    options: Annotated[tuple[tuple[str, str], ...], Meta(max_length=16)] = ()
    """Target only: options of a plugin, beside those of the command line."""
    without: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """Target only: keys of the command line's options that are left out. Skipped where there is no library,
    unless ``interface`` is ``own``."""
    interface: Literal["selected", "own"] = "selected"
    """Target only. ``own``: TfLiteQnnDelegateCreate, with those of the options that it takes. Skipped where
    there is no such function."""


class DestroyDelegate(ScriptStep, tag="destroy-delegate", frozen=True, gc=False, omit_defaults=True):
    """Destroy a delegate. Skipped while an interpreter is open that it was applied to (OWN-01)."""

    delegate: str


class Open(ScriptStep, tag="open", frozen=True, gc=False, omit_defaults=True):
    """Make an interpreter of ``graphs[graph]``."""

    interpreter: str
    graph: GraphIndex = 0
    resolver: Resolver = "bare"
    threads: Annotated[int, Meta(ge=1, le=8)] = 1
    preserve: bool = False
    """experimental_preserve_all_tensors: no tensor is given the memory of another one that is not read any
    more. Some runtimes let kernels work in place all the same (RT-13)."""


class Apply(ScriptStep, tag="apply", frozen=True, gc=False, omit_defaults=True):
    """ModifyGraphWithDelegate. One delegate may be applied to several interpreters, and again to one."""

    interpreter: str
    delegate: str
    spied: bool = True
    """False: nothing of the suite's stands between the runtime and the delegate, so that the thread has and
    keeps Python's lock as in a user's program. Kernels are then seen in the plan only."""


class Place(ScriptStep, tag="place", frozen=True, gc=False, omit_defaults=True):
    """SetCustomAllocationForTensor with a buffer of the tensor's size at the interpreter's input shapes.

    A buffer of this name is made if there is none; one that exists is assigned as it is (again, or to
    another tensor), whatever the fields below say. A constant, which the runtimes refuse to place, is made
    to point to a read-only copy of its contents in the buffer; it must be placed before any delegate is
    applied.

    Numbers: ``status`` of the call, ``size`` of the tensor, ``bytes`` of the buffer.
    """

    interpreter: str
    tensor: TensorIndex
    buffer: str = ""
    """Name of the buffer; empty: one that no other step can name."""
    guard: Guard = "after"
    """``after``: the end of the data lies as near to ``tail`` bytes before a page that must not be touched as
    its alignment allows; ``flush``: exactly there, whatever the alignment. ``before``: the start lies against
    such a page. All bytes between hold a pattern, and are looked at after each invoke of a kernel."""
    extra: Annotated[int, Meta(ge=-MOST_EXTRA, le=MOST_EXTRA)] = 0
    """Bytes more than the tensor needs; negative: too few."""
    misalign: Annotated[int, Meta(ge=0, le=63)] = 0
    """Bytes from a multiple of the default tensor alignment (64)."""
    readonly: bool = False
    """Whoever but the client writes to the buffer is noticed."""
    skip_alignment_check: bool = False
    """Pass kTfLiteCustomAllocationFlagsSkipAlignCheck."""
    seed: Seed = 0
    """Contents of a new buffer: `pytest_qnn.core.contents.hashed` bytes of this seed."""
    tail: Annotated[int, Meta(ge=0, le=16)] = 16
    """Bytes behind the data that a kernel may read before it meets the page of ``after`` or ``flush``."""


class Unallocate(ScriptStep, tag="unallocate", frozen=True, gc=False, omit_defaults=True):
    """From now on, tensors inside a partition, which have no memory, point to pages that must not be touched.

    They do so while a kernel is invoked; at any other time their data is NULL, as the runtime left it.
    """

    interpreter: str


class FreeBuffer(ScriptStep, tag="free-buffer", frozen=True, gc=False, omit_defaults=True):
    """Give a buffer back: from now on to touch it ends the process.

    Skipped while an open interpreter has it assigned to a tensor: that would be the client's fault.
    """

    buffer: str


class Resize(ScriptStep, tag="resize", frozen=True, gc=False, omit_defaults=True):
    """resize_tensor_input of the graph's input number ``input``."""

    interpreter: str
    input: Position
    shape: Annotated[tuple[int, ...], Meta(min_length=1, max_length=4)]
    strict: bool = False


class Allocate(ScriptStep, tag="allocate", frozen=True, gc=False, omit_defaults=True):
    """allocate_tensors."""

    interpreter: str


class SetInputs(ScriptStep, tag="set-inputs", frozen=True, gc=False, omit_defaults=True):
    """set_tensor of every input of the graph, with the contents of a seed at the present shapes."""

    interpreter: str
    seed: Seed = 0
    fill: Fill = "mixed"


class Poison(ScriptStep, tag="poison", frozen=True, gc=False, omit_defaults=True):
    """Fill the outputs of the graph that nodes produce with one byte."""

    interpreter: str
    byte: Byte = 0xEE


class Invoke(ScriptStep, tag="invoke", frozen=True, gc=False, omit_defaults=True):
    """invoke. Skipped before a successful allocate_tensors."""

    interpreter: str


class Read(ScriptStep, tag="read", frozen=True, gc=False, omit_defaults=True):
    """get_tensor of the graph's outputs, or of ``tensors``. Skipped unless the last invoke succeeded.

    After one that failed, the graph's inputs can be read all the same.
    """

    interpreter: str
    tensors: Annotated[tuple[TensorIndex, ...], Meta(max_length=64)] = ()


class Sample(ScriptStep, tag="sample", frozen=True, gc=False, omit_defaults=True):
    """set_tensor of every input, invoke, and some elements of the graph's one output, of tensors of any size.

    The contents of a seed are repeated from `pytest_qnn.tflite.cases.samples.PERIOD` elements. Outputs: where
    elements were looked at (int64), and the elements; ``cpu``: the same by the runtime's own kernels.
    Numbers: ``elements``, and how many are ``otherwise`` on the CPU. Skipped before a successful
    allocate_tensors, and of other graphs than element-wise ones without constants.
    """

    interpreter: str
    seed: Seed = 0


class RemoveAll(ScriptStep, tag="remove-all", frozen=True, gc=False, omit_defaults=True):
    """Subgraph::RemoveAllDelegates of the main subgraph."""

    interpreter: str


class HandleOutput(ScriptStep, tag="handle-output", frozen=True, gc=False, omit_defaults=True):
    """Interpreter::SetAllowBufferHandleOutput."""

    interpreter: str
    allow: bool = True


class CopyFrom(ScriptStep, tag="copy-from", frozen=True, gc=False, omit_defaults=True):
    """Call CopyFromBufferHandle of the delegate that an output of the graph belongs to.

    Beforehand the data of the tensor is filled with a byte. Skipped where the tensor has no buffer handle.
    Numbers: ``handle``, ``status``, ``untouched`` (bytes that two copies over different fills left alone; 0
    with ``wrong``: 1 if nothing was written), ``other`` (a tensor at the border of the graph that has changed
    besides, -1: none).
    """

    interpreter: str
    output: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Position in the graph's outputs."""
    wrong: Wrong = ""
    """Pass kTfLiteNullBufferHandle, or a number that is no tensor's handle."""


class CopyTo(ScriptStep, tag="copy-to", frozen=True, gc=False, omit_defaults=True):
    """Call CopyToBufferHandle of the delegate that an output of the graph belongs to, and copy back.

    The tensor's data is copied from the buffer, changed in every element to a small number, copied to the
    buffer, changed again, and copied from the buffer. Skipped where the tensor has no buffer handle or its
    delegate not both functions, for types but FLOAT32, INT32 and INT8, and where a copy back fails.
    Numbers: ``handle``, ``status`` (of CopyToBufferHandle), ``lost`` (elements that did not come back),
    ``shared`` (all are as they were changed last: the buffer is the tensor's own memory).
    """

    interpreter: str
    output: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Position in the graph's outputs."""


class Profile(ScriptStep, tag="profile", frozen=True, gc=False, omit_defaults=True):
    """SetProfiler, with one that counts.

    Each later Invoke has the numbers ``operator`` (events of the runtime's, one for each node), ``delegate``
    (of a delegate's own, one for each of its operators).
    """

    interpreter: str


class Cancel(ScriptStep, tag="cancel", frozen=True, gc=False, omit_defaults=True):
    """SetCancellationFunction, with one that says yes when it is asked for the time number ``at``, and later.

    Each later Invoke has the number ``asked``: how often it was asked.
    """

    interpreter: str
    at: Annotated[int, Meta(ge=-1, le=1 << 16)] = -1
    """From 0; -1: it never says yes."""


class PassToConstructor(ScriptStep, tag="pass-to-constructor", frozen=True, gc=False, omit_defaults=True):
    """Give a delegate to an interpreter's constructor (experimental_delegates), then keep it nowhere else.

    Numbers: ``kept``: the object lives while the interpreter does; ``released``: no longer than that.
    """

    delegate: str
    graph: GraphIndex = 0


class Unload(ScriptStep, tag="unload", frozen=True, gc=False, omit_defaults=True):
    """dlclose the library of one of the target's delegates until it is gone; the next MakeDelegate loads it.

    Skipped while there is a delegate of it, and for what is no library. Numbers: ``unloaded``, 0 if the
    library asks the loader to keep it.
    """

    position: Position = 0
    """As in MakeDelegate."""


class Close(ScriptStep, tag="close", frozen=True, gc=False, omit_defaults=True):
    """Destroy an interpreter."""

    interpreter: str


Least = Annotated[int, Meta(ge=0, le=1 << 30)]


class Kept(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The least that each turn of the longest repetition so far has left, so that a step is worth its time.

    Of `MeasureCounts`, from the first Measure to the last so far; one number that has grown by so much is
    enough. 0: it does not count. Where one such step was not worth its time, no later one is.
    """

    pair: bool = False
    """What counts is by how much more a number has grown between the second and the third Measure than
    between the first two, for each turn that the longest repetition has more than the shortest. Delegates in
    memory of an allocator of their own, whose pages come now and then, are taken to keep enough."""

    malloc: Least = 0
    fds: Least = 0
    threads: Least = 0
    mappings: Least = 0
    virtual: Least = 0
    arena: Least = 0


class Measure(ScriptStep, tag="measure", frozen=True, gc=False, omit_defaults=True):
    """After a garbage collection, count what the process holds.

    Numbers: ``malloc`` (bytes in use, mallinfo2), ``fds``, ``threads``, ``mappings``, ``virtual`` (bytes).
    """

    like: int = -1
    """Position of an earlier Measure: threads have a second to end, until there are no more than it found."""
    waits: bool = False
    """Threads and descriptors beyond those of the Measure before have a second to go, as a worker's do."""
    where_kept: Kept | None = None
    """Not carried out where nothing of this was kept; as in Repeat."""


class Refuse(ScriptStep, tag="refuse", frozen=True, gc=False, omit_defaults=True):
    """During the next step one request of the target for a resource is refused by the system.

    That step is MakeDelegate of the target, Apply, Allocate, Invoke or DestroyDelegate; before any other one
    nothing is refused. What the runtime, the suite and its probes ask for is never refused. Numbers: the
    requests during that step that were ``asked`` and ``refused``. Skipped where nothing here can refuse what
    the target asks for.
    """

    what: Resource = "any"
    nth: Annotated[int, Meta(ge=0, le=1000)] = 1
    """The request that is refused, counted from 1, and around if the same kind of step was counted before: of
    three, the fourth is the first. 0: none is, and they are counted."""
    lasting: bool = False
    """So is every one after it, until the step is over."""


PlainStep = (
    MakeDelegate
    | DestroyDelegate
    | Open
    | Apply
    | Place
    | Unallocate
    | FreeBuffer
    | Resize
    | Allocate
    | SetInputs
    | Poison
    | Invoke
    | Read
    | Sample
    | RemoveAll
    | HandleOutput
    | CopyFrom
    | CopyTo
    | Profile
    | Cancel
    | PassToConstructor
    | Unload
    | Close
    | Measure
    | Refuse
    | CustomStep
)


class Repeat(ScriptStep, tag="repeat", frozen=True, gc=False, omit_defaults=True):
    """The steps, ``times`` times. The trace keeps what the first and the last time gave."""

    times: Annotated[int, Meta(ge=1, le=MOST_PERFORMED)]
    steps: tuple[PlainStep, ...]
    where_kept: Kept | None = None
    """Not carried out where nothing of this was kept, which the first step that asks decides for all."""


class Parallel(ScriptStep, tag="parallel", frozen=True, gc=False, omit_defaults=True):
    """Each branch on a thread of its own, started together by a barrier; the step ends with the last one."""

    branches: Annotated[tuple[tuple[PlainStep | Repeat, ...], ...], Meta(min_length=1, max_length=16)]


AnyScriptStep = PlainStep | Repeat | Parallel


class ScriptCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Steps on interpreters of the graphs."""

    graphs: Annotated[tuple[Graph, ...], Meta(min_length=1, max_length=MOST_GRAPHS)]
    steps: tuple[AnyScriptStep, ...]
    watch: bool = False
    """Record every write of a kernel outside its own outputs (slower)."""
    buffers: bool = False
    """Record buffer handles, and calls of the functions for them."""
    ends: bool = False
    """After the last step the process ends in good order, by exit(3): what is live then stays live."""
    history: History | None = None
    """What is done in the process before; `History.warm` is of no concern."""
    edits: Annotated[tuple[AnyEdit, ...], Meta(max_length=16)] = ()
    """Of the file of the first graph."""


def flat(steps: Iterable[AnyScriptStep]) -> tuple[AnyScriptStep, ...]:
    """Every step in the order of its number; those inside a step follow it."""
    found: list[AnyScriptStep] = []
    for step in steps:
        found.append(step)
        if isinstance(step, Repeat):
            found += step.steps
        elif isinstance(step, Parallel):
            for branch in step.branches:
                found += flat(branch)
    return tuple(found)


def needs_child(case: ScriptCase) -> bool:
    """Whether a faulty delegate is likely to end the process.

    Tensors have memory of their own, or none, or a library's code goes away, or a model cannot be trusted, or
    the system refuses what is asked for.
    """
    return any(map(may_end, case.edits)) or any(
        isinstance(step, Place | Unallocate | Unload | Refuse)
        or (isinstance(step, Resize) and 0 in step.shape)
        for step in flat(case.steps)
    )


def without_guards(case: ScriptCase) -> ScriptCase:
    """The case with every misaligned buffer as misaligned as it is, and no page that must not be touched.

    The case itself, if it has no such buffer.
    """
    return _with_places(case, _unguarded) if any(map(_is_misaligned, flat(case.steps))) else case


def aligned(case: ScriptCase) -> ScriptCase:
    """The case with every buffer at a multiple of the default tensor alignment."""
    return _with_places(case, lambda place: msgspec.structs.replace(place, misalign=0))


def without_delegates(case: ScriptCase) -> ScriptCase:
    """The case with nothing that makes, applies or destroys a delegate."""
    steps = tuple(step for step in case.steps if not isinstance(step, MakeDelegate | Apply | DestroyDelegate))
    return msgspec.structs.replace(case, steps=steps)


def without_edges(case: ScriptCase) -> ScriptCase:
    """The case without control edges in the metadata of its models; the case itself, if there are none."""
    edits = tuple(edit for edit in case.edits if not isinstance(edit, StatedEdges))
    if all(graph.control_edges is None for graph in case.graphs) and edits == case.edits:
        return case
    graphs = tuple(msgspec.structs.replace(graph, control_edges=None) for graph in case.graphs)
    return msgspec.structs.replace(case, graphs=graphs, edits=edits)


def _is_misaligned(step: AnyScriptStep) -> bool:
    return isinstance(step, Place) and (step.guard == "flush" or step.misalign > 0)


def _unguarded(place: Place) -> Place:
    # How far a flush buffer is from a multiple of the alignment depends on the tensor's size: 4 is as bad.
    misalign = 4 if place.guard == "flush" else place.misalign
    return msgspec.structs.replace(place, guard="none", misalign=misalign, readonly=False)


def _with_places(case: ScriptCase, change: Callable[[Place], Place]) -> ScriptCase:
    def walk(step: AnyScriptStep) -> AnyScriptStep:
        if isinstance(step, Repeat):
            return msgspec.structs.replace(step, steps=tuple(map(walk, step.steps)))
        if isinstance(step, Parallel):
            branches = tuple(tuple(map(walk, branch)) for branch in step.branches)
            return msgspec.structs.replace(step, branches=branches)
        return change(step) if isinstance(step, Place) else step

    return msgspec.structs.replace(case, steps=tuple(map(walk, case.steps)))
