"""What is listed and watched reaches the `Scheduler`, and the journal tells what it was."""

from __future__ import annotations

from dataclasses import replace

from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node, Owner, Pod
from extender.core.gang_ask import GroupAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing, at_once


def told(flight_recorder: FlightRecorder) -> list[str]:
    return [entry.partition(" ")[2] for entry in flight_recorder.tell()]


def stage() -> tuple[Scheduler, FlightRecorder]:
    clock = FixedClock()
    return Scheduler(clock), FlightRecorder(clock)


def test_nodes() -> None:
    scheduler, flight_recorder = stage()
    sink = Facts(Node, scheduler, Performing(), flight_recorder)
    at_once(sink.replace([node("n1")]))
    sink.upsert(node("n2", version="7"))
    assert list(scheduler.cache.nodes) == ["n1", "n2"]
    sink.remove(node("n1"))
    assert list(scheduler.cache.nodes) == ["n2"]
    assert told(flight_recorder) == ["nodes listed", "node seen n2 7", "node gone n1"]


def test_pods() -> None:
    scheduler, flight_recorder = stage()
    scheduler.observe(node("n1"))
    sink = Facts(Pod, scheduler, Performing(), flight_recorder)
    there, coming = pod("there", node=NodeName("n1")), pod("coming")
    at_once(sink.replace([there]))
    for each in (coming, replace(coming, node=NodeName("n1")), replace(coming, deleting=True)):
        sink.upsert(each)
    assert scheduler.cache.pods[coming.uid].deleting
    sink.upsert(replace(coming, finished=True))
    sink.remove(there)
    assert dict(scheduler.cache.pods) == {}
    assert told(flight_recorder) == [
        "pods listed",
        *(f"pod seen default/coming uid-coming {state}" for state in ("pending", "n1", "deleting", "finished")),
        "pod gone default/there uid-there",
    ]


def test_pod_groups() -> None:
    scheduler, flight_recorder = stage()
    sink = Facts(PodGroup, scheduler, Performing(), flight_recorder)
    group = PodGroup("default", "mpi", 2)
    [member] = (replace(each, gang=GroupAsk("default", "mpi", longest_wait=60.0)) for each in gang_pods("mpi", 1))
    scheduler.observe(member)
    assert not scheduler.cache.gangs.by_key
    at_once(sink.replace([]))
    sink.upsert(group)
    assert list(scheduler.cache.gangs.by_key) == [GangKey("default", "podgroup.mpi")]
    sink.remove(group)
    assert not scheduler.cache.gangs.by_key
    assert told(flight_recorder) == ["pod groups listed", "pod group seen default/mpi", "pod group gone default/mpi"]


def test_jobs() -> None:
    scheduler, flight_recorder = stage()
    scheduler.observe(node("n1"))
    sink = Facts(Promise, scheduler, Performing(), flight_recorder)
    at_once(sink.replace([Promise("job", 2)]))
    first, second = (
        pod(f"train-{number}", gang=gang_ask("train", 2), owner=Owner("Job", "train", "job")) for number in range(2)
    )
    assert scheduler.filter(first, [NodeName("n1")]).answer.passed
    sink.upsert(Promise("job", 1))
    sink.remove(Promise("job", 1))
    assert scheduler.filter(second, [NodeName("n1")]).answer.passed
    assert told(flight_recorder) == ["jobs listed"]
