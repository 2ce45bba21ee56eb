"""Steps with custom memory of a QNN delegate: TfLiteQnnDelegateAllocCustomMem and what follows (seed 000).

Skipped where the delegate offers none.
"""

from __future__ import annotations

from typing import Literal

from pytest_qnn.cases.script_step import ScriptStep


class AllocCustom(ScriptStep, tag="alloc-custom", frozen=True, gc=False, omit_defaults=True):
    """TfLiteQnnDelegateAllocCustomMem; what it gives is filled, as far as it can be written to.

    ``ok``: the pointer is not NULL. Numbers: ``pointer``, ``offset`` (of the pointer from a multiple of the
    alignment), ``usable`` (1: every byte is mapped, to be read and written, and keeps what is written),
    ``shared`` (1: every byte lies in a mapping that other processes and devices can share), ``overlaps``
    (1: a byte belongs to another buffer).
    """

    buffer: str
    bytes: int
    alignment: int = 64
    """The default is kDefaultTensorAlignment."""
    position: int = 0
    """Whose function: as for `pytest_qnn.cases.script.MakeDelegate`."""
    seed: int = 0
    """Contents: `pytest_qnn.cases.data.hashed` bytes of this seed."""


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
    position: int = 0
    """Of ``null`` and ``unknown``: whose function."""


class AssignCustom(ScriptStep, tag="assign-custom", frozen=True, gc=False, omit_defaults=True):
    """SetCustomAllocationForTensor with a buffer of `AllocCustom`.

    Numbers: ``status`` of the call, ``size`` of the tensor, ``bytes`` of the buffer.
    """

    interpreter: str
    tensor: int
    buffer: str


class ReadCustom(ScriptStep, tag="read-custom", frozen=True, gc=False, omit_defaults=True):
    """Read a tensor that lies in custom memory through the client's own pointer.

    Skipped unless the last invoke succeeded. Outputs: the tensor's value there; what the CPU has is in
    ``cpu``, as for `pytest_qnn.cases.script.Read`. Numbers: ``same`` (1: the runtime has the tensor there).
    """

    interpreter: str
    tensor: int


class ReadLog(ScriptStep, tag="read-log", frozen=True, gc=False, omit_defaults=True):
    """What the delegate has said at the level INFO since the last time, as ``lines``.

    Skipped where nobody can hear it.
    """

    delegate: str


CustomStep = AllocCustom | InspectCustom | FreeCustom | AssignCustom | ReadCustom | ReadLog
