"""Papers: certificates in files, as a server and its callers have them; and a server that asks for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme

from extender.adapters.http.server.asgi import Service
from extender.adapters.http.server.listening import http_server
from extender.adapters.http.server.tls import ServedCertificates
from extender.settings.settings import Settings
from tests.adapters.http.fakes import listening

SCHEDULER = "system:kube-scheduler"


@dataclass
class Papers:
    """What the server has in files: its certificate and key, and the authorities of its callers."""

    folder: Path

    def __post_init__(self) -> None:
        self.certificate, self.key = self.folder / "tls.crt", self.folder / "tls.key"
        self.client_ca = self.folder / "client-ca.crt"

    def serve_with(self, authority: trustme.CA) -> None:
        """A new certificate of the authority, and its key."""
        issued = authority.issue_cert("127.0.0.1")
        self.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())

    def trust(self, *authorities: trustme.CA) -> None:
        """Callers are believed whose certificates these signed."""
        self.client_ca.write_bytes(b"".join(each.cert_pem.bytes() for each in authorities))

    def served(self, **named: Any) -> ServedCertificates:
        return ServedCertificates(self.certificate, self.key, self.client_ca, **named)


def caller(trusting: trustme.CA, shown_by: trustme.CA | None = None, name: str = SCHEDULER) -> ssl.SSLContext:
    """What a caller goes by: whom it trusts, and the certificate of that name that it shows, signed by `shown_by`."""
    context = ssl.create_default_context()
    trusting.configure_trust(context)
    if shown_by is not None:
        shown_by.issue_cert("caller.test", common_name=name).configure_cert(context)
    return context


@asynccontextmanager
async def over_tls(app: Service, certificates: ServedCertificates) -> AsyncIterator[str]:
    """The address of a server as `escher serve` makes it."""
    listener = listening()
    server = http_server(app, Settings.model_validate({}), certificates=certificates)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def calling(address: str, context: ssl.SSLContext) -> httpx.AsyncClient:
    """A caller of its own connections."""
    return httpx.AsyncClient(base_url=address, verify=context, trust_env=False, timeout=20)
