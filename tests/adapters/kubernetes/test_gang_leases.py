"""Who is dead: proven by a lease that ran out and could be deleted, or by none; never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from extender.adapters.kubernetes.election.gang_leases import DURATION, GangLeases, Lost
from extender.kube.errors import Refused
from kubesim.virtual import VirtualCluster
from tests.adapters.kubernetes.scripted_api import ScriptedApi

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TwoLives:
    """Two instances and the API server between them."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.clock = Clock()
        self.one, self.other = (
            GangLeases(cluster.requests, "default", name, self.clock) for name in ("aaaaaa", "bbbbbb")
        )
        self.cluster = cluster

    async def names(self) -> list[str]:
        found = await self.cluster.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases")
        return sorted(each["metadata"]["name"] for each in found["items"])


@pytest.fixture
async def lives(kubesim_virtual: VirtualCluster) -> TwoLives:
    lives = TwoLives(kubesim_virtual)
    await lives.one.acquire()
    return lives


async def test_who_renews_lives(lives: TwoLives) -> None:
    for _ in range(5):
        assert await lives.other.dead({"aaaaaa"}) == set()
        lives.clock.now += DURATION - 1
        await lives.one.renew()


async def test_who_does_not_renew_is_dead_after_its_time_and_finds_out(lives: TwoLives) -> None:
    assert await lives.other.dead(set()) == set()
    lives.clock.now += DURATION - 0.1
    assert await lives.other.dead(set()) == set()
    lives.clock.now += 0.1
    assert await lives.other.dead(set()) == {"aaaaaa"}
    assert await lives.other.dead(set()) == {"aaaaaa"}, "it stays dead"
    assert await lives.names() == []
    with pytest.raises(Lost):
        await lives.one.renew()


async def test_who_renews_just_before_it_is_declared_dead_lives(lives: TwoLives) -> None:
    await lives.other.dead(set())
    lives.clock.now += DURATION
    deleting = lives.other._delete

    async def meanwhile(name: str, options: Mapping[str, Any]) -> None:
        await lives.one.renew()
        await deleting(name, options)

    lives.other._delete = meanwhile  # type: ignore[method-assign]
    assert await lives.other.dead(set()) == set()
    await lives.one.renew()


async def test_who_has_no_lease_is_dead_and_who_is_not_suspected_is_not_asked_about(lives: TwoLives) -> None:
    assert await lives.other.dead({"cccccc", "bbbbbb"}) == {"cccccc"}


async def test_what_was_seen_before_an_interruption_proves_nothing(lives: TwoLives) -> None:
    await lives.other.dead(set())
    lives.clock.now += 10 * DURATION
    lives.other.interrupted()
    assert await lives.other.dead(set()) == set()


async def test_a_birth_whose_answer_was_lost_is_one(lives: TwoLives) -> None:
    await lives.one.acquire()
    await lives.one.renew()


async def test_a_renewal_whose_answer_was_lost_is_no_end(lives: TwoLives) -> None:
    await lives.one._touch()
    await lives.one.renew()
    await lives.one.renew()


async def test_of_two_who_come_after_it_both_find_out(lives: TwoLives) -> None:
    third = GangLeases(lives.cluster.requests, "default", "cccccc", lives.clock)
    for each in (lives.other, third):
        assert await each.dead({"aaaaaa"}) == set()
        assert each.undecided
    lives.clock.now += DURATION
    for each in (lives.other, third):
        assert await each.dead({"aaaaaa"}) == {"aaaaaa"}
        assert not each.undecided


async def test_it_is_gone_after_its_end(lives: TwoLives) -> None:
    assert await lives.names() == ["escher-ghosts-aaaaaa"]
    await lives.one.release()
    assert await lives.names() == []
    await lives.one.release()


async def test_what_is_refused_is_said() -> None:
    api = ScriptedApi()
    api.answers.append(Refused(403, "leases is forbidden"))
    with pytest.raises(Refused, match="forbidden"):
        await GangLeases(api, "default", "aaaaaa", asyncio.get_running_loop().time).acquire()


@pytest.mark.parametrize("seconds", [None, 1, 10**9])
async def test_a_lease_holds_for_a_minute_at_most_and_for_no_less_than_all_do(
    lives: TwoLives, seconds: int | None
) -> None:
    """Whatever a hand has written there."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/escher-ghosts-aaaaaa"
    body = {"spec": {"leaseDurationSeconds": seconds, "holderIdentity": "x" * 1000, "leaseTransitions": 2**31 - 1}}
    await lives.cluster.ask("PATCH", path, body, content_type="application/merge-patch+json")
    assert await lives.other.dead(set()) == set()
    lives.clock.now += DURATION - 0.1
    assert await lives.other.dead(set()) == set()
    lives.clock.now += 3 * DURATION + 0.1
    assert await lives.other.dead(set()) == {"aaaaaa"}
