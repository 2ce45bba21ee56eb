"""A target: something that turns a Case into a Trace."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from pytest_qnn.core.rule import Subject
from pytest_qnn.trace import Death

CaseT_contra = TypeVar("CaseT_contra", contravariant=True)
TraceT_co = TypeVar("TraceT_co", covariant=True)


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

    def run_fresh(self, case: CaseT_contra) -> TraceT_co:
        """The same in a process that has carried out nothing else, also where cases run in this process."""

    def provenance(self) -> dict[str, str]:
        """Versions and digests for the report: library path and SHA-256, runtime, provider, ..."""

    def close(self) -> None:
        """End child processes and free what the target holds."""
