"""Delegate cases in which more is looked at, or a function of the context is made to fail.

Each is one of `pytest_qnn.cases.delegate_strategies` with more asked of it; what there is to choose is
taken from the seed of the inputs' contents, which is drawn already.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases import huge_strategies as huge
from pytest_qnn.cases.delegate import Application, DelegateCase, Fault, Refused
from pytest_qnn.cases.graph import Tensor
from pytest_qnn.cases.kinds import need_claims
from pytest_qnn.cases.script import ScriptCase
from pytest_qnn.cases.valid_delegate import MOST_ELEMENTS
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[DelegateCase]
Change = Callable[[Application, int], Application]
"""(application of the target, seed) -> what it becomes."""

_REFUSED: tuple[Refused, ...] = ("plan", "replace", "node", "preview")
_REFUSED_ANYWHERE: tuple[Refused, ...] = ("node-in-init", *_REFUSED)
_FAULTS: tuple[Fault, ...] = ("kernel-invoke", "kernel-prepare", "")
LARGE = ((MOST_ELEMENTS,), (1, MOST_ELEMENTS), (256, MOST_ELEMENTS // 256), (MOST_ELEMENTS, 1, 1, 1))
_PROBE_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")


def claimed(facts: DelegateFacts) -> Strategy:
    """A probe takes some nodes, then the target is applied; what it asks to preview is looked at."""
    need_claims(facts)
    return cases.behind_a_probe(facts).map(lambda case: replace(case, look=("previews",)))


def prepared_again(facts: DelegateFacts) -> Strategy:
    """Probes after the target, and up to two resizes: each makes the runtime prepare its kernels again."""
    return cases.before_probes(facts).map(lambda case: replace(case, redo=case.data_seed % 3))


def calls_of_kernels(facts: DelegateFacts) -> Strategy:
    """Kernels that are prepared several times, and invoked; what they call of the context is counted."""
    return cases.before_probes(facts).map(lambda case: replace(case, look=("forbidden",), invokes=2))


def lent_nodes(facts: DelegateFacts) -> Strategy:
    """What Prepare was lent is taken back. Every second case applies the delegate again, after a resize."""
    return cases.routing(facts).map(lambda case: replace(case, look=("lent",), redo=case.data_seed & 1))


def lent_plans(facts: DelegateFacts) -> Strategy:
    """As `lent_nodes`, with probes that ask for a plan of their own after the target."""
    return cases.before_probes(facts).map(lambda case: replace(case, look=("lent",)))


def refused_in_init(facts: DelegateFacts) -> Strategy:
    """GetNodeAndRegistration fails in one of the first three inits."""

    def change(application: Application, seed: int) -> Application:
        return replace(application, refused="node-in-init", refused_call=seed % 3)

    return cases.routing(facts).map(lambda case: _with_target(case, change))


def refused_in_prepare(facts: DelegateFacts) -> Strategy:
    """A function that Prepare needs fails: at its first call, or GetNodeAndRegistration at one of four."""
    return cases.routing(facts).map(lambda case: _with_target(case, _refuse(_REFUSED)))


def refused_anywhere(facts: DelegateFacts) -> Strategy:
    """As `refused_in_prepare`, or in an init."""
    return cases.routing(facts).map(lambda case: _with_target(case, _refuse(_REFUSED_ANYWHERE)))


def refused_plan(facts: DelegateFacts) -> Strategy:
    """GetExecutionPlan fails; texts given to ReportError are kept."""

    def change(application: Application, _: int) -> Application:
        return replace(application, refused="plan")

    return cases.anything(facts).map(lambda case: replace(_with_target(case, change), look=("reports",)))


def late_data(facts: DelegateFacts) -> Strategy:
    """Tensors have memory, with other contents, before delegates are applied; their data is looked at."""
    return cases.routing(facts).map(lambda case: replace(case, late=True, look=("data",)))


def graph_around_prepare(facts: DelegateFacts) -> Strategy:
    """The graph before and after each Prepare; tensors have memory in every second case."""
    return cases.anything(facts).map(
        lambda case: replace(case, late=bool(case.data_seed & 1), look=("graph",))
    )


def tensors_added(facts: DelegateFacts) -> Strategy:
    """Kernels that are prepared several times; how many tensors there are is counted."""
    return cases.before_probes(facts).map(lambda case: replace(case, look=("tensors",), invokes=2))


def names(facts: DelegateFacts) -> Strategy:
    """Names of kernels, here and on a second interpreter."""
    return cases.routing(facts).map(lambda case: replace(case, look=("names",), again="interpreter"))


def hostile(facts: DelegateFacts) -> SearchStrategy[DelegateCase | ScriptCase]:
    """Inputs that are infinite, not a number, or at the ends of their range; every fourth case refuses.

    In every tenth case tensors are as large as a model's are here: their elements are not counted by 16
    bits. In every other tenth an input is resized to more (`pytest_qnn.cases.huge_strategies`).
    """
    kinds = huge.plain_kinds(facts)
    plain = [op for dtype, op in kinds if dtype == "float32"]

    def change(case: DelegateCase) -> DelegateCase | ScriptCase:
        changed = replace(case, fill="extreme" if case.data_seed % 3 == 2 else "special")
        choice = case.data_seed // 10
        if kinds and case.data_seed % 10 == 9:
            return huge.grown(facts, kinds, choice)
        if plain and case.data_seed % 10 == 4:
            graph = huge.two_nodes(plain[choice % len(plain)], Tensor(LARGE[choice % len(LARGE)]))
            claimed = tuple(replace(one, claim=one.claim and (0, 1)) for one in case.applications)
            return replace(changed, graph=graph, applications=claimed)
        return _with_target(changed, _refuse(_REFUSED_ANYWHERE)) if case.data_seed % 4 == 3 else changed

    return cases.anything(facts).map(change)


def failing_invoke(facts: DelegateFacts) -> Strategy:
    """Three invokes with inputs of their own, of which the second fails.

    A probe's kernel fails, beside the target's; or, in every second case, that of a target that can be told.
    """

    def change(case: DelegateCase) -> DelegateCase:
        seed = case.data_seed
        who = "target" if facts.steerable and not seed & 1 else "probe"
        case = replace(case, invokes=3, reseed=(seed, seed ^ 1, seed ^ 2), poison=(0xEE, 0xEE, 0xEE))
        first = next(at for at, one in enumerate(case.applications) if one.who == who)
        failing = replace(case.applications[first], fault="second-invoke")
        applications = (*case.applications[:first], failing, *case.applications[first + 1 :])
        return replace(case, applications=applications)

    need_claims(facts)
    return cases.between_probes(facts).map(change)


def failing_callbacks(facts: DelegateFacts) -> Strategy:
    """Any graph; a target that can be told to fails in kernel prepare or in invoke, or does not."""

    def change(application: Application, seed: int) -> Application:
        return replace(application, fault=_FAULTS[seed % 3] if facts.steerable else "")

    return cases.anything(facts).map(lambda case: _with_target(case, change))


def behind_a_failure(facts: DelegateFacts) -> Strategy:
    """A probe fails, then the target is applied."""

    def change(case: DelegateCase) -> DelegateCase:
        fault = _PROBE_FAULTS[case.data_seed % 3]
        first, *rest = case.applications
        return replace(case, applications=(replace(first, fault=fault), *rest))

    return cases.behind_a_probe(facts).map(change)


def previewed(facts: DelegateFacts) -> Strategy:
    """The runtime is asked for the partitions of each claim before it is replaced."""
    return cases.between_probes(facts).map(lambda case: replace(case, look=("previews",)))


def redone(facts: DelegateFacts) -> Strategy:
    """Several delegates, undone and redone by resizes; the order in force is noted."""
    return cases.between_probes(facts).map(
        lambda case: replace(case, look=("order",), redo=1 + (case.data_seed & 1))
    )


def _refuse(choices: tuple[Refused, ...]) -> Change:
    def change(application: Application, seed: int) -> Application:
        refused = choices[seed % len(choices)]
        later = refused in ("node", "node-in-init")
        return replace(application, refused=refused, refused_call=seed // 8 % 4 if later else 0)

    return change


def _with_target(case: DelegateCase, change: Change) -> DelegateCase:
    applications = tuple(
        change(application, case.data_seed) if application.who == "target" else application
        for application in case.applications
    )
    return replace(case, applications=applications)
