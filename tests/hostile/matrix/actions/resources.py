"""Actions that use up or leave something: floods, and what is left over."""

from __future__ import annotations

from tests.hostile.matrix.action import Action, Expected, Moment


def _flood(
    name: str, what: str, c: str, expected: Expected = "pass", before: str = "", why: str = ""
) -> Action:
    return Action(f"flood-{name}", "flood", "work", expected, what, c, before, why=why)


_PROCESSES = (
    "was *pass*; a case of a delegate invokes dozens of times: there are thousands of processes then, all to be "
    "ended within the time of the case; which rule's case makes so many is not the library's doing"
)
_STACKS = (
    "was *pass*; 200 stacks of 8 MiB at each of several calls are more than the 2 GiB that a process may have "
    "(docs/explanation/trust.md), and which rule's case makes several calls is not the library's doing"
)


def _left(name: str, what: str, c: str, moment: Moment = "work", before: str = "") -> Action:
    return Action(f"left-{name}", "left-over", moment, "pass", what, c, before)


_WRITES = (
    "char text[4096]; memset(text, 'x', sizeof text); text[4095] = '\\n';\n"
    "  for (int i = 0; i < {count}; ++i) write({fd}, text, sizeof text);"
)

FLOODS = [
    _flood("of-stdout", "writes 8 MiB to standard output", _WRITES.format(count=2048, fd=1)),
    _flood("of-stderr", "writes 8 MiB to standard error", _WRITES.format(count=2048, fd=2)),
    _flood(
        "of-stderr-without-end",
        "writes to standard error for ever",
        "for (;;) { " + _WRITES.format(count=2048, fd=2) + " }",
        "hang",
    ),
    _flood(
        "of-control-characters",
        "writes escape sequences and bytes that are not UTF-8 to standard error, and aborts",
        r'for (int i = 0; i < 500; ++i) fputs("\033[2J\033]0;owned\007\x9b" "31m\xff\xfe\r\n::error::owned\n", stderr); abort();',
        "crash",
    ),
    _flood(
        "of-memory",
        "maps 64 MiB at a time until it gets no more, without writing to it",
        "while (mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}",
        "owner",
    ),
    _flood(
        "of-threads",
        "starts 200 threads that sleep",
        "for (int i = 0; i < 200; ++i) { pthread_t thread; pthread_create(&thread, NULL, sleeps, NULL); }",
        "any",
        before="static void* sleeps(void* unused) { for (;;) pause(); }",
        why=_STACKS,
    ),
    _flood(
        "of-processes",
        "starts 100 processes in sessions of their own",
        "for (int i = 0; i < 100; ++i) { if (!fork()) { setsid(); for (;;) pause(); } }",
    )._replace(of_delegate="any", why=_PROCESSES),
    _flood(
        "of-descriptors",
        "opens /dev/null until it gets no more descriptors",
        'while (open("/dev/null", O_RDONLY) >= 0) {}',
        "owner",
    ),
    _flood("of-a-disk", "writes a file of 64 MiB", 'write_file("large", 64 << 20);'),
]

LEFT_OVER = [
    _left(
        "process", "leaves a process in a session of its own", "if (!fork()) { setsid(); for (;;) pause(); }"
    ),
    _left("daemon", "leaves a daemon without environment", "if (is_daemon()) for (;;) pause();"),
    _left(
        "daemon-at-load", "leaves a daemon without environment", "if (is_daemon()) for (;;) pause();", "load"
    ),
    _left(
        "program",
        "leaves another program, without environment and in a session of its own",
        'if (is_daemon()) { char *none[] = {NULL}, *args[] = {"sleep", "1000", NULL}; execve("/bin/sleep", args, none); _exit(0); }',
    ),
    _left(
        "stopped-process",
        "leaves a process that ignores and blocks signals, and has stopped",
        "if (!fork()) { for (int i = 1; i < 32; ++i) signal(i, SIG_IGN); raise(SIGSTOP); for (;;) pause(); }",
    ),
    _left(
        "thread",
        "leaves a thread that runs every millisecond",
        "pthread_t thread; pthread_create(&thread, NULL, loops, NULL);",
        before="static void* loops(void* unused) { for (;;) usleep(1000); }",
    ),
    _left(
        "shared-memory",
        "leaves a file in /dev/shm",
        'int fd = open("/dev/shm/left", O_CREAT | O_RDWR, 0600); ftruncate(fd, 1 << 16);',
    ),
    _left(
        "system-v",
        "leaves shared memory, semaphores and a queue of System V",
        "shmget(IPC_PRIVATE, 4096, 0600); semget(IPC_PRIVATE, 1, 0600); msgget(IPC_PRIVATE, 0600);",
    ),
    _left(
        "system-v-at-load",
        "leaves shared memory of System V",
        "shmget(IPC_PRIVATE, 4096, 0600);",
        "load",
    ),
    _left("queue", "leaves a POSIX message queue", 'mq_open("/left", O_CREAT | O_RDWR, 0600, NULL);'),
    _left(
        "files",
        "leaves 1,000 files and a folder that nobody may read",
        'char name[32]; for (int i = 0; i < 1000; ++i) { snprintf(name, 32, "left%d", i); write_file(name, 1); }\n'
        '  mkdir("closed", 0700); write_file("closed/file", 1); chmod("closed", 0);',
    ),
]

ACTIONS = [*FLOODS, *LEFT_OVER]
