"""What can be lent, and where it comes from: names and sources, never a value.

It refuses to know values: what needs one gives the terminal to the command line's hidden prompt.
Invariant: nothing that is typed on this page is a value; the page asks for a name.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from textual.content import Content

from jackin_broker.errors import JackinError
from jackin_broker.operator_protocol import (
    CheckCredential,
    Credentials,
    CredentialView,
    GetStatus,
    ListCredentials,
    Reload,
    StatusReport,
)

from ..listing import Entry
from ..stage import Stage
from ..tabs import Page
from ..text import (
    CAREFUL,
    GOOD,
    LABEL,
    PLAIN,
    QUIET,
    STRONG,
    fitted,
    literal,
    own,
    row,
    spread,
)
from .page import PageScreen

_NAME_CELLS: Final = 24
_STATE_CHARS: Final = 60
_UNLOCKED: Final = "unlocked"
_LOCKED: Final = "locked"


class CredentialsPage(PageScreen):
    """In the configuration's order."""

    page = Page.CREDENTIALS
    title_words = "that can be lent: names and sources, no values"
    empty_words = "none is configured: a adds one"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._rows: dict[str, CredentialView] = {}
        self._report: StatusReport | None = None
        self._checked: dict[str, Content] = {}

    async def load(self) -> None:
        reply = await self.ask(ListCredentials(seq=0))
        if isinstance(reply, Credentials):
            self._rows = {_key(credential): credential for credential in reply.rows}
        status = await self.ask(GetStatus(seq=0))
        if isinstance(status, StatusReport):
            self._report = status

    def entries(self) -> list[Entry]:
        return [
            Entry(key, partial(_words, credential), partial(self._draw, key, credential))
            for key, credential in self._rows.items()
        ]

    def about(self, width: int) -> list[Content]:
        status = self._report
        if status is None:
            return []
        line = row(own("  keyring ", LABEL), literal(status.keyring, limit=_STATE_CHARS))
        if status.vault:
            style = CAREFUL if status.vault == _LOCKED else PLAIN
            vault = literal(status.vault, style, limit=_STATE_CHARS)
            line = row(line, own("   vault ", LABEL), vault)
        lines = [line.truncate(width)]
        if status.keyring_hint:
            hint = fitted(status.keyring_hint, width - 4, 1, CAREFUL)[0]
            lines.append(row(own("  ! ", CAREFUL), hint))
        return lines

    def _draw(self, key: str, credential: CredentialView, width: int) -> list[Content]:
        cells = min(_NAME_CELLS, max(len(each.name) for each in self._rows.values()))
        name = fitted(credential.name, cells, 1, STRONG)[0].truncate(cells, pad=True)
        tail = self._checked.get(key, own(""))
        if not credential.on_demand:
            tail = own("the agent has it", CAREFUL)
        elif credential.warnings and not tail:
            tail = own("!", CAREFUL)
        room = max(8, width - cells - tail.cell_length - 4)
        way = row(
            fitted(credential.source, max(4, room * 2 // 3), 1, QUIET)[0],
            own(" → ", QUIET),
            literal(credential.delivery, QUIET, limit=24),
        )
        return [spread(row(name, own("  "), way), row(own(" "), tail, own(" ")), width)]

    def detail(self, width: int) -> list[Content]:
        credential = self._rows.get(self.listing.selected or "")
        if credential is None:
            return []
        capsule = literal(credential.capsule, limit=40) if credential.capsule else own("every one")
        lines = [
            row(own("source   ", LABEL), fitted(credential.source, width - 9, 1)[0]),
            row(own("capsules ", LABEL), capsule),
        ]
        if credential.label:
            lines.append(row(own("label    ", LABEL), fitted(credential.label, width - 9, 1)[0]))
        if not credential.on_demand:
            lines.append(own("! given to the agent when its capsule starts", CAREFUL))
        for warning in credential.warnings:
            lines.append(row(own("! ", CAREFUL), fitted(warning, width - 2, 1, CAREFUL)[0]))
        return lines

    def keys(self) -> list[tuple[Content, Content]]:
        keys = [(own("a"), own("add"))]
        if self._report is not None and self._report.vault == _LOCKED:
            keys.append((own("u"), own("unlock the vault")))
        if self.listing.total:
            keys.append((own("c"), own("check")))
            keys.append((own("s"), own("new value")))
        return keys

    def act(self, key: str) -> None:
        credential = self._rows.get(self.listing.selected or "")
        if key == "a":
            self.edit("name of the new credential", self.add)
        elif key == "u":
            self.unlock()
        elif credential is not None and key == "s":
            self.add(credential.name)
        elif credential is not None and key in {"c", "enter"}:
            self.work(self._check(_key(credential), credential))

    def add(self, name: str) -> None:
        """Have the command line ask for a value of this name, and store it."""
        if not name.strip():
            return
        self._in_terminal(["credential", "add", "--", name.strip()])

    def unlock(self) -> None:
        """Have the command line ask for the vault's passphrase."""
        self._in_terminal(["vault", "unlock"])

    def _in_terminal(self, words: list[str]) -> None:
        status = self.stage.in_terminal(words)
        self.last_used_s = self.stage.clock.now_s()
        self.note = own("done", GOOD) if status == 0 else own("it was not done", CAREFUL)
        if status == 0:
            self.work(self._read_again())

    async def _read_again(self) -> None:
        """The configuration may have a new entry, or the vault be open."""
        await self.ask(Reload(seq=0))
        await self.load()

    async def _check(self, key: str, credential: CredentialView) -> None:
        self._checked[key] = own("asking …", QUIET)
        call = CheckCredential(seq=0, name=credential.name, capsule=credential.capsule)
        try:
            await self.ask(call)
        except JackinError:
            self._checked[key] = own("not to be had", CAREFUL)
            raise
        self._checked[key] = own("● is there", GOOD)


def _key(credential: CredentialView) -> str:
    return "/".join((credential.capsule, credential.name))


def _words(credential: CredentialView) -> str:
    return " ".join((credential.name, credential.source, credential.label, credential.capsule))
