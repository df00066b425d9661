"""The repository as a tree of Python source: modules, imports, functions. Nothing is executed.

It refuses to know which imports are right; `tests/layout/` has the tables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
# Source root → the one package that it holds (DESIGN §3).
ROOMS: Final = {
    "broker": "jackin_broker",
    "capsule": "jackin_capsule",
    "picker": "jackin_picker",
    "mcp": "jackin_mcp",
}


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name, and the line that imports it.

    `is_for_types`: only a type checker sees it, under `if TYPE_CHECKING:`.
    """

    name: str
    line: int
    is_for_types: bool = False


@dataclass(frozen=True)
class Module:
    """One source file. `name` is its dotted name; a package's is that of the package."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def where(self) -> str:
        """The path within the repository."""
        return str(self.path.relative_to(REPOSITORY))

    @property
    def text(self) -> str:
        """The source."""
        return self.path.read_text(encoding="utf-8")

    def imports(self) -> Iterator[Import]:
        """Every import, lazy ones and those for type checkers too.

        `from a import b` counts as `a.b` where that is a module of ours, else as `a`.
        """
        for_types = _under_type_checking(self.tree)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                base = f"{self._absolute(node)}." if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    full = f"{base}{alias.name}"
                    name = full if not base or _is_ours(full) else base[:-1]
                    yield Import(name, node.lineno, node in for_types)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def _absolute(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        package = self.name.split(".")
        drop = node.level - (1 if self.path.name == "__init__.py" else 0)
        kept = package[: len(package) - drop]
        return ".".join([*kept, *([node.module] if node.module else [])])


def modules(room: str) -> list[Module]:
    """Every module of a room, in the order of their paths."""
    return [_read(path, REPOSITORY / room) for path in sorted((REPOSITORY / room).rglob("*.py"))]


def modules_of_tests() -> list[Module]:
    """Every Python file under tests/."""
    return [_read(path, REPOSITORY) for path in sorted((REPOSITORY / "tests").rglob("*.py"))]


def _read(path: Path, root: Path) -> Module:
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return Module(path, ".".join(parts), ast.parse(path.read_text(encoding="utf-8"), str(path)))


def _under_type_checking(tree: ast.Module) -> set[ast.AST]:
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }


def _is_ours(name: str) -> bool:
    head, *rest = name.split(".")
    room = next((room for room, package in ROOMS.items() if package == head), None)
    if room is None:
        return False
    place = REPOSITORY.joinpath(room, head, *rest)
    return place.is_dir() or place.with_suffix(".py").exists()
