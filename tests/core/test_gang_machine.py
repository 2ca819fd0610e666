"""Gangs in any order of events: late watches, repeated and overlapping calls, deletes at every point, time that passes.

After every step the invariants hold; at the end, with a scheduler that does its work, every gang that fits is bound
and every other holds nothing, but for the one whose turn it is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.core.cluster import Node, Owner, Pod
from extender.core.feedback import NotBound
from extender.core.gang_ask import GangAsk, GroupAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.cycle.quorum import part_of
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holder
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import accepts
from tests.builders import daemon_set, gang_ask, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

pytestmark = pytest.mark.timeout(900)
"""Simpler failures are looked for on a machine that others use as well."""

GANGS = ("a", "b", "c")
GROUPS = ("x", "y")
CPU = (500, 1000, 2000)
OTHER = "coscheduling"


class GangMachine(RuleBasedStateMachine):
    reserve_at_filter = True
    slice_of_work: int | None = None

    def __init__(self) -> None:
        super().__init__()
        patience = BackfillTrigger(bypasses=1, seconds=30)
        self.world = GangWorld(patience=patience, reserve_at_filter=self.reserve_at_filter)
        if self.slice_of_work is not None:
            self.world.scheduler.cache.gangs.waiting.queue.fits.work.limit = self.slice_of_work
        self.made = 0
        self.shown_a_part: set[PodUid] = set()
        """Pods that were last tried on some of the nodes that would have them: kube-scheduler may know no better."""
        self.deleted: list[Any] = []

    def pick(self, data: st.DataObject, things: Any) -> Any:
        return data.draw(st.sampled_from(sorted(things, key=str)))

    # -- the cluster changes -------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 4), cpu=st.sampled_from((1000, 2000, 4000)), cordoned=st.booleans())
    def node_appears_or_changes(self, number: int, cpu: int, cordoned: bool) -> None:
        self.world.add_node(node(f"n{number}", {"cpu": cpu}, unschedulable=cordoned))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data())
    def node_vanishes(self, data: st.DataObject) -> None:
        self.world.remove_node(self.pick(data, self.world.nodes))

    @rule(
        gang=st.sampled_from(GANGS),
        count=st.integers(1, 3),
        quorum=st.integers(1, 4),
        cpu=st.sampled_from(CPU),
        rank=st.sampled_from(({}, {"priority": 1}, {"priority": 1, "preempts": False})),
        made_by=st.sampled_from(("Job", None)),
        gates=st.sampled_from(({}, {}, {"at_our_gate": True}, {"at_our_gate": True, "gated": True})),
        seen=st.booleans(),
    )
    def members_appear(
        self,
        gang: str,
        count: int,
        quorum: int,
        cpu: int,
        rank: dict[str, Any],
        made_by: str | None,
        gates: dict[str, Any],
        seen: bool,
    ) -> None:
        ask = gang_ask(gang, quorum)
        owner = None if made_by is None else Owner(made_by, gang, f"job-{gang}")
        for _ in range(count):
            self.made += 1
            member = pod(f"{gang}-{self.made}", {"cpu": cpu}, gang=ask, created=self.made, owner=owner, **rank, **gates)
            self.world.create(member, seen=seen)

    @precondition(lambda self: any(p.gated for p in self.world.pods.values()))
    @rule(data=st.data())
    def gate_of_others_opens(self, data: st.DataObject) -> None:
        uid = self.pick(data, [uid for uid, p in self.world.pods.items() if p.gated])
        self.world.change(uid, gated=False)

    @rule(cpu=st.sampled_from(CPU), priority=st.integers(0, 2))
    def ordinary_pod_appears(self, cpu: int, priority: int) -> None:
        self.made += 1
        self.world.create(pod(f"plain-{self.made}", {"cpu": cpu}, priority=priority), seen=False)

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), cpu=st.sampled_from(CPU))
    def foreign_scheduler_binds(self, data: st.DataObject, cpu: int) -> None:
        self.made += 1
        where = self.pick(data, self.world.nodes)
        self.world.create(pod(f"foreign-{self.made}", {"cpu": cpu}, node=where), seen=data.draw(st.booleans()))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), cpu=st.sampled_from((100, 500)))
    def daemon_comes(self, data: st.DataObject, cpu: int) -> None:
        self.made += 1
        where, daemon = self.pick(data, self.world.nodes), self.daemon()
        made = pod(f"daemon-{self.made}", {"cpu": cpu}, node=where, owner=daemon, bound_at=1.0)
        self.world.create(made, seen=data.draw(st.booleans()))

    def daemon(self) -> Owner:
        """Another DaemonSet, which wants a pod on every node."""
        made = Owner("DaemonSet", f"daemon-{self.made}", f"uid-daemon-set-{self.made}", "apps")
        self.world.have(daemon_set(made))
        return made

    @rule(gang=st.sampled_from(GANGS), pods=st.integers(0, 4))
    def job_is_seen(self, gang: str, pods: int) -> None:
        self.world.do(self.world.scheduler.observe(Promise(f"job-{gang}", pods)))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), seen=st.booleans())
    def pod_is_deleted(self, data: st.DataObject, seen: bool) -> None:
        uid = self.pick(data, self.world.pods)
        if self.world.pods[uid].scheduler != OTHER:
            # That scheduler asks us nothing, and would be one of ours if it did.
            self.deleted.append(self.world.pods[uid])
        self.world.delete(uid, seen=seen)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def pod_is_told_to_end(self, data: st.DataObject) -> None:
        self.world.change(self.pick(data, self.running()), deleting=True)

    @precondition(lambda self: self.ending())
    @rule(data=st.data(), succeeded=st.booleans())
    def kubelet_writes_how_it_ended(self, data: st.DataObject, succeeded: bool) -> None:
        self.world.change(self.pick(data, self.ending()), finished=True, succeeded=succeeded)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), succeeded=st.booleans())
    def pod_finishes(self, data: st.DataObject, succeeded: bool) -> None:
        self.world.finish(self.pick(data, self.running()), succeeded=succeeded)

    def running(self) -> list[PodUid]:
        return [uid for uid, p in self.world.pods.items() if p.node and not p.deleting]

    def ending(self) -> list[PodUid]:
        return [uid for uid, p in self.world.pods.items() if p.node and p.deleting and not p.finished]

    # -- what does not mean us harm, and once made us do it -------------------------------------------------------

    @precondition(lambda self: any(not n.unschedulable for n in self.world.nodes.values()))
    @rule(data=st.data(), told=st.integers(0, 3))
    def node_is_drained(self, data: st.DataObject, told: int) -> None:
        """Cordoned, and all but DaemonSets' pods end in the steps of kubelets, of which some are told at once."""
        name = self.pick(data, [name for name, each in self.world.nodes.items() if not each.unschedulable])
        self.world.add_node(replace(self.world.nodes[name], unschedulable=True))
        for uid in [
            uid
            for uid, p in self.world.pods.items()
            if p.node == name and not (p.owner and p.owner.kind == "DaemonSet")
        ]:
            self.world.kubelet_deletes(uid)
        for _ in range(told):
            self.world.deliver()

    @precondition(lambda self: self.world.ended)
    @rule(data=st.data())
    def finished_pod_is_tidied_away(self, data: st.DataObject) -> None:
        uid = self.pick(data, self.world.ended)
        del self.world.ended[uid]
        self.world.events.append(uid)

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), gang=st.sampled_from(GANGS), quorum=st.integers(1, 4), count=st.integers(1, 3))
    def another_schedulers_gang_appears(self, data: st.DataObject, gang: str, quorum: int, count: int) -> None:
        """It bears the labels of one of ours, and some of it is bound."""
        for _ in range(count):
            self.made += 1
            where = data.draw(st.sampled_from([None, *sorted(self.world.nodes)]))
            member = pod(f"other-{self.made}", {"cpu": 500}, gang=gang_ask(gang, quorum), node=where, scheduler=OTHER)
            self.world.create(replace(member, created=self.made), seen=data.draw(st.booleans()))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data())
    def daemon_appears(self, data: st.DataObject) -> None:
        self.made += 1
        where = self.pick(data, self.world.nodes)
        self.world.create(pod(f"daemon-{self.made}", {"cpu": 500}, node=where, owner=self.daemon()), seen=False)

    @precondition(lambda self: any(isinstance(p.gang, GangAsk) for p in self.world.pods.values()))
    @rule(data=st.data(), quorum=st.integers(1, 4), everybody=st.booleans())
    def quorum_is_edited(self, data: st.DataObject, quorum: int, everybody: bool) -> None:
        asks = {uid: p.gang for uid, p in self.world.pods.items() if isinstance(p.gang, GangAsk)}
        key = asks[self.pick(data, asks)].key
        members = [uid for uid, ask in asks.items() if ask.key == key]
        for uid in members if everybody else [self.pick(data, members)]:
            self.world.change(uid, gang=replace(asks[uid], quorum=quorum))

    @rule(gang=st.sampled_from(GROUPS), count=st.integers(1, 3), cpu=st.sampled_from(CPU), seen=st.booleans())
    def members_of_a_group_appear(self, gang: str, count: int, cpu: int, seen: bool) -> None:
        for _ in range(count):
            self.made += 1
            ask = GroupAsk("default", gang, longest_wait=60.0)
            self.world.create(pod(f"{gang}-{self.made}", {"cpu": cpu}, gang=ask, created=self.made), seen=seen)

    @rule(gang=st.sampled_from(GROUPS), quorum=st.integers(1, 4))
    def group_is_made_or_changed(self, gang: str, quorum: int) -> None:
        self.world.set_group(PodGroup("default", gang, quorum))

    @precondition(lambda self: self.world.groups)
    @rule(data=st.data(), again=st.booleans())
    def group_is_deleted(self, data: st.DataObject, again: bool) -> None:
        name = self.pick(data, self.world.groups)
        assert self.world.groups is not None
        group = self.world.groups[name]
        self.world.drop_group(name)
        if again:
            self.world.set_group(group)

    @rule()
    def service_is_started_anew(self) -> None:
        self.world.restart()

    @rule(by=st.sampled_from((-86_400.0, -60.0, 60.0, 86_400.0)))
    def clock_is_set(self, by: float) -> None:
        self.world.clock.stepped += by

    # -- news and calls come in any order ------------------------------------------------------------------------

    @precondition(lambda self: self.world.events)
    @rule()
    def watch_tells_one_thing(self) -> None:
        self.world.deliver()

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def watch_repeats_itself(self, data: st.DataObject) -> None:
        if not self.world.events:
            self.world.do(self.world.scheduler.observe(self.world.pods[self.pick(data, self.world.pods)]))

    @precondition(lambda self: not self.world.events)
    @rule()
    def watch_lists_anew(self) -> None:
        self.world.do(replaced(self.world.scheduler, Pod, list(self.world.pods.values())))
        self.world.do(replaced(self.world.scheduler, Node, list(self.world.nodes.values())))

    @precondition(lambda self: self.world.pending())
    @rule(data=st.data(), window=st.booleans())
    def scheduler_filters(self, data: st.DataObject, window: bool) -> None:
        chosen = self.pick(data, [p.uid for p in self.world.pending()])
        sent = self.world.offer(self.world.pods[chosen])
        if window and sent:
            sent = data.draw(st.lists(st.sampled_from(sorted(sent)), min_size=1, unique=True))
        if sent:
            self.shown_a_part.discard(chosen)
            if window:
                self.shown_a_part.add(chosen)
            self.world.filter(self.world.pods[chosen], sent)

    @precondition(lambda self: self.deleted and self.world.nodes)
    @rule(data=st.data())
    def scheduler_filters_a_pod_that_is_gone(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.deleted))
        self.world.do(self.world.scheduler.filter(gone, list(self.world.nodes)))

    @precondition(lambda self: self.world.assumed)
    @rule(data=st.data())
    def scheduler_binds(self, data: st.DataObject) -> None:
        uid = self.pick(data, self.world.assumed)
        if uid not in self.world.opened and uid not in self.world.counting_on_room:
            self.world.bind(uid)

    @rule()
    def scheduler_is_started_anew(self) -> None:
        self.world.restart_scheduler()

    @precondition(lambda self: self.world.opened)
    @rule(data=st.data())
    def binding_is_written(self, data: st.DataObject) -> None:
        self.world.write(self.pick(data, self.world.opened))

    @precondition(lambda self: self.world.opened)
    @rule(data=st.data())
    def binding_fails(self, data: st.DataObject) -> None:
        uid = self.pick(data, self.world.opened)
        del self.world.opened[uid]
        self.world.assumed.pop(uid, None)
        self.world.do(self.world.scheduler.on_event(NotBound(uid, for_good=uid not in self.world.pods)))

    @rule(seconds=st.sampled_from((0.1, 0.5, 4.0, 60.0, 700.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # -- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def the_invariants_hold(self) -> None:
        self.world.check()

    @invariant()
    def what_is_not_ours_is_left_alone(self) -> None:
        taken = {name for names in self.world.preempted for name in names}
        assert not [name for name in taken if name.startswith(("other-", "daemon-"))]
        assert not [uid for uid in self.world.wakes if uid.startswith("uid-other-")]
        assert not [uid for uid in self.world.evicted if uid.startswith(("uid-other-", "uid-daemon-"))]

    def teardown(self) -> None:
        world = self.world
        for uid in [uid for uid, p in world.pods.items() if p.deleting]:
            world.delete(uid)
        world.catch_up()
        for _ in range(4):
            for uid in list(world.opened):
                world.write(uid)
            world.schedule()
            world.pass_time(100)
        world.check()
        self.nobody_sleeps_who_could_pass()
        turns = world.scheduler.cache.gangs.waiting.queue
        assert turns.saved.gang is turns.first(), "patience has ended, and nothing is saved for the first in turn"
        for gang in world.scheduler.cache.gangs.by_key.values():
            if gang.phase is Phase.BOUND:
                for member in gang.roster.unplaced():
                    if member.uid in self.shown_a_part:
                        continue
                    found = plan(world.scheduler.cache.ledger, [_slot(world, member)], list(world.nodes))
                    assert isinstance(found, Shortfall), f"{member.name} is beyond the quorum, fits and still waits"
                continue
            assert gang.needed, f"{gang.key} has its quorum and is not called bound"
            assert gang is turns.saved.gang or not world.scheduler.cache.ledger.held_for(gang.key) or gang.roster.bound
            assert part_of(gang) is None, f"{gang.key} stays bound in part"
            members = list(gang.roster.unplaced())
            if len(members) < gang.needed:
                continue
            slots = [_slot(world, member) for member in members[: gang.needed]]
            found = plan(world.scheduler.cache.ledger, slots, list(world.nodes), releasing=turns.saved.usable_by(gang))
            assert isinstance(found, Shortfall), f"{gang.key} fits and still waits: {found}"

    def nobody_sleeps_who_could_pass(self) -> None:
        """By the filter's own answer, which is asked for last, for it changes things."""
        world = self.world
        for uid in [uid for uid in world.asleep if uid not in self.shown_a_part]:
            pod = world.pods[uid]
            if pod.gang is None and (sent := world.offer(pod)):
                passes = world.scheduler.cache.policies.filter_score.passes(pod)
                found = [name for name in sent if passes(name)]
                assert not found, f"{pod.name} was turned away, could pass on {found} and sleeps"


def _slot(world: GangWorld, member: Pod) -> Slot:
    return Slot(Holder(f"try-{member.uid}"), member.requests, partial(_acceptable, world, member))


def _acceptable(world: GangWorld, member: Pod, name: NodeName) -> bool:
    return accepts(world.nodes[name], member)


class SwitchedGangMachine(GangMachine):
    """Somebody puts the safety switches on and off. In the end it is off, and all is as if it had never been on."""

    @rule(
        observe_only=st.booleans(),
        evict_partial_gangs=st.booleans(),
        preempts=st.booleans(),
        backfill_reservation=st.booleans(),
    )
    def somebody_uses_the_switches(
        self, observe_only: bool, evict_partial_gangs: bool, preempts: bool, backfill_reservation: bool
    ) -> None:
        before = len(self.world.turned_back)
        self.world.hold(
            observe_only=observe_only,
            evict_partial_gangs=evict_partial_gangs,
            gang_preemption=preempts,
            backfill_reservation=backfill_reservation,
        )
        assert not observe_only or len(self.world.turned_back) == before, "switches that forbid refuse no pod"

    @rule(observe_only=st.booleans())
    def somebody_labels_the_namespace(self, observe_only: bool) -> None:
        self.world.label("default", observe_only=observe_only)

    @invariant()
    def nothing_is_kept_or_refused_where_we_only_observe(self) -> None:
        if self.world.scheduler.cache.safety_switches.observes("default"):
            assert self.world.scheduler.cache.gangs.waiting.queue.saved.gang is None
            assert not self.world.asleep
            assert all(not gang.barrier.arrived for gang in self.world.scheduler.cache.gangs.by_key.values())

    def teardown(self) -> None:
        self.world.hold()
        self.world.label("default")
        super().teardown()


class OptimisticGangMachine(GangMachine):
    """Nothing is reserved at filter: what a gang is planned on may be taken until its barrier opens."""

    reserve_at_filter = False


class SlicedGangMachine(GangMachine):
    """Next to no work is done at a time: the rest is left for the next turn of the event loop."""

    slice_of_work = 1


TestGangMachine = GangMachine.TestCase
TestGangMachine.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=40)
TestOptimisticGangMachine = OptimisticGangMachine.TestCase
TestOptimisticGangMachine.settings = TestGangMachine.settings
TestSwitchedGangMachine = SwitchedGangMachine.TestCase
TestSwitchedGangMachine.settings = settings(max_examples=settings().max_examples, stateful_step_count=40)
TestSlicedGangMachine = SlicedGangMachine.TestCase
TestSlicedGangMachine.settings = TestSwitchedGangMachine.settings
