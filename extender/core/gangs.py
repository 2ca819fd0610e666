"""All gangs, and every decision about them: plan, claim, move, barrier, deadline.

It decides between what gangs ask (`gang`) and what the ledger has (`ledger`), in one place and synchronously; about
those that wait for room in `waiting`. What should be done about a decision is left in `effects`, for the application
to take and do. Time comes in as an argument. It must not know kube-scheduler's wire, nor how a pod is woken or bound.

The promises: a gang that has no room for its whole quorum holds nothing, but for the one whose turn it is (`turns`); a
plan has a deadline; the barrier opens only when the quorum is there, and holds all that it needs; a change that makes
room wakes each member that was turned away once; a part of a gang that is bound is evicted only if it is proven
(`parts`) that its quorum was never whole; a defect with one gang is that gang's alone.

With `reserve_at_filter` a plan holds its room from the first member's filter on (pessimistic). Without, it only says
where members should go, anybody may take that room, and each member claims its own when it comes to be bound, which is
when kube-scheduler counts it as well (optimistic). Two gangs may then each hold what the other lacks, until their plans
run out. So one whose plan ran out holds its next one as a whole, as does one that has waited and is woken for room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from extender.core.brake import Act, Brake, Withheld
from extender.core.bystanders import Bystanders
from extender.core.cluster import Node, Pod
from extender.core.ended_well import EndedWell, same_run
from extender.core.gang import (
    HOPELESS,
    INCOMPLETE,
    NO_ROOM,
    NO_ROOM_FOR_MEMBER,
    NOT_BROUGHT,
    NOT_ITS_NODE,
    OUTRANKED,
    QUARANTINE,
    REFUSED_ELSEWHERE,
    ROOM_TAKEN,
    TOO_LATE,
    DeadlineSet,
    EvictMembers,
    Gang,
    GangBound,
    GangEffect,
    GangInDoubt,
    GangInPart,
    GangPlanned,
    GangQuarantined,
    GangTimedOut,
    GangTurnedAway,
    OpenBarrier,
    TurnBack,
    VoidAttempts,
    WakePod,
)
from extender.core.gang_ask import GangAsk
from extender.core.gang_phases import Past, Phase, Standing, Step
from extender.core.ledger import Holder, Kind, Ledger
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.neighbours import NEAR, SPREAD
from extender.core.offers import SAMPLE_FLOOR
from extender.core.parts import Trial, gone_on_with
from extender.core.places import Places
from extender.core.planning import Shortfall
from extender.core.promises import GATHER_LIMIT, GATHER_SECONDS, Ahead, Promises
from extender.core.replans import LONGEST_PAUSE, LONGEST_UNASKED, Replans
from extender.core.savings import DEFAULT_THRIFT, Thrift
from extender.core.staying import Staying
from extender.core.turns import DEFAULT_PATIENCE, Patience
from extender.core.waiting import Waiting

UNDISTURBED_SECONDS = 1.0
"""For so long a plan gives way to nobody but who may preempt: its members are on their way. kube-scheduler lets who was
turned back at the barrier wait for one to two seconds, and its room would stand idle."""


class Gangs:
    """The gangs of the cluster, on one ledger.

    `nodes` is the keeper's table of nodes, read here for selectors and taints. `life` names this life of the service:
    no other has the same.
    """

    def __init__(
        self,
        ledger: Ledger,
        nodes: Mapping[NodeName, Node],
        patience: Patience = DEFAULT_PATIENCE,
        *,
        reserve_at_filter: bool = True,
        life: str = "0",
        staying: Staying | None = None,
        thrift: Thrift = DEFAULT_THRIFT,
        gather_limit: int = GATHER_LIMIT,
        brake: Brake | None = None,
    ) -> None:
        self.ledger = ledger
        self.brake = brake or Brake()
        self.nodes = nodes
        self.by_key: dict[GangKey, Gang] = {}
        self.effects: list[GangEffect] = []
        self.in_part: dict[GangKey, float] = {}
        """Gangs of which a part is bound, as is proven, and until when the rest may follow."""
        self.in_doubt: dict[GangKey, float] = {}
        """Gangs of which fewer than the quorum are bound, and of which nobody can know whether they ran; and when
        that is to be told."""
        self._untold: dict[GangKey, None] = {}
        """Gangs in part that nobody has been told of."""
        self._life = life
        self._trials = 0
        self._reserve_at_filter = reserve_at_filter
        self.staying = Staying({}) if staying is None else staying
        self.ended_well = EndedWell()
        self.promises = Promises(gather_limit)
        self.bystanders = Bystanders()
        self._places = Places(ledger, nodes, self.staying, self.bystanders)
        self._replans = Replans()
        self._overdue = Replans()
        """Of plans that ran out though all members existed."""
        self._drawn: dict[GangKey, None] = {}
        """Gangs that did not fit, and for whom more pods in the right place may be what they lack."""
        self.waiting = Waiting(
            ledger,
            self._places,
            patience,
            self.by_key,
            self.effects,
            self._plan,
            self._giving_way,
            self.staying,
            thrift,
            self.brake,
        )
        self._planned: dict[GangKey, float] = {}
        """Gangs that have a plan, and some that do no more; until when each is left alone to carry it out."""
        self._held_up: dict[GangKey, float] = {}
        """Gangs that need what a plan holds that is left alone, and until when at least."""
        self._of: dict[PodUid, GangKey] = {}

    def of(self, uid: PodUid) -> Gang | None:
        """The gang that the pod is a living member of."""
        key = self._of.get(uid)
        return None if key is None else self.by_key.get(key)

    # -- members come and go -------------------------------------------------------------------------------------

    def observe(self, pod: Pod, now: float) -> Gang | None:
        """The pod is known as its gang's member, as it is now. Its gang, or None if it has none (any more)."""
        with self._containing(self._key_of(pod), now):
            return self._observe(pod, now)
        return self.of(pod.uid)

    def _observe(self, pod: Pod, now: float) -> Gang | None:
        former = self.of(pod.uid)
        self.ended_well.heed(pod)
        ask = pod.gang if isinstance(pod.gang, GangAsk) else None
        if former is not None and (ask is None or ask.key != former.key):
            self._remove(pod.uid, now)
            former = None
        if ask is None:
            return None
        if pod.finished:
            return self._finish(pod, former, now)
        gang = former
        if gang is None:
            gang = self.by_key.get(ask.key)
            if gang is None:
                gang = self.by_key[ask.key] = Gang(ask.key, ask.quorum, ask.timeout, now)
            self._of[pod.uid] = gang.key
        known = gang.members.get(pod.uid)
        if known is not None and pod.at_our_gate and not known.at_our_gate:
            # A gate never comes back: this is older news.
            pod = replace(pod, at_our_gate=False)
        if known != pod:
            gang.members[pod.uid] = pod
            if pod.at_our_gate and not pod.gated and (known is None or known.gated):
                # As if filter had turned it away: it waits to be woken.
                gang.rejected.add(pod.uid)
            if known is None:
                gang.succeeded.update(self.ended_well.of_the_run(gang.key, pod))
            if known is None or known.gang != ask:
                gang.heed_members()
            self._stir(gang)
        if gang.phase is Phase.QUARANTINED:
            if pod.node is not None:
                gang.bound.add(pod.uid)
            return gang
        if pod.node is not None:
            if pod.deleting:
                gang.leaving.add(pod.uid)
            self._is_bound(gang, pod.uid, now)
        elif pod.deleting:
            self._leave(gang, pod.uid, now)
        elif gang.phase is Phase.PLANNED and not gang.missing:
            self._all_are_there(gang, now)
        self._open_if_complete(gang, now)
        self._weigh(gang, now)
        return gang

    def remove(self, uid: PodUid, now: float) -> None:
        """The pod is no member any more: it is deleted. What it held is kept for a successor while the plan lives."""
        self.ended_well.forget(uid)
        with self._containing(self._of.get(uid), now):
            self._remove(uid, now)

    def _remove(self, uid: PodUid, now: float) -> None:
        gang = self.of(uid)
        if gang is None:
            return
        self._leave(gang, uid, now)
        del self._of[uid]
        gang.members.pop(uid, None)
        gang.bound.discard(uid)
        gang.leaving.discard(uid)
        gang.writing.pop(uid, None)
        gang.displaced.pop(uid, None)
        gang.heed_members()
        self._stir(gang)
        self._shrink(gang, now)

    def _stir(self, gang: Gang) -> None:
        """Its members have changed: if it waits, it is to be settled."""
        gang.changes += 1
        if gang.phase is not Phase.QUARANTINED:
            self.waiting.changed(gang)

    def _finish(self, pod: Pod, gang: Gang | None, now: float) -> Gang | None:
        """It has ended. One that ended well, and not because somebody deleted it, counts on; any other for nothing."""
        if gang is None and isinstance(pod.gang, GangAsk):
            gang = self.by_key.get(pod.gang.key)
            # An earlier run may have left finished pods under the same name.
            if gang is not None and not any(same_run(pod, member) for member in gang.members.values()):
                gang = None
        if gang is None:
            return None
        if pod.uid in self.ended_well.known:
            gang.succeeded.add(pod.uid)
            self._stir(gang)
        if pod.uid in gang.members:
            self._remove(pod.uid, now)
        else:
            self._weigh(gang, now)
        return self.by_key.get(gang.key)

    def _leave(self, gang: Gang, uid: PodUid, now: float) -> None:
        """The pod will not be placed: it gives up its place at the barrier, and its holding becomes a slot for
        another."""
        gang.rejected.discard(uid)
        self._turn_back(gang, [uid] if uid in gang.arrived else [], "the pod has left the gang")
        holding = self.ledger.holding(uid)
        if holding is None or holding.kind is Kind.BOUND or holding.owner != gang.key:
            return
        if gang.phase is Phase.PLANNED and gang.deadline is not None:
            self._places.hand_over(gang, holding, gang.deadline)
        elif gang.phase in (Phase.BINDING, Phase.IN_PART):
            self._places.hand_over(gang, holding, now + gang.timeout)
        else:
            self.ledger.release(uid)

    def _shrink(self, gang: Gang, now: float) -> None:
        if not gang.members:
            self._places.release(gang)
            self._turn_back(gang, list(gang.arrived), "the gang has no members any more")
            self._forget(gang)
            del self.by_key[gang.key]
        else:
            self._weigh(gang, now)
            # Others may have waited for the one that has left.
            self._open_if_complete(gang, now)

    def _forget(self, gang: Gang) -> None:
        """Nothing is to be done about it any more."""
        self.waiting.ended(gang)
        self.waiting.preempting.ended(gang)
        self.waiting.stirred.pop(gang.key, None)
        for known in (self.in_part, self.in_doubt, self._untold, self._planned, self._held_up):
            known.pop(gang.key, None)
        self._replans.forget(gang)
        self._overdue.forget(gang)
        self._drawn.pop(gang.key, None)

    def _weigh(self, gang: Gang, now: float) -> None:
        """Whether the quorum is bound, or exists, after members, or what they ask for, have changed."""
        if gang.phase is Phase.QUARANTINED:
            return
        if gang.phase is Phase.BOUND and gang.needed:
            # A member of the surplus may be on its way: it is needed for the quorum now, and planned with the rest.
            gang.step(Step.QUORUM_LOST)
            self._let_go(gang, now, "the gang needs more members than before")
        if gang.placed and not gang.needed:
            # Whatever becomes of those whose Bindings are still being written.
            gang.remember(Past.QUORUM_BOUND)
        if gang.writing:
            return
        if gang.placed and not gang.needed:
            self._has_its_quorum(gang, now)
        elif gang.phase in (Phase.BINDING, Phase.IN_PART):
            if gang.placed:
                gang.step(Step.HALTED)
            else:
                self._dissolve(gang, now, "no member of the gang could be bound")
        elif gang.phase in (Phase.GATHERING, Phase.WAITING):
            self._wait(gang, now)
        if not gang.placed:
            gang.remember(Past.NOBODY_LEFT)
        if not gang.bound:
            gang.trial = None
        self._heed_part(gang, now)

    def _has_its_quorum(self, gang: Gang, now: float) -> None:
        if gang.phase is Phase.BOUND:
            return
        gang.step(Step.QUORUM_BOUND)
        gang.remember(Past.QUORUM_BOUND)
        self.promises.kept(gang)
        if misleading := gang.misleading():
            self.effects.append(VoidAttempts(gang.key, misleading))
        gang.deadline, gang.trial, gang.timed_out = None, None, 0
        self._replans.forget(gang)
        self._overdue.forget(gang)
        self._planned.pop(gang.key, None)
        self.waiting.ended(gang)
        self._places.release_vacant(gang)
        self.waiting.preempting.placed(gang)
        self.effects.append(GangBound(gang.key, now - gang.first_seen))

    def _wait(self, gang: Gang, now: float) -> None:
        gang.step(Step.LACKS_MEMBERS if gang.missing else Step.HAS_MEMBERS)
        self.waiting.has_no_plan(gang, now)

    def _heed_part(self, gang: Gang, now: float) -> None:
        """A gang that is proven to be bound in part has a time to be completed."""
        proof = gang.part()
        if proof is None:
            self.in_part.pop(gang.key, None)
        elif gang.key not in self.in_part:
            self.in_part[gang.key] = now + gang.timeout
            self._untold[gang.key] = None
        if proof is not None or not gang.unsettled or not gang.staying():
            self.in_doubt.pop(gang.key, None)
        elif gang.key not in self.in_doubt:
            self.in_doubt[gang.key] = now + gang.timeout
            self.effects.append(DeadlineSet(gang.key))

    def take_for_asleep(self, uid: PodUid) -> None:
        """The member was turned away, perhaps by an earlier life of the service, or by kube-scheduler itself."""
        gang = self.of(uid)
        if gang is None or gang.phase is Phase.QUARANTINED:
            return
        if uid not in gang.bound and not gang.members[uid].gated:
            gang.rejected.add(uid)
            self.waiting.changed(gang)

    # -- filter --------------------------------------------------------------------------------------------------

    def admit(self, pod: Pod, sent: Sequence[NodeName], now: float) -> NodeName | str:
        """The member's node, one of those sent, held for it; or the constant reason why it must wait.

        Repeating the call repeats the answer as long as the node is among those sent; otherwise the plan moves.
        """
        with self._containing(self._key_of(pod), now):
            return self._admit(pod, sent, now)
        return QUARANTINE

    def _admit(self, pod: Pod, sent: Sequence[NodeName], now: float) -> NodeName | str:
        gang = self._observe(pod, now)
        if gang is None:
            return NO_ROOM
        if gang.phase is Phase.QUARANTINED:
            return QUARANTINE
        if pod.uid not in gang.asked:
            gang.asked.add(pod.uid)
            self._overdue.end_pause(gang)
        planless = not gang.holds_a_plan or (gang.needed and not gang.writing and not self._places.unbound(gang))
        if planless and (self.waiting.postpone(gang) or not self._plan(gang, pod, sent, now)):
            return self._turn_away(gang, pod, now)
        node = self._place(gang, pod, sent, now)
        if node is None and gang.phase is Phase.PLANNED:
            node = self._places.reseat(gang, pod, sent)
        if node is None:
            return self._displaced(gang, pod, sent, now)
        if gang.arrived.get(pod.uid, node) != node:
            # Of two tries the later counts: kube-scheduler was started anew, or has given the earlier one up.
            self._turn_back(gang, [pod.uid], NOT_ITS_NODE)
        gang.rejected.discard(pod.uid)
        return node

    def _place(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], now: float) -> NodeName | None:
        """The node, one of those sent, that the pod now holds its units on; None if there is none."""
        if pod.uid in gang.writing:
            return gang.writing[pod.uid] if gang.writing[pod.uid] in sent else None
        return self._places.take(gang, pod, sent, gang.deadline if gang.phase is Phase.PLANNED else now + gang.timeout)

    def _turn_away(self, gang: Gang, pod: Pod, now: float) -> str:
        before, reason = gang.phase, INCOMPLETE if gang.missing else self.why_not(gang, now)
        gang.step(Step.LACKS_MEMBERS if gang.missing else Step.HAS_MEMBERS)
        untold = gang.phase is not before or gang.phase is not gang.turned_away_in
        if untold or all(gang.members[uid].at_our_gate for uid in gang.rejected):
            gang.turned_away_in = gang.phase
            self.effects.append(GangTurnedAway(gang.key, pod, reason, gang.shortfall))
        gang.rejected.add(pod.uid)
        if gang.phase is Phase.WAITING:
            self.waiting.enter(gang, now)
        return reason

    def heed_bystander(self, pod: Pod) -> None:
        """The pod is bound: whoever wants to be near such pods, or evenly among them, is to be tried again."""
        for key in list(self._drawn):
            gang = self.by_key.get(key)
            if gang is None or gang.holds_a_plan:
                del self._drawn[key]
            elif any(_draws(member, pod) for member in gang.members.values()):
                self.waiting.changed(gang)

    def why_not(self, gang: Gang, now: float) -> str:
        """The constant reason for which a gang without a plan, whose members exist, is turned away."""
        if self._places.hopeless(gang) is not None:
            return HOPELESS
        if self._replans.pauses(gang, len(self.nodes), now):
            return REFUSED_ELSEWHERE
        return NOT_BROUGHT if self._overdue.pauses(gang, len(self.nodes), now) else NO_ROOM

    def _displaced(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], now: float) -> str:
        """The plan stands, but the pod fits on none of the nodes sent."""
        if gang.phase is not Phase.PLANNED or self._is_surplus(gang, pod):
            gang.rejected.add(pod.uid)
            self.waiting.has_surplus(gang, pod, sent)
            return NO_ROOM_FOR_MEMBER
        if [pod.nominated] == list(sent) and len(self.nodes) > 1:
            # kube-scheduler asks about the node that it keeps for the pod first, and then about the others.
            return NO_ROOM
        times = gang.displaced[pod.uid] = gang.displaced.get(pod.uid, 0) + 1
        windows = -(-len(self.nodes) // max(1, len(sent)))
        if len(sent) >= SAMPLE_FLOOR and times <= windows:
            # Another window of the scheduler's sample may hold its node.
            self.effects.append(WakePod(pod))
            return NO_ROOM
        lacks_members = gang.missing > 0
        self._dissolve(gang, now, "a member fits on no node that kube-scheduler offers")
        if lacks_members:
            # What the plan had for this one others may have taken: the next is made when all exist, and is held.
            gang.gathered = True
            return self._turn_away(gang, pod, now)
        self.waiting.preempting.ran_out(gang, now)
        if (until := self._replans.failed(gang, len(self.nodes), now)) is not None:
            self._held_up[gang.key] = until
        # Its own release is no reason to try again.
        gang.tried_at, gang.tried_on = self._now_tried(gang), frozenset(sent)
        return self._turn_away(gang, pod, now)

    def _is_surplus(self, gang: Gang, pod: Pod) -> bool:
        """Whether the quorum is provided for without this pod."""
        return self.ledger.holding(pod.uid) is None and len(self._places.unbound(gang)) + gang.placed >= gang.quorum

    # -- plan ----------------------------------------------------------------------------------------------------

    def _now_tried(self, gang: Gang) -> tuple[int, int]:
        news = self.ledger.gain_count + (self.bystanders.version if self._places.is_constrained(gang) else 0)
        return (news, gang.changes)

    def _offers_more(self, gang: Gang, sent: Sequence[NodeName]) -> bool:
        """Whether kube-scheduler offers a node that it did not when the gang was tried last."""
        return gang.tried_on is not None and not gang.tried_on.issuperset(sent)

    def _plan(self, gang: Gang, first: Pod | None, sent: Sequence[NodeName], now: float) -> bool:
        """The rest of the quorum is reserved as one transaction, `first` on one of the nodes sent; or nothing
        changes."""
        missing, ahead = gang.missing, Ahead.HELD
        if missing:
            late = gang.gathered or now - gang.first_seen > GATHER_SECONDS
            ahead = Ahead.NOT if late else self.promises.ahead(gang, now)
        if ahead is Ahead.NOT:
            gang.step(Step.LACKS_MEMBERS)
            gang.shortfall = None
            return False
        unheld = ahead is Ahead.UNHELD
        if any(each.pauses(gang, len(self.nodes), now) for each in (self._replans, self._overdue)):
            return False
        if gang.tried_at == self._now_tried(gang) and not (first is not None and self._offers_more(gang, sent)):
            return False
        deadline = now + (min(gang.timeout, GATHER_SECONDS) if missing else gang.holds_for)
        saved = self.waiting.turns.usable_by(gang) if not unheld else ()
        waited = first is None or saved or gang.timed_out
        intends = not (self._reserve_at_filter or waited)
        found = self._places.reserve(gang, first, sent, deadline, saved, intends=intends, unheld=unheld)
        # Nobody gives way to members that may never come.
        others = self._giving_way_now(gang, now) if isinstance(found, Shortfall) and not unheld else ()
        if isinstance(found, Shortfall) and others:
            found = self._plan_instead_of(others, gang, first, sent, deadline, saved, now) or found
        if isinstance(found, Shortfall):
            gang.shortfall, gang.tried_at = found, self._now_tried(gang)
            if found.rule in (NEAR, SPREAD):
                self._drawn[gang.key] = None
            gang.tried_on = frozenset(sent) if first is not None and len(sent) < SAMPLE_FLOOR else None
            return False
        gang.step(Step.PLAN_MADE)
        gang.deadline, gang.shortfall, gang.tried_at = deadline, None, None
        gang.displaced.clear()
        gang.asked = set() if first is None else {first.uid}
        if missing:
            self.promises.begun(gang, now, held=not unheld)
        self._planned[gang.key] = now + UNDISTURBED_SECONDS
        unasked = first is None and not gang.rejected
        self.waiting.has_a_plan(gang)
        self.effects.append(GangPlanned(gang.key))
        for uid in map(PodUid, found):
            if unasked or (uid in gang.rejected and (first is None or uid != first.uid)):
                self.waiting.wake(gang, uid)
        if gang.rejected:
            self.waiting.has_surplus(gang)
        return True

    def _giving_way(self, priority: int) -> list[Gang]:
        """Gangs with a plan and no member placed, all of whose members are of a lower priority: first those of which
        none has come to be bound, of these the last in turn."""
        planned = [gang for key in self._planned if (gang := self.by_key[key]).phase is Phase.PLANNED]
        lower = [gang for gang in planned if gang.worth < priority and not gang.placed]
        return sorted(lower, key=lambda gang: (not gang.arrived, gang.turn), reverse=True)

    def _giving_way_now(self, gang: Gang, now: float) -> list[Gang]:
        lower = self._giving_way(gang.claims)
        if not lower or gang.preempts:
            return lower
        left_alone = [until for other in lower if (until := self._planned[other.key]) > now]
        if left_alone:
            self._held_up[gang.key] = min(left_alone)
        return [other for other in lower if self._planned[other.key] <= now]

    def _plan_instead_of(
        self,
        others: Sequence[Gang],
        gang: Gang,
        first: Pod | None,
        sent: Sequence[NodeName],
        deadline: float,
        saved: Sequence[Holder],
        now: float,
    ) -> Sequence[Holder] | None:
        """As `Places.reserve`, with the room of as many of the others as it takes, in their order: these wait again."""
        releasing = list(saved)
        held = [[each.holder for each in self._places.unbound(other)] for other in others]
        if not self._places.has_room(gang, first, sent, [*saved, *chain.from_iterable(held)]):
            return None
        for number, holders in enumerate(held, 1):
            releasing += holders
            found = self._places.reserve(gang, first, sent, deadline, releasing)
            if not isinstance(found, Shortfall):
                for other in others[:number]:
                    self._dissolve(other, now, OUTRANKED)
                return found
        return None

    def _all_are_there(self, gang: Gang, now: float) -> None:
        """From now on they have their whole time, if the plan, which was made for fewer, is one for all of them."""
        self.promises.kept(gang)
        if gang.covered_at != gang.changes and not self._places.cover(gang):
            self._dissolve(gang, now, "the members that came do not fit into the gang's plan")
            return
        gang.covered_at, gang.unheld = gang.changes, False
        self._extend(gang, gang.first_seen + GATHER_SECONDS + gang.holds_for)

    def _extend(self, gang: Gang, deadline: float) -> None:
        if gang.deadline is not None and deadline > gang.deadline:
            gang.deadline = deadline
            self._places.keep(gang, deadline)

    # -- the brake -----------------------------------------------------------------------------------------------

    def heed_brake(self, now: float) -> None:
        """The switches have changed: what they do not allow any more has ended. `Waiting` looks at every gang again."""
        for gang in list(self.by_key.values()):
            with self._containing(gang.key, now):
                if self.brake.observes(gang.key.namespace):
                    if gang.phase is Phase.PLANNED:
                        self._let_through(gang, now)
                elif gang.phase in (Phase.GATHERING, Phase.WAITING):
                    # While nobody was kept waiting there, nobody counted for how long it has not been asked about.
                    self.waiting.has_no_plan(gang, now)
            if gang.phase is not Phase.QUARANTINED:
                self.waiting.stirred[gang.key] = None

    def _let_through(self, gang: Gang, now: float) -> None:
        """Whoever stands at the barrier is bound, though not all are there: kube-scheduler has counted them on their
        nodes, and an error would only keep them from there. The plan is given up, and this is no attempt at a quorum.
        """
        members = tuple(gang.arrived)
        if not members:
            self._dissolve(gang, now)
            return
        gang.writing.update(gang.arrived)
        gang.arrived.clear()
        for uid in members:
            self.ledger.keep(uid, None)
        self._places.release(gang)
        gang.deadline, gang.intends = None, False
        gang.displaced.clear()
        self._planned.pop(gang.key, None)
        gang.step(Step.BARRIER_OPENED)
        self.effects.append(OpenBarrier(gang.key, members))

    def would_refuse(self, pod: Pod, sent: Sequence[NodeName]) -> str:
        """Why `admit` would turn the member away now, empty if it would not. Nothing is held, and nothing changes."""
        gang = self.of(pod.uid)
        if gang is None or pod.uid in gang.bound or not gang.needed:
            return ""
        if gang.missing:
            return INCOMPLETE
        return "" if self._places.has_room(gang, pod, sent, ()) else NO_ROOM

    # -- bind ----------------------------------------------------------------------------------------------------

    def arrive(self, uid: PodUid, node: NodeName, now: float) -> str:
        """The member stands at the barrier for that node; an OpenBarrier effect lets it through.

        Or the reason it may not.
        """
        with self._containing(self._of.get(uid), now):
            return self._arrive(uid, node, now)
        return QUARANTINE

    def _arrive(self, uid: PodUid, node: NodeName, now: float) -> str:
        gang = self.of(uid)
        if gang is None:
            return "the pod is no member of a gang that is known"
        if gang.phase is Phase.QUARANTINED:
            return QUARANTINE
        under_way = gang.writing.get(uid) or (gang.members[uid].node if uid in gang.bound else None)
        if under_way is not None or uid in gang.bound:
            if under_way not in (None, node):
                return f"the pod goes to {under_way} already"
            self.effects.append(OpenBarrier(gang.key, (uid,)))
            return ""
        held = self.ledger.holding(uid)
        if held is None or held.owner != gang.key:
            return "the gang's reservation has ended: the pod is tried again"
        units = gang.members[uid].requests
        if self.ledger.short(node, units, (uid,)) is not None:
            refusal = NOT_ITS_NODE if held.node != node else ROOM_TAKEN
            self._turn_back(gang, [uid] if uid in gang.arrived else [], refusal)
            return refusal
        # An earlier filter call of the pod may have led here, and a later plan have a slot for it: it takes that now.
        self._places.settle_on(held, node, units)
        gang.arrived[uid] = node
        self._open_if_complete(gang, now)
        return ""

    def _open_if_complete(self, gang: Gang, now: float) -> None:
        if not gang.arrived:
            return
        joins = gang.standing is Standing.RAN
        trial = None if joins else self._gone_on_with(gang)
        # Others may have overtaken the plan while members waited: a foreign pod, a node that is gone.
        while (opening := self._let(gang, trial)) and (overtaken := self._places.make_good(gang, opening)):
            self._turn_back(gang, overtaken, ROOM_TAKEN)
        if not opening:
            return
        members = tuple(opening)
        trial = self._try(gang, members, trial, joins=joins)
        for uid in members:
            gang.writing[uid] = gang.arrived.pop(uid)
        gang.step(Step.BARRIER_OPENED)
        gang.remember(Past.TRIED)
        gang.intends = False
        self._planned.pop(gang.key, None)
        marks = trial.marks(joins)
        self.effects.append(OpenBarrier(gang.key, members, {uid: marks[uid] for uid in members}))

    def _gone_on_with(self, gang: Gang) -> Trial | None:
        """The attempt that is not whole yet, also of an earlier life."""
        # Those that are on their way out belong to an attempt that has failed.
        if not (gang.writing or len(gang.bound) > len(gang.leaving)):
            return None
        return gang.trial or gone_on_with(gang.staying())

    def _let(self, gang: Gang, trial: Trial | None) -> Mapping[PodUid, NodeName]:
        """Those at the barrier that may be bound now, and where: none of them, unless the quorum is there."""
        lacking = gang.quorum - gang.placed - len(gang.writing)
        opening = gang.arrived
        if trial is not None:
            unbound = gang.members.keys() - gang.bound
            opening = {uid: gang.arrived[uid] for uid in trial.let(gang.arrived, unbound, lacking)}
        return opening if len(opening) >= lacking else {}

    def _try(self, gang: Gang, members: Collection[PodUid], trial: Trial | None, *, joins: bool) -> Trial:
        """The attempt that these are bound in: the one that is gone on with, or a new one. It speaks of all that may
        be bound in it."""
        if trial is None:
            self._trials += 1
            lacking = gang.quorum - gang.placed - len(gang.writing)
            trial = Trial(f"{self._life}.{self._trials}", max(1, lacking))
        trial.include(members)
        if not joins:
            trial.include(uid for uid, pod in gang.members.items() if uid not in gang.bound and not pod.deleting)
            gang.trial = trial
        return trial

    def written(self, uid: PodUid, node: NodeName, now: float) -> None:
        """The member's Binding is written."""
        with self._containing(self._of.get(uid), now):
            if (gang := self.of(uid)) is not None:
                self._is_bound(gang, uid, now)
                self._open_if_complete(gang, now)

    def failed(self, uid: PodUid, now: float, *, for_good: bool, surely: bool = False) -> None:
        """The member's Binding could not be written. `surely`: nor was it, by an earlier try whose answer is lost.

        Its units stay held, for its next try or, `for_good`, a successor's.
        """
        with self._containing(self._of.get(uid), now):
            self._failed(uid, now, for_good=for_good, surely=surely)

    def _failed(self, uid: PodUid, now: float, *, for_good: bool, surely: bool) -> None:
        # Its deletion may have been heard of before.
        for tried in [each for each in self.by_key.values() if each.trial is not None and uid in each.trial.members]:
            with self._containing(tried.key, now):
                assert tried.trial is not None
                tried.trial.failed(uid, for_good=for_good, surely=surely)
                self._weigh(tried, now)
        gang = self.of(uid)
        if gang is None or gang.writing.pop(uid, None) is None:
            return
        held = self.ledger.holding(uid)
        if held is not None and held.kind is not Kind.BOUND:
            until = now + gang.timeout
            if for_good:
                self._places.hand_over(gang, held, until)
            else:
                self.ledger.keep(uid, until)
        if uid in gang.rejected:
            # kube-scheduler took the Binding for failed before we did, and was turned away meanwhile.
            self.waiting.wake(gang, uid)
        self._weigh(gang, now)
        self._open_if_complete(gang, now)

    def _is_bound(self, gang: Gang, uid: PodUid, now: float) -> None:
        gang.writing.pop(uid, None)
        gang.rejected.discard(uid)
        if gang.arrived.pop(uid, None) is not None:
            self.effects.append(OpenBarrier(gang.key, (uid,)))
        if uid in gang.bound:
            return
        gang.bound.add(uid)
        self._weigh(gang, now)

    # -- time and change -----------------------------------------------------------------------------------------

    def expire(self, key: GangKey, now: float) -> None:
        """Something held for the gang has passed its deadline. A plan that is not yet binding ends as a whole."""
        with self._containing(key, now):
            self._expire(key, now)

    def _expire(self, key: GangKey, now: float) -> None:
        gang = self.by_key.get(key)
        if gang is None or gang.phase is Phase.QUARANTINED:
            return
        if gang.phase is not Phase.PLANNED:
            self.waiting.changed(gang)
            self._turn_back(gang, [uid for uid in gang.arrived if self.ledger.holding(uid) is None], TOO_LATE)
            if gang.phase is Phase.IN_PART and not self._places.unbound(gang):
                # Nothing is held for those that lack any more: they wait for room as others do.
                self._dissolve(gang, now, TOO_LATE)
            return
        gang.gathered = True
        gang.timed_out += 1
        waiting = tuple(gang.members[uid] for uid in gang.arrived)
        if not (gang.unheld and gang.missing):
            self.effects.append(GangTimedOut(key, len(waiting) + gang.placed, gang.quorum, waiting))
        self.waiting.preempting.ran_out(gang, now)
        if not gang.missing:
            self._leave_alone(gang, now)
        self._dissolve(gang, now, TOO_LATE)

    def _leave_alone(self, gang: Gang, now: float) -> None:
        """Nothing is planned, and no room saved, for a while after plans that kube-scheduler did not carry out: else
        their room would be idle for ever."""
        longest = LONGEST_PAUSE if all(pod.uid in gang.asked for pod in gang.unplaced()) else LONGEST_UNASKED
        until = self._overdue.failed(gang, len(self.nodes), now, longest)
        if until is not None:
            self._held_up[gang.key] = gang.saves_after = until

    def next_deadline(self) -> float | None:
        """The next moment at which `heed_time`, or `waiting`, has something to do, in seconds that only pass."""
        known = (
            min(self.in_part.values(), default=None),
            min(self.in_doubt.values(), default=None),
            min(self._held_up.values(), default=None),
            self.waiting.next_deadline(),
        )
        return min((when for when in known if when is not None), default=None)

    def heed_time(self, now: float) -> None:
        self._give_up(now)
        self._tell_of_doubts(now)
        self._try_again(now)

    def _give_up(self, now: float) -> None:
        for key in [key for key, until in self.in_part.items() if until <= now]:
            with self._containing(key, now):
                self._give_up_part(self.by_key[key], now)

    def _give_up_part(self, gang: Gang, now: float) -> None:
        """It was not completed in time: its part is to be evicted, so that none of it is bound instead of a part.

        Who is evicted counts for nothing from this moment. What is not gone is to be evicted again after as long.
        """
        self.in_part[gang.key] = now + gang.timeout
        proof = gang.part()
        if proof is None:
            return
        if self.brake.allows(Act.EVICT_PART, gang.key.namespace):
            self.effects.append(EvictMembers(gang.key, gang.quorum, proof.bound, proof))
            gang.leaving.update(pod.uid for pod in proof.bound)
        else:
            about = (*map(str, proof.bound), str(proof))
            self.effects.append(Withheld(Act.EVICT_PART, gang.key.namespace, gang.key, about))
        self._stir(gang)
        if gang.phase not in (Phase.GATHERING, Phase.WAITING):
            gang.timed_out += gang.phase is Phase.PLANNED
            self._dissolve(gang, now, TOO_LATE)
        self._weigh(gang, now)

    def _tell_of_doubts(self, now: float) -> None:
        for key in [key for key, until in self.in_doubt.items() if until <= now]:
            self.in_doubt[key] = float("inf")
            gang = self.by_key[key]
            if not self.brake.observes(key.namespace):
                self.effects.append(GangInDoubt(key, gang.quorum, tuple(gang.staying())))

    def not_evicted(self, uid: PodUid, now: float) -> None:
        """An eviction of the member that was to be is not: it counts again, unless it is about to go anyway."""
        with self._containing(self._of.get(uid), now):
            gang = self.of(uid)
            if gang is not None and uid in gang.leaving and not gang.members[uid].deleting:
                gang.leaving.discard(uid)
                self._stir(gang)
                self._weigh(gang, now)

    def _try_again(self, now: float) -> None:
        for key in [key for key, until in self._held_up.items() if until <= now]:
            del self._held_up[key]
            if (gang := self.by_key.get(key)) is not None:
                gang.tried_at = None
                self.waiting.changed(gang)

    def announce(self) -> None:
        """Gangs that are bound in part are told of; not earlier, for a list tells of its pods one by one."""
        for key in self._untold:
            gang = self.by_key.get(key)
            if gang is not None and key in self.in_part and not self.brake.observes(key.namespace):
                self.effects.append(GangInPart(key, gang.quorum, tuple(gang.staying()), gang.timeout))
        self._untold.clear()

    def _turn_back(self, gang: Gang, members: Collection[PodUid], reason: str) -> None:
        """They stand at the barrier no more."""
        for uid in members:
            del gang.arrived[uid]
        if members:
            self.effects.append(TurnBack(gang.key, tuple(members), reason))

    def _dissolve(self, gang: Gang, now: float, reason: str = "") -> None:
        """The gang holds nothing but what is bound or being written; whoever stands at its barrier is turned back."""
        gang.step(Step.GIVEN_UP)
        self._let_go(gang, now, reason)

    def _let_go(self, gang: Gang, now: float, reason: str) -> None:
        self._places.release(gang)
        self._turn_back(gang, list(gang.arrived), reason)
        gang.deadline = None
        gang.displaced.clear()
        self._planned.pop(gang.key, None)
        self._wait(gang, now)
        self.waiting.changed(gang)

    def could_ever_fit(self, gang: Gang) -> bool:
        """Whether the quorum would have room beside what stays."""
        return bool(gang.needed) and self._places.could_ever_fit(gang)

    # -- those that wait -----------------------------------------------------------------------------------------

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """As `Waiting.settle`."""
        try:
            self.waiting.settle(gains, now)
        except Exception as defect:
            self.contain(self.waiting.handled, defect)
            # Whoever was to be looked at after it has not been.
            self.waiting.look_again()

    def heed_turn(self, now: float) -> bool:
        """As `Waiting.heed_turn`."""
        with self._containing_handled():
            return self.waiting.heed_turn(now)
        return True

    def preempt(self, now: float) -> bool:
        """As `Waiting.preempt`."""
        with self._containing_handled():
            return self.waiting.preempt(now)
        return True

    @contextmanager
    def _containing_handled(self) -> Iterator[None]:
        try:
            yield
        except Exception as defect:
            self.contain(self.waiting.handled, defect)

    # -- one gang's trouble stays its own ------------------------------------------------------------------------

    def _key_of(self, pod: Pod) -> GangKey | None:
        return pod.gang.key if isinstance(pod.gang, GangAsk) else self._of.get(pod.uid)

    @contextmanager
    def _containing(self, key: GangKey | None, now: float) -> Iterator[None]:
        """A defect in what is done about this gang ends there: the gang is set aside, and everything else goes on."""
        try:
            yield
        except Exception as defect:
            self.contain(key, defect)

    def contain(self, key: GangKey | None, defect: Exception) -> None:
        """The gang could not be handled: it is set aside. Raises the defect where it is nobody's, or met there too."""
        gang = None if key is None else self.by_key.get(key)
        if gang is None or gang.phase is Phase.QUARANTINED:
            raise defect
        gang.step(Step.DEFECT)
        for held in self.ledger.held_for(gang.key):
            if held.kind is not Kind.BOUND and PodUid(held.holder) not in gang.writing:
                self.ledger.release(held.holder)
        self._turn_back(gang, list(gang.arrived), QUARANTINE)
        gang.rejected.clear()
        gang.deadline = None
        self._forget(gang)
        self.effects.append(GangQuarantined(gang.key, tuple(gang.members.values()), defect))


def _draws(member: Pod, pod: Pod) -> bool:
    """Whether the member wants to be near such pods, or evenly among them."""
    own = member.constraints
    if own is None:
        return False
    peers = [term.peers for term in own.affinity] + [spread.peers for spread in own.spread]
    return any(each.include(pod.namespace, pod.labels) for each in peers)
