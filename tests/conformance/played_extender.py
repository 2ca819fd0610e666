"""An extender of the tests' own, where the scheduler looks for ours: it notes calls, and answers as it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from lab.controlplane.api import Api

Json = dict[str, Any]
Answer = Callable[[Json], Any]


@dataclass
class PlayedExtender:
    """`answers`: by verb, what is said to the arguments of a call; after `reset`, all is as the scheduler likes."""

    api: Api
    calls: list[tuple[float, str, Json]] = field(default_factory=list)
    """When (monotonic), verb, arguments."""
    answers: dict[str, Answer] = field(default_factory=dict)

    def reset(self) -> None:
        self.calls.clear()
        self.answers = {"filter": passes, "prioritize": lambda asked: [], "bind": self.binds, "preempt": agrees}

    def of(self, verb: str, pod: str) -> list[tuple[float, Json]]:
        """The calls about that pod: when, and with what."""
        return [(when, asked) for when, called, asked in list(self.calls) if called == verb and _name(asked) == pod]

    def binds(self, asked: Json) -> Json:
        path = f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": asked["Node"]}
        self.api.post(path, {"metadata": {"name": asked["PodName"], "uid": asked["PodUID"]}, "target": target})
        return {"Error": ""}

    def answer(self, verb: str, asked: Json) -> Any:
        self.calls.append((time.monotonic(), verb, asked))
        return self.answers[verb](asked)


def passes(asked: Json) -> Json:
    return {"Nodes": None, "NodeNames": asked["NodeNames"], "FailedNodes": {}, "Error": ""}


def leaves(*nodes: str) -> Answer:
    """Of the nodes sent only these."""

    def answer(asked: Json) -> Json:
        kept = [name for name in asked["NodeNames"] if name in nodes]
        gone = dict.fromkeys((name for name in asked["NodeNames"] if name not in nodes), "not today")
        return {"Nodes": None, "NodeNames": kept, "FailedNodes": gone, "Error": ""}

    return answer


def agrees(asked: Json) -> Json:
    return {"NodeNameToMetaVictims": asked["NodeNameToMetaVictims"]}


def _name(asked: Json) -> str:
    name: str = asked["PodName"] if "PodName" in asked else asked["Pod"]["metadata"]["name"]
    return name


@contextmanager
def listening(url: str, api: Api) -> Iterator[PlayedExtender]:
    """It answers at that address until the block ends."""
    played = PlayedExtender(api)
    played.reset()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(played.answer(self.path.rpartition("/")[2], asked)).encode()
            # A scheduler that has stopped waiting is no defect of a test.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    parts = urlsplit(url)
    server = ThreadingHTTPServer((parts.hostname or "127.0.0.1", parts.port or 80), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
