"""Steps that ask a target about itself, and the step `Churn`: the same calls many times, measured."""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import time
from collections.abc import Callable
from typing import Any

from pytest_qnn.core.printable import cut
from pytest_qnn.isolation.observe.process import Snapshot, malloc_in_use, snapshot
from pytest_qnn.qnn.abi.codes import HtpMemType, MemType
from pytest_qnn.qnn.abi.layouts import (
    ApiVersion,
    ExecuteEnvironment,
    HtpMemDescriptor,
    MemDescriptor,
    TensorP,
)
from pytest_qnn.qnn.abi.table import InterfaceP
from pytest_qnn.qnn.cases.case import (
    TENSOR,
    Capability,
    Churn,
    Environment,
    Interface,
    Message,
    Providers,
    Restart,
    Version,
)
from pytest_qnn.qnn.model.growth import MALLOC, RESIDENT, beyond
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.runner.buffers import CLOSED_FD, descriptor_of, usable
from pytest_qnn.qnn.runner.client import UNTOUCHED, array_of, data_type
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.library import chosen, readable
from pytest_qnn.qnn.runner.state import NeverMade, Skip, State
from pytest_qnn.qnn.trace import GrowthCounts, ProviderCounts, StepSeen, Versions

_TEXT = 512
_COUNT_UNTOUCHED = 0x55555555
_SENTINEL_TEXT = ctypes.create_string_buffer(b"untouched")


@handles(Providers)
def providers(state: State, step: Providers) -> StepSeen:
    """QnnInterface_getProviders; ``values``: addresses of the listed interfaces, 0 for a NULL one."""
    listed = ctypes.POINTER(InterfaceP)()
    count = ctypes.c_uint32(_COUNT_UNTOUCHED)
    code: int = state.client.entry.get_providers(
        None if step.null_list else ctypes.byref(listed), None if step.null_count else ctypes.byref(count)
    )
    found: list[int] = []
    if code == 0 and listed and count.value != _COUNT_UNTOUCHED:
        addresses = ctypes.cast(listed, ctypes.POINTER(ctypes.c_void_p))
        found = [addresses[i] or 0 for i in range(count.value)]
    return StepSeen(code=code, values=tuple(found), counts=ProviderCounts(count.value, bool(listed)))


@handles(Capability)
def capability(state: State, step: Capability) -> StepSeen:
    """QnnProperty_hasCapability."""
    if not step.early:
        state.session.open()
    elif state.session.opened:
        raise Skip("the session is open already, so this is no early question")
    return StepSeen(code=state.client.call("propertyHasCapability", step.key & 0xFFFFFFFF))


@handles(Interface)
def interface(state: State, step: Interface) -> StepSeen:
    """``values``: (address,); ``data``: (the bytes of QnnInterface_t, the provider's name)."""
    del step
    listed, count = ctypes.POINTER(InterfaceP)(), ctypes.c_uint32()
    code: int = state.client.entry.get_providers(ctypes.byref(listed), ctypes.byref(count))
    there = [listed[i] for i in range(count.value) if listed[i]] if code == 0 and listed else []
    if not there:
        return StepSeen(code=code)
    found = chosen(there)
    address = ctypes.addressof(found)
    body = bytes(readable(found))
    counts = _versions(found.apiVersion)
    return StepSeen(code=code, values=(address,), data=(body, found.providerName or b""), counts=counts)


def _versions(api: Any) -> Versions:
    core, own = api.coreApiVersion, api.backendApiVersion
    return Versions((core.major, core.minor, core.patch), (own.major, own.minor, own.patch))


@handles(Version)
def version(state: State, step: Version) -> StepSeen:
    """The version, or the build id (as for `Message`), as a backend says it before it is created."""
    if step.call == "api":
        said = ApiVersion()
        code = state.client.call("backendGetApiVersion", None if step.null else ctypes.byref(said))
        return StepSeen(code=code, counts=_versions(said) if code == 0 and not step.null else None)
    code, values, data = _text(state, step.null, "backendGetBuildId")
    return StepSeen(code=code, values=values, data=data)


@handles(Message)
def message(state: State, step: Message) -> StepSeen:
    """``values``: (1,) where the pointer leads to a text, which is in ``data``; (0,) for NULL."""
    state.session.open()
    code, values, data = _text(state, step.null, "errorGetMessage", step.error)
    return StepSeen(code=code, values=values, data=data)


def _text(
    state: State, null: bool, call: str, *arguments: int
) -> tuple[int, tuple[int, ...], tuple[bytes, ...]]:
    """A call that gives a text: (0,) NULL, (1,) a text, or `UNTOUCHED` for its pointer; and the text."""
    out = ctypes.c_char_p(ctypes.addressof(_SENTINEL_TEXT))
    code = state.client.call(call, *arguments, None if null else ctypes.byref(out))
    address = ctypes.cast(out, ctypes.c_void_p).value or 0
    if address == ctypes.addressof(_SENTINEL_TEXT):
        return code, (UNTOUCHED,), ()
    return code, (int(bool(address)),), (cut(out.value, _TEXT),) if out.value else ()


@handles(Restart)
def restart(state: State, step: Restart) -> StepSeen:  # noqa: ARG001 - each kind of step has one
    """Only the reference can be made to lose what a restart takes."""
    backend = state.client.entry.owner
    if not isinstance(backend, ReferenceBackend):
        raise Skip("nothing here can make the subsystem behind this target restart")
    backend.restart()
    return StepSeen()


@handles(Environment)
def environment(state: State, step: Environment) -> StepSeen:
    """QnnGraph_prepareExecutionEnvironment over the graph's own tensors."""
    state.session.open()
    graph = state.graph_value(step.graph)
    made = state.graphs.get(step.graph)
    if made is None:
        raise NeverMade(f"graph {step.graph} was never made")
    operator = made.operator
    given = ExecuteEnvironment(option=step.option)
    given.tensorSet.version = 1
    given.tensorSet.v1.numInputs, given.tensorSet.v1.numOutputs = operator.io_inputs, 1
    given.tensorSet.v1.inputs = ctypes.cast(operator.inputs, TensorP)
    given.tensorSet.v1.outputs = ctypes.cast(operator.outputs, TensorP)
    table = array_of(ctypes.c_void_p, 1)(ctypes.addressof(given))
    code = state.client.call("graphPrepareExecutionEnvironment", graph, table, 1)
    if code == 0:
        state.client.call("graphReleaseExecutionEnvironment", graph, table, 1)
    return StepSeen(code=code)


Found = tuple[str, int]
"""A call, and the code that it had not to give."""
_WARM_UP = 20
"""Rounds before the first count: what is made once is made by then."""
_SECONDS = 20.0
"""After which no further round begins: a registration costs some libraries tens of milliseconds."""
GIVEN_BACK, _PAUSE = 1.0, 0.02
"""Seconds after which what is still there counts as kept, and between two looks."""
_BACKLOG = 20.0
"""Seconds after which it does although descriptors, mappings or malloc's blocks become fewer."""
_PART = 4096
"""Bytes of malloc's by which what is in use has become less."""
_BURST = 250
"""Rounds between two looks at what a worker has still to give back."""
_AGAIN = 2
"""How often growth is measured again, before it counts: of memory; of anything else once."""


@handles(Churn)
def churn(state: State, step: Churn) -> StepSeen:
    """The growth of the process.

    ``calls``: the first call with another code than it had to give, which is ``code`` as well; otherwise that
    is 0, or the code of the last refusal.
    """
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    batch = Batch(state, step)
    found, counts = measured(functools.partial(_ONCE[step.what], state, step, batch), step.rounds)
    code = batch.refusal if found is None else found[1]
    return StepSeen(code=code, calls=() if found is None else (found,), counts=counts)


def measured(once: Callable[[], Found | None], rounds: int) -> tuple[Found | None, GrowthCounts | None]:
    """As `grown`, behind a few rounds that warm the target up; what has grown is measured again.

    Without counts: a call gave another code than it had to before anything was measured.
    """
    found = next(filter(None, (once() for _ in range(_WARM_UP))), None)
    if found is not None:
        return found, None
    started = time.monotonic()
    found, counts = grown(once, rounds, given_back=0.0)
    # A leak is what grows again: a pool may take more rounds to fill than warm the target up. Descriptors and
    # mappings are counted exactly, once more. Memory is filled by a worker that has still to do, to a height
    # that no warm-up reaches; the first look does not wait for it.
    for looked in range(_AGAIN):
        growth = beyond(counts)
        if found is not None or growth is None or (looked and growth.what not in (MALLOC, RESIDENT)):
            break
        elapsed = time.monotonic() - started
        if looked and elapsed > _SECONDS / 2:
            break
        # Of a slow target too: whatever fills up in the first look has had as long as this.
        found, counts = grown(once, rounds, max(_SECONDS - elapsed, _SECONDS / 2))
    return found, counts if found is None else GrowthCounts(counts.rounds)


def grown(
    once: Callable[[], Found | None],
    rounds: int,
    seconds: float = _SECONDS,
    *,
    given_back: float = GIVEN_BACK,
) -> tuple[Found | None, GrowthCounts]:
    """The call that gave another code than it had to, or else the growth of the process over the rounds.

    No further round begins after so many ``seconds``. ``given_back``: seconds within which a worker of the
    backend's gives back what it has. If it is more than 0, rounds wait for such a worker now and then: how
    many of them it is behind depends on who else has the processor, and its queue is memory too.
    """
    gc.collect()
    before, heap = snapshot(), malloc_in_use()
    done, started, found, waits = 0, time.monotonic(), None, given_back > 0
    while done < rounds and time.monotonic() - started < seconds:
        found = once()
        if found is not None:
            break
        done += 1
        if waits and done % _BURST == 0:
            waits = _catches_up(before, given_back, started + seconds)
    gc.collect()
    began = time.monotonic()
    # What is kept was waited for already.
    end, least = began + given_back * waits, [math.inf] * 3
    while beyond(counts := _growth(done, before, heap)) is not None and time.monotonic() < end:
        held = [counts.fds, counts.mappings, counts.heap // _PART]
        if any(now < lowest for now, lowest in zip(held, least, strict=True)):
            # A worker that has all rounds to do still needs more than a second beside other work.
            least = list(map(min, held, least))
            end = min(time.monotonic() + given_back, began + _BACKLOG)
        time.sleep(_PAUSE)
    return found, counts


def _catches_up(before: Snapshot, given_back: float, latest: float) -> bool:
    """Wait for a worker that gives back descriptors and mappings; False if what there is, is kept."""
    least, end = math.inf, time.monotonic() + given_back
    while time.monotonic() < min(end, latest):
        now = snapshot()
        more = GrowthCounts(fds=now.fds - before.fds, mappings=len(now.lines) - len(before.lines))
        if beyond(more) is None:
            return True
        if more.fds + more.mappings < least:
            least, end = more.fds + more.mappings, time.monotonic() + given_back
        time.sleep(_PAUSE)
    return time.monotonic() < end  # it gets on, and there is no time for more rounds


def _growth(rounds: int, before: Snapshot, heap: int | None) -> GrowthCounts:
    after, heap_after = snapshot(), malloc_in_use()
    return GrowthCounts(
        rounds=rounds,
        fds=after.fds - before.fds,
        mappings=len(after.lines) - len(before.lines),
        vm=after.virtual - before.virtual,
        rss=after.resident - before.resident,
        heap=0 if heap is None or heap_after is None else heap_after - heap,
    )


class Batch:
    """Descriptors of tensors that lie one behind the other in a buffer, and room for their handles."""

    def __init__(self, state: State, step: Churn) -> None:
        buffer = usable(state, step.buffer)
        shared = step.mem_type == MemType.CUSTOM
        self.count = step.tensors if shared else 1
        fd = descriptor_of(state, buffer)
        self._lengths = array_of(ctypes.c_uint32, 1)(TENSOR)
        self._custom = [HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER) for _ in range(self.count)]
        self.descriptors = array_of(MemDescriptor, self.count)()
        for position, (slot, custom) in enumerate(zip(self.descriptors, self._custom, strict=True)):
            slot.memShape.numDim = 1
            slot.memShape.dimSize = self._lengths
            slot.dataType = data_type("UFIXED_POINT_8")
            slot.memType = step.mem_type
            custom.size = buffer.size
            custom.sharedBufferConfig.fd = fd
            custom.sharedBufferConfig.offset = position * TENSOR
            slot.dmaBufInfo.fd = fd
            if shared:
                slot.customInfo = ctypes.addressof(custom)
            elif step.mem_type == MemType.DMA_BUF:
                slot.dmaBufInfo.data = buffer.pointer
        if step.what == "refused":
            self._close_last_fd(shared=shared)
        self.handles = array_of(ctypes.c_void_p, self.count)()
        self.refusal = 0
        """The code of the last call that was to be refused."""

    def _close_last_fd(self, *, shared: bool) -> None:
        """The last descriptor has a closed file."""
        if shared:
            self._custom[-1].sharedBufferConfig.fd = CLOSED_FD
        else:
            self.descriptors[self.count - 1].dmaBufInfo.fd = CLOSED_FD


def _register(state: State, step: Churn, batch: Batch) -> Found | None:
    context = state.context_value(step.context)
    return _call(state, "memRegister", context, batch.descriptors, batch.count, batch.handles) or _call(
        state, "memDeRegister", batch.handles, batch.count
    )


def _refused(state: State, step: Churn, batch: Batch) -> Found | None:
    context = state.context_value(step.context)
    code = state.client.call("memRegister", context, batch.descriptors, batch.count, batch.handles)
    batch.refusal = code
    return ("memRegister", code) if code == 0 else None


def _unread(state: State, step: Churn, batch: Batch) -> Found | None:
    del step
    data = next(reversed(state.binaries.values()), b"")
    if not data:
        raise Skip("there is no binary to cut in two")
    size = len(data) // 2
    held = ctypes.create_string_buffer(data[:size], size)
    out = ctypes.c_void_p()
    place = (None, ctypes.addressof(held), size, ctypes.byref(out), None)
    session = state.session
    code = state.client.call("contextCreateFromBinary", session.backend, session.device, *place)
    batch.refusal = code
    return ("contextCreateFromBinary", code) if code == 0 else None


def _context(state: State, step: Churn, batch: Batch) -> Found | None:
    del step
    session = state.session
    code, context = state.client.create("contextCreate", session.backend, session.device, None)
    if code != 0:
        return "contextCreate", code
    failed = _call(state, "memRegister", context, batch.descriptors, batch.count, batch.handles)
    ended = _call(state, "contextFree", context, None)
    return failed or ended


def _call(state: State, name: str, *arguments: Any) -> Found | None:
    code = state.client.call(name, *arguments)
    return (name, code) if code != 0 else None


_ONCE: dict[str, Callable[[State, Churn, Batch], Found | None]] = {
    "register": _register,
    "context": _context,
    "refused": _refused,
    "unread": _unread,
}
"""One round: None, or the call that gave another code than it had to."""
