"""The hooks that this plugin calls: what a conftest.py or another plugin may implement.

Both are called in the main process only, never in a worker of pytest-xdist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_qnn.core.verdict import Verdict


@pytest.hookspec()
def pytest_qnn_verdict(config: pytest.Config, verdict: Verdict) -> None:
    """A rule was judged.

    Called once per judgement, as it comes in, in the order of arrival (under pytest-xdist that is not
    the order of collection).
    """


@pytest.hookspec()
def pytest_qnn_report(config: pytest.Config, document: dict[str, Any]) -> None:
    """The report is about to be written, in every format that was asked for.

    ``document`` is the report as JSON data (``pytest_qnn/report/schema.json``). An implementation may add
    keys to ``document["extra"]``, for example the version of a vendor's SDK or the name of a board; the
    rest belongs to the schema. Where an implementation fails, or adds what JSON cannot have, the report is
    written without what they all have added, and the run says so and ends with status 3.
    """
