"""Further faults in the example backend, of which rules were accused that do not own them.

They were planted by one who knew no check, like the last six of `tests.faults.faults`.
"""

from __future__ import annotations

from tests.faults.faults import Fault

FURTHER: dict[str, Fault] = {
    "qnn-keeps-its-lock": Fault(
        "memory",
        "QnnGraph_execute that refuses its tensors does not let go of the lock: the next call hangs.",
        "EXE-03",
        "  free(data);\n  return code;\n",
        "  free(data);\n  keeps = code == 6004;\n  return code;\n",
        timeout=1.0,
        also=(
            ("  (void)held;\n  pthread_mutex_unlock", "  if (keeps) return;\n  pthread_mutex_unlock"),
            ("static Object* objects;\n", "static Object* objects;\nstatic int keeps;\n"),
        ),
    ),
}
"""By name."""
