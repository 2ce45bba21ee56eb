"""The page of verdicts and exit codes."""

from __future__ import annotations

from pytest_qnn.core.verdict import Outcome

_SAID = {
    Outcome.PASS: ("every case that the rule examined was as it demands; at least one was", "passes"),
    Outcome.FAIL: ("a case was not", "fails, if the rule is a MUST (below)"),
    Outcome.CRASH: ("the process died: a signal, an exit, an uncaught exception", "fails"),
    Outcome.HANG: ("a case did not end in its time", "fails"),
    Outcome.UNSUPPORTED: ("the target does not offer what the rule is about", "is skipped, with the reason"),
    Outcome.CONTRADICTION: ("the target says of itself what it does not keep", "fails"),
    Outcome.INCONCLUSIVE: (
        "the rule could examine nothing, or what it measured did not come again; never a pass",
        "fails, or is skipped where a finding of another rule is the cause (below)",
    ),
}
_HEAD = """\
# Verdicts and exit codes

Written by `python -m tools.reference`; a test keeps it so.

| verdict | what was seen | the test of the rule |
|---|---|---|
"""
_TAIL = """
* A fail of a SHOULD is an expected failure (`xfail`); under `--qnn-strict` it fails. A fail, contradiction or
  inconclusive of a MAY is an expected failure, also under `--qnn-strict`. A crash or hang fails at any level.
* A fault that many rules meet is one finding. Where a plain run of a case's operators, graphs or calls goes
  wrong too, that is the finding of the rule that owns the fault. The owner has a verdict in this run even if
  its test was not selected: it is reported behind all tests, as one more failed test on the terminal and in
  JUnit files, and the exit status is 1 ([how](../explanation/decisions/shared/blame.md)).
* The search for other violations of the rule goes on around such a fault. If nothing is left to judge, the
  rule is inconclusive, and its test is skipped as "blocked by" the owner. Where the owners' findings fail no
  run (they are of a SHOULD), the test of the blocked rule fails.
* One finding does not hide others under its rule: up to nine more, in other calls, with other operators or
  of other seed blocks (`--qnn-blocks`), stand beside it, and the worst is the verdict.
* A finding that was seen once and not when it was repeated is marked as flaky, and fails.
* A rule that was not judged (the run was interrupted, the target was lost, a worker of pytest-xdist died and
  was not replaced) stands in the report as `not judged`. One whose test you skip (`pytest.mark.skip`) stands
  there as `not selected`, as one that you deselect.

## Exit status of pytest

| status | when |
|---|---|
| 0 | nothing failed: every test passed, was skipped or failed as expected |
| 1 | a test failed, the owner of a fault failed though it was not selected, a rule was not judged, \
the target supports less than was declared, or a known failure was not found |
| 2 | the run was interrupted (Ctrl-C; SIGTERM and SIGHUP where `--qnn-report` is given) |
| 3 | pytest or a plugin failed itself, or a report (or an answer for `--qnn-certify`) could not be written |
| 4 | wrong usage, said in one sentence before any test |
| 5 | no test was selected |

With `--qnn-replay` the status is 0 where the case is FIXED (or PASSES HERE), and 1 where it STILL FAILS (or
FAILS HERE) or CANNOT RUN, or where no test has judged the case (a conftest.py skips it, say); 4
where that was known before any test. `-m` and `-k` are ignored. Other commands have statuses of their own:
[compare](../how-to/compare.md), [merge](../how-to/shards.md), [certify and
verify](../how-to/certification.md).
"""


def page() -> str:
    """The page as Markdown: a row for each verdict."""
    rows = (f"| {outcome.value} | {_SAID[outcome][0]} | {_SAID[outcome][1]} |\n" for outcome in Outcome)
    return _HEAD + "".join(rows) + _TAIL
