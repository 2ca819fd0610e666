"""Namespaces are followed for their labels; nothing waits for ever where they may not be, and that is said once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest
from structlog.testing import capture_logs

from extender.adapters.kube.namespaces import Labels, namespaces
from extender.adapters.kube.reflector import Reflector
from extender.core.cluster import Namespace
from extender.kube.errors import Refused, Unavailable
from tests.adapters.kube.manifests import Json, event, page
from tests.adapters.kube.scripted_api import RecordingSink, ScriptedApi

pytestmark = pytest.mark.anyio


def namespace(name: str, version: int = 1, labels: Mapping[str, str] | None = None) -> Json:
    metadata = {"name": name, "resourceVersion": str(version)} | ({"labels": labels} if labels is not None else {})
    return {"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


class Following:
    def __init__(self) -> None:
        self.api = ScriptedApi()
        self.sink: RecordingSink[Namespace] = RecordingSink()
        kind, api = namespaces(), self.api
        reflector = Reflector(api, kind, self.sink, sleep=api.sleep, clock=api.clock, chance=lambda: 0.5)
        self.labels = Labels(api, reflector, api.sleep)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.labels.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_labels_are_known_once_they_have_been_listed_and_are_followed_from_there() -> None:
    following = Following()
    first = page([namespace("team"), namespace("lab", labels={"escher.dev/preempt": "off"})])
    following.api.answers += [first, first]
    following.api.watches.append([event("MODIFIED", namespace("team", 12, {"a": "b"}))])
    async with following.running():
        await following.labels.known.wait()
        assert following.sink.items["lab"] == Namespace("lab", {"escher.dev/preempt": "off"})
        await following.api.exhausted.wait()
    assert following.sink.items["team"] == Namespace("team", {"a": "b"})


async def test_where_namespaces_may_not_be_listed_nobody_waits_and_it_is_said_once() -> None:
    following = Following()
    forbidden = Refused(403, "forbidden")
    following.api.answers += [forbidden, forbidden, forbidden]
    with capture_logs() as lines:
        async with following.running():
            await following.labels.known.wait()
            await following.api.exhausted.wait()
    assert [line["log_level"] for line in lines] == ["warning"]
    assert following.api.slept == [60.0, 60.0, 60.0]
    assert not following.sink.log


async def test_they_are_followed_from_the_moment_that_it_is_allowed() -> None:
    following = Following()
    following.api.answers += [Refused(403, "forbidden"), page([]), page([namespace("team")])]
    async with following.running():
        await following.api.exhausted.wait()
    assert following.sink.log == ["replace team"]


async def test_an_api_server_that_cannot_be_reached_is_asked_again_and_nothing_is_taken_for_known() -> None:
    following = Following()
    following.api.answers += [Unavailable("away"), Unavailable("away")]
    async with following.running():
        await following.api.exhausted.wait()
    assert not following.labels.known.is_set()
    assert following.api.slept == [1.0, 1.0]
