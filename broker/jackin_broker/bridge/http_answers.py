"""What the HTTP doorway answers when it does not run anything: a status and two sentences.

The body is JSON with `error` and `hint`, and `code` where the broker has one. Every answer closes
its connection. Statuses: 400 a request that is wrong, 401 no valid token, 403 refused without a
prompt (the seed's "not in the allowlist"), 408 too slow, 413 too long, 421 another machine's name,
503 too busy or stopping, 500 a fault of ours.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, PlainTextResponse

from ..errors import DenialCode, Refusal
from ..protocol import Error, ExecDenied

_STATUSES: Final = {
    DenialCode.BAD_REQUEST.value: 400,
    DenialCode.BROKER_STOPPING.value: 503,
    DenialCode.INTERNAL_ERROR.value: 500,
}


class BodyTooLarge(Exception):
    """More than this doorway reads."""


_CLOSING: Final = {"connection": "close", "cache-control": "no-store"}
_SEE: Final = "docs/host-exec-bridge.md has the protocol"


def refusal_response(error: Exception | ExecDenied | Error) -> JSONResponse:
    """Why a request that had the token got nothing."""
    match error:
        case ExecDenied(code, reason, hint):
            return _answer(_STATUSES.get(code, 403), reason, hint, code)
        case Error(code, reason):
            return _answer(_STATUSES.get(code, 400), reason, _SEE, code)
        case Refusal(code=DenialCode.PEER_REFUSED):
            return unauthorised()
        case Refusal():
            return _answer(503, str(error), error.hint, error.code.value)
        case TimeoutError():
            return _answer(408, "the body did not come in time", _SEE)
        case BodyTooLarge():
            return _answer(413, str(error), "send long stdin with jackin-exec, or the plain form")
        case _:
            return _answer(400, str(error), _SEE, DenialCode.BAD_REQUEST.value)


def plain_answer(text: str, status: int = 200) -> PlainTextResponse:
    """A few words of the plain form."""
    return PlainTextResponse(text, status, headers=_CLOSING)


def unauthorised() -> JSONResponse:
    """No valid token; the same whatever was asked for."""
    answer = _answer(
        401,
        "the token is missing, wrong, or no longer valid",
        "ask the operator for the present one: jackin-broker capsule env NAME",
    )
    answer.headers["www-authenticate"] = "Bearer"
    return answer


def wrong_host() -> JSONResponse:
    """The request was meant for another machine's name."""
    return _answer(
        421,
        "this doorway is not called by that name",
        "use the address in JACKIN_EXEC_URL, or have the operator set bridge_host",
    )


def failed() -> JSONResponse:
    """A fault of ours."""
    return _answer(
        500, "the broker failed, nothing was run", "the operator finds the cause in the log"
    )


def _answer(status: int, error: str, hint: str, code: str = "") -> JSONResponse:
    body = {"error": error, "hint": hint}
    if code:
        body["code"] = code
    return JSONResponse(body, status, headers=_CLOSING)
