from __future__ import annotations

import _ctypes
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import native_plugins
import pytest
from fast_run import first, later
from kept import keep

from pytest_qnn.core import forms
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.isolation.target import TargetUnusable, digest, resolved
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import MakeDelegate, ScriptCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.runner import qnn_interface
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from tests.bridge import native_qnn

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
HTP = {"backend_type": "htp"}
FEW = Profile("few", in_process_examples=6, isolated_examples=3)
MORE = Profile("more", in_process_examples=40, isolated_examples=40, repeats=0)
UNSUPPORTED = ("TFL-04", "TFL-09", "TFL-14", "TFL-15")
"""The library says nothing of itself, and of its backend nothing can be seen."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native_qnn.own_only(tmp_path_factory.mktemp("own"))


@functools.cache
def target(spec: str, runtime: str = RUNTIMES[0], sandbox: str = "auto", **options: str) -> DelegateTarget:
    return keep(open_delegate_target([(spec, options)], runtime, sandbox, 30.0))


@pytest.mark.parametrize(("runtime", "sandbox"), [*zip(RUNTIMES, ("auto", "off"), strict=True)])
def test_a_library_with_its_own_interface_only_is_judged(library: Path, runtime: str, sandbox: str) -> None:
    opened = target(str(library), runtime, sandbox, **HTP)
    assert (opened.facts.custom_memory, opened.facts.unusable) == (0, "")
    rules = [rule for rule in catalogue().values() if rule.area == "TFL"]
    outcomes = {rule.id: judge(rule, opened, FEW, seed=1).outcome for rule in rules}
    assert outcomes == dict.fromkeys(outcomes, Outcome.PASS) | dict.fromkeys(UNSUPPORTED, Outcome.UNSUPPORTED)


@pytest.mark.parametrize("rule_id", first(["ABI-13", "OWN-05", "PART-05", "XNN-01", "LEAK-01", "OWN-02"], 3))
def test_rules_of_other_areas_judge_it(library: Path, rule_id: str) -> None:
    verdict = judge(catalogue()[rule_id], target(str(library), **HTP), FEW, seed=1)
    assert verdict.outcome is Outcome.PASS, verdict


def test_rules_about_the_external_interface_say_why_they_do_not(library: Path) -> None:
    opened = target(str(library), **HTP)
    external = [
        rule for rule in catalogue().values() if rule.area == "ABI" and "plugin interface" in rule.gate
    ]
    assert len(external) > 10
    for rule in external:
        verdict = judge(rule, opened, FEW, seed=1)
        assert verdict.outcome is Outcome.UNSUPPORTED
        assert verdict.reason == f"{library} is used by its own interface, TfLiteQnnDelegateCreate"


def test_a_library_with_both_is_used_as_its_specification_says(tmp_path: Path) -> None:
    # The external interface of this one makes nothing: whatever works was made by the other.
    both = native_qnn.with_both(tmp_path, NAMES="!*text")
    with pytest.raises(TargetUnusable, match="there is no such backend"):
        open_delegate_target([(str(both), HTP)], RUNTIMES[0], "auto", 30.0)
    assert judge(catalogue()["TFL-10"], target(f"direct:{both}", **HTP), FEW, seed=1).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {},
            "returned NULL: the option backend_type is mandatory (--tflite-delegate-option=backend_type=htp)",
        ),
        ({"backend_type": "1"}, "returned NULL"),
        ({"backend_type": "tpu"}, "backend_type is 'tpu', neither gpu, htp, dsp nor a number of 32 bits"),
        ({"backend_type": "2147483648"}, "backend_type is '2147483648', neither gpu"),
        ({"backend_type": "²"}, "backend_type is '²', neither gpu"),
        (
            {**HTP, "htp_precision": "1"},
            "takes the options backend_type, library_path, skel_library_dir here, not htp_precision",
        ),
        ({**HTP, "library_path": "missing"}, "returned NULL"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(
    library: Path, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(TargetUnusable) as refused:
        open_delegate_target([(str(library), options)], RUNTIMES[0], "off", 30.0)
    assert reason in str(refused.value)
    assert str(refused.value).startswith("--tflite-delegate: ")
    assert "\n" not in str(refused.value)


def test_options_reach_the_members_that_the_header_has_for_them(tmp_path: Path) -> None:
    wanted = '!strcmp(options->library_path, "/a/libQnnHtp.so") && !strcmp(options->skel_library_dir, "/b")'
    strict = native_qnn.own_only(tmp_path, IN_OWN_CREATE=f"if (!({wanted})) return NULL")
    paths = {"library_path": "/a/libQnnHtp.so", "skel_library_dir": "/b", "backend_type": "2"}
    assert target(str(strict), **paths).facts.unusable == ""


def test_a_library_without_the_interface_is_no_direct_one() -> None:
    with pytest.raises(TargetUnusable, match="does not export all of TfLiteQnnDelegateOptionsDefault, "):
        open_delegate_target([(f"direct:{_ctypes.__file__}", HTP)], RUNTIMES[0], "off", 30.0)


@pytest.mark.parametrize(("text", "number"), [("gpu", 1), ("dsp", 3), ("0", 0), ("-1", -1), ("99", 99)])
def test_a_backend_is_a_name_or_a_number(tmp_path: Path, text: str, number: int) -> None:
    made = native_qnn.own_only(tmp_path, TAKES=f"type == {number}")
    interface = qnn_interface.QnnInterface(str(made))
    address, _ = interface.create({"backend_type": text})
    assert address
    interface.delete(address)
    assert interface.create(HTP)[0] == 0


def test_the_prefix_stands_before_a_path_only(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(b"library")
    spec = f"direct:{file}"
    assert forms.library("--tflite-delegate", spec, forms.DELEGATES) == spec == resolved(spec)
    assert digest("path", spec)["path"] == str(file)
    for wrong, flag in (("direct:", "--tflite-delegate"), (spec, "--qnn-backend"), (spec, "--qnn-rpcmem")):
        with pytest.raises(forms.BadOption):
            forms.library(flag, wrong, forms.DELEGATES)


RULES = ("TFL-08", "TFL-20", "TFL-21")
FOUND = {
    "takes-undefined": ("TFL-20", {"TAKES": "type == kHtp || type == kUndefined"}),
    "default-is-htp": ("TFL-20", {"DEFAULT_TYPE": "kHtp"}),
    "any-but-undefined": ("TFL-21", {"TAKES": "type"}),
    "lower-byte": ("TFL-21", {"TAKES": "(type & 255) == kHtp"}),
    "one-at-a-time": ("TFL-08", {"IN_OWN_CREATE": "static int made; if (made++) return NULL"}),
    "aborts-without-a-backend": ("TFL-20", {"IN_OWN_CREATE": "if (!type) abort()", "TAKES": "type < 3"}),
}
"""Name -> the rule that finds the fault of the own interface, and the macros that bring it in."""
FOUND_OUTSIDE = {
    "missing-is-htp": ("TFL-20", {"MISSING_IS_HTP": "1"}),
    "any-text": ("TFL-21", {"NAMES": "1"}),
    "beginnings": ("TFL-21", {"NAMES": '!strncmp(text, "htp", strlen(text))'}),
    "silent": ("TFL-21", {"SILENT": "1"}),
}
"""The same of the external interface."""


@pytest.mark.parametrize("name", first(FOUND, 3))
def test_a_fault_of_the_own_interface_is_found(name: str, tmp_path: Path) -> None:
    rule_id, macros = FOUND[name]
    made = native_qnn.own_only(tmp_path, **macros)
    verdict = judge(catalogue()[rule_id], target(str(made), **HTP), MORE, seed=1)
    assert verdict.outcome in (Outcome.FAIL, Outcome.CRASH), verdict


@pytest.mark.parametrize("name", first(FOUND_OUTSIDE, 2))
def test_a_fault_of_the_external_interface_is_found(name: str, tmp_path: Path) -> None:
    rule_id, macros = FOUND_OUTSIDE[name]
    made = native_qnn.with_both(tmp_path, **macros)
    verdict = judge(catalogue()[rule_id], target(str(made), **HTP), MORE, seed=1)
    assert verdict.outcome is Outcome.FAIL, verdict
    others = {other for other in RULES if other != rule_id}
    quiet = {
        other: judge(catalogue()[other], target(str(made), **HTP), FEW, seed=1).outcome for other in others
    }
    assert quiet == dict.fromkeys(others, Outcome.PASS)


@pytest.mark.parametrize(("prefix", "runtime"), [("", RUNTIMES[0]), later("direct:", RUNTIMES[1])])
def test_a_faultless_library_with_both_passes(tmp_path: Path, prefix: str, runtime: str) -> None:
    opened = target(f"{prefix}{native_qnn.with_both(tmp_path)}", runtime, **HTP)
    assert (opened.facts.own_interface, opened.facts.backend_type) == (0, "htp")
    verdicts = {rule_id: judge(catalogue()[rule_id], opened, MORE, seed=1) for rule_id in RULES}
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.PASS}
    assert all(verdict.examined for verdict in verdicts.values())


def test_a_backend_that_nobody_named_need_not_be_there(tmp_path: Path) -> None:
    """The external interface takes no option here, and the own one has no HTP."""
    macros = {"TAKES": "type == kGpu", "MISSING_IS_HTP": "1"}
    opened = target(str(native_qnn.with_both(tmp_path, **macros)))
    assert (opened.facts.own_interface, opened.facts.backend_type) == (0, "")
    verdict = judge(catalogue()["TFL-08"], opened, FEW, seed=1)
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert verdict.reason.startswith("backend_type=htp is not to be had here: TfLiteQnnDelegateCreate of ")
    assert judge(catalogue()["TFL-20"], opened, FEW, seed=1).outcome is Outcome.PASS


def test_without_the_option_and_the_interface_there_is_nothing_to_judge(tmp_path: Path) -> None:
    opened = target(str(native_plugins.plugin(tmp_path)))
    for rule_id in RULES:
        verdict = judge(catalogue()[rule_id], opened, FEW, seed=1)
        assert (verdict.outcome, verdict.examples) == (Outcome.UNSUPPORTED, 0)
        assert "TfLiteQnnDelegateCreate" in verdict.reason


def test_a_step_that_no_library_can_do_is_skipped() -> None:
    graph = Graph((Tensor((1,)), Tensor((1,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
    steps = (MakeDelegate("a", interface="own"), MakeDelegate("b", without=("x",)))
    seen = target("reference").run(ScriptCase((graph,), steps)).steps
    assert [step.skipped for step in seen] == [
        "the delegate reference has no interface of its own",
        "the delegate reference is no library",
    ]


def _pytest(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("prefix", first(["", "direct:"]))
def test_the_documented_command_judges_a_library(tmp_path: Path, prefix: str) -> None:
    guides = Path(__file__).parents[2] / "docs" / "how-to"
    document = (guides / "custom-allocations.md").read_text(encoding="utf-8")
    wanted = f"--tflite-delegate={prefix}/opt/qairt/lib/TARGET/libQnnTFLiteDelegate.so"
    found = [one for one in document.split("```sh")[1].split("pytest --pyargs ") if wanted in one]
    words = found[0].partition("```")[0].replace("\\\n", " ").split()
    assert words[0] == "pytest_qnn.conformance"
    library = str(native_qnn.with_both(tmp_path))
    options = [word.replace("/opt/qairt/lib/TARGET/libQnnTFLiteDelegate.so", library) for word in words[1:]]
    done = _pytest(*options, "-k", "test_tfl_08 or test_tfl_20 or test_abi_01", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert ("3 passed" if not prefix else "2 passed, 1 skipped") in done.stdout.splitlines()[-1]


def test_a_wrong_option_ends_the_run_before_any_test(library: Path, tmp_path: Path) -> None:
    done = _pytest(
        f"--tflite-delegate={library}", "--tflite-delegate-option=backend_type=tpu", folder=tmp_path
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    said = [line for line in done.stderr.splitlines() if line]
    assert len(said) == 1
    assert "backend_type is 'tpu', neither gpu, htp, dsp nor a number of 32 bits" in said[0]
    assert "passed" not in done.stdout
