"""Rest: who is pending and would fit is found; who would not, is held back by others, or waits for members, is not."""

from __future__ import annotations

import random
from typing import Any

from kubesim.apiserver.machinery.store import Store
from kubesim.kinds import NODE, POD, Json
from lab.controlplane.nodes import NodeShape, plain
from loadtests.life.rest import that_could_run
from loadtests.life.works import POD_GROUP, group
from loadtests.shared.pods import pod

_UIDS = random.Random(1)


def stored(*pods: Json, nodes: int = 2) -> Store:
    store = Store()
    for node in plain(nodes, NodeShape()):
        store.create(NODE, {"spec": {}, **node})
    for each in pods:
        store.create(POD, each)
    return store


def a_pod(name: str, on: str = "", phase: str = "Pending", **about: Any) -> Json:
    made = pod(name, **about)
    made["metadata"] |= {"namespace": "default", "uid": f"{_UIDS.getrandbits(64):x}"}
    made["spec"]["nodeName"] = on
    return {**made, "status": {"phase": phase}}


def gang(size: int, cpu: int, *, quorum: int | None = None, **about: Any) -> list[Json]:
    wanted = size if quorum is None else quorum
    return [a_pod(f"g-{number}", gang="g", quorum=wanted, cpu=cpu, **about) for number in range(size)]


def found(store: Store) -> list[str]:
    return that_could_run(store, groups_installed=True)


def test_a_gang_that_fits_as_a_whole_could_run() -> None:
    assert found(stored(*gang(2, 8))) == ["gang default/g needs 2 more places and has room for 2"]


def test_a_gang_of_which_a_part_fits_could_not() -> None:
    assert found(stored(*gang(3, 8))) == []


def test_a_gang_whose_members_do_not_exist_could_not() -> None:
    assert found(stored(*gang(2, 1, quorum=3))) == []


def test_a_gang_could_run_beside_what_is_bound_only() -> None:
    assert found(stored(*gang(2, 8), a_pod("there", "node-0", "Running"))) == []
    assert found(stored(*gang(2, 8), a_pod("was-there", "node-0", "Succeeded"))) != []


def test_a_member_beyond_the_quorum_that_fits_could_run() -> None:
    first, second = gang(2, 8, quorum=1)
    first["spec"]["nodeName"], first["status"]["phase"] = "node-0", "Running"
    assert found(stored(first, second)) != []
    assert found(stored(first, second, nodes=1)) == []


def test_members_that_succeeded_count_and_members_that_failed_do_not() -> None:
    first, second = gang(2, 8)
    first["spec"]["nodeName"], first["status"]["phase"] = "node-0", "Succeeded"
    assert found(stored(first, second)) != []
    failed = {**first, "status": {"phase": "Failed"}}
    assert found(stored(failed, second)) == []


def test_pods_of_other_schedulers_are_nobodys_business() -> None:
    assert found(stored(*gang(2, 1, scheduler="coscheduling"), a_pod("p", scheduler="default-scheduler"))) == []


def test_an_ordinary_pod_that_fits_could_run() -> None:
    assert found(stored(a_pod("p", cpu=8))) == ["pod default/p has room 2 times"]
    assert found(stored(a_pod("p", cpu=9))) == []


def test_a_cordoned_node_has_no_room() -> None:
    store = stored(a_pod("p", cpu=8), nodes=1)
    node = store.list(NODE)[0]
    store.replace(NODE, {**node, "spec": {"unschedulable": True}})
    assert found(store) == []


def test_a_pod_group_says_the_quorum_and_without_it_its_pods_wait() -> None:
    members = [a_pod(f"m-{number}") for number in range(2)]
    for each in members:
        each["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "m"
    store = stored(*members)
    assert found(store) == []
    made = group("default", "m", 2)
    store.create(POD_GROUP, {**made, "metadata": {**made["metadata"], "uid": "of-m"}})
    assert found(store) != []
    assert len(that_could_run(store, groups_installed=False)) == 2, "where there are no groups they are ordinary pods"
