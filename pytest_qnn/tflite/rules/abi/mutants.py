"""Plugin interfaces with one fault each, for the rules of ABI."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.plugin import CREATE, DESTROY
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_plugin
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.plugin import BadOption, EmulatedPlugin

_LEAK = 1024
_PAGE = 4096
_MALLOC = ctypes.CDLL(None).malloc
_MALLOC.restype, _MALLOC.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)


@faulty_plugin("plugin-mangled", "Exports both functions under C++ names.", "ABI-01")
class _Mangled(EmulatedPlugin):
    exports = ("_Z29tflite_plugin_create_delegatePPcS0_mPFvPKcE", "_Z30tflite_plugin_destroy_delegatePv")


@faulty_plugin("plugin-no-destroy", "Exports no destroy.", "ABI-01")
class _ExportsNoDestroy(EmulatedPlugin):
    exports = (CREATE,)


@faulty_plugin("plugin-reads-first-key", "Reads keys[0] without options.", "ABI-02", deadly=True)
class _ReadsFirstKey(EmulatedPlugin):
    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        ctypes.string_at(peek.pointer(keys))
        return super().read_options(keys, values, count)


@faulty_plugin("plugin-needs-an-option", "Returns NULL without options.", "ABI-02")
class _NeedsAnOption(EmulatedPlugin):
    def flags_of(self, options: dict[str, str]) -> int:
        if not options:
            raise BadOption("num_threads is missing")
        return super().flags_of(options)


@faulty_plugin("plugin-numbers-loosely", "Takes 'abc' for 0, as atoi does.", "ABI-03")
class _ReadsNumbersLoosely(EmulatedPlugin):
    """As atoi does: what is no number is 0."""

    def number(self, key: str, value: str) -> int:  # noqa: ARG002 - the signature is the plugin's
        digits = value[: len(value) - len(value.lstrip("0123456789"))]
        return int(digits or 0)


@faulty_plugin("plugin-truth-loosely", "Takes everything but true for false.", "ABI-03")
class _ReadsTruthLoosely(EmulatedPlugin):
    def truth(self, key: str, value: str) -> bool:  # noqa: ARG002 - as above
        return value.lower() == "true"


@faulty_plugin("plugin-cuts-options", "Writes into the options' texts.", "ABI-03")
class _CutsOptions(EmulatedPlugin):
    """As strtok does: writes into the values."""

    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        options = super().read_options(keys, values, count)
        for index in range(count):
            ctypes.memset(peek.pointer(values + 8 * index), 0, 1)
        return options


@faulty_plugin("plugin-ignores-unknown", "Ignores unknown keys.", "ABI-04")
class _IgnoresUnknown(EmulatedPlugin):
    def unknown(self, key: str) -> None:
        pass


@faulty_plugin("plugin-refuses-silently", "Returns NULL without a report.", "ABI-04")
class _RefusesSilently(EmulatedPlugin):
    def report(self, function: int, text: str) -> None:
        pass


@faulty_plugin("plugin-text-silently", "Returns NULL for text that is not UTF-8, without a report.", "ABI-04")
class _TextSilently(EmulatedPlugin):
    """Its reader of text gives up before there is an option that it could name."""

    def create(self, keys: int, values: int, count: int, report: int) -> int:
        try:
            self.read_options(keys, values, count)
        except BadOption:
            return 0
        return super().create(keys, values, count, report)


@faulty_plugin("plugin-reports-freed", "The text that it reports was given back before.", "ABI-04")
class _ReportsFreed(EmulatedPlugin):
    """Its first bytes are those of an address, which an allocator keeps in memory that was given back."""

    def report(self, function: int, text: str) -> None:
        if function:
            layouts.PluginReport(function)(b"\x40\xb3\x8e\x2c\x7f" + text.encode()[5:])


@faulty_plugin("plugin-drops-bytes", "Leaves out what is no ASCII before it reads a value.", "ABI-03")
class _DropsBytes(EmulatedPlugin):
    """A number with an odd byte behind it is that number."""

    def decode(self, address: int) -> str:
        return ctypes.string_at(address).decode("ascii", errors="ignore")


class _Rereads(ReferenceDelegate):
    """Parses its options again in each Prepare."""

    check: Callable[[], object] | None = None

    def prepare(self, context: int) -> int:
        if self.check is not None:
            self.check()
        return super().prepare(context)


@faulty_plugin("plugin-keeps-options", "Reads its options in each Prepare.", "ABI-05")
class _KeepsOptions(EmulatedPlugin):
    def __init__(self, _: object = None) -> None:
        super().__init__(_Rereads)
        self.given = (0, 0, 0)

    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        self.given = keys, values, count
        return super().read_options(keys, values, count)

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        address = super().make(options, flags, report)
        given = self.given
        delegate: Any = self.live[address]
        delegate.check = lambda: self.flags_of(EmulatedPlugin.read_options(self, *given))
        return address


@faulty_plugin("plugin-keeps-report", "Calls report_error in Prepare.", "ABI-06")
class _KeepsReport(EmulatedPlugin):
    def __init__(self, _: object = None) -> None:
        super().__init__(_Rereads)

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        address = super().make(options, flags, report)
        delegate: Any = self.live[address]
        delegate.check = lambda: self.report(report, "preparing")
        return address


@faulty_plugin("plugin-reports-always", "Calls report_error when it is NULL.", "ABI-06", deadly=True)
class _ReportsAlways(EmulatedPlugin):
    """Calls report_error without asking whether there is one."""

    def report(self, function: int, text: str) -> None:
        layouts.PluginReport.from_address(ctypes.addressof(ctypes.c_void_p(function)))(text.encode())


@faulty_plugin("plugin-needs-report", "Makes no delegate without a report_error.", "ABI-06")
class _NeedsReport(EmulatedPlugin):
    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        return super().make(options, flags, report) if report else 0


@faulty_plugin("plugin-reads-null", "Dereferences NULL in destroy.", "ABI-07", deadly=True)
class _ReadsNull(EmulatedPlugin):
    def destroy(self, address: int) -> None:
        if not address:
            peek.pointer(0)
        super().destroy(address)


@faulty_plugin("plugin-null-is-last", "destroy(NULL) destroys the last delegate.", "ABI-07")
class _NullIsTheLast(EmulatedPlugin):
    def destroy(self, address: int) -> None:
        super().destroy(address or next(reversed(self.live), 0))


@faulty_plugin("plugin-destroys-first", "destroy ends the oldest delegate.", "ABI-08")
class _DestroysTheFirst(EmulatedPlugin):
    def destroy(self, address: int) -> None:
        super().destroy(next(iter(self.live), 0) if address else 0)


@faulty_plugin("plugin-destroys-last", "destroy ends the newest delegate.", "ABI-08")
class _DestroysTheLast(EmulatedPlugin):
    def destroy(self, address: int) -> None:
        super().destroy(next(reversed(self.live), 0) if address else 0)


@faulty_plugin("plugin-leaks", "destroy gives 1 KiB not back.", "ABI-08")
class _Leaks(EmulatedPlugin):
    """Takes memory in create that destroy does not give back."""

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        _MALLOC(_LEAK)
        return super().make(options, flags, report)


@faulty_plugin("plugin-keeps-mapping", "destroy leaves a page mapped that create has mapped.", "ABI-08")
class _KeepsMapping(EmulatedPlugin):
    """Takes memory of its own mapping in create, which destroy does not unmap."""

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        libc.mmap(None, _PAGE, libc.PROT_READ | libc.PROT_WRITE, libc.MAP_PRIVATE_ANONYMOUS, -1, 0)
        return super().make(options, flags, report)


class _Spoils(EmulatedPlugin):
    """Changes the struct of a new delegate."""

    def make(self, options: dict[str, str], flags: int, report: int) -> int:
        address = super().make(options, flags, report)
        self.spoil(layouts.Delegate.from_address(address))
        return address

    def spoil(self, struct: layouts.Delegate) -> None:
        """The change."""


@faulty_plugin("plugin-ends-at-byte-48", "Leaves opaque_delegate_builder uninitialised.", "ABI-09")
class _EndsAtByte48(_Spoils):
    """What follows a struct of old headers in memory."""

    def spoil(self, struct: layouts.Delegate) -> None:
        struct.opaque_delegate_builder = 0x2D2D2D2D2D2D


@faulty_plugin("plugin-unknown-flags", "Sets flags that there are not.", "ABI-09")
class _UnknownFlags(_Spoils):
    def spoil(self, struct: layouts.Delegate) -> None:
        struct.flags |= 0x7F00


@faulty_plugin("plugin-no-prepare", "Has neither Prepare nor builder.", "ABI-09")
class _NoPrepare(_Spoils):
    def spoil(self, struct: layouts.Delegate) -> None:
        struct.Prepare = None


@faulty_plugin("plugin-garbage-callback", "A callback shows no code.", "ABI-09")
class _GarbageCallback(_Spoils):
    def spoil(self, struct: layouts.Delegate) -> None:
        struct.FreeBufferHandle = ctypes.addressof(struct)


@faulty_plugin("plugin-opaque-plain", "Passes an opaque delegate's registration without operator.", "ABI-11")
class OpaquePlugin(_Spoils):
    """An opaque delegate that passes an ordinary registration, as before there were operators."""

    def __init__(self, delegate: Callable[[], Any] = ReferenceDelegate) -> None:
        super().__init__(delegate)
        self._builders: dict[int, tuple[object, ...]] = {}

    def spoil(self, struct: layouts.Delegate) -> None:
        """Move its Prepare into an opaque builder."""
        own = layouts.DelegatePrepare(struct.Prepare)
        address = ctypes.addressof(struct)
        prepare = layouts.OpaquePrepare(lambda context, *_: own(context, address))
        builder = layouts.OpaqueDelegateBuilder(Prepare=ctypes.cast(prepare, ctypes.c_void_p).value)
        self._builders[address] = (own, prepare, builder)  # until another delegate is where this one was
        struct.opaque_delegate_builder = ctypes.addressof(builder)
        struct.Prepare = None


@faulty_plugin("plugin-mixes", "Sets CopyFromBufferHandle beside a builder.", "ABI-10")
class _Mixes(OpaquePlugin):
    """An opaque builder beside a callback of its own."""

    def spoil(self, struct: layouts.Delegate) -> None:
        callback = layouts.CopyBufferHandle(lambda *_: layouts.OK)
        super().spoil(struct)
        self._builders[ctypes.addressof(struct)] += (callback,)
        struct.CopyFromBufferHandle = ctypes.cast(callback, ctypes.c_void_p).value


@faulty_plugin("plugin-needs-tflite", "Needs TfLiteIntArrayCreate from the runtime.", "ABI-12")
class _NeedsTflite(EmulatedPlugin):
    undefined = ("TfLiteIntArrayCreate",)
    load_error = "undefined symbol: TfLiteIntArrayCreate"


@faulty_plugin("plugin-exports-tflite", "Exports functions of TensorFlow Lite.", "ABI-14")
class _ExportsTflite(EmulatedPlugin):
    exports = (CREATE, DESTROY, "TfLiteIntArrayCreate", "_ZN6tflite16RegisterSelectedEv")


@faulty_delegate(
    "garbage-tail", "Leaves the last 24 bytes of its registration as the stack has them.", "ABI-13"
)
class _GarbageTail(ReferenceDelegate):
    """Built with headers that end its registration at byte 64: the rest is what the stack holds."""

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        registration = super().registration(nodes)
        registration.inplace_operator = 0x7FFE_0000_0000 | len(nodes) << 4
        return registration


class _Opens(EmulatedPlugin):
    """Opens a file of its own for each delegate, as it would a library."""

    def create(self, keys: int, values: int, count: int, report: int) -> int:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return self.missing(report, str(error))
        return super().create(keys, values, count, report)

    def missing(self, report: int, reason: str) -> int:
        self.report(report, f"a library is missing: {reason}")
        return 0


@faulty_plugin("plugin-missing-silently", "Reports nothing where a library is missing.", "ABI-15")
class _MissingSilently(_Opens):
    def missing(self, report: int, reason: str) -> int:  # noqa: ARG002 - that is the fault
        return 0


@faulty_plugin("plugin-missing-for-good", "Once a library was missing, it makes no delegate.", "ABI-15")
class _MissingForGood(_Opens):
    reason = ""

    def create(self, keys: int, values: int, count: int, report: int) -> int:
        if self.reason:
            return super().missing(report, self.reason)
        return super().create(keys, values, count, report)

    def missing(self, report: int, reason: str) -> int:
        self.reason = reason
        return super().missing(report, reason)


@faulty_plugin(
    "plugin-reads-to-null", "Reads keys until one is NULL, and not so many as there are.", "ABI-16"
)
class _ReadsToNull(EmulatedPlugin):
    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        found = 0
        while keys and peek.pointer(keys + 8 * found):
            found += 1
        return super().read_options(keys, values, min(found, count))


@faulty_plugin("plugin-copies-wide-values", "Copies 16 bytes of each value, however short it is.", "ABI-16")
class _CopiesWideValues(EmulatedPlugin):
    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        own = ctypes.create_string_buffer(17)
        for index in range(count):
            ctypes.memmove(own, peek.pointer(values + 8 * index), 16)
        return super().read_options(keys, values, count)


@faulty_plugin(
    "plugin-compares-wide-names", "Compares eleven bytes of each key with num_threads at once.", "ABI-16"
)
class _ComparesWideNames(EmulatedPlugin):
    """As memcmp may, which is given the length of one of the two."""

    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        for index in range(count):
            ctypes.string_at(peek.pointer(keys + 8 * index), len("num_threads"))
        return super().read_options(keys, values, count)
