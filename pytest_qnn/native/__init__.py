"""The reference as ordinary shared libraries, for clients that know nothing of Python.

    python -m pytest_qnn.native FOLDER

builds ``libQnnReference.so`` (it exports ``QnnInterface_getProviders``), its companion ``libQnnSystem.so``
and an emulated ``libcdsprpc.so`` with the machine's C compiler, and prints the environment for a client.

They are built on demand rather than when the package is installed: nothing else needs a compiler, and a
wheel without binaries fits every machine.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden")


class BuildFailed(Exception):  # noqa: N818 - about the machine, not about the code
    """The libraries cannot be built here; the text is one sentence."""


@dataclasses.dataclass(frozen=True)
class NativeReference:
    """Paths of the libraries, and what a client's process needs to use them."""

    backend: Path
    """Exports QnnInterface_getProviders."""
    system: Path
    """Exports QnnSystemInterface_getProviders; clients look for it beside the backend."""
    rpcmem: Path
    """libcdsprpc.so: rpcmem_alloc, rpcmem_free, rpcmem_to_fd and what clients resolve beside them."""

    def environment(self, personality: str = "default") -> dict[str, str]:
        """Variables for a client's process, to be merged into its environment.

        ``LD_LIBRARY_PATH`` lets ``dlopen("libcdsprpc.so")`` find the emulation; the others tell a process
        without Python where to find one (`libpython`), and which personality the reference shall have.
        """
        folders = [str(self.rpcmem.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        found = {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders)),
            # An editable install is on no path; so the folder of this very package goes first.
            "PYTEST_QNN_PATH": os.pathsep.join((str(_HERE.parents[1]), *filter(None, sys.path))),
            "PYTEST_QNN_PERSONALITY": personality,
        }
        library = libpython()
        return found | ({"PYTEST_QNN_LIBPYTHON": str(library)} if library else {})


def libpython() -> Path | None:
    """The shared library of this Python, which clients in other languages load; None where it has none."""
    name, folder = sysconfig.get_config_var("INSTSONAME"), sysconfig.get_config_var("LIBDIR")
    if not name or not folder or not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return None
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    candidates = (Path(folder, name), Path(folder, multiarch, name))
    return next((path for path in candidates if path.is_file()), None)


def build(folder: Path) -> NativeReference:
    """Build the libraries into ``folder``, which is made if need be.

    Raises:
        BuildFailed: there is no C compiler, or it fails.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    made = NativeReference(
        folder / "libQnnReference.so", folder / "libQnnSystem.so", folder / "libcdsprpc.so"
    )
    _compile("provider.c", made.backend, ENTRY="QnnInterface_getProviders", KIND='"backend"')
    _compile("provider.c", made.system, ENTRY="QnnSystemInterface_getProviders", KIND='"system"')
    _compile("cdsprpc.c", made.rpcmem)
    return made


def _compile(source: str, library: Path, **macros: str) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise BuildFailed("the reference's libraries need a C compiler (cc or gcc), and there is none")
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    # Renamed into place at the end: a library that a process has mapped must not change under it.
    fresh = library.with_name(f".{library.name}.{os.getpid()}")
    command = [compiler, *_FLAGS, *defines, "-o", str(fresh), str(_HERE / source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = next(iter(done.stderr.splitlines()), f"exit status {done.returncode}")
        raise BuildFailed(f"{compiler} cannot build {library.name}: {first}")
    fresh.replace(library)
