"""The objects behind the handles of the reference backend."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

from msgspec import UNSET, UnsetType

from pytest_qnn.qnn.abi.codes import ITEM_SIZE, HtpMemType
from pytest_qnn.qnn.reference.mapping import Mapping

Kind = Literal["backend", "log", "device", "context", "graph", "mem", "profile", "event", "signal"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_RANK = 8
Identity = tuple[int, int]
"""Of a file: (st_dev, st_ino). It survives dup and differs when a descriptor number is used again."""


class QnnError(Exception):
    """Ends a call with a Qnn_ErrorHandle_t other than success."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = int(code)


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How a tensor of fixed point stores real numbers, where one scale and one offset do not say it."""

    axis: int = -1
    """Scales and offsets are by index of this axis; -1: the tensor's own count."""
    scales: tuple[float, ...] = ()
    offsets: tuple[int, ...] = ()
    bits: int = 0
    """Low bits of an element that count; 0: all."""


@dataclasses.dataclass(eq=False)
class Tensor:
    """A tensor of a graph, copied out of the client's struct."""

    id: int
    name: str
    type: int
    data_type: int
    shape: tuple[int, ...]
    scale: float
    offset: int
    mem_type: int
    """The hint given at creation: Qnn_TensorMemType_t."""
    size: int
    """Bytes."""
    data: bytes | None = None
    """Contents of a STATIC tensor."""
    placed: int = -1
    """Where its bytes are in the external weights (STATIC) or spill-fill (NATIVE) buffer; -1: in neither."""
    encoding: Encoding | UnsetType = UNSET
    """UNSET is not written into binaries: those of the memory suite's graphs stay as short as they were."""


Parameters = dict[str, bool | int | float | Tensor]
"""Of an operator, by name: scalars, and tensors with data."""


@dataclasses.dataclass(eq=False)
class Node:
    """An operator of a graph; tensors by id."""

    operator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parameters: Parameters | UnsetType = UNSET
    """UNSET for an operator of the memory suite (`operators.suite`), else one of `operators.table`."""


@dataclasses.dataclass(eq=False)
class Request:
    """A memory descriptor, copied out and resolved to the file behind its fd."""

    mem_type: int
    fd: int
    identity: Identity
    length: int
    """Bytes of the file."""
    size: int
    """Bytes of the tensor: product of the shape times the element size."""
    offset: int = 0
    declared: int | None = None
    """Total size that a CUSTOM descriptor declares; None for ION and DMA_BUF."""
    role: int = HtpMemType.SHARED_BUFFER
    """QnnHtpMem_Type_t of a CUSTOM descriptor: IO tensor, weights or spill-fill."""

    @property
    def total(self) -> int:
        """Bytes that the client says, or the file shows, that the buffer has."""
        return self.length if self.declared is None else self.declared


@dataclasses.dataclass(eq=False)
class Shared:
    """The one mapping of a file that the registrations of a context share."""

    mapping: Mapping
    declared: int | None
    users: set[int] = dataclasses.field(default_factory=set)
    """Handle values."""


@dataclasses.dataclass(eq=False)
class Registration:
    """A live memory handle."""

    handle: int
    context: Context
    request: Request
    shared: Shared


@dataclasses.dataclass(eq=False)
class Graph:
    """A graph of a context."""

    handle: int
    name: str
    context: Context
    tensors: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    nodes: list[Node] = dataclasses.field(default_factory=list)
    finalised: bool = False
    inputs: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    """APP_WRITE tensors by id."""
    outputs: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    """APP_READ tensors by id."""
    buffers: dict[int, Mapping] = dataclasses.field(default_factory=dict)
    """Internal IO buffers by tensor id."""
    updates: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Data of updatable tensors that waits for graphFinalize, by id."""


@dataclasses.dataclass(eq=False)
class External:
    """The two buffers of a context that a client may supply, and whether it still may."""

    needed: dict[int, int]
    """Bytes, by QnnHtpMem_Type_t."""
    pending: Any
    """The binary until contextFinalize has made its graphs, then None."""
    excluded: bool = False
    """It was made with an option that excludes deferring, which contextFinalize will refuse."""
    given: dict[int, Registration] = dataclasses.field(default_factory=dict)
    """What the client has registered, by QnnHtpMem_Type_t."""
    memory: dict[int, tuple[Mapping, int]] = dataclasses.field(default_factory=dict)
    """From finalising on: (mapping, offset) of each buffer, the client's or the backend's own."""


@dataclasses.dataclass(eq=False)
class Context:
    """A context with everything that goes when it goes."""

    handle: int
    backend: int
    device: int
    graphs: dict[str, Graph] = dataclasses.field(default_factory=dict)
    registrations: dict[int, Registration] = dataclasses.field(default_factory=dict)
    shared: dict[Identity, Shared] = dataclasses.field(default_factory=dict)
    tensors: int = 0
    """Ids given out so far: they are unique in the context."""
    deserialised: bool = False
    """It came out of a binary: its graphs cannot be changed."""
    external: External | None = None
    """Of a context with deferred initialisation: its own weights and spill-fill memory."""
    udma64: bool = False
    """Its graphs are prepared with extended udma."""


@dataclasses.dataclass(eq=False)
class Binding:
    """The memory that one execute gives to one IO tensor: a client buffer or a registration."""

    tensor: Tensor
    address: int = 0
    registration: Registration | None = None


def bytes_of(shape: tuple[int, ...], data_type: int) -> int:
    """Bytes of a dense tensor, exact. Raises KeyError for a data type without a size."""
    size = ITEM_SIZE[data_type]
    for dimension in shape:
        size *= dimension
    return size
