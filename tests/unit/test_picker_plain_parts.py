"""What a picker without screens can use: the parts that say things load no screen."""

from __future__ import annotations

import subprocess
import sys

import pytest

PURE = (
    "bell",
    "choices",
    "command",
    "credentials",
    "editor",
    "ends",
    "facts",
    "glimpse",
    "guard",
    "inbox",
    "link",
    "plain",
    "plain_answers",
    "plain_lines",
    "plain_output",
    "plain_page_lines",
    "plain_pages",
    "plain_prompt",
    "plain_terminal",
    "plain_words",
    "prompt",
    "sheet",
    "tail",
    "terms",
    "text",
    "whole",
)


@pytest.mark.parametrize("name", PURE)
def test_a_part_that_says_things_loads_no_screen(name: str) -> None:
    source = (
        f"import sys, jackin_picker.{name}; "
        "print([name for name in ('textual.app', 'textual.screen', 'textual.widget') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_the_guard_loads_nothing_of_textual() -> None:
    source = "import sys, jackin_picker.guard; print('textual' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
