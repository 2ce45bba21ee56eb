"""How a case from a file is refused: one exception, and the words that raise it."""

from __future__ import annotations

__tracebackhide__ = True
"""pytest shows no frame of this module: what it refuses is told at the line of whoever asked for it."""


class BadCase(ValueError):  # noqa: N818 - it is the file's case that is bad
    """A case that must not be run; the text says why, and fits behind a colon."""


def need(condition: object, text: str) -> None:
    """Raise `BadCase` with ``text`` unless the condition holds."""
    if not condition:
        raise BadCase(text)


def within(what: str, value: float, least: float, most: float) -> None:
    """Raise `BadCase` unless ``least <= value <= most``."""
    if not least <= value <= most:
        raise BadCase(f"{what} is {shown(value)}, not within {least} to {most}")


def shown(value: object) -> str:
    """A value in few characters. A number beyond 64 bits is not written out."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
