"""Serving: runs the application behind an HTTP server, from start to the last answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

import structlog

from extender.adapters.http.server.listening import bound, http_server
from extender.adapters.http.server.tls import served_certificates
from extender.adapters.log_lines import LogLines
from extender.adapters.long_turns import LongTurns
from extender.adapters.memory import ControlGroup
from extender.adapters.metrics import CertificateMetrics, CredentialMetrics, LogMetrics
from extender.adapters.open_files import raise_limit
from extender.adapters.own_loop import OwnLoop
from extender.adapters.tracing.start import exported
from extender.app.admin.leader_election import LeaseLost
from extender.availability import Candidate, Replica, namespace_of_pod
from extender.bootstrap import Application
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, default_loader
from extender.runtime import MACHINE
from extender.settings.settings import Settings
from extender.stopping import Asked

if TYPE_CHECKING:
    from extender.adapters.tracing.tracing import Tracing

_log = structlog.get_logger(__name__)

_DRAIN_SECONDS = 5.0
_CALLS_SECONDS = 1.0
"""Seconds that a stopping leader waits for its calls: as long as one of its writes may take."""
_SPANS_SECONDS = 3.0
"""Seconds to wait for a trace collector; spans that it has not accepted by then are lost."""
_LOST_SECONDS = 0.2
"""Seconds after a lost lease, when no write is possible: enough to answer waiting callers."""


async def serve(
    settings: Settings,
    file: Path | None = None,
    load: Callable[[], Settings] | None = None,
    lines: LogLines | None = None,
) -> Signals | None:
    """Runs the service until a signal asks it to end, and returns that signal.

    Raises CannotListen, BadConfiguration, BadPolicy, BadSettings, LeaseLost, and the error of a part that failed.
    `load` reads the settings `file` again, because some may change at run time. `lines`: where the log goes.
    """
    given, settings = settings, _with_own_namespace(settings)
    certificates = served_certificates(settings)
    spans = exported(settings, os.environ)
    tracing = None if spans is None else spans.tracing()
    async with AsyncExitStack() as stack:
        asked = stack.enter_context(Asked())
        sockets = bound(settings.host, settings.port)
        for opened in sockets:
            stack.callback(opened.close)
        # A credentials plugin may take its time.
        loading = asyncio.create_task(Credentials.load(default_loader(settings.kubeconfig, settings.context)))
        if not await _unless_asked(loading, asked.to_end()):
            return asked.by
        credentials = loading.result()
        replica = None
        if settings.leader_election:
            port = sockets[0].getsockname()[1]
            electing = asyncio.create_task(_replica(settings, credentials, port, stack, tracing))
            if not await _unless_asked(electing, asked.to_end()):
                return asked.by
            replica = electing.result()
            application, service = replica.application, replica.asgi()
        else:
            connection = await stack.enter_async_context(Connection(credentials))
            application = Application(
                connection, settings, open_files=raise_limit(), memory=ControlGroup().memory, tracing=tracing
            )
            service = application.asgi(settings)
        application.registry.register(CredentialMetrics(credentials))
        if lines is not None:
            application.registry.register(LogMetrics(lines))
        if spans is not None:
            spans.register(application.registry)
        turns = LongTurns(asyncio.get_running_loop(), application.registry)
        turns.start()
        stack.callback(turns.close)
        served = service if tracing is None else tracing.served(service)
        server = http_server(served, settings, application.connections, certificates)
        following = asyncio.create_task((replica or application).run(application.settle_memory()))
        serving = asyncio.create_task(server.serve(sockets))
        works = [following, serving]
        # These run whether this replica leads or not: a new leader must know the current settings.
        if file is not None and load is not None:
            works.append(asyncio.create_task(application.settings_file(file, load, given).run()))
        if certificates is not None:
            application.registry.register(CertificateMetrics(certificates))
            works.append(asyncio.create_task(certificates.run()))
        at = ["{}:{}".format(*each.getsockname()) for each in sockets]
        _log.info("starting", at=at, tls=settings.tls_certificate is not None)
        if settings.insecure and settings.tls_client_ca is None:
            _log.warning("whoever reaches the port may call kube-scheduler's verbs", setting="insecure")
        await _unless_asked(asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED), asked.to_end())
        _log.info("stopping", asked_by=asked.by.name if asked.by is not None else "")
        lost = following.done() and isinstance(following.exception(), LeaseLost)
        # First the members at a barrier: the server waits for the answers to its calls.
        await application.close()
        server.should_exit = True
        if replica is not None:
            # A caller with its answer may keep its connection for a while: another replica leads by then.
            calls = asyncio.gather(service.calls.drain(), server.answered())
            await _unless_asked(calls, asked.to_hurry(), within=0.0 if lost else _CALLS_SECONDS)
            await replica.resign()
        await _unless_asked(asyncio.wait({serving}), asked.to_hurry(), within=_LOST_SECONDS if lost else None)
        # The API server may still answer a write after its caller has left.
        await _unless_asked(service.calls.drain(), asked.to_hurry(), within=0.0 if lost else _DRAIN_SECONDS)
        if spans is not None:
            await _unless_asked(spans.close(), asked.to_hurry(), within=_LOST_SECONDS if lost else _SPANS_SECONDS)
        for work in works:
            work.cancel()
        for outcome in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        _log.info("stopped")
        return asked.by


def _with_own_namespace(settings: Settings) -> Settings:
    """The settings with the service's namespace, which a pod's environment may give."""
    namespace = settings.service_namespace or settings.lease_namespace or namespace_of_pod(os.environ)
    return settings.model_copy(update={"service_namespace": namespace or None})


async def _replica(
    settings: Settings, credentials: Credentials, port: int, stack: AsyncExitStack, tracing: Tracing | None
) -> Replica:
    """This process as one of several. Raises BadSettings, BadConfiguration."""
    candidate = Candidate.of(settings, port, os.environ, MACHINE.unique())
    # Connections of their own: a renewal must not wait behind a gang's Bindings, reviews, or this loop.
    reviews = await stack.enter_async_context(Connection(credentials))
    lease = OwnLoop("lease")
    stack.callback(lease.close)
    election = await lease.do(_connected(settings))
    stack.push_async_callback(lambda: lease.do(election.close()))
    return Replica(
        candidate,
        election,
        lambda permit: _entered(stack, Connection(credentials, permit)),
        settings,
        elsewhere=lease.do,
        reviews=reviews,
        open_files=raise_limit(),
        memory=ControlGroup().memory,
        tracing=tracing,
    )


async def _connected(settings: Settings) -> Connection:
    return Connection(await Credentials.load(default_loader(settings.kubeconfig, settings.context)))


def _entered(stack: AsyncExitStack, connection: Connection) -> Connection:
    stack.push_async_callback(connection.close)
    return connection


async def _unless_asked(
    work: Coroutine[Any, Any, object] | asyncio.Future[Any],
    asked: Coroutine[Any, Any, None],
    within: float | None = None,
) -> bool:
    """Whether `work` ends before `asked` and within the time; if not, it is cancelled."""
    both = doing, _ = asyncio.ensure_future(work), asyncio.ensure_future(asked)
    await asyncio.wait(both, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    over = doing.done()
    for each in both:
        each.cancel()
    await asyncio.wait(both)
    return over
