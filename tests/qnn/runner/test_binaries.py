from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pytest_qnn.core.verdict import Violation
from pytest_qnn.qnn.abi.layouts import Version
from pytest_qnn.qnn.abi.system import SystemInterface, SystemInterfaceP
from pytest_qnn.qnn.cases.case import (
    FLIPPED_BYTES,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Damage,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    GetBinary,
    Inspect,
    MemoryCase,
    Observe,
    Prepare,
    Read,
    Register,
    ReleaseBinary,
    Retrieve,
)
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.rules.off.rules import off_08
from pytest_qnn.qnn.runner import binaries
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import InspectCounts, ProcessCounts, StepSeen, WrittenCounts
from tests.gallery.qnn.handles import IdsOfAProcess

PAGE = 4096
SAVED = (ContextCreate("c"), Prepare("g", "c", weights=3), GetBinary("c", "b"))
DEFERRED = (*SAVED, ContextFromBinary("d", "b", defer=True))
RUN = (Retrieve("h", "d", "g"), Execute("h", (Binding(seed=1), Binding())))


@pytest.fixture(scope="module")
def reference() -> Iterator[MemoryTarget]:
    target = open_memory_target("reference", "emulated", "off", 10.0)
    yield target
    target.close()


LOADED: tuple[tuple[str, Damage], ...] = (("e", ""), ("d", "flipped-3"))


def load(name: str, damage: Damage) -> ContextFromBinary:
    return ContextFromBinary(name, "b", damage=damage)


def external(kind: int, buffer: str = "w", offset: int = 0, size: int | None = None) -> Descriptor:
    return Descriptor(buffer, (), mem_type=2, htp_type=kind, offset=offset, size=size)


def run(target: MemoryTarget, *steps: AnyStep) -> list[StepSeen]:
    trace = target.run(MemoryCase(steps))
    assert trace.death is None
    return list(trace.steps)


def codes(seen: list[StepSeen]) -> list[int | None]:
    return [step.code for step in seen]


def test_a_binary_keeps_the_memory_type_of_each_tensor(reference: MemoryTarget) -> None:
    prepared = Prepare("g", "c", mem_types=(1, 0, 1))
    *_, seen = run(reference, ContextCreate("c"), prepared, GetBinary("c", "b"), Inspect("b"))
    assert (seen.code, seen.values) == (0, (1, 0, 1))
    assert seen.counts == InspectCounts(version=3, graphs=1, inputs=2, outputs=1)


def test_a_graph_out_of_a_binary_computes_the_same(reference: MemoryTarget) -> None:
    execute = Execute("g", (Binding(seed=1), Binding()))
    steps = (*SAVED, execute, ContextFromBinary("d", "b"), ReleaseBinary("d"), *RUN)
    seen = run(reference, *steps)
    assert seen[-1].code == 0
    assert seen[-1].data == seen[3].data


@pytest.mark.parametrize(("mem_types", "mapped"), [((), 3), ((1, 1, 1), 0)])
def test_loading_allocates_what_preparing_would(
    reference: MemoryTarget, mem_types: tuple[int, ...], mapped: int
) -> None:
    prepared = Prepare("g", "c", shape=(1, 3, 251, 201), mem_types=mem_types)
    look = Observe(3 * 251 * 201)
    saved = (ContextCreate("c"), prepared, GetBinary("c", "b"))
    seen = run(reference, *saved, look, ContextFromBinary("d", "b"), look)
    assert seen[5].counted(ProcessCounts).regions - seen[3].counted(ProcessCounts).regions == mapped


@pytest.mark.parametrize("damage", ["truncated", "trailing", "garbage", "zeros", "flipped", *FLIPPED_BYTES])
def test_a_damaged_binary_is_refused(reference: MemoryTarget, damage: Damage) -> None:
    *_, seen = run(reference, *SAVED, ContextFromBinary("d", "b", damage=damage))
    assert (seen.code, seen.values) == (5005, (0x5555555555555555,))


def test_a_byte_that_is_not_zero_is_changed_in_each_sixteenth() -> None:
    data = bytearray(range(1, 33)) * 8
    data[16 * 3 + 8 : 16 * 4] = bytes(8)
    data[16 * 5 : 16 * 6] = bytes(16)
    changed = [binaries._damaged(bytes(data), damage) for damage in FLIPPED_BYTES]
    places = [[at for at in range(256) if other[at] != data[at]] for other in changed]
    wanted = [16 * number + 8 for number in range(16)]
    wanted[3] = 16 * 3
    assert places == [[at] for at in wanted]
    assert all(other[at] == data[at] ^ 0xFF for other, at in zip(changed, wanted, strict=True))
    assert binaries._damaged(b"", "flipped-0") == b""


def test_what_is_taken_of_changed_binaries_is_freed(reference: MemoryTarget) -> None:
    def judged(code: int, whole: int = 0) -> int:
        steps = (
            *SAVED,
            *(step for name, damage in LOADED for step in (load(name, damage), ContextFree(name))),
        )
        trace = reference.run(MemoryCase(steps))
        seen = [*trace.steps[:3], *(StepSeen(code=each, values=(7,)) for each in (0, whole, 0, code))]
        return off_08(MemoryCase(steps), msgspec.structs.replace(trace, steps=tuple(seen))).count

    assert judged(0) == 0
    assert judged(5002, whole=5002) == 0
    with pytest.raises(Violation, match="answered 0 to the changed binary"):
        judged(5002)


def test_a_changed_binary_may_be_refused_with_any_error(reference: MemoryTarget) -> None:
    steps = (*SAVED, load("d", "flipped-3"))
    trace = reference.run(MemoryCase(steps))
    refused = StepSeen(code=1002, values=(0,))
    trace = msgspec.structs.replace(trace, steps=(*trace.steps[:3], refused))
    assert off_08(MemoryCase(steps), trace).count == 1
    steps = (*SAVED, load("d", "garbage"))
    with pytest.raises(Violation, match="5005"):
        off_08(MemoryCase(steps), trace)


def test_getting_a_binary_checks_its_arguments(reference: MemoryTarget) -> None:
    asked = [GetBinary("c", "x", null=null) for null in ("size", "buffer", "written")]
    seen = run(reference, *SAVED, *asked, GetBinary("c", "x", missing=1))
    assert codes(seen[3:]) == [5000, 5000, 5000, 5007]
    assert seen[-1].counts == WrittenCounts()


def test_a_deserialised_context_is_read_only(reference: MemoryTarget) -> None:
    later = (GetBinary("d", "x"), Prepare("n", "d"), ContextFinalize("d"), ContextProperty("d", (1,)))
    seen = run(reference, *SAVED, ContextFromBinary("d", "b"), *later)
    assert codes(seen[4:]) == [1005, 1005, 1000, 1000]


def test_the_deferred_flow_in_its_five_steps(reference: MemoryTarget) -> None:
    plain = Execute("g", (Binding(seed=1), Binding()))
    seen = run(
        reference,
        *(*DEFERRED, Retrieve("h", "d", "g"), ContextProperty("d", (1, 2, 3))),
        *(Alloc("w", PAGE), Fill("w", 0), Register("d", (external(2),), ("wh",)), ContextFinalize("d")),
        *(*RUN, plain, Read("w"), Deregister(("wh",)), ContextFree("d"), Deregister(("wh",))),
    )
    retrieve, properties = seen[4:6]
    assert retrieve.code == 6023
    assert (properties.code, properties.values) == (0, (PAGE, 0, PAGE))
    register, finalise, _, execute, usual, weights, early, free, late = seen[8:]
    assert codes([register, finalise, execute, early, free, late]) == [0, 0, 0, 8001, 0, 8001]
    assert execute.data == usual.data
    assert weights.data[0].strip(b"\0")


@pytest.mark.parametrize(
    "descriptor",
    [external(2, size=PAGE - 1), external(2, offset=1), external(2, offset=PAGE)],
    ids=["small", "misaligned", "beyond"],
)
def test_external_memory_must_fit(reference: MemoryTarget, descriptor: Descriptor) -> None:
    *_, seen = run(reference, *DEFERRED, Alloc("w", PAGE), Register("d", (descriptor,), ("wh",)))
    assert seen.code == 8000


def test_external_memory_is_taken_between_creation_and_finalising_only(reference: MemoryTarget) -> None:
    register = Register("d", (external(2),), ("wh",))
    seen = run(reference, *DEFERRED, Alloc("w", PAGE), ContextFinalize("d"), register)
    assert seen[-1].code == 1005
    usual = Register("c", (external(2),), ("wh",))
    assert run(reference, *SAVED, Alloc("w", PAGE), usual)[-1].code == 1005


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (external(2), external(2), 8002),
        (external(3), external(3), 0),
        (external(2), external(3), 8002),
        (external(2), Descriptor("w", (4,)), 8002),
    ],
    ids=["weights-twice", "spill-shared", "weights-as-spill", "weights-as-ion"],
)
def test_memory_has_one_use(
    reference: MemoryTarget, first: Descriptor, second: Descriptor, code: int
) -> None:
    other = ContextFromBinary("e", "b", defer=True)
    registered = (Register("d", (first,), ("x",)), Register("e", (second,), ("y",)))
    seen = run(reference, *DEFERRED, other, Alloc("w", PAGE), *registered)
    assert codes(seen[-2:]) == [0, code]


def test_what_the_client_takes_back_the_backend_allocates(reference: MemoryTarget) -> None:
    steps = (Register("d", (external(2),), ("wh",)), Deregister(("wh",)), Fill("w"), ContextFinalize("d"))
    seen = run(reference, *DEFERRED, Alloc("w", PAGE), *steps, *RUN, Read("w"))
    assert codes(seen[5:-1]) == [0, 0, None, 0, 0, 0]
    assert set(seen[-1].data[0]) == {0xEE}


@pytest.mark.parametrize("option", [2, 11, 12])
def test_some_options_exclude_deferring(reference: MemoryTarget, option: int) -> None:
    step = ContextFromBinary("d", "b", defer=True, beside=(option,))
    assert run(reference, *SAVED, step)[-1].code == 5010


def test_not_to_defer_is_the_same_as_to_say_nothing(reference: MemoryTarget) -> None:
    seen = run(
        reference, *SAVED, ContextFromBinary("d", "b", defer=False), *RUN, ContextCreate("e", defer=False)
    )
    assert codes(seen[3:]) == [0, 0, 0, 0]
    assert run(reference, ContextCreate("e", defer=True))[0].code == 1000


def test_a_graph_out_of_a_binary_has_the_ids_that_it_was_written_with() -> None:
    """Though another graph has its name by then: libQnnHtp gives ids that are unique in the process."""
    steps = (
        *(ContextCreate("c0"), Prepare("g0", "c0"), GetBinary("c0", "f0")),
        *(ContextCreate("c1"), Prepare("g0", "c1")),
        *(ContextFromBinary("c2", "f0"), Retrieve("g1", "c2", "g0")),
        Execute("g1", (Binding(), Binding(), Binding())),
    )
    backend = IdsOfAProcess()
    entry = QnnEntry(backend.get_providers, backend)
    assert run_memory_case(MemoryCase(steps), entry, EmulatedRpcmem()).steps[-1].code == 0


@pytest.mark.parametrize(
    ("versions", "taken"), [([(1, 5), (1, 40), (1, 15)], 1), ([(2, 0), (1, 3)], 1), ([(9, 9)], 0)]
)
def test_of_system_providers_that_of_the_own_major_and_no_older_minor_is_taken(
    versions: list[tuple[int, int]], taken: int
) -> None:
    made = [SystemInterface(systemApiVersion=Version(*version, 0)) for version in versions]
    for number, one in enumerate(made):
        one.backendId = number
    listed = (SystemInterfaceP * len(made))(*map(ctypes.pointer, made))

    def give(out: Any, count: Any) -> int:
        where = ctypes.c_void_p(ctypes.addressof(listed))
        ctypes.memmove(out, ctypes.byref(where), ctypes.sizeof(where))
        count._obj.value = len(made)
        return 0

    table = binaries._providers(give, made)
    assert ctypes.addressof(table) == ctypes.addressof(made[taken].implementation)
