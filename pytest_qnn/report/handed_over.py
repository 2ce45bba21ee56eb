"""What was found in cases of other rules, as reports of tests: pytest counts and shows them as any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pytest_qnn.core.verdict import Verdict


def reports(
    node_id: str, verdict: Verdict, properties: Sequence[tuple[str, object]], end: Callable[[], None]
) -> Iterator[pytest.TestReport]:
    """The reports of a test that ends as the verdict demands; none where it would pass or be skipped.

    Args:
        node_id: of the rule's own test.
        verdict: with ``found_by``.
        properties: for JUnit files.
        end: what ends that test, by an exception of pytest's.
    """
    try:
        end()
    except pytest.fail.Exception as ended:
        yield _called(node_id, verdict, ended)
        # JUnit files have the properties of the report that a test ends with.
        yield _report(node_id, verdict, "teardown", user_properties=list(properties))
    except pytest.skip.Exception:
        return


def _called(node_id: str, verdict: Verdict, ended: BaseException) -> pytest.TestReport:
    shown = pytest.ExceptionInfo.from_exception(ended).getrepr(style="value")
    if isinstance(ended, pytest.xfail.Exception):  # a kind of failure, too
        said = {"outcome": "skipped", "wasxfail": f"reason: {ended}"}
    else:
        said = {"outcome": "failed"}
    return _report(node_id, verdict, "call", longrepr=shown, **said)


def _report(node_id: str, verdict: Verdict, when: Any, **said: Any) -> pytest.TestReport:
    file, _, name = node_id.partition("::")
    given: dict[str, Any] = {"outcome": "passed", "longrepr": None, "keywords": {name: 1}, **said}
    place = (file, None, f"{verdict.rule}, found by {verdict.found_by}")
    return pytest.TestReport(nodeid=node_id, location=place, when=when, **given)
