"""Policies that govern single pods and gangs, whatever happens: what each promises is looked at from outside whenever a
pod is bound, by the pods and nodes that there are.

What was decided before something changed, and is carried out after, is judged by nobody.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.app.contracts.effects import Effect, PolicyFailed
from extender.core.cluster import Pod
from extender.core.policies.policy_matching import POLICY as GOVERNED
from extender.core.policies.policy_types import (
    AntiAffinity,
    Balance,
    BinPacking,
    CoLocation,
    DataLocality,
    FairShare,
    Objective,
    Parameters,
    Priority,
    Soft,
)
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming, selecting

DATA = ResourceKey("escher.dev/default.data1")
POLICY = "it"


@dataclass
class WatchedWorld(PolicyWorld):
    """`judged`: is told of pods whose Bindings are to be written, at the moment in which that is decided."""

    machine: Machine | None = None
    before: dict[PodUid, NodeName] = field(default_factory=dict)
    """Those of which it was decided before."""

    def take(self, effects: Sequence[Effect]) -> None:
        assert not [effect.defect for effect in effects if isinstance(effect, PolicyFailed)]
        super().take(effects)
        self.judge()

    def bind(self, uid: PodUid) -> str:
        refusal = super().bind(uid)
        self.judge()
        return refusal

    def judge(self) -> None:
        new = {uid: node for uid, node in self.opened.items() if self.before.get(uid) != node}
        self.before = dict(self.opened)
        if new and self.machine is not None:
            self.machine.bound_now(new)


class Machine(RuleBasedStateMachine):
    """Pods of one policy, single and in gangs, and others; a scheduler that binds wherever it is let."""

    zones: ClassVar[str] = "aabbc"
    gangs: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.world = WatchedWorld(zones=self.zones, cpu=3000)
        self.world.machine = self
        self.excused: set[PodUid] = set()
        self.offered_few: set[PodUid] = set()
        """Those that were offered some of the nodes when they were tried last."""
        self.count = 0
        self.govern(self.parameters()[0])

    @abstractmethod
    def parameters(self) -> Sequence[Parameters]: ...

    @abstractmethod
    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        """Whether these may be bound beside those; all have their node."""

    # -- what happens --------------------------------------------------------------------------------------------

    def changed(self) -> None:
        self.excused |= self.world.assumed.keys() | self.world.opened.keys()

    def govern(self, parameters: Parameters) -> None:
        self.changed()
        self.world.govern(POLICY, parameters, selecting(app=POLICY))

    @rule(data=st.data())
    def change_policy(self, data: st.DataObject) -> None:
        self.govern(data.draw(st.sampled_from(self.parameters())))

    @precondition(lambda self: self.is_in_force)
    @rule()
    def drop_policy(self) -> None:
        self.changed()
        self.world.lift(POLICY)

    @rule(how=st.sampled_from(["selected", "named", "neither"]), cpu=st.sampled_from([500, 1000]))
    def create(self, how: str, cpu: int) -> None:
        self.count += 1
        self.world.create(self.made(pod(f"p{self.count}", {"cpu": cpu}), how))

    @precondition(lambda self: self.gangs)
    @rule(how=st.sampled_from(["selected", "named"]), size=st.integers(1, 3), quorum=st.integers(1, 3))
    def create_gang(self, how: str, size: int, quorum: int) -> None:
        self.count += 1
        made = gang_pods(f"g{self.count}", size, {"cpu": 500}, quorum=min(size, quorum))
        self.world.create(*(self.made(each, how) for each in made))

    def made(self, what: Pod, how: str) -> Pod:
        if how == "selected":
            return replace(what, labels={"app": POLICY})
        return replace(what, annotations=naming(POLICY)) if how == "named" else what

    @precondition(lambda self: self.world.pending())
    @rule(data=st.data(), few=st.booleans())
    def try_one(self, data: st.DataObject, few: bool) -> None:
        chosen = data.draw(st.sampled_from(self.world.pending()))
        offered = self.world.offer(chosen)
        self.offered_few.discard(chosen.uid)
        if few and len(offered) > 1:
            offered = offered[: data.draw(st.integers(1, len(offered) - 1))]
            self.offered_few.add(chosen.uid)
        if offered:
            self.excused.discard(chosen.uid)
            verdict = self.world.filter(chosen, offered)
            self.answered(chosen, offered, list(verdict.passed))

    def answered(self, asked: Pod, offered: Sequence[NodeName], passed: Sequence[NodeName]) -> None:
        """Filter has said so."""

    @precondition(lambda self: self.waiting_to_be_bound())
    @rule(data=st.data())
    def bind_one(self, data: st.DataObject) -> None:
        self.world.bind(data.draw(st.sampled_from(self.waiting_to_be_bound())))

    def waiting_to_be_bound(self) -> list[PodUid]:
        world = self.world
        at_barrier = {uid for gang in world.scheduler.cache.gangs.by_key.values() for uid in gang.barrier.arrived}
        busy = at_barrier | world.opened.keys() | world.counting_on_room
        return sorted(uid for uid in world.assumed if uid not in busy and uid in world.pods)

    @precondition(lambda self: self.world.opened)
    @rule(data=st.data())
    def write_one(self, data: st.DataObject) -> None:
        self.world.write(data.draw(st.sampled_from(sorted(self.world.opened))))
        self.world.catch_up()

    @rule()
    def let_all_come_to_rest(self) -> None:
        self.offered_few -= {each.uid for each in self.world.pending()}
        self.excused -= {each.uid for each in self.world.pending()} - self.world.assumed.keys()
        self.world.schedule()

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.world.delete(data.draw(st.sampled_from(sorted(self.world.pods))))

    @rule(number=st.integers(0, 1), has=st.booleans())
    def set_data(self, number: int, has: bool) -> None:
        self.changed()
        self.world.do(self.world.scheduler.set_capacity(NodeName(f"n{number}"), DATA, int(has)))

    @rule(there=st.booleans())
    def a_node_comes_or_goes(self, there: bool) -> None:
        name = NodeName("n9")
        self.changed()
        if there:
            self.world.add(name, "d")
        elif name in self.world.nodes and not any(each.node == name for each in self.world.pods.values()):
            self.world.remove_node(name)

    @rule(seconds=st.sampled_from([0.5, 5.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # -- what is to hold -----------------------------------------------------------------------------------------

    def is_of_it(self, one: Pod) -> bool:
        return one.labels.get("app") == POLICY or bool(one.annotations)

    def bound_now(self, new: dict[PodUid, NodeName]) -> None:
        world = self.world
        ours = [
            replace(world.pods[uid], node=node)
            for uid, node in new.items()
            if uid in world.pods and self.is_of_it(world.pods[uid]) and uid not in self.excused
        ]
        others = [each for each in world.pods.values() if each.node is not None and each.uid not in new]
        others += [
            replace(world.pods[uid], node=node)
            for uid, node in world.opened.items()
            if uid not in new and uid in world.pods and world.pods[uid].node is None
        ]
        others += [replace(world.pods[uid], node=new[uid]) for uid in new if uid in self.excused and uid in world.pods]
        if ours and self.is_in_force:
            assert self.holds(ours, [each for each in others if self.is_of_it(each)]), (ours, others)

    @property
    def is_in_force(self) -> bool:
        return ("default", POLICY) in self.world.policies

    @property
    def in_force(self) -> Parameters:
        return self.world.policies["default", POLICY].parameters

    def place(self, one: Pod, key: str) -> str:
        assert one.node is not None
        return self.world.nodes[one.node].labels[key]

    @invariant()
    def the_tables_are_sound(self) -> None:
        self.world.check()

    @invariant()
    def nobody_who_could_go_is_left_asleep(self) -> None:
        cache = self.world.scheduler.cache
        for uid in self.world.asleep:
            known = cache.pods[uid]
            if known.gang is None and uid not in self.offered_few:
                could_go = cache.policies.filter_score.passes(known)
                assert not any(map(could_go, cache.nodes)), known


class AntiAffinityMachine(Machine):
    def parameters(self) -> Sequence[Parameters]:
        return [AntiAffinity(topology_key=ZONE), AntiAffinity()]

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        assert isinstance(self.in_force, AntiAffinity)
        key = self.in_force.topology_key
        taken = [self.place(each, key) for each in others]
        own = [self.place(each, key) for each in new]
        return not set(taken) & set(own) and len(set(own)) == len(own)


class CoLocationMachine(Machine):
    def parameters(self) -> Sequence[Parameters]:
        return [CoLocation(topology_key=ZONE), CoLocation(), CoLocation(size=3, topology_key=ZONE)]

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        assert isinstance(self.in_force, CoLocation)
        key = self.in_force.topology_key
        there = {self.place(each, key) for each in others}
        own = {self.place(each, key) for each in new}
        return own <= there if there else len(own) == 1


class BalanceMachine(Machine):
    def parameters(self) -> Sequence[Parameters]:
        return [Balance(tasks=4, topology_key=ZONE), Balance(tasks=7, topology_key=ZONE), Balance(tasks=3)]

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        assert isinstance(self.in_force, Balance)
        key = self.in_force.topology_key
        places = {each.labels[key] for each in self.world.nodes.values()}
        most = -(-self.in_force.tasks // len(places))
        counts = Counter(self.place(each, key) for each in (*new, *others) if not each.deleting)
        return all(counts[self.place(each, key)] <= most for each in new)


class SkewMachine(Machine):
    """Asked at filter, for who leaves afterwards makes places differ."""

    gangs = False

    def parameters(self) -> Sequence[Parameters]:
        return [Balance(topology_key=ZONE), Balance(topology_key=ZONE, max_skew=2)]

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        return True

    def answered(self, asked: Pod, offered: Sequence[NodeName], passed: Sequence[NodeName]) -> None:
        if not (passed and self.is_in_force and self.is_of_it(asked)):
            return
        assert isinstance(self.in_force, Balance)
        [name] = passed
        world, zones = self.world, {each.labels[ZONE] for each in self.world.nodes.values()}
        standing = {uid: each.node or world.assumed.get(uid) for uid, each in world.pods.items() if self.is_of_it(each)}
        counts = Counter(world.nodes[node].labels[ZONE] for node in standing.values() if node is not None)
        held = Counter({zone: counts[zone] for zone in zones})
        zone = world.nodes[name].labels[ZONE]
        # Who passed before a policy changed holds nothing until it comes to be bound, and is judged anew then.
        loose = [uid for uid in world.assumed if world.scheduler.cache.ledger.holding(uid) is None]
        if not loose:
            assert held[zone] - min(held.values(), default=0) <= self.in_force.max_skew, (held, zone)


class DataMachine(Machine):
    def parameters(self) -> Sequence[Parameters]:
        return [DataLocality(("data1",))]

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        rows = self.world.scheduler.cache.ledger.rows
        return all(each.node is not None and rows[each.node].capacity.get(DATA, 0) > 0 for each in new)


class PreferringMachine(Machine):
    """What filter answers is the best of those with room, as a twin values them."""

    gangs = False

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        return True

    @abstractmethod
    def worth(self, asked: Pod, name: NodeName) -> float: ...

    def answered(self, asked: Pod, offered: Sequence[NodeName], passed: Sequence[NodeName]) -> None:
        if not (passed and self.is_in_force and self.is_of_it(asked)) or len(passed) != 1:
            return
        [name] = passed
        loose = [uid for uid in self.world.assumed if self.world.scheduler.cache.ledger.holding(uid) is None]
        room = [each for each in offered if self.fits(asked, each)]
        if not loose:
            assert self.worth(asked, name) >= max(self.worth(asked, each) for each in room) - 1e-9

    def fits(self, asked: Pod, name: NodeName) -> bool:
        row = self.world.scheduler.cache.ledger.rows[name]
        own = self.world.scheduler.cache.ledger.holding(asked.uid)
        free = row.capacity[ResourceKey("cpu")] - row.held.get(ResourceKey("cpu"), 0)
        free += own.units[ResourceKey("cpu")] if own is not None and own.node == name else 0
        return free >= asked.requests[ResourceKey("cpu")]


class BinPackingMachine(PreferringMachine):
    def parameters(self) -> Sequence[Parameters]:
        return [BinPacking()]

    def worth(self, asked: Pod, name: NodeName) -> float:
        """Where some are is better than where none is; and of the former the fullest, of the latter the emptiest."""
        world = self.world
        there = [
            each for uid, each in world.pods.items() if uid != asked.uid and name in (each.node, world.assumed.get(uid))
        ]
        cpu = sum(each.requests[ResourceKey("cpu")] for each in there)
        return 10_000.0 + cpu if any(map(self.is_of_it, there)) else -float(cpu)


class ObjectiveMachine(PreferringMachine):
    values: ClassVar[dict[str, str]] = {"n0": "1", "n1": "5", "n2": "3", "n3": "nan", "n4": "-7", "n9": "4"}

    def __init__(self) -> None:
        super().__init__()
        for name in self.world.nodes:
            self.world.add(name, self.world.nodes[name].labels[ZONE], value=self.values[name])

    def parameters(self) -> Sequence[Parameters]:
        return [Objective("value"), Objective("value", "lowest")]

    def worth(self, asked: Pod, name: NodeName) -> float:
        assert isinstance(self.in_force, Objective)
        said = self.world.nodes[name].labels.get("value", "nan")
        if said == "nan":
            return -1000.0
        return float(said) * (1 if self.in_force.prefer == "highest" else -1)


class MixedMachine(Machine):
    """All of them at once, with alternatives, and changed at any time: every pod that could go is awake, nothing is
    held that is not known of, and no part of it meets a defect."""

    others: ClassVar[dict[str, Sequence[Parameters]]] = {
        "apart": [AntiAffinity(topology_key=ZONE), AntiAffinity(away_from=("near", "it"))],
        "near": [CoLocation(topology_key=ZONE), CoLocation(size=2)],
        "even": [Balance(topology_key=ZONE), Balance(tasks=3)],
        "data": [DataLocality(("data1",)), DataLocality(("data1",), required=False)],
        "soft": [Soft(("data", "apart"), 5), Soft(("near", "soft"), 1, required=False)],
        "first": [Priority(3, ageing_seconds=10), FairShare(2, "second")],
        "second": [FairShare(1), Priority(1)],
    }

    def parameters(self) -> Sequence[Parameters]:
        return [AntiAffinity(), BinPacking(), CoLocation(), Soft(("even", "near", "it"))]

    def holds(self, new: Collection[Pod], others: Collection[Pod]) -> bool:
        return True

    @rule(data=st.data(), there=st.booleans())
    def change_another(self, data: st.DataObject, there: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.others)))
        if there:
            self.world.govern(name, data.draw(st.sampled_from(self.others[name])), selecting(tier=name))
        elif ("default", name) in self.world.policies:
            self.world.lift(name)

    @rule(
        said=st.sampled_from(["apart", "near,even", "data|near", "soft", "soft|apart,data|even", "first", "second,it"]),
        tier=st.sampled_from(["apart", "even", "soft", "none"]),
        size=st.integers(0, 3),
    )
    def create_another(self, said: str, tier: str, size: int) -> None:
        self.count += 1
        made = gang_pods(f"m{self.count}", size, {"cpu": 500}) or [pod(f"m{self.count}", {"cpu": 500})]
        self.world.create(*(replace(each, annotations={GOVERNED: said}, labels={"tier": tier}) for each in made))

    @rule()
    def a_new_life_begins(self) -> None:
        self.world.restart_knowing_policies_first()
        self.excused.clear()
        self.offered_few.update(self.world.asleep)


TestMixed = MixedMachine.TestCase
TestAntiAffinity = AntiAffinityMachine.TestCase
TestCoLocation = CoLocationMachine.TestCase
TestBalance = BalanceMachine.TestCase
TestSkew = SkewMachine.TestCase
TestData = DataMachine.TestCase
TestBinPacking = BinPackingMachine.TestCase
TestObjective = ObjectiveMachine.TestCase
_CASES = (TestMixed, TestAntiAffinity, TestCoLocation, TestBalance, TestSkew, TestData, TestBinPacking, TestObjective)
for _number in range(len(_CASES)):
    _CASES[_number].settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
