"""Delegate examples: what each stage costs, against the runtime alone."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TextIO

from hypothesis.strategies import SearchStrategy

from benchmarks.timing import drawn, mean_us, median_us, table
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.graph.strategies import graphs_with_claims
from pytest_qnn.tflite.runtime.runtime import Runtime, load_runtime
from pytest_qnn.tflite.target import open_delegate_target

NODES = (5, 20, 50, 500)
RUNTIMES = ("tflite_runtime", "ai_edge_litert")
RULE = "PART-09"
"""The rule that is judged: partitions equal the oracle's, which looks at every node."""


def report(out: TextIO, *, quick: bool) -> None:
    """Print a table per runtime."""
    head = (
        "nodes",
        "draw",
        "build",
        "run",
        "judge",
        "whole",
        "isolated",
        "floor",
        "whole/floor",
        "isolated/floor",
    )
    for name in RUNTIMES:
        runtime = load_runtime(name)
        out.write(f"delegate examples on {runtime.name} {runtime.version}, microseconds each, rule {RULE}\n")
        table(out, head, (_row(runtime, nodes, quick=quick) for nodes in NODES))


def cases(nodes: int) -> SearchStrategy[DelegateCase]:
    """Graphs of exactly ``nodes`` nodes with a claim of some of them."""
    return graphs_with_claims(1, min_nodes=nodes, max_nodes=nodes).map(
        lambda drawing: DelegateCase(drawing[0], (Application(claim=drawing[1][0]),))
    )


def _row(runtime: Runtime, nodes: int, *, quick: bool) -> tuple[object, ...]:
    count = max(20, (2000 if quick else 10_000) // max(nodes, 20))
    some = drawn(cases(nodes), count)
    draw = mean_us(functools.partial(drawn, cases(nodes), count), count)
    build = median_us(lambda case: emit(case.graph), some)
    rule = dataclasses.replace(catalogue()[RULE], cases=lambda _: cases(nodes))
    whole, run, judged = _through(runtime, rule, some, "off")
    isolated, _, _ = _through(runtime, rule, some, "fork")
    floor = _floor(runtime, some)
    return nodes, draw, build, run - build, judged, whole, isolated, floor, whole / floor, isolated / floor


def _through(runtime: Runtime, rule: Any, some: list[DelegateCase], mode: str) -> tuple[float, float, float]:
    """Microseconds of a whole example through the engine, of one run, and of one check."""
    target = open_delegate_target([("reference", {})], runtime.name, mode, 60.0)
    try:
        run = median_us(target.run, some)
        traces = [(case, target.run(case)) for case in some]
        judged = median_us(lambda pair: rule.check(*pair), traces)
        profile = Profile("benchmark", in_process_examples=len(some), isolated_examples=len(some))
        whole = mean_us(lambda: judge(rule, target, profile, 1), len(some))
    finally:
        target.close()
    return whole, run, judged


def _floor(runtime: Runtime, some: list[DelegateCase]) -> float:
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
    return median_us(once, prepared)


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
