from __future__ import annotations

import ctypes
from typing import Any

import msgspec
import pytest
from delegate_doubles import Factory
from kept import keep

from pytest_qnn.core.engine import judge_with_owners
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Look, Refused
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.observe import context_hooks
from pytest_qnn.tflite.observe.immutability import DataSeen
from pytest_qnn.tflite.observe.lifetime_copies import STALE
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import has_node
from pytest_qnn.tflite.reference.previewing import Preview
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import Runtime, RuntimeMissing, load_runtime
from pytest_qnn.tflite.runtime.state import context_of
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.trace import Call, DelegateTrace, Spied

CHAIN = Graph(
    tensors=tuple(Tensor((2, 3)) for _ in range(5)),
    nodes=tuple(Node("NEG", (index,), (index + 1,)) for index in range(4)),
    inputs=(0,),
    outputs=(4, 1),
)
FORBIDDEN = set(context_hooks.FORBIDDEN)
EVERYTHING: tuple[Look, ...] = ("forbidden", "graph", "names", "reports", "lifetimes", "tensors", "order")


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    try:
        return load_runtime(request.param)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))


def run(runtime: Runtime, kind: type[ReferenceDelegate] = ReferenceDelegate, **case: Any) -> DelegateTrace:
    return run_delegate_case(DelegateCase(CHAIN, **case), [Factory("double", kind)], runtime)


def refuse(runtime: Runtime, refused: Refused, call: int = 0, **case: Any) -> DelegateTrace:
    application = Application(refused=refused, refused_call=call)
    return run(runtime, applications=(application,), **case)


@pytest.mark.parametrize("spec", ["reference", "xnnpack"])
def test_looking_at_everything_disturbs_no_delegate(runtime: Runtime, spec: str) -> None:
    case = DelegateCase(CHAIN, look=EVERYTHING, redo=2, invokes=2)
    trace = run_delegate_case(case, [delegate_factory(spec, {}, runtime)], runtime)
    assert trace.outputs == (trace.cpu, trace.cpu)
    assert trace.spied.forbidden == trace.spied.changes == trace.spied.stale == ()
    assert trace.spied.looked_at > 0


def test_nothing_is_looked_at_unless_asked(runtime: Runtime) -> None:
    assert run(runtime).spied == Spied()


def test_a_context_has_its_own_functions_again_afterwards(runtime: Runtime) -> None:
    seen: list[dict[str, int]] = []

    class Observer(ReferenceDelegate):
        def free(self, kernel: Kernel) -> None:  # noqa: ARG002 - the signature is the reference's
            seen.append(
                {name: peek.pointer(self.context + slot) for name, slot in context_hooks._SLOTS.items()}
            )

        def prepare(self, context: int) -> int:
            self.context = context
            return super().prepare(context)

    run(runtime, Observer, look=("forbidden", "lifetimes", "reports", "previews"))
    run(runtime, Observer)
    assert seen[0] == seen[1], "something of ours was left in the first interpreter"
    assert not context_hooks._scopes


def test_each_forbidden_function_is_seen_with_its_caller_and_answers_with_an_error(runtime: Runtime) -> None:
    answers: list[int] = []

    class Caller(ReferenceDelegate):
        def kernel_invoke(self, context: int, kernel: Kernel) -> int:
            for name in context_hooks.FORBIDDEN:
                function = getattr(layouts.Context.from_address(context), name)
                answers.append(layouts.AnyOfContext(function)(context))
            return super().kernel_invoke(context, kernel)

    trace = run(runtime, Caller, look=("forbidden",))
    assert {call.function for call in trace.spied.forbidden} == FORBIDDEN
    assert {(call.kernel, call.during) for call in trace.spied.forbidden} == {(0, "invoke")}
    assert set(answers) == {layouts.ERROR}


def test_functions_that_prepare_may_call_are_not_taken_for_forbidden(runtime: Runtime) -> None:
    class Caller(ReferenceDelegate):
        def kernel_prepare(self, context: int, kernel: Kernel) -> int:
            has_node(context, 0)
            return super().kernel_prepare(context, kernel)

    trace = run(runtime, Caller, look=("forbidden",))
    assert {(call.function, call.during) for call in trace.spied.forbidden} == {
        ("GetNodeAndRegistration", "prepare")
    }


@pytest.mark.parametrize(
    ("refused", "function"),
    [
        ("plan", "GetExecutionPlan"),
        ("node", "GetNodeAndRegistration"),
        ("replace", "ReplaceNodeSubsetsWithDelegateKernels"),
    ],
)
def test_a_refused_call_fails_the_application_and_is_recorded(
    runtime: Runtime, refused: Refused, function: str
) -> None:
    trace = refuse(runtime, refused)
    assert trace.spied.refused == (Call(0, -1, "Prepare", function),)
    assert not trace.applied[0].ok
    assert trace.plan == trace.plan_before
    assert trace.outputs == (trace.cpu,)


def test_only_the_numbered_call_is_refused(runtime: Runtime) -> None:
    assert len(refuse(runtime, "node", 3).spied.refused) == 1
    assert refuse(runtime, "node", 40).spied.refused == ()


def test_a_node_can_be_refused_to_one_init_only(runtime: Runtime) -> None:
    application = Application(claim=(0, 2), refused="node-in-init", refused_call=1)
    trace = run(runtime, applications=(application,))
    assert trace.spied.refused == (Call(0, -1, "init", "GetNodeAndRegistration"),)
    assert [event.status for event in trace.events if event.kind == "init"] == [0, 1]
    assert not trace.applied[0].ok


def test_texts_given_to_report_error_are_kept_and_still_reach_the_exception(runtime: Runtime) -> None:
    trace = refuse(runtime, "plan", look=("reports",))
    assert [report.text for report in trace.spied.reports] == [
        "reference delegate: Prepare failed: GetExecutionPlan failed"
    ]
    assert "GetExecutionPlan failed" in trace.applied[0].message


def test_a_report_with_numbers_in_its_format_is_kept_as_its_format(runtime: Runtime) -> None:
    class Numbers(ReferenceDelegate):
        def explain(self, context: int, text: str) -> None:  # noqa: ARG002 - the signature is the reference's
            report = layouts.Context.from_address(context).ReportError
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)(report)
            call(context, b"node %d", 7)

    application = Application(refused="plan")
    trace = run(runtime, Numbers, applications=(application,), look=("reports",))
    assert [report.text for report in trace.spied.reports] == ["node %d"]


def test_a_plan_is_taken_back_by_the_next_call_of_anybody(runtime: Runtime) -> None:
    entries: list[list[int]] = []

    class Keeper(ReferenceDelegate):
        def prepare(self, context: int) -> int:
            answer = ctypes.c_void_p()
            call = layouts.GetExecutionPlan(layouts.Context.from_address(context).GetExecutionPlan)
            call(context, ctypes.addressof(answer))
            entries.append(list(peek.integers(answer.value or 0)))
            call(context, ctypes.addressof(ctypes.c_void_p()))
            entries.append(list(peek.integers(answer.value or 0)))
            return layouts.OK

    trace = run(runtime, Keeper, look=("lifetimes",))
    assert entries == [[0, 1, 2, 3], [STALE] * 4]
    assert (trace.spied.plans, trace.spied.plans_invalidated) == (2, 1)


def test_a_claim_from_an_old_plan_never_reaches_the_runtime(runtime: Runtime) -> None:
    class Claims(ReferenceDelegate):
        def choose(self, _: object) -> tuple[int, ...]:
            return (STALE,)

    trace = run(runtime, Claims, look=("lifetimes",))
    assert [call.function for call in trace.spied.stale] == ["ReplaceNodeSubsetsWithDelegateKernels"]
    assert not trace.applied[0].ok


def test_nodes_say_nothing_any_more_once_prepare_is_over(runtime: Runtime) -> None:
    class Keeper(ReferenceDelegate):
        def prepare(self, context: int) -> int:
            found = (ctypes.c_void_p * 2)()
            first = ctypes.addressof(found)
            table = layouts.Context.from_address(context)
            layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)(context, 1, first, first + 8)
            self.node = peek.pointer(first)
            self.seen = [peek.integers(peek.pointer(self.node))]
            return super().prepare(context)

        def kernel_invoke(self, context: int, kernel: Kernel) -> int:
            self.seen.append(peek.integers(peek.pointer(self.node)))
            return super().kernel_invoke(context, kernel)

    factory = Factory("double", Keeper)
    trace = run_delegate_case(DelegateCase(CHAIN, look=("lifetimes",)), [factory], runtime)
    (keeper,) = factory.made
    assert isinstance(keeper, Keeper)
    assert keeper.seen == [(1,), ()]
    assert trace.outputs == (trace.cpu,)


def test_previews_are_lent_too(runtime: Runtime) -> None:
    class Previewer(Preview):
        def __init__(self, claim: tuple[int, ...] | None = None) -> None:
            super().__init__(claim=claim)

    trace = run(runtime, Previewer, look=("lifetimes",))
    assert trace.spied.previews_invalidated == 1
    assert trace.outputs == (trace.cpu,)


def test_a_preview_is_asked_for_unless_the_delegate_has_one(runtime: Runtime) -> None:
    ((application, status, partitions, kernels),) = map(
        msgspec.structs.astuple, run(runtime, look=("previews",)).spied.previews
    )
    assert (application, status, kernels) == (0, 0, 0)
    assert partitions == (((0, 1, 2, 3), (0,), (1, 4)),)
    assert run(runtime, Preview, look=("previews",)).spied.previews == ()


def test_a_change_of_the_graph_in_prepare_is_seen_from_what_to_what(runtime: Runtime) -> None:
    class Rewires(ReferenceDelegate):
        def prepare(self, context: int) -> int:
            status = super().prepare(context)
            found = (ctypes.c_void_p * 2)()
            first = ctypes.addressof(found)
            table = layouts.Context.from_address(context)
            layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)(context, 1, first, first + 8)
            peek.array(peek.pointer(peek.pointer(first)) + 4, "int32", (1,))[0] = 0
            return status

    (change,) = run(runtime, Rewires, look=("graph",)).spied.changes
    assert (change.what, change.index, change.before, change.after) == ("inputs", 1, "[1]", "[0]")


def test_data_written_in_a_kernels_prepare_is_seen(runtime: Runtime) -> None:
    class Clears(ReferenceDelegate):
        def kernel_prepare(self, context: int, kernel: Kernel) -> int:
            values = self.read_input(context, kernel.outputs[0])
            if values is not None:
                values[...] = 1e6
            return super().kernel_prepare(context, kernel)

    (change, *_) = run(runtime, Clears, look=("data",), late=True).spied.changes
    assert (change.what, change.during, change.kernel) == ("data", "prepare", 0)
    assert run(runtime, look=("data",), late=True).spied.changes == ()


def test_a_name_that_changes_afterwards_is_seen(runtime: Runtime) -> None:
    class Renames(ReferenceDelegate):
        def prepare(self, context: int) -> int:
            status = super().prepare(context)
            self._name.value = b"other"
            return status

    ((_, text, later),) = map(msgspec.structs.astuple, run(runtime, Renames, look=("names",)).spied.names)
    assert (text, later) == ("reference", "other")


def test_a_text_is_read_wherever_its_address_points() -> None:
    buffer = ctypes.create_string_buffer(b"a name")
    assert context_hooks.text_at(ctypes.addressof(buffer)) == "a name"
    assert context_hooks.text_at(0) == context_hooks.text_at(8) == context_hooks.text_at((1 << 64) - 1) == ""


def test_tensors_that_a_kernel_adds_are_counted(runtime: Runtime) -> None:
    class Adds(ReferenceDelegate):
        def kernel_prepare(self, context: int, kernel: Kernel) -> int:
            add = layouts.AddTensors(layouts.Context.from_address(context).AddTensors)
            add(context, 3, ctypes.addressof(ctypes.c_int()))
            return super().kernel_prepare(context, kernel)

    added = run(runtime, Adds, look=("tensors",)).spied.added
    assert [(one.during, one.count) for one in added] == [("prepare", 3), ("invoke", 0)]


def test_a_redo_applies_a_static_delegate_again_and_leaves_shapes_and_results(runtime: Runtime) -> None:
    trace = run(
        runtime, redo=2, look=("order",), applications=(Application(claim=(0,)), Application("probe"))
    )
    assert [event.application for event in trace.events if event.kind == "Prepare"] == [0, 1] * 3
    assert trace.spied.order == ((0, 1),) * 4
    assert trace.outputs == (trace.cpu,)


def test_a_late_application_finds_memory_and_gives_the_same_results(runtime: Runtime) -> None:
    pointers: list[int] = []

    class Looks(ReferenceDelegate):
        def kernel_prepare(self, context: int, kernel: Kernel) -> int:
            pointers.append(DataSeen(context, kernel.inputs).size)
            return super().kernel_prepare(context, kernel)

    assert run(runtime, Looks).outputs == run(runtime, Looks, late=True).outputs
    assert pointers == [0, 1]


def test_a_steerable_target_fails_its_second_invoke_when_told_to(runtime: Runtime) -> None:
    case = DelegateCase(CHAIN, (Application(fault="second-invoke"),), invokes=3)
    trace = run_delegate_case(case, [delegate_factory("reference", {}, runtime)], runtime)
    assert [bool(error) for error in trace.invoke_errors] == [False, True, False]
    assert trace.outputs == (trace.cpu, (), trace.cpu)


def test_cases_of_old_files_still_read() -> None:
    old = msgspec.json.encode(DelegateCase(CHAIN))
    assert b"look" not in old
    assert b"refused" not in old
    assert msgspec.json.decode(old, type=DelegateCase) == DelegateCase(CHAIN)


def test_what_was_spied_survives_messagepack(runtime: Runtime) -> None:
    trace = run(runtime, look=EVERYTHING)
    assert trace.spied != Spied()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=DelegateTrace) == trace


def test_an_interpreter_that_was_not_looked_at_keeps_its_kernel_functions(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    context = context_of(interpreter)
    before = {name: peek.pointer(context + slot) for name, slot in context_hooks._SLOTS.items()}
    run(runtime, look=EVERYTHING)
    assert {name: peek.pointer(context + slot) for name, slot in context_hooks._SLOTS.items()} == before


def test_data_inside_an_earlier_delegate_s_kernel_is_not_looked_at() -> None:
    """Such tensors point into an arena that is freed: LIFE-10 took what malloc put there for a change."""
    rules = catalogue()
    chain = [("xnnpack", {}), ("reference", {})]
    target = keep(open_delegate_target(chain, "ai_edge_litert", "off", 10.0))
    verdict, _ = judge_with_owners(rules["LIFE-10"], target, profile("default"), 7, lambda rule: rules[rule])
    assert verdict.outcome is Outcome.PASS, verdict
