from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import native
import numpy as np
import pytest
from delegate_doubles import Factory

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.observe import spy
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import Runtime, RuntimeMissing, load_runtime
from pytest_qnn.tflite.trace import DelegateTrace

CHAIN = Graph(
    tensors=tuple(Tensor((2, 3)) for _ in range(5)),
    nodes=tuple(Node("NEG", (index,), (index + 1,)) for index in range(4)),
    inputs=(0,),
    outputs=(4, 1),
)

# A delegate that claims every node at an even place, gives every kernel NULL as user data, and fails an
# invoke or a free that is given anything else.
NULL_USER_DATA = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
typedef struct { int size; int data[64]; } IntArray;
struct Context; struct Delegate;
typedef struct {
  void* (*init)(void*, const char*, size_t);
  void (*free)(void*, void*);
  int (*prepare)(void*, void*);
  int (*invoke)(void*, char*);
  void* profiling;
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void *external, *async;
  uint64_t inplace;
} Registration;
typedef struct Context {
  size_t size;
  int (*get_plan)(struct Context*, IntArray**);
  void* skipped[6];
  int (*replace)(struct Context*, Registration, IntArray*, struct Delegate*);
} Context;
typedef struct Delegate {
  void* data;
  int (*prepare)(Context*, struct Delegate*);
  void *from, *to, *release;
  int64_t flags;
  void* opaque;
} Delegate;
static int wrong_frees;
int count_wrong_frees(void) { return wrong_frees; }
static void* init(void* c, const char* b, size_t n) { return NULL; }
static void release(void* c, void* p) { wrong_frees += p != NULL; }
static int invoke(void* c, char* node) { return *(void**)(node + 32) != NULL; }
static int prepare(Context* c, Delegate* d) {
  IntArray *plan, claim = {0};
  Registration r = {init, release, NULL, invoke, NULL, 0, "null", 1};
  if (c->get_plan(c, &plan)) return 1;
  for (int i = 0; i < plan->size; i += 2) claim.data[claim.size++] = plan->data[i];
  return c->replace(c, r, &claim, d);
}
Delegate* tflite_plugin_create_delegate(char** k, char** v, int n, void (*report)(const char*)) {
  Delegate* d = calloc(1, sizeof *d);
  d->prepare = prepare;
  return d;
}
void tflite_plugin_destroy_delegate(Delegate* d) { free(d); }
"""


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    try:
        return load_runtime(request.param)
    except RuntimeMissing as missing:
        pytest.skip(str(missing))


def watched(runtime: Runtime, kind: type[ReferenceDelegate], **case: Any) -> DelegateTrace:
    case = {"applications": (Application(claim=(1, 2)),), "watch": True} | case
    return run_delegate_case(DelegateCase(CHAIN, **case), [Factory("double", kind)], runtime)


def test_an_honest_kernel_writes_nothing_else(runtime: Runtime) -> None:
    trace = watched(runtime, ReferenceDelegate, applications=(Application(), Application()), invokes=3)
    assert trace.writes == ()


def test_a_write_to_an_input_is_seen_with_its_place(runtime: Runtime) -> None:
    class Scribbler(ReferenceDelegate):
        def kernel_invoke(self, context: int, kernel: Kernel) -> int:
            status = super().kernel_invoke(context, kernel)
            peek.array(view.tensor(context, 1).data, "uint8", (24,))[7] ^= 0xFF
            return status

    (write,) = watched(runtime, Scribbler).writes
    assert (write.application, write.kernel, write.tensor, write.offset, write.is_input) == (0, 0, 1, 7, True)


def test_a_write_to_a_bystander_is_seen(runtime: Runtime) -> None:
    class Scribbler(ReferenceDelegate):
        def kernel_invoke(self, context: int, kernel: Kernel) -> int:
            status = super().kernel_invoke(context, kernel)
            peek.array(view.tensor(context, 0).data, "uint8", (24,))[0] ^= 0xFF
            return status

    (write,) = watched(runtime, Scribbler).writes
    assert (write.tensor, write.offset, write.is_input) == (0, 0, False)


def test_an_unwatched_case_records_no_writes(runtime: Runtime) -> None:
    class Scribbler(ReferenceDelegate):
        def kernel_invoke(self, context: int, kernel: Kernel) -> int:
            status = super().kernel_invoke(context, kernel)
            peek.array(view.tensor(context, 1).data, "uint8", (24,))[7] ^= 0xFF
            return status

    assert watched(runtime, Scribbler, watch=False).writes == ()


def test_claims_are_kept_as_they_were_passed(runtime: Runtime) -> None:
    class Disorderly(ReferenceDelegate):
        def replace(self, context: int, nodes: tuple[int, ...]) -> int:
            return super().replace(context, (*reversed(nodes), nodes[0]))

    assert watched(runtime, Disorderly).applied[0].replaces[0].nodes == (2, 1, 1)


def test_a_prepare_without_replace_is_seen_as_such(runtime: Runtime) -> None:
    class Idle(ReferenceDelegate):
        def prepare(self, *_: object) -> int:
            return layouts.OK

    (applied,) = watched(runtime, Idle).applied
    assert applied.prepared
    assert applied.replaces == ()


def test_a_native_delegate_that_gives_all_kernels_null_is_told_apart(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = str(native.build(tmp_path, NULL_USER_DATA, "libnulldata.so"))
    factory = delegate_factory(path, {}, runtime)
    trace = run_delegate_case(DelegateCase(CHAIN), [factory], runtime)
    assert [kernel.nodes for kernel in trace.kernels] == [(0,), (2,)]
    assert trace.invoke_errors == ("",)
    seen = [(event.kind, event.kernel, event.status) for event in trace.events]
    assert [event for event in seen if event[0] in ("invoke", "free")] == [
        ("invoke", 0, 0),
        ("invoke", 1, 0),
        ("free", 0, 0),
        ("free", 1, 0),
    ]
    assert ctypes.CDLL(path).count_wrong_frees() == 0


def test_xnnpack_is_seen_through(runtime: Runtime) -> None:
    case = DelegateCase(CHAIN, watch=True, invokes=2)
    trace = run_delegate_case(case, [delegate_factory("xnnpack", {}, runtime)], runtime)
    assert [kernel.nodes for kernel in trace.kernels] == [(0, 1, 2, 3)]
    assert [node.name for node in trace.plan] == ["TfLiteXNNPackDelegate"]
    assert [event.kind for event in trace.events if event.kernel == 0][-3:] == ["invoke", "invoke", "free"]
    assert trace.writes == ()


def test_kernels_whose_init_failed_are_told_apart(runtime: Runtime) -> None:
    case = DelegateCase(CHAIN, (Application("probe", (0, 2), "init"),))
    trace = run_delegate_case(case, [], runtime)
    inits = [(event.kernel, event.status) for event in trace.events if event.kind == "init"]
    frees = [event.kernel for event in trace.events if event.kind == "free"]
    # A runtime that knows kTfLiteKernelInitFailed stops at the first and frees nothing; an older one
    # takes it for user data.
    assert (inits, frees) in (([(0, 1)], []), ([(0, 1), (1, 1)], [0, 1]))


def test_a_delegate_applied_twice_is_seen_twice(runtime: Runtime) -> None:
    class Once(Factory):
        def make(self, application: Application) -> ReferenceDelegate:
            return self.made[0] if self.made else super().make(application)

    factory = Once("once", ReferenceDelegate)
    case = DelegateCase(CHAIN, (Application(claim=(1,)), Application()))
    trace = run_delegate_case(case, [factory], runtime)
    assert [event.application for event in trace.events if event.kind == "Prepare"] == [0, 1]
    assert trace.outputs == (trace.cpu,)


def test_a_delegate_gets_its_own_prepare_back(runtime: Runtime) -> None:
    offset = layouts.Delegate.Prepare.offset
    delegate = ReferenceDelegate()
    own = peek.pointer(delegate.address + offset)
    session = spy.Session(observed=runtime.observed, stray_writes=False)
    session.hook(delegate.address, 0)
    assert peek.pointer(delegate.address + offset) != own
    session.unhook()
    assert peek.pointer(delegate.address + offset) == own
    delegate.close()


def test_the_spy_forgets_a_case_that_is_over(runtime: Runtime) -> None:
    watched(runtime, ReferenceDelegate)
    watched(runtime, ReferenceDelegate, applications=(Application("probe", fault="init"),))
    tables = (spy._hooked, spy._preparing, spy._registering, spy._contexts, spy._live, spy._failed)
    assert not any(tables)


def test_an_error_in_the_spy_itself_is_not_blamed_on_the_delegate(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(spy, "snapshot", broken)
    with pytest.raises(RuntimeError, match="the spy failed"):
        watched(runtime, ReferenceDelegate)


def test_outputs_are_read_as_numpy_sees_them(runtime: Runtime) -> None:
    trace = watched(runtime, ReferenceDelegate)
    np.testing.assert_array_equal(trace.outputs[0][0].numpy(), trace.inputs[0].numpy())
