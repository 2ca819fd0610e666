"""Tables: what kubectl prints of objects, which is what kube-apiserver puts into cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubesim import kinds
from kubesim.apiserver.representation import tables
from kubesim.apiserver.representation.ages import human_duration
from kubesim.kinds import Json, Kind

CRDS = Path(__file__).parents[3] / "deploy" / "crds" / "ephemeralresources.yaml"
(EPHEMERAL,) = kinds.custom(yaml.safe_load(CRDS.read_text()))
NOW = 1767225600.0  # 2026-01-01T00:00:00Z
EARLIER = "2025-12-31T23:56:30Z"


def _object(name: str, **fields: Any) -> Json:
    return {"metadata": {"name": name, "creationTimestamp": EARLIER}} | fields


def _pod(name: str, phase: str = "Running", *containers: Json, spec: Json | None = None, **status: Any) -> Json:
    asked = {"containers": [{"name": each["name"], "image": "x"} for each in containers] or [{"name": "c"}]}
    reported = {"phase": phase, "containerStatuses": list(containers)} | status
    return _object(name, spec=asked | (spec or {}), status=reported)


def _container(name: str = "c", *, ready: bool = False, restarts: int = 0, **state: Any) -> Json:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


RUNNING = {"startedAt": EARLIER}


def _printed(kind: Kind, *items: Json, wide: bool = False) -> list[str]:
    """As kubectl lays a table out."""
    table = tables.table(kind, items, NOW, {"resourceVersion": "7"})
    shown = [at for at, each in enumerate(table["columnDefinitions"]) if wide or not each["priority"]]
    for row in table["rows"]:
        assert len(row["cells"]) == len(table["columnDefinitions"])
    lines = [[table["columnDefinitions"][at]["name"].upper() for at in shown]]
    lines += [["" if row["cells"][at] is None else str(row["cells"][at]) for at in shown] for row in table["rows"]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(shown))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _status_of(pod: Json) -> str:
    (line,) = tables.table(kinds.POD, [pod], NOW, {})["rows"]
    return str(line["cells"][2])


def test_pods() -> None:
    restarted = _container(ready=True, restarts=2, running=RUNNING)
    restarted["lastState"] = {"terminated": {"exitCode": 1, "finishedAt": "2025-12-31T23:50:00Z"}}
    pods = [
        _pod(
            "gated",
            "Pending",
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            spec={"schedulingGates": [{"name": "escher.dev/gang"}]},
        ),
        _pod("waits", "Pending", nominatedNodeName="n2"),
        _pod(
            "runs",
            "Running",
            restarted,
            _container("d", running=RUNNING),
            spec={"nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
            podIP="10.0.0.7",
            conditions=[{"type": "a", "status": "True"}],
        ),
    ]
    assert _printed(kinds.POD, *pods) == [
        "NAME    READY   STATUS            RESTARTS      AGE",
        "gated   0/1     SchedulingGated   0             3m30s",
        "waits   0/1     Pending           0             3m30s",
        "runs    1/2     Running           2 (10m ago)   3m30s",
    ]
    wide = tables.table(kinds.POD, pods, NOW, {})["rows"]
    assert [row["cells"][5:] for row in wide] == [
        ["<none>", "<none>", "<none>", "<none>"],
        ["<none>", "<none>", "n2", "<none>"],
        ["10.0.0.7", "n1", "<none>", "1/2"],
    ]


ENDED = _container(terminated={"exitCode": 0, "reason": "Completed"})
FAILED = _container("d", terminated={"exitCode": 3, "reason": "Error"})


@pytest.mark.parametrize(
    ("status", "pod"),
    [
        ("Completed", _pod("p", "Succeeded", ENDED)),
        ("Error", _pod("p", "Failed", FAILED)),
        ("Error", _pod("p", "Failed", ENDED, FAILED)),
        ("Evicted", _pod("p", "Failed", reason="Evicted")),
        ("ExitCode:3", _pod("p", "Failed", _container(terminated={"exitCode": 3}))),
        ("Signal:9", _pod("p", "Failed", _container(terminated={"exitCode": 137, "signal": 9}))),
        ("ContainerCreating", _pod("p", "Pending", _container(waiting={"reason": "ContainerCreating"}))),
        ("CrashLoopBackOff", _pod("p", "Running", _container(waiting={"reason": "CrashLoopBackOff"}))),
        ("NotReady", _pod("p", "Running", ENDED, _container("d", ready=True, running=RUNNING))),
        (
            "Running",
            _pod(
                "p",
                "Running",
                ENDED,
                _container("d", ready=True, running=RUNNING),
                conditions=[{"type": "Ready", "status": "True"}],
            ),
        ),
    ],
)
def test_the_status_of_a_pod_is_that_of_its_containers(status: str, pod: Json) -> None:
    assert _status_of(pod) == status


@pytest.mark.parametrize(
    ("phase", "reason", "status"),
    [
        ("Running", "", "Terminating"),
        ("Pending", "", "Terminating"),
        ("Succeeded", "", "Succeeded"),
        ("Running", "NodeLost", "Unknown"),
    ],
)
def test_a_pod_that_is_being_deleted_says_so_unless_it_has_ended(phase: str, reason: str, status: str) -> None:
    pod = _pod("p", phase, reason=reason)
    pod["metadata"]["deletionTimestamp"] = EARLIER
    assert _status_of(pod) == status


INIT = {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}


@pytest.mark.parametrize(
    ("init", "ready", "status"),
    [
        ([_container("i", running=RUNNING)], "0/2", "Init:0/2"),
        ([_container("i", waiting={"reason": "PodInitializing"})], "0/2", "Init:0/2"),
        ([_container("i", waiting={"reason": "ImagePullBackOff"})], "0/2", "Init:ImagePullBackOff"),
        ([_container("i", terminated={"exitCode": 2})], "0/2", "Init:ExitCode:2"),
        ([_container("i", terminated={"exitCode": 2, "reason": "Error"})], "0/2", "Init:Error"),
        (
            [
                _container("i", terminated={"exitCode": 0}),
                _container("s", ready=True, running=RUNNING) | {"started": True},
            ],
            "1/2",
            "PodInitializing",
        ),
    ],
)
def test_a_pod_that_initializes_says_how_far_it_is(init: list[Json], ready: str, status: str) -> None:
    waiting = _container(waiting={"reason": "PodInitializing"})
    pod = _pod("p", "Pending", waiting, spec=INIT, initContainerStatuses=init)
    (row,) = tables.table(kinds.POD, [pod], NOW, {})["rows"]
    assert row["cells"][1:3] == [ready, status]


def test_restarts_before_the_start_do_not_count_afterwards_but_those_of_sidecars_do() -> None:
    init = [
        _container("i", restarts=5, terminated={"exitCode": 0}),
        _container("s", restarts=2, running=RUNNING) | {"started": True},
    ]
    pod = _pod("p", "Running", _container(restarts=1, running=RUNNING), spec=INIT, initContainerStatuses=init)
    (row,) = tables.table(kinds.POD, [pod], NOW, {})["rows"]
    assert row["cells"][3] == "3"


def test_restarts_are_counted_up_to_the_init_container_that_is_not_done() -> None:
    init = [_container("i", restarts=1, terminated={"exitCode": 2}), _container("s", restarts=4, waiting={})]
    pod = _pod("p", "Pending", _container(waiting={}), spec=INIT, initContainerStatuses=init)
    (row,) = tables.table(kinds.POD, [pod], NOW, {})["rows"]
    assert row["cells"][3] == "1"


def test_a_pod_that_ended_has_a_row_that_is_complete() -> None:
    rows = tables.table(kinds.POD, [_pod("p", "Succeeded"), _pod("q", "Running")], NOW, {})["rows"]
    assert [each["type"] for each in rows[0]["conditions"]] == ["Completed"]
    assert "conditions" not in rows[1]


def test_nodes() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    nodes = [
        _object(
            "n1",
            status={
                "conditions": ready,
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.3", "kernelVersion": "6.1", "architecture": "amd64"},
            },
        ),
        _object("n2", spec={"unschedulable": True}, status={"conditions": ready}),
        _object("n3", status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
        _object("n4"),
    ]
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu", "node-role.kubernetes.io/": ""}
    nodes[0]["metadata"]["labels"] = labels
    assert _printed(kinds.NODE, *nodes) == [
        "NAME   STATUS                     ROLES        AGE     VERSION",
        "n1     Ready                      gpu,worker   3m30s   v1.36.3",
        "n2     Ready,SchedulingDisabled   <none>       3m30s",
        "n3     NotReady                   <none>       3m30s",
        "n4     Unknown                    <none>       3m30s",
    ]
    cells = tables.table(kinds.NODE, nodes[:1], NOW, {})["rows"][0]["cells"]
    assert cells[5:] == ["10.0.0.1", "<none>", "<unknown>", "6.1 (amd64)", "<unknown>"]


def test_jobs() -> None:
    template = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}
    selector = {
        "matchLabels": {"job": "j"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}, {"key": "z", "operator": "Exists"}],
    }
    started = {"startTime": "2025-12-31T23:57:00Z"}
    jobs = [
        _object("runs", spec={"completions": 3, "template": template, "selector": selector}, status=started),
        _object(
            "done",
            spec={"completions": 1},
            status=started
            | {
                "completionTime": "2025-12-31T23:57:09Z",
                "succeeded": 1,
                "conditions": [
                    {"type": "SuccessCriteriaMet", "status": "True"},
                    {"type": "Complete", "status": "True"},
                ],
            },
        ),
        _object("stays", spec={"parallelism": 4}, status={"conditions": [{"type": "Suspended", "status": "True"}]}),
        _object("failed", status={"conditions": [{"type": "Failed", "status": "True"}]}),
        _object("goes", status={"conditions": [{"type": "Suspended", "status": "True"}]}),
    ]
    jobs[-1]["metadata"]["deletionTimestamp"] = EARLIER
    assert _printed(kinds.JOB, *jobs) == [
        "NAME     STATUS        COMPLETIONS   DURATION   AGE",
        "runs     Running       0/3           3m         3m30s",
        "done     Complete      1/1           9s         3m30s",
        "stays    Suspended     0/1 of 4                 3m30s",
        "failed   Failed        0/1                      3m30s",
        "goes     Terminating   0/1                      3m30s",
    ]
    cells = [row["cells"][5:] for row in tables.table(kinds.JOB, jobs[:2], NOW, {})["rows"]]
    assert cells == [["a,b", "x,y", "a in (1,2),job=j,z"], ["", "", "<none>"]]


def test_events_of_either_api() -> None:
    core = _object(
        "e1",
        type="Normal",
        reason="Scheduled",
        message="bound to n1\n",
        count=3,
        involvedObject={"kind": "Pod", "name": "p", "fieldPath": "spec"},
        source={"component": "default-scheduler"},
        firstTimestamp="2025-12-31T23:58:00Z",
        lastTimestamp="2025-12-31T23:59:50Z",
    )
    newer = _object(
        "e2",
        type="Warning",
        reason="FailedScheduling",
        note="no node",
        regarding={"kind": "Pod", "name": "q"},
        reportingController="escher",
        reportingInstance="escher-0",
        eventTime="2025-12-31T23:59:00.000000Z",
        series={"count": 4, "lastObservedTime": "2025-12-31T23:59:55.500000Z"},
    )
    first = _printed(kinds.EVENT, core, wide=True)
    assert first[0].split()[:2] == ["LAST", "SEEN"]
    rows = [
        tables.table(kind, [item], NOW, {})["rows"][0]["cells"]
        for kind, item in ((kinds.EVENT, core), (kinds.EVENTS, newer))
    ]
    assert rows == [
        ["10s", "Normal", "Scheduled", "pod/p", "spec", "default-scheduler", "bound to n1", "2m", 3, "e1"],
        ["4s", "Warning", "FailedScheduling", "pod/q", "", "escher, escher-0", "no node", "60s", 4, "e2"],
    ]


def test_an_event_without_times_of_its_own_is_as_old_as_unknown() -> None:
    cells = tables.table(kinds.EVENT, [_object("e", involvedObject={"kind": "Node"})], NOW, {})["rows"][0]["cells"]
    assert (cells[0], cells[3], cells[7], cells[8]) == ("<unknown>", "node", "<unknown>", 1)


@pytest.mark.parametrize(
    ("kind", "item", "lines"),
    [
        (
            kinds.NAMESPACE,
            _object("default", status={"phase": "Active"}),
            ["NAME      STATUS   AGE", "default   Active   3m30s"],
        ),
        (
            kinds.LEASE,
            _object("l", spec={"holderIdentity": "escher-0"}),
            ["NAME   HOLDER     AGE", "l      escher-0   3m30s"],
        ),
        (
            kinds.PRIORITY_CLASS,
            _object("high", value=1000, preemptionPolicy="Never"),
            [
                "NAME   VALUE   GLOBAL-DEFAULT   AGE     PREEMPTIONPOLICY",
                "high   1000    False            3m30s   Never",
            ],
        ),
        (
            kinds.CONFIG_MAP,
            _object("c", data={"a": "1"}, binaryData={"b": "MQ=="}),
            ["NAME   DATA   AGE", "c      2      3m30s"],
        ),
        (
            kinds.SECRET,
            _object("s", type="Opaque", data={"a": "MQ=="}),
            ["NAME   TYPE     DATA   AGE", "s      Opaque   1      3m30s"],
        ),
        (kinds.SERVICE_ACCOUNT, _object("a"), ["NAME   AGE", "a      3m30s"]),
        (
            kinds.DISRUPTION_BUDGET,
            _object("b", spec={"minAvailable": "50%"}, status={"disruptionsAllowed": 1}),
            [
                "NAME   MIN AVAILABLE   MAX UNAVAILABLE   ALLOWED DISRUPTIONS   AGE",
                "b      50%             N/A               1                     3m30s",
            ],
        ),
        (
            kinds.CUSTOM_RESOURCE_DEFINITION,
            _object("ephemeralresources.escher.dev"),
            [
                "NAME                            CREATED AT",
                "ephemeralresources.escher.dev   2025-12-31T23:56:30Z",
            ],
        ),
    ],
    ids=lambda it: repr(it) if isinstance(it, Kind) else "",
)
def test_other_kinds(kind: Kind, item: Json, lines: list[str]) -> None:
    assert _printed(kind, item) == lines


def test_services() -> None:
    services = [
        _object(
            "web",
            spec={
                "type": "NodePort",
                "clusterIP": "10.96.0.9",
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
                "selector": {"b": "2", "a": "1"},
            },
        ),
        _object("none", spec={"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}),
        _object("lb", spec={"type": "LoadBalancer"}),
        _object("lb2", spec={"type": "LoadBalancer"}, status={"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
        _object("away", spec={"type": "ExternalName", "externalName": "example.com"}),
    ]
    assert _printed(kinds.SERVICE, *services, wide=True) == [
        "NAME   TYPE           CLUSTER-IP   EXTERNAL-IP   PORT(S)               AGE     SELECTOR",
        "web    NodePort       10.96.0.9    <none>        80:30080/TCP,53/UDP   3m30s   a=1,b=2",
        "none   ClusterIP      None         <none>        <none>                3m30s   <none>",
        "lb     LoadBalancer   <none>       <pending>     <none>                3m30s   <none>",
        "lb2    LoadBalancer   <none>       1.2.3.4       <none>                3m30s   <none>",
        "away   ExternalName   <none>       example.com   <none>                3m30s   <none>",
    ]


def test_a_custom_resource_has_the_columns_of_its_definition() -> None:
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True", "reason": "Set"}]
    set_by_hand = _object("r", spec={"nodes": {"n2": 1, "n1": 4}}, status={"conditions": conditions})
    chosen = _object("s", spec={"capacity": 4, "nodeSpec": {}, "expiresAt": "2025-12-31T23:59:00Z"})
    assert _printed(EPHEMERAL, set_by_hand, chosen, wide=True) == [
        "NAME   CAPACITY   NODES             CHOSEN   READY   REASON   EXPIRES   AGE",
        'r                 {"n1":4,"n2":1}            True    Set                3m30s',
        "s      4                                                      60s       3m30s",
    ]


def _one_cell(path: str, of_type: str, item: Json) -> Any:
    columns = ({"name": "It", "type": of_type, "jsonPath": path},)
    kind = Kind("x.io", "v1", "Thing", "things", schema={}, columns=columns)
    return tables.table(kind, [_object("x", spec=item)], NOW, {})["rows"][0]["cells"][1]


@pytest.mark.parametrize(
    ("path", "of_type", "cell"),
    [
        (".spec.number", "integer", 3),
        (".spec.number", "number", 3.0),
        (".spec.number", "string", "3"),
        (".spec.number", "boolean", None),
        (".spec.number", "date", None),
        (".spec.flag", "boolean", True),
        (".spec.flag", "string", "true"),
        (".spec.flag", "integer", None),
        (".spec.text", "date", "<invalid>"),
        (".spec.text", "integer", None),
        (".spec.list[0]", "string", "a"),
        (".spec.list[-1]", "string", "b"),
        (".spec.list[5]", "string", None),
        (".spec.list[*]", "string", "a"),
        (".spec.list", "string", '["a","b"]'),
        (".spec['text']", "string", "word"),
        (r".spec.dotted\.key", "string", "d"),
        (".spec.things[?(@.n == 2)].v", "string", "two"),
        (".spec.things[?(@.n==9)].v", "string", None),
        (".spec.text.deeper", "string", None),
        (".spec.text[*]", "string", None),
    ],
)
def test_a_column_takes_the_first_value_of_its_type_at_its_path(path: str, of_type: str, cell: Any) -> None:
    item = {
        "number": 3,
        "flag": True,
        "text": "word",
        "list": ["a", "b"],
        "dotted.key": "d",
        "things": [{"n": 1, "v": "one"}, {"n": 2, "v": "two"}],
    }
    assert _one_cell(path, of_type, item) == cell


def test_a_path_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="not understood"):
        _one_cell(".spec.list[0:1]", "string", {})


def test_a_custom_resource_without_columns_has_its_age() -> None:
    kind = Kind("x.io", "v1", "Thing", "things", schema={})
    assert _printed(kind, _object("x")) == ["NAME   AGE", "x      3m30s"]


def test_the_table_has_the_lists_metadata_and_that_of_the_objects() -> None:
    table = tables.table(kinds.SERVICE_ACCOUNT, [_object("a")], NOW, {"resourceVersion": "7", "continue": ""})
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "7"}
    assert table["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "creationTimestamp": EARLIER},
    }
    assert table["columnDefinitions"][0] | {"description": ""} == {
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "",
        "priority": 0,
    }


@pytest.mark.parametrize("kind", [*kinds.BUILT_IN, EPHEMERAL], ids=repr)
def test_a_bookmark_of_a_watch_has_a_row_with_nothing_in_it(kind: Kind) -> None:
    table = tables.table(kind, [{"metadata": {"resourceVersion": "9"}}], NOW, {"resourceVersion": "9"})
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    assert table["rows"][0]["object"]["metadata"] == {"resourceVersion": "9"}


def test_rows_have_the_objects_that_are_asked_for() -> None:
    item = _object("a", secrets=[])
    found = [
        tables.table(kinds.SERVICE_ACCOUNT, [item], NOW, {}, include_object=which)["rows"][0]["object"]
        for which in ("Object", "None")
    ]
    assert found == [item, None]


def test_later_tables_of_a_watch_do_not_repeat_the_columns() -> None:
    table = tables.table(kinds.SERVICE_ACCOUNT, [_object("a")], NOW, {}, headers=False)
    assert table["columnDefinitions"] is None
    assert table["rows"][0]["cells"] == ["a", "3m30s"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 - 1, "7h59m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 - 1, "7d23h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_durations_are_as_coarse_as_kubernetes_has_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
