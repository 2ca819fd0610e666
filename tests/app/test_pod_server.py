"""The played API server that other tests rely on: how its pods end, and what comes to them with a Binding."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from extender.app.contracts.ports import PodRef
from extender.core.attempt import ATTEMPT, Attempt, to_annotation
from extender.core.cluster import Pod
from extender.kube.errors import Occupied
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import LoopClock
from tests.app.pod_server import Line, PodServer
from tests.builders import node, pod

pytestmark = pytest.mark.anyio

UID = PodUid("uid-a")
REF = PodRef("default", "a", UID)
NODE = NodeName("n0")
RUNS, LEAVES, FAILED, SUCCEEDED = (False, False), (True, False), (True, True), (False, True)
"""Whether it is being deleted, and whether it has finished."""


class Place:
    def __init__(self) -> None:
        self.server = PodServer(LoopClock())
        self.server.put_node(node("n0"))
        self.server.create(pod("a"))
        self.told: list[Pod | None] = []
        self.server.witnesses.append(lambda: self.told.append(self.server.pods.get(UID)))

    def bind(self, attempt: Attempt | None = None) -> None:
        marks = {} if attempt is None else {ATTEMPT: to_annotation(attempt, UID)}
        self.server.bind(REF, NODE, marks)

    @property
    def steps(self) -> list[tuple[bool, bool] | None]:
        return [None if each is None else (each.deleting, each.finished) for each in self.told]


@pytest.fixture
async def place() -> Place:
    return Place()


async def test_a_bound_pod_that_is_deleted_has_failed_before_it_is_gone(place: Place) -> None:
    place.bind()
    place.server.delete(UID)
    assert place.steps == [RUNS, LEAVES]
    await asyncio.sleep(1)
    assert place.steps == [RUNS, LEAVES, FAILED, None]
    assert not any(each.succeeded for each in place.told if each)


async def test_an_evicted_one_takes_as_long_as_it_is_given(place: Place) -> None:
    place.bind()
    place.server.grace = 20
    place.server.evict(REF)
    await asyncio.sleep(19)
    place.server.evict(REF)
    assert place.steps == [RUNS, LEAVES]
    await asyncio.sleep(2)
    assert place.steps == [RUNS, LEAVES, FAILED, None]


@pytest.mark.parametrize("bound", [True, False])
async def test_one_on_no_node_and_one_deleted_by_force_are_gone_at_once(place: Place, bound: bool) -> None:
    if bound:
        place.bind()
    place.server.delete(UID, by_force=bound)
    assert place.steps == [RUNS, None][not bound :]


async def test_one_that_had_succeeded_stays_so_until_it_is_removed(place: Place) -> None:
    place.bind()
    place.server.finish(UID, succeeded=True)
    place.server.delete(UID)
    assert place.steps == [RUNS, SUCCEEDED, None]


async def test_one_whose_node_is_gone_ends_when_the_garbage_collector_comes(place: Place) -> None:
    place.bind()
    place.server.drop_node("n0")
    place.server.delete(UID)
    await asyncio.sleep(39)
    assert place.steps == [RUNS, LEAVES]
    await asyncio.sleep(2)
    assert place.steps == [RUNS, LEAVES, FAILED, None]


async def test_a_binding_brings_its_annotations_in_the_same_moment(place: Place) -> None:
    attempt = Attempt("x1", 2, 2, (PodUid("uid-b"),), 12.5)
    place.bind(attempt)
    [bound] = place.told
    assert bound is not None
    assert (bound.node, bound.attempt) == (NODE, attempt)


async def test_a_binding_that_is_refused_brings_none(place: Place) -> None:
    place.bind()
    with pytest.raises(Occupied):
        place.bind(Attempt("x1", 2, 2, (), 12.5))
    assert [each and each.attempt for each in place.told] == [None]


async def test_a_client_sends_them_over_its_line(place: Place) -> None:
    attempt = Attempt("x1", 1, 1, (), 12.5)
    await Line(place.server).bind(REF, NODE, {ATTEMPT: to_annotation(attempt, UID)})
    assert place.server.pods[UID] == replace(place.server.pods[UID], node=NODE, attempt=attempt)
