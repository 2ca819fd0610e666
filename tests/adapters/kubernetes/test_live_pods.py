"""A pod lives as long as the API server has it under its UID, and it has not finished."""

from __future__ import annotations

import pytest

from extender.adapters.kubernetes.writers.live_pods import ApiLivePods
from extender.app.contracts.ports import PodRef
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import PodUid
from tests.adapters.kubernetes.manifests import encode, pod
from tests.adapters.kubernetes.scripted_api import ScriptedApi

pytestmark = pytest.mark.anyio

POD = PodRef("team-a", "p1", PodUid("uid-p1"))


def told(uid: str = "uid-p1", phase: str = "Running") -> bytes:
    found = pod("p1")
    found["metadata"]["uid"] = uid
    found["status"] = {"phase": phase}
    return encode(found)


@pytest.mark.parametrize(
    ("answer", "lives"),
    [
        (told(), True),
        (told(phase="Pending"), True),
        (told(phase="Succeeded"), False),
        (told(phase="Failed"), False),
        (told(uid="a-namesakes"), False),
        (Gone(404, "not found"), False),
    ],
)
async def test_what_the_api_server_says_of_the_pod_counts(answer: bytes | Exception, lives: bool) -> None:
    api = ScriptedApi()
    api.answers.append(answer)
    assert await ApiLivePods(api).lives(POD) is lives
    assert api.requested == ["GET /api/v1/namespaces/team-a/pods/p1"]


@pytest.mark.parametrize("answer", [Unavailable("away"), Refused(403, "forbidden"), b"<html>"])
async def test_where_the_api_server_does_not_say_nothing_is_concluded(answer: bytes | Exception) -> None:
    api = ScriptedApi()
    api.answers.append(answer)
    with pytest.raises((Unavailable, Refused)):
        await ApiLivePods(api).lives(POD)
