"""PodGroups as the API server tells of them, and whether it knows them at all."""

from __future__ import annotations

import json

import pytest

from extender.adapters.kube.pod_groups import installed, pod_groups
from extender.core.gangs.pod_groups import PodGroup
from extender.kube.errors import Gone, Unavailable
from tests.adapters.kube.scripted_api import ScriptedApi

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


async def test_the_kind_is_installed_where_discovery_names_it() -> None:
    api = ScriptedApi()
    api.answers += [
        json.dumps({"resources": [{"name": "elasticquotas"}, {"name": "podgroups"}]}).encode(),
        json.dumps({"resources": [{"name": "elasticquotas"}]}).encode(),
        Gone(404, "not found"),
    ]
    assert [await installed(api) for _ in range(3)] == [True, False, False]
    assert set(api.requested) == {"GET /apis/scheduling.x-k8s.io/v1alpha1"}


async def test_an_answer_that_is_no_list_of_kinds_says_nothing() -> None:
    api = ScriptedApi()
    api.answers.append(b"<html>")
    with pytest.raises(Unavailable, match="no list of kinds"):
        await installed(api)
