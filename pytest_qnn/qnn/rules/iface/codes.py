"""The codes for an invalid handle, call by call, as the headers of API 2.32 list them."""

from __future__ import annotations

from pytest_qnn.qnn.abi.codes import Error, Property
from pytest_qnn.qnn.cases.case import BOGUS, FREED, NULL
from pytest_qnn.qnn.cases.misuses import Misused
from pytest_qnn.qnn.facts import MemoryFacts

Codes = frozenset[int]
_NONE: Codes = frozenset()
_BACKEND: Codes = frozenset({int(Error.BACKEND_ERROR_INVALID_HANDLE)})
_CONTEXT: Codes = frozenset({int(Error.CONTEXT_ERROR_INVALID_HANDLE)})
_GRAPH: Codes = frozenset({int(Error.GRAPH_ERROR_INVALID_HANDLE)})
_TENSOR: Codes = frozenset({int(Error.TENSOR_ERROR_INVALID_HANDLE)})
_MEM: Codes = frozenset({int(Error.MEM_ERROR_INVALID_HANDLE)})
_DEVICE: Codes = frozenset({int(Error.DEVICE_ERROR_INVALID_HANDLE)})
_LOG: Codes = frozenset({int(Error.LOG_ERROR_INVALID_HANDLE)})
_PROFILE: Codes = frozenset({int(Error.PROFILE_ERROR_INVALID_HANDLE)})
_SIGNAL: Codes = frozenset({int(Error.SIGNAL_ERROR_INVALID_HANDLE)})

_COMPONENTS: dict[str, Codes] = {
    "backend": _BACKEND,
    "context": _CONTEXT,
    "graph": _GRAPH,
    "tensor": _TENSOR,
    "mem": _MEM,
    "device": _DEVICE,
    "log": _LOG,
    "profile": _PROFILE,
    "signal": _SIGNAL,
}
"""By the word that a call's name begins with: a header lists its component's code, whatever the handle."""
_OF_TEXTS: dict[Misused, Codes] = {
    "errorGetVerboseMessage": frozenset({int(Error.ERROR_INVALID_ERROR_HANDLE)}),
    "errorFreeVerboseMessage": frozenset({int(Error.ERROR_INVALID_ARGUMENT)}),
}
_INVALID_CONTEXT_ARGUMENT: Codes = frozenset({int(Error.CONTEXT_ERROR_INVALID_ARGUMENT)})
_FOR_FREED: dict[Misused, Codes] = dict.fromkeys(
    ("graphExecute", "graphExecuteAsync"), frozenset({int(Error.GRAPH_ERROR_INVALID_CONTEXT)})
)
"""Listed beside the usual code, for a graph whose context is freed."""
_FOR_NULL: dict[Misused, Codes] = {"contextFinalize": _INVALID_CONTEXT_ARGUMENT}
"""Listed for a NULL context."""
_BESIDE: dict[Misused, Codes] = {
    "backendRegisterOpPackage": frozenset({int(Error.BACKEND_ERROR_OP_PACKAGE_NOT_FOUND)}),
    "contextApplyBinarySection": _INVALID_CONTEXT_ARGUMENT,
    "contextReleaseIncrementalBinary": frozenset({int(Error.CONTEXT_ERROR_INCREMENT_INVALID_BUFFER)}),
    "graphReleaseExecutionEnvironment": frozenset({int(Error.GRAPH_ERROR_INVALID_ARGUMENT)}),
}
"""The code of another argument that cannot be good: there is no package to load, and of what is no object no
section, no part and no environment."""
PARENTS: dict[Misused, Codes] = {
    "backendCreate": _LOG,
    "contextCreate": _BACKEND,
    "contextValidateBinary": _BACKEND,
    "contextCreateFromBinary": _BACKEND,
    "contextCreateFromBinaryWithSignal": _BACKEND,
    "contextCreateFromBinaryListAsync": _BACKEND,
    "contextCreateFromBinaryWithCallback": _BACKEND,
    "graphCreate": _CONTEXT,
    "graphRetrieve": _CONTEXT,
    "tensorCreateContextTensor": _CONTEXT,
    "tensorUpdateContextTensors": _CONTEXT,
    "tensorCreateGraphTensor": _GRAPH,
    "tensorUpdateGraphTensors": _GRAPH,
    "memRegister": _CONTEXT,
    "deviceCreate": _LOG,
    "deviceGetPlatformInfo": _LOG,
    "deviceFreePlatformInfo": _LOG,
    "profileCreate": _BACKEND,
    "signalCreate": _BACKEND,
}
"""The code of the handle's component, where that is another: a wrong code (IF-10) of the right function."""
_UNSUPPORTED: Codes = frozenset({int(Error.COMMON_ERROR_NOT_SUPPORTED)})
_OPTIONAL_OF_BACKENDS: Codes = frozenset({int(Error.BACKEND_ERROR_NOT_SUPPORTED)})
_RECORDED: Codes = frozenset({4950})
"""QNN_SAVER_ERROR_DUMMY_RETVALUE: the call was written down, and the answer means nothing (QnnSaver.h)."""
_NOT_OFFERED: dict[Misused, Codes] = {
    "backendSetConfig": _OPTIONAL_OF_BACKENDS,
    "backendRegisterOpPackage": _OPTIONAL_OF_BACKENDS,
    "backendValidateOpConfig": _OPTIONAL_OF_BACKENDS,
    "backendGetProperty": _OPTIONAL_OF_BACKENDS,
    "backendGetSupportedOperations": _RECORDED,
    "contextGetBinarySize": _RECORDED,
    "contextGetBinary": _RECORDED,
    "profileGetEvents": _RECORDED,
    "profileGetSubEvents": _RECORDED,
    "profileGetEventData": _RECORDED,
    "profileGetExtendedEventData": _RECORDED,
    "deviceGetPlatformInfo": _RECORDED,
    "deviceGetInfo": _RECORDED,
}
"""Besides 1000: QnnBackend.h has a code of its own for what a backend need not offer; QnnSaver.h a list."""

OWNERS: dict[tuple[Misused, str], str] = {
    **{("contextFree", handle): "CTX-06" for handle in (NULL, BOGUS, FREED)},
    **{("memRegister", handle): "REG-06" for handle in (NULL, BOGUS, FREED)},
    **{("memDeRegister", handle): "DRG-03" for handle in (NULL, BOGUS)},
    ("memDeRegister", FREED): "DRG-04",
    **{("contextGetBinarySize", handle): "OFF-07" for handle in (NULL, BOGUS)},
    **{("contextFinalize", handle): "EXT-25" for handle in (NULL, BOGUS)},
}
"""Calls of which another rule than IF-10 says what they answer to such a handle."""
_OF_BINARIES = frozenset({"OFF-07", "EXT-25"})
"""Those of them that judge nothing without binaries. Without a memory API its calls are CAP-02's."""


def is_owned(call: Misused, handle: str, facts: MemoryFacts) -> bool:
    """Another rule than IF-10 judges the call on that handle: NULL, BOGUS, or any name of what is freed."""
    owner = OWNERS.get((call, handle if handle in (NULL, BOGUS) else FREED), "")
    return bool(owner) and (owner not in _OF_BINARIES or facts.supports(Property.CONTEXT_SUPPORT_CACHING))


def component(call: Misused) -> Codes:
    """The invalid-handle code that the header of the call lists for it."""
    if call in _OF_TEXTS:
        return _OF_TEXTS[call]
    return next(codes for word, codes in _COMPONENTS.items() if call.startswith(word))


def invalid(call: Misused, handle: str) -> Codes:
    """Every code that the header lists for what is wrong with a call on a handle that stands for nothing."""
    if handle == NULL:
        more = _FOR_NULL.get(call, _NONE)
    else:
        more = _NONE if handle == BOGUS else _FOR_FREED.get(call, _NONE)
    return component(call) | _BESIDE.get(call, _NONE) | more


def not_offered(call: Misused) -> Codes:
    """Codes by which a target says that it has no such function."""
    return _UNSUPPORTED | _NOT_OFFERED.get(call, _NONE)
