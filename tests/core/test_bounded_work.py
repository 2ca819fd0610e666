"""Work per event: what a change costs is counted, and what is too much at once is done in slices, in turn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from extender.core.affinity.constraints import Constraints
from extender.core.cluster import Node, Pod
from extender.core.fit import node_matching
from extender.core.fit.equivalence import MOST_KINDS, TOO_VARIED, EquivalenceClass
from extender.core.fit.fit import Asked
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.preemption.victim_search import Choice, unit_of
from extender.core.gangs.queue import fit_index
from extender.core.gangs.queue.fit_index import CouldFit
from extender.core.gangs.queue.queue import BackfillTrigger, Queue
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import NO_ROOM, UNPLANNED, Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.gangs.state.trial_snapshot import Room
from extender.core.ledger.ledger import Ledger
from extender.core.names import GangKey
from extender.core.policies.policy_types import HOSTNAME, Balance, PolicyInForce
from extender.kube import node_match
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import Requirement, SelectorTerm
from tests.builders import gang_ask, gang_pods, gone, node, pod, units
from tests.core.gang_world import GangWorld
from tests.core.town import apart, even
from tests.performing import replaced

NODES, GANGS = 60, 20
NEVER = BackfillTrigger(10**9, float("inf"))
APART = apart("host")
LARGER = {"cpu": 8003, "memory": 2**30}


class Counts:
    """How often a whole quorum was tried, and how often a kind of pods was counted on a node."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.tries = 0
        self.counts = 0
        self._count(Feasibility, "could_ever_fit", "tries")
        self._count(Places, "_look_for", "tries")
        self._count(CouldFit, "_count", "counts")

    def _count(self, owner: type, method: str, tally: str) -> None:
        asked = getattr(owner, method)

        def counting(*args: object, **more: object) -> object:
            setattr(self, tally, getattr(self, tally) + 1)
            return asked(*args, **more)

        self.monkeypatch.setattr(owner, method, counting)

    def of_this(self) -> tuple[int, int]:
        """Since the last call."""
        found = self.tries, self.counts
        self.tries = self.counts = 0
        return found


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


@pytest.fixture
def world() -> GangWorld:
    return GangWorld(patience=NEVER)


def crowd(world: GangWorld, cpu: int) -> None:
    """So many nodes of 8 CPU; so many gangs of three, each of another shape, that wait for them."""
    world.do(replaced(world.scheduler, Node, [node(f"n{number}") for number in range(NODES)]))
    for number in range(GANGS):
        asks = {"cpu": cpu + number, "memory": 1000 + number}
        ask = gang_ask(f"g{number}", 3)
        members = [pod(f"g{number}-{index}", asks, gang=ask, created=number) for index in range(3)]
        for member in members:
            world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
    waiting = {gang.phase for gang in world.scheduler.cache.gangs.by_key.values()}
    assert waiting == {Phase.WAITING}


class TestGangsThatCanNeverFit:
    @pytest.fixture(autouse=True)
    def waiting(self, counts: Counts, world: GangWorld) -> None:
        crowd(world, 8001)
        world.do_the_rest()
        counts.of_this()

    def test_are_not_tried_when_one_node_gains_what_they_do_not_ask_for(self, world: GangWorld, counts: Counts) -> None:
        world.do(world.scheduler.set_capacity(NodeName("n1"), ResourceKey("escher.dev/x.y"), 5))
        assert counts.of_this() == (0, GANGS)

    def test_are_not_tried_when_the_labels_of_one_node_change(self, world: GangWorld, counts: Counts) -> None:
        world.do(world.scheduler.observe(node("n2", labels={"a": "b"})))
        assert counts.of_this() == (0, GANGS)

    def test_are_not_looked_at_when_pods_come_and_go(self, world: GangWorld, counts: Counts) -> None:
        world.do(world.scheduler.observe(pod("plain", node=NodeName("n3"))))
        world.do(world.scheduler.forget(gone(PodUid("uid-plain"))))
        assert counts.of_this() == (0, 0)

    def test_are_tried_when_enough_nodes_are_large_enough_and_no_others_are(
        self, world: GangWorld, counts: Counts
    ) -> None:
        for number in range(2):
            world.do(world.scheduler.observe(node(f"n{number}", LARGER)))
        assert counts.of_this()[0] == 0
        world.do(world.scheduler.observe(node("n2", LARGER)))
        phases = [gang.phase for gang in world.scheduler.cache.gangs.by_key.values()]
        assert phases == [Phase.PLANNED, *(GANGS - 1) * [Phase.WAITING]]
        assert counts.of_this()[0] <= 2


class TestAGangOfManyKinds:
    """Each member asks for something else: a tenant makes as many kinds as members."""

    KINDS = 40

    def stage(self, world: GangWorld, free: int, *, choosy: bool = False) -> list[Pod]:
        """So many nodes with room for any of them; the others are full. `choosy`: each wants a node of its own kind."""
        world.do(replaced(world.scheduler, Node, [node(f"n{number}") for number in range(NODES)]))
        for number in range(free, NODES):
            world.do(world.scheduler.observe(pod(f"full-{number}", {"cpu": 8000}, node=NodeName(f"n{number}"))))
        ask = gang_ask("g", self.KINDS)
        members = [pod(f"g-{index}", {"cpu": 7000 + index}, gang=ask, created=index) for index in range(self.KINDS)]
        if choosy:
            members = [replace(each, node_selector={"for": each.name}) for each in members]
        for member in members:
            world.do(world.scheduler.observe(member))
        return members

    def phase(self, world: GangWorld) -> Phase:
        [gang] = world.scheduler.cache.gangs.by_key.values()
        return gang.phase

    def test_is_planned_once_there_is_room_for_all(self, world: GangWorld) -> None:
        members = self.stage(world, free=self.KINDS - 1)
        world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
        world.do_the_rest()
        assert self.phase(world) is Phase.WAITING
        world.do(world.scheduler.forget(gone(PodUid(f"uid-full-{NODES - 1}"))))
        world.do_the_rest()
        assert self.phase(world) is Phase.PLANNED
        world.check()

    @pytest.mark.parametrize("cpu", [7000, 6000])
    def test_one_kind_is_counted_anew_where_one_member_changes(
        self, world: GangWorld, monkeypatch: pytest.MonkeyPatch, cpu: int
    ) -> None:
        """Or none: where only its labels change, the gang waits with the same kinds."""
        members = self.stage(world, free=self.KINDS - 1)
        world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
        world.do_the_rest()
        copies, counted = world.scheduler.cache.gangs.waiting.queue.fits.copies, list[object]()
        count_new = copies._count_new

        def counting(kinds: Sequence[EquivalenceClass]) -> None:
            counted.extend(kinds)
            count_new(kinds)

        monkeypatch.setattr(copies, "_count_new", counting)
        asks = {**members[0].requests, ResourceKey("cpu"): cpu}
        world.do(world.scheduler.observe(replace(members[0], requests=asks, labels={"a": "b"})))
        world.do_the_rest()
        assert len(counted) == (cpu != 7000)
        world.check()

    def test_no_node_is_looked_at_for_each_kind(self, world: GangWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is room for each of them on many nodes, and for all but one together."""
        looks = list[str]()
        for owner, method in ((Room, "lacking"), (Room, "copies"), (fit_index, "copies"), (node_matching, "accepts")):
            self._count(monkeypatch, owner, method, looks)
        members = self.stage(world, free=self.KINDS - 1)
        world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
        world.do_the_rest()
        assert self.phase(world) is Phase.WAITING
        # Were each looked at for each kind, it would be NODES * KINDS several times.
        assert len(looks) < 8 * (NODES + self.KINDS)
        world.check()

    def test_nor_where_each_says_something_else_of_nodes(
        self, world: GangWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No node accepts one of them."""
        looks = list[str]()
        monkeypatch.setattr(sys.modules[__name__], "NODES", 300)
        self._count(monkeypatch, node_matching, "accepts", looks)
        members = self.stage(world, free=NODES, choosy=True)
        world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
        world.do_the_rest()
        assert self.phase(world) is Phase.WAITING
        assert len(looks) < 2 * NODES
        world.check()

    @pytest.mark.parametrize("policy", [None, Balance(topology_key="zone")])
    def test_nor_for_each_term_of_one_that_is_to_be_evenly_among_others(
        self, world: GangWorld, monkeypatch: pytest.MonkeyPatch, policy: Balance | None
    ) -> None:
        looks = list[str]()
        monkeypatch.setattr(sys.modules[__name__], "NODES", 300)
        zones = [node(f"n{number}", labels={"zone": f"z{number % 3}"}) for number in range(NODES)]
        world.do(replaced(world.scheduler, Node, zones))
        terms = tuple(SelectorTerm((Requirement(f"key-{number}", "Exists"),)) for number in range(20))
        anywhere = SelectorTerm((Requirement("zone", "Exists"),))
        member = pod("g-0", gang=gang_ask("g", 1), labels={"app": "train"}, affinity=(*terms, anywhere))
        if policy is None:
            member = replace(member, constraints=even("zone"))
        else:
            world.do(world.scheduler.govern("default", "even", PolicyInForce(policy, ())))
        world.do(world.scheduler.observe(member))
        self._count(monkeypatch, node_match, "_term_matches", looks)
        world.do(world.scheduler.filter(member, list(world.scheduler.cache.nodes)))
        assert self.phase(world) is Phase.PLANNED
        assert len(looks) < NODES

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, looks: list[str]) -> None:
        asked = getattr(owner, method)

        def counting(*args: Any, **more: Any) -> Any:
            looks.append(method)
            return asked(*args, **more)

        monkeypatch.setattr(owner, method, counting)

    def test_a_member_that_names_a_node_is_looked_for_on_that_alone(
        self, world: GangWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nodes = [node(f"n{number}", labels={HOSTNAME: f"host-{number}"}) for number in range(NODES)]
        world.do(replaced(world.scheduler, Node, nodes))
        ask = gang_ask("g", self.KINDS)
        members = [
            pod(f"g-{index}", {"cpu": 8000}, gang=ask, node_selector={HOSTNAME: f"host-{index}"}, created=index)
            for index in range(self.KINDS)
        ]
        for member in members:
            world.do(world.scheduler.observe(member))
        looks: list[NodeName] = []
        lacking = Room.lacking

        def counted(room: Room, name: NodeName, need: Asked) -> tuple[ResourceKey, int, int] | None:
            looks.append(name)
            return lacking(room, name, need)

        monkeypatch.setattr(Room, "lacking", counted)
        world.do(world.scheduler.filter(members[0], [NodeName("n0")]))
        assert self.phase(world) is Phase.PLANNED
        assert len(looks) <= 2 * self.KINDS
        world.check()


class TestAGangOfTooManyKinds:
    """It is not planned, and nothing looks at its kinds while it waits."""

    def stage(self, world: GangWorld, kinds: int, things: int = 0) -> Gang:
        world.do(replaced(world.scheduler, Node, [node(f"n{number}") for number in range(NODES)]))
        terms = tuple(SelectorTerm((Requirement(f"key-{number}", "DoesNotExist"),)) for number in range(things // 2))
        ask = gang_ask("g", kinds)
        for index in range(kinds):
            member = pod(f"g-{index}", {"cpu": 1 + index}, gang=ask, created=index, affinity=terms)
            world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, list(world.scheduler.cache.nodes)))
        world.do_the_rest()
        [gang] = world.scheduler.cache.gangs.by_key.values()
        return gang

    @pytest.mark.parametrize(("kinds", "things"), [(MOST_KINDS, 0), (MOST_KINDS // 11, 160)])
    def test_as_many_as_are_allowed_are_planned(self, world: GangWorld, kinds: int, things: int) -> None:
        assert self.stage(world, kinds, things).phase is Phase.PLANNED
        world.check()

    @pytest.mark.parametrize(("kinds", "things"), [(MOST_KINDS + 1, 0), (MOST_KINDS // 11 + 1, 160)])
    def test_one_more_is_not(self, world: GangWorld, monkeypatch: pytest.MonkeyPatch, kinds: int, things: int) -> None:
        gang = self.stage(world, kinds, things)
        assert gang.phase is Phase.WAITING
        assert gang.wait.shortfall is not None
        assert gang.wait.shortfall.rule == TOO_VARIED
        assert world.scheduler.cache.gangs.planning.why_not(gang, world.clock.steady()) == UNPLANNED
        looks = list[str]()
        TestAGangOfManyKinds()._count(monkeypatch, fit_index, "copies", looks)
        world.do(world.scheduler.observe(node("n0", {"cpu": 9000})))
        world.do_the_rest()
        assert looks == []
        world.check()

    def test_nodes_that_gain_room_do_not_try_it(self, world: GangWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tries of a hundred such gangs would be one long step."""
        gang, tries = self.stage(world, MOST_KINDS + 1), list[str]()
        TestAGangOfManyKinds()._count(monkeypatch, Places, "_look_for", tries)
        world.do(world.scheduler.observe(node("n1", {"cpu": 64_000})))
        world.do_the_rest()
        assert (gang.phase, tries) == (Phase.WAITING, [])
        world.check()

    def test_a_quorum_that_is_not_too_varied_is_planned_beside_elastic_members(self, world: GangWorld) -> None:
        world.do(replaced(world.scheduler, Node, [node("n0")]))
        for index in range(MOST_KINDS + 2):
            cpu = 4000 if index < 2 else 100_000 + index
            world.do(world.scheduler.observe(pod(f"g-{index}", {"cpu": cpu}, gang=gang_ask("g", 2), created=index)))
        [gang] = world.scheduler.cache.gangs.by_key.values()
        world.do(world.scheduler.filter(gang.roster.members[PodUid("uid-g-0")], [NodeName("n0")]))
        assert gang.phase is Phase.PLANNED
        world.check()

    def test_no_eviction_is_wanted_for_it(self, world: GangWorld) -> None:
        world.do(replaced(world.scheduler, Node, [node("n0")]))
        world.do(world.scheduler.observe(pod("low", {"cpu": 8000}, node=NodeName("n0"))))
        ask = gang_ask("g", MOST_KINDS)
        for index in range(MOST_KINDS):
            world.do(world.scheduler.observe(pod(f"g-{index}", {"cpu": 1 + index}, gang=ask, created=index)))
        [gang] = world.scheduler.cache.gangs.by_key.values()
        preempting = world.scheduler.cache.gangs.waiting.preempting
        preempting.order(gang, Choice((unit_of([pod("low")]),), {}), world.clock.steady())
        assert preempting.is_wanted(gang.key)
        larger = gang_ask("g", MOST_KINDS + 1)
        world.do(world.scheduler.observe(pod("g-more", {"cpu": 5000}, gang=larger, created=999)))
        assert not preempting.is_wanted(gang.key)

    def test_it_is_planned_once_a_member_of_a_kind_too_many_goes(self, world: GangWorld) -> None:
        gang = self.stage(world, MOST_KINDS + 1)
        for uid in list(gang.roster.members)[:1]:
            world.do(world.scheduler.forget(gone(uid)))
        world.do(world.scheduler.observe(pod("g-more", {"cpu": 2}, gang=gang_ask("g", MOST_KINDS + 1), created=999)))
        world.do_the_rest()
        assert gang.phase is Phase.PLANNED
        world.check()


class TestASlice:
    """One gang is tried at a time."""

    @pytest.fixture
    def world(self) -> GangWorld:
        made = GangWorld(patience=NEVER)
        made.scheduler.cache.gangs.waiting.queue.fits.work.limit = 1
        return made

    def waiting(self, world: GangWorld, name: str, asks: dict[str, int], created: float, size: int = 2) -> list[Pod]:
        members = [replace(each, created=created) for each in gang_pods(name, size, asks)]
        world.create(*members)
        for member in members:
            verdict = world.filter(member, list(world.nodes))
            world.do_the_rest()
            assert set(verdict.unresolvable.values()) == {NO_ROOM}
        return members

    def stage(self, world: GangWorld, *gangs: str) -> Sequence[PodUid]:
        """Two full nodes, and gangs of two that wait, of different shapes, one older than the next."""
        fillers = [pod(f"filler-n{number}", {"cpu": 8000}, node=NodeName(f"n{number}")) for number in range(2)]
        for number in range(2):
            world.add_node(node(f"n{number}"))
        world.create(*fillers)
        for number, name in enumerate(gangs):
            self.waiting(world, name, {"cpu": 8000 - number}, created=1 + number)
        return [filler.uid for filler in fillers]

    def free(self, world: GangWorld, fillers: Sequence[PodUid]) -> None:
        """All at once, and nothing else has its turn yet."""
        gone = {*fillers}
        for uid in gone:
            del world.pods[uid]
        world.do(replaced(world.scheduler, Pod, list(world.pods.values())))

    def test_leaves_the_rest_for_the_next_and_says_so(self, world: GangWorld) -> None:
        fillers = self.stage(world, "one", "two")
        world.add_node(node("n2", {"cpu": 16000}))
        world.do_the_rest()
        assert world.gangs == {"one": Phase.PLANNED, "two": Phase.WAITING}
        self.free(world, fillers)
        assert world.scheduler.more_to_do
        assert world.scheduler.next_deadline() == world.clock.steady()
        world.do_the_rest()
        assert world.gangs == {"one": Phase.PLANNED, "two": Phase.PLANNED}
        assert world.scheduler.cache.violations() == []

    def test_ends_where_nothing_is_left(self, world: GangWorld) -> None:
        self.free(world, self.stage(world, "one", "two", "three"))
        world.do_the_rest()
        assert world.gangs == {"one": Phase.PLANNED, "two": Phase.WAITING, "three": Phase.WAITING}
        assert not world.scheduler.more_to_do

    def test_lets_nobody_pass_who_is_not_tried_yet(self, world: GangWorld) -> None:
        """A gang that comes between two slices does not take the room of those who wait for the second."""
        fillers = self.stage(world, "one", "two")
        newcomer = [replace(each, created=9.0) for each in gang_pods("new", 2, {"cpu": 8000})]
        world.create(*newcomer)
        world.do_the_rest()
        world.scheduler.cache.gangs.waiting.queue.fits.work.spent = 0
        self.free(world, fillers)
        assert world.scheduler.more_to_do
        verdict = world.filter(newcomer[0], ["n0", "n1"])  # type: ignore[list-item]
        assert not verdict.passed
        world.do_the_rest()
        assert world.gangs == {"one": Phase.PLANNED, "two": Phase.WAITING, "new": Phase.WAITING}

    def test_that_was_postponed_is_tried_when_its_turn_has_come(self, world: GangWorld) -> None:
        fillers = self.stage(world, "one", "two")
        for number in range(2, 6):
            world.add_node(node(f"n{number}", {"cpu": 1000}))
        newcomer = [replace(each, created=9.0) for each in gang_pods("new", 2, {"cpu": 7000})]
        world.create(*newcomer)
        world.do_the_rest()
        for number in range(2, 4):
            world.nodes[NodeName(f"n{number}")] = node(f"n{number}", {"cpu": 7000})
        self.free(world, fillers)
        world.do(replaced(world.scheduler, Node, list(world.nodes.values())))
        world.filter(newcomer[0], list(world.nodes))
        world.do_the_rest()
        assert world.gangs == {"one": Phase.PLANNED, "two": Phase.WAITING, "new": Phase.PLANNED}
        world.schedule()
        assert world.bound("new") == 2

    def test_that_tried_gangs_whose_members_keep_apart_leaves_the_next_to_others(self, world: GangWorld) -> None:
        """Where they stand depends on the pods around; these have not changed between two slices."""
        fillers = self.stage(world)
        for name in list(world.nodes):
            world.add_node(node(name, labels={"host": name}))
        for number in range(3):
            members = gang_pods(f"apart{number}", 2, {"cpu": 4000})
            rule, labels = apart("host"), {"app": "train"}
            world.create(*(replace(each, labels=labels, constraints=rule, created=1.0 + number) for each in members))
            world.filter(world.pods[members[0].uid], list(world.nodes))
        [last] = self.waiting(world, "last", {"cpu": 8000}, created=9.0, size=1)
        world.delete(fillers[0])
        assert world.gangs["last"] is Phase.PLANNED
        assert last.uid not in world.asleep

    @pytest.mark.parametrize("count", [1, 3])
    def test_is_not_used_up_each_time_by_gangs_that_their_namespace_changes_without_end(
        self, world: GangWorld, count: int
    ) -> None:
        """They are older, and each change is news of one that may fit now."""
        fillers = self.stage(world)

        def comes(name: str, namespace: str, created: float, **more: Any) -> Pod:
            ask = gang_ask(name, 2, namespace=namespace)
            facts = {"namespace": namespace, "gang": ask, "created": created, **more}
            members = [replace(each, **facts) for each in gang_pods(name, 2, {"cpu": 8000})]
            world.create(*members)
            for member in members:
                world.filter(member, list(world.nodes))
                world.do_the_rest()
            return members[0]

        changed = [comes(f"old{number}", "a", 1.0 + number, node_selector={"no": "such"}) for number in range(count)]
        comes("new", "b", 9.0)
        self.free(world, fillers)
        for time in range(count + 1):
            for member in changed:
                world.change(member.uid, labels={"time": str(time)})
                world.deliver()
        assert world.gangs["new"] is Phase.PLANNED
        for uid in [uid for uid, each in world.pods.items() if each.node_selector]:
            world.change(uid, node_selector={})
        world.catch_up()
        world.do_the_rest()
        assert not world.scheduler.more_to_do
        world.delete(PodUid("uid-new-0"))
        world.delete(PodUid("uid-new-1"))
        world.do_the_rest()
        assert list(world.gangs.values()).count(Phase.PLANNED) == 1


class TestWhoIsFirst:
    """Gangs whose members keep apart: whether each could ever fit costs a plan, which is made one a slice here."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The gangs that were planned for that, in order."""
        names: list[str] = []
        could_ever_fit = Feasibility.could_ever_fit

        def noting(feasibility: Feasibility, gang: Gang) -> bool:
            names.append(gang.key.name)
            return could_ever_fit(feasibility, gang)

        monkeypatch.setattr(Feasibility, "could_ever_fit", noting)
        return names

    @pytest.fixture
    def world(self, asked: list[str]) -> GangWorld:
        """Five that are too large for four nodes, and behind them one that waits for pods to leave."""
        made = GangWorld(patience=NEVER)
        for number in range(4):
            made.add_node(node(f"n{number}", labels={"host": f"n{number}"}))
            made.create(pod(f"filler-n{number}", {"cpu": 8000}, node=NodeName(f"n{number}")))
        for number, name in enumerate([*(f"never{number}" for number in range(5)), "last"]):
            self.wait(made, name, 4 if name == "last" else 5, created=1.0 + number)
        assert self.first(made) == "last"
        # More than the change costs, and less than a plan.
        self.queue(made).fits.work.limit = 15
        asked.clear()
        return made

    @staticmethod
    def wait(
        world: GangWorld,
        name: str,
        size: int,
        *,
        created: float,
        priority: int = 0,
        cpu: int = 8000,
        constraints: Constraints | None = APART,
    ) -> PodUid:
        """A gang that kube-scheduler has asked about; returns its first member."""
        labels = {"app": "train"}
        members = [
            replace(each, labels=labels, created=created, priority=priority, constraints=constraints)
            for each in gang_pods(name, size, {"cpu": cpu})
        ]
        world.create(*members)
        for each in members:
            world.filter(world.pods[each.uid], list(world.nodes))
        world.do_the_rest()
        return members[0].uid

    @staticmethod
    def queue(world: GangWorld) -> Queue:
        return world.scheduler.cache.gangs.waiting.queue

    def first(self, world: GangWorld) -> str | None:
        found = self.queue(world).first()
        return None if found is None else found.key.name

    def change(self, world: GangWorld, number: int) -> None:
        """Of the nodes, as a tenant can who sets an ephemeral resource. The service looks when it has to tick next."""
        world.do(world.scheduler.set_capacity(NodeName("n1"), ResourceKey("escher.dev/x.y"), number))
        due = world.scheduler.next_deadline()
        assert due is not None
        assert due <= world.clock.steady()

    def test_is_found_in_slices_and_nobody_is_first_until_it_is(self, world: GangWorld, asked: list[str]) -> None:
        self.change(world, 1)
        assert asked == ["never0"]
        assert self.first(world) is None
        world.at_its_alarms(0)
        assert asked == [*(f"never{number}" for number in range(5)), "last"]
        assert self.first(world) == "last"
        assert (world.scheduler.next_deadline() or inf) > world.clock.steady()

    def test_is_asked_of_each_though_something_changes_all_the_time(self, world: GangWorld, asked: list[str]) -> None:
        """Where all were asked, one is first, as if the changes since then came later."""
        first = list[str | None]()
        for number in range(12):
            self.change(world, 1 + number)
            first.append(self.first(world))
        assert asked == [*(f"never{number}" for number in range(5)), "last"] * 2
        assert first == [*[None] * 5, "last"] * 2

    def test_is_found_though_a_gang_before_it_changes_all_the_time(self, world: GangWorld, asked: list[str]) -> None:
        for number in range(12):
            world.change(PodUid("uid-never0-0"), labels={"app": "train", "time": str(number)})
            self.change(world, 1 + number)
        assert "last" in asked
        assert asked.count("never0") <= 3

    def test_keeps_its_room_while_that_is_asked_anew(self, world: GangWorld) -> None:
        queue = self.queue(world)
        gang = queue.first()
        assert gang is not None
        queue.saved.begin(gang, None, world.clock.steady())
        for number in range(12):
            self.change(world, 1 + number)
            assert queue.saved.gang is gang

    def test_is_another_once_it_could_fit(self, world: GangWorld) -> None:
        world.add_node(node("n4", labels={"host": "n4"}))
        world.do_the_rest()
        assert self.first(world) == "never0"

    def test_is_found_though_others_use_up_slices_before_anybody_is_asked(
        self, world: GangWorld, asked: list[str]
    ) -> None:
        """A slice in which no gang is asked about does not end the round: each round begins with the first gang."""
        noisy = self.wait(world, "noisy", 4, created=99.0)
        asked.clear()
        for number in range(20):
            world.clock.time += 1.0
            world.do(world.scheduler.set_capacity(NodeName("n1"), ResourceKey("escher.dev/x.y"), number + 1))
            world.change(noisy, labels={"app": "train", "time": str(number)})
            world.deliver()
            for _ in range(2):
                if (world.scheduler.next_deadline() or inf) <= world.clock.steady():
                    world.do(world.scheduler.tick())
        assert "last" in asked

    def test_keeps_its_nominations_while_that_is_asked_anew(self, asked: list[str]) -> None:
        """Its victims have left, and another pod took a part of their room."""
        world = GangWorld(patience=NEVER)
        for number in range(2):
            world.add_node(node(f"n{number}", labels={"host": f"n{number}"}))
            world.create(pod(f"low-{number}", {"cpu": 8000}, node=NodeName(f"n{number}")))
        for number, (name, size) in enumerate({"never0": 3, "never1": 3, "top": 2}.items()):
            self.wait(world, name, size, created=1.0 + number, priority=1)
        world.delete(PodUid("uid-low-0"))
        world.create(pod("thief", {"cpu": 8000}, node=NodeName("n0"), priority=5))
        world.delete(PodUid("uid-low-1"))
        world.do_the_rest()
        top = world.scheduler.cache.gangs.by_key[GangKey("default", "top")]
        nominated = dict(top.plan.nominated)
        assert nominated
        self.queue(world).fits.work.limit = 15
        self.change(world, 1)
        assert self.first(world) is None
        world.at_its_alarms(0)
        assert self.first(world) == "top"
        assert (dict(top.plan.nominated), world.let_go) == (nominated, [])

    def test_is_passed_by_though_that_is_just_asked_anew(self, world: GangWorld) -> None:
        queue = self.queue(world)
        last, young = queue.first(), Gang(GangKey("default", "young"), 1, 60.0, first_seen=99.0)
        assert last is not None
        young.terms, young.wait.order = replace(young.terms, created=99.0), last.wait.order
        self.change(world, 1)
        assert self.first(world) is None
        queue.passed_by(young)
        assert last.wait.bypasses == 1

    def test_with_its_reservation_leaves_work_for_the_gangs_behind_it(self) -> None:
        """It is tried in each slice, which costs more than a slice has."""
        world = GangWorld(patience=BackfillTrigger(1000, 5.0))
        for number in range(40):
            world.add_node(node(f"n{number}", labels={"host": f"n{number}"}))
            for name, cpu in (("large", 7900), ("small", 100)):
                world.create(pod(f"{name}-{number}", {"cpu": cpu}, node=NodeName(f"n{number}")))
        self.wait(world, "saver", 30, created=2.0)
        world.at_its_alarms(6)
        queue = self.queue(world)
        assert queue.saved.gang is not None
        for number in range(2):
            self.wait(world, f"behind{number}", 2, created=90.0 + number, cpu=100, constraints=None)
        queue.fits.work.limit = 60
        for number in range(40):
            del world.pods[PodUid(f"uid-small-{number}")]
        world.do(replaced(world.scheduler, Pod, list(world.pods.values())))
        for _ in range(20):
            world.do(world.scheduler.tick())
        assert not world.scheduler.more_to_do
        assert {world.gangs[f"behind{number}"] for number in range(2)} == {Phase.PLANNED}

    def test_is_another_if_a_defect_is_met_at_the_one_that_is_asked_about(
        self, world: GangWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hopeless = Feasibility.hopeless

        def fails(feasibility: Feasibility, gang: Gang) -> Shortfall | None:
            if gang.key.name == "never2":
                raise ValueError("a defect")
            return hopeless(feasibility, gang)

        monkeypatch.setattr(Feasibility, "hopeless", fails)
        monkeypatch.setattr(GangWorld, "has_a_defect", lambda world, event: None)
        self.change(world, 1)
        for _ in range(9):
            world.do(world.scheduler.tick())
            world.scheduler.next_deadline()
        assert [name for name, phase in world.gangs.items() if phase is Phase.QUARANTINED] == ["never2"]
        assert self.first(world) == "last"

    def test_is_forgotten_with_the_gang(self, world: GangWorld) -> None:
        for uid in [uid for uid, each in world.pods.items() if each.gang is not None]:
            world.delete(uid)
        world.do_the_rest()
        assert self.first(world) is None
        assert not self.queue(world).fits._ever._tried_alone


def test_whether_a_gang_could_ever_fit_is_counted_as_if_only_what_stays_were_there() -> None:
    """Of two cores each, with one that stays: seen as it comes and goes, node by node."""

    class OneStays:
        changed: tuple[NodeName, ...] = ()
        on_n0 = 1000

        def on(self, name: NodeName, priority: int | None) -> dict[ResourceKey, int]:
            return units(cpu=self.on_n0) if name == "n0" else {}

        def drain_changes(self) -> Sequence[NodeName]:
            changed, self.changed = self.changed, ()
            return changed

    ledger, stays = Ledger(), OneStays()
    for name in ("n0", "n1"):
        ledger.capacity.set_node(NodeName(name), units(cpu=2000, pods=9))
    world = GangWorld(patience=NEVER)
    world.create(*gang_pods("train", 2, {"cpu": 2000}))
    [gang] = world.scheduler.cache.gangs.by_key.values()
    turns = world.scheduler.cache.gangs.waiting.queue
    turns.enter(gang)
    [shape] = turns._queues
    tried: list[str] = []

    def fits(each: Gang) -> bool:
        tried.append(each.key.name)
        return True

    could_fit = CouldFit(ledger, fits, lambda pod: lambda name: True, lambda gang: True, stays, turns.fits.work)
    assert not could_fit(gang, shape, None)
    stays.on_n0, stays.changed = 0, (NodeName("n0"),)
    assert not could_fit(gang, shape, None)
    could_fit.refresh()
    assert could_fit(gang, shape, None)
    assert could_fit(gang, shape, None)
    assert tried == ["train"]
    assert list(could_fit.violations()) == []
