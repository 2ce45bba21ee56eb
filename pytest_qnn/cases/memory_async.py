"""What a client does with the memory of an asynchronous execute.

Until its notification the client leaves the memory of the tensors alone. Within the notification it looks
at the output, and then writes to all of it: `OVER_INPUT` to every byte of the inputs, `OVER_OUTPUT` to every
byte of the output. A little later it looks whether that is still there. A call that fails notifies nobody,
and after an execution that failed nothing is overwritten.

Of several calls the last one is the step's own. Those before it, made without a wait in between, are of the
same graph and have raw memory of their own, with the inputs of `queued_seed`.
"""

from __future__ import annotations

OVER_INPUT = 0xA5
OVER_OUTPUT = 0x5A
MOST_CALLS = 8
PATIENCE = 2.0
"""Seconds within which a notification must come: the graphs of the suite take milliseconds."""


def queued_seed(call: int, position: int) -> int:
    """Seed of the `pytest_qnn.cases.data.contents` of an input, in call 0, 1, ... before the step's own."""
    return 1000 + 16 * call + position
