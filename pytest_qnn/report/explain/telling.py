"""From a step of a case to one sentence: what is done, and each value that is not the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

Phrase = str | Callable[[Any], str]
"""How one field is told: a text with ``{}`` for its value, or a function of the value. Empty: not at all."""


class Told(NamedTuple):
    """How one kind of step is told."""

    sentence: str
    """With ``{field}`` for the fields that are always told."""
    phrases: Mapping[str, Phrase] = {}
    """By field: what is added where the field has not its default value."""
    values: Mapping[str, Callable[[Any], str]] = {}
    """By field of the sentence: how its value is written, where that is not `plain`."""


def plain(value: Any) -> str:
    """A value in few words: names and numbers, several of them with commas."""
    if isinstance(value, tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)


def shape(value: tuple[int, ...]) -> str:
    """A shape as ``[1, 2, 2, 2]``."""
    return str(list(value))


def sentence(step: msgspec.Struct, told: Told) -> str:
    """The step as one sentence, without a full stop at its end.

    Args:
        step: whose fields are told.
        told: how.
    """
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    texts = {name: told.values.get(name, plain)(value) for name, value in fields.items()}
    return "; ".join([told.sentence.format(**texts), *_added(step, told)])


def _added(step: msgspec.Struct, told: Told) -> Iterator[str]:
    for info in msgspec.structs.fields(type(step)):
        value = getattr(step, info.name)
        phrase = told.phrases.get(info.name, "")
        if not phrase or value == info.default or (info.default is msgspec.NODEFAULT and not value):
            continue
        text = phrase(value) if callable(phrase) else phrase.format(plain(value))
        if text:
            yield text


def numbered(sentences: Iterator[str] | list[str]) -> list[str]:
    """The sentences with their numbers, from 0 as in findings."""
    return [f"{number}. {text}." for number, text in enumerate(sentences)]
