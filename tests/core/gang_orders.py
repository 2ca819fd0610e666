"""A cluster for `every_order`: two gangs that compete, our `Scheduler`, and a kube-scheduler that has its own pace.

Beyond `gang_world`: the watch tells of different pods in any order, of one pod in that of its news; a wake is spent on
the next try, and does not count for the one after it; a pod that is bound and is deleted ends in three steps, as
kubelets have it: it is being deleted, has failed, is gone. The world says what can happen next, what decides about
that, and what must hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from extender.app.contracts.effects import Effect
from extender.app.contracts.extender_api import Verdict
from extender.core.cluster import Pod
from extender.core.feedback import NotBound
from extender.core.gang_ask import GangAsk
from extender.core.gangs.queue.backfill import BackfillLimits
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import EvictMembers, OpenBarrier, TurnBack
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.holdings import HoldingKind
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import gang_ask, node, pod
from tests.core.every_order import TIME, Event
from tests.core.gang_state import about, state_of
from tests.core.gang_world import GangWorld

EACH = 1000
"""CPU that each member asks for; nothing else runs."""

TIMEOUTS = {"a": 4.0, "b": 6.0}
"""Different ones, so that either deadline can be the first to pass."""

GENEROUS = BackfillLimits(share=1.0, seconds=float("inf"))
"""What is saved is saved for ever: how that ends is `test_savings`', and its times would be states without end."""

FOR_EVER = BackfillTrigger(bypasses=10**9, seconds=float("inf"))
"""No room is ever saved."""


@dataclass
class Rivals(GangWorld):
    quorums: dict[str, int] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)
    """How often each misfortune may still happen: `delete`; `recreate` after that; `refuse` a Binding; `lose` a pod
    between filter and bind; `retry` one that nobody has woken; `late`, a filter call for one that is deleted; `hurry`,
    a deadline that passes although something else could happen before."""
    mortal: str = "ab"
    """Gangs of which members are deleted."""
    gated: str = ""
    """Gangs whose members are created behind our gate."""
    alike: bool = True
    """Whether of orders that differ only in which member of a gang is which, one stands for all. Where either would do,
    the first by name is taken: what becomes of the second is not tried then."""
    cast: dict[PodUid, str] = field(default_factory=dict)
    """The gang of each pod that ever was."""
    at_barrier: set[PodUid] = field(default_factory=set)
    """Pods whose bind call waits for its answer."""
    missed: dict[PodUid, Pod] = field(default_factory=dict)
    """Pods that were deleted, and may be made again."""
    placed: set[PodUid] = field(default_factory=set)
    """Pods that are bound, or were and no watch has told that they have failed or are gone."""
    ever_placed: set[PodUid] = field(default_factory=set)
    """Pods that were bound, whatever has become of them."""
    doomed: set[PodUid] = field(default_factory=set)
    """Pods that we wanted evicted."""
    ran: set[str] = field(default_factory=set)
    """Gangs of which a quorum has been bound, be it one after another: who is left of them stays."""

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case EvictMembers(_, _, members, _):
                    # The watch may not have told yet that they are bound.
                    self.evicted += [m.uid for m in members if m.uid in self.pods and m.uid not in self.evicted]
                    self.doomed.update(self.evicted)
                    continue
                case OpenBarrier(_, members, _):
                    self.at_barrier.difference_update(members)
                case TurnBack(_, members, _):
                    self.at_barrier.difference_update(members)
            super().take([effect])

    # -- what can happen -----------------------------------------------------------------------------------------

    def possible(self) -> Sequence[Event]:
        events = list(self._sooner_or_later())
        if self.scheduler.next_deadline() not in (None, float("inf")):
            if not events:
                events.append(Event(TIME, sort=TIME))
            elif self.left["hurry"]:
                events.append(Event(TIME, misfortune="hurry"))
        return [*events, *(event for event in self._misfortunes() if self.left[event.misfortune])]

    def _sooner_or_later(self) -> Iterator[Event]:
        for uid in dict.fromkeys(map(about, self.events)):
            yield self._due("watch", uid)
        for waiting in self.pending():
            if self.offer(waiting):
                yield self._due("filter", waiting.uid)
        for uid in self.assumed:
            if uid in self.opened:
                yield self._due("write", uid)
            elif uid not in self.at_barrier:
                yield self._due("bind", uid)
        for uid in self.evicted:
            yield self._due("evict", uid)
        for uid, each in self.pods.items():
            if each.deleting:
                yield self._due("removal" if each.finished else "end", uid)

    def _due(self, what: str, uid: PodUid) -> Event:
        return Event(what, uid, f"{what} {self.cast[uid] if self.alike else uid}")

    def _misfortunes(self) -> Iterator[Event]:
        for uid, each in self.pods.items():
            if not each.deleting and self.cast[uid] in self.mortal:
                yield Event("delete", uid, misfortune="delete")
        for uid in self.missed:
            yield Event("recreate", uid, misfortune="recreate")
            if uid not in self.assumed and not self.missed[uid].at_our_gate and self.offer(self.missed[uid]):
                yield Event("filter", uid, misfortune="late")
        for uid in self.asleep:
            if self.offer(self.pods[uid]):
                yield Event("filter", uid, misfortune="retry")
        for uid in self.assumed:
            if uid in self.opened:
                yield Event("refuse", uid, misfortune="refuse")
            elif uid not in self.at_barrier:
                yield Event("lose", uid, misfortune="lose")

    def happen(self, event: Event) -> None:
        uid = PodUid(event.whom)
        self.left[event.misfortune] -= 1
        match event.what:
            case "watch":
                news = next(news for news in self.events if about(news) == uid)
                self.events.remove(news)
                self.events.appendleft(news)
                self.deliver()
                if not isinstance(news, Pod) or (news.finished and not news.succeeded):
                    self.placed.discard(uid)
            case "filter":
                self.filter(self.pods.get(uid) or self.missed[uid])
            case "bind":
                self.bind(uid)
            case "write":
                self.write(uid)
                if uid in self.pods:
                    self.placed.add(uid)
                    self.ever_placed.add(uid)
                    self.ran |= {gang for gang, quorum in self.quorums.items() if self._ever_placed(gang) >= quorum}
            case "refuse":
                del self.opened[uid], self.assumed[uid]
                self.do(self.scheduler.on_event(NotBound(uid, for_good=uid not in self.pods, surely=True)))
            case "lose":
                del self.assumed[uid]
            case "delete":
                self._ends(uid)
            case "evict":
                self.evicted.remove(uid)
                self._ends(uid)
            case "end":
                self.change(uid, finished=True, succeeded=False)
            case "removal":
                self.delete(uid, seen=False, by_force=True)
            case "recreate":
                gated = self.cast[uid] in self.gated
                self._enters(replace(self.missed.pop(uid), uid=PodUid(f"{uid}-again"), at_our_gate=gated))
            case _:
                assert event.what == TIME
                deadline = self.scheduler.next_deadline()
                assert deadline is not None
                self.pass_time(deadline - self.clock.time)

    def _ever_placed(self, gang: str) -> int:
        return sum(self.cast[uid] == gang for uid in self.ever_placed - self.doomed)

    def _enters(self, pod: Pod) -> None:
        assert isinstance(pod.gang, GangAsk)
        self.cast[pod.uid] = pod.gang.key.name
        self.create(pod, seen=False)

    def _ends(self, uid: PodUid) -> None:
        pod = self.pods.get(uid)
        if pod is None or pod.deleting:
            return
        self.missed[uid] = replace(pod, node=None)
        if pod.node is None:
            self.delete(uid, seen=False)
        else:
            self.pods[uid] = replace(pod, deleting=True)
            self.events.append(self.pods[uid])

    def bind(self, uid: PodUid) -> str:
        # Before the `Scheduler` is asked: its answer may be to let this very one through.
        self.at_barrier.add(uid)
        refusal = super().bind(uid)
        if refusal or uid in self.opened:
            self.at_barrier.discard(uid)
        return refusal

    def filter(self, pod: Pod, sent: Sequence[NodeName] | None = None) -> Verdict:
        self._wakes_seen[pod.uid] = self.wakes.get(pod.uid, 0)
        self.asleep.pop(pod.uid, None)
        verdict = super().filter(pod, sent)
        if pod.uid not in self.pods and verdict.passed:
            self.assumed[pod.uid] = verdict.passed[0]
        return verdict

    # -- what must hold ------------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        gangs, ledger = self.scheduler.cache.gangs, self.scheduler.cache.ledger
        assert self.at_barrier == {uid for gang in gangs.by_key.values() for uid in gang.barrier.arrived}, (
            "a bind call hangs"
        )
        for name, there in self.nodes.items():
            assert ledger.rows.free(name, CPU) >= 0, f"more is held on {name} than there is"
            running = sum(pod.node == name and not pod.finished for pod in self.pods.values())
            assert running * EACH <= there.allocatable[CPU]
        in_part: list[str] = []
        for key, gang in gangs.by_key.items():
            unbound = [held for held in ledger.held_for(key) if held.kind is not HoldingKind.BOUND]
            idle = [held for held in unbound if PodUid(held.holder) not in gang.barrier.writing]
            if any(held.kind is HoldingKind.SAVING for held in idle):
                assert gang is gangs.waiting.queue.saved.gang, f"{key.name} saves up, and it is not its turn"
                in_part.append(key.name)
            elif idle and gang.roster.placed + len(unbound) < gang.terms.quorum:
                assert gang.phase is Phase.BINDING, f"{key.name} holds neither its quorum nor nothing: {idle}"
                in_part.append(key.name)
        assert len(in_part) < 2, "two gangs hold a part each"

    def check_rest(self) -> None:
        assert self.assumed == self.opened == {}
        turns = self.scheduler.cache.gangs.waiting.queue
        saved = [] if turns.saved.gang is None else self.scheduler.cache.ledger.held_for(turns.saved.gang.key)
        held = {
            (PodUid(holding.holder), holding.node, holding.kind)
            for holding in self.scheduler.cache.ledger.rows.holdings()
            if holding.kind is not HoldingKind.SAVING or holding not in saved
        }
        living = {uid: pod for uid, pod in self.pods.items() if not pod.finished}
        bound = {(uid, pod.node, HoldingKind.BOUND) for uid, pod in living.items() if pod.node is not None}
        assert held == bound, "what is held is not what is bound"
        free = sum(self.free(name, "cpu") // EACH for name in self.nodes)
        for gang, quorum in self.quorums.items():
            waiting = [pod for uid, pod in self.pods.items() if self.cast[uid] == gang and pod.node is None]
            needed = max(1, quorum - self.bound(gang))
            assert gang in self.ran or not self.bound(gang), f"{gang} stays bound in part"
            if turns.saved.gang is None or turns.saved.gang.key.name == gang:
                assert len(waiting) < needed or free < needed, f"{gang} fits and waits"

    def outcome(self) -> tuple[int, ...]:
        """How many members of each gang are bound."""
        return tuple(map(self.bound, self.quorums))

    def state(self) -> Hashable:
        return state_of(self)


def contention(
    gangs: Mapping[str, int],
    nodes: Mapping[str, int],
    misfortunes: Mapping[str, int] = MappingProxyType({}),
    *,
    kind: type[Rivals] = Rivals,
    seen: bool = False,
    patience: BackfillTrigger = FOR_EVER,
    mortal: str = "ab",
    gated: str = "",
    alike: bool = True,
    reserve_at_filter: bool = True,
) -> Rivals:
    """Gangs of so many members, all of them the quorum, and nodes with room for so many; `seen`: the watch has told of
    all of them."""
    world = kind(
        quorums=dict(gangs),
        patience=patience,
        thrift=GENEROUS,
        reserve_at_filter=reserve_at_filter,
        left=Counter(misfortunes),
        mortal=mortal,
        gated=gated,
        alike=alike,
    )
    for name, places in nodes.items():
        world.add_node(node(name, {"cpu": places * EACH}))
    for name, size in gangs.items():
        ask = gang_ask(name, size, timeout=TIMEOUTS[name])
        for number in range(size):
            world._enters(pod(f"{name}-{number}", {"cpu": EACH}, gang=ask, at_our_gate=name in gated))
    if seen:
        world.catch_up()
    return world
