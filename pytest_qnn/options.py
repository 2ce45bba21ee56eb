"""The options of the plugin: declared once, read from the command line or the ini file, checked for form.

Only the form is checked here (a number is a number, a file is there): what needs the file to be loaded
is said when the target is opened. Importing this module loads nothing but the standard library.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_qnn import forms
from pytest_qnn.forms import PROFILE_NAMES, RUNTIMES, SANDBOXES, VARIANTS, BadOption

DEFAULT_DELEGATES = (("reference", ()),)

_NAMES_A_TARGET = {
    "delegate": frozenset({"--tflite-delegate"}),
    "memory": frozenset({"--qnn-backend", "--qnn-rpcmem"}),
}
"""The options that say which half of the catalogue a run is about."""


@dataclasses.dataclass(frozen=True)
class Declared:
    """One option and its ini twin."""

    flag: str
    metavar: str
    help: str
    kind: str = "value"
    """``value``, ``list`` (repeatable) or ``switch``."""
    selects_target: bool = False
    is_path: bool = False
    """The value may be a path: in the ini file it is relative to that file."""

    @property
    def ini(self) -> str:
        """Name of the ini twin, and of the command line's destination."""
        return self.flag.lstrip("-").replace("-", "_")


DECLARED = (
    Declared(
        "--qnn-backend",
        "SPEC",
        "QNN backend under judgement: reference (default), the path of a library that exports "
        "QnnInterface_getProviders, or proxy:PATH (the suite's own QnnMem over that library's graphs)",
        selects_target=True,
        is_path=True,
    ),
    Declared(
        "--qnn-rpcmem",
        "SPEC",
        "rpcmem that QNN cases allocate from: emulated (default), or the path of libcdsprpc.so",
        selects_target=True,
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
        "--qnn-sandbox",
        "MODE",
        "where cases run: auto (default: in this process for the reference, in children for foreign "
        "libraries), off, fork or spawn",
        selects_target=True,
    ),
    Declared(
        "--qnn-timeout",
        "SECONDS",
        "time limit of one sandboxed case (default: 10)",
        selects_target=True,
    ),
    Declared(
        "--qnn-report",
        "PATH",
        "write the verdicts to PATH.json or PATH.html at the end of the run; repeatable",
        kind="list",
        is_path=True,
    ),
    Declared("--qnn-profile", "NAME", "how much is tried per rule: quick, default or thorough"),
    Declared(
        "--qnn-seed", "N", "seed of all generated cases (default: a new one each run, shown in the header)"
    ),
    Declared("--qnn-strict", "", "a violated SHOULD fails instead of xfails", kind="switch"),
    Declared(
        "--qnn-replay",
        "FOLDER",
        "judge only the case in FOLDER (or in its case.json), as written under .pytest-qnn/ for a rule that "
        "did not pass",
        is_path=True,
    ),
)

Delegates = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked for, checked for form."""

    backend: str = "reference"
    rpcmem: str = "emulated"
    delegates: Delegates = DEFAULT_DELEGATES
    """(specification, its (key, value) options), in order of precedence."""
    runtime: str = "auto"
    sandbox: str = "auto"
    timeout: float = 10.0
    """Seconds for one sandboxed case."""
    reports: tuple[Path, ...] = ()
    profile: str = "default"
    seed: int | None = None
    """None: not asked for; the run draws one."""
    strict: bool = False
    replay: Path | None = None
    given: frozenset[str] = frozenset()
    """Flags that the command line or the ini file gave."""
    target_given: bool = False
    """The command line selects a target, or how it is run."""

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
        elif one.flag == "--tflite-delegate":
            add(
                one.flag,
                metavar=one.metavar,
                action="append",
                type=_delegate,
                dest="tflite_chain",
                help=one.help,
            )
        elif one.flag == "--tflite-delegate-option":
            add(
                one.flag,
                metavar=one.metavar,
                action="append",
                type=_option,
                dest="tflite_chain",
                help=one.help,
            )
        else:
            action = "append" if one.kind == "list" else "store"
            add(one.flag, metavar=one.metavar, action=action, dest=one.ini, help=one.help)


def _delegate(text: str) -> tuple[str, str]:
    return ("delegate", text)


def _option(text: str) -> tuple[str, str]:
    return ("option", text)


def read(command_line: Mapping[str, Any], ini: Mapping[str, Any], ini_folder: Path) -> Options:
    """Merge both sources (the command line wins, option by option) and check the form of every value.

    Args:
        command_line: destination -> value or None, as declared by :func:`declare`.
        ini: ini name -> text, or list of lines for a repeatable option; None or empty: not given.
        ini_folder: what relative paths of the ini file are relative to.

    Raises:
        BadOption: a value has the wrong form, or a file or folder it names is not there.
    """
    values: dict[str, Any] = {}
    given: set[str] = set()
    for one in DECLARED:
        value = command_line.get(one.ini)
        if value is None and ini.get(one.ini):
            value = _beside(ini[one.ini], ini_folder) if one.is_path else ini[one.ini]
        values[one.ini] = value
        if value is not None:
            given.add(one.flag)
    chain = command_line.get("tflite_chain") or []
    given.update(
        {"delegate": "--tflite-delegate", "option": "--tflite-delegate-option"}[kind] for kind, _ in chain
    )
    from_command_line = bool(chain) or any(
        one.selects_target and command_line.get(one.ini) is not None for one in DECLARED
    )
    return Options(
        backend=forms.library("--qnn-backend", values["qnn_backend"], ("reference",)),
        rpcmem=forms.library("--qnn-rpcmem", values["qnn_rpcmem"], ("emulated",)),
        delegates=_delegates(_chain(chain, values)),
        runtime=forms.choice("--tflite-runtime", values["tflite_runtime"], RUNTIMES, "auto"),
        sandbox=forms.choice("--qnn-sandbox", values["qnn_sandbox"], SANDBOXES, "auto"),
        timeout=forms.seconds("--qnn-timeout", values["qnn_timeout"]),
        reports=tuple(forms.report("--qnn-report", text) for text in values["qnn_report"] or ()),
        profile=forms.choice("--qnn-profile", values["qnn_profile"], PROFILE_NAMES, "default"),
        seed=forms.seed("--qnn-seed", values["qnn_seed"]),
        strict=forms.truth("--qnn-strict", values["qnn_strict"]),
        replay=forms.case("--qnn-replay", values["qnn_replay"]),
        given=frozenset(given),
        target_given=from_command_line,
    )


def with_target_of(options: Options, arguments: Sequence[str]) -> Options:
    """``options`` on the target that ``arguments`` (a verdict's ``--tflite-delegate=...``) select.

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
    target = read(vars(known), {}, Path())
    return dataclasses.replace(
        options,
        backend=target.backend,
        rpcmem=target.rpcmem,
        delegates=target.delegates,
        runtime=target.runtime,
        sandbox=target.sandbox,
        timeout=target.timeout,
    )


def _selects_target(flag: str) -> bool:
    return any(one.flag == flag and one.selects_target for one in DECLARED)


def _beside(value: str | list[str], folder: Path) -> str | list[str]:
    """Paths of an ini value made relative to the ini file; keywords are left alone."""
    if isinstance(value, list):
        return [str(_beside(text, folder)) for text in value]
    proxy, tail = forms.unwrapped(value)
    is_path = not value.startswith(VARIANTS) and (os.sep in tail or (folder / tail).is_file())
    return f"{proxy}{folder / tail}" if is_path else value


def _chain(chain: Sequence[tuple[str, str]], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Delegates and options in order: the command line's, on the ini file's delegates if it names none."""
    named = any(kind == "delegate" for kind, _ in chain)
    from_ini = [_delegate(text) for text in values["tflite_delegate"] or ()]
    ini_options = [_option(text) for text in values["tflite_delegate_option"] or ()]
    if named:
        return list(chain)
    return from_ini + (list(chain) or ini_options)


def _delegates(chain: Sequence[tuple[str, str]]) -> Delegates:
    delegates: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    for kind, text in chain:
        if kind == "delegate":
            delegates.append((forms.library("--tflite-delegate", text, forms.DELEGATES), ()))
            continue
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise BadOption(f"--tflite-delegate-option: {text!r} is not of the form key=value")
        if not delegates:
            raise BadOption(f"--tflite-delegate-option: {text!r} belongs to no delegate; it must follow one")
        spec, options = delegates[-1]
        delegates[-1] = (spec, (*options, (key, value)))
    return tuple(delegates) or DEFAULT_DELEGATES
