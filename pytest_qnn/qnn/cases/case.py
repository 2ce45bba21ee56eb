"""MemoryCase: a sequence of QNN and rpcmem calls with symbolic names, as immutable data.

Every object is named by the step that makes it (``c0``, ``b0``, ``h0``, ``g0``); a later step may use the
name while the object lives, after it was freed (a stale reference) or never made (unknown). Two names
are reserved everywhere: ``NULL`` and ``BOGUS`` (a value that no target has handed out). Of memory handles
there is a third, ``MAPPED``: the address of memory of the client's own, which is registered nowhere.

The session (getProviders, logCreate, backendCreate, deviceCreate) is opened by the runner before the
first step that needs it, and closed in the reverse order after the last step; its codes are in the trace.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from pytest_qnn.core.target import Resource
from pytest_qnn.qnn.abi.codes import LogLevel
from pytest_qnn.qnn.cases.arguments import Argument, PointedCall
from pytest_qnn.qnn.cases.misuses import Misused

MOST_STEPS = 400
MOST_PARTS = 64
"""Descriptors, handles, bindings, dimensions: per step."""
MOST_TOUCHED = 1 << 28
"""Bytes that the steps write and read, in all."""
MOST_TERMS = 16
"""Inputs of one graph: a sum of so many FLOAT_32 contents (`contents.py`) is exact in a float16."""
MOST_NEEDED = 1 << 24
"""Largest buffer, in bytes, that is made because a context asks for it, and the most beside what it asks."""
MOST_BESIDE = 1 << 20
"""Bytes before a piece of a binary in its memory."""
MOST_ROUNDS = 20_000
MOST_THREADS = 16
MOST_CALLS = 8
"""Asynchronous executes of one step."""
MOST_AHEAD = 2
"""Contexts before the last of a list."""
MOST_OFFSET = 1 << 40
"""Bytes before what a client writes."""
INT_MAX = (1 << 31) - 1
"""Largest size that rpcmem_alloc's int can carry."""
# Bounds of single fields stand in their types: msgspec checks them where a case is read, in a file's words.
# It takes no bound beyond 63 bits: numbers of 64 bits, and what two fields say together, are in `valid.py`.
U32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
I32 = Annotated[int, Meta(ge=-INT_MAX - 1, le=INT_MAX)]
Size = Annotated[int, Meta(ge=0, le=INT_MAX)]
Part = Annotated[int, Meta(ge=0, le=MOST_PARTS)]
Parts = Annotated[tuple[Part, ...], Meta(max_length=MOST_PARTS)]
Numbers = Annotated[tuple[U32, ...], Meta(max_length=MOST_PARTS)]
Names = Annotated[tuple[str, ...], Meta(max_length=MOST_PARTS)]
Shape = Annotated[tuple[Annotated[int, Meta(ge=1, le=MOST_TOUCHED)], ...], Meta(min_length=1, max_length=8)]

QnnDType = Literal["UFIXED_POINT_8", "FLOAT_32"]
QnnOp = Literal["ElementWiseAdd", "ElementWiseMultiply", "ElementWiseSubtract", "Relu", "Reshape"]


class Step(msgspec.Struct, frozen=True, gc=False, tag_field="do", omit_defaults=True):
    """One call. The tag ``do`` names it in JSON."""


class ContextWithCallback(Step, tag="context-with-callback", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_createFromBinaryWithCallback, of a copy of the binary that lives as long as the case."""

    context: str
    binary: str
    memory: Literal["dma", "raw"] = "dma"
    """Qnn_ContextBinaryCallbackType_t: pieces in rpcmem buffers, with their fds, or in memory without one."""
    fails: Size = 0
    """The request, counted from 1, that is answered with 1002 and no memory; 0: none is."""
    start: Annotated[int, Meta(ge=0, le=MOST_BESIDE)] = 0
    """dataStartOffset: bytes before each piece in its memory, 0xA5 as well."""
    defer: bool | None = None
    """As in `ContextCreate`."""


class Pieces(Step, tag="pieces", frozen=True, gc=False, omit_defaults=True):
    """The client's account for ``context``, as it stands now. Nothing is called."""

    context: str


PieceStep = ContextWithCallback | Pieces

FREED = "FREED"
"""Of anything but a context, a graph or an error code: one of its own is made and freed first. Memory is
registered in a context of the case for it, and an event is that of an execute of a graph of the case."""


class Interface(Step, tag="interface", frozen=True, gc=False, omit_defaults=True):
    """QnnInterface_getProviders, and then a look at every byte of the first interface that is listed."""


class Version(Step, tag="version", frozen=True, gc=False, omit_defaults=True):
    """QnnBackend_getApiVersion or QnnBackend_getBuildId. No session is opened for it."""

    call: Literal["api", "build"] = "api"
    null: bool = False
    """The out pointer is NULL."""


class Message(Step, tag="message", frozen=True, gc=False, omit_defaults=True):
    """QnnError_getMessage."""

    error: int
    null: bool = False
    """The out pointer is NULL."""


class Misuse(Step, tag="misuse", frozen=True, gc=False, omit_defaults=True):
    """One call on ``handle``: ``NULL``, ``BOGUS``, `FREED`, or the name of an object that is gone.

    Every other argument is as good as it can be (`pytest_qnn.qnn.rules.iface.codes` has where it cannot).
    What a
    call that succeeds nevertheless makes is given back. With tensorCreateGraphTensor it may also be a graph
    out of a binary, which takes no new tensor.
    """

    call: Misused
    handle: str = "NULL"


class BadArgument(Step, tag="bad-argument", frozen=True, gc=False, omit_defaults=True):
    """One call of which ``argument`` is NULL, or a version or value that there is not; all else is in order.

    What is composed for it is a graph of one addition, left to its context, with a name that no other step
    gives. What a call that succeeds nevertheless makes is given back. Of an event whose data are asked for,
    they are asked for with a place first.
    """

    call: PointedCall
    argument: Argument
    """One of `pytest_qnn.qnn.cases.arguments.ARGUMENTS` of the call."""
    context: str = ""
    """Of the calls that take one, or compose a graph in one."""
    graph: str = ""
    """Of graphRetrieve, by its name, of other calls on a finalised graph, and of the calls on sections."""
    op: QnnOp = "ElementWiseAdd"
    """Of the graph that is composed."""
    dtype: QnnDType = "UFIXED_POINT_8"


class Environment(Step, tag="environment", frozen=True, gc=False, omit_defaults=True):
    """QnnGraph_prepareExecutionEnvironment with one environment, and if that succeeds its release."""

    graph: str
    option: U32 = 0
    """QnnGraph_ExecuteEnvironmentOption_t: 0 BIND_MEM_HANDLES, 1 POPULATE_CLIENT_BUFS."""


class FreeParent(Step, tag="free-parent", frozen=True, gc=False, omit_defaults=True):
    """QnnDevice_free or QnnBackend_free of the session's own, whatever stands on it."""

    what: Literal["device", "backend"]


class Restart(Step, tag="restart", frozen=True, gc=False, omit_defaults=True):
    """The subsystem behind the backend restarts; skipped where nothing can make it."""


class Churn(Step, tag="churn", frozen=True, gc=False, omit_defaults=True):
    """The same thing ``rounds`` times, or for twenty seconds, after a few rounds that warm the target up.

    ``register``: register ``tensors`` tensors of ``buffer`` in ``context``, and deregister them.
    ``context``: create a context, register them there, free it. ``refused``: register a batch whose last
    descriptor has no mappable file. ``unread``: create a context from the first half of the binary that was
    written last.
    """

    what: Literal["register", "context", "refused", "unread"]
    buffer: str
    context: str = ""
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] = 100
    tensors: Annotated[int, Meta(ge=1, le=MOST_PARTS)] = 1
    """Shared buffers (CUSTOM) one behind the other, of `TENSOR` bytes each."""
    mem_type: U32 = 1


class WholeSession(Step, tag="whole-session", frozen=True, gc=False, omit_defaults=True):
    """A session from its beginning to its end, while no other is open; what the process has kept is measured.

    A backend, a device and a context are made, and a graph of an operator with two inputs, of which the
    second is STATIC with contents of ``shape``; it is executed with raw memory, and all is freed, the backend
    last. This is done four times: with one element, with ``shape``, and both again. What malloc has given out
    is measured around the second session and the fourth, of which the smaller growth counts, resident memory
    around the fourth.

    ``first``: it is done once, and is to be the first session of its process. Memory that was written to is
    measured before the backend is made, when the graph was executed, and when all is freed.
    """

    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"
    shape: Shape = (1, 2, 2, 2)
    first: bool = False


class CheckHeap(Step, tag="check-heap", frozen=True, gc=False, omit_defaults=True):
    """From here on what the target requests of the system is checked, until all is given back.

    Steps before it make the target load what it loads on demand, which would not know such blocks. Skipped
    where nothing here can check what the target requests.
    """


AllocatingCall = Literal[
    "logCreate",
    "backendCreate",
    "deviceCreate",
    "contextCreate",
    "graphCreate",
    "tensorCreateGraphTensor",
    "graphAddNode",
    "graphFinalize",
    "graphExecute",
    "memRegister",
    "contextGetBinary",
    "contextCreateFromBinary",
]
"""Calls of which a request may be refused."""
ON_GRAPHS: tuple[AllocatingCall, ...] = (
    *("graphCreate", "tensorCreateGraphTensor", "graphAddNode", "graphFinalize", "graphExecute"),
    *("contextGetBinary", "contextCreateFromBinary"),
)
"""Those that need a graph."""
MOST_REFUSED = 1000


class FailedAllocation(Step, tag="failed-allocation", frozen=True, gc=False, omit_defaults=True):
    """Ordinary calls, of some of which one request for a resource is refused by the system.

    The calls are made twice, with objects of their own: as they are, to see what they give; and with the
    refusals, while the first objects are alive, as far as a target can have both. There a call that fails is
    made again at once, with nothing refused, before the others follow that use what it has made: a graph in
    the context, an execute of the graph, an execute with the memory, a context from the binary and an execute
    of its graph. Where something is amiss then, the same is done with each of ``calls`` alone, and told is
    the first with which it is. Skipped where nothing here can refuse what the target asks for, or where calls
    fail without a refusal; of several, those are left out.
    """

    calls: Annotated[tuple[AllocatingCall, ...], Meta(min_length=1, max_length=MOST_PARTS)]
    """Of each of these a request is refused, the first time that it is called."""
    what: Resource = "any"
    nth: Annotated[int, Meta(ge=0, le=MOST_REFUSED)] = 1
    """The request that is refused, counted from 1 and around: of three, the fourth is the first. 0: none is,
    and the calls are made once, as they are."""
    lasting: bool = False
    """So is every one after it, until the call returns."""
    rounds: Annotated[int, Meta(ge=0, le=MOST_ROUNDS // 20)] = 0
    """The calls are made so often again, with the refusals of those that failed, and by how much the process
    grows is measured."""
    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"
    use: Literal["execute", "compose", "none"] = "execute"
    """Graphs are executed; are composed only; or there are none, where no call needs one."""
    mem_type: U32 = 0
    """Qnn_MemType_t of the memory that memRegister is given."""


ThreadCall = Literal[
    "memRegister",
    "graphExecute",
    "memDeRegister",
    "refused",
    "backendCreate",
    "backendFree",
    "contextCreate",
    "graphCreate",
    "kept",
    "contextFree",
]
"""What a thread of a `Parallel` of kind ``histories`` calls: an entry of the table, with what it needs.

``memRegister``: memory for each tensor of the thread's graph, in one call. ``graphExecute``: with the handles
if there are any, else raw; the output is compared. ``refused``: memRegister with the descriptor -1, and
graphExecute with a NULL handle in a thread that executes.
``contextCreate``: a context more, of the thread's own backend. ``graphCreate``: a graph in it is composed,
finalised and executed, the first time of a shape of the thread's own, the second of one that threads share.
``kept``: memRegister in it of what is not deregistered, but ends with the context.
"""


class Parallel(Step, tag="parallel", frozen=True, gc=False, omit_defaults=True):
    """Several threads at once, each ``rounds`` times.

    ``backends``: backendCreate, then backendFree. ``contexts``: each thread has a context of its own (made
    before the threads start), in which it registers a buffer for each tensor of a graph, executes with the
    handles, reads the output and deregisters. ``race``: one thread executes a graph raw until that fails,
    while another frees its context. ``deregister``: one thread executes a graph with memory handles while
    another deregisters the output's. ``rpcmem``: each thread allocates, writes, asks for the descriptor, maps
    it, compares and frees; no session is needed. ``logs``: a log with a callback, a backend and a device are
    made for the step; each thread creates a context, prepares a graph, executes it raw, registers two buffers
    (with ``mem_type`` 0: none), deregisters them and frees the context. Then all is freed, the log last.
    ``histories``: each thread has a context with a graph of its own, and makes its ``calls``.
    """

    what: Literal["backends", "contexts", "race", "deregister", "rpcmem", "logs", "histories"]
    threads: Annotated[int, Meta(ge=1, le=MOST_THREADS)] = 2
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] = 1
    """Of all threads together `MOST_ROUNDS` at most. Of ``histories`` none begins once 30 ms have passed."""
    mem_type: U32 = 1
    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"
    level: Annotated[int, Meta(ge=int(LogLevel.ERROR), le=int(LogLevel.DEBUG))] = 4
    """QnnLog_Level_t of the log of ``logs``: 1 ERROR to 5 DEBUG."""
    lowered: Annotated[int, Meta(ge=0, le=int(LogLevel.DEBUG))] = 0
    """The level that the log is given halfway, between two rounds; 0: it keeps the one it has."""
    calls: Annotated[
        tuple[Annotated[tuple[ThreadCall, ...], Meta(min_length=1, max_length=MOST_CALLS)], ...],
        Meta(max_length=MOST_THREADS),
    ] = ()
    """Of ``histories``, by thread: its calls in each round, in order. What has nothing to work on is left
    out; at the end of a round the thread deregisters and frees what it has made in it."""
    ops: Annotated[tuple[QnnOp, ...], Meta(max_length=MOST_THREADS)] = ()
    """Of ``histories``, by thread, in the place of ``op``."""
    own: bool = False
    """Of ``histories``: each thread has a backend of its own."""
    shared: bool = False
    """Of ``histories``: the first tensor of every thread's graph is in one memory, which each registers."""


TENSOR = 64
"""Bytes of each tensor that a `Churn` registers."""

MOST_LIVED = 1000


class Lived(Step, tag="lived", frozen=True, gc=False, omit_defaults=True):
    """Ordinary life before what a case is about: the same in order, ``rounds`` times, none of it named.

    ``buffers``: allocate a buffer of another size, ask for its descriptor, free it. ``registrations``:
    register a buffer of its own in ``context`` and deregister it. ``contexts``: create a context, register
    in it, deregister (every second time: do not), free it. ``refused``: in ``context``, calls that documents
    refuse: register a closed descriptor, register the same memory twice, deregister NULL. ``turns``: two
    contexts with a graph each take turns: register a buffer for each tensor, execute, read, deregister.

    With ``mem_type`` 0 nothing is registered. It ends early once it has taken half a second, since contexts
    cost some libraries tens of milliseconds.
    """

    what: Literal["buffers", "registrations", "contexts", "refused", "turns"]
    context: str = ""
    rounds: Annotated[int, Meta(ge=1, le=MOST_LIVED)] = 1
    kept: Part = 0
    """Of ``buffers``, the last so many stay until the end of the case."""
    mem_type: U32 = 1
    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"


LogKind = Literal["callback", "own", "none"]


class Logged(Step, tag="logged", frozen=True, gc=False, omit_defaults=True):
    """The session, which must not be open yet, is opened with a log at ``level``."""

    level: Annotated[int, Meta(ge=int(LogLevel.ERROR), le=int(LogLevel.DEBUG))] = int(LogLevel.ERROR)
    """QnnLog_Level_t: 1 ERROR to 5 DEBUG."""
    log: LogKind = "callback"
    """A callback that listens, the library's own log, or NULL for a log, which disables it."""
    profile: bool = False
    """Every QnnGraph_execute of the case gets a profile of the level BASIC, where one can be created."""
    beside: bool = False
    """Before the session's backend another one is created with a log of its own that has a callback, at level
    DEBUG; both are freed behind the session. Where they cannot be had, the session is alone."""


SectionMemory = Literal["raw", "handle", "short", "null", "unknown", "dead"]
"""What a QnnContext_Buffer_t leads to. Raw memory, or a memory handle: one of just enough bytes, of one byte
less (behind it the buffer goes on), NULL, a value that was never given out, or one that was deregistered."""
UNREGISTERED = frozenset({"null", "unknown", "dead"})


class UpdateWeights(Step, tag="update-weights", frozen=True, gc=False, omit_defaults=True):
    """QnnTensor_updateGraphTensors of the updatable weights of ``graph``, and QnnGraph_finalize."""

    graph: str
    weights: U32
    """Their contents from now on, as in `Prepare`."""


class GetSection(Step, tag="get-section", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_getBinarySectionSize, then, if it succeeded, QnnContext_getBinarySection.

    The bytes are called ``section`` if both succeed.
    """

    context: str
    graph: str
    section: str
    memory: SectionMemory = "raw"
    mem_type: U32 = 1
    """Qnn_MemType_t of the memory behind a handle."""
    size_of: str = ""
    """The size that is asked for is that of the section of this graph, where it is not ``graph``."""


class ApplySection(Step, tag="apply-section", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_applyBinarySection of the bytes called ``section``."""

    context: str
    graph: str
    section: str
    memory: SectionMemory = "raw"
    mem_type: U32 = 1


SectionStep = UpdateWeights | GetSection | ApplySection

NULL = "NULL"
BOGUS = "BOGUS"
MAPPED = "MAPPED"
"""Of a memory handle: the address of memory of the client's own, as large as the tensor, that lives until the
case ends. No rpcmem buffer: of one that is registered the address may be the handle."""


FdKind = Literal["buffer", "minus-one", "closed", "pipe", "socket", "directory", "file", "readonly", "dup"]
"""What a descriptor carries as fd: the buffer's own, something that is not such a buffer, or a duplicate of
its own, which is closed after the call."""
PointerKind = Literal["base", "interior", "unknown", "null"]
FlippedByte = Literal[
    "flipped-0",
    "flipped-1",
    "flipped-2",
    "flipped-3",
    "flipped-4",
    "flipped-5",
    "flipped-6",
    "flipped-7",
    "flipped-8",
    "flipped-9",
    "flipped-10",
    "flipped-11",
    "flipped-12",
    "flipped-13",
    "flipped-14",
    "flipped-15",
]
"""By the sixteenth of a binary: its first byte from the middle on, and then around, that is not 0."""
FLIPPED_BYTES: tuple[FlippedByte, ...] = get_args(FlippedByte)
Damage = Literal[
    "", "empty", "truncated", "trailing", "garbage", "zeros", "flipped", "flipped-end", FlippedByte
]
"""What is wrong with the bytes of a context binary: nothing; none are left; the second half is missing; a
byte too many; other bytes in the place of all; the first half zeroed; one bit in the middle changed; one bit
in the last byte; all bits of one byte of a sixteenth (`FlippedByte`)."""


class Providers(Step, tag="providers", frozen=True, gc=False, omit_defaults=True):
    """QnnInterface_getProviders; an argument may be NULL."""

    null_list: bool = False
    null_count: bool = False


class Capability(Step, tag="capability", frozen=True, gc=False, omit_defaults=True):
    """QnnProperty_hasCapability(key). ``early``: before backendCreate (must precede every other step)."""

    key: U32
    early: bool = False


class ContextCreate(Step, tag="context-create", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_create."""

    context: str
    defer: bool | None = None
    """isGraphInitDeferred of the option DEFER_GRAPH_INIT; None: the option is not given."""
    beside: Numbers = ()
    """As in `ContextFromBinary`."""


class GetBinary(Step, tag="get-binary", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_getBinarySize, then, if it succeeded, QnnContext_getBinary into a buffer of that size.

    The bytes are called ``binary`` if both succeed.
    """

    context: str
    binary: str
    missing: Size = 0
    """Bytes by which the buffer (and its stated size) is too small."""
    null: Literal["", "size", "buffer", "written"] = ""
    """The argument that is NULL."""
    keep: bool = False
    """The trace has the bytes."""


class ContextFromBinary(Step, tag="context-from-binary", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_createFromBinary, of a copy of the binary that lives as long as the case."""

    context: str
    binary: str
    defer: bool | None = None
    """As in `ContextCreate`."""
    beside: Numbers = ()
    """Custom HTP context options (QnnHtpContext_ConfigOption_t) that are given as well, each switched on."""
    switching: bool = False
    """Graph switching is asked for as well: a limit of memory, and that the binary persists."""
    damage: Damage = ""
    by: Literal["", "signal", "list", "list-config"] = ""
    """Another call: createFromBinaryWithSignal without a signal, or createFromBinaryListAsync, whose contexts
    are waited for; the options stand with each context, or with the list."""
    ahead: Annotated[int, Meta(ge=0, le=MOST_AHEAD)] = 0
    """Of a list: contexts of the same binary, undamaged, that stand before this one in it, and are freed once
    they are there."""


class ReleaseBinary(Step, tag="release-binary", frozen=True, gc=False, omit_defaults=True):
    """The client overwrites, with 0xEE, the bytes and the configuration that ``context`` was created from."""

    context: str


class ContextFinalize(Step, tag="context-finalize", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_finalize."""

    context: str
    descriptors: Part | None = None
    """So many and no more can be opened during the call; memory shared with a processor is behind one."""


class ContextProperty(Step, tag="context-property", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_getProperty of custom HTP properties, in one call."""

    context: str
    options: Numbers
    """QnnHtpContext_PropertyOption_t: 1 start alignment, 2 spill-fill size, 3 weights size."""
    null_list: bool = False


class Retrieve(Step, tag="retrieve", frozen=True, gc=False, omit_defaults=True):
    """QnnGraph_retrieve in ``context`` of the graph prepared as ``source``; then called ``graph``."""

    graph: str
    context: str
    source: str


class Inspect(Step, tag="inspect", frozen=True, gc=False, omit_defaults=True):
    """What the System interface says of a binary."""

    binary: str


class NewProcess(Step, tag="new-process", frozen=True, gc=False, omit_defaults=True):
    """The process ends, and the following steps run in another one.

    Nothing is left but the binaries, and what the client knows of the graphs in them (`Carry`).
    """

    killed: bool = False
    """It ends at once, with all that it has alive; else what it has made is given back before."""


class ContextFree(Step, tag="context-free", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_free."""

    context: str


class Alloc(Step, tag="alloc", frozen=True, gc=False, omit_defaults=True):
    """rpcmem_alloc(heap, flags, size): the buffer is called ``buffer`` if it succeeds."""

    buffer: str
    size: int
    wide: bool = False
    """rpcmem_alloc2, whose size is a size_t, where the library has it."""
    own: bool = False
    """Not from rpcmem: the client's own shared memory of the kind that rpcmem gives."""
    heap: I32 = 25
    """The default is RPCMEM_HEAP_ID_SYSTEM."""
    flags: U32 = 1
    """The default is RPCMEM_DEFAULT_FLAGS."""


class AllocNeeded(Step, tag="alloc-needed", frozen=True, gc=False, omit_defaults=True):
    """rpcmem_alloc of as many bytes as a property of ``context`` last said, plus ``extra``.

    Without an answer, or where nothing is needed, there is no buffer.
    """

    buffer: str
    context: str
    option: U32
    """As in `ContextProperty`."""
    extra: Annotated[int, Meta(ge=-MOST_NEEDED, le=MOST_NEEDED)] = 0
    own: bool = False
    """As in `Alloc`."""


class Free(Step, tag="free", frozen=True, gc=False, omit_defaults=True):
    """rpcmem_free of a pointer into ``buffer`` (or of an unknown or NULL pointer)."""

    buffer: str = ""
    pointer: PointerKind = "base"


class ToFd(Step, tag="to-fd", frozen=True, gc=False, omit_defaults=True):
    """rpcmem_to_fd of a pointer into ``buffer`` (or of an unknown or NULL pointer)."""

    buffer: str = ""
    pointer: PointerKind = "base"


class Write(Step, tag="write", frozen=True, gc=False, omit_defaults=True):
    """The client writes ``size`` bytes of `contents(dtype, seed)` (`qnn.cases.contents`) at ``offset``."""

    buffer: str
    size: Size
    offset: Annotated[int, Meta(ge=0, le=MOST_OFFSET)] = 0
    seed: U32 = 0
    dtype: QnnDType = "UFIXED_POINT_8"


class Fill(Step, tag="fill", frozen=True, gc=False, omit_defaults=True):
    """The client fills the whole buffer with one byte."""

    buffer: str
    byte: Annotated[int, Meta(ge=0, le=255)] = 0xEE


class Read(Step, tag="read", frozen=True, gc=False, omit_defaults=True):
    """The client reads the whole buffer, through its own pointer or through a second mapping of its fd."""

    buffer: str
    via: Literal["client", "fd"] = "client"


class Descriptor(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One Qnn_MemDescriptor_t over ``buffer``."""

    buffer: str
    shape: Numbers
    dtype: QnnDType = "UFIXED_POINT_8"
    mem_type: U32 = 1
    """Qnn_MemType_t: 1 ION, 2 CUSTOM, 3 DMA_BUF; other values are invalid."""
    fd: FdKind = "buffer"
    htp_type: U32 = 1
    """QnnMemHtp_Descriptor_t.type where mem_type is CUSTOM: 1 SHARED_BUFFER."""
    size: int | None = None
    """QnnMemHtp_Descriptor_t.size; None: the buffer's true size."""
    offset: int = 0
    data_type: U32 | None = None
    """Qnn_DataType_t where it is not that of ``dtype``."""
    shape_config: str | None = None
    """Qnn_MemShape_t.shapeConfig; None: NULL."""
    null: Literal["", "dimensions", "custom"] = ""
    """The pointer that is NULL: memShape.dimSize, or customInfo of a CUSTOM descriptor."""
    junk: bool = False
    """Of an ION descriptor: the bytes of the union behind the fd are 0xA5, not 0."""
    pointer: Literal["own", "null", "foreign"] = "own"
    """dmaBufInfo.data of a DMA_BUF descriptor: the client's pointer, NULL, or one to other memory."""


class Register(Step, tag="register", frozen=True, gc=False, omit_defaults=True):
    """QnnMem_register of a batch. Handle ``i`` is called ``handles[i]`` if the call succeeds.

    The handle array is filled with 0x55 bytes before the call.
    """

    context: str
    descriptors: Annotated[tuple[Descriptor, ...], Meta(max_length=MOST_PARTS)]
    handles: Names
    null_descriptors: bool = False
    null_handles: bool = False
    count: Part | None = None
    """numDescriptors where it is not ``len(descriptors)``."""
    scribble: bool = False
    """After the call the client overwrites the descriptors, and all that they point to: dimensions with 0,
    the rest with 0xA5."""
    keep: bool = False
    """The descriptors, and all that they point to, stay as they are until the case ends; else they are freed
    after the call."""


class Deregister(Step, tag="deregister", frozen=True, gc=False, omit_defaults=True):
    """QnnMem_deRegister of a batch of handle names (a context's name passes that handle value)."""

    handles: Names
    null_handles: bool = False
    count: Part | None = None


MendedMistake = Literal[
    "name", "data", "handle", "zero-dimension", "data-type", "early", "input", "output", "late"
]
"""Of `Prepare.mistakes`."""


class Prepare(Step, tag="prepare", frozen=True, gc=False, omit_defaults=True):
    """graphCreate, createGraphTensor for each tensor, addNode, finalize; it stops at the first failure.

    The graph has the operator's inputs (two, or one for Relu and Reshape) and one output, all of
    ``shape`` (Reshape: the output is flat) and ``dtype``.
    """

    graph: str
    context: str
    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"
    shape: Shape = (1, 2, 2, 2)
    mem_types: Numbers = ()
    """Qnn_TensorMemType_t per IO tensor, inputs first (0 RAW, 1 MEMHANDLE); missing ones are RAW."""
    preset: Annotated[tuple[bool, ...], Meta(max_length=MOST_PARTS)] = ()
    """Per IO tensor: give a non-NULL clientBuf.data (RAW) or memHandle (MEMHANDLE) at creation."""
    weights: U32 | None = None
    """Of an operator with two inputs: the second is no IO tensor but STATIC, with contents of this seed."""
    relay: bool = False
    """The operator's result is a NATIVE tensor, and the output is a Reshape of it (flat)."""
    relay_mem_type: U32 = 0
    """Qnn_TensorMemType_t of that NATIVE tensor."""
    narrow: Annotated[int, Meta(ge=0, le=8)] = 0
    """Of weights: the dimension, counted from the last as 1, along which they have one element only and are
    broadcast; 0, or one that the shape has not: none."""
    terms: Annotated[int, Meta(ge=0, le=MOST_TERMS)] = 0
    """0: the graph has the operator's inputs. Otherwise so many, at least two: with a NATIVE tensor for each,
    made by a Reshape (flat), and the operator from the last to the first, ``t0 op (t1 op (t2 op ...))``,
    whose results are NATIVE but for the output (flat). ElementWiseAdd or ElementWiseSubtract of FLOAT_32,
    which give such sums exactly, without weights and relay."""
    weights_as: Literal["kept", "scribbled", "null", "updatable"] = "kept"
    """The client's bytes of the weights: as they are until the end; overwritten once the tensor is created;
    none at all (clientBuf.data is NULL). Updatable: kept, and the tensor is UPDATEABLE_STATIC."""
    version: Literal[1, 2, 3] = 1
    """Of every Qnn_Tensor_t; 3: 1 and 2 in turns."""
    node_mem_types: Numbers = ()
    """As ``mem_types``, but in the structs that graphAddNode is given; empty: those of the creation."""
    finalise: bool = True
    watch: bool = False
    """Count what creations write to their structs beside the id."""
    mistakes: Annotated[tuple[MendedMistake, ...], Meta(max_length=MOST_PARTS)] = ()
    """Calls with a mistake, which are made beside the right ones; where one succeeds, the step is skipped.

    ``name``: graphCreate again, with the name that it has just been given. Before each IO tensor is created,
    and each STATIC one, the same with a mistake. ``data``: an IO tensor comes with memory, a STATIC one
    without. ``handle``: an IO tensor comes with a handle. ``zero-dimension``: the last dimension is 0, in a
    struct of version 2. ``data-type``: there is no such Qnn_DataType_t. ``early``: the graph is finalised
    before it has a node. Before each node is added, the same with a mistake. ``input``, ``output``: it reads,
    or writes, a tensor that the graph has not. ``late``: once the graph is finalised, its last node is added
    again.
    """


TensorMistake = Literal["zero-dimension", "scale-zero", "scale-negative", "scale-nan", "rank-zero"]
Mistake = Literal["name", "tensor", "late", "few-inputs", "many-inputs", TensorMistake]


class Miscompose(Step, tag="miscompose", frozen=True, gc=False, omit_defaults=True):
    """A graph of one operator is composed with a mistake, and left to its context.

    ``name``: a second graph of its name is created. ``tensor``: the node reads a tensor that the graph has
    not. ``late``: a node is added after graphFinalize. ``few-inputs``, ``many-inputs``: no graph is composed;
    backendValidateOpConfig is asked for the operator as it is, and then without its last input, or with that
    twice. Of the others (`TensorMistake`) the graph gets one tensor more, as its first input but for a
    dimension of 0 in a struct of version 2, its scale, which only UFIXED_POINT_8 has, or rank 0 beside its
    dimensions, which a target may take for a scalar.

    The graph has a name that no other step gives. The code is that of the mistaken call; None: a call before
    it failed.
    """

    context: str
    mistake: Mistake
    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"


class Carried(msgspec.Struct, frozen=True, gc=False):
    """A graph of a binary, as far as a client needs to know it."""

    prepared: Prepare
    ids: Numbers
    """Of its tensors, as `Prepare` leaves them in the trace."""


class Carry(Step, tag="carry", frozen=True, gc=False):
    """The client has a binary that was made before, by this or another process; nothing is called."""

    binary: str
    data: Annotated[bytes, Meta(max_length=MOST_TOUCHED)]
    graphs: Annotated[tuple[Carried, ...], Meta(max_length=MOST_PARTS)]


class Binding(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The memory behind one IO tensor of an execute."""

    kind: Literal["raw", "handle"] = "raw"
    handle: str = ""
    """A handle name, ``NULL``, ``BOGUS`` or ``MAPPED``, where kind is ``handle``."""
    seed: U32 = 0
    """Contents of a raw input."""
    short: Size = 0
    """Bytes by which raw memory, and its dataSize, is too small; behind it nothing can be touched."""
    data_size: U32 | None = None
    """clientBuf.dataSize where kind is ``handle``; None: 0."""
    mem_type: U32 | None = None
    """Qnn_TensorMemType_t of raw memory where it is not RAW."""
    of: str = ""
    """The tensor has the id of that of the same position in this graph."""


class Execute(Step, tag="execute", frozen=True, gc=False, omit_defaults=True):
    """QnnGraph_execute. Raw outputs are filled with 0xEE before the call."""

    graph: str
    bindings: Annotated[tuple[Binding, ...], Meta(max_length=MOST_PARTS)]
    """Per IO tensor, inputs first, as in Prepare."""
    inputs: Parts | None = None
    """Positions of the tensors in the array of inputs; None: every input, in order."""
    outputs: Parts | None = None
    """The same for the array of outputs."""
    watch: bool = False
    """Count the structs that differ afterwards."""
    asynchronous: Annotated[int, Meta(ge=0, le=MOST_CALLS)] = 0
    """QnnGraph_executeAsync, as the last of so many calls (`pytest_qnn.qnn.cases.case`). 0: it is not."""
    measured: bool = False
    """Count the memory that the call touches beside that of the tensors; not of an asynchronous one."""
    freed: bool = False
    """Of asynchronous calls: the graph's context is freed behind them, before the client waits."""


class Executes(Step, tag="executes", frozen=True, gc=False, omit_defaults=True):
    """The same QnnGraph_execute ``rounds`` times, as a `Churn` repeats its calls.

    The first that gives something else than it has to is the last.
    """

    graph: str
    bindings: Annotated[tuple[Binding, ...], Meta(max_length=MOST_PARTS)]
    """As in `Execute`; the memory behind them is the same in all rounds."""
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] = 100
    refused: bool = False
    """Each is to be refused, and else to succeed. Why is in ``bindings``: the handle is NULL, for example."""


class Observe(Step, tag="observe", frozen=True, gc=False, omit_defaults=True):
    """Look at the process from outside: descriptors, mappings, and mappings of about ``region`` bytes."""

    region: Size = 0
    """Count writable mappings of [region, region + 64 KiB) bytes; 0: do not look for any."""
    patient: bool = False
    """Look again, for a second at most, until nothing is more than at the case's first look without
    ``buffers``: what a thread of the backend gives back by then is given back. With ``buffers``: until one of
    them is mapped no more often than at the first look at them."""
    buffers: Names = ()
    """Count the mappings of each of these buffers, by its descriptor."""


AnyStep = (
    Providers
    | Capability
    | ContextCreate
    | ContextFree
    | GetBinary
    | ContextFromBinary
    | ReleaseBinary
    | ContextFinalize
    | ContextProperty
    | Retrieve
    | Inspect
    | NewProcess
    | Carry
    | Alloc
    | AllocNeeded
    | Free
    | ToFd
    | Write
    | Fill
    | Read
    | Register
    | Deregister
    | Prepare
    | Execute
    | Executes
    | Observe
    | Interface
    | Version
    | Message
    | Misuse
    | BadArgument
    | Miscompose
    | Environment
    | FreeParent
    | Restart
    | Churn
    | WholeSession
    | CheckHeap
    | FailedAllocation
    | Lived
    | Logged
    | Parallel
    | SectionStep
    | PieceStep
)


class MemoryCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A sequence of steps on one fresh process state (sandboxed) or one fresh session (in process)."""

    steps: Annotated[tuple[AnyStep, ...], Meta(max_length=MOST_STEPS)]
    ends: bool = False
    """After the last step the process ends in good order, by exit(3): what is live then stays live."""
    killed: bool = False
    """After the last step the process ends as if killed, by _exit(2): what is live then stays live."""


OVER_INPUT = 0xA5
OVER_OUTPUT = 0x5A
PATIENCE = 2.0
"""Seconds within which a notification must come: the graphs of the suite take milliseconds."""


def queued_seed(call: int, position: int) -> int:
    """Seed of the contents of an input (`qnn.cases.contents`), in call 0, 1, ... before the step's own."""
    return 1000 + 16 * call + position
