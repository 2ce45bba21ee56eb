"""Carries cases out, in this process or in children: the same worker, the same result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from pytest_qnn.core.forms import HERE
from pytest_qnn.core.target import Death, TargetLost
from pytest_qnn.isolation import namespaces
from pytest_qnn.isolation.codec import Codec, TooManyItemsError, decoded
from pytest_qnn.isolation.observe.process import reuse_freed_memory
from pytest_qnn.isolation.sandbox import (
    MEMORY_LIMIT,
    KilledLoading,
    LoadingTakesTooLong,
    NoProcess,
    RunnerFailure,
    Sandbox,
)
from pytest_qnn.isolation.worker import DEPTHS, MayEndError, Unusable, WorkerSpec, make_worker

if TYPE_CHECKING:
    from pytest_qnn.isolation.remote.connection import Connection
    from pytest_qnn.isolation.remote.sandbox import RemoteSandbox

AnySandbox: TypeAlias = "Sandbox | RemoteSandbox"


class Executing(Protocol):
    """What a target asks of whoever carries out its cases. All that a judgement depends on comes from here.

    Attributes:
        isolated: cases run in child processes.

    """

    isolated: bool

    @property
    def elsewhere(self) -> Connection | None:
        """The other machine that carries them out; None: this one does, or none."""

    def run(self, case: Any, *, guarded: bool = False) -> Any:
        """A trace, or the Death of the child; ``guarded``: in a child also where others run here."""

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        """For each case a trace or a Death, and whether the case was the first of its child."""

    def run_apart(self, case: Any) -> Any:
        """A trace from another process than this one, or its Death."""

    def run_fresh(self, case: Any) -> Any:
        """A trace from a process that has carried out nothing else, or its Death."""

    def bears_company(self, case: Any) -> bool:
        """Whether the case neither measures nor ends its process."""

    def ahead(self, case: Any) -> None:
        """A case for which `run` will be called: where that saves time it may begin at once."""

    def forget_ahead(self) -> None:
        """`run` will not be called for what was begun and not asked for."""

    def learn(self, kind: type[Any]) -> Any:
        """The target's facts, of type ``kind``."""

    def ask(self, request: bytes, kind: Any) -> Any:
        """The answer, of type ``kind``, to a request that is no case; or the Death of the child."""

    def now(self) -> float:
        """Seconds of a clock, for whoever stops asking when that takes long."""

    def load(self, spec: WorkerSpec) -> None:
        """Have later children loaded with this specification."""

    @property
    def mode(self) -> str:
        """``off``, ``fork`` or ``spawn``."""

    @property
    def namespaces(self) -> str:
        """``own`` or ``shared``."""

    @property
    def loss_is_told(self) -> bool:
        """A case has died because the target cannot be loaded any more."""

    @loss_is_told.setter
    def loss_is_told(self, told: bool) -> None: ...

    def close(self) -> None:
        """End the children."""


MakeExecutor = Callable[..., Executing]
"""Makes the executor of a target; called as `Executor` is."""


def bears_company(codec: Codec, case: Any) -> bool:
    """Whether the case neither measures nor ends its process."""
    return not getattr(case, "ends", False) and not codec.measures(case)


class Executor:
    """Carries cases out: here (mode ``off``) or in children, of this machine or of another.

    Cases that measure memory run in children of their own, whose malloc counts exactly (`Sandbox`).
    """

    def __init__(
        self,
        spec: WorkerSpec,
        codec: Codec,
        mode: str,
        timeout: float,
        *,
        guards: bool = False,
        passed: Collection[str] = (),
        on: str = HERE,
    ) -> None:
        """Nothing is started here but the worker or the sandbox that most cases go to.

        ``codec``: the kinds of case. ``guards``: even in mode ``off``, cases run in a child that may end
        their process or measure it. ``passed``: environment variables that children get though their names
        look like credentials' (`pytest_qnn.isolation.start.interpreter`). ``on``: the machine of
        the children, as in ``--qnn-on``, in a mode that has some.

        Raises:
            Unusable: the target cannot be loaded, or there is no way to that machine.
        """
        self._codec = codec
        self.elsewhere = elsewhere = _connected(on)
        self._lost: dict[AnySandbox, str] = {}
        """Where the target cannot be loaded any more, and why."""
        self.loss_is_told = False
        """A case has died of that: further ones are not carried out at all."""
        plain = codec.request_of(codec.plain)

        self._freely = Sandbox(spec, mode, timeout, passed=passed, memory=_much_memory())
        """For one attempt to load a target that cannot be loaded with the memory that children have."""

        def sandbox(mode: str, *, exact: bool = False) -> AnySandbox:
            if elsewhere is not None:
                from pytest_qnn.isolation.remote.sandbox import RemoteSandbox

                return RemoteSandbox(elsewhere, spec, mode, timeout, exact=exact, plain=plain, passed=passed)
            return Sandbox(spec, mode, timeout, exact=exact, plain=plain, passed=passed)

        self._guards = sandbox("fork") if guards and mode == "off" else None
        """Not started before a case asks for it."""
        self._fresh = sandbox("spawn")
        """Not started before a case asks for a process of its own."""
        self._fresh_exact = sandbox("spawn", exact=True)
        """The same for a case that measures memory."""
        self._exact: AnySandbox | None = None
        """Not started before a case measures memory."""
        if guards or mode != "off":
            self._exact = sandbox("fork" if mode == "off" else mode, exact=True)
        self._sandbox: AnySandbox | None = None
        self.isolated = mode != "off"
        if self.isolated or guards:  # else a foreign target may be in this process
            reuse_freed_memory()
        self._outside = sandbox(mode) if self.isolated else None
        """Another one, without namespaces; None: what is in force was found out."""
        if self.isolated:
            self._sandbox = sandbox(mode)
            try:
                self._start_apart(self._sandbox)
            except BaseException:
                self.close()
                raise
        else:
            self._worker = make_worker(spec.text())
            self._worker.careful = self._guards is not None

    def _start_apart(self, first: AnySandbox) -> None:
        """Start the sandbox in namespaces of its own; where it cannot be, without.

        Raises:
            Unusable: the target cannot be loaded there either.
        """
        self._set_apart(namespaces.wanted())
        if first.apart:
            try:
                first.start()
                self._set_apart(first.apart)
                return
            except (LoadingTakesTooLong, NoProcess):
                raise
            except Unusable:
                self._set_apart(False)
        try:
            first.start()
        except (KilledLoading, LoadingTakesTooLong, NoProcess):  # which want of memory does not explain
            raise
        except Unusable as error:
            raise Unusable(f"{error}{self._for_want_of_memory()}") from None

    def _for_want_of_memory(self) -> str:
        """The limit of ours that stops the target from being loaded, as part of a sentence; or empty."""
        if self.elsewhere is not None or _much_memory() <= MEMORY_LIMIT:
            return ""
        try:
            self._freely.start()
        except Unusable:
            return ""
        finally:
            self._freely.close()
        return (
            "; it can be loaded where a process has more than the "
            f"{MEMORY_LIMIT >> 30} GiB of private memory (RLIMIT_DATA) that this suite allows"
        )

    def _set_apart(self, apart: bool) -> None:
        for one in self._sandboxes():
            one.apart = apart and one is not self._outside
        if not apart and self._outside:
            self._outside.close()
            self._outside = None

    def _check_apart(self, first: AnySandbox) -> None:
        """Leave the namespaces where the target is another in them: it says or answers something else.

        Inside first. A target that leaves shared memory, semaphores or message queues there is not tried
        outside: it would leave them to the machine.
        """
        outside, self._outside = self._outside, None
        if outside is None:
            return
        try:
            inside = _shown(first, self._codec)
            if not first.leaves and _shown(outside, self._codec) != inside:
                self._sandbox = outside
                self._set_apart(False)
        finally:
            (outside if self._sandbox is first else first).close()

    @property
    def namespaces(self) -> str:
        """``own``: those of `pytest_qnn.isolation.namespaces` are in force; ``shared``: none of them."""
        return "own" if self._sandbox is not None and self._sandbox.apart else "shared"

    def load(self, spec: WorkerSpec) -> None:
        """Have later children, of every kind, loaded with this specification; not where cases run here."""
        for sandbox in self._sandboxes():
            sandbox.load(spec)

    @property
    def mode(self) -> str:
        """``off``, ``fork`` or ``spawn``: what is really in use."""
        return self._sandbox.mode if self._sandbox else "off"

    def run(self, case: Any, *, guarded: bool = False) -> Any:
        """A trace, or the Death of the child."""
        ends = getattr(case, "ends", False)
        sandbox = self._sandbox_of(case, guarded=guarded)
        if sandbox is not None:
            return self._call(sandbox, case)
        try:
            return self._worker.run(msgspec.structs.replace(case, ends=False) if ends else case)
        except MayEndError:
            assert self._guards is not None
            return self._call(self._guards, case)

    def _sandbox_of(self, case: Any, *, guarded: bool = False) -> AnySandbox | None:
        """Where the case is carried out; None: here."""
        ends = getattr(case, "ends", False)
        sandbox = self._guards if (guarded or ends) and self._guards else self._sandbox
        return (self._exact or sandbox) if self._codec.measures(case) else sandbox

    def ahead(self, case: Any) -> None:
        """Where cases are carried out on another machine, send one for which `run` will be called."""
        if self.elsewhere is None:
            return
        from pytest_qnn.isolation.remote.sandbox import RemoteSandbox

        sandbox = self._sandbox_of(case)
        if isinstance(sandbox, RemoteSandbox) and sandbox not in self._lost:
            codec = self._codec
            sandbox.ahead(codec.request_of(case), codec.cycles(case))

    def forget_ahead(self) -> None:
        """`run` will not be called for what was sent ahead and not asked for."""
        if self.elsewhere is None:
            return
        from pytest_qnn.isolation.remote.sandbox import RemoteSandbox

        for sandbox in self._sandboxes():
            if isinstance(sandbox, RemoteSandbox):
                sandbox.forget_ahead()

    def bears_company(self, case: Any) -> bool:
        """Whether the case neither measures nor ends its process."""
        return bears_company(self._codec, case)

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        """For each case a trace or the Death of the child, and whether the case was the first of its child.

        The cases, which bear company, are carried out in children one after another; after a death, the rest
        in another child.
        """
        assert self._sandbox is not None
        codec = self._codec
        requests, cycles = list(map(codec.request_of, cases)), list(map(codec.cycles, cases))
        answers = iter(self._sandbox.call_all(requests, cycles))
        for case in cases:
            answer: bytes | Death | None = self._death_of_loss(self._sandbox)
            first = True
            if answer is None:
                try:
                    answer, first = next(answers)
                except NoProcess as error:
                    raise RunnerFailure(f"the runner itself failed: {error}") from None
                except Unusable as error:
                    answer = self._lose(self._sandbox, error)
            trace = self._trace(case, answer)
            del answer  # each may be large: neither is held longer than it is needed
            yield trace, first
            del trace

    def run_apart(self, case: Any) -> Any:
        """A trace from another process than this one, or its Death.

        A fork of a process that has only loaded the target, where there is one for cases that may end their
        process: it costs a tenth of a fresh interpreter.
        """
        return self._call(self._guards, case) if self._guards else self.run_fresh(case)

    def run_fresh(self, case: Any) -> Any:
        """A trace from a process that has carried out nothing else, or that process's Death."""
        return self._call(self._fresh_exact if self._codec.measures(case) else self._fresh, case)

    def _call(self, sandbox: AnySandbox, case: Any) -> Any:
        answer: bytes | Death | None = self._death_of_loss(sandbox)
        if answer is None:
            try:
                codec = self._codec
                answer = sandbox.call(codec.request_of(case), codec.cycles(case))
            except NoProcess as error:
                raise RunnerFailure(f"the runner itself failed: {error}") from None
            except Unusable as error:
                answer = self._lose(sandbox, error)
        return self._trace(case, answer)

    def _death_of_loss(self, sandbox: AnySandbox) -> Death | None:
        """The one death of a target that could not be loaded before: it is not tried again. None: it was.

        Raises:
            TargetLost: somebody has had that death.
        """
        reason = self._lost.get(sandbox)
        if reason is None:
            return None
        if self.loss_is_told:
            raise TargetLost(reason)
        self.loss_is_told = True
        return Death("garbage", reason, lost=True)

    def _lose(self, sandbox: AnySandbox, error: Unusable) -> Death | None:
        """Remember that the target cannot be loaded any more; as `_death_of_loss`."""
        after = f" after {sandbox.last_call}" if sandbox.last_call else ""
        self._lost[sandbox] = f"the target cannot be loaded any more{after}: {error}"
        return self._death_of_loss(sandbox)

    def _trace(self, case: Any, answer: bytes | Death | None) -> Any:
        assert answer is not None
        if isinstance(answer, Death):
            return answer
        try:
            trace = self._codec.trace_of(case, answer)
        except TooManyItemsError as error:
            return Death("large", f"the trace is more than can be judged: {error}")
        except msgspec.DecodeError as error:
            return Death("garbage", f"the process left a trace that is none: {error}")
        return msgspec.structs.replace(trace, ended=True) if getattr(case, "ends", False) else trace

    def learn(self, kind: type[Any]) -> Any:
        """The target's facts: as many as it can be asked for without dying.

        A target that dies while it is asked is still judged: the rules then show what kills it.
        """
        if self._sandbox is None:
            return self._worker.facts()
        self._check_apart(self._sandbox)
        deaths: list[str] = []
        detail = ""
        for depth, request in DEPTHS.items():
            answer = self._sandbox.call(request)
            found = self._decoded(answer, kind)
            if not isinstance(found, Death):
                return msgspec.structs.replace(found, deaths=tuple(deaths))
            detail = found.text
            deaths.append(f"{depth}: {detail}")
        raise Unusable(f"{detail} while it was loaded")

    def ask(self, request: bytes, kind: Any) -> Any:
        """The answer, of type ``kind``, to a request that is no case; or the Death of the child."""
        if self._sandbox is None:
            answer: bytes | Death = self._worker.handle(request, lambda _: None)
        else:
            answer = self._sandbox.call(request)
        return self._decoded(answer, kind)

    @staticmethod
    def _decoded(answer: bytes | Death, kind: Any) -> Any:
        """The answer as ``kind``; a Death where there is none."""
        if isinstance(answer, Death):
            return answer
        try:
            return decoded(msgspec.msgpack.Decoder(kind), answer)
        except msgspec.DecodeError as error:
            return Death("garbage", f"the process left an answer that is none: {error}")

    def now(self) -> float:
        """Seconds of the clock."""
        return time.monotonic()

    def close(self) -> None:
        """End the children."""
        for sandbox in self._sandboxes():
            sandbox.close()
        if self.elsewhere is not None:
            self.elsewhere.close()

    def _sandboxes(self) -> list[AnySandbox]:
        """All that there are, started or not."""
        every = (self._fresh, self._fresh_exact, self._guards, self._exact, self._sandbox, self._outside)
        return [sandbox for sandbox in every if sandbox is not None]


def _connected(on: str) -> Connection | None:
    """The connection to the machine of ``--qnn-on``; None: this one. What it takes is imported for it only.

    Raises:
        Unusable: it cannot be made.
    """
    if on == HERE:
        return None
    from pytest_qnn.isolation.remote.connection import Connection

    return Connection(on)


def _much_memory() -> int:
    """Bytes that a process may take without harm to the machine: half of what is free; 0: nobody says."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as lines:
        return next((int(line.split()[1]) << 9 for line in lines if line.startswith("MemAvailable:")), 0)
    return 0


def _shown(sandbox: AnySandbox, codec: Codec) -> tuple[bytes, bool]:
    """What a target tells of itself, nothing where it dies of it, and whether it survives its plain case.

    Not how it dies: in namespaces, what it does to other processes has other consequences.

    Raises:
        Unusable: it cannot be loaded.
    """
    answer = sandbox.call(DEPTHS["all"])
    plain = codec.request_of(codec.plain), codec.cycles(codec.plain)
    survives = not isinstance(sandbox.call(*plain), Death)
    return b"" if isinstance(answer, Death) else answer, survives
