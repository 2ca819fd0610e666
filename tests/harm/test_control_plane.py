"""What follows a control plane: the log as it grows, watches and log in one order; no server, no waiting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadtests.harm import harms
from loadtests.harm.control_plane import AuditLog, Follower
from tests.harm.chronicle import EPOCH, stamp

Json = dict[str, Any]


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
    nobody: Any = None
    follower = Follower(nobody, log, paths={}, now=lambda: now[0], lag=0.0)
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
