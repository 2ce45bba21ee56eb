"""The reference QNN backend: a real interface table made of Python callbacks, driven like a library.

    backend = ReferenceBackend()                  # or ReferenceBackend(PERSONALITIES["no-ion"])
    backend.get_providers(list_out, count_out)    # the exported QnnInterface_getProviders
    ...
    backend.escaped                               # [(entry, exception)] of faults of its own: empty
    backend.close()                               # releases every mapping, as a process's end would

Keep the object alive for as long as any pointer of its table may be called.

Structure: one class per subject, each on top of the one before. Every API function is one method, found by
its name: the table's ``memRegister`` is ``mem_register``. Every decision in it is one more method, whose
docstring begins with ``Hook:``. A faulty backend (a mutant) is a subclass that overrides exactly one hook.
API methods return for success and raise ``QnnError(code)``.

State that hooks read: ``personality``; the live objects by handle value in ``backends``, ``logs``,
``devices``, ``contexts``, ``graphs`` and ``registrations``; ``mappings``, every mapping not yet released
(``close`` releases what a fault leaks). Using memory that a fault unmapped raises `ReleasedError` (the call
answers 1100, and ``escaped`` shows it) where C would crash: no mutant needs a child process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, ClassVar

from pytest_qnn.qnn.reference.core import Devices
from pytest_qnn.qnn.reference.execute import Asynchronous, InOnePiece, Stored
from pytest_qnn.qnn.reference.external import ExternalBuffers
from pytest_qnn.qnn.reference.graphs import Retrieval
from pytest_qnn.qnn.reference.lists import Lists
from pytest_qnn.qnn.reference.objects import Graph, Node, Tensor
from pytest_qnn.qnn.reference.operators.values import Values, to_steps
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.pieces import ProvidedPieces
from pytest_qnn.qnn.reference.profiles import Profiles
from pytest_qnn.qnn.reference.sections import Sections
from pytest_qnn.qnn.reference.settings import Environments, Settings
from pytest_qnn.qnn.reference.signals import Signals
from pytest_qnn.qnn.reference.system import ReferenceSystem


class ReferenceBackend(
    ProvidedPieces,
    Lists,
    Profiles,
    Signals,
    Settings,
    ExternalBuffers,
    Asynchronous,
    Sections,
    Retrieval,
    Environments,
    InOnePiece,
    Devices,
):
    """A conforming QNN backend in this process: graphs in numpy, QnnMem on memfd-backed rpcmem.

    Codes follow the public headers of API 2.32; where those are silent, libQnnHtp on x86-64.
    """


class ServedBackend(ReferenceBackend):
    """The reference as a library for foreign clients, with the versions of the library that it stands for.

    ONNX Runtime's provider takes core API 2.40.0 or newer; LiteRT's compiler plugin also asks for backend API
    5.50. What API 2.40 has behind the members of 2.32 is NULL: functions that are not supported.
    """

    build_id: ClassVar[bytes] = b"v2.51.0.0"
    """The SDK of API 2.40, as vMajor.Minor.Patch.Build: clients take it apart."""
    core_version: ClassVar[tuple[int, int, int]] = (2, 40, 0)
    backend_version: ClassVar[tuple[int, int, int]] = (5, 51, 0)

    def results(
        self, graph: Graph, node: Node, outputs: list[Tensor], values: dict[int, Stored]
    ) -> list[Values]:
        """A Relu of fixed point takes halves to the even number, as only that of libQnnHtp does (2.51)."""
        found = super().results(graph, node, outputs, values)
        if node.operator == "Relu" and self.personality.rounding == "half-up":
            return [to_steps(tensor, each) for tensor, each in zip(outputs, found, strict=True)]
        return found


_SERVED: list[Any] = []
"""What C holds pointers into, until the process ends: its clients may call at any time."""


def serve(library: bytes, kind: str) -> None:
    """Make the reference with the personality that PYTEST_QNN_PERSONALITY names, and hand it to ``library``.

    That is a C library of ours (`pytest_qnn.native`), which foreign clients have loaded as a QNN backend.

    Args:
        library: path of the loaded library that asks.
        kind: ``backend`` or ``system``.

    Raises:
        KeyError: there is no such personality, or no such kind.
        OSError: the library is not loaded.
    """
    made = _KINDS[kind]()
    _SERVED.append(made)
    loaded = ctypes.CDLL(os.fsdecode(library), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    loaded.pytest_qnn_serve.argtypes = (ctypes.c_void_p,)
    loaded.pytest_qnn_serve.restype = None
    loaded.pytest_qnn_serve(ctypes.cast(made.get_providers, ctypes.c_void_p))


def _backend() -> ServedBackend:
    return ServedBackend(PERSONALITIES[os.environ.get("PYTEST_QNN_PERSONALITY") or "default"])


_KINDS: dict[str, Callable[[], Any]] = {"backend": _backend, "system": ReferenceSystem}
