"""What is seen of a `pytest_qnn.qnn.cases.case.MemoryCase`."""

from __future__ import annotations

import msgspec

from pytest_qnn.core.target import Death
from pytest_qnn.qnn.facts import MemoryFacts


class StepSeen(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one step of a `MemoryCase` gave."""

    code: int | None = None
    """The Qnn_ErrorHandle_t as returned, all 64 bits; None: no QNN call was made."""
    calls: tuple[tuple[str, int], ...] = ()
    """Prepare: each call with its code, in order (the last one is the failed one, if any)."""
    values: tuple[int, ...] = ()
    """Handle values, pointers, descriptors: for each kind of step see the table in
    `pytest_qnn.qnn.runner.run`.

    0x5555555555555555: the call did not write this handle.
    """
    data: tuple[bytes, ...] = ()
    """Bytes read: outputs of an execute, or of a Read."""
    counts: dict[str, int] = {}
    """Observe: fds, mappings, memfds, memfd:NAME, regions, vm, rss. Execute: inputs_changed, output_overrun.

    Alloc: first_writable, last_writable. Register: descriptors_changed. Providers: count, listed. One that is
    absent is nought.
    """
    regions: tuple[tuple[int, int], ...] = ()
    """Observe: (address, resident bytes) of each mapping of the wanted size."""
    skipped: str = ""
    """Why the step was not carried out (an object it needs was never made)."""


class MemoryTrace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was seen of a `MemoryCase`."""

    session: tuple[tuple[str, int], ...] = ()
    """Codes of opening the session, in order, up to the first failure."""
    steps: tuple[StepSeen, ...] = ()
    closing: tuple[tuple[str, int], ...] = ()
    """Codes of closing it."""
    ended: bool = False
    """The process ended in good order after the last step, as the case asked for."""
    death: Death | None = None
    facts: MemoryFacts | None = None
    """What is known of the target; the target adds it after the trace has come back."""
