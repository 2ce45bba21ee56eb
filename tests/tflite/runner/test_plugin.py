from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import case_mutations
import msgspec
import pytest
from native_plugins import plugin
from reducing import smaller

from pytest_qnn.core.verdict import Examined, Measured, Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.file import check_case
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.plugin import (
    CREATE,
    DESTROY,
    AnyPluginStep,
    Apply,
    Copy,
    Create,
    Cycle,
    Destroy,
    Options,
    OverwriteArguments,
    PluginCase,
)
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.observe.plugin_struct import read_struct, used_tail
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.plugin import EmulatedPlugin
from pytest_qnn.tflite.rules.abi import mutants
from pytest_qnn.tflite.rules.abi.rules import TRIVIAL, spoilt_values
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.plugin import library as plugin_library
from pytest_qnn.tflite.runner.plugin import run as run_plugin
from pytest_qnn.tflite.runner.plugin.run import run_plugin_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.trace import LibrarySeen, PluginSeen, PluginTrace

GOOD: Options = ((b"num_threads", b"2"), (b"profiling", b"True"))


def ran(*steps: AnyPluginStep, spec: str = "reference", runtime: str = "tflite_runtime") -> PluginTrace:
    found = load_runtime(runtime)
    return run_plugin_case(PluginCase(TRIVIAL, steps), [delegate_factory(spec, {}, found)], found)


def judged(rule: str, trace: PluginTrace, *steps: AnyPluginStep) -> Examined:
    return catalogue()[rule].check(PluginCase(TRIVIAL, steps), trace)


def seen(*given: PluginSeen, facts: DelegateFacts | None = None) -> PluginTrace:
    return PluginTrace(library=LibrarySeen((CREATE, DESTROY)), steps=given, facts=facts)


@pytest.mark.parametrize("runtime", ["tflite_runtime", "ai_edge_litert"])
def test_a_delegate_is_made_applied_and_destroyed(runtime: str) -> None:
    trace = ran(Create(options=GOOD), Apply(), Destroy("d0"), Apply(), runtime=runtime)
    create, apply, _, gone = trace.steps
    assert create.made
    assert create.struct is not None
    assert create.struct.functions["Prepare"] == "code"
    assert create.struct.flags == layouts.FLAG_PER_OPERATOR_PROFILING
    assert apply.claimed == (0,)
    assert apply.outputs == trace.cpu
    assert gone.skipped == "there is no d0"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"num_threads", b"0"),
        (b"num_threads", b"65"),
        (b"num_threads", b"2.5"),
        (b"num_threads", b"True"),
        (b"num_threads", b"None"),
        (b"profiling", b"1"),
        (b"threads", b"2"),
        (b"", b""),
        (b"\xff", b"2"),
    ],
)
def test_the_emulated_plugin_refuses_an_option_with_a_reason(key: bytes, value: bytes) -> None:
    (create,) = ran(Create(options=((key, value),))).steps
    assert create.made is False
    assert len(create.reports) == 1
    assert create.struct is None


def test_what_create_changes_in_its_arrays_is_seen() -> None:
    (create,) = ran(Create(options=GOOD), spec="mutant:plugin-cuts-options").steps
    assert create.modified == ("value 0", "value 1")


def test_a_report_after_create_is_late() -> None:
    trace = ran(Create(), Apply(), spec="mutant:plugin-keeps-report")
    assert [(step.reports, step.late) for step in trace.steps] == [((), ()), ((), ("preparing",))]


def test_a_case_is_repeated_with_delegates_of_its_own_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    others: list[dict[int, object]] = []

    class Counting(EmulatedPlugin):
        def make(self, options: dict[str, str], flags: int, report: int) -> int:
            made.append(tuple(range(len(self.live))))
            others.append(self.live)
            return super().make(options, flags, report)

    monkeypatch.setattr(plugin_library, "EmulatedPlugin", Counting)
    steps = (Create(), Create("d1"), Apply(), Destroy("d0"), Cycle(times=1))
    case = PluginCase(TRIVIAL, steps, history=History(repeated=3))
    found = load_runtime()
    trace = run_plugin_case(case, [delegate_factory("reference", {}, found)], found)
    assert len(trace.steps) == len(steps)
    assert made[:8] == [(), (0,)] * 4
    assert len(made) == 8 + 5, "cycles are not repeated"
    assert not others[-1]


def test_spoilt_options_read_as_something_else() -> None:
    trace = ran(
        Create(options=GOOD), Apply(), OverwriteArguments(), Apply(), spec="mutant:plugin-keeps-options"
    )
    assert not trace.steps[1].error
    assert trace.steps[3].error


def test_a_copy_has_delegates_of_its_own() -> None:
    trace = ran(Create(), Copy("d1"), Destroy("d0"), Apply("d1"))
    assert trace.steps[1].made
    assert trace.steps[3].claimed == (0,)


def test_a_cycle_that_leaks_grows_by_what_leaks() -> None:
    # Of 20 cycles each, so that what else a long-lived process frees meanwhile is little beside it.
    (cycle,) = ran(Cycle(times=80), spec="mutant:plugin-leaks").steps
    growth = [after - before for before, after in zip(cycle.in_use, cycle.in_use[1:], strict=False)]
    assert all(grown >= 64 * 1024 for grown in growth)


def test_a_cycle_that_leaks_mappings_grows_by_them() -> None:
    (cycle,) = ran(Cycle(times=80), spec="mutant:plugin-keeps-mapping").steps
    growth = [after - before for before, after in zip(cycle.mapped, cycle.mapped[1:], strict=False)]
    assert all(grown >= 80 * 4096 for grown in growth)
    assert (cycle.arena, cycle.full) == ((), False), "what is written in Python lives in Python's memory"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
def test_a_cycle_looks_at_the_allocator_of_a_library(tmp_path: Path) -> None:
    for name, macros in (("own", {"OWN_ALLOCATOR": "MAP_NORESERVE"}), ("malloc", {})):
        folder = tmp_path / name
        folder.mkdir()
        (cycle,) = ran(Cycle(times=80), spec=str(plugin(folder, LEAKS="1", **macros))).steps
        assert not cycle.full
        if name == "malloc":
            assert not cycle.arena
            assert cycle.in_use[-1] - cycle.in_use[0] >= 3 * 80 * 64
        else:
            assert cycle.arena[-1] - cycle.arena[0] >= 3 * 80 * 256 - 4096


def test_a_cycle_of_slow_delegates_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plugin, "_CYCLE_SECONDS", 1e-9)
    (cycle,) = ran(Cycle(times=200)).steps
    assert cycle.times == 1
    assert len(cycle.in_use) == 4


def test_xnnpack_has_no_plugin_interface() -> None:
    trace = ran(Create(), spec="xnnpack")
    assert trace.steps == ()
    with pytest.raises(Unsupported, match="xnnpack is linked into the runtime"):
        judged("ABI-02", trace)


def test_a_registration_of_an_opaque_delegate_is_seen() -> None:
    trace = ran(Create(), Apply(), spec="mutant:plugin-opaque-plain")
    assert trace.steps[0].struct is not None
    assert trace.steps[0].struct.builder == "valid"
    assert trace.steps[1].operators == (False,)


def test_a_builder_that_is_not_mapped_is_invalid_and_not_read() -> None:
    struct = layouts.Delegate(Prepare=None, opaque_delegate_builder=8)
    found = read_struct(ctypes.addressof(struct))
    assert found.builder == "invalid"
    assert found.functions["Prepare"] == "null"


def test_a_struct_that_is_not_mapped_is_unreadable() -> None:
    assert read_struct(8).builder == "unreadable"


def test_the_tail_of_a_registration_says_what_it_shows() -> None:
    struct = layouts.Registration(registration_external=8, inplace_operator=2)
    assert used_tail(struct) == (("registration_external", 8, "nothing"), ("inplace_operator", 2, "nothing"))
    assert used_tail(layouts.Registration(init=8, version=1)) == ()


def test_the_emulated_functions_keep_exceptions_from_c() -> None:
    def fails() -> ReferenceDelegate:
        raise ZeroDivisionError

    plugin = EmulatedPlugin(fails)
    assert layouts.PluginCreate(plugin.create_address)(None, None, 0, None) is None
    layouts.PluginDestroy(plugin.destroy_address)(4711)
    assert [type(error) for error in plugin.errors] == [ZeroDivisionError, KeyError]


def test_only_numbers_and_truth_values_can_be_spoilt() -> None:
    assert spoilt_values(b"some text") == ()
    assert b"abc" in spoilt_values(b"-2.5")
    assert b"maybe" in spoilt_values(b"True")
    assert b"2" not in spoilt_values(b"2")


def test_a_plugin_that_was_given_options_may_refuse_to_do_without() -> None:
    trace = seen(PluginSeen(made=False, reports=("missing",)))
    with pytest.raises(Violation):
        judged("ABI-02", trace, Create())
    excused = msgspec.structs.replace(trace, facts=DelegateFacts(needs_options=True))
    assert judged("ABI-02", excused, Create()).count == 1


def test_growth_that_stops_is_no_leak() -> None:
    steady = seen(PluginSeen(times=16, in_use=(5000, 9000, 9000, 9000)))
    assert judged("ABI-08", steady, Cycle(times=16)).count == 48
    growing = seen(PluginSeen(times=16, in_use=(5000, 9000, 13000, 17000)))
    with pytest.raises(Violation, match="\\+4000"):
        judged("ABI-08", growing, Cycle(times=16))


def test_pages_of_a_librarys_own_allocator_are_a_leak_where_most_parts_leave_some() -> None:
    def of(*arena: int, times: int = 16, full: bool = False) -> PluginTrace:
        return seen(
            PluginSeen(times=times, in_use=(5000,) * 4, mapped=(1 << 20,) * 4, arena=arena, full=full)
        )

    cycle = Cycle(times=16)
    assert judged("ABI-08", of(0, 4096, 4096, 4096), cycle).count == 48
    assert judged("ABI-08", of(0, 8192, 8192, 8192), cycle).count == 48
    with pytest.raises(Measured, match=r"own allocator.*\+4096, \+0, \+4096"):
        judged("ABI-08", of(0, 4096, 4096, 8192), cycle)
    assert judged("ABI-08", of(0, 4096, 4096, 8192, times=2), cycle).count == 6
    with pytest.raises(Measured):
        judged("ABI-08", of(0, 8192, 16384, 24576, times=2), cycle)
    assert judged("ABI-08", of(0, 0, 0, 0, full=True), cycle).count == 0


def test_without_its_functions_a_library_is_judged_by_its_symbols_alone() -> None:
    trace = PluginTrace(library=LibrarySeen(("_Z29tflite_plugin_create_delegatev",)), steps=(PluginSeen(),))
    with pytest.raises(Unsupported, match="exports no tflite_plugin_create_delegate"):
        judged("ABI-07", trace, Destroy())
    with pytest.raises(Violation, match=r"a name that C\+\+ made"):
        judged("ABI-01", trace, Destroy())


STEPS = (
    Create(options=GOOD),
    Copy("d1", GOOD),
    Apply(),
    OverwriteArguments(),
    Cycle(4, GOOD),
    Destroy("d0"),
    Destroy(),
)


def test_a_case_survives_json_and_messagepack() -> None:
    case = PluginCase(TRIVIAL, STEPS, delegate=1, data_seed=7)
    assert msgspec.json.decode(msgspec.json.encode(case), type=PluginCase) == case
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(case), type=PluginCase) == case
    check_case(case)


@pytest.mark.parametrize(
    "step",
    [
        Create(options=((b"a\0b", b"1"),)),
        Create(options=((b"a", b"1" * 5000),)),
        Create(options=((b"a", b"1"),) * 65),
        Cycle(times=0),
        Cycle(times=100_000),
        Apply("../etc"),
    ],
    ids=str,
)
def test_a_step_that_must_not_be_run_is_refused(step: AnyPluginStep) -> None:
    assert case_mutations.refusal(PluginCase(TRIVIAL, (step,)))


def test_smaller_cases_have_fewer_steps_with_their_options() -> None:
    case = PluginCase(TRIVIAL, STEPS)
    shorter = list(smaller(case))
    assert next(len(one.steps) for one in shorter if one.graph == TRIVIAL) == 4
    assert all(set(one.steps) <= set(STEPS) for one in shorter)
    assert (*STEPS[:2], *STEPS[3:]) in [one.steps for one in shorter]


def test_an_opaque_delegate_with_an_operator_obeys() -> None:
    runtime = load_runtime("ai_edge_litert")
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)(
        runtime.symbol("TfLiteOperatorCreate")
    )
    operator = create(layouts.BUILTIN_DELEGATE, b"opaque", 1, None)  # the interpreter deletes it

    class Operates(ReferenceDelegate):
        def registration(self, _: tuple[int, ...]) -> layouts.Registration:
            return layouts.Registration(
                builtin_code=layouts.BUILTIN_DELEGATE, version=1, registration_external=operator
            )

    class Opaque(mutants.OpaquePlugin):
        def __init__(self, _: object) -> None:
            super().__init__(Operates)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin_library, "EmulatedPlugin", Opaque)
        trace = ran(Create(), Apply(), Destroy("d0"), runtime="ai_edge_litert")
    assert trace.steps[1].operators == (True,)
    assert judged("ABI-11", trace, Create(), Apply(), Destroy("d0")) == Examined(1, "registrations")
    assert judged("ABI-10", trace, Create(), Apply(), Destroy("d0")).count == 1


def test_a_plugin_that_cannot_open_a_file_has_to_say_so_and_to_recover() -> None:
    """seed 004: a delegate looks for the accelerator's libraries when it is made."""
    steps = (Create("bad", descriptors=0), Destroy("bad"), Create(), Destroy("d0"))
    assert judged("ABI-15", ran(*steps), *steps).count == 1
    for spec, sees in (
        ("mutant:plugin-missing-silently", "NULL without one"),
        ("mutant:plugin-missing-for-good", "NULL .*a library is missing"),
    ):
        with pytest.raises(Violation, match=sees):
            judged("ABI-15", ran(*steps, spec=spec), *steps)


def test_descriptors_are_there_again_after_the_call() -> None:
    steps = (Create("bad", descriptors=0), Destroy("bad"))
    assert ran(*steps).steps[0].made
    with open("/dev/null"):
        pass


@pytest.mark.parametrize("options", [(), GOOD[:1], GOOD, ((b"a key that is longer than a register", b""),)])
def test_nothing_is_touched_behind_options_by_who_reads_what_there_is(options: Options) -> None:
    steps = (Create(options=options, guarded=True), Destroy("d0"))
    assert judged("ABI-16", ran(*steps), *steps) == Examined(2 + 2 * len(options), "ends of arrays and texts")


@pytest.mark.parametrize(
    ("spec", "options", "sees"),
    [
        ("plugin-reads-to-null", GOOD, "a read right behind the end of keys, an array of 2"),
        ("plugin-reads-to-null", (), "a read right behind the end of keys, an array of 0"),
        ("plugin-copies-wide-values", GOOD, "a read right behind the end of value 0, '2'"),
        ("plugin-compares-wide-names", GOOD, "a read right behind the end of key 1, 'profiling'"),
    ],
)
def test_an_access_behind_options_is_told_with_its_place(spec: str, options: Options, sees: str) -> None:
    steps = (Create(options=options, guarded=True), Destroy("d0"))
    with pytest.raises(Violation, match=sees):
        judged("ABI-16", ran(*steps, spec=f"mutant:{spec}"), *steps)


def test_an_access_further_behind_options_says_how_far() -> None:
    class ReadsFar(EmulatedPlugin):
        def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
            ctypes.memset(keys + 8 * count + 24, 1, 1)
            return super().read_options(keys, values, count)

    steps = (Create(options=GOOD, guarded=True), Destroy("d0"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin_library, "EmulatedPlugin", ReadsFar)
        trace = ran(*steps)
    with pytest.raises(Violation, match="a write 24 bytes behind the end of keys, an array of 2"):
        judged("ABI-16", trace, *steps)


def test_guarded_options_are_unmapped_with_the_case() -> None:
    before = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(20):
        ran(Create(options=GOOD, guarded=True), OverwriteArguments(), Apply(), Destroy("d0"))
    assert len(Path("/proc/self/maps").read_text().splitlines()) < before + 20
