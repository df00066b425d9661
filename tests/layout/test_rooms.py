"""Who may import what: DESIGN §3's rooms, as an AST walk of imports against a table."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.real import START_LIMIT_S
from support.source_tree import REPOSITORY, ROOMS, Module, modules

# Room → what it may import besides the standard library and its own package.
LIBRARIES: Final[dict[str, frozenset[str]]] = {
    # One C module under two names; the interpreter that runs the tests knows one of them.
    "capsule": frozenset({"_sha2", "_sha256"}),
    "broker": frozenset(
        {
            "click",  # the command line
            "jeepney",  # what keyring's Secret Service speaks; its errors are translated
            "keyring",  # the operating system's keyrings
            "msgspec",  # typed decoding
            "pexpect",  # recognising prompts
            "platformdirs",  # where things live
            "pyrage",  # the vault
            "starlette",  # the HTTP doorway's routes
            "h11",  # what uvicorn speaks HTTP with: the pieces of a body are counted there
            "uvicorn",  # the HTTP doorway's server, embedded
            "secretstorage",  # under keyring's Secret Service; its errors are translated
            "tomlkit",  # edits that keep comments
        }
    ),
    "picker": frozenset(
        {
            "msgspec",  # the structs of what is shown
            "textual",  # the screens
            "rich",  # textual's own way to measure and style text
        }
    ),
    "mcp": frozenset(
        {
            "mcp",  # the official SDK
            "mcp_types",  # its messages, a package beside it since 2.x
        }
    ),
}
# Room → the modules of jackin_broker that it may import, each with its reason.
OF_THE_BROKER: Final[dict[str, frozenset[str]]] = {
    "capsule": frozenset(),
    "picker": frozenset(
        {
            "jackin_broker.protocol",  # the words of a request: stdin kinds, targets, texts
            "jackin_broker.operator_protocol",  # what is shown, and the decision
            "jackin_broker.display",  # the one sanitiser
            "jackin_broker.operator_client",  # the way to the broker
            "jackin_broker.errors",  # what operator_client raises
        }
    ),
    "mcp": frozenset({"jackin_broker.protocol", "jackin_broker.client", "jackin_broker.errors"}),
}
# The oldest Python that a capsule may have, and what the standard library got since.
CAPSULE_SYNTAX: Final = (3, 9)
YOUNGER_THAN_CAPSULE: Final = frozenset(
    {"tomllib", "compression", "annotationlib", "concurrent.interpreters"}
)
# Modules that hold or resolve values: the picker's process must never have loaded one.
HOLDS_VALUES: Final = (
    "keyring",
    "pyrage",
    "jackin_broker.deliveries",
    "jackin_broker.runner",
    "jackin_broker.session",
    "jackin_broker.sources",
    "jackin_broker.vault",
)


def is_allowed(module: Module, room: str, name: str) -> bool:
    head = name.split(".")[0]
    if head in sys.stdlib_module_names or head == ROOMS[room]:
        return True
    if head in ROOMS.values():
        return name in OF_THE_BROKER.get(room, frozenset())
    return head in LIBRARIES[room]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_row_allows(room: str) -> None:
    wrong = [
        f"{module.where}:{found.line} imports {found.name}"
        for module in modules(room)
        for found in module.imports()
        if not is_allowed(module, room, found.name)
    ]
    assert wrong == []


@pytest.mark.parametrize("module", modules("capsule"), ids=lambda module: module.where)
def test_the_capsule_speaks_the_oldest_python_it_may_meet(module: Module) -> None:
    ast.parse(module.text, feature_version=CAPSULE_SYNTAX)
    young = [found for found in module.imports() if found.name in YOUNGER_THAN_CAPSULE]
    assert young == []
    future = any(found.name == "__future__" for found in module.imports())
    assert future or not has_unions(module), f"{module.where}: `X | Y` is evaluated before 3.10"


def has_unions(module: Module) -> bool:
    """Whether an annotation holds a `|`, which old interpreters cannot evaluate."""
    places = [
        place
        for function in module.functions()
        for place in (
            function.returns,
            *(arg.annotation for arg in ast.walk(function.args) if isinstance(arg, ast.arg)),
        )
    ]
    classes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    bodies = [module.tree.body, *(one.body for one in classes)]
    places += [n.annotation for body in bodies for n in body if isinstance(n, ast.AnnAssign)]
    return any(isinstance(node, ast.BitOr) for place in places if place for node in ast.walk(place))


def loaded_after(statement: str) -> set[str]:
    source = f"import sys; {statement}; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def below(names: set[str], tops: tuple[str, ...]) -> set[str]:
    return {
        name for name in names if any(name == top or name.startswith(f"{top}.") for top in tops)
    }


def test_nothing_that_holds_a_value_is_ever_loaded_into_the_picker() -> None:
    assert below(loaded_after("import jackin_picker.main"), HOLDS_VALUES) == set()


def test_the_broker_loads_neither_screens_nor_the_mcp_sdk() -> None:
    everything = "; ".join(
        f"import {module.name}" for module in modules("broker") if module.path.name != "__main__.py"
    )
    assert below(loaded_after(everything), ("textual", "rich", "mcp", "jackin_picker")) == set()


def test_the_shim_loads_nothing_from_outside_the_standard_library() -> None:
    room = REPOSITORY / "capsule"
    source = (
        f"import sys; sys.path.insert(0, {str(room)!r}); import jackin_capsule.shim; "
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    heads = {name.split(".")[0] for name in done.stdout.split()}
    assert heads - sys.stdlib_module_names - {"jackin_capsule", "__main__"} == set()


def test_no_file_of_ours_takes_the_name_of_the_mcp_sdk() -> None:
    assert not (REPOSITORY / "mcp" / "__init__.py").exists()
    assert not (REPOSITORY / "tests" / "mcp").exists()


def test_the_folder_mcp_never_hides_an_installed_sdk(tmp_path: Path) -> None:
    """A regular package wins over our source root, wherever it stands on the path."""
    sdk = tmp_path / "mcp" / "__init__.py"
    sdk.parent.mkdir()
    sdk.write_text("")
    for path in (f"{REPOSITORY}:{tmp_path}", f"{tmp_path}:{REPOSITORY}"):
        done = subprocess.run(
            [sys.executable, "-S", "-c", "import mcp; print(mcp.__file__)"],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
        )
        assert done.stdout.strip() == str(sdk), done.stderr


def test_mcp_is_the_official_sdk_where_it_is_installed() -> None:
    try:
        sdk = importlib.metadata.distribution("mcp")
    except importlib.metadata.PackageNotFoundError:
        return  # the test above holds the rule without it
    spec = importlib.util.find_spec("mcp")
    assert spec is not None
    assert spec.origin == str(sdk.locate_file("mcp/__init__.py"))
