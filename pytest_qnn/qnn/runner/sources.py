"""Where a QNN interface comes from: a library, the reference, a proxy; personalities and mutants of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from pytest_qnn.isolation.worker import Unusable, WorkerSpec
from pytest_qnn.qnn.mutants import BACKEND, RPCMEM
from pytest_qnn.qnn.mutants import named as mutant_named
from pytest_qnn.qnn.proxies import mutated, proxy_table
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.proxy import Proxy
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry, QnnUnusable, chosen, open_library, providers, readable
from pytest_qnn.qnn.runner.rpcmem import Rpcmem, RpcmemUnusable, open_rpcmem


class MemorySpec(WorkerSpec, frozen=True):
    """A QNN backend and the rpcmem that its buffers come from."""

    maker: ClassVar[str] = "pytest_qnn.qnn.runner.worker"

    backend: str
    rpcmem: str
    refused: tuple[tuple[str, int], ...] = ()
    """The codes of opening a session, where none opens: no case tries again."""
    stands: bool = False
    """A session stays open beside the later cases of a process."""


class MemorySource:
    """Gives an interface and an rpcmem for one case: fresh ones of our own, the same foreign ones.

    Raises:
        Unusable: the named library cannot be used.
    """

    def __init__(self, backend: str, rpcmem: str) -> None:
        self._make_backend: Callable[..., Any] | None = None
        self._make_rpcmem: Callable[..., Any] = EmulatedRpcmem
        self._entry: QnnEntry | None = None
        self._rpcmem: Rpcmem | None = None
        self._system = "reference"
        """The System interface beside a backend of our own: a proxy's is that of its library."""
        kind, _, name = backend.partition(":")
        try:
            if kind == "mutant":
                self._mutate(name)
            elif kind == "reference":
                self._make_backend = _personality(name)
            elif kind in ("proxy", "proxy-mutant"):
                fault, _, path = name.partition(":") if kind == "proxy-mutant" else ("", "", name)
                behind = open_library(path)
                self._make_backend, self._system = _proxy(behind, fault), behind.system
            else:
                self._entry = open_library(backend)
            if rpcmem != "emulated":
                self._rpcmem = open_rpcmem(rpcmem)
        except QnnUnusable as error:
            raise Unusable(str(error)) from None
        except RpcmemUnusable as error:
            raise Unusable(f"--qnn-rpcmem: {error}") from None

    def _mutate(self, name: str) -> None:
        mutant = mutant_named(name)
        if mutant is None:
            raise Unusable(f"there is no memory mutant called {name!r}")
        self._make_backend = mutant.of(BACKEND) or ReferenceBackend
        self._make_rpcmem = mutant.of(RPCMEM) or EmulatedRpcmem

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[QnnEntry, Rpcmem]]:
        """The interface's entry and the rpcmem; our own are closed afterwards."""
        rpcmem = self._rpcmem or self._make_rpcmem()
        if self._make_backend is None:
            assert self._entry is not None
            entry, backend = self._entry, None
        else:
            backend = self._make_backend()
            entry = QnnEntry(backend.get_providers, backend, self._system)
        try:
            yield entry, rpcmem
        finally:
            if backend is not None:
                backend.close()
            if self._rpcmem is None:
                rpcmem.close()


def _personality(name: str) -> Callable[[], ReferenceBackend]:
    if name and name not in PERSONALITIES:
        known = ", ".join(sorted(PERSONALITIES))
        raise Unusable(f"the reference has no personality {name!r}; there are {known}")
    personality = PERSONALITIES[name or "default"]
    return lambda: ReferenceBackend(personality)


def _proxy(behind: QnnEntry, fault: str) -> Callable[[], Proxy]:
    _, found = providers(behind)
    if not fault:
        return lambda: Proxy(readable(chosen(found)))
    mutant = proxy_table()[fault]
    return lambda: mutated(mutant, readable(chosen(found)))
