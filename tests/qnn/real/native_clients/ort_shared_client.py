"""ONNX Runtime's shared-memory allocator on a QNN backend library, through its C API: tensors at offsets.

    python ort_shared_client.py BACKEND

Two inputs lie at offsets 256 and 512 of one allocation of 4096 bytes, the output in one of its own. What
comes out, and what the reference in this process had registered, goes to standard output as JSON.
Python's own API cannot allocate such memory; the C API is a table that only ever grows at its end.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import onnxruntime_qnn
from ort_client import PROVIDER, SHAPE, quantised

_API = 24
"""ORT_API_VERSION that the positions below belong to."""
_POSITIONS = {
    "GetErrorMessage": 2,
    "CreateEnv": 3,
    "CreateSessionFromArray": 8,
    "Run": 9,
    "CreateSessionOptions": 10,
    "CreateTensorAsOrtValue": 48,
    "CreateTensorWithDataAsOrtValue": 49,
    "GetTensorMutableData": 51,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "AddSessionConfigEntry": 130,
    "CreateAllocator": 131,
    "ReleaseAllocator": 132,
    "RegisterExecutionProviderLibrary": 301,
    "GetEpDevices": 303,
    "SessionOptionsAppendExecutionProvider_V2": 304,
    "EpDevice_EpName": 312,
    "CreateMemoryInfo_V2": 320,
}
_UINT8 = 2
_HOST_ACCESSIBLE = 5
_QUALCOMM = 0x5143
_COUNT, _TOTAL, _FIRST, _SECOND = 128, 4096, 256, 512


class Api:
    """OrtApi: functions by name; one that ends in a status raises RuntimeError with its message."""

    def __init__(self) -> None:
        library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so*"))
        base = ctypes.CDLL(str(library)).OrtGetApiBase
        base.restype = POINTER(c_void_p)
        get_api = ctypes.CFUNCTYPE(c_void_p, c_uint32)(base()[0] or 0)
        self._table = ctypes.cast(get_api(_API), POINTER(c_void_p))
        self._message = ctypes.CFUNCTYPE(c_char_p, c_void_p)(self._table[_POSITIONS["GetErrorMessage"]] or 0)

    def __call__(self, name: str, *arguments: Any) -> None:
        status = self._function(name, c_void_p)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self._message(status).decode()}")

    def make(self, name: str, *arguments: Any) -> c_void_p:
        """What a function puts into its last argument."""
        out = c_void_p()
        self(name, *arguments, byref(out))
        return out

    def release(self, kind: str, value: c_void_p) -> None:
        """Release an object."""
        self._function(f"Release{kind}", None)(value)

    def text(self, name: str, value: Any) -> bytes:
        """A function that returns a text."""
        found: bytes = self._function(name, c_char_p)(value)
        return found

    def _function(self, name: str, result: Any) -> Any:
        # Without argument types: every argument is an instance of a ctypes type.
        return ctypes.CFUNCTYPE(result)(self._table[_POSITIONS[name]] or 0)


def _texts(values: Sequence[str]) -> Any:
    return (c_char_p * len(values))(*(value.encode() for value in values))


def open_session(api: Api, model: bytes, backend: str) -> c_void_p:
    """A session on the backend, with shared memory and without falling back to the CPU."""
    environment = api.make("CreateEnv", c_int32(3), c_char_p(b"shared"))
    library = c_char_p(onnxruntime_qnn.get_library_path().encode())
    api("RegisterExecutionProviderLibrary", environment, c_char_p(PROVIDER.encode()), library)
    devices, count = POINTER(c_void_p)(), c_size_t()
    api("GetEpDevices", environment, byref(devices), byref(count))
    names = [api.text("EpDevice_EpName", c_void_p(devices[at])) for at in range(count.value)]
    device = (c_void_p * 1)(devices[names.index(PROVIDER.encode())])
    settings = api.make("CreateSessionOptions")
    strict = "session.disable_cpu_ep_fallback"
    api("AddSessionConfigEntry", settings, c_char_p(strict.encode()), c_char_p(b"1"))
    options = {"backend_path": backend, "enable_htp_shared_memory_allocator": "1"}
    keys, values = _texts(list(options)), _texts(list(options.values()))
    append = (settings, environment, device, c_size_t(1), keys, values, c_size_t(len(options)))
    api("SessionOptionsAppendExecutionProvider_V2", *append)
    return api.make("CreateSessionFromArray", environment, c_char_p(model), c_size_t(len(model)), settings)


def tensor(api: Api, allocator: c_void_p, *shape: int) -> tuple[c_void_p, Any]:
    """A uint8 tensor in shared memory, and its bytes."""
    lengths = (c_int64 * len(shape))(*shape)
    made = api.make("CreateTensorAsOrtValue", allocator, lengths, c_size_t(len(shape)), c_int32(_UINT8))
    address = api.make("GetTensorMutableData", made).value or 0
    size = 1
    for length in shape:
        size *= length
    return made, (c_uint8 * size).from_address(address)


def registered() -> list[dict[str, int]]:
    """What the reference in this process has registered now."""
    from pytest_qnn.qnn.reference import backend as served  # noqa: PLC0415 - it must not be loaded before the library asks

    (backend,) = (each for each in served._SERVED if hasattr(each, "registrations"))
    requests = [each.request for each in backend.registrations.values()]
    return [{"offset": each.offset, "size": each.declared, "bytes": each.size} for each in requests]


def main() -> None:
    model: onnx.ModelProto = quantised()
    api = Api()
    session = open_session(api, model.SerializeToString(), sys.argv[1])
    memory = (c_char_p(b"QnnHtpShared"), c_int32(0), c_uint32(_QUALCOMM), c_int32(0))
    info = api.make("CreateMemoryInfo_V2", *memory, c_int32(_HOST_ACCESSIBLE), c_size_t(0), c_int32(0))
    allocator = api.make("CreateAllocator", session, info)
    big, both = tensor(api, allocator, _TOTAL)
    output, result = tensor(api, allocator, *SHAPE)
    inputs = (c_void_p * 2)()
    lengths, rank = (c_int64 * len(SHAPE))(*SHAPE), c_size_t(len(SHAPE))
    for at, offset in enumerate((_FIRST, _SECOND)):
        place = (c_void_p(ctypes.addressof(both) + offset), c_size_t(_COUNT), lengths, rank)
        inputs[at] = api.make("CreateTensorWithDataAsOrtValue", info, *place, c_int32(_UINT8)).value
    for at in range(_COUNT):
        both[_FIRST + at], both[_SECOND + at], result[at] = at, 2 * (at % 50), 0xEE
    outputs = (c_void_p * 1)(output.value)
    names = (_texts(["a", "b"]), inputs, c_size_t(2), _texts(["c"]), c_size_t(1), outputs)
    api("Run", session, c_void_p(), *names)
    answer: dict[str, Any] = {"c": list(result), "running": registered()}
    for value in (*inputs, big.value):
        api.release("Value", c_void_p(value))
    answer["inputs_freed"] = registered()
    api.release("Value", output)
    answer["all_freed"] = registered()
    print(json.dumps(answer), flush=True)
    os._exit(0)  # QNN libraries do not survive the order in which an interpreter takes itself down


main()
