"""Give the reference to a C library of ours (`pytest_qnn.native`) that foreign clients have loaded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.system import ReferenceSystem

_SERVED: list[Any] = []
"""What C holds pointers into, until the process ends: its clients may call at any time."""


def serve(library: bytes, kind: str) -> None:
    """Make the reference with the personality that PYTEST_QNN_PERSONALITY names, and hand it to ``library``.

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


def _backend() -> ReferenceBackend:
    return ReferenceBackend(PERSONALITIES[os.environ.get("PYTEST_QNN_PERSONALITY") or "default"])


_KINDS: dict[str, Callable[[], Any]] = {"backend": _backend, "system": ReferenceSystem}
