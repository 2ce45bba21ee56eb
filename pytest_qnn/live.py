"""Live interpreters and delegates for authors' own tests: what the fixtures hand out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.cases.delegate import Application, Fault
from pytest_qnn.cases.graph import Graph
from pytest_qnn.cases.model import emit
from pytest_qnn.run.delegates import LiveDelegate, delegate_factory
from pytest_qnn.run.runtime import Runtime
from pytest_qnn.run.state import context_of, private_plan
from pytest_qnn.trace import PlanNode

Model = Graph | bytes | str | PathLike[str]


class Delegate:
    """A live TfLiteDelegate that can be passed as one of ``experimental_delegates``.

    It is destroyed with the last reference to it; an interpreter that it was passed to holds one.
    """

    def __init__(self, native: LiveDelegate) -> None:
        self._native: LiveDelegate | None = native

    @property
    def address(self) -> int:
        """The address of the TfLiteDelegate.

        Raises:
            ValueError: it was destroyed already.
        """
        if self._native is None:
            raise ValueError("the delegate was destroyed already")
        return self._native.address

    def close(self) -> None:
        """Destroy it now. No interpreter may be using it."""
        native, self._native = self._native, None
        if native is not None:
            native.close()

    def _get_native_delegate_pointer(self) -> int:
        """What the runtimes' Interpreter asks every delegate for."""
        return self.address

    def __del__(self) -> None:
        self.close()


def open_delegate(
    runtime: Runtime, spec: str = "reference", options: Mapping[str, str] | None = None
) -> Delegate:
    """Make a delegate from a specification: ``reference``, ``xnnpack``, ``mutant:NAME`` or a plugin's path.

    Raises:
        DelegateUnusable: it cannot be made; the text is one sentence.
    """
    return Delegate(delegate_factory(spec, options or {}, runtime).make(Application()))


def reference(runtime: Runtime, claim: Sequence[int] | None = None, fault: Fault = "") -> Delegate:
    """Make a reference delegate that claims the given nodes (None: all that it supports) or fails as told."""
    from pytest_qnn.run.delegates import PROBE  # noqa: PLC0415 - not needed by plugins

    del runtime  # the callbacks are the same on both
    return Delegate(PROBE.make(Application("probe", None if claim is None else tuple(claim), fault)))


def interpreter(runtime: Runtime, model: Model, delegates: Sequence[Any] = (), *, allocate: bool = True) -> Any:
    """Make an interpreter without default delegates and apply ``delegates`` in order.

    Raises:
        RuntimeError: a delegate failed to be applied, or allocation failed.
        ValueError: the runtime refuses the model.
    """
    made = runtime.interpreter(model_bytes(model), delegates=delegates)
    if allocate:
        made.allocate_tensors()
    return made


def model_bytes(model: Model) -> bytes:
    """The .tflite bytes of a graph, of bytes as they are, or of a file."""
    if isinstance(model, Graph):
        return emit(model)
    if isinstance(model, bytes):
        return model
    return Path(model).read_bytes()


def run(live: Any, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Set the inputs of an allocated interpreter, invoke it, and copy its outputs.

    Raises:
        RuntimeError: the invoke failed.
    """
    for detail, value in zip(live.get_input_details(), inputs, strict=True):
        live.set_tensor(detail["index"], value)
    live.invoke()
    return [np.array(live.get_tensor(detail["index"])) for detail in live.get_output_details()]


def execution_plan(live: Any, *delegates: Delegate) -> tuple[PlanNode, ...]:
    """The interpreter's execution plan; ``owner`` is the position of the owning delegate, else -1."""
    owners = {delegate.address: position for position, delegate in enumerate(delegates)}
    return private_plan(context_of(live), owners)


def assert_partitioning(live: Any, expected: Sequence[int | str]) -> None:
    """Assert what the interpreter will execute, in order: node indices for the CPU, names for kernels.

    ``assert_partitioning(interpreter, [0, "MyDelegate", 4])``: node 0 on the CPU, one kernel of a delegate
    that calls its kernels MyDelegate, node 4 on the CPU.

    Raises:
        AssertionError: with both plans.
    """
    plan = execution_plan(live)
    seen = [node.name if node.op == _DELEGATE else node.index for node in plan]
    if seen != list(expected):
        raise AssertionError(f"partitioning: expected {list(expected)}, seen {seen}")


_DELEGATE = 51
"""kTfLiteBuiltinDelegate."""
