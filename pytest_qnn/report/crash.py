"""What a process left that died, as text and as JSON data."""

from __future__ import annotations

from typing import Any

from pytest_qnn.core.evidence import Evidence

_FRAMES, _CALLS, _STDERR = 16, 12, 12
"""Lines of each that are shown on a terminal; the finding's folder has all."""
_EXCEPTION = (
    "reason    a C++ exception came out of the target's function, which is called as C; its caller did not "
    "survive that"
)


def lines(evidence: Evidence, *, all_of_it: bool = False) -> list[str]:
    """The text: headings, and what stands below them indented.

    Args:
        evidence: with the frames' texts.
        all_of_it: every line of it, else as many as fit on a terminal.
    """
    frames = [f"#{number:<2} {frame.place}" for number, frame in enumerate(evidence.frames)]
    calls = [call.text if call.step < 0 else f"{call.step:>3}: {call.text}" for call in evidence.calls]
    stderr = evidence.stderr.splitlines()
    first = next((number for number, line in enumerate(stderr) if evidence.said in line), 0)
    if not all_of_it:
        # What says most is at the end of most logs, and at the start of a sanitizer's report.
        stderr = stderr[max(0, min(first - 1, len(stderr) - _STDERR)) :]
    parts = (
        ("stderr", stderr, _cut(stderr, _STDERR)),
        ("native backtrace", frames, _cut(frames, _FRAMES)),
        ("calls, by step", calls, _last(calls, _CALLS)),
    )
    text = [_EXCEPTION] if evidence.is_of_exception else []
    for heading, whole, short in parts:
        if whole:
            text += [heading, *(f"  {line}" for line in (whole if all_of_it else short))]
    return text


def _cut(text: list[str], most: int) -> list[str]:
    return text if len(text) <= most else [*text[:most], f"... {len(text) - most} more lines"]


def _last(text: list[str], most: int) -> list[str]:
    return text if len(text) <= most else [f"... {len(text) - most} earlier ones", *text[-most:]]


def data(evidence: Evidence) -> dict[str, Any] | None:
    """For the JSON report; None: nothing was left."""
    if not evidence:
        return None
    return {
        "during": evidence.during,
        "fault": evidence.fault,
        "stderr": evidence.stderr,
        "backtrace": [
            {"at": frame.text, "file": frame.file, "offset": frame.offset, "line": frame.line}
            for frame in evidence.frames
        ],
        "calls": [
            {"name": call.name, "step": call.step, "status": call.status, "result": call.result}
            for call in evidence.calls
        ],
    }
