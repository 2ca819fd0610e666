"""Jobs as the API server tells of them, reduced to how many pods they make at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.adapters.kube.jobs import jobs
from extender.core.gangs.promises import Promise


def event(spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: str) -> bytes:
    told = {"name": "train", "namespace": "team", "uid": "u1", "resourceVersion": "7", **metadata}
    return json.dumps({"type": "ADDED", "object": {"metadata": told, "spec": spec, "status": status or {}}}).encode()


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": "any"}]}


@pytest.mark.parametrize(
    ("spec", "status", "pods"),
    [
        ({"parallelism": 8, "completions": 8, "template": {"spec": {}}}, {}, 8),
        ({"parallelism": 8, "completions": 20}, {}, 8),
        ({"parallelism": 8, "completions": 5}, {}, 5),
        ({"parallelism": 8, "completions": 8}, {"succeeded": 3, "active": 5}, 5),
        ({"parallelism": 8}, {"succeeded": 3}, 8),
        ({"parallelism": 0, "completions": 8}, {}, 0),
        ({}, {}, 1),
        ({"parallelism": 8, "suspend": True}, {}, 0),
        ({"parallelism": 8}, condition("Complete"), 0),
        ({"parallelism": 8}, condition("Failed"), 0),
        ({"parallelism": 8}, condition("Suspended", "False"), 8),
        ({"parallelism": 8, "completions": 2}, {"succeeded": 3}, 0),
    ],
)
def test_a_job_is_reduced_to_its_promise(spec: dict[str, Any], status: dict[str, Any], pods: int) -> None:
    read = jobs().read_event(event(spec, status))
    assert (read.item, read.version) == (Promise("u1", pods, "team"), "7")


def test_one_that_is_being_deleted_makes_no_pods() -> None:
    assert jobs().read_event(event({"parallelism": 8}, deletionTimestamp="2026-01-01T00:00:00Z")).item == Promise(
        "u1", 0, "team"
    )
