"""Pages of rules: what is generated is what its command prints; what is written is exact and said once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from pytest_qnn import rules
from pytest_qnn.qnn.cases.case import AnyStep
from pytest_qnn.report.explain import (
    graphs,
    known,
    memory_calls,
    page,
    script_calls,
    stored,
    telling,
    written,
)
from pytest_qnn.tflite.cases.plugin import AnyPluginStep
from pytest_qnn.tflite.cases.script import PlainStep
from tools.explain import areas, facts, pages

LONG = 10
"""Words of a sentence that stands on one page only."""
WRITTEN = written.everything()


def test_the_documents_are_what_the_command_writes() -> None:
    made = pages.documents()
    assert {*pages.DOCS.rglob("*.md")} == made.keys(), "run python -m tools.explain.pages"
    stale = [path.name for path, content in made.items() if path.read_text(encoding="utf-8") != content]
    assert not stale, "run python -m tools.explain.pages"


def test_what_is_known_of_each_rule_is_what_the_command_writes() -> None:
    assert known.RULES.read_text(encoding="utf-8") == facts.text(), "run python -m tools.explain.facts"


def test_what_is_told_of_areas_is_of_areas_that_there_are() -> None:
    assert areas.ABOUT.keys() == {rule.area for rule in rules.listed().values()}


def test_every_rule_has_a_page_with_its_sentence() -> None:
    for rule_id, rule in rules.listed().items():
        lines = page.text(rule).splitlines()
        assert lines[0].startswith(f"{rule_id}  "), rule_id
        assert " ".join(rule.sentence.split()) in " ".join(" ".join(lines).split()), rule_id


def kinds(union: Any) -> Iterator[type]:
    """The types of a union, however deep."""
    for one in get_args(union) or (union,):
        yield from kinds(one) if get_args(one) else (one,)


TOLD = {**memory_calls.TOLD, **script_calls.TOLD}
UNTOLD = {
    "watch": "what the suite records besides",
    "keep": "the trace has the bytes, or structs stay: nothing is called",
    "patient": "how long the suite waits before it counts",
    "like": "how long the suite waits before it counts",
    "waits": "how long the suite waits before it counts",
    "data": "the bytes of a binary",
    "graphs": "what the client knows of the graphs in a binary",
    "where_kept": "whether it is worth the time",
    "name": "of a delegate that the sentence names anyway",
}
"""Fields of steps that no sentence tells, and what they say."""


@pytest.mark.parametrize(
    "step", [*kinds(AnyStep), *kinds(PlainStep), *kinds(AnyPluginStep)], ids=lambda x: x.__name__
)
def test_every_field_of_every_step_is_told(step: type) -> None:
    told = TOLD[step]
    names = set(re.findall(r"{(\w+)}", told.sentence)) | {
        name for name, phrase in told.phrases.items() if phrase
    }
    missing = {field.name for field in msgspec.structs.fields(step)} - names - UNTOLD.keys()
    assert not missing


def test_a_value_that_is_not_the_default_is_told_and_the_default_is_not() -> None:
    class Step(msgspec.Struct):
        name: str
        count: int = 1
        on: bool = False

    told = telling.Told("{name} is called", {"count": "{} times", "on": lambda _: "switched on"})
    assert telling.sentence(Step("a"), told) == "a is called"
    assert telling.sentence(Step("a", 3, on=True), told) == "a is called; 3 times; switched on"


def test_a_graph_is_told_node_by_node() -> None:
    example = stored.examples()["PART-03"]
    assert graphs.graph(example.file.case.graph) == [  # type: ignore[union-attr]
        "main: inputs t0 float32 [1, 1, 2, 2]",
        "  node 0: t1 float32 [1, 1, 2, 2] = RELU(t0)",
        "  outputs t1",
    ]


def sentences(text: str) -> set[str]:
    """Sentences of many words, in small letters and with single spaces."""
    found = (" ".join(one.lower().split()) for one in re.split(r"(?<=[.!?;:])\s+", text))
    return {one for one in found if len(one.split()) >= LONG}


def test_no_long_sentence_stands_on_two_pages() -> None:
    seen: dict[str, str] = {}
    for rule_id, each in WRITTEN.items():
        own = sentences(" ".join((each.source, each.why, each.wrong, each.fix, each.libraries)))
        again = {(one, seen[one]) for one in own if one in seen}
        assert not again, rule_id
        seen |= dict.fromkeys(own, rule_id)


def test_no_page_says_its_rule_again() -> None:
    for rule_id, each in WRITTEN.items():
        texts = " ".join((each.source, each.why, each.wrong, each.fix, each.libraries))
        assert not sentences(texts) & sentences(rules.listed()[rule_id].sentence), rule_id


def test_every_written_rule_has_a_reason_and_every_rule_of_the_first_and_third_is_written() -> None:
    for rule_id, rule in rules.listed().items():
        broken, public, many = pages.reasons(rule)
        if rule_id in WRITTEN:
            assert broken or public or many, rule_id
        else:
            assert not broken, rule_id
            assert not many, rule_id


@pytest.mark.parametrize("rule_id", WRITTEN)
def test_written_texts_are_whole_sentences(rule_id: str) -> None:
    each = WRITTEN[rule_id]
    assert rule_id in rules.listed()
    for text in (each.source, each.why, each.wrong, each.fix, *([each.libraries] if each.libraries else ())):
        assert re.fullmatch(r"[A-Za-z0-9`].*[.]", text), text
        assert "\n" not in text
    assert all(re.match(r"https://\S+: \S", bug) for bug in each.bugs)
