"""What one pytest run knows: its options and seed, its targets, and the verdicts so far.

Imported by the plugin in every pytest run, so whatever is expensive to import is imported where it is used.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_qnn.core import activity
from pytest_qnn.core.forms import HERE
from pytest_qnn.core.printable import printable
from pytest_qnn.options import Options

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile
    from pytest_qnn.core.known_failures import Expectations
    from pytest_qnn.core.rule import Demand, Rule, Subject
    from pytest_qnn.core.target import Target
    from pytest_qnn.core.verdict import Replayed, Verdict
    from pytest_qnn.expect.claims import Difference
    from pytest_qnn.expect.file import Expected
    from pytest_qnn.isolation.stored.record import Recordings
    from pytest_qnn.session.shards import Units

SESSION: pytest.StashKey[Session] = pytest.StashKey()
"""Of a config: its session."""
VERDICTS: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()
"""Of an item: verdicts that no report has carried yet, as plain data."""
REPLAYED: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()
"""Of an item: the same for what replaying a case gave."""

_RULE_TEST = re.compile(r"(?:^|::)test_([a-z]+)_(\d+)(?:\[.*\])?$")


class Session:
    """The state of one run in one process.

    Raises:
        pytest_qnn.core.forms.BadOption: an option selects no rule of the list.
    """

    def __init__(
        self,
        config: pytest.Config,
        options: Options,
        case_file: AnyCaseFile | None = None,
        declared: Expected | None = None,
    ) -> None:
        self.config = config
        self.options = options
        self.case_file = case_file
        self.declared = declared
        """The content of the file of --qnn-expect."""
        self.started = datetime.datetime.now(datetime.timezone.utc)
        self.seed = _seed(config, options)
        self.given_up: dict[str, str] = getattr(config, "workerinput", {}).get("qnn_given_up", {})
        """In a worker of pytest-xdist: ids of tests that ended their workers, and what to say of each."""
        self.targets: dict[Subject, Target[Any, Any]] = {}
        self.unusable: dict[Subject, Exception] = {}
        """Targets that could not be opened: it is not tried again."""
        self.described: dict[tuple[str, str], Description] = {}
        self.held_back: tuple[str, ...] | None = None
        """Names of the environment variables that child processes did not get; None: no target is in any."""
        self.host_lacks: tuple[str, ...] = ()
        """What the host does not offer to processes that run cases, in sentences."""
        self.recordings: Recordings | None = None
        """What is kept of the cases of --qnn-certify."""
        self.selected = self._selected()
        """Ids of the rules that the options select; None: no option selects rules."""
        self.units = self._units()
        """With --qnn-shard: the seed blocks of each rule that this shard judges; None: it judges all."""
        self.collected: dict[str, str] = {}
        """By node id of a collected test: the id of the rule that it judges by its name."""
        self.skipped: set[str] = set()
        """Node ids of tests that the user has skipped: they are as those that were not selected."""
        self.hung: Counter[Subject] = Counter()
        """Rules of each half that hung, of those judged in this process."""
        self.parts: dict[tuple[str, str, str], list[Verdict]] = {}
        """Verdicts by subject, target and rule: of each seed block, and of other rules' cases."""
        self.verdicts: dict[tuple[str, str, str], Verdict] = {}
        """What they come to."""
        self.replayed: list[Replayed] = []
        self.in_reports: list[list[dict[str, Any]]] = []
        """Verdicts, as plain data, of tests' reports that this process has made and not logged yet."""

    def _selected(self) -> frozenset[str] | None:
        if not self.options.selection.given() or self.case_file is not None:
            return None
        from pytest_qnn.session import selection

        return selection.selected(self.options.selection, self.options.halves)

    def _units(self) -> Units | None:
        if self.options.shard is None or self.case_file is not None:
            return None
        from pytest_qnn.session import shards

        options = self.options
        return shards.units(self.campaign(), options.blocks, options.shard, options.profile)

    def campaign(self) -> list[str]:
        """Ids of the rules that the options ask for, in all shards together."""
        from pytest_qnn import rules

        return sorted(rule.id for rule in rules.listed().values() if self._asks_for(rule))

    def _asks_for(self, rule: Demand) -> bool:
        return rule.subject in self.options.halves and (self.selected is None or rule.id in self.selected)

    def wants(self, rule: Demand) -> bool:
        """Whether the run judges a rule whose test was collected, or replays its case."""
        if self.case_file is not None:
            return rule.id == self.case_file.rule
        return self._asks_for(rule) and (self.units is None or rule.id in self.units)

    def blocks(self, rule_id: str) -> tuple[int, ...]:
        """The seed blocks in which this run judges a rule, in order."""
        return tuple(range(self.options.blocks)) if self.units is None else self.units.get(rule_id, ())

    def rule(self, rule_id: str) -> Rule[Any, Any, Any]:
        """The rule with this id. Raises LookupError when the catalogue has none."""
        from pytest_qnn import rules

        return rules.named(rule_id)

    def expectations(self, rule_id: str) -> Expectations:
        """What is expected of the rule on this run's target, which is open."""
        if self.declared is None:
            from pytest_qnn.core.engine import nothing_expected

            return nothing_expected(rule_id)
        from pytest_qnn.expect import file

        subject = self.rule(rule_id).subject
        spec = self.spec(subject)
        provenance = {"target": spec, **self.described[subject, spec].provenance}
        return file.expectations(self.declared.failures, rule_id, provenance, self.started.date())

    def rule_of_test(self, name: str) -> Demand | None:
        """The rule that a test judges, by its name or node id: ``test_reg_08`` judges REG-08.

        The rule itself is not imported: the names of all collected tests are asked for.
        """
        match = _RULE_TEST.search(name)
        if match is None:
            return None
        from pytest_qnn import rules

        return rules.listed().get(f"{match[1].upper()}-{match[2]}")

    @property
    def expected(self) -> set[str]:
        """Ids of the rules whose tests were collected, and not all skipped by the user."""
        return {rule for test, rule in self.collected.items() if test not in self.skipped}

    def expect(self, tests: Iterable[str]) -> None:
        """Tests with these node ids are about to run: open every target that they need.

        Raises:
            pytest.UsageError: a target cannot be used, or the case to replay has no test.
        """
        named = {test: rule for test in tests if (rule := self.rule_of_test(test)) is not None}
        self.collected = {test: rule.id for test, rule in named.items()}
        needed = named.values()
        if self.case_file is not None and not needed:
            raise pytest.UsageError(printable(f"--qnn-replay: {self._no_test(self.case_file.rule)}"))
        if not needed:
            return
        from pytest_qnn.targets import TargetUnusable

        try:
            for subject in sorted({rule.subject for rule in needed}):
                target = self.target(subject)
                refused = target.refused(self.expected | self.elsewhere)
                if refused:
                    raise TargetUnusable(refused)
                self._ask_choices(target)
        except TargetUnusable as error:
            raise pytest.UsageError(printable(self._sentence(error))) from None

    def _ask_choices(self, target: Target[Any, Any]) -> None:
        """For the report, and so not in a worker, nor for a replay: what documents leave to the target."""
        if self.case_file is None:
            self.described[target.subject, target.spec].learned |= target.asked()

    def _no_test(self, rule_id: str) -> str:
        from pytest_qnn import rules

        if rule_id not in rules.listed():
            return f"{self.options.replay}: the catalogue has no rule {rule_id}"
        return (
            f"no collected test judges {rule_id}; "
            "name no tests on the command line, or add --pyargs pytest_qnn.conformance"
        )

    def _sentence(self, error: Exception) -> str:
        if self.case_file is None:
            return str(error)
        return f"--qnn-replay {self.options.replay}: CANNOT RUN: {error}"

    def target(self, subject: Subject) -> Target[Any, Any]:
        """The target of this run for one half of the catalogue, opened at the first call.

        Raises:
            pytest_qnn.isolation.target.TargetUnusable: with one sentence for the user.
        """
        if subject in self.unusable:
            raise self.unusable[subject]
        if subject not in self.targets:
            from pytest_qnn import targets

            try:
                target = self._opened(subject)
            except targets.TargetUnusable as error:
                self.unusable[subject] = error
                raise
            self.targets[subject] = target
            held_back, self.host_lacks = target.surroundings(self.options.env)
            if target.isolated:
                self.held_back = held_back
            self.described[subject, target.spec] = Description(
                target.options, target.provenance(), target.learned()
            )
            self._compare_claims(subject, target)
        return self.targets[subject]

    def _opened(self, subject: Subject) -> Target[Any, Any]:
        """Raises TargetUnusable, and UsageError where answers cannot be kept."""
        from pytest_qnn import targets

        activity.doing(f"learning {self.spec(subject)}")
        if self.options.certify is None:
            return targets.open_target(subject, self.options)
        try:
            self.recordings = self.recordings or targets.recordings(self.options.certify)
        except OSError as error:
            why = error.strerror or error
            raise pytest.UsageError(
                printable(f"--qnn-certify: {self.options.certify} cannot be made: {why}")
            ) from None
        return targets.open_target(subject, self.options, self.recordings.maker(subject))

    def recorded(self, rule: Demand) -> contextlib.AbstractContextManager[None]:
        """In this context the rule is judged, and with --qnn-certify its answers are kept."""
        if self.recordings is None:
            return contextlib.nullcontext()
        return self.recordings.of_rule(rule.subject, rule.id)

    def _compare_claims(self, subject: Subject, target: Target[Any, Any]) -> None:
        """Keep what the target supports less, or more, than the file of --qnn-expect declares.

        Raises:
            pytest.UsageError: the file names what there is not.
        """
        if self.declared is None or subject not in self.declared.claims:
            return
        from pytest_qnn.core.forms import BadOption
        from pytest_qnn.expect import claims

        described = self.described[subject, target.spec]
        try:
            found = claims.difference(subject, self.declared.claims[subject], described.learned)
        except BadOption as error:
            raise pytest.UsageError(printable(str(error))) from None
        described.claimed = found

    def in_this_process(self, fixture: str) -> None:
        """Fail the test where --qnn-on names another machine, of which this fixture gives no live objects."""
        if self.options.on != HERE:
            text = f"{fixture} is in this process, and --qnn-on={self.options.on} names another machine"
            pytest.fail(printable(text), pytrace=False)

    def spec(self, subject: Subject) -> str:
        """The specification string of this half's target, opened in this process or not."""
        opened = [spec for half, spec in self.described if half == subject]
        return opened[0] if opened else spec_of(self.options, subject)

    def isolated(self, subject: Subject) -> bool:
        """The target of this half runs in processes of its own, as far as is known."""
        modes = (
            found.provenance.get("isolation")
            for (half, _), found in self.described.items()
            if half == subject
        )
        return any(mode not in (None, "off") for mode in modes)

    def close(self) -> None:
        """Close every open target. What was learned of them stays."""
        while self.targets:
            self.targets.popitem()[1].close()

    def take(self, verdict: Verdict) -> None:
        """Enter a verdict; of several on one rule and target the worst is kept (`worst`)."""
        from pytest_qnn.core.verdict import worst

        key = (verdict.subject, verdict.target, verdict.rule)
        self.parts.setdefault(key, []).append(verdict)
        self.verdicts[key] = worst(self.parts[key])
        self.config.hook.pytest_qnn_verdict(config=self.config, verdict=verdict)

    @property
    def not_judged(self) -> list[str]:
        """Ids of the collected rules that have no verdict of their own, or have none in some seed block."""
        from pytest_qnn.core.verdict import not_judged

        units = ((rule, block) for rule in self.expected for block in self.blocks(rule))
        return not_judged(units, itertools.chain.from_iterable(self.parts.values()))

    @property
    def not_selected(self) -> list[str]:
        """Ids of the rules of this run's halves whose tests were not collected."""
        from pytest_qnn import rules

        about = {rule.id for rule in rules.listed().values() if rule.subject in self.options.halves}
        return sorted(about - self.expected - self.elsewhere)

    @property
    def elsewhere(self) -> frozenset[str]:
        """Ids of the rules that the options ask for and that are other shards' to judge."""
        return frozenset() if self.units is None else frozenset(self.campaign()) - self.units.keys()


class Description:
    """What the report says of a target, kept after it was closed."""

    def __init__(
        self,
        options: tuple[str, ...] = (),
        provenance: dict[str, str] | None = None,
        learned: dict[str, Any] | None = None,
    ) -> None:
        self.options = options
        self.provenance = provenance or {}
        self.learned = learned or {}
        """`Target.learned` and `Target.asked`."""
        self.claimed: Difference | None = None
        """Beside the claims of --qnn-expect."""


def spec_of(options: Options, subject: Subject) -> str:
    """The specification string of a target that was not opened in this process."""
    if subject == "memory":
        return options.backend
    return " + ".join(spec for spec, _ in options.delegates)


def _seed(config: pytest.Config, options: Options) -> int:
    """The run's seed: the user's, the main process's (in a worker of pytest-xdist) or a new one."""
    if options.seed is not None:
        return options.seed
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        return int(worker["qnn_seed"])
    return random.SystemRandom().randrange(2**32)
