"""The part of QNN's public ABI that a program uses, as C declarations made from the ctypes layouts.

So a program needs no header of an SDK, and there is one place where the ABI stands.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from typing import Any, Final

from pytest_qnn.qnn.abi.layouts import (
    ContextBuffer,
    ContextConfig,
    ContextParams,
    ContextProperty,
    DataRequest,
    DmaDataMem,
    DmaDataResponse,
    ExecuteEnvironment,
    HtpContextProperty,
    HtpMemDescriptor,
    MemDescriptor,
    NotifyStatus,
    OpConfig,
    ProfileEventData,
    RawDataMem,
    RawDataResponse,
    Tensor,
)
from pytest_qnn.qnn.abi.system import SYSTEM_FUNCTIONS, BinaryInfo, SystemInterface
from pytest_qnn.qnn.abi.table import FUNCTIONS, Interface

_SCALARS: Final[dict[Any, str]] = {
    ctypes.c_uint8: "uint8_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_float: "float",
    ctypes.c_double: "double",
    ctypes.c_void_p: "void*",
    ctypes.c_char_p: "const char*",
}
_POINTER: Any = type(ctypes.POINTER(ctypes.c_int32))
_FUNCTION: Any = type(ctypes.CFUNCTYPE(None))


def name_of(kind: Any) -> str:
    """What QNN's headers call a structure: the first word of its docstring."""
    return str(kind.__doc__).split()[0].rstrip(",.:")


def c_type(kind: Any) -> str:
    """A ctypes type in C; a pointer to a function is a ``void*``, which is as large."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(kind, _POINTER):
        inner = c_type(kind._type_)
        return f"{inner}*"
    if isinstance(kind, _FUNCTION):
        return "void*"
    return name_of(kind)


def declared(kinds: Collection[Any], done: dict[str, str]) -> None:
    """Enter the declarations of structures, by name, into ``done``, each behind those that it needs."""
    for kind in kinds:
        _declare(kind, done)


def table(used: Collection[str], done: dict[str, str]) -> str:
    """The function table and the interface; entries that are not used are plain pointers.

    Args:
        used: names of entries.
        done: as for `declared`; what the entries need is entered.
    """
    entries = _entries(FUNCTIONS, used, done)
    head = ("  uint32_t backendId;", "  const char* providerName;")
    return _interface("QnnInterface", "apiVersion", "V2_32", Interface, entries, head, done)


def system_table(done: dict[str, str]) -> str:
    """The same of the System interface; and what it says of a binary."""
    declared([BinaryInfo], done)
    used = ("systemContextCreate", "systemContextGetBinaryInfo", "systemContextFree")
    entries = _entries(SYSTEM_FUNCTIONS, used, done)
    head = ("  uint32_t backendId;", "  const char* providerName;")
    return _interface("QnnSystemInterface", "systemApiVersion", "V1", SystemInterface, entries, head, done)


def _entries(
    functions: Collection[tuple[str, tuple[Any, ...]]], used: Collection[str], done: dict[str, str]
) -> list[str]:
    lines = []
    for name, types in functions:
        if name not in used:
            lines.append(f"  void* {name};")
            continue
        declared(types, done)
        lines.append(f"  uint64_t (*{name})({', '.join(map(c_type, types))});")
    return lines


def _interface(
    name: str,
    version: str,
    number: str,
    kind: Any,
    entries: list[str],
    head: Collection[str],
    done: dict[str, str],
) -> str:
    fields = {field[0]: field[1] for field in kind._fields_}
    declared([fields[version]], done)
    implementation = f"{name}_Implementation{number}_t"
    lines = [
        "typedef struct {",
        *entries,
        f"}} {implementation};",
        "typedef struct {",
        *head,
        f"  {c_type(fields[version])} {version};",
        f"  {implementation} implementation;",
        f"}} {name}_t;",
    ]
    return "\n".join(lines)


def _declare(kind: Any, done: dict[str, str]) -> None:
    if isinstance(kind, _POINTER):
        _declare(kind._type_, done)
    elif isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind not in _SCALARS:
        name = name_of(kind)
        if name not in done:
            for each in _needed(kind):
                _declare(each, done)
            done[name] = "\n".join(["typedef struct {", *_fields(kind, "  "), f"}} {name};"])


def _needed(kind: Any) -> Iterator[Any]:
    for _, inner in kind._fields_:
        if isinstance(inner, type) and issubclass(inner, ctypes.Union):
            yield from _needed(inner)
        else:
            yield getattr(inner, "_type_", inner) if _is_array(inner) else inner


def _is_array(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ctypes.Array)


def _fields(kind: Any, indent: str) -> Iterator[str]:
    anonymous = getattr(kind, "_anonymous_", ())
    for name, inner in kind._fields_:
        if isinstance(inner, type) and issubclass(inner, ctypes.Union):
            yield f"{indent}union {{"
            yield from _fields(inner, indent + "  ")
            yield f"{indent}}}{'' if name in anonymous else ' ' + name};"
        elif _is_array(inner):
            yield f"{indent}{c_type(inner._type_)} {name}[{inner._length_}];"
        else:
            yield f"{indent}{c_type(inner)} {name};"


BEHIND_POINTERS: Final = (
    ContextBuffer,
    ContextConfig,
    ContextParams,
    ContextProperty,
    ExecuteEnvironment,
    HtpContextProperty,
    HtpMemDescriptor,
    MemDescriptor,
    NotifyStatus,
    OpConfig,
    ProfileEventData,
    Tensor,
)
"""Structures that a pointer without a type leads to."""
PIECES: Final = (DataRequest, DmaDataMem, DmaDataResponse, RawDataMem, RawDataResponse)
"""What the functions are given that provide a binary in pieces."""
