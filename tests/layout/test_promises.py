"""Each promise has a test: `tests/promises.toml` names it, and here it is looked up.

A promise is a sentence of README or SECURITY (word for word, so neither can drift alone), of the
two documents that started the project (`seed: …`), or a line of what a delivery was to show
(`done when`). `docs/cases.md` has what users of other tools reported, each with its tests.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import pytest

from support.source_tree import REPOSITORY

PROMISES: Final = REPOSITORY / "tests" / "promises.toml"
# Documents whose sentences are quoted, and those that are kept elsewhere.
QUOTED: Final = ("README.md", "SECURITY.md")
OTHER_SOURCES: Final = ("seed: jackin-exec", "seed: host-exec-bridge", "done when")
REPORTS: Final = (REPOSITORY / "docs" / "cases.md").read_text(encoding="utf-8")


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sentence and the test that holds it: `tests/…/test_x.py::name`, or `…::Class::name`."""

    source: str
    text: str
    test: str


class Promises(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    promise: tuple[Promise, ...]


LISTED: Final = msgspec.convert(tomllib.loads(PROMISES.read_text()), Promises).promise


def plain(text: str) -> str:
    """The words alone: line breaks, quotes of blocks, list signs and emphasis do not count."""
    no_signs = re.sub(r"^[>*\-\s]+", " ", text, flags=re.MULTILINE)
    return " ".join(no_signs.replace("*", "").replace("`", "").split())


@cache
def document(name: str) -> str:
    return plain((REPOSITORY / name).read_text(encoding="utf-8"))


@cache
def names_in(path: Path) -> frozenset[str]:
    """Every `name` and `Class::name` that pytest collects from a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in tree.body if isinstance(node, functions)}
    for group in tree.body:
        if isinstance(group, ast.ClassDef):
            found.add(group.name)
            found.update(f"{group.name}::{n.name}" for n in group.body if isinstance(n, functions))
    return frozenset(name for name in found if name.rpartition("::")[2].lower().startswith("test"))


def assert_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert path.startswith("tests/"), f"no test is named: {test!r}"
    assert (REPOSITORY / path).is_file(), f"no such file: {path}"
    assert name in names_in(REPOSITORY / path), f"no such test: {test}"


@pytest.mark.parametrize("promise", LISTED, ids=lambda promise: promise.text[:60])
def test_a_promise_has_a_test_that_exists(promise: Promise) -> None:
    assert_exists(promise.test)


@pytest.mark.parametrize("report", REPORTS.split("\n* ")[1:], ids=lambda report: report[:40])
def test_a_report_about_another_tool_has_its_tests(report: str) -> None:
    tests = re.findall(r"^  - `(.+)`$", report, re.MULTILINE)
    assert tests
    for test in tests:
        assert_exists(test)


@pytest.mark.parametrize("promise", LISTED, ids=lambda promise: promise.text[:60])
def test_a_quoted_promise_still_stands_in_its_document(promise: Promise) -> None:
    if promise.source in QUOTED:
        assert plain(promise.text) in document(promise.source)
    else:
        assert promise.source in OTHER_SOURCES
        assert promise.text.strip()


def test_no_promise_is_listed_twice() -> None:
    said = [(promise.source, plain(promise.text)) for promise in LISTED]
    assert len(said) == len(set(said))
