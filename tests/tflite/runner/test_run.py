from __future__ import annotations

import dataclasses
import importlib.util
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import native
import pytest
from delegate_doubles import Factory

from pytest_qnn.core.drawing import decoder_of
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fault
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate, Values
from pytest_qnn.tflite.runner.delegates import DelegateUnusable, delegate_factory
from pytest_qnn.tflite.runner.run import phase_name, run_delegate_case
from pytest_qnn.tflite.runtime.runtime import Runtime, RuntimeMissing, load_runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.trace import DelegateTrace

# x -> NEG -> ABS -> NEG -> ABS; the graph input and a tensor in the middle are outputs too.
CHAIN = Graph(
    tensors=tuple(Tensor((2, 3)) for _ in range(5)),
    nodes=(
        Node("NEG", (0,), (1,)),
        Node("ABS", (1,), (2,)),
        Node("NEG", (2,), (3,)),
        Node("ABS", (3,), (4,)),
    ),
    inputs=(0,),
    outputs=(4, 0, 2),
)

CONVOLUTIONS = Graph(
    tensors=(
        Tensor((1, 3, 3, 1)),
        Tensor((1, 2, 2, 1), data=b"\0\0\x80?" * 4),
        Tensor((1,), data=bytes(4)),
        *(Tensor((1, 3, 3, 1)) for _ in range(4)),
    ),
    nodes=(
        Node("CONV_2D", (0, 1, 2), (3,)),
        Node("CONV_2D", (3, 1, 2), (4,)),
        Node("CONV_2D", (4, 1, 2), (5,)),
        Node("RELU", (5,), (6,)),
    ),
    inputs=(0,),
    outputs=(6,),
)


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    try:
        return load_runtime(request.param)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))


def run(runtime: Runtime, case: DelegateCase, *specs: str) -> DelegateTrace:
    chain = [delegate_factory(spec, {}, runtime) for spec in specs or ("reference",)]
    return run_delegate_case(case, chain, runtime)


def test_the_canary_holds_on_both_runtimes(runtime: Runtime) -> None:
    assert runtime.observed


def test_both_runtimes_in_one_process_give_the_same_trace() -> None:
    case = DelegateCase(CHAIN, (Application("probe", (0,)), Application(claim=(1, 3))), invokes=2)
    one, other = (run(load_runtime(name), case) for name in ("tflite_runtime", "ai_edge_litert"))
    assert one == other


def test_a_case_without_faults_gives_the_cpus_results(runtime: Runtime) -> None:
    trace = run(runtime, DelegateCase(CHAIN, (Application(claim=(1, 2)),), invokes=2))
    assert trace.outputs == (trace.cpu, trace.cpu)
    assert trace.invoke_errors == ("", "")
    assert trace.inputs == trace.inputs_after
    assert [node.owner for node in trace.plan] == [-1, 0, -1]


def test_three_convolutions_of_a_first_delegate_are_one_kernel_to_the_second(runtime: Runtime) -> None:
    case = DelegateCase(CONVOLUTIONS, (Application("probe", (0, 1, 2)), Application()))
    trace = run(runtime, case)
    seen = [(node.op, node.inputs, node.outputs, node.owner) for node in trace.applied[1].plan_seen]
    assert seen == [(51, (0, 1, 2), (5,), 0), (19, (5,), (6,), -1)]
    assert trace.applied[1].replaces[0].nodes == (3,)


def test_the_target_stands_for_its_whole_chain_in_order(runtime: Runtime) -> None:
    trace = run(
        runtime, DelegateCase(CHAIN, (Application("probe", (0,)), Application())), "xnnpack", "reference"
    )
    assert [(one.name, one.is_target, one.step) for one in trace.applied] == [
        ("probe", False, 0),
        ("xnnpack", True, 1),
        ("reference", True, 1),
    ]
    assert trace.outputs == (trace.cpu,)


def test_every_kernel_is_freed_once_the_interpreter_is_gone(runtime: Runtime) -> None:
    trace = run(runtime, DelegateCase(CHAIN, (Application(claim=(0, 3)), Application(claim=(1,)))))
    frees = [event.kernel for event in trace.events if event.kind == "free"]
    assert sorted(frees) == [kernel.kernel for kernel in trace.kernels] == [0, 1, 2]
    assert trace.events[-1].kind == "free"


@pytest.mark.parametrize("fault", ["prepare", "init", "kernel-prepare"])
def test_a_failing_application_leaves_the_original_plan_and_a_working_interpreter(
    runtime: Runtime, fault: Fault
) -> None:
    case = DelegateCase(CHAIN, (Application(claim=(0,)), Application("probe", (1, 2), fault)))
    trace = run(runtime, case)
    assert [applied.ok for applied in trace.applied] == [True, False]
    assert trace.applied[1].message
    assert trace.applied[1].prepare_status == (1 if fault == "prepare" else trace.applied[1].prepare_status)
    assert trace.plan == trace.applied[1].plan_after == trace.plan_before
    assert trace.outputs == (trace.cpu,)
    counts = Counter((event.kind, event.status) for event in trace.events)
    if fault != "init":
        assert counts["init", 0] == counts["free", 0] == 2


def test_a_kernel_that_fails_to_invoke_is_an_invoke_error_without_outputs(runtime: Runtime) -> None:
    trace = run(runtime, DelegateCase(CHAIN, (Application("probe", (1,), "kernel-invoke"),), invokes=2))
    assert all("failed to invoke" in error for error in trace.invoke_errors)
    assert trace.outputs == ((), ())
    assert [event.status for event in trace.events if event.kind == "invoke"] == [1, 1]


def test_poison_spares_an_output_that_is_a_graph_input(runtime: Runtime) -> None:
    trace = run(runtime, DelegateCase(CHAIN, poison=(0xAA, 0x55), invokes=2))
    assert trace.outputs == (trace.cpu, trace.cpu)


def test_poison_shows_where_nobody_writes(runtime: Runtime) -> None:
    class Lazy(ReferenceDelegate):
        def write_output(self, context: int, index: int, value: Values) -> None:
            pass

    case = DelegateCase(CHAIN, (Application(),), poison=(0xAA,))
    trace = run_delegate_case(case, [Factory("lazy", Lazy)], runtime)
    assert trace.outputs[0][0].data == b"\xaa" * 24
    assert trace.outputs[0][1] == trace.inputs[0]


def test_phases_are_announced_in_order_and_have_names(runtime: Runtime) -> None:
    case = DelegateCase(CHAIN, (Application("probe", (0,)), Application()), invokes=2)
    phases: list[int] = []
    chain = [delegate_factory("reference", {}, runtime)]
    run_delegate_case(case, chain, runtime, phases.append)
    assert [phase_name(case, 1, phase) for phase in phases] == [
        "applying delegate 0",
        "applying delegate 1",
        "allocating tensors",
        "invoke 0",
        "invoke 1",
        "destroying the interpreter",
    ]


def test_without_the_canary_callbacks_alone_are_observed(runtime: Runtime) -> None:
    blind = dataclasses.replace(runtime)
    blind.__dict__["observed"] = False
    trace = run(blind, DelegateCase(CHAIN, (Application(claim=(1, 2)),)))
    assert not trace.observed
    assert trace.plan_before == trace.plan == ()
    assert [node.index for node in trace.applied[0].plan_seen] == [0, 1, 2, 3]
    assert [kernel.nodes for kernel in trace.kernels] == [(1, 2)]
    assert trace.outputs == (trace.cpu,)


def test_a_trace_survives_messagepack(runtime: Runtime) -> None:
    trace = run(runtime, DelegateCase(CHAIN))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=DelegateTrace) == trace


def test_xnnpack_takes_its_number_of_threads_and_nothing_else(runtime: Runtime) -> None:
    factory = delegate_factory("xnnpack", {"num_threads": "2"}, runtime)
    assert run_delegate_case(DelegateCase(CHAIN), [factory], runtime).outputs
    with pytest.raises(DelegateUnusable, match="num_threads only, not depth"):
        delegate_factory("xnnpack", {"depth": "2"}, runtime)
    with pytest.raises(DelegateUnusable, match="must be a number, not 'two'"):
        delegate_factory("xnnpack", {"num_threads": "two"}, runtime)


@pytest.mark.parametrize("name", ["gone.so", "gone" * 80 + ".so"])
def test_a_delegate_library_that_is_missing_is_named(name: str, runtime: Runtime, tmp_path: Path) -> None:
    """Also where no file can have the name, since it is longer than 255 bytes."""
    with pytest.raises(DelegateUnusable, match=r"there is no delegate library .*gone\.so"):
        delegate_factory(str(tmp_path / name), {}, runtime)


def test_a_file_that_is_not_a_library_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("not a library")
    with pytest.raises(DelegateUnusable, match="cannot be loaded as a library"):
        delegate_factory(str(path), {}, runtime)


def test_a_library_without_the_entry_point_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    path = native.build(tmp_path, "int answer(void) { return 42; }", "libplain.so")
    with pytest.raises(DelegateUnusable, match="exports no tflite_plugin_create_delegate"):
        delegate_factory(str(path), {}, runtime)


@pytest.mark.parametrize(
    ("export", "kind"),
    [
        ("void LiteRtAcceleratorImpl(void) {}", "it is a LiteRT accelerator"),
        ("void LiteRtDispatchGetApi(void) {}", "it is a LiteRT dispatch library"),
        ("void LiteRtCreateCompilerPlugin(void) {}", "it is a LiteRT compiler plugin"),
        ("void LiteRtCreateEnvironment(void) {}", "it is the LiteRT runtime itself"),
        ("void QnnInterface_getProviders(void) {}", "it is a QNN backend, for --qnn-backend=PATH"),
        ("extern int absent(void); int LiteRtDispatchGetApi(void) { return absent(); }", "dispatch library"),
    ],
)
def test_a_library_of_another_kind_is_told_what_it_is(
    runtime: Runtime, tmp_path: Path, export: str, kind: str
) -> None:
    path = native.build(tmp_path, export, "libother.so")
    with pytest.raises(DelegateUnusable, match=kind):
        delegate_factory(str(path), {}, runtime)


def test_what_else_the_wheel_of_litert_holds_is_told_by_kind(runtime: Runtime) -> None:
    spec = importlib.util.find_spec("ai_edge_litert")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("ai-edge-litert is not installed")
    folder = Path(spec.submodule_search_locations[0])
    others = {
        "libLiteRtWebGpuAccelerator.so": "accelerator",
        "vendors/qualcomm/compiler/libLiteRtCompilerPlugin_Qualcomm.so": "compiler plugin",
        "vendors/intel_openvino/dispatch/libLiteRtDispatch_IntelOpenvino.so": "dispatch library",
    }
    for name, kind in others.items():
        with pytest.raises(DelegateUnusable, match=f"a LiteRT {kind}"):
            delegate_factory(str(folder / name), {}, runtime)


def test_a_create_that_returns_null_is_told_with_its_reason(runtime: Runtime, tmp_path: Path) -> None:
    # Its destroy crashes on NULL, which the runtime's own loader would pass (RT-11).
    path = native.build(
        tmp_path,
        "void* tflite_plugin_create_delegate(char** k, char** v, int n, void (*report)(const char*)) {"
        '  report("no device"); return 0; }'
        "void tflite_plugin_destroy_delegate(int* d) { *d = 0; }",
        "libnull.so",
    )
    factory = delegate_factory(str(path), {}, runtime)
    with pytest.raises(DelegateUnusable, match="returned NULL: no device"):
        factory.make(Application())


def test_an_unknown_mutant_is_named(runtime: Runtime) -> None:
    with pytest.raises(DelegateUnusable, match="no mutant called 'nobody'"):
        delegate_factory("mutant:nobody", {}, runtime)


def test_the_reference_takes_no_options(runtime: Runtime) -> None:
    with pytest.raises(DelegateUnusable, match="takes no options"):
        delegate_factory("reference", {"key": "value"}, runtime)


def test_default_delegates_are_applied_only_when_asked_for(runtime: Runtime) -> None:
    model = emit(CHAIN)
    names = []
    for wanted in (False, True):
        interpreter = runtime.interpreter(model, default_delegates=wanted)
        interpreter.allocate_tensors()
        names.append({node.name for node in private_plan(context_of(interpreter), {})})
    assert names == [{""}, {"TfLiteXNNPackDelegate"}]


def test_an_unknown_runtime_is_named() -> None:
    with pytest.raises(RuntimeMissing, match="nobody is not a runtime"):
        load_runtime("nobody")


def test_a_missing_symbol_is_a_lookup_error(runtime: Runtime) -> None:
    with pytest.raises(LookupError, match="has no symbol NoSuchFunction"):
        runtime.symbol("NoSuchFunction")


def test_a_chain_is_applied_in_the_order_that_the_case_says() -> None:
    runtime = load_runtime("tflite_runtime")
    chain = [delegate_factory(spec, {}, runtime) for spec in ("xnnpack", "reference", "reference:preview")]
    applied = [
        tuple(
            each.name
            for each in run_delegate_case(
                DelegateCase(CHAIN, (Application(order=number),), invokes=0), chain, runtime
            ).applied
        )
        for number in range(7)
    ]
    names = [factory.name for factory in chain]
    assert applied[:6] == list(itertools.permutations(names))
    assert applied[6] == applied[0]


def test_rules_about_precedence_turn_a_users_chain_and_no_other_rule_does() -> None:
    facts = DelegateFacts(delegates=("a.so", "b.so", "xnnpack"))
    turned = {
        rule_id
        for rule_id, rule in catalogue().items()
        if rule.subject == "delegate" and any(map(_orders, _some(rule.cases, facts)))
    }
    assert turned == {"PREC-01", "PREC-02", "PREC-03", "PREC-04", "PREC-05", "PREC-09"}
    alone = DelegateFacts(delegates=("a.so",))
    assert not any(map(_orders, _some(catalogue()["PREC-03"].cases, alone)))


def _some(cases: Callable[[DelegateFacts], Any], facts: DelegateFacts) -> list[Any]:
    try:
        found = decoder_of(cases(facts))
    except NothingToJudge:
        return []
    return [found.decode(bytes([byte]) * found.size) for byte in range(8)] if found else []


def _orders(case: object) -> bool:
    return isinstance(case, DelegateCase) and any(each.order for each in case.applications)
