"""Attacks of an agent, or of its code in an approved command, on what it was not given.

Each test plays one attack through the installed programs and looks at what came of it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from support import real
from support.agent import Agent
from support.broker import broker
from support.real import SEARCH_PATH, short_directory

FILES = """schema = 1
[env]
OTHER = {{ file = "{secret}", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["cat", "ls"]
[capsules.web.binaries.cat]
home = "operator"
[[rules]]
action = "allow"
argv = ["cat", "..."]
"""


def test_a_command_does_not_see_the_file_of_a_credential_that_was_not_ticked() -> None:
    """`home = "operator"` gives a command the operator's logins, not another command's values."""
    real.require_bwrap()
    value = "tok" + secrets.token_hex(12)
    with short_directory() as folder:
        secret, other = folder / "secret", folder / "other"
        for path, text in ((secret, value), (other, "seen")):
            path.touch(mode=0o600)
            path.write_text(text)
        environ = {"HOME": str(folder), "PATH": SEARCH_PATH}
        with broker(FILES.format(secret=secret), env=environ) as running:
            project = folder / "project"
            project.mkdir()
            agent = Agent(running, "web", project)
            assert agent.run("cat", str(other)).stdout == b"seen"
            assert value.encode() not in agent.run("cat", str(secret)).stdout


def test_a_configuration_that_is_a_link_into_a_project_is_refused() -> None:
    """Whoever writes the project would write the rules."""
    with short_directory() as folder:
        (folder / "dotfiles").mkdir()
        text = f"""schema = 1
[capsules.web]
kind = "bwrap"
uids = [{os.geteuid()}]
mounts = [{{ capsule = "/app", host = "{folder}/dotfiles" }}]
"""
        with broker("schema = 1\n") as running:
            target = Path(folder, "dotfiles", "jackin.toml")
            target.touch(mode=0o600)
            target.write_text(text)
            running.config_file.unlink()
            running.config_file.symlink_to(target)
            done = running.run("reload")
    assert done.returncode != 0
    assert "overlap" in done.stderr
