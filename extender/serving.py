"""Serving: the application behind an HTTP server, from the first signal of life to the last answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from signal import Signals
from typing import Any

import structlog

from extender.adapters.http.listening import bound, http_server
from extender.adapters.http.tls import served_certificates
from extender.adapters.metrics import CertificateMetrics, CredentialMetrics
from extender.adapters.open_files import raise_limit
from extender.bootstrap import Application
from extender.kube.connection import Connection
from extender.kube.credentials import Credentials, default_loader
from extender.settings import Settings
from extender.stopping import Asked

_log = structlog.get_logger(__name__)

_DRAIN_SECONDS = 5.0


async def serve(
    settings: Settings, file: Path | None = None, load: Callable[[], Settings] | None = None
) -> Signals | None:
    """The service has run until a signal asked it to end: that one is answered.

    Raises CannotListen, BadConfiguration, BadPolicy, and what a part of it died of. `load` reads the settings `file`
    again, in which some may be changed meanwhile.
    """
    certificates = served_certificates(settings)
    async with AsyncExitStack() as stack:
        asked = stack.enter_context(Asked())
        sockets = bound(settings.host, settings.port)
        for opened in sockets:
            stack.callback(opened.close)
        # A plugin that is asked for credentials may take its time.
        loading = asyncio.create_task(Credentials.load(default_loader(settings.kubeconfig, settings.context)))
        if not await _unless_asked(loading, asked.to_end()):
            return asked.by
        credentials = loading.result()
        connection = await stack.enter_async_context(Connection(credentials))
        application = Application(connection, settings, open_files=raise_limit())
        application.registry.register(CredentialMetrics(credentials))
        service = application.asgi(settings)
        server = http_server(service, settings, application.connections, certificates)
        beside = [application.settle_memory()]
        if certificates is not None:
            application.registry.register(CertificateMetrics(certificates))
            beside.append(certificates.run())
        if file is not None and load is not None:
            beside.append(application.settings_file(file, load, settings).run())
        following = asyncio.create_task(application.run(*beside))
        serving = asyncio.create_task(server.serve(sockets))
        at = ["{}:{}".format(*each.getsockname()) for each in sockets]
        _log.info("starting", at=at, tls=settings.tls_certificate is not None)
        if settings.insecure and settings.tls_client_ca is None:
            _log.warning("whoever reaches the port may call kube-scheduler's verbs", setting="insecure")
        await _unless_asked(asyncio.wait({following, serving}, return_when=asyncio.FIRST_COMPLETED), asked.to_end())
        _log.info("stopping", asked_by=asked.by.name if asked.by is not None else "")
        # Those who wait at a barrier first: the server waits for the answers to its calls.
        await application.close()
        server.should_exit = True
        await _unless_asked(asyncio.wait({serving}), asked.to_hurry())
        # What is being written to the API server may still be answered there, after its caller has left.
        await _unless_asked(service.calls.drain(), asked.to_hurry(), within=_DRAIN_SECONDS)
        serving.cancel()
        following.cancel()
        for outcome in await asyncio.gather(serving, following, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        _log.info("stopped")
        return asked.by


async def _unless_asked(
    work: Coroutine[Any, Any, object] | asyncio.Task[Any],
    asked: Coroutine[Any, Any, None],
    within: float | None = None,
) -> bool:
    """Whether the work is over before `asked` is, and in time; otherwise it is cancelled."""
    both = doing, _ = asyncio.ensure_future(work), asyncio.ensure_future(asked)
    await asyncio.wait(both, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    over = doing.done()
    for each in both:
        each.cancel()
    await asyncio.wait(both)
    return over
