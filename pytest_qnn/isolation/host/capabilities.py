"""Capabilities of a supervisor and its children (capabilities(7)): those of root, in parts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import Final

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITIES = 64
"""More than any kernel has."""
_HEADER = struct.pack("<Ii", 0x20080522, 0)
"""Struct __user_cap_header_struct, version 3, of this process."""
_SETS = struct.Struct("<6I")
"""Effective, permitted, inheritable of the first 32 capabilities, and the same of the others."""
_WORD = 0xFFFFFFFF

OF_THE_SYSTEM: Final = frozenset(
    {
        *(8, 9),  # SETPCAP, LINUX_IMMUTABLE
        *(10, 11, 12, 13),  # NET_BIND_SERVICE, NET_BROADCAST, NET_ADMIN, NET_RAW
        *(16, 18, 20, 22),  # SYS_MODULE, SYS_CHROOT, SYS_PACCT, SYS_BOOT
        *(25, 26, 27, 28),  # SYS_TIME, SYS_TTY_CONFIG, MKNOD, LEASE
        *(29, 30, 31, 32, 33),  # AUDIT_WRITE, AUDIT_CONTROL, SETFCAP, MAC_OVERRIDE, MAC_ADMIN
        *(34, 35, 36, 37, 39),  # SYSLOG, WAKE_ALARM, BLOCK_SUSPEND, AUDIT_READ, BPF
    }
)
"""What changes the system or its network, and is needed by nothing that computes or drives a device.

Kept outside namespaces are those of files and their owners, of devices (SYS_RAWIO, SYS_ADMIN), of memory and
scheduling (IPC_LOCK, SYS_NICE, SYS_RESOURCE, PERFMON), and what the supervisor itself needs to look at
children that hide (SYS_PTRACE, KILL).
"""


def drop_all() -> None:
    """None that this process has is left, nor one that it could gain by starting a program.

    Raises:
        OSError: that is refused.
    """
    _clear_what_is_gained(frozenset(range(_CAPABILITIES)))
    _set(0, 0, 0)


def drop_those_of_the_system() -> None:
    """`OF_THE_SYSTEM` are gone, where this process had some; nothing happens where that is refused."""
    sets = ctypes.create_string_buffer(_SETS.size)
    if _LIBC.capget(_HEADER, sets):
        return
    words = _SETS.unpack(sets.raw)
    effective, permitted, inheritable = (
        low | high << 32 for low, high in zip(words[:3], words[3:], strict=True)
    )
    if not permitted:
        return
    _clear_what_is_gained(OF_THE_SYSTEM)
    kept = ~sum(1 << number for number in OF_THE_SYSTEM)
    with contextlib.suppress(OSError):
        _set(effective & kept, permitted & kept, inheritable & kept)


def _clear_what_is_gained(numbers: frozenset[int]) -> None:
    """By execve(2): the ambient set whole, and these of the bounding set."""
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for number in numbers:
        _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # EINVAL behind the kernel's last


def _set(effective: int, permitted: int, inheritable: int) -> None:
    sets = (effective, permitted, inheritable)
    data = _SETS.pack(*(each & _WORD for each in sets), *(each >> 32 & _WORD for each in sets))
    if _LIBC.capset(_HEADER, data):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
