"""Steps in which the client itself does something, as C statements: it writes, reads, looks, gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.reproduce.observed import Where
from pytest_qnn.qnn.reproduce.recorder import Recorder
from pytest_qnn.qnn.reproduce.text import NotWritten
from pytest_qnn.qnn.runner.buffers import data_of
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import StepSeen

Writes = Callable[[Recorder, Any, State, StepSeen], None]


def _buffer(recorder: Recorder, state: State, name: str) -> str:
    return recorder.buffers[state.buffer(name).pointer]


def _alloc(recorder: Recorder, step: Any, state: State, seen: StepSeen) -> None:
    made = state.buffers.get(step.buffer)
    pointer = seen.values[0] if seen.values else 0
    if step.own and made is not None and made.pointer == pointer:
        recorder.own(step, pointer, made.fd, made.size)
    elif step.own:
        raise NotWritten("the client's own memory is not to be had")
    name = recorder.facts.get(Where(recorder.index, "value:0"))
    size = seen.values[1] if len(seen.values) > 1 else getattr(step, "size", 0)
    if name and pointer and (recorder.wants("count:last_writable") or recorder.wants("count:first_writable")):
        recorder.fact("count:first_writable", f"is_writable({name})")
        recorder.fact("count:last_writable", f"is_writable(AT({name}, {max(size, 1) - 1}))")
    elif name and pointer and made is not None and made.usable:
        recorder.line(f"if ({name}) memset({name}, 0, 1), memset(AT({name}, {max(size, 1) - 1}), 0, 1);")


def _free(recorder: Recorder, step: case.Free, state: State, seen: StepSeen) -> None:
    del seen
    made = state.buffers.get(step.buffer)
    if made is not None and made.own and step.pointer == "base":
        recorder.line(f"munmap({_buffer(recorder, state, step.buffer)}, {made.size});")
        recorder.line(f"close({recorder.fd_of(made.fd)});")


def _write(recorder: Recorder, step: case.Write, state: State, seen: StepSeen) -> None:
    del seen
    name = _buffer(recorder, state, step.buffer)
    place = f"AT({name}, {step.offset})" if step.offset else name
    recorder.fill(place, data_of(step.dtype, step.seed, step.size))


def _fill(recorder: Recorder, step: case.Fill, state: State, seen: StepSeen) -> None:
    del seen
    size = recorder.size_of(state.buffer(step.buffer).pointer)
    recorder.line(f"memset({_buffer(recorder, state, step.buffer)}, 0x{step.byte:02x}, {size});")


def _read(recorder: Recorder, step: case.Read, state: State, seen: StepSeen) -> None:
    del seen
    buffer = state.buffer(step.buffer)
    name = _buffer(recorder, state, step.buffer)
    if step.via == "fd":
        second = recorder.names.free("second")
        recorder.globals.append(f"static void* {second};")
        recorder.line(f"{second} = through({recorder.fd_of(buffer.fd)}, {buffer.size});")
        recorder.line(f'if (!{second}) stop("the descriptor cannot be mapped");')
        name = second
    recorder.fact("data:0", f"{name}\0{buffer.size}")


def _observe(recorder: Recorder, step: case.Observe, state: State, seen: StepSeen) -> None:
    del seen
    for what, look in (("fds", "open_now"), ("memfds", "mappings")):
        _look(recorder, f"grown:{what}", look, "-1", patient=step.patient)
    for name in step.buffers:
        buffer = state.buffers.get(name)
        if buffer is not None and buffer.live:
            fd = recorder.fd_of(buffer.fd)
            _look(recorder, f"mapped:{name}", "mappings", fd, patient=step.patient)


def _look(recorder: Recorder, label: str, look: str, argument: str, *, patient: bool) -> None:
    first = recorder.first_looks.get(label)
    name = recorder.names.free(label.replace(":", "_"))
    recorder.globals.append(f"static long {name};")
    again = f"patiently({look}, {argument}, {first})" if first and patient else f"{look}({argument})"
    recorder.line(f"{name} = {again};")
    recorder.fact(label, f"{name} - {first or name}")
    recorder.first_looks.setdefault(label, name)


def _release_binary(recorder: Recorder, step: case.ReleaseBinary, state: State, seen: StepSeen) -> None:
    del state, seen
    name, size = recorder.given[step.context]
    recorder.line(f"memset({name}, 0xEE, {size});")


def _providers(recorder: Recorder, step: case.Providers, state: State, seen: StepSeen) -> None:
    del state
    listed, count = recorder.names.free("list"), recorder.names.free("count")
    recorder.globals += [f"static const QnnInterface_t** {listed};", f"static uint32_t {count};"]
    recorder.line(f"{listed} = NULL;")
    recorder.line(f"{count} = 0x55555555u;")
    arguments = ("NULL" if step.null_list else f"&{listed}", "NULL" if step.null_count else f"&{count}")
    call = f"get_providers({', '.join(arguments)})"
    recorder.called("getProviders", "QnnInterface_getProviders", call, seen.code or 0)
    recorder.fact("count:count", count)
    recorder.fact("count:listed", f"({listed} != NULL)")
    for position in range(4):
        recorder.fact(f"value:{position}", f"(void*)({listed} ? {listed}[{position}] : NULL)")


def _interface(recorder: Recorder, step: case.Interface, state: State, seen: StepSeen) -> None:
    del step, state
    name = recorder.names.free("listed")
    recorder.globals.append(f"static const QnnInterface_t* {name};")
    recorder.called("getProviders", "QnnInterface_getProviders", f"provided(&{name})", seen.code or 0)
    recorder.line('if (!interface) stop("there is no provider");')
    recorder.fact("value:0", f"(void*){name}")
    recorder.fact("id", "interface->backendId")
    recorder.fact("name", "interface->providerName")
    for part, field in (("core", "coreApiVersion"), ("backend", "backendApiVersion")):
        for position, number in enumerate(("major", "minor", "patch")):
            recorder.fact(f"count:{part}:{position}", f"interface->apiVersion.{field}.{number}")


def _version(recorder: Recorder, step: Any, state: State, seen: StepSeen) -> None:
    del step, state, seen
    name = recorder.facts.get(Where(recorder.index, "text"))
    if name:
        recorder.fact("value:0", f"({name} ? 1 : 0)")
        recorder.fact("data:0", name)


def _retrieve(recorder: Recorder, step: case.Retrieve, state: State, seen: StepSeen) -> None:
    made = state.graphs.get(step.graph)
    context = state.contexts.get(step.context)
    source = (context.graphs if context is not None else {}).get(step.source) or state.graphs.get(step.source)
    if made is not None and source is not None and seen.code == 0:
        recorder.same_ids(made.value, source.value)


BEHIND: Final[dict[type, Writes]] = {
    case.Alloc: _alloc,
    case.AllocNeeded: _alloc,
    case.Free: _free,
    case.Write: _write,
    case.Fill: _fill,
    case.Read: _read,
    case.Observe: _observe,
    case.ReleaseBinary: _release_binary,
    case.Providers: _providers,
    case.Interface: _interface,
    case.Version: _version,
    case.Message: _version,
    case.Retrieve: _retrieve,
}
"""What stands behind the calls of a step, by its type."""
NOT_WRITTEN: Final[dict[type, str]] = {
    case.NewProcess: "it needs several processes",
    case.Carry: "it needs a binary that another process has made",
    case.Restart: "nothing in C can make the subsystem behind a backend restart",
    case.Churn: "it shows in what many repetitions make the process grow by",
    case.Parallel: "it needs calls of several threads at once",
    case.Inspect: "it shows in what the System interface says of a binary",
}
"""Steps that no program is written for, and why."""
