"""What was seen of delegates, as immutable data. It crosses processes as MessagePack."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from pytest_qnn.core.evidence import ControlChange
from pytest_qnn.core.target import Death
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.facts import DelegateFacts

EventKind = Literal["Prepare", "init", "prepare", "invoke", "free"]
"""A callback: Prepare of a delegate, the others of a kernel."""
During = Literal["Prepare", "init", "prepare", "invoke"]
"""The callback that was at work."""
Changed = Literal["inputs", "outputs", "dims", "type", "data"]
"""``inputs``, ``outputs`` of a node, ``dims``, ``type``, ``data`` of a tensor."""
Pointed = Literal["code", "memory", "nothing"]
"""What a pointer shows."""
FunctionKind = Literal["null", "code", "no code"]
BufferCallKind = Literal["from", "to", "free"]
"""CopyFromBufferHandle, CopyToBufferHandle, FreeBufferHandle."""
TouchReason = Literal["outside", "constant", "given-back", "unallocated"]
"""``outside``: beside the data of a placed tensor; ``constant``: the contents of a constant, or of a buffer
placed as read-only; ``given-back``: a buffer that was given back; ``unallocated``: the data of a tensor
inside a partition, which has no memory."""
NOT_REACHED = "not reached"
"""`ScriptSeen.skipped` of a step that was not come to."""
NOT_REPORTED = "and reported no error"
"""How the message ends of a create that returned NULL without a word."""
Access = Literal["read", "write", "access"]
"""``access``: one of the two."""


class PlanNode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node of an execution plan as read from the runtime."""

    index: int
    op: int
    """TfLiteBuiltinOperator; 51 is a delegate's kernel."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    owner: int
    """Position in `DelegateTrace.applied` of the delegate that owns the node; -1: the CPU."""
    name: str = ""
    """custom_name of a kernel's registration."""


class Replace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A ReplaceNodeSubsetsWithDelegateKernels call by a delegate's Prepare."""

    nodes: tuple[int, ...]
    """As passed: order and duplicates kept."""
    status: int
    tail: tuple[tuple[str, int, Pointed], ...] = ()
    """(member, value, what it shows) of the registration's last three
    members (registration_external, async_kernel, inplace_operator), where not zero."""
    subgraph: int = 0
    """On which one, as in `Kernel.subgraph`."""


class Kernel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A partition as its kernel's init received it (TfLiteDelegateParams)."""

    application: int
    kernel: int
    """Number of the kernel in this trace, from 0, in the order of init."""
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraph: int = 0
    """Where it is: 0 is the main graph; others count in the order in which they were first prepared, which is
    that of the model."""


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback, in order."""

    kind: EventKind
    application: int
    kernel: int
    """-1 for Prepare, and for a free of user data that no init returned."""
    status: int = 0
    subgraph: int = 0
    """Prepare: which one was prepared, as in `Kernel.subgraph`."""


class SubgraphCall(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call of AcquireSubgraphContext or ReleaseSubgraphContext by a delegate's Prepare."""

    application: int
    subgraph: int
    """The one that was prepared, as in `Kernel.subgraph`."""
    index: int
    """The one that was asked for."""
    acquire: bool
    status: int


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A kernel changed memory that is not its output."""

    application: int
    kernel: int
    tensor: int
    offset: int
    """First changed byte."""
    is_input: bool


class Call(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback called a function of the context that it was refused, or must not call."""

    application: int
    kernel: int
    """-1: Prepare, or an init."""
    during: During
    function: str
    """Member of TfLiteContext."""


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A callback changed what it must not."""

    application: int
    kernel: int
    during: During
    what: Changed
    index: int
    """The node's or tensor's."""
    before: str
    after: str


class Name(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """custom_name of a registration that was passed to Replace."""

    application: int
    text: str
    """At that call; empty: NULL or no text."""
    later: str
    """After the last invoke."""


class Report(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A text given to TfLiteContext.ReportError while a callback was at work (its format, not filled in)."""

    application: int
    kernel: int
    during: During
    text: str


class Asked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A delegate's own call of PreviewDelegatePartitioning."""

    application: int
    nodes: tuple[int, ...]
    made: int
    """Kernels that its Prepare had made by then."""


class Preview(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What PreviewDelegatePartitioning says right before a Replace with the same nodes."""

    application: int
    status: int
    partitions: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]
    """(nodes, inputs, outputs) of each."""
    kernels: int
    """Kernels that there were before the Replace."""


class Added(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A kernel's prepare or invoke was over, and the graph had so many tensors more than before it."""

    kernel: int
    during: During
    count: int


class Spied(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What was seen because the case asked for it (`DelegateCase.look`, `Application.refused`)."""

    refused: tuple[Call, ...] = ()
    """Calls that were answered with an error because the case says so."""
    forbidden: tuple[Call, ...] = ()
    """``forbidden``: calls, in a kernel's prepare or invoke, of functions for a delegate's Prepare only."""
    changes: tuple[Change, ...] = ()
    """``graph``: what Prepare changed; ``data``: data that a kernel's prepare changed."""
    looked_at: int = 0
    """``graph``, ``data``: nodes and tensors compared."""
    names: tuple[Name, ...] = ()
    names_again: tuple[str, ...] = ()
    """The texts of a second time (`DelegateCase.again`: ``interpreter``)."""
    reports: tuple[Report, ...] = ()
    stale: tuple[Call, ...] = ()
    """``lent``: calls with an index from an execution plan that a later GetExecutionPlan had made invalid."""
    plans: int = 0
    """``lent``: execution plans that the target asked for."""
    plans_invalidated: int = 0
    """``lent``: of them, those that a later GetExecutionPlan made invalid before the last invoke."""
    nodes_invalidated: int = 0
    """``lent``: TfLiteNodes that the target asked for, which became invalid at the end of Prepare."""
    previews_invalidated: int = 0
    """``lent``: partitions that the target previewed, which became invalid at the end of Prepare."""
    previews: tuple[Preview, ...] = ()
    asked: tuple[Asked, ...] = ()
    """``previews``, ``lent``: in order."""
    added: tuple[Added, ...] = ()
    """``tensors``: of each prepare and invoke of the target's kernels."""
    order: tuple[tuple[int, ...], ...] = ()
    """``order``: applications of the delegates in force, in the runtime's order: after the last application,
    after allocate, and after each redo."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """One delegate's application."""

    name: str
    is_target: bool
    step: int
    """Position in `DelegateCase.applications`."""
    ok: bool
    """ModifyGraphWithDelegate succeeded."""
    message: str
    plan_seen: tuple[PlanNode, ...]
    """The plan as the delegate's Prepare could read it; empty when Prepare was not called."""
    prepared: bool
    """Prepare was called."""
    prepare_status: int
    replaces: tuple[Replace, ...]
    plan_after: tuple[PlanNode, ...]

    def claims(self) -> tuple[tuple[int, ...], ...]:
        """What each Replace claimed of the main graph; calls with no node are left out: they do nothing."""
        return tuple(one.nodes for one in self.replaces if one.nodes and not one.subgraph)


class BaselineRun(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the target did on the other interpreter of a case with `DelegateCase.baseline`."""

    claim: tuple[int, ...]
    """Nodes of the graph, ascending."""
    kernels: tuple[tuple[int, ...], ...]
    """Per kernel, in the order of init: its nodes."""


class HeapSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the target asked for while its heap was checked (`pytest_qnn.isolation.host.checked_heap`)."""

    blocks: int = 0
    mappings: int = 0
    """That it unmapped."""
    lacking: str = ""
    """Why nothing could be checked."""


class DelegateTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `DelegateCase`."""

    plan_before: tuple[PlanNode, ...] = ()
    applied: tuple[Applied, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    events: tuple[Event, ...] = ()
    plan: tuple[PlanNode, ...] = ()
    """The plan at the time of invoke."""
    allocate_error: str = ""
    unallocated: str = ""
    """Why the inputs could not be set: LiteRT 2.3 gives a graph no memory at all that one delegate takes as a
    whole with kTfLiteDelegateFlagsHintFullyDelegatedToSingleDelegate (RT-07). Nothing is invoked then."""
    invoke_errors: tuple[str, ...] = ()
    """Per invoke: the exception's text, empty for success."""
    inputs: tuple[Array, ...] = ()
    outputs: tuple[tuple[Array, ...], ...] = ()
    """Per invoke, in the order of `Graph.outputs`."""
    inputs_after: tuple[Array, ...] = ()
    """Graph inputs as they read after the last invoke."""
    cpu: tuple[Array, ...] = ()
    """The outputs of the same graph on the runtime's own kernels, no delegate."""
    writes: tuple[Write, ...] = ()
    baseline: BaselineRun | None = None
    """None: not asked for, or an application failed there."""
    again: tuple[tuple[Array, ...], ...] = ()
    """Outputs of the second time, as ``outputs`` (`DelegateCase.again`)."""
    spied: Spied = Spied()
    observed: bool = True
    """False: the canary did not hold, so plans and kernels could not be read."""
    past: str = ""
    """What went wrong before the case, in its `pytest_qnn.tflite.cases.history.History`."""
    control_words: tuple[ControlChange, ...] | None = None
    """What phases of the case, or loading the library, have changed; None: it was not watched."""
    heap: HeapSeen | None = None
    """None: the case did not ask for it, or came to no end."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""


class ScriptCounts(msgspec.Struct, frozen=True, gc=False, tag_field="of", omit_defaults=True):
    """Numbers that the steps of one family leave; the tag ``of`` names the family."""


class CallbackCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="callbacks"):
    """Of `Repeat` and `Parallel`."""

    by_kind: dict[EventKind, int] = {}
    failed: tuple[int, ...] = ()
    """Applications of which a callback failed, in any round."""


class MeasureCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="measure"):
    """Of `Measure`: what the process has."""

    fds: int = 0
    mappings: int = 0
    threads: int = 0
    virtual: int = 0
    """Bytes of address space."""
    malloc: int | None = None
    """Bytes that malloc has given out; None: it cannot be asked."""
    arena: int | None = None
    """Resident bytes of the target's own allocator, where its delegate is in such memory."""
    full: bool = False
    """All of that mapping was resident when the delegate was made: nothing shows what of it is in use."""


class PlaceCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="place"):
    """Of `Place` and `AssignCustom`."""

    status: int = 0
    size: int = 0
    """Bytes of the tensor."""
    bytes: int = 0
    """Bytes of the buffer."""


class RemoveCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="remove"):
    """Of `RemoveAll`."""

    status: int = 0


class OutputCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="output"):
    """Of `HandleOutput`."""

    before: bool = False
    """What was allowed before."""


class CopyCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="copy"):
    """Of `CopyFrom`."""

    handle: int = 0
    status: int = 0
    untouched: int = 0
    """Bytes of the tensor that the copy did not write; of a wrong handle 1 if it wrote none, else 0."""
    other: int = -1
    """An input or output of the graph that changed beside it."""


class CopyToCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="copy-to"):
    """Of `CopyTo`."""

    handle: int = 0
    status: int = 0
    elements: int = 0
    lost: int = 0
    """Elements that did not come back from the buffer as they were copied to it."""
    shared: bool = False
    """All are as they were changed last: the buffer is the tensor's own memory, and no copy can be seen."""


class InvokeCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="invoke"):
    """Of an `Invoke` after `Profile` (the first two) or `Cancel`; None: there was no such step."""

    operator: int | None = None
    """Events of the runtime's, one for each node."""
    delegate: int | None = None
    """Events of a delegate's own, one for each of its operators."""
    asked: int | None = None
    """How often the cancellation function was asked."""


class LentCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="lent"):
    """Of `PassToConstructor`."""

    kept: bool = False
    """The delegate's Python object was alive while the interpreter was."""
    released: bool = False
    """It was gone after the interpreter."""


class UnloadCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="unload"):
    """Of `Unload`."""

    unloaded: bool = False


class AllocCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="alloc"):
    """Of `AllocCustom`."""

    pointer: int = 0
    offset: int = 0
    """Bytes behind a multiple of the alignment."""
    usable: bool = False
    """Every byte can be read and written, and keeps what is written."""
    shared: bool = False
    """All of it is in shared mappings."""
    overlaps: bool = False
    """A byte of it belongs to another allocation."""


class InspectCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="inspect"):
    """Of `InspectCustom`: as `AllocCounts`, but ``usable`` does not mean that the contents are ``kept``."""

    usable: bool = False
    shared: bool = False
    kept: bool = False


class ReadCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="read"):
    """Of `ReadCustom`."""

    same: bool = True
    """The runtime has the tensor at the client's pointer; True where plans cannot be read."""


class LogCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="log"):
    """Of `ReadLog`, where the delegate's calls of its QNN backend are seen."""

    executed: tuple[int, ...] = ()
    """Tensors in custom memory that is registered, and whose handle an execute has used."""


class RefusedCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="refused"):
    """Of `Refuse`: requests of the target during the step behind it."""

    asked: int = 0
    refused: int = 0
    nth: int = 0
    """The one that was to be refused."""
    thrown: bool = False
    """std::bad_alloc left the delegate, and the runtime's Python interface has caught it."""


class SampleCounts(ScriptCounts, frozen=True, gc=False, omit_defaults=True, tag="sample"):
    """Of `Sample`: elements of the output, and how many of them are not the CPU's."""

    elements: int = 0
    otherwise: int = 0


AnyScriptCounts = (
    CallbackCounts
    | MeasureCounts
    | PlaceCounts
    | RemoveCounts
    | OutputCounts
    | CopyCounts
    | CopyToCounts
    | InvokeCounts
    | LentCounts
    | UnloadCounts
    | AllocCounts
    | InspectCounts
    | ReadCounts
    | LogCounts
    | RefusedCounts
    | SampleCounts
)
ScriptCountsT = TypeVar("ScriptCountsT", bound=ScriptCounts)


class ScriptSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one step of a `ScriptCase` gave; of a repeated step, the last time."""

    ok: bool = True
    message: str = ""
    """The text of the error, where the step ended in one."""
    outputs: tuple[Array, ...] = ()
    """Read: what was read. SetInputs: what was set."""
    cpu: tuple[Array, ...] = ()
    """Read: the same tensors on a fresh interpreter of the runtime's own kernels, without any delegate, with
    the shapes and inputs of the last invoke. Empty where inputs were never set, or the runtime refuses."""
    counts: AnyScriptCounts | None = None
    """Numbers of the step's family; None: it left none."""
    skipped: str = ""
    """Why the step was not carried out (an object it needs does not exist)."""
    lines: tuple[str, ...] = ()
    """ReadLog: what the delegate said."""
    first: ScriptSeen | None = None
    """Of a step repeated more than once: what the first time gave."""

    def counted(self, kind: type[ScriptCountsT]) -> ScriptCountsT:
        """The numbers of the step's family; as `kind` has them by default where it left none.

        Raises:
            TypeError: the step is of another family.
        """
        if self.counts is None:
            return kind()
        if not isinstance(self.counts, kind):
            raise TypeError(f"the step left {type(self.counts).__name__}, not {kind.__name__}")
        return self.counts


class Handled(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A tensor at a kernel's boundary, right before an invoke (an input) or right after it (an output)."""

    kernel: int
    tensor: int
    is_input: bool
    handle: int
    """TfLiteTensor.buffer_handle; -1: none."""
    stale: bool
    """TfLiteTensor.data_is_stale."""
    owned: bool
    """TfLiteTensor.delegate is the delegate of the kernel."""
    written: bool = False
    """An output: the invoke has changed its data."""


class BufferCall(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call of one of a delegate's functions for buffer handles, by the runtime or by a step."""

    kind: BufferCallKind
    application: int
    handle: int
    tensor: int
    """-1: none (free), or none of the main graph's."""
    status: int
    """free: the handle as it is afterwards."""
    step: int


class BufferFunctions(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which of the functions for buffer handles a delegate's struct has."""

    copy_from: bool
    copy_to: bool
    free: bool


class InterpreterSeen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One interpreter of a `ScriptCase`, from its Open to its end.

    Of interpreters that a Repeat opens, those of the first and last time are kept; of other interpreters'
    events in a Repeat, those of the first and last time.
    """

    name: str
    graph: int
    opened: int
    """Number of the Open step."""
    round: int = 0
    """Which time of a Repeat."""
    plan_before: tuple[PlanNode, ...] = ()
    applied: tuple[Applied, ...] = ()
    """`Applied.step` is the number of the Apply step; `Applied.name` the delegate's specification."""
    delegates: tuple[str, ...] = ()
    """By application: the name that the script gave to the delegate."""
    kernels: tuple[Kernel, ...] = ()
    kernel_steps: tuple[int, ...] = ()
    """By kernel: number of the step during which it was made."""
    events: tuple[Event, ...] = ()
    event_steps: tuple[int, ...] = ()
    """By event: number of the step during which it happened; the number of steps: while all was closed."""
    event_rounds: tuple[int, ...] = ()
    """By event: which time of a Repeat."""
    plans: tuple[tuple[int, tuple[PlanNode, ...]], ...] = ()
    """(number of a step, the plan after it) for each step after which the plan had changed."""
    writes: tuple[Write, ...] = ()
    flags: tuple[tuple[int, ...], ...] = ()
    """By application: TfLiteDelegate.flags before and after each of its Prepare, repetitions left out."""
    subgraph_calls: tuple[SubgraphCall, ...] = ()
    """Only of graphs that have subgraphs."""
    handled: tuple[Handled, ...] = ()
    """In order; only with `ScriptCase.buffers`, as the next two."""
    buffer_calls: tuple[BufferCall, ...] = ()
    functions: tuple[BufferFunctions, ...] = ()
    """By application."""


class Touch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Memory was touched that must not be."""

    why: TouchReason
    access: Access
    interpreter: str
    tensor: int
    """-1: bytes of the model that belong to no tensor."""
    offset: int
    """First byte concerned, from the start of the tensor's data (or of the model)."""
    size: int
    """Bytes of the tensor's data."""
    step: int
    """Number of the step during which it was noticed."""
    application: int = -1
    """Whose callback was at work, as in `InterpreterSeen.applied`; -1: nobody's."""
    kernel: int = -1
    """The kernel whose prepare or invoke it was."""


class ScriptTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `ScriptCase`."""

    steps: tuple[ScriptSeen, ...] = ()
    """By number of the step (`pytest_qnn.tflite.cases.script.flat`)."""
    interpreters: tuple[InterpreterSeen, ...] = ()
    """In the order of opening."""
    touches: tuple[Touch, ...] = ()
    """At most a hundred."""
    order_lost: bool = False
    """The process died of the runtime's own defect RT-05 (docs/reference/runtimes.md), control edges used on
    a plan that a delegate has shortened: nothing else was seen."""
    died_alone: bool = False
    """The process died of a hostile model, and does so without any delegate too: nothing else was seen."""
    misaligned: bool = False
    """The process died, and without guard pages it does too: the buffers' alignment is the cause. Nothing
    else is in the trace then."""
    observed: bool = True
    """False: the canary did not hold, so plans and kernels could not be read."""
    ended: bool = False
    """The process ended in good order after the last step, as the case asked for."""
    past: str = ""
    """What went wrong before the case, in its `pytest_qnn.tflite.cases.history.History`."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""


class LibrarySeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a plugin library says of itself, read from its ELF file."""

    exports: tuple[str, ...] = ()
    """Those of its defined dynamic symbols that rules ask about: the interface's two functions, also under
    names that C++ made of them, and names that are TensorFlow Lite's own."""
    undefined: tuple[str, ...] = ()
    """Its undefined dynamic symbols (weak ones left out) that name TensorFlow Lite's functions."""
    load_error: str = ""
    """What the loader said when every symbol had to be found at once; empty: it was loaded."""


class StructSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A TfLiteDelegate as its 56 bytes read; pointers as code, data or nothing."""

    functions: dict[str, FunctionKind] = {}
    """Prepare, CopyFromBufferHandle, CopyToBufferHandle, FreeBufferHandle."""
    flags: int = 0
    builder: Literal["null", "valid", "invalid", "unreadable"] = "null"
    """opaque_delegate_builder: ``null``, ``valid`` (memory with code or nothing in its function members and
    code in its Prepare), ``invalid``."""
    builder_flags: int = 0


class ArgumentTouch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An access behind what a create was given."""

    what: str
    """``keys``, ``values``, ``key 0``, ``value 0``, ..."""
    access: Access
    behind: int
    """Bytes from the end to the first one that was touched."""


class PluginSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one step of a `PluginCase` gave."""

    skipped: str = ""
    """Why the step was not carried out."""
    made: bool | None = None
    """Create and Copy: a delegate was returned."""
    reports: tuple[str, ...] = ()
    """Texts given to this create's own report_error before it returned."""
    late: tuple[str, ...] = ()
    """Texts given, during this step, to a report_error whose create had returned."""
    modified: tuple[str, ...] = ()
    """Create: what it changed of the arrays it was given."""
    touched: tuple[ArgumentTouch, ...] = ()
    """Accesses, during this step, behind arrays and texts of creates that are guarded; the first of each."""
    struct: StructSeen | None = None
    error: str = ""
    """Apply: what failed; Copy: what the loader said."""
    claimed: tuple[int, ...] = ()
    """Apply: the graph's nodes that have left the plan."""
    outputs: tuple[Array, ...] = ()
    operators: tuple[bool, ...] = ()
    """Apply, of an opaque delegate: for each registration passed to Replace, whether it had a
    registration_external."""
    times: int = 0
    """Cycle: delegates in each quarter; fewer than asked for where each takes long."""
    in_use: tuple[int, ...] = ()
    """Cycle: bytes in use by malloc after each quarter."""
    mapped: tuple[int, ...] = ()
    """Cycle: bytes of address space after each quarter."""
    arena: tuple[int, ...] = ()
    """Cycle: resident bytes of the library's own allocator after each quarter, where its delegate is in such
    memory."""
    full: bool = False
    """Cycle: all of that memory was resident when a delegate was made: nothing shows what of it is in use."""


class PluginTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `PluginCase`."""

    missing: str = ""
    """Why the delegate has no plugin interface."""
    library: LibrarySeen = LibrarySeen()
    steps: tuple[PluginSeen, ...] = ()
    cpu: tuple[Array, ...] = ()
    """The graph's outputs on the runtime's own kernels."""
    past: str = ""
    """What went wrong before the case, in its `pytest_qnn.tflite.cases.history.History`."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""


class CellSeen(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What became of one cell of the input domain."""

    outcome: Literal["none", "refused", "left", "undone", "computed", "failed", "died", "unknown"]
    """``none``: there is no such model; ``refused``: by the runtime itself, also without a delegate;
    ``left``: to the CPU; ``undone``: its application failed, and the runtime went on without it; ``failed``:
    only with the delegate; ``died``: the process did, with the delegate at work; ``unknown``: not tried."""
    reason: str = ""
    """Of what is neither left nor computed; of what is computed and wrong: why the CPU cannot compute it."""
    outputs: tuple[Array, ...] = ()
    """The delegate's."""
    cpu: tuple[Array, ...] = ()
    """The CPU's, where the delegate's are not what is expected."""


class DomainTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `pytest_qnn.tflite.cases.domain.DomainCase`."""

    cells: tuple[CellSeen, ...] = ()
    """In the order of the case."""
    deaths: tuple[tuple[int, Death], ...] = ()
    """Of cells in which the process died, by their number."""
    witnesses: tuple[tuple[Cell, CellSeen], ...] = ()
    """Where some of the case's are not as expected: others, of which strategies draw the like; see
    `pytest_qnn.tflite.cases.drawn_cells`."""
    past: str = ""
    """Empty: such a case has no history."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""


DELEGATE = 51
"""TfLiteBuiltinOperator of a delegate's kernel."""
