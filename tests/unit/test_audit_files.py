"""The record over many files: closed when long or old, deleted when too old, one chain."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from jackin_broker.audit_files import (
    PRUNED,
    Damage,
    Follower,
    closed_files,
    closed_path,
    read,
    verify,
)
from jackin_broker.audit_writer import FILE_MAX_AGE, KEEP_DAYS, RecordWriter
from jackin_broker.errors import ConfigError

START: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY: Final = timedelta(days=1)


class Calendar:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def numbers(path: Path) -> list[object]:
    return [line.fields.get("n") for line in read(path)]


def write(
    path: Path, count: int, *, file_max_bytes: int = 10_000, clock: Calendar | None = None
) -> None:
    with closing(
        RecordWriter(path, file_max_bytes=file_max_bytes, now=clock or Calendar())
    ) as writer:
        for _ in range(count):
            writer.append("asked", {"capsule": "web", "argv": ["gh", "x" * 200]})


def write_daily(path: Path, days: int, *, keep_days: int = KEEP_DAYS) -> Calendar:
    """A line a day."""
    clock = Calendar()
    with closing(RecordWriter(path, keep_days=keep_days, now=clock)) as writer:
        for _ in range(days):
            writer.append("asked", {})
            clock.now += DAY
    return clock


def test_a_long_file_is_closed_and_the_chain_goes_on(path: Path) -> None:
    write(path, 50, file_max_bytes=2000)
    assert len(closed_files(path)) > 5
    assert numbers(path) == list(range(1, 51))
    assert verify(path) == 50
    assert all(file.stat().st_size < 2500 for file in closed_files(path))
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in [path, *closed_files(path)])


def test_it_goes_on_over_restarts_also_where_the_newest_file_is_gone(path: Path) -> None:
    """A crash between closing a file and beginning the next leaves none."""
    write(path, 20, file_max_bytes=2000)
    path.rename(closed_path(path, int(str(read_file(path)[0]))))
    write(path, 20, file_max_bytes=2000)
    assert numbers(path) == list(range(1, 41))
    assert verify(path) == 40


def read_file(path: Path) -> list[object]:
    """The numbers of the lines of one file."""
    return [line.fields["n"] for line in read(path) if line.file == path.name]


def test_an_old_file_is_closed_though_it_is_short(path: Path) -> None:
    write_daily(path, FILE_MAX_AGE.days + 2)
    (closed,) = closed_files(path)
    assert closed == closed_path(path, 1)
    assert verify(path) == FILE_MAX_AGE.days + 2


def test_what_is_younger_than_the_days_that_are_kept_is_never_deleted(path: Path) -> None:
    days = 200
    clock = write_daily(path, days)
    kept = [
        datetime.fromisoformat(str(line.fields["at"]))
        for line in read(path)
        if line.fields["event"] == "asked"
    ]
    age = clock.now - min(kept)
    assert timedelta(days=KEEP_DAYS) <= age <= timedelta(days=KEEP_DAYS + 2) + FILE_MAX_AGE
    assert kept == [kept[0] + DAY * place for place in range(len(kept))]


def test_the_rest_verifies_after_old_files_were_deleted(path: Path) -> None:
    write_daily(path, 200)
    first, *others = read(path)
    assert first.fields["n"] != 1
    assert sum(1 for line in others if line.fields["event"] == PRUNED) > 5
    assert verify(path) == len(others) + 1


def test_with_zero_days_everything_is_kept(path: Path) -> None:
    write_daily(path, 200, keep_days=0)
    assert numbers(path) == list(range(1, 201))


def closed_at(path: Path, *moments: datetime) -> list[Path]:
    """A file for each moment, with a line that was written when the clock said that."""
    clock = Calendar()
    with closing(RecordWriter(path, keep_days=0, file_max_bytes=1, now=clock)) as writer:
        for moment in (*moments, moments[-1]):
            clock.now = moment
            writer.append("asked", {})
    return closed_files(path)


def look(path: Path, *moments: datetime) -> list[Path]:
    """What is left of the closed files when a line was written at each of these times."""
    before, clock = closed_files(path), Calendar()
    clock.now = moments[0]
    with closing(RecordWriter(path, now=clock)) as writer:
        for clock.now in moments:
            writer.append("asked", {})
    assert verify(path)
    return [file for file in before if file.exists()]


def test_what_a_clock_that_was_behind_wrote_is_not_deleted_early(path: Path) -> None:
    """A machine without a battery begins in 1970: a minute later its lines were fifty years old."""
    (first,) = closed_at(path, datetime(1970, 1, 1, tzinfo=UTC))
    assert look(path, START, START + DAY, START + 2 * DAY) == [first]
    assert look(path, *(START + DAY * day for day in range(3, KEEP_DAYS + 2))) == []


def test_what_a_clock_that_was_ahead_wrote_holds_nothing_up(path: Path) -> None:
    """Else that file and all after it would be kept until then."""
    days = (0, 4000, 1, 5, 95)
    files = closed_at(path, *(START + DAY * day for day in days))
    assert look(path, START + 96 * DAY) == files[-1:]


def test_a_clock_that_is_ahead_for_a_while_deletes_nothing(path: Path) -> None:
    clock = write_daily(path, 40)
    files = closed_files(path)
    assert len(files) > 3
    assert look(path, clock.now, clock.now + 4000 * DAY, clock.now + DAY) == files


def test_old_files_go_also_after_the_clock_was_set_back(path: Path) -> None:
    """The next look was due when the clock is as late again as it had been."""
    oldest, *_ = closed_at(path, START, START + 85 * DAY)
    left = look(path, START + 86 * DAY, START + 4000 * DAY, START + 100 * DAY)
    assert oldest not in left


def test_a_deletion_that_was_interrupted_leaves_a_whole_record(path: Path) -> None:
    """The line that vouches is on the disk first; the file it names may still be there."""
    write_daily(path, 150)
    files = {file: file.read_bytes() for file in closed_files(path)}
    files[closed_path(path, int(str(read_file(path)[0])))] = path.read_bytes()
    look(path, *(START + day * DAY for day in (230, 260)))
    assert not files.keys() & set(closed_files(path))
    for file, raw in reversed(files.items()):
        assert verify(path) > 0
        file.write_bytes(raw)
    assert verify(path) > KEEP_DAYS


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_closed_file_that_is_missing_is_found(path: Path, place: int) -> None:
    write(path, 50, file_max_bytes=2000)
    gone = closed_files(path)[place]
    following = [*closed_files(path), path][place + 1]
    gone.unlink()
    with pytest.raises(Damage) as damage:
        verify(path)
    assert (damage.value.file, damage.value.number) == (following.name, 1)


def test_the_first_bad_line_is_named_with_its_file(path: Path) -> None:
    write(path, 50, file_max_bytes=2000)
    second = closed_files(path)[1]
    lines = second.read_bytes().splitlines(keepends=True)
    second.write_bytes(b"".join([lines[0], lines[1].replace(b"web", b"wob"), *lines[2:]]))
    with pytest.raises(Damage) as damage:
        verify(path)
    assert (damage.value.file, damage.value.number) == (second.name, 3)
    assert str(damage.value).startswith(f"line 3 of {second.name}: ")


def test_a_file_that_cannot_be_closed_is_written_on(path: Path) -> None:
    """The record must not stand still, and with it every command, for a name that is taken."""
    with closing(RecordWriter(path, file_max_bytes=500)) as writer:
        closed_path(path, 1).write_bytes(b"")
        for _ in range(20):
            writer.append("asked", {"argv": ["x" * 200]})
    assert closed_path(path, 1).read_bytes() == b""
    assert verify(path) == len(read_file(path)) == 20


def test_a_damaged_line_at_the_end_of_a_file_stops_no_writing(path: Path) -> None:
    write(path, 5)
    with path.open("ab") as file:
        file.write(b'{"cut sho')
    write(path, 20, file_max_bytes=2000)
    with pytest.raises(Damage) as damage:
        verify(path)
    assert damage.value.number == 6


def test_following_goes_on_into_the_next_file(path: Path) -> None:
    with closing(RecordWriter(path, file_max_bytes=2000)) as writer:
        writer.append("asked", {})
        seen: list[object] = []
        with closing(Follower(path)) as follower:
            for _ in range(30):
                writer.append("asked", {"argv": ["x" * 200]})
                seen += [line.fields["n"] for line in follower.new()]
    assert len(closed_files(path)) > 2
    assert seen == list(range(2, 32))


def test_half_a_line_is_not_shown_before_its_end(path: Path) -> None:
    write(path, 1)
    with closing(Follower(path)) as follower, path.open("ab", buffering=0) as file:
        file.write(b'{"event":')
        assert list(follower.new()) == []
        file.write(b'"x"}\n')
        (line,) = follower.new()
    assert line.fields == {"event": "x"}


def test_a_reader_misses_no_line_while_files_are_closed(path: Path) -> None:
    """Reading begins before a file is closed and ends after: each line once."""
    with closing(RecordWriter(path, file_max_bytes=2000)) as writer:
        for _ in range(20):
            writer.append("asked", {"argv": ["x" * 200]})
        reading = read(path)
        seen = [next(reading).fields["n"]]
        for _ in range(20):
            writer.append("asked", {"argv": ["x" * 200]})
        seen += [line.fields["n"] for line in reading]
    assert seen[:20] == list(range(1, 21))
    assert seen == sorted(set(seen), key=lambda number: int(str(number)))


def test_the_writer_lets_nobody_else_at_the_new_file(path: Path) -> None:
    with closing(RecordWriter(path, file_max_bytes=500)) as writer:
        for _ in range(10):
            writer.append("asked", {"argv": ["x" * 200]})
        with pytest.raises(ConfigError, match="another broker"):
            RecordWriter(path)
