"""A broker's side of operator.sock that does what a test says, in the real frames.

It decides as the desk does: a decision must name a waiting request and the digest of its view,
and is taken once. It runs in a thread, so that a picker under test may be a program of its own.
Every wait is bounded.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Final, TypeVar

import msgspec

from jackin_broker.frames import FrameDecoder, MessageFrame, message_frame
from jackin_broker.operator_protocol import (
    OPERATOR_MESSAGE_MAX_BYTES,
    Attach,
    Attached,
    BindingView,
    Call,
    Credentials,
    CredentialView,
    Decide,
    Decided,
    Done,
    Failed,
    GetStatus,
    Grants,
    GrantView,
    ListCredentials,
    ListGrants,
    ListHistory,
    ListRequests,
    ListRules,
    ProcessView,
    Push,
    Reply,
    RequestChanged,
    Requests,
    RequestState,
    RequestView,
    RevokeAll,
    RevokeGrant,
    Rules,
    RuleView,
    StatusReport,
    StdinView,
    decode_call,
    view_digest,
)
from jackin_broker.protocol import StdinKind, Target, encode

C = TypeVar("C", bound=Call)
# A loaded two-core machine; only a hang takes longer.
WAIT_S: Final = 20.0

GH_TOKEN: Final = BindingView(
    name="GH_TOKEN",
    source="keyring github/me",
    delivery="env",
    label="GitHub, read only",
    wanted=True,
)
NPM_TOKEN: Final = BindingView(name="NPM_TOKEN", source="1Password Work/npm", delivery="env")
A_STATUS: Final = StatusReport(
    seq=0,
    pid=1,
    version="0.1.0",
    uptime_s=60,
    operators=1,
    waiting=0,
    running=0,
    keyring="vault",
    vault="locked",
    capsules=(),
)
PGPASSWORD: Final = BindingView(name="PGPASSWORD", source="keyring db/prod", delivery="env")


def a_request(request_id: str = "r1", **changes: object) -> RequestView:
    """`gh pr list --limit 30`, as an agent asks for it; any field may be another."""
    usual = RequestView(
        id=request_id,
        capsule="web",
        capsule_kind="bwrap",
        command="gh",
        args=("pr", "list", "--limit", "30"),
        cwd="/home/op/src/app",
        capsule_cwd="/workspaces/app",
        cwd_writable=True,
        binary_path="/usr/bin/gh",
        target=Target.HOST,
        confinement="confined, an empty HOME",
        stdin=StdinView(StdinKind.NONE),
        tty=None,
        reason="List the open pull requests before I start on the next one.",
        want=("GH_TOKEN",),
        bindings=(NPM_TOKEN, PGPASSWORD, GH_TOKEN),
        files=(),
        asked_by=(ProcessView(4121, "node"), ProcessView(4100, "bash"), ProcessView(4098, "init")),
        notices=(),
        expires_in_s=298,
    )
    return msgspec.structs.replace(usual, **changes)


class OperatorPlaybook:
    """Listens at `path`; `decisions` are those that were taken, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: tuple[str, ...] = ()
        self.decisions: Queue[Decide] = Queue()
        self.refused: Queue[Decide] = Queue()
        self.attach_answer: Failed | None = None
        self.history: tuple[RequestView, ...] = ()
        self.grants: tuple[GrantView, ...] = ()
        self.rules: tuple[RuleView, ...] = ()
        self.credentials: tuple[CredentialView, ...] = ()
        self.status = A_STATUS
        self.calls: Queue[Call] = Queue()
        self.refusals: dict[type[Call], Failed] = {}
        self._desk: dict[str, RequestView] = {}
        self._clients: list[socket.socket] = []
        self._lock = threading.Lock()
        self._attached = threading.Semaphore(0)
        self._listener = self._listen()

    # --- what a test does -------------------------------------------------------------

    def ask(self, *views: RequestView) -> None:
        """These requests are on the desk now, new or changed."""
        for view in views:
            self._put(view)

    def swap_silently(self, view: RequestView) -> None:
        """The request changed, and no client has heard of it."""
        with self._lock:
            self._desk[view.id] = view

    def end(self, request_id: str, state: RequestState, **changes: object) -> None:
        """The request moved on."""
        with self._lock:
            view = self._desk[request_id]
        self._put(msgspec.structs.replace(view, state=state, **changes))

    def push(self, push: Push) -> None:
        with self._lock:
            for client in self._clients:
                _send(client, push)

    def drop(self) -> None:
        """Hang up on every client; the socket stays."""
        with self._lock:
            for client in self._clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self._clients.clear()

    def stop(self) -> None:
        """End as a broker does that is killed: no goodbye, the socket refuses."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def restart(self) -> None:
        """Listen at the same path again, with an empty desk."""
        self.path.unlink()
        self._desk.clear()
        self._listener = self._listen()

    def wait_attached(self) -> None:
        assert self._attached.acquire(timeout=WAIT_S), "no client attached"

    def wait_call(self, kind: type[C]) -> C:
        """The next call of this kind; others before it are dropped."""
        while True:
            call = self.calls.get(timeout=WAIT_S)
            if isinstance(call, kind):
                return call

    def wait_decision(self) -> Decide:
        return self.decisions.get(timeout=WAIT_S)

    @property
    def is_undecided(self) -> bool:
        return self.decisions.empty() and self.refused.empty()

    def take_decision(self) -> Decide | None:
        """The oldest that was taken and not looked at, if there is one."""
        try:
            return self.decisions.get_nowait()
        except Empty:
            return None

    # --- the broker's side ------------------------------------------------------------

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        listener.listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        decoder = FrameDecoder(max_message_bytes=OPERATOR_MESSAGE_MAX_BYTES)
        with client, suppress(OSError):
            while data := client.recv(65_536):
                for frame in decoder.feed(data):
                    assert isinstance(frame, MessageFrame)
                    self._answer(client, decode_call(frame.body))
        with self._lock, suppress(ValueError):
            self._clients.remove(client)

    def _answer(self, client: socket.socket, call: Call) -> None:
        with self._lock:
            reply = self._reply(call)
            _send(client, reply)
            if isinstance(reply, Attached):
                self._clients.append(client)
                self._attached.release()
        if isinstance(call, Decide) and isinstance(reply, Decided):
            (self.decisions if reply.accepted else self.refused).put(call)
            if reply.accepted:
                state = RequestState.APPROVED if call.approve else RequestState.DENIED
                self.end(call.id, state)

    def _reply(self, call: Call) -> Reply:
        live = tuple(self._desk.values())
        match call:
            case Attach(seq):
                refused = self.attach_answer
                if refused is not None:
                    return msgspec.structs.replace(refused, seq=seq)
                return Attached(seq, "0.1.0", live, self.notices)
            case ListRequests(seq):
                return Requests(seq, live)
            case Decide():
                return self._judge(call)
            case _:
                self.calls.put(call)
                return self._list(call)

    def _list(self, call: Call) -> Reply:
        refused = self.refusals.get(type(call))
        if refused is not None:
            return msgspec.structs.replace(refused, seq=call.seq)
        match call:
            case ListHistory(seq):
                return Requests(seq, self.history)
            case ListGrants(seq):
                return Grants(seq, self.grants)
            case ListRules(seq):
                return Rules(seq, self.rules)
            case ListCredentials(seq):
                return Credentials(seq, self.credentials)
            case GetStatus(seq):
                return msgspec.structs.replace(self.status, seq=seq)
            case RevokeGrant(seq, grant_id):
                self.grants = tuple(grant for grant in self.grants if grant.id != grant_id)
            case RevokeAll(seq):
                self.grants = ()
            case _:
                pass
        return Done(call.seq)

    def _judge(self, decision: Decide) -> Decided:
        view = self._desk.get(decision.id)
        if view is None or view.state is not RequestState.WAITING:
            return Decided(decision.seq, decision.id, False, "expired", "it does not wait any more")
        if decision.digest != view_digest(view):
            reason = "what was displayed is not what waits"
            return Decided(decision.seq, decision.id, False, "changed_since_approval", reason)
        return Decided(decision.seq, decision.id, True)

    def _put(self, view: RequestView) -> None:
        with self._lock:
            self._desk[view.id] = view
            for client in self._clients:
                _send(client, RequestChanged(view))


def _send(client: socket.socket, message: Reply | Push) -> None:
    with suppress(OSError):
        client.sendall(message_frame(encode(message), max_bytes=OPERATOR_MESSAGE_MAX_BYTES))


@contextmanager
def operator_playbook(folder: Path) -> Generator[OperatorPlaybook]:
    """A playbook's broker at `operator.sock` in a folder with a short path."""
    playbook = OperatorPlaybook(folder / "operator.sock")
    try:
        yield playbook
    finally:
        playbook.stop()
