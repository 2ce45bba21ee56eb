"""What a chain of delegates claims, learned by models of one node, and which limits it can be given.

The target's process answers `Question`s; the process that judges asks them, here or of a child, and goes on
behind a kind of node that kills the target. So one deadly kind costs two children and not the lesson.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pytest_qnn.core.contents import hashed
from pytest_qnn.core.target import Death
from pytest_qnn.core.time_limit import TimeLimit
from pytest_qnn.isolation.worker import OnStep
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.facts import USUAL_OPTIONS, Claim, Sample
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.graph.floors import FLOORS, Floor
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import OPS, Kind, asked_about, decode_graph, size_of
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.graph.numbering import side_by_side
from pytest_qnn.tflite.observe.spy import Session
from pytest_qnn.tflite.runner.delegates import DelegateFactory, DelegateUnusable, LiveDelegate
from pytest_qnn.tflite.runner.plain import PLAIN
from pytest_qnn.tflite.runtime.runtime import RAISED, Runtime
from pytest_qnn.tflite.runtime.state import context_of, private_plan
from pytest_qnn.tflite.trace import PlanNode

_DELEGATE = 51
_SAMPLES = 16
_SAMPLE_NODES = 12
_SLICE = 2.0
"""Seconds of processor time for one question; what is left is asked next."""
_MOST_SLICES = 10
_BUDGET = 60.0
"""Seconds of the clock for the whole lesson."""
_ENOUGH = 2
"""Deaths of one operator and type, or hangs of any, before the rest is not asked."""
_FOREIGN = "pytest_qnn_no_such_option"
_LIVES = 3
"""Of the plain graph, the shortest of which counts."""


def _sample() -> tuple[int, ...]:
    """Of each operator and type the first and the last kind of the grid, and each 18th of all."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, kind in enumerate(GRID):
        places.setdefault((kind.op, kind.dtype), []).append(place)
    ends = {place for each in places.values() for place in (each[0], each[-1])}
    return tuple(sorted(ends | set(range(0, len(GRID), 18))))


_SAMPLE = _sample()


class Question(msgspec.Struct, frozen=True, tag=True):
    """What becomes of the grid's kinds ``first`` to ``last`` (excluded) in models of one of `FLOORS`."""

    first: int
    last: int
    floor: int = 0
    together: bool = False
    """In one model, of which the chain is made once."""
    only: tuple[int, ...] = ()
    """These in place of a range."""


class Learned(msgspec.Struct, frozen=True):
    """What was learned in one process or several."""

    claims: tuple[Claim, ...] = ()
    floor: Floor = Floor()
    deaths: tuple[str, ...] = ()


Ask = Callable[[Question], Sequence[str] | Death]


def learn_claims(ask: Ask, now: Callable[[], float] = time.monotonic, *, together: bool = False) -> Learned:
    """Ask about the whole grid; in longer and larger models where nothing in smaller ones is claimed.

    All kinds are asked about in one model first, which takes a tenth of the time. A delegate may choose by
    what stands beside a node: the answer is taken if it is that of kinds of each operator and type alone.

    Args:
        ask: gives the outcomes of kinds of node.
        now: seconds of the clock by which it is seen that this takes too long.
        together: an answer with a claim is taken as it is: making a delegate takes long.

    """
    lesson = _Lesson(ask, 0, now)
    lesson.run(together=together)
    for place in range(1, len(FLOORS)) if set(lesson.found) == {"refused"} else ():
        more = _Lesson(ask, place, now)
        more.run(together=together)
        if set(more.found) != {"refused"}:
            lesson = more
            break
    claims = tuple(zip(GRID, lesson.found, strict=True))
    deaths = [f"claiming {GRID[place]}: {death.text}" for place, death in lesson.deaths.items()]
    deaths += [lesson.lost] if lesson.lost else []
    return Learned(msgspec.convert(claims, tuple[Claim, ...]), FLOORS[lesson.floor], tuple(deaths))


class _Lesson:
    """The questions of one pass over the grid, and what was found so far."""

    def __init__(self, ask: Ask, floor: int, now: Callable[[], float]) -> None:
        self.floor = floor
        self.found: list[str] = []
        self.deaths: dict[int, Death] = {}
        """By place in the grid."""
        self.lost = ""
        """How the target died, where it is not known of what."""
        self._ask = ask
        self._slices = 0
        self._now = now
        self._end = now() + _BUDGET

    def run(self, *, together: bool) -> None:
        """Ask as long as it is worth it; what is left is unknown."""
        self._ask_together(trusted=together)
        while len(self.found) < len(GRID):
            place = len(self.found)
            if place in self.deaths:
                self.found.append("died")
            elif self._is_hopeless(place) or self._is_over():
                self.found.append("unknown")
            else:
                self._ask_from(place)

    def _ask_together(self, *, trusted: bool) -> None:
        """About all kinds in one model. An answer without a claim says nothing of what is claimed alone."""
        answer = self._ask(Question(0, len(GRID), self.floor, together=True))
        if isinstance(answer, Death) or len(answer) < len(GRID):
            return
        if trusted and "claimed" not in answer:
            return
        if not trusted:
            alone = self._ask(Question(0, 0, self.floor, only=_SAMPLE))
            if isinstance(alone, Death) or list(alone) != [answer[place] for place in _SAMPLE]:
                return
        self.found += answer

    def _ask_from(self, first: int) -> None:
        """Those up to the next one that shall not be asked; or learn which one is deadly."""
        places = range(first + 1, len(GRID))
        last = next((n for n in places if n in self.deaths or self._is_hopeless(n)), len(GRID))
        answer = self._ask(Question(first, last, self.floor))
        if not isinstance(answer, Death):
            self.found += answer
            self._slices += 1
        elif first <= answer.step < last:
            self.deaths[answer.step] = answer
        else:  # the supervisor ended too, so that the step is not known
            self.lost = f"while it was shown {GRID[first]} and others: {answer.text}"

    def _is_hopeless(self, place: int) -> bool:
        """Other nodes of this operator and type have killed the target more than once."""
        kind = GRID[place]
        dead = [GRID[number] for number in self.deaths]
        return sum((one.op, one.dtype) == (kind.op, kind.dtype) for one in dead) >= _ENOUGH

    def _is_over(self) -> bool:
        hangs = sum(death.kind == "hang" for death in self.deaths.values())
        spent = self._slices >= _MOST_SLICES or self._now() > self._end
        return bool(self.lost) or hangs >= _ENOUGH or spent


def answer(
    question: Question, chain: Sequence[DelegateFactory], runtime: Runtime, on_step: OnStep | None = None
) -> list[str]:
    """The outcomes of the question's kinds in order; fewer where they take long."""
    if question.together:
        return _together(question, chain, runtime)
    limit = TimeLimit(_SLICE)
    found: list[str] = []
    for number in question.only or range(question.first, question.last):
        if on_step is not None:
            on_step(number)
        found.append(_outcome(_model(number, question.floor), chain, runtime))
        if limit.is_over:
            break
    return found


@functools.lru_cache(maxsize=2 * len(GRID))
def _model(number: int, floor: int) -> bytes:
    return emit(asked_about(GRID[number], FLOORS[floor]))


def _outcome(model: bytes, chain: Sequence[DelegateFactory], runtime: Runtime) -> str:
    """Apply the chain to the model, without an inference: what becomes of its nodes."""
    try:
        with _applied(model, chain, runtime) as (session, plan):
            named = any(replace.nodes for calls in session.replaces.values() for replace in calls)
            return "claimed" if named or any(node.op == _DELEGATE for node in plan) else "refused"
    except (DelegateUnusable, *RAISED):
        return "failed"


def _together(question: Question, chain: Sequence[DelegateFactory], runtime: Runtime) -> list[str]:
    """The outcomes of the question's kinds as nodes of one model; none where it cannot be told."""
    model, places = _model_of_all(question.first, question.last, question.floor)
    try:
        with _applied(model, chain, runtime) as (session, _):
            named = {node for calls in session.replaces.values() for each in calls for node in each.nodes}
    except (DelegateUnusable, *RAISED):
        return []
    return ["refused" if named.isdisjoint(nodes) else "claimed" for nodes in places]


@functools.lru_cache(maxsize=len(FLOORS))
def _model_of_all(first: int, last: int, floor: int) -> tuple[bytes, tuple[range, ...]]:
    """These kinds of the grid side by side, and the nodes of each."""
    graphs = [asked_about(kind, FLOORS[floor]) for kind in GRID[first:last]]
    ends = itertools.accumulate(len(graph.nodes) for graph in graphs)
    places = (range(end - len(graph.nodes), end) for graph, end in zip(graphs, ends, strict=True))
    return emit(side_by_side(graphs)), tuple(places)


def learn_seconds(chain: Sequence[DelegateFactory], runtime: Runtime) -> float:
    """What the chain takes to be made, applied to the plain graph, invoked and destroyed, in seconds.

    The least of several times: the first life in a process may load what later ones find, and a machine may
    be busy. A failure takes time as well.
    """
    model = emit(PLAIN.graph)
    return min(_seconds(model, chain, runtime) for _ in range(_LIVES))


def _seconds(model: bytes, chain: Sequence[DelegateFactory], runtime: Runtime) -> float:
    began = time.monotonic()
    with (
        contextlib.suppress(DelegateUnusable, RuntimeError, ValueError),
        _applied(model, chain, runtime, invoked=True),
    ):
        pass
    return time.monotonic() - began


@contextlib.contextmanager
def _applied(
    model: bytes, chain: Sequence[DelegateFactory], runtime: Runtime, *, invoked: bool = False
) -> Iterator[tuple[Session, tuple[PlanNode, ...]]]:
    """An interpreter with the chain applied, ready for an inference or behind one: what was seen, its plan.

    Raises:
        DelegateUnusable: a delegate cannot be made.
        RuntimeError: the runtime reports a failure, of a delegate or its own.
        ValueError: likewise.
    """
    interpreter = runtime.interpreter(model)
    session = Session(observed=runtime.observed, stray_writes=False)
    delegates: list[LiveDelegate] = []
    try:
        for number, factory in enumerate(chain):
            delegates.append(factory.make(Application()))
            session.hook(delegates[-1].address, number)
            interpreter._interpreter.ModifyGraphWithDelegate(delegates[-1].address)
        interpreter.allocate_tensors()
        if invoked:
            interpreter.invoke()
        yield session, private_plan(context_of(interpreter), session.owners) if runtime.observed else ()
    finally:
        del interpreter
        session.unhook()
        for delegate in reversed(delegates):
            delegate.close()


def learn_samples(chain: Sequence[DelegateFactory], runtime: Runtime) -> tuple[Sample, ...]:
    """How the chain cuts up the sample graphs; those of which an application fails are left out."""
    found = []
    for graph, model in _sample_graphs() if runtime.observed else ():
        try:
            with _applied(model, chain, runtime) as (_, plan):
                sides = [node.index if node.op == _DELEGATE else -1 for node in plan]
        except (DelegateUnusable, *RAISED):
            continue
        kernels = sum(side >= 0 for side in sides)
        switches = sum(one != other for one, other in itertools.pairwise(sides))
        left = tuple(graph.nodes[node.index].op for node in plan if node.op != _DELEGATE)
        found.append(Sample(len(graph.nodes), kernels, switches, left))
    return tuple(found)


@functools.cache
def _sample_graphs() -> tuple[tuple[Graph, bytes], ...]:
    """As the strategies' graphs of any operators, of fixed bytes, with their models."""
    kinds = [Kind(dtype, ops) for dtype, ops in OPS.items()]
    size = size_of(_SAMPLE_NODES, 0)
    contents = (hashed(size // 4 + 1, seed).tobytes()[:size] for seed in range(1, _SAMPLES + 1))
    graphs = [decode_graph(data, kinds, 0, _SAMPLE_NODES, _SAMPLE_NODES)[0] for data in contents]
    return tuple((graph, emit(graph)) for graph in graphs)


def learn_limits(chain: Sequence[DelegateFactory]) -> dict[str, str]:
    """Per option of `USUAL_OPTIONS`: why the last delegate of the chain is taken not to have it, or nothing.

    A delegate that takes any option whatever says nothing by taking these.
    """
    return {key: _without(chain[-1], key) for key in USUAL_OPTIONS}


def _without(factory: DelegateFactory, key: str) -> str:
    refused = _refusal(factory, key, "1")
    if refused:
        return f"the delegate refuses the option {key}: {refused}"
    if _refusal(factory, _FOREIGN, "1") or _refusal(factory, key, "not a number"):
        return ""
    return f"the delegate takes any option, so that it cannot be told whether it has {key}"


def _refusal(factory: DelegateFactory, key: str, value: str) -> str:
    try:
        factory.make(Application(options=((key, value),))).close()
    except DelegateUnusable as error:
        return " ".join(str(error).split())
    return ""
