"""Values in a command's arguments: the record repeats none that the broker can know.

Whose rule: REDACTION §7 ("argv echoes, titles and audit records"), issue "Redaction that nobody
gets past". An agent may have a value from elsewhere; that no source is asked before a decision
comes first.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from support.agent import Agent, finish
from support.broker import broker
from support.real import short_directory

CONFIG = """schema = 1
[broker]
no_operator = "wait"
[env]
WRITTEN = {{ value = "{written}", on_demand = true }}
GIVEN = {{ value = "$GIVEN_TO_THE_BROKER", on_demand = true }}
STORED = {{ file = "{folder}/stored", on_demand = true }}
[capsules.web]
kind = "none"
host_binaries = ["true"]
[capsules.web.binaries.true]
confine = false
"""


def test_no_line_of_the_record_repeats_a_value_of_configuration_or_environment() -> None:
    written, given = (f"tok-{secrets.token_hex(12)}" for _ in range(2))
    with short_directory() as folder:
        text = CONFIG.format(folder=folder, written=written)
        with broker(text, env={"GIVEN_TO_THE_BROKER": given}) as running:
            agent = Agent(running, "web", folder)
            with agent.running("true", f"--a={written}", given) as child:
                request = running.wait_for_request()
                running.deny(request["id"])
                assert finish(child).returncode == 126
            lines = [line for line in running.audit() if "argv" in line]
            record = running.audit_file.read_text()
    assert [line["event"] for line in lines] == ["asked", "refused"]
    for line in lines:
        assert line["argv"] == ["true", "--a=[redacted:WRITTEN]", "[redacted:GIVEN]"]
        assert line["argv_holds"] == ["WRITTEN", "GIVEN"]
    assert written not in record
    assert given not in record


def test_what_only_a_source_knows_is_told_when_it_was_asked() -> None:
    """Lines written before hold it: SECURITY.md says so, and later ones say that they do."""
    stored = f"tok-{secrets.token_hex(12)}"
    with short_directory() as folder:
        _store(folder, stored)
        with broker(CONFIG.format(folder=folder, written="tok-other-1")) as running:
            agent = Agent(running, "web", folder)
            with agent.running("true", stored) as child:
                request = running.wait_for_request()
                running.approve(request["id"], "STORED")
                assert finish(child).returncode == 0
            lines = {line["event"]: line for line in running.audit() if "argv" in line}
    assert "argv_holds" not in lines["asked"]
    for event in ("started", "ended"):
        assert stored not in json.dumps(lines[event])
        assert lines[event]["argv_holds"] == ["STORED"]


def test_no_directory_or_reason_in_the_record_repeats_a_value() -> None:
    """Where a program is called, and what is said of one that is not listed, an agent writes."""
    written = f"tok-{secrets.token_hex(12)}"
    with short_directory() as folder:
        place = folder / f"at-{written}"
        place.mkdir()
        with broker(CONFIG.format(folder=folder, written=written)) as running:
            with Agent(running, "web", place).running("true") as child:
                running.deny(running.wait_for_request()["id"])
                assert finish(child).returncode == 126
            with Agent(running, "web", folder).running(f"no-{written}") as child:
                assert finish(child).returncode == 126
            place.rmdir()
            record = running.audit_file.read_text()
            lines = [line for line in running.audit() if "argv" in line]
    assert [line["event"] for line in lines] == ["asked", "refused", "refused"]
    assert "/at-[redacted:WRITTEN]" in lines[0]["cwd"]
    assert "no-[redacted:WRITTEN] is not among the host binaries" in lines[2]["reason"]
    assert written not in record


def _store(folder: Path, value: str) -> None:
    (folder / "stored").touch(mode=0o600)
    (folder / "stored").write_text(value)
