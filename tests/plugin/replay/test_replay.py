from __future__ import annotations

import itertools
import json
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

import fake_suite
import jsonschema
import msgspec
import numpy as np
import pytest

from pytest_qnn import case_file
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.verdict import Examined, Violation
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.session import replay as replaying
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.plugin import Copy, Create, Cycle, PluginCase
from pytest_qnn.tflite.cases.script import MakeDelegate, ScriptCase
from pytest_qnn.tflite.graph.model import emit

pytestmark = pytest.mark.usefixtures("fakes")


def run(pytester: pytest.Pytester, rule_ids: tuple[str, ...], *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_rules=fake_suite.suite(*rule_ids))
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "test_rules.py", *arguments)


def finding(pytester: pytest.Pytester, rule_id: str) -> Path:
    """The folder that a finding has left."""
    return next((pytester.path / ".pytest-qnn").glob(f"*/{rule_id}"))


def content_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "case.json").read_text())
    return content


def rewritten(folder: Path, **changes: Any) -> Path:
    (folder / "case.json").write_text(json.dumps(content_of(folder) | changes))
    return folder


def schema() -> dict[str, Any]:
    text = resources.files("pytest_qnn.report").joinpath("case.schema.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_the_shipped_schema_is_that_of_the_types() -> None:
    assert schema() == case_file.json_schema()  # if not: python -m pytest_qnn.case_file


@pytest.mark.parametrize("rule_id", ["REG-02", "PART-02"])
def test_case_files_are_valid_by_the_schema(pytester: pytest.Pytester, rule_id: str) -> None:
    run(pytester, (rule_id,))
    jsonschema.Draft202012Validator.check_schema(schema())
    content = content_of(finding(pytester, rule_id))
    jsonschema.Draft202012Validator(schema()).validate(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema()).validate(content | {"code": "import os"})


def test_a_finding_leaves_its_case_and_its_target(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-03",), "--qnn-seed=9")
    content = content_of(finding(pytester, "REG-03"))
    assert set(content.pop("tool")) == {"pytest-qnn", "msgspec", "numpy"}
    assert content == {
        "subject": "memory",
        "schema": 2,
        "rule": "REG-03",
        "verdict": "crash",
        "flaky": "",
        "target": "reference",
        "options": ["--qnn-backend=reference", "--qnn-rpcmem=emulated"],
        "provenance": {"library": "reference", "library_sha256": "0" * 64},
        "seed": 9,
        "case": {
            "steps": [{"do": "context-create", "context": "c0"}, {"do": "context-free", "context": "crash"}]
        },
        "expected": "the call returns, with success or an error",
        "seen": "SIGSEGV",
        "where": "step 1",
        "picture": "",
    }
    assert (pytester.path / ".pytest-qnn" / ".gitignore").read_text() == "*\n"


def test_a_delegate_finding_leaves_model_and_inputs(pytester: pytest.Pytester) -> None:
    run(pytester, ("PART-02",))
    folder = finding(pytester, "PART-02")
    case = DelegateCase(fake_suite.GRAPH)
    assert (folder / "model.tflite").read_bytes() == emit(case.graph)
    with np.load(folder / "inputs.npz", allow_pickle=False) as inputs:
        assert list(inputs) == ["t0"]
        np.testing.assert_array_equal(inputs["t0"], inputs_of(case)[0], strict=True)


@pytest.mark.parametrize(
    ("rule_id", "names"),
    [
        ("REG-02", ["README.txt", "case.json", "command.txt", "reproduce.txt", "snippet.py"]),
        (
            "PART-02",
            [
                *("README.txt", "case.json", "command.txt", "inputs.npz", "model.tflite"),
                "reproduce.txt",
                "snippet.py",
            ],
        ),
    ],
)
def test_the_readme_names_every_file_and_the_target(
    pytester: pytest.Pytester, rule_id: str, names: list[str]
) -> None:
    run(pytester, (rule_id,))
    folder = finding(pytester, rule_id)
    assert sorted(path.name for path in folder.iterdir()) == names
    text = (folder / "README.txt").read_text()
    assert text.startswith(f"{rule_id} fail: Sentence of {rule_id}.\n")
    assert "  seen      code 1000 <&>\n" in text
    assert all(f"\n  {name} " in text for name in names if name != "README.txt")
    assert all(value in text for value in content_of(folder)["provenance"].values())


def replay(pytester: pytest.Pytester, command: str) -> None:
    program, *arguments = shlex.split(command)
    assert Path(program).name == "pytest"
    assert program == shutil.which("pytest") or Path(program).is_absolute() or shutil.which(program)
    replayed = pytester.runpytest_inprocess(*arguments)
    replayed.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: *"])
    replayed.assert_outcomes(failed=1, deselected=replayed.parseoutcomes()["deselected"])


def shown(result: pytest.RunResult) -> str:
    """The replay command on the terminal."""
    # On CI, pytest's short summary says the whole message once more.
    (command,) = {line.split(maxsplit=1)[1] for line in result.outlines if line.startswith("  replay ")}
    return command


def test_the_command_that_is_shown_replays_the_case_from_anywhere(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = shown(run(pytester, ("REG-02",)))
    assert (finding(pytester, "REG-02") / "command.txt").read_text() == f"{command}\n"
    monkeypatch.chdir(pytester.mkdir("elsewhere"))
    replay(pytester, command)


def test_the_command_starts_this_environments_pytest_where_it_is_not_activated(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    command = shown(run(pytester, ("REG-02",)))
    assert command.startswith(f"{Path(sys.executable).with_name('pytest')} --qnn-replay=")


def test_a_new_finding_replaces_the_folder_of_the_old_one(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",))
    (finding(pytester, "REG-02") / "old").touch()
    run(pytester, ("REG-02",), "--qnn-seed=77")
    folder = finding(pytester, "REG-02")
    assert content_of(folder)["seed"] == 77
    assert not (folder / "old").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["REG-02"]


def test_findings_are_kept_with_the_project_whatever_library_is_named(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    library = tmp_path / "lib.so"
    library.touch()
    run(pytester, ("REG-02",), "--qnn-backend", str(library))
    assert finding(pytester, "REG-02").parent.name.startswith("memory-lib-so-")
    assert list(tmp_path.iterdir()) == [library]


def test_findings_are_beside_the_ini_file_wherever_pytest_is_started(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    monkeypatch.chdir(pytester.mkdir("sub"))
    result = pytester.runpytest_inprocess("..")
    path = finding(pytester, "REG-02")
    result.stdout.fnmatch_lines([f"  replay *pytest --qnn-replay={path} *"])


def test_a_pass_and_what_is_unsupported_leave_nothing(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01", "REG-06"))
    assert not (pytester.path / ".pytest-qnn").exists()


def test_replay_repeats_the_sandbox_and_timeout_that_were_asked_for(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",), "--qnn-timeout=2", "--qnn-sandbox=spawn")
    options = content_of(finding(pytester, "REG-02"))["options"]
    assert options[-2:] == ["--qnn-sandbox=spawn", "--qnn-timeout=2"]


def test_a_finding_says_which_variables_children_had_and_hands_none_on(pytester: pytest.Pytester) -> None:
    command = shown(run(pytester, ("REG-02",), "--qnn-env=PATH", "--qnn-env=HOME"))
    folder = finding(pytester, "REG-02")
    assert command.endswith(" --qnn-env=PATH --qnn-env=HOME")
    assert content_of(folder)["options"][-2:] == ["--qnn-env=PATH", "--qnn-env=HOME"]
    replay(pytester, command)
    refused = run(pytester, ("REG-02",), f"--qnn-replay={folder}", "--qnn-timeout=2")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    said = "the case file names the variable 'PATH', and has none passed on by itself; "
    refused.stderr.fnmatch_lines([f"*CANNOT RUN: {said}name it on the command line: --qnn-env=PATH"])
    others = run(pytester, ("REG-02",), f"--qnn-replay={folder}", "--qnn-env=HOME")
    others.stdout.fnmatch_lines(
        ["REG-02 on reference: STILL FAILS: *"]
    )  # it is how it runs, not what is judged


@pytest.mark.parametrize("name", ["", "case.json"])
def test_replay_takes_the_folder_or_its_file_and_judges_only_that_rule(
    pytester: pytest.Pytester, name: str
) -> None:
    run(pytester, ("REG-01", "REG-02"))
    path = finding(pytester, "REG-02") / name
    result = run(pytester, ("REG-01", "REG-02"), "--qnn-replay", str(path))
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: expected 0 (success); seen code 1000*"])


def test_replay_needs_no_test_on_the_command_line(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",))
    folder = finding(pytester, "REG-02")
    pytester.makepyfile(test_rules="def test_other(): assert False")
    result = pytester.runpytest_inprocess(f"--qnn-replay={folder}")
    result.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: *"])
    assert result.parseoutcomes()["failed"] == 1


def test_a_folder_replays_wherever_it_is_moved(pytester: pytest.Pytester, tmp_path: Path) -> None:
    run(pytester, ("PART-02",))
    moved = finding(pytester, "PART-02").rename(tmp_path / "moved")
    result = pytester.runpytest_inprocess(f"--qnn-replay={moved}")
    result.stdout.fnmatch_lines(["PART-02 on reference: STILL FAILS: *"])


@pytest.mark.parametrize(
    ("rule_id", "outcome", "line"),
    [
        ("REG-01", "passed", "REG-01 on reference: FIXED: the rule holds in this case (1 calls examined)"),
        ("REG-06", "failed", "REG-06 on reference: CANNOT RUN: the key answers 1000"),
        (
            "REG-07",
            "failed",
            "REG-07 on reference: CANNOT RUN: the case ran, and let the rule look at nothing",
        ),
        (
            "REG-11",
            "failed",
            "REG-11 on reference: CANNOT RUN: internal error: ZeroDivisionError: a mistake of ours; *",
        ),
        ("PART-01", "failed", "PART-01 on reference: CANNOT RUN: the file has a memory case, and PART-01 *"),
    ],
)
def test_replay_says_what_became_of_the_case(
    pytester: pytest.Pytester, rule_id: str, outcome: str, line: str
) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), rule=rule_id)
    result = run(pytester, (rule_id,), "--qnn-replay", str(folder))
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines([line])


@pytest.mark.parametrize(
    ("rule_id", "detail"),
    [
        ("REG-07", "the case ran, and let the rule look at nothing"),
        ("REG-11", "internal error: ZeroDivisionError: a mistake of ours; the suite *"),
    ],
)
def test_a_rule_that_could_not_be_judged_leaves_a_case_as_well(
    pytester: pytest.Pytester, rule_id: str, detail: str
) -> None:
    lines = run(pytester, (rule_id,)).outlines
    content = content_of(finding(pytester, rule_id))
    assert (content["verdict"], content["rule"]) == ("inconclusive", rule_id)
    assert any(line.startswith("  replay ") for line in lines) or rule_id == "REG-11"
    result = run(pytester, (rule_id,), "--qnn-replay", str(finding(pytester, rule_id)))
    result.stdout.fnmatch_lines([f"{rule_id} on reference: STILL FAILS: {detail}"])
    fixed = rewritten(finding(pytester, rule_id), rule="REG-01")
    result = run(pytester, ("REG-01",), "--qnn-replay", str(fixed))
    result.stdout.fnmatch_lines(["REG-01 on reference: FIXED: *"])


def test_a_flaky_case_is_fixed_where_it_holds_often_enough(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), rule="REG-01", flaky="failed 2 of 6 runs")
    result = run(pytester, ("REG-01",), f"--qnn-replay={folder}")
    result.stdout.fnmatch_lines(["*: FIXED: *, in each of 8 runs; when it was found it failed 2 of 6 runs"])


def test_a_flaky_case_that_fails_in_a_later_run_still_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), rule="REG-01", flaky="failed 1 of 6 runs")
    given = itertools.chain([Examined(1, "calls")] * 4, [Violation("an error", "success", "step 0")])
    monkeypatch.setattr(replaying.engine, "judge_case", lambda *_: next(given))
    result = run(pytester, ("REG-01",), f"--qnn-replay={folder}")
    told = "in run 5, where it failed 1 of 6 runs when it was found: "
    result.stdout.fnmatch_lines([f"*: STILL FAILS: {told}*success*"])


@pytest.mark.parametrize(
    ("flaky", "runs"),
    [
        ("", 1),
        ("failed 1 of 6 runs", 17),
        ("failed 5 of 6 runs", 2),
        ("failed 1 of 100 runs", 40),
        ("failed 6 of 6 runs", 1),
        ("failed 0 of 0 runs", 1),
        ("fails behind others only", 1),
        (f"failed 1 of {'9' * 5000} runs", 1),
    ],
)
def test_a_case_is_judged_as_often_as_it_takes_to_be_met(flaky: str, runs: int) -> None:
    assert replaying._runs(flaky) == runs


FOUND_ON = ["--qnn-backend=mutant:other", "--qnn-rpcmem=emulated"]


@pytest.mark.parametrize(
    "further",
    [
        (),
        ("--qnn-timeout=60",),
        ("--qnn-sandbox=spawn",),
        ("--tflite-runtime=auto",),
        ("--tflite-delegate=xnnpack",),
        ("--qnn-rpcmem=emulated",),
        ("--qnn-backend=mutant:other",),
    ],
)
@pytest.mark.parametrize(("rule_id", "result"), [("REG-01", "FIXED"), ("REG-02", "STILL FAILS")])
def test_replay_judges_the_target_of_the_file_whatever_else_is_said(
    pytester: pytest.Pytester, further: tuple[str, ...], rule_id: str, result: str
) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), options=FOUND_ON, rule=rule_id)
    replayed = run(pytester, (rule_id,), f"--qnn-replay={folder}", *further)
    replayed.stdout.fnmatch_lines([f"{rule_id} on mutant:other: {result}: *"])


@pytest.mark.parametrize(
    ("rule_id", "result", "outcome"),
    [("REG-01", "PASSES HERE", "passed"), ("REG-02", "FAILS HERE", "failed")],
)
def test_on_another_target_nothing_is_said_of_the_one_in_the_file(
    pytester: pytest.Pytester, rule_id: str, result: str, outcome: str
) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), options=FOUND_ON, rule=rule_id)
    replayed = run(pytester, (rule_id,), f"--qnn-replay={folder}", "--qnn-backend=reference")
    replayed.assert_outcomes(**{outcome: 1})
    replayed.stdout.fnmatch_lines(
        [
            f"{rule_id} on reference: {result}: *",
            (
                "Judged: --qnn-backend=reference --qnn-rpcmem=emulated. "
                "Not judged: --qnn-backend=mutant:other --qnn-rpcmem=emulated, on which the case was found."
            ),
        ]
    )
    assert "FIXED" not in replayed.stdout.str()


def test_another_runtime_is_another_target(pytester: pytest.Pytester) -> None:
    run(pytester, ("PART-02",))
    provenance = {"runtime": "another_runtime"}
    folder = rewritten(finding(pytester, "PART-02"), rule="PART-01", provenance=provenance)
    replayed = run(pytester, ("PART-01",), f"--qnn-replay={folder}")
    replayed.stdout.fnmatch_lines(
        ["PART-01 on reference: PASSES HERE: *", "*=fake_runtime. *=another_runtime,*"]
    )


def refusal(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.str().splitlines() if line]
    return line


def test_replay_on_a_target_of_the_file_that_is_gone_cannot_run(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), options=["--qnn-backend=/gone/lib.so"])
    said = refusal(run(pytester, ("REG-02",), f"--qnn-replay={folder}"))
    assert said.startswith(
        f"ERROR: --qnn-replay {folder}: CANNOT RUN: the case file names the file '/gone/lib.so'"
    )
    named = ("--qnn-backend=/gone/lib.so", f"--qnn-replay={folder}")
    assert refusal(run(pytester, ("REG-02",), *named)).startswith(
        "ERROR: --qnn-backend: there is no file '/gone/lib.so'"
    )


def test_a_target_of_the_file_that_cannot_be_opened_cannot_run(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",))
    folder = rewritten(finding(pytester, "REG-02"), options=["--qnn-backend=mutant:unusable"])
    said = refusal(run(pytester, ("REG-02",), f"--qnn-replay={folder}"))
    assert said == (
        f"ERROR: --qnn-replay {folder}: CANNOT RUN: --qnn-backend mutant:unusable: it is no library."
    )


@pytest.mark.parametrize("flag", ["--qnn-backend", "--qnn-rpcmem", "--tflite-delegate"])
@pytest.mark.parametrize("place", ["with the case", "in the working directory", "anywhere"])
def test_a_library_that_only_the_case_names_is_not_loaded(
    pytester: pytest.Pytester, flag: str, place: str, tmp_path: Path
) -> None:
    run(pytester, ("REG-02",))
    folder = finding(pytester, "REG-02")
    names = {"with the case": folder / "lib.so", "anywhere": tmp_path / "lib.so"}
    name = names.get(place, Path("lib.so"))
    name.touch()
    rewritten(folder, options=[f"{flag}={name}"])
    said = refusal(run(pytester, ("REG-02",), f"--qnn-replay={folder}"))
    assert f"CANNOT RUN: the case file names the file '{name}'" in said
    assert said.endswith(f"; name it on the command line: {flag}={name}")


MADE = PluginCase(fake_suite.GRAPH, (Create(options=((b"library_path", b"/tmp/lib.so"),)),))
REMADE = ScriptCase((fake_suite.GRAPH,), (MakeDelegate("d", options=(("backend", "lib"),)),))


@pytest.mark.parametrize(
    ("subject", "case", "option"),
    [
        ("delegate-plugin", MADE, "library_path=/tmp/lib.so"),
        ("delegate-script", REMADE, "backend=lib"),
        (
            "delegate",
            DelegateCase(fake_suite.GRAPH, (Application(options=(("backend", "lib"),)),)),
            "backend=lib",
        ),
    ],
)
def test_options_inside_a_case_name_no_files_of_their_own(
    pytester: pytest.Pytester, subject: str, case: Any, option: str
) -> None:
    run(pytester, ("PART-02",))
    data = json.loads(msgspec.json.encode(case))
    folder = rewritten(finding(pytester, "PART-02"), subject=subject, case=data)
    said = refusal(run(pytester, ("PART-02",), f"--qnn-replay={folder}"))
    assert said.endswith(f"name it on the command line: --tflite-delegate-option={option}")
    named = "--tflite-delegate=reference", f"--tflite-delegate-option={option}"
    allowed = run(pytester, ("PART-02",), f"--qnn-replay={folder}", *named)
    assert allowed.ret != pytest.ExitCode.USAGE_ERROR


def test_every_field_of_a_case_with_pairs_of_texts_is_called_options() -> None:
    """`pytest_qnn.session.replay` looks for files in fields of this name."""
    pairs = [tuple[tuple[str, str], ...], tuple[tuple[bytes, bytes], ...]]
    seen, waiting = set(), [MemoryCase, DelegateCase, ScriptCase, PluginCase]
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for name, hint in get_type_hints(kind).items():
                assert (name == "options") or hint not in pairs, (kind, name)
                waiting.append(hint)
        else:
            waiting += get_args(kind)
    assert {Create, Copy, Cycle, MakeDelegate, Application} <= seen


def test_replay_of_a_named_test_of_another_rule_is_a_usage_error(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",))
    said = refusal(run(pytester, ("REG-01",), f"--qnn-replay={finding(pytester, 'REG-02')}"))
    assert said.startswith("ERROR: --qnn-replay: no collected test judges REG-02; ")


def test_replay_leaves_the_report_of_the_whole_run_alone(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-02",), "--qnn-report=out.json")
    before = (pytester.path / "out.json").read_bytes()
    run(pytester, ("REG-02",), "--qnn-report=out.json", f"--qnn-replay={finding(pytester, 'REG-02')}")
    assert (pytester.path / "out.json").read_bytes() == before


def test_what_is_written_is_what_is_read(pytester: pytest.Pytester) -> None:
    run(pytester, ("PART-02",))
    folder = finding(pytester, "PART-02")
    content = case_file.read(folder)
    assert content == case_file.read(folder / "case.json")
    assert content.case == DelegateCase(fake_suite.GRAPH)
    assert case_file.encode(content) == (folder / "case.json").read_bytes()


def test_a_sentence_about_a_file_is_one_line_without_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(msgspec.json.encode({"schema": 2, "subject": "a\n\x1b[2J" + "b" * 1000}))
    with pytest.raises(BadOption) as raised:
        case_file.read(path)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500 + len(str(path))
