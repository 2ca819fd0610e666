"""Gangs in pure extended resources, step by step: what each single event leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.core.cluster import Pod
from extender.core.names import GangKey
from extender.esl import GangEsl, GangSpec, GhostPhase, Space, Times, gang
from extender.esl.base import (
    CapacityConfirmed,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Ghost,
    News,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    TimePassed,
)
from extender.kube.names import NodeName
from tests.builders import pod

EACH = {"cpu": "1"}
N1, N2 = NodeName("n1"), NodeName("n2")


class Play:
    """An ESL and a clock; what it wants is done when a test does it."""

    def __init__(self, space: Space = Space.APP, *, seed: int = 1, times: Times | None = None) -> None:
        self.esl = GangEsl(space, seed=seed, times=times or Times())
        self.now = 100.0
        self.ghosts: list[Ghost] = []
        """In the order in which they were made."""
        self.reports: list[tuple[str, News, str]] = []

    def did(self, effects: Sequence[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, CreateGhost):
                self.ghosts.append(effect.ghost)
            elif isinstance(effect, Report):
                self.reports.append((effect.subject.name, effect.news, effect.detail))
        return list(effects)

    def ask(self, *specs: GangSpec) -> list[Effect]:
        return [effect for spec in specs for effect in self.did(self.esl.start(spec, self.now))]

    def bind(self, ghost: Ghost, on: NodeName) -> list[Effect]:
        return self.see(pod(ghost.name, namespace=ghost.namespace, node=on))

    def see(self, each: Pod) -> list[Effect]:
        return self.did(self.esl.handle(PodSeen(each), self.now))

    def drop(self, *names: str) -> list[Effect]:
        return [each for name in names for each in self.did(self.esl.handle(PodGone("default", name), self.now))]

    def refuse(self, effect: Effect, why: str = "forbidden") -> list[Effect]:
        return self.did(self.esl.handle(EffectRefused(effect, why), self.now))

    def confirm(self, *effects: Effect) -> list[Effect]:
        """The nodes have what the effects say."""
        found: list[Effect] = []
        for each in effects:
            if isinstance(each, SetCapacity | RemoveCapacity):
                units = each.units if isinstance(each, SetCapacity) else 0
                found += self.did(self.esl.handle(CapacityConfirmed(each.node, each.resource, units), self.now))
        return found

    def pass_time(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.did(self.esl.handle(TimePassed(), self.now))

    def hold(self, spec: GangSpec, *on: NodeName) -> None:
        """The gang is asked for, its ghosts are bound there, and its members' resources are on the nodes."""
        self.ask(spec)
        for ghost, node in zip(self.ghosts[-spec.size :], on, strict=True):
            self.confirm(*self.bind(ghost, node))
        assert self.esl.phase(spec.gang) is GhostPhase.HELD

    def run(self, spec: GangSpec, bundle: int, on: NodeName | None, **facts: Any) -> list[Effect]:
        """The member of that bundle is seen: bound there, or pending, or ended."""
        if facts.get("succeeded"):
            facts["finished"] = True
        facts.setdefault("name", f"{spec.gang.name}-{bundle}")
        return self.see(pod(asks={spec.key(bundle): 1}, node=on, **facts))


def deleted(effects: Sequence[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, DeleteGhost)]


def made(effects: Sequence[Effect]) -> list[str]:
    """Of which gangs ghosts are made."""
    return [effect.ghost.group for effect in effects if isinstance(effect, CreateGhost)]


class TestHolding:
    def test_a_ghost_goes_where_its_member_may_go(self) -> None:
        play = Play()
        play.ask(gang("train", 1, EACH, placement={"nodeSelector": {"zone": "a"}}))
        assert [ghost.placement for ghost in play.ghosts] == [{"nodeSelector": {"zone": "a"}}]

    def test_a_node_has_as_many_units_of_a_shared_key_as_ghosts(self) -> None:
        play = Play()
        train = gang("train", 3, EACH, one_key=True)
        play.ask(train)
        first, second, third = play.ghosts
        assert play.bind(first, N1) == []
        assert play.bind(second, N2) == []
        effects = play.bind(third, N1)
        key = train.key(0)
        assert {(each.node, each.resource, each.units) for each in effects if isinstance(each, SetCapacity)} == {
            (N1, key, 2),
            (N2, key, 1),
        }
        assert play.reports == []
        play.confirm(*effects)
        assert play.reports == [("train", News.RESERVED, "")]

    def test_a_pod_of_another_namespace_is_no_member_though_it_asks_for_the_same(self) -> None:
        play = Play(times=Times(idle=60))
        train = gang("train", 1, EACH)
        play.hold(train, N1)
        play.see(pod("stranger", {train.key(0): 1}, namespace="other"))
        play.pass_time(60)
        assert play.esl.phase(train.gang) is GhostPhase.ENDING, "nobody of its own has come"

    def test_a_pod_that_nobody_knows_may_go(self) -> None:
        play = Play()
        play.hold(gang("train", 1, EACH), N1)
        assert play.drop("stranger") == []

    def test_what_is_refused_once_and_told_twice_counts_once(self) -> None:
        play = Play()
        [creation, _] = play.ask(gang("train", 2, EACH))
        assert len(deleted(play.refuse(creation))) == 1
        assert play.refuse(creation) == []
        [_, ghost] = play.ghosts
        assert play.drop(ghost.name)
        [(_, news, why)] = play.reports
        assert news is News.ROLLED_BACK
        assert why.endswith("was refused: forbidden")

    def test_a_resource_that_is_refused_once_and_told_twice_is_waited_for_until_it_is_gone(self) -> None:
        play = Play()
        train = gang("train", 1, EACH)
        play.ask(train)
        [export] = play.bind(play.ghosts[0], N1)
        [gone] = play.refuse(export)
        assert gone == RemoveCapacity(N1, train.key(0))
        assert play.refuse(export) == [], "the resource may still be there, and the ghost stays as long"
        assert deleted(play.confirm(gone)) == [play.ghosts[0].name]

    def test_a_resource_that_is_refused_though_an_attempt_before_had_set_it_ends_the_gang(self) -> None:
        play = Play()
        train = gang("train", 1, EACH)
        play.ask(train)
        [export] = play.bind(play.ghosts[0], N1)
        play.confirm(export)
        gone = play.refuse(export)
        assert gone == [RemoveCapacity(N1, train.key(0))]
        assert deleted(play.confirm(*gone)) == [play.ghosts[0].name]
        play.drop(play.ghosts[0].name)
        assert play.reports[-1] == ("train", News.FAILED, "forbidden")


class TestAnEnd:
    def test_says_why(self) -> None:
        play = Play()
        train = gang("train", 1, EACH)
        play.hold(train, N1)
        play.run(train, 0, N1)
        play.run(train, 0, N1, succeeded=True)
        play.confirm(RemoveCapacity(N1, train.key(0)))
        play.drop(play.ghosts[0].name)
        assert play.reports == [("train", News.RESERVED, ""), ("train", News.ENDED, "all members have ended")]
        assert play.esl.phase(train.gang) is GhostPhase.ENDED

    def test_comes_though_the_members_had_finished_before_they_were_seen(self) -> None:
        play = Play()
        train = gang("train", 1, EACH)
        play.hold(train, N1)
        play.run(train, 0, N1, succeeded=True)
        assert play.esl.phase(train.gang) is GhostPhase.ENDING

    def test_leaves_a_ghost_to_each_member_that_runs_until_that_has_ended(self) -> None:
        play = Play()
        train = gang("train", 4, EACH, one_key=True)
        play.hold(train, N1, N1, N1, N1)
        key = train.key(0)
        members = [pod(f"train-{number}", {key: 1}, node=N1) for number in range(2)]
        for member in members:
            play.see(member)
        play.see(pod("train-2", {key: 1}))
        play.did(play.esl.cancel(train.gang, play.now))
        gone = deleted(play.confirm(RemoveCapacity(N1, key)))
        assert len(gone) == 2, "two places are in use"
        play.drop(*gone)
        gone = deleted(play.drop("train-0"))
        assert len(gone) == 1
        play.drop(*gone)
        assert len(deleted(play.drop("train-1"))) == 1

    def test_deletes_a_ghost_whose_member_has_ended_though_another_ghost_is_not_gone_yet(self) -> None:
        play = Play()
        train = gang("train", 2, EACH)
        play.hold(train, N1, N2)
        play.run(train, 1, N2)
        play.did(play.esl.cancel(train.gang, play.now))
        first, second = play.ghosts
        assert deleted(play.confirm(*(RemoveCapacity(node, train.key(n)) for n, node in enumerate((N1, N2))))) == [
            first.name
        ]
        assert deleted(play.drop("train-1")) == [second.name]

    def test_of_an_attempt_says_why(self) -> None:
        play = Play()
        play.ask(gang("train", 2, EACH))
        first, second = play.ghosts
        play.bind(first, N1)
        play.pass_time(10)
        play.drop(first.name, second.name)
        assert play.reports == [("train", News.ROLLED_BACK, "1 of 2 ghosts were bound in time")]


class TestPauses:
    def test_are_between_half_and_one_and_a_half_times_as_long_as_is_said(self) -> None:
        pauses = []
        for seed in range(60):
            play = Play(seed=seed, times=Times(first_pause=10, longest_pause=60))
            [creation] = play.ask(gang("train", 1, EACH))
            play.refuse(creation)
            due = play.esl.next_deadline()
            assert due is not None
            pauses.append(due - play.now)
        assert 5 <= min(pauses) < 6
        assert 14 < max(pauses) <= 15


class TestTurns:
    def test_two_gangs_whose_time_is_over_at_once_are_both_rolled_back(self) -> None:
        play = Play()
        play.ask(gang("left", 1, EACH), gang("right", 1, EACH))
        assert sorted(deleted(play.pass_time(10))) == sorted(ghost.name for ghost in play.ghosts)

    def test_two_gangs_whose_pauses_are_over_at_once_are_each_tried_once(self) -> None:
        play = Play()
        for creation in play.ask(gang("left", 1, EACH), gang("right", 1, EACH)):
            play.refuse(creation)
        assert sorted(made(play.pass_time(10))) == ["left", "right"]

    def test_in_a_shared_library_the_next_has_its_turn_when_the_one_before_it_is_cancelled(self) -> None:
        play = Play(Space.LIB)
        play.ask(gang("first", 1, EACH))
        assert play.ask(gang("second", 1, EACH)) == []
        assert made(play.did(play.esl.cancel(GangKey("default", "first"), play.now))) == ["second"]

    def test_in_a_shared_library_who_waits_for_its_turn_is_not_waited_for(self) -> None:
        """Its pause may be over long before the other's time is: nothing is due then."""
        play = Play(Space.LIB, times=Times(reserve_within=10, first_pause=1))
        [creation] = play.ask(gang("first", 1, EACH, priority=1))
        play.ask(gang("second", 1, EACH))
        assert made(play.refuse(creation)) == ["second"]
        assert play.esl.next_deadline() == play.now + 10


@pytest.mark.parametrize("namespace", ["default", "team"])
def test_a_gang_that_is_not_known_has_ended(namespace: str) -> None:
    assert Play().esl.phase(GangKey(namespace, "train")) is GhostPhase.ENDED
