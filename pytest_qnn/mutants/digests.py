"""Digests of all that decides how soon a rule finds a mutant, so that a test sees when that has changed.

Taken from the sources: the check, the strategy and the mutant are one, the controls of the half another, each
with every definition that these reach by name in the modules of `_FOLLOWED`. Comments, docstrings,
annotations, and a rule's sentence, source and gate are no part of it; what a rule's cases meet afterwards
(runner, reference, model, runtimes) and the checks of the owners of controls are not either.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_qnn.core.mutant import Mutant

_ROOT = Path(__file__).parents[1]
_FOLLOWED = re.compile(
    r"core\.drawing|(qnn|tflite)\.(strategies|rules|checks|cases|graph|controls)(\.|$)|"
    r"tflite\.qnn_delegate\.(rules|whole_models|own_interface|mutants)$"
)
"""Modules, without ``pytest_qnn.``, whose definitions are followed."""
_DATA = re.compile(r"(qnn|tflite)\.cases(\.|$)")
"""Of these, where classes only hold data: a new kind of step changes no case that was drawn before."""
_OF_EACH_KIND = re.compile(r"EFFECTS|\w*Step|AnyEdit")
"""Nor does its entry in a table, or in a union, of all kinds of step."""
_DECIDING = ("cases", "uncontrolled")
"""Arguments of an entry: what is drawn, and whether a control is asked whose the failure is."""
_LEFT_OUT = {"annotation", "kind", "returns", "type_comment", "type_params"}
"""Fields of syntax trees that make no case."""

_CONTROLS = {"qnn": "qnn.controls.calls", "tflite": "tflite.controls"}
"""Where each half's are."""
_CONTROL_FUNCTIONS = ("controls", "around")
"""With which they begin."""

Place = tuple[str, str]
"""A module and a name in it; ``CLASS.METHOD`` for a method that is reached by its own name."""


@dataclasses.dataclass(frozen=True)
class _Definition:
    text: str
    """The syntax tree, without what is left out."""
    names: frozenset[str]
    """Names and dotted names (``module.name``) that it reads."""
    attributes: frozenset[str]
    """Names of the methods that it may call."""


_NOTHING = _Definition("", frozenset(), frozenset())


@dataclasses.dataclass(frozen=True)
class _Module:
    definitions: dict[str, _Definition]
    methods: dict[str, dict[str, _Definition]]
    """By class: methods that are part of it only where their name is used."""
    imports: dict[str, Place]
    """By local name; the name in the other module is empty where the module itself is imported."""


def pair_digest(rule_id: str, mutant: Mutant, *, controls: bool = False) -> str:
    """16 hexadecimal digits, the same on every machine and (from the same sources) Python version.

    Args:
        rule_id: of the rule.
        mutant: that it finds.
        controls: those of the half are part of it.

    Raises:
        LookupError: the decorator that enters the rule, or the mutant, is not in a module of its area.
    """
    of_rule = _reached(("rule", rule_id), controls=controls)
    return _digest(of_rule | _reached(("mutant", mutant.name), controls=controls))


@functools.cache
def controls_digest(half: str) -> str:
    """The same of the controls of a half, ``qnn`` or ``tflite``, alone."""
    return _digest(_followed([(_CONTROLS[half], name) for name in _CONTROL_FUNCTIONS]))


def rule_digest(rule_id: str, *, controls: bool = False) -> str:
    """The same of the cases and the check of a rule alone: without controls, which only a failure meets.

    Args:
        rule_id: of the rule.
        controls: those of its half are part of it, as for what fails in other rules' cases.

    Raises:
        LookupError: the decorator that enters the rule is not in a module of its area.
    """
    return _digest(_reached(("rule", rule_id), controls=controls))


def mutant_digest(name: str) -> str:
    """The same of a mutant alone. Raises LookupError where no decorator enters it in a module of its area."""
    return _digest(_reached(("mutant", name)))


def _digest(reached: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(reached)).encode()).hexdigest()[:16]


@functools.cache
def _roots() -> dict[tuple[str, str], tuple[str, _Definition]]:
    """What each rule and each mutant begins with: the module, and the decorated function or class."""
    found = {}
    for path in [*_ROOT.glob("*/rules/*/*.py"), *_ROOT.glob("tflite/qnn_delegate/*.py")]:
        kind = "mutant" if path.stem == "mutants" else "rule"
        for node in ast.parse(path.read_text()).body:
            for name, parts in _entries(node):
                found[kind, name] = (_name_of(path), _definition(parts))
    return found


def _entries(node: ast.stmt) -> Iterator[tuple[str, list[ast.AST]]]:
    """What a statement enters as a rule or mutant: name, strategy and the like, and what is entered.

    Written as ``@enter("NAME", ...)`` above a definition, or as ``enter("NAME", ...)(made)``.
    """
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        for call in node.decorator_list:
            name, strategy = _entry(call)
            if name:
                bare = copy.copy(node)
                bare.decorator_list = [other for other in node.decorator_list if other is not call]
                yield name, [*strategy, bare]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        name, strategy = _entry(node.value.func)
        if name:
            yield name, [*strategy, *node.value.args]


def _entry(call: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name that a call begins with, empty where there is none, and what of it decides on kills."""
    match call:
        case ast.Call(args=[ast.Constant(value=str(name)), *_], keywords=keywords):
            return name, [keyword.value for keyword in keywords if keyword.arg in _DECIDING]
    return "", []


def _name_of(path: Path) -> str:
    """A module's name without ``pytest_qnn.``."""
    parts = path.relative_to(_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _reached(root: tuple[str, str], *, controls: bool = True) -> frozenset[str]:
    """Texts of all that a rule, or a mutant, consists of; of a rule with the controls of its half."""
    if root not in _roots():
        raise LookupError(f"the {root[0]} {root[1]} is entered by no decorator in its area's modules")
    module, first = _roots()[root]
    waiting = list(_targets(module, first))
    if controls and root[0] == "rule":  # a failure counts if no control shows it too
        waiting += [(_CONTROLS[module.partition(".")[0]], name) for name in _CONTROL_FUNCTIONS]
    return _followed(waiting, first)


def _followed(waiting: list[Place], first: _Definition = _NOTHING) -> frozenset[str]:
    """The texts of definitions, and of all that they reach; ``first``: one that is in no followed module."""
    texts = {first.text} - {""}
    attributes = set(first.attributes)
    classes: set[Place] = set()
    seen: set[Place] = set()
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            definition = _found(place)
            if definition is not None:
                texts.add(f"{place[0]}:{definition.text}")
                attributes |= definition.attributes
                waiting += _targets(place[0], definition)
            if place[1] in _module(place[0]).methods:
                classes.add(place)
        waiting += (
            [] if waiting else [method for method in _methods(classes, attributes) if method not in seen]
        )
    return frozenset(texts)


def _methods(classes: Iterable[Place], attributes: set[str]) -> Iterator[Place]:
    """Methods of reached classes whose names are used somewhere."""
    for module, name in classes:
        for method in _module(module).methods[name].keys() & attributes:
            yield module, f"{name}.{method}"


def _found(place: Place) -> _Definition | None:
    module, name = place
    owner, _, method = name.partition(".")
    if method:
        return _module(module).methods[owner][method]
    return _module(module).definitions.get(name)


@functools.cache
def _targets(module: str, definition: _Definition) -> tuple[Place, ...]:
    """Where the names that a definition reads are defined, as far as they are followed."""
    places = (_resolved(module, dotted) for dotted in sorted(definition.names))
    return tuple(place for place in places if place is not None)


@functools.cache
def _resolved(module: str, dotted: str) -> Place | None:
    name, _, rest = dotted.partition(".")
    own = _module(module)
    if name in own.definitions:
        return None if rest else (module, name)
    if name not in own.imports:
        return None
    other, inner = own.imports[name]
    if inner and not _path(f"{other}.{inner}"):
        return _resolved(other, inner) if not rest and _is_followed(other) else None
    if inner:
        other = f"{other}.{inner}"
    return _resolved(other, rest) if rest and _is_followed(other) else None


def _is_followed(module: str) -> bool:
    return bool(_FOLLOWED.match(module)) and _path(module) is not None


@functools.cache
def _path(module: str) -> Path | None:
    path = _ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@functools.cache
def _module(name: str) -> _Module:
    """The definitions of a followed module."""
    path = _path(name)
    tree = ast.parse(path.read_text() if path else "")
    found = _Module({}, {}, {})
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.update(_imported(node))
        elif isinstance(node, ast.ClassDef):
            if not _DATA.match(name):
                _enter_class(found, node, whole=name.endswith("mutants"))
        else:
            definition = _definition([node])
            for bound in _bound(node):
                if _DATA.match(name) and _OF_EACH_KIND.fullmatch(bound):
                    continue
                found.definitions[bound] = _merged(found.definitions.get(bound), definition)
    return found


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Place]]:
    """Local names of what a statement imports from this package."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pytest_qnn":
        inner = (node.module or "").removeprefix("pytest_qnn").removeprefix(".")
        for alias in node.names:
            yield alias.asname or alias.name, (inner, alias.name)


def _enter_class(found: _Module, node: ast.ClassDef, *, whole: bool) -> None:
    """A class without the methods that are reached by their names; a mutant's class in whole.

    What a mutant overrides is called by the reference, which is not followed.
    """
    methods = {
        each.name: each
        for each in node.body
        if isinstance(each, ast.FunctionDef) and not (whole or each.name.startswith("__"))
    }
    rest = [each for each in node.body if each not in methods.values()]
    head = ast.ClassDef(node.name, node.bases, node.keywords, rest, node.decorator_list)
    found.definitions[node.name] = _definition([head])
    found.methods[node.name] = {name: _definition([method]) for name, method in methods.items()}


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement at the top of a module binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    stored = {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    if isinstance(node, ast.Expr):  # TABLE.update(...), TABLE.append(...)
        stored |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return stored


def _merged(first: _Definition | None, second: _Definition) -> _Definition:
    if first is None:
        return second
    return _Definition(
        f"{first.text}\n{second.text}", first.names | second.names, first.attributes | second.attributes
    )


def _definition(nodes: Iterable[ast.AST]) -> _Definition:
    names: set[str] = set()
    attributes: set[str] = set()
    text = "".join(_text(node, names, attributes) for node in nodes)
    return _Definition(text, frozenset(names), frozenset(attributes))


def _text(node: object, names: set[str], attributes: set[str]) -> str:
    """A syntax tree as a text that has no empty fields: Python versions differ in which there are."""
    if isinstance(node, list):
        return "[" + ",".join(_text(each, names, attributes) for each in node if not _is_remark(each)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Name):
        names.add(node.id)
    if isinstance(node, ast.Attribute):
        attributes.add(node.attr)
        if isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    fields = [
        f"{name}={_text(value, names, attributes)}"
        for name, value in ast.iter_fields(node)
        if name not in _LEFT_OUT and value is not None and value != []
    ]
    return f"{type(node).__name__}({','.join(fields)})"


def _is_remark(node: object) -> bool:
    """A docstring, of whatever it is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
