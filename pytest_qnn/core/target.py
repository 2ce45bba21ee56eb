"""A target: something that turns a Case into a Trace; and how a process ended that did not give one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Crashed, Hung, Violation, WrongOutput, WrongRefusal, WrongSuccess

CaseT_contra = TypeVar("CaseT_contra", contravariant=True)
TraceT_co = TypeVar("TraceT_co", covariant=True)
Resource = Literal["any", "memory", "new", "mapping", "descriptor", "thread"]
"""What a target asks the system for, and may be refused: malloc and its like, operator new of C++, which
throws where it is refused, mmap, dup and its like, pthread_create; ``any``: whatever is asked for by
functions that do not throw."""


class Death(msgspec.Struct, frozen=True, gc=False):
    """How the process of a sandboxed case ended when it did not hand over its trace."""

    kind: Literal["signal", "exit", "hang", "garbage", "large"]
    """``large`` is none: the process has lived, and its trace has more bytes than an answer may have."""
    detail: str
    """``SIGSEGV``, ``exit status 3``, ``no answer within 10 s``, ..."""
    step: int = -1
    """The step (memory) or phase (delegate) that had begun; -1: none."""
    late: bool = False
    """The case was over: the process did not survive its own end, which the case requested."""
    evidence: Evidence = Evidence()
    """What it left."""
    place: str = ""
    """The step or phase in words: ``step 2 (Register)``; empty: its number says all that is known."""
    lost: bool = False
    """The target cannot be loaded any more: running it again raises `TargetLost`."""
    of_case: bool = False
    """Of a ``large`` one: the same case without the target gives too much as well."""

    @property
    def text(self) -> str:
        """How it died, and in which call."""
        return f"{self.detail} in {self.evidence.during}" if self.evidence.during else self.detail


class TargetLost(Exception):  # noqa: N818 - a finding about the target, not an error of ours
    """The target cannot be loaded, or not any more: nothing (further) is judged. The text is one sentence.

    A case that met this first has a `Death` instead.
    """


class Control(NamedTuple):
    """A plain case: a part of what another case does, without what that one's rule is about."""

    case: Any
    owners: tuple[str, ...]
    """Ids of the rules that own what goes wrong in it, the most particular first. None: it explains a death
    only in one of `calls`, of a case that died in the same."""
    calls: tuple[tuple[str, str], ...] = ()
    """First words of what was at work, and the rule that owns a death in it. Any other death is owned by the
    first of `owners`."""
    presumes: Control | None = None
    """Of an operator that the other case need not have: where something is wrong in this one, this control
    says nothing."""
    spoils: bool = False
    """What is wrong in it may give any call another answer or end the process; its own death says nothing."""
    explains: tuple[type[Violation], ...] = (WrongOutput, WrongRefusal, WrongSuccess, Crashed, Hung)
    """What a case must have shown for this to be its control."""
    within: str = ""
    """The one call in which it explains a death; empty: any. Of a death in another call it is not run."""
    hung: str = ""
    """The rule that owns a hang in it; empty: it is owned as any death is."""
    heap: bool = False
    """Blocks of memory are looked at: a misuse explains what it is a control of whether or not it ended the
    control's process; of deaths it tells those that `Evidence.is_of_heap`, and no others."""
    shown: type[Violation] = Violation
    """The kind of violation that counts in it: what else its owners find explains nothing."""

    @property
    def judges(self) -> frozenset[str]:
        """Every rule that may own something in it."""
        return frozenset((*self.owners, *(owner for _, owner in self.calls), *filter(None, (self.hung,))))

    def owners_of(self, death: Death | None) -> tuple[str, ...]:
        """Who judges what was seen of the case: of a death one rule at most."""
        if death is None:
            return self.owners
        if self.heap and not death.evidence.is_of_heap:
            return ()
        if death.kind == "hang" and self.hung:
            return (self.hung,)
        during = death.evidence.during
        called = [owner for name, owner in self.calls if during == name or during.startswith(f"{name} ")]
        return (*called, *self.owners)[:1]


class TraceLike(Protocol):
    """What the engine reads of any trace."""

    @property
    def death(self) -> Death | None:
        """How the process died, if it did."""


class Target(Protocol[CaseT_contra, TraceT_co]):
    """One target under judgement, in this process or in children."""

    @property
    def subject(self) -> Subject:
        """Which half of the catalogue applies."""

    @property
    def spec(self) -> str:
        """The specification string, as on the command line (a chain is joined with `` + ``)."""

    @property
    def isolated(self) -> bool:
        """Cases run in child processes."""

    @property
    def facts(self) -> Any:
        """`MemoryFacts` or `DelegateFacts`, learned once."""

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options that select this target again, for replay commands."""

    def run(self, case: CaseT_contra) -> TraceT_co:
        """Carry out the case. Never raises for what the target does: that is in the trace."""

    def run_all(self, cases: Sequence[CaseT_contra]) -> Iterator[tuple[TraceT_co, bool]]:
        """Carry out the cases in order; each trace, and whether its case was alone.

        Alone: nothing else was carried out in its process before, or all cases are carried out in this one
        process anyway. Cases after the one whose trace was taken last need not have been carried out.
        """

    def joined(self, cases: Sequence[Any]) -> Any:
        """One case that does what all of them do, in their order; None where there is none."""

    @property
    def owner_in_company(self) -> str:
        """The id of the rule that owns a death of several cases in one process that are no one case.

        Empty: there is none.
        """

    def run_fresh(self, case: CaseT_contra) -> TraceT_co:
        """The same in a process that has carried out nothing else, also where cases run in this process."""

    def unfit(self, case: CaseT_contra) -> str:
        """Why no case of this kind can be carried out on the target; empty if it can be tried."""

    def missing(self, trace: Any) -> str:
        """Why a trace may have nothing for its rule: what no target must have. Empty: nothing is missing."""

    def denies(self, gate: Sequence[str]) -> str:
        """What of a rule's gate (`pytest_qnn.core.rule.Rule`) the target itself says that it has not.

        Empty: nothing, or it says nothing about that.
        """

    def foreseen(self, case: CaseT_contra) -> TraceT_co | None:
        """The least that any trace of the case has, where that is known without carrying it out.

        What a rule finds unsupported of it is so of the case's own trace, too. None: nothing is known.
        """

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:
        """Cases that are smaller than ``case``, the boldest first, always in the same order.

        A case from which none of them still fails has no step and no node that can be removed.

        Args:
            case: one that fails.
            deadly: it ends the process, so that nothing depends on what it counts.
        """

    def alone(self, case: Any, step: int) -> Any:
        """The case with nothing but one step and what that needs, of a process that ended in the step.

        Where the process ends there too, that is the smallest case, and no other is tried. None: the step is
        of a kind in which a smaller one may end it as well.

        Args:
            case: one that ended its process.
            step: the one that had begun, as in `Death`.
        """

    def revealing(self, case: Any) -> Iterator[Any]:
        """Cases that show more of what went wrong inside ``case``, where its numbers are wrong.

        The first of them that still fails names the node with which it began.
        """

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
        """Plain cases of what ``case`` uses, each operator or call by itself first.

        What is wrong in one of them already is not for the rule of ``case`` to judge.

        Args:
            case: one in which something went wrong that any case may show.
            died: it ended the process, or did not end; else an output is wrong.
        """

    def around(self, facts: Any, case: Any, call: str = "") -> Any:
        """The facts without what the control ``case`` uses, for a search that goes on without it.

        The same facts where they do not tell it apart.

        Args:
            facts: as learned, or as given here before.
            case: the control in which something is wrong.
            call: what was at work when it ended the process; empty: it did not, or that is not known.
        """

    def refused(self, rules: Collection[str]) -> str:
        """Why no run is worth while that judges these rules and no others, in one sentence; empty: one is."""

    def provenance(self) -> dict[str, str]:
        """Versions and digests for the report: library path and SHA-256, runtime, provider, ..."""

    def symbolised(self, evidence: Evidence) -> Evidence:
        """What a process left that died, with native frames by the names in the files that it had loaded."""

    def surroundings(self, passed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of the machine that carries out cases: variables that children do not get; what it does not offer.

        Args:
            passed: variables that children get although their names look like credentials'.
        """

    def learned(self) -> dict[str, Any]:
        """What of the facts the report shows, as JSON data."""

    def asked(self) -> dict[str, Any]:
        """What only the report wants to know, and costs some cases to ask, as JSON data."""

    def close(self) -> None:
        """End child processes and free what the target holds."""
