"""Faults of QnnMem in front of a real library: what the rules find in the reference, they must find there.

The proxy takes QnnMem from the same class as the reference does, so a mutant of the reference whose fault
lies in QnnMem is put on the proxy as it is. A few faults are the proxy's own: where handles become addresses.
Selected on the command line as ``proxy-mutant:NAME:PATH``.
"""

from __future__ import annotations

import functools
import itertools
import types
from typing import Any

from pytest_qnn.core.mutant import Mutant
from pytest_qnn.qnn.abi.codes import TensorMemType
from pytest_qnn.qnn.abi.table import Interface
from pytest_qnn.qnn.mutants import BACKEND, table
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.mapping import anonymous
from pytest_qnn.qnn.reference.objects import Graph, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.reference.proxy import BAD_TENSOR, Proxy
from pytest_qnn.qnn.reference.registrations import Memory

_HOOKS = frozenset(vars(Memory))
"""A mutant that overrides any other hook has its fault in what the proxy leaves to the library."""
_NOT_OFFERED = ("DMA-", "EXT-", "OOM-", "QLEAK-", "REG-17")
"""How the ids of rules begin that are about what no proxy offers.

DMA-BUF memory, external memory, requests that are refused, an end of its own process, and contexts out of
binaries (REG-17).
"""


class _OffsetIgnored(Proxy):
    def client_address(self, graph: Graph, tensor: Tensor | None, registration: Registration | None) -> int:
        address = super().client_address(graph, tensor, registration)
        return address - registration.request.offset if registration else address


class _AnyContext(Proxy):
    def client_address(self, graph: Graph, tensor: Tensor | None, registration: Registration | None) -> int:
        if registration is not None:
            graph = Graph(graph.handle, graph.name, registration.context)
        return super().client_address(graph, tensor, registration)


class _StaleExecutes(Proxy):
    def __init__(self, library: Interface, personality: Personality = DEFAULT) -> None:
        super().__init__(library, personality)
        self.stale: dict[int, Registration] = {}

    def deregister_one(self, handle: int | None) -> bool:
        registration = self.registrations.get(handle or 0)
        if registration is None:
            return False
        self.stale[registration.handle] = registration
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]
        return True

    def find_registration(self, handle: int | None) -> Registration | None:
        return super().find_registration(handle) or self.stale.get(handle or 0)


class _UnknownIsZeros(Proxy):
    def client_address(self, graph: Graph, tensor: Tensor | None, registration: Registration | None) -> int:
        if registration is None and tensor is not None:
            return anonymous("zeros", tensor.size, self.mappings).address
        return super().client_address(graph, tensor, registration)


class _AllOrNone(Proxy):
    def bound(self, graph: Graph, given: Any, count: int) -> Any:
        if given and len({given[i].v1.memType == TensorMemType.MEMHANDLE for i in range(count)}) > 1:
            raise QnnError(BAD_TENSOR)
        return super().bound(graph, given, count)


OWN = tuple(
    Mutant(name, fault, kills, "memory", BACKEND, backend)
    for name, fault, kills, backend in (
        ("bound-offset-ignored", "Every handle means the start of its buffer.", ("SHB-08",), _OffsetIgnored),
        ("bound-any-context", "graphExecute takes a handle of any context.", ("CTX-05",), _AnyContext),
        ("bound-stale", "A deregistered handle still executes.", ("EXE-04",), _StaleExecutes),
        ("bound-zeros", "An invalid handle is read as zeros.", ("EXE-03", "EXE-05"), _UnknownIsZeros),
        ("bound-all-or-none", "Inputs must be all raw or all behind handles.", ("EXE-02",), _AllOrNone),
    )
)
"""Faults of the proxy alone."""


@functools.cache
def proxy_table() -> dict[str, Mutant]:
    """Every mutant that can stand in front of a library, by name: those of QnnMem, and `OWN`."""
    from_reference = filter(_lies_in_qnnmem, table().values())
    return {mutant.name: mutant for mutant in (*from_reference, *OWN)}


def mutated(mutant: Mutant, library: Interface) -> Proxy:
    """The proxy over ``library`` with the fault of one of `proxy_table`."""
    fault: Any = mutant.of(BACKEND)
    proxy: Proxy
    if issubclass(fault, Proxy):
        proxy = fault(library)
        return proxy

    class Front(Proxy):
        """A proxy that is made without arguments, as mutants of the reference are."""

        def __init__(self, personality: Personality = DEFAULT) -> None:
            super().__init__(library, personality)

    made: Any = functools.reduce(_moved, reversed(_faulty(fault)), Front)
    proxy = made()
    return proxy


def _faulty(backend: type[Any]) -> list[type[Any]]:
    """The classes of a mutant above the reference, the outermost first."""
    return list(itertools.takewhile(lambda each: each is not ReferenceBackend, backend.__mro__))


def _lies_in_qnnmem(mutant: Mutant) -> bool:
    """Every hook that the mutant overrides is one of `Memory`, and its rules concern what a proxy offers."""
    fault = mutant.of(BACKEND)
    if not isinstance(fault, type) or mutant.deadly:
        return False
    if any(rule.startswith(_NOT_OFFERED) for rule in mutant.kills):
        return False
    own = {name for each in _faulty(fault) for name in vars(each)}
    hooks = {name for name in own if not name.startswith("__") and hasattr(ReferenceBackend, name)}
    return bool(hooks) and hooks <= _HOOKS


def _moved(base: type[Any], fault: type[Any]) -> type[Any]:
    """A copy of the class on another base. Its ``super()`` needs a cell of its own, which names the copy."""
    cell = types.CellType()
    body = {
        name: _bound_to(cell, value) if isinstance(value, types.FunctionType) else value
        for name, value in vars(fault).items()
        if name not in ("__dict__", "__weakref__")
    }
    made = type(fault.__name__, (base,), body)
    cell.cell_contents = made
    return made


def _bound_to(cell: types.CellType, function: types.FunctionType) -> types.FunctionType:
    names = function.__code__.co_freevars
    closure = tuple(
        cell if name == "__class__" else old
        for name, old in zip(names, function.__closure__ or (), strict=True)
    )
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
