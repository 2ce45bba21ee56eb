"""Conditions that several late faults share: numbers of objects, refusals, executes and turns."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Binding, Graph, Identity, Kind, Registration
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

PAGE = 4096
KIB64 = 64 * 1024
MIB = 1024 * 1024
GIB4 = 1 << 32

Place = tuple[Identity, int]
"""A file and an offset in it."""


def place_of(registration: Registration) -> Place:
    """Where a registered tensor lies."""
    return registration.request.identity, registration.request.offset


class Numbered(ReferenceBackend):
    """Numbers the objects of each kind from 1, in the order in which they were made."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.made: Counter[Kind] = Counter()
        self.number: dict[int, int] = {}
        """By handle."""
        super().__init__(personality)

    def mint(self, kind: Kind) -> int:
        """Count."""
        handle = super().mint(kind)
        self.made[kind] += 1
        self.number[handle] = self.made[kind]
        return handle


class Refusals(ReferenceBackend):
    """Counts the calls of each table entry that were refused."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.refused: Counter[str] = Counter()
        super().__init__(personality)
        # The table asks for the answer of every entry that is not served while it is made.
        self.refused.clear()

    def answer(self, name: str, code: int) -> int:
        """Count."""
        self.refused[name] += bool(code)
        return super().answer(name, code)


class Slots(ReferenceBackend):
    """Registrations sit in slots of their context, each in the first free one."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.slots: dict[int, list[Registration]] = {}
        """By context: who has, or had last, each slot."""
        self.before: dict[int, Registration] = {}
        """By handle: who had its slot before."""
        super().__init__(personality)

    def adopt(self, registration: Registration) -> None:
        """Take a slot."""
        super().adopt(registration)
        slots = self.slots.setdefault(registration.context.handle, [])
        for i, holder in enumerate(slots):
            if holder.handle not in self.registrations:
                self.before[registration.handle] = holder
                slots[i] = registration
                return
        slots.append(registration)


class Executes(ReferenceBackend):
    """Counts the executes of each graph, the one under way included."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.executes: Counter[int] = Counter()
        super().__init__(personality)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        """Count."""
        self.executes[graph.handle] += 1
        super().begin_execute(graph, sources, sinks)


class Turns(ReferenceBackend):
    """Counts how often the contexts of each pair have taken turns at executing."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.turns: Counter[frozenset[int]] = Counter()
        self.running = 0
        self.third_time = False
        """The execute under way is the second one of the third time, or a later one: A B A B A B."""
        super().__init__(personality)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        """Count."""
        pair = frozenset({self.running, graph.context.handle})
        self.running = graph.context.handle
        self.turns[pair] += 1
        self.third_time = len(pair) == 2 and self.turns[pair] >= 5
        super().begin_execute(graph, sources, sinks)


class LastInputs(ReferenceBackend):
    """Remembers the input bytes of every graph's last execute."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.last: dict[tuple[int, int], Stored] = {}
        """By graph and tensor."""
        super().__init__(personality)

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        """Remember."""
        stored = super().read_input(graph, binding)
        self.last[graph.handle, binding.tensor.id] = stored.copy()
        return stored


class Versions(ReferenceBackend):
    """Knows whether the tensor that is being created is of version 2."""

    newer = False

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        """Look at the version."""
        self.newer = bool(tensor) and tensor[0].version == 2
        super().tensor_create_graph_tensor(graph, tensor)
