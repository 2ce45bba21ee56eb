"""Valid case files of real rules, and ways to spoil them."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase

from pytest_qnn.case_file import SCHEMA
from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.qnn.cases import file as memory_file
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases import file as delegate_file
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.facts import DelegateFacts

HOSTILE: tuple[Any, ...] = (
    *(
        "../../x",
        "/etc/passwd",
        "a/b",
        "a\x00b",
        "\x1b[2J",
        "é" * 50,
        "x" * 100_000,
        "$(reboot)",
        "",
        "BOGUS",
    ),
    *(
        -1,
        0,
        1,
        255,
        1 << 31,
        (1 << 31) - 1,
        1 << 32,
        1 << 60,
        1 << 63,
        1 << 64,
        -(1 << 63),
        10**400,
        10**5000,
    ),
    *(0.5, -0.0, 1e308, 1e-320, True, False, None, [], {}, [[]], [1] * 5000, {"do": "fill"}, "AAAA", "=AAA"),
)
"""Values to put in the place of others."""
LONGEST = 4000


def check(case: Any) -> None:
    """Raise BadCase where a case of any kind must not be run."""
    if isinstance(case, MemoryCase):
        memory_file.check_case(case)
    else:
        delegate_file.check_case(case)


def read_back(case: Any) -> None:
    """Decode and check a case as one from a file is: the bounds of single fields are in their types."""
    check(msgspec.json.decode(msgspec.json.encode(case), type=type(case)))


def refusal(case: Any) -> str:
    """Why a case cannot be read back; empty: it can."""
    try:
        read_back(case)
    except (BadCase, msgspec.ValidationError) as error:
        return str(error)
    return ""


def examples(subject: str, facts: Any, each: int = 2) -> list[Any]:
    """Cases that the strategies of the subject's rules draw, always the same."""
    found: list[Any] = []
    for rule in catalogue().values():
        if rule.subject == subject:
            with contextlib.suppress(NothingToJudge):
                draw(rule.cases(facts), each, found.append)
    return found


def draw(cases: Any, count: int, take: Callable[[Any], None]) -> None:
    """Hand ``count`` cases to ``take``, always the same."""

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(cases)
    def run(case: Any) -> None:
        take(case)

    run()


def case_files(memory: MemoryFacts, delegate: DelegateFacts) -> list[dict[str, Any]]:
    """The contents of valid case files, of all kinds."""
    return [
        {
            "schema": SCHEMA,
            "rule": rule,
            "subject": {ScriptCase: "delegate-script", PluginCase: "delegate-plugin"}.get(
                type(case), subject
            ),
            "target": "reference",
            "options": [option],
            "provenance": {"runtime": "tflite_runtime"},
            "seed": 1,
            "case": json.loads(msgspec.json.encode(case)),
            "expected": "a",
            "seen": "b",
        }
        for subject, rule, option, facts in (
            ("memory", "REG-01", "--qnn-backend=reference", memory),
            ("delegate", "PART-01", "--tflite-delegate=reference", delegate),
        )
        for case in examples(subject, facts)
        if len(msgspec.json.encode(case)) <= LONGEST
    ]


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) of a structure."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            _places(value[key], found)
    return found


def _replaced(chance: random.Random, content: Any) -> bytes:
    container, key = chance.choice(_places(content, []))
    container[key] = chance.choice(HOSTILE)
    return _bytes(content)


def _nudged(chance: random.Random, content: Any) -> bytes:
    """Numbers of the case changed a little: this gives cases that are almost right."""
    numbers = [(c, k) for c, k in _places(content["case"], []) if type(c[k]) is int]
    for container, key in chance.sample(numbers, min(len(numbers), chance.choice((1, 1, 3)))):
        container[key] += chance.choice((-2, -1, 1, 2, 1 << 8, 1 << 16))
    return _bytes(content)


def _deleted(chance: random.Random, content: Any) -> bytes:
    container, key = chance.choice(_places(content, []))
    del container[key]
    return _bytes(content)


def _swapped(chance: random.Random, content: Any) -> bytes:
    (one, here), (other, there) = chance.choices(_places(content["case"], []), k=2)
    one[here], other[there] = json.loads(json.dumps([other[there], one[here]]))
    return _bytes(content)


def _doubled(chance: random.Random, content: Any) -> bytes:
    container, key = chance.choice([(c, k) for c, k in _places(content, []) if isinstance(c, list)])
    container.insert(key, container[key])
    return _bytes(content)


def _added(chance: random.Random, content: Any) -> bytes:
    container, key = chance.choice(_places({"all": content}, []))
    if isinstance(container[key], dict):
        container[key][chance.choice(("code", "__class__", "../x", ""))] = chance.choice(HOSTILE)
    return _bytes(content)


def _versioned(chance: random.Random, content: Any) -> bytes:
    content["schema"] = chance.choice((0, 2, 3, 99, -1, 1 << 80, 10**5000, "1", 1.0, None, [1]))
    return _bytes(content)


def _nested(chance: random.Random, content: Any) -> bytes:
    container, key = chance.choice(_places(content, []))
    container[key] = "DEEP"
    depth = chance.choice((10, 500, 5000, 100_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"case":', b"}")))
    return _bytes(content).replace(b'"DEEP"', opening * depth + b"1" + closing * depth)


def _flipped(chance: random.Random, content: Any) -> bytes:
    text = bytearray(_bytes(content))
    for _ in range(chance.choice((1, 2, 10))):
        text[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
    return bytes(text)


def _cut(chance: random.Random, content: Any) -> bytes:
    text = _bytes(content)
    start, end = sorted(chance.choices(range(len(text)), k=2))
    return chance.choice((text[:end], text[start:], text[:start] + text[end:]))


def _encoded(chance: random.Random, content: Any) -> bytes:
    text = _bytes(content).decode()
    name = chance.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "cp500"))
    return text.encode(name)


def _noise(chance: random.Random, _content: Any) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 10, 1000)))


def _oversized(chance: random.Random, content: Any) -> bytes:
    return _bytes(content) + b" " * chance.choice((1 << 20, (1 << 21) + 1))


WAYS = (
    *((_replaced,) * 5),
    *((_nudged,) * 5),
    *((_deleted,) * 2),
    *((_swapped,) * 2),
    *(_doubled, _added, _versioned, _nested, _flipped, _flipped, _cut, _encoded, _noise),
)


def spoiled(chance: random.Random, contents: list[dict[str, Any]]) -> bytes:
    """One mutated case file."""
    content = json.loads(json.dumps(chance.choice(contents)))
    if chance.randrange(500) == 0:
        return _oversized(chance, content)
    return chance.choice(WAYS)(chance, content)


def _bytes(content: Any) -> bytes:
    # json writes a number of any length; Python refuses to print one of more than 4300 digits.
    text = json.dumps(content, default=str) if not _has_giant(content) else _with_giant(content)
    return text.encode("utf-8", "surrogatepass")


def _has_giant(content: Any) -> bool:
    return any(type(c[k]) is int and abs(c[k]).bit_length() > 14_000 for c, k in _places(content, []))


def _with_giant(content: Any) -> str:
    for container, key in _places(content, []):
        if type(container[key]) is int and abs(container[key]).bit_length() > 14_000:
            container[key] = "GIANT"
    return json.dumps(content).replace('"GIANT"', "1" + "0" * 5000)
