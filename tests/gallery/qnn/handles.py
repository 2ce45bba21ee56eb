"""Values of handles and of tensor ids."""

from __future__ import annotations

import ctypes
import itertools
import random
from typing import Any

from pytest_qnn.qnn.reference.objects import Graph, Kind
from tests.gallery.qnn.oddity import Odd, odd

_ALL = 2**64 - 1


class _Reusing(Odd):
    """Takes values that have become free."""

    def _is_live(self, value: int) -> bool:
        return any(value in table for table in self._tables.values())

    def _give(self, kind: Kind, value: int) -> int:
        self.lost.discard((kind, value))
        return value


@odd(
    "handles-from-minus-one",
    "handles are the largest numbers: 2^64 - 1, 2^64 - 2, ...",
    source="facts IF-09: handles are opaque, never 0 on success",
    seen="(void*)-1 as a backend",
    tried_by="IF-09 REG-01",
)
class FromMinusOne(Odd):
    def mint(self, kind: Kind) -> int:
        self.meet()
        return _ALL + 1 - next(self._serial)


@odd(
    "handles-are-addresses",
    "a handle is the address of an object, and a freed object's place is used again at once",
    source="facts IF-09: opaque; facts 1.7: values may be reused at once",
    seen="values that look like pointers, and that come back",
    tried_by="REG-24 DRG-04",
)
class Addresses(_Reusing):
    def __init__(self) -> None:
        self._blocks: dict[int, Any] = {}
        super().__init__()

    def mint(self, kind: Kind) -> int:
        for value in self._blocks:
            if not self._is_live(value):
                self.meet()
                return self._give(kind, value)
        block = ctypes.create_string_buffer(64)
        self._blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)


@odd(
    "handles-in-one-space",
    "all kinds of objects share one range of numbers from 1, and the last that became free is given out next",
    source="facts 1.7 and IF-09: equal values for different kinds are legal, values are reused at once",
    seen="a freed context's value may be a graph's next",
    tried_by="CTX-04 REG-24",
)
class OneSpace(_Reusing):
    def __init__(self) -> None:
        self._values: list[int] = []
        super().__init__()

    def mint(self, kind: Kind) -> int:
        for value in reversed(self._values):
            if not self._is_live(value):
                self.meet()
                self._values.remove(value)
                break
        else:
            value = len(self._values) + 1
        self._values.append(value)
        return self._give(kind, value)


@odd(
    "handles-alike-in-each-kind",
    "every kind begins at the same large number, so that a context, a graph and a memory have equal handles",
    source="facts IF-09: equal values for different kinds are legal, compare only within one kind",
    seen="context == graph == memory handle",
    tried_by="DRG-03 REG-01",
)
class AlikeInEachKind(Odd):
    def __init__(self) -> None:
        self._counts: dict[Kind, Any] = {}
        super().__init__()

    def mint(self, kind: Kind) -> int:
        self.meet()
        return (1 << 40) + next(self._counts.setdefault(kind, itertools.count()))


class _OwnIds(Odd):
    """Tensors get ids of its own choice: unique in the context, as facts PRE-07 says."""

    def _next_id(self, taken: set[int]) -> int:
        raise NotImplementedError

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        super().tensor_create_graph_tensor(graph, tensor)
        owner: Graph = self.graphs[graph or 0]
        made = owner.tensors.pop(tensor[0].v1.id)
        others = owner.context.graphs.values()
        made.id = self._next_id({number for each in others for number in each.tensors})
        owner.tensors[made.id] = made
        tensor[0].v1.id = made.id
        self.meet()


@odd(
    "ids-from-zero",
    "the first tensor of a context has id 0",
    source="facts PRE-07: creation writes the id, ids are unique within the context; no value is excluded",
    seen="id 0",
    tried_by="PRE-07 EXE-15",
)
class FromZero(_OwnIds):
    def _next_id(self, taken: set[int]) -> int:
        return next(number for number in itertools.count() if number not in taken)


@odd(
    "ids-at-random",
    "ids of tensors are 32 random bits, in no order",
    source="facts PRE-07: unique within the context",
    seen="ids above 2^31, not ascending",
    tried_by="PRE-07 EXE-15",
)
class AtRandom(_OwnIds):
    def __init__(self) -> None:
        self._random = random.Random(1)
        super().__init__()

    def _next_id(self, taken: set[int]) -> int:
        draws = (self._random.getrandbits(32) for _ in itertools.count())
        return next(number for number in draws if number not in taken)


@odd(
    "tensor-ids-of-a-process",
    "ids of tensors go on through all contexts: no two tensors of the process have the same one",
    source="QnnTensor.h: the id is unique in its graph or context; libQnnHtp does so",
    seen="a graph out of a binary has the ids of the graph that was written, and the next one has others",
    tried_by="OFF-05 OFF-03 EXE-15",
)
class IdsOfAProcess(Odd):
    given = 0

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is not None:
            self.meet()
            self.given = owner.context.tensors = max(self.given, owner.context.tensors)
        super().tensor_create_graph_tensor(graph, tensor)
        if owner is not None:
            self.given = max(self.given, owner.context.tensors)
