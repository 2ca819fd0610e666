"""PodGroups as the API server tells of them, and whether it knows them at all."""

from __future__ import annotations

import json

import pytest

from extender.adapters.kubernetes.codecs.pod_groups import pod_groups
from extender.core.gangs.state.pod_groups import PodGroup

pytestmark = pytest.mark.anyio


def manifest(**spec: object) -> bytes:
    metadata = {"name": "mpi", "namespace": "team", "resourceVersion": "7"}
    return json.dumps({"type": "ADDED", "object": {"metadata": metadata, "spec": spec}}).encode()


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        ({"minMember": 3, "scheduleTimeoutSeconds": 20}, PodGroup("team", "mpi", 3, 20.0)),
        ({"minMember": 3, "minResources": {"cpu": "4"}}, PodGroup("team", "mpi", 3)),
        ({"minMember": 3, "scheduleTimeoutSeconds": 0}, PodGroup("team", "mpi", 3)),
        ({}, PodGroup("team", "mpi", 0)),
    ],
)
def test_a_group_is_reduced_to_its_quorum_and_time(spec: dict[str, object], group: PodGroup) -> None:
    event = pod_groups().read_event(manifest(**spec))
    assert event.item == group
    assert event.version == "7"
