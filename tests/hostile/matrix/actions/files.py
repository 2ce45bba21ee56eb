"""Actions while the library is loaded or unloaded, and on the file system."""

from __future__ import annotations

from tests.hostile.matrix.action import Action, Expected, Moment


def _load(
    name: str, what: str, c: str, expected: Expected, moment: Moment = "load", before: str = ""
) -> Action:
    return Action(f"load-{name}", "load and unload", moment, expected, what, c, before)


def _file(
    name: str,
    what: str,
    c: str,
    expected: Expected = "pass",
    before: str = "",
    leaves: tuple[str, ...] = (),
) -> Action:
    return Action(f"file-{name}", "file system", "work", expected, what, c, before, leaves)


_BAD_ADDRESS = "*(volatile int*)8 = 1;"

LOADS = [
    _load("dies", "writes to a bad address", _BAD_ADDRESS, "unloadable"),
    _load("exits", "calls _exit(0)", "_exit(0);", "unloadable"),
    _load("hangs", "never returns, and sleeps", "for (;;) pause();", "unloadable"),
    _load(
        "3-gibibytes",
        "needs 3 GiB, and aborts without them",
        "if (mmap(NULL, 3L << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) abort();",
        "unloadable",
    ),
    _load(
        "writes",
        "writes 1 MiB to standard output",
        "char text[4096]; memset(text, 'x', sizeof text); for (int i = 0; i < 256; ++i) write(1, text, sizeof text);",
        "pass",
    ),
    _load(
        "starts-a-thread",
        "starts a thread that sleeps",
        "pthread_t thread; pthread_create(&thread, NULL, sleeps, NULL);",
        "pass",
        before="static void* sleeps(void* unused) { for (;;) pause(); }",
    ),
    _load(
        "dies-when-forked",
        "has every forked child abort (pthread_atfork)",
        "pthread_atfork(NULL, NULL, dies);",
        "any",
        before="static void dies(void) { abort(); }",
    ),
    _load("forks", "forks, and goes on in both processes", "fork();", "pass"),
    _load("deletes-itself", "deletes its own file", "unlink(own_path());", "any"),
    _load(
        "only-once",
        "aborts when it is loaded a second time",
        'char path[4096]; snprintf(path, sizeof path, "%s.seen", own_path()); if (!access(path, F_OK)) abort(); write_file(path, 1);',
        "any",
    ),
    _load("unload-dies", "writes to a bad address", _BAD_ADDRESS, "pass", "unload"),
    _load("unload-hangs", "never returns, and sleeps", "for (;;) pause();", "pass", "unload"),
    _load(
        "exit-hangs",
        "has a function at exit that sleeps",
        "atexit(sleeps);",
        "pass",
        before="static void sleeps(void) { for (;;) pause(); }",
    ),
]

FILES = [
    _file(
        "deletes-folder",
        "deletes all in its working directory, and that",
        'char path[4096]; if (getcwd(path, sizeof path)) { char command[8192]; snprintf(command, sizeof command, "rm -rf \\"%s\\"", path); system(command); }',
    ),
    _file(
        "renames-folder",
        "renames its working directory",
        'char path[4000], to[4096]; if (getcwd(path, sizeof path)) { snprintf(to, sizeof to, "%s.other", path); rename(path, to); }',
    ),
    _file(
        "links",
        "leaves links to files and folders elsewhere, and to themselves",
        'symlink("/tmp/victim", "folder"); symlink("/tmp/victim/file", "file"); link("/tmp/victim/file", "hard"); symlink("loop", "loop");',
    ),
    _file(
        "special-files",
        "leaves a pipe, a socket and a device",
        'mkfifo("pipe", 0600); mknod("device", S_IFCHR | 0600, 0x501);\n'
        '  struct sockaddr_un at = {AF_UNIX, "socket"}; bind(socket(AF_UNIX, SOCK_STREAM, 0), (void*)&at, sizeof at);',
    ),
    _file(
        "names",
        "leaves files whose names are long, no text, and several lines",
        r'write_file("\xff\xfe\n\033[2J", 1); char name[256]; memset(name, 97, 255); name[255] = 0; write_file(name, 1);',
    ),
    _file(
        "depth",
        "leaves 2,000 folders in each other",
        'for (int i = 0; i < 2000; ++i) { if (mkdir("d", 0700) || chdir("d")) break; }',
    ),
    _file(
        "immutable",
        "leaves a file that cannot be removed (immutable), if it may",
        'write_file("immutable", 1); int fd = open("immutable", O_RDONLY), flag = 0x10; ioctl(fd, 0x40086602, &flag);',
    ),
    _file(
        "mounts",
        "mounts another file system over its working directory and over /tmp, if it may",
        'mount("none", ".", "tmpfs", 0, NULL); mount("none", "/tmp", "tmpfs", 0, NULL); write_file("here", 1);',
    ),
    _file(
        "sparse",
        "leaves a file of 1 TiB without contents",
        'write_file("sparse", 1); truncate("sparse", 1L << 40);',
    ),
    _file(
        "beside-its-folder",
        "leaves a file in /tmp",
        'write_file("/tmp/beside", 1);',
        leaves=("/tmp/beside",),
    ),
    _file("deletes-itself", "deletes its own file", "unlink(own_path());", "any"),
    _file("cuts-itself", "cuts its own file to 0 bytes", "truncate(own_path(), 0);", "any"),
]

ACTIONS = [*LOADS, *FILES]
