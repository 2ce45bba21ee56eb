"""Capabilities, errors, backends, devices and contexts of the reference backend."""

from __future__ import annotations

import abc
import collections
import ctypes
import itertools
from ctypes import CFUNCTYPE, POINTER, c_uint32, c_void_p
from typing import Any, ClassVar

from pytest_qnn.isolation.host.checked_heap import OwnHeap
from pytest_qnn.isolation.host.requests import Requests
from pytest_qnn.qnn.abi.codes import ContextOption, Error, HtpContextConfigOption, LogLevel, Property, low
from pytest_qnn.qnn.abi.layouts import ContextConfig, ErrorHandle, Version
from pytest_qnn.qnn.reference.logs import Log, Logs
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import KINDS, Context, Graph, Kind, QnnError, Registration
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_ALWAYS = frozenset(
    {
        Property.GROUP_BACKEND,
        Property.BACKEND_SUPPORT_COMPOSITION,
        Property.GROUP_CONTEXT,
        Property.GROUP_GRAPH,
        Property.GRAPH_SUPPORT_EXECUTE,
        Property.GRAPH_SUPPORT_ONLINE_PREPARE,
        Property.GROUP_TENSOR,
        Property.TENSOR_SUPPORT_QUANTIZATION_ENCODING_SCALE_OFFSET,
        Property.GROUP_ERROR,
        Property.GROUP_LOG,
        Property.GROUP_DEVICE,
        Property.ERROR_GET_VERBOSE_MESSAGE,
        Property.GROUP_PROFILE,
        Property.GRAPH_SUPPORT_EXECUTE_PER_API_PROFILING,
        Property.GROUP_SIGNAL,
        Property.SIGNAL_SUPPORT_ABORT,
        Property.GRAPH_SUPPORT_FINALIZE_SIGNAL,
        Property.GRAPH_SUPPORT_EXECUTE_SIGNAL,
    }
)
_KNOWN = frozenset(map(int, Property))
_MESSAGES: dict[int, bytes] = {
    int(error): f"QNN_{error.name}: {error.name.partition('ERROR_')[2].replace('_', ' ').lower()}".encode()
    for error in Error
    if error
}
_HARMLESS_OPTIONS = frozenset(
    {ContextOption.PRIORITY, ContextOption.ERROR_REPORTING, ContextOption.DEFER_GRAPH_INIT}
)
_HARMLESS_CUSTOM = frozenset(
    {
        HtpContextConfigOption.WEIGHT_SHARING_ENABLED,
        HtpContextConfigOption.FILE_READ_MEMORY_BUDGET,
        HtpContextConfigOption.PREPARE_ONLY,
        HtpContextConfigOption.USE_EXTENDED_UDMA,
        HtpContextConfigOption.LORA_WEIGHT_SHARING_ENABLED,
    }
)
"""Options that libQnnHtp takes from any client; ONNX Runtime gives the first and the last but one."""
_CONFIG = ctypes.POINTER(ctypes.POINTER(ContextConfig))
_LOST: tuple[Kind, ...] = ("context", "graph", "mem")
"""What a restart takes."""
_KIND_SHIFT = 56
"""Handle values carry their kind above bit 55: no address of a process reaches so high."""


class Core(Logs, abc.ABC):
    """The objects of a process and the functions that do not belong to graphs or memory."""

    build_id: ClassVar[bytes] = b"pytest-qnn reference"

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.personality = personality
        self.refusing = Requests(lambda: QnnError(Error.COMMON_ERROR_MEM_ALLOC))
        self.heap = OwnHeap()
        self.backends: dict[int, None] = {}
        self.logs: dict[int, Log] = {}
        self.listeners: dict[int, Log] = {}
        self.devices: dict[int, None] = {}
        self.contexts: dict[int, Context] = {}
        self.graphs: dict[int, Graph] = {}
        self.registrations: dict[int, Registration] = {}
        self.records: dict[int, int] = {}
        """By handle of a registration: the address of its block, where the heap is checked."""
        self._tables: dict[Kind, dict[int, Any]] = {
            "backend": self.backends,
            "log": self.logs,
            "device": self.devices,
            "context": self.contexts,
            "graph": self.graphs,
            "mem": self.registrations,
        }
        self.lost: set[tuple[Kind, int]] = set()
        """What a restart took, until its client gives it back."""
        self.mappings: set[Mapping] = set()
        self.arenas: list[Mapping] = []
        """Of the process, if the personality has any."""
        self.leaving: collections.deque[Mapping] = collections.deque()
        """Mappings that a thread will give back."""
        self._serial = itertools.count(1)
        super().__init__()

    def close(self) -> None:
        """Release all memory and handles, as the end of a process would. The table stays callable.

        No hook is asked: what a faulty backend leaks goes too.
        """
        with self.lock:
            for each in list(self.mappings):
                each.release()
            for table in (*self._tables.values(), self.listeners):
                table.clear()

    def is_null(self, name: str) -> bool:
        """Hook: NULL as well is what the personality says."""
        return super().is_null(name) or name in self.personality.null

    def answer(self, name: str, code: int) -> int:
        """Hook: success is 0; some personalities set bits above the low 16 in errors."""
        del name
        return code | self.personality.error_bits if code else 0

    def ask(self, wanted: str) -> None:
        """Hook: ask the system for ``memory`` or a ``mapping``; 1002 where it refuses."""
        self.refusing.ask(wanted)

    def mint(self, kind: Kind) -> int:
        """Hook: the value of a new handle, never 0."""
        # With reuse, handles of two kinds may have one value, and a freed value comes back: clients that mix
        # them up go unnoticed, as with libraries whose handles are table indexes.
        if not self.personality.reuse_handles:
            return (KINDS.index(kind) + 1) << _KIND_SHIFT | next(self._serial)
        value = next(value for value in itertools.count(1) if value not in self._tables[kind])
        self.lost.discard((kind, value))
        return value

    def require(self, kind: Kind, value: int | None, code: int) -> Any:
        """Hook: the object of a live handle; ``code`` for NULL, unknown or freed ones, 1007 for lost ones."""
        if (kind, value) in self.lost:
            raise QnnError(Error.COMMON_ERROR_SYSTEM_COMMUNICATION)
        table = self._tables[kind]
        if value is None or value not in table:
            raise QnnError(code)
        return table[value]

    def restart(self) -> None:
        """Hook: a subsystem restart; contexts, graphs and registrations are gone, their handles answer 1007.

        Source: documentation of the SDK, version 2.13, subsystem restart.
        """
        with self.lock:
            self.lost |= {(kind, value) for kind in _LOST for value in self._tables[kind]}
            for context in list(self.contexts.values()):
                self.free_context(context)

    def given_back(self, kind: Kind, value: int | None) -> bool:
        """Whether a client gives back what a restart took: with success, and once."""
        if value is None or (kind, value) not in self.lost:
            return False
        self.lost.discard((kind, value))
        return True

    def property_has_capability(self, key: int) -> None:
        """QnnProperty_hasCapability: 0, 1000 or 2000."""
        code = self.capability(key)
        if code:
            raise QnnError(code)

    def capability(self, key: int) -> int:
        """Hook: 0 supported, 1000 not supported, 2000 unknown key."""
        optional = {
            Property.TENSOR_SUPPORT_MEMHANDLE_TYPE: self.personality.memory,
            Property.GROUP_MEMORY: self.personality.memory,
            Property.MEMORY_SUPPORT_MEM_TYPE_ION: self.personality.ion,
            Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM: self.personality.custom,
            Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF: self.personality.dma_buf,
            Property.CONTEXT_SUPPORT_CACHING: self.personality.binaries,
            Property.CONTEXT_SUPPORT_VALIDATE_BINARY: self.personality.binaries,
            Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_WITH_SIGNALS: self.personality.binaries,
            Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_LIST_ASYNC: self.personality.lists,
            Property.GRAPH_SUPPORT_ASYNC_EXECUTION: self.personality.asynchronous,
            Property.TENSOR_SUPPORT_RETRIEVE_RAW: self.personality.retrieve_raw,
            Property.GRAPH_SUPPORT_ENV_OPTION_BIND_MEM_HANDLES: self.personality.environments,
            Property.GRAPH_SUPPORT_ENV_OPTION_POPULATE_CLIENT_BUFS: self.personality.environments,
            Property.CONTEXT_SUPPORT_BINARY_UPDATES: self.personality.sections,
            Property.CONTEXT_SUPPORT_BINARY_SECTION_FULL_CONTEXT: self.personality.sections,
            Property.CONTEXT_SUPPORT_BINARY_WEIGHT_ONLY_UPDATES: self.personality.sections,
            Property.TENSOR_SUPPORT_UPDATEABLE_STATIC_TENSORS: self.personality.sections,
            Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_WITH_CALLBACK: bool(self.personality.pieces),
            Property.CONTEXT_SUPPORT_CUSTOM_PROPERTY: self.personality.deferred,
            Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT: self.personality.deferred,
        }
        if key not in _KNOWN:
            return Error.PROPERTY_ERROR_UNKNOWN_KEY
        if key in _ALWAYS or optional.get(Property(key), False):
            return Error.SUCCESS
        return Error.PROPERTY_NOT_SUPPORTED

    def error_get_message(self, code: int, out: Any) -> None:
        """QnnError_getMessage: NULL and 10001 for a code that is not one of QNN's."""
        if not out:
            raise QnnError(Error.ERROR_INVALID_ARGUMENT)
        out[0] = _MESSAGES.get(low(code))
        if low(code) not in _MESSAGES:
            raise QnnError(Error.ERROR_INVALID_ERROR_HANDLE)

    def backend_get_api_version(self, out: Any) -> None:
        """QnnBackend_getApiVersion; works before backendCreate."""
        if not out:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        out[0].coreApiVersion = Version(*self.core_version)
        out[0].backendApiVersion = Version(*self.backend_version)

    def backend_get_build_id(self, out: Any) -> None:
        """QnnBackend_getBuildId; works before backendCreate."""
        if not out:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        out[0] = self.build_id

    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        """QnnBackend_create; configs are accepted and have no effect, but for options that there are not."""
        if not out:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        if log:
            self.require("log", log, Error.BACKEND_ERROR_INVALID_HANDLE)
        refuse_unlisted(config, Error.BACKEND_ERROR_INVALID_CONFIG)
        self.ask("memory")
        out[0] = handle = self.mint("backend")
        self.backends[handle] = None
        self.listen(handle, log)

    def backend_free(self, backend: int | None) -> None:
        """QnnBackend_free: the contexts of the backend go with it."""
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        for context in [each for each in self.contexts.values() if each.backend == backend]:
            self.free_context(context)
        del self.backends[backend or 0]
        self.forget_listener(backend or 0)

    def device_create(self, log: int | None, config: int | None, out: Any) -> None:
        """QnnDevice_create; configs are accepted and have no effect, but for options that there are not."""
        if not out:
            raise QnnError(Error.DEVICE_ERROR_INVALID_ARGUMENT)
        if log:
            self.require("log", log, Error.DEVICE_ERROR_INVALID_HANDLE)
        refuse_unlisted(config, Error.DEVICE_ERROR_INVALID_CONFIG)
        self.ask("memory")
        out[0] = handle = self.mint("device")
        self.devices[handle] = None

    def device_free(self, device: int | None) -> None:
        """QnnDevice_free: refused with 14003 while a context uses the device, or the end of its contexts."""
        self.require("device", device, Error.DEVICE_ERROR_INVALID_HANDLE)
        users = [context for context in self.contexts.values() if context.device == device]
        if users and self.personality.parents_wait:
            raise QnnError(Error.DEVICE_ERROR_ASSOCIATED_TO_CONTEXT)
        for context in users:
            self.free_context(context)
        del self.devices[device or 0]

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        """QnnContext_create; the device may be NULL."""
        if not out:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if device:
            self.require("device", device, Error.CONTEXT_ERROR_INVALID_HANDLE)
        self.check_context_config(config)
        self.ask("memory")
        handle = self.mint("context")
        self.contexts[handle] = Context(handle, backend or 0, device or 0)
        out[0] = handle
        if self.listeners:
            self.log_message(backend or 0, LogLevel.INFO, b"context created")

    def check_context_config(self, config: int | None) -> None:
        """Hook: priority and error reporting have no effect, what needs a capability is refused (1000)."""
        for entry in context_config(config):
            if entry.option == ContextOption.CUSTOM:
                self.check_custom_config(entry.customConfig)
            elif not self.takes_option(entry):
                raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def takes_option(self, entry: ContextConfig) -> bool:
        """Hook: an option of contextCreate; only what comes out of a binary can be deferred."""
        deferred = entry.option == ContextOption.DEFER_GRAPH_INIT and bool(entry.isGraphInitDeferred)
        return not deferred and entry.option in _HARMLESS_OPTIONS

    def check_custom_config(self, config: int | None) -> None:
        """Hook: a QnnHtpContext_CustomConfig_t without effect here is taken; any other is invalid (5010)."""
        if not config:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        if ctypes.c_uint32.from_address(config).value not in _HARMLESS_CUSTOM:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_CONFIG)

    def context_free(self, context: int | None, profile: int | None) -> None:
        """QnnContext_free: graphs, IO buffers and registrations of the context go with it."""
        if self.given_back("context", context):
            return
        found: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if profile:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        self.free_context(found)

    def free_context(self, context: Context) -> None:
        """Hook: end a context, whoever asked for it."""
        self.release_registrations(context)
        self.release_graphs(context)
        del self.contexts[context.handle]
        if self.listeners:
            self.log_message(context.backend, LogLevel.INFO, b"context freed")

    @abc.abstractmethod
    def release_registrations(self, context: Context) -> None:
        """Hook: end every registration of a context that is freed."""

    @abc.abstractmethod
    def release_graphs(self, context: Context) -> None:
        """Hook: end every graph of a context that is freed."""


def context_config(config: int | None) -> list[ContextConfig]:
    """The entries of a NULL-terminated array of QnnContext_Config_t pointers."""
    if not config:
        return []
    entries = ctypes.cast(config, _CONFIG)
    return [entry[0] for entry in itertools.takewhile(bool, (entries[i] for i in itertools.count()))]


_MOST_OPTIONS = 16
"""The headers' options of backends, devices and graphs are numbers below this."""


def refuse_unlisted(config: int | None, code: int) -> None:
    """Raise the code for an option that no header lists: the first member of all components' entries."""
    if any(entry.option >= _MOST_OPTIONS for entry in context_config(config)):
        raise QnnError(code)


_PERFORMANCE = 0
"""QnnHtpDevice_InfrastructureType_t."""
_CreatePowerConfigId = CFUNCTYPE(ErrorHandle, c_uint32, c_uint32, POINTER(c_uint32))
_DestroyPowerConfigId = CFUNCTYPE(ErrorHandle, c_uint32)
_SetPowerConfig = CFUNCTYPE(ErrorHandle, c_uint32, c_void_p)
_SetMemoryConfig = CFUNCTYPE(ErrorHandle, c_uint32, c_uint32, c_void_p)


class Infrastructure(ctypes.Structure):
    """QnnHtpDevice_Infrastructure_t: a type, and the four functions of QnnHtpDevice_PerfInfrastructure_t."""

    _fields_ = (
        ("infraType", c_uint32),
        ("createPowerConfigId", _CreatePowerConfigId),
        ("destroyPowerConfigId", _DestroyPowerConfigId),
        ("setPowerConfig", _SetPowerConfig),
        ("setMemoryConfig", _SetMemoryConfig),
    )


class Devices(Core):
    """QnnDevice beyond creation."""

    def __init__(self, *arguments: Any) -> None:
        self._power_ids = itertools.count(1)
        super().__init__(*arguments)
        self._infrastructure = Infrastructure(
            infraType=_PERFORMANCE,
            createPowerConfigId=self._guard("createPowerConfigId", _CreatePowerConfigId, self._power_id),
            destroyPowerConfigId=self._guard("destroyPowerConfigId", _DestroyPowerConfigId, _take),
            setPowerConfig=self._guard("setPowerConfig", _SetPowerConfig, _take),
            setMemoryConfig=self._guard("setMemoryConfig", _SetMemoryConfig, _take),
        )

    def device_get_infrastructure(self, out: Any) -> None:
        """QnnDevice_getInfrastructure: the same table for every device; 1004 for NULL."""
        if not out:
            raise QnnError(Error.DEVICE_ERROR_INVALID_ARGUMENT)
        out[0] = ctypes.addressof(self._infrastructure)

    def _power_id(self, device: int, core: int, out: Any) -> None:
        del device, core
        if not out:
            raise QnnError(Error.DEVICE_ERROR_INVALID_ARGUMENT)
        out[0] = next(self._power_ids)


def _take(*_arguments: Any) -> None:
    """Every setting is fine."""
