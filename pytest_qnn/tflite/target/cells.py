"""Cases of cells of the input domain: carried out one process after another, and what became of each cell."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import CoverageRow
from pytest_qnn.isolation.executor import Executing
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import CellsBeside, DomainCase
from pytest_qnn.tflite.cases.drawn_cells import Went, drawn_as, most_alike, showing, unlike, went, witnesses
from pytest_qnn.tflite.controls.cells import of_drawn, of_more_numbers, of_stray_writes
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.coverage import rows
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.runner.spec import CODEC
from pytest_qnn.tflite.target.beside import MOST, NOT_ALONE, learn_beside
from pytest_qnn.tflite.target.deaths import described
from pytest_qnn.tflite.trace import CellSeen, DomainTrace

_MOST_DEATHS = 2
"""Of the cells of one operator and type, before the rest of them is not tried; of hangs, of one operator."""
_FEW = 8
"""Cells that are carried out alone there."""
_HALVINGS = 32
"""How often cells may be halved that fail beside others, where making a delegate takes long."""
_TOO_MANY = CellSeen("unknown", f"not tried after {_MOST_DEATHS} others have ended the process")
_NOT_AGAIN = CellSeen("unknown", "the process has ended when it was carried out again")


class Cells:
    """Carries out cases of cells, and answers what is asked about them, as a target does.

    Attributes:
        known: what became of each cell that was carried out so far.

    """

    def __init__(
        self, executor: Executing, facts: DelegateFacts, distort: Callable[[Any], Any] | None = None
    ) -> None:
        """``distort``: what a mutant of the runtime does to a trace."""
        self._executor = executor
        self._facts = facts
        self._distort = distort
        self.known: dict[Cell, CellSeen] = {}
        self._suspects: set[Cell] = set()
        """Of a target that takes long: what went wrong beside others."""
        self._halvings = _HALVINGS

    def run(self, case: DomainCase) -> DomainTrace:
        """Carry out the cells; where some are not as expected, also cells that may show why."""
        trace = self._carried_out(case)
        if trace.death is None and any(map(_is_suspect, trace.cells)):
            trace = msgspec.structs.replace(trace, witnesses=self._witnesses(case, trace))
        return self._distort(trace) if self._distort else trace

    def _witnesses(self, case: DomainCase, trace: DomainTrace) -> tuple[tuple[Cell, CellSeen], ...]:
        """What became of drawn cells that are not the case's own: what is not known is carried out."""
        found = zip(case.cells, trace.cells, strict=True)
        operators = dict.fromkeys(cell.op for cell, seen in found if _is_suspect(seen))
        own = set(case.cells)
        wanted = [cell for op in operators for cell in witnesses(op) if cell not in own]
        left = tuple(cell for cell in dict.fromkeys(wanted) if cell not in self.known)
        if left:
            self._carried_out(DomainCase(left))
        return tuple((cell, self.known[cell]) for cell in dict.fromkeys(wanted) if cell in self.known)

    def _carried_out(self, case: DomainCase) -> DomainTrace:
        """What became of the cells; of many, where making a delegate takes long, as nodes of few models."""
        most = self._facts.most_lives
        if not most or len(case.cells) <= min(most, _FEW):
            return self._alone(case)
        self._learn_beside(self._and_further(case.cells))
        wrong = [number for number, cell in enumerate(case.cells) if cell in self._suspects]
        trace = self._alone(_picked(case, wrong[:most])) if wrong else DomainTrace(facts=self._facts)
        if trace.death is not None:
            return trace
        seen = {**self.known, **dict.fromkeys(map(case.cells.__getitem__, wrong[most:]), NOT_ALONE)}
        self.known.update((cell, seen[cell]) for cell in case.cells)
        deaths = tuple((wrong[number], death) for number, death in trace.deaths)
        return DomainTrace(cells=tuple(map(seen.__getitem__, case.cells)), deaths=deaths, facts=self._facts)

    def _learn_beside(self, cells: Sequence[Cell]) -> None:
        """Ask what becomes of the cells as nodes of few models."""

        def ask(some: Sequence[Cell]) -> Sequence[CellSeen] | Death:
            half = filter(self._facts.is_in_half, dict.fromkeys(cell.op for cell in some))
            answer = self._executor.run(CellsBeside(tuple(some), tuple(half)))
            return answer if isinstance(answer, Death) else answer.cells

        learned = learn_beside(cells, ask, self._halvings)
        self.known.update(learned.known)
        self._suspects.update(learned.suspects)
        self._halvings = learned.halvings

    def _and_further(self, cells: Sequence[Cell]) -> list[Cell]:
        """These of which nothing is known, and, up to a model's worth, those of the next operators."""
        seen = self.known.keys() | self._suspects
        unknown = [cell for cell in cells if cell not in seen]
        behind = itertools.dropwhile(lambda name: name != cells[-1].op, OPERATORS if unknown else ())
        more = itertools.chain.from_iterable(map(cells_of, behind))
        every = dict.fromkeys(itertools.chain(unknown, (cell for cell in more if cell not in seen)))
        return list(itertools.islice(every, max(len(unknown), MOST)))

    def _alone(self, case: DomainCase) -> DomainTrace:
        """What became of the cells in models of their own, also behind those that end the process.

        A kernel of the runtime may have written over memory in an earlier cell: only what ends a process as
        the first of its cells has done so itself.
        """
        seen: dict[int, CellSeen] = {}
        deaths: dict[int, Death] = {}
        while left := [number for number in range(len(case.cells)) if number not in seen]:
            answer = self._answer(_picked(case, left))
            if not isinstance(answer, Death):
                seen.update(zip(left, answer.cells, strict=True))
                break
            if answer.lost:
                empty: DomainTrace = CODEC.empty_trace(case)(death=described(answer), facts=self._facts)
                return empty
            place = min(max(0, answer.step // 2), len(left) - 1)
            if place:  # what were carried out before it are again; it is the first of the next process
                before = self._answer(_picked(case, left[:place]))
                known = before.cells if not isinstance(before, Death) else [_NOT_AGAIN] * place
                seen.update(zip(left[:place], known, strict=True))
            else:
                seen[left[0]] = _of_death(answer)
                deaths[left[0]] = described(answer)
                seen.update(dict.fromkeys(_hopeless(case, left[1:], deaths), _TOO_MANY))
        cells = tuple(seen[number] for number in range(len(case.cells)))
        self.known.update(zip(case.cells, cells, strict=True))
        return DomainTrace(cells=cells, deaths=tuple(sorted(deaths.items())), facts=self._facts)

    def run_fresh(self, case: DomainCase) -> DomainTrace:
        """The same: what ends a process is carried out as the first of another one anyway."""
        return self.run(case)

    def _answer(self, cells: DomainCase) -> Any:
        """In a child where a native delegate is in the chain: one of them ends the process in some cells."""
        return self._executor.run(cells, guarded="xnnpack" in self._facts.delegates)

    def bears_company(self, case: DomainCase) -> bool:  # noqa: ARG002 - the signature is that of any kind
        """It does not: what a kernel of the runtime writes may end the next case."""
        return False

    def covered(self, *, whole: bool) -> tuple[CoverageRow, ...]:
        """What became of the input domain.

        Args:
            whole: carry out what no case has carried out yet.
        """
        too_long = self._facts.most_lives and not self._executor.isolated
        for name in OPERATORS if whole and not too_long else ():
            left = tuple(cell for cell in cells_of(name) if cell not in self.known)
            if left:
                self.run(DomainCase(left))
        everything = self._facts.precision == "float16"
        return rows(self.known, OPERATORS if everything else self._facts.half)

    def smaller(self, case: DomainCase) -> Iterator[DomainCase]:
        """Of what was carried out last: what no drawn cell shows, else what was not as expected."""
        suspects = tuple(cell for cell in case.cells if cell in self.known and _is_suspect(self.known[cell]))
        for some in (unlike(case.cells, self._went(suspects)), suspects):
            if some and len(some) < len(case.cells):
                yield DomainCase(some)

    def controls(self, case: DomainCase, *, died: bool) -> Iterator[Control]:
        """Of the graphs that strategies draw, and in which the case's cells may show what is wrong in theirs.

        Not their scripts: in a cell nothing is resized, and nothing is done twice. Where a cell goes wrong as
        no drawn one does, what larger drawn graphs compute is looked at, for a cell has few elements; where
        it ends the process, whether drawn ones write beside their tensors.
        """
        known = self._went(case.cells)
        wrong = [cell for cell in case.cells if cell in known and known[cell].way]
        if own := unlike(wrong, known):
            if died:
                yield from of_stray_writes(own)
            else:
                yield from of_more_numbers([most_alike(cell, known) for cell in own])
            return
        for control in of_drawn((shown for cell in wrong for shown in showing(cell, known)), died=died):
            if isinstance(control.case, DelegateCase):
                yield control

    def _went(self, cells: Iterable[Cell]) -> dict[Cell, Went]:
        """How these cells went, and those that may show why."""
        wanted = dict.fromkeys(cells)
        wanted.update(dict.fromkeys(each for cell in tuple(wanted) for each in witnesses(cell.op)))
        seen = ((cell, self.known[cell]) for cell in wanted if cell in self.known)
        return went(seen, self._facts.is_in_half)

    def around(self, facts: DelegateFacts, case: DomainCase) -> DelegateFacts:  # noqa: ARG002 - as `bears_company`
        """The same facts: which cells there are does not depend on them."""
        return facts


def _is_suspect(seen: CellSeen) -> bool:
    """It may go wrong: what is expected was not computed by the delegate."""
    return bool(seen.cpu) or seen.outcome in ("failed", "died")


def _picked(case: DomainCase, numbers: Sequence[int]) -> DomainCase:
    return DomainCase(tuple(case.cells[number] for number in numbers))


def _hopeless(case: DomainCase, numbers: Sequence[int], deaths: Mapping[int, Death]) -> Iterator[int]:
    """Those of the cells whose like has ended the process so often that they are not tried.

    One that strategies draw is tried all the same: it tells whether other rules own the deaths.
    """
    hangs = sum(death.kind == "hang" for death in deaths.values())
    dead = Counter((case.cells[number].op, case.cells[number].dtype) for number in deaths)
    drawn_ones = {cell: (cell.op, cell.dtype) for cell in case.cells if drawn_as(cell)}
    tried = {drawn_ones[cell] for cell in map(case.cells.__getitem__, deaths) if cell in drawn_ones}
    for number in numbers:
        cell = case.cells[number]
        if hangs >= _MOST_DEATHS or dead[cell.op, cell.dtype] >= _MOST_DEATHS:
            if cell in drawn_ones and drawn_ones[cell] not in tried:
                tried.add(drawn_ones[cell])
            else:
                yield number


def _of_death(death: Death) -> CellSeen:
    """What became of a cell that ended its process: with the delegate, or on the CPU alone."""
    if death.step % 2 == 1:
        return CellSeen("refused", f"the runtime's own kernel: {death.text}")
    return CellSeen("died", death.text)
