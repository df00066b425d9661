"""`[capsules.NAME]` for a bridge: what is read, what is wrong, and where it will listen."""

from __future__ import annotations

from typing import Final

import pytest

from jackin_broker import config
from jackin_broker.bridge.address import address_of
from jackin_broker.bridge.bridges import wanted_of
from jackin_broker.config import CapsuleConfig

HEAD: Final = 'schema = 1\n[capsules.vm]\nkind = "{kind}"\n'


def read(lines: str = "", kind: str = "remote") -> CapsuleConfig:
    text = HEAD.format(kind=kind) + 'host_binaries = ["true"]\n' + lines
    return config.parse(text, origin="").capsules["vm"]


def problems(lines: str, kind: str = "remote") -> dict[str, str]:
    with pytest.raises(config.InvalidConfig) as error:
        read(lines, kind)
    return {one.path: one.message for one in error.value.problems}


def test_a_remote_capsule_has_a_bridge_unless_it_is_switched_off() -> None:
    assert wanted_of(read())
    assert not wanted_of(read("bridge = false"))
    assert not wanted_of(read(kind="bwrap"))
    assert wanted_of(read("bridge = true", kind="bwrap"))


def test_without_listed_binaries_there_is_none_and_check_says_so() -> None:
    parsed = config.parse(HEAD.format(kind="remote"), origin="")
    assert not wanted_of(parsed.capsules["vm"])
    assert any("host_binaries lists nothing" in line for line in config.warnings(parsed))


def test_it_listens_on_loopback_under_the_name_that_the_engine_gives_it() -> None:
    assert address_of(read()) == ("127.0.0.1", "127.0.0.1")
    asked = 'bridge = true\nbridge_bind = "127.0.0.1"'
    assert address_of(read(asked, kind="docker")).host == "host.docker.internal"
    assert address_of(read(asked, kind="podman")).host == "host.containers.internal"
    written = asked + '\nbridge_host = "vm.internal"'
    assert address_of(read(written, kind="docker")).host == "vm.internal"


def test_an_address_that_is_written_is_used_and_an_ipv6_one_is_in_brackets() -> None:
    six = address_of(read('bridge_bind = "fd00::1"'))
    assert (six.bind, six.at(80)) == ("fd00::1", "[fd00::1]:80")
    assert address_of(read('bridge_bind = "192.0.2.7"')).at(80) == "192.0.2.7:80"


def test_every_address_needs_a_name_and_is_warned_of() -> None:
    assert "nobody can connect to" in problems('bridge_bind = "0.0.0.0"')["capsules.vm.bridge_host"]
    assert "nobody can connect to" in problems('bridge_bind = "::"')["capsules.vm.bridge_host"]
    lines = 'bridge_bind = "0.0.0.0"\nbridge_host = "vm.internal"'
    assert address_of(read(lines)) == ("0.0.0.0", "vm.internal")  # noqa: S104 - written so
    text = HEAD.format(kind="remote") + 'host_binaries = ["true"]\n' + lines
    found = config.warnings(config.parse(text, origin=""))
    assert any("lets every network of this machine try a token" in line for line in found)


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('bridge_bind = "eth0"', "bridge_bind"),
        ('bridge_bind = "127.0.0.1:80"', "bridge_bind"),
        ('bridge_host = "a host"', "bridge_host"),
        ('bridge_host = "host:80"', "bridge_host"),
        ("bridge_port = 65535", "bridge_port"),
        ("bridge_port = -1", "bridge_port"),
        ('bridge_port = "80"', "bridge_port"),
        ('bridge = "yes"', "bridge"),
        ("bridge_prot = 80", "bridge_prot"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(lines: str, key: str) -> None:
    assert f"capsules.vm.{key}" in problems(lines)
