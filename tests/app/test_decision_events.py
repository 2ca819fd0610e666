"""What is announced: every decision that is of interest has words, and a gang's life can be followed as it happens."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from extender.app.contracts.decisions import DecisionEvent
from extender.app.contracts.effects import AdvertiseCapacity, AskRefused, PolicyFailed
from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.ports import PodRef
from extender.app.observability.decision_events import OF_INTEREST, BindEnded, Filtered, Told, announced, namespace_of
from extender.app.observability.decision_stream import DecisionStream
from extender.core.gang_ask import MalformedAsk
from extender.core.gang_of_one import ask_of_one
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.eviction_orders import EvictRest, Preempted
from extender.core.gangs.state.gang import (
    EvictFor,
    EvictMembers,
    GangBound,
    GangInDoubt,
    GangInPart,
    GangPlanned,
    GangQuarantined,
    GangTimedOut,
    GangTurnedAway,
    RoomSaved,
    TurnLost,
    WakePod,
)
from extender.core.gangs.state.partial_gangs import Proof
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.core.safety_switches import Act, Withheld
from extender.kube.names import CPU, NodeName
from tests.app.fakes import LoopClock
from tests.app.town import Town
from tests.builders import pod

pytestmark = pytest.mark.anyio

TRAIN = GangKey("default", "train")
A, B = pod("a"), pod("b")
N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
FULL = "too little room"
WORDS: list[tuple[Told, str, str]] = [
    (Filtered(A, 2, Verdict((N1,))), "PodPlaced", ""),
    (Filtered(A, 2, Verdict((), {N1: FULL, N2: FULL})), "PodTurnedAway", "2 nodes: too little room"),
    (
        Filtered(A, 3, Verdict((), {N1: FULL, N2: FULL}, {N3: "gone"})),
        "PodTurnedAway",
        "2 nodes: too little room; 1 nodes: gone",
    ),
    (Filtered(A, 0, Verdict()), "PodTurnedAway", ""),
    (Filtered(A, 3, Verdict((N1, N2))), "NodesFiltered", "2 of 3 nodes pass"),
    (BindEnded(PodRef.of(A), N1, ""), "PodBound", ""),
    (BindEnded(PodRef.of(A), N1, "it is gone"), "PodNotBound", "it is gone"),
    (AskRefused(A, MalformedAsk("f", "v", "no number", "write 2")), "AskRefused", "no number; write 2"),
    (WakePod(A), "PodWoken", ""),
    (Preempted(A, B), "PodPreempted", "for pod default/b"),
    (GangPlanned(TRAIN), "GangPlanned", ""),
    (GangBound(TRAIN, 0.2), "GangBound", "0.200 s after its first member was seen"),
    (GangTurnedAway(TRAIN, A, FULL, None), "GangTurnedAway", FULL),
    (
        GangTurnedAway(TRAIN, A, FULL, Shortfall(1, 4, Short(CPU, 4000, 1000))),
        "GangTurnedAway",
        "too little room: 1 of 4 members fit",
    ),
    (RoomSaved(TRAIN, 4, (A,)), "GangRoomSaved", "backfill reservation for its 4 places"),
    (TurnLost(TRAIN, 30.0, (A,)), "GangTurnLost", "no backfill reservation for 30 s"),
    (GangTimedOut(TRAIN, 1, 4, (A,)), "GangTimedOut", "1 of 4 members were ready to be bound in time"),
    (GangInPart(TRAIN, 4, (A, B), 10.0), "GangInPart", "2 of 4 members are bound"),
    (GangInDoubt(TRAIN, 4, (A, B)), "GangInDoubt", "2 of 4 members are bound"),
    (GangQuarantined(TRAIN, (A,), ValueError("x")), "GangQuarantined", "ValueError('x')"),
    (EvictFor(TRAIN, (A,), (B,)), "PodsEvicted", "for this gang: default/b"),
    (EvictRest(TRAIN, A, (B,), 1), "PodsEvicted", "its others, for pod default/a: default/b"),
    (EvictMembers(TRAIN, 2, (A,), Proof("x", 2, 2, (A,), (B,), 0)), "PodsEvicted", "of its quorum of 2: default/a; "),
    (Withheld(Act.PREEMPT, "default", TRAIN, ("default/b",)), "Withheld", "preempt: default/b"),
    (Withheld(Act.SAVE_ROOM, "default"), "Withheld", "save-room"),
    (PolicyFailed("calm", ValueError("x")), "PolicyFailed", "calm: ValueError('x')"),
]


async def told(announcements: DecisionStream, count: int) -> list[DecisionEvent]:
    found: list[DecisionEvent] = []
    follower = announcements.follow(0)
    while len(found) < count:
        announcement = await anext(follower)
        assert isinstance(announcement, DecisionEvent)
        found.append(announcement)
    return found


@pytest.mark.parametrize(("decision", "what", "detail"), WORDS, ids=lambda value: type(value).__name__)
async def test_every_decision_of_interest_has_words(decision: Told, what: str, detail: str) -> None:
    announcements = DecisionStream(LoopClock())
    announcements.emit(decision)
    [said] = await told(announcements, 1)
    assert said.what == what
    assert said.detail.startswith(detail) if detail else not said.detail
    assert said.namespace == namespace_of(decision) == ("" if what == "PolicyFailed" else "default")


def test_none_of_them_is_forgotten_above() -> None:
    assert {type(decision) for decision, _, _ in WORDS} == set(OF_INTEREST)


async def test_what_decides_nothing_is_not_announced() -> None:
    announcements = DecisionStream(LoopClock())
    announcements.emit(Filtered(A, 2, Verdict((N1, N2))))
    announcements.emit(AdvertiseCapacity(N1))
    announcements.emit(WakePod(B))
    assert [each.pod for each in await told(announcements, 1)] == ["b"]


class Names(list[NodeName]):
    """That can be seen to be gone."""


class Reasons(dict[NodeName, str]):
    """The same."""


def is_gone(what: weakref.ref[Names] | weakref.ref[Reasons]) -> bool:
    gc.collect()
    return what() is None


@pytest.mark.parametrize("passed", [[], [N1], [N1, N2]])
def test_no_names_of_nodes_are_kept(passed: list[NodeName]) -> None:
    """There may be thousands in each of the thousands of answers that can be followed."""
    announcements = DecisionStream(LoopClock())
    names, reasons = Names(passed), Reasons({N1: FULL, N2: FULL})
    forgotten, left = weakref.ref(names), weakref.ref(reasons)
    announcements.emit(Filtered(A, 3, Verdict(names, reasons)))
    del names, reasons
    assert is_gone(forgotten)
    assert is_gone(left)


def fails(names: Names, cause: bool) -> None:
    try:
        raise ValueError(f"no {len(names)}")
    except ValueError as error:
        if cause:
            raise LookupError("it fails") from error
        raise


@pytest.mark.parametrize("cause", [False, True])
def test_of_a_defect_not_what_led_to_it_is_kept(cause: bool) -> None:
    """Its traceback has the variables of all who were on the way to it: whole bodies of requests."""
    announcements = DecisionStream(LoopClock())
    names = Names([N1])
    forgotten = weakref.ref(names)
    with pytest.raises((ValueError, LookupError)) as caught:
        fails(names, cause)
    announcements.emit(PolicyFailed("calm", caught.value))
    announcements.emit(GangQuarantined(TRAIN, (A,), caught.value))
    assert caught.value.__traceback__ is not None, "whoever logs it next needs that"
    del names, caught
    assert is_gone(forgotten)


async def test_two_followers_hear_the_same_each_at_its_own_pace() -> None:
    announcements = DecisionStream(LoopClock())
    both = [announcements.follow(), announcements.follow()]
    for _ in range(3):
        announcements.emit(GangPlanned(TRAIN))
    announcements.close()
    heard = [[each async for each in follower] for follower in both]
    assert heard[0] == heard[1] == [each async for each in announcements.follow(0)]
    assert len(heard[0]) == 3


async def test_a_gangs_life_can_be_followed_in_a_cluster() -> None:
    async with Town(nodes=2) as town:
        announcements = town.simulation.application.announcements
        town.create(*town.gang("train", 2))
        await town.until_bound(2)
        await asyncio.sleep(1)
        announcements.close()
        said = [each async for each in announcements.follow(0) if isinstance(each, DecisionEvent)]
        assert [each.what for each in said if each.gang == "train"] == ["GangPlanned", "GangBound"]
        placed = {each.pod: each.node for each in said if each.what == "PodPlaced"}
        assert {each.pod: each.node for each in said if each.what == "PodBound"} == placed == dict(town.bound())


async def test_who_follows_one_namespace_is_told_no_pods_of_others() -> None:
    theirs, more = pod("secret", namespace="other"), pod("secret-too", namespace="other")
    told: list[tuple[Told, str]] = [
        (Preempted(A, theirs), "for a pod of another namespace"),
        (EvictFor(TRAIN, (A,), (theirs, more)), "for this gang: 2 pods of other namespaces"),
        (EvictFor(TRAIN, (A,), (B, theirs)), "for this gang: default/b and 1 more"),
    ]
    announcements = DecisionStream(LoopClock())
    for decision, _ in told:
        announcements.emit(decision)
    announcements.close()
    said = [each async for each in announcements.follow(0, namespace="default")]
    assert [each.detail for each in said if isinstance(each, DecisionEvent)] == [detail for _, detail in told]
    everywhere = [str(each) async for each in announcements.follow(0)]
    assert all("other/secret" in each for each in everywhere)


def test_a_gang_is_told_of_as_it_is_called_and_a_gang_of_one_as_its_pod() -> None:
    gang = announced(1, 0.0, GangPlanned(GangKey("team", "job.train", "batch", "u1")), lambda key: "job.train@batch")
    assert (gang.gang, gang.pod) == ("job.train@batch", "")
    alone = announced(1, 0.0, GangPlanned(ask_of_one("team", "web-0").key), lambda key: "job.train@batch")
    assert (alone.gang, alone.pod) == ("", "web-0")
