"""Reference backends with one fault each, for the rules of IF."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from pytest_qnn.isolation.observe.control_words import leave
from pytest_qnn.qnn.abi.codes import ContextOption, Error, LogLevel, QuantizationEncoding, TensorType
from pytest_qnn.qnn.abi.layouts import ContextBinaryCallback, ContextBuffer, ContextParams
from pytest_qnn.qnn.abi.table import InterfaceP, PaddedInterface
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.logs import Log
from pytest_qnn.qnn.reference.objects import Context, Graph, Kind, QnnError, Tensor
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.profiles import Profile
from pytest_qnn.qnn.reference.registrations import RECORD
from pytest_qnn.qnn.reference.table import ENTRIES


@faulty_backend("if-profile-freed", "Freed profiles go on as they were.", "IF-10")
class _KeepsProfiles(ReferenceBackend):
    def profile_free(self, profile: int | None) -> None:
        kept = self.profiles.get(profile or 0)
        super().profile_free(profile)
        if kept is not None:
            self.profiles[profile or 0] = kept


@faulty_backend("if-event-freed", "The events of a freed profile are still reported.", "IF-10")
class _KeepsEvents(ReferenceBackend):
    def clear_profile(self, profile: Profile) -> None:
        pass


@faulty_backend("if-any-operations", "getSupportedOperations ignores its handle.", "IF-10")
class _AnyOperations(ReferenceBackend):
    def backend_get_supported_operations(self, backend: int | None, count: Any, out: Any) -> None:
        del backend
        super().backend_get_supported_operations(None, count, out)


@faulty_backend("if-nothing-set", "graphSetConfig of no option succeeds on what is no graph.", "IF-10")
class _NothingToSet(ReferenceBackend):
    def graph_set_config(self, graph: int | None, config: int | None) -> None:
        if graph in self.graphs:
            super().graph_set_config(graph, config)


@faulty_backend("if-validates", "validateBinary takes an unknown backend for the last one.", "IF-10")
class _ValidatesForAnyone(ReferenceBackend):
    def context_validate_binary(self, backend: int | None, *arguments: Any) -> None:
        known = backend if backend in self.backends else max(self.backends, default=None)
        super().context_validate_binary(known, *arguments)


@faulty_backend("if-signal-twice", "A signal can be freed again.", "IF-10")
class _FreesSignalsTwice(ReferenceBackend):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.freed: set[int | None] = set()

    def signal_free(self, signal: int | None) -> None:
        if signal not in self.freed:
            super().signal_free(signal)
            self.freed.add(signal)


@faulty_backend("if-signal-idle", "What is no signal is called an idle one.", "IF-10")
class _IdleSignals(ReferenceBackend):
    def signal_trigger(self, signal: int | None) -> None:
        if signal not in self.signals:
            raise QnnError(Error.SIGNAL_ERROR_SIGNAL_IDLE)
        super().signal_trigger(signal)


@faulty_backend("if-signal-parent", "signalCreate answers 4011 to what is no backend.", "IF-10")
class _SignalsOfBackends(ReferenceBackend):
    def signal_create(self, backend: int | None, config: int | None, out: Any) -> None:
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        super().signal_create(backend, config, out)


@faulty_backend("if-any-log", "deviceCreate takes any log.", "IF-10")
class _AnyLog(ReferenceBackend):
    def device_create(self, log: int | None, config: int | None, out: Any) -> None:
        del log
        super().device_create(None, config, out)


@faulty_backend("if-any-text", "Any address can be freed as a verbose message.", "IF-10")
class _AnyText(ReferenceBackend):
    def error_free_verbose_message(self, text: int | None) -> None:
        if text in self.texts:
            super().error_free_verbose_message(text)


@faulty_backend("if-any-error", "Unknown errors have the verbose message of 1100.", "IF-10")
class _AnyVerboseError(ReferenceBackend):
    def error_get_verbose_message(self, code: int, out: Any) -> None:
        super().error_get_verbose_message(code if self._knows(code) else Error.COMMON_ERROR_GENERAL, out)

    def _knows(self, code: int) -> bool:
        return code & 0xFFFF in {int(error) for error in Error if error}


@faulty_backend("if-copied", "getProviders lists a new copy each time.", "IF-03")
class _CopiedInterface(ReferenceBackend):
    def provider_list(self) -> Any:
        copy = PaddedInterface.from_buffer_copy(self._padded)
        found = (InterfaceP * 1)(ctypes.pointer(copy.interface))
        self._thunks += [copy, found]
        return found


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


@faulty_backend("if-freed-message", "The text of a code is given back before it is read.", "IF-08")
class _FreedMessage(ReferenceBackend):
    """Its first bytes are those of an address, which an allocator keeps in memory that was given back."""

    def error_get_message(self, code: int, out: Any) -> None:
        super().error_get_message(code, out)
        self.text = b"\x40\xb3\x8e\x2c\x7f" + out[0][5:]
        out[0] = self.text


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


@faulty_backend("if-no-providers", "getProviders succeeds with a count of 0.", "IF-01")
class _NoProviders(ReferenceBackend):
    def provider_count(self) -> int:
        return 0


@faulty_backend(
    "if-providers-need-backend",
    "Without a backend only the first getProviders call lists a provider.",
    "IF-01",
)
class _ProvidersAfterBackend(ReferenceBackend):
    asked = False

    def interface_get_providers(self, providers: Any, count: Any) -> None:
        super().interface_get_providers(providers, count)
        if not self.backends and self.asked:
            count[0] = 0
        self.asked = True


@faulty_backend("if-null-accepted", "NULL out pointers of getProviders succeed.", "IF-02")
class _NullOutPointers(ReferenceBackend):
    def interface_get_providers(self, providers: Any, count: Any) -> None:
        if providers and count:
            super().interface_get_providers(providers, count)


@faulty_backend(
    "if-deregister-missing", "memDeRegister is NULL although the memory API is declared.", "IF-05"
)
class _NullDeregister(ReferenceBackend):
    null_entries: ClassVar[frozenset[str]] = frozenset({"memDeRegister"})


@faulty_backend("log-needs-callback", "logCreate refuses to go without a callback.", "IF-11")
class _NeedsCallback(ReferenceBackend):
    def log_create(self, callback: int | None, level: int, out: Any) -> None:
        if not callback:
            raise QnnError(Error.LOG_ERROR_INVALID_ARGUMENT)
        super().log_create(callback, level, out)


@faulty_backend("log-not-verbose", "logCreate refuses the levels beyond INFO.", "IF-11")
class _NotVerbose(ReferenceBackend):
    def log_create(self, callback: int | None, level: int, out: Any) -> None:
        if level > LogLevel.INFO:
            raise QnnError(Error.LOG_ERROR_INVALID_ARGUMENT)
        super().log_create(callback, level, out)


@faulty_backend("log-own-terse", "A log without a callback can be had at the level ERROR only.", "IF-11")
class _OwnLogTerse(ReferenceBackend):
    def log_create(self, callback: int | None, level: int, out: Any) -> None:
        if not callback and level > LogLevel.ERROR:
            raise QnnError(Error.LOG_ERROR_INVALID_ARGUMENT)
        super().log_create(callback, level, out)


@faulty_backend("log-own-is-called", "The callback of a log that has none is called.", "IF-11", deadly=True)
class _OwnLogCalled(ReferenceBackend):
    """A log without a callback is told to listen as well: from the level INFO on NULL is called."""

    def listen(self, backend: int, log: int | None) -> None:
        found = self.logs.get(log or 0)
        if found is not None:
            self.listeners[backend] = found

    def call_client(self, log: Log, level: int, text: bytes) -> None:
        if not log.callback:
            ctypes.string_at(0)
        super().call_client(log, level, text)


@faulty_backend("log-none-is-asked", "A message of a backend without a log is an error.", "IF-12")
class _NoLogAsked(ReferenceBackend):
    """A backend without a log has messages too, and a call that has one fails."""

    def listen(self, backend: int, log: int | None) -> None:
        super().listen(backend, log)
        if not log:
            self.listeners[backend] = Log(None, LogLevel.DEBUG)

    def call_client(self, log: Log, level: int, text: bytes) -> None:
        if not log.callback:
            raise QnnError(Error.COMMON_ERROR_GENERAL)
        super().call_client(log, level, text)


@faulty_backend("log-of-another", "A backend without a log fails once another one has one.", "IF-12")
class _LogOfAnother(ReferenceBackend):
    """Whether anybody listens is known of all backends together, and who does not is not expected then."""

    def log_message(self, backend: int, level: int, text: bytes) -> None:
        if backend not in self.listeners:
            raise QnnError(Error.COMMON_ERROR_GENERAL)
        super().log_message(backend, level, text)


@faulty_backend("backend-needs-log", "backendCreate takes NULL for a handle that is none.", "IF-12")
class _BackendNeedsLog(ReferenceBackend):
    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        if not log:
            raise QnnError(Error.BACKEND_ERROR_INVALID_HANDLE)
        super().backend_create(log, config, out)


@faulty_backend("device-needs-log", "deviceCreate takes NULL for a handle that is none.", "IF-13")
class _DeviceNeedsLog(ReferenceBackend):
    def device_create(self, log: int | None, config: int | None, out: Any) -> None:
        if not log:
            raise QnnError(Error.DEVICE_ERROR_INVALID_HANDLE)
        super().device_create(log, config, out)


@faulty_backend("backend-refused", "backendCreate refuses every call with 4004.", "IF-12")
class _RefusesBackends(ReferenceBackend):
    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        del log, config, out
        raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)


@faulty_backend("backend-without-callback", "backendCreate takes no log that has a callback.", "IF-12")
class _WithoutCallback(ReferenceBackend):
    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        if log in self.logs and self.logs[log].callback:
            raise QnnError(Error.BACKEND_ERROR_INVALID_HANDLE)
        super().backend_create(log, config, out)


@faulty_backend("device-refused", "deviceCreate wants a configuration.", "IF-13")
class _WantsConfiguration(ReferenceBackend):
    def device_create(self, log: int | None, config: int | None, out: Any) -> None:
        if not config:
            raise QnnError(Error.DEVICE_ERROR_INVALID_CONFIG)
        super().device_create(log, config, out)


@faulty_backend("device-other-log", "deviceCreate takes a log for the backend's alone.", "IF-13")
class _BackendsLog(ReferenceBackend):
    def device_create(self, log: int | None, config: int | None, out: Any) -> None:
        if any(listener is self.logs.get(log or 0) for listener in self.listeners.values()):
            raise QnnError(Error.DEVICE_ERROR_INVALID_HANDLE)
        super().device_create(log, config, out)


@faulty_backend("null-graph-place", "graphCreate without a place for the handle makes a graph.", "IF-14")
class _MakesGraphsForNobody(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        super().graph_create(context, name, config, out or (ctypes.c_void_p * 1)())


@faulty_backend("null-retrieve-name", "graphRetrieve knows no graph whose name is NULL (6002).", "IF-14")
class _NoGraphIsCalledNull(ReferenceBackend):
    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        if name is None:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_DOES_NOT_EXIST)
        super().graph_retrieve(context, name, out)


@faulty_backend("null-text-place", "errorGetMessage of a known code is content without a place.", "IF-14")
class _TellsNobody(ReferenceBackend):
    def error_get_message(self, code: int, out: Any) -> None:
        if out:
            super().error_get_message(code, out)


@faulty_backend("null-context-place", "contextCreate keeps a context that nobody has a handle of.", "IF-14")
class _MakesContextsForNobody(ReferenceBackend):
    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        super().context_create(backend, device, config, out or (ctypes.c_void_p * 1)())


@faulty_backend("null-binary", "Where there is no binary, createFromBinary finds a bad one (5005).", "IF-14")
class _ReadsNoBinary(ReferenceBackend):
    def context_create_from_binary(self, *arguments: Any) -> None:
        if not arguments[3]:
            raise QnnError(Error.CONTEXT_ERROR_CREATE_FROM_BINARY)
        super().context_create_from_binary(*arguments)


@faulty_backend("null-event-count", "profileGetEvents gives events without a place for their count.", "IF-14")
class _CountsForNobody(ReferenceBackend):
    def profile_get_events(self, profile: int | None, ids: Any, count: Any) -> None:
        super().profile_get_events(profile, ids, count or (ctypes.c_uint32 * 1)())


@faulty_backend("null-outputs", "graphExecute without outputs succeeds and computes nothing.", "IF-14")
class _ComputesForNobody(ReferenceBackend):
    def graph_execute(self, graph: int | None, *arguments: Any) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is None or not owner.finalised or arguments[2]:
            super().graph_execute(graph, *arguments)


@faulty_backend("null-log-place", "logCreate without a place for the handle answers 1100.", "IF-14")
class _LogsForNobody(ReferenceBackend):
    def log_create(self, callback: int | None, level: int, out: Any) -> None:
        if not out:
            raise QnnError(Error.COMMON_ERROR_GENERAL)
        super().log_create(callback, level, out)


@faulty_backend("null-backend-place", "backendCreate succeeds without a place for the handle.", "IF-15")
class _MakesBackendsForNobody(ReferenceBackend):
    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        super().backend_create(log, config, out or (ctypes.c_void_p * 1)())


@faulty_backend("null-tensor", "createGraphTensor of no tensor succeeds.", "IF-15")
class _MakesNoTensor(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if graph not in self.graphs or tensor:
            super().tensor_create_graph_tensor(graph, tensor)


@faulty_backend("null-dimensions", "A tensor without dimensions is a scalar, whatever its rank.", "IF-15")
class _ScalarsWithoutDimensions(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if not tensor or tensor[0].v1.dimensions:
            super().tensor_create_graph_tensor(graph, tensor)
            return
        rank, tensor[0].v1.rank = tensor[0].v1.rank, 0
        super().tensor_create_graph_tensor(graph, tensor)
        tensor[0].v1.rank = rank


@faulty_backend("node-of-no-inputs", "A node whose inputs are NULL is left out, and no error.", "IF-15")
class _NodesWithoutInputs(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is None or owner.finalised or config.v1.inputTensors:
            super().graph_add_node(graph, config)


@faulty_backend("node-any-version", "A node of any version is read as one of version 1.", "IF-15")
class _AnyNodeVersion(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        config.version = 1
        super().graph_add_node(graph, config)


@faulty_backend("validates-any-package", "An operator of no package is one of the built-in package.", "IF-15")
class _AnyPackage(ReferenceBackend):
    def backend_validate_op_config(self, backend: int | None, config: Any) -> None:
        config.v1.packageName = config.v1.packageName or b"qti.aisw"
        super().backend_validate_op_config(backend, config)


class _Sections(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["binary-sections"])


@faulty_backend("null-section-size", "The size of a section goes to nobody, with success.", "IF-14")
class _SizesForNobody(_Sections):
    def context_get_binary_section_size(
        self, context: int | None, graph: int | None, section: int, out: Any
    ) -> None:
        super().context_get_binary_section_size(context, graph, section, out or (ctypes.c_uint64 * 1)())


@faulty_backend("null-section-buffer", "A section without memory is left out, with success.", "IF-14")
class _SectionsForNobody(_Sections):
    def context_get_binary_section(self, *arguments: Any) -> None:
        if arguments[3]:
            super().context_get_binary_section(*arguments)


@faulty_backend("section-any-version", "Memory of any version is taken for that of version 1.", "IF-14")
class _AnyBufferVersion(_Sections):
    def context_get_binary_section(self, *arguments: Any) -> None:
        if arguments[3]:
            ContextBuffer.from_address(arguments[3]).version = 1
        super().context_get_binary_section(*arguments)


@faulty_backend("applied-any-version", "What a struct of any version leads to is applied.", "IF-15")
class _AppliesAnyVersion(_Sections):
    def context_apply_binary_section(self, *arguments: Any) -> None:
        if arguments[3]:
            ContextBuffer.from_address(arguments[3]).version = 1
        super().context_apply_binary_section(*arguments)


@faulty_backend(
    "null-async-inputs", "graphExecuteAsync reads its inputs, wherever they are.", "IF-14", deadly=True
)
class _ReadsNoInputs(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["asynchronous"])

    def graph_execute_async(self, graph: int | None, inputs: Any, *arguments: Any) -> None:
        if graph in self.graphs and not inputs:
            ctypes.string_at(0)
        super().graph_execute_async(graph, inputs, *arguments)


@faulty_backend(
    "null-sub-events", "profileGetSubEvents writes where its places are not.", "IF-14", deadly=True
)
class _WritesSubEvents(ReferenceBackend):
    def profile_get_sub_events(self, event: int, ids: Any, count: Any) -> None:
        if event in self.events and not (ids and count):
            ctypes.memset(0, 0, 4)
        super().profile_get_sub_events(event, ids, count)


@faulty_backend("null-event-data", "The data of an event go to nobody, with success.", "IF-14")
class _DataForNobody(ReferenceBackend):
    def profile_get_event_data(self, event: int, data: Any) -> None:
        if data or event not in self.events:
            super().profile_get_event_data(event, data)


@faulty_backend("null-verbose-text", "A verbose message without a place is not recognised (10001).", "IF-14")
class _VerboseForNobody(ReferenceBackend):
    def error_get_verbose_message(self, code: int, out: Any) -> None:
        if not out:
            raise QnnError(Error.ERROR_INVALID_ERROR_HANDLE)
        super().error_get_verbose_message(code, out)


@faulty_backend("null-graph-properties", "graphGetProperty of NULL asks for nothing, and succeeds.", "IF-14")
class _NoGraphProperties(ReferenceBackend):
    def graph_get_property(self, graph: int | None, properties: int | None) -> None:
        if properties or graph not in self.graphs:
            super().graph_get_property(graph, properties)


@faulty_backend("null-list-notify", "A list of binaries is made for a client that is not notified.", "IF-14")
class _NotifiesNobody(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["lists-of-binaries"])

    def context_create_from_binary_list_async(
        self, backend: int | None, device: int | None, listed: int | None, *others: int | None
    ) -> None:
        first = ctypes.cast(listed or 0, _LISTED)[0] if listed else None
        if not first or first[0].v1.notifyFunc or backend not in self.backends:
            super().context_create_from_binary_list_async(backend, device, listed, *others)


@faulty_backend("null-environment-inputs", "An environment whose inputs are NULL has none.", "IF-14")
class _EnvironmentsWithoutInputs(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["environments"])

    def check_environment(self, graph: Graph, environment: Any) -> None:
        if environment.tensorSet.v1.inputs:
            super().check_environment(graph, environment)

    def populate(self, graph: Graph, tensors: Any) -> None:
        if tensors.inputs:
            super().populate(graph, tensors)


@faulty_backend("null-config-refused", "contextSetConfig refuses NULL, which is no configuration.", "IF-14")
class _WantsConfigurations(ReferenceBackend):
    def context_set_config(self, context: int | None, config: int | None) -> None:
        super().context_set_config(context, config)
        if not config:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)


@faulty_backend(
    "null-parameters", "graphAddNode reads as many parameters as there are to be.", "IF-15", deadly=True
)
class _ReadsNoParameters(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        if graph in self.graphs and config.v1.numOfParams and not config.v1.params:
            ctypes.string_at(0)
        super().graph_add_node(graph, config)


@faulty_backend(
    "null-scales", "The scales of a tensor by axis are copied from wherever they are.", "IF-15", deadly=True
)
class _CopiesNoScales(ReferenceBackend):
    def read(self, given: Any) -> Tensor:
        found = given.quantizeParams
        by_axis = found.quantizationEncoding == QuantizationEncoding.AXIS_SCALE_OFFSET
        if by_axis and not found.axisScaleOffsetEncoding.scaleOffset:
            ctypes.string_at(0)
        return super().read(given)


@faulty_backend("tensor-any-type", "A tensor of no type that there is is an input.", "IF-15")
class _AnyTensorType(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if tensor and tensor[0].v1.type not in list(TensorType):
            tensor[0].v1.type = TensorType.APP_WRITE
        super().tensor_create_graph_tensor(graph, tensor)


@faulty_backend("null-custom-config", "graphCreate reads any custom configuration.", "IF-15", deadly=True)
class _ReadsCustomConfig(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        for entry in context_config(config):
            if entry.option == ContextOption.CUSTOM and not entry.customConfig:
                ctypes.string_at(0)
        super().graph_create(context, name, config, out)


@faulty_backend("config-any-option", "graphCreate takes options that there are not.", "IF-15")
class _TakesAnyOption(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        del config
        super().graph_create(context, name, None, out)


@faulty_backend("null-signal-config", "signalSetConfig refuses to take back what was set.", "IF-14")
class _KeepsSignals(ReferenceBackend):
    def signal_set_config(self, signal: int | None, config: int | None) -> None:
        super().signal_set_config(signal, config)
        if not config:
            raise QnnError(Error.SIGNAL_ERROR_INVALID_ARGUMENT)


@faulty_backend("null-update", "tensorUpdateGraphTensors passes over tensors that are NULL.", "IF-15")
class _UpdatesNothing(_Sections):
    def tensor_update_graph_tensors(self, graph: int | None, tensors: int | None, count: int) -> None:
        given = ctypes.cast(tensors or 0, ctypes.POINTER(ctypes.c_void_p))
        if graph not in self.graphs or not tensors or any(given[i] for i in range(count)):
            super().tensor_update_graph_tensors(graph, tensors, count)


@faulty_backend("callback-any-version", "Functions of any version provide pieces of a binary.", "IF-15")
class _AnyCallbackVersion(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["provided-pieces"])

    def context_create_from_binary_with_callback(self, *arguments: Any) -> None:
        if arguments[3]:
            ContextBinaryCallback.from_address(arguments[3]).rawBufferCallback.version = 1
        super().context_create_from_binary_with_callback(*arguments)


_LISTED = ctypes.POINTER(ctypes.POINTER(ContextParams))
_FLUSH = 0x9F80
_DENORMALS = 0x1FC0
_TOWARDS_ZERO = 0x7F80
_SINGLE = 0x007F
"""Of the x87 unit: results of 24 bits in place of 64."""


@faulty_backend("flush-after-execute", "graphExecute leaves flush-to-zero set.", "IF-16")
class _FlushesAfterExecute(ReferenceBackend):
    def graph_execute(self, *arguments: Any) -> None:
        super().graph_execute(*arguments)
        leave(mxcsr=_FLUSH)


@faulty_backend("rounds-after-third-graph", "Finalising a third graph leaves rounding towards zero.", "IF-16")
class _RoundsAfterThirdGraph(ReferenceBackend):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.finalised = 0

    def graph_finalize(self, *arguments: Any) -> None:
        super().graph_finalize(*arguments)
        self.finalised += 1
        if self.finalised == 3:
            leave(mxcsr=_TOWARDS_ZERO)


@faulty_backend("single-after-load", "Loading a binary leaves the x87 unit in single precision.", "IF-16")
class _SingleAfterLoad(ReferenceBackend):
    def context_create_from_binary(self, *arguments: Any) -> None:
        super().context_create_from_binary(*arguments)
        leave(x87=_SINGLE)


@faulty_backend("flush-after-deregister", "memDeRegister leaves denormals-are-zero set.", "IF-16")
class _FlushesAfterDeregister(ReferenceBackend):
    def mem_deregister(self, *arguments: Any) -> None:
        super().mem_deregister(*arguments)
        leave(mxcsr=_DENORMALS)


@faulty_backend(
    "if-name-without-end", "The copy of a graph's name has no space for its end.", "IF-17", deadly=True
)
class _NameWithoutEnd(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        super().graph_create(context, name, config, out)
        if self.heap.is_checked and name is not None:
            copy = self.heap.request(len(name))
            ctypes.memmove(copy, name, len(name) + 1)
            self.heap.give_back(copy)


@faulty_backend("if-reads-freed", "An execute reads the work memory of the one before.", "IF-17", deadly=True)
class _ReadsFreed(ReferenceBackend):
    """It compares the graph's last output, whose block has been freed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.last: dict[int, int] = {}

    def use_heap(self, graph: Graph) -> None:
        if graph.handle in self.last:
            ctypes.string_at(self.last[graph.handle], 1)
        self.last[graph.handle] = self.heap.request(1)
        self.heap.give_back(self.last[graph.handle])


@faulty_backend(
    "if-inner-results-move",
    "Graphs of a context have one place for inner results; where a later one needs more of it, it moves, and "
    "the earlier graphs stay where it was.",
    "IF-17",
    deadly=True,
)
class _InnerResultsMove(ReferenceBackend):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.inner_arenas: dict[int, tuple[int, int]] = {}
        """Context -> address and bytes."""
        self.inner_arena_of: dict[int, tuple[int, int]] = {}
        """Graph -> the same of its own inner results."""

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        super().graph_finalize(graph, profile, signal)
        owner = self.graphs[graph or 0]
        size = sum(each.size for each in owner.tensors.values() if each.type == TensorType.NATIVE)
        if not size or not self.heap.is_checked:
            return
        place, room = self.inner_arenas.get(owner.context.handle, (0, 0))
        if size > room:
            moved = self.heap.request(size)
            if room:
                self.heap.give_back(place)
            place = moved
            self.inner_arenas[owner.context.handle] = place, size
        self.inner_arena_of[owner.handle] = place, size

    def use_heap(self, graph: Graph) -> None:
        super().use_heap(graph)
        place, size = self.inner_arena_of.get(graph.handle, (0, 0))
        if size:
            ctypes.memset(place, 0, size)

    def free_context(self, context: Context) -> None:
        super().free_context(context)
        place, room = self.inner_arenas.pop(context.handle, (0, 0))
        if room:
            self.heap.give_back(place)


@faulty_backend(
    "if-record-twice", "The record of a deregistered memory is freed again.", "IF-17", deadly=True
)
class _RecordTwice(ReferenceBackend):
    """contextFree frees all records that it remembers, and deRegister has forgotten none."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.remembered: list[int] = []

    def end_record(self, handle: int) -> None:
        self.remembered.append(self.records[handle])
        super().end_record(handle)

    def free_context(self, context: Context) -> None:
        remembered = list(self.remembered)
        super().free_context(context)
        for block in remembered:
            self.heap.give_back(block)


@faulty_backend("if-unmaps-twice", "deRegister unmaps what it has unmapped.", "IF-17", deadly=True)
class _UnmapsTwice(ReferenceBackend):
    """The record of a registration has a page of its own, which it and its owner give back."""

    def begin_record(self) -> int:
        return self.heap.map(_PAGE)

    def end_record(self, handle: int) -> None:
        page = self.records.pop(handle)
        self.heap.unmap(page, _PAGE)
        self.heap.unmap(page, _PAGE)


@faulty_backend("if-record-too-small", "The last word of a record is beside it.", "IF-17", deadly=True)
class _RecordTooSmall(ReferenceBackend):
    def begin_record(self) -> int:
        block = self.heap.request(RECORD - 8)
        ctypes.memset(block, 0, RECORD)
        return block


_PAGE = 4096
