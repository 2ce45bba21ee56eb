"""Reference backends with one fault each in what they say of themselves, and under load.

IF, CAP, QTHR, QLEAK.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, ClassVar

from pytest_qnn.abi.qnn_codes import Error, Property, TensorMemType
from pytest_qnn.abi.qnn_table import InterfaceP, PaddedInterface
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_binary import Binary
from pytest_qnn.reference.backend_objects import Context, Kind, QnnError, Registration
from pytest_qnn.reference.backend_table import ENTRIES
from pytest_qnn.reference.personalities import DEFAULT, Personality

_MOST_LEAKED = 200
"""A process has few descriptors, and the observer needs some."""


@faulty_backend("if-copied", "getProviders lists a new copy each time.", "IF-03")
class _CopiedInterface(ReferenceBackend):
    def provider_list(self) -> Any:
        copy = PaddedInterface.from_buffer_copy(self._padded)
        self._thunks.append(copy)
        return (InterfaceP * 1)(ctypes.pointer(copy.interface))


@faulty_backend("if-changing", "The interface changes with what is created.", "IF-03")
class _ChangingName(ReferenceBackend):
    def provider_list(self) -> Any:
        self._padded.interface.providerName = b"with a backend" if len(self.backends) > 1 else b"plain"
        return super().provider_list()

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        self._padded.interface.backendId = 6 + len(self.backends)


@faulty_backend("if-old-version", "The interface says minor 0, the backend 32.", "IF-04")
class _OldVersion(ReferenceBackend):
    def _fill(self, interface: Any) -> None:
        super()._fill(interface)
        interface.apiVersion.coreApiVersion.minor = 0


@faulty_backend("if-swapped", "deviceFree and logFree stand in each other's place.", "IF-04")
class _SwappedEntries(ReferenceBackend):
    entries: ClassVar[dict[str, str]] = {**ENTRIES, "deviceFree": "log_free", "logFree": "device_free"}


@faulty_backend("if-high-success", "contextCreate answers 1 << 32 for success.", "IF-06")
class _HighSuccess(ReferenceBackend):
    def answer(self, name: str, code: int) -> int:
        odd = name == "contextCreate" and not code
        return 1 << 32 if odd else super().answer(name, code)


@faulty_backend("if-version-late", "The version needs a backend.", "IF-07")
class _VersionNeedsBackend(ReferenceBackend):
    def backend_get_api_version(self, out: Any) -> None:
        if not self.backends:
            raise QnnError(Error.BACKEND_ERROR_CANNOT_INITIALIZE)
        super().backend_get_api_version(out)


@faulty_backend("if-build-null", "getBuildId(NULL) succeeds.", "IF-07")
class _BuildIdOfNull(ReferenceBackend):
    def backend_get_build_id(self, out: Any) -> None:
        if out:
            super().backend_get_build_id(out)


@faulty_backend("if-stale-message", "An unknown code gives the text of the last one.", "IF-08")
class _StaleMessage(ReferenceBackend):
    text: Any = None

    def error_get_message(self, code: int, out: Any) -> None:
        try:
            super().error_get_message(code, out)
            self.text = out[0]
        except QnnError:
            if out and self.text:
                out[0] = self.text
            raise


@faulty_backend("if-no-messages", "The codes of QnnMem are not known.", "IF-08")
class _NoMemoryMessages(ReferenceBackend):
    def error_get_message(self, code: int, out: Any) -> None:
        super().error_get_message(0xFFFF if out and code // 1000 == 8 else code, out)


@faulty_backend("if-zero-handle", "Contexts have handle 0.", "IF-09")
class _ZeroHandles(ReferenceBackend):
    def mint(self, kind: Kind) -> int:
        return 0 if kind == "context" else super().mint(kind)


class _Last(ReferenceBackend):
    """Takes an unknown handle of one kind for the one made last."""

    kind: ClassVar[Kind]

    def require(self, kind: Kind, value: int | None, code: int) -> Any:
        table = self._tables[kind]
        if kind == self.kind and value not in table and table:
            return table[max(table)]
        return super().require(kind, value, code)


@faulty_backend("if-last-context", "An unknown context is the one made last.", "IF-10")
class _LastContext(_Last):
    kind = "context"


@faulty_backend("if-last-backend", "An unknown backend is the last one made.", "IF-10")
class _BinaryOfLastBackend(ReferenceBackend):
    """createFromBinary takes an unknown backend for the one made last."""

    def context_create_from_binary(self, backend: int | None, *arguments: Any) -> None:
        known = backend if backend in self.backends else max(self.backends, default=None)
        super().context_create_from_binary(known, *arguments)


@faulty_backend("if-no-device", "Freeing what is no device succeeds.", "IF-10")
class _NoDeviceIsFine(ReferenceBackend):
    def device_free(self, device: int | None) -> None:
        if device in self.devices:
            super().device_free(device)


@faulty_backend("if-other-code", "graphFinalize answers 6000 to what is no graph.", "IF-10")
class _WrongComponent(ReferenceBackend):
    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        if graph not in self.graphs:
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        super().graph_finalize(graph, profile, signal)


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
        """Claims success, binds nothing."""


@faulty_backend("cap-learns", "Key 202 says no until there is a context.", "CAP-08")
class _LearnsKeys(ReferenceBackend):
    def capability(self, key: int) -> int:
        if key == Property.CONTEXT_SUPPORT_CACHING and not self.contexts:
            return int(Error.PROPERTY_NOT_SUPPORTED)
        return super().capability(key)


class _Racing(ReferenceBackend):
    """Looks the next handle up, and takes it a moment later."""

    kind: ClassVar[Kind]

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.taken = 0

    def mint(self, kind: Kind) -> int:
        if kind != self.kind:
            return super().mint(kind)
        value = self.taken + 1
        self.lock.release()
        time.sleep(0.002)
        self.lock.acquire()
        self.taken = value
        return value


@faulty_backend("thread-backends", "Two backends made at once have one handle.", "QTHR-01")
class _RacingBackends(_Racing):
    kind = "backend"

    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        super().backend_create(log, config, out)
        self.lock.release()
        time.sleep(0.004)
        self.lock.acquire()


@faulty_backend("thread-handles", "Two registrations made at once have one handle.", "QTHR-03")
class _RacingHandles(_Racing):
    kind = "mem"


@faulty_backend("thread-freed-graphs", "Graphs of freed contexts execute.", "QTHR-05")
class _FreedGraphsExecute(ReferenceBackend):
    def release_graphs(self, context: Context) -> None:
        pass


class _Leaks(ReferenceBackend):
    """Leaves descriptors behind, and closes them when the process would end."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.leaked: list[int] = []

    def leak(self) -> None:
        if len(self.leaked) < _MOST_LEAKED:
            self.leaked.append(os.memfd_create("leaked", os.MFD_CLOEXEC))

    def close(self) -> None:
        super().close()
        while self.leaked:
            os.close(self.leaked.pop())


@faulty_backend("leak-registrations", "Each registration keeps a descriptor.", "QLEAK-01")
class _LeaksPerRegistration(_Leaks):
    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.leak()


@faulty_backend("leak-failures", "Each failed registration keeps a descriptor.", "QLEAK-03")
class _LeaksPerFailure(_Leaks):
    def roll_back(self, batch: list[Registration]) -> None:
        super().roll_back(batch)
        self.leak()


@faulty_backend("leak-binaries", "Each binary that is refused keeps 8 KiB.", "QLEAK-03")
class _GraveOfBinaries(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.grave: list[bytes] = []

    def read_binary(self, data: bytes) -> Binary:
        try:
            return super().read_binary(data)
        except ValueError:
            self.grave.append(b"\1" * 8192)
            raise


@faulty_backend("leak-contexts", "Freed contexts keep 8 KiB per registration.", "QLEAK-02")
class _GraveOfContexts(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.grave: list[bytes] = []

    def release_registrations(self, context: Context) -> None:
        self.grave += [b"\1" * 8192 for _ in context.registrations]
        super().release_registrations(context)
