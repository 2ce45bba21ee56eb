"""Live interpreters and delegates for authors' own tests: what the fixtures hand out."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi.layouts import BUILTIN_DELEGATE
from pytest_qnn.tflite.cases.built import checked
from pytest_qnn.tflite.cases.delegate import Application, Fault
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.live.life import Life
from pytest_qnn.tflite.live.placing import placed
from pytest_qnn.tflite.runner.custom_buffers import CustomMemory, custom_memory, offering
from pytest_qnn.tflite.runner.delegates import LiveDelegate, delegate_factory
from pytest_qnn.tflite.runtime.runtime import Runtime, runtime_of
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.trace import PlanNode

Model = Graph | bytes | str | PathLike[str]
_FAULTS: Final = get_args(Fault)


class Delegate:
    """A live TfLiteDelegate that can be passed as one of ``experimental_delegates``.

    It is destroyed with the last reference to it; an interpreter that it was passed to holds one.
    """

    def __init__(self, native: LiveDelegate, name: str) -> None:
        self._native = native
        self._life = Life(native.close)
        self.name = name
        """Its specification: ``reference``, ``xnnpack`` or a plugin's path; ``probe`` from `reference`."""

    def __repr__(self) -> str:
        return (
            f"<closed {self.name}>"
            if self._life.is_over
            else f"<delegate {self.name} at {self._native.address:#x}>"
        )

    @property
    def address(self) -> int:
        """The address of the TfLiteDelegate.

        Raises:
            ValueError: it was destroyed already.
        """
        if self._life.is_over:
            raise ValueError("the delegate was destroyed already")
        return self._native.address

    def close(self) -> None:
        """Destroy it now. No interpreter may be using it."""
        self._life.end()

    def _get_native_delegate_pointer(self) -> int:
        """What an Interpreter of either runtime asks every delegate for."""
        return self.address


class DelegateChain:
    """Makes a new delegate for each (specification, options) of ``chain``, in order, when it is called.

    A specification is ``reference``, ``xnnpack``, ``qnn-reference``, ``mutant:NAME`` or the path of a plugin.

    Raises:
        DelegateUnusable: one of them cannot be made; the text is one sentence. Also when it is called.
    """

    def __init__(self, runtime: Runtime, chain: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        self._factories = [delegate_factory(spec, options, runtime) for spec, options in chain]

    def __call__(self) -> tuple[Delegate, ...]:
        """The delegates, in order of precedence."""
        return tuple(Delegate(factory.make(Application()), factory.name) for factory in self._factories)

    @property
    def custom_memory(self) -> CustomMemory | None:
        """Custom memory of the first delegate that offers any; None: no one does."""
        position = offering(self._factories)
        return None if position < 0 else custom_memory(self._factories[position])


def reference(runtime: Runtime, claim: Sequence[int] | None = None, fault: Fault = "") -> Delegate:
    """Make a reference delegate that claims the given nodes (None: all that it supports) or fails as told.

    Raises:
        ValueError: there is no such callback that could fail.
    """
    from pytest_qnn.tflite.runner.delegates import PROBE  # noqa: PLC0415 - not needed by plugins

    del runtime  # the callbacks are the same on both
    if fault not in _FAULTS:
        raise ValueError(f"fault is {', '.join(filter(None, _FAULTS))} or empty, not {fault!r}")
    application = Application("probe", None if claim is None else tuple(claim), fault)
    return Delegate(PROBE.make(application), "probe")


def interpreter(
    runtime: Runtime, model: Model, delegates: Sequence[Any] = (), *, allocate: bool = True
) -> Any:
    """Make an interpreter without default delegates and apply ``delegates`` in order.

    Raises:
        RuntimeError: a delegate failed to be applied, or allocation failed.
        TypeError: a delegate is none.
        ValueError: the runtime refuses the model; of a graph that no runtime could work with one sentence.
    """
    for each in delegates:
        if not hasattr(each, "_get_native_delegate_pointer"):
            raise TypeError(f"a delegate is one argument, as of *delegate_chain(), and not {each!r:.80}")
    try:
        made = runtime.interpreter(model_bytes(model), delegates=delegates)
        if allocate:
            made.allocate_tensors()
    except (KeyError, RuntimeError, ValueError, struct.error):  # KeyError: an operator that there is not
        if isinstance(model, Graph):  # made of another one, past the check where graphs are built
            checked(model)
        raise
    return made


def model_bytes(model: Model) -> bytes:
    """The .tflite bytes of a graph, of bytes as they are, or of a file."""
    if isinstance(model, Graph):
        return emit(model)
    if isinstance(model, bytes):
        return model
    return Path(model).read_bytes()


def invoke(live: Any, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Set the inputs of an allocated interpreter, invoke it, and copy its outputs.

    Raises:
        RuntimeError: the invoke failed.
        ValueError: there are more or fewer inputs than the model has, one has another type or shape, or a
            tensor was placed in memory that is freed.
    """
    for tensor, memory in placed(live).items():
        if memory.freed:
            raise ValueError(f"tensor {tensor} was placed in memory that is freed")
    details = live.get_input_details()
    if len(details) != len(inputs):
        raise ValueError(f"the model has {len(details)} inputs, and {len(inputs)} are given")
    for detail, value in zip(details, inputs, strict=True):
        live.set_tensor(detail["index"], value)
    live.invoke()
    return [np.array(live.get_tensor(detail["index"])) for detail in live.get_output_details()]


def execution_plan(live: Any, *delegates: Delegate) -> tuple[PlanNode, ...]:
    """The interpreter's execution plan; ``owner`` is the position of the owning delegate, else -1.

    Raises:
        RuntimeError: this build of the runtime keeps its plan in an unknown place.
        RuntimeMissing: the interpreter is neither tflite_runtime's nor ai_edge_litert's.
    """
    runtime = runtime_of(live)
    if not runtime.observed:
        raise RuntimeError(f"the plan of {runtime.name} {runtime.version} cannot be read: unknown layout")
    owners = {delegate.address: position for position, delegate in enumerate(delegates)}
    return private_plan(context_of(live), owners)


def assert_partitioning(live: Any, expected: Sequence[int | str | Delegate]) -> None:
    """Assert what the interpreter will execute, in order.

    ``assert_partitioning(interpreter, [0, "MyDelegate", 4])``: node 0 on the CPU, one kernel of a delegate
    that calls its kernels MyDelegate (the custom_name of its registration), node 4 on the CPU. A `Delegate`
    in place of a name means a kernel of that very delegate. Node indices are positions in
    ``Graph.nodes``.

    Raises:
        AssertionError: the plan is another one; both plans are drawn side by side, with their numbers of
            partitions (kernels of delegates) and of switches between the CPU and a delegate, or between two.
        RuntimeError, RuntimeMissing: as `execution_plan`.
    """
    __tracebackhide__ = True
    delegates = list({id(entry): entry for entry in expected if isinstance(entry, Delegate)}.values())
    plan = execution_plan(live, *delegates)
    wanted = [delegates.index(entry) if isinstance(entry, Delegate) else entry for entry in expected]
    fits = [
        _is_kernel(node) and node.owner == want if isinstance(entry, Delegate) else _label(node) == want
        for node, want, entry in zip(plan, wanted, expected, strict=False)
    ]
    if len(plan) == len(expected) and all(fits):
        return
    names = {detail["index"]: detail["op_name"] for detail in live._get_ops_details()}
    wanted_texts = [_described(entry, names) for entry in expected]
    drawn = _both_plans(plan, [_seen(node, names, delegates) for node in plan], wanted_texts, fits)
    counted = (
        f"expected: {_counted([not isinstance(entry, int) for entry in expected])}; "
        f"seen: {_counted([_is_kernel(node) for node in plan])}"
    )
    raise AssertionError(f"{drawn}\n{counted}")


def _counted(kernels: Sequence[bool]) -> str:
    """How many partitions a plan has, and how often its execution goes from one executor to another.

    Two kernels one after the other are a switch, also of one delegate: its results go through the runtime.
    """
    pairs = itertools.pairwise(kernels)
    return f"{sum(kernels)} partitions, {sum(one or other for one, other in pairs)} switches"


def _both_plans(
    plan: Sequence[PlanNode], seen: Sequence[str], expected: Sequence[str], fits: Sequence[bool]
) -> str:
    """The expected and the seen plan side by side; what differs is marked."""
    rows = [("", "expected", "seen", "reads", "writes")]
    for place in range(max(len(plan), len(expected))):
        mark = " " if place < len(fits) and fits[place] else ">"
        want = expected[place] if place < len(expected) else "-"
        if place < len(plan):
            node = plan[place]
            rows.append((mark, want, seen[place], _tensors(node.inputs), _tensors(node.outputs)))
        else:
            rows.append((mark, want, "-", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(["the execution plan is not the expected one", *lines])


def _is_kernel(node: PlanNode) -> bool:
    return node.op == BUILTIN_DELEGATE


def _label(node: PlanNode) -> int | str:
    return node.name if _is_kernel(node) else node.index


def _described(entry: int | str | Delegate, names: Mapping[int, str]) -> str:
    if isinstance(entry, Delegate):
        return f"kernel of {entry}"
    if isinstance(entry, str):
        return f"kernel {entry}"
    return f"node {entry} {names.get(entry, '(no such node)')}"


def _seen(node: PlanNode, names: Mapping[int, str], delegates: Sequence[Delegate]) -> str:
    owner = f" of {delegates[node.owner]}" if node.owner >= 0 else ""
    return _described(_label(node), names) + owner


def _tensors(indices: Sequence[int]) -> str:
    return " ".join(f"t{index}" if index >= 0 else "none" for index in indices) or "-"
