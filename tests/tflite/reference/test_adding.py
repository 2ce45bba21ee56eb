"""The probe that adds tensors until their table has moved."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.adding import AddsTensors
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.runner.delegates import PROBE, delegate_factory
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.runtime.state import context_of

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
LINE = Graph(
    (Tensor((3,)),) * 4,
    (Node("NEG", (0,), (1,)), Node("ABS", (1,), (2,)), Node("NEG", (2,), (3,))),
    (0,),
    (3,),
)
ADDING = Application("probe", (2,), added=300)


def applied(runtime: str, *delegates: ReferenceDelegate) -> tuple[Any, list[int]]:
    """An interpreter, and where its table of tensors was before and after each delegate."""
    interpreter = load_runtime(runtime).interpreter(emit(LINE))
    context = layouts.Context.from_address(context_of(interpreter))
    places = [context.tensors]
    for delegate in delegates:
        interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
        places.append(context.tensors)
    return interpreter, places


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_table_moves_and_what_it_was_in_is_filled(runtime: str) -> None:
    first, adding = ReferenceDelegate(claim=(0,)), AddsTensors(added=300, claim=(2,))
    interpreter, (start, before, after) = applied(runtime, first, adding)
    assert start == before != after
    assert layouts.Context.from_address(context_of(interpreter)).tensors_size >= 304
    if libc.usable_size(after):
        assert ctypes.string_at(before, 4 * ctypes.sizeof(layouts.Tensor)) == b"\xee" * 448
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.array([1, -2, 3], np.float32))
    interpreter.invoke()
    assert interpreter.get_tensor(3).tolist() == [-1, -2, -3]
    del interpreter
    for delegate in (first, adding):
        delegate.close()
        assert not delegate.errors


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_tensors_are_added_until_it_has_moved(runtime: str) -> None:
    adding = AddsTensors(added=10, claim=())
    interpreter, (before, after) = applied(runtime, adding)
    assert before != after
    assert layouts.Context.from_address(context_of(interpreter)).tensors_size >= 124
    del interpreter
    adding.close()


def test_what_it_holds_is_given_back() -> None:
    def once() -> None:
        adding = AddsTensors(added=300, claim=())
        interpreter, _ = applied(RUNTIMES[0], adding)
        del interpreter
        adding.close()

    once()
    before = libc.malloc_in_use()
    if before is None:
        pytest.skip("this C library does not count what is in use")
    for _ in range(20):
        once()
    after = libc.malloc_in_use()
    assert after is not None
    assert after - before < 20 * 10_000


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("spec", "right"),
    [("reference", True), ("mutant:keeps-tensor-table", False), ("mutant:keeps-output-tensors", False)],
)
def test_a_kernel_that_keeps_the_table_never_has_right_values(
    spec: str, right: bool, runtime: str, late: bool
) -> None:
    loaded = load_runtime(runtime)
    case = DelegateCase(LINE, (Application(claim=(0,)), ADDING), 2, poison=(0xEE, 0x99), late=late)
    for _ in range(20):
        trace = run_delegate_case(case, [delegate_factory(spec, {}, loaded)], loaded)
        assert [each.ok for each in trace.applied] == [True, True]
        assert any(trace.invoke_errors) != right
        assert (trace.outputs == (trace.cpu,) * 2) == right


def test_a_probe_that_adds_nothing_is_as_before() -> None:
    delegate = PROBE.make(Application("probe", ()))
    assert not isinstance(delegate, AddsTensors)
    delegate.close()
