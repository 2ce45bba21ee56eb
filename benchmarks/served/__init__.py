"""Mutants of the reference, and of the emulated rpcmem, as shared libraries for programs in C.

The environment variable PYTEST_QNN_MUTANT names the one that a process gets; empty: the faultless reference.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from pytest_qnn import native
from pytest_qnn.native import NativeReference
from pytest_qnn.qnn.abi.table import GetProviders
from pytest_qnn.qnn.mutants import BACKEND, RPCMEM, named
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.reference.system import ReferenceSystem

MUTANT: Final = "PYTEST_QNN_MUTANT"
_HERE: Final = Path(__file__).resolve().parent
_FLAGS: Final = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-fvisibility=hidden")
_ALLOC: Any = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_ssize_t)
_ASK: Any = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_SERVED: Final[list[Any]] = []
"""What C holds pointers into, until the process ends."""


def build(folder: Path) -> NativeReference:
    """Build the libraries into ``folder``: a backend and an rpcmem that a variable makes mutants.

    Raises:
        subprocess.CalledProcessError: there is no compiler, or it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = NativeReference(folder / "libQnnServed.so", folder / "libQnnSystem.so", folder / "libcdsprpc.so")
    sources = Path(native.__file__).parent
    module = f'-DMODULE="{__name__}"'
    backend = ("-DENTRY=QnnInterface_getProviders", '-DKIND="backend"', str(sources / "provider.c"))
    system = ("-DENTRY=QnnSystemInterface_getProviders", '-DKIND="system"', str(sources / "provider.c"))
    rpcmem = (f"-I{sources}", str(_HERE / "rpcmem.c"))
    for library, arguments in ((made.backend, backend), (made.system, system), (made.rpcmem, rpcmem)):
        command = ["gcc", *_FLAGS, module, "-o", str(library), *arguments, "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
    return made


def environment(made: NativeReference, mutant: str = "") -> dict[str, str]:
    """Variables for a process that gets the mutant; "": the reference."""
    variables = made.environment()
    root = str(_HERE.parents[1])
    variables["PYTEST_QNN_PATH"] = os.pathsep.join((root, variables["PYTEST_QNN_PATH"]))
    return dict(os.environ) | variables | {MUTANT: mutant}


def serve(library: bytes, kind: str) -> None:
    """Make what the kind names, and hand it to the library at this path (`pytest_qnn.native`)."""
    name = os.environ.get(MUTANT, "")
    mutant = named(name) if name else None
    made: Any
    if kind == "backend":
        made = ((mutant.of(BACKEND) if mutant else None) or ReferenceBackend)()
    elif kind == "system":
        made = ReferenceSystem()
    else:
        made = _Functions(((mutant.of(RPCMEM) if mutant else None) or EmulatedRpcmem)())
    _SERVED.append(made)
    loaded = ctypes.CDLL(os.fsdecode(library), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    loaded.pytest_qnn_serve.argtypes = (ctypes.c_void_p,)
    loaded.pytest_qnn_serve.restype = None
    loaded.pytest_qnn_serve(ctypes.cast(made.get_providers, ctypes.c_void_p))


class _Functions:
    """The functions of an rpcmem, as ``rpcmem.c`` asks for them."""

    def __init__(self, rpcmem: EmulatedRpcmem) -> None:
        self._made = (
            _ALLOC(rpcmem.alloc),
            _ALLOC(lambda *given: rpcmem.alloc2(*given) or 0),
            _ASK(lambda pointer: rpcmem.free(pointer or 0) or 0),
            _ASK(lambda pointer: rpcmem.to_fd(pointer or 0)),
        )
        self._table = (ctypes.c_void_p * len(self._made))(
            *(ctypes.cast(each, ctypes.c_void_p).value for each in self._made)
        )
        self.get_providers: Any = GetProviders(self._tell)

    def _tell(self, listed: Any, count: Any) -> int:
        ctypes.cast(listed, ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(self._table)
        count[0] = len(self._made)
        return 0
