"""Further faults in the example backend, of which rules were accused that do not own them.

They were planted by one who knew no check, like the last six of `tests.faults.faults`.
"""

from __future__ import annotations

from tests.faults.faults import Fault

_KEEPS = (
    ("  (void)held;\n  pthread_mutex_unlock", "  (void)held;\n  if (keeps) return;\n  pthread_mutex_unlock"),
    ("static Object* objects;\n", "static Object* objects;\nstatic int keeps;\n"),
)
"""The lock is kept once ``keeps`` is set."""

FURTHER: dict[str, Fault] = {
    "qnn-keeps-its-lock": Fault(
        "memory",
        "QnnGraph_execute that refuses its tensors does not let go of the lock: the next call hangs.",
        "EXE-03",
        "  free(data);\n  return code;\n",
        "  free(data);\n  keeps = code == 6004;\n  return code;\n",
        timeout=1.0,
        also=_KEEPS,
    ),
    "qnn-keeps-its-lock-in-register": Fault(
        "memory",
        "QnnMem_register that refuses a descriptor does not let go of the lock: the next call hangs.",
        "REG-13",
        "      out[i] = 0;\n    }\n    return code;\n",
        "      out[i] = 0;\n    }\n    keeps = 1;\n    return code;\n",
        timeout=1.0,
        also=_KEEPS,
    ),
    "qnn-keeps-its-lock-in-deregister": Fault(
        "memory",
        "QnnMem_deRegister that refuses a handle does not let go of the lock: the next call hangs.",
        "DRG-03",
        "    if (!found) code = 8001;\n",
        "    if (!found) code = 8001, keeps = 1;\n",
        timeout=1.0,
        also=_KEEPS,
    ),
    "qnn-dies-with-several-handles": Fault(
        "memory",
        "QnnMem_deRegister of several handles in one call writes to a bad address.",
        "DRG-01",
        "    if (!found) code = 8001;\n",
        "    if (!found) code = 8001;\n    if (size > 1) *(volatile int*)8 = 1;\n",
    ),
    "qnn-keeps-its-recursive-lock": Fault(
        "memory",
        "QnnGraph_execute that refuses its tensors does not let go of a lock that its thread may take again: "
        "the next call of another thread hangs.",
        "QTHR-06",
        "  free(data);\n  return code;\n",
        "  free(data);\n  if (code == 6004) pthread_mutex_lock(&mutex);\n  return code;\n",
        timeout=1.0,
        also=(("mutex = PTHREAD_MUTEX_INITIALIZER", "mutex = {{.__kind = PTHREAD_MUTEX_RECURSIVE_NP}}"),),
    ),
    "qnn-dies-with-handles": Fault(
        "memory",
        "QnnGraph_execute with a live memory handle writes to a bad address.",
        "EXE-01",
        "    Memory* found = find(kMemory, (uintptr_t)given->pointer);\n",
        "    Memory* found = find(kMemory, (uintptr_t)given->pointer);\n"
        "    if (found) *(volatile int*)8 = 1;\n",
    ),
    "qnn-takes-short-names": Fault(
        "memory",
        "QnnGraph_create refuses a name of more than 64 bytes.",
        "PRE-10",
        "  if (!name || named(owner, name)) return 6003;\n",
        "  if (!name || strlen(name) > 64 || named(owner, name)) return 6003;\n",
    ),
    "qnn-cuts-names": Fault(
        "memory",
        "QnnGraph_create keeps 64 bytes of a name.",
        "PRE-10",
        "!strcmp(((Graph*)each)->name, name)",
        "!strncmp(((Graph*)each)->name, name, 64)",
    ),
    "qnn-keeps-what-stands-before-a-middle": Fault(
        "memory",
        "A batch of which a descriptor between others is refused leaves those before it registered.",
        "REG-08",
        "      end(find(kMemory, out[i]));\n      out[i] = 0;\n",
        "      if (is_last || !bad) end(find(kMemory, out[i]));\n      out[i] = 0;\n",
        also=(
            ("    while (i--) {\n", "    const int bad = i, is_last = i + 1 == size;\n    while (i--) {\n"),
        ),
    ),
    "qnn-keeps-registrations-of-contexts": Fault(
        "memory",
        "QnnContext_free ends no registration of its context.",
        "CTX-01",
        "    if (each->owner == ended) {\n",
        "    if (each->owner == ended && each->kind != kMemory) {\n",
    ),
    "qnn-keeps-descriptors": Fault(
        "memory",
        "Each registration keeps a duplicate of its client's descriptor for good.",
        "DRG-10",
        "MAP_SHARED, given->fd, 0)",
        "MAP_SHARED, dup(given->fd), 0)",
    ),
    "qnn-closes-descriptors": Fault(
        "memory",
        "A registration closes its client's descriptor when it ends.",
        "DRG-09",
        "munmap(((Memory*)ended)->data, ((Memory*)ended)->length);\n",
        "munmap(((Memory*)ended)->data, ((Memory*)ended)->length), close(((Memory*)ended)->fd);\n",
        also=(
            ("  (*made)->data = data;\n", "  (*made)->data = data;\n  (*made)->fd = given->fd;\n"),
            ("  size_t length; /* of its mapping */\n", "  size_t length;\n  int fd;\n"),
        ),
    ),
}
"""By name."""
