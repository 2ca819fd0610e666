"""History: a yard's pods and the policies in force over time, and the verdict on each Binding.

A policy change comes into force at some unknown moment between its call and its answer. A pod was decided at most
`latest` seconds before its Binding was seen, and a gang at most `latest` before its first member's. So a Binding is
right if it is right by the policies of any one moment of that time. Other pods count if they were bound before it, in
the order in which the API server wrote, and not gone by then.

One thread at a time changes the fields, under `lock`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab.controlplane.witness import Sighting
from loadtests.policy_changes.rules import POLICY, Ground, Json, PodSeen, Policies, Policy, policy_matching, why_not
from loadtests.shared.reading import GANG, WAKE, is_over, node_of


@dataclass(frozen=True)
class Reduced:
    """A pod as it was at one sighting."""

    uid: str
    namespace: str
    pod: PodSeen
    node: str
    over: bool
    turned_away: bool
    """kube-scheduler says that it cannot be placed."""
    woken: str
    """The last value that the service wrote to wake it."""


def reduced(found: Json) -> Reduced:
    metadata = found["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    named = tuple(name.strip() for name in annotations[POLICY].split(",")) if annotations.get(POLICY) else ()
    said = (found.get("status") or {}).get("conditions") or ()
    return Reduced(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        pod=PodSeen(metadata["name"], labels, named, labels.get(GANG, "")),
        node=node_of(found),
        over=is_over(found),
        turned_away=any(each["type"] == "PodScheduled" and each["status"] == "False" for each in said),
        woken=annotations.get(WAKE, ""),
    )


@dataclass
class Version:
    """The policies in force from some moment between `sent` and `answered`."""

    policies: Policies
    sent: float
    answered: float


@dataclass
class Verdicts:
    judged: int = 0
    governed: int = 0
    """Judged Bindings of pods that a policy matched."""
    late: list[float] = field(default_factory=list)
    """Bindings right by already replaced policies: seconds since that change was answered."""
    wrong: list[str] = field(default_factory=list)


@dataclass(eq=False)
class _Stay:
    """A pod on its node."""

    of: Reduced
    since: float
    until: float = math.inf

    @property
    def there(self) -> tuple[PodSeen, str]:
        return self.of.pod, self.of.node


class History:
    def __init__(self, ground: Ground, latest: float) -> None:
        self.lock = threading.Condition()
        self.ground = ground
        self.latest = latest
        self.versions: list[Version] = [Version({}, 0.0, 0.0)]
        self.pods: dict[str, Reduced] = {}
        """Existing pods, by uid."""
        self.bound_at: dict[str, float] = {}
        """When the Binding was seen, by name, also of pods that are gone."""
        self.changed_at = 0.0
        """When something was last seen or done that may matter to waiting pods."""
        self.twice: list[str] = []
        self._open: dict[str, _Stay] = {}
        """Pods that are bound now, by uid."""
        self._log: list[tuple[float, _Stay, bool]] = []
        """Bindings (True) and ends (False) in the API server's order that were not judged yet."""
        self._present: dict[str, _Stay] = {}
        """Pods that were bound when the last judged Binding was written."""
        self._gone: list[_Stay] = []
        """Pods that were bound until shortly before."""
        self._first_of_gang: dict[str, float] = {}

    # -- what is seen and done ---------------------------------------------------------------------------------------

    def see(self, sighting: Sighting[Reduced]) -> None:
        now, seen = sighting.time, sighting.seen
        with self.lock:
            before = self.pods.get(seen.uid)
            if seen.node and (before is None or not before.node):
                self._open[seen.uid] = stay = _Stay(seen, now)
                self._log.append((now, stay, True))
                self.bound_at[seen.pod.name] = now
                self.changed_at = now
            elif before is not None and before.node and seen.node != before.node:
                self.twice.append(f"{seen.pod.name} was bound to {before.node}, and then to {seen.node or 'none'}")
            if sighting.gone or seen.over:
                if self.pods.pop(seen.uid, None) is not None:
                    self.changed_at = now
                if (left := self._open.pop(seen.uid, None)) is not None:
                    left.until = now
                    self._log.append((now, left, False))
            else:
                if before is None:
                    self.changed_at = now
                self.pods[seen.uid] = seen
            self.lock.notify_all()

    def begin_change(self, name: str, becomes: Policy | None, now: float) -> Version:
        """Notes that a call is about to change a policy."""
        with self.lock:
            policies = {key: each for key, each in self.policies.items() if key != name}
            if becomes is not None:
                policies[name] = becomes
            made = Version(policies, now, math.inf)
            self.versions.append(made)
            return made

    def end_change(self, version: Version, now: float) -> None:
        """Notes that it was answered."""
        with self.lock:
            version.answered = self.changed_at = now

    @property
    def policies(self) -> Policies:
        """The policies after the last change."""
        return self.versions[-1].policies

    # -- what is there now (hold the lock) ---------------------------------------------------------------------------

    def standing(self) -> list[tuple[PodSeen, str]]:
        return [(each.pod, each.node) for each in self.pods.values() if each.node]

    def waiting(self) -> list[list[Reduced]]:
        """Returns units without a bound pod: single pods, and gangs."""
        units: dict[str, list[Reduced]] = {}
        for each in self.pods.values():
            units.setdefault(each.pod.gang or each.uid, []).append(each)
        return [unit for unit in units.values() if not any(each.node for each in unit)]

    def in_part(self) -> list[str]:
        """Returns gangs with bound and unbound pods."""
        gangs: dict[str, set[bool]] = {}
        for each in self.pods.values():
            if each.pod.gang:
                gangs.setdefault(each.pod.gang, set()).add(bool(each.node))
        return [gang for gang, bound in gangs.items() if len(bound) > 1]

    # -- the verdict -------------------------------------------------------------------------------------------------

    def judge(self, verdicts: Verdicts, now: float) -> None:
        """Judges every Binding that was seen at least `latest` seconds ago, once."""
        with self.lock:
            everybody = [*self._gone, *self._present.values(), *(stay for _, stay, bound in self._log if bound)]
            count = next((n for n, (at, _, _) in enumerate(self._log) if at > now - self.latest), len(self._log))
            due, self._log = self._log[:count], self._log[count:]
            for at, stay, bound in due:
                if not bound:
                    del self._present[stay.of.uid]
                    self._gone.append(stay)
                    continue
                gang = stay.of.pod.gang
                since = (self._first_of_gang.setdefault(gang, at) if gang else at) - self.latest
                # Pods that are bound soon after may have been decided by then, and count.
                possible = [
                    each.there
                    for each in everybody
                    if each is not stay and each.since <= at + self.latest and each.until >= since
                ]
                self._judge(verdicts, stay.of, at, since, possible)
                self._present[stay.of.uid] = stay
            self._gone = [stay for stay in self._gone if stay.until > now - 4 * self.latest]

    def _judge(
        self, verdicts: Verdicts, bound: Reduced, at: float, since: float, possible: Sequence[tuple[PodSeen, str]]
    ) -> None:
        verdicts.judged += 1
        others = [stay.there for stay in self._present.values()]
        reasons: list[str] = []
        for policies, replaced in _in_force(self.versions, since, at):
            why = why_not(bound.pod, bound.node, others, policies, self.ground, possible)
            if not why:
                verdicts.governed += bool(policy_matching(bound.pod, policies))
                if at > replaced:
                    verdicts.late.append(at - replaced)
                return
            named = ", ".join(f"{name} {each.type} {each.parameters}" for name, each in policies.items())
            when = "in force" if replaced == math.inf else f"replaced {at - replaced:.3f} s before"
            reasons.append(f"{why} ({when}: {named})")
        verdicts.wrong.append(f"{bound.namespace}/{bound.pod.name} on {bound.node}: {'; '.join(reasons)}")


def _in_force(versions: Sequence[Version], since: float, at: float) -> Iterator[tuple[Policies, float]]:
    """Yields what may have been in force in that time, the last first, and when it was replaced."""
    replaced = math.inf
    for version in reversed(versions):
        if version.sent <= at and replaced >= since:
            yield version.policies, replaced
        replaced = version.answered
        if replaced < since:
            # All earlier versions were replaced before.
            return
