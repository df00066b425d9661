"""`npm publish` inside the capsule, with a token that the agent never has (DESIGN §9).

The real npm against a real registry. The project's own scripts run with the token, as they do in
every `npm publish`; what they look for on the broker's side is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.capsule import Ended, places_of
from support.inside import Inside, inside
from support.real import require_program
from support.registry import Registry, registry

_LOOKS = """\
const fs = require('fs'), found = [];
for (const place of PLACES) if (fs.existsSync(place)) found.push(place);
for (const pid of fs.readdirSync('/proc').filter(name => /^[0-9]+$/.test(name))) {
  try { if (fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('serve')) found.push(pid); }
  catch (error) {}
}
fs.writeFileSync('found.json', JSON.stringify(found));
console.log('published with', process.env.TOKEN);
"""


@pytest.fixture
def served() -> Iterator[Registry]:
    require_program("npm", package="npm")
    with registry() as made:
        yield made


def write_project(folder: Path, url: str, places: list[str]) -> None:
    """A package whose script looks around before it is published."""
    package = {
        "name": "jackin-test-package",
        "version": "1.0.0",
        "scripts": {"prepublishOnly": "node look.js"},
    }
    (folder / "package.json").write_text(json.dumps(package))
    (folder / "look.js").write_text(_LOOKS.replace("PLACES", json.dumps(places)))
    host = url.removeprefix("http:")
    (folder / ".npmrc").write_text(f"registry={url}/\n{host}/:_authToken=${{TOKEN}}\n")


def test_npm_publishes_with_a_token_that_the_agent_never_has(served: Registry) -> None:
    with inside(name="npm", token=served.token) as scene:
        places = [str(scene.broker.folder), str(scene.broker.runtime_dir / "operator.sock")]
        write_project(scene.project, served.url, places)
        done = _publish(scene)
        assert done.status == 0, done.stderr
        assert served.versions_of("jackin-test-package") == ["1.0.0"]
        assert b"published with [redacted:TOKEN]" in done.stdout + done.stderr
        assert served.token.encode() not in done.stdout + done.stderr
        assert json.loads((scene.project / "found.json").read_text()) == []
        assert places_of(served.token, scene.agent.look()) == []
        again = scene.agent.run("npm", "publish", cwd="/workspace")
        assert again.status != 0, "without the broker there is no token"


def _publish(scene: Inside) -> Ended:
    return scene.agent.run("jackin-exec", "npm", "publish", "--no-fund", "--no-update-notifier")
