"""What the runner remembers of a memory case: every symbolic name, with the value it last stood for."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from pytest_qnn.isolation.observe.process import Spans
from pytest_qnn.qnn.cases.case import BOGUS, MAPPED, NULL, Prepare
from pytest_qnn.qnn.runner.client import Operator, QnnClient, Session
from pytest_qnn.qnn.runner.rpcmem import Rpcmem

BOGUS_HANDLE = 0x0B0605_0B0605
"""The value of ``BOGUS`` where a handle or a pointer is meant: no target has handed it out."""


LARGE = 128 * 1024
"""From this size on, memory has a mapping of its own (glibc's threshold, in bytes)."""


_LENT = 4096
_LENT_BYTE = 0xA5
"""What memory is filled with whose address is passed where a handle is meant: as a descriptor it is none."""


class Skip(Exception):  # noqa: N818 - control flow within the runner
    """The step cannot be carried out; the text says why."""


class NeverMade(Skip):
    """An object that the step needs was never made."""


@dataclasses.dataclass(slots=True)
class Context:
    """A context that was created."""

    value: int
    live: bool = True
    held: Any = None
    """The client's bytes of the binary that it was created from."""
    held_size: int = 0
    graphs: dict[str, Graph] = dataclasses.field(default_factory=dict)
    """What the client's names of graphs stood for when that binary was written."""
    config: tuple[Any, ...] = ()
    """The list of configurations that came with it, and what the list leads to."""
    said: dict[int, int] = dataclasses.field(default_factory=dict)
    """Answers of contextGetProperty, by option."""


@dataclasses.dataclass(slots=True)
class Buffer:
    """An rpcmem allocation that succeeded."""

    pointer: int
    size: int
    usable: bool
    """First and last byte could be written."""
    live: bool = True
    own: bool = False
    """The client made it without rpcmem; then ``fd`` is its descriptor from the start."""
    fd: int = -1
    """The descriptor once it was asked for: what the client still knows when the buffer is gone."""


@dataclasses.dataclass(slots=True)
class MemHandle:
    """A registration that succeeded."""

    value: int
    buffer: Buffer | None
    offset: int
    context: int | None
    """Value of the context it was registered with."""
    live: bool = True


@dataclasses.dataclass(slots=True)
class Graph:
    """A graph that was prepared to the end."""

    value: int
    step: Prepare
    operator: Operator


class Executed(NamedTuple):
    """An execute that succeeded, as far as the client can read its memory."""

    made: Prepare
    inputs: tuple[bytes, ...]
    """Before the call, without weights."""
    output: bytes


class State:
    """One case under way."""

    def __init__(self, client: QnnClient, rpcmem: Rpcmem) -> None:
        self.client = client
        self.rpcmem = rpcmem
        self.graph_prefix = "graph_of_the_conformance_suite_"
        """How names of graphs begin in calls: clients' names are not short, and begin alike."""
        self.session = Session(client)
        self.contexts: dict[str, Context] = {}
        self.buffers: dict[str, Buffer] = {}
        self.handles: dict[str, MemHandle] = {}
        self.graphs: dict[str, Graph] = {}
        self.binaries: dict[str, bytes] = {}
        self.written: dict[str, dict[str, Graph]] = {}
        """By binary: what the names of graphs stood for then. Another graph may have such a name by now."""
        self.sections: dict[str, bytes] = {}
        self.held: list[Any] = []
        """Memory that the target was given and may still read."""
        self.lent: dict[int, int] = {}
        """Memory whose address was passed where a memory handle is meant: its bytes, by its address."""
        self.retired: list[Context | Buffer | MemHandle] = []
        """Live objects whose name was given to a new one: they are released at the end as well."""
        self.inodes: set[tuple[int, int]] = set()
        """(device, inode) of every buffer's file, once its descriptor was asked for."""
        self.executed: list[Executed] = []
        """The executes of the step under way whose inputs and output are all known."""
        self.kept: list[bytes] = []
        """Bytes objects of the trace so far: memory of the runner's own."""
        self.first_look: tuple[int, int, int] | None = None
        """Descriptors, mappings of shared memory, and all mappings at the first Observe without buffers."""
        self.first_regions: dict[int, int] = {}
        """By the size that is asked for: regions at the first Observe that asks for it."""
        self.spans: Spans = ()
        """What was mapped at the last Observe with a region."""
        self.mapped = 0
        """Bytes that were mapped at such an Observe and not at the one before, of all so far."""
        self.first_mapped: dict[str, int] = {}
        """Mappings of each buffer at the first Observe that names it."""
        self.mistaken = 0
        """Graphs that were composed with a mistake."""
        self.round_begins: Callable[[], None] = lambda: None
        """Called in each thread of a `Parallel` before it waits for the others; who records calls sets it."""
        self.recorded = False
        """Somebody records calls: Python makes them all."""
        self.checked = contextlib.ExitStack()
        """What is checked until all is given back."""
        self.reserve: object = None
        """Room for Python's own objects, where mappings are looked at (`small_blocks_in_reserve`)."""

    def take_context(self, name: str, context: Context) -> None:
        """Give a name to a new context; one that had it before is released at the end."""
        previous = self.contexts.get(name)
        if previous is not None and previous.live:
            self.retired.append(previous)
        self.contexts[name] = context

    def free_context(self, name: str) -> int:
        """QnnContext_free without a profile: its code. What was registered in the context is gone with it."""
        value = self.context_value(name)
        code = self.client.call("contextFree", value, None)
        if code == 0 and name in self.contexts:
            self.contexts[name].live = False
            for handle in self.known_handles():
                handle.live = handle.live and handle.context != value
        return code

    def context_value(self, name: str) -> int | None:
        """The value to pass for a context's name."""
        return self._value(name, self.contexts, "context")

    def name_of_graph(self, graph: str) -> bytes:
        """What a graph of the case is called in calls."""
        return f"{self.graph_prefix}{graph}".encode()

    def graph_value(self, name: str) -> int | None:
        """The value to pass for a graph's name."""
        return self._value(name, self.graphs, "graph")

    def handle_value(self, name: str) -> int | None:
        """The value to pass for a memory handle's name; a context's name gives the context's value."""
        if name == MAPPED:
            return self.lend(_LENT)
        # For DRG: QnnMem_deRegister of a handle of another kind, which is an invalid one.
        if name in self.contexts and name not in self.handles:
            return self.contexts[name].value
        return self._value(name, self.handles, "memory handle")

    def lend(self, size: int) -> int:
        """The address of new memory of the client's own, registered nowhere. It lives until the case ends."""
        memory = ctypes.create_string_buffer(size)
        address = ctypes.addressof(memory)
        ctypes.memset(address, _LENT_BYTE, size)
        self.held.append(memory)
        self.lent[address] = size
        return address

    def buffer(self, name: str) -> Buffer:
        """The buffer of this name, live or freed."""
        if name not in self.buffers:
            raise NeverMade(f"buffer {name} was never made")
        return self.buffers[name]

    def known_handles(self) -> list[MemHandle]:
        """Every registration made so far, also those whose name was given away while they lived."""
        return [*self.handles.values(), *(each for each in self.retired if isinstance(each, MemHandle))]

    def keep(self, data: bytes) -> bytes:
        """Remember a large piece of the trace, so that its memory is not taken for the target's."""
        if len(data) >= LARGE:
            self.kept.append(data)
        return data

    def _value(self, name: str, known: dict[str, Any], kind: str) -> int | None:
        if name == NULL:
            return None
        if name == BOGUS:
            return BOGUS_HANDLE
        if name in known:
            value: int = known[name].value
            return value
        reason = self.session.failure
        raise NeverMade(f"{kind} {name} was never made" + (f": {reason}" if reason else ""))
