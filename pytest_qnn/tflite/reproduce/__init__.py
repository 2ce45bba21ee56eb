"""A finding on a delegate as a script that needs the runtime and numpy: as far as an interpreter shows it.

The steps are those of the case that the runtime's Python interface has. What is looked at is one number out
of its bounds, a step that fails, a death or a leak; everything else is seen from inside the runtime only.
"""

from __future__ import annotations

import io
import json
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from pytest_qnn.core.target import Death
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.models import graphs_of
from pytest_qnn.tflite.cases.samples import periods
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Poison,
    Read,
    Repeat,
    Resize,
    Sample,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.domain.coverage import state_of
from pytest_qnn.tflite.domain.judging import first_wrong, is_right
from pytest_qnn.tflite.domain.table import Made, made
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.numerics.bounds import expected_outputs, mismatch
from pytest_qnn.tflite.numerics.precision import EVERY_OP, EXACT, SINGLE, Arithmetic
from pytest_qnn.tflite.trace import (
    CellSeen,
    DelegateTrace,
    DomainTrace,
    MeasureCounts,
    ScriptSeen,
    ScriptTrace,
)

NAME: Final = "reproduce.py"
ARRAYS: Final = "reproduce.npz"
_FRAME: Final = Path(__file__).with_name("frame.py")
_RELATIVE, _UNITS = 1e-3, 2.0
"""How far an element may be from the CPU's where no bound of its operators is at hand: of float32, relative
to the largest element; of integers, in units."""
_EXACT: Final = ("NUM-01",)
"""Rules that allow float32 results nothing."""
_OF_HALF: Final = "NUM-08"
"""The rule of operators that compute in float16 where that is not declared."""
_INSIDE: Final = "the outputs are right, and no step fails: it is seen from inside the runtime only"
Step = list[Any]


class NotWritten(Exception):  # noqa: N818 - a property of the case, not an error of ours
    """No script can be written that shows the finding; the text says why, as half a sentence."""


class Finding(NamedTuple):
    """What is said of the finding."""

    rule: str
    sentence: str
    source: str
    target: str
    expected: str
    seen: str
    runtime: str = "tflite_runtime"


class _Plan:
    """Steps, and the arrays that they name."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.ends = False
        """The process ends with whatever is alive."""
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def kept(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[str]:
        """Names of arrays."""
        names = []
        for array in arrays:
            names.append(f"a{len(self.arrays)}")
            self.arrays[names[-1]] = array
        return names

    def files(self, look: dict[str, Any], finding: Finding) -> dict[str, bytes]:
        """The script and its arrays."""
        plan = {
            "runtime": finding.runtime,
            "steps": self.steps,
            "ends": self.ends,
            "look": look,
            "expected": _plain(finding.expected),
            "seen": _plain(finding.seen),
        }
        frame = re.sub(r"  # noqa.*", "", _FRAME.read_text(encoding="utf-8"))
        before, _, after = frame.partition("PLAN: dict[str, Any] = {}\n")
        # A literal of Python's: whatever a target has said stays within it.
        text = f"PLAN: dict[str, Any] = json.loads({json.dumps(json.dumps(plan))})\n"
        buffer = io.BytesIO()
        np.savez(buffer, **self.arrays)
        return {NAME: f"{_head(finding)}{before}{text}{after}".encode(), ARRAYS: buffer.getvalue()}


def _head(finding: Finding) -> str:
    lines = [
        "python reproduce.py DELEGATE.so [KEY=VALUE ...]",
        "",
        "Ends with 1 where what was found is seen again, 0 where it is not, 2 where it cannot tell.",
        "Needs numpy, tflite_runtime or ai_edge_litert, and the files beside it.",
        f"{finding.rule}: {finding.sentence}",
        f"source:   {finding.source}",
        f"found on: {finding.target}",
        f"expected: {finding.expected}",
        f"seen:     {finding.seen}",
    ]
    return "".join(f"# {_plain(line)}".rstrip() + "\n" for line in lines)


def _plain(text: str) -> str:
    return "".join(sign if sign.isascii() and sign.isprintable() else " " for sign in text)


def files(case: Any, trace: Any, finding: Finding) -> dict[str, bytes]:
    """The script with its arrays, by name.

    Args:
        case: of either kind that an interpreter carries out.
        trace: what the target did in it.
        finding: what is said of that.

    Raises:
        NotWritten: an interpreter does not show it.
    """
    if getattr(case, "history", None) is not None:
        raise NotWritten("it needs what was done in the process before")
    if isinstance(case, DelegateCase):
        return _of_delegate(case, trace, finding)
    if isinstance(case, ScriptCase):
        return _of_script(case, trace, finding)
    if isinstance(case, DomainCase):
        return _of_domain(case, trace, finding)
    raise NotWritten("it shows in the plugin's functions or in its file, not at an interpreter")


# One interpreter


def _of_delegate(case: DelegateCase, trace: DelegateTrace, finding: Finding) -> dict[str, bytes]:
    if [application.who for application in case.applications] != ["target"]:
        raise NotWritten("it needs delegates of the suite's own beside the target")
    application = case.applications[0]
    if application.fault or application.refused or application.options:
        raise NotWritten("it needs an error that the suite makes within a callback")
    if case.late:
        raise NotWritten("it needs a delegate that is applied after an allocation")
    if "heap" in case.look:
        raise NotWritten("it shows where a heap is checked: on the system's own it may go unnoticed")
    plan = _Plan()
    plan.steps = [["delegate", "d", {}], ["open", "i", "model.tflite", ["d"], "bare", 1], ["allocate", "i"]]
    for _ in range(case.redo):
        plan.steps += _resized(case.graph)
    if trace.death is not None:
        _add_invokes(plan, case, case.invokes)
        return plan.files(_of_death(trace.death), finding)
    left = next((each for each in trace.control_words or () if each.after.text == finding.seen), None)
    if left is not None:
        _add_invokes(plan, case, case.invokes)
        return plan.files({"kind": "control", "words": [left.after.x87, left.after.mxcsr]}, finding)
    failed = _failed_phase(trace)
    if failed is not None:
        _add_invokes(plan, case, case.invokes)
        return plan.files({"kind": "status", "step": _step_of(plan, failed)}, finding)
    look = _first_mismatch(plan, case, trace, _demanded(trace, finding))
    return plan.files(look, finding)


def _resized(graph: Graph) -> Iterator[Step]:
    for tensor in graph.inputs:
        shape = graph.tensors[tensor].shape
        if shape:
            yield ["resize", "i", tensor, [shape[0] + 1, *shape[1:]], False]
            yield ["resize", "i", tensor, list(shape), False]
            break
    yield ["allocate", "i"]


def _inputs(case: DelegateCase, invoke: int) -> list[np.ndarray[Any, Any]]:
    data_seed = (case.data_seed, *case.reseed)[min(invoke + 1, len(case.reseed))]
    return inputs_of(DelegateCase(case.graph, data_seed=data_seed, fill=case.fill))


def _add_invokes(plan: _Plan, case: DelegateCase, count: int) -> None:
    produced = {index for node in case.graph.nodes for index in node.outputs}
    outputs = [tensor for tensor in dict.fromkeys(case.graph.outputs) if tensor in produced]
    for invoke in range(count):
        if invoke == 0 or invoke < len(case.reseed):
            plan.steps.append(["set", "i", list(case.graph.inputs), plan.kept(_inputs(case, invoke))])
        if invoke < len(case.poison):
            plan.steps.append(["poison", "i", outputs, case.poison[invoke]])
        plan.steps.append(["invoke", "i"])


def _failed_phase(trace: DelegateTrace) -> tuple[str, int] | None:
    """The step that failed, by name and number of its kind; None: none did."""
    if any(not applied.ok for applied in trace.applied):
        return "open", 0
    if trace.allocate_error:
        return "allocate", 0
    failed = next((number for number, text in enumerate(trace.invoke_errors) if text), None)
    return None if failed is None else ("invoke", failed)


def _step_of(plan: _Plan, phase: tuple[str, int]) -> int:
    name, number = phase
    return [at for at, step in enumerate(plan.steps) if step[0] == name][number]


def _demanded(trace: DelegateTrace, finding: Finding) -> Arithmetic:
    """What float32 operators may be off by where the finding was made; else it is none of the finding's."""
    is_exact = finding.rule in _EXACT or "bit for bit" in finding.expected
    base = EXACT if is_exact else SINGLE
    if trace.facts is None:
        return base
    if trace.facts.precision == "float16":
        return base.with_half(EVERY_OP)
    return base if finding.rule == _OF_HALF else base.with_half(trace.facts.half)


def _first_mismatch(
    plan: _Plan, case: DelegateCase, trace: DelegateTrace, arithmetic: Arithmetic
) -> dict[str, Any]:
    for invoke, outputs in enumerate(trace.outputs):
        wanted = expected_outputs(case.graph, _inputs(case, invoke), arithmetic)
        for tensor, expected, seen in zip(case.graph.outputs, wanted, outputs, strict=False):
            found = mismatch(expected, seen.numpy())
            if found is None:
                continue
            _add_invokes(plan, case, invoke + 1)
            plan.steps.append(["read", "i", tensor, list(found.index)])
            if seen.numpy().shape != expected.value.shape:
                return _shape(expected.value.shape, seen.numpy().shape)
            # Not rounded to the nearest, as many others are not, or out of its range: no bound allows it.
            within = abs(found.seen - found.expected) <= found.tolerance
            return _element(found.index, found.expected, 0.0 if within else found.tolerance, found.seen)
    raise NotWritten(_INSIDE)


def _element(index: Sequence[int], expected: float, tolerance: float, seen: float) -> dict[str, Any]:
    # As text: JSON has no NaN and no infinity.
    values = {"expected": repr(expected), "tolerance": repr(tolerance), "seen": repr(seen)}
    return {"kind": "element", "index": [int(at) for at in index], **values}


def _shape(expected: Sequence[int], seen: Sequence[int]) -> dict[str, Any]:
    return {"kind": "shape", "expected": list(map(int, expected)), "seen": list(map(int, seen))}


# Cells of the input domain


def _of_domain(case: DomainCase, trace: DomainTrace, finding: Finding) -> dict[str, bytes]:
    """The first cell that is amiss, with its own model."""
    deaths = dict(trace.deaths)
    for number, (cell, seen) in enumerate(zip(case.cells, trace.cells, strict=False)):
        state, _ = state_of(cell, seen)
        if state not in ("died", "failed", "wrong"):
            continue
        model, name = made(cell), f"cell{number}.tflite"
        plan = _Plan()
        plan.steps = [["delegate", "d", {}], ["open", "i", name, ["d"], "bare", 1], ["allocate", "i"]]
        operands = [operand for operand in model.node.operands if operand is not None]
        given = [at for at, each in enumerate(operands) if not each.constant and each.values.size]
        plan.steps.append(["set", "i", given, plan.kept([operands[at].values for at in given])])
        plan.steps.append(["invoke", "i"])
        if state == "died":
            look = _of_death(deaths[number])
        elif state == "failed":
            look = {"kind": "status", "step": -1}
        else:
            look = _wrong_result(plan, model, seen, len(operands))
        return plan.files(look, finding) | {name: model.model}
    raise NotWritten(_INSIDE)


def _wrong_result(plan: _Plan, model: Made, seen: CellSeen, first: int) -> dict[str, Any]:
    for tensor, (result, array) in enumerate(zip(model.node.results, seen.outputs, strict=False), first):
        values = array.numpy()
        if is_right(result, values):
            continue
        if values.shape != result.values.shape:
            plan.steps.append(["read", "i", tensor, []])
            return _shape(result.values.shape, values.shape)
        index, within = first_wrong(result, values)
        plan.steps.append(["read", "i", tensor, list(index)])
        return _element(index, float(result.values[index]), within, float(values[index]))
    raise NotWritten(_INSIDE)


def _of_death(death: Death) -> dict[str, Any]:
    if death.kind == "hang":
        return {"kind": "hang"}
    name = re.search(r"SIG[A-Z0-9]+", death.detail)
    number = getattr(signal, name[0], None) if name and death.kind == "signal" else None
    if number is None:
        raise NotWritten("the process ended in a way that is not written")
    return {"kind": "signal", "signal": int(number)}


# Scripts


class _Opening(NamedTuple):
    """An interpreter that is not made yet."""

    step: Open
    delegates: list[str]
    behind: list[Step]
    """What is done to it next."""


class _Script:
    """The steps of a script, as far as the runtime's interface has them."""

    def __init__(self, case: ScriptCase, trace: ScriptTrace) -> None:
        self.case, self.seen = case, trace.steps
        self.plan = _Plan()
        self.plan.ends = case.ends
        self.number = -1
        self._pending: dict[str, _Opening] = {}
        self._graphs: dict[str, Graph] = {}
        self.look: dict[str, Any] | None = None
        self.measures: list[MeasureCounts] = []
        self.turns: list[int] = []
        """Before each measure, since the one before."""
        self._turns = 0

    def write(self, step: AnyScriptStep) -> list[Step]:
        """A step's own steps.

        Raises:
            NotWritten: it is none that the runtime's interface has.
        """
        self.number += 1
        seen = self.seen[self.number] if self.number < len(self.seen) else ScriptSeen()
        if seen.skipped:
            return []
        if isinstance(step, Repeat):
            inner = [each for inside in step.steps for each in self.write(inside)]
            self._turns += step.times
            return [["repeat", step.times, inner]]
        if isinstance(step, MakeDelegate):
            if step.who != "target" or step.position or step.without or step.interface != "selected":
                raise NotWritten("it needs delegates of the suite's own beside the target")
            if step.fault:
                raise NotWritten("it needs an error that the suite makes within a callback")
            return [["delegate", step.delegate, dict(step.options)]]
        if self._waits(step, seen):
            return []
        return [*self.opened(), *self._behind_opened(step, seen)]

    def _waits(self, step: AnyScriptStep, seen: ScriptSeen) -> bool:
        """What is done to an interpreter before it can be made."""
        if isinstance(step, Open):
            if step.preserve:
                raise NotWritten("it needs an interpreter that preserves all tensors")
            self._pending[step.interpreter] = _Opening(step, [], [])
            self._graphs[step.interpreter] = graphs_of(self.case)[step.graph]
        elif isinstance(step, Apply):
            if step.interpreter not in self._pending:
                raise NotWritten("it needs a delegate that is applied after an allocation")
            self._pending[step.interpreter].delegates.append(step.delegate)
        elif isinstance(step, Resize) and step.interpreter in self._pending:
            self._pending[step.interpreter].behind.extend(self._plain(step, seen))
        else:
            return False
        return True

    def _behind_opened(self, step: AnyScriptStep, seen: ScriptSeen) -> list[Step]:
        if isinstance(step, DestroyDelegate):
            return [["destroy", step.delegate]]
        if isinstance(step, Measure):
            if isinstance(seen.counts, MeasureCounts):
                self.measures.append(seen.counts)
                self.turns.append(self._turns)
                self._turns = 0
            return [["measure"]]
        return self._plain(step, seen)

    def opened(self) -> list[Step]:
        """The constructor of the runtime's interface applies delegates: all that wait for theirs are made.

        What was resized before a delegate was applied is so behind it, which has the runtime apply it again.
        """
        made: list[Step] = []
        for name, (opened, delegates, behind) in self._pending.items():
            model = f"model{opened.graph}.tflite"
            made += [["open", name, model, delegates, opened.resolver, opened.threads], *behind]
        self._pending.clear()
        return made

    def _plain(self, step: AnyScriptStep, seen: ScriptSeen) -> list[Step]:  # noqa: PLR0911 - as above
        if isinstance(step, Allocate):
            return [["allocate", step.interpreter]]
        if isinstance(step, Close):
            return [["close", step.interpreter]]
        if isinstance(step, Invoke):
            return [["invoke", step.interpreter]]
        if isinstance(step, SetInputs):
            given = [array.numpy() for array in seen.outputs] or self._given(step)
            names = self.plan.kept(given)
            return [["set", step.interpreter, list(self._graphs[step.interpreter].inputs), names]]
        if isinstance(step, Resize):
            graph = self._graphs[step.interpreter]
            self._resized(step, graph)
            return [["resize", step.interpreter, graph.inputs[step.input], list(step.shape), step.strict]]
        if isinstance(step, Poison):
            graph = self._graphs[step.interpreter]
            produced = {index for node in graph.nodes for index in node.outputs}
            return [["poison", step.interpreter, [t for t in graph.outputs if t in produced], step.byte]]
        if isinstance(step, Read):
            return self._read(step, seen)
        if isinstance(step, Sample):
            return self._sampled(step, seen)
        raise NotWritten(f"the runtime's Python interface has no step {step.__struct_config__.tag}")

    def _sampled(self, step: Sample, seen: ScriptSeen) -> list[Step]:
        """The periods of the contents are kept, and the script repeats them."""
        graph = self._graphs[step.interpreter]
        shapes = [list(graph.tensors[tensor].shape) for tensor in graph.inputs]
        names = self.plan.kept(periods(graph, step.seed))
        steps: list[Step] = [["set", step.interpreter, list(graph.inputs), names, shapes]]
        steps.append(["invoke", step.interpreter])
        places, values, *_ = (*seen.outputs, None, None)
        found = _off(values, seen.cpu[0]) if values and seen.cpu else None
        if places and found is not None and self.look is None:
            # An element-wise output is shaped as the input.
            at = np.unravel_index(int(places.numpy()[found["index"][0]]), shapes[0])
            self.look = found | {"index": [int(index) for index in at]}
            steps.append(["read", step.interpreter, graph.outputs[0], self.look["index"]])
        return steps

    def _given(self, step: SetInputs) -> list[np.ndarray[Any, Any]]:
        """The inputs, where the process died and nothing is known of what it was given."""
        graph = self._graphs[step.interpreter]
        return inputs_of(DelegateCase(graph, data_seed=step.seed, fill=step.fill))

    def _resized(self, step: Resize, graph: Graph) -> None:
        tensors, tensor = list(graph.tensors), graph.inputs[step.input]
        tensors[tensor] = msgspec.structs.replace(tensors[tensor], shape=tuple(step.shape))
        self._graphs[step.interpreter] = msgspec.structs.replace(graph, tensors=tuple(tensors))

    def _read(self, step: Read, seen: ScriptSeen) -> list[Step]:
        tensors = step.tensors or self._graphs[step.interpreter].outputs
        for tensor, one, other in zip(tensors, seen.outputs, seen.cpu, strict=False):
            found = _off(one, other)
            if found is not None and self.look is None:
                self.look = found
                return [["read", step.interpreter, tensor, found["index"]]]
        return []


def _off(seen: Array, cpu: Array) -> dict[str, Any] | None:
    """The first element that is far from the CPU's."""
    one, other = seen.numpy(), cpu.numpy()
    if one.shape != other.shape:
        return _shape(other.shape, one.shape) | {"index": []}
    if not one.size:
        return None
    exact = other.astype(np.float64)
    largest = float(np.nanmax(np.abs(np.where(np.isfinite(exact), exact, 0.0))))
    allowed = _RELATIVE * largest if one.dtype.kind == "f" else _UNITS
    with np.errstate(invalid="ignore"):
        wrong = np.isfinite(exact) & ~(np.abs(one.astype(np.float64) - exact) <= allowed)
    if not wrong.any():
        return None
    index = tuple(int(at) for at in np.argwhere(wrong)[0])
    return _element(index, float(exact[index]), allowed, float(one[index]))


def _of_script(case: ScriptCase, trace: ScriptTrace, finding: Finding) -> dict[str, bytes]:
    written = _Script(case, trace)
    for step in case.steps:
        try:
            written.plan.steps += written.write(step)
        except NotWritten:
            if trace.death is not None or not _grown(written):
                raise
            break  # what follows is measured only to compare with it
        if written.look is not None:
            return written.plan.files(written.look, finding)
    written.plan.steps += written.opened()
    if trace.death is not None:
        return written.plan.files(_of_death(trace.death), finding)
    failed = _failed_step(case, trace)
    if failed is not None:
        name, number = failed
        steps = [at for at, step in enumerate(written.plan.steps) if step[0] == name]
        if number < len(steps):
            return written.plan.files({"kind": "status", "step": steps[number]}, finding)
    return written.plan.files(_growth(written), finding)


_CALLS: Final[dict[type, tuple[str, ...]]] = {
    Allocate: ("allocate",),
    Invoke: ("invoke",),
    Resize: ("resize",),
    Sample: ("set", "invoke"),
    SetInputs: ("set",),
}
"""The steps of the script that a step of the case becomes, the one last that fails where it fails."""


def _failed_step(case: ScriptCase, trace: ScriptTrace) -> tuple[str, int] | None:
    """The first step of the script that failed, by name and number of its kind."""
    if any(isinstance(step, Repeat) for step in case.steps):
        return None
    numbers: dict[str, int] = {}
    for step, seen in zip(flat(case.steps), trace.steps, strict=False):
        names = _CALLS.get(type(step), ())
        if not names or seen.skipped:
            continue
        if not seen.ok:
            return names[-1], numbers.get(names[-1], 0)
        for name in names:
            numbers[name] = numbers.get(name, 0) + 1
    return None


_MALLOC_OF_A_TURN: Final = 16
"""Bytes that every turn leaves, at least, where one turn leaves something."""


def _growth(written: _Script) -> dict[str, Any]:
    """What has grown with the turns of a repetition.

    Raises:
        NotWritten: nothing has.
    """
    look = _grown(written)
    if look is None:
        raise NotWritten(_INSIDE)
    if look["what"] == "malloc":
        raise NotWritten("it grows by a few bytes of malloc's, less than a script's own memory changes")
    return look


def _grown(written: _Script) -> dict[str, Any] | None:
    """What has grown between two measures, those with most turns in between first; None: nothing has."""
    places = sorted(range(1, len(written.measures)), key=lambda at: -written.turns[at])
    for last in places:
        turns = written.turns[last]
        for what, each in (("fds", 1), ("threads", 1), ("mappings", 1), ("malloc", _MALLOC_OF_A_TURN)):
            before, after = (getattr(written.measures[at], what) or 0 for at in (last - 1, last))
            least = max(1, turns // 2) * each
            if after - before >= least and turns > 1:
                look = {"what": what, "first": last - 1, "last": last, "least": least, "turns": turns}
                return {"kind": "growth", **look}
    return None
