"""Actions after which a call does not return: deaths of the process, and hangs."""

from __future__ import annotations

from tests.hostile.matrix.action import Action, Expected, Moment


def _death(name: str, what: str, c: str, moment: Moment = "work", before: str = "") -> Action:
    return Action(f"death-{name}", "death", moment, "crash", what, c, before)


def _hang(
    name: str, what: str, c: str, moment: Moment = "work", before: str = "", expected: Expected = "hang"
) -> Action:
    return Action(f"hang-{name}", "hang", moment, expected, what, c, before)


_BAD_ADDRESS = "*(volatile int*)8 = 1;"

DEATHS = [
    _death("by-address", "writes to a bad address", _BAD_ADDRESS),
    _death("by-address-in-open", "writes to a bad address", _BAD_ADDRESS, "open"),
    _death("by-address-in-prepare", "writes to a bad address", _BAD_ADDRESS, "prepare"),
    _death("by-address-in-close", "writes to a bad address", _BAD_ADDRESS, "close"),
    _death("by-exit", "calls exit(0)", "exit(0);"),
    _death("by-quick-exit-70", "calls _exit(70)", "_exit(70);"),
    _death("by-kill", "sends itself SIGKILL", "kill(getpid(), SIGKILL);"),
    _death(
        "by-recursion",
        "calls itself until its stack ends",
        "deeper(1);",
        before="static int deeper(volatile int n) { volatile char room[4096]; room[0] = n; return deeper(n + 1) + room[0]; }",
    ),
    _death(
        "in-a-thread",
        "starts a thread that writes to a bad address, and waits for it",
        "pthread_t thread; pthread_create(&thread, NULL, dies, NULL); pthread_join(thread, NULL); for (;;) pause();",
        before=f"static void* dies(void* unused) {{ {_BAD_ADDRESS} return NULL; }}",
    ),
    _death("by-exec", "becomes another program, which succeeds", 'execl("/bin/true", "true", (char*)NULL);'),
    _death(
        "of-the-parent-of-a-fork",
        "forks, ends the parent with 0, and goes on in the child",
        "if (fork() > 0) _exit(0);",
    ),
]

HANGS = [
    _hang("in-a-loop", "never returns, and computes", "for (volatile int on = 1; on;) {}"),
    _hang("asleep", "never returns, and sleeps", "for (;;) pause();"),
    _hang("asleep-in-open", "never returns, and sleeps", "for (;;) pause();", "open"),
    _hang("asleep-in-prepare", "never returns, and sleeps", "for (;;) pause();", "prepare"),
    _hang(
        "by-two-locks",
        "locks a mutex twice, with all signals blocked",
        "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);\n"
        "  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;\n"
        "  pthread_mutex_lock(&mutex); pthread_mutex_lock(&mutex);",
    ),
    _hang("stopped", "stops its own process", "raise(SIGSTOP); for (;;) pause();"),
    _hang(
        "behind-a-child",
        "waits for a process that it has started and that does not end",
        "pid_t pid = fork(); if (!pid) for (;;) pause(); waitpid(pid, NULL, 0); for (;;) pause();",
    ),
]

ACTIONS = [*DEATHS, *HANGS]
