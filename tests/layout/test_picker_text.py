"""In the picker, text from outside becomes something drawn in one file: `text.py`.

Textual parses a plain string as markup in most places and passes control characters on in all of
them; so no other file makes `Content`, uses a widget that takes text, or formats a string that is
drawn. `own` takes literal strings alone, which the type checker holds; here: never an expression.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PICKER: Final = Path(__file__).resolve().parents[2] / "picker" / "jackin_picker"
THE_ONE_FILE: Final = "text.py"
MAKERS: Final = frozenset({"Content", "Span", "Text", "Strip", "Segment", "Style"})
# Whatever takes text and draws it.
SINKS: Final = frozenset(
    {"notify", "update", "write", "from_markup", "styled", "assemble", "from_text", "print"}
)
TITLES: Final = frozenset({"title", "sub_title", "border_title", "border_subtitle", "tooltip"})
FORBIDDEN_IMPORTS: Final = ("textual.widgets", "textual.markup", "textual.strip", "rich")
# Errors after the screen was given back; the bell, which `bell.py` makes; and plain mode's one way
# out, which takes `Content`.
WRITERS: Final = frozenset({"sys.stderr", "self._driver", "os"})
# They draw nothing: arguments, errors on stderr after the screen was given back.
NOT_DRAWING: Final = frozenset({"main.py", "app.py", "link.py"})


def violations(source: str, name: str) -> list[str]:
    """What the file does that only `text.py` may do."""
    if name == THE_ONE_FILE:
        return []
    tree = ast.parse(source)
    return [
        f"{name}:{getattr(node, 'lineno', 0)}: {what}"
        for node in ast.walk(tree)
        for what in (*_calls(node), *_imports(node), *_titles(node), *_formats(node, name))
    ]


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _calls(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    name = _called(node)
    is_maker = isinstance(node.func, ast.Name) and name in MAKERS
    on_maker = (
        isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in MAKERS
    )
    if is_maker or on_maker:
        yield f"makes {name}"
    if isinstance(node.func, ast.Attribute) and name in SINKS and not _may_write(node.func.value):
        yield f"calls .{name}()"
    if name == "own" and not _is_ours(node.args[0]):
        yield f"own({ast.unparse(node.args[0])})"


def _is_ours(words: ast.expr) -> bool:
    """A string in the source, a name for one, or the one field that is typed LiteralString."""
    return isinstance(words, ast.Constant | ast.Name) or ast.unparse(words) == "fact.label"


def _may_write(value: ast.expr) -> bool:
    return ast.unparse(value) in WRITERS


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        return
    for name in names:
        if name.startswith(FORBIDDEN_IMPORTS) and name != "rich.console":  # a type, in app.py
            yield f"imports {name}"


def _titles(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr in TITLES:
                yield f"sets .{target.attr}"


def _formats(node: ast.AST, name: str) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr) and name not in NOT_DRAWING:
        yield f"formats {ast.unparse(node)}"


@pytest.mark.parametrize("path", sorted(PICKER.rglob("*.py")), ids=lambda path: path.name)
def test_only_one_file_turns_text_into_what_is_drawn(path: Path) -> None:
    assert violations(path.read_text(), path.name) == []


@pytest.mark.parametrize(
    "source",
    [
        "Content(view.reason)",
        "Content.from_markup(view.reason)",
        "self.notify(view.reason)",
        "self.query_one(Board).update(view.reason)",
        "own(view.reason)",
        "own(f'{view.reason}')",
        "own('a' + view.reason)",
        "own(str(view.reason))",
        "self.border_title = view.reason",
        "from textual.widgets import Static",
        "import rich.text",
        "row(f'{view.reason}')",
    ],
)
def test_the_rule_finds_what_it_forbids(source: str) -> None:
    assert violations(source, "screen.py")
