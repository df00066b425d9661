"""The pictures of docs/operator.md, made by the picker itself: `python -m support.picker_pictures`
in `tests/` draws them again.

They are text in an SVG; the web fonts that Textual names in it are left out, so that looking at a
picture fetches nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from jackin_broker.operator_protocol import Output
from jackin_picker.app import PickerApp

from .operator_playbook import OperatorPlaybook, a_request, operator_playbook
from .picker_pilot import HandClock, arm, press, until_shown
from .picker_scenes import CHANGED, fill
from .real import short_directory

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIZE: Final = (80, 24)
_WEB_FONT: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
# Rich numbers its classes by what is drawn; a name of ours changes only with the picture.
_NUMBER: Final = re.compile(r"terminal-\d+")

Scene = Callable[[Pilot[None], OperatorPlaybook, HandClock], Awaitable[None]]


async def _prompt(pilot: Pilot[None], broker: OperatorPlaybook, clock: HandClock) -> None:
    broker.ask(CHANGED, a_request("r2"), a_request("r3"))
    await arm(pilot, clock)
    await press(pilot, clock, "space")


async def _terms(pilot: Pilot[None], broker: OperatorPlaybook, clock: HandClock) -> None:
    await _prompt(pilot, broker, clock)
    await press(pilot, clock, "g", "down", "down", "down")


async def _hostile(pilot: Pilot[None], broker: OperatorPlaybook, clock: HandClock) -> None:
    broker.ask(
        a_request(
            args=("pr", "list\x1b[2J", "--repo", "g\u0456thub/app", "x" + " " * 300 + "; rm -rf ~"),
            reason="Harmless.\nEnter runs it",
        )
    )
    await arm(pilot, clock)


async def _output(pilot: Pilot[None], broker: OperatorPlaybook, clock: HandClock) -> None:
    fill(broker)
    await until_shown(pilot.app, "Under way")
    await press(pilot, clock, "2", "enter")
    broker.push(Output("u1", 1, b"Showing 2 of 2 open pull requests\n\n#12  Fix the build\n"))
    broker.push(Output("u1", 2, b"warning: signed in as [redacted:GH_TOKEN]\n"))
    await until_shown(pilot.app, "redacted:")


async def _grants(pilot: Pilot[None], broker: OperatorPlaybook, clock: HandClock) -> None:
    fill(broker)
    await until_shown(pilot.app, "Under way")
    await press(pilot, clock, "4")
    await until_shown(pilot.app, "never used")


SCENES: Final[dict[str, Scene]] = {
    "prompt": _prompt,
    "terms": _terms,
    "hostile": _hostile,
    "output": _output,
    "grants": _grants,
}


def drawn(name: str) -> str:
    """The picture of this name, as it is now."""

    async def run() -> str:
        with short_directory() as folder, operator_playbook(folder) as broker:
            clock = HandClock()
            app = PickerApp(broker.path, clock, look="dark")
            async with app.run_test(size=SIZE) as pilot:
                await until_shown(app, "attached")
                await SCENES[name](pilot, broker, clock)
                await pilot.pause()
                return app.export_screenshot()

    svg = _WEB_FONT.sub("", asyncio.run(run())).replace("Fira Code", "monospace")
    lines = _NUMBER.sub("terminal-picture", svg).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in SCENES:
        (FOLDER / f"{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
