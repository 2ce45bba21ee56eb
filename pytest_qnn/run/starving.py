"""A time in which descriptors are scarce: what makes calls fail from outside, on any target."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


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
