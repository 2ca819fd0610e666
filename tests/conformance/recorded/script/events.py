"""Events of both groups: one object, two forms."""

from __future__ import annotations

from tests.conformance.recorded.asks import get, merge, post
from tests.conformance.recorded.script.objects import MOMENT, NAMESPACES, namespace

CORE = f"{NAMESPACES}/told/events"
NEW = "/apis/events.k8s.io/v1/namespaces/told/events"
MICRO = "2026-01-01T00:00:00.000000Z"
EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e1"},
    "eventTime": MICRO,
    "reportingController": "escher",
    "reportingInstance": "i",
    "type": "Normal",
    "reason": "R",
    "action": "A",
    "note": "hello",
    "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "told", "name": "p", "uid": "u"},
}
OLD_EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e4"},
    "involvedObject": {"kind": "Pod", "namespace": "told", "name": "q"},
    "reason": "Z",
    "message": "m",
    "type": "Warning",
    "count": 1,
    "firstTimestamp": MOMENT,
}

ASKS = [
    post(NAMESPACES, namespace("told")),
    post(NEW, EVENT),
    post(NEW, EVENT),
    get(f"{CORE}/e1"),
    get(f"{NEW}/e1"),
    post(NEW, {**EVENT, "metadata": {"name": "e2"}, "type": "Foo", "note": "x" * 2000, "action": ""}, id="all-wrong"),
    post(NEW, {**EVENT, "metadata": {"name": "e3"}, "regarding": {"namespace": "other"}}),
    post(CORE, OLD_EVENT),
    get(f"{NEW}/e4"),
    get(f"{CORE}?fieldSelector=involvedObject.name=q"),
    get(f"{NEW}?fieldSelector=regarding.name=q"),
    get(f"{NEW}?fieldSelector=reason=Z"),
    merge(f"{CORE}/e4", {"count": 2}),
    merge(f"{NEW}/e1", {"series": {"count": 2, "lastObservedTime": MICRO}}),
]
