"""Delegate examples: what each stage costs, against the runtime alone."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import msgspec
from hypothesis.strategies import SearchStrategy

from benchmarks.timing import Effort, Figure, Row, drawn, each, in_children, repeated
from pytest_qnn.core.drawing import changed
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.graph.strategies import graphs_with_claims
from pytest_qnn.tflite.runtime.runtime import Runtime, load_runtime
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

NODES = (5, 20, 50, 500)
RUNTIMES = ("tflite_runtime", "ai_edge_litert")
RULE = "PART-09"
"""The rule that is judged: partitions equal the oracle's, which looks at every node."""


def rows(effort: Effort) -> Iterator[Row]:
    """Microseconds per case, and ratios to the floor of the same run."""
    for nodes in NODES:
        for name in RUNTIMES:
            yield from _rows(load_runtime(name), nodes, effort)


def cases(nodes: int, data_seed: int = 0) -> SearchStrategy[DelegateCase]:
    """Graphs of exactly ``nodes`` nodes with a claim of some of them.

    ``data_seed``: of the contents. With another one a case costs as much, and no outputs of it are known:
    the runner remembers those of the last cases.
    """

    def case(drawing: tuple[Graph, Claims]) -> DelegateCase:
        return DelegateCase(drawing[0], (Application(claim=drawing[1][0]),), data_seed=data_seed)

    return changed(graphs_with_claims(1, min_nodes=nodes, max_nodes=nodes), case)


def batch(nodes: int) -> int:
    """Cases of one repetition."""
    return max(5, min(100, 3000 // nodes))


def judged(target: Any, rule_cases: SearchStrategy[DelegateCase], count: int) -> None:
    """Judge `RULE` through the engine, with ``count`` cases of the strategy.

    Raises:
        RuntimeError: the target broke the rule, or a case was drawn twice.
    """
    rule = dataclasses.replace(catalogue()[RULE], cases=lambda _: rule_cases)
    profile = Profile("benchmark", in_process_examples=count, isolated_examples=count)
    verdict = judge(rule, target, profile, 1)
    if verdict.finding is not None or verdict.examples != count:
        raise RuntimeError(f"a case of the benchmark failed, or was drawn twice: {verdict}")


def _rows(runtime: Runtime, nodes: int, effort: Effort) -> Iterator[Row]:
    subject, count = f"{runtime.name} {nodes}", batch(nodes)
    some = drawn(cases(nodes), count)
    draw = repeated(lambda _: drawn(cases(nodes), count), effort, count)
    yield Row(subject, "draw", "us", draw.times(1e6))
    build = each(lambda case: emit(case.graph), some, effort)
    yield Row(subject, "build", "us", build.times(1e6))
    with closing(_target(runtime, "off")) as target:
        traces = [(case, target.run(case)) for case in some]
        run = repeated(lambda number: [target.run(_other(case, number)) for case in some], effort, count)
        yield Row(subject, "run, without build", "us", run.minus(build).times(1e6))
        checked = each(lambda pair: catalogue()[RULE].check(*pair), traces, effort)
        yield Row(subject, f"check of {RULE}", "us", checked.times(1e6))
        whole = repeated(lambda number: judged(target, cases(nodes, number), count), effort, count)
        yield Row(subject, "whole", "us", whole.times(1e6))
    forked = partial(_target, runtime, "fork")
    isolated = in_children(
        forked, lambda target, number: judged(target, cases(nodes, number), count), effort, count
    )
    yield Row(subject, "isolated", "us", isolated.times(1e6))
    floor = _floor(runtime, some, effort)
    yield Row(subject, "floor", "us", floor.times(1e6))
    yield Row(subject, "whole/floor", "ratio", whole.over(floor))
    yield Row(subject, "isolated/floor", "ratio", isolated.over(floor))


def _other(case: DelegateCase, number: int) -> DelegateCase:
    return msgspec.structs.replace(case, data_seed=number)


def _target(runtime: Runtime, mode: str) -> DelegateTarget:
    return open_delegate_target([("reference", {})], runtime.name, mode, 60.0)


def _floor(runtime: Runtime, some: list[DelegateCase], effort: Effort) -> Figure:
    """Create, modify, allocate and invoke with kernels that do nothing, the model built beforehand."""
    prepared = [(emit(case.graph), case.applications[0].claim or ()) for case in some]

    def once(item: tuple[bytes, tuple[int, ...]]) -> None:
        model, claim = item
        bare.claim = (ctypes.c_int * (len(claim) + 1))(len(claim), *claim)
        interpreter = runtime.interpreter(model)
        interpreter._interpreter.ModifyGraphWithDelegate(bare.address)
        interpreter.allocate_tensors()
        interpreter.invoke()

    bare = _Bare()
    return each(once, prepared, effort)


class _Bare:
    """The least that a delegate in Python can be."""

    def __init__(self) -> None:
        self.claim: Any = None
        callbacks: dict[str, Callable[..., Any]] = {
            "prepare": layouts.DelegatePrepare(self._prepare),
            "init": layouts.KernelInit(lambda *_: 1),
            "free": layouts.KernelFree(lambda *_: None),
            "call": layouts.KernelCall(lambda *_: 0),
        }
        self._keep = callbacks
        at = {name: ctypes.cast(callback, ctypes.c_void_p).value for name, callback in callbacks.items()}  # type: ignore[arg-type]
        self._registration = layouts.Registration(
            init=at["init"],
            free=at["free"],
            prepare=at["call"],
            invoke=at["call"],
            builtin_code=layouts.BUILTIN_DELEGATE,
            version=1,
        )
        self._struct = layouts.Delegate(Prepare=at["prepare"])
        self.address = ctypes.addressof(self._struct)

    def _prepare(self, context: int, delegate: int) -> int:
        slot = layouts.Context.from_address(context).ReplaceNodeSubsetsWithDelegateKernels
        replace = layouts.ReplaceNodeSubsets(slot)
        return int(replace(context, self._registration, ctypes.addressof(self.claim), delegate))
