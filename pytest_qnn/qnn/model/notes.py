"""What the oracle says of a step beside its codes: what is wrong with it, and what a rule may look for."""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """What is wrong with a step. The rules that give the codes are named in `qnn.model.expected`."""

    NULL_DESCRIPTORS = "null-descriptors"
    NULL_HANDLES = "null-handles"
    COUNT_ZERO = "count-zero"
    BAD_CONTEXT = "bad-context"
    DEAD_CONTEXT = "dead-context"
    BAD_HANDLE = "bad-handle"
    DEAD_HANDLE = "dead-handle"
    REPEATED_HANDLE = "repeated-handle"
    FIXED_HANDLE = "fixed-handle"
    NULL_HANDLE = "null-handle"
    FOREIGN_HANDLE = "foreign-handle"
    SHORT_HANDLE = "short-handle"
    BAD_GRAPH = "bad-graph"
    ARITY = "arity"
    TENSORS = "tensors"
    NOT_FINALISED = "not-finalised"
    MEM_TYPE = "mem-type"
    SHORT_DATA = "short-data"
    NO_DATA = "no-data"
    PRESET = "preset"
    READ_ONLY = "read-only"
    TYPE_UNKNOWN = "type-unknown"
    TYPE_UNSUPPORTED = "type-unsupported"
    HTP_TYPE = "htp-type"
    NULL_DIMENSIONS = "null-dimensions"
    BAD_SHAPE = "bad-shape"
    DATA_TYPE = "data-type"
    SHAPE_CONFIG = "shape-config"
    NULL_CUSTOM = "null-custom"
    NULL_DATA = "null-data"
    FD_MINUS_ONE = "fd-minus-one"
    FD_UNMAPPABLE = "fd-unmappable"
    SMALL_BUFFER = "small-buffer"
    PAST_END = "past-end"
    SIZE_TOO_LARGE = "size-too-large"
    HUGE_OFFSET = "huge-offset"
    SIZE_MISMATCH = "size-mismatch"
    DUPLICATE = "duplicate"
    DUPLICATE_IN_BATCH = "duplicate-in-batch"
    NOT_OPEN = "not-open"
    NOT_DMA = "not-dma"
    EXTERNAL_SMALL = "external-small"
    EXTERNAL_MISALIGNED = "external-misaligned"
    SECOND_EXTERNAL = "second-external"
    OTHER_USE = "other-use"
    WEIGHTS_SHARED = "weights-shared"
    DEFER_CREATE = "defer-create"
    NULL_ARGUMENT = "null-argument"
    TOO_SMALL = "too-small"
    DESERIALISED = "deserialised"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"
    INCOMPATIBLE = "incompatible"
    NOTHING_PENDING = "nothing-pending"
    NULL_LIST = "null-list"
    UNKNOWN_OPTION = "unknown-option"
    PENDING = "pending"
    UNREGISTERED = "unregistered"
    SHORT = "short"
    FOREIGN_GRAPH = "foreign-graph"
    NOT_UPDATABLE = "not-updatable"


class Note(Enum):
    """What is special about a step."""

    PERMUTED = "permuted"
    DATA_SIZE = "data-size"
    ORPHAN_HANDLE = "orphan-handle"
    LARGER = "larger"
    OTHER_CONTEXT = "other-context"
    WEIGHTS = "weights"
    SPILL = "spill"
    SPILL_SHARED = "spill-shared"
    TAKEN_BACK = "taken-back"
    DEFERRED = "deferred"
    NOT_DEFERRED = "not-deferred"
    FINALISES = "finalises"


class Event(Enum):
    """What happened to something else while a registration was live: it must have survived that."""

    OTHER_DEREGISTERED = "other-deregistered"
    SIBLING_DEREGISTERED = "sibling-deregistered"
    OTHER_CONTEXT_FREED = "other-context-freed"
    SIBLING_CONTEXT_FREED = "sibling-context-freed"
    DUPLICATE_REFUSED = "duplicate-refused"


class End(Enum):
    """How the last registration of the same tensor in the same memory ended."""

    DEREGISTERED = "deregistered"
    DEREGISTERED_TWICE = "deregistered-twice"
    DEREGISTERED_MIXED = "deregistered-mixed"
    CONTEXT_FREED = "context-freed"


class Relation(Enum):
    """How a registration relates to another one of the same memory in the same context."""

    SAME_FD = "same-fd"
    """Both ION, another tensor: ION-02."""
    TWO_TYPES = "two-types"
    """ION and shared buffer: SHB-14."""
    SAME_OFFSET = "same-offset"
    """Shared buffers, another tensor: SHB-11."""
    OVERLAP = "overlap"
    """Shared buffers at other offsets: SHB-12."""
    DUPLICATE_FD = "duplicate-fd"
    """The same tensor through a dup of the fd: REG-25."""


Refused = frozenset[Fault]
"""The faults with which the last registration of the same tensor in the same memory was refused."""
AnyNote = Note | Event | End | Relation | Refused
