"""A QNN backend as a target, opened from its specification."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from pytest_qnn.core.evidence import Call
from pytest_qnn.core.forms import HERE, PROXY_MUTANT, unwrapped
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Control, Death, TargetLost
from pytest_qnn.isolation.codec import Codec, Kind
from pytest_qnn.isolation.executor import Executing, Executor, MakeExecutor
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.target import (
    OpenTarget,
    TargetUnusable,
    is_path,
    on_option,
    resolved,
    sandbox_mode,
    sentence,
)
from pytest_qnn.isolation.worker import Unusable
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    CheckHeap,
    Churn,
    Executes,
    FailedAllocation,
    MemoryCase,
    WholeSession,
)
from pytest_qnn.qnn.cases.join import joined
from pytest_qnn.qnn.cases.plain import PLAIN, cycles
from pytest_qnn.qnn.cases.reduce import one_call, smaller_memory
from pytest_qnn.qnn.controls.calls import around, controls
from pytest_qnn.qnn.controls.refusals import around_call, of_refusals, refuses
from pytest_qnn.qnn.controls.rounds import around_executes, of_executes
from pytest_qnn.qnn.facts import Choice, MemoryFacts, memory_types
from pytest_qnn.qnn.model.codes import denied, named
from pytest_qnn.qnn.mutants import named as mutant_named
from pytest_qnn.qnn.proxies import proxy_table
from pytest_qnn.qnn.runner.choices import choices
from pytest_qnn.qnn.runner.processes import is_killed, run_in_processes, several_processes
from pytest_qnn.qnn.runner.sources import MemorySpec
from pytest_qnn.qnn.runner.standing import PRICE, is_worth
from pytest_qnn.qnn.trace import MemoryTrace


def _measures(case: MemoryCase) -> bool:
    return any(
        isinstance(step, Churn | Executes | WholeSession)
        or (isinstance(step, FailedAllocation) and step.rounds > 0)
        for step in case.steps
    )


def _is_first(case: MemoryCase) -> bool:
    """No session may have been in its process before."""
    return any(isinstance(step, WholeSession) and step.first for step in case.steps)


def _checks_heap(case: MemoryCase) -> bool:
    """The process has another heap behind such a case."""
    return any(isinstance(step, CheckHeap) for step in case.steps)


CODEC: Final = Codec(
    (Kind(MemoryCase, MemoryTrace),), _measures, cycles, PLAIN, "pytest_qnn.qnn.model.contents"
)


class MemoryTarget(OpenTarget):
    """A QNN backend with an rpcmem."""

    subject: Subject = "memory"

    def __init__(self, source: MemorySpec, options: tuple[str, ...], executor: Executing) -> None:
        self._source = source
        self._refused: tuple[tuple[str, int], ...] = ()
        """How a session is refused, where none opens (docs/explanation/decisions/qnn/no-session.md)."""
        self._stands = False
        """A session stays open beside later cases (docs/explanation/decisions/qnn/standing-session.md)."""
        super().__init__(source.backend, options, executor)

    def run(self, case: MemoryCase) -> MemoryTrace:
        """Carry out the case; how a child died is in the trace."""
        later = self._executor.run if self.isolated else self._executor.run_apart
        first = later if is_killed(case) or _is_first(case) else self._executor.run
        if several_processes(case):
            return self._seen(case, run_in_processes(case, first, later))
        return self._seen(case, first(case))

    def joined(self, cases: Sequence[MemoryCase]) -> MemoryCase | None:
        """See `pytest_qnn.qnn.cases.join`."""
        return joined(cases)

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:
        """See `pytest_qnn.qnn.cases.reduce`."""
        return smaller_memory(case, deadly=deadly)

    def alone(self, case: MemoryCase, step: int) -> MemoryCase | None:
        """See `pytest_qnn.qnn.cases.reduce`."""
        return one_call(case, step)

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
        """See `pytest_qnn.qnn.controls.calls`; of what is refused, `refusals` and `rounds` beside it."""
        types = memory_types(self.facts)
        return of_executes(of_refusals(controls(case, types, died=died), case, died=died), case, types)

    def around(self, facts: Any, case: Any, call: str = "") -> MemoryFacts:
        """See `pytest_qnn.qnn.controls.calls`; of what is refused, `refusals` and `rounds` beside it."""
        known = around_executes(facts, case)
        return known if known is not facts else around(around_call(facts, case, call), case)

    def run_fresh(self, case: MemoryCase) -> MemoryTrace:
        """The same in processes of its own."""
        if several_processes(case):
            return self._seen(
                case, run_in_processes(case, self._executor.run_fresh, self._executor.run_fresh)
            )
        return self._seen(case, self._executor.run_fresh(case))

    def _bears_company(self, case: MemoryCase) -> bool:
        """Nor a case with refused requests: what they damage would be seen in the cases behind it, too."""
        apart = several_processes(case) or is_killed(case) or refuses(case) or _checks_heap(case)
        return super()._bears_company(case) and not apart

    def _goes_ahead(self, case: MemoryCase) -> bool:
        return not (several_processes(case) or is_killed(case))

    def _seen(self, case: MemoryCase, answer: Any) -> MemoryTrace:
        if isinstance(answer, Death):
            return MemoryTrace(death=described(case, answer), facts=self.facts)
        if answer.death is not None:
            answer = msgspec.structs.replace(answer, death=described(case, answer.death))
        trace: MemoryTrace = msgspec.structs.replace(answer, facts=self.facts)
        return trace

    def missing(self, trace: MemoryTrace) -> str:
        """A function that a step needs and that is NULL.

        It is legal where the function's feature is not supported, and where it is, IF-05 says so.
        """
        function = next((seen.absent for seen in trace.steps if seen.absent), "")
        return f"{function} is NULL in the interface table" if function else ""

    def denies(self, gate: Sequence[str]) -> str:
        """The first of the gate's property keys that is answered with "not supported", with that answer."""
        return denied(map(int, filter(str.isdecimal, gate)), self.facts.capabilities)

    def foreseen(self, case: MemoryCase) -> MemoryTrace | None:  # noqa: ARG002 - every case opens alike
        """Where no session opens: how it was refused, and no step."""
        if not self._refused:
            return None
        return MemoryTrace(session=self._refused, facts=self.facts)

    def choices(self) -> tuple[Choice, ...]:
        """What the backend does where the documents are silent; a few dozen short cases.

        Nothing, of a library that is in this process: it might end it.
        """
        foreign = any(is_path(option.partition("=")[2]) for option in self.options)
        if foreign and not self.isolated:
            return ()
        try:
            return choices(self.facts, self.run)
        except (Unusable, RunnerFailure, TargetLost):
            return ()  # The rules meet the same, and say so.
        except Exception:
            if not self.isolated:
                raise
            return ()  # answers of processes that the backend shares may be anything
        finally:
            self._executor.loss_is_told = False

    def asked(self) -> dict[str, Any]:
        """Under ``choices``, a list of {point, question, answer, code}; empty where nothing was asked."""
        found = [msgspec.to_builtins(choice) for choice in self.choices()]
        return {"choices": found} if found else {}

    def learned(self) -> dict[str, Any]:
        """``capabilities``: operators with their types, and property keys that are supported."""
        facts: MemoryFacts = self.facts
        operators = sorted(f"{op} {dtype}" for op, dtype in facts.operators)
        keys = sorted(key for key, code in facts.capabilities.items() if not code)
        return {"capabilities": {"operators": operators, "keys": keys}}

    def provenance(self) -> dict[str, str]:
        """Provider, versions, and the digest of a library."""
        return self.observed() | self._place() | self._digest("library", self.spec)

    def observed(self) -> dict[str, str]:
        """Provider and versions."""
        facts: MemoryFacts = self.facts
        return {
            "provider": facts.provider,
            "backend_id": str(facts.backend_id),
            "core_api": ".".join(map(str, facts.core_version)),
            "backend_api": ".".join(map(str, facts.backend_version)),
            "rpcmem": facts.rpcmem,
            "isolation": self._executor.mode,
            "namespaces": self._executor.namespaces,
            **({"sessions": "one stays open beside the later cases of a process"} if self._stands else {}),
        }

    def _learn(self) -> MemoryFacts:
        facts: MemoryFacts = self._executor.learn(MemoryFacts)
        if self.isolated and facts.session_failure is not None:
            again: MemoryFacts = self._executor.learn(MemoryFacts)
            if again.session == facts.session:
                self._refused = facts.session
                self._executor.load(msgspec.structs.replace(self._source, refused=facts.session))
        elif self._may_stand(facts):
            price = self._executor.ask(PRICE, tuple[float, float])
            if not isinstance(price, Death) and is_worth(*price):
                self._stands = True
                self._executor.load(msgspec.structs.replace(self._source, stands=True))
        return facts

    def _may_stand(self, facts: MemoryFacts) -> bool:
        """Cases share processes; the target has graphs, and has survived them."""
        return self.isolated and bool(facts.operators) and not facts.deaths


def described(case: MemoryCase, death: Death) -> Death:
    """The death with its step, and the results of its calls, in words."""
    place = ""
    if 0 <= death.step <= len(case.steps):
        over = death.step == len(case.steps)
        words = "giving back what the case has left" if over else _words(case.steps[death.step])
        place = f"step {death.step} ({words})"
    calls = (msgspec.structs.replace(call, result=_result(call)) for call in death.evidence.calls)
    evidence = msgspec.structs.replace(death.evidence, calls=tuple(calls))
    return msgspec.structs.replace(death, place=place, evidence=evidence)


_MOST_SHOWN = 200
"""Characters of a step's values."""


def _words(step: AnyStep) -> str:
    """A step with its values, as a case file has them: what was special about a call that did not return."""
    values = {name: value for name, value in msgspec.to_builtins(step).items() if name != "do"}
    text = msgspec.json.encode(values).decode()
    shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return f"{type(step).__name__} {shown}" if values else type(step).__name__


def _result(call: Call) -> str:
    if call.status is None or call.name == "rpcmem_free":
        return ""
    if call.name.startswith("rpcmem_alloc"):
        return "memory" if call.status else "NULL"
    if call.name.startswith("rpcmem_"):
        return "a descriptor" if call.status < 1 << 31 else "-1"
    return "0 QNN_SUCCESS" if call.status == 0 else named(call.status)


def open_memory_target(
    backend: str,
    rpcmem: str,
    sandbox: str,
    timeout: float,
    passed: Collection[str] = (),
    on: str = HERE,
    execute: MakeExecutor = Executor,
) -> MemoryTarget:
    """Open a QNN backend.

    It is ``reference``, ``reference:PERSONALITY``, ``mutant:NAME``, or a library's path, which ``proxy:`` or
    ``proxy-mutant:NAME:`` may precede. ``passed``: as for `Executor`. ``on``: the machine that runs
    cases, as in ``--qnn-on``. ``execute``: makes the executor.

    Raises:
        TargetUnusable: with one sentence for the user.
    """
    _check_mutant(backend)
    spec = worker_spec(backend, rpcmem, on)
    foreign = is_path(backend) or is_path(rpcmem) or on != HERE
    options = (*on_option(on), f"--qnn-backend={spec.backend}", f"--qnn-rpcmem={spec.rpcmem}")
    try:
        mode, guards = sandbox_mode(sandbox, foreign=foreign), sandbox == "auto"
        executor = execute(spec, CODEC, mode, timeout, guards=guards, passed=passed, on=on)
        return MemoryTarget(spec, options, executor)
    except Unusable as error:
        raise TargetUnusable(sentence("--qnn-backend", backend, error)) from None


def in_one_process(case: MemoryCase) -> bool:
    """No step of the case begins another process."""
    return not several_processes(case)


def worker_spec(backend: str, rpcmem: str, on: str = HERE) -> MemorySpec:
    """What a process needs that carries out cases on the backend."""
    return MemorySpec(resolved(backend, on), resolved(rpcmem, on))


def _check_mutant(spec: str) -> None:
    if spec.startswith(PROXY_MUTANT):
        known = unwrapped(spec)[0].removeprefix(PROXY_MUTANT).rstrip(":") in proxy_table()
    elif spec.startswith("mutant:"):
        known = mutant_named(spec.removeprefix("mutant:")) is not None
    else:
        return
    if not known:
        raise TargetUnusable(f"--qnn-backend: {spec}: there is no memory mutant of this name")
