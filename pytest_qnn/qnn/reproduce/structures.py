"""Structures in a client's memory as C initialisers: tensors, operators, descriptors, configurations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from pytest_qnn.qnn.abi.codes import ContextOption, MemType, QuantizationEncoding, TensorMemType
from pytest_qnn.qnn.abi.layouts import (
    ContextConfig,
    ContextProperty,
    HtpContextProperty,
    HtpMemDescriptor,
    MemDescriptor,
    Tensor,
)
from pytest_qnn.qnn.cases.arguments import NO_VALUE
from pytest_qnn.qnn.reproduce.text import NotWritten, literal

_CUSTOM_CONFIG_WORDS = 3


class Places(Protocol):
    """What finds or makes the C names of what pointers lead to (`recorder.Recorder`)."""

    def handle(self, value: int | None) -> str:
        """The expression of a handle."""

    def memory(self, address: int, size: int, wanted: str = "memory") -> str:
        """The expression of a pointer to client memory."""

    def identity(self, number: int, position: int) -> str:
        """The expression of a tensor's id."""

    def descriptor(self, number: int, position: int) -> str:
        """The expression of a file descriptor."""

    def dimension(self, value: int) -> str:
        """The expression of a dimension."""

    def buffer_size(self, value: int, position: int) -> str:
        """The expression of a buffer's whole size."""

    def variable(self, kind: str, wanted: str, count: int = 1) -> str:
        """The name of a new array that lives as long as the program."""

    def line(self, text: str) -> None:
        """One more statement."""


def text(value: bytes | None) -> str:
    """A string or NULL."""
    return "NULL" if value is None else literal(value)


def numbers(places: Places, pointer: Any, count: int, wanted: str = "dimensions") -> str:
    """An array of uint32_t."""
    if not pointer:
        return "NULL"
    values = [pointer[i] for i in range(count)]
    name = places.variable("uint32_t", wanted, max(1, count))
    for position, value in enumerate(values):
        places.line(f"{name}[{position}] = {places.dimension(value)};")
    return name


def member(given: Tensor) -> int:
    """The number of the member that is written: of a struct of a version that there is not, it is ``v1``."""
    return 2 if given.version == 2 else 1


def tensor(places: Places, given: Tensor, position: int) -> str:
    """One Qnn_Tensor_t."""
    v1 = given.v1
    parts = [
        f".id = {places.identity(v1.id, position)}",
        f".name = {text(v1.name)}",
        f".type = {v1.type}",
        f".dataType = 0x{v1.dataType:x}",
        f".quantizeParams = {_quantization(v1.quantizeParams)}",
        f".rank = {v1.rank}",
        f".dimensions = {numbers(places, v1.dimensions, v1.rank)}",
        f".memType = {v1.memType}",
        _tensor_memory(places, v1),
    ]
    if member(given) == 2:
        parts.append(f".sparseParams = {{.type = 0x{given.v2.sparseParams.type:x}}}")
    return f"(Qnn_Tensor_t){{.version = {given.version}, .v{member(given)} = {{{', '.join(parts)}}}}}"


def _quantization(given: Any) -> str:
    head = (
        f".encodingDefinition = 0x{given.encodingDefinition:x}, "
        f".quantizationEncoding = 0x{given.quantizationEncoding:x}"
    )
    if given.quantizationEncoding == QuantizationEncoding.AXIS_SCALE_OFFSET:
        axis = given.axisScaleOffsetEncoding
        if axis.scaleOffset:
            raise NotWritten("a tensor has scales by axis")
        return f"{{{head}, .axisScaleOffsetEncoding = {{{axis.axis}, {axis.numScaleOffsets}, NULL}}}}"
    if given.quantizationEncoding != 0:
        return f"{{{head}}}"
    found = given.scaleOffsetEncoding
    scale = float(found.scale).hex()
    return f"{{{head}, .scaleOffsetEncoding = {{{scale}f, {found.offset}}}}}"


def _tensor_memory(places: Places, v1: Any) -> str:
    if v1.memType == TensorMemType.MEMHANDLE:
        size = v1.clientBuf.dataSize
        handle = places.handle(v1.memHandle)
        # The union: a handle lies where the pointer of a client buffer does.
        return f".clientBuf = {{{handle}, {size}}}" if size else f".memHandle = {handle}"
    size, address = v1.clientBuf.dataSize, v1.clientBuf.data
    if not address:
        return f".clientBuf = {{NULL, {size}}}"
    return f".clientBuf = {{{places.memory(address, size, _space(v1))}, {size}}}"


def _space(v1: Any) -> str:
    return (v1.name or b"memory").decode(errors="replace")


def tensors(places: Places, pointer: Any, count: int, wanted: str) -> str:
    """An array of Qnn_Tensor_t."""
    if not pointer:
        return "NULL"
    made = [tensor(places, pointer[i], i) for i in range(count)]
    name = places.variable("Qnn_Tensor_t", wanted, max(1, count))
    for position, each in enumerate(made):
        places.line(f"{name}[{position}] = {each};")
    return name


def operator(places: Places, given: Any) -> str:
    """A Qnn_OpConfig_t by value."""
    v1 = given.v1
    inputs = tensors(places, v1.inputTensors, v1.numOfInputs, "node_inputs")
    outputs = tensors(places, v1.outputTensors, v1.numOfOutputs, "node_outputs")
    name = places.variable("Qnn_OpConfig_t", "node")
    fields = (
        f".name = {text(v1.name)}, .packageName = {text(v1.packageName)}, .typeName = {text(v1.typeName)}, "
        f"{_no_parameters(v1)}"
        f".numOfInputs = {v1.numOfInputs}, .inputTensors = {inputs}, "
        f".numOfOutputs = {v1.numOfOutputs}, .outputTensors = {outputs}"
    )
    places.line(f"{name}[0] = (Qnn_OpConfig_t){{.version = {given.version}, .v1 = {{{fields}}}}};")
    return f"{name}[0]"


def _no_parameters(v1: Any) -> str:
    """Parameters without an array; operators here have no others."""
    if v1.numOfParams and v1.params:
        raise NotWritten("an operator has parameters")
    return f".numOfParams = {v1.numOfParams}, .params = NULL, " if v1.numOfParams else ""


def descriptors(places: Places, pointer: Any, count: int) -> str:
    """An array of Qnn_MemDescriptor_t."""
    if not pointer:
        return "NULL"
    name = places.variable("Qnn_MemDescriptor_t", "descriptors", max(1, count))
    for position in range(count):
        places.line(f"{name}[{position}] = {_descriptor(places, pointer[position], position)};")
    return name


def _descriptor(places: Places, given: MemDescriptor, position: int) -> str:
    shape = given.memShape
    shown = text(shape.shapeConfig)
    fields = (
        f".memShape = {{{shape.numDim}, {numbers(places, shape.dimSize, shape.numDim)}, {shown}}}, "
        f".dataType = 0x{given.dataType:x}, .memType = {given.memType}"
    )
    if given.memType == MemType.CUSTOM and given.customInfo:
        custom = HtpMemDescriptor.from_address(given.customInfo)
        name = places.variable("QnnMemHtp_Descriptor_t", "shared_buffer")
        fd = places.descriptor(custom.sharedBufferConfig.fd, position)
        places.line(
            f"{name}[0] = (QnnMemHtp_Descriptor_t){{.type = {custom.type}, "
            f".size = {places.buffer_size(custom.size, position)}, "
            f".sharedBufferConfig = {{{fd}, {custom.sharedBufferConfig.offset}u}}}};"
        )
        return f"(Qnn_MemDescriptor_t){{{fields}, .customInfo = {name}}}"
    if given.memType == MemType.CUSTOM:
        return f"(Qnn_MemDescriptor_t){{{fields}, .customInfo = NULL}}"
    fd = places.descriptor(given.dmaBufInfo.fd, position)
    data = given.dmaBufInfo.data
    if given.memType == MemType.DMA_BUF and data:
        return f"(Qnn_MemDescriptor_t){{{fields}, .dmaBufInfo = {{{fd}, {places.memory(data, 0, 'other')}}}}}"
    rest = f", (void*)UINT64_C(0x{data:x})" if data else ""
    return f"(Qnn_MemDescriptor_t){{{fields}, .dmaBufInfo = {{{fd}{rest}}}}}"


def _pointers(places: Places, address: int, each: Callable[[int], str], wanted: str) -> str:
    """A NULL-terminated array of pointers; ``each`` gives the name of what one leads to."""
    found: list[str] = []
    listed = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
    while listed[len(found)]:
        found.append(each(listed[len(found)] or 0))
    name = places.variable("const void*", wanted, len(found) + 1)
    for position, one in enumerate(found):
        places.line(f"{name}[{position}] = {one};")
    return name


def configurations(places: Places, address: int | None) -> str:
    """A NULL-terminated array of QnnContext_Config_t, or NULL."""
    if not address:
        return "NULL"

    def one(at: int) -> str:
        given = ContextConfig.from_address(at)
        name = places.variable("QnnContext_Config_t", "option")
        places.line(
            f"{name}[0] = (QnnContext_Config_t){{.option = {given.option}, {_value(places, given)}}};"
        )
        return name

    return _pointers(places, address, one, "options")


def _value(places: Places, given: ContextConfig) -> str:
    if given.option == NO_VALUE or (given.option == ContextOption.CUSTOM and not given.customConfig):
        return ".customConfig = NULL"
    if given.option == ContextOption.CUSTOM:
        words = (ctypes.c_uint64 * _CUSTOM_CONFIG_WORDS).from_address(given.customConfig)
        name = places.variable("uint64_t", "custom", _CUSTOM_CONFIG_WORDS)
        for position, word in enumerate(words):
            places.line(f"{name}[{position}] = {word}u;")
        return f".customConfig = {name}"
    fields = {
        int(ContextOption.DEFER_GRAPH_INIT): "isGraphInitDeferred",
        int(ContextOption.MEMORY_LIMIT_HINT): "memoryLimitHint",
        int(ContextOption.PERSISTENT_BINARY): "isPersistentBinary",
    }
    if given.option not in fields:
        raise NotWritten(f"a context has the option {given.option}")
    field = fields[given.option]
    return f".{field} = {getattr(given, field)}"


def one_option(places: Places, address: int) -> str:
    """A NULL-terminated array of one option of any component: CUSTOM with NULL, or none that there is.

    Raises:
        NotWritten: there is another one in it.
    """

    def one(at: int) -> str:
        given = ContextConfig.from_address(at)
        if given.option not in (ContextOption.CUSTOM, NO_VALUE) or given.customConfig:
            raise NotWritten("an option is given that is not written")
        # As far as QnnContext_Config_t goes the components' options are laid out alike.
        name = places.variable("QnnContext_Config_t", "option")
        if given.option:
            places.line(f"{name}[0].option = 0x{given.option:x};")
        return name

    return _pointers(places, address, one, "options")


def properties(places: Places, address: int | None) -> tuple[str, list[str]]:
    """A NULL-terminated array of QnnContext_Property_t, or NULL; and the answers as expressions."""
    answers: list[str] = []
    if not address:
        return "NULL", answers

    def one(at: int) -> str:
        custom_at = ContextProperty.from_address(at).customProperty
        if not custom_at:
            name = places.variable("QnnContext_Property_t", "property")
            places.line(f"{name}[0] = (QnnContext_Property_t){{{int(ContextOption.CUSTOM)}, NULL}};")
            return name
        asked = HtpContextProperty.from_address(custom_at)
        custom = places.variable("QnnHtpContext_CustomProperty_t", "asked")
        places.line(f"{custom}[0] = (QnnHtpContext_CustomProperty_t){{{asked.option}, UNTOUCHED_NUMBER}};")
        name = places.variable("QnnContext_Property_t", "property", 2)
        places.line(
            f"{name}[0] = (QnnContext_Property_t){{{ContextProperty.from_address(at).option}, {custom}}};"
        )
        places.line(f"{name}[1].option = 0x7ffffffe; /* the list is of pointers: this is never to be read */")
        answers.append(f"{custom}[0].value")
        return name

    return _pointers(places, address, one, "properties"), answers
