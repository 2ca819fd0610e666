"""One HTTP request to a server on this machine, by the standard library only, for the supervisor.

It makes one connection per request and does not retry. `lab.controlplane.api` is the client for tests and commands.
"""

from __future__ import annotations

import http.client
import json
import ssl
from urllib.parse import urlsplit


class Unreachable(Exception):
    """No complete answer came: refused, reset, timed out."""


def ask(
    method: str,
    url: str,
    *,
    trust: ssl.SSLContext | None = None,
    token: str | None = None,
    body: object = None,
    content_type: str = "application/json",
    timeout: float = 5,
) -> tuple[int, bytes]:
    """Status and body of the answer. Raises Unreachable if none comes within `timeout` seconds."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout, context=trust)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=timeout)
    )
    headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{method} {url}: {error}") from error
    finally:
        connection.close()
