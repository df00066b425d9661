"""What the operator sees, picture by picture: fixed requests, a fixed size, a clock that stands.

Look at the pictures, not only at the comparison: `--snapshot-report` opens them side by side.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from textual.pilot import Pilot

from jackin_broker.operator_protocol import (
    BindingView,
    FileOperandView,
    Goodbye,
    Output,
    ProcessView,
    RequestState,
    RequestView,
    StdinView,
)
from jackin_broker.protocol import StdinKind, Target, TerminalSize
from jackin_picker.app import PickerApp
from support.operator_playbook import PGPASSWORD, OperatorPlaybook, a_request, operator_playbook
from support.picker_pilot import HandClock, arm, press, until_shown
from support.picker_scenes import CHANGED, fill

SnapCompare = Callable[..., bool]
Scene = Callable[[Pilot[None]], Awaitable[None]]
SMALL: Final = (80, 24)
LARGE: Final = (200, 60)

SQL: Final = (
    "select id, email from accounts where created_at > now() - interval '30 days' "
    "and plan = 'enterprise' order by created_at desc limit 500"
)
HOSTILE: Final = a_request(
    capsule="[x]\n",
    args=(
        "[/]",
        "[@click=app.quit]x",
        "\x1b[2J\x1b]52;c;aGk=\x07",
        "a\u202eb\u200bc",
        "line\nbreak",
        "true" + " " * 5000 + "; rm -rf ~",
        "A" * 100_000,
        "g\u0456thub.com",
    ),
    cwd="/tmp/\x1b[31mx\ny",
    capsule_cwd="/tmp/\u2066",
    reason="[bold]hi[/] \x1b]0;t\x07 \u2066" + "please " * 60,
    notices=("[/] kind none: the agent can approve itself\nreally",),
    asked_by=(ProcessView(1, "[/]\x1b["),),
    confinement="unconfined: bubblewrap is missing",
    bindings=(
        BindingView("[/]\n", "keyring \x1b[1m", "env\r", "[red]l\u200b", True, ("w\x1b[2J[/]",)),
    ),
)
PIPED: Final = a_request(
    command="bash",
    args=("./deploy.sh", "--now"),
    binary_path="/usr/bin/bash",
    files=(FileOperandView("./deploy.sh", 2150, "ab" * 32),),
    stdin=StdinView(StdinKind.CLOSED, 1234, "cd" * 32, b"hello world\nsecond line" * 8),
    tty=TerminalSize(24, 80),
    confinement="confined; your own logins apply (HOME is yours)",
)
HOSTILE_SHORT: Final = a_request("r9", command="[/]\x1b[2J", args=("[@click=app.quit]",))
OUTPUT: Final = (
    (1, b"Showing 2 of 2 open pull requests\n\n#12  Fix the build\n"),
    (1, b"#13  \x1b[32mAdd a test\x1b[0m [/]\n"),
    (2, b"warning: authenticated as [redacted:GH_TOKEN]\n"),
)
MANY_BINDINGS: Final = tuple(
    BindingView(
        name=f"TOKEN_{number:02d}",
        source=f"keyring service/{number}",
        delivery="env",
        label="a label of its own" if number % 3 else "",
        wanted=number == 7,
        warnings=("too short to be redacted: its value will be visible",) * (number % 5 == 2),
    )
    for number in range(20)
)
FORTY: Final = a_request(args=tuple(f"--option-{number}=value" for number in range(40)))
IN_CAPSULE: Final = a_request(
    command="npm",
    args=("publish",),
    target=Target.CAPSULE,
    confinement="the agent can read these values",
    stdin=StdinView(StdinKind.LIVE),
    bindings=(),
    reason="",
)

PROMPTS: Final[dict[str, tuple[RequestView, tuple[str, ...]]]] = {
    "usual": (a_request(), ()),
    "ticked": (a_request(), ("space",)),
    "run": (a_request(), ("down", "down", "down")),
    "no-credentials": (IN_CAPSULE, ("down", "down")),
    "long-argument": (
        a_request(command="psql", args=("-c", SQL), bindings=(PGPASSWORD,)),
        ("space",),
    ),
    "many-arguments": (FORTY, ()),
    "hostile": (HOSTILE, ()),
    "hostile-read": (HOSTILE, ("v",)),
    "piped": (PIPED, ()),
    "piped-read": (PIPED, ("v",)),
    "many-credentials": (a_request(bindings=MANY_BINDINGS), ("space", *["down"] * 6)),
    "filter": (a_request(bindings=MANY_BINDINGS), ("space", "slash", "_", "1")),
    "reason": (a_request(), ("d", "n", "o", "t", "space", "n", "o", "w")),
    "term": (CHANGED, ("space", "g", "down", "enter", "down")),
    "terms": (CHANGED, ("space", "g", "down", "down", "down")),
    "sweep": (CHANGED, ("D", "s", "t", "o", "p")),
}


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


# The others differ only in how much room is left.
AT_LARGE: Final = ("usual", "many-arguments", "hostile", "hostile-read", "many-credentials", "term")
PAGES: Final[dict[str, tuple[str, ...]]] = {
    "idle": (),
    "running": ("2",),
    "output": ("2", "enter"),
    "end": ("2", "x"),
    "history": ("3", "down"),
    "grants": ("4", "down"),
    "grants-filter": ("4", "slash", "1", "0", "0"),
    "grant-read": ("4", "down", "down", "enter"),
    "credentials": ("5", "down"),
    "credentials-add": ("5", "a", "N", "P", "M"),
    "rules": ("6", "down"),
    "commands": ("colon", "r", "u"),
    "help": ("question_mark",),
}
# What each page shows once the broker has answered.
LOADED: Final = {"3": "its caller went away", "4": "never used", "5": "vault", "6": "delete"}


def prompt_scene(keys: tuple[str, ...], clock: HandClock) -> Scene:
    async def scene(pilot: Pilot[None]) -> None:
        await arm(pilot, clock)
        await press(pilot, clock, *keys)

    return scene


def page_scene(keys: tuple[str, ...], clock: HandClock, broker: OperatorPlaybook) -> Scene:
    async def scene(pilot: Pilot[None]) -> None:
        await until_shown(pilot.app, "Under way", "attached")
        await press(pilot, clock, *keys[:1])
        if keys and keys[0] in LOADED:
            await until_shown(pilot.app, LOADED[keys[0]])
        await press(pilot, clock, *keys[1:])
        if keys == PAGES["output"]:
            for stream, data in OUTPUT:
                broker.push(Output("u1", stream, data))
            await until_shown(pilot.app, "redacted:")

    return scene


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt(name: str, broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    view, keys = PROMPTS[name]
    broker.ask(view)
    clock = HandClock()
    app = PickerApp(broker.path, clock)
    assert snap_compare(app, terminal_size=SMALL, run_before=prompt_scene(keys, clock))


@pytest.mark.parametrize("name", AT_LARGE)
def test_prompt_at_200x60(name: str, broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    view, keys = PROMPTS[name]
    broker.ask(view)
    clock = HandClock()
    app = PickerApp(broker.path, clock)
    assert snap_compare(app, terminal_size=LARGE, run_before=prompt_scene(keys, clock))


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    fill(broker)
    clock = HandClock()
    app = PickerApp(broker.path, clock)
    scene = page_scene(PAGES[name], clock, broker)
    assert snap_compare(app, terminal_size=SMALL, run_before=scene)


@pytest.mark.parametrize("name", ["output", "grants"])
def test_page_at_200x60(name: str, broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    fill(broker)
    clock = HandClock()
    app = PickerApp(broker.path, clock)
    scene = page_scene(PAGES[name], clock, broker)
    assert snap_compare(app, terminal_size=LARGE, run_before=scene)


def test_waiting(broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    fill(broker)
    clock = HandClock()

    async def scene(pilot: Pilot[None]) -> None:
        await until_shown(pilot.app, "Under way")
        await press(pilot, clock, "1")
        broker.ask(CHANGED, a_request("r2", capsule="data", command="psql"), HOSTILE_SHORT)
        await until_shown(pilot.app, "psql", "[/]")
        await press(pilot, clock, "down")

    assert snap_compare(PickerApp(broker.path, clock), terminal_size=SMALL, run_before=scene)


@pytest.mark.parametrize("name", ["ticked", "term", "hostile", "terms"])
def test_prompt_in_light(name: str, broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    view, keys = PROMPTS[name]
    broker.ask(view)
    clock = HandClock()
    app = PickerApp(broker.path, clock, look="light")
    assert snap_compare(app, terminal_size=SMALL, run_before=prompt_scene(keys, clock))


@pytest.mark.parametrize("name", ["history", "credentials"])
def test_page_in_light(name: str, broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    fill(broker)
    clock = HandClock()
    app = PickerApp(broker.path, clock, look="light")
    scene = page_scene(PAGES[name], clock, broker)
    assert snap_compare(app, terminal_size=SMALL, run_before=scene)


@pytest.mark.parametrize("name", ["history", "rules"])
def test_page_without_colour(
    name: str, broker: OperatorPlaybook, snap_compare: SnapCompare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    fill(broker)
    clock = HandClock()
    app = PickerApp(broker.path, clock)
    scene = page_scene(PAGES[name], clock, broker)
    assert snap_compare(app, terminal_size=SMALL, run_before=scene)


@pytest.mark.parametrize("size", [SMALL, (50, 12)], ids=["80x24", "50x12"])
def test_unarmed(
    size: tuple[int, int], broker: OperatorPlaybook, snap_compare: SnapCompare
) -> None:
    broker.ask(a_request(), a_request("r2"))

    async def scene(pilot: Pilot[None]) -> None:
        await until_shown(pilot.app, "command" if size == SMALL else "too small")

    app = PickerApp(broker.path, HandClock())
    assert snap_compare(app, terminal_size=size, run_before=scene)


def test_no_colour(
    broker: OperatorPlaybook, snap_compare: SnapCompare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without colours every sign is still there."""
    monkeypatch.setenv("NO_COLOR", "1")
    broker.ask(a_request())
    clock = HandClock()

    async def scene(pilot: Pilot[None]) -> None:
        await arm(pilot, clock)
        await press(pilot, clock, "space", "down")

    assert snap_compare(PickerApp(broker.path, clock), terminal_size=SMALL, run_before=scene)


def test_between_requests(broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    broker.notices = ("capsule try is of kind none: the agent can approve itself",)
    running, psql, gone = RequestState.RUNNING, a_request("r2", command="psql"), a_request("r3")
    broker.ask(a_request("r1", state=running), psql, gone)
    clock = HandClock()

    async def scene(pilot: Pilot[None]) -> None:
        await until_shown(pilot.app, "psql")
        broker.end("r2", RequestState.DONE, exit_code=2)
        broker.end("r3", RequestState.DENIED, outcome="operator_denied")
        await until_shown(pilot.app, "Ended", "by the operator")

    assert snap_compare(PickerApp(broker.path, clock), terminal_size=SMALL, run_before=scene)


def test_broker_gone(broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    async def scene(pilot: Pilot[None]) -> None:
        await until_shown(pilot.app, "Nothing waits")
        broker.push(Goodbye("the broker is stopping"))
        await until_shown(pilot.app, "no broker")

    app = PickerApp(broker.path, HandClock())
    assert snap_compare(app, terminal_size=SMALL, run_before=scene)
