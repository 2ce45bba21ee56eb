"""The arguments of one call as C expressions, and what is known behind the call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any, Final

from pytest_qnn.qnn.abi.layouts import ContextBuffer, ContextParams, ExecuteEnvironment, Tensor
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.reproduce import structures
from pytest_qnn.qnn.reproduce.observed import Where
from pytest_qnn.qnn.reproduce.recorder import BEHIND, Recorder
from pytest_qnn.qnn.reproduce.text import NotWritten, literal, of_case
from pytest_qnn.qnn.runner.asynchronous import _waiting
from pytest_qnn.qnn.runner.client import UNTOUCHED
from pytest_qnn.qnn.runner.graphs import GUARD

_BINARY = "handle handle options binary binary_size out_handle none"
SIGNATURES: Final[dict[str, str]] = {
    "propertyHasCapability": "number",
    "backendCreate": "handle custom_list out_handle",
    "backendSetConfig": "handle empty_list",
    "backendGetApiVersion": "out_version",
    "backendGetBuildId": "out_text",
    "backendRegisterOpPackage": "handle string string string",
    "backendGetSupportedOperations": "handle out_number out_pointer",
    "backendValidateOpConfig": "handle operator",
    "backendGetProperty": "handle empty_list",
    "backendFree": "handle",
    "contextCreate": "handle handle options out_handle",
    "contextSetConfig": "handle empty_list",
    "contextGetBinarySize": "handle out_long",
    "contextGetBinary": "handle space space_size out_long",
    "contextCreateFromBinary": _BINARY,
    "contextCreateFromBinaryWithSignal": f"{_BINARY} none",
    "contextCreateFromBinaryWithCallback": (
        "handle handle options callback binary binary_size out_handle none none"
    ),
    "contextCreateFromBinaryListAsync": "handle handle contexts options none",
    "contextValidateBinary": "handle handle options binary binary_size",
    "contextGetProperty": "handle properties",
    "contextFinalize": "handle none",
    "contextFree": "handle none",
    "contextGetIncrementalBinary": "handle out_pointer out_long out_long",
    "contextReleaseIncrementalBinary": "handle scratch number",
    "contextGetBinarySectionSize": "handle handle number out_long",
    "contextGetBinarySection": "handle handle number section out_long none none",
    "contextApplyBinarySection": "handle handle number section none none",
    "contextGetBinarySectionUpdate": "section none tensor_list number number none none none section",
    "contextFreeBinarySectionUpdate": "update none",
    "graphCreate": "handle string custom_list out_handle",
    "graphCreateSubgraph": "handle string out_handle",
    "graphSetConfig": "handle empty_list",
    "graphGetProperty": "handle empty_list",
    "graphAddNode": "handle operator",
    "graphFinalize": "handle none none",
    "graphRetrieve": "handle string out_handle",
    "graphExecute": "handle inputs number outputs number handle none",
    "graphExecuteAsync": "handle inputs number outputs number none handle notify parameter",
    "graphPrepareExecutionEnvironment": "handle environments number",
    "graphReleaseExecutionEnvironment": "handle environments number",
    "tensorCreateContextTensor": "handle tensor",
    "tensorCreateGraphTensor": "handle tensor",
    "tensorUpdateGraphTensors": "handle tensor_list number",
    "tensorUpdateContextTensors": "handle tensor_list number",
    "logCreate": "log number out_handle",
    "logSetLogLevel": "handle number",
    "logFree": "handle",
    "profileCreate": "handle number out_handle",
    "profileSetConfig": "handle empty_list",
    "profileGetEvents": "handle out_events out_number",
    "profileGetSubEvents": "event out_events out_number",
    "profileGetEventData": "event out_event_data",
    "profileGetExtendedEventData": "event scratch",
    "profileFree": "handle",
    "memRegister": "handle descriptors number out_handles",
    "memDeRegister": "in_handles number",
    "deviceGetPlatformInfo": "handle out_pointer",
    "deviceFreePlatformInfo": "handle handle",
    "deviceGetInfrastructure": "out_pointer",
    "deviceCreate": "handle custom_list out_handle",
    "deviceSetConfig": "handle empty_list",
    "deviceGetInfo": "handle out_pointer",
    "deviceFree": "handle",
    "signalCreate": "handle custom_list out_handle",
    "signalSetConfig": "handle empty_list",
    "signalTrigger": "handle",
    "signalFree": "handle",
    "errorGetMessage": "number out_text",
    "errorGetVerboseMessage": "number out_text",
    "errorFreeVerboseMessage": "handle",
    "globalConfigSet": "empty_list",
}
"""The kind of each argument of each entry that is written: the name of a method of `Arguments`."""


def arguments_of(recorder: Recorder, name: str, arguments: tuple[Any, ...]) -> Arguments:
    """The text of a call's arguments.

    Raises:
        NotWritten: the call, or what it is given, is none that is written.
    """
    if name not in SIGNATURES:
        raise NotWritten(f"{function_name(name)} is not written")
    return Arguments(recorder, name, arguments)


class Arguments:
    """One call's.

    Attributes:
        expressions: the arguments in C.
    """

    def __init__(self, recorder: Recorder, name: str, arguments: tuple[Any, ...]) -> None:
        self._recorder, self._name, self._given = recorder, name, arguments
        self._behind: list[Callable[[int], None]] = []
        self._outs = 0
        self.expressions: list[str] = []
        for position, kind in enumerate(SIGNATURES[name].split()):
            self._position = position
            self.expressions.append(getattr(self, f"_{kind}")(arguments[position]))

    def returned(self, code: int) -> None:
        """The call has returned: what it gave has names from now on."""
        for each in self._behind:
            each(code)

    # Plain values

    def _handle(self, value: int | None) -> str:
        return self._recorder.handle(value)

    def _event(self, value: int) -> str:
        shown = self._recorder.handle(value)
        return {"NULL": "0", "UNKNOWN": "(uint64_t)(uintptr_t)UNKNOWN"}.get(shown, shown)

    def _none(self, value: Any) -> str:
        if value:
            raise NotWritten(f"{self._name} is given something that is not written")
        return "NULL"

    def _log(self, address: int | None) -> str:
        own = "on_threads_log" if isinstance(self._recorder.step, case.Parallel) else "on_log"
        return f"(void*){own}" if address else "NULL"

    def _number(self, value: int) -> str:
        return str(value)

    def _string(self, value: bytes | None) -> str:
        return "NULL" if value is None else literal(value)

    # What a call writes

    def _out(self, kind: str, wanted: str, start: str) -> str:
        recorder = self._recorder
        name = recorder.names.free(wanted)
        begins = f" = {start}" if start.startswith("UNTOUCHED") else ""
        recorder.globals.append(f"static {kind} {name}{begins};")
        recorder.line(f"{name} = {start};")
        return name

    def _out_handle(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        recorder = self._recorder
        name = self._out("void*", recorder.handle_name(self._name), "UNTOUCHED")
        address = pointer if isinstance(pointer, int) else ctypes.addressof(pointer.contents)

        def behind(_: int) -> None:
            value = ctypes.c_void_p.from_address(address).value
            if value != UNTOUCHED:
                recorder.made(value, name)

        self._behind.append(behind)
        if not isinstance(recorder.step, case.Misuse):
            recorder.fact("value:0", name)
        return f"&{name}"

    def _out_number(self, pointer: Any) -> str:
        return f"&{self._out('uint32_t', 'count', '0x55555555u')}" if pointer else "NULL"

    def _out_long(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        recorder = self._recorder
        step = recorder.step
        wanted = "written" if "Size" not in self._name else "size"
        name = self._out("uint64_t", wanted, "UNTOUCHED_NUMBER")
        recorder.fact(f"value:{int(wanted == 'written')}", name)
        if isinstance(step, case.GetBinary) and wanted == "written":
            held = recorder.facts[Where(recorder.index, "binary")]
            self._behind.append(lambda code: self._keep_binary(code, step.binary, held, name))
        if isinstance(step, case.GetSection) and wanted == "written":
            held = recorder.facts[Where(recorder.index, "section")]
            self._behind.append(lambda _: recorder.sections.__setitem__(step.section, (held, name)))
        return f"&{name}"

    def _keep_binary(self, code: int, binary: str, held: str, size: str) -> None:
        if code == 0:
            self._recorder.binaries[binary] = (held, size)

    def _out_pointer(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        name = self._out("void*", "told", "NULL")
        address = ctypes.addressof(pointer.contents)
        made = self._recorder.made
        self._behind.append(lambda _: made(ctypes.c_void_p.from_address(address).value, name))
        return f"&{name}"

    def _out_text(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        recorder = self._recorder
        name = self._out("const char*", "said", '"untouched"')
        address = ctypes.addressof(pointer.contents)
        self._behind.append(
            lambda _: recorder.made(ctypes.c_void_p.from_address(address).value, f"(void*){name}")
        )
        recorder.fact("text", name)
        return f"&{name}"

    def _out_version(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        name = self._out("Qnn_ApiVersion_t", "version", "(Qnn_ApiVersion_t){0}")
        for part, field in (("core", "coreApiVersion"), ("backend", "backendApiVersion")):
            for position, number in enumerate(("major", "minor", "patch")):
                self._recorder.fact(f"count:{part}:{position}", f"{name}.{field}.{number}")
        return f"&{name}"

    def _out_events(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        name = self._out("uint64_t*", "events", "NULL")
        address = ctypes.addressof(pointer.contents)
        made = self._recorder.made

        def behind(code: int) -> None:
            listed = ctypes.cast(ctypes.c_void_p.from_address(address), ctypes.POINTER(ctypes.c_uint64))
            if code == 0 and listed:
                made(listed[0], f"{name}[0]")

        self._behind.append(behind)
        return f"&{name}"

    def _out_event_data(self, pointer: Any) -> str:
        return (
            f"&{self._out('QnnProfile_EventData_t', 'data', '(QnnProfile_EventData_t){0}')}"
            if pointer
            else "NULL"
        )

    def _scratch(self, address: int | None) -> str:
        if not address:
            return "NULL"
        name = self._recorder.variable("uint32_t", "room", 64)
        self._recorder.line(f"{name}[0] = {ctypes.c_uint32.from_address(address).value}u;")
        return name

    # Tensors

    def _tensor(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        recorder, given = self._recorder, pointer.contents
        made = structures.tensor(recorder, given, 0)
        name = recorder.variable("Qnn_Tensor_t", "tensor")
        recorder.line(f"{name}[0] = {made};")
        version, step = structures.member(given), recorder.step
        if isinstance(step, case.Prepare) and step.watch:
            self._watch_tensor(name, version)
        self._behind.append(lambda _: recorder.made_id(int(given.v1.id), f"{name}[0].v{version}.id"))
        if isinstance(step, case.Prepare) and step.weights_as == "scribbled" and given.v1.type == 4:
            memory = recorder.memory(given.v1.clientBuf.data, given.v1.clientBuf.dataSize)
            size = given.v1.clientBuf.dataSize
            recorder.scribbles.append(f"memset({memory}, 0xEE, {size});")
        # Of calls with a mistake, which are refused, no id is told.
        if isinstance(step, case.Prepare) and not step.mistakes:
            place = len(
                [each for each in recorder.facts if each.step == recorder.index and "value" in each.label]
            )
            recorder.fact(f"value:{place}", f"{name}[0].v{version}.id")
        return name

    def _watch_tensor(self, name: str, version: int) -> None:
        recorder = self._recorder
        before = recorder.names.free("before")
        recorder.globals.append(f"static Qnn_Tensor_t {before};")
        recorder.line(f"{before} = {name}[0];")
        recorder.add_fact(
            "count:tensor_bytes_changed",
            f"({before}.v{version}.id = {name}[0].v{version}.id, "
            f"differing(&{before}, {name}, sizeof {before}))",
        )

    def _tensors(self, pointer: Any, wanted: str) -> str:
        recorder = self._recorder
        count = self._given[self._position + 1]
        name = structures.tensors(recorder, pointer, count, wanted)
        if isinstance(recorder.step, case.Execute) and count and self._name == "graphExecute":
            self._watch_execute(name, pointer, count, wanted)
        return name

    def _notify(self, address: int | None) -> str:
        return "(void*)on_notify" if address else "NULL"

    def _parameter(self, value: int | None) -> str:
        recorder = self._recorder
        if not value:
            return "NULL"
        number = recorder.executions
        recorder.executions += 1
        recorder.line(f"memset((void*)&executions[{number}], 0, sizeof executions[{number}]);")
        for pointer, count, output in (
            (self._given[1], self._given[2], False),
            (self._given[3], self._given[4], True),
        ):
            for position in range(count):
                self._give(number, pointer[position], output)
        recorder.scribbles.append(f"executions[{number}].code = code;")
        return f"(void*)(uintptr_t)(PARAMETER + {number})"

    def _give(self, number: int, given: Tensor, output: bool) -> None:
        """What one execution is given."""
        address, size = self._address_of(given)
        if not address or not size:
            return
        recorder = self._recorder
        name = recorder.memory(address, size, "output" if output else "input")
        guard = GUARD if output and given.v1.memType != 1 else 0
        more = f", {guard}" if output else ""
        recorder.line(
            f"given_{'output' if output else 'input'}(&executions[{number}], {name}, {size}{more});"
        )
        if output:
            recorder.sizes[number] = size

    def _watch_execute(self, name: str, pointer: Any, count: int, wanted: str) -> None:
        recorder, step = self._recorder, self._recorder.step
        assert isinstance(step, case.Execute)
        if step.watch and recorder.wants("count:tensors_changed"):
            before = recorder.names.free("before")
            recorder.globals.append(f"static void* {before};")
            recorder.line(f"{before} = copy_of({name}, {count} * sizeof *{name});")
            recorder.add_fact(
                "count:tensors_changed", f"!!memcmp({before}, {name}, {count} * sizeof *{name})"
            )
        output_at = self._output_address()
        for position in range(count):
            self._watch_memory(pointer[position], wanted == "outputs", output_at)

    def _output_address(self) -> int:
        outputs, count = self._given[3], self._given[4]
        return self._address_of(outputs[0])[0] if outputs and count else 0

    def _address_of(self, given: Tensor) -> tuple[int, int]:
        """Where the client sees the memory of a tensor, and how much of it it may look at; 0: nowhere."""
        recorder = self._recorder
        v1 = given.v1
        if v1.memType != 1:
            return v1.clientBuf.data or 0, v1.clientBuf.dataSize
        state = recorder.state
        assert state is not None
        step = recorder.step
        names = [each.handle for each in step.bindings] if isinstance(step, case.Execute) else []
        for name, found in reversed(state.handles.items()):
            if found.value == v1.memHandle and name in names and found.buffer and found.buffer.live:
                size = min(recorder.bytes_of_tensor(v1), found.buffer.size - found.offset)
                return (found.buffer.pointer + found.offset, size) if size > 0 else (0, 0)
        return 0, 0

    def _watch_memory(self, given: Tensor, output: bool, output_at: int) -> None:
        recorder = self._recorder
        address, size = self._address_of(given)
        if not address or not size:
            return
        if not output and (address == output_at or not recorder.wants("count:inputs_changed")):
            return
        name = recorder.memory(address, size, "output" if output else "input")
        if output:
            recorder.fact("data:0", f"{name}\0{size}")
            if given.v1.memType != 1:
                recorder.fact("count:output_overrun", f"not_filled(AT({name}, {size}), {GUARD}, 0xEE)")
            return
        before = recorder.names.free("before")
        recorder.globals.append(f"static void* {before};")
        recorder.line(f"{before} = copy_of({name}, {size});")
        recorder.add_fact("count:inputs_changed", f"!!memcmp({before}, {name}, {size})")

    def _inputs(self, pointer: Any) -> str:
        return self._tensors(pointer, "inputs")

    def _outputs(self, pointer: Any) -> str:
        return self._tensors(pointer, "outputs")

    def _operator(self, value: Any) -> str:
        return structures.operator(self._recorder, value)

    def _tensor_list(self, address: int | None) -> str:
        if not address:
            return "NULL"
        recorder, count = self._recorder, self._given[self._position + 1]
        listed = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        given = [Tensor.from_address(address) if (address := listed[i]) else None for i in range(count)]
        made = [structures.tensor(recorder, each, i) if each else "" for i, each in enumerate(given)]
        name = recorder.variable("const Qnn_Tensor_t*", "listed", max(1, count))
        for position, each in enumerate(made):
            if not each:
                continue
            one = recorder.variable("Qnn_Tensor_t", "tensor")
            recorder.line(f"{one}[0] = {each};")
            recorder.line(f"{name}[{position}] = {one};")
        return f"(void*){name}"

    def _environments(self, address: int | None) -> str:
        if not address:
            return "NULL"
        recorder, count = self._recorder, self._given[self._position + 1]
        listed = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        name = recorder.variable("void*", "environments", max(1, count))
        for position in range(count):
            at = listed[position]
            if not at:
                continue
            given = ExecuteEnvironment.from_address(at)
            own, version = given.tensorSet.v1, given.tensorSet.version
            inputs = structures.tensors(recorder, own.inputs, own.numInputs, "inputs")
            outputs = structures.tensors(recorder, own.outputs, own.numOutputs, "outputs")
            one = recorder.variable("QnnGraph_ExecuteEnvironment_t", "environment")
            recorder.line(
                f"{one}[0] = (QnnGraph_ExecuteEnvironment_t){{{given.option}, {{.version = {version}, "
                f".v1 = {{{own.numInputs}, {inputs}, {own.numOutputs}, {outputs}}}}}}};"
            )
            recorder.line(f"{name}[{position}] = {one};")
        return name

    # Registrations

    def _descriptors(self, pointer: Any) -> str:
        recorder, count = self._recorder, self._given[2]
        name = structures.descriptors(recorder, pointer, count)
        step = recorder.step
        if name == "NULL" or not isinstance(step, case.Register):
            return name
        for position, described in enumerate(step.descriptors[:count]):
            if described.junk:
                place = f"(char*)&{name}[{position}].dmaBufInfo"
                recorder.line(f"memset({place} + 4, 0xA5, sizeof {name}[{position}].dmaBufInfo - 4);")
        if recorder.wants("count:changed"):
            before = recorder.names.free("before")
            recorder.globals.append(f"static void* {before};")
            recorder.line(f"{before} = copy_of({name}, sizeof {name});")
            recorder.add_fact("count:changed", f"!!memcmp({before}, {name}, sizeof {name})")
            for each in recorder.arrays_of_step("dimensions", "shared_buffer"):
                inner = recorder.names.free("before")
                recorder.globals.append(f"static void* {inner};")
                recorder.line(f"{inner} = copy_of({each}, sizeof {each});")
                recorder.add_fact("count:changed", f"!!memcmp({inner}, {each}, sizeof {each})")
        if step.scribble:
            self._behind.append(lambda _: self._scribble(name))
        return name

    def _scribble(self, name: str) -> None:
        recorder = self._recorder
        for each in recorder.arrays_of_step("dimensions"):
            recorder.line(f"memset({each}, 0, sizeof {each});")
        for each in recorder.arrays_of_step("shared_buffer"):
            recorder.line(f"memset({each}, 0xA5, sizeof {each});")
        recorder.line(f"memset({name}, 0xA5, sizeof {name});")

    def _out_handles(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        recorder = self._recorder
        step, count = recorder.step, self._given[2]
        named = step.handles if isinstance(step, case.Register) else ()
        room = max(count, len(named), 1)
        name = recorder.variable("void*", "handles", room)
        recorder.line(f"for (int i = 0; i < {room}; ++i) {name}[i] = UNTOUCHED;")
        address = ctypes.addressof(pointer.contents)

        def behind(_: int) -> None:
            values = (ctypes.c_void_p * count).from_address(address)
            for position, value in enumerate(values):
                if value not in (None, UNTOUCHED):
                    wanted = named[position] if position < len(named) else "handle"
                    own = recorder.names.free(wanted)
                    recorder.globals.append(f"static void* {own};")
                    recorder.line(f"{own} = {name}[{position}];")
                    recorder.made(value, own)

        self._behind.append(behind)
        if isinstance(step, case.Register):
            for position in range(room):
                recorder.fact(f"value:{position}", f"{name}[{position}]")
        return name

    def _in_handles(self, pointer: Any) -> str:
        if not pointer:
            return "NULL"
        recorder = self._recorder
        count = self._given[1]
        step = recorder.step
        values = [pointer[i] for i in range(count)]
        exprs = [recorder.handle(value) for value in values]
        name = recorder.variable("void*", "handles", max(1, count))
        for position, each in enumerate(exprs):
            recorder.line(f"{name}[{position}] = {each};")
        if isinstance(step, case.Deregister) and recorder.wants("count:changed"):
            before = recorder.names.free("before")
            recorder.globals.append(f"static void* {before};")
            recorder.line(f"{before} = copy_of({name}, sizeof {name});")
            recorder.fact("count:changed", f"!!memcmp({before}, {name}, sizeof {name})")
        return name

    # Configurations

    def _options(self, address: int | None) -> str:
        return structures.configurations(self._recorder, address)

    def _properties(self, address: int | None) -> str:
        recorder, step = self._recorder, self._recorder.step
        name, answers = structures.properties(recorder, address)
        if isinstance(step, case.ContextProperty):
            for position, (option, answer) in enumerate(zip(step.options, answers, strict=False)):
                recorder.fact(f"value:{position}", answer)
                recorder.facts[Where(-2, f"said:{step.context}:{option}")] = answer
        return name

    def _empty_list(self, address: int | None) -> str:
        if not address:
            return "NULL"
        if ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))[0]:
            return self._custom_list(address)
        return self._recorder.variable("void*", "nothing")

    def _custom_list(self, address: int | None) -> str:
        """A list of one option, CUSTOM with NULL or none that there is; or NULL."""
        return structures.one_option(self._recorder, address) if address else "NULL"

    # Binaries

    def _space(self, address: int | None) -> str:
        recorder, step = self._recorder, self._recorder.step
        size = self._given[2]
        if isinstance(step, case.GetBinary):
            told = recorder.facts[Where(recorder.index, "value:0")]
            missing = f" - {step.missing}" if step.missing else ""
            name = recorder.names.free(of_case(step.binary))
            recorder.globals.append(f"static unsigned char* {name};")
            self._space_expression = f"{told}{missing}" if size else "0"
            recorder.line(f"if ({told} > (1u << 30)) break; /* no size that can be */")
            recorder.line(f"{name} = malloc({self._space_expression} + {BEHIND});")
            recorder.line(f'if (!{name}) stop("there is no memory");')
            recorder.line(f"memset({name}, 0xEE, {self._space_expression} + {BEHIND});")
            recorder.fact("binary", name)
            recorder.fact("count:overrun", f"not_filled({name} + ({self._space_expression}), {BEHIND}, 0xEE)")
            recorder.fact("count:touched", f"(code ? not_filled({name}, {self._space_expression}, 0xEE) : 0)")
            return name if address else "NULL"
        name = recorder.variable("unsigned char", "room", max(size, 1))
        self._space_expression = str(size)
        return name if address else "NULL"

    def _space_size(self, value: int) -> str:
        del value
        return self._space_expression

    def _binary(self, address: int | None) -> str:
        recorder, step = self._recorder, self._recorder.step
        if not address:
            self._binary_expression = "0"
            return "NULL"
        if isinstance(step, case.ContextFromBinary | case.ContextWithCallback):
            if step.binary not in recorder.binaries:
                raise NotWritten("a binary is given that this case has not made")
            held, size = recorder.binaries[step.binary]
            damage = getattr(step, "damage", "")
        elif isinstance(step, case.Misuse | case.Churn | case.BadArgument) and recorder.binaries:
            held, size = next(reversed(recorder.binaries.values()))
            damage = "truncated" if isinstance(step, case.Churn) else ""
        else:
            raise NotWritten("a binary is given that this case has not made")
        name, length = self._copied(held, size, damage)
        configuration = recorder.arrays_of_step("option", "custom")
        recorder.given[getattr(step, "context", "")] = (name, length, configuration)
        if isinstance(step, case.ContextWithCallback):
            number = recorder.accounts[step.context]
            more = f"{int(step.memory == 'dma')}, {step.start}, {step.fails}"
            recorder.line(f"{self.expressions[-1]} = in_pieces({number}, {name}, {length}, {more});")
        self._binary_expression = length
        return name

    def _copied(self, held: str, size: str, damage: str) -> tuple[str, str]:
        """The variables of a binary's copy, damaged or not, and of its size."""
        recorder = self._recorder
        name, length = recorder.names.free("given"), recorder.names.free("given_size")
        recorder.globals += [f"static unsigned char* {name};", f"static size_t {length};"]
        recorder.line(f"{length} = {size};")
        recorder.line(f'{name} = damaged({held}, &{length}, "{damage}");')
        return name, length

    def _callback(self, address: int | None) -> str:
        recorder, step = self._recorder, self._recorder.step
        if not address or not isinstance(step, case.ContextWithCallback | case.Misuse):
            raise NotWritten("the functions that provide a binary are not those of the case")
        number = len(recorder.accounts)
        recorder.accounts[getattr(step, "context", f"step {recorder.index}")] = number
        recorder.uses_rpcmem = True
        name = recorder.names.free("callback")
        recorder.globals.append(f"static void* {name};")
        if isinstance(step, case.Misuse):
            recorder.line(f"{name} = in_pieces({number}, NULL, 0, 1, 0, 0);")
        return name

    def _contexts(self, address: int | None) -> str:
        """A list of contexts, which are notified of with a number each."""
        recorder, step = self._recorder, self._recorder.step
        if not address or not isinstance(step, case.ContextFromBinary):
            raise NotWritten("a list of contexts is given that is not the case's")
        listed = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        addresses = list(itertools.takewhile(bool, (listed[i] for i in itertools.count())))
        given = [ContextParams.from_address(each or 0).v1 for each in addresses]
        first, count = recorder.lists.begin(len(given)), len(given)
        recorder.line("foreign = 0;")
        entries = recorder.variable("QnnContext_Params_t", "listed", count)
        name = recorder.variable("const void*", "contexts", count + 1)
        for position, each in enumerate(given):
            entry = self._entry(each, first + position, ahead=position + 1 < count)
            recorder.line(f"{entries}[{position}] = {entry};")
            recorder.line(f"{name}[{position}] = &{entries}[{position}];")
        recorder.lists.wait(step, [_waiting[each.notifyParam] for each in given], first)
        return name

    def _entry(self, given: Any, number: int, *, ahead: bool) -> str:
        """One context of a list; ``ahead``: it stands before the step's, and its binary is not damaged."""
        options = structures.configurations(self._recorder, given.config)
        binary = self._whole_binary() if ahead else self._binary(given.binaryBuffer)
        fields = (
            f".config = {options}, .binaryBuffer = {binary}, .binaryBufferSize = {self._binary_expression}, "
            f".notifyFunc = (void*)on_created, .notifyParam = (void*)(uintptr_t)(LIST_PARAMETER + {number})"
        )
        return f"(QnnContext_Params_t){{.version = 1, .v1 = {{{fields}}}}}"

    def _whole_binary(self) -> str:
        step = self._recorder.step
        assert isinstance(step, case.ContextFromBinary)
        held, size = self._recorder.binaries[step.binary]
        name, self._binary_expression = self._copied(held, size, "")
        return name

    def _binary_size(self, value: int) -> str:
        del value
        if self._name == "contextCreateFromBinaryWithCallback":  # declared with a pointer's type
            return f"(void*)(uintptr_t){self._binary_expression}"
        return self._binary_expression

    def _section(self, address: int | None) -> str:
        if not address:
            return "NULL"
        recorder, step = self._recorder, self._recorder.step
        given = ContextBuffer.from_address(address)
        name = recorder.variable("QnnContext_Buffer_t", "place")
        if isinstance(step, case.Misuse):
            room = recorder.variable("unsigned char", "room", 64)
            recorder.line(
                f"{name}[0] = (QnnContext_Buffer_t){{.version = 1, "
                f".v1 = {{.memType = {given.v1.memType}, .binaryBuf = {{{room}, 64}}}}}};"
            )
            return name
        if isinstance(step, case.BadArgument):
            raw = given.v1.binaryBuf
            held, size = "NULL", str(raw.dataSize)
            if raw.data and self._name == "contextGetBinarySectionUpdate":
                held, size = next(reversed(recorder.binaries.values()))
            elif raw.data:
                held = recorder.memory(raw.data, raw.dataSize, "section")
            recorder.line(
                f"{name}[0] = (QnnContext_Buffer_t){{.version = {given.version}, "
                f".v1 = {{.memType = {given.v1.memType}, .binaryBuf = {{{held}, {size}}}}}}};"
            )
            return name
        assert isinstance(step, case.GetSection | case.ApplySection)
        room, size = self._section_space(step)
        if step.memory == "raw":
            memory = f".memType = 0, .binaryBuf = {{{room}, {size}}}"
        else:
            # Whoever does not look at memType finds a plausible size behind what it takes for a pointer.
            memory = f".memType = 1, .binaryBuf = {{{recorder.handle(given.v1.memHandle)}, {size}}}"
        recorder.line(f"{name}[0] = (QnnContext_Buffer_t){{.version = 1, .v1 = {{{memory}}}}};")
        return name

    def _update(self, value: ContextBuffer) -> str:
        """An update of a section by value, without memory."""
        name = self._recorder.variable("QnnContext_Buffer_t", "update")
        self._recorder.line(f"{name}[0].version = {value.version};")
        return f"{name}[0]"

    def _section_space(self, step: case.GetSection | case.ApplySection) -> tuple[str, str]:
        """The memory that the section goes to, or lies in, and its size."""
        recorder, size = self._recorder, self._recorder.section_size()
        held = recorder.newest_block() if step.memory != "raw" else ""
        if isinstance(step, case.ApplySection):
            room = recorder.sections[step.section][0]
            if held:
                recorder.line(f"memcpy({held}, {room}, {size});")
            return room, size
        name = held or recorder.names.free(of_case(step.section))
        less = {"raw": 0, "handle": 0, "short": 1}.get(step.memory)
        offered = "0" if less is None else f"{size} - {less}" if less else size
        behind = f"{size} + {BEHIND}" if less is None else str(BEHIND + less)
        if not held:
            recorder.line(f"if (!{size} || {size} > (1u << 24)) break; /* no size that can be */")
            recorder.globals.append(f"static unsigned char* {name};")
            recorder.line(f"{name} = malloc({size} + {BEHIND});")
        recorder.line(f"memset({name}, 0xEE, {size} + {BEHIND});")
        overrun = f"(long)not_filled((char*){name} + {offered}, {behind}, 0xEE)"
        if not held:
            recorder.fact("section", name)
            recorder.fact("count:overrun", overrun)
            recorder.fact("data:0", f"{name}\0{size}")
            return name, size
        # The memory is given back at the end of the step.
        copy, count = recorder.names.free(of_case(step.section)), recorder.names.free("overrun")
        recorder.globals += [f"static void* {copy};", f"static long {count};"]
        recorder.scribbles += [f"{copy} = copy_of({held}, {size});", f"{count} = {overrun};"]
        recorder.fact("section", copy)
        recorder.fact("count:overrun", count)
        recorder.fact("data:0", f"{copy}\0{size}")
        return name, size
