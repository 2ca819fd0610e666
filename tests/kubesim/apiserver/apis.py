"""An API server without sockets, and short ways to ask it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import yaml

from kubesim.apiserver.serving.api import Answer, ApiServer, Request, Watch
from kubesim.clock import Clock
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, Json

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EPHEMERALS = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
_CRDS = Path(__file__).parents[3] / "deploy" / "crds" / "ephemeralresources.yaml"


@cache
def definition() -> Json:
    """That of EphemeralResource."""
    return dict(yaml.safe_load(_CRDS.read_text()))


class Api:
    """Make it inside a running event loop."""

    def __init__(self, token: str | None = None) -> None:
        self.server = ApiServer(Clock(), random.Random(7), token=token)
        self.store = self.server.store

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """The status and the parsed answer."""
        answer = self.answer(method, path, body, media=media, headers=headers)
        try:
            return answer.status, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.body.decode()

    def answer(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        where, _, query = path.partition("?")
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"accept": JSON, "content-type": media, **(headers or {})}
        answer = self.server.handle(
            Request(method, where, dict(parse_qsl(query, keep_blank_values=True)), sent, content)
        )
        assert not isinstance(answer, Watch)
        return answer

    def ok(self, method: str, path: str, body: object = None, *, media: str = JSON, accept: str = JSON) -> Json:
        status, answer = self.ask(method, path, body, media=media, headers={"accept": accept})
        assert 200 <= status < 300, answer
        return dict(answer)

    def refused(self, method: str, path: str, body: object = None, *, media: str = JSON) -> tuple[int, str, str]:
        """Status, reason and message of the refusal."""
        status, answer = self.ask(method, path, body, media=media)
        assert status >= 300, answer
        assert answer["code"] == status
        return status, answer.get("reason", ""), answer["message"]

    def get(self, path: str) -> Json:
        return self.ok("GET", path)

    def names(self, path: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.get(path)["items"]]

    def watch(self, path: str, accept: str = JSON) -> Watch:
        where, _, query = path.partition("?")
        request = Request("GET", where, {"watch": "1", **dict(parse_qsl(query))}, {"accept": accept})
        answer = self.server.handle(request)
        assert isinstance(answer, Watch)
        return answer

    def install_ephemerals(self) -> None:
        """The kind EphemeralResource is served."""
        self.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), definition())


def pod(
    name: str = "p", *, labels: Mapping[str, str] | None = None, asks: Mapping[str, str] | None = None, **spec: Any
) -> Json:
    """A pod of one container; `asks` are its limits."""
    container: Json = {"name": "main", "image": "pause:3.10"}
    if asks:
        container["resources"] = {"limits": dict(asks)}
    metadata: Json = {"name": name} | ({"labels": dict(labels)} if labels else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def node(name: str = "n", **capacity: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": capacity or {"cpu": "4"}},
    }


def binding(name: str, to: str = "n", **metadata: str) -> Json:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": to}}


def ephemeral(name: str = "data", **spec: Any) -> Json:
    given = spec or {"nodes": {"n": 2}}
    return {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": name}, "spec": given}
