"""A loaded chain of delegates on one runtime."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.delegate import Application, DelegateCase
from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.facts import DelegateFacts
from pytest_qnn.run.delegate import run_delegate_case
from pytest_qnn.run.delegates import DelegateUnusable, delegate_factory
from pytest_qnn.run.runtime import RuntimeMissing, load_runtime
from pytest_qnn.run.worker import ASKED, DelegateSpec, Depth, OnStep, Unusable
from pytest_qnn.trace import DelegateTrace

_CASE = msgspec.msgpack.Decoder(DelegateCase)


class DelegateWorker:
    """Carries out delegate cases.

    Raises:
        Unusable: the runtime is missing, or a delegate cannot be used.

    """

    def __init__(self, spec: DelegateSpec) -> None:
        try:
            self._runtime = load_runtime(spec.runtime)
            self._chain = [delegate_factory(name, options, self._runtime) for name, options in spec.delegates]
        except (DelegateUnusable, RuntimeMissing) as error:
            raise Unusable(str(error)) from None
        self._names = tuple(name for name, _ in spec.delegates)

    def facts(self, depth: Depth = "all") -> DelegateFacts:
        """Learn what the chain is, and with ``all`` that each of its delegates can be made."""
        try:
            for factory in self._chain if depth == "all" else ():
                factory.make(Application()).close()
        except DelegateUnusable as error:
            raise Unusable(str(error)) from None
        return DelegateFacts(
            runtime=self._runtime.name,
            runtime_version=self._runtime.version,
            delegates=self._names,
            steerable=all(name == "reference" or name.startswith("mutant:") for name in self._names),
            observed=self._runtime.observed,
        )

    def warm(self) -> None:
        """Run our own code once, so that a fork finds every cache filled. No delegate under test is made."""
        graph = Graph(
            tensors=(Tensor((1,)), Tensor((1,))), nodes=(Node("ABS", (0,), (1,)),), inputs=(0,), outputs=(1,)
        )
        run_delegate_case(DelegateCase(graph, (Application("probe"),), watch=True), (), self._runtime)

    def run(self, case: DelegateCase, on_step: OnStep | None = None) -> DelegateTrace:
        """Carry out one case."""
        return run_delegate_case(case, self._chain, self._runtime, on_step)

    def handle(self, request: bytes, on_step: OnStep) -> bytes:
        """Facts or trace as MessagePack."""
        if request in ASKED:
            return msgspec.msgpack.encode(self.facts(ASKED[request]))
        return msgspec.msgpack.encode(self.run(_CASE.decode(request), on_step))
