"""The reckoning of room is no good if it cannot find a pod that was forgotten: shown with clusters of a few objects."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from lab.controlplane import nodes
from loadtests.shared.pods import pod
from loadtests.shared.reading import ATTEMPT
from loadtests.shared.room import RoomWatch, Saved, partly_bound, saved_in_vain, shape_of, waiting_though_there_is_room

Json = dict[str, Any]
GPU = nodes.GPU


def node(name: str, cpu: str = "4", pods: int = 10, model: str | None = None, gpus: int = 0) -> Json:
    offered = {"cpu": cpu, "memory": "8Gi", "pods": str(pods)} | ({GPU: str(gpus)} if gpus else {})
    return nodes.node(name, offered, labels={nodes.GPU_MODEL_LABEL: model} if model else {})


def on(place: str | None, name: str, **asks: Any) -> Json:
    made = pod(name, **asks)
    made["metadata"] |= {"namespace": "ns", "uid": f"uid-{name}"}
    if place is not None:
        made["spec"]["nodeName"] = place
    return made


def test_a_pod_with_room_is_found() -> None:
    there = [on("a", "one", cpu="2500m"), on(None, "two", cpu="1500m")]
    assert waiting_though_there_is_room([node("a")], there) == ["pod ns/two has room 1 times"]


@pytest.mark.parametrize(
    "asks",
    [
        {"cpu": "1501m"},
        {"memory": "9Gi"},
        {GPU: 1},
        {"selector": {nodes.GPU_MODEL_LABEL: "T4"}},
    ],
)
def test_a_pod_without_room_is_not(asks: dict[str, Any]) -> None:
    there = [on("a", "one", cpu="2500m"), on(None, "two", **asks)]
    assert waiting_though_there_is_room([node("a")], there) == []


def test_pods_count_against_what_a_node_takes_of_them() -> None:
    there = [on("a", "one"), on(None, "two")]
    assert waiting_though_there_is_room([node("a", pods=1)], there) == []


def test_a_finished_pod_holds_nothing_and_a_tainted_node_offers_nothing() -> None:
    done = on("a", "done", cpu=4)
    done["status"] = {"phase": "Succeeded"}
    assert waiting_though_there_is_room([node("a")], [done, on(None, "next", cpu=4)])
    tainted = node("a")
    tainted["spec"] = {"taints": [{"key": "away", "effect": "NoSchedule"}]}
    assert not waiting_though_there_is_room([tainted], [done, on(None, "next", cpu=4)])


def test_room_for_alike_pods_is_the_sum_over_nodes_and_not_of_what_is_free() -> None:
    two = [node("a", cpu="5"), node("b", cpu="5"), node("c", model="T4", gpus=2)]
    room = RoomWatch(two, [])
    assert room.copies(shape_of(on(None, "p", cpu=3))) == 3
    assert room.copies(shape_of(on(None, "p", cpu=1, **{GPU: 1}))) == 2


def test_a_gang_is_found_only_if_its_quorum_has_room_at_once() -> None:
    def members(size: int, quorum: int) -> list[Json]:
        return [on(None, f"m{index}", gang="train", quorum=quorum, cpu=4) for index in range(size)]

    two = [node("a"), node("b")]
    assert waiting_though_there_is_room(two, members(3, 3)) == []
    assert waiting_though_there_is_room(two, members(1, 2)) == []
    assert waiting_though_there_is_room(two, members(3, 2)) == ["gang ns/train needs 2 more places and has room for 2"]


def test_members_that_differ_have_room_if_a_place_is_found_for_each() -> None:
    members = [on(None, f"m{index}", gang="train", quorum=3, cpu=cpu) for index, cpu in enumerate((1, 3, 4))]
    two = [node("a"), node("b")]
    assert waiting_though_there_is_room(two, members) == ["gang ns/train needs 3 more places and has room for 3"]
    assert waiting_though_there_is_room(two, [*members, on("a", "there", cpu=1)]) == []


def test_pods_that_are_not_asked_about_hold_room_and_are_not_found() -> None:
    there = [on(None, "one", scheduler="other"), on("a", "two", scheduler="other", cpu=3), on(None, "three", cpu=2)]

    def ours(pod: Json) -> bool:
        return bool(pod["spec"]["schedulerName"] == "escher")

    assert waiting_though_there_is_room([node("a")], there, asked=ours) == []
    assert waiting_though_there_is_room([node("a")], there) == ["pod ns/one has room 1 times"]


def test_a_member_beyond_the_quorum_counts_for_itself() -> None:
    there = [on(place, f"m{index}", gang="train", quorum=2, cpu=4) for index, place in enumerate(["a", "b", None])]
    assert waiting_though_there_is_room([node("a"), node("b")], there) == []
    assert waiting_though_there_is_room([node("a"), node("b"), node("c")], there)


def test_a_member_that_has_ended_counts_if_it_ended_well_and_has_a_controller() -> None:
    ended, waiting = on("a", "m0", gang="train", quorum=2, cpu=1), on(None, "m1", gang="train", quorum=2, cpu=1)
    assert waiting_though_there_is_room([node("a")], [ended, waiting])
    ended["status"] = {"phase": "Succeeded"}
    assert not waiting_though_there_is_room([node("a")], [ended, waiting])
    for each in (ended, waiting):
        each["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "uid": "u", "controller": True}]
    assert waiting_though_there_is_room([node("a")], [ended, waiting])
    ended["status"] = {"phase": "Failed"}
    assert not waiting_though_there_is_room([node("a")], [ended, waiting])


def test_a_gang_of_which_some_are_bound_is_partly_bound() -> None:
    def gang(*places: str | None) -> list[Json]:
        return [on(place, f"m{index}", gang="train", quorum=2) for index, place in enumerate(places)]

    assert partly_bound(gang("a", None, None)) == ["gang ns/train: 1 of 2 bound"]
    assert partly_bound(gang(None, None, None)) == []
    assert partly_bound(gang("a", "a", None)) == []


def test_a_gang_of_which_each_that_was_to_be_bound_may_have_been_may_have_run() -> None:
    def bound_with(others: list[str]) -> Json:
        pod = on("a", "m0", gang="train", quorum=2)
        attempt = {"pod": pod["metadata"]["uid"], "attempt": "1", "needed": 2, "size": 2, "with": others, "at": 1.0}
        pod["metadata"]["annotations"][ATTEMPT] = json.dumps(attempt)
        return pod

    waiting = on(None, "m1", gang="train", quorum=2)
    assert partly_bound([bound_with(["uid-of-one-that-is-gone"]), waiting]) == []
    assert partly_bound([bound_with([waiting["metadata"]["uid"]]), waiting]) == ["gang ns/train: 1 of 2 bound"]


def test_a_gang_whose_bound_pods_were_bound_with_its_quorum_has_run() -> None:
    bound, waiting = on("a", "m0", gang="train", quorum=2), on(None, "m1", gang="train", quorum=2)
    assert partly_bound([bound, waiting], ran={bound["metadata"]["uid"]}) == []
    assert partly_bound([bound, waiting], ran={waiting["metadata"]["uid"]}) == ["gang ns/train: 1 of 2 bound"]


def test_what_is_saved_for_a_gang_is_room_for_that_one_alone() -> None:
    waiting = [on(None, f"m-{index}", gang="large", quorum=2, cpu=3) for index in range(2)]
    there = [on("b", "holder", cpu=2), on(None, "single"), *waiting]
    cluster = [node("a"), node("b")]
    assert waiting_though_there_is_room(cluster, there) == ["pod ns/single has room 6 times"]
    saved = Saved("ns/large", (("a", {"cpu": Fraction(3)}), ("b", {"cpu": Fraction(2)})))
    assert waiting_though_there_is_room(cluster, there, saved) == ["pod ns/single has room 1 times"]
    assert saved_in_vain(there, saved) == []
    gone = there[1:]
    assert "gang ns/large needs 2 more places and has room for 2" in waiting_though_there_is_room(cluster, gone, saved)


def test_room_that_is_saved_for_nobody_or_beyond_the_need_is_found() -> None:
    waiting = [on(None, f"m-{index}", gang="large", quorum=2, cpu=3) for index in range(2)]
    three = Saved("ns/large", (("a", {"cpu": Fraction(1)}),) * 3)
    assert saved_in_vain(waiting, three) == ["3 places are saved for gang ns/large, which lacks 2"]
    assert saved_in_vain([], three)
    assert saved_in_vain(waiting, Saved("ns/large", (("a", {"cpu": Fraction(4)}),)))
    assert saved_in_vain(waiting, Saved()) == []


def test_what_is_saved_for_a_pod_of_no_gang_is_room_for_that_one_alone() -> None:
    there = [on("b", "holder", cpu=4), on(None, "single"), on(None, "other")]
    saved = Saved(None, (("a", {"cpu": Fraction(1)}),), "ns/single")
    assert saved_in_vain(there, saved) == []
    assert "pod ns/single has room 4 times" in waiting_though_there_is_room([node("a"), node("b")], there, saved)
    assert "pod ns/other has room 3 times" in waiting_though_there_is_room([node("a"), node("b")], there, saved)
    assert "1 places are saved for pod ns/single, which lacks 0" in saved_in_vain([on("a", "single")], saved)
    assert saved_in_vain([], saved)
