"""Writes the calls that a case makes of the reference as C statements, with names for what they make."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from pytest_qnn.qnn.abi.codes import ITEM_SIZE, Error
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.reproduce.lists import Lists
from pytest_qnn.qnn.reproduce.observed import Where
from pytest_qnn.qnn.reproduce.processes import Processes
from pytest_qnn.qnn.reproduce.refused.statements import Refusals
from pytest_qnn.qnn.reproduce.text import Names, NotWritten, bytes_of, of_case
from pytest_qnn.qnn.reproduce.threads import Threads
from pytest_qnn.qnn.reproduce.touched import TouchedMemory
from pytest_qnn.qnn.runner.buffers import CLOSED_FD, data_of
from pytest_qnn.qnn.runner.client import _OPTIONAL
from pytest_qnn.qnn.runner.graphs import GUARD
from pytest_qnn.qnn.runner.state import BOGUS_HANDLE, State

_EXECUTES: Final = (case.Execute, case.Executes)
"""Steps with memory of the client's behind each tensor of a graph."""
MOST_CALLS: Final = 600
BEHIND: Final = 64
"""Bytes behind the memory of a binary, or of a section, that must stay as they are."""
MOST_LITERAL: Final = 512
"""Bytes of memory that are written out."""
MOST_MEMORY: Final = 1 << 20
"""Bytes of one piece of client memory that is looked at."""
FRAME: Final = Path(__file__).with_name("frame.c").read_text(encoding="utf-8")
"""What every program has: it opens the libraries, tells of each call, and judges."""
ASYNCHRONOUS: Final = Path(__file__).with_name("asynchronous.c").read_text(encoding="utf-8")
"""What a program has whose executions notify it."""
PIECES: Final = Path(__file__).with_name("pieces.c").read_text(encoding="utf-8")
"""What a program has that gives a binary in pieces."""
THREADS: Final = Path(__file__).with_name("threads.c").read_text(encoding="utf-8")
"""What a program has whose calls come from several threads."""
SYSTEM: Final = Path(__file__).with_name("system.c").read_text(encoding="utf-8")
"""What a program has that asks the System interface."""
LISTS: Final = Path(__file__).with_name("lists.c").read_text(encoding="utf-8")
"""What a program has that makes contexts out of lists of binaries."""
TOUCHED: Final = Path(__file__).with_name("touched.c").read_text(encoding="utf-8")
"""What a program has that looks at which memory it touches."""
REFUSALS: Final = Path(__file__).with_name("refused").joinpath("requests.c").read_text(encoding="utf-8")
"""What a program has that refuses requests of the library."""
_ALL: Final = FRAME + ASYNCHRONOUS + PIECES + THREADS + SYSTEM + LISTS + TOUCHED + REFUSALS
FRAME_WORDS: Final = frozenset(re.findall(r"[A-Za-z_]\w+", _ALL))
SESSION: Final = ("logCreate", "backendCreate", "deviceCreate", "profileCreate")
_FREES: Final = ("logFree", "deviceFree")
_NAMES: Final = {
    "logCreate": "log_handle",
    "backendCreate": "backend",
    "deviceCreate": "device",
    "profileCreate": "profile",
    "signalCreate": "signal_handle",
}


class Called(NamedTuple):
    """A call of the table that was made."""

    step: int
    name: str
    code: int
    session: bool
    """It opened the session."""


class CallText(Protocol):
    """The text of one call."""

    expressions: list[str]

    def returned(self, code: int) -> None:
        """It has returned."""


class Recorder:
    """What the calls of one run become.

    Attributes:
        bodies: statements by step; the step behind the last one is the closing.
        globals: declarations of variables.
        calls: every call of the table, in order.
        facts: the C expression of each thing that was seen, as far as there is one.
        state: of the case under way; set by whoever carries it out, as is the next.
        write: gives the arguments of a call their text.
    """

    _met = 0
    """Calls until the session's companion was made: the session's own come behind them."""

    def __init__(
        self,
        wanted: dict[int, list[str]] | None = None,
        failed: frozenset[int] = frozenset(),
        labels: frozenset[Where] = frozenset(),
        deciding: Collection[int] = (),
    ) -> None:
        """Begin without a step.

        Args:
            wanted: by number of a call, statements to stand behind it.
            failed: numbers of calls that failed on the target, and not on the reference.
            labels: what is to be looked at.
            deciding: steps at which what fails, and did not, is not what was found.
        """
        self.bodies: list[list[str]] = []
        self.globals: list[str] = []
        self.calls: list[Called] = []
        self.used: set[str] = set()
        self.facts: dict[Where, str] = {}
        self.state: State | None = None
        self.write: Callable[[Recorder, str, tuple[Any, ...]], CallText] | None = None
        self.step: case.AnyStep | None = None
        self.index = -1
        self.quiet = False
        self.names = Names(FRAME_WORDS)
        self._wanted, self._failed, self._labels = wanted or {}, failed, labels
        self._deciding = deciding
        self._values: dict[int, str] = {}
        self._ids: dict[int, dict[int, str]] = {}
        self._fds: dict[int, str] = {}
        self._blocks: list[tuple[int, int, str, str]] = []
        self._near: dict[int, str] = {}
        self.buffers: dict[int, str] = {}
        """C names of buffers by the pointer."""
        self.binaries: dict[str, tuple[str, str]] = {}
        """By a binary's name: expressions of its bytes and its size."""
        self.sections: dict[str, tuple[str, str]] = {}
        self.executions = 0
        """Asynchronous executions of the step so far."""
        self.accounts: dict[str, int] = {}
        """By context: the number of the account of its pieces."""
        self.lists, self.touched, self.refusals = Lists(self), TouchedMemory(self), Refusals(self)
        self._dispensable: set[str] = set()
        """Variables of handles that a session can do without."""
        self.sizes: dict[int, int] = {}
        """Bytes of the output of each."""
        self.asks: list[str] = []
        """Statements before the first step: what the target declares."""
        self.may_fail = bool(failed)
        self.first_looks: dict[str, str] = {}
        """By label: the variable with what was counted at first."""
        self._graph = 0
        self.uses_rpcmem = False
        self.scribbles: list[str] = []
        """Statements for the next call: what the client does with memory once a call has returned."""
        self.given: dict[str, tuple[str, str, list[str]]] = {}
        """By context: the bytes of the binary that it was made from, their number, and its configuration."""
        self.threads = Threads(self, labels)
        self.inspects = False
        """The System interface is asked."""
        self.processes = Processes(self)
        self._lock = threading.RLock()
        """Held from before a call until it has returned: calls of threads are written one after the other."""

    # Steps

    def begin(self, index: int, step: case.AnyStep | None) -> None:
        """The statements from now on are those of a step."""
        self.index, self.step = index, step
        self.bodies.append([])
        self.executions = 0
        self._near.clear()

    def line(self, text: str) -> None:
        """One more statement of the step, or of the thread of it that is running."""
        self.lines().append(text)

    def lines(self) -> list[str]:
        """The statements so far."""
        return self.threads.lines(self.bodies[-1])

    def variable(self, kind: str, wanted: str, count: int = 1) -> str:
        """The name of a new array that lives as long as the program."""
        name = self.names.free(wanted)
        self.globals.append(f"static {kind} {name}[{count}];")
        return name

    def fact(self, label: str, expression: str) -> None:
        """How the program sees what the label names at this step."""
        self.facts[Where(self.index, label)] = expression

    def add_fact(self, label: str, expression: str) -> None:
        """As `fact`, of something that is the sum of several."""
        place = Where(self.index, label)
        self.facts[place] = f"{self.facts[place]} + {expression}" if place in self.facts else expression

    def wants(self, label: str) -> bool:
        """The label is to be looked at, at this step."""
        return Where(self.index, label) in self._labels

    def arrays_of_step(self, *wanted: str) -> list[str]:
        """Names of arrays that this step's statements write to, which begin so."""
        found = (line.partition("[")[0] for line in self.lines() if "] = " in line)
        return [name for name in dict.fromkeys(found) if name.startswith(wanted)]

    def bytes_of_tensor(self, v1: Any) -> int:
        """Bytes of a dense tensor."""
        return int(math.prod(v1.dimensions[: v1.rank])) * ITEM_SIZE[v1.dataType]

    # What pointers and numbers stand for

    def handle(self, value: int | None) -> str:
        """The expression of a handle."""
        if not value:
            return "NULL"
        if value == BOGUS_HANDLE:
            return "UNKNOWN"
        if self.state is not None and value in self.state.lent:
            return self.memory(value, self.state.lent[value], "mapped")
        if value not in self._values:
            raise NotWritten("a handle is passed that no call of the case has given")
        return self._values[value]

    def id_names(self) -> list[str]:
        """The variables of all tensors' ids."""
        return list(dict.fromkeys(name for ids in self._ids.values() for name in ids.values()))

    def identity(self, number: int, position: int) -> str:
        """The expression of a tensor's id: the variable that the creation of the tensor has set."""
        graph = self._graph
        step, state = self.step, self.state
        if isinstance(step, _EXECUTES) and state is not None and position < len(step.bindings):
            foreign = step.bindings[position].of
            if foreign in state.graphs:
                graph = state.graphs[foreign].value
        for ids in (self._ids.get(graph, {}), *reversed(self._ids.values())):
            if number in ids:
                return ids[number]
        return f"{number}u"

    def descriptor(self, number: int, position: int) -> str:
        """The expression of a file descriptor."""
        step = self.step
        if isinstance(step, case.Register) and position < len(step.descriptors):
            kind = step.descriptors[position].fd
            buffer = self.state.buffers.get(step.descriptors[position].buffer) if self.state else None
            if kind == "dup":
                return f"dup({self._fds[buffer.fd]})" if buffer is not None else "-1"
            if kind not in ("buffer", "minus-one"):
                return f'odd_fd("{kind}", {buffer.size if buffer is not None else 4096})'
        if number == CLOSED_FD or number < 0:
            return str(number)
        if number in self._fds:
            return self._fds[number]
        raise NotWritten("a descriptor is passed that no call of the case has given")

    def section_size(self) -> str:
        """The expression of the bytes of the section that the step is about; empty: it is about none."""
        if isinstance(self.step, case.GetSection):
            return self.facts.get(Where(self.index, "value:0"), "")
        if isinstance(self.step, case.ApplySection):
            return self.sections[self.step.section][1]
        return ""

    def dimension(self, value: int) -> str:
        """The expression of a dimension."""
        told, step = self.section_size(), self.step
        if not told or not isinstance(step, case.GetSection | case.ApplySection):
            return f"{value}u"
        return f"(uint32_t){told}" + (" - 1" if step.memory == "short" else "")

    def buffer_size(self, value: int, position: int) -> str:
        """The expression of a buffer's whole size."""
        told = self.section_size()
        if told:
            return f"{told} + {BEHIND}"
        step, state = self.step, self.state
        if isinstance(step, case.Register) and state is not None and position < len(step.descriptors):
            described = step.descriptors[position]
            buffer = state.buffers.get(described.buffer)
            if described.size is None and buffer is not None:
                found = next((size for at, _, _, size in self._blocks if at == buffer.pointer), None)
                return found or f"{value}u"
        return f"{value}u"

    def memory(self, address: int, size: int, wanted: str = "memory") -> str:
        """A pointer to the client's memory; what is no buffer is made, with its contents."""
        for begin, length, name, _ in self._blocks:
            if begin <= address < begin + length:
                return name if address == begin else f"AT({name}, {address - begin})"
        if address in self._near:
            return self._near[address]
        if size <= 0 and wanted == "other":
            size = 4096
        if size > MOST_MEMORY and not isinstance(self.step, case.WholeSession):
            raise NotWritten(f"a tensor has {size} bytes of memory of its own")
        name = self._near[address] = self._space(address, size, wanted)
        return name

    def _space(self, address: int, size: int, wanted: str) -> str:
        output = wanted == "output" and isinstance(self.step, case.Execute)
        short = isinstance(self.step, _EXECUTES) and any(each.short for each in self.step.bindings)
        name = self.names.free(wanted)
        room = size + (GUARD if output and not short else 0)
        if short:
            self.globals.append(f"static unsigned char* {name};")
            self.line(f"{name} = guarded({size});")
        else:
            self.globals.append(f"static unsigned char {name}[{max(1, room)}];")
        if output:
            self.line(f"memset({name}, 0xEE, {room});")
        elif wanted != "other":
            self.fill(name, ctypes.string_at(address, size))
        return name

    def fill(self, name: str, data: bytes) -> None:
        """Statements that write contents to memory."""
        if not data or not any(data):
            return
        if data.count(data[0]) == len(data):
            self.line(f"memset({name}, 0x{data[0]:02x}, {len(data)});")
            return
        for dtype, function in (("UFIXED_POINT_8", "fill_bytes"), ("FLOAT_32", "fill_floats")):
            for seed in self._seeds():
                if data_of(dtype, seed, len(data)) == data:  # type: ignore[arg-type]
                    self.line(f"{function}({name}, {len(data)}, {seed}u);")
                    return
        if len(data) > MOST_LITERAL:
            raise NotWritten(f"{len(data)} bytes of contents would have to be written out")
        held = self.names.free("contents")
        self.globals.append(f"static const unsigned char {held}[] = {{{bytes_of(data)}}};")
        self.line(f"memcpy({name}, {held}, {len(data)});")

    def _seeds(self) -> tuple[int, ...]:
        step = self.step
        seeds: list[int | None] = [0]
        if isinstance(step, _EXECUTES):
            seeds += [each.seed for each in step.bindings]
            seeds += [
                case.queued_seed(number, position)
                for number in range(case.MOST_CALLS)
                for position in range(2)
            ]
        elif isinstance(step, case.Prepare | case.UpdateWeights):
            seeds.append(step.weights)
        elif isinstance(step, case.Write):
            seeds.append(step.seed)
        elif isinstance(step, case.WholeSession):
            seeds += [1, case.Binding().seed]
        elif isinstance(step, case.Parallel):
            rounds = case.MOST_CALLS if step.what == "histories" else step.rounds
            turns = itertools.product(range(step.threads), range(rounds), range(2))
            seeds += [64 * at + 8 * turn + place for at, turn, place in turns]
        return tuple(dict.fromkeys(seed for seed in seeds if seed is not None))

    # Calls

    def before(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Statements before a call, and the call; what is to be done behind it."""
        self._lock.acquire()
        if self.quiet or self.threads.is_repeated(name):
            return None
        self.lists.notified()
        if len(self.calls) >= MOST_CALLS:
            raise NotWritten(f"the case makes more than {MOST_CALLS} calls")
        self._near.clear()
        self._graph = arguments[0] if name.startswith(("graph", "tensor")) and arguments[0] else 0
        self.used.add(name)
        assert self.write is not None
        made = self.write(self, name, arguments)
        number = len(self.calls)
        step = self.step
        if isinstance(step, case.ContextFinalize) and step.descriptors is not None:
            self.line(f"few_descriptors({step.descriptors});")
            self.scribbles.append("enough_descriptors();")
        if any(each.label == f"entry:{name}" for each in self._labels):
            self.line(f"if (!qnn->{name}) break;")
        if isinstance(step, case.Execute) and step.measured and name == "graphExecute":
            self.touched.watch()
        self.threads.before(name)
        call = f'CALL({number}, "{function_name(name)}", qnn->{name}({", ".join(made.expressions)}))'
        if name in _FREES and made.expressions[0] in self._dispensable:
            self.line(f"if ({made.expressions[0]}) {call};")
            self.line("else code = 0;")
        else:
            self.line(self.refusals.around(name, call))
        return made

    def called(self, name: str, shown: str, expression: str, code: int) -> None:
        """A call of something else than the table."""
        number = len(self.calls)
        self.line(f'CALL({number}, "{shown}", {expression});')
        self.calls.append(Called(self.index, name, code, session=False))
        for statement in self._wanted.get(number, ()):
            self.line(statement)

    def after(self, name: str, arguments: tuple[Any, ...], token: Any, code: int) -> None:
        """Statements behind a call."""
        try:
            if not self.quiet and token is not None:
                self._after(name, arguments, token, code)
        finally:
            self._lock.release()

    def _after(self, name: str, arguments: tuple[Any, ...], token: Any, code: int) -> None:
        number = len(self.calls)
        self.calls.append(Called(self.index, name, code, self._opens(name)))
        self.lines().extend(self.scribbles)
        self.scribbles.clear()
        self.threads.after(name, arguments)
        for statement in self._wanted.get(number, ()):
            self.line(statement)
        if name in _OPTIONAL and self.calls[-1].session:
            self._do_without(token.expressions[-1].removeprefix("&"))
        behind = self.refusals.behind(name)
        if behind:
            self.line(behind)
        elif self.threads.started:
            self.threads.demand(name, code)
        elif number in self._failed:
            leaves = "" if name == "graphExecuteAsync" else " break;"
            self.line(f"if (code) {{ failed = 1;{leaves} }}")
        elif (
            code == 0 and self.step is not None and name not in ("propertyHasCapability", "graphExecuteAsync")
        ):
            ends = "otherwise" if self.index in self._deciding else "stop"
            self.line(f'if (code) {ends}("{function_name(name)} fails");')
        token.returned(code)

    def _do_without(self, handle: str) -> None:
        """A session has none where the call is not supported."""
        self._dispensable.add(handle)
        not_supported = int(Error.COMMON_ERROR_NOT_SUPPORTED)
        self.line(f"if ((code & 0xffff) == {not_supported}) {handle} = NULL, code = 0;")

    def _opens(self, name: str) -> bool:
        state = self.state
        if state is None or isinstance(self.step, case.Misuse) or name not in SESSION:
            return False
        if state.session.meets:
            self._met = len(self.calls) + 1
            return True
        begun = max(self.processes.begun, self._met)
        made = {each.name for each in self.calls[begun:] if each.session}
        if isinstance(self.step, case.BadArgument) and name == "profileCreate":
            return False  # a session has one where an execute wants it, and such a step makes its own
        return name not in made and state.session.opened

    def made(self, value: int | None, name: str) -> None:
        """A call has given a handle, which is in this variable."""
        if value:
            self._values[value] = name

    def made_id(self, number: int, name: str) -> None:
        """A tensor has got an id, which is in this variable."""
        self._ids.setdefault(self._graph, {})[number] = name

    def same_ids(self, graph: int, source: int) -> None:
        """A graph has the tensors of another one."""
        if source in self._ids:
            self._ids.setdefault(graph, {}).update(self._ids[source])

    def handle_name(self, call: str) -> str:
        """The name for the handle that a call gives: that of the case, where it has one."""
        step = self.step
        if call == "contextCreate" and isinstance(step, case.ContextCreate):
            return of_case(step.context)
        if isinstance(step, case.ContextFromBinary | case.ContextWithCallback) and call.startswith("context"):
            return of_case(step.context)
        if call in ("graphCreate", "graphRetrieve") and isinstance(step, case.Prepare | case.Retrieve):
            return of_case(step.graph)
        return _NAMES.get(call, "handle")

    # Shared memory

    def allocated(self, function: str, arguments: tuple[int, ...], pointer: int) -> None:
        """rpcmem_alloc or rpcmem_alloc2."""
        with self._lock:
            if not self.quiet:
                self._allocated(function, arguments, pointer)

    def _allocated(self, function: str, arguments: tuple[int, ...], pointer: int) -> None:
        self.uses_rpcmem = True
        step = self.step
        wanted = of_case(step.buffer) if isinstance(step, case.Alloc | case.AllocNeeded) else "block"
        name = self.names.free(wanted)
        self.globals.append(f"static void* {name};")
        heap, flags, size = arguments
        amount = self._amount(size)
        if function == "rpcmem_alloc2":
            self.line('if (!rpcmem_alloc2) stop("rpcmem_alloc2 is not exported");')
        else:
            amount = f"(int){amount}" if not amount.isdigit() and not amount.startswith("-") else amount
        self.line(f"{name} = {function}({heap}, {flags}u, {amount});")
        self.line(f'printf("step %d: {function} -> %p\\n", shared->step, {name});')
        self._block(name, pointer, size, amount)
        self.threads.allocated(name, pointer, size)

    def _amount(self, size: int) -> str:
        step, told = self.step, self.section_size()
        if told:
            return f"({told} + {BEHIND})"
        if isinstance(step, case.AllocNeeded):
            said = self.facts.get(Where(-2, f"said:{step.context}:{step.option}"))
            if said is None:
                raise NotWritten("a buffer has a size that no context has told")
            return f"({said} + {step.extra})" if step.extra else said
        return str(size)

    def own(self, step: case.Alloc | case.AllocNeeded, pointer: int, fd: int, size: int) -> None:
        """Memory of the client's own was made."""
        name, number = self.names.free(of_case(step.buffer)), self.names.free(f"fd_{of_case(step.buffer)}")
        self.globals += [f"static void* {name};", f"static int {number};"]
        amount = self._amount(size)
        self.line(f"{name} = own_memory({amount}, &{number});")
        self._block(name, pointer, size, amount)
        self._fds[fd] = number

    def _block(self, name: str, pointer: int, size: int, amount: str) -> None:
        if isinstance(self.step, case.Alloc | case.AllocNeeded):
            self.fact("value:0", name)
        if pointer:
            self._blocks.insert(
                0, (pointer, size, name, amount if not amount.startswith("(int)") else amount[5:])
            )
            self.buffers[pointer] = name

    def newest_block(self) -> str:
        """The name of the memory that was allocated last."""
        return self._blocks[0][2]

    def freed(self, pointer: int) -> None:
        """rpcmem_free."""
        with self._lock:
            if not self.quiet:
                self.uses_rpcmem = True
                self.line('printf("step %d: rpcmem_free\\n", shared->step);')
                self.line(f"rpcmem_free({self.pointer(pointer)});")

    def asked_fd(self, pointer: int, fd: int) -> None:
        """rpcmem_to_fd."""
        with self._lock:
            if not self.quiet:
                self._asked_fd(pointer, fd)

    def _asked_fd(self, pointer: int, fd: int) -> None:
        self.uses_rpcmem = True
        name = self.names.free(f"fd_{self.buffers.get(pointer, 'unknown')}")
        self.globals.append(f"static int {name};")
        self.line(f"{name} = rpcmem_to_fd({self.pointer(pointer)});")
        self.line(f'printf("step %d: rpcmem_to_fd -> %d\\n", shared->step, {name});')
        if isinstance(self.step, case.ToFd):
            self.fact("value:0", name)
        if fd >= 0:
            self._fds[fd] = name
        self.threads.asked_fd(name)

    def fd_of(self, number: int) -> str:
        """The variable of a descriptor that rpcmem, or the client, has given."""
        if number not in self._fds:
            raise NotWritten("a descriptor is used that no call of the case has given")
        return self._fds[number]

    def size_of(self, pointer: int) -> str:
        """The size of a buffer."""
        return next(size for begin, _, _, size in self._blocks if begin == pointer)

    def pointer(self, address: int) -> str:
        """A pointer for rpcmem."""
        if not address:
            return "NULL"
        for begin, length, name, _ in self._blocks:
            if begin <= address < begin + max(length, 1):
                return name if begin == address else f"AT({name}, {address - begin})"
        name = self.names.free("unknown")
        self.globals.append(f"static unsigned char {name}[4096];")
        return name
