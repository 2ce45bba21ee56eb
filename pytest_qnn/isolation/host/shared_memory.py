"""Memory behind a descriptor, which processes can share: a memfd, or an unlinked file where there is none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

_REFUSED = (errno.ENOSYS, errno.EPERM, errno.EACCES)
"""From memfd_create: no such call, a container's profile forbids it, or vm.memfd_noexec is 2."""
_LONGEST_NAME = 200
"""Bytes; memfd_create takes 249, and a file's name has 255 with what is added to it."""


def shared_memory(name: str, size: int, *, fixed: bool = False) -> int:
    """A descriptor of ``size`` zero bytes that only this process has, closed on exec.

    Pages of it that nobody touches take no memory. The last part of its path, in links and listings of /proc,
    begins with ``memfd:`` and the name in either case.

    Args:
        name: what it is for.
        size: in bytes.
        fixed: nobody shall make it smaller, not even who gets the descriptor. A file cannot be sealed: there
            it depends on nobody getting it.

    Raises:
        OSError: no descriptor or no room for it.
    """
    short = name.encode()[:_LONGEST_NAME].decode(errors="ignore")
    fd = _memfd(short, fixed=fixed)
    sealed = fd is not None and fixed
    if fd is None:
        fd = _unlinked_file(short, size)
    try:
        os.ftruncate(fd, size)
        if sealed:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    except OSError:
        os.close(fd)
        raise
    return fd


def _memfd(name: str, *, fixed: bool) -> int | None:
    """An empty memfd; None: there are none here."""
    # A Python that was built for an old glibc, as conda's was, has no such function on any kernel.
    if not hasattr(os, "memfd_create"):
        return None
    try:
        return os.memfd_create(name, os.MFD_CLOEXEC | (os.MFD_ALLOW_SEALING if fixed else 0))
    except OSError as error:
        if error.errno in _REFUSED:
            return None
        raise


def _unlinked_file(name: str, size: int) -> int:
    """An empty file without a name, where there is room for it.

    Room, because a page that the file system cannot give is SIGBUS for who touches it, and /dev/shm of a
    container has 64 MB unless somebody said otherwise.
    """
    # Without `tempfile`, which children would have to load for this alone.
    folders = ("/dev/shm", os.environ.get("TMPDIR") or "/tmp")
    for folder in folders:
        with contextlib.suppress(OSError):
            free = os.statvfs(folder)
            if free.f_bavail * free.f_frsize >= size:
                return _made_and_unlinked(f"{folder}/memfd:{name.replace('/', '_')}-{os.urandom(8).hex()}")
    lack = "memfd_create is refused, and no file can be made in"
    raise OSError(errno.ENOSPC, f"{lack} {' or '.join(folders)}, or there are no {size} bytes free")


def _made_and_unlinked(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd
