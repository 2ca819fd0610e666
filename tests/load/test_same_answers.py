"""The service and the reference extender let the same nodes through for pods that ask for nothing of ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx
import pytest

from extender.shipped.progress import Progress
from lab.controlplane.clusters import EmbeddedCluster
from loadtests import reference
from loadtests.recorded.calls import Call, load, select

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CALLS = [each for each in select(load(), verb="filter", kind="ordinary") if each.cluster <= 500]


@pytest.fixture(scope="module")
def both(state_folder: object) -> Iterator[list[str]]:
    """Their URLs."""
    with EmbeddedCluster.start(nodes=500) as cluster, reference.running(reference.built(Progress())) as url:
        yield [cluster.service_url, url]


def named(answer: dict[str, Any]) -> list[str]:
    return answer["NodeNames"] or [each["metadata"]["name"] for each in answer["Nodes"]["items"]]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.profile}-{call.cluster}-{call.whole}")
def test_an_ordinary_pod_may_go_to_the_same_nodes(both: list[str], call: Call) -> None:
    body = call.prepare(Random(call.cluster)).body("ordinary", str(uuid.uuid4()))
    ours, theirs = (httpx.post(f"{url}/scheduler/filter", content=body, trust_env=False).json() for url in both)
    assert call.sent is not None
    assert (named(ours), ours["FailedNodes"]) == (named(theirs), theirs["FailedNodes"])
    assert len(named(ours)) == call.sent.count
