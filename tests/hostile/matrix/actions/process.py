"""Actions that change what a process has: its state, and its limits."""

from __future__ import annotations

from tests.hostile.matrix.action import Action, Expected, Moment

_ROUNDED = (
    "was *pass*; the delegate computes in float32 with the rounding that it has set: NUM-01, a SHOULD, asks for the CPU's "
    "values to the last bit, which these are not; the backend computes in integers"
)


def _state(
    name: str, what: str, c: str, moment: Moment = "work", expected: Expected = "pass", before: str = ""
) -> Action:
    return Action(f"state-{name}", "process state", moment, expected, what, c, before)


def _limit(
    name: str,
    what: str,
    c: str,
    moment: Moment = "work",
    expected: Expected = "pass",
    why: str = "",
    before: str = "",
) -> Action:
    return Action(f"limit-{name}", "limits", moment, expected, what, c, before, why=why)


_FILTER = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
static struct sock_filter only[] = { /* not SECCOMP_MODE_STRICT, which is refused where there is a filter */
  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
static struct sock_fprog filter = {sizeof only / sizeof *only, only};
"""


_FOR_GOOD = (
    "was *pass*; who has no CAP_SYS_RESOURCE cannot raise a hard limit again (setrlimit(2)), so that the run ends "
    "with a sentence that names the library and the limit"
)
_NO_FILES = (
    "was *pass*; nobody in the process can make a file or shared memory after such a call (setrlimit(2)), so that "
    "the call harms every client"
)


STATES = [
    _state("umask", "sets the file mode mask to 0777", "umask(0777);"),
    _state("umask-at-load", "sets the file mode mask to 0777", "umask(0777);", "load"),
    _state("folder", "goes to another working directory", 'chdir("/");'),
    _state("folder-at-load", "goes to another working directory", 'chdir("/");', "load"),
    _state(
        "signals-ignored",
        "ignores every signal that can be ignored, and blocks the others",
        "for (int i = 1; i < 65; ++i) signal(i, SIG_IGN);\n"
        "  sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);",
    ),
    _state(
        "signals-ignored-at-load",
        "ignores every signal that can be ignored, and blocks the others",
        "for (int i = 1; i < 65; ++i) signal(i, SIG_IGN);\n"
        "  sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);",
        "load",
    ),
    _state(
        "timer",
        "has SIGALRM sent to itself after a millisecond, and returns",
        "struct itimerval at = {{0, 0}, {0, 1000}}; setitimer(ITIMER_REAL, &at, NULL); usleep(5000);",
        expected="crash",
    ),
    _state(
        "timer-at-load",
        "has SIGALRM sent to itself every 200 ms from then on",
        "struct itimerval at = {{0, 200000}, {0, 200000}}; setitimer(ITIMER_REAL, &at, NULL);",
        "load",
    ),
    _state("environment", "empties the environment", "clearenv();"),
    _state("environment-at-load", "empties the environment", "clearenv();", "load"),
    _state("rounding", "rounds upwards from then on", "fesetround(FE_UPWARD);")._replace(
        of_delegate="any", why=_ROUNDED
    ),
    _state("standard-descriptors", "closes the three standard descriptors", "close(0); close(1); close(2);"),
    _state(
        "standard-descriptors-at-load",
        "closes the three standard descriptors",
        "close(0); close(1); close(2);",
        "load",
    ),
    _state("not-dumpable", "makes /proc/self unreadable for others", "prctl(PR_SET_DUMPABLE, 0);", "load"),
    _state(
        "priority",
        "takes the lowest priority and the first processor, and another name",
        'nice(19); cpu_set_t one; CPU_ZERO(&one); CPU_SET(0, &one); sched_setaffinity(0, sizeof one, &one);\n  prctl(PR_SET_NAME, "(sd) Z 1 1\\n");',
        "load",
    ),
    _state(
        "handlers",
        "takes SIGSEGV, SIGTERM and SIGCHLD for itself",
        "signal(SIGSEGV, nothing); signal(SIGTERM, nothing); signal(SIGCHLD, nothing);",
        before="static void nothing(int number) {}",
    ),
]

LIMITS = [
    _limit("descriptors", "sets RLIMIT_NOFILE to 3", "set_limit(RLIMIT_NOFILE, 3);", expected="owner"),
    _limit(
        "descriptors-at-load",
        "sets RLIMIT_NOFILE to 16",
        "set_limit(RLIMIT_NOFILE, 16);",
        "load",
        "any",
        _FOR_GOOD,
    ),
    _limit("address-space", "sets RLIMIT_AS to 1 MiB", "set_limit(RLIMIT_AS, 1 << 20);", expected="owner"),
    _limit("data", "sets RLIMIT_DATA to 0", "set_limit(RLIMIT_DATA, 0);", expected="owner"),
    _limit(
        "file-size",
        "sets RLIMIT_FSIZE to 0",
        "set_limit(RLIMIT_FSIZE, 0);",
        expected="owner",
        why=_NO_FILES,
    ),
    _limit(
        "file-size-at-load",
        "sets RLIMIT_FSIZE to 0",
        "set_limit(RLIMIT_FSIZE, 0);",
        "load",
        "any",
        _FOR_GOOD,
    ),
    _limit("processes", "sets RLIMIT_NPROC to 0", "set_limit(RLIMIT_NPROC, 0);"),
    _limit("stack", "sets RLIMIT_STACK to 16 KiB", "set_limit(RLIMIT_STACK, 1 << 14);", expected="owner"),
    _limit("processor-time", "sets RLIMIT_CPU to 1 s", "set_limit(RLIMIT_CPU, 1);"),
    _limit(
        "core",
        "sets RLIMIT_CORE to infinity, and aborts",
        "set_limit(RLIMIT_CORE, RLIM_INFINITY); abort();",
        expected="crash",
    ),
    _limit(
        "system-calls",
        "allows itself read, write and exit only (seccomp)",
        "prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter); getppid();",
        expected="crash",
        before=_FILTER,
    ),
]

ACTIONS = [*STATES, *LIMITS]
