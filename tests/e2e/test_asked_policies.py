"""Policies that are asked, on both control planes, by the SDK as an application uses it: scenarios 6, 10 and 16.
What takes longer is run on the embedded cluster in virtual time alone: tests/kubesim/test_asked_policies.py."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from escher_k8s import Escher, NotFound
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY, fresh_arena, shared_field
from tests.e2e.workload import Arena, Field, away, stays

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def escher(arena: Arena) -> Iterator[Escher]:
    with Escher(arena.field.cluster.service_url, namespace=arena.namespace) as client:
        yield client


def run(arena: Arena, escher: Escher, policy: str, task: str, group: str = "", **more: Any) -> str:
    """The policy is asked, and the task's pod exists."""
    ask = escher.ask_policy(
        policy, task, group, needs={"cpu": "10m"}, node_labels=arena.pool if arena.own_nodes else None
    )
    [name] = arena.create(ask.attach(arena.pod(task, cpu="10m", **more)))
    return name


def units(arena: Arena, resource: str) -> int:
    """Units of it on all nodes, as they say themselves."""
    listed = arena.api.list_all("/api/v1/nodes")
    return sum(int(node["status"]["allocatable"].get(arena.key(resource), 0)) for node in listed)


def objects(arena: Arena) -> dict[str, dict[str, int]]:
    """Units by node, of each EphemeralResource of the namespace."""
    listed = arena.api.list_all(f"/apis/escher.dev/v1alpha1/namespaces/{arena.namespace}/ephemeralresources")
    return {each["metadata"]["name"]: each["spec"].get("nodes", {}) for each in listed}


def test_a_successor_of_three_starts_only_after_all_three_have_succeeded(arena: Arena, escher: Escher) -> None:
    """Scenario 10."""
    arena.nodes(2)
    escher.put_policy("graph", "signal", {"successors": [{"name": "last", "after": ["a", "b", "c"]}]})
    last = run(arena, escher, "graph", "last")
    names = [
        run(arena, escher, "graph", name, run_seconds=seconds) for name, seconds in zip("abc", (1, 2, 4), strict=True)
    ]
    arena.until_bound(names)
    seen: list[set[str]] = []

    def placed() -> bool:
        seen.append(set(arena.phases(names).values()))
        return last in arena.bound()

    eventually(placed, within=30, what="the successor")
    assert seen[-1] == {"Succeeded"}
    assert len(seen) > 1


@REAL_ONLY
def test_fifty_who_ask_at_the_same_moment_add_exactly_fifty_and_all_goes_with_the_policy(
    arena: Arena, escher: Escher
) -> None:
    """Scenario 6."""
    escher.put_policy("slots", "queue", {"capacity": 1000})
    with ThreadPoolExecutor(50) as workers:
        asks = list(workers.map(lambda number: escher.ask_policy("slots", f"t{number}"), range(50)))
    assert len({ask.labels["esl.escher.dev/slots"] for ask in asks}) == 50
    eventually(lambda: units(arena, "slots--unit") == 50, what="fifty units")
    assert stays(lambda: units(arena, "slots--unit")) == 50
    escher.delete_policy("slots")
    eventually(lambda: units(arena, "slots--unit") == 0 and not objects(arena), what="nothing of it")
    with pytest.raises(NotFound):
        escher.ask_policy("slots", "t0")


@REAL_ONLY
def test_a_mutex_holds_across_a_restart_and_who_was_answered_before_is_known(arena: Arena, escher: Escher) -> None:
    arena.nodes(2)
    escher.put_policy("one", "queue")
    first = run(arena, escher, "one", "first")
    arena.until_bound([first])
    answered = escher.ask_policy("one", "second", needs={"cpu": "10m"}, node_labels=arena.pool)
    with away(arena, killed=True):
        pass
    eventually(lambda: arena.service.raw("GET", "/readyz").status_code == 200, what="the service being ready")
    [second] = arena.create(answered.attach(arena.pod("second", cpu="10m")))
    assert stays(lambda: second in arena.bound(), during=2) is False
    arena.delete(first)
    arena.until_bound([second], within=30)


def test_who_only_names_it_is_told_to_ask(arena: Arena, escher: Escher) -> None:
    arena.nodes(1)
    escher.put_policy("one", "queue")
    names = arena.create(arena.pod("names", cpu="10m", annotations={"escher.dev/policy": "one"}))
    assert "naming policy one is not enough: ask it for each task" in arena.until_rejected(names)["names"]


@pytest.fixture(scope="module")
def hundred(state_folder: Path, where: str) -> Iterator[Field]:
    """A cluster of 100 nodes, all of which are divided."""
    yield from shared_field(where, nodes=100)


@REAL_ONLY
def test_users_have_their_weights_part_of_100_nodes_as_they_come_and_idle(hundred: Field) -> None:
    """Scenario 16."""
    for arena in fresh_arena(hundred, "shares"):
        with Escher(hundred.cluster.service_url, namespace=arena.namespace) as escher:
            _divided(arena, escher)


def _divided(arena: Arena, escher: Escher) -> None:
    p, a, b = {"name": "p"}, {"name": "a", "weight": 2, "parent": "p"}, {"name": "b", "weight": 3, "parent": "p"}
    others = [{"name": "q"}, {"name": "c", "parent": "q"}]

    def shares() -> list[int]:
        return [len(objects(arena).get(f"fair--{user}", {})) for user in "abc"]

    def divided(users: list[dict[str, Any]], parts: list[int]) -> None:
        escher.put_policy("fair", "shares", {"users": users})
        eventually(lambda: shares() == parts, within=60, what=f"{parts}")

    divided([p, a], [100, 0, 0])
    runs = run(arena, escher, "fair", "runs", "a")
    there = arena.until_bound([runs])
    divided([p, a, b], [40, 60, 0])
    divided([p, a, b, *others], [20, 30, 50])
    divided([p, a, {**b, "idle": True}, *others], [50, 0, 50])
    assert arena.bound([runs]) == there
    mine = [run(arena, escher, "fair", f"mine-{number}", "a") for number in range(5)]
    assert set(arena.until_bound(mine).values()) <= set(objects(arena)["fair--a"])
