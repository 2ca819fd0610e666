"""Ephemeral resources on the real control plane: scenarios 1 to 6 of mission.md, drift, and nodes that come back."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from lab.controlplane import nodes as node_objects
from loadtests.shared.pods import EXTENDER
from tests.controlplane.deadline import eventually
from tests.e2e.workload import APPROACHES, Arena, stays, together

pytestmark = pytest.mark.timeout(300)

approaches = pytest.mark.parametrize("scheduler", APPROACHES)


def available(arena: Arena, node: str, key: str) -> object:
    return arena.service.cluster_state(node=node)[node]["available"].get(key)


@pytest.mark.older
@approaches
def test_scenario_1_a_pod_waits_for_a_resource_that_is_nowhere_and_binds_where_it_is_created(
    arena: Arena, scheduler: str
) -> None:
    _, second, _ = arena.nodes(3)
    key = arena.key("r")
    [waiting] = arena.create(arena.pod("waiting", scheduler, **{key: 1}))
    arena.until_rejected([waiting])
    said = arena.set_resource("r", 1, second)
    assert (said["key"], said["nodes"]) == (key, {second: 1})
    assert arena.until_bound([waiting]) == {waiting: second}
    assert arena.says(second, key) == ("1", "1")


class Held4Of5:
    """A node with five of `r`, of which a pod holds four."""

    def __init__(self, arena: Arena, scheduler: str) -> None:
        self.arena, self.scheduler, self.key = arena, scheduler, arena.key("r")
        [self.node] = arena.nodes(1)
        arena.set_resource("r", 5, self.node)
        [self.holder] = self.asks("holder", 4)
        arena.until_bound([self.holder])

    def asks(self, name: str, units: int) -> list[str]:
        return self.arena.create(self.arena.pod(name, self.scheduler, cpu="10m", **{self.key: units}))

    def free(self) -> object:
        return available(self.arena, self.node, self.key)

    def frees(self, units: int) -> None:
        eventually(lambda: self.free() == units, what=f"{units} available")


@approaches
def test_scenario_2_increase_in_use(arena: Arena, scheduler: str) -> None:
    held = Held4Of5(arena, scheduler)
    arena.set_resource("r", 10, held.node)
    assert arena.says(held.node, held.key) == ("10", "10")
    held.frees(6)
    arena.delete(held.holder)
    held.frees(10)
    too_much = held.asks("eleven", 11)
    arena.until_rejected(too_much)
    arena.until_bound(held.asks("ten", 10))
    assert arena.bound(too_much) == {}


@pytest.mark.older
@approaches
def test_scenario_3_decrease_in_use(arena: Arena, scheduler: str) -> None:
    held = Held4Of5(arena, scheduler)
    arena.set_resource("r", 2, held.node)
    assert arena.says(held.node, held.key) == ("2", "2")
    waiting = held.asks("waiting", 1)
    arena.until_rejected(waiting)
    assert stays(lambda: set(arena.bound()), what="the pods bound") == {held.holder}
    eventually(lambda: arena.phases([held.holder]) == {held.holder: "Running"}, what="the holder running on")
    assert held.free() == -2
    arena.delete(held.holder)
    arena.until_bound(waiting)
    held.frees(1)
    arena.delete(*waiting)
    held.frees(2)


@approaches
def test_scenario_4_delete_in_use(arena: Arena, scheduler: str) -> None:
    held = Held4Of5(arena, scheduler)
    arena.set_resource("r", 0, held.node)
    assert arena.says(held.node, held.key) == (None, None)
    # Again, in both spellings: nothing happens.
    arena.set_resource("r", 0, held.node)
    arena.service.call("DELETE", arena.resource_path("r"), expect=204)
    waiting = held.asks("waiting", 1)
    arena.until_rejected(waiting)
    eventually(lambda: arena.phases([held.holder]) == {held.holder: "Running"}, what="the holder running on")
    arena.delete(held.holder)
    # A release after the deletion does not bring it back.
    assert stays(lambda: (arena.says(held.node, held.key), arena.bound()), what="it") == ((None, None), {})
    assert held.key not in arena.service.cluster_state(node=held.node)[held.node]["capacity"]
    arena.service.call("GET", arena.resource_path("r"), expect=404)


@pytest.mark.parametrize("capacity", [-1, 1.5, "4", True, None, 1e30])
def test_scenario_4_a_capacity_that_is_no_whole_number_is_an_error_and_changes_nothing(
    arena: Arena, capacity: object
) -> None:
    [node] = arena.nodes(1)
    arena.set_resource("r", 5, node)
    before = arena.service.call("GET", arena.resource_path("r"))
    answer = arena.service.raw("PUT", arena.resource_path("r"), {"capacity": capacity, "node_spec": node})
    assert answer.status_code == 422
    assert (answer.headers["content-type"], answer.json()["field"]) == ("application/problem+json", "capacity")
    assert arena.service.call("GET", arena.resource_path("r")) == before
    assert arena.says(node, arena.key("r")) == ("5", "5")


class TestScenario5:
    """Which nodes a resource comes to: available GPUs are 4, 4 and 0."""

    GPU = "nvidia.com/gpu"

    @pytest.fixture
    def gpus(self, arena: Arena) -> list[str]:
        nodes = arena.nodes(3, None, **{self.GPU: 4})
        # The third has four and none of them free.
        user = arena.pod("user", EXTENDER, **{self.GPU: 4})
        user["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes[2]}
        arena.until_bound(arena.create(user))
        return nodes

    def test_what_is_available_chooses_the_nodes(self, arena: Arena, gpus: list[str]) -> None:
        said = arena.set_resource("r", 1, {self.GPU: 2})
        assert said["nodes"] == {gpus[0]: 1, gpus[1]: 1}
        assert [arena.says(node, arena.key("r"))[1] for node in gpus] == ["1", "1", None]

    def test_at_most_so_many(self, arena: Arena, gpus: list[str]) -> None:
        said = arena.set_resource("r", 1, {self.GPU: 2}, num_nodes=1)
        [chosen] = said["nodes"]
        assert chosen in gpus[:2]
        with_it = [node for node in gpus if arena.says(node, arena.key("r"))[1]]
        assert with_it == [chosen]

    def test_an_empty_vector_chooses_all(self, arena: Arena, gpus: list[str]) -> None:
        said = arena.set_resource("r", 1, {})
        everybody = {each["metadata"]["name"] for each in arena.api.list_all("/api/v1/nodes")}
        assert said["nodes"].keys() == everybody
        assert set(gpus) < everybody
        assert [arena.says(node, arena.key("r")) for node in gpus] == [("1", "1")] * 3

    def test_labels_choose(self, arena: Arena, gpus: list[str]) -> None:
        said = arena.set_resource("r", 1, {"labels": arena.pool})
        assert said["nodes"] == dict.fromkeys(gpus, 1)

    def test_none_is_the_callers_own_node(self, arena: Arena, gpus: list[str]) -> None:
        body = {"capacity": 1, "node_spec": None}
        said = arena.service.call("PUT", arena.resource_path("mine"), body, escher_node=gpus[1])
        assert said["nodes"] == {gpus[1]: 1}
        user = arena.pods()["user"]["metadata"]
        said = arena.set_resource("my-pods", 1, owner={"name": "user", "uid": user["uid"]})
        assert said["nodes"] == {gpus[2]: 1}
        refused = arena.service.raw("PUT", arena.resource_path("nobodys"), body)
        assert (refused.status_code, refused.json()["field"]) == (422, "node_spec")

    def test_a_node_that_is_not_there_is_an_error(self, arena: Arena, gpus: list[str]) -> None:
        refused = arena.service.raw("PUT", arena.resource_path("r"), {"capacity": 1, "node_spec": "nowhere"})
        assert (refused.status_code, refused.json()["field"]) == (422, "node_spec")
        arena.service.call("GET", arena.resource_path("r"), expect=404)


class TestScenario6:
    """Many at once."""

    def test_500_distinct_creates_on_one_node_are_all_there(self, arena: Arena) -> None:
        [node] = arena.nodes(1)
        names = [f"r{index}" for index in range(500)]
        answers = asyncio.run(self._at_once(arena, names, node))
        assert Counter(answers) == {200: 500}
        status = arena.status(node)
        for said in (status["capacity"], status["allocatable"]):
            assert {key: units for key, units in said.items() if key.startswith("escher.dev/")} == {
                arena.key(name): "2" for name in names
            }
        listed = arena.service.call("GET", f"/v1/namespaces/{arena.namespace}/resources?limit=5000")["items"]
        assert {each["name"] for each in listed} == set(names)
        # One that came in the crowd is as good as any.
        arena.until_bound(arena.create(arena.pod("user", EXTENDER, **{arena.key("r499"): 2})))

    async def _at_once(self, arena: Arena, names: list[str], node: str) -> list[int]:
        """All of them are asked for before one is answered: each by a connection of its own. The statuses."""
        url, limits = arena.field.cluster.service_url, httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60, trust_env=False) as client:
            body = {"capacity": 2, "node_spec": node}
            answers = await asyncio.gather(*(client.put(arena.resource_path(name), json=body) for name in names))
            return [answer.status_code for answer in answers]

    def test_50_concurrent_plus_one_add_exactly_50(self, arena: Arena) -> None:
        """As an ESL does it: read, add, write what was read with If-Match, and anew if somebody was faster."""
        [node] = arena.nodes(1)
        arena.set_resource("r", 1, node)
        conflicts: list[int] = []

        def plus_one() -> None:
            while True:
                read = arena.service.raw("GET", arena.resource_path("r"))
                body = {"capacity": read.json()["nodes"][node] + 1, "node_spec": node}
                answer = arena.service.raw("PUT", arena.resource_path("r"), body, if_match=read.headers["etag"])
                if answer.status_code == 200:
                    return
                assert answer.status_code == 412, answer.text
                conflicts.append(1)

        together([plus_one] * 50)
        assert arena.service.call("GET", arena.resource_path("r"))["nodes"] == {node: 51}
        eventually(lambda: arena.says(node, arena.key("r")) == ("51", "51"), what="the node saying 51")
        assert conflicts, "nobody was ever in the way of anybody: this shows nothing"
        arena.field.measured.append(f"50 concurrent +1: {len(conflicts)} conflicts on the way")


class TestDrift:
    """Somebody else writes to node status: what is desired is put back."""

    def test_what_is_edited_removed_or_added_by_hand_is_mended(self, arena: Arena) -> None:
        [node] = arena.nodes(1)
        wanted = {arena.key(name): "3" for name in ("edited", "removed", "halved")}
        for name in ("edited", "removed", "halved"):
            arena.set_resource(name, 3, node)
        stranger = arena.key("stranger")
        arena.patch_status(
            node,
            {arena.key("edited"): "7", arena.key("removed"): None, stranger: "1"},
            {arena.key("edited"): "7", arena.key("removed"): None, arena.key("halved"): "1", stranger: "1"},
        )

        def ours(said: dict[str, str]) -> dict[str, str]:
            return {key: units for key, units in said.items() if key.startswith("escher.dev/")}

        eventually(lambda: ours(arena.status(node)["capacity"]) == wanted, what="the capacity mended")
        eventually(lambda: ours(arena.status(node)["allocatable"]) == wanted, what="the allocatable mended")

    def test_a_kubelet_that_sets_them_to_0_at_its_start_gets_them_back(self, arena: Arena) -> None:
        [node] = arena.nodes(1)
        key = arena.key("r")
        arena.set_resource("r", 2, node)
        holder = arena.create(arena.pod("holder", EXTENDER, **{key: 1}))
        arena.until_bound(holder)
        arena.patch_status(node, {key: "0"}, {key: "0"})
        eventually(lambda: arena.says(node, key) == ("2", "2"), what="the desired state put back")
        arena.until_bound(arena.create(arena.pod("second", EXTENDER, **{key: 1})))

    def test_what_others_put_on_a_node_is_left_alone(self, arena: Arena) -> None:
        [node] = arena.nodes(1)
        arena.patch_status(node, {"example.com/licence": "2"}, {"example.com/licence": "2"})
        arena.set_resource("r", 1, node)
        assert arena.says(node, "example.com/licence") == ("2", "2")
        assert arena.says(node, "cpu") == ("8", "8")
        arena.until_bound(arena.create(arena.pod("user", EXTENDER, **{"example.com/licence": 2, arena.key("r"): 1})))

    def test_a_node_that_comes_back_under_its_name_gets_its_resources_again(self, arena: Arena) -> None:
        node, other = arena.nodes(2)
        key = arena.key("r")
        arena.set_resource("r", 2, node)
        arena.api.delete(f"/api/v1/nodes/{node}")
        eventually(lambda: node not in arena.service.cluster_state(), what="the service missing the node")
        [waiting] = arena.create(arena.pod("waiting", EXTENDER, **{key: 1}))
        arena.until_rejected([waiting])
        offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        arena.field.cluster.create_nodes([node_objects.node(node, offered, labels=arena.pool)])
        assert arena.until_bound([waiting]) == {waiting: node}
        eventually(lambda: arena.says(node, key) == ("2", "2"), what="the node saying so")
        assert arena.says(other, key) == (None, None)
