"""The pages besides the prompt, and the bar at the top that names them.

It refuses to know what is on a page. Invariant: the page that is shown is named on it too, so
that the bar's colours say nothing that is not said in words.
Pure.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, LiteralString

from textual.content import Content

from .text import BAD, BAR, CAREFUL, GOOD, KEY, QUIET, TAB_HERE, number, own, row, spread


class Page(Enum):
    """Where an operator can be. The value is the key that goes there."""

    DESK = "0"
    WAITING = "1"
    RUNNING = "2"
    HISTORY = "3"
    GRANTS = "4"
    CREDENTIALS = "5"
    RULES = "6"


NAMES: Final[dict[Page, LiteralString]] = {
    Page.WAITING: "Waiting",
    Page.RUNNING: "Running",
    Page.HISTORY: "History",
    Page.GRANTS: "Grants",
    Page.CREDENTIALS: "Credentials",
    Page.RULES: "Rules",
}
_KEYS: Final[dict[Page, LiteralString]] = {
    Page.WAITING: "1",
    Page.RUNNING: "2",
    Page.HISTORY: "3",
    Page.GRANTS: "4",
    Page.CREDENTIALS: "5",
    Page.RULES: "6",
}
# A narrow terminal gets the keys alone.
_NAMES_FROM_CELLS: Final = 80


def page_of(key: str) -> Page | None:
    """The page that this key goes to."""
    return next((page for page in NAMES if page.value == key), None)


def next_page(page: Page, step: int) -> Page:
    """The page beside this one; round at the ends."""
    pages = list(NAMES)
    start = pages.index(page) if page in NAMES else -1 if step > 0 else 0
    return pages[(start + step) % len(pages)]


def tab_bar(
    here: Page, width: int, *, waiting: int, has_broker: bool
) -> tuple[Content, list[tuple[Page, range]]]:
    """The bar, and where a click goes to which page."""
    parts: list[Content] = [own(" ")]
    spots: list[tuple[Page, range]] = []
    at = 1
    for page, name in NAMES.items():
        key = _KEYS[page]
        tab = row(own(" "), own(key, KEY))
        if width >= _NAMES_FROM_CELLS:
            tab = row(tab, own(" "), own(name, QUIET))
        tab = row(tab, own(" "))
        if page is here:
            tab = row(own(" "), own(key), own(" "), own(name), own(" ")).stylize(TAB_HERE)
        spots.append((page, range(at, at + tab.cell_length)))
        at += tab.cell_length
        parts.append(tab)
    return spread(row(*parts), _state(here, waiting, has_broker), width, BAR), spots


def _state(here: Page, waiting: int, has_broker: bool) -> Content:
    if not has_broker:
        return own("no broker ", BAD)
    if waiting and here is not Page.WAITING:
        return row(number(min(waiting, 9999), CAREFUL), own(" waiting ", CAREFUL))
    return own("attached ", GOOD)
