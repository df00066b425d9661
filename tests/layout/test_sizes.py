"""The house's sizes and names (STYLE.md): small files, short functions, no catch-all names."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from support.source_tree import ROOMS, Module, modules, modules_of_tests

# A file is looked at again at 300 lines; past 400 it holds two jobs.
FILE_MAX_LINES: Final = 400
TEST_FILE_MAX_LINES: Final = 600
# The shim is compiled and read at every call of an agent (DESIGN §15).
SHIM_MAX_LINES: Final = 250
FUNCTION_MAX_LINES: Final = 40
# Names that say nothing: whatever does not fit elsewhere ends up there.
EMPTY_WORDS: Final = frozenset({"utils", "util", "helpers", "core", "common", "types", "manager"})
# A silenced checker says why in the same line; so does whoever swallows every exception.
NEEDS_REASON: Final = re.compile(r"#\s*(type:\s*ignore|noqa|pyright:|pragma:)")
HAS_REASON: Final = re.compile(
    r"(type:\s*ignore(\[[\w, -]+\])?|noqa(:\s*[\w, ]+?)?|pyright:\s*\w+(\[[\w, ]+\])?"
    r"|pragma:[\w ]+?)\s+(#|—|-)+\s*\w+"
)
EVERYTHING: Final = frozenset({"Exception", "BaseException"})
UNFINISHED: Final = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b|NotImplemented" r"Error")

SOURCE: Final = [module for room in ROOMS for module in modules(room)]
TESTS: Final = modules_of_tests()


def lines_of(module: Module) -> list[str]:
    return module.text.splitlines()


def limit_of(module: Module) -> int:
    if module.where == "capsule/jackin_capsule/shim.py":
        return SHIM_MAX_LINES
    return TEST_FILE_MAX_LINES if module.where.startswith("tests/") else FILE_MAX_LINES


def test_files_stay_short() -> None:
    sizes = {module: len(lines_of(module)) for module in [*SOURCE, *TESTS]}
    long = {m.where: size for m, size in sizes.items() if size > limit_of(m)}
    assert long == {}


def test_functions_stay_short() -> None:
    long = [
        f"{module.where}:{function.lineno} {function.name}"
        for module in [*SOURCE, *TESTS]
        for function in module.functions()
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_MAX_LINES
    ]
    assert long == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = [
        module.where
        for module in [*SOURCE, *TESTS]
        if EMPTY_WORDS & {word for part in module.name.split(".") for word in part.split("_")}
    ]
    assert empty == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        m.where for m in [*SOURCE, *TESTS] if m.text.strip() and not ast.get_docstring(m.tree)
    ]
    assert silent == []


def complaints(module: Module) -> list[str]:
    swallowing = swallowing_lines(module.tree)
    return [
        f"{module.where}:{number}: {line.strip()}"
        for number, line in enumerate(lines_of(module), 1)
        if UNFINISHED.search(line)
        or (NEEDS_REASON.search(line) and not HAS_REASON.search(line))
        or (number in swallowing and "#" not in line)
    ]


def swallowing_lines(tree: ast.Module) -> set[int]:
    """The lines of handlers that catch everything and do not raise it again at their end."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and catches_everything(node)
        and not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    }


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(caught & EVERYTHING)


def test_nothing_is_unfinished_or_silenced_without_a_reason() -> None:
    ours = "tests/layout/test_sizes.py"
    found = [line for m in [*SOURCE, *TESTS] if m.where != ours for line in complaints(m)]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_fine"),
    [
        ("x = 1  # type: ignore[misc]", False),
        ("x = 1  # type: ignore[misc]  # the stubs are older than the library", True),
        ("call(x)  # pyright: ignore[reportUnknownMemberType]", False),
        ("call(x)  # pyright: ignore[reportUnknownMemberType] - it has no types", True),
        ("import os  # noqa: F401", False),
        ("import os  # noqa: F401 - read by the test below", True),
    ],
)
def test_a_reason_is_recognised(line: str, is_fine: bool) -> None:
    assert bool(NEEDS_REASON.search(line))
    assert bool(HAS_REASON.search(line)) is is_fine


@pytest.mark.parametrize(
    ("handler", "swallows"),
    [
        ("except Exception:\n    pass", True),
        ("except (OSError, BaseException) as error:\n    raise Other from error", True),
        ("except BaseException:\n    close()\n    raise", False),
        ("except OSError:\n    pass", False),
        ("except:\n    pass", True),
    ],
)
def test_a_handler_that_swallows_everything_is_recognised(handler: str, swallows: bool) -> None:
    tree = ast.parse(f"try:\n    run()\n{handler}\n")
    assert swallowing_lines(tree) == ({3} if swallows else set())
