"""Which rules look at delegates that have a history, and who reports what goes wrong in one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final

from pytest_qnn.core.rule import Rule
from pytest_qnn.core.verdict import Examined, FailedCall, Unsupported
from pytest_qnn.tflite.strategies.history import with_history

_MEASURES: Final = (
    "it measures what cycles of its own leave behind, and takes what was there before for given"
)
_CELLS: Final = "it lists models of one node, each looked at once"
_FILE: Final = "it looks at the library's file alone"
_LISTED: Final = "it lists a few models, each looked at once"
_ALIVE: Final = "its cases are of dozens of interpreters or kernels, which are a history of their own"
_REFUSED: Final = "its calls fail on purpose, and what repeats them before the case would fail as well"
OPTED_OUT: Final[dict[str, str]] = {
    **dict.fromkeys((*(f"LEAK-0{number}" for number in range(1, 5)), "LIFE-05"), _MEASURES),
    **dict.fromkeys(("OWN-02", "OWN-03", "RSZ-05", "THR-05", "TFL-03", "ABI-08"), _MEASURES),
    **dict.fromkeys(("ABI-01", "ABI-12"), _FILE),
    "DOM-01": _CELLS,
    **dict.fromkeys(("HOS-04", "HOS-05", "HOS-06", "LEAK-05", "NUM-11"), _LISTED),
    **dict.fromkeys((f"NOM-0{number}" for number in range(1, 7)), _REFUSED),
    **dict.fromkeys(("OWN-06", "PART-22"), _ALIVE),
}
"""Rules whose cases have no history, and why. Nor have those that judge the runtime (`Rule.self_check`)."""

_REPEATS: Final = "it runs one graph again and again, or on many threads"
_RESIZES: Final = "its graphs are made to be resized, or to depend on data, in sizes of their own"
_WHERE: Final = "it is about where tensors are, and TFL-18 about how large"
_OWN: Final = "its cases are of few graphs or steps of its own"
_PARTED: Final = "all its graphs are of many nodes, and of many partitions"
NOT_LARGE: Final[dict[str, str]] = {
    **dict.fromkeys(("LEAK-01", "LEAK-02", "LEAK-03", "LEAK-04", "LIFE-05", "OWN-02"), _REPEATS),
    **dict.fromkeys(("OWN-04", "OWN-05", "OWN-06", *(f"THR-0{number}" for number in range(1, 7))), _REPEATS),
    **dict.fromkeys((f"RSZ-0{number}" for number in range(1, 6)), _RESIZES),
    **dict.fromkeys((f"DYN-0{number}" for number in range(1, 7)), _RESIZES),
    **dict.fromkeys(("CTRL-01", "CTRL-02", "CTRL-03", "CTRL-04", "PART-18", "MEM-09", "BUF-09"), _RESIZES),
    **dict.fromkeys((f"ABI-{number:02}" for number in (1, 2, 3, 4, 9, 10, 12, 15, 16)), _OWN),
    **dict.fromkeys((f"HOS-0{number}" for number in range(1, 4)), _OWN),
    **dict.fromkeys((f"NOM-0{number}" for number in range(1, 7)), _OWN),
    "PART-22": _PARTED,
    **dict.fromkeys(("TFL-17", "TFL-19"), _WHERE),
    **dict.fromkeys(("NUM-08", "TFL-01", "TFL-02", "TFL-03", "TFL-20", "TFL-21"), _OWN),
}
"""Rules whose graphs are in no class of `pytest_qnn.tflite.graph.scales`, and why."""

REPORTS: Final = "PART-04"
"""The rule whose finding it is when a call of a history fails that must succeed."""


def has_history(rule: Rule[Any, Any, Any]) -> bool:
    """Whether cases of the rule may have a history."""
    return rule.subject == "delegate" and not rule.self_check and rule.id not in OPTED_OUT


def behind_histories(rule: Rule[Any, Any, Any]) -> Rule[Any, Any, Any]:
    """The rule with histories before its cases; the rule itself, if it is to have none."""
    if not has_history(rule):
        return rule
    return dataclasses.replace(
        rule, cases=_cases(rule.cases), check=_check(rule.check, reports=rule.id == REPORTS)
    )


def _cases(cases: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(cases)
    def behind(facts: Any) -> Any:
        # A history is of dozens of delegates, each of which takes long where one does.
        return cases(facts) if facts.seconds else with_history(cases(facts))

    return behind


def _check(check: Callable[[Any, Any], Examined], *, reports: bool) -> Callable[[Any, Any], Examined]:
    @functools.wraps(check)
    def checked(case: Any, trace: Any) -> Examined:
        past = " ".join(trace.past.split())
        if past and reports:
            raise FailedCall("every call on interpreters before the case to succeed", past, "before the case")
        if past:
            with contextlib.suppress(Unsupported):
                check(case, trace)  # what the rule itself says of the case counts, whatever was before
            raise Unsupported(f"a call before the case failed ({REPORTS} judges it): {past}", final=False)
        return check(case, trace)

    return checked
