"""A loaded QNN backend: a library stays loaded, the reference is made afresh for every case."""

from __future__ import annotations

import contextlib

import msgspec

from pytest_qnn.core.printable import heard
from pytest_qnn.isolation.observe.control_words import Watch
from pytest_qnn.isolation.worker import ASKED, Depth, OnStep
from pytest_qnn.qnn.abi.codes import low
from pytest_qnn.qnn.abi.layouts import Version
from pytest_qnn.qnn.cases.case import (
    MemoryCase,
    Prepare,
    QnnDType,
    QnnOp,
)
from pytest_qnn.qnn.cases.plain import PLAIN
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.operators import DTYPES, OPERATORS
from pytest_qnn.qnn.runner.client import NullFunction, Operator, QnnClient
from pytest_qnn.qnn.runner.graphs import prepare, validated
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.plain import PlainRuns
from pytest_qnn.qnn.runner.rpcmem import Rpcmem
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.sources import MemorySource, MemorySpec
from pytest_qnn.qnn.runner.standing import PRICE, Standing, may_stand_beside, price
from pytest_qnn.qnn.runner.state import Context, Skip, State
from pytest_qnn.qnn.trace import MemoryTrace

KEYS = (
    101,
    107,
    202,
    212,
    213,
    215,
    217,
    220,
    301,
    304,
    311,
    317,
    318,
    502,
    506,
    1001,
    1101,
    1102,
    1103,
    1104,
    1501,
)
"""The property keys that rules are gated by (`pytest_qnn.qnn.abi.codes.Property`)."""


Pairs = tuple[tuple[QnnOp, QnnDType], ...]
"""Operators and data types."""
UNTRIED: Pairs = ((OPERATORS[0], DTYPES[0]),)
"""The operators taken for granted where a target cannot be asked: its rules then show why not."""


def learn(entry: QnnEntry, rpcmem: Rpcmem, depth: Depth = "all") -> MemoryFacts:
    """Open a session, ask for versions and capabilities, and try every operator once.

    ``validated``: the operators that QnnBackend_validateOpConfig accepts are taken for those that there are,
    and no graph is made; ``identity``: no session either; ``nothing``: no call at all.
    """
    if depth == "nothing":
        return MemoryFacts(operators=UNTRIED, validated=UNTRIED, rpcmem=rpcmem.name)
    client = QnnClient(entry, Watch())
    state = State(client, rpcmem)
    try:
        is_open = depth in {"all", "validated"} and state.session.open()
        interface = client.interface
        if interface is None:
            return MemoryFacts(session=tuple(state.session.codes), rpcmem=rpcmem.name)
        validated = _validated(state) if is_open else UNTRIED if depth == "identity" else ()
        return MemoryFacts(
            provider=heard(interface.providerName or b""),
            backend_id=interface.backendId,
            core_version=_numbers(interface.apiVersion.coreApiVersion),
            backend_version=_numbers(interface.apiVersion.backendApiVersion),
            session=tuple(state.session.codes),
            capabilities=_capabilities(client),
            null_functions=client.null_functions(),
            operators=_composed(state, validated) if is_open and depth == "all" else validated,
            validated=validated,
            rpcmem=rpcmem.name,
        )
    finally:
        state.session.close()


def _numbers(version: Version) -> tuple[int, int, int]:
    return version.major, version.minor, version.patch


def _capabilities(client: QnnClient) -> dict[int, int]:
    try:
        return {key: low(client.call("propertyHasCapability", key)) for key in KEYS}
    except NullFunction:
        return {}


def _validated(state: State) -> Pairs:
    """Those that QnnBackend_validateOpConfig accepts."""
    return tuple((op, dtype) for op in OPERATORS for dtype in DTYPES if _is_valid(state, op, dtype))


def _is_valid(state: State, op: QnnOp, dtype: QnnDType) -> bool:
    try:
        return validated(state, Operator(op, dtype, _step(op, dtype).shape)) == 0
    except NullFunction:
        return False


def _composed(state: State, pairs: Pairs) -> Pairs:
    """Those of which a graph is composed and finalised."""
    return tuple((op, dtype) for op, dtype in pairs if _composes(state, op, dtype))


def _composes(state: State, op: QnnOp, dtype: QnnDType) -> bool:
    session = state.session
    try:
        code, context = state.client.create("contextCreate", session.backend, session.device, None)
        if code != 0:
            return False
        state.contexts["c"] = Context(context)
        try:
            return prepare(state, _step(op, dtype)).code == 0
        finally:
            state.client.call("contextFree", context, None)
    except (NullFunction, Skip):
        return False


def _step(op: QnnOp, dtype: QnnDType) -> Prepare:
    return Prepare(graph=f"{op}_{dtype}", context="c", op=op, dtype=dtype)


_CASE = msgspec.msgpack.Decoder(MemoryCase)
_LEFT: list[contextlib.ExitStack] = []
"""What a case that ends its process, or has it killed, leaves open."""


class MemoryWorker:
    """Carries out memory cases.

    Raises:
        Unusable: the backend or the rpcmem cannot be used.

    """

    def __init__(self, spec: MemorySpec) -> None:
        self._source = MemorySource(spec.backend, spec.rpcmem)
        self._refused = spec.refused
        self._plain = PlainRuns()
        self._stands = spec.stands
        self._standing: contextlib.ExitStack | None = None
        """Closes the session that is open beside cases."""
        self.careful = False

    def facts(self, depth: Depth = "all") -> MemoryFacts:
        """Learn what the backend is; with ``all`` this initialises it."""
        with self._source.open() as (entry, rpcmem):
            return learn(entry, rpcmem, depth)

    def warm(self) -> None:
        """Run our own code once, on the reference, so that a fork finds every cache filled."""
        self.rehearse()

    def rehearse(self) -> None:
        """Carry out a case on the reference."""
        MemoryWorker(MemorySpec("reference", "emulated")).run(PLAIN)

    def run(self, case: MemoryCase, on_step: OnStep | None = None) -> MemoryTrace:
        """Carry out one case."""
        with contextlib.ExitStack() as ending:
            entry, rpcmem = ending.enter_context(self._source.open())
            trace = run_memory_case(case, entry, rpcmem, on_step, self._refused)
            if case.ends or case.killed:
                _LEFT.append(ending.pop_all())
        return self._with_plain_runs(trace) if trace.plain else trace

    def _with_plain_runs(self, trace: MemoryTrace) -> MemoryTrace:
        if self._plain.missing(trace.plain):
            with self._source.open() as (entry, rpcmem):
                self._plain.carry_out(trace.plain, entry, rpcmem)
        return msgspec.structs.replace(trace, plain=self._plain.results(trace.plain))

    def accompany(self, request: bytes) -> None:
        """Have a session open beside the case, or none, as `pytest_qnn.qnn.runner.standing` says."""
        if not self._stands:
            return
        wanted = may_stand_beside(_CASE.decode(request))
        if wanted and self._standing is None:
            self._standing = contextlib.ExitStack()
            entry, rpcmem = self._standing.enter_context(self._source.open())
            self._standing.callback(Standing(entry, rpcmem).close)
        elif not wanted and self._standing is not None:
            standing, self._standing = self._standing, None
            standing.close()

    def handle(self, request: bytes, on_step: OnStep) -> bytes:
        """Facts or trace as MessagePack."""
        if request in ASKED:
            return msgspec.msgpack.encode(self.facts(ASKED[request]))
        if request == PRICE:
            with self._source.open() as (entry, rpcmem):
                return msgspec.msgpack.encode(price(entry, rpcmem))
        return msgspec.msgpack.encode(self.run(_CASE.decode(request), on_step))


def make_ready(ahead: str) -> None:
    """Carry out what a worker does to be warm."""
    del ahead  # it is the same for all backends
    MemoryWorker(MemorySpec("reference", "emulated")).warm()


def make(content: bytes) -> MemoryWorker:
    """From a `MemorySpec` as JSON. Raises Unusable."""
    return MemoryWorker(msgspec.json.decode(content, type=MemorySpec))
