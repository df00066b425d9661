"""`config check --explain`: what the configured rules would say of a command, and why.

It works without a broker and runs nothing. The command is looked at as a request would be: the
program on this PATH, the files among its arguments, whether the agent can write the directory.
Grants are no part of it: they live in a running broker (`jackin-broker grants list`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

from .. import identity
from ..config import CapsuleConfig, CapsuleKind, Config
from ..display import show
from ..errors import ConfigError, DenialCode
from ..operands import has_more, reach_of
from ..policy import ApprovedFile, Shape, Verdict, describe
from ..protocol import Outcome, StdinKind
from ..rule_standing import Finding, Standing, explain

_WORDS: Final = {Outcome.ALLOW: "allowed", Outcome.ASK: "asked", Outcome.DENY: "denied"}


def explain_command(
    config: Config, argv: tuple[str, ...], *, capsule: str, cwd: str, want: str, as_json: bool
) -> None:
    """Print what each capsule's rules say of this command.

    Raises: ConfigError for a capsule that is not configured or a directory that is none.
    """
    reports = [
        _report(config, one, argv, cwd=cwd, want=tuple(name for name in want.split(",") if name))
        for one in _capsules(config, capsule)
    ]
    if as_json:
        click.echo(json.dumps(reports, indent=2))
        return
    for report in reports:
        click.echo("\n".join(_lines(report)))


def _capsules(config: Config, name: str) -> list[CapsuleConfig]:
    if not name:
        if not config.capsules:
            raise ConfigError("no capsule is configured", hint="add [capsules.NAME] first")
        return list(config.capsules.values())
    if name not in config.capsules:
        raise ConfigError(
            f"capsules.{name}: is not configured", hint=f"there is: {', '.join(config.capsules)}"
        )
    return [config.capsules[name]]


def _report(
    config: Config,
    capsule: CapsuleConfig,
    argv: tuple[str, ...],
    *,
    cwd: str,
    want: tuple[str, ...],
) -> dict[str, Any]:
    shape = _shape(config, capsule, argv, cwd, want)
    verdict, findings = explain(shape, config.rules, today=datetime.now().astimezone())
    report = _entry(verdict, findings)
    report["capsule"] = capsule.name
    if argv[0] not in capsule.host_binaries:
        report["note"] = f"{argv[0]} is not among host_binaries: on the host it is refused"
        report["code"] = DenialCode.NOT_ALLOWED.value
    return report


def _entry(verdict: Verdict, findings: tuple[Finding, ...]) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "code": verdict.code.value if verdict.code else "",
        "bindings": list(verdict.bindings),
        "note": "",
        "rules": [
            {
                "number": finding.rule.number,
                "rule": describe(finding.rule),
                "standing": finding.standing.value,
                "words": finding.words,
            }
            for finding in findings
        ],
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    outcome = _WORDS[Outcome(report["outcome"])]
    yield f"in capsule {report['capsule']} it is {outcome}: {show(report['reason']).line}"
    if report["bindings"]:
        yield f"  with {', '.join(report['bindings'])}"
    if report["note"]:
        yield f"  ! {show(report['note']).line}"
    others = 0
    for row in report["rules"]:
        if row["standing"] == Standing.OTHER.value:
            others += 1
            continue
        words = f": {show(row['words']).line}" if row["words"] else ""
        yield f"  {show(row['rule']).line} {row['standing']}{words}"
    if others:
        yield f"  {others} more {'rule is' if others == 1 else 'rules are'} about other programs"


def _shape(
    config: Config, capsule: CapsuleConfig, argv: tuple[str, ...], cwd: str, want: tuple[str, ...]
) -> Shape:
    """The request that this command would be, from a directory of the host."""
    raw = tuple(os.fsencode(part) for part in argv)
    try:
        fd = os.open(cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise ConfigError(f"{cwd}: {reason}", hint="name a directory with --cwd") from error
    try:
        roots = _writable_roots(capsule)
        place = (raw[1:], fd, roots)
        files, reach = identity.file_operands(*place), reach_of(*place)
        here = os.path.realpath(cwd)
    finally:
        os.close(fd)
    is_fixed = all(file.sha256 for file in files) and not reach.moving
    return Shape(
        capsule=capsule.name,
        argv=raw,
        cwd=os.fsencode(here),
        is_cwd_writable=any(_is_within(os.fsencode(here), root) for root in roots),
        available=frozenset(config.bindings_of(capsule.name)),
        want=want,
        stdin=StdinKind.NONE,
        has_writable_files=reach.is_writable,
        binary_sha256=_binary_digest(argv[0]),
        files=(
            tuple(ApprovedFile(file.path, file.sha256) for file in files)
            if is_fixed and not has_more(raw[1:], files)
            else None
        ),
    )


def _writable_roots(capsule: CapsuleConfig) -> tuple[bytes, ...]:
    """The host directories that the agent can write, as far as the configuration says."""
    if capsule.kind is CapsuleKind.NONE:
        return (b"/",)
    return tuple(os.fsencode(mount.host) for mount in capsule.mounts if not mount.read_only)


def _is_within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def _binary_digest(name: str) -> str:
    try:
        return identity.digest_of(identity.find_binary(name, os.environ.get("PATH", os.defpath)))
    except ConfigError:
        return ""
