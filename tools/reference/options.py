"""The page of all options: what the plugin declares, and what options.toml says of each."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import tomlkit

from pytest_qnn.options import DECLARED, Declared

_SAID = Path(__file__).parent / "options.toml"
_GUIDE = re.compile(r"docs/([a-z-]+/)([a-z-]+)\.md")
_INI = {"value": "a line of text", "list": "one value in each line", "switch": "`true` or `false`"}
_HEAD = """\
# Options

Written by `python -m tools.reference`; a test keeps it so. Each option of the command line is also one of the
ini file, and the command line wins; relative paths in an ini file are relative to that file. Write
`--option=value`: pytest takes a path that stands alone for a place to look for tests. A wrong value ends the
run in one sentence before any test.

In a TOML file (`[tool.pytest.ini_options]`; from pytest 9 on also `[tool.pytest]` and `pytest.toml`) a value
is text in quotes, numbers and `true` too, and several values are a list of texts: `qnn_timeout = "3"`,
`qnn_rule = ["REG-*"]`.

"""
_TAIL = """
## Markers

For pytest's own `-m` the test of a rule has markers: `qnn_delegate` or `qnn_memory` by its half,
`qnn_area_reg` by its area, `qnn_level_must` by its level, and `qnn_self_check` where it judges the runtime.
`-m "qnn_area_reg and not qnn_level_may"` takes the rules of REG but for those that are a MAY. The id of a
rule's test is `pytest_qnn/conformance/qnn/test_reg.py::test_reg_08` wherever the package is installed.
pytest takes it back as an argument, from the folder where it printed it; name the target again, too. JUnit
files name the class `pytest_qnn.conformance.qnn.test_reg`.
"""


def page() -> str:
    """The page as Markdown.

    Raises:
        ValueError: options.toml says something of an option that there is not.
    """
    said = tomlkit.parse(_SAID.read_text(encoding="utf-8")).unwrap()
    declared = {each.flag.lstrip("-"): each for each in DECLARED}
    if unknown := said.keys() - declared.keys():
        raise ValueError(f"{_SAID.name}: {', '.join(sorted(unknown))}")
    entries = (_entry(each, said.get(name, "")) for name, each in declared.items())
    return _HEAD + "\n".join(entries) + _TAIL


def _entry(one: Declared, said: str) -> str:
    value = "" if one.kind == "switch" else f"={one.metavar}"
    words = f"{_sentence(one.help)} {' '.join(said.split())}".strip()
    text = textwrap.fill(words, 110, break_on_hyphens=False)  # a link's address may have some
    return f"## {one.flag}\n\n`{one.flag}{value}`; ini: `{one.ini}`, {_INI[one.kind]}.\n\n{text}\n"


def _sentence(text: str) -> str:
    """What the terminal's help says, as a sentence with links."""
    linked = _GUIDE.sub(r"[\2](../\1\2.md)", text.replace("*", "\\*"))
    return f"{linked[0].upper()}{linked[1:]}."
