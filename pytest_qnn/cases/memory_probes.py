"""Steps that ask one thing of a target: what it says of itself, calls on no object, many rounds, threads."""

from __future__ import annotations

from typing import Literal

from pytest_qnn.cases.memory_step import QnnDType, QnnOp, Step
from pytest_qnn.cases.misuses import Misused

FREED = "FREED"
"""Of anything but a context, a graph or an error code: one of its own is made and freed first. Memory is
registered in a context of the case for it, and an event is that of an execute of a graph of the case."""


class Interface(Step, tag="interface", frozen=True, gc=False, omit_defaults=True):
    """QnnInterface_getProviders, and then a look at every byte of the first interface that is listed."""


class Version(Step, tag="version", frozen=True, gc=False, omit_defaults=True):
    """QnnBackend_getApiVersion or QnnBackend_getBuildId. No session is opened for it."""

    call: Literal["api", "build"] = "api"
    null: bool = False
    """The out pointer is NULL."""


class Message(Step, tag="message", frozen=True, gc=False, omit_defaults=True):
    """QnnError_getMessage."""

    error: int
    null: bool = False
    """The out pointer is NULL."""


class Misuse(Step, tag="misuse", frozen=True, gc=False, omit_defaults=True):
    """One call on ``handle``: ``NULL``, ``BOGUS``, `FREED`, or the name of an object that is gone.

    Every other argument is as good as it can be (`pytest_qnn.rules.iface_codes` has where it cannot). What a
    call that succeeds nevertheless makes is given back. With tensorCreateGraphTensor it may also be a graph
    out of a binary, which takes no new tensor.
    """

    call: Misused
    handle: str = "NULL"


class Environment(Step, tag="environment", frozen=True, gc=False, omit_defaults=True):
    """QnnGraph_prepareExecutionEnvironment with one environment, and if that succeeds its release."""

    graph: str
    option: int = 0
    """QnnGraph_ExecuteEnvironmentOption_t: 0 BIND_MEM_HANDLES, 1 POPULATE_CLIENT_BUFS."""


class FreeParent(Step, tag="free-parent", frozen=True, gc=False, omit_defaults=True):
    """QnnDevice_free or QnnBackend_free of the session's own, whatever stands on it."""

    what: Literal["device", "backend"]


class Restart(Step, tag="restart", frozen=True, gc=False, omit_defaults=True):
    """The subsystem behind the backend restarts; skipped where nothing can make it."""


class Churn(Step, tag="churn", frozen=True, gc=False, omit_defaults=True):
    """The same thing ``rounds`` times, after a few rounds that warm the target up.

    ``register``: register ``tensors`` tensors of ``buffer`` in ``context``, and deregister them.
    ``context``: create a context, register them there, free it. ``refused``: register a batch whose last
    descriptor has no mappable file. ``unread``: create a context from the first half of the binary that was
    written last.
    """

    what: Literal["register", "context", "refused", "unread"]
    buffer: str
    context: str = ""
    rounds: int = 100
    tensors: int = 1
    """Shared buffers (CUSTOM) one behind the other, of `TENSOR` bytes each."""
    mem_type: int = 1


class Parallel(Step, tag="parallel", frozen=True, gc=False, omit_defaults=True):
    """Several threads at once, each ``rounds`` times.

    ``backends``: backendCreate, then backendFree. ``contexts``: each thread has a context of its own (made
    before the threads start), in which it registers a buffer for each tensor of a graph, executes with the
    handles, reads the output and deregisters. ``race``: one thread executes a graph raw until that fails,
    while another frees its context. ``deregister``: one thread executes a graph with memory handles while
    another deregisters the output's. ``rpcmem``: each thread allocates, writes, asks for the descriptor, maps
    it, compares and frees; no session is needed. ``logs``: a log with a callback, a backend and a device are
    made for the step; each thread creates a context, prepares a graph, executes it raw, registers two buffers
    (with ``mem_type`` 0: none), deregisters them and frees the context. Then all is freed, the log last.
    """

    what: Literal["backends", "contexts", "race", "deregister", "rpcmem", "logs"]
    threads: int = 2
    rounds: int = 1
    mem_type: int = 1
    op: QnnOp = "ElementWiseAdd"
    dtype: QnnDType = "UFIXED_POINT_8"
    level: int = 4
    """QnnLog_Level_t of the log of ``logs``: 1 ERROR to 5 DEBUG."""
    lowered: int = 0
    """The level that the log is given halfway, between two rounds; 0: it keeps the one it has."""


TENSOR = 64
"""Bytes of each tensor that a `Churn` registers."""
