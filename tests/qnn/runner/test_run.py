from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from pytest_qnn.core.target import Death
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe.process import regions, snapshot
from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.abi.table import Interface
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Alloc,
    AnyStep,
    Binding,
    Capability,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    FdKind,
    Fill,
    Free,
    MemoryCase,
    Observe,
    Prepare,
    Providers,
    QnnDType,
    QnnOp,
    Read,
    Register,
    ToFd,
    Write,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.sizes import arity
from pytest_qnn.qnn.model.operators import DTYPES, OPERATORS, QUANTIZATION, expected
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.rpcmem import Block, EmulatedRpcmem
from pytest_qnn.qnn.rules.judging import LET_GO
from pytest_qnn.qnn.runner.buffers import _SPARE
from pytest_qnn.qnn.runner.client import UNTOUCHED
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.worker import learn
from pytest_qnn.qnn.target import described
from pytest_qnn.qnn.trace import AllocCounts, ExecuteCounts, MemoryTrace, ProcessCounts, StepSeen

Run = Callable[..., MemoryTrace]
SHAPE = (1, 2, 2, 2)
LARGE_SHAPE = (1, 3, 1024, 1033)
LARGE = 3 * 1024 * 1033


@pytest.fixture
def backend() -> Iterator[ReferenceBackend]:
    made = ReferenceBackend()
    yield made
    made.close()


@pytest.fixture
def run(backend: ReferenceBackend) -> Run:
    def carry_out(*steps: AnyStep, rpcmem: EmulatedRpcmem | None = None, on_step: Any = None) -> MemoryTrace:
        provider = rpcmem or EmulatedRpcmem()
        try:
            return run_memory_case(
                MemoryCase(steps), QnnEntry(backend.get_providers, backend), provider, on_step
            )
        finally:
            provider.close()

    return carry_out


def handle(name: str) -> Binding:
    return Binding("handle", name)


def buffers(*names: str, size: int = 64) -> tuple[AnyStep, ...]:
    return tuple(step for name in names for step in (Alloc(name, size), Fill(name)))


def registered(*names: str) -> tuple[AnyStep, ...]:
    """Context c0 and a buffer bX with handle hX for each X."""
    return (
        ContextCreate("c0"),
        *buffers(*(f"b{name}" for name in names)),
        Register("c0", tuple(Descriptor(f"b{name}", SHAPE) for name in names), tuple(f"h{n}" for n in names)),
    )


def test_a_graph_gives_the_operators_values(run: Run) -> None:
    for op in OPERATORS:
        for dtype in DTYPES:
            _check_values(run, op, dtype)


def _check_values(run: Run, op: QnnOp, dtype: QnnDType) -> None:
    inputs = tuple(Binding(seed=seed) for seed in range(3, 3 + arity(op)))
    trace = run(
        ContextCreate("c0"),
        Prepare("g0", "c0", op, dtype, (2, 256)),
        Execute("g0", (*inputs, Binding())),
    )
    size = 512 if dtype == "UFIXED_POINT_8" else 2048
    wanted = expected(op, dtype, *(contents(dtype, binding.seed, size) for binding in inputs))
    assert (trace.steps[2].code, trace.steps[2].data, trace.steps[2].counts) == (
        0,
        (wanted,),
        ExecuteCounts(),
    )


def test_outputs_behind_a_handle_are_read_at_the_descriptors_offset(run: Run) -> None:
    shared = Descriptor("b0", SHAPE, mem_type=2, offset=24)
    trace = run(
        ContextCreate("c0"),
        *buffers("b0"),
        Register("c0", (shared,), ("h0",)),
        Prepare("g0", "c0"),
        Execute("g0", (Binding(seed=1), Binding(seed=2), handle("h0"))),
        Read("b0"),
        Read("b0", via="fd"),
    )
    *_, executed, read, again = trace.steps
    wanted = expected("ElementWiseAdd", "UFIXED_POINT_8", *(contents("UFIXED_POINT_8", s, 8) for s in (1, 2)))
    assert executed.data == (wanted,)
    assert read.data == again.data == (b"\xee" * 24 + wanted + b"\xee" * 32,)


def test_a_write_is_what_an_input_handle_gives(run: Run) -> None:
    trace = run(
        *registered("0"),
        Write("b0", 8, seed=5),
        Prepare("g0", "c0", "Reshape"),
        Execute("g0", (handle("h0"), Binding())),
    )
    assert trace.steps[-1].data == (contents("UFIXED_POINT_8", 5, 8),)


def test_handles_are_untouched_null_or_the_targets(run: Run) -> None:
    good, bad = Descriptor("b0", SHAPE), Descriptor("b0", SHAPE, fd="minus-one")
    trace = run(
        ContextCreate("c0"),
        *buffers("b0"),
        Register("c0", (bad,), ("h0",)),
        Register("c0", (good,), ("h0",)),
        Register("c0", (good,), ("h1",), null_descriptors=True),
    )
    failed, succeeded, refused = trace.steps[3:]
    assert failed.code
    assert failed.values == (0,)
    assert succeeded.code == 0
    assert succeeded.values[0] not in (0, UNTOUCHED)
    assert refused.code == 8000
    assert refused.values[0] in (0, UNTOUCHED)


@pytest.mark.parametrize("kind", ["minus-one", "closed", "pipe", "socket", "directory", "readonly"])
def test_an_odd_descriptor_is_refused_and_closed_again(run: Run, kind: FdKind) -> None:
    trace = run(
        ContextCreate("c0"),
        *buffers("b0"),
        Observe(),
        Register("c0", (Descriptor("b0", SHAPE, fd=kind),), ("h0",)),
        Observe(),
    )
    before, register, after = trace.steps[3:]
    assert register.code in (8000, 8003)
    assert after.counts.fds == before.counts.fds


def test_stale_names_pass_their_last_value(run: Run) -> None:
    trace = run(
        *registered("0"), Deregister(("h0",)), Deregister(("h0",)), ContextFree("c0"), ContextFree("c0")
    )
    first, second, freed, again = trace.steps[-4:]
    assert first.values == second.values
    assert (first.code, second.code, freed.code, again.code) == (0, 8001, 0, 5002)


def test_a_contexts_name_passes_its_value_as_a_handle(run: Run) -> None:
    trace = run(ContextCreate("c0"), Deregister(("c0",)))
    assert trace.steps[1].values == trace.steps[0].values
    assert trace.steps[1].code == 8001


@pytest.mark.parametrize("name", [NULL, BOGUS])
def test_null_and_bogus_reach_the_target_in_every_place(run: Run, name: str) -> None:
    binding = handle(name)
    trace = run(
        ContextCreate("c0"),
        Prepare("g0", "c0"),
        ContextFree(name),
        Register(name, (Descriptor(name, SHAPE),), ("h0",)),
        Deregister((name,)),
        Prepare("g1", name),
        Execute(name, ()),
        Execute("g0", (Binding(), Binding(), binding)),
    )
    assert [seen.code for seen in trace.steps[2:]] == [5002, 8001, 8001, 6001, 6001, 6004]
    assert trace.steps[-1].data == (b"",)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (ContextFree("c9"), "context c9 was never made"),
        (Register("c9", (), ()), "context c9 was never made"),
        (Register("c0", (Descriptor("b9", SHAPE),), ("h",)), "buffer b9 was never made"),
        (Deregister(("h9",)), "memory handle h9 was never made"),
        (Prepare("g", "c9"), "context c9 was never made"),
        (Execute("g9", ()), "graph g9 was never made"),
        (Free("b9"), "buffer b9 was never made"),
        (Read("b1"), "buffer b1 is freed"),
        (Write("b0", 60, offset=5), "60 bytes at 5 are not within buffer b0"),
    ],
)
def test_a_step_without_its_object_is_skipped_and_says_why(run: Run, step: AnyStep, reason: str) -> None:
    trace = run(ContextCreate("c0"), *buffers("b0", "b1"), Free("b1"), step)
    assert trace.steps[-1] == StepSeen(skipped=reason, lacking="never made" in reason)


def test_a_failed_prepare_stops_at_the_failing_call(run: Run) -> None:
    trace = run(ContextCreate("c0"), Prepare("g0", "c0", preset=(False, True)), Execute("g0", ()))
    assert trace.steps[1].calls == (
        ("graphCreate", 0),
        ("tensorCreateGraphTensor", 0),
        ("tensorCreateGraphTensor", 7004),
    )
    assert trace.steps[1].code == 7004
    assert trace.steps[2].skipped == "graph g0 was never made"


def test_a_preset_memory_handle_is_refused(run: Run) -> None:
    trace = run(ContextCreate("c0"), Prepare("g0", "c0", mem_types=(1,), preset=(True,)))
    assert trace.steps[1].calls[-1] == ("tensorCreateGraphTensor", 7004)


def test_providers_and_early_capabilities_need_no_session(run: Run) -> None:
    trace = run(
        Capability(1101, early=True), Providers(), Providers(null_count=True), Providers(null_list=True)
    )
    early, given, no_count, no_list = trace.steps
    assert trace.session == ()
    assert (early.code, given.code, no_count.code, no_list.code) == (0, 0, 1004, 1004)
    assert len(given.values) == given.counts.count == 1
    assert (no_count.counts.listed, no_list.counts.count) == (False, 0x55555555)


def test_the_session_is_opened_once_and_closed_in_reverse(run: Run) -> None:
    trace = run(ContextCreate("c0"), ContextCreate("c1"), ContextFree("c0"))
    assert [name for name, _ in trace.session] == [
        "getProviders",
        "logCreate",
        "backendCreate",
        "deviceCreate",
    ]
    assert trace.closing == (("contextFree", 0), ("deviceFree", 0), ("backendFree", 0), ("logFree", 0))


def test_an_allocations_first_and_last_byte_are_tried(run: Run) -> None:
    class Short(EmulatedRpcmem):
        def _map(self, fd: int, size: int) -> int:
            return super()._map(fd, min(size, 4096))

        def _unmap(self, block: Block) -> None:
            ctypes.CDLL(None).munmap(ctypes.c_void_p(block.pointer), 4096)

    # A file as long as asked for, and a hole behind its first page: nothing here may crash.
    trace = run(Alloc("b0", 1 << 30), Fill("b0"), rpcmem=Short())
    assert trace.steps[0].counts == AllocCounts(first_writable=True)
    assert trace.steps[1].skipped == "buffer b0 is not writable from its first to its last byte"


def test_memory_that_a_mistaken_free_took_away_is_not_touched(run: Run) -> None:
    class Careless(EmulatedRpcmem):
        def _find_to_free(self, pointer: int) -> Block | None:
            return self._find(pointer & -4096)

    trace = run(Alloc("b0", 4096), Free("b0", "interior"), Read("b0"), rpcmem=Careless())
    assert trace.steps[2].skipped == "buffer b0 is no longer mapped"


def test_to_fd_of_odd_pointers_is_asked_of_the_provider(run: Run) -> None:
    trace = run(
        Alloc("b0", 4096), ToFd("b0"), ToFd("b0", "interior"), ToFd(pointer="unknown"), ToFd(pointer="null")
    )
    fds = [seen.values[0] for seen in trace.steps[1:]]
    assert fds[0] >= 0
    assert fds[1:] == [-1, -1, -1]


def test_what_was_written_where_it_must_not_be_is_counted(run: Run, backend: ReferenceBackend) -> None:
    listed = ctypes.POINTER(ctypes.POINTER(Interface))()
    backend.get_providers(ctypes.byref(listed), ctypes.byref(ctypes.c_uint32()))
    table = listed[0].contents.implementation
    honest = type(table.graphExecute)(ctypes.cast(table.graphExecute, ctypes.c_void_p).value)

    def careless(graph: int, inputs: Any, n: int, outputs: Any, m: int, *rest: Any) -> int:
        ctypes.memset(inputs[0].v1.clientBuf.data, 0x77, 1)
        ctypes.memset(outputs[0].v1.clientBuf.data + 8, 0x77, 3)
        code: int = honest(graph, inputs, n, outputs, m, *rest)
        return code

    replaced = type(table.graphExecute)(careless)
    table.graphExecute = replaced
    trace = run(ContextCreate("c0"), Prepare("g0", "c0"), Execute("g0", ()))
    assert trace.steps[2].counts == ExecuteCounts(inputs_changed=1, output_overrun=3)


def test_the_clients_own_large_memory_is_no_region(run: Run) -> None:
    bindings = (Binding(seed=1), handle("h0"), Binding())
    # Whatever ran in this process before may have left a mapping of such a size.
    older = {address for address, _ in regions(snapshot().lines, LARGE)}
    trace = run(
        ContextCreate("c0"),
        Alloc("b0", LARGE),
        Fill("b0"),
        Register("c0", (Descriptor("b0", LARGE_SHAPE),), ("h0",)),
        Prepare("g0", "c0", shape=LARGE_SHAPE, mem_types=(1, 1, 1)),
        Observe(LARGE),
        Execute("g0", bindings),
        Read("b0"),
        Observe(LARGE),
    )
    assert len(trace.steps[6].data[0]) == LARGE
    assert {address for address, _ in trace.steps[5].regions} <= older
    # The two raw tensors got IO buffers of the target's at this first raw inference.
    assert trace.steps[8].counts.regions == len(trace.steps[8].regions)
    assert len({address for address, _ in trace.steps[8].regions} - older) == 2


def test_what_lies_where_a_freed_buffer_was_is_a_region(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    # One that is not unmapped stands for what the system maps at the same address.
    monkeypatch.setattr(EmulatedRpcmem, "free", lambda *_: None)
    trace = run(Alloc("b0", LARGE), Observe(LARGE), Free("b0"), Observe(LARGE))
    before, after = ({address for address, _ in trace.steps[at].regions} for at in (1, 3))
    assert after - before == {trace.steps[0].values[0]}


def test_nothing_is_left_for_the_next_case(run: Run) -> None:
    steps = (
        *registered("0", "1"),
        Deregister(("h0",)),
        Alloc("b0", 64),
        ContextCreate("c0"),
        Register("c0", (Descriptor("b0", SHAPE),), ("h1",)),
        Prepare("g0", "c0"),
        Execute("g0", (Binding(), Binding(), handle("h1"))),
    )
    before = snapshot().counts()
    codes = [code for _ in range(20) for _, code in run(*steps).closing]
    after = snapshot().counts()
    assert set(codes) == {0}
    assert (after["fds"], after["memfds"]) == (before["fds"], before["memfds"])


def test_on_step_is_told_each_step_before_it_runs_and_the_end(run: Run) -> None:
    told: list[int] = []
    run(ContextCreate("c0"), ContextFree("c9"), ContextFree("c0"), on_step=told.append)
    assert told == [0, 1, 2, 3]


def test_a_death_where_all_is_given_back_is_of_no_step() -> None:
    case = MemoryCase((ContextCreate("c0"),))
    places = [described(case, Death("signal", "SIGABRT", step)).place for step in (-1, 0, 1)]
    assert places == [
        "",
        'step 0 (ContextCreate {"context":"c0"})',
        "step 1 (giving back what the case has left)",
    ]


def test_a_trace_survives_messagepack(run: Run) -> None:
    trace = run(*registered("0"), Prepare("g0", "c0"), Execute("g0", ()), Observe(4096), Providers())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=MemoryTrace) == trace


def test_learning_finds_what_the_reference_offers(backend: ReferenceBackend) -> None:
    facts = learn(QnnEntry(backend.get_providers, backend), EmulatedRpcmem())
    assert facts.session_failure is None
    assert facts.supports(1101)
    assert not facts.supports(317)
    assert facts.operators == tuple((op, dtype) for op in OPERATORS for dtype in DTYPES)
    assert facts.rpcmem == "emulated"


def test_a_null_entry_of_the_table_is_a_fact_and_skips_its_steps(run: Run, backend: ReferenceBackend) -> None:
    listed = ctypes.POINTER(ctypes.POINTER(Interface))()
    backend.get_providers(ctypes.byref(listed), ctypes.byref(ctypes.c_uint32()))
    table = listed[0].contents.implementation
    table.memDeRegister = type(table.memDeRegister)()
    assert learn(QnnEntry(backend.get_providers, backend), EmulatedRpcmem()).null_functions == (
        "memDeRegister",
    )
    assert run(Deregister((NULL,))).steps[0].skipped == "memDeRegister is NULL in the interface table"


@pytest.mark.parametrize("op", ["ElementWiseAdd", "ElementWiseSubtract", "ElementWiseMultiply"])
def test_the_encodings_make_ties_and_saturate_at_both_ends(op: QnnOp) -> None:
    first, second, out = QUANTIZATION[op]
    pairs = [(a, b) for a in range(256) for b in range(256)]
    data = (bytes(a for a, _ in pairs), bytes(b for _, b in pairs))
    ties = beyond = below = 0
    for (a, b), stored in zip(pairs, expected(op, "UFIXED_POINT_8", *data), strict=True):
        x, y = (a + first.offset) * first.scale, (b + second.offset) * second.scale
        real = {"ElementWiseAdd": x + y, "ElementWiseSubtract": x - y, "ElementWiseMultiply": x * y}[op]
        exact = real / out.scale - out.offset
        ties += exact % 1 == 0.5
        beyond += exact > 255
        below += exact < 0
        # Half up: the stored value is in (exact - 0.5, exact + 0.5], but for the ends of the range.
        assert -0.5 < stored - exact <= 0.5 or (stored, exact > 255, exact < 0) in (
            (255, True, False),
            (0, False, True),
        )
    assert min(ties, beyond, below) > 100


class UpperBitsOnly(ReferenceBackend):
    """Says no with the upper bits alone, which is neither success nor any code."""

    def property_has_capability(self, key: int) -> None:
        raise QnnError((key >= 0) << 16)

    def mem_deregister(self, handles: Any, count: int) -> None:
        raise QnnError(bool(handles and count) << 16)


def test_upper_bits_alone_are_no_success() -> None:
    assert low(1 << 16) not in {int(code) for code in Error}
    assert (low(0), low((7 << 16) + 8003)) == (0, 8003)
    with closing(UpperBitsOnly()) as backend:
        entry = QnnEntry(backend.get_providers, backend)
        assert not any(map(learn(entry, EmulatedRpcmem()).supports, (1101, 1103)))
        case = MemoryCase((*registered("0"), Deregister(("h0",))))
        trace = run_memory_case(case, entry, EmulatedRpcmem())
    assert trace.steps[-1].code == 1 << 16
    assert ("memDeRegister", 1 << 16) in trace.closing  # it still stands, and the runner tries once more


def test_mappings_of_named_buffers_are_counted(run: Run) -> None:
    steps = (
        ContextCreate("c"),
        Alloc("b", 4096),
        Observe(buffers=("b", "none")),
        Register("c", (Descriptor("b", (8,)),), ("h",)),
        Observe(buffers=("b", "none")),
        ContextFree("c"),
        Observe(buffers=("b", "none"), patient=True),
    )
    looks = [seen.counts for seen in run(*steps).steps if seen.counts]
    mapped = [each.mapped for each in looks if isinstance(each, ProcessCounts)]
    assert mapped == [(1, -1), (2, -1), (1, -1)]


class LateUnmapping(ReferenceBackend):
    """Mappings of its own, of no memfd, go a little after the context."""

    def release_registrations(self, context: Any) -> None:
        super().release_registrations(context)
        kind = libc.MAP_SHARED | libc.MAP_ANONYMOUS
        found = [libc.mmap(None, 4096, libc.PROT_READ, kind, -1, 0) for _ in range(2 * LET_GO)]
        self.later = threading.Timer(0.1, lambda: [libc.munmap(each, 4096) for each in found])
        self.later.start()

    def close(self) -> None:
        self.later.join()
        super().close()


def test_a_patient_look_waits_for_all_mappings_that_are_a_leak_by_ctx_01() -> None:
    assert _SPARE[-1] == LET_GO - 1
    case = MemoryCase((ContextCreate("c"), Observe(), ContextFree("c"), Observe(patient=True)))
    with closing(LateUnmapping()) as backend:
        trace = run_memory_case(case, QnnEntry(backend.get_providers, backend), EmulatedRpcmem())
    _, before, _, after = trace.steps
    assert after.counted(ProcessCounts).mappings < before.counted(ProcessCounts).mappings + LET_GO
