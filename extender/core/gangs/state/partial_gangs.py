"""Partial gangs: whether Escher is known to have bound only a part of a gang, and the proof of it.

Only known facts count. Escher wrote these Bindings together, as each pod records (see `attempt`). Too few of the named
pods are bound for the quorum to have been whole: others exist unbound, or the API server refused their Bindings for
good while Escher watched. A pod that is gone may have been bound and have ended. Times or missing records prove
nothing.

A record was true when its pod was bound, and never changes, so it must not become false. An attempt names all existing
members, not only those at the barrier. A member created later is not bound in place of a named one that still exists
(`Trial.let`). Otherwise the gang could be whole and lose the late member; after a restart, records would deny that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from extender.core.attempt import Attempt, attempts_for
from extender.core.cluster import Pod
from extender.kube.names import PodUid


@dataclass(slots=True)
class Trial:
    """Bindings that Escher writes for a quorum until it is whole; it needs `needed` of `members`.

    `size`: how many may be bound in it; above the number of members if an earlier run knew others. `least`: the size
    that the first bound members recorded for ever; 0: no member has a record yet.
    """

    id: str
    needed: int
    members: set[PodUid] = field(default_factory=set)
    size: int = 0
    least: int = 0
    refused: set[PodUid] = field(default_factory=set)
    """Members whose Binding the API server refused for good, and that cannot be bound already."""

    unsure: set[PodUid] = field(default_factory=set)
    """Members that may have a Binding because the answer to a write was lost."""

    def failed(self, uid: PodUid, *, for_good: bool, surely: bool) -> None:
        """The Binding seems not to be written; `surely`: the API server itself said so."""
        if not surely:
            self.unsure.add(uid)
        elif for_good and uid not in self.unsure:
            self.refused.add(uid)

    def include(self, members: Iterable[PodUid]) -> None:
        """Adds members that may be bound in this attempt too."""
        new = set(members) - self.members
        self.members |= new
        self.size += len(new)

    def let(self, arrived: Iterable[PodUid], unbound: Collection[PodUid], lacking: int) -> list[PodUid]:
        """The arrived members that may be bound now. `unbound`: existing members without Binding.

        A member created after the attempt began may be bound if the quorum, which lacks `lacking`, needs all of the
        attempt too; or if so few of the attempt wait that the quorum may have been whole anyway."""
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
            # Elastic gang: after any loss the records of the rest name enough others that may have been bound.
            return [*known, *new]
        return [*known, *new[: max(0, lacking - len(known))]] if waited_for <= set(known) else known

    def marks(self, joins: bool) -> dict[PodUid, Attempt]:
        """The record of each member. `joins`: the gang runs already."""
        self.least = self.least or max(self.size, len(self.members))
        needed = min(self.needed, len(self.members))
        return attempts_for(self.id, sorted(self.members), needed=needed, joins=joins, size=self.size)


@dataclass(frozen=True, slots=True)
class Proof:
    """`bound` were bound together, and `needed` of `size` had to be.

    `unbound` exist and are not bound; for `refused` more, the Bindings were refused for good.
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
        why += [f"refused permanently: {self.refused}"] if self.refused else []
        return f"attempt {self.attempt}: {self.needed} of {self.size} members were needed; {'; '.join(why)}"


def proven_part(
    placed: Iterable[Pod], unplaced: Mapping[PodUid, Pod], trial: Trial | None, quorum: int
) -> Proof | None:
    """The proof that some of `placed` are a part of a quorum that never was whole, else None.

    `placed`: members that are bound, live and stay. `unplaced`: existing members without a Binding, written or under
    way. `trial`: the latest attempt of this run. `quorum`: as asked for now; below the needed number, it may have been
    whole since. O(placed x 16).
    """
    of: dict[str, list[tuple[Pod, Attempt]]] = {}
    for pod, attempt in _testimony(placed):
        of.setdefault(attempt.id, []).append((pod, attempt))
    for id, bearers in of.items():
        named = {uid for _, attempt in bearers for uid in attempt.others}
        refused: set[PodUid] = set()
        # A record says what was true then: a later record may have been written with more members than the first.
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
    """Members whose record would deny a whole quorum after others leave. O(placed x 16)."""
    placed = list(placed)
    testimony = _testimony(placed)
    named: dict[str, set[PodUid]] = {}
    for _, attempt in testimony:
        named.setdefault(attempt.id, set()).update(attempt.others)
    found: dict[PodUid, Pod] = {}
    if trial is not None:
        named.setdefault(trial.id, set()).update(trial.members)
        # No watch has shown yet what was written a moment ago.
        if trial.least - len(trial.members & set(unplaced)) < trial.needed:
            found = {pod.uid: pod for pod in placed if pod.uid in trial.members}
    for pod, attempt in testimony:
        if attempt.size - len(named[attempt.id] & set(unplaced)) < attempt.needed:
            found[pod.uid] = pod
    return found


def gone_on_with(placed: Iterable[Pod]) -> Trial | None:
    """The latest recorded attempt, to be continued; its run may have bound any member, or may yet."""
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
    """The pods bound for a quorum, with their attempt; not those that joined a running gang."""
    return [(pod, pod.attempt) for pod in placed if pod.attempt is not None and not pod.attempt.joins]
