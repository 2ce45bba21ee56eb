"""What a QNN backend is and accepts, learned before any rule is judged."""

from __future__ import annotations

from pytest_qnn.isolation.worker import Depth
from pytest_qnn.qnn.abi.codes import low
from pytest_qnn.qnn.abi.layouts import Version
from pytest_qnn.qnn.cases.case import Prepare, QnnDType, QnnOp
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.operators import DTYPES, OPERATORS
from pytest_qnn.qnn.runner.client import NullFunction, Operator, QnnClient
from pytest_qnn.qnn.runner.graphs import prepare, validated
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.rpcmem import Rpcmem
from pytest_qnn.qnn.runner.state import Context, Skip, State

KEYS = (101, 107, 202, 213, 215, 217, 220, 301, 304, 311, 317, 318, 502, 1001, 1101, 1102, 1103, 1104, 1501)
"""The property keys that rules are gated by (`pytest_qnn.qnn.abi.codes.Property`)."""


UNTRIED = ((OPERATORS[0], DTYPES[0]),)
"""The operators taken for granted where a target cannot be asked: its rules then show why not."""


def learn(entry: QnnEntry, rpcmem: Rpcmem, depth: Depth = "all") -> MemoryFacts:
    """Open a session, ask for versions and capabilities, and try every operator once.

    ``identity``: no session and no graph; ``nothing``: no call at all.
    """
    if depth == "nothing":
        return MemoryFacts(operators=UNTRIED, rpcmem=rpcmem.name)
    client = QnnClient(entry)
    state = State(client, rpcmem)
    try:
        is_open = depth == "all" and state.session.open()
        interface = client.interface
        if interface is None:
            return MemoryFacts(session=tuple(state.session.codes), rpcmem=rpcmem.name)
        return MemoryFacts(
            provider=(interface.providerName or b"").decode(errors="replace"),
            backend_id=interface.backendId,
            core_version=_numbers(interface.apiVersion.coreApiVersion),
            backend_version=_numbers(interface.apiVersion.backendApiVersion),
            session=tuple(state.session.codes),
            capabilities=_capabilities(client),
            null_functions=client.null_functions(),
            operators=_operators(state) if is_open else UNTRIED if depth == "identity" else (),
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


def _operators(state: State) -> tuple[tuple[str, str], ...]:
    return tuple((op, dtype) for op in OPERATORS for dtype in DTYPES if _accepts(state, op, dtype))


def _accepts(state: State, op: QnnOp, dtype: QnnDType) -> bool:
    """The backend validates the operator, and composes and finalises a graph of it."""
    step = Prepare(graph=f"{op}_{dtype}", context="c", op=op, dtype=dtype)
    session = state.session
    try:
        if validated(state, Operator(op, dtype, step.shape)) != 0:
            return False
        code, context = state.client.create("contextCreate", session.backend, session.device, None)
        if code != 0:
            return False
        state.contexts["c"] = Context(context)
        try:
            return prepare(state, step).code == 0
        finally:
            state.client.call("contextFree", context, None)
    except (NullFunction, Skip):
        return False
