"""Policies that pods ask for by annotation, and one from a folder outside the package, on both clusters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.filters.retired import GROUP
from extender.filters.share_order import SHARE, WEIGHT
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import fresh_arena, shared_field
from tests.e2e.workload import Arena, Field, stays
from tests.outside.calm_hours import CALM, CLOSED

pytestmark = pytest.mark.timeout(300)

OUTSIDE = Path(__file__).parents[1] / "outside"


@pytest.fixture(scope="module")
def field(state_folder: Path, where: str) -> Iterator[Field]:
    settings = f"policies: ['calm_hours:CalmHours']\npolicies_folder: {OUTSIDE}\n"
    yield from shared_field(where, settings=settings, nodes=0)


@pytest.fixture
def arena(field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(field, request.node.name)


def label(arena: Arena, name: str, **labels: str | None) -> None:
    arena.api.patch(
        f"/api/v1/nodes/{name}", {"metadata": {"labels": {k.replace("__", "/"): v for k, v in labels.items()}}}
    )


class TestRetired:
    def test_an_annotation_that_is_not_read_any_more_is_refused_and_an_event_says_what_to_write(
        self, arena: Arena
    ) -> None:
        arena.nodes(1)
        wrong = arena.create(arena.pod("wrong", annotations={GROUP: "web"}))
        assert GROUP in arena.until_rejected(wrong)["wrong"]
        [told] = eventually(lambda: arena.events("InvalidAnnotation"), what="the event") or []
        assert "EscherPolicy" in told["note"]


class TestShares:
    def test_of_two_gangs_that_wait_the_one_whose_share_uses_less_goes_first_though_it_came_later(
        self, arena: Arena
    ) -> None:
        arena.nodes(4)
        rich, poor = {SHARE: "rich", WEIGHT: "1"}, {SHARE: "poor", WEIGHT: "1"}
        using = arena.create(
            arena.pod("using-0", annotations=rich, cpu=8), arena.pod("using-1", annotations=rich, cpu=8)
        )
        there = arena.create(arena.pod("there-0", cpu=8), arena.pod("there-1", cpu=8))
        arena.until_bound([*using, *there])
        early = arena.create(*arena.gang("early", 2, annotations=rich, cpu=8))
        self.waits(arena, "early")
        late = arena.create(*arena.gang("late", 2, annotations=poor, cpu=8))
        self.waits(arena, "late")
        arena.delete(*there)
        arena.until_bound(late)
        assert arena.bound(early) == {}
        arena.delete(*late)
        arena.until_bound(early)

    def waits(self, arena: Arena, name: str) -> None:
        path = f"/v1/namespaces/{arena.namespace}/gangs/{name}"
        eventually(lambda: arena.service.raw("GET", path).json().get("phase") == "waiting", what="the gang waiting")


class TestAPolicyFromOutside:
    """tests/outside/calm_hours.py: named in the settings, in a folder that is no package of ours."""

    def test_filters_and_wakes(self, arena: Arena) -> None:
        [name] = arena.nodes(1)
        label(arena, name, **{CLOSED: "yes"})
        eventually(lambda: CLOSED in arena.api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"], what="the label")
        waiting = arena.create(arena.pod("calm", annotations={CALM: "0"}))
        assert "the node is closed" in arena.until_rejected(waiting)["calm"]
        free = arena.create(arena.pod("unmarked"))
        arena.until_bound(free)
        label(arena, name, **{CLOSED: None})
        arena.until_bound(waiting)

    def test_keeps_members_of_a_gang_from_nodes_too(self, arena: Arena) -> None:
        names = arena.nodes(3)
        label(arena, names[0], **{CLOSED: "yes"})
        placed = arena.until_bound(arena.create(*arena.gang("calm", 2, annotations={CALM: "0"}, cpu=8)))
        assert sorted(placed.values()) == sorted(names[1:])

    def test_lets_binds_wait(self, arena: Arena) -> None:
        arena.nodes(1)
        began = time.monotonic()
        first = arena.create(arena.pod("first", annotations={CALM: "3"}, cpu="10m"))
        arena.until_bound(first)
        second = arena.create(arena.pod("second", annotations={CALM: "3"}, cpu="10m"))
        assert stays(lambda: arena.bound(second), during=1.0, what="the second") == {}
        arena.until_bound(second)
        assert time.monotonic() - began > 2.5
