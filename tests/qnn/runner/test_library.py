from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import native
import pytest

from pytest_qnn.qnn.abi.layouts import Version
from pytest_qnn.qnn.abi.table import Interface
from pytest_qnn.qnn.runner.library import QnnUnusable, chosen, open_library, providers

SOURCE = """
#include <stdint.h>
struct Interface { uint32_t id; const char *name; uint32_t version[6]; void *table[71]; };
static struct Interface interface = {7, "TINY"};
static struct Interface *list[] = {LISTED};
uint64_t QnnInterface_getProviders(struct Interface ***out, uint32_t *count) {
    *out = list; *count = sizeof list / sizeof *list; return CODE;
}
"""


def test_the_providers_that_are_not_null_are_found(tmp_path: Path) -> None:
    path = native.build(tmp_path, SOURCE, LISTED="0, &interface", CODE="0")
    code, found = providers(open_library(str(path)))
    assert code == 0
    assert [each.contents.providerName for each in found] == [b"TINY"]


@pytest.mark.parametrize("name", ["absent.so", "absent" * 50 + ".so"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    """Also where no file can have the name, since it is longer than 255 bytes."""
    with pytest.raises(QnnUnusable, match=r"absent\.so does not exist$"):
        open_library(str(tmp_path / name))


def test_a_file_that_is_no_library_is_named_with_the_loaders_reason(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("this is no library, whatever its name says")
    with pytest.raises(QnnUnusable, match=r"^\S+text\.so cannot be loaded as a shared library: \w+"):
        open_library(str(text))


def test_a_library_without_the_entry_point_is_named(tmp_path: Path) -> None:
    path = native.build(tmp_path, "int unrelated(void) { return 1; }")
    with pytest.raises(QnnUnusable, match=r"does not export QnnInterface_getProviders$"):
        open_library(str(path))


@pytest.mark.parametrize(
    ("export", "kind"),
    [
        (
            "tflite_plugin_create_delegate",
            "it is a TensorFlow Lite delegate plugin, for --tflite-delegate=PATH",
        ),
        ("QnnSystemInterface_getProviders", "it is a QNN System library"),
    ],
)
def test_a_library_of_another_kind_is_told_what_it_is(tmp_path: Path, export: str, kind: str) -> None:
    path = native.build(tmp_path, f"int {export}(void) {{ return 1; }}")
    with pytest.raises(QnnUnusable, match=f"{export} says that {kind}"):
        open_library(str(path))


@pytest.mark.parametrize(
    ("listed", "code", "reason"),
    [("0", "0", "succeeded with an empty list"), ("&interface", "1004", "returned 1004")],
)
def test_an_entry_point_without_a_provider_is_named(
    tmp_path: Path, listed: str, code: str, reason: str
) -> None:
    path = native.build(tmp_path, SOURCE, LISTED=listed, CODE=code)
    with pytest.raises(QnnUnusable, match=f"yields no provider: QnnInterface_getProviders {reason}$"):
        open_library(str(path))


def offered(*version: int) -> Any:
    made = Interface()
    made.apiVersion.coreApiVersion = Version(*version)
    return ctypes.pointer(made)


@pytest.mark.parametrize(
    ("versions", "taken"),
    [
        (((2, 17, 0), (2, 32, 0)), 1),  # the table of the first one may end before a function of 2.32
        (((2, 32, 1), (2, 17, 0)), 0),
        (((2, 31, 0), (2, 40, 0), (2, 32, 0)), 1),
        (((3, 40, 0), (2, 17, 0), (2, 20, 0)), 2),
        (((3, 40, 0), (1, 40, 0)), 0),
    ],
)
def test_the_provider_is_of_the_own_major_and_no_older(
    versions: tuple[tuple[int, int, int], ...], taken: int
) -> None:
    """The list has no order (QnnInterface.h); clients take the first whose minor is not below their own."""
    found = [offered(*version) for version in versions]
    assert ctypes.addressof(chosen(found)) == ctypes.addressof(found[taken].contents)
