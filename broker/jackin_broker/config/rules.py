"""`[[rules]]`: each as a `policy.Rule`, its patterns checked.

It refuses to know requests. Whether a rule is wise is for `dangers.py`; here it must mean
something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Final

from ..bindings import Binding
from ..patterns import PatternError, compile_argv, compile_name, literal_of
from ..policy import Action, ApprovedFile, Rule
from ..protocol import StdinKind, Target
from .model import CapsuleConfig
from .places import expand, expand_resolved
from .problems import did_you_mean
from .table import Table, kind_of

_BELOW: Final = "/**"
# What an approval wrote, and what `grants revoke` takes.
RULE_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def read_rules(
    tables: list[Table],
    bindings: Mapping[str, Binding],
    capsules: Mapping[str, CapsuleConfig],
    home: str,
) -> tuple[Rule, ...]:
    """The rules in the file's order, numbered from one."""
    rules: list[Rule] = []
    for number, table in enumerate(tables, start=1):
        rule = _rule(table, number, home)
        _check_bindings(table, rule, bindings, capsules)
        if rule.id and any(rule.id == other.id for other in rules):
            table.add("id", "another rule has it already")
        table.finish()
        rules.append(rule)
    return tuple(rules)


def _rule(table: Table, number: int, home: str) -> Rule:
    if not table.has("action"):
        table.add("action", f"is missing, one of {', '.join(a.value for a in Action)}")
    action = table.choice("action", Action.ASK)
    rule_id = _id(table)
    return Rule(
        action=action,
        argv=_argv(table),
        capsule=table.text("capsule", "*"),
        cwd=_cwd(table, home, is_resolved=bool(rule_id)),
        bindings=table.texts("bindings"),
        target=_target(table),
        stdin=table.choice("stdin", StdinKind.NONE),
        tty=table.flag("tty"),
        trust_cwd=table.flag("trust_cwd"),
        expires=_expires(table),
        number=number,
        id=rule_id,
        binary_sha256=_digest(table, "binary_sha256"),
        stdin_sha256=_digest(table, "stdin_sha256"),
        files=_files(table),
    )


def _id(table: Table) -> str:
    text = table.text("id")
    if text and not RULE_ID.fullmatch(text):
        table.add("id", "expected what an approval wrote: letters, digits and '-'")
    return text


def _digest(table: Table, key: str) -> str:
    text = table.text(key)
    if text and not _SHA256.fullmatch(text):
        table.add(key, "expected a SHA-256, 64 hexadecimal digits")
    return text


def _files(table: Table) -> tuple[ApprovedFile, ...] | None:
    """The files that may be among the arguments; None where the key is not there."""
    if not table.has("files"):
        return None
    files: list[ApprovedFile] = []
    for item in table.tables("files"):
        path, digest = item.text("path"), _digest(item, "sha256")
        item.finish()
        if not path or not digest:
            item.add("path" if not path else "sha256", "is missing")
            continue
        try:
            files.append(ApprovedFile(literal_of(path), digest))
        except PatternError as error:
            item.add("path", str(error))
    return tuple(files)


def _argv(table: Table) -> tuple[str, ...]:
    if not table.has("argv"):
        table.add("argv", "is missing, name the command, one text an argument")
        return ()
    argv = table.texts("argv")
    try:
        compile_argv(argv)
    except PatternError as error:
        place = f"argv[{error.index + 1}]" if argv else "argv"
        table.add(place, str(error))
    return argv


def _cwd(table: Table, home: str, *, is_resolved: bool) -> str:
    """The directory. `is_resolved`: an approval named it, and later links in it do not count."""
    text = table.text("cwd")
    if not text:
        return ""
    below = _BELOW if text.endswith(_BELOW) else ""
    follow = expand if is_resolved else expand_resolved
    path = follow(text.removesuffix(_BELOW) or "/", home)
    if path is None:
        table.add("cwd", "expected an absolute directory of the host, or one under ~/")
        return ""
    if "*" in path:
        table.add("cwd", "has no wildcards but /** at its end")
    return ("" if below and path == "/" else path) + below


def _target(table: Table) -> Target | None:
    if not table.has("target"):
        return None
    value = table.raw("target")
    words = [target.value for target in Target]
    if value not in words:
        table.add("target", f"expected one of {', '.join(words)}")
        return None
    return Target(value)


def _expires(table: Table) -> date | datetime | None:
    value = table.raw("expires")
    if value is None or isinstance(value, date):
        return value
    table.add(
        "expires", f"expected a date as in 2027-06-30, without quotes, found {kind_of(value)}"
    )
    return None


def _check_bindings(
    table: Table,
    rule: Rule,
    bindings: Mapping[str, Binding],
    capsules: Mapping[str, CapsuleConfig],
) -> None:
    """Each binding must exist, on demand, in a capsule that the rule names."""
    glob = compile_name(rule.capsule)
    known = dict(bindings)
    for capsule in capsules.values():
        if glob.matches(capsule.name.encode(), with_options=True):
            known.update(capsule.env)
    for place, name in enumerate(rule.bindings, start=1):
        if name not in known:
            table.add(f"bindings[{place}]", f"{name!r} is in no [env]{did_you_mean(name, known)}")
        elif not known[name].on_demand:
            table.add(f"bindings[{place}]", f"{name!r} is not on demand: the agent has it already")
        elif name in rule.bindings[: place - 1]:
            table.add(f"bindings[{place}]", f"{name!r} is listed twice")
