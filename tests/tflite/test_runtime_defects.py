"""The runtimes' own defects (docs/reference/runtimes.md): each is shown, and is no fault of a delegate.

Names say which: ``test_rt_01_...``. Those that end the process are shown in a child.
"""

from __future__ import annotations

import ctypes
import inspect
import signal
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case_mutations
import msgspec
import native
import numpy as np
import pytest
from delegate_doubles import Factory
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec.structs import replace
from reducing import Reducing

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge, Rule
from pytest_qnn.core.search import Search
from pytest_qnn.core.verdict import Outcome, Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    Read,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.domain.table import Cell, made
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.runner import run as runner
from pytest_qnn.tflite.runner.delegates import DelegateUnusable, delegate_factory
from pytest_qnn.tflite.runner.domain import run_domain_case
from pytest_qnn.tflite.runtime.runtime import Runtime, load_runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan, subgraph_of
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import DelegateTrace

PLACE = "_ZN6tflite4impl11Interpreter28SetCustomAllocationForTensorEiRK22TfLiteCustomAllocationl"
SET_HANDLE = "_ZN6tflite4impl11Interpreter15SetBufferHandleEiiP14TfLiteDelegate"
INVOKABLE = (1, 2)
CHAIN = Graph(
    tensors=tuple(Tensor((2, 3)) for _ in range(5)),
    nodes=tuple(Node("ABS" if k % 2 else "RELU", (k,), (k + 1,)) for k in range(4)),
    inputs=(0,),
    outputs=(4,),
)


@pytest.fixture(scope="module", params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return load_runtime(request.param)


@pytest.fixture(scope="module")
def reference(runtime: Runtime) -> Iterator[DelegateTarget]:
    target = open_delegate_target([("reference", {})], runtime.name, "off", 10.0)
    yield target
    target.close()


def modify(interpreter: Any, delegate: ReferenceDelegate) -> bool:
    """Whether the runtime takes the delegate."""
    try:
        interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    except RuntimeError:
        return False
    return True


def plan(interpreter: Any) -> list[int]:
    return [node.index for node in private_plan(context_of(interpreter), {})]


def delegate_rules(kind: type[Any] = DelegateCase) -> list[Rule[Any, Any, Any]]:
    """The rules that judge a delegate, and not the runtime, by cases of this kind."""
    return [
        rule
        for rule in catalogue().values()
        if not rule.self_check and typing.get_type_hints(rule.check).get("case") is kind
    ]


def accusations(case: DelegateCase, target: Any) -> list[str]:
    """The rules that find a violation in this very case, with what they say."""
    trace = target.run(case)
    assert trace.death is None
    return [f"{rule.id}: {said}" for rule in delegate_rules() if (said := accusation(rule, case, trace))]


def accusation(rule: Rule[Any, Any, Any], case: DelegateCase, trace: DelegateTrace) -> str:
    try:
        rule.check(case, trace)
    except Violation as violation:
        return str(violation)
    except Unsupported:
        return ""
    return ""


class Double(Reducing):
    """A target made of any factories."""

    def __init__(self, runtime: Runtime, *chain: Any) -> None:
        self._runtime = runtime
        self._chain = chain

    def run(self, case: DelegateCase) -> DelegateTrace:
        return runner.run_delegate_case(case, self._chain, self._runtime)


# RT-01: the tensors of a failed delegate stay marked as its own.


def test_rt_01_a_delegate_is_refused_after_another_one_failed(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    failed, good = ReferenceDelegate(fault="prepare"), ReferenceDelegate()
    assert not modify(interpreter, failed)
    assert not modify(interpreter, good)
    assert modify(runtime.interpreter(emit(CHAIN)), ReferenceDelegate())


def test_rt_01_the_refusal_is_not_the_delegates_violation(reference: DelegateTarget) -> None:
    case = DelegateCase(CHAIN, (Application("probe", None, "kernel-prepare"), Application()))
    assert not reference.run(case).applied[1].ok
    assert accusations(case, reference) == []


def test_rt_01_no_rule_applies_anything_after_a_probe_that_fails(reference: DelegateTarget) -> None:
    for rule in delegate_rules():
        for case in drawn(rule.cases, reference):
            faults = {application.fault for application in case.applications[:-1]}
            assert faults <= {"", "second-invoke"}, rule.id  # this leaves Prepare alone


def drawn(factory: Any, target: DelegateTarget) -> list[Any]:
    found: list[Any] = []
    try:
        strategy = factory(target.facts)
    except NothingToJudge:
        return found

    @seed(1)
    @settings(
        max_examples=10, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def draw(case: Any) -> None:
        found.append(case)

    draw()
    return found


# RT-02: kernels that a later delegate swallowed are never freed once the graph is undone.


class Swallows(ReferenceDelegate):
    """Claims the kernels of others too, and fails if told so."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        return super().choose(plan) if self.fault else plan.plan

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        known = tuple(index for index in nodes if index in self.plan.nodes)
        return super().init(context, known, inputs, outputs)


class Probes:
    """The suite's probe, replaced by one that swallows kernels."""

    name = "probe"

    def make(self, application: Application) -> ReferenceDelegate:
        return Swallows(claim=application.claim, fault=application.fault)


SWALLOWED = DelegateCase(
    CHAIN, (Application(claim=(1, 2)), Application("probe"), Application("probe", (), "prepare"))
)


def test_rt_02_a_swallowed_kernel_is_never_freed(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PROBE", Probes())
    trace = Double(runtime, Factory("mine", ReferenceDelegate)).run(SWALLOWED)
    mine = next(kernel.kernel for kernel in trace.kernels if kernel.application == 0)
    assert not any(event.kind == "free" and event.kernel == mine for event in trace.events)


def test_rt_02_the_forgotten_kernel_is_not_the_delegates_leak(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PROBE", Probes())
    assert accusations(SWALLOWED, Double(runtime, Factory("mine", ReferenceDelegate))) == []


# RT-03 and RT-08: custom buffers that are too small.


def place(runtime: Runtime, interpreter: Any, tensor: int, buffer: np.ndarray[Any, Any], size: int) -> int:
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
    allocation = (ctypes.c_uint64 * 2)(buffer.ctypes.data, size)
    handle = interpreter._native_handle()
    status: int = kind(runtime.symbol(PLACE))(handle, tensor, ctypes.addressof(allocation), 0)
    return status


def aligned(size: int) -> np.ndarray[Any, Any]:
    whole = np.full(size + 64, 0xEE, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + size]


def test_rt_03_a_dynamic_delegate_is_let_write_beyond_a_small_output_buffer(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    delegate = ReferenceDelegate(flags=layouts.FLAG_ALLOW_DYNAMIC_TENSORS)
    assert modify(interpreter, delegate)
    buffer = aligned(64)
    assert place(runtime, interpreter, 4, buffer, 4) == 0
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.ones((2, 3), np.float32))
    interpreter.invoke()
    assert (buffer[4:24] != 0xEE).any()
    with pytest.raises(RuntimeError, match="too small"):
        interpreter.allocate_tensors()


def test_rt_08_a_failed_allocate_leaves_the_interpreter_invokable(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    large, small = aligned(64), aligned(64)
    assert place(runtime, interpreter, 4, large, 64) == 0
    interpreter.allocate_tensors()
    assert place(runtime, interpreter, 4, small, 4) == 0
    with pytest.raises(RuntimeError, match="too small"):
        interpreter.allocate_tensors()
    interpreter.invoke()
    assert (small[4:24] != 0xEE).any()


def test_rt_03_no_rule_lets_a_delegate_write_to_a_buffer_that_is_too_small(reference: DelegateTarget) -> None:
    looked_at = 0
    for rule in delegate_rules(ScriptCase):
        for case in drawn(rule.cases, reference):
            sizes: dict[tuple[str, int], int] = {}
            for step in flat(case.steps):
                if isinstance(step, Place):
                    sizes[step.interpreter, step.tensor] = step.extra
                    looked_at += 1
                elif isinstance(step, Invoke):
                    small = [tensor for (name, tensor), extra in sizes.items() if extra < 0]
                    assert not small, rule.id
    assert looked_at


def test_rt_08_nothing_is_invoked_after_a_failed_allocate(reference: DelegateTarget) -> None:
    steps = (
        Open("i0"),
        Place("i0", 4, "large", guard="none"),
        Allocate("i0"),
        SetInputs("i0"),
        Invoke("i0"),
        Place("i0", 4, "small", guard="none", extra=-20),
        Allocate("i0"),
        Invoke("i0"),
    )
    trace = reference.run(ScriptCase((CHAIN,), steps))
    assert "too small" in trace.steps[6].message
    assert [bool(trace.steps[at].skipped) for at in (4, 7)] == [False, True]


# RT-04: what CopyFromBufferHandle answers for an output is not passed on.


class KeepsResults(ReferenceDelegate):
    """Leaves results in its own memory, marked stale; ``status`` is what copying them back answers."""

    status = layouts.OK

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kept: dict[int, np.ndarray[Any, Any]] = {}
        self._copy = layouts.CopyBufferHandle(self.copy_from)
        self._struct.CopyFromBufferHandle = ctypes.cast(self._copy, ctypes.c_void_p).value

    def write_output(self, context: int, index: int, value: np.ndarray[Any, Any]) -> None:
        tensor = view.tensor(context, index)
        self.kept[index] = np.array(value)
        address = layouts.Context.from_address(context).tensors + 112 * index
        stored = layouts.Tensor.from_address(address)
        stored.buffer_handle, stored.data_is_stale = index, True
        del tensor

    def read_input(self, context: int, index: int) -> np.ndarray[Any, Any] | None:
        return self.kept[index] if index in self.kept else super().read_input(context, index)

    def copy_from(self, _context: int, _delegate: int, handle: int, address: int) -> int:
        tensor = layouts.Tensor.from_address(address)
        if self.status == layouts.OK:
            peek.array(tensor.data, np.float32, peek.integers(tensor.dims))[...] = self.kept[handle]
        return self.status


class CannotCopy(KeepsResults):
    status = layouts.ERROR


def test_rt_04_a_failed_copy_of_an_output_goes_unnoticed(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    delegate = CannotCopy()
    assert modify(interpreter, delegate)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.ones((2, 3), np.float32))
    interpreter.tensor(4)().fill(-7)
    interpreter.invoke()
    assert (interpreter.get_tensor(4) == -7).all()


def test_rt_04_stale_bytes_are_found_although_invoke_succeeded(runtime: Runtime) -> None:
    case = DelegateCase(CHAIN, invokes=2, poison=(0xEE, 0x99))
    found = accusations(case, Double(runtime, Factory("mine", CannotCopy)))
    assert any(text.startswith("DET-04") for text in found)


def test_rt_04_results_in_device_memory_are_no_violation(runtime: Runtime) -> None:
    case = DelegateCase(CHAIN, (Application(claim=(0, 2, 3)),), invokes=2, poison=(0xEE, 0x99))
    assert accusations(case, Double(runtime, Factory("mine", KeepsResults))) == []


# RT-05: control edges are positions in the original plan, and used on a plan that has shrunk.

EDGES = msgspec.structs.replace(
    Graph(
        tensors=tuple(Tensor((2,)) for _ in range(7)),
        nodes=tuple(Node("RELU", (k,), (k + 1,)) for k in range(6)),
        inputs=(0,),
        outputs=(6,),
    ),
    control_edges=((0, 1), (4, 5)),
)


_SECOND_DELEGATE = """
import sys
import msgspec
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.runtime.runtime import load_runtime

graph = msgspec.json.decode(sys.stdin.read(), type=Graph)
interpreter = load_runtime(sys.argv[1]).interpreter(emit(graph))
for claim in ((0, 1, 2, 3), (5,)):
    interpreter._interpreter.ModifyGraphWithDelegate(ReferenceDelegate(claim=claim).address)
    print("taken", flush=True)
"""


def test_rt_05_a_second_delegate_meets_control_edges_of_another_plan(runtime: Runtime) -> None:
    """In a child: 2.14 takes it, and reads and writes beyond its own tables."""
    command = [sys.executable, "-c", _SECOND_DELEGATE, runtime.name]
    graph = msgspec.json.encode(EDGES)
    taken = subprocess.run(command, input=graph, capture_output=True, timeout=60, check=False).stdout.split()
    assert len(taken) == (2 if runtime.name == "tflite_runtime" else 1)


def test_rt_05_a_single_delegate_is_taken(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(EDGES))
    delegate = ReferenceDelegate(claim=(5,))
    assert modify(interpreter, delegate)


def test_rt_05_the_refusal_of_2_3_is_not_the_delegates_violation() -> None:
    target = open_delegate_target([("reference", {})], "ai_edge_litert", "off", 10.0)
    case = DelegateCase(EDGES, (Application("probe", (0, 1, 2, 3)), Application(claim=(5,))))
    assert not target.run(case).applied[1].ok
    assert accusations(case, target) == []
    target.close()


def test_rt_05_no_rule_applies_a_second_delegate_to_a_graph_with_control_edges(
    reference: DelegateTarget,
) -> None:
    for rule in delegate_rules():
        for case in drawn(rule.cases, reference):
            assert len(case.applications) == 1 or not case.graph.control_edges, rule.id


# RT-06: tflite-runtime 2.14 does not check what it is told to replace.


_CLAIMS_TOO_MUCH = """
import os
import sys
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.runtime.runtime import load_runtime

class ClaimsTooMuch(ReferenceDelegate):
    def choose(self, plan):
        return (0, 40)

graph = Graph((Tensor((2,)), Tensor((2,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
interpreter = load_runtime(sys.argv[1]).interpreter(emit(graph))
delegate = ClaimsTooMuch()
try:
    interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    print("taken", flush=True)
except RuntimeError:
    print("refused", flush=True)
os._exit(0)
"""


def test_rt_06_a_node_that_does_not_exist_is_accepted_on_2_14_only(runtime: Runtime) -> None:
    """In a child: 2.14 writes beyond its own tables."""
    command = [sys.executable, "-c", _CLAIMS_TOO_MUCH, runtime.name]
    said = subprocess.run(command, capture_output=True, timeout=60, check=False).stdout
    assert said.split() == [b"taken" if runtime.name == "tflite_runtime" else b"refused"]


class ClaimsTheFirstNode(ReferenceDelegate):
    """Node 0, whether it is still in the plan or not: both runtimes accept that."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*super().choose(plan), 0)))


TAKEN = DelegateCase(CHAIN, (Application("probe", (0, 1)), Application()))


def test_rt_06_the_claim_is_judged_although_the_runtime_accepts_it(runtime: Runtime) -> None:
    assert all(
        applied.ok for applied in Double(runtime, Factory("mine", ClaimsTheFirstNode)).run(TAKEN).applied
    )
    found = accusations(TAKEN, Double(runtime, Factory("mine", ClaimsTheFirstNode)))
    assert any(text.startswith("PART-01") and "node 0" in text for text in found)


def test_rt_06_a_plan_that_an_earlier_delegate_shrank_is_no_violation(reference: DelegateTarget) -> None:
    case = DelegateCase(CHAIN, (Application("probe", (0, 1)), Application(claim=(2, 3))))
    assert accusations(case, reference) == []


# RT-07: 2.3 and kTfLiteDelegateFlagsHintFullyDelegatedToSingleDelegate.


class PromisesAll(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"flags": layouts.FLAG_HINT_FULLY_DELEGATED})


def test_rt_07_a_broken_promise_leaves_a_changed_plan_on_2_3(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    before = plan(interpreter)
    delegate = PromisesAll(claim=(0, 1))
    assert modify(interpreter, delegate) is (runtime.name == "tflite_runtime")
    assert plan(interpreter) != before


def test_rt_07_probes_never_make_the_promise() -> None:
    case = DelegateCase(
        CHAIN, (Application("probe", (0,), flags=layouts.FLAG_HINT_FULLY_DELEGATED), Application())
    )
    assert case_mutations.refusal(case) == "Expected `int` <= 7 - at `$.applications[0].flags`"


def test_rt_07_a_kept_promise_is_no_violation(runtime: Runtime) -> None:
    target = Double(runtime, Factory("mine", PromisesAll))
    case = DelegateCase(CHAIN, invokes=2)
    assert bool(target.run(case).unallocated) is (runtime.name == "ai_edge_litert")
    assert accusations(case, target) == []


# RT-09: the same handle again.


def test_rt_09_setting_a_handle_again_frees_it_first(runtime: Runtime) -> None:
    if not runtime.has_symbol(SET_HANDLE):
        pytest.skip(f"{runtime.name} has no SetBufferHandle that could be called")
    freed: list[int] = []
    delegate = ReferenceDelegate()

    def free(_context: int, _delegate: int, handle: int) -> None:
        freed.append(peek.integer(handle))

    callback = layouts.FreeBufferHandle(free)
    delegate._struct.FreeBufferHandle = ctypes.cast(callback, ctypes.c_void_p).value
    interpreter = runtime.interpreter(emit(CHAIN))
    assert modify(interpreter, delegate)
    interpreter.allocate_tensors()
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    set_handle = kind(runtime.symbol(SET_HANDLE))
    for _ in range(2):
        assert set_handle(interpreter._native_handle(), 4, 6, delegate.address) == 0
    assert freed == [6]
    set_handle(interpreter._native_handle(), 4, -1, delegate.address)


def test_rt_09_the_suite_never_sets_a_handle_itself() -> None:
    package = Path(runner.__file__).parents[1]
    users = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if SET_HANDLE in path.read_text()
    ]
    assert users == []


# RT-10: a delegate without Prepare, and a handle without a delegate, end the process.

_NULL_PREPARE = """
import sys
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.runtime.runtime import load_runtime

graph = Graph((Tensor((2,)), Tensor((2,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
interpreter = load_runtime(sys.argv[1]).interpreter(emit(graph))
delegate = ReferenceDelegate()
delegate._struct.Prepare = None
interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
"""
_HANDLE_WITHOUT_DELEGATE = """
import sys
from pytest_qnn.tflite.abi import layouts as tflite
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.runtime.state import context_of

graph = Graph((Tensor((2,)), Tensor((2,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
interpreter = load_runtime(sys.argv[1]).interpreter(emit(graph))
interpreter.allocate_tensors()
tensors = tflite.Context.from_address(context_of(interpreter)).tensors
tflite.Tensor.from_address(tensors + 112).buffer_handle = 3
del interpreter
"""
_NO_PREPARE = """
#include <stdlib.h>
#include "tflite_abi.h"
Delegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count, void* report) {
  return calloc(1, sizeof(Delegate));
}
void tflite_plugin_destroy_delegate(Delegate* delegate) { free(delegate); }
"""


@pytest.mark.parametrize("program", [_NULL_PREPARE, _HANDLE_WITHOUT_DELEGATE], ids=["prepare", "handle"])
def test_rt_10_the_process_ends(runtime: Runtime, program: str) -> None:
    command = [sys.executable, "-c", program, runtime.name]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGSEGV


def test_rt_10_it_is_a_verdict_and_the_suite_lives(runtime: Runtime, tmp_path: Path) -> None:
    library = native.build(tmp_path, _NO_PREPARE)
    target = open_delegate_target([(str(library), {})], runtime.name, "auto", 10.0)
    try:
        verdict = judge(catalogue()["PART-04"], target, PROFILES["quick"], seed=1)
    finally:
        target.close()
    assert verdict.outcome is Outcome.CRASH
    assert verdict.finding is not None
    assert "SIGSEGV" in verdict.finding.seen


# RT-11: Python destroys a delegate that was never created.

_REFUSES = """
#include <stdio.h>
#include <stdlib.h>
#include "tflite_abi.h"
Delegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count, void* report) { return 0; }
void tflite_plugin_destroy_delegate(Delegate* delegate) {
  FILE* file = fopen(WITNESS, "a");
  fprintf(file, delegate ? "one" : "none");
  fclose(file);
}
"""


def refusing_plugin(folder: Path) -> tuple[Path, Path]:
    witness = folder / "witness"
    return native.build(folder, _REFUSES, WITNESS=f'"{witness}"'), witness


def test_rt_11_destroy_is_called_for_what_was_never_created(runtime: Runtime, tmp_path: Path) -> None:
    library, witness = refusing_plugin(tmp_path)
    with pytest.raises(ValueError):  # noqa: PT011 - the text is empty, or that of an earlier error
        runtime.module.Delegate(str(library))
    assert witness.read_text() == "none"


def test_rt_11_the_suite_does_not_call_it(runtime: Runtime, tmp_path: Path) -> None:
    library, witness = refusing_plugin(tmp_path)
    with pytest.raises(DelegateUnusable, match="NULL"):
        delegate_factory(str(library), {}, runtime).make(Application())
    assert not witness.exists()


# RT-12: num_options is an int to Python and a size_t to the plugin.


def test_rt_12_python_declares_an_int(runtime: Runtime) -> None:
    source = inspect.getsource(runtime.module.Delegate.__init__)
    arguments = source[source.index("argtypes") :].split("]")[0]
    assert "c_int" in arguments
    assert "size_t" not in arguments


def test_rt_12_the_suite_declares_a_size_t() -> None:
    assert layouts.PluginCreate._argtypes_[2] is ctypes.c_size_t


def test_rt_12_options_arrive_whatever_the_runtime_declares(runtime: Runtime, tmp_path: Path) -> None:
    source = _NO_PREPARE.replace(
        "return calloc", "return count == 3 && keys[2] && values[2] ? calloc"
    ).replace("sizeof(Delegate));\n}", "sizeof(Delegate)) : 0;\n}", 1)
    library = native.build(tmp_path, source)
    delegate_factory(str(library), {"a": "1", "b": "2", "c": "3"}, runtime).make(Application()).close()
    with pytest.raises(DelegateUnusable):
        delegate_factory(str(library), {"a": "1"}, runtime).make(Application())


# RT-14: after a failed application the operands of float16 are taken away from nodes (2.14).


class Fails(ReferenceDelegate):
    """Its application fails."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        raise ValueError(f"none of {len(plan.plan)} nodes is known")


TO_CAST = Cell("CAST", "float16", 2)


def test_rt_14_operands_of_float16_are_absent_after_a_failure(runtime: Runtime) -> None:
    for cell in (TO_CAST, replace(TO_CAST, dtype="int32")):
        interpreter = runtime.interpreter(made(cell).model)
        delegate = Fails()
        with pytest.raises((RuntimeError, ValueError)):
            interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
        (node,) = private_plan(context_of(interpreter), {})
        is_lost = runtime.name == "tflite_runtime" and cell.dtype == "float16"
        assert tuple(node.inputs) == ((-1,) if is_lost else (0,))
        del interpreter
        delegate.close()


def test_rt_14_does_not_end_the_process_of_a_delegate_whose_kernel_cannot_be_prepared() -> None:
    """XNNPACK claims a TRANSPOSE of float16, which it cannot prepare."""
    target = open_delegate_target([("xnnpack", {})], "tflite_runtime", "fork", 10.0)
    try:
        trace = target.run(DomainCase((Cell("TRANSPOSE", "float16", 2),)))
    finally:
        target.close()
    assert [each.outcome for each in trace.cells] == ["undone"]


def test_rt_14_is_no_failure_of_the_delegates(runtime: Runtime) -> None:
    trace = run_domain_case(DomainCase((TO_CAST,)), [Factory("mine", Fails)], runtime)
    assert [each.outcome for each in trace.cells] == ["undone"]


class FailsOpaquely(Fails):
    """The same by a Prepare in an opaque builder."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        struct = layouts.Delegate.from_address(self.address)
        own, address = layouts.DelegatePrepare(struct.Prepare), self.address
        self.opaque = layouts.OpaquePrepare(lambda context, *_: own(context, address))
        prepare = ctypes.cast(self.opaque, ctypes.c_void_p).value
        self.builder = layouts.OpaqueDelegateBuilder(Prepare=prepare)
        struct.opaque_delegate_builder, struct.Prepare = ctypes.addressof(self.builder), None


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_rt_14_is_no_failure_of_an_opaque_delegates(runtime: Runtime, dtype: str) -> None:
    case = DomainCase((replace(TO_CAST, dtype=dtype),))
    trace = run_domain_case(case, [Factory("mine", FailsOpaquely)], runtime)
    assert [each.outcome for each in trace.cells] == ["undone"]


class PreparesOnce(ReferenceDelegate):
    """Claims all nodes; the prepare of its kernel succeeds so many times."""

    times = 0

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        return plan.plan

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = super().registration(nodes)
        left = [layouts.OK] * self.times
        self.prepares = layouts.KernelCall(lambda *_: left.pop() if left else layouts.ERROR)
        made.init = made.free = None
        made.prepare = ctypes.cast(self.prepares, ctypes.c_void_p).value
        return made


@pytest.mark.parametrize(("times", "outcome"), [(0, "undone"), (1, "failed")])
def test_rt_14_a_kernel_that_cannot_be_prepared_counts_as_with_any_other_type(
    runtime: Runtime, times: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is applied, and in the allocate_tensors behind that."""
    monkeypatch.setattr(PreparesOnce, "times", times)
    for dtype in ("float16", "int32"):
        case = DomainCase((replace(TO_CAST, dtype=dtype),))
        trace = run_domain_case(case, [Factory("mine", PreparesOnce)], runtime)
        assert [each.outcome for each in trace.cells] == [outcome], dtype


# Kernels of the CPU that end the process where operands of many dimensions differ in shape.


def broadcast(op: Any, rank: int, dtype: Any = "float32") -> Graph:
    """A node whose second operand has one dimension."""
    scale: dict[str, Any] = {"scales": (0.0625,), "zero_points": (0,)} if dtype == "int8" else {}
    whole = Tensor((2,) * rank, dtype, **scale)
    return Graph((whole, Tensor((2,), dtype, **scale), whole), (Node(op, (0, 1), (2,)),), (0, 1), (2,))


@pytest.fixture(scope="module")
def forking(runtime: Runtime) -> Iterator[DelegateTarget]:
    target = open_delegate_target([("reference", {})], runtime.name, "fork", 10.0)
    yield target
    target.close()


@pytest.mark.parametrize(
    ("op", "rank", "dtype", "resolver"),
    [
        *(("MUL", 5, "float32", "reference"), ("MUL", 5, "int8", "reference")),
        *(("PRELU", 5, "float32", "reference"), ("PRELU", 5, "int8", "bare")),
        *(("MAXIMUM", 6, "float32", "bare"), ("SUB", 6, "int8", "bare"), ("ADD", 7, "float32", "reference")),
    ],
)
def test_broadcasts_of_many_dimensions_end_the_process_on_2_14_only(
    runtime: Runtime, forking: DelegateTarget, op: str, rank: int, dtype: str, resolver: Any
) -> None:
    for dimensions in (rank - 1, rank):
        steps = Open("i0", resolver=resolver), Allocate("i0"), SetInputs("i0", 1, "mixed"), Invoke("i0")
        trace = forking.run(ScriptCase((broadcast(op, dimensions, dtype),), steps))
        ends = runtime.name == "tflite_runtime" and dimensions == rank
        # With the reference kernels the same is run without delegates, and is nobody's death then.
        assert (trace.death is not None or trace.died_alone) == ends


def test_a_death_of_the_reference_kernels_is_no_delegates(runtime: Runtime, forking: DelegateTarget) -> None:
    """Where a version of the runtime has more of such kernels than is known here."""
    made = MakeDelegate("d0", claim=()), Open("i0", resolver="reference"), Apply("i0", "d0")
    steps = *made, Allocate("i0"), SetInputs("i0", 1, "mixed"), Invoke("i0"), Read("i0")
    case = ScriptCase((broadcast("MUL", 5),), steps)
    trace = forking.run(case)
    assert trace.death is None
    assert trace.died_alone == (runtime.name == "tflite_runtime")
    if trace.died_alone:
        with pytest.raises(Unsupported, match="without any delegate"):
            catalogue()["XNN-04"].check(case, trace)


def test_the_reference_kernels_are_left_out_where_they_end_the_process(forking: DelegateTarget) -> None:
    drawn = [
        case for start in range(8) for case in Search(catalogue()["XNN-04"].cases(forking.facts), 100, start)
    ]
    opened = [(case.graphs[0], step) for case in drawn for step in case.steps]
    used = {(graph, step.resolver) for graph, step in opened if isinstance(step, Open)}
    ending = {
        graph
        for graph, _ in used
        for node in graph.nodes
        if node.op == "MUL" and len({graph.tensors[index].shape for index in node.inputs}) > 1
        if max(len(graph.tensors[index].shape) for index in node.inputs) > 4
    }
    assert {resolver for _, resolver in used} == {"default", "bare", "reference"}
    assert ending
    assert not {graph for graph, resolver in used if resolver == "reference"} & ending


def test_the_state_of_an_interpreter_can_be_read(runtime: Runtime) -> None:
    interpreter = runtime.interpreter(emit(CHAIN))
    interpreter.allocate_tensors()
    subgraph = subgraph_of(context_of(interpreter))
    assert peek.integer(subgraph + layouts.SUBGRAPH_STATE) in INVOKABLE
