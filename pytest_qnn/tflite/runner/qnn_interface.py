"""The QNN delegate's own C interface: TfLiteQnnDelegateOptionsDefault, TfLiteQnnDelegateCreate and -Delete.

Seed 000 prefers it to the external delegate's. Sources: QnnTFLiteDelegate.h as Qualcomm documents it
(docs.qualcomm.com, 80-63442-10, "C Interface", API version 0.24) and as public repositories hold it (0.18).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.observe import control_words
from pytest_qnn.tflite.runtime.symbols import dynamic_symbols

DEFAULT: Final = "TfLiteQnnDelegateOptionsDefault"
CREATE: Final = "TfLiteQnnDelegateCreate"
DELETE: Final = "TfLiteQnnDelegateDelete"
FUNCTIONS: Final = (DEFAULT, CREATE, DELETE)
BACKEND_TYPE: Final = "backend_type"
BACKENDS: Final = {"gpu": 1, "htp": 2, "dsp": 3}
"""TfLiteQnnDelegateBackendType: kGpuBackend, ...; the names are those of the external interface's option
("External Delegate Options" of the same document)."""
UNDEFINED: Final = 0
"""kUndefinedBackend."""
_PATHS: Final = ("library_path", "skel_library_dir")
OPTIONS: Final = (BACKEND_TYPE, *_PATHS)
_BYTES: Final = 4096
"""Ten times what the struct of API version 0.18 takes; how large a library's is only the library knows."""
_INT32: Final = 1 << 31


class _Options(ctypes.Structure):
    """TfLiteQnnDelegateOptions: its first three members, as in version 0.18, and room for the others.

    A function returns it in memory of its caller, as the ABIs of x86-64 and aarch64 do with every struct of
    more than 16 bytes: a library writes its own struct's bytes there, however many these are.
    """

    _fields_ = [
        ("backend_type", ctypes.c_int32),
        ("library_path", ctypes.c_char_p),
        ("skel_library_dir", ctypes.c_char_p),
        ("others", ctypes.c_char * (_BYTES - 24)),
    ]


@functools.lru_cache(maxsize=8)
def has_interface(path: str) -> bool:
    """A file exports the three functions.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file.
    """
    file = Path(path)
    # Most have none: a search of the bytes is much faster than a list of the symbols.
    return CREATE.encode() in file.read_bytes() and dynamic_symbols(file).exports.issuperset(FUNCTIONS)


def wrong_option(options: Mapping[str, str]) -> str:
    """Why the options cannot be put into the struct, as the end of a sentence; empty: they can."""
    unknown = next((key for key in options if key not in OPTIONS), None)
    if unknown is not None:
        return (
            f"through {CREATE} it takes the options {', '.join(OPTIONS)} here, not {unknown}: "
            "where others lie in its struct is the vendor's matter"
        )
    value = options.get(BACKEND_TYPE)
    if value is not None and backend_number(value) is None:
        return f"{BACKEND_TYPE} is {value!r}, neither {', '.join(BACKENDS)} nor a number of 32 bits"
    return ""


def backend_number(text: str) -> int | None:
    """TfLiteQnnDelegateBackendType as a name or a number; None for a text that is neither."""
    if text in BACKENDS:
        return BACKENDS[text]
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else _INT32
    return number if -_INT32 <= number < _INT32 else None


class QnnInterface:
    """The three functions of a library, called as the runtimes call a plugin's: Python's lock is kept.

    Raises:
        AttributeError: one of them is missing.
        OSError: the library cannot be loaded.
    """

    def __init__(self, path: str) -> None:
        with control_words.loading(path):
            self.library = library = ctypes.PyDLL(path)
        self._default, create, delete = (getattr(library, name) for name in FUNCTIONS)
        self._default.argtypes, self._default.restype = (), _Options
        create.argtypes, create.restype = (ctypes.c_void_p,), ctypes.c_void_p
        delete.argtypes, delete.restype = (ctypes.c_void_p,), None
        self._create: Any = call_log.noted(CREATE, create, pointer=True)
        self.delete: Any = call_log.noted(DELETE, delete)

    def create(self, options: Mapping[str, str]) -> tuple[int, object]:
        """A delegate from the defaults and these options; one that is not given stays as the library has it.

        Returns:
            Its address, or 0; and what must live as long as it, since nobody says that a library copies its
            options.
        """
        made = self._default()
        if BACKEND_TYPE in options:
            made.backend_type = backend_number(options[BACKEND_TYPE]) or 0
        for key in _PATHS:
            if key in options:
                setattr(made, key, options[key].encode())
        return self._create(ctypes.addressof(made)) or 0, made
