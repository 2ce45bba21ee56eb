"""A QNN interface table whose entries are methods of a Python object."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import API_VERSION, Version
from pytest_qnn.qnn.abi.table import PROTOTYPES, GetProviders, Interface, InterfaceP, PaddedInterface
from pytest_qnn.qnn.reference.objects import QnnError

HTP_BACKEND_ID = 6
"""Clients choose the shared-buffer descriptor by this id."""
ENTRIES: dict[str, str] = {
    "propertyHasCapability": "property_has_capability",
    "backendCreate": "backend_create",
    "backendFree": "backend_free",
    "backendGetApiVersion": "backend_get_api_version",
    "backendGetBuildId": "backend_get_build_id",
    "backendValidateOpConfig": "backend_validate_op_config",
    "logCreate": "log_create",
    "logSetLogLevel": "log_set_log_level",
    "logFree": "log_free",
    "deviceCreate": "device_create",
    "deviceFree": "device_free",
    "deviceGetInfrastructure": "device_get_infrastructure",
    "contextCreate": "context_create",
    "contextGetBinarySize": "context_get_binary_size",
    "contextGetBinary": "context_get_binary",
    "contextCreateFromBinary": "context_create_from_binary",
    "contextGetBinarySectionSize": "context_get_binary_section_size",
    "contextGetBinarySection": "context_get_binary_section",
    "contextApplyBinarySection": "context_apply_binary_section",
    "tensorUpdateGraphTensors": "tensor_update_graph_tensors",
    "contextGetProperty": "context_get_property",
    "contextFinalize": "context_finalize",
    "contextFree": "context_free",
    "graphCreate": "graph_create",
    "graphRetrieve": "graph_retrieve",
    "graphAddNode": "graph_add_node",
    "graphFinalize": "graph_finalize",
    "graphExecute": "graph_execute",
    "graphExecuteAsync": "graph_execute_async",
    "graphPrepareExecutionEnvironment": "graph_prepare_execution_environment",
    "graphReleaseExecutionEnvironment": "graph_release_execution_environment",
    "tensorCreateGraphTensor": "tensor_create_graph_tensor",
    "memRegister": "mem_register",
    "memDeRegister": "mem_deregister",
    "errorGetMessage": "error_get_message",
    "errorGetVerboseMessage": "error_get_verbose_message",
    "errorFreeVerboseMessage": "error_free_verbose_message",
    "backendSetConfig": "backend_set_config",
    "backendGetSupportedOperations": "backend_get_supported_operations",
    "backendGetProperty": "backend_get_property",
    "contextSetConfig": "context_set_config",
    "contextValidateBinary": "context_validate_binary",
    "contextCreateFromBinaryWithSignal": "context_create_from_binary_with_signal",
    "contextCreateFromBinaryWithCallback": "context_create_from_binary_with_callback",
    "graphSetConfig": "graph_set_config",
    "graphGetProperty": "graph_get_property",
    "deviceSetConfig": "device_set_config",
    "profileCreate": "profile_create",
    "profileSetConfig": "profile_set_config",
    "profileGetEvents": "profile_get_events",
    "profileGetSubEvents": "profile_get_sub_events",
    "profileGetEventData": "profile_get_event_data",
    "profileFree": "profile_free",
    "signalCreate": "signal_create",
    "signalSetConfig": "signal_set_config",
    "signalTrigger": "signal_trigger",
    "signalFree": "signal_free",
}
"""The table entry that each method serves. Every other entry answers 1000."""


@functools.cache
def _constant(name: str, code: int) -> Any:
    """An entry that does nothing but answer ``code``; shared by all backends and never freed."""
    return PROTOTYPES[name](lambda *_: code)


class InterfaceTable:
    """Turns the methods of ``entries`` into a ``QnnInterface_t`` and serves it.

    A method returns for success and raises `QnnError` for a code. One lock is held around each call.
    An exception that escaped a ctypes callback would read as success, so every other exception
    becomes 1100 and is kept in ``escaped`` for the test that wants to know.
    """

    entries: ClassVar[dict[str, str]] = ENTRIES
    null_entries: ClassVar[frozenset[str]] = frozenset()
    """Names of table entries that are NULL."""
    backend_id: ClassVar[int] = HTP_BACKEND_ID
    provider_name: ClassVar[bytes] = b"PYTEST_QNN_REFERENCE"
    core_version: ClassVar[tuple[int, int, int]] = API_VERSION
    backend_version: ClassVar[tuple[int, int, int]] = (1, 0, 0)

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.escaped: list[tuple[str, BaseException]] = []
        self._thunks: list[Any] = []
        self._padded = PaddedInterface()
        self._fill(self._padded.interface)
        self._list = (InterfaceP * 1)(ctypes.pointer(self._padded.interface))
        self.get_providers: Any = self._guard("getProviders", GetProviders, self.interface_get_providers)
        """Call it like the exported symbol QnnInterface_getProviders."""

    def answer(self, name: str, code: int) -> int:
        """Hook: the 64-bit Qnn_ErrorHandle_t that entry ``name`` returns for ``code``."""
        del name
        return code

    def interface_get_providers(self, providers: Any, count: Any) -> None:
        """QnnInterface_getProviders: the one provider, the same pointers at every call; 1004 for NULL."""
        self.check_provider_arguments(providers, count)
        providers[0] = self.provider_list()
        count[0] = self.provider_count()

    def check_provider_arguments(self, providers: Any, count: Any) -> None:
        """Hook: refuse NULL out pointers."""
        if not providers or not count:
            raise QnnError(Error.INTERFACE_ERROR_INVALID_PARAMETER)

    def provider_list(self) -> Any:
        """Hook: the array of interface pointers that a client receives."""
        return self._list

    def provider_count(self) -> int:
        """Hook: how many providers a client is told of."""
        return 1

    def _fill(self, interface: Interface) -> None:
        interface.backendId = self.backend_id
        interface.providerName = self.provider_name
        interface.apiVersion.coreApiVersion = Version(*self.core_version)
        interface.apiVersion.backendApiVersion = Version(*self.backend_version)
        for name, prototype in PROTOTYPES.items():
            if name in self.null_entries:
                continue
            if name in self.entries:
                entry = self._guard(name, prototype, getattr(self, self.entries[name]))
            else:
                entry = _constant(name, self.answer(name, Error.COMMON_ERROR_NOT_SUPPORTED))
            setattr(interface.implementation, name, entry)

    def _guard(self, name: str, prototype: Any, method: Any) -> Any:
        def call(*arguments: Any) -> int:
            with self.lock:
                try:
                    method(*arguments)
                    return self.answer(name, 0)
                except QnnError as error:
                    return self.answer(name, error.code)
                except BaseException as error:
                    self.escaped.append((name, error))
                    return int(Error.COMMON_ERROR_GENERAL)

        thunk = prototype(call)
        self._thunks.append(thunk)
        return thunk
