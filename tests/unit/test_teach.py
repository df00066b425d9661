"""`jackin-capsule prompt`: what an agent is taught is what there is, and what answers mean."""

from __future__ import annotations

import os
import subprocess

import pytest

from jackin_broker.errors import DenialCode
from jackin_capsule.problems import HINTS
from jackin_capsule.teach import FORMATS, block
from support.broker import program


def prompt(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("jackin-capsule"), "prompt", *words],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", **variables},
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_names_what_this_capsule_has(kind: str) -> None:
    done = prompt(
        "--format", kind, JACKIN_EXEC_BINDINGS="GH_TOKEN,DB_PASS", JACKIN_HOST_BINARIES="gh,psql"
    )
    assert done.returncode == 0, done.stderr
    for word in ("GH_TOKEN, DB_PASS", "gh, psql", "jackin-exec", "jackin_exec", "126", "pending"):
        assert word in done.stdout
    assert "do not send the same command again" in done.stdout


def test_the_formats_differ_in_their_frame() -> None:
    assert block("claude", [], []).startswith("<jackin-exec>\n")
    assert block("claude", [], []).endswith("</jackin-exec>\n")
    assert block("agents", [], []).startswith("## ")
    assert not set(block("plain", [], [])) & set("<#")


def test_where_there_is_nothing_it_says_so() -> None:
    text = prompt().stdout
    assert "none in this capsule" in text
    assert "none listed" in text


def test_every_denial_has_words_for_an_agent() -> None:
    assert {code.value for code in DenialCode} <= set(HINTS)


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    done = prompt("--format", "poem")
    assert done.returncode == 126
    assert "plain, claude, agents" in done.stderr
