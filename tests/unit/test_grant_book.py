"""The grants of one broker: what is kept over a restart, and what its file holds."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path

import msgspec
import pytest

from jackin_broker.errors import Refusal
from jackin_broker.grants.book import GrantBook
from jackin_broker.grants.ledger import Basis, Grant, Moment
from jackin_broker.policy import Action, Permit, Rule, Shape, Verdict
from jackin_broker.protocol import Outcome

SHAPE = Shape(
    capsule="web",
    argv=(b"gh", b"an-argument-of-the-agent"),
    cwd=b"/src/app",
    is_cwd_writable=True,
    available=frozenset({"GH_TOKEN"}),
    binary_sha256="b" * 64,
)
BASIS = Basis(SHAPE, "", "r-1", date(2026, 11, 30), {"": "confined", "GH_TOKEN": "keyring"})


def grant_of(book: GrantBook, **changes: object) -> Grant:
    now = book.now()
    usual = Grant(
        id="g1",
        capsule="web",
        command="gh",
        session_id="",
        key_sha256=BASIS.key_sha256,
        want=(),
        bindings=("GH_TOKEN",),
        traits={"": "confined", "GH_TOKEN": "keyring"},
        text='argv = ["gh", "an-argument-of-the-agent"]',
        made_at=now.wall_s,
        expires_at=now.wall_s + 600,
        steady_end_s=now.steady_s + 600,
    )
    return msgspec.structs.replace(usual, **changes)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        async with asyncio.timeout(10):
            await scene()

    asyncio.run(go())


def used(grant_id: str = "", rule_id: str = "") -> Verdict:
    rule = Rule(Action.ALLOW, ("gh",), id=rule_id) if rule_id else None
    return Verdict(Outcome.ALLOW, "", rule=rule, grant_id=grant_id)


def test_a_grant_outlives_a_restart_only_if_that_was_chosen(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"

    async def scene() -> None:
        kept, dropped = GrantBook(path, is_kept=True), GrantBook(path, is_kept=False)
        await kept.add(grant_of(kept))
        assert kept.permit(BASIS) == Permit("g1", ("GH_TOKEN",))
        assert GrantBook(path, is_kept=True).permit(BASIS) == Permit("g1", ("GH_TOKEN",))
        assert GrantBook(path, is_kept=False).live() == ()
        await dropped.add(grant_of(dropped))
        assert GrantBook(path, is_kept=True).live() == ()

    play(scene)


def test_the_file_has_names_and_digests_and_is_the_operators_alone(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"

    async def scene() -> None:
        book = GrantBook(path, is_kept=True)
        await book.add(grant_of(book))
        await book.note_rule("r-1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = path.read_text()
        assert "an-argument" not in text
        assert "GH_TOKEN" in text
        again = GrantBook(path, is_kept=True).live()[0]
        assert BASIS.key_sha256 in again.text
        assert "gh" in again.text

    play(scene)


def test_a_counted_use_is_on_the_disk_before_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"

    async def scene() -> None:
        book = GrantBook(path, is_kept=True)
        await book.add(grant_of(book, uses_left=2))
        await book.note_use(used(grant_id="g1"))
        assert [one["uses_left"] for one in json.loads(path.read_text())["grants"]] == [1]
        path.unlink()
        path.mkdir()
        with pytest.raises(Refusal, match="cannot be put on record"):
            await book.note_use(used(grant_id="g1"))

    play(scene)


def test_the_last_use_of_an_always_is_known_after_a_restart(tmp_path: Path) -> None:
    """CASES 3d: the list shows expiry and last use."""
    path = tmp_path / "grants.json"

    async def scene() -> None:
        book = GrantBook(path, is_kept=False)
        await book.note_rule("r-1")
        before = time.time()
        await book.note_use(used(rule_id="r-1"))
        await book.note_use(used(rule_id="r-1"))
        await book.close()
        use = GrantBook(path, is_kept=False).rule_use("r-1")
        assert use.last_used_at is not None
        assert before <= use.last_used_at <= time.time()
        assert use.made_at > 0

    play(scene)


def test_a_rule_that_a_person_wrote_is_not_kept_account_of(tmp_path: Path) -> None:
    async def scene() -> None:
        book = GrantBook(tmp_path / "grants.json", is_kept=False)
        await book.note_use(Verdict(Outcome.ALLOW, "", rule=Rule(Action.ALLOW, ("gh",))))
        await book.close()
        assert not (tmp_path / "grants.json").exists()

    play(scene)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"v": 2}', b'{"v": 1, "grants": [{"id": 3}]}', b"\xff"],
    ids=repr,
)
def test_what_cannot_be_read_grants_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "grants.json"
    path.touch(mode=0o600)
    path.write_bytes(content)

    async def scene() -> None:
        assert GrantBook(path, is_kept=True).live() == ()

    play(scene)


def test_a_file_that_others_can_open_grants_nothing(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"

    async def scene() -> None:
        book = GrantBook(path, is_kept=True)
        await book.add(grant_of(book))
        path.chmod(0o640)
        assert GrantBook(path, is_kept=True).live() == ()
        path.chmod(0o600)
        path.rename(tmp_path / "other")
        path.symlink_to("other")
        assert GrantBook(path, is_kept=True).live() == ()

    play(scene)


def test_revoking_is_on_the_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"

    async def scene() -> None:
        book = GrantBook(path, is_kept=True)
        await book.add(grant_of(book))
        await book.add(grant_of(book, id="g2"))
        assert await book.revoke("g1")
        assert [one.id for one in GrantBook(path, is_kept=True).live()] == ["g2"]
        assert await book.revoke_all() == 1
        assert GrantBook(path, is_kept=True).live() == ()

    play(scene)


@pytest.mark.parametrize("set_back_s", [0.0, 86_400.0])
def test_a_clock_that_is_set_back_gives_a_kept_grant_no_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_back_s: float
) -> None:
    """It is set back while no broker runs, or while the next one does."""
    path = tmp_path / "grants.json"
    began = GrantBook(path, is_kept=True).now()

    def moved(wall_s: float, steady_s: float) -> None:
        now = Moment(began.wall_s + wall_s, began.steady_s + steady_s)

        def then(_: GrantBook) -> Moment:
            return now

        monkeypatch.setattr(GrantBook, "now", then)

    async def scene() -> None:
        book = GrantBook(path, is_kept=True)
        await book.add(grant_of(book))
        moved(-set_back_s, 1)
        again = GrantBook(path, is_kept=True)
        assert again.permit(BASIS) is not None
        moved(-86_400.0, 600)
        assert again.permit(BASIS) is not None
        moved(-86_400.0, 602)
        assert again.permit(BASIS) is None

    play(scene)
