"""Reference backends with one fault each, for the rules of CAP."""

from __future__ import annotations

from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import Error, MemType, Property, TensorMemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.table import ENTRIES

_ERRORS = 1001
"""QNN_PROPERTY_GROUP_ERROR."""
_KEYS = frozenset({Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT, Property.CONTEXT_SUPPORT_CUSTOM_PROPERTY})


@faulty_backend("deferred-keys-denied", "keys 215 and 217 say no", "CAP-06")
class _KeysDenied(ReferenceBackend):
    def capability(self, key: int) -> int:
        return int(Error.PROPERTY_NOT_SUPPORTED) if key in _KEYS else super().capability(key)


@faulty_backend("cap-hint-refused", "A graph with the hint is not finalised.", "CAP-05")
class _HintNotFinalised(ReferenceBackend):
    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        if graph in self.graphs:
            tensors = self.graphs[graph].tensors.values()
            if any(tensor.mem_type == TensorMemType.MEMHANDLE for tensor in tensors):
                raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        super().graph_finalize(graph, profile, signal)


@faulty_backend("cap-any-environment", "Any execution environment succeeds.", "CAP-07")
class _AnyEnvironment(ReferenceBackend):
    entries: ClassVar[dict[str, str]] = {
        **ENTRIES,
        "graphPrepareExecutionEnvironment": "prepare_environment",
    }

    def prepare_environment(self, graph: int | None, environments: int | None, count: int) -> None:
        """Claims success for a graph, and binds nothing."""
        del environments, count
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)


@faulty_backend("cap-learns", "Key 202 says no until there is a context.", "CAP-08")
class _LearnsKeys(ReferenceBackend):
    def capability(self, key: int) -> int:
        if key == Property.CONTEXT_SUPPORT_CACHING and not self.contexts:
            return int(Error.PROPERTY_NOT_SUPPORTED)
        return super().capability(key)


@faulty_backend("cap-unknown-key-one", "Unknown property keys are answered with 1.", "CAP-01")
class _CapabilityOne(ReferenceBackend):
    def capability(self, key: int) -> int:
        return 1 if super().capability(key) == Error.PROPERTY_ERROR_UNKNOWN_KEY else super().capability(key)


@faulty_backend("cap-not-early", "Property keys are answered with 4000 before backendCreate.", "CAP-01")
class _RefusesEarlyQuestions(ReferenceBackend):
    def capability(self, key: int) -> int:
        return super().capability(key) if self.backends else Error.BACKEND_ERROR_CANNOT_INITIALIZE


@faulty_backend("cap-invalid-for-unsupported", "Without the memory API its calls answer 8000.", "CAP-02")
class _InvalidInsteadOfUnsupported(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["no-memory"])

    def require_memory_api(self) -> None:
        raise QnnError(Error.MEM_ERROR_INVALID_ARGUMENT)


@faulty_backend(
    "cap-writes-unsupported", "Without the memory API memRegister writes to the handle array.", "CAP-02"
)
class _WritesHandlesUnsupported(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["no-memory"])

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if handles:
            self.clear_handles(handles, count)
        super().mem_register(context, descriptors, count, handles)


@faulty_backend("cap-key-without-call", "The keys say yes, the calls answer 1000.", "CAP-03")
class _KeyWithoutCall(ReferenceBackend):
    def require_memory_api(self) -> None:
        raise QnnError(Error.MEM_ERROR_NOT_SUPPORTED)


@faulty_backend("cap-dma-buf-as-ion", "DMA_BUF is registered although its key says no.", "CAP-04")
class _DmaBufAsIon(ReferenceBackend):
    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.DMA_BUF:
            super().require_mem_type(kind)


@faulty_backend("cap-flips", "Every other question is answered with not supported.", "CAP-01")
class _Flips(ReferenceBackend):
    asked = 0

    def capability(self, key: int) -> int:
        self.asked += 1
        return int(Error.PROPERTY_NOT_SUPPORTED) if self.asked % 2 else super().capability(key)


@faulty_backend("cap-handles-denied", "Key 502 says no, and handles work.", "CAP-05")
class _HandlesDenied(ReferenceBackend):
    def capability(self, key: int) -> int:
        denied = key == Property.TENSOR_SUPPORT_MEMHANDLE_TYPE
        return int(Error.PROPERTY_NOT_SUPPORTED) if denied else super().capability(key)


@faulty_backend("cap-messages-denied", "Key 1001 says no, and messages are there.", "IF-08")
class _MessagesDenied(ReferenceBackend):
    def capability(self, key: int) -> int:
        return int(Error.PROPERTY_NOT_SUPPORTED) if key == _ERRORS else super().capability(key)
