"""Native threads that make calls at once, for races of a few nanoseconds.

Threads of Python's take turns: each gives Python's lock up for its call, and another one has it by the time
that call returns. Calls of less than some microseconds hardly ever meet so. Here machine code makes the calls
(`pytest_qnn/native/call_threads.c`), one list in each thread, again and again.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.host.refusals import Lacking

CODE: Final = a2b_base64(
    "QVVMjS1NAgAAQVRMjaeYAAAAVTHtU0iJ+1FIOytzGEmNTCTITInnTInqMfb/UxhJg8RAhcB0RjHASDsrSIt7KIlrTA+SwIlDROhuAQAA"
    "SANDEEiNc0BIiUM4uAEAAACHBkUxwLkAAABAuoEAAAC/ygAAADHARTHk/1Mw6wVI/8XrmEw55XQZTIngMfZJ/8RIweAGSIu8A5gAAAD/"
    "UyDr4lpIiehbXUFcQV3DQVVBidVBVEmJ/FVIifVTTInrUYtFADnYdRxFMcBMiem6gAAAAEiJ7r/KAAAAMcBB/1QkMOvdWFtdQVxBXcOL"
    "V1BIjUdIhdJ1AusHO1dMcwUx0ocQwzHJg39UALoBAAAAiU9QdBGLV1yD4gOD+gEZ0oPi+YPCCIlXWEiNd1wx0olXVPD/R1wx0ocQRTHA"
    "uQAAAEC6gQAAADHATItPML/KAAAAQf/hugEAAACJ0IdHSIXAdATzkOvzw1VTSIn7Vuji/////0dQi29c6HD///+40AcAAEiNc1yLU1w5"
    "6nUG85D/yHXvi0NcOeh1IkiJ3+iy////McA5a1wPlMAJQ1QxwIdDSFlbiepd6fP+//9YW13DSIPsGEiJ+L8BAAAASInm/9BIaQQkAMqa"
    "O0gDRCQISIPEGMNIuE+BZ/d+ewUUQVRVU0i7LX+VTC30UVhID69fGEgBw0iJXxhIgf4/DQMAdkVID7rjIXI+SIsHSYn8SIn1SNHtSIt4"
    "KOiU////MdJIicFIidhIwegiSPf1SI0cCkmLBCRIi3go6HT///9IOdhzBPOQ6+pbXUFcw0FXMdJBVkUx9kFVQVRFMeRVSIn9U0iD7GhI"
    "ix9IjXNASInf6C3+//9IjUNESIlEJAiLQ0SFwA+FZAIAAEiLQwhIOUUgD4NWAgAASIt7KOgT////SDlDOA+CQwIAAE2F5HQGTCngSYnE"
    "RInwRYX2dQtIid/olf7//4tDWEj/RSBIi3so/8iJRCQU6Nj+//9IuS1/lUwt9FFYSA+vTRhIiUQkGEi4T4Fn9357BRRIAcFIichIiU0Y"
    "SMHpIUjB6CWD4QeD4H9I0+hIhcB0B/OQSP/I6/RMieZIie9FMe3oqP7//0w7bRAPg5cBAABNa/1gTItVCE0B+kmLOkiD/wV1IUWF9g+F"
    "cgEAAEiJ3+j9/f//TInmSInv6G7+///pWgEAAEmLUlAxyUiJ1kmLRMoQSNPuQIDmAXQDSIsASIlEzCBI/8FIg/kIdd5Ii3QkKEiLRCQg"
    "SIP/AXUeSIPsULkUAAAASInn86VIicdB/1IISIPEUOnTAAAASItUJDBIhf91Jf90JFhIicf/dCRYTItMJFhMi0QkUEiLTCRIQf9SCFpZ"
    "6aQAAABIg/8DdSExyUg5yg+EkQAAAEiNPAhAij9AOjwxD4XKAAAASP/B6+FIg/8EdW1IweYDSYnQTItMJEBIicFIi3wkOEyNHDBJKcBJ"
    "Oct0DUyLEU2HFAhIg8EI6+5IAdZFMdJNOdF0PUg513IOSDn3cwlJ/8JIg8cI6+hJicBMix9MOcF07E2F23QMTTsYdQe4AQAAAOsQSYPA"
    "COvkSInHSInR86QxwEiLVQhKi1Q6WEg5wnQjSIXSdAhIMcJmhdJ0FkiJRTC4AQAAAEyJbShIi1QkCIcC6whJ/8XpX/7//0yLZCQYRIt0"
    "JBTpl/3//0iLfCQ4SInGSInR86TrkkiJ3+hS/P///0tM6OP7//9Ig8RoMcBbXUFcQV1BXkFfww=="
)
MOST_THREADS: Final = 16
_ARGUMENTS: Final = 8
_LIBC: Final = ctypes.CDLL(None)
_FUNCTIONS: Final = ("pthread_create", "pthread_join", "clock_gettime", "syscall")

Kind = Literal["call", "call-with-struct", "copy", "compare", "publish", "meet"]
_KINDS: Final[tuple[Kind, ...]] = ("call", "call-with-struct", "copy", "compare", "publish", "meet")


class At(NamedTuple):
    """An argument that stands at an address, and is read there when the call is made."""

    address: int


class Action(NamedTuple):
    """One thing that a thread does.

    ``call``: the function with the arguments, eight at most, each an integer or an address.
    ``call-with-struct``: the function with the first argument and, by value, the 80 bytes at the second.
    ``copy``: to the first argument, from the second, as many bytes as the third says. ``compare``: as many
    bytes at the first as at the second; where they differ, those of the first are copied to the fourth.
    ``publish``: so many 64-bit values as the second argument says are copied from the first to the third, and
    looked for in the memory of all threads: as many as the fifth says, at the fourth. Whoever ends what a
    value stands for writes 0 there before. ``meet``: the threads wait for one another, where they did so
    before the round; every thread's list has as many of these.
    """

    kind: Kind
    arguments: tuple[int | At, ...]
    function: int = 0
    """Its address."""
    expected: int = 0
    """What the call returns; of an error the low 16 bits count. A comparison that fails gives 1, and so does
    ``publish`` where another thread has the same value."""


class Wrong(NamedTuple):
    """A thread stopped, since something went otherwise than expected."""

    thread: int
    action: int
    code: int


class _Action(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint64),
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.c_uint64 * _ARGUMENTS),
        ("loaded", ctypes.c_uint64),
        ("expected", ctypes.c_uint64),
    )


class _Thread(ctypes.Structure):
    _fields_ = (
        ("state", ctypes.c_void_p),
        ("actions", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("random", ctypes.c_uint64),
        ("rounds", ctypes.c_uint64),
        ("wrong", ctypes.c_int64),
        ("code", ctypes.c_uint64),
        ("id", ctypes.c_uint64),
    )


class _State(ctypes.Structure):
    """`State` of the code's source."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("count", "most_rounds", "nanoseconds")),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
        ("ends", ctypes.c_uint64),
        *(
            (name, ctypes.c_uint32)
            for name in ("gate", "stops", "lock", "active", "waiting", "asleep", "rounds", "turn")
        ),
        ("threads", _Thread * MOST_THREADS),
    )


@functools.cache
def _entry() -> Callable[[int], int] | None:
    """What runs the threads; None where there is no machine code for this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    address = libc.executable(CODE)
    # A function of ctypes gives Python's lock up: the calls may be of a target in Python.
    return ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address) if address else None


def is_possible() -> bool:
    """Whether this machine can."""
    return _entry() is not None


def run(
    threads: Sequence[Sequence[Action]], *, rounds: int, seconds: float, seed: int
) -> tuple[int, list[Wrong]]:
    """Let each thread do what is listed for it, round after round: the rounds of all, and what went wrong.

    A thread ends after so many rounds, once the time is over, or when something is wrong in one of them.
    Before a round it waits for the others, or mostly before each eighth one where that takes long, and then
    for up to some microseconds, which depends on the ``seed``.

    Raises:
        Lacking: this machine cannot, or the system gives no more threads.
    """
    entry = _entry()
    if entry is None:
        raise Lacking("there is no machine code for this machine that makes calls in threads")
    state = _State(count=len(threads), most_rounds=rounds, nanoseconds=int(seconds * 1e9))
    for name in _FUNCTIONS:
        setattr(state, name, ctypes.cast(getattr(_LIBC, name), ctypes.c_void_p).value)
    kept = [_packed(actions) for actions in threads]
    for number, (thread, actions) in enumerate(zip(state.threads, kept, strict=False)):
        thread.state, thread.actions = ctypes.addressof(state), ctypes.addressof(actions)
        thread.count, thread.wrong, thread.random = len(actions), -1, (seed << 8) + number
    if entry(ctypes.addressof(state)) < len(threads):
        raise Lacking("the system gives no more threads")
    found = enumerate(state.threads[: len(threads)])
    wrong = [Wrong(number, each.wrong, each.code) for number, each in found if each.wrong >= 0]
    return sum(each.rounds for each in state.threads[: len(threads)]), wrong


def _packed(actions: Sequence[Action]) -> ctypes.Array[_Action]:
    packed = (_Action * len(actions))()
    for slot, action in zip(packed, actions, strict=True):
        slot.kind, slot.function = _KINDS.index(action.kind), action.function
        slot.expected = action.expected
        for place, value in enumerate(action.arguments):
            slot.loaded |= isinstance(value, At) << place
            slot.arguments[place] = value.address if isinstance(value, At) else value
    return packed
