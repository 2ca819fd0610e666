"""Jobs, without anybody who runs them."""

from __future__ import annotations

from tests.conformance.recorded.asks import delete, get, merge, post
from tests.conformance.recorded.script.objects import MOMENT, NAMESPACES, Json, namespace

JOBS = "/apis/batch/v1/namespaces/jobs/jobs"
A = f"{JOBS}/a"


def job(name: str, template: Json | None = None, **spec: object) -> Json:
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    pod_spec = {"restartPolicy": "Never", "containers": [container], **(template or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": pod_spec}, **spec},
    }


ASKS = [
    post(NAMESPACES, namespace("jobs")),
    post(JOBS, job("a")),
    post(JOBS, job("b", completions=3, completionMode="Indexed", parallelism=3)),
    post(JOBS, job("c", {"restartPolicy": "Always"})),
    post(JOBS, job("d", completionMode="Indexed")),
    post(JOBS, job("e", parallelism=-1)),
    post(JOBS, job("s", suspend=True)),
    post(JOBS, job("f", {"restartPolicy": None})),
    merge(A, {"spec": {"parallelism": 4}}),
    merge(A, {"spec": {"completions": 4}}, id="other-completions"),
    merge(f"{JOBS}/b", {"spec": {"completions": 4, "parallelism": 4}}),
    merge(A, {"spec": {"template": {"spec": {"schedulerName": "q"}}}}, id="other-template"),
    merge(f"{JOBS}/s", {"spec": {"suspend": False}}),
    merge(
        f"{A}/status",
        {"status": {"active": 1, "startTime": MOMENT, "conditions": [{"type": "Foo", "status": "True"}]}},
        id="active",
    ),
    merge(f"{A}/status", {"status": {"succeeded": 1}}, id="succeeded"),
    delete(A),
    get(A),
    delete(f"{JOBS}/b?propagationPolicy=Background"),
    delete(f"{JOBS}/s", {"propagationPolicy": "Foreground"}),
]
