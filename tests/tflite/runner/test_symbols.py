from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from native import build

from pytest_qnn.tflite.runner.plugin.symbols import described
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.runtime.symbols import dynamic_symbols, function_offsets

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

SOURCE = """
extern int wanted(int);
extern int maybe(int) __attribute__((weak));
int shown(void) { return wanted(1) + (maybe ? maybe(1) : 0); }
int variable = 1;
__attribute__((visibility("hidden"))) int hidden(void) { return 2; }
__attribute__((visibility("protected"))) int guarded(void) { return 4; }
static int local(void) { return 3; }
int (*pointer)(void) = local;
"""


@needs_compiler
def test_exports_are_what_others_may_be_bound_to(tmp_path: Path) -> None:
    exports = dynamic_symbols(build(tmp_path, SOURCE)).exports
    assert {"shown", "variable", "guarded", "pointer"} <= exports
    assert not exports & {"hidden", "local", "wanted", "maybe"}


@needs_compiler
def test_undefined_symbols_leave_weak_ones_out(tmp_path: Path) -> None:
    undefined = dynamic_symbols(build(tmp_path, SOURCE)).undefined
    assert "wanted" in undefined
    assert not undefined & {"maybe", "shown", "hidden"}


@needs_compiler
def test_local_functions_have_offsets_too(tmp_path: Path) -> None:
    offsets = function_offsets(build(tmp_path, SOURCE))
    assert {"shown", "hidden", "local"} <= offsets.keys()
    assert "variable" not in offsets


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(b"\x7fELF\x01 and so on")
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        dynamic_symbols(path)


@needs_compiler
def test_a_library_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path, SOURCE)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="lead out of the file"):
        dynamic_symbols(path)


def test_tflite_runtime_exports_its_functions_and_litert_does_not() -> None:
    exports = [
        dynamic_symbols(load_runtime(name).library).exports for name in ("tflite_runtime", "ai_edge_litert")
    ]
    assert "TfLiteIntArrayCreate" in exports[0]
    assert not [name for name in exports[1] if name.startswith("TfLite")]


@needs_compiler
def test_only_functions_that_the_runtime_has_too_are_tflites_own(tmp_path: Path) -> None:
    source = """
    void* TfLiteIntArrayCreate(int size) { return (void*)0; }
    void* TfLiteVendorDelegateCreate(void) { return (void*)0; }
    void* _ZN6tflite6vendor6CreateEv(void) { return (void*)0; }
    extern void* TfLiteVendorDelegateHelp(void);
    void* tflite_plugin_create_delegate(void) { return TfLiteVendorDelegateHelp(); }
    """
    for name in ("tflite_runtime", "ai_edge_litert"):
        seen = described(build(tmp_path, source), load_runtime(name))
        assert seen.exports == ("TfLiteIntArrayCreate", "tflite_plugin_create_delegate")
        assert seen.undefined == ("TfLiteVendorDelegateHelp",)
        assert "undefined symbol: TfLiteVendorDelegateHelp" in seen.load_error
