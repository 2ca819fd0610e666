"""That a kind is not installed is what discovery says, and nothing that fails says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.adapters.kubernetes.reflectors.discovery import is_served
from extender.kube.errors import Gone, Refused, Unavailable
from kubesim.virtual import VirtualCluster
from tests.adapters.kubernetes.scripted_api import ScriptedApi

pytestmark = pytest.mark.anyio

GONE, FORBIDDEN = Gone(404, "not found"), Refused(403, "forbidden")


def body(**said: Any) -> bytes:
    return json.dumps(said).encode()


THERE = body(resources=[{"name": "things"}, {"name": "things/status"}])
NOT_AMONG_THEM = body(resources=[{"name": "others"}])
OTHER_GROUPS = body(groups=[{"name": "apps", "versions": [{"version": "v1"}]}])
OUR_GROUP = body(groups=[{"name": "example.com", "versions": [{"version": "v1"}]}])
NO_GROUPS = body(groups=[])


async def asked(*answers: bytes | Exception) -> bool:
    api = ScriptedApi()
    api.answers.extend(answers)
    return await is_served(api, "example.com", "v1", "things")


async def test_it_is_where_its_version_names_it() -> None:
    assert await asked(THERE)
    assert not await asked(NOT_AMONG_THEM)


async def test_a_version_that_is_not_found_is_not_there_when_the_api_server_names_other_groups() -> None:
    assert not await asked(GONE, OTHER_GROUPS)


@pytest.mark.parametrize(
    "answers",
    [
        (GONE, OUR_GROUP),
        (GONE, NO_GROUPS),
        (GONE, Unavailable("starting")),
        (GONE, GONE),
        (GONE, FORBIDDEN),
        (FORBIDDEN, FORBIDDEN),
        (FORBIDDEN, GONE),
        (Unavailable("starting"),),
        (b"404 page not found",),
        (GONE, b"{}"),
    ],
)
async def test_what_fails_or_contradicts_itself_says_nothing(answers: tuple[bytes | Exception, ...]) -> None:
    with pytest.raises((Unavailable, Refused)):
        await asked(*answers)


async def test_where_discovery_is_closed_to_us_a_list_tells_that_it_is_there() -> None:
    assert await asked(FORBIDDEN, b"{}")


async def test_an_api_server_says_what_it_has(kubesim_virtual: VirtualCluster) -> None:
    requests = kubesim_virtual.requests
    assert await is_served(requests, "batch", "v1", "jobs")
    assert not await is_served(requests, "batch", "v1", "podgroups")
    assert not await is_served(requests, "scheduling.x-k8s.io", "v1alpha1", "podgroups")
