"""What a live session raises, and warns of."""

from __future__ import annotations

from pytest_qnn.qnn.model.codes import named


class WrongFree(UserWarning):
    """The emulated rpcmem was given an address to free that it has not given, or has freed before."""

    # A signature, which the page of fixtures shows: built-in warnings have none.
    def __init__(self, text: str) -> None:
        super().__init__(text)


class QnnError(Exception):
    """A call that had to succeed did not; ``code`` is its Qnn_ErrorHandle_t."""

    def __init__(self, call: str, code: int | None, why: str = "") -> None:
        gave = "no code" if code is None else named(code)
        super().__init__(f"{call}: {why}" if why else f"{call} gave {gave}")
        self.code = code
