"""The cases of one search, in order; and a case that fails, made smaller by drawing less."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase

from pytest_qnn.core.drawing import cases_of, decoder_of, shrunk, strings


class Search:
    """Some cases of a strategy, the same for the same seed.

    A strategy that decodes one string of bytes (`pytest_qnn.core.drawing.decoded`) is drawn from, and made
    smaller, here: Hypothesis takes longer for it than most cases take, and leaves to chance which classes of
    cases are met. Any other strategy is Hypothesis' own, which draws all cases at once and shrinks the one
    that failed. (docs/explanation/decisions/shared/one-draw.md)

    Args:
        cases: the strategy.
        examples: how many cases.
        seed: of any size.
        whole: of a strategy that lists its cases, run all of them.

    """

    def __init__(
        self,
        cases: hypothesis.strategies.SearchStrategy[Any],
        examples: int,
        seed: int,
        *,
        whole: bool = False,
    ) -> None:
        self._cases = cases
        self._examples = examples
        self._seed = seed
        self._decoder = decoder_of(cases)
        self._listed = cases_of(cases)
        if self._listed is not None and not whole:
            self._listed = self._listed[:examples]

    @property
    def is_decoded(self) -> bool:
        """The number of a case stands for a string of bytes, whatever facts it is decoded for."""
        return self._decoder is not None and self._listed is None

    def __iter__(self) -> Iterator[Any]:
        """The cases. What the strategy raises (of this project, a defect) is raised."""
        if self._listed is not None:
            yield from self._listed
            return
        if self._decoder is None:
            yield from self._drawn_by_hypothesis()
            return
        for string in itertools.islice(strings(self._decoder.size, self._seed), self._examples):
            yield self._decoder.decode(string)

    def shrink(self, index: int, fails: Callable[[Any], bool]) -> None:
        """Look for smaller cases that fail, by smaller draws: the last that ``fails`` is the smallest.

        Args:
            index: of the case that failed.
            fails: gives the same result for equal cases.
        """
        if self._listed is not None:
            return  # there is no smaller draw
        if self._decoder is None:
            with contextlib.suppress(_Fails, hypothesis.errors.Flaky):
                # Flaky: only a strategy that draws differently each time.
                self._given(self._cases, lambda case: _raise_if(fails(case)), (Phase.generate, Phase.shrink))
            return
        string = next(itertools.islice(strings(self._decoder.size, self._seed), index, None))
        decode = self._decoder.decode
        shrunk(string, lambda smaller: fails(decode(smaller)))

    def _drawn_by_hypothesis(self) -> list[Any]:
        found: list[Any] = []
        self._given(self._cases, found.append, (Phase.generate,))
        return found

    def _given(
        self,
        strategy: hypothesis.strategies.SearchStrategy[Any],
        run: Callable[[Any], None],
        phases: tuple[Phase, ...],
    ) -> None:
        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=self._examples,
            database=None,
            deadline=None,
            derandomize=False,
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=hypothesis.Verbosity.quiet,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(strategy)
        def search(drawn: Any) -> None:
            run(drawn)

        search()


class _Fails(Exception):  # noqa: N818 - what Hypothesis shrinks, not an error
    """A case fails."""


def _raise_if(fails: bool) -> None:
    # Hypothesis tells failures apart by type and by the place of the raise: here they are all one.
    if fails:
        raise _Fails
