"""What else may be set on, or asked of, the objects of the reference backend."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.abi.qnn import OperationName
from pytest_qnn.abi.qnn_codes import ContextOption, Error
from pytest_qnn.reference.backend_binary import Binaries
from pytest_qnn.reference.backend_core import context_config
from pytest_qnn.reference.backend_objects import QnnError
from pytest_qnn.reference.backend_ops import OPERATORS, PACKAGE
from pytest_qnn.reference.personalities import DEFAULT, Personality

_GRAPH_PRIORITY = 3
"""QNN_GRAPH_CONFIG_OPTION_PRIORITY."""
_HARMLESS = frozenset({ContextOption.PRIORITY, ContextOption.ERROR_REPORTING})


class Settings(Binaries):
    """Configurations after creation, properties, the list of operators, a look at a binary, long messages."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self._operations = (OperationName * len(OPERATORS))(
            *(OperationName(PACKAGE.encode(), name.encode(), None) for name in OPERATORS)
        )
        self.texts: dict[int, Any] = {}
        """Verbose messages that clients have not given back, by address."""

    def backend_set_config(self, backend: int | None, config: int | None) -> None:
        """QnnBackend_setConfig: there is no option (4003)."""
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        _take(config, frozenset(), Error.BACKEND_ERROR_NOT_SUPPORTED)

    def context_set_config(self, context: int | None, config: int | None) -> None:
        """QnnContext_setConfig: priority and error reporting, without effect."""
        self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        _take(config, _HARMLESS, Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def graph_set_config(self, graph: int | None, config: int | None) -> None:
        """QnnGraph_setConfig: priority, without effect."""
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        _take(config, frozenset({_GRAPH_PRIORITY}), Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

    def device_set_config(self, device: int | None, config: int | None) -> None:
        """QnnDevice_setConfig: there is no option (1000)."""
        self.require("device", device, Error.DEVICE_ERROR_INVALID_HANDLE)
        _take(config, frozenset(), Error.DEVICE_ERROR_UNSUPPORTED_FEATURE)

    def backend_get_property(self, backend: int | None, properties: int | None) -> None:
        """QnnBackend_getProperty: there is no property (4003)."""
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        if not properties:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        _take(properties, frozenset(), Error.BACKEND_ERROR_NOT_SUPPORTED)

    def graph_get_property(self, graph: int | None, properties: int | None) -> None:
        """QnnGraph_getProperty: there is no property (1000)."""
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        if not properties:
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        _take(properties, frozenset(), Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

    def backend_get_supported_operations(self, backend: int | None, count: Any, out: Any) -> None:
        """QnnBackend_getSupportedOperations; without a backend those of the one package that there is."""
        if backend:
            self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        if not count or not out:
            raise QnnError(Error.BACKEND_ERROR_INVALID_ARGUMENT)
        count[0], out[0] = len(self._operations), ctypes.addressof(self._operations)

    def context_validate_binary(
        self, backend: int | None, device: int | None, config: int | None, buffer: int | None, size: int
    ) -> None:
        """QnnContext_validateBinary: as contextCreateFromBinary, and nothing is made."""
        self.require_binaries()
        self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if device:
            self.require("device", device, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if not buffer or not size:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        self.check_binary_config(config)
        try:
            self.read_binary(ctypes.string_at(buffer, size))
        except ValueError:
            raise QnnError(Error.CONTEXT_ERROR_CREATE_FROM_BINARY) from None

    def error_get_verbose_message(self, code: int, out: Any) -> None:
        """QnnError_getVerboseMessage: the message in memory of its own; 10001 as errorGetMessage."""
        self.error_get_message(code, out)
        text = ctypes.create_string_buffer(out[0])
        self.texts[ctypes.addressof(text)] = text
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(text)

    def error_free_verbose_message(self, text: int | None) -> None:
        """QnnError_freeVerboseMessage: 10000 for any other address."""
        if self.texts.pop(text or 0, None) is None:
            raise QnnError(Error.ERROR_INVALID_ARGUMENT)


def _take(config: int | None, harmless: frozenset[int], code: int) -> None:
    """Refuse a list with an option that is not harmless."""
    if any(entry.option not in harmless for entry in context_config(config)):
        raise QnnError(code)
