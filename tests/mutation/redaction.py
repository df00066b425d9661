"""Does a test fail when the redactor is broken? One small change at a time.

    nice python tests/mutation/redaction.py [MODULE …] [--state FILE] [--every N] [--again]

For each change (`support/mutants.py`) of `jackin_broker/redact/` the redactor's tests run in a
fork of a process that has everything else imported, the quick ones first, until one fails. What no
test notices must be explained in `survivors.toml`; one that is not, and an explanation that fits
no survivor, are failures. `--state` remembers what was noticed, so that a run can be interrupted
and goes on where it was; `--again` tries the survivors in it once more. A script, run by hand: it
takes half an hour.

Own code, because mutmut 3.8 changes nothing outside function bodies and in decorated functions
(here that is every limit, table, pattern and property), wants the package under `src/`, and knows
no list of explained survivors; cosmic-ray starts an interpreter and edits the source for each one.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import resource
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "broker"), str(ROOT / "tests")]

import hypothesis  # noqa: E402 - found by the line above
import pytest  # noqa: E402 - as above

from support.mutants import Mutant, mutants_of  # noqa: E402 - as above

REDACT: Final = ROOT / "broker" / "jackin_broker" / "redact"
PACKAGE: Final = "jackin_broker.redact"
SURVIVORS: Final = Path(__file__).with_name("survivors.toml")
TESTS: Final = (
    "tests/unit/test_redact_edges.py",
    "tests/unit/test_redact_bounds.py",
    "tests/unit/test_redact_stream.py",
    "tests/unit/test_redact_values.py",
    "tests/vectors/test_redaction_corpus.py",
    "tests/unit/test_redact_merged.py",
    "tests/unit/test_redact_guessing.py",
    "tests/properties/test_redaction_stream.py",
    "tests/unit/test_redact_forms.py",
)
# Of a module's mutants most fail here, so these come first.
FIRST: Final = {
    "budget": "tests/unit/test_redact_guessing.py",
    "forms": "tests/unit/test_redact_forms.py",
    "marker": "tests/unit/test_redact_stream.py",
    "merged": "tests/unit/test_redact_merged.py",
    "stream": "tests/unit/test_redact_stream.py",
    "values": "tests/unit/test_redact_values.py",
    "words": "tests/unit/test_redact_values.py",
}
# The others take longer to load than most mutants live.
PLUGINS: Final = ("_hypothesis_pytestplugin", "pytest_timeout")
OPTIONS: Final = (
    "-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--hypothesis-profile=mutation",
    "--deselect", "tests/unit/test_redact_values.py::"
    "test_a_key_file_of_thousands_of_lines_is_made_into_needles_in_bounded_time",  # longest of all
    *(option for plugin in PLUGINS for option in ("-p", plugin)),
)  # fmt: skip
# Of the examples of a property: it is the last resort for a change that no other test notices.
PROPERTY_SHARE: Final = "0.2"
# All tests take nine seconds of it, on a busy machine twice that. A change that makes a loop
# endless ends here, and is noticed.
PROCESSOR_S: Final = 30
# So is one that makes a loop eat memory.
MEMORY_BYTES: Final = 2 << 30


class Shadow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        self.name, self.mutant = name, mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        code = compile(self.mutant.tree, self.name, "exec")
        exec(code, module.__dict__)  # noqa: S102 - our own source


def in_order(name: str) -> list[str]:
    """All tests, those of this module first."""
    first = FIRST.get(name.rpartition(".")[2])
    return sorted(TESTS, key=lambda path: path != first)


def is_noticed(name: str, mutant: Mutant | None) -> bool:
    """True if a test fails with this mutant in place of the module."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        if mutant is not None:
            sys.meta_path.insert(0, Shadow(name, mutant))
        is_green = False
        try:
            is_green = pytest.main([*OPTIONS, *in_order(name)]) == 0
        finally:
            os._exit(0 if is_green else 1)
    return os.waitpid(child, 0)[1] != 0


@dataclass
class Explained:
    """A line of `survivors.toml`: where `line` holds this text, and `what` agrees if given."""

    module: str
    line: str
    reason: str
    what: str = ""
    uses: int = field(default=0, init=False)

    def fits(self, module: str, mutant: Mutant) -> bool:
        return module == self.module and self.line in mutant.line and self.what in ("", mutant.what)


def load_explained() -> list[Explained]:
    """What need not be noticed, each with its reason."""
    raw: list[dict[str, Any]] = tomllib.loads(SURVIVORS.read_text())["survivor"]
    return [Explained(**entry) for entry in raw]


class State:
    """What was found before, by module source, place and change. Appended to, never rewritten."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._noticed: dict[str, bool] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._noticed[entry["key"]] = entry["noticed"]

    def get(self, key: str) -> bool | None:
        return self._noticed.get(key)

    def put(self, key: str, text: str, *, noticed: bool) -> None:
        self._noticed[key] = noticed
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps({"key": key, "noticed": noticed, "text": text}) + "\n")


def placed(names: Sequence[str]) -> Iterator[tuple[str, str, Mutant]]:
    """Each mutant with its module and a key that changes with the module's source."""
    for name in names:
        source = (REDACT / f"{name}.py").read_text()
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        seen: Counter[str] = Counter()
        for mutant in mutants_of(source):
            key = f"{name} {digest} {mutant.line_number} {mutant.what}"
            yield name, f"{key} {seen[key]}", mutant
            seen[key] += 1


def prepare() -> None:
    """Import what no mutant touches, once for all."""
    os.chdir(ROOT)
    os.environ["JACKIN_LONG_PROPERTIES"] = PROPERTY_SHARE
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in (*PLUGINS, "support.real", "jackin_broker.bindings"):
        importlib.import_module(name)
    # a failure is enough: the smallest example takes as long again as all tests
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation", phases=phases, derandomize=True, database=None, deadline=None
    )
    if is_noticed("", None):
        raise SystemExit("the tests fail without any change")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    names = asked.modules or sorted(path.stem for path in REDACT.glob("*.py"))
    explained, state = load_explained(), State(asked.state)
    prepare()
    tried = unexplained = 0
    for at, (name, key, mutant) in enumerate(placed(names)):
        fitting = [entry for entry in explained if entry.fits(name, mutant)]
        if at % asked.every or any(not entry.what for entry in fitting):
            for entry in fitting:
                entry.uses += 1
            continue
        tried += 1
        where = f"{name}.py:{mutant.line_number}: {mutant.what}: {mutant.line}"
        noticed = state.get(key)
        if noticed is None or (asked.again and not noticed):
            noticed = is_noticed(f"{PACKAGE}.{name}", mutant)
            state.put(key, where, noticed=noticed)
        if not noticed:
            for entry in fitting:
                entry.uses += 1
            if not fitting:
                unexplained += 1
                print(f"survived: {where}", flush=True)
    idle = [entry for entry in explained if entry.module in names and not entry.uses]
    for entry in idle:
        print(f"explains nothing: {entry.module}: {entry.line}")
    print(f"{tried} changes, {unexplained} survived unexplained")
    return 1 if unexplained or idle else 0


if __name__ == "__main__":
    raise SystemExit(main())
