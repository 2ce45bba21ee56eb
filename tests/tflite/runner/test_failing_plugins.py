from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_run import alternating, later
from hostile import THROWN
from native import build
from native_plugins import FAILING, SOURCE, plugin

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite import target as delegate_target
from pytest_qnn.tflite.facts import Claim
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.runner.learn import Learned
from pytest_qnn.tflite.target import open_delegate_target

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
CLAIMS = tuple(
    Claim(kind, "claimed" if (kind.op, kind.dtype) == ("NEG", "float32") else "refused") for kind in GRID
)


class _NoShrink(Profile):
    def shrink_budget(self, *, isolated: bool) -> int:  # noqa: ARG002 - the signature is Profile's
        return 0


PROFILE = _NoShrink("some", in_process_examples=200, isolated_examples=5, repeats=0)


@pytest.fixture(autouse=True, scope="module")
def known_claims() -> Iterator[None]:
    """What the libraries claim is known; to learn it takes longer than to judge a rule."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delegate_target, "learn_claims", lambda *_, **__: Learned(CLAIMS))
        yield


def judged(rule_id: str, library: Path, runtime: str) -> Verdict:
    target = open_delegate_target([(str(library), {})], runtime, "fork", 10.0)
    try:
        return judge(catalogue()[rule_id], target, PROFILE, seed=1)
    finally:
        target.close()


@pytest.mark.parametrize(
    ("rule_id", "runtime"),
    [
        ("ERR-05", RUNTIMES[1]),
        later("ERR-05", RUNTIMES[0]),
        *(later(rule_id, runtime) for rule_id in ("ERR-04", "ERR-06") for runtime in RUNTIMES),
    ],
)
def test_a_library_may_fail_in_an_invoke_and_work_in_the_next(
    rule_id: str, runtime: str, tmp_path: Path
) -> None:
    verdict = judged(rule_id, plugin(tmp_path, **FAILING), runtime)
    assert verdict.outcome is Outcome.PASS, verdict


FAULTS = {
    # Of any interpreter: the one that is invoked first in a process may be in the history of a case.
    "stale-success": ("ERR-05", FAILING | {"STALE_WHEN": "turn > 2", "FAILS_ANYWHERE": "1"}),
    "writes-to-inputs": ("ERR-06", {"FAILS_SECOND": "((float*)in->data)[0] = 77"}),
    "stops-others": ("ERR-06", FAILING | {"STALE_WHEN": "lost"}),
    "asserts-a-count": ("ERR-04", {"IN_INVOKE": "if (elements(in->dims) >> 20) abort()"}),
    "overruns-scratch": (
        "ERR-04",
        {"IN_INVOKE": "static float scratch[1 << 20]; memcpy(scratch, in->data, in->bytes)"},
    ),
}


@pytest.mark.parametrize(("name", "runtime"), alternating(FAULTS, RUNTIMES))
def test_a_library_that_fails_wrongly_is_found(name: str, runtime: str, tmp_path: Path) -> None:
    rule_id, macros = FAULTS[name]
    verdict = judged(rule_id, plugin(tmp_path, **macros), runtime)
    assert verdict.outcome in (Outcome.FAIL, Outcome.CRASH), verdict


@pytest.mark.parametrize("name", THROWN)
def test_an_exception_of_a_kernel_s_prepare_at_impossible_dimensions_is_found(
    name: str, tmp_path: Path
) -> None:
    # On 2.14 no delegate is shown such dimensions: the runtime itself throws before.
    deed = THROWN[name]
    source = deed.source() + SOURCE
    wrong = "if (elements(dims) >> 40) deed()"
    library = build(tmp_path, source, "libthrows.so", beside=deed.beside, IN_KERNEL_PREPARE=wrong)
    verdict = judged("ERR-04", library, "ai_edge_litert")
    assert verdict.outcome is Outcome.CRASH, verdict
