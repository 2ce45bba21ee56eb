"""Late faults that break no sentence of a MUST rule: they are counted apart, each with its reason."""

from __future__ import annotations

from typing import Final

APART: Final[dict[str, str]] = {
    # QNN memory
    "late-async-notify-17": "EXE-18, of asynchronous execution, is a MAY",
    "late-async-order": "QnnGraph.h promises no order of the ends of queued executions; EXE-18 is a MAY",
    "late-binary-read-later": "OFF-10 is a SHOULD: no header says when a binary may be freed",
    "late-device-flag": "CTX-07 is a SHOULD: whether the call is refused or frees is left open",
    "late-error-text-high": "IF-08, of the texts of codes, is a SHOULD",
    "late-error-text-stale": "IF-08, of the texts of codes, is a SHOULD",
    "late-log-level-third": "QTHR-04, of logs, is a SHOULD",
    "late-log-second-backend": "QTHR-04, of logs, is a SHOULD",
    "late-name-third-context": "no rule is about names of graphs",
    "late-pieces-third-context": "EXT-32, of binaries in pieces, is a MAY",
    "late-providers-ninth": "IF-03 is about the interface; no rule is about the array that lists it",
    "late-second-backend-takes-all": "no rule is about two backends of one process at once",
    "late-second-use-of-ion": "SHB-14 and ION-02, of one file descriptor under two types, are SHOULD",
    "late-section-after-refusal": "MSC-01, of sections of binaries, is a MAY",
    "late-section-third-graph": "MSC-01, of sections of binaries, is a MAY",
    "late-signal-freed": "no header says what QnnGraph_execute answers to a signal that is none",
    "late-zero-last-dimension": "REG-11, of dimensions of 0, is a SHOULD",
    # Delegates
    "late-fourth-failure-silent": "ERR-07, of reasons that are given, is a SHOULD",
    "late-leaks-refusals": "LEAK-04, of what failures leave behind, is a SHOULD",
    "late-profiled-events": "PROF-01, of events for the profiler, is a SHOULD",
    "late-refuses-after-refusal": "PREC-07 is about delegates that another one's failure has undone",
}
"""By fault: why. Sentences and levels are those of docs/reference/rules.md."""
