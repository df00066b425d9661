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
    ProcessView,
    RequestState,
    RequestView,
    StdinView,
)
from jackin_broker.protocol import StdinKind, Target, TerminalSize
from jackin_picker.app import PickerApp
from support.operator_playbook import PGPASSWORD, OperatorPlaybook, a_request, operator_playbook
from support.picker_pilot import HandClock, arm, press, until_shown

SnapCompare = Callable[..., bool]
Scene = Callable[[Pilot[None]], Awaitable[None]]
SMALL: Final = (80, 24)
LARGE: Final = (120, 40)

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
    "help": (a_request(), ("question_mark",)),
}


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[OperatorPlaybook]:
    with operator_playbook(short_tmp) as running:
        yield running


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
@pytest.mark.parametrize("name", PROMPTS)
def test_prompt(
    name: str, size: tuple[int, int], broker: OperatorPlaybook, snap_compare: SnapCompare
) -> None:
    view, keys = PROMPTS[name]
    broker.ask(view)
    clock = HandClock()

    async def scene(pilot: Pilot[None]) -> None:
        await arm(pilot, clock)
        await press(pilot, clock, *keys)

    assert snap_compare(PickerApp(broker.path, clock), terminal_size=size, run_before=scene)


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
        await until_shown(pilot.app, "Ended", "operator_denied")

    assert snap_compare(PickerApp(broker.path, clock), terminal_size=SMALL, run_before=scene)


def test_broker_gone(broker: OperatorPlaybook, snap_compare: SnapCompare) -> None:
    async def scene(pilot: Pilot[None]) -> None:
        await until_shown(pilot.app, "Nothing waits")
        broker.push(Goodbye("the broker is stopping"))
        await until_shown(pilot.app, "not connected")

    app = PickerApp(broker.path, HandClock())
    assert snap_compare(app, terminal_size=SMALL, run_before=scene)
