"""What shows a finding without this suite: a program for the library's own authors, and a test to paste.

Whatever goes wrong here costs a note in the folder, and never a verdict.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

from pytest_qnn import rules
from pytest_qnn.case_file import encode
from pytest_qnn.core import engine
from pytest_qnn.core.engine.checking import AFTER_ALL, ANSWER
from pytest_qnn.core.printable import one_line
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Death, Target
from pytest_qnn.core.verdict import Finding, Outcome, Verdict

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile

PROGRAM: Final = "reproduce.c"
SCRIPT: Final = "reproduce.py"
ARRAYS: Final = "reproduce.npz"
WHY_NOT: Final = "reproduce.txt"
SNIPPET: Final = "snippet.py"
CONTENTS: Final = {
    PROGRAM: "the finding as one C file against the public ABI; it begins with how to build and run it",
    SCRIPT: "the finding as a script that needs the runtime and numpy only; it begins with how to run it",
    ARRAYS: "the inputs that the script sets",
    WHY_NOT: "why no program or script without this suite shows the finding",
    SNIPPET: "a test to paste into your own, which judges the case",
}
"""What each file is, by its name."""
_RUNS: Final = 4
"""How many traces that show the finding are looked at for what a program can see."""
_MOST_RUNS: Final = 8
"""How often the target carries a case out for one of them: threads do not meet in every run."""
_LONGEST_SNIPPET: Final = 20_000
"""Characters of a case that is pasted."""


def files(target: Target[Any, Any], verdict: Verdict, content: AnyCaseFile) -> dict[str, bytes]:
    """The files by name."""
    finding = verdict.finding
    if finding is None:
        return {}
    made = {}
    try:
        made = (_memory if content.subject == "memory" else _delegate)(target, verdict, finding, content)
    except Exception as error:
        made = {WHY_NOT: _why(f"it could not be written: {type(error).__name__}: {error}")}
    snippet = _snippet(verdict, content)
    return made | ({SNIPPET: snippet.encode()} if snippet else {})


def _why(reason: str) -> bytes:
    """On one line what went wrong here; it may be in a target's words, which are shown and not obeyed."""
    return f"No program without this suite shows this finding: {one_line(reason)}\n".encode()


def _memory(
    target: Target[Any, Any], verdict: Verdict, finding: Finding, content: AnyCaseFile
) -> dict[str, bytes]:
    # A run about delegates loads nothing of QNN.
    from pytest_qnn.qnn import reproduce
    from pytest_qnn.qnn.trace import MemoryTrace

    case = cast("Any", content).case
    death = _death(verdict.outcome, finding)
    said = reproduce.Finding(
        rule=verdict.rule,
        sentence=verdict.sentence,
        source=verdict.source,
        target=verdict.target,
        expected=finding.expected,
        seen=finding.seen,
        where=finding.where,
    )
    why = ""
    dead = None if death is None else MemoryTrace(death=death, facts=target.facts)
    for _ in range(1 if dead else _RUNS):
        found = dead or _shown_again(target, rules.named(verdict.rule), case)
        if found is None:
            return {WHY_NOT: _why(f"it did not show in {_MOST_RUNS} further runs of the case")}
        try:
            return {PROGRAM: reproduce.program(case, found, said).encode()}
        except reproduce.NothingSeen as reason:
            why = str(reason)
        except reproduce.NotWritten as reason:
            return {WHY_NOT: _why(str(reason))}
    return {WHY_NOT: _why(why)}


def _shown_again(target: Target[Any, Any], rule: Rule[Any, Any, Any], case: Any) -> Any:
    """A trace of the case in which the target breaks the rule once more; None: it does so no more.

    Any other run may differ from the finding's in what is left to chance, which a program would take for it.
    """
    traces = (target.run(case) for _ in range(_MOST_RUNS))
    return next((trace for trace in traces if engine.breaks(rule, case, trace)), None)


def _delegate(
    target: Target[Any, Any], verdict: Verdict, finding: Finding, content: AnyCaseFile
) -> dict[str, bytes]:
    # A run about QNN memory loads nothing of TensorFlow Lite.
    from pytest_qnn.tflite import reproduce
    from pytest_qnn.tflite.cases.domain import DomainCase
    from pytest_qnn.tflite.trace import DelegateTrace, ScriptTrace

    case = cast("Any", content).case
    # Cells of the input domain are a process each: their trace says which of them died.
    death = None if isinstance(case, DomainCase) else _death(verdict.outcome, finding)
    if death is None:
        found = target.run(case)
    else:
        found = (ScriptTrace if hasattr(case, "steps") else DelegateTrace)(death=death)
    said = reproduce.Finding(
        rule=verdict.rule,
        sentence=verdict.sentence,
        source=verdict.source,
        target=verdict.target,
        expected=finding.expected,
        seen=finding.seen,
        runtime=target.provenance().get("runtime", "").partition(" ")[0] or "tflite_runtime",
    )
    try:
        return reproduce.files(case, found, said)
    except reproduce.NotWritten as reason:
        return {WHY_NOT: _why(str(reason))}


def _death(outcome: Outcome, finding: Finding) -> Death | None:
    """How the process died, out of the finding: it is not to die once more for this.

    None: it did not, or what is said does not say enough.
    """
    step = re.search(r"\bstep (\d+)\b", finding.where)
    number = int(step[1]) if step else -1
    if outcome is Outcome.HANG and finding.expected == ANSWER:  # else only a notification was missing
        return Death("hang", finding.seen, number)
    signal = re.search(r"\bdied of (SIG[A-Z0-9]+)", finding.seen)
    if outcome is Outcome.CRASH and signal is not None:
        return Death("signal", signal[1], number, late=finding.where == AFTER_ALL)
    return None


def _snippet(verdict: Verdict, content: AnyCaseFile) -> str:
    """A test that judges exactly this case; empty: it is too long to be pasted."""
    kept = json.loads(encode(content))
    names = ("schema", "subject", "rule", "case", "expected", "seen")
    # Where the finding was made is of no concern to the test, which has a target of its own.
    nowhere = {"target": "", "options": [], "seed": 0}
    text = json.dumps({name: kept[name] for name in names if name in kept} | nowhere)
    if len(text) > _LONGEST_SNIPPET:
        return ""
    fixture = "memory_target" if content.subject == "memory" else "delegate_target"
    name = verdict.rule.lower().replace("-", "_")
    lines = [text[at : at + 90].encode() for at in range(0, len(text), 90)]
    return "\n".join(
        [
            "# To be pasted into a test module. The target is that of --qnn-backend or --tflite-delegate.",
            "import pytest",
            "",
            "from pytest_qnn.case_file import decode",
            "from pytest_qnn.core.engine import judge_case",
            "from pytest_qnn.core.verdict import Examined, Unsupported",
            "from pytest_qnn.rules import catalogue",
            "",
            "CASE = (",
            *(f"    {line!r}" for line in lines),
            ")",
            "",
            "",
            f"def test_smallest_case_of_{name}({fixture}):",
            f"    rule = catalogue()[{verdict.rule!r}]",
            f"    found = judge_case(rule, {fixture}, decode(CASE).case)",
            "    if isinstance(found, Unsupported):",
            "        pytest.skip(found.reason)",
            "    assert isinstance(found, Examined) and found.count, found",
            "",
        ]
    )
