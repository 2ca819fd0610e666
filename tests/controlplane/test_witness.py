"""The witness: watches through gaps, ends and restarts, in a thread and in the event loop; no server, no waiting."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from lab.controlplane.witness import Changing, Collection, Late, Sighting, Watching, following, name_of

Json = dict[str, Any]
Told = list[tuple[str, str]]
PODS = "/api/v1/pods"


class Refusal(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Server:
    """Answers lists and watches as it was told beforehand; when there are no more watches, `idle` is set."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.asked_from: list[str] = []
        self.idle = threading.Event()

    def get(self, path: str, **query: Any) -> Json:
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer, "metadata": {"resourceVersion": "1"}}

    def watch(self, path: str, **query: Any) -> Iterator[Json]:
        if not self.watches:
            self.idle.set()
            threading.Event().wait(0.01)
            return
        self.asked_from.append(query["resourceVersion"])
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event

    # -- the same for the event loop

    async def request(self, method: str, path: str) -> bytes:
        return json.dumps(self.get(path)).encode()

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        if not self.watches:
            self.idle.set()
            await asyncio.Event().wait()
        for event in self.watch(path, resourceVersion=path.rpartition("=")[2]):
            yield json.dumps(event).encode()


def pod(name: str, version: int, **more: Any) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version), **more}
    return {"metadata": metadata, "spec": {}}


def collection(hear: Callable[[Sighting[str]], None]) -> Collection[str]:
    return Collection(PODS, "Pod", hear, read=name_of)


def told_to_a_thread(server: Server) -> Told:
    told: Told = []
    watching = Watching(server, collection(lambda sighting: told.append((sighting.type, sighting.seen))))
    thread = threading.Thread(target=watching.run, daemon=True)
    thread.start()
    assert server.idle.wait(10)
    watching.end()
    thread.join(10)
    assert not thread.is_alive()
    return told


def told_to_a_loop(server: Server) -> Told:
    told: Told = []

    async def follow() -> None:
        async with following(server, collection(lambda sighting: told.append((sighting.type, sighting.seen)))):
            assert await asyncio.to_thread(server.idle.wait, 10)

    asyncio.run(follow())
    return told


@pytest.fixture(params=[told_to_a_thread, told_to_a_loop])
def told_by(request: pytest.FixtureRequest) -> Callable[[Server], Told]:
    chosen: Callable[[Server], Told] = request.param
    return chosen


def test_a_watch_that_breaks_goes_on_where_it_was(told_by: Callable[[Server], Told]) -> None:
    events = [{"type": "MODIFIED", "object": pod("a", 5)}, ConnectionError("killed")]
    server = Server([[pod("a", 1)]], [events, [{"type": "DELETED", "object": pod("a", 7)}]])
    assert told_by(server) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert server.asked_from == ["1", "5"]


def test_a_bookmark_says_how_far_the_watch_has_come_and_nothing_else(told_by: Callable[[Server], Told]) -> None:
    server = Server([[]], [[{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}], []])
    assert told_by(server) == []
    assert server.asked_from == ["1", "9"]


@pytest.mark.parametrize("expired", [{"type": "ERROR", "object": {"code": 410}}, Refusal(410)])
def test_what_a_gap_has_hidden_is_told(told_by: Callable[[Server], Told], expired: Any) -> None:
    server = Server([[pod("a", 1), pod("b", 1), pod("d", 1)], [pod("b", 9), pod("c", 9), pod("d", 1)]], [[expired], []])
    told = told_by(server)
    assert told[:4] == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "d"), ("DELETED", "a")]
    assert sorted(told[4:]) == [("ADDED", "b"), ("ADDED", "c")]


def test_a_server_that_starts_is_asked_again(told_by: Callable[[Server], Told]) -> None:
    assert told_by(Server([ConnectionError("away"), [pod("a", 1)]], [[]])) == [("ADDED", "a")]


def test_an_error_that_is_not_of_the_version_hides_nothing(told_by: Callable[[Server], Told]) -> None:
    confused = {"type": "ERROR", "object": {"code": 500}}
    server = Server([[]], [[{"type": "ADDED", "object": pod("a", 3)}, confused], []])
    assert told_by(server) == [("ADDED", "a")]
    assert server.asked_from == ["1", "3"]


def test_what_is_not_installed_has_begun_all_the_same() -> None:
    watching = Watching(Server([Refusal(404)], []), collection(lambda sighting: None))
    watching.start()
    assert watching.begun.wait(10)
    watching.end()


def test_a_sighting_says_what_was_known_before_and_what_went_unseen_went_at_the_last_version_heard() -> None:
    def node_of(found: Json) -> str:
        return str(found["spec"].get("nodeName"))

    seen: list[Sighting[str]] = []
    watched = Collection(PODS, "Pod", seen.append, read=node_of, now=lambda: 2.5)
    bound = {**pod("a", 5), "spec": {"nodeName": "n1"}}
    watched.listed({"items": [pod("a", 1)], "metadata": {"resourceVersion": "4"}})
    watched.told({"type": "MODIFIED", "object": bound})
    watched.told({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}})
    assert watched.failed(Refusal(410)) is False
    assert (watched.is_lost, watched.gaps) == (True, 1)
    watched.listed({"items": [], "metadata": {"resourceVersion": "12"}})
    assert seen == [
        Sighting(1, 2.5, "Pod", "ADDED", "None"),
        Sighting(5, 2.5, "Pod", "MODIFIED", "n1", "None"),
        Sighting(8, 2.5, "Pod", "DELETED", "n1", "n1"),
    ]
    assert (watched.known, watched.version, watched.is_lost) == ({}, 12, False)


def test_a_defect_of_who_hears_is_not_taken_for_a_failure_of_the_server() -> None:
    def hear(sighting: Sighting[str]) -> None:
        raise ZeroDivisionError

    async def follow() -> None:
        async with following(Server([[pod("a", 1)]], []), collection(hear)):
            pass

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(follow())
    assert raised.value.subgroup(ZeroDivisionError)


def test_what_changes_is_waited_for_and_not_for_ever() -> None:
    async def wait() -> None:
        something, seen = Changing(), list[int]()

        def change() -> None:
            seen.append(1)
            something.has_changed()

        asyncio.get_running_loop().call_soon(change)
        await something.until(lambda: bool(seen), "the first")
        assert something.version == 1
        with pytest.raises(Late, match=r"the second: not within 0\.01 s"):
            await something.until(lambda: len(seen) > 1, "the second", within=0.01)

    asyncio.run(wait())
