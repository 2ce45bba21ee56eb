"""What is seen of a `pytest_qnn.cases.plugin.PluginCase`."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.arrays import Array
from pytest_qnn.core.target import Death
from pytest_qnn.facts import DelegateFacts


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

    functions: dict[str, str] = {}
    """Prepare, CopyFromBufferHandle, CopyToBufferHandle, FreeBufferHandle.

    Each is ``null``, ``code`` or ``no code``.
    """
    flags: int = 0
    builder: str = "null"
    """opaque_delegate_builder: ``null``, ``valid`` (memory with code or nothing in its function members and
    code in its Prepare), ``invalid``."""
    builder_flags: int = 0


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


class PluginTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `PluginCase`."""

    missing: str = ""
    """Why the delegate has no plugin interface."""
    library: LibrarySeen = LibrarySeen()
    steps: tuple[PluginSeen, ...] = ()
    cpu: tuple[Array, ...] = ()
    """The graph's outputs on the runtime's own kernels."""
    death: Death | None = None
    facts: DelegateFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""
