"""The pages of docs/reference that are made from the code say what the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.reference import __main__ as command
from tools.reference import options, schemas


@pytest.mark.parametrize("name", command.PAGES)
def test_a_page_is_what_the_command_writes(name: str) -> None:
    written = (command.FOLDER / name).read_text(encoding="utf-8")
    assert written == command.PAGES[name](), "run python -m tools.reference"


def test_what_is_said_of_an_option_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = tmp_path / "options.toml"
    said.write_text("qnn-nothing = 'Text.'\n")
    monkeypatch.setattr(options, "_SAID", said)
    with pytest.raises(ValueError, match=r"options\.toml: qnn-nothing"):
        options.page()


def test_types_are_told_in_words() -> None:
    told = {
        "list of [Add](#add)": {"type": "array", "items": {"$ref": "#/$defs/Add"}},
        "[a.b.Read](#abread)": {"$ref": "#/$defs/a.b.Read"},
        '`"x"` or null': {"anyOf": [{"const": "x"}, {"type": "null"}]},
        "object of integer": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": True,
    }
    assert [schemas._type(one) for one in told.values()] == list(told)
