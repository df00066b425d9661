"""What operators are told of a credential and of a capsule, in words that are so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jackin_broker.bindings import Binding, Delivery, EnvSource
from jackin_broker.capsule_status import capsule_status
from jackin_broker.capsules import CapsuleRegistry
from jackin_broker.config import CapsuleConfig, CapsuleKind
from jackin_broker.masking import Unredactable
from jackin_broker.paths import resolve
from jackin_broker.views import credential_view


@pytest.mark.parametrize(
    ("delivery", "deliver_as", "words"),
    [
        (Delivery.ENV, "", "env"),
        (Delivery.ENV, "PGPASSWORD", "env as PGPASSWORD"),
        (Delivery.FILE, "KEY_PATH", "file as KEY_PATH"),
    ],
)
def test_the_name_that_the_command_sees_is_said(
    delivery: Delivery, deliver_as: str, words: str
) -> None:
    binding = Binding("DB", EnvSource("DB"), delivery=delivery, deliver_as=deliver_as)
    view = credential_view(binding, "web", frozenset[str](), Unredactable())
    assert view.delivery == words
    assert view.warnings == ()


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (CapsuleKind.BWRAP, "not launched"),  # a launch that ended took its token along
        (CapsuleKind.REMOTE, "its bridge's token was revoked"),
    ],
)
def test_a_capsule_that_is_not_launched_says_that(kind: CapsuleKind, note: str) -> None:
    registry = CapsuleRegistry()
    registry.configure({"web": CapsuleConfig("web", kind, (1000,))}, {})
    without_key: Any = SimpleNamespace(key=None, url="", address="")
    paths = resolve({"HOME": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere/run"})
    assert capsule_status(registry.named("web"), paths, without_key).note == note
