"""The two looks of the picker, and which one suits the terminal.

It refuses to know screens. Invariant: every colour has a sign or a word beside it where it is
used, so that with NO_COLOR, which Textual obeys by itself, nothing is lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from textual.theme import Theme

# Each text colour has at least 4.5 : 1 against its background, `rule` and `panel` only part things.
DARK: Final = Theme(
    name="jackin-dark",
    dark=True,
    primary="#8ab4f8",
    success="#8fc9a3",
    warning="#e6c07b",
    error="#e58a8a",
    foreground="#d8dee6",
    background="#14181f",
    surface="#14181f",
    panel="#232a35",
    variables={
        "quiet": "#8b96a5",
        "label": "#9aa7b8",
        "rule": "#323b48",
        "button-text": "#14181f",
    },
)
LIGHT: Final = Theme(
    name="jackin-light",
    dark=False,
    primary="#1a5fb4",
    success="#1f6f3f",
    warning="#8a5300",
    error="#a51d2d",
    foreground="#1d232b",
    background="#fafaf8",
    surface="#fafaf8",
    panel="#e7e9ec",
    variables={
        "quiet": "#5c6672",
        "label": "#4b5563",
        "rule": "#c4cad1",
        "button-text": "#fafaf8",
    },
)
VARIABLE: Final = "JACKIN_PICKER_THEME"
# The last number that rxvt, Konsole and others set: the colour of the background.
_LIGHT_BACKGROUNDS: Final = frozenset({"7", "15"})


def theme_for(choice: str, environ: Mapping[str, str] = os.environ) -> Theme:
    """The look that was chosen; `auto` asks the environment, and dark where that says nothing."""
    wish = environ.get(VARIABLE, "") if choice == "auto" else choice
    if wish in ("dark", "light"):
        return LIGHT if wish == "light" else DARK
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if background in _LIGHT_BACKGROUNDS else DARK
