"""Late faults of external weights and spill-fill memory, and of the properties that tell their sizes."""

from __future__ import annotations

import ctypes
import itertools
from collections import Counter
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import Error, HtpContextOption, HtpMemType, TensorType
from pytest_qnn.qnn.late.conditions import KIB64, MIB, Turns
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.binaries import Binary
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Context, Graph, Identity, QnnError, Registration, Request, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.reference.registrations import ROLES, SPILL, WEIGHTS


@faulty_backend(
    "late-spill-first-two",
    "The spill-fill size that a context asks for is the larger of its first two graphs'.",
)
class _SpillFirstTwo(ReferenceBackend):
    """Source: seed 002, step 4 (the largest of all graphs); catalogue, EXT-06."""

    def needed_spill(self, binary: Binary) -> int:
        return super().needed_spill(Binary(binary.build, binary.graphs[:2]))


@faulty_backend(
    "late-weights-from-third",
    "The weights size that a context asks for leaves the third and later graphs out.",
)
class _WeightsFromThird(ReferenceBackend):
    """Source: seed 002, step 4 (all the weights of the context); catalogue, EXT-06."""

    def needed_weights(self, binary: Binary) -> int:
        return super().needed_weights(Binary(binary.build, binary.graphs[:2]))

    def place(self, context: Context) -> None:
        # What has no place in the memory is kept inside, so only the property tells.
        whole, context.graphs = context.graphs, dict(list(context.graphs.items())[:2])
        super().place(context)
        context.graphs = whole


@faulty_backend(
    "late-property-third",
    "The third property of one contextGetProperty is not written, and the call succeeds.",
)
class _PropertyThird(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_getProperty (NULL-terminated list); catalogue, EXT-03."""

    def context_get_property(self, context: int | None, properties: int | None) -> None:
        listed = ctypes.cast(properties or 0, ctypes.POINTER(ctypes.c_void_p))
        entries = (
            list(itertools.takewhile(bool, (listed[i] for i in itertools.count()))) if properties else []
        )
        third = entries[2] if len(entries) >= 3 else 0
        place = layouts.ContextProperty.from_address(third).customProperty if third else None
        before = layouts.HtpContextProperty.from_address(place).value if place else 0
        super().context_get_property(context, properties)
        if place:
            layouts.HtpContextProperty.from_address(place).value = before


@faulty_backend(
    "late-property-after-giving", "Once a context has external weights, the weights size it tells is 0."
)
class _PropertyAfterGiving(ReferenceBackend):
    """Source: seed 002, step 2; catalogue, EXT-05."""

    def context_property(self, context: Context, option: int) -> int:
        value = super().context_property(context, option)
        given = context.external is not None and WEIGHTS in context.external.given
        return 0 if given and option == HtpContextOption.WEIGHTS_BUFFER_SIZE else value


@faulty_backend(
    "late-weights-third-context",
    "That weights memory has a context already is noticed only where that is the newest other one.",
)
class _WeightsThirdContext(ReferenceBackend):
    """Source: seed 002, step 4 (weights buffers are unique to a context); catalogue, EXT-13."""

    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        found = super().excludes(context, request, other)
        both = request.role == other.request.role == WEIGHTS and other.context is not context
        newest = next((each for each in reversed(self.contexts.values()) if each is not context), None)
        return found and not (both and other.context is not newest)


@faulty_backend(
    "late-spill-fourth-context", "Spill-fill memory of three contexts is refused to a fourth one (8002)."
)
class _SpillFourthContext(ReferenceBackend):
    """Source: seed 002, step 4 (shared by contexts); catalogue, EXT-15."""

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        same = [each for each in self.registrations.values() if each.request.identity == request.identity]
        if request.role == SPILL and sum(each.request.role == SPILL for each in same) >= 3:
            raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)


@faulty_backend(
    "late-fixed-once",
    "External memory of a finalised context is deregistered by the second attempt.",
)
class _FixedOnce(ReferenceBackend):
    """Source: seed 002, step 5 (it cannot be deregistered); catalogue, EXT-21."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.attempts: Counter[int] = Counter()
        super().__init__(personality)

    def is_fixed(self, registration: Registration) -> bool:
        fixed = super().is_fixed(registration)
        self.attempts[registration.handle] += fixed
        return fixed and self.attempts[registration.handle] < 2


@faulty_backend(
    "late-external-offset-64k", "At offsets of 64 KiB and above, external memory may begin anywhere."
)
class _ExternalOffset64K(ReferenceBackend):
    """Source: seed 002, step 3 (start alignment); catalogue, EXT-08."""

    def check_alignment(self, request: Request) -> None:
        if request.offset < KIB64:
            super().check_alignment(request)


@faulty_backend(
    "late-external-given-again", "External memory that was taken back cannot be given again (8002)."
)
class _ExternalGivenAgain(ReferenceBackend):
    """Source: seed 002, step 4; QnnMem.h, QnnMem_deRegister; catalogue, EXT-23 and REG-24."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.taken: set[tuple[int, Identity]] = set()
        super().__init__(personality)

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        if registration.request.role in ROLES:
            self.taken.add((registration.context.handle, registration.request.identity))

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if request.role in ROLES and (context.handle, request.identity) in self.taken:
            raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)


@faulty_backend(
    "late-weights-stuck-third",
    "contextFree of the third context with external weights leaves their memory in use (8002).",
)
class _WeightsStuckThird(ReferenceBackend):
    """Source: seed 002, step 5 (automatically deregistered); catalogue, EXT-22."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.freed = 0
        self.stuck: set[Identity] = set()
        super().__init__(personality)

    def free_context(self, context: Context) -> None:
        given = context.external.given.get(WEIGHTS) if context.external is not None else None
        super().free_context(context)
        self.freed += given is not None
        if given is not None and self.freed == 3:
            self.stuck.add(given.request.identity)

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if request.identity in self.stuck:
            raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)


@faulty_backend(
    "late-spill-third-turn",
    "The third time that two contexts take turns, results between nodes in shared memory are not written.",
)
class _SpillThirdTurn(Turns):
    """Source: seed 002, step 4 (several contexts share it, one after the other); catalogue, EXT-26."""

    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        if self.third_time and tensor.type == TensorType.NATIVE and tensor.placed >= 0:
            return self.held(graph, tensor)
        return super().keep(graph, tensor, stored)


@faulty_backend(
    "late-spill-fd-as-io",
    "Spill-fill memory of a finalised context can be registered for IO tensors of another context.",
)
class _SpillFdAsIo(ReferenceBackend):
    """Source: seed 002, step 4 (not for other buffer types); catalogue, EXT-16."""

    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        found = super().excludes(context, request, other)
        io = request.role == HtpMemType.SHARED_BUFFER and other.request.role == SPILL
        return found and not (io and other.context is not context and self.is_fixed(other))


@faulty_backend(
    "late-weights-mebibyte",
    "Weights that end beyond the first mebibyte are not stored in the external memory.",
)
class _WeightsMebibyte(ReferenceBackend):
    """Source: seed 002, step 5 (weights are copied to the external buffer); catalogue, EXT-17."""

    def held(self, graph: Graph, tensor: Tensor) -> Stored:
        placed = super().held(graph, tensor)
        if tensor.type == TensorType.STATIC and tensor.placed + tensor.size > MIB:
            # Written to, and read from, memory of our own.
            tensor.placed = -1
            return placed.copy()
        return placed


@faulty_backend(
    "late-deferred-fifth-graph",
    "After contextFinalize the fifth graph of a context and those behind it cannot be retrieved (6002).",
)
class _DeferredFifthGraph(ReferenceBackend):
    """Source: seed 002, listing 3 lines 141 to 148; catalogue, EXT-20."""

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        super().graph_retrieve(context, name, out)
        owner = self.contexts[context or 0]
        fifth = [each.handle for each in owner.graphs.values()][4:]
        if owner.external is not None and out[0] in fifth:
            out[0] = None
            raise QnnError(Error.GRAPH_ERROR_GRAPH_DOES_NOT_EXIST)
