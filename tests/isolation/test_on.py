"""--qnn-on: a run of pytest whose cases are carried out behind a command."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from real_suite import SUITE
from reports import judged_rules

from pytest_qnn import options as opts
from pytest_qnn.core.forms import BadOption
from pytest_qnn.isolation.remote import connection
from pytest_qnn.options import Options
from pytest_qnn.qnn.cases.plain import PLAIN
from pytest_qnn.qnn.target import open_memory_target
from tools import remote as tool
from tools import sshd

ON = f"exec:{shlex.join([sys.executable, '-m', connection.MODULE])}"
LIBRARY = "/vendor/lib64/libQnnHtp.so"


def parse(*arguments: str, ini: dict[str, Any] | None = None, case_file: Sequence[str] = ()) -> Options:
    parser = argparse.ArgumentParser()
    opts.declare(parser.add_argument)
    return opts.read(vars(parser.parse_args(arguments)), ini or {}, Path("/project"), case_file)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--qnn-on=board"], "'board' is none of here, exec:COMMAND and ssh:HOST"),
        (["--qnn-on="], "'' is none of here"),
        (["--qnn-on=exec:"], "has no command"),
        (["--qnn-on=exec:'"], "is no command: No closing quotation"),
        (["--qnn-on=ssh:"], "names no host"),
        (["--qnn-on=ssh:-oProxyCommand=x"], "names no host"),
        (["--qnn-on=ssh:a b"], "names no host"),
        (["--qnn-on=ssh:a", "--qnn-on=ssh:b"], "are given, and a run has one"),
        (["--qnn-on=ssh:a", "--qnn-sandbox=off"], "off is for this process"),
        (["--qnn-on=ssh:a", "--qnn-debug=gdb", "--qnn-replay=/"], "give --qnn-on=here too"),
        (["--qnn-on=ssh:a", "--qnn-backend=libQnn.so"], "must be absolute"),
        (["--qnn-on=ssh:a", "--tflite-delegate=build/d.so"], "must be absolute"),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(BadOption) as refused:
        parse(*arguments)
    assert sentence in str(refused.value)


def test_paths_are_those_of_the_other_machine() -> None:
    options = parse("--qnn-on=ssh:board", f"--qnn-backend={LIBRARY}", "--tflite-delegate=/vendor/d.so")
    assert (options.on, options.backend) == ("ssh:board", LIBRARY)
    assert options.delegates == (("/vendor/d.so", ()),)
    assert options.files == {LIBRARY, "/vendor/d.so"}
    with pytest.raises(BadOption, match="there is no file"):
        parse(f"--qnn-backend={LIBRARY}")
    with pytest.raises(BadOption, match="must be absolute"):
        parse(ini={"qnn_on": "ssh:board", "qnn_backend": "lib/libQnnHtp.so"})
    assert parse(ini={"qnn_on": "ssh:board", "qnn_backend": LIBRARY}).on == "ssh:board"
    assert parse("--qnn-on=here", ini={"qnn_on": "ssh:board"}).on == "here"


def test_links_of_this_machine_say_nothing_of_a_path_there(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    path = str(link / "libd.so")
    case = [f"--tflite-delegate={path}", "--qnn-on=ssh:board"]
    assert parse("--qnn-on=ssh:board", f"--tflite-delegate={path}", case_file=case).delegates == ((path, ()),)
    assert parse("--qnn-on=ssh:board", f"--qnn-backend={path}", case_file=case[1:]).files == {path}


def test_a_variable_that_is_set_on_the_other_machine_only_can_be_named() -> None:
    assert parse("--qnn-on=ssh:board", "--qnn-env=BOARD_KEY").env == ("BOARD_KEY",)


def test_no_command_of_a_case_file_is_started() -> None:
    evil = ["--qnn-on=exec:touch /tmp/evil"]
    with pytest.raises(BadOption, match="none of a case file is started by itself; name the machine"):
        parse(case_file=evil)
    with pytest.raises(BadOption, match="none of a case file"):
        parse(ini={"qnn_on": "ssh:board"}, case_file=evil)
    assert parse("--qnn-on=here", case_file=evil).on == "here"
    assert parse("--qnn-on=ssh:mine", case_file=evil).on == "ssh:mine"
    assert parse(*evil, case_file=evil).on == evil[0].removeprefix("--qnn-on=")


def test_ssh_is_short_for_a_command() -> None:
    words = connection.command_of("ssh:me@board")
    assert words[0] == "ssh"
    assert words[-4:] == ["me@board", "python3", "-m", "pytest_qnn.isolation.remote"]
    assert connection.command_of("exec:docker exec -i 'a b'") == ["docker", "exec", "-i", "a b"]


def test_a_finding_there_is_reported_and_replayed_there(pytester: pytest.Pytester) -> None:
    arguments = (*SUITE, f"--qnn-on={ON}", "--qnn-backend=mutant:reg-same-handle", "--qnn-seed=1")
    result = pytester.runpytest_inprocess(*arguments, "--qnn-rule=REG-02", "--qnn-report=out.json")
    result.assert_outcomes(failed=1)
    document = json.loads(Path("out.json").read_text())
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["options"]["qnn_on"] == ON
    (target,) = document["targets"]
    assert target["provenance"]["on"] == ON
    assert target["provenance"]["machine"].startswith(os.uname().machine)
    assert [(rule["id"], rule["verdict"]) for rule in judged_rules(document)] == [("REG-02", "fail")]
    (command,) = [rule["replay"] for rule in judged_rules(document)]
    words = shlex.split(command)
    assert f"--qnn-on={ON}" in words
    again = pytester.runpytest_inprocess(*words[1:], "-p", "no:cacheprovider")
    again.stdout.fnmatch_lines(["REG-02 on mutant:reg-same-handle: STILL FAILS: *"])
    refused = pytester.runpytest_inprocess(*(word for word in words[1:] if not word.startswith("--qnn-on")))
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*the case was found with --qnn-on=exec:*"])


def test_live_objects_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(qnn_backend): pass\ndef test_two(delegate): pass")
    result = pytester.runpytest_inprocess("--qnn-on=ssh:board", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*qnn_backend is in this process, and --qnn-on=ssh:board names another*"])


def test_a_machine_that_cannot_be_reached_ends_the_run_before_any_test(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*SUITE, "--qnn-on=exec:/nowhere/ssh board", "--qnn-rule=REG-01")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --qnn-on: /nowhere/ssh board cannot be started: *"])


needs_server = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())


@pytest.mark.full
@needs_server
def test_over_ssh_traces_are_the_same_and_a_lost_connection_costs_no_case(tmp_path: Path) -> None:
    with sshd.served(tmp_path) as config:
        found = tool.compared("memory", "", sshd.place(config), 600, 2, 10.0)
        assert (found.cases, found.rounding, found.differences) == (600, 0, [])
        with contextlib.closing(
            open_memory_target("reference", "emulated", "fork", 10.0, (), sshd.place(config))
        ) as target:
            deaths = []
            for number, (trace, _) in enumerate(target.run_all([PLAIN] * 60)):
                deaths.append(trace.death)
                if number in (0, 40):
                    os.kill(target._executor.elsewhere._stream.pid, signal.SIGKILL)  # type: ignore[union-attr]
            target.run(PLAIN)
            assert deaths == [None] * 60
