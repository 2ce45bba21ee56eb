"""Functions of the C library that no module of Python offers, and a process with few descriptors left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterator
from ctypes import c_int, c_long, c_size_t, c_void_p
from mmap import PAGESIZE

PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
MAP_SHARED, MAP_ANONYMOUS = 0x01, 0x20
MAP_PRIVATE_ANONYMOUS = 0x02 | MAP_ANONYMOUS
MAP_FAILED = ctypes.c_void_p(-1).value
MADV_DONTFORK, MADV_POPULATE_WRITE, MADV_COLLAPSE = 10, 23, 25
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3

_LIBC = ctypes.CDLL(None, use_errno=True)

mmap = _LIBC.mmap
mmap.restype, mmap.argtypes = c_void_p, (c_void_p, c_size_t, c_int, c_int, c_int, c_long)
munmap = _LIBC.munmap
munmap.restype, munmap.argtypes = c_int, (c_void_p, c_size_t)
madvise = _LIBC.madvise
madvise.restype, madvise.argtypes = c_int, (c_void_p, c_size_t, c_int)
mincore = _LIBC.mincore
mincore.restype, mincore.argtypes = c_int, (c_void_p, c_size_t, c_void_p)
malloc = _LIBC.malloc
malloc.restype, malloc.argtypes = c_void_p, (c_size_t,)
free = _LIBC.free
free.restype, free.argtypes = None, (c_void_p,)
memcmp = _LIBC.memcmp
memcmp.restype, memcmp.argtypes = c_int, (c_void_p, c_void_p, c_size_t)
mallopt = getattr(_LIBC, "mallopt", None)
"""glibc only."""

_malloc_trim = getattr(_LIBC, "malloc_trim", None)
_usable_size = getattr(_LIBC, "malloc_usable_size", None)
if _usable_size is not None:
    _usable_size.restype, _usable_size.argtypes = c_size_t, (c_void_p,)


class _Mallinfo2(ctypes.Structure):
    """Struct mallinfo2 of glibc 2.33 and later."""

    _fields_ = [
        (name, c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


_MALLINFO2 = getattr(_LIBC, "mallinfo2", None)
if _MALLINFO2 is not None:
    _MALLINFO2.restype, _MALLINFO2.argtypes = _Mallinfo2, ()


def malloc_in_use() -> int | None:
    """Bytes that malloc has given out and not got back, in all its arenas; None where glibc is too old."""
    if _MALLINFO2 is None:
        return None
    info = _MALLINFO2()
    return int(info.uordblks) + int(info.hblkhd)


def usable_size(block: int) -> int:
    """Bytes of a block of malloc's; 0 for NULL, and where the C library does not say."""
    return 0 if _usable_size is None else int(_usable_size(block))


_LIBC.dladdr.argtypes = (c_void_p, c_void_p)


def trim() -> None:
    """Give what malloc has free back to the system; nothing without glibc."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def in_library(address: int) -> bool:
    """Whether a loaded library's code or variables are there (dladdr(3))."""
    info = (c_void_p * 4)()
    return bool(_LIBC.dladdr(address, info))


_PR_SET_TIMERSLACK = 29
_PR_SET_THP_DISABLE = 41


def huge_pages(*, allowed: bool) -> None:
    """Let the kernel give this process transparent huge pages, or small ones only (prctl(2))."""
    _LIBC.prctl(_PR_SET_THP_DISABLE, *map(c_long, (not allowed, 0, 0, 0)))


PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37


def set_timer_slack(nanoseconds: int) -> None:
    """How late the kernel may wake this thread, and those that it starts, when a time is over (prctl(2)).

    0: as late as before; where nothing was set, 50 microseconds.
    """
    _LIBC.prctl(_PR_SET_TIMERSLACK, *map(c_long, (nanoseconds, 0, 0, 0)))


def set_as_it_is(get: int, set_: int) -> None:
    """Have prctl(2) set a number of this process to what it is: nothing changes, but a refusal shows.

    Args:
        get: the operation that reads the number.
        set_: the one that sets it.

    Raises:
        OSError: either is refused.
    """
    number = c_int()
    if _LIBC.prctl(get, ctypes.byref(number), *map(c_long, (0, 0, 0))) or _LIBC.prctl(
        set_, *map(c_long, (number.value, 0, 0, 0))
    ):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_EXIT_HANDLER = ctypes.CFUNCTYPE(None, c_void_p)
_EXIT_HANDLERS: list[object] = []


def at_exit(function: Callable[[int | None], None]) -> None:
    """Have exit(3) call a function, as the destructor of a library. It is never taken back."""
    callback = _EXIT_HANDLER(function)
    _EXIT_HANDLERS.append(callback)
    _LIBC.__cxa_atexit(callback, None, None)


def die_at_exit(still_there: Callable[[], bool]) -> None:
    """Have exit(3) end the process by SIGSEGV if something is still there then."""

    def destructor(_: int | None) -> None:
        if still_there():
            os.kill(os.getpid(), signal.SIGSEGV)

    at_exit(destructor)


_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def protect(address: int, size: int, protection: int) -> None:
    """Change what may be done with whole pages.

    Raises:
        OSError: the system refuses.
    """
    if _mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), "mprotect failed")


def executable(code: bytes) -> int:
    """The address of a copy of the machine code, a page at most, that can be run; 0: the system refuses."""
    address = mmap(None, PAGESIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    if address in (None, MAP_FAILED):
        return 0
    ctypes.memmove(address, code, len(code))
    try:
        protect(address, PAGESIZE, PROT_READ | PROT_EXEC)
    except OSError:
        munmap(address, PAGESIZE)
        return 0
    return int(address)


def close_given(fd: int) -> None:
    """Close a descriptor that a library was given; that it did so itself is for a rule to find."""
    with contextlib.suppress(OSError):
        os.close(fd)


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """The system refuses every new descriptor but ``count`` (EMFILE); those that are open go on.

    Memory that is to be shared with a processor is behind a descriptor (a memfd, a DMA buffer), so a backend
    cannot allocate much of it. The limit is no lower than the highest descriptor, since poll() refuses to
    look at more descriptors than the limit says; the numbers below it are taken meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    few = highest + 2 + count
    try:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (few if soft == resource.RLIM_INFINITY else min(few, soft), hard)
        )
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        for _ in range(min(count, len(taken))):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)
