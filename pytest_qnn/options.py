"""The options of the plugin: declared once, read from the command line or the ini file, checked for form.

Only the form is checked here (a number is a number, a file is there): what needs the file to be loaded
is said when the target is opened. Importing this module loads nothing but the standard library.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pytest_qnn.core import forms, submission
from pytest_qnn.core.forms import LEVELS, PRECISIONS, PROFILE_NAMES, RUNTIMES, SANDBOXES, VARIANTS, BadOption

DEFAULT_DELEGATES = (("reference", ()),)

_NAMES_A_TARGET = {
    "delegate": frozenset({"--tflite-delegate"}),
    "memory": frozenset({"--qnn-backend", "--qnn-rpcmem"}),
}
"""The options that say which half of the catalogue a run is about."""


@dataclasses.dataclass(frozen=True)
class Declared:
    """One option of the command line and of the ini file."""

    flag: str
    metavar: str
    help: str
    kind: str = "value"
    """``value``, ``list`` (repeatable) or ``switch``."""
    selects_target: bool = False
    once: bool = False
    """Two different values on one command line are a mistake, and not an overruled default."""
    is_path: bool = False
    """The value may be a path: in the ini file it is relative to that file."""
    is_always_path: bool = False
    """It is no keyword: a bare name is a path too."""

    @property
    def ini(self) -> str:
        """Name of the ini option, and of the command line's destination."""
        return self.flag.lstrip("-").replace("-", "_")


DECLARED = (
    Declared(
        "--qnn-backend",
        "SPEC",
        "QNN backend under judgement: reference (default), the path of a library that exports "
        "QnnInterface_getProviders, or proxy:PATH (the suite's own QnnMem over that library's graphs)",
        selects_target=True,
        once=True,
        is_path=True,
    ),
    Declared(
        "--qnn-rpcmem",
        "SPEC",
        "rpcmem that QNN cases allocate from: emulated (default), the path of libcdsprpc.so, or "
        "that name alone, which the loader then looks for",
        selects_target=True,
        once=True,
        is_path=True,
    ),
    Declared(
        "--tflite-delegate",
        "SPEC",
        "delegate under judgement: reference (default), xnnpack, or the path of an external delegate "
        "plugin; repeatable, the order is precedence",
        kind="list",
        selects_target=True,
        is_path=True,
    ),
    Declared(
        "--tflite-delegate-option",
        "KEY=VALUE",
        "option for the delegate plugin named last before it; repeatable "
        "(ini: for the last plugin of tflite_delegate)",
        kind="list",
        selects_target=True,
    ),
    Declared(
        "--tflite-runtime",
        "NAME",
        "TensorFlow Lite runtime: auto (default), tflite_runtime or ai_edge_litert",
        selects_target=True,
    ),
    Declared(
        "--tflite-delegate-precision",
        "NAME",
        "what the delegates compute float32 graphs in: float32 (default), or float16 where their "
        "documentation says so",
        selects_target=True,
    ),
    Declared(
        "--qnn-sandbox",
        "MODE",
        "where cases run: auto (default: in this process for the reference, in children for foreign "
        "libraries), off, fork or spawn",
        selects_target=True,
    ),
    Declared(
        "--qnn-on",
        "PLACE",
        "machine that cases are carried out on: here (default), ssh:HOST, or exec:COMMAND, whose standard "
        "input and output lead to `python3 -m pytest_qnn.isolation.remote` there; paths of libraries are "
        "then those of that machine (docs/how-to/remote.md)",
        selects_target=True,
        once=True,
    ),
    Declared(
        "--qnn-timeout",
        "SECONDS",
        "time limit of one sandboxed case (default: 10)",
        selects_target=True,
    ),
    Declared(
        "--qnn-env",
        "NAME",
        "environment variable that children get although its name looks like a credential's (has TOKEN, "
        "SECRET, PASSWORD, KEY, CREDENTIAL or AUTH in it); repeatable",
        kind="list",
        selects_target=True,
    ),
    Declared(
        "--qnn-rule",
        "IDS",
        "judge only rules with these ids or shell patterns, such as NUM-03,REG-*; repeatable; a rule must "
        "satisfy each of --qnn-rule, --qnn-area and --qnn-level that is given; ignored with --qnn-replay",
        kind="list",
    ),
    Declared(
        "--qnn-area", "AREAS", "judge only rules of these areas, such as REG,NUM; repeatable", kind="list"
    ),
    Declared(
        "--qnn-level",
        "LEVELS",
        "judge only rules of these levels: MUST, SHOULD or MAY, separated by commas; repeatable",
        kind="list",
    ),
    Declared(
        "--qnn-report",
        "PATH",
        "write the verdicts to PATH.json or PATH.html at the end of the run; repeatable. A page needs "
        "jinja2: pip install jinja2",
        kind="list",
        is_path=True,
    ),
    Declared(
        "--qnn-report-before",
        "FILE.json",
        "report of an earlier run in JSON: the pages of --qnn-report=PATH.html show which findings are new, "
        "gone or changed since then",
        once=True,
        is_path=True,
        is_always_path=True,
    ),
    Declared(
        "--qnn-vendor",
        "TEXT",
        "vendor of what is judged, for the header and the reports: one line of at most 200 characters",
    ),
    Declared("--qnn-product", "TEXT", "product that is judged, in the same way"),
    Declared("--qnn-sdk", "TEXT", "name or version of the SDK that it is of, in the same way"),
    Declared("--qnn-board", "TEXT", "board that the run is on, in the same way"),
    Declared(
        "--qnn-about",
        "FILE.toml",
        "TOML file with any of the keys vendor, product, sdk and board; the options of these names win",
        is_path=True,
    ),
    Declared(
        "--qnn-shard",
        "K/N",
        "judge only part K of N, from 1: rules and seed blocks are shared out alike on every machine, and "
        "`python -m pytest_qnn merge` puts the reports together; needs --qnn-seed (docs/how-to/shards.md)",
        once=True,
    ),
    Declared(
        "--qnn-blocks",
        "B",
        "judge each rule B times (default: 1), with cases of another seed each; the worst verdict counts",
        once=True,
    ),
    Declared(
        "--qnn-matrix",
        "FILE.toml",
        "TOML file of targets, each with options: each is judged in a run of its own, one after another, and "
        "its name is in those of its reports and JUnit file (docs/how-to/matrix.md)",
        once=True,
        is_path=True,
        is_always_path=True,
    ),
    Declared("--qnn-target", "NAME", "judge only this target of --qnn-matrix", once=True),
    Declared("--qnn-profile", "NAME", "how much is tried per rule: quick, default or thorough"),
    Declared(
        "--qnn-seed", "N", "seed of all generated cases (default: a new one each run, shown in the header)"
    ),
    Declared(
        "--qnn-expect",
        "FILE",
        "TOML file of known failures: those that are found are accepted and shown as known; any other, one "
        "that is not found, and one that is expired, fail (docs/how-to/known-failures.md)",
        once=True,
        is_path=True,
        is_always_path=True,
    ),
    Declared(
        "--qnn-corpus",
        "FOLDER",
        "folder of cases that broke rules once: they are tried first, and findings join "
        "(docs/how-to/corpus.md)",
        once=True,
        is_path=True,
        is_always_path=True,
    ),
    Declared("--qnn-strict", "", "a violated SHOULD fails instead of xfails", kind="switch"),
    Declared(
        "--qnn-certify",
        "FOLDER",
        "write what every case was answered to FOLDER, for `python -m pytest_qnn certify`, which makes the "
        "arguments of such a run (docs/how-to/certification.md)",
        once=True,
        is_path=True,
        is_always_path=True,
    ),
    Declared(
        "--qnn-replay",
        "FOLDER",
        "judge only the case in FOLDER (or in its case.json), as written under .pytest-qnn/ for a rule that "
        "did not pass",
        is_path=True,
    ),
    Declared(
        "--qnn-debug",
        "TOOL",
        "with --qnn-replay: carry out the case in a single process under gdb, valgrind or asan "
        "(AddressSanitizer), or behind any other command (docs/how-to/debugging.md)",
    ),
    Declared(
        "--qnn-explain",
        "IDS",
        "print the pages of these rules, ids or shell patterns such as REG-21,CTX-*, and end: what each "
        "demands, its smallest violation, its mutants, what public libraries do; repeatable "
        "(docs/rules/README.md)",
        kind="list",
    ),
)

Pairs = tuple[tuple[str, str], ...]
Delegates = tuple[tuple[str, Pairs], ...]


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which rules a run judges: those that satisfy all three; every rule satisfies what was not given."""

    rules: tuple[str, ...] = ()
    """Ids and shell patterns, in capital letters, of which one must match."""
    areas: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    def given(self) -> dict[str, tuple[str, ...]]:
        """The flags that were given, with their values."""
        values = {"--qnn-rule": self.rules, "--qnn-area": self.areas, "--qnn-level": self.levels}
        return {flag: names for flag, names in values.items() if names}


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a run, checked for form."""

    backend: str = "reference"
    rpcmem: str = "emulated"
    delegates: Delegates = DEFAULT_DELEGATES
    """(specification, its (key, value) options), in order of precedence."""
    runtime: str = "auto"
    precision: str = "float32"
    """What the delegates are declared to compute float32 graphs in."""
    sandbox: str = "auto"
    on: str = forms.HERE
    """The machine that cases are carried out on; paths of what is judged are those of that machine."""
    timeout: float = 10.0
    """Seconds for one sandboxed case."""
    env: tuple[str, ...] = ()
    """Environment variables that children get although their names look like credentials'."""
    selection: Selection = Selection()
    submission: Pairs = ()
    """What names the submission: (key, text) of what was given, in the order of `submission.KEYS`."""
    reports: tuple[Path, ...] = ()
    report_before: Path | None = None
    """The earlier report that pages are compared with."""
    profile: str = "default"
    seed: int | None = None
    """None: not given; the run draws one."""
    shard: tuple[int, int] | None = None
    """(K, N), from 1: the part of the campaign that the run judges; None: all of it."""
    blocks: int = 1
    """Seed blocks of each rule."""
    matrix: Path | None = None
    """The file of targets."""
    target: str | None = None
    """The target of the matrix that the run is about; None: of a matrix all, each in a run of its own."""
    strict: bool = False
    expect: Path | None = None
    """The file of known failures."""
    corpus: Path | None = None
    """The folder of cases that are tried first."""
    certify: Path | None = None
    """The folder of the answers that are kept."""
    replay: Path | None = None
    debug: str = ""
    """What the case to replay is carried out under; empty: nothing, it is judged."""
    given: frozenset[str] = frozenset()
    """Flags that the command line or the ini file gave."""
    files: frozenset[str] = frozenset()
    """Files that the command line or the ini file names to be loaded: absolute, their links as they are."""

    @property
    def halves(self) -> frozenset[str]:
        """The halves of the catalogue that the run is about.

        A delegate's author who names a delegate wants it judged, and not the reference backend as well;
        and the other way round. Who names targets of both kinds, or none, wants both.
        """
        named = {half for half, flags in _NAMES_A_TARGET.items() if self.given & flags}
        return frozenset(named or _NAMES_A_TARGET)


def declare(add: Callable[..., object]) -> None:
    """Declare every option through ``add``: a pytest option group's ``addoption``, or argparse's.

    Delegates and their options share one destination, so that their order is kept.
    """
    for one in DECLARED:
        if one.kind == "switch":
            add(one.flag, action="store_true", dest=one.ini, default=None, help=one.help)
        elif one.flag in _CHAIN:
            add(
                one.flag,
                metavar=one.metavar,
                action="append",
                type=_CHAIN[one.flag],
                dest="tflite_chain",
                help=one.help,
            )
        else:
            action = "append" if one.kind == "list" else _Once if one.once else "store"
            add(one.flag, metavar=one.metavar, action=action, dest=one.ini, help=one.help)


class _Once(argparse.Action):
    """Stores a value, and in ``given_twice`` that another one was there."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        value: Any,
        flag: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        if before not in (None, value):
            namespace.given_twice = (flag, before, value)
        setattr(namespace, self.dest, value)


def _delegate(text: str) -> tuple[str, str]:
    return ("delegate", text)


def _option(text: str) -> tuple[str, str]:
    return ("option", text)


_CHAIN = {"--tflite-delegate": _delegate, "--tflite-delegate-option": _option}
_CHAIN_FLAGS = {"delegate": "--tflite-delegate", "option": "--tflite-delegate-option"}
Chain = list[tuple[str, str]]
"""Delegates and their options in order: ``("delegate", specification)`` and ``("option", "key=value")``."""


@dataclasses.dataclass(frozen=True)
class _Source:
    """What one source says: the command line, a case file, or the ini file."""

    values: dict[str, Any]
    """By name of the ini option, without delegates and their options; what is not given is not there."""
    chain: Chain
    elsewhere: bool = False
    """Paths of libraries are those of another machine."""

    @property
    def names_delegates(self) -> bool:
        return any(kind == "delegate" for kind, _ in self.chain)

    def given(self) -> set[str]:
        """The flags of what it says."""
        flags = {one.flag for one in DECLARED if one.ini in self.values}
        return flags | {_CHAIN_FLAGS[kind] for kind, _ in self.chain}

    def of_targets(self) -> Iterator[tuple[str, str]]:
        """Flag and text of what selects a target, or says how it is run."""
        for one in DECLARED:
            if one.selects_target and one.ini in self.values:
                value = self.values[one.ini]
                yield from ((one.flag, text) for text in ([value] if isinstance(value, str) else value))
        yield from ((_CHAIN_FLAGS[kind], text) for kind, text in self.chain)

    def files(self) -> Iterator[str]:
        """Everything in its values that is a path of something to load, as it is named, made absolute.

        Raises:
            BadOption: a value or such a path is not UTF-8: it is sent to child processes and to reports.
        """
        for flag, text in self.of_targets():
            forms.utf8(flag, text, "what selects a target")
            split = forms.PATHS[flag](text) if flag in forms.PATHS else None
            if split:
                path = forms.named_file(flag, split[1], elsewhere=self.elsewhere)
                forms.utf8(flag, path, "the path of a library")
                # A name that the loader looks for, or a file of another machine, is as it stands.
                yield path if path == split[1] else os.path.join(os.getcwd(), split[1])


def read(
    command_line: Mapping[str, Any],
    ini: Mapping[str, Any],
    ini_folder: Path,
    case_file: Sequence[str] = (),
    target: Target | None = None,
) -> Options:
    """Merge the sources, option by option, and check the form of every value.

    The command line wins over a case file, and that over the ini file. A delegate that the command line
    and the case file name at the same place of the chain keeps the case file's options, unless the command
    line gives them other values.

    Args:
        command_line: destination -> value or None, as declared by :func:`declare`.
        ini: ini name -> text, or list of lines for a repeatable option; None or empty: not given.
        ini_folder: what relative paths of the ini file are relative to.
        case_file: the options of a case file. It makes no file be loaded that the others do not name.
        target: one of a matrix. Its options win over all others, and no others name targets then.

    Raises:
        BadOption: a value has the wrong form, a file or folder it names is not there, or only the case file
            names it.
    """
    if command_line.get("given_twice"):
        flag, first, second = command_line["given_twice"]
        raise BadOption(f"{flag}: {first!r} and {second!r} are given, and a run has one")
    on, command, defaults = _sources(command_line, ini, ini_folder, target)
    elsewhere = on != forms.HERE
    if command.values.get("qnn_debug") and not (command.values | defaults.values).get("qnn_replay"):
        raise BadOption("--qnn-debug: needs --qnn-replay=FOLDER, the finding whose case is to be carried out")
    if elsewhere and (command.values | defaults.values).get("qnn_debug"):
        raise BadOption(f"--qnn-debug: starts its tool on this machine; give --qnn-on={forms.HERE} too")
    files = frozenset((*command.files(), *defaults.files()))
    case = dataclasses.replace(_of_case(case_file), elsewhere=elsewhere)
    _check_place(case.values.get("qnn_on"), on, given="qnn_on" in command.values)
    of_case = {
        one.ini: real_path(one.flag, case.values[one.ini], files, elsewhere=elsewhere)
        for one in DECLARED
        if one.ini in case.values.keys() - command.values.keys()
    }
    values = defaults.values | of_case | command.values
    _check_certified(values)
    given = command.given() | defaults.given()
    backend = forms.library("--qnn-backend", values.get("qnn_backend"), ("reference",), elsewhere=elsewhere)
    return Options(
        backend=backend,
        rpcmem=forms.library("--qnn-rpcmem", values.get("qnn_rpcmem"), ("emulated",), elsewhere=elsewhere),
        delegates=_on_backend(command, case, defaults, files, backend),
        runtime=forms.choice("--tflite-runtime", values.get("tflite_runtime"), RUNTIMES, "auto"),
        precision=forms.choice(
            "--tflite-delegate-precision", values.get("tflite_delegate_precision"), PRECISIONS, "float32"
        ),
        sandbox=_sandbox(values, on),
        on=on,
        timeout=forms.seconds("--qnn-timeout", values.get("qnn_timeout")),
        env=_variables(command, case, defaults),
        selection=_selection(values),
        submission=_submission(defaults, command),
        reports=tuple(forms.report("--qnn-report", text) for text in values.get("qnn_report", ())),
        report_before=_before(values, named="qnn_report_before" in command.values),
        profile=forms.choice("--qnn-profile", values.get("qnn_profile"), PROFILE_NAMES, "default"),
        seed=forms.seed("--qnn-seed", values.get("qnn_seed")),
        shard=_shard(values),
        blocks=forms.count("--qnn-blocks", values.get("qnn_blocks")),
        matrix=forms.file("--qnn-matrix", values.get("qnn_matrix")),
        target=_target(values),
        strict=forms.truth("--qnn-strict", values.get("qnn_strict")),
        expect=forms.file("--qnn-expect", values.get("qnn_expect")),
        corpus=forms.folder("--qnn-corpus", values.get("qnn_corpus")),
        certify=forms.folder("--qnn-certify", values.get("qnn_certify")),
        replay=forms.case("--qnn-replay", values.get("qnn_replay")),
        debug=forms.debug("--qnn-debug", values.get("qnn_debug")),
        given=frozenset(given),
        files=files,
    )


_OF_FLAG = re.compile(r"(--[a-z-]+): ")


def of_ini_file(sentence: str, command_line: Mapping[str, Any], ini: Mapping[str, Any]) -> str:
    """The name of the ini option whose value `read` has refused; empty: the value is none of the ini file.

    Args:
        sentence: of the BadOption.
        command_line: as for `read`.
        ini: the same.
    """
    match = _OF_FLAG.match(sentence)
    one = next((each for each in DECLARED if match and each.flag == match[1]), None)
    if one is None or not ini.get(one.ini):
        return ""
    chain = command_line.get("tflite_chain") or ()
    if one.flag in _CHAIN:
        # Delegates replace delegates; options replace options, and so do delegates, to which theirs belong.
        given = (
            bool(chain) if one.flag != "--tflite-delegate" else any(kind == "delegate" for kind, _ in chain)
        )
    else:
        given = command_line.get(one.ini) is not None
    return "" if given else one.ini


def _sources(
    command_line: Mapping[str, Any], ini: Mapping[str, Any], ini_folder: Path, target: Target | None
) -> tuple[str, _Source, _Source]:
    """The machine of the cases, and what command line and ini file say; the arguments are those of `read`."""
    on = _place(command_line, ini)
    own = None if target is None else _of_target(target, on)
    if own is not None:
        on = forms.on("--qnn-on", own.values.get("qnn_on", on))
    elsewhere = on != forms.HERE
    command = dataclasses.replace(_of_command_line(command_line), elsewhere=elsewhere)
    defaults = _of_ini(ini, ini_folder, elsewhere=elsewhere)
    if own is not None:
        command, defaults = _without_targets(command), _without_targets(defaults)
        command = _Source(command.values | own.values, own.chain, elsewhere)
    return on, command, defaults


def _place(command_line: Mapping[str, Any], ini: Mapping[str, Any]) -> str:
    """The machine that cases are carried out on, which no case file decides."""
    given = command_line.get("qnn_on")
    return forms.on("--qnn-on", (ini.get("qnn_on") or None) if given is None else given)


def _check_place(of_case: str | None, on: str, *, given: bool) -> None:
    """Refuse a case file that was found on another machine where the user has not said which to use.

    A case file comes from somebody else: no command of it is ever started.

    Raises:
        BadOption: it names a machine that neither the command line nor the ini file names.
    """
    if of_case not in (None, on) and not given:
        raise BadOption(
            f"the case was found with --qnn-on={of_case}, and none of a case file is started by itself; "
            f"name the machine on the command line: --qnn-on={of_case}, or --qnn-on={forms.HERE}"
        )


def _sandbox(values: Mapping[str, Any], on: str) -> str:
    chosen = forms.choice("--qnn-sandbox", values.get("qnn_sandbox"), SANDBOXES, "auto")
    if chosen == "off" and on != forms.HERE:
        raise BadOption("--qnn-sandbox: off is for this process, and --qnn-on names another machine")
    return chosen


def _check_certified(values: Mapping[str, Any]) -> None:
    """Refuse what lets verdicts of --qnn-certify depend on more than the answers. Raises BadOption."""
    if values.get("qnn_certify") is None:
        return
    for other in ("qnn_replay", "qnn_corpus", "qnn_expect", "qnn_shard", "qnn_blocks", "qnn_matrix"):
        if values.get(other) is not None:
            flag = next(one.flag for one in DECLARED if one.ini == other)
            raise BadOption(f"--qnn-certify and {flag} exclude each other")
    if values.get("qnn_sandbox") not in ("fork", "spawn"):
        raise BadOption("--qnn-certify needs --qnn-sandbox=fork or spawn")


def _before(values: Mapping[str, Any], *, named: bool) -> Path | None:
    """The earlier report; ``named``: the command line names it, and so wants a page. Raises BadOption."""
    flag = "--qnn-report-before"
    path = forms.file(flag, values.get("qnn_report_before"))
    if path is not None and values.get("qnn_matrix") is not None:
        raise BadOption(f"{flag} and --qnn-matrix exclude each other")
    if named and not any(text.endswith(".html") for text in values.get("qnn_report", ())):
        raise BadOption(f"{flag}: needs --qnn-report=PATH.html, the page that shows what has changed")
    return path


def _selection(values: Mapping[str, Any]) -> Selection:
    """Which rules are to be judged; with a case to replay, which is of one rule, the options are ignored.

    So the replay command of a finding works where the ini file has a selection, in pytest's addopts too.
    """
    if "qnn_replay" in values:
        return Selection()
    flag = "--qnn-level"
    levels = forms.names(flag, values.get("qnn_level", ()))
    return Selection(
        rules=forms.names("--qnn-rule", values.get("qnn_rule", ())),
        areas=forms.names("--qnn-area", values.get("qnn_area", ())),
        levels=tuple(forms.choice(flag, level, LEVELS, "") for level in levels),
    )


def _shard(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """The shard; none of a case to replay. Raises BadOption also where each shard would draw its own seed."""
    shard = forms.shard("--qnn-shard", values.get("qnn_shard"))
    if shard is None or "qnn_replay" in values:
        return None
    if "qnn_seed" not in values:
        raise BadOption("--qnn-shard: needs --qnn-seed, the same for all shards")
    return shard


def _target(values: Mapping[str, Any]) -> str | None:
    name: str | None = values.get("qnn_target")
    if name is not None and "qnn_matrix" not in values:
        raise BadOption(f"--qnn-target: {name!r} is a target of --qnn-matrix, which is not given")
    return name


def _submission(ini: _Source, command: _Source) -> Pairs:
    """What names the submission: the command line wins over the ini file; in both, an option over a file."""
    found: dict[str, str] = {}
    for source in (ini, command):
        replaced = source is ini and "qnn_about" in command.values
        if "qnn_about" in source.values and not replaced:
            found |= submission.read("--qnn-about", source.values["qnn_about"])
        for key in submission.KEYS:
            if f"qnn_{key}" in source.values:
                found[key] = submission.text(f"--qnn-{key}", source.values[f"qnn_{key}"])
    return tuple((key, found[key]) for key in submission.KEYS if key in found)


def _of_command_line(command_line: Mapping[str, Any]) -> _Source:
    found = {one.ini: command_line.get(one.ini) for one in DECLARED if one.flag not in _CHAIN}
    values = {name: value for name, value in found.items() if value is not None}
    return _Source(values, list(command_line.get("tflite_chain") or ()))


def _of_ini(ini: Mapping[str, Any], folder: Path, *, elsewhere: bool = False) -> _Source:
    """What the ini file says; ``elsewhere``: paths of libraries are those of another machine."""
    found = {
        one.ini: ini[one.ini] if elsewhere and one.selects_target else _of_one(one, ini[one.ini], folder)
        for one in DECLARED
        if ini.get(one.ini)
    }
    delegates = found.pop("tflite_delegate", ())
    options = found.pop("tflite_delegate_option", ())
    return _Source(found, [*map(_delegate, delegates), *map(_option, options)], elsewhere)


def _of_one(one: Declared, value: str | list[str], folder: Path) -> str | list[str]:
    if one.is_always_path and isinstance(value, str):
        return str(folder / value)
    return _beside(value, folder) if one.is_path else value


class Target(NamedTuple):
    """A target of a matrix."""

    name: str
    words: Sequence[str]
    """Its options, as on the command line."""
    folder: Path
    """What relative paths in them are relative to."""


class _Parser(argparse.ArgumentParser):
    """argparse's, which says nothing by itself and does not end the process."""

    def error(self, message: str) -> NoReturn:
        raise BadOption(message)


_OF_THE_RUN = frozenset(
    {
        *("--qnn-matrix", "--qnn-target", "--qnn-report", "--qnn-replay", "--qnn-debug"),
        *("--qnn-shard", "--qnn-blocks"),
    }
)
"""Options that no target of a matrix has for itself."""


def _of_target(target: Target, on: str = forms.HERE) -> _Source:
    """What the options of a target of a matrix say; ``on``: the machine, if they name none.

    Raises:
        BadOption: with one sentence for the user.
    """
    named = f"--qnn-matrix, {target.name}"
    parser = _Parser(add_help=False, allow_abbrev=False)
    declare(parser.add_argument)
    try:
        known, unknown = parser.parse_known_args(list(target.words))
    except BadOption as error:
        raise BadOption(f"{named}: {error}") from None
    if unknown:
        raise BadOption(f"{named}: {unknown[0]!r} is no option of pytest-qnn")
    if getattr(known, "given_twice", None):
        raise BadOption("{}: {}: {!r} and {!r} are given".format(named, *known.given_twice))
    found = _of_command_line(vars(known))
    wrong = sorted(found.given() & _OF_THE_RUN)
    if wrong:
        raise BadOption(f"{named}: {wrong[0]} is for the whole run, and not for one target")
    if not found.given() & frozenset().union(*_NAMES_A_TARGET.values()):
        raise BadOption(f"{named}: its options name no target, such as --tflite-delegate=PATH")
    elsewhere = forms.on("--qnn-on", found.values.get("qnn_on", on)) != forms.HERE
    values = {
        one.ini: found.values[one.ini]
        if elsewhere and one.selects_target
        else _of_one(one, found.values[one.ini], target.folder)
        for one in DECLARED
        if one.ini in found.values
    }
    chain = [
        (kind, str(_beside(text, target.folder)) if kind == "delegate" and not elsewhere else text)
        for kind, text in found.chain
    ]
    return _Source(values, chain, elsewhere)


def words_of(target: Target) -> list[str]:
    """The options of a target of a matrix as words for a command line in any folder. Raises BadOption."""
    source = _of_target(target)
    words = []
    for one in DECLARED:
        value = source.values.get(one.ini)
        if one.kind == "switch":
            words += [one.flag] if value else []
        elif value is not None:
            words += [f"{one.flag}={text}" for text in ([value] if isinstance(value, str) else value)]
    return [*words, *(f"{_CHAIN_FLAGS[kind]}={text}" for kind, text in source.chain)]


def _without_targets(source: _Source) -> _Source:
    """The same without what names a target of either half."""
    names = {one.ini for one in DECLARED if any(one.flag in flags for flags in _NAMES_A_TARGET.values())}
    kept = {key: value for key, value in source.values.items() if key not in names}
    return dataclasses.replace(source, values=kept, chain=[])


def _of_case(arguments: Sequence[str]) -> _Source:
    """What a case file's options (``--tflite-delegate=...``) say.

    Raises:
        BadOption: an argument does not select a target, or has the wrong form.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(parser.add_argument)
    for text in arguments:
        if text.startswith("--") and not _selects_target(text.partition("=")[0]):
            raise BadOption(f"{text!r} does not select a target")
    try:
        known, unknown = parser.parse_known_args(list(arguments))
    except SystemExit:
        raise BadOption(f"{' '.join(arguments)!r} does not select a target") from None
    if unknown:
        raise BadOption(f"{unknown[0]!r} does not select a target")
    return _of_command_line(vars(known))


def of_target(arguments: Sequence[str]) -> Options:
    """The options of a target (`Target.options`), whose files need not be there.

    Raises:
        BadOption: an argument does not select a target, or has the wrong form.
    """
    source = _of_case(arguments)
    return Options(
        backend=source.values.get("qnn_backend", "reference"),
        rpcmem=source.values.get("qnn_rpcmem", "emulated"),
        delegates=_parsed(source.chain) or DEFAULT_DELEGATES,
        runtime=forms.choice("--tflite-runtime", source.values.get("tflite_runtime"), RUNTIMES, "auto"),
        precision=forms.choice(
            "--tflite-delegate-precision",
            source.values.get("tflite_delegate_precision"),
            PRECISIONS,
            "float32",
        ),
        sandbox="fork",
        given=frozenset({"--tflite-delegate-precision"}),
    )


def _selects_target(flag: str) -> bool:
    return any(one.flag == flag and one.selects_target for one in DECLARED)


def real_path(flag: str, value: Any, files: frozenset[str], *, elsewhere: bool = False) -> Any:
    """The value of an option out of a case file; a path in it is the one that the user names that file by.

    Not as the case file does: beside a link of its author's may be other files that the library loads.

    Raises:
        BadOption: it names a file that is not among ``files``, which the user has named.
    """
    split = forms.PATHS[flag](value) if flag in forms.PATHS else None
    if split is None:
        return value
    before, path = split
    real = forms.named_file(flag, path, elsewhere=elsewhere)
    named = sorted(each for each in files if forms.named_file(flag, each, elsewhere=elsewhere) == real)
    if not named:
        raise BadOption(
            f"the case file names the file {path!r}, and has none loaded by itself; "
            f"name it on the command line: {flag}={value}"
        )
    return f"{before}{named[0]}"


def _variables(command: _Source, case: _Source, ini: _Source) -> tuple[str, ...]:
    """The variables that the command line names, or else the ini file. The case file's are never taken.

    A case file comes from somebody else: it must not have credentials of this machine handed to a library.
    Nor is a name of it ignored, for the finding may depend on the variable.

    Raises:
        BadOption: a name has the wrong form; the command line names a variable that is not set; or the case
            file names one that the ini file does not, where the command line names none.
    """
    flag, key = "--qnn-env", "qnn_env"
    chosen = [forms.variable(flag, text) for text in {**ini.values, **command.values}.get(key, ())]
    if key in command.values:
        # Who types a name that is not set has mistyped it, and would take the failures of a library without
        # its licence for findings. An ini file is for all jobs of a CI matrix and for all developers, of whom
        # some have no such variable: there a run without it is right.
        for name in () if command.elsewhere else chosen:  # the other machine's are not known here
            if name not in os.environ:
                raise BadOption(f"{flag}: {name!r} is not set in the environment")
        return tuple(dict.fromkeys(chosen))
    for name in case.values.get(key, ()):
        if name not in chosen:
            raise BadOption(
                f"the case file names the variable {name!r}, and has none passed on by itself; "
                f"name it on the command line: {flag}={name}"
            )
    return tuple(dict.fromkeys(chosen))


def _beside(value: str | list[str], folder: Path) -> str | list[str]:
    """Paths of an ini value made relative to the ini file; keywords are left alone."""
    if isinstance(value, list):
        return [str(_beside(text, folder)) for text in value]
    proxy, tail = forms.unwrapped(value)
    is_path = not value.startswith(VARIANTS) and (os.sep in tail or os.path.isfile(folder / tail))
    return f"{proxy}{folder / tail}" if is_path else value


def _delegates(command: _Source, case: _Source, ini: _Source, files: frozenset[str]) -> Delegates:
    """The chain of the first source that names delegates.

    Options that the command line gives to the last delegate of a case file overrule those, and replace those
    of the ini file.
    """
    if command.names_delegates:
        chain = _with_options_of(case, _parsed(command.chain), files)
    elif case.names_delegates:
        *rest, (spec, old) = _parsed(
            [
                (kind, real_path(_CHAIN_FLAGS[kind], text, files, elsewhere=case.elsewhere))
                for kind, text in case.chain
            ]
        )
        chain = (*rest, (spec, _overruled(old, tuple(_pair(text) for _, text in command.chain))))
    else:
        delegates = [one for one in ini.chain if one[0] == "delegate"]
        options = command.chain or [one for one in ini.chain if one[0] == "option"]
        chain = _parsed([*delegates, *options]) or DEFAULT_DELEGATES
    return tuple(
        (forms.library("--tflite-delegate", spec, forms.DELEGATES, elsewhere=command.elsewhere), options)
        for spec, options in chain
    )


def _on_backend(
    command: _Source, case: _Source, ini: _Source, files: frozenset[str], backend: str
) -> Delegates:
    """The chain (`_delegates`), where the suite's QNN delegate runs on the backend that is named with it.

    Options of the delegate may name another one; a case file's chain runs on none that the ini file names.
    """
    chain = _delegates(command, case, ini, files)
    is_of_case = case.names_delegates and not command.names_delegates
    if "qnn_backend" not in (command.values if is_of_case else ini.values | command.values):
        return chain
    return tuple(
        (spec, (*options, ("backend", backend)))
        if spec == forms.QNN_DELEGATE and "backend" not in dict(options)
        else (spec, options)
        for spec, options in chain
    )


def _with_options_of(case: _Source, chain: Delegates, files: frozenset[str]) -> Delegates:
    """The command line's chain; a delegate with the same place in the case file has those options as well."""
    made = []
    known = _parsed(case.chain)
    for place, (spec, options) in enumerate(chain):
        old: Pairs = ()
        if place < len(known) and _real(known[place][0], case) == _real(spec, case):
            texts = (f"{key}={value}" for key, value in known[place][1])
            flag = "--tflite-delegate-option"
            old = tuple(_pair(real_path(flag, text, files, elsewhere=case.elsewhere)) for text in texts)
        made.append((spec, _overruled(old, options)))
    return tuple(made)


def _real(spec: str, source: _Source) -> str:
    """A delegate's specification, a path with links resolved."""
    split = forms.delegate_path(spec)
    if split is None:
        return spec
    return f"{split[0]}{forms.named_file('--tflite-delegate', split[1], elsewhere=source.elsewhere)}"


def _overruled(old: Pairs, new: Pairs) -> Pairs:
    """The options of both, those of ``new`` where both have a key."""
    keys = {key for key, _ in new}
    return (*(pair for pair in old if pair[0] not in keys), *new)


def _parsed(chain: Chain) -> Delegates:
    """Each delegate of the chain with the options that follow it."""
    delegates: list[tuple[str, Pairs]] = []
    for kind, text in chain:
        if kind == "delegate":
            delegates.append((text, ()))
        elif delegates:
            spec, options = delegates[-1]
            delegates[-1] = (spec, (*options, _pair(text)))
        else:
            _pair(text)
            raise BadOption(f"--tflite-delegate-option: {text!r} belongs to no delegate; it must follow one")
    return tuple(delegates)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadOption(f"--tflite-delegate-option: {text!r} is not of the form key=value")
    return key, value
