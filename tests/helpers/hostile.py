"""What hostile targets do to their process, and how a case with such a target must end.

Each deed is the body of a C function ``deed``, used in a QNN backend and in a delegate alike.
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import left

HEADERS = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xmmintrin.h>
"""

LIMIT = 1.0
"""Seconds for a case."""


class Deed(NamedTuple):
    """What is done, and how the case ends."""

    body: str
    kind: str = ""
    """Kind of the death; empty: the case ends well."""
    detail: str = ""
    """A part of the death's detail."""
    before: str = ""
    """C source in front of it."""
    beside: str = ""
    """C++ source linked to it."""

    def source(self) -> str:
        """C source of ``deed()``."""
        return f"{HEADERS}\n{self.before}\nstatic void deed(void) {{ {self.body} }}\n"


def flood(megabytes: int) -> Deed:
    """Write so much to stdout and stderr."""
    return Deed(
        "char* junk = malloc(1 << 20);"
        f"for (int i = 0; i < {megabytes}; ++i) write(1 + i % 2, junk, 1 << 20); free(junk);"
    )


LOOP = "for (volatile int on = 1; on;) {}"
_PLUNGE = "static int plunge(int n) { volatile char a[4096]; a[n % 4096] = 1; return plunge(n + 1) + a[0]; }"
_REST = "static void* rest(void* p) { for (;;) sleep(99); return p; }"
_GRIND = "static void* grind(void* p) { for (;;) {} return p; }"
_BLOCK = (
    "static char* block;__attribute__((constructor)) static void make(void) { block = malloc(48 << 20); }"
)
"""A block with a mapping of its own: only its own free looks at its header.

Above 32 MiB no block of glibc's comes from its heap (DEFAULT_MMAP_THRESHOLD_MAX), where a neighbour of
the block would show what is written over its header. Below, that depends on what was freed before.
"""
_UNBLOCK = "__attribute__((destructor)) static void unmake(void) { free(block); }"
_QUIT = "__attribute__((destructor)) static void quit(void) { _exit(7); }"

DEATHS = {
    "segv": Deed("*(volatile int*)8 = 0;", "signal", "SIGSEGV"),
    "abort": Deed("abort();", "signal", "SIGABRT"),
    "bus": Deed(
        'char* p = mmap(0, 4096, 3, MAP_SHARED, memfd_create("empty", 0), 0); *p = 1;', "signal", "SIGBUS"
    ),
    "fpe": Deed("volatile int nought = 0; nought = 7 / nought;", "signal", "SIGFPE"),
    "trap": Deed("__builtin_trap();", "signal", "SIGILL"),
    "nameless-signal": Deed("raise(SIGRTMIN + 6);", "signal", "signal 40"),
    "stack-overflow": Deed("plunge(0);", "signal", "SIGSEGV", before=_PLUNGE),
    "exit-0": Deed("exit(0);", "exit", "exit status 0"),
    "exit-3": Deed("exit(3);", "exit", "exit status 3"),
    "exit-in-destructor": Deed("exit(0);", "exit", "exit status 7", before=_QUIT),
    "exit-in-thread": Deed(
        "pthread_t t; pthread_create(&t, 0, (void*)exit, (void*)0); pthread_join(t, 0);", "exit", "status 0"
    ),
    "deaf-loop": Deed(f"signal(SIGTERM, SIG_IGN); {LOOP}", "hang", "no answer: still computing after"),
    "loop-with-the-gil": Deed(
        f"extern int PyGILState_Ensure(); PyGILState_Ensure(); {LOOP}", "hang", "still computing"
    ),
    "stop": Deed("raise(SIGSTOP);", "hang", "no answer: used no processor time for 1 s"),
    "close-descriptors": Deed("for (int i = 0; i < 1024; ++i) close(i);", "garbage", "closed descriptors"),
    "file-limit": Deed("while (dup(1) >= 0) {}", "garbage", "used up the descriptors of its process"),
    "allocate": Deed("for (;;) *(volatile char*)malloc(1 << 20) = 1;", "signal", "SIGSEGV"),
    "allocate-in-c++": Deed(
        "extern void hoard(void); hoard();",
        "signal",
        "SIGABRT",
        beside='extern "C" void hoard() noexcept { for (;;) *(volatile char*)new char[1 << 20] = 1; }',
    ),
    "double-free": Deed("char* p = malloc(2000); malloc(1); free(p); free(p);", "signal", "SIGABRT"),
    "kill-supervisor": Deed(f"kill(getppid(), SIGKILL); {LOOP}", "garbage", "watched over it"),
    "kill-supervisor-and-stay": Deed(
        "prctl(PR_SET_PDEATHSIG, 0); setsid(); kill(getppid(), SIGKILL); sleep(60);",
        "garbage",
        "watched over",
    ),
}

SURVIVED = {
    "unused-destructor": Deed("", before=_QUIT),
    "corruption-seen-at-exit-only": Deed("memset(block - 16, 8, 16);", before=_BLOCK + _UNBLOCK),
    "garbage-everywhere": Deed(
        "char junk[4096]; memset(junk, 0xC1, 4096);"
        "for (int i = 0; i < 1024; ++i) { write(i, junk, 4096); pwrite(i, junk, 4096, 0); }"
    ),
    "gigabyte-of-stdout": flood(1024),
    "grandchild": Deed("if (!fork()) { setsid(); sleep(60); _exit(0); }"),
    "grandchild-of-grandchild": Deed(
        "if (!fork()) { setsid(); if (!fork()) { setsid(); sleep(60); } _exit(0); }"
    ),
    "sleeping-threads": Deed(
        "pthread_t t; for (int i = 0; i < 8; ++i) pthread_create(&t, 0, rest, 0);", before=_REST
    ),
    "busy-threads": Deed(
        "pthread_t t; for (int i = 0; i < 4; ++i) pthread_create(&t, 0, grind, 0);", before=_GRIND
    ),
    "signals": Deed(
        "for (int i = 1; i < 65; ++i) signal(i, SIG_IGN);"
        "sigset_t all; sigfillset(&all); sigprocmask(SIG_SETMASK, &all, 0);"
    ),
    "remove-folder": Deed(
        'char here[4096]; getcwd(here, 4096); chdir("/"); rmdir(here); rmdir(dirname(here));',
        before="#include <libgen.h>",
    ),
    "litter": Deed(
        'mkdir("a", 0700); mkdir("a/b", 0700); close(creat("a/b/c", 0)); chmod("a/b", 0); chmod("a", 0);'
        'mkstemp(strcat(strcpy((char[4096]){0}, getenv("TMPDIR")), "/XXXXXX"));'
    ),
    "float-environment": Deed("fesetround(FE_UPWARD); _mm_setcsr(_mm_getcsr() | 0x8040);"),
    "catch-faults": Deed(
        "struct sigaction a = {.sa_handler = SIG_IGN}; sigaction(SIGSEGV, &a, 0); alarm(100); nice(19);"
    ),
}

THROWN = {
    "throw-an-int": Deed("extern void hurl(void); hurl();", beside='extern "C" void hurl() { throw 7; }'),
    "throw-an-exception": Deed(
        "extern void hurl(void); hurl();",
        beside='#include <stdexcept>\nextern "C" void hurl() { throw std::runtime_error("hurled"); }',
    ),
}
"""C++ exceptions that leave through the C interface: how they end depends on who is there to catch them."""

HOARD = Deed("for (size_t n = 1 << 20; n > 8; n /= 2) while (malloc(n)) {}")
"""Takes all memory and returns."""


def nth_call(number: int) -> Deed:
    """Abort at the call of this number in a process."""
    return Deed(f"static int calls; if (++calls == {number}) abort();")


THIRD_CALL = nth_call(3)


def third_process(note: Path) -> Deed:
    """Abort in every third process that does the deed; the count is kept in the file ``note``."""
    return Deed(
        f'int f = open("{note}", O_CREAT | O_APPEND | O_RDWR, 0600); write(f, "x", 1);'
        "if (lseek(f, 0, SEEK_END) % 3 == 0) abort(); close(f);"
    )


def noted(note: Path) -> Deed:
    """Do nothing, but for a byte in the file ``note`` each time."""
    return Deed(f'int f = open("{note}", O_CREAT | O_APPEND | O_WRONLY, 0600); write(f, "x", 1); close(f);')


DEEDS = DEATHS | SURVIVED


class State(NamedTuple):
    """What a hostile target must not change of the process that judges it."""

    descriptors: tuple[str, ...]
    threads: int
    handlers: tuple[object, ...]
    mask: frozenset[int]
    folder: str
    temporary: frozenset[str]
    limits: tuple[tuple[int, int], ...]


def state() -> State:
    """Look now."""
    known = sorted(signal.valid_signals())
    temporary = Path(tempfile.gettempdir()).glob("pytest-qnn-*")
    kinds = (resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_CORE)
    return State(
        descriptors=tuple(filter(_is_not_ours, left.descriptors())),
        threads=threading.active_count() + len(os.listdir("/proc/self/task")),
        handlers=tuple(signal.getsignal(number) for number in known),
        mask=frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        folder=os.getcwd(),
        temporary=frozenset(path.name for path in temporary if path.stat().st_uid == os.getuid()),
        limits=tuple(resource.getrlimit(kind) for kind in kinds),
    )


def _is_not_ours(descriptor: str) -> bool:
    """It is not the lock that a run has on the folders of its findings."""
    try:
        return not os.readlink(f"/proc/self/fd/{descriptor}").endswith("/.pytest-qnn/.lock")
    except OSError:  # that of the listing itself
        return True


def resident() -> int:
    """Resident bytes of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def relatives(temporary: str) -> list[int]:
    """Processes of supervisors that began with a TMPDIR below the folder ``temporary``."""
    return began_with(f"TMPDIR={temporary}/pytest-qnn-")


def began_with(entry: str) -> list[int]:
    """Processes that began with an entry of the environment that starts with ``entry`` (``NAME=value``)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(entry.encode()) for word in words):
            found.append(int(path.parent.name))
    return found
