"""From specification strings to targets, in this process or in children."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.measuring import measures
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.plugin import PluginCase
from pytest_qnn.cases.reduce import revealing, smaller
from pytest_qnn.cases.script import ScriptCase, aligned, needs_child, without_edges, without_guards
from pytest_qnn.core.rule import Subject
from pytest_qnn.facts import LIMITS, Choice, DelegateFacts, MemoryFacts, Sample
from pytest_qnn.forms import DELEGATES, PROXY_MUTANT, QNN_DELEGATE, unwrapped
from pytest_qnn.isolation.sandbox import RunnerFailure, Sandbox
from pytest_qnn.isolation.worker import DEPTHS, Unusable, WorkerSpec, make_worker
from pytest_qnn.mutants import Mutant
from pytest_qnn.mutants import table as mutants
from pytest_qnn.mutants.proxies import proxy_table
from pytest_qnn.run.delegate_learn import Question, learn_claims
from pytest_qnn.run.kinds import KINDS, request_of, trace_of
from pytest_qnn.run.memory_choices import choices
from pytest_qnn.run.memory_processes import run_in_processes, several_processes
from pytest_qnn.run.specs import LEARN_LIMITS, LEARN_SAMPLES, PROBE, DelegateSpec, MemorySpec
from pytest_qnn.trace import Death, DelegateTrace, MemoryTrace, ScriptTrace


class TargetUnusable(Exception):  # noqa: N818 - a finding about what was named, not an error of ours
    """The target named by the user cannot be used; the text is one clear sentence."""


class _Target:
    """What both kinds of target share: where cases run, and what was learned."""

    subject: Subject

    def __init__(self, spec: str, options: tuple[str, ...], executor: _Executor) -> None:
        self.spec = spec
        self.options = options
        self._executor = executor
        self.isolated = executor.isolated
        try:
            self.facts: Any = self._learn()
        except BaseException:
            executor.close()
            raise

    def _learn(self) -> Any:
        raise TypeError("each kind of target learns its own facts")

    def unfit(self, case: Any) -> str:  # noqa: ARG002 - the signature is Target's
        """Empty: any case can be tried."""
        return ""

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:
        """See `pytest_qnn.cases.reduce`."""
        return smaller(case, deadly=deadly)

    def revealing(self, case: Any) -> Iterator[Any]:
        """See `pytest_qnn.cases.reduce`."""
        return revealing(case)

    def close(self) -> None:
        """End child processes and free what the target holds."""
        self._executor.close()


class MemoryTarget(_Target):
    """A QNN backend with an rpcmem."""

    subject: Subject = "memory"

    def run(self, case: MemoryCase) -> MemoryTrace:
        """Carry out the case; how a child died is in the trace."""
        if several_processes(case):
            later = self._executor.run if self.isolated else self._executor.run_fresh
            return self._seen(run_in_processes(case, self._executor.run, later))
        return self._seen(self._executor.run(case))

    def run_fresh(self, case: MemoryCase) -> MemoryTrace:
        """The same in processes of its own."""
        if several_processes(case):
            return self._seen(run_in_processes(case, self._executor.run_fresh, self._executor.run_fresh))
        return self._seen(self._executor.run_fresh(case))

    def _seen(self, answer: Any) -> MemoryTrace:
        if isinstance(answer, Death):
            return MemoryTrace(death=answer, facts=self.facts)
        trace: MemoryTrace = msgspec.structs.replace(answer, facts=self.facts)
        return trace

    def choices(self) -> tuple[Choice, ...]:
        """What the backend does where the documents are silent; a few dozen short cases.

        Nothing, of a library that is in this process: it might end it.
        """
        foreign = any(_is_path(option.partition("=")[2]) for option in self.options)
        if foreign and not self.isolated:
            return ()
        try:
            return choices(self.facts, self.run)
        except (Unusable, RunnerFailure):
            return ()  # The rules meet the same, and say so.

    def provenance(self) -> dict[str, str]:
        """Provider, versions, and the digest of a library."""
        facts: MemoryFacts = self.facts
        found = {
            "provider": facts.provider,
            "backend_id": str(facts.backend_id),
            "core_api": ".".join(map(str, facts.core_version)),
            "backend_api": ".".join(map(str, facts.backend_version)),
            "rpcmem": facts.rpcmem,
            "isolation": self._executor.mode,
        }
        return found | _digest("library", self.spec)

    def _learn(self) -> MemoryFacts:
        facts: MemoryFacts = self._executor.learn(MemoryFacts)
        return facts


class DelegateTarget(_Target):
    """A delegate, or a chain of them, on one runtime."""

    subject: Subject = "delegate"

    def __init__(
        self,
        spec: str,
        options: tuple[str, ...],
        executor: _Executor,
        distort: Mapping[type[Any], Callable[[Any], Any]] | None = None,
    ) -> None:
        """``distort``: by type of trace, what a mutant of the runtime does to it."""
        super().__init__(spec, options, executor)
        self._distort = distort or {}

    def run(self, case: Any) -> Any:
        """Carry out the case, of any kind that concerns delegates; how a child died is in the trace."""
        guarded = isinstance(case, ScriptCase) and needs_child(case)
        answer = self._executor.run(case, guarded=guarded)
        if isinstance(answer, Death):
            if guarded and self._misaligned(case):
                return ScriptTrace(misaligned=True, facts=self.facts)
            if isinstance(case, ScriptCase) and self._lost_the_order(case):
                return ScriptTrace(order_lost=True, facts=self.facts)
        elif isinstance(case, DelegateCase) and case.again == "process":
            fresh = self._executor.run_fresh(case)
            died = isinstance(fresh, Death)
            answer = fresh if died else msgspec.structs.replace(answer, again=fresh.outputs)
        return self._seen(case, answer)

    def run_fresh(self, case: Any) -> Any:
        """The same in a process of its own."""
        return self._seen(case, self._executor.run_fresh(case))

    def _seen(self, case: Any, answer: Any) -> Any:
        if isinstance(answer, Death):
            return KINDS[type(case)].trace(death=answer, facts=self.facts)
        trace = msgspec.structs.replace(answer, facts=self.facts)
        distort = self._distort.get(type(trace))
        return distort(trace) if distort else trace

    def _lost_the_order(self, case: ScriptCase) -> bool:
        """Whether it was the runtime that ended the process, by RT-05 (docs/runtimes.md).

        Control edges are places in the plan, and the runtime goes on using them after a delegate's first
        Replace has shortened it. Whether there was a second one is seen without the edges.
        """
        bare = without_edges(case)
        if bare is case:
            return False
        answer = self._executor.run(bare)
        return not isinstance(answer, Death) and any(
            len(applied.claims()) > 1 for seen in answer.interpreters for applied in seen.applied
        )

    def unfit(self, case: Any) -> str:
        """A plugin that makes no delegate is judged by its interface alone."""
        facts: DelegateFacts = self.facts
        return "" if isinstance(case, PluginCase) else facts.unusable

    def _misaligned(self, case: ScriptCase) -> bool:
        """Whether the case ends the process without guard pages too, and does not with aligned buffers.

        A client that passes SkipAlignCheck is warned that it may crash (tflite/core/interpreter.h).
        """
        bare = without_guards(case)
        return bare != case and (
            isinstance(self._executor.run(bare, guarded=True), Death)
            and not isinstance(self._executor.run(aligned(bare), guarded=True), Death)
        )

    def provenance(self) -> dict[str, str]:
        """Runtime, versions, and the digest of each plugin."""
        facts: DelegateFacts = self.facts
        found = {
            "runtime": facts.runtime,
            "runtime_version": facts.runtime_version,
            "observed": str(facts.observed).lower(),
            "isolation": self._executor.mode,
        }
        for position, name in enumerate(facts.delegates):
            found |= _digest(f"delegate_{position}", name)
        return found

    def _learn(self) -> DelegateFacts:
        """What the chain is, and what it claims; one that dies of being made is not asked for more."""
        facts: DelegateFacts = self._executor.learn(DelegateFacts)
        if facts.deaths or facts.unusable:
            return facts
        limits = self._executor.ask(LEARN_LIMITS, dict[str, str])
        if isinstance(limits, Death):
            limits = dict.fromkeys(LIMITS, f"{limits.detail} while it was asked for its options")
        lesson = learn_claims(self._probe)
        samples = () if lesson.deaths else self._executor.ask(LEARN_SAMPLES, tuple[Sample, ...])
        return msgspec.structs.replace(
            facts,
            claims=lesson.claims,
            least_nodes=lesson.least_nodes,
            deaths=facts.deaths + lesson.deaths,
            limits=limits,
            samples=() if isinstance(samples, Death) else samples,
        )

    def _probe(self, question: Question) -> Sequence[str] | Death:
        answer: Sequence[str] | Death
        answer = self._executor.ask(PROBE + msgspec.msgpack.encode(question), tuple[str, ...])
        return answer


class _Executor:
    """Carries cases out: here (mode ``off``) or in children.

    Cases that measure memory run in children of their own, whose malloc counts exactly (`Sandbox`).
    """

    def __init__(self, spec: WorkerSpec, mode: str, timeout: float, *, guards: bool = False) -> None:
        """``guards``: even in mode ``off``, cases run in a child that may end their process or measure it."""
        self._guards = Sandbox(spec, "fork", timeout) if guards and mode == "off" else None
        """Not started before a case asks for it."""
        self._fresh = Sandbox(spec, "spawn", timeout)
        """Not started before a case asks for a process of its own."""
        self._fresh_exact = Sandbox(spec, "spawn", timeout, exact=True)
        """The same for a case that measures memory."""
        self._exact: Sandbox | None = None
        """Not started before a case measures memory."""
        if guards or mode != "off":
            self._exact = Sandbox(spec, "fork" if mode == "off" else mode, timeout, exact=True)
        self._sandbox: Sandbox | None = None
        self.isolated = mode != "off"
        if self.isolated:
            self._sandbox = Sandbox(spec, mode, timeout)
            self._sandbox.start()
        else:
            self._worker = make_worker(spec.text())

    @property
    def mode(self) -> str:
        """``off``, ``fork`` or ``spawn``: what is really in use."""
        return self._sandbox.mode if self._sandbox else "off"

    def run(self, case: Any, *, guarded: bool = False) -> Any:
        """A trace, or the Death of the child."""
        ends = getattr(case, "ends", False)
        sandbox = self._guards if (guarded or ends) and self._guards else self._sandbox
        if measures(case):
            sandbox = self._exact or sandbox
        if sandbox is None:
            return self._worker.run(msgspec.structs.replace(case, ends=False) if ends else case)
        return self._call(sandbox, case)

    def run_fresh(self, case: Any) -> Any:
        """A trace from a process that has carried out nothing else, or that process's Death."""
        return self._call(self._fresh_exact if measures(case) else self._fresh, case)

    def _call(self, sandbox: Sandbox, case: Any) -> Any:
        answer = sandbox.call(request_of(case))
        if isinstance(answer, Death):
            return answer
        try:
            trace = trace_of(case, answer)
        except msgspec.DecodeError as error:
            return Death("garbage", f"the process left a trace that is none: {error}")
        return msgspec.structs.replace(trace, ended=True) if getattr(case, "ends", False) else trace

    def learn(self, kind: type[Any]) -> Any:
        """The target's facts: as many as it survives being asked for.

        A target that dies while it is asked is still judged: its rules then say what kills it.
        """
        if self._sandbox is None:
            return self._worker.facts()
        deaths: list[str] = []
        detail = ""
        for depth, request in DEPTHS.items():
            answer = self._sandbox.call(request)
            if not isinstance(answer, Death):
                facts = msgspec.msgpack.decode(answer, type=kind)
                return msgspec.structs.replace(facts, deaths=tuple(deaths))
            detail = answer.detail
            deaths.append(f"{depth}: {detail}")
        raise Unusable(f"{detail} while it was loaded")

    def ask(self, request: bytes, kind: Any) -> Any:
        """The answer, of type ``kind``, to a request that is no case; or the Death of the child."""
        if self._sandbox is None:
            answer: bytes | Death = self._worker.handle(request, lambda _: None)
        else:
            answer = self._sandbox.call(request)
        if isinstance(answer, Death):
            return answer
        try:
            return msgspec.msgpack.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            return Death("garbage", f"the process left an answer that is none: {error}")

    def close(self) -> None:
        """End the children."""
        for sandbox in (self._fresh, self._fresh_exact, self._guards, self._exact, self._sandbox):
            if sandbox is not None:
                sandbox.close()


def open_memory_target(backend: str, rpcmem: str, sandbox: str, timeout: float) -> MemoryTarget:
    """Open a QNN backend.

    It is ``reference``, ``reference:PERSONALITY``, ``mutant:NAME``, or a library's path, which ``proxy:`` or
    ``proxy-mutant:NAME:`` may precede.

    Raises:
        TargetUnusable: with one sentence for the user.
    """
    backend, rpcmem = _resolved(backend), _resolved(rpcmem)
    _mutant("--qnn-backend", backend, "memory")
    foreign = _is_path(backend) or _is_path(rpcmem)
    spec = MemorySpec(backend, rpcmem)
    options = (f"--qnn-backend={backend}", f"--qnn-rpcmem={rpcmem}")
    try:
        executor = _Executor(spec, _mode(sandbox, foreign=foreign), timeout, guards=sandbox == "auto")
        return MemoryTarget(backend, options, executor)
    except Unusable as error:
        raise TargetUnusable(_sentence("--qnn-backend", backend, error)) from None


def open_delegate_target(
    delegates: Sequence[tuple[str, Mapping[str, str]]], runtime: str, sandbox: str, timeout: float
) -> DelegateTarget:
    """Open a chain of delegates in order of precedence.

    Each is ``reference``, ``xnnpack``, ``mutant:NAME`` or the path of an external delegate plugin.

    Raises:
        TargetUnusable: with one sentence for the user.
    """
    chain = tuple((_resolved(name), _resolved_backend(name, options)) for name, options in delegates)
    found = [_mutant("--tflite-delegate", name, "delegate") for name, _ in chain]
    distort: dict[type[Any], Callable[[Any], Any]] = {}
    for mutant in filter(None, found):
        both = {DelegateTrace: mutant.distort, ScriptTrace: mutant.distort_script}
        distort |= {kind: change for kind, change in both.items() if change}
    spec = DelegateSpec(chain, runtime)
    name = " + ".join(name for name, _ in chain)
    mode = _mode(sandbox, foreign=any(_is_path(library) for library in _libraries(chain)))
    try:
        executor = _Executor(spec, mode, timeout, guards=sandbox == "auto")
        return DelegateTarget(name, _chain_options(chain, runtime), executor, distort)
    except Unusable as error:
        raise TargetUnusable(_sentence("--tflite-delegate", name, error)) from None


def _chain_options(chain: tuple[tuple[str, dict[str, str]], ...], runtime: str) -> tuple[str, ...]:
    words = [f"--tflite-runtime={runtime}"]
    for name, options in chain:
        words.append(f"--tflite-delegate={name}")
        words += [f"--tflite-delegate-option={key}={value}" for key, value in options.items()]
    return tuple(words)


def _resolved_backend(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Options of a delegate; the QNN backend under the reference of the QNN delegate is a target, too."""
    made = dict(options)
    if name == QNN_DELEGATE and "backend" in made:
        made["backend"] = _resolved(made["backend"])
    return made


def _libraries(chain: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Specifications of everything that the chain loads."""
    for name, options in chain:
        yield name
        if name == QNN_DELEGATE:
            yield options.get("backend", "reference")


def _mode(sandbox: str, *, foreign: bool) -> str:
    if sandbox == "auto":
        return "fork" if foreign else "off"
    return sandbox


def _is_path(spec: str) -> bool:
    builtin = spec in (*DELEGATES, "emulated")
    return not builtin and not spec.startswith(("reference:", "mutant:"))


def _resolved(spec: str) -> str:
    """A path made absolute (children run in folders of their own); other specifications as they are."""
    proxy, path = unwrapped(spec)
    return f"{proxy}{Path(path).resolve()}" if _is_path(spec) else spec


def _sentence(flag: str, name: str, error: Unusable) -> str:
    """One sentence that names the option and, once, what was given to it."""
    text = str(error)
    if text.startswith("--"):
        return text
    return f"{flag}: {text}" if name in text else f"{flag}: {name}: {text}"


def _mutant(flag: str, spec: str, subject: Subject) -> Mutant | None:
    if spec.startswith(PROXY_MUTANT):
        name = unwrapped(spec)[0].removeprefix(PROXY_MUTANT).rstrip(":")
        mutant = proxy_table().get(name)
    elif spec.startswith("mutant:"):
        mutant = mutants().get(spec.removeprefix("mutant:"))
    else:
        return None
    if mutant is None or mutant.subject != subject:
        raise TargetUnusable(f"{flag}: {spec}: there is no {subject} mutant of this name")
    return mutant


def _digest(key: str, spec: str) -> dict[str, str]:
    if not _is_path(spec):
        return {}
    path = unwrapped(spec)[1]
    return {key: path, f"{key}_sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
