"""Process 1 of a row's namespaces: runs pytest there, and says what is left when it has ended.

``python inside.py SPECIFICATION.json`` within new namespaces of process ids, mounts and System V memory. It
imports the standard library only: what is counted here must not be that of the suite. The repository stays
visible below a /tmp of the row's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_WAIT = 3.0
"""Seconds after pytest's end until which processes may be there."""
VICTIM = Path("/tmp/victim/file")
"""What links of a library lead to: nothing may be done to it."""
_TEXT = "not the library's"


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def separate(kept: list[str]) -> None:
    """Mount a /tmp of this row's own, with the folders to keep, and an empty /dev/shm."""
    base = Path("/mnt")
    _mount("-t", "tmpfs", "-o", "size=512m", "tmpfs", str(base))
    for folder in kept:
        if folder.startswith("/tmp/"):
            place = base / Path(folder).relative_to("/tmp")
            place.mkdir(parents=True)
            _mount("--bind", folder, str(place))
    _mount("--move", str(base), "/tmp")
    _mount("-t", "tmpfs", "-o", "size=128m", "tmpfs", "/dev/shm")
    VICTIM.parent.mkdir()
    VICTIM.write_text(_TEXT)
    Path("/tmp/temporary").mkdir()


def processes() -> list[str]:
    """Command lines of all processes but this one, which waits for those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")[:200].decode(errors="replace")
            if folder.name != "1":
                found.append(f"{folder.name} {line or (folder / 'comm').read_text().strip()}")
    return found


def files_below(folder: Path, kept: list[str]) -> list[str]:
    """All that is in the folder but what is kept, and the folders that lead there."""
    found = []
    for path in sorted(folder.iterdir()):
        if str(path) in kept:
            continue
        if path.is_dir() and not path.is_symlink() and any(name.startswith(f"{path}/") for name in kept):
            found += files_below(path, kept)
        else:
            found.append(str(path))
    return found


def system_v() -> list[str]:
    """Shared memory, semaphores and queues of System V."""
    return [
        f"{kind}: {line.split()[1]}"
        for kind in ("shm", "sem", "msg")
        for line in Path("/proc/sysvipc", kind).read_text().splitlines()[1:]
    ]


def queues(kept: list[str]) -> list[str]:
    """POSIX message queues: they are seen in a mount of their own."""
    place = Path(kept[-1]) / "queues"
    place.mkdir()
    _mount("-t", "mqueue", "none", str(place))
    found = [str(path) for path in place.iterdir()]
    subprocess.run(["umount", str(place)], check=True)
    place.rmdir()
    return found


def left(run: Path, kept: list[str]) -> dict[str, list[str]]:
    """What there is that was not there before, by its kind."""
    until = time.monotonic() + _WAIT
    while processes() and time.monotonic() < until:
        time.sleep(0.02)
    known = [*kept, str(VICTIM.parent), "/tmp/temporary"]
    victim = [path.name for path in VICTIM.parent.iterdir()]
    intact = victim == [VICTIM.name] and VICTIM.read_text() == _TEXT and VICTIM.stat().st_nlink == 1
    running = processes()
    if os.getpid() == 1 and running:  # they would reach the programs that look further
        os.kill(-1, signal.SIGKILL)
        time.sleep(0.1)
        processes()
    found = {
        "processes": running,
        "files": [
            *files_below(Path("/tmp"), known),
            *files_below(Path("/tmp/temporary"), []),
            *(str(path) for path in run.iterdir() if path.name not in {".pytest-qnn", "report.json"}),
        ],
        "shared memory": [*map(str, Path("/dev/shm").iterdir()), *system_v(), *queues(kept)],
        "victim": [] if intact else victim,
    }
    return {kind: names for kind, names in found.items() if names}


def _limited() -> None:
    """A row that goes wrong ends, and takes no more memory than there is."""
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))


def main(specification: str) -> None:
    """Run pytest, and write ``seen.json`` beside the specification."""
    given: dict[str, Any] = json.loads(Path(specification).read_text())
    separate(given["kept"])
    work = Path(specification).parent
    run = work / "run"
    run.mkdir()
    began = time.monotonic()
    with open(work / "output", "wb") as output:
        started = subprocess.Popen(
            given["command"],
            cwd=run,
            env={**os.environ, **given["environment"], "TMPDIR": "/tmp/temporary"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_limited,  # noqa: PLW1509 - there are no threads
        )
        try:
            status: int | None = started.wait(given["limit"])
        except subprocess.TimeoutExpired:
            status = None
            started.kill()
    wall = time.monotonic() - began
    found = left(run, given["kept"])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = {
        "status": status,
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "left": found,
    }
    (work / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
