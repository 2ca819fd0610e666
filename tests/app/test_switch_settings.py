"""Safety switches: labels and settings put in force, told, shown; evictions are told with their proof."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.app.admin.switch_settings import EVERYWHERE, SwitchSettings
from extender.app.contracts.effects import Decided, Effect
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.eviction_audit import EvictionKind, logged
from extender.app.explain.explain import Explain
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Namespace, Owner
from extender.core.gangs.state.eviction_orders import Preempted
from extender.core.gangs.state.gang import EvictMembers
from extender.core.gangs.state.partial_gangs import Proof
from extender.core.names import GangKey
from extender.core.safety_switches import OBSERVE_LABEL, Act, Switches, Withheld
from extender.kube.errors import Refused
from extender.kube.names import NodeName
from tests.app.fakes import Fault, LoopClock, PodApi
from tests.app.wired import Wired
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
OBSERVED = {OBSERVE_LABEL: "true"}


@pytest.fixture
def world() -> GangWorld:
    made = GangWorld()
    made.add_node(node("n0"))
    return made


@pytest.fixture
def switching(world: GangWorld) -> SwitchSettings:
    return SwitchSettings(world.scheduler, world)


def told(act: Callable[[], None]) -> list[dict[str, Any]]:
    with capture_logs() as lines:
        act()
    return [dict(line) for line in lines]


def test_labels_are_in_force_from_the_list_on(world: GangWorld, switching: SwitchSettings) -> None:
    switching.replace([Namespace("team"), Namespace("lab", OBSERVED)])
    assert [world.scheduler.cache.safety_switches.observes(name) for name in ("team", "lab")] == [False, True]


def test_a_namespace_that_a_new_list_lacks_holds_nothing_any_more(world: GangWorld, switching: SwitchSettings) -> None:
    switching.replace([Namespace("lab", OBSERVED)])
    switching.replace([Namespace("team")])
    assert not world.scheduler.cache.safety_switches.labelled


@pytest.mark.parametrize("how", ["label goes", "namespace goes"])
def test_what_labels_held_is_free_when_they_go(world: GangWorld, switching: SwitchSettings, how: str) -> None:
    switching.upsert(Namespace("lab", OBSERVED))
    if how == "label goes":
        switching.upsert(Namespace("lab"))
    else:
        switching.remove(Namespace("lab", OBSERVED))
    assert not world.scheduler.cache.safety_switches.observes("lab")


def test_every_change_is_told_and_nothing_else_is(switching: SwitchSettings) -> None:
    [line] = told(lambda: switching.set_everywhere(Switches(backfill_reservation=False)))
    assert (line["where"], line["changed"]) == (EVERYWHERE, ["backfill_reservation"])
    assert told(lambda: switching.set_everywhere(Switches(backfill_reservation=False))) == []
    assert [line["where"] for line in told(lambda: switching.upsert(Namespace("lab", OBSERVED)))] == ["lab"]
    assert told(lambda: switching.upsert(Namespace("lab", OBSERVED | {"other": "label"}))) == []


def test_a_label_that_is_not_understood_holds_and_is_shown(switching: SwitchSettings) -> None:
    odd = Namespace("lab", {"escher.dev/preempt": "never"})
    assert "labels are invalid" in told(lambda: switching.upsert(odd))[0]["event"]
    state = switching.state()
    assert state.unclear == {"lab": ["escher.dev/preempt=never"]}
    assert not state.namespaces["lab"].gang_preemption
    switching.remove(odd)
    assert not switching.state().unclear


def test_it_shows_whether_labels_are_read_at_all(switching: SwitchSettings) -> None:
    assert not switching.state().labels_are_read
    switching.replace([])
    assert switching.state().labels_are_read


def test_who_waited_is_free_the_moment_the_namespace_is_labelled(world: GangWorld, switching: SwitchSettings) -> None:
    members = gang_pods("train", 2, FULL)
    world.create(*members)
    world.filter(members[0], [NodeName("n0")])
    assert world.asleep
    switching.upsert(Namespace("default", OBSERVED))
    assert not world.asleep


# -- explained ---------------------------------------------------------------------------------------------------


def test_explain_says_what_would_be_answered_where_we_only_observe(world: GangWorld) -> None:
    world.create(*gang_pods("train", 2, FULL), pod("alone"))
    world.hold(observe_only=True)
    explain = Explain(world.scheduler.cache)
    assert "would be refused: gang does not fit" in explain.pod("default", "train-0").summary
    assert "would be refused: gang does not fit" in explain.gang(GangKey("default", "train")).summary
    assert "it would pass" in explain.pod("default", "alone").summary


def test_explain_says_what_the_switches_keeps_from_a_gang_that_waits(world: GangWorld) -> None:
    members = gang_pods("train", 2, FULL)
    world.create(*members)
    world.filter(members[0], [NodeName("n0")])
    explain, key = Explain(world.scheduler.cache), GangKey("default", "train")
    assert "safety_switches" not in explain.gang(key).summary
    world.hold(gang_preemption=False)
    assert "; no pod is evicted for it (safety switches" in explain.gang(key).summary
    world.hold(backfill_reservation=False)
    assert "it gets no backfill reservation and no pod is evicted for it" in explain.gang(key).summary


# -- destroyed ---------------------------------------------------------------------------------------------------


def test_each_thing_destroyed_is_counted_and_is_a_line_with_its_proof() -> None:
    counted: list[str] = []
    victim = pod("low", node=NodeName("n0"), owner=Owner("Job", "run", "uid-run"))
    [line] = told(lambda: logged(counted.append)(EvictionKind.PREEMPTED, victim, "gang a/b has priority 5"))
    assert counted == ["preempted"]
    assert {key: line[key] for key in ("event", "kind", "pod", "uid", "node", "owner", "why")} == {
        "event": "destroyed",
        "kind": "preempted",
        "pod": "default/low",
        "uid": "uid-low",
        "node": "n0",
        "owner": "Job/run",
        "why": "gang a/b has priority 5",
    }


def test_what_is_withheld_tells_of_whom(world: GangWorld) -> None:
    world.create(pod("low", FULL, node=NodeName("n0")))
    world.hold(gang_preemption=False)
    member = replace(gang_pods("high", 1, FULL)[0], priority=5)
    world.create(member)
    world.filter(member, [NodeName("n0")])
    [held] = world.withheld
    assert (held.act, held.gang, held.about) == (Act.PREEMPT, GangKey("default", "high"), ("default/low",))


# -- carried out -------------------------------------------------------------------------------------------------


class Carried(Wired):
    """Scheduling on an API server in memory, and what it said it destroyed and withheld."""

    def __init__(self) -> None:
        self.api = PodApi()
        self.destroyed: list[tuple[EvictionKind, str, str]] = []
        self.withheld: list[Act] = []
        super().__init__(
            Scheduler(LoopClock()),
            self.api,
            FlightRecorder(LoopClock()),
            destroyed=lambda kind, pod, why: self.destroyed.append((kind, pod.name, why)),
            withheld=self.withheld.append,
        )

    async def take(self, *effects: Effect) -> None:
        self.do(Decided(None, effects))
        await asyncio.sleep(1)


KEY = GangKey("default", "train")
PROOF = Proof("0.1", 2, 2, (), (), 1)


@pytest.mark.anyio
async def test_what_the_api_server_lets_us_evict_is_told_with_why() -> None:
    carried = Carried()
    part, victim = pod("part", node=NodeName("n0")), pod("victim", node=NodeName("n0"))
    carried.api.bound[part.uid] = NodeName("n0")
    await carried.take(EvictMembers(KEY, 2, (part,), PROOF), Preempted(victim, pod("urgent", priority=5)))
    carried.destroyed.sort(key=lambda each: each[1])
    assert [(kind, name) for kind, name, _ in carried.destroyed] == [
        (EvictionKind.PART, "part"),
        (EvictionKind.PREEMPTED_BY_POD, "victim"),
    ]
    said = "by kube-scheduler for pod default/urgent of priority 5"
    assert [why for _, _, why in carried.destroyed] == [str(PROOF), said]


@pytest.mark.anyio
async def test_what_it_does_not_let_us_evict_is_not_destroyed() -> None:
    carried = Carried()
    part = pod("part", node=NodeName("n0"))
    carried.api.bound[part.uid] = NodeName("n0")
    carried.api.faults.append(Fault(Refused(403, "not allowed"), of="evict"))
    await carried.take(EvictMembers(KEY, 2, (part,), PROOF))
    assert carried.api.times("evict part")
    assert carried.destroyed == []


@pytest.mark.anyio
async def test_what_is_withheld_is_counted_and_evicts_nobody() -> None:
    carried = Carried()
    await carried.take(Withheld(Act.EVICT_PART, "default", KEY, ("default/part",)))
    assert carried.withheld == [Act.EVICT_PART]
    assert carried.api.calls == []
