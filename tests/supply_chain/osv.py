"""A vulnerability service on loopback that speaks as OSV does, and knows what it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Service:
    url: str
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    """The version that mends it, by name and version of what is vulnerable."""
    status: int = 200
    asked: list[tuple[str, str]] = field(default_factory=list)

    def says(self, name: str, version: str) -> dict[str, Any]:
        self.asked.append((name, version))
        if (name, version) not in self.known:
            return {}
        package = {"name": name, "ecosystem": "PyPI"}
        events = [{"introduced": "0"}, {"fixed": self.known[name, version]}]
        affected = [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]
        return {"vulns": [{"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "summary": "bad", "affected": affected}]}


@contextmanager
def serving() -> Iterator[Service]:
    """While the block lasts."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(service.says(said["package"]["name"], said["version"])).encode()
            self.send_response(service.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    service = Service(f"http://127.0.0.1:{server.server_address[1]}/v1/query")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
