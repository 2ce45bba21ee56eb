"""The calls that a delegate makes of its QNN backend, seen from between the two.

The pointers of the backend's interface table are replaced where the table is, before a delegate has read it.
Whoever asks the backend for its interface afterwards calls it through here: a delegate in Python, and as well
one whose library opens the backend's library by itself.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any, Final

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe.process import device_of, snapshot
from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import HtpMemType, MemType, TensorMemType
from pytest_qnn.qnn.abi.table import PROTOTYPES, Interface
from pytest_qnn.qnn.runner.library import QnnEntry, QnnUnusable, chosen, open_library, providers

_READ_WRITE: Final = libc.PROT_READ | libc.PROT_WRITE
_WATCHED: Final = ("memRegister", "memDeRegister", "graphExecute", "graphExecuteAsync")
File = tuple[int, int]
"""(device, inode)."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Bytes of a file, from an offset on: what a registration names, wherever it is mapped."""

    file: File
    offset: int


class Calls:
    """Registrations, and the executes that have used them. A backend is watched from now on.

    Args:
        entry: the backend.

    Raises:
        OSError: the table cannot be written to.
    """

    def __init__(self, entry: QnnEntry) -> None:
        self._places: dict[int, Place] = {}
        """Of live handles."""
        self._used: set[Place] = set()
        self._kept: list[Any] = []
        """What the table points to, which must live as long as it."""
        _, found = providers(entry)
        if found:
            self.stand_before(chosen(found))

    def stands_before(self, interface: Interface) -> bool:
        """The table still leads here, as far as it has the functions."""
        ours = {_address(each) for each in self._kept}
        there = [_address(getattr(interface.implementation, name)) for name in _WATCHED]
        return all(not address or address in ours for address in there)

    def used(self, address: int) -> bool:
        """An execute has used the handle of a registration whose memory the client sees at ``address``."""
        place = place_of(address)
        return place is not None and place in self._used

    def forget(self) -> None:
        """What was used until now was used by others."""
        self._used.clear()

    def stand_before(self, interface: Interface) -> None:
        """Let the table lead here. Who has read it before may still call what it led to then.

        Raises:
            OSError: the table cannot be written to.
        """
        table = interface.implementation
        ours = {_address(each) for each in self._kept}
        begin = ctypes.addressof(table) & -mmap.PAGESIZE
        end = ctypes.addressof(table) + ctypes.sizeof(table)
        libc.protect(begin, end - begin, _READ_WRITE)
        makers = (self._registering, self._deregistering, self._executing, self._executing)
        watched: list[tuple[str, Callable[..., Callable[..., int]]]] = [*zip(_WATCHED, makers, strict=True)]
        for name, make in watched:
            address = _address(getattr(table, name))
            if address and address not in ours:
                own = PROTOTYPES[name](make(PROTOTYPES[name](address)))
                self._kept.append(own)
                setattr(table, name, own)

    def _registering(self, behind: Callable[..., int]) -> Callable[..., int]:
        def register(context: int | None, descriptors: Any, count: int, handles: Any) -> int:
            code = behind(context, descriptors, count, handles)
            if not code & 0xFFFF:
                for number in range(count):
                    place = _place(descriptors[number])
                    if place is not None:
                        self._places[handles[number] or 0] = place
            return code

        return register

    def _deregistering(self, behind: Callable[..., int]) -> Callable[..., int]:
        def deregister(handles: Any, count: int) -> int:
            ended = [handles[number] or 0 for number in range(count)] if handles else []
            code = behind(handles, count)
            if not code & 0xFFFF:
                for handle in ended:
                    self._places.pop(handle, None)
            return code

        return deregister

    def _executing(self, behind: Callable[..., int]) -> Callable[..., int]:
        def execute(graph: int | None, inputs: Any, inputs_count: int, outputs: Any, *more: Any) -> int:
            # Before the call: the client of an asynchronous one may free its tensors before it returns.
            named = self._named(inputs, inputs_count) | self._named(outputs, more[0])
            code = behind(graph, inputs, inputs_count, outputs, *more)
            if not code & 0xFFFF:
                self._used |= named
            return code

        return execute

    def _named(self, tensors: Any, count: int) -> set[Place]:
        """What tensors name by their handles."""
        listed = [tensors[number].v1 for number in range(count if tensors else 0)]
        handles = [each.memHandle or 0 for each in listed if each.memType == TensorMemType.MEMHANDLE]
        return {self._places[handle] for handle in handles if handle in self._places}


def _place(descriptor: Any) -> Place | None:
    """What a Qnn_MemDescriptor_t names; None for memory of a kind that no tensor lies in."""
    if descriptor.memType == MemType.CUSTOM:
        custom = layouts.HtpMemDescriptor.from_address(descriptor.customInfo)
        if custom.type != HtpMemType.SHARED_BUFFER:
            return None
        return _of_file(custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset)
    return _of_file(descriptor.ionInfo.fd, 0)


def _of_file(fd: int, offset: int) -> Place | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return Place((status.st_dev, status.st_ino), offset)


def place_of(address: int) -> Place | None:
    """The file, and the byte of it, that is mapped at an address; None where there is no file."""
    for line in snapshot().lines:
        span, _, offset, device, inode, *_ = line.split(None, 5)
        begin, end = (int(word, 16) for word in span.split("-"))
        if begin <= address < end and inode != "0":
            return Place((device_of(device), int(inode)), int(offset, 16) + address - begin)
    return None


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_of_libraries: Final[dict[int, Calls]] = {}
"""By address of the table. A library's table leads here for as long as there is the process."""
_of_ours: Final[weakref.WeakKeyDictionary[Any, Calls]] = weakref.WeakKeyDictionary()
"""By the backend in Python that has the table, and as long as that."""


def of_backend(entry: QnnEntry) -> Calls:
    """The calls of a backend from now on, with nothing noted yet.

    Raises:
        OSError: its table cannot be written to.
    """
    _, found = providers(entry)
    table = chosen(found) if found else None
    at = 0 if table is None else ctypes.addressof(table)
    known = _of_libraries.get(at) if entry.path else _of_ours.get(entry.owner)
    if known is None:
        known = Calls(entry)
        if entry.path:
            _of_libraries[at] = known
        else:
            _of_ours[entry.owner] = known
    elif table is not None and not known.stands_before(table):
        known.stand_before(table)
    known.forget()
    return known


def of_library(path: str) -> Calls | None:
    """The same for a QNN library in this process; None where it cannot be watched."""
    try:
        return of_backend(open_library(path))
    except (OSError, QnnUnusable):
        return None
