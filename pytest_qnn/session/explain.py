"""--qnn-explain: pages of rules on the terminal, in place of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from pytest_qnn import rules
from pytest_qnn.core import forms
from pytest_qnn.core.printable import write_out
from pytest_qnn.report.explain import page
from pytest_qnn.session.selection import matched

FLAG = "--qnn-explain"


def pages(texts: Sequence[str]) -> list[str]:
    """The pages of the rules that the texts name, in the order of their ids.

    Args:
        texts: ids and shell patterns, several with commas, in any case.

    Raises:
        pytest_qnn.core.forms.BadOption: a text names no rule.
    """
    ids = matched(forms.names(FLAG, texts), FLAG)
    return [page.text(rules.listed()[rule_id]) for rule_id in sorted(ids)]


def show(found: Iterable[str]) -> None:
    """Print the pages; a terminal without UTF-8 is no error.

    Raises:
        pytest_qnn.core.forms.BadOption: they cannot be written.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    why = write_out("\n\n\n".join(found) + "\n")
    if why:
        raise forms.BadOption(f"{FLAG}: the pages cannot be written: {why}")
