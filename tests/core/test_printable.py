"""Text from elsewhere, as it leaves."""

from __future__ import annotations

import os
import subprocess

import msgspec
import pytest

from pytest_qnn.core.printable import (
    LONGEST_HEARD,
    counted,
    cut,
    encodable,
    heard,
    is_text,
    printable,
    shell_line,
)

OBEYED = [
    *map(chr, (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))),
    *map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0xFEFF)),
    *map(chr, (0xD800, 0xDBFF, 0xDC80, 0xDFFF)),
]
"""Characters that must not be seen raw; of the first ones a tab may."""


@pytest.mark.parametrize("sign", OBEYED, ids=lambda sign: f"{ord(sign):x}")
def test_what_would_be_obeyed_is_escaped(sign: str) -> None:
    shown = printable(f"a{sign}b")
    assert shown.isprintable()
    assert shown == f"a{ascii(sign)[1:-1]}b"
    assert printable(shown) == shown


def test_what_is_shown_stays() -> None:
    text = "t0 -> [ABS]\n\t\\x1b ä 漢字 😀 €\n"
    assert printable(text) == text
    assert printable("\x1b[2Jred\x07") == r"\x1b[2Jred\x07"
    assert printable("a\r\nb") == "a\\r\nb"


def test_data_is_as_it_was_but_for_halves_of_pairs() -> None:
    data = {"a": ["\x1b", ("😀", 1, None)], "b\ud800": {"c": "x\udc80"}}
    made = encodable(data)
    assert made == {"a": ["\x1b", ("😀", 1, None)], r"b\ud800": {"c": r"x\udc80"}}
    assert msgspec.json.decode(msgspec.json.encode(made)) == msgspec.to_builtins(made) | {
        "a": ["\x1b", ["😀", 1, None]]
    }


WORDS = ["pytest", "it's", "a b", "", "--x=\x1b[2J'\\", os.fsdecode(b"/p\xff1/\n"), "ä漢", "$HOME `x` \u202e"]


def test_a_shell_reads_the_words_back() -> None:
    line = shell_line(WORDS)
    assert line.isprintable()
    asked = ["bash", "-c", f"printf '%s\\0' {line}"]
    read = subprocess.run(asked, capture_output=True, check=True, timeout=20).stdout
    assert [os.fsdecode(word) for word in read.split(b"\0")[:-1]] == WORDS


@pytest.mark.parametrize("letter", ["a", "ö", "€", "😀"])
def test_a_text_is_cut_between_characters_and_stays_one(letter: str) -> None:
    text = (letter * 20).encode()
    for most in range(12, 17):
        kept = cut(text, most)
        assert most - 4 < len(kept) <= most
        assert is_text(kept.decode())
    assert cut(text, len(text)) == text
    assert is_text(heard((letter * (LONGEST_HEARD // len(letter.encode()) + 3)).encode() + b"!"))


@pytest.mark.parametrize("garbage", [b"\xb1", b"\x05x", b"abc\xff", b"\x80" * 9, b"\x7f"])
def test_what_is_no_text_is_none(garbage: bytes) -> None:
    assert not is_text(heard(garbage))
    assert not is_text(heard(cut(garbage * 200, 512)))


def test_white_space_and_colours_are_text() -> None:
    assert is_text(heard("\x1b[31mno such\tkey:\r\n Größe\x1b[0m".encode()))


def test_one_thing_is_not_named_in_the_plural() -> None:
    assert [counted(number, "rule") for number in (0, 1, 2)] == ["0 rules", "1 rule", "2 rules"]
    assert counted(2, "entry", "entries") == "2 entries"
