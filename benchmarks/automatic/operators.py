"""What is changed in a function: one node of its syntax tree for each change, by the usual operators."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

import msgspec

from pytest_qnn.qnn.abi.codes import Error

Function = ast.FunctionDef

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_STATUSES = {"OK": "ERROR", "ERROR": "OK"}
"""Of `pytest_qnn.tflite.abi.layouts`."""
_NOT_CODE = {"annotation", "returns", "decorator_list", "type_params", "type_comment"}
"""Fields that do not decide what a function does (decorators: they are not run again)."""


class Slot(msgspec.Struct, frozen=True):
    """Where in a tree a node stands."""

    parent: ast.AST
    field: str
    position: int
    """In a field that is a list; -1: the field is the node."""
    statement: ast.stmt
    """The innermost statement that it belongs to; the first one of the body for a default."""

    @property
    def node(self) -> ast.AST:
        """What stands there."""
        held = getattr(self.parent, self.field)
        node: ast.AST = held if self.position < 0 else held[self.position]
        return node

    def put(self, node: ast.AST) -> None:
        """Have another node stand there."""
        if self.position < 0:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node


class Change(msgspec.Struct, frozen=True):
    """Another node for one slot."""

    slot: Slot
    operator: str
    new: ast.AST

    def apply(self) -> None:
        """Change the tree for good."""
        self.slot.put(self.new)


def changes(function: Function) -> Iterator[tuple[Change, str]]:
    """Every change of a function that gives other code, each with the function's code after it.

    The tree is what it was after each step. Of changes that give the same code, the first.
    """
    seen = {ast.unparse(function)}
    for slot in slots(function):
        for operator, new in _variants(slot):
            old = slot.node
            slot.put(_located(new, old))
            code = ast.unparse(function)
            slot.put(old)
            if code not in seen:
                seen.add(code)
                yield Change(slot, operator, new), code


def slots(function: Function) -> Iterator[Slot]:
    """All nodes of a function that decide what it does, defaults included, in the order of the source."""
    first = function.body[0]
    for field, held in (("defaults", function.args.defaults), ("kw_defaults", function.args.kw_defaults)):
        for position, node in enumerate(held):
            if node is not None:
                yield Slot(function.args, field, position, first)
    for position, statement in enumerate(function.body):
        if position or not is_docstring(statement):
            yield from _below(Slot(function, "body", position, statement))


def is_docstring(statement: ast.stmt) -> bool:
    """A constant as a statement: a docstring, or `...`."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _below(slot: Slot) -> Iterator[Slot]:
    yield slot
    node = slot.node
    if isinstance(node, ast.JoinedStr):
        return  # Texts of messages.
    for field, held in ast.iter_fields(node):
        if field in _NOT_CODE or (isinstance(node, ast.AnnAssign) and field == "target"):
            continue
        children = enumerate(held) if isinstance(held, list) else [(-1, held)]
        for position, child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                statement = child if isinstance(child, ast.stmt) else slot.statement
                yield from _below(Slot(node, field, position, statement))


def _variants(slot: Slot) -> Iterator[tuple[str, ast.AST]]:
    node = slot.node
    if slot.field in ("defaults", "kw_defaults"):
        for _, new in _constants(node):
            yield "default", new
        return
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    elif isinstance(node, ast.Slice):
        yield from _slices(node)
    elif isinstance(node, ast.expr):
        yield from _expressions(node)
        yield from _constants(node)
        if slot.field in {"test", "ifs"}:
            yield "negated condition", ast.UnaryOp(ast.Not(), copy.deepcopy(node))


def _statements(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    removed = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Raise | ast.Delete
    if isinstance(node, removed) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "removed statement", ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returned value", ast.Return(ast.Constant(None))
    if isinstance(node, ast.Break):
        yield "break, continue", ast.Continue()
    if isinstance(node, ast.Continue):
        yield "break, continue", ast.Break()


def _expressions(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare):
        for position, operator in enumerate(node.ops):
            ops: list[ast.cmpop] = [*node.ops]
            ops[position] = _COMPARISONS[type(operator)]()
            yield "comparison", _with(node, ops=ops)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", _with(node, op=_ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "and, or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "removed sign", node.operand
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Attribute):
        yield from _codes(node)


def _constants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "constant", ast.Constant(node.value + 1)
        yield "constant", ast.Constant(node.value - 1)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for first in range(len(node.args) - 1):
        pair = node.args[first : first + 2]
        if not any(isinstance(argument, ast.Starred) for argument in pair):
            args = [*node.args[:first], pair[1], pair[0], *node.args[first + 2 :]]
            yield "swapped arguments", _with(node, args=args)


def _codes(node: ast.Attribute) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, ast.Name) and node.value.id == "Error" and node.attr in Error.__members__:
        codes = list(Error)
        yield "code", _with(node, attr=codes[codes.index(Error[node.attr]) - 1].name)
    if isinstance(node.value, ast.Name) and node.value.id == "layouts" and node.attr in _STATUSES:
        yield "code", _with(node, attr=_STATUSES[node.attr])


def _slices(node: ast.Slice) -> Iterator[tuple[str, ast.AST]]:
    one = ast.Constant(1)
    if node.lower is not None:
        yield "slice", _with(node, lower=ast.BinOp(node.lower, ast.Add(), one))
    if node.upper is not None:
        yield "slice", _with(node, upper=ast.BinOp(node.upper, ast.Sub(), one))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """A shallow copy with other fields: what stands below is shared."""
    held = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    return type(node)(**(held | fields))


def _located(new: ast.AST, old: ast.AST) -> ast.AST:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def keeps_cells(function: Function) -> None:
    """Have the function keep its cell of ``super()``, whichever statement is removed: its code then fits."""
    if any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(function)):
        never = ast.If(ast.Constant(False), [ast.Expr(ast.Name("__class__", ast.Load()))], [])
        ast.copy_location(never, function.body[-1])
        function.body.append(ast.fix_missing_locations(never))


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """The functions of a module, and the methods of its classes, by qualified name."""
    yield from _functions(tree.body, "")


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield f"{prefix}{statement.name}", statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}.")
