"""Sequences of allocations: what a client does with rpcmem alone."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.qnn.cases.case import Alloc, AnyStep, Free, MemoryCase, PointerKind, Read, ToFd, Write
from pytest_qnn.qnn.strategies.scene import Tape

_RECORD = 5
"""Bytes of one step."""
_BAD: tuple[PointerKind, ...] = ("interior", "unknown", "null")
_ACTS = 6


def allocation_sequences(
    max_steps: int = 20, max_size: int = 1 << 16, *, alignment: int = 1, invalid: bool = True
) -> st.SearchStrategy[MemoryCase]:
    """Any order of rpcmem_alloc, rpcmem_free, rpcmem_to_fd, writes and reads, of several buffers at once.

    Each drawn record gives one step, so a case has at most ``max_steps`` steps. With ``invalid`` pointers are
    freed and asked about that are NULL, unknown or inside a buffer: rpcmem_free ignores them
    and rpcmem_to_fd gives -1. Buffers that are left are freed when the case ends.

    Args:
        max_steps: 1 to 400.
        max_size: bytes of the largest buffer; sizes begin at ``alignment``.
        alignment: sizes are multiples of it.
        invalid: as said above.

    Raises:
        ValueError: a number is out of its range.
    """
    if not 1 <= max_steps <= 400:
        raise ValueError(f"max_steps is 1 to 400, not {max_steps}")
    if not 1 <= alignment <= max_size:
        raise ValueError(f"alignment is 1 to max_size ({max_size}), not {alignment}")

    def decode(data: bytes) -> MemoryCase:
        sizes: dict[str, int] = {}
        live: list[str] = []
        steps: list[AnyStep] = []
        for start in range(0, len(data), _RECORD):
            tape = Tape(data[start : start + _RECORD])
            act = tape.below(_ACTS + 1 if invalid else _ACTS)
            if act < 2 or not live:
                name = f"b{len(sizes)}"
                sizes[name] = (1 + tape.below(min(1 << 16, max_size // alignment))) * alignment
                live.append(name)
                steps.append(Alloc(name, sizes[name]))
            elif act == _ACTS:
                steps.append(_bad(tape, list(sizes)))
            else:
                steps.append(_good(tape, act, sizes, live))
        return MemoryCase(tuple(steps))

    return decoded(max_steps * _RECORD, decode)


def _good(tape: Tape, act: int, sizes: dict[str, int], live: list[str]) -> AnyStep:
    name = tape.pick(live)
    if act == 2:
        live.remove(name)
        return Free(name)
    if act == 3:
        return ToFd(name)
    if act == 4:
        size = 1 + tape.below(min(sizes[name], 256))
        return Write(name, size, tape.below(min(sizes[name] - size + 1, 1 << 16)), seed=tape.byte())
    return Read(name, via="fd" if tape.chance(2) else "client")


def _bad(tape: Tape, names: list[str]) -> AnyStep:
    # No pointer of a freed buffer: its address may be that of a new one, which would then be freed.
    asks, name, pointer = tape.chance(2), tape.pick(names), tape.pick(_BAD)
    return ToFd(name, pointer) if asks else Free(name, pointer)
