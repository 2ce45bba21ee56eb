from __future__ import annotations

import subprocess

import pytest

from pytest_qnn.tflite.reproduce import frame


def test_a_program_says_what_was_seen_when_it_was_written_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "PLAN", {"expected": "this", "seen": "that"})
    monkeypatch.setattr(frame, "judged", lambda _status, _lines: 0)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, ""))
    assert frame.main(["delegate.so"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == ["expected:  this", "seen then: that", "0: this is not seen here"]
