"""What the memory model remembers: buffers, contexts, registrations and graphs, by their symbolic names."""

from __future__ import annotations

import dataclasses
from typing import Literal

import msgspec

from pytest_qnn.qnn.abi.codes import HtpMemType, MemType
from pytest_qnn.qnn.cases.case import Descriptor, Prepare, QnnDType
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.model.notes import AnyNote, Event, Fault

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

    @classmethod
    def of(cls, made: Prepare) -> Graph:
        """The graph of a Prepare."""
        updatable = made.weights is not None and made.weights_as == "updatable"
        return cls(made.context, io_inputs(made), nbytes(made.shape, made.dtype), made.finalise, updatable)


def role_of(descriptor: Descriptor) -> int:
    """QnnHtpMem_Type_t of memory for weights or spill-fill; 0: memory of an IO tensor."""
    external = (HtpMemType.WEIGHTS_BUFFER, HtpMemType.SHARED_SPILLFILL_BUFFER)
    own = descriptor.mem_type == MemType.CUSTOM and descriptor.htp_type in external
    return descriptor.htp_type if own else 0


def identity(context: str, descriptor: Descriptor) -> Identity:
    """The identity that ``descriptor`` would have in ``context``."""
    offset = descriptor.offset if descriptor.mem_type == 2 else 0
    return context, descriptor.buffer, descriptor.mem_type, offset, descriptor.shape, descriptor.dtype
