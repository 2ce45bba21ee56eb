"""What a release demands is frozen; errata withdraw rules from it; wrong arguments are one sentence."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path

import msgspec
import pytest
from fast_run import later

from pytest_qnn import commands
from pytest_qnn.commands import certify
from pytest_qnn.core.verdict import Level
from pytest_qnn.session.certification import bundle, release, statement, text
from pytest_qnn.session.certification.verify import Findings, verify

ROOT = Path(__file__).resolve().parents[2]


def is_released(version: str) -> bool:
    """The changelog has a heading with the version."""
    return f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_list_is_that_of_the_catalogue_until_its_release() -> None:
    frozen = release.frozen()
    if not is_released(frozen.release):
        assert frozen == release.made(), "python -m pytest_qnn.session.certification.release"
    assert (frozen.profile, frozen.timeout) == ("thorough", 10.0)
    assert set(frozen.rules.values()) <= set(Level)


def stated(**changes: object) -> statement.Statement:
    frozen = release.frozen()
    target = statement.StatedTarget("memory", "lib.so", (), {}, {"pass": 210})
    plain = statement.Statement(
        submission={},
        release=frozen.release,
        catalogue=frozen.catalogue,
        halves=("memory",),
        seed=frozen.seed,
        profile=frozen.profile,
        isolation="fork",
        timeout=frozen.timeout,
        complete=True,
        targets=(target,),
        failing=(),
        answers=1,
        tool={},
        python="",
        platform="",
        started="",
        finished="",
    )
    return msgspec.structs.replace(plain, **changes)


def test_what_is_less_than_the_release_demands_is_no_certification() -> None:
    assert statement.shortcomings(stated(), release.frozen()) == []
    for change in (
        {"profile": "quick"},
        {"seed": 1},
        {"timeout": 1.0},
        {"isolation": "off"},
        {"catalogue": "0"},
        {"complete": False},
    ):
        (said,) = statement.shortcomings(stated(**change), release.frozen())
        assert next(iter(change)) in said or change == {"complete": False}


def test_no_text_of_a_folder_begins_a_line_or_is_obeyed_by_a_terminal() -> None:
    """The last line of a forged trial said that it is certified."""
    forged = "x\nCERTIFIED: every rule that must hold does\x1b[2J"
    target = statement.StatedTarget("memory", forged, (), {f"{forged}_sha256": forged}, {forged: 1})
    said = stated(
        submission={forged: forged}, profile=forged, isolation=forged, targets=(target,), failing=(forged,)
    )
    false = Findings(said, false=[forged])
    true = Findings(said, withdrawn=[forged], violated=[forged])
    true.missing += statement.shortcomings(said, release.frozen())
    for found in (false, true):
        lines = list(text.verified(found))
        assert all(line.isprintable() and not line.startswith("CERTIFIED") for line in lines), lines


def test_an_erratum_withdraws_a_rule_of_its_release_only(tmp_path: Path) -> None:
    one = release.Erratum(1, release.frozen().release, "REG-01", "the header says otherwise")
    other = release.Erratum(2, "0.0.1", "REG-02", "of another release")
    path = tmp_path / "errata.json"
    path.write_bytes(msgspec.json.encode([one, other]))
    withdrawn = release.errata(release.frozen().release, path)
    assert withdrawn["REG-01"] == one
    failing = stated(failing=("REG-01", "REG-02"))
    assert statement.violated(failing, withdrawn) == ["REG-02"]
    path.write_text("[", encoding="utf-8")
    with pytest.raises(release.BadErrata, match=r"errata\.json is no file of errata"):
        release.errata("0.1.0", path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-k", "reg"], "-k is no option of a certification"),
        (["--qnn-expect=known.toml"], "--qnn-expect is no option of a certification"),
        (["--qnn-sandbox=off"], "--qnn-sandbox is no option of a certification"),
        (["--qnn-seed=1"], "--qnn-seed is no option of a certification"),
        (["--qnn-backend"], "--qnn-backend needs a value"),
        (["tests"], "tests is no option of a certification"),
    ],
)
def test_a_certification_has_no_other_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        commands.main(["certify", "--to", str(tmp_path / "new"), *arguments])
    assert ended.value.code == commands.USAGE_ERROR
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_bundle_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert commands.main(["certify", "--to", str(tmp_path)]) == commands.USAGE_ERROR
    assert capsys.readouterr().err == f"certify: --to: {tmp_path} is not empty\n"
    for name, content, said in (
        ("file", "", "SHA256SUMS cannot be read: No such file or directory"),
        (bundle.SUMS, "what\n", "SHA256SUMS: 'what' is no line of it"),
        (bundle.SUMS, "", "file is not in SHA256SUMS"),
        (bundle.SUMS, f"{'0' * 64}  file\n", "file has another sum than SHA256SUMS says"),
        (bundle.SUMS, f"{'0' * 64}  file\n{'0' * 64}  ../gone\n", "../gone is not there"),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(bundle.BadBundle, match=said.replace(".", r"\.")):
            bundle.check_sums(tmp_path)
    bundle.seal(tmp_path)
    (tmp_path / bundle.STATEMENT).write_text(json.dumps({"schema": 1}), encoding="utf-8")
    bundle.seal(tmp_path)
    bundle.check_sums(tmp_path)
    with pytest.raises(bundle.BadBundle, match=r"statement\.json is not what it should be"):
        bundle.typed(tmp_path, bundle.STATEMENT, statement.Statement)


def test_a_target_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = f"--qnn-backend={tmp_path / 'gone.so'}"
    assert commands.main(["certify", "--to", str(tmp_path / "new"), missing]) == commands.USAGE_ERROR
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("certify: the run ended with exit status 4: ERROR: --qnn-backend: ")
    assert "gone.so" in said


@pytest.mark.parametrize("there", [later(False), True])
def test_a_run_that_judges_no_rule_leaves_the_folder_as_it_was(there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    if there:
        folder.mkdir()
    library = tmp_path / "text.so"
    library.write_text("no library\n", encoding="utf-8")  # the target is opened, and refused then
    assert commands.main(["certify", "--to", str(folder), f"--qnn-backend={library}"]) == commands.USAGE_ERROR
    assert folder.exists() == there
    assert not there or not list(folder.iterdir())


def test_a_run_that_ends_when_rules_were_judged_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(folder: Path, command: list[str]) -> int:
        (folder / bundle.ANSWERS).mkdir()
        (folder / bundle.ANSWERS / "0001-REG-08.xz").write_bytes(b"")
        (folder / bundle.RUN_LOG).write_text("interrupted\n", encoding="utf-8")
        return 2

    monkeypatch.setattr(certify, "_run", run)
    assert commands.main(["certify", "--to", str(tmp_path / "new")]) == commands.USAGE_ERROR
    assert "exit status 2: interrupted" in capsys.readouterr().err
    assert (tmp_path / "new" / bundle.RUN_LOG).exists()


def test_what_could_not_be_written_is_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "--qnn-report: report.json could not be written: [Errno 28] No space left on device"

    def run(folder: Path, _: list[str]) -> int:
        (folder / bundle.RUN_LOG).write_text(f"{why}\n=== 1 failed in 2.00s ===\n")
        return 3

    monkeypatch.setattr(certify, "_run", run)
    assert commands.main(["certify", "--to", str(tmp_path / "new")]) == commands.USAGE_ERROR
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"the run ended with exit status 3: {why}")


def test_a_folder_may_have_any_name_and_the_printed_command_is_what_is_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a$HOME `b` 'c' \"d\" *"
    assert commands.main(["certify", "--to", str(folder), *TRIAL[1:]]) == 3
    printed = capfd.readouterr().err.splitlines()[0]
    assert f"--qnn-report={folder}/report.json" in shlex.split(printed)
    assert verify(folder).false == []


def test_a_statement_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(certify, "_run", lambda *_: 0)
    monkeypatch.setattr(certify, "_stated", full)
    assert commands.main(["certify", "--to", str(tmp_path)]) == commands.USAGE_ERROR
    why = "what is stated cannot be written: No space left on device"
    assert capsys.readouterr().err == f"certify: --to: {tmp_path}: {why}\n"


SUITE = (
    "--pyargs",
    "pytest_qnn.conformance",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_qnn.plugin",
    "--qnn-certify=new",
)
BESIDE = ("-p", "_hypothesis_pytestplugin")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--qnn-certify needs --qnn-sandbox=fork or spawn"),
        (("--qnn-sandbox=fork", "--qnn-corpus=cases"), "--qnn-certify and --qnn-corpus exclude each other"),
        (("--qnn-sandbox=fork", "--qnn-blocks=2"), "--qnn-certify and --qnn-blocks exclude each other"),
        (("--qnn-sandbox=fork", "-k", "test_reg_08"), "231 rules are not collected, CAP-01"),
        (
            ("--qnn-sandbox=fork", *BESIDE, "--qnn-rule=REG-08"),
            "the plugin _hypothesis_pytestplugin takes part",
        ),
    ],
)
def test_a_run_that_is_no_certification_is_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    # Nobody knows what else is installed beside these tests: a plugin of it would be refused first.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_inprocess(*SUITE, "--qnn-backend=reference", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join([*result.errlines, *result.outlines])


TRIAL = ("--qnn-sandbox=fork", "--qnn-profile=quick", "--qnn-rule=REG-08", "--qnn-backend=reference")


def test_answers_that_cannot_be_written_hide_no_verdict(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    folder = pytester.mkdir("new")
    written = [folder / name for name in ("memory.xz", "0001-REG-08.xz")]
    for path in written:
        path.symlink_to("/dev/full")
    result = pytester.runpytest_inprocess(*SUITE, *TRIAL, "--qnn-report=out.json")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
    said = [line for line in result.outlines if line.startswith("--qnn-certify: ")]
    assert said == [
        f"--qnn-certify: {path} could not be written: No space left on device" for path in written
    ]
    assert not any(map(os.path.lexists, written))
    assert '"verdict": "pass"' in (pytester.path / "out.json").read_text()


def test_a_folder_for_answers_that_cannot_be_made_is_one_sentence(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_inprocess(*SUITE[:-1], *TRIAL, "--qnn-certify=/proc/new")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--qnn-certify: /proc/new cannot be made: No such file or directory" in "\n".join(result.errlines)
    assert "Traceback" not in f"{result.stdout}{result.stderr}"
