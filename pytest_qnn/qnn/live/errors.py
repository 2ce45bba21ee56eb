"""What a live session raises."""

from __future__ import annotations


class QnnError(Exception):
    """A call that had to succeed did not; ``code`` is its Qnn_ErrorHandle_t."""

    def __init__(self, call: str, code: int | None, why: str = "") -> None:
        super().__init__(f"{call} gave {code}" if not why else f"{call}: {why}")
        self.code = code
