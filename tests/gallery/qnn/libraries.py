"""The oddities that are C libraries: ``backend.c``, built with one macro each, and judged in children."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from tests.gallery.qnn.oddity import Freedom

_SOURCE = Path(__file__).with_name("backend.c")
_FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
_PREFIX = "c-"


def _about(name: str, freedom: str, *, source: str, seen: str, tried_by: str = "") -> Freedom:
    return Freedom(f"{_PREFIX}{name}", freedom, source, seen, frozenset(), tuple(tried_by.split()))


_ALL = (
    _about(
        "index",
        "handles are indices of one table, the last that became free first; what is not supported is NULL",
        source="facts 1.7, IF-09: values are opaque and reused at once; 7.19: NULL slots",
        seen="handles 1, 2, 3, ...; 46 members of the table are NULL",
        tried_by="REG-24 CTX-04",
    ),
    _about(
        "address",
        "handles are addresses that malloc gives",
        source="facts IF-09: values are opaque",
        seen="pointers, given out again after free",
        tried_by="REG-24 DRG-04",
    ),
    _about(
        "chatty",
        "it writes to stdout, stderr and the log, with arguments, at every level, and from another thread",
        source="facts THR-04, 2.3 (QNN libraries print to stderr), 2.4 (messages come from several threads)",
        seen="21 messages for a call, formats with five arguments, lines on both streams",
        tried_by="QTHR-04 REG-01",
    ),
    _about(
        "slow",
        "registering takes 5 ms, finalising 20 ms and executing 3 ms, in which it computes nothing",
        source="no document has a time limit; legal-choices.md",
        seen="time passes, no processor is used",
        tried_by="REG-01 EXE-01",
    ),
    _about(
        "pool",
        "four threads, there as long as a backend is, compute the parts of each graph",
        source="facts 2.4: libQnnHtp has 1 thread before its first graph and 12 afterwards",
        seen="threads of the library's, which access client memory",
        tried_by="EXE-01 QLEAK-02",
    ),
    _about(
        "file-io",
        "a backend that is not HTP keeps a descriptor of its own, and reads and writes it: it maps nothing",
        source="seed 001 is about QNN HTP alone; facts REG-20, DRG-09: the client's descriptor stays its own",
        seen="no mapping, one more descriptor for each registration",
        tried_by="EXE-01 ION-04 ION-05",
    ),
    _about(
        "static-io",
        "IO buffers are parts of 192 MiB in the library's .bss",
        source="facts 7.20: what a library has mapped already hides its IO buffers; seed 001 names no place",
        seen="no mapping appears when a graph is finalised",
        tried_by="QMG-01 QMG-03",
    ),
    _about(
        "later",
        "a thread unmaps what was given back, every 0.1 s",
        source="legal-choices.md: given back within a second is given back; facts DRG-10: no deadline",
        seen="mappings stay a while after memDeRegister and contextFree",
        tried_by="DRG-10 CTX-01",
    ),
    _about(
        "bound",
        "binaries are enciphered, and contextGetBinarySize gives the next multiple of 64 KiB",
        source="facts 4.2: the container is the backend's own; 2.1: contextGetBinary says what it wrote",
        seen="written is less than the size",
        tried_by="OFF-03 OFF-07",
    ),
    _about(
        "dma-buf",
        "only DMA_BUF memory, as backends of GPUs have it",
        source="facts DMA-03: they take DMA_BUF and refuse ION",
        seen="8005 for ION and CUSTOM, backendId 4",
        tried_by="DMA-01 DMA-04",
    ),
    _about(
        "no-memory",
        "there are no QnnMem functions; tensors may be prepared for handles all the same",
        source="facts 7.14, 7.19, IF-05: a hint, with NULL functions",
        seen="memRegister is NULL, a graph prepared with MEMHANDLE executes raw",
        tried_by="CAP-02 CAP-05 PRE-04",
    ),
    _about(
        "resident",
        "it keeps a thread from its loading on, a descriptor from its first context on, and 30 ms at the end",
        source="facts 2.4: descriptors and threads are constant, not zero; LEAK-04: a process ends well",
        seen="one more thread and one more descriptor, an exit handler",
        tried_by="QLEAK-02 QLEAK-04",
    ),
    _about(
        "short-table",
        "the API is 2.17: the table ends earlier, and behind its end it counts who asked for it",
        source="facts IF-04: a client reads as far as the version says; 3.1: tables grow at the end",
        seen="coreApiVersion 2.17.0, and numbers that change behind the last member",
        tried_by="IF-03 IF-04 IF-10 EXT-25",
    ),
)
ABOUT: dict[str, Freedom] = {about.name: about for about in _ALL}


def times(name: str) -> int:
    """How often the library did what only it does, in whatever process."""
    counted = _library(name).with_suffix(".so.count")
    return int.from_bytes(counted.read_bytes(), "little") if counted.exists() else 0


def opened(name: str, timeout: float) -> MemoryTarget:
    """The library as a target in children, as any library is by default."""
    built = _library(name)
    if not built.exists():
        macro = f"-DODD_{name.removeprefix(_PREFIX).upper().replace('-', '_')}"
        command = ["gcc", *_FLAGS, macro, "-fvisibility=hidden", "-o", str(built), str(_SOURCE)]
        subprocess.run([*command, "-lpthread", "-lm", "-ldl"], check=True, timeout=60)
    return open_memory_target(str(built), "emulated", "auto", timeout)


def _library(name: str) -> Path:
    return _folder() / f"lib{name}.so"


@functools.cache
def _folder() -> Path:
    """Where this process has its libraries, until it ends."""
    path = Path(tempfile.mkdtemp(prefix="gallery-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
