"""Reference delegates with one fault or with two, and a worker that knows them by name: for blame."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import numpy.typing as npt

from pytest_qnn.isolation.executor import Executor
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.personalities import PERSONALITIES, DelegatePersonality
from pytest_qnn.tflite.runner.spec import CODEC, DelegateSpec
from pytest_qnn.tflite.runner.worker import DelegateWorker
from pytest_qnn.tflite.target import DelegateTarget

PREFIX = "reference:faulty-"
DELEGATES: dict[str, type[ReferenceDelegate]] = {}
Values = npt.NDArray[Any]


def entered(name: str) -> Callable[[type[ReferenceDelegate]], type[ReferenceDelegate]]:
    def enter(made: type[ReferenceDelegate]) -> type[ReferenceDelegate]:
        DELEGATES[name] = made
        return made

    return enter


class Faulty(ReferenceDelegate):
    """`wrong`, `fails` and `aborts` say of which nodes; such a node gives what it computes plus eight."""

    def __init__(self, *, flags: int = layouts.FLAG_ALLOW_DYNAMIC_TENSORS, **options: Any) -> None:
        super().__init__(flags=flags, **options)

    def compute_node(self, kernel: Kernel, node: Node, operands: list[Any]) -> Values:
        op, dtype, rank = seen(kernel, node)
        if self.aborts(op, dtype, rank):
            os.abort()
        values = super().compute_node(kernel, node, operands)
        return values + values.dtype.type(8) if self.wrong(op, dtype, rank, kernel, node) else values

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        failing = any(self.fails(*seen(kernel, node)) for node in kernel.steps)
        return layouts.ERROR if failing else super().kernel_prepare(context, kernel)

    def wrong(self, op: str, dtype: str, rank: int, kernel: Kernel, node: Node) -> bool:  # noqa: ARG002
        return False

    def fails(self, op: str, dtype: str, rank: int) -> bool:  # noqa: ARG002
        return False

    def aborts(self, op: str, dtype: str, rank: int) -> bool:  # noqa: ARG002
        return False


def seen(kernel: Kernel, node: Node) -> tuple[str, str, int]:
    """The operator, its type, and the rank of its first operand."""
    first = kernel.tensors[node.inputs[0]]
    return node.op, first.dtype, len(first.shape)


@entered("wrong")
class _Wrong(Faulty):
    """One fault, at all ranks and in both types."""

    def wrong(self, op: str, *_: Any) -> bool:
        return op == "SUB"


@entered("wrong-from-rank-3")
class _FromRank3(Faulty):
    def wrong(self, op: str, dtype: str, rank: int, *_: Any) -> bool:
        del dtype
        return op == "MEAN" and rank >= 3


@entered("wrong-in-all")
class _WrongInAll(Faulty):
    def wrong(self, *_: Any) -> bool:
        return True


@entered("fails")
class _Fails(Faulty):
    def fails(self, op: str, dtype: str, rank: int) -> bool:
        del dtype, rank
        return op == "MUL"


@entered("aborts")
class _Aborts(Faulty):
    def aborts(self, op: str, dtype: str, rank: int) -> bool:
        del rank
        return (op, dtype) == ("RELU", "float32")


@entered("ignores-activations")
class _IgnoresActivations(Faulty):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Any]) -> Values:
        return super().compute_node(kernel, msgspec.structs.replace(node, activation="NONE"), operands)


@entered("wrong-with-constants")
class _WrongWithConstants(Faulty):
    def wrong(self, op: str, dtype: str, rank: int, kernel: Kernel, node: Node) -> bool:
        del dtype, rank, kernel
        return op == "MUL" and node.inputs[1] in self.plan.constants


@entered("wrong-and-fails-at-rank-7")
class _FailsAtRank7(_Wrong):
    def fails(self, op: str, dtype: str, rank: int) -> bool:
        del dtype
        return op == "SUB" and rank == 7


@entered("wrong-at-rank-2-and-at-rank-7")
class _Ranks2And7(Faulty):
    def wrong(self, op: str, dtype: str, rank: int, *_: Any) -> bool:
        del dtype
        return op == "ADD" and rank in (2, 7)


@entered("wrong-in-float32-and-in-int8-at-rank-8")
class _BothTypes(Faulty):
    def wrong(self, op: str, dtype: str, rank: int, *_: Any) -> bool:
        return op == "ABS" and (dtype == "float32" or rank == 8)


@entered("aborts-and-wrong-in-int8-at-rank-7")
class _AbortsAndWrong(_Aborts):
    def wrong(self, op: str, dtype: str, rank: int, *_: Any) -> bool:
        return (op, dtype, rank) == ("RELU", "int8", 7)


@entered("wrong-and-aborts-at-rank-8")
class _WrongAndAborts(_Wrong):
    def aborts(self, op: str, dtype: str, rank: int) -> bool:
        del dtype
        return op == "SUB" and rank == 8


@entered("fails-and-wrong-at-rank-6")
class _FailsAndWrong(Faulty):
    def fails(self, op: str, dtype: str, rank: int) -> bool:
        del dtype
        return op == "MUL" and rank != 6

    def wrong(self, op: str, *_: Any) -> bool:
        return op == "MUL"


@entered("ignores-activations-and-wrong-at-rank-0")
class _ActivationsAndRank0(_IgnoresActivations):
    def wrong(self, op: str, dtype: str, rank: int, *_: Any) -> bool:
        del dtype
        return op == "ADD" and rank == 0


class FaultySpec(DelegateSpec, frozen=True):
    """A chain in which these delegates may stand."""

    maker: ClassVar[str] = "tests.tflite.domain.faulty"


def make(content: bytes) -> DelegateWorker:
    """From a `FaultySpec` as JSON."""
    ours = {f"faulty-{name}": DelegatePersonality(name, name, made) for name, made in DELEGATES.items()}
    PERSONALITIES.update(ours)
    try:
        return DelegateWorker(msgspec.json.decode(content, type=FaultySpec))
    finally:
        for name in ours:
            del PERSONALITIES[name]


def opened(name: str, runtime: str) -> DelegateTarget:
    """One of them; in children if it ends its process."""
    spec = FaultySpec(((f"{PREFIX}{name}", {}),), runtime)
    executor = Executor(spec, CODEC, "fork" if "aborts" in name else "off", 60.0, guards=False)
    return DelegateTarget(f"{PREFIX}{name}", (), executor)
