"""What the targets of both halves share: a named library or one of ours, and an executor for its cases."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.forms import DELEGATES, HERE, is_soname, unwrapped
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Control, TargetLost
from pytest_qnn.isolation.evidence import symbols
from pytest_qnn.isolation.executor import Executing
from pytest_qnn.isolation.host import lacks
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.start import interpreter
from pytest_qnn.isolation.worker import Unusable

if TYPE_CHECKING:
    from pytest_qnn.isolation.remote.connection import Connection

_AHEAD = 8
"""Cases with processes of their own that are on their way to another machine at once."""


class TargetUnusable(TargetLost):
    """The target named by the user cannot be used; the text is one clear sentence."""


class OpenTarget:
    """What both kinds of target share: where cases run, and what was learned."""

    subject: Subject
    owner_in_company = ""
    """None: cases can be joined, or are never in company."""

    def __init__(self, spec: str, options: tuple[str, ...], executor: Executing) -> None:
        self.spec = spec
        self.options = options
        self._executor = executor
        self.isolated = executor.isolated
        self._digests: dict[str, dict[str, str]] = {}
        """By key: `digest` as it was when it was first asked for."""
        try:
            self.facts: Any = self._learned()
        except BaseException:
            executor.close()
            raise

    def _learned(self) -> Any:
        """What `_learn` gives.

        Raises:
            Unusable: the target cannot be used; also where its answers, in which are its own words, cannot be
                followed.
        """
        try:
            # A target may leave anything in an output, signalling NaN included, of which numpy warns.
            with np.errstate(invalid="ignore"):
                return self._learn()
        except (TargetLost, Unusable, RunnerFailure):
            raise
        except Exception as error:
            if not self.isolated:
                raise
            said = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            raise Unusable(
                f"what its processes answer about it does not fit together, or is read wrongly ({said})"
            ) from error

    def _digest(self, key: str, spec: str) -> dict[str, str]:
        """`digest` of what is judged: while a run lasts, a build may replace or remove the file."""
        if key not in self._digests:
            self._digests[key] = digest(key, spec, self._executor.elsewhere)
        return self._digests[key]

    def _learn(self) -> Any:
        raise TypeError("each kind of target learns its own facts")

    def run(self, case: Any) -> Any:  # noqa: ARG002 - the signature is Target's
        """Carry out one case; how a child died is in the trace."""
        raise TypeError("each kind of target runs its own cases")

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        """See `pytest_qnn.core.target.Target`. Neighbours that bear company go to one child."""
        for together, group in itertools.groupby(cases, key=self._bears_company):
            company = list(group)
            if together and len(company) > 1:
                answers = self._executor.run_all(company)
                for case in company:
                    answer, alone = next(answers)
                    yield self._seen(case, answer), alone
                    del answer  # it may be large, and is not held while the next one comes
            else:
                yield from ((trace, True) for trace in self._one_by_one(company))

    def _one_by_one(self, cases: Sequence[Any]) -> Iterator[Any]:
        """The traces of cases that have processes of their own; to another machine some are sent ahead."""
        to_come = iter([case for case in cases if self._goes_ahead(case)])
        try:
            for case in itertools.islice(to_come, _AHEAD):
                self._executor.ahead(case)
            for case in cases:
                yield self.run(case)
                for later in itertools.islice(to_come, 1):
                    self._executor.ahead(later)
        finally:
            self._executor.forget_ahead()

    def _goes_ahead(self, case: Any) -> bool:  # noqa: ARG002 - each kind of target has its own
        """Whether `run` hands this very case to the executor first of all."""
        return True

    def joined(self, cases: Sequence[Any]) -> Any:  # noqa: ARG002 - the signature is Target's
        """None, unless a half knows how."""
        return None

    def _bears_company(self, case: Any) -> bool:
        """Whether the case may share its process with others, before it and after it.

        Not one that measures its process or ends it, nor any where cases run in this process.
        """
        return self.isolated and self._executor.bears_company(case)

    def _seen(self, case: Any, answer: Any) -> Any:  # noqa: ARG002 - each kind of target has its own
        raise TypeError("each kind of target makes its own traces")

    def unfit(self, case: Any) -> str:  # noqa: ARG002 - the signature is Target's
        """Empty: any case can be tried."""
        return ""

    def missing(self, trace: Any) -> str:  # noqa: ARG002 - the signature is Target's
        """Empty: nothing is."""
        return ""

    def denies(self, gate: Sequence[str]) -> str:  # noqa: ARG002 - the signature is Target's
        """Empty: it says nothing about itself."""
        return ""

    def foreseen(self, case: Any) -> Any:  # noqa: ARG002 - the signature is Target's
        """None: nothing is known of a case that was not carried out."""
        return None

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the signature is Target's
        """Cases that are smaller than ``case``, the boldest first, always in the same order.

        Bytes are not steps: a step that others stand on, or a node that others read, seldom goes by
        changing the bytes that a case was drawn from. Here whole steps, nodes, entries of batches,
        applications and claims go. Every candidate is a valid case, and a target that obeys the rules
        passes it as it passes ``case``. A case from which none of them still fails has no step and no node
        that can be removed.

        Args:
            case: of a kind of this half.
            deadly: the case ends the process, so that nothing depends on what it counts.
        """
        raise TypeError("each kind of target makes its own cases smaller")

    def alone(self, case: Any, step: int) -> Any:  # noqa: ARG002 - the signature is Target's
        """None, unless a half knows such steps."""
        return None

    def revealing(self, case: Any) -> Iterator[Any]:  # noqa: ARG002 - the signature is Target's
        """Cases that show more of what went wrong inside ``case``; most kinds have none."""
        return iter(())

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - as `revealing`
        """See `pytest_qnn.core.target.Target`; none, unless a half knows some."""
        return iter(())

    def around(self, facts: Any, case: Any, call: str = "") -> Any:  # noqa: ARG002 - as `revealing`
        """See `pytest_qnn.core.target.Target`."""
        return facts

    def observed(self) -> dict[str, str]:
        """Of `provenance`, what the target's processes said: no file is read."""
        raise TypeError("each kind of target observes its own")

    def symbolised(self, evidence: Evidence) -> Evidence:
        """The evidence with names of native frames, of the files where cases are carried out."""
        elsewhere = self._executor.elsewhere
        if elsewhere is None:
            return symbols.symbolised(evidence)
        return msgspec.structs.replace(evidence, frames=elsewhere.named(evidence.frames))

    def surroundings(self, passed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Where cases are carried out: variables that children do not get, and what the machine lacks.

        Args:
            passed: as for `Executor`.
        """
        elsewhere = self._executor.elsewhere
        if elsewhere is None:
            return interpreter.held_back(passed), lacks.lacks()
        return elsewhere.surroundings(passed)

    def _place(self) -> dict[str, str]:
        """For the report: on which other machine cases are carried out; empty: on this one."""
        elsewhere = self._executor.elsewhere
        return {} if elsewhere is None else {"on": elsewhere.spec, "machine": elsewhere.hello.machine}

    def learned(self) -> dict[str, Any]:
        """Nothing, unless a half says more."""
        return {}

    def refused(self, rules: Collection[str]) -> str:  # noqa: ARG002 - the signature is Target's
        """Empty: each rule says itself what it cannot judge."""
        return ""

    def asked(self) -> dict[str, Any]:
        """Nothing, unless a half says more."""
        return {}

    def close(self) -> None:
        """End child processes and free what the target holds."""
        self._executor.close()


def sandbox_mode(sandbox: str, *, foreign: bool) -> str:
    """What ``--qnn-sandbox`` means for a target; ``foreign``: it is not ours, or not in this process."""
    if sandbox == "auto":
        return "fork" if foreign else "off"
    return sandbox


def on_option(on: str) -> tuple[str, ...]:
    """The option that selects another machine again."""
    return () if on == HERE else (f"--qnn-on={on}",)


def is_path(spec: str) -> bool:
    """A specification names a library."""
    builtin = spec in (*DELEGATES, "emulated")
    return not builtin and not spec.startswith(("reference:", "mutant:"))


def resolved(spec: str, on: str = HERE) -> str:
    """A path made absolute (children run in folders of their own); other specifications as they are.

    Its links stay: what a library needs may lie beside the link, where the loader looks for ``$ORIGIN``
    (ld.so(8)). But what /proc and /dev lead to is another file in another process.

    One of another machine (``on``) is absolute.
    """
    proxy, path = unwrapped(spec)
    if on != HERE or not is_path(spec) or is_soname(path):
        return spec
    made = Path(path).absolute()
    return f"{proxy}{made.resolve() if made.parts[1:2] in (('proc',), ('dev',)) else made}"


def sentence(flag: str, name: str, error: Unusable) -> str:
    """One sentence that names the option and, once, what was given to it."""
    text = str(error)
    if text.startswith("--"):
        return text
    return f"{flag}: {text}" if name in text else f"{flag}: {name}: {text}"


def digest(key: str, spec: str, elsewhere: Connection | None = None) -> dict[str, str]:
    """For the report: the path of a library, and its SHA-256, as it is where cases are carried out."""
    if not is_path(spec):
        return {}
    path = unwrapped(spec)[1]
    if is_soname(path):
        return {key: path}
    if elsewhere is not None:
        return {key: path, f"{key}_sha256": elsewhere.digest(path)}
    return {key: path, f"{key}_sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
