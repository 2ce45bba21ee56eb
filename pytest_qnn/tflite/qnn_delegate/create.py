"""The own interface of the reference QNN delegate: with which options TfLiteQnnDelegateCreate makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_qnn.tflite.runner.delegates import DelegateUnusable, NoDelegate
from pytest_qnn.tflite.runner.qnn_interface import (
    BACKEND_TYPE,
    BACKENDS,
    CREATE,
    UNDEFINED,
    backend_number,
    wrong_option,
)


class OwnInterface:
    """TfLiteQnnDelegateOptionsDefault and TfLiteQnnDelegateCreate, without a library.

    The first three methods are the hooks: each is one decision, and a mutant overrides one of them.
    """

    def default(self) -> int:
        """The backend_type of the default options."""
        return UNDEFINED

    def accepts(self, backend_type: int) -> bool:
        """The delegate has this backend: it has an HTP, and no other."""
        return backend_type == BACKENDS["htp"]

    def made(self, make: Callable[[], Any]) -> Any:
        """The delegate of valid options; None is NULL."""
        return make()

    def create(self, options: Mapping[str, str], make: Callable[[], Any]) -> Any:
        """What a client does: take the defaults, put its backend_type there if it has one, and create.

        Raises:
            DelegateUnusable: an option has no place in the struct.
            NoDelegate: create returns NULL.
        """
        wrong = wrong_option(options)
        if wrong:
            raise DelegateUnusable(wrong)
        given = backend_number(options[BACKEND_TYPE]) if BACKEND_TYPE in options else None
        made = self.made(make) if self.accepts(self.default() if given is None else given) else None
        if made is None:
            raise NoDelegate(f"{CREATE} returned NULL")
        return made
