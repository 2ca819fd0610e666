"""Jobs as the API server tells of them, reduced to how many pods they make at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.adapters.kubernetes.codecs.jobs import jobs
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.names import GangKey

GANG = GangKey("team", "job.train", "batch", "u1")


def event(spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: str) -> bytes:
    told = {"name": "train", "namespace": "team", "uid": "u1", "resourceVersion": "7", **metadata}
    return json.dumps({"type": "ADDED", "object": {"metadata": told, "spec": spec, "status": status or {}}}).encode()


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": "any"}]}


@pytest.mark.parametrize(
    ("spec", "status", "pods", "parallel"),
    [
        ({"parallelism": 8, "completions": 8, "template": {"spec": {}}}, {}, 8, 8),
        ({"parallelism": 8, "completions": 20}, {}, 8, 8),
        ({"parallelism": 8, "completions": 5}, {}, 5, 5),
        ({"parallelism": 8, "completions": 8}, {"succeeded": 3, "active": 5}, 5, 8),
        ({"parallelism": 8}, {"succeeded": 3}, 8, 8),
        ({"parallelism": 0, "completions": 8}, {}, 0, 0),
        ({}, {}, 1, 1),
        ({"parallelism": 8, "suspend": True}, {}, 0, 8),
        ({"parallelism": 8}, condition("Complete"), 0, 8),
        ({"parallelism": 8}, condition("Failed"), 0, 8),
        ({"parallelism": 8}, condition("Suspended", "False"), 8, 8),
        ({"parallelism": 8, "completions": 2}, {"succeeded": 3}, 0, 2),
    ],
)
def test_a_job_is_reduced_to_its_promise(
    spec: dict[str, Any], status: dict[str, Any], pods: int, parallel: int
) -> None:
    read = jobs().read_event(event(spec, status))
    assert (read.item, read.version) == (Promise("u1", pods, "team", GANG, parallel), "7")


def test_one_that_is_being_deleted_makes_no_pods() -> None:
    read = jobs().read_event(event({"parallelism": 8}, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert read.item == Promise("u1", 0, "team", GANG, 8)
