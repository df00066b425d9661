"""What every source keeps: exact bytes, clear refusals, a deadline, and no value in any text.

A new source is a short subclass at the end (STYLE "contract").
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackin_broker.bindings import (
    Binding,
    CommandSource,
    EnvSource,
    FileSource,
    KeyringSource,
    OpSource,
    Source,
    ValueSource,
)
from jackin_broker.errors import SourceFault
from jackin_broker.sources.base import VALUE_MAX_BYTES
from jackin_broker.sources.resolver import Resolver
from jackin_broker.vault import Vault
from support.secret_service import SecretService, secret_service
from support.sources import ENOUGH_S, SOON_S, make_resolver, refusal, told, values
from support.vaults import unlocked_vault

NAME = "THE_BINDING"


class SourceContract:
    """The rules. A subclass says how a source comes to hold a value, to lack it, to hang."""

    missing = SourceFault.MISSING

    def hold(self, value: str) -> Source:
        """A source that holds this value."""
        raise AssertionError("a subclass says how")

    def lack(self) -> Source | None:
        """A source that holds none; None for a kind that always does."""
        raise AssertionError("a subclass says how")

    def hang(self) -> Source | None:
        """A source that never answers; None for a kind that always does."""
        return None

    def resolver(self, timeout_s: float = ENOUGH_S) -> Resolver:
        """The resolver that reads it."""
        return make_resolver(dict(os.environ), timeout_s=timeout_s)

    @pytest.mark.parametrize(
        "value",
        ["plain", " spaces ", "two\nlines", "ends in one\n", "-dash", "quotes'\"$`\\", "ümläut 🔑"],
    )
    def test_the_value_comes_out_as_it_is(self, value: str) -> None:
        assert values(self.resolver(), Binding(NAME, self.hold(value))) == [value.encode()]

    def test_a_long_value_comes_out_whole(self) -> None:
        value = secrets.token_hex(VALUE_MAX_BYTES // 2)
        assert values(self.resolver(), Binding(NAME, self.hold(value))) == [value.encode()]

    def test_a_longer_one_is_refused(self) -> None:
        failed = refusal(self.resolver(), Binding(NAME, self.hold("x" * (VALUE_MAX_BYTES + 1))))
        assert failed.fault is SourceFault.FAILED
        assert NAME in str(failed)

    def test_what_is_not_there_is_said_with_what_to_do(self) -> None:
        source = self.lack()
        if source is None:
            return
        failed = refusal(self.resolver(), Binding(NAME, source))
        assert failed.fault is self.missing
        assert NAME in str(failed)
        assert failed.hint

    def test_an_empty_value_is_no_credential(self) -> None:
        failed = refusal(self.resolver(), Binding(NAME, self.hold("")))
        assert failed.fault is SourceFault.FAILED
        assert "empty" in str(failed)

    def test_one_that_never_answers_ends_at_the_deadline(self) -> None:
        source = self.hang()
        if source is None:
            return
        started = time.monotonic()
        failed = refusal(self.resolver(timeout_s=SOON_S), Binding(NAME, source))
        assert failed.fault is SourceFault.TIMED_OUT
        assert NAME in str(failed)
        assert SOON_S <= time.monotonic() - started < ENOUGH_S

    def test_the_value_is_in_no_text(self, caplog: pytest.LogCaptureFixture) -> None:
        """Not when it works, not when another binding fails beside it, not when it is refused."""
        caplog.set_level("DEBUG")
        value = "tok" + secrets.token_hex(12)
        good, bad = Binding(NAME, self.hold(value)), Binding("OTHER", EnvSource("NOT_SET"))
        resolver = self.resolver()
        failed = refusal(resolver, good, bad)
        assert value not in told(failed, caplog)
        assert value not in repr(vars(resolver)) + repr(good)
        long = Binding(NAME, self.hold(value + "x" * VALUE_MAX_BYTES))
        assert value not in told(refusal(self.resolver(), long), caplog)


class TestEnv(SourceContract):
    @pytest.fixture(autouse=True)
    def _environ(self) -> None:
        self.environ: dict[str, str] = {}

    def hold(self, value: str) -> Source:
        self.environ["THE_VARIABLE"] = value
        return EnvSource("THE_VARIABLE")

    def lack(self) -> Source:
        return EnvSource("NOT_THERE")

    def resolver(self, timeout_s: float = ENOUGH_S) -> Resolver:
        return make_resolver(self.environ, timeout_s=timeout_s)


class TestValue(SourceContract):
    def hold(self, value: str) -> Source:
        return ValueSource(value)

    def lack(self) -> None:
        """What is not in the configuration is no binding."""


class TestCommand(SourceContract):
    missing = SourceFault.UNAVAILABLE

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def hold(self, value: str) -> Source:
        file = self.folder / "value"
        file.write_text(f"{value}\n")
        return CommandSource(("cat", str(file)))

    def lack(self) -> Source:
        return CommandSource(("no-such-command-anywhere",))

    def hang(self) -> Source:
        return CommandSource(("sleep", "600"))


class TestFile(SourceContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def hold(self, value: str) -> Source:
        file = self.folder / "value"
        file.write_text(f"{value}\n")
        return FileSource(str(file))

    def lack(self) -> Source:
        return FileSource(str(self.folder / "absent"))


class TestVault(SourceContract):
    @pytest.fixture(autouse=True)
    def _vault(self, tmp_path: Path) -> None:
        self.vault = unlocked_vault(tmp_path)

    def hold(self, value: str) -> Source:
        self.vault.set("service", "name", value)
        return KeyringSource("service", "name")

    def lack(self) -> Source:
        return KeyringSource("service", "absent")

    def resolver(self, timeout_s: float = ENOUGH_S) -> Resolver:
        return make_resolver({}, vault=self.vault, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def service() -> Iterator[SecretService]:
    with secret_service() as running:
        yield running


class TestSecretService(SourceContract):
    @pytest.fixture(autouse=True)
    def _service(self, service: SecretService) -> None:
        self.service = service

    def hold(self, value: str) -> Source:
        self.service.store("service", "name", value)
        return KeyringSource("service", "name")

    def lack(self) -> Source:
        return KeyringSource("service", "absent")

    def resolver(self, timeout_s: float = ENOUGH_S) -> Resolver:
        vault = Vault(Path("/nonexistent/vault.age"))
        return make_resolver(
            self.service.env, keyring="secret-service", vault=vault, timeout_s=timeout_s
        )


# Stands in for 1Password's program, which needs an account. It behaves as that is documented: the
# value and a newline on stdout, errors on stderr with status 1; and it notes when it runs.
_OP = """\
#!{python}
import os, sys, time
SAYS = {{
    "out": "[ERROR] 2026/11/30 10:00:00 You are not currently signed in. Please run `op signin`",
    "no": "[ERROR] 2026/11/30 10:00:00 authorization prompt dismissed, please try again",
    "absent": "[ERROR] 2026/11/30 10:00:00 could not read secret: \\"absent\\" isn't an item",
}}
with open({log!r}, "a") as log:
    log.write("begin\\n")
time.sleep(0.05)
if sys.argv[1:] == ["read", "--account", "work", "--", "op://Vault/Item/field"]:
    sys.stdout.write(open({value!r}).read() + "\\n")
elif sys.argv[-1].endswith("/hang"):
    time.sleep(600)
else:
    said = SAYS.get(sys.argv[-1].split("/")[-1], "[ERROR] it prints what it likes, a value too")
    print(said, "x" * 10_000, file=sys.stderr)
    with open({log!r}, "a") as log:
        log.write("end\\n")
    sys.exit(1)
with open({log!r}, "a") as log:
    log.write("end\\n")
"""


class TestOp(SourceContract):
    @pytest.fixture(autouse=True)
    def _program(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        program = tmp_path / "op"
        self.log = tmp_path / "log"
        program.write_text(
            _OP.format(python=sys.executable, value=str(tmp_path / "value"), log=str(self.log))
        )
        program.chmod(0o700)

    def hold(self, value: str) -> Source:
        (self.folder / "value").write_text(value)
        return OpSource("op://Vault/Item/field", account="work")

    def lack(self) -> Source:
        return OpSource("op://Vault/Item/absent")

    def hang(self) -> Source:
        return OpSource("op://Vault/Item/hang")

    def resolver(self, timeout_s: float = ENOUGH_S) -> Resolver:
        environ = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return make_resolver(environ, timeout_s=timeout_s)

    @pytest.mark.parametrize(
        "ref",
        [
            "",
            "https://Vault/Item/field",
            "op://Vault/Item",
            "op://-v/Item/field",
            "op://a//b",
            "-x",
        ],
    )
    def test_what_is_no_reference_never_reaches_the_program(self, ref: str) -> None:
        failed = refusal(self.resolver(), Binding(NAME, OpSource(ref)))
        assert "not of the form" in str(failed)

    def test_without_the_program_the_answer_names_it(self) -> None:
        resolver = make_resolver({"PATH": "/nonexistent"})
        failed = refusal(resolver, Binding(NAME, self.hold("x")))
        assert failed.fault is SourceFault.UNAVAILABLE
        assert "op was not found" in str(failed)

    @pytest.mark.parametrize(
        ("item", "fault", "words"),
        [
            ("out", SourceFault.LOCKED, "1Password is not signed in"),
            ("no", SourceFault.LOCKED, "nobody confirmed it in 1Password"),
            ("absent", SourceFault.MISSING, "nothing at its reference"),
            ("else", SourceFault.FAILED, "op exited with status 1"),
        ],
    )
    def test_its_usual_errors_are_told_in_words_of_our_own(
        self, caplog: pytest.LogCaptureFixture, item: str, fault: SourceFault, words: str
    ) -> None:
        failed = refusal(self.resolver(), Binding(NAME, OpSource(f"op://Vault/Item/{item}")))
        assert failed.fault is fault
        assert str(failed).endswith(words)
        assert failed.hint
        assert "xxxx" not in told(failed, caplog)

    def test_one_call_is_in_flight_for_an_account(self) -> None:
        """Each asks its own question on the desktop: several would stack their windows."""
        self.hold("value")
        bindings = [Binding(f"N{n}", self.hold("value")) for n in range(4)]
        assert values(self.resolver(), *bindings) == [b"value"] * 4
        assert self.log.read_text().split() == ["begin", "end"] * 4

    def test_an_account_that_could_be_an_option_never_reaches_the_program(self) -> None:
        source = OpSource("op://Vault/Item/field", account="--reveal")
        assert "begins with a dash" in str(refusal(self.resolver(), Binding(NAME, source)))
        assert not self.log.exists()
