"""What a supervisor without namespaces of its own, and its children, cannot reach. It takes no rights.

* Signals, and the memory, of processes that are not theirs: a Landlock domain (Linux 6.12 and later,
  landlock(7)), whose processes signal and trace each other and no others. It restricts nothing else.
* Limits of other processes: a filter of system calls refuses prlimit(2) with another process' id and new
  limits (seccomp(2)). Another process cannot be told from the caller: who names itself by its id is refused
  too, and 0 is what setrlimit(3) uses.
* The system and its network, as root can: of the capabilities those are dropped that no driver needs
  (`capabilities.OF_THE_SYSTEM`).
* Mounts, where the process may have some of its own (root): the same ones, of which changes stay here.

Each is left out where the kernel refuses it. In `pytest_qnn.isolation.namespaces` none of it is needed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

from pytest_qnn.isolation.host import capabilities

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_SYS_LANDLOCK_RESTRICT_SELF: Final = 446
_GET_VERSION: Final = 1
_SCOPE_SIGNAL: Final = 1 << 1
_ABI_OF_SCOPES: Final = 6
"""Version of Landlock's interface that has `_SCOPE_SIGNAL`."""
_RULESET = struct.Struct("<QQQ")
"""Struct landlock_ruleset_attr: file system, network, scopes."""

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
"""Of struct sock_filter: BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K."""
_INSTRUCTION = struct.Struct("=HBBI")
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Bytes before these in struct seccomp_data; each argument has eight."""
_PRLIMIT64: Final = {
    "x86_64": ((0xC000003E, 302), (0xC000003E, 302 | 1 << 30), (0x40000003, 340)),
    "aarch64": ((0xC00000B7, 261), (0x40000028, 369)),
}
"""By machine: AUDIT_ARCH and the number of prlimit64, of each way by which a process may enter the kernel. Of
x86-64 also those of x32 and i386, of AArch64 that of 32-bit ARM."""

_CLONE_NEWNS: Final = 0x20000
_MS_REC_PRIVATE: Final = 0x4000 | 0x40000


def confine() -> None:
    """Make it so for this process, and for all that it forks from now on. It is undone by nothing.

    It must gain no privileges (`processes.gain_no_privileges`), and have one thread.
    """
    if not _LIBC.unshare(_CLONE_NEWNS):
        _LIBC.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None)
    _keep_signals()
    _keep_limits()
    capabilities.drop_those_of_the_system()


def _ruleset() -> int:
    """A descriptor of the rules.

    Raises:
        OSError: this kernel has none, or it is refused.
    """
    version = _LIBC.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION)
    if 0 <= version < _ABI_OF_SCOPES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    rules = _RULESET.pack(0, 0, _SCOPE_SIGNAL)
    fd: int = _LIBC.syscall(_SYS_LANDLOCK_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def _keep_signals() -> None:
    try:
        fd = _ruleset()
    except OSError:
        return
    _LIBC.syscall(_SYS_LANDLOCK_RESTRICT_SELF, fd, 0)
    os.close(fd)


def _keep_limits() -> None:
    known = _PRLIMIT64.get(os.uname().machine)
    if known is None:
        return
    calls: list[tuple[int, int, int, int]] = []
    for place, (architecture, number) in enumerate(known):
        behind = 4 * (len(known) - place - 1)  # instructions of the calls that are compared later
        calls += [
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_JUMP_IF_EQUAL, 0, 2, architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_JUMP_IF_EQUAL, behind + 1, 0, number),
        ]
    new_limits = _FIRST_ARGUMENT + 2 * 8
    program = b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            *calls,
            (_RETURN, 0, 0, _ALLOW),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_JUMP_IF_EQUAL, 4, 0, 0),  # of the caller
            (_LOAD, 0, 0, new_limits),
            (_JUMP_IF_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, new_limits + 4),
            (_JUMP_IF_EQUAL, 0, 1, 0),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        )
    )
    # struct sock_fprog: the number of instructions, and where they are.
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // _INSTRUCTION.size, ctypes.addressof(instructions))
    _LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0)
