"""A chain of delegates on one runtime as a target, opened from its specification."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from pytest_qnn.core.forms import HERE, QNN_DELEGATE
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import CoverageRow
from pytest_qnn.isolation.executor import Executing, Executor, MakeExecutor
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
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.facts import USUAL_OPTIONS, DelegateFacts, Precision, Sample
from pytest_qnn.tflite.learned import computed_in, learned
from pytest_qnn.tflite.mutants import SCRIPT_TRACE, TRACE
from pytest_qnn.tflite.mutants import named as mutant_named
from pytest_qnn.tflite.runner.learn import Question, learn_claims
from pytest_qnn.tflite.runner.plain import cycles
from pytest_qnn.tflite.runner.precision import half_in, precision_cases
from pytest_qnn.tflite.runner.spec import (
    CODEC,
    LEARN_LIMITS,
    LEARN_SAMPLES,
    LEARN_SECONDS,
    PROBE,
    DelegateSpec,
)
from pytest_qnn.tflite.target.cells import Cells
from pytest_qnn.tflite.target.graphs import Graphs
from pytest_qnn.tflite.trace import DelegateTrace, DomainTrace, ScriptTrace

_LOADING = "ABI-12"
"""The rule about libraries that the loader refuses."""
_HEAVY = 0.125
"""Seconds of a plain case from which on there are fewer of them. A usual one takes a hundredth."""


class _Kind(Protocol):
    """What a target does otherwise with cases of cells than with those of graphs; see `OpenTarget`."""

    def run(self, case: Any) -> Any: ...

    def run_fresh(self, case: Any) -> Any: ...

    def bears_company(self, case: Any) -> bool: ...

    def smaller(self, case: Any) -> Iterator[Any]: ...

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]: ...

    def around(self, facts: DelegateFacts, case: Any) -> DelegateFacts: ...


class DelegateTarget(OpenTarget):
    """A delegate, or a chain of them, on one runtime."""

    subject: Subject = "delegate"
    owner_in_company = "RUN-01"
    """There is no case of several delegate cases."""

    def __init__(
        self,
        spec: str,
        options: tuple[str, ...],
        executor: Executing,
        distort: Mapping[type[Any], Callable[[Any], Any]] | None = None,
        precision: Precision = "float32",
        timeout: float = 10.0,
    ) -> None:
        """Open it.

        Args:
            spec: as on the command line.
            options: that select it again.
            executor: of its cases.
            distort: by type of trace, what a mutant of the runtime does to it.
            precision: declared.
            timeout: seconds for a case.
        """
        self._precision = precision
        self._timeout = timeout
        super().__init__(spec, options, executor)
        distort = distort or {}
        self._graphs = Graphs(executor, self.facts, distort)
        self._cells = Cells(executor, self.facts, distort.get(DomainTrace))

    def _kind(self, case: Any) -> _Kind:
        """Who carries out cases of this kind."""
        return self._cells if isinstance(case, DomainCase) else self._graphs

    def run(self, case: Any) -> Any:
        """Carry out the case, of any kind that concerns delegates; how a child died is in the trace."""
        return self._kind(case).run(case)

    def run_fresh(self, case: Any) -> Any:
        """The same in a process of its own."""
        return self._kind(case).run_fresh(case)

    def _bears_company(self, case: Any) -> bool:
        return super()._bears_company(case) and self._kind(case).bears_company(case)

    def _seen(self, case: Any, answer: Any) -> Any:
        """Cells bear no company: what ran with others has graphs."""
        return self._graphs.seen(case, answer)

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the signature is Target's
        """See `pytest_qnn.tflite.cases.reduce`; of cells those that were not as expected."""
        return self._kind(case).smaller(case)

    def revealing(self, case: Any) -> Iterator[Any]:
        """See `Graphs.revealing`."""
        return self._graphs.revealing(case)

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
        """See `pytest_qnn.tflite.controls`; of cells those of the graphs that strategies draw instead."""
        return self._kind(case).controls(case, died=died)

    def around(self, facts: Any, case: Any, call: str = "") -> DelegateFacts:  # noqa: ARG002 - nothing is learned of calls
        """See `pytest_qnn.tflite.controls`."""
        return self._kind(case).around(facts, case)

    def covered(self, *, whole: bool) -> tuple[CoverageRow, ...]:
        """What became of the input domain; ``whole``: what no case has carried out yet is carried out now."""
        return self._cells.covered(whole=whole)

    def unfit(self, case: Any) -> str:
        """A plugin that makes no delegate is judged by its interface alone; a heavy one by short cases."""
        facts: DelegateFacts = self.facts
        if facts.unusable:
            return "" if isinstance(case, PluginCase) else facts.unusable
        # Cells are shown side by side, but not in this process, which they may end.
        beside = isinstance(case, DomainCase) and self._executor.isolated
        lives = cycles(case) if facts.most_lives and not beside else 0
        if lives <= facts.most_lives:
            return ""
        return (
            f"a case of {lives} delegates takes too long where a plain one takes {facts.seconds:g} s: "
            f"they have at most {facts.most_lives}, by --qnn-timeout"
        )

    def refused(self, rules: Collection[str]) -> str:
        """A library that the loader refuses is judged by one rule; without it nothing would be judged."""
        facts: DelegateFacts = self.facts
        if not facts.unloadable or _LOADING in rules:
            return ""
        return (
            f"--tflite-delegate: {self.spec}: cannot be loaded as a library: {facts.unusable} "
            f"(only {_LOADING} judges such a library)"
        )

    def learned(self) -> dict[str, Any]:
        """See `pytest_qnn.tflite.learned`."""
        return learned(self.facts)

    def provenance(self) -> dict[str, str]:
        """Runtime, versions, and the digest of each plugin."""
        found = self.observed() | self._place()
        for position, name in enumerate(self.facts.delegates):
            found |= self._digest(f"delegate_{position}", name)
        return found

    def observed(self) -> dict[str, str]:
        """Runtime and versions."""
        facts: DelegateFacts = self.facts
        return {
            "runtime": facts.runtime,
            "runtime_version": facts.runtime_version,
            "observed": str(facts.observed).lower(),
            "isolation": self._executor.mode,
            "namespaces": self._executor.namespaces,
            "precision": computed_in(facts),
        }

    def _learn(self) -> DelegateFacts:
        """What the chain is, and what it claims; one that dies of being made is not asked for more."""
        facts: DelegateFacts = self._executor.learn(DelegateFacts)
        if facts.deaths or facts.unusable:
            return facts
        limits = self._executor.ask(LEARN_LIMITS, dict[str, str])
        if isinstance(limits, Death):
            limits = dict.fromkeys(USUAL_OPTIONS, f"{limits.text} while it was asked for its options")
        seconds = self._seconds()
        lesson = learn_claims(self._probe, self._executor.now, together=seconds > 0)
        samples = () if lesson.deaths else self._executor.ask(LEARN_SAMPLES, tuple[Sample, ...])
        learned = msgspec.structs.replace(
            facts,
            claims=lesson.claims,
            floor=lesson.floor,
            deaths=facts.deaths + lesson.deaths,
            limits=limits,
            seconds=seconds,
            most_lives=max(1, int(self._timeout / seconds)) if seconds else 0,
            samples=() if isinstance(samples, Death) else samples,
            precision=self._precision,
        )
        return learned if self._precision == "float16" else self._with_half(learned)

    def _seconds(self) -> float:
        """`DelegateFacts.seconds`; 0 where a plain graph ends the process, which others find."""
        answer: float | Death = self._executor.ask(LEARN_SECONDS, float)
        if isinstance(answer, Death) or answer < _HEAVY:
            return 0.0
        return float(2.0 ** math.floor(math.log2(answer)))

    def _with_half(self, facts: DelegateFacts) -> DelegateFacts:
        """What is known, and the operators that compute float32 in float16, by plain cases."""
        cases = precision_cases(facts)
        if self._executor.isolated:
            answers = [answer for answer, _ in self._executor.run_all(cases)]
        else:
            answers = [self._executor.run(case) for case in cases]
        seen = zip(cases, answers, strict=True)
        half = half_in((case, trace) for case, trace in seen if not isinstance(trace, Death))
        return msgspec.structs.replace(facts, half=half)

    def _probe(self, question: Question) -> Sequence[str] | Death:
        answer: Sequence[str] | Death
        answer = self._executor.ask(PROBE + msgspec.msgpack.encode(question), tuple[str, ...])
        return answer


def open_delegate_target(
    delegates: Sequence[tuple[str, Mapping[str, str]]],
    runtime: str,
    sandbox: str,
    timeout: float,
    precision: str | None = None,
    passed: Collection[str] = (),
    on: str = HERE,
    execute: MakeExecutor = Executor,
) -> DelegateTarget:
    """Open a chain of delegates in order of precedence.

    Each is ``reference``, ``xnnpack``, ``mutant:NAME`` or the path of an external delegate plugin.
    ``precision``: what is declared of float32 graphs; None: float32, or what a mutant is declared with.
    ``passed``: as for `Executor`. ``on``: the machine that runs cases, as in ``--qnn-on``. ``execute``: makes
    the executor.

    Raises:
        TargetUnusable: with one sentence for the user.
    """
    spec = worker_spec(delegates, runtime, on)
    chain = spec.delegates
    found = [_mutant(name) for name, _ in chain]
    distort: dict[type[Any], Callable[[Any], Any]] = {}
    for mutant in filter(None, found):
        both = {DelegateTrace: mutant.of(TRACE), ScriptTrace: mutant.of(SCRIPT_TRACE)}
        distort |= {kind: change for kind, change in both.items() if change}
    if precision is None:
        declared = [getattr(mutant.made, "PRECISION", "float32") for mutant in found if mutant]
        precision = "float16" if "float16" in declared else "float32"
    is_half = precision == "float16"
    name = " + ".join(name for name, _ in chain)
    foreign = on != HERE or any(is_path(library) for library in _libraries(chain))
    mode, guards = sandbox_mode(sandbox, foreign=foreign), sandbox == "auto"
    try:
        executor = execute(spec, CODEC, mode, timeout, guards=guards, passed=passed, on=on)
        return DelegateTarget(
            name,
            (*on_option(on), *_chain_options(chain, runtime, is_half=is_half)),
            executor,
            distort,
            "float16" if is_half else "float32",
            timeout,
        )
    except Unusable as error:
        raise TargetUnusable(sentence("--tflite-delegate", name, error)) from None


def worker_spec(
    delegates: Sequence[tuple[str, Mapping[str, str]]], runtime: str, on: str = HERE
) -> DelegateSpec:
    """What a process needs that carries out cases on the chain."""
    chain = tuple((resolved(name, on), _resolved_backend(name, options, on)) for name, options in delegates)
    return DelegateSpec(chain, runtime)


def _chain_options(
    chain: tuple[tuple[str, dict[str, str]], ...], runtime: str, *, is_half: bool
) -> tuple[str, ...]:
    words = [f"--tflite-runtime={runtime}"]
    words += ["--tflite-delegate-precision=float16"] if is_half else []
    for name, options in chain:
        words.append(f"--tflite-delegate={name}")
        words += [f"--tflite-delegate-option={key}={value}" for key, value in options.items()]
    return tuple(words)


def _resolved_backend(name: str, options: Mapping[str, str], on: str) -> dict[str, str]:
    """Options of a delegate; the QNN backend under the reference of the QNN delegate is a target, too."""
    made = dict(options)
    if name == QNN_DELEGATE and "backend" in made:
        made["backend"] = resolved(made["backend"], on)
    return made


def _libraries(chain: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Specifications of everything that the chain loads."""
    for name, options in chain:
        yield name
        if name == QNN_DELEGATE:
            yield options.get("backend", "reference")


def _mutant(spec: str) -> Mutant | None:
    if not spec.startswith("mutant:"):
        return None
    mutant = mutant_named(spec.removeprefix("mutant:"))
    if mutant is None:
        raise TargetUnusable(f"--tflite-delegate: {spec}: there is no delegate mutant of this name")
    return mutant
