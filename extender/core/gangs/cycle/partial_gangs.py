"""Parts: whether a gang is known to have been bound in part by us, and by what.

Only what is known counts. *We* wrote these Bindings together (each pod says so itself, see `attempt`), and so many of
those who were to be bound with them are not bound, that the quorum cannot have been whole: they still exist unbound, or
the API server refused them for good before our eyes. Who is not there any more may have been bound, and have ended.
Times prove nothing, nor does a gang without such marks. Must not know what is done about it: see `gangs`.

What a pod says was true when it was bound, and says the same for ever. So it must never become false that so many had
to be bound of those it speaks of. An attempt speaks of all members that exist, not only of those at the barrier; and
who is made later is not bound in the stead of one that it speaks of and that is there still (`Trial.let`). Otherwise
the gang could be whole, the late one go, and those that are left bear witness, after a restart, that it never was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from extender.core.attempt import Attempt, attempts_for
from extender.core.cluster import Pod
from extender.kube.names import PodUid


@dataclass(slots=True)
class Trial:
    """Bindings that we write for one quorum, until it is whole. `needed` of the `members` had to be bound for it.

    `size`: how many may be bound in it; more than the members, where an earlier life of ours knew of others. `least`:
    how many there were when the first of those that are bound were told; they say so for ever. 0: nobody was yet.
    """

    id: str
    needed: int
    members: set[PodUid] = field(default_factory=set)
    size: int = 0
    least: int = 0
    refused: set[PodUid] = field(default_factory=set)
    """Those whose Binding the API server refused for good, and that cannot have been bound before."""

    unsure: set[PodUid] = field(default_factory=set)
    """Those of which a Binding may have been written, for the answer is lost."""

    def failed(self, uid: PodUid, *, for_good: bool, surely: bool) -> None:
        """A Binding of that member could not be written, as far as we know; `surely`: the API server said so itself."""
        if not surely:
            self.unsure.add(uid)
        elif for_good and uid not in self.unsure:
            self.refused.add(uid)

    def include(self, members: Iterable[PodUid]) -> None:
        """These may be bound in it too."""
        new = set(members) - self.members
        self.members |= new
        self.size += len(new)

    def let(self, arrived: Iterable[PodUid], unbound: Collection[PodUid], lacking: int) -> list[PodUid]:
        """Those of the arrived whose Bindings may be written now. Who was made since it began only if the quorum, of
        which so many lack, cannot be whole then without each of those that it speaks of; or if so few of these wait
        that it may have been whole anyway. `unbound`: members of the gang that exist and are not bound."""
        known: list[PodUid] = []
        new: list[PodUid] = []
        for uid in arrived:
            (known if uid in self.members else new).append(uid)
        if not new:
            return known
        waited_for = self.members & set(unbound)
        if not waited_for:
            return new
        if self.least - len(waited_for) >= self.needed:
            # Elastic: whoever leaves, those that are left name enough others that may have been bound.
            return [*known, *new]
        return [*known, *new[: max(0, lacking - len(known))]] if waited_for <= set(known) else known

    def marks(self, joins: bool) -> dict[PodUid, Attempt]:
        """What each member is to say. `joins`: the gang runs already."""
        self.least = self.least or max(self.size, len(self.members))
        needed = min(self.needed, len(self.members))
        return attempts_for(self.id, sorted(self.members), needed=needed, joins=joins, size=self.size)


@dataclass(frozen=True, slots=True)
class Proof:
    """`bound` were bound together, and `needed` of `size` had to be.

    `unbound` exist and are not bound; of `refused` more the Bindings were refused for good.
    """

    attempt: str
    needed: int
    size: int
    bound: tuple[Pod, ...]
    unbound: tuple[Pod, ...]
    refused: int

    def __str__(self) -> str:
        waiting = ", ".join(str(pod) for pod in self.unbound[:3])
        more = f" and {len(self.unbound) - 3} more" if len(self.unbound) > 3 else ""
        why = [f"not bound: {waiting}{more}"] if self.unbound else []
        why += [f"refused for good: {self.refused}"] if self.refused else []
        return f"attempt {self.attempt}: {self.needed} of {self.size} were needed; {'; '.join(why)}"


def proven_part(
    placed: Iterable[Pod], unplaced: Mapping[PodUid, Pod], trial: Trial | None, quorum: int
) -> Proof | None:
    """What proves that some of `placed` are a part of a quorum that was never whole; None where nothing does.

    `placed`: members that are bound, live and stay. `unplaced`: members that exist, and of which no Binding is written
    or being written. `trial`: what this life of ours knows of its latest attempt. `quorum`: as it is asked for now; if
    that is fewer than were needed, it may have been whole since. O(placed x 16).
    """
    of: dict[str, list[tuple[Pod, Attempt]]] = {}
    for pod, attempt in _testimony(placed):
        of.setdefault(attempt.id, []).append((pod, attempt))
    for id, bearers in of.items():
        named = {uid for _, attempt in bearers for uid in attempt.others}
        refused: set[PodUid] = set()
        # Who was bound says what was true then: a later one may have been written with more members than the first.
        needed = min(quorum, *(attempt.needed for _, attempt in bearers))
        size = max(attempt.size for _, attempt in bearers)
        if trial is not None and trial.id == id:
            named |= trial.members
            refused = trial.refused
            size = max(size, trial.size)
        unbound = [unplaced[uid] for uid in sorted(named & unplaced.keys())]
        lost = refused - {pod.uid for pod in unbound} - {pod.uid for pod, _ in bearers}
        if size - len(unbound) - len(lost) < needed:
            return Proof(id, needed, size, tuple(pod for pod, _ in bearers), tuple(unbound), len(lost))
    return None


def misleading(placed: Iterable[Pod], unplaced: Collection[PodUid], trial: Trial | None) -> dict[PodUid, Pod]:
    """Of `placed`, whose quorum is whole: who would yet prove, left alone with those that are not bound, that it never
    was. Each counts by what it says itself, for the others may go. O(placed x 16)."""
    placed = list(placed)
    testimony = _testimony(placed)
    named: dict[str, set[PodUid]] = {}
    for _, attempt in testimony:
        named.setdefault(attempt.id, set()).update(attempt.others)
    found: dict[PodUid, Pod] = {}
    if trial is not None:
        named.setdefault(trial.id, set()).update(trial.members)
        # No watch has told yet of what was written a moment ago.
        if trial.least - len(trial.members & set(unplaced)) < trial.needed:
            found = {pod.uid: pod for pod in placed if pod.uid in trial.members}
    for pod, attempt in testimony:
        if attempt.size - len(named[attempt.id] & set(unplaced)) < attempt.needed:
            found[pod.uid] = pod
    return found


def gone_on_with(placed: Iterable[Pod]) -> Trial | None:
    """The latest attempt of those that are bound, as far as they tell: after a restart it is gone on with. Whoever made
    it may have bound any of its members, and may be at it still."""
    attempts = [(pod.uid, attempt) for pod, attempt in _testimony(placed)]
    if not attempts:
        return None
    latest = max((attempt for _, attempt in attempts), key=lambda attempt: (attempt.at, attempt.id))
    of_it = [(uid, attempt) for uid, attempt in attempts if attempt.id == latest.id]
    members = {uid for uid, _ in of_it} | {other for _, attempt in of_it for other in attempt.others}
    size = max(len(members), *(attempt.size for _, attempt in of_it))
    least = min(attempt.size for _, attempt in of_it)
    return Trial(latest.id, min(attempt.needed for _, attempt in of_it), members, size, least, unsure=set(members))


def _testimony(placed: Iterable[Pod]) -> list[tuple[Pod, Attempt]]:
    """Who of them says that it was bound for a quorum, and in which attempt; not who joined a gang that ran."""
    return [(pod, pod.attempt) for pod in placed if pod.attempt is not None and not pod.attempt.joins]
