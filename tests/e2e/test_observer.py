"""The witness is no good if it cannot see wrong: shown with sightings of what must never happen."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lab.controlplane.witness import Sighting
from loadtests.shared.observer import collection
from loadtests.shared.reading import quantity, quorum_of, requests_of
from loadtests.shared.sightings import Replay, Report

MIB = 2**20


class Story:
    """Sightings one after another, each at its own version, by default one second apart."""

    def __init__(self) -> None:
        self._log: list[Sighting[dict[str, Any]]] = []
        self._now = 0.0

    def node(self, name: str, *, gone: bool = False, after: float = 1, **has: int) -> Story:
        seen = {"uid": name, "allocatable": {key: Fraction(units) for key, units in has.items()}}
        return self._see("Node", seen, gone, after)

    def pod(
        self,
        name: str,
        node: str | None = None,
        *,
        gang: tuple[str, int] | None = ("ns/train", 2),
        cpu: int = 1,
        gone: bool = False,
        finished: bool = False,
        woken: str | None = None,
        after: float = 1,
    ) -> Story:
        seen = {
            "key": f"ns/{name}",
            "uid": name,
            "node": node,
            "finished": finished,
            "requests": {"cpu": Fraction(cpu)},
            "gang": gang,
            "woken": woken,
            "disrupted": False,
        }
        return self._see("Pod", seen, gone, after)

    def _see(self, kind: str, seen: dict[str, Any], gone: bool, after: float) -> Story:
        self._now += after
        what = "DELETED" if gone else "MODIFIED"
        self._log.append(Sighting(len(self._log) + 1, self._now, kind, what, seen))
        return self

    def told(self) -> Report:
        replay = Replay()
        # As they come in from two watches: not in the order in which they happened.
        replay.take(sorted(self._log, key=lambda each: each.kind, reverse=True))
        return replay.finish(self._now)


def wide(story: Story) -> Story:
    return story.node("n1", cpu=100)


def test_a_gang_that_is_bound_at_once_is_not_partly_bound() -> None:
    report = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("b", "n1", after=0.01).told()
    assert report.partly_bound() == {}
    assert 0 < report.longest_burst < 0.02
    assert (report.created, report.bound, report.gangs["ns/train"].peak) == (2, 2, 2)


def test_a_burst_that_takes_long_is_partly_bound() -> None:
    report = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("b", "n1", after=6.5).told()
    assert report.partly_bound()["ns/train"].bursts == [6.5]
    assert report.partly_bound(longer_than=7) == {}


def test_a_burst_that_never_ends_is_partly_bound_however_short() -> None:
    report = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("c", gang=None, after=0.125).told()
    assert report.partly_bound()["ns/train"].unfinished == 0.125


def test_a_part_that_is_deleted_again_was_partly_bound() -> None:
    report = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("a", "n1", gone=True, after=0.125).told()
    assert report.partly_bound()["ns/train"].unfinished == 0.125
    report = wide(Story()).pod("a").pod("a", "n1").pod("a", "n1", gone=True, after=0.25).told()
    assert report.partly_bound()["ns/train"].unfinished == 0.25


def test_a_burst_may_begin_anew_but_the_first_is_not_forgotten() -> None:
    story = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("a", "n1", gone=True, after=0.25)
    report = story.pod("c").pod("b", "n1").pod("c", "n1").told()
    assert report.partly_bound()["ns/train"].unfinished == 0.25


def test_members_that_leave_a_bound_gang_are_told_and_not_judged() -> None:
    story = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("b", "n1", after=0.01)
    report = story.pod("a", "n1", gone=True).told()
    assert report.partly_bound() == {}
    assert report.gangs["ns/train"].left_below_quorum == 1


def test_members_that_end_have_been_placed() -> None:
    story = wide(Story()).pod("a").pod("b").pod("a", "n1").pod("b", "n1", after=0.01)
    report = story.pod("a", "n1", finished=True).pod("a", "n1", finished=True, gone=True).told()
    assert (report.finished, report.gangs["ns/train"].left_below_quorum) == (1, 0)


def test_a_gang_of_the_same_name_that_comes_later_is_another_one() -> None:
    story = wide(Story())
    for name in ("a", "b"):
        story.pod(name).pod(name, "n1", after=0.01)
    for name in ("a", "b"):
        story.pod(name, "n1", gone=True)
    report = story.pod("c").pod("d").pod("c", "n1").told()
    assert report.partly_bound()["ns/train"].unfinished == 0.0


def test_more_than_a_node_has_is_seen_and_for_how_long() -> None:
    story = Story().node("n1", cpu=2).pod("a", "n1", gang=None).pod("b", "n1", gang=None, cpu=2).node("n1", cpu=3)
    [excess] = story.told().excesses
    assert (excess.node, excess.resource, excess.held, excess.allocatable) == ("n1", "cpu", "3", "2")
    assert (excess.version, excess.seconds) == (3, 1.0)
    assert story.told().over_allocated() == [excess]


def test_capacity_that_is_lowered_under_holders_is_no_over_allocation_but_the_next_binding_is() -> None:
    story = Story().node("n1", cpu=2).pod("a", "n1", gang=None, cpu=2).node("n1", cpu=1)
    assert story.told().excesses == []
    assert len(story.pod("b", "n1", gang=None).told().excesses) == 1


def test_what_ends_or_is_deleted_holds_nothing() -> None:
    story = Story().node("n1", cpu=2).pod("a", "n1", gang=None, cpu=2).pod("a", "n1", gang=None, cpu=2, finished=True)
    story.pod("b", "n1", gang=None, cpu=2).pod("b", "n1", gang=None, cpu=2, gone=True).pod("c", "n1", gang=None, cpu=2)
    assert story.told().excesses == []


def test_every_wake_is_counted_once() -> None:
    story = Story().pod("a").pod("a", woken="1").pod("a", woken="1").pod("a", woken="2")
    assert story.told().wakes == {"ns/a": 2}


def test_what_went_while_a_watch_was_down_holds_nothing_when_its_room_is_taken() -> None:
    def bound(name: str, version: int) -> dict[str, Any]:
        resources = {"requests": {"cpu": "2"}}
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}
        return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"resources": resources}]}}

    offers = {"uid": "n1", "allocatable": {"cpu": Fraction(2), "pods": Fraction(9)}}
    log: list[Sighting[dict[str, Any]]] = [Sighting(1, 0.0, "Node", "ADDED", offers)]
    pods = collection("Pod", log)
    for version, items in ((5, [bound("a", 4)]), (9, [bound("b", 8)])):
        pods.listed({"metadata": {"resourceVersion": str(version)}, "items": items})
    replay = Replay()
    replay.take(log)
    assert [(each.seen["uid"], each.gone) for each in log[1:]] == [("a", False), ("a", True), ("b", False)]
    assert replay.finish(0.0).excesses == []


def test_objects_are_read_as_a_user_would() -> None:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "escher.dev/ns.a": "2"}}
    metadata: dict[str, Any] = {"namespace": "ns", "name": "p", "annotations": {"escher.dev/gang-min-member": "3"}}
    pod = {"metadata": metadata, "spec": {"containers": [{"resources": resources}, {"resources": {}}]}}
    assert requests_of(pod) == {"cpu": Fraction(1, 2), "memory": 1024 * MIB, "escher.dev/ns.a": 2, "pods": 1}
    assert quorum_of(pod) is None
    metadata["ownerReferences"] = [{"kind": "Job", "name": "train", "controller": True}]
    assert quorum_of(pod) == ("ns/job.train", 3)
    metadata["labels"] = {"escher.dev/gang": "named"}
    assert quorum_of(pod) == ("ns/named", 3)
    assert [quantity(text) for text in ("1e3", "5k", "100m", "2Ki", "7")] == [1000, 5000, Fraction(1, 10), 2048, 7]
