"""Kept grants of a launched capsule: they hold as long as it runs, over a broker's restart too."""

from __future__ import annotations

import os
from typing import Final

from jackin_broker import operator_protocol as op
from support.broker import Broker, broker
from support.capsule import Agent, launched
from support.desk import OperatorAtDesk
from support.real import require_bwrap, short_directory, wait_until
from support.second_uid import AGENT_UID

MINUTE: Final = op.GrantTerm(op.GrantKind.MINUTES, 10)
COMMAND: Final = ("jackin-exec", "uname")
CONFIG: Final = """schema = 1
[broker]
no_operator = "wait"
keep_grants = true
[capsules.web]
kind = "bwrap"
uids = [{uid}]
host_binaries = ["uname"]
mounts = [{{ capsule = "/workspace", host = "{project}" }}]
"""


def is_known(served: Broker) -> bool:
    return bool(served.ask("status")["capsules"][0]["init_pid"])


def is_asked(served: Broker, agent: Agent, grant: op.GrantTerm = op.ONCE) -> bool:
    """Whether the command waits for the operator, who approves it then for this term."""
    operator = OperatorAtDesk(served)
    asked, ended = count(served, "asked"), count(served, "ended")
    call = agent.start(*COMMAND)
    wait_until(
        lambda: count(served, "asked") > asked or count(served, "ended") > ended, "it waits, or ran"
    )
    is_waiting = count(served, "asked") > asked
    if is_waiting:
        assert operator.decide(operator.wait(), grant=grant).accepted
    assert call.wait().status == 0
    return is_waiting


def count(served: Broker, event: str) -> int:
    return sum(line["event"] == event for line in served.audit())


def test_a_kept_grant_holds_as_long_as_its_capsule_runs_whichever_broker_serves_it() -> None:
    require_bwrap()
    uid = AGENT_UID if os.geteuid() == 0 else os.geteuid()
    with short_directory(0o755) as project:
        text = CONFIG.format(uid=uid, project=project)
        with broker(text) as served:
            with launched(served, "--quiet", "--name", "web") as agent:
                assert is_asked(served, agent, grant=MINUTE)
                for end in (served.stop, served.kill):
                    end()
                    served.start()
                    wait_until(lambda: is_known(served), "its launcher came back")
                    assert not is_asked(served, agent)
            wait_until(lambda: not is_known(served), "the launch has ended")
            assert not served.ask("grants", "list")
            with launched(served, "--quiet", "--name", "web") as agent:
                assert is_asked(served, agent)
