"""Providers, versions, the interface table, capability keys and configurations."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import Error, Property
from pytest_qnn.qnn.abi.layouts import Version
from pytest_qnn.qnn.abi.table import FUNCTIONS, Interface, InterfaceP, PaddedInterface
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT
from tests.gallery.qnn.oddity import Odd, odd

_NAMES = [name for name, _ in FUNCTIONS]
_LATER = frozenset(_NAMES[_NAMES.index("tensorUpdateGraphTensors") :])
"""Members that an older minor of the API has not, as their place at the end shows."""
_NONE_OF_THEM = dataclasses.replace(DEFAULT, deferred=False, null=_LATER)
_PROFILES = frozenset(name for name in _NAMES if name.startswith("profile"))
_SIGNALS = frozenset(name for name in _NAMES if name.startswith("signal"))
_LOGS = frozenset(name for name in _NAMES if name.startswith("log"))
_ERRORS = frozenset(name for name in _NAMES if name.startswith("error"))
_DEVICES = frozenset(name for name in _NAMES if name.startswith("device"))
_RARE = _LATER | {
    *("backendRegisterOpPackage", "backendSetConfig", "contextSetConfig", "graphSetConfig"),
    *("graphCreateSubgraph", "graphExecuteAsync", "tensorCreateContextTensor", "graphGetProperty"),
    *("graphPrepareExecutionEnvironment", "graphReleaseExecutionEnvironment", "contextValidateBinary"),
    *("contextCreateFromBinaryWithSignal", "contextCreateFromBinaryListAsync"),
    *("errorGetVerboseMessage", "errorFreeVerboseMessage"),
}


class _OtherVersion(Odd):
    """Says one version everywhere."""

    def backend_get_api_version(self, out: Any) -> None:
        super().backend_get_api_version(out)
        out[0].coreApiVersion = Version(*self.core_version)

    def interface_get_providers(self, providers: Any, count: Any) -> None:
        self.meet()
        super().interface_get_providers(providers, count)


class _Without(Odd):
    """Some keys are not supported."""

    lacks: ClassVar[frozenset[int]] = frozenset()

    def capability(self, key: int) -> int:
        if key in self.lacks:
            self.meet()
            return Error.PROPERTY_NOT_SUPPORTED
        return super().capability(key)


@odd(
    "older-api",
    "the API is 2.17: the table ends earlier, and behind its end are zeros",
    source="facts IF-04: a client reads as far as the version says; 3.1: tables grow at the end",
    seen="coreApiVersion 2.17.0, the last 14 members NULL",
    tried_by="IF-04 IF-05 EXT-25",
)
class OlderApi(_OtherVersion):
    core_version = (2, 17, 0)
    chosen = _NONE_OF_THEM


@odd(
    "newer-api",
    "the API is 2.99.7: forty more functions follow the ones that a client of 2.32 knows",
    source="facts 3.1: 2.40 has 75 members, the order of the first is kept; IF-04",
    seen="coreApiVersion 2.99.7, a backend API of 70000.0.1",
    tried_by="IF-03 IF-04",
)
class NewerApi(_OtherVersion):
    core_version = (2, 99, 7)
    backend_version = (70000, 0, 1)

    def __init__(self) -> None:
        super().__init__()
        self._further = ctypes.CFUNCTYPE(ctypes.c_uint64)(lambda: 1000)
        for place in range(40):
            self._padded.spare[place] = ctypes.cast(self._further, ctypes.c_void_p)


@odd(
    "two-providers",
    "the list has a second provider, of a later major of the API, behind the one that a client of 2.32 takes",
    source="facts IF-01: at least one provider; IF-04: the client takes the one whose major is its own",
    seen="two providers",
    tried_by="IF-01 IF-03",
)
class TwoProviders(Odd):
    first = False

    def __init__(self) -> None:
        super().__init__()
        self._other = PaddedInterface()
        self._other.interface.backendId = self.backend_id
        self._other.interface.providerName = b"OF ANOTHER MAJOR"
        self._other.interface.apiVersion.coreApiVersion = Version(3, 0, 0)
        both = [ctypes.pointer(self._other.interface), ctypes.pointer(self._padded.interface)]
        self._list = (InterfaceP * 2)(*(both if self.first else both[::-1]))

    def provider_count(self) -> int:
        self.meet()
        return 2


@odd(
    "other-major-first",
    "the first provider is of a later major of the API, the second is the one for a client of 2.32",
    source="facts IF-04 and section 5: clients take the provider whose major is their own",
    seen="the first provider's table is of another API",
    tried_by="IF-01 REG-01",
)
class OtherMajorFirst(TwoProviders):
    first = True


@odd(
    "sparse-table",
    "every function of a feature that it does not have is NULL: profiles, signals, and what is seldom used",
    source="facts 7.19, IF-05: NULL where the feature is not supported",
    seen="some forty members are NULL, their keys are not supported",
    tried_by="IF-05 CAP-07 EXT-25",
)
class SparseTable(_Without):
    chosen = dataclasses.replace(_NONE_OF_THEM, null=_RARE | _PROFILES | _SIGNALS)
    lacks = frozenset(
        {
            Property.GROUP_PROFILE,
            Property.GRAPH_SUPPORT_EXECUTE_PER_API_PROFILING,
            Property.GROUP_SIGNAL,
            Property.SIGNAL_SUPPORT_ABORT,
            Property.GRAPH_SUPPORT_FINALIZE_SIGNAL,
            Property.GRAPH_SUPPORT_EXECUTE_SIGNAL,
            Property.ERROR_GET_VERBOSE_MESSAGE,
            Property.CONTEXT_SUPPORT_VALIDATE_BINARY,
            Property.CONTEXT_SUPPORT_CREATE_FROM_BINARY_WITH_SIGNALS,
        }
    )

    def is_null(self, name: str) -> bool:
        found = super().is_null(name)
        if found:
            self.meet()
        return found


@odd(
    "unsupported-is-unknown",
    "a key of what it does not have is one that it does not know (2000)",
    source="facts 3.7 and CAP-01: 0, 1000 or 2000; libQnnIr answers so for what is newer than itself",
    seen="2000 where others answer 1000",
    tried_by="CAP-01 CAP-04",
)
class UnsupportedIsUnknown(Odd):
    chosen = dataclasses.replace(DEFAULT, ion=False, deferred=False)

    def capability(self, key: int) -> int:
        found = super().capability(key)
        if found == Error.PROPERTY_NOT_SUPPORTED:
            self.meet()
            return Error.PROPERTY_ERROR_UNKNOWN_KEY
        return found


@odd(
    "group-keys-unknown",
    "it knows no key of a group but that of memory, only those of the features in them",
    source="facts 3.7: so libQnnHtp and libQnnGpu answer to 1, 101, 201, 301 and 501",
    seen="2000 for 101, 201, 301, 501, 1001, 1301",
    tried_by="CAP-01 IF-08",
)
class GroupKeysUnknown(Odd):
    def capability(self, key: int) -> int:
        if key in list(Property) and Property(key).name.startswith("GROUP_") and key != Property.GROUP_MEMORY:
            self.meet()
            return Error.PROPERTY_ERROR_UNKNOWN_KEY
        return super().capability(key)


@odd(
    "no-device",
    "there are no devices: deviceCreate is not supported, and contexts are made without one",
    source="facts 3.7: libQnnIr has no key 1501; 2.1: a NULL device is fine; section 5: clients ask first",
    seen="deviceCreate answers 1000",
    tried_by="REG-01 CTX-08 CTX-07",
)
class NoDevice(_Without):
    lacks = frozenset({Property.GROUP_DEVICE})

    def device_create(self, log: int | None, config: int | None, out: Any) -> None:
        self.meet()
        raise QnnError(Error.DEVICE_ERROR_UNSUPPORTED_FEATURE)


@odd(
    "compiles-only",
    "graphs are composed, finalised and written to binaries; none is executed here",
    source="facts 3.7, key 311; so libQnnSaver and libQnnIr say, and the compilers of other vendors may",
    seen="graphExecute answers 1000, as key 311 does",
    tried_by="IF-11 IF-12 OFF-01 EXE-21 EXE-16",
)
class CompilesOnly(_Without):
    lacks = frozenset({Property.GRAPH_SUPPORT_EXECUTE})

    def graph_execute(self, *arguments: Any) -> None:
        self.meet()
        raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)


@odd(
    "no-device-functions",
    "there are no devices, and no function of theirs in the table",
    source="facts IF-05, 7.19: NULL where the feature (key 1501) is not supported",
    seen="deviceCreate is NULL",
    tried_by="REG-01 CTX-08",
)
class NoDeviceFunctions(_Without):
    chosen = dataclasses.replace(DEFAULT, null=_DEVICES)
    lacks = frozenset({Property.GROUP_DEVICE})

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        if not device:
            self.meet()
        super().context_create(backend, device, config, out)


@odd(
    "no-log",
    "there is no log: logCreate is not supported, and backends are made without one",
    source="facts 3.7, key 1301; 2.1: backendCreate takes a NULL logger",
    seen="logCreate answers 1000",
    tried_by="REG-01 QTHR-04 CTX-08",
)
class NoLog(_Without):
    lacks = frozenset({Property.GROUP_LOG})

    def log_create(self, callback: int | None, level: int, out: Any) -> None:
        self.meet()
        raise QnnError(Error.COMMON_ERROR_NOT_SUPPORTED)


@odd(
    "no-log-functions",
    "there is no log, and no function of it in the table",
    source="facts IF-05, 7.19; key 1301",
    seen="logCreate is NULL",
    tried_by="REG-01 CTX-08",
)
class NoLogFunctions(_Without):
    chosen = dataclasses.replace(DEFAULT, null=_LOGS)
    lacks = frozenset({Property.GROUP_LOG})

    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        if not log:
            self.meet()
        super().backend_create(log, config, out)


@odd(
    "no-error-texts",
    "it has no texts of errors, and no functions for them",
    source="facts 3.7, keys 1001 and 1002; IF-05",
    seen="errorGetMessage is NULL",
    tried_by="IF-08",
)
class NoErrorTexts(_Without):
    chosen = dataclasses.replace(DEFAULT, null=_ERRORS)
    lacks = frozenset({Property.GROUP_ERROR, Property.ERROR_GET_VERBOSE_MESSAGE})


@odd(
    "no-configurations",
    "whoever configures a context is refused (1000), whatever the option",
    source="facts 3.7, key 205 of libQnnIr; 2.1: options that are not supported are refused with 1000",
    seen="a context with a priority is refused",
    tried_by="EXT-02 EXT-31 CAP-06",
)
class NoConfigurations(Odd):
    chosen = dataclasses.replace(DEFAULT, deferred=False)

    def check_context_config(self, config: int | None) -> None:
        if context_config(config):
            self.meet()
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


@odd(
    "odd-names",
    "the provider's name is 300 bytes that are no UTF-8, the build's id has line breaks and percent signs",
    source="facts 3.1: both are C strings, of which nothing more is said",
    seen="bytes above 127 in providerName, %s and a line break in the build id",
    tried_by="IF-03 IF-07",
)
class OddNames(Odd):
    provider_name = b"\xff\xfe %s%n " * 30
    build_id = b"v1\n%s%d\t\x80"

    def backend_get_build_id(self, out: Any) -> None:
        self.meet()
        super().backend_get_build_id(out)


@odd(
    "unknown-backend-id",
    "the backend has an id that no header names, and so no memory types of HTP",
    source="facts 3.1: backendId chooses how clients describe custom memory",
    seen="backendId 4,000,000,000; ION is the only memory type",
    tried_by="REG-01 IF-01 CAP-04",
)
class UnknownBackendId(Odd):
    backend_id = 4_000_000_000
    chosen = dataclasses.replace(DEFAULT, custom=False, deferred=False)

    def _fill(self, interface: Interface) -> None:
        self.meet()
        super()._fill(interface)
