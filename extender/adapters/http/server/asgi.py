"""The service's one ASGI callable: serves kube-scheduler's verbs, and passes all else to FastAPI.

The verbs bypass any framework, because a filter call is on the path of every pod. This module reads every request's
body, within a limit. Every answer to a verb has a Content-Length, so that kube-scheduler's connections stay open. A
server may call `at_once` first (see `fast_path`).

    POST /scheduler/{filter,prioritize,bind,preempt} ---> VerbCalls ---> extender_api.Verbs
    other HTTP, lifespan, websockets ----------> FastAPI (routes, health) ---> api.Management, noun by noun
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from extender.adapters.http.api import Lifespan, create_api
from extender.adapters.http.audit_log import audited
from extender.adapters.http.call_admission import Entry
from extender.adapters.http.metrics import verb_metrics
from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.http.server.bodies import (
    AS_SAID,
    Answer,
    BodyRoom,
    ClientLeft,
    Share,
    answer,
    read_body,
    replaying,
    told,
)
from extender.adapters.http.server.load_shedding import ALWAYS, LoadShedding
from extender.adapters.http.server.peer import Peer
from extender.adapters.http.server.readiness import Gaps, Standing, unready
from extender.adapters.http.verbs.verbs import VerbCalls
from extender.app.contracts.api import Management
from extender.app.contracts.extender_api import Verbs

_log = structlog.get_logger(__name__)
_PREFIX = "/scheduler/"

BODY_LIMIT = 256 * 2**20
"""Bytes; 5,000 full Node objects fit many times."""

MANAGEMENT_BODY_LIMIT = 4 * 2**20
LONGEST_WAIT = 60.0


def create_app(
    verbs: Verbs,
    management: Management,
    *,
    ready: Callable[[], bool],
    registry: CollectorRegistry,
    ages: Callable[[], Mapping[str, float]] = dict,
    gaps: Callable[[], Gaps] = Gaps,
    body_limit: int = BODY_LIMIT,
    room: BodyRoom | None = None,
    longest_wait: float = LONGEST_WAIT,
    lifespan: Lifespan | None = None,
    entry: Entry | None = None,
    replica: Callable[[], Standing] | None = None,
    shedding: LoadShedding | None = None,
) -> Service:
    """Returns the whole service as one ASGI callable.

    `ready`: whether the first full sync is over; until then verbs and `/v1` answer 503. `ages`: seconds since each
    watch last received anything. `gaps`: the kinds of objects that cannot be read. `room`: bytes for all bodies
    together; by default twice the largest. `longest_wait`: the scheduler's httpTimeout in seconds. `lifespan`: as
    FastAPI takes it, for what must start and stop with the server. `entry`: which callers are admitted; by default all.
    `replica`: the state of this replica, if there are several. `shedding`: which calls are refused under load."""
    calls = VerbCalls(verbs, verb_metrics(registry), longest_wait)
    entry = entry or Entry()
    registry.register(entry.streams)
    return Service(
        calls,
        lambda: create_api(management, ready, registry, lifespan, ages, replica, gaps=gaps, behind_entry=True),
        ready,
        body_limit,
        room or BodyRoom(2 * body_limit),
        entry,
        replica,
        shedding or LoadShedding(),
    )


class Service:
    """Routes connections to the verbs or to the app of `make_behind`, made at the first use."""

    def __init__(
        self,
        calls: VerbCalls,
        make_behind: Callable[[], ASGIApp],
        ready: Callable[[], bool],
        body_limit: int,
        room: BodyRoom,
        entry: Entry,
        replica: Callable[[], Standing] | None,
        shedding: LoadShedding,
    ) -> None:
        self.calls = calls
        self._make_behind = make_behind
        self._ready = ready
        self._body_limit = body_limit
        self._room = room
        self._entry = entry
        self._replica = replica
        self._shedding = shedding

    def may_schedule(self, peer: Peer) -> bool:
        """Whether a peer may call the verbs; call `at_once` only for such peers."""
        return self._entry.may_schedule(peer)

    @cached_property
    def _behind(self) -> ASGIApp:
        return self._make_behind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._behind(scope, receive, send)
            return
        try:
            if scope["path"].startswith(_PREFIX):
                await self._verb(scope, receive, send)
            else:
                await self._other(scope, receive, send)
        except Problem as problem:
            await answer(send, told(problem))
        except ClientLeft:
            return

    async def _verb(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._entry.check_scheduler(scope)
        verb = scope["path"][len(_PREFIX) :]
        call = self.calls.by_name.get(verb)
        if call is None:
            known = ", ".join(self.calls.by_name)
            raise Problem(ProblemKind.NOT_FOUND, f"unknown verb {verb[:80]!r}; known verbs: {known}", field="verb")
        if scope["method"] != "POST":
            raise Problem(
                ProblemKind.WRONG_METHOD, f"call {verb} with POST, not {scope['method']}", headers={"Allow": "POST"}
            )
        if not self._ready():
            raise unready(self._replica)
        # A bind is four short texts, and may hold them while it waits at its gang's barrier.
        limit = self._body_limit if verb != "bind" else min(self._body_limit, MANAGEMENT_BODY_LIMIT)
        with Share(self._room) as share:
            body = await read_body(scope, receive, limit, share)
            answered = call(body)
            answered = answered if isinstance(answered, bytes) else await answered
        await answer(send, Answer(answered))

    def at_once(self, method: str, path: str, body: bytes) -> Answer | None:
        """Returns the answer to a complete verb call that need not wait.

        None: call this object as an application, because it is another request, or one refused whatever its body says.
        """
        call = self.calls.at_once.get(path[len(_PREFIX) :]) if path.startswith(_PREFIX) else None
        if call is None or method != "POST" or len(body) > self._body_limit or not self._ready():
            return None
        try:
            return Answer(call(body))
        except Problem as problem:
            return told(problem)
        except Exception:
            _log.exception("request failed", method=method, path=path)
            return told(_internal())

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        with audited(scope) as statuses:

            async def send_on(message: Message) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    message["headers"] = [*message["headers"], AS_SAID]
                await send(message)

            gives_way = scope["path"] not in ALWAYS
            try:
                if gives_way:
                    self._shedding.check_memory()
                admitted = await self._entry.admit(scope)
                with Share(self._room) as share:
                    body = await read_body(scope, receive, MANAGEMENT_BODY_LIMIT, share)
                    if gives_way:
                        await self._shedding.turn(admitted.tenant)
                    await self._management(scope, body, receive, send_on)
            except Problem as problem:
                statuses.append(problem.status)
                raise

    async def _management(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._behind(scope, replaying(body, receive), send_on)
        except Exception:
            # Starlette raises an error again after it has answered, for the server to log: it is logged here, once.
            _log.exception("request failed", method=scope["method"], path=scope["path"])
            if not begun:
                raise _internal() from None


def _internal() -> Problem:
    return Problem(ProblemKind.INTERNAL, "internal error in Escher; its log has the traceback")
