"""A chain of delegates on one runtime as a target, opened from its specification."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.evidence import Call
from pytest_qnn.core.forms import HERE, QNN_DELEGATE
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import CoverageRow
from pytest_qnn.isolation.executor import Executing, Executor, MakeExecutor
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.target import (
    OpenTarget,
    TargetUnusable,
    digest,
    is_path,
    on_option,
    resolved,
    sandbox_mode,
    sentence,
)
from pytest_qnn.isolation.worker import Unusable
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.plugin import CREATE, PluginCase
from pytest_qnn.tflite.cases.reduce import smaller_delegate, smaller_plugin, smaller_script, with_more_outputs
from pytest_qnn.tflite.cases.script import (
    ScriptCase,
    aligned,
    flat,
    needs_child,
    without_edges,
    without_guards,
)
from pytest_qnn.tflite.controls import around, controls
from pytest_qnn.tflite.controls.cells import drawn
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.coverage import rows
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of
from pytest_qnn.tflite.facts import USUAL_OPTIONS, DelegateFacts, Precision, Sample
from pytest_qnn.tflite.learned import computed_in, learned
from pytest_qnn.tflite.mutants import SCRIPT_TRACE, TRACE
from pytest_qnn.tflite.mutants import named as mutant_named
from pytest_qnn.tflite.runner.learn import Question, learn_claims
from pytest_qnn.tflite.runner.precision import half_in, precision_cases
from pytest_qnn.tflite.runner.run import phase_name
from pytest_qnn.tflite.runner.spec import CODEC, LEARN_LIMITS, LEARN_SAMPLES, PROBE, DelegateSpec
from pytest_qnn.tflite.trace import CellSeen, DelegateTrace, DomainTrace, ScriptTrace

_MOST_DEATHS = 2
"""Of the cells of one operator and type, before the rest of them is not tried; of hangs, of one operator."""
_TOO_MANY = CellSeen("unknown", f"not tried after {_MOST_DEATHS} others have ended the process")
_NOT_AGAIN = CellSeen("unknown", "the process has ended when it was carried out again")


def smaller(case: Any) -> Iterator[Any]:
    """Smaller cases of the same kind; see `OpenTarget.smaller`."""
    if isinstance(case, DelegateCase):
        return smaller_delegate(case)
    return smaller_script(case) if isinstance(case, ScriptCase) else smaller_plugin(case)


class DelegateTarget(OpenTarget):
    """A delegate, or a chain of them, on one runtime."""

    subject: Subject = "delegate"

    def __init__(
        self,
        spec: str,
        options: tuple[str, ...],
        executor: Executing,
        distort: Mapping[type[Any], Callable[[Any], Any]] | None = None,
        precision: Precision = "float32",
    ) -> None:
        """``distort``: by type of trace, what a mutant of the runtime does to it; ``precision``: declared."""
        self._precision = precision
        super().__init__(spec, options, executor)
        self._distort = distort or {}
        self._domain: dict[Cell, CellSeen] = {}
        """What became of cells of the input domain so far."""

    def run(self, case: Any) -> Any:
        """Carry out the case, of any kind that concerns delegates; how a child died is in the trace."""
        if isinstance(case, DomainCase):
            return self._run_domain(case)
        guarded = isinstance(case, ScriptCase) and needs_child(case)
        try:
            answer = self._executor.run(case, guarded=guarded)
        except RunnerFailure as failure:
            return self._of_failure(case, failure)
        if isinstance(answer, Death):
            return self._of_death(case, answer)
        if isinstance(case, DelegateCase) and case.again == "process":
            fresh = self._executor.run_fresh(case)
            died = isinstance(fresh, Death)
            answer = fresh if died else msgspec.structs.replace(answer, again=fresh.outputs)
        return self._seen(case, answer)

    def _run_domain(self, case: DomainCase) -> Any:
        """Carry out cells, also behind those that end the process.

        A kernel of the runtime may have written over memory in an earlier cell: only what ends a process as
        the first of its cells has done so itself.
        """
        seen: dict[int, CellSeen] = {}
        deaths: dict[int, Death] = {}
        while left := [number for number in range(len(case.cells)) if number not in seen]:
            answer = self._run_cells(_picked(case, left))
            if not isinstance(answer, Death):
                seen.update(zip(left, answer.cells, strict=True))
                break
            if answer.lost:
                return self._seen(case, answer)
            place = min(max(0, answer.step // 2), len(left) - 1)
            if place:  # what were carried out before it are again; it is the first of the next process
                before = self._run_cells(_picked(case, left[:place]))
                known = before.cells if not isinstance(before, Death) else [_NOT_AGAIN] * place
                seen.update(zip(left[:place], known, strict=True))
            else:
                seen[left[0]] = _of_death(answer)
                deaths[left[0]] = described(case, len(self.facts.delegates), answer)
                seen.update(dict.fromkeys(_hopeless(case, left[1:], deaths), _TOO_MANY))
        cells = tuple(seen[number] for number in range(len(case.cells)))
        trace = DomainTrace(cells=cells, deaths=tuple(sorted(deaths.items())), facts=self.facts)
        distort = self._distort.get(DomainTrace)
        trace = distort(trace) if distort else trace
        self._domain.update(zip(case.cells, trace.cells, strict=False))
        return trace

    def _run_cells(self, cells: DomainCase) -> Any:
        """In a child where a native delegate is in the chain: one of them ends the process in some cells."""
        return self._executor.run(cells, guarded="xnnpack" in self.facts.delegates)

    def covered(self, *, whole: bool) -> tuple[CoverageRow, ...]:
        """What became of the input domain.

        Args:
            whole: carry out what no case has carried out yet.
        """
        for name in OPERATORS if whole else ():
            left = tuple(cell for cell in cells_of(name) if cell not in self._domain)
            if left:
                self._run_domain(DomainCase(left))
        facts: DelegateFacts = self.facts
        everything = facts.precision == "float16"
        return rows(self._domain, OPERATORS if everything else facts.half)

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the signature is Target's
        """See `pytest_qnn.tflite.cases.reduce` and its neighbours.

        Of cells those are left that were not as expected when they were carried out last.
        """
        if isinstance(case, DomainCase):
            return _smaller_domain(case, self._domain)
        return smaller(case)

    def revealing(self, case: Any) -> Iterator[Any]:
        """Of a delegate case with a wrong number, the same with results inside its graph as outputs.

        The first of them that still fails names the node with which the error began.
        """
        return with_more_outputs(case) if isinstance(case, DelegateCase) else iter(())

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
        """See `pytest_qnn.tflite.controls`; of cells those of the graphs that strategies draw instead.

        Not their scripts: in a cell nothing is resized, and nothing is done twice.
        """
        if not isinstance(case, DomainCase):
            yield from controls(case, died=died)
            return
        for each in drawn(case):
            for control in controls(each, died=died):
                if isinstance(control.case, DelegateCase):
                    yield control

    def around(self, facts: Any, case: Any) -> DelegateFacts:
        """See `pytest_qnn.tflite.controls`."""
        return facts if isinstance(case, DomainCase) else around(facts, case)

    def run_fresh(self, case: Any) -> Any:
        """The same in a process of its own."""
        if isinstance(case, DomainCase):
            return self._run_domain(case)
        try:
            answer = self._executor.run_fresh(case)
        except RunnerFailure as failure:
            return self._of_failure(case, failure)
        return self._of_death(case, answer) if isinstance(answer, Death) else self._seen(case, answer)

    def _bears_company(self, case: Any) -> bool:
        """Nor a case with control edges: what the runtime writes by RT-05 may end the next case.

        Nor one of cells, in which what a kernel of the runtime writes may.
        """
        if isinstance(case, DomainCase):
            return False
        if isinstance(case, DelegateCase):
            return super()._bears_company(case) and case.again != "process"
        return super()._bears_company(case) and not (
            isinstance(case, ScriptCase) and (needs_child(case) or without_edges(case) is not case)
        )

    def _of_death(self, case: Any, death: Death) -> Any:
        """The trace of a case that ended its process; empty where it was not the delegate that did."""
        if isinstance(case, ScriptCase) and not death.lost:
            if needs_child(case) and self._misaligned(case):
                return ScriptTrace(misaligned=True, facts=self.facts)
            if self._lost_the_order(case):
                return ScriptTrace(order_lost=True, facts=self.facts)
        return self._seen(case, death)

    def _of_failure(self, case: Any, failure: RunnerFailure) -> Any:
        """The trace of a case in which our own code failed: by RT-05 the runtime may have written over it.

        Raises:
            RunnerFailure: for all other cases.
        """
        if isinstance(case, ScriptCase) and self._lost_the_order(case):
            return ScriptTrace(order_lost=True, facts=self.facts)
        raise failure

    def _seen(self, case: Any, answer: Any) -> Any:
        if isinstance(answer, Death):
            death = described(case, len(self.facts.delegates), answer)
            return CODEC.empty_trace(case)(death=death, facts=self.facts)
        trace = msgspec.structs.replace(answer, facts=self.facts)
        distort = self._distort.get(type(trace))
        return distort(trace) if distort else trace

    def _lost_the_order(self, case: ScriptCase) -> bool:
        """Whether it was the runtime that ended the process, by RT-05 (docs/reference/runtimes.md).

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

    def learned(self) -> dict[str, Any]:
        """See `pytest_qnn.tflite.learned`."""
        return learned(self.facts)

    def provenance(self) -> dict[str, str]:
        """Runtime, versions, and the digest of each plugin."""
        found = self.observed() | self._place()
        for position, name in enumerate(self.facts.delegates):
            found |= digest(f"delegate_{position}", name, self._executor.elsewhere)
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
        lesson = learn_claims(self._probe, self._executor.now)
        samples = () if lesson.deaths else self._executor.ask(LEARN_SAMPLES, tuple[Sample, ...])
        learned = msgspec.structs.replace(
            facts,
            claims=lesson.claims,
            floor=lesson.floor,
            deaths=facts.deaths + lesson.deaths,
            limits=limits,
            samples=() if isinstance(samples, Death) else samples,
            precision=self._precision,
        )
        return learned if self._precision == "float16" else self._with_half(learned)

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


def _picked(case: DomainCase, numbers: Sequence[int]) -> DomainCase:
    return DomainCase(tuple(case.cells[number] for number in numbers))


def _hopeless(case: DomainCase, numbers: Sequence[int], deaths: Mapping[int, Death]) -> Iterator[int]:
    """Those of the cells whose like has ended the process so often that they are not tried."""
    hangs = sum(death.kind == "hang" for death in deaths.values())
    dead = Counter((case.cells[number].op, case.cells[number].dtype) for number in deaths)
    for number in numbers:
        cell = case.cells[number]
        if hangs >= _MOST_DEATHS or dead[cell.op, cell.dtype] >= _MOST_DEATHS:
            yield number


def _of_death(death: Death) -> CellSeen:
    """What became of a cell that ended its process: with the delegate, or on the CPU alone."""
    if death.step % 2 == 1:
        return CellSeen("refused", f"the runtime's own kernel: {death.text}")
    return CellSeen("died", death.text)


def _smaller_domain(case: DomainCase, known: Mapping[Cell, CellSeen]) -> Iterator[DomainCase]:
    found = [(cell, known[cell]) for cell in case.cells if cell in known]
    suspects = tuple(cell for cell, seen in found if seen.cpu or seen.outcome in ("failed", "died"))
    if suspects and len(suspects) < len(case.cells):
        yield DomainCase(suspects)


def described(case: Any, chain_length: int, death: Death) -> Death:
    """The death with its step or phase, its calls and their results in words.

    Args:
        case: the case that the process died of.
        chain_length: delegates that the target consists of.
        death: how it died.
    """
    left = death.evidence
    calls = (
        msgspec.structs.replace(call, name=_with_operators(case, call.name), result=_result(call))
        for call in left.calls
    )
    during = _with_operators(case, left.during)
    evidence = msgspec.structs.replace(left, during=during, calls=tuple(calls))
    return msgspec.structs.replace(death, place=_place(case, chain_length, death.step), evidence=evidence)


def _place(case: Any, chain_length: int, step: int) -> str:
    if isinstance(case, DomainCase):
        return ""  # the rule names the cell
    if isinstance(case, DelegateCase):
        return phase_name(case, chain_length, step)
    steps = flat(case.steps) if isinstance(case, ScriptCase) else case.steps
    if step == len(steps):
        return "destroying what is left"
    return f"step {step} ({type(steps[step]).__name__})" if 0 <= step < len(steps) else ""


_NODES = re.compile(r"(?<=, node)s? [\d, ]+$")


def _with_operators(case: Any, name: str) -> str:
    """The name of a kernel's callback, with the operators of its nodes where the case has one graph."""
    if isinstance(case, DomainCase):
        return name
    graphs = case.graphs if isinstance(case, ScriptCase) else (case.graph,)
    if len(graphs) > 1 or graphs[0].subgraphs:
        return name
    nodes = graphs[0].nodes

    def named(found: re.Match[str]) -> str:
        index = int(found[0])
        return f"{index} ({nodes[index].op})" if index < len(nodes) else found[0]

    return _NODES.sub(lambda found: re.sub(r"\d+", named, found[0]), name)


def _result(call: Call) -> str:
    if call.status is None:
        return ""
    if call.name == CREATE:
        return "a delegate" if call.status else "NULL"
    return {0: "ok", 1: "error"}.get(call.status, f"status {call.status}")


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
