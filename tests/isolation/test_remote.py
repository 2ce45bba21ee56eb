"""Cases that are carried out behind a command: the same traces, and a lost connection costs no verdict."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from native import qnn_library
from sandboxed import CASE, HARMLESS, within

from pytest_qnn.core.target import TargetLost
from pytest_qnn.isolation.remote import connection, messages
from pytest_qnn.isolation.remote.connection import Connection, Pending
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.cases.plain import PLAIN
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from tools import remote as tool

HERE = f"exec:{shlex.join([sys.executable, '-m', connection.MODULE])}"
SEGV = "*(volatile int*)8=0"


def command(source: str) -> str:
    """A command that runs this Python source."""
    return f"exec:{shlex.join([sys.executable, '-c', source])}"


def changed(source: str) -> str:
    """The program there, after this source of Python has changed it."""
    return command(f"from pytest_qnn.isolation.remote import __main__ as board\n{source}\nboard.main()")


def opened(on: str, backend: str = "reference", timeout: float = 10.0) -> MemoryTarget:
    return open_memory_target(backend, "emulated", "auto", timeout, (), on)


@pytest.fixture(scope="module")
def target() -> Iterator[MemoryTarget]:
    with closing(opened(HERE)) as made:
        yield made


def link(target: MemoryTarget) -> Connection:
    """The target's connection."""
    made = target._executor.elsewhere
    assert made is not None
    return made


def kill(target: MemoryTarget) -> None:
    """End the command as the end of a network would."""
    stream = link(target)._stream
    assert stream is not None
    os.kill(stream.pid, signal.SIGKILL)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PAUSES", (0.0, 0.0))


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("memory", 20),
        ("script", 8),
        pytest.param("delegate", 20, marks=pytest.mark.full),
        pytest.param("plugin", 20, marks=pytest.mark.full),
    ],
)
def test_cases_of_each_kind_give_the_same_traces(kind: str, count: int) -> None:
    found = tool.compared(kind, "auto", HERE, count, 1, 10.0)
    assert found.cases == count
    assert found.same >= count / 2
    assert (found.rounding, found.differences) == (0, [])


def test_a_difference_is_found() -> None:
    assert tool.differences(PLAIN, PLAIN) == []
    (found,) = tool.differences(CASE, HARMLESS)
    assert (found.place, found.kind) == ("MemoryCase.steps", "other")


def test_the_target_says_where_it_is(target: MemoryTarget) -> None:
    assert target.options[0] == f"--qnn-on={HERE}"
    found = target.provenance()
    assert found["on"] == HERE
    assert found["machine"].startswith(os.uname().machine)
    assert found["isolation"] == "fork"


def test_variables_are_held_back_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOARD_TOKEN", "1")
    with closing(opened(HERE)) as there:
        assert "BOARD_TOKEN" in there.surroundings(())[0]
        assert "BOARD_TOKEN" not in there.surroundings(("BOARD_TOKEN",))[0]


def test_a_killed_connection_costs_no_case(target: MemoryTarget) -> None:
    before = target.run(PLAIN)
    traces = []
    for number, (trace, _) in enumerate(target.run_all([PLAIN] * 12)):
        traces.append(trace)
        if number in (0, 5):
            kill(target)
    kill(target)
    traces += [target.run(PLAIN), target.run_fresh(PLAIN)]
    assert len(traces) == 14
    for trace in traces:
        assert trace.death is None
        assert all(difference.kind == "measured" for difference in tool.differences(before, trace))


def test_cases_that_were_not_answered_are_carried_out_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program ends at its second call, so that none of that company is answered."""
    marker = tmp_path / "calls"
    source = (
        "import os\nreal = board._Board._called\n"
        "def called(request, sandbox):\n"
        f"    with open({str(marker)!r}, 'a') as file: file.write('%d\\n' % len(request.requests))\n"
        f"    if len(request.requests) == 7 : os._exit(5)\n"
        "    return real(request, sandbox)\n"
        "board._Board._called = staticmethod(called)"
    )
    with closing(opened(changed(source))) as there:
        traces = [trace for trace, _ in there.run_all([PLAIN] * 7)]
    assert [trace.death for trace in traces] == [None] * 7
    sizes = list(map(int, marker.read_text().split()))
    assert sizes[sizes.index(7) + 1 :] == [1] * 7


@pytest.mark.usefixtures("no_pauses")
def test_a_case_that_is_lost_each_time_dies_and_the_next_one_is_judged() -> None:
    source = (
        "import os\nreal = board._Board._called\n"
        "def called(request, sandbox):\n"
        "    if any(b'c666' in one for one in request.requests): os._exit(7)\n"
        "    return real(request, sandbox)\n"
        "board._Board._called = staticmethod(called)"
    )
    deadly = tool.MemoryCase(steps=(*HARMLESS.steps, type(CASE.steps[1])("c666")))
    with closing(opened(changed(source))) as there:
        answers = [trace for trace, _ in there.run_all([PLAIN, deadly, PLAIN])]
    assert [trace.death is None for trace in answers] == [True, False, True]
    death = answers[1].death
    assert death is not None
    assert death.detail.startswith("the connection to the other machine was lost 3 times meanwhile: ")
    assert death.detail.endswith("ended with exit status 7")


@pytest.mark.usefixtures("no_pauses")
def test_a_machine_that_is_gone_for_good_is_one_death_and_then_a_lost_target(tmp_path: Path) -> None:
    once = tmp_path / "once"
    source = (
        f"import os, sys\ntry: os.mkdir({str(once)!r})\n"
        "except OSError: sys.exit('the board is off')\n"
        "from pytest_qnn.isolation.remote.__main__ import main\nmain()"
    )
    with closing(opened(command(source))) as there:
        assert there.run(PLAIN).death is None
        kill(there)
        death = there.run(PLAIN).death
        assert death is not None
        assert death.lost
        assert "ended with exit status 1 (the board is off)" in death.detail
        assert "the connection was lost" in death.detail
        with pytest.raises(TargetLost, match="the board is off"):
            there.run(PLAIN)


HELLO = f"import sys, time; out = sys.stdout.buffer; mark = {messages.MARK!r}; "


@pytest.mark.parametrize(
    ("on", "sentence"),
    [
        ("exec:/nowhere/ssh board", "cannot be started: No such file or directory"),
        (
            command("raise SystemExit('no route to host')"),
            "ended with exit status 1 (no route to host) before",
        ),
        (command("print('x' * 100000)"), "does not begin as that of pytest_qnn.isolation.remote does"),
        (
            command(
                HELLO + "out.write(mark.replace(b'\\n', b'\\r\\n') + bytes(100)); out.flush(); time.sleep(9)"
            ),
            "bytes are changed on the way",
        ),
        (
            changed("board.messages.version = lambda: '9.9\\x1b'"),
            "pytest-qnn 9.9\\x1b is installed there, and ",
        ),
        (changed("board._hello = lambda: ['9.9']"), "first message is that of another version of pytest-qnn"),
        (changed("board.messages.suite_digest = lambda: ''"), "its code is not the same as here"),
    ],
)
def test_what_is_no_way_to_the_same_suite_is_refused_in_one_sentence(on: str, sentence: str) -> None:
    with pytest.raises(TargetUnusable) as refused:
        opened(on)
    assert str(refused.value).startswith("--qnn-on: ")
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_silence_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_START_SECONDS", 0.3)
    with pytest.raises(TargetUnusable, match=r"said nothing for 0.3 s"):
        opened(command("import time; time.sleep(20)"))


def test_what_a_login_shell_prints_is_passed_over(tmp_path: Path) -> None:
    source = "print('Welcome to the board', flush=True)\nprint('stray', file=__import__('sys').stderr)"
    with closing(opened(changed(source))) as there:
        assert there.run(PLAIN).death is None


def test_what_the_program_s_own_process_prints_does_not_enter_the_stream() -> None:
    source = (
        "import os\nreal = board._Board._called\n"
        "def called(request, sandbox):\n"
        "    os.write(1, b'noise'); print('noise', flush=True); assert not os.read(0, 1)\n"
        "    return real(request, sandbox)\n"
        "board._Board._called = staticmethod(called)"
    )
    with closing(opened(changed(source))) as there:
        assert [trace.death for trace, _ in there.run_all([PLAIN] * 3)] == [None] * 3


def test_a_library_there_is_judged_with_digest_evidence_and_names(tmp_path: Path) -> None:
    library = qnn_library(
        tmp_path, SEGV, on_load='puts("loaded");fflush(stdout)', before="#include <stdio.h>\n"
    )
    with closing(opened(HERE, str(library))) as there, closing(opened("here", str(library))) as here:
        assert there.provenance()["library_sha256"] == here.provenance()["library_sha256"]
        death, expected = there.run(CASE).death, here.run(CASE).death
        assert death is not None
        assert expected is not None
        assert (death.kind, death.detail, death.place) == (expected.kind, expected.detail, expected.place)
        named = there.symbolised(death.evidence)
        assert named.during == "QnnContext_create"
        assert "(context_create+" in named.frames[0].text
        assert named.frames[0].text == here.symbolised(expected.evidence).frames[0].text
        assert there.run(HARMLESS).death is None


def test_a_library_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetUnusable, match=r"^--qnn-backend: .*libnone.so"):
        opened(HERE, str(tmp_path / "libnone.so"))


def test_nothing_is_left_when_the_command_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Supervisors there end their children and remove their folders themselves."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    there = opened(HERE)
    with closing(there):
        there.run(PLAIN)
        assert list(tmp_path.glob("pytest-qnn-*"))
        kill(there)
        assert within(10.0, lambda: not list(tmp_path.glob("pytest-qnn-*")))


def test_cases_with_processes_of_their_own_are_sent_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case has a process: the second is on its way before the first is answered; what nobody takes is
    cancelled."""
    cases = [tool.MemoryCase(steps=HARMLESS.steps * (count + 1), ends=True) for count in range(20)]
    with closing(opened(HERE)) as there:
        traces = there.run_all(cases)
        first, alone = next(traces)
        assert (first.death, first.ended, alone) == (None, True, True)
        assert len(link(there)._pending) >= 7
        assert [trace.death for trace, _ in traces] == [None] * 19
        assert not link(there)._pending
        abandoned = there.run_all(cases)
        next(abandoned)
        kill(there)
        abandoned.close()  # type: ignore[attr-defined]
        assert not link(there)._pending
        assert there.run(PLAIN).death is None


def test_a_pending_call_is_alone_after_a_loss_and_given_up_after_three() -> None:
    pending = Pending(messages.Call(1, 2, [b"a", b"b", b"c"], [1, 2, 3]))
    pending.take(messages.Answer(1, b"x"))
    pending.lose("how")
    assert [(call.requests, call.cycles) for call in pending.again()] == [([b"b"], [2]), ([b"c"], [3])]
    for _ in range(2):
        pending.lose("how")
    assert pending.unanswered == 2
    pending.lose("how")
    assert [answer.death is None for answer in pending.answers] == [True, False]
    assert [call.requests for call in pending.again()] == [[b"c"]]
