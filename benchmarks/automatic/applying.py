"""How changed code takes the place of the original: in this process, and in those that it starts.

mutmut and cosmic-ray write a changed tree to the disk and start a test command for each mutant. Here a
process that has everything imported is forked, and the fork exchanges the code object of one function:
classes that inherit it, decorators around it and callbacks that C holds have the function itself, and so the
new code. Processes that a case starts import the package anew: for them a copy of it, of links to the
original but for the changed files, is put before the original.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import os
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.automatic.listing import ROOT
from pytest_qnn.isolation.start import interpreter

Trees = Mapping[str, ast.Module]
"""By file below the package: its changed tree."""


def take_over(file: str, tree: ast.Module) -> None:
    """Exchange, in this process, the code of every function of a module, and its constant defaults.

    What ran when the module was imported (decorators, constants of the module) is not run again.

    Raises:
        ValueError: code uses other cells than the original.
    """
    path = str(ROOT / file)
    module = importlib.import_module(".".join(("pytest_qnn", *Path(file).with_suffix("").parts)))
    assert module.__file__ == path
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, path, "exec"))}
    arguments = {
        (node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])): node.args
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    for function in _functions_of(path):
        line = function.__code__.co_firstlineno
        code = codes.get((function.__code__.co_qualname, line))
        if code is not None:
            function.__code__ = code
            _take_defaults(function, arguments.get((function.__name__, line)))
    _forget_results()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _functions_of(path: str) -> list[types.FunctionType]:
    # The collector knows every function: those inside decorators and properties too. Frozen ones it hides.
    gc.unfreeze()
    objects = gc.get_objects()
    return [
        each for each in objects if isinstance(each, types.FunctionType) and each.__code__.co_filename == path
    ]


def _take_defaults(function: types.FunctionType, given: ast.arguments | None) -> None:
    if given is None:
        return
    if function.__defaults__:
        old = function.__defaults__
        pairs = zip(old, given.defaults, strict=True)
        function.__defaults__ = tuple(_constant(value, node) for value, node in pairs)
    if function.__kwdefaults__:
        for argument, node in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if node is not None:
                old_value = function.__kwdefaults__[argument.arg]
                function.__kwdefaults__[argument.arg] = _constant(old_value, node)


def _constant(value: object, node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else value


def _forget_results() -> None:
    """Empty the caches of the references' functions: what the original gave is not what the mutant gives."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and ".reference." in (each.__module__ or ""):
            each.cache_clear()


def lead_children(trees: Trees, folder: Path) -> None:
    """Have every interpreter that this process starts import the changed files.

    Args:
        trees: what is changed.
        folder: an empty one, which stays as long as the processes.
    """
    _linked(ROOT, folder / ROOT.name, {Path(file): tree for file, tree in trees.items()})
    begin = f"import sys; sys.path.insert(0, {str(folder)!r}); sys.dont_write_bytecode = True\n"
    interpreter._START = begin + interpreter._START


def _linked(original: Path, copy: Path, trees: Mapping[Path, ast.Module]) -> None:
    copy.mkdir(parents=True)
    below: dict[str, dict[Path, ast.Module]] = {}
    for file, tree in trees.items():
        below.setdefault(file.parts[0], {})[Path(*file.parts[1:])] = tree
    for name in os.listdir(original):
        if name not in below:
            if name != "__pycache__":
                (copy / name).symlink_to(original / name)
        elif Path() in below[name]:
            (copy / name).write_text(ast.unparse(below[name][Path()]), encoding="utf-8")
        else:
            _linked(original / name, copy / name, below[name])


def import_all() -> None:
    """Import both references, their targets and all rules: what is forked then has nothing to import."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # A fork of a process with threads may hang.
    for name in ("pytest_qnn.rules", "pytest_qnn.qnn.target", "pytest_qnn.tflite.target"):
        importlib.import_module(name)
    sys.modules["pytest_qnn.rules"].catalogue()
    for folder in ("qnn/reference", "tflite/reference"):
        for file in (ROOT / folder).glob("[a-z]*.py"):
            importlib.import_module(f"pytest_qnn.{folder.replace('/', '.')}.{file.stem}")
