"""A gang of bare pods is told of twice: that members are missing, and then, when all exist, that there is no room."""

from __future__ import annotations

from collections.abc import Sequence

from extender.app.contracts.effects import Effect
from extender.core.gangs.state.gang import INCOMPLETE, GangTurnedAway
from tests.builders import gang_pods, node
from tests.core.gang_world import GangWorld


def test_that_there_is_no_room_is_told_though_its_first_member_came_before_the_others() -> None:
    world = GangWorld()
    world.add_node(node("n1"))
    told: list[GangTurnedAway] = []
    take = world.take

    def hear(effects: Sequence[Effect]) -> None:
        told.extend(each for each in effects if isinstance(each, GangTurnedAway))
        take(effects)

    world.take = hear  # type: ignore[method-assign]
    first, second = gang_pods("train", 2, {"cpu": 8000})
    world.create(first)
    world.filter(first)
    world.create(second)
    world.filter(second)
    world.filter(first)
    reasons = [each.reason for each in told]
    assert reasons[0] == INCOMPLETE
    assert len(reasons) == 2
    assert told[1].shortfall is not None
