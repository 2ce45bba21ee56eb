"""Each fault that starts late can be triggered: one case for each, which the faultless reference passes."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_qnn.core.mutant import Mutant
from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.plugin import AnyPluginStep, Create, Cycle, Destroy, PluginCase
from pytest_qnn.tflite.cases.plugin import Apply as ApplyPlugin
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    CopyFrom,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    Profile,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.constants import int8_weights, integers
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.mutants import PLUGIN, late, table
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import address_of
from pytest_qnn.tflite.reference.personalities import PERSONALITIES
from pytest_qnn.tflite.runner.delegates import delegate_factory
from pytest_qnn.tflite.runner.plugin.run import run_plugin_case
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runner.script import run_script_case
from pytest_qnn.tflite.runtime.runtime import RuntimeMissing, load_runtime
from pytest_qnn.tflite.runtime.state import context_of
from pytest_qnn.tflite.trace import DelegateTrace, InvokeCounts, PluginTrace, ScriptTrace

Array = npt.NDArray[Any]

try:
    RUNTIME = load_runtime("tflite_runtime")
except RuntimeMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)


class Client:
    """An interpreter of a graph, as an application uses it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.interpreter = RUNTIME.interpreter(emit(graph))

    def apply(self, delegate: ReferenceDelegate) -> bool:
        return self._works(lambda: self.interpreter._interpreter.ModifyGraphWithDelegate(delegate.address))

    def allocate(self) -> bool:
        return self._works(self.interpreter.allocate_tensors)

    def resize(self, *shapes: tuple[int, ...]) -> bool:
        for index, shape in zip(self.graph.inputs, shapes, strict=True):
            self.interpreter.resize_tensor_input(index, shape)
        return self.allocate()

    def invoke(self, *values: Array) -> bool:
        for index, value in zip(self.graph.inputs, values, strict=True):
            self.interpreter.set_tensor(index, value)
        for index in self.graph.outputs:
            if index not in self.graph.inputs:
                self.interpreter.tensor(index)().fill(77)
        return self._works(self.interpreter.invoke)

    def right(self, *values: Array) -> bool:
        """An invoke gives what the CPU gives."""
        plain = Client(self.graph)
        plain.resize(*(value.shape for value in values))
        assert plain.invoke(*values)
        return self.invoke(*values) and all(map(_same, self.outputs(), plain.outputs()))

    def outputs(self) -> list[Array]:
        return [self.interpreter.get_tensor(index) for index in self.graph.outputs]

    @staticmethod
    def _works(call: Callable[[], object]) -> bool:
        try:
            call()
        except (RuntimeError, ValueError):
            return False
        return True


def _same(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype == np.int8:
        return bool((np.abs(one.astype(int) - other.astype(int)) <= 1).all())
    return np.allclose(one, other, rtol=1e-4, atol=1e-5)


class Delegates:
    """Makes the delegate of a case: the mutant, or the faultless reference that it is a copy of."""

    def __init__(self, mutant: Mutant, *, faulty: bool) -> None:
        self._kind = mutant.made if faulty else _base(mutant.made)
        names = {one.delegate: f"reference:{name}" for name, one in PERSONALITIES.items()}
        self._spec = f"mutant:{mutant.name}" if faulty else names.get(self._kind, "reference")
        self.made: list[ReferenceDelegate] = []

    def __call__(self, **options: Any) -> ReferenceDelegate:
        self.made.append(self._kind(**options))
        return self.made[-1]

    def ready(self, graph: Graph, delegate: ReferenceDelegate | None = None) -> Client:
        """An interpreter with the delegate applied, and its tensors allocated."""
        client = Client(graph)
        assert client.apply(delegate or self())
        assert client.allocate()
        return client

    def run(self, case: DelegateCase, options: Mapping[str, str] | None = None) -> DelegateTrace:
        return run_delegate_case(case, [delegate_factory(self._spec, options or {}, RUNTIME)], RUNTIME)

    def script(self, graph: Graph, *steps: AnyScriptStep, buffers: bool = False) -> ScriptTrace:
        factory = delegate_factory(self._spec, {}, RUNTIME)
        case = ScriptCase((graph,), steps, buffers=buffers)
        return run_script_case(case, [factory], RUNTIME, lambda *_: factory)

    def plugin(self, *steps: AnyPluginStep) -> PluginTrace:
        return run_plugin_case(
            PluginCase(unary("NEG", 3), steps), [delegate_factory(self._spec, {}, RUNTIME)], RUNTIME
        )


def _base(made: type[Any]) -> type[Any]:
    """The first conforming class among those that a mutant is made from."""
    return next(kind for kind in made.__mro__ if kind.__module__.startswith("pytest_qnn.tflite.reference"))


Case = Callable[[Delegates], bool]
"""Whether everything is as the documents demand."""
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def take(function: Case) -> Case:
        CASES[f"late-{name}"] = function
        return function

    return take


# Graphs and values.


def floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-4, 4, shape).astype(np.float32)


def constant(*shape: int, seed: int = 9) -> Tensor:
    return Tensor(shape, data=floats(*shape, seed=seed).tobytes())


def unary(op: Op, *shape: int) -> Graph:
    return Graph((Tensor(shape), Tensor(shape)), (Node(op, (0,), (1,)),), (0,), (1,))


def binary(op: Op, left: tuple[int, ...], right: tuple[int, ...]) -> Graph:
    result = np.broadcast_shapes(left, right)
    return Graph((Tensor(left), Tensor(right), Tensor(result)), (Node(op, (0, 1), (2,)),), (0, 1), (2,))


def chain(count: int, *shape: int) -> Graph:
    """x -> NEG -> x + x0 -> NEG -> ..."""
    nodes = [
        Node("ADD", (at, 0), (at + 1,)) if at % 2 else Node("NEG", (at,), (at + 1,)) for at in range(count)
    ]
    return Graph(tuple(Tensor(shape) for _ in range(count + 1)), tuple(nodes), (0,), (count,))


def fully_connected(depth: int, units: int, *, seed: int = 9) -> Graph:
    tensors = (Tensor((1, depth)), constant(units, depth, seed=seed), constant(units), Tensor((1, units)))
    return Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,)),), (0,), (3,))


def convolution(width: int, channels: int, stride: int) -> Graph:
    out = -(-width // stride)
    tensors = (
        Tensor((1, width, width, 2)),
        constant(channels, 3, 3, 2),
        constant(channels),
        Tensor((1, out, out, channels)),
    )
    node = Node("CONV_2D", (0, 1, 2), (3,), stride=(stride, stride))
    return Graph(tensors, (node,), (0,), (3,))


def int8_pair(count: int, scale: float = 0.0625, zero: int = 17) -> Graph:
    one = Tensor((count,), "int8", (scale,), (zero,))
    return Graph((one, one), (Node("ADD", (0, 0), (1,)),), (0,), (1,))


def of_int8(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(-60, 60, shape).astype(np.int8)


def gives_the_cpus_results(name: str, graph: Graph, *values: Array) -> None:
    """Enter a case: one invoke of the whole graph."""
    inputs = values or tuple(floats(*graph.tensors[index].shape, seed=index + 1) for index in graph.inputs)
    case(name)(lambda delegates: delegates.ready(graph).right(*inputs))


# Lengths.

gives_the_cpus_results("result-64-kib", unary("NEG", 20_000))
gives_the_cpus_results("second-mebibyte", unary("NEG", 300_000))
gives_the_cpus_results("operand-page", unary("NEG", 1500))
gives_the_cpus_results(
    "large-constant",
    Graph((Tensor((5000,)), constant(5000), Tensor((5000,))), (Node("ADD", (0, 1), (2,)),), (0,), (2,)),
)
gives_the_cpus_results("fifteen-of-sixteen", binary("SUB", (31,), (31,)))
gives_the_cpus_results(
    "slope-remainder",
    Graph((Tensor((1, 19)), constant(19), Tensor((1, 19))), (Node("PRELU", (0, 1), (2,)),), (0,), (2,)),
    -np.abs(floats(1, 19)) - 1,
)
gives_the_cpus_results("zero-point-remainder", int8_pair(35), of_int8(35))
gives_the_cpus_results("odd-width", convolution(5, 3, 2))
gives_the_cpus_results("sum-remainder", fully_connected(300, 2))
gives_the_cpus_results("bias-17", convolution(3, 20, 1))


def _channels() -> Graph:
    weights, biases = int8_weights((40, 8), 3, 0.0625, True)
    tensors = (
        Tensor((1, 8), "int8", (0.0625,), (0,)),
        weights,
        biases,
        Tensor((1, 40), "int8", (0.0625,), (0,)),
    )
    return Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,)),), (0,), (3,))


gives_the_cpus_results("channel-33", _channels(), of_int8(1, 8))


@case("writes-in-eights")
def _writes_in_eights(delegates: Delegates) -> bool:
    ready = (MakeDelegate("d0"), Open("i0"), Place("i0", 1), Apply("i0", "d0"), Allocate("i0"))
    trace = delegates.script(unary("NEG", 69), *ready, *USE)
    assert _right(trace)
    return not trace.touches


@case("empty-after-full")
def _empty_after_full(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 2, 3))
    assert client.right(floats(2, 3))
    assert client.resize((0, 3))
    child = os.fork()
    if not child:
        faulthandler.disable()
        os._exit(not client.right(floats(0, 3)))
    return not os.waitpid(child, 0)[1]


# Operands.

gives_the_cpus_results("rank-five", unary("ABS", 2, 2, 1, 2, 3))
gives_the_cpus_results(
    "rank-three-join",
    Graph(
        (Tensor((2, 2, 2)), Tensor((2, 2, 3)), Tensor((2, 2, 5))),
        (Node("CONCATENATION", (0, 1), (2,), axis=2),),
        (0, 1),
        (2,),
    ),
)
gives_the_cpus_results("broadcast-middle", binary("ADD", (2, 3, 4), (2, 1, 4)))
gives_the_cpus_results("broadcast-left", binary("SUB", (1, 4), (3, 4)))
gives_the_cpus_results(
    "tensor-twice", Graph((Tensor((3,)), Tensor((3,))), (Node("MUL", (0, 0), (1,)),), (0,), (1,))
)
gives_the_cpus_results(
    "fifth-operand",
    Graph(
        (*(Tensor((2,)) for _ in range(5)), Tensor((10,))),
        (Node("CONCATENATION", (0, 1, 2, 3, 4), (5,)),),
        (0, 1, 2, 3, 4),
        (5,),
    ),
)
gives_the_cpus_results(
    "three-axes",
    Graph(
        (Tensor((2, 3, 4, 2)), integers((0, 1, 2)), Tensor((2,))), (Node("MEAN", (0, 1), (2,)),), (0,), (2,)
    ),
)
gives_the_cpus_results(
    "bias-of-the-last",
    Graph(
        (Tensor((1, 4)), constant(4, 4), constant(4), Tensor((1, 4)), Tensor((1, 4))),
        (Node("FULLY_CONNECTED", (0, 1, 2), (3,)), Node("FULLY_CONNECTED", (3, 1, -1), (4,))),
        (0,),
        (4,),
    ),
)
gives_the_cpus_results(
    "ninth-activation",
    Graph(
        tuple(Tensor((4,)) for _ in range(10)),
        (*(Node("NEG", (at,), (at + 1,)) for at in range(8)), Node("ADD", (8, 0), (9,), "RELU6")),
        (0,),
        (9,),
    ),
)
gives_the_cpus_results(
    "reused-scratch",
    Graph(
        tuple(Tensor((4,)) for _ in range(21)),
        (
            Node("MUL", (0, 0), (1,)),
            *(Node("NEG" if at % 3 else "ABS", (at,), (at + 1,)) for at in range(1, 19)),
            Node("ADD", (19, 1), (20,)),
        ),
        (0,),
        (20,),
    ),
)

# Partitions.


def _fork() -> Graph:
    """t1 = -t0; t2 = |t1|, left to the CPU; t3 = t1 + t2, t4 = t3 + t1, both results; t1 is one too."""
    nodes = (
        Node("NEG", (0,), (1,)),
        Node("ABS", (1,), (2,)),
        Node("ADD", (1, 2), (3,)),
        Node("ADD", (3, 1), (4,)),
    )
    return Graph(tuple(Tensor((3,)) for _ in range(5)), nodes, (0,), (1, 3, 4))


@case("outputs-of-the-first")
def _outputs_of_the_first(delegates: Delegates) -> bool:
    return delegates.ready(_fork(), delegates(claim=(0, 2, 3))).right(floats(3))


@case("fifth-kernel")
def _fifth_kernel(delegates: Delegates) -> bool:
    graph = chain(9, 3)
    return delegates.ready(graph, delegates(claim=range(0, 9, 2))).right(floats(3))


@case("output-kept")
def _output_kept(delegates: Delegates) -> bool:
    client = delegates.ready(_fork(), delegates(claim=(0, 2, 3)))
    return all(client.right(floats(3, seed=seed)) for seed in range(2))


@case("foreign-operand")
def _foreign_operand(delegates: Delegates) -> bool:
    client, other = Client(chain(2, 3)), ReferenceDelegate(claim=(0,))
    delegates.made.append(other)
    assert client.apply(other)
    assert client.apply(delegates())
    assert client.allocate()
    return all(client.right(floats(3, seed=seed)) for seed in range(3))


@case("asks-at-invoke")
def _asks_at_invoke(delegates: Delegates) -> bool:
    return delegates.ready(chain(9, 3)).right(floats(3))


USE = (SetInputs("i0", 3), Invoke("i0"), Read("i0"))


def _profiled(delegates: Delegates, graph: Graph) -> ScriptTrace:
    steps = (MakeDelegate("d0"), Open("i0"), Profile("i0"), Apply("i0", "d0"), Allocate("i0"), *USE)
    return delegates.script(graph, *steps)


def _right(trace: ScriptTrace) -> bool:
    """The last step has read what the CPU gives."""
    return trace.steps[-1].outputs == trace.steps[-1].cpu != ()


@case("profiled-outputs")
def _profiled_outputs(delegates: Delegates) -> bool:
    return _right(_profiled(delegates, _fork()))


@case("profiled-events")
def _profiled_events(delegates: Delegates) -> bool:
    trace = _profiled(delegates, chain(6, 3))
    assert _right(trace)
    return trace.steps[-2].counted(InvokeCounts).delegate == 6


@case("own-stale-operand")
def _own_stale_operand(delegates: Delegates) -> bool:
    """Two results of a first kernel go into a second one, and a third result by way of the CPU."""
    nodes = (
        Node("NEG", (0,), (1,)),
        Node("MUL", (0, 0), (2,)),
        Node("ADD", (0, 0), (6,)),
        Node("ABS", (6,), (3,)),
        Node("ADD", (1, 3), (4,)),
        Node("SUB", (4, 2), (5,)),
    )
    graph = Graph(tuple(Tensor((3,)) for _ in range(7)), nodes, (0,), (5,))
    return delegates.ready(graph, delegates(claim=(0, 1, 2, 4, 5))).right(floats(3))


# Repetitions.


@case("hundredth-invoke")
def _hundredth_invoke(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 3))
    assert all(client.invoke(floats(3, seed=seed)) for seed in range(99))
    return client.right(floats(3, seed=100))


@case("same-beginning")
def _same_beginning(delegates: Delegates) -> bool:
    client, values = delegates.ready(unary("NEG", 8)), floats(8)
    assert client.right(values)
    values[6] += 1
    return client.right(values)


@case("interpreters-in-turn")
def _third_turn(delegates: Delegates) -> bool:
    shared = delegates()
    clients = [delegates.ready(unary("NEG", 3), shared) for _ in range(2)]
    turns = [clients[turn % 2].right(floats(3, seed=turn)) for turn in range(5)]
    assert all(turns[:4])
    return turns[4]


@case("old-results-after-failure")
def _old_results_after_failure(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 3), delegates(fault="second-invoke"))
    assert client.right(floats(3))
    assert not client.invoke(floats(3))
    return client.right(floats(3, seed=2))


@case("second-failure-is-ok")
def _second_failure_is_ok(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 3), delegates(fault="kernel-invoke"))
    assert not client.invoke(floats(3))
    return not client.invoke(floats(3))


@case("fourth-failure-silent")
def _fourth_failure_silent(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 3), delegates(fault="kernel-invoke"))
    texts = []
    for _ in range(4):
        with pytest.raises(RuntimeError) as failure:
            client.interpreter.invoke()
        texts.append(str(failure.value))
    assert "reference delegate" in texts[0]
    return "reference delegate" in texts[3].rpartition("Node number")[0][len(texts[2]) - len(texts[3]) :]


@case("refuses-after-refusal")
def _refuses_after_refusal(delegates: Delegates) -> bool:
    """What a delegate that failed had claimed nobody can claim after it (RT-01)."""
    failing, delegate, graph = ReferenceDelegate(fault="prepare"), delegates(), unary("NEG", 3)
    delegates.made.append(failing)
    client = Client(graph)
    assert not client.apply(failing)
    assert not client.apply(delegate)
    other = Client(graph)
    return other.apply(delegate) and other.allocate() and other.right(floats(3))


@case("prepared-again")
def _prepared_again(delegates: Delegates) -> bool:
    other = ReferenceDelegate(claim=(1,))
    delegates.made.append(other)
    client = delegates.ready(chain(2, 3), delegates(claim=(0,)))
    assert client.right(floats(3))
    assert client.apply(other)
    assert client.allocate()
    return client.right(floats(3, seed=2))


@case("resize-and-back")
def _resize_and_back(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 2, 3))
    assert client.right(floats(2, 3))
    assert client.resize((4, 3))
    assert client.right(floats(4, 3))
    return client.resize((2, 3)) and client.right(floats(2, 3, seed=2))


@case("grows-by-half")
def _grows_by_half(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 2, 3))
    assert client.right(floats(2, 3))
    assert client.resize((5, 3))
    assert client.right(floats(5, 3))
    return client.resize((6, 3)) and client.right(floats(6, 3))


@case("keeps-addresses")
def _keeps_addresses(delegates: Delegates) -> bool:
    ready = (MakeDelegate("d0"), Open("i0"), Place("i0", 0, "b0"), Apply("i0", "d0"), Allocate("i0"))
    steps = (*ready, *USE, *USE, *USE, Place("i0", 0, "b1"), SetInputs("i0", 5), *USE[1:])
    return _right(delegates.script(unary("NEG", 3), *steps))


@case("quantisation-of-the-last")
def _quantisation_of_the_last(delegates: Delegates) -> bool:
    shared = delegates()
    client = delegates.ready(int8_pair(8), shared)
    assert client.right(of_int8(8))
    other = Tensor((8,), "int8", (0.0625,), (17,))
    changed = Graph((other, Tensor((8,), "int8", (0.25,), (-30,))), (Node("ADD", (0, 0), (1,)),), (0,), (1,))
    assert delegates.ready(changed, shared).right(of_int8(8))
    return client.right(of_int8(8))


# Lifetimes.


@case("kernel-17")
def _kernel_17(delegates: Delegates) -> bool:
    shared, graph = delegates(), unary("NEG", 3)
    clients = [delegates.ready(graph, shared) for _ in range(16)]
    assert all(client.right(floats(3)) for client in clients)
    return Client(graph).apply(shared)


@case("unused-kernels")
def _unused_kernels(delegates: Delegates) -> bool:
    shared, graph = delegates(), unary("NEG", 3)
    for _ in range(8):
        delegates.ready(graph, shared)
    client = Client(graph)
    return client.apply(shared) and client.allocate() and client.right(floats(3))


@case("free-of-a-middle-one")
def _free_of_a_middle_one(delegates: Delegates) -> bool:
    shared = delegates()
    clients = [delegates.ready(unary("NEG", 3), shared) for _ in range(3)]
    del clients[1]
    assert clients[0].right(floats(3))
    return clients[1].right(floats(3))


@case("reused-place")
def _reused_place(delegates: Delegates) -> bool:
    shared = delegates()
    first, second = (delegates.ready(fully_connected(4, 2), shared) for _ in range(2))
    assert first.right(floats(1, 4))
    assert second.right(floats(1, 4))
    del first
    return delegates.ready(fully_connected(4, 2, seed=5), shared).right(floats(1, 4))


def _in_use() -> int:
    gc.collect()
    size = libc.malloc_in_use()
    assert size is not None
    return size


def _grows(repeated: Callable[[], object], times: int, size: int) -> bool:
    """Memory in use grows by about so many bytes each time, if other uses of it are left out."""
    found = []
    gc.freeze()  # what there is already need not be gone through each time
    try:
        for _ in range(7):
            for _ in range(times):
                repeated()
            found.append(_in_use())
    finally:
        gc.unfreeze()
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(found)) > size * 3 / 4


@case("leaks-third-kernel")
def _leaks_third_kernel(delegates: Delegates) -> bool:
    shared, graph = delegates(), unary("NEG", 3)
    return not _grows(lambda: delegates.ready(graph, shared), 60, 20 * 1024)


@case("leaks-on-failure")
def _leaks_on_failure(delegates: Delegates) -> bool:
    shared, graph = delegates(fault="prepare"), unary("NEG", 3)
    return not _grows(lambda: Client(graph).apply(shared), 20, 20 * 4096)


@case("leaks-per-large-invoke")
def _leaks_per_large_invoke(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 1100))
    assert client.right(floats(1100))
    return not _grows(client.interpreter.invoke, 1000, 64_000)


@case("opens-a-file-each")
def _opens_a_file_each(delegates: Delegates) -> bool:
    shared = delegates()
    before = set(os.listdir("/proc/self/fd"))
    clients = [delegates.ready(unary("NEG", 3), shared) for _ in range(6)]
    clients.clear()
    left = set(os.listdir("/proc/self/fd")) - before
    for descriptor in left:
        if os.path.exists(f"/proc/self/fd/{descriptor}"):
            os.close(int(descriptor))
    return not left


# Claims.


@case("ninth-node-unchecked")
def _ninth_node_unchecked(delegates: Delegates) -> bool:
    """The ninth node is a grouped convolution."""
    tensors = [Tensor((1, 3, 3, 4)) for _ in range(10)]
    nodes = [Node("NEG", (at,), (at + 1,)) for at in range(8)]
    nodes.append(Node("CONV_2D", (8, 10, 11), (9,)))
    graph = Graph((*tensors, constant(4, 3, 3, 2), constant(4)), tuple(nodes), (0,), (9,))
    client = Client(graph)
    return client.apply(delegates()) and client.allocate() and client.right(floats(1, 3, 3, 4))


@case("second-foreign-kernel")
def _second_foreign_kernel(delegates: Delegates) -> bool:
    other = ReferenceDelegate(claim=(0, 2))
    delegates.made.append(other)
    client = Client(chain(5, 3))
    assert client.apply(other)
    return client.apply(delegates(claim=(3,))) and client.allocate() and client.right(floats(3))


@case("fourth-partition")
def _fourth_partition(delegates: Delegates) -> bool:
    graph = chain(9, 3)
    claimed = delegates.run(
        DelegateCase(graph, (Application("probe", range_of(1, 9)), Application())),
        {"max_delegated_partitions": "3"},
    )
    return sum(kernel.application == 1 for kernel in claimed.kernels) == 3


def range_of(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last, 2))


@case("keeps-subgraph")
def _keeps_subgraph(delegates: Delegates) -> bool:
    """Two nodes that branch."""
    one, decision = Tensor((2,)), Tensor((1,), "bool")
    ways = tuple(Graph((one, one), (Node(op, (0,), (1,)),), (0,), (1,)) for op in ("NEG", "ABS"))
    nodes = (
        Node("LESS", (0, 1), (2,)),
        Node("IF", (2, 3), (4,), subgraphs=(1, 2)),
        Node("IF", (2, 4), (5,), subgraphs=(1, 2)),
    )
    number = Tensor((1,), "int32")
    graph = Graph((number, number, decision, one, one, one), nodes, (0, 1, 3), (5,), ways)
    trace = delegates.script(graph, MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"))
    calls = trace.interpreters[0].subgraph_calls
    assert sum(call.acquire for call in calls) >= 4
    return all(
        sum(call.acquire for call in calls if call.index == index)
        == sum(not call.acquire for call in calls if call.index == index)
        for index in (1, 2)
    )


# Buffers.

gives_the_cpus_results("copy-of-pages", unary("NEG", 1500))


@case("third-copy")
def _third_copy(delegates: Delegates) -> bool:
    ready = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    copies = (CopyFrom("i0"), Read("i0"))
    return _right(delegates.script(unary("NEG", 3), *ready, *USE, *copies, *copies, buffers=True))


@case("ninth-buffer")
def _ninth_buffer(delegates: Delegates) -> bool:
    graph = Graph(
        tuple(Tensor((3,)) for _ in range(10)),
        tuple(Node("ADD", (at, 0), (at + 1,)) for at in range(9)),
        (0,),
        tuple(range(1, 10)),
    )
    return delegates.ready(graph).right(floats(3))


@case("unknown-after-free")
def _unknown_after_free(delegates: Delegates) -> bool:
    shared = delegates()
    assert delegates.ready(unary("NEG", 3), shared).right(floats(3))
    client = delegates.ready(unary("NEG", 3), shared)
    assert client.right(floats(3))
    context = context_of(client.interpreter)
    copy = layouts.CopyBufferHandle(layouts.Delegate.from_address(shared.address).CopyFromBufferHandle)
    return bool(copy(context, shared.address, 4711, address_of(context, 1)))


@case("reused-handle")
def _reused_handle(delegates: Delegates) -> bool:
    shared = delegates()
    assert delegates.ready(unary("NEG", 3), shared).right(floats(3))
    return delegates.ready(unary("NEG", 3), shared).right(floats(3, seed=2))


@case("buffer-never-shrinks")
def _buffer_never_shrinks(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 4, 3))
    assert client.right(floats(4, 3))
    assert client.resize((2, 3))
    return client.right(floats(2, 3))


# Shapes.


@case("fourth-shape")
def _fourth_shape(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 2, 3))
    lengths = [client.resize((length, 3)) and client.right(floats(length, 3)) for length in (3, 4, 5, 6)]
    assert lengths[0]
    return all(lengths)


@case("never-shrinks")
def _never_shrinks(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 4, 3))
    assert client.right(floats(4, 3))
    assert client.resize((6, 3))
    assert client.right(floats(6, 3))
    return client.resize((2, 3)) and client.right(floats(2, 3))


@case("as-many-elements")
def _as_many_elements(delegates: Delegates) -> bool:
    client = delegates.ready(unary("NEG", 4, 3))
    assert client.right(floats(4, 3))
    assert client.resize((5, 3))
    assert client.right(floats(5, 3))
    return client.resize((3, 5)) and client.right(floats(3, 5))


@case("other-input-resized")
def _other_input_resized(delegates: Delegates) -> bool:
    client = delegates.ready(binary("ADD", (1, 3), (2, 3)))
    assert client.right(floats(1, 3), floats(2, 3))
    return client.resize((1, 3), (4, 3)) and client.right(floats(1, 3), floats(4, 3))


# The plugin interface.

THREADS, PROFILING = (b"num_threads", b"2"), (b"profiling", b"False")
UNKNOWN = (b"threads", b"2")


@case("create-33")
def _create_33(delegates: Delegates) -> bool:
    (_, seen) = delegates.plugin(Cycle(8), Create("d0")).steps
    return bool(seen.made)


@case("fifth-option")
def _fifth_option(delegates: Delegates) -> bool:
    four = (THREADS, PROFILING, THREADS, PROFILING)
    assert delegates.plugin(Create("d0", four)).steps[0].made
    return not delegates.plugin(Create("d0", (*four, UNKNOWN))).steps[0].made


@case("long-value")
def _long_value(delegates: Delegates) -> bool:
    return not delegates.plugin(Create("d0", ((b"num_threads", b"0" * 30 + b"2x"),))).steps[0].made


@case("without-reporter")
def _without_reporter(delegates: Delegates) -> bool:
    assert not delegates.plugin(Create("d0", (UNKNOWN,))).steps[0].made
    return not delegates.plugin(Create("d0", (UNKNOWN,), report="null")).steps[0].made


@case("second-delegate")
def _second_delegate(delegates: Delegates) -> bool:
    (_, seen) = delegates.plugin(Create("d0"), Create("d1", ((b"profiling", b"True"),))).steps
    return seen.struct is not None and seen.struct.flags == 4


def _leaks(delegates: Delegates, *options: tuple[bytes, bytes]) -> bool:
    (seen,) = delegates.plugin(Cycle(64, options)).steps
    return seen.in_use[-1] - seen.in_use[0] > 3 * seen.times * 1024 * 3 / 4


@case("leaks-options")
def _leaks_options(delegates: Delegates) -> bool:
    return not _leaks(delegates, THREADS, PROFILING)


@case("leaks-refusals")
def _leaks_refusals(delegates: Delegates) -> bool:
    return not _leaks(delegates, THREADS, UNKNOWN)


@case("reports-at-destroy")
def _reports_at_destroy(delegates: Delegates) -> bool:
    steps = [step for name in ("d0", "d1", "d2") for step in (Create(name), Destroy(name))]
    return not any(seen.late for seen in delegates.plugin(*steps).steps)


@case("destroy-of-three")
def _destroy_of_three(delegates: Delegates) -> bool:
    made = (Create("d0"), Create("d1"), Create("d2"), Destroy("d2"))
    trace = delegates.plugin(*made, ApplyPlugin("d0"))
    return not trace.steps[-1].error and trace.steps[-1].outputs == trace.cpu


# The tests.


def _conforms(name: str, *, faulty: bool) -> bool:
    delegates = Delegates(late()[name], faulty=faulty)
    try:
        return CASES[name](delegates)
    finally:
        for delegate in delegates.made:
            delegate.close()


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_faultless_reference_passes_the_case(name: str) -> None:
    assert _conforms(name, faulty=False)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_fault_can_be_triggered(name: str) -> None:
    assert not _conforms(name, faulty=True)


@pytest.mark.parametrize("name", sorted(CASES))
def test_in_simple_use_the_fault_is_not_there(name: str) -> None:
    delegates = Delegates(late()[name], faulty=True)
    if late()[name].part == PLUGIN:
        made, applied, _ = (
            trace := delegates.plugin(Create("d0", (THREADS,)), ApplyPlugin("d0"), Destroy("d0"))
        ).steps
        assert made.made
        assert applied.outputs == trace.cpu
        return
    client = delegates.ready(binary("SUB", (2, 3), (2, 3)))
    for _ in range(2):
        assert client.right(floats(2, 3), floats(2, 3, seed=2))
    client.__dict__.clear()
    delegates.made[0].close()
    assert not delegates.made[0].errors


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("result-64-kib", unary("NEG", 16_384)),
        ("second-mebibyte", unary("NEG", 262_144)),
        ("operand-page", unary("NEG", 2048)),
        ("fifteen-of-sixteen", binary("SUB", (30,), (30,))),
        ("fifteen-of-sixteen", binary("SUB", (15,), (15,))),
        ("odd-width", convolution(6, 3, 2)),
        ("odd-width", convolution(5, 3, 1)),
        ("sum-remainder", fully_connected(256, 2)),
        ("sum-remainder", fully_connected(512, 2)),
        ("bias-17", convolution(3, 16, 1)),
        ("rank-five", unary("ABS", 2, 1, 2, 3)),
        ("broadcast-middle", binary("ADD", (2, 3, 4), (1, 3, 4))),
        ("broadcast-middle", binary("ADD", (2, 3, 4), (2, 3, 1))),
        ("broadcast-left", binary("SUB", (3, 4), (1, 4))),
        ("asks-at-invoke", chain(8, 3)),
        ("reused-scratch", chain(17, 3)),
        ("copy-of-pages", unary("NEG", 2048)),
    ],
)
def test_next_to_its_condition_the_fault_is_not_there(name: str, graph: Graph) -> None:
    delegates = Delegates(late()[f"late-{name}"], faulty=True)
    inputs = [floats(*graph.tensors[index].shape, seed=index + 1) for index in graph.inputs]
    assert delegates.ready(graph).right(*inputs)
    delegates.made[0].close()


def test_there_is_a_case_for_each() -> None:
    assert set(CASES) == set(late())
    assert len(late()) >= 40


def test_they_stand_in_no_other_table_and_name_no_rules() -> None:
    assert not set(late()) & set(table())
    assert all(name.startswith("late-") and not mutant.kills for name, mutant in late().items())


def test_the_table_does_not_load_them() -> None:
    code = (
        "import sys; from pytest_qnn.tflite.mutants import named, table; table(); named('splits-claim');"
        "assert not [name for name in sys.modules if '.late' in name]; assert named('late-kernel-17');"
        "assert 'late-kernel-17' not in table(); table.cache_clear(); assert 'late-kernel-17' not in table()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
