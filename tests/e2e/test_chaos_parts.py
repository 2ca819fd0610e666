"""What chaos is made of, without a cluster: its load and strikes are the seed's, and what must not be left is found."""

from __future__ import annotations

import random
from typing import Any

import httpx
import pytest

from lab.controlplane.api import ApiError
from loadtests.chaos.__main__ import arguments
from loadtests.chaos.crowd import Seen, seen
from loadtests.chaos.load import drawn
from loadtests.chaos.offers import owners_among
from loadtests.chaos.patience import insist
from loadtests.chaos.rest import errors_in, resources_amiss
from loadtests.chaos.run import strikes_for
from loadtests.shared.pods import pod
from loadtests.shared.reading import quorum_of

KEY = "escher.dev/default.disk"


def node(name: str, **keys: str) -> dict[str, Any]:
    said = {"cpu": "8", **{f"escher.dev/default.{key}": units for key, units in keys.items()}}
    return {"metadata": {"name": name}, "status": {"capacity": said, "allocatable": dict(said)}}


def thing(name: str, **nodes: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodes": nodes}}


def test_the_same_seed_draws_the_same_load_and_the_same_strikes() -> None:
    def units(seed: int) -> list[Any]:
        rng = random.Random(seed)
        return [drawn(number, rng, lasting=False, largest=32).pods for number in range(200)]

    assert units(1) == units(1) != units(2)
    assert strikes_for([("etcd", 50)], 1) == strikes_for([("etcd", 50)], 1) != strikes_for([("etcd", 50)], 2)


def test_half_of_the_strikes_are_aimed_at_the_making_of_a_gang() -> None:
    strikes = strikes_for([("service", 400)], 1)
    assert 150 < sum(each.moment != "any" for each in strikes) < 250
    assert {each.moment for each in strikes} == {"any", "created", "bound"}


def test_the_load_has_gangs_of_2_to_32_and_ordinary_pods() -> None:
    rng = random.Random(1)
    units = [drawn(number, rng, lasting=False, largest=32) for number in range(500)]
    sizes = {len(each.pods) for each in units if each.is_gang}
    assert (min(sizes), max(sizes)) == (2, 32)
    assert {len(each.pods) for each in units if not each.is_gang} == {1}
    for each in units:
        gangs = {quorum_of({"metadata": {"namespace": "default", **pod["metadata"]}}) for pod in each.pods}
        assert len(gangs) == 1
        assert (gangs == {None}) == (not each.is_gang)


def test_resources_as_they_were_set_are_no_finding() -> None:
    assert resources_amiss([node("a", disk="3"), node("b")], [thing("disk", a=3)], {"disk": {"a": 3}}) == ([], [])


def test_owners_are_pods_that_end_so_that_what_they_own_must_be_gone_after_them() -> None:
    """Pods that fill the cluster at the end of a run stay, and what they own stays with them."""

    def running(name: str, phase: str = "Running", **more: Any) -> Seen:
        made = pod(name, **more) | {"status": {"phase": phase}}
        made["metadata"] |= {"uid": f"uid-{name}", "namespace": "default"}
        made["spec"]["nodeName"] = "node-0"
        return seen(made)

    ends = running("ends", run_seconds=3)
    member = running("member", run_seconds=3, gang="g", quorum=2)
    assert owners_among([running("lasts"), running("ended", "Succeeded", run_seconds=3), member, ends]) == [ends]


def test_an_object_and_a_key_that_no_one_owns_are_found() -> None:
    assert resources_amiss([node("a")], [thing("disk", a=3)], {})[0] == [
        "disk is there since None: {'nodes': {'a': 3}}"
    ]
    assert resources_amiss([node("a", disk="3")], [], {})[0] == [f"a says {KEY}"]


def test_a_resource_that_is_lost_or_not_on_its_node_is_found() -> None:
    assert resources_amiss([node("a", disk="3")], [], {"disk": {"a": 3}})[1] == [
        "disk was set to {'a': 3}, the object says None"
    ]
    assert resources_amiss([node("a", disk="2")], [thing("disk", a=3)], {"disk": {"a": 3}})[1] == [
        f"a should have 3 {KEY}, and says ['2', '2']"
    ]


def test_errors_are_found_in_the_log_but_for_those_of_a_server_that_is_away() -> None:
    defect = "timestamp='t' level='error' event='verb failed' exception='KeyError'"
    away = "timestamp='t' level='error' event='verb failed' why='ClientConnectorError'"
    info = "timestamp='t' level='info' event='ready' why='no error'"
    assert errors_in("\n".join([info, away, defect, "2026-01-01 ERROR asyncio: Task exception"])) == [
        defect,
        "2026-01-01 ERROR asyncio: Task exception",
    ]


def test_a_call_is_made_again_until_it_is_answered_and_given_up_where_the_answer_is_final() -> None:
    answers: list[Any] = [httpx.ConnectError("away"), ApiError(500, "", ""), 7]
    calls: list[None] = []

    def call() -> int:
        calls.append(None)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    assert insist(call) == 7
    answers.append(ApiError(422, "Invalid", ""))
    with pytest.raises(ApiError):
        insist(call, final=(422,))
    assert len(calls) == 4


def test_without_a_seed_one_is_drawn() -> None:
    assert arguments([]).seed != arguments([]).seed or arguments([]).seed != arguments([]).seed
    assert arguments(["--seed", "3"]).seed == 3
