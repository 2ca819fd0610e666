"""What follows a control plane: watches through gaps, the log as it grows, both in one order; no server, no waiting."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests.harm import harms
from loadtests.harm.control_plane import AuditLog, Follower, Watching
from tests.harm.chronicle import EPOCH, stamp

Json = dict[str, Any]
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


def pod(name: str, version: int, *, node: str = "n0", phase: str = "Running", **more: Any) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            **more,
        },
        "spec": {"schedulerName": "escher", "nodeName": node},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def told_by(server: Server) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    watching = Watching(
        server, PODS, "Pod", lambda event: told.append((event["type"], event["object"]["metadata"]["name"]))
    )
    thread = threading.Thread(target=watching.run, daemon=True)
    thread.start()
    assert server.idle.wait(10)
    watching.end()
    thread.join(10)
    return told


def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    events = [{"type": "MODIFIED", "object": pod("a", 5)}, ConnectionError("killed")]
    server = Server([[pod("a", 1)]], [events, [{"type": "DELETED", "object": pod("a", 7)}]])
    assert told_by(server) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert server.asked_from == ["1", "5"]


def test_what_a_gap_has_hidden_is_told() -> None:
    gone = [{"type": "ERROR", "object": {"code": 410}}]
    server = Server([[pod("a", 1), pod("b", 1)], [pod("b", 9), pod("c", 9)]], [gone, []])
    told = told_by(server)
    assert told[:3] == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert sorted(told[3:]) == [("ADDED", "b"), ("ADDED", "c")]


def test_a_server_that_starts_is_asked_again() -> None:
    assert told_by(Server([ConnectionError("away"), [pod("a", 1)]], [[]])) == [("ADDED", "a")]


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    reader = AuditLog(log)
    assert reader.more() == []
    log.write_bytes(b'{"auditID": "1"}\n{"audit')
    assert reader.more() == [{"auditID": "1"}]
    with log.open("ab") as file:
        file.write(b'ID": "2"}\nnot JSON\n{"auditID": "3"}\n')
    assert reader.more() == [{"auditID": "2"}, {"auditID": "3"}]


def test_watches_and_log_are_judged_together_in_the_order_of_time(tmp_path: Path) -> None:
    log, now = tmp_path / "audit.log", [EPOCH]
    follower = Follower(Server([[]], []), log, paths={}, now=lambda: now[0], lag=0.0)
    for name in ("a", "b"):
        follower._hear({"type": "ADDED", "object": {**pod(name, 1), "kind": "Pod"}})
    now[0] += 10
    asked = {"stage": "ResponseComplete", "verb": "delete", "responseStatus": {"code": 200}}
    asked |= {"objectRef": {"resource": "pods", "namespace": "default", "name": "a"}}
    asked |= {"user": {"username": "admin"}, "stageTimestamp": stamp(EPOCH + 5, micro=True)}
    log.write_text(json.dumps(asked) + "\n")
    for name in ("a", "b"):
        follower._hear({"type": "DELETED", "object": {**pod(name, 2), "kind": "Pod"}})
    now[0] += 1000
    follower.finish()
    [harm] = follower.violations()
    assert (harm.rule, harm.pod) == (harms.VANISHED, "default/b")
    assert follower.new_violations() == [harm]
    assert follower.new_violations() == []
