"""Planner: when a gang's quorum is planned, which plans yield to it, and when its own plan ends.

It decides whether a plan is tried, and for how long it holds. `placement` finds the places. Room of a plan that is
given up is free for all; the gang then waits as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from extender.core.affinity.affinity_rules import NEAR, SPREAD
from extender.core.affinity.constraints import NO_CONSTRAINTS
from extender.core.affinity.pod_affinity_index import PodAffinityIndex
from extender.core.cluster import Pod
from extender.core.gang_ask import DEFAULT_TIMEOUT
from extender.core.gangs.cycle.expected_members import GATHER_SECONDS, Ahead, ExpectedMembers
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.placement.slots import SAMPLE_FLOOR
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.queue.plan_store import Plans
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import HOPELESS, NO_ROOM, OUTRANKED, OVER_QUOTA, UNPLANNED, Gang, GangPlanned
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Step
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.names import GangKey
from extender.core.policies.policy_types import HOSTNAME
from extender.kube.names import NodeName, PodUid


@dataclass(eq=False)
class Planning:
    """`reserve_at_filter`: see `gangs`."""

    _ledger: Ledger
    _table: GangStore
    _places: Places
    _feasibility: Feasibility
    plans: Plans
    promises: ExpectedMembers
    _waiting: Waiting
    _pod_affinity: PodAffinityIndex
    _reserve_at_filter: bool
    _drawn: dict[GangKey, None] = field(default_factory=dict, init=False)
    """Gangs that did not fit, and that more pods in the right topology domain may help."""
    on_given_up: Callable[[GangKey, str], None] | None = field(default=None, init=False)
    """Called with each plan that is given up, and the reason."""
    given_up: set[str] = field(default_factory=set, init=False)
    """Namespaces of gangs that lost their places, and that have not been reported yet."""

    # -- a plan is made ------------------------------------------------------------------------------------------

    def plan(self, gang: Gang, first: Pod | None, sent: Sequence[NodeName], now: float) -> bool:
        """Reserves the rest of the quorum in one transaction, `first` on a node sent; or nothing."""
        missing, ahead = gang.missing, self._ahead(gang, now)
        if ahead is Ahead.NOT:
            return self._waits_for_members(gang)
        unheld = ahead is Ahead.UNHELD
        if self.plans.gives_way(gang) or self.plans.why_none(gang, now) or self._waiting.quota.over(gang) is not None:
            return False
        if gang.wait.tried_at == self.state_of(gang) and not (first is not None and _offers_more(gang, sent)):
            return False
        beside = self.promises.unheld(gang) if unheld else ()
        if beside is None:
            return self._waits_for_members(gang)
        deadline = now + (min(gang.terms.timeout, GATHER_SECONDS) if missing else _holds_for(gang))
        found = self._reserve(gang, first, sent, deadline, now, unheld=unheld, beside=beside)
        if isinstance(found, Shortfall) and beside:
            # The gang may have room without the other unheld gangs. That is decided once all its members exist.
            return self._waits_for_members(gang)
        if isinstance(found, Shortfall):
            gang.wait.shortfall = found
            if found.rule in (NEAR, SPREAD):
                self._drawn[gang.key] = None
            self._tried(gang, sent if first is not None and len(sent) < SAMPLE_FLOOR else None)
            return False
        gang.step(Step.PLAN_MADE)
        gang.plan.deadline, gang.wait.shortfall, gang.wait.tried_at = deadline, None, None
        gang.plan.displaced.clear()
        gang.plan.asked = set() if first is None else {first.uid}
        if missing:
            self.promises.begun(gang, now, held=not unheld)
        self.plans.made(gang, now)
        self._waiting.preempting.has_room(gang)
        self._tell(gang, first, found)
        return True

    def _ahead(self, gang: Gang, now: float) -> Ahead:
        if not gang.missing:
            return Ahead.HELD
        late = gang.plan.gathered or now - gang.roster.first_seen > GATHER_SECONDS
        return Ahead.NOT if late else self.promises.ahead(gang, now)

    def _waits_for_members(self, gang: Gang) -> bool:
        """There is no plan before all members exist."""
        gang.step(Step.LACKS_MEMBERS)
        gang.wait.shortfall = None
        return False

    def _reserve(
        self,
        gang: Gang,
        first: Pod | None,
        sent: Sequence[NodeName],
        deadline: float,
        now: float,
        *,
        unheld: bool,
        beside: Sequence[Gang],
    ) -> Sequence[Holder] | Shortfall:
        saved = self._waiting.queue.saved.usable_by(gang) if not unheld else ()
        waited = first is None or saved or gang.plan.timed_out
        intends = not (self._reserve_at_filter or waited)
        found = self._places.reserve(gang, first, sent, deadline, saved, intends=intends, unheld=unheld, beside=beside)
        # No plan yields to members that may never come.
        others = self._giving_way_now(gang, now) if isinstance(found, Shortfall) and not unheld else ()
        if isinstance(found, Shortfall) and others:
            return self._instead_of(others, gang, first, sent, deadline, saved, now) or found
        return found

    def _tell(self, gang: Gang, first: Pod | None, found: Sequence[Holder]) -> None:
        unasked = first is None and not gang.wait.rejected
        self._waiting.has_a_plan(gang)
        self._table.effects.append(GangPlanned(gang.key))
        for uid in map(PodUid, found):
            if unasked or (uid in gang.wait.rejected and (first is None or uid != first.uid)):
                self._table.wake(gang, uid)
        if gang.wait.rejected:
            self._waiting.surplus.has(gang)

    def state_of(self, gang: Gang) -> tuple[int, int]:
        """A value that changes whenever a plan that was not possible may be possible."""
        news = self._ledger.changes.gain_count + (
            self._pod_affinity.version if self._places.is_constrained(gang) else 0
        )
        return (news, gang.roster.changes)

    def _tried(self, gang: Gang, sent: Sequence[NodeName] | None) -> None:
        gang.wait.tried_at, gang.wait.tried_on = self.state_of(gang), None if sent is None else frozenset(sent)

    # -- plans that yield to it ----------------------------------------------------------------------------------

    def _giving_way_now(self, gang: Gang, now: float) -> list[Gang]:
        lower = self.plans.outranked_by(gang.terms.claims)
        if not lower or gang.roster.preempts:
            return lower
        left_alone = [until for other in lower if (until := self.plans.left_alone_until(other)) > now]
        if left_alone:
            self.plans.hold_up(gang, min(left_alone))
        return [other for other in lower if self.plans.left_alone_until(other) <= now]

    def _instead_of(
        self,
        others: Sequence[Gang],
        gang: Gang,
        first: Pod | None,
        sent: Sequence[NodeName],
        deadline: float,
        saved: Sequence[Holder],
        now: float,
    ) -> Sequence[Holder] | None:
        """As `Places.reserve`, with room of the fewest others needed, in order; these wait again."""
        held = [[each.holder for each in self._places.unbound(other)] for other in others]

        def given_up(number: int) -> list[Holder]:
            return [*saved, *chain.from_iterable(held[:number])]

        if not self._places.has_room(gang, first, sent, given_up(len(held))):
            return None
        fewest, enough = 1, len(held)
        while fewest < enough:
            middle = (fewest + enough) // 2
            if self._places.has_room(gang, first, sent, given_up(middle)):
                enough = middle
            else:
                fewest = middle + 1
        # There may be hundreds of plans. With affinity more room is not always better, so the whole room is tried too.
        for number in dict.fromkeys((fewest, len(held))):
            found = self._places.reserve(gang, first, sent, deadline, given_up(number))
            if not isinstance(found, Shortfall):
                for other in others[:number]:
                    self.give_up(other, now, OUTRANKED)
                return found
        return None

    # -- a plan is held ------------------------------------------------------------------------------------------

    def all_are_there(self, gang: Gang, now: float) -> None:
        """All members exist: extends the deadline if the plan, made for fewer, covers all of them."""
        were_to_come = self.promises.kept(gang)
        if gang.plan.covered_at != gang.roster.changes and not self._places.cover(gang):
            if not were_to_come:
                # Members were exchanged for others, so the next plan would have its whole time again.
                self.plans.in_vain(gang, now)
            self.give_up(gang, now, "the new members do not fit into the gang's plan")
            return
        gang.plan.covered_at, gang.plan.unheld = gang.roster.changes, False
        deadline = gang.roster.first_seen + GATHER_SECONDS + _holds_for(gang)
        if gang.plan.deadline is not None and deadline > gang.plan.deadline:
            gang.plan.deadline = deadline
            self._places.keep(gang, deadline)

    def carried_out(self, gang: Gang) -> None:
        """Its Bindings are being written: no other plan takes its room any more."""
        self.plans.ended(gang)

    def placed(self, gang: Gang) -> None:
        """Its quorum is bound: earlier failures no longer count."""
        self.promises.kept(gang)
        self.plans.placed(gang)

    # -- a plan ends ---------------------------------------------------------------------------------------------

    def refused(self, gang: Gang, sent: Sequence[NodeName], now: float) -> None:
        """The plan was given up, because kube-scheduler offered none of its nodes for a member."""
        self._waiting.preempting.ran_out(gang, now)
        self.plans.refused(gang, now)
        # The room that the gang itself released is no reason to try again.
        self._tried(gang, sent)

    def give_up(self, gang: Gang, now: float, reason: str = "") -> None:
        """Releases all that is not bound or being written; members at the barrier are turned back."""
        gang.step(Step.GIVEN_UP)
        self.let_go(gang, now, reason)

    def let_go(self, gang: Gang, now: float, reason: str) -> None:
        """As `give_up`, but the caller sets the phase."""
        self._places.release(gang)
        self.given_up.add(gang.key.namespace)
        if self.on_given_up is not None:
            self.on_given_up(gang.key, reason)
        self._table.turn_back(gang, list(gang.barrier.arrived), reason)
        gang.plan.deadline = None
        gang.plan.displaced.clear()
        self.plans.ended(gang)
        self._waiting.waits(gang, now)
        self._waiting.changed(gang)

    def forget(self, gang: Gang) -> None:
        self.plans.forget(gang)
        self.promises.forget(gang)
        self._drawn.pop(gang.key, None)

    # -- reasons for no plan, and retries ------------------------------------------------------------------------

    def why_not(self, gang: Gang, now: float) -> str:
        """The constant reason for rejecting a gang without a plan whose members exist."""
        if self._waiting.quota.over(gang) is not None:
            return OVER_QUOTA
        hopeless = self._feasibility.hopeless(gang)
        if hopeless is not None and not hopeless.unsure:
            return HOPELESS
        ended_early = gang.wait.shortfall is not None and gang.wait.shortfall.unsure
        return self.plans.why_none(gang, now) or (UNPLANNED if ended_early else NO_ROOM)

    def could_ever_fit(self, gang: Gang) -> bool:
        """Whether the quorum would have room beside the resident pods."""
        return bool(gang.needed) and self._feasibility.could_ever_fit(gang)

    def on_bystander(self, pod: Pod) -> None:
        """The pod is bound: tries gangs again that want to be near such pods, or spread among them."""
        for key in list(self._drawn):
            gang = self._table.by_key.get(key)
            if gang is None or gang.holds_a_plan:
                del self._drawn[key]
            elif any(_draws(member, pod) for member in gang.roster.members.values()):
                self._waiting.changed(gang)

    def on_departure(self, pod: Pod) -> None:
        """A pod that policies matched is gone: gangs with rules about it may fit on more nodes."""
        for key in self._waiting.queue:
            if key.namespace == pod.namespace and _is_concerned(self._table.by_key[key], pod):
                self._waiting.changed(self._table.by_key[key])

    def try_again(self, now: float) -> None:
        """Tries gangs whose pause has ended, as if something had changed."""
        gave_way = dict.fromkeys(self.plans.giving_way)
        ended = self.plans.end_pauses(now)
        if over := gave_way.keys() - self.plans.giving_way.keys():
            # Most of these gangs were not looked at meanwhile.
            ended = [*ended, *(key for key in self._waiting.queue if key.namespace in over)]
        for key in ended:
            if (gang := self._table.by_key.get(key)) is not None:
                gang.wait.tried_at = None
                self._waiting.changed(gang)


def _holds_for(gang: Gang) -> float:
    """Seconds for which a plan is held.

    Longer after a time-out, because back-off may take 10 seconds."""
    timeout = gang.terms.timeout
    return min(timeout * float(2 ** min(gang.plan.timed_out, 8)), max(timeout, DEFAULT_TIMEOUT))


def _offers_more(gang: Gang, sent: Sequence[NodeName]) -> bool:
    """Whether kube-scheduler offers a node that it did not offer at the last try."""
    return gang.wait.tried_on is not None and not gang.wait.tried_on.issuperset(sent)


def _draws(member: Pod, pod: Pod) -> bool:
    """Whether the member wants to be near such pods, or spread among them."""
    own = member.constraints
    if own is None:
        return False
    peers = [term.peers for term in (*own.affinity, *own.beside)] + [spread.peers for spread in own.spread]
    return any(each.include(pod.namespace, pod.labels) for each in peers)


def _is_concerned(gang: Gang, pod: Pod) -> bool:
    """Whether the allowed nodes of its members depend on the pod, beyond the pod's own node."""
    repelled = [term for term in (pod.constraints or NO_CONSTRAINTS).anti_affinity if term.topology_key != HOSTNAME]
    looked_at: set[int] = set()
    for member in gang.roster.unplaced():
        if any(term.peers.include(member.namespace, member.labels) for term in repelled) or _draws(member, pod):
            return True
        # Policies share one object for equal requirements.
        own = member.constraints
        if own is not None and id(own) not in looked_at:
            looked_at.add(id(own))
            apart = (term.peers for term in own.anti_affinity if term.topology_key != HOSTNAME)
            if any(each.include(pod.namespace, pod.labels) for each in apart):
                return True
    return False
