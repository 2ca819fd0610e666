"""What is made of the watcher's sightings."""

from __future__ import annotations

from msgspec import json

from extender.compare.outside import Seen, Watched


def watched(*seen: Seen) -> Watched:
    made = Watched()
    for each in (None, *seen):
        made.take(json.encode(each) + b"\n")
    return made


def test_the_first_time_counts_of_each() -> None:
    found = watched(
        Seen(1.0, "a", "g"),
        Seen(2.0, "a", "g", "n0", "Pending"),
        Seen(2.5, "a", "g", "n0", "Running"),
        Seen(3.0, "a", "g", "n0", "Running"),
        Seen(4.0, "a", "g", "n0", "Running", gone=True),
    )
    pod = found.pods["a"]
    assert (pod.gang, pod.node, pod.bound, pod.running, pod.gone) == ("g", "n0", 2.0, 2.5, 4.0)
    assert found.there == 0


def test_who_was_bound_counts_though_it_has_gone() -> None:
    found = watched(
        Seen(1.0, "a", "g", "n0", "Running"),
        Seen(1.0, "b", "g"),
        Seen(1.0, "c", "other", "n0", "Running"),
        Seen(1.5, "a", "g", "n0", "Running", gone=True),
    )
    assert found.placed("g") == (1, 1)
    assert found.there == 2


def test_a_trial_begins_with_nothing_seen() -> None:
    found = watched(Seen(1.0, "a", "g"))
    assert found.begun
    found.begin()
    assert found.pods == {}


def test_nothing_is_seen_before_it_has_begun() -> None:
    assert not Watched().begun
