"""`jackin-capsule mcp-config`: each client's file gets the server and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackin_capsule.registration import CLIENTS, fresh, indent_of, merge
from jackin_capsule.tomlmerge import merge_toml
from jackin_capsule.wire import Fault
from support.broker import program

NAME: Final = ("mcp_servers", "jackin")
KEYS: Final[dict[tuple[str, ...], str | None]] = {
    ("command",): '"/jackin/bin/jackin-capsule"',
    ("args",): '["mcp"]',
}
TABLE: Final = '[mcp_servers.jackin]\ncommand = "/jackin/bin/jackin-capsule"\nargs = ["mcp"]\n'
# Where each client has its servers, and what one of somebody else's looks like there.
JSON_SHAPES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "claude": ("mcpServers", {"type": "stdio", "command": "other", "args": []}),
    "gemini": ("mcpServers", {"command": "other"}),
    "generic": ("mcpServers", {"command": "other"}),
    "opencode": ("mcp", {"type": "local", "command": ["other"], "enabled": False}),
    "vscode": ("servers", {"type": "stdio", "command": "other"}),
}
PLACES: Final = {
    "claude": ".claude.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "opencode": "config/opencode/opencode.json",
    "vscode": "work/.vscode/mcp.json",
}


def command(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The installed program, in a HOME of the test's own."""
    (home / "work").mkdir(exist_ok=True)
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "PATH": os.defpath}
    return subprocess.run(
        [program("jackin-capsule"), "mcp-config", *words],
        env={**env, "JACKIN_BROKER_SOCKET": "/somewhere/broker.sock"},
        cwd=home / "work",
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize("client", JSON_SHAPES)
def test_what_else_is_in_the_file_stays_in_its_order(client: str) -> None:
    holder, other = JSON_SHAPES[client]
    before = {"first": 1, holder: {"other": other}, "last": {"ü": [1, 2]}}
    after = json.loads(merge(client, json.dumps(before, indent=4, ensure_ascii=False), "f"))
    assert list(after) == ["first", holder, "last"]
    assert list(after[holder]) == ["other", "jackin"]
    assert {**after, holder: {"other": after[holder]["other"]}} == before
    ours = after[holder]["jackin"]
    words = ours["command"] if client == "opencode" else [ours["command"], *ours["args"]]
    assert words[-1] == "mcp"
    assert words[0].startswith("/")


@pytest.mark.parametrize("client", [c for c in CLIENTS if c != "codex"])
def test_a_second_time_changes_nothing_and_a_new_path_replaces_the_old(client: str) -> None:
    once = merge(client, "", "f")
    assert merge(client, once, "f") == once
    stale = once.replace('"mcp"\n', '"stale"\n', 1)
    assert json.loads(merge(client, stale, "f")) == json.loads(once)


def test_the_files_own_indentation_is_kept() -> None:
    assert indent_of('{\n\t"a": 1\n}') == "\t"
    assert indent_of('{\n    "a": 1\n}') == 4
    assert indent_of("{}") == 2


@pytest.mark.parametrize(
    "content", ["{ // a comment\n}", '{"mcpServers": []}', "[]", '{"mcpServers"', "null"]
)
def test_what_cannot_be_read_for_certain_is_not_written(tmp_path: Path, content: str) -> None:
    place = tmp_path / ".claude.json"
    place.write_text(content)
    done = command(tmp_path, "--client", "claude", "--write")
    assert done.returncode == 126
    assert "add it by hand" in done.stderr
    assert place.read_text() == content
    assert sorted(os.listdir(tmp_path)) == [".claude.json", "work"]


@pytest.mark.parametrize("client", PLACES)
def test_write_puts_it_where_the_client_reads_and_print_shows_the_same(
    tmp_path: Path, client: str
) -> None:
    shown = command(tmp_path, "--client", client)
    done = command(tmp_path, "--client", client, "--write")
    assert done.returncode == 0, done.stderr
    place = tmp_path / PLACES[client]
    assert place.read_text() == shown.stdout
    assert "/somewhere/broker.sock" in shown.stdout, "a client may not pass the variable on"
    assert place.stat().st_mode & 0o777 == 0o600
    assert "has it already" in command(tmp_path, "--client", client, "--write").stdout


def test_a_link_stays_a_link_and_its_file_keeps_its_mode(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text('{"a": 1}')
    real.chmod(0o644)
    (tmp_path / ".claude.json").symlink_to(real)
    assert command(tmp_path, "--client", "claude", "--write").returncode == 0
    assert (tmp_path / ".claude.json").is_symlink()
    assert json.loads(real.read_text())["a"] == 1
    assert real.stat().st_mode & 0o777 == 0o644
    assert sorted(os.listdir(tmp_path)) == [".claude.json", "dotfiles.json", "work"]


def test_a_named_file_is_used_and_an_unknown_client_is_told_so(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "servers.json"
    assert command(tmp_path, "--client=generic", "--write", f"--file={place}").returncode == 0
    assert "jackin" in json.loads(place.read_text())["mcpServers"]
    assert "name it" in command(tmp_path, "--client", "generic", "--write").stderr
    assert "one of: claude, codex" in command(tmp_path, "--client", "emacs").stderr
    assert command(tmp_path).returncode == 126


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_goes_in_by_name_and_never_as_a_value(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKIN_EXEC_TOKEN", "tok" + "0" * 20)
    monkeypatch.setattr(sys, "argv", ["/jackin/bin/jackin-capsule"])
    text = fresh(client)
    assert "JACKIN_EXEC_TOKEN" in text
    assert "tok000" not in text


# --- TOML ------------------------------------------------------------------------------------

TOML_FILES: Final = {
    "empty": "",
    "no newline at its end": 'model = "o"',
    "tables": "[a]\nb = 1\n\n# of c\n[c]\nd = 2\n\n[[rows]]\nx = 1\n",
    "looks like a header": 'text = """\n[mcp_servers.jackin]\n"""\nlist = [\n [1],\n ["[x]"],\n]\n',
    "literal": "text = '''\n[mcp_servers.jackin]\nit''s\n'''\nother = 'a # b'\n",
    "comment": "# [mcp_servers.jackin]\na = 1 # [mcp_servers.jackin]\n",
    "another server": '[mcp_servers.other]\ncommand = "x"\n',
    "another table": '[mcp_servers]\nother = { command = "x" }\n',
    "escapes": 'a = "\\\\"\nb = "\\"[x]\\""\nc = """a\\"""b"""\n',
}


@pytest.mark.parametrize("content", TOML_FILES.values(), ids=TOML_FILES)
def test_a_toml_file_gets_the_table_and_keeps_every_byte(content: str) -> None:
    merged = merge_toml(content, NAME, KEYS, "f")
    assert merged.startswith(content)
    after = tomllib.loads(merged)
    ours = after["mcp_servers"].pop("jackin")
    assert ours == {"command": "/jackin/bin/jackin-capsule", "args": ["mcp"]}
    before = tomllib.loads(content)
    before.setdefault("mcp_servers", {})
    assert after == before
    assert merge_toml(merged, NAME, KEYS, "f") == merged


@pytest.mark.parametrize("header", ["[mcp_servers.jackin]", '[ "mcp_servers" . jackin ]'])
def test_of_an_older_table_only_what_is_ours_is_replaced(header: str) -> None:
    before = (
        f'a = 1\n\n{header} # ours\nstartup_timeout_sec = 40 # slow\ncommand = "old"\n'
        'note = """\n[b]\n"""\n[mcp_servers.jackin.env]\nX = "1"\n\n# of b\n[b]\nc = 2\n'
    )
    merged = merge_toml(before, NAME, KEYS, "f")
    command = 'command = "/jackin/bin/jackin-capsule"\n'
    args = '"""\nargs = ["mcp"]\n[mcp_servers.jackin.env]'
    expected = before.replace('command = "old"\n', command)
    assert merged == expected.replace('"""\n[mcp_servers.jackin.env]', args)
    assert merge_toml(merged, NAME, KEYS, "f") == merged


def test_a_table_below_it_alone_gets_its_own_above() -> None:
    before = 'a = 1\n[mcp_servers.jackin.env]\nX = "1"'
    merged = tomllib.loads(merge_toml(before, NAME, KEYS, "f"))
    assert merged["mcp_servers"]["jackin"] == {
        "command": "/jackin/bin/jackin-capsule",
        "args": ["mcp"],
        "env": {"X": "1"},
    }


ENV_SHAPES: Final = {
    "none": "",
    "inline": 'env = { X = "a, b", JACKIN_BROKER_ADDR = "old:1" }\n',
    "inline, empty": "env = {}\n",
    "dotted": 'env.X = "a, b"\nenv.JACKIN_BROKER_ADDR = "old:1"\n',
    "a table": '[mcp_servers.jackin.env]\nX = "a, b"\nJACKIN_BROKER_ADDR = "old:1"\n',
}


@pytest.mark.parametrize("shape", ENV_SHAPES)
@pytest.mark.parametrize("address", ["new:2", ""])
def test_codex_keeps_variables_and_timeouts_that_somebody_added(
    monkeypatch: pytest.MonkeyPatch, shape: str, address: str
) -> None:
    monkeypatch.setenv("JACKIN_EXEC_TOKEN", "tok" + "0" * 20)
    monkeypatch.setenv("JACKIN_BROKER_ADDR", address)
    passed = 'env_vars = [ # mine\n  "LANG",\n]\n'
    head = f'[mcp_servers.jackin]\ncommand = "old"\ntool_timeout_sec = 90\n{passed}'
    merged = merge("codex", head + ENV_SHAPES[shape], "f")
    found = tomllib.loads(merged)["mcp_servers"]["jackin"]
    assert (found["tool_timeout_sec"], found["args"]) == (90, ["mcp"])
    assert sorted(found["env_vars"]) == ["JACKIN_EXEC_TOKEN", "LANG"]
    theirs = {"X": "a, b"} if "X" in ENV_SHAPES[shape] else {}
    ours = {"JACKIN_BROKER_ADDR": address} if address else {}
    assert found.get("env", {}) == {**theirs, **ours}
    assert merge("codex", merged, "f") == merged


@pytest.mark.parametrize("client", JSON_SHAPES)
def test_what_somebody_added_to_our_entry_stays(
    monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    holder, _ = JSON_SHAPES[client]
    env = "environment" if client == "opencode" else "env"
    monkeypatch.setenv("JACKIN_BROKER_ADDR", "new:2")
    monkeypatch.delenv("JACKIN_BROKER_SOCKET", raising=False)
    before: dict[str, Any] = json.loads(merge(client, "", "f"))
    entry = before[holder]["jackin"]
    entry.update(timeout=90000, enabled=False, command="old")
    entry[env] = {"X": "1", "JACKIN_BROKER_ADDR": "old:1", "JACKIN_BROKER_SOCKET": "/old"}
    merged = merge(client, json.dumps(before), "f")
    found = json.loads(merged)[holder]["jackin"]
    assert found[env] == {"X": "1", "JACKIN_BROKER_ADDR": "new:2"}
    assert (found["timeout"], found["enabled"]) == (90000, False)
    assert found["command"] != "old"
    assert merge(client, merged, "f") == merged


@pytest.mark.parametrize("ours", ['"text"', '{"env": []}'])
def test_an_entry_of_ours_in_another_shape_is_left_alone(ours: str) -> None:
    with pytest.raises(Fault) as refused:
        merge("claude", '{"mcpServers": {"jackin": ' + ours + "}}", "f")
    assert "by hand" in refused.value.hint


@pytest.mark.parametrize(
    "content",
    [
        'mcp_servers = { jackin = { command = "x" } }\n',
        'mcp_servers.jackin.command = "x"\n',
        '[mcp_servers]\njackin = { command = "x" }\n',
        '[mcp_servers]\njackin.command = "x"\n',
        '[[mcp_servers.jackin]]\ncommand = "x"\n',
        "[mcp_servers.jackin]\nargs.x = 1\n",
        'text = """\nnever ends\n',
        "list = [\n1,\n",
    ],
)
def test_another_shape_of_the_table_is_refused_and_not_guessed_at(content: str) -> None:
    with pytest.raises(Fault) as refused:
        merge_toml(content, NAME, KEYS, "f")
    assert "by hand" in refused.value.hint


_KEYS = st.sampled_from(["a", "mcp_servers", "jackin", "b c"])
_VALUES = st.sampled_from(
    ['"[x]"', "'it # [y]'", '"""\n[z]\n"""', "[\n [1], # ]\n]", "{a = 1}", "3"]
)


@given(st.lists(st.tuples(st.booleans(), _KEYS, _KEYS, _VALUES), max_size=6))
def test_whatever_is_valid_stays_what_it_was(rows: list[tuple[bool, str, str, str]]) -> None:
    text = ""
    for number, (is_table, one, two, value) in enumerate(rows):
        quoted = [json.dumps(part) for part in (one, two)]
        text += f"[t{number}.{'.'.join(quoted)}]\n" if is_table else f"k{number} = {value}\n"
    before = tomllib.loads(text)
    merged = merge_toml(text, NAME, KEYS, "f")
    after = tomllib.loads(merged)
    assert after.pop("mcp_servers")["jackin"]["args"] == ["mcp"]
    assert after == before


@pytest.mark.parametrize("client", JSON_SHAPES)
def test_half_a_character_in_a_history_stays_as_it_was_written(client: str) -> None:
    """A text that was cut off in the middle of an emoji; agents keep such ones in their files."""
    before = '{"history": "caf\u00e9 \\ud83d"}'
    after = merge(client, before, "f")
    assert after.encode()
    assert json.loads(after)["history"] == json.loads(before)["history"]
    assert '"caf\u00e9 \\ud83d"' in after


@pytest.mark.parametrize("content", ['{"a": 1e999}', '{"a": NaN}', '{"a":' * 100_000])
def test_what_could_not_be_written_back_as_it_was_is_left_alone(content: str) -> None:
    with pytest.raises(Fault) as refused:
        merge("claude", content, "f")
    assert "by hand" in refused.value.hint


@pytest.mark.parametrize("mark", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_only_what_ends_a_line_in_toml_begins_a_header(mark: str) -> None:
    content = f"# once it was:{mark}[mcp_servers.jackin]\n[other]\nkept = 1\n"
    assert merge_toml(content, NAME, KEYS, "f") == content + "\n" + TABLE
