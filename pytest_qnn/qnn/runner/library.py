"""Where a QNN interface is entered: the exported QnnInterface_getProviders of a library, or one of ours."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.host import library_files, library_kinds
from pytest_qnn.isolation.observe import control_words
from pytest_qnn.qnn.abi.codes import API_VERSION
from pytest_qnn.qnn.abi.table import OLDEST, GetProviders, Interface, InterfaceP

SYMBOL = "QnnInterface_getProviders"
_NAME = SYMBOL.encode()


class QnnUnusable(Exception):  # noqa: N818 - a finding about a named file, not an error of ours
    """The named library is no QNN backend; the text is one clear sentence."""


@dataclasses.dataclass(frozen=True)
class QnnEntry:
    """The entry point of a QNN backend.

    ``get_providers`` is a ctypes function pointer with the exported symbol's signature; ``owner`` keeps
    alive whatever the pointer leads to.
    """

    get_providers: Any
    owner: Any = None
    system: str = ""
    """Path of the System library beside the backend, ``reference`` for that of our own; "": there is none."""
    path: str = ""
    """Of the library; "": it is none."""


def open_library(path: str) -> QnnEntry:
    """Load a QNN backend library.

    Raises:
        QnnUnusable: the file is missing, cut off or for another machine, is no library, is no QNN backend
            or yields no provider.
    """
    if not os.path.isfile(path):
        raise QnnUnusable(f"the QNN backend library {path} does not exist")
    flaw = library_files.flaw(path)
    if flaw:
        raise QnnUnusable(f"{path} {flaw}")
    _preload_unwinder()
    try:
        with control_words.loading(path):
            library = ctypes.CDLL(path)
    except OSError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise QnnUnusable(f"{path} cannot be loaded as a shared library: {reason}") from None
    if not hasattr(library, SYMBOL):
        kind = library_kinds.told(functools.partial(hasattr, library))
        raise QnnUnusable(f"{path} is no QNN backend: it does not export {SYMBOL}{kind}")
    entry = QnnEntry(GetProviders((SYMBOL, library)), library, _system_of(path), path)
    code, found = providers(entry)
    if code:
        raise QnnUnusable(f"{path} yields no provider: {SYMBOL} returned {code}")
    if not found:
        raise QnnUnusable(f"{path} yields no provider: {SYMBOL} succeeded with an empty list")
    return entry


def _system_of(path: str) -> str:
    """The System library beside a backend; of a link without one, that beside what it leads to."""
    beside = Path(path).with_name("libQnnSystem.so")
    return str(beside if beside.exists() else Path(path).resolve().with_name(beside.name))


def providers(entry: QnnEntry) -> tuple[int, list[Any]]:
    """The code of QnnInterface_getProviders and the providers that are not NULL (pointers to Interface)."""
    listed = ctypes.POINTER(InterfaceP)()
    count = ctypes.c_uint32()
    code: int = call_log.call(_NAME, entry.get_providers, ctypes.byref(listed), ctypes.byref(count))
    if code or not listed:
        return code, []
    # Copies of the pointers: the list itself may be another one at the next call.
    return code, [ctypes.cast(listed[i], InterfaceP) for i in range(count.value) if listed[i]]


def chosen(found: list[Any]) -> Any:
    """The provider that a client of this API takes: the first of those that serve it best.

    A library may list providers of several API versions (QnnInterface.h, QnnInterface_getProviders).
    """
    return max(found, key=lambda each: serves(each.contents.apiVersion.coreApiVersion, API_VERSION)).contents


def serves(offered: Any, wanted: tuple[int, int, int]) -> int:
    """How well a Qnn_Version_t serves a client of another one: one of its major and no older as well as any.

    The newest of the older ones is next best; 0: it is of another major.
    """
    return 1 + min(offered.minor, wanted[1]) if offered.major == wanted[0] else 0


def readable(provider: Any) -> Any:
    """The provider as far as its version lets a client read: of an older minor a copy with a NULL tail.

    Its table ends earlier, and what lies behind its end is anything.
    """
    version = provider.apiVersion.coreApiVersion
    if (version.major, version.minor) >= API_VERSION[:2]:
        return provider
    copy = Interface()
    size = Interface.implementation.offset + OLDEST * ctypes.sizeof(ctypes.c_void_p)
    ctypes.memmove(ctypes.byref(copy), ctypes.byref(provider), size)
    return copy


def _preload_unwinder() -> None:
    # QNN libraries bring an unwinder of their own. Loaded before the system's, it makes the next C++
    # exception of any other library end the process.
    for name in ("libgcc_s.so.1", "libstdc++.so.6"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
