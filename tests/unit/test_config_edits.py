"""Programs change one entry of the configuration and nothing else.

Whose rule: DESIGN §14 "edits keep comments and order".
"""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jackin_broker.config import InvalidConfig, edits, load
from jackin_broker.errors import ConfigError
from support.real import START_LIMIT_S

CONFIG = """\
# kept by hand
schema = 1

[broker]
keyring = "vault"  # why

[env]             # the names
A = "x"
# about B
B = { value = "y", on_demand = true }   # trailing

# the web capsule
[capsules.web]
kind = "none"

[[rules]]
action = "deny"
argv = ["rm"]
"""
ADDED = 'GH = { keyring = "github", on_demand = true }\n'
KEYS = {"keyring": "github", "on_demand": True}

_ADD = """
import sys
from pathlib import Path
from jackin_broker.config import edits
print("ready", flush=True)
sys.stdin.readline()
path, lock, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
keys = {"keyring": "service", "on_demand": True}
edits.write(path, lambda text: edits.set_entry(text, name, keys), lock=lock)
"""


def test_a_new_entry_is_the_last_of_its_table_and_the_only_change() -> None:
    changed = edits.set_entry(CONFIG, "GH", KEYS)
    assert changed == CONFIG.replace("# trailing\n", f"# trailing\n{ADDED}")


def test_removing_it_again_gives_the_same_text() -> None:
    assert edits.remove_entry(edits.set_entry(CONFIG, "GH", KEYS), "GH") == CONFIG


def test_removing_what_is_not_there_changes_nothing() -> None:
    assert edits.remove_entry(CONFIG, "GH") == CONFIG
    assert edits.remove_entry("schema = 1\n", "GH") == "schema = 1\n"


def test_given_keys_replace_those_of_an_old_entry_and_the_others_stay() -> None:
    text = 'schema = 1\n[env.GH]\nkeyring = "old"   # mine\n# more\non_demand = true\n'
    changed = edits.set_entry(text, "GH", {"keyring": "new", "label": "a label"})
    assert "# mine" in changed
    assert "# more" in changed
    assert 'keyring = "new"' in changed
    assert 'label = "a label"' in changed
    assert "on_demand = true" in changed


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1\n",
        'schema = 1\n[capsules.web]\nkind = "none"\n',
        'schema = 1\nenv = { A = "x" }\n[capsules.web]\nkind = "none"\n',
        "schema = 1\n[env]\n\n# the web capsule\n[capsules.web]\nkind = 'none'\n",
        'schema = 1\n[env.Z]\nkeyring = "z"\non_demand = true\n\n[capsules.web]\nkind = "none"\n',
    ],
)
def test_an_entry_is_added_wherever_the_table_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    config = edits.write(
        path, lambda text: edits.set_entry(text, "GH", KEYS), lock=tmp_path / "lock"
    )
    assert config.bindings["GH"].on_demand
    assert load(path) == config
    words = re.compile(r"[^\s{},]+")
    assert set(words.findall(text)) <= set(words.findall(path.read_text())), "all is kept"


def test_a_fresh_file_is_its_owners_alone_and_names_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "config.toml"
    edits.write(path, lambda text: edits.set_entry(text, "GH", KEYS), lock=tmp_path / "lock")
    assert path.read_text() == f"schema = 1\n\n[env]\n{ADDED}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_change_that_would_be_invalid_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch(mode=0o600)
    path.write_text(CONFIG)

    def unknown_key(text: str) -> str:
        return edits.set_entry(text, "GH", {**KEYS, "unknown": 1})

    with pytest.raises(InvalidConfig):
        edits.preview(path, unknown_key)
    with pytest.raises(InvalidConfig):
        edits.write(path, unknown_key, lock=tmp_path / "lock")
    assert path.read_text() == CONFIG


def test_a_file_that_others_can_write_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by others"):
        edits.write(path, lambda text: text + "# more", lock=tmp_path / "lock")
    assert path.read_text() == CONFIG


def test_several_programs_at_once_all_get_their_entry_in(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    names = [f"NAME_{number}" for number in range(8)]
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", _ADD, str(path), str(tmp_path / "lock"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    for program in programs:
        program.communicate(timeout=START_LIMIT_S)
        assert program.returncode == 0
    assert sorted(load(path).bindings) == names
