"""Memory for one tensor between pages that must not be touched.

    | no access | pattern ... data ... pattern | no access |

The pattern, of bytes that are NaN as float32, shows writes beside the data to the byte; the pages show
reads and writes beyond it. Each tensor has another pattern: a kernel that goes on behind all its tensors
makes the NaN behind the result of that behind an operand, and would leave it as it was.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.core.contents import hashed
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.libc import protect
from pytest_qnn.tflite.abi import peek
from pytest_qnn.tflite.cases.script import Guard
from pytest_qnn.tflite.observe import segv
from pytest_qnn.tflite.trace import Access, TouchReason

PAGE: Final[int] = os.sysconf("SC_PAGE_SIZE")
ALIGNMENT: Final = 64
"""tflite::kDefaultTensorAlignment, bytes."""
TAIL: Final = 16
"""Bytes behind the data that a kernel may read: XNN_EXTRA_BYTES, which XNNPACK's kernels ask for."""
_PATTERNS: Final = tuple(bytes((byte, 0xFF)) for byte in range(0xC1, 0xFF, 2))
"""Quiet NaN as float32."""
_MAP_PRIVATE: Final = 0x02
_OPEN: Final = libc.PROT_READ | libc.PROT_WRITE

OnTouch = Callable[[TouchReason, Access, int], None]
"""(why, access, offset from the start of the data)."""


class Guarded:
    """Pages of which the middle holds ``size`` bytes at ``address``, all of them used at first.

    Args:
        size: bytes of the buffer.
        guard: which end of the data lies against a page.
        misalign: bytes from a multiple of `ALIGNMENT`; of no matter for ``flush``.
        seed: contents of the data, and which pattern is beside them.
        tail: bytes behind the data that may be read, where these lie against the page behind them.

    Raises:
        MemoryError: there are no pages to be had.
    """

    def __init__(
        self, size: int, guard: Guard = "after", misalign: int = 0, seed: int = 0, *, tail: int = TAIL
    ) -> None:
        self.size = size
        self._tail = tail
        self._bytes = _PATTERNS[seed % len(_PATTERNS)]
        body = -(-(size + 2 * ALIGNMENT + (PAGE if guard == "none" else 0)) // PAGE) * PAGE
        self._total = body + 2 * PAGE
        flags = _MAP_PRIVATE | libc.MAP_ANONYMOUS
        begin: int = libc.mmap(None, self._total, 0, flags, -1, 0)
        if begin == libc.MAP_FAILED:
            raise MemoryError(f"no {self._total} bytes of pages")
        self.begin = begin
        self.end = self.begin + self._total
        self._inside: tuple[int, int] = (self.begin + PAGE, self.end - PAGE)
        self.address = self._place(guard, misalign)
        self.readonly = False
        self.given_back = False
        self.on_touch: OnTouch | None = None
        protect(self._inside[0], body, _OPEN)
        self.use(0)
        self.use(size)
        self.data()[:] = hashed(size // 4 + 1, seed).view(np.uint8)[:size]
        segv.register(self)

    def data(self) -> npt.NDArray[np.uint8]:
        """The buffer as bytes, without copying."""
        return peek.array(self.address, np.uint8, (self.size,))

    def use(self, used: int) -> None:
        """From now on the first ``used`` bytes hold the data, and those behind them the pattern."""
        self.open()
        self.used = min(used, self.size)
        for begin, expected in self._beside():
            ctypes.memmove(begin, expected, len(expected))

    def open(self) -> None:
        """Let the client write the data."""
        if not self.given_back:
            protect(self._inside[0], self._inside[1] - self._inside[0], _OPEN)

    def arm(self) -> None:
        """Close the pages at both ends, and the data where it is read-only."""
        protect(self.begin, PAGE, 0)
        protect(self._inside[1], PAGE, 0)
        access = libc.PROT_READ if self.readonly else _OPEN
        protect(self._inside[0], self._inside[1] - self._inside[0], 0 if self.given_back else access)

    def put_behind(self, found: bytes) -> None:
        """Write what is at the beginning of the page behind, for who reads on there when it is open."""
        protect(self._inside[1], PAGE, _OPEN)
        ctypes.memmove(self._inside[1], found, len(found))
        protect(self._inside[1], PAGE, 0)

    def give_back(self) -> None:
        """From now on nobody may touch the buffer."""
        self.given_back = True
        self.arm()

    def changed(self) -> int | None:
        """Offset of the first byte beside the data that has changed since the last look."""
        if self.given_back:
            return None
        for begin, expected in self._beside():
            if ctypes.string_at(begin, len(expected)) != expected:
                beside = peek.array(begin, np.uint8, (len(expected),))
                first = int(np.flatnonzero(beside != np.frombuffer(expected, np.uint8))[0])
                if not self.readonly:
                    ctypes.memmove(begin, expected, len(expected))
                return begin + first - self.address
        return None

    def touched(self, address: int, access: Access) -> bool:
        """Record the access, and open its page."""
        offset = address - self.address
        within = 0 <= offset < self.used
        why: TouchReason = "given-back" if self.given_back else "constant" if within else "outside"
        if self.on_touch is not None:
            self.on_touch(why, access, offset)
        # Or the instruction would fault again. `arm` closes the page before the next call.
        protect(address // PAGE * PAGE, PAGE, _OPEN)
        return True

    def close(self) -> None:
        """Unmap everything."""
        segv.unregister(self)
        libc.munmap(self.begin, self._total)

    def _place(self, guard: Guard, misalign: int) -> int:
        first, last = self._inside
        if guard == "flush":
            return last - self._tail - self.size
        if guard == "after":
            return (last - self._tail - self.size - misalign) // ALIGNMENT * ALIGNMENT + misalign
        return first + misalign + (PAGE // 2 if guard == "none" else 0)

    def _beside(self) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
        """(address, bytes that must be there) before and behind the data."""
        first, last = self._inside
        behind = self.address + self.used
        before = _pattern(self._bytes, self.address - first)
        return (first, before), (behind, _pattern(self._bytes, last - behind))


@functools.lru_cache(maxsize=1024)
def _pattern(two: bytes, count: int) -> bytes:
    return (two * (count // 2 + 1))[:count]
