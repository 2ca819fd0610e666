"""Scenario 18 on the running service: transactions over nodes that kube-scheduler uses at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from extender.settings.settings import OWN_NAMESPACE
from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena, away, stays, together

pytestmark = pytest.mark.timeout(300)

GIB = 2**30
INTENTS = f"/apis/escher.dev/v1alpha1/namespaces/{OWN_NAMESPACE}/transactionintents"


class Row:
    """One node of 1 CPU and 2 GiB, and agents that claim 0.25 CPU and 0.75 GiB of it."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        [self.node] = arena.nodes(1, cpu=1, memory="2Gi")

    def state(self) -> Json:
        return self.arena.service.cluster_state(node=self.node)[self.node]

    def claim(self, holder: str) -> Json:
        units = {"cpu": 0.25, "memory": "768Mi"}
        said = {"op": "claim", "namespace": self.arena.namespace, "holder": holder, "node": self.node}
        return {**said, "units": units, "ttl_seconds": 60}

    def transact(self, *operations: Json, expect: int = 200, **how: Any) -> Json:
        return self.arena.service.call("POST", "/v1/transactions", {"operations": operations, **how}, expect=expect)

    def free(self) -> tuple[float, float]:
        available = self.state()["available"]
        return available["cpu"], available["memory"] / GIB

    def release(self) -> None:
        holders = {each["holder"].rpartition("/")[2] for each in self.state()["holders"] if each["pod"] is None}
        named = {"op": "release", "namespace": self.arena.namespace}
        if holders:
            self.transact(*({**named, "holder": holder} for holder in sorted(holders)))


@pytest.fixture
def row(arena: Arena) -> Iterator[Row]:
    made = Row(arena)
    yield made
    made.release()
    assert made.free() == (1, 2)


def test_resource_fit_lets_both_copies_commit(row: Row) -> None:
    read = row.state()["sequence"]
    for agent in ("one", "two"):
        said = row.transact(row.claim(agent), detection="resource-fit", read={row.node: read})
        assert said["committed"] == [0]
    assert row.free() == (0.5, 0.5)


def test_sequence_numbers_refuse_the_second_copy(row: Row) -> None:
    read = row.state()["sequence"]
    how: Json = {"detection": "sequence-number", "read": {row.node: read}}
    assert row.transact(row.claim("one"), **how)["committed"] == [0]
    refused = row.transact(row.claim("two"), expect=409, **how)
    assert refused["conflicts"][0]["read"] == read
    assert refused["conflicts"][0]["now"] > read
    assert row.free() == (0.75, 1.25)
    # Synchronised anew, it commits.
    again = {**how, "read": {row.node: row.state()["sequence"]}}
    assert row.transact(row.claim("two"), **again)["committed"] == [0]


def test_of_three_claims_one_too_many_incremental_commits_two(row: Row) -> None:
    said = row.transact(*(row.claim(f"agent-{index}") for index in range(3)), mode="incremental")
    assert said["committed"] == [0, 1]
    [conflict] = said["conflicts"]
    assert (conflict["index"], conflict["resource"]) == (2, "memory")
    assert row.free() == (0.5, 0.5)


def test_of_three_claims_one_too_many_all_or_nothing_commits_none_and_changes_nothing(row: Row) -> None:
    before = row.state()
    claims = [row.claim(f"agent-{index}") for index in range(3)]
    setting = {"op": "set", "namespace": row.arena.namespace, "name": "lock", "capacity": 1, "node_spec": row.node}
    refused = row.transact(setting, *claims, mode="all-or-nothing", expect=409)
    assert [conflict["index"] for conflict in refused["conflicts"]] == [3]
    assert row.state() == before
    row.arena.service.call("GET", row.arena.resource_path("lock"), expect=404)
    assert row.arena.says(row.node, row.arena.key("lock")) == (None, None)


def test_resources_and_claims_commit_as_one(row: Row) -> None:
    setting = {"op": "set", "namespace": row.arena.namespace, "name": "lock", "capacity": 1, "node_spec": row.node}
    said = row.transact(setting, row.claim("one"))
    assert said["committed"] == [0, 1]
    assert said["resources"]["0"]["nodes"] == {row.node: 1}
    assert row.arena.says(row.node, row.arena.key("lock")) == ("1", "1")
    assert row.free() == (0.75, 1.25)


def test_of_many_agents_at_once_as_many_commit_as_there_is_room(row: Row) -> None:
    """Optimistic agents on private copies: read, decide, commit, and read again where they conflicted."""

    def agent(name: str) -> int:
        tries = 0
        while True:
            tries += 1
            state = row.state()
            if state["available"]["memory"] < 768 * 2**20:
                return 0
            body = {
                "operations": [row.claim(name)],
                "detection": "sequence-number",
                "read": {row.node: state["sequence"]},
            }
            answer = row.arena.service.raw("POST", "/v1/transactions", body)
            assert answer.status_code in (200, 409), answer.text
            if answer.status_code == 200:
                return tries

    tries = together([lambda name=f"agent-{index}": agent(name) for index in range(16)])  # type: ignore[misc]
    assert sum(count > 0 for count in tries) == 2
    assert row.free() == (0.5, 0.5)


def test_a_dry_run_answers_and_changes_nothing(row: Row) -> None:
    before = row.state()
    body = {"operations": [row.claim("one")]}
    assert row.arena.service.call("POST", "/v1/transactions?dryRun=All", body)["committed"] == [0]
    assert row.state() == before


@pytest.mark.longer
def test_killed_in_the_midst_of_a_transaction_the_service_leaves_all_of_it_or_nothing(row: Row) -> None:
    arena, units = row.arena, 0
    path = f"/apis/escher.dev/v1alpha1/namespaces/{arena.namespace}/ephemeralresources"

    def there() -> dict[str, int]:
        found = arena.api.list_all(path)
        return {each["metadata"]["name"]: each["spec"]["nodes"].get(row.node, 0) for each in found}

    def says(names: Iterable[str]) -> dict[str, str | None]:
        return {name: arena.says(row.node, arena.key(name))[0] for name in names}

    def transact() -> bool:
        wishes = [
            {"op": "set", "namespace": arena.namespace, "name": f"r{index}", "capacity": units, "node_spec": row.node}
            for index in range(8)
        ]
        try:
            return arena.service.raw("POST", "/v1/transactions", {"operations": wishes}).status_code == 200
        except httpx.HTTPError:
            return False

    def taken_back() -> bool:
        """Nothing of it is left to be done; its intent may stay for a minute, for creations that are on their way."""
        given_up = all(each["spec"].get("givenUp") for each in arena.api.list_all(INTENTS))
        return given_up and not arena.service.metric("escher_transactions_unfinished")

    row.transact({"op": "set", "namespace": arena.namespace, "name": "r0", "capacity": 1, "node_spec": row.node})
    before = there()
    for units in range(2, 7):
        with ThreadPoolExecutor(1) as worker:
            call = worker.submit(transact)
            time.sleep(0.004 * (units - 1))
            with away(arena, killed=True):
                told = call.result()
        done = {f"r{index}": units for index in range(8)}
        eventually(taken_back, what="the end of the transaction")
        now = there()
        assert now in ((done,) if told else (done, before))
        before = now
        eventually(lambda now=now, done=done: says(done) == {n: str(now[n]) if n in now else None for n in done})  # type: ignore[misc]


def test_pods_wait_for_what_is_claimed_and_are_woken_by_its_release(row: Row) -> None:
    row.transact(row.claim("one"))
    [waiting] = row.arena.create(row.arena.pod("waiting", cpu=1))
    row.arena.until_rejected([waiting])
    assert stays(lambda: row.arena.bound(), what="the pods bound") == {}
    row.release()
    row.arena.until_bound([waiting])
    row.arena.delete(waiting)
    eventually(lambda: row.free() == (1, 2), what="the node free again")
