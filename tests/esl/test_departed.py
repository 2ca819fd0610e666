"""What is left of runs that nobody runs any more: what belongs to which, and in what order it goes."""

from __future__ import annotations

import pytest

from extender.core.cluster import Pod
from extender.core.names import GangKey
from extender.esl import GangEsl, GhostPhase, Space, Times, gang
from extender.esl.base import (
    CapacityConfirmed,
    DeleteGhost,
    Effect,
    EvictMember,
    News,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    TimePassed,
)
from extender.esl.gangs.departed import instances, left_behind, run_token
from extender.kube.names import NodeName, ResourceKey
from tests.builders import pod
from tests.esl.test_gang_steps import N1, N2

DEAD = "aaaaaa"
KEY = ResourceKey("app.escher.dev/default.train-0-aaaaaa01")
OTHER = ResourceKey("app.escher.dev/default.train-1-aaaaaa01")


def ghost(name: str, key: ResourceKey, node: NodeName | None, *, instance: str = DEAD, run: str = "aaaaaa01") -> Pod:
    labels = {
        "escher.dev/ghost": "train",
        "escher.dev/ghost-run": run,
        "escher.dev/ghost-instance": instance,
        "escher.dev/ghost-key": key.partition("/")[2],
    }
    return pod(name, node=node, labels=labels)


def member(name: str, key: ResourceKey, node: NodeName | None) -> Pod:
    return pod(name, {key: 1}, node=node)


class TestWhatIsFound:
    def test_are_the_runs_of_those_who_are_dead_and_no_others(self) -> None:
        pods = [ghost("dead", KEY, N1), ghost("living", KEY, N1, instance="bbbbbb", run="bbbbbb01"), pod("stranger")]
        living = ResourceKey("app.escher.dev/default.train-0-bbbbbb01")
        keys = {N1: [KEY, living, ResourceKey("cpu"), ResourceKey("app.escher.dev/default.data1")], N2: [OTHER]}
        assert instances("default", pods, keys) == {"aaaaaa", "bbbbbb"}
        [left] = left_behind("default", pods, keys, {DEAD})
        assert (left.gang, left.run) == (GangKey("default", "train"), "aaaaaa01")
        assert [(each.name, key) for each, key in left.ghosts] == [("dead", KEY)]
        assert left.places == [(N1, KEY), (N2, OTHER)]

    def test_are_keys_without_a_ghost_in_the_usual_domain_and_in_others_of_whoever_is_known_to_be_dead(self) -> None:
        elsewhere = ResourceKey("example.com/default.train-0-aaaaaa01")
        assert instances("default", [], {N1: [elsewhere]}) == set()
        assert instances("default", [], {N1: [KEY]}) == {DEAD}
        [left] = left_behind("default", [], {N1: [elsewhere]}, {DEAD})
        assert left.places == [(N1, elsewhere)]

    def test_is_nothing_of_another_namespace(self) -> None:
        assert instances("team", [], {N1: [KEY]}) == set()
        assert left_behind("team", [], {N1: [KEY]}, {DEAD}) == []

    def test_are_runs_with_a_token_of_their_own_by_their_ghosts(self) -> None:
        key = ResourceKey("example.com/default.train-all-mine")
        [left] = left_behind("default", [ghost("one", key, N1, run="mine")], {N1: [key]}, {DEAD})
        assert (left.run, left.places) == ("mine", [(N1, key)])
        assert [each for _, each in left.ghosts] == [key]

    def test_are_members_but_nothing_is_left_of_a_run_that_has_members_alone(self) -> None:
        assert left_behind("default", [member("train-0", KEY, N1)], {}, {DEAD}) == []
        [left] = left_behind("default", [member("train-0", KEY, N1), ghost("one", KEY, N1)], {}, {DEAD})
        assert [each.name for each, _ in left.members] == ["train-0"]


def test_tokens_of_an_instances_runs_differ_and_come_again_after_long() -> None:
    tokens = [run_token(DEAD, number) for number in range(1297)]
    assert len(set(tokens[:1296])) == 1296
    assert tokens[1296] == tokens[0]
    assert {len(token) for token in tokens} == {8}


def inherited(pods: list[Pod], keys: dict[NodeName, list[ResourceKey]]) -> tuple[GangEsl, list[Effect]]:
    esl = GangEsl(Space.APP, seed=1)
    [left] = left_behind("default", pods, keys, {DEAD})
    effects = esl.inherit(left, 1.0)
    assert esl.inherit(left, 1.0) == [], "it is under way"
    return esl, effects


def deletions(effects: list[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, DeleteGhost)]


class TestWhatIsInherited:
    def test_goes_resources_first(self) -> None:
        esl, effects = inherited([ghost("one", KEY, N1)], {N1: [KEY]})
        assert effects == [RemoveCapacity(N1, KEY)]
        confirmed = esl.handle(_gone(KEY), 2.0)
        assert deletions(confirmed) == ["one"]
        [report] = esl.handle(PodGone("default", "one"), 3.0)
        assert report == Report(GangKey("default", "train"), News.ENDED, "left behind by an earlier run", "aaaaaa01")
        assert not esl.inherited

    def test_is_left_to_members_that_run_until_they_have_ended(self) -> None:
        one, two, running = ghost("one", KEY, N1), ghost("two", OTHER, N2), member("train-0", KEY, N1)
        esl, effects = inherited([one, two, running], {})
        assert deletions(effects) == ["two"]
        esl.handle(PodGone("default", "two"), 2.0)
        assert esl.inherited == {"aaaaaa01"}
        assert not esl.unsettled
        assert deletions(esl.handle(PodGone("default", "train-0"), 3.0)) == ["one"]

    @pytest.mark.parametrize("lost_before", [True, False])
    def test_has_members_evicted_whose_ghosts_are_lost_and_waits_for_them(self, lost_before: bool) -> None:
        pods = [ghost("other", OTHER, N2), member("train-0", KEY, N1)]
        esl, effects = inherited(pods if lost_before else [*pods, ghost("one", KEY, N1)], {})
        if not lost_before:
            effects = esl.handle(PodGone("default", "one"), 1.0)
        assert [each.detail for each in effects if isinstance(each, Report)] == [
            "train-0 runs on capacity that no ghost holds"
        ]
        esl.handle(PodGone("default", "other"), 2.0)
        assert esl.inherited == {"aaaaaa01"}
        assert esl.next_deadline() == 11.0
        late = esl.handle(TimePassed(), 11.0)
        assert [each.name for each in late if isinstance(each, EvictMember)] == ["train-0"]
        assert not esl.inherited

    def test_leaves_members_alone_if_that_is_wanted(self) -> None:
        pods = [ghost("other", OTHER, N2), member("train-0", KEY, N1)]
        esl = GangEsl(Space.APP, seed=1, times=Times(without_room=None))
        [left] = left_behind("default", pods, {}, {DEAD})
        assert deletions(esl.inherit(left, 1.0)) == ["other"]
        assert esl.next_deadline() is None

    def test_is_no_obstacle_to_another_run_of_the_gang(self) -> None:
        esl, _ = inherited([ghost("one", KEY, N1), member("train-0", KEY, N1)], {})
        again = gang("train", 1, {"cpu": "1"}, run="bbbbbb01")
        esl.start(again, 2.0)
        assert esl.phase(again.gang) is GhostPhase.RESERVING
        esl.handle(PodSeen(pod("train-ghost-bbbbbb01-1-1", node=N2)), 3.0)
        assert esl.phase(again.gang) is GhostPhase.HELD
        assert deletions(esl.handle(PodGone("default", "train-0"), 4.0)) == ["one"]
        assert esl.phase(again.gang) is GhostPhase.HELD


def _gone(key: ResourceKey) -> CapacityConfirmed:
    return CapacityConfirmed(N1, key, 0)
