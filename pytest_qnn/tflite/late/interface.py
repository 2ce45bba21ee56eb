"""Plugin interfaces whose faults start late. Source: external_delegate_interface.h."""

from __future__ import annotations

from typing import Any

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.late.conditions import KIB, leak
from pytest_qnn.tflite.mutants import faulty_plugin
from pytest_qnn.tflite.reference.plugin import BadOption, EmulatedPlugin


@faulty_plugin(
    "late-create-33", "From the 33rd create on no delegate is made, though all others were destroyed."
)
class _Create33(EmulatedPlugin):
    """Places are given out, and never given back. facts, ABI-08: create and destroy in cycles; OWN-03."""

    created = 0

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        self.created += 1
        if self.created > 32:
            self.report(report, "there is no place for another delegate")
            return 0
        return super().make(options, flags, report)


@faulty_plugin("late-fifth-option", "Options beyond the fourth are neither checked nor used.")
class _FifthOption(EmulatedPlugin):
    """Four places. facts, ABI-04: an unknown key or a bad value makes create return NULL."""

    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        return super().read_options(keys, values, min(count, 4))


@faulty_plugin("late-long-value", "Of a value of more than 31 bytes only the first 31 are looked at.")
class _LongValue(EmulatedPlugin):
    """A buffer of 32 bytes. facts, ABI-03: values are parsed strictly."""

    def decode(self, address: int) -> str:
        return super().decode(address)[:31]


@faulty_plugin(
    "late-without-reporter", "Without a report_error an unknown option is taken for one that there is."
)
class _WithoutReporter(EmulatedPlugin):
    """The refusal is where the report is. facts, ABI-04 and ABI-06: report_error may be NULL."""

    def create(self, keys: int, values: int, count: int, report: int) -> int:
        self._report = report
        return super().create(keys, values, count, report)

    def unknown(self, key: str) -> None:
        if self._report:
            super().unknown(key)


@faulty_plugin(
    "late-second-delegate", "A delegate that is made while another lives has the options of that one."
)
class _SecondDelegate(EmulatedPlugin):
    """Options are read once, and again when none is left. Options are those of one create."""

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        if self.live:
            flags = layouts.Delegate.from_address(next(iter(self.live))).flags
        return super().make(options, flags, report)


@faulty_plugin("late-leaks-options", "A create with two options or more leaves 1 KiB behind.")
class _LeaksOptions(EmulatedPlugin):
    """The copy of the first one is freed. facts, ABI-08 and LEAK-01."""

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        if len(options) >= 2:
            leak(KIB)
        return super().make(options, flags, report)


@faulty_plugin(
    "late-leaks-refusals",
    "A create that refuses a value leaves 1 KiB behind if an option before it was good.",
)
class _LeaksRefusals(EmulatedPlugin):
    """An early return. facts, LEAK-04: a failed create leaks nothing."""

    def flags_of(self, options: dict[str, str]) -> int:
        self._good = 0
        try:
            return super().flags_of(options)
        except BadOption:
            if self._good:
                leak(KIB)
            raise

    def number(self, key: str, value: str) -> int:
        number = super().number(key, value)
        self._good += 1
        return number

    def truth(self, key: str, value: str) -> bool:
        truth = super().truth(key, value)
        self._good += 1
        return truth


@faulty_plugin("late-destroy-of-three", "destroy of a delegate while two others live ends the oldest one.")
class _DestroyOfThree(EmulatedPlugin):
    """A list is closed up from the wrong end. facts, ABI-08: exactly the pointer from create."""

    def destroy(self, address: int) -> None:
        super().destroy(next(iter(self.live)) if address and len(self.live) >= 3 else address)


@faulty_plugin(
    "late-reports-at-destroy",
    "The third destroy calls the report_error of that delegate's create.",
    deadly=True,
)
class _ReportsAtDestroy(EmulatedPlugin):
    """A summary at the end. facts, ABI-06: report_error is never called after create returns."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reports: dict[int, int] = {}
        self._destroyed = 0

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        address = super().make(options, flags, report)
        self._reports[address] = report
        return address

    def destroy(self, address: int) -> None:
        if address:
            self._destroyed += 1
            report = self._reports.pop(address)
            if self._destroyed == 3:
                self.report(report, "three delegates were destroyed")
        super().destroy(address)
