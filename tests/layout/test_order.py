"""Inside the broker: inner files never import outer ones, and the pure ones do no I/O (DESIGN §3).

The table goes from the inside out. A module may import its own layer and those before it, and no
circle of imports exists when it runs. A new module fails here until the table knows its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

import pytest

from support.source_tree import Module, modules

PACKAGE: Final = "jackin_broker"

# From the inside out; a package's name stands for everything in it.
LAYERS: Final[tuple[tuple[str, ...], ...]] = (
    # What every other file may know.
    ("errors",),
    ("bindings", "lookalikes", "patterns", "rate", "texts"),
    ("protocol",),
    ("mcp_hosting.messages",),
    ("operator_views",),
    ("operator_calls",),
    ("pace",),
    ("frames", "bridge.handshake", "init_protocol", "operator_protocol", "display", "policy"),
    ("grants.ledger", "rule_standing"),
    ("desk", "redact", "push_queue", "precedents", "history"),
    ("guessing", "live_output"),
    # The operating system, without a word of ours.
    ("age", "atomic", "engines", "hardening", "orphans", "processes", "trust"),
    # What is configured and where things live.
    ("config", "migrations", "paths", "logfile", "bridge.tokens"),
    ("grants.offers",),
    # Who asks, and what would run.
    ("identity", "mountwalk", "operands", "workdir"),
    ("capsules",),
    ("peer", "adoption"),
    # Where values come from, how they are given, how a command runs.
    ("vault", "passphrase", "vault_opener", "sources"),
    ("deliveries", "masking"),
    ("runner",),
    ("launching",),
    # One request, start to end.
    ("grants.book",),
    ("grants.views",),
    ("audit_files",),
    ("audit_writer",),
    ("audit", "approvals", "connection"),
    ("trail", "services"),
    ("plan",),
    ("inside",),
    ("views", "grants.basis"),
    ("intake", "output", "examine"),
    ("execution",),
    ("session",),
    # The doorways.
    ("operator_client", "client"),
    ("mcp_hosting.confined",),
    ("mcp_hosting.process",),
    ("mcp_hosting.host",),
    ("mcp_hosting",),
    ("bridge.http_hosts", "bridge.http_channel"),
    ("bridge.http_exec", "bridge.http_plain", "bridge.http_answers", "bridge.http_stream"),
    ("grants.granting",),
    ("grants",),
    ("operator_desk",),
    ("doorway", "operator_server"),
    ("bridge.tcp",),
    ("bridge.http_server",),
    ("bridge.http_doorway",),
    ("doorways",),
    ("bridge.address",),
    ("bridge.bridges",),
    ("bridge",),
    ("capsule_status",),
    ("doors",),
    # Around it.
    ("links", "link_folder", "launch"),
    ("contract_words", "contract"),
    ("findings",),
    ("doctor_bridge",),
    ("one_broker",),
    ("notifier", "operator_tmux"),
    ("attention",),
    ("doctor", "daemon"),
    ("cli",),
    ("__main__",),
)
PURE: Final = (
    "errors",
    "protocol",
    "mcp_hosting.messages",
    "operator_protocol",
    "operator_calls",
    "operator_views",
    "frames",
    "pace",
    "bridge.handshake",
    "init_protocol",
    "bridge.http_hosts",
    "guessing",
    "display",
    "lookalikes",
    "bindings",
    "patterns",
    "policy",
    "grants.ledger",
    "desk",
    "history",
    "live_output",
    "precedents",
    "push_queue",
    "rate",
    "redact",
    "runner.flood",
    "texts",
)
# What reads or writes the world, or knows what time it is.
IMPURE_MODULES: Final = frozenset(
    {
        "asyncio",
        "fcntl",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
# What a pure file takes from one of them all the same, and why it is no I/O.
EXCEPTIONS: Final = {
    ("desk", "secrets"): "ids that nobody guesses, digests compared in constant time",
    ("display", "sys"): "maxsize, a number",
    ("redact.forms", "urllib"): "quoting, a function of text",
    ("redact.values", "urllib"): "quoting, a function of text",
}
IMPURE_CALLS: Final = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
CLOCK_METHODS: Final = frozenset({"now", "today", "utcnow", "fromtimestamp"})

BROKER: Final = modules("broker")


def short(name: str) -> str:
    """The module's name below the package: `redact.stream` for its redactor."""
    return name.removeprefix(PACKAGE).removeprefix(".")


def is_within(name: str, entry: str) -> bool:
    return f"{name}.".startswith(f"{entry}.")


def layer_of(name: str) -> int | None:
    """The number of the layer that names this module; the package itself is innermost."""
    if name == "":
        return -1
    for number, entries in enumerate(LAYERS):
        if any(is_within(name, entry) for entry in entries):
            return number
    return None


def ours(module: Module, *, for_types: bool = True) -> Iterator[tuple[str, int]]:
    """What a module imports of this package, and in which line."""
    for found in module.imports():
        if found.is_for_types and not for_types:
            continue
        if is_within(found.name, PACKAGE) and found.name != module.name:
            yield short(found.name), found.line


def test_every_module_has_a_place_in_the_table() -> None:
    homeless = [module.where for module in BROKER if layer_of(short(module.name)) is None]
    assert homeless == []


def test_inner_files_never_import_outer_ones() -> None:
    wrong = [
        f"{module.where}:{line} imports {name}"
        for module in BROKER
        for name, line in ours(module)
        if (layer_of(name) or 0) > (layer_of(short(module.name)) or 0)
    ]
    assert wrong == []


def test_no_circle_of_imports_exists() -> None:
    """A package and the modules in it count as one way: a module may import its own package."""
    graph = {
        short(module.name): {
            name
            for name, _ in ours(module, for_types=False)
            if not is_within(short(module.name), name)
        }
        for module in BROKER
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


def impurities(module: Module) -> Iterator[str]:
    for found in module.imports():
        head = found.name.split(".")[0]
        if head in IMPURE_MODULES and (short(module.name), head) not in EXCEPTIONS:
            yield f"{module.where}:{found.line} imports {found.name}"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
            yield f"{module.where}:{node.lineno} calls {called.id}"
        if isinstance(called, ast.Attribute) and called.attr in CLOCK_METHODS:
            yield f"{module.where}:{node.lineno} looks at the clock"


def test_the_pure_files_do_no_io() -> None:
    pure = [m for m in BROKER if any(is_within(short(m.name), entry) for entry in PURE)]
    assert [found for module in pure for found in impurities(module)] == []


def test_the_pure_files_import_only_pure_ones() -> None:
    wrong = [
        f"{module.where}:{line} imports {name}"
        for module in BROKER
        if any(is_within(short(module.name), entry) for entry in PURE)
        for name, line in ours(module)
        if name and not any(is_within(name, entry) for entry in PURE)
    ]
    assert wrong == []
