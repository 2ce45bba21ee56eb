"""The System interface that stands beside a backend: what a context binary says of itself."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from pytest_qnn.qnn.abi.system import BinaryInfoP, GetSystemProviders, SystemInterfaceP
from pytest_qnn.qnn.reference.system import ReferenceSystem
from pytest_qnn.qnn.runner.library import QnnEntry

SYMBOL = "QnnSystemInterface_getProviders"
LIBRARY = "libQnnSystem.so"


class SystemUnusable(Exception):  # noqa: N818 - a finding about a named file, not an error of ours
    """There is no System interface beside the backend; the text says why."""


def describe(entry: QnnEntry, binary: bytes) -> tuple[int, tuple[int, ...], dict[str, int]]:
    """Ask the System interface beside a backend about a binary.

    Returns:
        The code of the first call that failed, or 0. For each IO tensor, inputs of a graph first, in the
        order of the graphs' names: its memType. ``graphs``, ``inputs``, ``outputs``: how many; ``data``:
        tensors whose data pointer is not NULL; ``version``: that of the information.

    Raises:
        SystemUnusable: there is none.
    """
    table = _table(entry.system)
    handle = ctypes.c_void_p()
    code: int = table.systemContextCreate(ctypes.byref(handle))
    if code:
        return code, (), {}
    try:
        info, size = BinaryInfoP(), ctypes.c_uint64()
        held = ctypes.create_string_buffer(binary, len(binary))
        address, out = ctypes.addressof(held), ctypes.byref(info)
        code = table.systemContextGetBinaryInfo(handle, address, len(binary), out, ctypes.byref(size))
        return (code, (), {}) if code else (code, *_read(info.contents))
    finally:
        table.systemContextFree(handle)


def _read(info: Any) -> tuple[tuple[int, ...], dict[str, int]]:
    counts = {"version": info.version}
    content = info.contextBinaryInfoV3
    graphs = [content.graphs[i].graphInfoV3 for i in range(content.numGraphs)]
    graphs.sort(key=lambda graph: graph.graphName or b"")
    inputs = [graph.graphInputs[i].v1 for graph in graphs for i in range(graph.numGraphInputs)]
    outputs = [graph.graphOutputs[i].v1 for graph in graphs for i in range(graph.numGraphOutputs)]
    each = [
        tensor
        for graph in graphs
        for tensor in (
            *(graph.graphInputs[i].v1 for i in range(graph.numGraphInputs)),
            *(graph.graphOutputs[i].v1 for i in range(graph.numGraphOutputs)),
        )
    ]
    counts |= {"graphs": len(graphs), "inputs": len(inputs), "outputs": len(outputs)}
    counts["data"] = sum(bool(tensor.clientBuf.data) for tensor in each)
    return tuple(tensor.memType for tensor in each), counts


@functools.cache
def _table(system: str) -> Any:
    """The functions of the System library at a path; of the reference's, where it is ``reference``."""
    if not system:
        raise SystemUnusable("the backend has no System interface")
    if system == "reference":
        made = ReferenceSystem()
        return _providers(made.get_providers, made)
    if not Path(system).is_file():
        raise SystemUnusable(f"there is no {LIBRARY} beside the backend")
    try:
        library = ctypes.CDLL(system)
    except OSError as error:
        raise SystemUnusable(f"{system} cannot be loaded: {error}") from None
    if not hasattr(library, SYMBOL):
        raise SystemUnusable(f"{system} does not export {SYMBOL}")
    return _providers(GetSystemProviders((SYMBOL, library)), library)


def _providers(get_providers: Any, owner: Any) -> Any:
    listed, count = ctypes.POINTER(SystemInterfaceP)(), ctypes.c_uint32()
    code = get_providers(ctypes.byref(listed), ctypes.byref(count))
    if code or not count.value or not listed or not listed[0]:
        raise SystemUnusable(f"{SYMBOL} gave no provider (code {code})")
    _OWNERS.append(owner)
    return listed[0].contents.implementation


_OWNERS: list[Any] = []
"""Whatever the tables lie in, for as long as the process lives."""
