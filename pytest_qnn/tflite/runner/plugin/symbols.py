"""What the file of a plugin library says of it, before anything of it is called."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from pathlib import Path

from pytest_qnn.isolation.host import library_kinds
from pytest_qnn.isolation.observe import control_words
from pytest_qnn.tflite.cases.plugin import CREATE, DESTROY
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.runtime.symbols import dynamic_symbols
from pytest_qnn.tflite.trace import LibrarySeen

FUNCTIONS = (CREATE, DESTROY)
UNDEFINED_SYMBOL = "undefined symbol"
"""In what the loader says of a library that needs a function or variable that nobody has."""
_CPP = "6tflite"
"""The namespace tflite in a name that C++ made."""


def is_plugin(path: Path) -> bool:
    """A file exports a function of the interface, or one whose name C++ made of such a name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file.
    """
    return any(name in export for name in FUNCTIONS for export in dynamic_symbols(path).exports)


def other_kind(path: Path) -> str:
    """Why a file is no plugin at all, with what it is instead, if that is known; empty: it is one.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file.
    """
    if is_plugin(path):
        return ""
    return f"it exports no {CREATE}{library_kinds.told(dynamic_symbols(path).exports.__contains__)}"


@functools.lru_cache(maxsize=8)
def broken(path: Path) -> str:
    """What is wrong with a file that is a delegate plugin by its symbols, but cannot be used as one.

    Empty for one that can, and for one that is no plugin at all.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file.
    """
    symbols = dynamic_symbols(path)
    mangled = [
        export
        for name in FUNCTIONS
        for export in sorted(symbols.exports)
        if name in export and name != export
    ]
    missing = [name for name in FUNCTIONS if name not in symbols.exports]
    if mangled and missing:
        return f'it exports {mangled[0]}, a name that C++ made (extern "C" is missing), and no {missing[0]}'
    if len(missing) == len(FUNCTIONS):
        return ""
    error = _load_error(path)
    if UNDEFINED_SYMBOL in error:
        return error
    return f"it exports no {missing[0]}" if missing else ""


def _load_error(path: Path) -> str:
    try:
        with control_words.loading(str(path)):
            ctypes.CDLL(str(path))  # ctypes adds RTLD_NOW: every symbol must be found
    except OSError as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


@functools.lru_cache(maxsize=8)
def described(path: Path, runtime: Runtime) -> LibrarySeen:
    """The library's dynamic symbols, as far as rules ask about them, and what the loader says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file.
    """
    symbols = dynamic_symbols(path)
    names = [name for name in symbols.exports if any(function in name for function in FUNCTIONS)]
    return LibrarySeen(
        exports=tuple(sorted({*names, *_of_tflite(symbols.exports, runtime)})),
        undefined=tuple(
            sorted(name for name in symbols.undefined if name.startswith("TfLite") or _CPP in name)
        ),
        load_error=_load_error(path),
    )


def _of_tflite(names: Iterable[str], runtime: Runtime) -> list[str]:
    """Names of functions that the runtime has too.

    A plugin's own may begin with ``TfLite`` as well, and live in the
    namespace tflite.
    """
    own = [name for name in names if name.startswith("TfLite") or (name.startswith("_Z") and _CPP in name)]
    return [name for name in own if runtime.has_symbol(name)]
