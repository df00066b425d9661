"""The daemon: wiring, start, stop, reload.

It refuses to know requests: sessions serve them. Invariants: one broker a place, by a lock; no
credential is resolved before the record can be written; a configuration that is wrong keeps the
old one in force; on the way out every session gets its last word.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from . import __version__, doorways, identity, vault_opener
from . import config as configuration
from . import operator_protocol as op
from . import paths as places
from .approvals import Approvals
from .attention import Attention
from .audit import Audit
from .bridge.bridges import Bridges
from .capsule_status import capsule_status, check_can_be_launched
from .capsules import CapsuleRegistry, returning
from .config import Config
from .deliveries import Scratch, scratch_root
from .desk import Desk
from .doors import Doors
from .errors import ConfigError, DenialCode, JackinError, Refusal
from .grants.book import GrantBook
from .grants.granting import Granting
from .guessing import WARNING
from .hardening import allow_many_descriptors, forbid_dumps
from .launching import capsule_ready, entry_variables
from .logfile import open_log
from .masking import check_redactable
from .mcp_hosting.host import McpHost
from .one_broker import take_lock
from .operator_server import OperatorServer
from .orphans import reap_orphans
from .passphrase import from_file
from .protocol import EndedBy
from .runner import host
from .runner.tree import become_subreaper
from .services import Services, desk_limits, waits_without_operator
from .sources.resolver import Resolver, consumed_variables
from .trust import ensure_private_dir
from .vault import Vault

_log = logging.getLogger("jackin_broker")

# The longest grace of a command, its drain and the last message; then the broker ends anyway.
STOP_LIMIT_S: Final = 20.0


async def run(environ: Mapping[str, str], *, announce: Callable[[str], None]) -> None:
    """Serve until stopped.

    Raises: ConfigError when it cannot start; JackinError when another broker runs.
    """
    forbid_dumps()
    become_subreaper()
    allow_many_descriptors()
    daemon = Daemon(environ)
    reaping = asyncio.create_task(reap_orphans(), name="orphans")
    try:
        await daemon.start()
        announce(f"jackin-broker {__version__} serves {daemon.paths.operator_socket}")
        for notice in daemon.notices():
            announce(f"notice: {notice}")
        await daemon.stopped.wait()
    finally:
        reaping.cancel()
        await daemon.close()


class Daemon:
    """One running broker; the operator server's `Steward`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        private = places.resolve(self._environ)
        self._lock = take_lock(private.lock_file)
        config = configuration.load(private.config_file)
        self.paths: Final = places.resolve(self._environ, config.broker.runtime_dir)
        self.stopped: Final = asyncio.Event()
        self._started_at = time.monotonic()
        self._log_handler = open_log(self.paths.log_file)
        self._registry = CapsuleRegistry()
        self._server: OperatorServer | None = None
        self._vault = Vault(self.paths.vault_file)
        desk = Desk(desk_limits(config))
        approvals = Approvals(desk, wait_without_operator=waits_without_operator(config))
        audit = Audit(self.paths.audit_file, keep_days=config.broker.audit_days)
        self._services = Services(
            config,
            approvals,
            audit,
            self._make_resolver(config),
            GrantBook(self.paths.state_dir / "grants.json", is_kept=config.broker.keep_grants),
            hidden=tuple(str(root) for root in self.paths.trust_roots),
            environ=self._environ,
            scratch=Scratch(scratch_root(self.paths.private_dir)),
        )
        self._attention = Attention(approvals, self.paths.operator_socket, self._environ)
        self._mcp = McpHost(self._services)
        self._bridges = Bridges(self._services, self.paths, self._mcp)
        self._doors = Doors(self._services, self._registry, self.paths, self._mcp)
        self._reloads: set[asyncio.Task[None]] = set()

    # --- start and stop -----------------------------------------------------------------

    async def start(self) -> None:
        """Open every doorway.

        Raises: ConfigError, JackinError.
        """
        self._check(self._services.config)
        passphrase = from_file(self._environ)
        if passphrase is not None and self._vault.exists:
            await self.unlock_vault(passphrase)
        self._services.scratch.sweep()
        host.warm_up(self._services.scratch.prefix)
        await self._services.audit.record("broker_started", pid=os.getpid(), version=__version__)
        self._apply(self._services.config)
        ensure_private_dir(self.paths.private_dir)
        listener = doorways.listen_at(self.paths.operator_socket)
        granting = Granting(
            self._services, self.paths.config_file, self.paths.state_dir / "config.lock"
        )
        self._server = OperatorServer(listener, self._services, granting, self, os.getpid())
        await self._server.open()
        self._attention.follow(self._services.config)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_on_signal)
        _log.info("started, pid %d", os.getpid())

    async def close(self) -> None:
        """End what runs, deny what waits, take the sockets away."""
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await asyncio.gather(self._doors.close(), self._bridges.close())
        except TimeoutError:
            _log.error("not every session ended within %g s", STOP_LIMIT_S)
        except Exception:  # whatever it was, what runs is ended below
            _log.exception("not every session was ended well")
        self._doors.unlink()
        if self._server is not None:
            self.paths.operator_socket.unlink(missing_ok=True)
            await self._server.close("the broker stopped")
        await self._attention.close()
        await self._services.resolver.close()
        await self._services.grants.close()
        await host.shut_down()
        try:
            await self._services.audit.record("broker_stopped", pid=os.getpid())
        except Refusal:
            _log.exception("the stop is not on record")
        self._services.audit.close()
        _log.info("stopped")
        logging.getLogger().removeHandler(self._log_handler)
        self._log_handler.close()
        os.close(self._lock)

    # --- Steward ------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin to end."""
        self.stopped.set()

    async def status(self, seq: int, *, check_keyring: bool = False) -> op.StatusReport:
        """What is up."""
        resolver, hint = self._services.resolver, ""
        try:
            found = await (resolver.check_keyring() if check_keyring else resolver.keyring())
            keyring = str(found)
        except JackinError as error:
            keyring, hint = str(error), error.hint
        desk = self._services.approvals.desk
        return op.StatusReport(
            seq,
            pid=os.getpid(),
            version=__version__,
            uptime_s=round(time.monotonic() - self._started_at, 1),
            operators=desk.operators,
            waiting=len(desk.waiting()),
            running=len(desk.running()),
            keyring=keyring,
            vault=self._vault_state(),
            capsules=tuple(
                capsule_status(capsule, self.paths, self._bridges.get(capsule.name))
                for capsule in self._registry
            ),
            notices=self.notices(),
            keyring_hint=hint,
            can_pop_up=await self._attention.can_reach(),
        )

    def notices(self) -> tuple[str, ...]:
        """What an operator should know of this broker."""
        config = self._services.config
        lines = [
            f"capsule {capsule.name} has no boundary (kind none): the agent can approve itself"
            for capsule in self._registry
            if not capsule.has_boundary
        ]
        lines += [f"{name}: {WARNING}" for name in sorted(self._services.suspicion.suspended)]
        lines += (*self._bridges.notices(), *self._attention.notices())
        if config.is_missing:
            lines.append(f"there is no configuration at {self.paths.config_file}")
        return tuple(lines)

    def kill(self, request_id: str) -> None:
        """End a running command.

        Raises: Refusal when nothing of that id runs.
        """
        running = self._services.running.get(request_id)
        if running is None:
            raise Refusal(DenialCode.BAD_REQUEST, "nothing of that id runs")
        running.end(EndedBy.OPERATOR)

    async def reload(self) -> tuple[str, ...]:
        """Take the configuration file as it is now; what changed, in words.

        Raises: ConfigError; the old configuration is then still in force.
        """
        config = configuration.load(self.paths.config_file)
        self._check(config)
        notes = self._apply(config)
        self._services.follow(config)
        self._attention.follow(config)
        former, self._services.resolver = self._services.resolver, self._make_resolver(config)
        await former.close()
        self._mcp.refresh()
        await self._services.audit.record("broker_reloaded", pid=os.getpid())
        return notes

    async def unlock_vault(self, passphrase: str) -> None:
        """Unlock the vault for this broker's life; off the loop, it takes about a second."""
        await vault_opener.unlock(self._vault, passphrase)

    async def check_credential(self, name: str, capsule: str) -> None:
        """Resolve a binding once, and drop the value.

        Raises: JackinError that says what is wrong.
        """
        config = self._services.config
        binding = config.entries_of(capsule).get(name)
        if binding is None:
            raise ConfigError(
                f"env.{name}: the broker has no such binding yet", hint="jackin-broker reload"
            )
        credentials = await self._services.resolver.resolve([binding])
        try:
            if binding.on_demand:  # the others are the agent's own
                check_redactable(credentials, self._services.unredactable)
        finally:
            for credential in credentials:
                credential.forget()

    async def open_capsule(self, call: op.OpenCapsule) -> tuple[op.CapsuleReady, str]:
        """Hold a capsule for a launch."""
        with returning(self._registry.get(call.name) if call.again else None):
            return await self._open_capsule(call)

    async def _open_capsule(self, call: op.OpenCapsule) -> tuple[op.CapsuleReady, str]:
        mounts = tuple(
            configuration.Mount(mount.capsule, mount.host, mount.read_only) for mount in call.mounts
        )
        capsule = self._registry.open(call.name, kind=call.kind, uids=call.uids, mounts=mounts)
        try:
            check_can_be_launched(capsule)
            configuration.check_mounts(capsule.mounts, self.paths.trust_roots)
            configuration.check_binaries(capsule.mounts, capsule.binaries.values())
            doorways.admit(capsule.name, capsule.uids, self.paths)
            if not call.again:
                self._bridges.renew(capsule)
            ready = await capsule_ready(
                call.seq,
                capsule,
                self._services.config,
                self._services.resolver,
                self.paths,
                self._bridges.environment(capsule.name),
                again=call.again,
            )
        except BaseException:
            self._registry.close(capsule.name, capsule.session_id)
            raise
        capsule.is_again = call.again
        return ready, capsule.session_id

    def record_init(self, name: str, pid: int, session_id: str, container: str) -> None:
        """Put a capsule's PID 1 on record."""
        capsule = self._registry.get(name)
        with returning(capsule if capsule is not None and capsule.is_again else None):
            self._registry.record_init(name, pid, session_id, container)

    def close_capsule(self, name: str, session_id: str) -> None:
        """A launch ended, with its token and its grants; not where the broker ends first."""
        capsule = self._registry.get(name)
        life = capsule.life if capsule is not None else ""
        if self._registry.close(name, session_id) and not self.stopped.is_set():
            self._services.grants.end_session(name, life)
            self._bridges.revoke(name)

    async def capsule_env(self, call: op.CapsuleEnv) -> op.CapsuleVariables:
        """The variables for an entry that is no launch."""
        capsule = self._registry.named(call.name)
        if call.renew or self._bridges.is_locked(capsule.name):
            self._bridges.renew(capsule)
        env = await entry_variables(
            capsule,
            self._services.config,
            self._services.resolver,
            self._bridges.environment(capsule.name),
            with_values=call.values,
        )
        return op.CapsuleVariables(call.seq, capsule.name, env)

    def revoke_token(self, name: str) -> None:
        """A token opens nothing any more."""
        self._bridges.revoke(self._registry.named(name).name)

    # --- configuration ------------------------------------------------------------------

    def _check(self, config: Config) -> None:
        """Raise ConfigError for what only this machine can tell is wrong."""
        for capsule in config.capsules.values():
            configuration.check_mounts(capsule.mounts, self.paths.trust_roots)
            is_construct = "construct" in capsule.compat
            configuration.run_limit_s(config.limits, self._environ, is_construct=is_construct)

    def _pin(self, config: Config) -> dict[str, dict[str, identity.PinnedBinary]]:
        """Every listed binary, found and pinned, by capsule.

        Raises: ConfigError that names one which is missing, or which the agent could replace.
        """
        search_path = self._environ.get("PATH", os.defpath)
        pins: dict[str, dict[str, identity.PinnedBinary]] = {}
        for name, capsule in config.capsules.items():
            found = {
                binary: identity.find_binary(binary, search_path)
                for binary in capsule.host_binaries
            }
            configuration.check_binaries(capsule.mounts, found.values())
            pins[name] = found
        return pins

    def _apply(self, config: Config) -> tuple[str, ...]:
        """Pin the binaries and follow with the doorways; what changed, in words.

        Raises: ConfigError; then nothing was changed.
        """
        binaries = self._pin(config)
        fresh = self._doors.prepare(config.capsules)
        change = self._registry.configure(config.capsules, binaries)
        self._doors.follow(fresh)
        self._bridges.follow(self._registry)
        return (
            *(f"capsule {capsule.name} added" for capsule in change.added),
            *(f"capsule {capsule.name} changed" for capsule in change.changed),
            *(f"capsule {one.name} removed; what runs in it goes on" for one in change.removed),
        )

    def _reload_on_signal(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload_logged())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload_logged(self) -> None:
        try:
            await self.reload()
        except JackinError as error:
            _log.error("not reloaded: %s", error)
        except Exception:  # nobody waits for this; the log is where it is looked for
            _log.exception("not reloaded")

    def _make_resolver(self, config: Config) -> Resolver:
        return Resolver(
            environ=self._environ,
            keyring_kind=config.broker.keyring.value,
            vault=self._vault,
            timeout_s=config.limits.source_s,
            consumed=consumed_variables(config.all_bindings()),
        )

    def _vault_state(self) -> str:
        if not self._vault.exists:
            return "none"
        return "unlocked" if self._vault.is_unlocked else "locked"
