"""A QNN interface table whose entries are methods of a Python object."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import re
import threading
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from pytest_qnn.qnn.abi.codes import API_VERSION, Error
from pytest_qnn.qnn.abi.layouts import Version
from pytest_qnn.qnn.abi.table import PROTOTYPES, GetProviders, Interface, InterfaceP, PaddedInterface
from pytest_qnn.qnn.reference.objects import QnnError

HTP_BACKEND_ID = 6
"""Clients choose the shared-buffer descriptor by this id."""


def method_of(entry: str) -> str:
    """The name of the method that serves a table entry: ``memDeRegister`` is served by ``mem_deregister``."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", entry.replace("DeRegister", "Deregister")).lower()


ENTRIES: Final[dict[str, str]] = {name: method_of(name) for name in PROTOTYPES}
"""The method that serves each table entry. An entry whose method a class does not have answers 1000."""


@functools.cache
def _constant(name: str, code: int) -> Any:
    """An entry that does nothing but answer ``code``; shared by all backends and never freed."""
    return PROTOTYPES[name](lambda *_: code)


class InOrder:
    """A re-entrant lock that threads get in the order in which they asked for it.

    `threading.RLock` is had again by whoever has just released it, before a thread that waits has woken: of
    several clients that call again and again, one would be served alone, and never meet another one.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._owner, self._depth = 0, 0
        """A thread's identifier, 0 for nobody's, and how often that thread has it."""
        self._waiting: collections.deque[tuple[int, threading.Lock]] = collections.deque()

    def acquire(self, timeout: float = -1) -> bool:
        """Have the lock; False: not within so many seconds (-1: however long it takes)."""
        own = threading.get_ident()
        if self._owner == own:
            self._depth += 1
            return True
        with self._guard:
            if not self._owner:
                self._owner, self._depth = own, 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append((own, turn))
        if turn.acquire(timeout=timeout):
            return True
        with self._guard:
            if (own, turn) not in self._waiting:
                return True  # it was given meanwhile
            self._waiting.remove((own, turn))
        return False

    def release(self) -> None:
        """Give it to the thread that waits longest, if one does."""
        self._depth -= 1
        if self._depth:
            return
        with self._guard:
            self._owner = 0
            if self._waiting:
                self._owner, turn = self._waiting.popleft()
                self._depth = 1
                turn.release()

    @contextlib.contextmanager
    def without(self) -> Iterator[None]:
        """Meanwhile this thread does not have it, however often it has it now."""
        depth, self._depth = self._depth, 1
        self.release()
        try:
            yield
        finally:
            self.acquire()
            self._depth = depth

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class InterfaceTable:
    """Turns the methods of ``entries`` into a ``QnnInterface_t`` and serves it.

    A method returns for success and raises `QnnError` for a code. One lock is held around each call.
    An exception that escaped a ctypes callback would read as success, so every other exception
    becomes 1100 and is kept in ``escaped`` for the test that wants to know.
    """

    entries: ClassVar[dict[str, str]] = ENTRIES
    null_entries: ClassVar[frozenset[str]] = frozenset()
    """Names of table entries that are NULL."""
    backend_id: ClassVar[int] = HTP_BACKEND_ID
    provider_name: ClassVar[bytes] = b"PYTEST_QNN_REFERENCE"
    core_version: ClassVar[tuple[int, int, int]] = API_VERSION
    backend_version: ClassVar[tuple[int, int, int]] = (1, 0, 0)

    def __init__(self) -> None:
        self.lock = InOrder()
        self.escaped: list[tuple[str, BaseException]] = []
        self._thunks: list[Any] = []
        self._padded = PaddedInterface()
        self._fill(self._padded.interface)
        self._list = (InterfaceP * 1)(ctypes.pointer(self._padded.interface))
        self.get_providers: Any = self._guard("getProviders", GetProviders, self.interface_get_providers)
        """Call it like the exported symbol QnnInterface_getProviders."""

    def is_null(self, name: str) -> bool:
        """Hook: the table entry ``name`` is NULL."""
        return name in self.null_entries

    def answer(self, name: str, code: int) -> int:
        """Hook: the 64-bit Qnn_ErrorHandle_t that entry ``name`` returns for ``code``."""
        del name
        return code

    def interface_get_providers(self, providers: Any, count: Any) -> None:
        """QnnInterface_getProviders: the one provider, the same pointers at every call; 1004 for NULL."""
        self.check_provider_arguments(providers, count)
        providers[0] = self.provider_list()
        count[0] = self.provider_count()

    def check_provider_arguments(self, providers: Any, count: Any) -> None:
        """Hook: refuse NULL out pointers."""
        if not providers or not count:
            raise QnnError(Error.INTERFACE_ERROR_INVALID_PARAMETER)

    def provider_list(self) -> Any:
        """Hook: the array of interface pointers that a client receives."""
        return self._list

    def provider_count(self) -> int:
        """Hook: how many providers are reported to a client."""
        return 1

    def _fill(self, interface: Interface) -> None:
        interface.backendId = self.backend_id
        interface.providerName = self.provider_name
        interface.apiVersion.coreApiVersion = Version(*self.core_version)
        interface.apiVersion.backendApiVersion = Version(*self.backend_version)
        methods = {name: getattr(self, self.entries.get(name, ""), None) for name in PROTOTYPES}
        absent = [name for name, method in methods.items() if method is None]
        codes = {name: self.answer(name, Error.COMMON_ERROR_NOT_SUPPORTED) for name in absent}
        for name, method in methods.items():
            if self.is_null(name):
                continue
            entry = self._guard(name, PROTOTYPES[name], method) if method else _constant(name, codes[name])
            setattr(interface.implementation, name, entry)

    def _guard(self, name: str, prototype: Any, method: Any) -> Any:
        def call(*arguments: Any) -> int:
            with self.lock:
                try:
                    method(*arguments)
                    return self.answer(name, 0)
                except QnnError as error:
                    return self.answer(name, error.code)
                except BaseException as error:
                    # ctypes would print it, and return 0 to the caller: success.
                    self.escaped.append((name, error))
                    return int(Error.COMMON_ERROR_GENERAL)

        # The table holds a bare pointer: nothing else would keep the function behind it alive.
        thunk = prototype(call)
        self._thunks.append(thunk)
        return thunk
