"""The conformance suite: a folder per half, a module per area, a test per rule, named after it.

``qnn/test_reg.py::test_reg_08`` judges the rule REG-08, on whatever targets the run selects. The tests are
made of the list of rules (:mod:`pytest_qnn.rules`), which says what each demands, and why; the rule itself is
imported when its test runs. Written out, but for the docstring, which is the rule's sentence:

    def test_reg_08(judge: Judge) -> None:
        judge("REG-08")

The name tells the plugin which rule a test stands for before it runs, so that the run opens the targets
it needs, and no others, before its first test. Nothing here knows which target is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnn import rules

if TYPE_CHECKING:
    from pytest_qnn.core.rule import Demand
    from pytest_qnn.plugin import Judge


def rule_tests(module: str, file: str) -> dict[str, Callable[[Judge], None]]:
    """For a module called after an area (``test_reg``): a test for each of its rules, by number.

    No rule is imported.
    """
    area = Path(file).stem.removeprefix("test_").upper()
    made = [_test(rule) for rule in rules.listed().values() if rule.area == area]
    for test in made:
        # As if they were written in that module: pytest leaves out imported tests where the user's ini says
        # collect_imported_tests = false, and IDEs and pytest -vv name the file of the code.
        test.__module__ = module
        test.__code__ = test.__code__.replace(co_filename=file, co_firstlineno=1)
    return {test.__name__: test for test in made}


def _test(rule: Demand) -> Callable[[Judge], None]:
    def test(judge: Judge) -> None:
        judge(rule.id)

    test.__name__ = test.__qualname__ = f"test_{rule.id.lower().replace('-', '_')}"
    test.__doc__ = rule.sentence
    return test
