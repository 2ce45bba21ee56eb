"""Building blocks of cases in which graphs execute: graphs, registered memory for them, executes, reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import msgspec
from hypothesis import strategies as st

from pytest_qnn.qnn.cases.case import (
    NULL,
    Binding,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    QnnOp,
    Read,
    Write,
)
from pytest_qnn.qnn.cases.memory import CUSTOM, ION
from pytest_qnn.qnn.cases.sizes import PAGE, arity, io_inputs, nbytes, pages
from pytest_qnn.qnn.strategies.history import FAR, MOST_SAVED
from pytest_qnn.qnn.strategies.scene import SHAPES, Scene, Tape

ODD_SHAPES = (*SHAPES, (3,), (1, 3, 5, 7), (5, 13), (1, 1, 9, 33), (2, 1, 3, 5))
OUTSIDE = (77, 0x7FFFFFFF, 5, 255)
"""No Qnn_TensorMemType_t, or its member UNDEFINED."""
PROPERTY_KEYS = (1101, 1102, 1103, 1104, 502, 202, 215, 217, 304, 317, 318, 1001, 2, 2999)
"""Keys to ask for: of memory, graphs, contexts and devices, and one that there is not."""

Bindings = tuple[Binding, ...]


class Memory(msgspec.Struct, frozen=True):
    """The registered memory of a graph's IO tensors (inputs first), and of spare tensors after them."""

    handles: tuple[str, ...]
    buffers: tuple[str, ...]
    offsets: tuple[int, ...]


def shuffled(tape: Tape, count: int) -> list[int]:
    """A permutation of ``range(count)``; zero bytes give the identity.

    One byte tells all permutations of up to five apart. Of more than eight, two bytes move the first four.
    """
    pool = list(range(count))
    number = tape.below(min(factorial(count), 1 << 16))
    order = []
    while pool:
        number, at = divmod(number, len(pool))
        order.append(pool.pop(at))
    return order


def graph(scene: Scene, tape: Tape, mem_types: tuple[int, ...] | None = None) -> str:
    """A graph in a context of its own, each tensor hinted or not; "" where the target takes no operator."""
    hints = tape.byte()
    if mem_types is None:
        mem_types = tuple(hints >> tensor & 1 for tensor in range(3))
    return prepared(scene, tape, mem_types, tape.pick(ODD_SHAPES))


def prepared(scene: Scene, tape: Tape, mem_types: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """A graph in a context of its own, with as many of ``mem_types`` as it has IO tensors."""
    name = scene.prepare(scene.context(), tape, shape=shape)
    if name and any(mem_types):
        hint(scene, name, mem_types)
    return name


_TERMS = (9, 5, 16, 7)
"""Inputs of a graph of many: more, and fewer, than eight results that are alive at once."""


def terms_of(byte: int) -> int:
    """How many inputs a graph shall have, as a leading byte says: 0, or in four of sixteen cases many."""
    return _TERMS[(byte >> 4) - 12] if byte >> 4 >= 16 - len(_TERMS) else 0


def of_many(scene: Scene, tape: Tape, terms: int, context: str = "") -> str:
    """A graph of so many inputs, in this context or one of its own.

    "" for none, or where the target takes none.
    """
    offered = set(scene.operators)
    ops: tuple[QnnOp, ...] = ("ElementWiseSubtract", "ElementWiseAdd")
    fitting = [op for op in ops if (op, "FLOAT_32") in offered]
    if not terms or not fitting or ("Reshape", "FLOAT_32") not in offered:
        return ""
    shape = scene.scale.of_graph(tape.pick(ODD_SHAPES), "FLOAT_32", MOST_SAVED)
    name = scene.name("g")
    context = context or scene.context()
    scene.follow(Prepare(name, context, tape.pick(fitting), "FLOAT_32", shape, terms=terms))
    return name


_BROADCASTING = ((7,), (3, 5), (2, 3, 5), (2, 2, 3, 4), (2, 3, 2, 2, 3))
_PLACES = tuple((shape, at) for shape in _BROADCASTING for at in range(1, len(shape) + 1))
"""Every rank, and every dimension of it counted from the last: fifteen."""


def broadcasting(scene: Scene, tape: Tape, byte: int, context: str = "") -> str:
    """A graph of weights that are broadcast along one dimension, in this context or one of its own.

    ``byte``: a leading one, each sixteenth of which stands for a rank and a dimension, but for the first,
    which stands for none; "" for that, or where the target takes no operator with two inputs.
    """
    fitting = [each for each in scene.operators if arity(each[0]) == 2]
    if not byte >> 4 or not fitting:
        return ""
    shape, narrow = _PLACES[(byte >> 4) - 1]
    op, dtype = tape.pick(fitting)
    name = scene.name("g")
    seed = 1 + tape.byte()
    scene.follow(Prepare(name, context or scene.context(), op, dtype, shape, weights=seed, narrow=narrow))
    return name


def hint(scene: Scene, name: str, mem_types: tuple[int, ...]) -> None:
    """Give the tensors of a graph memory types after all."""
    made = scene.graphs[name]
    changed = msgspec.structs.replace(made, mem_types=mem_types[: tensors_of(scene, name)])
    scene.steps[scene.steps.index(made)] = changed
    scene.alive.prepare(name, changed)


def tensors_of(scene: Scene, name: str) -> int:
    """IO tensors of the graph."""
    return io_inputs(scene.graphs[name]) + 1


def register_all(
    scene: Scene, tape: Tape, context: str, descriptors: Sequence[Descriptor]
) -> tuple[str, ...]:
    """Register in any order, one by one or in one or two batches; gives the handles as ``descriptors``."""
    order = shuffled(tape, len(descriptors))
    cut = (1, len(order), 2)[tape.below(3)]
    handles = [""] * len(order)
    for start in range(0, len(order), cut):
        batch = order[start : start + cut]
        names = scene.register(context, *(descriptors[tensor] for tensor in batch))
        for tensor, handle in zip(batch, names, strict=True):
            handles[tensor] = handle
    return tuple(handles)


def own_buffers(scene: Scene, tape: Tape, name: str, kind: int = ION) -> Memory:
    """A filled buffer of its own for each IO tensor."""
    made = scene.graphs[name]
    spare = tape.pick((0, 1, PAGE))
    buffers = [scene.alloc(nbytes(made.shape, made.dtype) + spare) for _ in range(tensors_of(scene, name))]
    for buffer in buffers:
        scene.add(Fill(buffer))
    descriptors = [Descriptor(buffer, made.shape, made.dtype, kind) for buffer in buffers]
    handles = register_all(scene, tape, made.context, descriptors)
    return Memory(handles, tuple(buffers), (0,) * len(buffers))


def placed(scene: Scene, offset: int) -> int:
    """The offset, or the first one of a page behind it where the target takes no others."""
    return pages(offset) if scene.facts.only_aligned else offset


def one_buffer(scene: Scene, tape: Tape, name: str, spares: int = 0, *, far: bool = False) -> Memory:
    """One filled buffer for all tensors and ``spares`` more, in any order.

    ``far``: it may be so large that it is not filled.
    """
    made = scene.graphs[name]
    grain = 4 if made.dtype == "FLOAT_32" else 1
    count = tensors_of(scene, name) + spares
    offsets = [0] * count
    end = scene.lead(touched=not far)
    for tensor in shuffled(tape, count):
        offsets[tensor] = placed(scene, end + grain * tape.pick((0, 1, 3, 16, 29, 64)))
        end = offsets[tensor] + nbytes(made.shape, made.dtype)
    buffer = scene.alloc(end + tape.pick((0, 1, 64, 4099)))
    if scene.buffers[buffer] <= FAR:
        scene.add(Fill(buffer))
    descriptors = [Descriptor(buffer, made.shape, made.dtype, CUSTOM, offset=offset) for offset in offsets]
    handles = register_all(scene, tape, made.context, descriptors)
    return Memory(handles, (buffer,) * count, tuple(offsets))


MEMORY_BYTES = 9
"""Of a tape, for `any_memory` of a graph of up to three tensors."""


def any_memory(scene: Scene, tape: Tape, name: str) -> Memory:
    """Memory of any kind that the target declares."""
    kind = tape.pick(scene.types)
    if kind == CUSTOM and tape.chance(2):
        return one_buffer(scene, tape, name)
    return own_buffers(scene, tape, name, kind)


def load(scene: Scene, name: str, memory: Memory, seed: int) -> None:
    """Write the inputs that a raw execute with ``seed`` would have."""
    made = scene.graphs[name]
    size = nbytes(made.shape, made.dtype)
    for tensor in range(io_inputs(made)):
        step = Write(memory.buffers[tensor], size, memory.offsets[tensor], seed + tensor, made.dtype)
        scene.add(step)


def execute(scene: Scene, name: str, memory: Memory | None, raw: int = 0, seed: int = 0) -> None:
    """Execute with the tensors whose bits are set in ``raw`` (or all, without memory) in raw memory."""
    bindings = []
    for tensor in range(tensors_of(scene, name)):
        if memory is None or raw >> tensor & 1:
            bindings.append(Binding(seed=seed + tensor if tensor < io_inputs(scene.graphs[name]) else 0))
        else:
            bindings.append(Binding("handle", memory.handles[tensor]))
    scene.add(Execute(name, tuple(bindings)))


def read(scene: Scene, buffers: Sequence[str]) -> None:
    """Read each of the buffers once, but for those that are too large."""
    for buffer in dict.fromkeys(buffers):
        if scene.buffers.get(buffer, 0) <= FAR:
            scene.add(Read(buffer))


def output_of(scene: Scene, name: str, memory: Memory) -> str:
    """The buffer of the graph's output."""
    return memory.buffers[tensors_of(scene, name) - 1]


def rounds(scene: Scene, tape: Tape, name: str, memory: Memory, turns: int) -> None:
    """Write, execute, read, with other contents in each round."""
    for turn in range(turns):
        seed = 16 * turn + tape.below(16)
        load(scene, name, memory, seed)
        execute(scene, name, memory)
        read(scene, memory.buffers)


Cases = st.SearchStrategy[MemoryCase]

RAW, MEMHANDLE = 0, 1


def raw(scene: Scene, name: str, seed: int = 0) -> Bindings:
    """Raw memory for every tensor of a graph."""
    inputs = io_inputs(scene.graphs[name])
    return (*(Binding(seed=seed + position) for position in range(inputs)), Binding())


def change(bindings: Bindings, position: int, **fields: object) -> Bindings:
    """The bindings with one of them changed."""
    changed = msgspec.structs.replace(bindings[position], **fields)
    return (*bindings[:position], changed, *bindings[position + 1 :])


def mistake(scene: Scene, tape: Tape, name: str) -> None:
    """An execute with a NULL handle for an input, or with an input too few or twice."""
    inputs = arity(scene.graphs[name].op)
    act = tape.below(3)
    if act == 0:
        null = change(raw(scene, name), tape.below(inputs), kind="handle", handle=NULL)
        scene.add(Execute(name, null))
    else:
        given = tuple(range(inputs - 1)) if act == 1 and inputs > 1 else (*range(inputs), 0)
        scene.add(Execute(name, raw(scene, name), inputs=given))
