"""Failed applications that a runtime is not told of, where it does harm when it undoes them (RT-14)."""

from __future__ import annotations

from typing import Any

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.observe.prepare import WatchedPrepare, address_of


class KeptFailures(WatchedPrepare):
    """Failures of a delegate's Prepare, and of its kernels' prepare, that the runtime takes for successes.

    While it is entered the delegate may be applied; it must live as long as the interpreter does. Kernels of
    an opaque delegate are not seen: what its TfLiteOperator holds is private to the runtime.
    """

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.seen: list[str] = []
        """What failed, in words."""
        self._kernels: list[Any] = []

    def replacing(self, given: layouts.Registration) -> None:
        """Put a prepare that always succeeds in the place of the kernels' own."""
        if given.prepare:
            own = layouts.KernelCall(given.prepare)
            ours = layouts.KernelCall(lambda *seen: self._kept(own(*seen), "prepare of a kernel"))
            self._kernels.append(ours)
            given.prepare = address_of(ours)

    def ended(self, status: int) -> int:
        """The runtime is told of a success."""
        return self._kept(status, "Prepare of the delegate")

    def _kept(self, status: int, what: str) -> int:
        if status != layouts.OK:
            self.seen.append(f"{what} answers {status}")
        return layouts.OK
