"""Accesses to pages that must not be touched, turned from a process's end into a record.

While zones are registered, a SIGSEGV whose address lies in one of them is reported to the zone, which opens
the page; the access then goes on where it was. Any other SIGSEGV goes to the handler that was there before.

The handler is a Python function, and yet safe here: it runs synchronously, at a faulting load or store of a
delegate's code, where the thread can wait for the interpreter lock as in any callback from C. Python's own
`signal` module is of no use: it runs handlers later, between bytecodes, and the faulting instruction would
be tried again for ever.
"""

from __future__ import annotations

import ctypes
import platform
import signal
from typing import Final, Protocol

from pytest_qnn.tflite.abi import peek
from pytest_qnn.tflite.trace import Access

_SA_SIGINFO, _SA_NODEFER = 4, 0x40000000
_SI_ADDR: Final = 16
"""Offset of si_addr in siginfo_t."""
_ERROR_CODE: Final = 40 + 19 * 8
"""Offset of gregs[REG_ERR] in ucontext_t (x86-64): bit 1 says that the access was a write."""
_RESERVED: Final = 464
"""Offset of uc_mcontext.__reserved in ucontext_t (AArch64): records, each behind its magic and its size."""
_RESERVED_SIZE: Final = 4096
_ESR_MAGIC: Final = 0x45535201
"""Of the record with the exception syndrome (asm/sigcontext.h): bit 6 says that the access was a write.

The kernel adds it to a SIGSEGV; qemu-user 7.2 does not.
"""


class Zone(Protocol):
    """A range of pages."""

    begin: int
    end: int

    def touched(self, address: int, access: Access) -> bool:
        """Record the access and open the page; False: it is none of this zone's business."""


class _SigAction(ctypes.Structure):
    """Struct sigaction of glibc and musl on 64-bit Linux."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


_sigaction = ctypes.CDLL(None, use_errno=True).sigaction
_sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_zones: Final[list[Zone]] = []
_previous: Final = _SigAction()
"""Who had the signal before the first zone."""


def register(zone: Zone) -> None:
    """Report accesses to the zone from now on."""
    if not _zones:
        _sigaction(signal.SIGSEGV, ctypes.addressof(_OURS), ctypes.addressof(_previous))
    _zones.append(zone)


def unregister(zone: Zone) -> None:
    """Take `register` back; with the last zone the signal is given back to the handler before."""
    _zones.remove(zone)
    if not _zones:
        _give_back()


def _give_back() -> None:
    _sigaction(signal.SIGSEGV, ctypes.addressof(_previous), None)


def access_of(context: int, processor: str) -> Access:
    """What the access was that ended in SIGSEGV; ``access`` where that is not known.

    Args:
        context: address of the signal's ucontext_t.
        processor: as `platform.machine`.
    """
    if processor == "x86_64":
        return "write" if peek.pointer(context + _ERROR_CODE) & 2 else "read"
    if processor == "aarch64":
        syndrome = _syndrome(context + _RESERVED)
        if syndrome is not None:
            return "write" if syndrome & 1 << 6 else "read"
    return "access"


def _syndrome(record: int) -> int | None:
    """ESR_EL1 out of the records that begin at this address; None: it is in none."""
    end = record + _RESERVED_SIZE
    while record <= end - 16:
        size, magic = divmod(peek.pointer(record), 1 << 32)
        if magic == _ESR_MAGIC:
            return peek.pointer(record + 8)
        if magic == 0 or size < 8:
            return None
        record += size
    return None


def _on_fault(_: int, info: int, machine: int) -> None:
    try:
        address = peek.pointer(info + _SI_ADDR)
        access = access_of(machine, platform.machine())
        if any(zone.begin <= address < zone.end and zone.touched(address, access) for zone in _zones):
            return
    except BaseException:
        # The access is tried again when this returns: with our handler it would fail here for ever.
        _give_back()
        raise
    _give_back()


# Made once per process and kept: the kernel holds its address for as long as zones are registered.
_callback: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_on_fault)
# NODEFER: a fault while the handler is at work reaches it too; blocked, it would end the process.
_OURS: Final = _SigAction(
    handler=ctypes.cast(_callback, ctypes.c_void_p).value, flags=_SA_SIGINFO | _SA_NODEFER
)
