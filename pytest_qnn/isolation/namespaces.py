"""A supervisor and its children apart from all other processes, where the kernel lets us (namespaces(7)).

In namespaces of their own for process ids, System V memory, message queues and mounts, the supervisor is
process 1: no signal of its children has an effect on it, they see no process but their own, and when it ends,
the kernel ends them all. /dev/shm is a file system of their own. And they have no capabilities
(capabilities(7)), so that what runs as root can do to the system what any user can, but for files of root.

Needed is CAP_SYS_ADMIN, which root has outside containers. A user namespace would give it to any user, but
takes groups and with them device files away: what a vendor's library opens there would not be what it opens
elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil

from pytest_qnn.isolation.host import capabilities

SWITCH = "PYTEST_QNN_NAMESPACES"
"""Environment variable: 0 for what is in force where the kernel allows none."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWPID = 0x20000, 0x08000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
_MNT_DETACH = 2
_SHARED_MEMORY = "/dev/shm"
"""Where shm_open(3) puts what it makes."""
_PID_MAX = "/proc/sys/kernel/pid_max"
_PROCESSES = 1024
"""Processes and threads at most. Each costs a megabyte of page tables alone, and multiplies faster than it is
killed."""
_PID_MAX_OF_NAMESPACE = (6, 14)
"""The Linux version from which `_PID_MAX` is the namespace's own and not the system's."""
_IPC_RMID = 0
_SYSTEM_V = (("shm", "shmctl", 3), ("sem", "semctl", 4), ("msg", "msgctl", 3))
"""File in /proc/sysvipc; the function that removes, and the number of its arguments."""


def wanted() -> bool:
    """Whether they are to be tried at all."""
    return os.environ.get(SWITCH) != "0"


def separate_children() -> bool:
    """Give the next child, and all that it forks, process ids of their own; whether that is allowed.

    It is undone by no later call: this process then makes no further child.
    """
    return not _LIBC.unshare(_CLONE_NEWPID)


def enter() -> Queues | None:
    """As process 1 of `separate_children`: the rest of what the module promises.

    Returns the POSIX message queues of these namespaces; None where they cannot be looked at.

    Raises:
        OSError: something of it is not allowed here.
    """
    _demand(_LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWIPC))
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)
    # Else /proc/PID would be another process than that with this id.
    _mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _limit_processes()
    queues = None
    if os.path.isdir(_SHARED_MEMORY):
        queues = _queues(_SHARED_MEMORY.encode())
        _mount(b"tmpfs", _SHARED_MEMORY.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=1777")
    capabilities.drop_all()
    return queues


class Queues:
    """The POSIX message queues of these namespaces, by a directory of them that is mounted nowhere.

    Args:
        fd: of the directory.

    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._device = os.fstat(fd).st_dev

    def names(self) -> frozenset[str]:
        """Of all that there are; none where somebody closed the descriptor."""
        with contextlib.suppress(OSError):
            if os.fstat(self.fd).st_dev == self._device:
                return frozenset(os.listdir(self.fd))
        return frozenset()

    def remove(self, name: str) -> None:
        """Remove one of `names`."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.fd)


def _queues(place: bytes) -> Queues | None:
    """They are mounted at a place for as long as it takes to open it. None: this kernel has none."""
    if _LIBC.mount(b"none", place, b"mqueue", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC), None):
        return None
    try:
        return Queues(os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    finally:
        _demand(_LIBC.umount2(place, _MNT_DETACH))


def _limit_processes() -> None:
    release = os.uname().release.split(".")
    if len(release) > 1 and tuple(map(_leading_number, release[:2])) >= _PID_MAX_OF_NAMESPACE:
        with contextlib.suppress(OSError), open(_PID_MAX, "w", encoding="ascii") as file:
            file.write(str(_PROCESSES))


def _leading_number(text: str) -> int:
    digits = "".join(itertools.takewhile(str.isdecimal, text))
    return int(digits) if digits else 0


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    _demand(_LIBC.mount(source, target, kind, ctypes.c_ulong(flags), data))


def _demand(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Leftovers:
    """Shared memory, semaphores and message queues that stay when the process that made them has ended.

    What is there at first belongs to the target. Only for namespaces of one's own: elsewhere nobody can tell
    whose such a thing is.

    Args:
        queues: the message queues of POSIX, if they can be looked at.

    """

    def __init__(self, queues: Queues | None) -> None:
        self._queues = queues
        self._files = _files()
        self._numbers = _numbers()
        self._names = self._queue_names()

    def _queue_names(self) -> frozenset[str]:
        return self._queues.names() if self._queues else frozenset()

    @property
    def there_at_first(self) -> bool:
        """Whether the target made any while it was loaded."""
        return bool(self._files or self._numbers or self._names)

    def remove(self) -> bool:
        """Remove what was made since; whether there was anything."""
        files, numbers = _files() - self._files, _numbers() - self._numbers
        names = self._queue_names() - self._names
        for name in files:
            path = f"{_SHARED_MEMORY}/{name}"
            try:
                os.unlink(path)
            except OSError:  # a folder
                shutil.rmtree(path, ignore_errors=True)
        for function, arguments, number in numbers:
            call = (number, 0, _IPC_RMID, None) if arguments == 4 else (number, _IPC_RMID, None)
            getattr(_LIBC, function)(*call)
        for name in names:
            assert self._queues is not None
            self._queues.remove(name)
        return bool(files or numbers or names)


def _files() -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(os.listdir(_SHARED_MEMORY))
    return frozenset()


def _numbers() -> frozenset[tuple[str, int, int]]:
    """Of what System V has here: the function that removes it, the number of its arguments, its id."""
    found = set()
    for file, function, arguments in _SYSTEM_V:
        with contextlib.suppress(OSError), open(f"/proc/sysvipc/{file}", "rb") as listing:
            lines = listing.read().splitlines()[1:]
            found |= {(function, arguments, int(line.split()[1])) for line in lines}
    return frozenset(found)
