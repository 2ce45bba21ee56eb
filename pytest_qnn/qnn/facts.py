"""What was learned of a QNN backend before any rule is judged: strategies and gates read it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_OPTIONAL = frozenset({"logCreate", "deviceCreate"})
_NOT_SUPPORTED = 1000
HTP_BACKEND_ID = 6
"""Only with this backend id is QNN_MEM_TYPE_CUSTOM described by a QnnMemHtp_Descriptor_t."""
_EXECUTE, _UNKNOWN_KEY = 311, 2000
"""QNN_PROPERTY_GRAPH_SUPPORT_EXECUTE, and the answer of a target that is older than the key."""
_ION, _CUSTOM, _DMA_BUF = 1, 2, 3
_KEYS = {_ION: 1102, _CUSTOM: 1103, _DMA_BUF: 1104}
"""Qnn_MemType_t -> the property key that says whether it is supported."""


def refused_call(session: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    """The first call that keeps a session from opening, with its code (all 64 bits).

    A backend without logs or devices answers 1000 to their creation, and does without.
    """
    for call, code in session:
        if code and not (call in _OPTIONAL and code & 0xFFFF == _NOT_SUPPORTED):
            return call, code
    return None


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A QNN backend as it presents itself."""

    provider: str = ""
    backend_id: int = 0
    core_version: tuple[int, int, int] = (0, 0, 0)
    backend_version: tuple[int, int, int] = (0, 0, 0)
    session: tuple[tuple[str, int], ...] = ()
    """Codes of opening a session up to the first failure, as in `MemoryTrace.session`."""
    capabilities: dict[int, int] = {}
    """Property key -> low 16 bits of the answer, for the keys that rules are gated by."""
    null_functions: tuple[str, ...] = ()
    """Members of the interface table that are NULL."""
    operators: tuple[tuple[str, str], ...] = ()
    """(operator, dtype) pairs that compose, validate and finalise on this target."""
    validated: tuple[tuple[str, str], ...] = ()
    """(operator, dtype) pairs that QnnBackend_validateOpConfig accepts; of shape (1, 2, 2, 2)."""
    rpcmem: str = "emulated"
    fatal_calls: tuple[str, ...] = ()
    """Calls that were seen to end the process where a request of theirs is refused."""
    only_aligned: bool = False
    """An offset that is aligned for its elements only was seen to be refused, where one of a page was not."""
    executes_grow: bool = False
    """Executes that succeed were seen to leave something behind, each time."""
    deaths: tuple[str, ...] = ()
    """How the process died while more than this was to be learned; what is missing here is then unknown."""

    def supports(self, key: int) -> bool:
        """The property key was answered with success."""
        return self.capabilities.get(key) == 0

    @property
    def executes(self) -> bool:
        """Whether property 311 leaves room for executions; where it is not known, it is silent about them."""
        return self.capabilities.get(_EXECUTE, 0) in (0, _UNKNOWN_KEY)

    @property
    def session_failure(self) -> tuple[str, int] | None:
        """The call that kept the session from opening, with its code."""
        return refused_call(self.session)


def memory_types(facts: MemoryFacts) -> tuple[int, ...]:
    """Qnn_MemType_t values that valid registrations of this target may use; ION first.

    CUSTOM only where it means the HTP's shared buffer (backend id 6). A target that declares no type is
    asked with ION all the same, so that its answer is on record.
    """
    found = [kind for kind in (_ION, _DMA_BUF) if facts.supports(_KEYS[kind])]
    if facts.supports(_KEYS[_CUSTOM]) and facts.backend_id == HTP_BACKEND_ID:
        found.insert(1 if found[:1] == [_ION] else 0, _CUSTOM)
    return tuple(found) or (_ION,)


class Choice(msgspec.Struct, frozen=True, gc=False):
    """What a QNN backend does where the documents leave it the choice: never a finding."""

    point: str
    """A stable name of the question."""
    question: str
    answer: str
    """``success``, a code with its name, how the process died, or why it was not asked."""
    code: int | None = None
    """Low 16 bits of the answer; None: there was none."""
