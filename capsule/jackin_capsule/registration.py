"""`jackin-capsule mcp-config`: how an agent's own program is told of the MCP server.

Each known program has its file and its shape; what else is in the file stays as it is, and so does
what somebody added to our entry. It refuses to know what is served. Invariants: a file is replaced
whole or not at all; what cannot be read for certain is not written; a token goes in by its
variable's name, never as a value.
"""

import json
import os
import re

from .tomlmerge import merge_toml, value_of
from .wire import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .tomlmerge import Keys

NAME = "jackin"
CLIENTS = ("claude", "codex", "gemini", "opencode", "vscode", "generic")
# A client may start the relay with an environment of its own making.
_PLACES = ("JACKIN_BROKER_SOCKET", "JACKIN_BROKER_ADDR")
_SECRET_VARIABLES = ("JACKIN_EXEC_TOKEN",)
_OUR_VARIABLES = (*_PLACES, *_SECRET_VARIABLES)
_CODEX_TABLE = ("mcp_servers", NAME)
# How each client writes "the variable of that name"; codex has a list of names instead.
_REFERENCE = {
    "claude": "${%s}",
    "gemini": "${%s}",
    "generic": "${%s}",
    "opencode": "{env:%s}",
    "vscode": "${env:%s}",
}


# Half of a character, as a text that was cut off ends: no file can hold it but escaped.
_LONE = re.compile("[\ud800-\udfff]")


class Options:
    """What to register, and where."""

    def __init__(self) -> None:
        self.client = ""
        self.path = ""
        self.writes = False


def mcp_config(words: "list[str]") -> int:
    """Print or write the registration for `--client NAME [--write] [--file PATH]`.

    Raises: Fault.
    """
    from .main import say

    options = parse(words)
    if not options.writes:
        return say(fresh(options.client))
    path = options.path or place(options.client)
    content = read(path)
    merged = merge(options.client, content, path)
    if merged == content:
        return say(f"{path} has it already\n")
    replace(path, merged)
    return say(f"{path}: wrote the mcp server {NAME}\n")


def parse(words: "list[str]") -> Options:
    """The options.

    Raises: Fault.
    """
    options = Options()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, has_value, value = word.partition("=")
        if word == "--write":
            options.writes = True
        elif name in ("--client", "--file") and (has_value or rest):
            value = value if has_value else rest.pop(0)
            if name == "--client":
                options.client = value
            else:
                options.path = value
        else:
            raise Fault(f"unknown option {word}", "see `jackin-capsule mcp-config --help`")
    if options.client not in CLIENTS:
        raise Fault(
            f"no such client: {options.client or '(none)'}", "one of: " + ", ".join(CLIENTS)
        )
    if options.path and not options.writes:
        raise Fault("--file is for --write", "leave it out to see what would be written")
    return options


def place(client: str) -> str:
    """Where this client reads its servers from.

    Raises: Fault for one without a place of its own.
    """
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    codex = os.environ.get("CODEX_HOME") or os.path.join(home, ".codex")
    places = {
        "claude": os.path.join(home, ".claude.json"),
        "codex": os.path.join(codex, "config.toml"),
        "gemini": os.path.join(home, ".gemini", "settings.json"),
        "opencode": os.path.join(config, "opencode", "opencode.json"),
        "vscode": os.path.join(os.getcwd(), ".vscode", "mcp.json"),
    }
    if client not in places:
        raise Fault("this client has no file that is known", "name it: --write --file PATH")
    return places[client]


def command() -> "list[str]":
    """The relay's own argv: this program, by the path that it was started with."""
    import sys

    own = os.path.abspath(sys.argv[0])
    if os.path.basename(own) != "jackin-capsule":
        own = "/jackin/bin/jackin-capsule"
    return [own, "mcp"]


def environment(client: str) -> "dict[str, str]":
    """The variables that the relay needs and that a client might not pass on."""
    found = {name: os.environ[name] for name in _PLACES if os.environ.get(name)}
    for name in _SECRET_VARIABLES:
        if os.environ.get(name) and client in _REFERENCE:
            found[name] = _REFERENCE[client] % name
    return found


def entry(client: str) -> "tuple[str, dict[str, Any]]":
    """The table that holds servers, and ours in it."""
    program, *args = command()
    env = environment(client)
    if client == "opencode":
        table: dict[str, Any] = {"type": "local", "command": [program, *args], "enabled": True}
        return "mcp", {**table, **({"environment": env} if env else {})}
    table = {"command": program, "args": args, **({"env": env} if env else {})}
    if client in ("claude", "vscode"):
        table = {"type": "stdio", **table}
    return ("servers" if client == "vscode" else "mcpServers"), table


def codex_keys(content: str, path: str) -> "Keys":
    """Ours, as TOML. JSON's strings and lists of strings are TOML's too.

    Raises: Fault.
    """
    program, *args = command()
    keys: Keys = {("command",): json.dumps(program), ("args",): json.dumps(args)}
    env = environment("codex")
    for name in _PLACES:
        keys["env", name] = json.dumps(env[name]) if name in env else None
    passed = [name for name in _SECRET_VARIABLES if os.environ.get(name)]
    if passed:
        found = value_of(content, _CODEX_TABLE, "env_vars", path) or "[]"
        missing = [json.dumps(name) for name in passed if name not in found]
        comma = ", " if found[1:].strip() != "]" and missing else ""
        keys["env_vars",] = f"[{', '.join(missing)}{comma}{found[1:]}"
    return keys


def fresh(client: str) -> str:
    """What a new file would hold."""
    return merge(client, "", "")


def merge(client: str, content: str, path: str) -> str:
    """The file's content with ours in it.

    Raises: Fault when it cannot be read for certain.
    """
    if client == "codex":
        return merge_toml(content, _CODEX_TABLE, codex_keys(content, path), path)
    holder, table = entry(client)
    try:
        found: Any = json.loads(content or "{}")
    except (ValueError, RecursionError) as error:
        raise _not_ours(path, f"is not plain JSON: {error}", client) from error
    if not is_table(found) or not is_table(found.get(holder, {})):
        raise _not_ours(path, f"has something else than a table `{holder}`", client)
    old = found.get(holder, {}).get(NAME, {})
    table = joined(client, old, table, path)
    if old == table:
        return content
    found[holder] = {**found.get(holder, {}), NAME: table}
    try:
        text = json.dumps(found, indent=indent_of(content), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise _not_ours(path, "has a number that JSON cannot hold", client) from error
    return _LONE.sub(lambda half: f"\\u{ord(half[0]):04x}", text) + "\n"


def joined(client: str, old: "Any", ours: "dict[str, Any]", path: str) -> "dict[str, Any]":
    """Our entry with what somebody added to the one that is there: timeouts, variables, a switch.

    Raises: Fault.
    """
    env_name = "environment" if client == "opencode" else "env"
    if not is_table(old) or not is_table(old.get(env_name, {})):
        raise _not_ours(path, f"has something else than a table `{NAME}` with variables", client)
    env = {key: value for key, value in old.get(env_name, {}).items() if key not in _OUR_VARIABLES}
    env.update(ours.get(env_name, {}))
    kept = {key: value for key, value in old.items() if key != env_name}
    table = {**kept, **{key: ours[key] for key in ours if key != "enabled" or key not in kept}}
    table.pop(env_name, None)
    return {**table, env_name: env} if env else table


def is_table(value: object) -> bool:
    """Whether it is a JSON object."""
    return isinstance(value, dict)


def indent_of(content: str) -> "int | str":
    """As the file is indented already; two spaces where it is not."""
    for line in content.splitlines()[1:]:
        blank = line[: len(line) - len(line.lstrip())]
        if blank:
            return "\t" if blank.startswith("\t") else len(blank)
    return 2


def _not_ours(path: str, what: str, client: str) -> Fault:
    return Fault(
        f"{path} {what}",
        f"add it by hand: jackin-capsule mcp-config --client {client} prints it",
    )


def read(path: str) -> str:
    """The file's text, empty where there is none.

    Raises: Fault.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Fault(f"cannot read {path}: {reason}", "name another with --file") from error


def replace(path: str, content: str) -> None:
    """Put the content there at once; a link keeps leading to the file, which keeps its mode.

    Raises: Fault.
    """
    import tempfile

    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    unfinished = ""
    try:
        os.makedirs(folder, exist_ok=True)
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o600
        fd, unfinished = tempfile.mkstemp(prefix=".jackin-", dir=folder)
        with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(unfinished, target)
    except OSError as error:
        if unfinished and os.path.exists(unfinished):
            os.unlink(unfinished)
        raise Fault(f"cannot write {path}: {error.strerror}", "name another with --file") from error
