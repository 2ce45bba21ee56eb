"""Actions against what judges: parent and supervisor, and the reply of a case."""

from __future__ import annotations

from tests.hostile.matrix.action import Action, Expected, Moment


def _attack(
    name: str, what: str, c: str, moment: Moment = "work", expected: Expected = "owner", before: str = ""
) -> Action:
    return Action(f"attack-{name}", "attack", moment, expected, what, c, before)


def _reply(name: str, what: str, c: str, expected: Expected = "owner", before: str = "") -> Action:
    return Action(f"reply-{name}", "reply", "work", expected, what, c, before)


_COPIES = (
    "was *pass* of both; a delegate's kernel with n multiplications makes 2^n processes in one call, before any of them comes back to "
    "the suite, where all but one end: ten cost seconds of processor time at each invoke, and which rule has "
    "such graphs is not the library's doing"
)


_KILL = "static void act(pid_t pid) { kill(pid, SIGKILL); }"
_STOP = "static void act(pid_t pid) { kill(pid, SIGSTOP); }"
_INTERRUPT = "static void act(pid_t pid) { kill(pid, SIGINT); kill(pid, SIGTERM); kill(pid, SIGHUP); }"
_OVERWRITE = """
static void act(pid_t pid) {
  char path[64], line[4096], rights[8];
  snprintf(path, sizeof path, "/proc/%d/maps", pid);
  FILE* maps = fopen(path, "r");
  snprintf(path, sizeof path, "/proc/%d/mem", pid);
  int memory = open(path, O_WRONLY);
  static char junk[1 << 16];
  memset(junk, 0x5A, sizeof junk);
  unsigned long begin, end;
  while (maps && memory >= 0 && fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3 || rights[1] != 'w') continue;
    for (; begin < end; begin += sizeof junk) pwrite(memory, junk, sizeof junk, (off_t)begin);
  }
}
"""

ATTACKS = [
    _attack("kills-parent", "kills its parent", "kill(getppid(), SIGKILL);"),
    _attack("kills-ancestors", "kills every ancestor that it can see", "each_ancestor(act);", before=_KILL),
    _attack("kills-all", "kills every process that it can see", "kill(-1, SIGKILL);"),
    _attack("kills-group", "kills its process group", "kill(0, SIGKILL);", expected="crash"),
    _attack("kills-parent-at-load", "kills its parent", "kill(getppid(), SIGKILL);", "load", "any"),
    _attack("kills-all-at-load", "kills every process that it can see", "kill(-1, SIGKILL);", "load", "any"),
    _attack("stops-ancestors", "stops every ancestor that it can see", "each_ancestor(act);", before=_STOP),
    _attack("stops-all", "stops every process that it can see", "kill(-1, SIGSTOP);"),
    _attack(
        "interrupts-ancestors",
        "sends SIGINT, SIGTERM and SIGHUP to every ancestor that it can see",
        "each_ancestor(act);",
        before=_INTERRUPT,
    ),
    _attack(
        "traces-parent",
        "begins to trace its parent, and goes on",
        "ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);",
    ),
    _attack(
        "limits-all",
        "sets RLIMIT_NOFILE and RLIMIT_FSIZE of every ancestor that it can see to 0",
        "each_ancestor(act);",
        before="static void act(pid_t pid) { struct rlimit none = {0, 0}; prlimit(pid, RLIMIT_NOFILE, &none, NULL); prlimit(pid, RLIMIT_FSIZE, &none, NULL); }",
    ),
    _attack("overwrites-parent", "overwrites its parent's memory", "act(getppid());", before=_OVERWRITE),
    _attack(
        "keeps-killing",
        "leaves a daemon that kills every process that it can see, every 20 ms",
        "if (is_daemon()) for (;;) { kill(-1, SIGKILL); usleep(20000); }",
        "load",
        "any",
    ),
]

REPLIES = [
    _reply(
        "to-every-descriptor",
        "writes junk to every descriptor",
        "each_descriptor(act);",
        before="static void act(int fd) { fcntl(fd, F_SETFL, O_NONBLOCK); char junk[4096]; memset(junk, 0xC1, sizeof junk); write(fd, junk, sizeof junk); }",
    ),
    _reply(
        "closes-descriptors",
        "closes every descriptor",
        "each_descriptor(act);",
        before="static void act(int fd) { close(fd); }",
    ),
    _reply(
        "cuts-files",
        "cuts the file behind every descriptor to 0 bytes",
        "each_descriptor(act);",
        before="static void act(int fd) { ftruncate(fd, 0); }",
    ),
    _reply(
        "extends-files",
        "extends the file behind every descriptor to 1 TiB",
        "each_descriptor(act);",
        before="static void act(int fd) { ftruncate(fd, 1L << 40); }",
    ),
    _reply(
        "ones",
        "fills every shared mapping with ones",
        "each_shared_mapping(act);",
        before="static void act(char* begin, size_t size) { memset(begin, 0xFF, size); }",
    ),
    _reply(
        "zeros",
        "fills every shared mapping with zeros",
        "each_shared_mapping(act);",
        before="static void act(char* begin, size_t size) { memset(begin, 0, size); }",
    ),
    _reply(
        "unmaps",
        "unmaps every shared mapping",
        "each_shared_mapping(act);",
        before="static void act(char* begin, size_t size) { munmap(begin, size); }",
    ),
    _reply(
        "twice",
        "forks, and returns in both processes",
        "fork();",
        "pass",
    )._replace(of_delegate="any", why=_COPIES),
    _reply(
        "of-python",
        "replaces the encoder of replies by one that answers with a list of 100,000 lists",
        'python("import msgspec\\nmsgspec.msgpack.Encoder = None\\n'
        "msgspec.msgpack.encode = lambda *a, **k: b'\\\\x91' * 100000 + b'\\\\xc0'\\n\");",
    ),
    _reply("exits-in-python", "calls os._exit(0) of Python", 'python("import os; os._exit(0)");', "crash"),
    _reply(
        "raises",
        "has SystemExit raised in the main thread of Python",
        'int (*later)(int (*)(void*), void*) = dlsym(RTLD_DEFAULT, "Py_AddPendingCall"); if (later) later(raises, NULL);',
        before='static int raises(void* unused) { void (*set)(void*, const char*) = dlsym(RTLD_DEFAULT, "PyErr_SetString"); '
        'void** type = dlsym(RTLD_DEFAULT, "PyExc_SystemExit"); if (set && type) set(*type, "of the library"); return -1; }',
    ),
]

ACTIONS = [*ATTACKS, *REPLIES]
