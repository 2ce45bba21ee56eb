"""A thin typed client of a QNN interface, and a session: log, backend and device."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.observe.control_words import Watch
from pytest_qnn.qnn.abi.codes import (
    DataType,
    EncodingDefinition,
    Error,
    QuantizationEncoding,
    TensorType,
    low,
)
from pytest_qnn.qnn.abi.layouts import OpConfig, OpConfigV1, Tensor, TensorP
from pytest_qnn.qnn.abi.table import FUNCTIONS
from pytest_qnn.qnn.cases.case import QnnDType, QnnOp
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.model.operators import QUANTIZATION
from pytest_qnn.qnn.runner.library import QnnEntry, chosen, providers, readable

PACKAGE = b"qti.aisw"
"""The package of the built-in operators."""
UNTOUCHED = 0x5555555555555555
"""What a handle reads as where a call did not write it."""
_DTYPE = {"UFIXED_POINT_8": DataType.UFIXED_POINT_8, "FLOAT_32": DataType.FLOAT_32}


@lru_cache(1024)
def array_of(element: Any, count: int) -> Any:
    """The ctypes type of an array. ctypes itself forgets an array type with its last instance."""
    return element * count


class NullFunction(Exception):  # noqa: N818 - a finding about the table, not an error of ours
    """An entry of the interface table is NULL and so cannot be called."""

    def __init__(self, reason: str, function: str = "") -> None:
        super().__init__(reason)
        self.function = function
        """Its name; empty: there is no table."""


class QnnClient:
    """Calls the functions of the provider that a client of this API takes, as far as its table goes.

    Args:
        entry: the library.
        watch: looks at the control words after each call.

    Raises:
        NullFunction: by any call whose table entry is NULL.
    """

    def __init__(self, entry: QnnEntry, watch: Watch | None = None) -> None:
        self.entry = entry
        self._watch = watch
        self.interface: Any = None
        self._functions: dict[str, tuple[Any, str, bytes]] = {}
        """By name in the table: what to call, and what QNN's headers call it."""
        self.code = self.read_again()

    def read_again(self) -> int:
        """Read the table, into which others may have put functions; the code of getProviders."""
        code, found = providers(self.entry)
        self.interface = readable(chosen(found)) if found else None
        self._functions.clear()
        return code

    def call(self, name: str, *arguments: Any) -> int:
        """Call an entry of the table with ctypes arguments."""
        found = self._functions.get(name)
        if found is None:
            known_as = function_name(name)
            found = self._functions[name] = self._function(name), known_as, known_as.encode()
        function, known_as, label = found
        code: int = call_log.call(label, function, *arguments)
        if self._watch is not None:
            self._watch.look(known_as)
        return code

    def address(self, name: str) -> int:
        """Where the function of an entry of the table is."""
        return ctypes.cast(self._function(name), ctypes.c_void_p).value or 0

    def create(self, name: str, *arguments: Any) -> tuple[int, int]:
        """Call an entry whose last argument receives a handle: the code, and the handle (or `UNTOUCHED`)."""
        # Neither NULL nor an address of a process: a handle that was not written is distinguished from both.
        out = ctypes.c_void_p(UNTOUCHED)
        code = self.call(name, *arguments, ctypes.byref(out))
        return code, out.value or 0

    def null_functions(self) -> tuple[str, ...]:
        """Names of the entries that are NULL, among those of API 2.32."""
        table = self.interface.implementation if self.interface else None
        return tuple(name for name, _ in FUNCTIONS if table is None or not getattr(table, name))

    def _function(self, name: str) -> Any:
        if self.interface is None:
            raise NullFunction("there is no provider")
        function = getattr(self.interface.implementation, name)
        if not function:
            raise NullFunction(f"{name} is NULL in the interface table", name)
        return function


class Operator:
    """The tensors of a graph with one operator, ready to be created, added and executed.

    ``inputs`` and ``outputs`` are ctypes arrays of `Tensor` (version 1); ``tensors`` are the same
    structures in one list, inputs first, and ``io`` those of them that are IO tensors.
    """

    def __init__(
        self,
        op: QnnOp,
        dtype: QnnDType,
        shape: tuple[int, ...],
        weights: bytes | None = None,
        *,
        relay: bool = False,
        weights_shape: tuple[int, ...] = (),
        terms: int = 0,
    ) -> None:
        """As the fields of a `Prepare`; ``weights_shape``: of the weights, where it is another."""
        template = _template(op, dtype, shape, terms)
        self.op = op
        # The copies point to the template's names and dimensions.
        self._template = template
        self.inputs = type(template[0]).from_buffer_copy(template[0])
        self.outputs = type(template[1]).from_buffer_copy(template[1])
        self.io_inputs = len(self.inputs)
        """How many of the inputs are IO tensors: all but one with weights, which is the last."""
        self._between: Any = None
        if weights is not None:
            self._make_static(weights, weights_shape)
        if relay:
            self._put_between()
        self._terms = terms
        if terms:
            self._put_sums_between()
        self.tensors = [*self.inputs, *self.outputs, *(self._between or ())]
        self.io = [*self.inputs[: self.io_inputs], *self.outputs]

    def again(self) -> Operator:
        """The same tensors, with the same ids, in structures of their own."""
        other = Operator.__new__(Operator)
        other.__dict__.update(self.__dict__)
        other.inputs = type(self.inputs).from_buffer_copy(self.inputs)
        other.outputs = type(self.outputs).from_buffer_copy(self.outputs)
        other.tensors = [*other.inputs, *other.outputs]
        other.io = [*other.inputs[: other.io_inputs], *other.outputs]
        return other

    def _make_static(self, weights: bytes, shape: tuple[int, ...]) -> None:
        self.io_inputs -= 1
        self._weights = weights
        last = self.inputs[self.io_inputs].v1
        if shape and shape != tuple(last.dimensions[: last.rank]):
            self._weights_shape = (ctypes.c_uint32 * len(shape))(*shape)
            last.dimensions = ctypes.cast(self._weights_shape, ctypes.POINTER(ctypes.c_uint32))
        last.name, last.type = b"weights", TensorType.STATIC
        last.clientBuf.data = ctypes.cast(ctypes.c_char_p(weights), ctypes.c_void_p).value
        last.clientBuf.dataSize = len(weights)

    def _put_between(self) -> None:
        """The operator gives a NATIVE tensor; the output becomes flat."""
        self._between = type(self.outputs).from_buffer_copy(self.outputs)
        native, output = self._between[0].v1, self.outputs[0].v1
        native.name, native.type = b"between", TensorType.NATIVE
        output.rank = 1
        output.dimensions = ctypes.cast(self._template[2][1], ctypes.POINTER(ctypes.c_uint32))

    def _put_sums_between(self) -> None:
        """A NATIVE tensor for each term, and for each sum but the last; all of them are flat."""
        self._between = array_of(Tensor, 2 * self._terms - 2)()
        for position in range(len(self._between)):
            self._between[position] = self.outputs[0]
            native = self._between[position].v1
            native.name, native.type = b"between%d" % position, TensorType.NATIVE

    def _sums(self) -> Iterator[OpConfig]:
        """A Reshape of each input, and then the operator from the last term to the first."""
        terms, sums = self._between[: self._terms], self._between[self._terms :]
        for position, term in enumerate(terms):
            one, result = _array(self.inputs[position]), _array(term)
            yield _node(b"term%d" % position, "Reshape", one, result)
        value = terms[-1]
        for position, result in zip(range(self._terms - 2, -1, -1), (*sums, self.outputs[0]), strict=True):
            yield _node(b"sum%d" % position, self.op, _array(terms[position], value), _array(result))
            value = result

    def config(self) -> OpConfig:
        """The Qnn_OpConfig_t of the operator over these tensors; it lives no longer than they do."""
        if self._terms:
            return self.configs()[-1]
        outputs = self.outputs if self._between is None else self._between
        return _node(b"node", self.op, self.inputs, outputs)

    def configs(self) -> list[OpConfig]:
        """All nodes of the graph, in order; they live no longer than the tensors."""
        if self._terms:
            return list(self._sums())
        second = [] if self._between is None else [_node(b"relay", "Reshape", self._between, self.outputs)]
        return [self.config(), *second]


def _array(*tensors: Any) -> Any:
    """Copies of tensors that exist, side by side."""
    made = array_of(Tensor, len(tensors))()
    for position, tensor in enumerate(tensors):
        made[position] = tensor
    return made


def _node(name: bytes, op: QnnOp, inputs: Any, outputs: Any) -> OpConfig:
    return OpConfig(
        version=1,
        v1=OpConfigV1(
            name=name,
            packageName=PACKAGE,
            typeName=op.encode(),
            numOfInputs=len(inputs),
            inputTensors=ctypes.cast(inputs, TensorP),
            numOfOutputs=1,
            outputTensors=ctypes.cast(outputs, TensorP),
        ),
    )


@lru_cache(256)
def _template(op: QnnOp, dtype: QnnDType, shape: tuple[int, ...], terms: int = 0) -> tuple[Any, Any, Any]:
    """Arrays of the input and the output tensors, and the dimensions they point to."""
    first, *_, last = encodings = QUANTIZATION[op]
    if terms:
        encodings = (*[first] * terms, last)
    inputs, outputs = array_of(Tensor, len(encodings) - 1)(), array_of(Tensor, 1)()
    same = (ctypes.c_uint32 * len(shape))(*shape)
    flat = (ctypes.c_uint32 * 1)(math.prod(shape))
    for position, tensor in enumerate(inputs):
        _describe(tensor.v1, b"input%d" % position, TensorType.APP_WRITE, dtype, same)
    flattened = op == "Reshape" or terms > 0
    _describe(outputs[0].v1, b"output", TensorType.APP_READ, dtype, flat if flattened else same)
    for tensor, encoding in zip([*inputs, *outputs], encodings, strict=True):
        tensor.version = 1
        quantise(tensor.v1.quantizeParams, encoding if dtype == "UFIXED_POINT_8" else None)
    return inputs, outputs, (same, flat)


def _describe(v1: Any, name: bytes, kind: TensorType, dtype: QnnDType, dimensions: Any) -> None:
    v1.name = name
    v1.type = kind
    v1.dataType = _DTYPE[dtype]
    v1.rank = len(dimensions)
    v1.dimensions = ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_uint32))


def quantise(parameters: Any, encoding: tuple[float, int] | None) -> None:
    """Have a tensor's parameters say scale and offset; None: that it has none."""
    if encoding is None:
        parameters.encodingDefinition = EncodingDefinition.UNDEFINED
        parameters.quantizationEncoding = QuantizationEncoding.UNDEFINED
        return
    parameters.encodingDefinition = EncodingDefinition.DEFINED
    parameters.quantizationEncoding = QuantizationEncoding.SCALE_OFFSET
    parameters.scaleOffsetEncoding.scale, parameters.scaleOffsetEncoding.offset = encoding


def data_type(dtype: QnnDType) -> int:
    """The Qnn_DataType_t of a dtype."""
    return int(_DTYPE[dtype])


PROFILE_LEVEL_BASIC = 1
"""QnnProfile_Level_t."""
_LOG_LEVEL_ERROR = 1
_OPTIONAL = frozenset({"logCreate", "deviceCreate"})
"""Calls a session can do without: where they are NULL or answer "not supported", the handle is NULL."""


Log = tuple[int | None, int]
"""The callback's address, or None for the library's own log; and the level."""


class Session:
    """Opened by the first step that needs it.

    A call of `_OPTIONAL` that answers 1000 (not supported) is in ``codes`` but keeps nothing from working.
    """

    def __init__(self, client: QnnClient) -> None:
        self.client = client
        self.opened = False
        """An attempt was made."""
        self.failure = ""
        """Why the session could not be opened; empty: it is open, or was not tried."""
        self.codes: list[tuple[str, int]] = []
        self._handles: dict[str, int] = {}
        self._log: Log | None = (None, _LOG_LEVEL_ERROR)
        self._profiled = False
        self._companion: Log | None = None
        self._beside: dict[str, int] = {}
        """Log and backend of the companion."""
        self.meets = False
        """The companion is being created."""

    @property
    def backend(self) -> int | None:
        """The backend's handle, None without one."""
        return self._handles.get("backendCreate")

    @property
    def log(self) -> int | None:
        """The log's handle, None where the backend has no logs, or the session wants none."""
        return self._handles.get("logCreate")

    @property
    def device(self) -> int | None:
        """The device's handle, None where the backend has no devices."""
        return self._handles.get("deviceCreate")

    @property
    def profile(self) -> int | None:
        """The profile that executes get, None without one."""
        return self._handles.get("profileCreate")

    def handles(self) -> set[int]:
        """The values of the handles that are open."""
        return set(self._handles.values())

    def listen(self, log: Log | None, *, profile: bool = False) -> None:
        """Open with this log, or without one; ``profile``: and with a profile."""
        self._log = log
        self._profiled = profile

    def accompany(self, log: Log) -> None:
        """Open beside another backend with this log."""
        self._companion = log

    def refuse(self, codes: tuple[tuple[str, int], ...]) -> None:
        """Do not try: it was tried in other processes, and refused with these codes."""
        self.opened = True
        self.codes += codes
        call, code = codes[-1]
        self.failure = f"{call} gave {code}"

    def open(self) -> bool:
        """Open once; True if the session is open."""
        if not self.opened:
            self.opened = True
            self._open()
        return not self.failure

    def close(self) -> list[tuple[str, int]]:
        """Free what was created; the codes in order."""
        codes = []
        for created, freed in (
            ("profileCreate", "profileFree"),
            ("deviceCreate", "deviceFree"),
            ("backendCreate", "backendFree"),
            ("logCreate", "logFree"),
        ):
            handle = self._handles.pop(created, None)
            if handle is not None:
                try:
                    codes.append((freed, self.client.call(freed, handle)))
                except NullFunction:
                    continue
        self._part()
        return codes

    def _meet(self) -> None:
        """Create the companion, if there is to be one. Its codes are not the session's."""
        log = self._companion
        if log is None:
            return
        with contextlib.suppress(NullFunction):
            code, self._beside["logFree"] = self.client.create("logCreate", *log)
            if code:
                self._beside.clear()
                return
            code, backend = self.client.create("backendCreate", self._beside["logFree"], None)
            if not code:
                self._beside = {"backendFree": backend, **self._beside}

    def _part(self) -> None:
        for freed, handle in self._beside.items():
            with contextlib.suppress(NullFunction):
                self.client.call(freed, handle)
        self._beside.clear()

    def end(self, what: str) -> int | None:
        """Free the device or the backend now; None: there is none."""
        handle = self._handles.get(f"{what}Create")
        if handle is None:
            return None
        code = self.client.call(f"{what}Free", handle)
        if code == 0:
            del self._handles[f"{what}Create"]
        return code

    def _open(self) -> None:
        self.codes.append(("getProviders", self.client.code))
        if self.client.interface is None:
            self.failure = f"getProviders gave no provider (code {self.client.code})"
            return
        self.meets = self._companion is not None
        self._meet()
        self.meets = False
        if self._log is not None and not self._create("logCreate", *self._log):
            return
        log = self._handles.get("logCreate")
        if self._create("backendCreate", log, None):
            self._create("deviceCreate", log, None)
        if self._profiled and not self.failure:
            self._create_profile()

    def _create_profile(self) -> None:
        """A profile for executes; a backend that gives none executes without."""
        try:
            code, handle = self.client.create("profileCreate", self.backend, PROFILE_LEVEL_BASIC)
        except NullFunction:
            return
        if code == 0:
            self._handles["profileCreate"] = handle

    def _create(self, name: str, *arguments: int | None) -> bool:
        try:
            code, handle = self.client.create(name, *arguments)
        except NullFunction as null:
            if name in _OPTIONAL:
                return True
            self.failure = str(null)
            return False
        self.codes.append((name, code))
        if code == 0:
            self._handles[name] = handle
        elif not (name in _OPTIONAL and low(code) == Error.COMMON_ERROR_NOT_SUPPORTED):
            self.failure = f"{name} gave {code}"
        return not self.failure
