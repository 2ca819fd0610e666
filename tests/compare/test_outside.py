"""What is made of the watcher's sightings."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import json

from lab.compare.trials.outside import Blind, Seen, Watched
from lab.controlplane.witness import Late


def watched(*seen: Seen) -> Watched:
    made = Watched()
    for each in (None, *seen):
        made.take(json.encode(each) + b"\n")
    return made


def test_the_first_time_counts_of_each() -> None:
    found = watched(
        Seen(1.0, "a", "g", 0.5),
        Seen(2.0, "a", "g", 0.5, "n0", "Pending"),
        Seen(2.5, "a", "g", 0.5, "n0", "Running"),
        Seen(3.0, "a", "g", 0.5, "n0", "Running"),
        Seen(4.0, "a", "g", 0.5, "n0", "Running", gone=True),
    )
    pod = found.pods["a"]
    assert (pod.gang, pod.cpu, pod.node, pod.bound, pod.running, pod.gone) == ("g", 0.5, "n0", 2.0, 2.5, 4.0)
    assert not found.there


def test_those_run_that_are_there_and_were_seen_running() -> None:
    found = watched(
        Seen(1.0, "a", "g", 0.5, "n0", "Running"),
        Seen(1.0, "b", "g", 0.5),
        Seen(1.0, "c", "other", 0.5, "n0", "Running"),
        Seen(1.5, "a", "g", 0.5, "n0", "Running", gone=True),
    )
    assert list(found.of("g")) == ["a", "b"]
    assert (found.running("g"), found.running("other"), found.running("nobody")) == (0, 1, 0)
    assert found.there == {"b", "c"}
    assert found.last == 1.5


def test_who_waits_for_a_gang_is_woken_by_its_own_pods_alone() -> None:
    """Thousands of gangs are waited for at the same time: each would look again at every sighting."""

    async def waited() -> None:
        found = watched(Seen(1.0, "a", "g", 0.5, "n0", "Running"))
        looked = found.version
        waiting = asyncio.create_task(found.until_running("g", 2, within=5.0))
        await asyncio.sleep(0)
        for number in range(3):
            found.take(json.encode(Seen(2.0, f"other-{number}", "other", 0.5, "n0", "Running")))
            await asyncio.sleep(0)
        assert found.version == looked + 3
        assert not waiting.done()
        found.take(json.encode(Seen(3.0, "b", "g", 0.5, "n0", "Running")))
        await waiting
        with pytest.raises(Late, match="g: not within"):
            await found.until_running("g", 3, within=0.0)

    asyncio.run(waited())


def test_a_trial_begins_with_nothing_seen() -> None:
    found = watched(Seen(1.0, "a", "g", 0.5))
    assert found.begun
    found.begin()
    assert found.pods == {}


def test_who_has_ended_has_not_seen_that_nothing_happens() -> None:
    found = watched()
    found.require()
    found.over = True
    with pytest.raises(Blind):
        found.require()


def test_nothing_is_seen_before_it_has_begun() -> None:
    assert not Watched().begun
