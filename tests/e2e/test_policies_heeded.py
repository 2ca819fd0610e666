"""EscherPolicies are heeded on both control planes: by single pods and gangs, which ask for nothing by themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena, stays

pytestmark = pytest.mark.timeout(300)

POLICY = "escher.dev/policy"
APART = "a pod that must stay apart from this one is in the same topology domain"


def put(arena: Arena, name: str, kind: str, selector: Json | None = None, **parameters: Any) -> None:
    body = {"type": kind, "parameters": parameters, "selector": selector}
    arena.service.call("PUT", f"/v1/namespaces/{arena.namespace}/policies/{name}", body)


def drop(arena: Arena, name: str) -> None:
    arena.service.call("DELETE", f"/v1/namespaces/{arena.namespace}/policies/{name}", expect=204)


def governed(arena: Arena, name: str, *policies: str, **more: Any) -> Json:
    return arena.pod(name, annotations={POLICY: ",".join(policies)}, cpu="100m", **more)


def test_of_four_that_keep_apart_on_three_nodes_three_run_and_others_are_not_in_their_way(arena: Arena) -> None:
    arena.nodes(3)
    put(arena, "apart", "anti-affinity")
    names = arena.create(*(governed(arena, f"web-{number}", "apart") for number in range(4)))
    eventually(lambda: len(arena.bound(names)) == 3, what="three being bound")
    assert len(set(arena.bound(names).values())) == 3
    [late] = set(names) - arena.bound(names).keys()
    assert APART in arena.until_rejected([late])[late]
    told = arena.service.call("GET", f"/v1/namespaces/{arena.namespace}/pods/{late}/explain")
    assert "policy apart (anti-affinity)" in told["summary"], told
    other = arena.create(arena.pod("other", cpu="100m"))
    arena.until_bound(other)
    stays(lambda: late not in arena.bound(), during=2)
    [gone] = [name for name in names if name != late][:1]
    free = arena.bound()[gone]
    arena.delete(gone)
    assert arena.until_bound([late]) == {late: free}


def test_four_tasks_are_balanced_over_two_nodes(arena: Arena) -> None:
    arena.nodes(2)
    put(arena, "even", "balance", tasks=4)
    names = arena.create(*(governed(arena, f"t{number}", "even") for number in range(4)))
    assert sorted(Counter(arena.until_bound(names).values()).values()) == [2, 2]


@pytest.mark.older
def test_pairs_are_together_and_away_from_each_other(arena: Arena) -> None:
    arena.nodes(2)
    put(arena, "one", "co-location", {"match_labels": {"pair": "one"}})
    put(arena, "two", "co-location", {"match_labels": {"pair": "two"}})
    put(arena, "away", "anti-affinity", {"match_labels": {"pair": "one"}}, away_from=["two"])
    pods = [arena.pod(f"{pair}-{number}", cpu="100m") for number in range(2) for pair in ("one", "two")]
    for each in pods:
        each["metadata"].setdefault("labels", {})["pair"] = each["metadata"]["name"][:3]
    placed = arena.until_bound(arena.create(*pods))
    assert placed["one-0"] == placed["one-1"] != placed["two-0"] == placed["two-1"]


def test_pods_are_near_their_data_and_come_when_it_comes(arena: Arena) -> None:
    nodes = arena.nodes(3)
    put(arena, "near", "data-locality", data=["data1"])
    early = arena.create(governed(arena, "reader-0", "near"))
    arena.until_rejected(early)
    arena.set_resource("data1", 1, nodes[2])
    assert arena.until_bound(early) == {"reader-0": nodes[2]}
    late = arena.create(governed(arena, "reader-1", "near"))
    assert arena.until_bound(late) == {"reader-1": nodes[2]}


@pytest.mark.older
def test_the_third_wish_wins_and_stands_though_the_first_can_be_had_later(arena: Arena) -> None:
    nodes = arena.nodes(3)
    arena.set_resource("data1", 1, nodes[0])
    arena.set_resource("data2", 1, nodes[1])
    wishes = {"first": ["data1", "tpu"], "second": ["data2", "tpu"], "third": ["data1"]}
    for name, data in wishes.items():
        put(arena, name, "data-locality", data=data)
    put(arena, "wish", "soft", preferences=[*wishes], wait_seconds=2)
    names = arena.create(governed(arena, "in-time", "wish"), governed(arena, "at-once", " | ".join(wishes)))
    assert arena.until_bound(names) == dict.fromkeys(names, nodes[0])
    for node in nodes:
        arena.set_resource("tpu", 1, node)
    stays(lambda: arena.bound(names) == dict.fromkeys(names, nodes[0]), during=3)


def test_a_policy_that_comes_later_and_one_that_goes_wake_whom_they_help(arena: Arena) -> None:
    arena.nodes(1)
    names = arena.create(governed(arena, "early", "apart"))
    assert "does not exist yet" in arena.until_rejected(names)["early"]
    put(arena, "apart", "anti-affinity")
    arena.until_bound(names)
    second = arena.create(governed(arena, "second", "apart"))
    assert APART in arena.until_rejected(second)["second"]
    put(arena, "apart", "bin-packing")
    arena.until_bound(second)


class TestGangs:
    def gang(self, arena: Arena, size: int, *policies: str, **more: Any) -> list[Json]:
        return arena.gang("train", size, cpu=1, annotations={POLICY: ",".join(policies)}, **more)

    def test_one_that_keeps_apart_is_planned_so_all_or_none(self, arena: Arena) -> None:
        arena.nodes(3)
        put(arena, "apart", "anti-affinity")
        names = arena.create(*self.gang(arena, 4, "apart"))
        stays(lambda: not arena.bound(names), during=3)
        told = arena.service.call("GET", f"/v1/namespaces/{arena.namespace}/gangs/train/explain")
        assert "apart" in str(told), told
        arena.nodes(1)
        assert len(set(arena.until_bound(names).values())) == 4

    def test_one_that_is_to_be_together_waits_for_a_node_that_has_room_for_it_all(self, arena: Arena) -> None:
        arena.nodes(3)
        put(arena, "close", "co-location")
        fillers = arena.create(*(arena.pod(f"filler-{number}", cpu=5) for number in range(3)))
        assert len(set(arena.until_bound(fillers).values())) == 3
        names = arena.create(*self.gang(arena, 4, "close"))
        stays(lambda: not arena.bound(names), during=3)
        free = arena.bound()["filler-1"]
        arena.delete("filler-1")
        assert set(arena.until_bound(names).values()) == {free}

    def test_one_near_its_data_is_where_that_is(self, arena: Arena) -> None:
        nodes = arena.nodes(3)
        put(arena, "near", "data-locality", data=["data1"])
        names = arena.create(*self.gang(arena, 2, "near"))
        stays(lambda: not arena.bound(names), during=2)
        arena.set_resource("data1", 1, nodes[1])
        assert set(arena.until_bound(names).values()) == {nodes[1]}
