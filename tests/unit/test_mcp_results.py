"""What a tool call is answered: the parts that no end-to-end test can bring about cheaply."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from jackin_broker.protocol import EndedBy, ExecResult
from jackin_mcp.request import Request
from jackin_mcp.results import result_of
from jackin_mcp.transcript import Budget, Transcript

VERSION = "2025-06-18"


def test_what_a_limit_kept_back_is_said_with_the_true_sizes() -> None:
    """Or the model would take the beginning for all of it."""
    out, err = Transcript(Budget()), Transcript(Budget())
    out.add(b"beginning")
    ended = ExecResult(0, 0, 0.1, EndedBy.EXIT, stdout_bytes=5000, stderr_bytes=70, truncated=True)
    request = SimpleNamespace(id="r", bindings=(), outcome=ended, stdout=out, stderr=err)
    answer = result_of(cast("Request", request), VERSION)
    said = cast("dict[str, Any]", answer.structured_content)
    assert (said["truncated"], said["stdout_bytes"], said["stderr_bytes"]) == (True, 5000, 70)
    assert said["stdout"] == "beginning"
    assert "the operator's limit kept a part of the output back" in str(answer.content[0])
