"""A proxy, with a fault or without one, over a reference that has no QnnMem of its own."""

from __future__ import annotations

from contextlib import closing

import msgspec
from reducing import Reducing

from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.rule import Subject
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.proxies import mutated
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.proxy import Proxy
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry, providers
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.worker import learn
from pytest_qnn.qnn.trace import MemoryTrace


class OverTheReference(Reducing):
    """The proxy as a target; without a mutant it is faultless."""

    subject: Subject = "memory"
    spec = "proxy"
    isolated = False
    options: tuple[str, ...] = ()

    def __init__(self, mutant: Mutant | None) -> None:
        self.mutant = mutant
        library = ReferenceBackend(PERSONALITIES["no-memory"])
        with closing(library), closing(self.proxy(library)) as proxy:
            self.facts: MemoryFacts = learn(QnnEntry(proxy.get_providers), EmulatedRpcmem(), "all")

    def proxy(self, library: ReferenceBackend) -> Proxy:
        _, found = providers(QnnEntry(library.get_providers))
        interface = found[0].contents
        return mutated(self.mutant, interface) if self.mutant else Proxy(interface)

    def run(self, case: MemoryCase) -> MemoryTrace:
        library = ReferenceBackend(PERSONALITIES["no-memory"])
        with closing(library), closing(self.proxy(library)) as proxy, closing(EmulatedRpcmem()) as rpcmem:
            trace = run_memory_case(case, QnnEntry(proxy.get_providers, proxy), rpcmem)
        return msgspec.structs.replace(trace, facts=self.facts)

    def provenance(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """Nothing stays open between cases."""
