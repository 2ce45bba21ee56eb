"""`pytest_qnn.Graph`: graphs as authors of tests build them, checked where they are built.

The check takes about as long as making an interpreter, and a thousand times as long as making the struct. The
suite makes hundreds of thousands of graphs that are valid as they are made, or that are checked when their
file is read, and some that are wrong on purpose. So the struct checks nothing, and what authors call in its
place does.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

import msgspec

from pytest_qnn.core.bounds import BadCase, need, shown
from pytest_qnn.tflite.cases.valid import OF_AUTHORS, check_graph, check_part
from pytest_qnn.tflite.graph import graph as structs
from pytest_qnn.tflite.graph.graph import Activation, DType, Node, Op, Tensor

# Where a test's module is imported pytest asks no hook which frames it shows.
__tracebackhide__ = True

_Part = TypeVar("_Part", Tensor, Node)


class _Checking(type):
    """Calling the class gives a checked struct; the structs are its instances, whoever made them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return checked(structs.Graph(*args, **kwargs))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, structs.Graph)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, structs.Graph)


class Graph(metaclass=_Checking):
    """A directed acyclic graph in execution order, checked where it is built.

    The shape of a result whose shape depends on contents (a RESHAPE by a tensor that is no constant, and
    what follows from it) is the one that the model states; a runtime finds another one out. Sizes are not
    limited.

    Raises:
        ValueError: no runtime could work with the graph. One sentence names the node and its operator, or the
            tensor, and what is wrong: an operator that there is not, too few or too many operands, types,
            ranks or shapes that do not fit, a tensor that there is not, that is read before it is written,
            or that is written twice.
    """

    __match_args__ = ("tensors", "nodes", "inputs", "outputs", "subgraphs", "validation", "control_edges")
    __signature__ = inspect.signature(structs.Graph)


def checked(graph: structs.Graph) -> structs.Graph:
    """The graph, with tuples in place of lists.

    Raises:
        ValueError: no runtime could work with it; one sentence.
    """
    try:
        formed = _formed(graph)
        # A subgraph is built before the graph that calls it, and here is checked as what it is.
        if formed.validation:
            check_part(formed, 0, OF_AUTHORS)
        else:
            check_graph(formed, OF_AUTHORS)
    except BadCase as error:
        raise ValueError(str(error)) from None
    return formed


def _formed(graph: structs.Graph) -> structs.Graph:
    """The graph with each field of the type that it is declared with."""
    return msgspec.structs.replace(
        graph,
        tensors=tuple(map(_tensor, *_counted("tensors", graph.tensors))),
        nodes=tuple(map(_node, *_counted("nodes", graph.nodes))),
        inputs=_indices("inputs", graph.inputs),
        outputs=_indices("outputs", graph.outputs),
        subgraphs=tuple(map(_subgraph, *_counted("subgraphs", graph.subgraphs))),
    )


def _counted(name: str, parts: Any) -> tuple[Iterator[int], Any]:
    need(isinstance(parts, tuple | list), f"{name} of a graph are a tuple, not {shown(parts)}")
    return iter(range(len(parts))), parts


def _tensor(index: int, tensor: Any) -> Tensor:
    where = f"tensor {index}"
    if not isinstance(tensor, Tensor):
        raise BadCase(f"{where} is {shown(tensor)}, not a Tensor")
    _known(where, "type", tensor.dtype, get_args(DType))
    return _typed(where, tensor)


def _node(index: int, node: Any) -> Node:
    if not isinstance(node, Node):
        raise BadCase(f"node {index} is {shown(node)}, not a Node")
    where = f"node {index} ({node.op})"
    _known(where, "operator", node.op, get_args(Op))
    _known(where, "activation", node.activation, get_args(Activation))
    return _typed(where, node)


def _known(where: str, what: str, name: object, names: tuple[str, ...]) -> None:
    need(name in names, f"{where}: there is no {what} {shown(name)}; there are {', '.join(sorted(names))}")


def _typed(where: str, part: _Part) -> _Part:
    """The part with fields of the types that are declared, which a struct does not check when it is made."""
    try:
        formed: _Part = msgspec.convert(msgspec.structs.asdict(part), type(part))
    except msgspec.ValidationError as error:
        raise BadCase(f"{where}: {str(error).replace('at `$.', 'in `')}") from None
    return formed


def _indices(name: str, indices: Any) -> tuple[int, ...]:
    need(
        isinstance(indices, tuple | list) and all(type(index) is int for index in indices),
        f"{name} of a graph are a tuple of tensors' indices, not {shown(indices)}",
    )
    return tuple(indices)


def _subgraph(number: int, part: Any) -> structs.Graph:
    need(isinstance(part, structs.Graph), f"subgraph {number + 1} is {shown(part)}, not a Graph")
    return _formed(part)
