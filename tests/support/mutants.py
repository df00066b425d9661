"""Mutants: a module's source with one small thing changed, each in turn.

Refuses to know tests and processes. What is changed: comparisons, operators, conditions, whole
numbers, bytes, `min` and `max`, and statements that are there for their effect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
# What an `if` already has a change for.
_CHANGED_ANYWAY: Final = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)

N = TypeVar("N", bound=ast.stmt)


@dataclass(frozen=True)
class Mutant:
    """One change: the line that it is in, what it does, the whole module with it."""

    line_number: int
    line: str
    what: str
    tree: ast.Module


def mutants_of(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its syntax tree."""
    lines = source.splitlines()
    wanted = 0
    while True:
        change = _Change(wanted)
        tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
        if not change.what:
            return
        wanted += 1
        yield Mutant(change.line_number, lines[change.line_number - 1].strip(), change.what, tree)


class _Change(ast.NodeTransformer):
    """Makes the change of one number; counts the places; remembers where."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seen = 0
        self.line_number = 0
        self.what = ""

    def _is_here(self, node: ast.expr | ast.stmt, what: str) -> bool:
        self.seen += 1
        if self.seen - 1 != self.wanted:
            return False
        self.line_number, self.what = node.lineno, what
        return True

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            other = COMPARISONS[type(operator)]
            if self._is_here(node, f"{type(operator).__name__} -> {other.__name__}"):
                node.ops[at] = other()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = OPERATORS.get(type(node.op))
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str | bytes):
            other = None
        if other and self._is_here(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        return self._or_nothing(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):  # a docstring
            return node
        self.generic_visit(node)
        return self._or_nothing(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node  # nobody runs an annotation

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        returns, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = returns
        return node

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        return self._or_nothing(node)

    def visit_Break(self, node: ast.Break) -> ast.AST:
        return self._or_nothing(node)

    def _or_nothing(self, node: N) -> N | ast.Pass:
        if self._is_here(node, "nothing is done"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._is_here(node, "and <-> or"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._is_here(node, "not x -> x"):
            return node.operand
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self._is_here(node, "a if x else b -> a"):
            return node.body
        if self._is_here(node, "a if x else b -> b"):
            return node.orelse
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.test, _CHANGED_ANYWAY) and self._is_here(node, "if x -> if not x"):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        for at, test in enumerate(node.ifs):
            if self._is_here(test, "for … if x -> for …"):
                del node.ifs[at]
                break
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        other = NAMES.get(node.id)
        if other and self._is_here(node, f"{node.id} -> {other}"):
            node.id = other
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, bool):
            if self._is_here(node, f"{value} -> {not value}"):
                node.value = not value
        elif isinstance(value, int) and self._is_here(node, f"{value} -> +1"):
            node.value = value + 1
        elif isinstance(value, bytes) and value and self._is_here(node, f"{value!r} cut short"):
            node.value = value[:-1]
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # words for people
