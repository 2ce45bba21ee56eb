"""Building blocks of memory cases: a Tape of drawn bytes, and a Scene that makes steps from it.

Drawing is cheap because a case is drawn as one string of bytes and decoded here. Zero bytes
mean the simplest choice everywhere, and a record of a step starts with the byte that says whether there is
a step at all; so Hypothesis shrinks a case to few steps by zeroing bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha512
from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.qnn.cases.case import (
    INT_MAX,
    MOST_PARTS,
    MOST_STEPS,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    Lived,
    Logged,
    MemoryCase,
    Prepare,
    QnnDType,
    QnnOp,
    Register,
    Write,
)
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.cases.memory import CUSTOM
from pytest_qnn.qnn.cases.repeat import in_place, is_done_once, like, most_repetitions, repetitions
from pytest_qnn.qnn.cases.sizes import PAGE, io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts, memory_types
from pytest_qnn.qnn.strategies.company import mixed, with_descriptors, with_graphs, with_handles
from pytest_qnn.qnn.strategies.history import (
    FAR,
    FEW,
    HEAD_BYTES,
    ONCE,
    PLAIN,
    Again,
    Head,
    Kind,
    Scale,
    head_of,
)

T = TypeVar("T")

SHAPES: tuple[tuple[int, ...], ...] = ((1, 2, 2, 2), (1,), (1, 1, 1, 7), (2, 3), (1, 4, 4, 3), (1, 8, 8, 4))
"""Shapes of tensors, the graphs' default first; at most 256 elements."""
_LITTLE = 64
"""Bytes of a tensor of no concern."""
_SPARE = (0, 1, 64, PAGE, 3 * PAGE + 5)
"""Bytes that a buffer has more than its tensor."""


class Tape:
    """A string of drawn bytes, read as small numbers. Past its end everything is zero, the simplest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        """0 to 255."""
        at = self._at
        self._at = at + 1
        return self._data[at] if at < len(self._data) else 0

    def below(self, bound: int) -> int:
        """0 to ``bound`` - 1, for bounds up to 65536."""
        if bound <= 256:
            return self.byte() % max(1, bound)
        return (self.byte() | self.byte() << 8) % bound

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True in one case of ``one_in``; never for zero bytes."""
        return self.below(one_in) == one_in - 1

    def cut(self, length: int) -> Tape:
        """The next ``length`` bytes as a tape of their own: one record."""
        part = Tape(self._data[self._at : self._at + length])
        self._at += length
        return part


class Scene:
    """A case under construction: adds steps that are in order, and knows what is alive by its name.

    Every method that adds a step is in order unless its docstring says otherwise; a rule adds its own
    (wrong) step with `add`.
    """

    def __init__(self, facts: MemoryFacts) -> None:
        self.facts = facts
        self.types = memory_types(facts)
        self.operators: tuple[tuple[QnnOp, QnnDType], ...] = facts.operators  # type: ignore[assignment] # data of the same words
        self.steps: list[AnyStep] = []
        self.alive = Alive()
        self.buffers = self.alive.buffers
        self.handles = self.alive.handles
        self.dead = self.alive.dead
        self.graphs = self.alive.graphs
        self.scale = PLAIN
        """Of the rule's own steps (`pytest_qnn.qnn.strategies.history`)."""
        self._made: dict[str, int] = {}

    def case(self) -> MemoryCase:
        """The case as it stands; without executes where the target says that it has none (key 311)."""
        left = self.steps if self.facts.executes else [s for s in self.steps if not isinstance(s, Execute)]
        return MemoryCase(tuple(left))

    def name(self, kind: str) -> str:
        """A name never used before: ``c0``, ``c1``, ``b0``, ..."""
        number = self._made.get(kind, 0)
        self._made[kind] = number + 1
        return f"{kind}{number}"

    def add(self, step: AnyStep) -> None:
        """Add any step as it is; what is alive is not updated."""
        self.steps.append(step)

    def follow(self, step: AnyStep) -> None:
        """Add a step that does what it says, and take over what lives and ends with it."""
        self.add(step)
        self.alive.follow(step)

    @property
    def contexts(self) -> list[str]:
        """Live contexts."""
        return list(self.alive.contexts)

    # Objects

    def context(self) -> str:
        """A new context."""
        name = self.name("c")
        self.follow(ContextCreate(name))
        return name

    def any_context(self, tape: Tape) -> str:
        """A live context: one there is, or a new one."""
        return tape.pick(self.contexts) if self.contexts else self.context()

    def free_context(self, name: str) -> None:
        """Free a context; its registrations and graphs go with it."""
        self.follow(ContextFree(name))

    def alloc(self, size: int) -> str:
        """A new rpcmem buffer of ``size`` bytes; of more than rpcmem can say, the client's own memory."""
        name = self.name("b")
        self.follow(Alloc(name, size, own=size > INT_MAX))
        return name

    def free(self, buffer: str) -> None:
        """Free a buffer; the caller sees to it that nothing is registered over it."""
        self.follow(Free(buffer))

    def tensor(self, tape: Tape) -> tuple[tuple[int, ...], QnnDType]:
        """A shape and a data type."""
        dtypes: tuple[QnnDType, ...] = ("UFIXED_POINT_8", "FLOAT_32")
        shape, dtype = tape.pick(SHAPES), tape.pick(dtypes)
        return self.scale.shaped(shape, dtype), dtype

    def lead(self, *, touched: bool = False) -> int:
        """Bytes before a tensor in a shared buffer; none that are too many to be filled, if they are.

        Many come once in a case, and few from then on: a backend may pin what it maps, which takes about one
        second of time for each gibibyte.
        """
        lead = self.scale.offset
        if lead <= FAR:
            return lead
        if touched:
            return 0
        self.scale = self.scale._replace(offset=_LITTLE)
        return lead

    def descriptor(self, tape: Tape, *, touched: bool = False) -> Descriptor:
        """A valid descriptor over a new buffer: exactly as large as the tensor, or larger.

        Four bytes of the tape are read, whatever they say. ``touched``: the buffer will be filled or read as
        a whole.
        """
        shape, dtype = self.tensor(tape)
        kind = tape.pick(self.types)
        needed = nbytes(shape, dtype)
        # One byte for both: what is left of it says how far in what is to spare the tensor begins.
        share, room = divmod(tape.byte(), len(_SPARE))
        spare = _SPARE[room]
        offset = 4 * (spare // 4 * share // (255 // len(_SPARE))) if kind == CUSTOM else 0
        lead = self.lead(touched=touched) if CUSTOM in self.types else 0
        if lead:
            kind, offset, spare = CUSTOM, offset + lead, spare + lead
        buffer = self.alloc(needed + spare)
        return Descriptor(buffer, shape, dtype, kind, offset=offset)

    def register(self, context: str, *descriptors: Descriptor) -> tuple[str, ...]:
        """Register a batch in one call; gives the handles' names.

        On a scale with large batches the first is filled up, before and behind, with tensors of no concern.
        """
        names = tuple(self.name("h") for _ in descriptors)
        others = self._others(len(descriptors), descriptors[0].mem_type if descriptors else 0)
        more = [self.name("h") for _ in others]
        batch = mixed(descriptors, others, self.scale.position)
        handles = mixed(names, more, self.scale.position)
        self.follow(Register(context, batch, handles))
        return names

    def _others(self, count: int, kind: int) -> list[Descriptor]:
        missing = min(self.scale.batch, MOST_PARTS) - count
        if not count or missing <= 0 or kind not in self.types:
            return []
        self.scale = self.scale._replace(batch=0)
        return [Descriptor(self.alloc(_LITTLE), (_LITTLE,), mem_type=kind) for _ in range(missing)]

    def deregister(self, *handles: str) -> None:
        """Deregister live handles in one call."""
        self.follow(Deregister(handles))

    # Graphs

    def prepare(
        self,
        context: str,
        tape: Tape,
        mem_types: tuple[int, ...] = (),
        shape: tuple[int, ...] | None = None,
    ) -> str:
        """A graph of an operator that the target takes; ``""`` when it takes none."""
        if not self.operators:
            return ""
        op, dtype = tape.pick(self.operators)
        chosen = self.scale.of_graph(shape or tape.pick(SHAPES), dtype)
        name = self.name("g")
        made = Prepare(name, context, op, dtype, chosen, mem_types)
        if self.scale.version:
            made = msgspec.structs.replace(made, version=self.scale.version)
        self.follow(made)
        return name

    def tensor_memory(self, graph: str, kind: int | None = None) -> tuple[str, ...]:
        """Register a new buffer of its own for each IO tensor of ``graph``; gives the handles' names.

        Each buffer is filled, and those of inputs get contents of seeds 1, 2, ...
        """
        made = self.graphs[graph]
        names: list[str] = []
        needed = nbytes(made.shape, made.dtype)
        for position in range(io_inputs(made) + 1):
            buffer = self.alloc(needed)
            self.add(Fill(buffer))
            if position < io_inputs(made):
                self.add(Write(buffer, needed, seed=1 + position, dtype=made.dtype))
            shape = made.shape
            of_type = self.types[0] if kind is None else kind
            names += self.register(made.context, Descriptor(buffer, shape, made.dtype, of_type))
        return tuple(names)

    def execute_raw(self, graph: str, seed: int = 0) -> None:
        """Execute with raw memory for every tensor; input ``i`` has contents ``seed + i``."""
        inputs = io_inputs(self.graphs[graph])
        bindings = [Binding(seed=seed + position) for position in range(inputs)]
        self.add(Execute(graph, (*bindings, Binding())))

    def execute_handles(self, graph: str, handles: Sequence[str]) -> None:
        """Execute with a memory handle for every tensor."""
        self.add(Execute(graph, tuple(Binding("handle", handle) for handle in handles)))

    # Surroundings

    def around(self, tape: Tape) -> None:
        """At most one thing that is in order and does not concern what is there already."""
        act = tape.below(8)
        if act in (1, 2):
            self.register(self.any_context(tape), self.descriptor(tape))
        elif act == 3:
            self.context()
        elif act == 4:
            batch = [self.descriptor(tape) for _ in range(2 + tape.below(2))]
            self.register(self.any_context(tape), *batch)
        elif act == 5:
            (handle,) = self.register(self.any_context(tape), self.descriptor(tape))
            self.deregister(handle)
        elif act == 6:
            self.alloc(1 + tape.below(2 * PAGE))
        elif act == 7:
            graph = self.prepare(self.any_context(tape), tape)
            if graph:
                self.execute_raw(graph, tape.byte())

    def around_memory(self, tape: Tape) -> None:
        """At most one unrelated thing that concerns rpcmem alone."""
        act = tape.below(4)
        if act:
            buffer = self.alloc(1 + tape.below(2 * PAGE))
            if act == 2:
                self.add(Fill(buffer, tape.byte()))
            elif act == 3:
                self.free(buffer)

    # History

    def live_before(self, head: Head) -> None:
        """Ordinary life, which leaves a context and perhaps more (`Lived`, and at its end some steps)."""
        if head.past == "log":
            self.add(Logged(1 + head.detail % 5, profile=head.detail // 16 % 2 == 1))
        elif head.past == "steps":
            self._some_of_everything(head.detail)
        elif head.past:
            self._lived(head)

    def _lived(self, head: Head) -> None:
        memory = self.types[head.detail % len(self.types)] if self.facts.supports(_MEMORY) else 0
        step = Lived("contexts", mem_type=memory)
        if head.past == "turns":
            if not self.operators or not memory:
                return
            op, dtype = self.operators[0]
            step = Lived("turns", rounds=3 + head.detail % 6, mem_type=memory, op=op, dtype=dtype)
        elif head.past == "contexts":
            step = Lived("contexts", rounds=_CONTEXTS[head.detail % len(_CONTEXTS)], mem_type=memory)
        else:
            context, few = self.context(), head.detail % 64
            refused = head.past == "refused"
            step = Lived("refused", context, 1 + few // 2, mem_type=memory)
            if not refused:
                rounds = _REGISTRATIONS[head.detail % len(_REGISTRATIONS)]
                step = Lived("registrations", context, rounds, mem_type=memory)
        self.add(step)
        if head.past == "registrations" and memory:
            kept = _KEPT[head.detail // 16 % len(_KEPT)]
            little = (Descriptor(self.alloc(_LITTLE), (_LITTLE,), mem_type=memory) for _ in range(kept))
            self.register(step.context, *little)

    def _some_of_everything(self, detail: int) -> None:
        """Registered, deregistered and freed, in two contexts of which one goes; and a graph that runs."""
        tape = Tape(sha512(bytes((detail,))).digest())
        mine, other = self.context(), self.context()
        for context in (mine, other, mine):
            if self.facts.supports(_MEMORY):
                handles = self.register(context, *(self.descriptor(tape) for _ in range(2)))
                buffers = [self.handles[handle].descriptor.buffer for handle in handles]
                self.deregister(*handles)
                for buffer in buffers:
                    self.free(buffer)
        graph = self.prepare(mine, tape.cut(2))
        if graph:
            self.execute_raw(graph, detail)
        self.free_context(other)

    # Company and repetition of the rule's own steps, which are those from ``begin`` on

    def accompany(self, begin: int, scale: Scale) -> None:
        """On a scale with large batches: other handles beside the rule's own, and other graphs."""
        if not scale.batch:
            return
        own = with_graphs(tuple(self.steps[begin:]), scale.batch - 1, self.name)
        if self.facts.supports(_MEMORY):
            known = self.alive.registered
            own = with_descriptors(own, scale.batch, scale.position, known, self.types[0], self.name)
            own = with_handles(own, scale.batch, scale.position, known, self.types[0], self.name)
        self.steps[begin:] = own

    def repeat(self, begin: int, again: Again) -> None:
        """Do the steps several times before; what that makes is not used."""
        own = tuple(self.steps[begin:])
        steps = _MOST_REPEATED if again.times > FEW else _MOST_FEW
        is_once = again.otherwise or any(isinstance(step, Alloc) and step.size > FAR for step in own)
        most = most_repetitions(own, steps) if again.times and not is_once else 0
        times = min(again.times, most)
        if times and again.in_place:
            self.steps[begin:] = in_place(own, times, frozenset(self.alive.registered), self._like)
        elif times:
            self.steps[begin:] = repetitions(own, times, again.kept, self._like, gathering=again.gathering)

    def _like(self, name: str) -> str:
        return self.name(like(name))


AROUND_BYTES = 16
_MOST_FEW, _MOST_REPEATED = 32, 64
"""Steps of a few repetitions, and of dozens: each step costs the runner, the oracle and the rules."""
_MEMORY = 1101
_CONTEXTS = (300, 100, 257, 40, 300, 300, 64, 300)
_REGISTRATIONS = (300, 300, 257, 300, 130, 300, 300, 64)
"""Rounds: mostly many, since what starts at the n-th object mostly stays."""
_KEPT = (1, 2, 1, 9, 1, 3, 1, 33)
"""Of the registrations, so many stay."""
_BUFFERS_KEPT = (33, 1, 17, 0, 40, 8, 3, 24)


def _buffers_before(scene: Scene, head: Head) -> None:
    """The history of a rule about rpcmem alone."""
    if head.past:
        kept = _BUFFERS_KEPT[head.detail % len(_BUFFERS_KEPT)]
        scene.add(Lived("buffers", rounds=1 + head.detail % 64 * 5, kept=kept))


def _other(data: bytes, number: int) -> bytes:
    """Other bytes, the same for the same ones."""
    return bytes(byte * (2 * number + 1) + 97 * number & 255 for byte in data)


def scenes(
    facts: MemoryFacts,
    core: Callable[[Scene, Tape], None],
    *,
    core_bytes: int = 32,
    before: int = 3,
    after: int = 1,
    around: Callable[[Scene, Tape], None] = Scene.around,
    without: frozenset[Kind] = frozenset(),
) -> st.SearchStrategy[MemoryCase]:
    """Cases whose middle is ``core``, with up to ``before`` and ``after`` unrelated things around it.

    ``core(scene, tape)`` adds the rule's own steps, reading at most ``core_bytes`` bytes of the tape. The
    surroundings are read behind them, so that they can vanish while the core stays; ``around`` makes one.
    In front of all this is what the first bytes say of history and scale
    (`pytest_qnn.qnn.strategies.history`), but for the kinds in ``without``: `WITHOUT` has the reasons.
    """
    live = _buffers_before if around is Scene.around_memory else Scene.live_before

    def decode(data: bytes) -> MemoryCase:
        head = head_of(data, without)
        case = made(data, head)
        never = head.again.otherwise and any(map(is_done_once, case.steps))
        return made(data, head._replace(again=ONCE)) if never or len(case.steps) > MOST_STEPS else case

    def made(data: bytes, head: Head) -> MemoryCase:
        tape = Tape(data[HEAD_BYTES:])
        own = tape.cut(core_bytes)
        scene = Scene(facts)
        live(scene, head)
        for _ in range(before):
            around(scene, tape.cut(AROUND_BYTES))
        scene.scale = head.scale
        if head.again.otherwise:
            for number in range(1, head.again.times + 1):
                core(scene, Tape(_other(data[HEAD_BYTES : HEAD_BYTES + core_bytes], number)))
        begin = len(scene.steps)
        core(scene, own)
        scene.scale = PLAIN
        scene.accompany(begin, head.scale)
        scene.repeat(begin, head.again)
        for _ in range(after):
            around(scene, tape.cut(AROUND_BYTES))
        return scene.case()

    length = HEAD_BYTES + core_bytes + (before + after) * AROUND_BYTES
    return decoded(length, decode)
