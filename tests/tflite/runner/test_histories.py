from __future__ import annotations

from typing import Any

import pytest

from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.runner.delegates import DelegateUnusable
from pytest_qnn.tflite.runner.history import Past
from pytest_qnn.tflite.runner.plain import PLAIN
from pytest_qnn.tflite.runtime.runtime import load_runtime


class Live:
    def __init__(self, closed: list[Live]) -> None:
        self.address, self._closed = 0, closed

    def close(self) -> None:
        self._closed.append(self)


class Makes:
    def __init__(self, closed: list[Live]) -> None:
        self._closed = closed

    def make(self, _: Any) -> Any:
        return Live(self._closed)


class Refuses:
    def make(self, _: Any) -> Any:
        raise DelegateUnusable("it is full")


@pytest.mark.parametrize("history", [History(used=1), History(kept=1)])
def test_of_a_chain_that_cannot_be_made_whole_nothing_is_left(history: History) -> None:
    closed: list[Live] = []
    past = Past(history, PLAIN.graph, None, (Makes(closed), Refuses()), load_runtime("auto"))  # type: ignore[arg-type]  # doubles
    assert (past.error, len(closed)) == ("it is full", 1)
