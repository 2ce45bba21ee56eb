from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from reports import refusal

from pytest_qnn import options as opts
from pytest_qnn.core.forms import PATHS, PROFILE_NAMES, BadOption
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.options import Options

DEAR = ("numpy", "hypothesis", "msgspec", "tflite_runtime", "ai_edge_litert")


def parse(
    *arguments: str, ini: dict[str, Any] | None = None, folder: Path = Path(), case_file: Sequence[str] = ()
) -> Options:
    parser = argparse.ArgumentParser()
    opts.declare(parser.add_argument)
    return opts.read(vars(parser.parse_args(arguments)), ini or {}, folder, case_file)


NATIVE_TOML = pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest before 9 reads no such table")


def test_a_page_needs_jinja2_and_a_run_says_so_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert parse(f"--qnn-report={tmp_path}/page.html").reports == (tmp_path / "page.html",)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert parse(f"--qnn-report={tmp_path}/page.json").reports == (tmp_path / "page.json",)
    # Not an extra of this package: who has a clone of it has no index that knows its name.
    with pytest.raises(BadOption, match=r"--qnn-report: .* needs jinja2.*: pip install jinja2$"):
        parse(f"--qnn-report={tmp_path}/page.html")


def test_importing_the_plugin_loads_nothing_dear() -> None:
    code = f"import sys, pytest_qnn.plugin; print([name for name in {DEAR} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_that_judges_nothing_loads_nothing_dear(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import sys

        def test_nothing_dear():
            assert [name for name in {DEAR} if name in sys.modules] == []
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)


def test_a_run_that_judges_nothing_is_quiet(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): pass")
    result = pytester.runpytest_inprocess("--strict-markers", "--strict-config", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    assert "qnn:" not in result.stdout.str()
    assert not (pytester.path / ".pytest-qnn").exists()


def test_help_shows_every_option_in_one_group_and_every_ini_twin(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()
    group = text.partition("conformance of TensorFlow Lite delegates and QNN memory:")[2].partition("\n\n")[0]
    ini = text.partition("\n[pytest] ")[2]
    for one in opts.DECLARED:
        assert f"  {one.flag}" in group, one.flag
        assert f"  {one.ini} (" in ini, one.ini


def test_profile_names_are_those_of_the_profiles() -> None:
    assert list(PROFILES) == list(PROFILE_NAMES)


def test_without_options_the_reference_is_judged() -> None:
    options = parse()
    assert options.delegates == (("reference", ()),)
    assert (options.backend, options.rpcmem) == ("reference", "emulated")
    assert (options.given, options.files, options.seed) == (frozenset(), frozenset(), None)


def test_a_delegate_option_belongs_to_the_delegate_named_before_it() -> None:
    options = parse(
        "--tflite-delegate=reference",
        "--tflite-delegate-option=a=1",
        "--tflite-delegate=xnnpack",
        "--tflite-delegate-option=b=2=3",
        "--tflite-delegate-option=c=",
    )
    assert options.delegates == (("reference", (("a", "1"),)), ("xnnpack", (("b", "2=3"), ("c", ""))))


def test_the_command_line_wins_over_the_ini_file() -> None:
    ini = {"qnn_profile": "quick", "qnn_timeout": "3", "tflite_delegate": ["xnnpack"], "qnn_strict": "true"}
    options = parse("--qnn-profile=thorough", "--tflite-delegate=reference", ini=ini)
    assert (options.profile, options.timeout, options.strict) == ("thorough", 3.0, True)
    assert options.delegates == (("reference", ()),)


def test_ini_options_belong_to_the_last_ini_delegate() -> None:
    ini = {"tflite_delegate": ["reference", "xnnpack"], "tflite_delegate_option": ["a=1"]}
    assert parse(ini=ini).delegates == (("reference", ()), ("xnnpack", (("a", "1"),)))
    assert parse("--tflite-delegate=reference", ini=ini).delegates == (("reference", ()),)


def test_paths_of_the_ini_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "lib.so").touch()
    ini = {"qnn_backend": "proxy:lib.so", "tflite_delegate": ["lib.so", "xnnpack"], "qnn_rpcmem": "emulated"}
    options = parse(ini=ini, folder=tmp_path)
    assert options.backend == f"proxy:{tmp_path / 'lib.so'}"
    assert options.delegates == ((str(tmp_path / "lib.so"), ()), ("xnnpack", ()))
    assert options.rpcmem == "emulated"


def test_ini_twins_are_read_from_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nqnn_seed = 5\nqnn_profile = quick\ntflite_delegate =\n  reference\n  xnnpack\n"
    )
    pytester.makepyfile("def test_other(): pass")
    result = pytester.runpytest_inprocess("--strict-config")
    result.stdout.fnmatch_lines(["qnn: *delegate reference + xnnpack*seed 5, profile quick"])


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("pyproject.toml", "[tool.pytest.ini_options]"),
        pytest.param("pyproject.toml", "[tool.pytest]", marks=NATIVE_TOML),
        pytest.param("pytest.toml", "[pytest]", marks=NATIVE_TOML),
    ],
)
def test_values_of_a_toml_file_are_texts_and_lists_of_texts(
    pytester: pytest.Pytester, name: str, table: str
) -> None:
    text = 'qnn_timeout = "3"\nqnn_strict = "true"\nqnn_rule = ["REG-01", "REG-06"]\n'
    pytester.path.joinpath(name).write_text(f"{table}\n{text}")
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["qnn: *, rule REG-01 REG-06*"])


@pytest.mark.skipif(pytest.version_tuple >= (10,), reason="pytest 10 refuses them itself")
@pytest.mark.filterwarnings("ignore::pytest.PytestWarning")
def test_other_values_of_a_toml_file_are_read_or_refused_in_one_sentence(pytester: pytest.Pytester) -> None:
    table = "[tool.pytest.ini_options]\n"
    pytester.makepyprojecttoml(f"{table}qnn_timeout = 3\nqnn_strict = true\nqnn_seed = 7\n")
    pytester.makepyfile("def test(): pass")
    read = pytester.runpytest("-p", "no:cacheprovider")
    read.assert_outcomes(passed=1)
    read.stdout.fnmatch_lines(["qnn: *seed 7*"])
    pytester.makepyprojecttoml(f'{table}qnn_backend = ["reference"]\n')
    refused = pytester.runpytest("-p", "no:cacheprovider")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(
        ["ERROR: qnn_backend in *pyproject.toml: a text in quotes is wanted, not [[]'reference'[]]"]
    )


def test_an_ini_value_of_the_wrong_form_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nqnn_strict = perhaps\n")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"--qnn-strict: 'perhaps' is neither true nor false (qnn_strict in {pytester.path / 'tox.ini'})"
    assert result.stderr.str().strip() == f"ERROR: {said}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "xnnpack, qnn-reference (tflite_delegate in {0}/tox.ini)"),
        (("--tflite-delegate-option=a=b",), "reference (tflite_delegate in {0}/tox.ini)"),
        (
            ("--tflite-delegate=y.so",),
            "there is no file 'y.so'; names that need none: reference, xnnpack, qnn-reference",
        ),
        (
            ("-o", "tflite_delegate=z.so"),
            "there is no file 'z.so'; names that need none: reference, xnnpack, qnn-reference",
        ),
        (
            ("--tflite-delegate=xnnpack",),
            "'soon' is not a positive number of seconds (qnn_timeout in {0}/tox.ini)",
        ),
        (("--tflite-delegate=xnnpack", "--qnn-timeout=1e9"), "'1e9' is more than a day (86400 seconds)"),
    ],
)
def test_a_wrong_value_of_the_ini_file_is_said_to_be_of_it(
    pytester: pytest.Pytester, given: tuple[str, ...], said: str
) -> None:
    pytester.makefile(".ini", tox="[pytest]\ntflite_delegate = ./x.so\nqnn_timeout = soon\n")
    result = pytester.runpytest_inprocess(*given)
    assert refusal(result).endswith(said.format(pytester.path))


def test_options_of_a_case_file_select_only_a_target() -> None:
    chosen = parse("--qnn-seed=4", case_file=("--qnn-backend=mutant:x", "--qnn-timeout", "2"))
    assert (chosen.backend, chosen.timeout, chosen.seed) == ("mutant:x", 2.0, 4)
    for arguments in (("--qnn-report=x.json",), ("stray",), ("--no-such",), ("--qnn-backend",)):
        with pytest.raises(BadOption, match="does not select a target"):
            parse(case_file=arguments)


MEMORY = ("--qnn-backend=mutant:x", "--qnn-rpcmem=emulated", "--qnn-timeout=7")
CHAIN = (
    "--tflite-runtime=tflite_runtime",
    *("--tflite-delegate=reference:limited", "--tflite-delegate-option=a=1", "--tflite-delegate-option=b=2"),
    "--tflite-delegate=xnnpack",
)


@pytest.mark.parametrize(
    "arguments", [("--qnn-timeout=60",), ("--qnn-sandbox=spawn",), ("--tflite-runtime=auto",)]
)
def test_the_command_line_replaces_a_case_files_options_one_by_one(arguments: tuple[str, ...]) -> None:
    options, alone = parse(*arguments, case_file=MEMORY), parse(*arguments)
    assert options.backend == "mutant:x"
    assert options.timeout == (alone.timeout if "timeout" in arguments[0] else 7)
    assert (options.sandbox, options.runtime) == (alone.sandbox, alone.runtime)


def test_a_case_files_options_win_over_the_ini_file_and_no_others() -> None:
    ini = {
        "qnn_backend": "mutant:y",
        "qnn_timeout": "3",
        "qnn_sandbox": "fork",
        "tflite_delegate": ["xnnpack"],
    }
    options = parse(ini=ini, case_file=MEMORY)
    assert (options.backend, options.timeout, options.sandbox) == ("mutant:x", 7, "fork")
    assert options.delegates == (("xnnpack", ()),)


@pytest.mark.parametrize(
    ("arguments", "delegates"),
    [
        ((), (("reference:limited", (("a", "1"), ("b", "2"))), ("xnnpack", ()))),
        (
            ("--tflite-delegate=reference:limited", "--tflite-delegate-option=b=3"),
            (("reference:limited", (("a", "1"), ("b", "3"))),),
        ),
        (("--tflite-delegate=reference",), (("reference", ()),)),
        (
            ("--tflite-delegate-option=num_threads=2",),
            (("reference:limited", (("a", "1"), ("b", "2"))), ("xnnpack", (("num_threads", "2"),))),
        ),
    ],
)
def test_a_case_files_chain_is_the_start(arguments: tuple[str, ...], delegates: Any) -> None:
    options = parse(*arguments, case_file=CHAIN)
    assert options.delegates == delegates
    assert options.runtime == "tflite_runtime"


FILE_VALUES = {
    "--qnn-backend": ("{}", "proxy:{}", "proxy-mutant:x:{}"),
    "--qnn-rpcmem": ("{}",),
    "--tflite-delegate": ("{}",),
    "--tflite-delegate-option": ("backend={}", "backend=proxy:{}", "library_path={}"),
}
"""For each option that can name a file, how it does so."""


def test_every_option_that_selects_a_target_says_whether_it_can_name_a_file() -> None:
    """Who adds an option decides this: what is not in `forms.PATHS` must refuse every path."""
    for one in opts.DECLARED:
        if not one.selects_target:
            continue
        assert (one.flag in PATHS) is (one.flag in FILE_VALUES), one.flag
        if one.flag not in PATHS:
            with pytest.raises(BadOption):
                parse(f"{one.flag}={__file__}")


@pytest.mark.parametrize(
    ("flag", "form"), [(flag, form) for flag, forms in FILE_VALUES.items() for form in forms]
)
@pytest.mark.parametrize("way", ["absolute", "relative", "/proc/self/cwd", "link", "gone"])
def test_a_case_file_names_no_file_that_the_user_does_not_name(
    flag: str, form: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    library = tmp_path / "lib.so"
    if way != "gone":
        library.touch()
    (tmp_path / "link.so").symlink_to(library)
    link = str(tmp_path / "link.so")
    known = {"relative": "lib.so", "/proc/self/cwd": "/proc/self/cwd/lib.so", "link": link}
    value = form.format(known.get(way, str(library)))
    start = ("--tflite-delegate=qnn-reference",) if flag == "--tflite-delegate-option" else ()
    with pytest.raises(
        BadOption, match=r"the case file names the file .* name it on the command line"
    ) as said:
        parse(case_file=(*start, f"{flag}={value}"))
    assert str(said.value).endswith(f": {flag}={value}") or way == "gone"


def test_a_case_file_may_name_what_the_user_names_by_whatever_way(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.touch()
    (tmp_path / "link.so").symlink_to(library)
    of_file = parse(
        "--tflite-delegate=" + str(library), case_file=(f"--qnn-backend=proxy:{tmp_path / 'link.so'}",)
    )
    assert of_file.backend == f"proxy:{library}"
    by_link = parse(f"--qnn-rpcmem={tmp_path / 'link.so'}", case_file=(f"--qnn-backend={library}",))
    assert by_link.backend == str(tmp_path / "link.so")
    of_ini = parse(
        ini={"qnn_rpcmem": "link.so"}, folder=tmp_path, case_file=(f"--tflite-delegate={library}",)
    )
    assert of_ini.delegates == ((str(tmp_path / "link.so"), ()),)


def test_the_qnn_delegate_runs_on_the_backend_that_is_named(tmp_path: Path) -> None:
    library, other = tmp_path / "lib.so", tmp_path / "other.so"
    library.touch()
    other.touch()
    delegate, backend = "--tflite-delegate=qnn-reference", f"--qnn-backend={library}"
    on_library = (("qnn-reference", (("backend", str(library)),)),)
    assert parse(delegate, backend).delegates == on_library
    assert parse(delegate, ini={"qnn_backend": "lib.so"}, folder=tmp_path).delegates == on_library
    named = f"--tflite-delegate-option=backend={other}"
    assert parse(delegate, named, backend).delegates == (("qnn-reference", (("backend", str(other)),)),)
    chain = parse("--tflite-delegate=xnnpack", delegate, backend).delegates
    assert chain == (("xnnpack", ()), *on_library)
    assert parse(delegate).delegates == (("qnn-reference", ()),)


def test_the_qnn_delegate_of_a_case_file_runs_on_its_own_backend(tmp_path: Path) -> None:
    (tmp_path / "lib.so").touch()
    case_file = ("--tflite-delegate=qnn-reference",)
    of_ini = parse(ini={"qnn_backend": "lib.so"}, folder=tmp_path, case_file=case_file)
    assert of_ini.delegates == (("qnn-reference", ()),)
    replaced = parse(f"--qnn-backend={tmp_path / 'lib.so'}", case_file=case_file)
    assert replaced.delegates == (("qnn-reference", (("backend", str(tmp_path / "lib.so")),)),)


def test_an_rpcmem_may_be_a_name_that_the_loader_looks_for(tmp_path: Path) -> None:
    named = "--qnn-rpcmem=libcdsprpc.so"
    assert parse(named).rpcmem == "libcdsprpc.so"
    assert parse(ini={"qnn_rpcmem": "libcdsprpc.so"}, folder=tmp_path).rpcmem == "libcdsprpc.so"
    assert parse(named, case_file=(named,)).rpcmem == "libcdsprpc.so"
    with pytest.raises(BadOption, match="name it on the command line"):
        parse(case_file=(named,))
    for other in ("cdsprpc.so", "libcdsprpc", "./libcdsprpc.so"):
        with pytest.raises(BadOption, match="there is no file"):
            parse(f"--qnn-rpcmem={other}")
    with pytest.raises(BadOption, match="there is no file"):
        parse("--qnn-backend=libQnnHtp.so")


@pytest.mark.parametrize("flag", ["--qnn-backend", "--qnn-rpcmem"])
def test_two_values_for_what_a_run_has_one_of_are_refused(flag: str) -> None:
    keyword = {"--qnn-backend": "reference", "--qnn-rpcmem": "emulated"}[flag]
    parse(f"{flag}={keyword}", f"{flag}={keyword}")
    with pytest.raises(BadOption, match=f"{flag}: '{keyword}' and 'mutant:x' are given, and a run has one"):
        parse(f"{flag}={keyword}", f"{flag}=mutant:x")


def test_two_backends_are_a_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--qnn-backend=reference", "--qnn-backend=mutant:x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.str().strip() == (
        "ERROR: --qnn-backend: 'reference' and 'mutant:x' are given, and a run has one"
    )


@pytest.mark.usefixtures("fakes")
def test_the_header_names_targets_and_seed_when_rules_are_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite("REG-01"))
    result = pytester.runpytest_inprocess()
    line = (
        "qnn: runtime auto, delegate reference, backend reference, rpcmem emulated, seed *, profile default"
    )
    result.stdout.fnmatch_lines(["collected 1 item", line])


@pytest.mark.usefixtures("fakes")
def test_the_header_names_the_runtime_in_use_once_it_is_known(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite("PART-01"))
    pytester.runpytest_inprocess().stdout.fnmatch_lines(
        ["qnn: runtime fake_runtime 1.2, delegate reference, *"]
    )


@pytest.mark.usefixtures("fakes")
def test_each_run_draws_a_new_seed_and_an_asked_for_seed_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite("REG-02"))
    texts = [pytester.runpytest_inprocess().stdout.str() for _ in range(2)]
    seeds = [text.partition("--qnn-seed=")[2].split()[0] for text in texts]
    assert seeds[0] != seeds[1]
    pytester.runpytest_inprocess("--qnn-seed=77").stdout.fnmatch_lines(["*--qnn-seed=77"])


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ((), ("test_part_01", "test_reg_01")),
        (("--tflite-delegate=reference",), ("test_part_01",)),
        (("--qnn-backend=reference",), ("test_reg_01",)),
        (("--qnn-rpcmem=emulated",), ("test_reg_01",)),
        (("--qnn-backend=reference", "--tflite-delegate=reference"), ("test_part_01", "test_reg_01")),
        (("--tflite-runtime=auto",), ("test_part_01", "test_reg_01")),
    ],
)
def test_a_named_target_selects_its_half(
    pytester: pytest.Pytester, arguments: tuple[str, ...], passed: tuple[str, ...]
) -> None:
    pytester.makepyfile(fake_suite.suite("PART-01", "REG-01"))
    result = pytester.runpytest_inprocess(*arguments)
    result.assert_outcomes(passed=len(passed), deselected=2 - len(passed))


def test_the_precision_of_the_delegates_is_declared_on_the_command_line_or_in_the_ini_file() -> None:
    flag = "--tflite-delegate-precision"
    assert parse().precision == "float32"
    assert parse(f"{flag}=float16").precision == "float16"
    assert parse(ini={"tflite_delegate_precision": "float16"}).precision == "float16"
    assert parse(f"{flag}=float32", ini={"tflite_delegate_precision": "float16"}).precision == "float32"
    assert parse(case_file=(f"{flag}=float16",)).precision == "float16"
    with pytest.raises(BadOption, match="'bfloat16' is not one of float32, float16"):
        parse(f"{flag}=bfloat16")


def test_variables_are_named_on_the_command_line_or_else_in_the_ini_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_KEY", "1")
    monkeypatch.setenv("B_KEY", "2")
    ini = {"qnn_env": ["B_KEY", "C_KEY"]}
    assert parse().env == ()
    assert parse("--qnn-env=A_KEY", "--qnn-env=B_KEY", "--qnn-env=A_KEY").env == ("A_KEY", "B_KEY")
    assert parse(ini=ini).env == ("B_KEY", "C_KEY")
    assert parse("--qnn-env=A_KEY", ini=ini).env == ("A_KEY",)
    with pytest.raises(BadOption, match="'C_KEY' is not set"):  # in the ini file it need not be
        parse("--qnn-env=C_KEY")
    with pytest.raises(BadOption, match="'B_KEY' is named with a value"):
        parse(ini={"qnn_env": ["B_KEY=2"]})


def test_a_case_file_has_no_variable_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "1")
    monkeypatch.setenv("B_KEY", "2")
    case_file = ("--qnn-timeout=2", "--qnn-env=A_KEY")
    said = "the case file names the variable 'A_KEY', and has none passed on by itself; .*: --qnn-env=A_KEY"
    for ini in ({}, {"qnn_env": ["B_KEY"]}):
        with pytest.raises(BadOption, match=said):
            parse(ini=ini, case_file=case_file)
    assert parse("--qnn-env=A_KEY", case_file=case_file).env == ("A_KEY",)
    assert parse("--qnn-env=B_KEY", case_file=case_file).env == ("B_KEY",)
    assert parse(ini={"qnn_env": ["B_KEY", "A_KEY"]}, case_file=case_file).env == ("B_KEY", "A_KEY")
    assert parse("--qnn-env=B_KEY", case_file=("--qnn-timeout=2",)).env == ("B_KEY",)


def test_ini_twin_of_variables_is_a_list_of_lines(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nqnn_env =\n  NOT_SET_KEY\n  OTHER_KEY=1\n")
    result = pytester.runpytest_inprocess("--strict-config")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--qnn-env: 'OTHER_KEY' is named with a value" in result.stderr.str()
