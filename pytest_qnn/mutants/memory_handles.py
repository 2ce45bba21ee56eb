"""Reference backends with one fault each in what they do with a handle that stands for nothing (IF-10)."""

from __future__ import annotations

from typing import Any

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_objects import QnnError
from pytest_qnn.reference.backend_profile import Profile


@faulty_backend("if-profile-freed", "Freed profiles go on as they were.", "IF-10")
class _KeepsProfiles(ReferenceBackend):
    def profile_free(self, profile: int | None) -> None:
        kept = self.profiles.get(profile or 0)
        super().profile_free(profile)
        if kept is not None:
            self.profiles[profile or 0] = kept


@faulty_backend("if-event-freed", "The events of a freed profile are still told.", "IF-10")
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
