"""Mutants of the reference, and of the emulated rpcmem, as shared libraries for programs in C.

The environment variable PYTEST_QNN_MUTANT names the one that a process gets; empty: the faultless reference.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pytest_qnn import native
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.target import Resource
from pytest_qnn.isolation.host.requests import Requests
from pytest_qnn.native import NativeReference
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.table import GetProviders
from pytest_qnn.qnn.mutants import BACKEND, RPCMEM, named
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.reference.system import ReferenceSystem
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.mutants import DELEGATE
from pytest_qnn.tflite.mutants import named as delegate_named
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.half import HalfDelegate

CLAIM: Final = "PYTEST_QNN_CLAIM"
"""Nodes that a delegate claims, as JSON; without it all that it supports."""
MUTANT: Final = "PYTEST_QNN_MUTANT"
CONFORMING: Final = "conforming:"
"""Before a mutant's name: the reference with what that mutant declares, without its fault."""
_VARIANTS: Final = ReferenceDelegate.__module__.rpartition(".")[0]
_HERE: Final = Path(__file__).resolve().parent
_FLAGS: Final = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-fvisibility=hidden")
_ALLOC: Any = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_ssize_t)
_ASK: Any = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_REFUSED: Final[dict[int, Resource]] = {1: "memory", 2: "new", 3: "mapping"}
"""What ``requests.cc`` answers; 0: nothing was refused."""
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
    backend: tuple[str, ...] = (
        "-DENTRY=QnnInterface_getProviders",
        '-DKIND="backend"',
        str(sources / "provider.c"),
    )
    system = ("-DENTRY=QnnSystemInterface_getProviders", '-DKIND="system"', str(sources / "provider.c"))
    backend += _requests(folder)
    rpcmem = (f"-I{sources}", str(_HERE / "rpcmem.c"))
    for library, arguments in ((made.backend, backend), (made.system, system), (made.rpcmem, rpcmem)):
        command = ["gcc", *_FLAGS, module, "-o", str(library), *arguments, "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
    return made


def _requests(folder: Path) -> tuple[str, ...]:
    """What is linked to a backend that has requests refused: nothing where there is no compiler of C++."""
    if shutil.which("g++") is None:
        return ()
    made = folder / "requests.o"
    # Not optimised: memory that nobody uses would not be asked for.
    command = ["g++", "-fPIC", "-O0", "-Wall", "-Wextra", "-c", "-o", str(made), str(_HERE / "requests.cc")]
    subprocess.run(command, check=True)
    return str(made), "-lstdc++"


def environment(made: NativeReference, mutant: str = "") -> dict[str, str]:
    """Variables for a process that gets the mutant; "": the reference."""
    variables = made.environment()
    root = str(_HERE.parents[1])
    variables["PYTEST_QNN_PATH"] = os.pathsep.join((root, variables["PYTEST_QNN_PATH"]))
    # A client in Python has a path of its own, and needs this folder in it.
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return dict(os.environ) | variables | {MUTANT: mutant, "PYTHONPATH": path}


def serve(library: bytes, kind: str) -> None:
    """Make what the kind names, and hand it to the library at this path (`pytest_qnn.native`)."""
    name = os.environ.get(MUTANT, "")
    conforming = name.startswith(CONFORMING)
    name = name.removeprefix(CONFORMING)
    mutant = _mutant(name, kind)
    made: Any
    if kind == "backend":
        made = ((mutant.of(BACKEND) if mutant else None) or ReferenceBackend)()
        made = ReferenceBackend(made.personality) if conforming else made
    elif kind == "system":
        made = ReferenceSystem()
    elif kind == "delegate":
        faulty = None if mutant is None else mutant.of(DELEGATE)
        made = _Delegates(_faultless(faulty) if conforming else faulty)
    else:
        faulty = None if conforming or mutant is None else mutant.of(RPCMEM)
        made = _Functions((faulty or EmulatedRpcmem)())
    _SERVED.append(made)
    loaded = ctypes.CDLL(os.fsdecode(library), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    if kind == "backend" and hasattr(loaded, "pytest_qnn_ask"):
        made.refusing = _Requests(loaded.pytest_qnn_ask)
    loaded.pytest_qnn_serve.argtypes = (ctypes.c_void_p,)
    loaded.pytest_qnn_serve.restype = None
    loaded.pytest_qnn_serve(ctypes.cast(made.get_providers, ctypes.c_void_p))


class _Requests(Requests):
    """What a reference asks for is asked for by the library that serves it, in whose name it may be refused.

    Attributes:
        wanted: what was refused last, until something is asked for again.
    """

    def __init__(self, system: Callable[[int], int]) -> None:
        super().__init__(lambda: QnnError(Error.COMMON_ERROR_MEM_ALLOC))
        self._system = system

    def ask(self, wanted: str) -> None:
        """See `Requests`."""
        self.wanted = _REFUSED.get(self._system(int(wanted == "mapping")))
        if self.wanted is not None:
            self.refused += 1
            raise self._error()


def declares(mutant: Mutant) -> bool:
    """The conforming library that is served beside the mutant is another one than the plain reference."""
    backend = mutant.of(BACKEND) if mutant.subject == "memory" else None
    if backend is None:
        return False
    with closing(backend()) as made:
        return bool(made.personality != DEFAULT)


def _faultless(faulty: Any) -> Any:
    """The variant of the reference delegate that a faulty one is made from.

    One that computes in float16 is conforming only where that is declared.
    """
    bases = faulty.__mro__ if isinstance(faulty, type) else ()
    variants = (each for each in bases if each.__module__.startswith(_VARIANTS))
    half = getattr(faulty, "PRECISION", "float32") == "float16"
    return next((each for each in variants if half or not issubclass(each, HalfDelegate)), None)


def _mutant(name: str, kind: str) -> Mutant | None:
    if not name:
        return None
    return delegate_named(name) if kind == "delegate" else named(name)


def build_delegate(library: Path) -> None:
    """Build a delegate plugin that the same variable makes a mutant; ``CLAIM`` says what it claims.

    Raises:
        subprocess.CalledProcessError: there is no compiler, or it fails.
    """
    arguments = (f'-DMODULE="{__name__}"', f"-I{Path(native.__file__).parent}", str(_HERE / "delegate.c"))
    command = ["gcc", *_FLAGS, "-o", str(library), *arguments, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)


class _Delegates:
    """The functions of a plugin, as ``delegate.c`` asks for them."""

    def __init__(self, create: Callable[..., ReferenceDelegate] | None) -> None:
        self._create = create or ReferenceDelegate
        self._live: dict[int, ReferenceDelegate] = {}
        self._made = layouts.PluginCreate(self._new), layouts.PluginDestroy(self._end)
        self._table = (ctypes.c_void_p * len(self._made))(
            *(ctypes.cast(each, ctypes.c_void_p).value for each in self._made)
        )
        self.get_providers: Any = GetProviders(self._tell)

    def _new(self, keys: int, values: int, count: int, report: int) -> int:
        del keys, values, count, report
        claim = os.environ.get(CLAIM)
        made = self._create(claim=None if claim is None else tuple(json.loads(claim)))
        self._live[made.address] = made
        return made.address

    def _end(self, address: int) -> None:
        self._live.pop(address).close()

    def _tell(self, listed: Any, count: Any) -> int:
        ctypes.cast(listed, ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(self._table)
        count[0] = len(self._made)
        return 0


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
