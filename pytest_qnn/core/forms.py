"""The forms that option values may have. A value of another form raises `BadOption`, with one sentence.

Importing this module loads nothing but the standard library. Whether there is what a path names is asked of
os.path: it says False of one that is too long or has a null byte, where pathlib raises.
"""

from __future__ import annotations

import errno
import importlib.util
import math
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

PROFILE_NAMES = ("quick", "default", "thorough")
"""The keys of `pytest_qnn.core.profile.PROFILES`, repeated here because that module takes long to import."""
RUNTIMES = ("auto", "tflite_runtime", "ai_edge_litert")
PRECISIONS = ("float32", "float16")
SANDBOXES = ("auto", "off", "fork", "spawn")
LEVELS = ("MUST", "SHOULD", "MAY")
"""The values of `pytest_qnn.core.verdict.Level`, repeated here for the same reason."""
DEBUGGERS = ("gdb", "valgrind", "asan")
YES = ("true", "yes", "on", "1")
NO = ("false", "no", "off", "0")
REPORT_KINDS = (".json", ".html")
VARIANTS = ("reference:", "mutant:")
"""Prefixes of named variants of the suite's own targets; whether there is such a one, the target says."""
PROXY = "proxy:"
PROXY_MUTANT = "proxy-mutant:"
"""Followed by the mutant's name, a colon and the path."""
HERE = "here"
"""Of --qnn-on: this machine."""
DIRECT = "direct:"
"""Before the path of a QNN delegate's library: it is used by its own interface, TfLiteQnnDelegateCreate."""
QNN_DELEGATE = "qnn-reference"
DELEGATES = ("reference", "xnnpack", QNN_DELEGATE)
"""Delegates that need no library of the user's."""
BY_NAME = ("--qnn-rpcmem",)
"""Options whose library may be named as in dlopen("libcdsprpc.so"): the loader looks for it."""
_SONAME = re.compile(r"lib[\w.+-]+\.so(\.\d+)*")
MOST_PARTS = 9999
"""Of what a number of at most four digits says: shards, and seed blocks."""
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_SHARD = re.compile(rf"({_COUNT.pattern})/({_COUNT.pattern})")
LONGEST_SEED = 15
"""Digits: JSON readers with floating-point numbers carry no more."""


class BadOption(ValueError):  # noqa: N818 - it is the user's option that is bad
    """An option has the wrong form; the text is the one sentence that says which and why."""


def library(flag: str, text: str | None, keywords: tuple[str, ...], *, elsewhere: bool = False) -> str:
    """A keyword, a named variant or the path of a file that is there; None gives the first keyword.

    Args:
        flag: one of those in `PATHS`.
        text: the value.
        keywords: what names no file.
        elsewhere: a path is one of another machine, and must be absolute.

    Raises:
        BadOption: it is none of these.
    """
    if text is None:
        return keywords[0]
    if text in keywords:
        return text
    split = PATHS[flag](text)
    if split is None:
        return text
    path = split[1]
    if not path:
        raise BadOption(f"{flag}: {text!r} names no library")
    if flag in BY_NAME and is_soname(path):
        return text
    if elsewhere:
        if not os.path.isabs(path):
            raise BadOption(f"{flag}: {path!r} is a path of the machine of --qnn-on, and must be absolute")
        return text
    if os.path.isdir(path):
        raise BadOption(f"{flag}: {path!r} is a folder, not a library")
    if not os.path.isfile(path):
        raise BadOption(f"{flag}: there is no file {path!r}; names that need none: {', '.join(keywords)}")
    return text


def is_soname(text: str) -> bool:
    """The bare name of a library, and not that of a file in this folder."""
    return bool(_SONAME.fullmatch(text)) and not os.path.lexists(text)


def named_file(flag: str, path: str, *, elsewhere: bool = False) -> str:
    """What an option names: a path with links resolved, so that one file has one name, or a bare name.

    ``elsewhere``: it is of another machine, whose links are not known here.
    """
    if elsewhere or "\0" in path:  # no file has such a name, and realpath raises
        return path
    return path if flag in BY_NAME and is_soname(path) else os.path.realpath(path)


def utf8(flag: str, text: str, what: str) -> None:
    """Refuse a text that has no form in UTF-8: Python has put bytes of it into halves of surrogate pairs.

    Args:
        flag: the option that it is of.
        text: of the command line, or a path.
        what: what has to be UTF-8, for the sentence.

    Raises:
        BadOption: it has none.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadOption(f"{flag}: {text!r} is not UTF-8, as {what} must be") from None


def unwrapped(spec: str) -> tuple[str, str]:
    """What a specification says in front of a library's path, and the path: ``("proxy:", PATH)``."""
    if spec.startswith(PROXY_MUTANT):
        name, _, path = spec.removeprefix(PROXY_MUTANT).partition(":")
        return f"{PROXY_MUTANT}{name}:", path
    before = next((prefix for prefix in (PROXY, DIRECT) if spec.startswith(prefix)), "")
    return before, spec.removeprefix(before)


Split = Callable[[str], tuple[str, str] | None]
"""What stands before a path in an option's value, and the path; None: the value names no file."""


def backend_path(text: str) -> tuple[str, str] | None:
    """Of a QNN backend: a path, which ``proxy:`` may precede."""
    if text == "reference" or text.startswith(VARIANTS):
        return None
    return ("", text) if text.startswith(DIRECT) else unwrapped(text)


def rpcmem_path(text: str) -> tuple[str, str] | None:
    """Of an rpcmem, which has no variants."""
    return None if text == "emulated" else ("", text)


def delegate_path(text: str) -> tuple[str, str] | None:
    """Of a delegate: a path, which ``direct:`` may precede."""
    if text in DELEGATES or text.startswith(VARIANTS):
        return None
    return unwrapped(text) if text.startswith(DIRECT) else ("", text)


def option_path(text: str) -> tuple[str, str] | None:
    """Of a delegate's ``key=value``.

    The reference of the QNN delegate has one option that names a library. What an option of a plugin is for,
    only the plugin knows: a value with a slash in it, or that is a file's name here, may be a path.
    """
    key, equals, value = text.partition("=")
    if key == "backend":
        split = backend_path(value)
        return split and (f"{key}={split[0]}", split[1])
    found = os.sep in value or os.path.lexists(value)
    return (f"{key}{equals}", value) if found else None


PATHS: dict[str, Split] = {
    "--qnn-backend": backend_path,
    "--qnn-rpcmem": rpcmem_path,
    "--tflite-delegate": delegate_path,
    "--tflite-delegate-option": option_path,
}
"""Every option that can make the run load a file, with how to find the path in its value."""


def choice(flag: str, text: str | None, choices: tuple[str, ...], default: str) -> str:
    """One of the choices; None gives the default."""
    if text is None:
        return default
    if text not in choices:
        raise BadOption(f"{flag}: {text!r} is not one of {', '.join(choices)}")
    return text


def names(flag: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The parts of texts that commas separate, in capital letters, each once.

    Raises:
        BadOption: a part is empty, or a text is not UTF-8.
    """
    found = []
    for text in texts:
        utf8(flag, text, "what selects rules")
        parts = [part.strip().upper() for part in text.split(",")]
        if not all(parts):
            raise BadOption(f"{flag}: {text!r} has an empty name in it")
        found += parts
    return tuple(dict.fromkeys(found))


_LONGEST = 86_400
"""Seconds; the system's calls take no number of any size."""


def seconds(flag: str, text: str | None) -> float:
    """A positive number of seconds, at most a day; None gives 10."""
    if text is None:
        return 10.0
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadOption(f"{flag}: {text!r} is not a positive number of seconds")
    if number > _LONGEST:
        raise BadOption(f"{flag}: {text!r} is more than a day ({_LONGEST} seconds)")
    return number


def variable(flag: str, text: str) -> str:
    """The name of an environment variable, set or not: not empty, without ``=`` and null bytes."""
    name, equals, _ = text.partition("=")
    if not name:
        raise BadOption(f"{flag}: {name!r} names no variable")
    if equals:  # what is behind it is not shown: somebody has given a credential itself
        raise BadOption(
            f"{flag}: {name!r} is named with a value; the one that is set in the environment travels"
        )
    if "\0" in name:
        raise BadOption(f"{flag}: {name!r} has a null byte in it, and no variable has")
    return name


def seed(flag: str, text: str | None) -> int | None:
    """A whole number that every process and JSON reader can carry."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_SEED):
        raise BadOption(f"{flag}: {text!r} is not a whole number of at most {LONGEST_SEED} digits")
    return int(text)


def shard(flag: str, text: str | None) -> tuple[int, int] | None:
    """``K/N``, of which K is at least 1 and at most N; None gives None."""
    if text is None:
        return None
    found = _SHARD.fullmatch(text)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise BadOption(
            f"{flag}: {text!r} is not K/N, such as 2/8, with K from 1 to N and N at most {MOST_PARTS}"
        )
    return number, of


def count(flag: str, text: str | None) -> int:
    """A whole number from 1 to `MOST_PARTS`; None gives 1."""
    if text is None:
        return 1
    if not _COUNT.fullmatch(text):
        raise BadOption(f"{flag}: {text!r} is not a whole number from 1 to {MOST_PARTS}")
    return int(text)


def truth(flag: str, value: str | bool | None) -> bool:
    """A switch of the command line, or a word of the ini file; None is false."""
    if isinstance(value, bool) or value is None:
        return bool(value)
    word = value.lower()
    if word not in (*YES, *NO):
        raise BadOption(f"{flag}: {value!r} is neither true nor false")
    return word in YES


def case(flag: str, text: str | None) -> Path | None:
    """The path of a file that is there, or of a folder with a case.json."""
    if text is None:
        return None
    if os.path.isdir(text):
        file = os.path.join(text, "case.json")
        if not os.path.exists(file):
            raise BadOption(f"{flag}: the folder {text!r} holds no case.json")
    else:
        file = text
        if not os.path.exists(file):
            raise BadOption(f"{flag}: there is no file or folder {text!r}")
    # Only a look: who opens it looks again at what was opened.
    if not os.path.isfile(file):
        raise BadOption(f"{flag}: {file!r} is not a regular file")
    return Path(text)


def file(flag: str, text: str | None) -> Path | None:
    """The path of a regular file that is there."""
    if text is None:
        return None
    if not os.path.exists(text):
        raise BadOption(f"{flag}: there is no file {text!r}")
    if not os.path.isfile(text):
        raise BadOption(f"{flag}: {text!r} is not a regular file")
    return Path(text)


def _can_be_a_name(flag: str, path: Path) -> None:
    """Refuse what is not there and can never be. Raises BadOption."""
    try:
        os.lstat(path)
    except ValueError:
        raise BadOption(f"{flag}: {path.name!r} has a null byte in it, and no file's name has") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadOption(f"{flag}: {path.name!r} is too long for a file's name") from None


def folder(flag: str, text: str | None) -> Path | None:
    """The absolute path of a folder that is there, or can be made."""
    if text is None:
        return None
    path = Path(text).absolute()
    _can_be_a_name(flag, path)
    if os.path.exists(text) and not os.path.isdir(text):
        raise BadOption(f"{flag}: {text!r} is not a folder")
    if not os.path.exists(text) and not os.path.isdir(path.parent):
        raise BadOption(f"{flag}: there is no folder {str(path.parent)!r} to make {path.name!r} in")
    return path


def debug(flag: str, text: str | None) -> str:
    """A word of `DEBUGGERS`, or a command; None gives the empty text."""
    if text is None or text in DEBUGGERS:
        return text or ""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadOption(f"{flag}: {text!r} is no command: {error}") from None
    if not words:
        raise BadOption(f"{flag}: {text!r} is neither {', '.join(DEBUGGERS)} nor a command")
    return text


def on(flag: str, text: str | None) -> str:
    """``here``, ``exec:COMMAND`` or ``ssh:HOST``; None gives `HERE`."""
    if text is None or text == HERE:
        return HERE
    kind, _, rest = text.partition(":")
    utf8(flag, text, "what replay commands repeat")
    if kind == "ssh":
        if not re.fullmatch(r"[^\s\0-][^\s\0]*", rest):
            raise BadOption(f"{flag}: {text!r} names no host")
        return text
    if kind != "exec":
        raise BadOption(f"{flag}: {text!r} is none of here, exec:COMMAND and ssh:HOST")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise BadOption(f"{flag}: {text!r} is no command: {error}") from None
    if not words or "\0" in rest:
        raise BadOption(f"{flag}: {text!r} has no command")
    return text


def report(flag: str, text: str, kinds: tuple[str, ...] = REPORT_KINDS) -> Path:
    """The absolute path of a report, in a folder that can be written to; ``kinds`` are endings of names."""
    path = Path(text).absolute()
    if path.suffix not in kinds:
        raise BadOption(f"{flag}: {text!r} does not end in {' or '.join(kinds)}")
    _can_be_a_name(flag, path)
    if path.is_dir():
        raise BadOption(f"{flag}: {text!r} is a folder")
    if not path.parent.is_dir():
        raise BadOption(f"{flag}: there is no folder {str(path.parent)!r} to write {path.name!r} to")
    if not os.access(path.parent, os.W_OK):
        raise BadOption(f"{flag}: the folder {str(path.parent)!r} cannot be written to")
    try:
        # Permissions do not tell it of /proc and its like.
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise BadOption(
            f"{flag}: {text!r}: no file can be made in {str(path.parent)!r}: {error.strerror or error}"
        ) from None
    if path.suffix == ".html" and importlib.util.find_spec("jinja2") is None:
        # Now, and not when the page is to be written: the run may take hours.
        raise BadOption(f"{flag}: a page needs jinja2, which is not installed: pip install jinja2")
    return path
