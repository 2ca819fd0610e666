"""Gangs bound in part, in any order of what happens then: Bindings refused, room taken and left by others, members that
go and come, offers of some nodes only, deadlines, a service that is started anew.

In the end, before any time has passed, all who lack are bound if there is room for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.core.cluster import Pod
from extender.core.feedback import NotBound
from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.ledger.ledger import Holder, HoldingKind
from extender.kube.names import PodUid
from tests.builders import gang_ask, node, pod
from tests.core.gang_world import GangWorld

pytestmark = pytest.mark.timeout(900)
"""Simpler failures are looked for on a machine that others use as well."""

EACH = 1000
SIZE = 4
_T = TypeVar("_T", bound=str)


class InPartMachine(RuleBasedStateMachine):
    reserve_at_filter = True

    def __init__(self) -> None:
        super().__init__()
        self.world = GangWorld(reserve_at_filter=self.reserve_at_filter)
        self.made = 0
        self.shown_a_part: set[PodUid] = set()
        """Pods that were last tried on some of the nodes that would have them."""

    def pick(self, data: st.DataObject, things: Iterable[_T]) -> _T:
        return data.draw(st.sampled_from(sorted(things)))

    @initialize(
        nodes=st.lists(st.sampled_from((1, 2, 3)), min_size=2, max_size=4).filter(lambda nodes: sum(nodes) >= SIZE),
        quorum=st.sampled_from((SIZE, SIZE, SIZE - 1)),
        written=st.integers(1, SIZE - 2),
        apart=st.sampled_from((0.0, 2.0)),
    )
    def a_gang_is_bound_in_part(self, nodes: list[int], quorum: int, written: int, apart: float) -> None:
        for number, places in enumerate(nodes):
            self.world.add_node(node(f"n{number}", {"cpu": places * EACH}))
        self.ask = gang_ask("a", quorum, timeout=60.0)
        for _ in range(SIZE):
            self.member_appears()
        self.world.bring(list(self.world.pods.values()))
        for uid in list(self.world.opened)[:written]:
            self.world.write(uid)
        for uid in list(self.world.opened):
            self.world.pass_time(apart)
            self.refuse(uid)
        self.world.catch_up()

    def refuse(self, uid: PodUid) -> None:
        del self.world.opened[uid]
        self.world.assumed.pop(uid, None)
        self.world.do(self.world.scheduler.on_event(NotBound(uid, for_good=uid not in self.world.pods, surely=True)))

    # -- the cluster changes -------------------------------------------------------------------------------------

    def members(self) -> list[Pod]:
        return [each for each in self.world.pods.values() if each.gang is not None]

    def foreign_pods(self) -> list[PodUid]:
        return [uid for uid, each in self.world.pods.items() if each.gang is None]

    @precondition(lambda self: len(self.members()) < SIZE)
    @rule()
    def member_appears(self) -> None:
        self.made += 1
        self.world.create(pod(f"a-{self.made}", {"cpu": EACH}, gang=self.ask, created=float(self.made)))

    @precondition(lambda self: any(each.node is None for each in self.members()))
    @rule(data=st.data())
    def member_is_deleted(self, data: st.DataObject) -> None:
        self.world.delete(self.pick(data, [each.uid for each in self.members() if each.node is None]))

    @precondition(lambda self: any(self.world.free(name, "cpu") >= EACH for name in self.world.nodes))
    @rule(data=st.data())
    def stranger_takes_room(self, data: st.DataObject) -> None:
        self.made += 1
        where = self.pick(data, [name for name in self.world.nodes if self.world.free(name, "cpu") >= EACH])
        self.world.create(pod(f"other-{self.made}", {"cpu": EACH}, node=where, scheduler="other"))

    @precondition(lambda self: self.foreign_pods())
    @rule(data=st.data())
    def stranger_leaves(self, data: st.DataObject) -> None:
        self.world.delete(self.pick(data, self.foreign_pods()))

    # -- kube-scheduler ------------------------------------------------------------------------------------------

    @precondition(lambda self: any(map(self.world.offer, self.world.pending())))
    @rule(data=st.data(), window=st.booleans())
    def scheduler_filters(self, data: st.DataObject, window: bool) -> None:
        offers = {each.uid: sent for each in self.world.pending() if (sent := self.world.offer(each))}
        chosen = self.pick(data, offers)
        sent = offers[chosen]
        self.shown_a_part.discard(chosen)
        if window:
            self.shown_a_part.add(chosen)
            sent = data.draw(st.lists(st.sampled_from(sent), min_size=1, unique=True))
        self.world.filter(self.world.pods[chosen], sent)

    @precondition(lambda self: self.world.assumed)
    @rule(data=st.data())
    def scheduler_binds(self, data: st.DataObject) -> None:
        uid = self.pick(data, self.world.assumed)
        if uid not in self.world.opened:
            self.world.bind(uid)

    @precondition(lambda self: self.world.opened)
    @rule(data=st.data(), refused=st.booleans())
    def binding_ends(self, data: st.DataObject, refused: bool) -> None:
        uid = self.pick(data, self.world.opened)
        if refused:
            self.refuse(uid)
        else:
            self.world.write(uid)
        self.world.catch_up()

    @rule(seconds=st.sampled_from((1.0, 16.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(which=st.sampled_from(("scheduler", "scheduler", "scheduler", "service")))
    def one_is_started_anew(self, which: str) -> None:
        if which == "service":
            self.world.restart()
        else:
            self.world.restart_scheduler()

    # -- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def the_invariants_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        for uid in self.shown_a_part:
            self.world.asleep.pop(uid, None)
        for uid in list(self.world.opened):
            self.world.write(uid)
        for _ in range(3):
            # Who is woken in its last round is tried in the next.
            self.world.schedule()
        self.world.check()
        self.nobody_waits_who_fits()
        for _ in range(3):
            self.world.at_its_alarms(100)
            self.world.schedule()
        self.world.check()
        self.nobody_waits_who_fits()
        assert not [each for each in self.world.scheduler.cache.ledger.rows.holdings() if self._is_idle(each.kind)]

    def _is_idle(self, kind: HoldingKind) -> bool:
        return kind not in (HoldingKind.BOUND, HoldingKind.SAVING)

    def nobody_waits_who_fits(self) -> None:
        ledger = self.world.scheduler.cache.ledger
        for key, gang in self.world.scheduler.cache.gangs.by_key.items():
            lacking = list(gang.roster.unplaced())[: gang.needed]
            if not gang.needed or len(lacking) < gang.needed:
                continue
            slots = [Slot(Holder(f"try-{each.uid}"), each.requests) for each in lacking]
            own = [held.holder for held in ledger.held_for(key)]
            found = plan(ledger, slots, list(self.world.nodes), releasing=own)
            assert isinstance(found, Shortfall), f"there is room for all who lack: {found}"


class OptimisticInPartMachine(InPartMachine):
    """Nothing is reserved at filter."""

    reserve_at_filter = False


TestInPartMachine = InPartMachine.TestCase
TestInPartMachine.settings = settings(stateful_step_count=25)
TestOptimisticInPartMachine = OptimisticInPartMachine.TestCase
TestOptimisticInPartMachine.settings = TestInPartMachine.settings
