"""From specification strings to targets, in this process or in children."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.facts import DelegateFacts, MemoryFacts
from pytest_qnn.mutants import Mutant
from pytest_qnn.mutants import table as mutants
from pytest_qnn.rules.rule import Subject
from pytest_qnn.run.sandbox import Sandbox
from pytest_qnn.run.worker import DEPTHS, AnySpec, DelegateSpec, MemorySpec, Unusable
from pytest_qnn.run.workers import make_worker
from pytest_qnn.trace import Death, DelegateTrace, MemoryTrace


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

    def close(self) -> None:
        """End child processes and free what the target holds."""
        self._executor.close()


class MemoryTarget(_Target):
    """A QNN backend with an rpcmem."""

    subject: Subject = "memory"

    def run(self, case: MemoryCase) -> MemoryTrace:
        """Carry out the case; how a child died is in the trace."""
        answer = self._executor.run(case)
        if isinstance(answer, Death):
            return MemoryTrace(death=answer, facts=self.facts)
        trace: MemoryTrace = msgspec.structs.replace(answer, facts=self.facts)
        return trace

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
        distort: Callable[[DelegateTrace], DelegateTrace] | None = None,
    ) -> None:
        super().__init__(spec, options, executor)
        self._distort = distort

    def run(self, case: DelegateCase) -> DelegateTrace:
        """Carry out the case; how a child died is in the trace."""
        answer = self._executor.run(case)
        if isinstance(answer, Death):
            return DelegateTrace(death=answer, facts=self.facts)
        trace: DelegateTrace = msgspec.structs.replace(answer, facts=self.facts)
        return self._distort(trace) if self._distort else trace

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
        facts: DelegateFacts = self._executor.learn(DelegateFacts)
        return facts


class _Executor:
    """Carries cases out: here (mode ``off``) or in children."""

    def __init__(self, spec: AnySpec, trace: type[Any], mode: str, timeout: float) -> None:
        self._decoder = msgspec.msgpack.Decoder(trace)
        self._sandbox: Sandbox | None = None
        self.isolated = mode != "off"
        if self.isolated:
            self._sandbox = Sandbox(spec, mode, timeout)
            self._sandbox.start()
        else:
            self._worker = make_worker(spec)

    @property
    def mode(self) -> str:
        """``off``, ``fork`` or ``spawn``: what is really in use."""
        return self._sandbox.mode if self._sandbox else "off"

    def run(self, case: Any) -> Any:
        """A trace, or the Death of the child."""
        if self._sandbox is None:
            return self._worker.run(case)
        answer = self._sandbox.call(msgspec.msgpack.encode(case))
        if isinstance(answer, Death):
            return answer
        try:
            return self._decoder.decode(answer)
        except msgspec.DecodeError as error:
            return Death("garbage", f"the process left a trace that is none: {error}")

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

    def close(self) -> None:
        """End the children."""
        if self._sandbox is not None:
            self._sandbox.close()


def open_memory_target(backend: str, rpcmem: str, sandbox: str, timeout: float) -> MemoryTarget:
    """Open a QNN backend: ``reference``, ``reference:PERSONALITY``, ``mutant:NAME`` or a library's path.

    Raises:
        TargetUnusable: with one sentence for the user.
    """
    if backend.startswith("proxy:"):
        raise TargetUnusable("--qnn-backend: proxy targets are not part of this version yet")
    backend, rpcmem = _resolved(backend), _resolved(rpcmem)
    _mutant("--qnn-backend", backend, "memory")
    foreign = _is_path(backend) or _is_path(rpcmem)
    spec = MemorySpec(backend, rpcmem)
    options = (f"--qnn-backend={backend}", f"--qnn-rpcmem={rpcmem}")
    try:
        executor = _Executor(spec, MemoryTrace, _mode(sandbox, foreign=foreign), timeout)
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
    chain = tuple((_resolved(name), dict(options)) for name, options in delegates)
    found = [_mutant("--tflite-delegate", name, "delegate") for name, _ in chain]
    distort = next((mutant.distort for mutant in found if mutant and mutant.distort), None)
    spec = DelegateSpec(chain, runtime)
    name = " + ".join(name for name, _ in chain)
    mode = _mode(sandbox, foreign=any(_is_path(name) for name, _ in chain))
    try:
        executor = _Executor(spec, DelegateTrace, mode, timeout)
        return DelegateTarget(name, _chain_options(chain, runtime), executor, distort)
    except Unusable as error:
        raise TargetUnusable(_sentence("--tflite-delegate", name, error)) from None


def _chain_options(chain: tuple[tuple[str, dict[str, str]], ...], runtime: str) -> tuple[str, ...]:
    words = [f"--tflite-runtime={runtime}"]
    for name, options in chain:
        words.append(f"--tflite-delegate={name}")
        words += [f"--tflite-delegate-option={key}={value}" for key, value in options.items()]
    return tuple(words)


def _mode(sandbox: str, *, foreign: bool) -> str:
    if sandbox == "auto":
        return "fork" if foreign else "off"
    return sandbox


def _is_path(spec: str) -> bool:
    builtin = spec in ("reference", "xnnpack", "emulated")
    return not builtin and not spec.startswith(("reference:", "mutant:"))


def _resolved(spec: str) -> str:
    """A path made absolute (children run in folders of their own); other specifications as they are."""
    return str(Path(spec).resolve()) if _is_path(spec) else spec


def _sentence(flag: str, name: str, error: Unusable) -> str:
    """One sentence that names the option and, once, what was given to it."""
    text = str(error)
    if text.startswith("--"):
        return text
    return f"{flag}: {text}" if name in text else f"{flag}: {name}: {text}"


def _mutant(flag: str, spec: str, subject: Subject) -> Mutant | None:
    if not spec.startswith("mutant:"):
        return None
    mutant = mutants().get(spec.removeprefix("mutant:"))
    if mutant is None or mutant.subject != subject:
        raise TargetUnusable(f"{flag}: {spec}: there is no {subject} mutant of this name")
    return mutant


def _digest(key: str, spec: str) -> dict[str, str]:
    if not _is_path(spec):
        return {}
    return {key: spec, f"{key}_sha256": hashlib.sha256(Path(spec).read_bytes()).hexdigest()}
