"""What rules about rpcmem read in traces of its calls."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.core.verdict import Violation
from pytest_qnn.qnn.cases.case import Alloc, MemoryCase, Read, Write
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.rules.judging import bytes_read, steps_of
from pytest_qnn.qnn.strategies.scene import Tape
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

_SIZES = (1, PAGE, PAGE + 1, 3 * PAGE, 64, 1 << 20)


def pointer_of(seen: StepSeen) -> int:
    """The address that an Alloc gave; 0 is NULL."""
    return seen.values[0] if seen.values else 0


def fd_of(seen: StepSeen) -> int:
    """The descriptor that a ToFd gave."""
    return seen.values[0] if seen.values else -1


def some_size(tape: Tape) -> int:
    """A size of a buffer: a byte, a page, a little more, up to a megabyte."""
    return tape.pick(_SIZES) + tape.below(2) * tape.below(5000)


def written(case: MemoryCase, trace: MemoryTrace, via: str) -> Iterator[tuple[int, str, bytes, bytes]]:
    """(index, buffer, bytes read, bytes expected) where a read follows writes; unwritten bytes agree."""
    images: dict[str, dict[int, int]] = {}
    sizes: dict[str, int] = {}
    for index, step, seen in steps_of(case, trace):
        if isinstance(step, Alloc) and pointer_of(seen):
            images[step.buffer], sizes[step.buffer] = {}, step.size
        elif isinstance(step, Write) and step.buffer in images:
            written = contents(step.dtype, step.seed, step.size)
            images[step.buffer].update(enumerate(written, step.offset))
        elif isinstance(step, Read) and step.via == via and step.buffer in images:
            data = bytes_read(seen)
            if data is None:
                raise Violation("readable memory", seen.skipped, read_at(index, step.buffer))
            expected = bytearray(data[: sizes[step.buffer]].ljust(sizes[step.buffer], b"\0"))
            for at, byte in images[step.buffer].items():
                expected[at] = byte
            yield index, step.buffer, data[: sizes[step.buffer]], bytes(expected)


def read_at(index: int, buffer: str) -> str:
    """Where a read went wrong."""
    return f"step {index}, read of {buffer}"


def first_difference(expected: bytes, seen: bytes) -> str:
    """The first byte that is not as expected, in words."""
    if len(expected) != len(seen):
        return f"{len(seen)} bytes of {len(expected)}"
    at = next(at for at, (a, b) in enumerate(zip(expected, seen, strict=True)) if a != b)
    return f"0x{seen[at]:02x} for 0x{expected[at]:02x} at byte {at} of {len(expected)}"
