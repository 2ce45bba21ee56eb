"""The page of what backends choose where the documents are silent."""

from __future__ import annotations

from pytest_qnn.qnn.abi.codes import MemType, Property
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.runner.choices import ordinary, points

_HEAD = """\
# Where the documents are silent

Written by `python -m tools.reference`; a test keeps it so.

The headers of QNN and the seeds leave open what a backend does in these cases. Each run asks the backend, and
says above its table what it answered: the names below, by answer. The HTML page and the JSON report
(`choices`) have the questions too. No verdict depends on an answer
([why](../explanation/decisions/qnn/silent-documents.md)). [`compare`](../how-to/compare.md) shows where two
versions of a backend answer differently. That is worth a look: clients may depend on the old answer.

An answer is the code of the last call, or what was seen ("a handle of its own", "reads as zeros"). A point is
asked only of a backend that offers what it is about, so no backend has all of them.

| point | what is asked |
|---|---|
"""


def page() -> str:
    """The page as Markdown: a row for each point that some backend can be asked about."""
    everything = MemoryFacts(
        capabilities={int(key): 0 for key in Property},
        operators=(("ElementWiseAdd", "UFIXED_POINT_8"),),
        backend_id=6,
    )
    asked = (ordinary(MemType.ION), *points(everything, MemType.ION))
    rows = sorted({point.name: point.question for point in asked}.items())
    return _HEAD + "".join(f"| `{name}` | {question} |\n" for name, question in rows)
