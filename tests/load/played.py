"""Locust played, as far as the users' files need it: it lives in an environment of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest


class Hook:
    """As one of Locust's events. `fired`: with what."""

    def __init__(self) -> None:
        self.fired: list[dict[str, Any]] = []

    def add_listener(self, listener: Callable[..., None]) -> Callable[..., None]:
        return listener

    def fire(self, **said: Any) -> None:
        self.fired.append(said)


def locustfile(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Any:
    """The module, imported anew with these variables set. What is not given is not set."""
    played: Any = ModuleType("locust")
    played.FastHttpUser = type("FastHttpUser", (), {})
    played.LoadTestShape = type("LoadTestShape", (), {})
    played.constant = played.task = lambda given: given
    played.between = lambda least, most: (least, most)
    played.events = SimpleNamespace(
        **{name: Hook() for name in ("init", "request", "test_start", "test_stop", "quitting")}
    )
    monkeypatch.setitem(sys.modules, "locust", played)
    for name in ("REFERENCE", "LOAD_CLUSTER", "LOAD_SHAPE", "LOAD_FOLDER", "LOAD_RATE"):
        monkeypatch.setenv(name, environment.get(name, ""))
    for name in ("loadtests.locustfile", "loadtests.load.users"):
        package, _, module = name.rpartition(".")
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(importlib.import_module(package), module, raising=False)
    return importlib.import_module("loadtests.locustfile")


class Real:
    """As Locust's client, to a service that is there. Notes what failed, and how each call ended."""

    def __init__(self, url: str) -> None:
        self.failures: list[str] = []
        self.named: list[str] = []
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)

    @contextmanager
    def request(self, method: str, path: str, *, name: str, catch_response: bool, **more: Any) -> Iterator[Any]:
        assert catch_response
        if "data" in more:
            more["content"] = more.pop("data")
        answer = self._client.request(method, path, **more)
        meta = {"name": name}
        yield SimpleNamespace(
            status_code=answer.status_code,
            json=answer.json,
            text=answer.text,
            failure=lambda why: self.failures.append(f"{name}: {why}"),
            request_meta=meta,
        )
        self.named.append(meta["name"])

    def post(self, path: str, **more: Any) -> Any:
        return self.request("POST", path, **more)

    def close(self) -> None:
        self._client.close()
