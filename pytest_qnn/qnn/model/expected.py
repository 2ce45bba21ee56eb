"""What a QNN backend may answer to the next step, given what it did so far."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from pytest_qnn.qnn.abi.codes import (
    Error,
    HtpContextConfigOption,
    HtpContextOption,
    HtpMemType,
    MemType,
    Property,
    TensorMemType,
    low,
)
from pytest_qnn.qnn.cases.case import (
    FLIPPED_BYTES,
    NULL,
    UNREGISTERED,
    Alloc,
    AllocNeeded,
    AnyStep,
    ApplySection,
    BadArgument,
    Capability,
    Carry,
    CheckHeap,
    Churn,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    ContextWithCallback,
    Deregister,
    Descriptor,
    Environment,
    Execute,
    Executes,
    FailedAllocation,
    Fill,
    Free,
    FreeParent,
    GetBinary,
    GetSection,
    Inspect,
    Interface,
    Lived,
    Logged,
    MemoryCase,
    Message,
    Miscompose,
    Misuse,
    NewProcess,
    Observe,
    Parallel,
    Pieces,
    Prepare,
    Providers,
    QnnDType,
    Read,
    Register,
    ReleaseBinary,
    Restart,
    Retrieve,
    ToFd,
    UpdateWeights,
    Version,
    WholeSession,
    Write,
)
from pytest_qnn.qnn.cases.lives import Alive, Known, made_by
from pytest_qnn.qnn.cases.memory import NEEDED, SPILL, WEIGHTS
from pytest_qnn.qnn.cases.sizes import PAGE, io_inputs, nbytes, pages
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import TYPE_KEYS
from pytest_qnn.qnn.model.notes import AnyNote, End, Event, Fault, Note, Refused, Relation
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

Life = Literal["live", "dead", "orphan", "unknown"]
"""orphan: its context was freed first; unknown: an answer that the model does not allow hides the state."""

Identity = tuple[str, str, int, int, tuple[int, ...], QnnDType]
"""(context, buffer, memory type, offset, shape, dtype): one tensor's memory in one context."""


class Allowed(msgspec.Struct, frozen=True):
    """What may be answered to a step."""

    codes: frozenset[int]
    """Low 16 bits; empty: the step makes no QNN call, or nothing is demanded of its answer."""
    faults: frozenset[Fault] = frozenset()
    notes: frozenset[AnyNote] = frozenset()
    specified: bool = True
    """False: documents are silent, or the state is unknown; only safety is demanded."""

    @property
    def valid(self) -> bool:
        """The step is in order and must succeed."""
        return self.specified and not self.faults and bool(self.codes)

    @property
    def wrong(self) -> str:
        """The faults in words."""
        return ", ".join(sorted(fault.value for fault in self.faults))

    def only(self, *faults: Fault) -> bool:
        """The step is wrong in exactly one way, and it is one of these."""
        return self.specified and len(self.faults) == 1 and self.faults <= frozenset(faults)


@dataclasses.dataclass(slots=True)
class Context:
    """A QNN context."""

    value: int
    graphs: dict[str, Prepare] = dataclasses.field(default_factory=dict)
    """Those that it holds, by the name they were prepared with; of a pending context: will hold."""
    binary: str | None = None
    """It was made from this binary."""
    deferred: bool = False
    """It was made with deferred initialisation."""
    pending: bool = False
    """It waits for contextFinalize."""
    failed: bool = False
    """contextFinalize failed for want of a descriptor; whether it may be called again no document says."""
    unfinished: bool = False
    """It holds a graph that was begun and not finalised."""
    said: dict[int, int] = dataclasses.field(default_factory=dict)
    """Its properties as far as it was asked, by QnnHtpContext_PropertyOption_t."""


@dataclasses.dataclass(slots=True)
class Registration:
    """A memory handle that the target has given out."""

    context: str
    descriptor: Descriptor
    value: int
    bytes: int
    life: Life = "live"
    survived: set[Event] = dataclasses.field(default_factory=set)
    """What happened to other things while it was live (see `Model`): none of it may have hurt it."""
    fixed: bool = False
    """Memory of a context that was finalised with it: only contextFree ends it (EXT-21, EXT-22)."""

    @property
    def role(self) -> int:
        """See `role_of`."""
        return role_of(self.descriptor)

    @property
    def identity(self) -> Identity:
        """What makes another registration the same one."""
        return identity(self.context, self.descriptor)


@dataclasses.dataclass(slots=True)
class Graph:
    """A graph that was prepared."""

    context: str
    inputs: int
    bytes: int
    """Of each IO tensor."""
    finalised: bool = True
    updatable: bool = False
    """It has weights that can be updated."""
    constant: bool = False
    """It has weights that cannot be updated."""

    @classmethod
    def of(cls, made: Prepare) -> Graph:
        """The graph of a Prepare."""
        weights = made.weights is not None
        updatable = weights and made.weights_as == "updatable"
        kinds = (made.finalise, updatable, weights and not updatable)
        return cls(made.context, io_inputs(made), nbytes(made.shape, made.dtype), *kinds)


def role_of(descriptor: Descriptor) -> int:
    """QnnHtpMem_Type_t of memory for weights or spill-fill; 0: memory of an IO tensor."""
    external = (HtpMemType.WEIGHTS_BUFFER, HtpMemType.SHARED_SPILLFILL_BUFFER)
    own = descriptor.mem_type == MemType.CUSTOM and descriptor.htp_type in external
    return descriptor.htp_type if own else 0


def identity(context: str, descriptor: Descriptor) -> Identity:
    """The identity that ``descriptor`` would have in ``context``."""
    offset = descriptor.offset if descriptor.mem_type == 2 else 0
    return context, descriptor.buffer, descriptor.mem_type, offset, descriptor.shape, descriptor.dtype


def relations(model: Model, step: Register) -> set[Relation]:
    """Of a registration of one descriptor to what is registered already."""
    if len(step.descriptors) != 1 or step.count is not None:
        return set()
    (mine,) = step.descriptors
    this = identity(step.context, mine)
    if role_of(mine) or any(found.identity[:2] == this[:2] for found in model.unsure.values()):
        return set()
    beside = [
        found
        for found in model.live(step.context).values()
        if found.descriptor.buffer == mine.buffer and not role_of(found.descriptor)
    ]
    found = {_relation(mine, other) for other in beside}
    return {relation for relation in found if relation is not None}


def _relation(mine: Descriptor, other: Registration) -> Relation | None:
    theirs = other.descriptor
    same = identity(other.context, mine) == other.identity
    if mine.fd == "dup" or same:
        return Relation.DUPLICATE_FD if same and mine.fd == "dup" and theirs.fd == "buffer" else None
    kinds = {mine.mem_type, theirs.mem_type}
    if kinds == {MemType.ION, MemType.CUSTOM}:
        return Relation.TWO_TYPES
    if kinds == {MemType.ION}:
        return Relation.SAME_FD
    if kinds != {MemType.CUSTOM} or mine.size != theirs.size:
        return None
    if mine.offset == theirs.offset:
        return Relation.SAME_OFFSET
    apart = (
        mine.offset + nbytes(mine.shape, mine.dtype) <= theirs.offset
        or theirs.offset + other.bytes <= mine.offset
    )
    return None if apart else Relation.OVERLAP


Faults = dict[Fault, frozenset[int]]

UNUSUAL = frozenset({Fault.NOT_FINALISED, Fault.MEM_TYPE, Fault.SHORT_DATA, Fault.TENSORS})
"""The faults of an Execute that are told here."""
_KNOWN = frozenset({int(TensorMemType.RAW), int(TensorMemType.MEMHANDLE)})
_PARAMETER = frozenset({int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)})
_TENSOR = frozenset({int(Error.GRAPH_ERROR_INVALID_TENSOR)})
_LOOSE = _TENSOR | {int(Error.GRAPH_ERROR_INVALID_ARGUMENT)}
_UNFINISHED = frozenset({int(Error.GRAPH_ERROR_GRAPH_NOT_FINALIZED)})


def prepare_faults(step: Prepare) -> tuple[Faults, bool]:
    """What is wrong with the tensors, and whether documents leave it open."""
    faults: Faults = {}
    odd = set(step.mem_types) - _KNOWN
    unspecified = TensorMemType.RETRIEVE_RAW in odd
    if odd:
        faults[Fault.MEM_TYPE] = frozenset()
    if step.weights is not None and step.weights_as == "null":
        faults[Fault.NO_DATA] = _PARAMETER
    return faults, unspecified


def execute_faults(step: Execute, graph: Graph, notes: set[AnyNote]) -> tuple[Faults, bool]:
    """What is wrong with the arrays and raw memory of an execute, and whether documents leave it open."""
    faults: Faults = {}
    unspecified = False
    if not graph.finalised:
        faults[Fault.NOT_FINALISED] = _UNFINISHED
    if _wrong_arrays(step, graph):
        faults[Fault.TENSORS] = _LOOSE
    elif step.inputs is not None and list(step.inputs) != sorted(step.inputs):
        notes.add(Note.PERMUTED)
    for binding in step.bindings:
        if binding.kind == "handle":
            if binding.data_size:
                notes.add(Note.DATA_SIZE)
            continue
        if binding.mem_type not in (None, TensorMemType.RAW):
            faults[Fault.MEM_TYPE] = _LOOSE
            unspecified = unspecified or binding.mem_type in (
                TensorMemType.MEMHANDLE,
                TensorMemType.RETRIEVE_RAW,
            )
        if binding.short > 0:
            faults[Fault.SHORT_DATA] = _LOOSE
    return faults, unspecified


def _wrong_arrays(step: Execute, graph: Graph) -> bool:
    """Not every input once in the one array and every output once in the other."""
    inputs = range(graph.inputs) if step.inputs is None else step.inputs
    outputs = (graph.inputs,) if step.outputs is None else step.outputs
    whole = sorted(inputs) == list(range(graph.inputs)) and list(outputs) == [graph.inputs]
    foreign = any(binding.of not in ("", step.graph) for binding in step.bindings)
    return foreign or not whole


SUCCESS: frozenset[int] = frozenset({0})
_REFUSED = frozenset(
    {int(Error.CONTEXT_ERROR_INVALID_ARGUMENT), int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)}
)
"""QnnContext.h, QnnContext_getBinarySection: an argument is invalid, or the feature is not supported."""


def _updatable(model: Model, name: str) -> bool:
    graph = model.live_graph(name)
    return graph is not None and graph.finalised and graph.updatable


_NOT_UPDATABLE = frozenset(
    {
        int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM),
        int(Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM),
        int(Error.TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE),
    }
)
"""QnnTensor.h, QnnTensor_updateGraphTensors: a parameter of the tensor (its type is one) is invalid, or it is
unsupported, since backends may support a subset of the updateable types; or the tensor cannot be applied as
an update. It does not say which of them a STATIC tensor is."""
_SECTION_ARGUMENT = frozenset({int(Error.CONTEXT_ERROR_INVALID_ARGUMENT)})
"""QnnContext.h, QnnContext_getBinarySection: one of the arguments is invalid."""
_SECTION_UNFINISHED = frozenset({int(Error.CONTEXT_ERROR_NOT_FINALIZED)})
"""The same, and its size: there is something in the context that is not finalised."""


def _update(model: Model, step: UpdateWeights) -> Allowed:
    graph = model.live_graph(step.graph)
    if graph is None or model.contexts[graph.context].binary is not None:
        return Allowed(SUCCESS, specified=_updatable(model, step.graph))
    if not graph.finalised:
        # QnnTensor.h: updates take effect with graphFinalize; of a graph that never was it says nothing.
        return Allowed(SUCCESS, specified=False)
    faults: Faults = {}
    if graph.constant:
        faults[Fault.NOT_UPDATABLE] = _NOT_UPDATABLE
    return _allowed(faults, set(), specified=bool(faults) or graph.updatable)


def _section(model: Model, step: GetSection | ApplySection) -> Allowed:
    graph = model.live_graph(step.graph)
    lives = graph is not None and model.context_lives(step.context)
    own = lives and graph is not None and graph.context == step.context
    specified = own and _updatable(model, step.graph)
    if isinstance(step, GetSection):
        mistaken = _mistaken(model, step, own=own) if lives else None
        if mistaken is not None:
            return mistaken
        specified = specified and model.contexts[step.context].binary is None and not step.size_of
    if step.memory in UNREGISTERED:
        return Allowed(_REFUSED, frozenset({Fault.UNREGISTERED}), specified=specified)
    if step.memory == "short":
        return Allowed(frozenset(), frozenset({Fault.SHORT}), specified=specified)
    return Allowed(SUCCESS, specified=specified)


def _mistaken(model: Model, step: GetSection, *, own: bool) -> Allowed | None:
    """A section of a graph that is not the context's, or not finalised; None: it is neither."""
    if step.memory != "raw" or model.contexts[step.context].binary is not None:
        return None
    if not own:
        sized = model.live_graph(step.size_of)
        right = sized is not None and sized.context == step.context and _updatable(model, step.size_of)
        specified = right or not step.size_of
        return _allowed({Fault.FOREIGN_GRAPH: _SECTION_ARGUMENT}, set(), specified=specified)
    if not model.graphs[step.graph].finalised:
        return _allowed({Fault.UNFINISHED: _SECTION_UNFINISHED}, set(), specified=not step.size_of)
    return None


_ARGUMENT = int(Error.MEM_ERROR_INVALID_ARGUMENT)
_ANY_REFUSAL = frozenset(
    {int(code) for code in Error if _ARGUMENT <= code <= Error.MEM_ERROR_UNSUPPORTED_MEMTYPE}
    | {int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)}
)
"""Seed 002 says what external memory must be, and nothing of codes: any of the memory family, or 1005."""


def external_faults(
    model: Model, context: str, descriptor: Descriptor, before: Sequence[Identity], faults: Faults
) -> bool:
    """Enter what is wrong with a weights or spill-fill descriptor; True if documents leave it open."""
    key = Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM
    if model.facts.capabilities.get(key, 0) != 0:
        faults[Fault.TYPE_UNSUPPORTED] = frozenset({int(Error.MEM_ERROR_UNSUPPORTED_MEMTYPE)})
    owner = model.live_context(context)
    if owner is None:
        return False
    if not owner.pending:
        faults[Fault.NOT_OPEN] = frozenset()
        return False
    if owner.failed or descriptor.fd == "readonly":
        return True
    if descriptor.fd not in ("buffer", "dup"):
        faults[Fault.NOT_DMA] = _ANY_REFUSAL
        return False
    size = model.alive.buffers.get(descriptor.buffer)
    if size is None:
        return True
    unspecified = any(earlier[1] == descriptor.buffer for earlier in before)
    unspecified = _fit_faults(owner, descriptor, size, faults) or unspecified
    unspecified = _use_faults(model, context, descriptor, faults) or unspecified
    in_order = _both_readings_fit(owner, descriptor, size) and _is_surely_aligned(owner)
    return unspecified or not (faults or in_order)


def _readings(owner: Context, descriptor: Descriptor, true: int) -> tuple[bool, bool]:
    """Whether the memory fits if ``size`` is that of the whole buffer, and if it is what follows the offset.

    Of the size of weights or spill-fill memory at an offset no document says which it is (facts, 7.18).
    """
    size = true if descriptor.size is None else descriptor.size
    needed = owner.said.get(NEEDED[descriptor.htp_type], 0)
    return descriptor.offset + needed <= size, needed <= size and descriptor.offset + size <= true


def _is_surely_aligned(owner: Context) -> bool:
    """Memory begins at a page, and of more than a page nothing is known."""
    return (owner.said.get(HtpContextOption.BUFFER_START_ALIGNMENT) or 0) <= PAGE


def _both_readings_fit(owner: Context, descriptor: Descriptor, true: int) -> bool:
    return all(_readings(owner, descriptor, true))


def _fit_faults(owner: Context, descriptor: Descriptor, true: int, faults: Faults) -> bool:
    size = true if descriptor.size is None else descriptor.size
    needed = owner.said.get(NEEDED[descriptor.htp_type])
    alignment = owner.said.get(HtpContextOption.BUFFER_START_ALIGNMENT)
    if needed is not None and not any(_readings(owner, descriptor, true)):
        faults[Fault.EXTERNAL_SMALL] = _ANY_REFUSAL
    # Where the mapping begins is not ours to know, but that it begins at a page.
    if alignment and descriptor.offset % min(alignment, PAGE):
        faults[Fault.EXTERNAL_MISALIGNED] = _ANY_REFUSAL
    asked = needed is not None and bool(alignment)
    return not asked or size > true


def _use_faults(model: Model, context: str, descriptor: Descriptor, faults: Faults) -> bool:
    unspecified = False
    for found in model.live().values():
        here = found.context == context
        same = found.descriptor.buffer == descriptor.buffer
        if found.role == descriptor.htp_type and here:
            faults[Fault.SECOND_EXTERNAL] = _ANY_REFUSAL
        elif same and found.role != descriptor.htp_type:
            faults[Fault.OTHER_USE] = _ANY_REFUSAL
        elif same and descriptor.htp_type == WEIGHTS:
            faults[Fault.WEIGHTS_SHARED] = _ANY_REFUSAL
            # That two contexts may not have their weights in different parts of a buffer no document says.
            unspecified = unspecified or found.descriptor.offset != descriptor.offset
    unsure = model.unsure.values()
    return unspecified or any(
        found.descriptor.buffer == descriptor.buffer or found.context == context for found in unsure
    )


def taken_faults(model: Model, descriptor: Descriptor, faults: Faults) -> bool:
    """Enter that memory for IO tensors is some context's external memory; True if that is not known."""
    for found in model.live().values():
        if found.role and found.descriptor.buffer == descriptor.buffer:
            faults[Fault.OTHER_USE] = _ANY_REFUSAL
    return any(found.role and found.descriptor.buffer == descriptor.buffer for found in model.unsure.values())


def register_notes(model: Model, step: Register) -> set[Note]:
    """What is special about the external memory in a call."""
    roles = {role_of(descriptor) for descriptor in step.descriptors} - {0}
    notes = {Note.WEIGHTS if role == WEIGHTS else Note.SPILL for role in roles}
    if SPILL in roles:
        buffers = {descriptor.buffer for descriptor in step.descriptors if role_of(descriptor) == SPILL}
        for found in model.live().values():
            elsewhere = found.role == SPILL and found.context != step.context
            if elsewhere and found.descriptor.buffer in buffers:
                notes.add(Note.SPILL_SHARED)
    return notes


_TWICE = int(Error.MEM_ERROR_ALREADY_REGISTERED)
_MAPPING = int(Error.MEM_ERROR_MAPPING)
_SHAPE = int(Error.MEM_ERROR_INVALID_SHAPE)
_TYPE = int(Error.MEM_ERROR_UNSUPPORTED_MEMTYPE)
_OVER = frozenset({_ARGUMENT, _MAPPING, _SHAPE})
"""QnnMem.h offers all three for memory that is too small, and no document says which (facts, 7.4)."""

HUGE = 1 << 32
"""Offsets from here on that lie behind the buffer are the business of SHB-06."""


def descriptor_faults(
    model: Model, context: str, descriptor: Descriptor, before: Sequence[Identity]
) -> tuple[Faults, bool]:
    """What is wrong with ``descriptor``, and whether documents leave the answer open.

    ``before`` are the identities of the earlier descriptors of the same call. Faults and the rules that
    give their codes: ``type-unknown`` REG-09, ``type-unsupported`` CAP-04, ``htp-type`` SHB-02,
    ``null-dimensions`` REG-10, ``bad-shape`` REG-11, ``data-type`` REG-12, ``shape-config`` REG-27,
    ``null-custom`` SHB-01, ``null-data`` DMA-01, ``fd-minus-one`` REG-13, ``fd-unmappable`` REG-14,
    ``small-buffer`` REG-15, ``past-end`` SHB-04, ``size-too-large`` SHB-05, ``huge-offset`` SHB-06,
    ``size-mismatch`` SHB-03, ``duplicate`` REG-21, ``duplicate-in-batch`` REG-22; and those of
    `pytest_qnn.qnn.model.expected`.
    """
    faults: Faults = {}
    if role_of(descriptor):
        unspecified = external_faults(model, context, descriptor, before, faults)
        return faults, unspecified or not model.facts.supports(Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT)
    # Whether an empty text is a configuration no document says.
    unspecified = _type_faults(model, descriptor, faults) or descriptor.shape_config == ""
    _form_faults(descriptor, faults)
    if descriptor.null == "custom" and descriptor.mem_type == MemType.CUSTOM:
        return faults, unspecified
    if descriptor.fd not in ("buffer", "dup"):
        return faults, _fd_faults(descriptor, faults) or unspecified
    size = model.alive.buffers.get(descriptor.buffer)
    if size is None:
        return faults, True
    # Whether another number for the same memory repeats a registration, no document says.
    unspecified = _size_faults(descriptor, size, faults) or unspecified or descriptor.fd == "dup"
    unspecified = unspecified or (descriptor.pointer == "foreign" and descriptor.mem_type == MemType.DMA_BUF)
    unspecified = taken_faults(model, descriptor, faults) or unspecified
    if Fault.OTHER_USE in faults:
        return faults, unspecified
    unspecified = _repeat_faults(model, context, descriptor, before, faults) or unspecified
    if Fault.SIZE_TOO_LARGE in faults:
        faults.pop(Fault.SIZE_MISMATCH, None)  # of all that is registered it differs
    return faults, unspecified


def _type_faults(model: Model, descriptor: Descriptor, faults: Faults) -> bool:
    key = TYPE_KEYS.get(descriptor.mem_type)
    if key is None:
        faults[Fault.TYPE_UNKNOWN] = frozenset({_TYPE, _ARGUMENT})
    elif model.facts.capabilities.get(key, 0) != 0:
        faults[Fault.TYPE_UNSUPPORTED] = frozenset({_TYPE})
    elif descriptor.mem_type == MemType.CUSTOM and descriptor.htp_type != HtpMemType.SHARED_BUFFER:
        faults[Fault.HTP_TYPE] = frozenset({_ARGUMENT, _TYPE})
    return False


def _form_faults(descriptor: Descriptor, faults: Faults) -> None:
    """What is wrong with the descriptor whatever memory it is about."""
    if not descriptor.shape or 0 in descriptor.shape:
        faults[Fault.BAD_SHAPE] = frozenset({_SHAPE, _ARGUMENT})
    if descriptor.null == "dimensions" and descriptor.shape:
        faults[Fault.NULL_DIMENSIONS] = frozenset({_ARGUMENT, _SHAPE})
    if descriptor.shape_config:
        faults[Fault.SHAPE_CONFIG] = frozenset({_SHAPE, _ARGUMENT})
    if descriptor.data_type is not None:
        faults[Fault.DATA_TYPE] = frozenset({_ARGUMENT})
    if descriptor.null == "custom" and descriptor.mem_type == MemType.CUSTOM:
        faults[Fault.NULL_CUSTOM] = frozenset({_ARGUMENT})
    if descriptor.pointer == "null" and descriptor.mem_type == MemType.DMA_BUF:
        faults[Fault.NULL_DATA] = frozenset({_ARGUMENT, _MAPPING})


def _fd_faults(descriptor: Descriptor, faults: Faults) -> bool:
    if descriptor.fd == "minus-one":
        faults[Fault.FD_MINUS_ONE] = frozenset({_MAPPING, _ARGUMENT})
    elif descriptor.fd in ("readonly", "file"):
        return True  # Whether it will be an output is not known yet; and a plain file can be mapped.
    else:
        faults[Fault.FD_UNMAPPABLE] = frozenset({_MAPPING})
    return False


def _size_faults(descriptor: Descriptor, true: int, faults: Faults) -> bool:
    needed = nbytes(descriptor.shape, descriptor.dtype)
    if descriptor.mem_type != MemType.CUSTOM:
        # A descriptor of these types has no size: the backend sees whole pages.
        if needed > pages(true):
            faults[Fault.SMALL_BUFFER] = _OVER
        return true < needed <= pages(true)
    size = true if descriptor.size is None else descriptor.size
    unspecified = False
    if size > pages(true):
        faults[Fault.SIZE_TOO_LARGE] = _OVER
    elif size > true:
        unspecified = True
    if descriptor.offset + needed > size:
        if descriptor.offset >= HUGE:
            faults[Fault.HUGE_OFFSET] = _OVER
        elif descriptor.offset == 0 and size == true:
            faults[Fault.SMALL_BUFFER] = _OVER
        else:
            faults[Fault.PAST_END] = _OVER
    return unspecified


def _repeat_faults(
    model: Model, context: str, descriptor: Descriptor, before: Sequence[Identity], faults: Faults
) -> bool:
    this = identity(context, descriptor)
    if this in before:
        faults[Fault.DUPLICATE_IN_BATCH] = frozenset({_TWICE})
        return False
    unspecified = any(_related(this, earlier, descriptor) for earlier in before)
    for found in model.live().values():
        if found.context != context:
            continue
        if found.descriptor.buffer == descriptor.buffer:
            unspecified = _clash(model, found, this, descriptor, faults) or unspecified
        elif found.descriptor.buffer in model.alive.freed:
            unspecified = (
                True  # Freed while registered: its number may be this one, and devices go by the number.
            )
    return unspecified or any(found.identity[:2] == this[:2] for found in model.unsure.values())


def _clash(model: Model, found: Registration, this: Identity, descriptor: Descriptor, faults: Faults) -> bool:
    # What is wrong in two ways is refused with the code of either: nothing says what is looked at first.
    both_shared = found.descriptor.mem_type == descriptor.mem_type == MemType.CUSTOM
    if both_shared:
        size = model.alive.buffers[descriptor.buffer]
        mine, theirs = (size if d.size is None else d.size for d in (descriptor, found.descriptor))
        if mine != theirs:
            faults[Fault.SIZE_MISMATCH] = frozenset({_ARGUMENT})
    if found.identity == this:
        faults[Fault.DUPLICATE] = frozenset({_TWICE})
        return False
    return _related(this, found.identity, descriptor)


def _related(this: Identity, other: Identity, descriptor: Descriptor) -> bool:
    """Both use one buffer in a way of which documents do not say whether it is a repetition.

    Other shapes on one start (ION-02, SHB-11), overlap (SHB-12) and two memory types on one fd (SHB-14).
    """
    if this[:2] != other[:2]:
        return False
    if this[2] != MemType.CUSTOM or other[2] != MemType.CUSTOM:
        return True
    needed = nbytes(descriptor.shape, descriptor.dtype)
    return this[3] < other[3] + nbytes(other[4], other[5]) and other[3] < this[3] + needed


_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
_BINARY_ARGUMENT = int(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
_CONTEXT = frozenset({int(Error.CONTEXT_ERROR_INVALID_HANDLE)})
_GRAPH = frozenset({int(Error.GRAPH_ERROR_INVALID_HANDLE)})
_PERMITTED = frozenset({int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)})
_CONFIG = frozenset({int(Error.CONTEXT_ERROR_INVALID_CONFIG), _UNSUPPORTED})
NO_OPTION = _CONFIG | {_BINARY_ARGUMENT}
"""What QnnContext_create may answer to an option that it has not: codes of QnnContext.h for its arguments."""
MALFORMED = frozenset(
    {
        int(Error.CONTEXT_ERROR_CREATE_FROM_BINARY),
        int(Error.CONTEXT_ERROR_BINARY_VERSION),
        int(Error.CONTEXT_ERROR_BINARY_CONFIGURATION),
    }
)
"""QnnContext_createFromBinary: it cannot be deserialised, has another version, is not for this device."""
INCOMPATIBLE = frozenset(
    {
        int(HtpContextConfigOption.REGISTER_MULTI_CONTEXTS),
        int(HtpContextConfigOption.REGISTER_CONCURRENT_RESOURCE_SHARING),
        int(HtpContextConfigOption.USE_EXTENDED_UDMA),
    }
)
"""Seed 002, limitations: options of a context that exclude deferred initialisation."""
PROPERTIES = frozenset(map(int, HtpContextOption))
_PERHAPS_NOTICED = frozenset({"flipped", "flipped-end", "trailing", *FLIPPED_BYTES})
"""Damages of which no document says that they are noticed (facts, OFF-08: truncated, garbage, foreign)."""


def _allowed(faults: Faults, notes: set[AnyNote], *, specified: bool = True) -> Allowed:
    codes = frozenset[int]().union(*faults.values()) if faults else SUCCESS
    return Allowed(codes, frozenset(faults), frozenset(notes), specified=specified)


def _no_context(model: Model, name: str, faults: Faults, codes: frozenset[int] = _CONTEXT) -> bool:
    """Enter the fault of a context that does not live; True if its value may be another's."""
    if model.context_lives(name):
        return False
    faults[Fault.DEAD_CONTEXT if name in model.contexts else Fault.BAD_CONTEXT] = codes
    return model.context_alias(name)


def context_create(model: Model, step: ContextCreate) -> Allowed:
    """Deferring is for what comes out of a binary; not deferring is the same as giving no option."""
    del model
    if step.defer:
        return _allowed({Fault.DEFER_CREATE: NO_OPTION}, set(), specified=not step.beside)
    notes: set[AnyNote] = {Note.NOT_DEFERRED} if step.defer is False else set()
    return _allowed({}, notes, specified=not step.beside)


def _get_binary(model: Model, step: GetBinary) -> Allowed:
    faults: Faults = {}
    unspecified = _no_context(model, step.context, faults)
    if step.null:
        faults[Fault.NULL_ARGUMENT] = frozenset({_BINARY_ARGUMENT})
    elif step.missing:
        faults[Fault.TOO_SMALL] = frozenset({int(Error.CONTEXT_ERROR_GET_BINARY_FAILED), _BINARY_ARGUMENT})
    context = model.live_context(step.context)
    if context is not None:
        if context.binary is not None:
            faults[Fault.DESERIALISED] = _PERMITTED
        elif context.unfinished:
            faults[Fault.UNFINISHED] = frozenset({int(Error.CONTEXT_ERROR_NOT_FINALIZED)})
        else:
            unspecified = unspecified or not context.graphs
    return _allowed(faults, set(), specified=not unspecified)


def _from_binary(model: Model, step: ContextFromBinary) -> Allowed:
    del model
    faults: Faults = {}
    notes: set[AnyNote] = {Note.DEFERRED} if step.defer else set()
    if step.defer is False:
        notes.add(Note.NOT_DEFERRED)
    if step.damage == "empty":
        faults[Fault.DAMAGED] = MALFORMED | {_BINARY_ARGUMENT}
    elif step.damage:
        faults[Fault.DAMAGED] = MALFORMED
    if step.defer and (step.switching or INCOMPATIBLE.intersection(step.beside)):
        faults[Fault.INCOMPATIBLE] = _CONFIG
    others = set(step.beside) - (INCOMPATIBLE if step.defer else set())
    specified = not others and not step.by and step.damage not in _PERHAPS_NOTICED
    return _allowed(faults, notes, specified=specified)


def _with_callback(model: Model, step: ContextWithCallback) -> Allowed:
    """The trace says whether a piece was refused; that raw memory and offsets are taken no document says."""
    plain = step.memory == "dma" and not step.fails and not step.start and step.defer is None
    return _allowed({}, set(), specified=plain and bool(model.alive.binaries.get(step.binary)))


def _finalize(model: Model, step: ContextFinalize) -> Allowed:
    faults: Faults = {}
    # NULL may be taken for an argument that is missing as well as for a handle that is none.
    codes = _CONTEXT | {_BINARY_ARGUMENT} if step.context == NULL else _CONTEXT
    unspecified = _no_context(model, step.context, faults, codes)
    context = model.live_context(step.context)
    if context is not None and not context.pending:
        faults[Fault.NOTHING_PENDING] = frozenset({_UNSUPPORTED, _BINARY_ARGUMENT})
    elif step.descriptors is not None or (
        step.context in model.contexts and model.contexts[step.context].failed
    ):
        unspecified = True
    return _allowed(faults, set() if faults else {Note.FINALISES}, specified=not unspecified)


def _property(model: Model, step: ContextProperty) -> Allowed:
    faults: Faults = {}
    unspecified = _no_context(model, step.context, faults) or not (step.options or step.null_list)
    if step.null_list:
        faults[Fault.NULL_LIST] = frozenset({_BINARY_ARGUMENT})
    elif not PROPERTIES.issuperset(step.options):
        faults[Fault.UNKNOWN_OPTION] = frozenset({_BINARY_ARGUMENT, _UNSUPPORTED})
    context = model.live_context(step.context)
    if context is not None and not context.deferred:
        unspecified = True
    return _allowed(faults, set(), specified=not unspecified)


def _retrieve(model: Model, step: Retrieve) -> Allowed:
    faults: Faults = {}
    unspecified = _no_context(model, step.context, faults, _GRAPH)
    context = model.live_context(step.context)
    if context is not None:
        if context.pending:
            faults[Fault.PENDING] = frozenset()
        else:
            unspecified = step.source not in context.graphs
    return _allowed(faults, set(), specified=not unspecified)


def _follow_alloc(model: Model, step: Alloc, seen: StepSeen) -> None:
    if seen.values and seen.values[0]:
        model.alive.follow(step)


def _follow_free(model: Model, step: Free, seen: StepSeen) -> None:
    del seen
    model.alive.follow(step)


def _follow_context_create(model: Model, step: ContextCreate, seen: StepSeen) -> None:
    if seen.code == 0:
        model.make_context(step, Context(seen.values[0] if seen.values else 0))


def _follow_context_free(model: Model, step: ContextFree, seen: StepSeen) -> None:
    if seen.code != 0 or step.context not in model.contexts:
        return
    value = model.contexts[step.context].value
    for name in list(model.alive.contexts):
        # A stale name ends the live context to which its value was given.
        if name == step.context or model.contexts[name].value == value:
            model.end_context(name)


def _follow_prepare(model: Model, step: Prepare, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if seen.code == 0:
        model.make_graph(step)
        if context is not None:
            context.graphs[step.graph] = step
            context.unfinished = context.unfinished or not step.finalise
    elif context is not None and seen.calls and seen.calls[0][1] == 0:
        context.unfinished = True


def _follow_get_binary(model: Model, step: GetBinary, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if seen.code == 0 and not step.null and context is not None:
        model.alive.binaries[step.binary] = dict(context.graphs)


def _follow_carry(model: Model, step: Carry, seen: StepSeen) -> None:
    del seen
    model.alive.follow(step)


def _follow_from_binary(model: Model, step: ContextFromBinary, seen: StepSeen) -> None:
    if seen.code != 0:
        return
    graphs = {} if step.damage else dict(model.alive.binaries.get(step.binary, {}))
    value = seen.values[0] if seen.values else 0
    made = Context(value, graphs=graphs, binary=step.binary, deferred=bool(step.defer))
    made.pending = made.deferred
    model.make_context(step, made)


def _follow_with_callback(model: Model, step: ContextWithCallback, seen: StepSeen) -> None:
    _follow_from_binary(model, ContextFromBinary(step.context, step.binary, step.defer), seen)


def _follow_finalize(model: Model, step: ContextFinalize, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if context is None or not context.pending or (seen.code != 0 and step.descriptors is None):
        return
    context.pending, context.failed = seen.code != 0, seen.code != 0
    for registration in model.live(step.context).values():
        registration.fixed = registration.role != 0


def _follow_property(model: Model, step: ContextProperty, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    if seen.code == 0 and context is not None and not step.null_list:
        context.said.update(zip(step.options, seen.values, strict=False))


def _follow_retrieve(model: Model, step: Retrieve, seen: StepSeen) -> None:
    context = model.contexts.get(step.context)
    source = context.graphs.get(step.source) if context is not None else None
    if seen.code == 0 and source is not None:
        model.make_graph(msgspec.structs.replace(source, graph=step.graph, context=step.context))


def _follow_needed(model: Model, step: AllocNeeded, seen: StepSeen) -> None:
    if len(seen.values) > 1 and seen.values[0]:
        model.alive.alloc(step.buffer, seen.values[1])


def _follow_new_process(model: Model, step: NewProcess, seen: StepSeen) -> None:
    del step, seen
    model.forget_objects()


def _follow_free_parent(model: Model, step: FreeParent, seen: StepSeen) -> None:
    del step
    if seen.code == 0:
        model.end_contexts()


def _follow_execute(model: Model, step: Execute, seen: StepSeen) -> None:
    graph = model.live_graph(step.graph)
    if graph is not None and ("contextFree", 0) in seen.calls:
        model.end_context(graph.context)


FOLLOW: dict[type[Any], Callable[[Any, Any, StepSeen], None]] = {
    Alloc: _follow_alloc,
    Free: _follow_free,
    ContextCreate: _follow_context_create,
    ContextFree: _follow_context_free,
    Execute: _follow_execute,
    Prepare: _follow_prepare,
    GetBinary: _follow_get_binary,
    Carry: _follow_carry,
    ContextFromBinary: _follow_from_binary,
    ContextWithCallback: _follow_with_callback,
    ContextFinalize: _follow_finalize,
    ContextProperty: _follow_property,
    Retrieve: _follow_retrieve,
    AllocNeeded: _follow_needed,
    NewProcess: _follow_new_process,
    FreeParent: _follow_free_parent,
}
"""What becomes of the model: (model, step, seen). Register and Deregister are `Model`'s own."""

NO_CALL = Allowed(frozenset())
_WRONG_ARGUMENT = frozenset({int(Error.MEM_ERROR_INVALID_ARGUMENT)})
_HANDLE = frozenset({int(Error.MEM_ERROR_INVALID_HANDLE)})
_READ_ONLY = frozenset({int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)})


def expect(model: Model, step: AnyStep) -> Allowed:
    """What ``step`` may be answered with now."""
    handler = EXPECT.get(type(step))
    return handler(model, step) if handler else NO_CALL


def _context_free(model: Model, step: ContextFree) -> Allowed:
    if model.context_lives(step.context):
        return Allowed(SUCCESS)
    fault = Fault.DEAD_CONTEXT if step.context in model.contexts else Fault.BAD_CONTEXT
    return Allowed(_CONTEXT, frozenset({fault}), specified=not model.context_alias(step.context))


def _register(model: Model, step: Register) -> Allowed:
    faults: Faults = {}
    notes: set[AnyNote] = set()
    specified = True
    if step.null_descriptors:
        faults[Fault.NULL_DESCRIPTORS] = _WRONG_ARGUMENT
    if step.null_handles:
        faults[Fault.NULL_HANDLES] = _WRONG_ARGUMENT
    count = len(step.descriptors) if step.count is None else step.count
    if count == 0:
        faults[Fault.COUNT_ZERO] = _WRONG_ARGUMENT | SUCCESS
    if not model.context_lives(step.context):
        faults[Fault.BAD_CONTEXT] = _HANDLE
        specified = not model.context_alias(step.context)
    before: list[Identity] = []
    for descriptor in step.descriptors[:count]:
        wrong, unspecified = descriptor_faults(model, step.context, descriptor, before)
        faults |= wrong
        specified = specified and not unspecified
        this = identity(step.context, descriptor)
        if this in model.history:
            notes.add(model.history[this])
        size = model.alive.size_of(descriptor.buffer)
        if size is not None and size > nbytes(descriptor.shape, descriptor.dtype):
            notes.add(Note.LARGER)
        before.append(this)
    _note_others(model, step, set(before), notes)
    notes |= register_notes(model, step) | relations(model, step)
    return _allowed(faults, notes, specified=specified)


def _note_others(model: Model, step: Register, wanted: set[Identity], notes: set[AnyNote]) -> None:
    buffers = {this[1] for this in wanted}
    for found in model.live().values():
        if found.context != step.context and found.descriptor.buffer in buffers:
            notes.add(Note.OTHER_CONTEXT)
        elif found.identity in wanted:
            notes |= found.survived


def _deregister(model: Model, step: Deregister) -> Allowed:
    faults: Faults = {}
    notes: set[AnyNote] = set()
    specified = True
    if step.null_handles:
        faults[Fault.NULL_HANDLES] = _WRONG_ARGUMENT
    count = len(step.handles) if step.count is None else step.count
    if count == 0:
        faults[Fault.COUNT_ZERO] = _WRONG_ARGUMENT | SUCCESS
    for position, name in enumerate(step.handles[:count]):
        found = model.registrations.get(name)
        if found is None:
            faults[Fault.BAD_HANDLE] = _HANDLE
            specified = specified and not model.context_as_handle(name)
        elif found.life == "dead":
            faults[Fault.DEAD_HANDLE] = _HANDLE
            specified = specified and not model.handle_alias(name)
        elif found.life != "live":
            specified = False
            notes |= {Note.ORPHAN_HANDLE} if found.life == "orphan" else set()
        elif name in step.handles[:position]:
            faults[Fault.REPEATED_HANDLE] = _HANDLE
        elif found.fixed:
            faults[Fault.FIXED_HANDLE] = frozenset()
            specified = specified and not model.contexts[found.context].failed
        else:
            notes |= {Note.TAKEN_BACK} if found.role else set()
            notes |= found.survived
    return _allowed(faults, notes, specified=specified)


def _prepare(model: Model, step: Prepare) -> Allowed:
    if not model.context_lives(step.context):
        specified = not model.context_alias(step.context)
        return _allowed({Fault.BAD_CONTEXT: _GRAPH}, set(), specified=specified)
    if model.contexts[step.context].binary is not None:
        return _allowed({Fault.READ_ONLY: _READ_ONLY}, set(), specified=True)
    if any(step.preset):
        return _allowed({Fault.PRESET: _PARAMETER}, set(), specified=True)
    faults, unspecified = prepare_faults(step)
    specified = not unspecified if faults else (step.op, step.dtype) in model.facts.operators
    return _allowed(faults, set(), specified=specified)


def _execute(model: Model, step: Execute) -> Allowed:
    graph = model.graphs.get(step.graph)
    if graph is None or step.graph not in model.alive.graphs:
        return _allowed({Fault.BAD_GRAPH: _GRAPH}, set(), specified=graph is None)
    notes: set[AnyNote] = set()
    faults, unspecified = execute_faults(step, graph, notes)
    if len(step.bindings) != graph.inputs + 1:
        faults[Fault.ARITY] = _LOOSE
    unspecified = _in_place(model, step, graph) or unspecified
    for binding in step.bindings:
        if binding.kind != "handle":
            continue
        found = model.registrations.get(binding.handle)
        if found is not None and found.life in ("live", "dead"):
            fault, unsure = _bound(model, graph, binding.handle, found, notes)
            unspecified = unspecified or unsure
        elif found is not None:
            fault, unspecified = None, True
            notes |= {Note.ORPHAN_HANDLE} if found.life == "orphan" else set()
        else:
            fault = Fault.NULL_HANDLE if binding.handle == NULL else Fault.BAD_HANDLE
            unspecified = unspecified or model.context_as_handle(binding.handle)
        if fault is not None:
            faults[fault] = _LOOSE if fault is Fault.SHORT_HANDLE else _TENSOR
    return _allowed(faults, notes, specified=not unspecified and not step.freed)


def _bound(
    model: Model, graph: Graph, name: str, found: Registration, notes: set[AnyNote]
) -> tuple[Fault | None, bool]:
    """What is wrong with a handle that was made, and whether documents leave it open."""
    if found.life == "dead":
        return Fault.DEAD_HANDLE, model.handle_alias(name)
    notes |= found.survived
    if found.context != graph.context:
        return Fault.FOREIGN_HANDLE, model.handle_alias(name)
    if found.role:
        return None, True
    if found.bytes < graph.bytes:
        return Fault.SHORT_HANDLE, False
    return None, found.descriptor.buffer not in model.alive.buffers


def _in_place(model: Model, step: Execute, graph: Graph) -> bool:
    """An output lies on other memory of the same execute: the result is unspecified (EXE-20)."""
    spans = [
        (position >= graph.inputs, found.descriptor.buffer, found.descriptor.offset, found.bytes)
        for position, binding in enumerate(step.bindings)
        if binding.kind == "handle" and (found := model.registrations.get(binding.handle)) is not None
    ]
    outputs = [span[1:] for span in spans if span[0]]
    inputs = [span[1:] for span in spans if not span[0]]
    return any(_overlap(a, b) for a in outputs for b in inputs)


def _overlap(a: tuple[str, int, int], b: tuple[str, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[1] + b[2] and b[1] < a[1] + a[2]


EXPECT: dict[type[Any], Callable[[Any, Any], Allowed]] = {
    ContextCreate: context_create,
    GetBinary: _get_binary,
    ContextFromBinary: _from_binary,
    ContextWithCallback: _with_callback,
    ContextFinalize: _finalize,
    ContextProperty: _property,
    Retrieve: _retrieve,
    UpdateWeights: _update,
    GetSection: _section,
    ApplySection: _section,
    ContextFree: _context_free,
    Register: _register,
    Deregister: _deregister,
    Prepare: _prepare,
    Execute: _execute,
}
"""What each step may be answered with: (model, step)."""
NO_QNN_CALL: Final = frozenset(
    {
        Alloc,
        AllocNeeded,
        Carry,
        CheckHeap,
        Fill,
        Free,
        Inspect,
        NewProcess,
        Observe,
        Pieces,
        Read,
        Restart,
        ToFd,
        Write,
    }
)
"""Steps on the client's memory or on files, which make no call of the table, or none of their own."""
JUDGED_ALONE: Final = frozenset(
    {
        BadArgument,
        Capability,
        Churn,
        Environment,
        Executes,
        FailedAllocation,
        FreeParent,
        Interface,
        Lived,
        Logged,
        Message,
        Miscompose,
        Misuse,
        Parallel,
        Providers,
        ReleaseBinary,
        Version,
        WholeSession,
    }
)
"""Steps whose codes depend on nothing that the model follows: their rules name them."""


class Walked(msgspec.Struct, frozen=True):
    """One step that was carried out, with what the model allowed."""

    index: int
    step: AnyStep
    seen: StepSeen
    allowed: Allowed
    sizes: dict[str, int] = {}
    """Bytes of the client's buffers by name, as far as the case says them."""
    mapped: frozenset[str] = frozenset()
    """Buffers of which a registration succeeded before this step, whatever became of it."""

    @property
    def code(self) -> int | None:
        """Low 16 bits of the answer; 0 is success; None: no QNN call was made."""
        return None if self.seen.code is None else low(self.seen.code)


class Model:
    """Buffers, contexts, registrations and graphs as they must be after the steps seen so far."""

    def __init__(self, facts: MemoryFacts | None = None) -> None:
        self.facts = facts or MemoryFacts()
        self.alive = Alive()
        self.contexts: dict[str, Context] = {}
        """Those that are gone included, as are registrations and graphs."""
        self.registrations: dict[str, Registration] = {}
        self.graphs: dict[str, Graph] = {}
        self.history: dict[Identity, End | Refused] = {}
        """How the last registration, or attempt at one, of an identity that is not live ended."""
        self.unsure: dict[str, Registration] = {}
        """Registrations whose life is ``unknown``, by handle name."""

    def expect(self, step: AnyStep) -> Allowed:
        """The codes that ``step`` may be answered with now."""
        return expect(self, step)

    def live(self, context: str | None = None) -> dict[str, Registration]:
        """Registrations that live, of one context or of all, by handle name."""
        handles = self.alive.handles if context is None else self.alive.handles_of(context)
        return {name: self.registrations[name] for name in handles}

    def context_lives(self, name: str) -> bool:
        """The context was made and not freed."""
        return name in self.alive.contexts

    def live_context(self, name: str) -> Context | None:
        """The context, if it lives."""
        return self.contexts[name] if name in self.alive.contexts else None

    def live_graph(self, name: str) -> Graph | None:
        """The graph, if it lives."""
        return self.graphs[name] if name in self.alive.graphs else None

    def context_alias(self, name: str) -> bool:
        """A context that is gone has the value of a live one: the target gave the value out again."""
        mine = self.contexts.get(name)
        return mine is not None and any(
            self.contexts[other].value == mine.value for other in self.alive.contexts if other != name
        )

    def handle_alias(self, name: str) -> bool:
        """Another handle that may be live has the same value."""
        mine = self.registrations[name]
        return any(
            found.life != "dead" and found.value == mine.value
            for found in self.registrations.values()
            if found is not mine
        )

    def context_as_handle(self, name: str) -> bool:
        """The context ``name`` has the value of a live memory handle, which is legal (IF-09)."""
        context = self.contexts.get(name)
        return context is not None and any(context.value == found.value for found in self.live().values())

    def follow(self, step: AnyStep, seen: StepSeen, allowed: Allowed | None = None) -> None:
        """Take over what the target did. ``allowed`` saves asking `expect` again."""
        if seen.skipped:
            return
        if isinstance(step, Register):
            self._follow_register(step, seen, allowed or self.expect(step))
        elif isinstance(step, Deregister):
            self._follow_deregister(step, seen, allowed or self.expect(step))
        elif type(step) in FOLLOW:
            FOLLOW[type(step)](self, step, seen)

    def end_contexts(self) -> None:
        """Every context went with the device or the backend that it stood on."""
        for name in list(self.alive.contexts):
            self.end_context(name)

    def forget_objects(self) -> None:
        """The process has ended: nothing is left but the binaries."""
        self.alive.new_process()
        for known in (self.contexts, self.registrations, self.graphs, self.history, self.unsure):
            known.clear()

    def make_context(self, step: AnyStep, made: Context) -> None:
        """A context is there."""
        self.alive.follow(step)
        name, *_ = made_by(step)
        self.contexts[name] = made

    def make_graph(self, made: Prepare) -> None:
        """A graph is there. If its context is gone, the value of that belongs to another context by now."""
        self.graphs[made.graph] = Graph.of(made)
        self.alive.prepare(made.graph, made)
        if not self.context_lives(made.context):
            del self.alive.graphs[made.graph]

    def end_context(self, name: str) -> None:
        """A context is gone, and with it what was made in it."""
        freed = self.live(name)
        self.alive.end_context(name)
        for registration in freed.values():
            registration.life = "dead" if registration.fixed else "orphan"
            self.history[registration.identity] = End.CONTEXT_FREED
        memory = {registration.descriptor.buffer for registration in freed.values()}
        for other in self.live().values():
            same = other.descriptor.buffer in memory
            other.survived.add(Event.SIBLING_CONTEXT_FREED if same else Event.OTHER_CONTEXT_FREED)

    def _follow_register(self, step: Register, seen: StepSeen, allowed: Allowed) -> None:
        count = len(step.descriptors) if step.count is None else step.count
        wanted = step.descriptors[:count]
        if seen.code == 0:
            if not (step.null_handles or step.null_descriptors):
                self._made(step, seen.values[:count])
            return
        if not allowed.faults:
            return
        live = {found.identity for found in self.live().values()}
        for descriptor in wanted:
            this = identity(step.context, descriptor)
            if this not in live:
                self.history[this] = allowed.faults
        if Fault.DUPLICATE in allowed.faults:
            again = {identity(step.context, descriptor) for descriptor in wanted}
            for found in self.live(step.context).values():
                if found.identity in again:
                    found.survived.add(Event.DUPLICATE_REFUSED)

    def _made(self, step: Register, values: tuple[int, ...]) -> None:
        """The registrations of a call; of those with one handle (REG-02) nobody knows whose it is."""
        lives = self.context_lives(step.context)
        given = Counter(values)
        for name, descriptor, value in zip(step.handles, step.descriptors, values, strict=False):
            size = nbytes(descriptor.shape, descriptor.dtype)
            made = Registration(step.context, descriptor, value, size)
            self.registrations[name] = made
            self.history.pop(made.identity, None)
            if lives and given[value] == 1:
                self.alive.register(name, Known(step.context, descriptor))
            else:
                made.life = "unknown"
                self.unsure[name] = made

    def _follow_deregister(self, step: Deregister, seen: StepSeen, allowed: Allowed) -> None:
        if step.null_handles or seen.code is None:
            return
        count = len(step.handles) if step.count is None else step.count
        expected = low(seen.code) in allowed.codes or (seen.code == 0 and not allowed.specified)
        gone: list[Registration] = []
        for name in dict.fromkeys(step.handles[:count]):
            found = self.registrations.get(name)
            if found is None or found.life != "live":
                self._hit_by_alias(name)
            if found is None or found.life == "dead" or (found.fixed and seen.code != 0):
                continue
            if found.life == "live":
                gone.append(found)
                self.alive.deregister(name)
                self.history[found.identity] = _how_ended(allowed)
            found.life = "dead" if expected else "unknown"
            if not expected:
                self.unsure[name] = found
        for other in self.live().values():
            for found in gone:
                same = other.descriptor.buffer == found.descriptor.buffer
                sibling = same and other.context != found.context
                other.survived.add(Event.SIBLING_DEREGISTERED if sibling else Event.OTHER_DEREGISTERED)

    def _hit_by_alias(self, name: str) -> None:
        """What is no live handle was deregistered: a live handle that has its value is in doubt."""
        stale = self.registrations.get(name) or self.contexts.get(name)
        if stale is None:
            return
        for other, found in self.live().items():
            if found.value == stale.value:
                found.life = "unknown"
                self.unsure[other] = found
                self.alive.deregister(other)


def _how_ended(allowed: Allowed) -> End:
    if Fault.REPEATED_HANDLE in allowed.faults:
        return End.DEREGISTERED_TWICE
    return End.DEREGISTERED_MIXED if allowed.faults else End.DEREGISTERED


class _Last(NamedTuple):
    """The trace that was followed last: a rule's helpers follow the same one several times."""

    case: MemoryCase | None = None
    trace: MemoryTrace | None = None
    walked: tuple[Walked, ...] = ()


_last = _Last()


def walk(case: MemoryCase, trace: MemoryTrace) -> tuple[Walked, ...]:
    """Each step that was carried out, in order, with what the model allowed before it."""
    global _last  # noqa: PLW0603 - one entry, replaced whole, so that threads can at worst follow twice
    last = _last
    if last.case is not case or last.trace is not trace:
        _last = last = _Last(case, trace, tuple(_follow(case, trace)))
    return last.walked


def _follow(case: MemoryCase, trace: MemoryTrace) -> Iterator[Walked]:
    model = Model(trace.facts)
    sizes: dict[str, int] = {}
    mapped: frozenset[str] = frozenset()
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if seen.skipped:
            continue
        allowed = model.expect(step)
        if isinstance(step, Alloc):
            sizes = {**sizes, step.buffer: step.size}
        yield Walked(index, step, seen, allowed, sizes, mapped)
        if isinstance(step, Register) and seen.code == 0:
            mapped |= {each.buffer for each in step.descriptors}
        model.follow(step, seen, allowed)
