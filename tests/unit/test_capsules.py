"""The registry: what is configured, who holds a capsule, who may become its init (DESIGN §4)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from jackin_broker.capsules import Capsule, CapsuleRegistry, record_init
from jackin_broker.config import CapsuleConfig, CapsuleKind, Mount
from jackin_broker.errors import ConfigError, DenialCode, Refusal
from support.namespaces import InNamespace, in_namespace
from support.real import wait_until

OWN = os.geteuid()
WEB = CapsuleConfig("web", CapsuleKind.BWRAP, (OWN,), mounts=(Mount("/app", "/srv/app"),))
TRIAL = CapsuleConfig("trial", CapsuleKind.NONE, (OWN,))


@pytest.fixture
def init() -> Iterator[InNamespace]:
    """A process that is pid 1 of a namespace of its own, of our uid."""
    with in_namespace() as made:
        yield made


def _registry(*configs: CapsuleConfig) -> CapsuleRegistry:
    registry = CapsuleRegistry()
    registry.configure({config.name: config for config in configs}, {})
    return registry


def _get(registry: CapsuleRegistry, name: str) -> Capsule:
    found = registry.get(name)
    assert found is not None
    return found


def test_an_empty_name_is_the_only_configured_capsule() -> None:
    assert _registry(WEB).open("", kind="bwrap").name == "web"
    with pytest.raises(ConfigError, match="which capsule"):
        _registry(WEB, TRIAL).open("")
    with pytest.raises(ConfigError, match=r"capsules\.other: is not configured"):
        _registry(WEB).open("other")
    with pytest.raises(ConfigError, match="no capsule is configured") as caught:
        _registry().open("")
    assert "[capsules.NAME]" in caught.value.hint


def test_a_capsule_is_launched_as_the_kind_that_its_rules_were_written_for() -> None:
    with pytest.raises(ConfigError, match="is bwrap, not none"):
        _registry(WEB).open("web", kind="none")


def test_a_uid_that_is_not_configured_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"capsules\.web\.uids: 4242"):
        _registry(WEB).open("web", uids=(4242,))


def test_only_one_launch_holds_a_capsule_and_its_mounts_go_with_it() -> None:
    registry = _registry(WEB)
    held = registry.open("web", mounts=(Mount("/more", "/srv/more"),))
    assert [mount.capsule for mount in held.mounts] == ["/app", "/more"]
    with pytest.raises(Refusal, match="already launched"):
        registry.open("web")
    registry.close("web", "another session")
    assert held.is_open, "only its holder gives it back"
    registry.close("web", held.session_id)
    assert not held.is_open
    assert held.mounts == WEB.mounts


def test_a_reload_keeps_what_a_launch_added_and_drops_what_is_gone() -> None:
    registry = _registry(WEB, TRIAL)
    held = registry.open("web", mounts=(Mount("/more", "/srv/more"),))
    fewer = CapsuleConfig("web", CapsuleKind.BWRAP, (OWN,), host_binaries=("git",))
    change = registry.configure({"web": fewer}, {})
    assert change.changed == (held,)
    assert [capsule.name for capsule in change.removed] == ["trial"]
    assert [mount.capsule for mount in held.mounts] == ["/more"]
    assert held.config.host_binaries == ("git",)
    assert registry.get("trial") is None


def test_the_holder_records_init_and_nobody_else(init: InNamespace) -> None:
    registry = _registry(WEB)
    for session in ("", "guess"):
        with pytest.raises(Refusal, match="not held by this launch") as told:
            registry.record_init("web", init.pid, session)
        assert told.value.code is DenialCode.PEER_REFUSED
    session = registry.open("web").session_id
    record = registry.record_init("web", init.pid, session)
    assert (record.pid, record.uid, record.depth) == (init.pid, OWN, 2)
    assert record.is_alive()
    assert _get(registry, "web").init is record


def test_a_second_init_is_refused_while_the_first_lives(init: InNamespace) -> None:
    registry = _registry(WEB)
    session = registry.open("web").session_id
    registry.record_init("web", init.pid, session)
    with in_namespace() as other:
        with pytest.raises(Refusal, match="has an init already"):
            registry.record_init("web", other.pid, session)
        init.end()
        assert registry.record_init("web", other.pid, session).pid == other.pid


def test_an_init_that_ended_is_noticed(init: InNamespace) -> None:
    record = record_init(init.pid, (OWN,))
    init.end()
    wait_until(lambda: not record.is_alive(), "the record says that init has ended")
    assert record.namespace() is None
    record.close()


def test_the_end_of_a_launch_forgets_init(init: InNamespace) -> None:
    registry = _registry(WEB)
    held = registry.open("web")
    registry.record_init("web", init.pid, held.session_id)
    registry.close("web", held.session_id)
    assert held.init is None


def test_a_process_that_is_nobodys_first_is_no_init() -> None:
    with subprocess.Popen(["sleep", "60"]) as plain:
        with pytest.raises(Refusal, match="not the first of a namespace"):
            record_init(plain.pid, (OWN,))
        plain.kill()


def test_a_second_process_of_a_namespace_is_no_init(init: InNamespace) -> None:
    child = init.child()
    with pytest.raises(Refusal, match="not the first of a namespace"):
        record_init(child, (OWN,))


def test_the_first_process_of_a_nested_namespace_is_no_init() -> None:
    with in_namespace(nested=True) as outer:
        pretender = outer.nested_init()
        with pytest.raises(Refusal, match="not the first of a namespace"):
            record_init(pretender, (OWN,))


def test_an_init_of_another_uid_is_refused(init: InNamespace) -> None:
    with pytest.raises(Refusal, match="which is not configured"):
        record_init(init.pid, (OWN + 1,))


@pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1, 2**40])
def test_a_pid_that_is_no_process_is_refused(pid: int) -> None:
    with pytest.raises(Refusal):
        record_init(pid, (OWN,))


def test_a_capsule_without_a_boundary_has_no_init(init: InNamespace) -> None:
    registry = _registry(TRIAL)
    session = registry.open("trial", kind="none").session_id
    with pytest.raises(Refusal, match="no boundary"):
        registry.record_init("trial", init.pid, session)


def test_no_descriptor_is_left_behind_by_refusals(init: InNamespace) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for pid, uid in ((init.pid, OWN + 1), (os.getpid(), OWN), (2**22 + 1, OWN)):
        with pytest.raises(Refusal):
            record_init(pid, (uid,))
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_runs_in_a_capsule_is_named_by_its_init_and_not_by_the_brokers_word(
    init: InNamespace,
) -> None:
    """Grants hold as long as it runs, over a broker's restart too, and for nothing after it."""
    first, again = _registry(WEB), _registry(WEB)
    lives: list[str] = []
    for registry in (first, again):
        held = registry.open("web")
        assert held.life == held.session_id != ""
        registry.record_init("web", init.pid, held.session_id)
        lives.append(held.life)
    assert lives[0] == lives[1]
    with in_namespace() as other:
        adopted = _get(_registry(WEB), "web")
        adopted.adopt(other.pid, "", is_ours=False)
        assert adopted.life not in {*lives, ""}
    first.close("web", _get(first, "web").session_id)
    assert _get(first, "web").life == ""
    for capsule in (_get(again, "web"), adopted):
        capsule.drop_init()
