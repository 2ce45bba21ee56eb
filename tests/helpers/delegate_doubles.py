"""Delegates that tests make up: subclasses of the reference, wrapped as factories."""

from __future__ import annotations

from collections.abc import Callable

from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate


class Factory:
    """Makes delegates of one class and remembers them."""

    def __init__(self, name: str, create: Callable[..., ReferenceDelegate]) -> None:
        self.name = name
        self.made: list[ReferenceDelegate] = []
        self._create = create

    def make(self, application: Application) -> ReferenceDelegate:
        self.made.append(self._create(claim=application.claim))
        return self.made[-1]
