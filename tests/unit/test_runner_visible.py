"""A confined command that could not start says so before, with the line that mends it.

DESIGN §9: whoever's binary or libraries lie under a hidden path gets the line to add.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from jackin_broker.config.model import BinaryConfig
from jackin_broker.errors import DenialCode, Refusal
from jackin_broker.runner.elf import Needs, interpreter_of, needs_of
from support import real
from support.machine import Machine, furnish


@pytest.fixture
def machine(private_home: Path) -> Machine:
    real.require_bwrap()
    return furnish(private_home)


def make_program(path: Path, library: str, place: str) -> Path:
    """A file that the loader would take for a program which needs a library from a place."""
    names = b"\0" + library.encode() + b"\0" + place.encode() + b"\0"
    at, dynamic_size = 64 + 2 * 56, 5 * 16
    entries = [(1, 1), (29, len(library) + 2), (5, at + dynamic_size), (10, len(names)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = at + dynamic_size + len(names)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    own = struct.pack("<IIQQQQQQ", 2, 4, at, at, at, dynamic_size, dynamic_size, 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + load + own + dynamic + names)
    path.chmod(0o755)
    return path


def refusal_of(machine: Machine, program: Path, config: BinaryConfig | None = None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        machine.run([str(program)], config)
    assert caught.value.code is DenialCode.SPAWN_FAILED
    return caught.value


def test_a_library_below_a_hidden_path_is_named_with_the_line_to_add(machine: Machine) -> None:
    """By the loader alone it would be 127 and a riddle."""
    library = machine.home / "opt" / "lib" / "libown.so.1"
    make_program(library, "libmore.so", "$ORIGIN/more")
    more = machine.home / "opt" / "lib" / "more" / "libmore.so"
    make_program(more, "libc.so.6", "")
    program = make_program(machine.project / "tool", "libown.so.1", str(library.parent))
    refusal = refusal_of(machine, program)
    assert f"tool needs what is in {library.parent}" in str(refusal)
    assert f'home_paths = ["{library.parent}", "{more.parent}"]' in refusal.hint
    # Its code is none that runs, but now it is started.
    shown = BinaryConfig(home_paths=(str(library.parent), str(more.parent)))
    assert machine.run([str(program)], shown).exit_code != 0


def test_a_library_that_the_variable_of_its_table_leads_to_is_found(machine: Machine) -> None:
    library = make_program(machine.home / "opt" / "libown.so.1", "libc.so.6", "")
    program = make_program(machine.project / "tool", "libown.so.1", "")
    with pytest.raises(Refusal) as caught:
        machine.run([str(program)], env={b"LD_LIBRARY_PATH": os.fsencode(library.parent)})
    assert str(library.parent) in caught.value.hint


def test_an_interpreter_in_a_hidden_virtual_environment_is_named_with_all_of_it(
    machine: Machine,
) -> None:
    """Showing its `bin` alone would end in a ModuleNotFoundError."""
    place = machine.home / "venv"
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").touch()
    (place / "bin" / "python").symlink_to(real.SYSTEM_PYTHON)
    tool = machine.project / "tool"
    tool.write_text(f"#!{place}/bin/python\nprint('ran')\n")
    tool.chmod(0o755)
    assert f'home_paths = ["{place}"]' in refusal_of(machine, tool).hint
    sink = machine.run([str(tool)], BinaryConfig(home_paths=(str(place),)))
    assert (sink.exit_code, sink.out) == (0, b"ran\n")


def test_what_is_there_already_stays_in_the_line(machine: Machine) -> None:
    """It is pasted in the place of the old one."""
    shown = machine.home / ".config" / "tool"
    shown.mkdir(parents=True)
    tool = machine.home / "bin" / "tool"
    tool.parent.mkdir()
    shutil.copy("/bin/true", tool)
    hint = refusal_of(machine, tool, BinaryConfig(home_paths=(str(shown),))).hint
    assert f'home_paths = ["{shown}", "{tool.parent}"]' in hint


def test_outside_of_home_no_line_is_offered_that_would_be_refused(
    machine: Machine, short_tmp: Path
) -> None:
    """`home_paths` takes what is below HOME alone."""
    tool = short_tmp / "tool"
    shutil.copy("/bin/true", tool)
    hint = refusal_of(machine, tool).hint
    assert "home_paths" not in hint
    assert "confine = false" in hint


def test_the_systems_own_programs_need_nothing_that_is_hidden(machine: Machine) -> None:
    for program in ("/bin/true", "/usr/bin/env", real.SYSTEM_PYTHON):
        assert machine.run([program, "--help"]).exit_code == 0


def test_a_file_says_what_the_loader_goes_by(tmp_path: Path) -> None:
    program = make_program(tmp_path / "a", "libx.so", "$ORIGIN/../lib:/opt")
    assert needs_of(str(program)) == Needs(("libx.so",), (f"{tmp_path.parent}/lib", "/opt"))
    assert "libc.so.6" in needs_of(os.path.realpath("/bin/sh")).libraries


@pytest.mark.parametrize("size", [0, 3, 20, 63, 64, 100, 190, 240])
def test_what_is_cut_short_says_nothing_and_harms_nothing(tmp_path: Path, size: int) -> None:
    whole = make_program(tmp_path / "a", "libx.so", "/opt")
    whole.write_bytes(whole.read_bytes()[:size])
    assert not needs_of(str(whole)).places or size > 190


def test_a_first_line_names_an_interpreter_or_nothing(tmp_path: Path) -> None:
    lines = {b"#!/bin/sh -e\n": "/bin/sh", b"#! /bin/sh\n": "/bin/sh", b"#!sh\n": "", b"#!": ""}
    for line, expected in lines.items():
        (tmp_path / "a").write_bytes(line)
        assert interpreter_of(str(tmp_path / "a")) == expected
    assert interpreter_of(str(tmp_path / "absent")) == ""
