"""What becomes of cells of the input domain, many in one model, where making a delegate takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytest_qnn.core.target import Death
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.runner.domain import TOGETHER, WRONG, is_on_cpu
from pytest_qnn.tflite.trace import CellSeen

MOST = 600
"""Cells of one question, for which delegates are made twice at most."""
_HANGS = 2
"""Questions that may hang: each costs a whole --qnn-timeout."""
NOT_ALONE = CellSeen("unknown", f"{TOGETHER}, and it is not tried alone: making a delegate takes long")

Ask = Callable[[Sequence[Cell]], Sequence[CellSeen] | Death]


class Learned(NamedTuple):
    """What cells have shown beside others."""

    known: dict[Cell, CellSeen]
    suspects: frozenset[Cell]
    """They are not in ``known``: each is to be carried out alone, so that it is seen what it does itself."""
    halvings: int
    """That are left."""


def learn_beside(cells: Sequence[Cell], ask: Ask, halvings: int) -> Learned:
    """Ask about all cells, many at once; about halves of those that fail together.

    Args:
        cells: of which nothing is known.
        ask: gives what became of cells in one model, in order.
        halvings: how often cells that fail together may be halved.
    """
    known: dict[Cell, CellSeen] = {}
    suspects: set[Cell] = set()
    waiting = [tuple(cells[at : at + MOST]) for at in range(0, len(cells), MOST)]
    hangs = 0
    while waiting:
        part = waiting.pop(0)
        answer = ask(part)
        if isinstance(answer, Death):
            place = answer.step // 2
            if is_on_cpu(answer.step) and 0 <= place < len(part) and not answer.lost:
                # Without any delegate: that cell is the runtime's own affair.
                known[part[place]] = CellSeen("refused", f"the runtime's own kernel: {answer.text}")
                waiting[:0] = [part[:place] + part[place + 1 :]] if len(part) > 1 else []
                continue
            hangs += answer.kind == "hang"
            halvings = 0 if answer.lost or hangs >= _HANGS else halvings
            together = part
        else:
            seen = dict(zip(part, answer, strict=True))
            together = tuple(cell for cell in part if seen[cell] == _TOGETHER)
            suspects.update(cell for cell in part if seen[cell] == _WRONG)
            known.update((cell, each) for cell, each in seen.items() if each not in (_TOGETHER, _WRONG))
        if len(together) == 1:
            suspects.update(together)
        elif together and halvings:
            halvings -= 1
            middle = len(together) // 2
            waiting[:0] = [together[:middle], together[middle:]]
        else:
            known.update(dict.fromkeys(together, NOT_ALONE))
    return Learned(known, frozenset(suspects), halvings)


_TOGETHER = CellSeen("unknown", TOGETHER)
_WRONG = CellSeen("unknown", WRONG)
