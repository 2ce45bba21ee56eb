"""Steps in which the client itself does something, as C statements: it writes, reads, looks, gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.model.growth import FIRST_KEPT
from pytest_qnn.qnn.reproduce.observed import GROWING, Where
from pytest_qnn.qnn.reproduce.recorder import Recorder
from pytest_qnn.qnn.reproduce.text import NotWritten, literal
from pytest_qnn.qnn.runner.buffers import data_of
from pytest_qnn.qnn.runner.probes import _ONCE, Batch
from pytest_qnn.qnn.runner.run import _session
from pytest_qnn.qnn.runner.series.executes import bound
from pytest_qnn.qnn.runner.state import NeverMade, Skip, State
from pytest_qnn.qnn.trace import FirstCounts, GrowthCounts, StepSeen

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
    if step.region:
        recorder.touched.look(step)
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
    name, size, configuration = recorder.given[step.context]
    recorder.line(f"memset({name}, 0xEE, {size});")
    for each in configuration:
        recorder.line(f"memset({each}, 0xEE, sizeof {each});")


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


def _execute(recorder: Recorder, step: case.Execute, state: State, seen: StepSeen) -> None:
    del state, seen
    count = recorder.executions
    if not step.asynchronous or not count:
        return
    if step.freed:
        recorder.fact("freed:silent", f"(silent({count}) > 0)")
        recorder.fact("freed:twice", f"(executions[{count - 1}].notified > 1)")
        recorder.fact("freed:lost", f"(lost({count}) > 0)")
        recorder.fact("freed:otherwise", f"(ended_otherwise({count}) > 0)")
    late = recorder.names.free("late")
    recorder.globals.append(f"static long {late};")
    recorder.line(f"{late} = wait_for({count});")
    own = f"executions[{count - 1}]"
    recorder.fact("count:notified", f"{own}.notified")
    recorder.fact("count:inputs_changed", f"{own}.inputs_changed")
    recorder.fact("count:output_overrun", f"{own}.overrun")
    recorder.fact("count:silent", f"silent({count})")
    recorder.fact("count:queued_amiss", f"amiss({count})")
    recorder.fact("count:strange_notifications", "strange")
    recorder.fact("count:late_writes", late)
    for place, number in enumerate((count - 1, *range(count - 1))):
        recorder.fact(f"data:{place}", f"executions[{number}].output_then\0{recorder.sizes.get(number, 0)}")
    for number in range(count):
        recorder.fact(f"call:{count + number}", f"executions[{number}].status")


def _pieces(
    recorder: Recorder, step: case.Pieces | case.ContextWithCallback, state: State, seen: StepSeen
) -> None:
    del state, seen
    number = recorder.accounts[step.context]
    recorder.fact("beyond", f"accounts[{number}].beyond")
    recorder.fact("empty", f"accounts[{number}].empty")
    if isinstance(step, case.ContextWithCallback):
        return
    for label, name in (("released", "released"), ("released_again", "again"), ("changed", "changed")):
        recorder.fact(f"count:{label}", f'pieces_of({number}, "{name}")')
    recorder.fact("count:mapped", f'pieces_of({number}, "mapped")')
    recorder.fact("count:given", f"accounts[{number}].given")
    recorder.fact("count:released_wrongly", f"accounts[{number}].wrongly")
    recorder.fact("count:other_parameter", "other_parameter")


def _from_binary(recorder: Recorder, step: case.ContextFromBinary, state: State, seen: StepSeen) -> None:
    del step, state, seen
    recorder.lists.notified()


_MOST_TURNS: Final = 1000
_WARM_UP: Final = 20


def repeated(recorder: Recorder, step: case.Churn, state: State) -> StepSeen:
    """One turn is carried out, and its statements stand in a loop; what grows is counted around it."""
    if not state.session.open():
        raise NotWritten("there is no session")
    batch = Batch(state, step)
    lines = recorder.lines()
    begin = len(lines)
    found = _ONCE[step.what](state, step, batch)
    if found is not None:
        raise NotWritten("a reference does not carry out what is repeated")
    _in_turns(recorder, begin, step.rounds)
    return StepSeen(code=batch.refusal, counts=GrowthCounts(rounds=step.rounds))


def executes(recorder: Recorder, step: case.Executes, state: State) -> StepSeen:
    """The same; the tensors are written once, as the case's client does it."""
    try:
        run, execute = bound(state, step)
    except Skip as reason:
        return StepSeen(skipped=str(reason), lacking=isinstance(reason, NeverMade))
    lines = recorder.lines()
    begin = len(lines)
    try:
        if execute.once() is not None:
            raise NotWritten("a reference does not do what is repeated as it has to")
    finally:
        run.release()
    call = next(at for at in range(begin, len(lines)) if lines[at].startswith("CALL("))
    _in_turns(recorder, call, step.rounds)
    return StepSeen(code=execute.code, counts=GrowthCounts(rounds=step.rounds))


def _in_turns(recorder: Recorder, begin: int, rounds: int) -> None:
    """The step's statements from ``begin`` on stand in a loop, around which is counted what grows."""
    lines = recorder.lines()
    turn = lines[begin:]
    turns = min(rounds, _MOST_TURNS)
    before, after = recorder.names.free("before"), recorder.names.free("after")
    recorder.globals.append(f"static struct held {before}, {after};")
    lines[begin:] = [
        f"for (int turn = 0; turn < {_WARM_UP + turns}; ++turn) {{",
        f"  if (turn == {_WARM_UP}) {before} = held_now();",
        "  if (turn == 1) is_quiet = 1; /* one turn is told of */",
        *(f"  {line}" for line in turn),
        "}",
        "is_quiet = 0;",
        f"{after} = held_again(&{before}, {turns});",
    ]
    for what in GROWING:
        recorder.fact(f"grows:{what}", f"grown(&{before}, &{after}, {turns}, {literal(what.encode())})")


def whole_session(recorder: Recorder, step: case.WholeSession, state: State) -> StepSeen:
    """A small session and the step's, both twice; what the process holds is counted around the latter.

    As the case's client does it: malloc's bytes count if they grow both times, and resident memory the second
    time, when the program's own memory, and what an allocator keeps for the next session, is there already.
    """
    if step.first:
        return _first_session(recorder, step, state)
    lines = recorder.lines()
    begin = len(lines)
    small = _session_lines(recorder, msgspec.structs.replace(step, shape=(1,)), state)
    large = _session_lines(recorder, step, state)
    before, after = (recorder.variable("struct held", wanted, 2) for wanted in ("before", "after"))
    lines[begin:] = [
        "for (int turn = 0; turn < 2; ++turn) {",
        *(f"  {line}" for line in small),
        f"  {before}[turn] = held_now();",
        *(f"  {line}" for line in large),
        f"  {after}[turn] = held_again(&{before}[turn], 1);",
        "  is_quiet = 1; /* the first turn is told of */",
        "}",
        "is_quiet = 0;",
    ]
    half = nbytes(step.shape, step.dtype) // 2

    def grown(what: str, turn: int) -> str:
        return f"{after}[{turn}].{what} - {before}[{turn}].{what} > {half}"

    recorder.fact("left:heap", f"({grown('heap', 0)} && {grown('heap', 1)})")
    recorder.fact("left:resident", f"({grown('resident', 1)})")
    return StepSeen(code=0, counts=GrowthCounts())


def _first_session(recorder: Recorder, step: case.WholeSession, state: State) -> StepSeen:
    """The program's first session, and what it has written to before it and behind it."""
    lines = recorder.lines()
    begin = len(lines)
    session = _session_lines(recorder, step, state)
    before = recorder.variable("long", "before")
    lines[begin:] = [f"{before}[0] = written_now();", *session]
    recorder.fact("left:written", f"written_more({before}[0], {FIRST_KEPT})")
    return StepSeen(code=0, counts=FirstCounts())


def _session_lines(recorder: Recorder, step: case.WholeSession, state: State) -> list[str]:
    lines = recorder.lines()
    begin = len(lines)
    if _session(state, step) is not None:
        raise NotWritten("a reference does not carry out the session")
    return [*lines[begin:], "malloc_trim(0);"]


def _threads(recorder: Recorder, step: case.Parallel, state: State, seen: StepSeen) -> None:
    del state, seen
    if step.what == "logs":
        for name in ("late", "null_formats", "strange", "loud"):
            recorder.fact(f"heard:{name}", f"(heard.{name} > 0)")


def _inspect(recorder: Recorder, step: case.Inspect, state: State, seen: StepSeen) -> None:
    del state
    if step.binary not in recorder.binaries:
        raise NotWritten("a binary is looked at that this case has not made")
    recorder.inspects = True
    held, size = recorder.binaries[step.binary]
    name = recorder.names.free("found")
    recorder.globals.append(f"static struct inspected {name};")
    call = f"inspect({held}, {size}, &{name})"
    recorder.called("systemContextGetBinaryInfo", "QnnSystemContext_getBinaryInfo", call, seen.code or 0)
    for position in range(len(seen.values)):
        recorder.fact(f"value:{position}", f"{name}.kinds[{position}]")
    for each in ("version", "graphs", "inputs", "outputs", "data"):
        recorder.fact(f"count:{each}", f"{name}.{each}")


def _keep(recorder: Recorder, step: case.GetBinary, state: State, seen: StepSeen) -> None:
    del state
    if seen.code == 0:
        recorder.processes.keep(step.binary)


def _take_over(recorder: Recorder, step: case.Carry, state: State, seen: StepSeen) -> None:
    del state, seen
    recorder.processes.take_over(step.binary)


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
    case.ContextFromBinary: _from_binary,
    case.Execute: _execute,
    case.ContextWithCallback: _pieces,
    case.Pieces: _pieces,
    case.Parallel: _threads,
    case.Inspect: _inspect,
    case.GetBinary: _keep,
    case.Carry: _take_over,
}
"""What stands behind the calls of a step, by its type."""
NOT_WRITTEN: Final[dict[type, str]] = {
    case.Carry: "it needs a binary that another process has made",
    case.CheckHeap: "it shows where a heap is checked: on the system's own it may go unnoticed",
    case.Restart: "nothing in C can make the subsystem behind a backend restart",
}
"""Steps that no program is written for, and why."""
