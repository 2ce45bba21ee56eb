"""A plugin that ends its process behind other cases, and in none of them alone: a finding all the same."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import native_plugins
import pytest
from fast_run import later

from pytest_qnn.core.engine import judge_with_owners
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.rules import named
from pytest_qnn.tflite.target import open_delegate_target

AT_MANY_SIZES = """
  static unsigned char seen[4096];
  static int sizes;
  if (!seen[out->bytes % 4096]++ && ++sizes == 14) abort()
"""
"""Results of so many sizes are in the cases of one child together, and in no case."""
PROFILE = Profile("few", 60, 60, shrink_seconds=5.0)


@pytest.mark.parametrize("rule_id", [later("NUM-10"), "RUN-01"])
def test_a_process_that_ends_behind_other_cases_is_the_finding_of_the_owner(
    tmp_path: Path, rule_id: str
) -> None:
    library = native_plugins.plugin(tmp_path, IN_INVOKE=" ".join(AT_MANY_SIZES.split()))
    with closing(open_delegate_target([(str(library), {})], "ai_edge_litert", "auto", 10.0)) as target:
        own, handed_over = judge_with_owners(named(rule_id), target, PROFILE, 1, named)
    assert own.only_in_company == 1
    if rule_id != "RUN-01":
        assert own.outcome is Outcome.PASS
        (own,) = handed_over
        assert own.found_by == rule_id
    assert (own.rule, own.outcome) == ("RUN-01", Outcome.CRASH)
    assert own.flaky.startswith("failed twice, behind ")
    assert own.finding is not None
    assert "invoke" in own.finding.evidence.during
    assert own.is_red(strict=False)
