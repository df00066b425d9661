"""Does a test fail when the redactor is broken? One small change at a time.

    python tests/mutation/redaction.py [MODULE …] [--every N]

For each operator, comparison, condition and whole number of `jackin_broker/redact/` the changed
module is run against the redactor's tests in a process of its own, until the first failure.
What no test notices is printed as a survivor. `--every 5` tries a fifth of them. SAME lists the
changes that change nothing but speed, each with its reason. It takes a while: a script, run by
hand, not a test.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REDACT: Final = ROOT / "broker" / "jackin_broker" / "redact"
PACKAGE: Final = "jackin_broker.redact"
TESTS: Final = (
    "tests/unit/test_redact_stream.py",
    "tests/unit/test_redact_values.py",
    "tests/unit/test_redact_guessing.py",
    "tests/vectors/test_redaction_corpus.py",
    "tests/unit/test_redact_forms.py",
    "tests/properties/test_redaction_stream.py",
)
# A change that makes a loop endless is noticed by this.
LIMIT_S: Final = 120
# Lines that only decide how fast the same answer is found.
SAME: Final = {
    "_PIECE_WORDS": "how many blocks are asked for at a time",
    "_STRIDES": "which strides are considered; any is right",
    "_WIDE_BLOCK_NS": "a cost", "_FIND_NS": "a cost", "_NARROW_NS": "a cost",
    "_NARROW_ALARM_NS": "a cost",
    "wide_ns": "a cost", "choices.append": "a cost", "short = sum": "a cost",
    "_WINDOW_CHOICES": "where in a needle its window is; any place is right",
    "step = max(1, last": "the same",
    "len(set(needle[at": "the same",
    "_BLOCK_BYTES": "the grain of the way back to raw bytes",
    "_SHOWN_BYTES: Final": "how far back a late needle is looked for",
    "_NEAR_BYTES": "where the two ways of finding heads meet",
    "_FAR_STRIDE": "the stride of one of them",
    "_MAX_PARAMETERS": "which escapes are still taken for one", "_MAX_INTERMEDIATES": "the same",
    "slots=True": "memory", "frozen=True": "nobody assigns",
}  # fmt: skip

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip


class Mutator(ast.NodeTransformer):
    """Makes the change of one number; counts the places; remembers where."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seen = 0
        self.line = 0
        self.what = ""

    def _is_here(self, node: ast.expr, what: str) -> bool:
        self.seen += 1
        if self.seen - 1 != self.wanted:
            return False
        self.line, self.what = node.lineno, what
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
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._is_here(node, f"{node.value} -> {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, int) and self._is_here(node, f"{node.value} -> +1"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node


class Shadow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.tree, self.name, "exec"), module.__dict__)  # noqa: S102 - our own source


def is_noticed(name: str, tree: ast.Module) -> bool:
    """True if a test fails with this tree in place of the module."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.chdir(ROOT)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.meta_path.insert(0, Shadow(name, tree))
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        os._exit(0 if pytest.main([*options, *TESTS]) == 0 else 1)
    _, status = os.waitpid(child, 0)
    return status != 0


def mutants(path: Path) -> Iterator[tuple[Mutator, ast.Module]]:
    source = path.read_text()
    lines = source.splitlines()
    wanted = 0
    while True:
        mutator = Mutator(wanted)
        tree = ast.fix_missing_locations(mutator.visit(ast.parse(source)))
        if not mutator.what:
            return
        wanted += 1
        if not any(known in lines[mutator.line - 1] for known in SAME):
            yield mutator, tree


def main() -> int:
    arguments = sys.argv[1:]
    every = 1
    if "--every" in arguments:
        at = arguments.index("--every")
        every = int(arguments[at + 1])
        del arguments[at : at + 2]
    names = arguments or sorted(path.stem for path in REDACT.glob("*.py"))
    tried = survivors = 0
    for name in names:
        path = REDACT / f"{name}.py"
        for at, (mutator, tree) in enumerate(mutants(path)):
            if at % every:
                continue
            tried += 1
            if not is_noticed(f"{PACKAGE}.{name}", tree):
                survivors += 1
                line = path.read_text().splitlines()[mutator.line - 1].strip()
                print(f"survived: {name}.py:{mutator.line}: {mutator.what}: {line}", flush=True)
    print(f"{tried} changes, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
