"""What is seen of a process beside its answers: what it left that died of a case; changed control words."""

from __future__ import annotations

import re

import msgspec


class Call(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A call of a target's function, or a callback by the runtime."""

    name: str
    status: int | None = None
    """What it returned, all 64 bits; None: it did not return."""
    step: int = -1
    """The step (memory, script, plugin) or phase (delegate) that had begun; -1: none."""
    result: str = ""
    """The status in words."""

    @property
    def text(self) -> str:
        """On one line."""
        if self.status is None:
            return f"{self.name} did not return"
        return f"{self.name} -> {self.result or self.status}"


class Frame(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A place in the native code of the thread that died."""

    file: str
    """Path of the library or program; empty: no file is mapped there."""
    offset: int
    """Bytes from the start of the file; without a file, the address."""
    text: str = ""
    """``libfoo.so+0x1234 (name+0x12)``: the same in each run. Offsets are those of the file's symbols."""
    line: str = ""
    """``source.c:12``, where that is known."""

    @property
    def place(self) -> str:
        """The text, with the line where that is known."""
        return f"{self.text} at {self.line}" if self.line else self.text


class Evidence(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a child that died. Empty is what it did not leave."""

    during: str = ""
    """The call, callback or kernel at work: ``QnnMem_register``."""
    fault: str = ""
    """Why the kernel sent the signal: ``SEGV_MAPERR at 0x8, near NULL``."""
    frames: tuple[Frame, ...] = ()
    """Where the signal came, then its callers, up to the first that is Python's."""
    calls: tuple[Call, ...] = ()
    """In order; of many the last ones."""
    stderr: str = ""
    """The end of what was written to stderr, without control characters."""

    def __bool__(self) -> bool:
        """The child left something."""
        return self != _NOTHING

    @property
    def is_of_heap(self) -> bool:
        """The C library, or the suite's checked heap, ended it for what was done with blocks of memory."""
        return IN_HEAP in self.fault or _MISUSE.search(self.said) is not None

    @property
    def is_of_exception(self) -> bool:
        """A C++ exception came out of the target, and its caller died of it.

        Python's lock is not held in that call, and the runtime's binding makes an error of the exception.
        """
        return any(_TRANSLATED in frame.text for frame in self.frames)

    @property
    def said(self) -> str:
        """The line of stderr that says most: a failed assertion's, a sanitizer's first, else the last one."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return next(filter(_TELLING.search, lines), lines[-1] if lines else "")


_NOTHING = Evidence()
IN_HEAP = ", behind the end of a block that was requested, or in one that was freed"
"""What `Evidence.fault` says of an address in the checked heap."""
_MISUSE = re.compile(
    r"^(checked heap: |(malloc|calloc|free|realloc|memalign|munmap_chunk|malloc_consolidate)\(\): "
    r"|corrupted (size vs\. prev_size|double-linked list)|double free or corruption"
    r"|Fatal glibc error: malloc)"
)
"""What malloc and free of glibc say of blocks, or of their lists, that were overwritten or freed twice."""
_TRANSLATED = "pybind116detail19translate_exception"
"""In the name of the function of pybind11 that makes errors of exceptions."""
_TELLING = re.compile(r"[Aa]ssert|Sanitizer: |terminate called|runtime error: |^\*\*\* ")


class ControlWords(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Control bits of the floating-point unit of a thread on x86-64; status bits are no part of them."""

    mxcsr: int
    """Of the SSE unit."""
    x87: int

    @property
    def text(self) -> str:
        """``MXCSR 0x9f80 (flush-to-zero), x87 control word 0x37f``."""
        said = [name for bit, name in _MXCSR_BITS if self.mxcsr & bit]
        said += filter(None, [_ROUNDING[self.mxcsr >> _MXCSR_ROUNDING & 3]])
        said += [] if self.mxcsr & _MXCSR_MASKS == _MXCSR_MASKS else ["exceptions not masked"]
        meaning = f" ({', '.join(said)})" if said else ""
        return f"MXCSR {self.mxcsr:#06x}{meaning}, x87 control word {self.x87:#06x}"


_MXCSR_BITS = ((0x8000, "flush-to-zero"), (0x0040, "denormals-are-zero"))
_MXCSR_ROUNDING = 13
_ROUNDING = ("", "rounding down", "rounding up", "rounding towards zero")
_MXCSR_MASKS = 0x1F80


class ControlChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call that has left other control words than it found."""

    where: str
    """The call, callback or phase; ``loading FILE``."""
    step: int
    """Of the case; -1: none had begun."""
    before: ControlWords
    after: ControlWords
