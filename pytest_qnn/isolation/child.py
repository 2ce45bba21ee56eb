"""The child's side of a case: answer one request, and end.

    python -m pytest_qnn.isolation.child SPEC WARM SLOT_FD READ_FD

is the body of a spawned child; a forked one calls `carry_out` when its case begins.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

import msgspec

from pytest_qnn.isolation import libc, process_state, processes, wire
from pytest_qnn.isolation.evidence import call_log, crash_handler
from pytest_qnn.isolation.worker import ENDS, Unusable, Worker, make_worker

FAILED = 70
"""Exit status of a child that could not even say what went wrong."""
_MEMORY = "the case used up the memory of its process, which may have 2 GiB"
_SPACE = 64 << 20
"""Bytes of memory that a process must still be given after a case, if it was before."""
_FILE = 1 << 20
"""Bytes that a file must still be allowed to have."""
_CANARY_LOST = "the case closed descriptors that are not its own"
_EXHAUSTED = {errno.ENOMEM: _MEMORY, errno.EMFILE: "the case used up the descriptors of its process"}


def main() -> None:
    """Load the target in this fresh interpreter and answer the request."""
    spec, warm, slot_fd, read_fd = sys.argv[1:5]
    processes.die_with_parent()
    before = process_state.look()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # which the supervisor has blocked
    slot = wire.Slot(int(slot_fd))
    slot.close_in_child()
    prefer_oom_kill()

    crash_handler.install()

    @functools.cache  # of several requests each is for the same one, and for what it keeps open
    def make() -> Worker:
        worker = make_worker(spec)
        before.restore()
        if warm == "1":
            worker.warm()
        return worker

    if wire.wait_for_start(int(read_fd)):
        carry_out(make, slot)


def carry_out(worker: Callable[[], Worker], slot: wire.Slot) -> None:
    """Answer the requests, one after another, and end the process. Each begins in the folder of the first.

    Exit status 0 of a child that has stopped by itself (`wire.Slot.stop`) says that its answers are whole.
    After an answer that is a death or an error it ends: the rest is for another child.
    """
    requests = _REQUESTS.decode(slot.read_request())
    folder = os.getcwd()
    slot.record_crash()
    calls = slot.call_log()
    call_log.activate(calls)
    # A target that closes descriptors that are not its own (one of them twice, or a whole range of numbers)
    # is likely to close this one too: reported as such, before the runner fails for want of a descriptor.
    canary = _Canary()
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    had_space, limits = _has_space(), _limits_of_memory()
    threads = _threads()

    def begin(step: int) -> None:
        if not canary.lives():  # the step before did it
            _leave(slot, wire.Answer(broken=_CANARY_LOST))
        if used_up := _without_files(largest):
            _leave(slot, wire.Answer(broken=used_up))
        slot.step(step)
        calls.begin_step(step)

    for number, request in enumerate(requests):
        if number:
            with contextlib.suppress(OSError):  # the case before has removed it
                os.chdir(folder)
        slot.step(-1)
        if number:
            with contextlib.suppress(Exception):  # then the case is without
                worker().accompany(request)
        calls.restart()
        ends = request.startswith(ENDS)
        try:
            answer = wire.Answer(worker().handle(request.removeprefix(ENDS), begin))
        except Unusable as error:
            answer = wire.Answer(unusable=str(error))
        except Exception as error:
            answer = _failure(error)
        calls.end_copy()
        starved = had_space and not _has_space() and (_limits_of_memory() != limits or _threads() <= threads)
        if exhausted := _without_files(largest) or (_MEMORY if starved else ""):
            if number:  # those before it may have used most: it is the first of another child
                _leave(slot)
            answer = wire.Answer(broken=exhausted)
        if not canary.lives():
            answer = wire.Answer(broken=_CANARY_LOST)
        broken = answer.broken or answer.unusable
        if ends or broken or number + 1 == len(requests):
            _leave(slot, answer, in_order=ends and not broken)
        if not slot.answer(_encoded(answer)):
            _leave(slot)


def _limits_of_memory() -> tuple[tuple[int, int], tuple[int, int]]:
    return resource.getrlimit(resource.RLIMIT_DATA), resource.getrlimit(resource.RLIMIT_AS)


def _threads() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 0


def _has_space() -> bool:
    """Whether this process is given memory. Else what needs some next would die of it.

    Where there are more threads than at first that alone is nobody's fault: each has a stack, of which it
    uses next to nothing.
    """
    address = libc.mmap(None, _SPACE, libc.PROT_READ | libc.PROT_WRITE, libc.MAP_PRIVATE_ANONYMOUS, -1, 0)
    if address in (None, libc.MAP_FAILED):
        return False
    libc.munmap(address, _SPACE)
    return True


def _without_files(largest: int) -> str:
    """What is wrong where the case has left no descriptor, or no file may have contents; else empty.

    Else the next step, or case, that needs one would die of it, and its rule have the finding.

    Args:
        largest: bytes that a file might have when the process began; -1: any number.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return _EXHAUSTED.get(error.errno or 0, "")
    now = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if now != largest and 0 <= now < _FILE:
        return f"the case has limited files and shared memory of its process to {now} bytes (RLIMIT_FSIZE)"
    return ""


class _Canary:
    """A descriptor that nobody else knows."""

    def __init__(self) -> None:
        self._descriptor = os.open(os.devnull, os.O_RDONLY)
        self._device = os.fstat(self._descriptor).st_rdev

    def lives(self) -> bool:
        """It is still what it was."""
        with contextlib.suppress(OSError):
            return os.fstat(self._descriptor).st_rdev == self._device
        return False


def _encoded(answer: wire.Answer) -> bytes:
    try:
        encoded = msgspec.msgpack.encode(answer)
    except MemoryError:
        return _OUT_OF_MEMORY
    if len(encoded) > wire.MOST_TAKEN:
        return msgspec.msgpack.encode(wire.Answer(large=len(encoded)))
    return encoded


def _leave(slot: wire.Slot, answer: wire.Answer | None = None, *, in_order: bool = False) -> None:
    """Answer, if there is an answer, and end the process: ``in_order`` through all destructors."""
    if answer is not None:
        slot.answer(_encoded(answer))
    slot.stop()
    if in_order:
        processes.end_in_order()
    # Without atexit functions, static destructors and Python's own finalisation: those of the target may
    # crash or hang, which would be blamed on a case that is over; and the memory goes with the process
    # anyway.
    os._exit(0)


def _failure(error: Exception) -> wire.Answer:
    """The target has left the process nothing to work with, has changed what is ours, or we have a defect.

    The last two look alike; the traceback goes to the evidence, with all that the child wrote to stderr.
    """
    for cause in _causes(error):
        if isinstance(cause, MemoryError):
            return wire.Answer(broken=_MEMORY)
        if isinstance(cause, OSError) and cause.errno in _EXHAUSTED:
            return wire.Answer(broken=_EXHAUSTED[cause.errno])
    with contextlib.suppress(OSError):
        os.write(2, traceback.format_exc().encode(errors="replace"))
    whose = "of the suite's own code or of what the target made of it"
    return wire.Answer(broken=f"an exception ended the case, {whose}: {error!r}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def prefer_oom_kill() -> None:
    """When the machine runs out of memory, let the kernel kill this process, not pytest (see proc(5))."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
        score.write(b"1000")


_REQUESTS = msgspec.msgpack.Decoder(list[bytes])
_OUT_OF_MEMORY = msgspec.msgpack.encode(wire.Answer(broken=_MEMORY))


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(FAILED)
