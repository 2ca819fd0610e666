"""Gangs in pure extended resources whose ghosts, resources or members others have taken: made good, told, or ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.core.cluster import Owner
from extender.esl import GangSpec, GhostPhase, Times, gang
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    CreateGhost,
    Effect,
    EvictMember,
    News,
    RemoveCapacity,
    SetCapacity,
)
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import pod
from tests.esl.test_gang_steps import EACH, N1, N2, Play, deleted, made

JOB = Owner("Job", "train", "uid-train")


def creations(effects: Sequence[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, CreateGhost)]


def evicted(effects: Sequence[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, EvictMember)]


def writes(effects: Sequence[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, SetCapacity | RemoveCapacity)]


def held(size: int = 1, *on: NodeName, **times: Any) -> tuple[Play, GangSpec]:
    play = Play(times=Times(**times))
    train = gang("train", size, EACH)
    play.hold(train, *(on or (N1,) * size))
    return play, train


def look(play: Play, node: NodeName, key: ResourceKey, units: int) -> list[Effect]:
    return play.did(play.esl.handle(CapacitySeen(node, key, units), play.now))


def news(play: Play) -> list[News]:
    return [each for _, each, _ in play.reports]


class TestALostGhost:
    def test_is_replaced_at_once_and_that_is_told(self) -> None:
        play, _ = held()
        [ghost] = play.ghosts
        assert made(play.drop(ghost.name)) == ["train"]
        assert play.reports[-1] == (
            "train",
            News.INCOMPLETE,
            f"ghost {ghost.name} was deleted by another client; a new ghost replaces it",
        )

    def test_whose_replacement_is_refused_is_replaced_again_after_a_pause_that_grows(self) -> None:
        play, _ = held(first_pause=1, longest_pause=60, attempts=None)
        effects = play.drop(play.ghosts[0].name)
        began, times = play.now, []
        for _ in range(6):
            [creation] = creations(effects)
            assert creations(play.refuse(creation, "exceeded quota")) == []
            assert "exceeded quota" in play.reports[-1][2]
            due = play.esl.next_deadline()
            assert due is not None
            effects = play.pass_time(due - play.now)
            times.append(play.now - began)
        pauses = [b - a for a, b in zip([0.0, *times], times, strict=False)]
        for number, pause in enumerate(pauses):
            assert 0.5 <= pause / 2**number <= 1.5

    def test_that_cannot_be_replaced_ends_the_gang_after_as_many_attempts_and_says_why(self) -> None:
        play, train = held(attempts=3, idle=10_000)
        effects = play.drop(play.ghosts[0].name)
        play.confirm(*effects)
        for _ in range(3):
            [creation] = creations(effects)
            play.refuse(creation, "exceeded quota")
            if play.esl.phase(train.gang) is GhostPhase.HELD:
                effects = play.pass_time(60)
        assert play.esl.phase(train.gang) is GhostPhase.ENDED
        assert play.reports[-1][1] is News.FAILED
        assert "exceeded quota; it was replaced 3 times without effect" in play.reports[-1][2]

    def test_is_not_counted_with_one_that_was_lost_long_before(self) -> None:
        play, train = held(attempts=2, longest_pause=60, idle=10_000)
        for _ in range(5):
            play.drop(play.ghosts[-1].name)
            play.confirm(*play.bind(play.ghosts[-1], N1))
            play.pass_time(60)
        assert play.esl.phase(train.gang) is GhostPhase.HELD

    def test_whose_replacement_is_not_bound_in_time_is_replaced_again(self) -> None:
        play, _ = held(reserve_within=10, first_pause=1)
        play.drop(play.ghosts[0].name)
        second = play.ghosts[-1]
        effects = play.pass_time(10)
        assert deleted(effects) == [second.name]
        assert creations(effects) == []
        assert "was not bound in time; a new ghost follows" in play.reports[-1][2]
        assert made(play.pass_time(1.5)) == ["train"]

    def test_before_any_member_is_bound_keeps_all_from_it_until_it_is_replaced(self) -> None:
        play, train = held(2, N1, N2)
        first, second = (train.key(bundle) for bundle in range(2))
        play.run(train, 0, None)
        gone = play.drop(play.ghosts[0].name)
        assert writes(gone) == [RemoveCapacity(N1, first), RemoveCapacity(N2, second)]
        play.confirm(*gone)
        again = play.bind(play.ghosts[-1], N1)
        assert sorted(writes(again), key=str) == [SetCapacity(N1, first, 1), SetCapacity(N2, second, 1)]

    def test_when_a_member_is_bound_is_no_reason_to_keep_the_others_from_it(self) -> None:
        play, train = held(2, N1, N2)
        play.run(train, 1, N2)
        assert writes(play.drop(play.ghosts[0].name)) == [RemoveCapacity(N1, train.key(0))]

    def test_that_was_preempted_is_said_to_be(self) -> None:
        play, _ = held()
        [ghost] = play.ghosts
        play.see(pod(ghost.name, node=N1, deleting=True, preempted=True))
        assert f"ghost {ghost.name} was preempted" in play.reports[-1][2]


class TestTheMemberOfALostGhost:
    def test_is_evicted_when_its_room_stays_lost_and_finds_it_elsewhere(self) -> None:
        play, train = held(without_room=10, reserve_within=60)
        play.run(train, 0, N1)
        gone = play.drop(play.ghosts[0].name)
        assert writes(gone) == [RemoveCapacity(N1, train.key(0))]
        assert [why for _, each, why in play.reports if each is News.INCOMPLETE][-1] == (
            "train-0 runs on capacity that no ghost holds"
        )
        assert evicted(play.pass_time(9)) == []
        play.confirm(*play.bind(play.ghosts[-1], N2))
        effects = play.pass_time(1)
        assert evicted(effects) == ["train-0"]
        assert evicted(play.pass_time(100)) == [], "once is enough"
        play.drop("train-0")
        assert play.esl.phase(train.gang) is GhostPhase.HELD, "it was not its own end"
        play.run(train, 0, N2, uid=PodUid("again"))
        assert evicted(play.pass_time(100)) == []

    def test_stays_when_its_room_is_held_again_in_time(self) -> None:
        play, train = held(without_room=10)
        play.run(train, 0, N1)
        play.drop(play.ghosts[0].name)
        play.confirm(*play.bind(play.ghosts[-1], N1))
        assert evicted(play.pass_time(100)) == []
        assert play.esl.phase(train.gang) is GhostPhase.HELD

    def test_stays_for_ever_if_that_is_wanted(self) -> None:
        play, train = held(without_room=None)
        play.run(train, 0, N1)
        play.drop(play.ghosts[0].name)
        assert evicted(play.pass_time(10_000)) == []

    def test_is_the_youngest_of_those_that_share_a_key(self) -> None:
        play = Play(times=Times(without_room=10))
        train = gang("train", 2, EACH, one_key=True)
        play.hold(train, N1, N1)
        play.run(train, 0, N1, created=5.0)
        play.run(train, 1, N1, created=4.0)
        play.drop(play.ghosts[0].name)
        assert evicted(play.pass_time(10)) == ["train-0"]

    def test_is_evicted_while_the_gang_ends_as_well_and_waited_for(self) -> None:
        """kube-scheduler was already binding it when its resource was removed."""
        play, train = held(without_room=10)
        play.did(play.esl.cancel(train.gang, play.now))
        play.confirm(RemoveCapacity(N1, train.key(0)))
        play.run(train, 0, N1)
        play.drop(play.ghosts[0].name)
        assert play.esl.phase(train.gang) is GhostPhase.ENDING
        assert evicted(play.pass_time(10)) == ["train-0"]
        assert play.esl.phase(train.gang) is GhostPhase.ENDED

    def test_that_may_not_be_evicted_is_told_of(self) -> None:
        play, train = held(without_room=10)
        play.run(train, 0, N1)
        play.drop(play.ghosts[0].name)
        [eviction] = [each for each in play.pass_time(10) if isinstance(each, EvictMember)]
        play.refuse(eviction)
        assert play.reports[-1] == ("train", News.INCOMPLETE, "train-0 still runs without held capacity: forbidden")


class TestAResourceThatOthersChange:
    @pytest.mark.parametrize("units", [0, 3])
    def test_is_written_again_at_once(self, units: int) -> None:
        play, train = held()
        assert look(play, N1, train.key(0), units) == [SetCapacity(N1, train.key(0), 1)]

    def test_is_left_alone_while_it_is_being_written_or_is_as_it_should_be(self) -> None:
        play, train = held()
        assert look(play, N1, train.key(0), 1) == []
        assert len(look(play, N1, train.key(0), 0)) == 1
        assert look(play, N1, train.key(0), 0) == []

    def test_again_and_again_is_written_after_a_pause_that_grows(self) -> None:
        play, train = held(first_pause=1, longest_pause=4)
        again = SetCapacity(N1, train.key(0), 1)
        play.confirm(*look(play, N1, train.key(0), 0))
        for pause in (1, 2, 4, 4):
            assert look(play, N1, train.key(0), 0) == []
            assert writes(play.pass_time(pause - 0.1)) == []
            assert writes(play.pass_time(0.1)) == [again]
            play.confirm(again)

    def test_with_its_node_is_written_when_that_is_there_again(self) -> None:
        play, train = held(first_pause=1, longest_pause=60, idle=1000)
        there = SetCapacity(N1, train.key(0), 1)

        def gone() -> list[Effect]:
            return play.did(play.esl.handle(CapacityConfirmed(N1, train.key(0), 0), play.now))

        assert look(play, N1, train.key(0), 0) == [there]
        assert gone() == [], "not at once, for ever"
        assert writes(play.pass_time(1)) == [there]
        assert gone() == []
        assert writes(play.pass_time(2)) == [there]
        play.confirm(there)
        assert writes(play.pass_time(500)) == []

    def test_is_removed_if_it_should_not_be_there(self) -> None:
        play, train = held()
        play.run(train, 0, N1)
        play.did(play.esl.cancel(train.gang, play.now))
        gone = RemoveCapacity(N1, train.key(0))
        play.confirm(gone)
        assert look(play, N1, train.key(0), 1) == [gone]

    def test_and_cannot_be_removed_keeps_its_ghost(self) -> None:
        """Whoever is let in by it must find the room held."""
        play, train = held(2, N1, N2)
        _, second = play.ghosts
        gone = play.did(play.esl.cancel(train.gang, play.now))
        play.refuse(gone[0])
        assert deleted(play.confirm(gone[1])) == [second.name]
        play.drop(second.name)
        assert play.esl.phase(train.gang) is GhostPhase.ENDED
        assert play.reports[-1][1] is News.FAILED
        assert "may be left behind on n1: forbidden" in play.reports[-1][2]


class TestMembersThatFail:
    def test_all_keep_their_room_for_those_that_are_made_in_their_place(self) -> None:
        play, train = held(2, idle=60)
        for number in range(2):
            play.run(train, number, N1, owner=JOB)
            play.run(train, number, N1, owner=JOB, finished=True)
        assert play.esl.phase(train.gang) is GhostPhase.HELD
        play.pass_time(59)
        for number in range(2):
            play.run(train, number, N1, owner=JOB, name=f"again-{number}")
            play.run(train, number, N1, owner=JOB, name=f"again-{number}", succeeded=True)
        assert play.esl.phase(train.gang) is GhostPhase.ENDING
        assert news(play) == [News.RESERVED]

    def test_and_are_not_made_again_are_a_failure_after_a_while(self) -> None:
        play, train = held(idle=60)
        play.run(train, 0, N1)
        play.run(train, 0, N1, finished=True)
        gone = play.pass_time(60)
        play.confirm(*gone)
        play.drop(play.ghosts[0].name)
        assert play.reports[-1] == ("train", News.FAILED, "no member existed for 60 s, and 1 have failed")

    def test_in_part_are_waited_for_though_the_others_have_succeeded(self) -> None:
        play, train = held(2)
        play.run(train, 0, N1)
        play.run(train, 1, N1)
        play.run(train, 0, N1, succeeded=True)
        play.run(train, 1, N1, finished=True)
        assert play.esl.phase(train.gang) is GhostPhase.HELD

    def test_because_they_were_deleted_have_ended_if_nobody_makes_them_again(self) -> None:
        play, train = held(2)
        for number in range(2):
            play.run(train, number, N1)
        play.run(train, 0, N1, finished=True, deleting=True)
        play.drop("train-0", "train-1")
        assert play.esl.phase(train.gang) is GhostPhase.ENDING

    @pytest.mark.parametrize("finished", [True, False])
    def test_because_they_were_deleted_under_their_controller_keep_their_room(self, finished: bool) -> None:
        play, train = held()
        play.run(train, 0, N1, owner=JOB)
        play.run(train, 0, N1, owner=JOB, deleting=True, finished=finished)
        play.drop("train-0")
        assert play.esl.phase(train.gang) is GhostPhase.HELD


class TestARefusedAsk:
    def test_is_given_up_after_a_finite_number_of_attempts_unless_told_otherwise(self) -> None:
        play = Play()
        [creation] = play.ask(gang("train", 1, EACH))
        for _ in range(Times().attempts or 0):
            play.refuse(creation, "exceeded quota")
            effects = creations(play.pass_time(100))
            creation = effects[0] if effects else creation
        assert news(play)[:-1] == [News.ROLLED_BACK] * 29
        assert play.reports[-1][1] is News.FAILED
        assert "exceeded quota" in play.reports[-1][2]
        assert play.esl.next_deadline() is None

    def test_leaves_no_more_ghosts_where_the_first_may_not_be_deleted(self) -> None:
        play = Play()
        train = gang("train", 2, EACH)
        play.ask(train)
        first, _ = play.ghosts
        play.bind(first, N1)
        deletions = play.pass_time(10)
        for each in deletions:
            play.refuse(each)
        assert play.esl.phase(train.gang) is GhostPhase.ENDED
        assert news(play) == [News.FAILED]
        assert len(play.ghosts) == 2


def test_ghosts_ask_the_scheduler_that_is_named_and_say_for_what_and_in_which_run() -> None:
    play = Play()
    train = gang("train", 1, EACH, scheduler="default-scheduler", run="r1")
    play.ask(train)
    [ghost] = play.ghosts
    assert (ghost.scheduler, ghost.run, ghost.key) == ("default-scheduler", "r1", train.key(0))
    assert ghost.name == "train-ghost-r1-1-1"
