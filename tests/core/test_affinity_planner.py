"""The planner of gangs whose members require something of each other: what it sees, and what it remembers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from extender.core.affinity.affinity_rules import APART, NEAR, allows
from extender.core.affinity.constraints import Constraints, Peers
from extender.core.affinity.pod_affinity_index import Around, PodAffinityIndex
from extender.core.cluster import Pod
from extender.core.gangs.placement.affinity_planner import _GANGS_REMEMBERED, Constrained
from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.trial_snapshot import Room, Slot
from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.names import GangKey
from extender.kube.names import CPU, PODS, NodeName, PodUid
from extender.kube.quantities import Vector
from tests.builders import AGENT, NOW, gang_pods, pod, units
from tests.core.town import ZONE, Town, apart, near, ports, term

N0, N1, N2 = (NodeName(f"n{number}") for number in range(3))
DAEMON = AGENT


def gang_of(*members: Pod, name: str = "train") -> Gang:
    gang = Gang(GangKey("default", name), len(members), 4.0, NOW)
    for each in members:
        gang.roster.take(each)
    return gang


def made(count: int, constraints: Constraints | None, cpu: int = 8000, name: str = "train") -> list[Pod]:
    return [
        replace(each, labels={"app": name}, constraints=constraints) for each in gang_pods(name, count, {"cpu": cpu})
    ]


class Block(Town):
    """A town with a planner of constrained gangs."""

    def __init__(self, zones: str, cpu: int = 8000) -> None:
        super().__init__(zones, cpu)
        self.pods: dict[PodUid, Pod] = {}
        self.staying = ResidentPods(self.pods, comes_again=lambda pod: pod.owner == DAEMON)
        self.constrained = Constrained(self.ledger, self.nodes, self.pod_affinity, self.staying)

    def stand(self, *pods: Pod) -> None:
        """Bound pods come."""
        for each in pods:
            assert each.node is not None
            self.ledger.confirm(each.uid, on=each.node, units=each.requests)
            self.see(each)

    def see(self, *pods: Pod) -> None:
        for each in pods:
            before = self.pods.get(each.uid)
            self.pods[each.uid] = each
            self.pod_affinity.put(each)
            self.staying.observe(each, before)

    def hold(self, holder: str, on: NodeName, kind: HoldingKind, cpu: int = 0, owner: str | None = None) -> None:
        key = None if owner is None else GangKey("default", owner)
        claim = Holding(Holder(holder), on, units(cpu=cpu, pods=1), kind, key, NOW + 30)
        assert not self.ledger.commit([claim]).conflicts

    def plan(  # type: ignore[override]
        self, gang: Gang, releasing: Sequence[str] = (), leaving: Sequence[str] = (), on: Sequence[NodeName] = ()
    ) -> dict[Holder, NodeName] | Shortfall:
        slots = [Slot(Holder(uid), each.requests) for uid, each in gang.roster.members.items()]
        nodes = list(on or self.nodes)
        return self.constrained.plan(gang, slots, nodes, list(map(Holder, releasing)), list(map(Holder, leaving)))


class TestItConcerns:
    def test_gangs_with_a_member_that_requires_something_of_others(self) -> None:
        block, [plain], [shy] = Block("a"), made(1, None), made(1, apart(), name="shy")
        assert not block.constrained.concerns(gang_of(plain))
        assert block.constrained.concerns(gang_of(plain, shy))

    def test_gangs_that_a_pod_requires_to_be_away_as_long_as_it_is_there(self) -> None:
        block, gang, other = Block("a"), gang_of(*made(1, None)), gang_of(*made(1, None, name="web"), name="web")
        assert not block.constrained.concerns(gang)
        shy = pod("shy", constraints=apart(app="train"))
        block.see(shy)
        assert block.constrained.concerns(gang)
        assert not block.constrained.concerns(other)
        block.pod_affinity.remove(shy.uid)
        assert not block.constrained.concerns(gang)

    def test_a_gang_anew_when_its_members_have_changed_or_it_is_another_of_its_name(self) -> None:
        block, gang = Block("a"), gang_of(*made(1, apart()))
        assert block.constrained.concerns(gang)
        gang.roster.take(*made(1, None))
        # Whoever changes its members says so.
        assert block.constrained.concerns(gang)
        gang.roster.changes += 1
        assert not block.constrained.concerns(gang)
        assert block.constrained.concerns(gang_of(*made(1, apart())))

    def test_as_many_gangs_as_there_are(self) -> None:
        block = Block("a")
        gangs = [gang_of(*made(1, ports(80) if n % 2 else None, name=f"g{n}"), name=f"g{n}") for n in range(1100)]
        for _ in range(2):
            assert [block.constrained.concerns(gang) for gang in gangs] == [bool(n % 2) for n in range(1100)]


def test_changes_are_counted_of_who_repels_others_and_where_that_matters_of_all_who_stand() -> None:
    block = Block("a")

    def grown(what: Pod) -> tuple[bool, bool]:
        before = [block.constrained.changes(alone=alone) for alone in (False, True)]
        block.see(what)
        after = [block.constrained.changes(alone=alone) for alone in (False, True)]
        return after[0] > before[0], after[1] > before[1]

    assert grown(pod("plain", node=N0)) == (False, True)
    assert grown(pod("shy", constraints=apart(app="train"))) == (True, True)


class TestAPlan:
    def test_keeps_away_from_who_holds_room_and_is_not_bound_yet(self) -> None:
        block, gang = Block("ab", cpu=64000), gang_of(*made(1, ports(80), 1000))
        block.see(pod("other", constraints=ports(80)))
        block.hold("uid-other", N0, HoldingKind.ASSUMPTION)
        assert block.plan(gang) == {"uid-train-0": "n1"}
        assert block.plan(gang, releasing=["uid-other"]) == {"uid-train-0": "n0"}

    def test_keeps_away_from_places_that_its_own_gang_has_for_members_that_do_not_exist(self) -> None:
        block, gang = Block("ab", cpu=64000), gang_of(*made(1, ports(80), 1000))
        block.hold("slot#1", N0, HoldingKind.RESERVATION, owner="train")
        assert block.plan(gang) == {"uid-train-0": "n1"}

    def test_keeps_away_from_none_that_nobody_knows_or_that_is_only_saved(self) -> None:
        block, gang = Block("ab", cpu=64000), gang_of(*made(1, ports(80), 1000))
        block.hold("slot#1", N0, HoldingKind.RESERVATION, owner="other")
        block.hold("saved#1", N0, HoldingKind.SAVING, owner="train")
        assert block.plan(gang) == {"uid-train-0": "n0"}

    def test_misses_nobody_who_stands_between_others(self) -> None:
        block, gang = Block("aab", cpu=64000), gang_of(*made(1, apart("host", "web"), 1000))
        block.stand(pod("plain", {}, node=N0))
        for number, (kind, app) in enumerate(
            ((HoldingKind.SAVING, "web"), (HoldingKind.RESERVATION, "plain"), (HoldingKind.ASSUMPTION, "web"))
        ):
            block.see(pod(f"p{number}", labels={"app": app}))
            block.hold(f"uid-p{number}", N0, kind, owner="other")
        block.see(pod("p3", labels={"app": "web"}))
        block.hold("uid-p3", N1, HoldingKind.ASSUMPTION)
        assert block.plan(gang) == {"uid-train-0": "n2"}

    def test_has_the_room_and_the_ports_of_who_leaves(self) -> None:
        block, gang = Block("a"), gang_of(*made(1, ports(80)))
        block.stand(pod("low", {"cpu": 8000}, node=N0, constraints=ports(80)))
        assert isinstance(block.plan(gang), Shortfall)
        assert block.plan(gang, leaving=["uid-low"]) == {"uid-train-0": "n0"}

    def test_has_what_its_own_members_hold_and_what_is_given_up(self) -> None:
        block, gang = Block("a"), gang_of(*made(1, ports(80)))
        block.see(*gang.roster.members.values())
        block.hold("uid-train-0", N0, HoldingKind.ASSUMPTION, 8000, owner="train")
        assert block.plan(gang) == {"uid-train-0": "n0"}
        block.ledger.release(PodUid("uid-train-0"))
        block.hold("uid-other", N0, HoldingKind.ASSUMPTION, 8000)
        assert isinstance(block.plan(gang), Shortfall)
        assert block.plan(gang, releasing=["uid-other"]) == {"uid-train-0": "n0"}

    def test_takes_what_its_members_hold_for_free_when_it_looks_for_the_smallest_place(self) -> None:
        block, gang = Block("bba"), gang_of(*made(2, near(), 4000))
        block.see(*gang.roster.members.values())
        for each in gang.roster.members:
            block.hold(each, N2, HoldingKind.ASSUMPTION, 4000, owner="train")
        assert block.plan(gang) == {"uid-train-0": "n2", "uid-train-1": "n2"}

    def test_is_of_the_candidates_and_of_what_each_slot_is_for(self) -> None:
        block, gang = Block("ab", cpu=64000), gang_of(*made(2, apart()))
        assert block.plan(gang, on=[N1]) == Shortfall(1, 2, None, APART)
        # A slot that is nobody's yet is like a member that is to be placed.
        slots = [Slot(Holder("uid-train-0"), units(cpu=1)), Slot(Holder("slot#1"), units(cpu=1))]
        assert block.constrained.plan(gang, slots, [N0, N1]) == {"uid-train-0": "n0", "slot#1": "n1"}

    def test_is_as_for_a_bound_member_where_none_is_left_to_be_placed(self) -> None:
        block = Block("ab")
        [bound] = made(1, apart())
        gang = gang_of(replace(bound, node=N0))
        gang.roster.bind(bound.uid)
        block.stand(*gang.roster.members.values())
        found = block.constrained.plan(gang, [Slot(Holder("slot#1"), units(cpu=1))], [N0, N1])
        assert found == {"slot#1": "n1"}


def test_a_member_is_allowed_where_the_others_are_that_it_is_planned_with() -> None:
    block, gang = Block("abc"), gang_of(*made(2, apart()))
    one, other = gang.roster.members.values()
    block.see(one, other)
    block.hold(one.uid, N0, HoldingKind.ASSUMPTION, owner="train")
    block.hold(other.uid, N1, HoldingKind.ASSUMPTION, owner="train")
    assert list(block.constrained.allowed(gang, one, [N2, N1, N0], ())) == [N2, N0]
    assert list(block.constrained.allowed(gang, one, [N0, N1], [Holder(other.uid)])) == [N0, N1]


class TestInTheWay:
    """Of a plan that has the member on n0."""

    def of(self, stands: Constraints | None, member: Constraints | None, on: NodeName | None = N0) -> set[PodUid]:
        gang, block = gang_of(*made(1, member)), Block("aab", cpu=64000)
        found = {Holder("uid-train-0"): N0}
        return block.constrained.in_the_way(
            gang, found, [pod("low", node=on, labels={"app": "low"}, constraints=stands)]
        )

    @pytest.mark.parametrize(
        ("stands", "member", "on", "is_in_the_way"),
        [
            (ports(80), ports(80), N0, True),
            (ports(80), ports(80), N1, False),
            (ports(81), ports(80), N0, False),
            (apart("host", "train"), None, N0, True),
            (apart("host", "train"), None, N1, False),
            (apart(ZONE, "train"), None, N1, True),
            (apart(ZONE, "train"), None, N2, False),
            (None, apart(ZONE, "low"), N1, True),
            (None, apart(ZONE, "low"), N2, False),
            (None, apart(ZONE, "web"), N0, False),
            (None, ports(80), N0, False),
            (ports(80), ports(80), None, False),
            # kube-scheduler looks at these when it places a pod, and never again.
            (near(app="web"), apart(ZONE, "web"), N0, False),
            (replace(ports(81), affinity=near(app="web").affinity), None, N0, False),
        ],
    )
    def test_is_who_may_not_stay_beside_the_plan(
        self, stands: Constraints | None, member: Constraints | None, on: NodeName | None, is_in_the_way: bool
    ) -> None:
        assert self.of(stands, member, on) == ({PodUid("uid-low")} if is_in_the_way else set())

    def test_are_all_who_are_and_none_beside(self) -> None:
        gang, block = gang_of(*made(1, ports(80))), Block("aab", cpu=64000)
        there = [pod(f"p{n}", node=at, constraints=what) for n, (at, what) in enumerate(
            [(None, ports(80)), (N0, None), (N0, ports(80)), (N1, ports(80)), (N0, ports(80, 81))])]  # fmt: skip
        found = block.constrained.in_the_way(gang, {Holder("uid-train-0"): N0, Holder("slot#1"): N2}, there)
        assert found == {"uid-p2", "uid-p4"}
        # A place that is nobody's yet is like a member's.
        assert block.constrained.in_the_way(gang, {Holder("slot#1"): N1}, there) == {"uid-p3"}

    @pytest.mark.parametrize("seed", range(300))
    def test_are_those_whom_the_rules_refuse_their_node_one_by_one(self, seed: int) -> None:
        random = Random(seed)
        block, apps = Block("aab-b", cpu=64000), ("train", "web", "low")

        def some() -> Constraints | None:
            keys = random.choices(("host", ZONE, "none"), k=random.randrange(3))
            terms = tuple(term(key, random.choice(apps)) for key in keys)
            used = ports(*random.choices((80, 81), k=random.randrange(2))).host_ports
            return Constraints(host_ports=used, anti_affinity=terms) if used or terms else None

        gang = gang_of(
            *(replace(each, labels={"app": random.choice(apps)}, constraints=some()) for each in made(3, None))
        )
        names = [*block.nodes, NodeName("gone")]
        there = [
            pod(f"p{n}", node=random.choice([*names, None]), labels={"app": random.choice(apps)}, constraints=some())
            for n in range(8)
        ]
        found = {Holder(uid): random.choice(names) for uid in gang.roster.members}
        around = Around(PodAffinityIndex(), [(gang.roster.members[PodUid(holder)], on) for holder, on in found.items()])
        meaning = list(around.repelling())

        def is_refused(each: Pod) -> bool:
            concerned = each.constraints or any(term.peers.include(each.namespace, each.labels) for term in meaning)
            at = [each.node] if each.node is not None and concerned else []
            return bool(at) and not list(allows(each, at, block.nodes, around))

        assert block.constrained.in_the_way(gang, found, there) == {each.uid for each in there if is_refused(each)}


def test_victims_beside_a_plan_cost_a_few_calls_each_however_many_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was compared with each that is planned."""
    asked = 0
    include = Peers.include

    def counting(self: Peers, *who: Any) -> bool:
        nonlocal asked
        asked += 1
        return include(self, *who)

    monkeypatch.setattr(Peers, "include", counting)
    block, gang = Block("a" * 50, cpu=64000), gang_of(*made(50, apart("host", "low")))
    names = list(block.nodes)
    there = [pod(f"p{n}", node=names[n % 50], labels={"app": "low"}, constraints=apart("host")) for n in range(400)]
    found = dict(zip(map(Holder, gang.roster.members), names, strict=True))
    assert len(block.constrained.in_the_way(gang, found, there)) == 400
    assert asked <= 2


class TestWhenEmpty:
    def lacks(self, block: Block, gang: Gang) -> Shortfall | None:
        slots = [Slot(Holder(uid), each.requests) for uid, each in gang.roster.members.items() if each.node is None]
        return block.constrained.lacks_when_empty(gang, slots, Room.emptied(block.ledger, block.nodes, lambda name: {}))

    def test_nobody_is_in_the_way_but_who_stays(self) -> None:
        block, gang = Block("ab"), gang_of(*made(2, ports(80)))
        block.stand(pod("low", {"cpu": 8000}, node=N0, constraints=ports(80)))
        assert self.lacks(block, gang) is None
        block.stand(pod("daemon", {}, node=N1, owner=DAEMON, constraints=ports(80)))
        assert self.lacks(block, gang) == Shortfall(1, 2, None, "a host port in use")

    def test_its_own_bound_members_are(self) -> None:
        block = Block("ab")
        first, second, third = made(3, apart())
        first = replace(first, node=N0)
        block.stand(pod("plain", {}, node=N1), first)
        assert self.lacks(block, gang_of(first, second)) is None
        assert self.lacks(block, gang_of(first, second, third)) == Shortfall(1, 2, None, APART)

    def test_whoever_it_wants_to_be_near_is_there(self) -> None:
        block, gang = Block("ab"), gang_of(*made(1, near(app="web")))
        lacks = self.lacks(block, gang)
        assert lacks is not None
        assert lacks.rule == NEAR
        block.stand(pod("web-0", {"cpu": 8000}, node=N1, labels={"app": "web"}))
        assert self.lacks(block, gang) is None


class TestWhatIsRemembered:
    """Of gangs that could be placed nowhere."""

    LACKS = Shortfall(1, 2, None, APART)

    def block(self, constraints: Constraints | None = None) -> tuple[Block, Gang, list[Shortfall | None]]:
        return Block("ab"), gang_of(*made(2, constraints or apart())), [self.LACKS]

    @pytest.mark.parametrize("answer", [LACKS, None])
    def test_is_told_without_asking_again(self, answer: Shortfall | None) -> None:
        block, gang, _ = self.block()
        answers = [answer]
        assert block.constrained.known_hopeless(gang) is None
        for _ in range(3):
            assert block.constrained.hopeless(gang, answers.pop if answers else self.never) == answer
            assert block.constrained.known_hopeless(gang) == answer

    def never(self) -> Shortfall | None:
        raise AssertionError("it was asked before")

    @pytest.mark.parametrize(
        ("what", "constraints", "is_asked"),
        [
            ("a node", apart(), True),
            ("a member", apart(), True),
            ("one that stays", apart(), True),
            ("one that stays no more", apart(), True),
            ("another that stays in its stead", apart(), True),
            ("another", apart(), False),
            ("another", near(app="web"), True),
            ("another gang of the name", apart(), True),
        ],
    )
    def test_is_asked_anew_when_that_may_have_changed(
        self, what: str, constraints: Constraints, is_asked: bool
    ) -> None:
        block, gang, answers = self.block(constraints)
        daemon = pod("daemon", {}, node=N0, owner=DAEMON)
        if what in ("one that stays no more", "another that stays in its stead"):
            block.see(daemon)
        assert block.constrained.hopeless(gang, answers.pop) == self.LACKS
        match what:
            case "a node":
                block.ledger.capacity.set_node(NodeName("n9"), units(cpu=1))
            case "a member":
                gang.roster.changes += 1
            case "one that stays":
                block.see(daemon)
            case "one that stays no more":
                block.staying.forget(daemon.uid)
            case "another that stays in its stead":
                block.staying.forget(daemon.uid)
                block.see(pod("other", {}, node=N1, owner=DAEMON))
            case "another":
                block.see(pod("web", {}, node=N0))
            case _:
                gang = gang_of(*gang.roster.members.values())
        assert (block.constrained.known_hopeless(gang) is None) is is_asked
        assert block.constrained.hopeless(gang, lambda: None) == (None if is_asked else self.LACKS)

    def test_is_of_each_gang_and_of_the_latest_thousands(self) -> None:
        block = Block("a")
        gangs = [gang_of(*made(1, apart(), name=f"g{n}"), name=f"g{n}") for n in range(_GANGS_REMEMBERED + 1)]
        lacks = [Shortfall(number, 9, None) for number in range(_GANGS_REMEMBERED)]
        for gang, each in zip(gangs, lacks, strict=False):
            assert block.constrained.hopeless(gang, [each].pop) == each
        # Who was asked about lately is kept.
        assert block.constrained.hopeless(gangs[0], self.never) == lacks[0]
        assert block.constrained.hopeless(gangs[-1], lambda: self.LACKS) == self.LACKS
        known = [block.constrained.known_hopeless(gang) for gang in gangs]
        assert known == [lacks[0], None, *lacks[2:], self.LACKS]


class TestAims:
    def aims(
        self, block: Block, gang: Gang, releasing: Sequence[str] = (), slots: Sequence[Slot] | None = None
    ) -> dict[Holder, tuple[NodeName, Vector]] | None:
        if slots is None:
            slots = [Slot(Holder(f"saved#{n}"), each.requests) for n, each in enumerate(gang.roster.members.values())]
        lasting = Room.emptied(block.ledger, block.nodes, lambda name: {})
        return block.constrained.aims(gang, slots, list(block.nodes), list(map(Holder, releasing)), lasting)

    def test_are_where_most_is_free_with_what_is_free_there(self) -> None:
        block, gang = Block("abc"), gang_of(*made(1, ports(80), 6000))
        for name, cpu in (("n0", 7000), ("n1", 3000), ("n2", 5000)):
            block.stand(pod(f"f-{name}", {"cpu": cpu}, node=NodeName(name)))
        assert self.aims(block, gang) == {"saved#0": ("n1", {CPU: 5000, PODS: 1})}

    def test_of_several_are_each_what_the_others_leave(self) -> None:
        block, gang = Block("a", cpu=9000), gang_of(*made(2, near(), 4000))
        block.stand(pod("fill", {"cpu": 3000}, node=N0))
        assert self.aims(block, gang) == {
            "saved#0": ("n0", {CPU: 4000, PODS: 1}),
            "saved#1": ("n0", {CPU: 2000, PODS: 1}),
        }

    def test_have_what_is_given_up_and_what_they_hold_themselves(self) -> None:
        block, gang = Block("ab"), gang_of(*made(1, ports(80)))
        block.hold("saved#0", N1, HoldingKind.SAVING, 8000, owner="train")
        block.stand(pod("fill", {"cpu": 8000}, node=N0))
        assert self.aims(block, gang) == {"saved#0": ("n1", {CPU: 8000, PODS: 1})}
        block.ledger.release(Holder("saved#0"))
        block.hold("other", N1, HoldingKind.SAVING, 8000, owner="train")
        assert self.aims(block, gang, ["other"]) == {"saved#0": ("n1", {CPU: 8000, PODS: 1})}

    def test_are_none_where_there_is_no_place_though_all_leave(self) -> None:
        assert self.aims(Block("a"), gang_of(*made(2, apart()))) is None

    def test_of_no_places_are_none(self) -> None:
        assert self.aims(Block("a"), gang_of(*made(1, apart())), slots=[]) == {}

    def test_of_nothing_that_is_asked_for_is_nothing_told(self) -> None:
        block, gang = Block("a"), gang_of(*made(1, apart()))
        slots = [Slot(Holder("saved#0"), {CPU: 1000, PODS: 0})]
        assert self.aims(block, gang, slots=slots) == {"saved#0": ("n0", {CPU: 1000})}


def test_terms_of_others_are_heeded_only_where_the_gang_is_meant() -> None:
    block = Block("ab", cpu=64000)
    block.stand(pod("shy", {}, node=N0, constraints=Constraints(anti_affinity=(term(ZONE, "train"),))))
    assert block.plan(gang_of(*made(1, None, 1000))) == {"uid-train-0": "n1"}
    assert block.plan(gang_of(*made(1, None, 1000, "web"), name="web")) == {"uid-web-0": "n0"}
